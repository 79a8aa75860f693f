"""Judges what the leak sanitizer wrote: an error but for the leaks of others that are named here.

Usage: sanitized_leaks.py REPORTS

Programs that Python starts (another Python, which draws plots) write reports under their own names, which are not read.
What counts is who called the allocator (frame #1), so nothing that the extension or the library allocates can pass.
"""

import re
import sys
from collections import Counter
from pathlib import Path

OTHERS = {
    r"/python3\.\d+\+0x": "CPython keeps types, names and states of modules until the process ends",
    r" in _dlerror_run ": "glibc keeps the last error of dlopen for each thread; thread-local memory is not scanned",
    r" in (malloc|_dl_exception_create)": "the text of that error",
    r"/numpy/[^ ]*\.so\+0x": "NumPy keeps its tables of types and functions until the process ends",
}


def known(leak):
    caller = re.search(r"^ +#1 .*", leak, re.MULTILINE)
    return next((why for pattern, why in OTHERS.items() if caller and re.search(pattern, caller[0])), None)


def main():
    reports = sorted(Path(sys.argv[1]).glob("asan.python*"))
    if not reports:
        sys.exit("no report at all: CPython alone leaves some leaks, so the sanitizer did not run")
    leaks = Counter()
    for report in reports:
        for part in report.read_text(errors="replace").split("\n\n"):
            if " leak of " in part:
                why = known(part)
                leaks[why] += 1
                if why is None:
                    print(part.strip(), "\n")
    for why in filter(None, leaks):
        print(f"{leaks[why]} leaks of others: {why}")
    print(f"{leaks[None]} leaks in {len(reports)} processes")
    return 1 if leaks[None] else 0


if __name__ == "__main__":
    sys.exit(main())
