"""A kill switch for training runs: three figures of each step beside those of a reference run."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fp8lab import _core
from fp8lab._arrays import number, text, whole
from fp8lab._linear import linear_recipe
from fp8lab._mode import in_own_mode
from fp8lab.torch._convert import layers

ACTIONS = ("stop", "roll-back", "bf16")


class StepFigures(NamedTuple):
    """One step of a run."""

    loss: float
    """As it was given, in nats."""
    gradient_amax: float
    """Largest magnitude of the gradients of all matrices but embeddings."""
    second_moment: float
    """Mean of Adam's v over the same matrices."""


@dataclass(frozen=True)
class KillEvent:
    """An alarm and what was done."""

    step: int
    """The step of the alarm, from 0."""
    indicator: str
    """"gradient amax", "second moment" or "loss gap"."""
    value: float
    """A ratio to the reference's, or nats above it, over the window."""
    action: str
    """"stop", "roll-back" or "bf16"."""
    back_to: int
    """Steps that the model has taken now: continue with the batch of this number."""


class RunStopped(RuntimeError):
    """Raised where a kill switch ends a run; `event` says why."""

    def __init__(self, event: KillEvent) -> None:
        unit = "nats above the reference" if event.indicator == "loss gap" else "times the reference's"
        super().__init__(f"kill switch: the {event.indicator} is {event.value:.3g} {unit} at step {event.step}")
        self.event = event


def _watched(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of a model but those of embeddings, each once."""
    found: dict[nn.Parameter, None] = {}
    for module in model.modules():
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            found.update((p, None) for p in module.parameters(recurse=False) if p.ndim >= 2)
    return list(found)


def figures_of(model: nn.Module, optimizer: torch.optim.Optimizer, loss: float | Tensor) -> StepFigures:
    """The figures of a step whose gradients are still there."""
    amax, total, count = 0.0, 0.0, 0
    for parameter in _watched(model):
        state = optimizer.state.get(parameter, {})
        if parameter.grad is None or "exp_avg_sq" not in state:
            continue
        largest = float(parameter.grad.detach().abs().max())
        amax = largest if math.isnan(largest) else max(amax, largest)
        total += float(state["exp_avg_sq"].detach().double().sum())
        count += parameter.numel()
    if count == 0:
        raise ValueError("optimizer: expected one with exp_avg_sq of a matrix that has a gradient, such as AdamW")
    nats = float(loss.detach()) if isinstance(loss, Tensor) else number("loss", loss)
    return StepFigures(nats, amax, total / count)


class KillSwitch:
    """Acts once a training run departs from a reference run on the same batches.

    Alarms are raised by the ratio of gradient amaxes or of second moments, outside of [1 / ratio,
    ratio], and by the loss, above the reference's by more than loss_gap nats: each averaged over
    `window` steps and `patience` steps in a row. A loss that is not finite is an alarm at once.
    `fp8lab.torch.watch(kill_switch=)` calls `step`.

    The reference is a list of figures that this class recorded in a run in high precision, such as
    the model converted with "bf16": the same seed and batches, otherwise ratios mean nothing.

    >>> import torch, fp8lab.torch
    >>> def run(recipe, reference=None, scale=1.0):
    ...     torch.manual_seed(1)
    ...     model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(32, 32)), recipe)
    ...     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ...     switch = fp8lab.torch.KillSwitch(optimizer, reference, window=2, patience=2)
    ...     for _ in range(8):
    ...         optimizer.zero_grad()
    ...         loss = (model(torch.randn(4, 32)) ** 2).mean() * scale
    ...         loss.backward()
    ...         optimizer.step()
    ...         switch.step(model, loss)
    ...     return switch.figures
    >>> reference = run("bf16")
    >>> len(run("te-current", reference))
    8
    >>> run("te-current", reference, scale=4.0)
    Traceback (most recent call last):
    fp8lab.torch._kill_switch.RunStopped: kill switch: the gradient amax is 4.03 times the reference's at step 2
    """

    @in_own_mode
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        reference: Sequence[StepFigures] | None = None,
        *,
        action: str = "stop",
        amax_ratio: float = 2.0,
        moment_ratio: float = 2.0,
        loss_gap: float = 0.01,
        window: int = 10,
        patience: int = 5,
        snapshot_every: int = 10,
        most_rollbacks: int = 3,
    ) -> None:
        """reference: figures by step; None records alone. action: "stop" raises `RunStopped`;
        "roll-back" restores model and optimizer to a copy of them from before the window (or of the
        first step), and "bf16" does so and runs the converted layers in BF16 from then on, without
        further alarms. Copies are kept every snapshot_every steps. After most_rollbacks, an alarm
        stops the run. ValueError for other values.
        """
        if text("action", action) not in ACTIONS:
            raise ValueError(f"action: expected {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, got {action!r}")
        for name, value in (("snapshot_every", snapshot_every), ("most_rollbacks", most_rollbacks)):
            if whole(name, value) < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        self._window, self._patience = whole("window", window), whole("patience", patience)
        self._new_switch = lambda: _core.KillSwitch(
            amax_ratio=number("amax_ratio", amax_ratio),
            moment_ratio=number("moment_ratio", moment_ratio),
            loss_gap=number("loss_gap", loss_gap),
            window=self._window,
            patience=self._patience,
        )
        self._switch = self._new_switch()
        self._optimizer = optimizer
        self._reference = None if reference is None else [StepFigures(*one) for one in reference]
        self._action = action
        self._snapshot_every = snapshot_every
        self._most_rollbacks = most_rollbacks
        self._copies: list[tuple[int, Any, Any]] = []
        self.figures: list[StepFigures] = []
        self.events: list[KillEvent] = []

    @in_own_mode
    def step(self, model: nn.Module, loss: float | Tensor) -> KillEvent | None:
        """Takes a step's figures; what the switch did, or None.

        Call it after the optimizer's step and before gradients are set to zero. ValueError if the
        reference ends before the run, or no matrix has a gradient and a second moment.
        """
        done = len(self.figures)
        figures = figures_of(model, self._optimizer, loss)
        self.figures.append(figures)
        if self._reference is None:
            return None
        if done >= len(self._reference):
            raise ValueError(f"reference: expected figures of step {done}, got those of {len(self._reference)} steps")
        self._switch.observe(figures, self._reference[done])
        cause = self._switch.cause()
        if not math.isfinite(figures.loss):
            cause = ("loss gap", math.inf)
        if cause is not None:
            return self._act(model, done, *cause)
        self._keep(model, done + 1)
        return None

    def _keep(self, model: nn.Module, done: int) -> None:
        """Copies the state after `done` steps if it is due, and drops what no later alarm needs."""
        if self._action == "stop":
            return
        if not self._copies or done >= self._copies[-1][0] + self._snapshot_every:
            states = (model.state_dict(), self._optimizer.state_dict())
            self._copies.append((done, *(copy.deepcopy(state) for state in states)))
        needed = done - self._window - self._patience
        while len(self._copies) > 1 and self._copies[1][0] <= needed:
            self._copies.pop(0)

    def _act(self, model: nn.Module, step: int, indicator: str, value: float) -> KillEvent:
        if self._action == "stop" or not self._copies or len(self.events) >= self._most_rollbacks:
            event = KillEvent(step, indicator, value, "stop", step + 1)
            self.events.append(event)
            raise RunStopped(event)
        back_to, weights, states = self._copies[0]
        model.load_state_dict(weights)
        self._optimizer.load_state_dict(states)
        event = KillEvent(step, indicator, value, self._action, back_to)
        self.events.append(event)
        del self.figures[back_to:]
        self._copies.clear()
        self._switch = self._new_switch()
        if self._action == "bf16":
            for layer in layers(model).values():
                layer._fp8_configure(linear_recipe("bf16"))
            self._reference = None
        return event
