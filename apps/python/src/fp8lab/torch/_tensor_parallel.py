"""Linear layers whose weight is a `DTensor`: column-wise, row-wise and replicated, as `parallelize_module` makes them.

Each rank casts and multiplies what it has. Sums over ranks are torch's own: rounded partial outputs
are added, as real systems add them.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from fp8lab.torch._plan import ROLES, plan_of

AMAX_OF = ("shard", "whole")


def is_distributed(*tensors: Tensor | None) -> bool:
    """Whether one is a DTensor; the module that has them is not imported for that."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(x, module.DTensor) for x in tensors)


def require_amax_of(value: str) -> None:
    if value not in AMAX_OF:
        raise ValueError(f"amax: expected {' or '.join(AMAX_OF)}, got {value!r}")


def linear_of_shards(layer: Any, x: Tensor, weight: Any, bias: Any) -> Any:
    """x [..., in] times weight [out, in], each rank its shard; the output is placed as by torch's layers."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    if not isinstance(weight, DTensor):
        raise NotImplementedError("weight: expected a DTensor, as x is, got a tensor; parallelize the layer too")
    mesh = weight.device_mesh
    if mesh.ndim != 1 or not (weight.placements[0].is_replicate() or weight.placements[0] in (Shard(0), Shard(1))):
        raise NotImplementedError(
            f"weight: expected a mesh of one dimension and Shard(0), Shard(1) or Replicate(), got {weight.placements}"
        )
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    last, placement = x.dim() - 1, weight.placements[0]
    # Of all ranks, whose shards need not be alike.
    shape = torch.Size([*x.shape[:-1], weight.shape[0]])
    stride = torch.empty(shape, device="meta").stride()
    whole = Whole(layer, mesh.get_group()) if layer._fp8_amax_of == "whole" else None
    if placement == Shard(0):
        x = x.redistribute(placements=[Replicate()])
        own_bias = None if bias is None else bias.redistribute(placements=[Shard(0)]).to_local()
        y = _local(layer, whole, x.to_local(grad_placements=[Partial()]), weight.to_local(), own_bias, gradient=True)
        return DTensor.from_local(y, mesh, [Shard(last)], run_check=False, shape=shape, stride=stride)
    if placement == Shard(1):
        x = x.redistribute(placements=[Shard(last)])
        y = _local(layer, whole, x.to_local(), weight.to_local(), None, activation=True)
        total = DTensor.from_local(y, mesh, [Partial()], run_check=False)
        return total if bias is None else total.redistribute(placements=[Replicate()]) + bias
    if x.placements[0].is_partial() or x.placements[0] == Shard(last):
        x = x.redistribute(placements=[Replicate()])
    where = x.placements[0]
    # Rows of a sequence are dealt out: each rank has a part of the weight's gradient.
    grads = [Replicate() if where.is_replicate() else Partial()]
    own = [None if p is None else p.to_local(grad_placements=grads) for p in (weight, bias)]
    rows = not where.is_replicate()
    y = _local(layer, whole, x.to_local(), own[0], own[1], activation=rows, weight_is_whole=True, gradient=rows)
    return DTensor.from_local(y, mesh, [where], run_check=False, shape=shape, stride=stride)


def _local(
    layer: Any, whole: Whole | None, x: Tensor, weight: Tensor, bias: Tensor | None, *,
    activation: bool = False, gradient: bool = False, weight_is_whole: bool = False,
) -> Tensor:
    """One rank's product; activation, gradient: whether that operand is one shard of several."""
    if whole is None:
        y: Tensor = layer._fp8_linear(x, weight, bias)
        return y
    return whole.linear(x, weight, bias, activation, not weight_is_whole, gradient)


class Whole:
    """Scales from the amax of the whole tensor, of which a rank has one shard.

    The amax of all ranks stands in a row of its own below the shard, which is cast with it; what it
    adds to products are zeros, or rows and columns that are cut off.
    """

    def __init__(self, layer: Any, group: Any) -> None:
        self.layer, self.group = layer, group
        for role in ROLES:
            cast = plan_of(layer._fp8_text).casts[role]
            for recipe in (cast.recipe, cast.second_recipe) if cast.is_used else ():
                if recipe.source != "current" or recipe.row_block or recipe.k_block:
                    raise NotImplementedError(
                        "amax: expected 'shard', or a recipe with one scale a tensor from that tensor alone, got "
                        f"'whole' with {layer._fp8_recipe.name} (the {role}); reduced_amaxes does it for delayed "
                        "scales, and tiles that lie within shards have the same amax either way"
                    )

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: bool, sharded_weight: bool, gradient: bool
    ) -> Tensor:
        out, shape = weight.shape[0], x.shape
        rows = x.reshape(-1, shape[-1])
        more_rows = torch.cat([rows, self._row(rows, activation), self._row(rows, False)])
        more_weight = torch.cat([weight, self._row(weight, sharded_weight)])
        more_bias = None if bias is None else torch.cat([bias, bias.new_zeros(1)])
        y = self.layer._fp8_linear(more_rows, more_weight, more_bias)
        cut: Tensor = _Cut.apply(y, out, self.group if gradient else None)  # type: ignore[no-untyped-call]
        return cut.reshape(*shape[:-1], out)

    def _row(self, x: Tensor, sharded: bool) -> Tensor:
        row = x.detach().new_zeros((1, x.shape[1]))
        if sharded:
            row[0, 0] = amax_of_all(x, self.group)
        return row


def amax_of_all(x: Tensor, group: Any) -> Tensor:
    """The largest magnitude on all ranks; a NaN counts for nothing."""
    import torch.distributed as dist

    amax = x.detach().abs().nan_to_num(nan=0.0, posinf=float("inf")).amax() if x.numel() else x.new_zeros(())
    amax = amax.float()
    dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=group)
    return amax.to(x.dtype)


class _Cut(torch.autograd.Function):
    """The output without what stands below and beside it.

    Its gradient has the amax of all ranks in a place that no product keeps.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, columns: int, group: Any) -> Tensor:
        ctx.shape, ctx.group = y.shape, group
        return y[:-2, :columns].clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        more = dy.new_zeros(ctx.shape)
        more[: len(dy), : dy.shape[1]] = dy
        if ctx.group is not None:
            more[-1, -1] = amax_of_all(dy, ctx.group)
        return more, None, None
