"""What the callbacks run: a linear layer's three products on NumPy arrays."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._casts import encode
from fp8lab._linear import LinearRecipe
from fp8lab._mode import in_own_mode
from fp8lab._recipes import Recipe

#: The operands of a product, and whether each is transposed first: the recipe of its role casts it.
OPERANDS = {
    "fprop": (("activation", False), ("weight", False)),
    "dgrad": (("gradient", False), ("weight", True)),
    "wgrad": (("gradient", True), ("activation", True)),
}
_NO_PAST = np.empty(0, np.float32)
_WORDS = {np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16"}


class Products:
    """A linear recipe made ready, whose scales come from the tensors themselves."""

    def __init__(self, recipe: LinearRecipe) -> None:
        self.recipe = recipe
        self.core = recipe._core()
        self.settings = {name: getattr(recipe, name)._core() for name in OPERANDS}
        self.multiple = 1
        for name in OPERANDS:
            for one in self.casts(name):
                self.multiple = math.lcm(self.multiple, one.rows_multiple, one.k_multiple)

    def casts(self, name: str) -> list[Recipe]:
        """The recipes of a product's operands, if they are cast."""
        if getattr(self.recipe, name).arithmetic != "fp8":
            return []
        return [
            (turned and getattr(self.recipe, f"{role}_for_{name}")) or getattr(self.recipe, role)
            for role, turned in OPERANDS[name]
        ]

    def _padded(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """In binary32, with zeros up to the sizes that the system's kernels ask for."""
        after = [(0, -size % self.multiple) for size in x.shape]
        return np.ascontiguousarray(np.pad(x.astype(np.float32), after))

    def product(self, name: str, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float32]:
        """The product of two matrices, before the rounding to the type of its output."""
        turned = [turn for _, turn in OPERANDS[name]]
        rows = [x.shape[1 if turn else 0] for x, turn in zip((a, b), turned, strict=True)]
        if a.size == 0 or b.size == 0:
            return np.zeros(rows, np.float32)
        left, right = self._padded(a), self._padded(b)
        casts = self.casts(name)
        d = np.empty([size + -size % self.multiple for size in rows], np.float32)
        if casts:
            core = [recipe._core() for recipe in casts]
            (x, x_scales), (w, w_scales) = (
                _core.linear_cast(one, None, values, not turn, turn, _NO_PAST, _NO_PAST, 0)[turn]
                for one, values, turn in zip(core, (left, right), turned, strict=True)
            )
            _core.linear_product(
                self.settings[name], core[0], x, x_scales, core[1], w, w_scales, d, 0
            )
        else:
            _core.plain_product(
                self.core, self.settings[name], left, turned[0], right, turned[1], d, 0
            )
        return d[: rows[0], : rows[1]]

    def rounded(self, name: str, d: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
        """One rounding to the nearest, ties to even; weight gradients of float32 keep all bits."""
        d = np.ascontiguousarray(d)
        if dtype == np.float32:
            if self.recipe.bf16_outputs and name != "wgrad":
                _core.round_to_bf16(d, 0)
            return d
        return encode(d, _WORDS[dtype], profile="nvidia_nosat", dtype=np.uint16).view(dtype)


@functools.lru_cache(maxsize=256)
def products_of(recipe: LinearRecipe) -> Products:
    return Products(recipe)


@dataclass(frozen=True)
class Product:
    """Products of [..., rows, columns]: one of each pair of matrices, leading sizes broadcast.

    The threads of XLA flush subnormals; here they take part, and every conversion is done here.
    """

    recipe: LinearRecipe
    name: str
    dtype: np.dtype[Any]

    def rows(self, a: Any, b: Any) -> tuple[int, ...]:
        """The shape of one product."""
        turned = (turn for _, turn in OPERANDS[self.name])
        return tuple(x.shape[-1 if turn else -2] for x, turn in zip((a, b), turned, strict=True))

    @in_own_mode
    def __call__(self, a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any]]:
        products = products_of(self.recipe)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
        right = np.broadcast_to(b, (*batch, *b.shape[-2:]))
        result = np.empty((*batch, *self.rows(a, b)), self.dtype)
        for at in itertools.product(*map(range, batch)):
            d = products.product(self.name, left[at], right[at])
            result[at] = products.rounded(self.name, d, self.dtype)
        return (result,)


@dataclass(frozen=True)
class Cast:
    """Codes, scales, inverse scales, and the tensor's of [..., rows, k], each matrix by itself."""

    recipe: Recipe

    @in_own_mode
    def __call__(self, x: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        quantizer = _core.Quantizer(self.recipe._core())
        matrices = x.reshape(-1, *x.shape[-2:]).astype(np.float32)
        found = [quantizer.quantize(np.ascontiguousarray(one), False, 0) for one in matrices]
        names = ("codes", "scales", "inverse_scales", "tensor_inverse_scale")
        parts = [np.stack([np.asarray(one[name]) for one in found]) for name in names]
        parts[-1] = parts[-1].astype(np.float32)
        return tuple(part.reshape((*x.shape[:-2], *part.shape[1:])) for part in parts)
