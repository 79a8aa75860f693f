"""`fp8lab gemm` and `fp8lab verify` as a kernel developer meets them.

Usage: verify_command.py PATH_OF_FP8LAB
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checking import TOOL, check, expect, finish, run

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)


def e4m3(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e4m3fn)


def codes(x):
    return e4m3(x).view(np.uint8)


class Folder:
    """A temporary folder with a way to save arrays in it."""

    def __init__(self, path):
        self.path = Path(path)

    def save(self, name, array):
        np.save(self.path / name, array)
        return self.path / name

    def __truediv__(self, name):
        return self.path / name


def normal(rng, *shape):
    return codes(rng.standard_normal(shape))


def test_gemm(at):
    ones = at.save("ones.npy", codes(np.ones((1, 32768))))
    for promotion, expected in ((0, 16384), (128, 32768)):
        expect(0, "gemm", ones, ones, "--dtype", "e4m3fn", "--promotion", promotion, "-o", at / "d.npy")
        check(f"all ones, K = 32768, promotion {promotion}", np.load(at / "d.npy").tolist() == [[expected]])

    rng = np.random.default_rng(1)
    a, b = normal(rng, 5, 256), normal(rng, 7, 256)
    exact = a.view(ml_dtypes.float8_e4m3fn).astype(np.float64) @ b.view(ml_dtypes.float8_e4m3fn).astype(np.float64).T
    pa, pb, pt = at.save("a.npy", a), at.save("b.npy", b), at.save("bt.npy", np.ascontiguousarray(b.T))
    pf = at.save("bf.npy", np.asfortranarray(b))
    base = ["--dtype", "e4m3fn", "--model", "exact"]
    expect(0, "gemm", pa, pb, *base, "-o", at / "d.npy")
    golden = np.load(at / "d.npy")
    check("the exact model is the FP64 product, rounded once", np.array_equal(golden, exact.astype(np.float32)))
    for other in (["gemm", pa, pt, *base, "--transpose-b"], ["gemm", pa, pf, *base]):
        expect(0, *other, "-o", at / "e.npy")
        check(f"the same from {other[2].name}", np.array_equal(np.load(at / "e.npy"), golden))

    sa, sb = rng.random(5).astype(np.float32), rng.random((7, 2)).astype(np.float32)
    c = rng.standard_normal((5, 7)).astype(np.float32)
    np.savez(at / "in.npz", a=a, b=b, sa=sa)
    np.savez_compressed(at / "more.npz", sb=sb, c=c)
    expect(0, "gemm", at / "in.npz:a", str(at / "in.npz") + ":b", "--dtype", "e4m3fn", "--scale-a", at / "in.npz:sa",
           "--scale-b", at / "more.npz:sb", "--c", at / "more.npz:c", "--c-enters", "promoted_sum", "--promotion", 128,
           "--model", "sm100.mma.e4m3", "-o", at / "d.npz", stdout=["C in the promoted sum"])
    av, bv = (x.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for x in (a, b))
    scaled = c + sum(av[:, k:k + 128] @ bv[:, k:k + 128].T * sa[:, None] * sb[:, k // 128] for k in (0, 128))
    got = np.load(at / "d.npz")["d"]
    check("scales of rows and of 128-wide tiles, and C", np.allclose(got, scaled, rtol=1e-5, atol=1e-5), got - scaled)

    x = at.save("x.npy", rng.standard_normal((128, 128)).astype(np.float32))
    for ending, dtype in (("npy", "bf16"), ("safetensors", "f16"), ("npz", "e4m3fn"), ("safetensors", "e5m2")):
        out = at / f"q.{ending}"
        expect(0, "gemm", x, x, "--recipe", "te-current", "--out-dtype", dtype, "-o", out, stdout=[dtype])
        again = ["verify", out, "--inputs", x, x, "--recipe", "te-current", "--out-dtype", dtype]
        expect(0, *again, stdout=["pass: all 16384 outputs"])
    report = json.loads(expect(0, "gemm", x, x, "--recipe", "te-current", "--json").stdout)
    check("gemm --json", report["k"] == 128 and report["method"] == "fused float", report)


def test_files(at):
    """The commonest faults of files: exit 2, a message that says what to do, nothing written."""
    rng = np.random.default_rng(2)
    a = at.save("a.npy", normal(rng, 4, 128))
    b = at.save("b.npy", normal(rng, 6, 128))
    f32 = at.save("f32.npy", rng.standard_normal((4, 128)).astype(np.float32))
    opaque = at.save("opaque.npy", e4m3(rng.standard_normal((4, 128))))
    bf16 = at.save("bf16.npy", rng.standard_normal((4, 128)).astype(ml_dtypes.bfloat16))
    big = at.save("big.npy", rng.standard_normal((4, 128)).astype(">f4"))
    (at / "cut.npy").write_bytes(a.read_bytes()[:-7])
    (at / "raw.bin").write_bytes(bytes(512))
    (at / "model.pt").write_bytes(b"PK")
    np.savez(at / "two.npz", a=np.zeros((4, 128), np.uint8), b=np.zeros((4, 128), np.uint8))
    bt = at.save("bt.npy", normal(rng, 128, 6))
    scale = at.save("scale.npy", np.ones((3, 1), np.float32))
    pickled = at / "pickled.npy"
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    before = sorted(p.name for p in at.path.iterdir())
    e = ["--dtype", "e4m3fn"]
    for arguments, parts in [
        ([at / "none.npy", b, *e], ["none.npy", "cannot be opened"]),
        ([opaque, b, *e], ["x.view(np.uint8)", "name the dtype"]),
        ([bf16, b, "--recipe", "te-current"], ["name the dtype (bf16)"]),
        ([a, b], ["uint8 codes need their format", "--dtype e4m3fn"]),
        ([f32, f32], ["--recipe"]),
        ([at / "cut.npy", b, *e], ["cut.npy", "truncated"]),
        ([big, big, "--recipe", "te-current"], ["big endian", "newbyteorder"]),
        ([at / "raw.bin", b, *e], ["raw.bin.json", '"shape"']),
        ([at / "two.npz", b, *e], ["two.npz:NAME", "a, b"]),
        ([str(at / "two.npz") + ":c", b, *e], ["'c'", "one of a, b"]),
        ([at / "model.pt", b, *e], ["safetensors.torch.save_file"]),
        ([a, bt, *e], ["give --transpose-b"]),
        ([a, b, *e, "--transpose-b"], ["leave out --transpose-b"]),
        ([a, b, *e, "--scale-a", scale], ["scale_a", "3"]),
        ([pickled, b, *e], ["pickled"]),
        ([a, b, *e, "--promotion", "100"], ["multiple of the model's 32"]),
        ([a, b, *e, "--model", "sm90.wgmma"], ["sm90.wgmma.e4m3"]),
        ([a, b, "--dtype", "e5m2"], ["e4m3fn for sm90.wgmma.e4m3"]),
    ]:
        expect(2, "gemm", *arguments, "-o", at / "out.npy", stderr=parts)
    expect(2, "gemm", a, b, *e, "-o", at / "out.txt", stderr=[".safetensors"])
    expect(2, "gemm", a, b, *e, "-o", at / "none" / "out.npy", stderr=["a folder that is there"])
    expect(2, "verify", f32, "--inputs", a, b, *e, stderr=["shape [4, 6]", "[4, 128]"])
    expect(2, "verify", f32, stderr=["--inputs", "--golden"])
    expect(2, "verify", f32, "--inputs", a, b, *e, "--out-dtype", "f16", stderr=["f16 elements", "--out-dtype"])
    expect(2, "verify", f32, "--golden", f32, "--check", "rtol", stderr=["bitwise, budget, deepgemm"])
    check("nothing was written", sorted(p.name for p in at.path.iterdir()) == before)


class Problem:
    """A product with scales, its golden output and ways to break it."""

    def __init__(self, at, shape=(48, 40, 512), model="sm90.wgmma.e4m3", promotion=128, out="f32", data=normal):
        rng = np.random.default_rng(3)
        m, n, k = shape
        self.at = at
        self.a = at.save("pa.npy", data(rng, m, k))
        self.b = at.save("pb.npy", data(rng, n, k))
        self.scales = ["--scale-a", at.save("psa.npy", np.exp2(rng.normal(size=m)).astype(np.float32)),
                       "--scale-b", at.save("psb.npy", np.exp2(rng.normal(size=n)).astype(np.float32))]
        self.arguments = ["--dtype", "e4m3fn", "--model", model, "--promotion", promotion, "--out-dtype", out]
        self.out = out

    def gemm(self, *arguments, a=None, b=None, scales=None):
        path = self.at / "golden.npy"
        expect(0, "gemm", a or self.a, b or self.b, *(self.scales if scales is None else scales), *arguments, "-o", path)
        return np.load(path)

    def golden(self):
        return self.gemm(*self.arguments)

    def verify(self, code, got, *arguments, **parts):
        path = self.at.save("got.npy", got)
        return expect(code, "verify", path, "--inputs", self.a, self.b, *self.scales, *self.arguments, *arguments,
                      **parts)


def test_verify(at):
    p = Problem(at)
    golden = p.golden()
    p.verify(0, golden, stdout=["pass: all 1920 outputs have the golden bits", "10 of 10 applicable faults seen"])
    wrong = golden.copy()
    wrong[17, 33] = np.nextafter(wrong[17, 33], np.float32(np.inf))
    p.verify(1, wrong, stdout=["1 of 1920 outputs differ", "row 17 column 33", "1 ulp", "sm90.mma.e4m3", "K-block [",
                               "1 of 1 mismatches looked at are within the budget"])
    p.verify(0, wrong, "--check", "budget", stdout=["1 of 1 mismatches looked at", "are within", "cannot see: accumulator",
                                                    "output 4 of 4, operands 4 of 4"])
    p.verify(0, golden, "--check", "budget", stdout=["pass: all 1920", "cannot see: accumulator"])
    p.verify(0, wrong, "--check", "deepgemm", stdout=["power of deepgemm", "cannot see: accumulator"])
    p.verify(1, golden * np.float32(1.5), "--check", "budget", stdout=["mismatch: 1920 of 1920"])
    p.verify(1, np.zeros_like(golden), stdout=["100 %", "cosine 0"])
    p.verify(1, -golden)
    nan = golden.copy()
    nan[0, 0] = np.nan
    p.verify(1, nan, "--check", "flashinfer.bmm", stdout=["NaN on one side"])
    report = json.loads(p.verify(1, wrong, "--json").stdout)
    check("verify --json", report["verdict"] == "mismatch" and report["metrics"]["bit_mismatches"] == 1 and
          report["elements"][0]["column"] == 33 and report["gates"]["deepgemm"], report)
    p.verify(1, wrong, "--map", at / "map")
    check("the map's data is written", (at / "map" / "mismatches.dat").exists())
    test_results(at, p, wrong)
    report = json.loads(p.verify(0, wrong, "--check", "budget", "--json").stdout)
    check("--json says which faults are of which class", report["power"]["has_power"] and
          {f["class"] for f in report["power"]["faults"]} == {"output", "operands", "rounding"}, report["power"])
    path = at.save("file.npy", golden)
    expect(0, "verify", path, "--golden", at.save("same.npy", golden), stdout=["4 of 4 applicable faults"])
    expect(1, "verify", at.save("wrong.npy", wrong), "--golden", path, stdout=["row 17 column 33"])
    table = p.verify(0, golden, "--fault-matrix", "--gate").stdout
    for part in ("zeros", "gain_0.72", "transposed_b", "missing_promotion", "deepgemm", "test_bmm_fp8.py", "detected"):
        check(f"the fault matrix has {part}", part in table, table)
    row = next(line for line in table.splitlines() if line.startswith("accumulator"))
    check("gates miss a wrong accumulator, bits show it", row.count("detected") >= 1 and row.count("MISSED") >= 4, table)
    row = next(line for line in table.splitlines() if line.startswith("gain_0.72"))
    check("cosine misses a gain of 0.72", "MISSED" in row and "detected" in row, table)


def test_results(at, p, wrong):
    """A result folder: what the report reads, and the command in it gives the same tables."""
    p.verify(1, wrong, "--out", at / "results")
    folder = at / "results" / "verify"
    result = json.loads((folder / "result.json").read_text())
    check("the verdict comes first", result["findings"][0].startswith("mismatch: 1 of 1920 outputs differ"), result)
    tables = {table["file"]: (folder / table["file"]).read_bytes() for table in result["tables"]}
    check("tables of a mismatch", {"metrics.csv", "elements.csv", "gates.csv", "tiles.csv"} <= tables.keys(), tables)
    check("the wrong element's tile", tables["tiles.csv"].decode().split("\n")[1].endswith(",1"), tables["tiles.csv"])
    again = subprocess.run(result["command"].replace("fp8lab", TOOL, 1), shell=True, capture_output=True, text=True)
    check(f"the command repeats it: {again.stderr}", again.returncode == 1)
    check("with the same bytes", all((folder / name).read_bytes() == tables[name] for name in tables))
    expect(0, "report", folder, "-o", at / "report.html", stdout=["1 run"])
    check("the report holds the verdict", "1 of 1920 outputs differ" in (at / "report.html").read_text())
    p.verify(0, p.golden(), "--out", at / "right")
    result = json.loads((at / "right" / "verify" / "result.json").read_text())
    check("no map of what is right", not result["plots"] and result["findings"][0].startswith("pass"), result)


def test_causes(at):
    p = Problem(at)
    golden = p.golden()
    base = p.arguments
    none = lambda option: [x for pair in zip(p.scales[::2], p.scales[1::2]) if pair[0] != option for x in pair]
    squared = ["--scale-a", at.save("sq.npy", np.load(p.scales[1]) ** 2), *none("--scale-a")]
    ceil = ["--scale-a", at.save("up.npy", np.exp2(np.ceil(np.log2(np.load(p.scales[1])))).astype(np.float32)),
            *none("--scale-a")]
    dropped = np.load(p.a).copy()
    dropped[:, 384:] = 0
    for name, got in [
        ("missing_scale_a", p.gemm(*base, scales=none("--scale-a"))),
        ("missing_scale_b", p.gemm(*base, scales=none("--scale-b"))),
        ("missing_scale_a_and_b", p.gemm(*base, scales=[])),
        ("doubled_scale_a", p.gemm(*base, scales=squared)),
        ("e8m0_scale_a_without_requantizing", p.gemm(*base, scales=ceil)),
        ("no_promotion", p.gemm("--dtype", "e4m3fn")),
        ("promotion_256", p.gemm("--dtype", "e4m3fn", "--promotion", 256)),
        ("dropped_last_k_tile", p.gemm(*base, a=at.save("dropped.npy", dropped))),
        ("accumulator_sm90.mma.e4m3", p.gemm("--dtype", "e4m3fn", "--promotion", 128, "--model", "sm100.mma.e4m3")),
        ("scale_order_a_then_fma_b", p.gemm(*base, "--scale-order", "a_then_fma_b")),
    ]:
        p.verify(1, got, stdout=[f"cause: {name}"])
    # 640 terms in two parts: no promotion interval of a power of two gives the same sums.
    q = Problem(at, shape=(48, 40, 640), promotion=0)
    q.scales = []
    parts = []
    for begin in (0, 320):
        a = at.save("ka.npy", np.ascontiguousarray(np.load(q.a)[:, begin:begin + 320]))
        b = at.save("kb.npy", np.ascontiguousarray(np.load(q.b)[:, begin:begin + 320]))
        parts.append(q.gemm(*q.arguments, a=a, b=b))
    q.verify(1, parts[0] + parts[1], stdout=["cause: split_k_2"])
    p = Problem(at)
    p.verify(1, np.flip(golden, 1).copy(), stdout=["cause: columns_exchanged"])
    p.verify(1, golden + np.float32(1), stdout=["cause: none of"])

    q = Problem(at, out="e4m3fn")
    exact = q.gemm(*q.arguments[:-2])
    truncated = exact.copy().view(np.uint32)
    truncated = codes((truncated & 0xfff00000).view(np.float32))
    subnormal = np.abs(exact) < 2.0 ** -6
    truncated[subnormal] = q.golden()[subnormal]
    q.verify(1, np.where(np.abs(exact) > 448, q.golden(), truncated), stdout=["cause: rtz_cast"])
    q.verify(1, codes(exact), stdout=["cause: not_saturated"])
    fnuz = np.clip(exact, -240, 240).astype(ml_dtypes.float8_e4m3fnuz).view(np.uint8)
    q.verify(1, fnuz, stdout=["cause: fnuz_output"])


def test_scales(at):
    """A scale tensor of another shape, or of codes read as numbers, is refused and not read in memory order."""
    rng = np.random.default_rng(8)
    a, b = at.save("a.npy", normal(rng, 64, 256)), at.save("b.npy", normal(rng, 48, 256))
    e = ["--dtype", "e4m3fn"]
    right = rng.random((64, 2)).astype(np.float32)
    scale = lambda values: ["--scale-a", at.save("s.npy", values)]
    ones = at.save("d.npy", np.zeros((64, 48), np.float32))
    for command in (["gemm", a, b], ["identify", a, b, ones], ["verify", ones, "--inputs", a, b]):
        promotion = [] if command[0] == "identify" else ["--promotion", 128]
        expect(2, *command, *e, *promotion, *scale(right.T.copy()), stderr=["[64, 2] (1x128 tiles)", "got [2, 64]"])
        expect(2, *command, *e, *promotion, *scale(np.ones((4, 32), np.float32)), stderr=["got [4, 32]"])
        expect(2, *command, *e, *promotion, *scale(np.ones((1, 64), np.float32)),
               stderr=["[64] or [64, 1]", "torch's form"])
        expect(2, *command, *e, *promotion, *scale(np.full((64, 2), 127, np.uint8)),
               stderr=["scale_a: expected floats, or E8M0 or UE4M3 codes", "--scale-format e8m0fnu", "got u8"])
    expect(0, "gemm", a, b, *e, "--promotion", 128, *scale(right), "-o", at / "d.npy")
    powers = np.exp2(rng.integers(-3, 3, (64, 2))).astype(np.float32)
    expect(0, "gemm", a, b, *e, "--promotion", 128, *scale(powers), "-o", at / "d.npy")
    codes_of_powers = (np.log2(powers) + 127).astype(np.uint8)
    expect(0, "gemm", a, b, *e, "--promotion", 128, *scale(codes_of_powers), "--scale-format", "e8m0fnu", "-o",
           at / "e.npy")
    check("E8M0 codes are powers of two", np.array_equal(np.load(at / "d.npy"), np.load(at / "e.npy")))
    # Of 128x128 tiles too, where the transpose was read as 64x256 ones.
    a2, b2 = at.save("a2.npy", normal(rng, 4, 1024)), at.save("b2.npy", normal(rng, 512, 1024))
    blocks = rng.random((4, 8)).astype(np.float32)
    how = [a2, b2, *e, "--promotion", 128, "--scale-b", at / "s.npy"]
    at.save("s.npy", blocks)
    expect(0, "gemm", *how)
    at.save("s.npy", np.ascontiguousarray(blocks.T))
    expect(2, "gemm", *how, stderr=["[4, 8] (128x128 tiles)", "got [8, 4]"])
    # Tiles of another side are named.
    blocks = rng.random((4, 4)).astype(np.float32)
    expect(2, "gemm", a, b, *e, "--promotion", 64, *scale(blocks), stderr=["other tiles need their sides, as 64x64"])
    expect(0, "gemm", a, b, *e, "--promotion", 64, *scale(blocks), "--tiles-a", "16x64", "-o", at / "d.npy")
    expect(0, "gemm", a, b, *e, "--promotion", 64, *scale(np.repeat(blocks, 16, 0)), "--tiles-a", "1x64", "-o",
           at / "e.npy")
    check("named tiles", np.array_equal(np.load(at / "d.npy"), np.load(at / "e.npy")))
    expect(2, "gemm", a, b, *e, "--promotion", 64, *scale(blocks), "--tiles-a", "16x128",
           stderr=["[ceil(64/16), ceil(256/128)] = [4, 2], got [4, 4]"])
    expect(2, "gemm", a, b, *e, *scale(blocks), "--tiles-a", "16", stderr=["--tiles-a: expected ROWSxK"])
    x = at.save("x.npy", rng.standard_normal((8, 256)).astype(np.float32))
    q = at.save("q.npy", codes(np.load(x)))
    cast = ["verify", q, "--inputs", x, "--cast", "e4m3fn"]
    expect(2, *cast, "--scale", at.save("s.npy", np.uint8([127])), stderr=["--scale-format e8m0fnu"])
    expect(0, *cast, "--scale", at / "s.npy", "--scale-format", "e8m0fnu")
    expect(2, *cast, "--scale", at.save("s.npy", np.ones((2, 8), np.float32)), stderr=["got [2, 8]"])
    expect(0, *cast, "--scale", at.save("s.npy", np.ones((8, 2), np.float32)))


def test_c(at):
    """C = 16385 loses its last bit in Hopper's accumulator and not in FP32: the place is asked for."""
    ones = at.save("ones.npy", codes(np.ones((1, 32))))
    c = ["--c", at.save("c.npy", np.float32([[16385]]))]
    one = ["--scale-a", at.save("s.npy", np.float32([1]))]
    base = ["gemm", ones, ones, "--dtype", "e4m3fn", *c, "-o", at / "d.npy"]

    def d(*arguments):
        expect(0, *base, *arguments)
        return np.load(at / "d.npy")[0, 0]

    check("the instruction's c", d() == d("--c-enters", "accumulator") == 16384)
    for more in (one, ["--promotion", 32]):
        expect(2, *base, *more, stderr=["c_enters: expected accumulator or", "got nothing"])
        check("a named place stays what it is", d(*more, "--c-enters", "accumulator") == 16384 and
              d(*more, "--c-enters", "epilogue") == 16417, more)
    report = json.loads(expect(0, *base, *one, "--c-enters", "epilogue", "--json").stdout)
    check("--json has the place", report["c_enters"] == "epilogue", report)
    expect(2, *base, *one, "--c-enters", "promoted_sum", stderr=["accumulator or epilogue"])
    expect(2, *base, "--c-enters", "middle", stderr=["accumulator, promoted_sum, epilogue"])
    expect(0, *base, *one, "--c-enters", "epilogue")
    identified = expect(0, "identify", ones, ones, at / "d.npy", "--dtype", "e4m3fn", *c, *one)
    check("identify finds it", "C in the epilogue" in identified.stdout and "C in the accumulator" not in
          identified.stdout.split("the first two")[0].split("%")[1], identified.stdout)


def test_orders(at):
    """The order of Triton's block kernels, and cuBLASLt's other one."""
    rng = np.random.default_rng(9)
    a, b = at.save("a.npy", normal(rng, 16, 512)), at.save("b.npy", normal(rng, 16, 512))
    sa, sb = rng.random((16, 4)).astype(np.float32), rng.random((16, 4)).astype(np.float32)
    scales = ["--dtype", "e4m3fn", "--scale-a", at.save("sa.npy", sa), "--scale-b", at.save("sb.npy", sb)]
    total = np.zeros((16, 16), np.float32)
    for k in range(4):
        part = slice(128 * k, 128 * k + 128)
        expect(0, "gemm", at.save("pa.npy", np.load(a)[:, part]), at.save("pb.npy", np.load(b)[:, part]), "--dtype",
               "e4m3fn", "-o", at / "p.npy")
        total = total + np.load(at / "p.npy") * sa[:, k:k + 1] * sb[:, k]
    expect(0, "gemm", a, b, *scales, "--promotion", 128, "--scale-order", "a_then_b_then_add", "-o", at / "d.npy")
    check("dot(a, b) * s_a * s_b, then add", np.array_equal(np.load(at / "d.npy").view(np.uint32), total.view(np.uint32)))
    expect(0, "identify", a, b, at / "d.npy", *scales, stdout=["promotion 128, scales a_then_b_then_add"])
    expect(0, "gemm", a, b, *scales, "--promotion", 128, "--scale-order", "b_then_fma_a", "-o", at / "d.npy")
    expect(0, "identify", a, b, at / "d.npy", *scales, stdout=["promotion 128, scales b_then_fma_a"])


def test_non_finite(at):
    """NaN from tiles of zeros: told on stderr and counted in --json, by every command that meets them."""
    rng = np.random.default_rng(10)
    x = rng.standard_normal((128, 256)).astype(np.float32)
    x[:, :128] = 0
    px = at.save("x.npy", x)
    recipe = ["--recipe", "deepseek-v3-first", "--promotion", 128]
    expect(0, "gemm", px, px, *recipe, "-o", at / "d.npy", stderr=["warning: A has", "NaN", "D has 16384 NaN"])
    report = json.loads(expect(0, "gemm", px, px, *recipe, "--json").stdout)["non_finite_counts"]
    check("gemm --json counts them", report["D"] == {"nan": 16384, "infinite": 0} and report["A"]["nan"] == 16384 and
          report["A before quantization"]["nan"] == 0, report)
    done = expect(0, "quantize", px, "--recipe", "deepseek-v3-first", "--json", stderr=["warning: x's codes has 16384 NaN"])
    report = json.loads(done.stdout)["tensors"][0]["non_finite_counts"]
    check("quantize --json counts them", report["x's codes"]["nan"] == 16384 and report["x"]["nan"] == 0, report)
    done = subprocess.run([TOOL, "verify", at / "d.npy", "--inputs", px, px, *map(str, recipe), "--json"],
                          capture_output=True, text=True)
    check("verify warns", "the golden output has 16384 NaN" in done.stderr, done.stderr)
    report = json.loads(done.stdout)["non_finite_counts"]
    check("verify --json counts them", report["the golden output"]["nan"] == report["A"]["nan"] == 16384, report)
    finite = at.save("f.npy", rng.standard_normal((128, 256)).astype(np.float32))
    check("nothing is said where there are none", expect(0, "gemm", finite, finite, *recipe).stderr == "")


def test_casts(at):
    """Acceptance: one value rounded twice is named."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal(4096).astype(np.float32)
    x[100] = np.float32(1.0625001)
    px = at.save("x.npy", x)
    cast = ["--inputs", px, "--cast", "e4m3fn"]
    got = codes(x)
    check("the value itself rounds up", got[100] == codes(1.125))
    expect(0, "verify", at.save("q.npy", got), *cast, stdout=["pass"])
    got[100] = codes(1.0)
    expect(1, "verify", at.save("q.npy", got), *cast,
           stdout=["1 of 4096", "cause: double_rounding_f16", "double rounding"])
    one = ["--inputs", at.save("one.npy", x[100:101]), "--cast", "e4m3fn"]
    expect(1, "verify", at.save("q1.npy", got[100:101]), *one, stdout=["cause: double_rounding_f16"])
    fnuz = x.astype(ml_dtypes.float8_e4m3fnuz).view(np.uint8)
    expect(1, "verify", at.save("q.npy", fnuz), *cast, stdout=["cause: fnuz_output"])
    big = at.save("big.npy", (x * 300).astype(np.float32))
    expect(1, "verify", at.save("q.npy", codes(np.load(big))), "--inputs", big, "--cast", "e4m3fn",
           stdout=["cause: not_saturated"])
    expect(0, "verify", at / "q.npy", "--inputs", big, "--cast", "e4m3fn", "--profile", "ml_dtypes")
    small = (x / 64).astype(np.float32)
    flushed = np.where(np.abs(small) < 2.0 ** -6, codes(np.copysign(0, small)), codes(small))
    expect(1, "verify", at.save("q.npy", flushed), "--inputs", at.save("s.npy", small), "--cast", "e4m3fn",
           stdout=["cause: flushed_subnormals"])
    scale = at.save("scale.npy", np.float32([3.0]))
    expect(0, "verify", at.save("q.npy", codes(x * np.float32(3))), *cast, "--scale", scale)
    expect(1, "verify", at.save("q.npy", codes(x)), *cast, "--scale", scale, stdout=["cause: missing_scale"])
    expect(1, "verify", at.save("q.npy", codes(x * np.float32(9))), *cast, "--scale", scale,
           stdout=["cause: doubled_scale"])


def test_fnuz(at):
    """AMD's FP8: read, cast and compared; no NVIDIA instruction reads it, and a mix-up is named."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((24, 256)).astype(np.float32)
    fn, fnuz = (x.astype(t).view(np.uint8) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz))
    a, z = at.save("fn.npy", fn), at.save("fnuz.npy", fnuz)
    value = fnuz.view(ml_dtypes.float8_e4m3fnuz).astype(np.float64)
    how = ["--dtype", "e4m3fnuz", "--model", "exact"]
    expect(0, "gemm", z, z, *how, "-o", at / "d.npy")
    check("the exact product of FNUZ codes", np.array_equal(np.load(at / "d.npy"), (value @ value.T).astype(np.float32)))
    expect(0, "verify", at / "d.npy", "--inputs", z, z, *how, stdout=["all 576 outputs have the golden bits"])
    np.savez(at / "fnuz.npz", w=fnuz)
    expect(0, "verify", at / "d.npy", "--inputs", at / "fnuz.npz:w", z, *how)
    (at / "side.npy").write_bytes(z.read_bytes())
    (at / "side.npy.json").write_text('{"dtype": "e4m3fnuz"}')
    expect(0, "verify", at / "d.npy", "--inputs", at / "side.npy", at / "side.npy", "--model", "exact")
    expect(1, "verify", at / "d.npy", "--inputs", z, z, "--dtype", "e4m3fn", "--model", "exact",
           stdout=["cause: fnuz_inputs"])
    expect(0, "gemm", z, z, "--dtype", "e4m3fn", "--model", "exact", "-o", at / "mixed.npy")
    expect(1, "verify", at / "mixed.npy", "--inputs", z, z, *how, stdout=["cause: fnuz_inputs"])
    expect(0, "identify", z, z, at / "d.npy", "--dtype", "e4m3fnuz", stdout=["exact"])
    for instruction in ("sm90.wgmma.e4m3", "sm100.tcgen05.e4m3"):
        expect(2, "gemm", z, z, "--dtype", "e4m3fnuz", "--model", instruction,
               stderr=["FNUZ codes are AMD's", "--model exact"])
        expect(2, "gemm", a, a, "--dtype", "e4m3fn", "--model", instruction, "--out-dtype", "e4m3fnuz",
               stderr=["FNUZ is AMD's", "--model exact"])
    for ending in ("npy", "npz", "safetensors"):
        out = at / f"out.{ending}"
        expect(0, "gemm", a, a, "--dtype", "e4m3fn", "--model", "exact", "--out-dtype", "e4m3fnuz", "-o", out)
        expect(0, "verify", out, "--inputs", a, a, "--dtype", "e4m3fn", "--model", "exact", "--out-dtype", "e4m3fnuz",
               stdout=["outputs have the golden bits"])

    px = at.save("x.npy", x)
    expect(0, "verify", z, "--inputs", px, "--cast", "e4m3fnuz", stdout=["pass"])
    expect(1, "verify", a, "--inputs", px, "--cast", "e4m3fnuz", stdout=["cause: fn_output"])
    expect(1, "verify", z, "--inputs", px, "--cast", "e4m3fn", stdout=["cause: fnuz_output"])
    for recipe in ("te-current", "mxfp8-floor"):
        expect(0, "quantize", z, "--recipe", recipe, "--dtype", "e4m3fnuz", stdout=["e4m3fn"])
    expect(2, "attn", z, z, z, "--dtype", "e4m3fnuz", stderr=["an instruction that reads e4m3fnuz"])
    expect(2, "gemm", z, z, "--dtype", "e4m3fnz", stderr=["e4m3fnuz", "'e4m3fnz'"])


def test_power(at):
    """Acceptance: what could not have failed exits 3, with the reason."""
    tiny = Problem(at, data=lambda rng, *shape: np.ones(shape, np.uint8))
    tiny.scales = []
    zeros = np.zeros((48, 40), np.float32)
    for gate in ("vllm.scaled_mm", "transformer_engine", "torchao", "flashinfer.groupwise"):
        tiny.verify(3, zeros, "--check", gate, stdout=["no power", "missed: zeros", "tolerance"])
    tiny.verify(1, zeros)
    underflow = at.save("u.npy", np.full((16, 128), 1e-6, np.float32))
    expect(3, "verify", at.save("z.npy", np.zeros((16, 16), np.float32)), "--inputs", underflow, underflow,
           "--recipe", "naive", stdout=["no power", "the right output is all zeros"])

    integers = lambda rng, *shape: codes(rng.integers(-1, 2, shape))
    p = Problem(at, data=integers)
    p.scales = []
    for model in ("sm100.mma.e4m3", "fp32", "exact", "sm89.mma.e4m3"):
        wrong = p.gemm("--dtype", "e4m3fn", "--model", model)
        p.verify(3, wrong, stdout=["no power", "accumulator", "integers in {-1, 0, 1}"])
    wrong = p.golden()
    wrong[0, 0] += 1
    p.verify(1, wrong)
    unit = Problem(at)
    unit.scales = ["--scale-a", at.save("u1.npy", np.ones(48, np.float32)), "--scale-b",
                   at.save("u2.npy", np.ones(40, np.float32))]
    unit.verify(3, unit.golden(), stdout=["missed: swapped_scales"])
    x = at.save("exact.npy", np.float32([1, 2, 0.5, -4] * 8))
    expect(3, "verify", at.save("q.npy", codes(np.load(x))), "--inputs", x, "--cast", "e4m3fn",
           stdout=["missed: rtz_cast"])


def test_memory(at):
    """Golden files of 1 GiB (mostly holes of the file system) take at most 64 MiB more than a command that reads nothing."""
    floor, _ = peak_memory(at, 0, "list")
    paths = at / "golden.npy", at / "got.npy"
    for path in paths:
        big = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(1 << 14, 1 << 14))
        big[:64] = np.random.default_rng(5).standard_normal((64, 1 << 14))
    for code in (0, 1):
        peak, seen = peak_memory(at, code, "verify", paths[1], "--golden", paths[0])
        check(f"a peak of {peak} KiB, {floor} KiB without files", peak < floor + 64 * 1024, seen)
        big[-1, -1] = 1
        big.flush()


def peak_memory(at, code, *arguments):
    """KiB at most in memory (never less than this process takes), and what was printed."""
    # Sanitizers keep what was freed: that is not the command's memory.
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1:" + os.environ.get("ASAN_OPTIONS", "")}
    with open(at / "stdout.txt", "w+") as out:
        child = subprocess.Popen([TOOL, *map(str, arguments)], stdout=out, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        seen = out.read()
    check(f"{arguments[0]}: exit {child.returncode}, expected {code}", child.returncode == code, seen)
    return usage.ru_maxrss, seen


def main():
    for test in (test_gemm, test_files, test_scales, test_c, test_orders, test_non_finite, test_verify, test_causes,
                 test_casts, test_fnuz, test_power, test_memory):
        with tempfile.TemporaryDirectory() as folder:
            test(Folder(folder))
    finish("gemm and verify")


main()
