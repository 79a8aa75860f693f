"""The plugin for pytest, as its users run it."""

import importlib.metadata
import subprocess
import sys

import pytest

INSTALLED = any(one.value == "fp8lab.pytest_plugin" for one in importlib.metadata.entry_points(group="pytest11"))
TESTS = '''
import numpy as np, pytest, fp8lab

@pytest.fixture
def operands():
    rng = np.random.default_rng(0)
    return tuple(fp8lab.encode(rng.standard_normal((8, 256), np.float32)) for _ in range(2))

def test_right(operands, assert_matches):
    assert_matches(fp8lab.gemm(*operands, model="sm90.wgmma.e4m3"), operands, model="sm90.wgmma.e4m3")

@pytest.mark.parametrize("name", ["zero", "<b>"])
def test_wrong(operands, name, assert_matches):
    assert_matches(0 * fp8lab.gemm(*operands, model="sm90.wgmma.e4m3"), operands, model="sm90.wgmma.e4m3")

def test_else():
    assert 1 == 2
'''


def run(folder, *arguments):
    (folder / "test_kernels.py").write_text(TESTS)
    # An installed package registers the plugin itself.
    plugin = [] if INSTALLED else ["-p", "fp8lab.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", *arguments]
    return subprocess.run([*command, "test_kernels.py"], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [[], ["--fp8lab-report", "page"]])
def test_wrong_outputs_are_collected(tmp_path, arguments):
    done = run(tmp_path, *arguments)
    assert done.returncode == 1 and "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "mismatch: 64 of 64 outputs differ in bits" in done.stdout and "_mode.py" not in done.stdout, done.stdout
    page = tmp_path / "page" / "index.html"
    assert page.is_file() == bool(arguments)
    if not arguments:
        assert "wrong output" not in done.stdout
        return
    text = page.read_text(encoding="utf-8")
    assert "fp8lab: 2 wrong outputs in page" in done.stdout
    assert text.count("<h2>") == 2 and "test_wrong[&lt;b&gt;]" in text and "<b>" not in text
    assert text.count("<pre>mismatch: 64 of 64 outputs differ in bits") == 2
    assert "test_else" not in text
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")


def test_a_page_says_that_nothing_was_wrong(tmp_path):
    done = run(tmp_path, "--fp8lab-report", "page", "-k", "right")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<h1>No wrong output</h1>" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
