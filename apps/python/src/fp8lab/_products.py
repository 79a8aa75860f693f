"""Matrix products under an accumulator model."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import as_float32, bad, codes_of, text, whole
from fp8lab._kernels import Epilogue, SplitK, set_kernel, settings_of_call
from fp8lab._mode import in_own_mode
from fp8lab._options import OperandOptions, ProductOptions, parameters_of, require_known
from fp8lab._recipes import QuantizedTensor, Scales
from fp8lab._registry import AccumulatorModel, InstructionModel, find_model
from fp8lab._scales import (
    coded_format,
    plain_values,
    require_scale_format,
    scale_array,
    scale_tensor,
    scale_values,
)
from fp8lab._warnings import warn


#: How to get what a build without CUDA lacks.
CUDA_BUILD = "pip install ./apps/python --config-settings=cmake.define.FP8LAB_ENABLE_CUDA=ON"


class _Operand(NamedTuple):
    words: NDArray[Any]
    format: str
    scales: NDArray[np.float32] | None
    row_block: int
    k_block: int
    coded: str = "f32"  #: the format of scales that came as codes
    tensor_scale: float = 1.0


def _read_layout(
    argument: str, scales: Scales, array: NDArray[Any], shape: tuple[int, int]
) -> tuple[NDArray[np.float32], int, int]:
    """Scales of another layout: values, row and k blocks."""
    read = _core.read_scales(
        scales=scale_tensor(argument, array, scales.layout),
        layout=scales.layout,
        row_block=whole(f"{argument}.row_block", scales.row_block),
        k_block=whole(f"{argument}.k_block", scales.k_block),
        rows=shape[0],
        k=shape[1],
        argument=argument,
    )
    return read[0], read[1], read[2]


def _one_or_rows(
    argument: str, values: NDArray[np.float32], rows: int, k: int
) -> tuple[NDArray[np.float32], int, int]:
    if values.size == 0 and rows * k > 0:
        raise bad(argument, "at least one scale", "none")
    if values.size > 1 and values.shape not in ((rows,), (rows, 1)):
        grid = "fp8lab.Scales(values, row_block, k_block)"
        hint = ""
        if values.shape == (1, rows):
            hint = f" (torch's form of one scale per row of {argument[0]}: pass scales.T)"
        expected = f"a number, [{rows}] or [{rows}, 1], or {grid}"
        raise bad(argument, expected, f"{list(values.shape)}{hint}")
    return values.reshape(-1), (max(rows, 1) if values.size == 1 else 1), 0


def _tile_scales(
    argument: str, scales: Any, array: NDArray[Any], shape: tuple[int, int]
) -> tuple[NDArray[np.float32], int, int]:
    """Values in the order of their tiles, and the sides of these."""
    rows, k = shape
    if not isinstance(scales, Scales):
        return _one_or_rows(argument, scale_values(argument, array), rows, k)
    if text(f"{argument}.layout", scales.layout) != "row_major":
        return _read_layout(argument, scales, array, shape)
    values = scale_values(argument, array)
    sides = (
        whole(f"{argument}.row_block", scales.row_block),
        whole(f"{argument}.k_block", scales.k_block),
    )
    row_block, k_block = sides[0] or max(rows, 1), sides[1] or max(k, 1)
    if row_block < 0 or k_block < 0:
        raise bad(argument, "blocks of 0 (all) or more", f"{sides[0]}, {sides[1]}")
    tiles = (-(-rows // row_block), -(-k // k_block))
    vector = values.ndim < 2 and 1 in tiles and values.size == math.prod(tiles)
    one = values.size == 1 and tiles == (1, 1)
    if rows * k > 0 and values.shape != tiles and not vector and not one:
        expected = f"[ceil({rows}/{row_block}), ceil({k}/{k_block})] = {list(tiles)}"
        raise bad(argument, expected, list(values.shape))
    return values.reshape(-1), row_block, sides[1]


def _operand(
    argument: str, x: Any, stated: str | None, scales: Any, scale_format: str | None
) -> _Operand:
    if isinstance(x, QuantizedTensor):
        if scales is not None:
            expected = "None, since a QuantizedTensor brings its own"
            raise bad(f"{argument}_scales", expected, type(scales).__name__)
        x, scales, stated = x.codes, x.inverse, stated or x.format
    words, name = codes_of(argument, x, stated)
    if words.ndim != 2:
        shape = "[m, k]" if argument == "a" else "[n, k]"
        raise bad(argument, f"a matrix {shape}", list(words.shape))
    if scales is None:
        return _Operand(words, name, None, 1, 0)
    keyword = f"{argument}_scales"
    tiled = isinstance(scales, Scales)
    array = scale_array(keyword, scales.values if tiled else scales, scale_format)
    values, row_block, k_block = _tile_scales(
        keyword, scales, array, (words.shape[0], words.shape[1])
    )
    second = tensor_scales(keyword, scales)
    if len(second) != 1:
        raise bad(f"{keyword}.tensor_scale", "one number, since there are no groups", list(second))
    coded = coded_format(array, scales.layout if tiled else "row_major")
    return _Operand(words, name, values, row_block, k_block, coded, second[0])


def tensor_scales(argument: str, scales: Any) -> list[float]:
    """The second level: one number, or one per group."""
    second = scales.tensor_scale if isinstance(scales, Scales) else 1.0
    if isinstance(second, (int, float)):
        return [float(second)]
    keyword = f"{argument}.tensor_scale"
    values = plain_values(keyword, second)
    if values.ndim > 1:
        raise bad(f"{argument}.tensor_scale", "one number, or [groups]", list(values.shape))
    return [float(value) for value in values.reshape(-1)]


def _c_matrix(c: ArrayLike) -> NDArray[np.float32]:
    values = as_float32("c", c)
    if values.ndim != 2:
        raise bad("c", "a matrix [m, n]", list(values.shape))
    return values


def _require_format(argument: str, name: str, wanted: str, model: InstructionModel) -> None:
    """A definition takes any format; an instruction takes its own."""
    if name != wanted and model.standing != "definition":
        expected = f"{wanted} for {model.name} (or the model's accumulator, for any format)"
        raise bad(argument, expected, name)


class Problem(NamedTuple):
    """A product ready to compute: its arrays are prepared and its arguments checked."""

    core: _core.Problem
    m: int
    n: int  #: columns of the output
    model: str  #: its registered name, if it has one


def _one_a_row(operand: _Operand) -> bool:
    """One scale a row, and more than one."""
    if operand.scales is None or operand.scales.size < 2:
        return False
    return operand.k_block in (0, operand.words.shape[1])


def _scale_count(operand: _Operand) -> int:
    return -1 if operand.scales is None else operand.scales.size


def complete(given: OperandOptions) -> ProductOptions:
    """`given` with the defaults of `gemm`. TypeError for a name that `gemm` does not have."""
    require_known(given, ProductOptions)
    return cast(ProductOptions, {**_defaults(), **given})


@functools.cache
def _defaults() -> ProductOptions:
    parameters = parameters_of(gemm, ProductOptions)
    return cast(ProductOptions, {name: one.default for name, one in parameters.items()})


def make_problem(
    a: ArrayLike | QuantizedTensor,
    b: ArrayLike | QuantizedTensor,
    model: str | InstructionModel | AccumulatorModel | None,
    given: OperandOptions,
) -> Problem:
    """The arguments of `gemm` as the library takes them."""
    options = complete(given)
    scale_format, c = options["scale_format"], options["c"]
    require_scale_format(scale_format)
    left = _operand("a", a, options["a_format"], options["a_scales"], scale_format)
    right = _operand("b", b, options["b_format"], options["b_scales"], scale_format)
    promotion_interval, scale_order = options["promotion_interval"], options["scale_order"]
    c_enters, call, split_k = options["c_enters"], options["call"], options["split_k"]
    if call is not None:
        model, promotion_interval, scale_order, split_k = settings_of_call(
            text("call", call),
            (left.words.shape[0], right.words.shape[0], left.words.shape[1]),
            (left.format, right.format),
            (_scale_count(left), _scale_count(right)),
            _one_a_row(left) or _one_a_row(right),
            split_k,
            {
                "model": (model, None),
                "promotion_interval": (promotion_interval, 0),
                "scale_order": (scale_order, "product_then_fma"),
            },
        )
    if model is None:
        raise bad("model", "an instruction, or the name of a library call (call=)", "neither")
    if not isinstance(model, (str, InstructionModel, AccumulatorModel)):
        expected = "a name, an fp8lab.InstructionModel or an fp8lab.AccumulatorModel"
        raise bad("model", expected, type(model).__name__)
    name = model if isinstance(model, str) else getattr(model, "name", "")
    if isinstance(model, str):
        model = find_model(model)
    if isinstance(model, InstructionModel):
        _require_format("a", left.format, model.a_format, model)
        _require_format("b", right.format, model.b_format, model)
        model = model.accumulator
    core = _core.Problem(
        model=model._core(),
        a=left.words,
        a_format=left.format,
        b=right.words,
        b_format=right.format,
        c=None if c is None else _c_matrix(c),
        a_scales=left.scales,
        a_row_block=left.row_block,
        a_k_block=left.k_block,
        a_coded=left.coded,
        a_tensor_scale=left.tensor_scale,
        b_scales=right.scales,
        b_row_block=right.row_block,
        b_k_block=right.k_block,
        b_coded=right.coded,
        b_tensor_scale=right.tensor_scale,
        promotion_interval=whole("promotion_interval", promotion_interval),
        scale_order=text("scale_order", scale_order),
        c_enters=None if c_enters is None else text("c_enters", c_enters),
    )
    set_kernel(core, options["epilogue"], split_k)
    return Problem(core, len(left.words), core.columns, name)


@in_own_mode
def backends() -> list[str]:
    """The backends of `gemm`: "cpu", and in a build with CUDA also "cuda" and "cuda-emulated".

    "cuda": wgmma of a Hopper GPU, for `sm90.wgmma` models on E4M3 and E5M2. The chip's own bits; no
    model of it is marked as measured yet. "cuda-emulated": the model's bits without tensor cores,
    on compute capability 8.0 and later. Choosing one without its device is a `ValueError`.

    >>> import fp8lab
    >>> fp8lab.backends()[0]
    'cpu'
    """
    names: list[str] = _core.backends()
    return names


def _require_backend(name: str) -> None:
    known = backends()
    if name in known:
        return
    expected = f"one of {', '.join(known)}"
    if name in ("cuda", "cuda-emulated"):
        expected += f"; for the others build with CUDA: {CUDA_BUILD}"
    raise bad("backend", expected, f"'{name}'")


@in_own_mode
def gemm(
    a: ArrayLike | QuantizedTensor,
    b: ArrayLike | QuantizedTensor,
    *,
    model: str | InstructionModel | AccumulatorModel | None = None,
    c: ArrayLike | None = None,
    a_scales: ArrayLike | Scales | None = None,
    b_scales: ArrayLike | Scales | None = None,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_format: str | None = None,
    promotion_interval: int = 0,
    scale_order: str = "product_then_fma",
    c_enters: str | None = None,
    call: str | None = None,
    split_k: SplitK | None = None,
    epilogue: Epilogue | None = None,
    threads: int = 0,
    backend: str = "cpu",
) -> NDArray[np.float32]:
    """D = scales * A . B^T, and C: float32 [m, n] with the bits that the instruction gives.

    a [m, k] and b [n, k]: ml_dtypes, float16 or bfloat16 arrays, uint8 codes with a_format or
    b_format ("e4m3fn", ...; tf32 in float32 arrays; "e2m1x2": two FP4 codes a byte, the first in the
    low bits, unpacked into a copy, as torch's float4_e2m1fn_x2 is), or quantized tensors, which
    include their scales. Any strides, read in place: for a weight stored as [k, n] pass `w.T`. c [m, n]: float32.
    c_enters says where c enters, which changes the bits: "accumulator", the instruction's own c,
    before any scale; "promoted_sum", the start of the FP32 sum of promoted partial sums;
    "epilogue", added to the finished sum in the units of D. Without promotion and scales it is the
    accumulator; with either, c_enters is required.

    a_scales, b_scales: inverse scales, which multiply codes to give values: a number, one per row
    ([rows] or [rows, 1]), or `Scales` for tiles. They are floats, or E8M0 codes with their dtype or
    in uint8 with scale_format="e8m0fnu", or E4M3 codes ("e4m3fn"), whose sign is ignored. A
    block-scaled instruction applies the scales of its blocks itself. Scales that change along k
    need a promotion_interval that divides their k_block. promotion_interval: the accumulator
    restarts after this number of terms, and partial sums are added in FP32; 0: never. scale_order:
    "product_then_fma" (DeepGEMM, cuBLASLt), "a_then_fma_b", "b_then_fma_a" (cuBLASLt, scales of rows),
    "a_then_b_then_add" (Triton's `dot(a, b) * s_a * s_b`) or "product_then_add". Subnormals take
    part; a NaN is always 0x7fffffff (*assumed* for hardware). The bits do not depend on threads,
    nor on the caller's floating-point mode. call: a library call by name (`calls`), in place of
    model, promotion_interval and scale_order; or one that was observed on a chip, in a table:
    "cublaslt.csv:fast,output=bf16" (`observed_calls`). split_k: k in parts. epilogue: the operations
    after the sum; the result is then the value before the cast to the output's format, [m, n / 2]
    under "swiglu". backend: where it runs, one of `backends()`. ValueError for shapes that do not
    fit, and for a product that the backend does not support. A `NonFiniteWarning` reports NaN and
    infinities.

    >>> import fp8lab, numpy as np
    >>> ones = fp8lab.encode(np.ones((1, 32768), np.float32))
    >>> float(fp8lab.gemm(ones, ones, model="sm90.wgmma.e4m3")[0, 0])
    16384.0
    >>> float(fp8lab.gemm(ones, ones, model="sm90.wgmma.e4m3", promotion_interval=128)[0, 0])
    32768.0
    >>> float(fp8lab.gemm(ones, ones, call="cublaslt.h100.slow")[0, 0])
    32768.0
    """
    _require_backend(backend)
    options = ProductOptions(
        c=c,
        a_scales=a_scales,
        b_scales=b_scales,
        a_format=a_format,
        b_format=b_format,
        scale_format=scale_format,
        promotion_interval=promotion_interval,
        scale_order=scale_order,
        c_enters=c_enters,
        call=call,
        split_k=split_k,
        epilogue=epilogue,
    )
    problem = make_problem(a, b, model, options)
    d = np.empty((problem.m, problem.n), np.float32)
    _core.gemm(problem.core, d, whole("threads", threads), backend)
    warn(_core.warning_of_product(problem.core, d))
    return d
