"""Outputs of every command: two writers at once, places that cannot be written, paths and names of any bytes.

- Two runs of a command with one output end with the whole output of one of them, and leave nothing else. Where a run goes on
  in its output, the second is refused.
- An output that cannot be written is told before the work: before inputs are read, before the first step.
- Any path that the system takes works, and JSON shows it.
- Names of tensors and files reach neither the terminal nor the log as control characters, nor a CSV file as a formula.

Usage: outputs.py PATH_OF_FP8LAB
"""

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
    check("inputs", run(folder, *GEMM, "-o", "wrong.npy", "--out-dtype", "f32")[0] == 0)
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
# The command but for its output, the option that names it, its name, and what the first to come does to the second.
WHOLE, REFUSED = "either is whole", "the second is refused"
OUTPUTS = {
    "gemm": ([*GEMM, "--out-dtype", "e4m3fn"], "-o", "d.npy", WHOLE),
    "gemm npz": ([*GEMM, "--out-dtype", "e4m3fn"], "-o", "d.npz", WHOLE),
    "gemm safetensors": (GEMM, "-o", "d.safetensors", WHOLE),
    "attn": (["attn", "a.npy", "b.npy", "b.npy"], "-o", "o.npy", WHOLE),
    "quantize": (["quantize", "a.npy", "--recipe", "te-current"], "-o", "q.safetensors", WHOLE),
    "quantize model": (QUANTIZE, "-o", "q", REFUSED),
    "dequantize": (["dequantize", "quantized"], "-o", "back", REFUSED),
    "verify": (["verify", "wrong.npy", "--golden", "wrong.npy"], "--out", "out", WHOLE),
    "vectors": (["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"], "-o", "v.txt", WHOLE),
    "vectors npz": (["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"], "-o", "v.npz", WHOLE),
    "reveal": (["reveal", "--model", "sm90.wgmma.e4m3", "-m", "4", "-n", "4", "-k", "64"], "-o", "m.toml", WHOLE),
    "report": (["report", "results"], "-o", "r.html", WHOLE),
    "run": (["run", "walkthrough", "--quick"], "--out", "out", WHOLE),
    "sweep": (SWEEP, "--out", "s", REFUSED),
    "merge": (["merge", "shard0", "shard1"], "--out", "whole", REFUSED),
    "claims": (["claims", "L7"], "--out", "out", WHOLE),
    "train checkpoint": (TRAIN, "--checkpoint", "c.safetensors", REFUSED),
    "train log": (TRAIN, "--log", "log.jsonl", REFUSED),
}
VOLATILE = re.compile(rb'"(started|duration_seconds|crc32)": [^\n]*|[0-9.]+ s\b|20\d\d-\d\d-\d\dT[^"< ]*')


def contents(folder):
    return {str(p.relative_to(folder)): VOLATILE.sub(b"", p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_two_writers(base):
    for name, (command, option, output, rule) in OUTPUTS.items():
        alone = base.parent / "alone"
        shutil.copytree(base, alone)
        code, _, said = run(alone, *command, option, output)
        check(f"{name}: alone", code == 0, said)
        expected = contents(alone)
        refusals = 0
        for round_ in range(2):
            work = base.parent / "work"
            shutil.copytree(base, work)
            both = [start(work, [*command, option, output]) for _ in range(2)]
            ended = [(p.communicate(timeout=120), p.returncode) for p in both]
            codes = sorted(code for _, code in ended)
            said = [err.decode() for (_, err), _ in ended]
            check(f"{name}: one of two ends well", codes in ([0, 0], [0, 2]), (codes, said))
            got = contents(work)
            check(f"{name}: what is there is whole, and nothing else", got == expected,
                  (sorted(got.keys() ^ expected.keys()), [k for k in got if got[k] != expected.get(k)], codes, said))
            for (_, err), code in ended:
                words = ("another process is writing it", "another sweep is writing to it", "already contains a sweep", "File exists",
                         "a new or empty folder")
                check(f"{name}: a refusal says why", code == 0 or any(word in err.decode() for word in words), err)
            refusals += codes == [0, 2]
            shutil.rmtree(work)
        # One that came when the first had ended found a finished training, which is no fault.
        check(f"{name}: two do not both go on in one output", rule != REFUSED or refusals > 0 or name.startswith("train"), refusals)
        check(f"{name}: two that replace a whole output are not refused", rule != WHOLE or refusals == 0, refusals)
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
    lost = {"a.npy": "no_a.npy", "b.npy": "no_b.npy", "model": "no_model", "quantized": "no_model", "wrong.npy": "no_d.npy"}
    late = {"bench": (["bench", "cast"], "--out", "out", WHOLE), "verify map": (["verify", "wrong.npy", "--golden", "wrong.npy"],
                                                                               "--map", "out", WHOLE)}
    for name, (command, option, output, _) in {**OUTPUTS, **late}.items():
        for place in ("file", "/proc/self"):
            words = [lost.get(word, word) for word in command]
            reads_first = name in ("quantize model", "dequantize", "merge", "report")
            began = time.monotonic()
            code, out, said = run(folder, *(command if reads_first else words), option, f"{place}/{output}", timeout=60)
            check(f"{name} into {place}: exit 2", code == 2, (code, out, said))
            check(f"{name} into {place}: names it", place in said and ("cannot" in said or "existing folder" in said), said)
            check(f"{name} into {place}: before its work", "step" not in said and not out, (out, said))
            check(f"{name} into {place}: at once", time.monotonic() - began < 30)
    check("nothing was written", (folder / "file").read_text() == "x")
    (folder / "file").unlink()


BYTES = os.fsdecode(b"\xff\xc3(x")


def test_paths(base):
    """Outputs and inputs whose names are no UTF-8."""
    for name, (command, option, output, _) in OUTPUTS.items():
        if name in ("vectors", "vectors npz"):  # no --json
            json_flag = []
        else:
            json_flag = [] if name in ("report", "merge", "claims", "train log", "train checkpoint", "attn") else ["--json"]
        for at in (f"{BYTES}{output}", os.path.join(f"d{BYTES}", output)):
            work = base.parent / "work"
            shutil.copytree(base, work)
            (work / f"d{BYTES}").mkdir()
            code, out, said = run(work, *command, option, at, *json_flag)
            check(f"{name} to {at!r}: exit 0", code == 0, (code, out[-200:], said))
            check(f"{name} to {at!r}: it is there", (work / at).exists(), sorted(os.listdir(os.fsencode(work))))
            if json_flag and code == 0:
                try:
                    json.loads(out)
                except ValueError as error:
                    check(f"{name} to {at!r}: JSON", False, (error, out[:300]))
            check(f"{name} to {at!r}: printable", printable(out) and printable(said), (out[-300:], said))
            shutil.rmtree(work)
    bad = base / f"{BYTES}.npy"
    shutil.copy(base / "a.npy", bad)
    for command in (["gemm", bad, bad, "--recipe", "te-current", "--json"], ["quantize", bad, "--recipe", "te-current", "--json"],
                    ["verify", bad, "--golden", bad, "--json"], ["verify", bad, "--golden", bad, "--out", "o", "--json"],
                    ["attn", bad, bad, bad, "--json"]):
        code, out, said = run(base, *command)
        check(f"{command[0]} of {bad.name!r}", code in (0, 3) and json.loads(out) is not None, (code, out[:200], said))
    for command in (["gemm", f"no{BYTES}", bad], ["report", f"no{BYTES}"], ["layers", f"no{BYTES}", "--rule", "all"],
                    ["train", "--text", f"no{BYTES}"], ["cost", "--model", f"no{BYTES}"], ["run", f"no{BYTES}.toml"],
                    ["list", "models", "--models", f"no{BYTES}"], ["list", f"--no{BYTES}"]):
        code, out, said = run(base, *command)
        check(f"{command[0]!r}: an error in UTF-8", code == 2 and "\\xff" in said and printable(said), (code, said))
    bad.unlink()


def printable(text):
    """Lines of the program's own, without what a terminal obeys."""
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
        for test in (test_two_writers, test_training_runs, test_late_outputs, test_paths, test_names, test_formulas):
            if only and test.__name__ not in only:
                continue
            begun = time.monotonic()
            test(base)
            print(f"{test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    print("outputs:", "all as expected" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
