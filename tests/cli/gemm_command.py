"""`fp8lab gemm` as a kernel developer meets it: products, files, scales, C, and what is not finite.

Usage: gemm_command.py PATH_OF_FP8LAB
"""

import json
import subprocess
import tempfile

from checking import TOOL, check, expect, finish
from fp8_arrays import Folder, codes, e4m3, normal

import ml_dtypes
import numpy as np


def test_gemm(at):
    ones = at.save("ones.npy", codes(np.ones((1, 32768))))
    for promotion, expected in ((0, 16384), (128, 32768)):
        expect(0, "gemm", ones, ones, "--dtype", "e4m3fn", "--promotion", promotion, "-o", at / "d.npy")
        check(f"all ones, K = 32768, promotion {promotion}", np.load(at / "d.npy").tolist() == [[expected]])

    # 32768 does not fit: the profile says what becomes of it.
    for profile, expected in (([], 0x7e), (["--profile", "ml_dtypes"], 0x7f)):
        expect(0, "gemm", ones, ones, "--dtype", "e4m3fn", "--model", "exact", "--out-dtype", "e4m3fn", *profile,
               "-o", at / "d.npy")
        got = np.load(at / "d.npy").view(np.uint8).tolist()
        check(f"all ones, K = 32768, in E4M3 {profile}", got == [[expected]], got)

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

    # Codes of B are another format's.
    finite = np.isin(b & 0x7c, [0x7c], invert=True)
    mixed = at.save("mixed.npy", np.where(finite, b, 0).astype(np.uint8))
    expect(0, "gemm", pa, mixed, *base, "--dtype-b", "e5m2", "-o", at / "e.npy")
    exact = a.view(ml_dtypes.float8_e4m3fn).astype(np.float64) @ np.load(mixed).view(ml_dtypes.float8_e5m2).astype(np.float64).T
    check("--dtype-b reads the codes of B alone", np.array_equal(np.load(at / "e.npy"), exact.astype(np.float32)))

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

    x, y = (at.save(f"{name}.npy", rng.standard_normal((128, 128)).astype(np.float32)) for name in "xy")
    for ending, dtype in (("npy", "bf16"), ("safetensors", "f16"), ("npz", "e4m3fn"), ("safetensors", "e5m2")):
        out = at / f"q.{ending}"
        expect(0, "gemm", x, y, "--recipe", "te-current", "--out-dtype", dtype, "-o", out, stdout=[dtype])
        again = ["verify", out, "--inputs", x, y, "--recipe", "te-current", "--out-dtype", dtype]
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
        ([a, b, *e, "--scale-a", scale], ["--scale-a", "3"]),
        ([pickled, b, *e], ["pickled"]),
        ([a, b, *e, "--promotion", "100"], ["multiple of the model's 32"]),
        ([a, b, *e, "--model", "sm90.wgmma"], ["sm90.wgmma.e4m3"]),
        ([a, b, "--dtype", "e5m2"], ["e4m3fn for sm90.wgmma.e4m3"]),
    ]:
        expect(2, "gemm", *arguments, "-o", at / "out.npy", stderr=parts)
    expect(2, "gemm", a, b, *e, "-o", at / "out.txt", stderr=[".safetensors"])
    expect(2, "gemm", a, b, *e, "-o", at / "none" / "out.npy", stderr=["a file in an existing folder"])
    expect(2, "verify", f32, "--inputs", a, b, *e, stderr=["shape [4, 6]", "[4, 128]"])
    expect(2, "verify", f32, stderr=["--inputs", "--golden"])
    expect(2, "verify", f32, "--inputs", a, b, *e, "--out-dtype", "f16", stderr=["f16 elements", "--out-dtype"])
    expect(2, "verify", f32, "--golden", f32, "--check", "rtol", stderr=["bitwise, budget, deepgemm"])
    check("nothing was written", sorted(p.name for p in at.path.iterdir()) == before)


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
               stderr=["--scale-a: expected floats, or E8M0 or UE4M3 codes", "--scale-format e8m0fnu", "got u8"])
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
    expect(2, "gemm", a, b, *e, "--promotion", 64, *scale(blocks), stderr=["other tiles must be named, such as 64x64"])
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
        expect(2, *base, *more, stderr=["--c-enters: expected accumulator or", "got nothing"])
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


def main():
    for test in (test_gemm, test_files, test_scales, test_c, test_orders, test_non_finite):
        with tempfile.TemporaryDirectory() as folder:
            test(Folder(folder))
    finish("gemm")


main()
