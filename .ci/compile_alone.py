"""Compiles sources alone, without objects: where the sources of a folder are joined, one that forgets an include takes
it from another.

Usage: compile_alone.py BUILD... < NAMES    of sources, the ones changed last first; others have no command in
                                            BUILD/compile_commands.json (lint_commands.py), and are left out
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST_SOURCES = 160  # some three minutes on two cores


def commands(build):
    """The command of each source, by its path."""
    for entry in json.loads((Path(build) / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        at = arguments.index("-o")
        del arguments[at : at + 2]
        yield Path(entry["file"]).resolve(), ([*arguments, "-fsyntax-only"], entry["directory"])


def compiles(command):
    arguments, folder = command
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        print(f"{arguments[-2]} does not compile alone:\n{done.stderr}", flush=True)
    return done.returncode == 0


def main():
    known = {}
    for build in sys.argv[1:]:
        known.update(commands(build))
    names = [Path(name).resolve() for name in sys.stdin.read().split()]
    wanted = [known[name] for name in names if name in known]
    if len(wanted) > MOST_SOURCES:
        print(f"{len(wanted) - MOST_SOURCES} sources that changed earlier are left to ./dev nightly", file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        right = list(pool.map(compiles, wanted[:MOST_SOURCES]))
    print(f"{sum(right)} of {len(right)} sources compile alone")
    sys.exit(0 if all(right) else 1)


main()
