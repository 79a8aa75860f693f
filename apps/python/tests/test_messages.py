"""Errors of the library reach Python with its keywords, not with options of the tool or marks of arguments."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab import _core

FNUZ = np.zeros((2, 2), ml_dtypes.float8_e4m3fnuz)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("codes need their format (`dtype=e4m3fn`, or a sidecar)", 'codes need their format (a_format="e4m3fn", or a sidecar)'),
        ("give their format with `out_dtype`", "give their format with got_format"),
        ("(FNUZ is AMD's: `model=exact` or fp32)", "(FNUZ is AMD's: model=\"exact\" or fp32)"),
        ("`scale_format`: expected a", "scale_format: expected a"),
        ("`no_such_argument`, 3", "no_such_argument, 3"),
        ("`fp8lab list models`, `0-31`, `a=`, `, a--b", "`fp8lab list models`, `0-31`, `a=`, `, a--b"),
        ("", ""),
    ],
)
def test_arguments_become_keywords(said, read):
    assert _core.in_python(said) == read


@pytest.mark.parametrize(
    "call",
    [
        lambda ones: fp8lab.verify(FNUZ, (ones, ones), model="sm90.wgmma.e4m3"),
        lambda ones: fp8lab.verify(np.zeros((2, 2), np.uint8), (ones, ones), model="sm90.wgmma.e4m3"),
        lambda ones: fp8lab.verify(np.zeros((3, 2), np.float32), (ones, ones), model="sm90.wgmma.e4m3"),
        lambda ones: fp8lab.gemm(np.zeros((2, 4), np.uint8), ones, model="exact"),
        lambda ones: fp8lab.gemm(ones, ones, model="sm90.wgmma.e5m2"),
        lambda ones: fp8lab.gemm(ones, ones, model="exact", c=np.zeros((2, 2), np.float32), promotion_interval=2),
        lambda ones: fp8lab.gemm(ones, ones, model="exact", scale_order="none"),
        lambda ones: fp8lab.identify(np.zeros((2, 2), np.uint8), (ones, ones)),
        lambda ones: fp8lab.vectors("sm90.wgmma.e4m3", 0),
        lambda ones: fp8lab.vectors("sm90.wgmma.e4m3", 1, kind="none"),
        lambda ones: fp8lab.quantize(np.ones((2, 4), np.float32), "none"),
        lambda ones: fp8lab.attention(ones[None], ones[None], ones[None], qk_model="none"),
    ],
)
def test_no_option_of_the_tool_is_told(call):
    ones = fp8lab.encode(np.ones((2, 4), np.float32))
    with pytest.raises(ValueError) as caught:
        call(ones)
    assert "--" not in str(caught.value) and "`" not in str(caught.value), caught.value
