"""`quantize` and `dequantize` of a model's folder in MXFP8, MXFP6, MXFP4 and NVFP4, against NumPy written from the rules.

Usage: narrow_model_command.py PATH_OF_FP8LAB

Codes, scales, their packing and order, names and types in each layout, input scales, the way back, what is refused.
Skips with exit code 77 where NumPy is missing (./dev setup).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup)")
    sys.exit(77)

from model_folder import (bf16, check, e4m3_values, finish, is_converted, make_model, read_model, read_safetensors, refused,
                          run, samples, widen, works, write_safetensors)

F = np.float32


def values_of(exponents, mantissas, bias):
    """Values of the codes of a format without NaN or Inf, sign bit clear."""
    code = np.arange(1 << (exponents + mantissas))
    exponent, mantissa = code >> mantissas, code & ((1 << mantissas) - 1)
    normal = (2**mantissas + mantissa) * 2.0 ** (exponent - bias - mantissas)
    return np.where(exponent == 0, mantissa * 2.0 ** (1 - bias - mantissas), normal)


E2M1, E2M3 = values_of(2, 1, 1), values_of(2, 3, 1)
E4M3 = e4m3_values()[:127].astype(np.float64)  # finite, not negative


def nearest(x, values):
    """Codes of |x|, to nearest, ties to the even code, at most the largest."""
    x = np.minimum(np.abs(x), values[-1])
    above = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    low, high = x - values[above - 1], values[above] - x
    return np.where((low < high) | ((low == high) & ((above - 1) % 2 == 0)), above - 1, above)


def signed(x, codes, bits):
    return (codes | (np.signbit(x).astype(np.int64) << (bits - 1))).astype(np.uint8)


def mx(weight, values, bits, biggest):
    """OCP: floor of amax's exponent less the format's."""
    blocks = weight.reshape(weight.shape[0], -1, 32).astype(np.float64)
    amax = np.abs(blocks).max(-1)
    exponent = np.floor(np.log2(np.where(amax == 0, 2.0**-140, amax))) - biggest
    e8m0 = np.clip(exponent + 127, 0, 254)
    scaled = blocks / 2.0 ** (e8m0 - 127)[..., None]
    return signed(scaled, nearest(scaled, values), bits).reshape(weight.shape), e8m0.astype(np.uint8)


def to_bf16(x):
    """FP32 numbers rounded to BF16's, ties to even."""
    bits = np.asarray(x, F).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F)


def upper_scale(amax):
    return to_bf16(F(2688) * to_bf16(F(1) / F(amax)))[()]


def nvfp4(weight, amax):
    """compressed-tensors, of BF16 weights: S = 2688 * (1 / amax) and a / 6 in BF16, scales of E4M3, x / (s / S), -0
    becomes +0. Returns S too."""
    blocks = weight.reshape(weight.shape[0], -1, 16)
    scale = upper_scale(amax)
    want = to_bf16(np.abs(blocks).max(-1) / F(6)) * scale
    codes = nearest(want, E4M3)
    codes[codes == 0] = 0x20
    with np.errstate(all="ignore"):
        scaled = blocks / (E4M3[codes].astype(F) / scale)[..., None] + F(0)
    return signed(scaled, nearest(scaled.astype(np.float64), E2M1), 4).reshape(weight.shape), codes.astype(np.uint8), scale


def pack(codes, bits):
    """Code i has bits [i * bits, (i + 1) * bits), the lowest of a byte first."""
    stream = (codes.reshape(-1, 1) >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(stream.reshape(-1), bitorder="little").tobytes()


def blocked(scales):
    """torchao's `to_blocked`, after its text."""
    rows, columns = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    padded = np.zeros((rows * 128, columns * 4), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    blocks = padded.reshape(rows, 128, columns, 4).transpose(0, 2, 1, 3).reshape(-1, 4, 32, 4)
    return blocks.transpose(0, 2, 1, 3).reshape(rows * 32, columns * 16)


def u8(array, shape=None):
    return "U8", list(shape or array.shape), array.tobytes()


def f32(value, shape):
    return "F32", shape, np.asarray(value, F).tobytes()


def joined_amax(model, module):
    """Of the weights that are one matrix when served."""
    parent, _, own = module.rpartition(".")
    family = next((f for f in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")) if own in f), (own,))
    return max(np.abs(widen(model[f"{parent}.{m}.weight"])).max() for m in family if f"{parent}.{m}.weight" in model)


def mx_outputs(layout, module, weight, elements):
    values, bits, biggest = {"e4m3": (E4M3, 8, 8), "e2m3": (E2M3, 6, 2), "e2m1": (E2M1, 4, 2)}[elements]
    codes, e8m0 = mx(weight, values, bits, biggest)
    rows, k = weight.shape
    data = u8(codes) if bits == 8 else ("U8", [rows, k * bits // 8], pack(codes, bits))
    if bits == 8:
        data = ("F8_E4M3", [rows, k], codes.tobytes())
    if layout == "torchao":
        return {f"{module}._weight_qdata": data, f"{module}._weight_scale": ("F8_E8M0", *u8(blocked(e8m0))[1:])}
    name = "weight" if bits == 8 or layout == "modelopt" else "weight_packed"
    return {f"{module}.{name}": data, f"{module}.weight_scale": u8(e8m0)}


def nvfp4_outputs(layout, module, weight, amax):
    codes, scales, scale = nvfp4(weight, amax)
    rows, k = weight.shape
    packed = ("U8", [rows, k // 2], pack(codes, 4))
    tiles = ("F8_E4M3", *u8(scales)[1:])
    if layout == "compressed-tensors":
        return {f"{module}.weight_packed": packed, f"{module}.weight_scale": tiles,
                f"{module}.weight_global_scale": f32(scale, [1])}
    if layout == "torchao":
        return {f"{module}._weight_qdata": packed, f"{module}._weight_scale": ("F8_E4M3", *u8(blocked(scales))[1:]),
                f"{module}._weight_per_tensor_scale": f32(F(1) / scale, [])}
    return {f"{module}.weight": packed, f"{module}.weight_scale": tiles,
            f"{module}.weight_scale_2": f32(F(1) / scale, [])}


CASES = [  # layout, recipe, elements, calibrated
    ("compressed-tensors", "ocp-mxfp8", "e4m3", False),
    ("compressed-tensors", "mxfp6-e2m3", "e2m3", False),
    ("compressed-tensors", "mxfp4", "e2m1", False),
    ("compressed-tensors", "compressed-tensors-nvfp4-bf16", "nvfp4", False),
    ("compressed-tensors", "compressed-tensors-nvfp4-bf16", "nvfp4", True),
    ("modelopt", "ocp-mxfp8", "e4m3", False),
    ("modelopt", "mxfp4", "e2m1", False),
    ("modelopt", "compressed-tensors-nvfp4-bf16", "nvfp4", True),
    ("torchao", "ocp-mxfp8", "e4m3", False),
    ("torchao", "mxfp4", "e2m1", False),
    ("torchao", "compressed-tensors-nvfp4-bf16", "nvfp4", False),
]


def expected_of(layout, model, elements, batches):
    out = {}
    for name, tensor in model.items():
        if not is_converted(name):
            out[name] = (tensor[0], list(tensor[1]), tensor[2])
            continue
        module, weight = name[:-7], widen(tensor)
        if elements != "nvfp4":
            out |= mx_outputs(layout, module, weight, elements)
            continue
        amax = np.abs(weight).max() if layout == "torchao" else joined_amax(model, module)
        out |= nvfp4_outputs(layout, module, weight, amax)
        if batches is None:
            continue
        scale = upper_scale(max(np.abs(widen(batches[f"{module}.input.{i}"])).max() for i in range(2)))
        if layout == "compressed-tensors":
            out[f"{module}.input_global_scale"] = f32(scale, [1])
        else:
            out[f"{module}.input_scale"] = f32(F(1) / scale, [])
    return out


def check_back(label, model, out, target, folder, elements, layout):
    """code * scale in binary32, one more rounding: here to FP32, which keeps it."""
    works("dequantize", target, "-o", folder / "back", "--dtype", "f32")
    back = read_model(folder / "back")
    check(f"{label}: dequantize gives the names of the source", set(back) == set(model), set(back) ^ set(model))
    config = json.loads((folder / "back/config.json").read_text())
    check(f"{label}: no word of quantization is left", "quantization_config" not in config, config)
    for name in filter(is_converted, model):
        module, weight = name[:-7], widen(model[name])
        if elements == "nvfp4":
            codes, scales, scale = nvfp4(weight, np.abs(weight).max() if layout == "torchao" else joined_amax(model, module))
            stored = F(1) / scale
            tile = E4M3[scales].astype(F)
            tile = tile / scale if layout == "compressed-tensors" else tile * stored
            table, size = E2M1, 16
        else:
            table, bits, biggest = {"e4m3": (E4M3, 8, 8), "e2m3": (E2M3, 6, 2), "e2m1": (E2M1, 4, 2)}[elements]
            codes, e8m0 = mx(weight, table, bits, biggest)
            tile, size = (2.0 ** (e8m0.astype(np.float64) - 127)).astype(F), 32
        half = {4: 8, 6: 32, 8: 128}[{"e4m3": 8, "e2m3": 6, "e2m1": 4, "nvfp4": 4}[elements]]
        value = np.where(codes & half, -table[codes & (half - 1)], table[codes & (half - 1)]).astype(F)
        want = value * np.repeat(tile, size, 1)
        check(f"{label}: dequantized {name}", back[name][0] == "F32" and np.array_equal(widen(back[name]), want),
              (widen(back[name]).ravel()[:4], want.ravel()[:4]))
    shutil.rmtree(folder / "back")


def test_layouts(folder):
    source = folder / "model"
    model = make_model(source)
    batches = samples(folder / "samples.safetensors", model, dtype="BF16")
    for layout, recipe, elements, calibrated in CASES:
        label, target = f"{layout} {recipe}{' calibrated' if calibrated else ''}", folder / "out"
        more = ["--calibration", folder / "samples.safetensors"] if calibrated else []
        told = works("quantize", source, "-o", target, "--recipe", recipe, "--layout", layout, "--rule", "linear", *more)
        inputs_stay = elements == "e2m3" or (elements == "nvfp4" and not calibrated and layout != "torchao")
        check(f"{label}: says whether inputs stay", ("inputs are not cast" in told.stdout) == inputs_stay, told.stdout)
        out = read_model(target)
        want = expected_of(layout, model, elements, batches if calibrated else None)
        check(f"{label}: names", set(out) == set(want), set(out) ^ set(want))
        for name in sorted(set(out) & set(want)):
            check(f"{label}: type and shape of {name}", out[name][:2] == want[name][:2], (out[name][:2], want[name][:2]))
            check(f"{label}: bytes of {name}", out[name][2] == want[name][2], (out[name][2][:16], want[name][2][:16]))
        check_back(label, model, out, target, folder, elements, layout)
        shutil.rmtree(target)
    return source


def test_trace(source, folder):
    """The largest magnitudes of the samples give the input scales that the samples give."""
    batches, _ = read_safetensors(folder / "samples.safetensors")
    lines = [f"{step},{name.rsplit('.', 1)[0]},{np.abs(widen(t)).max()!r}" for step, (name, t) in enumerate(batches.items())
             if name != "lm_head"]
    lines = [line.replace("np.float32(", "").replace(")", "") for line in lines]
    trace = folder / "trace.csv"

    def ask(target, file, recipe, layout):
        return run("quantize", source, "-o", folder / target, "--recipe", recipe, "--layout", layout, "--rule", "linear",
                   "--calibration", file)

    for recipe, layout in (("inference-static", "compressed-tensors"), ("nvfp4", "modelopt"), ("nvfp4", "compressed-tensors")):
        trace.write_text("step,module,amax\n" + "\n".join(lines) + "\n")
        for target, file in (("by_trace", trace), ("by_samples", folder / "samples.safetensors")):
            result = ask(target, file, recipe, layout)
            check(f"{recipe} {layout} {target}: exit 0", result.returncode == 0, result.stderr)
        shards = [{p.name: p.read_bytes() for p in (folder / t).glob("*.safetensors")} for t in ("by_trace", "by_samples")]
        check(f"{recipe} {layout}: a trace gives what its samples give", shards[0] == shards[1])
        for target in ("by_trace", "by_samples"):
            shutil.rmtree(folder / target)
    for what, text, part in (("a module of no model", "0,model.layers.9.mlp.up_proj,1", "layers.9"),
                             ("NaN", "0,model.layers.0.mlp.up_proj,nan", "finite"),
                             ("a negative amax", "0,model.layers.0.mlp.up_proj,-1", "finite"),
                             ("no number", "a,b,1\nmodel.layers.0.mlp.up_proj,x", ":"),
                             ("no module", "3.5\n", "MODULE,AMAX"),
                             ("a heading alone", "module,amax\n", "none"),
                             ("some modules", lines[0], "sample")):
        trace.write_text(text + "\n")
        refused(f"a trace with {what}", ask("no_trace", trace, "nvfp4", "modelopt"), part)
    check("nothing was begun by a spoiled trace", not (folder / "no_trace").exists())


def test_gpt_oss(folder):
    rng = np.random.default_rng(3)
    source, target = folder / "experts", folder / "experts_out"
    source.mkdir()
    name = "model.layers.0.mlp.experts.gate_up_proj"
    model = {name: bf16(rng, 3, 64, 40), name + "_bias": bf16(rng, 3, 40),
             "model.layers.0.mlp.experts.down_proj": bf16(rng, 3, 40, 64),
             "model.layers.0.mlp.router.weight": bf16(rng, 3, 64)}
    write_safetensors(source / "model.safetensors", model)
    (source / "config.json").write_text(json.dumps({"model_type": "gpt_oss", "dtype": "bfloat16"}))
    works("quantize", source, "-o", target, "--recipe", "mxfp4", "--layout", "gpt-oss", "--rule", "linear")
    out, _ = read_safetensors(target / "model.safetensors")
    codes, e8m0 = zip(*(mx(expert.T, E2M1, 4, 2) for expert in widen(model[name])))
    want = {name + "_blocks": ("U8", [3, 40, 2, 16], pack(np.stack(codes), 4)), name + "_scales": u8(np.stack(e8m0))}
    want |= {n: (t[0], list(t[1]), t[2]) for n, t in model.items() if n != name}  # 40 is no multiple of 32
    check("gpt-oss: tensors", out == want, {n: (out.get(n, ())[:2], want.get(n, ())[:2]) for n in set(out) | set(want)
                                            if out.get(n) != want.get(n)})
    works("dequantize", target, "-o", folder / "experts_back", "--dtype", "f32")
    back, _ = read_safetensors(folder / "experts_back/model.safetensors")
    value = np.stack([np.where(c & 8, -E2M1[c & 7], E2M1[c & 7]).astype(F) * np.repeat(2.0 ** (s.astype(F) - 127), 32, 1)
                      for c, s in zip(codes, e8m0)])
    check("gpt-oss: the way back", np.array_equal(widen(back[name]), value.transpose(0, 2, 1)), back[name][:2])


def test_refusals(source, folder):
    def ask(recipe, layout, *more):
        return run("quantize", source, "-o", folder / "no", "--recipe", recipe, "--layout", layout, "--rule", "linear", *more)

    refused("MXFP6 in torchao", ask("mxfp6-e2m3", "torchao"), "torchao", "e2m1 with E8M0")
    refused("E3M2 in compressed-tensors", ask("mxfp6-e3m2", "compressed-tensors"), "e3m2")
    refused("16 x 16 tiles", ask("te-nvfp4", "compressed-tensors"), "16 x 16")
    refused("MXFP6 in modelopt", ask("mxfp6-e2m3", "modelopt"), "modelopt", "e2m3 in tiles of 1 x 32")
    refused("NVFP4 in hf-fp8", ask("nvfp4", "hf-fp8"), "hf-fp8", "FP32 or BF16 scales")
    refused("E4M3 rows in gpt-oss", ask("vllm-per-token", "gpt-oss"), "gpt-oss", "E8M0")
    refused("no experts", ask("mxfp4", "gpt-oss"), "rule linear")
    refused("samples for MXFP4", ask("mxfp4", "compressed-tensors", "--calibration", folder / "samples.safetensors"),
            "--calibration", "mxfp4")
    refused("samples for torchao's NVFP4", ask("nvfp4", "torchao", "--calibration", folder / "samples.safetensors"),
            "--calibration")
    check("nothing was begun", not (folder / "no").exists())


def test_hostile(source, folder):
    """A quantized folder that is spoiled: dequantize names the tensor."""
    good = folder / "good"
    works("quantize", source, "-o", good, "--recipe", "nvfp4", "--layout", "compressed-tensors", "--rule", "linear")
    module = "model.layers.1.mlp.up_proj"
    shard = "model-00002-of-00002.safetensors"

    def spoil(what, name, tensor, *parts):
        bad = folder / "bad"
        shutil.copytree(good, bad)
        tensors, metadata = read_safetensors(bad / shard)
        tensors[f"{module}.{name}"] = tensor
        write_safetensors(bad / shard, tensors, metadata)
        refused(what, run("dequantize", bad, "-o", folder / "floats"), module, *parts)
        shutil.rmtree(bad)

    spoil("scales of other tiles", "weight_scale", ("F8_E4M3", [384, 8], bytes(384 * 8)), "weight_scale", "[384, 16]")
    spoil("scales of another type", "weight_scale", ("U8", [384, 16], bytes(384 * 16)), "weight_scale", "e4m3fn")
    spoil("two upper scales", "weight_global_scale", ("F32", [2], bytes(8)), "weight_global_scale", "one f32")
    spoil("an upper scale of another type", "weight_global_scale", ("BF16", [1], bytes(2)), "weight_global_scale", "f32")
    spoil("half a group", "weight_packed", ("U8", [384, 132], bytes(384 * 132)), "weight_packed", "16")
    for what, change, part in (("another number", {"num_bits": 5}, "num_bits"), ("another group", {"group_size": 64}, "64")):
        bad = folder / "bad"
        shutil.copytree(good, bad)
        config = json.loads((bad / "config.json").read_text())
        config["quantization_config"]["config_groups"]["group_0"]["weights"].update(change)
        (bad / "config.json").write_text(json.dumps(config))
        refused(f"{what} in config.json", run("dequantize", bad, "-o", folder / "floats"), "group_0", part)
        shutil.rmtree(bad)
    check("no floats were begun", not (folder / "floats").exists())


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    path = test_layouts(root)
    test_trace(path, root)
    test_gpt_oss(root)
    test_refusals(path, root)
    test_hostile(path, root)

finish()
