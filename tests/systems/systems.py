"""What the packages themselves make of a tensor, and by which recipe they are to be met.

Each system gives codes as uint8 [rows, k] and the scale that it keeps, [tile rows, tile columns]:
"scale" multiplies into FP8, "scale_inv" multiplies back, "scale_inv_e8m0" is an E8M0 code. FP4 and FP6 are in
systems_fp4.py, ModelOpt's FP8 in systems_modelopt.py, MX of packages that write models in systems_mx.py, references in
Python in systems_references.py. Flax and qwix have an environment and a script of their own, jax_systems.py.
"""

from dataclasses import dataclass
from typing import Callable

import torch

from systems_fp4 import fp4_systems
from systems_modelopt import modelopt_systems
from systems_mx import mx_systems
from systems_references import reference_systems

BF16, FP32 = torch.bfloat16, torch.float32


@dataclass
class System:
    preset: str
    role: str
    dtype: torch.dtype
    quantize: Callable
    package: str
    product: str = ""
    rows_multiple: int = 1
    k_multiple: int = 1
    calibrated: bool = False
    batches: int = 1  # of calibration
    finite: bool = False  # the package refuses, or leaves open, what is not
    with_nan: bool = True  # False: what it makes of a NaN is arbitrary


def codes(x):
    return x.contiguous().view(torch.uint8)


def torchao_training(role, product, recipe):
    """Float8Linear's own cast, with the config of a recipe name; gradients as it names them."""
    from torchao.float8.config import Float8LinearConfig
    from torchao.float8.float8_scaling_utils import get_maybe_axiswise_dim, hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig

    config = Float8LinearConfig.from_recipe_name(recipe)
    cast = {("activation", ""): config.cast_config_input, ("weight", ""): config.cast_config_weight,
            ("weight", "dgrad"): config.cast_config_weight_for_grad_input,
            ("gradient", ""): config.cast_config_grad_output}[role, product]

    def quantize(x):
        q = hp_tensor_to_float8_dynamic(
            x, cast.target_dtype, LinearMMConfig(), gemm_input_role=GemmInputRole.INPUT,
            scaling_granularity=cast.scaling_granularity,
            axiswise_dim=get_maybe_axiswise_dim(-1, cast.scaling_granularity),
            round_scales_to_power_of_2=config.round_scales_to_power_of_2)
        return {"x": codes(q._data), "scale": q._scale.reshape(-1, 1)}

    return quantize


def torchao_mx(mode):
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    def quantize(x):
        scale, q = to_mx(x, torch.float8_e4m3fn, 32, ScaleCalculationMode[mode])
        return {"x": codes(q), "scale_inv_e8m0": scale.view(torch.uint8)}

    return quantize


def torchao_blockwise(role):
    from torchao.prototype.blockwise_fp8_training import kernels

    cast = kernels.torch_blockwise_scale_weight_quant if role == "weight" else kernels.torch_blockwise_scale_act_quant_lhs

    def quantize(x):
        q, inverse = cast(x)
        return {"x": codes(q), "scale_inv": inverse.contiguous()}

    return quantize


def torchao_inference(x):
    from torchao.quantization.granularity import PerRow
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

    q = Float8Tensor.from_hp(x, granularity=PerRow())
    return {"x": codes(q.qdata), "scale_inv": q.scale.float()}


def compressed_tensors_token(x):
    """A dynamic activation; [1, tokens, hidden], as a model's forward pass has it."""
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.quant_scheme import FP8_DYNAMIC
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    args = FP8_DYNAMIC["input_activations"]
    scale, zero_point = compute_dynamic_scales_and_zp(x[None], args, torch.nn.Identity())
    q = quantize(x[None], scale, zero_point, args, dtype=args.pytorch_dtype())
    return {"x": codes(q[0]), "scale_inv": scale[0].float()}


def compressed(weight, scale, zero_point):
    from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.quant_scheme import FP8_DYNAMIC

    scheme = QuantizationScheme(targets=["Linear"], **FP8_DYNAMIC)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero_point}
    state = NaiveQuantizationCompressor.compress(state, scheme)
    return {"x": codes(state["weight"]), "scale_inv": state["weight_scale"].float()}


def compressed_tensors_channel(x):
    from compressed_tensors.quantization.quant_scheme import FP8_DYNAMIC
    from compressed_tensors.quantization.utils import calculate_qparams

    scale, zero_point = calculate_qparams(
        torch.amin(x, 1, keepdim=True), torch.amax(x, 1, keepdim=True), FP8_DYNAMIC["weights"])
    return compressed(x, scale, zero_point)


def llm_compressor_channel(x):
    from compressed_tensors.quantization.quant_scheme import FP8_DYNAMIC
    from llmcompressor.observers import Observer

    args = FP8_DYNAMIC["weights"].model_copy()
    observer = Observer.load_from_registry("memoryless_minmax", base_name="weight", args=args)
    found = observer(x).get_qparams()
    return compressed(x, found["scale"], found["zero_point"])


def quanto_weight(x):
    from optimum.quanto import AbsmaxOptimizer, qfloat8_e4m3fn
    from optimum.quanto.tensor import quantize_weight

    scale = AbsmaxOptimizer()(x, qfloat8_e4m3fn, 0)
    q = quantize_weight(x, qfloat8_e4m3fn, 0, scale, optimized=False)
    return {"x": codes(q._data), "scale_inv": scale.float().reshape(-1, 1)}


def quanto_activation(x, batches):
    from optimum.quanto import qfloat8_e4m3fn
    from optimum.quanto.calibrate import _updated_scale, absmax_scale
    from optimum.quanto.tensor import quantize_activation

    scale = torch.ones((), dtype=x.dtype)
    for batch in batches:
        scale = _updated_scale(scale, absmax_scale(batch, qfloat8_e4m3fn), 0.9)
    q = quantize_activation(x, qfloat8_e4m3fn, scale)
    return {"x": codes(q._data), "scale_inv": scale.float().reshape(1, 1)}


def all_systems():
    result = []
    for dtype in (FP32, BF16):
        ending = "" if dtype == FP32 else "-bf16"

        def add(preset, role, quantize, package, **more):
            result.append(System(preset, role, dtype, quantize, package, **more))

        for name in ("tensorwise", "rowwise"):
            for role in ("activation", "weight", "gradient"):
                add(f"torchao-{name}", role, torchao_training(role, "", name), "torchao")
        hp = "rowwise_with_gw_hp"
        for role, product in (("activation", ""), ("weight", ""), ("weight", "dgrad"), ("gradient", "")):
            add("torchao-rowwise-hp-wgrad", role, torchao_training(role, product, hp), "torchao", product=product)
        for mode in ("FLOOR", "CEIL", "EVEN", "RCEIL"):
            add(f"torchao-mxfp8-{mode.lower()}", "activation", torchao_mx(mode), "torchao", k_multiple=32)
        for role, rows in (("activation", 1), ("weight", 128)):
            add("torchao-blockwise", role, torchao_blockwise(role), "torchao", rows_multiple=rows, k_multiple=128)
        for role in ("activation", "weight"):
            add("torchao-inference" + ending, role, torchao_inference, "torchao")
        add("compressed-tensors" + ending, "activation", compressed_tensors_token, "compressed_tensors")
        add("compressed-tensors" + ending, "weight", compressed_tensors_channel, "compressed_tensors")
        add("llm-compressor" + ending, "activation", compressed_tensors_token, "compressed_tensors")
        add("llm-compressor" + ending, "weight", llm_compressor_channel, "llmcompressor")
        add("quanto" + ending, "weight", quanto_weight, "optimum.quanto")
        for batches in (1, 3):
            add("quanto" + ending, "activation", quanto_activation, "optimum.quanto", calibrated=True, batches=batches)
    return result + [one for more in (modelopt_systems, fp4_systems, mx_systems, reference_systems) for one in more(System)]
