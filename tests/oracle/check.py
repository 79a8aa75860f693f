"""The oracle's rows through `fp8lab replay`.

Usage: check.py PATH_OF_FP8LAB [--cases N] [--seed S] [--remake]

Replays the golden rows of tests/golden/units and N fresh cases of every unit (100), drawn from a seed (random,
printed), in one step, in several and in a short one. A unit that `fp8lab list` does not have is skipped by name.
Before that it makes sure that the golden rows, and those of chips, are what the oracle gives, and that every
mutant fails one of the golden ones.
--remake also draws the golden vectors anew and compares their bytes.
"""

import argparse
import itertools
import json
import random
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cases import Case
from exact import FORMATS
from mutants import mutants
from rows import draw_cases, golden_terms, golden_text, read_golden, result, row, same, shared, vector_text
from table import UNITS, model_of
from units import FlushedGroups, Fp4Dot

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "units"


def parse_words(name, text):
    digits = FORMATS[name].digits
    return [int(text[i:i + digits], 16) for i in range(0, len(text), digits)]


def read_rows(text, entry):
    """Cases and their d."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        a, b, *scales, c, d = line.split()
        sa, sb = (list(bytes.fromhex(s)) for s in scales) if scales else ([], [])
        yield Case("golden", parse_words(entry.a, a), parse_words(entry.b, b), int(c, 16), sa, sb), int(d, 16)


def check_golden(name, text):
    """The vectors are the oracle's, and tell every mutant."""
    entry = UNITS[name]
    found = list(read_rows(text, entry))
    assert len(found) >= 40, f"{name}: {len(found)} rows"
    for case, d in found:
        got = result(entry.unit, entry, case)
        assert same(entry, got, d), f"{name}: {row(entry, case, d)}: the oracle gives {got:08x}"
    for what, mutant in mutants(entry).items():
        told = any(not same(entry, result(mutant, entry, case), d) for case, d in found)
        assert told, f"{name}: no row tells '{what}'"
    return len(found)


def check_chips():
    """The rows of real chips are the oracle's too."""
    checked = 0
    for path in sorted((GOLDEN.parent / "silicon").glob("*.txt")):
        lines = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
        header = dict(line.split(": ", 1) for line in lines if ": " in line)
        entry = UNITS[header["model"]]
        for case, d in read_rows(path.read_text(), entry):
            got = result(entry.unit, entry, case)
            assert same(entry, got, d), f"{path}: {row(entry, case, d)}: the oracle gives {got:08x}"
            checked += 1
    assert checked >= 1000, checked
    print(f"{checked} rows of chips are the oracle's")


def check_by_hand():
    """CDNA3 on 1 - 2^-8 + 2^-25 + 2^-32: the last term is lost where the products' sum keeps 31 bits."""
    entry = UNITS["gfx942.mfma.f16"]
    case = Case("by hand", [0xAC00, 0x0C00, 0x0100, 0], [0x2C00, 0x0800, 0x0100, 0], 0x3F800000)
    for bits, d in ((31, 0x3F7F0000), (32, 0x3F7F0001)):
        got = result(replace(entry.unit, sum_bits=bits), entry, case)
        assert got == d, f"{bits} bits: expected {d:08x}, got {got:08x}"


def registered(tool):
    run = subprocess.run([tool, "list", "models", "--json"], capture_output=True, text=True, check=True)
    return {model["name"] for model in json.loads(run.stdout)["models"]}


def replay(tool, path, model):
    """Mismatches and cases of a file, which has to replay under the model's own name."""
    run = subprocess.run([tool, "replay", path, "--model", model, "--json"], capture_output=True, text=True)
    assert run.returncode in (0, 1), f"{model}: {path}: {run.stderr}"
    report = json.loads(run.stdout)
    if report["mismatches"]:
        shown = subprocess.run([tool, "replay", path, "--model", model], capture_output=True, text=True).stdout
        print(shown[:3000])
    return report["mismatches"], report["cases"]


def fresh_terms(entry):
    """One step, three, and a short one where the unit has one."""
    unit = entry.unit
    step = unit.terms if unit.terms > 1 else 8
    if entry.scales:
        step = max(step, entry.scales[1])
    short = step if isinstance(unit, (FlushedGroups, Fp4Dot)) or entry.scales else step // 2
    return [step, 3 * step, short]


def fresh_files(names, folder, count, seed):
    entry = UNITS[names[0]]
    for i, terms in enumerate(fresh_terms(entry)):
        rng = random.Random(f"{seed} {names[0]} {i}")
        cases = draw_cases(entry, terms, (count + 2) // 3, rng)
        rows = [row(entry, case, result(entry.unit, entry, case)) for case in cases]
        path = Path(folder) / f"{names[0]} fresh {i}.txt"
        path.write_text(vector_text(model_of(names[0]), entry, terms, rows))
        yield path


def check_all_golden(groups, golden, remake):
    begin = time.time()
    assert golden.keys() == {names[0] for names in groups}, "golden vectors and units differ: run rows.py"
    rows = sum(check_golden(name, text) for name, text in golden.items())
    print(f"{len(golden)} golden units, {rows} rows: the oracle's; every mutant fails ({time.time() - begin:.0f} s)")
    if remake:
        changed = [names[0] for names in groups if golden_text(names) != golden[names[0]]]
        assert not changed, f"drawn anew, {changed} have other bytes"


def replay_all(tool, groups, golden, count, seed):
    """Replays golden and fresh vectors through every registered unit; what failed."""
    begin, known = time.time(), registered(tool)
    names_of_units = {model_of(name) for names in groups for name in names}
    failed, rows = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for names in groups:
            models = [model for model in dict.fromkeys(map(model_of, names)) if model in known]
            kept = Path(folder) / f"{names[0]} golden.txt"
            kept.write_text(golden[names[0]])
            files = [kept, *fresh_files(names, folder, count, seed)] if models else []
            for path, model in itertools.product(files, models):
                mismatches, cases = replay(tool, path, model)
                rows += cases
                if mismatches:
                    failed.append(f"{model}: {path.stem}: {mismatches} of {cases}")
    print(f"{rows} rows replayed through {len(names_of_units & known)} models ({time.time() - begin:.0f} s)")
    if skipped := names_of_units - known:
        print(f"not registered, skipped: {' '.join(sorted(skipped))}")
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--remake", action="store_true")
    options = parser.parse_args()
    print(f"--seed {options.seed}")
    check_by_hand()
    check_chips()
    golden = read_golden(GOLDEN)
    check_all_golden(shared(), golden, options.remake)
    failed = replay_all(options.tool, shared(), golden, options.cases, options.seed)
    assert not failed, "mismatches:\n" + "\n".join(failed)


if __name__ == "__main__":
    main()
