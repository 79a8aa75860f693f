"""Draws small faults by rule, plants them all in one build of a copy, and lists those that no test sees.

Usage: drawn_mutants.py SOURCE_DIR SCRATCH_DIR SEED COUNT [FOLDER...]

Files below the folders (lib, apps/cli, experiments) are drawn, long ones more often, and places in them: a number is
one more, a condition turned, an operand of && or || without effect, a limit moved by one, a statement left out, a sum a
difference, a minimum a maximum. seers.py says who looks at them. Some faults change nothing but speed: what is listed is to
be looked at. Needs Clang's bindings (python3-clang-14).
"""

import collections
import json
import multiprocessing
import os
import random
import re
import shlex
import sys
from pathlib import Path

from clang.cindex import CursorKind, Diagnostic, Index

import mutate
import seers

FOLDERS = ["lib", "apps/cli", "experiments"]
# Kernels exist once a target, and what times or draws has few tests by its nature.
LEFT_OUT = re.compile(r"lib/(fp8lab/core|lab/mpi|lab/plots)/|/kernels/|_kernels?\.cpp$|^experiments/claims/")
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
        done = mutate.run(["cmake", "--build", tree / "build", "--target", "fp8lab_tests", "fp8lab_cli", "--", "-k", "0"])
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


def main():
    source, tree = (Path(argument).resolve() for argument in sys.argv[1:3])
    seed, count = sys.argv[3], int(sys.argv[4])
    os.environ.setdefault("FP8LAB_SWEEP_SHARE", "128")  # as .ci/run has it
    mutate.copy_sources(source, tree)
    mutate.configure(tree, "-DFP8LAB_JOIN_SOURCES=OFF", "-DFP8LAB_WARNINGS_AS_ERRORS=OFF")
    faults = draw(source, tree, seed, count, sys.argv[5:] or FOLDERS)
    (tree / "lib/fp8lab/core/planted.hpp").write_text(seers.PLANTED)
    numbered = {fault.number: fault for fault in build(source, tree, faults)}
    lived = seers.show(list(numbered), seers.learned(tree), lambda number: name_of(numbered[number]))
    print(f"seed {seed}: of {len(numbered)} faults the tests see {len(numbered) - len(lived)}")


if __name__ == "__main__":
    main()
