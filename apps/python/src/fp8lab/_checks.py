"""Error metrics, and recordings of chips replayed through models."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import as_array, as_float32, bad


@dataclass(frozen=True)
class Comparison:
    """Errors of actual y against reference x, in FP64.

    Pairs of NaN, or of the same infinity, agree and are left out of every sum; any other
    pair with one of them makes every real-valued field NaN, so that no threshold passes by
    accident. Indices are into the flattened arrays.
    """

    count: int
    mismatches: int  #: pairs that differ in value
    non_finite_mismatches: int
    relative_l2: float
    sqnr_db: float
    cosine: float
    calc_diff: float  #: DeepGEMM's
    max_absolute: float
    max_absolute_index: int
    max_relative: float
    max_relative_index: int
    mean_signed_relative: float  #: bias: below 0 is low


def compare(reference: ArrayLike, actual: ArrayLike) -> Comparison:
    """Compare two arrays of one shape. reference: float64 or as `actual`, which is as `encode`'s x.

    >>> import fp8lab
    >>> result = fp8lab.compare([1.0, 2.0, 4.0], [1.0, 2.0, 5.0])
    >>> result.mismatches, result.max_relative, result.max_relative_index
    (1, 0.25, 2)
    """
    x = as_array("reference", reference)
    x = np.ascontiguousarray(x) if x.dtype == np.float64 else as_float32("reference", x)
    y = as_float32("actual", actual)
    if x.shape != y.shape:
        raise bad("actual", f"{list(x.shape)}, as reference has", list(y.shape))
    return Comparison(**_core.compare(x.reshape(-1), y.reshape(-1)))


@dataclass(frozen=True)
class ReplayReport:
    """The outcome of a replay; `shown` describes the first mismatches, at most 20."""

    model: str
    cases: int
    mismatches: int
    shown: tuple[str, ...]


def replay(path: str | os.PathLike[str], model: str = "") -> ReplayReport:
    """Replay a vector file or a recording through `model`, or the file's own if empty.

    >>> import fp8lab, pathlib, tempfile
    >>> text = '''# fp8lab vectors 1
    ... # model: sm90.mma.e4m3
    ... # input: e4m3
    ... # terms: 2
    ... 3838 3838 00000000 40000000
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "two_ones.txt")
    ...     _ = file.write_text(text)
    ...     fp8lab.replay(file)
    ReplayReport(model='sm90.mma.e4m3', cases=1, mismatches=0, shown=())
    """
    return ReplayReport(**_core.replay(os.fspath(path), model))
