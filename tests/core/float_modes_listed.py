#!/usr/bin/env python3
"""Every function of numbers in a public header has a job that runs it in all floating-point modes.

usage: float_modes_listed.py SOURCE_DIR

Public headers are those that a room's README names, and all of a room without a README. A function counts if float, double or a
type that holds one stands among its arguments or results. `tests/core/float_modes.txt` has them all, in lines
`header function...: job NAME`, the name of a job in the tests of modes, or `header function...: no, REASON`. A function without a
line, a line without a function, a job that no test has and a test whose job names none of its functions are errors.
"""

import re
import sys
from pathlib import Path

DECLARED = re.compile(r"^(?!template|using|struct|class|namespace|enum|#|static|extern|\s*(?:return|throw|else|if|for|while)\b)"
                      r"([\w:<>,&*\s\[\]]+?)\s(\w+)\(((?:[^;{}()]|\{[^{}]*\}|\([^()]*\))*)\)[^;{]*[;{]", re.M)
TYPE = re.compile(r"\b(?:struct|class) (\w+)[^;{(]*\{(.*?)\n\};|\busing (\w+) = ([^;]+);", re.S)
LINE = re.compile(r"(\S+\.hpp) (\w+(?: \w+)*): (?:job (.+)|no, (.+))")
#: Rooms whose headers are for the commands and tests of this tree alone.
NOT_PUBLIC = {"bench", "mpi"}


def headers(source):
    """Text of each header without comments, by room and name."""
    found = {}
    for path in sorted((source / "lib").glob("*/*/**/*.hpp")):
        parts = path.relative_to(source / "lib").parts
        found["/".join(parts[1:])] = re.sub(r"//[^\n]*", "", path.read_text())
    return found


def public_headers(source, known):
    for room in sorted({name.split("/")[0] for name in known} - NOT_PUBLIC):
        readmes = list((source / "lib").glob(f"*/{room}/README.md"))
        mine = {name for name in known if name.startswith(f"{room}/") and not name.endswith("-inl.hpp")}
        named = {name for readme in readmes for name in re.findall(r"`([\w/]+\.hpp)`", readme.read_text())}
        yield from sorted(name for name in mine if not readmes or name in named or name.removeprefix(f"{room}/") in named)


def mentions(names):
    return re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")


def types_of_floats(texts):
    """Types with a member of float or double, or of such a type."""
    members = {}
    for text in texts:
        for name, body, alias, meaning in TYPE.findall(text):
            fields = [one for one in body.split(";") if "(" not in one.split("=")[0]]
            members[name or alias] = meaning or ";".join(fields)
    found = {"float", "double"}
    while True:
        word = mentions(found)
        more = {name for name, body in members.items() if name not in found and word.search(body)}
        if not more:
            return found
        found |= more


def functions_of_floats(source):
    texts = headers(source)
    number = mentions(types_of_floats(texts.values()))
    for header in public_headers(source, texts):
        text = texts[header]
        text = re.sub(r" private:\n.*?\n};", "};", text, flags=re.DOTALL)
        for returned, name, arguments in DECLARED.findall(text):
            if number.search(returned + "," + arguments):
                yield header, name


def jobs_of(source):
    """The text of each job by its name."""
    tests = [source / "tests/core" / f"{name}_test.cpp" for name in ("float_environment", "entry_points_modes")]
    parts = re.split(r'push_back\(\s*\{\s*"([^"]+)"', "".join(test.read_text() for test in tests))
    jobs = {}
    for name, text in zip(parts[1::2], parts[2::2]):
        jobs[name.strip()] = jobs.get(name.strip(), "") + text  # "gemm " is one of each model
    return jobs


def main(source):
    required = set(functions_of_floats(source))
    jobs = jobs_of(source)
    errors, listed = [], set()
    for line in (source / "tests/core/float_modes.txt").read_text().splitlines():
        found = LINE.fullmatch(line)
        if not found:
            errors.append(f"expected `header function...: job NAME` or `...: no, REASON`, got {line!r}")
            continue
        names = found[2].split()
        listed |= {(found[1], name) for name in names}
        if found[3] and found[3] not in jobs:
            errors.append(f"{found[1]}: expected one of the jobs {', '.join(sorted(jobs))}, got {found[3]}")
        elif found[3]:
            errors += [f"{found[1]} {name}: the job {found[3]} does not call it" for name in names
                       if not re.search(rf"\b{name}\b", jobs[found[3]])]
    errors += [f"{header} {name} has no line in float_modes.txt" for header, name in sorted(required - listed)]
    errors += [f"{header} {name} is in float_modes.txt, but no such function is" for header, name in sorted(listed - required)]
    if len(required) < 200:
        errors.append(f"expected 200 functions or more, found {len(required)}")
    print("\n".join(errors) or f"{len(required)} functions, {len(jobs)} jobs")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
