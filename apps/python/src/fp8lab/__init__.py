"""Computes on a CPU, bit for bit, what FP8 hardware computes.

>>> import fp8lab, numpy as np
>>> rng = np.random.default_rng(0)
>>> a = fp8lab.quantize(rng.standard_normal((4, 256), np.float32), "deepgemm")
>>> b = fp8lab.quantize(rng.standard_normal((8, 256), np.float32), "deepgemm", "weight")
>>> fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=128).shape
(4, 8)

NumPy and ml_dtypes arrays, and CPU tensors that export DLPack, are read in place. Bad
arguments raise `ValueError` with the library's message; numerical edge cases never do.
"""

from fp8lab import _core, results, testing
from fp8lab._attention import (
    Attention,
    AttentionCall,
    AttentionCause,
    AttentionTile,
    AttentionVerdict,
    KvCache,
    attention,
    attention_calls,
    kv_caches,
    pack_kv_rows,
    read_kv_rows,
    verify_attention,
)
from fp8lab._auto_scaling import AutoScaler
from fp8lab._casts import EncodeStatistics, decode, encode, encode_with_statistics
from fp8lab._checks import Comparison, compare
from fp8lab._grouped import (
    GroupedIdentification,
    GroupedReport,
    GroupReport,
    Groups,
    gemm_groups,
    identify_groups,
    verify_groups,
)
from fp8lab._identify import (
    CastElements,
    CastIdentification,
    CastRecipe,
    Explanation,
    ExplanationClass,
    Identification,
    SeparatingElement,
    identify,
    identify_cast,
)
from fp8lab._kernels import (
    CallModel,
    Epilogue,
    LibraryCall,
    ObservedCall,
    SplitK,
    calls,
    observed_calls,
)
from fp8lab._linear import LinearRecipe, ProductSettings, linear_recipe, linear_recipes
from fp8lab._products import backends, gemm
from fp8lab._recipes import (
    Preset,
    QuantizationStatistics,
    QuantizedTensor,
    Quantizer,
    Recipe,
    Scales,
    presets,
    quantize,
)
from fp8lab._registry import (
    AccumulatorModel,
    CastProfile,
    Format,
    InstructionModel,
    accumulator_model,
    formats,
    load_models,
    models,
    profiles,
)
from fp8lab._reveal import Revealed, reveal
from fp8lab._sage import (
    SageAttention,
    SageKernel,
    sage_attention,
    sage_calls,
    verify_sage_attention,
)
from fp8lab._vectors import (
    ReplayReport,
    Separation,
    Vectors,
    load_vectors,
    replay,
    separate,
    vectors,
)
from fp8lab._verify import Cause, VerifyReport, verify
from fp8lab._warnings import NonFiniteWarning

__version__: str = _core.version()

__all__ = [
    "AccumulatorModel",
    "Attention",
    "AttentionCall",
    "AttentionCause",
    "AttentionTile",
    "AttentionVerdict",
    "AutoScaler",
    "CallModel",
    "CastElements",
    "CastIdentification",
    "CastProfile",
    "CastRecipe",
    "Cause",
    "Comparison",
    "EncodeStatistics",
    "Epilogue",
    "Explanation",
    "ExplanationClass",
    "Format",
    "GroupReport",
    "GroupedIdentification",
    "GroupedReport",
    "Groups",
    "Identification",
    "KvCache",
    "InstructionModel",
    "LibraryCall",
    "LinearRecipe",
    "NonFiniteWarning",
    "ObservedCall",
    "Preset",
    "ProductSettings",
    "QuantizationStatistics",
    "QuantizedTensor",
    "Quantizer",
    "Recipe",
    "ReplayReport",
    "Revealed",
    "SageAttention",
    "SageKernel",
    "Scales",
    "SeparatingElement",
    "Separation",
    "SplitK",
    "Vectors",
    "VerifyReport",
    "accumulator_model",
    "attention",
    "attention_calls",
    "backends",
    "calls",
    "compare",
    "decode",
    "encode",
    "encode_with_statistics",
    "formats",
    "gemm",
    "gemm_groups",
    "identify",
    "identify_cast",
    "identify_groups",
    "kv_caches",
    "linear_recipe",
    "linear_recipes",
    "load_models",
    "load_vectors",
    "models",
    "observed_calls",
    "pack_kv_rows",
    "presets",
    "profiles",
    "quantize",
    "read_kv_rows",
    "replay",
    "results",
    "reveal",
    "sage_attention",
    "sage_calls",
    "separate",
    "testing",
    "vectors",
    "verify",
    "verify_groups",
    "verify_attention",
    "verify_sage_attention",
]
