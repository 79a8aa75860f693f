"""What people read on a terminal of 80 columns: lists, pages of help, runs, and what a typing mistake was meant to be.

Usage: readable_command.py PATH_OF_FP8LAB
"""

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from checking import TOOL, check, finish, on_terminal

WIDTH = 80
KINDS = ("formats", "profiles", "recipes", "models", "accumulators", "parameters", "calls", "experiments")
STYLE = re.compile("\x1b\\[[0-9;]*m")
PLAIN = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "TERM")}


def run(*arguments, code=0, **environment):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, env=PLAIN | environment)
    check(f"{arguments}: exit", done.returncode == code, (done.returncode, done.stdout[-300:], done.stderr[-300:]))
    return done.stdout if code == 0 else done.stderr


def printed_on_terminal(*arguments, columns=WIDTH, **environment):
    ended, text = on_terminal(*arguments, stream="stdout", columns=columns, env=PLAIN | {"TERM": "xterm-256color"} | environment)
    check(f"{arguments}: exit on a terminal", ended == 0, (ended, text[-300:]))
    return text.replace("\r\n", "\n")


def fits(name, text, columns=WIDTH):
    lines = [STYLE.sub("", line) for line in text.split("\n")]
    wide = [line for line in lines if len(line) > columns]
    check(f"{name}: at most {columns} columns", not wide, wide[:3])


def pages():
    """(words of the command, page of help) of every command."""
    def of(words):
        page = run(*words, "--help")
        yield words, page
        for name in re.findall(r"^  ([a-z]+) {2,}[A-Z]", page, re.MULTILINE):
            yield from of([*words, name])
    return list(of([]))


def test_lists():
    for kind in KINDS:
        text = run("list", kind)
        fits(f"list {kind}", text)
        fits(f"list {kind} on a wide terminal", printed_on_terminal("list", kind, columns=200), 200)
        rows = json.loads(run("list", kind, "--json"))[kind]
        words = text.split()
        missing = {row["name"] for row in rows} - set(words)
        check(f"list {kind}: every name is whole", not missing, missing)
        table = list(csv.DictReader(io.StringIO(run("list", kind, "--csv"))))
        check(f"list {kind} --csv has all columns", [list(one) for one in table[:1]] == [list(rows[0])], table[:1])
        check(f"list {kind} --csv has all rows", [one["name"] for one in table] == [row["name"] for row in rows])
        name = rows[-1]["name"]
        one = run("list", kind, name)
        fits(f"list {kind} {name}", one)
        for column, value in rows[-1].items():
            words = " ".join(re.sub(rf"^  {column} +", "", one, flags=re.MULTILINE).split())
            check(f"list {kind} {name}: {column}", column in one and
                  (not isinstance(value, str) or " ".join(value.split()).replace(" ", "") in words.replace(" ", "")), one)
    overview = run("list")
    fits("list", overview)
    check("list says what there is", all(f"fp8lab list {kind} " in overview for kind in KINDS), overview)


def names(*arguments):
    return [row["name"] for row in csv.DictReader(io.StringIO(run(*arguments, "--csv")))]


def test_filters():
    models = json.loads(run("list", "models", "--json"))["models"]
    both = names("list", "models", "--chip", "sm90", "--input", "e4m3")
    expected = [m["name"] for m in models if m["name"].startswith("sm90.") and "e4m3" in m["input"]]
    check("--chip and --input", both == expected and len(both) > 2, (both, expected))
    check("a GPU", set(names("list", "models", "--chip", "h200")) >= {"sm90.wgmma.e4m3"})
    check("calls of a chip", all("h100" in name or "sm90" in name for name in names("list", "calls", "--chip", "h100")))
    word = names("list", "models", "literature")
    check("a word", 0 < len(word) < len(models) and set(word) >= {m["name"] for m in models if m["standing"] == "literature"}, word)
    check("JSON of a filter", [m["name"] for m in json.loads(run("list", "models", "--chip", "sm75", "--json"))["models"]] ==
          [m["name"] for m in models if m["name"].startswith("sm75.")])
    for arguments, said in ((["models", "wgma"], "NAME: expected what one of"), (["models", "--chip", "sm91"], "--chip: expected what"),
                            (["recipes", "--chip", "sm90"], "--chip: expected models or calls, got recipes"),
                            (["calls", "--input", "e4m3"], "--input: expected models, got calls"),
                            (["--csv"], "--csv: expected one kind of things"), (["model"], "did you mean models?")):
        text = run("list", *arguments, code=2)
        check(f"list {arguments}: what is wrong", said in text, text)


def test_help():
    every = pages()
    check("pages", len(every) > 25, [words for words, _ in every])
    program = every[0][1]
    check("the program's page", program.startswith("fp8lab computes") and "Usage: fp8lab COMMAND [OPTIONS]" in program and
          "Other commands" not in program, program)
    options = {}
    for words, page in every:
        name = " ".join(["fp8lab", *words])
        fits(f"{name} --help", page)
        check(f"{name}: usage", f"Usage: {name} " in page, page[:300])
        check(f"help {words}", run("help", *words) == page)
        options[tuple(words)] = page
    for words, page in every:
        shown = page.split("Examples:\n")[-1] if "Examples:" in page else ""
        for example in " ".join(shown.split()).split("fp8lab ")[1:]:
            parts = shlex.split(example.replace(">", " "))
            check(f"{example}: its options exist", all(re.search(rf"(^|[ ,]){re.escape(part)}\b", page) for part in parts if part.startswith("-")), page)
            check(f"{example}: is of its command", parts[: len(words)] == words, words)
    for command, group in (("verify", "Scales:"), ("verify", "Check:"), ("gemm", "Output of the product:"), ("train", "Optimizer:")):
        check(f"{command}: options in groups", f"\n{group}\n" in options[(command,)])
    check("a wider terminal has longer lines", len(printed_on_terminal("verify", "--help", columns=100).split("\n")) < len(options[("verify",)].split("\n")))


def test_mistakes():
    for arguments, meant in ((["verfy", "x"], "verify"), (["verify", "d.npy", "--modle", "x"], "--model"), (["run", "outlir"], "outlier"),
                             (["help", "identfy"], "identify"), (["list", "modls"], "models"), (["table", "e5m3"], "e5m2"),
                             (["run", "outlier", "--set", "tile=16"], "tiles"), (["claims", "F22"], "F2"),
                             (["cast", "1", "--profile", "nvidia_satfinit"], "nvidia_satfinite"),
                             (["reveal", "--model", "sm90.wgma.e4m3"], "sm90.wgmma.e4m3"), (["bench", "quantise"], "quantize"),
                             (["train", "--recipe", "te-delaid", "--steps", "1"], "te-delayed")):
        text = run(*arguments, code=2)
        check(f"{arguments}: what was meant", "did you mean " in text and meant in text.split("did you mean ")[-1], text)
        check(f"{arguments}: what was given", "got '" in text and ": expected " in text, text)
        check(f"{arguments}: not a list of all names", len(text) < 600, text)
    text = run("reveal", "--model", "nothing", code=2)
    check("many names: where to look", "names such as" in text and "`fp8lab list models` has them" in text, text)


def test_colours():
    plain = run("list", "models")
    check("no colours in a pipe", "\x1b" not in plain)
    coloured = printed_on_terminal("list", "models")
    check("colours on a terminal", "\x1b[1m" in coloured and STYLE.sub("", coloured) == plain, coloured[:200])
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        check(f"no colours with {environment}", printed_on_terminal("list", "models", **environment) == plain)
    check("NO_COLOR that is empty is none", "\x1b" in printed_on_terminal("list", "models", NO_COLOR=""))
    check("COLUMNS of a pipe", max(map(len, run("list", "experiments", COLUMNS="120").split("\n"))) in range(81, 121))


def test_runs(folder):
    several = ["walkthrough", "dynamic-range", "cost"]
    text = run("run", *several, "--quick", "--no-plots", "--out", folder / "out")
    fits("run of several", text)
    lines = text.split("\n")
    for number, name in enumerate(several, 1):
        check(f"{name}: number, name, seconds", any(re.fullmatch(rf"{number}/3 {name} \d+\.\d s", line) for line in lines), text)
    check("the end says where results are", re.search(rf"3 experiments after [\d.]+ s, results in\s+{re.escape(str(folder / 'out'))}", text) and
          "fp8lab report" in text, text[-400:])
    check("a run of several is short", len(lines) < 8 * len(several), text)
    one = run("run", "walkthrough", "--quick", "--no-plots", "--out", folder / "out")
    findings = json.loads((folder / "out/walkthrough/result.json").read_text())["findings"]
    shown = " ".join(one.split())
    check("one experiment has all findings", findings and all(" ".join(finding.split()) in shown for finding in findings), one)
    check("and no table", "more rows" not in one and "  all " not in one)
    tables = run("run", "walkthrough", "--quick", "--no-plots", "-v", "--out", folder / "out")
    check("-v prints tables", len(tables.split("\n")) > len(one.split("\n")) + 5, tables)
    fits("run of one", "\n".join(line for line in one.split("\n") if str(folder) not in line))


def test_completions(folder):
    scripts = {shell: run("completion", shell) for shell in ("bash", "zsh", "fish")}
    for shell, text in scripts.items():
        path = folder / f"fp8lab.{shell}"
        path.write_text(text)
        for words, _ in pages():
            check(f"{shell}: {words}", not words or words[-1] in text)
        if found := shutil.which(shell):
            done = subprocess.run([found, "-n", path], capture_output=True, text=True)
            check(f"{shell} reads it", done.returncode == 0, done.stderr)
        else:
            print(f"{shell} is not here: its completions are not tried")

    def completed(*words):
        script = f'. {folder / "fp8lab.bash"}; COMP_WORDS=({" ".join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; _fp8lab; echo "${{COMPREPLY[@]}}"'
        path = f"{Path(TOOL).resolve().parent}:{PLAIN['PATH']}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=PLAIN | {"PATH": path})
        return done.stdout.split()

    check("a command", completed("fp8lab", "ver") == ["verify"], completed("fp8lab", "ver"))
    check("an option", completed("fp8lab", "verify", "--fault") == ["--fault-matrix"])
    check("a model", set(completed("fp8lab", "verify", "--model", "sm90.wgmma.e4m3")) >= {"sm90.wgmma.e4m3", "sm90.wgmma.e4m3.e5m2"})
    check("an experiment", completed("fp8lab", "run", "outl") == ["outlier"])
    check("a kind", completed("fp8lab", "list", "mod") == ["models"])


def test_manual(folder):
    page = folder / "fp8lab.1"
    page.write_text(run("manual"))
    text = page.read_text()
    check("the manual has every command and option", all(f".SS {' '.join(words)}" in text for words, _ in pages() if words) and "scale\\-layout\\-a" in text)
    for program, arguments in (("mandoc", ["-Tlint", "-Werror"]), ("groff", ["-man", "-Tutf8", "-ww"])):
        if found := shutil.which(program):
            done = subprocess.run([found, *arguments, page], capture_output=True, text=True)
            check(f"{program} reads the manual", done.returncode == 0 and not done.stderr, done.stderr[:300])
            break
    else:
        print("neither mandoc nor groff is here: the manual is not formatted")


def test_doctor():
    report = json.loads(run("doctor", "--json"))
    check("what doctor says", {"version", "compiler", "processor", "targets", "threads", "plots", "mpi", "cuda"} <= set(report), report)
    check("its self-test", report["self_test"]["scalar"] == "pass" and set(report["self_test"].values()) == {"pass"}, report)
    fits("doctor", run("doctor"))


def main():
    test_lists()
    test_filters()
    test_help()
    test_mistakes()
    test_colours()
    test_doctor()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        test_runs(folder)
        test_completions(folder)
        test_manual(folder)
    finish("what people read")


if __name__ == "__main__":
    main()
