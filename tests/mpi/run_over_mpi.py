"""`mpirun -n N fp8lab run EXPERIMENT --mpi` leaves the files of a run without it.

Usage: run_over_mpi.py MPIRUN FP8LAB EXPERIMENT PROCESSES...
Where FP8LAB_SWEEP_SHARE is above 1, one number of processes, drawn by FP8LAB_SEED, is tried.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiment"))
import kept_tables  # noqa: E402

MPIRUN, TOOL, EXPERIMENT, *PROCESSES = sys.argv[1:]
if int(os.environ.get("FP8LAB_SWEEP_SHARE") or 1) > 1:
    PROCESSES = [random.Random(f"{os.environ.get('FP8LAB_SEED')} {EXPERIMENT}").choice(PROCESSES)]
RUN = ["run", EXPERIMENT, "--quick", "--threads", "1", "--seed", "5"]
SETTINGS = {
    "fp8-allreduce": ["elements=301", "gather_elements=1001", "ranks=2,3,4,9"],
    "data-parallel": ["workers=2,3,5", "steps=6", "warmup=2", "width=32", "hidden=32", "length=16",
                      "wires=f32,bf16,e4m3fn", "seeds=2"],
    "fp8-lm": ["ranks=3", "seeds=2", "steps=6", "warmup=2", "width=32", "hidden=32", "length=16",
               "systems=fp8-lm"],
}
SMALL = [word for setting in SETTINGS[EXPERIMENT] for word in ("--set", setting)]


def run(arguments, folder):
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, **kept_tables.UNDRAWN})


def run_in(folder, arguments):
    """Runs the experiment in a new folder; what it printed, its files and its record."""
    folder.mkdir()
    done = run(arguments, folder)
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {done.stderr}")
    files = {p.name: p.read_bytes() for p in (folder / "out" / EXPERIMENT).iterdir()}
    record = json.loads(files.pop("result.json"))
    command = record.pop("command")
    for key in ("started", "duration_seconds", "crc32"):
        del record[key]
    return done.stdout, files, record, command


def differences(alone, together, processes):
    (one, expected, record, _), (all_, got, other, command) = alone, together
    if one.splitlines()[0] != all_.splitlines()[0] or all_.count("files in") != 1:
        yield f"printed other than once:\n{all_}"
    if not command.startswith(f"mpirun -n {processes} fp8lab run {EXPERIMENT}"):
        yield f"recorded command: {command}"
    if record != other:
        yield "result.json differs in more than command and times"
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            yield f"{name}: not the same bytes"


def main():
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        alone = run_in(Path(scratch, "alone"), [TOOL, *RUN, *SMALL])
        files = alone[1]
        if not any(name.endswith(".csv") for name in files):
            problems.append("no CSV was compared")
        for processes in PROCESSES:
            together = run_in(Path(scratch, processes), [MPIRUN, "-n", processes, TOOL, *RUN, *SMALL, "--mpi"])
            problems += [f"{processes} processes: {what}" for what in differences(alone, together, processes)]
        refused = run([MPIRUN, "-n", PROCESSES[0], TOOL, "run", "outlier", "--mpi"], scratch)
        if refused.returncode != 2 or "--mpi: expected fp8-allreduce or data-parallel or fp8-lm alone" not in refused.stderr:
            problems.append(f"another experiment: exit {refused.returncode}: {refused.stderr}")
    print(f"processes {', '.join(PROCESSES)} files {len(files)} differences {len(problems)}")
    if problems:
        sys.exit("\n".join(problems))


main()
