"""A linear recipe made ready for the operators: what is cast, how large, and what it remembers."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._linear import LinearRecipe, recipe_of_fields
from fp8lab._recipes import Recipe

ROLES = ("activation", "weight", "gradient")
# The products that an operand enters: as it is, and transposed.
PRODUCTS = {
    "activation": ("fprop", "wgrad"),
    "weight": ("fprop", "dgrad"),
    "gradient": ("dgrad", "wgrad"),
}

Codes = tuple[NDArray[np.uint8], NDArray[np.float32]]


def text_of(recipe: LinearRecipe) -> str:
    """The recipe as an operator takes it: operators know no classes."""
    return json.dumps(dataclasses.asdict(recipe))


def array_of(x: torch.Tensor) -> NDArray[Any]:
    """The memory of a CPU tensor. After `.numpy()` torch could not resize it, as FSDP does to free it."""
    array: NDArray[Any] = np.from_dlpack(x.detach())
    return array


def threads() -> int:
    return torch.get_num_threads()


class Cast:
    """One operand: its recipes for the two products that it enters, and their pasts."""

    def __init__(self, role: str, recipe: LinearRecipe) -> None:
        first, second = PRODUCTS[role]
        other: Recipe | None = getattr(recipe, f"{role}_for_{second}")
        self.recipe: Recipe = getattr(recipe, role)
        self.second_recipe: Recipe = other or self.recipe
        self.first = self.recipe._core()
        self.second = None if other is None else other._core()
        self.for_first = getattr(recipe, first).arithmetic == "fp8"
        self.for_second = getattr(recipe, second).arithmetic == "fp8"
        self.is_used = self.for_first or self.for_second
        self.initial = _core.initial_past(self.first)
        self.second_initial = (
            np.empty(0, np.float32) if self.second is None else _core.initial_past(self.second)
        )
        self.is_calibrated = self.recipe.source in ("calibration", "momentum")
        self.past_size = (len(self.initial) + len(self.second_initial)) * self.is_used

    def initial_past(self) -> torch.Tensor:
        """As a buffer holds it: bits, which a model's `.half()` leaves alone."""
        past = np.concatenate([self.initial, self.second_initial])[: self.past_size]
        return torch.from_numpy(past.view(np.int32).copy())

    def split(self, past: torch.Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        values = array_of(past).view(np.float32)
        if len(values) != self.past_size:
            raise ValueError(f"past: expected {self.past_size} values, got {len(values)}")
        return values[: len(self.initial)], values[len(self.initial) :]

    def joined(self, first: NDArray[np.float32], second: Any) -> torch.Tensor:
        if self.past_size == 0:
            return torch.empty(0, dtype=torch.int32)
        both = first if second is None else np.concatenate([first, second])
        return torch.from_numpy(both.view(np.int32))

    def cast(
        self, x: NDArray[np.float32], past: torch.Tensor, for_first: bool, for_second: bool
    ) -> tuple[Codes | None, Codes | None, torch.Tensor]:
        """Codes for the first product and, transposed, for the second; the past that follows."""
        if not (for_first or for_second):
            return None, None, past.clone()
        old, second_old = self.split(past)
        if self.is_calibrated and np.array_equal(old, self.initial):
            raise ValueError(
                "model: expected a batch inside fp8lab.torch.calibrate(model) first, since the recipe's "
                "scales are calibrated, got none"
            )
        first, second, new, second_new = _core.linear_cast(
            self.first, self.second, x, for_first, for_second, old, second_old, threads()
        )
        return first, second, self.joined(new, second_new)

    def observed(self, x: NDArray[np.float32], past: torch.Tensor) -> torch.Tensor:
        """The past after a calibration batch."""
        old, second_old = self.split(past)
        new = _core.observed_past(self.first, x, old)
        second = None if self.second is None else _core.observed_past(self.second, x, second_old)
        return self.joined(new, second)


class Plan:
    """All that an operator needs of a recipe."""

    def __init__(self, text: str) -> None:
        self.recipe = recipe_of_fields(json.loads(text))
        self.core = self.recipe._core()
        self.settings = {p: getattr(self.recipe, p)._core() for p in ("fprop", "dgrad", "wgrad")}
        self.fp8 = {p: getattr(self.recipe, p).arithmetic == "fp8" for p in self.settings}
        self.casts = {role: Cast(role, self.recipe) for role in ROLES}
        self.multiple = 1
        for cast in self.casts.values():
            for one in (cast.recipe, cast.second_recipe) if cast.is_used else ():
                self.multiple = math.lcm(self.multiple, one.rows_multiple, one.k_multiple)

    def padded(self, size: Any) -> Any:
        """A size as the system takes it: the next multiple of what its kernels ask for."""
        return (size + self.multiple - 1) // self.multiple * self.multiple

    def padded_matrix(self, x: torch.Tensor) -> torch.Tensor:
        """Any tensor as contiguous [rows, k] in binary32, with zeros up to the padded sizes."""
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        down, across = self.padded(rows.shape[0]), self.padded(rows.shape[1])
        if (down, across) != tuple(rows.shape):
            rows = torch.nn.functional.pad(
                rows, (0, across - rows.shape[1], 0, down - rows.shape[0])
            )
        return rows.contiguous()

    def matrix(self, x: torch.Tensor) -> NDArray[np.float32]:
        """The same of a CPU tensor, as an array."""
        return array_of(self.padded_matrix(x))

    def product(
        self, name: str, a: tuple[Recipe, Codes], b: tuple[Recipe, Codes]
    ) -> NDArray[np.float32]:
        """The FP8 product of codes [m, k] and [n, k]: binary32 [m, n]."""
        d = np.empty((len(a[1][0]), len(b[1][0])), np.float32)
        _core.linear_product(
            self.settings[name], a[0]._core(), *a[1], b[0]._core(), *b[1], d, threads()
        )
        return d

    def plain_product(
        self,
        name: str,
        a: NDArray[np.float32],
        b: NDArray[np.float32],
        a_transposed: bool = False,
        b_transposed: bool = False,
    ) -> NDArray[np.float32]:
        """The same in BF16 or FP32 of the values themselves."""
        m, n = a.shape[1 if a_transposed else 0], b.shape[1 if b_transposed else 0]
        d = np.empty((m, n), np.float32)
        _core.plain_product(
            self.core, self.settings[name], a, a_transposed, b, b_transposed, d, threads()
        )
        return d


@functools.lru_cache(maxsize=256)
def plan_of(text: str) -> Plan:
    return Plan(text)


def scale_count(recipe: Recipe, rows: Any, k: Any) -> Any:
    """How many inverse scales an operand has: one a tile, and the tensor's where there are two levels."""
    down, across = tiles(recipe, rows, k)
    return down * across + int(_core.is_two_level(recipe.rule))


def tiles(recipe: Recipe, rows: Any, k: Any) -> tuple[Any, Any]:
    """The shape of an operand's scales."""

    def count(size: Any, block: int) -> Any:
        return 1 if block == 0 else (size + block - 1) // block

    return count(rows, recipe.row_block), count(k, recipe.k_block)
