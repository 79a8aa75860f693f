"""Recipes: scales and codes against NumPy, state, and what they refuse."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32


def some(rows=4, k=256, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, k), f32) * f32(3)


def test_current_scaling_equals_numpy():
    x = some()
    q = fp8lab.quantize(x, "te-current")
    scale = f32(448) / np.abs(x).max()
    assert q.format == "e4m3fn" and q.codes.dtype == ml_dtypes.float8_e4m3fn
    assert q.scales.tolist() == [[scale]]
    assert q.inverse_scales.tolist() == [[f32(1) / scale]]
    np.testing.assert_array_equal(q.codes, (x * scale).astype(q.codes.dtype))
    np.testing.assert_array_equal(q.dequantize(), q.codes.astype(f32) * q.inverse_scales)


def test_tiles_of_deepgemm_equal_numpy():
    x = some()
    q = fp8lab.quantize(x, "deepgemm")
    assert (q.row_block, q.k_block) == (1, 128)
    amax = np.abs(x).reshape(4, 2, 128).max(axis=2)
    np.testing.assert_array_equal(q.inverse_scales, np.maximum(amax, f32(1e-4)) / f32(448))


def test_roles_and_mx():
    gradient = fp8lab.quantize(some(), "te-current", "gradient")
    assert gradient.codes.dtype == ml_dtypes.float8_e5m2
    mx = fp8lab.quantize(some(), "mxfp8-floor")
    assert mx.e8m0 is not None and mx.e8m0.dtype == ml_dtypes.float8_e8m0fnu
    np.testing.assert_array_equal(mx.e8m0.astype(f32), mx.inverse_scales)
    assert mx.inverse_scales.shape == (4, 8)
    assert fp8lab.quantize(some()).e8m0 is None


def test_transpose():
    x = some(4, 8)
    q = fp8lab.quantize(x, transpose=True)
    assert q.transposed is not None
    np.testing.assert_array_equal(q.transposed.codes, q.codes.T)
    assert fp8lab.quantize(x).transposed is None


@pytest.mark.parametrize("name", fp8lab.presets())
def test_presets_by_name_and_by_value(name):
    preset = fp8lab.presets()[name]
    x = some(128, 256)
    for role in ("activation", "weight", "gradient"):
        recipe = getattr(preset, role)
        by_name, by_value = fp8lab.Quantizer(name, role), fp8lab.Quantizer(recipe)
        assert by_name.recipe == recipe
        if recipe.source in ("calibration", "momentum"):
            by_name.observe(x), by_value.observe(x)
        for step in (x, x * f32(5), x):
            p, q = by_name.quantize(step), by_value.quantize(step)
            np.testing.assert_array_equal(p.codes.view(np.uint8), q.codes.view(np.uint8))
            np.testing.assert_array_equal(p.scales, q.scales)


def test_delayed_scaling_remembers():
    recipe = dataclasses.replace(fp8lab.presets()["te-delayed"].activation, history=3, margin=1.0)
    quantizer = fp8lab.Quantizer(recipe)
    amaxes = (7.0, 14.0, 7.0, 7.0, 7.0, 7.0)
    scales = [float(quantizer.quantize([[amax]]).scales[0, 0]) for amax in amaxes]
    assert scales == [1.0, 32.0, 16.0, 16.0, 16.0, 32.0]


def test_more_dimensions_are_rows():
    x = some(6, 128)
    np.testing.assert_array_equal(
        fp8lab.quantize(x.reshape(2, 3, 128), "deepgemm").codes,
        fp8lab.quantize(x, "deepgemm").codes,
    )
    assert fp8lab.quantize(np.zeros((0, 128), f32)).codes.shape == (0, 128)


def test_statistics():
    x = np.array([[448.0, -448.0, 1.0, 2.0**-20]], f32)
    s = fp8lab.quantize(x).statistics(x)
    assert (s.count, s.underflow_percent, s.saturated_percent) == (4, 25.0, 50.0)
    assert s.scale_min == s.scale_max == 1.0
    # What overflows is what x times the scales exceeds, whatever the inverse scales say.
    q = fp8lab.quantize(x)
    for scale, overflow in ((0.25, 0.0), (1.0, 0.0), (2.0, 50.0), (512.0, 75.0)):
        changed = dataclasses.replace(q, scales=np.array([[scale]], f32)).statistics(x)
        assert changed.overflow_percent == overflow and changed.scale_max == scale
    changed = dataclasses.replace(q, inverse_scales=np.array([[0.25]], f32)).statistics(x)
    assert changed.overflow_percent == 0.0 and changed.relative_l2 == 0.75
    with pytest.raises(
        ValueError, match=r"x: expected \[1, 4\], as the quantized tensor, got \[2, 2\]"
    ):
        fp8lab.quantize(x).statistics(x.reshape(2, 2))


@pytest.mark.parametrize("recipe", ["mxfp6-e2m3", "mxfp6-e3m2", "mxfp4"])
def test_bytes_of_narrow_tensors_are_codes(recipe):
    q = fp8lab.quantize(some(4, 256), recipe)
    bits = {"e2m1": 4}.get(q.format, 6)
    codes = q.codes.view(np.uint8).copy()
    assert codes.max() < 1 << bits
    for bit in range(bits, 8):
        wrong = codes.copy()
        wrong[2, 5] |= 1 << bit
        with pytest.raises(ValueError, match="codes: expected"):
            dataclasses.replace(q, codes=wrong.view(q.codes.dtype)).dequantize()


def test_tensors_made_by_hand_are_checked():
    q = dataclasses.replace(fp8lab.quantize(some()), row_block=1)
    with pytest.raises(
        ValueError,
        match=r"^scales: expected \[ceil\(4/1\), ceil\(256/256\)\] = \[4, 1\], got \[1, 1\]",
    ):
        q.dequantize()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("te",), "recipe: expected one of .*te-.*, got 'te'"),
        (("te-current", "bias"), "role: expected activation, weight or gradient, got 'bias'"),
        (("mxfp8-floor",), "x: expected k divisible by 32, got"),
        (("inference-static",), "calibrat"),
        ((fp8lab.Recipe(rule="max"),), "rule: expected one of .*, got 'max'"),
        ((fp8lab.Recipe(source="past"),), "source: expected one of current, .*, got 'past'"),
    ],
)
def test_bad_arguments_are_value_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        fp8lab.quantize(some(4, 100), *arguments)


def test_observe_needs_a_recipe_that_looks_back():
    with pytest.raises(ValueError):
        fp8lab.Quantizer("te-current").observe([[1.0]])


@pytest.mark.parametrize("shape", [(128, 128), (128, 256), (256, 128)])
@pytest.mark.parametrize("name", ["te-current", "deepgemm", "te-mxfp8", "te-nvfp4"])
def test_the_transposed_operand_is_the_transpose_cast_anew(name, shape):
    """For square tensors too; of one scale its codes are those turned."""
    x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    assert fp8lab.quantize(x, name).transposed is None
    q = fp8lab.quantize(x, name, transpose=True)
    turned = q.transposed
    assert turned is not None and turned.codes.shape == shape[::-1] and turned.format == q.format
    assert turned.transposed is None and turned.inverse_scales.dtype == np.float32
    alone = fp8lab.quantize(x, name)
    assert alone.codes.tobytes() == q.codes.tobytes()
    if name == "te-current":
        np.testing.assert_array_equal(turned.codes, q.codes.T)
    values = turned.dequantize().T
    assert np.linalg.norm(values - x) < (0.2 if "nvfp4" in name else 0.05) * np.linalg.norm(x)
    for tensor in (q, turned):
        kinds = {"te-mxfp8": ("e8m0", "float8_e8m0fnu"), "te-nvfp4": ("ue4m3", "float8_e4m3fn")}
        for field in ("e8m0", "ue4m3"):
            codes = getattr(tensor, field)
            if kinds.get(name, ("", ""))[0] == field:
                assert codes.dtype.name == kinds[name][1] and codes.shape == tensor.inverse_scales.shape
            else:
                assert codes is None


def test_scales_of_a_tensor_have_the_shape_of_its_tiles():
    q = fp8lab.quantize(np.random.default_rng(7).standard_normal((8, 256)).astype(np.float32), "deepgemm")
    assert q.scales.shape == (8, 2)
    for field in ("scales", "inverse_scales"):
        values = getattr(q, field)
        for wrong in (values[:, :1], values[:7], np.concatenate([values, values], 1), values.T, np.concatenate([values, values])):
            changed = dataclasses.replace(q, **{field: np.ascontiguousarray(wrong)})
            with pytest.raises(ValueError, match=rf"^{field}: expected \[ceil\(8/1\), ceil\(256/128\)\] = \[8, 2\], got \["):
                changed.dequantize()
            with pytest.raises(ValueError, match=f"^{field}: expected"):
                changed.statistics(np.zeros((8, 256), np.float32))
    for field in ("row_block", "k_block"):
        with pytest.raises(ValueError, match=f"^{field}: expected a positive number, got 0$"):
            dataclasses.replace(q, **{field: 0}).dequantize()
