"""`scaled_mm` of FP4 operands: NVFP4 with one level of scales and two, and MXFP4."""

import numpy as np
import pytest
import torch
from conftest import assert_same_bits, log_normal

import fp8lab
import fp8lab.torch

if not (hasattr(torch.nn.functional, "scaled_mm") and hasattr(torch, "float4_e2m1fn_x2")):
    pytest.skip("needs PyTorch 2.10", allow_module_level=True)

from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

MODEL = "sm100.tcgen05.mxf4nvf4"
FP4, E4M3, E8M0 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn, torch.float8_e8m0fnu
SWIZZLED, PLAIN = SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE
NV, MX = ScalingType.BlockWise1x16, ScalingType.BlockWise1x32
TWO_LEVELS = [NV, ScalingType.TensorWise]
SHAPES = [(5, 7, 192), (130, 40, 64), (1, 16, 32)]


def packed(codes):
    """Two codes a byte, the first in the low bits."""
    words = torch.from_numpy(np.asarray(codes).view(np.uint8).copy())
    return (words[:, 0::2] | words[:, 1::2] << 4).view(FP4)


def swizzled(scales, dtype):
    """Row r of a tile of 128 rows and 4 columns is at 16 (r mod 32) + 4 (r div 32)."""
    rows, columns = scales.shape
    row_tiles, column_tiles = -(-rows // 128), -(-columns // 4)
    laid = np.zeros(row_tiles * column_tiles * 512, np.uint8)
    for r, c in np.ndindex(rows, columns):
        tile = r // 128 * column_tiles + c // 4
        laid[512 * tile + 16 * (r % 32) + 4 * (r % 128 // 32) + c % 4] = scales.view(np.uint8)[r, c]
    return torch.from_numpy(laid).view(dtype)


def quantized(shape, recipe):
    m, n, k = shape
    return [fp8lab.quantize(log_normal(rows, k, seed=rows).numpy(), recipe) for rows in (m, n)]


@pytest.mark.parametrize("shape", SHAPES)
def test_nvfp4_has_the_bits_of_the_library_s_product(shape):
    a, b = quantized(shape, "nvfp4")
    left, right = packed(a.codes), packed(b.codes).t()
    scales = [swizzled(q.ue4m3, E4M3) for q in (a, b)]
    whole = [torch.tensor([q.tensor_inverse_scale]) for q in (a, b)]
    expected = torch.from_numpy(fp8lab.gemm(a, b, model=MODEL))
    assert float(expected.abs().max()) > 0
    given = (left, right, [scales[0], whole[0]], TWO_LEVELS, [scales[1], whole[1]], TWO_LEVELS)
    swizzles = ([SWIZZLED, PLAIN], [SWIZZLED, PLAIN])
    how = dict(output_dtype=torch.float32)
    assert_same_bits(fp8lab.torch.scaled_mm(*given, *swizzles, **how, platform="b200"), expected)
    with fp8lab.torch.emulate_scaled_mm("b200", strict=False):
        assert_same_bits(scaled_mm(*given, *swizzles, **how), expected)
        assert_same_bits(scaled_mm(*given, *swizzles), expected.bfloat16())
        once = torch._scaled_mm(left, right, *scales, out_dtype=torch.float32)
        same = scaled_mm(left, right, scales[0], NV, scales[1], NV, SWIZZLED, SWIZZLED, **how)
    assert_same_bits(once, same)
    assert_same_bits(once * (whole[0] * whole[1]), expected)
    bias = log_normal(shape[1], seed=9)
    got = fp8lab.torch.scaled_mm(*given, *swizzles, bias, torch.bfloat16, platform="b200")
    assert_same_bits(got, (expected + bias).bfloat16())


def test_the_sign_of_a_ue4m3_scale_is_not_read():
    a, b = quantized(SHAPES[0], "nvfp4")
    scales = [swizzled(q.ue4m3, E4M3) for q in (a, b)]
    negative = (scales[0].view(torch.uint8) | 128).view(E4M3)
    how = dict(out_dtype=torch.float32, platform="b200")
    got = [
        fp8lab.torch.scaled_mm(packed(a.codes), packed(b.codes).t(), one, scales[1], **how)
        for one in (scales[0], negative)
    ]
    assert_same_bits(*got)


@pytest.mark.parametrize("shape", SHAPES)
def test_mxfp4_has_the_bits_of_the_library_s_product(shape):
    a, b = quantized(shape, "mxfp4")
    expected = torch.from_numpy(fp8lab.gemm(a, b, model=MODEL))
    scales = [swizzled(q.e8m0, E8M0) for q in (a, b)]
    given = (packed(a.codes), packed(b.codes).t())
    how = dict(output_dtype=torch.float32)
    with fp8lab.torch.emulate_scaled_mm("b200", strict=False):
        got = scaled_mm(*given, scales[0], MX, scales[1], MX, SWIZZLED, SWIZZLED, **how)
        assert_same_bits(got, expected)
        assert_same_bits(torch._scaled_mm(*given, *scales, out_dtype=torch.float32), expected)


def test_torchao_s_nvfp4_tensors_run_unchanged():
    nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    x, w = log_normal(32, 128), log_normal(64, 128, seed=1)
    kwargs = nvfp4.QuantizeTensorToNVFP4Kwargs(use_dynamic_per_tensor_scale=False, is_swizzled_scales=True)
    weight = nvfp4.NVFP4Tensor.to_nvfp4(w, is_swizzled_scales=True, act_quant_kwargs=kwargs)
    with fp8lab.torch.emulate_scaled_mm("b200"):
        got = torch.nn.functional.linear(x, weight)
    codes, scales = [], []
    for values in (x, w):
        q = nvfp4.NVFP4Tensor.to_nvfp4(values)
        words = q.qdata.view(torch.uint8).numpy()
        codes.append(np.stack([words & 15, words >> 4], 2).reshape(len(words), -1))
        scales.append(fp8lab.Scales(q.scale.reshape(len(words), -1).view(torch.uint8).numpy(), 1, 16))
    expected = fp8lab.gemm(
        *codes, a_format="e2m1", b_format="e2m1", model=MODEL, scale_a=scales[0], scale_b=scales[1],
        scale_format="e4m3fn",
    )
    assert_same_bits(got, torch.from_numpy(expected))


def test_torchao_s_mx_modules_run_unchanged():
    formats = pytest.importorskip("torchao.prototype.mx_formats")
    quantize_ = pytest.importorskip("torchao.quantization").quantize_
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(128, 64, dtype=torch.bfloat16))
    x, errors = log_normal(32, 128).bfloat16(), []
    expected = plain(x).detach()
    for dtype in (E4M3, FP4):
        model = torch.nn.Sequential(torch.nn.Linear(128, 64, dtype=torch.bfloat16))
        model.load_state_dict(plain.state_dict())
        quantize_(model, formats.MXDynamicActivationMXWeightConfig(activation_dtype=dtype, weight_dtype=dtype))
        with pytest.raises(ValueError):
            model(x)  # torch's own CPU kernel has none
        with fp8lab.torch.emulate_scaled_mm("b200"):
            errors.append(float((model(x) - expected).detach().norm() / expected.norm()))
    assert 0.005 < errors[0] < 0.06 < errors[1] < 0.3


def wrong_calls():
    fp4 = torch.zeros(128, 64, dtype=torch.uint8).view(FP4)
    nv, one = torch.ones(1024).to(E4M3), torch.ones(1)
    two = ([nv, one], TWO_LEVELS)
    yield fp4, fp4.t(), *two, *two
    yield fp4, fp4.t(), *two, *two, [PLAIN, PLAIN], [PLAIN, PLAIN]
    yield fp4, fp4.t(), *two, *two, [SWIZZLED], [SWIZZLED]
    yield fp4, fp4.t(), nv[1:], NV, nv, NV, SWIZZLED, SWIZZLED
    yield fp4, fp4.t(), nv, NV, nv, NV, PLAIN, PLAIN
    yield fp4, fp4.t(), nv, NV, *two, SWIZZLED, [SWIZZLED, PLAIN]


@pytest.mark.parametrize("given", list(wrong_calls()))
def test_wrong_arguments_have_torch_s_own_words(given):
    with pytest.raises(ValueError) as theirs:
        scaled_mm(*given)
    with fp8lab.torch.emulate_scaled_mm("b200"), pytest.raises(ValueError) as ours:
        scaled_mm(*given)
    expected, got = (str(error.value).partition(" mat_a.dtype")[0].split("\n")[0] for error in (theirs, ours))
    assert got == expected


def test_what_fits_nothing_is_refused():
    fp4, nv = torch.zeros(16, 32, dtype=torch.uint8).view(FP4), torch.ones(512).to(E4M3)
    call = fp8lab.torch.scaled_mm
    with pytest.raises(NotImplementedError, match="FP4 instructions \\(b200\\), got h100"):
        call(fp4, fp4.t(), nv, NV, nv, NV, SWIZZLED, SWIZZLED)
    with pytest.raises(ValueError, match="scale_a: expected UE4M3 scales .* two FP4 operands"):
        call(fp4, fp4.t(), torch.ones(()), torch.ones(()), out_dtype=torch.float32, platform="b200")
    with pytest.raises(ValueError, match="scale_a: expected UE4M3 scales .* two FP4 operands"):
        call(fp4, torch.zeros(32, 16).to(E4M3), nv, nv, out_dtype=torch.float32, platform="b200")
    fp8, e8m0 = fp4.view(torch.uint8).view(E4M3), torch.ones(512).to(E8M0)
    with pytest.raises(ValueError, match="scale_a: expected UE4M3 scales .* two FP4 operands"):
        call(fp8, fp4.t(), e8m0, e8m0, out_dtype=torch.float32, platform="b200")
    for operand, scale in ((fp4.t(), nv), (fp8.t(), e8m0)):  # NVFP4's scales as MX; FP4 times FP8
        with pytest.raises(ValueError, match=r"unsupported recipe\(s\). Got mat_a.dtype=torch.float4"):
            call(fp4, operand, scale, MX, scale, MX, SWIZZLED, SWIZZLED, platform="b200")
    two = [nv, torch.ones(2)]
    with pytest.raises(ValueError, match=r"scale_a\[1\]: expected one value for the tensor, got \[2\]"):
        call(
            fp4, fp4.t(), two, TWO_LEVELS, two, TWO_LEVELS, [SWIZZLED, PLAIN], [SWIZZLED, PLAIN],
            platform="b200",
        )
    here, elsewhere = [nv, torch.ones(1)], [nv, torch.ones(1, device="meta")]
    for name, of_a, of_b in (("scale_a", elsewhere, here), ("scale_b", here, elsewhere)):
        with pytest.raises(ValueError, match=f"{name}: expected a CPU tensor, got one on meta"):
            call(
                fp4, fp4.t(), of_a, TWO_LEVELS, of_b, TWO_LEVELS, [SWIZZLED, PLAIN], [SWIZZLED, PLAIN],
                platform="b200",
            )
    with pytest.raises(ValueError, match="out_dtype: expected float32"):
        call(fp4, fp4.t(), nv, nv, platform="b200")


@pytest.mark.parametrize("alpha", [None, torch.tensor(0.25)])
def test_fp4_passes_opcheck_and_compiles(alpha):
    a, b = (torch.randint(0, 256, (rows, 32), dtype=torch.uint8) for rows in (16, 32))
    scales = [torch.full((rows, 4), 0.5) for rows in (16, 32)]
    given = (a, b.t(), *scales, log_normal(32), "e2m1 e2m1 bf16", [1, 16, 1, 16], True, "b200", alpha)
    torch.library.opcheck(torch.ops.fp8lab.scaled_mm_tiles.default, given)
    nv = [torch.ones(128 * 4).to(E4M3) for _ in range(2)]

    def call(a, b, scale_a, scale_b):
        return fp8lab.torch.scaled_mm(
            a.view(FP4), b.view(FP4).t(), scale_a, NV, scale_b, NV, SWIZZLED, SWIZZLED, platform="b200"
        )

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same_bits(compiled(a, b, *nv), call(a, b, *nv))
