"""The command of the wheel: `fp8lab` and `python -m fp8lab`."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fp8lab
import fp8lab_command as command

SCRIPT = Path(sys.executable).parent / "fp8lab"


def run(*arguments, **environment):
    return subprocess.run(
        [*map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )


def entries(group):
    return [one for one in importlib.metadata.distribution("fp8lab").entry_points if one.group == group]


def test_the_package_has_the_command_and_the_plugin():
    try:
        importlib.metadata.distribution("fp8lab")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    assert [one.load() for one in entries("console_scripts")] == [command.main]
    assert [one.value for one in entries("pytest11")] == ["fp8lab.pytest_plugin"]


HAS_COMMAND = hasattr(fp8lab._core, "run_command")
needs_command = pytest.mark.skipif(not HAS_COMMAND, reason="only wheels of ./dev wheel have the command")


@pytest.mark.skipif(HAS_COMMAND, reason="the package has the command")
def test_a_package_from_sources_says_that_it_has_no_command():
    done = run(sys.executable, "-m", "fp8lab", "list")
    assert done.returncode == 2 and "expected the command in" in done.stderr


@needs_command
@pytest.mark.parametrize("program", [[SCRIPT], [sys.executable, "-m", "fp8lab"]])
def test_the_command_runs(program, tmp_path):
    assert run(*program, "--version").stdout.strip() == fp8lab.__version__
    table = run(*program, "list", "models", "--csv").stdout.splitlines()
    assert {line.split(",")[0] for line in table[1:]} == set(fp8lab.models())
    wrong = run(*program, "verfy")
    assert wrong.returncode == 2 and "did you mean verify?" in wrong.stderr
    doctor = run(*program, "doctor")
    assert doctor.returncode == 0 and "all kept bits" in doctor.stdout, doctor.stdout + doctor.stderr
    done = run(*program, "run", "walkthrough", "--quick", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    done = run(*program, "report", tmp_path / "out", "-o", tmp_path / "report.html")
    assert done.returncode == 0 and (tmp_path / "report.html").stat().st_size > 100_000, done.stderr


@needs_command
def test_exit_codes_and_signals_are_the_command_s(tmp_path):
    (tmp_path / "no.npy").write_bytes(b"no array")
    done = run(SCRIPT, "verify", tmp_path / "no.npy", "--inputs", tmp_path / "no.npy", tmp_path / "no.npy")
    assert done.returncode == 2 and "no.npy" in done.stderr
    # A reader that has seen enough ends it quietly, as it ends a program; and so does whoever presses Ctrl-C.
    with subprocess.Popen([SCRIPT, "table", "e4m3fn"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as piped:
        piped.stdout.close()
        said = piped.stderr.read()
    assert (piped.returncode, said) == (-signal.SIGPIPE, b"")
    with subprocess.Popen([SCRIPT, "run", "all", "--out", tmp_path / "out"], stderr=subprocess.PIPE) as stopped:
        while not (tmp_path / "out").exists():
            assert stopped.poll() is None, stopped.stderr.read()
            time.sleep(0.01)
        stopped.send_signal(signal.SIGINT)
        said = stopped.stderr.read()
    assert stopped.returncode == -signal.SIGINT and b"Traceback" not in said


@needs_command
def test_the_command_starts_without_numpy():
    """A command of a shell must not take the time of `import numpy`."""
    loaded = "import sys, fp8lab_command as c; c._compiled_part(); print(*sys.modules)"
    done = run(sys.executable, "-c", loaded)
    assert done.returncode == 0 and not {"numpy", "fp8lab", "ml_dtypes"} & set(done.stdout.split()), done.stdout
