"""Plants each fault of faults.toml in a copy of the sources and asks for a test that sees it.

Usage: mutate.py SOURCE_DIR SCRATCH_DIR [PART_OF_A_NAME...]
       mutate.py --check SOURCE_DIR      only whether each fault's text stands once in its file

The copy is built once, and again for each fault: what the fault names must pass before and fail after.
Only faults are planted that have one of the parts in their names, and only the programs are built that they need.
A fault whose text does not stand exactly once in its file, that does not compile, or that nothing sees
is an error: the list ages with the sources, and a test that stopped looking shows here.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

# What sees a fault, and the program that it needs.
SEERS = {"unit": "fp8lab_tests", "command_line": "fp8lab_cli", "experiment": "fp8lab_cli"}

# Unit tests that a fault is not run against where it names a tag: long ones, and helpers that others start.
LEFT_OUT = "~[slow]~[silicon]~[train-worker]~[planted]"


def seer_of(fault):
    """The one key of a fault that says what must see it."""
    found = [key for key in SEERS if key in fault]
    if len(found) != 1:
        sys.exit(f"{fault['name']}: expected one of {', '.join(SEERS)}, got {found}")
    return found[0]


def run(arguments, **options):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, errors="backslashreplace", **options)


def copy_sources(source, tree):
    """Brings the copy to the state of the sources, and leaves alone what is the same: less is built."""
    names = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=source).stdout
    for name in filter(None, names.split("\0")):
        old, new = tree / name, source / name
        if new.is_file() and not (old.is_file() and old.read_bytes() == new.read_bytes()):
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(new, old)


def python_of(tree):
    """The Python with the packages that tests of commands read arrays with, where it was set up."""
    found = [folder / "venv" / "bin" / "python" for folder in (tree / "build", tree.parent)]
    return next((path for path in found if path.is_file()), sys.executable)


def configure(tree, *more):
    # As ./dev builds, which finds packages of Python beside the project.
    quick = "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" if shutil.which("ccache") else "-DFP8LAB_QUICK_COMPILE=ON"
    python = python_of(tree)
    options = ["-DFP8LAB_BUILD_TESTS=ON", "-DFP8LAB_BUILD_EXPLORER=OFF", quick, f"-DFP8LAB_PYTHON={python}",
               f"-DFP8LAB_VEGA_PYTHON={python}", *more]
    done = run(["cmake", "--preset", "release", *options], cwd=tree)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def build(tree, targets):
    return run(["cmake", "--build", tree / "build", "--target", *sorted(targets)])


def tables_of(experiment, tree):
    """The command that compares an experiment's tables with those that are kept."""
    return [sys.executable, tree / "tests" / "experiment" / "kept_tables.py", tree / "build" / "fp8lab", "--check", experiment]


def look(fault, tree):
    """Whether what the fault names passes."""
    if "unit" in fault:
        left_out = LEFT_OUT if fault["unit"].startswith("[") else ""
        return run([tree / "build" / "fp8lab_tests", fault["unit"] + left_out]).returncode == 0
    if "command_line" in fault:
        script, *names = fault["command_line"].split()
        return run([python_of(tree), tree / "tests" / "cli" / script, tree / "build" / "fp8lab", *names]).returncode == 0
    return run(tables_of(fault["experiment"], tree)).returncode == 0


def misplaced(fault, tree):
    """Why the fault cannot be planted; nothing if it can."""
    path = tree / fault["file"]
    if not path.is_file():
        return f"there is no {fault['file']}"
    found = path.read_text().count(fault["find"])
    return "" if found == 1 else f"its text is there {found} times in {fault['file']}"


def check(source):
    faults = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["fault"]
    reasons = [(fault["name"], misplaced(fault, source)) for fault in faults]
    wrong = [f"{name}: {reason}" for name, reason in reasons if reason]
    print(*wrong, f"{len(faults)} faults, {len(wrong)} cannot be planted", sep="\n")
    return 1 if wrong else 0


def plant(fault, tree):
    """What became of the fault: seen, survived, or why it cannot be planted."""
    if reason := misplaced(fault, tree):
        return reason
    path = tree / fault["file"]
    text = path.read_text()
    path.write_text(text.replace(fault["find"], fault["replace"]))
    try:
        built = build(tree, [SEERS[seer_of(fault)]])
        if built.returncode != 0:
            return "does not compile:\n" + built.stdout[-2000:]
        return "survived" if look(fault, tree) else "seen"
    finally:
        path.write_text(text)


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(Path(sys.argv[2]))
    source, scratch = (Path(argument).resolve() for argument in sys.argv[1:3])
    parts = sys.argv[3:] or [""]
    faults = [fault for fault in tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["fault"]
              if any(part in fault["name"] for part in parts)]
    if not faults:
        sys.exit(f"no fault has one of {parts} in its name")
    targets = {SEERS[seer_of(fault)] for fault in faults}
    copy_sources(source, scratch)
    configure(scratch)
    first = build(scratch, targets)
    if first.returncode != 0:
        sys.exit("the sources do not build:\n" + first.stdout[-4000:])
    wrong = 0
    for fault in faults:
        start = time.monotonic()
        what = plant(fault, scratch)
        wrong += what != "seen"
        print(f"{what:9} {time.monotonic() - start:6.1f} s  {fault['name']}", flush=True)
    built = build(scratch, targets)
    for seer in sorted({(seer_of(fault), fault[seer_of(fault)]) for fault in faults}):
        if built.returncode != 0 or not look(dict([seer]), scratch):
            wrong += 1
            print(f"fails without any fault: {seer[0]} {seer[1]}")
    print(f"{len(faults)} faults, {wrong} not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
