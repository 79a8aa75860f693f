"""Every public function with every dtype of NumPy and ml_dtypes in every place that takes an array."""

import ml_dtypes
import numpy as np
import pytest
from dtype_table import (
    A,
    A_CHECKED,
    B,
    B_CHECKED,
    CODES,
    E4M3,
    SCALES,
    Place,
    array_parameters,
    exact,
    golden_attention,
    outcome,
    public_functions,
    raw,
    table,
)

import fp8lab

TABLE = table()
TYPED = {**CODES, "float8_e8m0fnu": "e8m0fnu"}
#: Every scalar type that the two packages have: a new one is in the table by itself.
DTYPES = {
    **{np.dtype(t).name: np.dtype(t) for t in set(np.sctypeDict.values())},
    "longdouble": np.dtype(np.longdouble),
    **{
        name: np.dtype(item)
        for name, item in vars(ml_dtypes).items()
        if isinstance(item, type) and issubclass(item, np.generic)
    },
    "big-endian float32": np.dtype(">f4"),
}
DTYPES.pop(np.dtype(np.longdouble).name, None)


def of_dtype(values, dtype):
    """`values` in a dtype, or None where it has no numbers."""
    if dtype.kind in "SUOVmM" and dtype.name not in vars(ml_dtypes):
        return np.zeros(values.shape, dtype if dtype.itemsize else f"{dtype.kind}4")
    if dtype.kind == "O":
        return values.astype(object)
    return values.astype(dtype)


def canonical(place):
    """What a working cell must give."""
    dtypes = {"codes": ml_dtypes.float8_e4m3fn, "typed": ml_dtypes.float8_e4m3fn, "bytes": np.uint8}
    return place.run(place.values.astype(dtypes.get(place.kind, np.float32)), {})


def words(values, name):
    """Codes of a format as uint8 or uint16."""
    typed = values.astype(DTYPES[name])
    return typed.view({1: np.uint8, 2: np.uint16}[typed.itemsize])


@pytest.mark.parametrize("name", TABLE)
def test_each_dtype_works_or_is_refused_by_name(name):
    place = TABLE[name]
    expected = canonical(place)
    for label, dtype in DTYPES.items():
        x = of_dtype(place.values, dtype)
        got = outcome(place, x, {})
        if label in place.works or (label == "big-endian float32" and "float32" in place.works):
            assert got == expected, f"{name} of {label}: {'refused' if got is None else 'other bits'}"
        elif place.kind == "attention" and label in TYPED:
            again = outcome(place, words(place.values, label), {place.state: TYPED[label]})
            assert got is not None and got == again, f"{name} of {label}"
        elif name == "write.tables" and label in ("bool", "str"):
            assert got is not None
        elif place.kind in ("typed", "scales", "plain scales") and label == "uint8" and got is not None:
            assert place.kind == "typed", f"{name}: bytes were read as numbers"
        else:
            assert got is None, f"{name} of {label} is neither refused nor in the table"


STATED = [name for name, place in TABLE.items() if place.state]


@pytest.mark.parametrize("name", STATED)
def test_bytes_are_what_their_keyword_says(name):
    place = TABLE[name]
    formats = {"scales": {"float8_e8m0fnu": "e8m0fnu", "float8_e4m3fn": "e4m3fn"}}.get(place.kind, CODES)
    worked = 0
    for label, stated in formats.items():
        typed = outcome(place, of_dtype(place.values, DTYPES[label]), {})
        got = outcome(place, words(place.values, label), {place.state: stated})
        assert got == typed, f"{name} of uint8 that is {stated}"
        worked += got is not None
    assert worked
    for wrong in ("e9m9", "f64", 3):
        assert outcome(place, words(place.values, "float8_e4m3fn"), {place.state: wrong}) is None


@pytest.mark.parametrize("name", [name for name in STATED if TABLE[name].kind in ("codes", "attention")])
def test_packed_codes_are_those_of_one_a_byte(name):
    place = TABLE[name]
    for label, stated, size, width in (
        ("float4_e2m1fn", "e2m1x2", 2, 4),
        ("float6_e2m3fn", "e2m3x4", 4, 6),
        ("float6_e3m2fn", "e3m2x4", 4, 6),
    ):
        codes = words(place.values, label).reshape(-1, size)
        numbers = (codes.astype(np.uint32) << (width * np.arange(size, dtype=np.uint32))).sum(1, dtype=np.uint32)
        packed = numbers.view(np.uint8).reshape(-1, 4)[:, : size * width // 8].copy()
        packed = packed.reshape(*place.values.shape[:-1], -1)
        typed = outcome(place, of_dtype(place.values, DTYPES[label]), {})
        assert outcome(place, packed, {place.state: stated}) == typed
        assert outcome(place, packed.astype(np.uint16), {place.state: stated}) is None
        if packed.shape[-1] > 1:
            turned = np.ascontiguousarray(packed.swapaxes(-1, -2)).swapaxes(-1, -2)
            assert outcome(place, turned, {place.state: stated}) is None, "packed along another dimension"
        if size == 4:
            assert outcome(place, packed[..., :-1], {place.state: stated}) is None


def block_of(codes):
    """One block of 128x4, whose codes beyond the grid are 1 of both formats of scales."""
    block = np.full(512, codes.flat[0], codes.dtype)
    for row, tile in np.ndindex(codes.shape):
        block[row % 32 * 16 + row // 32 * 4 + tile] = codes[row, tile]
    return block


def words_of_exponents(values):
    """[rows, 1] words of two E8M0 codes, the first in the lowest byte."""
    return (values.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8).astype(np.uint32) << [0, 8]).sum(1, dtype=np.uint32)[:, None]


#: How a grid of scales stands in each layout, in a dtype; and the dtypes that can hold it.
LAYOUTS = {
    "row_major": (of_dtype, SCALES),
    "column_major": (lambda values, dtype: of_dtype(values.T, dtype), SCALES),
    "packed_ue8m0": (lambda values, dtype: of_dtype(words_of_exponents(values), dtype), {"int32", "uint32"}),
    "packed_ue8m0_column_major": (
        lambda values, dtype: of_dtype(np.pad(words_of_exponents(values), ((0, 4 - len(values)), (0, 0))).T, dtype), {"int32", "uint32"}
    ),
    "blocked_128x4": (lambda values, dtype: block_of(of_dtype(values, dtype)), {"float8_e8m0fnu", "float8_e4m3fn"}),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "function",
    [fp8lab.gemm, fp8lab.gemm_groups, fp8lab.verify, fp8lab.verify_groups, fp8lab.identify, fp8lab.identify_groups,
     fp8lab.testing.assert_matches],
    ids=lambda function: function.__name__,
)  # fmt: skip
@pytest.mark.parametrize("role", "ab")
def test_scales_of_every_layout_have_a_dtype_that_holds_them(role, function, layout):
    grouped, checks = function.__name__.endswith("_groups"), not function.__name__.startswith("gemm")
    left, right = (A_CHECKED, B_CHECKED) if checks else (A, B)
    more = {} if function.__name__.startswith("identify") else {"promotion_interval": 2}
    if function is fp8lab.testing.assert_matches:
        more["require_power"] = False
    values = np.ones((2, 2), np.float32) if checks else np.array([[1, 2], [4, 1]], np.float32)
    lead = (lambda x: x[None]) if grouped else (lambda x: x)
    call = exact(function, a=lead(left.astype(E4M3)), b=lead(right.astype(E4M3)), **more)
    if role == "b":
        values = np.concatenate([values, values[:1] * 2 if not checks else values[:1]])

    def run(x, stated):
        scales = {f"scale_{role}": fp8lab.Scales(lead(x), 1, 2, layout=stated["layout"])}
        return call(**scales, scale_format=stated.get("scale_format"))

    place = Place(values, run, "scales", frozenset(), (f"scale_{role}", "scale_format"))
    expected = run(values, {"layout": "row_major"})
    arranged, works = LAYOUTS[layout]
    for label, dtype in DTYPES.items():
        got = outcome(place, arranged(values, dtype), {"layout": layout})
        working = label in works or (label == "big-endian float32" and "float32" in works)
        assert got == (expected if working else None), f"{layout} of {label}: {'refused' if got is None else 'read'}"
    for label, stated in (("float8_e8m0fnu", "e8m0fnu"), ("float8_e4m3fn", "e4m3fn")):
        if label in works:
            codes = arranged(values, DTYPES[label]).view(np.uint8)
            assert outcome(place, codes, {"layout": layout, "scale_format": stated}) == expected
            assert outcome(place, codes, {"layout": layout}) is None, "bytes were read as numbers"


def test_no_layout_is_left_out():
    with pytest.raises(ValueError) as caught:
        fp8lab.gemm(A.astype(E4M3), B.astype(E4M3), model="exact", scale_a=fp8lab.Scales([[1.0]], layout="none"))
    said = str(caught.value)
    assert all(name in said for name in LAYOUTS) and said.count("_major") + said.count("packed_ue8m0,") == 4, said


@pytest.mark.parametrize("name", TABLE)
def test_masks_and_nested_lists_are_refused(name):
    place = TABLE[name]
    if place.kind == "kernel":
        return
    assert outcome(place, np.ma.masked_array(place.values, place.values > 1), {}) is None
    assert outcome(place, [[1, 2], [3]], {}) is None
    assert outcome(place, {"a": 1}, {}) is None


def test_no_public_function_is_left_out():
    """A place for each parameter that takes an array; the table has no place of a function that is gone."""
    missing = []
    covered = {name.split(" ")[0] for name in TABLE}
    functions = dict(public_functions())
    for name, function in functions.items():
        for parameter in array_parameters(function):
            stands_for = {"inputs": ("a", "inputs"), "cases": ("cases",)}.get(parameter, (parameter,))
            if not any(f"{name}.{one}" in covered for one in stands_for):
                missing.append(f"{name}.{parameter}")
    assert not missing
    known = {*functions, "QuantizedTensor"}
    assert all(name.rsplit(".", 1)[0] in known for name in covered), sorted(covered)
    assert len(TABLE) > 70 and len(DTYPES) > 40


def test_the_exact_product_of_the_table():
    gemm = TABLE["gemm.a"]
    b = np.array([[1, 1, 2, 4], [4, 2, 1, 1], [1, 4, 1, 1]], float)
    assert canonical(gemm) == raw((A.astype(float) @ b.T).astype(np.float32))
    inputs = golden_attention()
    o = fp8lab.attention(**inputs).o
    assert o.shape == (2, 32) and ((o > 1) & (o < 4)).all()
