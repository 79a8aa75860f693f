"""The gate of right kernels: what reaches the library, and what comes back."""

import numpy as np
import pytest

import fp8lab
from fp8lab import _core
from fp8lab.testing import tolerance

OPTIONS = {
    "call": "", "model": "sm90.wgmma.e4m3", "promotion_interval": 0, "scale_order": "product_then_fma", "recipe": "",
    "output": None, "distribution": "normal", "against_originals": False, "trials": 10, "seed": 1, "risk": 1e-6,
    "threads": 0,
}  # fmt: skip


def library(m, n, k, **changed):
    return _core.expect(m=m, n=n, k=k, **OPTIONS | changed)


CHANGES = [
    {},
    {"model": "fp32", "seed": 7},
    {"promotion_interval": 128, "scale_order": "a_then_b_then_add", "recipe": "deepgemm"},
    {"call": "cublaslt.h100.slow", "risk": 1e-4},
    {"call": "deepgemm.h100", "recipe": "deepgemm", "against_originals": True},
    {"distribution": "student_t", "output": "f16", "trials": 12, "threads": 1},
]


@pytest.mark.parametrize("changed", CHANGES)
def test_the_gate_is_the_library_s(changed):
    expected = library(16, 24, 256, **changed)
    given = {"trials": 10} | {key: value for key, value in changed.items() if key != "output"}
    if "output" in changed:
        given["out_format"] = changed["output"]
    for reference in ("fp64", "fp32", "bf16"):
        t = tolerance((16, 24, 256), reference=reference, **given)
        gate = expected[reference]
        for name in ("rtol", "atol", "calc_diff", "cosine", "max_ulp", "metrics"):
            assert getattr(t, name) == gate[name], name
        assert str(t) == expected["text"]
        missed = [name for name, size, close, *_ in gate["faults"] if not close and size > 0]
        assert t.missed == tuple(missed) and (missed or changed.get("model") == "fp32")
        assert t.caught == tuple(name for name, _, close, *_ in gate["faults"] if close) and t.caught


def test_every_option_changes_the_gate():
    plain = tolerance((16, 24, 256), trials=10)
    for change in (
        {"model": "fp32"}, {"promotion_interval": 128}, {"recipe": "deepgemm", "promotion_interval": 128},
        {"call": "cublaslt.h100.slow"}, {"out_format": "f16"}, {"distribution": "uniform"}, {"reference": "bf16"},
        {"trials": 11}, {"seed": 2}, {"risk": 1e-3},
    ):  # fmt: skip
        assert tolerance((16, 24, 256), **{"trials": 10} | change) != plain, change
    assert tolerance((24, 16, 256), trials=10) != plain
    # Sums that cancel may be any number of steps off; a single product is none.
    assert plain.max_ulp is None and tolerance((16, 16, 1), trials=10).max_ulp == 0
    # A call brings its output format, where none is named.
    called = {"call": "cublaslt.h100.slow", "trials": 10}
    outputs = [str(tolerance((16, 24, 256), out_format=one, **called)) for one in (None, "f32", "bf16", "f16")]
    assert len(set(outputs)) == 3 and outputs[0] in outputs[1:]
    scaled = {"trials": 10, "recipe": "deepgemm", "promotion_interval": 128}
    orders = {order: tolerance((16, 24, 256), scale_order=order, **scaled) for order in ("product_then_fma", "a_then_b_then_add")}
    assert len(set(map(str, orders.values()))) == 2
    originals = [tolerance((16, 24, 256), against_originals=one, **scaled).atol for one in (False, True)]
    assert originals[1] > 10 * originals[0]


def test_a_fault_that_changes_nothing_is_not_missed():
    """A single product is the same in every accumulator."""
    faults = library(16, 24, 1)["fp32"]["faults"]
    nothing = {name for name, size, *_ in faults if size == 0}
    assert {"accumulator_fp32", "bf16_accumulator"} <= nothing
    t = tolerance((16, 24, 1), trials=10)
    assert not nothing & {*t.missed, *t.caught} and t.caught


def test_right_kernels_pass_the_gate():
    t = tolerance((32, 32, 512), trials=20)
    rng = np.random.default_rng(5)
    a, b = (fp8lab.encode(rng.standard_normal((32, 512), np.float32)) for _ in range(2))
    d = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3")
    reference = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_allclose(d, reference, rtol=t.rtol, atol=t.atol)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (8, 8)}, r"^shape: expected a tuple \(m, n, k\), got 2 parts$"),
        ({"shape": 64}, r"^shape: expected a tuple \(m, n, k\), got int$"),
        ({"shape": (8, 8, 2.5)}, "^k: expected a whole number, got 2.5$"),
        ({"reference": "fp16"}, "^reference: expected fp64, fp32 or bf16, got 'fp16'$"),
        ({"risk": "small"}, "^risk: expected a number, got 'small'$"),
        ({"seed": -1}, r"^seed: expected 0 to 2\^64 - 1, got -1$"),
        ({"call": 3}, "^call: expected a name, got 3$"),
        ({"recipe": "none"}, "none"),
        ({"distribution": "cauchy"}, "distribution: expected"),
    ],
)
def test_bad_arguments_are_value_errors(change, message):
    given = {"shape": (8, 8, 64), "trials": 10} | change
    with pytest.raises(ValueError, match=message):
        tolerance(given.pop("shape"), **given)
