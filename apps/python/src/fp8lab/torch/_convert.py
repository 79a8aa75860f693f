"""Models and contexts whose linear layers run as FP8 hardware would run them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from fp8lab import _core
from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab.torch._layers import Fp8Conv1D, Fp8Layer, Fp8Linear
from fp8lab.torch._plan import ROLES

Filter = Callable[[str, nn.Module], bool]


def _target(module: nn.Module) -> type[nn.Module] | None:
    """The class that takes a module's place. Subclasses may do more than their product: none."""
    if type(module) in (nn.Linear, Fp8Linear):
        return Fp8Linear
    kind = type(module)
    if kind is Fp8Conv1D or (kind.__name__, kind.__module__) == ("Conv1D", "transformers.pytorch_utils"):
        return Fp8Conv1D
    return None


def decisions(
    model: nn.Module, *, filter: Filter | None = None, rule: str = "llama-factory"
) -> dict[str, str]:
    """For each linear layer, by name: why it is not converted, or "" if it is.

    rule: "llama-factory" (not embed, lm_head, output, classifier; both dimensions multiples of 16),
    "deepseek-v3" (not embed, head, norm, nor a router's gate), "linear" (not embed, lm_head, norm,
    nor a router's gate) or "all". filter: called with name and module for the layers that the rule
    selects; false leaves a layer out.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.ModuleDict({"proj": torch.nn.Linear(32, 32), "lm_head": torch.nn.Linear(32, 48)})
    >>> fp8lab.torch.decisions(model)
    {'proj': '', 'lm_head': 'the name contains lm_head'}
    """
    reasons = {}
    for name, module in model.named_modules():
        if _target(module) is None:
            continue
        rows, columns = module.weight.shape  # type: ignore[misc]
        reason = _core.why_not_converted(rule, f"{name}.weight", rows, columns)
        if not reason and filter is not None and not filter(name, module):
            reason = "the filter leaves it out"
        reasons[name] = reason
    return reasons


def convert(
    model: nn.Module,
    recipe: str | LinearRecipe = "te-current",
    *,
    hardware: str | None = None,
    filter: Filter | None = None,
    rule: str = "llama-factory",
) -> nn.Module:
    """Makes the linear layers of a model run under a recipe, in place; returns the model.

    Converts `nn.Linear` and GPT-2's `Conv1D`, but not subclasses, which may do more than the
    product. Only the class of a layer changes: modules, hooks, parameters, tied weights and the
    keys of `state_dict` are unchanged, except for the amax histories of delayed scales
    (`Fp8Linear`). A layer that is already converted is converted again. recipe and hardware as for
    `fp8lab.linear_recipe`, filter and rule as for `decisions`. Call it again with a different
    filter for layers under another recipe. `restore` undoes it. ValueError if no layer is left to
    convert.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    >>> fp8lab.torch.convert(model, "deepgemm", filter=lambda name, module: name == "0")
    Sequential(
      (0): Fp8Linear(in_features=64, out_features=64, bias=True, recipe=deepgemm)
      (1): ReLU()
      (2): Linear(in_features=64, out_features=16, bias=True)
    )
    """
    made = linear_recipe(recipe, hardware=hardware)
    reasons = decisions(model, filter=filter, rule=rule)
    chosen = [name for name, reason in reasons.items() if not reason]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:4])
        raise ValueError(f"model: expected a linear layer to convert, got none ({why or 'no linear layer'})")
    for name in chosen:
        module = model.get_submodule(name)
        if not isinstance(module, Fp8Layer):
            module.__dict__["_fp8_original"] = type(module)
            module.__class__ = _target(module)  # type: ignore[assignment]
        module._fp8_configure(made)  # type: ignore[operator]
    return model


def layers(model: nn.Module) -> dict[str, Fp8Layer]:
    """The converted layers of a model by name."""
    return {n: m for n, m in model.named_modules() if isinstance(m, Fp8Layer)}


def restore(model: nn.Module) -> nn.Module:
    """Undoes `convert`, in place; returns the model. Amax histories are lost.

    >>> import torch, fp8lab.torch
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(16, 16)))
    >>> type(fp8lab.torch.restore(model)[0])
    <class 'torch.nn.modules.linear.Linear'>
    """
    for module in layers(model).values():
        fields = module.__dict__
        original = fields.pop("_fp8_original", nn.Linear)
        for name in [n for n in fields if n.startswith("_fp8_")]:
            del fields[name]
        for role in ROLES:
            del module._buffers[f"fp8_{role}_past"]  # type: ignore[attr-defined]
        module.__class__ = original
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


class _Use(Fp8Layer, nn.Module):
    """The state of one weight under `autocast`."""

    def __init__(self, recipe: LinearRecipe) -> None:
        super().__init__()
        self._fp8_configure(recipe)


class autocast(TorchFunctionMode):
    """A context in which `F.linear`, and so `nn.Linear`, runs under a recipe.

    The model is not changed. recipe and hardware as for `fp8lab.linear_recipe`; filter: called with
    a weight [out, in], false leaves its product to torch. This object holds the amax histories and
    the cached codes, one set per weight, so use the same object for all steps. With activation
    checkpointing (use_reentrant=False) the backward pass must run inside too, since it computes
    forward passes again. `torch.compile` ignores the context; use `convert` with it.

    >>> import torch, fp8lab.torch
    >>> layer = torch.nn.Linear(64, 32)
    >>> with fp8lab.torch.autocast("te-current"):
    ...     y = layer(torch.ones(4, 64))
    >>> bool((y == layer(torch.ones(4, 64))).all())
    False
    """

    def __init__(
        self,
        recipe: str | LinearRecipe = "te-current",
        *,
        hardware: str | None = None,
        filter: Callable[[Tensor], bool] | None = None,
    ) -> None:
        super().__init__()
        self.recipe = linear_recipe(recipe, hardware=hardware)
        self._filter = filter
        self._uses: Any = WeakTensorKeyDictionary()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.functional.linear:
            return self._linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.dim() != 2 or (self._filter is not None and not self._filter(weight)):
            return nn.functional.linear(input, weight, bias)
        use = self._uses.get(weight)
        if use is None:
            use = self._uses[weight] = _Use(self.recipe)
        use.training = torch.is_grad_enabled()
        return use._fp8_linear(input, weight, bias)  # type: ignore[no-any-return]
