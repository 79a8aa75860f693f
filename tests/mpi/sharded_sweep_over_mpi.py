"""`mpirun ... fp8lab sweep --mpi --shard I/N --resume`: the bytes and the counts of a run without MPI.

Usage: sharded_sweep_over_mpi.py MPIRUN FP8LAB
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MPIRUN, FP8LAB = sys.argv[1:3]
SHARDS = 3
SWEEP = [
    "sweep", "outlier", "--quick", "--axis", "tiles=16,32", "--axis", "sigma=0.1:0.4:+0.1", "--repeat", "2",
    "--set", "elements=256", "--set", "repeats=1", "--set", "outliers_per_decade=1", "--set", "containment_elements=1024",
    "--set", "published_repeats=1", "--set", "product_k=16", "--set", "product_outputs=1",
]  # fmt: skip
POINTS = 16
failures = 0


def check(what, got, expected):
    global failures
    if got != expected:
        failures += 1
        print(f"FAILED: {what}: expected {expected}, got {got}")


def contents(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def run(command):
    """Exit code and both streams; a run that hangs is ended with its ranks."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        return "not done after 60 s", out, err


def over_mpi(ranks, *arguments):
    return run([MPIRUN, "--oversubscribe", "-n", str(ranks), FP8LAB, *SWEEP, "--mpi", *map(str, arguments)])


def resumed(what, ranks, shard, out, before, points):
    """A run that goes on from `before` points and says so."""
    code, text, errors = over_mpi(ranks, "--shard", f"{shard}/{SHARDS}", "--out", out, "--resume", "--json")
    check(f"{what}: exit code ({errors})", code, 0)
    if code == 0:
        said = json.loads(text)
        check(what, [said[key] for key in ("points", "done", "resumed", "failed", "files")], [points, points, before, 0, []])


def check_shard(root, shard, ranks):
    """A shard alone and over ranks; then without its first point, some in the middle, and the end of its last line."""
    points = len(range(shard, POINTS, SHARDS))
    alone, out = root / f"alone{shard}", root / f"ranks{shard}"
    subprocess.run([FP8LAB, *SWEEP, "--shard", f"{shard}/{SHARDS}", "--out", str(alone)], check=True, capture_output=True)
    expected = contents(alone)
    resumed(f"shard {shard}, from nothing", ranks, shard, out, 0, points)
    check(f"shard {shard}: the same bytes", contents(out) == expected, True)
    lines = expected["points.jsonl"].splitlines(keepends=True)
    numbers = [line for line in lines if line.startswith(b'{"point"')]
    check(f"shard {shard}: its points", [json.loads(line)["point"] for line in numbers], list(range(shard, POINTS, SHARDS)))
    kept = numbers[1:2] + numbers[3:-1]
    heads = [line for line in lines if line not in numbers]
    (out / "points.jsonl").write_bytes(b"".join(heads + kept[::-1]) + numbers[-1][:-7])
    resumed(f"shard {shard}, from a part", ranks, shard, out, len(kept), points)
    found = contents(out)
    check(f"shard {shard}: what was torn off", found.pop("points.jsonl.damaged", b""), numbers[-1][:-7])
    check(f"shard {shard}: the same bytes after it went on", found == expected, True)
    resumed(f"shard {shard}, when all is done", ranks, shard, out, points, points)
    check(f"shard {shard}: nothing changes then", contents(out)["points.jsonl"], expected["points.jsonl"])


def check_refusals(root):
    """An error of rank 0 ends all ranks, with its text and its exit code."""
    code, _, errors = over_mpi(3, "--shard", f"1/{SHARDS}", "--out", root / "ranks1")
    check("another sweep's folder: exit code", code, 2)
    words = f"fp8lab: rank 0 of 3: {root / 'ranks1' / 'points.jsonl'}: already contains a sweep: continue it with --resume, or"
    check(f"another sweep's folder: {words!r} in {errors!r}", words in errors, True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        whole = root / "whole"
        subprocess.run([FP8LAB, *SWEEP, "--out", str(whole)], check=True, capture_output=True)
        for shard, ranks in ((0, 1), (1, 3), (2, 2)):
            check_shard(root, shard, ranks)
        merged = root / "merged"
        shards = [str(root / f"ranks{shard}") for shard in range(SHARDS)]
        subprocess.run([FP8LAB, "merge", *shards, "-o", str(merged)], check=False, capture_output=True)
        check("merged: the bytes of the whole sweep", merged.exists() and contents(merged) == contents(whole), True)
        check_refusals(root)
    print(f"{SHARDS} shards over ranks, resumed: {failures} failures")
    return 1 if failures else 0


sys.exit(main())
