"""Formats beyond the table: by name, and as text."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import fp8lab

E3M4_BIAS4 = "float:e=3,m=4,bias=4"


def values_of_e3m4(bias: int) -> np.ndarray:
    """The values of all codes, as IEEE 754 has them."""
    code = np.arange(256)
    field, fraction = code >> 4 & 7, (code & 15) / 16
    value = np.where(field == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (field - bias))
    value[field == 7] = np.where(fraction[field == 7] == 0, np.inf, np.nan)
    return np.where(code < 128, value, -value).astype(np.float32)


def test_text_decodes_and_encodes():
    values = values_of_e3m4(4)
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(fp8lab.decode(codes, E3M4_BIAS4), values)
    back = fp8lab.encode(values, E3M4_BIAS4, profile="ml_dtypes")
    assert back.dtype == np.uint8
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(back[finite], codes[finite])
    # Halfway between 1 and its neighbour is 1, whose code is even.
    assert fp8lab.encode([1 + 1 / 32], E3M4_BIAS4)[0] == fp8lab.encode([1.0], E3M4_BIAS4)[0]


def test_sixteen_bits_are_words():
    codes = fp8lab.encode([1.0, 1.5, -2.0], "float:e=5,m=9,bias=16,inf=yes,nan=one,negative_zero=no")
    np.testing.assert_array_equal(codes, np.array([16 << 9, 16 << 9 | 256, 1 << 14 | 17 << 9], np.uint16))
    assert codes.dtype == np.uint16


def test_one_format_has_one_name():
    assert fp8lab.encode([1.0], "float:e=4,m=3,nan=one").dtype == "float8_e4m3fn"
    assert fp8lab.encode([1.0], "binary8p4sf").dtype == "float8_e4m3fnuz"
    assert fp8lab.encode([1.0], "float:e=3,m=4").dtype == "float8_e3m4"
    assert fp8lab.formats()["ue5m3"].max_finite == 1.75 * 2.0**16
    assert fp8lab.formats()["e4m3b11fnuz"].bias == 11
    assert {f.field_zero for f in fp8lab.formats().values()} == {"gradual", "normal"}
    assert fp8lab.formats()["e8m0fnu"].field_zero == "normal"


@pytest.mark.parametrize("name", [E3M4_BIAS4, "binary8p3se", "e3m4"])
def test_products_of_any_format(name):
    """Exact sums of numbers of a few bits are binary64's, rounded once."""
    codes = np.random.default_rng(1).integers(0, 256, (2, 8, 64), dtype=np.uint8)
    values = fp8lab.decode(codes, name).astype(np.float64)
    codes[~np.isfinite(values) | (np.abs(values) > 16) | (np.abs(values) < 2.0**-8)] = 0
    a, b = codes
    wide_a, wide_b = fp8lab.decode(codes, name).astype(np.float64)
    got = fp8lab.gemm(a, b, model="exact", a_format=name, b_format=name)
    np.testing.assert_array_equal(got, (wide_a @ wide_b.T).astype(np.float32))
    # One step that cuts nothing off, rounded once.
    model = "fused:terms=64,F=60,M=23,rounding=nearest_even"
    fused = fp8lab.gemm(a, b, model=model, a_format=name, b_format=name)
    np.testing.assert_array_equal(fused, got)


def test_a_recipe_may_have_any_format():
    recipe = dataclasses.replace(fp8lab.presets()["te-current"].activation, format=E3M4_BIAS4)
    x = np.linspace(-3, 3, 64, dtype=np.float32).reshape(4, 16)
    q = fp8lab.quantize(x, recipe)
    largest = np.float32(fp8lab.decode(np.arange(256, dtype=np.uint8), E3M4_BIAS4)[0x6F])
    assert float(q.scales[0, 0]) == largest / np.float32(3)
    np.testing.assert_array_equal(q.codes, fp8lab.encode(x * q.scales[0, 0], E3M4_BIAS4))
    np.testing.assert_array_equal(
        q.dequantize(), fp8lab.decode(q.codes, E3M4_BIAS4) * q.inverse_scales[0, 0]
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("float:e=4", r"m: expected bits of the mantissa field, got none"),
        ("float:e=4,m=3,inf=no", r"inf: expected yes, since nan=ieee"),
        ("binary8p9se", r"P: expected 1 to 7 of 8 bits"),
        ("binary16p1se", r"with which binary64 represents all values"),
        ("e3m5", r"format: expected one of e4m3fn.*did you mean e3m2 or e3m4.*got 'e3m5'"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        fp8lab.encode([1.0], text)


def test_hardware_refuses_them():
    a = fp8lab.encode(np.ones((16, 32), np.float32), "binary8p3se")
    with pytest.raises(ValueError, match=r"A: expected e4m3fn for sm90.wgmma.e4m3, got binary8p3se"):
        fp8lab.gemm(a, a, model="sm90.wgmma.e4m3", a_format="binary8p3se", b_format="binary8p3se")


def test_codes_have_no_bits_above_their_format():
    with pytest.raises(ValueError, match=r"A: expected codes of 7 bits, one per byte, got 0x80"):
        fp8lab.gemm(
            np.full((1, 1), 0x80, np.uint8), np.ones((1, 1), np.uint8), model="exact",
            a_format="ue4m3", b_format="ue4m3",
        )


def test_a_process_holds_4096_of_them():
    """In a process of its own, which can have no more afterwards."""
    code = (
        "from fp8lab import _core\n"
        "names = [f'float:e=5,m={m},bias={b}' for m in (4, 5, 6, 7, 8) for b in range(-900, 0)]\n"
        "assert all(_core.format_name(name) == name for name in names[:4096])\n"
        "assert _core.format_name(names[0]) == names[0]\n"
        "_core.format_name(names[4096])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    message = "expected at most 4096 formats beyond the table in a process, got one more"
    assert run.returncode == 1
    assert f"{message}" in run.stderr and "line 5" in run.stderr
