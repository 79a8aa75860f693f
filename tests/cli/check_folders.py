"""Right folders of small models in layouts of 2025 and 2026, quantized here in NumPy, and faults to plant in them, for the test of `check`.

`right_folders()` gives {name: Model}; `FAULTS` are rows of (folder, what, change, kind of the finding, part of its name, whether
the original is needed). A change gets a copy of the model and edits it.
"""

import copy
import json
import shutil
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from model_folder import write_safetensors
from published_folders import BLOCK, FP8_CHANNEL, NVFP4, f32, tensor

E4M3 = ml_dtypes.float8_e4m3fn
HIDDEN, INNER, VOCABULARY, LAYERS, EXPERTS = 256, 384, 320, 4, 4
KEYS = 128
RNG = np.random.default_rng(11)
FP8_TENSOR = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
JOINED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


@dataclass
class Model:
    tensors: dict
    config: dict
    original: dict = None  # {name: values}
    more: dict = field(default_factory=dict)

    def write(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", self.tensors)
        (folder / "config.json").write_text(json.dumps(self.config))
        for name, content in self.more.items():
            (folder / name).write_text(json.dumps(content))

    def write_original(self, folder):
        config = {k: v for k, v in self.config.items() if k not in ("quantization_config", "expert_dtype")}
        Model({name: bf16(values) for name, values in self.original.items()}, config).write(folder)


def bf16(values):
    return tensor("BF16", np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16))


def normal(*shape, scale=0.02):
    return (RNG.standard_normal(shape) * scale).astype(ml_dtypes.bfloat16).astype(np.float32)


def matrices(has_experts):
    """Of a layer: name, rows, columns."""
    rows = [("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", KEYS, HIDDEN), ("self_attn.v_proj", KEYS, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN)]
    for prefix in [f"mlp.experts.{e}" for e in range(EXPERTS)] if has_experts else ["mlp"]:
        rows += [(f"{prefix}.gate_proj", INNER, HIDDEN), (f"{prefix}.up_proj", INNER, HIDDEN), (f"{prefix}.down_proj", HIDDEN, INNER)]
    return rows


def make_original(has_experts):
    model = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN, scale=1), "lm_head.weight": normal(VOCABULARY, HIDDEN),
             "model.norm.weight": 1 + normal(HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        for module, rows, k in matrices(has_experts):
            model[f"{name}.{module}.weight"] = normal(rows, k, scale=0.02 * (1 + 0.3 * layer))
        model[f"{name}.self_attn.q_proj.bias"] = normal(HIDDEN)
        model[f"{name}.input_layernorm.weight"] = 1 + normal(HIDDEN)
        if has_experts:
            model[f"{name}.mlp.gate.weight"] = normal(EXPERTS, HIDDEN)
    return model


def codes_of(values):
    return values.astype(E4M3).view(np.uint8)


def by_block(x, size=128):
    rows, k = (-(-n // size) for n in x.shape)
    tiles = [[np.abs(x[i * size:(i + 1) * size, j * size:(j + 1) * size]).max() for j in range(k)] for i in range(rows)]
    scales = (np.float32(tiles) / np.float32(448)).astype(np.float32)
    wide = np.repeat(np.repeat(scales, size, 0), size, 1)[: x.shape[0], : x.shape[1]]
    return codes_of(x / wide), scales


def by_row(x):
    scales = (np.abs(x).max(1, keepdims=True) / 448).astype(ml_dtypes.bfloat16).astype(np.float32)
    return codes_of(np.clip(x / scales, -448, 448)), scales


def by_tensor(x):
    scale = np.float32(np.abs(x).max() / 448)
    return codes_of(x / scale), scale


def e2m1(values):
    """Packed codes of the nearest numbers."""
    steps = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.abs(np.abs(values)[..., None] - steps).argmin(-1).astype(np.uint8) | np.signbit(values).astype(np.uint8) << 3
    return codes[..., ::2] | codes[..., 1::2] << 4


def nvfp4(x, amax):
    upper = np.float32(amax / 2688)
    groups = np.abs(x.reshape(x.shape[0], -1, 16)).max(-1)
    scales = (groups / 6 / upper).astype(E4M3)
    wide = np.repeat(scales.astype(np.float32) * upper, 16, 1)
    return e2m1(x / np.maximum(wide, 1e-30)), scales.view(np.uint8), upper


def mx(x, largest_exponent):
    groups = np.abs(x.reshape(x.shape[0], -1, 32)).max(-1)
    exponents = np.floor(np.log2(groups)).astype(int) - largest_exponent
    scaled = x / np.repeat(np.exp2(exponents.astype(np.float32)), 32, 1)
    codes = e2m1(np.clip(scaled, -6, 6)) if largest_exponent == 2 else codes_of(np.clip(scaled, -448, 448))
    return codes, (exponents + 127).astype(np.uint8)


def joined_amax(name, original):
    """Of the weights that servers put into one matrix."""
    parent, leaf = name.rsplit(".", 1)
    parts = [part for part, whole in JOINED.items() if whole == JOINED.get(leaf)] or [leaf]
    return max(np.abs(original[f"{parent}.{part}.weight"]).max() for part in parts)


def input_scale(name):
    """The same for modules with one input."""
    parent, leaf = name.rsplit(".", 1)
    return np.float32(0.01 + sum(map(ord, parent + JOINED.get(leaf, leaf))) % 97 / 2000)


def fp8_block(name, x, _):
    codes, scales = by_block(x)
    return {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale_inv": f32(scales)}


def fp8_row(name, x, _):
    codes, scales = by_row(x)
    return {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale": bf16(scales)}


def fp8_static(name, x, _):
    codes, scale = by_tensor(x)
    result = {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale": f32([scale]), f"{name}.input_scale": f32([input_scale(name)])}
    attention, leaf = name.rsplit(".", 1)
    if leaf in ("k_proj", "v_proj"):
        result[f"{attention}.{leaf[0]}_scale"] = f32([0.02])
    return result


def fp8_modelopt(name, x, _):
    codes, scale = by_tensor(x)
    result = {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale": f32(scale), f"{name}.input_scale": f32(input_scale(name))}
    leaf = name.rsplit(".", 1)[1]
    if leaf in ("k_proj", "v_proj"):
        result[f"{name}.{leaf[0]}_scale"] = f32(np.float32(1))
    return result


def nvfp4_packed(name, x, original):
    codes, scales, upper = nvfp4(x, joined_amax(name, original))
    return {f"{name}.weight_packed": tensor("U8", codes), f"{name}.weight_scale": tensor("F8_E4M3", scales),
            f"{name}.weight_global_scale": f32([1 / upper]), f"{name}.input_global_scale": f32([6 / input_scale(name)])}


def nvfp4_modelopt(name, x, original):
    codes, scales, upper = nvfp4(x, joined_amax(name, original))
    return {f"{name}.weight": tensor("U8", codes), f"{name}.weight_scale": tensor("F8_E4M3", scales), f"{name}.weight_scale_2": f32(upper),
            f"{name}.input_scale": f32(input_scale(name) / 6)}


def mxfp8(name, x, _):
    codes, exponents = mx(x, 8)
    return {f"{name}.weight": tensor("F8_E4M3", codes), f"{name}.weight_scale_inv": tensor("U8", exponents)}


def deepseek_v4(name, x, _):
    if ".experts." in name:
        codes, exponents = mx(x, 2)
        return {f"{name}.weight": tensor("I8", codes), f"{name}.scale": tensor("F8_E8M0", exponents)}
    _, scales = by_block(x)
    exponents = np.ceil(np.log2(scales)).astype(int)
    wide = np.repeat(np.repeat(np.exp2(exponents.astype(np.float32)), 128, 0), 128, 1)[: x.shape[0], : x.shape[1]]
    return {f"{name}.weight": tensor("F8_E4M3", codes_of(x / wide)), f"{name}.scale": tensor("F8_E8M0", (exponents + 127).astype(np.uint8))}


def two_groups(name, x, original):
    return nvfp4_packed(name, x, original) if ".experts." in name else fp8_row(name, x, original)


def convert(original, layout):
    tensors = {}
    for name, values in original.items():
        tensors |= layout(name[:-7], values, original) if name.endswith("_proj.weight") else {name: bf16(values)}
    return tensors


def fused(layout):
    """Experts in one tensor for each projection."""
    tensors = {}
    for layer in range(LAYERS):
        tensors[f"model.layers.{layer}.mlp.gate.weight"] = bf16(normal(EXPERTS, HIDDEN))
        for leaf, rows, k in (("gate_up_proj", 2 * INNER, HIDDEN), ("down_proj", HIDDEN, INNER)):
            tensors |= layout(f"model.layers.{layer}.mlp.experts.{leaf}", [normal(rows, k) for _ in range(EXPERTS)])
    return tensors


def fused_blocks(name, experts):
    codes, scales = zip(*map(by_block, experts))
    return {name: tensor("F8_E4M3", np.stack(codes)), f"{name}_scale_inv": f32(np.stack(scales))}


def fused_mxfp4(name, experts):
    codes, exponents = zip(*(mx(x, 2) for x in experts))
    packed = np.stack(codes)
    return {f"{name}_blocks": tensor("U8", packed.reshape(*packed.shape[:2], -1, 16)), f"{name}_scales": tensor("U8", np.stack(exponents))}


def compressed(groups, form, **more):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
                                    "config_groups": groups, "ignore": ["lm_head", "re:.*mlp.gate$"]} | more}


def one_group(weights, inputs=None):
    return {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}}


def modelopt(algorithm, ignored, cache=True):
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"} if cache else None
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, "kv_cache_scheme": scheme, "ignore": ignored}}
    other = {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8" if cache else None, "exclude_modules": ignored}
    return config, {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": other}}


def with_narrow_cache(model):
    """A static model whose cache is NVFP4: compressed-tensors stores 2688 / amax of keys and values."""
    tensors = {name: values for name, values in model.tensors.items() if not name.endswith((".k_scale", ".v_scale"))}
    for layer in range(LAYERS):
        tensors |= {f"model.layers.{layer}.self_attn.{part}_global_scale": f32([300]) for part in "kv"}
    scheme = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
    return Model(tensors, with_scheme(model.config, scheme), model.original)


def with_narrow_modelopt_cache(model):
    """The same as ModelOpt exports it with offsets of keys and values (NVFP4_AFFINE)."""
    config = with_scheme(model.config, {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False})
    file = copy.deepcopy(model.more)
    file["hf_quant_config.json"]["quantization"]["kv_cache_quant_algo"] = "NVFP4_AFFINE"
    offsets = {f"model.layers.{layer}.self_attn.{part}_proj.{part}_bias": f32(normal(KEYS)) for layer in range(LAYERS) for part in "kv"}
    return Model(model.tensors | offsets, config, model.original, file)


def with_scheme(config, scheme):
    return config | {"quantization_config": config["quantization_config"] | {"kv_cache_scheme": scheme}}


def right_folders():
    dense, sparse = make_original(False), make_original(True)
    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": False}
    moe = base | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS}
    kept = ["lm_head"] + [f"model.layers.{layer}.mlp.gate" for layer in range(LAYERS)]
    block = {"quantization_config": BLOCK | {"modules_to_not_convert": kept}}
    static, static_file = modelopt("FP8", ["lm_head"])
    narrow, narrow_file = modelopt("NVFP4", kept, cache=False)
    groups = {"group_0": {"targets": ["re:.*self_attn.*"], "weights": FP8_CHANNEL, "input_activations": None, "format": "float-quantized"},
              "group_1": {"targets": ["re:.*experts.*"], "weights": NVFP4, "input_activations": NVFP4 | {"dynamic": "local"}, "format": "nvfp4-pack-quantized"}}
    attention = {name: values for name, values in dense.items() if ".mlp." not in name}
    by_tensors = Model(convert(dense, fp8_static), base | compressed(one_group(FP8_TENSOR, FP8_TENSOR), "float-quantized", kv_cache_scheme=FP8_TENSOR), dense)
    of_modelopt = Model(convert(dense, fp8_modelopt), base | static, dense, static_file)
    floats = {name: bf16(values) for name, values in attention.items()}
    return {
        "block": Model(convert(dense, fp8_block), base | {"quantization_config": BLOCK | {"modules_to_not_convert": ["lm_head"]}}, dense),
        "moe": Model(convert(sparse, fp8_block), moe | block, sparse),
        "channel": Model(convert(dense, fp8_row), base | compressed(one_group(FP8_CHANNEL), "float-quantized"), dense),
        "static": by_tensors,
        "narrow cache": with_narrow_cache(by_tensors),
        "nvfp4": Model(convert(dense, nvfp4_packed), base | compressed(one_group(NVFP4, NVFP4 | {"dynamic": "local"}), "nvfp4-pack-quantized"), dense),
        "modelopt": of_modelopt,
        "narrow cache of modelopt": with_narrow_modelopt_cache(of_modelopt),
        "modelopt-nvfp4": Model(convert(sparse, nvfp4_modelopt), moe | narrow, sparse, narrow_file),
        "mxfp8": Model(convert(sparse, mxfp8), moe | {"quantization_config": {"quant_method": "mxfp8", "weight_block_size": [1, 32],
                                                                              "activation_scheme": "dynamic", "modules_to_not_convert": kept}}, sparse),
        "deepseek-v4": Model(convert(sparse, deepseek_v4), moe | {"expert_dtype": "fp4", "quantization_config": BLOCK | {"scale_fmt": "ue8m0"}}, sparse),
        "two groups": Model(convert(sparse, two_groups), moe | compressed(groups, "mixed-precision"), sparse),
        "fused": Model(convert(attention, fp8_block) | fused(fused_blocks), moe | block),
        "gpt-oss": Model(floats | fused(fused_mxfp4), moe | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.gate", "model.embed_tokens", "lm_head"]}}),
    }


def array(model, name, dtype):
    return np.frombuffer(model.tensors[name][2], dtype).reshape(model.tensors[name][1]).copy()


def edit(name, dtype, change):
    def apply(model):
        values = np.ascontiguousarray(change(array(model, name, dtype)))
        model.tensors[name] = (model.tensors[name][0], list(values.shape), values.astype(dtype).tobytes())
    return apply


def put(index, value):
    def change(values):
        values.flat[index] = value
        return values
    return change


def drop(part):
    """All tensors with a part in their names."""
    def apply(model):
        for name in [name for name in model.tensors if part in name]:
            del model.tensors[name]
    return apply


def rename(old, new):
    return lambda model: model.tensors.update({new: model.tensors.pop(old)})


def say(**members):
    return lambda model: model.config["quantization_config"].update(members)


def say_in_group(group, **members):
    return lambda model: model.config["quantization_config"]["config_groups"][group].update(members)


def keep(key, name):
    return lambda model: model.config["quantization_config"][key].append(name)


def say_in_file(**members):
    return lambda model: model.more["hf_quant_config.json"]["quantization"].update(members)


def quantized(name, layout):
    """A tensor that stays in right folders."""
    def apply(model):
        values = model.original[f"{name}.weight"]
        model.tensors |= layout(name, values.reshape(-1, values.shape[-1]), model.original)
        dtype, shape, data = model.tensors[f"{name}.weight"]
        model.tensors[f"{name}.weight"] = (dtype, list(values.shape), data)
        listed = model.config["quantization_config"]["modules_to_not_convert"]
        if name in listed:
            listed.remove(name)
    return apply


def each(*changes):
    return lambda model: [change(model) for change in changes]


def each_layer(change):
    return each(*(change(layer) for layer in range(LAYERS)))


def exchange_forms(model):
    groups = model.config["quantization_config"]["config_groups"]
    groups["group_0"]["weights"], groups["group_1"]["weights"] = NVFP4, FP8_CHANNEL


def transposed_weight(model):
    name = "model.layers.2.mlp.down_proj"
    model.tensors |= fp8_row(name, np.ascontiguousarray(model.original[f"{name}.weight"].T), None)


def fewer_heads(model):
    name = "model.layers.1.self_attn.k_proj"
    model.tensors |= fp8_row(name, model.original[f"{name}.weight"][:64], None)


def twice(model):
    for part in ("weight", "weight_scale"):
        model.tensors[f"model.layers.2.mlp.up_proj.{part}"] = model.tensors[f"model.layers.1.mlp.up_proj.{part}"]


def in_type(name, dtype, kind, source):
    """The numbers of a tensor as another type."""
    return lambda model: model.tensors.update({name: tensor(kind, array(model, name, source).astype(dtype))})


def without_heads(part):
    return edit(f"{ATTENTION}.{part}", np.float32, lambda values: np.full(3, 0.02))


def inverse(values):
    return 1 / values


ATTENTION, UP, EXPERT = "model.layers.1.self_attn", "model.layers.2.mlp.up_proj", "model.layers.2.mlp.experts.1"
FUSED = "model.layers.1.mlp.experts.down_proj"
FAULTS = [
    ("block", "NaN in a norm", edit("model.norm.weight", np.uint16, put(3, 0x7FC0)), "NaN values", "model.norm", False),
    ("block", "infinity in an embedding", edit("model.embed_tokens.weight", np.uint16, put(3, 0x7F80)), "NaN values", "embed_tokens", False),
    ("block", "a head of zeros", edit("lm_head.weight", np.uint16, lambda v: v * 0), "range", "lm_head", False),
    ("block", "a lost head", drop("lm_head"), "missing tensor", "lm_head", False),
    ("block", "a lost embedding", drop("embed_tokens"), "missing tensor", "embedding", False),
    ("block", "a lost last norm", drop("model.norm"), "missing tensor", "norm", False),
    ("block", "a lost bias of one layer", drop("layers.1.self_attn.q_proj.bias"), "missing tensor", "q_proj.bias", False),
    ("moe", "the last expert lost in all layers", drop(".experts.3."), "missing tensor", "experts", False),
    ("moe", "a quantized router", quantized("model.layers.1.mlp.gate", fp8_block), "names", "mlp.gate", False),
    ("block", "a quantized embedding", quantized("model.embed_tokens", fp8_block), "names", "embed_tokens", False),
    ("block", "a quantized norm", quantized("model.norm", fp8_block), "names", "model.norm", False),
    ("moe", "a layer that is not there in the list", keep("modules_to_not_convert", "model.layers.9.mlp.gate"), "names", "layers.9", False),
    ("channel", "another module in the list", keep("ignore", "model.layers.1.mlp.router"), "names", "mlp.router", False),
    ("two groups", "a group that matches nothing", say_in_group("group_1", targets=["re:.*expertz.*"]), "config", "group_1", False),
    ("two groups", "exchanged groups", exchange_forms, "type", "self_attn", False),
    ("nvfp4", "the format of FP8", say(format="float-quantized"), "config", "config.json", False),
    ("channel", "static inputs without scales", say_in_group("group_0", input_activations=FP8_TENSOR), "input scale", "q_proj", False),
    ("static", "dynamic inputs with scales", say_in_group("group_0", input_activations=FP8_TENSOR | {"dynamic": True}), "input scale", "q_proj", False),
    ("static", "all scales of the cache lost", each(drop("k_scale"), drop("v_scale")), "KV scale", "self_attn", False),
    ("static", "a scale of the cache lost", drop("layers.1.self_attn.v_scale"), "KV scale", "layers.1", False),
    ("static", "scales for another number of heads", without_heads("k_scale"), "KV scale", "k_scale", False),
    ("static", "a reciprocal of the cache's scale", edit(f"{ATTENTION}.k_scale", np.float32, inverse), "KV scale", "k_scale", False),
    ("narrow cache", "all scales of a cache in 4 bits lost", each(drop("k_global_scale"), drop("v_global_scale")), "KV scale", "self_attn", False),
    ("narrow cache", "a reciprocal of a cache in 4 bits", edit(f"{ATTENTION}.v_global_scale", np.float32, inverse), "KV scale", "v_global_scale", False),
    ("narrow cache", "NaN in a cache of 4 bits", edit(f"{ATTENTION}.k_global_scale", np.float32, put(0, np.nan)), "KV scale", "k_global_scale", False),
    ("narrow cache of modelopt", "ModelOpt's files differ in the bits of the cache", say_in_file(kv_cache_quant_algo="FP8"), "config", "hf_quant_config", False),
    ("narrow cache of modelopt", "offsets without a scale", drop("layers.1.self_attn.k_proj.k_scale"), "KV scale", "layers.1", False),
    ("narrow cache of modelopt", "NaN in an offset", edit(f"{ATTENTION}.k_proj.k_bias", np.float32, put(0, np.nan)), "KV scale", "k_bias", False),
    ("static", "a reciprocal of an input's scale", edit(f"{ATTENTION}.q_proj.input_scale", np.float32, inverse), "input scale", "q_proj", False),
    ("static", "reciprocals of all inputs' scales", lambda model: [edit(n, np.float32, inverse)(model) for n in model.tensors if n.endswith("input_scale")],
     "input scale", "", False),
    ("nvfp4", "a reciprocal of an input's upper level", edit(f"{ATTENTION}.o_proj.input_global_scale", np.float32, inverse), "input scale", "o_proj", False),
    ("modelopt", "ModelOpt's files differ in the cache", say_in_file(kv_cache_quant_algo=None), "config", "hf_quant_config", False),
    ("modelopt", "ModelOpt's files differ in the list", say_in_file(exclude_modules=[]), "config", "hf_quant_config", False),
    ("modelopt-nvfp4", "a lost input scale of an expert", drop("layers.2.mlp.experts.1.gate_proj.input_scale"), "input scale", EXPERT, False),
    ("modelopt-nvfp4", "negative scales of groups", edit(f"{EXPERT}.gate_proj.weight_scale", np.uint8, lambda v: v | 0x80), "scale value", EXPERT, False),
    ("modelopt-nvfp4", "scales that are padded", edit(f"{EXPERT}.down_proj.weight_scale", np.uint8, lambda v: np.pad(v, ((0, 0), (0, 4)))), "shape", EXPERT, False),
    ("mxfp8", "an exponent of zero", edit(f"{EXPERT}.gate_proj.weight_scale_inv", np.uint8, put(5, 0)), "outlier", EXPERT, False),
    ("mxfp8", "exponents without bias", edit(f"{EXPERT}.gate_proj.weight_scale_inv", np.uint8, lambda v: v - np.uint8(127)), "inverted", EXPERT, False),
    ("mxfp8", "exponents as floats", in_type(f"{EXPERT}.gate_proj.weight_scale_inv", np.float32, "F32", np.uint8), "shape", EXPERT, False),
    ("deepseek-v4", "nothing says that experts are FP4", lambda model: model.config.pop("expert_dtype"), "type", "experts", False),
    ("deepseek-v4", "exponents of blocks as floats", in_type(f"{ATTENTION}.q_proj.scale", np.float32, "F32", np.uint8), "E8M0", "q_proj", False),
    ("gpt-oss", "an expert of zeros", edit(f"{FUSED}_blocks", np.uint8, lambda v: v * (np.arange(EXPERTS, dtype=np.uint8) > 0)[:, None, None, None]), "range", FUSED, False),
    ("gpt-oss", "exponents of zero", edit(f"{FUSED}_scales", np.uint8, lambda v: v * 0), "inverted", FUSED, False),
    ("fused", "an expert with scales of 1", edit(f"{FUSED}_scale_inv", np.float32, lambda v: np.concatenate([v[:1] * 0 + 1, v[1:]])), "outlier", FUSED, False),
    ("fused", "an expert with tiny scales", edit(f"{FUSED}_scale_inv", np.float32, lambda v: np.concatenate([v[:1] * 1e-6, v[1:]])), "outlier", FUSED, False),
    ("block", "a block with a tiny scale", edit(f"{UP}.weight_scale_inv", np.float32, put(1, 1e-9)), "outlier", UP, False),
    ("block", "scales of another type", in_type(f"{UP}.weight_scale_inv", np.float16, "F16", np.float32), "type", UP, False),
    ("channel", "scales of another rank", edit(f"{UP}.weight_scale", np.uint16, np.ravel), "type", UP, False),
    ("channel", "a scale of another system's name", rename(f"{UP}.weight_scale", f"{UP}.scale_weight"), "type", UP, False),
    ("channel", "one layer twice", twice, "copy", UP, False),
    ("channel", "a weight that lies the other way", transposed_weight, "shape", "down_proj", False),
    ("channel", "a bias cut off", edit("model.layers.1.self_attn.q_proj.bias", np.uint16, lambda v: v[:100]), "shape", "q_proj.bias", False),
    ("channel", "a norm of another size", edit("model.layers.1.input_layernorm.weight", np.uint16, lambda v: v[:100]), "shape", "input_layernorm", False),
    ("channel", "codes that lost their signs", edit(f"{UP}.weight", np.uint8, lambda v: v & 127), "range", UP, False),
    ("nvfp4", "packed codes that lost their signs", edit(f"{ATTENTION}.o_proj.weight_packed", np.uint8, lambda v: v & 0x77), "range", "o_proj", False),
    ("channel", "a weight of fewer heads", fewer_heads, "shape", "k_proj", False),
    ("block", "no block size", lambda model: model.config["quantization_config"].pop("weight_block_size"), "type", "q_proj", False),
    ("block", "E4M3 codes in a folder of E5M2", say(fmt="e5m2"), "type", "q_proj", False),
    ("channel", "an unknown method", say(quant_method="fp9"), "config", "config.json", False),
    ("block", "scales of blocks the other way", edit("model.layers.2.mlp.down_proj.weight_scale_inv", np.float32, lambda v: v.T.reshape(v.shape)),
     "error", "down_proj", True),
    ("channel", "scales of the next row", edit(f"{UP}.weight_scale", np.uint16, lambda v: np.roll(v, 1, 0)), "error", UP, True),
    ("nvfp4", "exchanged halves of bytes", edit(f"{ATTENTION}.q_proj.weight_packed", np.uint8, lambda v: v << 4 | v >> 4), "error", "q_proj", True),
    ("channel", "a norm in another type", in_type("model.norm.weight", np.uint32, "F32", np.uint16), "copy", "model.norm", True),
]


def planted(model, change):
    model = copy.deepcopy(model)
    change(model)
    return model
