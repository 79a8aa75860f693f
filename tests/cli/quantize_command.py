"""`fp8lab quantize` as its users meet it: output, files, exit codes, messages.

Usage: quantize_command.py PATH_OF_FP8LAB
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = sys.argv[1]
failures = 0


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def header_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def expect(arguments, code, stdout=(), stderr=()):
    global failures
    done = subprocess.run([TOOL, "quantize", *map(str, arguments)], capture_output=True, text=True)
    missing = [p for p in stdout if p not in done.stdout] + [p for p in stderr if p not in done.stderr]
    if done.returncode != code or missing:
        failures += 1
        print(f"FAILED: quantize {arguments}: exit {done.returncode}, expected {code}; "
              f"missing {missing}\n{done.stdout}{done.stderr}")
    return done


def check(what, condition):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}")


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    x, out = folder / "x.npy", folder / "q.safetensors"
    x.write_bytes(npy("<f4", "(2, 2)", floats(1.0, -2.0, 448.0, 1e-6)))

    expect([x, "--recipe", "te-current", "-o", out], 0,
           ["x [2, 2]: e4m3fn, 1 scale", "underflow 25 %", "saturated 25 %", "SQNR"])
    header, data = header_of(out)
    check(f"codes of te-current: {header}", header["x"]["dtype"] == "F8_E4M3" and
          data[slice(*header["x"]["data_offsets"])] == b"\x38\xc0\x7e\x00")
    check("only one file is left", sorted(p.name for p in folder.iterdir()) == ["q.safetensors", "x.npy"])
    report = json.loads(expect([out, "--tensor", "x", "--recipe", "torchao-rowwise", "--role",
                                "weight", "--json"], 0).stdout)
    check(f"JSON names what was done: {report}", report["tensors"][0]["scales"] == 2 and
          report["tensors"][0]["underflow_percent"] == 0)
    expect([x, "--recipe", "te-delayed", "--history", x], 0, ["scale 1 to 1"])
    expect([x, "--recipe", "te-current", "--transpose", "-o", out], 0)
    check("a transposed copy", "x.transposed" in header_of(out)[0])

    before = out.read_bytes()
    for arguments, parts in [
        ([x, "--recipe", "te-curent", "-o", out], ["te-current", "'te-curent'"]),
        ([x, "--recipe", "te-mxfp8", "-o", out], ["tensor x [2, 2]", "divisible by 32"]),
        ([out, "--recipe", "deepseek-v3"], ["x: e4m3fn already", "--tensor"]),
        ([out, "--tensor", "x", "x.scale", "--recipe", "deepseek-v3"], ["tensor x", "divisible by 128", "--tensor"]),
        ([x, "--recipe", "inference-static", "-o", out], ["calibration"]),
        ([x, "--recipe", "te-current", "--history", x], ["--history"]),
        ([x, "--recipe", "te-current", "--role", "bias"], ["activation, weight or gradient"]),
        ([x, "--recipe", "te-current", "--product", "forward"], ["fprop", "'forward'"]),
        ([x, "--recipe", "te-current", "--product", "dgrad"], ["a product that the activation enters"]),
        ([x, "--recipe", "torchao-rowwise-hp-wgrad", "--product", "wgrad"], ["computes in FP8"]),
        ([x, "--recipe", "te-current", "--tensor", "x"], ["--tensor"]),
        ([out, "--recipe", "te-current", "--tensor", "y"], ["'y'", "x.scale"]),
        ([out, "--recipe", "te-current", "--dtype", "bf16"], ["--dtype"]),
        ([folder / "no.npy", "--recipe", "te-current"], ["no.npy", "cannot be opened"]),
        ([folder / "x.txt", "--recipe", "te-current"], [".npy or .safetensors"]),
        ([x, "--recipe", "te-current", "-o", folder / "none" / "q.safetensors"], ["cannot write"]),
    ]:
        expect(arguments, 2, stderr=parts)
    check("a refused run leaves the old output", out.read_bytes() == before)

    bad = folder / "bad.npy"
    bad.write_bytes(npy("<f4", "(2, 2)", floats(1.0, 2.0)))
    expect([bad, "--recipe", "te-current"], 2, stderr=["bad.npy", "truncated"])
    bad.write_bytes(npy("|V1", "(4,)", b"\x38\x38\x38\x38"))
    expect([bad, "--recipe", "te-current"], 2, stderr=["x.view(np.uint8)"])
    bad.write_bytes(npy("<V2", "(2,)", b"\x80\x3f\x00\x40"))
    expect([bad, "--recipe", "te-current"], 2, stderr=["name the dtype (bf16)"])
    expect([bad, "--recipe", "te-current", "--dtype", "bf16"], 0, ["bad [2]"])
    # Systems that compute in the tensor's type.
    for recipe in ("compressed-tensors", "torchao-inference"):
        expect([bad, "--recipe", recipe, "--dtype", "bf16"], 2, stderr=[f"{recipe}-bf16"])
        expect([bad, "--recipe", recipe + "-bf16", "--dtype", "bf16"], 0, ["bad [2]"])
        expect([x, "--recipe", recipe], 0)
    expect([x, "--recipe", "compressed-tensors-bf16"], 2, stderr=["BF16 elements", "1e-06"])
    # binary64 would be rounded to binary32 first: 1.0625 + 2^-40 to the tie, and then to 1.
    bad.write_bytes(npy("<f8", "(1, 2)", struct.pack("<2d", 1.0625 + 2.0**-40, 448.0)))
    expect([bad, "--recipe", "naive"], 2, stderr=["tensor bad", "rounded twice", "f64"])
    # An operand that is cast otherwise in its second product.
    for product, scales in (("fprop", 2), ("dgrad", 1)):
        report = json.loads(expect([x, "--recipe", "torchao-rowwise-hp-wgrad", "--role", "weight", "--product",
                                    product, "--json"], 0).stdout)
        check(f"{product}: {report}", report["tensors"][0]["scales"] == scales)
    # 464 rounds to 448: nothing is lost. 465 would be 480.
    bad.write_bytes(npy("<f4", "(1, 4)", floats(449.0, 464.0, 465.0, 1.0)))
    expect([bad, "--recipe", "naive"], 0, ["overflow 25 %", "saturated 75 %"])
    zeros = folder / "zeros.npy"
    zeros.write_bytes(npy("<f4", "(1, 128)", floats(*[0.0] * 128)))
    expect([zeros, "--recipe", "deepseek-v3"], 0, ["NaN 0 %"])
    expect([zeros, "--recipe", "deepseek-v3-first"], 0, ["NaN 100 %"])
    bad.write_bytes(npy("<f4", "(0, 4)", b""))
    expect([bad, "--recipe", "te-current", "-o", folder / "empty.safetensors"], 0, ["bad [0, 4]"])

print(f"{failures} failures")
sys.exit(1 if failures else 0)
