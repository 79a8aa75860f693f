"""Writes p3109_digests.hpp: digests of the value tables that IEEE P3109 publishes.

Usage: p3109_digests.py CHECKOUT_OF_P3109_PUBLIC COMMIT | clang-format > p3109_digests.hpp

A digest is FNV-1a (64 bits) over the binary64 values of all codes, in order, as eight little-endian bytes
each; NaN is 0x7ff8000000000000. Formats with values that binary64 does not represent are left out.
"""

import csv
import math
import pathlib
import struct
import sys

OFFSET, PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def value(text):
    """The binary64 value of an entry; ValueError where there is none."""
    if text in ("NaN", "Inf", "-Inf"):
        return float(text)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, exponent = digits.removeprefix("0x").split("p")
    integer, _, fraction = whole.partition(".")
    significand = int(integer + fraction, 16)
    power = int(exponent) - 4 * len(fraction)
    if significand == 0:
        return math.copysign(0.0, -1.0 if sign else 1.0)
    low = power + (significand & -significand).bit_length() - 1
    if power + significand.bit_length() > 1024 or low < -1074:
        raise ValueError(text)
    return math.ldexp(-significand if sign else significand, power)


def digest(file):
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["codepoint"], 16) for row in rows] == list(range(len(rows))), file
    result = OFFSET
    for row in rows:
        x = value(row["value"])
        word = b"\0\0\0\0\0\0\xf8\x7f" if math.isnan(x) else struct.pack("<d", x)
        for byte in word:
            result = (result ^ byte) * PRIME & MASK
    return result


def main():
    root = pathlib.Path(sys.argv[1]) / "Value Tables" / "Hexadecimal"
    print("#pragma once")
    print("// Digests of the value tables of github.com/P3109/Public, commit\n// " + sys.argv[2] + ".")
    print("// p3109_digests.py wrote them, and says what they are.")
    print("\n#include <cstdint>\n#include <string_view>\n")
    print("namespace fp8lab::test {\n")
    print("struct ValueTable {\n  std::string_view format;\n  std::uint64_t digest;\n};\n")
    print("inline constexpr ValueTable kP3109Tables[] = {")
    order = lambda file: [int(part) for part in file.stem[6:-2].split("p")] + [file.stem[-2:]]
    for file in sorted(root.glob("K*/P*/*signed/Binary*.csv"), key=order):
        try:
            print(f'    {{"{file.stem}", 0x{digest(file):016x}}},', flush=True)
        except ValueError:
            print(f"{file.stem} has values that binary64 does not represent", file=sys.stderr)
    print("};\n\n}  // namespace fp8lab::test")


if __name__ == "__main__":
    main()
