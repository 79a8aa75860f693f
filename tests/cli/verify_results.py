"""The result folder of `fp8lab verify` says what its JSON says, and both say what NumPy counts.

Usage: verify_results.py PATH_OF_FP8LAB
"""

import csv
import json
import tempfile

from checking import check, expect, finish
from fp8_arrays import Folder, normal

import numpy as np

M, N, K = 48, 40, 768


class Case:
    """One output under one check: as JSON, and as a folder of results."""

    def __init__(self, at, name, inputs, got, golden, *arguments, code):
        self.name = name
        self.got, self.golden = got, golden
        path = at.save(f"{name}.npy", got)
        command = ["verify", path, "--inputs", *inputs, *arguments]
        self.report = json.loads(expect(code, *command, "--json").stdout)
        expect(code, *command, "--out", at / name)
        self.folder = at / name / "verify"
        self.result = json.loads((self.folder / "result.json").read_text())

    def table(self, name):
        with open(self.folder / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    def same(self, what, shown, expected):
        check(f"{self.name}: {what}", shown == expected, f"{shown}\nexpected {expected}")


def bits(values, row, column):
    return f"{values.view(np.uint32)[row, column]:08x}"


def compare_elements(case, exact):
    elements = case.report.get("elements", [])
    rows = case.table("elements") if elements else []
    case.same("elements", [[r["which"], int(r["row"]), int(r["column"]), r["expected"], r["got"], float(r["exact"]),
                            float(r["budget"])] for r in rows],
              [[e["which"], e["row"], e["column"], "0x" + e["expected"], "0x" + e["got"], e["exact"], e["budget"]]
               for e in elements])
    for e in elements:
        at = e["row"], e["column"]
        case.same("an element's codes", [e["expected"], e["got"]], [bits(case.golden, *at), bits(case.got, *at)])
        check(f"{case.name}: exact sum", abs(e["exact"] - exact[at]) < 1e-9 * np.abs(exact).max(), (e, exact[at]))
        check(f"{case.name}: the budget covers the golden output",
              0 < abs(case.golden[at] - exact[at]) <= e["budget"] < 0.2 * np.abs(exact).max(), (e, case.golden[at]))


def compare_metrics(case):
    metrics = case.report["metrics"]
    shown = {row["metric"]: float(row["value"]) for row in case.table("metrics")}
    for name, value in shown.items():
        if name not in ("outputs", "max_ulp"):
            check(f"{case.name}: metric {name}", np.isclose(value, float(metrics[name]), rtol=1e-12), (value, metrics))
    x, y = case.golden.astype(np.float64), case.got.astype(np.float64)
    wrong = case.golden.view(np.uint32) != case.got.view(np.uint32)
    for name, expected in {
        "bit_mismatches": wrong.sum(), "relative_l2": np.linalg.norm(y - x) / np.linalg.norm(x),
        "cosine": (x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y),
        "calc_diff": 1 - 2 * (x * y).sum() / (x * x + y * y).sum(),
        "bias": (np.sign(x) * (y - x)).sum() / np.abs(x).sum(), "max_absolute": np.abs(y - x).max(),
        "max_relative": (np.abs(y - x) / np.abs(x)).max(), "mismatch_rate": wrong.mean(),
    }.items():
        check(f"{case.name}: {name} by NumPy", np.isclose(metrics[name], expected, rtol=1e-9, atol=1e-12), (metrics[name], expected))
    case.same("outputs", [shown["outputs"], shown["max_ulp"]], [x.size, metrics["ulp"]["max"]])
    if not wrong.any():
        return
    compare_tiles(case, wrong)


def compare_tiles(case, wrong):
    """The map has tiles of one size, which is returned; each row of the table counts one."""
    rows = [[int(r[c]) for c in ("row", "column", "mismatches")] for r in case.table("tiles")]
    title = next(t["title"] for t in case.result["tables"] if t["name"] == "tiles")
    high, wide = (int(word) for word in title.split() if word.isdigit())
    case.same("tiles", rows, [[i, j, int(wrong[i:i + high, j:j + wide].sum())] for i in range(0, wrong.shape[0], high)
                              for j in range(0, wrong.shape[1], wide) if wrong[i:i + high, j:j + wide].any()])
    return high, wide


def compare_regions(case):
    wrong = case.golden.view(np.uint32) != case.got.view(np.uint32)
    seen = np.zeros_like(wrong)
    for region in case.report.get("regions", []):
        (top, bottom), (left, right) = region["rows"], region["columns"]
        inside = wrong[top:bottom, left:right]
        # A budget counts what is outside of it.
        fits = region["mismatches"] <= inside.sum() if case.report["check"] == "budget" else region["mismatches"] == inside.sum()
        check(f"{case.name}: mismatches of a region", fits, (region, inside.sum()))
        check(f"{case.name}: a region is no larger than it must be",
              inside[[0, -1]].any(axis=1).all() and inside[:, [0, -1]].any(axis=0).all(), region)
        seen[top:bottom, left:right] = True
    return seen


def compare_findings(case):
    report, findings = case.report, case.result["findings"]
    expected = []
    if "diagnosis" in report:
        found = report["diagnosis"]
        expected += [f"Likely cause: {c['name']}, {c['text']}; it explains {c['explained']} of {found['mismatches']} mismatches."
                     for c in found["causes"]]
        expected += [] if found["causes"] else [f"None of {found['tried']} known mistakes explains the mismatches."]
    if "budget" in report:
        expected.append("{within} of {checked} examined mismatches lie within the error budget of the exact result."
                        .format(**report["budget"]))
    passing = [gate["gate"] for gate in case.table("gates") if report["gates"][gate["gate"]]]
    case.same("gates", [g["gate"] for g in case.table("gates") if g["passes"] == "true"], passing)
    if report["verdict"] == "mismatch" and passing:
        expected.append(f"Shipped gates that would pass this output: {', '.join(passing)}.")
    missed = [f["fault"] for f in report.get("power", {}).get("faults", [])
              if f["applies"] and not f["detected"][report["check"]]]
    if missed:
        check(f"{case.name}: the first fault that the check misses",
              findings[-1].startswith(f"The check {report['check']} would also pass with this fault: {missed[0]} ("), findings)
        findings = findings[:-1]
    case.same("findings", findings[1:], expected)
    check(f"{case.name}: the verdict is the first finding", findings[0].startswith(report["verdict"] + ": "), findings)
    return missed


def compare_faults(case):
    shown = case.table("faults") if "power" in case.report else []
    faults = case.report.get("power", {}).get("faults", [])
    case.same("faults", [[row["fault"], row["applies"] == "true"] for row in shown], [[f["fault"], f["applies"]] for f in faults])
    for row, fault in zip(shown, faults):
        check(f"{case.name}: share of outputs that {fault['fault']} changes",
              np.isclose(float(row["changed"]), 100 * fault["mismatch_rate"]), (row, fault))
        words = {name: ("detected" if seen else "missed") if fault["applies"] else "" for name, seen in fault["detected"].items()}
        case.same(f"checks of {fault['fault']}", {name: row[name] for name in words}, words)


# The title of each table, and of its columns name, unit and description; checks follow those of the faults.
WORDS = {
    "metrics": "Errors of the output: metric [] of the output against the expected one; value [] value",
    "elements": "Wrong elements, one per row: which [] first or worst; row [1] of the output; column [1] of the output; "
                "expected [] code; got [] code; exact [1] the exact result; budget [1] the error that the instruction may make",
    "gates": "Shipped gates on this output: gate [] project; passes [] whether it would pass this output; rule [] what it requires; "
             "source [] file in which it is",
    "faults": "Known faults against each check: fault [] what goes wrong; applies [] whether the fault applies to this problem; "
              "changed [%] of the outputs",
    "tiles": "Tiles of {} x {} outputs with mismatches: row [1] first of the tile; column [1] first of the tile; "
             "mismatches [1] in the tile",
}


def compare_words(case, high, wide):
    tables = {table["name"]: table for table in case.result["tables"]}
    case.same("tables", list(tables), [name for name in WORDS if name in tables])
    for name, table in tables.items():
        columns = [f"{c['name']} [{c['unit']}] {c['description']}" for c in table["columns"]]
        if name == "faults":
            checks = case.report["power"]["faults"][0]["detected"]
            case.same("columns of checks", sorted(columns[3:]), sorted(f"{one} [] whether this check detects it" for one in checks))
            columns = columns[:3]
        case.same(f"words of {name}", f"{table['title']}: {'; '.join(columns)}", WORDS[name].format(high, wide))
    record = {key: case.result[key] for key in ("experiment", "question", "quick")}
    case.same("the record", record, {"experiment": "verify", "question": "Is this output right, and could the test have failed?",
                                     "quick": False})
    wrong = int((case.golden.view(np.uint32) != case.got.view(np.uint32)).sum())
    case.same("the map", [(plot["name"], plot["title"]) for plot in case.result["plots"]],
              [("mismatches", f"{wrong} of {case.got.size} outputs differ; a cell is {high} x {wide} of them")])
    axes = json.loads((case.folder / "mismatches.json").read_text())["usermeta"]
    case.same("labels of the map", [axes["x"], axes["y"], axes["value"]], ["column", "row", "mismatches in a cell"])


def test(at):
    rng = np.random.default_rng(11)
    a, b = normal(rng, M, K), normal(rng, N, K)
    inputs = at.save("a.npy", a), at.save("b.npy", b)
    unit = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "--promotion", 256]
    golden_path = at / "golden.npy"
    expect(0, "gemm", *inputs, *unit, "-o", golden_path)
    golden = np.load(golden_path)
    exact = as_doubles(a) @ as_doubles(b).T

    # One step at one place, half as much again in part of a row, and half in two blocks that touch.
    wrong = golden.copy()
    wrong[17, 33] = np.nextafter(wrong[17, 33], np.float32(np.inf))
    wrong[20, 3:19] *= np.float32(1.5)
    wrong[40:44, 7:23] *= np.float32(0.5)
    wrong[44:47, 1:9] *= np.float32(0.5)  # further to the left: a region of its own
    loose = golden * np.float32(1.0 + 2.0**-9)
    # The last 256 terms of one output left out.
    short = golden.copy()
    short[5, 9] -= np.float32(as_doubles(a)[5, 512:] @ as_doubles(b)[9, 512:])
    missed = {}
    for name, got, check_name, code in (
        ("wrong", wrong, "bitwise", 1), ("outside", wrong, "budget", 1), ("loose", loose, "vllm.scaled_mm", 0),
        ("short", short, "bitwise", 1), ("right", golden, "bitwise", 0), ("matrix", wrong, "bitwise", 1),
    ):
        more = ["--fault-matrix"] if name == "matrix" else []
        case = Case(at, name, inputs, got, golden, *unit, "--check", check_name, *more, code=code)
        compare_elements(case, exact)
        compare_metrics(case)
        compare_faults(case)
        missed[name] = compare_findings(case)
        seen = compare_regions(case)
        different = golden.view(np.uint32) != got.view(np.uint32)
        if name == "matrix":
            compare_words(case, *compare_tiles(case, different))
            case.same("parameters", {key: case.result["parameters"].get(key) for key in (
                "got", "inputs", "golden", "cast", "scale", "check", "dtype", "output_dtype", "recipe", "call", "model", "promotion")},
                {"got": str(at / "matrix.npy"), "inputs": list(map(str, inputs)), "golden": None, "cast": None, "scale": None,
                 "check": "bitwise", "dtype": "e4m3fn", "output_dtype": "f32", "recipe": None, "call": None,
                 "model": "sm90.wgmma.e4m3", "promotion": 256})
        if name in ("wrong", "matrix"):
            case.same("what is in no region is alone", np.argwhere(different & ~seen).tolist(), [[17, 33]])
            case.same("regions", [[r["rows"], r["columns"]] for r in case.report["regions"]], [[[20, 21], [3, 19]], [[40, 44], [7, 23]], [[44, 47], [1, 9]]])
            first, worst = case.report["elements"]
            case.same("places", [[first["row"], first["column"]], divmod(case.report["metrics"]["max_absolute_index"], N)],
                      [[17, 33], divmod(int(np.abs(golden.astype(np.float64) - got).argmax()), N)])
        if name == "short":
            case.same("the block of K that is missing", case.report["elements"][0]["k_block"], [512, 768])
    # Outputs so large that tiles have several rows and columns.
    inputs = at.save("tall.npy", normal(rng, 300, 32)), at.save("wide.npy", normal(rng, 200, 32))
    expect(0, "gemm", *inputs, "--dtype", "e4m3fn", "-o", golden_path)
    golden = np.load(golden_path)
    wrong = golden.copy()
    wrong[129:140, 77:99] += np.float32(1)
    wrong[299, 199] += np.float32(1)
    case = Case(at, "large", inputs, wrong, golden, "--dtype", "e4m3fn", code=1)
    high, wide = compare_tiles(case, golden != wrong)
    check("tiles have several rows and columns", min(high, wide) > 1, case.result["tables"])
    axes = json.loads((case.folder / "mismatches.json").read_text())["usermeta"]
    case.same("the first row of each line of the map", sorted(map(int, axes["rows"])), list(range(0, 300, high)))
    case.same("the first column of each cell of the map", list(map(int, axes["columns"])), list(range(0, 200, wide)))
    check("a loose gate misses a gain of 0.72", "gain_0.72" in missed["loose"], missed)
    check("bits miss nothing", not missed["right"] and not missed["wrong"], missed)


def as_doubles(codes):
    return codes.view("float8_e4m3fn").astype(np.float64)


with tempfile.TemporaryDirectory() as folder:
    test(Folder(folder))
finish("verify results")
