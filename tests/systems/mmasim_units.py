"""Matrix units against mmasim, the simulator of MMA-Sim's authors, who compare it bit by bit with chips.

usage: mmasim_units.py FP8LAB [MODEL ...]

Every registered instruction with a counterpart in mmasim, on 3 x 3000 rows: normal data, a wide range of
exponents, and special values (NaN, infinities, zeros of both signs, subnormals, sums that round to zero).
Raw bits are compared, zero signs included; AMD's NaN alone are equal to each other. Differences that are known
and explained are taken out by name (KNOWN_DIFFERENCES). Fails on any other one, on an instruction that has no
counterpart and no reason for it, and on a reason or a known difference that is no longer true.

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev systems` makes it), and skips with
exit code 77 where there is none. mmasim compiles a file when it is imported (needs g++).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, NamedTuple

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or HERE.parents[1] / "build/torch-venv/bin/python"
os.environ.setdefault("OMP_NUM_THREADS", "2")
# Where mmasim's compiled file goes, and the ninja that compiles it.
os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch-extensions"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
try:
    import mmasim.amd
    import mmasim.nv_ptx
    import numpy as np
    import torch
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev systems installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

ROWS = 3000
STEPS = 2  # instructions in a chain
SEED = 20261128
NAN = 0x7FFFFFFF


# ---- formats -----------------------------------------------------------------------------------------------


class Format(NamedTuple):
    exponent_bits: int
    mantissa_bits: int
    bias: int
    nan: tuple = ()
    infinity: int | None = None
    low_bits: int = 0  # of the stored word, which are zero
    negative_zero: bool = True

    @property
    def sign(self):
        return 1 << (self.exponent_bits + self.mantissa_bits + self.low_bits)

    @property
    def largest(self):
        """The code of the largest finite number."""
        whole = self.sign - (1 << self.low_bits)
        if self.infinity is not None:
            return self.infinity - (1 << self.low_bits)
        return whole - 1 if self.nan and self.negative_zero else whole

    @property
    def word(self):
        bits = 1 + self.exponent_bits + self.mantissa_bits + self.low_bits
        return ">u4" if bits > 16 else ">u2" if bits > 8 else "u1"


def ieee(exponent_bits, mantissa_bits, low_bits=0):
    infinity = ((1 << exponent_bits) - 1) << (mantissa_bits + low_bits)
    quiet = infinity | 1 << (mantissa_bits + low_bits - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    return Format(exponent_bits, mantissa_bits, bias, (quiet, infinity | 1 << low_bits), infinity, low_bits)


FORMATS = {
    "e4m3fn": Format(4, 3, 7, (0x7F,)),
    "e5m2": ieee(5, 2),
    "e4m3fnuz": Format(4, 3, 8, (0x80,), negative_zero=False),
    "e5m2fnuz": Format(5, 2, 16, (0x80,), negative_zero=False),
    "e3m2": Format(3, 2, 3),
    "e2m3": Format(2, 3, 1),
    "e2m1": Format(2, 1, 1),
    "f16": ieee(5, 10),
    "bf16": ieee(8, 7),
    "tf32": ieee(8, 10, 13),
    "f32": ieee(8, 23),
}
DTYPES = {
    "e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz, "f16": torch.float16, "bf16": torch.bfloat16,
}


def tensor_of(name, codes):
    """Codes as mmasim takes them; FP6 is in a byte's bits 5 to 0, FP4 in 5 to 2."""
    if name in ("e3m2", "e2m3", "e2m1"):
        return torch.from_numpy((codes << (2 if name == "e2m1" else 0)).astype(np.uint8))
    if name in DTYPES:
        signed = {1: np.int8, 2: np.int16}[DTYPES[name].itemsize]
        words = codes.astype(np.uint32).astype(signed)
        return torch.from_numpy(words).view(DTYPES[name])
    return torch.from_numpy(codes.astype(np.uint32).view(np.int32)).view(torch.float32)


def packed_fp4(codes):
    """E2M1 as mxf4nvf4 takes it, two a byte. A group's products may stand in any order."""
    return torch.from_numpy((codes[:, ::2] << 4 | codes[:, 1::2]).astype(np.uint8))


def scale_tensor(name, codes):
    dtype = torch.float8_e8m0fnu if name == "ue8m0" else torch.float8_e4m3fn
    return torch.from_numpy(codes.astype(np.uint8)).view(dtype)


# ---- rows --------------------------------------------------------------------------------------------------


def codes_near(rng, f, exponents):
    """Random normal codes of about these exponents, with random signs."""
    field = np.clip(exponents + f.bias, 1, (f.largest >> f.low_bits) >> f.mantissa_bits)
    mantissa = rng.integers(0, 1 << f.mantissa_bits, exponents.shape)
    magnitude = np.minimum((field << f.mantissa_bits | mantissa) << f.low_bits, f.largest)
    return magnitude | f.sign * rng.integers(0, 2, exponents.shape)


def any_finite(rng, f, shape):
    magnitude = rng.integers(0, (f.largest >> f.low_bits) + 1, shape) << f.low_bits
    sign = f.sign * rng.integers(0, 2, shape)
    return np.where((magnitude == 0) & (not f.negative_zero), 0, magnitude | sign)


def special_codes(f):
    smallest, normal = 1 << f.low_bits, 1 << (f.mantissa_bits + f.low_bits)
    magnitudes = [0, smallest, normal - smallest, normal, f.largest]
    magnitudes += [f.infinity] if f.infinity is not None else []
    signed = [m | s for m in magnitudes for s in (0, f.sign) if m or f.negative_zero or not s]
    return np.array([*signed, *f.nan], dtype=np.int64)


def normal_rows(rng, f, shape):
    return codes_near(rng, f, np.floor(np.log2(np.abs(rng.standard_normal(shape)) + 1e-9)).astype(np.int64))


def wide_rows(rng, f, shape):
    """Any finite codes; in every other row exponents of a dozen binades about one."""
    reach = 2 ** (f.exponent_bits - 1)
    center = rng.integers(-reach, reach, (shape[0], 1))
    near = codes_near(rng, f, center + rng.integers(-12, 13, shape))
    return np.where(np.arange(shape[0])[:, None] % 2 == 0, any_finite(rng, f, shape), near)


def special_rows(rng, f, shape):
    """Few special values in most rows; rows of tiny numbers, and of zeros alone."""
    x = wide_rows(rng, f, shape)
    specials = special_codes(f)
    drawn = specials[rng.integers(0, len(specials), shape)]
    x = np.where(rng.random(shape) < rng.choice([0.01, 0.05, 0.3, 1.0], (shape[0], 1)), drawn, x)
    tiny = rng.integers(0, 4, shape) << f.low_bits | f.sign * rng.integers(0, 2, shape)
    tiny = np.where((tiny & ~f.sign == 0) & (not f.negative_zero), 0, tiny)
    zero = np.where(f.negative_zero, f.sign * rng.integers(0, 2, shape), 0)
    which = np.arange(shape[0])[:, None] % 5
    return np.where(which == 0, np.where(rng.random(shape) < 0.8, zero, tiny), np.where(which == 1, tiny, x))


KINDS = {"normal": normal_rows, "wide": wide_rows, "special": special_rows}


def starts(rng, kind, f, size, a, b):
    """c's of every size: about that of a product, or anything."""
    if kind == "normal":
        return codes_near(rng, f, rng.integers(-3, 4, size))
    product = exponent_of(a) + exponent_of(b)
    near = codes_near(rng, f, product + rng.integers(-32, 33, size))
    anything = any_finite(rng, f, (size,))
    if kind == "special":
        specials = special_codes(f)
        drawn = specials[rng.integers(0, len(specials), size)]
        anything = np.where(rng.random(size) < 0.5, drawn, anything)
    return np.where(rng.random(size) < 0.5, near, anything)


def exponent_of(side):
    """The largest exponent of each row, as if all codes were finite."""
    f, codes = side
    return (((codes & (f.sign - 1)) >> (f.low_bits + f.mantissa_bits)) - f.bias).max(axis=1)


def scale_codes(rng, name, kind, shape):
    if name == "ue4m3":
        low, high = {"normal": (0x30, 0x48), "wide": (0, 0x7F), "special": (0, 0x100)}[kind]
        codes = rng.integers(low, high, shape)
        return codes | (0x80 * rng.integers(0, 2, shape) if kind == "wide" else 0)
    codes = rng.integers(120, 135, shape)
    if kind != "normal":
        codes = np.where(rng.random((shape[0], 1)) < 0.5, codes, rng.integers(0, 255, shape))
    if kind == "special":
        edges = rng.choice([0, 1, 127, 254, 255], shape)
        codes = np.where(rng.random(shape) < rng.choice([0.02, 0.5], (shape[0], 1)), edges, codes)
    return codes


# ---- counterparts ------------------------------------------------------------------------------------------


class Counterpart(NamedTuple):
    """d of one instruction of `terms` products from a, b, c, and from both sides' scales if it has any."""

    run: Callable
    terms: int
    scales: tuple[str, int] | None = None  # format and block


ARCHITECTURES = {
    "sm70.mma": "Volta", "sm75.mma": "Turing", "sm80.mma": "Ampere", "sm89.mma": "Ada Lovelace", "sm90.mma": "Hopper",
    "sm90.wgmma": "Hopper", "sm100.mma": "Blackwell", "sm100.tcgen05": "Blackwell", "sm120.mma": "RTX Blackwell",
    "gfx908.mfma": "CDNA1", "gfx90a.mfma": "CDNA2", "gfx942.mfma": "CDNA3",
}
SHAPES_16 = {"Volta": "m8n8k4", "Turing": "m16n8k8"}
FP8 = {"e4m3fn": "e4m3", "e5m2": "e5m2"}
MFMA = {
    ("CDNA1", "f16"): "f32_32x32x8f16", ("CDNA1", "bf16"): "f32_32x32x4bf16", ("CDNA1", "f32"): "f32_16x16x4f32",
    ("CDNA2", "f16"): "f32_32x32x8f16", ("CDNA2", "bf16"): "f32_32x32x4bf16", ("CDNA2", "f32"): "f32_16x16x4f32",
    ("CDNA2", "bf16_1k"): "f32_32x32x8bf16_1k", ("CDNA3", "f16"): "f32_16x16x16_f16",
    ("CDNA3", "bf16"): "f32_16x16x16_bf16", ("CDNA3", "xf32"): "f32_16x16x8_xf32", ("CDNA3", "f32"): "f32_16x16x4_f32",
}


def plain(operation):
    return Counterpart(lambda a, b, c, _: operation.dpa(a, b, c), operation.k)


def scaled(operation, scale, block):
    return Counterpart(lambda a, b, c, s: operation.dpa(a, b, c, *s), operation.k, (scale, block))


def of_halves(architecture, output, separate):
    """FP8 `mma.sync` of chips without it: FP16 instructions that the compiler writes, and additions."""
    step = mmasim.nv_ptx.MMA(architecture, f"m16n8k16.{output}.f16.f16.{output}")
    first = torch.arange(32) % 4 < 2

    def run(a, b, c, _):
        a, b, zero = a.to(torch.float16), b.to(torch.float16), torch.zeros_like(c)
        one = step.dpa(a[:, first], b[:, first], zero)
        two = step.dpa(a[:, ~first], b[:, ~first], zero if separate else one)
        return c + (one + two if separate else two)

    return Counterpart(run, 32)


def amd_counterpart(architecture, label):
    name = MFMA.get((architecture, label))
    if name is None:
        kinds = label.split(".")
        name = f"f32_16x16x32_{kinds[0]}_{kinds[-1]}"
    return plain(mmasim.amd.MFMA(architecture, name))


def nvidia_counterpart(unit, architecture, model):
    """What mmasim has, by the names of PTX."""
    a, b = ({**FP8}.get(model[side], model[side]) for side in ("a", "b"))
    d = "f16" if model["output"] == "f16" else "f32"
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(a, 32)
    if unit == "sm90.wgmma":
        return plain(mmasim.nv_ptx.WGMMA(architecture, f"m64n8k{k}.{d}.{a}.{b}"))
    if unit == "sm100.tcgen05":
        kind = {8: "tf32", 16: "f16"}.get(k, "f8f6f4")
        return plain(mmasim.nv_ptx.TCGen05MMA(architecture, f"m128n8k{k}.kind::{kind}.{d}.{a}.{b}"))
    if k == 32 and unit in ("sm90.mma", "sm100.mma"):
        return of_halves(architecture, d, model["name"].endswith(".separate"))
    if k == 32 and unit == "sm120.mma":
        return plain(mmasim.nv_ptx.MMA(architecture, f"m16n8k32.kind::f8f6f4.{d}.{a}.{b}.{d}"))
    shape = SHAPES_16.get(architecture, f"m16n8k{k}")
    return plain(mmasim.nv_ptx.MMA(architecture, f"{shape}.{d}.{a}.{b}.{d}"))


def scaled_counterparts(unit, architecture, model):
    a, b = ({**FP8}.get(model[side], model[side]) for side in ("a", "b"))
    groups = "mxf4nvf4" in model["name"]
    forms = [("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16)] if groups else [("ue8m0", 32)]
    kind, k = ("mxf4nvf4", 64) if groups else ("mxf8f6f4", 32)
    for scale, block in forms:
        if unit == "sm100.tcgen05":
            name = f"m128n8k{k}.kind::{kind}.block{block}.f32.{a}.{b}.{scale}"
            yield scaled(mmasim.nv_ptx.TCGen05MMABlockScale(architecture, name), scale, block)
        else:
            name = f"m16n8k{k}.kind::{kind}.block{block}.f32.{a}.{b}.f32.{scale}"
            yield scaled(mmasim.nv_ptx.MMABlockScale(architecture, name), scale, block)


# Registered, or a form of what is registered, and not in mmasim.
WITHOUT = {
    "sm120.mma.mxf4nvf4 ue4m3 per 32": "mmasim calls the combination invalid",
}


def label_of(model, scales):
    return model["name"] + (" {} per {}".format(*scales) if scales else "")


def reason_for(what):
    """Why a form is compared with nothing, or nothing."""
    return WITHOUT.get(what) or ("mmasim has units of GPUs alone" if what.startswith(("x86.", "arm.")) else None)


def without_counterpart(model, forms):
    """Forms of an instruction that are compared with nothing."""
    compared = {form.scales for form in forms}
    return [label_of(model, scales) for scales in sorted(model["scales"]) if scales not in compared]


def counterparts(model):
    """What mmasim has of an instruction; nothing where it has nothing."""
    parts = model["name"].split(".")
    unit, label = ".".join(parts[:2]), ".".join(parts[2:])
    architecture = ARCHITECTURES.get(unit)
    if architecture is None:
        return []
    if architecture.startswith("CDNA"):
        return [amd_counterpart(architecture, label)]
    if label.startswith("mxf"):
        return list(scaled_counterparts(unit, architecture, model))
    return [nvidia_counterpart(unit, architecture, model)]


# ---- differences that are known ------------------------------------------------------------------------------


class Step(NamedTuple):
    """One instruction: codes of its operands, c and mmasim's d as binary32 words."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


def lost_special_c(model, step):
    """CDNA3's FP8: mmasim leaves out a c far below the products before it asks whether c is a number."""
    if not model["name"].startswith("gfx942.mfma.") or model["a"][-4:] != "fnuz":
        return step.d
    nan_codes = [np.isin(codes, FORMATS[model[side]].nan) for side, codes in (("a", step.a), ("b", step.b))]
    nan = nan_codes[0].any(axis=1) | nan_codes[1].any(axis=1) | (step.c & 0x7FFFFFFF > 0x7F800000)
    infinite = step.c & 0x7FFFFFFF == 0x7F800000
    return np.where(nan, NAN, np.where(infinite, step.c, step.d))


def sum_of_negative_zeros(model, step):
    """AMD's exact and two-stage sums: PyTorch's sum, which mmasim takes, starts from +0; IEEE 754's is -0."""
    if not model["name"].startswith(("gfx908.mfma.", "gfx942.mfma.")) or model["a"] == "f32":
        return step.d
    codes = {side: (FORMATS[model[side]], words) for side, words in (("a", step.a), ("b", step.b))}
    negative = {side: words & f.sign != 0 for side, (f, words) in codes.items()}
    zero = {side: words & (f.sign - 1) == 0 for side, (f, words) in codes.items()}
    finite = {side: words & (f.sign - 1) <= f.largest for side, (f, words) in codes.items()}
    products = finite["a"] & finite["b"] & (zero["a"] | zero["b"]) & (negative["a"] != negative["b"])
    if not FORMATS[model["a"]].negative_zero:
        products &= (step.a != 0x80) & (step.b != 0x80)
    return np.where(products.all(axis=1) & (step.c == 0x80000000), 0x80000000, step.d)


# What fp8lab has another result for, by name: mmasim's d becomes fp8lab's.
KNOWN_DIFFERENCES = {
    "a NaN or an infinity of c that mmasim loses (gfx942, BF8)": lost_special_c,
    "a sum of -0 alone, for which mmasim has +0 (gfx908, gfx942; no chip's bits are known)": sum_of_negative_zeros,
}


# ---- comparison --------------------------------------------------------------------------------------------


def draw(rng, kind, model, counterpart):
    """Rows of codes; c as FP16 words where the output is FP16."""
    fa, fb = FORMATS[model["a"]], FORMATS[model["b"]]
    terms = STEPS * counterpart.terms
    a = KINDS[kind](rng, fa, (ROWS, terms))
    b = KINDS[kind](rng, fb, (ROWS, terms))
    pairs = np.arange(ROWS) % 4 == 1  # products that cancel
    a[pairs, 1::2], b[pairs, 1::2] = a[pairs, ::2], b[pairs, ::2]
    flipped = a[pairs, ::2] ^ fa.sign
    a[pairs, 1::2] = np.where((flipped == fa.sign) & (not fa.negative_zero), 0, flipped)
    output = FORMATS["f16" if model["output"] == "f16" else "f32"]
    c = starts(rng, kind, output, ROWS, (fa, a), (fb, b))
    if kind == "special":  # nothing but -0, or all but one term
        zeros = np.arange(ROWS) % 11 == 0
        a[zeros], b[zeros], c[zeros] = 0, codes_near(rng, fb, np.zeros(b[zeros].shape, int)) | fb.sign, output.sign
        one = np.arange(ROWS) % 22 == 0
        a[one, rng.integers(0, terms)] = rng.choice(special_codes(fa), int(one.sum()))
    scales = None
    if counterpart.scales:
        name, block = counterpart.scales
        scales = tuple(scale_codes(rng, name, kind, (ROWS, terms // block)) for _ in "ab")
    return a, b, c, scales


def results(model, counterpart, a, b, c, scales, mended):
    """mmasim's d as binary32 words, known differences mended after each instruction and counted."""
    half = model["output"] == "f16"
    d = tensor_of("f16" if half else "f32", c)
    per_step = counterpart.terms
    in_pairs = "mxf4nvf4" in model["name"]
    for step in range(STEPS):
        at = slice(step * per_step, (step + 1) * per_step)
        sides = [packed_fp4(x[:, at]) if in_pairs else tensor_of(model[name], x[:, at])
                 for name, x in (("a", a), ("b", b))]
        of_step = None
        if scales:
            name, block = counterpart.scales
            few = slice(step * per_step // block, (step + 1) * per_step // block)
            of_step = [scale_tensor(name, s[:, few]) for s in scales]
        before = words_of(d)
        words = words_of(counterpart.run(*sides, d, of_step))
        for name, mend in KNOWN_DIFFERENCES.items():
            better = mend(model, Step(a[:, at], b[:, at], before, words))
            mended[name] += int((better != words).sum())
            words = better
        d = tensor_of("f32", words)
        d = d.to(torch.float16) if half else d
    return words


def words_of(x):
    words = x.float().view(torch.int32).numpy().view(np.uint32).astype(np.int64)
    return np.where((words & 0x7FFFFFFF) > 0x7F800000, NAN, words)


def hex_rows(codes, dtype):
    return [line.tobytes().hex() for line in np.ascontiguousarray(codes.astype(dtype))]


def write_vectors(path, model, counterpart, a, b, c, scales, d):
    header = ["fp8lab vectors 1", f"model: {model['name']}",
              f"input: {model['a']}" + (f" {model['b']}" if model["a"] != model["b"] else ""),
              f"terms: {a.shape[1]}"]
    columns = [hex_rows(a, FORMATS[model["a"]].word), hex_rows(b, FORMATS[model["b"]].word)]
    if scales:
        header.append("scales: {} {}".format(*counterpart.scales))
        columns += [hex_rows(s, "u1") for s in scales]
    if model["output"] == "f16":
        header.append("output: f16 (d is an FP16 value in binary32 bits)")
    if model["name"].startswith("gfx"):
        header.append("nan: any")
    columns += [[f"{x:08x}" for x in c], [f"{x:08x}" for x in d]]
    lines = [f"# {line}" for line in header] + [" ".join(cells) for cells in zip(*columns)]
    path.write_text("\n".join(lines) + "\n")


def run(tool, *arguments, codes=(0,)):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode not in codes:
        sys.exit(f"fp8lab {' '.join(map(str, arguments))} failed ({done.returncode}): {done.stderr[:400]}")
    return json.loads(done.stdout)


def compare(tool, model, counterpart, kind, folder, mended):
    """Rows whose bits differ but for known differences."""
    rng = np.random.default_rng([SEED, *map(ord, f"{model['name']} {counterpart.scales} {kind}")])
    a, b, c, scales = draw(rng, kind, model, counterpart)
    d = results(model, counterpart, a, b, c, scales, mended)
    c = words_of(tensor_of("f16", c)) if model["output"] == "f16" else c
    path = folder / "rows.txt"
    write_vectors(path, model, counterpart, a, b, c, scales, d)
    report = run(tool, "replay", path, "--model", model["name"], "--json", codes=(0, 1))
    if report["cases"] != ROWS:
        sys.exit(f"{model['name']}: {ROWS} rows expected, {report['cases']} compared")
    for one in report["files"][0]["shown"][:3] if report["mismatches"] else []:
        print(f"  {kind}: row {one['line']}: mmasim {one['expected']}, fp8lab {one['got']}")
    kept = {"NaN": d == NAN, "infinite": d & 0x7FFFFFFF == 0x7F800000, "+0": d == 0, "-0": d == 0x80000000}
    return report["mismatches"], {name: int(of.sum()) for name, of in kept.items()}


def registered(tool):
    models = run(tool, "list", "models", "--json")["models"]
    found = []
    for model in models:
        if model["standing"] == "definition":
            continue
        a, _, b = model["input"].partition(" ")
        found.append({"name": model["name"], "a": a, "b": b or a, "output": model["output"],
                      "scales": scale_forms(model["block_scales"])})
    return found


def scale_forms(text):
    """Formats and blocks of "e8m0fnu per 16 or 32, or ue4m3 per 16"."""
    found = set()
    for clause in text.split(", or ") if text else ():
        names, blocks = clause.replace(",", "").split(" per ")
        names = names.replace("e8m0fnu", "ue8m0").split(" or ")
        found |= {(name, int(block)) for name in names for block in blocks.split(" or ")}
    return found


def compare_model(tool, model, folder, mended):
    """Failures, forms that were compared, and names of those that were not."""
    failures, forms = 0, counterparts(model)
    for form in forms:
        counts = dict.fromkeys(("NaN", "infinite", "+0", "-0"), 0)
        different = {}
        for kind in KINDS:
            different[kind], found = compare(tool, model, form, kind, folder, mended)
            counts = {name: counts[name] + n for name, n in found.items()}
        bad = sum(different.values())
        label = label_of(model, form.scales)
        kept = ", ".join(f"{n} {name}" for name, n in counts.items())
        by_kind = " (" + ", ".join(f"{n} {kind}" for kind, n in different.items()) + ")" if bad else ""
        print(f"{label}: {len(KINDS) * ROWS} rows ({kept}), {bad} differ{by_kind}", flush=True)
        failures += bad > 0
    return failures, len(forms), without_counterpart(model, forms) if forms else [model["name"]]


def main():
    tool, chosen = sys.argv[1], sys.argv[2:]
    models = [m for m in registered(tool) if not chosen or m["name"] in chosen]
    mended = dict.fromkeys(KNOWN_DIFFERENCES, 0)
    failures, forms, without = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            failed, compared, left_out = compare_model(tool, model, Path(folder), mended)
            failures, forms, without = failures + failed, forms + compared, without + left_out
    print(f"{len(models)} instructions in {forms} forms, {failures} with differences")
    for what in without:
        print(f"without counterpart: {what}: {reason_for(what) or 'NO REASON IS GIVEN'}")
        failures += reason_for(what) is None
    for name, rows in mended.items():
        print(f"known difference: {name}: {rows} rows")
    if not chosen:
        stale = [name for name in WITHOUT if name not in without]
        stale += [name for name, rows in mended.items() if rows == 0]
        for name in stale:
            print(f"no longer true: {name}")
        failures += len(stale)
    sys.exit(1 if failures or not models else 0)


if __name__ == "__main__":
    main()
