#!/usr/bin/env python3
"""Regenerates draws.inc from NumPy and compares it value for value.

`python3 check_draws.py` exits 0 if every stored draw equals NumPy's to the last
bit, 1 if one differs, and 77 with a visible SKIPPED line where NumPy is missing.
`python3 check_draws.py --write` replaces the file.
"""

import pathlib
import sys

DRAWS = pathlib.Path(__file__).with_name("draws.inc")
COUNTS = {"x": 128, "a": 1024, "b": 1024}


def generate(numpy):
    """The draws of the listing, in its order: x ~ N(0, 0.5), then a and b ~ N(0, 1)."""
    rng = numpy.random.default_rng(0)
    x = rng.normal(0, 0.5, size=COUNTS["x"])
    a = rng.normal(0, 1, COUNTS["a"])
    b = rng.normal(0, 1, COUNTS["b"])
    return [float(v) for part in (x, a, b) for v in part]


def stored():
    text = "".join(
        line for line in DRAWS.read_text().splitlines() if not line.startswith("//")
    )
    return [float.fromhex(v) for v in text.split(",") if v.strip()]


def write(numpy, values):
    lines = [
        "// clang-format off",
        f"// numpy.random.default_rng(0), NumPy {numpy.__version__}: normal(0, 0.5, 128), "
        "normal(0, 1, 1024), normal(0, 1, 1024).",
        "// Written and checked by check_draws.py; see README.md.",
    ]
    for i in range(0, len(values), 4):
        lines.append(" ".join(v.hex() + "," for v in values[i : i + 4]))
    DRAWS.write_text("\n".join(lines) + "\n")


def main():
    try:
        import numpy
    except ImportError:
        print("SKIPPED: NumPy is not installed; the stored draws were not compared")
        return 77
    expected = generate(numpy)
    if "--write" in sys.argv[1:]:
        write(numpy, expected)
    got = stored()
    if len(got) != len(expected):
        print(f"draws.inc: expected {len(expected)} draws, got {len(got)}")
        return 1
    differing = [i for i, pair in enumerate(zip(expected, got)) if pair[0] != pair[1]]
    for i in differing[:20]:
        print(f"draw {i}: expected {expected[i].hex()}, got {got[i].hex()}")
    print(f"draws {len(got)} differing {len(differing)} (NumPy {numpy.__version__})")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
