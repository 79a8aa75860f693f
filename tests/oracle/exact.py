"""Numbers as matrix units see them, in exact integer arithmetic.

A finite number is n * 2^unit with an integer n of any size; it also carries the stored exponent of its
format, by which units align. Nothing here comes from the library: formats are from OCP OFP8 and MX, IEEE 754,
and AMD's CDNA3 manual (FNUZ).
"""

from typing import NamedTuple


class Format(NamedTuple):
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: str  # "ieee"; "fn": all ones is NaN; "fnuz": the code of -0 is NaN; "none"
    digits: int = 2  # hex digits of a stored element
    signed: bool = True

    @property
    def min_exponent(self):
        return 1 - self.bias

    @property
    def low_bits(self):
        """Bits of the stored word below the code: TF32 and XF32 live in binary32."""
        return max(4 * self.digits - 1 - self.exponent_bits - self.mantissa_bits, 0) if self.digits == 8 else 0


FORMATS = {
    "e4m3fn": Format(4, 3, 7, "fn"),
    "e5m2": Format(5, 2, 15, "ieee"),
    "e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "e2m1": Format(2, 1, 1, "none"),
    "e2m3": Format(2, 3, 1, "none"),
    "e3m2": Format(3, 2, 3, "none"),
    "f16": Format(5, 10, 15, "ieee", 4),
    "bf16": Format(8, 7, 127, "ieee", 4),
    "tf32": Format(8, 10, 127, "ieee", 8),
    "f32": Format(8, 23, 127, "ieee", 8),
}


class Number(NamedTuple):
    kind: str  # "finite", "inf", "nan"
    negative: bool
    n: int = 0  # signed; 0 for zeros, whose sign is `negative`
    unit: int = 0
    exponent: int = 0

    @property
    def is_zero(self):
        return self.kind == "finite" and self.n == 0


NAN = Number("nan", False)


def infinity(negative):
    return Number("inf", negative)


def zero(negative=False):
    return Number("finite", negative)


def decode(name, word, all_numbers=False):
    """The number of a storage word; bits below a TF32 or XF32 code are cut off. `all_numbers`: codes of NaN and
    infinities are read as the numbers after the largest one."""
    f = FORMATS[name]._replace(specials="none") if all_numbers else FORMATS[name]
    code = word >> f.low_bits
    magnitude_bits = f.exponent_bits + f.mantissa_bits
    negative, magnitude = bool(code >> magnitude_bits & 1), code & ((1 << magnitude_bits) - 1)
    field, mantissa = magnitude >> f.mantissa_bits, magnitude & ((1 << f.mantissa_bits) - 1)
    if f.specials == "ieee" and field == (1 << f.exponent_bits) - 1:
        return NAN if mantissa else infinity(negative)
    if f.specials == "fn" and magnitude == (1 << magnitude_bits) - 1:
        return NAN
    if f.specials == "fnuz" and negative and magnitude == 0:
        return NAN
    significand = mantissa + (1 << f.mantissa_bits if field else 0)
    exponent = max(field, 1) - f.bias
    return Number("finite", negative, -significand if negative else significand, exponent - f.mantissa_bits, exponent)


def decode_scale(name, code):
    """A block scale: UE8M0 is 2^(code - 127), all codes but NaN; UE4M3 is E4M3 whose sign bit says nothing."""
    if name == "ue8m0":
        return NAN if code == 255 else Number("finite", False, 1, code - 127, code - 127)
    return decode("e4m3fn", code & 0x7F)


def product(a, b):
    """Exact; the exponent is the sum of the stored ones."""
    negative = a.negative != b.negative
    if "nan" in (a.kind, b.kind):
        return NAN
    if "inf" in (a.kind, b.kind):
        return NAN if a.is_zero or b.is_zero else infinity(negative)
    return Number("finite", negative, a.n * b.n, a.unit + b.unit, a.exponent + b.exponent)


def special_sum(terms):
    """NaN or an infinity where the terms have one that decides, else nothing."""
    signs = {t.negative for t in terms if t.kind == "inf"}
    if len(signs) == 2 or any(t.kind == "nan" for t in terms):
        return NAN
    return infinity(signs.pop()) if signs else None


def to_unit(n, shift, how):
    """n * 2^shift as an integer; what does not fit is dropped "toward zero" or "down"."""
    if shift >= 0:
        return n << shift
    if how == "down" or n >= 0:
        return n >> -shift
    return -(-n >> -shift)


def aligned(term, unit, how="toward zero"):
    return to_unit(term.n, term.unit - unit, how)


def binade(x):
    """floor(log2 |x|) of a number that is not zero."""
    return abs(x.n).bit_length() - 1 + x.unit


class Output(NamedTuple):
    fraction_bits: int
    min_exponent: int
    max_exponent: int


F32, F16, E8M13 = Output(23, -126, 127), Output(10, -14, 15), Output(13, -126, 127)


def rounded(n, unit, output, rounding, zero_sign=False):
    """n * 2^unit in `output`, with gradual underflow; past its largest number an infinity.

    `rounding` is "zero" or "nearest" (ties to even). The sign of an exact zero is `zero_sign`; a number that
    rounds to zero keeps its own.
    """
    if n == 0:
        return zero(zero_sign)
    negative, magnitude = n < 0, abs(n)
    exponent = max(magnitude.bit_length() - 1 + unit, output.min_exponent)
    shift = unit - (exponent - output.fraction_bits)
    if shift >= 0:
        kept = magnitude << shift
    else:
        kept, rest = magnitude >> -shift, magnitude & ((1 << -shift) - 1)
        half = 1 << (-shift - 1)
        if rounding == "nearest" and (rest > half or (rest == half and kept & 1)):
            kept += 1
    if kept == 2 << output.fraction_bits:
        kept, exponent = kept >> 1, exponent + 1
    if exponent > output.max_exponent:
        return infinity(negative)
    return Number("finite", negative, -kept if negative else kept, exponent - output.fraction_bits, exponent)


def in_format(x, output):
    """x rounded to nearest even."""
    return rounded(x.n, x.unit, output, "nearest", x.negative) if x.kind == "finite" else x


def added(x, y, output):
    """IEEE 754 addition, to nearest even."""
    special = special_sum((x, y))
    if special:
        return special
    unit = min(x.unit, y.unit)
    return rounded(aligned(x, unit) + aligned(y, unit), unit, output, "nearest", x.negative and y.negative)


def word(x):
    """The binary32 bits of a number that binary32 has; NaN is 0x7fffffff."""
    sign = 0x80000000 if x.negative else 0
    if x.kind == "nan":
        return 0x7FFFFFFF
    if x.kind == "inf":
        return sign | 0x7F800000
    if x.n == 0:
        return sign
    exponent = max(binade(x), -126)
    shift = x.unit - (exponent - 23)
    significand = to_unit(abs(x.n), shift, "down")
    assert significand << max(-shift, 0) == abs(x.n) << max(shift, 0) and exponent < 128, x
    return sign | significand + (exponent + 126 << 23)
