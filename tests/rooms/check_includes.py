"""The rooms of lib/ include only what lib/README.md allows them.

Usage: check_includes.py SOURCE_DIR

lib/README.md has a table for each library (`fp8lab/`, `training/`, `lab/`, from the ground up): each room, what it is
for, and the rooms that it may include. Every `#include "LIBRARY/ROOM/..."` below lib/ is an arrow, and an arrow that the
tables lack fails, as does a room without a row, a row without a room, an allowed arrow that no file has, a cycle, and a
row that allows a room of a later library. The check itself is tried first: on planted arrows it must fail.
"""

import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^#\s*include\s+"((?:fp8lab|training|lab)/[a-z0-9_]+)/', re.MULTILINE)
TABLE = re.compile(r"^## `(\w+)/`", re.MULTILINE)
ROW = re.compile(r"^\| `([a-z0-9_]+)/` \|[^|]*\|([^|]*)\|\s*$", re.MULTILINE)


def tables(text):
    """[(library, [(room, rooms that it may include)])], from the ground up"""
    parts = TABLE.split(text)[1:]
    return [
        (library, [(room, re.findall(r"`([a-z0-9_]+)`", cell)) for room, cell in ROW.findall(part)])
        for library, part in zip(parts[::2], parts[1::2])
    ]


def allowed_arrows(text):
    """{library/room: {library/room that it may include}}, and what is wrong with the tables themselves"""
    read = tables(text)
    place = {room: f"{library}/{room}" for library, rows in read for room, _ in rows}
    order = [library for library, _ in read]
    allowed, wrong = {}, []
    for library, rows in read:
        for room, others in rows:
            allowed[f"{library}/{room}"] = {place.get(other, other) for other in others}
            for other in others:
                if other in place and order.index(place[other].split("/")[0]) > order.index(library):
                    wrong.append(f"lib/README.md allows {library}/{room}/ to include {place[other]}/, which stands above it")
    return allowed, wrong


def arrows_of(lib):
    """{library/room: {included library/room: [files that include it]}}"""
    arrows = {}
    for room in sorted(path for path in lib.glob("*/*") if path.is_dir() and path.parent.name != "cmake"):
        name = str(room.relative_to(lib))
        found = arrows.setdefault(name, {})
        for file in sorted(room.rglob("*")):
            if file.suffix not in (".hpp", ".cpp", ".inc"):
                continue
            for other in INCLUDE.findall(file.read_text()):
                if other != name:
                    found.setdefault(other, []).append(str(file.relative_to(lib)))
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
    allowed, found = allowed_arrows((lib / "README.md").read_text())
    arrows = arrows_of(lib)
    found += [f"{room}/ has no row in lib/README.md" for room in arrows.keys() - allowed.keys()]
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


def planted(lib, room, other):
    """The faults of a small copy of the house in which a room includes one that it must not."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        (copy / "README.md").write_text((lib / "README.md").read_text())
        for name, others in arrows_of(lib).items():
            (copy / name).mkdir(parents=True)
            lines = [f'#include "{included}/x.hpp"\n' for included in [*others, *([other] if name == room else [])]]
            (copy / name / "x.cpp").write_text("".join(lines))
        return faults(copy)


def main():
    lib = Path(sys.argv[1]) / "lib"
    found = faults(lib)
    for room, other in [("fp8lab/formats", "fp8lab/gemm"), ("fp8lab/gemm", "lab/plots")]:
        expected = [f"{room}/ must not include {other}/: {room}/x.cpp"]
        if not found and planted(lib, room, other) != expected:
            found = [f"a planted arrow gave {planted(lib, room, other)}, expected {expected}"]
    for fault in found:
        print(fault)
    print(f"{len(found)} faults in {len(arrows_of(lib))} rooms")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
