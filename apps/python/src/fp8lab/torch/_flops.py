"""How many FLOPs of a pass run in FP8, counted by torch's FLOP counter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fp8lab.torch import _grouped_ops, _scaled_mm, _tiled_mm  # noqa: F401  (defines the operators)


@dataclass(frozen=True)
class Flops:
    """FLOPs of a pass: two for each product of two numbers; of matrix products and attention alone."""

    total: int
    fp8: int  #: in fp8lab's own products, whatever their recipe runs them in

    @property
    def share(self) -> float:
        return self.fp8 / self.total if self.total else 0.0


def _linear(x: Any, weight: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * math.prod(x) * weight[0]


def _linear_backward(dy: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    in_features, need_dx, need_dw = args[8:11]
    return 2 * math.prod(dy) * in_features * (need_dx + need_dw)


def _grouped(x: Any, weight: Any, ends: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * (ends[-1] if ends else 0) * weight[1] * weight[2]


def _grouped_backward(dy: Any, *args: Any, **kwargs: Any) -> int:
    in_features, need_dx, need_dw = args[9:12]
    return 2 * math.prod(dy) * in_features * (need_dx + need_dw)


def _scaled(a: Any, b: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * a[0] * a[1] * b[1] * (2 if any(str(one).startswith("e2m1 ") for one in args) else 1)


@functools.cache
def register_formulas() -> frozenset[Any]:
    """Tells torch's FLOP counter what fp8lab's operators compute. The counter's import takes as long as torch's."""
    from torch.utils.flop_counter import register_flop_formula

    ops = torch.ops.fp8lab
    formulas: dict[Any, Callable[..., int]] = {
        ops.linear: _linear,
        ops.linear_backward: _linear_backward,
        ops.grouped_linear: _grouped,
        ops.grouped_linear_backward: _grouped_backward,
        ops.scaled_mm: _scaled,
        ops.scaled_mm_tiles: _scaled,
    }
    for op, formula in formulas.items():
        register_flop_formula(op)(formula)
    return frozenset(formulas)


def flops(model: nn.Module | Callable[..., Any], batch: Any, *, backward: bool = False) -> Flops:
    """Counts the FLOPs of a batch in a model, and those in products that `convert` or `autocast` runs.

    batch: as for `compare`. backward: also those of the backward pass of the output's sum, or of
    its `.loss`. Attention's scores and other products in high precision count to the total alone.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 32))
    >>> fp8lab.torch.convert(model, filter=lambda name, module: name == "0")[0].recipe.name
    'te-current'
    >>> fp8lab.torch.flops(model, torch.ones(8, 32))
    Flops(total=65536, fp8=32768)
    """
    from torch.utils.flop_counter import FlopCounterMode

    from fp8lab.torch._seeing import call

    own = register_formulas()
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
        output = call(model, batch)
        if backward:
            loss = getattr(output, "loss", None)
            (output.sum() if loss is None else loss).backward()
    counts: Mapping[Any, int] = counter.get_flop_counts()["Global"]
    return Flops(counter.get_total_flops(), sum(count for op, count in counts.items() if op in own))
