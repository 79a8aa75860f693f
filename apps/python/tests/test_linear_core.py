"""What layers of frameworks call: casts with a past, sums by rows, and the hash that tells contents apart."""

import dataclasses

import numpy as np
import pytest

import fp8lab
from fp8lab import _core

f32 = np.float32
EMPTY = np.empty(0, f32)


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def test_each_of_two_casts_has_a_past_of_its_own():
    first = fp8lab.presets()["te-delayed"].activation
    second = dataclasses.replace(first, history=3, format="e5m2")
    pasts = [_core.initial_past(one._core()) for one in (first, second)]
    alone = [EMPTY, EMPTY]
    for step in range(4):
        x = drawn(16, 32, seed=step) * f32(2.0**step)
        codes, turned, *pasts = _core.linear_cast(first._core(), second._core(), x, True, True, *pasts, 0)
        for i, (recipe, made, transposed) in enumerate(((first, codes, False), (second, turned, True))):
            one, two, past, none = _core.linear_cast(recipe._core(), None, x, not transposed, transposed, alone[i], EMPTY, 0)
            alone[i] = past
            assert none is None and (one is None) == transposed and (two is None) != transposed
            expected = two if transposed else one
            for got, right in zip(made, expected, strict=True):
                np.testing.assert_array_equal(got, right)
            np.testing.assert_array_equal(pasts[i], past)
            observed = _core.observed_past(recipe._core(), x, EMPTY)
            assert observed.shape == past.shape
    assert pasts[0].shape != pasts[1].shape


def test_a_cast_for_one_product_makes_one_operand():
    recipe = fp8lab.presets()["te-current"].activation
    x = drawn(16, 32)
    q = fp8lab.quantize(x, recipe, transpose=True)
    for for_first, for_second in ((True, False), (False, True), (True, True)):
        one, two, _, other = _core.linear_cast(recipe._core(), None, x, for_first, for_second, EMPTY, EMPTY, 1)
        assert other is None and (one is not None, two is not None) == (for_first, for_second)
        if one is not None:
            np.testing.assert_array_equal(one[0], q.codes.view(np.uint8))
            assert one[1].tolist() == q.inverse_scales.reshape(-1).tolist()
        if two is not None:
            np.testing.assert_array_equal(two[0], q.transposed.codes.view(np.uint8))


def test_every_recipe_is_listed():
    listed = fp8lab.linear_recipes()
    assert len(listed) == len(set(listed)) and {*listed} == {*fp8lab.presets(), "bf16", "fp32"}
    assert [fp8lab.linear_recipe(name).name for name in listed] == listed


def test_operands_of_plain_products_sum_the_same_dimension():
    recipe = fp8lab.linear_recipe("fp32")
    core, settings = recipe._core(), recipe.fprop._core()
    a, b = np.round(4 * drawn(4, 6)), np.round(4 * drawn(3, 6, seed=2))  # whose sums are exact
    for a_turned in (False, True):
        for b_turned in (False, True):
            left, right = (np.ascontiguousarray(x.T) if turned else x for x, turned in ((a, a_turned), (b, b_turned)))
            # B is [n, k], or with b_transposed [k, n].
            d = np.zeros((4, 3), f32)
            _core.plain_product(core, settings, left, a_turned, right, b_turned, d, 1)
            np.testing.assert_array_equal(d, a @ b.T)
            for k in (5, 7):
                other = drawn(k, 3) if b_turned else drawn(3, k)
                with pytest.raises(ValueError, match=f"^b: expected a summed dimension of 6, got {k}$"):
                    _core.plain_product(core, settings, left, a_turned, other, b_turned, d, 1)


def test_gradients_are_those_of_their_own_output():
    """Linear in the output's gradient, and through O only where the softmax turns."""
    q, k, v = drawn(2, 8, 32), drawn(2, 16, 32, seed=2), drawn(2, 16, 32, seed=3)
    tensors = [_core.AttentionTensor.of_values(x) for x in (q, k, v)]
    options = _core.AttentionOptions(
        qk_model="exact", pv_model="exact", q_tile=16, kv_tile=16, softmax_scale=0.25, p_offset=8.0, rescale_threshold=0.0,
        causal=False, two_level=False, threads=1,
    )  # fmt: skip
    o = _core.attention_output(*tensors, options)
    d_o = drawn(2, 8, 32, seed=4)
    gradients = _core.attention_backward(*tensors, o, d_o, options)
    doubled = _core.attention_backward(*tensors, o, 2 * d_o, options)
    for one, two, like in zip(gradients, doubled, (q, k, v), strict=True):
        assert one.shape == like.shape and np.abs(one).max() > 0
        np.testing.assert_array_equal(two, 2 * one)
    other = _core.attention_backward(*tensors, 2 * o, d_o, options)
    np.testing.assert_array_equal(other[2], gradients[2])  # of V: P and the gradient alone
    assert (other[0] != gradients[0]).any() and (other[1] != gradients[1]).any()
    # Under a causal mask row i sees keys up to i + 8 alone.
    masked = _core.AttentionOptions(
        qk_model="exact", pv_model="exact", q_tile=16, kv_tile=16, softmax_scale=0.25, p_offset=8.0, rescale_threshold=0.0,
        causal=True, two_level=False, threads=1,
    )  # fmt: skip
    first = np.zeros_like(d_o)
    first[:, 0] = d_o[:, 0]
    _, dk, dv = _core.attention_backward(*tensors, _core.attention_output(*tensors, masked), first, masked)
    for one in (dk, dv):
        assert (one[:, 9:] == 0).all() and (one[:, :9] != 0).any(axis=(1, 2)).all()


def test_sums_by_rows_and_columns():
    d, bias = drawn(5, 7), drawn(7, seed=2)
    expected = d + bias
    _core.add_to_rows(d, bias)
    np.testing.assert_array_equal(d, expected)
    sums = np.zeros(7, f32)
    for row in d:
        sums += row
    np.testing.assert_array_equal(_core.column_sums(d), sums)
    for wrong in (drawn(6), drawn(8), drawn(14), EMPTY):
        with pytest.raises(ValueError, match=f"^bias: expected 7 values, got {wrong.size}$"):
            _core.add_to_rows(d, wrong)
    e = drawn(5, 7, seed=3)
    expected = d + e
    _core.add_into(d, e)
    np.testing.assert_array_equal(d, expected)
    for wrong in (drawn(5, 6), drawn(4, 7), drawn(7, 5), drawn(5, 8)):
        with pytest.raises(ValueError, match=r"^b: expected \[5, 7\], got \["):
            _core.add_into(d, wrong)


def test_a_fingerprint_sees_each_byte_its_place_and_the_size():
    for size in (0, 1, 7, 31, 32, 33, 64, 100):
        data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        seen = {_core.fingerprint(data)}
        for i in range(size):
            for bit in (1, 128):
                data[i] ^= bit
                seen.add(_core.fingerprint(data))
                data[i] ^= bit
        assert len(seen) == 1 + 2 * size, size
        assert _core.fingerprint(data) in seen
        assert _core.fingerprint(np.append(data, np.uint8(0))) != _core.fingerprint(data)
    words = np.random.default_rng(1).integers(0, 256, 128, dtype=np.uint8)
    assert _core.fingerprint(words) != _core.fingerprint(np.roll(words, 32)) != _core.fingerprint(np.roll(words, 8))


def test_every_field_of_a_linear_recipe_goes_there_and_back():
    """One that the way there or back drops would be a default."""
    plain = fp8lab.linear_recipe("te-current")
    casts = [f"{one}" for one in ("activation", "weight", "gradient")]
    casts += ["weight_for_dgrad", "activation_for_wgrad", "gradient_for_wgrad"]
    other = fp8lab.presets()["deepgemm"].weight
    odd = dataclasses.replace(other, rows_multiple=3, k_multiple=5, amax_floor=2.0**-10)
    for name in casts:
        for recipe in (other, odd):
            changed = dataclasses.replace(plain, **{name: recipe})
            moved = fp8lab.linear_recipe(changed, hardware="sm90")
            assert getattr(moved, name) == recipe, name
            for rest in set(casts) - {name}:
                assert getattr(moved, rest) == getattr(plain, rest), (name, rest)
    delayed = dataclasses.replace(
        fp8lab.presets()["te-delayed"].gradient, history=7, margin=0.5, amax_algorithm="most_recent", zero_amax="keep_history"
    )
    assert fp8lab.linear_recipe(dataclasses.replace(plain, gradient=delayed), hardware="sm90").gradient == delayed
    wide = dataclasses.replace(plain, bf16_outputs=not plain.bf16_outputs, name="mine")
    moved = fp8lab.linear_recipe(wide, hardware="sm90")
    assert (moved.name, moved.bf16_outputs) == ("mine", not plain.bf16_outputs)
    for name in ("fprop", "dgrad", "wgrad"):
        settings = getattr(plain, name)
        changed = dataclasses.replace(settings, promotion_interval=256, scale_order="a_then_b_then_add")
        moved = fp8lab.linear_recipe(dataclasses.replace(plain, **{name: changed}), hardware="sm90")
        assert getattr(moved, name).scale_order == "a_then_b_then_add", name
        assert getattr(moved, name).promotion_interval == 256, name


@pytest.mark.parametrize(("first", "second"), [("te-current", "te-nvfp4"), ("te-nvfp4", "te-current"), ("te-nvfp4", "te-nvfp4")])
def test_a_recipe_of_two_levels_has_the_tensor_s_scale_behind_those_of_tiles(first, second):
    x = drawn(32, 64)
    recipes = [fp8lab.presets()[name].activation for name in (first, second)]
    one, two, _, _ = _core.linear_cast(recipes[0]._core(), recipes[1]._core(), x, True, True, EMPTY, EMPTY, 0)
    for made, recipe, transposed in ((one, recipes[0], False), (two, recipes[1], True)):
        q = fp8lab.quantize(x, recipe, transpose=True)
        q = q.transposed if transposed else q
        expected = q.inverse_scales.reshape(-1).tolist()
        if "nvfp4" in recipe.rule:
            expected.append(q.tensor_inverse_scale)
        assert made[1].tolist() == expected
        np.testing.assert_array_equal(made[0], q.codes.view(np.uint8))


def test_tiles_and_calls_know_one_scale_a_row():
    """The order of scales of a call is that of rows for [rows], [rows, 1], and tiles as long as K."""
    rng = np.random.default_rng(3)
    a, b = (fp8lab.encode(rng.standard_normal((rows, 256)).astype(f32)) for rows in (8, 6))
    rows, columns = rng.random(8, f32), rng.random(6, f32)
    expected = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", scale_order="b_then_fma_a", scale_a=rows, scale_b=columns)
    other = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", scale_a=rows, scale_b=columns)
    assert not np.array_equal(expected, other)
    for left, right in (
        (rows, columns), (rows[:, None], columns[:, None]), (fp8lab.Scales(rows[:, None], 1, 256), fp8lab.Scales(columns, 1)),
        (fp8lab.Scales(rows, 1, 0), fp8lab.Scales(columns[:, None], 1, 256)),
        (fp8lab.Scales(rows[:, None], 1, 256), fp8lab.Scales(columns[:, None], 1, 256)), (fp8lab.Scales(rows, 1, 256), None),
    ):  # fmt: skip
        d = fp8lab.gemm(a, b, call="cublaslt.h100.fast", scale_a=left, scale_b=right)
        by_hand = fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", scale_order="b_then_fma_a", scale_a=left, scale_b=right)
        np.testing.assert_array_equal(d, by_hand)
        if right is not None:
            np.testing.assert_array_equal(d, expected)
    first = columns[0]
    one = fp8lab.gemm(a, b, call="cublaslt.h100.fast", scale_a=rows[0], scale_b=first)
    np.testing.assert_array_equal(one, fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", scale_a=rows[0], scale_b=first))
