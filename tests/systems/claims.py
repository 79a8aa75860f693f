"""What claims about installed systems rest on: each value of experiments/claims/recorded.inc, done again.

usage: claims.py [--write]

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev torch` makes it), and skips
with exit code 77 where there is none. --write writes the file anew: read what changed, since verdicts may.
"""

import os
import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parents[1] / "experiments/claims/recorded.inc"
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or HERE.parents[1] / "build/torch-venv/bin/python"
try:
    import torch
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

warnings.filterwarnings("ignore")
sys.path.insert(0, str(HERE))
import torchao  # noqa: E402
from systems import torchao_blockwise, torchao_mx, torchao_training  # noqa: E402

ROW = re.compile(r'\{"([^"]+)", "([^"]+)", ([^}]+)\},')
E4M3_MAX = 448.0


def reach(quantize, rows=256, columns=1024):
    """How many elements, in memory order, the first code depends on."""
    x = torch.ones(rows, columns)
    code = quantize(x)["x"][0, 0].item()

    def matters(position):
        changed = x.clone()
        changed.view(-1)[position] = 64.0
        return quantize(changed)["x"][0, 0].item() != code

    places = [1 << power for power in range(1, 19) if 1 << power <= x.numel()]
    return max([1, *(place for place in places if matters(place - 1))])


class GuideLinear(torch.nn.Module):
    """The FP8 guide's FP8Linear, without its bias: casts that scale and clamp, weights by `.data`, delayed scales."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.scale_x = self.scale_w = 1.0

    def forward(self, x):
        self.operands = [(t * s).clamp(-E4M3_MAX, E4M3_MAX)
                         for t, s in ((x, self.scale_x), (self.weight.data, self.scale_w))]
        y = torch.matmul(self.operands[0], self.operands[1].T) / (self.scale_x * self.scale_w)
        self.scale_x = E4M3_MAX / x.abs().max().item()
        self.scale_w = E4M3_MAX / self.weight.data.abs().max().item()
        return y


def guide_gemm(x, weight, group=128):
    """The FP8 guide's deepseek_fp8_gemm, as far as anything of it reaches the result."""
    for t in (x, weight):
        groups = t.reshape(t.shape[0], -1, group)
        scale = E4M3_MAX / groups.abs().amax(dim=2, keepdim=True).clamp(min=1e-12)
        (groups * scale).clamp(-E4M3_MAX, E4M3_MAX)
    return x @ weight.T


def guide_values():
    torch.manual_seed(0)
    x, weight = torch.randn(32, 256), torch.randn(64, 256) * (2 / 256) ** 0.5
    layer = GuideLinear(weight)
    for _ in range(2):
        layer(x.requires_grad_()).sum().backward()
    values = torch.cat([t.detach().flatten() for t in layer.operands])
    on_grid = values == values.to(torch.float8_e4m3fn).float()
    yield "linear_operands_in_e4m3", on_grid.float().mean().item()
    yield "linear_weight_gradients", 0 if layer.weight.grad is None else layer.weight.grad.count_nonzero().item()
    yield "gemm_outputs_changed", (guide_gemm(x, weight) != x @ weight.T).sum().item()
    e4m3 = torch.tensor([450.0, 1000.0]).to(torch.float8_e4m3fn).float().tolist()
    yield "to_e4m3_of_450", e4m3[0]
    yield "to_e4m3_of_1000", e4m3[1]
    yield "to_e5m2_of_1e6_is_infinite", torch.tensor(1e6).to(torch.float8_e5m2).float().isinf().item()


def torchao_values():
    rowwise, tensorwise = (torchao_training("activation", "", name) for name in ("rowwise", "tensorwise"))
    torch.manual_seed(0)
    scale = rowwise(torch.randn(8, 64) * 8.0 ** torch.arange(8).reshape(-1, 1))["scale"]
    yield "rowwise_scales", scale.numel()
    yield "rowwise_distinct_scales", scale.unique().numel()
    yield "zero_amax_scale", tensorwise(torch.zeros(8, 64))["scale"].item()
    for name, cast in (("tensorwise", tensorwise), ("rowwise", rowwise), ("blockwise", torchao_blockwise("activation")),
                       ("mxfp8", torchao_mx("FLOOR"))):
        yield f"reach_{name}", reach(cast)


def main():
    got = {name: (f"PyTorch {torch.__version__.split('+')[0]}", float(value)) for name, value in guide_values()}
    got |= {name: (f"torchao {torchao.__version__.split('+')[0]}", float(value)) for name, value in torchao_values()}
    if sys.argv[1:] == ["--write"]:
        RECORDED.write_text("// clang-format off\n// What installed systems did; tests/systems/claims.py writes and checks this.\n" + "".join(
            f'{{"{system}", "{name}", {value!r}}},\n' for name, (system, value) in got.items()))
        return
    kept = {name: (system, float(value)) for system, name, value in ROW.findall(RECORDED.read_text())}
    wrong = [f"{name}: recorded {kept.get(name)}, the system gives {got.get(name)}"
             for name in sorted(kept.keys() | got.keys()) if kept.get(name) != got.get(name)]
    print(f"values {len(got)} differences {len(wrong)}")
    if wrong or len(got) < 13:
        sys.exit("\n".join(wrong))


main()
