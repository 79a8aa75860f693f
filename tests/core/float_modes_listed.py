#!/usr/bin/env python3
"""Every function of floats in a public header has a job that runs it in all floating-point modes.

usage: float_modes_listed.py SOURCE_DIR

Public headers are those that a room's README names. `tests/core/float_modes.txt` has a line for each of their functions
with float or double among arguments or results: `header function: job NAME`, the name of a job in the tests of modes, or
`header function: no, REASON`. A function without a line, a line without a function and a job that no test has are errors.
"""

import re
import sys
from pathlib import Path

DECLARED = re.compile(r"^(?!template|using|struct|class|namespace|enum|#|static|extern)([\w:<>,&*\s\[\]]+?)\s(\w+)\(([^;{]*)\)[^;{]*;", re.M)
LINE = re.compile(r"(\S+) (\w+): (?:job (.+)|no, (.+))")


def public_headers(source):
    for library in (source / "lib").iterdir():
        for readme in library.glob("*/README.md"):
            for name in re.findall(r"`([\w/]+\.hpp)`", readme.read_text()):
                for header in (readme.parent / name, library / name):
                    if header.exists():
                        yield str(header.relative_to(library)), header


def functions_of_floats(source):
    for header, path in sorted(set(public_headers(source))):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        text = re.sub(r" private:\n.*?\n};", "};", text, flags=re.DOTALL)
        for returned, name, arguments in DECLARED.findall(text):
            if re.search(r"\b(?:float|double)\b", returned + arguments):
                yield header, name


def main(source):
    required = set(functions_of_floats(source))
    tests = [source / "tests/core" / f"{name}_test.cpp" for name in ("float_environment", "entry_points_modes")]
    found = re.findall(r'push_back\(\s*\{\s*"([^"]+)"', "".join(test.read_text() for test in tests))
    jobs = {name.strip() for name in found}  # "gemm " is one of each model
    errors, listed = [], set()
    for line in (source / "tests/core/float_modes.txt").read_text().splitlines():
        found = LINE.fullmatch(line)
        if not found:
            errors.append(f"expected `header function: job NAME` or `...: no, REASON`, got {line!r}")
            continue
        listed.add((found[1], found[2]))
        if found[3] and found[3] not in jobs:
            errors.append(f"{found[1]} {found[2]}: expected one of the jobs {', '.join(sorted(jobs))}, got {found[3]}")
    errors += [f"{header} {name} has no line in float_modes.txt" for header, name in sorted(required - listed)]
    errors += [f"{header} {name} is in float_modes.txt, but no such function is" for header, name in sorted(listed - required)]
    if len(required) < 40:
        errors.append(f"expected 40 functions or more, found {len(required)}")
    print("\n".join(errors) or f"{len(required)} functions, {len(jobs)} jobs")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
