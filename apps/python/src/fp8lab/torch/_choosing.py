"""What a recipe costs a model: layer by layer and operand by operand, and as perplexity with intervals."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab._recipes import Quantizer
from fp8lab.results import Column, Table, write
from fp8lab.torch._convert import convert, convert_linear, layers, restore
from fp8lab.torch._coverage import Matrices, decided
from fp8lab.torch._fast_path import no_fast_path
from fp8lab.torch._plan import plan_of, text_of, threads, tiles
from fp8lab.torch._products import convert_products
from fp8lab.torch._seeing import run

OPERANDS = ("activation", "weight", "both")
_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_RESAMPLES = 2000


@dataclass(frozen=True)
class LayerCost:
    """One weight under one recipe, all else as it was."""

    name: str
    recipe: str
    operand: str  #: "activation" or "weight", cast alone before a plain product, or "both": the recipe's own product
    loss_change: float  #: mean over the batches
    standard_error: float  #: of that mean; NaN for one batch
    bytes_saved: float  #: of the weight, against its dtype
    flops: float  #: of a token, that run in low precision


@dataclass(frozen=True)
class Sensitivity:
    """The result of `sensitivity`."""

    loss: float  #: of the model as it was
    costs: tuple[LayerCost, ...]  #: the largest change of the loss first

    def mix(self, budget: float, saving: str = "bytes_saved") -> dict[str, str]:
        """A recipe for each layer that together save the most and change the loss by at most `budget`.

        Changes of single layers are added, so check the result (`convert` with a filter, or
        `evaluate`). Taken greedily, by saving over change; a change below 0 counts as 0. saving:
        "bytes_saved" or "flops". ValueError for another one, and for a budget below 0.
        """
        if saving not in ("bytes_saved", "flops"):
            raise ValueError(f"saving: expected bytes_saved or flops, got {saving!r}")
        if not budget >= 0:
            raise ValueError(f"budget: expected 0 or more, got {budget}")
        left, chosen = budget, {}
        costs = [one for one in self.costs if one.operand == "both" and np.isfinite(one.loss_change)]
        costs.sort(key=lambda one: (-getattr(one, saving) / max(one.loss_change, 1e-30), one.name, one.recipe))
        for one in costs:
            change = max(one.loss_change, 0.0)
            if one.name not in chosen and change <= left and getattr(one, saving) > 0:
                chosen[one.name] = one.recipe
                left -= change
        return dict(sorted(chosen.items()))

    def write_map(self, path: str | os.PathLike[str], budget: float, saving: str = "bytes_saved") -> dict[str, str]:
        """Writes `mix` as JSON, {"layer": "recipe"}; returns it."""
        chosen = self.mix(budget, saving)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(chosen, file, indent=1)
            file.write("\n")
        return chosen

    def write(self, folder: str | os.PathLike[str], name: str = "sensitivity") -> str:
        """Writes FOLDER/NAME, which `fp8lab report` and `fp8lab.results.read` read; returns that path."""
        columns = (
            Column("layer", "", "its name in the model"),
            Column("recipe", "", "of this layer alone"),
            Column("operand", "", "cast alone, or both with the recipe's product"),
            Column("loss_change", "1", "against the model as it was, mean over batches"),
            Column("standard_error", "1", "of that mean"),
            Column("bytes_saved", "bytes", "of the weight"),
            Column("flops", "1", "of a token, in low precision"),
        )
        rows = [
            [one.name, one.recipe, one.operand, one.loss_change, one.standard_error, one.bytes_saved, one.flops]
            for one in self.costs
        ]
        data = {column.name: np.array([row[i] for row in rows]) for i, column in enumerate(columns)}
        findings = []
        if self.costs:
            worst = self.costs[0]
            what = f"{worst.name} under {worst.recipe} ({worst.operand})"
            findings.append(f"The largest change of the loss: {what}, by {worst.loss_change:.3g}.")
        table = Table("layers", "What a recipe in one layer costs", columns, data)
        return write(
            folder, [table], experiment=name, question="Which layer is sensitive to which recipe?", findings=findings,
            parameters={"loss": self.loss},
        )


def _one_operand(layer: Any, role: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The plain product of one cast operand and one that is not."""
    plan = plan_of(layer._fp8_text)
    given = x if role == "activation" else weight
    rows, k = given.numel() // max(given.shape[-1], 1), given.shape[-1]
    cast = Quantizer(plan.casts[role].recipe).quantize(plan.matrix(given), threads=threads()).dequantize()
    back = torch.from_numpy(np.ascontiguousarray(cast[:rows, :k])).reshape(given.shape).to(given.dtype)
    x, weight = (back, weight) if role == "activation" else (x, back)
    return nn.functional.linear(x, weight, bias)


@contextlib.contextmanager
def _alone(one: Matrices, recipe: LinearRecipe, operand: str) -> Iterator[None]:
    """One weight's products under a recipe."""
    if one.kind == "linear":
        convert_linear(one.module, recipe)
    else:
        convert_products(one.module, [one.parameter], recipe)
    if operand != "both":
        for layer in layers(one.module).values():
            layer.__dict__["_fp8_linear"] = functools.partial(_one_operand, layer, operand)
    try:
        yield
    finally:
        restore(one.module)


def _bytes_saved(weight: Tensor, recipe: LinearRecipe) -> float:
    """Against the weight's dtype, with scales."""
    plan = plan_of(text_of(recipe))
    cast = plan.casts["weight"]
    if not cast.for_first:
        return 0.0
    rows, k = weight.numel() // weight.shape[-1], weight.shape[-1]
    q = Quantizer(cast.recipe).quantize(plan.matrix(torch.ones(1, 1)))
    down, across = tiles(cast.recipe, rows, k)
    scales = down * across * (4 if q.e8m0 is None and q.ue4m3 is None else 1)
    return weight.numel() * (weight.element_size() - _BITS.get(cast.recipe.format, 8) / 8) - scales


def _current(recipes: Sequence[str | LinearRecipe], hardware: str | None) -> list[LinearRecipe]:
    made = [linear_recipe(recipe, hardware=hardware) for recipe in recipes]
    for recipe in made:
        for role, cast in plan_of(text_of(recipe)).casts.items():
            if cast.past_size:
                got = f"{recipe.name} ({cast.recipe.source} for {role})"
                raise ValueError(f"recipes: expected ones that use only the current tensor, got {got}")
    return made


def sensitivity(
    model: nn.Module,
    batches: Sequence[Any],
    recipes: Sequence[str | LinearRecipe],
    *,
    loss: Callable[[Any], Tensor] | None = None,
    hardware: str | None = None,
    filter: Callable[[str, nn.Module], bool] | None = None,
    rule: str = "llama-factory",
    operands: Sequence[str] = OPERANDS,
) -> Sensitivity:
    """What each recipe costs each layer in loss, and saves in bytes and FLOPs.

    Each weight that `convert` would convert (filter and rule as there) runs under each recipe alone:
    its activation cast before a plain product, its weight likewise, and both in the recipe's own
    product. batches and loss as for `compare`; the model runs in eval mode without gradients, and is
    a plain one: ValueError for a converted one, for recipes whose scales have a history, and for no
    batch. This takes (weights * recipes * operands + 1) * batches passes.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32))
    >>> found = fp8lab.torch.sensitivity(
    ...     model, [torch.randn(8, 64)], ["te-current", "mxfp4"], loss=lambda y: y.square().mean())
    >>> len(found.costs), sorted(found.mix(1.0).items())
    (12, [('0', 'mxfp4'), ('2', 'mxfp4')])
    """
    if layers(model):
        raise ValueError("model: expected a model without converted layers, got some; restore(model) undoes them")
    if not batches:
        raise ValueError("batches: expected at least one, got none")
    for operand in operands:
        if operand not in OPERANDS:
            raise ValueError(f"operands: expected some of {', '.join(OPERANDS)}, got {operand!r}")
    made = _current(recipes, hardware)
    reasons, found = decided(model, filter, rule)
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), no_fast_path():
            plain = np.array([run(model, batch, loss) for batch in batches])
            costs = []
            for one in found:
                if reasons[one.name]:
                    continue
                for recipe in made:
                    saved = _bytes_saved(one.weight, recipe)
                    for operand in operands:
                        with _alone(one, recipe, operand):
                            changes = np.array([run(model, batch, loss) for batch in batches]) - plain
                        error = float(changes.std(ddof=1) / len(changes) ** 0.5) if len(changes) > 1 else float("nan")
                        flops = 2.0 * one.weight.numel() * one.active
                        change = float(changes.mean())
                        costs.append(LayerCost(one.name, recipe.name, operand, change, error, saved, flops))
    finally:
        for module, training in modes:
            module.training = training
    costs.sort(key=lambda one: -np.inf if np.isnan(one.loss_change) else -one.loss_change)
    return Sensitivity(float(plain.mean()), tuple(costs))


@dataclass(frozen=True)
class Evaluation:
    """A model's perplexity under one recipe and chip; intervals hold 95 %."""

    recipe: str  #: "" for the model as it is
    hardware: str  #: "" for the recipe's own
    perplexity: float
    interval: tuple[float, float]  #: over other sequences
    change: float  #: of the mean loss of a token in nats, against the model as it is
    change_interval: tuple[float, float]  #: of that, paired by sequence


def _losses(model: nn.Module, tokens: Tensor) -> NDArray[np.float64]:
    """The mean loss of a token of each sequence."""
    made = []
    for sequence in tokens:
        output = model(sequence[None])
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or logits.dim() != 3:
            raise ValueError("model: expected an output of logits [1, length, vocabulary], or with .logits, got another")
        losses = nn.functional.cross_entropy(logits[0, :-1].double(), sequence[1:])
        made.append(float(losses))
    return np.array(made)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Of the mean, by resampling sequences with a fixed seed."""
    draws = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(1), [2.5, 97.5])
    return float(low), float(high)


def evaluate(
    model: nn.Module,
    tokens: Tensor,
    recipes: Sequence[str | LinearRecipe] = ("te-current",),
    *,
    hardware: Sequence[str | None] = (None,),
    filter: Callable[[str, nn.Module], bool] | None = None,
    rule: str = "llama-factory",
) -> list[Evaluation]:
    """A language model's perplexity as it is, and converted under each recipe on each chip.

    tokens: integers [sequences, length], at least two sequences of two. model: called with one
    sequence [1, length], gives logits. It is copied for each conversion, which `convert` makes with
    recipe, hardware, filter and rule; eval mode, without gradients. Recipes must use only the
    current tensor. Intervals come from 2000 resamples of the sequences, with a fixed seed; the
    change is that of each sequence, so what all recipes share falls out.

    >>> import torch, fp8lab.torch
    >>> model = torch.nn.Sequential(torch.nn.Embedding(32, 64), torch.nn.Linear(64, 32))
    >>> plain, fp8 = fp8lab.torch.evaluate(model, torch.randint(0, 32, (4, 16)), ["te-current"])
    >>> plain.change, fp8.change_interval[0] <= fp8.change <= fp8.change_interval[1]
    (0.0, True)
    """
    if tokens.dim() != 2 or min(tokens.shape) < 2 or tokens.is_floating_point():
        got = f"{tokens.dtype} {list(tokens.shape)}"
        raise ValueError(f"tokens: expected integers [sequences, length], two or more of each, got {got}")
    _current(recipes, None)
    mode = model.training
    model.eval()
    try:
        with torch.no_grad(), no_fast_path():
            plain = _losses(model, tokens)
            found = [_evaluation("", "", plain, plain)]
            for recipe in recipes:
                for chip in hardware:
                    copied = convert(restore(copy.deepcopy(model)), recipe, hardware=chip, filter=filter, rule=rule)
                    name = recipe if isinstance(recipe, str) else recipe.name
                    found.append(_evaluation(name, chip or "", _losses(copied, tokens), plain))
    finally:
        model.train(mode)
    return found


def _evaluation(recipe: str, chip: str, losses: NDArray[np.float64], plain: NDArray[np.float64]) -> Evaluation:
    changes = losses - plain
    low, high = _interval(losses)
    return Evaluation(
        recipe, chip, float(np.exp(losses.mean())), (float(np.exp(low)), float(np.exp(high))),
        float(changes.mean()), _interval(changes),
    )
