"""Golden vectors, inputs that separate models, and replays that must and must not match."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

import fp8lab

TEXT = """# fp8lab vectors 1
# model: sm90.wgmma.e4m3
# input: e4m3
# terms: 2
3838 3838 00000000 40000000
387e 3838 00000000 {d}
"""


def test_vectors_hold_what_the_model_gives():
    golden = fp8lab.vectors("exact", 60, kind="random", terms=32)
    assert len(golden) == 60 and golden.a.dtype == ml_dtypes.float8_e4m3fn
    sums = (golden.a.astype(float) * golden.b.astype(float)).sum(1) + golden.c
    np.testing.assert_array_equal(sums.astype(np.float32), golden.d)
    assert golden.header["kind"] == "random" and golden.header["terms"] == "32"
    np.testing.assert_array_equal(
        fp8lab.vectors("exact", 60, kind="random", terms=32, seed=1).a, golden.a
    )


@pytest.mark.parametrize(
    ("model", "a", "b"),
    [
        ("sm90.wgmma.e5m2.e4m3", ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
        ("sm90.mma.bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        ("sm80.mma.tf32", np.float32, np.float32),
    ],
)
def test_operands_have_the_dtype_of_their_format(model, a, b):
    golden = fp8lab.vectors(model, 5)
    assert (golden.a.dtype, golden.b.dtype) == (a, b)
    assert fp8lab.replay(golden).mismatches == 0


SCALED = """# fp8lab vectors 1
# model: sm100.tcgen05.mxf8f6f4.e4m3
# input: e4m3
# terms: 2
# scales: ue8m0 32
3838 3838 7f 80 00000000 40800000
3838 3838 00 ff 00000000 7fffffff
"""


@pytest.mark.parametrize("ending", ["txt", "npz", "safetensors", "jsonl"])
def test_block_scales(tmp_path, ending):
    (tmp_path / "scaled.txt").write_text(SCALED)
    golden = fp8lab.load_vectors(tmp_path / "scaled.txt")
    np.testing.assert_array_equal(golden.scales_a, np.array([[0x7F], [0]], np.uint8))
    golden.save(tmp_path / f"v.{ending}")
    again = fp8lab.load_vectors(tmp_path / f"v.{ending}")
    np.testing.assert_array_equal(again.scales_b, np.array([[0x80], [0xFF]], np.uint8))
    assert again.header == golden.header
    with pytest.raises(ValueError, match="scales_a: expected the scales that the header states"):
        dataclasses.replace(golden, scales_a=None).save(tmp_path / "w.txt")
    with pytest.raises(ValueError, match=r"scales_b: expected \[n, blocks\] = \[2, 1\]"):
        dataclasses.replace(golden, scales_b=golden.scales_a[:1]).save(tmp_path / "w.txt")
    with pytest.raises(ValueError, match="scales_b: expected uint8 codes"):
        dataclasses.replace(golden, scales_b=golden.scales_a[0]).save(tmp_path / "w.txt")


@pytest.mark.parametrize("ending", ["txt", "npz", "safetensors", "jsonl"])
def test_files(tmp_path, ending):
    golden = fp8lab.vectors("sm90.wgmma.e4m3", 20)
    path = tmp_path / f"v.{ending}"
    golden.save(path)
    again = fp8lab.load_vectors(path)
    for name in "abcd":
        left, right = getattr(golden, name), getattr(again, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8))
    assert again.header == golden.header and again.model == "sm90.wgmma.e4m3"
    assert fp8lab.replay(path).mismatches == 0
    assert fp8lab.replay(path, "sm89.mma.e4m3").mismatches > 0
    if ending == "npz":
        z = np.load(path)
        assert json.loads(bytes(z["header"]))["model"] == golden.model
        np.testing.assert_array_equal(z["a"], golden.a.view(np.uint8))


def hopper_kernel(a, b, c):
    """A right kernel: each case is one product of one row by one column."""
    return np.concatenate(
        [
            fp8lab.gemm(a[i : i + 1], b[i : i + 1], model="sm90.wgmma.e4m3", c=c[i : i + 1, None])[0]
            for i in range(len(c))
        ]
    )


def fp32_kernel(a, b, c):
    """A wrong one: FP32 sums."""
    f32 = np.float32
    return c + (a.astype(f32) * b.astype(f32)).sum(1, dtype=f32)


@pytest.mark.parametrize("ending", [None, "npz", "jsonl", "txt"])
def test_your_kernel_on_our_vectors(tmp_path, ending):
    golden = fp8lab.vectors("sm90.wgmma.e4m3", 200)
    if ending is not None:
        golden.save(tmp_path / f"golden.{ending}")
        golden = fp8lab.load_vectors(tmp_path / f"golden.{ending}")

    def mismatches(kernel):
        mine = dataclasses.replace(golden, d=kernel(golden.a, golden.b, golden.c))
        mine.save(tmp_path / "mine.npz")
        report = fp8lab.replay(mine)
        assert fp8lab.replay(tmp_path / "mine.npz").mismatches == report.mismatches
        return report.mismatches

    assert mismatches(hopper_kernel) == 0
    wrong = fp32_kernel(golden.a, golden.b, golden.c).view(np.uint32) != golden.d.view(np.uint32)
    assert mismatches(fp32_kernel) == wrong.sum() > 100
    assert mismatches(lambda a, b, c: np.zeros(200, np.float32)) == (golden.d.view(np.uint32) != 0).sum()


def test_the_arrays_are_what_counts(tmp_path):
    golden = fp8lab.vectors("sm90.wgmma.e4m3", 50)
    golden.d[:] = 0
    assert fp8lab.replay(golden).mismatches > 40
    golden = fp8lab.vectors("sm90.wgmma.e4m3", 50)
    golden.c[7] += 1024
    golden.save(tmp_path / "c.txt")
    assert fp8lab.load_vectors(tmp_path / "c.txt").c[7] == golden.c[7]
    assert "line 8" in fp8lab.replay(golden).shown[0]
    fewer = dataclasses.replace(
        golden, a=golden.a[::5], b=golden.b[::5], c=golden.c[::5], d=golden.d[::5]
    )
    assert len(fewer) == 10 and fp8lab.replay(fewer) == fp8lab.ReplayReport(
        "sm90.wgmma.e4m3", 10, 0, ()
    )
    for name, value, message in [
        ("d", golden.d[:3], r"c: expected \[n\] = \[3\], got \[50\]"),
        ("d", np.zeros((50, 1), np.float32), r"d: expected one float32 a case, \[n\]"),
        ("d", golden.d.astype(np.float64) + 1e-12, "d: expected float32"),
        ("a", golden.a[:, :16], r"b: expected \[n, terms\] = \[50, 16\]"),
        ("a", golden.a.astype(ml_dtypes.float8_e5m2), "a_format: expected e5m2"),
        ("b", golden.b[0], r"b: expected a matrix \[n, terms\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            fp8lab.replay(dataclasses.replace(golden, **{name: value}))


def test_separate():
    found = fp8lab.separate("sm89.mma.e4m3", "sm90.wgmma.e4m3", 4)
    assert len(found.vectors) == 4 <= found.tried
    assert fp8lab.replay(found.vectors).mismatches == 0
    assert fp8lab.replay(found.vectors, "sm90.wgmma.e4m3").mismatches == 4
    same = fp8lab.separate("sm90.mma.e4m3", "sm100.mma.e4m3")
    assert len(same.vectors) == 0 == same.tried and same.vectors.a.shape == (0, 32)


def test_replay(tmp_path):
    right, wrong = tmp_path / "right.txt", tmp_path / "wrong.txt"
    right.write_text(TEXT.format(d="43e08000"))
    wrong.write_text(TEXT.format(d="43e08001"))
    assert fp8lab.replay(right) == fp8lab.ReplayReport("sm90.wgmma.e4m3", 2, 0, ())
    report = fp8lab.replay(str(wrong), "exact")
    assert (report.model, report.cases, report.mismatches) == ("exact", 2, 1)
    assert "43e08001" in report.shown[0] and "43e08000" in report.shown[0]


def test_bad_files_and_arguments(tmp_path):
    with pytest.raises(ValueError, match="missing.txt"):
        fp8lab.replay(tmp_path / "missing.txt")
    cut = tmp_path / "cut.txt"
    cut.write_text(TEXT.format(d="43e0"))
    with pytest.raises(ValueError, match="cut.txt"):
        fp8lab.load_vectors(cut)
    cut.write_text(TEXT.format(d="43e08000"))
    with pytest.raises(ValueError, match="sm91"):
        fp8lab.replay(cut, "sm91.mma.e4m3")
    with pytest.raises(ValueError, match="model: expected one of .*, got 'sm91"):
        fp8lab.vectors("sm91.mma.e4m3", 3)
    with pytest.raises(ValueError, match="kind: expected random, .*, got 'any'"):
        fp8lab.vectors("exact", 3, kind="any")
    with pytest.raises(ValueError, match="count: expected 1 to 10000000, got 0"):
        fp8lab.vectors("exact", 0)
    with pytest.raises(ValueError, match="terms"):
        fp8lab.vectors("exact", 1, terms=-1)
    with pytest.raises(ValueError, match="same formats"):
        fp8lab.separate("sm90.mma.e4m3", "sm90.mma.e5m2")


def test_codes_of_block_scales_have_the_shape_that_the_header_says():
    model = next(name for name in fp8lab.models() if "mxf8f6f4" in name)
    golden = fp8lab.vectors(model, 6)
    assert golden.scales_a.shape == golden.scales_b.shape and golden.scales_a.shape[0] == 6
    assert fp8lab.replay(golden).mismatches == 0
    for side in ("scales_a", "scales_b"):
        codes = getattr(golden, side)
        more = np.concatenate([codes, codes], 1)
        for wrong in (more, codes[:, :-1], codes[:-1], np.concatenate([codes, codes])):
            with pytest.raises(ValueError, match=rf"^{side}: expected \[n, blocks\] = \[6, {codes.shape[1]}\], got \["):
                fp8lab.replay(dataclasses.replace(golden, **{side: np.ascontiguousarray(wrong)}))
        with pytest.raises(ValueError, match=f"^{side}: expected the scales that the header states, got None$"):
            fp8lab.replay(dataclasses.replace(golden, **{side: None}))
        with pytest.raises(ValueError, match=rf"^{side}: expected uint8 codes, \[n, blocks\], got"):
            fp8lab.replay(dataclasses.replace(golden, **{side: codes.astype(np.uint16)}))
        changed = codes.copy()
        changed[2] ^= 1
        assert fp8lab.replay(dataclasses.replace(golden, **{side: changed})).mismatches >= 1
    plain = fp8lab.vectors("sm90.wgmma.e4m3", 3)
    with pytest.raises(ValueError, match="^scales_a: expected none: the header states no scales, got scales$"):
        fp8lab.replay(dataclasses.replace(plain, scales_a=np.zeros((3, 1), np.uint8)))


def test_operands_of_any_strides_are_read():
    made = fp8lab.vectors("sm90.wgmma.e5m2.e4m3", 20)
    for turn in (np.asfortranarray, lambda x: np.repeat(x, 2, 1)[:, ::2], lambda x: x[::-1, ::-1].copy()[::-1, ::-1]):
        assert fp8lab.replay(dataclasses.replace(made, a=turn(made.a), b=turn(made.b))).mismatches == 0
