"""Arrays in and out: which format an array holds, and the words behind it.

A view costs nothing, so nothing here copies unless it must; what must copy says so.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from fp8lab import _core

# Narrower formats than eight bits have one code a byte, in ml_dtypes as here.
DTYPES: dict[str, np.dtype[Any]] = {
    "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "e4m3_ieee": np.dtype(ml_dtypes.float8_e4m3),
    "e4m3b11fnuz": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
_FORMATS = {dtype: name for name, dtype in DTYPES.items()}
#: Codes that share bytes: their format, and how many are in how many bytes.
_PACKED = {
    "e2m1x2": ("e2m1", 2, 1),
    "float4_e2m1fn_x2": ("e2m1", 2, 1),
    "e2m3x4": ("e2m3", 4, 3),
    "e3m2x4": ("e3m2", 4, 3),
}
_WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}


def bad(argument: str, expected: str, got: object) -> ValueError:
    """The library's message for an argument that does not fit."""
    return ValueError(f"{argument}: expected {expected}, got {got}")


def _index(argument: str, x: Any) -> int:
    try:
        return operator.index(x)
    except TypeError:
        raise bad(argument, "a whole number", repr(x)) from None


#: Counts that the library holds in 32 bits.
_NARROW = {"threads", "parts", "trials", "terms"}


def whole(argument: str, x: Any) -> int:
    """A whole number, NumPy's too, that the library holds."""
    value, bits = _index(argument, x), 32 if argument in _NARROW else 64
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise bad(argument, f"a whole number of {bits} bits", value)
    return value


def natural(argument: str, x: Any) -> int:
    """A whole number that 64 bits without a sign hold."""
    value = _index(argument, x)
    if not 0 <= value < 1 << 64:
        raise bad(argument, "0 to 2^64 - 1", value)
    return value


def text(argument: str, x: Any) -> str:
    if not isinstance(x, str):
        raise bad(argument, "a name", repr(x))
    return x


def number(argument: str, x: Any) -> float:
    """A real number, NumPy's too; no text, and no array of several."""
    if not isinstance(x, (str, bytes)):
        try:
            return float(x)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            raise bad(argument, "a number that binary64 has", "an integer beyond it") from None
    raise bad(argument, "a number", repr(x))


def several(argument: str, names: str, x: Any) -> tuple[Any, ...]:
    """The parts of a tuple or list: as many as `names` has, with commas between them."""
    count = names.count(",") + 1
    if not isinstance(x, (tuple, list)):
        raise bad(argument, f"a tuple ({names})", type(x).__name__)
    if len(x) != count:
        raise bad(argument, f"a tuple ({names})", f"{len(x)} parts")
    return tuple(x)


def as_array(argument: str, x: Any) -> NDArray[Any]:
    """`x` as a NumPy array over the same memory; lists and numbers become new arrays.

    Pairs of FP4 codes that a tensor's dtype names (torch's float4_e2m1fn_x2) are unpacked, which copies.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise bad(argument, "an array without a mask (fill it: .filled(value))", "a masked array")
    if isinstance(x, np.ndarray):
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if hasattr(x, "__dlpack__") and not isinstance(x, np.generic):
        return _from_dlpack(argument, x)
    try:
        return np.asarray(x)
    except (TypeError, ValueError) as error:
        expected = "an array, or a list of numbers in rows of one length"
        raise bad(argument, expected, f"{type(x).__name__} ({error})") from error


_DLPACK_DTYPES: dict[str, np.dtype[Any]] = {
    **DTYPES,
    **{f"{kind}{8 * size}": np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def _from_dlpack(argument: str, x: Any) -> NDArray[Any]:
    """NumPy's own import knows neither bfloat16 nor FP8."""
    words: NDArray[Any]
    try:
        words, name = _core.from_dlpack(x, argument)
    except TypeError as error:
        expected = "a detached CPU tensor that exports DLPack (else FP8 as a view of uint8)"
        raise bad(argument, expected, type(x).__name__) from error
    if name in _PACKED:
        return _unpacked(argument, words, name).view(DTYPES[_PACKED[name][0]])
    return words.view(_DLPACK_DTYPES[name])


def _unpacked(argument: str, words: NDArray[Any], packed: str) -> NDArray[np.uint8]:
    """One code a byte of codes that share bytes, the first in the lowest bits; a copy."""
    name, codes, size = _PACKED[packed]
    if words.dtype != np.uint8:
        raise bad(argument, f"uint8, whose bytes hold {packed}", words.dtype)
    if words.ndim == 0 or words.shape[-1] % size:
        raise bad(argument, f"{packed} with a last dimension of whole groups of {size}", list(words.shape))
    if words.shape[-1] > 1 and words.strides[-1] != 1:
        raise bad(argument, f"{packed} whose last dimension is contiguous", f"strides {list(words.strides)}")
    groups = words.reshape(*words.shape[:-1], -1, size).astype(np.uint32)
    bits = (groups << (8 * np.arange(size, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    width = 8 * size // codes
    parts = (bits[..., None] >> (width * np.arange(codes, dtype=np.uint32))) & ((1 << width) - 1)
    last = words.shape[-1] // size * codes
    unpacked: NDArray[np.uint8] = parts.astype(np.uint8).reshape(*words.shape[:-1], last)
    return unpacked


def format_name(argument: str, stated: str) -> str:
    """The name of the format that an argument states; ValueError that lists them."""
    try:
        return str(_core.format_name(text(argument, stated)))
    except ValueError as error:
        raise ValueError(f"{argument}: {str(error).removeprefix('format: ').removeprefix(f'{argument}: ')}") from None


def format_of(
    argument: str, x: NDArray[Any], stated: str | None, keyword: str | None = None
) -> str:
    """The format of an array's elements: its dtype's, or the one stated for raw words.

    keyword: the argument that states it, if it is not called `{argument}_format`.
    """
    keyword = keyword or f"{argument}_format"
    name = None if stated is None else format_name(keyword, stated)
    own = _FORMATS.get(x.dtype)
    if own is None:
        if name is None:
            expected = f"the format of {argument}, whose dtype {x.dtype} does not say it"
            raise bad(keyword, expected, "None")
        return name
    if name is not None and name != own:
        expected = f"{own}, as the dtype of {argument} says (or a view as unsigned words)"
        raise bad(keyword, expected, name)
    return own


def words_of(x: NDArray[Any]) -> NDArray[Any]:
    """The storage words of an array: a view with the same strides."""
    word = _WORDS.get(x.dtype.itemsize)
    return x if word is None else x.view(word)


def codes_of(
    argument: str, x: Any, stated: str | None, keyword: str | None = None
) -> tuple[NDArray[Any], str]:
    """Words and format of an array of codes, one code a word; packed ones are unpacked, a copy."""
    array = as_array(argument, x)
    if isinstance(stated, str) and stated in _PACKED:
        name = _PACKED[stated][0]
        # Where the dtype says it too, they are unpacked already.
        typed = _FORMATS.get(array.dtype) == name
        return (words_of(array) if typed else _unpacked(argument, array, stated)), name
    name = format_of(argument, array, stated, keyword)
    known = array.dtype in _FORMATS or array.dtype in _WORDS.values()
    if not known and not (array.dtype == np.float32 and name in ("tf32", "f32")):
        raise bad(argument, f"codes of {name} as its dtype or as unsigned words", array.dtype)
    return words_of(array), name


def dense_tensor(words: NDArray[Any], name: str) -> _core.Tensor:
    """Words of a format as the library's tensor: by rows, a copy if they are not."""
    # NumPy would give an array of no dimensions one.
    return _core.Tensor(np.ascontiguousarray(words).reshape(words.shape), name)


def as_float32(argument: str, x: Any) -> NDArray[np.float32]:
    """`x` as C-contiguous binary32: the array itself where it is that already.

    Narrower formats widen exactly. Of wider types each value must be a binary32
    number, since a second rounding would change the bits of a cast.
    """
    array = as_array(argument, x)
    if array.dtype == np.float32:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype in _FORMATS:
        return np.ascontiguousarray(array.astype(np.float32)).reshape(array.shape)
    if array.dtype.kind not in "fiu":
        raise bad(argument, "an array of floats", array.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow: NDArray[np.float32] = np.array(array, np.float32, order="C")
        # Wide enough for every binary64 number and every 64-bit integer.
        inexact = (narrow.astype(np.longdouble) != array.astype(np.longdouble)) & ~np.isnan(narrow)
    if inexact.any():
        index = tuple(int(i) for i in np.argwhere(inexact)[0])
        expected = "float32, or values exact in it (round yourself: .astype(np.float32))"
        raise bad(argument, expected, f"{array[index]} at {index} of {array.dtype}")
    return narrow


def as_matrix(argument: str, x: Any) -> NDArray[np.float32]:
    """Binary32 values as [rows, k]: the last dimension is k, all others are rows."""
    array = as_float32(argument, x)
    if array.ndim == 2:
        return array
    k = array.shape[-1] if array.ndim else 1
    return array.reshape(math.prod(array.shape[:-1]), k)


def coded(words: NDArray[Any], name: str, dtype: DTypeLike | None) -> NDArray[Any]:
    """Codes under the dtype of their format, or as the unsigned words that were asked for."""
    own = DTYPES.get(name, words.dtype)
    try:
        wanted = own if dtype is None else np.dtype(dtype)
    except TypeError:
        raise bad("dtype", f"{own} or {words.dtype}", repr(dtype)) from None
    if wanted not in (words.dtype, own):
        raise bad("dtype", f"{own} or {words.dtype}", wanted)
    return words.view(wanted)
