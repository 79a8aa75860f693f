"""`scaled_mm` of tensors on a CUDA device, with the bits of the same call on the CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fp8lab._registry import find_model
from fp8lab.torch._device import DeviceScales, product
from fp8lab.torch._device_casts import encoded
from fp8lab.torch._platforms import WORD_DTYPES, Platform

Ranges = list[list[tuple[int, int]]]


def _words(d: Tensor, name: str, scale: Tensor | None = None) -> Tensor:
    """float32 rounded to the output's format, to nearest even: FP8 saturates, in uint8."""
    if name == "f32":
        return d
    if name in ("bf16", "f16"):
        return encoded(d, name, "nvidia_nosat").view(WORD_DTYPES[name])
    return encoded(d if scale is None else d * scale.reshape(()), name, "nvidia_satfinite")


def _with_bias(d: Tensor, bias: Tensor | None) -> Tensor:
    return d if bias is None else d + bias.detach().float()


def _scaled(total: Tensor, scale_a: Tensor, scale_b: Tensor, order: str) -> Tensor:
    """Scales of a finished sum, on which +0 is added: where the roundings are, by the order."""
    a, b = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
    if order.startswith("product"):
        scaled = total * (a * b)
    else:
        scaled = total * b * a if order.startswith("b_") else total * a * b
    return scaled + 0.0


def _columns(x: Tensor, ranges: list[tuple[int, int]]) -> Tensor:
    """The columns of a split: a view if they are neighbours."""
    parts = [x[:, start:stop] for start, stop in ranges]
    if not parts:
        return x[:, :0]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _reduced(parts: list[Tensor], scheme: str) -> Tensor:
    """The splits' sums added in FP32, in cuBLAS's order, or neighbours first ("tree")."""
    if scheme == "tree":
        parts = list(parts)
        step = 1
        while step < len(parts):
            for i in range(0, len(parts) - step, 2 * step):
                parts[i] = parts[i] + parts[i + step]
            step *= 2
        return parts[0]
    if scheme == "pairwise":
        half = -(-len(parts) // 2)
        order = [parts[-1]]
        for i in range(half):
            paired = i + half < len(parts) - 1
            order.append(parts[i] + parts[i + half] if paired else parts[i])
        parts = order
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class Chain(NamedTuple):
    """How K is summed: terms between two promotions, parts as ranges of columns, and their order."""

    promotion_interval: int
    scale_order: str
    parts: Ranges
    scheme: str


def scaled_mm(
    chip: Platform,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    *,
    bias: Tensor | None,
    scale_result: Tensor | None,
    formats: str,
    chain: Chain,
) -> Tensor:
    """Codes a [m, k] and b [n, k] in uint8 with scales of tensors or rows."""
    a_format, b_format, out_format = formats.split()

    def whole(values: Tensor, rows: int) -> DeviceScales:
        return DeviceScales(values.reshape(-1), 1 if values.numel() > 1 else max(rows, 1), 0)

    def sums(left: Tensor, right: Tensor, scaled: bool) -> Tensor:
        return product(
            left,
            right,
            formats=(a_format, b_format),
            model=find_model(chip.model).accumulator,
            promotion_interval=chain.promotion_interval,
            scale_order=chain.scale_order,
            scale_a=whole(scale_a, a.shape[0]) if scaled else None,
            scale_b=whole(scale_b, b.shape[0]) if scaled else None,
        )

    if len(chain.parts) == 1:
        d = sums(a, b, True)
    else:
        parts = [sums(_columns(a, ranges), _columns(b, ranges), False) for ranges in chain.parts]
        d = _scaled(_reduced(parts, chain.scheme), scale_a, scale_b, chain.scale_order)
    return _words(_with_bias(d, bias), out_format, scale_result)


def order_of_tiles(a_rows: int, b_rows: int) -> str:
    """The order in which cuBLASLt applies scales of tiles with so many rows of A and of B [n, k].

    Measured on an H200 (cuBLASLt 13.1 through PyTorch 2.11, all FP32 outputs): fma(s_a * s_b, P, sum)
    for 1x128 by 128x128, fma(P * s_a, s_b, sum) for 1x128 by 1x128. 128x128 by 1x128 is assumed.
    """
    return "a_then_fma_b" if a_rows == b_rows == 1 else "product_then_fma"


def scaled_mm_tiles(
    chip: Platform,
    a: Tensor,
    b: Tensor,
    scale_a: DeviceScales,
    scale_b: DeviceScales,
    *,
    bias: Tensor | None,
    formats: str,
    block_scaled: bool,
) -> Tensor:
    """The same with scales of 1x128 and 128x128 tiles, which change along k."""
    if block_scaled:
        raise ValueError(
            f"platform: expected one without block-scaled instructions on a CUDA device, got {chip.name}: "
            "the emulated kernels do not have them; this product runs on CPU tensors"
        )
    a_format, b_format, out_format = formats.split()
    d = product(
        a,
        b,
        formats=(a_format, b_format),
        model=find_model(chip.model).accumulator,
        promotion_interval=128,
        scale_order=order_of_tiles(scale_a.row_block, scale_b.row_block),
        scale_a=scale_a,
        scale_b=scale_b,
    )
    return _words(_with_bias(d, bias), out_format)
