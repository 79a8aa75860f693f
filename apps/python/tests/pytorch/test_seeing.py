"""What `record` and `compare` say, against figures made from their definitions."""

import copy

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, log_normal
from torch import nn

import fp8lab
import fp8lab.torch


def mlp(recipe=None):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 32))
    return model if recipe is None else fp8lab.torch.convert(model, recipe, rule="all")


def test_figures_are_those_of_the_library():
    model = mlp("deepgemm")
    x = log_normal(128, 128)
    with fp8lab.torch.record(model) as recording:
        model(x).sum().backward()
    one = recording.statistics()["0"]
    q = fp8lab.quantize(x.numpy(), "deepgemm")
    w = fp8lab.quantize(model[0].weight.detach().numpy(), "deepgemm", "weight")
    for got, tensor, original in ((one.activation, q, x), (one.weight, w, model[0].weight)):
        expected = tensor.statistics(original.detach().numpy())
        assert got.sqnr_db == expected.sqnr_db and got.underflow_percent == expected.underflow_percent
        assert got.amax == float(original.detach().abs().max())
    d = fp8lab.gemm(q, w, model="sm90.wgmma.e4m3", promotion_interval=128).astype(np.float64)
    exact = fp8lab.gemm(q, w, model="exact", promotion_interval=128).astype(np.float64)
    error = np.linalg.norm(d - exact) / np.linalg.norm(exact)
    assert one.accumulator_error == error > 0
    reference = x.double().numpy() @ model[0].weight.detach().double().numpy().T
    sqnr = -20 * np.log10(np.linalg.norm(d - reference) / np.linalg.norm(reference))
    assert one.output_sqnr_db == pytest.approx(sqnr)
    assert recording.statistics()["2"].gradient.amax == 1.0
    assert {name: model[int(name)].statistics() for name in "02"} == recording.statistics()
    scalars = recording.scalars()
    assert scalars["0/activation/amax"] == one.activation.amax
    assert scalars["2/accumulator_error"] < scalars["0/accumulator_error"] * 10
    assert all(isinstance(value, float) for value in scalars.values())


@pytest.mark.parametrize("recipe", ["te-mxfp8", "mxfp4", "mxfp6-e3m2", "te-nvfp4", "torchao-mxfp4-even"])
def test_figures_of_block_scaled_recipes(recipe):
    torch.manual_seed(2)
    model = fp8lab.torch.convert(nn.Sequential(nn.Linear(96, 48)), recipe)
    x = log_normal(40, 96)
    with fp8lab.torch.record(model) as recording:
        model(x).sum().backward()
    one = recording.statistics()["0"]
    assert one.activation.count == x.numel()  # without what pads it
    pad = nn.functional.pad
    tensors = [
        fp8lab.quantize(pad(t, (0, 32, 0, rows)).numpy(), recipe, role)
        for t, rows, role in ((x, 24, "activation"), (model[0].weight.detach(), 16, "weight"))
    ]
    a, b = tensors
    got = fp8lab.gemm(a, b, model=model[0].recipe.fprop.accumulator).astype(np.float64)[:40, :48]
    values = [
        fp8lab.decode(q.codes).astype(np.float64) * q.inverse_scales.astype(np.float64).repeat(q.k_block, 1).repeat(
            q.row_block, 0)[: q.codes.shape[0]] * q.tensor_inverse_scale
        for q in tensors
    ]
    exact = (values[0] @ values[1].T)[:40, :48]
    assert one.accumulator_error == pytest.approx(np.linalg.norm(got - exact) / np.linalg.norm(exact), rel=1e-12)
    assert one.accumulator_error < 1e-5
    plain = x.double().numpy() @ model[0].weight.detach().double().numpy().T
    assert one.output_sqnr_db == pytest.approx(-20 * np.log10(np.linalg.norm(got - plain) / np.linalg.norm(plain)))


def test_recording_changes_no_bit_and_sees_the_scale_that_was_used():
    plain, seen = mlp("te-delayed"), mlp("te-delayed")
    for i in range(3):
        x = log_normal(16, 128, seed=i)
        with fp8lab.torch.record(seen) as recording:
            y = seen(x)
        assert_same_bits(y, plain(x))
    quantizer = fp8lab.Quantizer("te-delayed")
    for i in range(3):
        q = quantizer.quantize(log_normal(16, 128, seed=i).numpy())
    figures = recording.statistics()["0"].activation
    assert figures.scale_max == float(q.scales[0, 0]) != 1
    assert figures.saturated_percent == q.statistics(x.numpy()).saturated_percent


def test_unseen_layers_say_so():
    with pytest.raises(ValueError, match="model: expected a converted layer, got none"):
        with fp8lab.torch.record(mlp()):
            pass
    with pytest.raises(ValueError, match="layer: expected a pass inside"):
        mlp("deepgemm")[0].statistics()
    seen = mlp("bf16")
    with fp8lab.torch.record(seen):
        seen(torch.ones(2, 128))
    assert seen[0].statistics().activation is None and seen[0].statistics().accumulator_error is None


def test_compare_finds_the_layer_that_moves_the_loss():
    a, b = mlp("te-current"), mlp("te-current")
    fp8lab.torch.convert(b, "naive", filter=lambda name, module: name == "2", rule="all")
    with torch.no_grad():
        for model in (a, b):
            model[2].weight.mul_(1e-3)  # far below what a cast without a scale keeps
            model[2].bias.zero_()
    x = log_normal(16, 128)
    before = [copy.deepcopy(m.state_dict()) for m in (a, b)]
    kinds = [type(m) for m in a.modules()]
    loss = lambda y: y.square().sum()  # noqa: E731
    found = fp8lab.torch.compare(a, b, x, loss=loss)
    assert found.layers[0].name == "2" and found.layers[1].loss_change == 0
    assert found.layers[0].loss_change == found.loss_b - found.loss_a != 0
    assert found.layers[0].own_error == found.layers[0].output_error and found.layers[1].own_error == 0
    assert found.layers[0].output_error > 0.1 and found.layers[1].output_error == 0
    assert [type(m) for m in a.modules()] == kinds and a.training and b[0].training
    for model, state in zip((a, b), before):
        for name, value in model.state_dict().items():
            assert_same_bits(value, state[name])
    again = fp8lab.torch.compare(a, b, x, loss=loss)
    assert again == found
    reverse = fp8lab.torch.compare(b, mlp(), (x,), loss=loss)
    assert {one.name for one in reverse.layers} == {"0", "2"}
    assert type(b[0]) is fp8lab.torch.Fp8Linear
    with pytest.raises(ValueError, match="loss: expected a function"):
        fp8lab.torch.compare(a, b, x)
    with pytest.raises(ValueError, match="model_b: expected the modules of model_a"):
        fp8lab.torch.compare(nn.Sequential(nn.Linear(3, 3)), b, x, loss=loss)


def test_compare_tells_a_layer_s_own_error_from_those_before_it():
    torch.manual_seed(2)
    plain = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))
    with torch.no_grad():
        plain[0].weight[5] *= 1e5  # all other rows get few of the codes
    fp8 = fp8lab.torch.convert(copy.deepcopy(plain), "te-current")
    found = fp8lab.torch.compare(plain, fp8, log_normal(16, 64), loss=lambda y: y[:, 0].mean())
    errors = {one.name: one.own_error for one in found.layers}
    with torch.no_grad():
        x = log_normal(16, 64)
        y = plain[0](x).double()
        own = float((fp8[0](x).double() - y).norm() / y.norm())
        h = plain[:2](x)
        z = plain[2](h).double()
        second = float((fp8[2](h).double() - z).norm() / z.norm())
    assert errors["0"] == pytest.approx(own, rel=1e-12) and errors["2"] == pytest.approx(second, rel=1e-12)


def test_compare_takes_experts_and_attention():
    torch.manual_seed(3)
    plain = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.0)
    fp8 = fp8lab.torch.convert(copy.deepcopy(plain), "te-delayed")
    x = log_normal(2, 8, 64)
    before = [type(m) for m in plain.modules()]
    found = fp8lab.torch.compare(plain, fp8, x, loss=lambda y: y.square().mean())
    assert {one.name for one in found.layers} == {"self_attn", "linear1", "linear2"}
    assert all(one.own_error > 1e-3 for one in found.layers)
    assert [type(m) for m in plain.modules()] == before
    back = fp8lab.torch.compare(fp8, plain, x, loss=lambda y: y.square().mean())
    assert back.loss_a == found.loss_b and back.loss_b == found.loss_a
    assert len(fp8lab.torch.layers(fp8)) == 6


@pytest.mark.parametrize("recipe", ["te-current", "te-delayed"])
@pytest.mark.parametrize("amax", ["shard", "whole"])
def test_a_layer_that_runs_as_in_the_other_model_has_all_its_settings(recipe, amax):
    other = fp8lab.torch.convert(mlp(), recipe, rule="all", amax=amax)
    other(log_normal(16, 128))  # moves the histories
    model, seen = mlp(), []

    def see(module, args, y):
        if isinstance(module, fp8lab.torch.Fp8Linear):
            pasts = {name: past.clone() for name, past in module.named_buffers()}
            seen.append((module, module.recipe.name, module._fp8_amax_of, module.training, pasts))

    for layer in (model[0], model[2]):
        layer.register_forward_hook(see)
    fp8lab.torch.compare(model, other, log_normal(16, 128, seed=1), loss=lambda y: y.square().mean())
    assert [one[0] for one in seen] == [model[0], model[2]]
    for layer, (_, *settings, pasts) in zip((other[0], other[2]), seen):
        assert settings == [recipe, amax, False]
        assert pasts.keys() == dict(layer.named_buffers()).keys()
        for name, past in layer.named_buffers():
            assert_same_bits(pasts[name], past, name)
