"""Casts of whole arrays into formats of at most 16 bits, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fp8lab import _core
from fp8lab._arrays import (
    DTYPES,
    as_array,
    as_float32,
    bad,
    coded,
    codes_of,
    natural,
    number,
    text,
    whole,
)
from fp8lab._mode import in_own_mode


@dataclass(frozen=True)
class EncodeStatistics:
    """What happened to the elements of one cast."""

    amax: float  #: largest magnitude before scaling; NaN elements are ignored
    overflowed: int  #: elements rounded above max finite (saturated or not), and infinities
    underflowed: int  #: non-zero elements whose code is a zero
    nan: int  #: NaN elements, and elements whose code became NaN


def _encode(
    x: ArrayLike, format: str, options: _core.EncodeOptions, dtype: DTypeLike | None
) -> tuple[NDArray[Any], _core.EncodeStatistics]:
    name = _core.format_name(text("format", format))
    array = as_array("x", x)
    wide = _core.format_traits(name)["storage_bits"] == 16
    out = np.empty(array.shape, np.uint16 if wide else np.uint8)
    result = coded(out, name, dtype)
    half = {np.dtype(np.float16): "f16", DTYPES["bf16"]: "bf16"}.get(array.dtype)
    if half is not None and out.dtype == np.uint8:
        words = np.ascontiguousarray(array).view(np.uint16).reshape(-1)
        return result, _core.encode_half(words, half, out.reshape(-1), options)
    return result, _core.encode(as_float32("x", array).reshape(-1), out.reshape(-1), options)


def _options(
    format: str,
    profile: str,
    scale: float,
    rounding: str | None,
    seed: int | None,
    first_draw: int,
    statistics: bool,
    threads: int,
) -> _core.EncodeOptions:
    return _core.EncodeOptions(
        format=text("format", format),
        profile=text("profile", profile),
        rounding=None if rounding is None else text("rounding", rounding),
        scale=number("scale", scale),
        seed=None if seed is None else natural("seed", seed),
        first_draw=natural("first_draw", first_draw),
        statistics=statistics,
        threads=whole("threads", threads),
    )


@in_own_mode
def encode(
    x: ArrayLike,
    format: str = "e4m3fn",
    *,
    profile: str = "nvidia_satfinite",
    scale: float = 1.0,
    rounding: str | None = None,
    seed: int | None = None,
    first_draw: int = 0,
    dtype: DTypeLike | None = None,
    threads: int = 0,
) -> NDArray[Any]:
    """Cast `x * scale` into a format, with the bits of the profile's system.

    x: float32, float16 or bfloat16 of any shape, read in place if it is C-contiguous, or another
    array or list whose values are exactly float32 numbers (a second rounding would change bits, so
    other values are refused). format: of 16 bits or less, by name, or as text
    ("float:e=3,m=4"). scale multiplies *into* the
    format, in binary32, to nearest even. profile: see `profiles()`; rounding overrides the
    profile's ("toward_zero", "stochastic", ...). Stochastic rounding needs a seed; element i (C
    order) uses draw `first_draw + i`.

    Returns an array of x's shape: the ml_dtypes dtype of the format (NumPy's for f16), or
    its raw words with `dtype=np.uint8` (np.uint16 above eight bits), as they are for formats
    that ml_dtypes does not have. NaN, infinities,
    overflow and subnormals follow the profile. ValueError for bad arguments.

    >>> import fp8lab
    >>> fp8lab.encode([464, 465, 0.0625])
    array([448, 448, 0.0625], dtype='float8_e4m3fn')
    >>> fp8lab.encode([464, 465], profile="nvidia_nosat", dtype="uint8")
    array([126, 127], dtype=uint8)
    """
    options = _options(format, profile, scale, rounding, seed, first_draw, False, threads)
    return _encode(x, format, options, dtype)[0]


@in_own_mode
def encode_with_statistics(
    x: ArrayLike,
    format: str = "e4m3fn",
    *,
    profile: str = "nvidia_satfinite",
    scale: float = 1.0,
    rounding: str | None = None,
    seed: int | None = None,
    first_draw: int = 0,
    dtype: DTypeLike | None = None,
    threads: int = 0,
) -> tuple[NDArray[Any], EncodeStatistics]:
    """`encode`, with statistics of the cast.

    >>> import fp8lab
    >>> codes, statistics = fp8lab.encode_with_statistics([1000.0, 1.0, 2**-20])
    >>> statistics
    EncodeStatistics(amax=1000.0, overflowed=1, underflowed=1, nan=0)
    """
    options = _options(format, profile, scale, rounding, seed, first_draw, True, threads)
    codes, s = _encode(x, format, options, dtype)
    return codes, EncodeStatistics(s.amax, s.overflowed, s.underflowed, s.nan)


@in_own_mode
def decode(
    codes: ArrayLike, format: str | None = None, *, inverse_scale: float = 1.0, threads: int = 0
) -> NDArray[np.float32]:
    """The values of codes of 8 bits or less (one per byte), times `inverse_scale`, as float32.

    codes: an ml_dtypes array, or uint8 with `format`; read in place if C-contiguous. Packed codes
    ("e2m1x2", "e2m3x4", "e3m2x4") give one value a code, in a longer last dimension. The product is
    rounded once, to nearest even. NaN codes give the quiet NaN with their sign.

    >>> import fp8lab, numpy as np
    >>> fp8lab.decode(np.array([0x38, 0x7E, 0x01], np.uint8), "e4m3fn")
    array([1.000000e+00, 4.480000e+02, 1.953125e-03], dtype=float32)
    """
    words, name = codes_of("codes", codes, format, "format")
    if words.dtype != np.uint8:
        raise bad("codes", "codes of one byte (wider ones: .astype(np.float32))", words.dtype)
    out = np.empty(words.shape, np.float32)
    words = np.ascontiguousarray(words).reshape(-1)
    scale = number("inverse_scale", inverse_scale)
    _core.decode(words, out.reshape(-1), name, scale, whole("threads", threads))
    return out
