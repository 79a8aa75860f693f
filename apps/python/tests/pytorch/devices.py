"""Where the tests of CUDA tensors run: on a device made of host memory, and on a GPU where there is one."""

import contextlib
import types

import pytest
import torch
from fake_device import DEVICE, STREAM, install

import fp8lab
from fp8lab import _core
from fp8lab.torch import _device


def missing():
    """Why nothing can run on a GPU here; "" if it can."""
    if "cuda-emulated" not in fp8lab.backends():
        return "fp8lab is built without CUDA"
    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


needs_gpu = [pytest.mark.cuda, pytest.mark.skipif(bool(missing()), reason=missing())]


class Simulated:
    """Tensors stay in the host's memory and count as those of a device while `running`."""

    place = DEVICE, STREAM

    def put(self, x):
        return x

    @contextlib.contextmanager
    def running(self, monkeypatch):
        """From here on nothing may wait for the device. Gives what records the calls."""
        with monkeypatch.context() as patch:
            yield install(patch)


class Recorder:
    """Lets the calls of a build with CUDA through."""

    def __init__(self):
        self.calls = []
        self.columns = []

    def device_gemm(self, **given):
        self.calls.append(given)
        _core.device_gemm(**given)

    def device_column_sums(self, **given):
        self.columns.append(given)
        _core.device_column_sums(**given)


class Gpu:
    """The first CUDA device; torch itself raises an error for what would wait for it."""

    @property
    def place(self):
        return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream

    def put(self, x):
        return tuple(map(self.put, x)) if isinstance(x, tuple) else x.to("cuda") if hasattr(x, "to") else x

    @contextlib.contextmanager
    def running(self, monkeypatch):
        recorder = Recorder()
        calls = types.SimpleNamespace(
            device_workspace=_core.device_workspace,
            device_gemm=recorder.device_gemm,
            device_column_sums=recorder.device_column_sums,
        )
        with monkeypatch.context() as patch:
            patch.setattr(_device, "_core", calls)
            torch.cuda.set_sync_debug_mode("error")
            try:
                yield recorder
            finally:
                torch.cuda.set_sync_debug_mode("default")


def records(device, recorder, count):
    """So many products, all on the stream and the device of the tensors."""
    places = [(call["device"], call["stream"]) for call in (*recorder.calls, *recorder.columns)]
    return len(recorder.calls) == count and set(places) == {device.place}
