"""Outputs that are right, wrong in known ways, or checked by a test that cannot fail."""

import ml_dtypes
import numpy as np
import pytest

import fp8lab
from fp8lab.testing import assert_matches

HOPPER = "sm90.wgmma.e4m3"
f32 = np.float32


def operands(m=16, n=24, k=512, seed=1):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k), f32), rng.standard_normal((n, k), f32)
    return fp8lab.encode(a), fp8lab.encode(b)


def test_a_right_output_passes():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    report = fp8lab.verify(d, (a, b), model=HOPPER)
    assert (report.verdict, report.bit_mismatches, report.undetected) == ("pass", 0, ())
    assert report.comparison.count == 16 * 24 and all(report.gates.values())
    assert_matches(d, (a, b), model=fp8lab.models()[HOPPER])


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_outputs_of_every_type(dtype):
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    got = np.clip(d, -448, 448).astype(dtype)
    power = got.itemsize > 1  # FP8 outputs may hide which accumulator made them
    assert_matches(got, (a, b), model=HOPPER, require_power=power)
    assert_matches(np.asfortranarray(got), (a, b), model=HOPPER, require_power=power)
    wrong = got.copy()
    wrong[3, 5] = -wrong[3, 5]
    with pytest.raises(AssertionError, match="row 3 column 5"):
        assert_matches(wrong, (a, b), model=HOPPER)


def test_codes_need_their_format():
    a, b = operands()
    got = fp8lab.gemm(a, b, model=HOPPER).astype(ml_dtypes.float8_e5m2).view(np.uint8)
    assert_matches(got, (a, b), model=HOPPER, got_format="e5m2", require_power=False)
    with pytest.raises(ValueError, match="got_format: expected the format of got"):
        assert_matches(got, (a, b), model=HOPPER)


def test_a_missing_promotion_is_a_mismatch():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    with pytest.raises(AssertionError, match="mismatch: .* outputs differ in bits"):
        assert_matches(d, (a, b), model=HOPPER, promotion_interval=128)
    promoted = fp8lab.gemm(a, b, model=HOPPER, promotion_interval=128)
    assert_matches(promoted, (a, b), model=HOPPER, promotion_interval=128)


def test_a_missing_scale_is_named():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER, scale_b=0.375)
    report = fp8lab.verify(d, (a, b), model=HOPPER, scale_a=0.75, scale_b=0.375)
    assert report.verdict == "mismatch"
    assert report.causes[0].name == "missing_scale_a"
    assert report.causes[0].explained > 0 and report.causes[0].contradicted == 0
    assert "missing_scale_a" in str(report)


def test_the_failure_message_is_the_report():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    d[2, 7] = np.nextafter(d[2, 7], f32(0))
    report = fp8lab.verify(d, (a, b), model=HOPPER)
    assert report.bit_mismatches == 1
    with pytest.raises(AssertionError) as failure:
        assert_matches(d, (a, b), model=HOPPER)
    assert str(failure.value) == report.text
    assert "first mismatch: row 2 column 7" in report.text
    assert len(report.text.splitlines()) <= 25 and max(map(len, report.text.splitlines())) <= 80
    assert "K-block [" in report.details and "K-block [" not in report.text


def test_a_test_that_cannot_fail_fails():
    zeros = np.zeros((16, 512), ml_dtypes.float8_e4m3fn)
    d = fp8lab.gemm(zeros, zeros, model=HOPPER)
    report = fp8lab.verify(d, (zeros, zeros), model=HOPPER)
    assert report.verdict == "no power" and report.undetected
    with pytest.raises(AssertionError, match="no power"):
        assert_matches(d, (zeros, zeros), model=HOPPER)
    assert_matches(d, (zeros, zeros), model=HOPPER, require_power=False)


def test_gates_and_budget():
    a, b = operands()
    exact = fp8lab.gemm(a, b, model="exact")
    assert_matches(exact, (a, b), model=HOPPER, check="budget")
    assert_matches(fp8lab.gemm(a, b, model=HOPPER), (a, b), model=HOPPER, check="budget")
    report = fp8lab.verify(exact, (a, b), model=HOPPER, check="budget")
    assert report.verdict == "pass" and report.undetected == ("accumulator",)
    with pytest.raises(AssertionError, match="cause: dropped_last_k_tile"):
        dropped = fp8lab.gemm(a[:, :384], b[:, :384], model="exact")
        assert_matches(dropped, (a, b), model=HOPPER, check="budget")
    report = fp8lab.verify(exact, (a, b), model=HOPPER, check="deepgemm", fault_matrix=True)
    assert report.verdict != "mismatch" and report.bit_mismatches > 0
    assert "MISSED" in report.faults and "detected" in report.faults
    with pytest.raises(ValueError, match="check"):
        fp8lab.verify(exact, (a, b), model=HOPPER, check="looks fine")


def test_quantized_tensors_and_start():
    rng = np.random.default_rng(3)
    a = fp8lab.quantize(rng.standard_normal((8, 256), f32), "deepgemm")
    b = fp8lab.quantize(rng.standard_normal((8, 256), f32), "deepgemm", "weight")
    c = rng.standard_normal((8, 8), f32)
    how = {"model": HOPPER, "promotion_interval": 128, "c": c}
    d = fp8lab.gemm(a, b, **how, c_enters="promoted_sum")
    assert_matches(d, (a, b), **how, c_enters="promoted_sum")
    with pytest.raises(AssertionError, match="c_in_promoted_sum"):
        assert_matches(d, (a, b), **how, c_enters="epilogue")
    found = fp8lab.identify(d, (a, b), c=c)
    assert any(one.c_enters == "promoted_sum" for one in found.ranking[0].members)
    with pytest.raises(AssertionError, match="mismatch"):
        assert_matches(d, (a, b), model=HOPPER, promotion_interval=128)


def test_bad_arguments_are_value_errors():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    with pytest.raises(ValueError, match=r"got: expected shape \[16, 24\], got \[24, 16\]"):
        assert_matches(d.T, (a, b), model=HOPPER)
    with pytest.raises(ValueError, match="sm91"):
        assert_matches(d, (a, b), model="sm91.wgmma.e4m3")
    with pytest.raises(ValueError, match="got_format"):
        assert_matches(d.astype(np.float64), (a, b), model=HOPPER)


def test_a_mismatch_fails_whether_power_is_required_or_not():
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    d[2, 7] = np.nextafter(d[2, 7], f32(0))
    for power in (True, False):
        for check in ("bitwise", "deepgemm"):
            wrong = d if check == "bitwise" else d * f32(2)
            with pytest.raises(AssertionError, match="^mismatch"):
                assert_matches(wrong, (a, b), model=HOPPER, check=check, require_power=power)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": None}, r"^inputs: expected a tuple \(a, b\), got NoneType$"),
        ({"inputs": (1, 2, 3)}, r"^inputs: expected a tuple \(a, b\), got 3 parts$"),
        ({"inputs": np.zeros((2, 16, 512))}, r"^inputs: expected a tuple \(a, b\), got ndarray$"),
        ({"got": np.zeros((1, 16, 24), f32)}, r"^got: expected a matrix \[m, n\], got \[1, 16, 24\]$"),
        ({"got": np.zeros((16, 24)), "got_format": "f32"}, "^got: expected codes of f32 as its dtype"),
        ({"got_format": "bf16"}, "^got_format: expected f32, as the dtype of got says, got bf16$"),
        ({"model": 3}, "^model: expected a name, an fp8lab.InstructionModel or .*, got int$"),
        ({"check": 3}, "^check: expected a name, got 3$"),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(change, message):
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER)
    given = {"got": d, "inputs": (a, b), "model": HOPPER} | change
    for function in (fp8lab.verify, assert_matches):
        call = dict(given)
        with pytest.raises(ValueError, match=message):
            function(call.pop("got"), call.pop("inputs"), **call)


def test_all_causes_are_told():
    """Two scales of the same size: either may be the one that is missing."""
    a, b = operands()
    d = fp8lab.gemm(a, b, model=HOPPER, scale_b=0.5)
    report = fp8lab.verify(d, (a, b), model=HOPPER, scale_a=0.5, scale_b=0.5)
    names = [cause.name for cause in report.causes]
    assert {"missing_scale_a", "missing_scale_b"} <= set(names) and len(names) == len(set(names))
    for cause in report.causes[:3]:  # the details have the best three
        assert cause.text and cause.name in report.details
