"""The caller's floating-point mode neither matters nor changes, in any public function."""

import functools
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="the environment of glibc on x86-64 is written by hand",
)

SCRIPT = Path(__file__).with_name("float_mode_jobs.py")
MODES = [f"{rounding}{flush}" for rounding in ("nearest", "up", "down", "zero") for flush in ("", "-flush")]


@functools.cache
def results(mode):
    done = subprocess.run([sys.executable, SCRIPT, mode], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", MODES[1:])
def test_the_bits_do_not_depend_on_it(mode):
    expected = results("nearest")
    assert results(mode).keys() == expected.keys()
    assert [name for name, one in results(mode).items() if one != expected[name]] == []


def test_no_public_function_is_left_out():
    import float_mode_jobs

    assert set(float_mode_jobs.JOBS) == set(float_mode_jobs.required())
    assert len(float_mode_jobs.JOBS) > 50


def test_the_same_twice():
    """Or the comparison would show nothing."""
    done = subprocess.run([sys.executable, SCRIPT, "nearest"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == results("nearest")
