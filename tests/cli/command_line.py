"""The command line as its users meet it: output, exit codes, error messages.

Usage: command_line.py PATH_OF_FP8LAB
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = sys.argv[1]
VECTORS = "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 2\n"
failures = 0


def run(*arguments, **options):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, **options)


def check(what, condition, seen):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {seen}")


def expect(arguments, code, stdout=(), stderr=()):
    """The command exits with `code` and prints every given part."""
    result = run(*arguments)
    name = " ".join(map(str, arguments))
    check(f"`{name}` exits {code}", result.returncode == code, (result.returncode, result.stderr))
    for part in stdout:
        check(f"`{name}` prints {part!r}", part in result.stdout, result.stdout)
    for part in stderr:
        check(f"`{name}` says {part!r} on stderr", part in result.stderr, result.stderr)
    return result


def test_cast():
    codes = lambda *more: [c["value"] for c in json.loads(run("cast", "464", "465", "--json", *more).stdout)["casts"]]
    check("464 and 465 saturate", codes() == [448.0, 448.0], codes())
    nosat = codes("--profile", "nvidia_nosat")
    check("465 is NaN non-saturating", nosat == [448.0, "nan"], nosat)
    expect(["cast", "-1", "-0.0", "-inf"], 0, ["0xb8", "0x80", "0xfe"])
    expect(["cast", "inf"], 0, ["         -  saturated"])
    relative = lambda *more: [c["relative_error"] for c in json.loads(run("cast", *more, "--json").stdout)["casts"]]
    check("errors relative to 0, a number, infinities, NaN", relative("0", "-3", "1000", "inf", "nan") == [0.0, 0.0, -0.552, "nan", "nan"],
          relative("0", "-3", "1000", "inf", "nan"))
    check("infinity as E5M2's", relative("inf", "--format", "e5m2", "--profile", "nvidia_nosat") == [0.0],
          relative("inf", "--format", "e5m2", "--profile", "nvidia_nosat"))
    expect(["cast", "0x3f800000"], 0, ["0x38", "exact"])
    expect(["cast", "twelve"], 2, stderr=["VALUE", "'twelve'"])
    expect(["cast", "1", "--format", "e9m9"], 2, stderr=["format", "e4m3fn", "'e9m9'"])
    expect(["cast", "1", "--profile", "x"], 2, stderr=["profile", "nvidia_satfinite"])
    expect(["cast", "1", "--format", "e2m1", "--profile", "seed_toy"], 2, stderr=["240"])


def test_bench():
    # Both kinds of block-scaled FP4 instructions get scales that they take.
    for model in ["sm100.tcgen05.mxf8f6f4.e2m1", "sm120.mma.mxf8f6f4.e2m1.e4m3", "sm100.tcgen05.mxf4nvf4"]:
        expect(["bench", "gemm", "--model", model, "--shape", "8x8x64", "--repetitions", 1, "--no-scaling"], 0, [model])


def test_table():
    expect(["table", "e4m3fn"], 0, ["0x7e", "448", "0x7f", "nan"])
    expect(["table", "f32"], 2, stderr=["FORMAT"])
    table = json.loads(run("table", "e5m2", "--json").stdout)
    check("e5m2 has 256 codes", len(table["codes"]) == 256, len(table["codes"]))


def test_replay(folder):
    good = folder / "good.txt"
    good.write_text(VECTORS + "3838 4030 3f800000 40600000\n")
    result = expect(["replay", good], 0)
    check("replay ends with the count", result.stdout.endswith("cases 1 mismatches 0\n"), result.stdout)
    bad = folder / "bad.txt"
    bad.write_text(VECTORS + "3838 4030 3f800000 40600001\n" * 30)
    result = expect(["replay", bad], 1, ["40600001", "40600000"])
    check("at most 20 mismatches are shown", result.stdout.count("line ") == 20, result.stdout.count("line "))
    check("and all are counted", result.stdout.endswith("cases 30 mismatches 30\n"), result.stdout[-60:])
    both = expect(["replay", good, bad, good], 1, ["good.txt: sm90.wgmma.e4m3: cases 1 mismatches 0"])
    check("files are added up", both.stdout.endswith("\ncases 32 mismatches 30\n"), both.stdout[-60:])
    expect(["replay", good, "--model", "sm91"], 2, stderr=["'sm91'"])
    for name, text, reason in (
        ("empty.txt", "", "empty"),
        ("cut.txt", VECTORS + "3838 4030 3f8", ":5: truncated"),
        ("hex.txt", VECTORS + "38g8 4030 3f800000 40600000\n", ":5: field a"),
        ("width.txt", VECTORS + "383838 4030 3f800000 40600000\n", ":5: field a"),
        ("headless.txt", "3838 4030 3f800000 40600000\n", ":1:"),
    ):
        path = folder / name
        path.write_text(text)
        expect(["replay", path], 2, stderr=[name, reason])
    expect(["replay", folder / "missing.txt"], 2, stderr=["missing.txt"])


def test_claims():
    expect(["claims", "F4b", "L7"], 0, ["F4b (naive-FP8 tutorial): holds with", "3.12 %", "0 hold, 1 hold with"])
    claims = json.loads(run("claims", "F1a", "L1", "--json", "--seed", "9").stdout)
    check("claims come in the order asked for", [c["id"] for c in claims["claims"]] == ["F1a", "L1"], claims)
    check("claims record the seed", claims["seed"] == 9, claims["seed"])
    check("claims carry values", claims["claims"][1]["values"][0]["value"] == 112, claims["claims"][1])
    with tempfile.TemporaryDirectory() as folder:
        strange = f"{folder}/with a space"
        expect(["claims", "L7", "L1", "--seed", "3", "--threads", "2", "--out", strange], 0)
        record = json.loads((Path(strange) / "claims" / "result.json").read_text())
        wanted = {"experiment": "claims", "seed": 3, "threads": 2, "quick": False,
                  "command": f"fp8lab claims L7 L1 --seed 3 --out '{strange}'"}
        for key, value in wanted.items():
            check(f"claims record {key}", record[key] == value, record[key])
        check("claims record their names", record["parameters"]["ids"] == ["L7", "L1"], record["parameters"])
        expect(["claims", "F1a", "L1", "--out", folder], 0)
        record = json.loads((Path(folder) / "claims" / "result.json").read_text())
        check("claims record what was asked for", record["command"].startswith("fp8lab claims F1a L1 --seed "), record["command"])
        check("claims record the identifiers", record["parameters"]["ids"] == ["F1a", "L1"], record["parameters"])
    expect(["claims", "Z9"], 2, stderr=["'Z9'", "expected one of 71 names"])
    expect(["claims", "--threads", "0"], 2, stderr=["--threads"])


def test_cost(folder):
    expect(["cost", "--model", "7b"], 0, ["fp8-lm", "attention V"])
    cost = json.loads(run("cost", "--model", "7b", "--json").stdout)
    check("the published total stands beside the counted one",
          [row["published_GiB"] for row in cost["memory"]] == [69.6, None, 49.4], cost["memory"])
    check("the uncounted parts explain it", max(abs(row["ratio"] - 1) for row in cost["memory_published"]) < 0.15, cost)
    cost = json.loads(run("cost", "--model", "13b", "--scheme", "bf16", "--data", "1", "--json").stdout)
    check("one scheme was asked for", [row["scheme"] for row in cost["memory"]] == ["bf16"], cost["memory"])
    check("no figure is published for one data rank",
          cost["memory"][0]["published_GiB"] is None and "memory_published" not in cost, cost["memory"])
    check("one data rank sends no gradients", cost["traffic"][0]["gradients_GiB"] == 0, cost["traffic"])
    shape = folder / "tiny.toml"
    shape.write_text("layers = 2\nhidden = 32\nheads = 4\nvocabulary = 64\n")
    expect(["cost", "--model", shape], 0, ["tiny"])
    expect(["cost", "--model", "8b"], 2, stderr=["model", "'8b'", "175b"])
    expect(["cost", "--model", "7b", "--pipeline", "5"], 2, stderr=["pipeline", "32"])
    expect(["cost", "--model", "7b", "--scheme", "fp4"], 2, stderr=["scheme", "'fp4'"])


def test_layers(folder):
    header = json.dumps({
        "lm_head.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "mlp.up.weight": {"dtype": "BF16", "shape": [16, 32], "data_offsets": [16, 1040]},
        "mlp.down.weight": {"dtype": "F8_E4M3", "shape": [16, 32], "data_offsets": [1040, 1552]},
    }).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(1552))
    expect(["layers", path, "--rule", "llama-factory"], 0,
           ["keep  lm_head.weight [2, 2]: the name contains lm_head", "fp8   mlp.up.weight",
            "keep  mlp.down.weight [16, 32]: e4m3fn already", "1 of 3 tensors are converted, 512 of 1028 elements (rule llama-factory)"])
    layers = json.loads(run("layers", path, "--rule", "all", "--json").stdout)
    check("all converts what is not FP8", [w["converts"] for w in layers["weights"]] == [True, True, False], layers)
    expect(["layers", path, "--rule", "te"], 2, stderr=["rule", "'te'", "llama-factory"])
    expect(["layers", folder / "none.safetensors", "--rule", "all"], 2, stderr=["none.safetensors"])


def test_experiments(folder):
    expect(["list", "formats"], 0, ["e4m3fn", "57344"])
    listed = json.loads(run("list", "--json").stdout)
    check("list has every kind", set(listed) == {"formats", "profiles", "recipes", "models", "accumulators", "parameters", "format-parameters", "calls", "experiments"},
          set(listed))
    unsaid = [r["name"] for r in listed["recipes"]
              if not (r["known"] and r["used_by"] and (r["source"] or r["known"] == "defined here"))]
    check("every recipe says where it was read and how it is known", not unsaid, unsaid)
    models = {model["name"]: model for model in listed["models"]}
    check("a model has its numbers", models["sm90.wgmma.e4m3"]["terms"] == 32, models["sm90.wgmma.e4m3"])
    expect(["list", "nonsense"], 2)
    file = folder / "mine.toml"
    file.write_text('experiment = "outlier"\nquick = true\nseed = 5\n[set]\nelements = 1e3\ntiles = [16, 64]\nrepeats = 1\npublished_repeats = 1\n')
    for more, seed in (([], 5), (["--seed", "9"], 9)):
        expect(["run", file, "--no-plots", "--out", folder / "file", *more], 0)
        result = json.loads((folder / "file/outlier/result.json").read_text())
        seen = [result[key] for key in ("seed", "quick")] + [result["parameters"][key] for key in ("elements", "tiles")]
        check("a run file is the options that it states", seen == [seed, True, 1000, [16, 64]], seen)
    expect(["run", file, "outlier"], 2, stderr=["a single run file"])
    file.write_text('experiment = "outlier"\n[axes]\ntiles = [16]\n')
    expect(["run", file], 2, stderr=["mine.toml", "no [axes]"])
    file.write_text("quick = true\n")
    expect(["run", file], 2, stderr=["mine.toml", 'experiment = "NAME"'])
    mpi = run("run", "outlier", "recipes", "outlier", "cost", "--mpi", "--quick", "--out", folder / "mpi")
    parts = ("alone, got 3 experiments, the first outlier",) if "a build with MPI" not in mpi.stderr else ()
    check("--mpi counts the experiments, each once", mpi.returncode == 2 and all(p in mpi.stderr + mpi.stdout for p in parts),
          (mpi.returncode, mpi.stdout, mpi.stderr))
    expect(["run", "nonsense"], 2, stderr=["experiment", "'nonsense'"])
    expect(["run", "all", "--seed", "-1"], 2, stderr=["--seed", "-1"])
    expect(["run", "all", "--threads", "0"], 2, stderr=["--threads"])
    expect(["report", folder / "missing"], 2, stderr=["DIR", "missing"])
    expect(["report", folder], 2, stderr=["result.json"])
    (folder / "result.json").write_text("{}")
    expect(["report", folder], 2, stderr=["result.json", "schema is missing"])


def test_report_order(folder):
    """Runs of a folder stand in the order of the experiments, others after them by their names; two folders one after the other."""
    known = [one["name"] for one in json.loads(run("list", "experiments", "--json").stdout)["experiments"]]
    chosen = ("walkthrough", "cost", "sweep-efficiency")
    for seed, name in enumerate(chosen, 1):
        expect(["run", name, "--quick", "--no-plots", "--seed", seed, "--out", folder / "out"], 0)
    for seed, (name, called) in enumerate((("cost", "zeta"), ("walkthrough", "alpha"), ("cost", "more/cost")), 4):
        expect(["run", name, "--quick", "--no-plots", "--seed", seed, "--out", folder / "one"], 0)
        (folder / "more").mkdir(exist_ok=True)
        (folder / "one" / name).rename(folder / ("out" if "/" not in called else ".") / called)

    def seeds_in(arguments, page):
        said = expect(["report", *arguments], 0)
        text = Path(page).read_text()
        kilobytes = -(-Path(page).stat().st_size // 1000)
        runs = re.findall(r"<pre>(?:A: )?fp8lab run \S+ --seed (\d+)", text)
        return [int(seed) for seed in runs], said.stdout, kilobytes

    ordered = [chosen.index(name) + 1 for name in known if name in chosen] + [5, 4]
    page = folder / "out" / "report.html"
    for arguments, file, order, words in (
            ([folder / "out"], page, ordered, "5 runs"),
            ([folder / "more", folder / "out"], folder / "more" / "report.html", [6, *ordered], "6 runs"),
            ([folder / "out" / "zeta", folder / "more", "-o", folder / "a.html"], folder / "a.html", [4], "2 runs side by side"),
            ([folder / "more", folder / "out" / "zeta", "--separate", "-o", folder / "b.html"], folder / "b.html", [6, 4], "2 runs"),
            ([folder / "out" / "alpha", folder / "out" / "zeta", "-o", folder / "c.html"], folder / "c.html", [5, 4], "2 runs"),
            ([folder / "out" / "alpha"], folder / "out" / "alpha" / "report.html", [5], "1 run")):  # fmt: skip
        got, said, kilobytes = seeds_in(arguments, file)
        check(f"report {arguments}: its runs in order", got == order, (got, order))
        check(f"report {arguments}: what it says", said == f"{file}: {words}, {kilobytes} kB\n", said)


def test_ignored_options():
    """An option that says nothing without another one is refused alone, and taken with each of those that it belongs to."""
    scales = ("--scale-a", "--scale-b")
    groups = ("--row-ends", "--row-indices", "--row-counts")
    for command, option, value, to in (
        ("gemm", "--tiles-a", "1x32", scales[:1]), ("gemm", "--tiles-b", "1x32", scales[1:]),
        ("gemm", "--scale-layout-a", "row_major", scales[:1]), ("gemm", "--scale-layout-b", "row_major", scales[1:]),
        ("gemm", "--scale-format", "e8m0fnu", (*scales, "--scale")), ("verify", "--scale-format", "e8m0fnu", (*scales, "--scale")),
        ("verify", "--tiles", "1x32", ("--scale",)), ("verify", "--scale", "none.npy", ("--cast",)),
        ("gemm", "--scale-order", "a_then_fma_b", (*scales, "--recipe")), ("gemm", "--c-enters", "epilogue", ("--c",)),
        ("gemm", "--split-cut", "modulo", ("--split-k",)), ("gemm", "--split-order", "tree", ("--split-k",)),
        ("gemm", "--split-tile", "32", ("--split-k",)), ("verify", "--ungrouped", "any", groups),
    ):
        files = ["none.npy", "none.npy"] if command == "gemm" else ["none.npy", "--inputs", "none.npy", "none.npy"]
        alone = run(command, *files, option, value)
        known = set(to) & set(re.findall(r"--[\w-]+", run(command, "--help").stdout))
        wanted = f"{option}: expected also {' or '.join(to)}, without which it has no effect, got it alone"
        check(f"{command} {option} alone", alone.returncode == 2 and wanted in alone.stderr, alone.stderr)
        for name in sorted(known):
            given = {"--recipe": "te-current", "--cast": "e4m3fn", "--split-k": "2", "--row-ends": "1,2", "--row-counts": "1,2"}
            both = run(command, *files, option, value, name, given.get(name, "none.npy"))
            check(f"{command} {option} with {name}", both.returncode == 2 and f"{option}: expected also" not in both.stderr, both.stderr)
    readers = {"--slope": ("0.5", ["leaky_relu"]), "--activation-ulps": ("4", ["gelu", "gelu_tanh", "silu", "swiglu"])}
    for option, (value, values) in readers.items():
        wanted = f"{option}: expected --activation {' or '.join(values)}, without which it has no effect, got "
        for name in (None, "relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "swiglu"):
            more = ["--activation", name] if name else []
            said = run("verify", "none.npy", "--inputs", "none.npy", "none.npy", option, value, *more).stderr
            got = f"--activation {name}" if name else "it alone"
            check(f"{option} with {name}", (wanted + got in said) == (name not in values), said)


def test_lines(folder):
    """A message is one line, whatever is in the name of a file."""
    for name in ("two\nlines.npy", "a\n\nb.npy"):
        said = run("cast", "1", "--format", name).stderr
        check("a message of one line", said.startswith("fp8lab: ") and said.count("\n") == 1 and said.endswith("\n"), said)
        said = run("replay", folder / name).stderr
        check("with what breaks it written out", name.replace("\n", "\\n") in said and said.count("\n") == 1, said)


def test_recorded_commands(folder):
    """A result holds the command that repeats it, also where a shell would read its folder as something else."""
    strange = folder / "it's $HOME & more; "
    recorded = lambda name, out: shlex.split(json.loads((out / name / "result.json").read_text())["command"])
    walk = ["run", "walkthrough", "--seed", "3", "--quick", "--set", "curve_points=10", "--out", str(strange), "--no-plots"]
    expect(walk, 0)
    check("of a run", recorded("walkthrough", strange) == ["fp8lab", *walk], recorded("walkthrough", strange))
    claims = ["claims", "F1a", "--seed", "3", "--out", str(strange)]
    expect(claims, 0)
    check("of claims", recorded("claims", strange) == ["fp8lab", *claims], recorded("claims", strange))
    check("of a run in the usual folder", run("run", "walkthrough", "--no-plots", cwd=folder).returncode == 0, folder)
    usual = ["fp8lab", "run", "walkthrough", "--seed", "1", "--no-plots"]
    check("which needs no option", recorded("walkthrough", folder / "out") == usual, recorded("walkthrough", folder / "out"))


def main():
    expect([], 2)
    expect(["nonsense"], 2)
    expect(["--help"], 0, ["replay"])
    test_cast()
    test_bench()
    test_table()
    test_claims()
    with tempfile.TemporaryDirectory() as folder:
        test_replay(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        test_cost(Path(folder))
        test_layers(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        test_experiments(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        test_recorded_commands(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        test_report_order(Path(folder))
    test_ignored_options()
    with tempfile.TemporaryDirectory() as folder:
        test_lines(Path(folder))
    print("command line:", "all as expected" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
