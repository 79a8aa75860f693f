"""The signature of everything public, as `signatures/MODULE.txt` keeps it.

A name, a default or a keyword-only marker that changes breaks users' code. `python3 test_signatures.py`
writes the files anew after a change that is meant.
"""

import importlib
import importlib.util
import inspect
import pathlib

import pytest

KEPT = pathlib.Path(__file__).parent / "signatures"
MODULES = ["fp8lab", "fp8lab.results", "fp8lab.testing"]
if importlib.util.find_spec("torch"):
    MODULES.append("fp8lab.torch")


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


if __name__ == "__main__":
    for one in MODULES:
        (KEPT / f"{one}.txt").write_text(text_of(one))
