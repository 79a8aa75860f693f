"""Grouped products against one linear layer a group."""

import dataclasses

import pytest
import torch
from conftest import assert_same_bits, log_normal

import fp8lab
import fp8lab.torch


def expert(weight, recipe):
    layer = fp8lab.torch.Fp8Linear(*weight.shape, False, recipe=recipe)
    with torch.no_grad():
        layer.weight.copy_(weight.t())
    return layer


@pytest.mark.parametrize("recipe", ["deepgemm", "te-current"])
def test_groups_are_layers_of_their_own(recipe):
    ends = [40, 40, 168, 200]  # the second expert sees no token
    x = log_normal(210, 128).requires_grad_()
    weight = log_normal(4, 128, 64, seed=1).requires_grad_()
    dy = log_normal(210, 64, seed=2)
    y = fp8lab.torch.grouped_mm(x, weight, torch.tensor(ends, dtype=torch.int32), recipe=recipe)
    y.backward(dy)
    assert y.shape == (210, 64) and not y[200:].any() and not x.grad[200:].any()
    start = 0
    for group, end in enumerate(ends):
        layer = expert(weight[group], recipe)
        part = x.detach()[start:end].clone().requires_grad_()
        expected = layer(part)
        expected.backward(dy[start:end])
        assert_same_bits(y[start:end], expected)
        assert_same_bits(x.grad[start:end], part.grad)
        assert_same_bits(weight.grad[group], layer.weight.grad.t().contiguous())
        start = end


def test_batches():
    x, weight = log_normal(3, 16, 128), log_normal(3, 128, 32, seed=1)
    y = fp8lab.torch.grouped_mm(x, weight, recipe="deepgemm", hardware="sm100")
    for group in range(3):
        layer = fp8lab.torch.convert(
            torch.nn.Sequential(torch.nn.Linear(128, 32, bias=False)), "deepgemm", hardware="sm100"
        )
        with torch.no_grad():
            layer[0].weight.copy_(weight[group].t())
        assert_same_bits(y[group], layer(x[group]).detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wgrad", ["fp8", "bf16"])
def test_types_and_products_in_higher_precision(dtype, wgrad):
    """Sizes that are padded, outputs of 16 bits, and a product that is not in FP8."""
    recipe = fp8lab.linear_recipe("deepgemm")
    if wgrad != "fp8":
        recipe = dataclasses.replace(recipe, wgrad=dataclasses.replace(recipe.wgrad, arithmetic=wgrad))
    ends = [0, 5, 24]
    x = log_normal(30, 72).to(dtype).requires_grad_()
    weight = log_normal(3, 72, 40, seed=1).to(dtype).requires_grad_()
    dy = log_normal(30, 40, seed=2).to(dtype)
    y = fp8lab.torch.grouped_mm(x, weight, torch.tensor(ends), recipe=recipe)
    y.backward(dy)
    assert y.dtype == dtype and not weight.grad[0].any() and not y[24:].any()
    for group, (start, end) in ((1, (0, 5)), (2, (5, 24))):
        layer = expert(weight[group], recipe).to(dtype)
        part = x.detach()[start:end].clone().requires_grad_()
        expected = layer(part)
        expected.backward(dy[start:end])
        assert_same_bits(y[start:end], expected)
        assert_same_bits(x.grad[start:end], part.grad)
        assert_same_bits(weight.grad[group], layer.weight.grad.t().contiguous())


def test_operators_are_whole():
    from fp8lab.torch._plan import text_of

    text = text_of(fp8lab.linear_recipe("deepgemm"))
    x, weight = log_normal(24, 128).requires_grad_(), log_normal(2, 128, 64, seed=1).requires_grad_()
    torch.library.opcheck(torch.ops.fp8lab.grouped_linear, (x, weight, [9, 24], text))
    y, *codes = torch.ops.fp8lab.grouped_linear(x, weight, [9, 24], text)
    assert y.requires_grad and [one.requires_grad for one in codes] == [False] * 4
    product = torch.ops.fp8lab.grouped_linear
    compiled = torch.compile(lambda a, b: product(a, b, [9, 24], text)[0], fullgraph=True, backend="aot_eager")
    assert_same_bits(compiled(x, weight), product(x, weight, [9, 24], text)[0])


def test_batches_compile_as_a_whole_graph():
    x, weight = log_normal(2, 5, 64), log_normal(2, 64, 48, seed=1)
    compiled = torch.compile(lambda x, w: fp8lab.torch.grouped_mm(x, w), fullgraph=True, backend="aot_eager")
    assert_same_bits(compiled(x, weight), fp8lab.torch.grouped_mm(x, weight))


def test_errors_name_the_argument():
    x, weight = torch.ones(6, 16), torch.ones(2, 16, 8)
    for offs in ([4], [4, 7], [5, 4]):
        with pytest.raises(ValueError, match="offs: expected 2 ends of groups, rising to at most 6"):
            fp8lab.torch.grouped_mm(x, weight, torch.tensor(offs))
    with pytest.raises(ValueError, match=r"weight: expected \[groups, 16, n\]"):
        fp8lab.torch.grouped_mm(x, weight.mT, torch.tensor([4, 6]))
    with pytest.raises(ValueError, match=r"x: expected \[2, m, k\] without offs"):
        fp8lab.torch.grouped_mm(x, weight)
    with pytest.raises(ValueError, match="recipe: expected one that uses only the current tensor, got delayed"):
        fp8lab.torch.grouped_mm(x, weight, torch.tensor([4, 6]), recipe="te-delayed")
