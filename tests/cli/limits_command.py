"""Limits as users meet them: threads and memory that cannot be had, and arguments beyond any sense.

Each command ends by itself, with exit code 2 and one line, or with the right result.
Usage: limits_command.py PATH_OF_FP8LAB
"""

import json
import os
import random
import re
import resource
import shutil
import struct
import tempfile
from pathlib import Path

from checking import TOOL, check, finish, run

NOBODY = 65534


def refused(arguments, *parts, **options):
    """Exit 2 and a short text on stderr that holds every part."""
    result = run(*arguments, **options)
    name = " ".join(map(str, arguments))
    seen = (result.returncode, result.stderr[:400])
    check(f"`{name}` exits 2", result.returncode == 2, seen)
    lines = [line for line in result.stderr.splitlines() if not line.endswith(": running")]
    check(f"`{name}` says it shortly", 0 < len(lines) <= 2 and len(result.stderr) < 600, seen)
    for part in parts:
        check(f"`{name}` says {part!r}", part in result.stderr, seen)


def save(path, shape, value=None, seed=1):
    """A .npy file of binary32: normal draws, or one value."""
    count = 1
    for size in shape:
        count *= size
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    draws = random.Random(seed)
    data = b"".join(struct.pack("<f", draws.gauss(0, 1) if value is None else value) for _ in range(count))
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def test_threads(folder):
    a, b, d, q = (folder / f"{name}.npy" for name in "abdq")
    save(a, (96, 64))
    save(b, (96, 64), seed=2)
    save(q, (2, 32, 16))
    (folder / "few").mkdir()
    (folder / "few").chmod(0o777)
    product = ["gemm", a, b, "--recipe", "te-current"]
    made = run(*product, "-o", d)
    check("gemm runs", made.returncode == 0, made.stderr)
    refused([*product, "--threads", "1000000"], "--threads", "4096")
    refused([*product, "--threads", "-1"], "--threads", "4096")
    for command in (["claims", "F1"], ["train"], ["run", "walkthrough"], ["sweep", "walkthrough"]):
        refused([*command, "--threads", "-1"], "--threads", "4096")
        refused([*command, "--threads", "1000000"], "--threads", "4096")
    many = dict(os.environ, OMP_NUM_THREADS="1000000")
    refused(product, "OMP_NUM_THREADS: expected 1 to 4096, got 1000000", env=many)

    # Limits of threads do not bind root, and nobody may not reach the tool where it was built.
    tool = Path(shutil.copy(TOOL, folder / "tool"))
    tool.chmod(0o755)

    def few_threads():
        if os.getuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    for name in (folder, a, b, d, q):
        name.chmod(0o755)
    for threads in ("4", "0"):
        eight = dict(os.environ, OMP_NUM_THREADS="8")
        alone = run(*verify_of(a, b, d), "--threads", threads, tool=tool, preexec_fn=few_threads, env=eight)
        check("a right output passes without threads", alone.returncode == 0, (alone.returncode, alone.stderr))
        check("what is missing is told", "threads could be started" in alone.stderr, alone.stderr)
    # What a command could not start is what it was asked for, and not one of OpenMP's own number.
    for command in (["attn", q, q, q], ["identify", a, b, d, "--recipe", "te-current"], ["verify", d, "--golden", d],
                    ["gemm", a, b, "--recipe", "te-current"], ["expect", "--shape", "64x64x64", "--model", "sm90.wgmma.e4m3", "--trials", "10"], ["claims", "F4b"],
                    ["run", "walkthrough", "--quick", "--no-plots", "--out", folder / "few"],
                    ["train", "--length", "8", "--width", "16", "--layers", "1", "--heads", "2", "--hidden", "16", "--steps", "1"]):
        short = run(*command, "--threads", "3", tool=tool, preexec_fn=few_threads, env=eight)
        told = [line for line in short.stderr.splitlines() if "threads" in line]
        check(f"{command[0]}: of how many threads", told == ["fp8lab: only 1 of 3 threads could be started: slower, with the same results"],
              (short.returncode, short.stderr))
    wrong = folder / "wrong.npy"
    save(wrong, (96, 96), 3.0)
    wrong.chmod(0o755)
    mismatch = run(*verify_of(a, b, wrong), tool=tool, preexec_fn=few_threads)
    check("a wrong output is a mismatch there too", mismatch.returncode == 1, (mismatch.returncode, mismatch.stderr))
    for kib in range(20_000, 200_000, 20_000):
        limit = kib * 1024
        small = run(
            *verify_of(a, b, d), "--threads", "8",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )  # fmt: skip
        check(f"{kib} KiB: pass, error or a loader that cannot start", small.returncode in (0, 2, 127), (small.returncode, small.stderr))


def verify_of(a, b, got):
    return ["verify", got, "--inputs", a, b, "--recipe", "te-current"]


def test_memory(folder):
    limit = 1 << 30
    large = run("train", "--width", "16384", "--heads", "4", "--steps", "1",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))  # fmt: skip
    # The weights of Q, K and V, together in FP32; the program itself and what it had before take some MiB.
    wanted = (f"fp8lab: not enough memory: {4 * 3 * 16384**2} more bytes were needed at once, with (\\d+) MiB in use "
              r"\(limit of address space: 1024 MiB\)\n")
    said = re.fullmatch(wanted, large.stderr)
    check("what memory lacks is said", large.returncode == 2 and said and 16 <= int(said[1]) < 1024, (large.returncode, large.stderr))


def test_parameters(folder):
    for name, change, part in [
        ("recipes", "magnitude=nan", "magnitude: expected a finite number in [1e-30, 1e30], got nan"),
        ("outlier", "outliers_per_decade=0", "outliers_per_decade: expected an integer in [1, 100], got 0"),
        ("outlier", "outlier_to=inf", "got inf"),
        ("outlier", "containment_elements=", "1 to 64 values, got 0"),
        ("auto-scaling", "ranks=", "1 to 64 values, got 0"),
        ("adam-states", "decades=", "1 to 64 values, got 0"),
        ("dynamic-range", "scales_per_decade=-1", "got -1"),
    ]:
        refused(["run", name, "--quick", "--set", change, "--out", folder / "none"], part)
        axis = change if not change.endswith("=") else change + "[]"
        refused(["sweep", name, "--quick", "--axis", axis, "--out", folder / "none"])
        check("nothing is written", not (folder / "none").exists(), change)
    taken = run("run", "walkthrough", "--set", "curve_points=1e1", "--no-plots", "--out", folder / "some")
    check("1e1 is an integer", taken.returncode == 0, taken.stderr)
    tensor = folder / "nan.npy"
    save(tensor, (32, 32), float("nan"))
    for name in ("recipes", "int8-vs-fp8"):
        refused(["run", name, "--quick", "--set", f"file={tensor}", "--out", folder / "nan"], "1024 NaN and 0 Inf of 1024 elements")


def test_attention(folder):
    full = folder / "full.npy"
    save(full, (1, 4, 16))
    for shape in ((0, 4, 16), (1, 0, 16), (1, 4, 0)):
        empty = folder / "empty.npy"
        save(empty, shape)
        refused(["attn", empty, empty, empty], "all above 0")
        refused(["attn", full, empty, empty], "all above 0")
    few = folder / "few.npy"
    save(few, (1, 4, 16), float("nan"))
    none = run("attn", few, few, few, "-o", folder / "o.npy", "--json")
    check("attn runs on NaN", none.returncode == 0, none.stderr)
    check("and counts it", f"{few} has 64 NaN" in none.stderr and "O has 64 NaN" in none.stderr, none.stderr)
    report = json.loads(none.stdout)
    check("in --json too", report["non_finite_counts"]["O"] == {"infinite": 0, "nan": 64}, report)
    check("no error of 0 from NaN", report["against_inputs"]["relative_l2"] == "nan", report["against_inputs"])
    checked = run("attn", few, few, full, "--check", folder / "o.npy")
    check("--check counts too", f"{folder / 'o.npy'} has 64 NaN" in checked.stderr, checked.stderr)


def test_expect():
    call = ["--call", "cublaslt.h100.slow"]
    refused(["expect", "--shape", "16x16x1048577", *call], "--shape: expected k of at most 1048576, got 1048577")
    refused(["expect", "--shape", "16x16x1000000000000000000", *call], "k of at most 1048576")
    refused(["expect", "--shape", "16x16x64", "--trials", "1000000000000", *call], "--trials: expected a number of the type")


def test_numbers(folder):
    """What is no number is told with the option and what was given."""
    a = folder / "a.npy"
    for given in ("nan", "1.5", "2x", "99999999999999999999"):
        refused(["gemm", a, a, "--split-k", given], f"--split-k: expected a number of the type that --help shows, got '{given}'")


def test_train():
    for arguments, part in [
        (["--length", "0"], "length: expected 1 to"),
        (["--length", "-1"], "length: expected 1 to"),
        (["--layers", "-1"], "layers: expected 1 to"),
        (["--steps", "0"], "steps: expected 1 to"),
        (["--steps", "-1"], "steps: expected 1 to"),
        (["--width", "0"], "width: expected 1 to"),
        (["--heads", "0"], "heads: expected 1 to"),
        (["--hidden", "-1"], "hidden: expected 1 to"),
        (["--sequences", "0"], "sequences: expected 1 to"),
        (["--sequences", "100000000000"], "sequences: expected 1 to"),
        (["--learning-rate", "nan"], "--learning-rate: expected a finite number"),
        (["--loss-scale", "inf"], "--loss-scale: expected a power of two"),
        (["--loss-scale", "1e-300"], "--loss-scale: expected a power of two"),
        (["--outlier-channels", "-1"], "outliers.count"),
        (["--outlier-log2", "100000"], "--outlier-log2"),
        (["--save-every", "0"], "--save-every"),
        (["--monitor-every", "-1"], "--monitor-every"),
    ]:
        refused(["train", *arguments], part)


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    root.chmod(0o755)
    test_threads(root)
    test_memory(root)
    test_parameters(root)
    test_attention(root)
    test_expect()
    test_numbers(root)
    test_train()
finish("limits")
