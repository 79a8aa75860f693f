"""NVFP4, MXFP4 and MXFP6: quantized tensors, their scales, and products of them."""

import fp8lab
import ml_dtypes
import numpy as np
import pytest

F32 = np.float32
MODEL = "sm100.tcgen05.mxf4nvf4"


def normal(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, 192)).astype(F32)


def test_nvfp4_has_two_levels_of_scales():
    x = normal(9, 1)
    q = fp8lab.quantize(x, "nvfp4")
    assert q.codes.dtype == ml_dtypes.float4_e2m1fn
    assert q.ue4m3.dtype == ml_dtypes.float8_e4m3fn
    assert q.ue4m3.shape == (9, 12)
    # 1 / (2688 / amax), both rounded.
    assert q.tensor_inverse_scale == F32(1) / (F32(2688) / np.abs(x).max())
    scales = (q.ue4m3.astype(F32) * F32(q.tensor_inverse_scale))[..., None]
    expected = (q.codes.astype(F32).reshape(9, 12, 16) * scales).reshape(x.shape)
    assert np.array_equal(q.dequantize().view(np.uint32), expected.view(np.uint32))


def test_the_second_level_is_alpha():
    a, b = fp8lab.quantize(normal(5, 1), "nvfp4"), fp8lab.quantize(normal(7, 2), "nvfp4")
    d = fp8lab.gemm(a, b, model=MODEL)

    def of(q, tensor_scale, values=None):
        return fp8lab.Scales(q.ue4m3 if values is None else values, 1, 16, tensor_scale)

    blocks = fp8lab.gemm(a.codes, b.codes, model=MODEL, scale_a=of(a, 1.0), scale_b=of(b, 1.0))
    alpha = F32(a.tensor_inverse_scale) * F32(b.tensor_inverse_scale)
    assert np.array_equal((alpha * blocks).view(np.uint32), d.view(np.uint32))
    raw = fp8lab.gemm(
        a.codes.view(np.uint8),
        b.codes,
        model=MODEL,
        a_format="e2m1",
        scale_a=of(a, a.tensor_inverse_scale, a.ue4m3.view(np.uint8)),
        scale_b=of(b, b.tensor_inverse_scale),
        scale_format="e4m3fn",
    )
    assert np.array_equal(raw.view(np.uint32), d.view(np.uint32))


@pytest.mark.parametrize(
    ("recipe", "model", "dtype"),
    [
        ("mxfp4", MODEL, ml_dtypes.float4_e2m1fn),
        ("mxfp6-e2m3", "sm100.tcgen05.mxf8f6f4.e2m3", ml_dtypes.float6_e2m3fn),
        ("mxfp6-e3m2", "sm120.mma.mxf8f6f4.e3m2", ml_dtypes.float6_e3m2fn),
    ],
)
def test_mx_formats_run_under_their_instructions(recipe, model, dtype):
    x, y = normal(5, 3), normal(7, 4)
    a, b = fp8lab.quantize(x, recipe), fp8lab.quantize(y, recipe)
    assert a.codes.dtype == dtype
    d = fp8lab.gemm(a, b, model=model)
    exact = a.dequantize().astype(float) @ b.dequantize().astype(float).T
    assert np.abs(d - exact).max() < 1e-4


def test_bytes_that_are_no_codes_are_refused():
    codes = np.full((2, 64), 0x11, np.uint8)
    with pytest.raises(ValueError, match="codes of 4 bits"):
        fp8lab.gemm(codes, codes, model=MODEL, a_format="e2m1", b_format="e2m1")


def test_bytes_that_are_no_codes_are_refused_wherever_they_lie():
    """Also in arrays of strides, at every place, and nowhere where no element is."""
    base = np.zeros((6, 8), np.uint8)
    how = {"a_format": "e2m1", "b_format": "e2m1", "model": "exact"}
    views = {"all": base, "columns": base[:, ::2], "rows": base[::2], "turned": base.T, "back": base[::-1, ::-1]}
    for name, view in views.items():
        b = np.zeros((2, view.shape[1]), np.uint8)
        for i, k in np.ndindex(*view.shape):
            view[i, k] = 0x10
            with pytest.raises(ValueError, match="^A: expected codes of 4 bits"):
                fp8lab.gemm(view, b, **how)
            view[i, k] = 0
        base[...] = 0x10
        view[...] = 0
        assert not fp8lab.gemm(view, b, **how).any(), name
        base[...] = 0


@pytest.mark.parametrize("stated", [False, True])
def test_the_type_of_scales_says_what_a_unit_reads(stated):
    """UE4M3 per 32: one unit has it, another does not, and numbers are E8M0 there."""
    ones = np.ones((2, 64), ml_dtypes.float4_e2m1fn)
    e4m3, e8m0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu

    def product(model, block, dtype, value):
        values = np.full((2, 64 // block), value).astype(dtype)
        more = {}
        if stated and dtype != F32:
            values = values.view(np.uint8)
            more["scale_format"] = "e4m3fn" if dtype == e4m3 else "e8m0fnu"
        scales = fp8lab.Scales(values, 1, block)
        return fp8lab.gemm(ones, ones, model=model, scale_a=scales, scale_b=scales, **more)

    for block in (16, 32):
        assert (product("sm120.mma.mxf4nvf4", block, e4m3, 1.5) == 144).all()
        assert (product("sm120.mma.mxf4nvf4", block, e4m3, -1.5) == 144).all(), "the sign is not read"
        assert (product("sm120.mma.mxf4nvf4", block, e8m0, 2.0) == 256).all()
    with pytest.raises(ValueError, match="^scale_a: expected values of e8m0fnu"):
        product("sm120.mma.mxf4nvf4", 32, F32, 1.5)
    with pytest.raises(ValueError, match="^promotion_interval: expected a divisor of scale_a.k_block = 32"):
        product(MODEL, 32, e4m3, 1.5)
    assert (product(MODEL, 16, e4m3, 1.5) == 144).all() and (product(MODEL, 16, F32, 1.5) == 144).all()
