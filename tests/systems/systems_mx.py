"""What compressed-tensors and ModelOpt make of a tensor in MXFP8, MXFP6 and MXFP4.

compressed-tensors keeps scales as floats until it packs a weight, and then casts their exponents to integers, which
leaves an infinite one open: here codes are taken from the floats, 255 for an infinite one. It adds to the bits of a NaN
as of a number, so that the NaN which PyTorch's reduction happens to give decides between 0 and 255: tensors without NaN
are compared. ModelOpt's MXFP4 casts Inf and NaN to integers too: finite tensors are compared.
"""

import torch

BF16, FP32 = torch.bfloat16, torch.float32


def nibbles(packed):
    return torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1)


def sixes(packed):
    """Codes of six bits, four in three bytes."""
    b = packed.reshape(packed.shape[0], -1, 3).to(torch.int32)
    word = b[..., 0] | b[..., 1] << 8 | b[..., 2] << 16
    return torch.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], -1).reshape(packed.shape[0], -1).to(torch.uint8)


def e8m0(scale):
    scale = scale.float()
    exponent = 127 + torch.floor(torch.log2(scale))
    return torch.where(scale.isinf(), 255.0, exponent).to(torch.uint8)


def scales_of(x, args):
    from compressed_tensors.quantization.utils import calculate_qparams

    groups = x.reshape(x.shape[0], -1, args.group_size)
    return calculate_qparams(groups.amin(-1), groups.amax(-1), args)


def compressed_weight(scheme_name):
    """A weight, as the package observes, quantizes and packs it."""

    def quantize(x):
        from compressed_tensors.compressors.base import BaseCompressor
        from compressed_tensors.quantization import QuantizationScheme
        from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES

        args = PRESET_SCHEMES[scheme_name]["weights"]
        scale, zero_point = scales_of(x, args)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        name = {4: "mxfp4-pack-quantized", 6: "mxfp6-pack-quantized", 8: "mxfp8-quantized"}[args.num_bits]
        state = BaseCompressor.get_value_from_registry(name).compress(
            {"weight": x, "weight_scale": scale, "weight_zero_point": zero_point}, scheme)
        finite = scale.isfinite()
        stored = state["weight_scale"]
        assert torch.equal(stored[finite], e8m0(scale)[finite]), "what is stored is the exponent"
        if args.num_bits == 8:
            return {"x": state["weight"].view(torch.uint8), "scale_inv_e8m0": e8m0(scale)}
        unpack = nibbles if args.num_bits == 4 else sixes
        return {"narrow": unpack(state["weight_packed"]), "scale_inv_e8m0": e8m0(scale)}

    return quantize


def compressed_input(scheme_name):
    """A dynamic activation; its codes are those of the values that the package goes on with."""

    def quantize(x):
        from compressed_tensors.quantization.lifecycle.forward import quantize as cast
        from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
        from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

        args = PRESET_SCHEMES[scheme_name]["input_activations"]
        scale, zero_point = compute_dynamic_scales_and_zp(x[None], args, torch.nn.Identity())
        q = cast(x[None], scale, zero_point, args)[0]
        codes = q.float().to(torch.float8_e4m3fn).view(torch.uint8)  # exact: they are numbers of the format
        if args.num_bits == 8:
            return {"x": codes, "scale_inv_e8m0": e8m0(scale[0])}
        return {"narrow": e2m1_codes(q.float()), "scale_inv_e8m0": e8m0(scale[0])}

    return quantize


def e2m1_codes(values):
    """Of numbers of the format, and 0 for a NaN."""
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    magnitude = torch.searchsorted(numbers, values.abs().nan_to_num(0))
    return (magnitude | torch.signbit(values).long() << 3).to(torch.uint8)


def modelopt_mxfp8(x):
    from modelopt.torch.quantization.qtensor import MXFP8QTensor

    q, scale = MXFP8QTensor.quantize(x.clone())
    return {"x": q._quantized_data.view(torch.uint8), "scale_inv_e8m0": scale}


def modelopt_mxfp4(x):
    from modelopt.torch.quantization.qtensor import MXFP4QTensor

    q, scale = MXFP4QTensor.quantize(x.clone(), 32)
    return {"narrow": nibbles(q._quantized_data), "scale_inv_e8m0": scale.reshape(x.shape[0], -1)}


def mx_systems(make):
    found = []
    for dtype in (FP32, BF16):
        ending = "" if dtype == FP32 else "-bf16"

        def add(preset, role, quantize, package, **more):
            found.append(make(preset, role, dtype, quantize, package, k_multiple=32, **more))

        for number, weight, given in (("8", "MXFP8", "MXFP8"), ("4", "MXFP4", "MXFP4"), ("6", "MXFP6A8", "MXFP6A8")):
            name = f"compressed-tensors-mxfp{number}{ending}"
            add(name, "weight", compressed_weight(weight), "compressed_tensors", with_nan=False)
            add(name, "activation", compressed_input(given), "compressed_tensors", with_nan=False)
        add("modelopt-mxfp8", "weight", modelopt_mxfp8, "modelopt")
        add("modelopt-mxfp4", "weight", modelopt_mxfp4, "modelopt", finite=True)
    return found
