"""Scales of products: their order, shapes, types, and the tensors that bring them."""

import dataclasses
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fp8lab

HOPPER = "sm90.wgmma.e4m3"
E4M3 = ml_dtypes.float8_e4m3fn
f32 = np.float32


def random_codes(rows, k, seed):
    """Normal values: finite codes of many exponents."""
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(E4M3)


def fma(x, y, z):
    """Nearest even by way of binary64: a double rounding that matters is one in 2^29."""
    return f32(float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))))


ORDERS = {
    "product_then_fma": lambda p, s, t, z: fma(s * t, p, z),
    "product_then_add": lambda p, s, t, z: z + (s * t) * p,
    "a_then_fma_b": lambda p, s, t, z: fma(p * s, t, z),
    "b_then_fma_a": lambda p, s, t, z: fma(p * t, s, z),
    "a_then_b_then_add": lambda p, s, t, z: z + p * s * t,
}


def scaled(a, b, sa, sb, order):
    """DeepSeek's tiles (1x128 by 128x128), block after block."""
    d = np.zeros((a.shape[0], b.shape[0]), f32)
    for block in range(a.shape[1] // 128):
        part = slice(block * 128, block * 128 + 128)
        p = fp8lab.gemm(a[:, part], b[:, part], model=HOPPER)
        for i, j in np.ndindex(d.shape):
            d[i, j] = ORDERS[order](p[i, j], sa[i, block], sb[j // 128, block], d[i, j])
    return d


@pytest.mark.parametrize("order", ORDERS)
def test_tile_scales_in_every_order(order):
    rng = np.random.default_rng(6)
    a, b = random_codes(5, 384, 7), random_codes(130, 384, 8)
    sa, sb = rng.random((5, 3), f32), rng.random((2, 3), f32)
    d = fp8lab.gemm(
        a,
        b,
        model=HOPPER,
        promotion_interval=128,
        scale_order=order,
        scale_a=fp8lab.Scales(sa, 1, 128),
        scale_b=fp8lab.Scales(sb, 128, 128),
    )
    np.testing.assert_array_equal(d, scaled(a, b, sa, sb, order))


def test_numbers_and_rows_of_scales():
    a, b = random_codes(4, 64, 9), random_codes(3, 64, 10)
    plain = fp8lab.gemm(a, b, model=HOPPER)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, model=HOPPER, scale_a=0.5, scale_b=4), plain * f32(2)
    )
    rows = np.array([1, 2, 4, 8], f32)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=HOPPER, scale_a=[[2]]), plain * f32(2))
    for scales in (rows, rows[:, None], fp8lab.Scales(rows, 1)):
        np.testing.assert_array_equal(
            fp8lab.gemm(a, b, model=HOPPER, scale_a=scales), plain * rows[:, None]
        )


@pytest.mark.parametrize(
    ("values", "row_block", "k_block"),
    [((8, 2), 1, 128), ((2, 2), 4, 128), ((1, 2), 0, 128), ((8, 1), 1, 0), ((2, 4), 4, 64)],
)
def test_scales_are_read_by_their_shape(values, row_block, k_block):
    a, b = random_codes(8, 256, 20), random_codes(3, 256, 21)
    scales = np.random.default_rng(22).random(values).astype(f32)
    how = {"model": HOPPER, "promotion_interval": 64}
    rows = np.repeat(scales, 8 // values[0], 0)
    spread = fp8lab.Scales(np.repeat(rows, 4 // values[1], 1), 1, 64)
    d = fp8lab.gemm(a, b, scale_a=fp8lab.Scales(scales, row_block, k_block), **how)
    if values[1] > 1:  # else the scale comes last, and rounds elsewhere
        np.testing.assert_array_equal(d, fp8lab.gemm(a, b, scale_a=spread, **how))
    fortran = np.asfortranarray(scales)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, scale_a=fp8lab.Scales(fortran, row_block, k_block), **how), d
    )
    if 1 in values:
        vector = fp8lab.Scales(scales.reshape(-1), row_block, k_block)
        np.testing.assert_array_equal(fp8lab.gemm(a, b, scale_a=vector, **how), d)
    wrong = [scales.T, scales[None], scales.reshape(-1, 1, 1)]
    if 1 not in values:
        wrong.append(scales.reshape(-1))
    for other in wrong:
        if other.shape == scales.shape:
            continue
        with pytest.raises(ValueError, match=r"scale_a: expected \[ceil\(8/.*\] = \["):
            fp8lab.gemm(a, b, scale_a=fp8lab.Scales(other, row_block, k_block), **how)


def test_a_transposed_scale_tensor_is_refused():
    """[2, 64] for [64, 2] has as many values, and was read in memory order."""
    a, b = random_codes(64, 256, 23), random_codes(8, 256, 24)
    scales = np.random.default_rng(25).random((64, 2)).astype(f32)
    how = {"model": HOPPER, "promotion_interval": 128}
    with pytest.raises(
        ValueError, match=r"scale_a: expected \[ceil\(64/1\), ceil\(256/128\)\] = \[64, 2\], got \[2, 64\]"
    ):
        fp8lab.gemm(a, b, scale_a=fp8lab.Scales(scales.T, 1, 128), **how)
    with pytest.raises(ValueError, match=r"= \[64, 2\], got \[4, 32\]"):
        fp8lab.gemm(a, b, scale_a=fp8lab.Scales(np.ones((4, 32), f32), 1, 128), **how)
    q = fp8lab.quantize(np.random.default_rng(26).standard_normal((64, 256), f32), "deepgemm")
    turned = dataclasses.replace(q, inverse_scales=q.inverse_scales.T)
    for call in (fp8lab.gemm, lambda x, y, **h: fp8lab.verify(np.zeros((64, 8), f32), (x, y), **h)):
        with pytest.raises(ValueError, match=r"scale_a: .* got \[2, 64\]"):
            call(turned, b, **how)
    with pytest.raises(ValueError, match=r"scale_b: expected \[8\] or \[8, 1\] for one scale per row.*torch's form"):
        fp8lab.gemm(a, b, scale_b=np.ones((1, 8), f32), model=HOPPER)


def test_e8m0_scales_need_to_say_so():
    a, b = random_codes(8, 256, 27), random_codes(3, 256, 28)
    powers = np.exp2(np.random.default_rng(29).integers(-4, 4, (8, 8))).astype(f32)
    codes = (np.log2(powers) + 127).astype(np.uint8)
    how = {"model": HOPPER, "promotion_interval": 32}
    d = fp8lab.gemm(a, b, scale_a=fp8lab.Scales(powers, 1, 32), **how)
    typed = codes.view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, scale_a=fp8lab.Scales(typed, 1, 32), **how), d
    )
    raw = {"scale_a": fp8lab.Scales(codes, 1, 32), **how}
    np.testing.assert_array_equal(fp8lab.gemm(a, b, scale_format="e8m0fnu", **raw), d)
    with pytest.raises(ValueError, match="scale_a: expected floats, or E8M0 or UE4M3 codes .* uint8"):
        fp8lab.gemm(a, b, **raw)
    with pytest.raises(ValueError, match="scale_format: expected e8m0fnu"):
        fp8lab.gemm(a, b, scale_format="e5m2", **raw)
    for packed in (np.uint32, np.int32, np.uint16):  # as DeepGEMM packs four of them
        with pytest.raises(ValueError, match="scale_a: expected floats"):
            fp8lab.gemm(a, b, scale_a=np.ones(8, packed), **how)
    with pytest.raises(ValueError, match="scale_b: expected floats"):
        fp8lab.identify(np.zeros((8, 3), f32), (a, b), scale_b=np.uint8([127, 127, 127]))


@pytest.mark.parametrize("layout", ["packed_ue8m0", "packed_ue8m0_column_major"])
@pytest.mark.parametrize("role", "ab")
def test_packed_exponents_of_128_terms_are_read_by_the_instruction(role, layout):
    """As codes, which it reads for each 32 terms; numbers of 128 terms would need a promotion."""
    a, b = random_codes(4, 512, 32), random_codes(8, 512, 33)
    rows = {"a": 4, "b": 8}[role]
    exponents = np.random.default_rng(34).integers(120, 134, (rows, 4)).astype(np.uint8)
    words = exponents.view(np.int32)
    packed = words.T if layout.endswith("column_major") else words
    codes = np.repeat(exponents, 4, 1).view(ml_dtypes.float8_e8m0fnu)
    d, expected = (
        fp8lab.gemm(a, b, model="sm100.tcgen05.mxf8f6f4.e4m3", **{f"scale_{role}": scales})
        for scales in (fp8lab.Scales(packed, 1, 128, layout=layout), fp8lab.Scales(codes, 1, 32))
    )
    np.testing.assert_array_equal(d, expected)


def test_nan_is_told_once_a_call():
    x = np.random.default_rng(30).standard_normal((128, 256)).astype(f32)
    x[:, :128] = 0  # DeepSeek's first recipe divides by the amax of a tile of zeros
    with pytest.warns(fp8lab.NonFiniteWarning, match="its quantized form has 16384 NaN") as seen:
        q = fp8lab.quantize(x, "deepseek-v3-first")
    assert len(seen) == 1 and seen[0].filename == __file__
    w = random_codes(4, 256, 31)
    how = {"model": HOPPER, "promotion_interval": 128}
    with pytest.warns(fp8lab.NonFiniteWarning, match="A has 16384 NaN.*D has 512 NaN") as seen:
        d = fp8lab.gemm(q, w, **how)
    assert len(seen) == 1 and seen[0].filename == __file__
    with pytest.warns(fp8lab.NonFiniteWarning, match="the golden output has 512 NaN") as seen:
        report = fp8lab.verify(d, (q, w), **how)
    assert len(seen) == 1 and seen[0].filename == __file__
    assert report.non_finite["A"] == (16384, 0) and report.non_finite["B"] == (0, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fp8lab.gemm(w, w, model=HOPPER)
        fp8lab.quantize(x[:, 128:], "deepseek-v3-first")


def test_quantized_tensors_bring_their_scales():
    rng = np.random.default_rng(11)
    x, w = rng.standard_normal((4, 256), f32), rng.standard_normal((130, 256), f32)
    a, b = fp8lab.quantize(x, "deepgemm"), fp8lab.quantize(w, "deepgemm", "weight")
    d = fp8lab.gemm(a, b, model=HOPPER, promotion_interval=128)
    by_hand = scaled(a.codes, b.codes, a.inverse_scales, b.inverse_scales, "product_then_fma")
    np.testing.assert_array_equal(d, by_hand)
    raw = dataclasses.replace(a, codes=a.codes.view(np.uint8))
    np.testing.assert_array_equal(
        fp8lab.gemm(raw, b, model=HOPPER, promotion_interval=128), by_hand
    )
    with pytest.raises(
        ValueError, match="scale_a: expected None, since a QuantizedTensor brings its own"
    ):
        fp8lab.gemm(a, b, model=HOPPER, scale_a=1.0)


def test_one_scale_is_one_in_any_number_of_dimensions():
    a, b = random_codes(4, 64, 50), random_codes(3, 64, 51)
    expected = fp8lab.gemm(a, b, model=HOPPER, scale_a=f32(0.3))
    for shape in ((), (1,), (1, 1), (1, 1, 1)):
        one = np.full(shape, 0.3, f32)
        for given in (one, fp8lab.Scales(one), fp8lab.Scales(one, 4, 64)):
            np.testing.assert_array_equal(fp8lab.gemm(a, b, model=HOPPER, scale_a=given), expected)
