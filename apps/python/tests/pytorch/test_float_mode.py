"""The caller's floating-point mode does not matter to fp8lab.torch: layers, products, casts."""

import functools
import json
import platform
import subprocess
import sys
from pathlib import Path

import float_mode_jobs_torch as jobs
import pytest

import fp8lab.torch

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="the environment of glibc on x86-64 is written by hand",
)


@functools.cache
def results(mode):
    script = Path(__file__).with_name("float_mode_jobs_torch.py")
    done = subprocess.run([sys.executable, script, mode], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["up", "zero-flush"])
def test_the_bits_do_not_depend_on_it(mode):
    expected = results("nearest")
    assert [name for name, one in results(mode).items() if one != expected[name]] == []


def test_no_public_name_is_left_out():
    assert set(jobs.JOBS) | set(jobs.OTHERS) == set(fp8lab.torch.__all__)
    assert not set(jobs.JOBS) & set(jobs.OTHERS)
