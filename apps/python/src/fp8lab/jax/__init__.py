"""Products and casts of JAX programs as FP8 hardware would compute them, bit for bit, on a CPU.

>>> import functools, jax, jax.numpy as jnp, fp8lab.jax
>>> product = functools.partial(fp8lab.jax.einsum, "bk,kn->bn", recipe="deepgemm", hardware="sm90")
>>> x, w = jnp.ones((4, 256)), jnp.full((256, 8), 0.5)
>>> jax.jit(jax.grad(lambda w: product(x, w).sum()))(w).shape
(256, 8)

`fp8lab` itself neither needs nor imports JAX; this package does. The work is done by callbacks on
the host (`jax.pure_callback`), so that it runs under `jit`, `vmap`, `grad`, `scan` and `checkpoint`.
Reverse-mode gradients only; arrays of other devices are copied to the host and back.
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fp8lab.jax: expected JAX (pip install jax; tested with 0.10.2), got none"
    ) from error

from fp8lab.jax._products import dot_general, einsum
from fp8lab.jax._quantize import Quantized, quantize

__all__ = ["Quantized", "dot_general", "einsum", "quantize"]
