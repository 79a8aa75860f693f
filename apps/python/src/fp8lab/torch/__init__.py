"""PyTorch models as FP8 hardware would run them, bit for bit, on a CPU.

>>> import torch, fp8lab.torch
>>> model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128))
>>> model = fp8lab.torch.convert(model, "deepgemm", hardware="sm90")
>>> model(torch.randn(4, 128)).sum().backward()

`fp8lab` itself neither needs nor imports torch; this package does. Tensors are on the CPU; in a
build with CUDA, products and most casts take CUDA tensors too (docs/torch.md says which).
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fp8lab.torch: expected PyTorch 2.4 or later (pip install torch), got none"
    ) from error

from fp8lab.torch._attention import sdpa
from fp8lab.torch._autocast import autocast
from fp8lab.torch._choosing import Evaluation, LayerCost, Sensitivity, evaluate, sensitivity
from fp8lab.torch._convert import calibrate, convert, decisions, layers, restore
from fp8lab.torch._coverage import Decisions, HighPrecisionWarning
from fp8lab.torch._distributed import reduced_amaxes
from fp8lab.torch._emulate import emulate_scaled_mm
from fp8lab.torch._flops import Flops, flops
from fp8lab.torch._grouped import grouped_mm
from fp8lab.torch._histories import histories, load_histories
from fp8lab.torch._kill_switch import KillEvent, KillSwitch, RunStopped, StepFigures
from fp8lab.torch._layers import Fp8Conv1D, Fp8Linear
from fp8lab.torch._platforms import PLATFORMS, Platform
from fp8lab.torch._reporting import log, watch, write_comparison, write_statistics
from fp8lab.torch._scaled_mm import quantize, scaled_mm
from fp8lab.torch._seeing import (
    LayerDifference,
    LayerStatistics,
    ModelComparison,
    OperandStatistics,
    Recording,
    compare,
    record,
)

__all__ = [
    "Decisions",
    "Fp8Conv1D",
    "Fp8Linear",
    "Evaluation",
    "Flops",
    "HighPrecisionWarning",
    "KillEvent",
    "KillSwitch",
    "LayerCost",
    "LayerDifference",
    "LayerStatistics",
    "ModelComparison",
    "OperandStatistics",
    "PLATFORMS",
    "Platform",
    "Recording",
    "RunStopped",
    "Sensitivity",
    "StepFigures",
    "autocast",
    "calibrate",
    "compare",
    "convert",
    "decisions",
    "emulate_scaled_mm",
    "evaluate",
    "flops",
    "grouped_mm",
    "histories",
    "layers",
    "load_histories",
    "log",
    "quantize",
    "record",
    "reduced_amaxes",
    "restore",
    "scaled_mm",
    "sdpa",
    "sensitivity",
    "watch",
    "write_comparison",
    "write_statistics",
]
