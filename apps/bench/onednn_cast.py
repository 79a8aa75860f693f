"""oneDNN's conversion of binary32 into 8-bit floating point: a reorder, through its C interface.

PyPI's `onednn` (3.x; 2.x has no such types) brings the library without a Python module, and the
SYCL runtime it needs. Both are looked for beside the interpreter.
"""

import ctypes
import os
import re
import sys
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

# Values of dnnl_types.h.
CPU, DEFAULT_STREAM, TAG_A, F32 = 1, 1, 2, 3
TYPES = {"e5m2": 9, "e4m3fn": 10}
ARGUMENT_FROM, ARGUMENT_TO = 1, 17


class Version(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("major", "minor", "patch")]


class Argument(ctypes.Structure):
    _fields_ = [("index", c_int), ("memory", c_void_p)]


def load(path):
    """Loads a library whose own libraries lie beside it."""
    while True:
        try:
            return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            missing = re.match(r"(\S+): cannot open shared object file", str(error))
            needed = missing and path.with_name(missing[1])
            if not needed or needed == path or not needed.exists():
                raise ImportError(f"oneDNN is not installed: {error}") from error
            load(needed)


class Library:
    def __init__(self):
        folder = Path(sys.prefix) / "lib"
        # The package's own list of OpenCL drivers names a path of another machine.
        os.environ.setdefault("OCL_ICD_FILENAMES", str(folder / "libintelocl.so"))
        self.library = load(folder / "libdnnl.so.3")
        self.library.dnnl_version.restype = ctypes.POINTER(Version)
        version = self.library.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        self.engine = self.create("engine_create", c_int(CPU), c_size_t(0))
        self.stream = self.create("stream_create", self.engine, c_int(DEFAULT_STREAM))
        self.reorders = {}

    def call(self, name, *arguments):
        status = getattr(self.library, f"dnnl_{name}")(*arguments)
        if status != 0:
            raise RuntimeError(f"oneDNN {self.version}: dnnl_{name} returns status {status}, expected 0")

    def create(self, name, *arguments):
        made = c_void_p()
        self.call(name, byref(made), *arguments)
        return made

    def reorder(self, count, kind):
        """The primitive for this number of elements, and its two memory descriptors."""
        if (count, kind) not in self.reorders:
            shape = (c_int64 * 1)(count)
            descriptors = [
                self.create("memory_desc_create_with_tag", c_int(1), shape, c_int(t), c_int(TAG_A))
                for t in (F32, TYPES[kind])
            ]
            described = self.create(
                "reorder_primitive_desc_create", descriptors[0], self.engine, descriptors[1], self.engine, None
            )
            self.reorders[count, kind] = self.create("primitive_create", described), descriptors
        return self.reorders[count, kind]

    def cast(self, values, kind):
        """Codes [n] of binary32 values [n] in `kind`: e4m3fn or e5m2."""
        primitive, descriptors = self.reorder(values.size, kind)
        codes = np.empty(values.size, np.uint8)
        memories = [
            self.create("memory_create", descriptor, self.engine, array.ctypes.data_as(c_void_p))
            for descriptor, array in zip(descriptors, (values, codes))
        ]
        arguments = (Argument * 2)(Argument(ARGUMENT_FROM, memories[0]), Argument(ARGUMENT_TO, memories[1]))
        self.call("primitive_execute", primitive, self.stream, c_int(2), arguments)
        self.call("stream_wait", self.stream)
        for memory in memories:
            self.call("memory_destroy", memory)
        return codes
