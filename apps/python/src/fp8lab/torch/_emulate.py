"""A context in which torch's own scaled products have the bits of a platform."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fp8lab.torch._platforms import find_platform
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


@contextlib.contextmanager
def emulate_scaled_mm(
    platform: str = "h100", *, splitk: int | str | tuple[int, str] = 1
) -> Iterator[None]:
    """A context in which torch's scaled products of CPU tensors have the bits of a platform.

    This applies to `torch._scaled_mm`, and to `torch.nn.functional.scaled_mm` if PyTorch has it
    (2.10), also with `out=`. Code that calls them, such as torchao's float8 modules, runs
    unchanged; its backward pass must run inside too. It replaces torch's own CPU kernels, for all
    threads. platform and splitk as for `scaled_mm`.

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
        "_scaled_mm": scaled_mm,
        "_scaled_mm.out": scaled_mm,
        "_scaled_mm_v2": _v2,
        "_scaled_mm_v2.out": _v2,
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
