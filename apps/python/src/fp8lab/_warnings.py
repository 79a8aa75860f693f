"""NaN and infinities have defined bits but are seldom intended: a warning counts them."""

from __future__ import annotations

import warnings


class NonFiniteWarning(RuntimeWarning):
    """NaN or infinities among the operands or the results of a call."""


def warn(text: str, stacklevel: int = 3) -> None:
    """Warn with this text, if there is one, at the line that called the caller."""
    if text:
        warnings.warn(text, NonFiniteWarning, stacklevel)
