"""What the tests of grouped products and of options share."""

import subprocess
import sys
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)

TOOL = sys.argv[1]
failures = 0
G, N, K = 4, 24, 256
ENDS = [5, 5, 21, 30]  # group 1 is empty
ROWS = 33  # three rows in no group


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n{seen}")


def expect(code, *arguments, stdout=(), stderr=()):
    done = run(*arguments)
    missing = [p for p in stdout if p not in done.stdout] + [p for p in stderr if p not in done.stderr]
    check(f"{' '.join(map(str, arguments))}: exit {done.returncode}, expected {code}; missing {missing}",
          done.returncode == code and not missing, done.stdout + done.stderr)
    return done


class Case:
    """Codes, their values and scales that are powers of two, all in files."""

    def __init__(self, folder, seed=1):
        self.at = Path(folder)
        rng = np.random.default_rng(seed)
        self.rng = rng
        draw = lambda *shape: rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
        self.flat, self.stack = draw(ROWS, K), draw(G, 9, K)
        self.b = draw(G, N, K)
        self.wide_b = draw(N, K)
        self.power = lambda *shape: np.exp2(rng.integers(-3, 4, shape)).astype(np.float32)

    def save(self, name, array):
        array = array.view(np.uint8) if array.dtype.itemsize == 1 else array
        np.save(self.at / f"{name}.npy", array)
        return self.at / f"{name}.npy"


def value(x):
    return x.astype(np.float64)


def spread(scales, rows, k):
    """A grid over [rows, k]: each entry stands for a tile."""
    scales = np.asarray(scales, np.float64)
    scales = np.repeat(scales, -(-rows // scales.shape[0]), 0)[:rows]
    side = k // scales.shape[1]
    return np.repeat(scales, side, 1)[:, :k]


def product(a, b, sa=None, sb=None, interval=0):
    """Scales are powers of two: only sums round, those of an interval and those of what was summed."""
    x, y = value(a), value(b)
    of_a = np.ones(x.shape) if sa is None else spread(sa, *x.shape)
    of_b = np.ones(y.shape) if sb is None else spread(sb, *y.shape)
    final = np.zeros((len(x), len(y)), np.float32)
    for k in range(0, x.shape[1], interval or max(x.shape[1], 1)):
        terms = slice(k, k + (interval or x.shape[1]))
        partial = (x[:, terms] @ y[:, terms].T).astype(np.float32).astype(np.float64)
        scale = of_a[:, k][:, None] * of_b[:, k]
        final = (final.astype(np.float64) + scale * partial).astype(np.float32)
    return final


def groups_of_rows(ends):
    return [(g, begin, end) for g, (begin, end) in enumerate(zip([0, *ends[:-1]], ends))]


def gemm(case, *arguments, promotion=0, model="exact"):
    out = case.at / "d.npy"
    out.unlink(missing_ok=True)
    expect(0, "gemm", *arguments, "--dtype", "e4m3fn", "--model", model, "--promotion", promotion, "-o", out)
    return np.load(out) if out.exists() else None


def same(what, got, expected):
    check(what, got is not None and got.shape == expected.shape and np.array_equal(got, expected),
          "nothing" if got is None else f"expected {expected.shape}, got {got.shape}: " + (
              f"{np.argwhere(got != expected)[:5].tolist()}" if got.shape == expected.shape else "other shape"))


def report(what):
    """The exit code, and a last line."""
    print(f"{what}: {failures} failures")
    return 1 if failures else 0
