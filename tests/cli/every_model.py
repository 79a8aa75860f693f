"""Every registered model under every command that takes one: with a right output, a wrong one, and block scales where
the instruction has them. The list of models comes from the tool, so that none can be left out.

Usage: every_model.py PATH_OF_FP8LAB
"""

import json
import tempfile

from checking import check, expect, finish, run
from fp8_arrays import Folder, np

M, N, K = 6, 8, 128
EIGHT_BITS = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1", "e2m3", "e3m2")
NARROW = ("e2m1", "e2m3", "e3m2")
rng = np.random.default_rng(7)
walked = set()  # kinds of models under the commands that take longer: a kind each, not every model


def save_tensors(path, **tensors):
    """A .safetensors file of (dtype, array of storage words)."""
    header, data = {}, b""
    for name, (dtype, words) in tensors.items():
        begin = len(data)
        data += words.tobytes()
        header[name] = {"dtype": dtype, "shape": list(words.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def finite_codes(name, rows, table):
    """Random codes of numbers about 1, of which no sum leaves FP16."""
    good = np.array([code for code, value in enumerate(table[name]) if isinstance(value, float) and 0.2 < abs(value) < 3], np.uint8)
    return rng.choice(good, (rows, K))


def operand(folder, path, name, rows, table):
    """A file of random operands, and the options that say what is in it."""
    if name in EIGHT_BITS:
        return folder.save(path + ".npy", finite_codes(name, rows, table))
    values = rng.standard_normal((rows, K)).astype(np.float32)
    dtype, words = {"f16": ("F16", values.astype(np.float16)),
                    "bf16": ("BF16", (values.view(np.uint32) >> 16).astype(np.uint16))}.get(name, ("F32", values))
    save_tensors(folder / (path + ".safetensors"), t=(dtype, words))
    return f"{folder / (path + '.safetensors')}:t"


def scale_options(folder, model):
    """Block scales of both operands: E8M0 per 32, or UE4M3 per 16 where the instruction takes them."""
    if not model["block_scales"]:
        return []
    ue4m3 = "e4m3" in model["block_scales"]
    block, low, high = (16, 40, 64) if ue4m3 else (32, 120, 130)
    options = ["--scale-format", "e4m3fn" if ue4m3 else "e8m0fnu"]
    for side, rows in (("a", M), ("b", N)):
        codes = rng.integers(low, high, (rows, K // block), dtype=np.uint8)
        options += [f"--scale-{side}", folder.save(f"s{side}.npy", codes), f"--tiles-{side}", f"1x{block}"]
    return options


def walk(folder, model, table):
    name = model["name"]
    a_format, b_format = (model["input"].split() * 2)[:2]
    a, b = operand(folder, "a", a_format, M, table), operand(folder, "b", b_format, N, table)
    formats = []
    if a_format in EIGHT_BITS:
        formats = ["--dtype", a_format, "--dtype-b", b_format]
    how = [*formats, *scale_options(folder, model)]
    expect(0, "gemm", a, b, *how, "--model", name, "-o", folder / "d.npy")
    d = np.load(folder / "d.npy")
    right, wrong = folder.save("right.npy", d), folder.save("wrong.npy", 2 * d + 1)
    inputs = ["--inputs", a, b, *how, "--model", name]
    # Every accumulator gives the same sums of FP4 and FP6, so that a bitwise check of them may have no power.
    done = run("verify", right, *inputs)
    power = (0,) if a_format not in NARROW and b_format not in NARROW else (0, 3)
    check(f"verify of {name}: exit {done.returncode}", done.returncode in power, done.stdout + done.stderr)
    for more in ([], ["--check", "budget"]):
        expect(1, "verify", wrong, *inputs, *more, stdout=["mismatch", "cause"])
    one = d.copy()
    one[1, 2] = 2 * one[1, 2] + 1
    expect(1, "verify", folder.save("one.npy", one), *inputs, stdout=["mismatch: 1 of 48"])
    expect(0, "identify", a, b, right, *how, "--model", name, stdout=["explained"])
    expect(0, "vectors", "--model", name, "--count", 20, "-o", folder / "v.txt")
    expect(0, "replay", folder / "v.txt", "--model", name, stdout=["mismatches 0"])
    kind = (model["accumulation"], model["block_scales"], a_format)
    if kind in walked:
        return
    walked.add(kind)
    refused_or(0, "expect", "--shape", f"{M}x{N}x{K}", "--trials", 10, "--model", name)
    refused_or(1, "reveal", "--model", name, "--dtype", a_format, "--dtype-b", b_format, "-m", 8, "-n", 8, "-k", 64)
    refused_or(0, "bench", "gemm", "--model", name, "--shape", "16x16x64")
    refused_or(1, "train", "--model", name, "--steps", 1, "--sequences", 1, "--length", 32, "--width", 32, "--layers", 1)


def refused_or(most, *arguments):
    """A command that does not take every model: it ends with at most this exit code, or it says what it expects."""
    done = run(*arguments)
    lines = done.stderr.strip().splitlines()
    said = done.returncode == 2 and len(lines) == 1 and "expected" in lines[0]
    check(f"{' '.join(map(str, arguments))}: exit {done.returncode}", 0 <= done.returncode <= most or said, done.stdout + done.stderr)


def main():
    models = json.loads(run("list", "models", "--json").stdout)["models"]
    table = {name: [row["value"] for row in json.loads(run("table", name, "--json").stdout)["codes"]] for name in EIGHT_BITS}
    for model in models:
        with tempfile.TemporaryDirectory() as path:
            walk(Folder(path), model, table)
    check("models are registered", len(models) > 100, len(models))
    finish(f"{len(models)} models under every command")


main()
