"""Finds the model that explains an output bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fp8lab import _core
from fp8lab._arrays import as_matrix, bad, codes_of, dense_tensor, several, whole
from fp8lab._kernels import Epilogue, SplitK
from fp8lab._mode import in_own_mode
from fp8lab._options import OperandOptions
from fp8lab._products import complete, make_inputs, make_spec, require_searchable
from fp8lab._recipes import QuantizedTensor, Scales
from fp8lab._registry import InstructionModel
from fp8lab._scales import scale_array, scale_values
from fp8lab._verify import output_of
from fp8lab._warnings import warn


@dataclass(frozen=True)
class Explanation:
    """One hypothesis about a kernel."""

    models: tuple[str, ...]  #: registered names of this accumulator
    promotion_interval: int
    scale_order: str  #: searched if there are scales
    split_k: int  #: parts of K, summed separately and added in FP32 in order
    rounding: str  #: of the output: "kept" for FP32, "nearest_even", "through_bf16", ...
    c_enters: str | None = None  #: searched if there is a C

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for `gemm` and `verify` that compute it: `verify(d, (a, b), **one.options)`.

        ValueError if there are none: an output that is not rounded to nearest in one step.
        """
        if self.rounding not in ("kept", "nearest_even"):
            raise ValueError(f"rounding: expected kept or nearest_even, got {self.rounding}")
        options: dict[str, Any] = {
            "model": self.models[0],
            "promotion_interval": self.promotion_interval,
            "scale_order": self.scale_order,
        }
        if self.split_k > 1:
            options["split_k"] = SplitK(self.split_k)
        return options if self.c_enters is None else options | {"c_enters": self.c_enters}


@dataclass(frozen=True)
class ExplanationClass:
    """Hypotheses with equal outputs: this data cannot tell them apart."""

    matches: int  #: elements that these hypotheses give exactly
    compared: int  #: elements that were compared
    members: tuple[Explanation, ...]  #: hardware first, then those without split K

    @property
    @in_own_mode
    def rate(self) -> float:
        """matches / compared."""
        return self.matches / self.compared if self.compared else 0.0


@dataclass(frozen=True)
class SeparatingElement:
    """An element on which the two best classes differ; codes of the output's format."""

    row: int
    column: int
    got: int
    first: int  #: code that the best class gives
    second: int


@dataclass(frozen=True)
class Identification:
    """The hypotheses that explain an output. `str(identification)` is a readable report."""

    explained: bool  #: the best class gives every element of the output
    tried: int  #: number of hypotheses tried
    not_computed_whole: int  #: hypotheses right on the sample, but too many to compute on all outputs
    ranking: tuple[ExplanationClass, ...]  #: best first
    separating: tuple[SeparatingElement, ...]  #: the first of these elements
    separating_count: int  #: number of such elements among `separating_compared`
    separating_compared: int
    text: str

    def __str__(self) -> str:
        return self.text


def class_of(fields: dict[str, Any]) -> ExplanationClass:
    fields["members"] = tuple(Explanation(**member) for member in fields["members"])
    return ExplanationClass(**fields)


def names_of(models: Sequence[str | InstructionModel]) -> list[str]:
    """The names of `models`."""
    if isinstance(models, (str, InstructionModel)):
        raise bad("models", "a list of models", f"one, {models!r}")
    for model in models:
        if not isinstance(model, (str, InstructionModel)):
            raise bad("models", "names, or models of fp8lab.accumulator_model", type(model).__name__)
    return [model if isinstance(model, str) else model.name for model in models]


@in_own_mode
def identify(
    got: ArrayLike,
    inputs: tuple[ArrayLike | QuantizedTensor, ArrayLike | QuantizedTensor],
    *,
    got_format: str | None = None,
    c: ArrayLike | None = None,
    scale_a: ArrayLike | Scales | None = None,
    scale_b: ArrayLike | Scales | None = None,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_format: str | None = None,
    epilogue: Epilogue | None = None,
    recipe: str | None = None,
    models: Sequence[str | InstructionModel] = (),
    threads: int = 0,
) -> Identification:
    """Search instruction, promotion, scale order, place of C, split of K and output rounding.

    got [m, n], got_format and inputs A [m, k], B [n, k]: as for `verify`; c, scales and formats: as
    for `gemm`; epilogue: the known operations after the sum. Every registered instruction that
    reads these formats is tried, and so are the definitions and `models` (accumulator_model).
    Outputs of 64 x 64 are large enough, and smaller ones are quicker. NaN codes count as equal.
    ValueError for shapes and formats that do not fit.

    >>> import fp8lab, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = fp8lab.encode(rng.standard_normal((16, 512), np.float32))
    >>> b = fp8lab.encode(rng.standard_normal((16, 512), np.float32))
    >>> d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=128)
    >>> found = fp8lab.identify(d, (a, b))
    >>> best = found.ranking[0].members[0]
    >>> found.explained, best.models, best.promotion_interval
    (True, ('sm90.wgmma.e4m3',), 128)
    """
    a, b = several("inputs", "a, b", inputs)
    options = complete(OperandOptions(
        c=c,
        scale_a=scale_a,
        scale_b=scale_b,
        a_format=a_format,
        b_format=b_format,
        scale_format=scale_format,
        epilogue=epilogue,
        recipe=recipe,
    ))
    words, name = output_of(got, got_format, 2)
    operands = make_inputs(a, b, options)
    require_searchable(operands)
    product = _core.Product.of_unknown_model(operands, make_spec(None, operands, options, name))
    warn(_core.warning_of_product(product, None))
    fields = _core.identify(
        product=product,
        got=dense_tensor(words, name),
        threads=whole("threads", threads),
        models=names_of(models),
    )
    fields["ranking"] = tuple(class_of(one) for one in fields["ranking"])
    fields["separating"] = tuple(SeparatingElement(**one) for one in fields["separating"])
    return Identification(**fields)


@dataclass(frozen=True)
class CastRecipe:
    """A preset's recipe, and how many codes and scales of a cast it gives differently."""

    recipe: str  #: the preset's name
    role: str  #: "activation", "weight" or "gradient"
    tile: tuple[int, int]  #: rows and columns that share a scale; 0 for all
    wrong_codes: int
    wrong_scales: int
    scales_multiply: bool  #: the scales are those that multiply values before the cast

    @property
    def exact(self) -> bool:
        """Whether it gives every code and every scale."""
        return self.wrong_codes == 0 and self.wrong_scales == 0


@dataclass(frozen=True)
class CastElements:
    """Operations on elements under the given scales, whatever rule these come from."""

    input: str  #: "binary32", "bf16" or "f16": what values are rounded to first
    scaling: str  #: "x / s", "x * (1 / s)", or "x * s" for scales that multiply values
    rounding: str
    overflow: str
    subnormals: str
    tile: tuple[int, int]
    wrong_codes: int


@dataclass(frozen=True)
class CastIdentification:
    """What gave the codes and scales of a tensor. `str(identification)` is a readable report."""

    explained: bool  #: the best recipe gives every code and every scale
    codes: int  #: number of codes
    scales: int  #: number of scales
    recipes: tuple[CastRecipe, ...]  #: best first
    elements: tuple[CastElements, ...]  #: best first
    text: str

    def __str__(self) -> str:
        return self.text


@in_own_mode
def identify_cast(
    x: ArrayLike,
    codes: ArrayLike,
    scales: ArrayLike,
    *,
    codes_format: str | None = None,
    scale_format: str | None = None,
    threads: int = 0,
) -> CastIdentification:
    """Search the recipe, input type, scaling and rounding of a cast, as `fp8lab identify --cast`.

    x: the original floats as for `quantize`; codes of the same shape, FP8, FP6 or FP4 (codes_format
    for raw bytes; "e2m1x2" and the like for packed ones); scales of all tiles in row-major order,
    all levels multiplied: those that codes are multiplied by, or their reciprocals. scale_format:
    "e8m0fnu" for uint8 exponents. Every preset is tried whose scale is that of the current tensor.
    ValueError for codes or scales that no tiles of x have.

    >>> import fp8lab, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((16, 256), np.float32)
    >>> q = fp8lab.quantize(x, "deepgemm")
    >>> found = fp8lab.identify_cast(x, q.codes, q.inverse_scales)
    >>> found.explained, "deepgemm" in [one.recipe for one in found.recipes if one.exact]
    (True, True)
    """
    values = as_matrix("x", x)
    words, name = codes_of("codes", codes, codes_format)
    if words.dtype != np.uint8 or name == "e8m0fnu":
        raise bad("codes", "FP8, FP6 or FP4 codes", name)
    factors = scale_values("scales", scale_array("scales", scales, scale_format))
    fields = _core.identify_cast(
        x=values,
        format=name,
        codes=np.ascontiguousarray(words).reshape(-1),
        scales=np.ascontiguousarray(factors).reshape(-1),
        threads=whole("threads", threads),
    )
    fields["recipes"] = tuple(CastRecipe(**one) for one in fields["recipes"])
    fields["elements"] = tuple(CastElements(**one) for one in fields["elements"])
    return CastIdentification(**fields)
