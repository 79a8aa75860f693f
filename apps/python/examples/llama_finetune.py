"""A small Llama fine-tuned for 50 steps under five recipes: loss curves, and what each recipe costs.

usage: python llama_finetune.py [--steps 50] [--out FOLDER]

The model is randomly initialised (nothing is downloaded) and first trained in FP32 for some steps;
every recipe continues from there with the same batches. FOLDER gets a result folder "finetune" with the
loss curves, and one per recipe with the errors of the last step's casts in each operand:
`fp8lab report FOLDER -o report.html` shows them.
"""

import argparse
import copy
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fp8lab.torch
from fp8lab.results import Column, Curve, Plot, Table, write

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


def write_curves(folder, curves, steps, seconds):
    """The losses as a table, and their plot: each recipe's distance from FP32 shows what it costs."""
    columns = [Column("step", "1", "updates so far")]
    columns += [Column(name, "nats", f"loss of the step's batch under {name}") for name in curves]
    data = {"step": np.arange(steps), **{name: np.array(curve) for name, curve in curves.items()}}
    title = f"Loss of a Llama fine-tuned for {steps} steps"
    last = max(1, steps // 5)
    means = {name: float(np.mean(curve[-last:])) for name, curve in curves.items()}
    findings = [
        f"Mean loss of the last {last} steps under {name}: {mean:.4f}, {mean - means['fp32']:+.4f} beside FP32."
        for name, mean in means.items()
        if name != "fp32"
    ]
    at = list(range(steps))
    lines = [Curve(name, at, curve) for name, curve in curves.items()]
    beside = [
        Curve(name, at, [loss - plain for loss, plain in zip(curve, curves["fp32"])])
        for name, curve in curves.items()
        if name != "fp32"
    ]
    write(
        folder, [Table("losses", title, tuple(columns), data)], experiment="finetune",
        plots=[
            Plot("loss", title, "step", "loss (nats)", lines),
            Plot("beside_fp32", "What each recipe costs", "step", "loss minus that of FP32 (nats)", beside),
        ],
        findings=findings,
        question="Which recipes fine-tune a small Llama as FP32 does?", parameters={"steps": steps},
        command=f"python llama_finetune.py --steps {steps} --out {folder}", duration_seconds=seconds,
        threads=torch.get_num_threads(),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    base = make_model()
    train(base, 60, first=1000)

    curves = {}
    for name, how in RECIPES.items():
        model = copy.deepcopy(base)
        if how:
            fp8lab.torch.convert(model, **how)
        curves[name] = train(model, options.steps, first=0)
        if how and options.out:
            with fp8lab.torch.record(model) as recording:
                ids = batch(options.steps)
                model(input_ids=ids, labels=ids).loss.backward()
            fp8lab.torch.write_statistics(recording.statistics(), options.out, name)

    print(f"{'step':>6}" + "".join(f"{name:>14}" for name in curves))
    shown = sorted({*range(0, options.steps, max(1, options.steps // 5)), options.steps - 1})
    for step in shown:
        print(f"{step:>6}" + "".join(f"{curve[step]:>14.4f}" for curve in curves.values()))
    if options.out:
        write_curves(options.out, curves, options.steps, time.monotonic() - started)
        print(f"fp8lab report {options.out} -o report.html shows the curves and every layer")
    if not all(curve[-1] < curve[0] for curve in curves.values()):
        raise SystemExit("expected every curve to fall")


if __name__ == "__main__":
    main()
