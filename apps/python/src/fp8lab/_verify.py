"""Decides whether an output is right and what is wrong, and whether the test could have failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fp8lab import _core
from fp8lab._arrays import as_array, bad, codes_of, dense_tensor, format_name, several, text, whole
from fp8lab._checks import Comparison
from fp8lab._mode import in_own_mode
from fp8lab._options import ProductOptions, with_arguments_of
from fp8lab._products import gemm, make_product
from fp8lab._recipes import QuantizedTensor
from fp8lab._registry import InstructionModel
from fp8lab._warnings import warn


@dataclass(frozen=True)
class Cause:
    """A known mistake that explains an output."""

    name: str
    text: str
    explained: int  #: mismatches of the sample whose code this mistake gives exactly
    contradicted: int  #: right elements of the sample that this mistake would make wrong
    in_fp64: bool = False  #: no instruction computes it: `explained` counts values within the error of the right output
    undecided: int = 0  #: mismatches that agree with the mistake and with the right output, within that error


@dataclass(frozen=True)
class VerifyReport:
    """The verdict on an output. `str(report)` is a readable report."""

    verdict: str  #: "pass", "mismatch", or "no power": it passed, but so would a wrong output
    bit_mismatches: int
    comparison: Comparison
    causes: tuple[Cause, ...]  #: best first; empty if no known mistake explains it
    undetected: tuple[str, ...]  #: faults that the check would not detect
    gates: dict[str, bool]  #: acceptance rules of public projects, and whether they would pass this
    non_finite: dict[str, tuple[int, int]]  #: (NaN, infinities) of each operand and output
    faults: str  #: every fault against the checks that were tried, as a table
    text: str  #: verdict, where and why, in at most 25 lines
    details: str = ""  #: the whole report: also distances, elements, models, budgets, gates
    measured: tuple[str, ...] = ()  #: what was measured, where no known mistake explains the output

    def __str__(self) -> str:
        return self.text


_OUTPUTS = ("f32", "f16", "bf16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")


def output_of(got: Any, stated: str | None, dimensions: int | None) -> tuple[NDArray[Any], str]:
    """Words and format of an output of so many dimensions; None: any number."""
    array = as_array("got", got)
    if dimensions is not None and array.ndim != dimensions:
        raise bad("got", "a matrix [m, n]", list(array.shape))
    if array.dtype == np.float32:
        if stated is not None and format_name("got_format", stated) != "f32":
            raise bad("got_format", "f32, as the dtype of got says", stated)
        return array.view(np.uint32), "f32"
    words, name = codes_of("got", array, stated)
    if name not in _OUTPUTS:
        raise bad("got" if stated is None else "got_format", f"an output of {', '.join(_OUTPUTS)}", name)
    return words, name


@in_own_mode
@with_arguments_of(gemm, ProductOptions, before="threads")
def verify(
    got: ArrayLike,
    inputs: tuple[ArrayLike | QuantizedTensor, ArrayLike | QuantizedTensor],
    *,
    model: str | InstructionModel | None = None,
    got_format: str | None = None,
    check: str = "bitwise",
    fault_matrix: bool = False,
    threads: int = 0,
    **options: Unpack[ProductOptions],
) -> VerifyReport:
    """Check the output of a kernel against the golden one of an instruction.

    got [m, n]: float32, float16, bfloat16, float8_e4m3fn or float8_e5m2 (uint8 with
    got_format), to which the golden FP32 result is cast as kernels do: FP8 saturates, FP16
    and BF16 overflow to infinity. inputs: A [m, k] and B [n, k]; options: c, c_enters,
    scale_a, scale_b, scale_format, a_format, b_format, promotion_interval, scale_order, call,
    split_k, epilogue and recipe, all as for `gemm`; with a recipe the floats that it quantized explain
    more. model: a registered instruction. check: "bitwise", "budget" (the error budget
    of each element), or a gate that a public project ships. fault_matrix tries every known fault
    on every check.

    A test that cannot fail has no power. "bitwise" must detect every known fault on these inputs.
    "budget" and the gates allow other roundings, and so other accumulators; they must detect wrong
    outputs and wrong operands. `undetected` lists the faults that the check does not detect.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((8, 256), np.float32))
    >>> b = fp8lab.encode(rng.standard_normal((8, 256), np.float32))
    >>> d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=128)
    >>> fp8lab.verify(d, (a, b), model="sm90.wgmma.e4m3", promotion_interval=128).verdict
    'pass'
    >>> fp8lab.verify(d * 2, (a, b), model="sm90.wgmma.e4m3", promotion_interval=128).verdict
    'mismatch'
    """
    a, b = several("inputs", "a, b", inputs)
    words, name = output_of(got, got_format, 2)
    fields = _core.verify(
        product=make_product(a, b, model, options, name),
        got=dense_tensor(words, name),
        check=text("check", check),
        fault_matrix=bool(fault_matrix),
        threads=whole("threads", threads),
    )
    fields["comparison"] = Comparison(**fields["comparison"])
    fields["causes"] = tuple(Cause(**cause) for cause in fields["causes"])
    fields["undetected"] = tuple(fields["undetected"])
    fields["measured"] = tuple(fields["measured"])
    warn(fields.pop("warning"))
    return VerifyReport(**fields)
