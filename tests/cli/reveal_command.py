"""`fp8lab reveal`: registered units of every kind are found again, by model and by files.

usage: reveal_command.py FP8LAB
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TOOL = sys.argv[1]
# One of each kind, and of each value of a parameter that registered instructions differ in.
FAMILIES = [
    "sm70.mma.f16", "sm80.mma.f16.f16", "sm80.mma.bf16", "sm80.mma.tf32", "sm89.mma.e4m3.e5m2",
    "sm89.mma.e5m2.f16", "sm90.wgmma.e4m3", "sm90.mma.e4m3", "sm90.mma.e4m3.f16.separate",
    "sm100.tcgen05.e5m2", "gfx908.mfma.f16", "gfx908.mfma.bf16", "gfx908.mfma.f32", "gfx90a.mfma.f16",
    "gfx90a.mfma.bf16", "gfx942.mfma.f16", "gfx942.mfma.fp8", "exact", "exact32", "fp32",
    "sequential14.rz", "seed.listing",
]  # fmt: skip
# One in how many of the other registered models is tried, unless all are.
OTHERS = 16


def run(code, *arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{said}"
    return said


def reveal(code, *arguments):
    return json.loads(run(code, "reveal", *arguments, "--json"))


def registered():
    listed = json.loads(run(0, "list", "models", "--json"))
    rows = listed if isinstance(listed, list) else listed["models"]
    return {row["name"]: row for row in rows}


def too_narrow(row):
    """Operands whose products span less than 2^26, which an order without scales takes to be shown."""
    spans = {"e2m1": 3, "e2m3": 5, "e3m2": 8, "e4m3fn": 17, "e5m2": 31}  # from the least to the largest power of two
    names = (row["input"].split() * 2)[:2]
    return sum(spans.get(name, 26) for name in names) < 26


def families():
    """One of each kind; of the other models all, or under FP8LAB_SWEEP_SHARE a drawn few."""
    models = registered()
    # Of processors' kinds `reveal` knows exact steps alone; of the others it says that it found no unit.
    others = [name for name in models if name not in FAMILIES and not name.startswith(("x86.", "arm."))]
    if os.environ.get("FP8LAB_SWEEP_SHARE", "1") != "1":
        seed = int(os.environ.get("FP8LAB_SEED") or random.randrange(2**32))
        others = sorted(random.Random(seed).sample(others, len(others) // OTHERS))
        print(f"{len(others)} of the other models, FP8LAB_SEED={seed}: {', '.join(others)}")
    for name in FAMILIES + [name for name in others if not too_narrow(models[name])]:
        found = reveal(0, "--model", name, "-m", 16, "-n", 16, "-k", 96)
        assert found["explained"] and found["equal"] == found["checked"] == 1024, (name, found)
        assert name in found["instructions"], (name, found)
        values = {p["name"]: p["value"] for p in found["parameters"]}
        terms = models[name].get("terms")
        assert "terms" not in values or terms in (None, int(values["terms"])), (name, values)
    for name in ("arm.fdot.e4m3", "arm.fmmla.e5m2"):
        assert name in reveal(0, "--model", name, "-m", 16, "-n", 16, "-k", 96)["instructions"]
    for name in ("x86.vdpbf16ps", "x86.tdpbf16ps", "x86.top4mxhf8ps", "arm.bfdot.ebf16"):
        found = reveal(1, "--model", name, "-m", 16, "-n", 16, "-k", 96)
        assert not found["explained"] and "the order is known, but no" in found["failure"], (name, found)
    narrow = ["sm100.tcgen05.mxf4nvf4"] + [name for name in others if too_narrow(models[name])]
    for name in narrow:
        found = reveal(1, "--model", name, "-m", 8, "-n", 8, "-k", 64)
        assert "no pair of large and small products" in found["failure"], found


def a_deviation(folder):
    planted = ["--model", "sm90.wgmma.e4m3:F=12", "--promotion", 64, "-k", 192]
    found = reveal(0, *planted, "-o", folder / "m.toml")
    assert found["instructions"] == [] and found["promotion"] == 64, found
    bits = {"name": "alignment_fraction_bits", "value": "12", "possible": "12"}
    assert bits in found["parameters"], found
    expected = "((((0-31) 32-63) ((64-95) 96-127)) ((128-159) 160-191))"
    assert found["tree"] == expected, found["tree"]
    # The file names the same accumulator.
    again = reveal(0, "--models", folder / "m.toml", "--model", "revealed", "-k", 192)
    assert again["definition"] == found["definition"], again


def by_files(folder):
    """A kernel that runs elsewhere: here, FP32 sums in NumPy."""

    def kernel(a, b):
        d = np.zeros((len(a), len(b)), np.float32)
        for k in range(a.shape[1]):
            d = d + a[:, k, None] * b[None, :, k]
        return d

    probes = folder / "probes"
    arguments = ["reveal", "--probes", probes, "--dtype", "e4m3fn", "-m", 8, "-n", 8, "-k", 24]
    values = e4m3_values()
    for number in range(1, 9):
        here = probes / f"round-{number}"
        done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 3:
            break
        assert f"round {number}:" in done.stdout and (here / "README.txt").is_file(), done.stdout
        a, b = (values[np.load(here / f"{name}.npy")] for name in "ab")
        np.save(here / "d.npy", np.stack([kernel(x, y) for x, y in zip(a, b, strict=True)]))
    assert done.returncode == 0 and number in range(3, 8), (number, done.stdout, done.stderr)
    assert "products added one at a time" in done.stdout, done.stdout
    assert "256 of 256 outputs" in done.stdout, done.stdout
    said = run(2, *arguments, "--seed", 9)
    assert "the operands of these options" in said, said
    np.save(probes / "round-1" / "d.npy", np.zeros((2, 8, 8), np.float32))
    said = run(2, *arguments)
    assert "round-1/d.npy: expected [" in said, said


def e4m3_values():
    """The number of each code, from the format's definition."""
    code = np.arange(256)
    field, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(field > 0, np.ldexp(1 + mantissa / 8, field - 7), np.ldexp(mantissa / 8, -6))
    return np.where(code < 128, magnitude, -magnitude).astype(np.float32)


def bad_input():
    for arguments, reason in [
        ([], "--model: expected either a model to probe"),
        (["--model", "exact", "--probes", "x"], "--model: expected either"),
        (["--probes", "x"], "--dtype: expected what the kernel reads"),
        (["--probes", "x", "--dtype", "e4m3fn", "--promotion", 64], "--split-k: expected no such option"),
        (["--model", "exact", "-k", 1], "k: expected 2 to"),
        (["--model", "sm90.wgmma.e4m3", "--promotion", 7], "--promotion: expected"),
        (["--model", "nothing"], "nothing"),
    ]:
        said = run(2, "reveal", *arguments)
        assert reason in said, (arguments, said)


with tempfile.TemporaryDirectory() as name:
    bad_input()
    a_deviation(Path(name))
    by_files(Path(name))
    families()
print("reveal: all as expected")
