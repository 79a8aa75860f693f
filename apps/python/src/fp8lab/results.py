"""Reads result folders of `fp8lab run` and `sweep` as arrays or Parquet, and writes your own.

>>> import fp8lab.results as r, numpy as np, tempfile
>>> columns = (r.Column("k", "1", "terms"), r.Column("bias", "%", "toward zero"))
>>> data = {"k": np.array([32, 64]), "bias": np.array([-2.0, -1.0])}
>>> with tempfile.TemporaryDirectory() as folder:
...     tables = [r.Table("error", "Error of a sum", columns, data)]
...     results = r.read(r.write(folder, tables, experiment="demo", question="How large is it?"))
>>> results["error"]["bias"]
array([-2., -1.])
>>> results["error"].columns[1].unit
'%'

Parquet needs pyarrow (`pip install pyarrow`); reading does not.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fp8lab._arrays import bad
from fp8lab._mode import in_own_mode
from fp8lab._warnings import warn
from fp8lab._write_results import Curve, Plot, write

__all__ = ["Column", "Curve", "Plot", "Results", "Table", "read", "read_parquet", "to_parquet", "write"]

_SCHEMAS = {"result.json": "fp8lab.result.1", "sweep.json": "fp8lab.sweep.1"}
# As CSV writes integers: reals have a point or an exponent.
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
# What stays a number to a spreadsheet.
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)
# The last member of a description: a checksum of the text before it.
_OWN_CHECKSUM = re.compile(r',\n  "crc32": "([0-9a-f]{8})"\n\}\n\Z')


@dataclass(frozen=True)
class Column:
    """The contents of a column; unit "1" is a pure number, "" is text or a parameter."""

    name: str
    unit: str
    description: str


@dataclass(frozen=True, eq=False)
class Table:
    """A tidy table: one row per measurement. `table["name"]` is the column's array.

    Arrays have one element per row: int64 if every cell is an integer (uint64 for the seeds of a
    sweep), float64, bool, or text. A numeric column with empty cells (points of a sweep that lack
    it) is a masked array.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    data: Mapping[str, NDArray[Any]]

    def __getitem__(self, column: str) -> NDArray[Any]:
        if column not in self.data:
            raise bad("column", f"one of {', '.join(self.data)}", f"'{column}'")
        return self.data[column]

    def __len__(self) -> int:
        return len(self.data[self.columns[0].name]) if self.columns else 0

    @in_own_mode
    def to_pandas(self) -> Any:
        """A pandas DataFrame of the table. Needs pandas (`pip install pandas`).

        Columns keep their names, order and types; empty cells of numeric columns are missing
        (pandas' Int64 and UInt64 for integers, so that seeds keep all their digits; NaN for reals).
        `frame.attrs` has table, title, and units: column -> unit. ImportError without pandas.
        """
        try:
            pd = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        frame = pd.DataFrame({c.name: _series(pd, self[c.name]) for c in self.columns})
        units = {c.name: c.unit for c in self.columns}
        frame.attrs.update(table=self.name, title=self.title, units=units)
        return frame

    @in_own_mode
    def where(self, **values: Any) -> Table:
        """All rows whose columns have these values."""
        keep = np.ones(len(self), bool)
        for column, value in values.items():
            keep &= np.ma.filled(self[column] == value, False)
        data = {name: array[keep] for name, array in self.data.items()}
        return Table(self.name, self.title, self.columns, data)


def _series(pd: Any, array: NDArray[Any]) -> Any:
    """A column for pandas; masked cells are missing ones."""
    if array.dtype.kind in "US":
        return pd.Series(array.tolist(), dtype=object)
    if not isinstance(array, np.ma.MaskedArray):
        return pd.Series(array)
    values, missing = array.filled(0), np.ma.getmaskarray(array)
    if array.dtype.kind == "f":
        return pd.Series(np.where(missing, np.nan, values))
    integers = pd.arrays.IntegerArray(values, missing.copy())
    return pd.Series(integers)


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, Table]):
    """A result folder. `results["name"]` is a table."""

    description: Mapping[str, Any]  #: the contents of result.json or sweep.json
    tables: Mapping[str, Table]

    def __getitem__(self, table: str) -> Table:
        if table not in self.tables:
            raise bad("table", f"one of {', '.join(self.tables)}", f"'{table}'")
        return self.tables[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)


def _text(cell: str) -> str:
    """A cell as it was before the writer put an apostrophe before what a spreadsheet would run."""
    bare = cell.lstrip("'")
    if bare == cell or not bare or bare[0] not in "=+-@\t\r" or bare in ("+", "-"):
        return cell
    return cell if _NUMBER.fullmatch(bare) else cell[1:]


def _numbers(cells: list[str], dtype: type[np.generic]) -> NDArray[Any]:
    """A numeric column; masked where a cell is empty."""
    missing = np.array([cell == "" for cell in cells], bool)
    # int() first: NumPy would read digits of integers by way of float64.
    read = float if dtype is np.float64 else int
    values = np.array([read(cell or 0) for cell in cells], dtype)
    return np.ma.masked_array(values, missing) if missing.any() else values


def _array(cells: list[str], is_seed: bool) -> NDArray[Any]:
    filled = [cell for cell in cells if cell != ""]
    if not filled:
        return np.array(cells, np.str_)
    if is_seed:
        return _numbers(cells, np.uint64)
    if len(filled) == len(cells) and set(cells) <= {"true", "false"}:
        return np.array([cell == "true" for cell in cells])
    if all(_WHOLE.fullmatch(cell) for cell in filled):
        limits = np.iinfo(np.int64)
        if all(limits.min <= int(cell) <= limits.max for cell in filled):
            return _numbers(cells, np.int64)
    try:
        return _numbers(cells, np.float64)
    except ValueError:
        return np.array(cells, np.str_)


def _file_inside(folder: Path, name: Any) -> Path:
    """A file of the folder: a name, never a path that leads elsewhere, nor a link."""
    path = folder / str(name)
    plain = isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")
    if not plain or path.is_symlink() or not path.is_file():
        raise bad(f"{folder}: file", "the name of a file in this folder", repr(name))
    return path


def _read_table(folder: Path, head: Mapping[str, Any], of_sweep: bool) -> Table:
    columns = tuple(Column(c["name"], c["unit"], c["description"]) for c in head["columns"])
    path = _file_inside(folder, head["file"])
    data = path.read_bytes()
    checksum = f"{zlib.crc32(data):08x}"
    if head.get("crc32", checksum) != checksum:
        raise bad(f"{path}: crc32", f"{head['crc32']} (the file was changed)", checksum)
    names = [column.name for column in columns]
    rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    if len(names) == 1:  # an empty line is an empty cell
        rows = [row or [""] for row in rows]
    if not rows or rows[0] != names:
        raise bad(str(path), f"the columns {', '.join(names)}", ", ".join(rows[0] if rows else []))
    if len(rows) - 1 != head["rows"]:
        raise bad(str(path), f"{head['rows']} rows", len(rows) - 1)
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise bad(f"{path}:{line}", f"{len(names)} cells", len(row))
    rows = [[_text(cell) for cell in row] for row in rows]
    cells = {name: [row[i] for row in rows[1:]] for i, name in enumerate(names)}
    # The sweep's own column comes before the table's, which may be called `seed` too.
    seed = next((n for n in names if n in ("seed", "axis_seed")), None) if of_sweep else None
    return Table(
        head["name"], head["title"], columns, {n: _array(c, n == seed) for n, c in cells.items()}
    )


def _parsed(text: str | bytes, where: object) -> Any:
    """The value of a JSON text; ValueError for what is none, and for what Python's parser cannot hold."""
    try:
        return json.loads(text)
    except RecursionError:
        raise bad(str(where), "lists and objects in each other that are fewer than Python's limit", "more") from None


def _read_description(path: Path) -> tuple[Any, bool]:
    """The JSON of a file, and whether it has a checksum. ValueError if that was made of another text."""
    text = path.read_text(encoding="utf-8")
    own = _OWN_CHECKSUM.search(text)
    checksum = f"{zlib.crc32(text[: own.start()].encode()):08x}" if own else ""
    if own and own[1] != checksum:
        raise bad(f"{path}: crc32", f"{own[1]} (the file was changed)", checksum)
    return _parsed(text, path), own is not None


def _tell_unchecked(root: Path, own: tuple[str, bool], heads: list[Any]) -> None:
    """Folders written before there were checksums are read, and so is one whose checksums were removed."""
    name, checked = own
    files = [] if checked else [name]
    files += [str(head["file"]) for head in heads if "crc32" not in head]
    if files:
        warn(f"{root}: no checksum of {', '.join(files)}: a change would not be seen", UserWarning)


@in_own_mode
def read(folder: str | os.PathLike[str]) -> Results:
    """The tables of a folder written by `fp8lab run` or `fp8lab sweep`.

    folder: the one that holds result.json (one experiment) or sweep.json (a finished sweep).
    ValueError if it holds neither, if a table does not match its description, and if a table is not
    a file of this folder. UserWarning for files without a checksum.
    """
    root = Path(folder)
    for name, schema in _SCHEMAS.items():
        if not (root / name).is_file():
            continue
        description, checked = _read_description(root / name)
        if description.get("schema") != schema:
            raise bad(f"{root / name}: schema", schema, description.get("schema"))
        heads = description["tables"]
        _tell_unchecked(root, (name, checked), heads)
        tables = {head["name"]: _read_table(root, head, name == "sweep.json") for head in heads}
        return Results(description, tables)
    raise bad("folder", f"one with {' or '.join(_SCHEMAS)}", str(root))


def _pyarrow() -> Any:
    try:
        importlib.import_module("pyarrow.parquet")  # pyarrow does not load it itself
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install pyarrow") from error


@in_own_mode
def to_parquet(
    folder: str | os.PathLike[str], file: str | os.PathLike[str], table: str | None = None
) -> None:
    """Write a table of a result folder as one self-describing Parquet file.

    table: its name, needed if the folder has several. Empty cells of numeric columns become nulls.
    Each field's metadata has `unit` and `description`; the schema's has `fp8lab`, a JSON object:
    table, title, and all of result.json or sweep.json (parameters, seed, version and the command
    that gives the same table again).
    """
    pa = _pyarrow()
    results = read(folder)
    if table is None and len(results) != 1:
        raise bad("table", f"one of {', '.join(results)}", "none")
    chosen = results[table if table is not None else next(iter(results))]
    arrays = [chosen[column.name] for column in chosen.columns]
    columns = [pa.array(np.ma.getdata(a), mask=np.ma.getmaskarray(a)) for a in arrays]
    fields = [
        pa.field(c.name, a.type, metadata={"unit": c.unit, "description": c.description})
        for c, a in zip(chosen.columns, columns, strict=True)
    ]
    about = {"table": chosen.name, "title": chosen.title, "results": results.description}
    schema = pa.schema(fields, metadata={"fp8lab": json.dumps(about)})
    pa.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), os.fspath(file))


def _from_arrow(column: Any) -> NDArray[Any]:
    array = column.combine_chunks()
    missing = np.asarray(array.is_null())
    if str(array.type) == "string":
        return np.array(array.to_pylist(), np.str_)
    values: NDArray[Any] = np.asarray(array.fill_null(False if str(array.type) == "bool" else 0))
    return np.ma.masked_array(values, missing) if missing.any() else values


@in_own_mode
def read_parquet(file: str | os.PathLike[str]) -> Results:
    """Reads a file of `to_parquet`: the description of the whole folder, and the one table."""
    pa = _pyarrow()
    arrow = pa.parquet.read_table(os.fspath(file))
    metadata = arrow.schema.metadata or {}
    if b"fp8lab" not in metadata:
        raise bad("file", "one that fp8lab.results.to_parquet wrote", os.fspath(file))
    about = _parsed(metadata[b"fp8lab"], os.fspath(file))
    columns = tuple(
        Column(f.name, f.metadata[b"unit"].decode(), f.metadata[b"description"].decode())
        for f in arrow.schema
    )
    data = {c.name: _from_arrow(arrow.column(c.name)) for c in columns}
    table = Table(about["table"], about["title"], columns, data)
    return Results(about["results"], {table.name: table})
