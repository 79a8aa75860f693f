"""Automatic scaling: mu against the listing in NumPy, its laws of growth, and what it refuses."""

import numpy as np
import pytest

import fp8lab


def test_listing_in_numpy_has_the_same_mu():
    gradient = np.random.default_rng(3).standard_normal(4096, np.float32)
    scaler = fp8lab.AutoScaler(threshold=1e-3, clean_steps=1000)
    mu, steps_below, halvings = 1.0, 0, 0
    for step in range(3000):
        size = np.float32(400.0 if step == 1700 else 1.0)
        share = np.mean(np.abs(gradient * size * np.float32(mu)) >= 448)
        assert scaler.mu == pytest.approx(mu, rel=1e-12)
        if share > 0.001:
            mu, steps_below, halvings = mu / 2.0, 0, halvings + 1
        else:
            steps_below += 1
            if steps_below >= 1000:
                mu *= 2.0 ** (1 / 1000)
        scaler.update(share)
    assert halvings == 1 and mu > 1.0


def test_laws_of_growth():
    laws = {"exponential": 2**0.5, "linear": 1.5, "doubling": 1.0, "none": 1.0}
    for growth, expected in laws.items():
        scaler = fp8lab.AutoScaler(steps_to_double=4, growth=growth)
        for _ in range(2):
            scaler.update(0.0)
        assert scaler.mu == pytest.approx(expected), growth
    assert fp8lab.AutoScaler(mu=0.25).mu == 0.25


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="growth: .*doubling or none, got 'cubic'"):
        fp8lab.AutoScaler(growth="cubic")
    with pytest.raises(ValueError, match="threshold"):
        fp8lab.AutoScaler(threshold=2.0)
    with pytest.raises(ValueError, match="saturated_share"):
        fp8lab.AutoScaler().update(float("nan"))
