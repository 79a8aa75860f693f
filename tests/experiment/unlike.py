"""Small runs of the experiments with other parameters than their quick forms' (unlike.toml), held to digests of all they wrote.

Usage: unlike.py FP8LAB [NAME...]                compares, and ends with 1 where something differs
       unlike.py FP8LAB --against OTHER [NAME...]  shows how the runs of two builds differ, cell by cell
       unlike.py FP8LAB --write [NAME...]        writes the digests of what the runs say now, to unlike.digests

A quick form has one value for each parameter, often a round one, and sizes that make cases coincide: what reads the wrong
parameter, or a constant in its place, is not seen there. Here each parameter has another value, sizes are odd where they may be,
lists are short and out of order, and limits are met. A new parameter must get a value here. Runs named EXPERIMENT.once draw
everything one time, of which no spread is known.

A line of unlike.digests is a file of a run: its tables, what the run says (words.txt) and what it draws (plots.txt). Reals count
with seven digits, since the C library's functions differ in the last place between processors; everything else counts exactly.
Where a digest differs, `--against` a build of the commit before shows what changed.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kept_tables

HERE = Path(__file__).resolve().parent
DIGESTS = HERE / "unlike.digests"
EXPERIMENTS = HERE.parents[1] / "experiments"
RUNS = tomllib.loads((HERE / "unlike.toml").read_text())
# They have no parameter but a number of points, or names.
WITHOUT = {"walkthrough", "claims"}
# Files in place of drawn numbers, and lists of recipes that a default is as good for.
AS_THEY_ARE = {"file", "text", "own_a", "own_b", "gradients", "activations"}


def defaults_of(experiment):
    text = tomllib.loads((EXPERIMENTS / experiment / "default.toml").read_text())
    quick = text.pop("quick", {})
    return {key: value for key, value in {**text, **quick}.items() if key not in ("range", "question", "mpi")}


def not_unlike(name):
    """Parameters that have the quick form's value, or none in unlike.toml."""
    if "." in name:
        return []
    chosen = RUNS[name]["set"]
    return [f"{name}: {parameter} is as in the quick form" for parameter, value in defaults_of(name).items()
            if parameter not in AS_THEY_ARE and (parameter not in chosen or chosen[parameter] == value)]


def definition_of(name):
    """The run as a file for `fp8lab run`: numbers, texts, truth values and lists are written alike in JSON and TOML."""
    run = RUNS[name]
    lines = [f"experiment = {json.dumps(name.partition('.')[0])}", "quick = true"]
    lines += [f"seed = {run['seed']}"] if "seed" in run else []
    lines += ["[set]", *(f"{key} = {json.dumps(value)}" for key, value in run.get("set", {}).items())]
    return "\n".join(lines) + "\n"


def results_of(tool, name, folder):
    """The folder of a run's results, or what the tool said instead."""
    folder.mkdir()
    definition = folder / "definition.toml"
    definition.write_text(definition_of(name))
    done = subprocess.run([tool, "run", definition, "--threads", "1", "--out", folder], capture_output=True, text=True,
                          check=False, env={**os.environ, **kept_tables.UNDRAWN})
    if done.returncode != 0:
        return None, f"{name}: exit {done.returncode}: {done.stderr}"
    return (folder / name.partition(".")[0]).rename(folder / name), ""


def rounded(cell):
    if not set(cell) & set(".en"):
        return cell
    try:
        return f"{float(cell):.7g}"
    except ValueError:
        return cell


def digest(file, text):
    if file != kept_tables.WORDS:
        text = json.dumps([[rounded(cell) for cell in row] for row in csv.reader(io.StringIO(text))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digests_of(folder):
    """The lines of unlike.digests of a run's results."""
    texts = {path.name: path.read_text() for path in folder.glob("*.csv")}
    texts[kept_tables.PLOTS] = kept_tables.plots_of(folder)
    texts[kept_tables.WORDS] = "\n".join(kept_tables.words_of(folder)) + "\n"
    return [f"{folder.name} {file} {len(text.splitlines())} {digest(file, text)}" for file, text in sorted(texts.items())]


def other_files(name, kept, got):
    """Where lines of unlike.digests differ."""
    expected, found = ({line.split()[1]: line.split()[2:] for line in lines} for lines in (kept, got))
    return [f"{name}/{file}: lines and digest: expected {' '.join(expected.get(file, ['no file']))}, "
            f"got {' '.join(found.get(file, ['no file']))}"
            for file in sorted(expected.keys() | found.keys()) if expected.get(file) != found.get(file)]


def compared(tool, name, scratch, kept):
    """What is wrong with a run, where it differs from what is kept, and its digests."""
    results, problem = results_of(tool, name, scratch / name)
    if not results:
        return [problem], [], kept
    got = digests_of(results)
    broken = [line for table in sorted(results.glob("*.csv"))
              for line in kept_tables.broken_invariants(name, table.stem, table.read_text())]
    return not_unlike(name) + broken, other_files(name, kept, got), got


def differences(tool, other, name, scratch):
    """What a run of `tool` has that a run of `other` has not."""
    folders = []
    for program, place in ((other, "other"), (tool, "own")):
        results, problem = results_of(program, name, scratch / f"{name}.{place}")
        if not results:
            return [problem]
        folders.append(results)
    kept_tables.keep(folders[0], scratch / "kept")
    return kept_tables.compare(name, folders[1], scratch / "kept")


def planted_is_seen():
    """The digest of a table must change with a figure's sixth digit, with a row's place and with a word."""
    text = "name,error\na,0.123456\nb,7\n"
    changed = ["name,error\na,0.123457\nb,7\n", "name,error\nb,7\na,0.123456\n", "name,error\na,0.123456\nc,7\n"]
    return [f"digests do not tell {other!r} from {text!r}" for other in changed
            if digest("error.csv", other) == digest("error.csv", text)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--against", type=Path)
    asked = parser.parse_intermixed_args()
    tool = asked.tool.resolve()
    missing = {path.parent.name for path in EXPERIMENTS.glob("*/default.toml")} - WITHOUT - RUNS.keys()
    unknown = set(asked.names) - RUNS.keys()
    if missing or unknown:
        sys.exit(f"unlike.toml has no run named {' '.join(sorted(missing | unknown))}")
    names = asked.names or sorted(RUNS)
    lines = DIGESTS.read_text().splitlines() if DIGESTS.exists() else []
    kept = {name: [line for line in lines if line.split()[0] == name] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        if asked.against:
            other = asked.against.resolve()
            found = [line for each in pool.map(lambda name: differences(tool, other, name, Path(folder)), names) for line in each]
        else:
            done = dict(zip(names, pool.map(lambda name: compared(tool, name, Path(folder), kept[name]), names)))
            found = planted_is_seen() + [line for problems, _, _ in done.values() for line in problems]
            changed = [line for _, others, _ in done.values() for line in others]
            if not asked.write:
                found += changed
            else:
                kept |= {name: got for name, (_, _, got) in done.items()}
                DIGESTS.write_text("\n".join(line for name in sorted(kept) for line in kept[name]) + "\n")
    print(*found, f"{len(names)} experiments with other parameters, {len(found)} failures", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
