"""Dot products that stand close to the rules of a unit: cuts, ties, far c, cancellation, the ends of the formats.

A case is drawn from the unit's formats and widths alone; what it gives is for the oracle to say.
"""

from dataclasses import dataclass, field

from codes import code, exponents, low_code, specials
from exact import F16, FORMATS
from units import ExactSum, Fma, FlushedGroups, FusedDot, Halves, Processor, RoundDown

KINDS = ("codes", "spread", "cut", "far_c", "ties", "cancel", "tiny", "bottom", "subnormals", "large", "zeros",
         "special", "down")


@dataclass
class Case:
    kind: str
    a: list  # storage words
    b: list
    c: int  # binary32 bits
    scales_a: list = field(default_factory=list)  # codes, one a block
    scales_b: list = field(default_factory=list)


def cuts_of(unit):
    """Distances below the leading bit at which a bit may get lost."""
    if isinstance(unit, Halves):
        return [unit.inner.fraction_bits, unit.output.fraction_bits]
    if isinstance(unit, RoundDown):
        return [unit.fraction_bits, unit.sum_bits, unit.c_bits, 23]
    if isinstance(unit, FusedDot):
        return [unit.fraction_bits, unit.output.fraction_bits]
    assert isinstance(unit, (Fma, ExactSum, FlushedGroups, Processor))
    return [unit.output.fraction_bits, unit.output.fraction_bits + 1]


class Drawer:
    """Draws cases of `terms` products for one entry of the table."""

    def __init__(self, entry, terms, rng):
        self.unit, self.names, self.rng, self.terms, self.entry = entry.unit, (entry.a, entry.b), rng, terms, entry
        (self.low_a, self.top_a), (self.low_b, self.top_b) = exponents(entry.a), exponents(entry.b)
        self.low, self.top = self.low_a + self.low_b, self.top_a + self.top_b
        self.step = min(self.unit.terms, terms) if self.unit.terms > 1 else terms
        self.cuts = cuts_of(self.unit)
        self.output = self.unit.output
        self.shift = 0  # of a scaled product

    def draw(self, kind):
        self.pairs = [self.zero_pair() if self.rng.random() < 0.2 else (0, 0) for _ in range(self.terms)]
        self.scales_a, self.scales_b = self.draw_scales(kind)
        self.free = self.positions(kind)
        c = self.fill(kind)
        return Case(kind, [p[0] for p in self.pairs], [p[1] for p in self.pairs], c, self.scales_a, self.scales_b)

    def fill(self, kind):
        """Sets the operands and gives c."""
        return getattr(self, kind)()

    # ---- parts ----

    def draw_scales(self, kind):
        if not self.entry.scales:
            return [], []
        blocks = self.terms // self.entry.scales[1]
        if kind == "bottom":
            each = 127 - 75 + self.rng.randrange(-9, 10)
            draw = lambda: each
        elif kind == "special" and self.rng.random() < 0.5:
            draw = lambda: self.rng.choice([0, 1, 254, 255, 127, 100, 150])
        elif kind in ("tiny", "large"):
            at = 0 if kind == "tiny" else 200
            draw = lambda: at + self.rng.randrange(54 + 40 * (kind == "tiny"))
        else:
            near = self.rng.choice([3, 3, 20, 40])
            draw = lambda: 127 + self.rng.randrange(-near, near + 1)
        sa, sb = [draw() for _ in range(blocks)], [draw() for _ in range(blocks)]
        self.shift = sa[0] + sb[0] - 254
        return sa, sb

    def positions(self, kind):
        """Places in one step (the first, mostly), or in all; in random order."""
        first = 0 if self.rng.random() < 0.7 else self.rng.randrange(0, self.terms, self.step)
        if kind == "bottom":  # a step of zeros would hide the sign of a zero
            first = (self.terms - 1) // self.step * self.step
        places = list(range(first, min(first + self.step, self.terms)))
        if self.rng.random() < 0.3:
            places = list(range(self.terms))
        if isinstance(self.unit, Halves) and self.sign():
            places = [k for k in places if k % 4 < 2]
        self.rng.shuffle(places)
        return places

    def sign(self):
        return self.rng.random() < 0.5

    def mantissa(self):
        return self.rng.choice([0, 0, -1, 1, self.rng.getrandbits(23), self.rng.getrandbits(23)])

    def put(self, pair):
        if self.free:
            self.pairs[self.free.pop()] = pair

    def product(self, exponent, negative, plain=False):
        """A pair whose stored exponents add up to `exponent` where the formats allow."""
        exponent = max(self.low, min(self.top, exponent))
        ea = self.rng.randint(max(self.low_a, exponent - self.top_b), min(self.top_a, exponent - self.low_b))
        ma, mb = (0, 0) if plain else (self.mantissa(), self.mantissa())
        flip = self.sign()
        return code(self.names[0], flip, ea, ma), code(self.names[1], flip != negative, exponent - ea, mb)

    def power(self, exponent, negative):
        """+-2^exponent, of subnormals where normal numbers do not reach."""
        if exponent >= self.low:
            return self.product(exponent, negative, plain=True)
        ea = max(self.low_a - FORMATS[self.names[0]].mantissa_bits, exponent - self.low_b)
        return code(self.names[0], negative, ea), code(self.names[1], False, exponent - ea)

    def zero_pair(self):
        """A zero beside a number of any size."""
        at = int(self.sign())
        name = self.names[at]
        other = code(name, self.sign(), self.rng.choice([0, exponents(name)[1], -999]))
        null = code(self.names[1 - at], self.sign(), -999)
        return (null, other) if at else (other, null)

    def number(self, exponent, negative=None, mantissa=None):
        """A binary32 c of this exponent in units of the scaled products."""
        negative = self.sign() if negative is None else negative
        mantissa = self.mantissa() if mantissa is None else mantissa
        if self.output == F16 and self.rng.random() < 0.8:
            mantissa &= 0x7FE000
        return code("f32", negative, max(-150, exponent + self.shift), mantissa)

    def smallest(self):
        """Exponent of the smallest product that is not zero, without scales."""
        return self.low - sum(FORMATS[name].mantissa_bits for name in self.names)

    def zero_c(self):
        return 0x80000000 if self.sign() else 0

    def top_exponent(self, below=0):
        """An exponent that leaves `below` binades under it where the formats reach so far."""
        low = max(self.low, -60) + below
        high = min(self.top, 15) if self.output == F16 else min(self.top, 40)
        return self.rng.randint(min(low, high), high)

    # ---- kinds ----

    def codes(self):
        """Any codes; c of any size near theirs."""
        for i in range(self.terms):
            self.pairs[i] = tuple(self.any_code(name) for name in self.names)
        return self.number(self.rng.randint(-30, 30))

    def any_code(self, name):
        f = FORMATS[name]
        low, top = exponents(name)
        middle = max(low - f.mantissa_bits, -24), min(top, 24)
        return code(name, self.sign(), self.rng.randint(*middle), self.rng.getrandbits(23))

    def spread(self):
        window = self.rng.choice([2, 6, 14, 28])
        e = self.top_exponent(window)
        for _ in range(self.rng.choice([3, self.step, self.terms])):
            self.put(self.product(e - self.rng.randrange(window + 1), self.sign()))
        return self.zero_c() if self.rng.random() < 0.2 else self.number(e + self.rng.randint(-window, 6))

    def cut(self):
        """One large term, c or a product, and small ones of one sign around the unit's cut."""
        at = self.rng.choice(self.cuts)
        e = self.top_exponent(at + 3)
        negative, opposite = self.sign(), self.sign()
        leads = self.rng.random() < 0.6
        if leads:
            self.put(self.power(e, negative) if self.sign() else self.product(e, negative))
        for _ in range(self.rng.choice([1, 1, 2, 3, self.step])):
            exponent, sign = e - at + self.rng.randint(-4, 2), negative != opposite
            self.put(self.product(exponent, sign) if self.sign() else self.power(exponent, sign))
        if not leads:
            return self.number(e, negative)
        return self.zero_c() if self.sign() else self.number(e - at + self.rng.randint(-4, 2))

    def far_c(self):
        """c above or below all products by about a cut."""
        at = self.rng.choice([*self.cuts, 26, 32])
        e = self.top_exponent()
        for _ in range(self.rng.choice([1, 2, self.step])):
            self.put(self.product(e - self.rng.choice([0, 0, 1, 5]), self.sign()))
        return self.number(e + self.rng.choice([-1, 1]) * (at + self.rng.randint(-3, 3)))

    def ties(self):
        """Half a unit in the last place, with or without something below it."""
        last = self.output.fraction_bits if self.rng.random() < 0.8 else self.rng.choice(self.cuts)
        e = self.top_exponent(last + 3)
        negative = self.sign()
        if c_leads := self.sign():
            c = self.number(e, negative, self.rng.choice([0, 1, 2, -1, 3]) << 23 - self.output.fraction_bits)
        elif self.sign():
            self.put(self.power(e, negative))
            self.put(self.power(e - last, negative))
            c = self.zero_c()
        else:  # 1.5 * 1.5, whose leading bit is one above its exponent
            half = [1 << FORMATS[name].mantissa_bits - 1 for name in self.names]
            ea = max(self.low_a, min(self.top_a, e - 1 - self.rng.randint(self.low_b, self.top_b)))
            eb = max(self.low_b, min(self.top_b, e - 1 - ea))
            self.put((code(self.names[0], negative, ea, half[0]), code(self.names[1], False, eb, half[1])))
            e = ea + eb + 1
            c = self.zero_c()
        self.put(self.power(e - last - 1, negative if self.rng.random() < 0.7 else not negative))
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            below = self.rng.choice([last + 2, *(cut + d for cut in self.cuts for d in range(4)), 40, 60])
            self.put(self.power(e - below, self.sign()))
        if not c_leads and self.rng.random() < 0.3:
            c = self.number(e - last - self.rng.randint(1, 16))
        return c

    def cancel(self):
        """Large terms that cancel, exactly or nearly; what is left is small."""
        e = self.top_exponent(10)
        count = self.rng.choice([1, 2, self.step // 2])
        pairs = [self.product(e - self.rng.randrange(3), self.sign()) for _ in range(count)]
        narrow = {"e2m1": 0x8, "e2m3": 0x20, "e3m2": 0x20}
        sign_bit = [narrow.get(name, 1 << 4 * FORMATS[name].digits - 1) for name in self.names]
        with_c = self.rng.random() < 0.4
        if with_c and self.sign():
            negative = self.sign()
            self.put(self.power(e, negative))
            return self.number(e, not negative, self.rng.choice([0, 0, 1 << 13, 1, -1]))
        for a, b in pairs:
            self.put((a, b))
            if not with_c:
                self.put((a ^ sign_bit[0], b) if a & ~sign_bit[0] else (a, b ^ sign_bit[1]))
        for _ in range(self.rng.choice([0, 1, 2])):
            self.put(self.product(e - self.rng.randint(1, 40), self.sign()))
        if with_c:
            return self.number(e + self.rng.randint(0, 2))
        return self.zero_c() if self.sign() else self.number(e - self.rng.randint(1, 40))

    def tiny(self):
        """The lowest exponents; in wide formats those at which products and sums leave binary32."""
        bottom = self.low if self.low > -60 else self.rng.choice([self.low, -150, -140, -126])
        if self.entry.scales:
            bottom = self.low
        for _ in range(self.rng.choice([1, 2, 4, self.step, self.terms])):
            exponent = bottom + self.rng.randint(-8, 12)
            self.put(self.power(exponent, self.sign()) if self.sign() else self.product(exponent, self.sign()))
        if self.output == F16:
            return self.rng.choice([self.zero_c(), self.number(self.rng.randint(-28, -10))])
        return self.rng.choice([self.zero_c(), self.rng.getrandbits(23) | self.zero_c(),
                                code("f32", self.sign(), self.rng.randint(-149, -120), self.mantissa())])

    def subnormals(self):
        """Subnormal operands, whose stored exponents stand above their values."""
        def other(name, spread):
            low, top = exponents(name)
            return code(name, self.sign(), min(top, low + self.rng.randrange(spread)), self.mantissa())

        spread = self.rng.choice([3, 30, 250])
        for _ in range(self.rng.choice([1, 2, 4, self.step])):
            self.put((low_code(self.names[0], self.rng), other(self.names[1], spread)) if self.sign() else
                     (other(self.names[0], spread), low_code(self.names[1], self.rng)))
        for _ in range(self.rng.choice([0, 1, 2])):
            self.put(self.product(self.low + self.rng.randrange(2 * spread), self.sign()))
        if "fnuz" in self.names[0] + self.names[1]:
            self.pairs = [tuple(0 if x == 0x80 else x for x in pair) for pair in self.pairs]
        return self.rng.choice([self.zero_c(), self.number(self.low + self.rng.randint(-12, 30)),
                                code("f32", self.sign(), self.rng.choice([-140, -20, -16, -13]), self.mantissa())])

    def large(self):
        """The highest exponents, and sums past the output's largest number."""
        top = self.top
        if self.output == F16:
            top = min(self.top, 16)
        elif self.top > 128:
            top = self.rng.choice([self.top, 128, 127, 127])
        for _ in range(self.rng.choice([1, 2, 4, self.step])):
            pair = self.product(top - self.rng.choice([0, 0, 1, 3]), self.sign())
            self.put(pair)
            if self.rng.random() < 0.3:
                self.put(self.product(top, self.sign()))
        highest = 15 if self.output == F16 else 127
        self.shift = 0
        return self.rng.choice([self.zero_c(), self.number(highest), self.number(highest, None, -1),
                                self.number(highest - 24)])

    def zeros(self):
        """Zeros of both signs everywhere, at most one or two small products beside them."""
        signed = self.rng.random() < 0.5
        for i in range(self.terms):
            self.pairs[i] = self.zero_pair() if signed else self.negative_zero()
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            self.put(self.product(self.rng.choice([self.low, self.top_exponent()]), self.sign()))
        return self.rng.choice([0, 0x80000000, 0x80000000, 1, 0x80000001, self.number(self.top_exponent())])

    def negative_zero(self):
        return code(self.names[0], True, 0), code(self.names[1], False, -999)

    def bottom(self):
        """Sums that are just lost, or just kept, at the lower end: of the output, and of the alignment."""
        if isinstance(self.unit, Processor) and self.low <= -151 and self.sign():
            return self.edge()
        if isinstance(self.unit, (FlushedGroups, Processor)) and self.low <= -126 and not self.entry.scales:
            for _ in range(self.rng.choice([2, self.terms])):
                self.put(self.product(-126 + self.rng.randrange(3), self.sign()))
            return code("f32", self.sign(), -126 + self.rng.randrange(3), self.mantissa())
        last = self.output.min_exponent - self.output.fraction_bits
        floor = getattr(self.unit, "floor", None)
        lost = last if floor is None else floor - self.unit.fraction_bits
        lowest = self.smallest() + self.shift
        negative = self.rng.random() < 0.8
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            at = self.rng.choice([lost, lost, last, last - 1, lowest, lowest + 1]) + self.rng.choice([0, 0, -1, 1])
            self.put(self.power(at - self.shift, negative if self.rng.random() < 0.8 else not negative))
        if self.output == F16 and self.sign():
            return code("f32", self.sign(), self.rng.randint(-25, -15), self.mantissa() & 0x600000)
        return self.zero_c()

    def edge(self):
        """Just below 2^-126: sums that are there before rounding to 24 bits, after it, or as subnormals."""
        negative = self.sign()
        with_c = self.sign()
        if not with_c:
            self.put(self.power(-126, negative))
        mantissas = [self.rng.choice([0, 1, 2, 3]) << FORMATS[name].mantissa_bits - 2 for name in self.names]
        for _ in range(self.rng.choice([1, 1, 2])):
            ea = self.rng.randint(max(self.low_a, -90), -60)
            self.put((code(self.names[0], not negative, ea, mantissas[0]),
                      code(self.names[1], False, self.rng.choice([-152, -151, -151, -150, -149]) - ea, 0)))
        return code("f32", negative, -126, 0) if with_c else self.zero_c()

    def down(self):
        """Half a unit of the sum with c, and bits of the products' sum at its own lower end."""
        if not isinstance(self.unit, RoundDown):
            return self.ties()
        lowest = max(self.smallest(), -60)
        e = self.rng.randint(lowest + 32, max(lowest + 40, min(self.top, 40)))
        negative = self.sign()
        self.put(self.power(e - self.rng.randint(6, 11), negative))
        self.put(self.power(e - self.rng.choice([24, 25]), not negative))
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            self.put(self.power(e - self.rng.choice([29, 30, 31, 32, 32, 33, 34]), self.sign()))
        return self.number(e, self.sign(), self.rng.choice([0, 0, -1, 1]))

    def special(self):
        self.spread()
        for _ in range(self.rng.choice([0, 1, 1, 2, 4])):
            i = self.rng.randrange(self.terms)
            pair = [self.rng.choice(specials(name)) for name in self.names]
            side = self.rng.choice([0, 1, 2])
            self.pairs[i] = tuple(x if side in (2, j) else self.any_code(self.names[j]) for j, x in enumerate(pair))
        return self.rng.choice([self.zero_c(), self.number(0), 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF,
                                0x7F800001, 0x7F7FFFFF, 0xFF7FFFFF, self.number(0), self.number(5)])
