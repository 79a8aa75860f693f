"""`torch._scaled_grouped_mm` and `torch.nn.functional.scaled_grouped_mm`, a product a group, with the bits of a platform.

That a group has the bits of one product with scales of rows is *assumed*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fp8lab.torch._scale_recipes import SCALING, as_list
from fp8lab.torch._scaled_mm import scaled_mm

_One = tuple[Tensor, Tensor, Tensor, Tensor]


def _groups(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor | None) -> Iterator[_One]:
    """Operands and scales of each group: of rows of A, of columns of B, of K, or of a batch."""
    if offs is None:
        yield from zip(a.unbind(0), b.unbind(0), scale_a.unbind(0), scale_b.unbind(0), strict=True)
        return
    start = 0
    for group, end in enumerate(offs.tolist()):
        part = slice(start, max(start, end))
        if a.dim() == b.dim():
            m, n = a.shape[0], b.shape[1]
            rows, columns = slice(group * m, (group + 1) * m), slice(group * n, (group + 1) * n)
            yield a[:, part], b[part], scale_a[rows], scale_b[columns]
        elif a.dim() == 2:
            yield a[part], b[group], scale_a[part], scale_b[group]
        else:
            yield a[group], b[:, part], scale_a[group], scale_b[part]
        start = max(start, end)


def scaled_grouped_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
    *, platform: str, **how: Any,
) -> Tensor:
    """E4M3 operands with float32 scales of rows; BF16 out, rows or columns of no group 0. Torch's own checks come first."""
    from torch._meta_registrations import meta_scaled_grouped_mm

    if torch.float32 not in (scale_a.dtype, scale_b.dtype):
        raise NotImplementedError(f"scale_a: expected float32 scales of rows, got {scale_a.dtype}")
    out: Tensor = meta_scaled_grouped_mm(a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum)
    made = [
        scaled_mm(
            x, w, x_scale.reshape(-1, 1), w_scale.reshape(1, -1), out_dtype=torch.bfloat16,
            use_fast_accum=use_fast_accum, platform=platform, **how,
        )
        for x, w, x_scale, w_scale in _groups(a, b, scale_a, scale_b, offs)
    ]
    if a.dim() == b.dim():
        return torch.stack(made)
    along = 0 if a.dim() == 2 else 1
    whole = torch.zeros(out.shape, dtype=torch.bfloat16)
    whole.narrow(along, 0, sum(one.shape[along] for one in made)).copy_(torch.cat(made, along))
    return whole


def scaled_grouped_mm_v2(
    a: Tensor, b: Tensor, scale_a: list[Tensor], recipe_a: list[int], swizzle_a: list[int], scale_b: list[Tensor],
    recipe_b: list[int], swizzle_b: list[int], offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None, contraction_dim: tuple[int, ...] = (), use_fast_accum: bool = False,
    *, out: Tensor | None = None, **how: Any,
) -> Tensor:
    """The operator behind `torch.nn.functional.scaled_grouped_mm`, with scales of rows."""
    names = [[SCALING[int(number)] for number in as_list(recipe)] for recipe in (recipe_a, recipe_b)]
    if names != [["RowWise"], ["RowWise"]]:
        raise NotImplementedError(f"scale_recipe_a: expected RowWise for both operands, got {names[0]} and {names[1]}")
    y = scaled_grouped_mm(a, b, scale_a[0], scale_b[0], offs, bias, None, out_dtype, use_fast_accum, **how)
    return y if out is None else out.resize_(y.shape).copy_(y)
