"""Writes the sample files of this folder: FP8 codes A [16, 512] and B [24, 512] as uint8.

mine.npy is the output of a kernel that forgot promotion: `fp8lab gemm a.npy b.npy --dtype e4m3fn
--model sm90.wgmma.e4m3 -o mine.npy`. Run with NumPy and ml_dtypes: python3 make_samples.py
"""

from pathlib import Path

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent
ROWS, COLUMNS, TERMS = 16, 24, 512

random = np.random.default_rng(1)
for name, rows in (("a", ROWS), ("b", COLUMNS)):
    values = random.standard_normal((rows, TERMS), np.float32)
    np.save(FOLDER / f"{name}.npy", values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
