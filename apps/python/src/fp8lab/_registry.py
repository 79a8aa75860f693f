"""Formats, cast profiles and instruction models by name."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from fp8lab import _core
from fp8lab._arrays import text as as_text
from fp8lab._mode import in_own_mode


@dataclass(frozen=True)
class Format:
    """The traits of a storage format.

    A finite code with exponent field E and mantissa field T is (1 + T/2^M) 2^(E - bias)
    if E > 0 and (T/2^M) 2^(1 - bias) otherwise.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_sign: bool
    #: "ieee" (Inf, NaN), "nan_only", "fnuz" (NaN at the code of -0), "none", "fnuz_inf" and
    #: "nan_inf" (P3109, with Inf next to the largest number), or "inf_only"
    specials: str
    #: What exponent field 0 holds: "gradual" (zero and subnormals), "flushed" (zeros alone) or
    #: "normal" (numbers as in every other field, and no zero: E8M0)
    field_zero: str
    storage_bits: int
    max_finite: float
    min_normal: float
    min_subnormal: float


@dataclass(frozen=True)
class CastProfile:
    """The choices of a cast that formats leave open, with the name of a system that makes them."""

    name: str
    rounding: str
    overflow: str
    subnormals: str
    infinity: str
    nan: str
    max_magnitude: float  #: largest value of a shorter grid; 0 means the format's max finite
    used_by: str


@dataclass(frozen=True)
class AccumulatorModel:
    """How a matrix unit adds products, as a plain value: vary it with `dataclasses.replace`.

    `kind` is "fused_dot_product" (one step of `terms` products, aligned, truncated to
    `alignment_fraction_bits`, rounded to `output_fraction_bits`), "sequential", "float32",
    "exact", or "fp16_halves" (`terms` products of FP8 operands as FP16, in two such steps, k mod
    4 < 2 first, whose sum is added to c in the output's format). Of AMD's units:
    "exact_dot_product" (CDNA1), "flushed_pairwise_sum" (CDNA2), "two_stage_dot_product" and
    "even_odd_dot_product" (CDNA3), "fused_multiply_add" (binary32). With block scales:
    "scaled_dot_product" (mxf8f6f4) and "scaled_group_dot_product" (mxf4nvf4). Of processors:
    "multiply_add_pairs" (VDPBF16PS), "multiply_add_chains" (AMX), "rounded_sum" (AMX FP8, Arm's
    BFDOT with FEAT_EBF16), "scaled_rounded_sum" (ACE) and "rounded_pairs" (BFDOT). Fields that a
    kind does not use are ignored.

    >>> import dataclasses, fp8lab
    >>> hopper = fp8lab.models()["sm90.wgmma.e4m3"].accumulator
    >>> dataclasses.replace(hopper, alignment_fraction_bits=25).alignment_fraction_bits
    25
    """

    kind: str = "fused_dot_product"
    terms: int = 32
    alignment_fraction_bits: int = 13
    output_fraction_bits: int = 13
    rounding: str = "toward_zero"
    output_format: str = "f32"  #: "f32", or "f16" (c enters rounded to FP16)
    product_exponent: str = "stored"
    product_fraction_bits: int = -1
    min_alignment_exponent: int | None = None  #: lower limit of the alignment exponent
    half_c_exponent: str = "stored"  #: for a subnormal FP16 c: "stored" (-14) or "widened"
    halves_order: str = "chained"  #: for "fp16_halves": "chained", or "separate" (both from zero)
    second_stage_fraction_bits: int = 31  #: for the CDNA3 kinds: 31, or 32 and then 31
    takes_ue4m3_per_32: bool = False  #: for "scaled_group_dot_product": UE4M3 per 32, not only per 16
    zero_sign: str = "kept"  #: of a sum that rounds to zero: "kept" or "positive" (NVIDIA)
    chains: int = 2  #: for "multiply_add_chains": chains of FMAs among which products are dealt
    subnormals: str = "kept"  #: of processors' binary32: "kept", "flushed_results" or "flushed"
    pair_rounding: str = "nearest_even"  #: for "rounded_pairs": "nearest_even" or "to_odd"

    @in_own_mode
    def definition(self, a_format: str = "e4m3fn", b_format: str | None = None) -> str:
        """The model as text, for operands of these formats; usable in place of a model's name.

        >>> import fp8lab
        >>> fp8lab.models()["fp32"].accumulator.definition()
        'float32:a=e4m3fn,b=e4m3fn'
        """
        text: str = _core.definition_of(
            model=self._core(), a_format=a_format, b_format=b_format or a_format
        )
        return text

    def _core(self) -> _core.AccumulatorModel:
        return _core.AccumulatorModel(**dataclasses.asdict(self))


@dataclass(frozen=True)
class InstructionModel:
    """A named instruction: its inputs, how it accumulates, and how well that is known."""

    name: str
    a_format: str
    b_format: str
    accumulator: AccumulatorModel
    standing: str  #: "measured", "specified", "from literature", "assumed" or "definition"
    source: str
    evidence: tuple[tuple[str, str, int], ...] = ()  #: recordings that replay: name, GPU, rows


def _instruction_model(fields: dict[str, object]) -> InstructionModel:
    accumulator = AccumulatorModel(**fields.pop("accumulator"))  # type: ignore[arg-type]
    return InstructionModel(accumulator=accumulator, **fields)  # type: ignore[arg-type]


@in_own_mode
def formats() -> dict[str, Format]:
    """Every storage format with a name of its own. IEEE P3109's (binary8p3se) are too many to list.

    >>> import fp8lab
    >>> fp8lab.formats()["e4m3fn"].max_finite
    448.0
    """
    return {f["name"]: Format(**f) for f in _core.formats()}


@in_own_mode
def profiles() -> dict[str, CastProfile]:
    """Every cast profile by name.

    >>> import fp8lab
    >>> fp8lab.profiles()["nvidia_nosat"].overflow
    'non_saturating'
    """
    return {p["name"]: CastProfile(**p) for p in _core.profiles()}


@in_own_mode
def models() -> dict[str, InstructionModel]:
    """Every registered instruction model by name, hardware first.

    >>> import fp8lab
    >>> fp8lab.models()["sm90.mma.e4m3"].standing
    'measured'
    """
    return {m["name"]: _instruction_model(m) for m in _core.models()}


def find_model(name: str) -> InstructionModel:
    """The model called `name`, or defined by it. ValueError for others lists all names."""
    return _instruction_model(_core.find_model(name))


@in_own_mode
def accumulator_model(
    base: str, /, *, name: str | None = None, **parameters: int | str | bool | None
) -> InstructionModel:
    """Your own accumulator: a registered instruction or a kind with some parameters changed.

    base: "sm90.wgmma.e4m3", "fused", "sequential" ... (`fp8lab list accumulators`, which also shows
    the default parameters of a kind), or a definition as text, "fused:terms=16,F=13". parameters:
    by name or short name (`fp8lab list parameters`): terms, F, M, rounding, e_min, output ...; None
    is "none". The result is accepted wherever a model is, and so is its name, which is the whole
    definition as text. ValueError for parameters that the unit does not have, and for values out of
    range.

    >>> import fp8lab, numpy as np
    >>> mine = fp8lab.accumulator_model("fused", terms=16, F=13, rounding="toward_zero", e_min=-6)
    >>> mine.name
    'fused:terms=16,F=13,rounding=toward_zero,e_min=-6'
    >>> ones = fp8lab.encode(np.ones((1, 40000), np.float32))
    >>> float(fp8lab.gemm(ones, ones, model=mine)[0, 0])
    16384.0
    """
    items = []
    as_text("base", base)
    for key, value in parameters.items():
        word = "none" if value is None else str(value)
        if isinstance(value, bool):
            word = word.lower()
        if set(word) & set(",:="):
            raise ValueError(f"{key}: expected a value without ',', ':' and '=', got '{word}'")
        items.append(f"{key}={word}")
    text = base if name is None else f"{name}={base}"
    if items:
        text += ("," if ":" in base else ":") + ",".join(items)
    return find_model(text)


@in_own_mode
def load_models(path: str | os.PathLike[str]) -> dict[str, InstructionModel]:
    """The models that a file defines, by name: TOML tables [accumulator.NAME], or .json.

    The same as `--models FILE` of the tool. ValueError for malformed text, OSError for a file that
    cannot be read.

    >>> import pathlib, tempfile, fp8lab
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.toml"
    >>> _ = file.write_text('accumulator.mine = {base = "fused", F = 10}')
    >>> fp8lab.load_models(file)["mine"].name
    'mine=fused:F=10'
    """
    file = os.fspath(path)
    with open(file, encoding="utf-8") as stream:
        text = stream.read()
    found = _core.model_book(file=file, text=text, json=file.endswith(".json"))
    return {one.split("=", 1)[0]: find_model(one) for one in found}
