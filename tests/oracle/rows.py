"""Vector files of the oracle: the golden rows of tests/golden/units, and fresh ones.

Usage: rows.py FOLDER    writes every golden file, the same bytes each time

A file holds vectors of all units of one chip, one after the other. Of many drawn cases of a unit, those are kept that
tell its mutants from it, then some of every kind. Entries of the table with equal units, formats and scales share
vectors; the header line `also` names the others.
"""

import functools
import itertools
import multiprocessing
import random
import sys
from pathlib import Path

from cases import KINDS
from cases_fp4 import drawer
from exact import FORMATS, decode, word
from mutants import mutants
from table import UNITS, model_of

ROWS, FOR_EACH_MUTANT = 54, 2
UNIT = "# unit: "
POOLS = 4000, 40000  # the second where the first has no case for some mutant


def result(unit, entry, case):
    """The binary32 bits of d."""
    name, block = entry.scales or (None, 0)
    a, b = ([decode(format_, x, entry.all_numbers) for x in side] for format_, side in ((entry.a, case.a), (entry.b, case.b)))
    d = unit.dot(a, b, decode("f32", case.c), case.scales_a, case.scales_b, block, name)
    return word(d)


def same(entry, x, y):
    nan = [v & 0x7FFFFFFF > 0x7F800000 for v in (x, y)]
    return all(nan) if any(nan) else x == y


def golden_terms(entry):
    """Two steps, so that rows can chain; two blocks of scales where these hold several steps."""
    if entry.scales and entry.unit.terms < entry.scales[1]:
        return 2 * entry.scales[1]
    return 2 * entry.unit.terms if entry.unit.terms > 1 else 4


def draw_cases(entry, terms, count, rng):
    draws = drawer(entry, terms, rng)
    return [draws.draw(KINDS[i % len(KINDS)]) for i in range(count)]


def hex_of(name, words):
    return "".join(f"{x:0{FORMATS[name].digits}x}" for x in words)


def row(entry, case, d):
    scales = [bytes(s).hex() for s in (case.scales_a, case.scales_b)] if entry.scales else []
    return " ".join([hex_of(entry.a, case.a), hex_of(entry.b, case.b), *scales, f"{case.c:08x}", f"{d:08x}"])


def vector_text(model, entry, terms, rows, extra=()):
    header = [f"model: {model}", f"input: {entry.a}" + (f" {entry.b}" if entry.a != entry.b else ""), f"terms: {terms}"]
    if entry.scales:
        header.append(f"scales: {entry.scales[0]} {entry.scales[1]}")
    if entry.half_output:
        header.append("output: f16 (d is an FP16 value in binary32 bits)")
    if entry.any_nan:
        header.append("nan: any")
    return "\n".join(["# fp8lab vectors 1", *(f"# {line}" for line in [*header, *extra]), *rows]) + "\n"


def shared():
    """Names of equal entries: the first one's, then the others'."""
    groups = {}
    for name, entry in UNITS.items():
        groups.setdefault(entry, []).append(name)
    return list(groups.values())


def chip_of(name):
    return name.partition(".")[0]


def file_text(vectors):
    """Vectors of one chip by unit."""
    return "".join(f"{UNIT}{name}\n{text}" for name, text in vectors.items())


def read_golden(folder):
    """Vectors of all units by name."""
    texts = "".join(path.read_text() for path in sorted(folder.glob("*.txt")))
    return dict(part.split("\n", 1) for part in texts.split(UNIT)[1:])


def choose(name):
    """Golden cases with their results, and the mutants that no drawn case can tell."""
    for pool in POOLS:
        chosen, survivors = choose_from(name, pool)
        if not survivors:
            break
    return chosen, survivors


def choose_from(name, pool):
    entry = UNITS[name]
    cases = draw_cases(entry, golden_terms(entry), pool, random.Random(name))
    results = functools.cache(lambda i: result(entry.unit, entry, cases[i]))
    chosen, survivors = [], []
    for what, mutant in mutants(entry).items():
        telling = (i for i, case in enumerate(cases) if not same(entry, result(mutant, entry, case), results(i)))
        found = list(itertools.islice(telling, FOR_EACH_MUTANT))
        if not found:
            survivors.append(what)
        chosen += found
    chosen = list(dict.fromkeys(chosen))
    rest = [i for i in range(len(cases)) if i not in chosen]
    chosen += rest[:max(ROWS - len(chosen), len(KINDS))]
    return [(cases[i], results(i)) for i in sorted(chosen)], survivors


def golden_text(names):
    chosen, survivors = choose(names[0])
    if survivors:
        raise ValueError(f"{names[0]}: no case of {POOLS[-1]} tells {', '.join(survivors)}")
    entry = UNITS[names[0]]
    others = list(dict.fromkeys(model_of(name) for name in names[1:]))
    extra = ["source: tests/oracle/rows.py, exact arithmetic, no chip"]
    extra += [f"also: {' '.join(others)}"] if others else []
    return vector_text(model_of(names[0]), entry, golden_terms(entry), [row(entry, *one) for one in chosen], extra)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = [first for first, *_ in shared()]
    with multiprocessing.Pool() as pool:
        vectors = dict(zip(names, pool.imap(golden_text, shared())))
    for chip in dict.fromkeys(map(chip_of, names)):
        (folder / f"{chip}.txt").write_text(file_text({name: vectors[name] for name in names if chip_of(name) == chip}))


if __name__ == "__main__":
    main()
