"""`fp8lab verify` of 4096^3 takes at most twice the time of the `fp8lab gemm` that it repeats.

Both with files read and written, in turn, the quickest of three passes each: other load hits
both. Usage: verify_speed.py PATH_OF_FP8LAB
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)

TOOL = sys.argv[1]
SIZE = 4096
LIMIT = 2.0


def timed(code, *arguments):
    begin = time.perf_counter()
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert done.returncode == code, (arguments, done.returncode, done.stdout + done.stderr)
    return seconds


def main():
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        a, b, d = (Path(folder, f"{name}.npy") for name in "abd")
        for path in (a, b):
            x = rng.standard_normal((SIZE, SIZE), np.float32)
            np.save(path, x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
        how = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "--promotion"]
        gemm, right, wrong = [], [], []
        for _ in range(3):
            wrong_output = ["verify", d, "--inputs", a, b, *how, 256]
            gemm.append(timed(0, "gemm", a, b, *how, 128, "-o", d))
            right.append(timed(0, "verify", d, "--inputs", a, b, *how, 128))
            wrong.append(timed(1, *wrong_output))
    print(f"{SIZE}^3: gemm {min(gemm):.2f} s, verify of the right output {min(right):.2f} s, "
          f"of a wrong one {min(wrong):.2f} s")
    return 0 if max(min(right), min(wrong)) <= LIMIT * min(gemm) else 1


sys.exit(main())
