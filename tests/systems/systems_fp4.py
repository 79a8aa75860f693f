"""What the packages make of a tensor in FP4 and FP6.

Codes are packed as the preset's file has them. "scale_inv_ue4m3" is a UE4M3 code, "tensor_scale_inv" what the
tensor's codes are multiplied by beside it, "tensor_scale" what a package divides by. E2M1, E2M3 and E3M2 have no
NaN, so what a NaN element becomes is not compared: "element_is_nan" names them.
"""

import torch

FORMATS = {"mxfp4": "float4_e2m1fn_x2", "mxfp6-e2m3": "fp6_e2m3", "mxfp6-e3m2": "fp6_e3m2"}


def torchao_mx(elements, mode):
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    dtype = getattr(torch, elements, elements)

    def quantize(x):
        scale, q = to_mx(x, dtype, 32, ScaleCalculationMode[mode])
        q = q if elements.startswith("fp6") else torch.stack((q & 15, q >> 4), -1).reshape(x.shape)
        return {"narrow": q, "scale_inv_e8m0": scale.view(torch.uint8)}

    return quantize


def nibbles(packed):
    return torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1)


def torchao_nvfp4(x):
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    tensor = per_tensor_amax_to_scale(torch.max(torch.abs(x)))
    scale, packed = nvfp4_quantize(x, 16, tensor)
    return {"narrow": nibbles(packed), "scale_inv_ue4m3": scale.view(torch.uint8), "tensor_scale_inv": tensor}


def compressed(x):
    """A weight, as compressed-tensors observes, quantizes and packs it."""
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = PRESET_SCHEMES["NVFP4"]["weights"]
    groups = x.reshape(x.shape[0], -1, args.group_size)
    tensor = generate_gparam(x.amin(), x.amax())
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, tensor)
    state = {"weight": x, "weight_global_scale": tensor, "weight_scale": scale}
    state = NVFP4PackedCompressor.compress(state, QuantizationScheme(targets=["Linear"], weights=args))
    return {"narrow": nibbles(state["weight_packed"]), "scale_inv_ue4m3": state["weight_scale"].view(torch.uint8),
            "tensor_scale": tensor}


def modelopt_nvfp4(x):
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    q, scale, tensor = NVFP4QTensor.quantize(x.clone(), 16)
    return {"narrow": nibbles(q._quantized_data), "scale_inv_ue4m3": scale.view(torch.uint8),
            "tensor_scale_inv": tensor}


def fp4_systems(make):
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for name, elements in FORMATS.items():
            for mode in ("FLOOR", "CEIL", "EVEN", "RCEIL"):
                found.append(make(f"torchao-{name}-{mode.lower()}", "activation", dtype, torchao_mx(elements, mode),
                                  "torchao", k_multiple=32))
        found.append(make("torchao-nvfp4", "activation", dtype, torchao_nvfp4, "torchao", k_multiple=16))
        ending = "" if dtype == torch.float32 else "-bf16"
        found.append(make("modelopt-nvfp4", "weight", dtype, modelopt_nvfp4, "modelopt", k_multiple=16))
        found.append(make("compressed-tensors-nvfp4" + ending, "weight", dtype, compressed, "compressed_tensors",
                          k_multiple=16))
    return found
