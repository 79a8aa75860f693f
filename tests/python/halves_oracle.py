"""`fp16_halves` in rational arithmetic, written from its definition, against `fp8lab replay`.

Usage: halves_oracle.py PATH_OF_FP8LAB

Dot products of wide FP8 data (significands of N(0, 1), exponents of N(0, 4^2), and uniformly
random finite codes), c of every size, lengths that fill instructions and that do not. The bits
are computed here with `fractions`; `sm100.mma` must give all of them, while `exact32`, which
rounds the sum of 32 terms and c once, and that rule in rational arithmetic differ on at least 200.
"""

import bisect
import random
import re
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

ALIGNED, KEPT, SUBNORMAL = 25, 23, -126  # fraction bits in the alignment and of a sum; binary32
FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}  # mantissa bits, bias
CASES = 200  # of each format and kind


def two(exponent):
    return Fraction(2) ** exponent


def binade(x):
    """floor(log2 |x|)."""
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if two(e) <= x else e - 1


def value(name, code):
    mantissa_bits, bias = FORMATS[name]
    field, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    whole = (mantissa + (1 << mantissa_bits)) * two(field - bias) if field else mantissa * two(1 - bias)
    return (-1 if code & 0x80 else 1) * whole / 2**mantissa_bits


def half_exponent(x):
    return max(binade(x), -14)


def step(a, b, start):
    """One step of the FP16 unit: everything cut to the largest exponent's grid, the sum cut to 24 bits."""
    exponents = [half_exponent(x) + half_exponent(y) for x, y in zip(a, b) if x and y]
    if start:
        exponents.append(max(binade(start), SUBNORMAL))
    if not exponents:
        return Fraction(0)
    unit = two(max(exponents) - ALIGNED)
    total = int(start / unit) + sum(int(x * y / unit) for x, y in zip(a, b))  # int() cuts toward zero
    total *= unit
    if not total:
        return total
    ulp = two(max(binade(total), SUBNORMAL) - KEPT)
    return int(total / ulp) * ulp


def nearest(x):
    """binary32, ties to even; Python rounds Fractions so."""
    ulp = two(max(binade(x), SUBNORMAL) - KEPT) if x else Fraction(1)
    return round(x / ulp) * ulp


def halves(a, b, c):
    for k in range(0, len(a), 32):
        total = Fraction(0)
        for low in (0, 2):
            at = [i for i in range(k, min(k + 32, len(a))) if i % 4 in (low, low + 1)]
            total = step([a[i] for i in at], [b[i] for i in at], total)
        c = nearest(c + total)
    return c


def exact_steps(a, b, c):
    for k in range(0, len(a), 32):
        c = nearest(c + sum(x * y for x, y in zip(a[k:k + 32], b[k:k + 32])))
    return c


def bits(x):
    if not x:
        return 0
    sign, x = (0x80000000, -x) if x < 0 else (0, x)
    e = max(binade(x), SUBNORMAL)
    scaled = x / two(e - KEPT)
    assert scaled.denominator == 1 and e < 128
    return sign | (int(scaled) + ((e - SUBNORMAL) << KEPT) if scaled >= 1 << KEPT else int(scaled))


def finite(name, code):
    return (code & 0x7F) < (0x7F if name == "e4m3" else 0x7C)


MAGNITUDES = {name: [value(name, code) for code in range(128) if finite(name, code)] for name in FORMATS}


def code_of(name, rng):
    """A code near N(0, 1) * 2^(4 N(0, 1)): the nearest below in magnitude."""
    wanted = abs(rng.gauss(0, 1)) * 2 ** (4 * rng.gauss(0, 1))
    return bisect.bisect_right(MAGNITUDES[name], wanted) - 1 | rng.choice((0, 0x80))


def draw(name, kind, rng):
    if kind == "wide":
        return code_of(name, rng)
    while not finite(name, code := rng.randrange(256)):
        pass
    return code


def draw_c(rng):
    if rng.randrange(8) == 0:
        return Fraction(0)
    exponent = rng.choice((rng.randrange(-149, -100), rng.randrange(-30, 40), rng.randrange(-12, 12), 100))
    return nearest(Fraction(rng.gauss(0, 1)) * two(exponent))


def check(tool, folder, name, kind):
    rng = random.Random(f"{name} {kind}")
    lines, differing = [], 0
    terms = {"wide": 32, "codes": 45}[kind]
    for _ in range(CASES):
        a, b = ([draw(name, kind, rng) for _ in range(terms)] for _ in "ab")
        c = draw_c(rng)
        left, right = [value(name, x) for x in a], [value(name, x) for x in b]
        d = halves(left, right, c)
        differing += d != exact_steps(left, right, c)
        lines.append(f"{bytes(a).hex()} {bytes(b).hex()} {bits(c):08x} {bits(d):08x}\n")
    path = Path(folder, f"{name}-{kind}.txt")
    path.write_text(f"# fp8lab vectors 1\n# model: sm100.mma.{name}\n# input: {name}\n# terms: {terms}\n" + "".join(lines))
    wrong = {}
    for model in (f"sm100.mma.{name}", "exact32"):
        run = subprocess.run([tool, "replay", path, "--model", model], capture_output=True, text=True)
        found = re.search(r"cases (\d+) mismatches (\d+)", run.stdout)
        assert found and int(found[1]) == CASES, run.stdout + run.stderr
        wrong[model] = int(found[2])
    print(f"{name} {kind}: {wrong}, exact steps differ here on {differing}")
    assert wrong[f"sm100.mma.{name}"] == 0, "the library's halves are others"
    return min(differing, wrong["exact32"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        differing = [check(sys.argv[1], folder, name, kind) for name in FORMATS for kind in ("wide", "codes")]
    assert sum(differing) >= 200 and min(differing) >= 40, differing


main()
