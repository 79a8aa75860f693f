"""Layouts of scales against NumPy, options that count for nothing, types of outputs, progress.

Usage: layouts_command.py PATH_OF_FP8LAB
"""

import json
import sys
import tempfile

from grouped_case import (N, ROWS, Case, check, expect, gemm, ml_dtypes, np, product, report, same)


def packed_words(exponents):
    rows, tiles = exponents.shape
    padded = np.zeros((rows, -(-tiles // 4) * 4), np.uint8)
    padded[:, :tiles] = exponents
    return padded.view("<i4")


def blocked(codes):
    """cuBLASLt's layout, one block of 128 x 4 after the other."""
    rows, tiles = codes.shape
    height, width = -(-rows // 128), -(-tiles // 4)
    out = np.full((height, width, 512), 0xAA, np.uint8)
    for r in range(rows):
        for t in range(tiles):
            out[r // 128, t // 4, r % 32 * 16 + r % 128 // 32 * 4 + t % 4] = codes[r, t]
    return out.reshape(-1)


def layouts(case):
    """One grid of scales in every layout: the same product as NumPy's."""
    rng = case.rng
    a = rng.standard_normal((150, 640)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((23, 640)).astype(ml_dtypes.float8_e4m3fn)
    pa, pb = case.save("a", a), case.save("b", b)
    exponents = rng.integers(120, 134, (150, 5)).astype(np.uint8)
    scales = np.exp2(exponents.astype(np.float32) - 127)
    right = product(a, b, scales, None, 128)

    def with_a(layout, array, *more):
        return gemm(case, pa, pb, "--scale-a", case.save("sa", array), "--scale-layout-a", layout, *more,
                    promotion=128)

    same("row_major", with_a("row_major", scales), right)
    same("column_major", with_a("column_major", np.ascontiguousarray(scales.T)), right)
    padded = np.full((5, 152), np.nan, np.float32)
    padded[:, :150] = scales.T
    same("column_major, padded to 16 bytes", with_a("column_major", padded), right)
    same("Fortran order, row_major", with_a("row_major", np.asfortranarray(scales)), right)
    words = packed_words(exponents)
    same("packed_ue8m0", with_a("packed_ue8m0", words), right)
    same("packed_ue8m0 in Fortran order", with_a("packed_ue8m0", np.asfortranarray(words)), right)
    in_memory = np.zeros((2, 152), np.int32)
    in_memory[:, :150] = words.T
    same("packed_ue8m0_column_major", with_a("packed_ue8m0_column_major", in_memory), right)
    expect(2, "gemm", pa, pb, "--dtype", "e4m3fn", "--model", "exact", "--promotion", "128", "--scale-a",
           case.save("sa", words[:, :1]), "--scale-layout-a", "packed_ue8m0", stderr=["[150, 2] words"])

    fine = rng.integers(120, 134, (150, 20)).astype(np.uint8)
    right = product(a, b, np.exp2(fine.astype(np.float32) - 127), None, 32)
    out = case.at / "d.npy"
    expect(0, "gemm", pa, pb, "--dtype", "e4m3fn", "--model", "exact", "--promotion", "32", "--scale-a",
           case.save("sa", blocked(fine)), "--scale-layout-a", "blocked_128x4", "--scale-format", "e8m0fnu",
           "-o", out)
    same("blocked_128x4", np.load(out), right)
    expect(2, "gemm", pa, pb, "--dtype", "e4m3fn", "--model", "exact", "--promotion", "32", "--scale-a",
           case.save("sa", blocked(fine)[:-1]), "--scale-layout-a", "blocked_128x4", "--scale-format",
           "e8m0fnu", stderr=["256 x 20"])

    columns = case.power(1, 23)  # torch's scale_b
    right = (product(a, b).astype(np.float64) * columns).astype(np.float32)
    one_a_row = ["--scale-b", case.save("sb", columns)]
    expect(2, "gemm", pa, pb, "--dtype", "e4m3fn", "--model", "exact", *one_a_row, stderr=["column_major"])
    same("torch's [1, n]", gemm(case, pa, pb, *one_a_row, "--scale-layout-b", "column_major"), right)
    grid = case.power(5, 1)  # torch's 128x128 scales of B, [k / 128, n / 128]
    right = product(a, b, None, grid.T, 128)
    same("torch's [k / 128, n / 128]", gemm(case, pa, pb, "--scale-b", case.save("sb", grid),
                                            "--scale-layout-b", "column_major", promotion=128), right)


def refused(case):
    """Bad groups and options that would count for nothing."""
    flat, stack, b = case.save("flat", case.flat), case.save("stack", case.stack), case.save("b", case.b)
    wide = case.save("wide", case.wide_b)

    def bad(*arguments, stderr):
        expect(2, "gemm", *arguments, "--dtype", "e4m3fn", "--model", "exact", stderr=stderr)

    bad(flat, b, "--row-ends", "5,4,21,30", stderr=["--row-ends", "increase to at most", "4 after 5 (group 1)"])
    bad(flat, b, "--row-ends", "5,6,21,34", stderr=["at most 33"])
    bad(flat, b, "--row-ends", "0,5,6,21,30", stderr=["leave out the leading 0"])
    bad(flat, b, "--row-ends", "5,,6", stderr=["--row-ends"])
    bad(flat, b, "--row-ends", "8,16,24,32", "--group-alignment", "16", stderr=["multiples of 16", "group 1 at 8"])
    bad(flat, b, "--row-indices", "0,1", stderr=["33 rows"])
    bad(stack, b, "--row-counts", "9,9,10,1", stderr=["0 to 9 rows", "10 (group 2)"])
    bad(stack, b, "--row-ends", "1,2,3,4", stderr=["A: expected [m, k]"])
    bad(flat, b, "--batched", stderr=["A: expected [groups, m, k]"])
    bad(stack, b, "--batched", "--row-counts", "1,1,1,1", stderr=["two of them"])
    bad(stack, b, "--batched", "--group-alignment", "4", stderr=["--group-alignment"])
    bad(stack, b, "--batched", "--output-scale", "amax", stderr=["--output-scale"])
    bad(flat, wide, "--tiles-a", "1x128", stderr=["--tiles-a", "--scale-a"])
    bad(flat, wide, "--scale-format", "e8m0fnu", stderr=["--scale-format"])
    bad(flat, wide, "--scale-order", "product_then_add", stderr=["--scale-order"])
    bad(flat, wide, "--c-enters", "epilogue", stderr=["--c-enters", "--c"])
    bad(flat, wide, "--split-order", "tree", stderr=["--split-order", "--split-k"])
    bad(flat, wide, "--slope", "0.5", stderr=["--slope", "leaky_relu"])
    bad(flat, wide, "--activation-ulps", "2", "--activation", "relu", stderr=["--activation-ulps", "gelu"])
    d = case.save("d", product(case.flat, case.wide_b))
    expect(2, "verify", d, "--golden", d, "--model", "exact", stderr=["--model", "--golden"])
    expect(2, "verify", d, "--inputs", d, "--cast", "e4m3fn", "--promotion", "128", stderr=["--promotion"])
    inexact = np.full((ROWS, N), 0.1)
    bad(flat, wide, "--c", case.save("c", inexact), stderr=["C: expected f32, or f64", "0.1"])
    expect(0, "gemm", flat, wide, "--dtype", "e4m3fn", "--model", "exact", "--c",
           case.save("c", np.full((ROWS, N), 0.25)))


def outputs(case):
    """The output's type from its file; progress on stderr alone."""
    flat, wide = case.save("flat", case.flat), case.save("wide", case.wide_b)
    arguments = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3"]
    out = case.at / "d.safetensors"
    for dtype in ("bf16", "f16", "f32"):
        expect(0, "gemm", flat, wide, *arguments, "--out-dtype", dtype, "-o", out)
        expect(0, "verify", out, "--inputs", flat, wide, *arguments, stdout=["pass", f" {dtype},"])
    npy = case.at / "d.npy"
    expect(0, "gemm", flat, wide, *arguments, "--out-dtype", "bf16", "-o", npy)
    done = expect(0, "verify", npy, "--inputs", flat, wide, *arguments, "--json", "--progress",
                  stderr=["the golden output", "power"])
    check("nothing but JSON on stdout", json.loads(done.stdout)["out_dtype"] == "bf16")
    done = expect(0, "verify", npy, "--inputs", flat, wide, *arguments)
    check("no progress where nobody asks", done.stderr == "", done.stderr)
    expect(2, "verify", npy, "--inputs", flat, wide, *arguments, "--out-dtype", "f32")


def halves(case):
    """Vectors of a unit with FP16 outputs say so, and are held to it."""
    path = case.at / "half.txt"
    expect(0, "vectors", "--model", "sm80.mma.f16.f16", "-n", "40", "-o", path)
    lines = path.read_text().splitlines()
    check("the header says f16", "# output: f16" in lines, "\n".join(lines[:8]))
    expect(0, "replay", path)
    check("and ends with its checksum", lines[-1].startswith("# crc32: "), lines[-1])
    path.write_text("\n".join([*lines[:-2], lines[-2][:-8] + "3f800001", lines[-1]]) + "\n")
    expect(2, "replay", path, stderr=["FP16 value"])
    path.write_text("\n".join([*lines[:-3], lines[-2], lines[-1]]) + "\n")
    expect(2, "replay", path, stderr=["crc32", "the file was changed"])
    no_half = [*lines[:-2], lines[-2][:-8] + "3f800001"]
    path.write_text("\n".join(no_half) + "\n")
    expect(2, "replay", path, stderr=["FP16 value"])
    expect(0, "vectors", "--separate", "sm80.mma.f16.f16", "sm80.mma.f16", "-n", "3", "-o", path)
    check("so do separating ones", "# output: f16" in path.read_text())
    expect(0, "vectors", "--model", "sm90.wgmma.e4m3", "-n", "3", "-o", path)
    check("others do not", "# output" not in path.read_text())


with tempfile.TemporaryDirectory() as folder:
    for part in (layouts, refused, outputs, halves):
        part(Case(folder))
sys.exit(report("layouts and options"))
