"""How often other seeds fall inside what a finding prints: figures with a spread, quick forms, seed 1 against ten others.

usage: other_seeds.py FP8LAB SCRATCH_FOLDER EXPERIMENT...

A figure is `mean ± half width` or `mean [least, largest]`, named by the words before it; a further seed is inside where
its own mean is, and is not where its finding has no such figure. The bar is 9 of 10 for each figure. Not a test of CTest: it takes eleven runs of each experiment. docs/lab/findings.md has the figures.
"""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

NUMBER = r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?)"
INTERVAL = re.compile(rf"({NUMBER}) ± ({NUMBER})")
RANGE = re.compile(rf"({NUMBER})(?: %)? [(\[]({NUMBER})(?: to |, )({NUMBER})[)\]]")
SEEDS = range(1001, 11001, 1000)  # apart, since experiments count the seeds of their runs up from the one given
ENOUGH = 9


def name_of(text, start):
    """The words before a figure in its part of the sentence, without other figures."""
    part = re.split(r"[,;:()]|\. ", text[:start])[-1]
    return " ".join(word for word in part.split() if word not in ("±", "%") and not re.fullmatch(rf"[\[(]?{NUMBER}[\])]?", word))


def figures(text):
    """Of each figure: its name, how many of this name are before it, kind, mean, least, largest."""
    found = [(m.start(), "±", float(m[1]), float(m[1]) - float(m[2]), float(m[1]) + float(m[2]))
             for m in INTERVAL.finditer(text)]
    found += [(m.start(), "range", *map(float, m.groups())) for m in RANGE.finditer(text)]
    named, seen = {}, collections.Counter()
    for start, *figure in sorted(found):
        name = name_of(text, start)
        named[name, seen[name]] = figure
        seen[name] += 1
    return named


def findings(tool, folder, name, seed):
    out = Path(folder) / str(seed)
    subprocess.run([tool, "run", name, "--quick", "--no-plots", "--seed", str(seed), "--out", str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((out / name / "result.json").read_text())["findings"]


def outside(tool, folder, name):
    """How many figures there are, and of those that fail, what they print."""
    first = findings(tool, folder, name, 1)
    others = [[figures(text) for text in findings(tool, folder, name, seed)] for seed in SEEDS]
    count, failed = 0, []
    for i, text in enumerate(first):
        for key, (kind, mean, least, largest) in figures(text).items():
            count += 1
            means = [other[i][key][1] for other in others if i < len(other) and key in other[i]]
            inside = sum(least <= other <= largest for other in means)
            if inside < ENOUGH:
                failed.append(f"{name}: {mean} [{least:.4g}, {largest:.4g}] ({kind}): {inside} of {len(others)}, "
                              f"{means}: {text[:100]}")
    return count, failed


def main():
    tool, folder, *names = sys.argv[1:]
    total, wrong = 0, []
    for name in names:
        count, failed = outside(tool, folder, name)
        print(f"{name}: {count} figures, {len(failed)} outside", flush=True)
        total += count
        wrong += failed
    print(f"figures {total} outside {len(wrong)}")
    if wrong:
        sys.exit("\n".join(wrong))


main()
