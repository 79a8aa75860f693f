"""The package itself: what it exports, documents, types and pins."""

import ast
import dataclasses
import doctest
import importlib.metadata
import inspect
import pathlib
import re
import tomllib

import pytest

import fp8lab
from fp8lab import _core

SOURCES = pathlib.Path(__file__).resolve().parents[3]
INSTALLED = pathlib.Path(fp8lab.__file__).parent


def test_the_installed_package_is_what_runs():
    assert not INSTALLED.is_relative_to(SOURCES / "apps")
    version = re.search(
        r"project\(fp8lab VERSION ([0-9.]+)", (SOURCES / "CMakeLists.txt").read_text()
    )
    assert version and importlib.metadata.version("fp8lab") == version[1] == fp8lab.__version__


def test_stubs_name_everything_compiled():
    assert (INSTALLED / "py.typed").exists()
    stub = ast.parse((INSTALLED / "_core.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert named == {name for name in dir(_core) if not name.startswith("_")}


@pytest.mark.parametrize("name", fp8lab.__all__)
def test_everything_public_is_documented(name):
    item = getattr(fp8lab, name)
    if inspect.ismodule(item):
        assert item.__all__
        return
    assert item.__doc__ and not item.__doc__.startswith(f"{name}(")
    if inspect.isfunction(item):
        assert doctest.DocTestParser().get_examples(item.__doc__), "no example"
        assert all(p.annotation is not p.empty for p in inspect.signature(item).parameters.values())
    else:
        kinds = (tuple, Warning, fp8lab.AutoScaler, fp8lab.Quantizer)
        assert dataclasses.is_dataclass(item) or issubclass(item, kinds)


def test_pins_agree():
    lines = (SOURCES / "tests/python/requirements.txt").read_text().split()
    pins = dict(line.split("==") for line in lines)
    project = tomllib.loads((SOURCES / "apps/python/pyproject.toml").read_text())
    for requirement in project["build-system"]["requires"]:
        name, version = requirement.split("==")
        assert pins[name] == version


def test_registries():
    assert fp8lab.formats()["e5m2"].max_finite == 57344.0
    assert fp8lab.profiles()["ml_dtypes"].nan == "signed_quiet"
    hopper = fp8lab.models()["sm90.wgmma.e4m3"]
    assert hopper.a_format == "e4m3fn" and hopper.standing == "measured"
    assert hopper.accumulator == fp8lab.AccumulatorModel(min_alignment_exponent=-139)
    assert hopper.evidence == (("h100_wgmma_e4m3", "H100", 2000), ("h200_wgmma_e4m3", "H200", 10240))
    assert fp8lab.presets()["deepseek-v3"].weight.row_block == 128
    for model in fp8lab.models().values():
        model.accumulator._core()
