"""Fields of JSON that no other test reads: against the text of the same command, or against NumPy.

Usage: json_fields.py PATH_OF_FP8LAB
"""

import json
import tempfile
from pathlib import Path

from checking import check, expect, finish
from fp8_arrays import Folder, normal

import numpy as np


def as_json(*arguments, code=0):
    return json.loads(expect(code, *arguments, "--json").stdout)


def test_claims():
    """The text of a claim is its fields, wrapped at spaces and indented."""
    names = ["F4b", "L7", "F1a", "L1"]
    claims = as_json("claims", *names)["claims"]
    text = expect(0, "claims", *names).stdout
    for claim, block in zip(claims, text.split("\n\n")):
        head, *lines = block.splitlines()
        check(f"{claim['id']}: head", head == f"{claim['id']} ({claim['source']}): {claim['verdict']}", head)
        fields = []
        for line in lines:
            check(f"{claim['id']}: no line is longer than 96 columns", len(line) <= 96, line)
            if line.startswith("  ") and line[2] != " ":
                fields.append([line[2:12].strip(), line[12:]])
            else:
                check(f"{claim['id']}: an indented line", line[:12] == 12 * " " and line[12] != " ", line)
                fields[-1][1] += " " + line[12:]
        named = [["setup", "setup"], ["criterion", "criterion"], ["measured", "figure"], ["basis", "basis"]]
        words = f"line {claim['line']}: \"{claim['words']}\""
        expected = [["claim", claim["claim"]], ["words", words], *([title, claim[key]] for title, key in named)]
        check(f"{claim['id']}: fields", fields == expected, f"{fields}\n{expected}")


def test_bits():
    """Bits of codes: the fields of a format with one blank between them, and none where a field is missing."""
    for name, fields in (("e8m0fnu", [8]), ("e4m3fn", [1, 4, 3]), ("e2m1", [1, 2, 1]), ("e5m2", [1, 5, 2])):
        for one in as_json("table", name)["codes"]:
            digits = f"{one['code']:0{sum(fields)}b}"
            parts = [digits[sum(fields[:i]):sum(fields[:i + 1])] for i in range(len(fields))]
            check(f"{name}: bits of {one['code']}", one["bits"] == " ".join(parts), one)


def test_groups(at):
    """Where groups lie, in products and in their checks."""
    rng = np.random.default_rng(1)
    a, b = at.save("a.npy", normal(rng, 33, 64)), at.save("b.npy", normal(rng, 4, 24, 64))
    stack = at.save("stack.npy", normal(rng, 4, 9, 64))
    wide = at.save("wide.npy", normal(rng, 24, 64))
    cases = [
        ([a, b, "--row-ends", "5,5,21,30"], [[0, 0, 5, 64], [1, 5, 5, 64], [2, 5, 21, 64], [3, 21, 30, 64]], 3),
        ([stack, b, "--batched"], [[g, 9 * g, 9 * g + 9, 64] for g in range(4)], 0),
        ([stack, b, "--row-counts", "9,0,1,6"], [[g, 9 * g, 9 * g + n, 64] for g, n in enumerate((9, 0, 1, 6))], 20),
        ([a, wide, "--k-ends", "16,16,48,60"], [[g, 33 * g, 33 * g + 33, k] for g, k in enumerate((16, 0, 32, 12))], 0),
    ]
    for arguments, parts, ungrouped in cases:
        what = arguments[2]
        path = at / f"d{what}.npy"
        command = [*arguments, "--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3"]
        groups = as_json("gemm", *command, "-o", path)["groups"]
        got = [[part["group"], *part["rows"], part["k"]] for part in groups["parts"] if part["rows"][0] < part["rows"][1]]
        expected = [part for part in parts if part[1] < part[2]]
        check(f"{what}: parts", got == expected, (groups, expected))
        check(f"{what}: counts", (groups["count"], groups["ungrouped_rows"]) == (4, ungrouped), groups)
        # One wrong output in the last group, and one in rows of no group.
        wrong = np.load(path)
        rows = wrong.reshape(-1, 24)
        rows[expected[-1][2] - 1, 7] += 1
        free = [row for row in range(len(rows)) if not any(begin <= row < end for _, begin, end, _ in parts)]
        if free:
            rows[free[-1], 3] = 1
        seen = at.save("wrong.npy", wrong)
        rule = ["--ungrouped", "zero"] if free else []
        report = as_json("verify", seen, "--inputs", *command, *rule, code=1)
        got = [[g["group"], *g["rows"], g["report"]["metrics"]["bit_mismatches"]] for g in report["groups"]]
        last = expected[-1][0]
        want = [[g, begin, end, int(g == last)] for g, begin, end, _ in expected]
        check(f"{what}: groups of a check", [g for g in got if g[1] < g[2]] == want, (got, want))
        check(f"{what}: totals", (report["bit_mismatches"], report["outputs"]) == (1, 24 * sum(e - b for _, b, e, _ in parts)), report)
        outside = report["ungrouped"]
        inside = sum(one["wrong"] for one in outside["wrong"])
        check(f"{what}: rows of no group", (outside["rows"], inside) == (ungrouped, 1 if free else 0), outside)
        check(f"{what}: and where they are", all(begin <= free[-1] < end for begin, end in (one["rows"] for one in outside["wrong"])), outside)


def test_group_scales(at):
    """As many scales as rows are one a row, also where there are as many groups; one scale more is refused."""
    rng = np.random.default_rng(8)
    a, b = at.save("a.npy", normal(rng, 4, 64)), at.save("b.npy", normal(rng, 4, 24, 64))
    scales = np.float32([1, 2, 4, 8])
    command = ["gemm", a, b, "--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "--row-ends", "1,1,3,4", "-o", at / "d.npy"]
    expect(0, *command)
    plain = np.load(at / "d.npy")
    expect(0, *command, "--scale-a", at.save("s.npy", scales))
    check("scales of rows", np.array_equal(np.load(at / "d.npy"), plain * scales[:, None]), (np.load(at / "d.npy"), plain))
    expect(0, *command, "--row-scales", at.save("s.npy", scales))
    check("row scales after the sum", np.array_equal(np.load(at / "d.npy"), plain * scales[:, None]))
    for count in (3, 5, 8):
        expect(2, *command, "--row-scales", at.save("s.npy", np.ones(count, np.float32)), stderr=["--row-scales: expected [4]", f"[{count}]"])


def test_recipes():
    """What a recipe reads: FP32 where its system computes a quotient in FP32, BF16 where it does so in BF16."""
    inputs = {}
    for recipe in as_json("list", "recipes")["recipes"]:
        inputs.setdefault(recipe["input"], set()).add(recipe["rule"])
    check("rules that need FP32", inputs["fp32"] == {"compressed_nvfp4", "compressed_mx", "flax", "quotient_eps", "quotient", "qwix"}, inputs)
    check("rules that need BF16", all("bf16" in rule for rule in inputs["bf16"]) and
          not any("bf16" in rule for rule in inputs["any"] | inputs["fp32"]), inputs)


def test_table():
    """The text of a table has a row of its JSON for each code, in hexadecimal digits of the code's width."""
    for name, digits in (("e2m1", 1), ("e3m2", 2), ("e4m3fn", 2), ("e5m2fnuz", 2), ("f16", 4)):
        codes = as_json("table", name)["codes"]
        lines = expect(0, "table", name).stdout.split("value\n")[1].splitlines()
        check(f"{name}: codes of {digits} digits", [line.split()[0] for line in lines] == [f"0x{i:0{digits}x}" for i in range(len(codes))],
              lines[:3])
        for line, code in list(zip(lines, codes))[:: max(1, len(codes) // 64)]:
            shown, value = float(line.split()[-1]), float(code["value"])
            check(f"{name}: value", shown == value or shown != shown and value != value, (line, code))


def test_outputs(at):
    """JSON is printed beside an output, not in its place."""
    rng = np.random.default_rng(2)
    q, k, v = (at.save(f"{name}.npy", rng.standard_normal((2, 32, 16)).astype(np.float32)) for name in "qkv")
    for more in ([], ["--json"]):
        expect(0, "attn", q, k, v, "-o", at / f"o{len(more)}.npy", *more)
    check("attn", np.array_equal(np.load(at / "o0.npy"), np.load(at / "o1.npy")))


def test_reveal():
    text = expect(0, "reveal", "--model", "fp32", "-m", 2, "-n", 2, "-k", 8, "--tree").stdout
    shown = as_json("reveal", "--model", "fp32", "-m", 2, "-n", 2, "-k", 8)
    check("the tree of a sum", shown.get("tree") and shown["tree"] in text, (shown, text))


def test_report(at):
    """A folder of results holds runs and sweeps."""
    quick = ["--quick", "--out"]
    expect(0, "run", "walkthrough", "--no-plots", *quick, at / "all")
    expect(0, "sweep", "walkthrough", "--repeat", 2, *quick, at / "all" / "swept")
    expect(0, "report", at / "all", "-o", at / "page.html", stdout=["2 runs"])
    only = at.path / "only"
    only.mkdir()
    (at.path / "all" / "swept").rename(only / "swept")
    expect(0, "report", only, "-o", at / "sweep.html", stdout=["1 run"])
    page = Path(at / "sweep.html").read_text()
    check("the sweep is on its page", "2 repeats of each" in page, page[:500])
    # Runs stand in the order in which experiments are read, which is no order of their names.
    names = [one["name"] for one in as_json("list", "experiments")["experiments"]]
    chosen = ["walkthrough", "cost", "seed-listings", "recipes"]
    expect(0, "run", *chosen, "--no-plots", *quick, at / "many")
    expect(0, "report", at / "many", "-o", at / "many.html", stdout=["4 runs"])
    page = Path(at / "many.html").read_text()
    places = {name: page.find(f">{name}<") for name in chosen}
    expected = sorted(chosen, key=names.index)
    check("reading order", min(places.values()) > 0 and sorted(chosen, key=places.get) == expected, (places, expected))


test_claims()
test_recipes()
test_bits()
test_table()
test_reveal()
for test in (test_groups, test_group_scales, test_outputs, test_report):
    with tempfile.TemporaryDirectory() as folder:
        test(Folder(folder))
finish("fields")
