"""`fp8lab gemm` with epilogues and split K against rationals, and `verify --call`.

Usage: epilogue_command.py PATH_OF_FP8LAB
"""

import json
import math
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from checking import check, expect, finish

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)


def nearest(x):
    """A rational rounded to binary32, ties to even, without a second rounding."""
    if x == 0:
        return Fraction(0)
    exponent = max(math.frexp(float(x))[1] - 1, -126)
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > -126 and abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (exponent - 23)
    return round(x / step) * step  # round() of a Fraction is ties to even


def save(path, array):
    np.save(path, array)
    return path


def case(at):
    """Operands whose FP32 sums are exact: small multiples of 1/8."""
    rng = np.random.default_rng(7)
    a = (rng.integers(-8, 9, (6, 256)) / 8).astype(np.float32)
    b = (rng.integers(-8, 9, (10, 256)) / 8).astype(np.float32)
    for name, x in (("a", a), ("b", b)):
        save(at / f"{name}.npy", x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    tensors = {"bias": rng.standard_normal(10), "row": rng.standard_normal(6), "column": rng.standard_normal(10),
               "c": rng.standard_normal((6, 10))}
    tensors = {name: x.astype(np.float32) for name, x in tensors.items()}
    for name, x in tensors.items():
        save(at / f"{name}.npy", x)
    return a, b, tensors


def test_linear_steps(at):
    a, b, t = case(at)
    sums = a.astype(np.float64) @ b.T.astype(np.float64)
    alpha, beta = np.float32(0.7), np.float32(-1.3)
    d = at / "d.npy"
    expect(0, "gemm", at / "a.npy", at / "b.npy", "--dtype", "e4m3fn", "--model", "exact", "--alpha", alpha,
           "--beta", beta, "--bias", at / "bias.npy", "--row-scales", at / "row.npy", "--column-scales",
           at / "column.npy", "--c", at / "c.npy", "--activation", "leaky_relu", "--slope", "0.25",
           "--output-scale", "3", "-o", d, stdout=["epilogue: row scales, column scales, alpha 0.7, bias, beta -1.3"])
    got = np.load(d)
    exact = {name: np.vectorize(Fraction, otypes=[object])(x.astype(np.float64)) for name, x in t.items()}
    wrong = 0
    for i in range(6):
        for j in range(10):
            s = nearest(Fraction(sums[i, j]) * exact["row"][i])
            s = nearest(s * exact["column"][j])
            s = nearest(Fraction(float(alpha)) * s + exact["bias"][j])
            s = nearest(Fraction(float(beta)) * exact["c"][i, j] + s)
            s = s if s > 0 else nearest(s / 4)
            wrong += float(nearest(s * 3)) != float(got[i, j])
    check(f"rationals: {wrong} of 60 differ", wrong == 0)


def test_curves(at):
    a, b, t = case(at)
    sums = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32).astype(np.float64)
    silu = sums[:, :5] / (1 + np.exp(-sums[:, :5]))
    wanted = silu.astype(np.float32) * sums[:, 5:].astype(np.float32)
    d = at / "d.npy"
    out = ["--dtype", "e4m3fn", "--model", "exact", "-o", d]
    expect(0, "gemm", at / "a.npy", at / "b.npy", *out, "--activation", "swiglu", stdout=["D [6, 5]"])
    check("swiglu", np.array_equal(np.load(d), wanted), np.load(d) - wanted)
    report = json.loads(expect(0, "gemm", at / "a.npy", at / "b.npy", *out, "--activation", "gelu", "--out-dtype",
                               "e4m3fn", "--output-scale", "amax", "--json").stdout)["epilogue"]
    gelu = np.array([[x * 0.5 * math.erfc(-x / math.sqrt(2)) for x in row] for row in sums]).astype(np.float32)
    amax = np.abs(gelu).max()
    scale = np.float32(448) / amax
    check("amax", np.float32(report["amax"]) == amax, report)
    check("output scale", np.float32(report["output_scale"]) == scale, (report, scale))
    codes = (gelu * scale).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    check("codes", np.array_equal(np.load(d).view(np.uint8), codes))


def test_calls(at):
    rng = np.random.default_rng(2)
    for name in "ab":
        x = rng.standard_normal((16, 2048)).astype(ml_dtypes.float8_e4m3fn)
        save(at / f"{name}.npy", x.view(np.uint8))
    inputs = [at / "a.npy", at / "b.npy", "--dtype", "e4m3fn"]
    slow, options, d = at / "slow.npy", at / "options.npy", at / "d.npy"
    expect(0, "gemm", *inputs, "--call", "cublaslt.h100.slow", "-o", slow)
    expect(0, "gemm", *inputs, "--model", "sm90.wgmma.e4m3", "--promotion", 128, "--out-dtype", "bf16", "-o", options)
    check("a call is its options", slow.read_bytes() == options.read_bytes())
    check_inputs = ["--inputs", *inputs]
    expect(0, "verify", slow, *check_inputs, "--call", "cublaslt.h100.slow")
    expect(1, "verify", slow, *check_inputs, "--call", "cublaslt.h100.fast")
    expect(2, "gemm", *inputs, "--call", "cublaslt.h100.slow", "--promotion", 64,
           stderr=["--promotion: expected no such option with --call"])
    expect(2, "gemm", *inputs, "--call", "cublas", stderr=["call: expected one of", "did you mean cublaslt.h100.fast"])
    for name in "ab":  # parts of K of unlike size: of like ones the sums are exact in every order
        x = rng.standard_normal((16, 2048)) * np.exp2(6 - np.arange(2048) // 64 % 13)
        save(at / f"{name}.npy", x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    expect(0, "gemm", *inputs, "--call", "cublaslt.rtx4060.slow", "--split-k", 4, "--split-cut", "modulo",
           "--split-order", "pairwise", "--out-dtype", "f32", "-o", d, stdout=["K in 4 parts of modulo tiles, pairwise"])
    split = ["--call", "cublaslt.rtx4060.slow", "--out-dtype", "f32", "--split-k", 4, "--split-cut", "modulo"]
    expect(0, "verify", d, *check_inputs, *split, "--split-order", "pairwise")
    expect(1, "verify", d, *check_inputs, *split, stdout=["split_order_pairwise"])
    tiles = ["--scale-a", at / "scale_a.npy", "--scale-b", at / "scale_b.npy"]
    save(at / "scale_a.npy", np.ones((16, 16), np.float32))
    save(at / "scale_b.npy", np.ones((1, 16), np.float32))
    expect(2, "gemm", *inputs, *tiles, "--call", "deepgemm.h100", "--split-k", 2, stderr=["K whole"])
    expect(2, "gemm", *inputs, "--call", "deepgemm.h100",
           stderr=["--scale-a: expected scales of 1x128 and 128x128, as deepgemm.h100 has, got none"])
    listed = json.loads(expect(0, "list", "calls", "--json").stdout)["calls"]
    check("calls are listed with their standing",
          {c["standing"] for c in listed} >= {"measured", "literature"} or
          {c["standing"] for c in listed} >= {"measured", "from literature"}, listed[0])


NO_NUMBERS = (" ", "0.5x", "2 ", "1,5", "1e", "1 2")


def test_refusals(at):
    case(at)
    inputs = [at / "a.npy", at / "b.npy", "--dtype", "e4m3fn"]
    for arguments, message in (
        (["--bias", at / "row.npy"], "bias: expected floats [10] or [1, 10], got f32 [6]"),
        (["--beta", 2], "beta: expected a C, which it multiplies, got none"),
        (["--beta", "x", "--c", at / "c.npy"], "--beta: expected a number, got 'x'"),
        (["--activation", "gelu3"], "activation: expected one of none, relu"),
        (["--output-scale", "big"], "--output-scale: expected a number or amax, got 'big'"),
        *((["--beta", text, "--c", at / "c.npy"], f"--beta: expected a number, got '{text}'") for text in NO_NUMBERS),
        *((["--output-scale", text], f"--output-scale: expected a number or amax, got '{text}'")
          for text in (*NO_NUMBERS, "amax2")),
        (["--split-k", 99], "--split-k: expected at most"),
        (["--split-k", "2", "--split-order", "random"], "--split-order: expected one of serial"),
        (["--c", at / "c.npy", "--beta", 1, "--c-enters", "epilogue"], "--c-enters: expected no value with beta"),
    ):
        expect(2, "gemm", *inputs, *arguments, stderr=[message])


for test in (test_linear_steps, test_curves, test_calls, test_refusals):
    with tempfile.TemporaryDirectory() as folder:
        test(Path(folder))
finish("gemm with epilogues")
