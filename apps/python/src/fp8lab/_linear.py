"""The arithmetic of a linear layer's three products, from the library's presets."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

from fp8lab import _core
from fp8lab._mode import in_own_mode
from fp8lab._recipes import Recipe
from fp8lab._registry import AccumulatorModel, find_model


@dataclass(frozen=True)
class ProductSettings:
    """One of a linear layer's three products.

    arithmetic: "fp8" (operands cast by the recipe of their role), "bf16" (rounded to BF16, no
    scales) or "fp32". The other fields say how the product is summed, as for `gemm`; "fp32" ignores
    them.
    """

    arithmetic: str = "fp32"
    accumulator: AccumulatorModel = field(default_factory=AccumulatorModel)
    promotion_interval: int = 0
    scale_order: str = "product_then_fma"

    def _core(self) -> _core.GemmSettings:
        return _core.GemmSettings(
            arithmetic=self.arithmetic,
            accumulator=self.accumulator._core(),
            promotion_interval=self.promotion_interval,
            scale_order=self.scale_order,
        )


@dataclass(frozen=True)
class LinearRecipe:
    """The arithmetic of a linear layer Y = X W^T: six operands, three products.

    fprop: Y [tokens, out] = X [tokens, in] . W [out, in]^T; dgrad: dX = dY . W; wgrad: dW = dY^T .
    X. An operand that enters its second product transposed is cast from the original values with
    the tiles along its own summed dimension; the `_for_` recipes are for that second cast if it
    differs. bf16_outputs: Y and dX of a float32 layer are rounded to BF16. bias_after_rounding: a
    bias is added to the rounded output, in its type, as torchao's training layers do; else to the
    FP32 sum, as an epilogue does.

    Vary it with `dataclasses.replace`:

    >>> import dataclasses, fp8lab
    >>> recipe = fp8lab.linear_recipe("deepgemm")
    >>> split = dataclasses.replace(recipe.fprop, promotion_interval=256)
    >>> dataclasses.replace(recipe, fprop=split).fprop.promotion_interval
    256
    """

    name: str
    activation: Recipe
    weight: Recipe
    gradient: Recipe
    weight_for_dgrad: Recipe | None = None
    activation_for_wgrad: Recipe | None = None
    gradient_for_wgrad: Recipe | None = None
    fprop: ProductSettings = field(default_factory=ProductSettings)
    dgrad: ProductSettings = field(default_factory=ProductSettings)
    wgrad: ProductSettings = field(default_factory=ProductSettings)
    bf16_outputs: bool = False
    bias_after_rounding: bool = False

    def _core(self) -> _core.LinearRecipe:
        return _compiled(self)


_CAST = ("activation", "weight", "gradient")
_SECOND = ("weight_for_dgrad", "activation_for_wgrad", "gradient_for_wgrad")
_PRODUCTS = ("fprop", "dgrad", "wgrad")


@functools.lru_cache(maxsize=256)
def _compiled(recipe: LinearRecipe) -> _core.LinearRecipe:
    fields: dict[str, Any] = {"name": recipe.name, "bf16_outputs": recipe.bf16_outputs}
    for name in (*_CAST, *_SECOND, *_PRODUCTS):
        value = getattr(recipe, name)
        fields[name] = None if value is None else value._core()
    return _core.LinearRecipe(**fields)


def recipe_of_fields(fields: dict[str, Any]) -> LinearRecipe:
    """From nested dictionaries, as the library and `dataclasses.asdict` give them."""
    fields = dict(fields)
    for name in (*_CAST, *_SECOND):
        if fields[name] is not None:
            fields[name] = Recipe(**fields[name])
    for name in _PRODUCTS:
        fields[name] = _settings_of_fields(fields[name])
    return LinearRecipe(**fields)


def _adds_bias_after_rounding(name: str) -> bool:
    """*Read* in torchao 0.18: float8/float8_linear.py, prototype/moe_training/mxfp8_linear.py."""
    return name in ("torchao-tensorwise", "torchao-rowwise", "torchao-rowwise-hp-wgrad") or name.startswith("torchao-mxfp8-")


def _settings_of_fields(fields: dict[str, Any]) -> ProductSettings:
    accumulator = AccumulatorModel(**fields["accumulator"])
    return ProductSettings(**{**fields, "accumulator": accumulator})


@in_own_mode
def linear_recipes() -> list[str]:
    """The names that `linear_recipe` accepts: "fp32", "bf16" and every preset.

    >>> import fp8lab
    >>> set(fp8lab.presets()) < set(fp8lab.linear_recipes())
    True
    """
    return list(_core.linear_recipe_names())


@in_own_mode
def linear_recipe(
    name: str | LinearRecipe,
    *,
    hardware: str | None = None,
    fprop: str | None = None,
    dgrad: str | None = None,
    wgrad: str | None = None,
) -> LinearRecipe:
    """A preset as its system runs a linear layer, with its products on given hardware.

    Without `hardware`, a preset runs as on Hopper: "te-*", "torchao-*" and "ms-amp" accumulate
    fprop without promotion, and both gradients with promotion every 128 terms (*read* in their
    sources). With 1x128 scales all products promote every 128 terms. MX recipes and NVFP4 run under
    Blackwell's block-scaled instructions, which apply the scales themselves.

    hardware: "sm89", "sm90", "sm100", "sm120", or the name of an instruction model or definition
    ("exact"): the accumulator of the products. A chip has one for FP8 products and one for BF16
    products; on the last two chips, MX and NVFP4 use the block-scaled instructions. An instruction
    of BF16 inputs is for the BF16 products alone ("sm90.wgmma.bf16"; without hardware their sums are
    sequential FP32 additions), any other for the FP8 products alone; a definition, in a recipe
    without FP8, for the BF16 ones. Casts, scales and promotion are unchanged; an instruction that
    does not apply scales itself promotes MX products every block. fprop, dgrad, wgrad: the same for
    that product alone. ValueError for unknown names, FP4 and FP6 on chips without them, a model
    whose terms do not divide the promotion interval, and one that is for no product of the recipe.

    >>> import fp8lab
    >>> fp8lab.linear_recipe("te-current").wgrad.promotion_interval
    128
    >>> fp8lab.linear_recipe("te-current", hardware="sm89").fprop.accumulator.terms
    16
    >>> fp8lab.linear_recipe("bf16", hardware="sm90").fprop.accumulator.terms
    16
    """
    recipe = name
    if not isinstance(recipe, LinearRecipe):
        found = recipe_of_fields(_core.find_linear_recipe(recipe))
        recipe = dataclasses.replace(found, bias_after_rounding=_adds_bias_after_rounding(found.name))
    if hardware is not None:
        moved_recipe = recipe_of_fields(_core.on_hardware(recipe._core(), hardware))
        recipe = dataclasses.replace(moved_recipe, bias_after_rounding=recipe.bias_after_rounding)
    for product, model in (("fprop", fprop), ("dgrad", dgrad), ("wgrad", wgrad)):
        if model is not None:
            settings = getattr(recipe, product)
            moved = _core.product_on_hardware(settings._core(), recipe.activation._core(), model)
            changed: dict[str, Any] = {product: _settings_of_fields(moved)}
            recipe = dataclasses.replace(recipe, **changed)
    return recipe
