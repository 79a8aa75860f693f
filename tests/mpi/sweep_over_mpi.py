"""`mpirun ... fp8lab sweep --mpi`: the bytes of a run without MPI, and a rank that dies.

Where FP8LAB_SWEEP_SHARE is above 1, one number of ranks, drawn by FP8LAB_SEED, is tried.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

MPIRUN, FP8LAB = sys.argv[1:3]
RANKS = [1, 2, 4]
if int(os.environ.get("FP8LAB_SWEEP_SHARE") or 1) > 1:
    RANKS = [random.Random(os.environ.get("FP8LAB_SEED")).choice(RANKS)]
SWEEP = [
    "sweep", "outlier", "--quick", "--axis", "tiles=16,32,64", "--axis", "sigma=0.1:0.6:+0.1",
    "--set", "elements=2048", "--set", "repeats=2", "--set", "outliers_per_decade=2",
    "--set", "containment_elements=1024", "--set", "published_repeats=1",
]  # fmt: skip


def contents(folder):
    return {file.name: file.read_bytes() for file in pathlib.Path(folder).iterdir()}


def ranks_of(parent):
    """The processes that a launcher started, in the order of their numbers."""
    children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "fp8lab"]


def run_with_a_kill(folder):
    """Kills the last of three ranks once points are being written."""
    process = subprocess.Popen(
        [MPIRUN, "--oversubscribe", "--enable-recovery", "-n", "3", FP8LAB, *SWEEP, "--mpi",
         "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = folder / "points.jsonl"
    while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 8):
        time.sleep(0.005)
    ranks = ranks_of(process.pid) if process.poll() is None else []
    if len(ranks) == 3:
        os.kill(max(ranks), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    return len(ranks) == 3, out + err


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        subprocess.run([FP8LAB, *SWEEP, "--out", str(root / "alone")], check=True, capture_output=True)
        expected = contents(root / "alone")
        for ranks in RANKS:
            out = root / f"ranks{ranks}"
            subprocess.run([MPIRUN, "--oversubscribe", "-n", str(ranks), FP8LAB, *SWEEP, "--mpi", "--out", str(out)],
                           check=True, capture_output=True)
            if contents(out) != expected:
                print(f"FAILED: other bytes on {ranks} ranks")
                return 1
        killed, text = run_with_a_kill(root / "killed")
        if not killed:
            print("FAILED: the sweep ended before a rank could be killed")
            return 1
        if contents(root / "killed") != expected:
            print("FAILED: other bytes after a rank died:\n" + text)
            return 1
        if "fp8lab: 1 of 3 ranks did not answer; their points were run again\n" not in text:
            print("FAILED: the rank that died is not told:\n" + text)
            return 1
    print(f"ranks {', '.join(map(str, RANKS))}, and 3 of which one died: the same bytes")
    return 0


sys.exit(main())
