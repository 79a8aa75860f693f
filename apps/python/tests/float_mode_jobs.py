"""Every public function once, with what it gives as a digest: usage: float_mode_jobs.py MODE

MODE: nearest, up, down or zero, and `-flush` behind it for subnormals that are flushed. A process of its
own, so that tables which the first call makes are made under the mode too. test_float_mode.py compares.
"""

import ctypes
import dataclasses
import functools
import hashlib
import inspect
import json
import struct
import sys
import tempfile
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np

import fp8lab
from fp8lab import results, testing

libm = ctypes.CDLL("libm.so.6")
environment = (ctypes.c_uint32 * 8)()  # of x87 seven words, then MXCSR
FLUSH = 0x8040
ROUNDING = {"nearest": 0, "down": 0x2000, "up": 0x4000, "zero": 0x6000}

f32 = np.float32


def mxcsr():
    libm.fegetenv(environment)
    return environment[7] & 0xFFC0


def enter(mode):
    rounding, _, flush = mode.partition("-")
    libm.fegetenv(environment)
    environment[7] |= ROUNDING[rounding] | (FLUSH if flush else 0)
    environment[0] |= ROUNDING[rounding] >> 3  # x87's
    libm.fesetenv(environment)


def feed(digest, x):
    """All of a result, numbers by their bits."""
    if isinstance(x, np.ndarray):
        digest.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    elif isinstance(x, float):
        digest.update(struct.pack("<d", x))
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        for field in dataclasses.fields(x):
            feed(digest, getattr(x, field.name))
    elif isinstance(x, dict):
        for key, value in x.items():
            feed(digest, key)
            feed(digest, value)
    elif isinstance(x, (tuple, list)):
        digest.update(b"(")
        for one in x:
            feed(digest, one)
    elif isinstance(x, np.generic):
        feed(digest, np.asarray(x))
    elif x is None or isinstance(x, (bool, int, str, bytes)):
        digest.update(repr(x).encode())
    else:
        raise TypeError(f"no bits of {type(x)}")


def drawn(seed, *shape):
    """Values around 1, and every third one subnormal in binary32 or nearly so."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(f32)
    tiny = (x * f32(2.0**-100) * f32(2.0**-30)).astype(f32)
    return np.where(np.arange(x.size).reshape(shape) % 3 == 0, tiny, x)


# Made in the mode of the interpreter's start, before any other is entered: jobs compute nothing themselves.
X = drawn(1, 32, 256)
Y = (X + f32(1e-6)).astype(f32)
TINY = drawn(2, 16, 256) * f32(2.0**-20)
AS_DOUBLE = X.astype(np.float64)
ROWS = np.abs(drawn(3, 32)) + f32(2.0**-140)
TILES = np.abs(drawn(4, 32, 2)) + f32(0.1)
E4M3 = ml_dtypes.float8_e4m3fn
CODES = np.clip(X * 4, -448, 448).astype(E4M3)
TINY_DOUBLE = TINY.astype(np.float64)
OFF = AS_DOUBLE * 1.000001
POSITIVE = np.abs(X) + f32(1)
HALF = X.astype(np.float16)
QKV = [np.clip(drawn(seed, 2, 32, 32), -4, 4) for seed in (5, 6, 7)]
QKV_CODES = [np.clip(x * 64, -448, 448).astype(E4M3) for x in QKV]
HEADS = np.array([0.1, 0.3], f32)
C_DOUBLE = drawn(8, 32, 32).astype(np.float64)
BIAS = ROWS.astype(np.float64)
WRITTEN = np.concatenate([OFF[0, :50], [5e-324, 1e300, 0.1]])
TALL = {id(x): np.tile(x, (8, 1))[:128] for x in (X, TINY)}
TENTH, THIRD, SEVENTH, SUBNORMAL = f32(0.1), f32(0.3), f32(0.7), f32(1e-44)
GROUPS = fp8lab.Groups("batched")
HOPPER = {"model": "sm90.wgmma.e4m3", "promotion_interval": 128}
SCALED = {"scale_a": fp8lab.Scales(TILES, 1, 128, 0.3), "scale_b": SEVENTH}
EPILOGUE = fp8lab.Epilogue(
    alpha=0.1, bias=BIAS, row_scales=ROWS, column_scales=ROWS, beta=0.3, activation="leaky_relu",
    slope=0.013, output_scale=0.7, activation_ulps=3.3,
)  # fmt: skip
GELU = fp8lab.Epilogue(alpha=0.01, activation="gelu")
C = drawn(8, 32, 32)
TABLE = """# fp8lab cublaslt 2
# gpu: a simulated one
# model: sm90.wgmma.e4m3
m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding
32,32,256,e4m3fn,e4m3fn,bf16,fast,192,1,0,2,128,contiguous,serial,b_then_fma_a,once
"""
JOBS = {}


def job(*names):
    def add(function):
        for name in names:
            assert name not in JOBS, name
            JOBS[name] = function
        return function

    return add


@job("encode", "encode_with_statistics")
def _():
    for x in (X, HALF, AS_DOUBLE, TINY_DOUBLE):
        for name in ("e4m3fn", "e5m2", "e2m1", "e8m0fnu", "bf16"):
            profile = "nvidia_satfinite" if name != "e8m0fnu" else "ml_dtypes"
            given = POSITIVE if name == "e8m0fnu" else x
            yield fp8lab.encode(given, name, scale=0.3, profile=profile)
            yield fp8lab.encode_with_statistics(given, name, scale=1e30, profile=profile)
    yield fp8lab.encode(X, rounding="stochastic", seed=3, scale=0.1)


@job("decode")
def _():
    codes = np.arange(256, dtype=np.uint8)
    for name in ("e4m3fn", "e5m2", "e8m0fnu"):
        yield fp8lab.decode(codes, name, inverse_scale=0.1)
        yield fp8lab.decode(codes, name, inverse_scale=1e-38)
    yield fp8lab.decode(codes, "e2m1x2", inverse_scale=0.1)


@job("compare")
def _():
    yield fp8lab.compare(X, Y)
    yield fp8lab.compare(OFF, Y)


@job("gemm")
def _():
    for model in ("sm90.wgmma.e4m3", "sm100.mma.e4m3", "fp32", "exact"):
        yield fp8lab.gemm(CODES, CODES, model=model, promotion_interval=128, **SCALED)
        yield fp8lab.gemm(CODES, CODES, model=model, c=C_DOUBLE, epilogue=EPILOGUE)
    yield fp8lab.gemm(CODES, CODES, model="fp32", epilogue=GELU, scale_a=TENTH)
    yield fp8lab.gemm(CODES, CODES, model="fp32", split_k=fp8lab.SplitK(2, 64), scale_a=SUBNORMAL, scale_b=ROWS)
    ue8m0 = np.arange(100, 132, dtype=np.uint8).reshape(32, 1).view(ml_dtypes.float8_e8m0fnu)
    yield fp8lab.gemm(CODES, CODES, model="fp32", scale_a=ue8m0)


@job("gemm_groups")
def _():
    a = CODES.reshape(2, 16, 256)
    scales = fp8lab.Scales(TILES.reshape(2, 16, 2), 1, 128, HEADS)
    yield fp8lab.gemm_groups(a, a, GROUPS, **HOPPER, scale_a=scales, scale_b=TENTH)
    epilogue = fp8lab.Epilogue(alpha=0.1, beta=0.7, slope=0.3, output_scale=0.9, activation="leaky_relu")
    yield fp8lab.gemm_groups(a, a, GROUPS, model="fp32", epilogue=epilogue, c=C.reshape(2, 16, 32)[..., :16])


@job("verify", "testing.assert_matches")
def _():
    d = fp8lab.gemm(CODES, CODES, **HOPPER, **SCALED)
    wrong = d.copy()
    wrong.view(np.uint32)[3, 5] ^= 0x00800000
    for check in ("bitwise", "budget", "deepgemm"):
        yield fp8lab.verify(wrong, (CODES, CODES), **HOPPER, **SCALED, check=check, fault_matrix=check == "budget")
    testing.assert_matches(d, (CODES, CODES), **HOPPER, **SCALED)
    try:
        testing.assert_matches(wrong, (CODES, CODES), **HOPPER, **SCALED)
    except AssertionError as error:
        yield str(error)


@job("verify_groups", "identify_groups", "GroupedReport.wrong_groups")
def _():
    a = CODES.reshape(2, 16, 256)
    d = fp8lab.gemm_groups(a, a, GROUPS, **HOPPER, scale_a=TENTH)
    d.view(np.uint32)[1, 2, 3] ^= 0x00800000
    report = fp8lab.verify_groups(d, (a, a), GROUPS, **HOPPER, scale_a=TENTH)
    yield report
    yield report.wrong_groups
    yield fp8lab.identify_groups(d, (a, a), GROUPS, scale_a=TENTH)


@job("identify", "identify_cast", "CastRecipe.exact", "Explanation.options", "ExplanationClass.rate")
def _():
    d = fp8lab.gemm(CODES[:8], CODES[:6], **HOPPER, scale_a=TENTH)
    d[0, 0] = 0
    found = fp8lab.identify(d, (CODES[:8], CODES[:6]), scale_a=TENTH)
    yield found
    yield [one.rate for one in found.ranking]
    yield found.ranking[0].members[0].options
    q = fp8lab.quantize(Y[:, :128], "deepgemm")
    cast = fp8lab.identify_cast(Y[:, :128], q.codes, q.inverse_scales)
    yield cast
    yield [one.exact for one in cast.recipes]


@job("quantize", "Quantizer", "Quantizer.quantize", "Quantizer.observe", "QuantizedTensor.dequantize",
     "QuantizedTensor.statistics", "QuantizedTensor.inverse")  # fmt: skip
def _():
    for name, preset in fp8lab.presets().items():
        if preset.activation.source in ("calibration", "momentum"):
            quantizer = fp8lab.Quantizer(name)
            quantizer.observe(Y[:, :128])
            yield quantizer.quantize(X[:, :128])
            continue
        for x in (X, TINY):
            try:
                q = fp8lab.quantize(TALL[id(x)], name)
            except ValueError as error:
                yield str(error)
                continue
            yield [q, q.dequantize(), q.statistics(TALL[id(x)]), tuple(q.inverse)]
    recipe = dataclasses.replace(fp8lab.presets()["te-delayed"].activation, margin=0.3)
    quantizer = fp8lab.Quantizer(recipe)
    yield [quantizer.quantize(x).scales for x in (X, Y, TINY)]


@job("AutoScaler", "AutoScaler.update", "AutoScaler.mu")
def _():
    for growth in ("exponential", "linear", "doubling", "none"):
        scaler = fp8lab.AutoScaler(threshold=0.1, steps_to_double=7, growth=growth, mu=1.1)
        for step in range(30):
            scaler.update(0.5 if step == 20 else 0.01)
            yield scaler.mu


@job("kv_caches", "pack_kv_rows", "read_kv_rows", "testing.attention_tolerance")
def _():
    rows = fp8lab.pack_kv_rows(np.resize(QKV[0].astype(f32), (2, 576)))
    yield [rows, fp8lab.read_kv_rows(rows)]
    yield list(fp8lab.kv_caches().items())
    yield testing.attention_tolerance((2, 1, 8, 64, 32), trials=3)


@job("attention", "verify_attention", "testing.assert_attention_matches", "attention_calls", "AttentionCall.options_for")
def _():
    options = {"softmax_scale": 0.1, "p_offset": 7.3, "rescale_threshold": 0.7, "kv_tile": 32, "q_tile": 16}
    made = fp8lab.attention(*QKV, **options)
    yield made
    scales = {f"{role}_scales": HEADS for role in "qkv"}
    yield fp8lab.attention(*QKV_CODES, **options, **scales)
    yield fp8lab.verify_attention(made.o, QKV, **options | {"softmax_scale": 0.2}, tolerance=1e-9)
    testing.assert_attention_matches(made.o, QKV, **options)
    for call in fp8lab.attention_calls().values():
        yield [call.options_for(64), call]


@job("sage_attention", "verify_sage_attention", "sage_calls")
def _():
    for call in fp8lab.sage_calls().values():
        given = tuple(np.resize(x.astype(f32), (1, 16, 64)) for x in QKV)
        made = fp8lab.sage_attention(*given, call=call.name)
        yield made
        yield fp8lab.verify_sage_attention(made.o, given, call=call.name, softmax_scale=0.2, tolerance=1e-9)
        yield [call]


@job("testing.tolerance")
def _():
    yield testing.tolerance((16, 16, 256), **HOPPER, trials=10, risk=1e-5)


@job("vectors", "load_vectors", "replay", "separate", "Vectors.save")
def _():
    for kind in ("random", "adversarial", "special"):
        made = fp8lab.vectors("sm90.mma.bf16", 40, kind=kind)
        yield made
        yield fp8lab.replay(made, "sm80.mma.bf16")
    yield fp8lab.separate("sm89.mma.e4m3", "sm90.wgmma.e4m3", 4)
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("npz", "jsonl", "txt", "safetensors"):
            file = Path(folder, f"v.{ending}")
            made.save(file)
            yield [file.read_bytes(), fp8lab.load_vectors(file)]


@job("reveal", "Revealed.options")
def _():
    outside = mxcsr()

    def kernel(a, b):
        # The caller's function runs in the caller's mode, here as plain C code.
        assert mxcsr() == outside, "the kernel's mode is not the caller's"
        return fp8lab.gemm(a, b, model="sm90.wgmma.e4m3", promotion_interval=64)

    found = fp8lab.reveal(kernel, m=8, n=8, k=128)
    yield dataclasses.replace(found, model=None)
    yield found.options["promotion_interval"]


@job("accumulator_model", "load_models", "models", "AccumulatorModel.definition")
def _():
    yield fp8lab.accumulator_model("fused", terms=16, F=13, e_min=-6).name
    for model in fp8lab.models().values():
        yield [model.name, model.accumulator.definition(model.a_format, model.b_format), model.standing]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "m.toml")
        file.write_text('accumulator.mine = {base = "fused", F = 10}')
        yield list(fp8lab.load_models(file))


@job("formats", "profiles", "presets", "calls", "backends", "linear_recipe", "linear_recipes")
def _():
    yield [fp8lab.formats(), fp8lab.profiles(), fp8lab.presets(), fp8lab.calls(), fp8lab.backends()]
    for name in fp8lab.linear_recipes():
        yield fp8lab.linear_recipe(name)
    yield fp8lab.linear_recipe("te-current", hardware="sm89", wgrad="fp32")


@job("observed_calls")
def _():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "t.csv")
        file.write_text(TABLE)
        yield fp8lab.observed_calls(file)
        yield fp8lab.gemm(CODES, CODES, call=f"{file}:fast,output=bf16", scale_a=TENTH, scale_b=THIRD)


@job("results.write", "results.read", "results.to_parquet", "results.read_parquet", "results.Table.where",
     "results.Table.to_pandas")  # fmt: skip
def _():
    columns = (results.Column("x", "1", "numbers"), results.Column("name", "", "text"))
    values = WRITTEN
    table = results.Table("t", "T", columns, {"x": values, "name": np.array(["a"] * len(values))})
    with tempfile.TemporaryDirectory() as folder:
        parameters = {"rate": 0.1, "tiny": 5e-324}
        curves = [results.Curve("c", [0.1, 0.2], [0.3, 5e-324])]
        path = Path(results.write(
            folder, [table], experiment="e", question="?", parameters=parameters, duration_seconds=0.3,
            plots=[results.Plot("p", "P", "x", "y", curves)],
        ))  # fmt: skip
        yield [(path / "t.csv").read_bytes(), (path / "p.json").read_bytes()]
        read = results.read(path)
        yield [read["t"].data, read.description["parameters"]]
        yield read["t"].where(x=5e-324).data
        yield results.Table("t", "T", columns, {"x": np.array([0.0, 5e-324]), "name": np.array(["a", "b"])}).where(x=0.0).data
        try:
            results.to_parquet(path, path / "t.parquet")
            yield results.read_parquet(path / "t.parquet")["t"].data
        except ImportError:
            pass
        try:
            yield read["t"].to_pandas()["x"].to_numpy()
        except ImportError:
            pass


def required():
    """Every public function, method and property, and classes that compute when they are made."""
    for prefix, module in (("", fp8lab), ("testing.", testing), ("results.", results)):
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item):
                yield prefix + name
            if not inspect.isclass(item):
                continue
            if "__init__" in vars(item) and not dataclasses.is_dataclass(item) and not issubclass(item, (Warning, Exception)):
                yield prefix + name
            for member, value in vars(item).items():
                made = inspect.isfunction(value) or isinstance(value, (property, functools.cached_property))
                if made and not member.startswith("_"):
                    yield f"{prefix}{name}.{member}"


def main(mode):
    warnings.simplefilter("ignore")
    found = {}
    for function in dict.fromkeys(JOBS.values()):
        digest = hashlib.sha256()
        pieces = []
        enter(mode)
        before = mxcsr()
        for piece in function():
            assert mxcsr() == before, f"the mode has changed in {[n for n in JOBS if JOBS[n] is function]}"
            pieces.append(piece)
        libm.fesetenv(ctypes.c_void_p(-1))  # the default, for what follows
        feed(digest, pieces)
        for name, one in JOBS.items():
            if one is function:
                found[name] = digest.hexdigest()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
