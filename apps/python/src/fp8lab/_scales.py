"""Scales of operands: their values, and what their dtype says about them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._arrays import DTYPES, as_array, as_float32, bad, dense_tensor, format_name, words_of

_CODED = ("e8m0fnu", "e4m3fn")
_PACKED_WORDS = (np.dtype(np.int32), np.dtype(np.uint32))


def require_scale_format(stated: str | None) -> None:
    """What `scale_format` may say, whether any scales are codes or not."""
    if stated is not None and format_name("scale_format", stated) not in _CODED:
        raise bad("scale_format", "e8m0fnu or e4m3fn (UE4M3), the formats of scales", stated)


def scale_array(argument: str, x: Any, stated: str | None) -> NDArray[Any]:
    """Scales as an array; uint8 has the dtype that `scale_format` states."""
    require_scale_format(stated)
    array = as_array(argument, x)
    if array.dtype == np.uint8 and stated is not None:
        return array.view(DTYPES[format_name("scale_format", stated)])
    return array


def _require_numbers(argument: str, array: NDArray[Any]) -> None:
    """Integers are refused: they may be E8M0 codes, where 127 is 1.0. Python's own are numbers."""
    if array.dtype.kind == "u" or (array.dtype.kind == "i" and array.dtype.itemsize < 8):
        expected = (
            'floats, or E8M0 or UE4M3 codes that say so (scale_format="e8m0fnu" or "e4m3fn", or '
            "their dtype)"
        )
        raise bad(argument, expected, f"an array of {array.dtype}")


def scale_values(argument: str, array: NDArray[Any]) -> NDArray[np.float32]:
    """Scales of `scale_array` as numbers; UE4M3 has no sign."""
    _require_numbers(argument, array)
    values = as_float32(argument, array)
    return np.abs(values) if array.dtype == DTYPES["e4m3fn"] else values


def plain_values(argument: str, x: Any) -> NDArray[np.float32]:
    """Scales that are never codes: of tensors and of heads."""
    array = as_array(argument, x)
    _require_numbers(argument, array)
    return as_float32(argument, array)


def scale_tensor(argument: str, x: Any, layout: str, stated: str | None) -> _core.Tensor:
    """Scales as the library's tensor: floats, codes that their dtype or `scale_format` names, or words of a layout."""
    array = scale_array(argument, x, stated)
    name = next((name for name in _CODED if array.dtype == DTYPES[name]), "f32")
    if layout.startswith("packed_ue8m0") and array.dtype in _PACKED_WORDS:
        name = "i32"
    if name == "f32":
        _require_numbers(argument, array)
        array = as_float32(argument, array)
    return dense_tensor(words_of(array), name)
