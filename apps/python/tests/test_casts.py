"""Casts against ml_dtypes, and what they refuse."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab

EIGHT_BITS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e3m4": ml_dtypes.float8_e3m4,
    "e4m3_ieee": ml_dtypes.float8_e4m3,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
}


def some_floats(count: int = 1_000_000) -> np.ndarray:
    """Any binary32 word, half of them of a moderate exponent."""
    words = np.random.default_rng(7).integers(0, 2**32, count, dtype=np.uint32)
    words[::2] = (words[::2] & 0x807FFFFF) | (110 + words[::2] % 32) << 23
    return words.view(np.float32)


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_encode_equals_ml_dtypes(name):
    x = some_floats()
    codes = fp8lab.encode(x, name, profile="ml_dtypes")
    assert codes.dtype == EIGHT_BITS[name]
    with np.errstate(all="ignore"):
        expected = x.astype(EIGHT_BITS[name])
    np.testing.assert_array_equal(codes.view(np.uint8), expected.view(np.uint8))


def test_encode_into_sixteen_bits():
    x = some_floats()
    codes = fp8lab.encode(x, "bf16", profile="ml_dtypes")
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(codes.view(np.uint16), expected.view(np.uint16))
    assert fp8lab.encode(x, "f16").dtype == np.float16


@pytest.mark.parametrize("name", [*EIGHT_BITS, "e8m0fnu"])
def test_decode_gives_the_value_of_every_code(name):
    dtype = EIGHT_BITS.get(name, ml_dtypes.float8_e8m0fnu)
    count = {"e2m1": 16, "e2m3": 64, "e3m2": 64}.get(name, 256)
    codes = np.arange(count, dtype=np.uint8)
    expected = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(fp8lab.decode(codes, name), expected)
    np.testing.assert_array_equal(fp8lab.decode(codes.view(dtype)), expected)
    np.testing.assert_array_equal(
        fp8lab.decode(codes.view(dtype), inverse_scale=0.5), expected * np.float32(0.5)
    )


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_input_is_widened_exactly(half):
    x = np.random.default_rng(1).integers(0, 2**16, 5000, dtype=np.uint16).view(half)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
    for name in ("e4m3fn", "e5m2", "bf16"):
        direct, widened = (fp8lab.encode(y, name, scale=1.7).view(np.uint8) for y in (x, wide))
        np.testing.assert_array_equal(direct, widened)


def test_profiles_differ_where_they_should():
    assert fp8lab.encode([464.0, 465.0, np.inf], dtype=np.uint8).tolist() == [0x7E, 0x7E, 0x7E]
    nosat = fp8lab.encode([464.0, 465.0, np.inf], profile="nvidia_nosat", dtype=np.uint8)
    assert nosat.tolist() == [0x7E, 0x7F, 0x7F]
    assert fp8lab.encode([300.0], profile="seed_toy").astype(float).tolist() == [240.0]
    assert fp8lab.encode([-1.9375], rounding="toward_zero").astype(float).tolist() == [-1.875]


def test_shape_and_strides():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (x, x.T, x[:, ::2], x[..., ::-1], x[0, 0, 0], x[:0]):
        codes = fp8lab.encode(view)
        assert codes.shape == view.shape
        np.testing.assert_array_equal(codes.view(np.uint8), view.astype(codes.dtype).view(np.uint8))
        np.testing.assert_array_equal(fp8lab.decode(codes), codes.astype(np.float32))


def test_statistics():
    x = [np.nan, 500.0, -3.0, 0.0, 2**-30]
    _, s = fp8lab.encode_with_statistics(x)
    assert s == fp8lab.EncodeStatistics(amax=500.0, overflowed=1, underflowed=1, nan=1)


def test_stochastic_draws_belong_to_elements():
    x = np.full(4096, 1.03, np.float32)
    whole = fp8lab.encode(x, rounding="stochastic", seed=3)
    rest = fp8lab.encode(x[1000:], rounding="stochastic", seed=3, first_draw=1000)
    np.testing.assert_array_equal(whole[1000:], rest)
    up = (whole.astype(np.float32) > 1.03).mean()
    assert 0.2 < up < 0.28  # 0.03 of a step of 0.125: 0.24
    with pytest.raises(
        ValueError, match="random: expected a stream for stochastic rounding, got none"
    ):
        fp8lab.encode(x, rounding="stochastic")


def test_wide_values_are_refused_unless_exact():
    exact = np.array([1.0, 0.1], np.float32).astype(np.float64)
    np.testing.assert_array_equal(fp8lab.encode(exact), fp8lab.encode(exact.astype(np.float32)))
    assert fp8lab.encode([1, 2, 3]).astype(int).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"x: expected float32, .* got 0\.1 at \(1,\) of float64"):
        fp8lab.encode([1.0, 0.1])
    with pytest.raises(ValueError, match=r"got 9007199254740993 at \(0,\) of int64"):
        fp8lab.encode([2**53 + 1])
    with pytest.raises(ValueError, match=r"16777217.* at \(0, 1\) of int64"):
        fp8lab.encode([[1, 2**24 + 1]])
    with pytest.raises(ValueError, match="x: expected an array of floats, got complex128"):
        fp8lab.encode([1j])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "e9m9"}, "e9m9"),
        ({"format": "tf32"}, "format: expected a format of at most eight bits, got tf32"),
        ({"profile": "nvidia"}, r"profile: expected one of 18 names \(did you mean nvidia_satfinite or nvidia_nosat\?\), got 'nvidia'"),
        ({"rounding": "up"}, "rounding: expected one of nearest_even, .*, got 'up'"),
        ({"scale": 0.0}, "scale: expected a finite, positive number, got 0.0"),
        ({"threads": -1}, r"threads: expected 0 \(all\) or more, got -1"),
        ({"dtype": "float32"}, "dtype: expected float8_e4m3fn or uint8, got float32"),
    ],
)
def test_bad_arguments_are_value_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        fp8lab.encode([1.0], **arguments)


def test_decode_needs_a_format():
    with pytest.raises(ValueError, match="^format: expected the format of codes"):
        fp8lab.decode(np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="^format: expected e5m2, as the dtype of codes says"):
        fp8lab.decode(np.zeros(3, ml_dtypes.float8_e5m2), "e4m3fn")
    with pytest.raises(ValueError, match="codes: expected codes of one byte"):
        fp8lab.decode(np.zeros(3, ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", [*EIGHT_BITS, "f16", "bf16"])
def test_a_dtype_is_the_format_s_own_or_its_words(name):
    words = np.uint16 if name in ("f16", "bf16") else np.uint8
    own = fp8lab.encode([1.0, 2.0], name)
    assert fp8lab.encode([1.0, 2.0], name, dtype=own.dtype).dtype == own.dtype
    as_words = fp8lab.encode([1.0, 2.0], name, dtype=words)
    assert as_words.dtype == words and np.array_equal(as_words, own.view(words))
    for wrong in ("int8", "uint32", "float32", "int16", "bool", "nonsense", ml_dtypes.float8_e8m0fnu, "V1", "S1"):
        for function in (fp8lab.encode, fp8lab.encode_with_statistics):
            with pytest.raises(ValueError, match=f"^dtype: expected {own.dtype} or {np.dtype(words)}, got "):
                function([1.0, 2.0], name, dtype=wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": "2"}, "^scale: expected a number, got '2'$"),
        ({"seed": 1.5, "rounding": "stochastic"}, "^seed: expected a whole number, got 1.5$"),
        ({"seed": -1, "rounding": "stochastic"}, r"^seed: expected 0 to 2\^64 - 1, got -1$"),
        ({"first_draw": -1}, r"^first_draw: expected 0 to 2\^64 - 1, got -1$"),
        ({"threads": "all"}, "^threads: expected a whole number, got 'all'$"),
        ({"threads": 1 << 70}, "^threads: expected a whole number of 32 bits, got 1180591620717411303424$"),
        ({"format": 3}, "^format: expected a name, got 3$"),
        ({"profile": None}, "^profile: expected a name, got None$"),
        ({"rounding": 3}, "^rounding: expected a name, got 3$"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_by_name(change, message):
    for function in (fp8lab.encode, fp8lab.encode_with_statistics):
        with pytest.raises(ValueError, match=message):
            function([1.0], **change)
    with pytest.raises(ValueError, match="^inverse_scale: expected a number, got 'x'$"):
        fp8lab.decode(np.zeros(2, np.uint8), "e4m3fn", inverse_scale="x")


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e2m1", "bf16"])
def test_statistics_change_no_code(name):
    """Each option reaches both functions."""
    x = np.random.default_rng(4).standard_normal(3000).astype(np.float32)
    plain = fp8lab.encode(x, name)
    for change in (
        {"rounding": "toward_zero"}, {"rounding": "stochastic", "seed": 3}, {"rounding": "stochastic", "seed": 3, "first_draw": 9},
        {"scale": 0.3}, {"profile": "nvidia_nosat", "scale": 1e6} if name in ("e4m3fn", "e5m2") else {"scale": 7.0},
        {"threads": 1, "rounding": "toward_zero"}, {"dtype": np.uint16 if name == "bf16" else np.uint8, "scale": 3.0},
    ):  # fmt: skip
        codes = fp8lab.encode(x, name, **change)
        told, statistics = fp8lab.encode_with_statistics(x, name, **change)
        assert codes.dtype == told.dtype and codes.tobytes() == told.tobytes(), change
        assert codes.tobytes() != plain.tobytes(), "the option does something"
        assert statistics.amax == np.abs(x).max()


@pytest.mark.parametrize("profile", fp8lab.profiles())
def test_a_rounding_takes_the_place_of_each_profile_s(profile):
    """Between 1 and its neighbour, above and below the middle."""
    x = np.array([1.03, 1.1, -1.03, -1.1], np.float32)
    expected = {
        "toward_zero": [1, 1, -1, -1], "upward": [1.125, 1.125, -1, -1], "downward": [1, 1, -1.125, -1.125],
        "nearest_even": [1, 1.125, -1, -1.125],
    }  # fmt: skip
    for rounding, values in expected.items():
        codes = fp8lab.encode(x, "e4m3fn", profile=profile, rounding=rounding)
        assert codes.astype(np.float32).tolist() == values, rounding
