"""The signature of everything public, as `signatures/MODULE.txt` keeps it.

A name, a default or a keyword-only marker that changes breaks users' code. `python3 test_signatures.py`
writes the files anew after a change that is meant.
"""

import importlib
import importlib.util
import inspect
import pathlib

import numpy as np
import pytest

import fp8lab
from fp8lab._options import ProductOptions

KEPT = pathlib.Path(__file__).parent / "signatures"
MODULES = ["fp8lab", "fp8lab.results", "fp8lab.testing"]
MODULES += [f"fp8lab.{name}" for name in ("jax", "torch") if importlib.util.find_spec(name)]


def lines_of(name, function):
    """`name(`, one parameter a line with its marker, and what it returns."""
    found = inspect.signature(function)
    yield f"{name}("
    kind = None
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            yield "    *,"
        kind = parameter.kind
        yield f"    {parameter},"
    returns = found.return_annotation
    yield ")" if returns is found.empty else f") -> {returns}"


def described(name, item):
    """A function, or a class with its constructor and its public methods and properties."""
    if inspect.isfunction(item):
        yield from lines_of(name, item)
        return
    if not inspect.isclass(item):
        yield f"{name}: {type(item).__name__}"
        return
    yield f"class {name}"
    if not issubclass(item, Warning):
        yield from lines_of(name, item)
    for member, value in sorted(vars(item).items()):
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"property {name}.{member}"
        elif inspect.isfunction(value):
            yield from lines_of(f"{name}.{member}", value)


def text_of(module):
    """Everything that `__all__` names, sorted."""
    found = importlib.import_module(module)
    lines = []
    for name in sorted(found.__all__):
        lines += [*described(name, getattr(found, name)), ""]
    return "\n".join(lines)


@pytest.mark.parametrize("module", MODULES)
def test_signatures_are_those_kept(module):
    assert text_of(module) == (KEPT / f"{module}.txt").read_text()


def test_shared_arguments_have_the_types_of_gemm():
    """Type checkers read them in `ProductOptions`, people in the signature of `gemm`."""
    parameters = inspect.signature(fp8lab.gemm).parameters.values()
    own = ("model", "threads", "backend")
    expected = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in own}
    options = inspect.get_annotations(ProductOptions)
    assert {name: hint.__forward_arg__ for name, hint in options.items()} == expected


def test_shared_arguments_have_the_defaults_of_gemm():
    """What `gemm_groups` takes when nothing is said, said."""
    parameters = inspect.signature(fp8lab.gemm_groups).parameters
    defaults = {name: parameters[name].default for name in inspect.get_annotations(ProductOptions)}
    codes = fp8lab.encode(np.arange(-64, 64, dtype=np.float32).reshape(1, 2, 64))
    groups = fp8lab.Groups("batched")
    for function in (fp8lab.gemm_groups, lambda a, b, _, **how: fp8lab.gemm(a[0], b[0], **how)):
        plain = function(codes, codes, groups, model="sm90.wgmma.e4m3")
        said = function(codes, codes, groups, model="sm90.wgmma.e4m3", **defaults)
        assert plain.tobytes() == said.tobytes()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, groups: fp8lab.verify(x[0], (x[0], x[0]), model="exact", promotion=1),
        lambda x, groups: fp8lab.testing.assert_matches(x[0], (x[0], x[0]), model="exact", promotion=1),
        lambda x, groups: fp8lab.gemm_groups(x, x, groups, model="exact", promotion=1),
        lambda x, groups: fp8lab.verify_groups(x, (x, x), groups, model="exact", promotion=1),
        lambda x, groups: fp8lab.identify_groups(x, (x, x), groups, promotion=1),
        # A keyword of `gemm`, but not of a search that tries all promotions.
        lambda x, groups: fp8lab.identify_groups(x, (x, x), groups, promotion_interval=128),
    ],
)
def test_an_unknown_keyword_is_a_type_error(call):
    with pytest.raises(TypeError, match="unexpected keyword argument 'promotion"):
        call(np.zeros((1, 2, 2), np.float32), fp8lab.Groups("batched"))


if __name__ == "__main__":
    for one in MODULES:
        (KEPT / f"{one}.txt").write_text(text_of(one))
