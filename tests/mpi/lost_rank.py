"""A rank that dies in mid-run ends the run: an error, no result, nobody left waiting.

Usage: lost_rank.py MPIRUN FP8LAB
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MPIRUN, TOOL = sys.argv[1:]
VICTIM = 2


def rank_of(pid):
    """The rank of a process that mpirun started; None for any other."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
            return int(variable.split(b"=")[1])
    return None


def children(parent):
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(entry.name)


def main():
    with tempfile.TemporaryDirectory() as folder:
        # Large enough to take minutes: it is never allowed to finish.
        command = [MPIRUN, "-n", "4", TOOL, "run", "fp8-allreduce", "--mpi", "--no-plots",
                   "--set", "elements=60000", "--set", "ranks=64,128,256,512,1024"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as job:
            first = job.stderr.readline()
            time.sleep(1.0)
            if job.poll() is not None:
                sys.exit(f"the run was over before it was disturbed: {first}{job.stderr.read()}")
            victims = [pid for pid in children(job.pid) if rank_of(pid) == VICTIM]
            if len(victims) != 1:
                job.terminate()
                sys.exit(f"rank {VICTIM} of the run: found processes {victims}")
            os.kill(victims[0], signal.SIGKILL)
            try:
                out, errors = job.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                job.kill()
                sys.exit("the run went on for 60 s without one of its ranks")
        left = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
        problems = []
        if job.returncode == 0:
            problems.append("exit 0")
        if f"rank {VICTIM}" not in errors or "signal 9" not in errors:
            problems.append(f"the error does not name the rank and the signal: {errors}")
        if left:
            problems.append(f"files left: {left}")
        if "files in" in out:
            problems.append(f"a result was announced: {out}")
        print(f"exit {job.returncode}, files left {len(left)}, problems {len(problems)}")
        if problems:
            sys.exit("\n".join(problems))


main()
