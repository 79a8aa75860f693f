"""Checks `fp8lab quantize` bit for bit against the formulas that each system
publishes, written here in NumPy and ml_dtypes without the library.

usage: recipes_oracle.py PATH_TO_FP8LAB
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

F32 = np.float32
FP8 = {"e4m3": (ml_dtypes.float8_e4m3fn, F32(448)), "e5m2": (ml_dtypes.float8_e5m2, F32(57344))}
np.seterr(all="ignore")


def cast(y, fmt, *, saturate):
    """float32 -> FP8 codes. ml_dtypes rounds; what happens at the edges is said here.

    A scaled NaN is 0x7f whatever its sign was: a GPU's binary32 product of a NaN is its
    canonical, positive one.
    """
    dtype, largest = FP8[fmt]
    is_nan = np.isnan(y)
    z = np.clip(y, -largest, largest) if saturate else y
    codes = np.where(is_nan, F32(0), z).astype(dtype).view(np.uint8)
    if not saturate:  # E4M3 without Inf: an overflow is a NaN with the value's sign
        overflow = ~is_nan & np.isnan(codes.view(dtype).astype(F32))
        codes = np.where(overflow, np.where(np.signbit(y), 0xFF, 0x7F), codes)
    return np.where(is_nan, 0x7F, codes).astype(np.uint8)


def saturated(y, fmt):
    return cast(y, fmt, saturate=True)


def amax_dropping_nan(x):
    return np.fmax.reduce(np.abs(x), axis=None, initial=F32(0))


def amax_keeping_nan(x):
    return np.max(np.abs(x), initial=F32(0))


def bits(x):
    return np.array(x, F32).view(np.uint32)


def from_bits(b):
    return np.array(b, np.uint32).view(F32)[()]


def exp2(exponent):
    """2^exponent of an integral float32, exact, subnormals, 0 and inf included."""
    return F32(np.exp2(np.float64(exponent)))


# Each recipe: tile -> (scale, inverse, codes, e8m0 or None).


def te(fmt, pow2=False):
    def recipe(x):
        amax, scale = amax_dropping_nan(x), F32(1)
        if np.isfinite(amax) and amax > 0:
            scale = FP8[fmt][1] / amax
            if np.isinf(scale):
                scale = np.finfo(F32).max
            if pow2:
                scale = from_bits(bits(scale) & np.uint32(0xFF800000))
        return scale, F32(1) / scale, saturated(x * scale, fmt), None

    return recipe


def torchao(fmt, pow2=False):
    def recipe(x):
        amax = np.float64(amax_keeping_nan(x))
        amax = amax if np.isnan(amax) else max(amax, 1e-12)
        scale = F32(np.float64(FP8[fmt][1]) / amax)
        if pow2:
            scale = exp2(np.floor(np.log2(scale)))
        return scale, F32(1) / scale, saturated(x * scale, fmt), None

    return recipe


def deepseek(floor):
    def recipe(x):
        inverse = max(amax_dropping_nan(x), F32(floor)) / F32(448)
        return F32(1) / inverse, inverse, cast(x / inverse, "e4m3", saturate=False), None

    return recipe


def deepgemm_first(x):
    amax = amax_keeping_nan(x)
    amax = amax if np.isnan(amax) else max(amax, F32(1e-4))
    scale = F32(1) / amax * F32(448)
    return scale, amax / F32(448), saturated(x * scale, "e4m3"), None


def fmax_fmin(y, first):
    """CUDA's clamps drop NaN: it becomes the limit that is compared with first."""
    return np.where(np.isnan(y), F32(first), np.clip(y, -448, 448)).astype(F32)


def vllm_tensor(x):
    inverse = amax_dropping_nan(x) / F32(448)
    scale = F32(1) / inverse
    return scale, inverse, saturated(fmax_fmin(x * scale, 448), "e4m3"), None


def vllm_token(x):
    inverse = max(amax_dropping_nan(x) / F32(448), F32(1) / F32(448 * 512))
    return F32(1) / inverse, inverse, saturated(fmax_fmin(x / inverse, 448), "e4m3"), None


def vllm_group(x):
    inverse = max(amax_dropping_nan(x), F32(1e-10)) / F32(448)
    return F32(1) / inverse, inverse, saturated(fmax_fmin(x / inverse, -448), "e4m3"), None


def deepgemm(ue8m0):
    def recipe(x):
        amax = amax_keeping_nan(x)
        amax = amax if np.isnan(amax) else max(amax, F32(1e-4))
        inverse = amax / F32(448)
        if ue8m0:
            b = int(bits(np.abs(inverse)))
            exponent = ((b >> 23) & 0xFF) + (1 if b & 0x7FFFFF else 0)
            inverse = from_bits(min(max(exponent, 1), 254) << 23)
        scale = F32(1) / inverse
        return scale, inverse, saturated(x * scale, "e4m3"), None

    return recipe


def e8m0_value(code):
    return F32(np.nan) if code == 255 else F32(2.0 ** (code - 127))


def e8m0_reciprocal(code):
    return F32(np.nan) if code == 255 else F32(2.0 ** (127 - code))


def round_up_exponent(x):
    b = int(bits(x))
    exponent, mantissa = b >> 23, b & 0x7FFFFF
    return exponent + int(mantissa > 0x400000 if exponent == 0 else mantissa != 0)


def mx(mode):
    def recipe(x):
        amax = amax_keeping_nan(x)
        if mode == "rceil":
            descale = amax * F32(1.0 / 448.0)
            code = round_up_exponent(descale) if np.isfinite(descale) else 255
        else:
            b = int(bits(amax))
            if mode == "even" and not np.isnan(amax):
                b = (b + (1 << (23 - 3 - 1))) & 0xFF800000
            exponent = ((b >> 23) & 0xFF) - 127
            if mode == "ceil" and b & 0x7FFFFF:
                exponent += 1
            code = min(max(exponent - 8, -127), 128) + 127
            if not np.isfinite(from_bits(b)) or np.isnan(amax):
                code = 255
        scale = e8m0_reciprocal(code)
        return scale, e8m0_value(code), saturated(x * scale, "e4m3"), code

    return recipe


def te_mx(x):
    descale = amax_dropping_nan(x) * (F32(1) / F32(448))
    if np.isinf(descale):
        code = 0xFE
    else:
        code = round_up_exponent(descale)
    scale = F32(1) if code == 0 else from_bits((254 - code) << 23)
    return scale, e8m0_value(code), saturated(x * scale, "e4m3"), code


def ms_amp(fmt, previous=1.0):
    def recipe(x):
        amax, old = amax_keeping_nan(x), F32(previous)
        exponent = np.floor(np.log2(FP8[fmt][1] / amax))
        scale = np.round(exp2(np.abs(exponent)))
        scale = scale if amax > 0 else old
        scale = scale if np.isfinite(amax) else old
        scale = F32(1) / scale if exponent < 0 else scale
        return scale, F32(1) / scale, saturated(x * scale, fmt), None

    return recipe


def naive(x):
    return F32(1), F32(1), saturated(x, "e4m3"), None


WHOLE, ROW, VECTOR, SQUARE, GROUP = (0, 0), (1, 0), (1, 128), (128, 128), (1, 32)
RECIPES = [
    ("te-current", "activation", WHOLE, te("e4m3")),
    ("te-current", "gradient", WHOLE, te("e5m2")),
    ("te-blockwise", "activation", VECTOR, te("e4m3", pow2=True)),
    ("te-blockwise", "weight", SQUARE, te("e4m3", pow2=True)),
    ("te-mxfp8", "activation", GROUP, te_mx),
    ("torchao-tensorwise", "activation", WHOLE, torchao("e4m3")),
    ("torchao-tensorwise", "gradient", WHOLE, torchao("e5m2")),
    ("torchao-rowwise", "weight", ROW, torchao("e4m3", pow2=True)),
    ("torchao-rowwise-hp-wgrad", "activation", ROW, torchao("e4m3", pow2=True)),
    ("deepseek-v3", "activation", VECTOR, deepseek(1e-4)),
    ("deepseek-v3", "weight", SQUARE, deepseek(1e-4)),
    ("deepseek-v3-first", "activation", VECTOR, deepseek(0)),
    ("deepseek-v3-first", "weight", SQUARE, deepseek(0)),
    ("deepgemm-first", "activation", VECTOR, deepgemm_first),
    ("deepgemm-first", "weight", SQUARE, deepgemm_first),
    ("vllm-per-tensor", "activation", WHOLE, vllm_tensor),
    ("vllm-per-token", "activation", ROW, vllm_token),
    ("vllm-group", "activation", VECTOR, vllm_group),
    ("ocp-mxfp8", "activation", GROUP, mx("floor")),
    ("deepgemm", "activation", VECTOR, deepgemm(False)),
    ("deepgemm", "weight", SQUARE, deepgemm(False)),
    ("deepgemm-ue8m0", "activation", VECTOR, deepgemm(True)),
    ("ms-amp", "weight", WHOLE, ms_amp("e4m3")),
    ("ms-amp", "gradient", WHOLE, ms_amp("e5m2")),
    ("mxfp8-floor", "activation", GROUP, mx("floor")),
    ("mxfp8-ceil", "activation", GROUP, mx("ceil")),
    ("mxfp8-even", "activation", GROUP, mx("even")),
    ("mxfp8-rceil", "activation", GROUP, mx("rceil")),
    ("inference-dynamic", "activation", ROW, torchao("e4m3")),
    ("naive", "activation", WHOLE, naive),
]


def tensors():
    rng = np.random.default_rng(20240607)
    shape = (128, 256)
    yield "normal", rng.standard_normal(shape, dtype=F32)
    spread = rng.standard_normal(shape) * np.exp(6 * rng.standard_normal(shape))
    yield "log_normal", spread.astype(F32)
    raw = rng.integers(0, 2**32, shape, dtype=np.uint32).view(F32)
    yield "finite_bits", np.where(np.isfinite(raw), raw, F32(1))
    yield "any_bits", raw
    yield "fortran_order", np.asfortranarray(spread.astype(F32))
    # One kind of tile a row: what amax 0, NaN, Inf, a subnormal and the borders do.
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 2.0**-149, 2.0**-130, 1e-12, 1e-4, 1.0, 448.0,
             464.0, 57344.0, 2.0**100, float(np.finfo(F32).max), 255.99, 256.0, 479.99, 496.0]
    rows = rng.standard_normal(shape, dtype=F32) * F32(2.0**-9)
    for r in range(shape[0]):
        edge = F32(edges[r % len(edges)])
        finite = abs(edge) if np.isfinite(edge) else F32(1)
        rows[r] = np.clip(rows[r], -1, 1) * finite
        rows[r, :: 32 if r % 2 else 7] = edge
    yield "edges", rows
    for value in edges + [-3.0, float(np.nextafter(F32(448 / 1024), F32(1)))]:
        yield f"one_value_{value}", np.full((128, 128), value, F32)


def expected(x, tile, recipe):
    rows, k = x.shape
    tr, tk = tile[0] or rows, tile[1] or k
    codes = np.zeros(x.shape, np.uint8)
    grid = (-(-rows // tr), -(-k // tk))
    scale, inverse, e8m0 = np.zeros(grid, F32), np.zeros(grid, F32), np.zeros(grid, np.uint8)
    has_e8m0 = False
    for i in range(grid[0]):
        for j in range(grid[1]):
            part = np.s_[i * tr : (i + 1) * tr, j * tk : (j + 1) * tk]
            scale[i, j], inverse[i, j], codes[part], code = recipe(x[part])
            if code is not None:
                has_e8m0, e8m0[i, j] = True, code
    result = {"x": codes, "x.scale": scale, "x.scale_inv": inverse}
    return result | ({"x.scale_inv_e8m0": e8m0} if has_e8m0 else {})


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    result = {}
    for name, entry in header.items():
        begin, end = (8 + length + o for o in entry["data_offsets"])
        dtype = F32 if entry["dtype"] == "F32" else np.uint8
        result[name] = np.frombuffer(data[begin:end], dtype).reshape(entry["shape"])
    return result


def different(want, got):
    """Where bits differ; a NaN scale equals any NaN scale."""
    if want.dtype == F32:
        same = (want.view(np.uint32) == got.view(np.uint32)) | (np.isnan(want) & np.isnan(got))
    else:
        same = want == got
    return np.argwhere(~same)


def run(tool, *arguments):
    done = subprocess.run([tool, "quantize", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fp8lab quantize {arguments} failed ({done.returncode}): {done.stderr}")


def check(label, x, want, got):
    if set(want) != set(got):
        print(f"{label}: expected tensors {sorted(want)}, got {sorted(got)}")
        return 1
    failures = 0
    for name in want:
        where = different(want[name], got[name])
        failures += len(where)
        for at in map(tuple, where[:5]):
            value = f" of x = {float(x[at])!r}" if name == "x" else ""
            print(f"{label}: {name}{list(map(int, at))}{value}: expected {want[name][at]!r}, "
                  f"got {got[name][at]!r}; {len(where)} differ")
    return failures


def delayed_oracle(tool, folder):
    """TransformerEngine's history of 1024: the scale comes from all earlier steps."""
    rng = np.random.default_rng(5)
    steps = [rng.standard_normal((8, 16), dtype=F32) * F32(2.0 ** rng.integers(-8, 8))
             for _ in range(6)]
    arguments = []
    for i, step in enumerate(steps[:-1]):
        np.save(folder / f"step{i}.npy", step)
        arguments += ["--history", folder / f"step{i}.npy"]
    np.save(folder / "x.npy", steps[-1])
    failures = 0
    for fmt, role in (("e4m3", "activation"), ("e5m2", "gradient")):
        run(tool, folder / "x.npy", "--recipe", "te-delayed", "--role", role, *arguments, "-o",
            folder / "q.safetensors")
        scale = FP8[fmt][1] / max(amax_dropping_nan(s) for s in steps[:-1])
        want = {"x": saturated(steps[-1] * scale, fmt), "x.scale": np.full((1, 1), scale, F32),
                "x.scale_inv": np.full((1, 1), F32(1) / scale, F32)}
        failures += check(f"te-delayed {role}", steps[-1], want,
                          read_safetensors(folder / "q.safetensors"))
    return failures


def static_oracle(tool, folder):
    rng = np.random.default_rng(6)
    batches = [rng.standard_normal((8, 16), dtype=F32) for _ in range(3)]
    for i, batch in enumerate(batches):
        np.save(folder / f"batch{i}.npy", batch)
    x = rng.standard_normal((8, 16), dtype=F32) * F32(2)
    np.save(folder / "x.npy", x)
    history = [a for i in range(3) for a in ("--history", folder / f"batch{i}.npy")]
    run(tool, folder / "x.npy", "--recipe", "inference-static", *history, "-o",
        folder / "q.safetensors")
    scale = F32(448.0 / np.float64(max(np.max(np.abs(b)) for b in batches)))
    want = {"x": saturated(x * scale, "e4m3"), "x.scale": np.full((1, 1), scale, F32),
            "x.scale_inv": np.full((1, 1), F32(1) / scale, F32)}
    return check("inference-static", x, want, read_safetensors(folder / "q.safetensors"))


def main():
    tool = sys.argv[1]
    failures = compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind, x in tensors():
            np.save(folder / "x.npy", x)
            for preset, role, tile, recipe in RECIPES:
                run(tool, folder / "x.npy", "--recipe", preset, "--role", role, "-o",
                    folder / "q.safetensors")
                want = expected(np.ascontiguousarray(x), tile, recipe)
                failures += check(f"{preset} {role} {kind}", x, want,
                                  read_safetensors(folder / "q.safetensors"))
                compared += 1
        failures += delayed_oracle(tool, folder) + static_oracle(tool, folder)
        compared += 3
    print(f"{compared} tensors compared, {failures} codes or scales differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
