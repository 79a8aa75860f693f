"""Products of FP8 codes whose scales change along k: the operator `fp8lab::scaled_mm_tiles`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab._recipes import Scales
from fp8lab._registry import find_model
from fp8lab.torch import _device, _device_mm
from fp8lab.torch._device import DeviceScales, require_place
from fp8lab.torch._platforms import add_bias, as_words, fake_words, find_platform, product
from fp8lab.torch._plan import array_of


def _unpacked(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of four bits [rows, k], one a byte, of [rows, k / 2] bytes."""
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)


@torch.library.custom_op("fp8lab::scaled_mm_tiles", mutates_args=())
def scaled_mm_tiles(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    formats: str,
    blocks: list[int],
    block_scaled: bool,
    platform: str,
    alpha: Tensor | None = None,
) -> Tensor:
    """Codes in uint8, input [m, k] and mat2 [k, n], with float32 inverse scales of tiles: [m, n].

    formats: of input, mat2 and the output, which is uint8 for FP8; of e2m1 a byte has two codes
    along k. blocks: rows and columns of A's tiles and of B's, B as [n, k]. block_scaled: the
    instruction applies the scales, one chain; else each 128 terms are scaled into an FP32 sum in
    the order of `order_of_tiles`. alpha: multiplies the finished sum. The bias is added in FP32.
    """
    chip = find_platform(platform)
    for name, x in (("input", input), ("mat2", mat2), ("scale_a", scale_a), ("scale_b", scale_b)):
        require_place(name, x, input)
    if _device.is_cuda(input):
        return _device_mm.scaled_mm_tiles(
            chip,
            input.detach(),
            mat2.detach().t(),
            DeviceScales(scale_a.detach(), blocks[0], blocks[1]),
            DeviceScales(scale_b.detach(), blocks[2], blocks[3]),
            bias=bias,
            formats=formats,
            block_scaled=block_scaled,
        )
    a_format, b_format, out_format = formats.split()
    if input.shape[0] * mat2.shape[1] == 0:
        return fake_words(input, mat2, formats)
    a, b = array_of(input), array_of(mat2).T
    scaled = chip.block_scaled_model
    if a_format == "e2m1":
        a, b, scaled = _unpacked(a), _unpacked(b), chip.fp4_model
    of_tensor = 1.0 if alpha is None else float(alpha)
    d = product(
        a,
        b,
        a_format=a_format,
        b_format=b_format,
        model=find_model(scaled if block_scaled else chip.model).accumulator,
        promotion_interval=0 if block_scaled else 128,
        scale_a=Scales(array_of(scale_a.contiguous()), blocks[0], blocks[1], of_tensor),
        scale_b=Scales(array_of(scale_b.contiguous()), blocks[2], blocks[3]),
        scale_order=_device_mm.order_of_tiles(blocks[0], blocks[2]),
    )
    add_bias(d, bias)
    return as_words(d, out_format)


@scaled_mm_tiles.register_fake
def _(input: Tensor, mat2: Tensor, *others: Any) -> Tensor:
    formats = others[3]
    return fake_words(input, mat2, formats)
