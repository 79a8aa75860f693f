"""Presets of the packages that write models (ModelOpt, compressed-tensors) against their formulas in NumPy.

usage: writers_oracle.py PATH_TO_FP8LAB

tests/systems compares the same presets with the packages, where they are installed.
"""

import pathlib
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

from fp4_oracle import (F32, amax_of, cast, check, divided, read_safetensors, run, tensors, tiles_of, two_levels,
                        untiled)

TINY, MOST = np.finfo(F32).tiny, np.finfo(F32).max
E2M1_BORDERS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
np.seterr(all="ignore")


def to_bf16(x):
    return np.asarray(x, F32).astype(ml_dtypes.bfloat16).astype(F32)


def e4m3(y):
    codes = np.clip(y, F32(-448), F32(448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return np.where(np.isnan(y), 0x7F, codes).astype(np.uint8)


def power(exponent):
    return np.ldexp(F32(1), exponent).astype(F32)


def mx_parts(codes, e8m0, scale):
    inverse = np.where(e8m0 == 255, F32(np.nan), power(e8m0.astype(int) - 127))
    return {"x": codes, "x.scale": scale.astype(F32), "x.scale_inv": inverse, "x.scale_inv_e8m0": e8m0}


def compressed_mx(fmt, threshold, emax, *, bf16=False, drops_zero=True):
    """2^(floor(log2 amax) - emax), one more where the mantissa is at or above `threshold`."""

    def recipe(x):
        tiles = tiles_of(x, 1, 32)
        amax = amax_of(tiles, drop_nan=False)
        mantissa, exponent = np.frexp(amax.astype(np.float64))
        exponent = np.where(amax == 0, -200, exponent - 1) + (2 * mantissa >= threshold)
        lost = ~np.isfinite(amax) | (exponent > 127)
        e8m0 = np.where(lost, 255, np.maximum(exponent - emax + 127, 0)).astype(np.uint8)
        scale = np.where(lost, F32(0), power(127 - e8m0.astype(int)))
        y = untiled(tiles * scale[..., None, None])
        y = to_bf16(y) if bf16 else y
        y = y + F32(0) if drops_zero else y
        return mx_parts(e4m3(y) if fmt == "e4m3" else cast(y, fmt), e8m0, scale)

    return recipe


def ceil_log2(x):
    return np.ceil(np.log2(x.astype(np.float64)).astype(F32))


def modelopt_mxfp8(x):
    tiles = tiles_of(x, 1, 32)
    amax = amax_of(tiles, drop_nan=False)
    exponent = np.where(np.isnan(amax), -127, np.clip(ceil_log2(amax / F32(448)), -127, 127)).astype(int)
    return mx_parts(e4m3(untiled(tiles * power(-exponent)[..., None, None])), (exponent + 127).astype(np.uint8),
                    power(-exponent))


def modelopt_mxfp4(x):
    """Ties toward zero; zeros are negative. What is not finite has no answer there: code 255, scale 0."""
    tiles = tiles_of(x, 1, 32)
    amax = amax_of(tiles, drop_nan=False)
    lost = ~np.isfinite(amax)
    exponent = np.where(lost, 0, np.clip(ceil_log2(np.where(lost, F32(6), amax) / F32(6)), -127, 127)).astype(int)
    scale = np.where(lost, F32(0), power(-exponent))
    y = untiled(tiles * scale[..., None, None])
    codes = (np.abs(y)[..., None] > E2M1_BORDERS).sum(-1) + 8 * (y <= 0)
    return mx_parts(np.where(np.isnan(y), 7, codes).astype(np.uint8), np.where(lost, 255, exponent + 127).astype(np.uint8), scale)


def divided_by(tile, inverse_of, quotient=lambda q: q):
    def recipe(x):
        inverse = inverse_of(amax_of(x[None, None] if tile == "tensor" else x[:, None, None], drop_nan=False))
        inverse = inverse.reshape((1, 1) if tile == "tensor" else (-1, 1))
        return {"x": e4m3(quotient(x / inverse)), "x.scale": F32(1) / inverse, "x.scale_inv": inverse}

    return recipe


def seen(amax):
    """ModelOpt's exporter: an amax that is 0 or NaN counts as 448, others lie among the normal numbers."""
    return np.clip(np.where((amax == 0) | np.isnan(amax), F32(448), amax), TINY, MOST)


def compressed_tensor_bf16(amax):
    one = to_bf16(F32(1) / (amax if np.isnan(amax) else max(amax, TINY)))
    scale = to_bf16(F32(2688) * one)[()]
    scale = scale if np.isfinite(scale) else F32(1)
    return scale, F32(1) / scale


def nvfp4_bf16_block(amax, s, t):
    want = to_bf16(amax / F32(6)) * s
    codes = np.clip(want, F32(0), F32(448)).astype(ml_dtypes.float8_e4m3fn).astype(F32)
    return np.where(codes == 0, F32(0.125), want)


RECIPES = [  # preset, role, formula
    ("compressed-tensors-mxfp8", "weight", compressed_mx("e4m3", 1.75, 8)),
    ("compressed-tensors-mxfp8-bf16", "weight", compressed_mx("e4m3", 1.75, 8, bf16=True)),
    ("compressed-tensors-mxfp4", "weight", compressed_mx("e2m1", 1.75, 2)),
    ("compressed-tensors-mxfp4-bf16", "activation", compressed_mx("e2m1", 1.75, 2, bf16=True)),
    ("compressed-tensors-mxfp6", "weight", compressed_mx("e2m3", 1.9375, 2, drops_zero=False)),
    ("compressed-tensors-mxfp6", "activation", compressed_mx("e4m3", 1.75, 8)),
    ("compressed-tensors-nvfp4-bf16", "weight",
     two_levels(1, nvfp4_bf16_block, divided(lambda v, s, t: v / s, signed_zero=False), compressed_tensor_bf16)),
    ("modelopt-mxfp8", "weight", modelopt_mxfp8),
    ("modelopt-mxfp4", "weight", modelopt_mxfp4),
    ("modelopt", "weight", divided_by("tensor", lambda amax: amax / F32(448))),
    ("modelopt-bf16", "weight", divided_by("tensor", lambda amax: amax / F32(448), to_bf16)),
    ("modelopt-qtensor-bf16", "weight", divided_by("tensor", lambda amax: to_bf16(amax / F32(448)), to_bf16)),
    ("modelopt-per-channel", "weight", divided_by("row", lambda amax: seen(amax) / F32(448))),
]


def main():
    tool = sys.argv[1]
    failures = cases = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind, x in tensors():
            for preset, role, recipe in RECIPES:
                given = to_bf16(x) if preset.endswith("-bf16") else x
                np.save(folder / "x.npy", given)
                run(tool, "quantize", folder / "x.npy", "--recipe", preset, "--role", role, "-o", folder / "q.safetensors")
                failures += check(f"{kind} {preset} {role}", recipe(given), read_safetensors(folder / "q.safetensors"))
                cases += 1
    print(f"{cases} tensors compared, {failures} codes or scales differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
