"""All codes of `fp8lab table` and a sample of `fp8lab cast` against ml_dtypes.

Usage: formats_oracle.py PATH_OF_FP8LAB. Exits 77 (skipped) without ml_dtypes.
"""

import json
import subprocess
import sys

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

FORMATS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e3m4": ml_dtypes.float8_e3m4,
    "float:e=4,m=3": ml_dtypes.float8_e4m3,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
}


def fp8lab(tool, *arguments):
    run = subprocess.run([tool, *arguments, "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def same(a, b):
    """Equal as bits of binary64, any NaN equal to any other."""
    a, b = np.float64(a), np.float64(b)
    return (np.isnan(a) and np.isnan(b)) or a.tobytes() == b.tobytes()


def check_table(tool, name, dtype):
    codes = fp8lab(tool, "table", name)["codes"]
    word = np.uint16 if np.dtype(dtype).itemsize == 2 else np.uint8
    values = np.arange(len(codes), dtype=word).view(dtype).astype(np.float64)
    wrong = [(c["code"], c["value"], v) for c, v in zip(codes, values) if not same(float(c["value"]), v)]
    return len(codes), wrong


def check_casts(tool, name, dtype, rng):
    words = rng.integers(0, 2**32, 300, dtype=np.uint32)
    # Most uniform words are far out of an FP8 range: half of them get a moderate exponent.
    words[150:] = (words[150:] & 0x807FFFFF) | rng.integers(110, 142, 150, dtype=np.uint32) << 23
    if name == "e8m0fnu":
        # ml_dtypes 0.6.0 rounds binary32 subnormals up to 2^-126 (0x004362df, 1.05 * 2^-127).
        words = words[(words & 0x7F800000) != 0]
    if name == "f16":
        # NumPy keeps NaN payloads here; ml_dtypes, whose profile this is, never does.
        words = words[~np.isnan(words.view(np.float32))]
    expected = words.view(np.float32).astype(dtype)
    expected = expected.view(np.uint16 if expected.itemsize == 2 else np.uint8)
    values = [f"0x{w:08x}" for w in words]
    casts = fp8lab(tool, "cast", *values, "--format", name, "--profile", "ml_dtypes")["casts"]
    wrong = [(c["input_bits"], c["code"], int(e)) for c, e in zip(casts, expected) if c["code"] != e]
    return len(casts), wrong


def main():
    tool = sys.argv[1]
    rng = np.random.default_rng(1)
    failures = 0
    for name, dtype in FORMATS.items():
        for what, (count, wrong) in (
            ("codes", check_table(tool, name, dtype)),
            ("casts", check_casts(tool, name, dtype, rng)),
        ):
            print(f"{name}: {count} {what} compared, {len(wrong)} differ")
            for row in wrong[:20]:
                print(f"  input {row[0]}: fp8lab {row[1]}, ml_dtypes {row[2]}")
            failures += len(wrong)
    return 1 if failures else 0


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        sys.exit(main())
