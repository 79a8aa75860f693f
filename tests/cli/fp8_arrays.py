"""FP8 codes and a folder of arrays for tests of the tool: skips where NumPy or ml_dtypes is missing."""

import sys
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: no numpy or ml_dtypes")
    sys.exit(77)


def e4m3(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e4m3fn)


def codes(x):
    return e4m3(x).view(np.uint8)


class Folder:
    """A temporary folder with a way to save arrays in it."""

    def __init__(self, path):
        self.path = Path(path)

    def save(self, name, array):
        np.save(self.path / name, array)
        return self.path / name

    def __truediv__(self, name):
        return self.path / name


def normal(rng, *shape):
    return codes(rng.standard_normal(shape))
