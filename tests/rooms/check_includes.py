"""The rooms of lib/ include only what lib/README.md allows them.

Usage: check_includes.py SOURCE_DIR

lib/README.md has one table: each room, what it is for, and the rooms that it may include. Every
`#include "fp8lab/ROOM/..."` in lib/fp8lab is an arrow, and an arrow that the table lacks fails, as
does a room without a row, a row without a room, an allowed arrow that no file has, and a cycle.
The check itself is tried first: on a planted arrow it must fail.
"""

import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^#\s*include\s+"fp8lab/([a-z0-9_]+)/', re.MULTILINE)
ROW = re.compile(r"^\| `([a-z0-9_]+)/` \|[^|]*\|([^|]*)\|\s*$", re.MULTILINE)


def allowed_arrows(text):
    return {room: set(re.findall(r"`([a-z0-9_]+)`", cell)) for room, cell in ROW.findall(text)}


def arrows_of(folder):
    """{room: {included room: [files that include it]}}"""
    arrows = {}
    for room in sorted(path for path in folder.iterdir() if path.is_dir()):
        found = arrows.setdefault(room.name, {})
        for file in sorted(room.rglob("*")):
            if file.suffix not in (".hpp", ".cpp", ".inc"):
                continue
            for other in INCLUDE.findall(file.read_text()):
                if other != room.name:
                    found.setdefault(other, []).append(str(file.relative_to(folder)))
    return arrows


def cycle_in(allowed):
    """A room that can reach itself, or None."""
    for start in allowed:
        seen, todo = set(), list(allowed[start])
        while todo:
            room = todo.pop()
            if room == start:
                return start
            if room not in seen:
                seen.add(room)
                todo += allowed.get(room, ())
    return None


def faults(lib):
    allowed = allowed_arrows((lib / "README.md").read_text())
    arrows = arrows_of(lib / "fp8lab")
    found = [f"{room}/ has no row in lib/README.md" for room in arrows.keys() - allowed.keys()]
    found += [f"lib/README.md has a row for {room}/, which is not there" for room in allowed.keys() - arrows.keys()]
    for room, others in arrows.items():
        for other, files in others.items():
            if other not in allowed.get(room, ()):
                found.append(f"{room}/ must not include {other}/: {', '.join(sorted(set(files)))}")
        for other in allowed.get(room, set()) - others.keys():
            found.append(f"lib/README.md allows {room}/ to include {other}/, which no file does")
    if (room := cycle_in(allowed)) is not None:
        found.append(f"{room}/ includes itself by way of others")
    return sorted(found)


def planted(lib):
    """The faults of a small copy of the house in which formats/ includes gemm/."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        (copy / "README.md").write_text((lib / "README.md").read_text())
        for room, others in arrows_of(lib / "fp8lab").items():
            (copy / "fp8lab" / room).mkdir(parents=True)
            lines = [f'#include "fp8lab/{other}/x.hpp"\n' for other in others]
            if room == "formats":
                lines.append('#include "fp8lab/gemm/gemm.hpp"\n')
            (copy / "fp8lab" / room / "x.cpp").write_text("".join(lines))
        return faults(copy)


def main():
    lib = Path(sys.argv[1]) / "lib"
    expected = ["formats/ must not include gemm/: formats/x.cpp"]
    found = faults(lib)
    if not found and planted(lib) != expected:
        found = [f"a planted arrow gave {planted(lib)}, expected {expected}"]
    for fault in found:
        print(fault)
    print(f"{len(found)} faults in {len(arrows_of(lib / 'fp8lab'))} rooms")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
