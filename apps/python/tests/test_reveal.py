"""Kernels whose order and unit are known, found again from outside."""

import re

import ml_dtypes
import numpy as np
import pytest

import fp8lab

f32 = np.float32
SMALL = {"m": 16, "n": 16, "k": 128}


def emulated(model, **options):
    return lambda a, b: fp8lab.gemm(a, b, model=model, **options)


def products(a, b):
    """[m, n, k] products in FP32, which are exact for FP8 operands."""
    return a.astype(f32)[:, None, :] * b.astype(f32)[None, :, :]


def one_after_the_other(a, b):
    d = np.zeros((len(a), len(b)), f32)
    for p in np.moveaxis(products(a, b), 2, 0):
        d = d + p
    return d


def kahan(a, b):
    d = np.zeros((len(a), len(b)), f32)
    lost = np.zeros_like(d)
    for p in np.moveaxis(products(a, b), 2, 0):
        y = p - lost
        t = d + y
        lost = (t - d) - y
        d = t
    return d


def halved(p):
    """Neighbours, then neighbours of these."""
    while p.shape[2] > 1:
        p = p[:, :, 0::2] + p[:, :, 1::2]
    return p[:, :, 0]


def leaves_of(text):
    """The tree's text as nested lists."""
    def expand(word):
        at = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?", word)
        return [int(word)] if not at else list(range(int(at[1]), int(at[2]) + 1, int(at[3] or 1)))

    stack = [[]]
    for token in re.findall(r"[()\[\]]|[^\s()\[\]]+", text):
        if token in "([":
            stack.append([])
        elif token in ")]":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].extend(expand(token))
    return stack[0][0]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("fused:terms=16,F=12,e_min=-1", {"terms": "16", "alignment_fraction_bits": "12", "min_alignment_exponent": "-1"}),
        ("fused:terms=8,F=20,M=17,rounding=nearest_even", {"output_fraction_bits": "17", "rounding": "nearest_even"}),
        ("fused:terms=32,F=10,M=9,rounding=downward", {"output_fraction_bits": "9", "rounding": "downward"}),
        ("fused:terms=16,F=13,output=f16", {"output_format": "f16", "alignment_fraction_bits": "13"}),
        ("fused:terms=32,product_exponent=normalized", {"product_exponent": "normalized"}),
        ("halves:terms=16,F=18", {"kind": "fp16_halves", "terms": "16", "alignment_fraction_bits": "18"}),
        ("even_odd:terms=8,S=28,a=e4m3fnuz,b=e4m3fnuz", {"kind": "even_odd_dot_product", "second_stage_fraction_bits": "28"}),
    ],
)  # fmt: skip
def test_units_that_no_registry_has(definition, expected):
    model = fp8lab.accumulator_model(definition)
    found = fp8lab.reveal(emulated(model), a_format=model.a_format, b_format=model.b_format, **SMALL)
    assert found.explained and found.equal == found.checked == 4 * 16 * 16, found
    assert {name: found.parameters[name] for name in expected} == {
        name: (value, value) for name, value in expected.items()
    }


def test_the_model_found_is_usable_everywhere(tmp_path):
    mine = fp8lab.accumulator_model("fused", terms=16, F=11, M=12)
    kernel = emulated(mine, promotion_interval=32)
    found = fp8lab.reveal(kernel, **SMALL)
    assert (found.promotion_interval, found.split_k, found.instructions) == (32, None, ())
    rng = np.random.default_rng(7)
    a, b = (fp8lab.encode(rng.standard_normal((9, 128), f32)) for _ in range(2))
    np.testing.assert_array_equal(fp8lab.gemm(a, b, **found.options), kernel(a, b))
    assert fp8lab.verify(kernel(a, b), (a, b), **found.options).verdict == "pass"
    (tmp_path / "m.toml").write_text(found.models_file)
    loaded = fp8lab.load_models(tmp_path / "m.toml")["revealed"]
    np.testing.assert_array_equal(fp8lab.gemm(a, b, model=loaded, promotion_interval=32), kernel(a, b))


def test_a_deviation_of_a_known_unit_is_found():
    planted = fp8lab.accumulator_model("sm90.wgmma.e4m3", F=14)
    found = fp8lab.reveal(emulated(planted), **SMALL)
    assert found.explained and found.instructions == ()
    assert found.parameters["alignment_fraction_bits"] == ("14", "14")
    assert fp8lab.reveal(emulated("sm90.wgmma.e4m3"), **SMALL).instructions[0] == "sm90.wgmma.e4m3"


def test_split_k_of_ones_own():
    def kernel(a, b):
        half = a.shape[1] // 2
        parts = [one_after_the_other(a[:, s], b[:, s]) for s in (slice(half), slice(half, None))]
        return parts[0] + parts[1]

    found = fp8lab.reveal(kernel, **SMALL)
    assert found.explained, found
    assert "K in 2 parts" in found.order or found.promotion_interval == 64
    found = fp8lab.reveal(
        emulated("sm90.wgmma.e4m3", split_k=fp8lab.SplitK(4, 32, "modulo", "pairwise")), m=16, n=16, k=256
    )
    assert found.explained and found.split_k.parts == 4 and found.split_k.cut == "modulo", found


def test_trees_of_plain_sums():
    found = fp8lab.reveal(one_after_the_other, **SMALL)
    assert found.explained and found.parameters["kind"][0] in ("float32", "sequential"), found
    tree = leaves_of(found.tree)
    for last in range(127, 1, -1):
        tree, leaf = tree
        assert leaf == last
    pairs = fp8lab.reveal(lambda a, b: halved(products(a, b)), m=8, n=8, k=16)
    assert leaves_of(pairs.tree) == [
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        [[[8, 9], [10, 11]], [[12, 13], [14, 15]]],
    ]
    backwards = fp8lab.reveal(lambda a, b: one_after_the_other(a[:, ::-1], b[:, ::-1]), m=8, n=8, k=16)
    assert backwards.tree == "(0 (1 (2 (3 (4 (5 (6 (7 (8 (9 (10 (11 (12 (13 (14 15)))))))))))))))"


def test_numpy_matmul_of_float32_evaluates_as_its_tree():
    def matmul(a, b):
        return a.astype(f32) @ b.astype(f32).T

    # One output: larger products take other code, and so another order, at their edges.
    found = fp8lab.reveal(matmul, a_format="f32", m=1, n=1, k=64)
    assert found.tree is not None, found

    def value(node, p):
        if isinstance(node, int):
            return p[node]
        total = value(node[0], p)
        for child in node[1:]:
            total = f32(total + value(child, p))
        return total

    # Products of few bits, which FMA and a product with a sum round alike.
    rng = np.random.default_rng(3)
    a, b = (np.ldexp(rng.integers(-8, 9, (16, 64)).astype(f32), rng.integers(-6, 7, (16, 64))) for _ in range(2))
    tree = leaves_of(found.tree)
    for i in range(16):
        assert value(tree, a[i] * b[i]) == matmul(a[i : i + 1], b[i : i + 1])[0, 0]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (kahan, r"not a tree of additions: .*compensated \(Kahan\)"),
        (lambda a, b: one_after_the_other(a, b) + np.random.default_rng().standard_normal(1).astype(f32), "for the same dot product"),
        (lambda a, b: np.zeros((len(a), len(b)), f32), "no pair of large and small products"),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_said(kernel, reason):
    found = fp8lab.reveal(kernel, m=8, n=8, k=32)
    assert not found.explained and found.model is None or found.equal < found.checked
    assert re.search(reason, found.failure), found.failure
    assert re.search(reason, str(found))


def test_outputs_of_two_bytes():
    def kernel(a, b):
        return fp8lab.gemm(a, b, model="sm90.wgmma.e4m3").astype(ml_dtypes.bfloat16)

    found = fp8lab.reveal(kernel, **SMALL)
    assert found.explained and (found.output, found.rounded_to) == ("bf16", "bf16"), found
    hidden = fp8lab.reveal(lambda a, b: kernel(a, b).astype(f32), **SMALL)
    assert hidden.explained and (hidden.output, hidden.rounded_to) == ("f32", "bf16"), hidden


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 1}, "k: expected 2 to"),
        ({"a_format": "e8m0fnu"}, "a_format: expected a format of operands"),
        ({"kernel": 3}, "kernel: expected a function"),
        ({"kernel": lambda a, b: np.zeros((3, 3), f32)}, r"kernel: expected outputs \[8, 8\], got \[3, 3\]"),
        ({"kernel": lambda a, b: np.zeros((8, 8))}, "kernel_format|kernel: expected"),
    ],
)
def test_bad_arguments_are_value_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        fp8lab.reveal(**({"kernel": one_after_the_other, "m": 8, "n": 8, "k": 16} | arguments))


def test_each_operand_has_the_dtype_of_its_format():
    seen = set()

    def kernel(a, b):
        seen.add((a.dtype.name, b.dtype.name, a.shape, b.shape))
        return fp8lab.gemm(a, b, model="sm90.wgmma.e4m3.e5m2" if a.dtype == ml_dtypes.float8_e4m3fn else "sm90.wgmma.e5m2.e4m3")

    for a_format, b_format in (("e4m3fn", "e5m2"), ("e5m2", "e4m3fn")):
        seen.clear()
        fp8lab.reveal(kernel, a_format=a_format, b_format=b_format, m=8, n=4, k=64)
        assert seen == {(f"float8_{a_format}", f"float8_{b_format}", (8, 64), (4, 64))}
