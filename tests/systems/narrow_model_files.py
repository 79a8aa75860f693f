"""Models in MXFP8, MXFP6, MXFP4 and NVFP4, quantized by `fp8lab quantize`, loaded by the packages that serve them.

usage: narrow_model_files.py FP8LAB [LAYOUT or ModelOpt CONFIGURATION ...]

A tiny Llama (gpt-oss: a tiny GptOss) with random weights. compressed-tensors, torchao, gpt-oss: transformers loads the
folder with no missing and no unexpected key, and every weight that it computes with is that of `fp8lab dequantize`.
modelopt: the folder equals, byte for byte, what the package's own export of the same model writes, input scales too.
Skips with exit code 77 where the packages are missing (./dev torch installs them).
"""

import json
import sys
import tempfile
from pathlib import Path

from model_files import (check, folders, load, load_file, make_model, record_inputs, run, there_and_back, torch,
                         transformers)
import model_files

from transformers import AutoModelForCausalLM

CASES = [  # layout, recipe, calibrated
    ("compressed-tensors", "compressed-tensors-nvfp4-bf16", False),
    ("compressed-tensors", "compressed-tensors-nvfp4-bf16", True),
    ("compressed-tensors", "mxfp4", False),
    ("compressed-tensors", "mxfp6-e2m3", False),
    ("compressed-tensors", "ocp-mxfp8", False),
    ("compressed-tensors", "compressed-tensors-mxfp4-bf16", False),
    ("compressed-tensors", "compressed-tensors-mxfp6-bf16", False),
    ("compressed-tensors", "compressed-tensors-mxfp8-bf16", False),
    ("torchao", "torchao-mxfp8-rceil", False),
    ("torchao", "torchao-mxfp4-rceil", False),
    ("torchao", "torchao-nvfp4", False),
]
EXPORTS = [  # ModelOpt's configuration, our recipe, calibrated, element type
    ("FP8_DEFAULT_CFG", "modelopt", True, torch.float32),
    ("FP8_DEFAULT_CFG", "modelopt-bf16", True, torch.bfloat16),
    ("FP8_PER_CHANNEL_PER_TOKEN_CFG", "modelopt-per-channel", False, torch.float32),
    ("FP8_PER_CHANNEL_PER_TOKEN_CFG", "modelopt-per-channel", False, torch.bfloat16),
    ("NVFP4_DEFAULT_CFG", "modelopt-nvfp4", True, torch.bfloat16),
    ("MXFP8_DEFAULT_CFG", "modelopt-mxfp8", False, torch.bfloat16),
    ("MXFP8_DEFAULT_CFG", "modelopt-mxfp8", False, torch.float32),
    ("MXFP4_DEFAULT_CFG", "modelopt-mxfp4", False, torch.bfloat16),
]


def floats_of(folder):
    return {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}


def tokens_of(vocabulary=96):
    return torch.randint(0, vocabulary, (2, 24), generator=torch.Generator().manual_seed(1))


def plain(module):
    weight = module.weight
    return weight.dequantize() if type(weight).__name__ in ("MXTensor", "NVFP4Tensor") else weight


@torch.no_grad()
def try_llama(root, layout, recipe, calibrated):
    label = f"{layout} {recipe}{' calibrated' if calibrated else ''}"
    source, _, back = folders(root)
    model = make_model(source, torch.bfloat16, False)
    tokens = tokens_of()
    want = model(tokens).logits.double()
    loaded = there_and_back(label, root, model, tokens, layout, recipe, "bf16", calibrated)
    floats = floats_of(back)
    linears = {n: m for n, m in loaded.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in n}
    check(f"{label}: all linear layers", len(linears) == model_files.LINEARS, len(linears))
    if layout == "compressed-tensors":  # it decompresses on its first use
        loaded.eval()(tokens)
    for name, module in linears.items():
        got, expected = plain(module).float(), floats[f"{name}.weight"].float()
        # compressed-tensors multiplies in BF16, scale by scale.
        close = torch.allclose(got, expected, rtol=2**-6 if layout == "compressed-tensors" else 0, atol=0)
        check(f"{label}: {name} is what dequantize gives", close, (got - expected).abs().max())
    if layout == "torchao":  # its products need a GPU
        for module in linears.values():
            module.weight = torch.nn.Parameter(plain(module).to(torch.bfloat16), requires_grad=False)
    far = float((loaded.eval()(tokens).logits.double() - want).norm() / want.norm())
    check(f"{label}: logits", 1e-3 < far < 0.5, far)
    print(f"{label}: {len(linears)} layers, logits {far:.4f} from the float model's", flush=True)


@torch.no_grad()
def try_gpt_oss(root):
    from transformers import GptOssConfig, GptOssForCausalLM
    torch.manual_seed(5)
    config = GptOssConfig(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16,
                          num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                          dtype=torch.bfloat16, initializer_range=0.05)
    source, target, back = folders(root)
    GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(source)
    run("quantize", source, "-o", target, "--recipe", "mxfp4", "--layout", "gpt-oss", "--rule", "linear")
    run("dequantize", target, "-o", back)
    loaded, info = AutoModelForCausalLM.from_pretrained(target, output_loading_info=True, dtype="auto")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(f"gpt-oss: no {kind}", not info[kind], info[kind])
    floats, original, experts = floats_of(back), floats_of(source), 0
    for name, got in loaded.state_dict().items():
        check(f"gpt-oss: {name} is what dequantize gives", torch.equal(got, floats[name]), name)
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts += 1
            check(f"gpt-oss: {name} is MXFP4", not torch.equal(got, original[name]), name)
        else:
            check(f"gpt-oss: {name} stays", torch.equal(got, original[name]), name)
    check("gpt-oss: two experts a layer", experts == 4, experts)
    print(f"gpt-oss mxfp4: {experts} tensors of experts", flush=True)


@torch.no_grad()
def try_export(root, configuration, recipe, calibrated, dtype):
    """What ModelOpt's own export of the same model writes."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    label = f"modelopt {configuration} {recipe} {str(dtype)[6:]}"
    source, target, theirs = (root / part for part in ("source", "target", "theirs"))
    model = make_model(source, dtype, False)
    tokens = tokens_of()
    more = []
    if calibrated:
        record_inputs(model, tokens, root / "samples.safetensors")
        more = ["--calibration", root / "samples.safetensors"]
    model.config.architectures = ["LlamaForCausalLM"]
    quantized = mtq.quantize(model, getattr(mtq, configuration), lambda m: m(tokens))
    export_hf_checkpoint(quantized, dtype=dtype, export_dir=theirs)
    run("quantize", source, "-o", target, "--recipe", recipe, "--layout", "modelopt", "--rule", "linear", *more)
    ours, expected = floats_of(target), floats_of(theirs)
    check(f"{label}: names", set(ours) == set(expected), set(ours) ^ set(expected))
    differing = []
    for name in sorted(set(ours) & set(expected)):
        a, b = ours[name].contiguous(), expected[name].contiguous()
        same = a.dtype == b.dtype and a.shape == b.shape
        if not same or not torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)):
            differing.append((name, str(a.dtype), str(b.dtype), tuple(a.shape), tuple(b.shape)))
    check(f"{label}: {len(differing)} of {len(ours)} tensors differ", not differing, differing[:4])
    for file, part in (("config.json", "quantization_config"), ("hf_quant_config.json", None)):
        a, b = (json.loads((folder / file).read_text()) for folder in (target, theirs))
        a, b = (a[part], b[part]) if part else (a, b)
        for one in (a, b):  # an embedding is no linear layer: naming it among those that stay changes nothing
            for key in (one, one.get("quantization", {})):
                for kept in ("ignore", "exclude_modules"):
                    key[kept] = sorted(set(key.get(kept, [])) - {"model.embed_tokens"})
        check(f"{label}: {file}", a == b, (a, b))
    print(f"{label}: {len(ours)} tensors, {len(differing)} differ", flush=True)


def main():
    chosen = sys.argv[2:]
    transformers.logging.set_verbosity_error()
    tries = [(try_llama, case) for case in CASES] + [(try_gpt_oss, ())] + [(try_export, case) for case in EXPORTS]
    tries = [(f, c) for f, c in tries if not chosen or (c and c[0] in chosen)]
    for function, case in tries:
        with tempfile.TemporaryDirectory() as name:
            function(Path(name), *case)
    print(f"{len(tries)} models, {model_files.failures} failures")
    sys.exit(1 if model_files.failures else 0)


if __name__ == "__main__":
    main()
