"""FP8 attention forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import as_array, as_float32, bad, codes_of
from fp8lab._checks import Comparison


@dataclass(frozen=True)
class AttentionTile:
    """What happened to P in the columns [begin, end), over all heads and rows."""

    begin: int
    end: int
    elements: int  #: of P that are not hidden
    saturated: int  #: above the largest finite code after rounding: lost weight
    underflowed: int  #: above 0, but 0 after the cast
    rescaled_rows: int  #: whose maximum grew and was followed
    stale_rows: int  #: whose maximum grew and was kept
    p_max: float  #: largest p before the cast


@dataclass(frozen=True, eq=False)
class Attention:
    """O, how far it is from FP64, and what became of P."""

    o: NDArray[np.float32]  #: [heads, m, d_v], or [m, d_v] for a Q of two dimensions
    tiles: tuple[AttentionTile, ...]  #: by column
    total: AttentionTile
    against_codes: Comparison  #: the arithmetic: FP64 on the values of the codes
    against_inputs: Comparison  #: all of it: FP64 on Q, K and V as given


def _tensor(
    argument: str, x: ArrayLike, stated: str | None, scales: ArrayLike | None
) -> tuple[_core.AttentionTensor, int]:
    """One of Q, K and V for the library, and its number of dimensions."""
    array = as_array(argument, x)
    if array.ndim not in (2, 3):
        raise bad(argument, "[heads, rows, columns] or [rows, columns]", list(array.shape))
    ndim = array.ndim
    shape = array.shape if ndim == 3 else (1, *array.shape)
    if array.dtype.itemsize > 1:
        if scales is not None:
            raise bad(argument, "codes, since scales of them are given", array.dtype)
        return _core.AttentionTensor.of_values(as_float32(argument, array).reshape(shape)), ndim
    words, name = codes_of(argument, array, stated)
    words = np.ascontiguousarray(words).reshape(shape)
    flat = None if scales is None else as_float32(f"{argument}_scales", scales).reshape(-1)
    return _core.AttentionTensor.of_codes(words, name, f"{argument}_scales", flat), ndim


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    q_scales: ArrayLike | None = None,
    k_scales: ArrayLike | None = None,
    v_scales: ArrayLike | None = None,
    codes_format: str | None = None,
    qk_model: str = "sm90.wgmma.e4m3",
    pv_model: str = "sm90.wgmma.e4m3",
    q_tile: int = 128,
    kv_tile: int = 128,
    softmax_scale: float | None = None,
    p_offset: float = 8.0,
    rescale_threshold: float = 0.0,
    causal: bool = False,
    two_level: bool = False,
    threads: int = 0,
) -> Attention:
    """softmax(softmax_scale Q K^T) V as FlashAttention's FP8 kernels compute it, against FP64.

    q [heads, m, d], k [kv_heads, n, d], v [kv_heads, n, d_v], or all of two dimensions; q's
    head h reads k's and v's head h / (heads / kv_heads). Floats are quantized to E4M3, each
    head by its amax; FP8 codes (uint8 with codes_format) are read in place where they are
    C-contiguous, with q_scales, k_scales and v_scales as inverse scales: one, or one a head.

    qk_model, pv_model: instructions of Q K^T and P V; P is E4M3. p_offset: P is scaled by two
    to this before its cast. rescale_threshold: log2 by which the running maximum may be stale,
    0 is never. softmax_scale: None is 1 / sqrt(d). causal: row i sees columns j <= i + n - m.
    two_level: each tile's P V is added to O in FP32. *Assumed*: the order of the row sum and
    exp2, so a kernel's bits may differ. ValueError for what does not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, rows, 64), np.float32) for rows in (32, 256, 256))
    >>> result = fp8lab.attention(q, k, v)
    >>> result.o.shape, result.total.saturated
    ((2, 32, 64), 0)
    >>> 0.01 < result.against_inputs.relative_l2 < 0.1
    True
    """
    left, dimensions = _tensor("q", q, codes_format, q_scales)
    keys, _ = _tensor("k", k, codes_format, k_scales)
    values, _ = _tensor("v", v, codes_format, v_scales)
    options = _core.AttentionOptions(
        qk_model=qk_model,
        pv_model=pv_model,
        q_tile=q_tile,
        kv_tile=kv_tile,
        softmax_scale=0.0 if softmax_scale is None else softmax_scale,
        p_offset=p_offset,
        rescale_threshold=rescale_threshold,
        causal=causal,
        two_level=two_level,
        threads=threads,
    )
    fields: dict[str, Any] = _core.attention(left, keys, values, options)
    if dimensions == 2:
        fields["o"] = fields["o"][0]
    fields["tiles"] = tuple(AttentionTile(**tile) for tile in fields["tiles"])
    fields["total"] = AttentionTile(**fields["total"])
    for name in ("against_codes", "against_inputs"):
        fields[name] = Comparison(**fields[name])
    return Attention(**fields)
