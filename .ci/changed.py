"""What a change touches, so that lint, sanitizers and long tests look at that; `./dev nightly` looks at everything.

Usage: changed.py files             the changed files
       changed.py lint BUILD        the sources to lint: changed ones, and for a changed header two that include it
       changed.py rooms             the rooms of tests to build with sanitizers: those that changed, the ones changed
                                    last first, while their sources in all stay in a bound; costly ones only if
                                    no other changed
       changed.py tests             the long tests of parts that the change does not touch: `./dev nightly` runs them

A change is what differs from FP8LAB_BASE if that names a commit, else from where this branch left
origin/main. A clone of main has left it nowhere: there the commits of the twelve hours before the
newest count as the change, by the commits' own dates. A history that does not reach back so far
(a new project, a shallow clone) is a change of everything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HOURS = 12
MOST_SOURCES = 16  # of one lint: some two minutes on two cores
INCLUDERS = 2
MOST_TESTS = 80  # sources of tests in one build with sanitizers, if its first room does not have more
COSTLY_ROOMS = {"collectives", "experiments"}  # their tests need all experiments: some eight minutes more
LINTED = re.compile(r"(lib|experiments|apps/bench|apps/cli|apps/explorer/pictures|apps/python)/.*\.cpp")
HEADER = re.compile(r"(lib|experiments|apps)/.*\.(hpp|inc)")
# Long tests of one part, and the files whose change makes them run.
REPORTS = re.compile(r"lib/lab/(report|plots|experiment)/|tests/(report|browser)/.*(?<!_test\.cpp)$")
TRAINS = re.compile(r"(experiments/(claims|common)|lib/(training|fp8lab/linear|lab/experiment))/")
PROCESSES = re.compile(r"(lib/(lab/mpi|training/collectives|lab/sweep)|experiments/(fp8-allreduce|data-parallel|fp8-lm)|tests/mpi)/")
TIMES = re.compile(r"(apps/cli/(sweep|train)|apps/bench/|tests/cli/(bench_command|clock_command|even_clock))")
LONG_TESTS = {
    "report_browser": REPORTS,
    "report_plots": REPORTS,
    "notebooks": re.compile(r"(notebooks|apps/python)/"),
    "claims_reproducible": TRAINS,
    "backward_mutants": re.compile(r"(lib/training|lib/fp8lab|tests)/(train|linear)/"),
    "recipes_oracle": re.compile(r"(lib/fp8lab/(scaling|cast|formats)|tests/python)/"),
    "lost_output": re.compile(r"(lib/fp8lab/io|apps/cli)/|tests/cli/(lost_output|checking)"),
    **{f"mpi_{name}": PROCESSES for name in ("sweep", "sharded_sweep", "fp8-allreduce", "data-parallel", "fp8-lm")},
    "bench_even": TIMES,
    "clock_command": TIMES,
}
EVERYTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the empty tree


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def base():
    named = os.environ.get("FP8LAB_BASE")
    if named:
        commit = git("rev-parse", "--verify", "--quiet", named + "^{commit}")
        return commit or sys.exit(f"FP8LAB_BASE: expected a commit, got '{named}'")
    left = git("merge-base", "HEAD", "origin/main")
    if left and left != git("rev-parse", "HEAD"):
        return left
    before = int(git("log", "-1", "--format=%ct")) - HOURS * 3600
    return git("rev-list", "-1", f"--before=@{before}", "HEAD") or EVERYTHING


def changed_files():
    """Those of the change that still exist, the ones changed last first."""
    since = base()
    files = set(git("diff", "--name-only", "--diff-filter=d", since).splitlines())
    files |= set(git("ls-files", "--others", "--exclude-standard").splitlines())
    range_of = ["HEAD"] if since == EVERYTHING else [f"{since}..HEAD"]
    order = git("log", "--format=", "--name-only", *range_of).splitlines()
    place = {name: i for i, name in reversed(list(enumerate(order)))}
    return sorted(files, key=lambda name: (place.get(name, -1), name))


def includers(build):
    """Sources by the header of this repository that they include, as ninja knows it. Of sources that are
    compiled together each counts."""
    root = Path.cwd()
    said = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found = {}
    for entry in said.split("\n\n"):
        paths = []
        for line in entry.splitlines()[1:]:
            path = Path(os.path.normpath(Path(build).resolve() / line.strip()))
            if path.is_relative_to(root):
                paths.append(str(path.relative_to(root)))
        sources = [path for path in paths if path.endswith(".cpp") and "/joined/" not in path]
        for path in paths:
            if path not in sources:
                found.setdefault(path, []).extend(sources)
    return found


def lint_sources(build):
    files = changed_files()
    linted = [name for name in git("ls-files").splitlines() if LINTED.fullmatch(name)]
    if ".clang-tidy" in files:
        return linted
    users = includers(build)
    sources = []
    for name in files:
        if HEADER.fullmatch(name):
            own = [source for source in users.get(name, []) if source in linted]
            own.sort(key=lambda source: (Path(source).stem != Path(name).stem, source))
            sources += own[:INCLUDERS]
        elif LINTED.fullmatch(name):
            sources.append(name)
    sources = list(dict.fromkeys(sources))
    if len(sources) > MOST_SOURCES:
        print(f"{len(sources) - MOST_SOURCES} sources that changed earlier are left to ./dev nightly", file=sys.stderr)
    return sources[:MOST_SOURCES]


def rooms():
    """Folders of tests/ with unit tests."""
    every = sorted({path.parts[1] for path in Path("tests").glob("*/*_test.cpp")})
    touched = []
    for name in changed_files():
        match = re.match(r"(?:tests|lib/\w+)/(\w+)/|(experiments|cuda)/", name)
        touched += [room for room in every if match and room in match.groups() and room not in touched]
    cheap = [room for room in touched if room not in COSTLY_ROOMS]
    taken = []
    for room in cheap or touched:
        if not taken or sum(map(tests_of, [*taken, room])) <= MOST_TESTS:
            taken.append(room)
    left = sorted(set(touched) - set(taken))
    if left:
        print(f"left to ./dev nightly: {' '.join(left)}", file=sys.stderr)
    return sorted(taken)


def tests_left():
    files = changed_files()
    return [name for name, part in LONG_TESTS.items() if not any(map(part.match, files))]


def tests_of(room):
    return len(list((Path("tests") / room).rglob("*_test.cpp")))


def main(arguments):
    os.chdir(git("rev-parse", "--show-toplevel") or ".")
    if arguments == ["files"]:
        lines = changed_files()
    elif arguments[:1] == ["lint"] and len(arguments) == 2:
        lines = lint_sources(arguments[1])
    elif arguments == ["rooms"]:
        lines = rooms()
    elif arguments == ["tests"]:
        lines = tests_left()
    else:
        sys.exit(__doc__)
    print("\n".join(lines))


main(sys.argv[1:])
