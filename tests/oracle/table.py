"""Names of units, with the formats, the scales and the parameters of each."""

from dataclasses import replace
from typing import NamedTuple

from exact import E8M13, F16, F32, FORMATS
from units import (ExactSum, Fma, FlushedGroups, FmaChains, FmaPairs, Fp4Dot, FusedDot, Halves, RoundDown,
                   RoundedPairs, RoundedSum, ScaledDot, ScaledRoundedSum, Unit)


class Entry(NamedTuple):
    unit: Unit
    a: str
    b: str
    scales: tuple[str, int] | None = None  # format and block
    any_nan: bool = False  # the bits of its NaN are not known, or others than the models'
    all_numbers: bool = False  # codes of NaN and infinities are numbers

    @property
    def half_output(self):
        return self.unit.output == F16


def fused(terms, bits, floor, output=F32):
    return FusedDot(terms, output, bits, "nearest" if output == F16 else "zero", floor)


def plain(chip, formats, terms, bits, floor, half_floor=None, output=F32):
    """Entries `chip.format`, and `chip.format.f16` where the unit has FP16 outputs."""
    found = {}
    for label, (a, b) in formats.items():
        found[f"{chip}.{label}"] = Entry(fused(terms, bits, floor, output), a, b)
        if half_floor is not None:
            found[f"{chip}.{label}.f16"] = Entry(fused(terms, bits, half_floor, F16), a, b)
    return found


SAME = {"f16": ("f16", "f16"), "bf16": ("bf16", "bf16"), "tf32": ("tf32", "tf32"),
        "e4m3": ("e4m3fn", "e4m3fn"), "e5m2": ("e5m2", "e5m2")}
HALF = {"f16": SAME["f16"]}
BRAIN = {"bf16": SAME["bf16"]}
TENSOR = {"tf32": SAME["tf32"]}
UNMIXED8 = {key: SAME[key] for key in ("e4m3", "e5m2")}
MIXED8 = {"e4m3.e5m2": ("e4m3fn", "e5m2"), "e5m2.e4m3": ("e5m2", "e4m3fn")}
FP8 = UNMIXED8 | MIXED8
PAIRED = {"e4m3": "e4m3fn", "e5m2": "e5m2", "e3m2": "e3m2", "e2m3": "e2m3", "e2m1": "e2m1"}
PAIRS = {left if left == right else f"{left}.{right}": (a, b) for left, a in PAIRED.items()
         for right, b in PAIRED.items()}


def nvidia():
    found = {}
    for chip, terms, bits, floor, half_floor in (("sm70.mma", 4, 23, None, -19), ("sm75.mma", 8, 24, -132, -20),
                                                 ("sm80.mma", 8, 24, -132, -20), ("sm89.mma", 8, 24, -132, -20),
                                                 ("sm90.mma", 16, 25, -133, -21), ("sm90.wgmma", 16, 25, -133, -21),
                                                 ("sm100.mma", 16, 25, -133, -21), ("sm100.tcgen05", 16, 25, -133, -21),
                                                 ("sm120.mma", 16, 25, -133, -21)):
        found |= plain(chip, HALF, terms, bits, floor, half_floor)
        if chip in ("sm70.mma", "sm75.mma"):
            continue
        found |= plain(chip, BRAIN, terms, bits, floor)
        found |= plain(chip, TENSOR, terms // 2, bits, floor)
    # FP8 products have no exponent near the floors, which say nothing here.
    found |= plain("sm89.mma", FP8, 16, 13, None, None, E8M13) | plain("sm90.wgmma", FP8, 32, 13, None, None, E8M13)
    for chip, terms, formats in (("sm89.mma", 16, FP8), ("sm90.wgmma", 32, FP8)):
        found |= {f"{chip}.{label}.f16": Entry(fused(terms, 13, None, F16), *pair) for label, pair in formats.items()}
    found |= plain("sm100.tcgen05", PAIRS, 32, 25, None, -21) | plain("sm120.mma", PAIRS, 32, 25, None, -21)
    return found


def halves():
    found = {}
    for label, pair in UNMIXED8.items():
        for chip in ("sm90.mma", "sm100.mma"):
            wide = Halves(32, F32, fused(16, 25, -133))
            half = Halves(32, F16, fused(16, 25, -21, F16))
            found |= {f"{chip}.{label}": Entry(wide, *pair), f"{chip}.{label}.f16": Entry(half, *pair)}
        found[f"sm90.mma.{label}.separate"] = Entry(Halves(32, F32, wide.inner, chained=False), *pair)
        found[f"sm90.mma.{label}.f16.separate"] = Entry(Halves(32, F16, half.inner, chained=False), *pair)
    return found


def positive_zero(unit):
    """What rounds to zero is +0: recordings of an H200, and mmasim 2.1.1 for the other chips."""
    if isinstance(unit, Halves):
        return replace(unit, inner=positive_zero(unit.inner))
    return replace(unit, keep_sign=False)


def scaled():
    found = {}
    for chip in ("sm100.tcgen05", "sm120.mma"):
        for label, pair in PAIRS.items():
            unit = ScaledDot(32, F32, 25, "zero", -133)
            found[f"{chip}.mxf8f6f4.{label}"] = Entry(unit, *pair, ("ue8m0", 32))
        for scales in (("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16), ("ue4m3", 32)):
            if chip == "sm120.mma" or scales != ("ue4m3", 32):
                found[f"{chip}.mxf4nvf4 {scales[0]} {scales[1]}"] = Entry(Fp4Dot(), "e2m1", "e2m1", scales)
    return found


def amd():
    fp8 = {"fp8": "e4m3fnuz", "bf8": "e5m2fnuz"}
    found = {f"{chip}.mfma.f32": Entry(Fma(), "f32", "f32") for chip in ("gfx908", "gfx90a", "gfx942")}
    found |= {
        "gfx908.mfma.f16": Entry(ExactSum(4), "f16", "f16"),
        "gfx908.mfma.bf16": Entry(ExactSum(2), "bf16", "bf16"),
        "gfx90a.mfma.f16": Entry(FlushedGroups(4), "f16", "f16"),
        "gfx90a.mfma.bf16": Entry(FlushedGroups(2), "bf16", "bf16"),
        "gfx90a.mfma.bf16_1k": Entry(FlushedGroups(4), "bf16", "bf16"),
        "gfx942.mfma.f16": Entry(RoundDown(8), "f16", "f16"),
        "gfx942.mfma.bf16": Entry(RoundDown(8), "bf16", "bf16"),
        "gfx942.mfma.xf32": Entry(RoundDown(4), "tf32", "tf32"),
    }
    for left, a in fp8.items():
        for right, b in fp8.items():
            name = f"gfx942.mfma.{left}" + ("" if left == right else f".{right}")
            found[name] = Entry(RoundDown(16, two_groups=True, far_c=25), a, b)
    return {name: entry._replace(any_nan=True) for name, entry in found.items()}


def processors():
    flushed = {"flush_operands": True, "flush_results": True}
    pairs, chains = FmaPairs(**flushed), FmaChains(32, **flushed)
    odd, even = RoundedPairs(rounding="odd", **flushed), RoundedPairs(**flushed)
    tiles = RoundedSum(64, flush_results=True, integers=True)
    outer = ScaledRoundedSum(4, **flushed, integers=True)
    bf16, f16 = SAME["bf16"], SAME["f16"]
    found = {
        "x86.vdpbf16ps": Entry(pairs, *bf16), "x86.vdpphps": Entry(pairs, *f16),
        "x86.tdpbf16ps": Entry(chains, *bf16), "x86.tdpfp16ps": Entry(chains, *f16),
        "x86.tmmultf32ps": Entry(FmaChains(16, chains=1, flush_results=True), *SAME["tf32"]),
        "x86.top2bf16ps": Entry(even, *bf16), "arm.bfdot": Entry(odd, *bf16), "arm.bfmmla": Entry(odd, *bf16),
        "arm.bfdot.ebf16": Entry(RoundedSum(2), *bf16), "arm.bfmmla.ebf16": Entry(RoundedSum(2), *bf16),
        "arm.fdot.f16": Entry(RoundedSum(2), *f16),
    }
    letters = {"e4m3": "h", "e5m2": "b", "e4m3.e5m2": "hb", "e5m2.e4m3": "bh"}
    for label, pair in FP8.items():
        found[f"x86.tdp{letters[label]}f8ps"] = Entry(tiles, *pair)
        found[f"x86.top4mx{letters[label]}f8ps"] = Entry(outer, *pair, ("ue8m0", 32), all_numbers=True)
        for name, terms in (("fdot", 4), ("fmmla", 8)):
            found[f"arm.{name}.{label}"] = Entry(ExactSum(terms), *pair)
            found[f"arm.{name}.{label}.f16"] = Entry(ExactSum(terms // 2, F16), *pair)
    return {name: entry._replace(any_nan=True) for name, entry in found.items()}


def model_of(name):
    """The registered model of a table name: mxf4nvf4 has a row for each kind of scales."""
    return name.split()[0]


def lowest_bit(entry):
    """The place of the last bit of the smallest product."""
    return sum(FORMATS[name].min_exponent - FORMATS[name].mantissa_bits for name in (entry.a, entry.b))


def rounds_to_zero(entry):
    """Whether a sum of its products can be too small for its output."""
    return entry.scales or lowest_bit(entry) < (-24 if entry.half_output else -149)


UNITS = {name: entry._replace(unit=positive_zero(entry.unit))
         if name.startswith("sm") and rounds_to_zero(entry) else entry
         for name, entry in (nvidia() | halves() | scaled() | amd() | processors()).items()}
