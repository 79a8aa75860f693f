"""Draws lines at which a new campaign plants its faults: nobody chooses the places.

Usage: draw.py SOURCE_DIR SEED COUNT [FOLDER...]

A line is drawn from all sources of lib/, apps/cli and experiments/, or of the folders named (in those also from Python's, outside
of docstrings), that hold something a fault can change: a number, an operator, a comparison, a condition. Each has the same chance,
so a room is drawn as often as it is long.
Per line: path, number, text. The fault itself is thought up by a person who has not looked at the tests.
"""

import ast
import random
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ["lib", "apps/cli", "experiments"]
# What stands in strings and comments is no place, nor are digits of names and types; nor is a name alone, a brace, or a declaration without a value.
TEXT = re.compile(r'"(?:\\.|[^"\\])*"|//.*|<[\w:, *&<]*>|\b\w+_t\b|\b[A-Za-z_]\w*\d+\w*')
PLACE = re.compile(r"\d|[-+*/%<>!=]=|&&|\|\||[<>?]|\b(?:if|while|true|false|min|max)\b|[-+*/%&|^] ")
NO_PLACE = re.compile(r"\s*(?:#|template|using|namespace|static_assert|\[\[nodiscard)|\s*for \(.*(?:\+\+\w+\)| : \w+\)) ?\{?$|[^=]*\) ?\{$(?<!if)")
# The same of Python.
PYTHON_TEXT = re.compile(r"""f?"(?:\\.|[^"\\])*"|#.*|\b[A-Za-z_]\w*\d+\w*|->.*""")
PYTHON_PLACE = re.compile(r"\d|[-+*/%<>!=]=|\b(?:if|and|or|not|while|True|False|None|min|max|in|is)\b|[<>]|[-+*/%&|^] ")
PYTHON_NO_PLACE = re.compile(r"\s*(?:import|from|class|@)\b|\s*\w+: [^=]*$")


def python_lines(name, text):
    """Lines of functions' bodies."""
    inside = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            for one in node.body:
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                    inside |= set(range(one.lineno, one.end_lineno + 1))
    for number, line in enumerate(text.splitlines(), 1):
        bare = PYTHON_TEXT.sub("", line)
        if number in inside and PYTHON_PLACE.search(bare) and not PYTHON_NO_PLACE.match(bare):
            yield name, number, line.strip()


def lines(source, folders):
    names = subprocess.run(["git", "ls-files", *folders], cwd=source, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        if name.endswith(".py") and folders is not FOLDERS:
            yield from python_lines(name, (source / name).read_text())
        if name.endswith(".cpp"):
            for number, text in enumerate((source / name).read_text().splitlines(), 1):
                bare = TEXT.sub("", text)
                if PLACE.search(bare) and not NO_PLACE.match(bare):
                    yield name, number, text.strip()


def main():
    source, seed, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    every = list(lines(source, sys.argv[4:] or FOLDERS))
    drawn = random.Random(seed).sample(every, count)
    print(f"{count} of {len(every)} lines, seed {seed}", file=sys.stderr)
    for name, number, text in sorted(drawn):
        print(f"{name}:{number}: {text}")


main()
