"""The operators `fp8lab::quantize_weight`, `linear`, `linear_backward` and `quantize`.

Their bodies run through the library on CPU tensors, and through the emulated kernels on those of a
CUDA device (`_engines`); shapes alone are known to the fake ones, which `torch.compile` and
`opcheck` use. Codes travel as uint8, pasts as int32: the bits of binary32.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from fp8lab import _core
from fp8lab._recipes import Recipe
from fp8lab.torch import _device
from fp8lab.torch._device import require_place
from fp8lab.torch._device_casts import quantized
from fp8lab.torch._engines import engine_of
from fp8lab.torch._plan import Cast, array_of, plan_of, scale_count, threads, tiles

TORCH_FP8 = {
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}


def require_floats(name: str, x: Tensor) -> None:
    """A wider type would be rounded twice, unseen."""
    require_place(name, x)
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"{name}: expected float32, bfloat16 or float16, got {x.dtype}")


def _fake_codes(like: Tensor, used: bool, recipe: Recipe, rows: Any, k: Any) -> list[Tensor]:
    if not used:
        return [like.new_empty((0, 0), dtype=torch.uint8), like.new_empty(0, dtype=torch.float32)]
    return [
        like.new_empty((rows, k), dtype=torch.uint8),
        like.new_empty(scale_count(recipe, rows, k), dtype=torch.float32),
    ]


@torch.library.custom_op("fp8lab::quantize_weight", mutates_args=())
def quantize_weight(
    weight: Tensor, past: Tensor, recipe: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Codes and inverse scales of W [out, in] for fprop, of its transpose for dgrad, and the past.

    Scales are a vector: one a tile, row by row, and the tensor's after them in recipes of two levels.
    What a product in higher precision does not need is empty.
    """
    require_floats("weight", weight)
    engine = engine_of("weight", weight, past=past)
    plan = plan_of(recipe)
    cast = plan.casts["weight"]
    values = engine.matrix(plan, weight)
    first, second, new = engine.cast(cast, values, past, cast.for_first, cast.for_second)
    return (*engine.tensors(first, weight), *engine.tensors(second, weight), new)


@quantize_weight.register_fake
def _(weight: Tensor, past: Tensor, recipe: str) -> tuple[Tensor, ...]:
    plan = plan_of(recipe)
    cast = plan.casts["weight"]
    out, k = plan.padded(weight.shape[0]), plan.padded(weight.shape[1])
    first = _fake_codes(weight, cast.for_first, cast.recipe, out, k)
    second = _fake_codes(weight, cast.for_second, cast.second_recipe, k, out)
    return (*first, *second, torch.empty_like(past))


@torch.library.custom_op("fp8lab::linear", mutates_args=())
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    w_codes: Tensor,
    w_scales: Tensor,
    wt_codes: Tensor,
    wt_scales: Tensor,
    past: Tensor,
    gradient_past: Tensor,
    recipe: str,
    for_wgrad: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Y = X W^T + bias, X's codes for wgrad (empty where not for_wgrad), and the past of X's scales.

    The bias is added to the finished FP32 sum, which is then rounded once to X's dtype (to BF16
    for a float32 X where the recipe has BF16 outputs), or after that where the recipe says so.
    gradient_past is for the backward pass, which moves it on in place.
    """
    require_floats("x", x)
    engine = engine_of("x", x, weight=weight, bias=bias, w_codes=w_codes, past=past)
    plan = plan_of(recipe)
    cast = plan.casts["activation"]
    values: Any = engine.matrix(plan, x)
    first, second, new = engine.cast(
        cast, values, past, cast.for_first, for_wgrad and cast.for_second
    )
    if plan.fp8["fprop"]:
        assert first is not None
        right = (plan.casts["weight"].recipe, engine.codes(w_codes, w_scales))
        d: Any = engine.product(plan, "fprop", (cast.recipe, first), right)
    else:
        d = engine.plain_product(plan, "fprop", values, weight)
    rows, out = x.numel() // max(x.shape[-1], 1), weight.shape[0]
    late = plan.recipe.bias_after_rounding
    d = engine.add_bias(d[:rows, :out], None if late else bias)
    y = engine.rounded(d, x.dtype, plan.recipe.bf16_outputs)
    if late and bias is not None:
        y = engine.plus_bias(y, bias.to(y.dtype))
    # Not as a view, which must not change in place.
    return (y.reshape(*x.shape[:-1], out).detach(), *engine.tensors(second, x), new)


@linear.register_fake
def _(x: Tensor, weight: Tensor, *others: Any) -> tuple[Tensor, ...]:
    past, _, recipe, *last = others[5:]
    for_wgrad = last != [False]
    plan = plan_of(recipe)
    cast = plan.casts["activation"]
    rows = 1
    for extent in x.shape[:-1]:
        rows = rows * extent
    rows, k = plan.padded(rows), plan.padded(x.shape[-1])
    y = x.new_empty((*x.shape[:-1], weight.shape[0]))
    second = _fake_codes(x, for_wgrad and cast.for_second, cast.second_recipe, k, rows)
    return (y, *second, torch.empty_like(past))


def _operand(cast: Cast, second: bool, codes: Any) -> tuple[Recipe, Any]:
    return (cast.second_recipe if second else cast.recipe), codes


@torch.library.custom_op("fp8lab::linear_backward", mutates_args=("gradient_past",))
def linear_backward(
    dy: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    xt_codes: Tensor,
    xt_scales: Tensor,
    wt_codes: Tensor,
    wt_scales: Tensor,
    gradient_past: Tensor,
    recipe: str,
    in_features: int,
    need_dx: bool,
    need_dw: bool,
    need_db: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dX in dY's dtype; dW [out, in] and the bias's gradient in float32; empty what is not needed.

    x and weight are given where their product is not in FP8. The bias's gradient is dY summed in
    FP32 in the order of its rows.
    """
    engine = engine_of("dy", dy, x=x, weight=weight, xt_codes=xt_codes, wt_codes=wt_codes)
    plan = plan_of(recipe)
    cast = plan.casts["gradient"]
    values: Any = engine.matrix(plan, dy)
    rows, out = dy.numel() // max(dy.shape[-1], 1), dy.shape[-1]
    first, second, new = engine.cast(
        cast, values, gradient_past, need_dx and cast.for_first, need_dw and cast.for_second
    )
    gradient_past.copy_(new)
    nothing = dy.new_empty(0, dtype=torch.float32)
    dx, dw, db = dy.new_empty(0), nothing.new_empty((0, 0)), nothing
    if need_dx:
        if first is not None:
            right = _operand(plan.casts["weight"], True, engine.codes(wt_codes, wt_scales))
            d: Any = engine.product(plan, "dgrad", _operand(cast, False, first), right)
        else:
            assert weight is not None
            d = engine.plain_product(plan, "dgrad", values, weight, turn_b=True)
        dx = engine.rounded(d[:rows, :in_features], dy.dtype, plan.recipe.bf16_outputs)
        dx = dx.reshape(*dy.shape[:-1], in_features)
    if need_dw:
        if second is not None:
            right = _operand(plan.casts["activation"], True, engine.codes(xt_codes, xt_scales))
            d = engine.product(plan, "wgrad", _operand(cast, True, second), right)
        else:
            assert x is not None
            d = engine.plain_product(plan, "wgrad", values, x, True, True)
        dw = engine.tensor(d[:out, :in_features])
    if need_db:
        db = engine.column_sums(values)[:out].clone()
    return dx, dw, db


@linear_backward.register_fake
def _(dy: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, in_features, need_dx, need_dw, need_db = others
    out = dy.shape[-1]
    dx = dy.new_empty((*dy.shape[:-1], in_features)) if need_dx else dy.new_empty(0)
    dw_shape = (out, in_features) if need_dw else (0, 0)
    return (
        dx,
        dy.new_empty(dw_shape, dtype=torch.float32),
        dy.new_empty(out if need_db else 0, dtype=torch.float32),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _, _, wt_codes, wt_scales, _, gradient_past, recipe, *_ = inputs
    _, xt_codes, xt_scales, new_past = output
    plan = plan_of(recipe)
    ctx.mark_non_differentiable(xt_codes, xt_scales, new_past)
    ctx.save_for_backward(
        None if plan.fp8["wgrad"] else x,
        None if plan.fp8["dgrad"] else weight,
        xt_codes,
        xt_scales,
        wt_codes,
        wt_scales,
    )
    # Not saved: the backward pass changes it, also that of an earlier use of the layer.
    ctx.gradient_past = gradient_past
    ctx.recipe = recipe
    ctx.in_features = x.shape[-1]
    ctx.weight_dtype = weight.dtype
    ctx.bias_dtype = None if bias is None else bias.dtype


def refuse_second_derivative() -> None:
    """A graph of the backward pass would lack what the codes of weights and inputs depend on."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "create_graph=True: expected a backward pass that is not differentiated again, since the products of FP8 "
            "layers have first derivatives alone"
        )


def _backward(ctx: Any, dy: Tensor, *unused: Any) -> tuple[Any, ...]:
    refuse_second_derivative()
    need_dx, need_dw, need_db = ctx.needs_input_grad[:3]
    dx, dw, db = torch.ops.fp8lab.linear_backward(
        dy,
        *ctx.saved_tensors,
        ctx.gradient_past,
        ctx.recipe,
        ctx.in_features,
        need_dx,
        need_dw,
        need_db,
    )
    return (
        dx if need_dx else None,
        dw.to(ctx.weight_dtype) if need_dw else None,
        db.to(ctx.bias_dtype) if need_db else None,
        *(None,) * (len(ctx.needs_input_grad) - 3),
    )


linear.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("fp8lab::quantize", mutates_args=())
def quantize_op(x: Tensor, recipe: str) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and inverse scales of [rows, k] under a cast recipe that uses only the current tensor."""
    require_floats("x", x)
    fields = json.loads(recipe)
    if fields["format"] not in TORCH_FP8:
        raise ValueError(
            f"recipe: expected a recipe that gives FP8 codes, got {fields['format']}; fp8lab.quantize gives its codes too"
        )
    values = x.detach().float().contiguous()
    if _device.is_cuda(x):
        words, scales, inverse = quantized(Recipe(**fields), values)
        return words.view(TORCH_FP8[fields["format"]]), scales, inverse
    q = _core.Quantizer(Recipe(**fields)._core()).quantize(array_of(values), False, threads())
    codes = torch.from_numpy(q["codes"]).view(TORCH_FP8[fields["format"]])
    return codes, torch.from_numpy(q["scales"]), torch.from_numpy(q["inverse_scales"])


@quantize_op.register_fake
def _(x: Tensor, recipe: str) -> tuple[Tensor, Tensor, Tensor]:
    cast = Recipe(**json.loads(recipe))
    shape = tiles(cast, x.shape[0], x.shape[1])
    return (
        x.new_empty(x.shape, dtype=TORCH_FP8[cast.format]),
        x.new_empty(shape, dtype=torch.float32),
        x.new_empty(shape, dtype=torch.float32),
    )

