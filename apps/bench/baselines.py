"""Casts that a Python user would pick instead, with their speed and exactness.

Usage: baselines.py PATH_OF_FP8LAB [--mebi N] [--repetitions N] [--conformance] [--json]

Times the casts of ml_dtypes and, where it is installed, torch (one thread) and compares their
codes with those of `fp8lab cast` under the profile that is nearest to them (torch changed its own
between releases): a sample of inputs, or with --conformance all 2^32. Ratios are to the plain
narrowing copy of `fp8lab bench cast`, run just before. Exits 77 (skipped) where neither package
is installed. Differences are findings, not failures.
"""

import argparse
import json
import subprocess
import sys
import time

try:
    import numpy as np
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


def baselines():
    found = []
    for casts in (ml_dtypes_casts, torch_casts):
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


def count_differences(cast, codes, words):
    upper, sticky = words >> 16, (words & 0xFFFF) != 0
    wrong = cast(words.view(np.float32)) != codes[sticky.astype(np.intp), upper]
    return int(wrong.sum()), (f"0x{words[wrong.argmax()]:08x}" if wrong.any() else None)


def conformance(cast, codes):
    """How many of all 2^32 inputs differ, and the first that does."""
    different, first = 0, None
    step = 1 << 22
    for begin in range(0, 1 << 32, step):
        count, at = count_differences(cast, codes, np.arange(begin, begin + step, dtype=np.uint32))
        different += count
        first = first or at
    return different, first


def sample_words():
    upper = np.arange(65536, dtype=np.uint32) << 16
    return np.concatenate([upper | lower for lower in (0, 1, 0x7FFF, 0x8000, 0xFFFF)])


def nearest_profile(cast, references, words):
    """The profile under which the fewest codes of a sample differ."""
    return min(references, key=lambda profile: count_differences(cast, references[profile], words)[0])


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
    for name, fmt, cast in baselines():
        profile = nearest_profile(cast, references[fmt], words)
        codes = references[fmt][profile]
        inputs = 1 << 32 if arguments.conformance else words.size
        different, first = (
            conformance(cast, codes) if arguments.conformance else count_differences(cast, codes, words)
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
                "different": different,
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
    with np.errstate(all="ignore"):
        rows = measure(arguments)
    if arguments.json:
        print(json.dumps({"baselines": rows}, indent=2))
    else:
        for row in rows:
            wrong = f", first {row['first']}" if row["first"] else ""
            print(
                f"{row['baseline'] + ' ' + row['format']:40} {row['gelements']:6.2f} Gel/s, ratio "
                f"{row['ratio']:.3f}; {row['different']} of {row['inputs']} codes are not those of "
                f"{row['profile']}{wrong}"
            )
    return 0 if rows else 77


if __name__ == "__main__":
    sys.exit(main())
