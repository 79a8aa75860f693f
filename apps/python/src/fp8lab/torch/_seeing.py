"""The errors of a recipe in each operand of each layer, and which layer changes the loss."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fp8lab._casts import decode
from fp8lab._products import gemm
from fp8lab._recipes import QuantizationStatistics, QuantizedTensor, Quantizer
from fp8lab.torch._convert import convert_linear, layers, restore
from fp8lab.torch._fast_path import no_fast_path
from fp8lab.torch._layers import Fp8Layer
from fp8lab.torch._plan import ROLES, plan_of, threads
from fp8lab.torch._products import Fp8Product, Fp8Products, convert_products, states_of


@dataclass(frozen=True)
class OperandStatistics(QuantizationStatistics):
    """The errors of an operand's cast for its first product."""

    amax: float


@dataclass(frozen=True)
class LayerStatistics:
    """One pass of a layer. None for an operand that is not cast or was not recorded."""

    activation: OperandStatistics | None
    weight: OperandStatistics | None
    gradient: OperandStatistics | None  #: gradient of the output, after a backward pass
    output_sqnr_db: float | None  #: FP32 sums of fprop against the product without casts
    accumulator_error: float | None  #: relative L2 of fprop's sums against exact ones of its codes


@dataclass
class _Pass:
    x: Tensor
    weight: Tensor
    past: Tensor
    weight_past: Tensor
    gradient: Tensor | None = None
    gradient_past: Tensor | None = None


def _operand(
    layer: Fp8Layer, role: str, x: Tensor | None, past: Tensor | None
) -> tuple[OperandStatistics | None, QuantizedTensor | None]:
    plan = plan_of(layer._fp8_text)
    cast = plan.casts[role]
    if x is None or past is None or not cast.for_first:
        return None, None
    values = plan.matrix(x)
    quantizer = Quantizer(cast.recipe)
    quantizer._quantizer.set_past(cast.split(past)[0] if past.numel() else np.empty(0, np.float32))
    q = quantizer.quantize(values, threads=threads())
    rows, k = x.numel() // max(x.shape[-1], 1), x.shape[-1]
    own = np.ascontiguousarray(values[:rows, :k])  # without what pads it
    fields = dataclasses.asdict(_cut(q, rows, k).statistics(own))
    amax = float(np.abs(values).max()) if values.size else 0.0
    return OperandStatistics(**fields, amax=amax), q


def _cut(q: QuantizedTensor, rows: int, k: int) -> QuantizedTensor:
    """Its first rows and columns."""
    tiles = (-(-rows // q.row_block) if q.row_block else 1, -(-k // q.k_block) if q.k_block else 1)
    scales = [np.ascontiguousarray(x[: tiles[0], : tiles[1]]) for x in (q.scales, q.inverse_scales)]
    return dataclasses.replace(
        q, codes=np.ascontiguousarray(q.codes[:rows, :k]), scales=scales[0], inverse_scales=scales[1],
        e8m0=None, ue4m3=None,
    )


def _values(q: QuantizedTensor) -> NDArray[np.float64]:
    """Codes times their scales, of tiles and of the tensor, exact: of 24 bits and 8."""
    codes = decode(q.codes).astype(np.float64)
    rows, k = codes.shape
    scales = q.inverse_scales.astype(np.float64) * q.tensor_inverse_scale
    down, across = (block or size for block, size in ((q.row_block, rows), (q.k_block, k)))
    return codes * scales.repeat(down, 0).repeat(across, 1)[:rows, :k]


def _product(
    layer: Fp8Layer, seen: _Pass, a: QuantizedTensor, b: QuantizedTensor
) -> tuple[float, float]:
    fprop = layer._fp8_recipe.fprop
    how: dict[str, Any] = {
        "promotion_interval": fprop.promotion_interval,
        "scale_order": fprop.scale_order,
        "threads": threads(),
    }
    got = gemm(a, b, model=fprop.accumulator, **how).astype(np.float64)
    if fprop.promotion_interval == 0 and (a.k_block or b.k_block):  # the instruction applies the scales
        exact = _values(a) @ _values(b).T
    else:
        exact = gemm(a, b, model="exact", **how).astype(np.float64)
    plan = plan_of(layer._fp8_text)
    x, weight = (plan.matrix(t).astype(np.float64) for t in (seen.x, seen.weight))
    rows, out = seen.x.numel() // max(seen.x.shape[-1], 1), len(seen.weight)
    got, exact, plain = (d[:rows, :out] for d in (got, exact, x @ weight.T))
    return _sqnr_db(got, plain), _relative_l2(got, exact)


def _relative_l2(got: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    norm = float(np.linalg.norm(expected))
    error = float(np.linalg.norm(got - expected))
    return error / norm if norm else (0.0 if error == 0 else float("inf"))


def _sqnr_db(got: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    error = _relative_l2(got, expected)
    return float("inf") if error == 0 else float(-20 * np.log10(error))


class Recording:
    """The last recorded pass of every converted layer of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {layer: name for name, layer in layers(model).items()}
        self._passes: dict[str, _Pass] = {}

    def _record(
        self, layer: Fp8Layer, x: Tensor, weight: Tensor, y: Tensor, past: Tensor, weight_past: Tensor
    ) -> None:
        # What is kept of a CUDA device's tensors waits on the host.
        kept = (t.detach().cpu() for t in (x, weight.clone(), past.clone(), weight_past.clone()))
        seen = _Pass(*kept)
        self._passes[self._names[layer]] = seen
        if y.requires_grad:

            def keep(gradient: Tensor) -> None:
                seen.gradient = gradient.detach().cpu()
                seen.gradient_past = layer._fp8_past("gradient").clone().cpu()

            y.register_hook(keep)

    def statistics(self) -> dict[str, LayerStatistics]:
        """By layer. This costs three products per layer: call it only on steps of interest."""
        by_layer = {layer_name: layer for layer, layer_name in self._names.items()}
        return {name: self._of(by_layer[name], seen) for name, seen in self._passes.items()}

    def _of(self, layer: Fp8Layer, seen: _Pass) -> LayerStatistics:
        activation, a = _operand(layer, "activation", seen.x, seen.past)
        weight, b = _operand(layer, "weight", seen.weight, seen.weight_past)
        gradient, _ = _operand(layer, "gradient", seen.gradient, seen.gradient_past)
        sqnr, error = (None, None) if a is None or b is None else _product(layer, seen, a, b)
        return LayerStatistics(activation, weight, gradient, sqnr, error)

    def scalars(self) -> dict[str, float]:
        """`statistics` in the form for a logger: "layer/operand/figure" to a number."""
        flat: dict[str, float] = {}
        for name, one in self.statistics().items():
            for part, value in dataclasses.asdict(one).items():
                figures = value if isinstance(value, dict) else {"": value}
                for figure, number in figures.items():
                    if number is not None:
                        flat["/".join(filter(None, (name, part, figure)))] = float(number)
        return flat


@contextlib.contextmanager
def record(model: nn.Module) -> Iterator[Recording]:
    """Records the inputs of a model's converted layers, and the gradients of their outputs.

    Nothing is computed before `Recording.statistics`. It does not record inside `torch.compile`.

    >>> import torch, fp8lab.torch
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(64, 32)), "te-current")
    >>> with fp8lab.torch.record(model) as recording:
    ...     model(torch.randn(16, 64)).sum().backward()
    >>> one = recording.statistics()["0"]
    >>> one.gradient.amax, one.output_sqnr_db > 20
    (1.0, True)
    >>> model[0].statistics() == one  # the same, from the layer
    True
    """
    found = layers(model)
    if not found:
        raise ValueError("model: expected a converted layer, got none")
    recording = Recording(model)
    for layer in found.values():
        layer._fp8_recorder = recording._record
        layer.__dict__["_fp8_recording"] = recording
    try:
        yield recording
    finally:
        for layer in found.values():
            layer._fp8_recorder = None


def statistics_of(layer: Fp8Layer) -> LayerStatistics:
    """The statistics of one layer from the last `record`."""
    recording: Recording | None = layer.__dict__.get("_fp8_recording")
    name = None if recording is None else recording._names[layer]
    if recording is None or name not in recording._passes:
        raise ValueError("layer: expected a pass inside fp8lab.torch.record(model), got none")
    return recording._of(layer, recording._passes[name])


@dataclass(frozen=True)
class LayerDifference:
    """The effect on a batch if one layer runs as in the second model."""

    name: str
    loss_change: float  #: in the first model, if only this layer runs as in the second
    output_error: float  #: relative L2 of the layer's output between the two models as they are
    own_error: float = 0.0  #: the same if only this layer runs as in the second, on the first one's input


@dataclass(frozen=True)
class ModelComparison:
    """One batch in two models."""

    loss_a: float
    loss_b: float
    layers: tuple[LayerDifference, ...]  #: the largest change of the loss first


def call(model: Callable[..., Any], batch: Any) -> Any:
    """The output for a batch: keyword arguments as a mapping, positional ones as a tuple or list, or one tensor."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def run(model: nn.Module, batch: Any, loss: Callable[[Any], Tensor] | None) -> float:
    """The loss of a batch."""
    output = call(model, batch)
    value = loss(output) if loss is not None else getattr(output, "loss", None)
    if value is None:
        raise ValueError("loss: expected a function of the output, which has no .loss, got None")
    return float(value)


def _first(y: Any) -> Tensor:
    """The output itself; attention has weights beside it."""
    return y[0] if isinstance(y, tuple) else y


def _units(model: nn.Module) -> dict[str, nn.Module]:
    """The converted modules by name: layers, and modules with layers inside as one."""
    return {
        n: m for n, m in model.named_modules()
        if isinstance(m, Fp8Products) or (isinstance(m, Fp8Layer) and not isinstance(m, Fp8Product))
    }


@contextlib.contextmanager
def _outputs(model: nn.Module, names: list[str]) -> Iterator[dict[str, Tensor]]:
    seen: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda module, args, y, name=name: seen.__setitem__(name, _first(y).detach().double())
        )
        for name in names
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _as_in(module: nn.Module, other: nn.Module) -> Iterator[None]:
    """A module that computes as `other` does, with its own weight."""
    kind, fields, buffers, children = type(module), dict(module.__dict__), dict(module._buffers), dict(module._modules)
    try:
        restore(module)
        if isinstance(other, Fp8Products):
            first = next(iter(states_of(other, other._fp8_products[0])))
            convert_products(module, list(other._fp8_products), first._fp8_recipe)
            for name in other._fp8_products:
                for mine, theirs in zip(states_of(module, name), states_of(other, name), strict=True):
                    _configure_like(mine, theirs)
        elif isinstance(other, Fp8Layer):
            convert_linear(module, other._fp8_recipe)
            _configure_like(module, other)
        yield
    finally:
        module.__class__ = kind
        for now, before in ((module._buffers, buffers), (module._modules, children)):
            now.clear()
            now.update(before)
        module.__dict__.clear()
        module.__dict__.update(fields)


def _configure_like(layer: Any, other: Any) -> None:
    layer._fp8_configure(other._fp8_recipe, other._fp8_amax_of)
    layer.training = other.training
    for role in ROLES:
        past = other._fp8_past(role)
        layer._fp8_set_past(role, past.clone() if past.numel() else None)


def compare(
    model_a: nn.Module,
    model_b: nn.Module,
    batch: Any,
    *,
    loss: Callable[[Any], Tensor] | None = None,
) -> ModelComparison:
    """Runs a batch in two models with the same weights and shows which layer changes the loss.

    The models differ in recipes; either may be unconverted. batch: keyword arguments as a mapping,
    positional ones as a tuple or list, or one tensor. loss: a function of the output; None takes
    its `.loss`. Each layer that is converted in either model is run once in model_a as it is in
    model_b. This takes layers + 2 passes, in eval mode without gradients, so no state changes.
    ValueError if modules do not match.

    >>> import copy, torch, fp8lab.torch
    >>> plain = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16))
    >>> fp8 = fp8lab.torch.convert(copy.deepcopy(plain), "te-current")
    >>> x = torch.randn(8, 64)
    >>> found = fp8lab.torch.compare(plain, fp8, x, loss=lambda y: y.square().mean())
    >>> sorted(one.name for one in found.layers), found.loss_a != found.loss_b
    (['0', '2'], True)
    """
    converted = _units(model_a).keys() | _units(model_b).keys()
    names = [n for n, _ in model_a.named_modules() if n in converted]
    missing = converted - set(names)
    if missing or not names:
        what = ", ".join(sorted(missing)[:4]) or "no converted layer"
        raise ValueError(f"model_b: expected the modules of model_a, some converted, got {what}")
    modes = [(m, m.training) for model in (model_a, model_b) for m in model.modules()]
    try:
        for model in (model_a, model_b):
            model.eval()
        with torch.no_grad(), no_fast_path():
            return _compared(model_a, model_b, names, batch, loss)
    finally:
        for module, training in modes:
            module.training = training


def _compared(
    model_a: nn.Module, model_b: nn.Module, names: list[str], batch: Any, loss: Any
) -> ModelComparison:
    with _outputs(model_a, names) as a:
        loss_a = run(model_a, batch, loss)
    with _outputs(model_b, names) as b:
        loss_b = run(model_b, batch, loss)
    found = []
    for name in names:
        module = model_a.get_submodule(name)
        with _as_in(module, model_b.get_submodule(name)), _outputs(model_a, [name]) as own:
            changed = run(model_a, batch, loss) - loss_a
        errors = [
            _relative_l2(seen[name].numpy(), a[name].numpy()) if name in a and name in seen else 0.0 for seen in (b, own)
        ]
        found.append(LayerDifference(name, changed, *errors))
    found.sort(key=lambda one: -abs(one.loss_change))
    return ModelComparison(loss_a, loss_b, tuple(found))

