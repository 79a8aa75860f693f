"""What references in Python make of a tensor: files of packages that need a GPU to be imported, and gfloat.

TransformerEngine's references are read from `torch-venv/references` with its base classes replaced: they only hold
what the references compute. They keep NaN in amaxes, which the kernels ignore, and divide by an infinite amax where
current scaling's kernel takes 1: tensors without these are compared. They have no -0 in FP4: a zero's sign is not
compared there. DeepGEMM's math.py is in no package: $FP8LAB_DEEPGEMM names a clone (54e2261 was compared). SGLang's
benchmarks have the casts of its first release.
"""

import functools
import importlib.util
import os
import sys
import types
from pathlib import Path

import numpy as np
import torch

BF16, FP32 = torch.bfloat16, torch.float32
REFERENCES = Path(sys.prefix) / "references"
DEEPGEMM = os.environ.get("FP8LAB_DEEPGEMM", "")
DEEPGEMM_PRESETS = {"deepgemm", "deepgemm-ue8m0", "deepgemm-fp4", "deepgemm-fp4-128"}


def nibbles(packed):
    packed = packed.view(torch.uint8)
    return torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1)


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@functools.cache
def transformer_engine(file):
    """A reference of TransformerEngine's, whose own modules are replaced but for those in Python."""

    class Quantizer:
        def __init__(self, *, rowwise, columnwise):
            self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    base = "transformer_engine.pytorch"
    for name in ("transformer_engine", base, f"{base}.custom_recipes", f"{base}.quantized_tensor", f"{base}.tensor", f"{base}.tensor.utils"):
        sys.modules[name] = types.ModuleType(name)
    quantized = sys.modules[f"{base}.quantized_tensor"]
    quantized.QuantizedTensorStorage, quantized.Quantizer = object, Quantizer
    sys.modules[f"{base}.tensor.utils"].is_custom = None
    for part in ("gemm", "reference_utils", file[:-3]):
        path = REFERENCES / "transformer_engine/pytorch/custom_recipes" / f"{part}.py"
        setattr(sys.modules[f"{base}.custom_recipes"], part, module_of(path, f"{base}.custom_recipes.{part}"))
    return sys.modules[f"{base}.custom_recipes.{file[:-3]}"]


@functools.cache
def deepgemm_math():
    return module_of(Path(DEEPGEMM) / "deep_gemm/utils/math.py", "deepgemm_math")


def te_current(dtype):
    def quantize(x):
        reference = transformer_engine("reference_current_scaling.py")
        q = reference.CurrentScalingQuantizerRef(dtype, columnwise=False).quantize(x)
        return {"x": q.data.view(torch.uint8), "scale_inv": q.scale.reshape(1, 1)}

    return quantize


def te_nvfp4(rows, **options):
    def quantize(x):
        reference = transformer_engine("reference_nvfp4.py")
        quantizer = reference.NVFP4QuantizerRef(
            reference.reference_utils.Fp4Formats.E2M1,
            columnwise=False, quant_tile_shape=(rows, 16), **options)
        q = quantizer.quantize(x)
        scale = q.scale.view(torch.uint8)[::rows].contiguous()
        return {"narrow": nibbles(q.data), "without_minus_zero": True, "scale_inv_ue4m3": scale}

    return quantize


def deepgemm(role, ue8m0):
    def quantize(x):
        math = deepgemm_math()
        cast = math.per_block_cast_to_fp8 if role == "weight" else math.per_token_cast_to_fp8
        q, scale = cast(x, ue8m0)
        return {"x": q.view(torch.uint8), "scale_inv": scale.contiguous()}

    return quantize


def deepgemm_fp4(side):
    def quantize(x):
        packed, scale = deepgemm_math().per_token_cast_to_fp4(x, True, side)
        return {"narrow": nibbles(packed), "side": side, "scale_inv_e8m0": (scale.view(torch.int32) >> 23).to(torch.uint8)}

    return quantize


def deepgemm_first(role):
    def quantize(x):
        casts = module_of(REFERENCES / "sglang/benchmark/deepseek_utils.py", "deepseek_utils")
        padded = torch.nn.functional.pad(x, (0, -x.shape[1] % 128))
        cast = casts.per_block_cast_to_fp8 if role == "weight" else casts.per_token_cast_to_fp8
        q, scale = cast(padded)
        return {"x": q[:, : x.shape[1]].contiguous().view(torch.uint8), "scale_inv": scale.contiguous()}

    return quantize


def ocp(name):
    """gfloat, block after block; infinite scales are its errors."""

    def quantize(x):
        import gfloat
        from gfloat import formats

        block = getattr(formats, name)
        values = x.to(torch.float64).numpy().reshape(x.shape[0], -1, block.k)
        scale = np.array([[gfloat.compute_scale_amax(block.etype.emax, tile) for tile in row] for row in values])
        rounded = gfloat.round_ndarray(block.etype, values / scale[..., None], gfloat.RoundMode.TiesToEven, sat=True)
        codes = gfloat.encode_ndarray(block.etype, rounded).astype(np.uint8).reshape(x.shape)
        return {"x" if block.etype.k == 8 else "narrow": torch.from_numpy(codes),
                "scale_inv_e8m0": torch.from_numpy((np.log2(scale) + 127).astype(np.uint8))}

    return quantize


def reference_systems(make):
    found = [make("te-current", "activation", FP32, te_current(torch.float8_e4m3fn), "transformer_engine", finite=True),
             make("te-current", "gradient", FP32, te_current(torch.float8_e5m2), "transformer_engine", finite=True)]
    four_over_six = {"te-nvfp4-4over6": ("MAE", 256), "te-nvfp4-4over6-mse": ("MSE", 256),
                     "te-nvfp4-4over6-448": ("MAE", 448), "te-nvfp4-4over6-mse-448": ("MSE", 448)}
    for dtype in (FP32, BF16):
        for role, rows in (("activation", 1), ("weight", 16)):
            def add(preset, **options):
                found.append(make(preset, role, dtype, te_nvfp4(rows, **options), "transformer_engine",
                                  rows_multiple=16, k_multiple=16, with_nan=False))

            add("te-nvfp4")
            for preset, (mode, bound) in four_over_six.items():
                add(preset, nvfp4_use_4over6=True, nvfp4_e4m3_max=bound, nvfp4_4over6_err_mode=mode)
        for role in ("activation", "weight"):
            found.append(make("deepgemm-first", role, dtype, deepgemm_first(role), "sglang"))
        if DEEPGEMM:
            for role in ("activation", "weight"):
                found.append(make("deepgemm", role, dtype, deepgemm(role, False), "DeepGEMM"))
                found.append(make("deepgemm-ue8m0", role, dtype, deepgemm(role, True), "DeepGEMM"))
            for preset, side in (("deepgemm-fp4", 32), ("deepgemm-fp4-128", 128)):
                found.append(make(preset, "activation", dtype, deepgemm_fp4(side), "DeepGEMM", k_multiple=2))
        for preset, block in (("ocp-mxfp8", "format_info_mxfp8_e4m3"), ("mxfp8-floor", "format_info_mxfp8_e4m3"),
                              ("mxfp4", "format_info_mxfp4_e2m1"), ("mxfp6-e2m3", "format_info_mxfp6_e2m3"),
                              ("mxfp6-e3m2", "format_info_mxfp6_e3m2")):
            found.append(make(preset, "activation", dtype, ocp(block), "gfloat", k_multiple=32, finite=True))
    return found
