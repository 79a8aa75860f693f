"""`fp8lab cast` against ml_dtypes: every field of its JSON, what numbers it reads, and which bits it draws with.

Usage: cast_command.py PATH_OF_FP8LAB
"""

import json
import math
import struct

from checking import check, expect, finish
import fp8_arrays  # skips where a package is missing

import ml_dtypes
import numpy as np

TYPES = {"e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
NUMBERS = ["0", "-0", "1", "-1", ".5", "-.5", "+.25", "-3.3", "3.3", "447.9", "-447.9", "464", "-464", "1e-9", "-1e-9", "0.0017",
           "-0.0017", "1e30", "-1e30", "inf", "-inf", "nan", "-nan", "0x1p-9", "-0x1.8p3", "0x3f99999a", "0xbf99999a",
           "0x80000000", "0x7f800000", "0x00000001"]


def binary32(text):
    """What the text means, and its bits: 0x and 8 digits are bits."""
    if text.startswith("0x") and len(text) == 10 and "p" not in text:
        value = struct.unpack("<f", bytes.fromhex(text[2:])[::-1])[0]
    else:
        value = float.fromhex(text) if "0x" in text else float(text)
        value = float(np.float32(value))
    return value, struct.pack("<f", value).hex()


def number(value):
    return float(value) if isinstance(value, (int, float)) else float(value.replace("infinity", "inf"))


def test_fields(name):
    """Codes of ml_dtypes, without saturation; errors as Python computes them."""
    casts = json.loads(expect(0, "cast", *NUMBERS, "--format", name, "--profile", "ml_dtypes", "--json").stdout)["casts"]
    check(f"{name}: one cast for each number", len(casts) == len(NUMBERS), len(casts))
    kind = TYPES[name]
    for text, cast in zip(NUMBERS, casts):
        x, _ = binary32(text)
        code = np.asarray([x], np.float32).astype(kind)
        value = float(code.astype(np.float64)[0])
        what = f"{name}: {text}"
        check(f"{what}: text", cast["text"].strip() == text, cast)
        if math.isnan(x):
            check(f"{what}: NaN", cast["nan"] and math.isnan(number(cast["value"])) and math.isnan(number(cast["input"])), cast)
            continue
        bits = struct.pack(">f", x).hex()
        check(f"{what}: input", (number(cast["input"]), cast["input_bits"]) == (x, bits), (cast, bits))
        check(f"{what}: code", cast["code"] == int(code.view(np.uint8)[0]) and cast["code_hex"] == f"{cast['code']:02x}", (cast, code))
        if math.isnan(value):
            check(f"{what}: no value", cast["nan"] and math.isnan(number(cast["value"])), cast)
            continue
        check(f"{what}: value", number(cast["value"]) == value, (cast, value))
        error = 0.0 if value == x else value - x
        relative = error / abs(x) if error else 0.0
        same = lambda key, expected: math.isnan(number(cast[key])) if math.isnan(expected) else number(cast[key]) == expected
        check(f"{what}: error", same("error", error), (cast, error))
        check(f"{what}: relative error", same("relative_error", relative), (cast, relative))
        check(f"{what}: inexact", cast["inexact"] == (value != x) or math.isinf(x), cast)
        check(f"{what}: underflow", cast["underflowed"] == (value == 0 and x != 0) or value != 0, cast)


def test_random_bits():
    """1.1 lies 80 % from 1 to 1.125: stochastic rounding goes up for 80 % of the random numbers, in order."""
    up = []
    for bits in (0, 1 << 28, 1 << 29, 1 << 30, 1 << 31, 3 << 30, 0xD0000000, 0xF0000000, 0xFFFFFFFF):
        cast = json.loads(expect(0, "cast", "1.1", "--rounding", "stochastic", "--random-bits", bits, "--json").stdout)["casts"][0]
        up.append(cast["value"] == 1.125)
        check(f"random bits {bits:#x}: a neighbour", cast["value"] in (1.0, 1.125), cast)
    check("larger random numbers round up", up == sorted(up) and not up[0] and up[-1] and up.count(True) >= 6, up)


def test_text():
    expect(0, "cast", "0x1p3", stdout=["               8"])
    same = json.loads(expect(0, "cast", "0X3F800000", "0x3f800000", "--json").stdout)["casts"]
    check("eight digits are bits", [c["input"] for c in same] == [1.0, 1.0], same)
    for text in ("0x-1234567", "0x+1234567", "0x 1234567", "0x0x123456", "0X-1234567", "0x\t1234567", "0x1234567p"):
        expect(2, "cast", text, stderr=["binary32 bits as 0x and 8 hex digits"])
    for text, remark in (("1e999", "read as the nearest binary32, infinity"), ("-1e999", "read as the nearest binary32, infinity"),
                         ("1e-999", "read as the nearest binary32, exact"), ("0.1", "read as the nearest binary32, rounded"),
                         ("inf", "infinity"), ("0", "exact"), ("0.5", "exact")):
        what = json.loads(expect(0, "cast", text, "--format", "e5m2", "--profile", "ml_dtypes", "--json").stdout)["casts"][0]["what"]
        check(f"{text}: what happened", what == remark, what)
    for text in ("0x3f8", "0x3f80000", "0x13f800000", "-0x3f800000", "0x1.8"):
        expect(2, "cast", text)
    for text in ("", "1x", "0x", "0x3f80000g", "1e", "--1", "1 2", "nanx"):
        expect(2, "cast", "1", text)


for format_name in TYPES:
    test_fields(format_name)
test_random_bits()
test_text()
finish("cast")
