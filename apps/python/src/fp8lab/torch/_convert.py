"""Models and contexts whose linear layers run as FP8 hardware would run them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab._warnings import warn
from fp8lab.torch._coverage import (
    Decisions,
    Filter,
    HighPrecisionWarning,
    decided,
    decisions_after,
    is_conv1d,
    warning_of,
)
from fp8lab.torch._fast_path import with_fast_path, without_fast_path
from fp8lab.torch._layers import Fp8Conv1D, Fp8Layer, Fp8Linear, Fp8LinearLike, change_class
from fp8lab.torch._plan import ROLES
from fp8lab.torch._products import Fp8Products, convert_products, restore_products
from fp8lab.torch._tensor_parallel import require_amax_of

def decisions(
    model: nn.Module, *, filter: Filter | None = None, rule: str = "llama-factory"
) -> Decisions:
    """For each weight that enters products, by name: why it is not converted, or "" if it is.

    Linear layers have the name of their module; experts, `nn.MultiheadAttention` and other modules
    that multiply with their own parameters have one name a parameter. rule: "llama-factory" (not
    embed, lm_head, output, classifier; both dimensions multiples of 16), "deepseek-v3" (not embed,
    head, norm, nor a router's gate), "linear" (not embed, lm_head, norm, a router's gate, nor a head
    that shares the weight of an embedding; for encoders too) or "all". filter: called with name and
    module for what the rule selects; false leaves it out. The result also says how much of the model
    that is: `.parameters` and `.flops`, as shares of 1.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.ModuleDict({"proj": torch.nn.Linear(32, 32), "lm_head": torch.nn.Linear(32, 48)})
    >>> found = fp8lab.torch.decisions(model)
    >>> found
    {'proj': '', 'lm_head': 'the name contains lm_head'}
    >>> found.parameters
    0.4
    """
    return decided(model, filter, rule)[0]


def convert(
    model: nn.Module,
    recipe: str | LinearRecipe = "te-current",
    *,
    hardware: str | None = None,
    filter: Filter | None = None,
    rule: str = "llama-factory",
    amax: str = "shard",
) -> nn.Module:
    """Makes the linear layers of a model run under a recipe, in place; returns the model.

    Converts `nn.Linear`, GPT-2's `Conv1D`, `nn.MultiheadAttention`, experts whose weights are
    parameters [experts, ., .] (each expert is a layer with scales of its own), and subclasses of
    `nn.Linear`; those with a `forward` of their own keep it, and its product with the weight runs
    under the recipe. Only the class of a layer changes: modules, hooks, parameters, tied weights and
    the keys of `state_dict` are unchanged, except for the amax histories of delayed scales
    (`Fp8Linear`). torch's fused path of `nn.TransformerEncoder` in `eval()` is switched off where it
    would pass a converted layer by. A layer that is already converted is converted again. recipe and
    hardware as for `fp8lab.linear_recipe`, filter and rule as for `decisions`. Call it again with a
    different filter for layers under another recipe. `restore` undoes it.

    FSDP may shard a model before or after. With tensor parallelism (`parallelize_module`, before or
    after), each rank casts its shards of weight, input and gradient; amax: "shard", each with the
    amax of the shard, as TransformerEngine casts weights, or "whole", with that of the whole tensor,
    as torchao does, for recipes with one scale a tensor.

    `HighPrecisionWarning` if less than half of the weights, or of a token's multiplications with
    them, are converted, without those that the filter leaves out. ValueError if no layer is left to
    convert. A converted module whose forward pass has no product with its weight raises RuntimeError.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    >>> fp8lab.torch.convert(model, "deepgemm", filter=lambda name, module: name == "0")
    Sequential(
      (0): Fp8Linear(in_features=64, out_features=64, bias=True, recipe=deepgemm)
      (1): ReLU()
      (2): Linear(in_features=64, out_features=16, bias=True)
    )
    """
    require_amax_of(amax)
    made = linear_recipe(recipe, hardware=hardware)
    reasons, found = decided(model, filter, rule)
    chosen = [one for one in found if not reasons[one.name]]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:4])
        raise ValueError(f"model: expected a linear layer to convert, got none ({why or 'no linear layer'})")
    own: dict[nn.Module, list[str]] = {}
    for one in chosen:
        if one.kind == "linear":
            convert_linear(one.module, made, amax)
        else:
            own.setdefault(one.module, []).append(one.parameter)
    for module, names in own.items():
        convert_products(module, names, made, amax)
    without_fast_path(model)
    warn(warning_of(decisions_after(reasons, found)), HighPrecisionWarning)
    return model


def convert_linear(module: nn.Module, recipe: LinearRecipe, amax: str = "shard") -> None:
    """Makes one linear layer run under a recipe."""
    kind = type(module)
    if not isinstance(module, Fp8Layer):
        if kind is nn.Linear or is_conv1d(kind):
            module.__dict__["_fp8_original"] = kind
            module.__class__ = Fp8Linear if kind is nn.Linear else Fp8Conv1D
        else:
            change_class(module, Fp8LinearLike)
    module._fp8_configure(recipe, amax)  # type: ignore[operator]


def layers(model: nn.Module) -> dict[str, Fp8Layer]:
    """The converted layers of a model by name.

    The matrices of a module that multiplies with its own parameters, such as experts, have the
    names MODULE.fp8_PARAMETER.NUMBER.
    """
    return {n: m for n, m in model.named_modules() if isinstance(m, Fp8Layer)}


def restore(model: nn.Module) -> nn.Module:
    """Undoes `convert`, in place; returns the model. Amax histories are lost.

    >>> import torch, fp8lab.torch
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(16, 16)))
    >>> type(fp8lab.torch.restore(model)[0])
    <class 'torch.nn.modules.linear.Linear'>
    """
    for products in [m for m in model.modules() if isinstance(m, Fp8Products)]:
        restore_products(products)
    for module in layers(model).values():
        fields = module.__dict__
        original = fields.pop("_fp8_original", nn.Linear)
        for name in [n for n in fields if n.startswith("_fp8_")]:
            del fields[name]
        for role in ROLES:
            del module._buffers[f"fp8_{role}_past"]  # type: ignore[attr-defined]
        module.__class__ = original
    with_fast_path(model)
    return model


@contextlib.contextmanager
def calibrate(model: nn.Module) -> Iterator[None]:
    """Calibrates the static scales of a model ("inference-static", "quanto", ...) with batches.

    In this context, converted layers compute their plain product in torch, and their inputs
    calibrate the activation's scale. ValueError for a model without a layer that uses calibration.
    """
    calibrated = [
        layer
        for layer in layers(model).values()
        if layer._fp8_recipe.activation.source in ("calibration", "momentum")
    ]
    if not calibrated:
        raise ValueError("model: expected a layer under a recipe that is calibrated, got none")
    for layer in calibrated:
        layer._fp8_calibrating = True
    try:
        with torch.no_grad():
            yield
    finally:
        for layer in calibrated:
            layer._fp8_calibrating = False
