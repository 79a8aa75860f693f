"""Codes and scales of presets against Flax and qwix, in the environment of `./dev jax`, which has the wheel.

usage: jax_systems.py

XLA flushes subnormal numbers on a CPU, which Flax's quotients of them show: its tensors have none here, and no amax whose
quotient overflows. Operations are run one by one, so that XLA rounds each to the type of its array.
"""

import dataclasses
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
try:
    import jax
    import jax.numpy as jnp
    from flax.linen import fp8_ops
    from qwix._src.core import qarray
except ImportError as error:
    print(f"SKIPPED: {error} (./dev jax installs apps/python/tests/jax_requirements.txt)")
    sys.exit(77)
import ml_dtypes
import numpy as np

import fp8lab

warnings.filterwarnings("ignore", category=fp8lab.NonFiniteWarning)
sys.path.insert(0, str(HERE))
from cases import JAX_PRESETS, arrays  # noqa: E402

LEAST_CASES = 400
STEPS = 5
BF16 = np.dtype(ml_dtypes.bfloat16)


def different(want, got):
    """Of codes or scales; a NaN equals any NaN."""
    want, got = np.asarray(want), np.asarray(got)
    assert want.shape == got.shape and want.dtype == got.dtype, (want.shape, got.shape, want.dtype, got.dtype)
    words = np.dtype(f"u{want.dtype.itemsize}")
    both_nan = np.isnan(want.astype(np.float32)) & np.isnan(got.astype(np.float32))
    return int(((want.view(words) != got.view(words)) & ~both_nan).sum())


def typed(x, bf16):
    with np.errstate(all="ignore"):
        return x.astype(BF16) if bf16 else x


def qwix_differences(x, bf16):
    """A single row is doubled: XLA divides its only amax by 448 and multiplies several by the reciprocal."""
    x = np.repeat(x, 2, axis=0) if len(x) == 1 else x
    how = qarray.HowToQuantize(qtype=jnp.float8_e4m3fn, channelwise_axes=(0,), tiled_axes={}, calibration_method="absmax")
    want = qarray.quantize(jnp.asarray(x), how)
    got = fp8lab.quantize(x, "qwix-bf16" if bf16 else "qwix")
    return different(want.qvalue, got.codes) + different(want.scale, got.inverse_scales.astype(x.dtype))


def without_subnormals(x):
    """And with an amax of which 448 / amax is a number, and so is what it makes of the smallest element."""
    magnitude = np.abs(x.astype(np.float32))
    with np.errstate(all="ignore"):
        return np.where((magnitude < 2.0**-60) & (magnitude > 0), x.dtype.type(2.0**-60), x)


def flax_differences(x, bf16, role):
    """Steps whose history is shorter than they are many: tensors of several sizes, zeros among them."""
    name = "flax-fp8-bf16" if bf16 else "flax-fp8"
    recipe = dataclasses.replace(getattr(fp8lab.presets()[name], role), history=3)
    quantizer = fp8lab.Quantizer(recipe)
    dtype = jnp.float8_e5m2 if role == "gradient" else jnp.float8_e4m3fn
    compute = jnp.bfloat16 if bf16 else jnp.float32
    scale, history = jnp.ones(1), jnp.zeros(3)
    bad = 0
    for step in range(STEPS):
        factor = np.float32([1.0, 0.25, 0.0, 8.0, 3.0][step])
        with np.errstate(all="ignore"):
            now = without_subnormals((x.astype(np.float32) * factor).astype(x.dtype))
        scale, history = fp8_ops.update_fp8_meta(jnp.asarray(now), dtype, scale, history)
        want = fp8_ops.quantize(jnp.asarray(now), dtype, scale, compute)
        got = quantizer.quantize(now)
        kept = np.asarray(scale)[None]
        if bf16:  # what `dequantize` multiplies by
            kept = kept.astype(BF16).astype(np.float32)
        bad += different(want, got.codes) + different(kept, got.inverse_scales)
    return bad


def compare(label, differences, **options):
    count = total = 0
    first = ""
    for name, x in arrays(**options):
        bad = differences(x)
        total, count = total + bad, count + 1
        if bad and not first:
            first = f"; first in {name}: {bad}"
    print(f"{label}: {count} cases, {total} codes or scales differ{first}", flush=True)
    return int(total > 0 or count < LEAST_CASES)


def main():
    failures, seen = 0, set()
    for bf16 in (False, True):
        ending = "-bf16" if bf16 else ""
        failures += compare(f"qwix{ending}", lambda x, bf16=bf16: qwix_differences(typed(x, bf16), bf16))
        for role in ("activation", "gradient"):
            failures += compare(
                f"flax-fp8{ending} {role}, {STEPS} steps each",
                lambda x, bf16=bf16, role=role: flax_differences(typed(x, bf16), bf16, role))
        seen |= {f"qwix{ending}", f"flax-fp8{ending}"}
    assert seen == JAX_PRESETS
    print(f"jax {jax.__version__}: {failures} failures")
    sys.exit(failures > 0)


main()
