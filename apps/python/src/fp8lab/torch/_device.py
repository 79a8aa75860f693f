"""Products of tensors on a CUDA device: the emulated kernels, on torch's current stream.

No tensor is copied to the host, and nothing waits. Operands are read where they lie if they are
whole tiles (see `cuda/stream_gemm.hpp`), else packed on the device first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fp8lab import _core
from fp8lab._products import CUDA_BUILD, backends
from fp8lab._registry import AccumulatorModel


class DeviceScales(NamedTuple):
    """Inverse scales of tiles in float32, row by row; a k_block of 0 is all of k."""

    values: Tensor
    row_block: int
    k_block: int


def is_cuda(x: Tensor) -> bool:
    return x.device.type == "cuda"


def require_cpu(name: str, x: Tensor) -> None:
    """For what runs on CPU tensors alone."""
    if x.device.type != "cpu":
        how = "; fp8lab.torch computes this on the CPU: pass its .cpu()" if is_cuda(x) else ""
        raise ValueError(f"{name}: expected a CPU tensor, got one on {x.device}{how}")


def require_place(name: str, x: Tensor, like: Tensor | None = None) -> None:
    """A CPU tensor, or one on a CUDA device if this build has CUDA; on the device of `like` if given."""
    if is_cuda(x) and "cuda-emulated" not in backends():
        raise ValueError(
            f"{name}: expected a CPU tensor, since fp8lab is built without CUDA, got one on {x.device}: "
            f"pass its .cpu(), or build with CUDA: {CUDA_BUILD}"
        )
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: expected a CPU tensor, got one on {x.device}")
    if like is not None and x.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, as the others, got one on {x.device}")


def _place(x: Tensor) -> tuple[int, int]:
    """Number of the device, and its current stream."""
    return x.device.index, torch.cuda.current_stream(x.device).cuda_stream


def _matrix(x: Tensor, name: str) -> tuple[int, str, int, int, int, int]:
    return (x.data_ptr(), name, x.shape[0], x.shape[1], x.stride(0), x.stride(1))


def _scales(scales: DeviceScales | None) -> tuple[tuple[int, int, int, int] | None, Tensor | None]:
    """As the library takes them, and the tensor that must outlive the call."""
    if scales is None:
        return None, None
    values = scales.values.contiguous()
    return (values.data_ptr(), values.numel(), scales.row_block, scales.k_block), values


def product(
    a: Tensor,
    b: Tensor,
    *,
    formats: tuple[str, str],
    model: AccumulatorModel,
    promotion_interval: int = 0,
    scale_order: str = "product_then_fma",
    scale_a: DeviceScales | None = None,
    scale_b: DeviceScales | None = None,
) -> Tensor:
    """D [m, n] in float32 of codes a [m, k] and b [n, k] of any strides, on their device.

    The bits of `fp8lab.gemm`. ValueError for models that the emulated kernels do not have.
    """
    d = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float32, device=a.device)
    if d.numel() == 0:
        return d
    if a.shape[1] == 0:
        return d.zero_()
    left, right = _matrix(a, formats[0]), _matrix(b, formats[1])
    room = torch.empty(_core.device_workspace(a=left, b=right), dtype=torch.uint8, device=a.device)
    (left_scales, kept), (right_scales, kept_too) = _scales(scale_a), _scales(scale_b)
    device, stream = _place(a)
    _core.device_gemm(
        model=model._core(),
        a=left,
        b=right,
        scale_a=left_scales,
        scale_b=right_scales,
        promotion_interval=promotion_interval,
        scale_order=scale_order,
        d=(d.data_ptr(), d.numel()),
        workspace=(room.data_ptr(), room.numel()),
        device=device,
        stream=stream,
    )
    # Given back to torch's allocator only now, which hands them on in the order of the stream.
    del kept, kept_too, room
    return d


def column_sums(x: Tensor) -> Tensor:
    """The sum of each column of float32 [rows, columns], row after row in FP32."""
    rows, columns = x.shape
    sums = torch.empty(columns, dtype=torch.float32, device=x.device)
    device, stream = _place(x)
    _core.device_column_sums(
        x=x.data_ptr(),
        rows=rows,
        columns=columns,
        row_stride=columns,
        sums=sums.data_ptr(),
        device=device,
        stream=stream,
    )
    return sums


def device_fingerprint(x: Tensor) -> int:
    """Tells contents apart: the words of a tensor times odd numbers of their places, added mod 2^64."""
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    words = x.detach().contiguous().view(-1).view(integer).to(torch.int64)
    places = torch.arange(words.numel(), dtype=torch.int64, device=x.device)
    factors = (2 * places + 1) * 0x1E3779B97F4A7C15
    mixed = (words + 1) * factors
    return int((mixed ^ (mixed >> 29)).sum().item())
