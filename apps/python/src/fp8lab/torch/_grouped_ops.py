"""The operators `fp8lab::grouped_linear` and `grouped_linear_backward`.

Each group is a linear layer of its own: its operands are cast alone, with scales of their own. The
products of all groups are one grouped product of the library. Codes of groups have sizes of their
own, so they travel one after the other in vectors; shapes follow from the ends of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab import _core
from fp8lab._recipes import Recipe
from fp8lab.torch._device import require_cpu
from fp8lab.torch._engines import HOST
from fp8lab.torch._ops import refuse_second_derivative, require_floats
from fp8lab.torch._plan import Codes, Plan, array_of, plan_of, scale_count, threads

Shape = tuple[Any, Any]


def _bounds(ends: list[int]) -> Iterator[tuple[int, int, int]]:
    """Groups that have rows: number, first row, end."""
    start = 0
    for group, end in enumerate(ends):
        if end > start:
            yield group, start, end
        start = end


def _flat(codes: list[Codes]) -> tuple[Tensor, Tensor]:
    words = [one[0].reshape(-1) for one in codes]
    scales = [one[1] for one in codes]
    return (
        torch.from_numpy(np.concatenate([*words, np.empty(0, np.uint8)])),
        torch.from_numpy(np.concatenate([*scales, np.empty(0, np.float32)])),
    )


def _split(words: Tensor, scales: Tensor, recipe: Recipe, shapes: list[Shape]) -> list[Codes]:
    """The codes of each group again."""
    all_words, all_scales = array_of(words.contiguous()), array_of(scales.contiguous())
    codes = []
    at = scale_at = 0
    for rows, k in shapes:
        size, scales_here = rows * k, scale_count(recipe, rows, k)
        codes.append((
            all_words[at : at + size].reshape(rows, k),
            all_scales[scale_at : scale_at + scales_here],
        ))
        at, scale_at = at + size, scale_at + scales_here
    return codes


def _counted(recipe: Recipe, shapes: list[Shape], used: bool) -> tuple[Any, Any]:
    """How many codes and scales such vectors have."""
    words = scales = 0
    for rows, k in shapes if used else ():
        words, scales = words + rows * k, scales + scale_count(recipe, rows, k)
    return words, scales


def _past() -> Tensor:
    return torch.empty(0, dtype=torch.int32)


def _product(
    plan: Plan, name: str, a: tuple[Recipe, list[Codes]], b: tuple[Recipe, list[Codes]]
) -> NDArray[np.float32]:
    """The FP8 products of all groups, below each other."""
    d: NDArray[np.float32] = _core.grouped_linear_product(
        plan.settings[name],
        a[0]._core(),
        [one[0] for one in a[1]],
        [one[1] for one in a[1]],
        b[0]._core(),
        [one[0] for one in b[1]],
        [one[1] for one in b[1]],
        threads(),
    )
    return d


def _cut(d: NDArray[np.float32], sizes: list[tuple[int, int]], columns: int) -> list[NDArray[np.float32]]:
    """The rows of each group without those that pad it; sizes: rows, rows with padding."""
    parts = []
    at = 0
    for rows, padded in sizes:
        parts.append(d[at : at + rows, :columns])
        at += padded
    return parts


@torch.library.custom_op("fp8lab::grouped_linear", mutates_args=())
def grouped_linear(
    x: Tensor, weight: Tensor, ends: list[int], recipe: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Y [ends[-1], n] of x [tokens, k] and weight [groups, k, n]: rows of group g times weight[g].

    With it X's codes for wgrad and the weights' for dgrad, with scales. Y is rounded as a linear layer's.
    """
    for name, given in (("x", x), ("weight", weight)):
        require_cpu(name, given)
        require_floats(name, given)
    plan = plan_of(recipe)
    activation, weights = plan.casts["activation"], plan.casts["weight"]
    fp8 = plan.fp8["fprop"]
    firsts: list[Codes] = []
    seconds: list[Codes] = []
    w_firsts: list[Codes] = []
    w_seconds: list[Codes] = []
    plain: list[NDArray[np.float32]] = []
    sizes = []
    for group, start, end in _bounds(ends):
        values, turned = plan.matrix(x[start:end]), plan.matrix(weight[group].t())
        first, second, _ = activation.cast(values, _past(), activation.for_first, activation.for_second)
        w_first, w_second, _ = weights.cast(turned, _past(), weights.for_first, weights.for_second)
        for to, codes in ((firsts, first), (seconds, second), (w_firsts, w_first), (w_seconds, w_second)):
            if codes is not None:
                to.append(codes)
        sizes.append((end - start, len(values)))
        if not fp8:
            plain.append(plan.plain_product("fprop", values, turned))
    if fp8 and sizes:
        d = _product(plan, "fprop", (activation.recipe, firsts), (weights.recipe, w_firsts))
        plain = _cut(d, sizes, weight.shape[2])
    parts = [part[:rows, : weight.shape[2]] for part, (rows, _) in zip(plain, sizes, strict=True)]
    whole = np.concatenate([*parts, np.empty((0, weight.shape[2]), np.float32)])
    y = HOST.rounded(whole, x.dtype, plan.recipe.bf16_outputs).detach()  # not as a view, which must not change in place
    return y, *_flat(seconds), *_flat(w_seconds)


def _sizes(plan: Plan, ends: list[int]) -> list[Any]:
    """Rows of each group that has some, with padding."""
    return [plan.padded(end - start) for _, start, end in _bounds(ends)]


@grouped_linear.register_fake
def _(x: Tensor, weight: Tensor, ends: list[int], recipe: str) -> tuple[Tensor, ...]:
    plan = plan_of(recipe)
    activation, weights = plan.casts["activation"], plan.casts["weight"]
    k, n = plan.padded(weight.shape[1]), plan.padded(weight.shape[2])
    rows = _sizes(plan, ends)
    x_sizes = _counted(activation.second_recipe, [(k, size) for size in rows], activation.for_second)
    w_sizes = _counted(weights.second_recipe, [(k, n) for _ in rows], weights.for_second)
    made = [x.new_empty(((ends[-1] if ends else 0), weight.shape[2]))]
    for words, scales in (x_sizes, w_sizes):
        made.append(x.new_empty(words, dtype=torch.uint8))
        made.append(x.new_empty(scales, dtype=torch.float32))
    return tuple(made)


@torch.library.custom_op("fp8lab::grouped_linear_backward", mutates_args=())
def grouped_linear_backward(
    dy: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    xt_codes: Tensor,
    xt_scales: Tensor,
    wt_codes: Tensor,
    wt_scales: Tensor,
    ends: list[int],
    recipe: str,
    groups: int,
    in_features: int,
    need_dx: bool,
    need_dw: bool,
) -> tuple[Tensor, Tensor]:
    """dX [ends[-1], k] in dY's dtype and dW [groups, k, n] in float32; empty what is not needed.

    x and weight are given where their product is not in FP8.
    """
    require_cpu("dy", dy)
    plan = plan_of(recipe)
    gradient, activation, weights = (plan.casts[role] for role in ("gradient", "activation", "weight"))
    out = dy.shape[1]
    k, n = plan.padded(in_features), plan.padded(out)
    firsts: list[Codes] = []
    seconds: list[Codes] = []
    dx_parts: list[NDArray[np.float32]] = []
    dw_parts: list[NDArray[np.float32]] = []
    sizes = []
    for group, start, end in _bounds(ends):
        values = plan.matrix(dy[start:end])
        first, second, _ = gradient.cast(
            values, _past(), need_dx and gradient.for_first, need_dw and gradient.for_second
        )
        sizes.append((end - start, len(values)))
        if first is not None:
            firsts.append(first)
        elif need_dx:
            assert weight is not None
            turned = plan.matrix(weight[group].t())
            dx_parts.append(plan.plain_product("dgrad", values, turned, b_transposed=True))
        if second is not None:
            seconds.append(second)
        elif need_dw:
            assert x is not None
            dw_parts.append(plan.plain_product("wgrad", values, plan.matrix(x[start:end]), True, True))
    dx, dw = dy.new_empty(0), torch.empty((0, 0, 0))
    if need_dx:
        if firsts:
            right = _split(wt_codes, wt_scales, weights.second_recipe, [(k, n) for _ in sizes])
            d = _product(plan, "dgrad", (gradient.recipe, firsts), (weights.second_recipe, right))
            dx_parts = _cut(d, sizes, in_features)
        parts = [part[:rows, :in_features] for part, (rows, _) in zip(dx_parts, sizes, strict=True)]
        whole = np.concatenate([*parts, np.empty((0, in_features), np.float32)])
        dx = HOST.rounded(whole, dy.dtype, plan.recipe.bf16_outputs)
    if need_dw:
        if seconds:
            shapes = [(k, padded) for _, padded in sizes]
            right = _split(xt_codes, xt_scales, activation.second_recipe, shapes)
            left = (gradient.second_recipe, seconds)
            d = _product(plan, "wgrad", left, (activation.second_recipe, right))
            dw_parts = _cut(d, [(out, n) for _ in sizes], in_features)
        whole = np.zeros((groups, in_features, out), np.float32)
        for part, (group, _, _) in zip(dw_parts, _bounds(ends), strict=True):
            whole[group] = part[:out, :in_features].T
        dw = torch.from_numpy(whole)
    return dx, dw


@grouped_linear_backward.register_fake
def _(dy: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_, groups, in_features, need_dx, need_dw = others
    dx = dy.new_empty((dy.shape[0], in_features)) if need_dx else dy.new_empty(0)
    shape = (groups, in_features, dy.shape[1]) if need_dw else (0, 0, 0)
    return dx, dy.new_empty(shape, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, ends, recipe = inputs
    plan = plan_of(recipe)
    ctx.mark_non_differentiable(*output[1:])
    kept = (None if plan.fp8["wgrad"] else x, None if plan.fp8["dgrad"] else weight)
    ctx.save_for_backward(*kept, *output[1:])
    ctx.ends, ctx.recipe = ends, recipe
    ctx.rows, ctx.shape, ctx.weight_dtype = x.shape[0], weight.shape, weight.dtype


def _backward(ctx: Any, dy: Tensor, *unused: Any) -> tuple[Any, ...]:
    refuse_second_derivative()
    need_dx, need_dw = ctx.needs_input_grad[:2]
    groups, in_features, _ = ctx.shape
    dx, dw = torch.ops.fp8lab.grouped_linear_backward(
        dy, *ctx.saved_tensors, ctx.ends, ctx.recipe, groups, in_features, need_dx, need_dw
    )
    if need_dx:
        dx = torch.cat([dx, dx.new_zeros((ctx.rows - dx.shape[0], in_features))])
    return dx if need_dx else None, dw.to(ctx.weight_dtype) if need_dw else None, None, None


grouped_linear.register_autograd(_backward, setup_context=_setup_context)
