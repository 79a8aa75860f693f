"""Calls of a function on NumPy arrays from programs that XLA runs.

`jax.pure_callback` copies its operands to a device and waits for the copy; where the CPU device has
one thread, which is the one that waits, that is forever. Here the function gets XLA's arrays as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

#: The function: NumPy arrays in, a tuple of them out; compared and hashed as a key of compiled programs.
Host = Callable[..., Any]
Shapes = tuple[tuple[tuple[int, ...], str], ...]

_callback = Primitive("fp8lab_callback")
_callback.multiple_results = True


def call(host: Host, results: Sequence[jax.ShapeDtypeStruct], *args: Array) -> list[Array]:
    """host(*args), whose results have these shapes and dtypes. It has no effect but its results.

    Under `jax.vmap` every operand gets a leading dimension, of size 1 if it is not mapped.
    """
    shapes = tuple((tuple(one.shape), one.dtype.name) for one in results)
    found: list[Array] = _callback.bind(*args, host=host, shapes=shapes)
    return found


@functools.partial(jax.jit, static_argnames=("host", "shapes"))
def _run(*args: Array, host: Host, shapes: Shapes) -> list[Array]:
    found: list[Array] = _callback.bind(*args, host=host, shapes=shapes)
    return found


_callback.def_impl(_run)


@_callback.def_abstract_eval
def _shapes(*args: Any, host: Host, shapes: Shapes) -> list[Any]:
    return [jax.core.ShapedArray(shape, jnp.dtype(dtype)) for shape, dtype in shapes]


def _batched(
    args: Sequence[Array], dims: Sequence[int | None], *, host: Host, shapes: Shapes
) -> tuple[list[Array], list[int]]:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [
        jnp.expand_dims(x, 0) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
    larger = tuple(((size, *shape), dtype) for shape, dtype in shapes)
    return _callback.bind(*moved, host=host, shapes=larger), [0] * len(shapes)


batching.primitive_batchers[_callback] = _batched


def _lowered(ctx: Any, *args: Any, host: Host, shapes: Shapes) -> Any:
    results, *_ = mlir.emit_python_callback(
        ctx, host, None, list(args), ctx.avals_in, ctx.avals_out, has_side_effect=False
    )
    return results


# The program holds the function: one read from a cache of compiled programs would not.
mlir.register_lowering(_callback, _lowered, cacheable=False)
