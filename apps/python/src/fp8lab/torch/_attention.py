"""Scaled dot-product attention through FP8 tensor cores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fp8lab import _core
from fp8lab.torch._device import require_cpu
from fp8lab.torch._ops import require_floats
from fp8lab.torch._plan import array_of, threads


def _options(model: str, softmax_scale: float, causal: bool) -> _core.AttentionOptions:
    return _core.AttentionOptions(
        qk_model=model,
        pv_model=model,
        q_tile=128,
        kv_tile=128,
        softmax_scale=softmax_scale,
        p_offset=8.0,
        rescale_threshold=0.0,
        causal=causal,
        two_level=False,
        threads=threads(),
    )


def _heads(x: Tensor) -> Any:
    """[..., heads, rows, columns] as the library takes it: [all heads, rows, columns]."""
    return array_of(x.float().reshape(-1, *x.shape[-2:]).contiguous())


def _cached(x: Tensor, cache: str) -> _core.AttentionTensor:
    return _core.AttentionTensor.of_cache(_heads(x), cache, None)


@torch.library.custom_op("fp8lab::attention", mutates_args=())
def attention_op(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool, model: str, kv_cache: str
) -> Tensor:
    """`sdpa` on tensors whose shapes fit."""
    for name, x in (("query", q), ("key", k), ("value", v)):
        require_cpu(name, x)
        require_floats(name, x)
    left = _core.AttentionTensor.of_values(_heads(q))
    keys, values = (_cached(x, kv_cache) for x in (k, v))
    o = _core.attention_output(left, keys, values, _options(model, softmax_scale, causal))
    return torch.from_numpy(o).reshape(*q.shape[:-1], v.shape[-1]).to(q.dtype)


@attention_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool, model: str, kv_cache: str
) -> Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.custom_op("fp8lab::attention_backward", mutates_args=())
def attention_backward_op(
    d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, softmax_scale: float, causal: bool, model: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of exact attention at Q, K and V, in FP64, with the forward pass's own O."""
    left, keys, values = (_core.AttentionTensor.of_values(_heads(x)) for x in (q, k, v))
    options = _options(model, softmax_scale, causal)
    found = _core.attention_backward(left, keys, values, _heads(o), _heads(d_o), options)
    dq, dk, dv = (torch.from_numpy(d).reshape(x.shape).to(x.dtype) for d, x in zip(found, (q, k, v)))
    return dq, dk, dv


@attention_backward_op.register_fake
def _(
    d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, softmax_scale: float, causal: bool, model: str
) -> tuple[Tensor, Tensor, Tensor]:
    # A new layout, as the real ones have: gradients are dense whatever their tensor is.
    return tuple(x.new_empty(x.shape) for x in (q, k, v))  # type: ignore[return-value]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.softmax_scale, ctx.causal, ctx.model, _ = inputs
    ctx.save_for_backward(*tensors, output)


def _backward(ctx: Any, d_o: Tensor) -> tuple[Any, ...]:
    found = torch.ops.fp8lab.attention_backward(
        d_o, *ctx.saved_tensors, ctx.softmax_scale, ctx.causal, ctx.model
    )
    return (*found, None, None, None, None)


attention_op.register_autograd(_backward, setup_context=_setup_context)


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    model: str = "sm90.wgmma.e4m3",
    kv_cache: str = "e4m3.head",
) -> Tensor:
    """softmax(scale Q K^T) V as FlashAttention's FP8 kernels compute it (`fp8lab.attention`).

    query [..., heads, m, d], key [..., kv_heads, n, d], value [..., kv_heads, n, d_v] with the same
    leading dimensions; head h of the query reads head h / (heads / kv_heads). Each head is
    quantized to E4M3 by its amax; key and value as a cache holds them (`fp8lab.kv_caches`), with one
    scale for the whole batch where it has one for the tensor; P is E4M3; `model` sums both products.
    Output in the query's dtype, rounded to nearest even from FP32. is_causal as in torch, for m = n.
    scale: None is 1 / sqrt(d).

    Gradients are those of exact attention at Q, K and V, in FP64, with the output of the FP8 pass
    in their row sums (*assumed*: FlashAttention-3 has no FP8 backward pass). Masks and dropout are
    not supported. ValueError for arguments that do not fit.

    >>> import torch, fp8lab.torch
    >>> q, k, v = (torch.randn(1, heads, 32, 64) for heads in (4, 2, 2))
    >>> exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    >>> error = (fp8lab.torch.sdpa(q, k, v) - exact).norm() / exact.norm()
    >>> 0.005 < float(error) < 0.1
    True
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 3 or x.shape[:-3] != query.shape[:-3]:
            expected = f"{[*query.shape[:-3]]} and [heads, rows, columns]"
            raise ValueError(f"{name}: expected {expected}, got {list(x.shape)}")
        if 0 in x.shape:
            raise ValueError(f"{name}: expected dimensions above 0, got {list(x.shape)}")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise ValueError(f"is_causal: expected m = n, got {query.shape[-2]} and {key.shape[-2]}")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale: expected a positive number, got {scale}")
    result: Tensor = torch.ops.fp8lab.attention(
        query, key, value, scale or 0.0, is_causal, model, kv_cache
    )
    return result
