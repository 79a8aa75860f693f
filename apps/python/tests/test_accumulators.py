"""Accumulators of one's own: one text everywhere, the same bits as by value, errors by name."""

import dataclasses
import json
import os
import pathlib
import subprocess
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fp8lab

TOOL = os.environ.get("FP8LAB_TOOL", "")
MINE = "fused:terms=16,F=12,rounding=toward_zero,e_min=-6"


def operands(m=5, n=7, k=200):
    rng = np.random.default_rng(1)
    return tuple(fp8lab.encode(rng.standard_normal((rows, k), np.float32)) for rows in (m, n))


def truncated(x, unit):
    """x toward zero to a multiple of 2^unit."""
    scaled = x / Fraction(2) ** unit
    return (abs(scaled.numerator) // scaled.denominator) * (1 if x >= 0 else -1) * Fraction(2) ** unit


def exponent(x):
    """floor(log2 |x|)."""
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def fused(a, b, terms, bits, kept, lowest):
    """The fused truncated dot product from its description, in rationals. E4M3 operands."""
    def brought(x):
        return max(exponent(x), -6)  # subnormals bring the smallest normal exponent

    total = Fraction(0)
    for k in range(0, len(a), terms):
        pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a[k:k + terms], b[k:k + terms])]
        parts = [(x * y, brought(x) + brought(y)) for x, y in pairs if x * y]
        if total:
            parts.append((total, exponent(total)))
        if not parts:
            continue
        unit = max(lowest, *(e for _, e in parts)) - bits if len(parts) > 1 else max(lowest, parts[0][1]) - bits
        exact = sum((truncated(p, unit) for p, _ in parts), Fraction(0))
        total = truncated(exact, exponent(exact) - kept) if exact else exact
    return float(total)


@pytest.mark.parametrize(("terms", "bits", "kept", "lowest"), [(16, 12, 13, -6), (4, 9, 9, -20), (5, 20, 7, 3)])
def test_bits_are_those_of_the_description(terms, bits, kept, lowest):
    a, b = operands()
    model = fp8lab.accumulator_model("fused", terms=terms, F=bits, M=kept, e_min=lowest)
    got = fp8lab.gemm(a, b, model=model)
    x, y = a.astype(np.float32), b.astype(np.float32)
    expected = [[fused(row, column, terms, bits, kept, lowest) for column in y] for row in x]
    np.testing.assert_array_equal(got, np.array(expected, np.float32))


def test_one_model_in_every_spelling(tmp_path):
    a, b = operands()
    by_value = dataclasses.replace(
        fp8lab.models()["sm90.wgmma.e4m3"].accumulator,
        terms=16, alignment_fraction_bits=12, min_alignment_exponent=-6,
    )  # fmt: skip
    d = fp8lab.gemm(a, b, model=by_value)
    assert not np.array_equal(d, fp8lab.gemm(a, b, model="sm90.wgmma.e4m3"))
    mine = fp8lab.accumulator_model("fused", name="mine", terms=16, F=12, e_min=-6)
    assert mine.name == "mine=fused:terms=16,F=12,e_min=-6" and mine.standing == "definition"
    (tmp_path / "m.toml").write_text('[accumulator.mine]\nbase = "fused"\nterms = 16\nF = 12\ne_min = -6\n')
    (tmp_path / "m.json").write_text(
        json.dumps({"accumulator": {"mine": {"base": "fused", "terms": 16, "F": 12, "e_min": -6}}})
    )
    for model in (
        MINE, mine, mine.name, mine.accumulator, by_value.definition(), fp8lab.accumulator_model(MINE),
        fp8lab.accumulator_model("fused:terms=16", F=12, e_min=-6),
        fp8lab.load_models(tmp_path / "m.toml")["mine"], fp8lab.load_models(tmp_path / "m.json")["mine"],
    ):  # fmt: skip
        np.testing.assert_array_equal(fp8lab.gemm(a, b, model=model), d)
    assert fp8lab.accumulator_model("sm90.mma.f16", e_min=None).accumulator.min_alignment_exponent is None


def test_a_definition_has_the_format_of_each_operand():
    unit = fp8lab.models()["sm90.wgmma.e4m3"].accumulator
    for formats, ends in (((), "a=e4m3fn,b=e4m3fn"), (("e5m2",), "a=e5m2,b=e5m2"), (("e4m3fn", "e5m2"), "a=e4m3fn,b=e5m2")):
        assert unit.definition(*formats).endswith(f",{ends}")
    a, b = operands()
    mixed = b.astype(np.float32).astype(ml_dtypes.float8_e5m2)
    d = fp8lab.gemm(a, mixed, model=unit.definition("e4m3fn", "e5m2"))
    np.testing.assert_array_equal(d, fp8lab.gemm(a, mixed, model=unit))


@pytest.mark.skipif(not pathlib.Path(TOOL).is_file(), reason="no FP8LAB_TOOL")
def test_the_tool_gives_the_same_bits(tmp_path):
    a, b = operands()
    np.save(tmp_path / "a.npy", a.view(np.uint8))
    np.save(tmp_path / "b.npy", b.view(np.uint8))
    command = [TOOL, "gemm", tmp_path / "a.npy", tmp_path / "b.npy", "--dtype", "e4m3fn", "--model", MINE]
    subprocess.run([*command, "-o", tmp_path / "d.npy"], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), fp8lab.gemm(a, b, model=MINE))


@pytest.mark.parametrize(("name", "text"), [("m.toml", ".".join(["a"] * 100_000) + " = 1"), ("m.json", "[" * 300_000)])
def test_a_file_nested_without_end_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}: nested too deeply: at most 64 "):
        fp8lab.load_models(tmp_path / name)


def test_verify_identify_vectors_and_attention_take_it():
    a, b = operands(k=256)
    d = fp8lab.gemm(a, b, model=MINE)
    assert fp8lab.verify(d, (a, b), model=MINE).verdict == "pass"
    assert fp8lab.verify(d, (a, b), model="sm90.wgmma.e4m3").verdict == "mismatch"
    assert not fp8lab.identify(d, (a, b)).explained
    found = fp8lab.identify(d, (a, b), models=[fp8lab.accumulator_model(MINE, name="mine")])
    assert found.explained and f"mine={MINE}" in found.ranking[0].members[0].models
    assert fp8lab.replay(fp8lab.vectors(MINE, 50)).mismatches == 0


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: fp8lab.accumulator_model("fused", F=65), "alignment_fraction_bits: expected 1 .. 64, got 65"),
        (lambda: fp8lab.accumulator_model("fused", P=3), "product_fraction_bits: expected one of terms"),
        (lambda: fp8lab.accumulator_model("fused", bits=3), "parameter: expected one of terms"),
        (lambda: fp8lab.accumulator_model("fused", F="1,M=2"), "F: expected a value without"),
        (lambda: fp8lab.accumulator_model("nothing"), "or a definition such as"),
        (lambda: fp8lab.accumulator_model("fused", name="exact"), "name: expected a name that no instruction"),
        (lambda: fp8lab.accumulator_model("fused", name=""), r"model: expected \[NAME=\]BASE"),
        (lambda: fp8lab.accumulator_model("fused", name="a b"), r"model: expected \[NAME=\]BASE"),
    ],
)
def test_what_cannot_be_is_refused(call, reason):
    with pytest.raises(ValueError, match=reason):
        call()
