"""Every matrix unit, in exact integer arithmetic, written from the published descriptions and not from the library.

Sources: Khattak and Mikaitis 2025 (NVIDIA, measured, and their MATLAB models), MMA-Sim (arXiv 2511.10909 and its
later state).
A unit computes d = c + a . b in a chain of steps of `terms` products; table.py names all of them. The fields of a
unit are its parameters, so that a mutant is a unit with one field changed (mutants.py). Fields under "rules" are
switches that real units all have in one position.
"""

from dataclasses import dataclass, replace

from exact import (E8M13, F16, F32, NAN, Number, Output, added, aligned, binade, decode_scale, in_format, infinity,
                   product, rounded, special_sum, to_unit, zero)


@dataclass(frozen=True)
class Unit:
    terms: int = 1
    output: Output = F32

    def enter(self, c):
        """c as the first step sees it."""
        return c

    def dot(self, a, b, c, scales_a=(), scales_b=(), block=0, scale_format=None):
        c = self.enter(c)
        for k in range(0, len(a), self.terms):
            c = self.step(a[k:k + self.terms], b[k:k + self.terms], c)
        return c


def normalized(x):
    """x with the exponent of its leading bit: what units do not do."""
    return x._replace(exponent=binade(x)) if x.kind == "finite" and x.n else x


def flushed(x, min_exponent, keep_sign=True):
    if x.kind != "finite" or (x.n and binade(x) >= min_exponent):
        return x
    return zero(x.negative and keep_sign)


@dataclass(frozen=True)
class FusedDot(Unit):
    """NVIDIA: all products and c cut to the largest exponent's grid, added exactly, rounded once."""

    fraction_bits: int = 25
    rounding: str = "zero"
    floor: int | None = None  # the alignment exponent is no less
    # rules
    cut: str = "toward zero"
    normalize: bool = False
    flush_operands: bool = False
    c_exponent: str = "stored"  # FP16 output; "widened": that of c in binary32
    c_joins: bool = True  # False: c is added to the rounded sum
    round_c: bool = True
    zero_products_join: bool = False
    keep_sign: bool = True  # of a sum that rounds to zero
    minus_zero: bool = False  # the sum of negative zeros alone would be one
    saturate: bool = False

    def enter(self, c):
        return in_format(c, F16) if self.output == F16 and self.round_c else c

    def operand(self, x):
        subnormal = x.kind == "finite" and x.n and binade(x) < x.exponent
        return zero(x.negative) if subnormal and self.flush_operands else x

    def step(self, a, b, c):
        return self.sum([product(self.operand(x), self.operand(y)) for x, y in zip(a, b)], c)

    def sum(self, products, c):
        special = special_sum([*products, c])
        if special:
            return special
        if self.normalize:
            products = [normalized(p) for p in products]
        if self.c_exponent == "widened" and c.n:
            c = c._replace(exponent=max(binade(c), -126))
        if not self.c_joins:
            return added(c, self.sum_of(products, products), self.output)
        if self.minus_zero and all(t.is_zero and t.negative for t in [*products, c]):
            return zero(True)
        return self.sum_of([*products, c], products if self.zero_products_join else [])

    def sum_of(self, terms, also):
        exponents = [t.exponent for t in terms if t.n] + [t.exponent for t in also if self.zero_products_join]
        if not exponents:
            return zero()
        unit = max([*exponents, self.floor] if self.floor is not None else exponents) - self.fraction_bits
        return self.finish(sum(aligned(t, unit, self.cut) for t in terms), unit)

    def finish(self, total, unit):
        d = rounded(total, unit, self.output, self.rounding)
        if self.saturate and d.kind == "inf":
            top = self.output.max_exponent
            n = (2 << self.output.fraction_bits) - 1
            return Number("finite", d.negative, -n if d.negative else n, top - self.output.fraction_bits, top)
        return zero() if d.is_zero and not self.keep_sign else d


@dataclass(frozen=True)
class Halves(Unit):
    """FP8 made FP16: two FP16 steps, k mod 4 < 2 and the rest, from zero; c is added at the end."""

    inner: FusedDot = FusedDot()
    # rules
    chained: bool = True
    swapped: bool = False
    contiguous: bool = False  # the first and the second half of k instead
    c_first: bool = False  # the first step starts from c

    @property
    def half(self):
        return replace(self.inner, terms=self.terms // 2, output=self.output)

    def enter(self, c):
        return in_format(c, self.output)

    def step(self, a, b, c):
        a, b = ([self.widened(x) for x in side] for side in (a, b))
        first = [k for k in range(len(a)) if (k < len(a) // 2 if self.contiguous else k % 4 < 2) != self.swapped]
        groups = [first, [k for k in range(len(a)) if k not in first]]
        sums, start = [], c if self.c_first else zero()
        for group in groups:
            start = self.half.step([a[k] for k in group], [b[k] for k in group], start)
            sums.append(start)
            if not self.chained:
                start = zero()
        if self.c_first:
            return sums[1]
        total = sums[1] if self.chained else added(sums[0], sums[1], self.output)
        return added(c, total, self.output)

    @staticmethod
    def widened(x):
        return x._replace(exponent=max(binade(x), -14)) if x.kind == "finite" and x.n else x


@dataclass(frozen=True)
class ScaledDot(FusedDot):
    """mxf8f6f4: the fused step, with the scales' exponents in those of the products before they are aligned."""

    late_scales: bool = False  # aligned without the scales, which then multiply the sum
    c_scaled: bool = False

    def dot(self, a, b, c, scales_a=(), scales_b=(), block=0, scale_format=None):
        for k in range(0, len(a), self.terms):
            products = []
            for i in range(k, min(k + self.terms, len(a))):
                sa, sb = (decode_scale(scale_format, s[i // block]) for s in (scales_a, scales_b))
                if NAN in (sa, sb):
                    return NAN
                p = product(self.operand(a[i]), self.operand(b[i]))
                scale = product(sa, sb)
                products.append(p._replace(unit=p.unit + scale.unit,
                                           exponent=p.exponent + (0 if self.late_scales else scale.exponent)))
            if self.c_scaled and c.kind == "finite":
                c = c._replace(unit=c.unit + scale.unit, exponent=c.exponent + scale.exponent)
            c = self.sum(products, c)
        return c


@dataclass(frozen=True)
class Fp4Dot(FusedDot):
    """mxf4nvf4: four groups of 16, each summed exactly; the scales' significands and exponents make its term."""

    terms: int = 64
    fraction_bits: int = 35
    floor: int | None = -139
    group: int = 16
    # rules
    cancelled_joins: bool = True  # a group that cancels keeps its scale's exponent
    magnitude_in_exponent: bool = False
    sign_of_scale: bool = False  # UE4M3's sign bit would count
    subnormal_scale_exponent: bool = True  # -6; else that of its leading bit

    def dot(self, a, b, c, scales_a=(), scales_b=(), block=0, scale_format=None):
        products = [product(x, y) for x, y in zip(a, b)]
        for k in range(0, len(a), self.terms):
            end = min(k + self.terms, len(a))
            scales = {g: self.scale(scales_a[g // block], scales_b[g // block], scale_format)
                      for g in range(k, end, self.group)}
            if NAN in scales.values() or c.kind == "nan":
                return NAN
            groups = [self.term(products[g:g + self.group], scale) for g, scale in scales.items()]
            if c.kind == "finite":
                c = self.group_sum([g for g in groups if g], c)
        return c

    def scale(self, a, b, name):
        sa, sb = decode_scale(name, a), decode_scale(name, b)
        if NAN in (sa, sb):
            return NAN
        if not self.subnormal_scale_exponent:
            sa, sb = normalized(sa), normalized(sb)
        scale = product(sa, sb)
        negative = self.sign_of_scale and name == "ue4m3" and (a ^ b) & 0x80
        return scale._replace(n=-scale.n) if negative else scale

    def term(self, products, scale):
        """The term of a group, nothing where all its products or its scale are zero."""
        if scale.n == 0 or not any(p.n for p in products):
            return None
        unit = min(p.unit for p in products)
        n = sum(aligned(p, unit) for p in products) * scale.n
        term = Number("finite", n < 0, n, unit + scale.unit, scale.exponent)
        return normalized(term) if self.magnitude_in_exponent else term

    def group_sum(self, groups, c):
        exponents = [g.exponent for g in groups if g.n or self.cancelled_joins] + ([c.exponent] if c.n else [])
        unit = max([*exponents, self.floor] if self.floor is not None else exponents or [0]) - self.fraction_bits
        return self.finish(sum(aligned(t, unit, self.cut) for t in [*groups, c]), unit)


@dataclass(frozen=True)
class Fma(Unit):
    """Sequential binary32: c = fma(a, b, c), to nearest even."""

    # rules
    fused: bool = True
    flush: bool = False
    reverse: bool = False
    rounding: str = "nearest"

    def dot(self, a, b, c, scales_a=(), scales_b=(), block=0, scale_format=None):
        pairs = list(zip(a, b))
        for x, y in reversed(pairs) if self.reverse else pairs:
            p = product(x, y)
            p = p if self.fused else in_format(p, F32)
            special = special_sum((p, c))
            if special:
                c = special
                continue
            unit = min(p.unit, c.unit)
            c = rounded(aligned(p, unit) + aligned(c, unit), unit, F32, self.rounding, p.negative and c.negative)
            c = flushed(c, -126) if self.flush else c
        return c


@dataclass(frozen=True)
class ExactSum(Unit):
    """CDNA1, and Arm's dot products of FP8: c and `terms` products added exactly and rounded once."""

    # rules
    pairwise: bool = False  # every addition rounded to the output
    flush: bool = False
    rounding: str = "nearest"
    round_c: bool = True

    def enter(self, c):
        return in_format(c, self.output) if self.round_c else c

    def step(self, a, b, c):
        products = [product(x, y) for x, y in zip(a, b)]
        if self.pairwise:
            return added(c, tree([in_format(p, self.output) for p in products], self.output), self.output)
        special = special_sum([*products, c])
        if special:
            return special
        terms = [*products, c]
        unit = min(t.unit for t in terms)
        total = sum(aligned(t, unit) for t in terms)
        d = rounded(total, unit, self.output, self.rounding, all(t.is_zero and t.negative for t in terms))
        return flushed(d, self.output.min_exponent) if self.flush else d


def tree(values, output=F32):
    while len(values) > 1:
        values = [added(*values[i:i + 2], output) if i + 1 < len(values) else values[i]
                  for i in range(0, len(values), 2)]
    return values[0]


@dataclass(frozen=True)
class FlushedGroups(Unit):
    """CDNA2: binary32 products and sums in groups; subnormal operands, c and results become zero."""

    # rules
    flush_operands: bool = True
    operand_zero_keeps_sign: bool = False
    flush_c: bool = True
    flush_products: bool = True
    flush_sums: bool = True
    flush_results: bool = True
    in_order: bool = False  # ((p0 + p1) + p2) + p3

    def enter(self, c):
        return flushed(c, -126, keep_sign=False) if self.flush_c else c

    def step(self, a, b, c):
        if self.flush_operands:
            a, b = ([self.operand(x) for x in side] for side in (a, b))
        products = [in_format(product(x, y), F32) for x, y in zip(a, b)]
        if self.flush_products:
            products = [flushed(p, -126) for p in products]
        if self.in_order:
            total = products[0]
            for p in products[1:]:
                total = self.sum(total, p)
        else:
            while len(products) > 1:
                products = [self.sum(*products[i:i + 2]) for i in range(0, len(products), 2)]
            total = products[0]
        d = added(c, total, F32)
        return flushed(d, -126) if self.flush_results else d

    def operand(self, x):
        subnormal = x.kind == "finite" and (x.n == 0 or binade(x) < x.exponent)
        return zero(x.negative and self.operand_zero_keeps_sign) if subnormal else x

    def sum(self, x, y):
        s = added(x, y, F32)
        return flushed(s, -126) if self.flush_sums else s


@dataclass(frozen=True)
class RoundDown(Unit):
    """CDNA3: products cut to their own largest exponent, then their sum and c cut down to the larger one of both.

    `sum_bits` 31: the sum of the products keeps 31 bits, and d is rounded from the exact sum with c. 32: it keeps 32,
    and the sum with c is first cut down to 31 fraction bits. Sources disagree, and 32 is the default.
    """

    two_groups: bool = False  # FP8 and BF8: even and odd products
    fraction_bits: int = 24
    sum_bits: int = 32
    c_bits: int = 24
    # rules
    product_cut: str = "toward zero"
    sum_cut: str = "down"
    group_cut: str = "down"
    c_cut: str = "down"
    far_c: int | None = None  # c is left out where its exponent is less than E - far_c
    product_limit: bool = True  # a product of 2^128 or more is an infinity
    split: str = "parity"  # "halves": the first and the second half of k
    flush_c: bool = False
    rounding: str = "nearest"

    def step(self, a, b, c):
        products = [self.limited(product(x, y)) for x, y in zip(a, b)]
        special = special_sum([*products, c])
        if special:
            return special
        c_exponent = c.exponent if c.n else -126
        e, n, unit = self.product_sum(products)
        top = c_exponent if e is None else max(e, c_exponent)
        sum_unit = top - self.sum_bits
        total = to_unit(n, unit - sum_unit, self.sum_cut)
        c_part = aligned(c, top - self.c_bits, self.c_cut)
        if (self.far_c is not None and c_exponent < top - self.far_c) or (self.flush_c and c.n and binade(c) < -126):
            c_part = 0
        whole = total + (c_part << (self.sum_bits - self.c_bits))
        minus_zero = c.negative and c.is_zero and all(p.is_zero and p.negative for p in products)
        if self.sum_bits == 32 and whole:
            kept = max(abs(whole).bit_length() - 1 + sum_unit, -126) - 31
            whole, sum_unit = to_unit(whole, sum_unit - kept, "down"), kept
        return rounded(whole, sum_unit, F32, self.rounding, minus_zero)

    def limited(self, p):
        past = self.product_limit and p.kind == "finite" and p.n and binade(p) >= 128
        return infinity(p.negative) if past else p

    def product_sum(self, products):
        """Exponent (nothing if all are zero), sum and its unit."""
        if not self.two_groups:
            return self.group_sum(products)
        half = len(products) // 2
        groups = (products[::2], products[1::2]) if self.split == "parity" else (products[:half], products[half:])
        sums = [self.group_sum(g) for g in groups]
        exponents = [s[0] for s in sums if s[0] is not None]
        if not exponents:
            return None, 0, 0
        e = max(exponents)
        unit = e - self.fraction_bits
        return e, sum(to_unit(s[1], s[2] - unit, self.group_cut) for s in sums), unit

    def group_sum(self, products):
        live = [p for p in products if p.n]
        if not live:
            return None, 0, 0
        e = max(p.exponent for p in live)
        unit = e - self.fraction_bits
        return e, sum(aligned(p, unit, self.product_cut) for p in live), unit


ONE = Number("finite", False, 1)
UNBOUNDED = Output(23, -10**6, 10**6)


@dataclass(frozen=True)
class Processor(Unit):
    """Binary32 arithmetic of x86 and Arm: exact operations, rounded once."""

    flush_operands: bool = False  # those below 2^-126, c too, are zeros of their sign
    flush_results: bool = False
    rounding: str = "nearest"  # or "odd": cut, and the last bit set where something was cut off
    # rules
    tiny: str = "after"  # a result is below 2^-126 "after" rounding to 24 bits, "before" it, or as a "subnormal"
    fused: bool = True  # else products are rounded before they are added

    def read(self, x):
        return flushed(x, -126) if self.flush_operands else x

    def result(self, n, unit, negative_zero):
        """n * 2^unit as a binary32 number."""
        if n == 0:
            return zero(negative_zero)
        if self.flush_results:
            seen = {"before": Number("finite", n < 0, n, unit), "after": self.rounded(n, unit, UNBOUNDED),
                    "subnormal": self.rounded(n, unit, F32)}[self.tiny]
            if seen.kind == "finite" and (seen.n == 0 or binade(seen) < -126):
                return zero(n < 0)
        return self.rounded(n, unit, F32)

    def rounded(self, n, unit, output):
        if self.rounding != "odd":
            return rounded(n, unit, output, self.rounding)
        cut = rounded(n, unit, output, "zero")
        if cut.kind == "inf" or to_unit(cut.n, cut.unit - min(unit, cut.unit), "down") == n << unit - min(unit, cut.unit):
            return cut
        return cut._replace(n=(abs(cut.n) | 1) * (-1 if n < 0 else 1))

    def product(self, a, b):
        """As an addition takes it: exact, or rounded."""
        p = product(self.read(a), self.read(b))
        return p if self.fused or p.kind != "finite" else self.result(p.n, p.unit, p.negative)

    def added(self, *terms):
        special = special_sum(terms)
        if special:
            return special
        unit = min(t.unit for t in terms)
        return self.result(sum(aligned(t, unit) for t in terms), unit, all(t.is_zero and t.negative for t in terms))

    def fma(self, a, b, c):
        return self.added(self.product(a, b), self.read(c))


def padded(side, terms):
    return [*side, *[zero()] * (terms - len(side))]


@dataclass(frozen=True)
class FmaPairs(Processor):
    """VDPBF16PS, VDPPHPS: c = fma(a1, b1, c), then c = fma(a0, b0, c)."""

    terms: int = 2
    # rules
    odd_first: bool = True

    def step(self, a, b, c):
        a, b = padded(a, self.terms), padded(b, self.terms)
        for i in reversed(range(self.terms)) if self.odd_first else range(self.terms):
            c = self.fma(a[i], b[i], c)
        return c


@dataclass(frozen=True)
class FmaChains(Processor):
    """AMX: product i goes to chain i mod `chains` from +0; the chains are added, and then c."""

    chains: int = 2
    # rules
    contiguous: bool = False  # chains of neighbours
    c_first: bool = False  # the first chain starts from c

    def step(self, a, b, c):
        sums = [zero()] * self.chains
        if self.c_first:
            sums[0] = c
        for i, (x, y) in enumerate(zip(a, b)):
            chain = i * self.chains // self.terms if self.contiguous else i % self.chains
            sums[chain] = self.fma(x, y, sums[chain])
        total = sums[0]
        for other in sums[1:]:
            total = self.added(self.read(total), self.read(other))
        return total if self.c_first else self.added(self.read(c), self.read(total))


@dataclass(frozen=True)
class RoundedSum(Processor):
    """AMX FP8, Arm's pairs: the exact sum of the products, rounded, then added to c."""

    integers: bool = False  # sums of integers, which have no -0
    # rules
    c_joins: bool = False  # c in the exact sum
    pairwise: bool = False

    def step(self, a, b, c, scale=None):
        products = [self.product(x, y) for x, y in zip(a, b)]
        if scale:
            products = [p._replace(unit=p.unit + scale.unit) for p in products]
        if self.c_joins:
            return self.added(self.read(c), *products)
        if self.pairwise:
            total = self.added(products[0])
            for p in products[1:]:
                total = self.added(total, p)
        else:
            total = self.added(*products)
        if self.integers and total.is_zero and not any(p.n for p in products if p.kind == "finite"):
            total = zero()
        return self.added(self.read(c), self.read(total))


@dataclass(frozen=True)
class ScaledRoundedSum(RoundedSum):
    """ACE: the same of scaled products."""

    # rules
    late_scales: bool = False  # the rounded sum of unscaled products is scaled, exactly

    def dot(self, a, b, c, scales_a=(), scales_b=(), block=0, scale_format=None):
        for k in range(0, len(a), self.terms):
            sa, sb = (decode_scale(scale_format, s[k // block]) for s in (scales_a, scales_b))
            if NAN in (sa, sb):
                c = NAN
                continue
            c = self.step(a[k:k + self.terms], b[k:k + self.terms], c, product(sa, sb))
        return c


@dataclass(frozen=True)
class RoundedPairs(Processor):
    """BFDOT, TOP2BF16PS: both products, their sum, and that with c are rounded."""

    terms: int = 2
    fused: bool = False
    # rules
    in_order: bool = False  # (c + p0) + p1

    def step(self, a, b, c):
        p, q = (self.product(x, y) for x, y in zip(padded(a, 2), padded(b, 2)))
        if self.in_order:
            return self.added(self.added(self.read(c), p), q)
        return self.added(self.read(c), self.added(p, q))
