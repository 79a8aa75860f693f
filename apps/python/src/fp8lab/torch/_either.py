"""A function with the signatures of two others, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

First = ParamSpec("First")
Second = ParamSpec("Second")
Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class Either(Protocol, Generic[First, Second, Result_co]):
    """Takes the arguments of the one or of the other."""

    @overload
    def __call__(self, *args: First.args, **kwargs: First.kwargs) -> Result_co: ...

    @overload
    def __call__(self, *args: Second.args, **kwargs: Second.kwargs) -> Result_co: ...


def either(
    first: Callable[First, Result], second: Callable[Second, Result]
) -> Callable[[Callable[..., Result]], Either[First, Second, Result]]:
    """A decorator that changes the type alone: the function itself tells the two apart."""

    def decorate(function: Callable[..., Result]) -> Either[First, Second, Result]:
        return cast(Any, function)

    return decorate
