"""The chips whose library calls are known, and the code that their products share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab import _core
from fp8lab._arrays import words_of
from fp8lab._casts import encode
from fp8lab._kernels import calls
from fp8lab._options import ProductOptions
from fp8lab._products import make_product
from fp8lab._registry import AccumulatorModel
from fp8lab.torch._ops import TORCH_FP8
from fp8lab.torch._plan import array_of, threads

Floats = NDArray[np.float32]
FORMAT_OF = {dtype: name for name, dtype in TORCH_FP8.items()} | {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
}

WORD_DTYPES = {name: dtype for dtype, name in FORMAT_OF.items() if dtype.itemsize > 1}


@dataclass(frozen=True)
class Platform:
    """The settings that determine the bits of `torch._scaled_mm`, beside its arguments.

    The sums of tensor-wise calls on "h100" and "rtx4060" (cuBLASLt 12.8, split or not) are those of
    the package mmaemu, which compared them with recordings of the chips. On "h100" an H200 with
    PyTorch 2.11 and cuBLASLt 13.1 agrees, with bias and row-wise scales too (times the scale of B,
    then of A), which are *assumed* on "rtx4060". Block-wise scales, slow accumulation,
    are those of the same H200 (1x128 by 128x128: fma(s_a * s_b, P, sum); 1x128 by 1x128:
    fma(P * s_a, s_b, sum)); 128x128 by 1x128 is *assumed*.
    "b200": the instructions are from literature, its calls are *assumed*.
    """

    name: str
    model: str  #: for E4M3 and E5M2, in any mix
    slow_promotion: int  #: terms between promotions if use_fast_accum is off
    split_tile: int  #: splits are multiples of this many columns of K
    split_schemes: tuple[str, ...]
    profile: str = ""  #: of mmaemu's recorded splits
    blocks_of_128: bool = False  #: float32 scales of 1x128 and 128x128 tiles
    block_scaled_model: str = ""  #: of FP8 codes with E8M0 scales of 32 elements
    fp4_model: str = ""  #: of FP4 codes with E8M0 scales of 32 elements, or UE4M3 ones of 16


def _platform(name: str, profile: str = "", **blocks: Any) -> Platform:
    """A row of the library's table of calls, `cublaslt.NAME.fast` and `.slow`."""
    fast, slow = (calls()[f"cublaslt.{name}.{kind}"] for kind in ("fast", "slow"))
    # torch's word for the serial order names the cut as well.
    schemes = tuple(cut if cut == "contiguous" else order for cut, order in fast.splits)
    return Platform(
        name, fast.model, slow.promotion_interval, fast.split_tile, schemes, profile, **blocks
    )


PLATFORMS = {
    p.name: p
    for p in (
        _platform("h100", "hopper", blocks_of_128=True),
        _platform("rtx4060", "ada"),
        _platform(
            "b200",
            block_scaled_model="sm100.tcgen05.mxf8f6f4.e4m3",
            fp4_model="sm100.tcgen05.mxf4nvf4",
        ),
    )
}


def find_platform(name: str) -> Platform:
    if name not in PLATFORMS:
        raise ValueError(f"platform: expected one of {', '.join(PLATFORMS)}, got '{name}'")
    return PLATFORMS[name]


def product(
    a: NDArray[Any], b: NDArray[Any], *, model: AccumulatorModel, **how: Unpack[ProductOptions]
) -> Floats:
    """`make_product` computed: float32 [m, n]."""
    d: Floats = _core.gemm(make_product(a, b, model, how), threads(), "cpu")
    return d


def as_words(d: Floats, name: str, scale: float = 1.0) -> Tensor:
    """binary32 to nearest even: FP8 saturates (in uint8), BF16 and FP16 overflow, NaN is NVIDIA's."""
    if name == "f32":
        return torch.from_numpy(d)
    profile = "nvidia_nosat" if name in ("bf16", "f16") else "nvidia_satfinite"
    words = words_of(encode(d, name, profile=profile, scale=scale, threads=threads()))
    return torch.from_numpy(words).view(WORD_DTYPES.get(name, torch.uint8))


def fake_words(input: Tensor, mat2: Tensor, formats: str) -> Tensor:
    """The shape and dtype of a product: formats of input [m, k], mat2 [k, n] and the output."""
    dtype = WORD_DTYPES.get(formats.split()[2], torch.uint8)
    return input.new_empty((input.shape[0], mat2.shape[1]), dtype=dtype)


def add_bias(d: Floats, bias: Tensor | None) -> None:
    if bias is not None:
        _core.add_to_rows(d, array_of(bias.float().contiguous()))


def given_or(out: Tensor | None, result: Tensor, function: str, *inputs: Tensor | None) -> Tensor:
    """The result, or `out` holding it, as torch's functions treat `out=`.

    `out` is resized where its shape differs, with torch's own warning if it had elements. Its
    dtype must be the result's (ValueError, torch's text), and no input may require gradients.
    """
    if out is None:
        return result
    if out.dtype != result.dtype:
        raise ValueError(f"out_dtype must match output matrix type: {result.dtype} and {out.dtype}")
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (out, *inputs)):
        raise RuntimeError(
            f"{function}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad."
        )
    with torch.no_grad():
        torch.cat([result], out=out)  # resizes and warns as every function of torch
    return out
