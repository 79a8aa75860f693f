"""Functions of fp8lab.torch under a floating-point mode: usage: float_mode_jobs_torch.py MODE, as float_mode_jobs.py."""

import ctypes
import hashlib
import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import float_mode_jobs as modes  # noqa: E402
import torch  # noqa: E402

import fp8lab.torch as ft  # noqa: E402

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(1)


def drawn(*shape):
    return torch.randn(*shape, generator=generator)


X = drawn(64, 128)
X[::3] *= 2.0**-125
W, B, DY = drawn(64, 128), drawn(64), drawn(64, 64)
A8, W8 = ((x * 4).clamp(-448, 448).to(torch.float8_e4m3fn) for x in (X, W))
ONE, ROWS, COLUMNS = torch.tensor(0.3), drawn(64, 1).exp(), drawn(1, 64).exp()
QKV = [drawn(1, 2, 32, 32) for _ in range(3)]
ENDS = torch.tensor([32, 64], dtype=torch.int32)
TWO = torch.stack([W, W.flip(0)])
RECIPES = ("deepgemm", "te-current", "te-delayed", "mxfp8-rceil", "nvfp4", "ms-amp", "torchao-rowwise", "bf16", "fp32")
#: What has no job, and why.
OTHERS = {
    **dict.fromkeys(["PLATFORMS", "Platform", "decisions", "Decisions", "HighPrecisionWarning", "Flops", "flops",
                     "layers", "restore", "histories", "load_histories"], "no numbers, or copies and counts"),
    **dict.fromkeys(["Evaluation", "LayerCost", "Sensitivity", "LayerDifference", "LayerStatistics", "ModelComparison", "OperandStatistics",
                     "KillEvent", "RunStopped", "StepFigures"], "plain values"),
    **dict.fromkeys(["autocast", "Fp8Conv1D"], "the layer of convert under another name"),
    **dict.fromkeys(["Recording", "record", "compare", "log", "watch", "write_comparison", "write_statistics",
                     "evaluate", "sensitivity", "KillSwitch"],
                    "figures about tensors, some by torch's own sums, which follow the caller's mode"),
    "calibrate": "the plain product is torch's own",
    "reduced_amaxes": "needs several processes; it takes maxima",
}


def model_of(recipe):
    model = torch.nn.Sequential(torch.nn.Linear(128, 64))
    with torch.no_grad():
        model[0].weight.copy_(W)
        model[0].bias.copy_(B)
    return ft.convert(model, recipe)


MODELS = {name: model_of(name) for name in RECIPES}


def words(x):
    return x.detach().contiguous().view(torch.uint8).numpy()


def passes(model):
    x = X.clone().requires_grad_()
    y = model(x)
    y.backward(DY)
    return [words(one) for one in (y, x.grad, model[0].weight.grad, model[0].bias.grad)]


def layers_of_models():
    for model in MODELS.values():
        yield passes(model)


def scaled_products():
    for fast in (True, False):
        how = {"use_fast_accum": fast, "out_dtype": torch.bfloat16}
        yield words(ft.scaled_mm(A8, W8.t(), ONE, ONE, **how))
        yield words(ft.scaled_mm(A8, W8.t(), ROWS, COLUMNS, bias=B.bfloat16(), **how))
    with ft.emulate_scaled_mm():
        yield words(torch._scaled_mm(A8, W8.t(), ONE, ONE, out_dtype=torch.float32))
        weights = torch.stack([W8, W8.flip(0)]).mT
        scales = ROWS.flatten(), COLUMNS.expand(2, -1).contiguous()
        yield words(torch._scaled_grouped_mm(A8, weights, *scales, ENDS, out_dtype=torch.bfloat16))


def attention():
    q, k, v = (x.clone().requires_grad_() for x in QKV)
    o = ft.sdpa(q, k, v)
    o.backward(QKV[0])
    yield [words(x) for x in (o, q.grad, k.grad, v.grad)]


def groups():
    yield words(ft.grouped_mm(X, TWO.transpose(-2, -1), ENDS, recipe="te-current"))


def casts():
    for recipe in ("deepgemm", "te-current", "mxfp8-rceil"):
        yield [words(x) for x in ft.quantize(X, recipe) if isinstance(x, torch.Tensor)]


JOBS = {
    "convert": layers_of_models, "Fp8Linear": layers_of_models, "scaled_mm": scaled_products,
    "emulate_scaled_mm": scaled_products, "sdpa": attention, "grouped_mm": groups, "quantize": casts,
}  # fmt: skip


def main(mode):
    warnings.simplefilter("ignore")
    found = {}
    for function in dict.fromkeys(JOBS.values()):
        modes.enter(mode)
        pieces = []
        for piece in function():
            pieces.append(piece)
        modes.libm.fesetenv(ctypes.c_void_p(-1))
        digest = hashlib.sha256()
        modes.feed(digest, pieces)
        for name, one in JOBS.items():
            if one is function:
                found[name] = digest.hexdigest()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
