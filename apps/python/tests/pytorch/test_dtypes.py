"""Every public function with every dtype of torch in every place that takes an array."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from dtype_table import CODES, EVERY, outcome, table  # noqa: E402

TABLE = table()
DTYPES = {str(item).removeprefix("torch."): item for item in vars(torch).values() if isinstance(item, torch.dtype)}
EXTRA = {"float8_e8m0fnu": "e8m0fnu"}


def tensor_of(values, dtype):
    """`values` as a tensor; None where torch cannot convert them."""
    x = torch.from_numpy(np.ascontiguousarray(values))
    if dtype == torch.float4_e2m1fn_x2:
        import ml_dtypes

        codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        if codes.shape[-1] % 2:
            return None
        return torch.from_numpy(codes[..., ::2] | codes[..., 1::2] << 4).view(dtype)
    if dtype.itemsize == 1 and "8" not in str(dtype) and dtype != torch.bool:
        return None  # shells of fewer bits, which torch exports as bytes
    try:
        return x.to(dtype)
    except (RuntimeError, NotImplementedError, TypeError):
        return None  # quantized and shell types, which hold no numbers


@pytest.mark.parametrize("name", TABLE)
def test_each_dtype_works_or_is_refused_by_name(name):
    place = TABLE[name]
    seen = set()
    for label, dtype in DTYPES.items():
        if place.kind == "kernel" and label not in EVERY:
            continue
        x = tensor_of(place.values, dtype)
        if x is None:
            continue
        seen.add(label)
        known = "float4_e2m1fn" if label == "float4_e2m1fn_x2" else label
        got = outcome(place, x, {})
        if known in place.works:
            same = outcome(place, numpy_of(place.values, known), {})
            assert same is not None and got == same, f"{name} of {label}"
        elif place.kind == "attention" and known in {**CODES, **EXTRA}:
            assert got is not None and got == outcome(place, numpy_of(place.values, known), {}), f"{name} of {label}"
        elif place.kind == "typed" and label == "uint8":  # codes of the format that is named, if one is
            assert got == outcome(place, x.numpy(), {})
        else:
            assert got is None, f"{name} of {label} is neither refused nor in the table"
    assert place.kind == "kernel" or {"float32", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int32"} <= seen


def numpy_of(values, name):
    import ml_dtypes

    return values.astype(getattr(ml_dtypes, name, None) or np.dtype(name))


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].kind != "kernel"])
def test_a_tensor_that_needs_a_gradient_is_read_or_refused_by_name(name):
    """Releases of torch differ: some export it, some do not."""
    place = TABLE[name]
    x = torch.from_numpy(np.ascontiguousarray(place.values))
    got = outcome(place, x.requires_grad_(), {})
    assert got is None or got == outcome(place, x.detach(), {})
    assert outcome(place, torch.empty(x.shape, device="meta"), {}) is None


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].kind == "scales"])
def test_scales_of_torch_are_those_of_numpy(name):
    """torch's float8_e8m0fnu and float8_e4m3fn raised TypeError in all but grouped calls."""
    place = TABLE[name]
    for dtype in (torch.float8_e8m0fnu, torch.float8_e4m3fn):
        got = outcome(place, torch.from_numpy(place.values).to(dtype), {})
        assert got is not None and got == outcome(place, place.values, {})


def test_packed_words_of_exponents_as_int32_tensors():
    import fp8lab

    a = fp8lab.encode(np.random.default_rng(1).standard_normal((130, 640)).astype(np.float32))
    exponents = np.random.default_rng(2).integers(120, 134, (130, 8)).astype(np.uint8)
    words = exponents.view(np.int32)
    how = {"model": "sm90.wgmma.e4m3", "promotion_interval": 128}
    for layout, x in (("packed_ue8m0", words), ("packed_ue8m0_column_major", np.ascontiguousarray(words.T))):
        expected = fp8lab.gemm(a, a[:3], scale_a=fp8lab.Scales(x, 1, 128, layout=layout), **how)
        for tensor in (torch.from_numpy(x), torch.from_numpy(x.view(np.uint32))):
            scales = fp8lab.Scales(tensor, 1, 128, layout=layout)
            assert np.array_equal(fp8lab.gemm(a, a[:3], scale_a=scales, **how), expected)
            assert fp8lab.verify(torch.from_numpy(expected), (a, a[:3]), scale_a=scales, **how).bit_mismatches == 0
            groups = fp8lab.Groups("batched")
            stacked = fp8lab.Scales(tensor[None], 1, 128, layout=layout)
            d = fp8lab.gemm_groups(a[None], a[None, :3], groups, scale_a=stacked, **how)
            assert np.array_equal(d[0], expected)
