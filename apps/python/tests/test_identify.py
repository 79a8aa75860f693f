"""Hypotheses about outputs: the truth is found, and what cannot be told apart says so."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32


def operands(m=16, n=16, k=1024, seed=1):
    """Every finite E4M3 code as often as any other: sums that need all their bits."""
    rng = np.random.default_rng(seed)
    codes = np.array([c for c in range(256) if c & 0x7F != 0x7F], np.uint8)
    a, b = codes[rng.integers(0, 254, (m, k))], codes[rng.integers(0, 254, (n, k))]
    return a.view(ml_dtypes.float8_e4m3fn), b.view(ml_dtypes.float8_e4m3fn)


def test_the_truth_explains_the_output():
    a, b = operands()
    scales = fp8lab.Scales(np.random.default_rng(2).random((16, 8), f32), 1, 128)
    how = {"promotion_interval": 64, "scale_order": "a_then_fma_b"}
    d = fp8lab.gemm(a, b, model="sm89.mma.e4m3", scale_a=scales, scale_b=scales, **how)
    found = fp8lab.identify(d, (a, b), scale_a=scales, scale_b=scales)
    best = found.ranking[0]
    assert found.explained and best.rate == 1.0 and best.compared == 256
    assert best.members == (
        fp8lab.Explanation(("sm89.mma.e4m3",), 64, "a_then_fma_b", 1, "kept"),
    )
    assert found.ranking[1].rate < 1.0 and found.separating_count > 0
    e = found.separating[0]
    assert e.got == e.first == d.view(np.uint32)[e.row, e.column] != e.second
    assert "explained: all 256 outputs" in str(found)


def test_an_explanation_is_options_of_gemm_and_verify():
    a, b = operands()
    rng = np.random.default_rng(2)
    scales = {f"scale_{x}": fp8lab.Scales(rng.random((16, 8), f32), 1, 128) for x in "ab"}
    how = {"promotion_interval": 128, "scale_order": "a_then_b_then_add"}
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", **scales, **how)
    best = fp8lab.identify(d, (a, b), **scales).ranking[0].members[0]
    given = {**scales, **best.options}
    assert np.array_equal(fp8lab.gemm(a, b, **given), d)
    assert fp8lab.verify(d, (a, b), **given).verdict == "pass"
    with pytest.raises(ValueError, match="rounding"):
        _ = dataclasses.replace(best, rounding="toward_zero").options


def test_a_split_is_an_option_too():
    a, b = operands()
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=128, split_k=fp8lab.SplitK(4))
    # Such sums are the same bits whole and in parts: all of them explain the output.
    best = next(m for m in fp8lab.identify(d, (a, b)).ranking[0].members if m.split_k == 4)
    assert best.options["split_k"] == fp8lab.SplitK(4)
    assert fp8lab.verify(d, (a, b), **best.options).verdict == "pass"


def test_an_output_that_nothing_explains():
    a, b = operands()
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    d[3, 5] = np.nextafter(d[3, 5], f32(np.inf))
    found = fp8lab.identify(d, (a, b))
    assert not found.explained and found.ranking[0].matches == 255
    assert "unexplained" in found.text


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_rounded_outputs(dtype):
    a, b = operands()
    d = (fp8lab.gemm(a, b, model="sm90.wgmma.e4m3") / f32(2**12)).astype(dtype)
    found = fp8lab.identify(d, (a, b), scale_a=2.0**-12)
    assert found.explained
    members = [one for one in found.ranking[0].members if "sm90.wgmma.e4m3" in one.models]
    assert members[0].rounding == "nearest_even"


def test_formats_and_threads():
    a, b = operands(4, 4, 256)
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    one = fp8lab.identify(d, (a, b), threads=1)
    raw = {"a_format": "e4m3fn", "b_format": "e4m3fn"}
    two = fp8lab.identify(np.asfortranarray(d), (a.view(np.uint8), b.view(np.uint8)), **raw)
    assert dataclasses.asdict(one) == dataclasses.asdict(two)
    x = np.random.default_rng(5).standard_normal((4, 64), f32)
    tf32 = {"a_format": "tf32", "b_format": "tf32"}
    d = fp8lab.gemm(x, x, model="sm80.mma.tf32", **tf32)
    found = fp8lab.identify(d, (x, x), **tf32)
    assert found.explained
    assert any("sm80.mma.tf32" in one.models for one in found.ranking[0].members)


def test_bad_arguments_are_value_errors():
    a, b = operands(4, 4, 256)
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    with pytest.raises(ValueError, match=r"got: expected row-major f32 \[m, n\] = \[4, 4\]"):
        fp8lab.identify(d[:2], (a, b))
    with pytest.raises(ValueError, match=r"B: expected \[n, k\] with k = 256"):
        fp8lab.identify(d, (a, b[:, :128]))
    with pytest.raises(ValueError, match="got_format"):
        fp8lab.identify(d.view(np.uint8)[:, :4], (a, b))
    with pytest.raises(TypeError, match="promotion_interval"):
        fp8lab.identify(d, (a, b), promotion_interval=128)


def test_every_given_model_is_tried():
    rng = np.random.default_rng(9)
    a, b = (fp8lab.encode(rng.standard_normal((12, 256), np.float32) * 8) for _ in range(2))
    mine = [fp8lab.accumulator_model("fused", terms=16, F=F, e_min=None, name=f"mine{F}") for F in (7, 9, 11)]
    for one in mine:
        d = fp8lab.gemm(a, b, model=one)
        for given in (mine, tuple(mine), [model.name for model in mine]):
            found = fp8lab.identify(d, (a, b), models=given)
            assert found.explained and any(one.name in member.models for member in found.ranking[0].members), one.name
        assert not fp8lab.identify(d, (a, b)).explained
        groups = fp8lab.Groups("batched")
        assert fp8lab.identify_groups(d[None], (a[None], b[None]), groups, models=mine).explained
    for wrong, message in (
        (mine[0], "^models: expected a list of models, got one, "),
        ("exact", "^models: expected a list of models, got one, 'exact'$"),
        ([mine[0].accumulator], "^models: expected names, or models of fp8lab.accumulator_model, got AccumulatorModel$"),
        ([3], "^models: expected names, .*, got int$"),
    ):
        with pytest.raises(ValueError, match=message):
            fp8lab.identify(d, (a, b), models=wrong)


def test_options_of_a_member_compute_it_under_its_first_name():
    rng = np.random.default_rng(10)
    a, b = (fp8lab.encode(rng.standard_normal((8, 512), np.float32)) for _ in range(2))
    c = rng.standard_normal((8, 8)).astype(np.float32)
    how = {"model": "sm90.mma.e4m3", "promotion_interval": 128, "c": c, "c_enters": "promoted_sum"}
    d = fp8lab.gemm(a, b, **how)
    found = fp8lab.identify(d, (a, b), c=c)
    members = [one for group in found.ranking[:1] for one in group.members]
    assert any(len(one.models) > 1 for one in members) and any(one.c_enters == "promoted_sum" for one in members)
    for one in members:
        options = one.options
        assert options["model"] == one.models[0] and options["promotion_interval"] == one.promotion_interval
        assert options["scale_order"] == one.scale_order and options["c_enters"] == one.c_enters
        assert ("split_k" in options) == (one.split_k > 1)
        assert fp8lab.gemm(a, b, c=c, **options).tobytes() == d.tobytes()
    assert found.ranking[0].rate == 1.0 and found.ranking[0].compared == 64


def test_the_recipe_of_a_cast_is_found():
    x = np.random.default_rng(3).standard_normal((32, 256)).astype(f32)
    for name, role in (("deepgemm", "activation"), ("te-current", "weight"), ("ocp-mxfp8", "weight")):
        q = fp8lab.quantize(x, name, role)
        found = fp8lab.identify_cast(x, q.codes, q.inverse_scales)
        exact = [one.recipe for one in found.recipes if one.exact]
        assert found.explained and name in exact, (name, exact)
        assert found.codes == x.size and found.scales == q.inverse_scales.size
        best = found.elements[0]
        assert (best.wrong_codes, best.input, best.rounding) == (0, "binary32", "nearest even")
        assert name in str(found)


def test_a_cast_that_no_recipe_gives():
    x = np.random.default_rng(4).standard_normal((16, 128)).astype(f32)
    scales = np.abs(x).max(1, keepdims=True) / f32(300)
    codes = fp8lab.encode(x / scales)
    found = fp8lab.identify_cast(x, codes, scales)
    assert not found.explained and found.elements[0].wrong_codes == 0
    assert found.elements[0].scaling == "x / s" and found.recipes[0].wrong_scales > 0
    raw = fp8lab.identify_cast(x, codes.view(np.uint8), scales, codes_format="e4m3fn")
    assert raw.elements == found.elements and raw.recipes == found.recipes
    wrong = codes.view(np.uint8).copy()
    wrong[3, 5] ^= 1
    assert fp8lab.identify_cast(x, wrong.view(codes.dtype), scales).elements[0].wrong_codes == 1


def test_what_identify_cast_refuses():
    x = np.ones((4, 64), f32)
    codes = fp8lab.encode(x)
    with pytest.raises(ValueError, match="codes_format: expected the format of codes"):
        fp8lab.identify_cast(x, codes.view(np.uint8), [[1]])
    with pytest.raises(ValueError, match="codes"):
        fp8lab.identify_cast(x, codes[:2], np.ones(1, f32))
    with pytest.raises(ValueError, match="scales"):
        fp8lab.identify_cast(x, codes, np.ones(7, f32))
    with pytest.raises(ValueError, match="codes: expected FP8, FP6 or FP4 codes"):
        fp8lab.identify_cast(x, x.astype(np.float16), np.ones(1, f32))
