"""The registered operators as torch checks them, and the package's seams."""

import json
import subprocess
import sys

import pytest
import torch
from conftest import assert_same_bits, log_normal

import fp8lab
import fp8lab.torch
from fp8lab.torch._device import require_cpu
from fp8lab.torch._plan import plan_of, text_of

EMPTY = torch.empty(0, dtype=torch.int32)


def arguments(recipe, bias=True, out=32, k=64, dtype=torch.float32):
    text = text_of(fp8lab.linear_recipe(recipe))
    weight = log_normal(out, k, seed=1)
    casts = plan_of(text).casts
    codes = torch.ops.fp8lab.quantize_weight(weight, casts["weight"].initial_past(), text)[:4]
    return (
        log_normal(2, 32, k).to(dtype).requires_grad_(),
        weight.to(dtype).requires_grad_(),
        log_normal(out, seed=2).to(dtype).requires_grad_() if bias else None,
        *codes,
        casts["activation"].initial_past(),
        casts["gradient"].initial_past(),
        text,
    )


@pytest.mark.parametrize(
    "recipe", ["te-current", "te-delayed", "deepgemm", "te-mxfp8", "te-nvfp4", "mxfp4", "bf16", "torchao-rowwise-hp-wgrad"]
)
def test_linear_passes_opcheck(recipe):
    torch.library.opcheck(torch.ops.fp8lab.linear.default, arguments(recipe))
    torch.library.opcheck(torch.ops.fp8lab.linear.default, arguments(recipe, False, 24, 40, torch.bfloat16))
    detached = (t.detach() if isinstance(t, torch.Tensor) else t for t in arguments(recipe))
    torch.library.opcheck(torch.ops.fp8lab.linear.default, (*detached, False))


@pytest.mark.parametrize("recipe", ["te-current", "te-delayed", "deepgemm", "te-nvfp4", "bf16"])
def test_the_other_operators_pass_opcheck(recipe):
    x, weight, _, *codes, past, gradient_past, text = (
        t.detach() if isinstance(t, torch.Tensor) else t for t in arguments(recipe)
    )
    weight_past = plan_of(text).casts["weight"].initial_past()
    torch.library.opcheck(torch.ops.fp8lab.quantize_weight.default, (weight, weight_past, text))
    if weight_past.numel():
        torch.library.opcheck(torch.ops.fp8lab.past_of_pass.default, (x, weight_past))
    _, *turned, _ = torch.ops.fp8lab.linear(x, weight, None, *codes, past, gradient_past, text)
    dy = log_normal(2, 32, 32, seed=4)
    for needs in ((True, True, True), (True, False, False), (False, True, False)):
        given = (dy, x, weight, *turned, *codes[2:], gradient_past, text, 64, *needs)
        torch.library.opcheck(torch.ops.fp8lab.linear_backward.default, given)


@pytest.mark.parametrize("out", ["f32", "bf16", "e4m3fn"])
@pytest.mark.parametrize("platform", ["h100", "rtx4060", "b200"])
def test_scaled_mm_passes_opcheck(out, platform):
    a = log_normal(16, 64).to(torch.float8_e4m3fn).view(torch.uint8)
    b = log_normal(32, 64, seed=1).to(torch.float8_e4m3fn).view(torch.uint8).t()
    one = torch.tensor(0.5)
    given = (a, b, one, one, log_normal(32), one, f"e4m3fn e4m3fn {out}", False, platform, 1, "")
    torch.library.opcheck(torch.ops.fp8lab.scaled_mm.default, given)


def test_quantize_has_the_library_s_codes():
    x = log_normal(48, 160)
    for preset, role in (("deepgemm", "weight"), ("te-current", "gradient"), ("torchao-rowwise", "activation")):
        codes, scales, inverse = fp8lab.torch.quantize(x, preset, role)
        expected = fp8lab.quantize(x.numpy(), preset, role)
        assert_same_bits(codes.view(torch.uint8), torch.from_numpy(expected.codes.view("uint8")))
        assert_same_bits(scales, torch.from_numpy(expected.scales))
        assert_same_bits(inverse, torch.from_numpy(expected.inverse_scales))
    recipe = json.dumps(fp8lab.presets()["deepgemm"].activation.__dict__)
    torch.library.opcheck(torch.ops.fp8lab.quantize.default, (x, recipe))
    with pytest.raises(ValueError, match="recipe: expected one that uses only the current tensor, got delayed"):
        fp8lab.torch.quantize(x, "te-delayed")


def test_cuda_or_meta_tensors_are_refused():
    class OnCuda:  # no GPU is needed to see what is said
        device = torch.device("cuda:0")

    with pytest.raises(ValueError, match=r"x: expected a CPU tensor, got one on cuda:0; .* pass its \.cpu\(\)"):
        require_cpu("x", OnCuda())
    codes = torch.empty(16, 32, dtype=torch.float8_e4m3fn, device="meta")
    with pytest.raises(ValueError, match="input: expected a CPU tensor, got one on meta"):
        fp8lab.torch.scaled_mm(codes, codes.t(), torch.ones(()), torch.ones(()))
    layer = fp8lab.torch.Fp8Linear(16, 16)
    with pytest.raises(ValueError, match="x: expected a CPU tensor, got one on"):
        fp8lab.torch.quantize(torch.empty(2, 16, device="meta"))
    assert layer(torch.ones(2, 16)).shape == (2, 16)


def test_torch_is_imported_on_demand():
    done = subprocess.run(
        [sys.executable, "-c", "import fp8lab, sys; sys.exit('torch' in sys.modules)"], check=False
    )
    assert done.returncode == 0
    hidden = "import sys; sys.modules['torch'] = None\nimport fp8lab.torch"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert "ImportError: fp8lab.torch: expected PyTorch" in done.stderr
