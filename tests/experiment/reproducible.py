"""Runs every experiment in its quick form, compares it with kept tables, and asks for the same bytes again.

Each runs with one thread, and with three by the command that its result.json
recorded (claims by `fp8lab claims`); every CSV must agree. Where FP8LAB_SWEEP_SHARE is above 1, one in three experiments, each drawn by
FP8LAB_SEED, runs a second time. Whatever asks for OpenMP's own number of threads instead of the
run's is refused, since that number is too large.

Usage: reproducible.py FP8LAB SCRATCH_FOLDER [--only EXPERIMENT | --but EXPERIMENT]
"""

import json
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys

import kept_tables

TOO_MANY_THREADS = "5000"


def run(arguments, folder):
    folder.mkdir(parents=True)
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, **kept_tables.UNDRAWN, "OMP_NUM_THREADS": TOO_MANY_THREADS})
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def csv_files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.csv"))}


def complain(name, what, expected, got):
    problems = []
    for file in sorted(expected.keys() | got.keys()):
        old, new = expected.get(file), got.get(file)
        if old == new:
            continue
        if old is None or new is None:
            problems.append(f"{name}: {file} exists in one run only ({what})")
            continue
        rows = zip(old.splitlines(), new.splitlines())
        line, (a, b) = next(((i, r) for i, r in enumerate(rows, 1) if r[0] != r[1]),
                            ("end", (len(old), len(new))))
        problems.append(f"{name}: {file}:{line} ({what}): expected {a}, got {b}")
    return problems


def main():
    tool = pathlib.Path(sys.argv[1]).resolve()
    scratch = pathlib.Path(sys.argv[2]).resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    listed = json.loads(run([tool, "list", "--json", "experiments"], scratch / "list"))
    names = [experiment["name"] for experiment in listed["experiments"]]
    if not names:
        sys.exit("no experiment is registered")
    if sys.argv[3:]:
        rule, named = sys.argv[3:]
        if rule not in ("--only", "--but") or named not in names:
            sys.exit(f"expected --only or --but and an experiment, got {rule} {named}")
        names = [name for name in names if (name == named) == (rule == "--only")]
    problems = kept_tables.planted_are_seen()
    compared = 0
    share, seed = int(os.environ.get("FP8LAB_SWEEP_SHARE", "1")), os.environ.get("FP8LAB_SEED")
    twice = {name for name in names if share <= 1 or random.Random(f"{seed} {name}").randrange(3) == 0}
    for name in names:
        run([tool, "run", name, "--quick", "--threads", "1"], scratch / name / "one")
        expected = csv_files(scratch / name / "one" / "out" / name)
        record = json.loads((scratch / name / "one" / "out" / name / "result.json").read_text())
        program, *recorded = shlex.split(record["command"])
        if program != "fp8lab":
            problems.append(f"{name}: recorded command starts with {program}")
        if not expected:
            problems.append(f"{name}: wrote no CSV")
        compared += len(expected)
        problems += kept_tables.compare(name, scratch / name / "one" / "out" / name)
        if name not in twice:
            continue
        # The command of its own measures every claim too.
        again = ["claims", "--seed", str(record["seed"]), "--out", "out"] if name == "claims" else recorded
        run([tool, *again, "--threads", "3"], scratch / name / "recorded")
        got = csv_files(scratch / name / "recorded" / "out" / name)
        problems += complain(name, f"{shlex.join(again)}, 3 threads", expected, got)
    print(f"experiments {len(names)} twice {len(twice)} csv_files {compared} differences {len(problems)}")
    if problems:
        sys.exit("\n".join(problems))
    shutil.rmtree(scratch)


main()
