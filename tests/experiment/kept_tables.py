"""Tables of the experiments' quick forms, kept in tables/EXPERIMENT.txt and compared cell by cell, and what the
experiments say of them (words.txt) and draw of them (plots.txt, a line a series or a cell of a heat map). Each
begins with a line of three equals signs and its name.

Text, integers and truth values must agree exactly; reals to a relative 1e-9, because the C library's
functions differ in the last place between processors. What holds whatever the figures are is checked
too: a mean lies between its least and largest value, a ratio against itself is one. Words are findings, the headline,
titles, units and descriptions of columns; they must agree exactly.

Where a table changes on purpose: kept_tables.py FP8LAB writes the new ones, and the change of the
files in version control is what to read. kept_tables.py FP8LAB --check EXPERIMENT runs and compares one.
"""

import csv
import io
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = Path(__file__).parent / "tables"
WORDS = "words.txt"
PLOTS = "plots.txt"
MARK = "=== "
# Plots are wanted as specifications alone: no Python that could draw them.
UNDRAWN = {"FP8LAB_PYTHON": "/nowhere/python3"}
TOLERANCE = 1e-9
MOST_SHOWN = 20

# (experiment, table, {column: value that selects rows}, column, what it must hold there)
CONSTANT = [
    ("cost", "traffic", {"scheme": "bf16"}, "saving", 0.0),
    ("cost", "traffic", {"scheme": "bf16"}, "gradient_saving", 0.0),
    ("cost", "traffic", {"scheme": "bf16"}, "activation_saving", 0.0),
    ("data-parallel", "runs", {"wire": "f32", "scaling": "none"}, "gap", 0.0),
    ("dynamic-range", "formats", {"format": "e4m3fn"}, "max_finite", 448.0),
    ("dynamic-range", "formats", {"format": "e5m2"}, "max_finite", 57344.0),
]


def read_kept(root, experiment):
    """Texts by name: tables, words and plots; none of an experiment that has no file."""
    path = root / f"{experiment}.txt"
    parts = re.split(f"^{MARK}", path.read_text(), flags=re.MULTILINE)[1:] if path.exists() else []
    return dict(part.split("\n", 1) for part in parts)


def write_kept(root, experiment, texts):
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{experiment}.txt").write_text("".join(f"{MARK}{name}\n{text}" for name, text in sorted(texts.items())))


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def same(kept, got):
    if kept == got:
        return True
    try:
        a, b = float(kept), float(got)
    except ValueError:
        return False
    # Integers have no point and no exponent, and are exact.
    if not (set(kept) & set(".en")) or not (set(got) & set(".en")):
        return False
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=0.0)


def differences(name, kept, got):
    """`kept` and `got`: the text of one table."""
    old, new = rows_of(kept), rows_of(got)
    if old[0] != new[0]:
        return [f"{name}: columns: expected {old[0]}, got {new[0]}"]
    found = []
    if len(old) != len(new):
        found.append(f"{name}: rows: expected {len(old) - 1}, got {len(new) - 1}")
    for line, (a, b) in enumerate(zip(old[1:], new[1:]), 1):
        found += [f"{name}: row {line} ({', '.join(b[:3])}), {column}: expected {x}, got {y}"
                  for column, x, y in zip(old[0], a, b) if not same(x, y)]
    return found


def broken_invariants(experiment, table, text):
    head, *rows = rows_of(text)
    found = []
    for column in head:
        if not {column + "_min", column + "_max"} <= set(head):
            continue
        for line, row in enumerate(rows, 1):
            least, middle, most = (float(row[head.index(c)])
                                   for c in (column + "_min", column, column + "_max"))
            slack = TOLERANCE * max(abs(least), abs(most))
            if not math.isnan(middle) and not least - slack <= middle <= most + slack:
                found.append(f"{experiment}/{table}: row {line}: expected {column}_min <= {column} <= {column}_max, "
                             f"got {least}, {middle}, {most}")
    for name, of, where, column, value in CONSTANT:
        if (name, of) != (experiment, table):
            continue
        chosen = [row for row in rows if all(row[head.index(c)] == v for c, v in where.items())]
        if not chosen:
            found.append(f"{experiment}/{table}: no row with {where}")
        found += [f"{experiment}/{table}: {where}: {column}: expected {value}, got {row[head.index(column)]}"
                  for row in chosen if float(row[head.index(column)]) != value]
    return found


def words_of(folder):
    """What a run says beside its figures, a line each."""
    result = json.loads((Path(folder) / "result.json").read_text())
    lines = [f"finding: {finding}" for finding in result["findings"]]
    headline = dict(result.get("headline") or {})
    lines += [f"headline curve: {curve['label']} as {curve['name']}" for curve in headline.pop("curves", [])]
    lines += [f"headline {key}: {text}" for key, text in headline.items()]
    for table in result["tables"]:
        lines.append(f"table {table['name']}: {table['title']}")
        lines += [f"table {table['name']}: {column['name']} ({column['unit']}): {column['description']}" for column in table["columns"]]
    for plot in result["plots"]:
        specification = json.loads((Path(folder) / f"{plot['name']}.json").read_text())
        axes = specification["usermeta"]
        scales = {name: json.dumps(scale) for name, scale in specification.get("encoding", {}).items()}
        logarithmic = [each["name"] + (" base 2" if "LN2" in scales.get(each["name"].removeprefix("log_"), "") else "")
                       for each in specification.get("params", []) if each.get("value") is True]
        lines.append(f"plot {plot['name']}: {plot['title']}; {axes.get('x', '')}; {axes.get('y', '')}; "
                     f"{' '.join(logarithmic + colours_of(specification))}")
        lines += [f"plot {plot['name']}: {name}: {shown}" for name, shown in looks_of(specification)]
    return lines


def looks_of(specification):
    """What a reader sees beside the figures: the labels of a heat map, and of a plot's series how it is drawn."""
    named = specification["usermeta"]
    if named["kind"] == "heat_map":
        return [(place, " | ".join(listed(named[place]))) for place in ("value", "columns", "rows")]
    looks = {label: {} for label in named["labels"]}
    tops = []
    for layer in specification["layer"]:
        encoding, mark = layer.get("encoding", {}), layer["mark"]
        of = re.findall(r"\d+", next((step["filter"] for step in layer.get("transform", []) if "indexof" in step.get("filter", "")), ""))
        for i, label in enumerate(named["labels"]):
            if layer.get("name") != "pointer" and mark["type"] != "area" and (not of or str(i) in of[:-1]):
                looks[label][mark["type"]] = mark.get("interpolate", mark["type"])
        for what in ("color", "strokeDash", "shape"):
            scale = encoding.get(what, {}).get("scale", {})
            for label, look in zip(scale.get("domain", []), scale.get("range", [])):
                looks[label][what] = " ".join(map(str, listed(look)))
        axis = encoding.get("x", {}).get("axis") or {}
        tops += [("top", axis["title"])] if axis.get("orient") == "top" else []
    return tops + [(f"series {label}", ", ".join(look.values())) for label, look in looks.items()]


def listed(value):
    return value if isinstance(value, list) else [value]


def colours_of(part):
    """How a heat map's colours go with its values, and from which colours: what no cell shows."""
    if isinstance(part, list):
        return [scale for each in part for scale in colours_of(each)]
    if not isinstance(part, dict):
        return []
    scale = part.get("scale")
    own = [f"{scale['type']} {scale['scheme']}"] if isinstance(scale, dict) and {"type", "scheme"} <= scale.keys() else []
    return own + [name for key, each in part.items() if key != "data" for name in colours_of(each)]


def plots_of(folder):
    """The figures of a run's plots as CSV: of each curve how many points it has, the first and the last, and of its sizes the mean
    and the mean by place; of each heat map its cells."""
    axes = ("x", "y", "low", "high")
    rows = [["plot", "of", "points", *(f"{axis}_{what}" for axis in axes for what in ("first", "last", "mean", "by_place"))]]
    for plot in json.loads((Path(folder) / "result.json").read_text())["plots"]:
        specification = json.loads((Path(folder) / f"{plot['name']}.json").read_text())
        named = specification["usermeta"]
        for values in specification["data"]["values"]:
            if "series" not in values:
                for column, text, value in zip(*(each if isinstance(each, list) else [each] for each in
                                                 (values["column"], values["text"], values["value"]))):
                    rows.append([plot["name"], f"{values['row']}, {column}", text, repr(value)])
                continue
            row = [plot["name"], named["labels"][values["series"]], str(len(values["x"]))]
            for axis in axes:
                numbers = [number for number in values.get(axis, []) if number is not None]
                sizes = [abs(number) for number in numbers]
                by_place = [place * size for place, size in enumerate(sizes, 1)]
                row += [repr(numbers[0]), repr(numbers[-1]), repr(statistics.fmean(sizes)), repr(statistics.fmean(by_place))] if numbers else [""] * 4
            rows.append(row)
    return text_of([row + [""] * (len(rows[0]) - len(row)) for row in rows])


def other_words(name, kept, got):
    """`kept` and `got`: lines of `words_of`."""
    found = [f"{name}: words: expected {a or 'nothing'!r}, got {b or 'nothing'!r}"
             for a, b in itertools.zip_longest(kept, got) if a != b]
    return found if len(kept) == len(got) else found[:1] + [f"{name}: words: expected {len(kept)} lines, got {len(got)}"]


def compare(experiment, folder, root=KEPT):
    """What is wrong with tables and words of `experiment` in `folder`, at most `MOST_SHOWN` lines; `root` holds what they
    should be."""
    kept = read_kept(root, experiment)
    words, plots = kept.pop(WORDS, None), kept.pop(PLOTS, None)
    got = {path.name: path.read_text() for path in Path(folder).glob("*.csv")}
    found = [f"{experiment}/{name} is {'kept' if name in kept else 'written'} only"
             for name in sorted(kept.keys() ^ got.keys())]
    for name in sorted(kept.keys() & got.keys()):
        found += differences(f"{experiment}/{name}", kept[name], got[name])
    if words is not None:
        found += other_words(experiment, words.splitlines(), words_of(folder))
        found += differences(f"{experiment}/{PLOTS}", plots, plots_of(folder))
    for name, text in sorted(got.items()):
        found += broken_invariants(experiment, name.removesuffix(".csv"), text)
    if len(found) > MOST_SHOWN:
        found = found[:MOST_SHOWN] + [f"{experiment}: {len(found) - MOST_SHOWN} more"]
    return found


def planted_are_seen():
    """Faults planted in a kept table that nobody sees: none, or the comparison is worth nothing."""
    kept = read_kept(KEPT, "format-asymmetry")
    text = kept["tensors.csv"]
    head, *rows = rows_of(text)
    missed = []
    for column in range(len(head)):
        changed = [row[:] for row in rows]
        cell = changed[1][column]
        try:
            changed[1][column] = repr(float(cell) * (1 + 1e-6) + 1e-300)
        except ValueError:
            changed[1][column] = cell + "?"
        if not differences("planted", text, text_of([head, *changed])):
            missed.append(f"a change of column {head[column]} was not seen")
    swapped = head[:]
    low, high = head.index("relative_l2_min"), head.index("relative_l2_max")
    swapped[low], swapped[high] = head[high], head[low]
    if not broken_invariants("format-asymmetry", "tensors", text_of([swapped, *rows])):
        missed.append("least and largest values that changed places were not seen")
    if not differences("planted", text, text_of([head, rows[1], rows[0], *rows[2:]])):
        missed.append("rows that changed places were not seen")
    if not differences("planted", text, text_of([head, *rows[:-1]])):
        missed.append("a lost row was not seen")
    words = kept[WORDS].splitlines()
    figure = next(i for i, line in enumerate(words) if line.startswith("finding: ") and "0.0378 %" in line)
    if not other_words("planted", words, [*words[:figure], words[figure].replace("0.0378 %", "0.0379 %"), *words[figure + 1:]]):
        missed.append("another figure in a finding was not seen")
    if not other_words("planted", words, words[:-1]):
        missed.append("lost words were not seen")
    return missed


def text_of(rows):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def keep(folder, root):
    """Writes what `compare` reads."""
    texts = {table.name: table.read_text() for table in folder.glob("*.csv")}
    write_kept(root, folder.name, {**texts, PLOTS: plots_of(folder), WORDS: "\n".join(words_of(folder)) + "\n"})


def run_quick(tool, experiment, folder):
    subprocess.run([tool, "run", experiment, "--quick", "--out", folder], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, **UNDRAWN})


def main():
    tool = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[2:3] == ["--check"]:
            run_quick(tool, sys.argv[3], folder)
            found = compare(sys.argv[3], Path(folder) / sys.argv[3])
            if found:
                print(*found, sep="\n")
            return 1 if found else 0
        run_quick(tool, "all", folder)
        for experiment in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
            keep(experiment, KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
