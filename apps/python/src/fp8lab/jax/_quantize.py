"""Casts under the recipe of one tensor."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import DTYPES, bad, text
from fp8lab._recipes import Recipe
from fp8lab.jax import _host
from fp8lab.jax._callback import call
from fp8lab.jax._products import require_floats


class Quantized(NamedTuple):
    """Codes with their scales: value = code * inverse_scale * tensor_inverse_scale."""

    codes: Array  #: as x; the format's dtype where JAX has it, else uint8 of one code each
    scales: Array  #: float32 [tile rows, tile columns], multiply values before the cast
    inverse_scales: Array  #: of the same shape, multiply codes
    tensor_inverse_scale: Array  #: float32 []: the second level of NVFP4, else 1


def _tiles(size: int, block: int) -> int:
    return min(size, 1) if block == 0 else -(-size // block)


def quantize(
    x: ArrayLike, preset: str | Recipe = "te-current", role: str = "activation"
) -> Quantized:
    """Codes and scales of x [..., k], all other dimensions as rows, as `fp8lab.quantize` gives them.

    x: float32, bfloat16 or float16. Under `jax.vmap` each slice is a tensor of its own. No gradient
    passes: cast `jax.lax.stop_gradient(x)` where one is taken. ValueError for recipes with scales of
    earlier tensors, and for sizes that the system refuses.

    >>> import jax.numpy as jnp, fp8lab.jax
    >>> q = fp8lab.jax.quantize(jnp.array([[1.0, -2.0, 3.5]]))
    >>> q.codes.astype(jnp.float32), float(q.inverse_scales[0, 0])
    (Array([[ 128., -256.,  448.]], dtype=float32), 0.0078125)
    """
    recipe = preset
    if not isinstance(recipe, Recipe):
        recipe = Recipe(**_core.find_recipe(text("preset", preset), text("role", role)))
    if recipe.source != "current":
        raise bad("preset", "a recipe that uses only the current tensor", recipe.source)
    array = require_floats("x", x)
    if array.ndim == 0:
        raise bad("x", "a dimension k", "a number")
    rows, k = math.prod(array.shape[:-1]), array.shape[-1]
    for name, size, multiple in (("rows", rows, recipe.rows_multiple), ("k", k, recipe.k_multiple)):
        if size % multiple:
            raise bad("x", f"{name} divisible by {multiple}", size)
    tiles = (_tiles(rows, recipe.row_block), _tiles(k, recipe.k_block))
    floats = functools.partial(jax.ShapeDtypeStruct, dtype=np.float32)
    codes, scales, inverse, tensor = call(
        _host.Cast(recipe),
        [jax.ShapeDtypeStruct((rows, k), np.uint8), floats(tiles), floats(tiles), floats(())],
        array.reshape(rows, k),
    )
    if recipe.format.startswith(("e4m3", "e5m2")):
        codes = jax.lax.bitcast_convert_type(codes, DTYPES[recipe.format])
    return Quantized(codes.reshape(array.shape), scales, inverse, tensor)
