"""`fp8lab identify`, `attn`, and `vectors` with `replay` in every file form.

Usage: identify_command.py PATH_OF_FP8LAB
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from checking import check, expect, finish

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)


def codes(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def save(path, array):
    np.save(path, array)
    return path


def same_on_every_target(given):
    """Sums of intervals that hypotheses share are combined by kernels, or as the reference does it."""
    fast = json.loads(expect(0, "identify", *given, "--json").stdout)
    os.environ["FP8LAB_TARGET"] = "scalar"
    slow = json.loads(expect(0, "identify", *given, "--json").stdout)
    del os.environ["FP8LAB_TARGET"]
    check("the scalar target ranks alike", fast == slow, [(f, s) for f, s in zip(fast.items(), slow.items()) if f != s])


def test_identify(at):
    rng = np.random.default_rng(1)
    a = save(at / "a.npy", codes(rng.standard_normal((16, 1024))))
    b = save(at / "b.npy", codes(rng.standard_normal((16, 1024))))
    sa = save(at / "sa.npy", rng.random((16, 8)).astype(np.float32))
    sb = save(at / "sb.npy", rng.random((16, 8)).astype(np.float32))
    inputs = ["--dtype", "e4m3fn", "--scale-a", sa, "--scale-b", sb]
    d = at / "d.npy"
    expect(0, "gemm", a, b, *inputs, "--promotion", 64, "--scale-order", "a_then_fma_b", "-o", d)
    expect(0, "identify", a, b, d, *inputs,
           stdout=["explained: all 256 outputs", "sm90.wgmma.e4m3, promotion 64, scales a_then_fma_b",
                   "the first two differ on"])
    report = json.loads(expect(0, "identify", a, b, d, *inputs, "--json").stdout)
    best = report["ranking"][0]
    check("--json names it", report["explained"] and best["matches"] == 256 and len(best["explanations"]) == 1 and
          best["explanations"][0]["promotion"] == 64, report)
    told = report["separating"]
    check("--json names elements on which the first two differ",
          0 < len(told["elements"]) <= told["count"] and all(e["first"] != e["second"] for e in told["elements"]), told)
    same_on_every_target([a, b, d, *inputs])
    options = best["explanations"][0]["options"]
    expect(0, "identify", a, b, d, *inputs, stdout=["options of gemm and verify: " + " ".join(options)])
    expect(0, "verify", d, "--inputs", a, b, *inputs, *options)
    wrong = np.load(d)
    wrong[3, 5] = np.nextafter(wrong[3, 5], np.float32(np.inf))
    expect(1, "identify", a, b, save(at / "w.npy", wrong), *inputs, stdout=["unexplained", "255 of 256"])
    # An option that takes one value leaves the files after it alone.
    expect(0, "identify", "--model", "fused:terms=16,F=10", a, b, d, *inputs)
    expect(2, "identify", a, b, d, *inputs, "--top", 0, stderr=["--top"])
    expect(0, "identify", a, b, d, *inputs, "--top", 1)
    expect(0, "gemm", a, b, "--dtype", "e4m3fn", "--model", "sm89.mma.e4m3", "--out-dtype", "bf16", "-o", at / "h.npy")
    expect(0, "identify", a, b, at / "h.npy", "--dtype", "e4m3fn", stdout=["sm89.mma.e4m3", "nearest_even"])
    same_on_every_target([a, b, at / "h.npy", "--dtype", "e4m3fn"])
    expect(2, "identify", a, b, a, "--dtype", "e4m3fn", stderr=["--out-dtype"])
    expect(2, "identify", a, b, d, stderr=["--dtype e4m3fn"])
    expect(2, "identify", a, b, save(at / "t.npy", wrong[:4]), *inputs, stderr=["[16, 16]"])


def test_vectors(at):
    for ending in ("txt", "npz", "safetensors", "jsonl"):
        path = at / f"v.{ending}"
        expect(0, "vectors", "--model", "sm90.wgmma.e4m3", "--kind", "adversarial", "-n", 60, "-o", path)
        expect(0, "replay", path, stdout=["cases 60 mismatches 0"])
        expect(1, "replay", path, "--model", "sm89.mma.e4m3")
    z = np.load(at / "v.npz")
    header = json.loads(bytes(z["header"]))
    check("the .npz says what it holds", header["model"] == "sm90.wgmma.e4m3" and header["terms"] == "32", header)
    check("its arrays", z["a"].dtype == np.uint8 and z["a"].shape == (60, 32) and z["d"].dtype == np.float32)
    rows = [json.loads(line) for line in (at / "v.jsonl").read_text().splitlines()[1:]]
    check("JSON-lines hold the same", np.array_equal([row["b"] for row in rows], z["b"]) and
          np.array_equal(np.array([row["d"] for row in rows], np.uint32), z["d"].view(np.uint32)))
    expect(0, "vectors", "--model", "exact", "--terms", 32, "-n", 60, "--kind", "random", "-o", at / "e.npz")
    z = np.load(at / "e.npz")
    a, b = (z[name].view(ml_dtypes.float8_e4m3fn).astype(np.float64) for name in "ab")
    check("NumPy computes the exact model's d", np.array_equal((np.sum(a * b, 1) + z["c"]).astype(np.float32), z["d"]))

    path = at / "s.npz"
    expect(0, "vectors", "--separate", "sm89.mma.e4m3", "sm90.wgmma.e4m3", "-o", path, stderr=["16 cases", "distinguish"])
    expect(0, "replay", path, stdout=["cases 16 mismatches 0"])
    expect(1, "replay", path, "--model", "sm90.wgmma.e4m3", stdout=["cases 16 mismatches 16"])
    expect(0, "vectors", "--separate", "sm89.mma.e4m3", "sm90.wgmma.e4m3", "-n", 3, "-o", path, stderr=["3 cases of"])
    expect(0, "replay", path, stdout=["cases 3 mismatches 0"])
    expect(1, "vectors", "--separate", "sm90.mma.e4m3", "sm100.mma.e4m3", "-o", at / "none.npz",
           stderr=["the same accumulator"])
    check("nothing is written then", not (at / "none.npz").exists())
    expect(1, "vectors", "--separate", "exact", "fp32", "--terms", 1, stderr=["no input found"])
    expect(2, "vectors", "--separate", "sm90.mma.e4m3", "sm90.mma.e5m2", stderr=["same formats"])
    expect(2, "vectors", "-n", 3, stderr=["either --model"])
    expect(2, "vectors", "--model", "exact", stderr=["--count"])
    (at / "v.jsonl").write_text("{}\n")
    expect(2, "replay", at / "v.jsonl", stderr=["lacks 'model'"])


def test_attn(at):
    rng = np.random.default_rng(2)
    q, k, v = (save(at / f"{name}.npy", rng.standard_normal((2, rows, 64)).astype(np.float32))
               for name, rows in (("q", 96), ("k", 256), ("v", 256)))
    expect(0, "attn", q, k, v, "-o", at / "o.npy", stdout=["saturated", "[128, 256)", "relative L2"])
    s = np.load(q) @ np.load(k).transpose(0, 2, 1) / 8
    p = np.exp(s - s.max(-1, keepdims=True))
    o = p / p.sum(-1, keepdims=True) @ np.load(v)
    error = np.linalg.norm(np.load(at / "o.npy") - o) / np.linalg.norm(o)
    # Tiles of another size, and one bit beside: the cause explains all outputs but one.
    expect(0, "attn", q, k, v, "--kv-tile", 32, "-o", at / "tiles.npy")
    tiles = np.load(at / "tiles.npy")
    wrong = tiles.copy()
    wrong[1, 7, 5] = np.nextafter(wrong[1, 7, 5], np.float32(np.inf))
    report = json.loads(expect(1, "attn", q, k, v, "--check", save(at / "w.npy", wrong), "--json").stdout)
    shares = {cause["name"]: cause["mismatches"] for cause in report["causes"]}
    check("mismatches that a cause leaves, and those of the whole",
          shares.get("kv_tile") == 1 and report["mismatches"] == (wrong != np.load(at / "o.npy")).sum() > 1, report)
    report = json.loads(expect(0, "attn", q, k, v, "--json").stdout)
    check("the error against NumPy is the reported one",
          abs(error - report["against_inputs"]["relative_l2"]) < 1e-4 and 0.01 < error < 0.1, (error, report))
    check("P saturates in no tile", report["total"]["saturated"] == 0 and report["total"]["elements"] == 2 * 96 * 256)
    np.save(at / "q4.npy", np.load(q) * 4)
    stale = json.loads(expect(0, "attn", at / "q4.npy", k, v, "--rescale-threshold", 4, "--kv-tile", 64,
                              "--json").stdout)
    check("a stale maximum saturates", stale["total"]["saturated"] > 0 and stale["total"]["stale_rows"] > 0, stale)
    c = [save(at / f"c{name}.npy", codes(np.load(at / f"{name}.npy"))) for name in "qkv"]
    coded = json.loads(expect(0, "attn", *c, "--dtype", "e4m3fn", "--causal", "--two-level", "--json").stdout)
    check("codes as inputs", coded["against_codes"] == coded["against_inputs"] and coded["causal"], coded)
    narrow = save(at / "narrow.npy", np.load(v)[:, :, :32])
    shape = json.loads(expect(0, "attn", q, k, narrow, "--json").stdout)
    check("the shape is said", [shape[name] for name in ("heads", "kv_heads", "m", "n", "d", "d_v")] ==
          [2, 2, 96, 256, 64, 32], shape)
    fives = [save(at / f"f{name}.npy", np.load(at / f"{name}.npy").astype(ml_dtypes.float8_e5m2).view(np.uint8))
             for name in "qkv"]
    call = {"qk_model": "sm90.wgmma.e5m2", "pv_model": "sm90.wgmma.e5m2", "q_tile": 128, "kv_tile": 64, "p_offset": 0,
            "rescale_threshold": 0, "two_level": False, "tile_order": "first_to_last", "p_format": "e5m2"}
    named = json.loads(expect(0, "attn", *fives, "--dtype", "e5m2", "--call", "triton.tutorial.fp8", "--json").stdout)
    check("a call decides what is not given", {key: named[key] for key in call} == call, named)
    given = json.loads(expect(0, "attn", *fives, "--dtype", "e5m2", "--call", "triton.tutorial.fp8", "--p-offset", 3,
                              "--kv-tile", 128, "--json").stdout)
    check("and nothing that is", {key: given[key] for key in call} == call | {"p_offset": 3, "kv_tile": 128}, given)
    one = [save(at / f"one{name}.npy", np.load(at / f"{name}.npy")[:1]) for name in "qkv"]
    # Each option alone: it holds, and all others are the call's, tiles those of the head size.
    call = {"qk_model": "sm90.wgmma.e4m3", "pv_model": "sm90.wgmma.e4m3", "q_tile": 192, "kv_tile": 160, "p_offset": 8,
            "rescale_threshold": 0, "two_level": False, "tile_order": "last_to_first", "p_format": "e4m3fn", "row_sum": "quads"}
    for more in ({}, {"qk_model": "sm89.mma.e4m3"}, {"pv_model": "sm89.mma.e4m3"}, {"q_tile": 64}, {"kv_tile": 96},
                 {"p_offset": 3}, {"rescale_threshold": 4}, {"two_level": True}, {"tile_order": "first_to_last"},
                 {"row_sum": "columns"}, {"p_format": "e5m2", "pv_model": "sm90.wgmma.e5m2.e4m3"}):
        options = [word for key, value in more.items()
                   for word in [f"--{key.replace('_', '-')}", value] if word is not True]
        named = json.loads(expect(0, "attn", *one, "--call", "flashattention3.fp8", *options, "--json").stdout)
        check(f"a call and {options}", {key: named[key] for key in call} == call | more, named)
    expect(2, "attn", *c, stderr=["--dtype e4m3fn"])
    expect(2, "attn", q, k, v, "--kv-tile", 48, stderr=["--kv-tile"])
    flat = save(at / "flat.npy", o[0].astype(np.float32))
    expect(2, "attn", q, k, v, "--check", flat, stderr=["flat.npy: expected [2, 96, 64], got [96, 64]"])
    expect(0, "attn", *one, "--check", save(at / "near.npy", np.load(at / "o.npy")[0]))


def main():
    for test in (test_identify, test_vectors, test_attn):
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))
    finish("identify, vectors and attn")


main()
