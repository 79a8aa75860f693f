"""The floating-point mode of public functions: nearest even with subnormals, whatever the caller set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fp8lab import _core

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_own_mode(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Runs a function in the library's mode, NumPy's work and conversions of numbers included.

    Each public function that takes or gives floats has this: tests/test_float_mode.py runs them all.
    """

    @functools.wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        __tracebackhide__ = True  # pytest shows the frames around it
        callers = _core.set_float_mode(None)
        try:
            return function(*args, **kwargs)
        finally:
            _core.set_float_mode(callers)

    return run


def callers_mode() -> _core.FloatMode:
    """The mode of this thread."""
    mode = _core.set_float_mode(None)
    _core.set_float_mode(mode)
    return mode


def in_mode(
    mode: _core.FloatMode, function: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """The caller's function, run in the mode that the caller has."""

    @functools.wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        ours = _core.set_float_mode(mode)
        try:
            return function(*args, **kwargs)
        finally:
            _core.set_float_mode(ours)

    return run
