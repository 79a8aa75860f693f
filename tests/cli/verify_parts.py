"""Faults of a part of an output, and faults that only a measurement sees, as `fp8lab verify` and `fp8lab attn --check` tell them.

Usage: verify_parts.py PATH_OF_FP8LAB
"""

import json
import re
import tempfile

from checking import check, expect, finish
from fp8_arrays import Folder, codes, normal

import ml_dtypes
import numpy as np

UNIT = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "--promotion", 128]


def output(at, *arguments):
    """The codes of the right output, of 16 bits as uint16."""
    expect(0, "gemm", *arguments, "-o", at / "right.npy")
    right = np.load(at / "right.npy")
    return right.view(np.uint16) if right.dtype.kind == "V" else right


def report(at, got, *arguments):
    text = expect(1, "verify", at.save("got.npy", got), "--inputs", *arguments, "--json").stdout
    return json.loads(text)


def named(report):
    return [cause["name"] for cause in report["diagnosis"]["causes"]]


def words(text):
    return re.sub(r"\s+", " ", text)


def test_tiles_at_the_end(at):
    """A step left out, or done otherwise, in the last rows or columns alone: half of them need not differ."""
    rng = np.random.default_rng(1)
    ab = at.save("a.npy", normal(rng, 160, 256)), at.save("b.npy", normal(rng, 133, 256))
    bias = ["--bias", at.save("bias.npy", rng.uniform(-9, 9, 133).astype(np.float32))]
    whole = [*ab, *UNIT, *bias, "--out-dtype", "bf16", "--activation", "relu"]
    right, plain = output(at, *whole), output(at, *whole[:-2])
    got = right.copy()
    got[128:] = plain[128:]
    found = report(at, got, *whole)
    check("ReLU left out in the last rows", named(found)[:1] == ["missing_activation"], found["diagnosis"])
    check("... and where", "in rows 128-159, columns 0-132:" in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])

    exact = output(at, *ab, *UNIT, "--out-dtype", "f32")
    whole = [*ab, *UNIT, "--out-dtype", "bf16"]
    got = output(at, *whole)
    got[:, 128:] = (exact.view(np.uint32) >> 16).astype(np.uint16)[:, 128:]
    found = report(at, got, *whole)
    check("BF16 truncated in the last columns", named(found)[:1] == ["rtz_cast"], found["diagnosis"])
    every = (exact.view(np.uint32) >> 16).astype(np.uint16)
    text = expect(1, "verify", at.save("got.npy", every), "--inputs", *whole, stdout=["where: scattered"]).stdout
    check("truncated everywhere: no part", "cause: rtz_cast: truncated" in text, text)


def test_two_faults(at):
    """Regions that touch have a cause each, and figures of both together are left out."""
    rng = np.random.default_rng(2)
    a, b = normal(rng, 160, 296), normal(rng, 160, 296)
    ab = at.save("a.npy", a), at.save("b.npy", b)
    bias = ["--bias", at.save("bias.npy", rng.uniform(-9, 9, 160).astype(np.float32))]
    whole = [*ab, *UNIT, *bias]
    short = a.copy()
    short[128:, 256:] = 0
    got = output(at, at.save("short.npy", short), *whole[1:])
    got[:128, 128:] = output(at, *whole[:-2])[:128, 128:]
    text = words(expect(1, "verify", at.save("got.npy", got), "--inputs", *whole).stdout)
    check("the bias of some columns", re.search(r"rows 0-127, columns 128-159: \d+ of 4096 differ; cause: missing_bias", text), text)
    check("the tail of K of some rows",
          re.search(r"rows 128-159, columns 0-159: \d+ of 5120 differ; cause: dropped_last_k_tile", text), text)
    check("no figures of both", "measured:" not in text, text)


def test_strides(at):
    """Rows, or columns of a column-major output, that were stored further apart than they are read."""
    rng = np.random.default_rng(3)
    whole = [at.save("a.npy", normal(rng, 96, 256)), at.save("b.npy", normal(rng, 120, 256)), *UNIT, "--out-dtype", "bf16"]
    right = output(at, *whole)
    padded = np.zeros((96, 128), np.uint16)
    padded[:, :120] = right
    found = report(at, padded.reshape(-1)[:96 * 120].reshape(96, 120), *whole)
    check("rows of 128", named(found)[:1] == ["other_row_stride"], found["diagnosis"])
    check("... in words", "rows of 120 elements were stored 128 elements apart" in found["diagnosis"]["causes"][0]["text"],
          found["diagnosis"])
    padded = np.zeros((120, 104), np.uint16)
    padded[:, :96] = right.T
    found = report(at, np.ascontiguousarray(padded.reshape(-1)[:120 * 96].reshape(120, 96).T), *whole)
    check("columns of 104", named(found)[:1] == ["other_column_stride"], found["diagnosis"])
    noise = right.copy()
    noise[1:] = rng.integers(0x3F80, 0x4280, noise[1:].shape)
    found = report(at, noise, *whole)
    check("noise has no stride", not any("stride" in name for name in named(found)), found["diagnosis"])


def test_lanes(at):
    """Terms that one lane of a warp sums, left out in a product of one row."""
    rng = np.random.default_rng(4)
    a, b = normal(rng, 1, 1024), at.save("b.npy", normal(rng, 512, 1024))
    whole = [at.save("a.npy", a), b, "--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3"]
    for lost, said in ((np.s_[31:], "in each 32 terms: term 31 left out"), (np.s_[16:], "in each 32 terms: terms 16 to 31 left out")):
        short = a.reshape(32, 32).copy()
        short[:, lost] = 0
        found = report(at, output(at, at.save("short.npy", short.reshape(1, 1024)), *whole[1:]), *whole)
        check(said, named(found)[:1] == ["dropped_terms"] and said in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])
    twice = output(at, at.save("twice.npy", np.concatenate([a, a[:, 64:128]], 1)),
                   at.save("b2.npy", np.concatenate([np.load(b), np.load(b)[:, 64:128]], 1)), *whole[2:])
    check("one block twice is no lane", "in each" not in str(report(at, twice, *whole)["diagnosis"]))


def test_scales(at):
    """Scales of both operands truncated; those of a register that was not set anew; those of a group's neighbours in memory."""
    rng = np.random.default_rng(5)
    scales = lambda *shape: np.exp2(rng.uniform(-3, 3, shape)).astype(np.float32)
    a, b = at.save("a.npy", normal(rng, 256, 640)), at.save("b.npy", normal(rng, 256, 640))
    sa, sb = scales(256, 5), scales(2, 5)
    whole = lambda x, y: [a, b, "--scale-a", at.save("sa.npy", x), "--scale-b", at.save("sb.npy", y), "--dtype", "e4m3fn", "--call",
                          "deepgemm.h100"]
    cut = lambda x: (x.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)
    got = output(at, *whole(cut(sa), cut(sb)))
    found = report(at, got, *whole(sa, sb))
    check("both truncated to BF16", named(found)[:1] == ["bf16_scale_a_and_b_truncated"], found["diagnosis"])
    again = sa.copy()
    again[128:] *= sa[:128]
    got = output(at, *whole(again, sb))
    found = report(at, got, *whole(sa, sb))
    check("B's scales already had those of the rows before", named(found)[:1] == ["scale_times_another_a"], found["diagnosis"])
    check("... in words", "the right one times that of 128 rows before" in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])

    groups = normal(rng, 4, 192, 256)
    of_groups = scales(4, 2, 2)
    whole = lambda x: [a2, at.save("groups.npy", groups), "--scale-a", sa2, "--scale-b", at.save("sg.npy", x), "--tiles-b", "128x128",
                       "--tiles-a", "1x128", "--dtype", "e4m3fn", "--call", "deepgemm.h100", "--row-ends", "64,134,174,264"]
    a2, sa2 = at.save("a2.npy", normal(rng, 264, 256)), at.save("sa2.npy", scales(264, 2))
    flat = of_groups.reshape(8, 2)
    got = output(at, *whole(np.stack([flat[group:group + 2] for group in range(4)])))
    text = words(expect(1, "verify", at.save("got.npy", got), "--inputs", *whole(of_groups)).stdout)
    check("192 columns taken for one row of tiles",
          "cause: scale_b_at_other_offset: the scales of the weights begin 1 row of tiles too early in all groups' scales" in text, text)
    right = output(at, *whole(of_groups))
    right[132:134] = 0x7FC0
    text = words(expect(1, "verify", at.save("got.npy", right), "--inputs", *whole(of_groups)).stdout)
    check("NaN at a group's end", "last_rows_nan: the last 2 rows of group 1 are NaN" in text and "rows_not_written" not in text, text)


def test_checkerboard(at):
    """Tiles that form no rectangle; a known mistake that explains nearly all gives way to terms that explain all."""
    rng = np.random.default_rng(10)
    whole = [at.save("a.npy", normal(rng, 256, 512)), at.save("b.npy", normal(rng, 256, 512)), *UNIT]
    got, other = output(at, *whole), output(at, *whole[:-2])
    rows, columns = np.indices(got.shape)
    odd = (rows // 64 + columns // 64) % 2 == 1
    got[odd] = other[odd]
    found = report(at, got, *whole)
    check("no promotion in odd tiles", named(found)[:1] == ["no_promotion"]
          and "and other places:" in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])

    fp4 = lambda rows: rng.integers(0, 256, (rows, 272)).astype(np.uint8)
    scale = lambda rows: rng.uniform(20, 200, (rows, 34)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    a = fp4(64)
    whole = [at.save("a4.npy", a), at.save("b4.npy", fp4(96)), "--scale-a", at.save("sa.npy", scale(64)), "--scale-b",
             at.save("sb.npy", scale(96)), "--tiles-a", "1x16", "--tiles-b", "1x16", "--scale-format", "e4m3fn", "--dtype", "e2m1x2",
             "--call", "cutlass.b200.nvfp4"]
    short = a.copy()
    short[:, -8:] = 0
    found = report(at, output(at, at.save("short.npy", short), *whole[1:]), *whole)
    check("the last 16 terms left out", named(found) and "[528, 544) left out" in found["diagnosis"]["causes"][0]["text"],
          found["diagnosis"])


def test_moved_groups(at):
    """Groups of K whose ends are 16 too large."""
    rng = np.random.default_rng(11)
    whole = lambda ends: [at / "a.npy", at / "b.npy", *UNIT, "--k-ends", ends]
    at.save("a.npy", normal(rng, 64, 512)), at.save("b.npy", normal(rng, 72, 512))
    got = output(at, *whole("144,400,512"))
    text = words(expect(1, "verify", at.save("got.npy", got), "--inputs", *whole("128,384,512")).stdout)
    check("ends 16 too large", "cause: k_ends_late: the group's terms end too late by 16 terms" in text
          and "k_offset_high" in text and "k_begins_late" in text, text)


def test_bias_of_a_tail(at):
    """The bias of the next column in the last columns: the rule is told, not a list of columns that happen to be alike."""
    rng = np.random.default_rng(6)
    bias = rng.uniform(-9, 9, 200).astype(ml_dtypes.bfloat16).astype(np.float32)
    wrong = bias.copy()
    wrong[128:199], wrong[199] = bias[129:], 0
    whole = lambda x: [at.save("a.npy", np.load(at / "a0.npy")), at / "b.npy", *UNIT, "--out-dtype", "bf16", "--bias",
                       at.save("bias.npy", x)]
    at.save("a0.npy", normal(rng, 96, 256)), at.save("b.npy", normal(rng, 200, 256))
    got = output(at, *whole(wrong))
    found = report(at, got, *whole(bias))
    check("named", named(found)[:1] == ["bias_of_other_column"], found["diagnosis"])
    check("as a rule", "column i has that of column i + 1" in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])


def neighbours(x, rng):
    """E4M3FN codes of normal numbers, rounded up as often as they are near the upper neighbour."""
    bits = (x.view(np.uint32) + rng.integers(0, 1 << 20, x.shape).astype(np.uint32)) & np.uint32(0xfff00000)
    return codes(bits.view(np.float32))


def test_casts(at):
    """Rare faults of casts, faults of their tails, and rounding at random."""
    rng = np.random.default_rng(7)
    small = rng.normal(0, .01, (64, 96)).astype(np.float32)
    x = rng.normal(0, 3, (100, 100)).astype(np.float32)
    cast = lambda got, of: report(at, got, at.save("x.npy", of), "--cast", "e4m3fn")
    positive = np.where(codes(small) == 0x80, 0, codes(small)).astype(np.uint8)
    check("-0 lost", named(cast(positive, small))[:1] == ["negative_zero_lost"])
    special = x.copy()
    special[3, 5] = special[60, 0] = np.nan
    for code, name in ((0x7e, "nan_to_largest"), (0xfe, "nan_to_lowest"), (0, "nan_to_zero")):
        got = codes(special)
        got[np.isnan(special)] = code
        check(name, named(cast(got, special))[:1] == [name])
    got = codes(x)
    got[:, 96:] &= 0x7f
    found = cast(got, x)
    check("signs lost in the last columns", named(found)[:1] == ["sign_lost"], found["diagnosis"])
    check("... and where", ", columns 96-99: the sign left out" in found["diagnosis"]["causes"][0]["text"], found["diagnosis"])
    got = codes(x)
    got[84:] = got[84:][np.arange(16) ^ 1]
    check("rows exchanged", named(cast(got, x))[:1] == ["rows_exchanged"])
    normal_numbers = rng.uniform(1, 300, (64, 96)).astype(np.float32)
    found = cast(neighbours(normal_numbers, rng), normal_numbers)
    check("stochastic rounding", not named(found) and "as is to be expected of stochastic rounding" in str(found["diagnosis"]["measured"]),
          found["diagnosis"])
    up = codes(np.nextafter(codes(normal_numbers).view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(1.07), np.float32(0)))
    check("any other rounding is not", "but not as is to be expected" in str(cast(up, normal_numbers)["diagnosis"]["measured"])
          or "as is to be expected" not in str(cast(up, normal_numbers)["diagnosis"]["measured"]))


def test_quantizers(at):
    """Stored scales in another order, and codes made under rounded ones."""
    rng = np.random.default_rng(8)
    x = (rng.standard_normal((128, 1024)) * np.exp2(rng.uniform(-4, 4, (128, 1)))).astype(np.float32)
    px = at.save("x.npy", x)
    tiles = x.reshape(128, 8, 128)
    scale = (np.abs(tiles).max(2) / np.float32(448)).astype(np.float32)
    under = lambda s: codes((tiles / s[:, :, None]).reshape(128, 1024))
    quantizer = ["--inputs", px, "--cast", "e4m3fn", "--recipe", "deepgemm", "--scale"]
    expect(0, "verify", at.save("got.npy", under(scale)), *quantizer, at.save("s.npy", scale), stdout=["pass"])
    blocked = scale.reshape(1, 4, 32, 2, 4).transpose(0, 3, 2, 1, 4).reshape(128, 8)
    flat = np.arange(1024)
    rows, columns = flat // 8, flat % 8
    read = scale.reshape(-1)[(columns // 4) * 512 + (rows % 32) * 16 + rows % 128 // 32 * 4 + columns % 4].reshape(128, 8)
    for stored, said in ((scale.T.reshape(128, 8), "they are the right ones in column-major order"),
                         (scale.reshape(8, 128).T, "they are the right ones, read as if these were column-major"),
                         (blocked, "they are the right ones in blocks of 128 x 4"),
                         (read, "they are the right ones, read as if these stood in blocks of 128 x 4")):
        expect(1, "verify", at / "got.npy", *quantizer, at.save("wrong.npy", stored), stdout=[said])
    rounded = scale.astype(ml_dtypes.bfloat16).astype(np.float32)
    expect(1, "verify", at.save("rounded.npy", under(rounded)), *quantizer, at / "s.npy",
           stdout=["scale_rounded: the scale (measured) rounded to bf16"])


def attention(at, q, k, v, *arguments):
    names = [at.save(f"{name}.npy", x) for name, x in (("q", q), ("k", k), ("v", v))]
    expect(0, "attn", *names, *arguments, "-o", at / "o.npy")
    return names, np.load(at / "o.npy")


def test_attention(at):
    """Outputs of 16 bits as NumPy keeps them; two faults in different heads; sinks of the first head; zeros are no scale."""
    rng = np.random.default_rng(9)
    q, k, v = normal(rng, 4, 200, 64), normal(rng, 2, 200, 64), normal(rng, 2, 200, 64)
    how = ["--dtype", "e4m3fn", "--out-dtype", "bf16"]
    names, right = attention(at, q, k, v, *how)
    np.save(at / "words.npy", right.view(np.uint16))
    np.save(at / "opaque.npy", right.view("V2"))
    for name in ("words", "opaque"):
        expect(0, "attn", *names, *how, "--check", at / f"{name}.npy", stdout=["pass"])
    got = right.view(np.uint16).copy()
    got[3, 128:] = 0
    text = expect(1, "attn", *names, *how, "--check", at.save("zeros.npy", got), stdout=["cause: never_written"]).stdout
    check("zeros are no scale", "output_factor" not in text, text)
    _, other = attention(at, q, k, v[::-1], *how)
    got[0] = other.view(np.uint16)[0]
    attention(at, q, k, v, *how)
    text = expect(1, "attn", *names, *how, "--check", at.save("two.npy", got)).stdout
    check("the rows of one head", "cause: never_written" in text and "(in head 3, rows 128 to 199)" in text, text)
    check("V of another", re.search(r"cause: \w+: [^\n]*V[^\n]*\(in head 0\)", text), text)
    check("nothing is measured of both", "measured:" not in text, text)

    sinks = rng.normal(0, 2, 4).astype(np.float32)
    names, got = attention(at, q, k, v, "--dtype", "e4m3fn", "--sinks", at.save("first.npy", np.repeat(sinks[:1], 4)))
    expect(1, "attn", *names, "--dtype", "e4m3fn", "--sinks", at.save("sinks.npy", sinks), "--check", at.save("got.npy", got),
           stdout=["cause: sink: all heads have the first head's sink (every bit)"])
    names, got = attention(at, q, k, v, "--dtype", "e4m3fn", "--soft-cap", 0.5)
    expect(1, "attn", *names, "--dtype", "e4m3fn", "--soft-cap", 4, "--check", at.save("got.npy", got),
           stdout=["cause: soft_cap: the soft cap is taken of scores that the softmax's scale does not yet multiply (every bit)"])


for test in (test_tiles_at_the_end, test_two_faults, test_strides, test_lanes, test_scales, test_checkerboard, test_moved_groups,
             test_bias_of_a_tail, test_casts, test_quantizers, test_attention):
    with tempfile.TemporaryDirectory() as folder:
        test(Folder(folder))
finish("parts")
