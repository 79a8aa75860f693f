"""`fp8lab verify` as a kernel developer meets it.

Usage: verify_command.py PATH_OF_FP8LAB
"""

import json
import os
import re
import subprocess
import tempfile

from checking import TOOL, check, expect, finish, run
from fp8_arrays import Folder, codes, normal

import ml_dtypes
import numpy as np


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
    p.verify(0, golden, stdout=["pass: all 1920 outputs have the golden bits", "11 of 11 applicable faults detected"])
    wrong = golden.copy()
    wrong[17, 33] = np.nextafter(wrong[17, 33], np.float32(np.inf))
    p.verify(1, wrong, stdout=["1 of 1920 outputs differ", "row 17 column 33", "next:  fp8lab verify "])
    p.verify(1, wrong, "--details", stdout=["1 of 1920 outputs differ", "row 17 column 33", "1 ulp", "sm90.mma.e4m3", "K-block [",
                               "1 of 1 examined mismatches are within the budget"])
    p.verify(0, wrong, "--check", "budget", "--details", stdout=["1 of 1 examined mismatches", "are within", "cannot see: accumulator",
                                                    "output 5 of 5, operands 4 of 4"])
    p.verify(0, golden, "--check", "budget", stdout=["pass: all 1920", "cannot see: accumulator"])
    p.verify(0, wrong, "--check", "deepgemm", stdout=["power of deepgemm", "cannot see: accumulator"])
    p.verify(1, golden * np.float32(1.5), "--check", "budget", stdout=["mismatch: 1920 of 1920"])
    p.verify(1, np.zeros_like(golden), "--details", stdout=["100 %", "cosine 0"])
    p.verify(1, -golden)
    nan = golden.copy()
    nan[0, 0] = np.nan
    p.verify(1, nan, "--check", "flashinfer.bmm", "--details", stdout=["NaN on one side"])
    report = json.loads(p.verify(1, wrong, "--json").stdout)
    check("verify --json", report["verdict"] == "mismatch" and report["metrics"]["bit_mismatches"] == 1 and
          report["elements"][0]["column"] == 33 and report["gates"]["deepgemm"], report)
    p.verify(1, wrong, "--map", at / "map")
    check("the map's data is written", (at / "map" / "mismatches.json").exists())
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
    p.verify(1, wrong, "--out", at / "p's results")
    folder = at / "p's results" / "verify"
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
    expect(0, "run", "cost", "walkthrough", "--quick", "--no-plots", "--out", at / "p's results")
    expect(0, "report", at / "p's results", "-o", at / "all.html", stdout=["3 runs"])
    headings = re.findall(r"<h2[^>]*>(walkthrough|cost|verify)\b", (at / "all.html").read_text())
    check("experiments in reading order, others after them", headings == ["walkthrough", "cost", "verify"], headings)
    right = p.verify(0, p.golden(), "--out", at / "right")
    files = len(list((at / "right" / "verify").iterdir()))
    check("the folder's line ends with the folder", right.stderr == f"fp8lab: {files} files in {at / 'right' / 'verify'}\n",
          (files, right.stderr))
    drawn = {path.name for path in folder.iterdir()}
    (at / "empty").mkdir()
    path = at.save("wrong.npy", wrong)
    alone = run("verify", path, "--inputs", p.a, p.b, *p.scales, *p.arguments, "--out", at / "p's results",
                env={**os.environ, "FP8LAB_PYTHON": str(at / "empty" / "python")})
    check("what is missing follows a semicolon", alone.returncode == 1 and alone.stderr.startswith("fp8lab: ") and
          f" files in {folder}; Python's vl-convert-python was not found" in alone.stderr, alone.stderr)
    plot = folder / "mismatches.json"
    good = plot.read_text()
    digit = next(i for i, c in enumerate(good) if c in "12345678")
    plot.write_text(good[:digit] + "9" + good[digit + 1:])
    expect(2, "report", folder, "-o", at / "changed.html", stderr=["mismatches.json: crc32: expected"])
    check("without vl-convert there is no picture", {name for name in drawn if name.endswith(".svg")} and
          not list(folder.glob("*.svg")), (drawn, list(folder.iterdir())))
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
    p.verify(1, golden + np.float32(1), stdout=["cause: number_added: 1 (measured)"])
    noise = np.random.default_rng(8).standard_normal(golden.shape).astype(np.float32)
    p.verify(1, golden + noise, stdout=["cause: none of"])

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
    twice = codes(x.astype(np.float16).astype(np.float32))
    check("rounded twice it rounds down", twice[100] == codes(1.0))
    expect(1, "verify", at.save("q.npy", twice), *cast,
           stdout=[f"{(twice != got).sum()} of 4096", "cause: double_rounding_f16", "double rounding"])
    one = ["--inputs", at.save("one.npy", x[100:101]), "--cast", "e4m3fn"]
    expect(1, "verify", at.save("q1.npy", twice[100:101]), *one, stdout=["cause: double_rounding_f16"])
    # Where the others are rounded once, it is no cause: it would change them.
    got[100] = twice[100]
    expect(1, "verify", at.save("q.npy", got), *cast, stdout=["1 of 4096", "cause: none of"])
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
    x, w = rng.standard_normal((2, 24, 256)).astype(np.float32)
    a, b = (at.save(f"fn{i}.npy", m.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)) for i, m in enumerate((x, w)))
    fnuz = [m.astype(ml_dtypes.float8_e4m3fnuz) for m in (x, w)]
    z, y = (at.save(f"fnuz{i}.npy", m.view(np.uint8)) for i, m in enumerate(fnuz))
    value = [m.astype(np.float64) for m in fnuz]
    how = ["--dtype", "e4m3fnuz", "--model", "exact"]
    expect(0, "gemm", z, y, *how, "-o", at / "d.npy")
    check("the exact product of FNUZ codes", np.array_equal(np.load(at / "d.npy"), (value[0] @ value[1].T).astype(np.float32)))
    expect(0, "verify", at / "d.npy", "--inputs", z, y, *how, stdout=["all 576 outputs have the golden bits"])
    np.savez(at / "fnuz.npz", w=fnuz[0].view(np.uint8))
    expect(0, "verify", at / "d.npy", "--inputs", at / "fnuz.npz:w", y, *how)
    for name, codes_of in (("side_a", z), ("side_b", y)):
        (at / f"{name}.npy").write_bytes(codes_of.read_bytes())
        (at / f"{name}.npy.json").write_text('{"dtype": "e4m3fnuz"}')
    expect(0, "verify", at / "d.npy", "--inputs", at / "side_a.npy", at / "side_b.npy", "--model", "exact")
    expect(1, "verify", at / "d.npy", "--inputs", z, y, "--dtype", "e4m3fn", "--model", "exact",
           stdout=["cause: fnuz_inputs"])
    expect(0, "gemm", z, y, "--dtype", "e4m3fn", "--model", "exact", "-o", at / "mixed.npy")
    expect(1, "verify", at / "mixed.npy", "--inputs", z, y, *how, stdout=["cause: fnuz_inputs"])
    expect(0, "identify", z, y, at / "d.npy", "--dtype", "e4m3fnuz", stdout=["exact"])
    for instruction in ("sm90.wgmma.e4m3", "sm100.tcgen05.e4m3"):
        expect(2, "gemm", z, y, "--dtype", "e4m3fnuz", "--model", instruction,
               stderr=["FNUZ codes are AMD's", "--model exact"])
        expect(2, "gemm", a, b, "--dtype", "e4m3fn", "--model", instruction, "--out-dtype", "e4m3fnuz",
               stderr=["FNUZ is AMD's", "--model exact"])
    for ending in ("npy", "npz", "safetensors"):
        out = at / f"out.{ending}"
        expect(0, "gemm", a, b, "--dtype", "e4m3fn", "--model", "exact", "--out-dtype", "e4m3fnuz", "-o", out)
        expect(0, "verify", out, "--inputs", a, b, "--dtype", "e4m3fn", "--model", "exact", "--out-dtype", "e4m3fnuz",
               stdout=["outputs have the golden bits"])

    px = at.save("x.npy", x)
    expect(0, "verify", z, "--inputs", px, "--cast", "e4m3fnuz", stdout=["pass"])
    expect(1, "verify", a, "--inputs", px, "--cast", "e4m3fnuz", stdout=["cause: fn_output"])
    expect(1, "verify", z, "--inputs", px, "--cast", "e4m3fn", stdout=["cause: fnuz_output"])
    for recipe in ("te-current", "mxfp8-floor"):
        expect(0, "quantize", z, "--recipe", recipe, "--dtype", "e4m3fnuz", stdout=["e4m3fn"])
    expect(2, "attn", z, z, z, "--dtype", "e4m3fnuz", stderr=["an instruction that reads e4m3fnuz"])
    expect(2, "gemm", z, y, "--dtype", "e4m3fnz", stderr=["e4m3fnuz", "'e4m3fnz'"])


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


def test_empty(at):
    """Nothing can be wrong in an output without elements, so that no check of it has power."""
    for m, n in ((0, 0), (0, 4), (4, 0)):
        a = at.save("ea.npy", np.zeros((m, 64), np.uint8))
        b = at.save("eb.npy", np.zeros((n, 64), np.uint8))
        out = at.save("eo.npy", np.zeros((m, n), np.float32))
        for how in (["--golden", out], ["--inputs", a, b, "--dtype", "e4m3fn"]):
            for gate in ("bitwise", "deepgemm"):
                expect(3, "verify", out, *how, "--check", gate, stdout=["no power: all 0 outputs", f"power of {gate}: no fault applies, on "])
            report = json.loads(expect(3, "verify", out, *how, "--json").stdout)
            check("--json of an empty output", report["verdict"] == "no power" and not report["power"]["has_power"], report)
        expect(3, "verify", out, "--inputs", a, b, "--dtype", "e4m3fn", "--check", "budget", stdout=["no power"])
    x = at.save("ex.npy", np.zeros((0, 8), np.float32))
    expect(3, "verify", at.save("ec.npy", np.zeros((0, 8), np.uint8)), "--cast", "e4m3fn", "--inputs", x, stdout=["no power"])


def test_no_numbers(at):
    """Equal outputs of NaN alone have no figures; what a check says of them does not change."""
    out = at.save("nan.npy", np.full((4, 8), np.nan, np.float32))
    for gate, code in (("bitwise", 3), ("deepgemm", 0), ("flashinfer.bmm", 0), ("torchao", 0)):
        report = json.loads(expect(code, "verify", out, "--golden", out, "--check", gate, "--json").stdout)
        figures = {name: report["metrics"][name] for name in ("relative_l2", "sqnr_db", "cosine", "calc_diff")}
        check(f"figures of NaN alone, {gate}", set(figures.values()) == {"nan"}, figures)


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
    for test in (test_verify, test_causes, test_casts, test_fnuz, test_power, test_empty, test_no_numbers, test_memory):
        with tempfile.TemporaryDirectory() as folder:
            test(Folder(folder))
    finish("verify")


main()
