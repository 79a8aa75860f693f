"""Result folders written from Python, for `fp8lab report` and `fp8lab.results.read`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._arrays import bad, whole


@dataclass(frozen=True)
class Curve:
    """One line of a plot; x and y have the same number of elements, and a NaN leaves a gap."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Plot:
    """Lines: a Vega-Lite specification, and pictures of it if vl-convert-python is installed."""

    name: str  #: file name without extension
    title: str
    x: str  #: label of the axis, with its unit
    y: str
    curves: Sequence[Curve]


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind not in "biufU":
        raise bad("data", "columns of booleans, numbers or text", column.dtype)
    values: list[Any] = column.tolist()
    return values


def _rows(table: Any) -> list[list[Any]]:
    names = [column.name for column in table.columns]
    if sorted(names) != sorted(table.data):
        raise bad(f"{table.name}: data", f"the columns {', '.join(names)}", ", ".join(table.data))
    columns = [np.asarray(table.data[name]) for name in names]
    sizes = {column.shape for column in columns}
    if len(sizes) > 1 or any(column.ndim != 1 for column in columns):
        raise bad(f"{table.name}: data", "columns of one length", sorted(sizes))
    return [list(row) for row in zip(*map(_cells, columns))]


def _toml(parameters: Mapping[str, Any]) -> str:
    """A value of JSON that is no null and no object is one of TOML too."""
    lines = []
    for name, value in parameters.items():
        if not isinstance(value, (bool, int, float, str)):
            raise bad(f"parameters: {name}", "a bool, a number or text", repr(value))
        lines.append(f"{json.dumps(name)} = {json.dumps(value)}\n")
    return "".join(lines)


def write(
    folder: str | os.PathLike[str],
    tables: Sequence[Any],
    *,
    experiment: str,
    question: str,
    plots: Sequence[Plot] = (),
    findings: Sequence[str] = (),
    parameters: Mapping[str, bool | float | str] | None = None,
    command: str = "",
    seed: int = 0,
    duration_seconds: float = 0.0,
    threads: int = 1,
) -> str:
    """Writes FOLDER/EXPERIMENT with one CSV a table, the plots and result.json; returns that path.

    The folder has the form that `fp8lab run` writes and that `fp8lab report` and `read` accept.
    Files are complete when they appear, and files of an earlier run that this one does not write
    are removed. experiment: a valid file name. tables: `Table`s of booleans, int64, float64 or
    text. findings: sentences with figures. command: the command that repeats the run. ValueError
    for names that are not valid file names or occur twice, for columns that do not fit, and for a
    folder that cannot be written.

    >>> import fp8lab.results as r, tempfile, numpy as np
    >>> table = r.Table("loss", "Loss of each step", (r.Column("step", "1", "updates so far"),
    ...     r.Column("loss", "nats", "of the batch")), {"step": np.arange(2), "loss": np.array([1.5, 1.25])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = r.write(folder, [table], experiment="mine", question="Does it learn?")
    ...     r.read(path)["loss"]["loss"]
    array([1.5 , 1.25])
    """
    os.environ.setdefault("FP8LAB_PYTHON", sys.executable)  # draws the plots
    made: str = _core.write_results(
        experiment=experiment,
        question=question,
        parameters_toml=_toml(parameters or {}),
        seed=whole("seed", seed),
        command=command,
        findings=list(findings),
        tables=[
            (t.name, t.title, [(c.name, c.unit, c.description) for c in t.columns], _rows(t)) for t in tables
        ],
        plots=[
            (p.name, p.title, p.x, p.y, [(c.label, list(c.x), list(c.y)) for c in p.curves]) for p in plots
        ],
        duration_seconds=float(duration_seconds),
        threads=whole("threads", threads),
        out=os.fspath(folder),
    )
    return made
