"""Layers of DTensors on two ranks against layers of their shards, and against the whole layer."""

import contextlib
import copy

import pytest
import torch
import torch.distributed as dist
from conftest import assert_same_bits, log_normal
from ranks import RANKS, on_ranks
from torch import nn

import fp8lab
import fp8lab.torch

IN, HIDDEN, OUT, ROWS = 256, 512, 256, 32
DEALT = (32, 31, 1)  # evenly, unevenly, to one rank alone
RECIPES = ("te-current", "deepgemm", "te-delayed")
CASES = [
    *((recipe, order, "shard", False) for recipe in RECIPES for order in ("before", "after")),
    ("te-current", "in a context", "shard", False),
    ("te-current", "before", "whole", False),
    ("torchao-tensorwise", "after", "whole", False),
    ("deepgemm", "before", "shard", True),
    ("te-current", "before", "whole", True),
]


def mlp():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT))
    with torch.no_grad():  # the shards differ in their amaxes
        model[0].weight[: HIDDEN // 2] *= 7
        model[2].weight[:, HIDDEN // 2 :] *= 5
    return model.bfloat16()


def data(step):
    return log_normal(1, ROWS, IN, seed=step).bfloat16(), log_normal(1, ROWS, OUT, seed=50 + step).bfloat16()


def parallel(recipe, order, amax, sequence):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = mlp()
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    where = {"input_layouts": Shard(1)} if sequence else {}
    to = {"output_layouts": Shard(1)} if sequence else {}
    plan = {"0": ColwiseParallel(**where), "2": RowwiseParallel(**to)}
    if order == "before":
        fp8lab.torch.convert(model, recipe, amax=amax)
    parallelize_module(model, mesh, plan)
    if order == "after":
        fp8lab.torch.convert(model, recipe, amax=amax)
    return model


def rows_of_ranks(rows):
    """Inputs and gradients whose halves, a rank's each, differ in their amaxes."""
    x, dy = log_normal(1, rows, IN).bfloat16(), log_normal(1, rows, HIDDEN, seed=50).bfloat16()
    x[:, : (rows + 1) // 2] *= 3
    dy[:, (rows + 1) // 2 :] *= 5
    return x, dy


def replicated(amax, rows):
    """y, dx, dw and db of a layer that each rank has whole, under rows that are dealt out."""
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    layer = distribute_module(fp8lab.torch.convert(nn.Sequential(mlp()[0]), amax=amax), mesh)[0]
    x, dy = (distribute_tensor(t, mesh, [Shard(1)]) for t in rows_of_ranks(rows))
    y = layer(x.requires_grad_())
    y.backward(dy)
    return [t.full_tensor().detach() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)]


def odd():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(IN, OUT + 1)).bfloat16()


def columns_of_ranks():
    """y of a layer whose columns do not come out even."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    layer = fp8lab.torch.convert(odd(), rule="all")
    return parallelize_module(layer, mesh, {"0": ColwiseParallel(output_layouts=Replicate())})(data(0)[0]).detach()


def rank(index, folder):
    results = {(amax, rows): replicated(amax, rows) for amax in ("shard", "whole") for rows in DEALT}
    results["columns"] = columns_of_ranks()
    for case in CASES:
        recipe, _, _, sequence = case
        model, seen = parallel(*case), []
        context = fp8lab.torch.autocast(recipe) if case[1] == "in a context" else contextlib.nullcontext()
        for step in range(2):
            x, dy = data(step)
            if sequence:
                x, dy = (t.chunk(RANKS, 1)[index].contiguous() for t in (x, dy))
            x.requires_grad_()
            model.zero_grad()
            with context:
                y = model(x)
            y.backward(dy)
            gradients = [p.grad.full_tensor() for p in model.parameters()]
            parts = [None] * RANKS
            dist.all_gather_object(parts, (y.detach() + 0, x.grad))
            y, dx = (torch.cat(one, 1) if sequence else one[0] for one in zip(*parts))
            seen.append((y, dx, *gradients))
        results[case] = seen
    with pytest.raises(NotImplementedError, match="amax: expected 'shard', or a recipe with one scale a tensor"):
        parallel("deepgemm", "before", "whole", False)(data(0)[0])
    if index == 0:
        torch.save(results, f"{folder}/results.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("parallel"))
    on_ranks(rank, folder)
    return torch.load(f"{folder}/results.pt")


def shards(recipe):
    """The layers of each rank, as layers of their own."""
    whole = mlp()
    made = []
    for index in range(RANKS):
        first = fp8lab.torch.Fp8Linear(IN, HIDDEN // RANKS, dtype=torch.bfloat16, recipe=recipe)
        second = fp8lab.torch.Fp8Linear(HIDDEN // RANKS, OUT, False, dtype=torch.bfloat16, recipe=recipe)
        with torch.no_grad():
            first.weight.copy_(whole[0].weight.chunk(RANKS, 0)[index])
            first.bias.copy_(whole[0].bias.chunk(RANKS, 0)[index])
            second.weight.copy_(whole[2].weight.chunk(RANKS, 1)[index])
        made.append((first, second))
    return made, whole[2].bias.detach().requires_grad_()


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "shard"], ids=str)
def test_each_rank_casts_its_shards(results, case):
    layers, bias = shards(case[0])
    for step, seen in enumerate(results[case]):
        x, dy = data(step)
        inputs = [x.clone().requires_grad_() for _ in range(RANKS)]
        parts = [second(torch.tanh(first(one))) for (first, second), one in zip(layers, inputs)]
        y = parts[0] + parts[1] + bias
        for module in (*layers[0], *layers[1]):
            module.zero_grad()
        bias.grad = None
        y.backward(dy)
        expected = (
            y.detach(), inputs[0].grad + inputs[1].grad,
            torch.cat([first.weight.grad for first, _ in layers]), torch.cat([first.bias.grad for first, _ in layers]),
            torch.cat([second.weight.grad for _, second in layers], 1), bias.grad,
        )
        for name, got, wanted in zip(("y", "dx", "dw0", "db0", "dw2", "db2"), seen, expected, strict=True):
            if name != "db2" or not case[3]:  # torch's own sum, in another order where rows are dealt out
                assert_same_bits(got, wanted, f"{case} step {step}: {name}")


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "whole" and not case[3]], ids=str)
def test_scales_of_the_whole_tensor(results, case):
    """What no rank sums alone has the bits of the whole layer; what ranks sum, those of its parts with its scales."""
    recipe = fp8lab.linear_recipe(case[0])
    whole = fp8lab.torch.convert(mlp(), recipe)
    x, dy = data(0)
    with fp8lab.torch.record(whole) as recording:
        y = whole(x)
        y.backward(dy)
    seen = results[case][0]
    seen_by = recording._passes["2"]
    h, w = (
        fp8lab.quantize(t.float().numpy().reshape(-1, HIDDEN), cast)
        for t, cast in ((seen_by.x, recipe.activation), (seen_by.weight, recipe.weight))
    )
    parts = []
    for half in (slice(0, HIDDEN // 2), slice(HIDDEN // 2, HIDDEN)):
        d = fp8lab.gemm(
            h.codes[:, half], w.codes[:, half], model=recipe.fprop.accumulator,
            promotion_interval=recipe.fprop.promotion_interval,
            scale_a=h.inverse_scales, scale_b=w.inverse_scales,
        )
        parts.append(torch.from_numpy(d).bfloat16())
    expected = (parts[0] + parts[1] + whole[2].bias.detach()).reshape(y.shape)
    assert_same_bits(seen[0], expected, "y")
    # dW of the row-wise layer: rows of tokens alone are summed, and dY is the same on both ranks.
    assert_same_bits(seen[4], whole[2].weight.grad, "dw2")
    if case[0] == "te-current":
        assert not torch.equal(results[case[0], "before", "shard", False][0][4], whole[2].weight.grad)


def test_a_sequence_that_is_dealt_out_changes_no_bit_of_the_scales(results):
    """Its parts are gathered before the first layer and summed after the last."""
    for amax, recipe in (("shard", "deepgemm"), ("whole", "te-current")):
        for dealt, plain in zip(results[(recipe, "before", amax, True)], results[(recipe, "before", amax, False)]):
            for name, got, expected in zip(("y", "dx", "dw0", "db0", "dw2"), dealt, plain):
                assert_same_bits(got, expected, f"{recipe}: {name}")


@pytest.mark.parametrize("rows", DEALT)
def test_a_layer_that_each_rank_has_sums_its_gradients(results, rows):
    whole = fp8lab.torch.convert(nn.Sequential(mlp()[0]))[0]

    def of(x, dy):
        whole.zero_grad()
        x = x.clone().requires_grad_()
        y = whole(x)
        y.backward(dy)
        return y.detach(), x.grad, whole.weight.grad, whole.bias.grad

    parts = [of(*given) for given in zip(*(t.chunk(RANKS, 1) for t in rows_of_ranks(rows)))]
    expected = [torch.cat(one, 1) if i < 2 else sum(one) for i, one in enumerate(zip(*parts))]
    for name, got, wanted in zip(("y", "dx", "dw", "db"), results["shard", rows], expected, strict=True):
        assert_same_bits(got, wanted, name)
    for name, got, wanted, by_shard in zip(("y", "dx"), results["whole", rows], of(*rows_of_ranks(rows)), expected):
        assert_same_bits(got, wanted, name)
        assert torch.equal(got, by_shard) == (rows == 1), name


def test_columns_that_do_not_come_out_even(results):
    whole, x = odd()[0], data(0)[0]
    parts = []
    for weight, bias in zip(whole.weight.chunk(RANKS), whole.bias.chunk(RANKS)):
        layer = fp8lab.torch.Fp8Linear(IN, len(weight), dtype=torch.bfloat16)
        layer.load_state_dict({"weight": weight, "bias": bias})
        parts.append(layer(x).detach())
    assert_same_bits(results["columns"], torch.cat(parts, -1))


@contextlib.contextmanager
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_a_tensor_beside_a_dtensor():
    """An input of all ranks counts as replicated; a weight that is no DTensor is refused."""
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    whole = fp8lab.torch.Fp8Linear(IN, OUT, recipe="te-current")
    layer, x = copy.deepcopy(whole), log_normal(ROWS, IN, seed=1)
    with one_rank() as mesh:
        with pytest.raises(NotImplementedError, match="^weight: expected a DTensor, as x is, got a tensor; parallelize the layer too$"):
            whole(distribute_tensor(x, mesh, [Replicate()]))
        for name, parameter in list(layer.named_parameters()):
            layer.register_parameter(name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Replicate()])))
        y = layer(x)
        assert isinstance(y, DTensor) and y.placements == (Replicate(),)
        assert_same_bits(y.to_local(), whole(x), "y")


def test_errors():
    with pytest.raises(ValueError, match="amax: expected shard or whole, got 'all'"):
        fp8lab.torch.convert(mlp(), amax="all")
