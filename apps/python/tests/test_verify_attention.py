"""Outputs of attention with one mistake each, from a second implementation, and what they are called."""

import math

import numpy as np
import pytest

import fp8lab
from fp8lab.testing import assert_attention_matches

f32 = np.float32
HEADS, KV_HEADS, M, N, D = 4, 2, 40, 96, 32
TILE = 32


def operands(format="e4m3fn", seed=3):
    rng = np.random.default_rng(seed)
    shapes = ((HEADS, M, D), (KV_HEADS, N, D), (KV_HEADS, N, D))
    # Heads of unlike sizes, so that their scales matter.
    codes = [fp8lab.encode(rng.standard_normal(s).astype(f32), format) for s in shapes]
    scales = [np.ldexp(f32(1), np.arange(s[0]) % 3 - 1).astype(f32) for s in shapes]
    return codes, scales


def exp2(x):
    return f32(math.exp2(float(x))) if x > -1000 else f32(0)


def fma(a, b, c):
    """Rounded once: the product and sum of two binary32 numbers are rationals."""
    from fractions import Fraction

    if math.isinf(a):
        return f32(a * b)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = f32(float(exact))
    around = [near, np.nextafter(near, f32(np.inf)), np.nextafter(near, f32(-np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def attention(codes, scales, *, forward=False, sees=lambda i, j: True, p_format="e4m3fn", offset=8.0,
              head_of=lambda h: h // (HEADS // KV_HEADS), kind="e4m3", softmax=None, promote=False, quads=False):  # fmt: skip
    """The steps as the specification says them, element by element; sums by `fp8lab.gemm`."""
    q, k, v = codes
    kinds = {"e4m3fn": "e4m3", "e5m2": "e5m2"}
    pv = f"sm90.wgmma.{kinds[p_format]}" + ("" if kinds[p_format] == kind else f".{kind}")
    out = np.zeros((HEADS, M, D), f32)
    for h in range(HEADS):
        g = head_of(h)
        base_two = f32(float(f32(softmax or 1 / math.sqrt(D))) * math.log2(math.e))
        scale = base_two * (scales[0][h] * scales[1][g])
        maximum, total, o = np.full(M, -np.inf, f32), np.zeros((M, 4), f32), np.zeros((M, D), f32)
        tiles = range(0, N, TILE) if forward else range((N - 1) // TILE * TILE, -1, -TILE)
        for t in tiles:
            s = fp8lab.gemm(q[h], k[g][t : t + TILE], model=f"sm90.wgmma.{kind}")
            p = np.zeros_like(s)
            for i in range(M):
                row = [s[i, j] if sees(i, t + j) else f32(-np.inf) for j in range(s.shape[1])]
                grown = max([maximum[i], *row])
                if grown > maximum[i]:
                    if not math.isinf(maximum[i]):
                        alpha = exp2((maximum[i] - grown) * scale)
                        total[i] = total[i] * alpha
                        o[i] = o[i] * alpha
                    maximum[i] = grown
                base = f32(0) if math.isinf(maximum[i]) else maximum[i]
                shift = fma(-base, scale, f32(offset))
                of_tile = np.zeros(4, f32)
                for j, x in enumerate(row):
                    p[i, j] = exp2(fma(x, scale, shift)) if not math.isinf(x) else f32(0)
                    if quads:  # each thread of four has two neighbours of each eight columns
                        of_tile[j // 2 % 4] += p[i, j]
                    else:
                        total[i, 0] += p[i, j]
                total[i] += of_tile
            part = np.ascontiguousarray(v[g][t : t + TILE].T)
            cast = fp8lab.encode(p, p_format)
            if promote:
                o = o + fp8lab.gemm(cast, part, model=pv)
            else:
                o = fp8lab.gemm(cast, part, c=o, model=pv)
        for i in range(M):
            both = (total[i, 0] + total[i, 2]) + (total[i, 1] + total[i, 3])
            inverse = f32(0) if both == 0 else f32(1) / both
            out[h, i] = o[i] * (inverse * scales[2][g])
    return out


def given(scales, **options):
    names = ("q_scales", "k_scales", "v_scales")
    return dict(zip(names, scales, strict=True)) | {"kv_tile": TILE, "q_tile": 16} | options


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, {}),
        ({"tile_order": "first_to_last"}, {"forward": True}),
        ({"row_sum": "quads"}, {"quads": True}),
        ({"causal": True}, {"sees": lambda i, j: j <= i + N - M}),
        ({"window_left": 20, "window_right": 3}, {"sees": lambda i, j: i + N - M - 20 <= j <= i + N - M + 3}),
        ({"window_left": 10, "causal": True}, {"sees": lambda i, j: i + N - M - 10 <= j <= i + N - M}),
        ({"p_format": "e5m2", "pv_model": "sm90.wgmma.e5m2.e4m3", "p_offset": 0.0}, {"p_format": "e5m2", "offset": 0.0}),
    ],
)  # fmt: skip
def test_bits_are_those_of_a_second_implementation(options, same):
    codes, scales = operands()
    expected = attention(codes, scales, **same)
    got = fp8lab.attention(*codes, **given(scales, **options)).o
    np.testing.assert_array_equal(got, expected)
    assert_attention_matches(expected, tuple(codes), **given(scales, **options))


def test_triton_tutorial_by_name():
    codes, _ = operands("e5m2")
    ones = [np.ones(1, f32)] * 3
    options = fp8lab.attention_calls()["triton.tutorial.fp8"].options | {"kv_tile": TILE}
    flat = [np.ones(len(c), f32) for c in codes]
    expected = attention(codes, flat, forward=True, p_format="e5m2", offset=0.0, kind="e5m2")
    np.testing.assert_array_equal(fp8lab.attention(*codes, **given(ones, **options)).o, expected)


def test_flash_attention_3_by_name():
    codes, scales = operands()
    call = fp8lab.attention_calls()["flashattention3.fp8"]
    assert call.options_for(128)["kv_tile"] == 224 and call.options_for(D)["q_tile"] == 192
    options = given(scales) | call.options | {"kv_tile": TILE}
    np.testing.assert_array_equal(fp8lab.attention(*codes, **options).o, attention(codes, scales, quads=True))


MISTAKES = {
    "tile_order": ({}, {"forward": True}),
    "row_sum": ({}, {"quads": True}),
    "promotion": ({}, {"promote": True}),
    "p_format": ({}, {"p_format": "e5m2"}),
    "p_offset": ({}, {"offset": 0.0}),
    "softmax_scale": ({}, {"softmax": 1.0}),
    "log2e": ({}, {"softmax": float(f32(1 / math.sqrt(D)) / f32(math.log2(math.e)))}),
    "head_mapping": ({}, {"head_of": lambda h: h % KV_HEADS}),
    "no_mask": ({"causal": True}, {}),
    "mask": ({}, {"sees": lambda i, j: j <= i + N - M}),
    "mask_off_by_one": ({"causal": True}, {"sees": lambda i, j: j <= i + N - M + 1}),
}


@pytest.mark.parametrize("cause", MISTAKES)
def test_mistakes_are_named(cause):
    codes, scales = operands()
    options, mistake = MISTAKES[cause]
    got = attention(codes, scales, **mistake)
    verdict = fp8lab.verify_attention(got, tuple(codes), **given(scales, **options))
    assert verdict.verdict == "mismatch" and verdict.causes, verdict
    assert verdict.causes[0].name == cause, verdict
    with pytest.raises(AssertionError, match=cause):
        assert_attention_matches(got, tuple(codes), **given(scales, **options))


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(("cause", "wrong"), [("missing_scale", lambda s: np.ones_like(s)), ("scale_of_head", lambda s: np.full_like(s, s[0]))])  # fmt: skip
def test_wrong_scales_are_named(which, cause, wrong):
    codes, scales = operands()
    broken = [wrong(s) if i == which else s for i, s in enumerate(scales)]
    verdict = fp8lab.verify_attention(attention(codes, broken), tuple(codes), **given(scales))
    # Other scales may have the same product of those of Q and K, and give the same bits.
    texts = [c.text for c in verdict.causes if c.name == cause]
    assert any("QKV"[which] in text for text in texts), verdict


def test_a_tolerance_passes_what_rounds_otherwise():
    codes, scales = operands()
    got = fp8lab.attention(*codes, **given(scales)).o
    near = np.nextafter(got, f32(np.inf))
    report = fp8lab.verify_attention(near, tuple(codes), **given(scales))
    assert report.verdict == "mismatch" and report.outputs == got.size
    one = got.copy()
    one.flat[3] = near.flat[3]
    report = fp8lab.verify_attention(one, tuple(codes), **given(scales))
    assert (report.outputs, report.bit_mismatches) == (got.size, 1)
    assert fp8lab.verify_attention(near, tuple(codes), tolerance=1e-6, **given(scales)).verdict == "pass"
    half = got.astype(np.float16)
    assert fp8lab.verify_attention(half, tuple(codes), **given(scales)).verdict == "pass"
    with pytest.raises(ValueError, match="tolerance: expected 0"):
        fp8lab.verify_attention(got, tuple(codes), tolerance=-1.0, **given(scales))
    with pytest.raises(ValueError, match="got: expected"):
        fp8lab.verify_attention(got[:, :3], tuple(codes), **given(scales))


def test_tiles_of_a_call_follow_the_size_of_heads():
    calls = {name: call for name, call in fp8lab.attention_calls().items() if call.tiles}
    assert calls
    for call in calls.values():
        for (size, q_tile, kv_tile), following in zip(call.tiles, [*call.tiles[1:], call.tiles[-1]], strict=True):
            at, beyond = call.options_for(size), call.options_for(size + 1)
            assert (at["q_tile"], at["kv_tile"]) == (q_tile, kv_tile)
            assert (beyond["q_tile"], beyond["kv_tile"]) == following[1:]
        assert len({one[1:] for one in call.tiles}) > 1
    for name, call in fp8lab.attention_calls().items():
        given = call.options_for(64)
        given["q_tile"] = -1
        assert call.options["q_tile"] > 0 and call.options_for(64)["q_tile"] > 0, name
        assert call.options.keys() == call.options_for(64).keys()


def test_gates_that_projects_ship_judge_an_output():
    codes, scales = operands()
    right = fp8lab.attention(*codes, **given(scales)).o
    assert fp8lab.verify_attention(right, tuple(codes), **given(scales)).gates == {}
    gates = lambda o, **more: fp8lab.verify_attention(o, tuple(codes), gates=True, **given(scales), **more).gates
    assert {"deepgemm", "kernelbench", "aiter.mha_fp8", "ck_tile.fmha_fp8", "flashattention.fp8"} < gates(right).keys()
    assert gates(right)["ck_tile.fmha_fp8"] and gates(right)["flashattention.fp8"]
    wrong = gates(-right)
    assert not wrong["ck_tile.fmha_fp8"] and not wrong["flashattention.fp8"] and not wrong["deepgemm"]
    # Of FP8 outputs, Composable Kernel's check accepted any distance up to 32.
    assert gates(fp8lab.encode(-right), got_format="e4m3fn")["ck_tile.fmha_fp8"]
    assert not gates(fp8lab.encode(-right), got_format="e4m3fn")["deepgemm"]
