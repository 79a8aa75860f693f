"""What ModelOpt makes of a tensor in FP8: as its exporter writes weights, as FP8QTensor holds them, as inputs are cast."""

import contextlib
import io

import torch

BF16, FP32 = torch.bfloat16, torch.float32
FP8, PER_CHANNEL = "FP8_DEFAULT_CFG", "FP8_PER_CHANNEL_PER_TOKEN_CFG"


def codes(x):
    return x.contiguous().view(torch.uint8)


def exported(configuration):
    """One linear layer: calibrated, and its weight exported, both by the package. It cannot export one row by channels:
    two of them are given then."""

    def quantize(x):
        if configuration == PER_CHANNEL and len(x) == 1:
            return {part: value[:1] for part, value in quantize(x.repeat(2, 1)).items()}
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export.unified_export_hf import _export_quantized_weight

        model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], x.shape[0], bias=False, dtype=x.dtype))
        model[0].weight.data = x.clone()
        given = torch.ones(1, x.shape[1], dtype=x.dtype)
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):  # it counts its quantizers
            layer = mtq.quantize(model, getattr(mtq, configuration), lambda m: m(given))[0]
            _export_quantized_weight(layer, x.dtype)
        return {"x": codes(layer.weight.data), "scale_inv": layer.weight_scale.reshape(-1, 1)}

    return quantize


def qtensor(x):
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor

    q, scale = FP8QTensor.quantize(x)
    return {"x": codes(q._quantized_data), "scale_inv": scale.float().reshape(1, 1)}


def calibrated_input(x, batches):
    """Fake quantization: its values stand for code times 1 / scale."""
    from modelopt.torch.quantization.tensor_quant import fp8_eager
    from modelopt.torch.quantization.utils import reduce_amax

    amax = torch.stack([reduce_amax(batch).float() for batch in batches]).max()
    return {"value": fp8_eager(x.float(), amax)}


def input_by_token(x):
    from modelopt.torch.quantization.tensor_quant import fp8_eager
    from modelopt.torch.quantization.utils import reduce_amax

    return {"value": fp8_eager(x.float(), reduce_amax(x, axis=1))}


def modelopt_systems(make):
    found = []
    for dtype in (FP32, BF16):
        ending = "" if dtype == FP32 else "-bf16"

        def add(preset, role, quantize, **more):
            found.append(make(preset, role, dtype, quantize, "modelopt", **more))

        add("modelopt" + ending, "weight", exported(FP8), finite=True)  # its calibration refuses Inf and NaN
        add("modelopt" + ending, "activation", calibrated_input, calibrated=True, batches=2)
        add("modelopt" if dtype == FP32 else "modelopt-qtensor-bf16", "weight", qtensor)
        add("modelopt-per-channel", "weight", exported(PER_CHANNEL), finite=True)
        add("modelopt-per-channel", "activation", input_by_token)
    return found
