"""What the linear operators compute with: the library on CPU tensors, torch and the emulated kernels
on CUDA tensors. Both have the same methods and give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab import _core
from fp8lab._casts import encode
from fp8lab._recipes import Recipe
from fp8lab.torch import _device, _device_casts
from fp8lab.torch._plan import Cast, Codes, Plan, array_of, threads

WORDS = {torch.float16: "f16", torch.bfloat16: "bf16"}


class HostEngine:
    """NumPy arrays over the tensors' memory, through the library."""

    def matrix(self, plan: Plan, x: Tensor) -> NDArray[np.float32]:
        return plan.matrix(x)

    def cast(self, one: Cast, x: Any, past: Tensor, for_first: bool, for_second: bool) -> Any:
        return one.cast(x, past, for_first, for_second)

    def codes(self, codes: Tensor, scales: Tensor) -> Codes:
        return array_of(codes.contiguous()), array_of(scales.contiguous())

    def tensors(self, codes: Codes | None, like: Tensor) -> tuple[Tensor, Tensor]:
        if codes is None:
            return torch.empty((0, 0), dtype=torch.uint8), torch.empty(0)
        return torch.from_numpy(codes[0]), torch.from_numpy(codes[1])

    def product(self, plan: Plan, name: str, a: Any, b: Any) -> NDArray[np.float32]:
        return plan.product(name, a, b)

    def plain_product(
        self, plan: Plan, name: str, a: Any, b: Tensor, turn_a: bool = False, turn_b: bool = False
    ) -> NDArray[np.float32]:
        return plan.plain_product(name, a, plan.matrix(b), turn_a, turn_b)

    def add_bias(self, d: NDArray[np.float32], bias: Tensor | None) -> NDArray[np.float32]:
        if bias is not None:
            d = np.ascontiguousarray(d)
            _core.add_to_rows(d, array_of(bias.float().contiguous()))
        return d

    def plus_bias(self, y: Tensor, bias: Tensor) -> Tensor:
        """The sum of a rounded output and a bias, in their type."""
        return self.rounded(self.add_bias(array_of(y.float()), bias), y.dtype, False)

    def tensor(self, d: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(d))

    def rounded(self, d: NDArray[np.float32], dtype: torch.dtype, bf16_outputs: bool) -> Tensor:
        """The output of a product: one rounding, to the nearest, ties to even; NaN is NVIDIA's."""
        if dtype == torch.float32:
            d = np.ascontiguousarray(d)  # nothing else holds it: it is the output
            if bf16_outputs:
                _core.round_to_bf16(d, threads())
            return torch.from_numpy(d)
        codes = encode(d, WORDS[dtype], profile="nvidia_nosat", dtype=np.uint16, threads=threads())
        return torch.from_numpy(codes).view(dtype)

    def column_sums(self, x: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(_core.column_sums(x))


class DeviceEngine:
    """Tensors of one CUDA device, without a copy to the host."""

    def matrix(self, plan: Plan, x: Tensor) -> Tensor:
        return plan.padded_matrix(x)

    def cast(self, one: Cast, x: Tensor, past: Tensor, for_first: bool, for_second: bool) -> Any:
        return _device_casts.cast(one, x, past, for_first, for_second)

    def codes(self, codes: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        return codes, scales

    def tensors(self, codes: tuple[Tensor, Tensor] | None, like: Tensor) -> tuple[Tensor, Tensor]:
        if codes is None:
            return like.new_empty((0, 0), dtype=torch.uint8), like.new_empty(0, dtype=torch.float32)
        return codes

    def product(self, plan: Plan, name: str, a: Any, b: Any) -> Tensor:
        settings = getattr(plan.recipe, name)
        return _device.product(
            a[1][0],
            b[1][0],
            formats=(a[0].format, b[0].format),
            model=settings.accumulator,
            promotion_interval=settings.promotion_interval,
            scale_order=settings.scale_order,
            scale_a=self._scales(*a),
            scale_b=self._scales(*b),
        )

    def _scales(self, recipe: Recipe, codes: tuple[Tensor, Tensor]) -> _device.DeviceScales:
        rows, k = codes[0].shape
        return _device.DeviceScales(codes[1], max(1, min(recipe.row_block or rows, rows)), recipe.k_block)

    def plain_product(
        self, plan: Plan, name: str, a: Tensor, b: Tensor, turn_a: bool = False, turn_b: bool = False
    ) -> Tensor:
        settings = getattr(plan.recipe, name)
        if settings.arithmetic == "bf16" and settings.accumulator.kind != "float32":
            left = _device_casts.encoded(a, "bf16", "nvidia_nosat")
            right = _device_casts.encoded(plan.padded_matrix(b), "bf16", "nvidia_nosat")
            return _device.product(
                left.t() if turn_a else left,
                right.t() if turn_b else right,
                formats=("bf16", "bf16"),
                model=settings.accumulator,
                promotion_interval=settings.promotion_interval,
            )
        raise ValueError(
            f"recipe: expected products of a matrix unit on a CUDA device, got {plan.recipe.name}, whose {name} "
            f"is in {settings.arithmetic}: the device has no kernel for its order of FP32 sums; it runs on CPU "
            'tensors, and in BF16 with hardware="sm90" or another unit'
        )

    def add_bias(self, d: Tensor, bias: Tensor | None) -> Tensor:
        return d if bias is None else d + bias.detach().float()

    def plus_bias(self, y: Tensor, bias: Tensor) -> Tensor:
        return y + bias.detach()

    def tensor(self, d: Tensor) -> Tensor:
        return d.contiguous()

    def rounded(self, d: Tensor, dtype: torch.dtype, bf16_outputs: bool) -> Tensor:
        if dtype == torch.float32 and not bf16_outputs:
            return d.clone()
        name = WORDS.get(dtype, "bf16")
        words = _device_casts.encoded(d.contiguous(), name, "nvidia_nosat")
        return words.view(torch.float16 if name == "f16" else torch.bfloat16).to(dtype)

    def column_sums(self, x: Tensor) -> Tensor:
        return _device.column_sums(x)


Engine = HostEngine | DeviceEngine
HOST, DEVICE = HostEngine(), DeviceEngine()


def engine_of(name: str, given: Tensor, /, **others: Tensor | None) -> Engine:
    """The engine of a tensor's device. ValueError where another tensor with elements lies elsewhere."""
    _device.require_place(name, given)
    for other, tensor in others.items():
        if tensor is not None and tensor.numel():
            _device.require_place(other, tensor, given)
    return DEVICE if _device.is_cuda(given) else HOST
