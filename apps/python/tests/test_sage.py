"""SageAttention's rules, written again in NumPy: outputs have the same bits, and mistakes are named.

Only the sums of P V (and, in NVFP4, of Q K^T) are those of `fp8lab.gemm`.
"""

import math

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32
bf16 = ml_dtypes.bfloat16
LOG2E = f32(1.44269504)


def fma(a, b, c):
    """a b + c in binary32, rounded once: the binary64 sum is made odd where it is not exact."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    product, c = np.broadcast_arrays(product, np.asarray(c, np.float64))
    total = product + c
    with np.errstate(invalid="ignore"):
        part = total - product
    with np.errstate(invalid="ignore"):
        error = (product - (total - part)) + (c - part)
    bits = total.view(np.uint64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, toward), total).astype(f32)


exp2 = np.vectorize(lambda x: f32(math.exp2(float(x))) if x > -1000 else f32(0), otypes=[f32])


def rounded(x):
    return np.asarray(x, np.float64).astype(f32).astype(bf16).astype(f32)


def mean_of(x):
    return (x.astype(np.float64).sum(0) / x.shape[0]).astype(f32).astype(bf16).astype(f32)


def int8(x, groups, per_thread):
    """Codes [rows, columns] and the scale of each row. groups [rows]: which rows share one."""
    codes, scales = np.zeros(x.shape, np.int32), np.zeros(len(x), f32)
    for group in np.unique(groups):
        own = x[groups == group]
        amax = np.abs(own).max()
        if per_thread:
            scale = amax / f32(127) + f32(1e-7)
            scaled = own / scale
            code = np.trunc(scaled + np.where(scaled >= 0, f32(0.5), f32(-0.5)))
        else:
            amax = max(amax, f32(1e-7))
            scale = amax / f32(127)
            code = np.rint(own * (f32(127) / amax))
        codes[groups == group], scales[groups == group] = code.astype(np.int32), scale
    return codes, scales


def e4m3(x):
    return np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)


# Tiles of Q and K, rows of a warp, the largest code of V, the unit of P V.
INT8 = {
    "sageattention2.sm89": (128, 64, 32, 448.0, "sm89.mma.e4m3"),
    "sageattention2pp.sm89": (128, 64, 32, 2.25, "sm89.mma.e4m3.f16"),
    "sageattention2.sm90": (64, 128, 16, 448.0, "sm90.wgmma.e4m3"),
}


def sage2(q, k, v, call, *, causal=False, smooth=True, per_thread=True):
    """One head: q [m, d], k [n, d], v [n, d_v]."""
    q_tile, kv_tile, warp, limit, unit = INT8[call]
    q, k, v = rounded(q), rounded(k), rounded(v)
    (m, d), n = q.shape, len(k)
    if smooth:
        k = k - mean_of(k)
        if per_thread:
            k = rounded(k)
    rows, columns = np.arange(m), np.arange(n)
    if per_thread:
        q_groups, k_groups = rows // warp * 8 + rows % 8, columns // kv_tile * 4 + columns % 8 // 2
    else:
        q_groups, k_groups = rows // warp, columns // kv_tile
    q_codes, q_scales = int8(q, q_groups, per_thread)
    k_codes, k_scales = int8(k, k_groups, per_thread)
    amax = np.abs(v).max(0)
    v_codes, v_scales = e4m3(v * (f32(limit) / amax)), amax / f32(limit)
    scale = f32(1 / math.sqrt(d)) * LOG2E
    out = np.zeros((m, v.shape[1]), f32)
    for top in range(0, m, q_tile):
        block = rows[top : top + q_tile]
        seen = min(n, top + q_tile) if causal else n
        tiles = -(-seen // kv_tile)
        maximum, sums = np.full(len(block), f32(-5e6)), np.ones((len(block), 4), f32)
        o = np.zeros((len(block), v.shape[1]), f32)
        for t in range(tiles):
            own = columns[t * kv_tile : (t + 1) * kv_tile]
            s = (q_codes[block] @ k_codes[own].T).astype(f32)
            scales = q_scales[block][:, None] * k_scales[own][None]
            if t >= tiles - max(1, q_tile // kv_tile):
                s, factors = s * scales, np.full(s.shape, scale)
            else:
                factors = scale * scales
            if causal:
                s = np.where(own[None] > block[:, None], f32(-5e6), s)
            thread = own % 8 // 2
            # The largest score of each thread is scaled, not each score.
            shifted = []
            for a in range(4):
                of = thread == a
                if not of.any():
                    continue
                at = s[:, of].argmax(1)
                pick = np.arange(len(block))
                shifted.append(fma(s[:, of][pick, at], factors[:, of][pick, at], f32(-8.807)))
            grown = np.maximum(maximum, np.max(shifted, 0))
            alpha = exp2(maximum - grown)
            maximum = grown
            sums, o = sums * alpha[:, None], o * alpha[:, None]
            p = exp2(fma(s, factors, -maximum[:, None]))
            wide = np.zeros((len(block), -(-len(own) // 16) * 16), f32)
            wide[:, : len(own)] = p
            for first in range(0, wide.shape[1], 16):
                for a in range(4):
                    x = [wide[:, first + 2 * a + i] for i in (0, 1, 8, 9)]
                    sums[:, a] += ((x[0] + x[1]) + x[2]) + x[3]
            tile = fp8lab.gemm(e4m3(p), np.ascontiguousarray(v_codes[own].T), model=unit)
            o = o + tile.astype(f32)
        total = (sums[:, 0] + sums[:, 1]) + (sums[:, 2] + sums[:, 3])
        out[block] = o * (f32(1) / total)[:, None] * v_scales
    return out


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], f32)


def e2m1(x):
    """Codes, ties to even, saturating."""
    size = np.abs(x)
    code = np.searchsorted((FP4[1:] + FP4[:-1]) / 2, size)
    # At a tie the even code, which is above an odd one and below otherwise.
    for i in range(7):
        tie = size == (FP4[i] + FP4[i + 1]) / 2
        code = np.where(tie, i if i % 2 == 0 else i + 1, code)
    return (code | np.where(np.signbit(x), 8, 0)).astype(np.uint8)


def nvfp4(x):
    """Codes [rows, columns] and scales [rows, columns / 16]."""
    blocks = x.reshape(len(x), -1, 16)
    scales = e4m3(np.abs(blocks).max(-1) / f32(6)).astype(f32)
    inverse = np.where(scales == 0, f32(0), f32(1) / np.where(scales == 0, f32(1), scales))
    return e2m1(blocks * inverse[..., None]).reshape(x.shape), scales


def product(a, b, c=None):
    """Of codes with block scales in sm120's unit."""
    more = {} if c is None else {"c": c, "c_enters": "accumulator"}
    scales = [fp8lab.Scales(s.astype(ml_dtypes.float8_e4m3fn), 1, 16) for _, s in (a, b)]
    return fp8lab.gemm(a[0], b[0], a_format="e2m1", b_format="e2m1", model="sm120.mma.mxf4nvf4",
                       scale_a=scales[0], scale_b=scales[1], **more)  # fmt: skip


def sage3(q, k, v, *, causal=False):
    pad = lambda x: np.concatenate([x, np.zeros((-len(x) % 128, x.shape[1]), f32)])
    q, k, v = rounded(q), rounded(k), rounded(v)
    (m, d), n = q.shape, len(k)
    k = pad(rounded(k - mean_of(k)))
    q, v = pad(q), pad(v)
    k4, v4 = nvfp4(k), nvfp4(np.ascontiguousarray(v.T))
    scale = f32(float(f32(1 / math.sqrt(d))) * math.log2(math.e))
    offset, sixth = f32(-11.392317422778762), f32(-2.584962500721156)
    out = np.zeros((len(q), v.shape[1]), f32)
    for top in range(0, m, 128):
        own = q[top : top + 128]
        wide = (own.astype(np.float64).sum(0) / 128).astype(f32)
        added = rounded(rounded(wide).astype(np.float64) @ k.T.astype(np.float64))
        q4 = nvfp4(rounded(own - wide))
        maximum, sums = np.full(128, -np.inf, f32), np.zeros(128, f32)
        o = np.zeros((128, v.shape[1]), f32)
        for first in reversed(range(0, min(top + 128, m) if causal else n, 128)):
            at = slice(first, first + 128)
            c = np.ascontiguousarray(np.broadcast_to(added[at], (128, 128)))
            s = product(q4, (k4[0][at], k4[1][at]), c)
            columns = first + np.arange(128)
            hidden = columns[None] > top + np.arange(128)[:, None] if causal else columns[None] >= n
            s = np.where(hidden, f32(-np.inf), s)
            grown = np.maximum(maximum, s.max(1))
            alpha = np.where(np.isinf(maximum), f32(0), exp2((maximum - grown) * scale))
            alpha = alpha.astype(f32)
            maximum, sums = grown, sums * alpha
            shift = fma(maximum, scale, offset)[:, None]
            p = exp2(fma(s, scale, -shift))
            for j in range(128):
                sums = sums + p[:, j]
            blocks = p.reshape(128, 8, 16)
            largest = s.reshape(128, 8, 16).max(-1)
            scales = exp2(fma(largest, scale, -shift) + sixth)
            with np.errstate(invalid="ignore"):
                codes = np.where(scales[..., None] == 0, 0, e2m1(blocks / scales[..., None]))
            p4 = codes.astype(np.uint8).reshape(128, 128), e4m3(scales).astype(f32)
            chosen = slice(first // 16, first // 16 + 8)
            tile = product(p4, (np.ascontiguousarray(v4[0][:, at]), np.ascontiguousarray(v4[1][:, chosen])))
            o = fma(o, alpha[:, None], tile)
        out[top : top + 128] = o * (f32(1) / sums)[:, None]
    return out[:m]


def tensors(heads=2, kv_heads=1, m=150, n=200, d=64, seed=5, mean=2.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((h, rows, d)).astype(f32) for h, rows in ((heads, m), (kv_heads, n), (kv_heads, n)))
    # Channels of K with a mean, as those of real models have.
    return q, k + f32(mean) * rng.standard_normal((kv_heads, 1, d)).astype(f32), v


def same(got, expected):
    assert got.dtype == expected.dtype == f32
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("call", INT8)
@pytest.mark.parametrize("per_thread", [True, False])
def test_int8_kernels_have_the_bits_of_the_rule(call, per_thread):
    q, k, v = tensors()
    granularity = "per_thread" if per_thread else "per_warp"
    got = fp8lab.sage_attention(q, k, v, call=call, granularity=granularity)
    same(got.o, np.stack([sage2(head, k[0], v[0], call, per_thread=per_thread) for head in q]))
    assert 0.01 < got.against_inputs.relative_l2 < 0.06


@pytest.mark.parametrize("call", INT8)
def test_int8_kernels_with_a_mask_and_without_smoothing(call):
    q, k, v = tensors(m=200)
    got = fp8lab.sage_attention(q, k, v, call=call, causal=True, smooth=False).o
    same(got, np.stack([sage2(head, k[0], v[0], call, causal=True, smooth=False) for head in q]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_nvfp4_has_the_bits_of_the_rule(causal, d):
    q, k, v = tensors(m=200, d=d)
    got = fp8lab.sage_attention(q, k, v, call="sageattention3", causal=causal)
    same(got.o, np.stack([sage3(head, k[0], v[0], causal=causal) for head in q]))
    assert 0.05 < got.against_inputs.relative_l2 < 0.3


def test_smoothing_matters_where_k_has_a_mean():
    q, k, v = tensors(mean=20.0)
    errors = [fp8lab.sage_attention(q, k, v, smooth=s).against_inputs.relative_l2 for s in (True, False)]
    assert 2 * errors[0] < errors[1]


def shifted_scales(q, k, v):
    """K's codes under the scales of the next thread's group, as a wrong kernel reads them."""
    import unittest.mock

    plain = int8

    def wrong(x, groups, per_thread):
        codes, scales = plain(x, groups, per_thread)
        names = np.unique(groups)
        if len(x) != len(k):
            return codes, scales
        of = {group: scales[groups == group][0] for group in names}
        following = dict(zip(names, np.roll(names, -1)))
        return codes, np.array([of[following[group]] for group in groups], f32)

    with unittest.mock.patch(f"{__name__}.int8", wrong):
        return sage2(q, k, v, "sageattention2.sm90")


def test_wrong_outputs_are_named():
    q, k, v = (x[:1] for x in tensors())
    names = lambda o, **options: [c.name for c in fp8lab.verify_sage_attention(o, (q, k, v), **options).causes]
    right = fp8lab.sage_attention(q, k, v).o
    assert fp8lab.verify_sage_attention(right, (q, k, v)).verdict == "pass"
    kept = sage2(q[0], k[0], v[0], "sageattention2.sm90", smooth=False)[None]
    assert fp8lab.verify_sage_attention(kept, (q, k, v)).verdict == "mismatch"
    assert names(kept) == ["k_mean_not_removed"]
    assert names(shifted_scales(q[0], k[0], v[0])[None]) == ["k_scale_of_other_group"]
    other = sage2(q[0], k[0], v[0], "sageattention2.sm90", per_thread=False)[None]
    assert names(other) == ["granularity"]
    assert names(sage2(q[0], k[0], v[0], "sageattention2.sm89")[None]) == ["kernel"]
    assert names(right * 0) == ["never_written"]
    # With a tolerance, other roundings pass and mistakes are still named.
    noise = 1 + 1e-4 * np.random.default_rng(1).standard_normal(right.shape).astype(f32)
    assert fp8lab.verify_sage_attention(right * noise, (q, k, v), tolerance=1e-3).verdict == "pass"
    assert names(kept * noise, tolerance=1e-3) == ["k_mean_not_removed"]


def test_bad_arguments_are_named():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="call: expected one of sageattention2.sm89"):
        fp8lab.sage_attention(q, k, v, call="sageattention1")
    with pytest.raises(ValueError, match="granularity: expected one of per_thread, per_warp"):
        fp8lab.sage_attention(q, k, v, granularity="per_block")
    with pytest.raises(ValueError, match="causal: expected as many rows of K as of Q, 150, got 200"):
        fp8lab.sage_attention(q, k, v, causal=True)
    with pytest.raises(ValueError, match="d = 64 or 128"):
        fp8lab.sage_attention(q[..., :32], k[..., :32], v, call="sageattention3")
    with pytest.raises(ValueError, match="k: expected d = 64, as q has, got d = 32"):
        fp8lab.sage_attention(q, k[..., :32], v)
    with pytest.raises(ValueError, match="input: expected bf16 or f16, got f32"):
        fp8lab.sage_attention(q, k, v, input_format="f32")
    with pytest.raises(ValueError, match="finite"):
        fp8lab.sage_attention(q, k * np.nan, v)
    with pytest.raises(ValueError, match="softmax_scale"):
        fp8lab.sage_attention(q, k, v, softmax_scale=0.0)
