"""Storage words made of a sign, an exponent and a mantissa."""

from exact import FORMATS


def exponents(name):
    """Smallest and largest exponent of a normal number."""
    f = FORMATS[name]
    top = (1 << f.exponent_bits) - (2 if f.specials == "ieee" else 1)
    return f.min_exponent, top - f.bias


def code(name, negative, exponent, mantissa=0):
    """Storage word of a number with this exponent, a power of two if `mantissa` is 0; below the normal numbers a
    subnormal, or zero."""
    f = FORMATS[name]
    low, top = exponents(name)
    mantissa &= (1 << f.mantissa_bits) - 1
    if exponent < low:
        magnitude = ((1 << f.mantissa_bits) | mantissa) >> min(low - exponent, 40)
    else:
        magnitude = (min(exponent, top) + f.bias << f.mantissa_bits) | mantissa
    magnitude_bits = f.exponent_bits + f.mantissa_bits
    if f.specials == "fn" and magnitude == (1 << magnitude_bits) - 1:
        magnitude -= 1
    if f.specials == "fnuz" and magnitude == 0:
        negative = False
    return (magnitude | int(negative) << magnitude_bits) << f.low_bits


def low_code(name, rng):
    """A subnormal number or zero."""
    f = FORMATS[name]
    bits = f.exponent_bits + f.mantissa_bits + f.low_bits
    return (rng.randint(0, (1 << f.mantissa_bits) - 1) << f.low_bits) | int(rng.random() < 0.5) << bits


def specials(name):
    """NaNs, infinities, zeros, the largest and the smallest numbers."""
    f = FORMATS[name]
    bits = f.exponent_bits + f.mantissa_bits
    infinite = (1 << f.exponent_bits) - 1 << f.mantissa_bits
    found = [0, 1, code(name, False, *(exponents(name)[1], -1)), code(name, False, exponents(name)[0])]
    if f.specials == "ieee":
        found += [infinite, infinite, infinite | 1]
    elif f.specials == "fn":
        found += [(1 << bits) - 1]
    if f.specials == "fnuz":
        return found + [x | 1 << bits for x in found]
    return [x << f.low_bits if i not in (2, 3) else x for i, x in enumerate(found)] + \
        [(x << f.low_bits if i not in (2, 3) else x) | 1 << bits + f.low_bits for i, x in enumerate(found)]
