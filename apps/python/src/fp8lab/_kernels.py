"""The parts of a kernel around its sum: library calls by name, split K, the epilogue."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import bad, number, text, whole
from fp8lab._mode import in_own_mode


@dataclass(frozen=True)
class LibraryCall:
    """The settings with which a known kernel computes a product."""

    name: str
    model: str  #: for E4M3 operands; other FP8 operands have the same accumulator
    promotion_interval: int
    scale_order: str  #: for one scale per operand, or tiles along k
    row_scale_order: str  #: for one scale per row
    scales: str  #: accepted scales
    output: str  #: usual output format
    split_tile: int  #: terms of a tile if it splits k; 0: it does not split k
    splits: tuple[tuple[str, str], ...]  #: known cuts and orders
    epilogue: str
    standing: str  #: "measured", "from literature" or "assumed"
    source: str  #: the source, and what exactly is known


@in_own_mode
def calls() -> dict[str, LibraryCall]:
    """Library calls by name, for `call=`; `fp8lab list calls` is the same table.

    >>> import fp8lab
    >>> fp8lab.calls()["cublaslt.h100.slow"].promotion_interval
    128
    """
    return {c["name"]: LibraryCall(**c) for c in _core.calls()}


@dataclass(frozen=True)
class CallModel:
    """How an observed call makes its output: a candidate that gives all observed outputs."""

    promotion_interval: int
    parts: int  #: of k
    tile: int
    cut: str
    order: str
    scale_order: str
    rounding: str  #: "once", or where a sum is rounded before the output


@dataclass(frozen=True)
class ObservedCall:
    """A call of a library on a chip, and the candidates that give its output."""

    m: int
    n: int
    k: int
    a_format: str
    b_format: str
    output: str
    fast: bool  #: accumulation
    outputs: int  #: how many were compared
    fitting: tuple[CallModel, ...]


@functools.lru_cache(maxsize=16)
def _table(file: str, _changed: tuple[int, int]) -> _core.CallTable:
    return _core.CallTable(Path(file).read_text(encoding="utf-8"), file)


def read_table(file: str) -> _core.CallTable:
    """The table in a file, which is read again where the file has changed."""
    try:
        status = Path(file).stat()
        return _table(file, (status.st_mtime_ns, status.st_size))
    except (OSError, UnicodeDecodeError) as error:
        raise bad("call", "a table of calls that can be read", f"{file}: {error}") from error


@in_own_mode
def observed_calls(file: str | PathLike[str]) -> tuple[ObservedCall, ...]:
    """The calls in a table that `fp8lab-cuda observe` wrote (`cublaslt.csv`).

    `gemm` and `verify` compute as a call in it with `call="cublaslt.csv:fast,output=bf16"` (or
    slow), for a product of the same shape with one scale each for A and B. If more than one
    candidate fits, `,FIELD=VALUE` chooses: no field has a default.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Path(folder.name, "cublaslt.csv")
    >>> fields = {
    ...     "m": 16, "n": 32, "k": 512, "a": "e4m3fn", "b": "e4m3fn", "output": "f32",
    ...     "accumulation": "slow", "outputs": 512, "fitting": 1, "interval": 128, "parts": 2,
    ...     "tile": 128, "cut": "contiguous", "order": "serial", "scale_order": "b_then_fma_a",
    ...     "rounding": "once",
    ... }
    >>> lines = ["# fp8lab cublaslt 2", "# gpu: an example", "# model: sm90.wgmma.e4m3"]
    >>> rows = [",".join(fields), ",".join(str(value) for value in fields.values())]
    >>> _ = table.write_text("\\n".join([*lines, *rows, ""]))
    >>> call = observed_calls(table)[0]
    >>> call.k, call.output, call.fitting[0].parts
    (512, 'f32', 2)
    """
    return tuple(
        ObservedCall(**{**call, "fitting": tuple(CallModel(**model) for model in call["fitting"])})
        for call in read_table(fspath(file)).calls()
    )


@dataclass(frozen=True)
class SplitK:
    """K in parts that are summed separately, then added in FP32.

    cut: "contiguous", or "modulo" (tile t belongs to part t % parts). order: "serial", "pairwise"
    (cuBLASLt's on Ada) or "tree". tile: number of terms; 0 means the promotion interval, or without
    promotion the terms of an instruction, or with `call` the tile of that call.
    """

    parts: int
    tile: int = 0
    cut: str = "contiguous"
    order: str = "serial"


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The operations after the sum s of row i and column j, before the cast to the output's format.

    Each line is one rounding to binary32, nearest even. It is left out if its operand is absent:

        t = s * row_scales[i];  t = t * column_scales[j]
        u = fma(alpha, t, bias[j])
        v = fma(beta, c[i, j], u)
        w = activation(v)
        z = w * output_scale

    The order is that of CUTLASS 3's fusions. activation: "none", "relu", "leaky_relu" (slope),
    "gelu", "gelu_tanh", "silu", or "swiglu": silu(v[i, j]) * v[i, n/2 + j], with half the columns.
    GELU and SiLU are the exact function, rounded once. No two libraries have the same bits there,
    so `verify` allows activation_ulps units in the last place of binary32 (of v for GELU, of w for
    SiLU). With beta, the c of the product enters here, and c_enters does not apply.
    """

    alpha: float = 1.0
    bias: ArrayLike | None = None  #: [n]
    row_scales: ArrayLike | None = None  #: [m]
    column_scales: ArrayLike | None = None  #: [n]
    beta: float | None = None
    activation: str = "none"
    slope: float = 0.01
    activation_ulps: float = 4.0
    #: "amax", in `verify`: the largest finite value of got's format divided by the amax of the output.
    output_scale: float | str | None = None


def core_epilogue(epilogue: Epilogue) -> _core.Epilogue:
    """Its numbers; its vectors are operands of the product."""
    e = epilogue
    by_amax = isinstance(e.output_scale, str)
    if by_amax and e.output_scale != "amax":
        raise bad("output_scale", 'a number or "amax"', repr(e.output_scale))
    return _core.Epilogue(
        alpha=number("alpha", e.alpha),
        beta=None if e.beta is None else number("beta", e.beta),
        activation=text("activation", e.activation),
        slope=number("slope", e.slope),
        activation_ulps=number("activation_ulps", e.activation_ulps),
        output_scale=None if e.output_scale is None or by_amax else number("output_scale", e.output_scale),
        scale_by_amax=by_amax,
    )


def core_split(split: SplitK | None) -> _core.SplitK:
    s = SplitK(1) if split is None else split
    if not isinstance(s, SplitK):
        raise bad("split_k", "an fp8lab.SplitK", type(s).__name__)
    return _core.SplitK(
        parts=whole("parts", s.parts),
        tile=whole("tile", s.tile),
        cut=text("cut", s.cut),
        order=text("order", s.order),
    )


def call_in_table(
    text: str, shape: tuple[int, int, int], formats: tuple[str, str], output: str = ""
) -> tuple[str, int, str, SplitK | None]:
    """Model, promotion interval, scale order and split of a call in a table, `FILE.csv:fast,FIELD=VALUE`."""
    table = read_table(_core.file_of_table_call(text))
    found = table.candidate(text, *shape, *formats, output)
    if found["rounding"] != "once":
        raise bad("call", "a call that rounds once, as products do", f"{text}: {found['rounding']}")
    split = SplitK(found["parts"], found["tile"], found["cut"], found["order"])
    return (
        found["model"], found["promotion_interval"], found["scale_order"],
        split if split.parts > 1 else None,
    )
