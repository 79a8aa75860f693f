"""Tensors that tell systems apart: random ones, and what rules do at their ends."""

import numpy as np

#: What jax_systems.py compares, in the environment of `./dev jax`.
JAX_PRESETS = {"flax-fp8", "flax-fp8-bf16", "qwix", "qwix-bf16"}

F32 = np.float32
MAX = float(np.finfo(F32).max)


def any_bits(rng, shape):
    return rng.integers(0, 2**32, shape, dtype=np.uint32).view(F32)


def finite_bits(rng, shape):
    x = any_bits(rng, shape)
    return np.where(np.isfinite(x), x, F32(1))


def with_values(rng, shape, *values):
    """Random numbers among which each of `values` stands at a few places."""
    x = rng.standard_normal(shape, dtype=F32)
    flat = x.reshape(-1)
    for value in values:
        flat[rng.integers(0, flat.size, max(1, flat.size // 97))] = value
    return x


def near_powers(rng, shape):
    """Rows whose amax, or amax / 448, stands next to a power of two: log2 rounds there."""
    x = rng.standard_normal(shape, dtype=F32).clip(-1, 1)
    for r in range(shape[0]):
        amax = F32(2.0 ** int(rng.integers(-100, 100)) * rng.choice([1.0, 448.0, 1.9375, 57344.0]))
        amax = (amax.view(np.uint32) + np.uint32(rng.integers(0, 9)) - np.uint32(4)).view(F32)
        x[r] *= amax * F32(0.5)
        x[r, :: int(rng.integers(1, 32))] = amax
    return x


def halves(rng, shape):
    """Quotients that lie between two codes: small integers times one scale a row."""
    x = rng.integers(-480, 481, shape).astype(F32) / F32(16)
    x[:, 0] = F32(rng.choice([448.0, 28.0, 30.0, 27.0]))
    return x * F32(2.0) ** rng.integers(-20, 20, (shape[0], 1)).astype(F32)


def rows_of(*values):
    def make(rng, shape):
        x = rng.standard_normal(shape, dtype=F32).clip(-1, 1) * F32(2.0**-9)
        for r in range(shape[0]):
            edge = F32(values[r % len(values)])
            x[r] *= abs(edge) if np.isfinite(edge) else F32(1)
            x[r, :: 32 if r % 2 else 7] = edge
        return x

    return make


KINDS = {
    "normal": lambda rng, s: rng.standard_normal(s, dtype=F32),
    "log_normal": lambda rng, s: (rng.standard_normal(s) * np.exp(6 * rng.standard_normal(s))).astype(F32),
    "finite_bits": finite_bits,
    "any_bits": any_bits,
    "zeros": lambda rng, s: np.zeros(s, F32),
    "negative_zeros": lambda rng, s: np.where(rng.random(s) < 0.5, F32(-0.0), F32(0.0)),
    "some_zero_rows": lambda rng, s: rng.standard_normal(s, dtype=F32) * (rng.random((s[0], 1)) < 0.5),
    "signed_zeros": lambda rng, s: with_values(rng, s, -0.0, 0.0),
    "subnormals": lambda rng, s: rng.integers(0, 2**23, s, dtype=np.uint32).view(F32),
    "tiny": lambda rng, s: rng.standard_normal(s, dtype=F32) * F32(1e-37),
    "small": lambda rng, s: rng.standard_normal(s, dtype=F32) * F32(1e-9),
    "one_huge": lambda rng, s: with_values(rng, s, 3e38),
    "huge": lambda rng, s: rng.uniform(-MAX, MAX, s).astype(F32),
    "largest": lambda rng, s: rng.uniform(0.9 * MAX, MAX, s).astype(F32),
    "infinities": lambda rng, s: with_values(rng, s, np.inf, -np.inf),
    "one_infinity": lambda rng, s: np.concatenate([np.full((s[0], 1), np.inf, F32), rng.standard_normal((s[0], s[1] - 1), dtype=F32)], 1),
    "nan": lambda rng, s: with_values(rng, s, np.nan),
    "nan_and_infinities": lambda rng, s: with_values(rng, s, np.nan, np.inf, -np.inf),
    "near_powers": near_powers,
    "halves": halves,
    "edges": rows_of(0.0, np.nan, np.inf, -np.inf, 2.0**-149, 2.0**-130, 2.0**-126, 2.0**-118, 2.0**-117, 1e-12, 1e-10, 1e-4, 1.0, 448.0),
    "large_edges": rows_of(464.0, 57344.0, 2.0**100, MAX, 1.9375 * 2.0**127, 255.99, 256.0, 479.99, 496.0, 2.0**-24, 0.9 * 2.0**-24, 448 / 512, 1 / 512, 1e-4 * 0.99),
}
WITHOUT = {  # what a calibration refuses
    "any_bits", "infinities", "one_infinity", "nan", "nan_and_infinities", "edges",
}


def shapes(rows_multiple, k_multiple):
    """Ragged ones where the system takes them."""
    rows = [1, 2, 3, 5, 8, 17, 31, 33, 40, 64] if rows_multiple == 1 else [1, 2, 1, 2, 3, 1, 1, 2, 1, 1]
    ks = [2, 6, 7, 33, 100, 128, 129, 251, 300, 384] if k_multiple == 1 else [1, 2, 3, 4, 5, 1, 2, 7, 1, 3]
    return [(r * rows_multiple, k * k_multiple) for r, k in zip(rows, reversed(ks))]


def arrays(rows_multiple=1, k_multiple=1, finite=False, count=420):
    """(name, float32 array), at least `count` of them, the same in every run."""
    rng = np.random.default_rng(20261122)
    kinds = [k for k in KINDS if not (finite and k in WITHOUT)]
    made = 0
    while made < count:
        for shape in shapes(rows_multiple, k_multiple):
            for kind in kinds:
                with np.errstate(all="ignore"):
                    x = np.ascontiguousarray(KINDS[kind](rng, shape).astype(F32))
                yield f"{made:04}_{kind}_{shape[0]}x{shape[1]}", x
                made += 1


def cases(dtype, rows_multiple=1, k_multiple=1, finite=False, count=420, with_nan=True):
    """name -> tensor."""
    import torch

    result = {}
    for name, x in arrays(rows_multiple, k_multiple, finite, count):
        tensor = torch.from_numpy(x).to(dtype)
        if finite and not torch.isfinite(tensor).all():
            tensor = torch.where(torch.isfinite(tensor), tensor, 1.0)
        if not with_nan:
            tensor = torch.where(tensor.isnan(), 1.0, tensor)
        result[name] = tensor
    return result
