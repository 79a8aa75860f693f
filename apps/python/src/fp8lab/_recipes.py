"""Quantized tensors, and the recipes of real systems."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import DTYPES, as_float32, as_matrix, bad, coded, codes_of, text, whole
from fp8lab._mode import in_own_mode
from fp8lab._warnings import warn


@dataclass(frozen=True)
class Recipe:
    """How one tensor is quantized, as a plain value: vary it with `dataclasses.replace`.

    Blocks are tile sides; 0 means all rows, or all of k. `rule` is the formula from amax to
    scale, `source` where the amax comes from: "current", "delayed", "ms_amp", "calibration",
    or "momentum", quanto's moving average of calibrated scales.

    >>> import dataclasses, fp8lab
    >>> te = fp8lab.presets()["te-current"].activation
    >>> fp8lab.quantize([[1.0, 3.0]], dataclasses.replace(te, power_of_two=True)).scales
    array([[128.]], dtype=float32)
    """

    format: str = "e4m3fn"
    profile: str = "nvidia_satfinite"
    rule: str = "te"
    source: str = "current"
    row_block: int = 0
    k_block: int = 0
    power_of_two: bool = False
    amax_floor: float = 0.0
    rows_multiple: int = 1  #: the system refuses other numbers of rows
    k_multiple: int = 1
    history: int = 1024  #: length of the history of delayed scaling
    margin: float = 0.0
    amax_algorithm: str = "max"
    zero_amax: str = "keep_history"
    window: int = 16  #: window of MS-AMP

    def _core(self) -> _core.Recipe:
        return _compiled(self)


@functools.lru_cache(maxsize=256)
def _compiled(recipe: Recipe) -> _core.Recipe:
    return _core.Recipe(**dataclasses.asdict(recipe))


@dataclass(frozen=True)
class Preset:
    """The recipes of one system for a linear layer's three operands."""

    name: str
    activation: Recipe
    weight: Recipe
    gradient: Recipe
    high_precision_wgrad: bool  #: wgrad runs in BF16, from the original tensors
    used_by: str


@in_own_mode
def presets() -> dict[str, Preset]:
    """Every preset by name.

    >>> import fp8lab
    >>> fp8lab.presets()["te-delayed"].gradient.format
    'e5m2'
    """
    found = {}
    for fields in _core.presets():
        for role in ("activation", "weight", "gradient"):
            fields[role] = Recipe(**fields[role])
        found[fields["name"]] = Preset(**fields)
    return found


class Scales(NamedTuple):
    """Inverse scales of a matrix [rows, k]: value = code * scale.

    `values` has the shape [ceil(rows/row_block), ceil(k/k_block)]; blocks of 0 mean all rows, or
    all of k. A grid of one row or one column may be a vector. Any other shape is refused even if
    its number of values is right: it may be the transpose. DeepSeek's 1x128 tiles: `Scales(values,
    1, 128)`; MX: `Scales(e8m0, 1, 32)`, of dtype float8_e8m0fnu; NVFP4: `Scales(ue4m3, 1, 16,
    tensor_scale)`, of dtype float8_e4m3fn.

    layout: the layout of values, if it differs. "column_major": the transposed grid, [k tiles, row
    tiles], with row tiles padded to 16 bytes or not (torch's [1, n] and [k/128, n/128], DeepGEMM's
    TMA-aligned ones); "packed_ue8m0": int32 words [row tiles, ceil(k tiles/4)] of four E8M0
    exponents each, the first in the lowest byte (DeepGEMM on SM100), and
    "packed_ue8m0_column_major", the transposed words, as they are in memory; "blocked_128x4":
    cuBLASLt's and torch's blocks of E8M0 or UE4M3 codes, in any shape.
    """

    values: ArrayLike
    row_block: int = 0
    k_block: int = 0
    #: NVFP4's second level: value = code * scale * tensor_scale. In grouped products also [groups].
    tensor_scale: ArrayLike = 1.0
    layout: str = "row_major"


@dataclass(frozen=True)
class QuantizationStatistics:
    """The errors of a quantization. Percentages are of all elements."""

    count: int
    underflow_percent: float
    overflow_percent: float
    saturated_percent: float
    nan_percent: float
    relative_l2: float
    sqnr_db: float
    scale_min: float
    scale_max: float
    tile_range_mean: float  #: log2(amax / smallest non-zero) within a tile, in bits
    tile_range_max: float
    scale_overhead_percent: float  #: bytes of scales over bytes of codes


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """Codes with the scales that their system stores: value = code * inverse_scale.

    Two-level recipes (NVFP4) have tensor_inverse_scale too, which multiplies inverse_scale first.
    """

    format: str
    codes: NDArray[Any]  #: [rows, k], of the format's ml_dtypes dtype, or uint8 if it has none
    scales: NDArray[np.float32]  #: [ceil(rows/row_block), ceil(k/k_block)], multiply values
    inverse_scales: NDArray[np.float32]  #: same shape, multiply codes
    row_block: int
    k_block: int
    e8m0: NDArray[Any] | None = None  #: the stored scales of MX recipes, float8_e8m0fnu
    ue4m3: NDArray[Any] | None = None  #: those of NVFP4's tiles, float8_e4m3fn
    tensor_inverse_scale: float = 1.0  #: NVFP4's second level
    transposed: QuantizedTensor | None = None  #: [k, rows], quantized from the original values

    @property
    def inverse(self) -> Scales:
        """The scales as `gemm` takes them."""
        return Scales(
            self.inverse_scales, self.row_block, self.k_block, self.tensor_inverse_scale
        )

    @in_own_mode
    def dequantize(self) -> NDArray[np.float32]:
        """Each code times its inverse scale, rounded once, to nearest even.

        >>> import fp8lab
        >>> fp8lab.quantize([[1.0, 7.0, 448.0]]).dequantize()
        array([[  1.,   7., 448.]], dtype=float32)
        """
        values: NDArray[np.float32] = _core.dequantize(self._core())
        return values

    @in_own_mode
    def statistics(self, x: ArrayLike) -> QuantizationStatistics:
        """The errors of this tensor against `x`, from which it was made.

        >>> import fp8lab
        >>> x = [[448.0, 1.0, 2.0**-20, 0.0]]
        >>> fp8lab.quantize(x).statistics(x).underflow_percent
        25.0
        """
        fields = _core.quantization_statistics(as_matrix("x", x), self._core())
        return QuantizationStatistics(**fields)

    def _core(self) -> _core.QuantizedTensor:
        return _core.QuantizedTensor(
            format=self.format,
            codes=np.ascontiguousarray(_matrix("codes", codes_of("codes", self.codes, self.format)[0])),
            scales=_matrix("scales", as_float32("scales", self.scales)),
            inverse_scales=_matrix("inverse_scales", as_float32("inverse_scales", self.inverse_scales)),
            tensor_inverse_scale=self.tensor_inverse_scale,
            row_block=self.row_block,
            k_block=self.k_block,
        )


def _matrix(argument: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim != 2:
        raise bad(argument, "a matrix", list(x.shape))
    if argument == "codes" and x.dtype != np.uint8:
        raise bad(argument, "codes of one byte", x.dtype)
    return x


def _tensor(fields: dict[str, Any]) -> QuantizedTensor:
    fields["codes"] = coded(fields["codes"], fields["format"], None)
    if fields["e8m0"] is not None:
        fields["e8m0"] = fields["e8m0"].view(DTYPES["e8m0fnu"])
    if fields["ue4m3"] is not None:
        fields["ue4m3"] = fields["ue4m3"].view(DTYPES["e4m3fn"])
    if fields["transposed"] is not None:
        fields["transposed"] = _tensor(fields["transposed"])
    return QuantizedTensor(**fields)


class Quantizer:
    """A recipe applied to one tensor at each step; delayed and windowed scales are updated.

    Not thread-safe: use it from one thread at a time.

    >>> import fp8lab
    >>> quantizer = fp8lab.Quantizer("te-delayed")
    >>> [float(quantizer.quantize([[amax]]).scales[0, 0]) for amax in (7.0, 14.0, 1.0)]
    [1.0, 64.0, 32.0]
    """

    @in_own_mode
    def __init__(self, preset: str | Recipe = "te-current", role: str = "activation") -> None:
        """preset: a name from `presets()`, whose recipe for `role` is used, or a recipe."""
        if isinstance(preset, str):
            preset = Recipe(**_core.find_recipe(preset, text("role", role)))
        elif not isinstance(preset, Recipe):
            raise bad("preset", "a name or an fp8lab.Recipe", type(preset).__name__)
        self.recipe = preset
        self._quantizer = _core.Quantizer(self.recipe._core())

    @in_own_mode
    def observe(self, x: ArrayLike) -> None:
        """Record a tensor without casting it: an earlier step, or a batch for calibration.

        >>> import fp8lab
        >>> static = fp8lab.Quantizer("inference-static")
        >>> static.observe([[0.5, -3.5]])
        >>> float(static.quantize([[1.0, 1.0]]).scales[0, 0])
        128.0
        """
        self._quantizer.observe(as_matrix("x", x))

    @in_own_mode
    def quantize(
        self, x: ArrayLike, *, transpose: bool = False, threads: int = 0
    ) -> QuantizedTensor:
        """Quantize and take one step. See `fp8lab.quantize`."""
        return self._quantize(x, transpose, threads)

    def _quantize(self, x: ArrayLike, transpose: bool, threads: int) -> QuantizedTensor:
        values = as_matrix("x", x)
        fields = self._quantizer.quantize(values, bool(transpose), whole("threads", threads))
        warn(_core.warning_of_quantization(values, fields["format"], fields["codes"]))
        return _tensor(fields)


@in_own_mode
def quantize(
    x: ArrayLike,
    preset: str | Recipe = "te-current",
    role: str = "activation",
    *,
    transpose: bool = False,
    threads: int = 0,
) -> QuantizedTensor:
    """Quantize a tensor once under a recipe.

    x: floats as for `encode`, [rows, k] or more dimensions: the last is k, over which a product
    sums; all others are rows. transpose adds the transposed operand that Hopper needs. A recipe
    with an amax history gives the first step of a new `Quantizer`. ValueError for a size that the
    system refuses, or a static recipe, which needs calibration.

    >>> import fp8lab
    >>> q = fp8lab.quantize([[1.0, -2.0, 3.5]])
    >>> q.codes
    array([[128, -256, 448]], dtype='float8_e4m3fn')
    >>> q.inverse_scales
    array([[0.0078125]], dtype=float32)
    """
    return Quantizer(preset, role)._quantize(x, transpose, threads)
