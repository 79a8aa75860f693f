"""Products against oracles written in rational arithmetic and NumPy."""

import dataclasses
import math
import threading
import time
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fp8lab

HOPPER = "sm90.wgmma.e4m3"
E4M3 = ml_dtypes.float8_e4m3fn
f32 = np.float32


def random_codes(rows, k, seed, dtype=E4M3):
    """Normal values: finite codes of many exponents."""
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(dtype)


def truncate(x: Fraction, bits_below: int) -> Fraction:
    """Toward zero, to a multiple of 2^-bits_below."""
    return Fraction(math.trunc(x * Fraction(2) ** bits_below)) / Fraction(2) ** bits_below


def exponent(x: float) -> int:
    """Of an E4M3 number as a tensor core stores it; subnormals have the smallest normal one."""
    return max(math.frexp(x)[1] - 1, -6)


def hopper_dot(a, b, c=0.0) -> float:
    """sm90's FP8 step as the README describes it: 32 terms, 13 fraction bits, truncation."""
    total = Fraction(c)
    for begin in range(0, len(a), 32):
        terms = [
            (Fraction(x) * Fraction(y), exponent(x) + exponent(y))
            for x, y in zip(a[begin : begin + 32], b[begin : begin + 32], strict=True)
            if x * y != 0
        ]
        if total:
            terms.append((total, math.frexp(float(total))[1] - 1))
        if not terms:
            continue
        largest = max(e for _, e in terms)
        total = sum(truncate(x, 13 - largest) for x, _ in terms)
        if total:
            total = truncate(total, 13 - (math.frexp(float(total))[1] - 1))
    return float(total)


def test_hopper_equals_the_oracle():
    a, b = random_codes(6, 96, 1), random_codes(5, 96, 2)
    d = fp8lab.gemm(a, b, model=HOPPER)
    rows, columns = a.astype(float).tolist(), b.astype(float).tolist()
    expected = [[hopper_dot(x, y) for y in columns] for x in rows]
    assert d.dtype == f32
    assert d.tolist() == expected
    exact = a.astype(float) @ b.astype(float).T
    assert (d != exact.astype(f32)).any()  # or the oracle would show nothing


def test_start_and_promotion():
    a, b = random_codes(4, 256, 3), random_codes(3, 256, 4)
    c = np.random.default_rng(5).standard_normal((4, 3)).astype(f32)
    promoted = c.copy()
    for begin in range(0, 256, 128):
        promoted += fp8lab.gemm(a[:, begin : begin + 128], b[:, begin : begin + 128], model=HOPPER)
    how = {"model": HOPPER, "promotion_interval": 128, "c": c}
    d = fp8lab.gemm(a, b, **how, c_enters="promoted_sum")
    np.testing.assert_array_equal(d, promoted)
    sums = fp8lab.gemm(a, b, model=HOPPER, promotion_interval=128)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, **how, c_enters="epilogue"), sums + c)
    first = fp8lab.gemm(a[:, :128], b[:, :128], model=HOPPER, c=c)
    second = fp8lab.gemm(a[:, 128:], b[:, 128:], model=HOPPER)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, **how, c_enters="accumulator"), first + second)
    assert (
        fp8lab.gemm(a, b, model=HOPPER) != fp8lab.gemm(a, b, model=HOPPER, promotion_interval=128)
    ).any()


def test_c_means_the_same_whatever_comes_beside_it():
    ones = np.ones((1, 32), E4M3)
    c = np.array([[16385.0]], f32)  # 15 bits: one more than Hopper's accumulator has
    how = {"model": HOPPER, "c": c}
    plain = fp8lab.gemm(ones, ones, **how)
    assert plain[0, 0] == 16384
    for more in ({"a_scales": 1.0}, {"promotion_interval": 32}, {"b_scales": [1.0]}):
        with pytest.raises(ValueError, match="c_enters: expected accumulator or .*, got nothing"):
            fp8lab.gemm(ones, ones, **how, **more)
        d = fp8lab.gemm(ones, ones, **how, **more, c_enters="accumulator")
        assert d[0, 0] == plain[0, 0]
        assert fp8lab.gemm(ones, ones, **how, **more, c_enters="epilogue")[0, 0] == 16417
    with pytest.raises(ValueError, match="c_enters: expected one of accumulator, promoted_sum, "):
        fp8lab.gemm(ones, ones, **how, c_enters="final")


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
        a_scales=fp8lab.Scales(sa, 1, 128),
        b_scales=fp8lab.Scales(sb, 128, 128),
    )
    np.testing.assert_array_equal(d, scaled(a, b, sa, sb, order))


def test_numbers_and_rows_of_scales():
    a, b = random_codes(4, 64, 9), random_codes(3, 64, 10)
    plain = fp8lab.gemm(a, b, model=HOPPER)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, model=HOPPER, a_scales=0.5, b_scales=4), plain * f32(2)
    )
    rows = np.array([1, 2, 4, 8], f32)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=HOPPER, a_scales=[[2]]), plain * f32(2))
    for scales in (rows, rows[:, None], fp8lab.Scales(rows, 1)):
        np.testing.assert_array_equal(
            fp8lab.gemm(a, b, model=HOPPER, a_scales=scales), plain * rows[:, None]
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
    d = fp8lab.gemm(a, b, a_scales=fp8lab.Scales(scales, row_block, k_block), **how)
    if values[1] > 1:  # else the scale comes last, and rounds elsewhere
        np.testing.assert_array_equal(d, fp8lab.gemm(a, b, a_scales=spread, **how))
    fortran = np.asfortranarray(scales)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, a_scales=fp8lab.Scales(fortran, row_block, k_block), **how), d
    )
    if 1 in values:
        vector = fp8lab.Scales(scales.reshape(-1), row_block, k_block)
        np.testing.assert_array_equal(fp8lab.gemm(a, b, a_scales=vector, **how), d)
    wrong = [scales.T, scales[None], scales.reshape(-1, 1, 1)]
    if 1 not in values:
        wrong.append(scales.reshape(-1))
    for other in wrong:
        if other.shape == scales.shape:
            continue
        with pytest.raises(ValueError, match=r"a_scales: expected \[ceil\(8/.*\] = \["):
            fp8lab.gemm(a, b, a_scales=fp8lab.Scales(other, row_block, k_block), **how)


def test_a_transposed_scale_tensor_is_refused():
    """[2, 64] for [64, 2] has as many values, and was read in memory order."""
    a, b = random_codes(64, 256, 23), random_codes(8, 256, 24)
    scales = np.random.default_rng(25).random((64, 2)).astype(f32)
    how = {"model": HOPPER, "promotion_interval": 128}
    with pytest.raises(
        ValueError, match=r"a_scales: expected \[ceil\(64/1\), ceil\(256/128\)\] = \[64, 2\], got \[2, 64\]"
    ):
        fp8lab.gemm(a, b, a_scales=fp8lab.Scales(scales.T, 1, 128), **how)
    with pytest.raises(ValueError, match=r"= \[64, 2\], got \[4, 32\]"):
        fp8lab.gemm(a, b, a_scales=fp8lab.Scales(np.ones((4, 32), f32), 1, 128), **how)
    q = fp8lab.quantize(np.random.default_rng(26).standard_normal((64, 256), f32), "deepgemm")
    turned = dataclasses.replace(q, inverse_scales=q.inverse_scales.T)
    for call in (fp8lab.gemm, lambda x, y, **h: fp8lab.verify(np.zeros((64, 8), f32), (x, y), **h)):
        with pytest.raises(ValueError, match=r"a_scales: .* got \[2, 64\]"):
            call(turned, b, **how)
    with pytest.raises(ValueError, match=r"b_scales: expected a number, \[8\] or \[8, 1\].*torch's form"):
        fp8lab.gemm(a, b, b_scales=np.ones((1, 8), f32), model=HOPPER)


def test_e8m0_scales_need_to_say_so():
    a, b = random_codes(8, 256, 27), random_codes(3, 256, 28)
    powers = np.exp2(np.random.default_rng(29).integers(-4, 4, (8, 8))).astype(f32)
    codes = (np.log2(powers) + 127).astype(np.uint8)
    how = {"model": HOPPER, "promotion_interval": 32}
    d = fp8lab.gemm(a, b, a_scales=fp8lab.Scales(powers, 1, 32), **how)
    typed = codes.view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(
        fp8lab.gemm(a, b, a_scales=fp8lab.Scales(typed, 1, 32), **how), d
    )
    raw = {"a_scales": fp8lab.Scales(codes, 1, 32), **how}
    np.testing.assert_array_equal(fp8lab.gemm(a, b, scale_format="e8m0fnu", **raw), d)
    with pytest.raises(ValueError, match="a_scales: expected floats, or E8M0 or UE4M3 codes .* uint8"):
        fp8lab.gemm(a, b, **raw)
    with pytest.raises(ValueError, match="scale_format: expected e8m0fnu"):
        fp8lab.gemm(a, b, scale_format="e5m2", **raw)
    for packed in (np.uint32, np.int32, np.uint16):  # as DeepGEMM packs four of them
        with pytest.raises(ValueError, match="a_scales: expected floats"):
            fp8lab.gemm(a, b, a_scales=np.ones(8, packed), **how)
    with pytest.raises(ValueError, match="b_scales: expected floats"):
        fp8lab.identify(np.zeros((8, 3), f32), (a, b), b_scales=np.uint8([127, 127, 127]))


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
        ValueError, match="a_scales: expected None, since a QuantizedTensor brings its own"
    ):
        fp8lab.gemm(a, b, model=HOPPER, a_scales=1.0)


def test_strides_do_not_change_bits():
    a, b = random_codes(8, 128, 12), random_codes(6, 128, 13)
    d = fp8lab.gemm(a, b, model=HOPPER)
    np.testing.assert_array_equal(fp8lab.gemm(np.asfortranarray(a), b.T.copy().T, model=HOPPER), d)
    np.testing.assert_array_equal(fp8lab.gemm(a[::-1], b[::2], model=HOPPER), d[::-1, ::2])
    np.testing.assert_array_equal(
        fp8lab.gemm(a[:, ::-2], b[:, ::-2], model=HOPPER),
        fp8lab.gemm(a[:, ::-2].copy(), b[:, ::-2].copy(), model=HOPPER),
    )


@pytest.mark.parametrize(
    ("dtype", "model"),
    [
        (np.float16, "sm90.mma.f16"),
        (ml_dtypes.bfloat16, "sm90.mma.bf16"),
        (ml_dtypes.float8_e5m2, "sm90.mma.e5m2"),
    ],
)
def test_other_formats(dtype, model):
    a = random_codes(3, 32, 14, dtype)
    wide = a.astype(float) @ a.astype(float).T
    np.testing.assert_array_equal(fp8lab.gemm(a, a, model="exact"), wide.astype(f32))
    d = fp8lab.gemm(a, a, model=model)
    assert np.abs(d - wide).max() < 1e-2 * np.abs(wide).max()


def test_tf32_is_held_in_float32():
    a = np.array([[1.0, 1.0 + 2**-11]], f32)  # the last bit is ignored
    d = fp8lab.gemm(a, a, a_format="tf32", b_format="tf32", model="sm90.mma.tf32")
    assert d.tolist() == [[2.0]]
    with pytest.raises(ValueError, match="a_format: expected the format of a"):
        fp8lab.gemm(a, a, model="sm90.mma.tf32")
    with pytest.raises(
        ValueError,
        match="a: expected codes of e4m3fn as its dtype or as unsigned words, got float32",
    ):
        fp8lab.gemm(a, a, a_format="e4m3fn", b_format="e4m3fn", model=HOPPER)


def test_models_by_value():
    a, b = random_codes(4, 64, 15), random_codes(4, 64, 16)
    registered = fp8lab.models()[HOPPER]
    d = fp8lab.gemm(a, b, model=HOPPER)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=registered), d)
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=registered.accumulator), d)
    finer = dataclasses.replace(registered.accumulator, alignment_fraction_bits=14)
    assert (fp8lab.gemm(a, b, model=finer) != d).any()


def test_fp16_halves_by_value():
    blackwell = fp8lab.models()["sm100.mma.e4m3"].accumulator
    assert blackwell.kind == "fp16_halves"
    a, b = np.zeros((1, 32), E4M3), np.ones((1, 32), E4M3)
    # The second half, whose large products cancel, hides what the first one summed.
    a[0, 0], a[0, 2], a[0, 3] = 2.0**-9, 448, -448
    b[0, 0], b[0, 2], b[0, 3] = 0.5, 448, 448
    assert fp8lab.gemm(a, b, model=blackwell)[0, 0] == 0
    assert fp8lab.gemm(a, b, model="exact32")[0, 0] == 2.0**-10
    wide = a.astype(ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match="a: expected an 8-bit format whose values FP16 has"):
        fp8lab.gemm(wide, b, model=blackwell)


def test_sizes_of_zero():
    empty = np.zeros((0, 16), E4M3)
    some = np.zeros((3, 16), E4M3)
    assert fp8lab.gemm(empty, some, model=HOPPER).shape == (0, 3)
    assert (
        fp8lab.gemm(some[:, :0], some[:2, :0], model=HOPPER, c=np.ones((3, 2), f32)).tolist()
        == [[1, 1]] * 3
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "sm90.wgmma.e4"}, "sm90.wgmma.e4"),
        ({"model": "sm90.wgmma.e5m2"}, "a: expected e5m2 for sm90.wgmma.e5m2 .*, got e4m3fn"),
        (
            {"b": np.zeros((2, 64), ml_dtypes.float8_e4m3fnuz)},
            "b: expected e4m3fn for .*, got e4m3fnuz",
        ),
        (
            {"b": np.zeros((2, 63), E4M3)},
            r"b: expected \[n, k\] with k = 64, as a has, got \[2, 63\]",
        ),
        ({"b": np.zeros(64, E4M3)}, r"b: expected a matrix \[n, k\], got \[64\]"),
        ({"b": np.zeros((2, 64), np.uint8)}, "b_format: expected the format of b"),
        (
            {"b": np.zeros((2, 64), np.uint16), "b_format": "e4m3fn"},
            "b: expected words of 8 bits, as e4m3fn has, got 16 bits",
        ),
        ({"c": np.zeros((2, 3), f32)}, r"c: expected \[m, n\] = \[3, 2\], got \[2, 3\]"),
        (
            {"promotion_interval": 48},
            "promotion_interval: expected 0 or a multiple of the model's 32 terms, got 48",
        ),
        (
            {"scale_order": "b_then_a"},
            "scale_order: expected one of product_then_fma, .*, got 'b_then_a'",
        ),
        (
            {"a_scales": np.ones(2, f32)},
            r"a_scales: expected a number, \[3\] or \[3, 1\], or fp8lab.Scales.*, got \[2\]",
        ),
        (
            {"a_scales": np.ones((3, 2), f32)},
            r"a_scales: expected a number, \[3\] or .*, or fp8lab.Scales.*, got \[3, 2\]",
        ),
        (
            {"a_scales": fp8lab.Scales(np.ones((3, 2), f32), 1, 32)},
            "promotion_interval: expected a divisor of a_scales.k_block = 32",
        ),
        ({"a_scales": []}, "a_scales: expected at least one scale, got none"),
        ({"threads": -2}, "threads: expected 0"),
        ({"threads": "all"}, "^threads: expected a whole number, got 'all'$"),
        ({"promotion_interval": 1.5}, "^promotion_interval: expected a whole number, got 1.5$"),
        ({"scale_order": None}, "^scale_order: expected a name, got None$"),
        ({"model": fp8lab.AccumulatorModel(terms=0)}, "terms"),
        (
            {"model": fp8lab.AccumulatorModel(kind="fused")},
            "kind: expected one of fused_dot_product, .*, got 'fused'",
        ),
    ],
)
def test_bad_arguments_are_value_errors(change, message):
    arguments = {
        "a": np.zeros((3, 64), E4M3),
        "b": np.zeros((2, 64), E4M3),
        "model": HOPPER,
    } | change
    with pytest.raises(ValueError, match=message):
        fp8lab.gemm(arguments.pop("a"), arguments.pop("b"), **arguments)


def test_other_threads_run_meanwhile():
    a = random_codes(64, 2048, 17)
    hopper = fp8lab.models()[HOPPER].accumulator
    slow = dataclasses.replace(hopper, kind="sequential", rounding="upward")
    started, finished = threading.Event(), []

    def work():
        started.set()
        begin = time.perf_counter()
        fp8lab.gemm(a, a, model=slow, threads=1)
        finished.append(time.perf_counter() - begin)

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    ticks = 0
    while not finished:
        time.sleep(0.001)
        ticks += 1
    worker.join()
    assert finished[0] > 0.05, "too short to tell"
    assert ticks > 10
