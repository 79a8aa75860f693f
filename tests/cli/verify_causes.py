"""Causes that `fp8lab verify` must name: each part of an epilogue left out, formats exchanged, groups taken for neighbours.

Usage: verify_causes.py PATH_OF_FP8LAB
"""

import json
import re
import tempfile

from checking import check, expect, finish
from fp8_arrays import Folder, normal

import ml_dtypes
import numpy as np

M, N, K = 32, 24, 256
UNIT = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3"]


def output(at, *arguments):
    expect(0, "gemm", *arguments, "-o", at / "right.npy")
    return np.load(at / "right.npy")


def causes(at, got, *arguments):
    report = json.loads(expect(1, "verify", at.save("got.npy", got), "--inputs", *arguments, "--json").stdout)
    return [cause["name"] for cause in report["diagnosis"]["causes"]], report


def test_epilogue(at):
    """Each part of an epilogue is missing in turn, and is named."""
    rng = np.random.default_rng(5)
    ab = at.save("a.npy", normal(rng, M, K)), at.save("b.npy", normal(rng, N, K))
    floats = lambda name, *shape: at.save(f"{name}.npy", rng.uniform(0.5, 2.0, shape).astype(np.float32))
    parts = {"alpha": ["--alpha", 0.75], "bias": ["--bias", floats("bias", N)], "row_scales": ["--row-scales", floats("rows", M)],
             "column_scales": ["--column-scales", floats("columns", N)], "c": ["--c", floats("c", M, N)], "beta": ["--beta", 0.5]}
    whole = [*ab, *UNIT, *(word for part in parts.values() for word in part)]
    output(at, *whole)
    for name in parts:
        without = {"c": ("c", "beta")}.get(name, (name,))
        left = [word for part, words in parts.items() if part not in without for word in words]
        left += ["--beta", 1] if name == "beta" else []
        named, report = causes(at, output(at, *ab, *UNIT, *left), *whole)
        check(f"without {name}", named[:1] == [f"missing_{name}"], (named, report["diagnosis"]))


def test_formats(at):
    """Codes of one operand read as the other FP8 format: the text says which operand, and what it was read as."""
    rng = np.random.default_rng(6)
    kinds = {"e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    for a_type, b_type in (("e4m3fn", "e5m2"), ("e5m2", "e4m3fn")):
        draw = lambda rows, kind: rng.standard_normal((rows, K)).astype(kinds[kind]).view(np.uint8)
        ab = at.save("a.npy", draw(M, a_type)), at.save("b.npy", draw(N, b_type))
        model = lambda a, b: ["--dtype", a, "--dtype-b", b, "--model", "fused:terms=32,F=13"]
        for side, wrong in (("a", (b_type, b_type)), ("b", (a_type, a_type))):
            own, other = (a_type, b_type) if side == "a" else (b_type, a_type)
            got = output(at, *ab, *model(*wrong))
            named, report = causes(at, got, *ab, *model(a_type, b_type))
            found = {cause["name"]: cause["text"] for cause in report["diagnosis"]["causes"]}
            name = f"{other}_codes_{side}"
            text = f"{side.upper()}'s codes are {other}, read as {own}, or the reverse"
            check(f"{a_type} x {b_type}: {name}", found.get(name) == text, (found, text))


def test_blocks(at):
    """Blocks of K of 64 and 128 terms that a kernel left out, or read twice."""
    rng = np.random.default_rng(3)
    a, b = normal(rng, M, 512), normal(rng, N, 512)
    ab = at.save("a.npy", a), at.save("b.npy", b)
    for begin, end in ((64, 128), (192, 256), (448, 512), (128, 256), (256, 384)):
        left, right = a.copy(), b.copy()
        left[:, begin:end] = 0
        named, _ = causes(at, output(at, at.save("left.npy", left), ab[1], *UNIT), *ab, *UNIT)
        check(f"terms {begin} to {end} left out", named[:1] == ["dropped_k_block"], named)
        left[:, begin:end] = a[:, 2 * begin - end:begin]
        right[:, begin:end] = b[:, 2 * begin - end:begin]
        named, _ = causes(at, output(at, at.save("left.npy", left), at.save("right.npy", right), *UNIT), *ab, *UNIT)
        check(f"terms {begin} to {end} are those before them", named[:1] == ["stale_k_block"], named)


ENDS = [5, 5, 21, 30, 46]  # group 1 is empty


def test_groups(at):
    """A group computed with the weights of the nearest group that has rows; what is said of many wrong groups."""
    rng = np.random.default_rng(7)
    groups = len(ENDS)
    a, b = at.save("a.npy", normal(rng, 46, K)), normal(rng, groups, N, K)
    whole = [a, at.save("b.npy", b), *UNIT, "--row-ends", ",".join(map(str, ENDS))]
    right = output(at, *whole)
    rows = dict(zip(range(groups), zip([0, *ENDS], ENDS)))
    for group, taken, relation in ((2, 0, "previous"), (0, 2, "next")):
        wrong = b.copy()
        wrong[group] = b[taken]
        got = output(at, a, at.save("wrong_b.npy", wrong), *whole[2:])
        text = expect(1, "verify", at.save("got.npy", got), "--inputs", *whole).stdout
        check(f"group {group} with the weights of group {taken}",
              f"cause: weight_of_{relation}_group: the weights of group {taken} (" in text, text)

    # All but the empty group are wrong; in the last one, a block of rows and columns is halved and the rest is noise.
    got = right * np.float32(1.5)
    begin, end = rows[4]
    got[begin:end] = right[begin:end]
    got[begin:begin + 8, 4:20] *= np.float32(0.5)
    got[end - 1, ::5] += 1
    text = expect(1, "verify", at.save("got.npy", got), "--details", "--inputs", *whole).stdout
    heads = re.findall(r"^  group (\d) \([^)]*\): ?(.*)$", text, re.M)
    check("three groups are shown in full, the others in a line", [(int(g), bool(line)) for g, line in heads] ==
          [(0, False), (2, False), (3, False), (4, True)], text)
    differing = int((got[begin:end] != right[begin:end]).sum())
    check("a line has the cause of its region", heads[-1][1] == f"{differing} of {N * (end - begin)} differ; halved_output", heads)


for test in (test_epilogue, test_formats, test_blocks, test_groups):
    with tempfile.TemporaryDirectory() as folder:
        test(Folder(folder))
finish("causes")
