"""`sensitivity`, `evaluate`, `flops` and histories, against figures made from their definitions."""

import contextlib
import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, log_normal
from torch import nn
from torch.nn import functional as F

import fp8lab
import fp8lab.results
import fp8lab.torch


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32))


def square(y):
    return y.double().square().mean()


def test_each_cost_is_that_of_one_layer():
    model, batches = mlp(), [log_normal(16, 64, seed=s) for s in range(3)]
    with torch.no_grad():
        plain = np.array([float(square(model(x))) for x in batches])
    found = fp8lab.torch.sensitivity(model.train(), batches, ["te-current", "mxfp4"], loss=square)
    assert found.loss == plain.mean() and len(found.costs) == 2 * 2 * 3 and model.training
    assert type(model[0]) is nn.Linear and not fp8lab.torch.layers(model)
    by = {(one.name, one.recipe, one.operand): one for one in found.costs}
    for name in ("0", "2"):
        other = fp8lab.torch.convert(copy.deepcopy(model), "mxfp4", filter=lambda n, module: n == name)
        with torch.no_grad():
            changes = np.array([float(square(other(x))) for x in batches]) - plain
        one = by[name, "mxfp4", "both"]
        assert one.loss_change == changes.mean() and one.standard_error == changes.std(ddof=1) / 3**0.5
        weight = model[int(name)].weight
        assert one.flops == 2 * weight.numel()
        assert one.bytes_saved == pytest.approx(weight.numel() * (4 - 0.5 - 1 / 32))
    assert by["0", "te-current", "both"].bytes_saved == 64 * 96 * 3 - 4
    q = fp8lab.quantize(model[0].weight.detach().numpy(), "te-current", "weight").dequantize()
    with torch.no_grad():
        changes = [float(square(model[2](torch.tanh(F.linear(x, torch.from_numpy(q), model[0].bias))))) for x in batches] - plain
    assert by["0", "te-current", "weight"].loss_change == pytest.approx(changes.mean(), rel=1e-6)
    with torch.no_grad():
        cast = [torch.from_numpy(fp8lab.quantize(x.numpy(), "te-current").dequantize()) for x in batches]
        changes = [float(square(model[2](torch.tanh(model[0](x))))) for x in cast] - plain
    assert by["0", "te-current", "activation"].loss_change == pytest.approx(changes.mean(), rel=1e-6)
    order = [one.loss_change for one in found.costs]
    assert order == sorted(order, reverse=True)


def test_a_cost_that_is_no_number_comes_first():
    """DeepSeek's first recipe divides by the amax of a tile, here of zeros."""
    found = fp8lab.torch.sensitivity(
        mlp(), [torch.zeros(4, 64)], ["te-current", "deepseek-v3-first"], loss=square, operands=["both"]
    )
    first, *others = found.costs
    assert (first.name, first.recipe) == ("0", "deepseek-v3-first") and np.isnan(first.loss_change)
    changes = [one.loss_change for one in others]
    assert changes == sorted(changes, reverse=True) and len(set(changes)) > 1


def test_bytes_are_saved_where_the_weight_s_codes_enter_the_forward_pass():
    """A product in BF16 reads the weight as it is, whatever the other products read."""
    recipe, weight = fp8lab.linear_recipe("te-current"), 64 * 96
    for in_bf16, saved in (("fprop", 0.0), ("dgrad", weight * 3 - 4), ("wgrad", weight * 3 - 4)):
        product = dataclasses.replace(getattr(recipe, in_bf16), arithmetic="bf16")
        mixed = dataclasses.replace(recipe, **{in_bf16: product})
        found = fp8lab.torch.sensitivity(mlp(), [log_normal(16, 64)], [mixed], loss=square, operands=["both"])
        assert {one.name: one.bytes_saved for one in found.costs}["0"] == saved, in_bf16


def test_a_mix_stays_within_its_budget(tmp_path):
    cost = fp8lab.torch.LayerCost
    found = fp8lab.torch.Sensitivity(1.0, (
        cost("a", "fp4", "both", 0.5, 0.0, 300.0, 8.0), cost("b", "fp4", "both", 0.1, 0.0, 300.0, 2.0),
        cost("a", "fp8", "both", 0.02, 0.0, 100.0, 8.0), cost("b", "fp8", "both", 0.01, 0.0, 100.0, 2.0),
        cost("c", "fp8", "both", -0.01, 0.0, 50.0, 2.0), cost("c", "fp8", "weight", 9.0, 0.0, 50.0, 2.0),
    ))  # fmt: skip
    assert found.mix(0.0) == {"c": "fp8"}
    assert found.mix(0.02) == {"b": "fp8", "c": "fp8"}
    assert found.mix(0.031) == {"a": "fp8", "b": "fp8", "c": "fp8"}
    assert found.mix(0.02, "flops") == {"a": "fp8", "c": "fp8"}
    assert json.loads((lambda p: (found.write_map(p, 0.031), p.read_text())[1])(tmp_path / "map.json")) == found.mix(0.031)
    results = fp8lab.results.read(found.write(tmp_path))
    assert list(results["layers"]["loss_change"]) == [one.loss_change for one in found.costs]
    for message, call in (("budget: expected 0 or more", lambda: found.mix(-1)), ("saving: expected", lambda: found.mix(1, "time"))):
        with pytest.raises(ValueError, match=message):
            call()


def test_sensitivity_of_experts_and_what_is_refused():
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=1, use_cache=False,
    )
    model = transformers.MixtralForCausalLM(config)
    ids = torch.randint(0, 32, (1, 16))
    found = fp8lab.torch.sensitivity(
        model, [{"input_ids": ids, "labels": ids}], ["te-current"], filter=lambda name, module: "down_proj" in name
    )
    assert {one.name for one in found.costs} == {"model.layers.0.mlp.experts.down_proj"}
    assert all(one.loss_change != 0 and one.flops == 2 * 32 * 32 and np.isnan(one.standard_error) for one in found.costs)
    x = log_normal(4, 64)
    for message, call in (
        ("recipes: expected ones that use only the current tensor, got te-delayed", lambda: fp8lab.torch.sensitivity(mlp(), [x], ["te-delayed"], loss=square)),
        ("batches: expected at least one", lambda: fp8lab.torch.sensitivity(mlp(), [], ["te-current"], loss=square)),
        ("operands: expected some of", lambda: fp8lab.torch.sensitivity(mlp(), [x], ["te-current"], loss=square, operands=["all"])),
        ("model: expected a model without converted", lambda: fp8lab.torch.sensitivity(fp8lab.torch.convert(mlp()), [x], ["te-current"], loss=square)),
        (r"tokens: expected integers", lambda: fp8lab.torch.evaluate(mlp(), x)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_sensitivity_sees_the_layers_of_a_transformer():
    """torch's fused kernels, which read the weights themselves, must not run."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.0)
    found = fp8lab.torch.sensitivity(model, [log_normal(2, 8, 64, spread=0.5)], ["mxfp4"], loss=square)
    assert {one.name for one in found.costs} == {
        "linear1", "linear2", "self_attn.in_proj_weight", "self_attn.out_proj.weight",
    }  # fmt: skip
    assert all(one.loss_change != 0 for one in found.costs)
    assert torch.backends.mha.get_fastpath_enabled()


def test_perplexities_with_intervals():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(32, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))
    tokens = torch.randint(0, 32, (6, 20))
    found = fp8lab.torch.evaluate(model, tokens, ["te-current", "mxfp4"], hardware=[None, "sm100"])
    assert [(one.recipe, one.hardware) for one in found] == [
        ("", ""), ("te-current", ""), ("te-current", "sm100"), ("mxfp4", ""), ("mxfp4", "sm100"),
    ]  # fmt: skip

    def losses(net):
        with torch.no_grad():
            return np.array([float(F.cross_entropy(net(row[None])[0, :-1].double(), row[1:])) for row in tokens])

    plain, fp4 = losses(model), losses(fp8lab.torch.convert(copy.deepcopy(model), "mxfp4"))
    assert found[0].perplexity == np.exp(plain.mean()) and found[0].change_interval == (0.0, 0.0)
    assert found[3].perplexity == np.exp(fp4.mean()) and found[3].change == (fp4 - plain).mean()
    low, high = found[3].change_interval
    spread = (fp4 - plain).std(ddof=1) / 6**0.5
    assert low <= found[3].change <= high and 2 * spread < high - low < 6 * spread
    width = np.log(found[3].interval[1] / found[3].interval[0])
    assert width > high - low  # paired, the sequences' own differences fall out
    assert found == fp8lab.torch.evaluate(model, tokens, ["te-current", "mxfp4"], hardware=[None, "sm100"])
    assert not fp8lab.torch.layers(model) and model.training


def test_flops_of_a_pass():
    model = fp8lab.torch.convert(mlp(), filter=lambda name, module: name == "0")
    x = log_normal(5, 64)
    forward = 2 * 5 * (64 * 96 + 96 * 32)
    assert fp8lab.torch.flops(model, x) == fp8lab.torch.Flops(forward, 2 * 5 * 64 * 96)
    both = fp8lab.torch.flops(model, x, backward=True)  # x itself needs no gradient
    assert both == fp8lab.torch.Flops(forward + 2 * 5 * (64 * 96 + 2 * 96 * 32), 2 * 2 * 5 * 64 * 96)
    weight = torch.ones(2, 64, 32, requires_grad=True)
    grouped = fp8lab.torch.flops(lambda x: fp8lab.torch.grouped_mm(x, weight, torch.tensor([2, 5])), x, backward=True)
    assert grouped.total == grouped.fp8 == 2 * 2 * 5 * 64 * 32
    a, one = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(())
    assert fp8lab.torch.flops(lambda a: fp8lab.torch.scaled_mm(a, a.t(), one, one, out_dtype=torch.float32), a).fp8 == 2 * 16 * 16 * 32


@pytest.mark.parametrize("recipe", ["te-delayed", "ms-amp", "inference-static", "quanto", "flax-fp8"])
def test_histories_of_any_length_are_kept(recipe):
    """A calibrated scale is a history of one value."""
    model = fp8lab.torch.convert(mlp(), recipe)
    with fp8lab.torch.calibrate(model) if recipe in ("inference-static", "quanto") else contextlib.nullcontext():
        model(log_normal(8, 64))
    kept = fp8lab.torch.histories(model)
    assert kept and kept.keys() == model.state_dict().keys() - mlp().state_dict().keys()
    again = fp8lab.torch.convert(mlp(), recipe)
    fp8lab.torch.load_histories(again, kept)
    for name, past in model.state_dict().items():
        assert_same_bits(again.state_dict()[name], past, name)


def test_histories_apart_from_weights():
    model = fp8lab.torch.convert(mlp(), "te-delayed")
    for seed in range(2):
        model(log_normal(8, 64, seed=seed)).sum().backward()
    kept = fp8lab.torch.histories(model)
    assert len(kept) == 6 and kept.keys() == model.state_dict().keys() - mlp().state_dict().keys()
    plain = mlp()
    plain.load_state_dict({name: x for name, x in model.state_dict().items() if name not in kept})
    again = fp8lab.torch.convert(plain, "te-delayed")
    x = log_normal(8, 64, seed=7)
    assert not torch.equal(again.eval()(x), model.eval()(x))
    fp8lab.torch.load_histories(again, model.state_dict())
    assert_same_bits(again(x), model(x))
    assert fp8lab.torch.histories(fp8lab.torch.convert(mlp(), "te-current")) == {}
    missing = {name: value for name, value in kept.items() if not name.startswith("2.")}
    with pytest.raises(ValueError, match="state: expected a history for each of the model's 6, got none for 2.fp8_activation_past"):
        fp8lab.torch.load_histories(again, missing)
    with pytest.raises(ValueError, match="got 9.fp8_weight_past, which is no history of it"):
        fp8lab.torch.load_histories(again, {**kept, "9.fp8_weight_past": kept["0.fp8_weight_past"]})
    with pytest.raises(ValueError, match=r"state: expected 0.fp8_weight_past of int32 \[\d+\], got torch.int32 \[3\]"):
        fp8lab.torch.load_histories(again, {**kept, "0.fp8_weight_past": kept["0.fp8_weight_past"][:3]})
