"""`fp8lab probe-cpu`: right models, wrong ones, files for replay, and processors without the instructions.

Usage: probe_cpu_command.py PATH_OF_FP8LAB
"""

import json
import platform
import tempfile
from pathlib import Path

from checking import check, expect, finish, run

COUNT = 60_000
# What the first instruction of a processor is not, and with which models of the same operands it must be told from it.
WRONG = ("x86.vdpbf16ps:subnormals=kept", "x86.vdpbf16ps:subnormals=flushed_results", "x86.top2bf16ps", "arm.bfdot.ebf16",
         "gfx908.mfma.bf16", "gfx90a.mfma.bf16", "sm80.mma.bf16")
NONE = "nothing was compared"


def probe(*arguments):
    done = run("probe-cpu", "--count", COUNT, *arguments)
    return done.returncode, done


def check_right(report):
    """Every instruction that the processor has, alone and in a row, has its model's bits."""
    for row in report["results"]:
        name = f"{row['instruction']}, {row['in_a_row']} in a row"
        check(f"{name}: {row['differences']} differ", row["differences"] == 0 and row["first"] is None, row)
        check(f"{name}: {row['outputs']} outputs", COUNT <= row["outputs"] < COUNT + 64, row)
    check("one instruction and four in a row", [row["in_a_row"] for row in report["results"]][:2] == [1, 4], report)


def check_wrong(instruction, own):
    """A probe that cannot fail is worth nothing."""
    for model in WRONG:
        code, done = probe("--instruction", instruction, "--model", model, "--json")
        rows = json.loads(done.stdout)["results"]
        differ = [row["differences"] for row in rows]
        check(f"{instruction} as {model}: exit {code}, {differ} differ", code == (0 if model == own else 1) and all(differ), done.stdout)
        check(f"{instruction} as {model}: a first difference", all(model in row["first"] for row in rows), done.stdout)
    expect(1, "probe-cpu", "--instruction", instruction, "--count", COUNT, "--model", WRONG[0],
           stdout=["DIFFERENT", "the processor gives", "case "])


def check_files(instruction, own):
    with tempfile.TemporaryDirectory() as folder:
        code, done = probe("--instruction", instruction, "--out", Path(folder) / "new", "--json")
        check(f"--out: exit {code}", code == 0, done.stderr)
        files = sorted(Path(folder, "new").glob("*.txt"))
        check("a file each", [path.name for path in files] == [f"{instruction}.txt", f"{instruction}_chained.txt"], files)
        for path in files:
            expect(0, "replay", path, stdout=[f"{own}: cases 600 mismatches 0"])
            expect(1, "replay", path, "--model", WRONG[0])
            text = path.read_text()
            check("the file says which processor", "# processor: " in text and "# nan: any" in text, text[:300])
        # Those of a wrong model have the rows that differ, with the processor's outputs.
        probe("--instruction", instruction, "--out", folder, "--model", WRONG[0])
        done = run("replay", Path(folder) / f"{instruction}.txt", "--json")
        check("rows that differ are the processor's", json.loads(done.stdout)["mismatches"] == 0, done.stdout)
        check("rows that differ are there", json.loads(done.stdout)["cases"] > 600, done.stdout)


def check_same_cases(instruction):
    """The number of threads changes nothing; another seed has other cases."""
    rows = {}
    for what in (("--threads", 1), ("--threads", 2), ("--seed", 2)):
        _, done = probe("--instruction", instruction, "--model", WRONG[0], "--json", *what)
        rows[what] = json.loads(done.stdout)["results"]
    one, two, other = rows.values()
    check("threads give the same report", one == two, (one, two))
    check("another seed, other cases", one != other, (one, other))


def main():
    code, done = probe("--json")
    report = json.loads(done.stdout)
    check("it names the processor", report["processor"] and report["family"], report)
    if not report["results"]:
        check(f"no instruction: exit {code}", code == 3, done.stdout)
        expect(3, "probe-cpu", "--count", 100, stdout=[NONE])
    else:
        check(f"exit {code}", code == 0, done.stdout)
        check_right(report)
        instruction, own = report["results"][0]["instruction"], report["results"][0]["model"]
        expect(0, "probe-cpu", "--instruction", instruction, "--count", COUNT, stdout=["0 differ", "all equal"])
        check_wrong(instruction, own)
        check_files(instruction, own)
        check_same_cases(instruction)
        expect(2, "probe-cpu", "--instruction", instruction, "--model", "gfx942.mfma.f32", stderr=["model", "bf16"])
    for name in report["missing"]:
        expect(3, "probe-cpu", "--instruction", name, "--count", 100, stdout=[f"{name}: this processor does not have it", NONE])
    expect(2, "probe-cpu", "--instruction", "fdiv", stderr=["--instruction", "'fdiv'"])
    expect(2, "probe-cpu", "--count", 0, stderr=["--count"])
    known = {"x86_64": "tdpbf16ps", "aarch64": "bfmmla"}.get(platform.machine())
    names = {row["instruction"] for row in report["results"]} | set(report["missing"])
    check("this build knows the instructions of its processors", known is None or known in names, names)
    finish("probe-cpu")


main()
