"""ONNX's Cast into FP8 and E8M0: profiles `onnx`, `onnx_19` and `ocp_nonsaturating` against onnx's reference and its schema.

usage: onnx_casts.py FP8LAB

Codes of all values of each format, of the midpoints between them, of the numbers beside both, of special values and of
random words, by onnx.reference; and what the operator's text of opsets 19 to 24 says of infinities. Into E8M0 onnx
1.23.2 differs from its text for infinities (NaN where the text says E8M0_MAX), and rounds binary32's subnormal numbers by
their fraction bits: both are left out.

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev systems` makes it), and skips with
exit code 77 where there is none.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or Path(__file__).resolve().parents[2] / "build/torch-venv/bin/python"
try:
    import numpy as np
    import onnx
    from onnx.reference.ops.op_cast import cast_to
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev systems installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

TYPES = {
    "e4m3fn": onnx.TensorProto.FLOAT8E4M3FN,
    "e4m3fnuz": onnx.TensorProto.FLOAT8E4M3FNUZ,
    "e5m2": onnx.TensorProto.FLOAT8E5M2,
    "e5m2fnuz": onnx.TensorProto.FLOAT8E5M2FNUZ,
}
ROUND_MODES = {"up": "upward", "down": "downward", "nearest": "nearest_even"}
MOST = 4000  # numbers a command


def codes(tool, x, *options):
    """Codes that `fp8lab cast` gives."""
    got = []
    words = [f"0x{word:08x}" for word in x.view(np.uint32)]
    for i in range(0, len(words), MOST):
        run = subprocess.run([tool, "cast", *words[i:i + MOST], *options, "--json"], check=True, capture_output=True, text=True)
        got += [value["code"] for value in json.loads(run.stdout)["casts"]]
    return np.array(got, np.uint8)


def numbers(name, rng):
    values = np.arange(256, dtype=np.uint8).view(onnx.helper.tensor_dtype_to_np_dtype(TYPES[name])).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    beside = [np.nextafter(v, np.float32(to)) for v in (values, middle) for to in (np.inf, -np.inf)]
    specials = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, 3e38, -3e38, 464, 61440], np.float32)
    words = rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([values, middle, *beside, specials, words]).astype(np.float32)
    return x[~np.isnan(x)]


def report(what, x, ours, theirs):
    wrong = np.flatnonzero(ours != theirs)
    for i in wrong[:5]:
        print(f"  {what}: {float(x[i]).hex()}: fp8lab {ours[i]:#04x}, onnx {theirs[i]:#04x}")
    return len(wrong)


def check_casts(tool):
    wrong = count = 0
    for name, kind in TYPES.items():
        x = numbers(name, np.random.default_rng(1))
        for profile, saturates in (("onnx", True), ("ocp_nonsaturating", False)):
            with np.errstate(all="ignore"):
                theirs = cast_to(x, kind, saturates).view(np.uint8)
            wrong += report(f"{name} {profile}", x, codes(tool, x, "--format", name, "--profile", profile), theirs)
            count += len(x)
    print(f"casts into FP8: {count} compared, {wrong} differ")
    return wrong


def check_scales(tool):
    wrong = 0
    x = np.random.default_rng(2).integers(0x00800000, 0x7F800000, 2000, dtype=np.uint32)
    x[::3] &= 0xFFC00000  # ties, powers of two
    x = x.view(np.float32)
    for mode, rounding in ROUND_MODES.items():
        theirs = cast_to(x, onnx.TensorProto.FLOAT8E8M0, True, mode).view(np.uint8)
        ours = codes(tool, x, "--format", "e8m0fnu", "--profile", "onnx", "--rounding", rounding)
        wrong += report(f"e8m0fnu {mode}", x, ours, theirs)
    print(f"casts into E8M0: {len(ROUND_MODES) * len(x)} compared, {wrong} differ")
    return wrong


def check_infinities(tool):
    """The row of Inf in the table of saturating casts, for each opset."""
    wrong = 0
    infinity = np.array([np.inf], np.float32)
    largest = {"e4m3fn": 0x7E, "e4m3fnuz": 0x7F, "e5m2": 0x7B, "e5m2fnuz": 0x7F}
    for opset, profile in ((19, "onnx_19"), (21, "onnx_19"), (23, "onnx_19"), (24, "onnx")):
        text = onnx.defs.get_schema("Cast", opset).doc
        row = next(line for line in text.splitlines() if line.startswith("| Inf"))
        for name, cell in zip(TYPES, (cell.strip() for cell in row.split("|")[2:])):
            expected = 0x80 if cell == "NaN" else largest[name]
            got = codes(tool, infinity, "--format", name, "--profile", profile)[0]
            if got != expected:
                print(f"  opset {opset}, Inf into {name}: fp8lab {got:#04x}, onnx's text {cell}")
                wrong += 1
    return wrong


def main():
    tool = sys.argv[1]
    return 1 if check_casts(tool) + check_scales(tool) + check_infinities(tool) else 0


if __name__ == "__main__":
    sys.exit(main())
