"""Metrics against NumPy."""

import numpy as np
import pytest

import fp8lab


def test_compare_equals_numpy():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(1000).astype(np.float32)
    y = x + rng.standard_normal(1000).astype(np.float32) * np.float32(1e-3)
    c = fp8lab.compare(x, y)
    x, y = x.astype(float), y.astype(float)
    assert c.count == 1000 and c.mismatches == (x != y).sum()
    assert c.relative_l2 == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-12)
    assert c.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), rel=1e-12)
    assert c.max_absolute == np.abs(y - x).max() and c.max_absolute_index == np.abs(y - x).argmax()


def test_compare_takes_exact_references_and_codes():
    third = np.array([1 / 3])
    assert fp8lab.compare(third, third.astype(np.float32)).mismatches == 1
    assert (
        fp8lab.compare(fp8lab.encode([1.0, 2.0]), np.array([1.0, 2.0], np.float16)).mismatches == 0
    )
    assert np.isnan(fp8lab.compare([1.0], [np.nan]).relative_l2)
    with pytest.raises(ValueError, match=r"actual: expected \[1, 2\], as reference has, got \[2\]"):
        fp8lab.compare([[1.0, 2.0]], [1.0, 2.0])
