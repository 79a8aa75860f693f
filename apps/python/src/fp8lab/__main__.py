"""The command `fp8lab`: runs the compiled tool of the wheel, in this process's place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TOOL = Path(__file__).parent / "bin" / "fp8lab"


def main() -> int:
    """Becomes the tool, whose files of plots this Python draws unless FP8LAB_PYTHON names another one."""
    if not TOOL.is_file():
        print(
            f"fp8lab: expected the command in {TOOL}, got none: this package was installed from sources, "
            "and only wheels of `./dev wheel` have it",
            file=sys.stderr,
        )
        return 2
    os.environ.setdefault("FP8LAB_PYTHON", sys.executable)
    os.execv(TOOL, ["fp8lab", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
