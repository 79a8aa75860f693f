"""A small model's folder, with everything that must stay as it is, for the tests of `quantize` and `dequantize`."""

import json
import struct
import subprocess
import sys

import numpy as np

TOOL = sys.argv[1]
WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
failures = 0


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {str(seen)[:600]}")


def run(*arguments, **options):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)


def works(*arguments):
    result = run(*arguments)
    check(f"{' '.join(map(str, arguments))} exits 0", result.returncode == 0, result.stderr)
    return result


def refused(what, result, *parts):
    lines = result.stderr.strip().splitlines()
    check(f"{what}: exit 2", result.returncode == 2, (result.returncode, lines[-3:]))
    for part in parts:
        check(f"{what}: says {part!r}", part in result.stderr, lines[-3:])


def write_safetensors(path, tensors, metadata=None):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = data[8 + length :]
    return {n: (h["dtype"], h["shape"], data[slice(*h["data_offsets"])]) for n, h in header.items()}, metadata


def read_model(folder):
    """All tensors of a folder by its index, which must say where each is."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = {}
    for file in sorted(set(index["weight_map"].values())):
        shard, _ = read_safetensors(folder / file)
        for name, tensor in shard.items():
            check(f"the index of {folder.name} says where {name} is", index["weight_map"].get(name) == file, index)
            tensors[name] = tensor
    check(f"the index of {folder.name} has these tensors", set(index["weight_map"]) == set(tensors), index)
    total = sum(len(data) for _, _, data in tensors.values())
    check(f"total_size of {folder.name}", index["metadata"]["total_size"] == total, index["metadata"])
    return tensors


def bf16(rng, *shape, scale=1.0):
    x = (rng.standard_normal(shape) * scale).astype(np.float32)
    return "BF16", shape, (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def widen(tensor):
    dtype, shape, data = tensor
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, np.float32).reshape(shape)


def e4m3_values():
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[code & 127 == 127] = np.nan
    return np.where(code >= 128, -value, value).astype(np.float32)


def make_model(folder, dtype="BF16"):
    """Two layers in two shards, with everything that must stay as it is."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    first, second = {}, {}
    first["model.embed_tokens.weight"] = bf16(rng, 96, 256)
    first["position_ids"] = ("I64", (1, 8), np.arange(8).tobytes())
    first["mask"] = ("BOOL", (2, 2), b"\x01\0\x01\x01")
    second["old.weight"] = ("F8_E4M3", (2, 4), bytes(range(8)))
    second["old.scale"] = ("F32", (1,), struct.pack("<f", 0.5))
    second["model.norm.weight"] = bf16(rng, 256)
    second["vision.patch.weight"] = bf16(rng, 8, 3, 3, 3)
    second["lm_head.weight"] = bf16(rng, 96, 256)
    for layer, shard in enumerate((first, second)):
        name = f"model.layers.{layer}"
        shard[f"{name}.self_attn.q_proj.weight"] = bf16(rng, 256, 256, scale=0.02)
        shard[f"{name}.self_attn.q_proj.bias"] = bf16(rng, 256)
        shard[f"{name}.mlp.up_proj.weight"] = bf16(rng, 384, 256, scale=3)
        shard[f"{name}.mlp.down_proj.weight"] = bf16(rng, 256, 384)
        shard[f"{name}.input_layernorm.weight"] = bf16(rng, 256)
    if dtype == "F32":
        for shard in (first, second):
            for name, tensor in shard.items():
                if tensor[0] == "BF16":
                    shard[name] = ("F32", tensor[1], widen(tensor).tobytes())
    weight_map = {}
    for i, shard in enumerate((first, second)):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        write_safetensors(folder / file, shard, {"format": "pt"})
        weight_map |= {name: file for name in shard}
    index = {"metadata": {"total_size": 1, "origin": "here"}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": 256}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"old weights")
    (folder / "onnx").mkdir()
    return first | second


def is_converted(name):
    return name.endswith("_proj.weight")


def samples(folder, model, factor=1.0, dtype="F32"):
    """A batch of inputs for each layer that becomes FP8, and of lm_head's, which does not."""
    rng = np.random.default_rng(11)
    tensors = {}
    for name, (_, shape, _) in model.items():
        if is_converted(name):
            for batch in range(2):
                x = (rng.standard_normal((3, 5, shape[1])) * factor).astype(np.float32)
                data = x.tobytes() if dtype == "F32" else (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()
                tensors[f"{name[:-7]}.input.{batch}"] = (dtype, x.shape, data)
    tensors["lm_head"] = ("F32", (1, 256), np.ones(256, np.float32).tobytes())
    write_safetensors(folder, tensors)
    return tensors


def finish():
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)
