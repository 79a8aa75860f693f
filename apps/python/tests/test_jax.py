"""fp8lab.jax against the library's own layer, bit for bit. Skipped without JAX (`./dev jax`)."""

import dataclasses
import functools
import itertools
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab import _core

jax = pytest.importorskip("jax")
jnp = jax.numpy
import fp8lab.jax  # noqa: E402

f32 = np.float32
DENSE = (((1,), (0,)), ((), ()))
RECIPES = [
    name
    for name in fp8lab.linear_recipes()
    if all(
        getattr(fp8lab.linear_recipe(name), role).source == "current"
        for role in ("activation", "weight", "gradient")
    )
]


def drawn(*shape, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(f32)


def same_bits(got, expected, what=""):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    word = {1: np.uint8, 2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    np.testing.assert_array_equal(got.view(word), expected.view(word), err_msg=what)


def own_step(recipe, x, w, dy):
    """Y, dX and dW [out, in] of the library's own layer."""
    return _core.LinearLayer(fp8lab.linear_recipe(recipe)._core()).step(x, w, dy, 2)


def dense(recipe):
    return functools.partial(fp8lab.jax.dot_general, dimension_numbers=DENSE, recipe=recipe)


@pytest.mark.parametrize("name", RECIPES)
def test_steps_have_the_bits_of_the_library_s_own_layer(name):
    x, w, dy = drawn(128, 256), drawn(128, 256, seed=2), drawn(128, 128, seed=3)
    y, pull = jax.vjp(dense(name), x, w.T)
    dx, dw = pull(jnp.asarray(dy))
    for what, got, expected in zip(("y", "dx", "dw"), (y, dx, dw.T), own_step(name, x, w, dy)):
        same_bits(got, expected, f"{name} {what}")


def test_recipes_and_hardware_differ():
    x, w = drawn(64, 4096), drawn(4096, 32, seed=2)
    seen = {np.asarray(dense(name)(x, w)).tobytes() for name in ("te-current", "deepgemm", "bf16", "fp32")}
    seen |= {np.asarray(dense("te-current")(x, w, hardware=chip)).tobytes() for chip in ("sm89", "sm100")}
    assert len(seen) == 6
    changed = dataclasses.replace(fp8lab.linear_recipe("te-current"), bf16_outputs=False)
    assert np.any(np.asarray(dense(changed)(x, w)) != np.asarray(dense("te-current")(x, w)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes_are_rounded_once_and_subnormals_take_part(dtype):
    """XLA's threads flush subnormals, and would those of a narrower dtype as it is widened."""
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tiny = float(ml_dtypes.finfo(own).smallest_subnormal)
    tiny *= 2.0**15 if dtype == "float32" else 1.0  # the largest finite scale makes codes of these
    x = (np.linspace(1, 200, 64 * 48, dtype=f32).reshape(64, 48) * f32(tiny)).astype(own)
    w = drawn(48, 32, seed=2).astype(own)
    recipe = dataclasses.replace(fp8lab.linear_recipe("te-current"), bf16_outputs=False)
    wide = own_step(recipe, x.astype(f32), np.ascontiguousarray(w.T.astype(f32)), np.zeros((64, 32), f32))[0]
    assert np.count_nonzero(wide) > wide.size / 2
    same_bits(jax.jit(dense(recipe))(x, w), wide.astype(own))
    same_bits(jax.jit(functools.partial(dense(recipe), preferred_element_type=f32))(x, w), wide)


def test_batch_dimensions_vmap_and_jit_are_products_that_stand_alone():
    x, w = drawn(3, 2, 16, 64), drawn(3, 2, 24, 64, seed=2)
    one = functools.partial(fp8lab.jax.einsum, "mk,nk->mn", recipe="te-current")
    expected = np.stack([[one(a, b) for a, b in zip(*pair)] for pair in zip(x, w)])
    same_bits(fp8lab.jax.einsum("abmk,abnk->abmn", x, w), expected)
    same_bits(jax.vmap(jax.vmap(one))(x, w), expected)
    same_bits(jax.jit(jax.vmap(functools.partial(fp8lab.jax.einsum, "amk,ank->amn")))(x, w), expected)
    shared = jax.vmap(one, (0, None))(x[:, 0], w[0, 0])
    same_bits(shared, np.stack([one(a, w[0, 0]) for a in x[:, 0]]))
    together = one(x[:, 0].reshape(48, 64), w[0, 0]).reshape(3, 16, 24)
    assert np.any(np.asarray(together) != np.asarray(shared)), "one tensor has one scale"


def test_gradients_under_vmap_scan_and_checkpoint():
    x, w = drawn(4, 16, 64), drawn(64, 32, seed=2)

    def loss(w, x):
        return (dense("te-current")(x, w) ** 2).sum()

    alone = np.stack([np.asarray(jax.grad(loss)(w, one)) for one in x])
    same_bits(jax.vmap(jax.grad(loss), (None, 0))(w, x), alone)
    same_bits(jax.jit(jax.grad(jax.checkpoint(loss)))(w, x[0]), alone[0])

    def step(total, one):
        return total + jax.grad(loss)(w, one), None

    same_bits(jax.lax.scan(step, jnp.zeros_like(w), x)[0], functools.reduce(np.add, alone, np.zeros_like(w)))


@pytest.mark.parametrize(
    "subscripts",
    ["bk,kn->bn", "...k,khd->...hd", "bthd,hdm->btm", "bqhd,bkhd->bhqk", "kb,kn->nb", "bhk,hk->hb", "i j , j -> i"],
)
def test_einsum_is_that_of_jax(subscripts):
    """Of small whole numbers every sum is exact."""
    sizes = dict(zip("abcdefghijkmnqtv", itertools.cycle((16, 32))))
    left, right = subscripts.replace(" ", "").split("->")[0].split(",")
    rng = np.random.default_rng(5)
    operands = [
        rng.integers(-2, 3, [2] * (3 * ("..." in one)) + [sizes[c] for c in one if c != "."]).astype(f32)
        for one in (left, right)
    ]
    for one in operands:
        one.reshape(-1)[0] = 7.0  # amax 7 = 448 / 64
    unit = dataclasses.replace(fp8lab.presets()["te-current"].activation, rule="unit")
    recipe = dataclasses.replace(fp8lab.linear_recipe("te-current"), activation=unit, weight=unit, bf16_outputs=False)
    same_bits(fp8lab.jax.einsum(subscripts, *operands, recipe=recipe), jnp.einsum(subscripts, *operands))


@pytest.mark.parametrize("preset", ["te-current", "deepgemm", "torchao-mxfp8-floor", "nvfp4", "mxfp4"])
def test_quantize_is_that_of_the_library(preset):
    x = drawn(3, 64, 256)
    for role in ("activation", "weight"):
        q = jax.jit(jax.vmap(lambda one: fp8lab.jax.quantize(one, preset, role)))(x)
        for i, one in enumerate(x):
            expected = fp8lab.quantize(one, preset, role)
            codes = expected.codes if q.codes.dtype != np.uint8 else expected.codes.view(np.uint8)
            same_bits(q.codes[i], codes)
            same_bits(q.scales[i], expected.scales)
            same_bits(q.inverse_scales[i], expected.inverse_scales)
            assert float(q.tensor_inverse_scale[i]) == expected.tensor_inverse_scale
    same_bits(fp8lab.jax.quantize(x, preset).codes.reshape(-1, 256).view(np.uint8), fp8lab.quantize(x, preset).codes.view(np.uint8))


def test_a_device_of_one_thread_does_not_wait_for_itself():
    """Two large products of one program, on one core."""
    program = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import jax, jax.numpy as jnp, fp8lab.jax
one = jax.jit(jax.grad(lambda w, x: (fp8lab.jax.einsum("bk,kn->bn", x, w) ** 2).sum(), argnums=(0, 1)))
w, x = one(jnp.ones((512, 512)), jnp.ones((512, 512)))
print(float(w[0, 0]) > 0 and float(x[0, 0]) > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_sizes_of_zero():
    for shape in ((0, 16, 8), (4, 0, 8), (4, 16, 0)):
        m, k, n = shape
        y, pull = jax.vjp(dense("te-current"), jnp.zeros((m, k)), jnp.zeros((k, n)))
        assert y.shape == (m, n) and [g.shape for g in pull(y)] == [(m, k), (k, n)]
        assert not np.any(y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dense("te-delayed")(x, x), "recipe: expected one whose scales come from the tensors themselves"),
        (lambda x: dense("te-current")(x, x[:8]), r"rhs: expected summed dimensions of sizes \[16\], as lhs has, got \[8\]"),
        (lambda x: dense("te-current")(x, x.astype(int)), "rhs: expected float32 or bfloat16 or float16, got int"),
        (lambda x: dense("te-current")(x, x, precision="highest"), "precision: expected None"),
        (lambda x: dense("no-such")(x, x), "no-such"),
        (lambda x: fp8lab.jax.dot_general(x, x, (((2,), (0,)), ((), ()))), "dimension_numbers: expected dimensions of lhs, which has 2, got 2"),
        (lambda x: fp8lab.jax.einsum("ij,jk", x, x), "subscripts: expected two operands and a result"),
        (lambda x: fp8lab.jax.einsum("ii,ij->j", x, x), "subscripts: expected letters, each once in a term"),
        (lambda x: fp8lab.jax.einsum("ij,jk->i", x, x), "subscripts: expected labels of one operand in the result too"),
        (lambda x: fp8lab.jax.einsum("ijl,jk->ik", x, x), "subscripts: expected 2 dimensions of operand 0"),
        (lambda x: fp8lab.jax.quantize(x, "te-delayed"), "preset: expected a recipe that uses only the current tensor, got delayed"),
        (lambda x: fp8lab.jax.quantize(x[:, :15], "mxfp4"), "x: expected k divisible by 32, got 15"),
    ],
)
def test_what_cannot_be_is_said_as_the_program_is_traced(call, message):
    with pytest.raises(ValueError, match=message):
        jax.jit(call)(jnp.ones((16, 16)))


def train(product, steps=20):
    """A small Flax model that learns which of ten directions a vector is near to."""
    nn = pytest.importorskip("flax.linen")
    optax = pytest.importorskip("optax")

    class Classifier(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.gelu(nn.Dense(128, dot_general=product)(x))
            x = nn.LayerNorm()(x + nn.Dense(128, dot_general=product)(x))
            return nn.Dense(10, dot_general=product)(x)

    rng = np.random.default_rng(7)
    labels = rng.integers(0, 10, (steps, 64))
    inputs = (rng.standard_normal((10, 64))[labels] + rng.standard_normal((steps, 64, 64))).astype(f32)
    model, optimizer = Classifier(), optax.adam(3e-3)
    params = model.init(jax.random.key(0), inputs[0])

    def loss(params, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), y).mean()

    @jax.jit
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value, gradients

    state, seen = optimizer.init(params), []
    for x, y in zip(inputs, labels):
        params, state, value, gradients = step(params, state, x, y)
        seen.append((float(value), gradients))
    return seen


def test_a_flax_model_trains_with_the_library_s_own_bits():
    """Every product of every step is done again by the library's own layer."""
    compared = []

    @jax.custom_vjp
    def checked(x, w):
        return dense("te-current")(x, w)

    def forward(x, w):
        y, pull = jax.vjp(dense("te-current"), x, w)
        return y, (x, w, y, pull)

    def compare(x, w, y, dy, dx, dw):
        own = own_step("te-current", *(np.ascontiguousarray(np.pad(one, [(0, -size % 16) for size in one.shape])) for one in map(np.asarray, (x, w.T, dy))))
        for got, expected in zip((y, dx, dw.T), own):
            same_bits(got, expected[: got.shape[0], : got.shape[1]])
        compared.append(x.shape)

    def backward(kept, dy):
        x, w, y, pull = kept
        dx, dw = pull(dy)
        jax.debug.callback(compare, x, w, y, dy, dx, dw)
        return dx, dw

    checked.defvjp(forward, backward)

    def product(x, w, dimensions, precision=None, preferred_element_type=None):
        assert dimensions == DENSE
        return checked(x, w)

    seen = train(product)
    jax.effects_barrier()
    assert len(compared) == 3 * 20
    assert seen[-1][0] < 0.5 * seen[0][0]
    plain = train(functools.partial(fp8lab.jax.dot_general, recipe="te-current"))
    assert [value for value, _ in plain] == [value for value, _ in seen]
    exact = train(jax.lax.dot_general)
    assert exact[0][0] != seen[0][0] and abs(exact[-1][0] - seen[-1][0]) < 0.2
