"""A page that shows what E8M0 rules and FP4 rules make of the same blocks, from what `fp8lab quantize` gives."""

import json
import math
import struct
import subprocess
import tempfile
from pathlib import Path

E8M0_RULES = {
    "floor": ("mxfp8-floor", "mxfp4"), "even": ("mxfp8-even", "torchao-mxfp4-even"),
    "ceil": ("mxfp8-ceil", "torchao-mxfp4-ceil"), "rceil": ("mxfp8-rceil", "torchao-mxfp4-rceil"),
}
FP4_RULES = ("mxfp4", "torchao-mxfp4-even", "torchao-mxfp4-rceil", "compressed-tensors-mxfp4", "modelopt-mxfp4", "deepgemm-fp4",
             "vllm-mxfp4")
NVFP4_RULES = ("nvfp4", "te-nvfp4", "te-nvfp4-4over6", "te-nvfp4-4over6-mse", "torchao-nvfp4", "compressed-tensors-nvfp4",
               "modelopt-nvfp4", "serving-nvfp4")
AMAXES = (1.0, 1.2, 1.5, 1.75, 1.7500001, 1.8750001, 1.9375, 1.9999999)
# Ties under both scales that rules give this amax, and a small negative number.
MX_BLOCK = (1.6, 1.3, 0.875, 0.75, 0.375, 0.1, -0.05, 0.0)
# Of a tensor whose amax is 1536: scales of 1 and 1.5 are close in the error that they leave.
NV_BLOCK, NV_AMAX = (6.0, 3.75, 3.5, 2.5, 0.75, 0.75, 0.75, -0.2), 1536.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SIDE = 32


def decoded(code, dtype):
    sign, magnitude = (code >> 3, code & 7) if dtype == "F4" else (code >> 7, code & 127)
    if dtype == "F4":
        value = E2M1[magnitude]
    else:
        exponent, fraction = magnitude >> 3, magnitude & 7
        value = math.ldexp(fraction + 8 * (exponent > 0), max(exponent, 1) - 10)
    return math.copysign(value, -1 if sign else 1)


def quantized(tool, preset, rows):
    """The values that a preset gives back, and the inverse scales of a row's first tile."""
    with tempfile.TemporaryDirectory() as folder:
        x, q = Path(folder, "x.npy"), Path(folder, "q.safetensors")
        shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {SIDE})}}"
        header = shape.ljust(117) + "\n"
        x.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                      + struct.pack(f"<{len(rows) * SIDE}f", *sum(rows, [])))
        subprocess.run([tool, "quantize", x, "--recipe", preset, "-o", q], check=True, capture_output=True)
        data = q.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entries, body = json.loads(data[8:8 + size]), data[8 + size:]

    def part(name):
        begin, end = entries[name]["data_offsets"]
        return body[begin:end]

    def floats(name):
        return struct.unpack(f"<{len(part(name)) // 4}f", part(name))

    dtype, words = entries["x"]["dtype"], part("x")
    codes = [word >> shift & 15 for word in words for shift in (0, 4)] if dtype == "F4" else list(words)
    scales = floats("x.scale_inv")
    across = len(scales) // len(rows)
    side = SIDE // across
    values = [decoded(code, dtype) * scales[i // SIDE * across + i % SIDE // side] for i, code in enumerate(codes)]
    return [values[r * SIDE:(r + 1) * SIDE] for r in range(len(rows))], [scales[r * across] for r in range(len(rows))]


def number(x):
    return f"{x:.8g}".replace("-0", "−0") if x == 0 else f"{x:.8g}".replace("-", "−")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def e8m0_part(tool, title, which):
    """One row an amax: the power of two of each rule, and what becomes of the amax itself."""
    blocks = [[amax] + [amax / 2] * (SIDE - 1) for amax in AMAXES]
    found = {rule: quantized(tool, presets[which], blocks) for rule, presets in E8M0_RULES.items()}
    rows = []
    for i, amax in enumerate(AMAXES):
        cells = [f"2^{int(math.log2(scales[i]))}: {number(values[i][0])}" for values, scales in found.values()]
        rows.append([number(amax), *cells])
    return [f"## {title}", "", *table(["amax", *found], rows)]


def fp4_part(tool, title, presets, elements, amax):
    """One row an element: what each preset gives back. The second half of the row has the tensor's amax."""
    block = list(elements) * 2 + [amax] * 16 if amax else list(elements) * 4
    found = {preset: quantized(tool, preset, [block] * 16) for preset in presets}  # TransformerEngine takes no fewer rows
    rows = [["scale", *[number(scales[0]) for _, scales in found.values()]]]
    rows += [[number(x), *[number(values[0][i]) for values, _ in found.values()]] for i, x in enumerate(elements)]
    return [f"## {title}", "", *table(["element", *(f"`{preset}`" for preset in found)], rows)]


def pages(tool):
    """Path in the site -> text."""
    text = ["# Scale rules side by side", "",
            "The same blocks under each rule, as `fp8lab quantize` casts them. [Scaling](specification/scaling.md) defines the rules. Between "
            "any two E8M0 rules the scale differs by one power of two or not at all: a reader that expects another rule's scale still decodes "
            "right, but a writer's error is twice as large, or its largest elements saturate.", "",
            "A cell has the inverse scale and what becomes of the amax itself.", "",
            *e8m0_part(tool, "E8M0 scales of E4M3", 0), *e8m0_part(tool, "E8M0 scales of E2M1", 1),
            *fp4_part(tool, "MXFP4: one block of 32", FP4_RULES, MX_BLOCK, 0),
            *fp4_part(tool, f"NVFP4: a block of 16, of a tensor of amax {NV_AMAX:g}", NVFP4_RULES, NV_BLOCK, NV_AMAX)]
    return {"scale-rules.md": "\n".join(text)}
