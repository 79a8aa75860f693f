"""Every public function that takes arrays, every place where it takes one, and what may stand there.

A cell of the table is a place and a dtype. It works and gives the bits of `float32` values or of `uint8`
codes, or it raises ValueError or TypeError that names the argument, what was expected and what came.
`test_dtypes.py` fills it with the dtypes of NumPy and ml_dtypes, `pytorch/test_dtypes.py` with torch's.
The numbers are 1, 2 and 4, which every format has.
"""

import dataclasses
import inspect
import re

import ml_dtypes
import numpy as np

import fp8lab
import fp8lab.results
import fp8lab.testing

f32 = np.float32
A = np.array([[1, 2, 4, 1], [2, 1, 1, 4]], f32)
B = np.array([[1, 1, 2, 4], [4, 2, 1, 1], [1, 4, 1, 1]], f32)
# Of checks: outputs are powers of two, which a format of any width has.
A_CHECKED = np.repeat(np.array([[1], [2]], f32), 4, 1)
B_CHECKED = np.repeat(np.array([[1], [2], [4]], f32), 4, 1)
GOT = A_CHECKED @ B_CHECKED.T
ROWS = np.array([1, 2], f32)
BATCHED = fp8lab.Groups("batched")
E4M3 = ml_dtypes.float8_e4m3fn
QUARTER = np.tile(B, (1, 8))  # [3, 32]

#: The formats of codes, and those of eight bits or fewer.
WIDE = {"float16": "f16", "bfloat16": "bf16"}
#: Formats beyond the table, which no product has as its output.
BEYOND = {"float8_e3m4": "e3m4", "float8_e4m3": "e4m3_ieee", "float8_e4m3b11fnuz": "e4m3b11fnuz"}
CODES = {
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1",
    **BEYOND,
}
FLOATS = {"float32", "float64", "longdouble", "float16", "bfloat16", "float8_e8m0fnu", *CODES}
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
#: An array of 64-bit integers is what a list of Python's numbers becomes; narrower ones may be codes.
SCALES = FLOATS | {"int64"}
OUTPUTS = {"float32", "float16", "bfloat16", *(name for name in CODES if name.startswith("float8") and name not in BEYOND)}
EVERY = frozenset(FLOATS | INTEGERS)


@dataclasses.dataclass(frozen=True)
class Place:
    """One place for an array: what it should hold, and how the function is called with it there."""

    values: np.ndarray
    run: object  #: (array, keywords that state a format) -> bytes
    kind: str  #: "codes", "values", "scales" or "output"
    works: frozenset  #: names of dtypes
    names: tuple  #: what a refusal may call it
    state: str | None = None  #: the keyword that states the format of uint8


def raw(x):
    return np.ascontiguousarray(x).tobytes()


def exact(function, **fixed):
    """A call with a, b and got by keyword, of what a product's functions take."""

    def run(**given):
        call = {"a": A.astype(E4M3), "b": B.astype(E4M3), "model": "exact"} | fixed | given
        a, b = call.pop("a"), call.pop("b")
        if function in (fp8lab.gemm, fp8lab.gemm_groups):
            groups = [BATCHED] if function is fp8lab.gemm_groups else []
            return raw(function(a, b, *groups, **call))
        got = call.pop("got", None)
        if got is None:
            got = GOT[None] if function.__name__.endswith("_groups") else GOT
        groups = [BATCHED] if function in (fp8lab.verify_groups, fp8lab.identify_groups) else []
        if function in (fp8lab.identify, fp8lab.identify_groups):
            call.pop("model")
        found = function(got, (a, b), *groups, **call)
        if function is fp8lab.testing.assert_matches:
            return b"passed"
        if function in (fp8lab.verify, fp8lab.verify_groups):
            return repr((found.bit_mismatches, found.verdict)).encode()
        ranking = found.ranking if function is fp8lab.identify else found.found.ranking
        return repr([(one.matches, one.compared) for one in ranking[:3]]).encode()

    return run


def places_of_products():
    """The places of `gemm` in all functions that have them."""
    for function in (
        fp8lab.gemm,
        fp8lab.verify,
        fp8lab.testing.assert_matches,
        fp8lab.identify,
        fp8lab.gemm_groups,
        fp8lab.verify_groups,
        fp8lab.identify_groups,
    ):
        name = function.__name__
        grouped = name.endswith("_groups")
        checks = not name.startswith("gemm")
        lead = (lambda x: x[None]) if grouped else (lambda x: x)
        left, right = (A_CHECKED, B_CHECKED) if checks else (A, B)
        base = {"a": lead(left.astype(E4M3)), "b": lead(right.astype(E4M3))}
        if name == "assert_matches":
            base["require_power"] = False
        run = exact(function, **base)

        def with_(role, run=run, **more):
            return lambda x, stated: run(**{role: x}, **more, **stated)

        codes = frozenset({*CODES, *WIDE, "float8_e8m0fnu"})
        yield f"{name}.a", Place(lead(left), with_("a"), "codes", codes, ("a", "a_format", "A"), "a_format")
        yield f"{name}.b", Place(lead(right), with_("b"), "codes", codes, ("b", "b_format", "B"), "b_format")
        enters = {} if name.startswith("identify") else {"c_enters": "epilogue"}
        c = np.array([[1, 2, 4], [4, 1, 2]], f32)
        if checks:
            enters["got"] = lead(GOT + c)
        yield f"{name}.c", Place(lead(c), with_("c", **enters), "values", EVERY, ("c",))
        tiles = {} if name.startswith("identify") else {"promotion_interval": 2}
        for role, rows in (("a", 2), ("b", 3)):
            # In checks, scales of 1 leave the output as it is.
            values = np.ones((rows, 2), f32) if checks else np.array([[1, 2], [4, 1], [2, 4]][:rows], f32)
            key = f"scale_{role}"

            def scaled(x, stated, key=key, run=run, tiles=tiles):
                return run(**{key: fp8lab.Scales(x, 1, 2)}, **tiles, **stated)

            allowed = (key, "scale_format")
            yield f"{name}.{key}", Place(lead(values), scaled, "scales", frozenset(SCALES), allowed, "scale_format")

            def by_rows(x, stated, key=key, run=run):
                return run(**{key: x}, **stated)

            yield f"{name}.{key} by rows", Place(
                lead(values[:, :1]), by_rows, "scales", frozenset(SCALES), allowed, "scale_format"
            )
        for field, x in (("bias", [1, 2, 4]), ("row_scales", [2, 4]), ("column_scales", [4, 1, 2])):
            x = np.array(x, f32)
            right_one = {"bias": lambda x: GOT + x, "row_scales": lambda x: GOT * x[:, None], "column_scales": lambda x: GOT * x}
            more = {"got": lead(right_one[field](x))} if checks else {}

            def run_around(given, stated, run=run, field=field, more=more):
                return run(epilogue=fp8lab.Epilogue(**{field: given}), **more, **stated)

            yield f"{name}.epilogue {field}", Place(x, run_around, "values", EVERY, (field,))
        if checks:
            yield f"{name}.got", Place(lead(GOT), with_("got"), "output", frozenset(OUTPUTS), ("got", "got_format"), "got_format")


def attention(**given):
    q = np.tile(A, (1, 8)) / f32(4)
    call = {"q": q, "k": QUARTER, "v": QUARTER, "qk_model": "exact", "pv_model": "exact", "kv_tile": 32} | given
    return fp8lab.attention(**call)


def golden_attention():
    return {"q": np.tile(A, (1, 8)), "k": QUARTER, "v": QUARTER, "kv_tile": 32}


def verdict(function):
    def run(got, stated):
        call = golden_attention()
        inputs = tuple(call.pop(name) for name in "qkv")
        found = function(got, inputs, **call, **stated)
        return b"passed" if found is None else repr(found.bit_mismatches).encode()

    return run


def places_of_attention():
    values = {"q": np.tile(A, (1, 8)), "k": QUARTER, "v": QUARTER}
    floats = frozenset({"float32", "float64", "longdouble", "float16", "bfloat16"} | (INTEGERS - {"int8", "uint8"}))
    for role, x in values.items():

        def run(given, stated, role=role):
            return raw(attention(**{role: given}, **stated).o)

        yield f"attention.{role}", Place(x, run, "attention", floats, (role, "codes_format"), "codes_format")

        def check(given, stated, role=role):
            return repr(fp8lab.verify_attention(
                attention(**{role: given}, **stated).o,
                tuple({"q": values["q"] / f32(4), "k": QUARTER, "v": QUARTER, role: given}[one] for one in "qkv"),
                qk_model="exact", pv_model="exact", kv_tile=32, **stated,
            ).bit_mismatches).encode()  # fmt: skip

        yield f"verify_attention.inputs {role}", Place(x, check, "attention", floats, (role, "codes_format"), "codes_format")

        def assertion(given, stated, role=role):
            fp8lab.testing.assert_attention_matches(
                attention(**{role: given}, **stated).o,
                tuple({"q": values["q"] / f32(4), "k": QUARTER, "v": QUARTER, role: given}[one] for one in "qkv"),
                qk_model="exact", pv_model="exact", kv_tile=32, **stated,
            )  # fmt: skip
            return b"passed"

        yield f"assert_attention_matches.inputs {role}", Place(
            x, assertion, "attention", floats, (role, "codes_format"), "codes_format"
        )
    for role, x in values.items():

        def scaled(given, stated, role=role, function=fp8lab.attention):
            coded = {one: values[one].astype(E4M3) for one in "qkv"}
            return raw(fp8lab.attention(**coded, kv_tile=32, **{f"{role}_scales": given}).o)

        key = f"{role}_scales"
        for name in ("attention", "verify_attention", "assert_attention_matches"):
            yield f"{name}.{key}", Place(np.array([2], f32), scaled, "plain scales", frozenset(SCALES), (key,))
    outputs = frozenset(OUTPUTS)
    for function in (fp8lab.verify_attention, fp8lab.testing.assert_attention_matches):
        yield f"{function.__name__}.got", Place(
            fp8lab.attention(**golden_attention()).o, verdict(function), "output", outputs, ("got", "got_format"), "got_format"
        )


def places_of_sage():
    values = {"q": np.tile(A, (1, 8)), "k": QUARTER, "v": QUARTER}
    # A float16 q would have FP16 numbers taken from all three.
    bf16 = {"input_format": "bf16"}
    right = fp8lab.sage_attention(**values, **bf16).o

    def check(got, stated, **changed):
        inputs = tuple((values | changed)[one] for one in "qkv")
        return repr(fp8lab.verify_sage_attention(got, inputs, **bf16, **stated).bit_mismatches).encode()

    for role, x in values.items():

        def run(given, stated, role=role):
            return raw(fp8lab.sage_attention(**values | {role: given}, **bf16, **stated).o)

        yield f"sage_attention.{role}", Place(x, run, "values", EVERY, (role,))
        yield f"verify_sage_attention.inputs {role}", Place(
            x, lambda given, stated, role=role: check(right, stated, **{role: given}), "values", EVERY, (role,)
        )
    yield "verify_sage_attention.got", Place(
        right, check, "output", frozenset(OUTPUTS), ("got", "got_format"), "got_format"
    )


def of_codes(function):
    return lambda x, stated: raw(function(x, **stated))


def golden():
    return fp8lab.vectors("sm90.wgmma.e4m3", 2, terms=4)


def replayed(field):
    def run(x, stated):
        made = dataclasses.replace(golden(), **{field: x})
        made = dataclasses.replace(made, **({} if field in "ab" else {"c": made.c, "d": made.d, field: x}))
        return repr(fp8lab.replay(made)).encode()

    return run


def block_scaled(field):
    """UE8M0 codes of block scales: bytes alone, whose format the header says."""

    def run(x, stated):
        made = fp8lab.vectors("sm100.tcgen05.mxf8f6f4.e4m3", 2)
        return repr(fp8lab.replay(dataclasses.replace(made, **{field: x}))).encode()

    return run


def quantized(x=None, **changed):
    made = fp8lab.quantize(A)
    return dataclasses.replace(made, **changed)


def kernel_of(dtype_of):
    """`reveal` of a kernel whose outputs have a dtype."""

    def run(x, stated):
        def kernel(a, b):
            return type_like(fp8lab.gemm(a, b, model="fp32"), x)

        return repr((fp8lab.reveal(kernel, m=4, n=4, k=32).tree,)).encode()

    return run


def type_like(values, x):
    """`values` in the array type of `x`: NumPy's or torch's."""
    if isinstance(x, np.ndarray):
        return values.astype(x.dtype)
    import torch

    return torch.from_numpy(values).to(x.dtype)


def written(x, stated):
    import pathlib
    import tempfile

    column = fp8lab.results.Column("x", "1", "numbers")
    with tempfile.TemporaryDirectory() as folder:
        table = fp8lab.results.Table("t", "T", (column,), {"x": x})
        path = fp8lab.results.write(folder, [table], experiment="e", question="?")
        column = fp8lab.results.read(pathlib.Path(path))["t"]["x"]
        return raw(column if column.dtype.kind == "U" else column.astype(np.float64))


def cast_found(x=A, codes=None, scales=None, **stated):
    """Whether a search with these arrays got through, and its answer for x."""
    made = fp8lab.quantize(A)
    codes, scales = made.codes if codes is None else codes, made.inverse_scales if scales is None else scales
    found = fp8lab.identify_cast(x, codes, scales, **stated)
    return repr((found.explained, len(found.recipes)) if codes is made.codes else "read").encode()


def table():
    """All places by name."""
    places = dict(places_of_products()) | dict(places_of_attention()) | dict(places_of_sage())
    encoded = lambda x, stated: raw(fp8lab.encode(x))  # noqa: E731
    told = lambda x, stated: repr(fp8lab.encode_with_statistics(x)).encode()  # noqa: E731
    quantizers = {
        "quantize.x": lambda x, stated: raw(fp8lab.quantize(x).dequantize()),
        "Quantizer.quantize.x": lambda x, stated: raw(fp8lab.Quantizer().quantize(x).dequantize()),
        "Quantizer.observe.x": observed,
        "QuantizedTensor.statistics.x": lambda x, stated: repr(fp8lab.quantize(A).statistics(x)).encode(),
    }
    places |= {
        "encode.x": Place(A, encoded, "values", EVERY, ("x",)),
        "encode_with_statistics.x": Place(A, told, "values", EVERY, ("x",)),
        **{name: Place(A, run, "values", EVERY, ("x",)) for name, run in quantizers.items()},
        "decode.codes": Place(
            A, of_codes(fp8lab.decode), "codes", frozenset({*CODES, "float8_e8m0fnu"}), ("codes", "format"), "format"
        ),
        "compare.reference": Place(
            A, lambda x, stated: repr(fp8lab.compare(x, B[:2])).encode(), "values", EVERY, ("reference",)
        ),
        "compare.actual": Place(A, lambda x, stated: repr(fp8lab.compare(B[:2], x)).encode(), "values", EVERY, ("actual",)),
        "QuantizedTensor.codes": Place(
            A, lambda x, stated: raw(quantized(codes=x).dequantize()), "typed", frozenset({"float8_e4m3fn"}),
            ("codes", "codes_format"),
        ),
        "QuantizedTensor.scales": Place(
            np.array([[2]], f32), lambda x, stated: raw(quantized(scales=x).dequantize()), "values", EVERY, ("scales",)
        ),
        "QuantizedTensor.inverse_scales": Place(
            np.array([[2]], f32), lambda x, stated: raw(quantized(inverse_scales=x).dequantize()), "values", EVERY,
            ("inverse_scales",),
        ),
        "identify_cast.x": Place(A, lambda x, stated: cast_found(x), "values", EVERY, ("x",)),
        "identify_cast.codes": Place(
            A, lambda x, stated: cast_found(codes=x), "typed", frozenset({"float8_e4m3fn", "float8_e5m2"}),
            ("codes", "codes_format", "scales"),  # no recipe has one scale for codes of other formats
        ),
        "identify_cast.scales": Place(
            np.array([[2]], f32), lambda x, stated: cast_found(scales=x, **stated), "scales", frozenset(SCALES),
            ("scales", "scale_format"), "scale_format",
        ),
        "pack_kv_rows.x": Place(np.ones((1, 576), f32), lambda x, stated: raw(fp8lab.pack_kv_rows(x)), "values", EVERY, ("x",)),
        "read_kv_rows.rows": Place(
            np.zeros((1, 656), f32), lambda x, stated: raw(fp8lab.read_kv_rows(x)), "bytes", frozenset({"uint8"}), ("rows",)
        ),
        "replay.cases a": Place(A, replayed("a"), "typed", frozenset({"float8_e4m3fn"}), ("a", "a_format")),
        "replay.cases b": Place(A, replayed("b"), "typed", frozenset({"float8_e4m3fn"}), ("b", "b_format")),
        "replay.cases c": Place(ROWS, replayed("c"), "values", EVERY, ("c",)),
        "replay.cases d": Place(ROWS, replayed("d"), "values", EVERY, ("d",)),
        "reveal.kernel": Place(
            A, kernel_of(None), "kernel", frozenset({"float32", "float16", "bfloat16"}), ("kernel",)
        ),
        "write.tables": Place(
            ROWS, written, "values", EVERY, ("t: data: x", "t: data")
        ),
    }  # fmt: skip
    return places


def observed(x, stated):
    quantizer = fp8lab.Quantizer("inference-static")
    quantizer.observe(x)
    return raw(quantizer.quantize(B).dequantize())


#: What takes no array, with the annotations that say so looked at by the test.
ARRAYS = re.compile(r"ArrayLike|NDArray|QuantizedTensor|Vectors\b|Callable|Sequence\[Any\]")
#: Arrays that other places stand for: options of `gemm` in a dictionary, models of a list.
NO_ARRAYS = {"models", "groups"}


def public_functions():
    """Every public function and method, by the name that places have."""
    for module in (fp8lab, fp8lab.testing, fp8lab.results):
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item):
                yield name, item
            elif inspect.isclass(item):
                for member, value in vars(item).items():
                    if inspect.isfunction(value) and not member.startswith("_"):
                        yield f"{name}.{member}", value


def array_parameters(function):
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation if isinstance(parameter.annotation, str) else repr(parameter.annotation)
        if name == "epilogue" or (ARRAYS.search(hint) and name not in NO_ARRAYS):
            yield name
        if "AttentionOptions" in hint:
            yield from ("q_scales", "k_scales", "v_scales")


REFUSAL = re.compile(r"^(?:group \d+: )?(?P<argument>[\w. :]+?): expected .+, got .+", re.S)


def outcome(place, x, stated):
    """The bits, or the refusal; anything else that is raised is an error of its own."""
    try:
        return place.run(x, stated)
    except (ValueError, TypeError) as error:
        said = REFUSAL.match(str(error))
        assert said, f"{type(error).__name__} that names no argument, expected and got: {error}"
        assert said["argument"] in place.names, f"one of {place.names}: {error}"
        return None
