"""Units that are nearly right: one parameter or rule changed. Rows have power if each of them fails some row.

What no input can tell is left out, with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from exact import F16, F32, FORMATS, Number, decode, infinity, zero
from units import (ExactSum, Fma, FlushedGroups, FmaChains, FmaPairs, Fp4Dot, FusedDot, Halves, Processor, RoundDown,
                   RoundedPairs, RoundedSum, ScaledDot, ScaledRoundedSum, Unit)

ONE = decode("f32", 0x3F800000)


@dataclass(frozen=True)
class Changed(Unit):
    """A unit that gets other operands and c, or whose result is changed."""

    unit: Unit = Unit()
    before: Callable[[list, list, Number], tuple] = lambda a, b, c: (a, b, c)
    after: Callable[[Number], Number] = lambda d: d

    def dot(self, a, b, c, *scales):
        return self.after(self.unit.dot(*self.before(a, b, c), *scales))


@dataclass(frozen=True)
class FiniteScales(Unit):
    """A unit that takes a scale of NaN for 1."""

    unit: Unit = Unit()

    def dot(self, a, b, c, scales_a, scales_b, block, name):
        one, nans = (0x7F, {0xFF}) if name == "ue8m0" else (0x38, {0x7F, 0xFF})
        scales = [[one if s in nans else s for s in side] for side in (scales_a, scales_b)]
        return self.unit.dot(a, b, c, *scales, block, name)


def without(kind, other):
    def change(a, b, c):
        a, b = ([other if x.kind == kind else x for x in side] for side in (a, b))
        return a, b, other if c.kind == kind else c
    return change


def infinity_times_zero(a, b, c):
    """Such products become zero."""
    lost = [x.kind == "inf" and y.is_zero or y.kind == "inf" and x.is_zero for x, y in zip(a, b)]
    return [zero() if no else x for x, no in zip(a, lost)], [zero() if no else y for y, no in zip(b, lost)], c


def special_mutants(entry):
    """Rules of special values and of zeros, which all units have."""
    unit, infinite = entry.unit, any(FORMATS[name].specials == "ieee" for name in (entry.a, entry.b))
    infinite = infinite and not entry.all_numbers
    yield "NaN taken for 1", Changed(unit=unit, before=without("nan", ONE))
    yield "infinities positive", Changed(unit=unit, before=without("inf", infinity(False)))
    if infinite:
        yield "infinity times zero is zero", Changed(unit=unit, before=infinity_times_zero)
    if entry.scales:
        yield "scale of NaN taken for 1", FiniteScales(unit=unit)
    if isinstance(unit, FusedDot) and not isinstance(unit, Fp4Dot):
        yield "sum of negative zeros negative", replace(unit, minus_zero=True)
    elif not (isinstance(unit, Fp4Dot | Halves) or (isinstance(unit, FlushedGroups | FmaChains) and entry.a == "f16") or
              getattr(unit, "integers", False)):
        # Those left out start from +0 and have no sum that rounds to zero, or hardly one.
        yield "no negative zero", Changed(unit=unit, after=lambda d: zero() if d.is_zero else d)


def smallest_product(entry):
    """Exponent of the smallest product that is not zero."""
    if entry.scales:
        return -254
    return sum(FORMATS[name].min_exponent - FORMATS[name].mantissa_bits for name in (entry.a, entry.b))


def fused_mutants(entry):
    unit, smallest = entry.unit, smallest_product(entry)
    wide = entry.scales or "bf16" in entry.a or "tf32" in entry.a
    yield "one bit more", replace(unit, fraction_bits=unit.fraction_bits + 1)
    yield "one bit less", replace(unit, fraction_bits=unit.fraction_bits - 1)
    yield "cut down", replace(unit, cut="down")
    yield "other rounding", replace(unit, rounding="nearest" if unit.rounding == "zero" else "zero")
    yield "subnormals flushed", replace(unit, flush_operands=True)
    yield "products normalised", replace(unit, normalize=True)
    yield "c added last", replace(unit, c_joins=False)
    yield "zero products aligned", replace(unit, zero_products_join=True)
    if wide or unit.output == F16:  # other products are lost beside a c near 2^128
        yield "saturating", replace(unit, saturate=True)
    if not isinstance(unit, Fp4Dot):
        yield "half the terms", replace(unit, terms=unit.terms // 2)
        yield "twice the terms", replace(unit, terms=unit.terms * 2)
    if unit.output == F32:
        yield "one bit less kept", replace(unit, output=F32._replace(fraction_bits=22))
    elif unit.output == F16:
        yield "c not rounded", replace(unit, round_c=False)
        if smallest < F16.min_exponent - unit.fraction_bits:  # else no product is cut beside such a c
            yield "c's exponent widened", replace(unit, c_exponent="widened")
        yield "binary32 output", replace(unit, output=F32)
    else:
        yield "binary32 output", replace(unit, output=F32)
    if unit.floor is not None and smallest < unit.floor - unit.fraction_bits - 1:
        # Products of FP6 and FP4 have so few bits that hardly a case tells another limit, or none: what it cuts
        # rounds to +0 in any case.
        if not (entry.scales and {entry.a, entry.b} & {"e3m2", "e2m3", "e2m1"}):
            yield "no lower limit", replace(unit, floor=None)
            yield "lower limit one higher", replace(unit, floor=unit.floor + 1)
            yield "lower limit one lower", replace(unit, floor=unit.floor - 1)
    if smallest < unit.output.min_exponent - unit.output.fraction_bits:
        yield "other sign of what rounds to zero", replace(unit, keep_sign=not unit.keep_sign)


def scaled_mutants(entry):
    unit = entry.unit
    yield from fused_mutants(entry)
    yield "scales after the sum", replace(unit, late_scales=True)
    yield "c scaled", replace(unit, c_scaled=True)


def fp4_mutants(entry):
    unit = entry.unit
    yield "one bit more", replace(unit, fraction_bits=unit.fraction_bits + 1)
    yield "one bit less", replace(unit, fraction_bits=unit.fraction_bits - 1)
    yield "cut down", replace(unit, cut="down")
    yield "other rounding", replace(unit, rounding="nearest")
    yield "one bit less kept", replace(unit, output=F32._replace(fraction_bits=22))
    yield "magnitude in the exponent", replace(unit, magnitude_in_exponent=True)
    yield "groups of 8", replace(unit, group=8)
    yield "groups of 32", replace(unit, group=32)
    yield "cancelled groups left out", replace(unit, cancelled_joins=False)
    yield "steps of 32", replace(unit, terms=32)
    yield "steps of 128", replace(unit, terms=128)
    if entry.scales[0] == "ue4m3":
        yield "sign of a scale", replace(unit, sign_of_scale=True)
        yield "subnormal scales normalised", replace(unit, subnormal_scale_exponent=False)
    else:
        yield "saturating", replace(unit, saturate=True)
        yield "no lower limit", replace(unit, floor=None)
        yield "lower limit one higher", replace(unit, floor=unit.floor + 1)
        yield "other sign of what rounds to zero", replace(unit, keep_sign=not unit.keep_sign)


def halves_mutants(entry):
    # Operands that are not widened bring exponents 3 higher at most, and no bit of such products is cut.
    unit, inner = entry.unit, entry.unit.inner
    yield "one bit more", replace(unit, inner=replace(inner, fraction_bits=inner.fraction_bits + 1))
    yield "one bit less", replace(unit, inner=replace(inner, fraction_bits=inner.fraction_bits - 1))
    other = "nearest" if inner.rounding == "zero" else "zero"
    yield "other rounding", replace(unit, inner=replace(inner, rounding=other))
    yield "cut down", replace(unit, inner=replace(inner, cut="down"))
    yield "contiguous halves", replace(unit, contiguous=True)
    yield "c first", replace(unit, c_first=True)
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "other order of halves", replace(unit, chained=not unit.chained)
    if unit.chained:
        yield "halves swapped", replace(unit, swapped=True)


def fma_mutants(entry):
    yield "product rounded", replace(entry.unit, fused=False)
    yield "results flushed", replace(entry.unit, flush=True)
    yield "from the end", replace(entry.unit, reverse=True)
    yield "toward zero", replace(entry.unit, rounding="zero")


def exact_mutants(entry):
    unit = entry.unit
    yield "pairwise additions", replace(unit, pairwise=True)
    yield "results flushed", replace(unit, flush=True)
    if unit.output == F16:
        yield "c not rounded", replace(unit, round_c=False)
        yield "binary32 output", replace(unit, output=F32)
    yield "toward zero", replace(unit, rounding="zero")
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "twice the terms", replace(unit, terms=unit.terms * 2)


def group_mutants(entry):
    unit = entry.unit
    yield "operands not flushed", replace(unit, flush_operands=False)
    yield "c not flushed", replace(unit, flush_c=False)
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "twice the terms", replace(unit, terms=unit.terms * 2)
    if entry.a != "f16":  # products of normal FP16 numbers are no smaller than 2^-28
        yield "products not flushed", replace(unit, flush_products=False)
        yield "sums not flushed", replace(unit, flush_sums=False)
        yield "results not flushed", replace(unit, flush_results=False)
    if unit.terms == 4:
        yield "added in order", replace(unit, in_order=True)


def down_mutants(entry):
    unit = entry.unit
    yield "one bit more in products", replace(unit, fraction_bits=unit.fraction_bits + 1)
    yield "one bit less in products", replace(unit, fraction_bits=unit.fraction_bits - 1)
    yield "31 bits in the sum alone", replace(unit, sum_bits=31)
    yield "30 bits in the sum", replace(unit, sum_bits=30)
    yield "one bit more in c", replace(unit, c_bits=unit.c_bits + 1)
    yield "one bit less in c", replace(unit, c_bits=unit.c_bits - 1)
    yield "products cut down", replace(unit, product_cut="down")
    yield "sum cut toward zero", replace(unit, sum_cut="toward zero")
    yield "c cut toward zero", replace(unit, c_cut="toward zero")
    yield "toward zero at the end", replace(unit, rounding="zero")
    yield "subnormal c flushed", replace(unit, flush_c=True)
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "twice the terms", replace(unit, terms=unit.terms * 2)
    if unit.two_groups:
        yield "groups cut toward zero", replace(unit, group_cut="toward zero")
        yield "groups by halves", replace(unit, split="halves")
        yield "one group", replace(unit, two_groups=False)
        yield "far c kept", replace(unit, far_c=None)
        yield "c left out one earlier", replace(unit, far_c=unit.far_c - 1)
        yield "c left out one later", replace(unit, far_c=unit.far_c + 1)
    else:
        yield "far c left out", replace(unit, far_c=25)
    if "bf16" in entry.a or "tf32" in entry.a:
        yield "large products finite", replace(unit, product_limit=False)


def processor_mutants(entry):
    """Rules of binary32 arithmetic, as far as the formats show them: products of FP16 and FP8 are never tiny."""
    unit = entry.unit
    yield "toward zero", replace(unit, rounding="zero")
    if "bf16" in entry.a or "tf32" in entry.a:
        yield "other operands flushed", replace(unit, flush_operands=not unit.flush_operands)
        yield "other results flushed", replace(unit, flush_results=not unit.flush_results)
        # Sums of two binary32 numbers that are normal are not between the largest subnormal and 2^-126.
        if unit.flush_results and not isinstance(unit, RoundedPairs):
            yield "tiny before rounding", replace(unit, tiny="before")
            yield "tiny where subnormal", replace(unit, tiny="subnormal")
    elif not entry.scales:
        other = not (unit.flush_results or unit.flush_operands)
        yield "subnormal c", replace(unit, flush_operands=other, flush_results=other)


def pair_fma_mutants(entry):
    yield "even first", replace(entry.unit, odd_first=False)
    yield "groups of four", replace(entry.unit, terms=4)
    if "bf16" not in entry.a:  # products of BF16 have 16 bits: binary32 holds all but tiny ones
        return
    yield "products rounded", replace(entry.unit, fused=False)


def chain_mutants(entry):
    unit = entry.unit
    yield "another chain", replace(unit, chains=3 - unit.chains)
    yield "c first", replace(unit, c_first=True)
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "twice the terms", replace(unit, terms=unit.terms * 2)
    if unit.chains > 1:
        yield "chains of neighbours", replace(unit, contiguous=True)


def rounded_sum_mutants(entry):
    unit = entry.unit
    yield "c joins", replace(unit, c_joins=True)
    yield "half the terms", replace(unit, terms=unit.terms // 2)
    yield "twice the terms", replace(unit, terms=unit.terms * 2)
    if unit.terms > 2:
        yield "in order", replace(unit, pairwise=True)
    if not unit.integers:
        yield "sums of integers", replace(unit, integers=True)


def rounded_pair_mutants(entry):
    unit = entry.unit
    yield "other rounding", replace(unit, rounding="odd" if unit.rounding == "nearest" else "nearest")
    yield "in order", replace(unit, in_order=True)


def of_processor(make):
    def both(entry):
        yield from processor_mutants(entry)
        yield from make(entry)
    return both


def mutants(entry):
    """Name and unit of each mutant of an entry of the table."""
    kinds = ((ScaledDot, scaled_mutants), (Fp4Dot, fp4_mutants), (FusedDot, fused_mutants), (Halves, halves_mutants),
             (Fma, fma_mutants), (ExactSum, exact_mutants), (FlushedGroups, group_mutants), (RoundDown, down_mutants),
             (FmaPairs, of_processor(pair_fma_mutants)), (FmaChains, of_processor(chain_mutants)),
             (RoundedSum, of_processor(rounded_sum_mutants)), (RoundedPairs, of_processor(rounded_pair_mutants)))
    own = next(make for kind, make in kinds if isinstance(entry.unit, kind))
    return dict(own(entry)) | dict(special_mutants(entry))
