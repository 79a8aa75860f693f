"""`dot_general` and `einsum` under a linear recipe, with its two gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from fp8lab._arrays import bad, text
from fp8lab._linear import LinearRecipe, linear_recipe
from fp8lab.jax import _host
from fp8lab.jax._callback import call

Dimensions = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]
_DTYPES = ("float32", "bfloat16", "float16")


@functools.lru_cache(maxsize=256)
def _ready(recipe: str | LinearRecipe, hardware: str | None) -> LinearRecipe:
    found = linear_recipe(recipe, hardware=hardware)
    for name in _host.OPERANDS:
        for one in _host.products_of(found).casts(name):
            if one.source != "current":
                expected = "one whose scales come from the tensors themselves, since JAX keeps no state"
                raise bad("recipe", expected, f"{found.name}, whose source is {one.source}")
    return found


def require_floats(argument: str, x: ArrayLike) -> Array:
    """As an array; a wider type would be rounded twice, unseen."""
    array = jnp.asarray(x)
    if array.dtype.name not in _DTYPES:
        raise bad(argument, " or ".join(_DTYPES), array.dtype)
    return array


def _call(recipe: LinearRecipe, name: str, dtype: np.dtype[Any], a: Array, b: Array) -> Array:
    host = _host.Product(recipe, name, dtype)
    shape = (*a.shape[:-2], *host.rows(a, b))
    return call(host, [jax.ShapeDtypeStruct(shape, dtype)], a, b)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _linear(recipe: LinearRecipe, dtype: np.dtype[Any], x: Array, w: Array) -> Array:
    """Y [..., m, n] = X [..., m, k] . W [..., n, k]^T."""
    return _call(recipe, "fprop", dtype, x, w)


def _linear_forward(
    recipe: LinearRecipe, dtype: np.dtype[Any], x: Array, w: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _linear(recipe, dtype, x, w), (x, w)


def _linear_backward(
    recipe: LinearRecipe, dtype: np.dtype[Any], kept: tuple[Array, Array], dy: Array
) -> tuple[Array, Array]:
    x, w = kept
    return _call(recipe, "dgrad", x.dtype, dy, w), _call(recipe, "wgrad", w.dtype, dy, x)


_linear.defvjp(_linear_forward, _linear_backward)


def _axes(argument: str, given: Sequence[int], x: Array) -> list[int]:
    found = []
    for axis in given:
        if not -x.ndim <= axis < x.ndim:
            raise bad("dimension_numbers", f"dimensions of {argument}, which has {x.ndim}", axis)
        found.append(int(axis) % x.ndim)
    return found


def _matrices(x: Array, batch: list[int], summed: list[int]) -> tuple[Array, list[int]]:
    """[batch..., free, summed], and the sizes of the free dimensions."""
    free = [axis for axis in range(x.ndim) if axis not in batch + summed]
    sizes = [x.shape[axis] for axis in free]
    turned = jnp.transpose(x, batch + free + summed)
    shape = [x.shape[axis] for axis in batch]
    shape += [math.prod(sizes), math.prod(x.shape[axis] for axis in summed)]
    return turned.reshape(shape), sizes


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Dimensions,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Any = None,
    recipe: str | LinearRecipe = "te-current",
    hardware: str | None = None,
) -> Array:
    """`jax.lax.dot_general` under a linear recipe: lhs is the activation, rhs the weight.

    lhs and rhs: float32, bfloat16 or float16. Free dimensions of lhs are the rows (tokens) of one
    tensor; of each element of batch dimensions the product stands alone, with scales of its own, as
    under `jax.vmap`. Gradients are the recipe's dgrad and wgrad, with the gradient cast as the recipe
    says; the bits of all three are those of the library's own layer (`fp8lab.linear_recipe`). The FP32
    sum is rounded once, to preferred_element_type or the type of the operands; float32 results are
    BF16 numbers where the recipe has BF16 outputs. Sizes that the system's kernels refuse are padded
    with zeros.

    recipe: a name of `fp8lab.linear_recipes()` or a `LinearRecipe`; hardware as for
    `fp8lab.linear_recipe`. ValueError for a recipe with scales of earlier tensors (delayed, windowed,
    calibrated), for other dtypes, and for a precision or out_sharding, which a callback has none of.

    In Flax: `nn.Dense(n, dot_general=functools.partial(fp8lab.jax.dot_general, recipe="te-current"))`.

    >>> import jax.numpy as jnp, fp8lab.jax
    >>> ones = jnp.ones((1, 32768))
    >>> dimensions = (((1,), (1,)), ((), ()))
    >>> float(fp8lab.jax.dot_general(ones, ones, dimensions)[0, 0])  # the accumulator of Hopper
    10688.0
    >>> float(fp8lab.jax.dot_general(ones, ones, dimensions, hardware="exact")[0, 0])
    32768.0
    """
    if precision not in (None, jax.lax.Precision.DEFAULT):
        raise bad("precision", "None, since the recipe says how the product is computed", precision)
    if out_sharding is not None:
        raise bad("out_sharding", "None", out_sharding)
    x, w = require_floats("lhs", lhs), require_floats("rhs", rhs)
    wanted = preferred_element_type if preferred_element_type is not None else jnp.result_type(x, w)
    dtype = np.dtype(wanted)
    if dtype.name not in _DTYPES:
        raise bad("preferred_element_type", " or ".join(_DTYPES), dtype)
    (x_sum, w_sum), (x_batch, w_batch) = (
        (_axes("lhs", of_lhs, x), _axes("rhs", of_rhs, w)) for of_lhs, of_rhs in dimension_numbers
    )
    for what, of_lhs, of_rhs in (("summed", x_sum, w_sum), ("batch", x_batch, w_batch)):
        sizes = [x.shape[axis] for axis in of_lhs], [w.shape[axis] for axis in of_rhs]
        if sizes[0] != sizes[1]:
            raise bad("rhs", f"{what} dimensions of sizes {sizes[0]}, as lhs has", sizes[1])
    left, rows = _matrices(x, x_batch, x_sum)
    right, columns = _matrices(w, w_batch, w_sum)
    y = _linear(_ready(recipe, hardware), dtype, left, right)
    return y.reshape([*y.shape[:-2], *rows, *columns])


def _labels(subscripts: str, shapes: list[int]) -> tuple[list[str], str]:
    """The labels of both operands and of the result, one a dimension: digits stand for an ellipsis."""
    expected = "two operands and a result, as in 'bk,kn->bn'"
    inputs, arrow, output = text("subscripts", subscripts).replace(" ", "").partition("->")
    operands = inputs.split(",")
    if not arrow or len(operands) != 2:
        raise bad("subscripts", expected, repr(subscripts))
    hidden = 0
    for i, (labels, size) in enumerate(zip(operands, shapes, strict=True)):
        more = size - len(labels.replace("...", ""))
        if more < 0 or (more > 0 and "..." not in labels):
            raise bad("subscripts", f"{size} dimensions of operand {i}", repr(labels))
        operands[i] = labels.replace("...", "".join(str(d) for d in range(more)))
        hidden = max(hidden, more)
    output = output.replace("...", "".join(str(d) for d in range(hidden)))
    for labels in (*operands, output):
        if len(set(labels)) != len(labels) or not labels.isalnum() * bool(labels):
            raise bad("subscripts", "letters, each once in a term", repr(subscripts))
    if set(output) - set("".join(operands)) or set("".join(operands)) - set(output) - (
        set(operands[0]) & set(operands[1])
    ):
        raise bad("subscripts", "labels of one operand in the result too", repr(subscripts))
    return operands, output


def einsum(
    subscripts: str,
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    preferred_element_type: DTypeLike | None = None,
    recipe: str | LinearRecipe = "te-current",
    hardware: str | None = None,
) -> Array:
    """`jax.numpy.einsum` of two operands, as one `dot_general` under a linear recipe.

    lhs is the activation, rhs the weight. A label in both operands and in the result is a batch
    dimension, one in both alone is summed; an ellipsis stands for dimensions of the same sizes. A
    repeated label within an operand, and one that a single operand sums over, are a ValueError.

    >>> import jax.numpy as jnp, fp8lab.jax
    >>> x, w = jnp.ones((2, 3, 64)), jnp.ones((64, 4, 16))
    >>> fp8lab.jax.einsum("...k,khd->...hd", x, w, recipe="torchao-rowwise").shape
    (2, 3, 4, 16)
    """
    x, w = require_floats("lhs", lhs), require_floats("rhs", rhs)
    (left, right), output = _labels(subscripts, [x.ndim, w.ndim])
    shared = [label for label in left if label in right]
    batch = [label for label in shared if label in output]
    summed = [label for label in shared if label not in output]

    def places(labels: list[str]) -> tuple[list[int], list[int]]:
        return [left.index(label) for label in labels], [right.index(label) for label in labels]

    y = dot_general(
        x, w, (places(summed), places(batch)), None, preferred_element_type, recipe=recipe, hardware=hardware
    )
    order = batch + [label for label in left + right if label not in shared]
    return jnp.transpose(y, [order.index(label) for label in output])
