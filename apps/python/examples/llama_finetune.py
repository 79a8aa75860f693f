"""A small Llama fine-tuned for 50 steps under five recipes: loss curves, and what each recipe costs.

usage: python llama_finetune.py [--steps 50] [--out FOLDER]

The model is randomly initialised (nothing is downloaded) and first trained in FP32 for some steps;
every recipe goes on from there with the same batches. FOLDER gets losses.csv (a column a recipe) and
layers.csv (what the last step's casts took from each operand).
"""

import argparse
import copy
import csv
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fp8lab.torch

RECIPES = {
    "fp32": {},
    "te-current": {"recipe": "te-current"},
    "te-delayed": {"recipe": "te-delayed"},
    "deepgemm": {"recipe": "deepgemm"},
    "naive": {"recipe": "naive"},  # a cast without scales
}
VOCABULARY = 256


def make_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, use_cache=False,
        )
    )


def batch(step):
    """Sequences with something to learn: token t + 1 is an affine function of t, at times noise."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(0, VOCABULARY, (4, 64), generator=generator)
    noise = torch.rand(4, 64, generator=generator) < 0.1
    for t in range(1, 64):
        ids[:, t] = torch.where(noise[:, t], ids[:, t], (5 * ids[:, t - 1] + 3) % VOCABULARY)
    return ids


def train(model, steps, first):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(first, first + steps):
        ids = batch(step)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    base = make_model()
    train(base, 60, first=1000)

    curves, figures = {}, []
    for name, how in RECIPES.items():
        model = copy.deepcopy(base)
        if how:
            fp8lab.torch.convert(model, **how)
        curves[name] = train(model, options.steps, first=0)
        if how:
            with fp8lab.torch.record(model) as recording:
                ids = batch(options.steps)
                model(input_ids=ids, labels=ids).loss.backward()
            figures += [(name, figure, value) for figure, value in recording.scalars().items()]

    print(f"{'step':>6}" + "".join(f"{name:>14}" for name in curves))
    shown = sorted({*range(0, options.steps, max(1, options.steps // 5)), options.steps - 1})
    for step in shown:
        print(f"{step:>6}" + "".join(f"{curve[step]:>14.4f}" for curve in curves.values()))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        with open(options.out / "losses.csv", "w", newline="") as file:
            csv.writer(file).writerows([["step", *curves], *zip(range(options.steps), *curves.values())])
        with open(options.out / "layers.csv", "w", newline="") as file:
            csv.writer(file).writerows([["recipe", "figure", "value"], *figures])
    if not all(curve[-1] < curve[0] for curve in curves.values()):
        raise SystemExit("expected every curve to fall")


if __name__ == "__main__":
    main()
