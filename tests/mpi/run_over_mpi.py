"""`mpirun -n N fp8lab run EXPERIMENT --mpi` leaves the files of a run without it.

Usage: run_over_mpi.py MPIRUN FP8LAB PROCESSES EXPERIMENT
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MPIRUN, TOOL, PROCESSES, EXPERIMENT = sys.argv[1:]
RUN = ["run", EXPERIMENT, "--quick", "--threads", "1", "--seed", "5"]
SETTINGS = {
    "fp8-allreduce": ["elements=301", "gather_elements=1001", "ranks=2,3,4,9"],
    "data-parallel": ["workers=2,3,5", "steps=6", "warmup=2", "width=32", "hidden=32", "length=16",
                      "wires=f32,bf16,e4m3fn", "seeds=2"],
    "fp8-lm": ["ranks=3", "seeds=2", "steps=6", "warmup=2", "width=32", "hidden=32", "length=16",
               "systems=bf16-fp32,fp32,fp8-lm"],
}
SMALL = [word for setting in SETTINGS[EXPERIMENT] for word in ("--set", setting)]


def run(arguments, folder):
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)


def files_of(folder):
    return {p.name: p.read_bytes() for p in (folder / "out" / EXPERIMENT).iterdir()}


def main():
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        alone, together = Path(scratch, "alone"), Path(scratch, "together")
        alone.mkdir()
        together.mkdir()
        one = run([TOOL, *RUN, *SMALL], alone)
        all_ = run([MPIRUN, "-n", PROCESSES, TOOL, *RUN, *SMALL, "--mpi"], together)
        for done in (one, all_):
            if done.returncode != 0:
                sys.exit(f"exit {done.returncode}: {done.stderr}")
        if one.stdout.splitlines()[0] != all_.stdout.splitlines()[0] or all_.stdout.count("files in") != 1:
            problems.append(f"printed other than once:\n{all_.stdout}")
        expected, got = files_of(alone), files_of(together)
        records = [json.loads(files.pop("result.json")) for files in (expected, got)]
        command = records[1].pop("command")
        if not command.startswith(f"mpirun -n {PROCESSES} fp8lab run {EXPERIMENT}"):
            problems.append(f"recorded command: {command}")
        records[0].pop("command")
        for record in records:
            del record["started"], record["duration_seconds"], record["crc32"]
        if records[0] != records[1]:
            problems.append("result.json differs in more than command and times")
        for name in sorted(expected.keys() | got.keys()):
            if expected.get(name) != got.get(name):
                problems.append(f"{name}: not the same bytes")
        if not any(name.endswith(".csv") for name in expected):
            problems.append("no CSV was compared")
        refused = run([MPIRUN, "-n", PROCESSES, TOOL, "run", "outlier", "--mpi"], together)
        if refused.returncode != 2 or "expected fp8-allreduce or data-parallel or fp8-lm alone" not in refused.stderr:
            problems.append(f"another experiment: exit {refused.returncode}: {refused.stderr}")
    print(f"processes {PROCESSES} files {len(expected)} differences {len(problems)}")
    if problems:
        sys.exit("\n".join(problems))


main()
