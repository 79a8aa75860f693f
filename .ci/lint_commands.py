"""Commands for clang-tidy: those of a build, one a source, without the precompiled headers of another compiler.

Usage: lint_commands.py BUILD...    writes BUILD/lint/compile_commands.json
"""

import json
import re
import sys
from pathlib import Path

PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S*cmake_pch\.hxx(?=\s)")
INCLUDED = re.compile(r'^#include "(/.*\.cpp)"$', re.MULTILINE)


def sources_of(file):
    """The sources that are compiled together in a file (lib/cmake/join_sources.cmake), or the file itself."""
    if file.parent.name != "joined" or not file.exists():
        return [file]
    return [Path(source) for source in INCLUDED.findall(file.read_text())]


def commands(build):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        command = PRECOMPILED.sub("", entry["command"]).replace(" -Wno-shadow", "")
        for source in sources_of(Path(entry["file"])):
            yield {**entry, "file": str(source), "command": command.replace(entry["file"], str(source))}


def main():
    for build in map(Path, sys.argv[1:]):
        folder = build / "lint"
        folder.mkdir(exist_ok=True)
        (folder / "compile_commands.json").write_text(json.dumps(list(commands(build)), indent=1))


main()
