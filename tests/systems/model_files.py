"""A tiny Llama with random weights, quantized by `fp8lab quantize`, loaded by transformers.

usage: model_files.py FP8LAB

For each layout: no missing and no unexpected key, the weights of the loaded model are code * scale, its logits are as
far from the float model's as FP8 explains, and a doubled scale would be seen. Runs in the Python of
$FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev torch` makes it); skips with exit code 77 where there is none.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or HERE.parents[1] / "build/torch-venv/bin/python"
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on a CPU every layout is loaded for its values alone
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM  # noqa: E402

TOOL = sys.argv[1]
LINEARS = 14  # of two layers
# Inputs have as few mantissa bits as weights, so that casting them moves logits about as far as casting the weights
# does. compressed-tensors casts them on a CPU too; the others do not, and are off by the model's own rounding alone.
CASTS_INPUTS = {"compressed-tensors"}
MOST_BY_ROUNDING = {torch.bfloat16: 0.02, torch.float32: 1e-4}
failures = 0

CASES = [  # layout, recipe, element type, tied embeddings, calibrated
    ("compressed-tensors", "llm-compressor-bf16", torch.bfloat16, False, False),
    ("compressed-tensors", "llm-compressor", torch.float32, True, False),
    ("compressed-tensors", "deepseek-v3", torch.bfloat16, False, False),
    ("compressed-tensors", "inference-static", torch.float32, False, True),
    ("compressed-tensors", "vllm-per-tensor", torch.bfloat16, True, False),
    ("hf-fp8", "deepseek-v3", torch.bfloat16, False, False),
    ("hf-fp8", "deepseek-v3", torch.float32, True, False),
    ("hf-fp8", "modelopt", torch.float32, False, True),
    ("deepseek", "deepgemm-ue8m0", torch.bfloat16, False, False),
    ("torchao", "torchao-inference-bf16", torch.bfloat16, False, False),
]


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {str(seen)[:500]}", flush=True)


def run(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fp8lab {' '.join(map(str, arguments))} failed ({done.returncode}): {done.stderr[:400]}")


def make_model(folder, dtype, tied):
    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=96, hidden_size=256, intermediate_size=384, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied, dtype=dtype,
                         initializer_range=0.05)
    model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder, max_shard_size="700KB")
    return model.eval()


def record_inputs(model, tokens, file):
    samples = {}
    hooks = [module.register_forward_pre_hook(lambda m, x, name=name: samples.__setitem__(f"{name}.input", x[0]))
             for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    model(tokens)
    for hook in hooks:
        hook.remove()
    save_file({name: x.contiguous().clone() for name, x in samples.items()}, file)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")


def plain_weight(module):
    weight = module.weight
    return (weight.dequantize() if hasattr(weight, "dequantize") and "Float8" in type(weight).__name__ else weight).float()


def logits_of(model, layout, tokens):
    if layout == "torchao":  # its products need a GPU: its weights as floats do not
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight = torch.nn.Parameter(plain_weight(module).to(model.dtype), requires_grad=False)
    return model(tokens).logits.double()


def logits_with(source, weights, dtype, tokens):
    """Of the float model with other weights."""
    model = LlamaForCausalLM.from_pretrained(source, dtype=dtype).eval()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            module.weight.data = weights[f"{name}.weight"].to(dtype)
    return model(tokens).logits.double()


def distance(a, b):
    return float((a - b).norm() / b.norm())


def double_scales(folder):
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        changed = {k: v * 2 if "weight_scale" in k and "layers.0.mlp" in k else v for k, v in tensors.items()}
        from safetensors import safe_open
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        save_file(changed, file, metadata)


def folders(root):
    """The model, its quantized form and what `dequantize` makes of that."""
    return (root / part for part in ("source", "target", "back"))


def there_and_back(label, root, model, tokens, layout, recipe, dtype, calibrated):
    """Quantizes and dequantizes the folder of the model; the quantized one, loaded with every key."""
    source, target, back = folders(root)
    more = []
    if calibrated:
        record_inputs(model, tokens, root / "samples.safetensors")
        more = ["--calibration", root / "samples.safetensors"]
    run("quantize", source, "-o", target, "--recipe", recipe, "--layout", layout, "--rule", "linear", *more)
    run("dequantize", target, "-o", back, "--dtype", dtype)
    loaded, info = load(target)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(f"{label}: no {kind}", not info[kind], info[kind])
    return loaded


@torch.no_grad()
def try_case(root, layout, recipe, dtype, tied, calibrated):
    label = f"{layout} {recipe} {str(dtype)[6:]}{' tied' if tied else ''}"
    source, target, back = folders(root)
    model = make_model(source, dtype, tied)
    check(f"{label}: the source has shards", (source / "model.safetensors.index.json").is_file())
    tokens = torch.randint(0, 96, (2, 24), generator=torch.Generator().manual_seed(1))
    want = model(tokens).logits.double()
    loaded = there_and_back(label, root, model, tokens, layout, recipe, "f32", calibrated)
    got = logits_of(loaded.eval(), layout, tokens)
    floats = {k: v for file in back.glob("*.safetensors") for k, v in load_file(file).items()}
    linears = {n: m for n, m in loaded.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in n}
    check(f"{label}: all linear layers", len(linears) == LINEARS, len(linears))
    for name, module in linears.items():
        expected = floats[f"{name}.weight"].to(module.weight.dtype).float()
        # compressed-tensors multiplies in the type of the model's parameters.
        close = torch.allclose(plain_weight(module), expected, rtol=2**-7 if dtype == torch.bfloat16 else 2**-22, atol=0)
        check(f"{label}: {name} is code * scale", close, (plain_weight(module) - expected).abs().max())
    explained = logits_with(source, floats, dtype, tokens)
    by_weights = distance(explained, want)
    near, far = distance(got, explained), distance(got, want)
    bound = 1.5 * by_weights if layout in CASTS_INPUTS else MOST_BY_ROUNDING[dtype]
    check(f"{label}: logits are those of code * scale", near < bound, (near, bound))
    check(f"{label}: FP8 weights are no disaster", 1e-3 < by_weights < 0.15, by_weights)
    check(f"{label}: logits", far < 2 * by_weights, (far, by_weights))
    double_scales(target)
    wrong = distance(logits_of(load(target)[0].eval(), layout, tokens), want)
    check(f"{label}: a doubled scale is seen", wrong > 4 * by_weights, wrong)
    print(f"{label}: logits {far:.4f} from the float model's ({by_weights:.4f} by weights alone), {near:.5f} from those "
          f"of code * scale, {wrong:.3f} with a doubled scale", flush=True)


def record_caches(model, tokens, file):
    """Outputs of k_proj and v_proj, before positions are rotated into keys."""
    samples = {}
    hooks = [module.register_forward_hook(lambda m, x, y, name=name: samples.__setitem__(f"{name}.output", y))
             for name, module in model.named_modules() if name.endswith(("k_proj", "v_proj"))]
    model(tokens)
    for hook in hooks:
        hook.remove()
    save_file({name: x.contiguous().clone() for name, x in samples.items()}, file)
    return samples


@torch.no_grad()
def try_cache(root, kind):
    """Scales of the KV cache: compressed-tensors computes the same from the same extremes, and transformers loads all."""
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils import calculate_qparams

    label = f"KV cache by {kind}"
    source, target, _ = folders(root)
    model = make_model(source, torch.float32, False)
    samples = record_caches(model, torch.randint(0, 96, (2, 24), generator=torch.Generator().manual_seed(1)), root / "samples.safetensors")
    run("quantize", source, "-o", target, "--recipe", "llm-compressor", "--layout", "compressed-tensors", "--rule", "linear", "--kv-cache", kind,
        "--calibration", root / "samples.safetensors")
    written = {k: v for file in target.glob("*.safetensors") for k, v in load_file(file).items() if k.endswith(("k_scale", "v_scale"))}
    check(f"{label}: a scale of each projection", len(written) == len(samples) == 4, written.keys())
    args = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="tensor" if kind == "tensor" else "attn_head")
    for name, values in samples.items():
        heads = values.float().reshape(-1, model.config.num_key_value_heads if kind == "head" else 1, values.shape[-1] // (
            model.config.num_key_value_heads if kind == "head" else 1))
        low, high = (torch.stack([extreme(heads[:, h]) for h in range(heads.shape[1])]) for extreme in (torch.min, torch.max))
        scale, _ = calculate_qparams(low, high, args)
        attention, part = name.removesuffix("_proj.output").rsplit(".", 1)
        got = written[f"{attention}.{part}_scale"]
        check(f"{label}: {attention}.{part}_scale is compressed-tensors' own", torch.equal(got.flatten(), scale.flatten()), (got, scale))
    loaded, info = load(target)
    for wrong in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(f"{label}: no {wrong}", not info[wrong], info[wrong])
    attention = loaded.model.layers[0].self_attn
    check(f"{label}: the loaded scale", torch.equal(attention.k_scale.float().flatten(), written["model.layers.0.self_attn.k_scale"].flatten()),
          attention.k_scale)
    print(f"{label}: {len(written)} scales are those of compressed-tensors, loaded by transformers", flush=True)


def main():
    for kind in ("tensor", "head"):
        with tempfile.TemporaryDirectory() as name:
            try_cache(Path(name), kind)
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            try_case(Path(name), *case)
    print(f"{len(CASES)} models, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
