"""Small runs of the experiments with other parameters than their quick forms', kept in unlike/EXPERIMENT as tables, words and plots.

Usage: unlike.py FP8LAB [NAME...]          compares, and ends with 1 where something differs
       unlike.py FP8LAB --write [NAME...]  writes what the runs say now; read the change in version control

A quick form has one value for each parameter, often a round one, and sizes that make cases coincide: what reads the wrong
parameter, or a constant in its place, is not seen there. Here each parameter has another value (unlike/EXPERIMENT.toml, a
definition for `fp8lab run`), sizes are odd where they may be, lists are short and out of order, and limits are met. A new
parameter must get a value here. EXPERIMENT.NAME.toml are further runs: those called `once` draw everything one time, of which
no spread is known.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kept_tables

HERE = Path(__file__).resolve().parent / "unlike"
EXPERIMENTS = HERE.parents[2] / "experiments"
# They have no parameter but a number of points, or names.
WITHOUT = {"walkthrough", "claims"}
# Files in place of drawn numbers, and lists of recipes that a default is as good for.
AS_THEY_ARE = {"file", "text", "own_a", "own_b", "gradients", "activations"}


def defaults_of(experiment):
    text = tomllib.loads((EXPERIMENTS / experiment / "default.toml").read_text())
    quick = text.pop("quick", {})
    return {key: value for key, value in {**text, **quick}.items() if key not in ("range", "question", "mpi")}


def not_unlike(experiment):
    """Parameters that have the quick form's value, or none here."""
    if "." in experiment:
        return []
    chosen = tomllib.loads((HERE / f"{experiment}.toml").read_text())["set"]
    return [f"{experiment}: {name} is as in the quick form" for name, value in defaults_of(experiment).items()
            if name not in AS_THEY_ARE and (name not in chosen or chosen[name] == value)]


def found_in(tool, experiment, writes):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([tool, "run", str(HERE / f"{experiment}.toml"), "--threads", "1", "--out", folder],
                              capture_output=True, text=True, check=False, env={**os.environ, **kept_tables.UNDRAWN})
        if done.returncode != 0:
            return [f"{experiment}: exit {done.returncode}: {done.stderr}"]
        results = (Path(folder) / experiment.partition(".")[0]).rename(Path(folder) / experiment)
        if writes:
            kept_tables.keep(results, HERE)
        return not_unlike(experiment) + kept_tables.compare(experiment, results, HERE)


def main():
    tool = str(Path(sys.argv[1]).resolve())
    writes = "--write" in sys.argv[2:]
    every = {path.parent.name for path in EXPERIMENTS.glob("*/default.toml")} - WITHOUT
    every |= {path.stem for path in HERE.glob("*.*.toml")}
    names = [name for name in sys.argv[2:] if name != "--write"] or sorted(every)
    with ThreadPoolExecutor(2) as pool:
        found = [line for lines in pool.map(lambda name: found_in(tool, name, writes), names) for line in lines]
    print(*found, f"{len(names)} experiments with other parameters, {len(found)} failures", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
