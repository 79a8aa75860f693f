"""No text of lib/ names an option of a program: the library does not know how its caller spells arguments.

Usage: check_messages.py SOURCE_DIR

A string literal of lib/ that holds two dashes and a letter fails, but for the files that write commands of
the tool into results, or CSS. Messages name arguments by `argument("out_dtype")` (core/argument.hpp). The check
itself is tried first: on a planted option it must fail.
"""

import re
import sys
from pathlib import Path

# A comment, a character, or a string; of what begins first.
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)+'|"(?:[^"\\\n]|\\.)*\"""", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z]")

ALLOWED = {
    "fp8lab/identify/identify_text.cpp",  # the command that makes the output again
    "lab/sweep/plan.cpp",  # the command that repeats a sweep
    "lab/report/html.cpp",  # a variable of CSS
}


def options_in(source):
    """Lines of string literals that name an option."""
    return [
        source.count("\n", 0, token.start()) + 1
        for token in TOKEN.finditer(source)
        if token.group().startswith('"') and OPTION.search(token.group())
    ]


def faults(folder):
    found, needed = [], set()
    for file in sorted(folder.rglob("*")):
        if file.suffix not in (".hpp", ".cpp", ".inc"):
            continue
        name = str(file.relative_to(folder))
        lines = options_in(file.read_text())
        if lines and name in ALLOWED:
            needed.add(name)
        else:
            found += [f"{name}:{line}: a message names an option" for line in lines]
    return found + [f"{name} names no option and needs no exception" for name in sorted(ALLOWED - needed)]


PLANTED = """// a comment on --dtype
require(fits, "--dtype", "bf16", "none");
const char quote = '"';  // "--model"
fail("no dtype; give --dtype");
text = "a--b, -- c, --5";
text = "\\"--check\\"";
"""


def main():
    folder = Path(sys.argv[1]) / "lib"
    found = faults(folder)
    if options_in(PLANTED) != [2, 4, 6]:
        found.append(f"planted options were found in lines {options_in(PLANTED)}, expected 2, 4 and 6")
    for fault in found:
        print(fault)
    print(f"{len(found)} faults in {folder}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
