"""Prints what tests reach, from the summary of llvm-cov on stdin: by room, and the sources with most unreached lines.

Usage: llvm-cov export ... -summary-only | coverage.py SOURCE_DIR [ROOM...]
With rooms, sources of lib/ outside of them are left out: their own tests did not run.
"""

import json
import sys
from pathlib import Path

MOST_SOURCES = 25


def room_of(path):
    parts = path.parts
    return "/".join(parts[:3]) if parts[0] == "lib" else "/".join(parts[:2])


def main(source, rooms):
    by_room, by_source = {}, []
    for file in json.load(sys.stdin)["data"][0]["files"]:
        path = Path(file["filename"])
        if not path.is_relative_to(source):
            continue
        path = path.relative_to(source)
        room = room_of(path)
        if rooms and not (room.startswith("lib/") and room.split("/")[-1] in rooms):
            continue
        lines = file["summary"]["lines"]
        total = by_room.setdefault(room, [0, 0])
        total[0] += lines["count"]
        total[1] += lines["covered"]
        by_source.append((lines["count"] - lines["covered"], lines["count"], path))
    if not by_room:
        sys.exit("no source of the project was counted")
    print("| room | lines | unreached | reached |\n|---|---|---|---|")
    for room, (count, covered) in sorted(by_room.items(), key=lambda item: item[1][1] / max(item[1][0], 1)):
        print(f"| {room} | {count} | {count - covered} | {100 * covered / max(count, 1):.1f} % |")
    print("\n| source | lines | unreached |\n|---|---|---|")
    for unreached, count, path in sorted(by_source, key=lambda item: (-item[0], str(item[2])))[:MOST_SOURCES]:
        if unreached:
            print(f"| {path} | {count} | {unreached} |")


main(Path(sys.argv[1]).resolve(), sys.argv[2:])
