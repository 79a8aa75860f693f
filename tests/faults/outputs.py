"""Outputs of every command: two writers at once, places that cannot be written, paths and names of any bytes.

- Two runs of a command with one output end with the whole output of one of them, and leave nothing else. Where a run goes on
  in its output, the second is refused.
- An output that cannot be written is told before the work: before inputs are read, before the first step.
- Any path that the system takes works, as input and output, and JSON shows it.
- Names of tensors and files reach neither the terminal nor the log as control characters, nor a CSV file as a formula.

Usage: outputs.py PATH_OF_FP8LAB
"""

import functools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

TOOL = str(Path(sys.argv[1]).resolve())
failures = 0
# Python that does not exist: plots are specifications, and take no time.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "FP8LAB_PYTHON": "/nowhere/python3"}


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {seen}")


def start(folder, arguments):
    return subprocess.Popen([TOOL, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)


def run(folder, *arguments, timeout=120):
    done = subprocess.run([TOOL, *arguments], cwd=folder, capture_output=True, env=ENVIRONMENT, timeout=timeout, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def safetensors(tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def floats(count, seed=1):
    return struct.pack(f"<{count}f", *(((i * 2654435761 + seed) % 1999 - 999) / 500 for i in range(count)))


def npy(rows, columns, seed):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + floats(rows * columns, seed)


def model_folder(folder):
    folder.mkdir()
    weights = {f"model.layers.{i}.mlp.up_proj.weight": ("F32", [128, 128], floats(128 * 128, i)) for i in range(4)}
    (folder / "model.safetensors").write_bytes(safetensors(weights, {"format": "pt"}))
    (folder / "config.json").write_text('{"hidden_size": 128, "big": 123456789012345678901234567890, "torch_dtype": "float32"}')


def prepare(folder):
    """What all commands read."""
    for name, rows, seed in (("a.npy", 96, 1), ("b.npy", 80, 2)):
        (folder / name).write_bytes(npy(rows, 128, seed))
    (folder / "z.npy").write_bytes(npy(96, 128, 3))
    (folder / "mine.toml").write_text('accumulator.mine = {base = "fused", F = 10}\n')
    (folder / "shape.toml").write_text("layers = 2\nhidden = 128\nheads = 4\nvocabulary = 1000\n")
    (folder / "text.txt").write_text("what is learned by heart, " * 40)
    check("inputs", run(folder, *GEMM, "-o", "wrong.npy", "--out-dtype", "f32")[0] == 0)
    check("vectors", run(folder, "vectors", "--model", "sm90.wgmma.e4m3", "-n", "3", "-o", "v.txt")[0] == 0)
    (folder / "parameters.toml").write_text('experiment = "walkthrough"\n[set]\ncurve_points = 10\n')
    model_folder(folder / "model")
    check("a quantized model", run(folder, *QUANTIZE, "-o", "quantized")[0] == 0)
    check("results", run(folder, "run", "walkthrough", "--quick", "--out", "results")[0] == 0)
    for shard in "01":
        check("a shard", run(folder, *SWEEP, "--shard", f"{shard}/2", "--out", f"shard{shard}")[0] == 0)


GEMM = ["gemm", "a.npy", "b.npy", "--recipe", "te-current"]
QUANTIZE = ["quantize", "model", "--recipe", "te-current", "--layout", "compressed-tensors", "--rule", "linear"]
SWEEP = ["sweep", "walkthrough", "--quick", "--repeat", "2", "--threads", "2"]
TRAIN = ["train", "--steps", "12", "--save-every", "4", "--recipe", "te-delayed", "--width", "32", "--heads", "2", "--hidden", "32",
         "--length", "16", "--layers", "1", "--sequences", "2", "--threads", "1"]
BENCH = ["--repetitions", "1"]
# What the first to come does to the second.
WHOLE, REFUSED = "either is whole", "the second is refused"


class Output(NamedTuple):
    """An option that names an output, and what becomes of two commands that write it."""

    command: list  # but for the option
    option: str
    name: str
    rule: str
    code: int = 0  # of a run that nothing disturbs
    timed: bool = False  # figures of time in it: its files differ from run to run, and `report` reads it whole
    reads_first: bool = False  # the inputs are looked at before the output


OUTPUTS = {
    "gemm": Output([*GEMM, "--out-dtype", "e4m3fn"], "-o", "d.npy", WHOLE),
    "gemm npz": Output([*GEMM, "--out-dtype", "e4m3fn"], "-o", "d.npz", WHOLE),
    "gemm safetensors": Output(GEMM, "-o", "d.safetensors", WHOLE),
    "attn": Output(["attn", "a.npy", "b.npy", "b.npy"], "-o", "o.npy", WHOLE),
    "attn safetensors": Output(["attn", "a.npy", "b.npy", "b.npy"], "-o", "o.safetensors", WHOLE),
    "quantize": Output(["quantize", "a.npy", "--recipe", "te-current"], "-o", "q.safetensors", WHOLE),
    "quantize model": Output(QUANTIZE, "-o", "q", REFUSED, reads_first=True),
    "dequantize": Output(["dequantize", "quantized"], "-o", "back", REFUSED, reads_first=True),
    "verify": Output(["verify", "wrong.npy", "--golden", "wrong.npy"], "--out", "out", WHOLE),
    "check": Output(["check", "quantized"], "--out", "out", WHOLE),
    "verify map": Output(["verify", "a.npy", "--golden", "z.npy"], "--map", "map", WHOLE, code=1),
    "vectors": Output(["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"], "-o", "v.txt", WHOLE),
    "vectors npz": Output(["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"], "-o", "v.npz", WHOLE),
    "vectors jsonl": Output(["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"], "-o", "v.jsonl", WHOLE),
    "reveal": Output(["reveal", "--model", "sm90.wgmma.e4m3", "-m", "4", "-n", "4", "-k", "64"], "-o", "m.toml", WHOLE),
    "reveal probes": Output(["reveal", "--dtype", "e4m3fn", "-m", "4", "-n", "4", "-k", "64"], "--probes", "rounds", WHOLE, code=3),
    "report": Output(["report", "results"], "-o", "r.html", WHOLE, reads_first=True),
    "run": Output(["run", "walkthrough", "--quick"], "--out", "out", WHOLE),
    "sweep": Output(SWEEP, "--out", "s", REFUSED),
    "merge": Output(["merge", "shard0", "shard1"], "--out", "whole", REFUSED, reads_first=True),
    "claims": Output(["claims", "L7"], "--out", "out", WHOLE),
    "train checkpoint": Output(TRAIN, "--checkpoint", "c.safetensors", REFUSED),
    "train log": Output(TRAIN, "--log", "log.jsonl", REFUSED),
    "train trace": Output(TRAIN, "--trace", "t.safetensors", WHOLE),
    "bench gemm": Output(["bench", "gemm", *BENCH, "--no-scaling", "--shape", "16x16x64"], "--out", "out", WHOLE, timed=True),
    "bench cast": Output(["bench", "cast", *BENCH, "--mebi", "1"], "--out", "out", WHOLE, timed=True),
}
VOLATILE = re.compile(rb'"(started|duration_seconds|crc32)": [^\n]*|[0-9.]+ s\b|20\d\d-\d\d-\d\dT[^"< ]*')


def contents(folder):
    return {str(p.relative_to(folder)): VOLATILE.sub(b"", p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def whole(folder, one, expected):
    """What is wrong with what two writers left; nothing if it is the whole output of one."""
    got = contents(folder)
    if not one.timed:
        wrong = [name for name in got if got[name] != expected.get(name)]
        return [*sorted(got.keys() ^ expected.keys()), *wrong]
    code, _, said = run(folder, "report", one.name, "-o", "whole.html")
    return [*sorted(got.keys() ^ expected.keys()), *([said] if code else [])]


def test_two_writers(base):
    for name, one in OUTPUTS.items():
        alone = base.parent / "alone"
        shutil.copytree(base, alone)
        code, _, said = run(alone, *one.command, one.option, one.name)
        check(f"{name}: alone", code == one.code, said)
        expected = contents(alone)
        refusals = 0
        for _ in range(2):
            work = base.parent / "work"
            shutil.copytree(base, work)
            both = [start(work, [*one.command, one.option, one.name]) for _ in range(2)]
            ended = [(p.communicate(timeout=120), p.returncode) for p in both]
            codes = [code for _, code in ended]
            refused = [err.decode() for (_, err), code in ended if code != one.code]
            check(f"{name}: one of two ends well", one.code in codes and set(codes) <= {one.code, 2}, (codes, refused))
            wrong = whole(work, one, expected)
            check(f"{name}: what is there is whole, and nothing else", not wrong, (wrong, codes, refused))
            words = ("another process is writing it", "another sweep is writing to it", "already contains a sweep", "File exists",
                     "a new or empty folder")
            for err in refused:
                check(f"{name}: a refusal says why", any(word in err for word in words), err)
            refusals += len(refused)
            shutil.rmtree(work)
        # One that came when the first had ended found a finished training, which is no fault.
        check(f"{name}: two do not both go on in one output", one.rule != REFUSED or refusals > 0 or name.startswith("train"), refusals)
        check(f"{name}: two that replace a whole output are not refused", one.rule != WHOLE or refusals == 0, refusals)
        shutil.rmtree(alone)


def test_training_runs(folder):
    """Two with one log, of which the first is sure to be at work."""
    long = [*TRAIN[:2], "4000", *TRAIN[3:]]
    for option, output in (("--log", "log.jsonl"), ("--checkpoint", "c.safetensors")):
        first = start(folder, [*long, option, output])
        deadline = time.monotonic() + 60
        while not (folder / output).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        for other, name in ((option, output), (option, f"./{output}"), (option, str(folder / output))):
            code, _, said = run(folder, *TRAIN, other, name)
            check(f"train {option}: a second is refused", code == 2 and f"{name}: another process is writing it" in said, (code, said))
        # A killed run holds nothing: what it left is taken up, and removed.
        first.send_signal(signal.SIGKILL)
        first.communicate()
        shutil.copy(folder / output, folder / "kept") if (folder / output).exists() else None
        (folder / f".{output}.0badcafe.partial").write_text("of a killed writer")
        code, _, said = run(folder, *(TRAIN if option == "--log" else [*long[:2], "4", *long[3:]]), option, output)
        check(f"train {option}: the next run", code in (0, 2) and "another process" not in said, (code, said))
        left = sorted(p.name for p in folder.iterdir() if p.name.startswith(f".{output}") and option == "--checkpoint")
        check(f"train {option}: nothing is left", not left, left)
        for path in (output, "kept"):
            (folder / path).unlink(missing_ok=True)


def test_late_outputs(folder):
    """In a file as in a folder, and where root cannot write either. The inputs do not exist: they are not come to."""
    (folder / "file").write_text("x")
    lost = {"a.npy": "no_a.npy", "b.npy": "no_b.npy", "model": "no_model", "quantized": "no_model", "wrong.npy": "no_d.npy",
            "z.npy": "no_z.npy"}
    for name, one in OUTPUTS.items():
        for place in ("file", "/proc/self"):
            words = one.command if one.reads_first else [lost.get(word, word) for word in one.command]
            began = time.monotonic()
            code, out, said = run(folder, *words, one.option, f"{place}/{one.name}", timeout=60)
            check(f"{name} into {place}: exit 2", code == 2, (code, out, said))
            check(f"{name} into {place}: names it", place in said and ("cannot" in said or "existing folder" in said), said)
            check(f"{name} into {place}: before its work", not re.search(r"\b(?:step|round) \d", said) and not out, (out, said))
            check(f"{name} into {place}: at once", time.monotonic() - began < 30)
    check("nothing was written", (folder / "file").read_text() == "x")
    (folder / "file").unlink()


BYTES = os.fsdecode(b"\xff\xc3(x")


def is_json(text):
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


def test_paths(base):
    """Outputs whose names are no UTF-8."""
    for name, one in OUTPUTS.items():
        json_flag = ["--json"] if "--json" in Help.of(one.command).flags else []
        for at in (f"{BYTES}{one.name}", os.path.join(f"d{BYTES}", one.name)):
            work = base.parent / "work"
            shutil.copytree(base, work)
            (work / f"d{BYTES}").mkdir()
            code, out, said = run(work, *one.command, one.option, at, *json_flag)
            check(f"{name} to {at!r}: exit {one.code}", code == one.code, (code, out[-200:], said))
            check(f"{name} to {at!r}: it is there", (work / at).exists(), sorted(os.listdir(os.fsencode(work))))
            check(f"{name} to {at!r}: JSON", not json_flag or is_json(out), out[:300])
            check(f"{name} to {at!r}: printable", printable(out) and printable(said), (out[-300:], said))
            shutil.rmtree(work)


# A small call of each command, and its inputs in it: files, folders, and files that an option names.
CALLS = {
    "attn": (["b.npy", "a.npy", "a.npy"], "a.npy b.npy"),
    "bench cast": ([*BENCH, "--mebi", "1"], ""),
    "bench gemm": ([*BENCH, "--no-scaling", "--shape", "8x8x32"], ""),
    "cast": (["1.5"], ""),
    "check": (["quantized"], "quantized"),
    "claims": (["L7"], ""),
    "completion": (["bash"], ""),
    "cost": (["--model", "shape.toml"], "shape.toml"),
    "dequantize": (["quantized", "-o", "back"], "quantized"),
    "doctor": ([], ""),
    "expect": (["--inputs", "a.npy", "b.npy", "--recipe", "te-current", "--trials", "10"], "a.npy b.npy"),
    "gemm": (["a.npy", "b.npy", "--recipe", "te-current"], "a.npy b.npy"),
    "help": (["gemm"], ""),
    "identify": (["a.npy", "b.npy", "wrong.npy", "--recipe", "te-current"], "a.npy b.npy wrong.npy"),
    "layers": (["model", "--rule", "all"], "model"),
    "list": (["models", "--models", "mine.toml"], "mine.toml"),
    "manual": ([], ""),
    "merge": (["shard0", "shard1", "-o", "whole"], "shard0"),
    "quantize": (["a.npy", "--recipe", "te-current"], "a.npy"),
    "replay": (["v.txt", "--models", "mine.toml"], "v.txt mine.toml"),
    "report": (["results", "-o", "page.html"], "results"),
    "reveal": (["--models", "mine.toml", "--model", "mine", "-m", "4", "-n", "4", "-k", "64"], "mine.toml"),
    "run": (["parameters.toml", "--quick", "--no-plots", "--out", "ran"], "parameters.toml"),
    "sweep": (["walkthrough", "--models", "mine.toml", "--quick", "--repeat", "1", "--out", "swept"], "mine.toml"),
    "table": (["e2m1"], ""),
    "train": (["--text", "text.txt", *TRAIN[1:]], "text.txt"),
    "vectors": (["--models", "mine.toml", "--model", "sm90.wgmma.e4m3", "-n", "2"], "mine.toml"),
    "verify": (["wrong.npy", "--inputs", "a.npy", "b.npy", "--recipe", "te-current"], "a.npy b.npy wrong.npy"),
}


class Help(NamedTuple):
    """What the page of a command says of its options."""

    values: set  # options that take text
    flags: set

    @staticmethod
    @functools.cache
    def of_words(*words):
        page = run("/", "help", *words)[1]
        found = re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: ([A-Z]+))?", page, re.M)
        return Help({name for name, kind in found if kind not in ("", "INT", "UINT", "FLOAT")}, {name for name, kind in found if not kind})

    @staticmethod
    def of(command):
        return Help.of_words(*command[: 2 if command[0] == "bench" else 1])


def commands_of(*words):
    page = run("/", "help", *words)[1].split("Options:")[1] if not words else run("/", "help", *words)[1].split("Subcommands:")[1]
    return re.findall(r"^  ([a-z]+)(?: |$)", page, re.M)


def test_every_command_is_here(folder):
    """A command or an output that the tables leave out fails: options that write are found by what a run leaves."""
    known = {name.split()[0] for name in CALLS}
    check("a call of every command", known == set(commands_of()), sorted(known ^ set(commands_of())))
    with_output = {(one.command[0], one.option) for one in OUTPUTS.values()}
    short = {"-o": "--output"}
    for command in CALLS:
        given = Help.of(command.split()).values
        for option in given & OUTPUT_OPTIONS:
            names = {option} | {s for s, long in short.items() if long == option or option == "--out"}
            check(f"{command} {option} has a row in OUTPUTS", any((command.split()[0], name) in with_output for name in names))


OUTPUT_OPTIONS = {"--out", "--output", "--map", "--log", "--checkpoint", "--probes", "--trace"}


def test_inputs(base):
    """Inputs whose names are no UTF-8, there and missing; and such names and hostile ones as the value of every option."""
    for name, (words, inputs) in CALLS.items():
        command = name.split()
        work = base.parent / "work"
        shutil.copytree(base, work)
        code, out, said = run(work, *command, *words)
        check(f"{name}: a small call", code in (0, 1, 3), (code, out[-300:], said))
        shutil.rmtree(work)
        for one in inputs.split():
            shutil.copytree(base, work)
            stem, dot, ending = one.partition(".")
            other = f"{BYTES}{stem}{dot}{ending}"
            (work / one).rename(work / other)
            call = [*command, *(other if word == one else word for word in words)]
            json_flag = ["--json"] if "--json" in Help.of(command).flags else []
            code, out, said = run(work, *call, *json_flag)
            check(f"{name}: {one} under a name that is no UTF-8", code in (0, 1, 3) and printable(out + said), (code, out[-300:], said))
            check(f"{name}: {one}: JSON", not json_flag or is_json(out), out[:300])
            (work / other).rename(work / one)
            code, out, said = run(work, *call)
            check(f"{name}: {one} is missing, in UTF-8", code == 2 and "\\xff" in said and printable(said), (code, said))
            shutil.rmtree(work)
        shutil.copytree(base, work)
        (work / "ran").mkdir()
        for hostile in (BYTES, HOSTILE):
            for at in [*range(len(words)), *sorted(Help.of(command).values - OUTPUT_OPTIONS)]:
                if isinstance(at, int) and (words[at].startswith("-") or words[at - 1] in ("-o", "--out")):
                    continue
                call = [*words[:at], hostile, *words[at + 1:]] if isinstance(at, int) else [*words, at, hostile]
                before = set(os.listdir(os.fsencode(work)))
                code, out, said = run(work, *command, *call)
                what = f"{name}: {hostile!r} at {at}"
                check(f"{what}: ends", code in (0, 1, 2, 3) and len(said) < 4000, (code, said))
                check(f"{what}: no control characters", printable(out) and printable(said), (out[-300:], said))
                check(f"{what}: no line of the name's own", "\nfp8lab: fine" not in out + said, (out, said))
                left = {os.fsdecode(name) for name in os.listdir(os.fsencode(work)) if name not in before}
                known = {words[i + 1] for i, word in enumerate(words) if word in ("-o", "--out")}
                check(f"{what}: writes nothing, or stands in OUTPUT_OPTIONS", left <= known, left)
        shutil.rmtree(work)


def printable(text):
    """Lines of the program's own, without what a terminal obeys but where `bench` counts its rounds."""
    text = re.sub(r"\rround \d+ of \d+", "", text)
    return not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffd]", text)


HOSTILE = "w\nfp8lab: fine\x1b]0;title\x07\u202e\u2028.weight"


def test_names(folder):
    """A tensor whose name ends a line and holds escapes, in every command that shows names of tensors."""
    hostile = folder / "hostile"
    hostile.mkdir()
    tensors = {HOSTILE: ("F32", [128, 128], floats(128 * 128)), "b" + HOSTILE: ("F32", [128], floats(128)),
               "c" + HOSTILE: ("BOOL", [2], b"\0\1"), f"{HOSTILE[:-7]}.up_proj.weight": ("F32", [128, 128], floats(128 * 128))}
    (hostile / "model.safetensors").write_bytes(safetensors(tensors, {"format": "pt", "x": HOSTILE}))
    (hostile / "config.json").write_text('{"hidden_size": 128, "model_type": "a\\nb\\u001b"}')
    (hostile / "note\n\x1b.txt").write_text("x")
    file = str(hostile / "model.safetensors")
    with zipfile.ZipFile(folder / "h.npz", "w") as archive:
        archive.writestr(HOSTILE + ".npy", npy(8, 16, 1))
        archive.writestr("y" + HOSTILE + ".npy", npy(8, 16, 1))
    commands = [
        ["layers", file, "--rule", "all"], ["layers", str(hostile), "--rule", "deepseek"], ["layers", file, "--rule", HOSTILE],
        ["quantize", file, "--recipe", "te-current", "-o", "q.safetensors"], ["quantize", file, "--recipe", HOSTILE],
        ["quantize", file, "--recipe", "te-current", "--tensor", HOSTILE], ["quantize", file, "--recipe", "te-current", "--tensor", "b" + HOSTILE],
        ["quantize", str(hostile), "--recipe", "te-current", "--layout", "compressed-tensors", "--rule", "linear", "-o", "hq"],
        ["quantize", str(hostile), "--recipe", "te-current", "--layout", "deepseek", "--rule", "all", "-o", "hr"],
        ["dequantize", "hq", "-o", "hb"], ["dequantize", str(hostile), "-o", "hc"],
        ["gemm", file, file, "--recipe", "te-current"], ["gemm", f"{file}:none", file], ["gemm", f"{file}:{HOSTILE}", f"{file}:{HOSTILE}", "--recipe", "te-current"],
        ["gemm", "h.npz", "h.npz"], ["gemm", f"h.npz:{HOSTILE}", f"h.npz:{HOSTILE}", "--recipe", "te-current"], ["gemm", "h.npz:none", "h.npz"],
        ["verify", f"{file}:{HOSTILE}", "--golden", f"{file}:{HOSTILE}"], ["verify", f"{file}:{HOSTILE}", "--golden", f"{file}:none"],
        ["attn", f"{file}:{HOSTILE}", f"{file}:{HOSTILE}", f"{file}:{HOSTILE}"], ["identify", f"{file}:x", file, file],
        ["run", HOSTILE], ["run", "walkthrough", "--set", f"{HOSTILE}=1"], ["list", HOSTILE], ["cost", "--model", HOSTILE],
        ["replay", HOSTILE], ["report", HOSTILE], [HOSTILE], ["gemm", "--" + HOSTILE], ["gemm", "a.npy", "b.npy", "--model", HOSTILE],
        ["vectors", "--model", HOSTILE, "-n", "1"], ["train", "--recipe", HOSTILE], ["sweep", "walkthrough", "--axis", HOSTILE, "--out", "s"],
        ["cast", HOSTILE], ["table", HOSTILE], ["claims", HOSTILE], ["bench", HOSTILE], ["merge", HOSTILE, "--out", "m"], ["expect", HOSTILE],
    ]  # fmt: skip
    for command in commands:
        code, out, said = run(folder, *command)
        what = " ".join(word[:20] for word in command)
        check(f"{what!r}: ends", code in (0, 1, 2, 3), code)
        check(f"{what!r}: no control characters", printable(out) and printable(said), (out, said))
        check(f"{what!r}: no line of the name's own", "\nfp8lab: fine" not in out + said, (out, said))
        with_json = ["--json"] if command[0] in ("layers", "quantize", "dequantize", "gemm", "verify", "attn") else []
        if with_json and code == 0:
            for target in ("hq", "hr", "hb"):
                if target in command and command[-1] == target:
                    command = [*command[:-1], target + "2"]
            code, out, said = run(folder, *command, *with_json)
            json.loads(out)
            check(f"{what!r}: JSON has the name", code == 0 and printable(said), (code, said))


def test_formulas(folder):
    """Texts of tables that a spreadsheet would run; numbers stay numbers."""
    code, _, said = run(folder, "run", "walkthrough", "--quick", "--out", "f")
    check("a run", code == 0, said)
    for path in (folder / "f" / "walkthrough").glob("*.csv"):
        for line in path.read_text().splitlines():
            for cell in line.split(","):
                bare = cell.strip('"')
                check(f"{path.name}: {cell!r} is no formula", not re.match(r"[=+@\t\r]|-[^0-9.in]", bare), line)


def main():
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as root:
        base = Path(root) / "base"
        base.mkdir()
        prepare(base)
        for test in (test_every_command_is_here, test_two_writers, test_training_runs, test_late_outputs, test_paths, test_inputs, test_names, test_formulas):
            if only and test.__name__ not in only:
                continue
            begun = time.monotonic()
            test(base)
            print(f"{test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    print("outputs:", "all as expected" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
