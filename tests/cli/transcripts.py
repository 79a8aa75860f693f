"""Whole outputs of commands, kept in transcripts/*.txt: exit code, both streams, and the files that came.

Usage: transcripts.py FP8LAB [NAME...]          compares, and ends with 1 where something differs
       transcripts.py FP8LAB --write [NAME...]  writes what the commands say now; read the change in version control

A transcript is a list of calls, each followed by what it did:

    $ cast 464 --format e4m3fn
    > a line of standard output
    ! a line of standard error
    = 0
    + d.npy 1152 bytes 5a0fb2c1
    | of a folder of results: "command": "what repeats it"

To add a call, write its line with `$` and let --write add the rest. The calls of a transcript run one after the other in
a folder of their own, which holds the inputs of `transcript_inputs.py`, so a call can read what an earlier one wrote.
Each option of each command must be in a call, and what writes a file in one with --json and in one without.

Everything is compared byte for byte but for reals of ten digits or more (a relative 1e-9: the C library's functions
differ in the last place between processors) and what MASKS names: machine, seconds, version. Of a long output the
first lines are kept, and a seal of the others, in which such reals have eight digits.
"""

import difflib
import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import transcript_inputs

KEPT = Path(__file__).parent / "transcripts"
TOLERANCE = 1e-9
MOST_SHOWN = 12  # lines of a call that differ
MOST_SECONDS = 120
MOST_LINES = 48  # of an output that is kept whole
FIRST_LINES = 24
MASKS = [
    (re.compile(r'("(?:target|method)": )"[^"]*"'), r'\1"*"'),
    (re.compile(r"\([\w -]+, (?:scalar|avx2|avx512|neon), (?=\d+ threads?\))"), "(*, *, "),
    (re.compile(r"^target \w+, threads .*", re.MULTILINE), "target *"),
    (re.compile(r"\b\d+ tokens/s"), "* tokens/s"),
    (re.compile(r"[\d.e+-]+ s per point \(\d+ measured\), about .* on"), "* s per point, about * on"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|ms|min)\b"), "* s"),
    (re.compile(r'("(?:\w*seconds|version|git|started|finished|crc32|cpu|cores|os|compiler)": )(?:"[^"]*"|[^,\n]*)'), r"\1*"),
]
# Files whose bytes hold times, the machine's name, or digits of the C library's functions: their names are enough.
NAMES_ALONE = re.compile(r"\.(npz|json|csv|svg|html|vl|vega|log)$|report|checkpoint|(?:log|points)\.jsonl$")
# Commands whose products share options, and options that lead to other processes, other back ends, or this text.
OF_A_PRODUCT = dict.fromkeys(("gemm", "verify", "identify", "expect"), "product")
NOT_CALLED = {"--help", "--mpi", "--backend"}
# What these say depends on the processor: probe_cpu_command.py calls them.
OF_THE_PROCESSOR = {"probe-cpu"}
# Options that write files: what a command prints must not decide whether it does.
WRITE = {"--output", "--out", "--log", "--checkpoint"}
LONG_REAL = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+)")


def calls_of(text):
    """The calls of a transcript, and what is kept of each."""
    blocks = []
    for line in text.splitlines():
        if line.startswith("$ "):
            blocks.append((line[2:], []))
        elif line and not line.startswith("#"):
            blocks[-1][1].append(line)
    return blocks


def masked(text):
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


def shortened(lines):
    if len(lines) <= MOST_LINES:
        return lines
    short = lambda found: f"{float(found[0]):.7e}" if long_real(found[0]) else found[0]
    rest = [LONG_REAL.sub(short, line) for line in lines[FIRST_LINES:]]
    digest = hashlib.sha256("\n".join(rest).encode()).hexdigest()[:16]
    return [*lines[:FIRST_LINES], f"... {len(rest)} more lines {digest}"]


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def seal(path):
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest()[:16], len(data)


# What a folder of results says of its run.
RECORD = ("experiment", "question", "quick", "seed", "threads", "parameters", "command", "sweep", "points", "failed")


def record_of(path):
    if path.name not in ("result.json", "sweep.json"):
        return []
    result = json.loads(path.read_text())
    return [masked(f'| "{key}": {json.dumps(result[key])}') for key in RECORD if key in result]


def done(tool, call, folder, before):
    """The lines that a call leaves, and the seals of all files after it."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("FP8LAB_") or name == "FP8LAB_TARGET"}
    environment = {**usual, "OMP_NUM_THREADS": "1", "FP8LAB_PYTHON": "/nowhere/python3", "LC_ALL": "C", "TERM": "dumb"}
    try:
        result = subprocess.run([tool, *shlex.split(call)], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [f"= not done after {MOST_SECONDS} s"], before
    lines = []
    for mark, stream in ((">", result.stdout), ("!", result.stderr)):
        text = masked(stream.decode(errors="backslashreplace").replace("\r", "\\r\n"))
        lines += [f"{mark} {line}".rstrip() for line in shortened(text.splitlines())]
    lines.append(f"= {result.returncode}")
    after = {name: seal(path) for name, path in files_in(folder).items()}
    for name, (digest, size) in after.items():
        if before.get(name) != (digest, size):
            lines.append(f"+ {name}" if NAMES_ALONE.search(name) else f"+ {name} {size} bytes {digest}")
            lines += record_of(folder / name)
    return lines + [f"- {name}" for name in before if name not in after], after


def transcript(tool, calls):
    """What each call leaves, in a folder of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        transcript_inputs.make(folder)
        seals = {name: seal(path) for name, path in files_in(folder).items()}
        blocks = []
        for call in calls:
            lines, seals = done(tool, call, folder, seals)
            blocks.append((call, lines))
        return blocks


def long_real(text):
    return LONG_REAL.fullmatch(text) is not None and len(re.sub(r"e.*|\D", "", text).lstrip("0")) >= 10


def same(kept, got):
    if kept == got:
        return True
    old, new = LONG_REAL.split(kept), LONG_REAL.split(got)
    return len(old) == len(new) and all(
        a == b or (long_real(a) and LONG_REAL.fullmatch(b) is not None
                   and math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=1e-300))
        for a, b in zip(old, new))


def differences(kept, got):
    if len(kept) == len(got) and all(map(same, kept, got)):
        return []
    return [line for line in difflib.unified_diff(kept, got, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]


def options_without_a_call(tool, calls):
    """Options in the help of commands that no transcript calls, as COMMAND --option."""
    called = {}
    lists = [shlex.split(call) for call in calls if call]
    for command, *words in lists:
        called.setdefault(OF_A_PRODUCT.get(command, command), set()).update(words)
    text = lambda *words: subprocess.run([tool, *words, "--help"], capture_output=True, text=True, check=True).stdout
    found = []
    commands = re.findall(r"^  ([\w-]+) ", text().partition("Subcommands:")[2], re.MULTILINE)
    for command in (name for name in commands if name not in OF_THE_PROCESSOR):
        words = called.get(OF_A_PRODUCT.get(command, command), set())
        options = re.findall(r"^  (?:(-\w),)?(--[\w-]+)", text(command), re.MULTILINE)
        found += [f"{command} {name}" for short, name in options
                  if name not in NOT_CALLED and not words & {name, short or name}]
        found += [] if words else [command]
        for names in options:
            uses = {"--json" in call for call in lists if call[0] == command and set(names) & set(call)}
            if names[1] in WRITE and ("", "--json") in options and len(uses) < 2:
                found.append(f"{command} {names[1]} {'without' if True in uses else 'with'} --json")
    return found


def main():
    tool = str(Path(sys.argv[1]).resolve())
    writes = "--write" in sys.argv[2:]
    names = [name for name in sys.argv[2:] if name != "--write"]
    paths = sorted(KEPT.glob("*.txt"))
    if unknown := set(names) - {path.stem for path in paths}:
        sys.exit(f"expected names of {KEPT.name}, got {', '.join(sorted(unknown))}")
    chosen = [path for path in paths if not names or path.stem in names]
    kept = {path: calls_of(path.read_text()) for path in paths}

    def made(path):
        blocks = transcript(tool, [call for call, _ in kept[path]])
        if writes:
            path.write_text("\n".join("\n".join([f"$ {call}", *lines, ""]) for call, lines in blocks))
        return blocks

    with ThreadPoolExecutor(2) as pool:
        got = dict(zip(chosen, pool.map(made, chosen)))
    if writes:
        return 0
    failures = 0
    for path in chosen:
        for (call, old), (_, new) in zip(kept[path], got[path]):
            if found := differences(old, new):
                failures += 1
                print(f"FAILED: {path.stem}: {call}", *found[:MOST_SHOWN], *(["..."] if len(found) > MOST_SHOWN else []), sep="\n  ")
    missing = [] if names else options_without_a_call(tool, [call for blocks in kept.values() for call, _ in blocks])
    for name in missing:
        print(f"FAILED: no transcript calls {name}")
    print(f"transcripts: {sum(map(len, got.values()))} calls, {failures + len(missing)} failures")
    return 1 if failures or missing else 0


if __name__ == "__main__":
    sys.exit(main())
