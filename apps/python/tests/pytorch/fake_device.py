"""A CUDA device made of host memory: the code for CUDA tensors runs on CPU tensors.

`_core`'s calls are recorded, and computed by the library from the addresses that they are given. What
would wait for a device (a copy to the host, a number, a truth value) fails.
"""

import ctypes
import types

import numpy as np
import torch

import fp8lab
from fp8lab import _core
from fp8lab.torch import _device, _device_casts

DEVICE, STREAM = 3, 0x5AF0
WAITS = ("numpy", "cpu", "item", "tolist", "__bool__", "__float__", "__int__", "__index__")


def memory(address, dtype, shape, strides):
    """An array over memory; strides in elements, none negative."""
    dtype = np.dtype(dtype)
    last = sum((n - 1) * s for n, s in zip(shape, strides))
    raw = (ctypes.c_uint8 * ((last + 1) * dtype.itemsize)).from_address(address)
    words = np.frombuffer(raw, dtype)
    return np.lib.stride_tricks.as_strided(words, shape, [s * dtype.itemsize for s in strides])


class Recorder:
    """The calls that this package makes of a build with CUDA."""

    def __init__(self):
        self.calls = []
        self.columns = []

    def device_workspace(self, *, a, b):
        return 64

    def _operand(self, given):
        address, name, rows, k, *strides = given
        width = np.uint8 if name.startswith("e") else np.uint16
        return memory(address, width, (rows, k), strides), name

    def _scales(self, given, rows, k):
        if given is None:
            return None
        address, size, row_block, k_block = given
        values = memory(address, np.float32, (size,), (1,))
        tiles = -(-rows // (row_block or max(rows, 1))), -(-k // (k_block or max(k, 1)))
        return fp8lab.Scales(values.reshape(tiles), row_block, k_block)

    def device_gemm(self, **given):
        self.calls.append(given)
        (a, a_format), (b, b_format) = self._operand(given["a"]), self._operand(given["b"])
        model = _core.definition_of(model=given["model"], a_format=a_format, b_format=b_format)
        address, size = given["d"]
        assert size == len(a) * len(b) and given["workspace"][1] == 64
        memory(address, np.float32, (len(a), len(b)), (len(b), 1))[:] = fp8lab.gemm(
            a,
            b,
            model=model,
            a_format=a_format,
            b_format=b_format,
            scale_a=self._scales(given["scale_a"], len(a), a.shape[1]),
            scale_b=self._scales(given["scale_b"], len(b), b.shape[1]),
            promotion_interval=given["promotion_interval"],
            scale_order=given["scale_order"],
            threads=2,
        )

    def device_column_sums(self, **given):
        self.columns.append(given)
        shape = given["rows"], given["columns"]
        total = np.zeros(given["columns"], np.float32)
        if shape[0]:
            for row in memory(given["x"], np.float32, shape, (given["row_stride"], 1)):
                total += row
        memory(given["sums"], np.float32, (given["columns"],), (1,))[:] = total


def install(monkeypatch):
    """From here on tensors count as those of a CUDA device. Returns what records the calls."""
    recorder = Recorder()
    core = types.SimpleNamespace(
        device_workspace=recorder.device_workspace,
        device_gemm=recorder.device_gemm,
        device_column_sums=recorder.device_column_sums,
    )
    monkeypatch.setattr(_device, "_core", core)
    monkeypatch.setattr(_device, "backends", lambda: ["cpu", "cuda", "cuda-emulated"])
    monkeypatch.setattr(_device, "is_cuda", lambda x: True)
    monkeypatch.setattr(_device, "_place", lambda x: (DEVICE, STREAM))
    for name in WAITS:

        def waits(self, *args, name=name, **kwargs):
            raise AssertionError(f"a tensor's {name} would wait for the device")

        monkeypatch.setattr(torch.Tensor, name, waits)
    return recorder


RECIPES = [
    name
    for name in fp8lab.linear_recipes()
    if all(getattr(fp8lab.linear_recipe(name), product).arithmetic == "fp8" for product in ("fprop", "wgrad"))
    and fp8lab.linear_recipe(name).activation.rule in _device_casts.RULES
    and fp8lab.linear_recipe(name).activation.source in _device_casts.SOURCES
]
