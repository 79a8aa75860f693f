"""FP8 attention forward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import (
    DTYPES,
    as_array,
    as_float32,
    bad,
    codes_of,
    number,
    several,
    text,
    whole,
)
from fp8lab._checks import Comparison
from fp8lab._mode import in_own_mode
from fp8lab._scales import plain_values
from fp8lab._verify import output_of


@dataclass(frozen=True)
class AttentionTile:
    """What happened to P in the columns [begin, end), over all heads and rows."""

    begin: int
    end: int
    elements: int  #: elements of P that are not hidden
    saturated: int  #: above the largest finite code after rounding: lost weight
    underflowed: int  #: above 0, but 0 after the cast
    rescaled_rows: int  #: rows whose maximum grew and was updated
    stale_rows: int  #: rows whose maximum grew and was kept
    p_max: float  #: largest p before the cast


@dataclass(frozen=True, eq=False)
class Attention:
    """O, its errors against FP64, and what happened to P."""

    o: NDArray[np.float32]  #: [heads, m, d_v], or [m, d_v] if Q has two dimensions
    tiles: tuple[AttentionTile, ...]  #: by column
    total: AttentionTile
    against_codes: Comparison  #: error of the arithmetic: FP64 on the values of the codes
    against_inputs: Comparison  #: total error: FP64 on Q, K and V as given


def _tensor(
    argument: str, x: ArrayLike, stated: str | None, scales: ArrayLike | None, cache: str | None = None
) -> tuple[_core.AttentionTensor, int]:
    """One of Q, K and V for the library, and its number of dimensions."""
    array = as_array(argument, x)
    if array.ndim not in (2, 3):
        raise bad(argument, "[heads, rows, columns] or [rows, columns]", list(array.shape))
    ndim = array.ndim
    shape = array.shape if ndim == 3 else (1, *array.shape)
    if array.dtype.itemsize > 1 and cache is not None:
        calibrated = None if scales is None else plain_values(f"{argument}_scales", scales).reshape(-1)
        values = as_float32(argument, array).reshape(shape)
        return _core.AttentionTensor.of_cache(values, text("kv_cache", cache), calibrated), ndim
    if cache is not None:
        raise bad(argument, "floats, which the KV cache quantizes", array.dtype)
    if array.dtype.itemsize > 1:
        if scales is not None:
            raise bad(argument, "codes, since their scales are given", array.dtype)
        if stated is not None and array.dtype.kind in "iu":
            raise bad(argument, "FP8 codes of one byte, since codes_format is given", array.dtype)
        return _core.AttentionTensor.of_values(as_float32(argument, array).reshape(shape)), ndim
    words, name = codes_of(argument, array, stated, "codes_format")
    words = np.ascontiguousarray(words).reshape(*shape[:-1], -1)
    keyword = f"{argument}_scales"
    flat = None
    if scales is not None:
        flat = plain_values(keyword, scales).reshape(-1)
    return _core.AttentionTensor.of_codes(words, name, f"{argument}_scales", flat), ndim


@dataclass(frozen=True)
class AttentionCall:
    """The settings of a known attention kernel."""

    name: str
    operands: str  #: format of Q, K and V
    options: dict[str, Any]  #: keywords of `attention` and `verify_attention`
    standing: str  #: "measured", "from literature" or "assumed"
    source: str  #: the source, and what is not known
    #: (largest head size, q_tile, kv_tile) if tiles depend on head size; `options` has those of 128
    tiles: tuple[tuple[int, int, int], ...] = ()

    def options_for(self, d: int) -> dict[str, Any]:
        """`options` with the tiles of heads of d elements."""
        if not self.tiles:
            return dict(self.options)
        _, q_tile, kv_tile = next((one for one in self.tiles if d <= one[0]), self.tiles[-1])
        return self.options | {"q_tile": q_tile, "kv_tile": kv_tile}


@in_own_mode
def attention_calls() -> dict[str, AttentionCall]:
    """Attention kernels by name: `attention(q, k, v, **attention_calls()[name].options_for(d))`.

    >>> import fp8lab
    >>> fp8lab.attention_calls()["triton.tutorial.fp8"].options["tile_order"]
    'first_to_last'
    """
    return {c["name"]: AttentionCall(**c) for c in _core.attention_calls()}


@dataclass(frozen=True)
class KvCache:
    """How a cache of K and V holds floats."""

    name: str  #: a kv_cache of `attention`
    format: str  #: of the codes that the kernel reads
    source: str


@in_own_mode
def kv_caches() -> dict[str, KvCache]:
    """Caches of K and V by name.

    >>> import fp8lab
    >>> fp8lab.kv_caches()["e5m2.tensor"].format
    'e5m2'
    """
    return {name: KvCache(name, form, source) for name, form, source in _core.kv_caches()}


@in_own_mode
def pack_kv_rows(x: ArrayLike) -> NDArray[np.uint8]:
    """x [rows, 576] as rows of DeepSeek-V3.2's latent cache, [rows, 656] bytes.

    512 elements as E4M3, 4 binary32 inverse scales of 128 of them each (powers of two), 64 elements
    as BF16. ValueError for other shapes, NaN and infinities.

    >>> import fp8lab, numpy as np
    >>> rows = fp8lab.pack_kv_rows(np.ones((2, 576), np.float32))
    >>> rows.shape, bool((fp8lab.read_kv_rows(rows) == 1).all())
    ((2, 656), True)
    """
    array = as_array("x", x)
    if array.ndim != 2 or array.shape[1] != 576 or array.shape[0] == 0:
        raise bad("x", "[rows, 576]", list(array.shape))
    return cast("NDArray[np.uint8]", _core.pack_kv_rows(as_float32("x", array)))


@in_own_mode
def read_kv_rows(rows: ArrayLike) -> NDArray[np.float32]:
    """The values [rows, 576] of rows of DeepSeek-V3.2's latent cache, uint8 [rows, 656].

    Codes times inverse scales are rounded to BF16. ValueError for other shapes and types.

    >>> import fp8lab, numpy as np
    >>> fp8lab.read_kv_rows(np.zeros((1, 656), np.uint8)).shape
    (1, 576)
    """
    array = as_array("rows", rows)
    if array.ndim != 2 or array.shape[1] != 656 or array.shape[0] == 0:
        raise bad("rows", "[rows, 656]", list(array.shape))
    if array.dtype != np.uint8:
        raise bad("rows", "uint8", array.dtype)
    return cast("NDArray[np.float32]", _core.read_kv_rows(np.ascontiguousarray(array)))


class AttentionSettings(TypedDict, total=False):
    """Keywords of `attention` that are not of its tensors; `attention` documents them."""

    qk_model: str
    pv_model: str
    q_tile: int
    kv_tile: int
    softmax_scale: float | None
    p_offset: float
    rescale_threshold: float
    causal: bool
    two_level: bool
    threads: int
    tile_order: str
    p_format: str
    window_left: int
    window_right: int
    row_sum: str
    soft_cap: float
    sinks: ArrayLike | None
    splits: int


class AttentionOptions(AttentionSettings, total=False):
    """Keywords that `attention` and `verify_attention` share; `attention` documents them."""

    q_scales: ArrayLike | None
    k_scales: ArrayLike | None
    v_scales: ArrayLike | None
    codes_format: str | None
    kv_cache: str | None


_NO_WINDOW = -1
_KINDS: dict[type, Any] = {
    bool: lambda _, value: bool(value),
    int: whole,
    float: number,
    str: text,
}


def options_of(given: AttentionSettings) -> _core.AttentionOptions:
    """The library's options; what is not one of them is refused."""
    settings: dict[str, Any] = {
        "qk_model": "sm90.wgmma.e4m3",
        "pv_model": "sm90.wgmma.e4m3",
        "q_tile": 128,
        "kv_tile": 128,
        "softmax_scale": 0.0,
        "p_offset": 8.0,
        "rescale_threshold": 0.0,
        "causal": False,
        "two_level": False,
        "threads": 0,
        "tile_order": "last_to_first",
        "p_format": "e4m3fn",
        "window_left": _NO_WINDOW,
        "window_right": _NO_WINDOW,
        "row_sum": "columns",
        "soft_cap": 0.0,
        "splits": 1,
    }
    sinks = given.pop("sinks", None)
    unknown = set(given) - set(settings)
    if unknown:
        raise TypeError(f"unexpected keyword argument '{sorted(unknown)[0]}'")
    for key, value in given.items():
        if value is not None:
            settings[key] = _KINDS[type(settings[key])](key, value)
    if given.get("softmax_scale") is not None and np.float32(settings["softmax_scale"]) == 0:
        raise bad("softmax_scale", "a number above 0, or None for 1 / sqrt(d)", given["softmax_scale"])
    if sinks is not None:
        settings["sinks"] = as_float32("sinks", as_array("sinks", sinks)).reshape(-1).tolist()
    return _core.AttentionOptions(**settings)


def _inputs(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, given: AttentionOptions
) -> tuple[tuple[Any, Any, Any], Any, int]:
    """Q, K and V for the library, its options, and the dimensions of Q."""
    codes_format = given.pop("codes_format", None)
    left, dimensions = _tensor("q", q, codes_format, given.pop("q_scales", None))
    cache = given.pop("kv_cache", None)
    keys, _ = _tensor("k", k, codes_format, given.pop("k_scales", None), cache)
    values, _ = _tensor("v", v, codes_format, given.pop("v_scales", None), cache)
    return (left, keys, values), options_of(given), dimensions


@in_own_mode
def attention(q: ArrayLike, k: ArrayLike, v: ArrayLike, **options: Unpack[AttentionOptions]) -> Attention:
    """softmax(softmax_scale Q K^T) V as FlashAttention's FP8 kernels compute it, and its errors.

    q [heads, m, d], k [kv_heads, n, d], v [kv_heads, n, d_v], or all of two dimensions; q's head h
    reads k's and v's head h / (heads / kv_heads). Floats are quantized to E4M3, each head with its
    own amax. FP8 codes (uint8 with codes_format) are read in place if they are C-contiguous, with
    q_scales, k_scales and v_scales as inverse scales: one value, or one per head. kv_cache: how
    floats of k and v are stored (`kv_caches`); k_scales and v_scales are then calibrated scales,
    under which larger values saturate.

    qk_model, pv_model: instructions of Q K^T and P V ("sm90.wgmma.e4m3"). q_tile, kv_tile: rows and
    columns of a tile (128). tile_order: "last_to_first", as in FlashAttention-3, or
    "first_to_last", as in Triton's tutorial; bits depend on it. p_format: "e4m3fn" or "e5m2".
    p_offset: P is scaled by two to this before its cast (8). rescale_threshold: log2 of the factor
    by which the running maximum may be stale; 0: never stale. softmax_scale: above 0; None is 1 / sqrt(d).
    causal: row i attends to columns j <= i + n - m. window_left, window_right: row i attends to
    columns from i + n - m - window_left to i + n - m + window_right; -1 is all. two_level: each
    tile's P V is added to O in FP32. row_sum: "columns", each p in turn, or "quads", in the order
    of the four threads of a row in FlashAttention-3. soft_cap: scores s become soft_cap
    tanh(s / soft_cap); 0: as they are. sinks: of each head of q, a score without a value in the row
    sum. splits: parts of the tiles of k and v, merged by their log-sum-exp in order. *Assumed*: exp2 and 1 / row_sum, so a kernel's
    bits may differ. ValueError for arguments that do not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, rows, 64), np.float32) for rows in (32, 256, 256))
    >>> result = fp8lab.attention(q, k, v)
    >>> result.o.shape, result.total.saturated
    ((2, 32, 64), 0)
    >>> 0.01 < result.against_inputs.relative_l2 < 0.1
    True
    """
    tensors, settings, dimensions = _inputs(q, k, v, options)
    fields: dict[str, Any] = _core.attention(*tensors, settings)
    if dimensions == 2:
        fields["o"] = fields["o"][0]
    fields["tiles"] = tuple(AttentionTile(**tile) for tile in fields["tiles"])
    fields["total"] = AttentionTile(**fields["total"])
    for name in ("against_codes", "against_inputs"):
        fields[name] = Comparison(**fields[name])
    return Attention(**fields)


@dataclass(frozen=True)
class AttentionCause:
    """A mistake that explains an output of attention."""

    name: str
    text: str
    mismatches: int  #: outputs whose bits this mistake does not give
    distance: float  #: relative L2 distance between its output and the one checked


@dataclass(frozen=True)
class AttentionVerdict:
    """The verdict on an output of attention. `str(verdict)` is a readable report."""

    verdict: str  #: "pass" or "mismatch"
    outputs: int
    bit_mismatches: int
    distance: float  #: relative L2 distance from the golden output
    where: str  #: heads, rows and columns with wrong outputs; "": all
    measured: tuple[str, ...]  #: what the kernel did, in FP64, where no mistake explains it
    causes: tuple[AttentionCause, ...]  #: best first; empty if no mistake explains it
    text: str
    #: acceptance rules of public projects, and whether they would pass this; empty without `gates`
    gates: dict[str, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@in_own_mode
def verify_attention(
    got: ArrayLike,
    inputs: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    got_format: str | None = None,
    tolerance: float = 0.0,
    gates: bool = False,
    **options: Unpack[AttentionOptions],
) -> AttentionVerdict:
    """Check a kernel's O against `attention(*inputs, **options)`, and name the mistake made.

    got [heads, m, d_v] (or two dimensions, like Q): float32, bfloat16, float16 or FP8, to which the
    golden O is cast. tolerance: the largest relative L2 distance that passes, of which a single row
    may be 8 times as far, or 1/16; 0 requires every bit. Kernels on chips need a tolerance, since
    their exp2 and their order of row sums are not known. NaN and infinities are described first.
    Then outputs in other places, known mistakes of kernels, and what the output itself measures are
    tried: scales and heads, the mask, tiles, the softmax, P, the order of V's rows. A cause gives
    every bit, or most of them, or stays within the tolerance. gates: also say which acceptance rules
    of public projects would pass this output, against attention in FP64 on the values of the codes.
    ValueError for arguments that do not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, 256, 64), np.float32) for _ in range(3))
    >>> o = fp8lab.attention(q, k, v, tile_order="first_to_last").o
    >>> fp8lab.verify_attention(o, (q, k, v), tile_order="first_to_last").verdict
    'pass'
    >>> [cause.name for cause in fp8lab.verify_attention(o, (q, k, v)).causes]
    ['tile_order']
    """
    q, k, v = several("inputs", "q, k, v", inputs)
    tensors, settings, dimensions = _inputs(q, k, v, options)
    words, name = output_of(got, got_format, None)
    if words.ndim != dimensions:
        raise bad("got", f"{dimensions} dimensions, as q has", list(words.shape))
    values = as_float32("got", words.view(DTYPES.get(name, np.dtype(np.float32))))
    fields: dict[str, Any] = _core.verify_attention(
        *tensors,
        settings,
        values.reshape(values.shape if dimensions == 3 else (1, *values.shape)),
        name,
        number("tolerance", tolerance),
        bool(gates),
    )
    fields["causes"] = tuple(AttentionCause(**cause) for cause in fields["causes"])
    return AttentionVerdict(**fields)
