"""Inputs that do not end, change while they are read, or ask for more than they hold.

Usage: hostile_inputs.py PATH_OF_FP8LAB
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

TOOL = sys.argv[1]
VECTORS = "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 2\n3838 4030 3f800000 40600000\n"
# What a library or the language says, and a user cannot use.
RAW = ("json.exception", "_M_range", "bad_alloc", "basic_ios", "std::", "stoll")
failures = 0


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {seen}")


def run(*arguments, memory_mib=None, timeout=30, **options):
    limit = f"ulimit -v {memory_mib << 10}; " if memory_mib else ""
    command = ["bash", "-c", f'{limit}exec "$0" "$@"', TOOL, *map(str, arguments)]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, None, "", f"not done after {timeout} s")


def refused(what, result, *parts):
    """One line on stderr with every part, and exit code 2."""
    lines = [line for line in result.stderr.strip().splitlines() if not line.endswith(": running")]
    check(f"{what}: exit 2 and one line", result.returncode == 2 and len(lines) == 1, (result.returncode, lines[:4]))
    for part in parts:
        check(f"{what}: says {part!r}", part in result.stderr, result.stderr[:300])
    check(f"{what}: in the project's words", not any(raw in result.stderr for raw in RAW), result.stderr[:300])
    check(f"{what}: a line that can be read", len(result.stderr) < 2000, len(result.stderr))


def npy(shape, data, descr="<f4"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + data


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_special_files(folder):
    good = folder / "good.npy"
    good.write_bytes(npy("(2, 2)", bytes(16)))
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    sources = {"zero": "/dev/zero", "fifo": fifo, "folder": folder}
    for source, target in sources.items():
        reason = "it is a folder" if source == "folder" else "not a regular file"
        for ending in (".npy", ".npz", ".safetensors", ".bin", ".txt", ".jsonl", ".toml"):
            (folder / f"{source}{ending}").symlink_to(target)
        name = lambda ending: folder / f"{source}{ending}"
        where = 5  # seconds
        refused(f"gemm {source}.npy", run("gemm", name(".npy"), good, timeout=where), reason, f"{source}.npy")
        refused(f"gemm {source}.npz", run("gemm", f"{name('.npz')}:a", good, timeout=where), "not a regular file")
        refused(f"gemm {source}.bin", run("gemm", name(".bin"), good, timeout=where), reason)
        refused(f"layers {source}", run("layers", name(".safetensors"), "--rule", "all", timeout=where), reason)
        refused(f"replay {source}.txt", run("replay", name(".txt"), timeout=where, memory_mib=4096), reason)
        refused(f"replay {source}.jsonl", run("replay", name(".jsonl"), timeout=where, memory_mib=4096), reason)
        refused(f"sweep {source}.toml", run("sweep", name(".toml"), timeout=where, memory_mib=4096), reason)
        refused(f"train --text {source}", run("train", "--text", target, timeout=where, memory_mib=4096), reason)
        results = folder / f"results_{source}"
        results.mkdir()
        (results / "result.json").symlink_to(target)
        refused(f"report {source}", run("report", results, timeout=where, memory_mib=4096), reason)


def test_streams(folder):
    good = folder / "good.txt"
    good.write_text(VECTORS)
    shell = lambda line: subprocess.run(["bash", "-c", line, TOOL, str(good)], capture_output=True, text=True, timeout=60)
    for line in ('"$0" replay /dev/stdin < "$1"', 'cat "$1" | "$0" replay /dev/stdin', '"$0" replay <(cat "$1")',
                 '(read first; "$0" replay /dev/stdin; true) < <(echo skipped; cat "$1")'):
        result = shell(line)
        check(line, result.returncode == 0 and "cases 1 mismatches 0" in result.stdout, result)
    endless = run("replay", "/dev/stdin", memory_mib=4096, stdin=open("/dev/zero", "rb"))
    refused("replay /dev/stdin of a device", endless, "not a regular file")


def test_truncated(folder):
    """A mapped file that becomes shorter ends the command with a message, not with a signal."""
    path, golden = folder / "x.npy", folder / "golden.npy"
    size = 256 << 20
    for name in (path, golden):
        name.write_bytes(npy(f"({size // 4},)", b""))
        os.truncate(name, name.stat().st_size + size)
    whole = path.stat().st_size
    start = time.monotonic()
    check("whole files agree", run("verify", path, "--golden", golden, timeout=120).returncode in (0, 3))
    seconds = time.monotonic() - start
    said = 0
    # Small shares too: later runs find the files in memory, and may be much quicker than the first.
    for share in (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        child = subprocess.Popen([TOOL, "verify", path, "--golden", golden], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        time.sleep(seconds * share)
        os.truncate(path, 4096)
        _, stderr = child.communicate(timeout=120)
        check("no signal and no verdict", child.returncode in (0, 2, 3), (child.returncode, stderr))
        said += child.returncode == 2 and stderr.endswith(
            "fp8lab: an input file became shorter, or could not be read, during the command\n")
        os.truncate(path, whole)
    check("some runs met the truncation", said > 0, said)


def test_many_tensors(folder):
    path = folder / "many.safetensors"
    tensors = {f"layer.{i}.weight": {"dtype": "U8", "shape": [1, 1], "data_offsets": [i, i + 1]} for i in range(50_000)}
    path.write_bytes(safetensors(tensors, bytes(50_000)))
    result = run("layers", path, "--rule", "all", "--json", timeout=12)
    check("50 000 tensors", result.returncode == 0 and len(json.loads(result.stdout)["weights"]) == 50_000, result.stderr)
    text = json.dumps(tensors).replace('"layer.49999.weight"', '"layer.7.weight"').encode()
    path.write_bytes(safetensors(text, bytes(50_000)))
    refused("the last of them twice", run("layers", path, "--rule", "all", timeout=12), "'layer.7.weight' appears twice")

    archive = folder / "many.npz"
    member = npy("(1, 1)", b"\x38", "|u1")
    with zipfile.ZipFile(archive, "w") as out:
        for i in range(65_535):
            out.writestr(f"m{i}.npy", member)
    result = run("gemm", f"{archive}:m65534", f"{archive}:m7", "--dtype", "e4m3fn", timeout=12)
    check("65 535 members", result.returncode == 0 and "D[0, 0] = 1" in result.stdout, (result.returncode, result.stderr))
    refused("none of them", run("gemm", f"{archive}:none", archive, timeout=12), "'none'", "m0, m1")


def test_many_dimensions(folder):
    shape = [1] * 20_000
    for name, data in (("d.npy", npy("(" + "1, " * 20_000 + ")", bytes(4))),
                       ("d.safetensors", safetensors({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}, bytes(4))),
                       ("d.bin", bytes(4))):
        (folder / name).write_bytes(data)
    (folder / "d.bin.json").write_text(json.dumps({"dtype": "f32", "shape": shape}))
    for name in ("d.npy", "d.safetensors", "d.bin"):
        refused(name, run("gemm", folder / name, folder / name, timeout=12), "64")
    most = npy("(" + "1, " * 64 + ")", bytes(4))
    (folder / "most.npy").write_bytes(most)
    result = run("quantize", folder / "most.npy", "--recipe", "te-current")
    check("64 dimensions, as NumPy", result.returncode == 0, result.stderr)


def test_recordings(folder):
    head = ("# fp8lab recording 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 32768\n# seed: 1\n"
            "# random: 10000000\n# adversarial: 10000000\n# special: 10000000\n# inputs: 0123456789abcdef\n")
    path = folder / "r.txt"
    for results, part in (("", "got 0"), ("00000000\n", "got 1")):
        path.write_text(head + results)
        refused("a short recording of many cases", run("replay", path, memory_mib=1024), "expected 30000000 results", part)
    path.write_text(head.replace("10000000", "40000") + "00000000\n" * 120_000)
    refused("cases of too many terms", run("replay", path, memory_mib=1024), "terms")


def test_deep(folder):
    """Texts nested so deeply that copying, writing or destroying what they hold would overflow the stack."""
    deep = 300_000
    for name, text in (("keys.toml", ".".join(["a"] * 100_000) + " = 1\n"), ("table.toml", f"[{'.'.join(['a'] * 100_000)}]\n"),
                       ("lists.toml", f"a = {'[' * deep}\n"), ("inline.toml", "a = " + "{a.a=" * deep),
                       ("marked.toml", f"\ufeff[{'.'.join(['a'] * 100_000)}]\n")):
        path = folder / name
        path.write_text(text)
        for command in (["list", "models", "--models", path], ["run", "walkthrough", "--models", path, "--out", folder / "o"],
                        ["sweep", path, "--out", folder / "o"], ["cost", "--model", path]):
            refused(f"{command[0]} with {name}", run(*command), "nested too deeply: at most 64")
    (folder / "m.json").write_text('{"accumulator": ' * deep)
    refused("models in JSON", run("list", "models", "--models", folder / "m.json"), "m.json: nested too deeply: at most 64")
    refused("a value of a parameter", run("run", "walkthrough", "--set", f"curve_points={'[' * 100_000}", "--out", folder / "o"), "nested too deeply")

    model = folder / "model"
    model.mkdir()
    weights = safetensors({"w": {"dtype": "F32", "shape": [128, 128], "data_offsets": [0, 65536]}}, bytes(65536))
    (model / "model.safetensors").write_bytes(weights)
    for depth in (65, 10_000, 200_000):
        (model / "config.json").write_text('{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}")
        refused(f"a config.json of depth {depth}", run("quantize", model, "--recipe", "deepgemm", "--layout", "deepseek", "--rule", "all", "-o",
                                                         folder / "q"),
                "config.json: nested too deeply: at most 64")
        refused(f"the same of depth {depth}", run("dequantize", model, "-o", folder / "q"), "config.json: nested too deeply: at most 64")
    check("nothing was written", not (folder / "q").exists(), folder)

    (folder / "deep.safetensors").write_bytes(safetensors(b'{"w": ' + b"[" * deep))
    refused("a header", run("layers", folder / "deep.safetensors", "--rule", "all"), "header: nested too deeply: at most 3")
    (folder / "x.bin").write_bytes(bytes(4))
    (folder / "x.bin.json").write_text("[" * deep)
    refused("a sidecar", run("gemm", folder / "x.bin", folder / "x.bin"), "x.bin.json: nested too deeply")
    (folder / "results").mkdir()
    (folder / "results" / "result.json").write_text("[" * deep)
    refused("a result", run("report", folder / "results"), "result.json: nested too deeply")
    for name, text in (("header", "[" * deep + "\n"), ("line", '{"model": "sm90.wgmma.e4m3", "input": "e4m3", "terms": "2"}\n' + "[" * deep + "\n")):
        (folder / f"{name}.jsonl").write_text(text)
        refused(f"vectors with a deep {name}", run("replay", folder / f"{name}.jsonl"), "nested too deeply: at most 64")
    (folder / "train.jsonl").write_text('{"step": ' + "[" * deep + "\n")
    refused("a log of a training run", run("train", "--steps", "1", "--log", folder / "train.jsonl"), "nested too deeply")

    sweep = ["sweep", "dynamic-range", "--quick", "--repeat", "1", "--out", folder / "s"]
    check("a sweep", run(*sweep).returncode == 0)
    log = folder / "s" / "points.jsonl"
    log.write_text(log.read_text() + with_checksum_of_text('{"point":' + "[" * deep + "]" * deep + "}") + "\n")
    refused("a sweep that goes on", run(*sweep, "--resume"), "points.jsonl: nested too deeply: at most 64")
    refused("a merged sweep", run("merge", folder / "s", "--out", folder / "m"), "points.jsonl: nested too deeply: at most 64")


def test_messages(folder):
    refused("more cases than memory", run("vectors", "--model", "sm90.wgmma.e4m3", "-n", "10000000", "--terms", "4096",
                                          memory_mib=1024), "not enough memory", "MiB")
    a = folder / "a.npy"
    a.write_bytes(npy("(40000, 64)", b"", "|u1"))
    os.truncate(a, a.stat().st_size + 40_000 * 64)
    refused("a product larger than memory", run("gemm", a, a, "--dtype", "e4m3fn", memory_mib=1024),
            f"fp8lab: not enough memory: {4 * 40_000**2} more bytes were needed at once, with ", " MiB in use (limit of address space: 1024 MiB)")

    (folder / "bad.safetensors").write_bytes(safetensors(b'{"w": }'))
    refused("a header that is no JSON", run("layers", folder / "bad.safetensors", "--rule", "all"), "not JSON")
    (folder / "raw.bin").write_bytes(bytes(4))
    (folder / "raw.bin.json").write_text('{"dtype": "f32", "shape": [1}')
    refused("a sidecar that is no JSON", run("gemm", folder / "raw.bin", a), "raw.bin.json", "not JSON")
    results = folder / "results"
    results.mkdir()
    (results / "result.json").write_text('{"schema": ')
    refused("a result that is no JSON", run("report", results), "result.json", "not JSON")

    sweep = ["sweep", "dynamic-range", "--quick", "--repeat", "1", "--out", folder / "s"]
    check("a sweep", run(*sweep).returncode == 0)
    log = folder / "s" / "points.jsonl"
    lines = log.read_text().splitlines()
    for what, change in (("its shard", lambda j: j["sweep"].update(shard="x/y")), ("its version", lambda j: j["sweep"].update(version=3)),
                         ("its sweep", lambda j: j.update(sweep=[])), ("its axes", lambda j: j["sweep"].update(axes=[1]))):
        first = json.loads(lines[0])
        del first["crc32"]
        change(first)
        log.write_text("\n".join([with_checksum(first), *lines[1:]]) + "\n")
        refused(f"a log with another form of {what}", run("merge", folder / "s", "--out", folder / "m"))
    for what, change in (("point", lambda j: j.update(point="x")), ("rows", lambda j: j.update(rows=7))):
        at = next(i for i, line in enumerate(lines) if '"point"' in line)
        row = json.loads(lines[at])
        del row["crc32"]
        change(row)
        log.write_text("\n".join([*lines[:at], with_checksum(row), *lines[at + 1:]]) + "\n")
        refused(f"a log with another form of {what}", run("merge", folder / "s", "--out", folder / "m"))
        shutil.rmtree(folder / "m", ignore_errors=True)


def test_blame(folder):
    """What is wrong in a file is said of the file, and not of the option with the same name."""
    path = folder / "v.txt"
    path.write_text(VECTORS.replace("sm90.wgmma.e4m3", "none"))
    lines = folder / "v.jsonl"
    lines.write_text('{"model": "none", "input": "e4m3", "terms": "2"}\n{"a": [56, 57], "b": [56, 57], "c": 0, "d": 1073741824}\n')
    for file in (path, lines):
        said = run("replay", file)  # lists all models
        check("a model in a file of vectors", said.returncode == 2 and said.stderr.startswith(f"fp8lab: {file}: model: expected one of"), said)
        said = run("replay", file, "--model", "other")
        check("a model that an option names", said.returncode == 2 and said.stderr.startswith("fp8lab: --model: expected one of"), said)
    shape = folder / "shape.toml"
    shape.write_text("layers = 2\nhidden = 64\nheads = 4\nvocabulary = 128\n[parallel]\ntensor = 0\n")
    refused("a count in a file of a shape", run("cost", "--model", shape), f"fp8lab: {shape}: tensor: expected 1 to 2^31")
    refused("the same of an option", run("cost", "--model", "7b", "--tensor", "0"), "--tensor")
    calls = folder / "calls.csv"
    calls.write_text("# fp8lab cublaslt 2\n# model: none\nm,n\n")
    a = folder / "a.npy"
    a.write_bytes(npy("(2, 2)", bytes(16)))
    said = run("gemm", a, a, "--call", f"{calls}:fast", "--out-dtype", "f32")
    check("a model in a table of calls", said.returncode == 2 and said.stderr.startswith(f"fp8lab: {calls}: model: expected one of"), said)


def test_numbers(folder):
    """Numbers that a parser would take for others."""
    for option in ("--seed", "-n", "--terms"):
        for text in ("-1", "010", "-010", "+010", "1x", "0x", "1e3", " 7 7"):
            result = run("vectors", "--model", "sm90.wgmma.e4m3", *(("-n", "1") if option != "-n" else ()), option, text)
            lines = result.stderr.strip().splitlines()
            check(f"vectors {option} {text}: refused", result.returncode == 2 and not result.stdout and option.strip("-")[0] in lines[0],
                  (result.returncode, result.stderr))


def test_current_folder(folder):
    """Files of the current folder are no part of the program that draws."""
    for name in ("re", "json", "os", "pathlib", "vl_convert", "sitecustomize", "ctypes"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'executed')!r}, 'w').write('x')\n")
    (folder / "python3").write_text(f"#!/bin/sh\ntouch {folder}/executed\n")
    (folder / "python3").chmod(0o755)
    for path in (os.environ["PATH"], f".:{os.environ['PATH']}", f":{os.environ['PATH']}", "."):
        for drawer in ({}, {"FP8LAB_PYTHON": "python3"}):
            environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), **drawer}
            result = subprocess.run([str(Path(TOOL).resolve()), "run", "walkthrough", "--quick", "--out", "o"], cwd=folder,
                                    capture_output=True, text=True, env=environment, timeout=60)
            check(f"run with PATH {path[:4]!r}: exit 0", result.returncode == 0, result.stderr)
            check(f"run with PATH {path[:4]!r}: nothing of the folder ran", not (folder / "executed").exists(), drawer)
            (folder / "executed").unlink(missing_ok=True)


def test_few_descriptors(folder):
    """A limit of the system is no missing package."""
    said = 0
    for most in range(5, 12):
        result = subprocess.run(["bash", "-c", f'ulimit -n {most}; exec "$0" "$@"', str(Path(TOOL).resolve()), "run", "walkthrough",
                                 "--quick", "--out", folder / "o"], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "FP8LAB_PYTHON": sys.executable})
        lines = result.stderr.splitlines()
        missing = "vl-convert-python was not found" in result.stderr
        check(f"{most} descriptors: an error, and its cause", missing or (result.returncode == 2 and lines[-1].startswith("fp8lab: ")),
              (result.returncode, result.stderr))
        said += result.returncode == 2 and not missing
    check("few descriptors are an error", said > 0, said)


def with_checksum(line):
    """As the tool writes it."""
    return with_checksum_of_text(json.dumps(line, separators=(",", ":"), ensure_ascii=False))


def with_checksum_of_text(text):
    return f'{text[:-1]},"crc32":"{zlib.crc32(text[:-1].encode()):08x}"}}'


def main():
    for test in (test_special_files, test_streams, test_truncated, test_many_tensors, test_many_dimensions,
                 test_recordings, test_deep, test_messages, test_blame, test_numbers,
                 test_current_folder, test_few_descriptors):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))
        print(f"{test.__name__}: {time.monotonic() - start:.1f} s")
    print("hostile inputs:", "all as expected" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
