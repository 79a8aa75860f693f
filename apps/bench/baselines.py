"""Casts that a Python user would pick instead, with their speed and exactness.

Usage: baselines.py PATH_OF_FP8LAB [--mebi N] [--repetitions N] [--conformance] [--json]

Times the casts of ml_dtypes and, where they are installed, torch and oneDNN (PyPI's `onednn`), on
one core, and compares their codes with those of `fp8lab cast` under the profile that is nearest to
them (torch changed its own between releases): a sample of inputs, or with --conformance all 2^32.
Ratios are to the plain narrowing copy of `fp8lab bench cast`, run just before. Exits 77 (skipped)
where no such package is installed. Differences are findings, not failures.
"""

import argparse
import json
import os
import subprocess
import sys
import time

try:
    import numpy as np

    import onednn_cast
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

FORMATS = ("e4m3fn", "e5m2")
PROFILES = ("ml_dtypes", "ocp_nonsaturating", "ocp_saturating")


def ml_dtypes_casts():
    import ml_dtypes

    for name in FORMATS:
        dtype = getattr(ml_dtypes, f"float8_{name}")
        yield f"ml_dtypes {ml_dtypes.__version__}", name, lambda x, t=dtype: x.astype(t).view(np.uint8)


def torch_casts():
    import torch

    torch.set_num_threads(1)
    for name in FORMATS:
        dtype = getattr(torch, f"float8_{name}")
        yield f"torch {torch.__version__}", name, lambda x, t=dtype: torch.from_numpy(x).to(t).view(torch.uint8).numpy()


def onednn_casts():
    library = onednn_cast.Library()
    for name in FORMATS:
        yield f"oneDNN {library.version}", name, lambda x, t=name: library.cast(x, t)


def baselines():
    found = []
    for casts in (ml_dtypes_casts, torch_casts, onednn_casts):
        try:
            found += list(casts())
        except ImportError as error:
            print(f"SKIPPED: {error}", file=sys.stderr)
    return found


def fp8lab(tool, *arguments):
    run = subprocess.run([tool, *arguments, "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def reference_codes(tool, name, profile):
    """[2, 65536]: the code for each upper half of a binary32, with a lower half of zero and with
    any other. That no code depends on more is a test of fp8lab's over all 2^32 inputs."""
    words = np.arange(65536, dtype=np.uint32) << 16
    words = np.concatenate([words, words | 1])
    codes = []
    for part in np.array_split(words, 16):
        values = [f"0x{word:08x}" for word in part]
        cast = fp8lab(tool, "cast", *values, "--format", name, "--profile", profile)
        codes += [entry["code"] for entry in cast["casts"]]
    return np.array(codes, dtype=np.uint8).reshape(2, 65536)


KINDS = ("zero", "below_normal", "normal", "above_max", "infinite", "nan")


def kind_bounds(tool):
    """For each format, the magnitudes at which the kinds of inputs but the first begin."""
    infinity = 0x7F800000
    bounds = {}
    for entry in fp8lab(tool, "list", "formats")["formats"]:
        smallest, largest = np.array([entry["min_normal"], entry["max_finite"]], np.float32).view(np.uint32)
        bounds[entry["name"]] = np.array([1, smallest, largest + 1, infinity, infinity + 1], np.uint32)
    return bounds


def count_differences(cast, codes, words, bounds):
    """Differing codes by kind of input [6], and the first input that has one."""
    upper, sticky = words >> 16, (words & 0xFFFF) != 0
    wrong = words[cast(words.view(np.float32)) != codes[sticky.astype(np.intp), upper]]
    kinds = np.searchsorted(bounds, wrong & 0x7FFFFFFF, side="right")
    return np.bincount(kinds, minlength=len(KINDS)), (f"0x{wrong[0]:08x}" if wrong.size else None)


def conformance(cast, codes, bounds):
    """The same over all 2^32 inputs."""
    different, first = np.zeros(len(KINDS), np.int64), None
    step = 1 << 22
    for begin in range(0, 1 << 32, step):
        words = np.arange(begin, begin + step, dtype=np.uint32)
        count, at = count_differences(cast, codes, words, bounds)
        different += count
        first = first or at
    return different, first


def sample_words():
    upper = np.arange(65536, dtype=np.uint32) << 16
    return np.concatenate([upper | lower for lower in (0, 1, 0x7FFF, 0x8000, 0xFFFF)])


def nearest_profile(cast, references, words, bounds):
    """The profile under which the fewest codes of a sample differ."""
    return min(references, key=lambda p: count_differences(cast, references[p], words, bounds)[0].sum())


def median_speed(cast, values, repetitions):
    seconds = []
    cast(values)
    for _ in range(repetitions):
        start = time.perf_counter()
        cast(values)
        seconds.append(time.perf_counter() - start)
    return values.size * 1e-9 / float(np.median(seconds))


def measure(arguments):
    size = ["--mebi", str(arguments.mebi), "--repetitions", str(arguments.repetitions)]
    copy = fp8lab(arguments.tool, "bench", "cast", *size)["cast"]["encode"][0]
    values = np.random.default_rng(1).standard_normal(arguments.mebi << 20, dtype=np.float32)
    rows = []
    references = {fmt: {p: reference_codes(arguments.tool, fmt, p) for p in PROFILES} for fmt in FORMATS}
    words = sample_words()
    bounds = kind_bounds(arguments.tool)
    for name, fmt, cast in baselines():
        profile = nearest_profile(cast, references[fmt], words, bounds[fmt])
        codes = references[fmt][profile]
        inputs = 1 << 32 if arguments.conformance else words.size
        different, first = (
            conformance(cast, codes, bounds[fmt])
            if arguments.conformance
            else count_differences(cast, codes, words, bounds[fmt])
        )
        speed = median_speed(cast, values, arguments.repetitions)
        rows.append(
            {
                "baseline": name,
                "format": fmt,
                "profile": profile,
                "gelements": speed,
                "ceiling": copy["name"],
                "ratio": speed / copy["gelements"],
                "inputs": inputs,
                "different": int(different.sum()),
                "different_by_kind": dict(zip(KINDS, different.tolist())),
                "first": first,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", help="path of fp8lab")
    parser.add_argument("--mebi", type=int, default=16, help="elements in 2^20")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--conformance", action="store_true", help="compare all 2^32 inputs")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with np.errstate(all="ignore"):
        rows = measure(arguments)
    if arguments.json:
        print(json.dumps({"baselines": rows}, indent=2))
    else:
        for row in rows:
            kinds = [f"{kind} {count}" for kind, count in row["different_by_kind"].items() if count]
            wrong = f": {', '.join(kinds)}; first {row['first']}" if row["first"] else ""
            print(
                f"{row['baseline'] + ' ' + row['format']:40} {row['gelements']:6.2f} Gel/s, ratio "
                f"{row['ratio']:.3f}; {row['different']} of {row['inputs']} codes are not those of "
                f"{row['profile']}{wrong}"
            )
    return 0 if rows else 77


if __name__ == "__main__":
    sys.exit(main())
