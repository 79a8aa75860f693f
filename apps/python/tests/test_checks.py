"""Metrics against NumPy, and replays that must and must not match."""

import numpy as np
import pytest

import fp8lab

VECTORS = """# fp8lab vectors 1
# model: sm90.mma.e4m3
# input: e4m3
# terms: 2
3838 3838 00000000 40000000
387e 3838 00000000 {d}
"""


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


def test_replay(tmp_path):
    right, wrong = tmp_path / "right.txt", tmp_path / "wrong.txt"
    right.write_text(VECTORS.format(d="43e08000"))
    wrong.write_text(VECTORS.format(d="43e08001"))
    assert fp8lab.replay(right) == fp8lab.ReplayReport("sm90.mma.e4m3", 2, 0, ())
    report = fp8lab.replay(str(wrong), "exact")
    assert (report.model, report.cases, report.mismatches) == ("exact", 2, 1)
    assert "43e08001" in report.shown[0] and "43e08000" in report.shown[0]


def test_replay_of_bad_files(tmp_path):
    with pytest.raises(ValueError, match="missing.txt"):
        fp8lab.replay(tmp_path / "missing.txt")
    cut = tmp_path / "cut.txt"
    cut.write_text(VECTORS.format(d="43e0"))
    with pytest.raises(ValueError, match="cut.txt"):
        fp8lab.replay(cut)
    cut.write_text(VECTORS.format(d="43e08000"))
    with pytest.raises(ValueError, match="sm91"):
        fp8lab.replay(cut, "sm91.mma.e4m3")
