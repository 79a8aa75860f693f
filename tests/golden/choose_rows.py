"""Chooses the rows of recordings that are kept in tests/golden/silicon.

Usage: choose_rows.py RECORDINGS OUT    (folders of vector files; OUT gets files of the same names)

Of each file: rows that tell its model from mutants of it (another width, another rounding, half
the terms, halves apart), a few for each mutant, a few with infinities or NaN, and the first rows
up to ROWS. What a model is stands here a second time, in integers, so that the choice leans on
nothing of the library; a file that this does not replay to the last bit is refused. Rows with
infinities or NaN are not computed here.
"""

import dataclasses
import sys
from pathlib import Path

ROWS = 100
FOR_EACH_MUTANT = 6
SPECIAL = 8
INPUTS = {  # exponent, mantissa bits, digits of a code
    "e4m3": (4, 3, 2), "e5m2": (5, 2, 2), "f16": (5, 10, 4), "bf16": (8, 7, 4), "tf32": (8, 10, 8)}


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
    lowest: int | None = None  # no alignment is below this exponent
    widened_c: bool = False  # a subnormal FP16 c brings the exponent of its leading bit
    keeps_sign: bool = True  # of a sum that rounds to zero; else it is +0


VOLTA, AMPERE, BLACKWELL = Model(4, 23, 23), Model(8, 24, 23), Model(16, 25, 23, lowest=-133)
ADA8 = Model(16, 13, 13)
HOPPER = dataclasses.replace(BLACKWELL, keeps_sign=False)
HOPPER_TF32 = dataclasses.replace(HOPPER, terms=8)
WGMMA8 = Model(32, 13, 13, keeps_sign=False)
HALVES, BLACKWELL_HALVES = (dataclasses.replace(model, halves="chained") for model in (HOPPER, BLACKWELL))
FP8 = ("e4m3", "e5m2", "e4m3.e5m2", "e5m2.e4m3")


def to_half(model):
    lowest = -21 if model.lowest is not None else None
    return dataclasses.replace(model, kept=10, nearest=True, half_output=True, lowest=lowest)


MODELS = {
    "sm70.mma.f16": VOLTA,
    "sm80.mma.f16": AMPERE,
    "sm89.mma.e4m3": ADA8,
    "sm100.mma.e4m3": BLACKWELL_HALVES,
    "sm100.mma.e5m2": BLACKWELL_HALVES,
    "sm90.mma.e4m3": HALVES,
    "sm90.mma.e5m2": HALVES,
    **{f"sm90.{kind}.{name}": HOPPER for kind in ("mma", "wgmma") for name in ("f16", "bf16")},
    **{f"sm90.{kind}.tf32": HOPPER_TF32 for kind in ("mma", "wgmma")},
    **{f"sm90.wgmma.{name}": WGMMA8 for name in FP8},
}
MODELS |= {f"{name}.f16": to_half(model) for name, model in MODELS.items()}


def mutants(model):
    """What each differs in, and the mutant."""

    def change(**fields):
        return dataclasses.replace(model, **fields)

    found = {f"F = {f}": change(aligned=f) for f in (model.aligned - 1, model.aligned + 1, 13, 19) if f != model.aligned}
    found["other rounding"] = change(nearest=not model.nearest)
    found["half the terms"] = change(terms=model.terms // 2)
    found["other sign of zero"] = change(keeps_sign=not model.keeps_sign)
    if model.lowest is not None:
        found |= {f"e_min = {e}": change(lowest=e) for e in (model.lowest - 1, model.lowest + 1)}
    if not model.half_output:
        found["M - 1"] = change(kept=model.kept - 1)
        found["M + 1"] = change(kept=model.kept + 1)
    else:
        found["c's exponent widened"] = change(widened_c=True)
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


def step(model, products, start):
    """Products (integer, power of two, exponent) and a start in one step: an integer, its power of
    two, and whether it is a negative zero."""
    n, e, _ = start
    smallest = -14 if model.half_output else -126
    exponents = [p[2] for p in products if p[0]]
    if n:
        exponents.append(max(exponent(n, e), -126 if model.widened_c else smallest))
    if not exponents:
        return 0, 0, False
    largest = max(exponents) if model.lowest is None else max(*exponents, model.lowest)
    unit = largest - model.aligned

    def cut(value, power):
        shift = power - unit
        if shift >= 0:
            return value << shift
        return value >> -shift if value >= 0 else -(-value >> -shift)

    total = cut(n, e) + sum(cut(p[0], p[1]) for p in products)
    n, e = rounded(total, unit, model.kept, smallest - model.kept, model.nearest)
    return n, e, model.keeps_sign and n == 0 and total < 0


def chain(model, products, start):
    for first in range(0, len(products), model.terms):
        start = step(model, products[first:first + model.terms], start)
    return start


def plus(x, y, half_output):
    low = min(x[1], y[1])
    total = (x[0] << (x[1] - low)) + (y[0] << (y[1] - low))
    n, e = rounded(total, low, *((10, -24) if half_output else (23, -149)), True)
    return n, e, n == 0 and (total < 0 or x[2] and y[2])


def d_of(model, products, c):
    if model.half_output and not model.exact_c:
        n, e = rounded(*c[:2], 10, -24, True)
        c = n, e, c[2] or n == 0 and c[0] < 0
    if not model.halves:
        return chain(model, products, c)
    count = 32  # terms of an instruction
    for first in range(0, len(products), count):
        instruction = products[first:first + count]
        parts = [[p for k, p in enumerate(instruction) if k % 4 in pair] for pair in ((0, 1), (2, 3))]
        if model.upper_first:
            parts.reverse()
        zero = (0, 0, False)
        total = chain(model, parts[0], zero)
        if model.halves == "chained":
            total = chain(model, parts[1], total)
        else:
            total = plus(total, chain(model, parts[1], zero), model.half_output)
        c = plus(c, total, model.half_output)
    return c


def binary32(text):
    word = int(text, 16)
    n, e, _ = fields(word, 8, 23)
    return n, e, word == 0x80000000


def codes(text, digits):
    """Codes of an operand; those of TF32 without the low bits of their binary32 words."""
    drop = 13 if digits == 8 else 0
    return [int(text[i:i + digits], 16) >> drop for i in range(0, len(text), digits)]


def names_of(inputs):
    """The format of a and that of b."""
    names = [name.removesuffix("fn") for name in inputs.split()]
    return names[0], names[-1]


def products_of(model, row, names):
    """(integer, power of two, exponent in the alignment) of each product."""

    def operands(text, name):
        exponent_bits, mantissa_bits, digits = INPUTS[name]
        for code in codes(text, digits):
            n, e, stored = fields(code, exponent_bits, mantissa_bits)
            # An FP8 number made FP16 brings the exponent that FP16 stores for it.
            yield n, e, max(exponent(n, e), -14) if model.halves and n else stored

    a, b = (operands(text, name) for text, name in zip(row, names))
    return [(x[0] * y[0], x[1] + y[1], x[2] + y[2]) for x, y in zip(a, b)]


def is_finite(row, names):
    for text, name in zip(row, names):
        exponent_bits, mantissa_bits, digits = INPUTS[name]
        magnitude = (1 << exponent_bits + mantissa_bits) - 1
        lowest = magnitude if name == "e4m3" else magnitude >> mantissa_bits << mantissa_bits
        if any(code & magnitude >= lowest for code in codes(text, digits)):
            return False
    return all(int(text, 16) & 0x7F800000 != 0x7F800000 for text in row[2:])


def read(path):
    lines = path.read_text().splitlines()
    header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    return header, lines


def right(model, row, names):
    n, e, negative_zero = d_of(model, products_of(model, row, names), binary32(row[2]))
    m, f, written = binary32(row[3])
    return n << max(e - f, 0) == m << max(f - e, 0) and negative_zero == written


def choose(path):
    header, lines = read(path)
    rows = [line.split() for line in lines if line and line[0] != "#"]
    model, names = MODELS[header["model"]], names_of(header["input"])
    finite = [i for i, row in enumerate(rows) if is_finite(row, names)]
    wrong = [i for i in finite if not right(model, rows[i], names)]
    if wrong:
        sys.exit(f"{path}: {len(wrong)} of {len(rows)} rows are not those of {header['model']}: {rows[wrong[0]]}")
    chosen, survivors = set(), []
    for what, mutant in mutants(model).items():
        killing = [i for i in finite if not right(mutant, rows[i], names)]
        chosen.update(killing[:FOR_EACH_MUTANT])
        print(f"{path.name}: {what}: {len(killing)} of {len(rows)} rows")
        if not killing:
            survivors.append(what)
    chosen.update([i for i in range(len(rows)) if i not in set(finite)][:SPECIAL])
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
