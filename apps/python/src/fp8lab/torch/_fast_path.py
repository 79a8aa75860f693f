"""torch's fused kernels of transformer layers read weights without calling the layers that have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fp8lab.torch._layers import Fp8Layer
from fp8lab.torch._products import Fp8Products

_MARK = "_fp8_slow_path"


def seen(*given: Any) -> None:
    """A hook that does nothing: a layer with hooks inside takes no fused kernel."""


def _has_converted(module: nn.Module) -> bool:
    return any(isinstance(one, Fp8Layer | Fp8Products) for one in module.modules())


def without_fast_path(model: nn.Module) -> None:
    """Makes transformer layers that have converted layers call them, in `eval()` too."""
    for module in model.modules():
        if _MARK in module.__dict__ or not _has_converted_child(module):
            continue
        if isinstance(module, nn.TransformerEncoder):
            module.__dict__[_MARK] = module.use_nested_tensor
            module.use_nested_tensor = False
        else:
            module.__dict__[_MARK] = module.register_forward_pre_hook(seen)


def _has_converted_child(module: nn.Module) -> bool:
    return isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer) and _has_converted(module)


def with_fast_path(model: nn.Module) -> None:
    """Undoes `without_fast_path`."""
    for module in model.modules():
        mark = module.__dict__.pop(_MARK, None)
        if isinstance(module, nn.TransformerEncoder) and mark is not None:
            module.use_nested_tensor = mark
        elif mark is not None:
            mark.remove()


@contextlib.contextmanager
def no_fast_path() -> Iterator[None]:
    """Without fused kernels in all models, so that plain and converted ones differ by recipes alone."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
