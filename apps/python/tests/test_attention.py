"""Attention against NumPy, and what its arguments do."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32


def qkv(heads=2, m=96, n=256, d=64, seed=2):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((heads, rows, d), f32) for rows in (m, n, n))


def in_float64(q, k, v):
    s = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v.astype(float)


def test_errors_are_those_against_numpy():
    q, k, v = qkv()
    result = fp8lab.attention(q, k, v)
    o = in_float64(q, k, v)
    error = np.linalg.norm(result.o - o) / np.linalg.norm(o)
    assert result.against_inputs.relative_l2 == pytest.approx(error, rel=1e-6)
    assert result.against_codes.relative_l2 < result.against_inputs.relative_l2
    assert [(t.begin, t.end) for t in result.tiles] == [(0, 128), (128, 256)]
    assert result.total.elements == 2 * 96 * 256 == sum(t.elements for t in result.tiles)


def test_codes_with_scales_equal_the_floats_that_they_stand_for():
    q, k, v = qkv()
    scales = [448 / np.abs(x).max((1, 2)) for x in (q, k, v)]
    codes = [
        fp8lab.encode((x * s[:, None, None].astype(f32)).astype(f32))
        for x, s in zip((q, k, v), scales, strict=True)
    ]
    inverse = dict(zip(("q_scales", "k_scales", "v_scales"), (1 / s for s in scales), strict=True))
    inverse = {name: s.astype(f32) for name, s in inverse.items()}
    result = fp8lab.attention(*codes, **inverse)
    assert result.against_codes == result.against_inputs
    values = [c.astype(f32) * s[:, None, None] for c, s in zip(codes, inverse.values(), strict=True)]
    o = in_float64(*values)
    error = np.linalg.norm(result.o - o) / np.linalg.norm(o)
    assert result.against_codes.relative_l2 == pytest.approx(error, rel=1e-5)
    raw = [c.view(np.uint8) for c in codes]
    again = fp8lab.attention(*raw, codes_format="e4m3fn", threads=1, **inverse)
    np.testing.assert_array_equal(again.o, result.o)


def test_options_reach_the_library():
    q, k, v = qkv()
    plain = fp8lab.attention(q * 4, k, v)
    stale = fp8lab.attention(q * 4, k, v, rescale_threshold=4.0, kv_tile=64)
    assert len(stale.tiles) == 4 and stale.total.stale_rows > 0 == plain.total.stale_rows
    assert stale.total.saturated > 0 == plain.total.saturated
    causal = fp8lab.attention(q, k, v, causal=True)
    assert causal.total.elements < plain.total.elements
    assert not np.array_equal(fp8lab.attention(q, k, v, two_level=True).o, plain.o)
    narrow = fp8lab.attention(q, k, v)
    for model in ("qk_model", "pv_model"):
        assert not np.array_equal(fp8lab.attention(q, k, v, **{model: "exact"}).o, narrow.o)
    wide = fp8lab.attention(q, k, v, softmax_scale=1.0)
    assert not np.array_equal(wide.o, narrow.o)


def test_a_tile_has_128_rows():
    """Where a row of a tile reads columns of v, all do: to a row that hides them, 0 times a NaN is a NaN."""
    q, k, v = qkv(m=128, n=128)
    v[:, 100] = np.nan
    how = {"causal": True, "kv_tile": 64}
    assert np.isnan(fp8lab.attention(q, k, v, **how).o).all()
    half = np.isnan(fp8lab.attention(q, k, v, q_tile=64, **how).o)
    assert not half[:, :64].any() and half[:, 64:].all()


def test_shapes():
    q, k, v = qkv()
    one = fp8lab.attention(q[0], k[0], v[0])
    assert one.o.shape == (96, 64)
    np.testing.assert_array_equal(one.o, fp8lab.attention(q[:1], k[:1], v[:1]).o[0])
    grouped = fp8lab.attention(q, k[:1], v[:1, :, :32])
    assert grouped.o.shape == (2, 96, 32)
    half = fp8lab.attention(*(x.astype(ml_dtypes.bfloat16) for x in (q, k, v)))
    assert half.o.dtype == f32
    turned = np.ascontiguousarray(k.transpose(2, 1, 0)).transpose(2, 1, 0)
    np.testing.assert_array_equal(fp8lab.attention(q, turned, v).o, fp8lab.attention(q, k, v).o)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_tile": 48}, "kv_tile: expected a multiple of sm90.wgmma.e4m3's 32 terms, up to .*, got 48"),
        ({"qk_model": "sm90.wgmma.e5m2"}, "qk_model: expected an instruction that reads e4m3fn"),
        ({"q_scales": 2.0}, "q: expected codes, since their scales are given, got float32"),
        ({"threads": -1}, "threads: expected 0"),
        ({"k": np.zeros((2, 256, 32), f32)}, "K: expected .* d = 64"),
        ({"v": np.zeros(4, f32)}, r"v: expected \[heads, rows, columns\] or .*, got \[4\]"),
        ({"k": np.zeros((2, 256, 64), np.uint8)}, "codes_format: expected the format of k"),
        (
            {"k": np.zeros((2, 256, 64), np.uint8), "k_scales": [1.0] * 3, "codes_format": "e4m3fn"},
            "k_scales: expected 1 or 2 inverse scales, got 3",
        ),
    ],
)
def test_bad_arguments_are_value_errors(change, message):
    arguments = dict(zip("qkv", qkv(), strict=True)) | change
    with pytest.raises(ValueError, match=message):
        fp8lab.attention(**arguments)


def test_a_scale_of_the_softmax_is_above_zero():
    q, k, v = qkv()
    for wrong in (0.0, 0, -0.0, np.float32(0), 1e-60):
        for function in (
            lambda **how: fp8lab.attention(q, k, v, **how),
            lambda **how: fp8lab.verify_attention(np.zeros((2, 96, 64), f32), (q, k, v), **how),
        ):
            with pytest.raises(ValueError, match=r"^softmax_scale: expected a number above 0, or None for 1 / sqrt\(d\), got"):
                function(softmax_scale=wrong)
    with pytest.raises(ValueError, match="^softmax_scale: expected a finite number >= 0, got -1"):
        fp8lab.attention(q, k, v, softmax_scale=-1.0)
    usual = fp8lab.attention(q, k, v, softmax_scale=0.125).o  # d is 64
    np.testing.assert_array_equal(fp8lab.attention(q, k, v, softmax_scale=None).o, usual)
    np.testing.assert_array_equal(fp8lab.attention(q, k, v).o, usual)


@pytest.mark.parametrize("shape", [(1, 96, 64), (96,), (96, 64, 1), (2, 96, 64)])
def test_an_output_has_the_dimensions_of_q(shape):
    q, k, v = (x[0] for x in qkv())
    with pytest.raises(ValueError, match="^got: expected 2 dimensions, as q has"):
        fp8lab.verify_attention(np.zeros(shape, f32), (q, k, v))
    with pytest.raises(ValueError, match="^got: expected 3 dimensions, as q has"):
        fp8lab.verify_attention(np.zeros((96, 64), f32), (q[None], k[None], v[None]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_tile": 1.5}, "^q_tile: expected a whole number, got 1.5$"),
        ({"p_offset": "8"}, "^p_offset: expected a number, got '8'$"),
        ({"tile_order": 3}, "^tile_order: expected a name, got 3$"),
        ({"q": np.zeros((2, 96, 64), np.uint16), "codes_format": "e4m3fn"}, "^q: expected FP8 codes of one byte"),
        ({"codes_format": 3, "q": np.zeros((2, 96, 64), np.uint8)}, "^codes_format: expected a name, got 3$"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_by_name(change, message):
    arguments = dict(zip("qkv", qkv(), strict=True)) | change
    with pytest.raises(ValueError, match=message):
        fp8lab.attention(**arguments)


def test_one_head_has_one_scale():
    codes = [fp8lab.encode(x[:1]) for x in qkv()]
    with pytest.raises(ValueError, match="^q_scales: expected 1 inverse scale, got 2$"):
        fp8lab.attention(*codes, q_scales=[1.0, 2.0])
    with pytest.raises(ValueError, match="^k_scales: expected inverse scales: one, or one a head, got none$"):
        fp8lab.attention(*codes, k_scales=[])


def test_caches_of_floats_have_the_scales_of_their_rule():
    q, k, v = qkv()
    default = fp8lab.attention(q, k, v).o
    assert np.array_equal(fp8lab.attention(q, k, v, kv_cache="e4m3.head").o, default)
    left, *codes = (fp8lab.encode(x) for x in (q, k, v))
    one = fp8lab.attention(left, k, v, kv_cache="e4m3.one").o
    assert np.array_equal(fp8lab.attention(left, *codes).o, one)
    ones = {"k_scales": [1.0], "v_scales": [1.0]}
    assert np.array_equal(fp8lab.attention(left, k, v, kv_cache="e4m3.tensor", **ones).o, one)
    errors = {
        name: fp8lab.attention(q, k, v, kv_cache=name).against_inputs.relative_l2
        for name in ("e4m3.head", "nvfp4")
    }
    assert errors["e4m3.head"] < errors["nvfp4"]
    with pytest.raises(ValueError, match="kv_cache: expected one of e4m3.head, .* got 'fp8'"):
        fp8lab.attention(q, k, v, kv_cache="fp8")
    with pytest.raises(ValueError, match="k: expected floats, which the KV cache quantizes"):
        fp8lab.attention(q, codes[0], v, kv_cache="e4m3.one")


def test_rows_of_deepseek_come_back():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 576), f32)
    rows = fp8lab.pack_kv_rows(x)
    assert rows.shape == (5, 656) and rows.dtype == np.uint8
    back = fp8lab.read_kv_rows(rows)
    position = x[:, 512:].astype(ml_dtypes.bfloat16).astype(f32)
    assert np.array_equal(back[:, 512:], position)
    assert np.linalg.norm(back - x) < 0.04 * np.linalg.norm(x)
    scales = rows[:, 512:528].copy().view(f32)
    assert np.array_equal(np.log2(scales) % 1, np.zeros((5, 4)))
    for bad in (x[0], x[:, :575]):
        with pytest.raises(ValueError, match="x: expected \\[rows, 576\\]"):
            fp8lab.pack_kv_rows(bad)
    with pytest.raises(ValueError, match="rows: expected uint8"):
        fp8lab.read_kv_rows(rows.astype(np.int8))


def test_parts_soft_caps_and_sinks():
    q, k, v = qkv(m=8)
    o = fp8lab.attention(q, k, v).o
    parts = fp8lab.attention(q, k, v, splits=2).o
    assert not np.array_equal(parts, o) and np.abs(parts - o).max() < 0.02
    assert fp8lab.verify_attention(parts, (q, k, v)).causes[0].name == "splits"
    capped = fp8lab.attention(q, k, v, soft_cap=1.0).o
    assert [c.name for c in fp8lab.verify_attention(o, (q, k, v), soft_cap=1.0).causes] == ["soft_cap"]
    assert not np.array_equal(capped, o)
    sunk = fp8lab.attention(q, k, v, sinks=[9.0, -9.0]).o
    assert np.linalg.norm(sunk[0]) < 0.2 * np.linalg.norm(o[0])
    assert np.linalg.norm(sunk[1] - o[1]) < 1e-3 * np.linalg.norm(o[1])
    with pytest.raises(ValueError, match="sinks: expected none, or one of each of Q's 2 heads, got 1"):
        fp8lab.attention(q, k, v, sinks=[0.0])
