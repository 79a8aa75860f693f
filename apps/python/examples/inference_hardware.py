"""The logits of one model on three chips: the same FP8 codes, three accumulators.

usage: python inference_hardware.py

A randomly initialised Llama (nothing is downloaded) runs under TorchAO's row-wise FP8 inference with
the sums of Ada's, Hopper's and Blackwell's tensor cores, and with exact ones. Only the accumulator
differs, so it causes all differences that are printed.
"""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fp8lab.torch

HARDWARE = {"Ada (sm89)": "sm89", "Hopper (sm90)": "sm90", "Blackwell (sm100)": "sm100"}


def make_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128, use_cache=False,
    )
    return LlamaForCausalLM(config).bfloat16().eval()


def logits_on(model, hardware, ids):
    converted = fp8lab.torch.convert(copy.deepcopy(model), "torchao-inference", hardware=hardware)
    return converted(input_ids=ids).logits.double()


@torch.no_grad()
def main():
    model = make_model()
    ids = torch.randint(0, 512, (2, 64), generator=torch.Generator().manual_seed(1))
    exact = logits_on(model, "exact", ids)
    plain = model(input_ids=ids).logits.double()
    casts = float((exact - plain).norm() / plain.norm())
    print(f"the casts alone, with exact sums, move the logits by {casts:.2e} (relative L2)")
    print(f"{'beside exact sums':<20}{'relative L2':>14}{'largest':>12}{'other top token':>18}")
    errors = {}
    for name, hardware in HARDWARE.items():
        logits = logits_on(model, hardware, ids)
        errors[hardware] = float((logits - exact).norm() / exact.norm())
        largest = float((logits - exact).abs().max())
        other = float((logits.argmax(-1) != exact.argmax(-1)).double().mean())
        print(f"{name:<20}{errors[hardware]:>14.2e}{largest:>12.2e}{other:>17.1%}")
    if not errors["sm100"] < errors["sm90"]:
        raise SystemExit("expected Blackwell's wide accumulator to be nearer to exact sums than Hopper's")


if __name__ == "__main__":
    main()
