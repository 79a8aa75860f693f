"""Error metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import as_array, as_float32, bad
from fp8lab._mode import in_own_mode


@dataclass(frozen=True)
class Comparison:
    """Errors of actual y against reference x, in FP64.

    Pairs of NaN, or of the same infinity, agree and are left out of every sum; any other pair with
    a NaN or infinity makes every real-valued field NaN, so that no threshold passes by accident.
    Indices are into the flattened arrays.
    """

    count: int
    mismatches: int  #: pairs that differ in value
    non_finite_mismatches: int
    relative_l2: float
    sqnr_db: float
    cosine: float
    calc_diff: float  #: DeepGEMM's metric
    max_absolute: float
    max_absolute_index: int
    max_relative: float
    max_relative_index: int
    mean_signed_relative: float  #: bias: negative if values are too small


@in_own_mode
def compare(reference: ArrayLike, actual: ArrayLike) -> Comparison:
    """Compare two arrays of the same shape.

    actual: as x of `encode`. reference: float64, or as actual.

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
