"""A context in which torch's own scaled products have the bits of a platform."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fp8lab.torch._cuda_rules import Call, require_cuda_rules
from fp8lab.torch._platforms import find_platform
from fp8lab.torch._scaled_grouped import scaled_grouped_mm, scaled_grouped_mm_v2
from fp8lab.torch._scaled_mm import by_recipes, scaled_mm


def _v2(
    self: Tensor,
    mat2: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: tuple[int, ...] = (),
    use_fast_accum: bool = False,
    **how: Any,
) -> Tensor:
    """The operator behind `torch.nn.functional.scaled_mm`, whose arguments have another order."""
    return by_recipes(
        self, mat2, scale_a, recipe_a, scale_b, recipe_b, swizzle_a, swizzle_b, bias, out_dtype,
        contraction_dim, use_fast_accum, **how,
    )


def _strict(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
    *, platform: str, out: Tensor | None = None, **how: Any,
) -> Tensor:
    """`torch._scaled_mm` where a GPU takes the arguments."""
    dtype = out.dtype if out is not None else out_dtype or a.dtype
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]:  # else `scaled_mm` says what is wrong
        require_cuda_rules(Call(a, b, bias, dtype, use_fast_accum, platform, (scale_a, scale_b)))
    return scaled_mm(
        a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum, platform=platform, out=out, **how
    )


def _strict_v2(
    a: Tensor, b: Tensor, scale_a: list[Tensor], recipe_a: list[int], swizzle_a: list[int], scale_b: list[Tensor],
    recipe_b: list[int], swizzle_b: list[int], bias: Tensor | None = None, out_dtype: torch.dtype | None = None,
    contraction_dim: tuple[int, ...] = (), use_fast_accum: bool = False, *, platform: str, **how: Any,
) -> Tensor:
    """The operator behind `torch.nn.functional.scaled_mm`, likewise."""
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]:
        require_cuda_rules(Call(a, b, bias, out_dtype or a.dtype, use_fast_accum, platform, None))
    return _v2(
        a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype, contraction_dim,
        use_fast_accum, platform=platform, **how,
    )


@contextlib.contextmanager
def emulate_scaled_mm(
    platform: str = "h100", *, splitk: int | str | tuple[int, str] = 1, strict: bool = True
) -> Iterator[None]:
    """A context in which torch's scaled products of CPU tensors have the bits of a platform.

    This applies to `torch._scaled_mm`, to `torch.nn.functional.scaled_mm` if PyTorch has it (2.10),
    also with `out=`, and to `torch._scaled_grouped_mm` and `F.scaled_grouped_mm` with scales of rows
    (experts; *assumed* to be a product a group). BF16's `torch._grouped_mm` stays torch's own. Code
    that calls them, such as torchao's float8 modules, runs unchanged; its backward pass must run
    inside too. It replaces torch's own CPU kernels, for all threads. platform and splitk as for
    `scaled_mm`. strict: what PyTorch refuses of such a call on a
    GPU is refused here too, with its words and the name of the rule (k and n that are no multiples
    of 16, another layout than row-major by column-major on h100 and rtx4060, E5M2 by E5M2, a bias
    of another type than the output or with a float32 output, scales of rows beside one of a tensor,
    fast accumulation of FP4); false computes it.

    >>> import torch, fp8lab.torch
    >>> x, one = torch.ones(16, 32768).to(torch.float8_e4m3fn), torch.ones(())
    >>> with fp8lab.torch.emulate_scaled_mm("h100"):
    ...     y = torch._scaled_mm(x, x.t(), one, one, out_dtype=torch.float32, use_fast_accum=True)
    >>> float(y[0, 0])
    16384.0
    """
    find_platform(platform)
    library = torch.library.Library("aten", "IMPL")
    calls: dict[str, Callable[..., Tensor]] = {
        "_scaled_mm": _strict if strict else scaled_mm,
        "_scaled_mm.out": _strict if strict else scaled_mm,
        "_scaled_mm_v2": _strict_v2 if strict else _v2,
        "_scaled_mm_v2.out": _strict_v2 if strict else _v2,
        "_scaled_grouped_mm": scaled_grouped_mm,
        "_scaled_grouped_mm_v2": scaled_grouped_mm_v2,
        "_scaled_grouped_mm_v2.out": scaled_grouped_mm_v2,
    }
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Oo]verrid")
            for name, call in calls.items():
                if hasattr(torch.ops.aten, name.partition(".")[0]):
                    how = functools.partial(call, platform=platform, splitk=splitk)
                    library.impl(name, how, "CPU", allow_override=True)
        yield
    finally:
        library._destroy()
