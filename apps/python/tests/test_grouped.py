"""Batched and grouped products and layouts of scales, against products of single groups and NumPy."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab import Groups, Scales

MODEL = "sm90.wgmma.e4m3"


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_each_group_is_a_product_of_its_own(rng):
    a, b = draw(rng, 30, 256), draw(rng, 3, 16, 256)
    sa, sb = np.exp(draw(rng, 30, 2).astype(np.float32)), np.exp(draw(rng, 3, 1, 2).astype(np.float32))
    options = {"model": MODEL, "promotion_interval": 128}
    d = fp8lab.gemm_groups(a, b, Groups("row_ends", [11, 11, 28]), scale_a=sa, scale_b=sb, **options)
    for g, begin, end in ((0, 0, 11), (2, 11, 28)):
        one = fp8lab.gemm(a[begin:end], b[g], scale_a=Scales(sa[begin:end], 1, 128),
                          scale_b=Scales(sb[g], 128, 128), **options)
        np.testing.assert_array_equal(d[begin:end].view(np.uint32), one.view(np.uint32))
    assert not d[28:].any()


def test_groups_along_k_and_call(rng):
    a, b = draw(rng, 20, 320), draw(rng, 24, 320)
    d = fp8lab.gemm_groups(a, b, Groups("k_ends", np.array([128, 128, 320])), call="cublaslt.h100.slow")
    assert d.shape == (3, 20, 24) and not d[1].any()
    one = fp8lab.gemm(a[:, 128:], b[:, 128:], call="cublaslt.h100.slow")
    np.testing.assert_array_equal(d[2], one)


def test_verify_names_group_and_mistake(rng):
    a, b = draw(rng, 3, 24, 256), draw(rng, 3, 32, 256)
    groups = Groups("row_counts", [24, 20, 3])
    d = fp8lab.gemm_groups(a, b, groups, model=MODEL)
    assert fp8lab.verify_groups(d, (a, b), groups, model=MODEL, ungrouped="zero").verdict == "pass"
    wrong = d.copy()
    wrong[1, :20] = fp8lab.gemm(a[0, :20], b[1], model=MODEL)
    report = fp8lab.verify_groups(wrong, (a, b), groups, model=MODEL)
    assert report.verdict == "mismatch" and report.wrong_groups == (1,)
    assert report.groups[1].report.causes[0].name == "input_of_previous_group"
    assert "group 1 (rows 24-43 of the output)" in str(report)
    written = d.copy()
    written[2, 3:] = fp8lab.gemm(a[2, 3:], b[2], model=MODEL)
    assert fp8lab.verify_groups(written, (a, b), groups, model=MODEL).verdict == "pass"
    report = fp8lab.verify_groups(written, (a, b), groups, model=MODEL, ungrouped="zero")
    assert report.ungrouped_wrong == ((51, 21, 21 * 32, "ungrouped_rows_written"),)


def test_bfloat16_output_and_identify(rng):
    a, b = draw(rng, 2, 40, 512), draw(rng, 2, 24, 512)
    d = fp8lab.gemm_groups(a, b, Groups("batched"), model=MODEL, promotion_interval=128)
    d = d.astype(ml_dtypes.bfloat16)
    assert fp8lab.verify_groups(d, (a, b), Groups("batched"), model=MODEL,
                                promotion_interval=128).verdict == "pass"
    found = fp8lab.identify_groups(d, (a, b), Groups("batched"))
    assert found.explained and len(found.groups) == 2
    # All that was tried, the best first, as for one product.
    alone = fp8lab.identify(d[0], (a[0], b[0]))
    assert found.found.ranking == alone.ranking and len(alone.ranking) > 1


def test_a_tensor_scale_of_each_group(rng):
    a, b = draw(rng, 3, 24, 256), draw(rng, 3, 32, 256)
    sa, sb = (np.exp(rng.standard_normal((3, rows, 2))).astype(np.float32) for rows in (24, 32))
    of_a, of_b = np.array([1.1, 0.3, 7.0], np.float32), np.array([0.5, 2.5, 0.01], np.float32)

    def scales(values, second):
        return Scales(values, 1, 128, second)

    options = {"model": MODEL, "promotion_interval": 128}
    given = {"scale_a": scales(sa, of_a), "scale_b": scales(sb, of_b)}
    d = fp8lab.gemm_groups(a, b, Groups("batched"), **given, **options)
    for g in range(3):
        one = fp8lab.gemm(a[g], b[g], scale_a=scales(sa[g], of_a[g]), scale_b=scales(sb[g], of_b[g]), **options)
        np.testing.assert_array_equal(d[g].view(np.uint32), one.view(np.uint32))
    of_first = given | {"scale_b": scales(sb, np.repeat(of_b[:1], 3))}
    wrong = fp8lab.gemm_groups(a, b, Groups("batched"), **of_first, **options)
    report = fp8lab.verify_groups(wrong, (a, b), Groups("batched"), **given, **options)
    assert report.wrong_groups == (1, 2)
    assert [report.groups[g].report.causes[0].name for g in (1, 2)] == [
        "tensor_scale_b_of_previous_group", "tensor_scale_b_of_first_group"]  # fmt: skip
    with pytest.raises(ValueError, match="tensor_scale_a: expected one value, or 3"):
        fp8lab.gemm_groups(a, b, Groups("batched"), scale_a=scales(sa, of_a[:2]), **options)
    with pytest.raises(ValueError, match="tensor_scale: expected one number"):
        fp8lab.gemm(a[0], b[0], scale_a=scales(sa[0], of_a), **options)


@pytest.mark.parametrize(("m", "n"), [(5, 1), (1, 6), (1, 1), (5, 2)])
def test_vectors_of_each_group_with_one_row_or_column(rng, m, n):
    """[groups, 1] is one number a group where the vector has one element, and a column elsewhere."""
    a, b = draw(rng, 3, m, 64), draw(rng, 3, n, 64)
    each = {"bias": n, "column_scales": n, "row_scales": m}
    vectors = {name: rng.standard_normal((3, size)).astype(np.float32) for name, size in each.items()}
    d = fp8lab.gemm_groups(a, b, Groups("batched"), model=MODEL, epilogue=fp8lab.Epilogue(**vectors))
    along = fp8lab.gemm_groups(
        a.transpose(1, 0, 2).reshape(m, -1), b.transpose(1, 0, 2).reshape(n, -1), Groups("k_ends", [64, 128, 192]),
        model=MODEL, epilogue=fp8lab.Epilogue(**vectors),
    )  # fmt: skip
    for g in range(3):
        own = fp8lab.Epilogue(**{name: values[g] for name, values in vectors.items()})
        one = fp8lab.gemm(a[g], b[g], model=MODEL, epilogue=own)
        np.testing.assert_array_equal(d[g].view(np.uint32), one.view(np.uint32))
        np.testing.assert_array_equal(along[g].view(np.uint32), one.view(np.uint32))
    if m > 1:  # a column is a vector of all groups
        same = fp8lab.Epilogue(row_scales=vectors["row_scales"][0][:, None])
        flat = fp8lab.Epilogue(row_scales=vectors["row_scales"][0])
        columns = [fp8lab.gemm_groups(a, b, Groups("batched"), model=MODEL, epilogue=e) for e in (same, flat)]
        np.testing.assert_array_equal(*columns)
    scales = {f"scale_{one}": np.exp(draw(rng, 3, rows).astype(np.float32)) for one, rows in (("a", m), ("b", n))}
    if 3 not in (m, n):
        d = fp8lab.gemm_groups(a, b, Groups("batched"), model=MODEL, **scales)
        one = fp8lab.gemm(a[2], b[2], model=MODEL, **{name: values[2] for name, values in scales.items()})
        np.testing.assert_array_equal(d[2], one)


def test_bad_groups(rng):
    a, b = draw(rng, 8, 128), draw(rng, 2, 8, 128)
    for groups, message in (
        (Groups("row_ends", [5, 4]), "increase to at most"),
        (Groups("row_ends", [0, 4, 8]), "leading 0"),
        (Groups("rows", [4, 8]), "kind"),
        (Groups("batched"), r"A: expected \[groups, m, k\]"),
    ):
        with pytest.raises(ValueError, match=message):
            fp8lab.gemm_groups(a, b, groups, model=MODEL)
    with pytest.raises(ValueError, match="model"):
        fp8lab.gemm_groups(a, b, Groups("row_ends", [4, 8]))


def blocked(codes):
    """torchao's way to cuBLASLt's layout: reshape and permute."""
    rows, tiles = codes.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-tiles // 4) * 4), codes.dtype)
    padded[:rows, :tiles] = codes
    blocks = padded.reshape(-1, 128, padded.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    return blocks.reshape(-1, 4, 32, 4).transpose(0, 2, 1, 3).reshape(-1)


def test_layouts_of_scales(rng):
    a, b = draw(rng, 130, 640), draw(rng, 7, 640)
    exponents = rng.integers(120, 134, (130, 5)).astype(np.uint8)
    values = np.exp2(exponents.astype(np.float32) - 127)
    options = {"model": MODEL, "promotion_interval": 128}
    right = fp8lab.gemm(a, b, scale_a=Scales(values, 1, 128), **options)
    padded = np.full((5, 132), np.nan, np.float32)
    padded[:, :130] = values.T
    words = np.zeros((130, 8), np.uint8)
    words[:, :5] = exponents
    words = words.view(np.int32)
    for scales in (
        Scales(values.T, 1, 128, layout="column_major"),
        Scales(padded, 1, 128, layout="column_major"),
        Scales(words, 1, 128, layout="packed_ue8m0"),
        Scales(np.ascontiguousarray(words.T), 1, 128, layout="packed_ue8m0_column_major"),
        Scales(blocked(exponents).view(ml_dtypes.float8_e8m0fnu), 1, 128, layout="blocked_128x4"),
    ):
        np.testing.assert_array_equal(fp8lab.gemm(a, b, scale_a=scales, **options), right)
    with pytest.raises(ValueError, match="scale_a"):
        fp8lab.gemm(a, b, scale_a=Scales(words[:, :1], 1, 128, layout="packed_ue8m0"), **options)
    with pytest.raises(ValueError, match="layout"):
        fp8lab.gemm(a, b, scale_a=Scales(values, 1, 128, layout="swizzled"), **options)


def test_wrong_groups_are_those_whose_bits_differ(rng):
    """Under a check that other roundings pass, too."""
    a, b = draw(rng, 3, 16, 512), draw(rng, 3, 16, 512)
    d = fp8lab.gemm_groups(a, b, Groups("batched"), model=MODEL)
    d[1] = fp8lab.gemm(a[1], b[1], model="exact")
    report = fp8lab.verify_groups(d, (a, b), Groups("batched"), model=MODEL, check="budget")
    assert report.groups[1].report.verdict == "pass" and report.groups[1].report.bit_mismatches > 0
    assert report.wrong_groups == (1,) and report.bit_mismatches == report.groups[1].report.bit_mismatches
    assert [(one.group, one.first_row, one.rows) for one in report.groups] == [(0, 0, 16), (1, 16, 16), (2, 32, 16)]


def test_what_a_call_decides_is_not_given_again_with_groups(rng):
    a, b = draw(rng, 2, 8, 256), draw(rng, 2, 8, 256)
    for other in ({"model": MODEL}, {"promotion_interval": 64}, {"scale_order": "product_then_add"}):
        for function in (
            lambda **how: fp8lab.gemm_groups(a, b, Groups("batched"), **how),
            lambda **how: fp8lab.verify_groups(np.zeros((2, 8, 8), np.float32), (a, b), Groups("batched"), **how),
        ):
            with pytest.raises(ValueError, match="^(model|promotion_interval|scale_order): expected none with call 'cublaslt.h100.slow', which sets it"):
                function(call="cublaslt.h100.slow", **other)


def test_fp32_is_searched_only_as_tf32(rng):
    a, b = rng.standard_normal((2, 8, 64), np.float32), rng.standard_normal((2, 8, 64), np.float32)
    for function, x, y, d, more in (
        (fp8lab.identify, a[0], b[0], np.zeros((8, 8), np.float32), ()),
        (fp8lab.identify_groups, a, b, np.zeros((2, 8, 8), np.float32), (Groups("batched"),)),
    ):
        for a_format, b_format, role in (("f32", "tf32", "a"), ("tf32", "float32", "b")):
            with pytest.raises(ValueError, match=f"^{role}_format: expected a tensor-core input format, as tf32, got f32$"):
                function(d, (x, y), *more, a_format=a_format, b_format=b_format)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": "batched"}, "^groups: expected an fp8lab.Groups, got str$"),
        ({"groups": Groups(3)}, "^kind: expected a name, got 3$"),
        ({"groups": Groups("row_ends", 8)}, "^groups.values: expected whole numbers, one a group or row, got 8$"),
        ({"groups": Groups("row_ends", [2.5, 8])}, "^groups.values: expected a whole number, got 2.5$"),
        ({"groups": Groups("batched", (), 1.5)}, "^alignment: expected a whole number, got 1.5$"),
        ({"model": 3}, "^model: expected a name, an fp8lab.InstructionModel or an fp8lab.AccumulatorModel, got int$"),
        ({"epilogue": 3}, "^epilogue: expected an fp8lab.Epilogue, got int$"),
        ({"split_k": 2}, "^split_k: expected an fp8lab.SplitK, got int$"),
        ({"scale_a": np.array([127, 127], np.uint8)}, "^scale_a: expected floats, or E8M0 or UE4M3 codes"),
    ],
)
def test_what_groups_do_not_take_is_refused_by_name(rng, change, message):
    a, b = draw(rng, 2, 8, 256), draw(rng, 2, 8, 256)
    given = {"groups": Groups("batched"), "model": MODEL} | change
    with pytest.raises(ValueError, match=message):
        fp8lab.gemm_groups(a, b, given.pop("groups"), **given)
    with pytest.raises(ValueError, match=r"^inputs: expected a tuple \(a, b\), got ndarray$"):
        fp8lab.verify_groups(np.zeros((2, 8, 8), np.float32), np.stack([a, b]), Groups("batched"), model=MODEL)


@pytest.mark.parametrize(
    ("dtype", "stated", "model"),
    [
        (np.float32, "tf32", "sm90.mma.tf32"), (np.float16, None, "sm90.mma.f16"),
        (ml_dtypes.bfloat16, None, "sm90.mma.bf16"), (ml_dtypes.float8_e5m2, None, "sm90.mma.e5m2"),
        (ml_dtypes.float4_e2m1fn, None, "exact"), (ml_dtypes.float6_e3m2fn, None, "exact"), (np.uint16, "bf16", "sm90.mma.bf16"),
    ],
)  # fmt: skip
def test_operands_of_every_width(rng, dtype, stated, model):
    a, b = (rng.standard_normal((2, rows, 64)).astype(np.float32) for rows in (6, 5))
    if dtype == np.uint16:
        a, b = (x.astype(ml_dtypes.bfloat16).view(np.uint16) for x in (a, b))
    else:
        a, b = a.astype(dtype), b.astype(dtype)
    how = {"model": model, "a_format": stated, "b_format": stated}
    d = fp8lab.gemm_groups(a, b, Groups("batched"), **how)
    for g in range(2):
        np.testing.assert_array_equal(d[g].view(np.uint32), fp8lab.gemm(a[g], b[g], **how).view(np.uint32))
    assert fp8lab.verify_groups(d, (a, b), Groups("batched"), **how).bit_mismatches == 0
