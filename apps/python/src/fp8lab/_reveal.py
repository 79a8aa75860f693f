"""Finds what an unknown kernel computes, from its outputs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._arrays import DTYPES, as_array, as_float32, bad, natural, text, whole
from fp8lab._kernels import SplitK
from fp8lab._mode import callers_mode, in_mode, in_own_mode
from fp8lab._registry import InstructionModel, find_model

_OUTPUTS = {"f32": np.dtype(np.float32), "f16": DTYPES["f16"], "bf16": DTYPES["bf16"]}


@dataclass(frozen=True)
class Revealed:
    """The order of a kernel's sum, and its unit. `str(revealed)` is a readable report."""

    explained: bool  #: a model gave every fresh output
    failure: str  #: what is not explained, and why; empty if everything is
    tree: str | None  #: nested sums in the order of K; `0-31`: these terms; brackets: exactly
    compact: str | None  #: the tree as an outline, with equal parts shown once
    order: str | None  #: the same as a sentence, if the library can compute such an order
    model: InstructionModel | None  #: a registered instruction, or a definition
    definition: str  #: the unit with all parameters
    instructions: tuple[str, ...]  #: registered instructions that give the same outputs
    parameters: dict[str, tuple[str, str]]  #: value, and all values that give the same outputs
    promotion_interval: int
    split_k: SplitK | None
    output: str  #: format of the kernel's outputs
    rounded_to: str  #: format to which it rounds its sums
    checked: int  #: outputs of fresh operands
    equal: int  #: those of them that the model gives exactly
    rounds: int
    probes: int
    models_file: str  #: TOML for `load_models` and `--models`: the unit under the name "revealed"
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for `gemm` and `verify` that compute the kernel. ValueError if none do."""
        if self.model is None:
            raise ValueError(f"model: expected a kernel whose unit was found, got {self.failure}")
        options: dict[str, Any] = {"model": self.model, "promotion_interval": self.promotion_interval}
        return options if self.split_k is None else options | {"split_k": self.split_k}


def _operand(words: NDArray[Any], name: str) -> NDArray[Any]:
    return words.view(DTYPES.get(name, np.dtype(np.float32)))


def reveal(
    kernel: Callable[[NDArray[Any], NDArray[Any]], Any],
    *,
    m: int = 32,
    n: int = 32,
    k: int = 256,
    a_format: str = "e4m3fn",
    b_format: str | None = None,
    seed: int = 1,
) -> Revealed:
    """Find the order in which a kernel sums, and its unit, from its outputs alone.

    kernel(a, b) -> d: a [m, k] and b [n, k] under the ml_dtypes dtype of their format (float32 for
    "f32" and "tf32"), d [m, n] = a . b^T as float32, float16 or bfloat16, all scales 1. It is called
    a few hundred times. k should be twice the promotion interval or more.

    The order is FPRev's tree of additions, extended to fused steps of many terms. The unit's
    parameters (terms, fraction bits, rounding, e_min, FP16 sums, halves) are found with probes, as
    Hawkeye does, among all kinds of units in the library, and checked bit for bit on fresh
    operands. A parameter that these formats cannot determine has all its possible values. For
    kernels without a single order (atomics, compensated sums), `failure` says so. ValueError for
    bad shapes.

    >>> import fp8lab
    >>> mine = fp8lab.accumulator_model("fused", terms=16, F=11)
    >>> def kernel(a, b):  # yours
    ...     return fp8lab.gemm(a, b, model=mine, promotion_interval=64)
    >>> found = fp8lab.reveal(kernel, k=128)
    >>> found.order
    'steps of 16 products and c, the sum so far, aligned together; a new chain every 64 terms, added in order'
    >>> found.parameters["alignment_fraction_bits"], found.checked - found.equal
    (('11', '11'), 0)
    """
    if not callable(kernel):
        raise bad("kernel", "a function of (a, b)", type(kernel).__name__)
    return _reveal(in_mode(callers_mode(), kernel), m, n, k, a_format, b_format, seed)


@in_own_mode
def _reveal(
    kernel: Callable[[NDArray[Any], NDArray[Any]], Any],
    m: int,
    n: int,
    k: int,
    a_format: str,
    b_format: str | None,
    seed: int,
) -> Revealed:
    a_name = str(_core.format_name(text("a_format", a_format)))
    b_name = a_name if b_format is None else str(_core.format_name(text("b_format", b_format)))

    def run(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[np.float32], str]:
        outputs = []
        name = "f32"
        for left, right in zip(_operand(a, a_name), _operand(b, b_name), strict=True):
            d = as_array("kernel", kernel(left, right))
            if d.shape != (m, n):
                raise bad("kernel", f"outputs [{m}, {n}]", list(d.shape))
            name = next((one for one in _OUTPUTS if d.dtype == _OUTPUTS[one]), "")
            if not name:
                raise bad("kernel", "outputs of float32, float16 or bfloat16", d.dtype)
            outputs.append(as_float32("kernel", d).reshape(-1))
        return np.concatenate(outputs), name

    fields: dict[str, Any] = _core.reveal(
        run,
        m=whole("m", m),
        n=whole("n", n),
        k=whole("k", k),
        a_format=a_name,
        b_format=b_name,
        seed=natural("seed", seed),
    )
    parts, tile, cut, order = fields.pop("split")
    fields["split_k"] = SplitK(parts, tile, cut, order) if parts > 1 else None
    fields["model"] = find_model(fields["model"]) if fields["model"] else None
    return Revealed(**fields)
