"""SageAttention 2 and 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import DTYPES, as_array, as_float32, bad, number, several, text, whole
from fp8lab._attention import AttentionCause, AttentionVerdict
from fp8lab._checks import Comparison
from fp8lab._mode import in_own_mode
from fp8lab._verify import output_of


@dataclass(frozen=True)
class SageKernel:
    """A kernel of SageAttention by name."""

    name: str  #: a call of `sage_attention`
    nvfp4: bool  #: SageAttention 3; else INT8 Q and K, and P and V in E4M3
    q_tile: int
    kv_tile: int
    pv_model: str  #: instruction of P V
    source: str  #: and what is assumed


@dataclass(frozen=True, eq=False)
class SageAttention:
    """O, and its errors against FP64."""

    o: NDArray[np.float32]  #: [heads, m, d_v], or [m, d_v] if q has two dimensions; before its cast
    against_inputs: Comparison  #: error against FP64 on q, k and v as given


@in_own_mode
def sage_calls() -> dict[str, SageKernel]:
    """SageAttention's kernels by name.

    >>> import fp8lab
    >>> fp8lab.sage_calls()["sageattention2.sm90"].kv_tile
    128
    """
    return {row[0]: SageKernel(*row) for row in _core.sage_calls()}


def _heads(argument: str, x: ArrayLike) -> tuple[NDArray[np.float32], int, np.dtype[Any]]:
    """Floats of three dimensions, how many there were, and their type."""
    array = as_array(argument, x)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise bad(argument, "[heads, rows, columns] or [rows, columns]", list(array.shape))
    values = np.ascontiguousarray(as_float32(argument, array))
    return values.reshape(values.shape[-3:] if array.ndim == 3 else (1, *values.shape)), array.ndim, array.dtype


def _options(input_format: str, softmax_scale: float | None, causal: bool, smooth: bool,
             granularity: str, threads: int) -> Any:  # fmt: skip
    scale = 0.0 if softmax_scale is None else number("softmax_scale", softmax_scale)
    if softmax_scale is not None and np.float32(scale) == 0:
        raise bad("softmax_scale", "a number above 0, or None for 1 / sqrt(d)", softmax_scale)
    return _core.SageOptions(
        input=text("input_format", input_format),
        softmax_scale=scale,
        causal=bool(causal),
        smooth=bool(smooth),
        granularity=text("granularity", granularity),
        threads=whole("threads", threads),
    )


def _input_format(stated: str | None, dtype: np.dtype[Any]) -> str:
    if stated is not None:
        return stated
    return "f16" if dtype == np.float16 else "bf16"


@in_own_mode
def sage_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    call: str = "sageattention2.sm90",
    input_format: str | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    smooth: bool = True,
    granularity: str = "per_thread",
    threads: int = 0,
) -> SageAttention:
    """softmax(softmax_scale Q K^T) V as SageAttention 2 or 3 computes it from floats.

    q [heads, m, d], k [kv_heads, n, d], v [kv_heads, n, d_v], or all of two dimensions; q's head h
    reads k's and v's head h / (heads / kv_heads). They are rounded to input_format first: "bf16" or
    "f16"; None is "f16" for float16, else "bf16".

    call: a kernel by name (`sage_calls`). The INT8 kernels remove k's mean over its rows (smooth),
    quantize q and k with scales of the rows of a thread or of a warp (granularity: "per_thread" or
    "per_warp"), v to E4M3 with a scale for each channel, and P to E4M3 times 2^8.807. NVFP4
    ("sageattention3", d of 64 or 128): q, k, v and P are E2M1 with UE4M3 scales of 16 elements.
    softmax_scale: above 0; None is 1 / sqrt(d). causal: row i sees columns j <= i; needs m = n.

    The rules are read in the source; exp2, 1 / row sum and the order of means are *assumed*, so a
    kernel's bits may differ. A channel of v that is all 0 becomes NaN, as in the INT8 kernels.
    ValueError for arguments that do not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, rows, 64), np.float32) for rows in (32, 256, 256))
    >>> 0.01 < fp8lab.sage_attention(q, k, v).against_inputs.relative_l2 < 0.1
    True
    """
    (left, dimensions, dtype), (keys, *_), (values, *_) = _heads("q", q), _heads("k", k), _heads("v", v)
    options = _options(
        _input_format(input_format, dtype), softmax_scale, causal, smooth, granularity, threads
    )
    o, errors = _core.sage_attention(left, keys, values, text("call", call), options)
    return SageAttention(o if dimensions == 3 else o[0], Comparison(**errors))


@in_own_mode
def verify_sage_attention(
    got: ArrayLike,
    inputs: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    call: str = "sageattention2.sm90",
    got_format: str | None = None,
    tolerance: float = 0.0,
    input_format: str | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    smooth: bool = True,
    granularity: str = "per_thread",
    threads: int = 0,
) -> AttentionVerdict:
    """Check a kernel's O against `sage_attention(*inputs, ...)`, and name the mistake made.

    Arguments as for `verify_attention` and `sage_attention`. Known mistakes are means that are not
    removed or not added, scales of another group, block or channel, other roundings of INT8, P
    without its factor, sums over tiles in the unit, the row sum after the cast, other options and
    kernels. ValueError for arguments that do not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((1, 128, 64), np.float32) for _ in range(3))
    >>> o = fp8lab.sage_attention(q, k + 1, v, smooth=False).o
    >>> [cause.name for cause in fp8lab.verify_sage_attention(o, (q, k + 1, v)).causes]
    ['k_mean_not_removed']
    """
    q, k, v = several("inputs", "q, k, v", inputs)
    (left, dimensions, dtype), (keys, *_), (values, *_) = _heads("q", q), _heads("k", k), _heads("v", v)
    words, name = output_of(got, got_format, None)
    if words.ndim != dimensions:
        raise bad("got", f"{dimensions} dimensions, as q has", list(words.shape))
    outputs = as_float32("got", words.view(DTYPES.get(name, np.dtype(np.float32))))
    options = _options(
        _input_format(input_format, dtype), softmax_scale, causal, smooth, granularity, threads
    )
    fields: dict[str, Any] = _core.verify_sage_attention(
        left,
        keys,
        values,
        text("call", call),
        options,
        outputs.reshape(outputs.shape if dimensions == 3 else (1, *outputs.shape)),
        name,
        number("tolerance", tolerance),
    )
    fields["causes"] = tuple(AttentionCause(**cause) for cause in fields["causes"])
    return AttentionVerdict(**fields)
