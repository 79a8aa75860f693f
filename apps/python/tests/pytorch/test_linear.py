"""Fp8Linear against the library's own training path, bit for bit, and its state."""

import copy
import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, bits, log_normal
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import fp8lab
import fp8lab.torch
from fp8lab import _core
from fp8lab.torch import _plan

CALIBRATED = {"calibration", "momentum"}
RECIPES = [
    name
    for name in fp8lab.linear_recipes()
    if fp8lab.linear_recipe(name).activation.source not in CALIBRATED
]


def linear(recipe, out=128, k=256, bias=False, seed=3, **options):
    layer = fp8lab.torch.Fp8Linear(k, out, bias, recipe=recipe, **options)
    with torch.no_grad():
        layer.weight.copy_(log_normal(out, k, seed=seed))
        if bias:
            layer.bias.copy_(log_normal(out, seed=seed + 1))
    return layer


def step(layer, x, dy):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(dy)
    return y.detach(), x.grad, layer.weight.grad


def test_quantize_gives_fp8_codes_alone():
    with pytest.raises(ValueError, match="recipe: expected a recipe that gives FP8 codes, got e2m1"):
        fp8lab.torch.quantize(log_normal(128, 256), "mxfp4")


@pytest.mark.parametrize("name", RECIPES)
def test_steps_have_the_bits_of_the_library_s_own_layer(name):
    layer = linear(name)
    own = _core.LinearLayer(fp8lab.linear_recipe(name)._core())
    for i in range(3):
        x, dy = log_normal(128, 256, seed=10 + i), log_normal(128, 128, seed=20 + i)
        expected = own.step(x.numpy(), layer.weight.detach().numpy(), dy.numpy(), 2)
        for what, got, value in zip(("y", "dx", "dw"), step(layer, x, dy), expected):
            assert_same_bits(got, torch.from_numpy(value), f"{name} step {i} {what}")
        with torch.no_grad():
            layer.weight.add_(log_normal(128, 256, seed=30 + i), alpha=0.1)


@pytest.mark.parametrize("second", ["activation_for_wgrad", "weight_for_dgrad", "gradient_for_wgrad"])
def test_an_operand_s_second_product_has_a_recipe_of_its_own(second):
    """te-current has none: here with a scale per row and a scale that moves."""
    x, dy = log_normal(128, 256, seed=10), log_normal(128, 128, seed=20)
    plain = step(linear("te-current"), x, dy)
    role, _, product = second.partition("_for_")
    for other in ("torchao-rowwise", "te-delayed"):
        changed = {second: getattr(fp8lab.linear_recipe(other), role)}
        recipe = dataclasses.replace(fp8lab.linear_recipe("te-current"), **changed)
        layer, own = linear(recipe), _core.LinearLayer(recipe._core())
        for i in range(2):
            got = dict(zip(("fprop", "dgrad", "wgrad"), step(layer, x, dy)))
            for what, value in zip(got, own.step(x.numpy(), layer.weight.detach().numpy(), dy.numpy(), 2)):
                assert_same_bits(got[what], torch.from_numpy(value), f"{other} step {i} {what}")
            differing = {what for what, value in zip(got, plain) if not torch.equal(got[what], value)}
            assert i == 1 or differing == {product}


def test_recipes_differ():
    x = log_normal(128, 256)
    names = ("deepgemm", "te-current", "bf16", "fp32")
    outputs = {linear(name)(x).detach().numpy().tobytes() for name in names}
    assert len(outputs) == len(names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dimensions_bias_and_dtypes(dtype):
    layer = linear("te-current", out=48, k=80, bias=True).to(dtype)
    x = log_normal(2, 3, 5, 80).to(dtype).requires_grad_()
    y = layer(x)
    assert y.shape == (2, 3, 5, 48) and y.dtype == dtype
    a = fp8lab.quantize(x.detach().float().numpy().reshape(30, 80), "te-current")
    b = fp8lab.quantize(layer.weight.detach().float().numpy(), "te-current", "weight")
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3") + layer.bias.detach().float().numpy()
    rounded = torch.from_numpy(d).to(torch.bfloat16 if dtype == torch.float32 else dtype).to(dtype)
    assert_same_bits(y.reshape(30, 48), rounded)

    dy = log_normal(2, 3, 5, 48, seed=9).to(dtype)
    y.backward(dy)
    assert x.grad.shape == x.shape and x.grad.dtype == dtype
    assert layer.weight.grad.dtype == dtype and layer.bias.grad.dtype == dtype
    total = np.zeros(48, np.float32)
    for row in dy.float().numpy().reshape(30, 48):
        total += row
    assert_same_bits(layer.bias.grad, torch.from_numpy(total).to(dtype))


@pytest.mark.parametrize("recipe", ["deepgemm", "te-blockwise", "te-mxfp8"])
def test_any_size_runs_padded(recipe):
    """Zeros past the end change no other element: the same layer with zeros of the user's own."""
    layer, big = linear(recipe, out=72, k=200), linear(recipe, out=128, k=256)
    with torch.no_grad():
        big.weight.zero_()
        big.weight[:72, :200] = layer.weight
    x, dy = log_normal(37, 200), log_normal(37, 72, seed=4)
    pad = nn.functional.pad
    wide = step(big, pad(x, (0, 56, 0, 91)), pad(dy, (0, 56, 0, 91)))
    for got, whole in zip(step(layer, x, dy), wide):
        assert_same_bits(got, whole[: got.shape[0], : got.shape[1]])


def test_no_rows():
    layer = linear("te-current", bias=True)
    x = torch.empty(0, 256, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, 128) and x.grad.shape == (0, 256)
    assert not layer.weight.grad.any() and not layer.bias.grad.any()


def test_results_do_not_depend_on_threads_or_the_float_mode():
    layer = linear("deepgemm", bias=True)
    x, dy = log_normal(64, 256), log_normal(64, 128, seed=5)
    expected = step(layer, x, dy)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        got = step(layer, x, dy)
    finally:
        torch.set_flush_denormal(False)
    for one, other in zip(got, expected):
        assert_same_bits(one, other)


def test_hardware_changes_the_accumulator_alone():
    x = torch.rand(16, 4096)
    results = {}
    for hardware in ("sm89", "sm90", "sm100", "exact"):
        layer = fp8lab.torch.Fp8Linear(4096, 16, False, recipe="te-current", hardware=hardware)
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(0.5, 1, 16 * 4096).reshape(16, 4096))
        results[hardware] = layer(x).detach()
    a = fp8lab.quantize(x.numpy(), "te-current")
    b = fp8lab.quantize(layer.weight.detach().numpy(), "te-current", "weight")
    exact = torch.from_numpy(fp8lab.gemm(a, b, model="exact")).bfloat16().float()
    assert_same_bits(results["exact"], exact)
    error = {h: float(((r - exact).norm() / exact.norm())) for h, r in results.items()}
    assert error["sm100"] < error["sm90"] and error["sm90"] > 1e-3
    assert not torch.equal(results["sm89"], results["sm90"])
    with pytest.raises(ValueError, match="expected .*, got 'sm9'"):
        fp8lab.torch.Fp8Linear(16, 16, hardware="sm9")


def test_hardware_has_bf16_products_too():
    x = log_normal(16, 512, seed=3)
    unit = fp8lab.models()["sm90.wgmma.bf16"].accumulator
    layers = {}
    for hardware in (None, "sm90", "sm90.wgmma.bf16"):
        torch.manual_seed(2)
        layers[hardware] = fp8lab.torch.Fp8Linear(512, 24, False, recipe="bf16", hardware=hardware)
    weight = layers[None].weight.detach()
    codes = [fp8lab.encode(v.numpy(), "bf16", profile="nvidia_nosat", dtype=np.uint16) for v in (x, weight)]
    product = fp8lab.gemm(*codes, a_format="bf16", b_format="bf16", model="sm90.wgmma.bf16")
    for hardware in ("sm90", "sm90.wgmma.bf16"):
        assert_same_bits(layers[hardware](x).detach(), torch.from_numpy(product).bfloat16().float())
    dw = {}  # not rounded to BF16
    for hardware, layer in layers.items():
        layer(x).backward(log_normal(16, 24, seed=4))
        dw[hardware] = layer.weight.grad
    assert_same_bits(dw["sm90"], dw["sm90.wgmma.bf16"])
    assert (bits(dw[None]) != bits(dw["sm90"])).any()

    mixed = fp8lab.linear_recipe("torchao-rowwise-hp-wgrad")
    moved = fp8lab.linear_recipe("torchao-rowwise-hp-wgrad", hardware="sm90.wgmma.bf16")
    assert (moved.fprop, moved.wgrad.accumulator) == (mixed.fprop, unit)
    assert fp8lab.linear_recipe(mixed, wgrad="sm90").wgrad.accumulator == unit
    with pytest.raises(ValueError, match="hardware: expected a model of BF16 operands, .*'sm90.wgmma.e4m3'"):
        fp8lab.linear_recipe("bf16", hardware="sm90.wgmma.e4m3")
    with pytest.raises(ValueError, match="hardware: expected a model that takes BF16 operands"):
        fp8lab.linear_recipe("bf16", fprop="sm100.tcgen05.mxf4nvf4")


@pytest.mark.parametrize("name", ["te-nvfp4", "torchao-nvfp4", "mxfp4", "mxfp6-e2m3", "te-mxfp8"])
def test_blocks_run_on_the_chip_that_is_asked_for(name):
    x = log_normal(32, 256, seed=7)
    for chip, unit in (("sm100", "sm100.tcgen05"), ("sm120", "sm120.mma")):
        layer = linear(name, 32, hardware=chip).eval()
        a = fp8lab.quantize(x.numpy(), name)
        b = fp8lab.quantize(layer.weight.detach().numpy(), name, "weight")
        kind = "mxf4nvf4" if a.format == "e2m1" else f"mxf8f6f4.{a.format.removesuffix('fn')}"
        product = fp8lab.gemm(a, b, model=f"{unit}.{kind}")
        assert_same_bits(layer(x).detach(), torch.from_numpy(product).bfloat16().float(), f"{name} on {chip}")
    if name == "te-mxfp8":  # Hopper has the elements, and applies the scales itself
        hopper = linear(name, 32, hardware="sm90").eval()
        product = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=32)
        assert_same_bits(hopper(x).detach(), torch.from_numpy(product).bfloat16().float())
    else:
        with pytest.raises(ValueError, match="hardware: expected sm100 or sm120, which multiply e.m., got sm90"):
            linear(name, hardware="sm90")


def casts_of(monkeypatch):
    calls = []
    original = torch.ops.fp8lab.quantize_weight

    class Counted:
        def __call__(self, *args):
            calls.append(1)
            return original(*args)

    monkeypatch.setattr(torch.ops.fp8lab, "quantize_weight", Counted())
    return calls


@pytest.mark.parametrize("training", [True, False])
def test_the_weight_is_cast_again_when_it_changes(monkeypatch, training):
    layer = linear("te-current").train(training)
    x = log_normal(8, 256)
    calls = casts_of(monkeypatch)

    def run():
        with torch.set_grad_enabled(training):
            return layer(x).detach()

    first = run()
    assert_same_bits(run(), first)
    assert len(calls) == 1
    changes = [
        lambda: layer.weight.mul_(2),
        lambda: layer.weight.data.mul_(0.5),  # behind the version counter
        lambda: setattr(layer.weight, "data", layer.weight.data * 4),
        lambda: layer.load_state_dict({"weight": log_normal(128, 256, seed=77)}),
    ]
    if training:
        changes.append(lambda: layer.weight.data[5, 7:8].fill_(1e4))
    for i, change in enumerate(changes):
        with torch.no_grad():
            change()
        fresh = linear("te-current")
        fresh.weight = layer.weight
        assert_same_bits(run(), fresh(x).detach(), f"change {i}")
        assert len(calls) == 2 + 2 * i + 1
    assert layer._fp8_cache is not None


def test_delayed_scales_move_in_training_and_freeze_in_eval():
    layer = linear("te-delayed")
    assert set(layer.state_dict()) == {
        "weight", "fp8_activation_past", "fp8_weight_past", "fp8_gradient_past",
    }
    x = log_normal(16, 256)
    before = copy.deepcopy(layer.state_dict())
    layer.eval()(x).sum().backward()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), name
    layer.train()
    layer(x).sum().backward()
    quantizer = fp8lab.Quantizer("te-delayed")
    quantizer.quantize(x.numpy())
    expected = quantizer._quantizer.past()
    np.testing.assert_array_equal(layer.fp8_activation_past.numpy().view(np.float32), expected)
    assert layer.fp8_activation_past.view(torch.float32)[0] == 448 / x.abs().max()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]) == (name == "weight"), name


def test_state_is_saved_and_older_checkpoints_load():
    layer = linear("te-delayed")
    for i in range(3):
        layer(log_normal(16, 256, seed=i)).sum().backward()
    x, dy = log_normal(16, 256, seed=9), log_normal(16, 128, seed=8)

    def saved(obj):
        file = io.BytesIO()
        torch.save(obj, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    other = linear("te-delayed", seed=50)
    other.load_state_dict(saved(layer.state_dict()))
    twins = [copy.deepcopy(layer), saved(layer), other, copy.deepcopy(layer).bfloat16().float()]
    twins[-1].weight.data.copy_(layer.weight)
    expected = step(layer, x, dy)
    for twin in twins:
        for got, value in zip(step(twin, x, dy), expected):
            assert_same_bits(got, value)
    plain = nn.Linear(256, 128, bias=False)
    linear("te-delayed").load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match="weight"):
        linear("te-delayed").load_state_dict({})


@pytest.mark.parametrize("how", ["reentrant", "not reentrant", "compiled"])
@pytest.mark.parametrize("recipe", ["te-delayed", "ms-amp", "deepgemm"])
def test_checkpointing_changes_nothing(recipe, how):
    def train(wrap):
        torch.manual_seed(0)
        blocks = nn.ModuleList(
            nn.Sequential(linear(recipe, 64, 64, True, seed=i), nn.GELU(), linear(recipe, 64, 64, seed=i + 7))
            for i in range(2)
        )
        optimizer = torch.optim.SGD(blocks.parameters(), 0.01)
        for i in range(4):
            # The first block runs twice before the backward pass; torch refuses this of a graph
            # whose buffers move.
            h = log_normal(16, 64, seed=i).requires_grad_()
            for block in (*blocks[: how != "compiled"], blocks[0], blocks[1]):
                h = wrap(block, h)
            h.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return blocks.state_dict()

    plain = train(lambda block, h: block(h))
    torch.compiler.reset()

    def wrapped(block, h):
        return checkpoint(block, h, use_reentrant=how == "reentrant")

    again = train(torch.compile(wrapped, fullgraph=True, backend="aot_eager") if how == "compiled" else wrapped)
    for name, value in plain.items():
        assert_same_bits(again[name], value, name)


FIRST_BACKWARD = """
import copy, torch, fp8lab.torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = fp8lab.torch.Fp8Linear(64, 32, recipe="te-delayed")
twin, x = copy.deepcopy(layer), torch.randn(16, 64)
checkpoint(layer, x, use_reentrant=False).square().sum().backward()
twin(x).square().sum().backward()
assert torch.equal(layer.weight.grad, twin.weight.grad), "gradients differ"
for name, value in twin.state_dict().items():
    assert torch.equal(layer.state_dict()[name], value), name
"""


def test_checkpointing_in_the_first_backward_pass_of_a_process():
    done = subprocess.run([sys.executable, "-c", FIRST_BACKWARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_calibrated_scales():
    layer = fp8lab.torch.convert(nn.Sequential(nn.Linear(64, 32, bias=False)), "inference-static")
    batches = [log_normal(8, 64, seed=i) for i in range(3)]
    with pytest.raises(ValueError, match=r"model: expected a batch inside fp8lab.torch.calibrate\(model\) first"):
        layer(batches[0])
    with fp8lab.torch.calibrate(layer):
        for batch in batches:
            layer(batch)
    quantizer = fp8lab.Quantizer("inference-static")
    for batch in batches:
        quantizer.observe(batch.numpy())
    a = quantizer.quantize(batches[1].numpy())
    b = fp8lab.quantize(layer[0].weight.detach().numpy(), "inference-static", "weight")
    expected = torch.from_numpy(fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")).bfloat16().float()
    assert_same_bits(layer(batches[1]).detach(), expected)
    with pytest.raises(ValueError, match="expected a layer under a recipe that is calibrated"):
        with fp8lab.torch.calibrate(fp8lab.torch.Fp8Linear(16, 16)):
            pass


@pytest.mark.parametrize("recipe", ["deepgemm", "te-current", "bf16", "torchao-rowwise-hp-wgrad"])
def test_x_is_cast_for_wgrad_where_the_weight_learns(recipe, monkeypatch):
    layer, x = linear(recipe, bias=True), log_normal(3, 8, 256)
    seen = []
    cast = _plan.Cast.cast
    monkeypatch.setattr(_plan.Cast, "cast", lambda *given: (seen.append(given[-1]), cast(*given))[1])
    expected = layer(x)
    of_wgrad = fp8lab.linear_recipe(recipe).wgrad.arithmetic == "fp8"
    seen.clear()
    with torch.no_grad():
        assert_same_bits(layer(x), expected.detach())
    layer.weight.requires_grad_(False)
    frozen = x.clone().requires_grad_()
    y = layer(frozen)
    assert_same_bits(y.detach(), expected.detach())
    assert seen == [False, False]
    y.sum().backward()
    dx, bias = frozen.grad, layer.bias.grad
    layer.bias.grad = None
    layer.weight.requires_grad_(True)
    seen.clear()
    learning = x.clone().requires_grad_()
    layer(learning).sum().backward()
    assert seen[0] == of_wgrad
    assert_same_bits(dx, learning.grad)
    assert_same_bits(bias, layer.bias.grad)


def test_torch_autocast_casts_like_linear():
    layer = linear("te-current", bias=True)
    x = log_normal(8, 256)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    half = copy.deepcopy(layer).bfloat16()
    assert_same_bits(y, half(x.bfloat16()))
    y.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("recipe", ["deepgemm", "te-delayed"])
def test_shapes_alone_are_enough(recipe):
    """Tensors without data: torch's meta device, and its FakeTensorMode."""
    layer = linear(recipe, bias=True).to("meta")
    layer(torch.zeros(2, 3, 256, device="meta")).sum().backward()
    assert layer.weight.grad.shape == (128, 256)
    with FakeTensorMode():
        layer = fp8lab.torch.Fp8Linear(256, 128, recipe=recipe)
        assert layer(torch.zeros(2, 3, 256)).shape == (2, 3, 128)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_change_in_place(dtype):
    layer = linear("te-current", bias=True).to(dtype)
    x, dy = log_normal(2, 4, 256).to(dtype), log_normal(2, 4, 128, seed=5).to(dtype)
    expected = nn.functional.relu(layer(x))
    expected.backward(dy)
    wanted = layer.weight.grad.clone()
    layer.zero_grad()
    y = nn.functional.relu(layer(x), inplace=True)
    y.backward(dy)
    assert_same_bits(y, expected)
    assert_same_bits(layer.weight.grad, wanted)


@pytest.mark.parametrize("recipe", ["te-current", "te-delayed"])
def test_training_after_a_pass_under_inference_mode(recipe):
    layer, fresh = linear(recipe).eval(), linear(recipe)
    x, dy = log_normal(8, 256), log_normal(8, 128, seed=5)
    with torch.inference_mode():
        layer(x)
    for got, expected in zip(step(layer.train(), x, dy), step(fresh, x, dy)):
        assert_same_bits(got, expected)


def test_nan_and_infinity_become_what_the_system_makes_of_them():
    """E2M1 has no NaN: `cvt.rn.satfinite` gives the largest number, and `fmaxf` leaves it out of the amax. An infinite amax
    gives TransformerEngine's current scale 1, under which infinities saturate."""
    layer, x = linear("te-nvfp4"), log_normal(16, 256)
    tile = x[3, 16:32]
    tile[4], tile[9] = 0.0, tile.abs().max()  # the largest is not the one that changes
    largest = x.clone()
    largest[3, 20] = tile.abs().max()
    x[3, 20] = float("nan")
    assert_same_bits(layer(x), layer(largest))
    assert layer(x).isfinite().all()
    layer, x = linear("te-current"), log_normal(16, 256)
    x[3, 20], x[5, 7] = float("inf"), float("-inf")
    a = fp8lab.encode(x.numpy(), "e4m3fn")  # scale 1
    b = fp8lab.quantize(layer.weight.detach().numpy(), "te-current", "weight")
    d = fp8lab.gemm(a, b.codes, model="sm90.wgmma.e4m3", scale_b=b.inverse_scales)
    assert_same_bits(layer(x).detach(), torch.from_numpy(d).bfloat16().float())
    assert layer(x).isfinite().all()


@pytest.mark.parametrize("recipe", ["te-current", "te-nvfp4", "deepgemm"])
def test_vmap_casts_each_sample_alone(recipe):
    layer = linear(recipe, bias=True)
    x = log_normal(3, 16, 256) * torch.tensor([1.0, 30.0, 900.0]).reshape(3, 1, 1)
    y = torch.func.vmap(layer)(x)
    assert_same_bits(y, torch.stack([layer(one) for one in x]))


def test_derivatives_that_are_not_there_are_refused():
    layer, x = linear("te-current"), log_normal(8, 256)
    for call in (
        lambda: torch.func.grad(lambda x: layer(x).sum())(x),
        lambda: torch.func.vjp(layer, x),
        lambda: torch.func.jvp(layer, (x,), (x,)),
        lambda: torch.func.jacrev(layer)(x),
        lambda: torch.func.vmap(torch.func.grad(lambda x: layer(x).sum()))(x),
    ):
        with pytest.raises(NotImplementedError, match="torch.func.grad, vjp, jvp and jacobians: expected a backward pass"):
            call()
    x = x.requires_grad_()
    with pytest.raises(NotImplementedError, match="create_graph=True: expected a backward pass that is not differentiated"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    weight = log_normal(2, 256, 64, seed=1).requires_grad_()
    y = fp8lab.torch.grouped_mm(x, weight, torch.tensor([3, 8]))
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"torch.func.vmap: expected a recipe without a history, or eval\(\)"):
        torch.func.vmap(linear("te-delayed"))(log_normal(2, 8, 256))
    frozen = linear("te-delayed").eval()
    batch = log_normal(2, 8, 256)
    assert_same_bits(torch.func.vmap(frozen)(batch), torch.stack([frozen(one) for one in batch]))


def test_histories_begin_where_a_model_gets_memory():
    with torch.device("meta"):
        late = fp8lab.torch.convert(nn.Sequential(nn.Linear(256, 128, bias=False)), "te-delayed")
    late.to_empty(device="cpu")
    early = linear("te-delayed")
    late[0].weight.data.copy_(early.weight)
    for i in range(2):
        x, dy = log_normal(16, 256, seed=i), log_normal(16, 128, seed=9 + i)
        for got, expected in zip(step(late[0], x, dy), step(early, x, dy)):
            assert_same_bits(got, expected)
    before = {name: value.clone() for name, value in late.state_dict().items()}
    late.to_empty(device="cpu")
    late.load_state_dict({"0.weight": before["0.weight"]})  # a checkpoint without histories
    for name, value in before.items():
        assert_same_bits(late.state_dict()[name], value, name)


def test_bad_input_says_what_was_expected():
    layer = linear("te-current")
    with pytest.raises(ValueError, match=r"x: expected \[..., 256\], got \[3, 5\]"):
        layer(torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"x: expected \[..., 256\], got \[\]"):
        layer(torch.tensor(1.0))
    for wide in (layer, layer.double()):
        with pytest.raises(ValueError, match="expected float32, bfloat16 or float16, got torch.float64"):
            wide(torch.zeros(3, 256, dtype=torch.float64))
    with pytest.raises(ValueError, match="recipe: expected one of .*, got 'nothing'"):
        fp8lab.torch.Fp8Linear(16, 16, recipe="nothing")
    with pytest.raises(ValueError, match="hardware: expected sm89, sm90, sm100, sm120, or .*, got 'h100'"):
        fp8lab.torch.Fp8Linear(16, 16, recipe="deepgemm", hardware="h100")
    with pytest.raises(ValueError, match="model: expected one of .*, got 'sm90.wgmma.e4m4'"):
        fp8lab.torch.Fp8Linear(16, 16, recipe="deepgemm", hardware="sm90.wgmma.e4m4")


def test_what_is_restored_has_nothing_left():
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32))
    before = [set(vars(module)) | set(module._buffers) for module in model.modules()]
    fp8lab.torch.convert(model, "te-delayed")
    model(log_normal(16, 64)).sum().backward()
    fp8lab.torch.restore(model)
    assert [set(vars(module)) | set(module._buffers) for module in model.modules()] == before
    assert not list(model.named_buffers()) and type(model[0]) is nn.Linear
