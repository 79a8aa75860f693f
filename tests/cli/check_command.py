"""`check` of a quantized model's folder: silent on right folders of every layout, and a finding for each planted fault.

Usage: check_command.py PATH_OF_FP8LAB

Skips with exit code 77 where NumPy or ml_dtypes is missing (./dev setup).
"""

import csv
import json
import shutil
import sys
import tempfile
from pathlib import Path

try:
    import ml_dtypes  # noqa: F401, of check_folders
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup)")
    sys.exit(77)

from check_folders import FAULTS as PUBLISHED_FAULTS
from check_folders import planted, right_folders
from model_folder import bf16, check, finish, read_safetensors, refused, run, samples, works, write_safetensors

LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj")
RIGHT = [  # name, layout, recipe, element type, whether inputs are calibrated
    ("channel", "compressed-tensors", "llm-compressor-bf16", "BF16", False),
    ("block", "compressed-tensors", "deepseek-v3", "BF16", False),
    ("nvfp4", "compressed-tensors", "compressed-tensors-nvfp4-bf16", "BF16", True),
    ("mxfp4", "compressed-tensors", "compressed-tensors-mxfp4-bf16", "BF16", False),
    ("mxfp6", "compressed-tensors", "mxfp6-e2m3", "BF16", False),
    ("mxfp8", "compressed-tensors", "ocp-mxfp8", "BF16", False),
    ("modelopt", "modelopt", "modelopt", "F32", True),
    ("modelopt-row", "modelopt", "vllm-per-token", "BF16", False),
    ("modelopt-nvfp4", "modelopt", "modelopt-nvfp4", "BF16", True),
    ("modelopt-mxfp8", "modelopt", "modelopt-mxfp8", "BF16", False),
    ("hf", "hf-fp8", "deepseek-v3", "BF16", False),
    ("deepseek", "deepseek", "deepgemm-ue8m0", "BF16", False),
    ("torchao", "torchao", "torchao-inference-bf16", "BF16", False),
    ("torchao-mxfp8", "torchao", "torchao-mxfp8-rceil", "BF16", False),
    ("torchao-nvfp4", "torchao", "torchao-nvfp4", "BF16", False),
]
Q = "model.layers.1.self_attn.q_proj"


def make_original(folder, dtype):
    """Three layers of one shape in one file."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    tensors = {"model.embed_tokens.weight": bf16(rng, 96, 256), "lm_head.weight": bf16(rng, 96, 256),
               "model.norm.weight": bf16(rng, 256)}
    for layer in range(3):
        name = f"model.layers.{layer}"
        for module in LINEAR:
            tensors[f"{name}.{module}.weight"] = bf16(rng, 256, 256, scale=0.02 * (1 + layer))
        tensors[f"{name}.input_layernorm.weight"] = bf16(rng, 256)
    if dtype == "F32":
        for name, (_, shape, data) in tensors.items():
            wide = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).tobytes()
            tensors[name] = ("F32", shape, wide)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"model_type": "llama", "dtype": "bfloat16" if dtype == "BF16" else "float32", "num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def checked(folder, *more):
    result = run("check", folder, "--json", *more)
    if result.returncode not in (0, 1):
        return result.returncode, result.stderr
    return result.returncode, json.loads(result.stdout)["findings"]


def make_right(folder):
    models = {dtype: make_original(folder / dtype, dtype) for dtype in ("BF16", "F32")}
    for name, layout, recipe, dtype, calibrated in RIGHT:
        samples(folder / "samples.safetensors", models[dtype], dtype=dtype)
        more = ["--calibration", folder / "samples.safetensors"] if calibrated else []
        works("quantize", folder / dtype, "-o", folder / name, "--recipe", recipe, "--layout", layout, "--rule", "linear", *more)
        code, findings = checked(folder / name)
        check(f"{name}: nothing is found", code == 0 and findings == [], findings)
        code, findings = checked(folder / name, "--original", folder / dtype)
        check(f"{name}: nothing is found beside the original", code == 0 and findings == [], findings)
        report = json.loads(run("check", folder / name, "--json", "--original", folder / dtype).stdout)
        recipes = {error["recipe"] for error in report["errors"]}
        check(f"{name}: one recipe explains all weights", len(recipes) == 1 and None not in recipes, recipes)


class Planted:
    """A copy of a right folder with changed tensors or configuration."""

    def __init__(self, source, target):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self.folder = target
        self.tensors, self.metadata = read_safetensors(target / "model.safetensors")
        self.config = json.loads((target / "config.json").read_text())

    def write(self):
        write_safetensors(self.folder / "model.safetensors", self.tensors, self.metadata)
        (self.folder / "config.json").write_text(json.dumps(self.config))

    def edit(self, name, dtype, change):
        kind, shape, data = self.tensors[name]
        self.tensors[name] = (kind, shape, change(np.frombuffer(data, dtype).copy()).astype(dtype).tobytes())

    def replace(self, name, dtype, shape, values):
        self.tensors[name] = (dtype, shape, values.tobytes())


def at(index, value):
    def change(values):
        values.flat[index] = value
        return values
    return change


def drop(name):
    return lambda p: p.tensors.pop(name)


def change_config(**members):
    return lambda p: p.config["quantization_config"].update(members)


def rename(old, new):
    def change(p):
        p.tensors[new] = p.tensors.pop(old)
    return change


def to_type(name, dtype):
    def change(p):
        p.tensors[name] = (dtype, *p.tensors[name][1:])
    return change


def reshape(name, shape):
    def change(p):
        p.tensors[name] = (p.tensors[name][0], shape, p.tensors[name][2])
    return change


def swap(first, second):
    def change(p):
        p.tensors[first], p.tensors[second] = p.tensors[second], p.tensors[first]
    return change


def edit(name, dtype, change):
    return lambda p: p.edit(name, dtype, change)


def scale_by(factor):
    return lambda values: values * np.float32(factor)


def to_floats(name):
    def change(p):
        rows, k = p.tensors[f"{name}.weight"][1]
        for part in ("weight", "weight_scale", "weight_scale_inv"):
            p.tensors.pop(f"{name}.{part}", None)
        p.replace(f"{name}.weight", "BF16", [rows, k], np.full((rows, k), 0x3C00, np.uint16))
    return change


def exponents_as_numbers(name):
    def change(p):
        _, shape, data = p.tensors[name]
        exponents = (np.frombuffer(data, np.uint32) >> 23 & 255).astype(np.float32)
        p.replace(name, "F32", shape, exponents)
    return change


def clipped(name):
    """Codes as under a scale that is four times too small."""
    def change(values):
        magnitude = values & 127
        raised = np.minimum(magnitude.astype(np.int32) + 16, 126)
        return (values & 128) | np.where(magnitude == 0, 0, raised).astype(np.uint8)
    return edit(name, np.uint8, change)


def lowered(name):
    """Codes as under a scale that is 32 times too large."""
    def change(values):
        magnitude = values & 127
        return (values & 128) | np.maximum(magnitude.astype(np.int32) - 40, 0).astype(np.uint8)
    return edit(name, np.uint8, change)


def swapped_nibbles(values):
    return (values << 4 | values >> 4).astype(np.uint8)


def rolled_rows(name):
    def change(p):
        kind, shape, data = p.tensors[name]
        p.tensors[name] = (kind, shape, np.roll(np.frombuffer(data, np.uint8).reshape(shape), 1, axis=0).tobytes())
    return change


SCALE_INV, SCALE = f"{Q}.weight_scale_inv", f"{Q}.weight_scale"
K = Q.replace("q_proj", "k_proj")
FAULTS = [  # right folder, fault, what it changes, kind of the finding, tensor that it names; whether it needs the original
    ("hf", "a lost scale", drop(SCALE_INV), "missing scale", Q),
    ("nvfp4", "a lost scale of packed codes", drop(SCALE), "missing scale", Q),
    ("hf", "lost codes", drop(f"{Q}.weight"), "scale without codes", Q),
    ("hf", "a scale of another name", rename(SCALE_INV, f"{Q}.scale_inv"), "missing scale", Q),
    ("nvfp4", "a lost upper level", drop(f"{Q}.weight_global_scale"), "shape", Q),
    ("hf", "a scale that lies the other way", reshape(SCALE_INV, [4, 1]), "shape", Q),
    ("channel", "scales of a row too few", lambda p: p.replace(SCALE, "BF16", [255, 1], np.full(255, 0x3A00, np.uint16)), "shape", Q),
    ("hf", "a scale of NaN", edit(SCALE_INV, np.float32, at(1, np.nan)), "scale value", Q),
    ("hf", "a scale of zero", edit(SCALE_INV, np.float32, at(1, 0)), "scale value", Q),
    ("hf", "an infinite scale", edit(SCALE_INV, np.float32, at(1, np.inf)), "scale value", Q),
    ("hf", "a negative scale", edit(SCALE_INV, np.float32, at(1, -0.01)), "scale value", Q),
    ("mxfp8", "a byte of NaN", edit(SCALE, np.uint8, at(3, 255)), "scale value", Q),
    ("nvfp4", "an upper level of zero", edit(f"{Q}.weight_global_scale", np.float32, at(0, 0)), "scale value", Q),
    ("hf", "codes of NaN", edit(f"{Q}.weight", np.uint8, at(9, 0x7F)), "NaN codes", Q),
    ("hf", "reciprocals", edit(SCALE_INV, np.float32, lambda v: 1 / v), "inverted", Q),
    ("modelopt", "a reciprocal", edit(SCALE, np.float32, lambda v: 1 / v), "inverted", Q),
    ("nvfp4", "a reciprocal of the upper level", edit(f"{Q}.weight_global_scale", np.float32, lambda v: 1 / v), "inverted", Q),
    ("modelopt-nvfp4", "a reciprocal of the upper level", edit(f"{Q}.weight_scale_2", np.float32, lambda v: 1 / v), "inverted", Q),
    ("mxfp4", "reciprocals of bytes", edit(SCALE, np.uint8, lambda v: 254 - v), "inverted", Q),
    ("hf", "an amax in place of amax / 448", edit(SCALE_INV, np.float32, scale_by(448)), "outlier", Q),
    ("deepseek", "exponents as numbers", exponents_as_numbers(SCALE_INV), "E8M0", Q),
    ("mxfp8", "numbers as bytes", edit(SCALE, np.uint8, lambda v: v * 0), "inverted", Q),
    ("deepseek", "scales that are no powers of two", edit(SCALE_INV, np.float32, scale_by(1.1)), "E8M0", Q),
    ("modelopt-nvfp4", "unlike scales of q, k and v", edit(f"{Q}.weight_scale_2", np.float32, scale_by(1.25)), "joined", Q),
    ("nvfp4", "unlike scales of gate and up", edit("model.layers.0.mlp.up_proj.weight_global_scale", np.float32, scale_by(0.5)),
     "joined", "model.layers.0.mlp"),
    ("hf", "unused range", lowered(f"{Q}.weight"), "range", Q),
    ("hf", "saturated codes", clipped(f"{Q}.weight"), "saturation", Q),
    ("hf", "codes of zero", edit(f"{Q}.weight", np.uint8, lambda v: v * 0), "range", Q),
    ("channel", "a quantized module that the list keeps", lambda p: p.config["quantization_config"]["ignore"].append(Q), "names", Q),
    ("channel", "a float module that the list does not keep", to_floats(Q), "names", Q),
    ("hf", "another block size", change_config(weight_block_size=[64, 64]), "shape", Q),
    ("hf", "E5M2 codes", to_type(f"{Q}.weight", "F8_E5M2"), "type", Q),
    ("channel", "a strategy that the scales do not have",
     lambda p: p.config["quantization_config"]["config_groups"]["group_0"]["weights"].update(strategy="tensor"), "type", Q),
    ("modelopt", "another algorithm", change_config(quant_algo="NVFP4"), "type", Q),
    ("hf", "no configuration", lambda p: p.config.pop("quantization_config"), "config", "config.json"),
    ("modelopt-nvfp4", "a group size that NVFP4 does not have", change_config(group_size=32), "config", "config.json"),
    ("modelopt", "a lost input scale", drop(f"{Q}.input_scale"), "input scale", Q),
    ("modelopt", "an input scale of zero", edit(f"{Q}.input_scale", np.float32, at(0, 0)), "input scale", Q),
    ("modelopt", "a KV scale without a scheme",
     lambda p: p.tensors.update({f"{K}.k_scale": ("F32", [], np.float32(0.5).tobytes())}), "KV scale", K),
    ("hf", "a lost layer", lambda p: [p.tensors.pop(n) for n in list(p.tensors) if ".layers.1." in n], "missing tensor", "layers.1"),
    ("hf", "a lost weight of one layer", lambda p: [p.tensors.pop(n) for n in list(p.tensors) if n.startswith(Q)],
     "missing tensor", Q),
]
WITH_ORIGINAL = [
    ("hf", "q and k exchanged", lambda p: (swap(f"{Q}.weight", f"{K}.weight")(p), swap(SCALE_INV, f"{K}.weight_scale_inv")(p)),
     "error", Q),
    ("mxfp4", "the order of packed codes", edit(f"{Q}.weight_packed", np.uint8, swapped_nibbles), "error", Q),
    ("channel", "scales of the next row", lambda p: p.edit(SCALE, np.uint16, lambda v: np.roll(v, 97) + 128), "error", Q),
    ("hf", "one block twice as large", edit(SCALE_INV, np.float32, lambda v: v * [1, 2, 1, 1]), "error", Q),
    ("hf", "rows moved by one", rolled_rows(f"{Q}.weight"), "error", Q),
    ("hf", "one code", edit(f"{Q}.weight", np.uint8, lambda v: np.concatenate([v[:5], v[5:6] ^ 1, v[6:]])), "recipe", Q),
    ("hf", "a norm of another model", edit("model.norm.weight", np.uint16, at(3, 0x3F80)), "copy", "model.norm.weight"),
    ("hf", "a lost norm", drop("model.norm.weight"), "missing tensor", "model.norm.weight"),
]


def test_faults(folder):
    for right, what, change, kind, name in FAULTS + WITH_ORIGINAL:
        planted = Planted(folder / right, folder / "planted")
        change(planted)
        planted.write()
        dtype = next(row[3] for row in RIGHT if row[0] == right)
        needs_original = any(row[1] == what for row in WITH_ORIGINAL)
        more = ["--original", folder / dtype] if needs_original else []
        code, findings = checked(folder / "planted", *more)
        hit = code == 1 and any(f["kind"] == kind and name in f["name"] for f in findings)
        check(f"{right}: {what} is a finding of kind {kind}", hit, (code, findings))


def test_results(folder):
    """A folder of results holds what the JSON says, and a page of it shows the findings."""
    right, _, change, kind, name = FAULTS[0]
    planted = Planted(folder / right, folder / "planted")
    change(planted)
    planted.write()
    dtype = next(row[3] for row in RIGHT if row[0] == right)
    done = run("check", folder / "planted", "--original", folder / dtype, "--out", folder / "results", "--json")
    report = json.loads(done.stdout)
    check("a folder with findings ends with 1", done.returncode == 1, done.stderr)
    for table, rows in (("findings", report["findings"]), ("errors", report["errors"])):
        with open(folder / "results/check" / f"{table}.csv", newline="") as file:
            kept = list(csv.DictReader(file))
        names = [row.get("name", row.get("weight")) for row in kept]
        check(f"the table of {table} has those of the JSON", names == [row["name"] for row in rows], (names, rows))
    works("report", folder / "results", "-o", folder / "page.html")
    page = (folder / "page.html").read_text()
    check("the page shows the finding", kind in page and name in page, len(page))


def test_published(folder):
    """Folders that were quantized in NumPy, in the layouts of other systems."""
    right = right_folders()
    for name, model in right.items():
        model.write(folder / "right")
        code, findings = checked(folder / "right")
        check(f"{name}: nothing is found", code == 0 and findings == [], findings)
        if model.original is None:
            continue
        model.write_original(folder / f"{name} original")
        code, findings = checked(folder / "right", "--original", folder / f"{name} original")
        check(f"{name}: nothing is found beside the original", code == 0 and findings == [], findings)
    for name, what, change, kind, part, needs_original in PUBLISHED_FAULTS:
        planted(right[name], change).write(folder / "planted")
        code, findings = checked(folder / "planted", *(["--original", folder / f"{name} original"] if needs_original else []))
        hit = code == 1 and any(f["kind"] == kind and part in f["name"] for f in findings)
        check(f"{name}: {what} is a finding of kind {kind}", hit, (code, findings))


def test_files(folder):
    planted = Planted(folder / "hf", folder / "shards")
    names = sorted(planted.tensors)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    (folder / "shards/model.safetensors").unlink()
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = {"weight_map": {n: f for part, f in zip(parts, files) for n in part}}

    def write(shards):
        for file in (folder / "shards").glob("*.safetensors"):
            file.unlink()
        for file, part in shards.items():
            write_safetensors(folder / "shards" / file, {n: planted.tensors[n] for n in part})
        (folder / "shards/model.safetensors.index.json").write_text(json.dumps(index))

    write(dict(zip(files, parts)))
    check("two shards are right", checked(folder / "shards") == (0, []), checked(folder / "shards"))
    write({files[0]: parts[0]})
    code, findings = checked(folder / "shards")
    check("a missing shard", code == 1 and any(f["kind"] == "files" and files[1] in f["text"] + f["name"] for f in findings), findings)
    write({files[0]: parts[0], files[1]: parts[1] + parts[0][:1]})
    code, findings = checked(folder / "shards")
    check("a tensor in two shards", code == 1 and any(f["kind"] == "files" and parts[0][0] in f["text"] for f in findings), findings)
    write(dict(zip(files, parts)))
    (folder / "shards" / files[1]).write_bytes((folder / "shards" / files[1]).read_bytes()[:5000])
    code, findings = checked(folder / "shards")
    check("a truncated shard", code == 1 and any(f["kind"] == "files" and files[1] in f["text"] for f in findings), findings)
    refused("a model that is not quantized", run("check", folder / "BF16"), "not quantized")
    refused("no folder", run("check", folder / "nothing"), "nothing")


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        test_published(folder)
        make_right(folder)
        test_faults(folder)
        test_results(folder)
        test_files(folder)
    finish()


main()
