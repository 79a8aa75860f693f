"""Delayed scales over several processes: one amax for all ranks, as TransformerEngine reduces it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fp8lab.torch._convert import layers
from fp8lab.torch._device import require_cpu
from fp8lab.torch._layers import Fp8Layer
from fp8lab.torch._plan import ROLES, plan_of


class _Amaxes:
    """The largest magnitude of each operand of the layers since the last update."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = list(layers(model).values())
        self.slots = {(layer, role): i for i, (layer, role) in enumerate(self._delayed())}
        if not self.slots:
            raise ValueError("model: expected a converted layer with delayed scales, got none")
        self.values = torch.zeros(len(self.slots))

    def _delayed(self) -> Iterator[tuple[Fp8Layer, str]]:
        for layer in self.layers:
            for role in ROLES:
                cast = plan_of(layer._fp8_text).casts[role]
                if cast.past_size == 0:
                    continue
                if cast.recipe.source != "delayed":
                    raise ValueError(f"model: expected delayed scales, got {cast.recipe.source} ones of {role}")
                yield layer, role

    def see(self, layer: Fp8Layer, role: str, x: Tensor) -> None:
        slot = self.slots.get((layer, role))
        if slot is not None and x.numel():
            require_cpu("x", x)
            self.values[slot] = torch.maximum(self.values[slot], x.detach().abs().amax().float())

    def update(self, group: Any) -> None:
        """What a pass with a tensor of the reduced amax would do to each past."""
        dist.all_reduce(self.values, op=dist.ReduceOp.MAX, group=group)
        for (layer, role), slot in self.slots.items():
            plan, past = plan_of(layer._fp8_text), layer._fp8_past(role)
            cast = plan.casts[role]
            x = plan.matrix(self.values[slot].reshape(1, 1))
            *_, new = cast.cast(x, past, cast.for_first, cast.for_second)
            past.copy_(new)


@contextlib.contextmanager
def reduced_amaxes(model: nn.Module, group: Any = None) -> Iterator[None]:
    """A training step whose delayed scales follow the largest amax of all ranks of a process group.

    Forward and backward passes inside, for one micro-batch or several, cast with the earlier
    scales. The largest magnitude of each operand is kept. At the end there is one all-reduce (MAX)
    of all of them, and one update of each history and scale, so the scales of all ranks stay equal.
    This is TransformerEngine's delayed scaling with `reduce_amax`. Every rank must enter with the
    same model. group: of torch.distributed (gloo works), None for all ranks. After an exception
    nothing is reduced or updated. Not for `torch.compile`. ValueError without an initialized
    process group, and for windowed or calibrated scales.

    >>> import torch, torch.distributed as dist, fp8lab.torch
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(32, 16)), "te-delayed")
    >>> with fp8lab.torch.reduced_amaxes(model):
    ...     model(torch.full((16, 32), 2.0)).sum().backward()
    >>> float(model[0].fp8_activation_past.view(torch.float32)[0])  # the next scale: 448 / 2
    224.0
    >>> dist.destroy_process_group()
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("group: expected torch.distributed.init_process_group before, got none")
    amaxes = _Amaxes(model)
    for layer in amaxes.layers:
        layer._fp8_amaxes = amaxes.see
    try:
        yield
    finally:
        for layer in amaxes.layers:
            layer._fp8_amaxes = None
    amaxes.update(group)
