"""Cases of mxf4nvf4: groups whose scales lie near each other, far apart, and at the ends of their formats."""

from cases import Drawer
from units import Fp4Dot


class Fp4Drawer(Drawer):
    """E2M1 with scales, where the groups' scales decide and the elements have two bits."""

    def draw_scales(self, kind):
        blocks = self.terms // self.entry.scales[1]
        name = self.entry.scales[0]
        draw = getattr(self, f"{name}_{kind}", None) or getattr(self, name)
        spread = self.rng.choice([1, 4, 12, 20])
        sa, sb = ([draw(spread) for _ in range(blocks)] for _ in "ab")
        self.shift = self.scale_exponent(sa[0]) + self.scale_exponent(sb[0])
        return sa, sb

    def scale_exponent(self, scale):
        return scale - 127 if self.entry.scales[0] == "ue8m0" else max(scale >> 3 & 15, 1) - 7

    def ue8m0(self, spread):
        return 127 + self.rng.randint(-spread, spread)

    def ue8m0_tiny(self, spread):
        return self.rng.randint(0, 127)

    def ue8m0_bottom(self, spread):
        """Below the lower limit of exponents: terms that a subnormal holds, and terms at the last aligned bit."""
        return 127 - self.rng.choice([72, 86]) + self.rng.randint(-1, 1)

    def ue8m0_large(self, spread):
        return self.rng.randint(150, 254)

    def ue8m0_special(self, spread):
        return self.rng.choice([0, 254, 127, 127, 127, 128, 255 if spread == 1 else 120])

    def ue4m3(self, spread):
        return self.rng.choice([self.rng.randrange(0x7F), 0x38, 0x38 + self.rng.randint(-spread, spread)]) | \
            self.rng.choice([0, 0, 0x80])

    def ue4m3_tiny(self, spread):
        return self.rng.choice([0, 1, 7, 8, self.rng.randrange(16)]) | self.rng.choice([0, 0x80])

    def ue4m3_large(self, spread):
        return self.rng.randint(0x70, 0x7E)

    def ue4m3_down(self, spread):
        """The ends, so that groups lie as far apart as they can."""
        return self.rng.choice([1, 3, 0x7E, 0x7D])

    ue4m3_bottom = ue4m3_down

    def ue4m3_special(self, spread):
        return self.rng.choice([0, 0x80, 1, 0x7E, 0xFE, 0x38, 0x38, 0x7F if spread == 1 else 8,
                                0xFF if spread == 4 else 9])

    def elements(self, styles):
        """Groups of few, of all, of largest and of cancelling elements."""
        for g in range(0, self.terms, 16):
            style = self.rng.choice(styles)
            pairs = [(self.rng.randrange(16), self.rng.randrange(16)) for _ in range(16)]
            if style in ("one", "least", "none"):
                keep = -1 if style == "none" else self.rng.randrange(16)
                pairs = [p if i == keep else (p[0] & 8, p[1]) for i, p in enumerate(pairs)]
                if style == "least":
                    pairs[keep] = (1 | pairs[keep][0] & 8, 1)
            elif style == "most":
                pairs = [(7, 7)] * 16 if self.sign() else [(7, 15)] * 16
            elif style == "cancel":
                pairs[8:] = [(a ^ 8, b) for a, b in pairs[:8]]
            self.pairs[g:g + 16] = pairs

    def term_exponents(self):
        block = self.entry.scales[1]
        return [self.scale_exponent(self.scales_a[g // block]) + self.scale_exponent(self.scales_b[g // block])
                for g in range(0, self.terms, 16)]

    def fill(self, kind):
        """All kinds draw elements in one way, and c relative to the scales, which know the kind."""
        self.elements(["none", "none", "least", "one"] if kind == "bottom" else
                      ["all", "all", "one", "least", "most", "cancel", "none"])
        if kind == "bottom" and self.sign():
            return self.zero_c()
        self.shift = 0
        e = self.rng.choice(self.term_exponents())
        near = [self.number(e + self.rng.randint(-46, 46)) for _ in range(3)]
        at_cut = [self.number(e + self.rng.choice([35, 24, 23]) + self.rng.randint(-3, 11)) for _ in range(3)]
        rare = self.rng.choice([self.rng.getrandbits(23) | self.zero_c(), 0x7F800000, 0xFF800000, 0x7FC00000,
                                0x7F7FFFFF])
        return self.rng.choice([*near, *at_cut, self.zero_c(), self.zero_c(), rare])


def drawer(entry, terms, rng):
    return (Fp4Drawer if isinstance(entry.unit, Fp4Dot) else Drawer)(entry, terms, rng)
