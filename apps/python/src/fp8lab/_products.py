"""Matrix products under an accumulator model."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import as_float32, bad, codes_of, dense_tensor, text, whole
from fp8lab._kernels import Epilogue, SplitK, core_epilogue, core_split
from fp8lab._mode import in_own_mode
from fp8lab._options import OperandOptions, ProductOptions, parameters_of, require_known
from fp8lab._recipes import QuantizedTensor, Scales
from fp8lab._registry import AccumulatorModel, InstructionModel, find_model
from fp8lab._scales import plain_values, require_scale_format, scale_tensor
from fp8lab._warnings import warn


#: How to get what a build without CUDA lacks.
CUDA_BUILD = "pip install ./apps/python --config-settings=cmake.define.FP8LAB_ENABLE_CUDA=ON"


def tensor_scales(argument: str, scales: Any) -> list[float]:
    """The second level: one number, or one per group."""
    second = scales.tensor_scale if isinstance(scales, Scales) else 1.0
    if isinstance(second, (int, float)):
        return [float(second)]
    keyword = f"{argument}.tensor_scale"
    values = plain_values(keyword, second)
    if values.ndim > 1:
        raise bad(keyword, "one number, or [groups]", list(values.shape))
    return [float(value) for value in values.reshape(-1)]


def _codes(argument: str, x: Any, stated: str | None, recipe: str | None, in_groups: bool) -> _core.Tensor:
    """Codes, or the floats that a recipe quantizes."""
    if recipe is None:
        words, name = codes_of(argument, x, stated)
        return dense_tensor(words, name) if in_groups else _core.Tensor(words, name)
    if stated is not None:
        raise bad(f"{argument}_format", f"None, since the recipe {recipe} gives it", stated)
    return _core.Tensor(as_float32(argument, x), "f32")


def _operand(argument: str, x: Any, options: ProductOptions, in_groups: bool) -> _core.Operand:
    """Operand "a" or "b" as the library takes it."""
    keyword = f"scale_{argument}"
    scales, stated, recipe = options[keyword], options[f"{argument}_format"], options["recipe"]  # type: ignore[literal-required]
    if isinstance(x, QuantizedTensor):
        if scales is not None:
            raise bad(keyword, "None, since a QuantizedTensor brings its own", type(scales).__name__)
        if recipe is not None:
            raise bad("recipe", "None, since a QuantizedTensor is quantized", recipe)
        x, scales, stated = x.codes, x.inverse, stated or x.format
    layout, values = "row_major", scales
    sides: tuple[int | None, int | None] = None, None
    if isinstance(scales, Scales):
        layout = text(f"{keyword}.layout", scales.layout)
        sides = whole(f"{keyword}.row_block", scales.row_block), whole(f"{keyword}.k_block", scales.k_block)
        values = scales.values
    return _core.Operand(
        codes=_codes(argument, x, stated, recipe, in_groups),
        scales=None if scales is None else scale_tensor(keyword, values, layout, options["scale_format"]),
        tile_rows=sides[0],
        tile_k=sides[1],
        layout=layout,
        tensor_scales=tensor_scales(keyword, scales),
    )


def _floats(argument: str, x: ArrayLike | None) -> _core.Tensor | None:
    return None if x is None else _core.Tensor(as_float32(argument, x), "f32")


def complete(given: OperandOptions) -> ProductOptions:
    """`given` with the defaults of `gemm`. TypeError for a name that `gemm` does not have."""
    require_known(given, ProductOptions)
    return cast(ProductOptions, {**_defaults(), **given})


@functools.cache
def _defaults() -> ProductOptions:
    parameters = parameters_of(gemm, ProductOptions)
    return cast(ProductOptions, {name: one.default for name, one in parameters.items()})


def make_inputs(a: Any, b: Any, options: ProductOptions, in_groups: bool = False) -> _core.Inputs:
    """The tensors of a product."""
    require_scale_format(options["scale_format"])
    e = epilogue_of(options)
    return _core.Inputs(
        a=_operand("a", a, options, in_groups),
        b=_operand("b", b, options, in_groups),
        c=_floats("c", options["c"]),
        bias=_floats("bias", e.bias),
        row_scales=_floats("row_scales", e.row_scales),
        column_scales=_floats("column_scales", e.column_scales),
        recipe="" if options["recipe"] is None else text("recipe", options["recipe"]),
    )


def epilogue_of(options: ProductOptions) -> Epilogue:
    e = options["epilogue"]
    if e is None:
        return Epilogue()
    if not isinstance(e, Epilogue):
        raise bad("epilogue", "an fp8lab.Epilogue", type(e).__name__)
    return e


def _model_text(model: Any, inputs: _core.Inputs, options: ProductOptions) -> str:
    """The name of an instruction, or the definition of an accumulator."""
    if model is None or isinstance(model, str):
        return model or ""
    if isinstance(model, InstructionModel):
        if find_model(model.name) == model:
            return model.name
        return model.accumulator.definition(model.a_format, model.b_format)
    if isinstance(model, AccumulatorModel):
        # A recipe gives codes of formats of its own, which any definition takes.
        return model.definition() if options["recipe"] is not None else model.definition(*inputs.formats)
    expected = "a name, an fp8lab.InstructionModel or an fp8lab.AccumulatorModel"
    raise bad("model", expected, type(model).__name__)


def _require_wide_formats(model: Any, inputs: _core.Inputs, options: ProductOptions) -> None:
    """FP32 and TF32 share their arrays, which the library does not tell apart."""
    wide = [(role, name) for role, name in zip("ab", inputs.formats, strict=True) if name in ("f32", "tf32")]
    if not wide or options["recipe"] is not None or not isinstance(model, (str, InstructionModel)):
        return
    known = find_model(model) if isinstance(model, str) else model
    for role, name in wide:
        own = getattr(known, f"{role}_format")
        if known.standing != "definition" and name != own:
            raise bad(role, f"{own} for {known.name}", name)


def require_searchable(inputs: _core.Inputs) -> None:
    """FP32 operands are searched as TF32, which they must say."""
    for role, name in zip("ab", inputs.formats, strict=True):
        if name == "f32":
            raise bad(f"{role}_format", "a tensor-core input format, as tf32", name)


def make_spec(model: Any, inputs: _core.Inputs, options: ProductOptions, output: str) -> _core.GemmSpec:
    """The computation. output: the format of the result; "": f32, or what a call in a table says."""
    call, c_enters = options["call"], options["c_enters"]
    if call == "":
        raise bad("call", "the name of a library call", "''")
    _require_wide_formats(model, inputs, options)
    return _core.GemmSpec(
        model=_model_text(model, inputs, options),
        call="" if call is None else text("call", call),
        promotion_interval=whole("promotion_interval", options["promotion_interval"]),
        scale_order=text("scale_order", options["scale_order"]),
        c_enters=None if c_enters is None else text("c_enters", c_enters),
        output=output,
        epilogue=core_epilogue(epilogue_of(options)),
        split=core_split(options["split_k"]),
    )


def make_product(
    a: ArrayLike | QuantizedTensor,
    b: ArrayLike | QuantizedTensor,
    model: str | InstructionModel | AccumulatorModel | None,
    given: OperandOptions,
    output: str = "",
) -> _core.Product:
    """The product that the arguments of `gemm` describe."""
    options = complete(given)
    inputs = make_inputs(a, b, options)
    return _core.Product(inputs, make_spec(model, inputs, options, output))


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


def require_no_amax(options: ProductOptions) -> None:
    """For results in FP32, which have no format to scale to."""
    if isinstance(epilogue_of(options).output_scale, str):
        raise bad("output_scale", "a number: the result is not cast to a format", "amax")


@in_own_mode
def gemm(
    a: ArrayLike | QuantizedTensor,
    b: ArrayLike | QuantizedTensor,
    *,
    model: str | InstructionModel | AccumulatorModel | None = None,
    c: ArrayLike | None = None,
    scale_a: ArrayLike | Scales | None = None,
    scale_b: ArrayLike | Scales | None = None,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_format: str | None = None,
    promotion_interval: int = 0,
    scale_order: str = "product_then_fma",
    c_enters: str | None = None,
    call: str | None = None,
    split_k: SplitK | None = None,
    epilogue: Epilogue | None = None,
    recipe: str | None = None,
    threads: int = 0,
    backend: str = "cpu",
) -> NDArray[np.float32]:
    """D = scales * A . B^T, and C: float32 [m, n] with the bits that the instruction gives.

    a [m, k] and b [n, k]: ml_dtypes, float16 or bfloat16 arrays, uint8 codes with a_format or
    b_format ("e4m3fn", ...; tf32 in float32 arrays; "e2m1x2": two FP4 codes a byte, the first in the
    low bits, unpacked into a copy, as torch's float4_e2m1fn_x2 is), or quantized tensors, which
    include their scales. Any strides, read in place: for a weight stored as [k, n] pass `w.T`. recipe: a and b are floats, which this preset
    (`recipes`) quantizes, a as the activation and b as the weight. c [m, n]: float32.
    c_enters says where c enters, which changes the bits: "accumulator", the instruction's own c,
    before any scale; "promoted_sum", the start of the FP32 sum of promoted partial sums;
    "epilogue", added to the finished sum in the units of D. Without promotion and scales it is the
    accumulator; with either, c_enters is required.

    scale_a, scale_b: inverse scales, which multiply codes to give values: a number, one per row
    ([rows] or [rows, 1]), a grid of usual tiles (sides of 16, 32, 128 or all), or `Scales` for others. They are floats, or E8M0 codes with their dtype or
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
        scale_a=scale_a,
        scale_b=scale_b,
        a_format=a_format,
        b_format=b_format,
        scale_format=scale_format,
        promotion_interval=promotion_interval,
        scale_order=scale_order,
        c_enters=c_enters,
        call=call,
        split_k=split_k,
        epilogue=epilogue,
        recipe=recipe,
    )
    require_no_amax(options)
    product = make_product(a, b, model, options)
    d: NDArray[np.float32] = _core.gemm(product, whole("threads", threads), backend)
    warn(_core.warning_of_product(product, d))
    return d
