"""Products against oracles written in rational arithmetic and NumPy."""

import dataclasses
import math
import threading
import time
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
    for more in ({"scale_a": 1.0}, {"promotion_interval": 32}, {"scale_b": [1.0]}):
        with pytest.raises(ValueError, match="c_enters: expected accumulator or .*, got nothing"):
            fp8lab.gemm(ones, ones, **how, **more)
        d = fp8lab.gemm(ones, ones, **how, **more, c_enters="accumulator")
        assert d[0, 0] == plain[0, 0]
        assert fp8lab.gemm(ones, ones, **how, **more, c_enters="epilogue")[0, 0] == 16417
    with pytest.raises(ValueError, match="c_enters: expected one of accumulator, promoted_sum, "):
        fp8lab.gemm(ones, ones, **how, c_enters="final")


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
    for none in (np.zeros(0, np.float32), np.zeros((0, 1), np.float32), fp8lab.Scales(np.zeros((0, 1), np.float32), 1)):
        assert fp8lab.gemm(empty, some, model=HOPPER, scale_a=none).shape == (0, 3)
    with pytest.raises(ValueError, match=r"^scale_b: expected one value, \[3\] or \[3, 1\], .*, got \[0\]$"):
        fp8lab.gemm(some, some, model=HOPPER, scale_b=np.zeros(0, np.float32))
    assert (
        fp8lab.gemm(some[:, :0], some[:2, :0], model=HOPPER, c=np.ones((3, 2), f32)).tolist()
        == [[1, 1]] * 3
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "sm90.wgmma.e4"}, "sm90.wgmma.e4"),
        ({"model": "sm90.wgmma.e5m2"}, "A: expected e5m2 for sm90.wgmma.e5m2, got e4m3fn"),
        (
            {"b": np.zeros((2, 64), ml_dtypes.float8_e4m3fnuz)},
            "B: expected e4m3fn for .*, got e4m3fnuz",
        ),
        (
            {"b": np.zeros((2, 63), E4M3)},
            r"B: expected \[n, k\] with k = 64, as for A, got \[2, 63\]",
        ),
        ({"b": np.zeros(64, E4M3)}, r"B: expected a matrix \[n, k\], got e4m3fn \[64\]"),
        ({"b": np.zeros((2, 64), np.uint8)}, "b_format: expected the format of b"),
        (
            {"b": np.zeros((2, 64), np.uint16), "b_format": "e4m3fn"},
            "expected words of 1 bytes for e4m3fn, got 2",
        ),
        ({"c": np.zeros((2, 3), f32)}, r"C: expected floats \[m, n\] = \[3, 2\], got f32 \[2, 3\]"),
        (
            {"promotion_interval": 48},
            "promotion_interval: expected 0 or a multiple of the model's 32 terms, got 48",
        ),
        (
            {"scale_order": "b_then_a"},
            "scale_order: expected one of product_then_fma, .*, got 'b_then_a'",
        ),
        (
            {"scale_a": np.ones(2, f32)},
            r"scale_a: expected one value, \[3\] or \[3, 1\], .*, got \[2\]",
        ),
        (
            {"scale_a": np.ones((3, 2), f32)},
            r"promotion_interval: expected a divisor of scale_a.k_block = 32, .*, got 0",
        ),
        (
            {"scale_a": fp8lab.Scales(np.ones((3, 2), f32), 1, 32)},
            "promotion_interval: expected a divisor of scale_a.k_block = 32",
        ),
        ({"scale_a": []}, r"scale_a: expected one value, .*, got \[0\]"),
        ({"threads": -2}, "threads: expected 0"),
        ({"threads": "all"}, "^threads: expected a whole number, got 'all'$"),
        ({"promotion_interval": 1.5}, "^promotion_interval: expected a whole number, got 1.5$"),
        ({"scale_order": None}, "^scale_order: expected a name, got None$"),
        ({"model": fp8lab.AccumulatorModel(terms=0)}, "terms"),
        (
            {"model": fp8lab.AccumulatorModel(kind="fused")},
            r"kind: expected one of \d+ names \(did you mean fused_dot_product .*\), got 'fused'",
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
