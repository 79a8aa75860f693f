"""The commands on sample files that README.md shows print what it shows.

Usage: readme_commands.py PATH_OF_FP8LAB SOURCE_DIR

The commands are those after `cd docs/examples` in its block; they run in a copy of that folder. A shown line may end in
`...`, and lines that the README leaves out are not looked at.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2])


def shown():
    """[(command, [line])] of README.md."""
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"```\n\$ cd docs/examples\n(.*?)```", readme, re.DOTALL)
    if block is None:
        sys.exit("README.md: expected a block that begins with `$ cd docs/examples`")
    commands = []
    for line in block[1].splitlines():
        if line.startswith("$ "):
            commands.append((shlex.split(line[2:], comments=True), []))
        else:
            commands[-1][1].append(line)
    return commands


def main():
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        examples = Path(folder) / "examples"
        shutil.copytree(ROOT / "docs/examples", examples)
        for (tool, *arguments), lines in shown():
            if tool != "fp8lab":
                problems.append(f"{tool}: expected fp8lab")
                continue
            done = subprocess.run([TOOL, *arguments], cwd=examples, capture_output=True, text=True)
            expected_code = 1 if arguments[0] == "verify" else 0
            if done.returncode != expected_code:
                problems.append(f"{arguments[0]}: exit {done.returncode}, expected {expected_code}\n{done.stderr}")
            for line in lines:
                start, cut, _ = line.partition(" ...")
                if not any(got == line or (cut and got.startswith(start)) for got in done.stdout.splitlines()):
                    problems.append(f"{arguments[0]}: expected the line\n  {line}\ngot\n{done.stdout}")
        if not (examples / "golden.npy").exists():
            problems.append("gemm: expected golden.npy")
    print("\n".join(problems) or "README's commands print what it shows")
    return 1 if problems else 0


sys.exit(main())
