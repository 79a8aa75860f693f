"""NaN and infinities have defined bits but are seldom intended: a warning counts them."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(__file__) + os.sep


class NonFiniteWarning(RuntimeWarning):
    """NaN or infinities among the operands or the results of a call."""


def warn(text: str, category: type[Warning] = NonFiniteWarning) -> None:
    """Warn with this text, if there is one, at the line that called the package."""
    if not text:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, level)
