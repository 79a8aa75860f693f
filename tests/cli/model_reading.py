"""`dequantize` of folders in every published layout, made here: each value is code times scale; what cannot be whole is refused.

Usage: model_reading.py PATH_OF_FP8LAB

Skips with exit code 77 where NumPy is missing (./dev setup).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup)")
    sys.exit(77)

from model_folder import check, finish, read_safetensors, refused, run, write_safetensors
from published_folders import exponents, f32, floats, folders, fp4, fp8, group_scales, spread, tensor, write

def make(folder, tensors, config, more=None):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    base = {"model_type": "x", "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(base | config))
    for name, content in (more or {}).items():
        (folder / name).write_text(json.dumps(content))


def compressed(weights, **more):
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, **more}


FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}


def layouts():
    """(what, tensors, members of config.json, other files, {weight: values})"""
    codes, values = fp8(200, 300)
    blocks = floats(2, 3)
    by_block = values * spread(blocks, 128, 128, values.shape)
    block_config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    yield ("blocks", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale_inv": f32(blocks)},
           {"quantization_config": block_config}, {}, {"m.weight": by_block})
    yield ("a nested configuration", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale_inv": f32(blocks)},
           {"text_config": {"quantization_config": block_config}}, {}, {"m.weight": by_block})
    one = floats(1)
    yield ("AutoFP8", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(one), "m.input_scale": f32(one)},
           {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}, {}, {"m.weight": values * one})
    yield ("hf_quant_config.json alone", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(one[0])}, {},
           {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}},
           {"m.weight": values * one})
    rows = floats(200, 1)
    yield ("fbgemm", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(rows)},
           {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}}, {}, {"m.weight": values * rows})
    yield ("FP8_PB_WO", {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(blocks.reshape(2, 1, 3, 1))},
           {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}}, {}, {"m.weight": by_block})
    powers, factors = exponents(2, 3)
    packed, narrow = fp4(64, 128)
    group_powers, group_factors = exponents(64, 4)
    yield ("DeepSeek-V4", {"layers.0.attn.wq.weight": tensor("F8_E4M3", codes), "layers.0.attn.wq.scale": tensor("F8_E8M0", powers),
                           "layers.0.ffn.experts.0.w1.weight": tensor("I8", packed),
                           "layers.0.ffn.experts.0.w1.scale": tensor("F8_E8M0", group_powers)},
           {"expert_dtype": "fp4", "quantization_config": block_config | {"scale_fmt": "ue8m0"}}, {},
           {"layers.0.attn.wq.weight": values * spread(factors, 128, 128, values.shape),
            "layers.0.ffn.experts.0.w1.weight": narrow * np.repeat(group_factors, 32, 1)})
    wide_codes, wide_values = fp8(64, 128)
    yield ("mxfp8", {"m.weight": tensor("F8_E4M3", wide_codes), "m.weight_scale_inv": tensor("U8", group_powers)},
           {"quantization_config": {"quant_method": "mxfp8", "weight_block_size": [1, 32]}}, {},
           {"m.weight": wide_values * np.repeat(group_factors, 32, 1)})
    small, small_factors = group_scales(64, 8)
    upper = np.float32(0.0003)
    by_levels = narrow * np.repeat((small_factors * upper).astype(np.float32), 16, 1)
    layers = {"a.q": {"quant_algo": "FP8"}, "a.up": {"quant_algo": "NVFP4", "group_size": 16}}
    yield ("MIXED_PRECISION", {"a.q.weight": tensor("F8_E4M3", codes), "a.q.weight_scale": f32(one[0]), "a.up.weight": tensor("U8", packed),
                               "a.up.weight_scale": tensor("F8_E4M3", small), "a.up.weight_scale_2": f32(upper)},
           {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}, {},
           {"a.q.weight": values * one, "a.up.weight": by_levels})
    multiplier = np.float32(3000)
    groups = compressed(FP8) | {"ignore": ["re:.*head"]}
    groups["config_groups"]["group_1"] = {"targets": ["re:.*experts.*"], "weights": NVFP4}
    yield ("two groups", {"a.q.weight": tensor("F8_E4M3", codes), "a.q.weight_scale": f32(rows),
                          "a.experts.0.up.weight_packed": tensor("U8", packed), "a.experts.0.up.weight_scale": tensor("F8_E4M3", small),
                          "a.experts.0.up.weight_global_scale": f32([multiplier])}, {"quantization_config": groups}, {},
           {"a.q.weight": values * rows, "a.experts.0.up.weight": narrow * np.repeat((small_factors / multiplier).astype(np.float32), 16, 1)})
    codes3, values3 = fp8(3, 200, 300)
    for what, shape, tile in (("blocks", (3, 2, 3), (128, 128)), ("an expert", (3, 1, 1), (200, 300)), ("rows", (3, 200, 1), (1, 300)),
                              ("columns", (3, 1, 300), (200, 1))):
        scales = floats(*shape)
        yield (f"fused experts with scales of {what}", {"e.gate_up_proj": tensor("F8_E4M3", codes3), "e.gate_up_proj_scale_inv": f32(scales)},
               {"quantization_config": block_config}, {}, {"e.gate_up_proj": values3 * spread(scales, *tile, values3.shape)})
    packed3, narrow3 = fp4(3, 20, 96)
    small3, factors3 = group_scales(3, 20, 6)
    uppers = floats(3)
    fused = narrow3 * np.repeat((factors3 * uppers.reshape(3, 1, 1)).astype(np.float32), 16, 2)
    nvfp4_config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    yield ("fused experts in NVFP4", {"e.down_proj": tensor("U8", packed3), "e.down_proj_weight_scale": tensor("F8_E4M3", small3),
                                      "e.down_proj_weight_scale_2": f32(uppers), "e.down_proj_input_scale": f32(upper)},
           nvfp4_config, {}, {"e.down_proj": fused})
    fused = narrow3 * np.repeat((factors3 * upper).astype(np.float32), 16, 2)
    yield ("experts that lie as [experts, k, rows]",
           {"e.down_proj": tensor("U8", packed3.transpose(0, 2, 1)), "e.down_proj_weight_scale": tensor("F8_E4M3", small3.transpose(0, 2, 1)),
            "e.down_proj_weight_scale_2": f32(upper)}, nvfp4_config, {}, {"e.down_proj": fused.transpose(0, 2, 1)})
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    yield ("Quark in MXFP4", {"m.weight": tensor("U8", packed), "m.weight_scale": tensor("U8", group_powers)},
           {"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": weight}}}, {},
           {"m.weight": narrow * np.repeat(group_factors, 32, 1)})
    yield ("MXFP4 of compressed-tensors", {"m.weight_packed": tensor("U8", packed), "m.weight_scale": tensor("U8", group_powers)},
           {"quantization_config": compressed(MXFP4)}, {}, {"m.weight": narrow * np.repeat(group_factors, 32, 1)})


def test_layouts(folder):
    for what, tensors, config, more, expected in layouts():
        norm = tensor("BF16", np.full(16, 0x3F80, np.uint16))
        make(folder / "in", tensors | {"norm.weight": norm}, config, more)
        shutil.rmtree(folder / "out", ignore_errors=True)
        result = run("dequantize", folder / "in", "-o", folder / "out")
        check(f"{what}: exit 0", result.returncode == 0, result.stderr)
        if result.returncode:
            continue
        got, _ = read_safetensors(folder / "out/model.safetensors")
        check(f"{what}: names", set(got) == set(expected) | {"norm.weight"}, set(got))
        for name, values in expected.items():
            want = values.astype(np.float32)
            check(f"{what}: {name}", got[name] == tensor("F32", want), (got[name][:2], want.shape))
        said = (folder / "out/config.json").read_text()
        check(f"{what}: nothing says that it is quantized", "quantization_config" not in said and "expert_dtype" not in said, said)
        check(f"{what}: ModelOpt's file is gone", not (folder / "out/hf_quant_config.json").exists())
        clean = run("check", folder / "in")
        check(f"{what}: check reads it too", "shape:" not in clean.stdout and "missing scale" not in clean.stdout, clean.stdout)


def test_refusals(folder):
    codes, _ = fp8(128, 128)
    block = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    weight = {"a.weight": tensor("F8_E4M3", codes), "a.weight_scale_inv": f32([[0.01]])}
    lost = {"b.weight": tensor("F8_E4M3", codes)}
    for what, tensors, config, parts in (
            ("a lost scale", weight | lost, block, ("'b.weight'", "b.weight_scale_inv", "got none")),
            ("lost codes", weight | {"b.weight_scale_inv": f32([[1]])}, block, ("'b.weight_scale_inv'", "b.weight", "got none")),
            ("a lost scale of fused experts", weight | {"e.up_proj": tensor("F8_E4M3", codes.reshape(1, 128, 128))}, block,
             ("'e.up_proj'", "e.up_proj_scale_inv", "got none")),
            ("scales of a shape that does not fit", weight | lost | {"b.weight_scale_inv": f32([[1, 1]])}, block,
             ("'b.weight_scale_inv'", "[1, 1]", "got [1, 2]")),
            ("bytes that nothing says are exponents", weight | lost | {"b.weight_scale_inv": tensor("U8", np.uint8([[127]]))}, block,
             ("'b.weight_scale_inv'", "f32", "got u8")),
            ("a second level that FP8 does not have", {"a.weight": tensor("F8_E4M3", codes), "a.weight_scale": f32([0.01]),
                                                       "a.weight_scale_2": f32([2])}, block, ("'a.weight_scale_2'", "FP8", "got [1]")),
            ("a smoothing factor", weight | {"a.pre_quant_scale": f32([1] * 128)}, block, ("'a.pre_quant_scale'", "got f32 [128]")),
            ("no description", weight, {}, ("quantization_config", "hf_quant_config.json", "a.weight")),
            ("integers", weight, {"quantization_config": compressed({"num_bits": 4, "type": "int"})}, ("group_0", "int"))):
        make(folder / "in", tensors, config)
        shutil.rmtree(folder / "out", ignore_errors=True)
        refused(what, run("dequantize", folder / "in", "-o", folder / "out"), *parts)
        check(f"{what}: nothing was begun", not (folder / "out").exists())


def test_alone(folder):
    """A file of weights that no configuration describes: as a folder, and by its name."""
    codes, decoded = fp8(32, 64)
    shutil.rmtree(folder / "in")
    (folder / "in").mkdir()
    file = folder / "in/flux.safetensors"
    write_safetensors(file, {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(np.float32(2 ** -15))})
    for source in (folder / "in", file):
        shutil.rmtree(folder / "out", ignore_errors=True)
        command = ["dequantize", source, "-o", folder / "out"]
        refused("no type", run(*command), "--dtype: expected bf16, f16 or f32, since no configuration names one")
        refused("a layout", run(*command, "--dtype", "f32", "--layout", "hf-fp8"), "--layout: expected none", "got hf-fp8")
        check("nothing was begun", not (folder / "out").exists())
        check("exit 0", run(*command, "--dtype", "f32").returncode == 0)
        check("what is written", [path.name for path in (folder / "out").iterdir()] == [file.name])
        got, _ = read_safetensors(folder / "out" / file.name)
        check("code times scale", got == {"m.weight": f32(decoded * np.float32(2 ** -15))}, got.keys())
        clean = run("check", source)
        check("check finds nothing", clean.returncode == 0, clean.stdout)


def test_warnings(folder):
    codes, _ = fp8(64, 64)
    config = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "kv_cache_scheme": "static"}}
    spoiled = codes.copy()
    spoiled[3, 5] = 127
    tensors = {"a.weight": tensor("F8_E4M3", spoiled), "a.weight_scale": f32([0.01]), "a.input_scale": f32([1]), "k.k_scale": f32([1]),
               "b.weight": tensor("F8_E4M3", codes), "b.weight_scale": f32([np.nan]), "c.weight": tensor("F8_E4M3", codes),
               "c.weight_scale": f32([0])}
    make(folder / "in", tensors, config)
    shutil.rmtree(folder / "out", ignore_errors=True)
    result = run("dequantize", folder / "in", "-o", folder / "out", "--json")
    check("what is not finite does not stop the conversion", result.returncode == 0, result.stderr)
    for part in ("a.weight: 1 of 4096 values are NaN", "b.weight: 4096 of 4096 values are NaN (1 scale of NaN)", "c.weight: 1 scale of zero",
                 "1 scale of input dropped", "a.input_scale", "1 scale of KV cache dropped", "k.k_scale"):
        check(f"a warning says {part}", part in result.stderr, result.stderr)
    report = json.loads(result.stdout)
    check("and so does the report", {d["name"] for d in report["dropped"]} == {"a.input_scale", "k.k_scale"}, report["dropped"])
    check("with the counts", [n["nan"] for n in report["non_finite"]] == [1, 4096, 0], report["non_finite"])


def test_published(folder):
    """Folders of one system or model family each."""
    for one in folders():
        write(folder / "in", one)
        shutil.rmtree(folder / "out", ignore_errors=True)
        result = run("dequantize", folder / "in", "-o", folder / "out", *one.options)
        if one.refused:
            refused(one.what, result, *one.refused)
            check(f"{one.what}: nothing was begun", not (folder / "out").exists())
            found = run("check", folder / "in")
            check(f"{one.what}: check does not pass it", found.returncode != 0, found.stdout)
            continue
        check(f"{one.what}: exit 0", result.returncode == 0, result.stderr)
        if result.returncode:
            continue
        got = {}
        for file in (folder / "out").glob("*.safetensors"):
            got |= read_safetensors(file)[0]
        for name, values in one.values.items():
            check(f"{one.what}: {name}", got.get(name) == f32(values), (got.get(name, "none")[:2], values.shape))
        raw = {n: t for n, t in got.items() if t[0].startswith("F8") or t[0] in ("U8", "I8", "F4")}
        check(f"{one.what}: no codes are left", not raw, raw.keys())
        found = run("check", folder / "in")
        spoiled = [w for w in ("shape:", "missing scale:", "scale without codes:", "unknown tensor:", "type:", "names:", "config:") if w in found.stdout]
        check(f"{one.what}: check reads it too", not spoiled, found.stdout)


def test_mistral(folder):
    """A BF16 model in Mistral's own files, quantized and back: the head and the embedding stay, and every weight is code times scale."""
    rng = np.random.default_rng(7)
    matrix = {f"layers.0.{name}.weight": rng.normal(0, 0.02, shape).astype(ml_dtypes.bfloat16) for name, shape in
              (("attention.wq", (64, 32)), ("feed_forward.w2", (32, 96)))}
    rest = {name: rng.normal(0, 1, (48, 32)).astype(ml_dtypes.bfloat16) for name in ("tok_embeddings.weight", "output.weight")}
    shutil.rmtree(folder / "in")
    (folder / "in").mkdir()
    write_safetensors(folder / "in/consolidated.safetensors", {n: tensor("BF16", x.view(np.uint16)) for n, x in (matrix | rest).items()})
    (folder / "in/params.json").write_text(json.dumps({"dim": 32, "n_layers": 1}))
    quantize = ["quantize", folder / "in", "--rule", "linear", "-o", folder / "q"]
    refused("another layout", run(*quantize, "--recipe", "vllm-per-tensor", "--layout", "autofp8"), "--layout", "params.json (mistral)", "got autofp8")
    inputs = {name.removesuffix(".weight"): tensor("BF16", rng.normal(0, 1, (8, x.shape[1])).astype(ml_dtypes.bfloat16).view(np.uint16))
              for name, x in matrix.items()}
    write_safetensors(folder / "inputs.safetensors", inputs)
    for recipe, scheme, more in (("vllm-per-tensor", "NO_SCALES", []), ("modelopt-bf16", "TENSOR", ["--calibration", folder / "inputs.safetensors"])):
        shutil.rmtree(folder / "q", ignore_errors=True)
        done = run(*quantize, "--recipe", recipe, "--layout", "mistral", *more)
        check(f"{recipe}: exit 0", done.returncode == 0, done.stderr)
        params = json.loads((folder / "q/params.json").read_text())
        check(f"{recipe}: what it says", params == {"dim": 32, "n_layers": 1, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": scheme}}, params)
        stored, _ = read_safetensors(folder / "q/consolidated.safetensors")
        sides = [side for name in matrix for side in ("qscale_weight", "qscale_act")[:1 + (scheme == "TENSOR")]
                 for side in [name.replace("weight", side)]]
        check(f"{recipe}: names", sorted(stored) == sorted([*matrix, *rest, *sides]), sorted(stored))
        shutil.rmtree(folder / "back", ignore_errors=True)
        check(f"{recipe}: back", run("dequantize", folder / "q", "-o", folder / "back", "--dtype", "f32").returncode == 0)
        back, _ = read_safetensors(folder / "back/consolidated.safetensors")
        for name, x in matrix.items():
            scale = np.frombuffer(stored[name.replace("weight", "qscale_weight")][2], np.float32)
            codes = np.frombuffer(stored[name][2], ml_dtypes.float8_e4m3fn).astype(np.float32)
            check(f"{recipe}: the scale of {name}", stored[name.replace("weight", "qscale_weight")][:2] == ("F32", []), stored.keys())
            check(f"{recipe}: {name}", back[name] == tensor("F32", (codes * scale).reshape(x.shape)), back[name][:2])
            error = np.abs(codes * scale - x.astype(np.float32).ravel()).max()
            check(f"{recipe}: {name} is near", error < 0.04 * np.abs(x.astype(np.float32)).max(), error)
        clean = run("check", folder / "q")
        check(f"{recipe}: check", clean.returncode == 0, clean.stdout)


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        test_published(folder)
        test_layouts(folder)
        test_refusals(folder)
        test_alone(folder)
        test_warnings(folder)
        test_mistral(folder)
    finish()


main()
