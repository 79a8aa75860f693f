"""Assertions for tests of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

from numpy.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import bad, natural, number, several, text, whole
from fp8lab._attention import (
    AttentionOptions,
    AttentionSettings,
    options_of,
    verify_attention,
)
from fp8lab._mode import in_own_mode
from fp8lab._options import ProductOptions, with_arguments_of
from fp8lab._products import gemm
from fp8lab._recipes import QuantizedTensor
from fp8lab._registry import InstructionModel
from fp8lab._verify import verify

__all__ = [
    "AttentionTolerance",
    "Tolerance",
    "WrongOutput",
    "assert_attention_matches",
    "assert_matches",
    "attention_tolerance",
    "tolerance",
]


class WrongOutput(AssertionError):
    """What the assertions raise: its text is the report."""

    def __init__(self, report: str) -> None:
        super().__init__(report)


@in_own_mode
@with_arguments_of(gemm, ProductOptions, before="threads")
def assert_matches(
    got: ArrayLike,
    inputs: tuple[ArrayLike | QuantizedTensor, ArrayLike | QuantizedTensor],
    *,
    model: str | InstructionModel | None = None,
    got_format: str | None = None,
    check: str = "bitwise",
    require_power: bool = True,
    threads: int = 0,
    **options: Unpack[ProductOptions],
) -> None:
    """Fail with the report of `fp8lab.verify` unless the output is right.

    Arguments as for `verify`. Also fails if the check has no power, that is, if it would have
    passed a wrong output too, unless require_power is False.

    >>> import fp8lab, numpy as np
    >>> from fp8lab.testing import assert_matches
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((8, 256), np.float32))
    >>> b = fp8lab.encode(rng.standard_normal((8, 256), np.float32))
    >>> d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    >>> assert_matches(d, (a, b), model="sm90.wgmma.e4m3")
    >>> assert_matches(d * 0, (a, b), model="sm90.wgmma.e4m3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fp8lab.testing.WrongOutput: mismatch: 64 of 64 outputs differ in bits (100 %)...
    """
    __tracebackhide__ = True  # pytest shows the test's line and the report, not this frame
    report = verify(
        got,
        inputs,
        model=model,
        got_format=got_format,
        check=check,
        threads=threads,
        **options,
    )
    if report.verdict == "mismatch" or (require_power and report.verdict != "pass"):
        raise WrongOutput(report.text)


@in_own_mode
def assert_attention_matches(
    got: ArrayLike,
    inputs: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    got_format: str | None = None,
    tolerance: float = 0.0,
    **options: Unpack[AttentionOptions],
) -> None:
    """Fail with the report of `fp8lab.verify_attention` unless a kernel's O is right.

    Arguments as for `verify_attention`; the failure names the known mistake that explains it.

    >>> import fp8lab, numpy as np
    >>> from fp8lab.testing import assert_attention_matches
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((2, 64, 32), np.float32) for _ in range(3))
    >>> o = fp8lab.attention(q, k, v, causal=True, kv_tile=32).o
    >>> assert_attention_matches(o, (q, k, v), causal=True, kv_tile=32)
    >>> assert_attention_matches(o, (q, k, v), kv_tile=32)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fp8lab.testing.WrongOutput: mismatch: ... of 4096 outputs differ in bits ...
    """
    __tracebackhide__ = True
    verdict = verify_attention(
        got, inputs, got_format=got_format, tolerance=tolerance, **options
    )
    if verdict.verdict != "pass":
        raise WrongOutput(verdict.text)


@dataclass(frozen=True)
class Tolerance:
    """A gate that right kernels pass, to paste into a test; `str(tolerance)` is the report.

    `torch.testing.assert_close(d, reference, rtol=t.rtol, atol=t.atol)`; or 1 - 2 x.y / (x.x + y.y)
    below calc_diff; or the cosine above cosine; or at most max_ulp steps of the output's format,
    which is None where no such bound would catch a fault.
    """

    rtol: float
    atol: float
    calc_diff: float
    cosine: float
    max_ulp: int | None
    metrics: dict[str, tuple[float, float, float]]  #: median, largest, and at the risk
    missed: tuple[str, ...]  #: faults that rtol and atol do not detect, smallest first
    caught: tuple[str, ...]  #: faults that rtol and atol detect in every trial, smallest first
    text: str

    def __str__(self) -> str:
        return self.text


@in_own_mode
def tolerance(
    shape: tuple[int, int, int],
    *,
    call: str | None = None,
    model: str = "sm90.wgmma.e4m3",
    promotion_interval: int = 0,
    scale_order: str = "product_then_fma",
    recipe: str | None = None,
    out_format: str | None = None,
    distribution: str = "normal",
    reference: Literal["fp64", "fp32", "bf16"] = "fp32",
    against_originals: bool = False,
    trials: int = 40,
    seed: int = 1,
    risk: float = 1e-6,
    threads: int = 0,
) -> Tolerance:
    """The gate that passes right kernels with probability 1 - risk.

    shape: m, n, k. call: a library call by name (`fp8lab.calls`), in place of model,
    promotion_interval and scale_order. recipe: the preset that quantizes A (activation) and B
    (weight); None casts values as they are. distribution: "normal", "uniform", "student_t" (4
    degrees of freedom) or "log_normal". reference: the product that the test compares with, of the
    dequantized operands or, with against_originals, of the floats before quantization. out_format:
    the output format of the kernel; None is that of the call, or f32.

    Right outputs are computed in `trials` draws of at most 128 x 128 outputs. The quantile is an
    extrapolation: `docs/expect.md` lists its assumptions about the distribution of errors.
    ValueError for unknown names and for numbers out of range.

    >>> from fp8lab.testing import tolerance
    >>> t = tolerance((64, 64, 512), call="deepgemm.h100", recipe="deepgemm", trials=10)
    >>> 0 < t.atol < 1 and 0 < t.calc_diff < 1e-4
    True
    """
    if reference not in ("fp64", "fp32", "bf16"):
        raise bad("reference", "fp64, fp32 or bf16", repr(reference))
    m, n, k = several("shape", "m, n, k", shape)
    fields = _core.expect(
        m=whole("m", m),
        n=whole("n", n),
        k=whole("k", k),
        call="" if call is None else text("call", call),
        model=text("model", model),
        promotion_interval=whole("promotion_interval", promotion_interval),
        scale_order=text("scale_order", scale_order),
        recipe="" if recipe is None else text("recipe", recipe),
        output=None if out_format is None else text("out_format", out_format),
        distribution=text("distribution", distribution),
        against_originals=bool(against_originals),
        trials=whole("trials", trials),
        seed=natural("seed", seed),
        risk=number("risk", risk),
        threads=whole("threads", threads),
    )
    gate = fields[reference]
    faults = gate.pop("faults")
    return Tolerance(
        **gate,
        missed=tuple(name for name, size, close, *_ in faults if not close and size > 0),
        caught=tuple(name for name, size, close, *_ in faults if close),
        text=fields["text"],
    )


@dataclass(frozen=True)
class AttentionTolerance:
    """Limits that right kernels of attention pass; `str(tolerance)` is the report.

    Of outputs from attention in FP64 on the values of the codes, cast to the output's format.
    """

    relative_l2: float
    calc_diff: float
    cosine: float  #: a lower limit
    max_absolute: float
    #: relative L2, the median from FP64 on the codes and on the floats, and of the latter 5 % and 95 %
    by_spread: dict[str, tuple[float, float, float, float]]
    by_length: dict[str, tuple[float, float, float, float]]  #: the same for rows of K and V
    by_cache: dict[str, tuple[float, float, float, float]]  #: the same for each cache of K and V
    passes: dict[str, bool]  #: whether each gate passes right outputs
    missed: dict[str, tuple[str, ...]]  #: faults that each gate does not detect, smallest first
    text: str

    def __str__(self) -> str:
        return self.text


@in_own_mode
def attention_tolerance(
    shape: tuple[int, ...],
    *,
    spread: float = 1.0,
    kv_cache: str = "e4m3.head",
    out_format: str = "bf16",
    trials: int = 12,
    seed: int = 1,
    risk: float = 1e-6,
    **options: Unpack[AttentionSettings],
) -> AttentionTolerance:
    """The limits that right kernels of FP8 attention pass with probability 1 - risk.

    shape: heads, kv_heads, m, n, d, and d_v if it is not d. spread: the standard deviation of the
    logits. kv_cache: how K and V are stored (`fp8lab.kv_caches`). options: as for
    `fp8lab.attention`. ValueError for arguments that do not fit.

    >>> from fp8lab.testing import attention_tolerance
    >>> t = attention_tolerance((2, 1, 8, 256, 32))
    >>> 0.01 < t.relative_l2 < 0.2, "negated" in t.missed["relative_l2"]
    (True, False)
    """
    sides = [whole("shape", side) for side in shape]
    if len(sides) not in (5, 6):
        raise bad("shape", "heads, kv_heads, m, n, d and perhaps d_v", list(shape))
    fields = _core.expect_attention(
        shape=sides if len(sides) == 6 else [*sides, sides[-1]],
        options=options_of(options),
        spread=number("spread", spread),
        kv_cache=text("kv_cache", kv_cache),
        output=text("out_format", out_format),
        trials=whole("trials", trials),
        seed=natural("seed", seed),
        risk=number("risk", risk),
    )
    return AttentionTolerance(**fields)
