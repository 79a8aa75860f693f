"""Edges of `quantize` and `dequantize` of a model's folder: large weights, special values, what the index keeps, odd shapes.

Usage: model_edges.py PATH_OF_FP8LAB

Skips with exit code 77 where NumPy is missing (./dev setup).
"""

import json
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup)")
    sys.exit(77)

from model_folder import bf16, check, e4m3_values, finish, read_safetensors, refused, run, widen, works, write_safetensors


def write_model(folder, tensors, metadata=None, config=None):
    """One shard with an index."""
    folder.mkdir()
    file = "model-00001-of-00001.safetensors"
    write_safetensors(folder / file, tensors, {"format": "pt"})
    index = {"metadata": {"total_size": 1, **(metadata or {})}, "weight_map": {name: file for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "dtype": "float32", **(config or {})}))
    return folder


def floats(array):
    array = np.ascontiguousarray(array, np.float32)
    return "F32", array.shape, array.tobytes()


def converted(folder):
    return read_safetensors(folder / "model-00001-of-00001.safetensors")[0]


def test_large(folder):
    """Weights are read in parts of 2^22 elements: the scales of later parts are those of their rows."""
    rng = np.random.default_rng(1)
    rows, k = 2048 + 384, 2048
    weight = rng.standard_normal((rows, k), np.float32) * np.exp2(rng.integers(-8, 8, (rows, 1))).astype(np.float32)
    source = write_model(folder / "large", {"layers.0.mlp.up_proj.weight": floats(weight)})
    for layout, recipe, scale, by in (("compressed-tensors", "inference-dynamic", "weight_scale", 1),
                                      ("deepseek", "deepgemm", "weight_scale_inv", 128)):
        out, back = folder / f"{layout}", folder / f"{layout}-back"
        works("quantize", source, "-o", out, "--recipe", recipe, "--layout", layout, "--rule", "linear")
        works("dequantize", out, "-o", back, "--dtype", "f32")
        stored = converted(out)
        codes = np.frombuffer(stored["layers.0.mlp.up_proj.weight"][2], np.uint8).reshape(rows, k)
        scales = widen(stored[f"layers.0.mlp.up_proj.{scale}"])
        full = np.repeat(scales, by, 0)[:rows] if by == 1 else np.repeat(np.repeat(scales, by, 0)[:rows], by, 1)[:, :k]
        want = e4m3_values()[codes] * full
        got = widen(converted(back)["layers.0.mlp.up_proj.weight"])
        wrong = np.flatnonzero((got != want).any(axis=1))
        check(f"{layout}: rows {wrong[:3]} of a large weight", wrong.size == 0, (got[wrong[:1]], want[wrong[:1]]))
        near = np.abs(got - weight).max(axis=1) <= np.abs(weight).max(axis=1) * (2**-3 if by == 1 else 1.0)
        check(f"{layout}: near the weight", near.all(), np.flatnonzero(~near)[:3])


def test_special(folder):
    """NaN in one weight and infinity in a sibling: both are told, and the other weights keep their codes."""
    rng = np.random.default_rng(2)
    draw = lambda: rng.standard_normal((256, 256)).astype(np.float32)
    names = [f"layers.0.self_attn.{part}_proj.weight" for part in "qkvo"]
    clean = {name: draw() for name in names}
    broken = {name: weight.copy() for name, weight in clean.items()}
    broken[names[0]][3, 5:9] = np.nan
    source = write_model(folder / "nan", {name: floats(weight) for name, weight in broken.items()})
    done = works("quantize", source, "-o", folder / "nan-out", "--recipe", "inference-dynamic", "--layout", "compressed-tensors",
                 "--rule", "linear", "--json")
    report = json.loads(done.stdout)
    codes = np.frombuffer(converted(folder / "nan-out")[names[0]][2], np.uint8)
    count = int((codes & 127 == 127).sum())
    check("NaN weights in JSON", report["nan_weights"] == [f"{names[0]} ({count} codes)"] and count >= 4, report["nan_weights"])
    check("and in a warning", f"NaN codes in {names[0]} ({count} codes)" in done.stderr, done.stderr)
    check("what converted", [w["name"] for w in report["converted"]] == names, report["converted"])

    # q, k and v share NVFP4's tensor scale, but not an infinite one.
    broken = {name: weight.copy() for name, weight in clean.items()}
    broken[names[1]][0, 0] = np.inf
    options = ["--recipe", "nvfp4", "--layout", "compressed-tensors", "--rule", "linear"]
    shared, alone = folder / "shared", folder / "alone"
    works("quantize", write_model(folder / "inf", {n: floats(w) for n, w in broken.items()}), "-o", shared, *options)
    works("quantize", write_model(folder / "one", {names[0]: floats(clean[names[0]])}), "-o", alone, *options)
    one, many = converted(alone), converted(shared)
    for name, tensor in one.items():
        check(f"beside an infinite sibling {name} is as alone", many[name] == tensor, (many[name][:2], tensor[:2]))
    works("quantize", write_model(folder / "clean", {n: floats(w) for n, w in clean.items()}), "-o", folder / "joined", *options)
    joined = converted(folder / "joined")
    global_scale = lambda name: widen(joined[name.replace(".weight", ".weight_global_scale")]).ravel()[0]
    amax = max(np.abs(clean[name]).max() for name in names[:3])
    scales = {float(global_scale(name)) for name in names[:3]}
    check("siblings share the scale of the largest", len(scales) == 1 and
          abs(scales.pop() * amax / (448 * 6) - 1) < 1e-6 and global_scale(names[3]) != global_scale(names[0]), (scales, amax))


def test_index(folder):
    """What the index says of the model stays; what it says of its bytes is new."""
    rng = np.random.default_rng(3)
    tensors = {"layers.0.mlp.up_proj.weight": bf16(rng, 256, 256), "norm.weight": bf16(rng, 256)}
    metadata = {"origin": "here", "number": 7, "total_parameters": 65792}
    source = write_model(folder / "index", tensors, metadata)
    for command, path in ((["quantize", source, "--recipe", "deepseek-v3", "--layout", "hf-fp8", "--rule", "linear"], folder / "index-8"),
                          (["dequantize", folder / "index-8"], folder / "index-16")):
        works(*command, "-o", path)
        index = json.loads((path / "model.safetensors.index.json").read_text())
        size = sum(len(data) for _, _, data in converted(path).values())
        check(f"{command[0]}: the index", index["metadata"] == {"origin": "here", "number": 7, "total_size": size}, index)


def test_heads(folder):
    """A reader is told of an lm_head that stays, and of one that no file has, but not of one that converts."""
    rng = np.random.default_rng(5)
    block = {name: bf16(rng, 128, 128) for name in ("layers.0.mlp.up_proj.weight", "embed_tokens.weight")}
    layouts = (("compressed-tensors", "llm-compressor-bf16", "ignore"), ("hf-fp8", "deepseek-v3", "modules_to_not_convert"))
    tied, alone = ["embed_tokens", "lm_head"], ["embed_tokens"]
    for head, rule, kept in ((None, "all", tied), (None, "linear", tied), ("lm_head", "all", alone), ("lm_head", "linear", tied),
                             ("text.lm_head", "all", alone), ("text.lm_head", "linear", ["embed_tokens", "text.lm_head"])):
        source = folder / f"heads-{head}-{rule}"
        write_model(source, block | ({f"{head}.weight": bf16(rng, 128, 128)} if head else {}))
        for layout, recipe, key in layouts:
            out = folder / f"{source.name}-{layout}"
            works("quantize", source, "-o", out, "--recipe", recipe, "--layout", layout, "--rule", rule)
            got = json.loads((out / "config.json").read_text())["quantization_config"][key]
            check(f"{layout}, rule {rule}, head {head}: modules that stay", got == kept, got)
    samples = {f"{module}.input": floats(rng.standard_normal((2, 128))) for module in ("layers.0.mlp.up_proj", "lm_head")}
    write_safetensors(folder / "heads.safetensors", samples)
    done = works("quantize", folder / "heads-None-linear", "-o", folder / "heads-samples", "--recipe", "inference-static",
                 "--layout", "compressed-tensors", "--rule", "linear", "--calibration", folder / "heads.safetensors")
    check("samples of a head that no file has are told", "not used (lm_head)" in done.stderr, done.stderr)


def test_model_types(folder):
    """Heads that other models tie, T5's embeddings, and experts in torchao's layout, which its loaders take in floats."""
    rng = np.random.default_rng(6)
    for kind, head in (("bert", "cls.predictions.decoder"), ("roberta", "lm_head.decoder"), ("modernbert", "decoder"), ("whisper", "proj_out"),
                       ("llama", "lm_head")):
        source = write_model(folder / f"type-{kind}", {"layers.0.fc1.weight": bf16(rng, 128, 128)}, config={"model_type": kind})
        out = folder / f"type-{kind}-out"
        works("quantize", source, "-o", out, "--recipe", "llm-compressor-bf16", "--layout", "compressed-tensors", "--rule", "linear")
        got = json.loads((out / "config.json").read_text())["quantization_config"]["ignore"]
        check(f"{kind}: its tied head stays", got == [head], got)
    tables = ("shared.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    tensors = {name: bf16(rng, 32, 128) for name in (*tables, "encoder.block.0.layer.0.SelfAttention.q.weight", "mlp.shared_expert.up_proj.weight")}
    source = write_model(folder / "t5", tensors, config={"model_type": "t5"})
    works("quantize", source, "-o", folder / "t5-out", "--recipe", "llm-compressor-bf16", "--layout", "compressed-tensors", "--rule", "linear")
    stays = {name for name, tensor in converted(folder / "t5-out").items() if tensor[0] == "BF16" and name in tensors}
    check("T5: what is looked up stays", stays == set(tables), stays)
    tensors = {"layers.0.mlp.experts.0.up_proj.weight": bf16(rng, 128, 128), "layers.0.self_attn.q_proj.weight": bf16(rng, 128, 128)}
    source = write_model(folder / "moe", tensors)
    works("quantize", source, "-o", folder / "moe-out", "--recipe", "torchao-inference-bf16", "--layout", "torchao", "--rule", "linear")
    expert = "layers.0.mlp.experts.0.up_proj.weight"
    check("torchao: experts stay", converted(folder / "moe-out").get(expert, (0, 0, 0))[2] == tensors[expert][2])
    listed = json.loads((folder / "moe-out/config.json").read_text())["quantization_config"]["modules_to_not_convert"]
    check("torchao: and are listed", "layers.0.mlp.experts.0.up_proj" in listed, listed)


def test_fused(folder):
    """Experts [experts, n, k] in blocks: each has the codes and scales that it has alone."""
    rng = np.random.default_rng(7)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    experts = rng.standard_normal((3, 256, 384)).astype(np.float32) * np.float32([1, 8, 0.1])[:, None, None]
    source = write_model(folder / "fused", {name: floats(experts), "model.layers.0.mlp.gate.weight": floats(experts[0, :3])})
    alone = write_model(folder / "apart", {f"e{e}.up_proj.weight": floats(expert) for e, expert in enumerate(experts)})
    for layout, recipe in (("hf-fp8", "deepseek-v3"), ("deepseek", "deepgemm-ue8m0")):
        out, apart, back = (folder / f"{layout}-{part}" for part in ("fused", "apart", "again"))
        options = ["--recipe", recipe, "--layout", layout, "--rule", "linear"]
        works("quantize", source, "-o", out, *options)
        works("quantize", alone, "-o", apart, *options)
        got, want = converted(out), converted(apart)
        check(f"{layout}: codes of fused experts", got[name][:2] == ("F8_E4M3", [3, 256, 384]) and
              got[name][2] == b"".join(want[f"e{e}.up_proj.weight"][2] for e in range(3)), got[name][:2])
        check(f"{layout}: their scales", got[f"{name}_scale_inv"][:2] == ("F32", [3, 2, 3]) and
              got[f"{name}_scale_inv"][2] == b"".join(want[f"e{e}.up_proj.weight_scale_inv"][2] for e in range(3)), got.keys())
        works("dequantize", out, "-o", back)
        single = folder / f"{layout}-single"
        works("dequantize", apart, "-o", single)
        check(f"{layout}: and back", converted(back)[name][2] == b"".join(converted(single)[f"e{e}.up_proj.weight"][2] for e in range(3)))
        result = run("check", out, "--original", source)
        check(f"{layout}: check finds nothing", result.returncode == 0, result.stdout)


def test_kv_cache(folder):
    """Scales of K and V: amax / 448 of all samples, for a tensor and for each head, in the two layouts that have them."""
    rng = np.random.default_rng(8)
    tensors = {f"model.layers.{i}.self_attn.{part}_proj.weight": bf16(rng, 128, 128) for i in range(2) for part in "qkvo"}
    source = write_model(folder / "kv", tensors, config={"num_key_value_heads": 4, "dtype": "bfloat16"})
    outputs = {f"model.layers.{i}.self_attn.{part}_proj.output.{batch}": rng.standard_normal((2, 5, 128)).astype(np.float32) * (1 + i)
               for i in range(2) for part in "kv" for batch in range(2)}
    inputs = {f"{name[:-7]}.input": floats(rng.standard_normal((4, 128))) for name in tensors}
    write_safetensors(folder / "kv.safetensors", {name: floats(x) for name, x in outputs.items()} | inputs)
    write_safetensors(folder / "kv-alone.safetensors", {name: floats(x) for name, x in outputs.items()})

    def amax(layer, part, axes):
        return np.maximum(*(np.abs(outputs[f"model.layers.{layer}.self_attn.{part}_proj.output.{batch}"].reshape(10, 4, 32)).max(axes)
                            for batch in range(2))).astype(np.float32) / np.float32(448)

    dynamic = ["--recipe", "llm-compressor-bf16", "--layout", "compressed-tensors", "--rule", "linear"]
    static = ["--recipe", "modelopt-bf16", "--layout", "modelopt", "--rule", "linear"]
    for what, options, kind, samples in (("rows", dynamic, "tensor", "kv-alone"), ("heads", dynamic, "head", "kv-alone"), ("modelopt", static, "tensor", "kv")):
        out = folder / f"kv-{what}"
        works("quantize", source, "-o", out, *options, "--kv-cache", kind, "--calibration", folder / f"{samples}.safetensors")
        got = converted(out)
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        for layer in range(2):
            for part in "kv":
                name = f"model.layers.{layer}.self_attn.{part}_scale" if what != "modelopt" else f"model.layers.{layer}.self_attn.{part}_proj.{part}_scale"
                want = amax(layer, part, (0, 2) if kind == "head" else None).reshape({"rows": (1,), "heads": (4, 1, 1), "modelopt": ()}[what])
                check(f"{what}: {name}", got.get(name) == ("F32", list(want.shape), want.tobytes()), got.get(name))
        scheme = config["kv_cache_scheme"]
        check(f"{what}: config.json has the scheme", scheme["dynamic"] is False and scheme["num_bits"] == 8, scheme)
        if what == "modelopt":
            other = json.loads((out / "hf_quant_config.json").read_text())["quantization"]
            check("modelopt: its own file too", other["kv_cache_quant_algo"] == "FP8", other)
        else:
            check(f"{what}: its strategy", scheme["strategy"] == {"tensor": "tensor", "head": "attn_head"}[kind], scheme)
        result = run("check", out)
        check(f"{what}: check finds nothing", result.returncode == 0, result.stdout)
        result = works("dequantize", out, "-o", folder / f"kv-{what}-back")
        check(f"{what}: scales that are dropped are told", "4 scales of KV cache dropped" in result.stderr, result.stderr)
    new = folder / "kv-new"
    ask = lambda *more: run("quantize", source, "-o", new, *dynamic, *more)
    refused("no samples of the cache", ask("--kv-cache", "tensor"), "calibration", "a sample of model.layers.0.self_attn.k_proj.output")
    refused("a layout without a cache", run("quantize", source, "-o", new, "--recipe", "deepseek-v3", "--layout", "hf-fp8", "--rule", "linear", "--kv-cache",
                                            "tensor", "--calibration", folder / "kv-alone.safetensors"), "kv-cache", "hf-fp8")
    refused("heads in modelopt", run("quantize", source, "-o", new, *static, "--kv-cache", "head", "--calibration", folder / "kv.safetensors"),
            "kv-cache", "tensor in layout modelopt", "got head")
    refused("another name", ask("--kv-cache", "row"), "kv-cache", "row")
    broken = {name: floats(np.where(x > 2, np.inf, x)) for name, x in outputs.items()}
    write_safetensors(folder / "kv-broken.safetensors", broken)
    refused("an infinite sample", ask("--kv-cache", "tensor", "--calibration", folder / "kv-broken.safetensors"), "output", "finite values", "inf")
    write_safetensors(folder / "kv-odd.safetensors", {name: floats(x[..., :126]) for name, x in outputs.items()})
    refused("columns that heads do not divide", ask("--kv-cache", "head", "--calibration", folder / "kv-odd.safetensors"), "4 * head_dim", "[2, 5, 126]")


def test_refused(folder):
    """Shapes with and without whole groups, and model types whose matrices are turned."""
    rng = np.random.default_rng(4)
    for i, (recipe, layout, shape, fits) in enumerate((
        ("nvfp4", "compressed-tensors", (24, 32), True), ("nvfp4", "compressed-tensors", (32, 24), False),
        ("nvfp4", "compressed-tensors", (32, 40), False), ("ocp-mxfp8", "compressed-tensors", (5, 64), True),
        ("ocp-mxfp8", "compressed-tensors", (64, 48), False), ("ocp-mxfp8", "compressed-tensors", (64, 16), False),
        ("deepseek-v3", "compressed-tensors", (200, 256), True), ("deepseek-v3", "compressed-tensors", (256, 200), False),
    )):
        source = write_model(folder / f"shape{i}", {"layers.0.mlp.up_proj.weight": bf16(rng, *shape)})
        result = run("quantize", source, "-o", folder / f"shape{i}-out", "--recipe", recipe, "--layout", layout, "--rule", "linear")
        what = f"{recipe} of {list(shape)}"
        if fits:
            check(what, result.returncode == 0, result.stderr)
        else:
            refused(what, result, "expected weights that it takes, got none among 1 tensors")
            check(f"{what}: nothing is written", not (folder / f"shape{i}-out").exists())
    for kind, fits in (("gpt2", False), ("openai-gpt", False), ("imagegpt", False), ("decision_transformer", False),
                       ("gpt2x", True), ("gpt", True), ("llama", True)):
        source = write_model(folder / kind, {"layers.0.mlp.up_proj.weight": bf16(rng, 128, 128)}, config={"model_type": kind})
        result = run("quantize", source, "-o", folder / f"{kind}-out", "--recipe", "deepseek-v3", "--layout", "hf-fp8", "--rule", "linear")
        check(f"model_type {kind}", (result.returncode == 0) == fits, result.stderr)
        if not fits:
            refused(kind, result, "model_type", f"'{kind}'")


with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    test_large(root)
    test_special(root)
    test_index(root)
    test_heads(root)
    test_model_types(root)
    test_fused(root)
    test_kv_cache(root)
    test_refused(root)
finish()
