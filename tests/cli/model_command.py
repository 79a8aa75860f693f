"""`quantize`, `dequantize` and `layers` of a model's folder: names, bytes, scales, what stays, what is refused.

Usage: model_command.py PATH_OF_FP8LAB

Skips with exit code 77 where NumPy is missing (./dev setup).
"""

import json
import os
import resource
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

LAYOUTS = [  # layout, recipe, element type, codes, scale, shape of a [384, 256] weight's scale, its type, input scale
    ("compressed-tensors", "llm-compressor-bf16", "BF16", "weight", "weight_scale", [384, 1], "BF16", None),
    ("compressed-tensors", "deepseek-v3", "BF16", "weight", "weight_scale", [3, 2], "F32", None),
    ("compressed-tensors", "inference-static", "BF16", "weight", "weight_scale", [384, 1], "F32", ("input_scale", [1])),
    ("modelopt", "modelopt", "F32", "weight", "weight_scale", [], "F32", ("input_scale", [])),
    ("modelopt", "vllm-per-token", "BF16", "weight", "weight_scale", [384], "F32", None),
    ("hf-fp8", "deepseek-v3", "BF16", "weight", "weight_scale_inv", [3, 2], "F32", None),
    ("hf-fp8", "modelopt", "F32", "weight", "weight_scale_inv", [], "F32", ("activation_scale", [])),
    ("deepseek", "deepgemm-ue8m0", "BF16", "weight", "weight_scale_inv", [3, 2], "F32", None),
    ("torchao", "torchao-inference-bf16", "BF16", "_weight_qdata", "_weight_scale", [384, 1], "F32", None),
]


def check_codes(model, out, layout, recipe, codes, scale, folder):
    """Codes and scales are those that `quantize` of the tensors alone gives."""
    chosen = {name: tensor for name, tensor in model.items() if is_converted(name)}
    write_safetensors(folder / "chosen.safetensors", chosen)
    works("quantize", folder / "chosen.safetensors", "--recipe", recipe, "--role", "weight", "-o",
          folder / "alone.safetensors")
    alone, _ = read_safetensors(folder / "alone.safetensors")
    for name in chosen:
        module = name[:-7]
        check(f"{layout}: codes of {name}", out[f"{module}.{codes}"][2] == alone[name][2])
        got = widen(out[f"{module}.{scale}"]).ravel()
        want = widen(alone[name + ".scale_inv"]).ravel()
        check(f"{layout}: scales of {name}", np.array_equal(got, want), (got[:4], want[:4]))


def check_input_scales(out, batches, recipe, input_scale):
    name, shape = input_scale
    for key in [k for k in batches if k.endswith(".input.0")]:
        module = key[: -len(".input.0")]
        amax = max(np.abs(widen(batches[f"{module}.input.{i}"])).max() for i in range(2))
        dtype, got_shape, data = out[f"{module}.{name}"]
        got = np.frombuffer(data, np.float32)[0]
        want = np.float32(amax) / np.float32(448)
        near = abs(got - want) <= np.spacing(want)  # inference-static divides twice
        check(f"{recipe}: input scale of {module}", got == want if recipe == "modelopt" else near, (got, want))
        check(f"{recipe}: its shape", (dtype, got_shape) == ("F32", shape), (dtype, got_shape))


def check_dequantized(model, out, folder, target, codes, scale, dtype):
    """code * scale in binary32, rounded once more to BF16 or FP16."""
    back_folder = folder / "back"
    works("dequantize", target, "-o", back_folder, "--dtype", dtype.lower())
    back = read_model(back_folder)
    check("dequantize gives the names of the source", set(back) == set(model), set(back) ^ set(model))
    values = e4m3_values()
    for name, tensor in model.items():
        if not is_converted(name):
            check(f"dequantize keeps {name}", back[name] == tuple(tensor[:1]) + (list(tensor[1]), tensor[2]), name)
            continue
        rows, k = tensor[1]
        s = widen(out[f"{name[:-7]}.{scale}"])
        if s.size == 1:
            full = np.broadcast_to(s.reshape(1, 1), (rows, k))
        elif s.size == rows:
            full = np.broadcast_to(s.reshape(rows, 1), (rows, k))
        else:
            full = np.repeat(np.repeat(s, 128, 0)[:rows], 128, 1)[:, :k]
        product = values[np.frombuffer(out[f"{name[:-7]}.{codes}"][2], np.uint8)].reshape(rows, k) * full
        bits = product.astype(np.float32).view(np.uint32).astype(np.uint64)
        want = {"BF16": lambda: ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16),
                "F16": lambda: product.astype(np.float32).astype(np.float16),
                "F32": lambda: bits.astype(np.uint32)}[dtype]()
        check(f"dequantized {name}", back[name][0] == dtype and back[name][2] == want.tobytes(), back[name][:2])
    config = json.loads((back_folder / "config.json").read_text())
    check("a dequantized config says nothing of FP8", "quantization_config" not in config, config)
    check("nor does ModelOpt's file", not (back_folder / "hf_quant_config.json").exists())
    shutil.rmtree(back_folder)


def test_layouts(folder):
    sources = {}
    for dtype in ("BF16", "F32"):
        sources[dtype] = (folder / f"model_{dtype}", make_model(folder / f"model_{dtype}", dtype))
    for layout, recipe, dtype, codes, scale, shape, scale_type, input_scale in LAYOUTS:
        path, model = sources[dtype]
        target = folder / "out"
        batches = samples(folder / "samples.safetensors", model)
        calibration = ["--calibration", folder / "samples.safetensors"] if input_scale else []
        if recipe == "inference-static":
            calibration += []
        works("quantize", path, "-o", target, "--recipe", recipe, "--layout", layout, "--rule", "linear", *calibration)
        out = read_model(target)
        want = {n: t for n, t in model.items() if not is_converted(n)}
        for name, tensor in want.items():
            check(f"{layout}: {name} is as it was", out.get(name) == (tensor[0], list(tensor[1]), tensor[2]), name)
        names = set(want)
        for name in filter(is_converted, model):
            names |= {f"{name[:-7]}.{part}" for part in (codes, scale, *(input_scale or ())[:1])}
        check(f"{layout}: names", set(out) == names, set(out) ^ names)
        dtype_got, shape_got, _ = out[f"model.layers.1.mlp.up_proj.{scale}"]
        check(f"{layout} {recipe}: scale", (dtype_got, shape_got) == (scale_type, shape), (dtype_got, shape_got))
        check_codes(model, out, layout, recipe, codes, scale, folder)
        if input_scale:
            check_input_scales(out, batches, recipe, input_scale)
        config = json.loads((target / "config.json").read_text())
        kept = next(config["quantization_config"].get(k) for k in ("ignore", "modules_to_not_convert")
                    if config["quantization_config"].get(k) is not None)
        check(f"{layout}: modules that stay are named", {"lm_head", "old"} <= set(kept), kept)
        check(f"{layout}: config keeps its settings", config["hidden_size"] == 256, config)
        _, metadata = read_safetensors(target / "model-00001-of-00002.safetensors")
        check(f"{layout}: metadata stays", metadata.get("format") == "pt", metadata)
        files = {p.name for p in target.iterdir()}
        expected = {"config.json", "tokenizer.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors"} | ({"hf_quant_config.json"} if layout == "modelopt" else set())
        check(f"{layout}: files", files == expected, files)
        for wanted in (dtype, "F16"):
            check_dequantized(model, out, folder, target, codes, scale, wanted)
        shutil.rmtree(target)
    return sources["BF16"]


def test_layers(path):
    for source in (path, path / "model.safetensors.index.json"):
        listed = json.loads(works("layers", source, "--rule", "linear", "--json").stdout)["weights"]
        fp8 = {w["name"] for w in listed if w["converts"]}
        check(f"layers {source.name}", len(listed) == 18 and fp8 == {w["name"] for w in listed if is_converted(w["name"])}, fp8)
        reasons = {w["name"]: w["reason"] for w in listed}
        check("FP8 stays", "already" in reasons["old.weight"], reasons)


def test_report(path, folder):
    command = ["quantize", path, "-o", folder / "told", "--recipe", "deepseek-v3", "--layout", "hf-fp8", "--rule", "linear"]
    report = json.loads(works(*command, "--json").stdout)
    check("every tensor is named", len(report["converted"]) == 6 and len(report["kept"]) == 12, report)
    check("weights in other forms are not copied, and said so",
          report["files"]["not_copied"] == ["onnx", "pytorch_model.bin"], report["files"])
    refused("a folder that is not empty", run(*command), "told", "new or empty")
    refused("a model that is quantized already",
            run("quantize", folder / "told", "-o", folder / "twice", *command[4:]), "config.json", "dequantize")
    refused("a model that is not", run("dequantize", path, "-o", folder / "twice"), "not quantized")
    refused("another layout than config.json's",
            run("dequantize", folder / "told", "-o", folder / "twice", "--layout", "torchao"), "torchao")
    check("nothing was begun", not (folder / "twice").exists())
    spoiled = folder / "spoiled"
    shutil.copytree(path, spoiled)
    shard = spoiled / "model-00002-of-00002.safetensors"
    tensors, metadata = read_safetensors(shard)
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = (*tensors[name][:2], b"\xc0\x7f" + tensors[name][2][2:])
    write_safetensors(shard, tensors, metadata)
    result = works("quantize", spoiled, "-o", folder / "nan", *command[4:])
    check("NaN is told", f"NaN codes in {name}" in result.stderr, result.stderr)


def test_resume(path, folder):
    command = lambda target, recipe="llm-compressor-bf16": [
        "quantize", path, "-o", target, "--recipe", recipe, "--layout", "compressed-tensors", "--rule", "linear"]
    whole, cut = folder / "whole", folder / "cut"
    works(*command(whole))
    sizes = [(whole / f"model-0000{i}-of-00002.safetensors").stat().st_size for i in (1, 2)]
    check("the second shard is the larger one", sizes[1] > sizes[0], sizes)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[0], sizes[0]))
    killed = run(*command(cut), preexec_fn=limit)  # the system ends a process that writes more
    check("the first run ends inside the second shard", killed.returncode != 0, killed)
    left = sorted(p.name for p in cut.iterdir() if not p.name.endswith(".partial"))
    check("it leaves the first", left == [".fp8lab-rewrite.json", "model-00001-of-00002.safetensors"], left)
    stamp = (cut / left[1]).stat().st_mtime_ns
    refused("another recipe must not go on there", run(*command(cut, "inference-dynamic")), "recipe", "llm-compressor-bf16")
    result = works(*command(cut))
    check("the same run goes on", "1 shards of an earlier run" in result.stdout, result.stdout)
    check("the first shard was not written again", (cut / left[1]).stat().st_mtime_ns == stamp)
    same = {p.name: p.read_bytes() for p in whole.iterdir()} == {p.name: p.read_bytes() for p in cut.iterdir()}
    check("and ends with the same bytes", same, [sorted(p.name for p in f.iterdir()) for f in (whole, cut)])


def test_hostile(path, folder):
    def spoil(name, change):
        copy = folder / name
        shutil.copytree(path, copy)
        change(copy)
        target = folder / f"{name}_out"
        result = run("quantize", copy, "-o", target, "--recipe", "deepseek-v3", "--layout", "hf-fp8", "--rule", "linear")
        check(f"{name}: nothing was begun", not target.exists())
        return result

    def edit_index(change):
        def edit(copy):
            file = copy / "model.safetensors.index.json"
            index = json.loads(file.read_text())
            change(index["weight_map"])
            file.write_text(json.dumps(index))
        return edit

    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    other = {"stranger.weight": bf16(np.random.default_rng(1), 4, 4)}
    duplicate = {"model.norm.weight": bf16(np.random.default_rng(1), 256)}

    def add_to_first(more):
        def add(copy):
            tensors, metadata = read_safetensors(copy / first)
            write_safetensors(copy / first, tensors | more, metadata)
        return add

    refused("a shard that is missing", spoil("missing", lambda c: (c / second).unlink()), second)
    refused("an index that names a shard that is not there",
            spoil("named", edit_index(lambda m: m.update({"model.norm.weight": "model-00003-of-00002.safetensors"}))),
            "model-00003-of-00002.safetensors")
    for name, file in (("up", "../outside.safetensors"), ("root", "/etc/passwd"), ("deep", "a/b.safetensors"), ("dot", "..")):
        refused(f"a shard outside the folder ({name})",
                spoil(name, edit_index(lambda m, file=file: m.update({"mask": file}))), "mask", "same folder", file)
    refused("an index of numbers", spoil("numbers", edit_index(lambda m: m.update({"mask": 7}))), "mask", "7")
    refused("a tensor in another shard than the index says",
            spoil("swapped", edit_index(lambda m: m.update({"mask": second}))), "'mask'", second)
    refused("a tensor that no shard holds", spoil("ghost", edit_index(lambda m: m.update({"ghost": first}))), "'ghost'")
    refused("a shard of another model", spoil("foreign", add_to_first(other)), first, "stranger.weight")
    refused("a tensor in two shards", spoil("duplicate", add_to_first(duplicate)), "model.norm.weight", first)
    refused("a shard that the index forgot",
            spoil("stray", lambda c: shutil.copy(c / first, c / "model-00003-of-00003.safetensors")), "model-00003-of-00003")
    refused("an index beside a model.safetensors",
            spoil("both", lambda c: write_safetensors(c / "model.safetensors", other)), "model.safetensors")
    refused("a truncated shard", spoil("truncated", lambda c: os.truncate(c / second, 5000)), second)
    refused("a truncated header", spoil("header", lambda c: os.truncate(c / second, 20)), second)
    refused("an index that is no JSON", spoil("text", lambda c: (c / "model.safetensors.index.json").write_text("{")), "index.json")
    twice = '{"weight_map": {"mask": "%s", "mask": "%s"}}' % (first, first)
    refused("a tensor twice in the index",
            spoil("twice_index", lambda c: (c / "model.safetensors.index.json").write_text(twice)), "'mask'", "twice")
    refused("no config.json", spoil("bare", lambda c: (c / "config.json").unlink()), "config.json")
    refused("no JSON in config.json", spoil("config", lambda c: (c / "config.json").write_text("nonsense")), "config.json")
    clash = {"model.layers.0.mlp.up_proj.weight_scale_inv": bf16(np.random.default_rng(1), 4, 4)}

    def add_clash(copy):
        add_to_first(clash)(copy)
        edit_index(lambda m: m.update({next(iter(clash)): first}))(copy)
    refused("a name that the scale would take", spoil("clash", add_clash), "up_proj.weight_scale_inv")


def test_requests(path, folder):
    base = ["quantize", path, "-o", folder / "no"]
    good = {"--recipe": "deepseek-v3", "--layout": "hf-fp8", "--rule": "linear"}
    flat = lambda d: [part for item in d.items() for part in item]
    refused("an unknown layout", run(*base, *flat(good | {"--layout": "gguf"})), "layout", "'gguf'", "hf-fp8")
    refused("an unknown rule", run(*base, *flat(good | {"--rule": "none"})), "rule", "'none'")
    refused("a recipe that the layout cannot say", run(*base, *flat(good | {"--recipe": "vllm-per-token"})), "hf-fp8", "row")
    refused("no layout", run(*base, "--recipe", "deepseek-v3", "--rule", "linear"), "--layout")
    refused("no rule", run(*base, "--recipe", "deepseek-v3", "--layout", "hf-fp8"), "--rule")
    refused("a recipe of FP32 systems", run(*base, *flat(good | {"--recipe": "llm-compressor", "--layout": "compressed-tensors"})),
            "llm-compressor-bf16")
    refused("an option of files", run(*base, *flat(good), "--tensor", "a"), "--tensor")
    refused("samples for a recipe without", run(*base, *flat(good), "--calibration", "x"), "--calibration")
    refused("a folder that cannot be", run("quantize", path, "-o", path / "config.json", *flat(good)), "config.json")
    check("nothing was begun", not (folder / "no").exists())


def test_calibration(path, model, folder):
    file = folder / "bad.safetensors"
    good = samples(file, model)
    command = ["quantize", path, "-o", folder / "static", "--recipe", "inference-static", "--layout",
               "compressed-tensors", "--rule", "linear", "--calibration", file]
    key = "model.layers.0.mlp.down_proj.input.0"
    spoiled = {
        "a module without samples": ({k: v for k, v in good.items() if not k.startswith(key[:-2])}, "down_proj"),
        "samples of other columns": (good | {key: ("F32", (1, 3), bytes(12))}, "[..., 384]"),
        "samples of integers": (good | {key: ("I64", (1, 384), bytes(8 * 384))}, "i64"),
        "NaN in samples": (good | {key: ("F32", (1, 384), b"\0\0\xc0\x7f" * 384)}, "NaN"),
        "samples of no module": (good | {"nobody.input": good[key]}, "nobody.input"),
    }
    for end in ("3x", "3 ", "x", "", "0x3", "3.", "+3", "99999999999999999999"):  # a batch is a whole number
        other = key[:-1] + end
        spoiled[f"samples of batch {end!r}"] = (good | {other: good[key]}, f"'{other}'")
    for what, (tensors, part) in spoiled.items():
        write_safetensors(file, tensors)
        refused(what, run(*command), part)
    refused("no samples", run(*command[:-2]), "--calibration")
    check("nothing was begun", not (folder / "static").exists())


def test_file(model, folder):
    """A single file: what stays is told and copied."""
    write_safetensors(folder / "all.safetensors", model, {"format": "pt"})
    result = works("quantize", folder / "all.safetensors", "--recipe", "inference-dynamic", "--role", "weight", "-o",
                   folder / "one.safetensors")
    out, metadata = read_safetensors(folder / "one.safetensors")
    check("metadata stays", metadata.get("format") == "pt", metadata)
    for name in ("model.norm.weight", "position_ids", "mask", "old.weight", "old.scale", "vision.patch.weight"):
        check(f"{name} stays and is told", f"{name} [" in result.stdout and " stays: " in result.stdout and
              out[name] == (model[name][0], list(model[name][1]), model[name][2]), result.stdout)
    check("matrices are codes", out["lm_head.weight"][0] == "F8_E4M3", out["lm_head.weight"][:2])
    works("quantize", folder / "all.safetensors", "--recipe", "inference-dynamic", "--rule", "linear", "-o",
          folder / "one.safetensors")
    out, _ = read_safetensors(folder / "one.safetensors")
    check("a rule decides", out["lm_head.weight"][0] == "BF16", out["lm_head.weight"][:2])
    refused("a layout for a file", run("quantize", folder / "all.safetensors", "--recipe", "deepseek-v3", "--layout",
                                       "hf-fp8"), "--layout")


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    source, tensors = test_layouts(root)
    test_layers(source)
    test_report(source, root)
    test_resume(source, root)
    test_hostile(source, root)
    test_requests(source, root)
    test_calibration(source, tensors, root)
    test_file(tensors, root)

finish()
