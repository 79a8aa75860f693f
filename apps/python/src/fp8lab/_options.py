"""The arguments that functions share with `gemm`: their types, and their place in signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from numpy.typing import ArrayLike

from fp8lab._kernels import Epilogue, SplitK
from fp8lab._recipes import Scales

Function = TypeVar("Function", bound=Callable[..., Any])


class OperandOptions(TypedDict, total=False):
    """The arguments of `gemm` that are known before it is known how a kernel sums."""

    c: ArrayLike | None
    scale_a: ArrayLike | Scales | None
    scale_b: ArrayLike | Scales | None
    a_format: str | None
    b_format: str | None
    scale_format: str | None
    epilogue: Epilogue | None
    recipe: str | None


class ProductOptions(OperandOptions, total=False):
    """The arguments of `gemm` except operands, model, threads and backend."""

    promotion_interval: int
    scale_order: str
    c_enters: str | None
    call: str | None
    split_k: SplitK | None


def parameters_of(
    source: Callable[..., Any], options: type[OperandOptions]
) -> dict[str, inspect.Parameter]:
    """The parameters of `source` that `options` names, in the order of `source`."""
    names = inspect.get_annotations(options)
    found = inspect.signature(source).parameters
    return {name: parameter for name, parameter in found.items() if name in names}


def with_arguments_of(
    source: Callable[..., Any], options: type[OperandOptions], before: str
) -> Callable[[Function], Function]:
    """A decorator for functions with `**options: Unpack[options]`.

    Type checkers read the names and types of `options`. This gives `help` and
    `inspect.signature` the same arguments with the defaults of `source`, in front of the
    parameter `before`.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if name == before:
                parameters += parameters_of(source, options).values()
            if parameter.kind is not parameter.VAR_KEYWORD:
                parameters.append(parameter)
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def require_known(given: OperandOptions, options: type[OperandOptions]) -> None:
    """TypeError for a name that `options` does not have, as for any unknown keyword."""
    unknown = sorted(set(given) - set(inspect.get_annotations(options)))
    if unknown:
        raise TypeError(f"unexpected keyword argument '{unknown[0]}'")
