"""What `torch._scaled_mm` refuses on a GPU, in PyTorch's words: rules by name.

*Read* in PyTorch's aten/src/ATen/native/cuda/ScaledBlas.cpp (0174dfab, of 2.15's line): the checks
of `_scaled_mm_out_cuda`, of `_scaled_mm_cuda_v2_out` and of `_scaled_gemm`. Its CPU kernels, and so
`scaled_mm` here, take more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fp8lab.torch._scale_recipes import is_fp4


class Call(NamedTuple):
    """The arguments that rules are about. scales: None of `F.scaled_mm`, whose recipes name their kind."""

    a: Tensor
    b: Tensor
    bias: Tensor | None
    out_dtype: torch.dtype
    fast: bool
    platform: str
    scales: tuple[Tensor, Tensor] | None


class Rule(NamedTuple):
    name: str
    broken: Callable[[Call], bool]
    text: Callable[[Call], str]  #: PyTorch's


_NAMES = {torch.float32: "Float", torch.bfloat16: "BFloat16", torch.float16: "Half"}


def _k(x: Tensor, dim: int, call: Call) -> int:
    """Terms; `torch._scaled_mm` counts FP4 by the byte."""
    return x.shape[dim] * (1 + (is_fp4(x) and call.scales is None))


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _row_major(x: Tensor) -> bool:
    """Rows lie one after the other: what cuBLASLt takes as transposed; a matrix of one row or column is both."""
    return min(x.shape) <= 1 or (x.stride(1) == 1 and x.stride(0) >= x.shape[1])


def _is_row_wise(x: Tensor, scale: Tensor) -> bool:
    return scale.dim() == 2 and tuple(scale.shape) == (x.shape[0], 1) and scale.is_contiguous()


def _mixes(call: Call) -> bool:
    """Whether FP32 scales are neither of tensors nor of rows on both sides, nor of blocks."""
    if call.scales is None or any(scale.dtype != torch.float32 for scale in call.scales):
        return False
    a, b = call.scales
    if a.numel() == 1 and b.numel() == 1:
        return False
    rows = _is_row_wise(call.a, a), b.dim() == 2 and _is_row_wise(call.b.t(), b.t())
    return (rows[0] or a.numel() == 1) != (rows[1] or b.numel() == 1) or (
        (rows[0] or a.numel() == 1) and not all(rows)
    )


RULES = (
    Rule(
        "scaling",
        _mixes,
        lambda c: "Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8, scales should "
        f"be float and singletons.\n- For RowWise scaling, scale_a should be ({c.a.shape[0]}, 1) and scale_b should be "
        f"(1, {c.b.shape[1]}), and both should be contiguous.\nGot scales {[list(s.shape) for s in c.scales or ()]}",
    ),
    Rule(
        "k_of_16",
        lambda c: _k(c.a, 1, c) % 16 != 0,
        lambda c: "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: "
        f"({c.a.shape[0]}x{_k(c.a, 1, c)}).",
    ),
    Rule(
        "n_of_16",
        lambda c: _k(c.b, 0, c) % 16 != 0 or c.b.shape[1] % 16 != 0,
        lambda c: f"mat2 shape ({c.b.shape[0]}x{c.b.shape[1]}) must be divisible by 16",
    ),
    Rule(
        "e5m2_by_e5m2",
        lambda c: c.a.dtype == c.b.dtype == torch.float8_e5m2,
        lambda c: "Multiplication of two Float8_e5m2 matrices is not supported",
    ),
    Rule(
        "fast_fp4",
        lambda c: c.fast and (is_fp4(c.a) or is_fp4(c.b)),
        lambda c: "`use_fast_accum` is not supported when `mat1` or `mat2` tensors have the `Float4_e2m1fn_x2` dtype.",
    ),
    Rule(
        "bias_with_float32",
        lambda c: c.bias is not None and c.out_dtype == torch.float32,
        lambda c: "Bias is not supported when out_dtype is set to Float32",
    ),
    Rule(
        "bias_type",
        lambda c: c.bias is not None and c.bias.dtype not in (torch.bfloat16, torch.float16),
        lambda c: f"Bias must be BFloat16 or Half, but got {_name(c.bias.dtype)}",  # type: ignore[union-attr]
    ),
    Rule(
        "bias_of_bfloat16",
        lambda c: c.bias is not None and c.out_dtype == torch.bfloat16 != c.bias.dtype,
        lambda c: f"Bias must be BFloat16 to compute BFloat16 output, but got {_name(c.bias.dtype)}",  # type: ignore[union-attr]
    ),
    Rule(
        "bias_of_float16",
        lambda c: c.bias is not None and c.out_dtype == torch.float16 != c.bias.dtype,
        lambda c: f"Bias must be Float16 to compute Half output, but got {_name(c.bias.dtype)}",  # type: ignore[union-attr]
    ),
    Rule(
        "layout",  # Blackwell takes all
        lambda c: c.platform in ("h100", "rtx4060") and not (_row_major(c.a) and _row_major(c.b.t())),
        lambda c: "Only multiplication of row-major and column-major matrices is supported by cuBLASLt",
    ),
)  # fmt: skip


def require_cuda_rules(call: Call) -> None:
    """RuntimeError for `torch._scaled_mm`, ValueError for `F.scaled_mm`, as PyTorch has them."""
    wrong_bias = call.bias is not None and call.bias.numel() != call.b.shape[1]  # `scaled_mm` says so
    if wrong_bias or (0 in (*call.a.shape, *call.b.shape) and call.scales is None):
        return
    for rule in RULES:
        if rule.broken(call):
            old = call.scales is not None and rule.name != "e5m2_by_e5m2"
            raise (RuntimeError if old or rule.name == "layout" else ValueError)(
                f"{rule.text(call)} (rule {rule.name} of PyTorch's CUDA call; "
                "emulate_scaled_mm(strict=False) computes it all the same)"
            )
