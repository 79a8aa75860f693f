"""Writes figures of layers as result folders for `fp8lab report`, and to training loggers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from fp8lab.results import Column, Table, write
from fp8lab.torch._kill_switch import KillEvent, KillSwitch
from fp8lab.torch._seeing import LayerStatistics, ModelComparison, OperandStatistics, Recording, record

UNITS = {"count": "elements", "sqnr_db": "dB", "tile_range_mean": "bits", "tile_range_max": "bits"}
MEANING = {
    "count": "of the operand",
    "amax": "largest magnitude",
    "underflow_percent": "became zero, of all elements",
    "overflow_percent": "became infinite, of all elements",
    "saturated_percent": "took the largest finite value, of all elements",
    "nan_percent": "became NaN, of all elements",
    "relative_l2": "error of the cast, relative L2",
    "sqnr_db": "signal to noise of the cast",
    "scale_min": "smallest scale, which multiplies into FP8",
    "scale_max": "largest scale",
    "tile_range_mean": "log2(amax / smallest non-zero) inside a tile, mean",
    "tile_range_max": "the same, largest",
    "scale_overhead_percent": "bytes of scales over bytes of codes",
}


def _unit(field: str) -> str:
    return UNITS.get(field, "%" if field.endswith("_percent") else "1")


def _table(name: str, title: str, columns: list[Column], rows: list[list[Any]]) -> Table:
    data = {column.name: np.array([row[i] for row in rows]) for i, column in enumerate(columns)}
    return Table(name, title, tuple(columns), data)


def tables_of(statistics: Mapping[str, LayerStatistics]) -> list[Table]:
    """`Recording.statistics()` as tables: "operands", a row a cast, and "products", a row a layer."""
    fields = [field.name for field in dataclasses.fields(OperandStatistics)]
    casts = [
        [name, role, *(getattr(operand, field) for field in fields)]
        for name, one in statistics.items()
        for role in ("activation", "weight", "gradient")
        if (operand := getattr(one, role)) is not None
    ]
    products: list[list[Any]] = [
        [name, one.output_sqnr_db, one.accumulator_error]
        for name, one in statistics.items()
        if one.output_sqnr_db is not None
    ]
    # The worst output first: a NaN, then the least signal over noise.
    products.sort(key=lambda row: -np.inf if np.isnan(row[1]) else row[1])
    layer = Column("layer", "", "its name in the model")
    tables = []
    if casts:
        columns = [layer, Column("operand", "", "activation, weight or gradient")]
        columns += [Column(field, _unit(field), MEANING[field]) for field in fields]
        tables.append(_table("operands", "What the casts of a pass took", columns, casts))
    if products:
        sqnr = Column("output_sqnr_db", "dB", "FP32 sums of the forward product against the uncast operands")
        error = Column("accumulator_error", "1", "relative L2 of those sums against exact ones of the codes")
        tables.append(_table("products", "Forward products of a pass", [layer, sqnr, error], products))
    return tables


def write_statistics(
    statistics: Mapping[str, LayerStatistics], folder: str | os.PathLike[str], name: str = "layers"
) -> str:
    """Writes FOLDER/NAME, which `fp8lab report` and `fp8lab.results.read` read; returns that path.

    statistics: from `Recording.statistics()`. The tables are "operands" and "products"; the
    findings name the layer whose output is the farthest from that of its uncast operands (the first
    row of "products", which are in this order), the worst cast and the worst sum. ValueError if nothing was recorded.

    >>> import tempfile, torch, fp8lab.results, fp8lab.torch
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(64, 32)), "te-current")
    >>> with fp8lab.torch.record(model) as recording:
    ...     _ = model(torch.randn(16, 64))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fp8lab.torch.write_statistics(recording.statistics(), folder)
    ...     [str(one) for one in fp8lab.results.read(path)["operands"]["operand"]]
    ['activation', 'weight']
    """
    tables = tables_of(statistics)
    if not tables:
        raise ValueError("statistics: expected a pass of a layer that casts, got none")
    findings = []
    for one in tables:
        if one.name == "products":
            farthest = f"{one['layer'][0]}, {float(one['output_sqnr_db'][0]):.3g} dB"
            findings.append(f"The output farthest from that of uncast operands: {farthest} of signal over noise.")
    for table, field, text in (
        ("operands", "relative_l2", "The cast with the largest error: {} of {}, {:.3g} relative L2."),
        ("products", "accumulator_error", "The sums farthest from exact ones: {1}, {2:.3g} relative L2."),
    ):
        found = [one for one in tables if one.name == table]
        if found:
            values = np.nan_to_num(np.asarray(found[0][field], np.float64), nan=np.inf)
            worst = int(values.argmax())
            role = found[0]["operand"][worst] if table == "operands" else ""
            findings.append(text.format(role, found[0]["layer"][worst], values[worst]))
    return write(
        folder, tables, experiment=name, findings=findings,
        question="What do the casts and sums of each layer take?",
        parameters={"layers": len(statistics)},
    )


def write_comparison(
    comparison: ModelComparison, folder: str | os.PathLike[str], name: str = "comparison"
) -> str:
    """Writes FOLDER/NAME from the result of `compare`, like `write_statistics`: table "layers"."""
    columns = [
        Column("layer", "", "its name in the model"),
        Column("loss_change", "1", "of the first model, when this layer alone runs as in the second"),
        Column("output_error", "1", "relative L2 of its output between the two models"),
        Column("own_error", "1", "the same, when this layer alone runs as in the second"),
    ]
    rows = [[one.name, one.loss_change, one.output_error, one.own_error] for one in comparison.layers]
    findings = [f"Loss {comparison.loss_a:.6g} in the first model, {comparison.loss_b:.6g} in the second."]
    if comparison.layers:
        first = comparison.layers[0]
        findings.append(f"The layer that moves the loss most: {first.name}, by {first.loss_change:.3g}.")
        worst = max(comparison.layers, key=lambda one: np.inf if np.isnan(one.own_error) else one.own_error)
        findings.append(f"The layer with the largest error of its own: {worst.name}, {worst.own_error:.3g} relative L2.")
    return write(
        folder, [_table("layers", "What each layer's recipe does to the loss", columns, rows)],
        experiment=name, question="Which layer moves the loss?", findings=findings,
        parameters={"loss_a": comparison.loss_a, "loss_b": comparison.loss_b},
    )


def log(recording: Recording, writer: Any, step: int, prefix: str = "fp8") -> None:
    """Writes `Recording.scalars()` to a logger: TensorBoard's `add_scalar` or a `log(dict, step=)`.

    Names are "PREFIX/layer/operand/figure". TypeError for a writer with neither method.
    """
    scalars = {f"{prefix}/{name}": value for name, value in recording.scalars().items()}
    if hasattr(writer, "add_scalar"):
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)
    elif hasattr(writer, "log"):
        writer.log(scalars, step=step)
    else:
        raise TypeError(f"writer: expected add_scalar or log, got {type(writer).__name__}")


@contextlib.contextmanager
def watch(
    model: nn.Module,
    writer: Any,
    *,
    every: int = 100,
    prefix: str = "fp8",
    kill_switch: KillSwitch | None = None,
) -> Iterator[Callable[..., KillEvent | None]]:
    """Logs the statistics of a model's casts, on each `every`-th training step from the first on.

    The context gives a function; call it after each step (after the backward pass). Steps that are
    not logged cost nothing. writer and prefix as for `log`. ValueError for `every` below 1.

    kill_switch: compares each step with one of a reference run. Call the function with the loss of
    the step then, after the optimizer's step and before its gradients are set to zero. It returns
    what the switch did, or None, and raises `RunStopped` where the run is to end (`KillSwitch`).

    >>> import torch, fp8lab.torch
    >>> class Writer:
    ...     def add_scalar(self, name, value, step):
    ...         if name.endswith("gradient/amax"):
    ...             print(name, value, step)
    >>> model = fp8lab.torch.convert(torch.nn.Sequential(torch.nn.Linear(32, 16)), "te-current")
    >>> with fp8lab.torch.watch(model, Writer(), every=2) as step:
    ...     for _ in range(3):
    ...         model(torch.ones(4, 32)).sum().backward()
    ...         step()
    fp8/0/gradient/amax 1.0 0
    fp8/0/gradient/amax 1.0 2
    """
    if every < 1:
        raise ValueError(f"every: expected 1 or more, got {every}")
    with contextlib.ExitStack() as stack:
        count, recording = 0, stack.enter_context(record(model))

        def step(loss: float | Tensor | None = None) -> KillEvent | None:
            nonlocal count, recording
            if (loss is None) != (kill_switch is None):
                given = "none" if loss is None else "one without a kill_switch"
                raise ValueError(f"loss: expected a number for a kill_switch alone, got {given}")
            if count % every == 0:
                log(recording, writer, count, prefix)
                stack.pop_all().close()
            count += 1
            event = None if kill_switch is None or loss is None else kill_switch.step(model, loss)
            if count % every == 0:
                recording = stack.enter_context(record(model))
            return event

        yield step
