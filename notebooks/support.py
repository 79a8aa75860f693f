"""What the notebooks share: running the tool, one look for all figures, captions from results."""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import vl_convert
from IPython.display import Markdown, display
from matplotlib.ticker import PercentFormatter

import fp8lab.results

# Okabe and Ito's palette: told apart with any colour vision, and in grey by their order.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#222222", "#E69F00", "#56B4E9", "#009E73", "#D8C400", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip

PERCENT = PercentFormatter(1, symbol=" %", decimals=0)

plt.rcParams.update({
    "figure.dpi": 110, "figure.constrained_layout.use": True, "font.size": 9.5,
    "axes.titlesize": 10, "axes.titlelocation": "left", "axes.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.7,
    "lines.linewidth": 1.7, "lines.markersize": 4, "legend.frameon": False,
    "legend.fontsize": 8.5, "axes.prop_cycle": plt.cycler(color=[BLUE, RED, GREEN, ORANGE, PINK, SKY]),
})  # fmt: skip

_FOLDER = Path(tempfile.mkdtemp(prefix="fp8lab-notebook-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def tool() -> str:
    """The fp8lab command: FP8LAB_TOOL, or the one on the PATH."""
    found = os.environ.get("FP8LAB_TOOL") or shutil.which("fp8lab")
    if found is None:
        raise FileNotFoundError("fp8lab: set FP8LAB_TOOL to build/fp8lab, or put it on the PATH")
    return found


def fp8lab_command(*arguments: str | Path) -> str:
    """Runs the tool; returns what it wrote to standard output, or raises with its message."""
    done = subprocess.run([tool(), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fp8lab {arguments[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Run:
    """What an experiment left: `run["name"]` is a table as a pandas DataFrame."""

    description: Mapping[str, Any]  #: result.json
    tables: Mapping[str, pd.DataFrame]

    def __getitem__(self, table: str) -> pd.DataFrame:
        return self.tables[table]


def run(experiment: str, *settings: str, plots: bool = False) -> Run:
    """An experiment in its quick form, with `KEY=VALUE` settings changed."""
    out = _FOLDER / f"{experiment}-{len(list(_FOLDER.iterdir()))}"
    options = [f"--set={setting}" for setting in settings] + ([] if plots else ["--no-plots"])
    fp8lab_command("run", experiment, "--quick", *options, "--out", out)
    results = fp8lab.results.read(out / experiment)
    return Run(results.description, {name: table.to_pandas() for name, table in results.tables.items()})


def file_in_temporary_folder(name: str) -> Path:
    return _FOLDER / name


def specification(results: Run, plot: str) -> dict[str, Any]:
    """A plot of a run as the tool wrote it: a Vega-Lite specification."""
    file = next(_FOLDER.glob(f"{results.description['experiment']}-*/*/{plot}.json"))
    made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return made


def plotted(results: Run, plot: str) -> dict[str, np.ndarray]:
    """The series of a plot, by label: arrays [2, points] of x and y."""
    found = specification(results, plot)
    labels = found["usermeta"]["labels"]
    return {labels[one["series"]]: np.array([one["x"], one["y"]], dtype=float) for one in found["data"]["values"]}


def show(results: Run, plot: str) -> None:
    """Shows a plot of a run as the report's page does: interactive in JupyterLab, a picture elsewhere."""
    found = specification(results, plot)
    png = vl_convert.vegalite_to_png(found, vl_version="6.4", scale=1.5)
    display({"application/vnd.vegalite.v6+json": found, "image/png": base64.b64encode(png).decode()}, raw=True)


def caption(text: str, results: Run | None = None) -> None:
    """Shows a caption, with the command that gives its data again."""
    if results is not None:
        words = results.description["command"].split()
        at = words.index("--out")
        words = [word for word in words[:at] + words[at + 2 :] if word != "--no-plots"]
        text += f"<br><small>`{' '.join(words)}`</small>"
    display(Markdown(text))
