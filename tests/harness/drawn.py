"""Runs test cases of a Catch2 filter in two processes at once: all of them, one in N, or as many as fit in a time.

Usage: drawn.py PROGRAM FILTER [--one-in N] [--seconds S]
FP8LAB_SEED decides which are drawn and in which order they run. Where FP8LAB_SWEEP_SHARE is not above 1, --one-in has
no effect: all run. No case starts after S seconds; those left are named as a number, for `./dev nightly`.
Prints what failed; exits 1 if a case did, and 2 where FILTER matches none.
"""

import argparse
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AT_ONCE = 2  # most tests use one core
MOST_IN_A_PROCESS = 8  # test cases: a program of sanitizers takes a part of a second to start


def listed(program, arguments):
    # Catch2 2 ends a list with the number of tests, or that number cut to a byte: its exit code says nothing.
    said = subprocess.run([program, "--list-test-names-only", *arguments], capture_output=True, text=True).stdout
    return [name for name in said.splitlines() if name.strip()]


def run(program, names, file):
    """What a process of these test cases says; nothing if all passed."""
    # A comma or a bracket in a name is part of it.
    file.write_text("".join(re.sub(r'[][,*"\\]', r"\\\g<0>", name) + "\n" for name in names))
    if len(listed(program, ["--input-file", file])) != len(names):
        return f"of {names} not every one was understood"
    done = subprocess.run([program, "--input-file", file], cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="backslashreplace", env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    return "" if done.returncode == 0 else done.stdout + f"exit code {done.returncode}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("filter")
    parser.add_argument("--one-in", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args()
    program = asked.program.resolve()
    seed = int(os.environ.get("FP8LAB_SEED") or random.SystemRandom().randrange(1 << 31))
    names = listed(program, [asked.filter])
    if not names:
        print(f"no test matches '{asked.filter}'", file=sys.stderr)
        return 2
    in_all = len(names)
    random.Random(seed).shuffle(names)
    if int(os.environ.get("FP8LAB_SWEEP_SHARE") or 1) > 1:
        names = names[: -(-in_all // asked.one_in)]
    end = time.monotonic() + asked.seconds
    ran, failures = 0, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:

        size = max(1, min(MOST_IN_A_PROCESS, len(names) // (2 * AT_ONCE)))

        def run_part(begin):
            part = names[begin : begin + size]
            if begin > 0 and time.monotonic() > end:
                return 0, ""
            return len(part), run(program, part, Path(folder) / f"part{begin}")

        for count, said in pool.map(run_part, range(0, len(names), size)):
            ran += count
            failures += [said] if said else []
    print(*failures, sep="\n", end="")
    print(f"{ran} of {in_all} test cases ran, FP8LAB_SEED={seed}: {'FAILED' if failures else 'no failure'}")
    return 1 if failures else 0


sys.exit(main())
