"""Draws small faults by rule, plants them all in one build of a copy, and lists those that no unit test sees.

Usage: drawn_mutants.py SOURCE_DIR SCRATCH_DIR SEED COUNT [FOLDER...]

Files below the folders (lib/fp8lab) are drawn, long ones more often, and places in them: a number is one more, a
condition turned, an operand of && or || without effect, a limit moved by one, a statement left out, a sum a difference,
a minimum a maximum. Each fault stands behind the environment variable PLANTED. A fault runs against the tests of its
room, and against all unit tests if those do not see it. Tests of commands and kept tables are not asked, and some faults
change nothing but speed: what is listed is to be looked at. Needs Clang's bindings (python3-clang-14).
"""

import collections
import json
import multiprocessing
import os
import random
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clang.cindex import CursorKind, Diagnostic, Index

import mutate

FOLDERS = ["lib/fp8lab"]
# Kernels exist once a target, and what times or draws has few tests by its nature.
LEFT_OUT = re.compile(r"lib/fp8lab/(bench|mpi|core|plots)/|/kernels/|_kernels?\.cpp$|^experiments/claims/")
TESTS = mutate.LEFT_OUT + "~[cuda-header]"
PLANTED = """#pragma once
#include <cstdlib>

namespace fp8lab {
inline const int planted_fault = std::getenv("PLANTED") != nullptr ? std::atoi(std::getenv("PLANTED")) : 0;
inline bool fault(int number) { return planted_fault == number; }
}  // namespace fp8lab
using fp8lab::fault;
"""
FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
             CursorKind.FUNCTION_TEMPLATE, CursorKind.CONVERSION_FUNCTION}
NO_PLACES = {CursorKind.STATIC_ASSERT, CursorKind.ENUM_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.CLASS_TEMPLATE}
STATEMENTS = {CursorKind.CALL_EXPR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR, CursorKind.UNARY_OPERATOR,
              CursorKind.BINARY_OPERATOR, CursorKind.UNEXPOSED_EXPR}
ARITHMETIC = {"int", "unsigned int", "long", "unsigned long", "float", "double"}
MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OTHER = {"+": "-", "-": "+", "*": "+"}

# A place: what of the file is replaced, by what (@ is the fault's number), and what that is called.
Place = collections.namedtuple("Place", "begin end text what")
Fault = collections.namedtuple("Fault", "number file line place")


def places_of(cursor, source):
    """The places at one node of the syntax tree; `source` gives the file's text between two offsets."""
    kind, begin, end = cursor.kind, cursor.extent.start.offset, cursor.extent.end.offset
    text, children = source(begin, end), list(cursor.get_children())

    def extent(child):
        return child.extent.start.offset, child.extent.end.offset

    if kind == CursorKind.BINARY_OPERATOR and len(children) == 2:
        (a_begin, a_end), (b_begin, b_end) = map(extent, children)
        a, operator, b = source(a_begin, a_end), source(a_end, b_begin).strip(), source(b_begin, b_end)
        if operator == "&&":
            yield Place(b_begin, b_end, f"(fault(@) || ({b}))", "without the second condition")
        elif operator == "||":
            yield Place(b_begin, b_end, f"(!fault(@) && ({b}))", "without the second condition")
        elif operator in MOVED:
            yield Place(begin, end, f"(fault(@) ? {a} {MOVED[operator]} {b} : {text})", f"{operator} as {MOVED[operator]}")
        elif operator in OTHER and cursor.type.get_canonical().spelling.removeprefix("const ") in ARITHMETIC:
            yield Place(begin, end, f"(fault(@) ? ({a}) {OTHER[operator]} ({b}) : ({text}))", f"{operator} as {OTHER[operator]}")
    if kind in (CursorKind.IF_STMT, CursorKind.CONDITIONAL_OPERATOR) and children and children[0].kind.is_expression():
        a_begin, a_end = extent(children[0])
        condition = source(a_begin, a_end)
        if ";" not in source(begin, a_end):
            yield Place(a_begin, a_end, f"(fault(@) != static_cast<bool>({condition}))", "turned condition")
    if kind == CursorKind.INTEGER_LITERAL and text.isdigit():
        yield Place(begin, end, f"(fault(@) ? {int(text) + 1} : {text})", "one more")
    if kind == CursorKind.CXX_BOOL_LITERAL_EXPR:
        yield Place(begin, end, "!fault(@)" if text == "true" else "fault(@)", "turned")
    if kind == CursorKind.CALL_EXPR and (found := re.match(r"std::(min|max)\(", text)):
        other = {"min": "max", "max": "min"}[found[1]]
        yield Place(begin, end, f"(fault(@) ? std::{other}{text[8:]} : {text})", f"{found[1]} as {other}")
    if kind == CursorKind.COMPOUND_STMT:
        for child in children:
            at = extent(child)[0]
            if child.kind in STATEMENTS and not re.search(r"\.reserve\(|static_cast<void>", source(*extent(child))):
                yield Place(at, at, "if (!fault(@)) ", "left out")


def all_places(path, arguments):
    """Every place in the bodies of a file's functions."""
    content = path.read_bytes()
    unit = Index.create().parse(str(path), args=arguments)
    if any(said.severity >= Diagnostic.Fatal for said in unit.diagnostics):
        print(f"not read: {path}", file=sys.stderr)
        return []

    def source(begin, end):
        return content[begin:end].decode()

    found = []

    def walk(cursor, inside):
        for child in cursor.get_children():
            if child.location.file is None or child.location.file.name != str(path):
                continue
            text = source(child.extent.start.offset, child.extent.end.offset)
            head = re.split(r"[{=]", text, maxsplit=1)[0]
            if child.kind in NO_PLACES or re.search(r"\bconst(expr|eval)\b", head):
                continue
            if inside or child.kind in FUNCTIONS:
                found.extend(places_of(child, source))
            walk(child, inside or child.kind in FUNCTIONS)

    walk(unit.cursor, False)
    return found


def drawn_places(job):
    """`count` places of a file that do not overlap."""
    path, arguments, count, seed = job
    every = all_places(path, arguments)
    random.Random(f"{seed} {path.name}").shuffle(every)
    taken = []
    for place in every:
        if all(place.end <= other.begin or other.end <= place.begin for other in taken) and \
                all(place.begin != other.begin for other in taken):
            taken.append(place)
        if len(taken) == count:
            break
    return taken


def arguments_of(tree):
    """Of each source, what its compiler is told and Clang's parser understands."""
    wanted = re.compile(r"-(?:[ID]|isystem|std=)")
    result = {}
    for entry in json.loads((tree / "build" / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        told = [word for before, word in zip(words, words[1:]) if wanted.match(word) or before == "-isystem"]
        result[Path(entry["file"])] = [*told, "-w"]
    return result


def draw(source, tree, seed, count, folders):
    names = mutate.run(["git", "ls-files", *folders], cwd=source).stdout.split()
    files = sorted(name for name in names if name.endswith(".cpp") and not LEFT_OUT.search(name))
    lengths = [len((tree / name).read_text().splitlines()) for name in files]
    shares = collections.Counter(random.Random(seed).choices(files, weights=lengths, k=count))
    told = arguments_of(tree)
    jobs = [(tree / name, told.get(tree / name, []), share, seed) for name, share in sorted(shares.items())]
    with multiprocessing.Pool() as pool:
        drawn = pool.map(drawn_places, jobs, chunksize=1)
    faults = []
    for (path, *_), places in zip(jobs, drawn):
        content = path.read_bytes()
        for place in places:
            line = content[:place.begin].count(b"\n") + 1
            faults.append(Fault(len(faults) + 1, path.relative_to(tree), line, place))
    return faults


def plant(source, tree, faults):
    """Writes the files with these faults into the copy, and others as they are in the project."""
    mutate.copy_sources(source, tree)
    by_file = collections.defaultdict(list)
    for fault in faults:
        by_file[fault.file].append(fault)
    for file, planted in by_file.items():
        content = (source / file).read_bytes()
        for fault in sorted(planted, key=lambda one: -one.place.begin):
            text = fault.place.text.replace("@", str(fault.number)).encode()
            content = content[:fault.place.begin] + text + content[fault.place.end:]
        at = 0 if content.startswith(b"#include") else content.index(b"\n#include") + 1
        (tree / file).write_bytes(content[:at] + b'#include "fp8lab/core/planted.hpp"\n' + content[at:])


def build(source, tree, faults):
    """Builds the tests, without the faults that do not compile. Returns the others."""
    while True:
        plant(source, tree, faults)
        done = mutate.run(["cmake", "--build", tree / "build", "--target", "fp8lab_tests", "--", "-k", "0"])
        if done.returncode == 0:
            return faults
        said = done.stdout + done.stderr
        wrong = {(name, int(line)) for name, line in re.findall(r"([\w./-]+\.cpp):(\d+):\d+: error", said)}
        refused = set()
        for name, line in wrong:
            text = (tree / "build" / name).resolve().read_text().splitlines()[line - 1]
            refused |= {int(number) for number in re.findall(r"fault\((\d+)\)", text)}
        if not refused:
            sys.exit("the sources do not build:\n" + said[-4000:])
        faults = [fault for fault in faults if fault.number not in refused]


def name_of(fault):
    return f"{fault.number:4} {fault.file}:{fault.line}: {fault.place.what}"


class Tests:
    """The unit tests of the build, and how long a room's take without a fault."""

    def __init__(self, tree):
        self.program = tree / "build" / "fp8lab_tests"
        self.tags = re.findall(r"\[([\w-]+)\]", mutate.run([self.program, "--list-tags"]).stdout)
        self.limits = {}

    def filter_of(self, file):
        room = file.parts[2] if file.parts[0] == "lib" else file.parts[0]
        return (f"[{room}]" if room in self.tags else "") + TESTS

    def time(self, names):
        """How long the tests may take with a fault. Returns their names if they fail without one."""
        start = time.monotonic()
        failed = mutate.run([self.program, names]).returncode != 0
        self.limits[names] = 60 + 10 * (time.monotonic() - start)
        return names if failed else ""

    def see(self, fault, names):
        """What saw the fault; nothing if none did."""
        environment = {**os.environ, "PLANTED": str(fault.number)}
        try:
            done = mutate.run([self.program, names, "--abort"], env=environment, timeout=self.limits[names])
        except subprocess.TimeoutExpired:
            return "a time limit"
        first = next((line for line in done.stdout.splitlines() if "FAILED" in line), "a crash")
        return first.split("/tests/")[-1].removesuffix(": FAILED:") if done.returncode != 0 else ""

    def not_seen(self, faults, names_of):
        """The faults that the tests named for each do not see; the others are printed."""
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for failed in filter(None, threads.map(self.time, sorted({names_of(fault) for fault in faults}))):
                sys.exit(f"{failed}: fails without a fault")
            sights = threads.map(lambda fault: self.see(fault, names_of(fault)), faults)
            lived = []
            for fault, sight in zip(faults, sights):
                if sight:
                    print(f"{name_of(fault)}: {sight}", flush=True)
                else:
                    lived.append(fault)
        return lived


def main():
    source, tree = (Path(argument).resolve() for argument in sys.argv[1:3])
    seed, count = sys.argv[3], int(sys.argv[4])
    os.environ.setdefault("FP8LAB_SWEEP_SHARE", "128")  # as .ci/run has it
    mutate.copy_sources(source, tree)
    mutate.configure(tree, "-DFP8LAB_JOIN_SOURCES=OFF", "-DFP8LAB_WARNINGS_AS_ERRORS=OFF")
    faults = draw(source, tree, seed, count, sys.argv[5:] or FOLDERS)
    (tree / "lib/fp8lab/core/planted.hpp").write_text(PLANTED)
    faults = build(source, tree, faults)
    tests = Tests(tree)
    beyond_room = tests.not_seen(faults, lambda fault: tests.filter_of(fault.file))
    lived = tests.not_seen(beyond_room, lambda fault: TESTS)
    for fault in lived:
        print(f"{name_of(fault)}: NOT SEEN")
    print(f"seed {seed}: of {len(faults)} faults the tests of their rooms see {len(faults) - len(beyond_room)}, "
          f"all unit tests {len(faults) - len(lived)}")


if __name__ == "__main__":
    main()
