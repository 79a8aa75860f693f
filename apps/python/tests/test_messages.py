"""Errors of the library reach Python with its keywords, not with options of the tool or marks of arguments."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import fp8lab
import fp8lab.testing
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


@pytest.mark.parametrize(
    ("call", "argument", "bits"),
    [
        (lambda x, big: fp8lab.encode([1.0], threads=big), "threads", 32),
        (lambda x, big: fp8lab.decode(x, threads=big), "threads", 32),
        (lambda x, big: fp8lab.gemm(x, x, model="exact", threads=big), "threads", 32),
        (lambda x, big: fp8lab.verify(np.zeros((2, 2), np.float32), (x, x), model="exact", threads=big), "threads", 32),
        (lambda x, big: fp8lab.identify(np.zeros((2, 2), np.float32), (x, x), threads=big), "threads", 32),
        (lambda x, big: fp8lab.quantize(np.ones((2, 4)), threads=big), "threads", 32),
        (lambda x, big: fp8lab.gemm(x, x, model="exact", split_k=fp8lab.SplitK(big)), "parts", 32),
        (lambda x, big: fp8lab.vectors("exact", 1, terms=big), "terms", 32),
        (lambda x, big: fp8lab.separate("exact", "fp32", terms=big), "terms", 32),
        (lambda x, big: fp8lab.testing.tolerance((8, 8, 8), trials=big), "trials", 32),
        (lambda x, big: fp8lab.testing.tolerance((big, 8, 8)), "m", 64),
        (lambda x, big: fp8lab.vectors("exact", big), "count", 64),
        (lambda x, big: fp8lab.gemm(x, x, model="exact", promotion_interval=big), "promotion_interval", 64),
        (lambda x, big: fp8lab.gemm(x, x, model="exact", scale_a=fp8lab.Scales([[1.0]], big)), "scale_a.row_block", 64),
        (lambda x, big: fp8lab.attention(*[np.ones((1, 2, 2))] * 3, kv_tile=big), "kv_tile", 64),
        (lambda x, big: fp8lab.reveal(lambda a, b: a, m=big), "m", 64),
        (lambda x, big: fp8lab.AutoScaler(clean_steps=big), "clean_steps", 64),
    ],
)
def test_numbers_that_the_library_cannot_hold_are_refused_by_name(call, argument, bits):
    x = fp8lab.encode(np.ones((2, 4), np.float32))
    for big in (1 << bits - 1, 1 << 64, -(1 << 70)):
        with pytest.raises(ValueError, match=f"^{argument}: expected a whole number of {bits} bits, got {big}$"):
            call(x, big)
    with pytest.raises(ValueError, match=f"^{argument}: expected a whole number, got 'x'$"):
        call(x, "x")


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_integers_beyond_binary64_are_refused_by_name(number):
    ones = fp8lab.encode(np.ones((2, 4), np.float32))
    for argument, call in (
        ("scale", lambda: fp8lab.encode([1.0], scale=number)),
        ("inverse_scale", lambda: fp8lab.decode(ones, inverse_scale=number)),
        ("alpha", lambda: fp8lab.gemm(ones, ones, model="exact", epilogue=fp8lab.Epilogue(alpha=number))),
        ("mu", lambda: fp8lab.AutoScaler(mu=number)),
        ("risk", lambda: fp8lab.testing.tolerance((8, 8, 8), risk=number)),
    ):
        with pytest.raises(ValueError, match=f"^{argument}: expected a number that binary64 has, got an integer beyond it$"):
            call()


@pytest.mark.parametrize("wrong", ["1", b"1", None, [1.0, 2.0], np.ones(2), {}, 1j])
def test_what_is_no_number_is_refused_by_name(wrong):
    ones = fp8lab.encode(np.ones((2, 4), np.float32))
    for argument, call in (
        ("scale", lambda: fp8lab.encode([1.0], scale=wrong)),
        ("inverse_scale", lambda: fp8lab.decode(ones, inverse_scale=wrong)),
        ("slope", lambda: fp8lab.gemm(ones, ones, model="exact", epilogue=fp8lab.Epilogue(slope=wrong))),
        ("saturated_share", lambda: fp8lab.AutoScaler().update(wrong)),
    ):
        with pytest.raises(ValueError, match=f"^{argument}: expected a number, got "):
            call()


@pytest.mark.parametrize("wrong", [3, b"exact", ["exact"], np.array(["a"])])
def test_what_is_no_name_is_refused_by_name(wrong):
    ones = fp8lab.encode(np.ones((2, 4), np.float32))
    batch, groups = np.stack([ones, ones]), fp8lab.Groups("batched")
    of_gemm = {"model": "exact"}
    for argument, call in (
        ("format", lambda: fp8lab.encode([1.0], wrong)),
        ("profile", lambda: fp8lab.encode([1.0], profile=wrong)),
        ("rounding", lambda: fp8lab.encode([1.0], rounding=wrong)),
        ("format", lambda: fp8lab.decode(ones.view(np.uint8), wrong)),
        ("a_format", lambda: fp8lab.gemm(ones.view(np.uint8), ones, a_format=wrong, **of_gemm)),
        ("call", lambda: fp8lab.gemm(ones, ones, call=wrong)),
        ("scale_order", lambda: fp8lab.gemm(ones, ones, scale_order=wrong, **of_gemm)),
        ("scale_a.layout", lambda: fp8lab.gemm(ones, ones, scale_a=fp8lab.Scales([[1.0]], layout=wrong), **of_gemm)),
        ("got_format", lambda: fp8lab.verify(np.zeros((2, 2), np.uint8), (ones, ones), got_format=wrong, **of_gemm)),
        ("check", lambda: fp8lab.verify(np.zeros((2, 2), np.float32), (ones, ones), check=wrong, **of_gemm)),
        ("kind", lambda: fp8lab.gemm_groups(batch, batch, fp8lab.Groups(wrong), **of_gemm)),
        ("ungrouped", lambda: fp8lab.verify_groups(np.zeros((2, 2, 2), np.float32), (batch, batch), groups, ungrouped=wrong, **of_gemm)),
        ("tile_order", lambda: fp8lab.attention(*[np.ones((1, 2, 2))] * 3, tile_order=wrong)),
        ("base", lambda: fp8lab.accumulator_model(wrong)),
        ("growth", lambda: fp8lab.AutoScaler(growth=wrong)),
        ("kind", lambda: fp8lab.vectors("exact", 1, kind=wrong)),
        ("model", lambda: fp8lab.vectors(wrong, 1)),
    ):
        with pytest.raises(ValueError, match=f"^{argument}: expected a name.*, got "):
            call()


@pytest.mark.parametrize("wrong", ["no such", "float9", "int8", float, np.float64, 3, [1]])
def test_a_dtype_of_codes_is_their_own_or_their_words(wrong):
    for call, expected in (
        (lambda: fp8lab.encode([1.0], dtype=wrong), "float8_e4m3fn or uint8"),
        (lambda: fp8lab.encode_with_statistics([1.0], "bf16", dtype=wrong), "bfloat16 or uint16"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        try:
            got = str(np.dtype(wrong))
        except TypeError:
            got = repr(wrong)
        assert str(caught.value) == f"dtype: expected {expected}, got {got}"


def test_every_function_of_operands_tells_what_is_not_finite():
    """NaN and infinities are told where they come in, and of right operands nothing is told."""
    ones = fp8lab.encode(np.ones((2, 64), np.float32))
    d = fp8lab.gemm(ones, ones, model="sm90.wgmma.e4m3")
    groups = fp8lab.Groups("batched")
    how = {"model": "sm90.wgmma.e4m3"}
    calls = {
        "gemm": lambda x: fp8lab.gemm(x, ones, **how),
        "verify": lambda x: fp8lab.verify(d, (x, ones), **how),
        "assert_matches": lambda x: fp8lab.testing.assert_matches(d, (x, ones), **how),
        "identify": lambda x: fp8lab.identify(d, (x, ones)),
        "gemm_groups": lambda x: fp8lab.gemm_groups(x[None], ones[None], groups, **how),
        "verify_groups": lambda x: fp8lab.verify_groups(d[None], (x[None], ones[None]), groups, **how),
        "identify_groups": lambda x: fp8lab.identify_groups(d[None], (x[None], ones[None]), groups),
        "quantize": lambda x: fp8lab.quantize(x.astype(np.float32)),
        "Quantizer": lambda x: fp8lab.Quantizer("te-current").quantize(x.astype(np.float32)),
    }
    wrong = ones.copy()
    wrong.view(np.uint8)[1, 3] = 0x7F
    silent = []
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for x in (ones, wrong):
                try:
                    call(x)
                except AssertionError:
                    pass
                told = [str(one.message) for one in seen if issubclass(one.category, fp8lab.NonFiniteWarning)]
                assert x is wrong or not told, f"{name}: {told}"
        if not any("1 NaN" in one for one in told):
            silent.append(name)
    assert silent == []
