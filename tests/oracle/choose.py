"""Chooses the rows of a processor's recording that are kept in tests/golden/silicon.

Usage: choose.py RECORDING OUT      (vector files; `fp8lab probe-cpu --out DIR` writes recordings)

Rows that tell the mutants of the unit (mutants.py) from what the processor gave, a few for each, then the first ones.
A recording that the oracle does not give to the last bit is refused.
"""

import itertools
import sys
from pathlib import Path

from check import read_rows
from mutants import mutants
from rows import result, row, same
from table import UNITS

ROWS, FOR_EACH_MUTANT = 100, 6


def main():
    source, out = map(Path, sys.argv[1:])
    header = [line for line in source.read_text().splitlines() if line.startswith("#")]
    model = next(line.removeprefix("# model: ") for line in header if line.startswith("# model: "))
    entry = UNITS[model]
    found = list(read_rows(source, entry))
    for case, d in found:
        got = result(entry.unit, entry, case)
        assert same(entry, got, d), f"{source}: {row(entry, case, d)}: the oracle gives {got:08x}"
    chosen = []
    for what, mutant in mutants(entry).items():
        telling = (i for i, (case, d) in enumerate(found) if not same(entry, result(mutant, entry, case), d))
        some = list(itertools.islice(telling, FOR_EACH_MUTANT))
        print(f"{what}: {len(some)} rows")
        chosen += some
    chosen = list(dict.fromkeys(chosen))
    chosen += [i for i in range(len(found)) if i not in chosen][:max(ROWS - len(chosen), 0)]
    rows = [row(entry, *found[i]) for i in sorted(chosen)]
    out.write_text("\n".join([line for line in header if "crc32" not in line] + rows) + "\n")


if __name__ == "__main__":
    main()
