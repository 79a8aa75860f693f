"""Golden vectors: inputs that distinguish models, recordings of chips, and their replay."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fp8lab import _core
from fp8lab._arrays import DTYPES, as_array, as_float32, bad, codes_of, natural, text, whole
from fp8lab._mode import in_own_mode


@dataclass(frozen=True, eq=False)
class Vectors:
    """n dot products: d = c + a . b under the model that the header names.

    `replay` and `save` use the arrays, so you can change them, or replace d with the results of a
    kernel.

    >>> import dataclasses, fp8lab, numpy as np
    >>> golden = fp8lab.vectors("sm90.wgmma.e4m3", 100)
    >>> def my_kernel(a, b, c):  # yours: one dot product a row
    ...     return c + (a.astype(np.float32) * b.astype(np.float32)).sum(1, dtype=np.float32)
    >>> mine = dataclasses.replace(golden, d=my_kernel(golden.a, golden.b, golden.c))
    >>> fp8lab.replay(mine).mismatches > 0  # plain FP32 sums are not what Hopper computes
    True
    """

    model: str
    a_format: str
    b_format: str
    header: dict[str, str]  #: `# key: value` lines of the text form
    a: NDArray[Any]  #: [n, terms], of the format's ml_dtypes dtype (float32 for TF32)
    b: NDArray[Any]
    c: NDArray[np.float32]  #: [n]
    d: NDArray[np.float32]
    #: [n, blocks] codes of the block scales that the header's line `scales` states
    scales_a: NDArray[np.uint8] | None = None
    scales_b: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.d)

    @in_own_mode
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .npz, .safetensors or .jsonl, by the extension of the path; otherwise text.

        >>> import fp8lab, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "golden.npz")
        ...     fp8lab.vectors("sm90.wgmma.e4m3", 8).save(file)
        ...     len(fp8lab.load_vectors(file))
        8
        """
        self._core().save(os.fspath(path))

    def _core(self) -> _core.VectorFile:
        return _core.VectorFile.of(
            model=self.model,
            a_format=self.a_format,
            b_format=self.b_format,
            header=self.header,
            a=_operand("a", self.a, self.a_format),
            b=_operand("b", self.b, self.b_format),
            c=_results("c", self.c),
            d=_results("d", self.d),
            scales_a=_scales("scales_a", self.scales_a),
            scales_b=_scales("scales_b", self.scales_b),
        )


def _operand(argument: str, x: Any, name: str) -> NDArray[Any]:
    words, _ = codes_of(argument, x, name)
    if words.ndim != 2:
        raise bad(argument, "a matrix [n, terms]", list(words.shape))
    return words


def _results(argument: str, x: Any) -> NDArray[np.float32]:
    values = as_float32(argument, x)
    if values.ndim != 1:
        raise bad(argument, "one float32 a case, [n]", list(values.shape))
    return values


def _scales(argument: str, x: Any) -> NDArray[np.uint8] | None:
    if x is None:
        return None
    codes = as_array(argument, x)
    if codes.ndim != 2 or codes.dtype != np.uint8:
        raise bad(argument, "uint8 codes, [n, blocks]", f"{codes.dtype} {list(codes.shape)}")
    return np.ascontiguousarray(codes)


def _typed(words: NDArray[Any], name: str) -> NDArray[Any]:
    return words.view(DTYPES.get(name, np.dtype(np.float32)))


def _vectors(file: _core.VectorFile) -> Vectors:
    fields = file.fields()
    fields["a"] = _typed(fields["a"], fields["a_format"])
    fields["b"] = _typed(fields["b"], fields["b_format"])
    for name in "cd":
        fields[name] = fields[name].view(np.float32)
    return Vectors(**fields)


@in_own_mode
def vectors(
    model: str, count: int, *, kind: str = "adversarial", seed: int = 1, terms: int = 0
) -> Vectors:
    """`count` dot products with the results of `model`, a registered instruction.

    kind: "random", "adversarial" (cancellation, swamping, ties, exponents around the cut,
    subnormals) or "special" (NaN, infinities, zeros, extremes). terms: operand pairs per case; 0 is
    one step of the model. The same arguments give the same cases, as `fp8lab vectors` writes them.
    ValueError for an unknown name or a number out of range.

    >>> import fp8lab
    >>> golden = fp8lab.vectors("sm90.wgmma.e4m3", 100)
    >>> golden.a.shape, golden.a.dtype, golden.d.dtype
    ((100, 32), dtype(float8_e4m3fn), dtype('float32'))
    >>> fp8lab.replay(golden, "sm90.wgmma.e4m3").mismatches
    0
    """
    return _vectors(
        _core.VectorFile.generate(
            text("model", model),
            whole("count", count),
            text("kind", kind),
            natural("seed", seed),
            whole("terms", terms),
        )
    )


@in_own_mode
def load_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Read a vector file of any form, or a recording of a chip. ValueError if malformed.

    >>> import fp8lab, pathlib, tempfile
    >>> text = '''# fp8lab vectors 1
    ... # model: sm90.wgmma.e4m3
    ... # input: e4m3
    ... # terms: 2
    ... 3838 3838 00000000 40000000
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "two_ones.txt")
    ...     _ = file.write_text(text)
    ...     fp8lab.load_vectors(file).d
    array([2.], dtype=float32)
    """
    return _vectors(_core.VectorFile.load(os.fspath(path)))


@dataclass(frozen=True, eq=False)
class Separation:
    """Inputs on which two models differ, with the first one's results."""

    vectors: Vectors  #: may be empty; the first case is reduced to few, simple operands
    tried: int  #: number of generated cases tried


@in_own_mode
def separate(
    first: str, second: str, count: int = 16, *, seed: int = 1, terms: int = 0
) -> Separation:
    """Dot products on which two registered models give different bits, at most `count`.

    Run them on a chip to find out which of the models it is. There are no cases for equal
    accumulators, and none if the search finds none. terms: as for `vectors`; 0 is one step of the
    model with more terms. ValueError for models that read different formats.

    >>> import fp8lab
    >>> found = fp8lab.separate("sm89.mma.e4m3", "sm90.wgmma.e4m3")
    >>> len(found.vectors)
    16
    >>> fp8lab.replay(found.vectors, "sm90.wgmma.e4m3").mismatches
    16
    """
    file, tried = _core.separate(
        text("first", first),
        text("second", second),
        whole("count", count),
        natural("seed", seed),
        whole("terms", terms),
    )
    return Separation(_vectors(file), tried)


@dataclass(frozen=True)
class ReplayReport:
    """The outcome of a replay; `shown` describes the first mismatches, at most 20."""

    model: str
    cases: int
    mismatches: int
    shown: tuple[str, ...]


@in_own_mode
def replay(cases: str | os.PathLike[str] | Vectors, model: str = "") -> ReplayReport:
    """Replay vectors, a vector file or a recording through `model`, or through their own if empty.

    A mismatch is a case whose d differs from the model's result. If d holds a kernel's results,
    `expected` in the report is the kernel's result, and `got` is the model's. NaN payloads count.

    >>> import fp8lab
    >>> fp8lab.replay(fp8lab.vectors("sm90.wgmma.e4m3", 8))
    ReplayReport(model='sm90.wgmma.e4m3', cases=8, mismatches=0, shown=())
    """
    file = cases._core() if isinstance(cases, Vectors) else _core.VectorFile.load(os.fspath(cases))
    return ReplayReport(**file.replay(text("model", model)))
