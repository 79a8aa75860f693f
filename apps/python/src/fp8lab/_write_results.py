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
from fp8lab._arrays import DTYPES, as_array, as_float32, bad, natural, number, whole
from fp8lab._mode import in_own_mode


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


def _cells(argument: str, column: NDArray[Any]) -> list[Any]:
    if column.dtype in DTYPES.values():
        column = as_float32(argument, column)
    if column.dtype.kind not in "biufU":
        raise bad(argument, "columns of booleans, numbers or text", column.dtype)
    if column.dtype.kind == "f" and column.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            narrow = column.astype(np.float64)
        if ((narrow != column) & ~np.isnan(column)).any():
            raise bad(argument, "numbers that binary64 has", column.dtype)
        column = narrow
    values: list[Any] = column.tolist()
    if column.dtype.kind == "u" and any(value >= 1 << 63 for value in values):
        raise bad(argument, "integers of at most 2^63 - 1", max(values))
    return values


def _rows(table: Any) -> list[list[Any]]:
    names = [column.name for column in table.columns]
    if sorted(names) != sorted(table.data):
        raise bad(f"{table.name}: data", f"the columns {', '.join(names)}", ", ".join(table.data))
    arguments = [f"{table.name}: data: {name}" for name in names]
    columns = [as_array(said, table.data[name]) for said, name in zip(arguments, names, strict=True)]
    sizes = {column.shape for column in columns}
    if len(sizes) > 1 or any(column.ndim != 1 for column in columns):
        raise bad(f"{table.name}: data", "columns of one length", sorted(sizes))
    return [list(row) for row in zip(*map(_cells, arguments, columns), strict=True)]


#: What a file of parameters has beside them.
_RESERVED = ("question", "quick", "range", "mpi")


def _toml(parameters: Mapping[str, Any]) -> str:
    """A line of TOML for each parameter."""
    lines = []
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise bad("parameters", "names that are text", repr(name))
        if name in _RESERVED:
            raise bad("parameters", f"names other than {', '.join(_RESERVED)}", repr(name))
        said = f"parameters: {name}"
        if not isinstance(value, (bool, int, float, str)):
            raise bad(said, "a bool, a number or text", repr(value))
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise bad(said, "an integer of 64 bits", value)
        lines.append(f"{_toml_text(said, name)} = {_toml_value(said, value)}\n")
    return "".join(lines)


def _toml_text(argument: str, text: str) -> str:
    """JSON escapes what TOML must have escaped, but DEL; what Unicode has no character for is refused."""
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise bad(argument, "text without halves of surrogate pairs", ascii(text))
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(argument: str, value: bool | float | str) -> str:
    if isinstance(value, str):
        return _toml_text(argument, value)
    if isinstance(value, float):
        return repr(float(value))  # inf and nan are TOML's words too
    return json.dumps(value)


@in_own_mode
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
    os.environ.setdefault("FP8LAB_PYTHON", sys.executable)  # draws the plots, if nothing else was named
    made: str = _core.write_results(
        experiment=experiment,
        question=question,
        parameters_toml=_toml(parameters or {}),
        seed=natural("seed", seed),
        command=command,
        findings=list(findings),
        tables=[
            (t.name, t.title, [(c.name, c.unit, c.description) for c in t.columns], _rows(t)) for t in tables
        ],
        plots=[
            (p.name, p.title, p.x, p.y, [(c.label, list(c.x), list(c.y)) for c in p.curves]) for p in plots
        ],
        duration_seconds=number("duration_seconds", duration_seconds),
        threads=whole("threads", threads),
        out=os.fspath(folder),
    )
    return made
