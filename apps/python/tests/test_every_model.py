"""Every registered model in every function that takes one, with a right output and with wrong ones.

The list of models comes from the package, so that none can be left out. A function that does not take a model says
what it expects.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fp8lab
from fp8lab._arrays import DTYPES
from fp8lab.testing import assert_matches, tolerance

M, N, K = 5, 6, 128


def operand(rng: np.random.Generator, name: str, rows: int) -> np.ndarray:
    """Random values as codes of a format."""
    values = rng.standard_normal((rows, K)).astype(np.float32)
    if name == "tf32":
        return values
    if name == "f32":
        return values.view(np.uint32)
    return values.astype(DTYPES[name])


def block_scales(rng: np.random.Generator, model: fp8lab.InstructionModel, rows: int) -> fp8lab.Scales | None:
    """Scales that the instruction itself applies, if it does."""
    if "mx" not in model.name:
        return None
    nvfp4 = "nvf4" in model.name
    block = 16 if nvfp4 else 32
    low, high, name = (40, 64, "e4m3fn") if nvfp4 else (120, 130, "e8m0fnu")
    codes = rng.integers(low, high, (rows, K // block), dtype=np.uint8)
    return fp8lab.Scales(codes.view(DTYPES[name]), 1, block)


@pytest.mark.parametrize("name", sorted(fp8lab.models()))
def test_model(name: str) -> None:
    model = fp8lab.models()[name]
    rng = np.random.default_rng(3)
    inputs = operand(rng, model.a_format, M), operand(rng, model.b_format, N)
    scales = {"scale_a": block_scales(rng, model, M), "scale_b": block_scales(rng, model, N)}
    how = {key: value for key, value in scales.items() if value is not None}
    if model.a_format in ("tf32", "f32"):
        how |= {"a_format": model.a_format, "b_format": model.b_format}
    d = fp8lab.gemm(*inputs, model=name, **how)
    assert d.shape == (M, N)
    assert np.isfinite(d).all()
    # Every accumulator gives the same sums of FP4, so that a bitwise check of them has no power.
    assert_matches(d, inputs, model=name, require_power=False, **how)
    one = d.copy()
    one[1, 2] = 2 * one[1, 2] + 1
    for wrong in (one, 2 * d + 1, np.zeros_like(d), -d):
        for check in ("bitwise",) if model.standing == "definition" else ("bitwise", "budget"):
            report = fp8lab.verify(wrong, inputs, model=name, check=check, **how)
            assert report.verdict == "mismatch", check
            with pytest.raises(AssertionError, match="mismatch"):
                assert_matches(wrong, inputs, model=name, check=check, **how)
    if model.a_format == "f32":
        with pytest.raises(ValueError, match="expected a tensor-core input format"):
            fp8lab.identify(d, inputs, **how)
    else:
        found = fp8lab.identify(d, inputs, **how)
        assert found.explained
        assert any(name in one.models for one in found.ranking[0].members)
    vectors = fp8lab.vectors(name, count=20)
    assert fp8lab.replay(vectors, name).mismatches == 0
    works_or_says_what_it_expects(lambda: tolerance((M, N, K), model=name, trials=10))
    q, k, v = (rng.standard_normal((1, 16, 32)).astype(np.float32) for _ in range(3))
    works_or_says_what_it_expects(lambda: fp8lab.attention(q, k, v, qk_model=name, pv_model=name))
    works_or_says_what_it_expects(lambda: fp8lab.linear_recipe("te-current", hardware=name))


def works_or_says_what_it_expects(call: Callable[[], object]) -> None:
    try:
        call()
    except ValueError as error:
        assert "expected" in str(error)
