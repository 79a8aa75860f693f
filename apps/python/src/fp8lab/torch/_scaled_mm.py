"""`torch._scaled_mm` as a library call on a named platform computes it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab import _core
from fp8lab._arrays import words_of
from fp8lab._casts import encode
from fp8lab._kernels import find_call
from fp8lab._products import make_problem
from fp8lab._recipes import Recipe
from fp8lab._registry import find_model
from fp8lab.torch._ops import TORCH_FP8, require_cpu
from fp8lab.torch._plan import threads

Floats = NDArray[np.float32]
FORMAT_OF = {dtype: name for name, dtype in TORCH_FP8.items()} | {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
}

WORD_DTYPES = {name: dtype for dtype, name in FORMAT_OF.items() if dtype.itemsize > 1}


@dataclass(frozen=True)
class Platform:
    """What decides the bits of `torch._scaled_mm` beside its arguments.

    The sums of tensor-wise calls on "h100" and "rtx4060" (cuBLASLt 12.8, split or not) are those
    of the package mmaemu, which compared them with recordings of the chips; bias and row-wise
    scales (CUTLASS's epilogue: times the scale of B, then of A) are *assumed*. "b200": the
    instruction is from literature, its calls are *assumed*.
    """

    name: str
    model: str  #: of E4M3 and E5M2, in any mix
    slow_promotion: int  #: terms between promotions where use_fast_accum is off
    split_tile: int  #: columns of K that splits are made of
    split_schemes: tuple[str, ...]
    profile: str = ""  #: of mmaemu's recorded splits


def _platform(name: str, profile: str = "") -> Platform:
    """A row of the library's table of calls, `cublaslt.NAME.fast` and `.slow`."""
    fast, slow = (find_call(f"cublaslt.{name}.{kind}") for kind in ("fast", "slow"))
    # torch's word for the serial order names the cut as well.
    schemes = tuple(cut if cut == "contiguous" else order for cut, order in fast.splits)
    return Platform(name, fast.model, slow.promotion_interval, fast.split_tile, schemes, profile)


PLATFORMS = {
    p.name: p
    for p in (_platform("h100", "hopper"), _platform("rtx4060", "ada"), _platform("b200"))
}


def find_platform(name: str) -> Platform:
    if name not in PLATFORMS:
        raise ValueError(f"platform: expected one of {', '.join(PLATFORMS)}, got '{name}'")
    return PLATFORMS[name]


def _sum(
    platform: Platform, a: NDArray[Any], b: NDArray[Any], formats: tuple[str, str], fast: bool,
    scales: dict[str, Any],
) -> Floats:
    """One chain, or chains of 128 terms added in FP32; the scales at the end."""
    problem = make_problem(
        a,
        b,
        a_format=formats[0],
        b_format=formats[1],
        model=find_model(platform.model).accumulator,
        promotion_interval=0 if fast else platform.slow_promotion,
        **scales,
    )
    d = np.empty((problem.m, problem.n), np.float32)
    _core.gemm(problem.core, d, threads(), "cpu")
    return d


def _split_columns(k: int, splits: int, platform: Platform, scheme: str) -> list[NDArray[np.int64]]:
    """The columns of K of each split, in the order of its chain."""
    tiles = -(-k // platform.split_tile)
    if scheme == "contiguous":
        each = -(-tiles // splits)
        owned = [range(min(s * each, tiles), min((s + 1) * each, tiles)) for s in range(splits)]
    else:
        owned = [range(s, tiles, splits) for s in range(splits)]
    columns = np.arange(k)
    return [
        np.concatenate([columns[:0], *(columns[t * platform.split_tile :][: platform.split_tile] for t in tile)])
        for tile in owned
    ]


def _reduced(parts: list[Floats], scheme: str) -> Floats:
    """The splits' sums added in FP32, in cuBLAS's order."""
    if scheme == "pairwise":
        half = -(-len(parts) // 2)
        order = [parts[-1]]
        for i in range(half):
            if i + half < len(parts) - 1:
                _core.add_into(parts[i], parts[i + half])
            order.append(parts[i])
        parts = order
    total = parts[0].copy()
    for part in parts[1:]:
        _core.add_into(total, part)
    return total


def _scales(name: str, scale: Tensor, rows: int, columns: int) -> Floats:
    """One value, or one a row; torch's [n]-wise scales of B lie in a row."""
    require_cpu(name, scale)
    shape = list(scale.shape)
    wanted = [rows, 1] if columns == 1 else [1, columns]
    if scale.dtype != torch.float32 or (scale.numel() != 1 and shape != wanted):
        raise ValueError(f"{name}: expected float32, one value or {wanted}, got {scale.dtype} {shape}")
    return scale.detach().contiguous().reshape(-1).numpy()


def _codes(name: str, x: Tensor) -> tuple[Tensor, str]:
    if x.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise ValueError(f"{name}: expected float8_e4m3fn or float8_e5m2, got {x.dtype}")
    if x.dim() != 2:
        raise ValueError(f"{name}: expected a matrix, got {list(x.shape)}")
    return x.view(torch.uint8), FORMAT_OF[x.dtype]


def as_words(d: Floats, name: str, scale: float = 1.0) -> Tensor:
    """binary32 to nearest even: FP8 saturates (in uint8), BF16 and FP16 overflow, NaN is NVIDIA's."""
    if name == "f32":
        return torch.from_numpy(d)
    profile = "nvidia_nosat" if name in ("bf16", "f16") else "nvidia_satfinite"
    words = words_of(encode(d, name, profile=profile, scale=scale, threads=threads()))
    return torch.from_numpy(words).view(WORD_DTYPES.get(name, torch.uint8))


@torch.library.custom_op("fp8lab::scaled_mm", mutates_args=())
def scaled_mm_op(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    scale_result: Tensor | None,
    formats: str,
    use_fast_accum: bool,
    platform: str,
    splits: int,
    scheme: str,
) -> Tensor:
    """`scaled_mm` on codes in uint8; formats: of input, mat2 and the output, which is uint8 for FP8."""
    chip = find_platform(platform)
    require_cpu("input", input)
    require_cpu("mat2", mat2)
    a, b = input.detach().numpy(), mat2.detach().numpy().T
    (m, k), n = a.shape, len(b)
    if b.shape[1] != k:
        raise ValueError(f"mat2: expected [{k}, n], got {list(mat2.shape)}")
    a_format, b_format, out_format = formats.split()
    a_scales, b_scales = _scales("scale_a", scale_a, m, 1), _scales("scale_b", scale_b, 1, n)
    row_wise = len(a_scales) > 1 or len(b_scales) > 1
    order = "b_then_fma_a" if row_wise else "product_then_fma"
    scales = {"a_scales": a_scales, "b_scales": b_scales, "scale_order": order}
    read = (a_format, b_format)
    if splits == 1:
        d = _sum(chip, a, b, read, use_fast_accum, scales)
    else:
        parts = [
            _sum(chip, a[:, columns], b[:, columns], read, use_fast_accum, {})
            for columns in _split_columns(k, splits, chip, scheme)
        ]
        d = _scaled(_reduced(parts, scheme), scales)
    if bias is not None:
        _core.add_to_rows(d, bias.detach().float().contiguous().numpy())
    scale = 1.0
    if scale_result is not None and out_format in TORCH_FP8:
        scale = float(scale_result)
    return as_words(d, out_format, scale)


def _scaled(total: Floats, scales: dict[str, Any]) -> Floats:
    """The scales applied to a finished sum: the product of zeros that starts from it."""
    zeros = [np.zeros((size, 1), np.uint8) for size in total.shape]
    problem = make_problem(
        *zeros, a_format="e4m3fn", b_format="e4m3fn", model=find_model("fp32").accumulator, c=total,
        c_enters="accumulator", **scales,
    )
    d = np.empty_like(total)
    _core.gemm(problem.core, d, threads(), "cpu")
    return d


@scaled_mm_op.register_fake
def _(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    scale_result: Tensor | None,
    formats: str,
    use_fast_accum: bool,
    platform: str,
    splits: int,
    scheme: str,
) -> Tensor:
    dtype = WORD_DTYPES.get(formats.split()[2], torch.uint8)
    return input.new_empty((input.shape[0], mat2.shape[1]), dtype=dtype)


def _split_of(
    splitk: int | str | tuple[int, str], chip: Platform, input: Tensor, mat2: Tensor,
    out_dtype: torch.dtype, fast: bool,
) -> tuple[int, str]:
    if splitk == "recorded":
        return _recorded_split(chip, input, mat2, out_dtype, fast)
    splits, scheme = splitk if isinstance(splitk, tuple) else (splitk, "")
    if not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splitk: expected 1, (parts, scheme) or 'recorded', got {splitk!r}")
    if splits > 1 and scheme not in chip.split_schemes:
        raise ValueError(f"splitk: expected a scheme of {chip.name} ({', '.join(chip.split_schemes)}), got '{scheme}'")
    return splits, scheme


def _recorded_split(
    chip: Platform, input: Tensor, mat2: Tensor, out_dtype: torch.dtype, fast: bool
) -> tuple[int, str]:
    """What cuBLAS chose on the chip, from mmaemu's tables."""
    if not chip.profile:
        raise ValueError(f"splitk: expected a platform with recorded splits, got {chip.name}")
    try:
        import mmaemu
    except ImportError as error:
        raise ImportError("splitk='recorded': expected the package mmaemu, got none") from error
    one = torch.ones(())
    plan = mmaemu.explain(
        input, mat2, one, one, out_dtype=out_dtype, use_fast_accum=fast, profile=chip.profile
    )
    if plan.split is None:
        raise ValueError(f"splitk: expected a shape that mmaemu knows on {chip.name}, got {plan}")
    return plan.split.S, plan.split.scheme


def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    platform: str = "h100",
    splitk: int | str | tuple[int, str] = 1,
) -> Tensor:
    """`torch._scaled_mm` with the bits of a named platform: [m, n] in out_dtype (input's dtype).

    input [m, k] and mat2 [k, n]: float8_e4m3fn or float8_e5m2. scale_a, scale_b: float32 inverse
    scales, one value each, or [m, 1] and [1, n] (row-wise). One chain of k with use_fast_accum,
    else one every 128 terms, added in FP32. Tensor-wise: fma(sum, scale_a * scale_b, +0); row-wise:
    sum * scale_b * scale_a. The bias is added in FP32. Then one rounding to out_dtype, nearest
    even: FP8 outputs are multiplied by scale_result in FP32 first and saturate, others ignore it;
    a NaN is NVIDIA's. How well each is known: `fp8lab.torch.Platform`.

    platform: "h100", "rtx4060" or "b200". splitk: into how many parts the library splits k, which
    is its own choice and changes bits: 1, (parts, "contiguous") on h100, (parts, "serial") or
    (parts, "pairwise") on rtx4060, or "recorded", as the package mmaemu recorded it.

    >>> import torch, fp8lab.torch
    >>> ones = torch.ones(16, 32768).to(torch.float8_e4m3fn)
    >>> one = torch.ones(())
    >>> for fast in (True, False):
    ...     print(float(fp8lab.torch.scaled_mm(
    ...         ones, ones.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)[0, 0]))
    16384.0
    32768.0
    """
    dtype = input.dtype if out_dtype is None else out_dtype
    if dtype not in FORMAT_OF:
        raise ValueError(f"out_dtype: expected float32, bfloat16, float16 or an FP8 type, got {dtype}")
    chip = find_platform(platform)
    a, a_format = _codes("input", input)
    b, b_format = _codes("mat2", mat2)
    splits, scheme = _split_of(splitk, chip, input, mat2, dtype, use_fast_accum)
    formats = f"{a_format} {b_format} {FORMAT_OF[dtype]}"
    result: Tensor = torch.ops.fp8lab.scaled_mm(
        a, b, scale_a, scale_b, bias, scale_result, formats, use_fast_accum, platform, splits, scheme
    )
    return result.view(dtype)


@contextlib.contextmanager
def emulate_scaled_mm(
    platform: str = "h100", *, splitk: int | str | tuple[int, str] = 1
) -> Iterator[None]:
    """A context in which `torch._scaled_mm` on CPU tensors has the bits of a platform.

    Code that calls it, such as torchao's float8 modules, runs unchanged; its backward pass must run
    inside too. It takes the place of torch's own CPU kernel, for all threads. platform and splitk as
    for `scaled_mm`.

    >>> import torch, fp8lab.torch
    >>> x, one = torch.ones(16, 32768).to(torch.float8_e4m3fn), torch.ones(())
    >>> with fp8lab.torch.emulate_scaled_mm("h100"):
    ...     y = torch._scaled_mm(x, x.t(), one, one, out_dtype=torch.float32, use_fast_accum=True)
    >>> float(y[0, 0])
    16384.0
    """
    find_platform(platform)
    call = functools.partial(scaled_mm, platform=platform, splitk=splitk)
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Oo]verrid")
            library.impl("_scaled_mm", call, "CPU", allow_override=True)
        yield
    finally:
        library._destroy()


def quantize(
    x: Tensor, preset: str | Recipe = "te-current", role: str = "activation"
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and inverse scales of x [rows, k], as `fp8lab.quantize` gives them.

    Codes are of torch's FP8 dtype and x's shape; scales have one element a tile, multiply into FP8
    and are float32; value = code * inverse scale. ValueError for recipes with a past.

    >>> import torch, fp8lab.torch
    >>> codes, scales, inverse = fp8lab.torch.quantize(torch.tensor([[1.0, -2.0, 3.5]]))
    >>> codes.float(), float(scales), float(inverse)
    (tensor([[ 128., -256.,  448.]]), 128.0, 0.0078125)
    """
    recipe = Recipe(**_core.find_recipe(preset, role)) if isinstance(preset, str) else preset
    if recipe.source != "current":
        raise ValueError(f"recipe: expected one without a past, got {recipe.source}")
    require_cpu("x", x)
    text = json.dumps(dataclasses.asdict(recipe))
    result: tuple[Tensor, Tensor, Tensor] = torch.ops.fp8lab.quantize(x, text)
    return result
