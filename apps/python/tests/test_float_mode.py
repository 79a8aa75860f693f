"""The caller's floating-point mode neither matters nor changes."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="the environment of glibc on x86-64 is written by hand",
)

# A process of its own: tables that are made by the first call are made under the mode, too.
SCRIPT = """
import ctypes, sys
import numpy as np, ml_dtypes, fp8lab

libm = ctypes.CDLL("libm.so.6")
environment = (ctypes.c_uint32 * 8)()  # of x87 seven words, then MXCSR


def mxcsr():
    libm.fegetenv(environment)
    return environment[7]


def enter(bits):
    libm.fegetenv(environment)
    environment[7] |= bits
    environment[0] |= (bits >> 3) & 0xC00  # x87's rounding
    libm.fesetenv(environment)


FLUSH, UP = 0x8040, 0x4000
rng = np.random.default_rng(1)
x = rng.standard_normal((128, 256)).astype(np.float32)
tiny = x * np.float32(2.0**-130)
codes = np.arange(256, dtype=np.uint8)
y = (x + np.float32(1e-6)).astype(np.float32)

before = None
if sys.argv[1] == "flush":
    enter(FLUSH)
elif sys.argv[1] == "up":
    enter(UP)
before = mxcsr() & 0xFFC0
results = [
    fp8lab.decode(codes.view(ml_dtypes.float8_e8m0fnu)),
    fp8lab.decode(codes, format="e5m2", inverse_scale=0.37),
]
for name in ("te-current", "deepgemm", "mxfp8-rceil", "torchao-rowwise"):
    if name not in fp8lab.presets():
        continue
    for values in (x, tiny):
        q = fp8lab.quantize(values, name, transpose=name == "te-current")
        s = q.statistics(values)
        results += [q.codes, q.scales, q.inverse_scales, q.dequantize()]
        results += [np.array([s.relative_l2, s.sqnr_db, s.underflow_percent, s.tile_range_mean])]
c = fp8lab.compare(x, y)
results.append(np.array([c.relative_l2, c.sqnr_db, c.cosine, c.calc_diff, c.mean_signed_relative]))
a = fp8lab.encode(x)
d = fp8lab.gemm(a, a, model="sm90.wgmma.e4m3", promotion_interval=128, a_scales=0.375)
results.append(d)
report = fp8lab.verify(d, (a, a), model="sm90.wgmma.e4m3", promotion_interval=128, a_scales=0.375)
results.append(np.frombuffer(report.text.encode(), np.uint8))
results.append(fp8lab.vectors("sm90.mma.bf16", 100).d)
assert mxcsr() & 0xFFC0 == before, "the mode has changed"
sys.stdout.buffer.write(b"".join(np.ascontiguousarray(r).tobytes() for r in results))
"""


def results(mode):
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("mode", ["flush", "up"])
def test_the_bits_do_not_depend_on_it(mode):
    expected = results("nearest")
    assert len(expected) > 500_000
    assert results(mode) == expected
