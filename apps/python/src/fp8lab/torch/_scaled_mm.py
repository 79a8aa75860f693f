"""`torch._scaled_mm` and `torch.nn.functional.scaled_mm` with the bits of a named platform."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fp8lab import _core
from fp8lab._recipes import Recipe
from fp8lab._registry import find_model
from fp8lab.torch import _device, _device_mm, _tiled_mm  # noqa: F401  (registers the operator)
from fp8lab.torch._device import require_place
from fp8lab.torch._either import either
from fp8lab.torch._observed import as_observed, observed_ranges, observed_sum, part_ranges, table_call
from fp8lab.torch._ops import TORCH_FP8
from fp8lab.torch._platforms import (
    FORMAT_OF,
    Floats,
    Platform,
    add_bias,
    as_words,
    fake_words,
    find_platform,
    given_or,
    product,
)
from fp8lab.torch._plan import array_of
from fp8lab.torch._scale_recipes import TileScales, configuration, is_fp4, require_matrices, tiles_by_shape


def _sum(
    platform: Platform, a: NDArray[Any], b: NDArray[Any], formats: tuple[str, str], fast: bool,
    scales: dict[str, Any],
) -> Floats:
    """One chain, or chains of 128 terms added in FP32; the scales at the end."""
    return product(
        a,
        b,
        a_format=formats[0],
        b_format=formats[1],
        model=find_model(platform.model).accumulator,
        promotion_interval=0 if fast else platform.slow_promotion,
        **scales,
    )


def _split_ranges(k: int, splits: int, platform: Platform, scheme: str) -> _device_mm.Ranges:
    """The columns of K of each split as ranges, in the order of its chain."""
    return part_ranges(k, splits, platform.split_tile, scheme == "contiguous")


def _split_columns(k: int, ranges: _device_mm.Ranges) -> list[NDArray[np.int64]]:
    """The numbers of these columns."""
    columns = np.arange(k)
    return [np.concatenate([columns[:0], *(columns[start:stop] for start, stop in r)]) for r in ranges]


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


def _scales(name: str, scale: Tensor, rows: int, columns: int) -> Tensor:
    """One value, or one a row; torch's [n]-wise scales of B lie in a row."""
    shape = list(scale.shape)
    wanted = [rows, 1] if columns == 1 else [1, columns]
    if scale.dtype != torch.float32 or (scale.numel() != 1 and shape != wanted):
        raise ValueError(f"{name}: expected float32, one value or {wanted}, got {scale.dtype} {shape}")
    return scale.detach().contiguous().reshape(-1)


def _codes(name: str, x: Tensor) -> tuple[Tensor, str]:
    require_place(name, x)
    if x.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2) and not is_fp4(x):
        raise ValueError(f"{name}: expected float8_e4m3fn or float8_e5m2, got {x.dtype}")
    if x.dim() != 2:
        raise ValueError(f"{name}: expected a matrix, got {list(x.shape)}")
    return x.view(torch.uint8), "e2m1" if is_fp4(x) else FORMAT_OF[x.dtype]


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
    require_place("input", input)
    on_cuda = _device.is_cuda(input)
    others = {"mat2": mat2, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    for name, other in {**others, "scale_result": scale_result if on_cuda else None}.items():
        if other is not None:
            require_place(name, other, input)
    (m, k), n = input.shape, mat2.shape[1]
    if mat2.shape[0] != k:
        raise ValueError(f"mat2: expected [{k}, n], got {list(mat2.shape)}")
    a_format, b_format, out_format = formats.split()
    a_values, b_values = _scales("scale_a", scale_a, m, 1), _scales("scale_b", scale_b, 1, n)
    row_wise = a_values.numel() > 1 or b_values.numel() > 1
    order = "b_then_fma_a" if row_wise else "product_then_fma"
    read, how = (a_format, b_format), None
    if splits == 0 and m * n:
        counts = a_values.numel(), b_values.numel()
        how = observed_sum(chip, table_call(scheme, use_fast_accum), (m, n, k), read, out_format, counts)
    ranges = [[(0, k)]] if splits < 2 else _split_ranges(k, splits, chip, scheme)
    if on_cuda:
        interval = 0 if use_fast_accum else chip.slow_promotion
        chain = _device_mm.Chain(interval, order, ranges, scheme)
        if how is not None:
            by = how.split.order if how.split else ""
            chain = _device_mm.Chain(how.promotion_interval, how.scale_order, observed_ranges(how, k), by)
        return _device_mm.scaled_mm(
            chip, input.detach(), mat2.detach().t(), a_values, b_values, bias=bias, formats=formats,
            scale_result=scale_result, chain=chain,
        )
    if m * n == 0:
        return fake_words(input, mat2, formats)
    a, b = array_of(input), array_of(mat2).T
    scale_a, scale_b = array_of(a_values), array_of(b_values)
    scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_order": order}
    if how is not None:
        d = as_observed(how, a, b, read, scales)
    elif splits == 1:
        d = _sum(chip, a, b, read, use_fast_accum, scales)
    else:
        parts = [
            _sum(chip, a[:, columns], b[:, columns], read, use_fast_accum, {})
            for columns in _split_columns(k, ranges)
        ]
        d = _scaled(_reduced(parts, scheme), scales)
    add_bias(d, bias)
    scale = 1.0
    if scale_result is not None and out_format in TORCH_FP8:
        scale = float(scale_result)
    return as_words(d, out_format, scale)


def _scaled(total: Floats, scales: dict[str, Any]) -> Floats:
    """The scales applied to a finished sum: the product of zeros that starts from it."""
    zeros = [np.zeros((size, 1), np.uint8) for size in total.shape]
    return product(
        *zeros, a_format="e4m3fn", b_format="e4m3fn", model=find_model("fp32").accumulator, c=total,
        c_enters="accumulator", **scales,
    )


@scaled_mm_op.register_fake
def _(input: Tensor, mat2: Tensor, *others: Any) -> Tensor:
    formats = others[4]
    return fake_words(input, mat2, formats)


def _split_of(
    splitk: int | str | tuple[int, str], chip: Platform, input: Tensor, mat2: Tensor,
    out_dtype: torch.dtype, fast: bool,
) -> tuple[int, str]:
    if splitk == "recorded":
        return _recorded_split(chip, input, mat2, out_dtype, fast)
    if isinstance(splitk, str) and _core.is_table_call(splitk):
        return 0, splitk
    splits, scheme = splitk if isinstance(splitk, tuple) else (splitk, "")
    if not isinstance(splits, int) or splits < 1:
        raise ValueError(f"splitk: expected 1, (parts, scheme), 'recorded' or 'FILE.csv', got {splitk!r}")
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


def _formats(input: Tensor, mat2: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, str]:
    if dtype not in FORMAT_OF:
        raise ValueError(f"out_dtype: expected float32, bfloat16, float16 or an FP8 type, got {dtype}")
    a, a_format = _codes("input", input)
    b, b_format = _codes("mat2", mat2)
    return a, b, f"{a_format} {b_format} {FORMAT_OF[dtype]}"


def _tiled(
    input: Tensor, mat2: Tensor, tiles: tuple[TileScales, TileScales], block_scaled: bool,
    bias: Tensor | None, dtype: torch.dtype, chip: Platform, splitk: int | str | tuple[int, str],
    alpha: Tensor | None = None,
) -> Tensor:
    if splitk != 1:
        raise ValueError(f"splitk: expected 1 with scales of blocks, got {splitk!r}")
    a, b, formats = _formats(input, mat2, dtype)
    blocks = [tiles[0].row_block, tiles[0].k_block, tiles[1].row_block, tiles[1].k_block]
    values = (tiles[0].values, tiles[1].values)
    result: Tensor = torch.ops.fp8lab.scaled_mm_tiles(
        a, b, *values, bias, formats, blocks, block_scaled, chip.name, alpha
    )
    return result.view(dtype)


def _by_shapes(
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
    out: Tensor | None = None,
) -> Tensor:
    dtype = input.dtype if out_dtype is None else out_dtype
    chip = find_platform(platform)
    a, b, formats = _formats(input, mat2, dtype)
    found = tiles_by_shape(chip, input, mat2, scale_a, scale_b)
    if found is None and (is_fp4(input) or is_fp4(mat2)):
        raise ValueError(
            "scale_a: expected UE4M3 scales of 16 elements (float8_e4m3fn) or E8M0 scales of 32 with two "
            f"FP4 operands, got {scale_a.dtype}, and operands of {input.dtype} and {mat2.dtype}"
        )
    result: Tensor
    if found is not None:
        tiles, block_scaled = found
        result = _tiled(input, mat2, tiles, block_scaled, bias, dtype, chip, splitk)
    else:
        splits, scheme = _split_of(splitk, chip, input, mat2, dtype, use_fast_accum)
        result = torch.ops.fp8lab.scaled_mm(
            a, b, scale_a, scale_b, bias, scale_result, formats, use_fast_accum, platform, splits, scheme
        ).view(dtype)
    return given_or(out, result, "scaled_mm", scale_a, scale_b, bias)


def by_recipes(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: Any,
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    platform: str = "h100",
    splitk: int | str | tuple[int, str] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`scaled_mm` with the arguments of `torch.nn.functional.scaled_mm`."""
    chip = find_platform(platform)
    require_matrices(mat_a, mat_b, bias, contraction_dim)
    dtype = mat_a.dtype if output_dtype is None else output_dtype
    found = configuration(
        chip, mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a, swizzle_b
    )
    if found.whole is not None:
        return _by_shapes(
            mat_a, mat_b, *found.whole, bias, None, dtype, use_fast_accum, platform=platform, splitk=splitk, out=out
        )
    assert found.tiles is not None
    result = _tiled(mat_a, mat_b, found.tiles, found.block_scaled, bias, dtype, chip, splitk, found.alpha)
    return given_or(out, result, "scaled_mm", *found.tiles[0][:1], *found.tiles[1][:1], bias)


for _signature in (_by_shapes, by_recipes):  # as Python names it where arguments are missing
    _signature.__qualname__ = "scaled_mm"


@either(_by_shapes, by_recipes)
def scaled_mm(*args: Any, **kwargs: Any) -> Tensor:
    """`torch._scaled_mm` or `torch.nn.functional.scaled_mm` with the bits of a platform: [m, n].

    Arguments are those of either function: (input, mat2, scale_a, scale_b, bias, scale_result,
    out_dtype, use_fast_accum), or (mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
    swizzle_a, swizzle_b, bias, output_dtype, contraction_dim, use_fast_accum). Operands [m, k] and
    [k, n]: float8_e4m3fn, float8_e5m2 or FP4. Scales are inverse scales: value = code * scale.

    TensorWise, RowWise: float32, one value, or one per row of A and per column of B ([m, 1] and [1,
    n] without recipes). There is one chain of k with use_fast_accum, else one every 128 terms,
    added in FP32. Tensor-wise: fma(sum, scale_a * scale_b, +0); row-wise: sum * scale_b * scale_a.
    BlockWise1x128, BlockWise128x128 (h100): float32 in the shapes and strides that PyTorch's error
    texts name. Each 128 terms are one chain, added as fma(chain * s_b, s_a, sum) in FP32, with or
    without use_fast_accum. BlockWise1x32 (b200; MXFP8): float8_e8m0fnu, swizzled as SWIZZLE_32_4_4;
    the instruction applies them. FP4 (b200; float4_e2m1fn_x2, [m, k/2] and [k/2, n]): BlockWise1x32
    (MXFP4), or BlockWise1x16 (NVFP4) in float8_e4m3fn, swizzled too. A second level of NVFP4,
    TensorWise: the FP32 product of both scales multiplies the finished sum.

    The bias is added in FP32. Then the result is rounded once to out_dtype (default: that of
    input), to nearest even. FP8 outputs are first multiplied by scale_result in FP32, and saturate;
    others ignore it. A NaN has NVIDIA's bits. `fp8lab.torch.Platform` says how well each platform
    is known.

    platform: "h100", "rtx4060" or "b200". splitk: the number of parts into which the library splits
    k, which the library chooses and which changes bits: 1, (parts, "contiguous") on h100, (parts,
    "serial") or (parts, "pairwise") on rtx4060, or "recorded", as the package mmaemu recorded it; or
    the table of calls that `fp8lab-cuda observe` wrote on that chip, "cublaslt.csv", which sets the
    promotion and the order of scales too ("cublaslt.csv:order=serial" chooses where more than one
    candidate fits); 1 with blocks. out: a tensor for the result, of the result's dtype; resized as by other functions
    of torch. All tensors are on the CPU, or in a build with CUDA on one CUDA device: the same bits,
    queued on torch's current stream, except for MX formats and NVFP4.

    >>> import torch, fp8lab.torch
    >>> ones = torch.ones(16, 32768).to(torch.float8_e4m3fn)
    >>> one = torch.ones(())
    >>> for fast in (True, False):
    ...     print(float(fp8lab.torch.scaled_mm(
    ...         ones, ones.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)[0, 0]))
    16384.0
    32768.0
    """
    recipes = "scale_recipe_a" in kwargs or (len(args) > 3 and not isinstance(args[3], Tensor))
    return by_recipes(*args, **kwargs) if recipes else _by_shapes(*args, **kwargs)


def quantize(
    x: Tensor, preset: str | Recipe = "te-current", role: str = "activation"
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and inverse scales of x [rows, k], as `fp8lab.quantize` gives them.

    Codes have torch's FP8 dtype and x's shape. Scales have one element per tile, multiply values
    before the cast, and are float32; value = code * inverse scale. ValueError for recipes with an
    amax history.

    >>> import torch, fp8lab.torch
    >>> codes, scales, inverse = fp8lab.torch.quantize(torch.tensor([[1.0, -2.0, 3.5]]))
    >>> codes.float(), float(scales), float(inverse)
    (tensor([[ 128., -256.,  448.]]), 128.0, 0.0078125)
    """
    recipe = Recipe(**_core.find_recipe(preset, role)) if isinstance(preset, str) else preset
    if recipe.source != "current":
        raise ValueError(f"recipe: expected one that uses only the current tensor, got {recipe.source}")
    require_place("x", x)
    text = json.dumps(dataclasses.asdict(recipe))
    result: tuple[Tensor, Tensor, Tensor] = torch.ops.fp8lab.quantize(x, text)
    return result
