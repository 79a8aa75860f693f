"""Assertions for tests of kernels."""

from __future__ import annotations

from typing import Unpack

from numpy.typing import ArrayLike

from fp8lab._products import ProductOptions
from fp8lab._recipes import QuantizedTensor
from fp8lab._registry import InstructionModel
from fp8lab._verify import verify

__all__ = ["assert_matches"]


def assert_matches(
    got: ArrayLike,
    inputs: tuple[ArrayLike | QuantizedTensor, ArrayLike | QuantizedTensor],
    *,
    model: str | InstructionModel,
    got_format: str | None = None,
    check: str = "bitwise",
    require_power: bool = True,
    threads: int = 0,
    **options: Unpack[ProductOptions],
) -> None:
    """Fail with the report of `fp8lab.verify` unless the output is right.

    Arguments as for `verify`. Also fails where the check has no power, that is, where it
    would have passed a wrong output too, unless require_power is False.

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
    AssertionError: mismatch: 64 of 64 outputs differ in bits (100 %) ...
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
        raise AssertionError(report.text)
