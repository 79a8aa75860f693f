"""IEEE P3109's formats against gfloat: the value of every code, and casts under its rounding and saturation modes.

usage: p3109_gfloat.py FP8LAB SHARED_LIBRARY_FOR_C

All codes of all formats of 3 to 10 bits, by `fp8lab table`. Casts into all formats of 8 bits: 1 000 000 binary32
numbers each to nearest even, saturating and not, by the library for C; and samples in all modes that gfloat 0.5.2
has, by `fp8lab cast`. Two differences from P3109's interim report of June 2026 are gfloat's, and are taken out:
without saturation a finite format overflows to NaN there, and a negative number in an unsigned one has no result.

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev systems` makes it), and skips with
exit code 77 where there is none.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or Path(__file__).resolve().parents[2] / "build/torch-venv/bin/python"
try:
    import numpy as np
    from gfloat import Domain, RoundMode, Signedness, decode_ndarray, round_ndarray
    from gfloat.formats import format_info_p3109
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev systems installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

MODES = {
    "nearest_even": RoundMode.TiesToEven,
    "nearest_away": RoundMode.TiesToAway,
    "toward_zero": RoundMode.TowardZero,
    "upward": RoundMode.TowardPositive,
    "downward": RoundMode.TowardNegative,
}
BITS = 8  # of the stochastic modes


def formats_of(k):
    for p in range(1, k + 1):
        for signed in (True, False):
            for extended in (True, False):
                if p < k or not signed:
                    info = format_info_p3109(
                        k,
                        p,
                        Signedness.Signed if signed else Signedness.Unsigned,
                        Domain.Extended if extended else Domain.Finite,
                    )
                    yield f"binary{k}p{p}{'su'[not signed]}{'fe'[extended]}", info


def fp8lab(tool, *arguments):
    run = subprocess.run([tool, *arguments, "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def differ(ours, theirs):
    """Where values are not the same; any NaN is any other, and there is one zero."""
    return ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))


def numbers(info, count, rng):
    """Any binary32 words, numbers near the format's values, and midpoints."""
    words = rng.integers(0, 2**32, count // 4, dtype=np.uint32).view(np.float32)
    values = decode_ndarray(info, np.arange(2**info.k))
    values = np.sort(values[np.isfinite(values)])
    at = rng.integers(0, len(values) - 1, count // 4)
    middle = ((values[at] + values[at + 1]) / 2).astype(np.float32)
    beside = np.nextafter(middle, rng.choice([-np.inf, np.inf], len(middle)).astype(np.float32))
    near = values[at] * rng.uniform(0.5, 2.5, len(at))
    specials = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38]
    with np.errstate(all="ignore"):
        x = np.concatenate([words, middle, beside, near, specials]).astype(np.float32)
    return x if info.is_signed else x[~(x < 0)]


def expected(info, x, mode, saturates, bits=None):
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        y = round_ndarray(info, wide, mode, saturates, bits, BITS if bits is not None else 0)
    if info.domain == Domain.Finite and not saturates:
        y = np.where(np.isnan(y) & ~np.isnan(x), np.copysign(info.max, wide), y)
    return y


def report(what, x, ours, theirs):
    wrong = np.flatnonzero(differ(ours, theirs))
    for i in wrong[:5]:
        print(f"  {what}: {float(x[i]).hex()}: fp8lab {ours[i]}, gfloat {theirs[i]}")
    return len(wrong)


def check_codes(tool):
    wrong = count = 0
    for k in range(3, 11):
        for name, info in formats_of(k):
            codes = fp8lab(tool, "table", name)["codes"]
            ours = np.array([float(c["value"]) for c in codes])
            theirs = decode_ndarray(info, np.arange(2**k))
            wrong += report(name, np.arange(2**k), ours, theirs)
            count += 1
    print(f"codes: {count} formats compared, {wrong} values differ")
    return wrong


def check_arrays(library):
    wrong = count = 0
    lib = ctypes.CDLL(library)
    lib.fp8lab_last_error.restype = ctypes.c_char_p
    for name, info in formats_of(8):
        x = np.ascontiguousarray(numbers(info, 1_000_000, np.random.default_rng(1)))
        values = decode_ndarray(info, np.arange(256))
        for profile, saturates in ((b"p3109_sat_finite", True), (b"p3109_sat_none", False)):
            codes = np.empty(len(x), np.uint8)
            status = lib.fp8lab_encode(
                name.encode(), profile, ctypes.c_float(1.0), x.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(len(x)), codes.ctypes.data_as(ctypes.c_void_p),
            )
            assert status == 0, lib.fp8lab_last_error()
            theirs = expected(info, x, RoundMode.TiesToEven, saturates)
            wrong += report(f"{name} {profile.decode()}", x, values[codes], theirs)
            count += len(x)
    print(f"casts of arrays: {count} compared, {wrong} differ")
    return wrong


def check_modes(tool):
    wrong = count = 0
    rng = np.random.default_rng(2)
    for name, info in formats_of(8):
        x = numbers(info, 400, rng)
        words = [f"0x{word:08x}" for word in x.view(np.uint32)]
        bits = int(rng.integers(0, 2**BITS))
        for mode, theirs_mode, random in [
            *((mode, theirs, None) for mode, theirs in MODES.items()),
            # StochasticA and B of P3109 by other names; 32 bits hold the few of theirs on top.
            ("stochastic", RoundMode.StochasticFastest, bits << (32 - BITS)),
            ("stochastic", RoundMode.StochasticFast, (2 * bits + 1) << (31 - BITS)),
        ]:
            for profile, saturates in (("p3109_sat_finite", True), ("p3109_sat_none", False)):
                options = [] if random is None else ["--random-bits", str(random)]
                casts = fp8lab(
                    tool, "cast", *words, "--format", name, "--profile", profile, "--rounding", mode, *options
                )["casts"]
                ours = np.array([float(c["value"]) for c in casts])
                few = None if random is None else np.full(len(x), bits)
                theirs = expected(info, x, theirs_mode, saturates, few)
                wrong += report(f"{name} {profile} {mode}", x, ours, theirs)
                count += len(x)
    print(f"casts in all modes: {count} compared, {wrong} differ")
    return wrong


def main():
    tool, library = sys.argv[1:3]
    return 1 if check_codes(tool) + check_arrays(library) + check_modes(tool) else 0


if __name__ == "__main__":
    sys.exit(main())
