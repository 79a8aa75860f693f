"""Grouped and batched products, as for a mixture of experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import fp8lab.torch._grouped_ops  # noqa: F401  (defines the operators)
from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab.torch._platforms import given_or
from fp8lab.torch._plan import plan_of, text_of


def _product(x: Tensor, weight: Tensor, ends: list[int], text: str) -> Tensor:
    y: Tensor = torch.ops.fp8lab.grouped_linear(x, weight, ends, text)[0]
    return y


def _text(recipe: str | LinearRecipe, hardware: str | None) -> str:
    text = text_of(linear_recipe(recipe, hardware=hardware))
    for role, cast in plan_of(text).casts.items():
        if cast.past_size:
            raise ValueError(f"recipe: expected one that uses only the current tensor, got {cast.recipe.source} for {role}")
    return text


# torch.compile cannot look into the library. `torch.compiler.assume_constant_result` sets the same
# mark, and imports the compiler, which takes longer than torch itself.
_text._dynamo_marked_constant = True  # type: ignore[attr-defined]


def grouped_mm(
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    *,
    recipe: str | LinearRecipe = "deepgemm",
    hardware: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Products of groups of tokens with their experts, in the shapes of `torch._grouped_mm`.

    x [tokens, k], weight [groups, k, n] and offs [groups], the ends of the groups' rows, give
    [tokens, n]; rows after the last group are 0. x [groups, m, k] without offs gives [groups, m,
    n]. Each group is a separate linear layer with its own scales, and its gradients run under the
    recipe too. recipe and hardware as for `fp8lab.linear_recipe`; the recipe must use only the
    current tensor. Codes are computed at each call. out: a tensor for the result, of the result's
    dtype, without gradients. ValueError for arguments that do not fit.

    >>> import torch, fp8lab.torch
    >>> x, experts = torch.randn(6, 128), torch.randn(2, 128, 64)
    >>> fp8lab.torch.grouped_mm(x, experts, torch.tensor([4, 6], dtype=torch.int32)).shape
    torch.Size([6, 64])
    """
    text = _text(recipe, hardware)
    if weight.dim() != 3 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"weight: expected [groups, {x.shape[-1]}, n], got {list(weight.shape)}")
    if offs is None:
        if x.dim() != 3 or len(x) != len(weight):
            raise ValueError(f"x: expected [{len(weight)}, m, k] without offs, got {list(x.shape)}")
        count, rows, _ = x.shape
        y = _product(x.flatten(0, 1), weight, [rows * (group + 1) for group in range(count)], text)
        return given_or(out, y.reshape(count, rows, weight.shape[2]), "grouped_mm", x, weight)
    ends = _ends(offs, x, weight)
    y = _product(x, weight, ends, text)
    rest = x.new_zeros((len(x) - ends[-1], weight.shape[2]))
    return given_or(out, torch.cat([y, rest]), "grouped_mm", x, weight)


def _ends(offs: Tensor, x: Tensor, weight: Tensor) -> list[Any]:
    ends = offs.tolist()
    if x.dim() != 2:
        raise ValueError(f"x: expected [tokens, k] with offs, got {list(x.shape)}")
    if len(ends) != len(weight) or not ends or sorted([0, *ends, len(x)]) != [0, *ends, len(x)]:
        expected = f"{len(weight)} ends of groups, rising to at most {len(x)}"
        raise ValueError(f"offs: expected {expected}, got {ends}")
    return ends
