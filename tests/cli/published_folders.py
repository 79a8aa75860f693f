"""Folders as systems of 2025 and 2026 publish them, made of random codes: what `dequantize` must give, or why it must refuse.

A folder has shards ({file: {name: (dtype, shape, bytes)}}), members of config.json and other files. `values` are those of its
weights (code times scale); `refused` are parts of the message where it must not be converted.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model_folder import e4m3_values, write_safetensors

RNG = np.random.default_rng(3)
E4M3 = e4m3_values()
E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
ONE_FILE = "model.safetensors"


@dataclass
class Folder:
    what: str
    shards: dict
    config: dict
    values: dict = field(default_factory=dict)
    more: dict = field(default_factory=dict)
    refused: tuple = ()
    lists: dict = None  # the index, where it does not say where tensors are
    described: str = "config.json"  # empty: by no file
    options: tuple = ()  # of `dequantize`


def fp8(*shape):
    codes = RNG.integers(0, 255, shape, np.uint8)
    codes[codes == 127] = 1
    return codes, E4M3[codes]


def fp4(*shape):
    """Packed codes, the first in the low bits, and their values."""
    codes = RNG.integers(0, 16, shape, np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, E2M1[codes]


def floats(*shape):
    return RNG.uniform(0.001, 0.01, shape).astype(np.float32)


def exponents(*shape):
    codes = RNG.integers(110, 118, shape, np.uint8)
    return codes, np.exp2(codes.astype(np.float32) - 127)


def group_scales(*shape):
    codes = RNG.integers(40, 126, shape, np.uint8)
    return codes, E4M3[codes]


def spread(scales, rows, columns, shape):
    """Scales [..., a, b] over tiles of rows x columns of [..., n, k]."""
    wide = np.repeat(np.repeat(scales, rows, axis=-2), columns, axis=-1)
    return wide[..., : shape[-2], : shape[-1]]


def tensor(dtype, values):
    return (dtype, list(values.shape), np.ascontiguousarray(values).tobytes())


def f32(values):
    return tensor("F32", np.asarray(values, np.float32))


def bf16_pair(values):
    """As stored in BF16, and what that is."""
    words = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return tensor("BF16", words), (words.astype(np.uint32) << 16).view(np.float32)


def plain(*shape):
    """A weight that stays."""
    return bf16_pair(RNG.normal(0, 0.02, shape).astype(np.float32))[0]


def by_level(values, factors, upper):
    return values * np.repeat((factors * np.float32(upper)).astype(np.float32), 16, -1)


def write(folder, one):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, tensors in one.shards.items():
        write_safetensors(folder / file, tensors)
    if len(one.shards) > 1 or one.lists is not None:
        places = one.lists or {name: file for file, tensors in one.shards.items() for name in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    if one.described:
        (folder / one.described).write_text(json.dumps({"model_type": "x", "dtype": "float32"} | one.config))
    for name, content in one.more.items():
        (folder / name).write_text(json.dumps(content))


BLOCK = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}


def qwen3_moe():
    """BF16 scales, scales in another shard than their codes, routers that stay."""
    first, second, values = {}, {}, {}
    for expert in range(2):
        for leaf, shape in (("gate_proj", (192, 256)), ("up_proj", (192, 256)), ("down_proj", (256, 192))):
            name = f"model.layers.0.mlp.experts.{expert}.{leaf}"
            codes, decoded = fp8(*shape)
            stored, scales = bf16_pair(floats(2, 2))
            first[f"{name}.weight"] = tensor("F8_E4M3", codes)
            (first if leaf == "up_proj" else second)[f"{name}.weight_scale_inv"] = stored
            values[f"{name}.weight"] = decoded * spread(scales, 128, 128, shape)
    second |= {"model.layers.0.mlp.gate.weight": plain(2, 256), "model.embed_tokens.weight": plain(64, 256),
               "model.norm.weight": plain(256)}
    config = BLOCK | {"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"], "an_unknown_key": {"a": [1]}}
    yield Folder("Qwen3-MoE, experts apart, BF16 scales", {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second},
                 {"model_type": "qwen3_moe", "num_experts": 2, "tie_word_embeddings": True, "quantization_config": config}, values)


def qwen3_vl_moe():
    """Fused experts [experts, k, n] in a multimodal model."""
    tensors, values = {"model.visual.blocks.0.attn.qkv.weight": plain(96, 32)}, {}
    for leaf, shape in (("gate_up_proj", (3, 256, 384)), ("down_proj", (3, 192, 256))):
        name = f"model.language_model.layers.0.mlp.experts.{leaf}"
        codes, decoded = fp8(*shape)
        stored, scales = bf16_pair(floats(3, 2, -(-shape[2] // 128)))
        tensors |= {name: tensor("F8_E4M3", codes), f"{name}_scale_inv": stored}
        values[name] = decoded * spread(scales, 128, 128, shape)
    yield Folder("Qwen3-VL-MoE, fused experts", {ONE_FILE: tensors},
                 {"dtype": None, "text_config": {"dtype": "float32"}, "quantization_config": BLOCK | {"modules_to_not_convert": ["visual"]}}, values)


def gpt_oss():
    tensors = {"model.layers.0.self_attn.q_proj.weight": plain(64, 64), "model.layers.0.mlp.router.weight": plain(2, 64)}
    values = {}
    for leaf, rows, k in (("gate_up_proj", 48, 64), ("down_proj", 64, 96)):
        packed, decoded = fp4(2, rows, k)
        codes, factors = exponents(2, rows, k // 32)
        name = f"model.layers.0.mlp.experts.{leaf}"
        tensors |= {f"{name}_blocks": tensor("U8", packed.reshape(2, rows, k // 32, 16)), f"{name}_scales": tensor("U8", codes),
                    f"{name}_bias": plain(2, rows)}
        values[name] = (decoded * np.repeat(factors, 32, -1)).transpose(0, 2, 1)
    keeps = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    yield Folder("gpt-oss", {ONE_FILE: tensors}, {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": keeps}}, values)


def llama4():
    """Meta's own folder: scales of columns, [experts, 1, n]."""
    tensors, values = {"language_model.model.layers.0.feed_forward.router.weight": plain(3, 128)}, {}
    for leaf, shape in (("gate_up_proj", (3, 128, 320)), ("down_proj", (3, 160, 128))):
        name = f"language_model.model.layers.0.feed_forward.experts.{leaf}"
        codes, decoded = fp8(*shape)
        scales = floats(3, 1, shape[2])
        tensors |= {name: tensor("F8_E4M3", codes), f"{name}_scale": f32(scales)}
        values[name] = decoded * scales
    yield Folder("Llama-4 in fbgemm's layout", {ONE_FILE: tensors},
                 {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": None}}, values)


def kimi():
    """NVFP4 of a nested language part; INT4 is no format of this tool."""
    packed, decoded = fp4(64, 128)
    small, factors = group_scales(64, 8)
    attention, narrow = fp8(64, 96)
    name = "language_model.model.layers.1.mlp.experts.0.down_proj"
    q = "language_model.model.layers.1.self_attn.q_a_proj"
    tensors = {f"{name}.weight": tensor("U8", packed), f"{name}.weight_scale": tensor("F8_E4M3", small),
               f"{name}.weight_scale_2": f32(np.float32(2e-5)), f"{name}.input_scale": f32(np.float32(0.01)),
               f"{q}.weight": plain(32, 64), "language_model.model.layers.1.self_attn.k_proj.k_scale": f32(np.float32(1)),
               "language_model.model.layers.1.self_attn.v_proj.v_scale": f32(np.float32(1)), "vision_tower.patch_embed.proj.weight": plain(8, 3, 2, 2)}
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
                "ignore": ["language_model.model.layers.1.self_attn*", "vision_tower*", "language_model.lm_head"],
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}}
    hf = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
          "exclude_modules": modelopt["ignore"]}}
    yield Folder("Kimi in NVFP4", {ONE_FILE: tensors}, {"dtype": None, "text_config": {"torch_dtype": "float32", "quantization_config": modelopt}},
                 {f"{name}.weight": by_level(decoded, factors, 2e-5)}, {"hf_quant_config.json": hf})
    int4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": int4, "input_activations": None}}
    tensors = {f"{name}.weight_packed": tensor("I32", np.zeros((64, 16), np.int32)), f"{name}.weight_scale": plain(64, 4),
               f"{name}.weight_shape": tensor("I32", np.int32([64, 128]))}
    yield Folder("Kimi in INT4", {ONE_FILE: tensors}, {"text_config": {"quantization_config": {"quant_method": "compressed-tensors",
                 "format": "pack-quantized", "config_groups": groups, "ignore": ["re:.*self_attn.*"]}}},
                 refused=(f"{name}.weight_packed", "8-bit floats", '"num_bits":4', '"type":"int"'))
    both = compressed({"group_0": {"targets": ["Linear"], "weights": FP8_CHANNEL}, "group_1": {"targets": ["re:.*experts.*"], "weights": int4}})
    yield Folder("INT4 experts beside FP8", {ONE_FILE: tensors | {f"{q}.weight": tensor("F8_E4M3", attention), f"{q}.weight_scale": f32(floats(64, 1))}},
                 both, refused=(f"{name}.weight_packed", "8-bit floats", '"type":"int"'))
    yield Folder("W4AFP8", {ONE_FILE: {f"{name}.weight": tensor("I8", packed), f"{name}.weight_scale_inv": plain(64, 1)}},
                 {"quantization_config": {"quant_method": "w4afp8", "activation_scheme": "static"}}, refused=(f"{name}.weight", "fp8", "'w4afp8'"))


def minimax():
    """Names of w1, w2 and w3; `gate` in the list is no gate_proj."""
    tensors, values = {"model.layers.0.block_sparse_moe.gate.weight": plain(2, 256), "model.layers.0.block_sparse_moe.e_score_correction_bias": plain(2)}, {}
    for leaf, shape in (("w1", (160, 256)), ("w2", (256, 160)), ("w3", (160, 256))):
        name = f"model.layers.0.block_sparse_moe.experts.0.{leaf}"
        codes, decoded = fp8(*shape)
        scales = floats(2, 2)
        tensors |= {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale_inv": f32(scales)}
        values[f"{name}.weight"] = decoded * spread(scales, 128, 128, shape)
    config = BLOCK | {"modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]}
    yield Folder("MiniMax", {ONE_FILE: tensors}, {"quantization_config": config}, values)


FP8_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}


def compressed(groups, **more):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision", "quantization_status": "compressed",
                                    "config_groups": groups} | more}


def glm():
    """Scales of rows in BF16, a multi-token layer behind the last one, scales of heads."""
    codes, decoded = fp8(96, 64)
    stored, scales = bf16_pair(floats(96, 1))
    name = "model.layers.0.self_attn.k_proj"
    tensors = {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale": stored, f"{name}.bias": plain(96),
               "model.layers.1.eh_proj.weight": plain(64, 128), "model.layers.1.shared_head.head.weight": plain(48, 64),
               "model.layers.0.self_attn.k_scale": f32(floats(4)), "model.layers.0.self_attn.v_scale": f32(floats(4, 1, 1))}
    config = compressed({"group_0": {"targets": ["Linear"], "weights": FP8_CHANNEL, "output_activations": None},
                         "group_1": {"targets": ["re:.*self_attn$"], "input_activations": {"num_bits": 8, "type": "float", "strategy": "attn_head"}}},
                        kv_cache_scheme={"num_bits": 8, "type": "float", "strategy": "attn_head", "dynamic": False},
                        ignore=["lm_head", "model.layers.1.eh_proj", "model.layers.1.shared_head.head"])
    yield Folder("GLM, scales of rows and heads", {ONE_FILE: tensors}, config | {"num_hidden_layers": 1}, {f"{name}.weight": decoded * scales})


def deepseek():
    """V3.1's powers of two: as F32, as F8_E8M0 and as bytes; V4 with FP4 in its own element type."""
    codes, decoded = fp8(200, 300)
    powers, factors = exponents(2, 3)
    values = decoded * spread(factors, 128, 128, decoded.shape)
    config = {"quantization_config": BLOCK | {"scale_fmt": "ue8m0"}}
    name = "model.layers.0.self_attn.kv_b_proj"
    for what, scale in (("F32", f32(factors)), ("F8_E8M0", tensor("F8_E8M0", powers)), ("U8", tensor("U8", powers))):
        yield Folder(f"DeepSeek-V3.1, scales as {what}", {ONE_FILE: {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale_inv": scale,
                     "model.layers.0.self_attn.indexer.weights_proj.weight": plain(4, 64)}}, config, {f"{name}.weight": values})
    packed, narrow = fp4(64, 128)
    group_powers, group_factors = exponents(64, 4)
    expert = "layers.0.ffn.experts.0.w1"
    own = ("F4", [64, 128], packed.tobytes())
    yield Folder("DeepSeek-V4, experts as F4", {ONE_FILE: {f"{expert}.weight": own, f"{expert}.scale": tensor("F8_E8M0", group_powers),
                 "layers.0.attn.wq_a.weight": tensor("F8_E4M3", codes), "layers.0.attn.wq_a.scale": tensor("F8_E8M0", powers),
                 "layers.0.ffn.gate.weight": plain(2, 64), "layers.0.hc_attn_scale": f32(floats(3))}},
                 config | {"expert_dtype": "fp4"}, {f"{expert}.weight": narrow * np.repeat(group_factors, 32, -1), "layers.0.attn.wq_a.weight": values})


def modelopt():
    """NVFP4 with scales of the cache beside FP8, in hf_quant_config.json alone; patterns with asterisks."""
    packed, narrow = fp4(48, 64)
    small, factors = group_scales(48, 4)
    codes, decoded = fp8(48, 64)
    row = floats(48)
    a, b = "model.language_model.layers.0.mlp.up_proj", "model.language_model.layers.0.self_attn.k_proj"
    tensors = {f"{a}.weight": tensor("U8", packed), f"{a}.weight_scale": tensor("F8_E4M3", small), f"{a}.weight_scale_2": f32([3e-5]),
               f"{a}.input_scale": f32([0.01]), f"{b}.weight": tensor("F8_E4M3", codes), f"{b}.weight_scale": f32(np.float32(0.004)),
               f"{b}.input_scale": f32(np.float32(0.02)), f"{b}.k_scale": f32(np.float32(0.5)), "model.visual.merger.weight": plain(16, 16)}
    layers = {a: {"quant_algo": "NVFP4", "group_size": 16}, b: {"quant_algo": "FP8"}}
    hf = {"producer": {"name": "modelopt", "version": "0.47.0"},
          "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": layers, "exclude_modules": ["model.visual*"]}}
    yield Folder("ModelOpt, two formats", {ONE_FILE: tensors}, {},
                 {f"{a}.weight": by_level(narrow, factors, 3e-5), f"{b}.weight": decoded * np.float32(0.004)}, {"hf_quant_config.json": hf})
    yield Folder("ModelOpt, a scale for each row, 1-D", {ONE_FILE: {f"{b}.weight": tensor("F8_E4M3", codes), f"{b}.weight_scale": f32(row)}},
                 {"quantization_config": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "exclude_modules": []}}, {f"{b}.weight": decoded * row[:, None]})
    packed3, narrow3 = fp4(2, 24, 64)
    small3, factors3 = group_scales(2, 24, 4)
    upper = floats(2, 1, 1)
    name = "model.layers.0.mlp.experts.down_proj"
    yield Folder("ModelOpt, fused experts with levels of their own", {ONE_FILE: {name: tensor("U8", packed3), f"{name}_weight_scale": tensor("F8_E4M3", small3),
                 f"{name}_weight_scale_2": f32(upper), f"{name}_input_scale": f32(floats(2))}},
                 {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}},
                 {name: narrow3 * np.repeat((factors3 * upper).astype(np.float32), 16, -1)})


def modelopt_w4a8():
    """Groups of 32 under E4M3 scales, as ModelOpt's preset w4a8_nvfp4_fp8 has them."""
    packed, narrow = fp4(48, 64)
    small, factors = group_scales(48, 2)
    tensors = {"m.weight": tensor("U8", packed), "m.weight_scale": tensor("F8_E4M3", small), "m.weight_scale_2": f32(np.float32(1e-4)),
               "m.input_scale": f32(np.float32(0.02))}
    config = {"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8", "group_size": 32}
    yield Folder("ModelOpt's W4A8_NVFP4_FP8", {ONE_FILE: tensors}, {"quantization_config": config},
                 {"m.weight": narrow * np.repeat((factors * np.float32(1e-4)).astype(np.float32), 32, -1)})
    yield Folder("NVFP4 in groups of 32", {ONE_FILE: tensors}, {"quantization_config": config | {"quant_algo": "NVFP4"}},
                 refused=("m.weight", "group_size", "16", "32"))


def comfyui():
    """Its marks are no weights: a tensor of FP8 for the file, and a text of JSON for a module."""
    codes, decoded = fp8(64, 64)
    config = {"quantization_config": {"quant_method": "fp8"}}
    values = {"m.weight": decoded * np.float32(0.004)}
    for count in (0, 2):
        tensors = {"m.weight": tensor("F8_E4M3", codes), "m.scale_weight": f32(np.float32(0.004)), "m.scale_input": f32(np.float32(1)),
                   "scaled_fp8": tensor("F8_E4M3", np.zeros(count, np.uint8))}
        yield Folder(f"ComfyUI, a mark of {count} codes", {ONE_FILE: tensors}, config, values)
    yield Folder("ComfyUI, a file alone", {"flux_fp8_scaled.safetensors": tensors}, {}, values, described="", options=("--dtype", "f32"))
    yield Folder("weights of a model whose configuration is lost", {ONE_FILE: tensors}, {}, described="", options=("--dtype", "f32"),
                 refused=("config.json", "cannot read"))
    for form, refused in (("float8_e4m3fn", ()), ("float8_e4m3fn ", ("m.comfy_quant", "float8_e5m2")), ("nvfp4", ("m.comfy_quant", "float8_e4m3fn", "nvfp4"))):
        text = np.frombuffer(json.dumps({"format": form}).encode(), np.uint8)
        tensors = {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(np.float32(0.004)), "m.comfy_quant": tensor("U8", text)}
        yield Folder(f"ComfyUI's {form}", {ONE_FILE: tensors}, config, {} if refused else values, refused=refused)


def vllm_experts():
    """The names of vLLM's own parameters, as its sharded state holds them."""
    codes, decoded = fp8(2, 128, 256)
    scales = floats(2, 1, 2)
    name = "model.layers.0.mlp.experts.w13_weight"
    yield Folder("w13_weight with blocks", {ONE_FILE: {name: tensor("F8_E4M3", codes), f"{name}_scale_inv": f32(scales)}},
                 {"quantization_config": BLOCK}, {name: decoded * spread(scales, 128, 128, decoded.shape)})
    packed, narrow = fp4(2, 32, 64)
    powers, factors = exponents(2, 32, 2)
    yield Folder("w13_weight in MXFP4", {ONE_FILE: {name: tensor("U8", packed), f"{name}_scale": tensor("U8", powers)}},
                 {"quantization_config": {"quant_method": "mxfp4"}}, {name: narrow * np.repeat(factors, 32, -1)})


def groups_and_patterns():
    """Two groups whose targets and list of kept modules are regular expressions of Python."""
    codes, decoded = fp8(64, 96)
    rows = floats(64, 1)
    packed, narrow = fp4(32, 64)
    small, factors = group_scales(32, 4)
    a, b = "model.layers.0.self_attn.o_proj", "model.layers.0.mlp.experts.7.w2"
    tensors = {f"{a}.weight": tensor("F8_E4M3", codes), f"{a}.weight_scale": f32(rows), f"{b}.weight_packed": tensor("U8", packed),
               f"{b}.weight_scale": tensor("F8_E4M3", small), f"{b}.weight_global_scale": f32([2000]), f"{b}.input_global_scale": f32([300]),
               "model.vision_tower.blocks.0.fc1.weight": plain(16, 16), "model.layers.0.mlp.gate.weight": plain(8, 64)}
    groups = {"attention": {"targets": [r"re:.*self_attn\.(q|k|v|o)_proj$"], "weights": FP8_CHANNEL, "format": "float-quantized"},
              "experts": {"targets": [r"re:.*\.experts\.\d+\.w[123]$"], "weights": NVFP4, "format": "nvfp4-pack-quantized"}}
    values = {f"{a}.weight": decoded * rows, f"{b}.weight": narrow * np.repeat((factors / np.float32(2000)).astype(np.float32), 16, -1)}
    for ignored in (r"re:^(?!.*(self_attn|experts)).*$", r"re:(?i).*(VISION_TOWER|gate$).*", r"re:(?P<part>.*vision).*|.*gate\Z"):
        yield Folder(f"two groups, ignore {ignored}", {ONE_FILE: tensors}, compressed(groups, ignore=[ignored, "lm_head"]), values)
    behind = r"re:.*(?<!experts)\.gate$"  # ECMAScript's grammar has none
    yield Folder("a pattern that looks behind", {ONE_FILE: tensors}, compressed(groups, ignore=[behind]), refused=("o_proj.weight", "regular expression", behind))
    grouped = floats(64, 3)
    group32 = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}
    blocks = floats(2, 3)
    block = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "32x32"}
    yield Folder("blocks as a text", {ONE_FILE: {f"{a}.weight": tensor("F8_E4M3", codes), f"{a}.weight_scale": f32(blocks)}},
                 compressed({"group_0": {"targets": ["Linear"], "weights": block}}), {f"{a}.weight": decoded * spread(blocks, 32, 32, decoded.shape)})
    yield Folder("8-bit floats in groups", {ONE_FILE: {f"{a}.weight": tensor("F8_E4M3", codes), f"{a}.weight_scale": f32(grouped)}},
                 compressed({"group_0": {"targets": ["Linear"], "weights": group32}}), {f"{a}.weight": decoded * spread(grouped, 1, 32, decoded.shape)})


def quark():
    codes, decoded = fp8(64, 64)
    packed, narrow = fp4(32, 64)
    powers, factors = exponents(32, 2)
    a, b = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.experts.0.up_proj"
    tensors = {f"{a}.weight": tensor("F8_E4M3", codes), f"{a}.weight_scale": f32(np.float32(0.003)), f"{a}.input_scale": f32(np.float32(0.1)),
               "model.layers.0.self_attn.k_proj.output_scale": f32(np.float32(0.7)), f"{b}.weight": tensor("U8", packed),
               f"{b}.weight_scale": tensor("U8", powers), "model.layers.0.self_attn.k_proj.weight": plain(64, 64)}
    fp8_layer = {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}, "input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": False}}
    fp4_layer = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "ch_axis": -1}}
    config = {"quant_method": "quark", "quant_mode": "eager_mode", "algo_config": None, "exclude": ["lm_head", "re:.*k_proj"],
              "global_quant_config": fp4_layer | {"bias": None}, "layer_quant_config": {"*self_attn*": fp8_layer}, "layer_type_quant_config": {},
              "kv_cache_quant_config": {}, "export": {"pack_method": "reorder", "weight_format": "real_quantized", "kv_cache_group": []}}
    yield Folder("Quark, two formats", {ONE_FILE: tensors}, {"quantization_config": config},
                 {f"{a}.weight": decoded * np.float32(0.003), f"{b}.weight": narrow * np.repeat(factors, 32, -1)})


def quark_rows():
    """What Quark wrote and read itself, bit for bit (quark_rows.json)."""
    for row in json.loads((Path(__file__).parent / "quark_rows.json").read_text())["rows"]:
        codes, scale = ((dtype, shape, bytes.fromhex(text)) for dtype, shape, text in (row["codes"], row["scale"]))
        values = np.frombuffer(bytes.fromhex(row["values"]), np.float32).reshape(2, 64)
        config = {"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {"weight": row["weight"]}}
        yield Folder(f"Quark's own {row['weight']['dtype']} {row['weight']['qscheme']}", {ONE_FILE: {"m.weight": codes, "m.weight_scale": scale}},
                     {"quantization_config": config}, {"m.weight": values})


def shapes_of_scales():
    """The same numbers in 0, 1 and 2 dimensions; no elements; rows that lie as columns."""
    codes, decoded = fp8(96, 160)
    config = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}
    for shape in ((), (1,), (1, 1)):
        yield Folder(f"one scale {list(shape)}", {ONE_FILE: {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(np.full(shape, 0.01, np.float32))}},
                     config, {"m.weight": decoded * np.float32(0.01)})
    rows = floats(96)
    for shape in ((96,), (96, 1)):
        yield Folder(f"scales of rows {list(shape)}", {ONE_FILE: {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(rows.reshape(shape))}},
                     config, {"m.weight": decoded * rows[:, None]})
    yield Folder("scales of rows that lie as columns", {ONE_FILE: {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(rows[None])}},
                 config, refused=("m.weight_scale", "[96, 1]", "[1, 96]"))
    wide, _ = fp8(200, 300)
    yield Folder("blocks that lie the other way", {ONE_FILE: {"m.weight": tensor("F8_E4M3", wide), "m.weight_scale_inv": f32(floats(3, 2))}},
                 {"quantization_config": BLOCK}, refused=("m.weight_scale_inv", "[2, 3]", "[3, 2]"))
    none = np.zeros((0, 64), np.uint8)
    yield Folder("no elements", {ONE_FILE: {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32([0.01]), "n.weight": tensor("F8_E4M3", none),
                 "n.weight_scale": f32(np.zeros((0, 1)))}}, config,
                 {"m.weight": decoded * np.float32(0.01), "n.weight": np.zeros((0, 64), np.float32)})
    yield Folder("scales in binary64", {ONE_FILE: {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": tensor("F64", np.float64([0.01]))}},
                 config, refused=("m.weight_scale", "f32", "f64"))
    halves = tensor("F16", np.float16([0.0123]))
    e5m2 = RNG.integers(0, 120, (8, 16), np.uint8)
    exact = (e5m2.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    yield Folder("E5M2 codes with an F16 scale", {ONE_FILE: {"m.weight": tensor("F8_E5M2", e5m2), "m.weight_scale": halves}},
                 {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, {"m.weight": exact * np.float32(np.float16(0.0123))})


def other_names():
    """Mistral's own names, and tensors that change a weight and are not its scale."""
    codes, decoded = fp8(64, 64)
    tensors = {"layers.0.attention.wq.weight": tensor("F8_E4M3", codes), "layers.0.attention.wq.qscale_weight": f32(np.float32(0.004)),
               "layers.0.attention.wq.qscale_act": f32(np.float32(0.1))}
    fp8_method = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}
    values = {"layers.0.attention.wq.weight": decoded * np.float32(0.004)}
    yield Folder("Mistral's names", {ONE_FILE: tensors}, fp8_method, values)
    file = "consolidated.safetensors"
    for scheme in ({"qscheme_act": "TENSOR"}, {}):
        yield Folder("Mistral's own files", {file: tensors}, {"n_layers": 1, "quantization": {"qformat_weight": "fp8_e4m3"} | scheme}, values,
                     described="params.json")
    no_inputs = {name: value for name, value in tensors.items() if not name.endswith("qscale_act")}
    yield Folder("Mistral's own files, inputs scaled at run time", {file: no_inputs},
                 {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}}, values, described="params.json")
    yield Folder("another method in Mistral's own files", {file: no_inputs}, {"quantization": fp8_method["quantization_config"] | {"activation_scheme": "dynamic"}},
                 values, described="params.json")
    yield Folder("another format of Mistral's", {file: tensors}, {"quantization": {"qformat_weight": "int4"}},
                 refused=("params.json", "quantization: qformat_weight: expected fp8_e4m3, got 'int4'"), described="params.json")
    yield Folder("another scheme of Mistral's", {file: tensors}, {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "BLOCK"}},
                 refused=("params.json", "qscheme_act: expected TENSOR or NO_SCALES, got BLOCK"), described="params.json")
    weight = {"m.weight": tensor("F8_E4M3", codes), "m.weight_scale": f32(floats(64, 1))}
    channel = {"group_0": {"targets": ["Linear"], "weights": FP8_CHANNEL}}
    rotation = {"config_groups": {"R1": {"type": "hadamard", "apply": [{"targets": ["Linear"], "location": "weight_output"}]}}}
    yield Folder("weights that are rotated", {ONE_FILE: weight}, compressed(channel, transform_config=rotation),
                 refused=("transform_config", "m.weight", "hadamard"))
    yield Folder("weights in 2:4 form", {ONE_FILE: weight}, compressed(channel, sparsity_config={"format": "sparse-24-bitmask"}),
                 refused=("sparsity_config", "m.weight", "sparse-24-bitmask"))
    yield Folder("weights that are dense", {ONE_FILE: weight}, compressed(channel, sparsity_config={"format": "dense"}, transform_config={}),
                 {"m.weight": decoded * np.frombuffer(weight["m.weight_scale"][2], np.float32)[:, None]})
    zero = weight | {"m.weight_zero_point": tensor("I8", np.zeros((64, 1), np.int8))}
    yield Folder("zero points of zero", {ONE_FILE: zero}, compressed(channel), {"m.weight": decoded * np.frombuffer(weight["m.weight_scale"][2], np.float32)[:, None]})
    moved = weight | {"m.weight_zero_point": tensor("I8", np.full((64, 1), 3, np.int8))}
    original = {"block.0.mlp.mlp1_weight.blocks": tensor("U8", np.zeros((2, 8, 1, 16), np.uint8)), "block.0.mlp.mlp1_weight.scales": tensor("U8", np.zeros((2, 8, 1), np.uint8))}
    yield Folder("names that are not known", {ONE_FILE: weight | original}, compressed(channel), refused=("mlp1_weight.blocks", "known", "u8 [2, 8, 1, 16]"))
    awq = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}}
    packed, narrow = fp4(32, 64)
    small, factors = group_scales(32, 4)
    levels = {"m.weight": tensor("U8", packed), "m.weight_scale": tensor("F8_E4M3", small), "m.weight_scale_2": f32([1e-4])}
    yield Folder("AWQ whose factors are in the norms", {ONE_FILE: levels}, awq, {"m.weight": by_level(narrow, factors, 1e-4)})
    yield Folder("AWQ with factors of its own", {ONE_FILE: levels | {"m.pre_quant_scale": plain(64)}}, awq, refused=("m.pre_quant_scale", "bf16 [64]"))
    yield Folder("an empty configuration beside ModelOpt's", {ONE_FILE: levels}, {"quantization_config": {}},
                 {"m.weight": by_level(narrow, factors, 1e-4)}, {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}})
    yield Folder("zero points that are none", {ONE_FILE: moved}, compressed(channel), refused=("m.weight_zero_point", "i8"))


def files():
    codes, _ = fp8(64, 64)
    a = {"a.weight": tensor("F8_E4M3", codes), "a.weight_scale": f32([0.01])}
    b = {"b.weight": tensor("F8_E4M3", codes), "b.weight_scale": f32([0.01])}
    config = {"quantization_config": {"quant_method": "fp8"}}
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {n: names[0] for n in a} | {n: names[1] for n in b}
    yield Folder("a missing shard", {names[0]: a}, config, lists=places, refused=(names[1],))
    yield Folder("a tensor in two shards", {names[0]: a, names[1]: b | {"a.weight": a["a.weight"]}}, config, lists=places,
                 refused=("'a.weight'", "no other shard", names[0]))
    yield Folder("a scale that the index does not name", {names[0]: a, names[1]: b}, config, lists={k: v for k, v in places.items() if k != "b.weight_scale"},
                 refused=("'b.weight_scale'",))


def folders():
    for make in (qwen3_moe, qwen3_vl_moe, gpt_oss, llama4, kimi, minimax, glm, deepseek, modelopt, modelopt_w4a8, comfyui, vllm_experts, groups_and_patterns, quark, quark_rows,
                 shapes_of_scales, other_names, files):
        yield from make()
