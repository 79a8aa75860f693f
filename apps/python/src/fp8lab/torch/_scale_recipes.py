"""The scales of `torch.nn.functional.scaled_mm` (PyTorch 2.10) as tiles of operands.

Errors that PyTorch's own kernels give have their words and types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from fp8lab.torch._device import require_place
from fp8lab.torch._platforms import Platform

#: By number, as `torch.nn.functional.ScalingType` and `SwizzleType` count them; older versions
#: of PyTorch have neither.
SCALING = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
SWIZZLES = ("NO_SWIZZLE", "SWIZZLE_32_4_4", "SWIZZLE_32_8")
BLOCKS_OF_128 = (
    ("BlockWise1x128", "BlockWise1x128"),
    ("BlockWise1x128", "BlockWise128x128"),
    ("BlockWise128x128", "BlockWise1x128"),
)
FP4 = getattr(torch, "float4_e2m1fn_x2", None)
E8M0 = getattr(torch, "float8_e8m0fnu", None)


def is_fp4(x: Tensor) -> bool:
    """Two codes a byte along k, the first in the low bits."""
    return FP4 is not None and x.dtype == FP4


class TileScales(NamedTuple):
    """Inverse scales of tiles, [ceil(rows / row_block), ceil(k / k_block)]; a block of 0 is all."""

    values: Tensor
    row_block: int
    k_block: int


def as_list(x: Any) -> list[Any]:
    return [] if x is None else list(x) if isinstance(x, (list, tuple)) else [x]


def _names(argument: str, values: Any, known: Sequence[str]) -> list[str]:
    """Names of enumerators, which may be given as numbers, as the operator takes them."""
    names = []
    for value in as_list(values):
        number = getattr(value, "value", value)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(known):
            raise ValueError(f"{argument}: expected one of {', '.join(known)}, got {value!r}")
        names.append(known[number])
    return names


def _round_up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def _unsupported(mat_a: Tensor, mat_b: Tensor, recipe_a: list[str], recipe_b: list[str]) -> NoReturn:
    raise ValueError(
        "Invalid scaling configuration for _scaled_mm_v2: unsupported recipe(s). "
        f"Got mat_a.dtype={mat_a.dtype}, mat_b.dtype={mat_b.dtype}, "
        f"recipe_a={', '.join(recipe_a)}, recipe_b={', '.join(recipe_b)}"
    )


def require_matrices(
    mat_a: Tensor, mat_b: Tensor, bias: Tensor | None, contraction_dim: Sequence[int]
) -> None:
    """What holds under every recipe, in the order and the words of PyTorch."""
    for name, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        require_place(name, x)
        if x.dim() != 2:
            raise ValueError(f"{name} must be a matrix")
    if contraction_dim and (
        len(contraction_dim) != 2 or contraction_dim[0] not in (1, -1) or contraction_dim[1] not in (0, -2)
    ):
        raise ValueError("torch._scaled_mm_v2 only supports contraction_dim=(1, 0)")
    if not all(x.dtype.is_floating_point and x.element_size() == 1 for x in (mat_a, mat_b)):
        raise ValueError(
            "Expected both inputs to be fp8 or fp4 types but got "
            f"mat_a.dtype={mat_a.dtype} and mat_b.dtype={mat_b.dtype}"
        )
    if mat_a.shape[1] != mat_b.shape[0]:
        shapes = " and ".join("x".join(map(str, x.shape)) for x in (mat_a, mat_b))
        raise ValueError(f"mat_a and mat_b shapes cannot be multiplied ({shapes})")
    if bias is not None and bias.numel() != mat_b.shape[1]:
        raise ValueError(f"Bias must be size {mat_b.shape[1]} but got {bias.numel()}")


def whole_scales(
    mat_a: Tensor, mat_b: Tensor, scale_a: list[Tensor], scale_b: list[Tensor], kind: str
) -> tuple[Tensor, Tensor]:
    """Scales of a tensor or of each row, shaped as `torch._scaled_mm` takes them."""
    made = []
    for name, scales, rows in (("scale_a", scale_a, mat_a.shape[0]), ("scale_b", scale_b, mat_b.shape[1])):
        expected = 1 if kind == "TensorWise" else rows
        ok = len(scales) == 1 and scales[0].numel() == expected and scales[0].dtype == torch.float32
        if not ok and kind == "TensorWise":
            raise ValueError(f"{name} must have 1 Float element")
        if not ok:
            got = scales[0].numel() if scales else 0
            raise ValueError(f"{name} must have {expected} Float elements, got {got}")
        made.append(scales[0].reshape(()) if kind == "TensorWise" else scales[0].reshape(-1))
    if kind == "RowWise":
        return made[0].reshape(-1, 1), made[1].reshape(1, -1)
    return made[0], made[1]


def _dense(name: str, scale: Tensor, shape: tuple[int, int]) -> Tensor:
    """Float32 scales of this shape whose first dimension is the dense one."""
    sizes = " x ".join(map(str, shape))
    if scale.dtype != torch.float32 or tuple(scale.shape) != shape:
        raise ValueError(f"{name} must have shape {sizes} Float elements, got {list(scale.shape)}")
    strides = scale.stride()
    laid_out = strides[0] == 1 or shape[0] == 1, strides[1] == shape[0] or shape[1] == 1
    if scale.numel() and not all(laid_out):
        raise ValueError(f"{name} must have strides (1, {shape[0]}); got {list(strides)}")
    return scale


def _blocks_of_128(name: str, kind: str, scale: Tensor, rows: int, k: int) -> TileScales:
    """1x128: [rows, ceil(k/128)]. 128x128: [ceil(k/128) up to a multiple of 4, ceil(rows/128)]."""
    blocks = -(-k // 128)
    if kind == "BlockWise1x128":
        return TileScales(_dense(name, scale, (rows, blocks)), 1, 128)
    padded = _dense(name, scale, (_round_up(blocks, 4), -(-rows // 128)))
    return TileScales(padded[:blocks].t(), 128, 128)


def unswizzled(scale: Tensor, rows: int, columns: int) -> Tensor:
    """The [rows, columns] of scales in the order SWIZZLE_32_4_4.

    They lie in tiles of 128 rows and 4 columns, padded to whole ones; inside a tile row r is the
    16 bytes at 16 (r mod 32), of which its four columns are those from 4 (r div 32) on.
    """
    row_tiles, column_tiles = -(-rows // 128), -(-columns // 4)
    tiles = scale.reshape(row_tiles, column_tiles, 32, 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(row_tiles * 128, column_tiles * 4)[:rows, :columns]


def _swizzled(name: str, scale: Tensor, swizzle: list[str], rows: int, k: int, block: int = 32) -> TileScales:
    """Scales of 32 elements of k (E8M0) or of 16 (UE4M3: E4M3 whose sign the unit does not read)."""
    if not swizzle or swizzle[0] != "SWIZZLE_32_4_4":
        raise ValueError(f"{name} must be swizzled to SWIZZLE_32_4_4 format")
    columns = -(-k // block)
    expected = _round_up(rows, 128) * _round_up(columns, 4)
    if scale.numel() != expected or not scale.is_contiguous():
        how = " with SWIZZLE_32_4_4" if block == 32 else ""
        raise ValueError(
            f"For Blockwise scaling{how} {name} should have {expected} elements, got: {scale.numel()}"
        )
    codes = unswizzled(scale.reshape(-1).view(torch.uint8), rows, columns)
    return TileScales(codes.contiguous().view(scale.dtype).float().abs(), 1, block)


def _require_block_scales(chip: Platform) -> None:
    if not chip.block_scaled_model:
        raise NotImplementedError(f"platform: expected one with block-scaled instructions (b200), got {chip.name}")


def _require_fp4(chip: Platform) -> None:
    if not chip.fp4_model:
        raise NotImplementedError(f"platform: expected one with FP4 instructions (b200), got {chip.name}")


def _require_blocks_of_128(chip: Platform) -> None:
    if not chip.blocks_of_128:
        raise NotImplementedError(
            f"DeepSeek style (1x128, 128x128) scaling only supported in CUDA for SM90, got {chip.name}"
        )


def _block_of(scale_a: Tensor, scale_b: Tensor) -> int:
    """The elements along k that scales which are codes are for; 0 for others."""
    if scale_a.dtype != scale_b.dtype:
        return 0
    return {E8M0: 32, torch.float8_e4m3fn: 16}.get(scale_a.dtype, 0)


def tiles_by_shape(
    chip: Platform, input: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor
) -> tuple[tuple[TileScales, TileScales], bool] | None:
    """The tiles that scales of `torch._scaled_mm`, which has no recipes, have by their shapes.

    None for scales of a tensor or of rows, and for what fits nothing. With whether the instruction
    applies them. B's scales are [ceil(k/128), n] or [ceil(k/128), ceil(n/128)] here.
    """
    require_place("scale_a", scale_a)
    require_place("scale_b", scale_b)
    (m, k), n = input.shape, mat2.shape[1]
    swizzle = ["SWIZZLE_32_4_4"]
    fp4 = is_fp4(input) and is_fp4(mat2)
    if not fp4 and (is_fp4(input) or is_fp4(mat2)):
        return None
    block = _block_of(scale_a, scale_b)
    if block == 32 or (fp4 and block == 16):
        (_require_fp4 if fp4 else _require_block_scales)(chip)
        k *= 1 + fp4
        return (
            _swizzled("scale_a", scale_a, swizzle, m, k, block),
            _swizzled("scale_b", scale_b, swizzle, n, k, block),
        ), True
    a, b, blocks = tuple(scale_a.shape), tuple(scale_b.shape), -(-k // 128)
    if scale_a.numel() == scale_b.numel() == 1 or (a == (m, 1) and b == (1, n)):
        return None
    # Of one row both are the same tiles.
    a_rows = {(-(-m // 128), blocks): 128, (m, blocks): 1}.get(a)
    b_rows = {(blocks, -(-n // 128)): 128, (blocks, n): 1}.get(b)
    floats = scale_a.dtype == scale_b.dtype == torch.float32
    if a_rows is None or b_rows is None or a_rows + b_rows > 129 or not floats:
        return None
    _require_blocks_of_128(chip)
    return (TileScales(scale_a, a_rows, 128), TileScales(scale_b.t(), b_rows, 128)), False


class Configuration(NamedTuple):
    """`whole`: for `torch._scaled_mm`. `tiles`: of A and of B, with the instruction's own or not.

    alpha: the product of NVFP4's two scales of tensors, which multiplies the finished sum.
    """

    whole: tuple[Tensor, Tensor] | None
    tiles: tuple[TileScales, TileScales] | None
    block_scaled: bool
    alpha: Tensor | None = None


def _fp4_configuration(
    chip: Platform, mat_a: Tensor, mat_b: Tensor, scales: tuple[list[Tensor], list[Tensor]],
    recipes: tuple[list[str], list[str]], swizzles: tuple[list[str], list[str]],
) -> Configuration:
    """NVFP4 with one level of scales or two, or MXFP4."""
    levels = recipes[0]
    blocks = {"BlockWise1x16": (16, torch.float8_e4m3fn), "BlockWise1x32": (32, E8M0)}
    block, dtype = blocks.get(levels[0] if levels else "", (0, None))
    second = levels[1:] == ["TensorWise"] and block == 16
    fits = levels == recipes[1] and (len(levels) == 1 or second)
    for given in scales:
        fits = fits and len(given) == len(levels) and given[0].dtype == dtype
        fits = fits and (not second or given[1].dtype == torch.float32)
    if not fits:
        _unsupported(mat_a, mat_b, *recipes)
    for name, swizzle in zip("ab", swizzles):
        if len(swizzle) != len(levels):
            values = "values" if second else "value"
            raise ValueError(f"swizzle_{name} must have {len(levels)} {values}, got {len(swizzle)}")
    _require_fp4(chip)
    k = 2 * mat_a.shape[1]
    tiles = (
        _swizzled("scale_a", scales[0][0], swizzles[0], mat_a.shape[0], k, block),
        _swizzled("scale_b", scales[1][0], swizzles[1], mat_b.shape[1], k, block),
    )
    if not second:
        return Configuration(None, tiles, True)
    for name, given in zip(("scale_a", "scale_b"), scales):
        if given[1].numel() != 1:
            raise ValueError(f"{name}[1]: expected one value for the tensor, got {list(given[1].shape)}")
    alpha = scales[0][1].detach().reshape(()) * scales[1][1].detach().reshape(())
    return Configuration(None, tiles, True, alpha)


def configuration(
    chip: Platform,
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any,
    swizzle_b: Any,
) -> Configuration:
    """What the arguments of `torch.nn.functional.scaled_mm` say; ValueError where they do not fit."""
    recipe_a = _names("scale_recipe_a", scale_recipe_a, SCALING)
    recipe_b = _names("scale_recipe_b", scale_recipe_b, SCALING)
    swizzles = _names("swizzle_a", swizzle_a, SWIZZLES), _names("swizzle_b", swizzle_b, SWIZZLES)
    scales_a, scales_b = as_list(scale_a), as_list(scale_b)
    for name, scales in (("scale_a", scales_a), ("scale_b", scales_b)):
        for scale in scales:
            require_place(name, scale)
    (m, k), n = mat_a.shape, mat_b.shape[1]
    if is_fp4(mat_a) and is_fp4(mat_b):
        return _fp4_configuration(chip, mat_a, mat_b, (scales_a, scales_b), (recipe_a, recipe_b), swizzles)
    pair = (recipe_a[0], recipe_b[0]) if len(recipe_a) == len(recipe_b) == 1 else ("", "")
    if pair in (("TensorWise", "TensorWise"), ("RowWise", "RowWise")):
        return Configuration(whole_scales(mat_a, mat_b, scales_a, scales_b, pair[0]), None, False)
    e4m3 = mat_a.dtype == mat_b.dtype == torch.float8_e4m3fn
    if len(scales_a) != 1 or len(scales_b) != 1 or not e4m3:
        _unsupported(mat_a, mat_b, recipe_a, recipe_b)
    if pair in BLOCKS_OF_128:
        _require_blocks_of_128(chip)
        tiles = (
            _blocks_of_128("scale_a", pair[0], scales_a[0], m, k),
            _blocks_of_128("scale_b", pair[1], scales_b[0], n, k),
        )
        return Configuration(None, tiles, False)
    if pair != ("BlockWise1x32", "BlockWise1x32") or {scales_a[0].dtype, scales_b[0].dtype} != {E8M0}:
        _unsupported(mat_a, mat_b, recipe_a, recipe_b)
    for name, swizzle in zip("ab", swizzles):
        if len(swizzle) != 1:
            raise ValueError(f"swizzle_{name} must have 1 value, got {len(swizzle)}")
    _require_block_scales(chip)
    tiles = (
        _swizzled("scale_a", scales_a[0], swizzles[0], m, k),
        _swizzled("scale_b", scales_b[0], swizzles[1], n, k),
    )
    return Configuration(None, tiles, True)
