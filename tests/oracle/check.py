"""The oracle's rows through `fp8lab replay`.

Usage: check.py PATH_OF_FP8LAB [--cases N] [--seed S] [--remake]

Replays the golden rows of tests/golden/units and N fresh cases of every unit (100), drawn from a seed (random, printed),
in one step, in several and in a short one. A unit that `fp8lab list` does not have is skipped by name. Before that it
makes sure that the golden rows are what the oracle gives and that every mutant fails one of them. --remake also
draws the golden files anew and compares their bytes.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

from cases import Case
from exact import FORMATS
from mutants import mutants
from rows import draw_cases, file_name, golden_terms, golden_text, result, row, same, shared, vector_text
from table import UNITS, model_of
from units import FlushedGroups, Fp4Dot

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "units"


def parse_words(name, text):
    digits = FORMATS[name].digits
    return [int(text[i:i + digits], 16) for i in range(0, len(text), digits)]


def read_rows(path, entry):
    """Cases and their d."""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        a, b, *scales, c, d = line.split()
        sa, sb = (list(bytes.fromhex(s)) for s in scales) if scales else ([], [])
        yield Case("golden", parse_words(entry.a, a), parse_words(entry.b, b), int(c, 16), sa, sb), int(d, 16)


def check_golden(names):
    """The file is the oracle's, and tells every mutant."""
    entry, path = UNITS[names[0]], GOLDEN / file_name(names[0])
    found = list(read_rows(path, entry))
    assert len(found) >= 40, f"{path}: {len(found)} rows"
    for case, d in found:
        got = result(entry.unit, entry, case)
        assert same(entry, got, d), f"{path}: {row(entry, case, d)}: the oracle gives {got:08x}"
    for what, mutant in mutants(entry).items():
        assert any(not same(entry, result(mutant, entry, case), d) for case, d in found), f"{path}: no row tells '{what}'"
    return len(found)


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
    short = step if isinstance(unit, (FlushedGroups, Fp4Dot)) or entry.scales else step // 2
    return [step, 3 * step, short]


def fresh_files(names, folder, count, seed):
    entry = UNITS[names[0]]
    for i, terms in enumerate(fresh_terms(entry)):
        rng = random.Random(f"{seed} {names[0]} {i}")
        cases = draw_cases(entry, terms, (count + 2) // 3, rng)
        rows = [row(entry, case, result(entry.unit, entry, case)) for case in cases]
        path = Path(folder) / f"{terms}-{i}-{file_name(names[0])}"
        path.write_text(vector_text(model_of(names[0]), entry, terms, rows))
        yield path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--remake", action="store_true")
    options = parser.parse_args()
    print(f"--seed {options.seed}")
    begin, groups, known = time.time(), shared(), registered(options.tool)
    expected = {file_name(names[0]) for names in groups}
    assert {path.name for path in GOLDEN.glob("*.txt")} == expected, "golden files and units differ: run rows.py"
    golden = sum(check_golden(names) for names in groups)
    print(f"{len(groups)} golden files, {golden} rows: the oracle's, and every mutant fails ({time.time() - begin:.0f} s)")
    if options.remake:
        changed = [names[0] for names in groups if golden_text(names) != (GOLDEN / file_name(names[0])).read_text()]
        assert not changed, f"drawn anew, {changed} have other bytes"
    failed, replayed, models, skipped = [], 0, set(), set()
    with tempfile.TemporaryDirectory() as folder:
        for names in groups:
            models_here = list(dict.fromkeys(map(model_of, names)))
            skipped |= {model for model in models_here if model not in known}
            models_here = [model for model in models_here if model in known]
            if not models_here:
                continue
            for path in [GOLDEN / file_name(names[0]), *fresh_files(names, folder, options.cases, options.seed)]:
                for model in models_here:
                    mismatches, cases = replay(options.tool, path, model)
                    replayed += cases
                    models.add(model)
                    if mismatches:
                        failed.append(f"{model}: {path.name}: {mismatches} of {cases}")
    print(f"{replayed} rows replayed through {len(models)} models ({time.time() - begin:.0f} s)")
    if skipped:
        print(f"not registered, skipped: {' '.join(sorted(skipped))}")
    assert not failed, "mismatches:\n" + "\n".join(failed)


if __name__ == "__main__":
    main()
