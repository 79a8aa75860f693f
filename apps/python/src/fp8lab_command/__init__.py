"""The command `fp8lab`, which the compiled part of the package `fp8lab` has as a function.

It is no part of that package, whose import takes NumPy's time.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType


def main() -> int:
    """Runs the command, which ends the process. This Python draws its files of plots, unless FP8LAB_PYTHON names another one."""
    core = sys.modules.get("fp8lab._core") or _compiled_part()
    if core is None or not hasattr(core, "run_command"):
        print(
            f"fp8lab: expected the command in {getattr(core, '__file__', 'fp8lab._core')}, got none: this package was "
            "installed from sources, and only wheels of `./dev wheel` have it",
            file=sys.stderr,
        )
        return 2
    os.environ.setdefault("FP8LAB_PYTHON", sys.executable)
    core.run_command([b"fp8lab", *map(os.fsencode, sys.argv[1:])])
    return 2  # not reached


def _compiled_part() -> ModuleType | None:
    """The extension module alone, without the package around it."""
    package = PathFinder.find_spec("fp8lab")
    if package is None:
        return None
    spec = PathFinder.find_spec("fp8lab._core", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    core = spec.loader.create_module(spec)
    if core is not None:
        spec.loader.exec_module(core)
    return core
