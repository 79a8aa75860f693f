"""Casts of tensors on a device, by torch's own operations, with the library's bits.

Codes are made by integer operations on the bits of binary32, so that no device's conversion takes
part. Scales need IEEE's division, multiplication and comparison alone, which CUDA has as CPUs have.
The tests compare them with the library on CPU tensors, and on a GPU where there is one (on an H200 all are equal).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from fp8lab._recipes import Recipe
from fp8lab._registry import formats, profiles
from fp8lab.torch._plan import Cast

#: What these casts have. Others are refused by name.
RULES = ("unit", "te", "torchao", "deepseek", "deepgemm", "deepgemm_first")
SOURCES = ("current", "delayed")
FORMATS = ("e4m3fn", "e5m2")
_INFINITY = 0x7F800000
_MOST = torch.finfo(torch.float32).max

TileCodes = tuple[Tensor, Tensor]
"""Codes [rows, k] in uint8 and inverse scales, one a tile, row by row."""


def require_cast(recipe: Recipe) -> None:
    """ValueError that names what a cast on the device lacks."""
    where = "of a cast on a CUDA device"
    for what, known, got in (
        ("format", FORMATS, recipe.format),
        ("rule", RULES, recipe.rule),
        ("source", SOURCES, recipe.source),
    ):
        if got not in known:
            raise ValueError(f"recipe: expected a {what} {where} ({', '.join(known)}), got {got}; its cast runs on CPU tensors")
    if recipe.source == "delayed" and recipe.margin != int(recipe.margin):
        raise ValueError(
            f"recipe: expected a whole margin {where}, got {recipe.margin}; its cast runs on CPU tensors"
        )
    _policy(recipe.profile)


@functools.cache
def _policy(name: str) -> tuple[bool, bool]:
    """Of a cast profile: whether overflow saturates, and whether infinities do."""
    profile = profiles()[name]
    known = (
        profile.rounding == "nearest_even"
        and profile.subnormals == "preserve"
        and profile.max_magnitude == 0
        and profile.nan in ("positive_all_ones", "signed_all_ones")
    )
    if not known:
        raise ValueError(
            "recipe: expected a profile of a cast on a CUDA device (to nearest even, with subnormals), "
            f"got {name}; its cast runs on CPU tensors"
        )
    return profile.overflow == "saturate", profile.infinity == "saturate"


def encoded(x: Tensor, name: str, profile: str) -> Tensor:
    """Codes of float32 values in "e4m3fn", "e5m2", "f16" or "bf16": uint8, or words in int16.

    To nearest even; a NaN becomes the positive one with all bits set. Overflow as the profile says.
    """
    saturates, infinity_saturates = _policy(profile)
    f = formats()[name]
    m, least = f.mantissa_bits, 1 - f.bias
    all_ones = (1 << (f.exponent_bits + m)) - 1
    infinity = all_ones - ((1 << m) - 1) if f.specials == "ieee" else None
    largest = infinity - 1 if infinity is not None else all_ones - 1

    bits = x.view(torch.int32)
    magnitude, negative = bits & 0x7FFFFFFF, bits < 0
    field = magnitude >> 23
    exponent = field.clamp(min=1) - 127
    significand = (magnitude & 0x7FFFFF) | ((field > 0).to(torch.int32) << 23)
    # Past 25 places nothing is left, nor half of the last place.
    shift = (23 - m) + (least - exponent).clamp(min=0, max=2 + m)
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = torch.ones_like(shift) << (shift - 1)
    up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    codes = ((exponent - least).clamp(min=0) << m) + kept + up.to(torch.int32)

    # What a format without infinities has instead is a NaN, with the sign of the value.
    beyond = torch.full_like(codes, all_ones if infinity is None else infinity)
    is_infinite, overflows = magnitude == _INFINITY, codes > largest
    instead = torch.where(is_infinite, not infinity_saturates, overflows & (not saturates))
    codes = torch.where(overflows, largest, codes)
    codes = torch.where(instead, beyond, codes)
    is_nan = magnitude > _INFINITY
    codes = torch.where(is_nan, all_ones, codes)
    negative = negative & ~is_nan
    if f.storage_bits == 8:
        return (codes + (negative.to(torch.int32) << 7)).to(torch.uint8)
    return torch.where(negative, codes - (1 << 15), codes).to(torch.int16)


def _quotient(number: float, x: Tensor) -> Tensor:
    """number / x: torch divides a plain number by multiplying with a reciprocal."""
    return torch.full_like(x, number) / x


def _above(x: Tensor) -> Tensor:
    """The next power of two that is not below x > 0, as an exponent of binary32."""
    bits = x.view(torch.int32) & 0x7FFFFFFF
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def _floor_power(x: Tensor) -> Tensor:
    """2^floor(log2 x), whose log2 is rounded to binary32 first: torchao's, wrong next to powers of two."""
    exponent = torch.log2(x.double()).float().floor()
    inside = exponent.nan_to_num(0.0, 0.0, 0.0).to(torch.int32)
    power = ((inside + 127) << 23).view(torch.float32)
    return torch.where(exponent.isfinite(), power, torch.exp2(exponent))


def tile_scales(recipe: Recipe, amax: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and inverse scale of tiles from their amaxes, as the library's `TileScaler` has them."""
    largest = formats()[recipe.format].max_finite
    floor = torch.full_like(amax, recipe.amax_floor)
    if recipe.rule == "unit":
        return torch.ones_like(amax), torch.ones_like(amax)
    if recipe.rule == "te":
        amax = torch.where(amax < floor, floor, amax)
        scale = _quotient(largest, amax)
        scale = torch.where(scale.isinf(), _MOST, scale)
        if recipe.power_of_two:
            scale = (scale.view(torch.int32) & _INFINITY).view(torch.float32)
        scale = torch.where(amax.isfinite() & (amax != 0), scale, 1.0)
        return scale, _quotient(1.0, scale)
    if recipe.rule == "torchao":
        wide = torch.maximum(amax.double(), floor.double().clamp(min=1e-12))  # a NaN stays
        scale = _quotient(largest, wide).float()
        if recipe.power_of_two:
            scale = _floor_power(scale)
        return scale, _quotient(1.0, scale)
    if recipe.rule != "deepseek":
        floor = torch.maximum(floor, torch.full_like(floor, 1e-4))
    amax = torch.where(amax < floor, floor, amax)
    inverse = amax / torch.full_like(amax, largest)
    if recipe.rule == "deepgemm_first":
        return _quotient(1.0, amax) * torch.full_like(amax, largest), inverse
    if recipe.power_of_two:
        inverse = (_above(inverse).clamp(1, 254) << 23).view(torch.float32)
    return _quotient(1.0, inverse), inverse


def largest_magnitudes(x: Tensor, dims: tuple[int, ...], ignore_nan: bool) -> Tensor:
    """The largest |x| over dimensions: magnitudes order like their bits, NaN above all."""
    bits = x.view(torch.int32) & 0x7FFFFFFF
    if ignore_nan:
        bits = torch.where(bits > _INFINITY, 0, bits)
    most = bits.amax(dims)
    return torch.where(most > _INFINITY, 0x7FC00000, most).view(torch.float32)


def _ignores_nan(recipe: Recipe) -> bool:
    return recipe.rule in ("te", "deepseek", "unit")


def _cast_tiles(recipe: Recipe, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [rows, k], scales and inverse scales [tile rows, tile columns] of float32 [rows, k]."""
    rows, k = x.shape
    down = max(1, min(recipe.row_block or rows, rows))
    across = max(1, min(recipe.k_block or k, k))
    tiles = -(-rows // down), -(-k // across)
    if x.numel() == 0:
        none = x.new_empty(tiles)
        return x.new_empty(x.shape, dtype=torch.uint8), none, none.clone()
    padding = (0, tiles[1] * across - k, 0, tiles[0] * down - rows)
    blocks = torch.nn.functional.pad(x, padding) if any(padding) else x
    blocks = blocks.contiguous().view(tiles[0], down, tiles[1], across)
    scale, inverse = tile_scales(recipe, largest_magnitudes(blocks, (1, 3), _ignores_nan(recipe)))
    if recipe.rule == "deepseek":
        scaled = blocks / inverse[:, None, :, None]
    else:
        scaled = blocks * scale[:, None, :, None]
    codes = encoded(scaled, recipe.format, recipe.profile)
    codes = codes.view(tiles[0] * down, tiles[1] * across)[:rows, :k].contiguous()
    return codes, scale, inverse


def quantized(recipe: Recipe, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and inverse scales of float32 [rows, k] under a recipe that uses only this tensor."""
    require_cast(recipe)
    for what, extent, multiple in zip(("rows", "k"), x.shape, (recipe.rows_multiple, recipe.k_multiple)):
        if extent % multiple:
            raise ValueError(f"x: expected {what} divisible by {multiple}, got {extent}")
    return _cast_tiles(recipe, x)


def _step(recipe: Recipe, past: Tensor, amax: Tensor) -> Tensor:
    """TransformerEngine's delayed scaling after a cast: the past that follows, of the same layout.

    A past is the scale, the slot of this step, and the other slots from the oldest on.
    """
    current = torch.maximum(past[1].abs(), amax)
    slots = past[2:]
    most = current
    if recipe.amax_algorithm == "max" and slots.numel():
        most = torch.maximum(current, slots.amax())
    scaled_max = formats()[recipe.format].max_finite * 2.0**-recipe.margin
    scale = _quotient(scaled_max, most)
    scale = torch.where(scale.isinf(), _MOST, scale)
    scale = torch.where(most.isfinite() & (most > 0), scale, past[0])
    moved = torch.cat([slots, current[None]])[1:] if slots.numel() else slots
    new = torch.cat([scale[None], torch.zeros_like(scale)[None], moved])
    if recipe.zero_amax == "keep_history":
        new = torch.where(current == 0, past, new)
    return new


def _by_past(recipe: Recipe, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes and inverse scale under a delayed scale; the past that follows."""
    scale = past[0]
    codes = encoded(x * scale, recipe.format, recipe.profile)
    if x.numel() == 0:
        return codes, x.new_empty(0), _step(recipe, past, torch.zeros_like(scale))
    amax = largest_magnitudes(x, (0, 1), True)
    return codes, _quotient(1.0, scale)[None], _step(recipe, past, amax)


def cast(
    one: Cast, x: Tensor, past: Tensor, for_first: bool, for_second: bool
) -> tuple[TileCodes | None, TileCodes | None, Tensor]:
    """`Cast.cast` of a float32 matrix on a device: codes for both products, the past that follows."""
    if not (for_first or for_second):
        return None, None, past.clone()
    values = past.view(torch.float32)
    if values.numel() != one.past_size:
        raise ValueError(f"past: expected {one.past_size} values, got {values.numel()}")
    cut = len(one.initial)
    first, second, new = _one(one.recipe, x, values[:cut], for_first, for_second and one.second is None)
    second_past = values[cut:]
    if one.second is not None and for_second:
        _, second, second_past = _one(one.second_recipe, x, second_past, False, True)
    if one.second is not None and not for_first:
        new = values[:cut]
    return first, second, torch.cat([new, second_past]).view(torch.int32) if one.past_size else past.clone()


def _one(
    recipe: Recipe, x: Tensor, past: Tensor, as_it_is: bool, transposed: bool
) -> tuple[TileCodes | None, TileCodes | None, Tensor]:
    require_cast(recipe)
    first: Any = None
    second: Any = None
    if recipe.source == "delayed":
        codes, inverse, new = _by_past(recipe, x, past)
        first = codes, inverse
        # Memory of its own: what an operator returns may not overlap.
        second = codes.t().clone(memory_format=torch.contiguous_format), inverse.clone()
    else:
        new = past
        if as_it_is:
            codes, _, inverse = _cast_tiles(recipe, x)
            first = codes, inverse.reshape(-1)
        if transposed:
            codes, _, inverse = _cast_tiles(recipe, x.t().contiguous())
            second = codes, inverse.reshape(-1)
    return (first if as_it_is else None), (second if transposed else None), new
