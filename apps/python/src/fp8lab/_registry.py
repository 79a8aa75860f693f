"""What the library knows by name: formats, cast profiles, instruction models, presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fp8lab import _core


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
    specials: str  #: "ieee" (Inf, NaN), "nan_only", "fnuz" (NaN at the code of -0) or "none"
    storage_bits: int
    max_finite: float
    min_normal: float
    min_subnormal: float


@dataclass(frozen=True)
class CastProfile:
    """What a cast does where formats leave a choice, under the name of a system that casts so."""

    name: str
    rounding: str
    overflow: str
    subnormals: str
    infinity: str
    nan: str
    max_magnitude: float  #: where a grid ends early; 0 means at the format's max finite
    used_by: str


@dataclass(frozen=True)
class AccumulatorModel:
    """How a matrix unit adds products up, as a plain value: vary it with `dataclasses.replace`.

    `kind` is "fused_dot_product" (one step of `terms` products, aligned, truncated to
    `alignment_fraction_bits`, rounded to `output_fraction_bits`), "sequential", "float32",
    "exact", or "fp16_halves" (`terms` products of FP8 operands as FP16, in two such steps, k mod
    4 < 2 first, whose sum is added to c in the output's format). Of AMD's units:
    "exact_dot_product" (CDNA1), "flushed_pairwise_sum" (CDNA2), "two_stage_dot_product" and
    "even_odd_dot_product" (CDNA3), "fused_multiply_add" (binary32). With block scales:
    "scaled_dot_product" (mxf8f6f4) and "scaled_group_dot_product" (mxf4nvf4). Fields that a kind
    does not use are ignored.

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
    min_alignment_exponent: int | None = None  #: no alignment is below it
    half_c_exponent: str = "stored"  #: of a subnormal FP16 c: "stored" (-14) or "widened"
    halves_order: str = "chained"  #: of "fp16_halves": "chained", or "separate" (both from zero)
    second_stage_fraction_bits: int = 31  #: of the CDNA3 kinds: 31, or 32 and then 31
    takes_ue4m3_per_32: bool = False  #: of "scaled_group_dot_product": UE4M3 per 32, not only per 16

    def _core(self) -> _core.AccumulatorModel:
        return _core.AccumulatorModel(**dataclasses.asdict(self))


@dataclass(frozen=True)
class InstructionModel:
    """A named instruction: its inputs, how it accumulates, and how well that is known."""

    name: str
    a_format: str
    b_format: str
    accumulator: AccumulatorModel
    standing: str  #: "measured", "from literature", "assumed" or "definition"
    source: str
    evidence: tuple[tuple[str, str, int], ...] = ()  #: recordings that replay: name, GPU, rows


def _instruction_model(fields: dict[str, object]) -> InstructionModel:
    accumulator = AccumulatorModel(**fields.pop("accumulator"))  # type: ignore[arg-type]
    return InstructionModel(accumulator=accumulator, **fields)  # type: ignore[arg-type]


def formats() -> dict[str, Format]:
    """Every storage format by name.

    >>> import fp8lab
    >>> fp8lab.formats()["e4m3fn"].max_finite
    448.0
    """
    return {f["name"]: Format(**f) for f in _core.formats()}


def profiles() -> dict[str, CastProfile]:
    """Every cast profile by name.

    >>> import fp8lab
    >>> fp8lab.profiles()["nvidia_nosat"].overflow
    'non_saturating'
    """
    return {p["name"]: CastProfile(**p) for p in _core.profiles()}


def models() -> dict[str, InstructionModel]:
    """Every registered instruction model by name, hardware first.

    >>> import fp8lab
    >>> fp8lab.models()["sm90.mma.e4m3"].standing
    'measured'
    """
    return {m["name"]: _instruction_model(m) for m in _core.models()}


def find_model(name: str) -> InstructionModel:
    """The model called `name`. An unknown one is a `ValueError` with the names near it."""
    return _instruction_model(_core.find_model(name))
