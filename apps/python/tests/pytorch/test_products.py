"""Modules that multiply with their own parameters: experts, attention, subclasses; and what stays in high precision."""

import copy
import io
import warnings

import pytest
import torch
from conftest import assert_same_bits, log_normal
from torch import nn
from torch.nn import functional as F

import fp8lab
import fp8lab.torch
from fp8lab.torch import HighPrecisionWarning
from fp8lab.torch._products import GROUPED

transformers = pytest.importorskip("transformers")

SMALL = dict(
    vocab_size=48, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
FAMILIES = {
    "Mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    "Qwen3Moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, head_dim=32),
    "Olmoe": dict(num_experts=8, num_experts_per_tok=2, intermediate_size=96),
    "DeepseekV3": dict(
        n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, q_lora_rank=48, kv_lora_rank=48,
        qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, n_group=2, topk_group=1, first_k_dense_replace=1,
        num_key_value_heads=4,
    ),
    "GptOss": dict(num_local_experts=4, num_experts_per_tok=2, head_dim=32),
    "Llama4": dict(num_local_experts=4, num_experts_per_tok=1, head_dim=32, intermediate_size_mlp=192, interleave_moe_layer_step=1),
    "JetMoe": dict(num_local_experts=4, num_experts_per_tok=2, kv_channels=32),
}  # fmt: skip


def family(name, seed=0):
    torch.manual_seed(seed)
    config = "Llama4TextConfig" if name == "Llama4" else f"{name}Config"
    made = getattr(transformers, config)(**{**SMALL, **FAMILIES[name]})
    return getattr(transformers, f"{name}ForCausalLM")(made).eval()


def tokens():
    return torch.randint(3, 48, (2, 24), generator=torch.Generator().manual_seed(5))


def run(model, ids):
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("name", FAMILIES)
def test_experts_are_converted(name):
    model = family(name)
    found = fp8lab.torch.decisions(model, rule="linear")
    assert found.parameters > 0.95 and found.flops > 0.9
    experts = [one for one, why in found.items() if one in dict(model.named_parameters()) and not why]
    assert len(experts) == {"DeepseekV3": 2, "JetMoe": 8}.get(name, 4)
    ids = tokens()
    plain, without = run(model, ids)
    keys = list(model.state_dict())
    converted = fp8lab.torch.convert(copy.deepcopy(model), "deepgemm", rule="linear")
    loss, gradients = run(converted, ids)
    assert 0 < abs(loss - plain) < 0.05 and list(converted.state_dict()) == keys
    for one in experts:
        assert gradients[one].isfinite().all() and not torch.equal(gradients[one], without[one]), one
    states = fp8lab.torch.layers(converted)
    assert all(isinstance(state.recipe, fp8lab.LinearRecipe) for state in states.values())
    restored = fp8lab.torch.restore(converted)
    assert [type(m) for m in restored.modules()] == [type(m) for m in model.modules()]
    assert_same_bits(run(restored, ids)[0], plain)


def gated(module, x):
    if hasattr(module, "limit"):
        return module._apply_gate(x)
    gate, up = x.chunk(2, dim=-1)
    return module.act_fn(gate) * up


def loop(module, recipe, hidden, index, weights):
    """One layer an expert, over the tokens of that expert."""
    turned = hasattr(module, "limit")  # gpt-oss keeps [in, out]
    made = {}
    total = torch.zeros_like(hidden)
    for expert in range(module.num_experts):
        place, token = torch.where((index == expert).t())
        if not len(token):
            continue
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(module, name)[expert].detach()
            weight = weight.t() if turned else weight
            layer = fp8lab.torch.Fp8Linear(*weight.t().shape, False, recipe=recipe)
            layer.weight.data.copy_(weight)
            made[name, expert] = layer
        bias = (lambda n, e=expert: getattr(module, f"{n}_bias")[e].detach()) if turned else (lambda n: 0)
        inner = made["gate_up_proj", expert](hidden[token])
        inner = gated(module, inner + bias("gate_up_proj") if turned else inner)
        y = made["down_proj", expert](inner)
        y = y + bias("down_proj") if turned else y
        total.index_add_(0, token, y * weights[token, place, None])
    return total, made


@pytest.mark.parametrize("recipe", ["te-current", "te-mxfp8"])
@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Olmoe", "GptOss"])
def test_experts_have_the_bits_of_a_loop_over_layers(name, recipe):
    model = fp8lab.torch.convert(family(name), recipe)
    experts = next(m for m in model.modules() if hasattr(m, "fp8_gate_up_proj"))
    generator = torch.Generator().manual_seed(1)
    x = log_normal(24, 128)
    index = torch.stack([torch.randperm(experts.num_experts - 1, generator=generator)[:2] for _ in range(24)])
    weights = torch.rand(24, 2, generator=generator)
    dy = log_normal(24, 128, seed=3)
    outputs = {}
    for how in ("eager", "grouped_mm"):
        model.set_experts_implementation(how)
        experts.zero_grad()
        outputs[how] = experts(x, index, weights)
        outputs[how].backward(dy)
        if how == "eager":
            gradients = {n: p.grad.clone() for n, p in experts.named_parameters()}
    expected, made = loop(experts, recipe, x, index, weights)
    expected.backward(dy)
    assert_same_bits(outputs["eager"], expected)
    assert_same_bits(outputs["grouped_mm"], expected)
    for parameter in ("gate_up_proj", "down_proj"):
        for expert in range(experts.num_experts):
            layer = made.get((parameter, expert))
            got = gradients[parameter][expert]
            got = got.t().contiguous() if name == "GptOss" else got
            assert_same_bits(got, torch.zeros_like(got) if layer is None else layer.weight.grad)
    model.set_experts_implementation("batched_mm")
    with pytest.raises(RuntimeError, match="expected a product with down_proj and gate_up_proj in its forward pass, got none"):
        experts(x, index, weights)


def test_compiled_models_run_their_experts():
    torch.compiler.reset()
    model, ids = fp8lab.torch.convert(family("Olmoe"), "te-current"), tokens()
    model.set_experts_implementation("eager")
    compiled = torch.compile(model, backend="aot_eager")
    assert_same_bits(compiled(input_ids=ids).logits, model(input_ids=ids).logits)


def test_histories_of_experts_are_saved_and_copied():
    model = fp8lab.torch.convert(family("Mixtral"), "te-delayed").train()
    run(model, tokens())
    name = "model.layers.0.mlp.experts.fp8_down_proj.1.fp8_weight_past"
    fresh = fp8lab.torch.convert(family("Mixtral"), "te-delayed").train()
    assert not torch.equal(model.state_dict()[name], fresh.state_dict()[name])
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    fresh.load_state_dict(model.state_dict())
    twins = [copy.deepcopy(model), torch.load(file, weights_only=False), fresh]
    loss, gradients = run(model, tokens())
    for twin in twins:
        again, same = run(twin, tokens())
        assert_same_bits(again, loss)
        for one, gradient in gradients.items():
            assert_same_bits(same[one], gradient, one)


def test_a_filter_leaves_parameters_out():
    model = fp8lab.torch.convert(family("Olmoe"), filter=lambda name, module: name.endswith("experts.down_proj"))
    assert {name.split(".")[5] for name in fp8lab.torch.layers(model)} == {"fp8_down_proj"}
    fp8lab.torch.convert(model, "deepgemm", filter=lambda name, module: name.endswith("gate_up_proj"))
    recipes = {name.split(".")[5]: one.recipe.name for name, one in fp8lab.torch.layers(model).items()}
    assert recipes == {"fp8_down_proj": "te-current", "fp8_gate_up_proj": "deepgemm"}


def attention_of_layers(module, recipe, x):
    """`nn.MultiheadAttention` without masks, its projections as layers."""
    made = []
    for weight, bias in ((module.in_proj_weight, module.in_proj_bias), (module.out_proj.weight, module.out_proj.bias)):
        layer = fp8lab.torch.Fp8Linear(weight.shape[1], weight.shape[0], recipe=recipe)
        layer.weight.data.copy_(weight)
        layer.bias.data.copy_(bias)
        made.append(layer)
    batch, length, width = x.shape
    q, k, v = made[0](x).chunk(3, dim=-1)
    q, k, v = (t.view(batch, length, module.num_heads, -1).transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v)
    return made[1](y.transpose(1, 2).reshape(batch, length, width))


@pytest.mark.parametrize("how", ["convert", "autocast"])
def test_multihead_attention(how):
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(64, 4, batch_first=True)
    x = log_normal(2, 16, 64, spread=0.5)
    expected = attention_of_layers(plain, "te-current", x)
    before = plain(x, x, x, need_weights=False)[0]
    if how == "convert":
        module = fp8lab.torch.convert(copy.deepcopy(plain))
        outputs = [module(x, x, x, need_weights=False)[0], module.eval()(x, x, x, need_weights=False)[0]]
        with torch.no_grad():
            outputs.append(module(x, x, x, need_weights=False)[0])
        cross = fp8lab.torch.convert(nn.MultiheadAttention(64, 4, kdim=32, vdim=48), "te-delayed")
        assert list(fp8lab.torch.layers(cross)) == [
            f"fp8_{name}.0" for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj_weight")
        ]
        cross(x, x[..., :32], x[..., :48])[0].sum().backward()
        # Cross attention reads q from one matrix of in_proj_weight, k and v from the second on.
        module(x, x + 1, x + 1)[0].sum().backward()
    else:
        with fp8lab.torch.autocast("te-current"):
            outputs = [plain(x, x, x, need_weights=False)[0]]
    for y in outputs:
        assert not torch.equal(y, before)
        assert_same_bits(y, expected)


def test_transformer_layers_take_no_fused_path():
    torch.manual_seed(0)
    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0), 2).eval()
    model = fp8lab.torch.convert(copy.deepcopy(plain), "deepgemm")
    x, mask = log_normal(2, 16, 64, spread=0.5), torch.zeros(2, 16, dtype=torch.bool)
    mask[0, 12:] = True
    for masks in ({}, {"src_key_padding_mask": mask}):
        slow = model(x, **masks)  # with gradients there is no fused path
        with torch.no_grad(), fp8lab.torch.record(model) as recording:
            fast = model(x, **masks)
        assert_same_bits(fast, slow)
        assert len(recording.statistics()) == 8
        assert not torch.equal(fast, plain(x, **masks))
    hooks = [len(m._forward_pre_hooks) for m in plain.modules()]
    restored = fp8lab.torch.restore(copy.deepcopy(model))
    assert [len(m._forward_pre_hooks) for m in restored.modules()] == hooks
    assert restored.use_nested_tensor == plain.use_nested_tensor
    with torch.no_grad():
        assert_same_bits(restored(x), plain(x))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * (x @ self.weight.T)


class Gathered(nn.Linear):
    def forward(self, x):
        return x @ self.weight[torch.arange(self.out_features)].T


class First(nn.Linear):
    def forward(self, x):
        return (self.weight @ x.T).T


class Half(nn.Module):
    """Experts one of whose weights enters no product that is seen."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(log_normal(2, 32, 32))
        self.down = nn.Parameter(log_normal(2, 32, 32))

    def forward(self, x, gain=1.0):
        return torch.einsum("gtk,gkn->gtn", torch.bmm(x, self.up), self.down) * gain


class StackedExperts(Half):
    def forward(self, x):
        return torch.bmm(x @ self.up, self.down)


def test_a_weight_without_a_product_is_told():
    experts = type("HalfExperts", (Half,), {})()
    fp8lab.torch.convert(experts)
    with pytest.raises(RuntimeError, match="Fp8HalfExperts: expected a product with down in its forward pass, got none"):
        experts(log_normal(2, 8, 32))
    # Of no rows there may be no product, whatever else there is.
    assert experts(torch.empty(2, 0, 32), torch.ones(1)).shape == (2, 0, 32)


@pytest.mark.parametrize("shape", [(2, 8, 32), (8, 32), (2, 0, 32)])
def test_a_product_of_stacked_weights_is_one_of_each(shape):
    experts = fp8lab.torch.convert(StackedExperts())
    x = log_normal(*shape)
    y = experts(x)
    for group in range(2):
        layers = [fp8lab.torch.Fp8Linear(32, 32, False) for _ in range(2)]
        for layer, weight in zip(layers, (experts.up, experts.down)):
            layer.weight.data.copy_(weight[group].t())
        assert_same_bits(y[group], nn.Sequential(*layers)(x.expand(2, *x.shape[-2:])[group]), f"group {group}")


@pytest.mark.skipif(not GROUPED, reason="torch has no grouped_mm")
@pytest.mark.parametrize("name", sorted(function.__name__ for function in GROUPED))
def test_grouped_mm_without_ends_runs_batches_in_fp8(name):
    class GroupedExperts(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Parameter(log_normal(2, 32, 48).to(torch.bfloat16))

        def forward(self, x, other=None):
            grouped_mm = next(one for one in GROUPED if one.__name__ == name)
            return grouped_mm(x, self.up) if other is None else grouped_mm(grouped_mm(x, self.up), other)

    experts = fp8lab.torch.convert(GroupedExperts())
    x = log_normal(2, 16, 32, seed=1).to(torch.bfloat16)
    y = experts(x)
    for group in range(2):
        layer = fp8lab.torch.Fp8Linear(32, 48, False, dtype=torch.bfloat16)
        layer.weight.data.copy_(experts.up[group].t())
        assert_same_bits(y[group], layer(x[group]), f"group {group}")
    plain = log_normal(2, 48, 16, seed=2).to(torch.bfloat16)  # no weight of the module
    assert_same_bits(experts(x, plain), torch.bmm(y, plain))


def test_subclasses_of_linear():
    falcon = transformers.FalconForCausalLM(
        transformers.FalconConfig(vocab_size=48, hidden_size=64, num_hidden_layers=1, num_attention_heads=4)
    ).eval()
    fp8lab.torch.convert(falcon, "deepgemm")
    layer = falcon.transformer.h[0].mlp.dense_h_to_4h
    twin = fp8lab.torch.Fp8Linear(64, 256, False, recipe="deepgemm")
    twin.weight.data.copy_(layer.weight)
    x = log_normal(4, 64)
    assert_same_bits(layer(x), twin(x))
    assert falcon(torch.arange(8)[None]).logits.isfinite().all()

    class Named(nn.Linear):  # has nn.Linear's own forward
        pass

    same = fp8lab.torch.convert(nn.Sequential(Named(64, 256, bias=False)), "deepgemm")
    same[0].weight.data.copy_(layer.weight)
    assert isinstance(same[0], Named) and same[0].recipe.name == "deepgemm"
    assert_same_bits(same(x), twin(x))
    assert type(fp8lab.torch.restore(same)[0]) is Named

    model = fp8lab.torch.convert(nn.Sequential(Doubled(64, 256, bias=False)), "deepgemm")
    model[0].weight.data.copy_(layer.weight)
    assert_same_bits(model(x), 2 * twin(x))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert_same_bits(torch.load(file, weights_only=False)(x), model(x))
    with pytest.raises(RuntimeError, match="Fp8Gathered: expected a product with weight in its"):
        fp8lab.torch.convert(nn.Sequential(Gathered(64, 32)))(x)
    with pytest.raises(ValueError, match="Fp8First: expected its weights as the second operand of matmul, got the first"):
        fp8lab.torch.convert(nn.Sequential(First(64, 32)))(x)

    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(64, 32))
    fp8lab.torch.convert(nn.Sequential(parametrized), "te-delayed")
    for seed in range(2):
        parametrized(log_normal(16, 64, seed=seed)).sum().backward()
    quantizer = fp8lab.Quantizer("te-delayed")
    for seed in range(2):
        quantizer.quantize(log_normal(16, 64, seed=seed).numpy())
    assert (parametrized.fp8_activation_past.numpy().view("f4") == quantizer._quantizer.past()).all()


def test_half_a_model_in_high_precision_warns():
    class Mixed(nn.Module):
        def __init__(self, hidden):
            super().__init__()
            self.up = nn.Linear(32, 32)
            self.conv = nn.Conv1d(32, hidden, 3)

    def warnings_of(call):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        return [str(one.message) for one in seen if one.category is HighPrecisionWarning]

    found = fp8lab.torch.decisions(Mixed(64))
    assert found == {"up": "", "conv.weight": "a parameter of Conv1d"}
    assert found.parameters == found.flops == 1024 / (1024 + 64 * 96)
    (text,) = warnings_of(lambda: fp8lab.torch.convert(Mixed(64)))
    assert "got 14 % of their weights and 14 % of a token's multiplications" in text
    assert "conv.weight (a parameter of Conv1d)" in text
    assert not warnings_of(lambda: fp8lab.torch.convert(Mixed(8)))

    bert = transformers.BertForMaskedLM(transformers.BertConfig(**SMALL))
    (text,) = warnings_of(lambda: fp8lab.torch.convert(copy.deepcopy(bert)))
    assert text.startswith("model: the rule leaves out 4 layers called output, such as bert.encoder.layer.0.attention.output.dense")
    assert not warnings_of(lambda: fp8lab.torch.convert(copy.deepcopy(bert), rule="linear"))
    linear = fp8lab.torch.decisions(bert, rule="linear")
    assert linear["bert.encoder.layer.0.attention.output.dense"] == ""
    assert linear["cls.predictions.decoder"] == "the weight is that of an embedding"
    # What a filter leaves out is meant.
    mlp = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 320))
    assert not warnings_of(lambda: fp8lab.torch.convert(mlp, filter=lambda name, module: name == "0"))


def test_autocast_names_the_products_that_it_leaves():
    x = log_normal(2, 8, 32)
    layer = nn.Linear(32, 32)
    with fp8lab.torch.autocast("deepgemm"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer(x)
            x[..., :1] @ x[..., :1].mT  # one term: nothing to cast for
        for name, call in (("bmm", lambda: torch.bmm(x, x.mT)), ("matmul", lambda: x @ x.mT)):
            with pytest.warns(HighPrecisionWarning, match=f"autocast: {name} runs in high precision"):
                call()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                call()


def test_autocast_knows_a_weight_by_its_parameter():
    """Views of a parameter are new tensors at each call."""
    torch.manual_seed(0)
    fused = nn.Parameter(log_normal(64, 32))
    context = fp8lab.torch.autocast("te-delayed")
    twins = [fp8lab.torch.Fp8Linear(32, 32, False, recipe="te-delayed") for _ in range(2)]
    for half, twin in zip(fused.detach().chunk(2), twins):
        twin.weight.data.copy_(half)
    for step in range(3):
        x = log_normal(8, 32, seed=step)
        with context:
            outputs = [F.linear(x, half) for half in fused.chunk(2)]
        for y, twin in zip(outputs, twins):
            assert_same_bits(y, twin(x), f"step {step}")
    frozen, twin = nn.Linear(32, 32, False).requires_grad_(False), fp8lab.torch.Fp8Linear(32, 32, False, recipe="te-delayed")
    twin.weight.data.copy_(frozen.weight)
    for step in range(3):
        x = log_normal(8, 32, seed=step)
        with context:
            y = frozen(x)
        assert_same_bits(y, twin(x).detach(), f"frozen, step {step}")
    norm = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
    with pytest.raises(ValueError, match="weight: expected a parameter or a view of one, since scales of the recipe have a"):
        with fp8lab.torch.autocast("te-delayed"):
            norm(x)
    with fp8lab.torch.autocast("te-current"):
        norm(x)
