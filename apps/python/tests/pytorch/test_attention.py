"""FP8 attention against the library's, and its gradients against torch's own in FP64."""

import pytest
import torch
from conftest import assert_same_bits, log_normal

import fp8lab
import fp8lab.torch


def operands(m=40, n=40, dtype=torch.float32):
    shapes = ((2, 4, m, 64), (2, 2, n, 64), (2, 2, n, 32))
    return [log_normal(*s, seed=i, spread=0.5).to(dtype).requires_grad_() for i, s in enumerate(shapes)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_is_the_library_s_and_backward_torch_s(causal, dtype):
    q, k, v = operands(dtype=dtype)
    o = fp8lab.torch.sdpa(q, k, v, is_causal=causal)
    for item in range(2):
        arrays = [x.detach().float().numpy()[item] for x in (q, k, v)]
        expected = torch.from_numpy(fp8lab.attention(*arrays, causal=causal).o).to(dtype)
        assert_same_bits(o[item], expected)
    d_o = log_normal(*o.shape, seed=9).to(dtype)
    o.backward(d_o)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    y = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal, enable_gqa=True)
    y.backward(d_o.double())
    for name, x, reference in zip("qkv", (q, k, v), exact):
        assert x.grad.dtype == dtype
        error = (x.grad.double() - reference.grad).norm() / reference.grad.norm()
        # dV does not see O; dQ and dK see that of the FP8 pass in their row sums.
        assert error < (0.003 if name == "v" else 0.15), (name, float(error))


@pytest.mark.parametrize("argument", [
    {}, {"scale": 0.3}, {"is_causal": True}, {"model": "sm89.mma.e4m3"}, {"kv_cache": "e4m3.tensor"}, {"kv_cache": "nvfp4"},
])  # fmt: skip
def test_each_argument_counts_over_several_tiles_of_keys(argument):
    """Sums over three tiles show what goes from one to the next; a scale of a cache's tensor is one for the batch."""
    q, k, v = (x.detach() for x in operands(300 if "is_causal" in argument else 130, 300))
    o = fp8lab.torch.sdpa(q, k, v, **argument)
    names = {"scale": ("softmax_scale",), "is_causal": ("causal",), "model": ("qk_model", "pv_model")}
    options = {name: value for given, value in argument.items() for name in names.get(given, (given,))}
    expected = fp8lab.attention(*(x.flatten(0, 1).numpy() for x in (q, k, v)), **options)
    assert_same_bits(o.flatten(0, 1), torch.from_numpy(expected.o))
    assert not argument or not torch.equal(o, fp8lab.torch.sdpa(q, k, v))


def test_operators_pass_opcheck():
    q, k, v = operands(16, 24)
    torch.library.opcheck(torch.ops.fp8lab.attention.default, (q, k, v, 0.0, False, "sm90.wgmma.e4m3", "e4m3.head"))
    o = fp8lab.torch.sdpa(q, k, v).detach()
    given = (o, q.detach(), k.detach(), v.detach(), o, 0.25, False, "sm100.tcgen05.e4m3")
    torch.library.opcheck(torch.ops.fp8lab.attention_backward.default, given)


def test_errors_name_the_argument():
    q, k, v = operands(16, 24)
    with pytest.raises(ValueError, match="is_causal: expected m = n, got 16 and 24"):
        fp8lab.torch.sdpa(q, k, v, is_causal=True)
    with pytest.raises(ValueError, match=r"key: expected \[2\] and \[heads, rows, columns\]"):
        fp8lab.torch.sdpa(q, k[0], v)
    for name, shapes in (("query", [(2, 0, 64), (2, 24, 64)]), ("key", [(2, 16, 64), (2, 0, 64)]), ("query", [(0, 4, 16, 64)] * 2)):
        x, other = (torch.zeros(*shape) for shape in shapes)
        with pytest.raises(ValueError, match=rf"^{name}: expected dimensions above 0, got \[.*0, .*\]$"):
            fp8lab.torch.sdpa(x, other, other)
    with pytest.raises(ValueError, match="scale: expected a positive number, got -1"):
        fp8lab.torch.sdpa(q, k, v, scale=-1)


def test_the_cache_of_keys_and_values_is_the_one_that_is_named():
    q, k, v = (torch.randn(1, heads, 32, 64) for heads in (4, 2, 2))
    default = fp8lab.torch.sdpa(q, k, v)
    assert torch.equal(fp8lab.torch.sdpa(q, k, v, kv_cache="e4m3.head"), default)
    held = fp8lab.torch.sdpa(q, k, v, kv_cache="nvfp4")
    expected = fp8lab.attention(q[0].numpy(), k[0].numpy(), v[0].numpy(), kv_cache="nvfp4").o
    assert torch.equal(held[0], torch.from_numpy(expected))
    assert not torch.equal(held, default)
    with pytest.raises(ValueError, match="kv_cache: expected one of"):
        fp8lab.torch.sdpa(q, k, v, kv_cache="fp8")
