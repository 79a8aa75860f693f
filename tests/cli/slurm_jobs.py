"""The batch files of apps/slurm, run by a stand-in for sbatch: the bytes of a sweep on one machine.

usage: slurm_jobs.py FP8LAB [MPIRUN]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

JOBS = pathlib.Path(__file__).resolve().parents[2] / "apps" / "slurm"
FP8LAB = pathlib.Path(sys.argv[1]).resolve()
SWEEP = [
    "outlier", "--quick", "--axis", "tiles=16,32", "--axis", "sigma=0.1,0.4,1.6",
    "--set", "elements=2048", "--set", "repeats=2", "--set", "outliers_per_decade=2",
    "--set", "containment_elements=1024", "--set", "published_repeats=1",
]  # fmt: skip

# Runs a job at once, from a copy, as Slurm's spool folder has it; waits for nothing.
SBATCH = """#!/bin/bash
set -euo pipefail
array= parsable=
while [[ $1 == --* ]]; do
  case $1 in
    --array=0-*) array=${1#--array=0-} ;;
    --parsable) parsable=1 ;;
    --dependency=afterok:17) ;;
    *) echo "sbatch: unknown option $1" >&2; exit 1 ;;
  esac
  shift
done
spool=$(mktemp -d -p "$FAKE_SPOOL")
cp "$1" "$spool/slurm_script"
shift
export SLURM_CPUS_PER_TASK=1 SLURM_NTASKS=2
if [ -z "$array" ]; then
  bash "$spool/slurm_script" "$@" >&2
else
  export SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=$array SLURM_ARRAY_TASK_COUNT=$((array + 1))
  for ((i = 0; i <= array; ++i)); do
    SLURM_ARRAY_TASK_ID=$i bash "$spool/slurm_script" "$@" >&2
  done
fi
if [ -n "$parsable" ]; then echo "17;cluster"; else echo "Submitted batch job 17"; fi
"""


def contents(folder):
    return {file.name: file.read_bytes() for file in pathlib.Path(folder).iterdir()}


def check(what, good, got=""):
    if not good:
        print(f"FAILED: {what}\n{got}")
        sys.exit(1)


def environment(root):
    """A PATH with the tool, the stand-in, and mpirun as tests may use it."""
    programs = root / "bin"
    programs.mkdir()
    (programs / "sbatch").write_text(SBATCH)
    (programs / "sbatch").chmod(0o755)
    (programs / "fp8lab").symlink_to(FP8LAB)
    if len(sys.argv) > 2:
        (programs / "mpirun").write_text(f'#!/bin/bash\nexec "{sys.argv[2]}" --oversubscribe "$@"\n')
        (programs / "mpirun").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "FAKE_SPOOL": str(root)}


def main():
    files = sorted([*JOBS.glob("*.sbatch"), *JOBS.glob("*.sh")])
    check("apps/slurm has its four files", len(files) == 4, files)
    for file in files:
        done = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True)
        check(f"bash -n {file.name}", done.returncode == 0, done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        env = environment(root)

        def run(*command, **more):
            return subprocess.run([str(c) for c in command], env={**env, **more}, capture_output=True, text=True)

        subprocess.run([FP8LAB, "sweep", *SWEEP, "--out", root / "alone"], check=True, capture_output=True)
        expected = contents(root / "alone")

        done = run(JOBS / "submit_array.sh", 4, root / "array", *SWEEP)
        check("the array and its merging run", done.returncode == 0, done.stdout + done.stderr)
        check("shards", sorted(p.name for p in (root / "array").iterdir()) == [*(f"shard{i}" for i in range(4)), "whole"])
        check("shards merge to the bytes of one machine", contents(root / "array" / "whole") == expected)

        partial = {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_TASK_COUNT": "4",
                   "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_PER_TASK": "1"}  # fmt: skip
        done = run("bash", JOBS / "sweep_shard.sbatch", root / "partial", *SWEEP, **partial)
        check("an array that does not begin at 0 is refused", done.returncode == 2 and "--array" in done.stderr, done.stderr)

        if len(sys.argv) > 2:
            for time in ("first", "requeued"):
                done = run("sbatch", JOBS / "sweep_mpi.sbatch", root / "mpi", *SWEEP)
                check(f"the MPI job, {time}", done.returncode == 0, done.stdout + done.stderr)
                check(f"bytes over MPI, {time}", contents(root / "mpi") == expected)
    print("4 files; array and merging" + (", MPI and requeue" if len(sys.argv) > 2 else "") + ": the same bytes")


main()
