"""Chooses the rows of recordings that are kept in tests/golden/silicon.

Usage: choose_rows.py RECORDINGS OUT    (folders of vector files; OUT gets files of the same names)

Of each file: rows that tell its model from mutants of it (another width, another rounding, half
the terms, halves apart), a few for each mutant, and the first rows up to ROWS. What a model is
stands here a second time, in integers, so that the choice leans on nothing of the library; a file
that this does not replay to the last bit is refused.
"""

import dataclasses
import sys
from pathlib import Path

ROWS = 100
FOR_EACH_MUTANT = 6
INPUTS = {"e4m3": (4, 3), "e5m2": (5, 2), "f16": (5, 10), "bf16": (8, 7)}  # exponent, mantissa bits


@dataclasses.dataclass(frozen=True)
class Model:
    terms: int  # of one step
    aligned: int  # fraction bits that alignment keeps
    kept: int  # fraction bits of a step's sum
    nearest: bool = False  # else toward zero
    half_output: bool = False
    halves: str = ""  # of FP8 made FP16: "chained" or "separate", the lower ones first
    upper_first: bool = False
    exact_c: bool = False  # c enters an FP16 sum as binary32


VOLTA, AMPERE, HOPPER = Model(4, 23, 23), Model(8, 24, 23), Model(16, 25, 23)
ADA8, WGMMA8 = Model(16, 13, 13), Model(32, 13, 13)
HALVES = dataclasses.replace(HOPPER, halves="chained")


def to_half(model):
    return dataclasses.replace(model, kept=10, nearest=True, half_output=True)


MODELS = {
    "sm70.mma.f16": VOLTA,
    "sm70.mma.f16.f16": to_half(VOLTA),
    "sm80.mma.f16": AMPERE,
    "sm80.mma.f16.f16": to_half(AMPERE),
    "sm89.mma.e4m3": ADA8,
    "sm89.mma.e4m3.f16": to_half(ADA8),
    "sm90.mma.bf16": HOPPER,
    "sm90.mma.f16.f16": to_half(HOPPER),
    "sm90.wgmma.e4m3": WGMMA8,
    "sm90.wgmma.e5m2": WGMMA8,
    "sm90.mma.e4m3": HALVES,
    "sm90.mma.e5m2": HALVES,
    "sm90.mma.e4m3.f16": to_half(HALVES),
    "sm90.mma.e5m2.f16": to_half(HALVES),
    "sm100.mma.e4m3": HALVES,
    "sm100.mma.e5m2": HALVES,
}


def mutants(model):
    """What each differs in, and the mutant."""

    def change(**fields):
        return dataclasses.replace(model, **fields)

    found = {f"F = {f}": change(aligned=f) for f in (model.aligned - 1, model.aligned + 1, 13, 19) if f != model.aligned}
    found["other rounding"] = change(nearest=not model.nearest)
    found["half the terms"] = change(terms=model.terms // 2)
    if not model.half_output:
        found["M - 1"] = change(kept=model.kept - 1)
        found["M + 1"] = change(kept=model.kept + 1)
    else:
        found["c not rounded"] = change(exact_c=True)
        found["binary32 sum"] = change(kept=23, half_output=False, nearest=False)
    if model.halves:
        found["halves separate"] = change(halves="separate")
        found["halves swapped"] = change(upper_first=True)
        found["no halves"] = change(halves="", terms=32)
    return found


def exponent(n, e):
    """floor(log2) of |n| 2^e."""
    return abs(n).bit_length() - 1 + e


def rounded(n, e, bits, lowest, nearest):
    """n 2^e to `bits` fraction bits, none below 2^lowest; nearest even or toward zero."""
    if n == 0:
        return 0, 0
    drop = max(exponent(n, e) - bits, lowest) - e
    if drop <= 0:
        return n, e
    size, rest = abs(n) >> drop, abs(n) & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    if nearest and (rest > half or (rest == half and size & 1)):
        size += 1
    return (size if n > 0 else -size), e + drop


def fields(code, exponent_bits, mantissa_bits):
    """Integer and power of two of a finite code, and the exponent that it stores."""
    bias = (1 << (exponent_bits - 1)) - 1
    field = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    n = code & ((1 << mantissa_bits) - 1)
    n |= (field > 0) << mantissa_bits
    stored = max(field, 1) - bias
    return (-n if code >> (exponent_bits + mantissa_bits) else n), stored - mantissa_bits, stored


def step(model, products, n, e):
    """Products (integer, power of two, exponent) and the start n 2^e in one step."""
    smallest = -14 if model.half_output else -126
    exponents = [p[2] for p in products if p[0]]
    if n:
        exponents.append(max(exponent(n, e), smallest))
    if not exponents:
        return 0, 0
    unit = max(exponents) - model.aligned

    def cut(value, power):
        shift = power - unit
        if shift >= 0:
            return value << shift
        return value >> -shift if value >= 0 else -(-value >> -shift)

    total = cut(n, e) + sum(cut(p[0], p[1]) for p in products)
    return rounded(total, unit, model.kept, smallest - model.kept, model.nearest)


def chain(model, products, n, e):
    for first in range(0, len(products), model.terms):
        n, e = step(model, products[first:first + model.terms], n, e)
    return n, e


def plus(x, y, half_output):
    low = min(x[1], y[1])
    total = (x[0] << (x[1] - low)) + (y[0] << (y[1] - low))
    return rounded(total, low, *((10, -24) if half_output else (23, -149)), True)


def d_of(model, products, c):
    if model.half_output and not model.exact_c:
        c = rounded(*c, 10, -24, True)
    if not model.halves:
        return chain(model, products, *c)
    parts = [[p for k, p in enumerate(products) if k % 4 in pair] for pair in ((0, 1), (2, 3))]
    if model.upper_first:
        parts.reverse()
    total = chain(model, parts[0], 0, 0)
    if model.halves == "chained":
        total = chain(model, parts[1], *total)
    else:
        total = plus(total, chain(model, parts[1], 0, 0), model.half_output)
    return plus(c, total, model.half_output)


def binary32(text):
    return fields(int(text, 16), 8, 23)[:2]


def products_of(model, row, name):
    """(integer, power of two, exponent in the alignment) of each product."""
    exponent_bits, mantissa_bits = INPUTS[name]
    digits = (1 + exponent_bits + mantissa_bits) // 4

    def operand(code):
        n, e, stored = fields(code, exponent_bits, mantissa_bits)
        # An FP8 number made FP16 brings the exponent that FP16 stores for it.
        return n, e, max(exponent(n, e), -14) if model.halves and n else stored

    a, b = ([operand(int(text[i:i + digits], 16)) for i in range(0, len(text), digits)] for text in row[:2])
    return [(x[0] * y[0], x[1] + y[1], x[2] + y[2]) for x, y in zip(a, b)]


def read(path):
    lines = path.read_text().splitlines()
    header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    return header, lines


def right(model, row, name):
    n, e = d_of(model, products_of(model, row, name), binary32(row[2]))
    m, f = binary32(row[3])
    return n << max(e - f, 0) == m << max(f - e, 0)


def choose(path):
    header, lines = read(path)
    rows = [line.split() for line in lines if line and line[0] != "#"]
    model, name = MODELS[header["model"]], header["input"]
    wrong = sum(not right(model, row, name) for row in rows)
    if wrong:
        sys.exit(f"{path}: {wrong} of {len(rows)} rows are not those of {header['model']}")
    chosen, survivors = set(), []
    for what, mutant in mutants(model).items():
        killing = [i for i, row in enumerate(rows) if not right(mutant, row, name)]
        chosen.update(killing[:FOR_EACH_MUTANT])
        print(f"{path.name}: {what}: {len(killing)} of {len(rows)} rows")
        if not killing:
            survivors.append(what)
    chosen.update(i for i in range(len(rows)) if i not in chosen and len(chosen) < ROWS)
    kept = [" ".join(rows[i]) for i in sorted(chosen)]
    return [line for line in lines if line.startswith("#")] + kept, survivors


def main():
    source, out = map(Path, sys.argv[1:])
    for path in sorted(source.glob("*.txt")):
        lines, survivors = choose(path)
        (out / path.name).write_text("\n".join(lines) + "\n")
        if survivors:
            print(f"{path.name}: no row tells {', '.join(survivors)}")


if __name__ == "__main__":
    main()
