"""Fails where a test was skipped that may not be.

Usage: skipped.py JUNIT LIST    (of `ctest --output-junit`; lines of a name and a reason)

Skipped are tests of CTest, and tests within one that pytest reports (`-rs`) as skipped.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

PYTEST = re.compile(r"^SKIPPED \[\d+\] (?:.*/)?([\w.]+\.py)(?::\d+)?: (.*)$", re.MULTILINE)


def allowed(path):
    lines = [line.split(maxsplit=1) for line in Path(path).read_text().splitlines() if line and line[0] != "#"]
    for line in lines:
        if len(line) != 2:
            sys.exit(f"{path}: expected a name and a reason, got '{line[0]}'")
    return dict(lines)


def skipped(junit):
    """Names and reasons of what was skipped, and the names of all tests."""
    found, names = {}, set()
    for test in ElementTree.parse(junit).getroot().iter("testcase"):
        name, output = test.get("name"), test.findtext("system-out") or ""
        names.add(name)
        if test.get("status") == "notrun" or test.find("skipped") is not None:
            said = [line for line in output.splitlines() if "skipped" in line.lower()]
            found[name] = said[0].strip() if said else "not run"
        for file, why in PYTEST.findall(output):
            found[f"{name}/{file}"] = why
    return found, names


def main():
    found, names = skipped(sys.argv[1])
    reasons = allowed(sys.argv[2])
    wrong = [f"{name} was skipped: {why}" for name, why in found.items() if name not in reasons]
    wrong += [f"{name} is listed, but no test" for name in reasons if name.split("/")[0] not in names]
    if not names:
        wrong.append(f"{sys.argv[1]}: no test ran")
    for line in wrong:
        print("FAILED:", line)
    for name in found:
        if name in reasons:
            print(f"skipped: {name}: {reasons[name]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
