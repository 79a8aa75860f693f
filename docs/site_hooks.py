"""Pages of the site that are no files of docs/: READMEs, matrix units, scale rules, the reference of C++ and Python.

A README belongs beside the code that it describes, so it is not copied into docs/. Units are what the tool lists
(FP8LAB_TOOL, or build/fp8lab; without it there are no such pages, nor one of scale rules), plots those of quick runs in FP8LAB_RESULTS or
build/docs-results.
"""

import logging
import os
import sys
from pathlib import Path

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs/generated"))
import api  # noqa: E402
import scale_rules  # noqa: E402
import units  # noqa: E402

TOOL = Path(os.environ.get("FP8LAB_TOOL", ROOT / "build/fp8lab"))
RESULTS = Path(os.environ.get("FP8LAB_RESULTS", ROOT / "build/docs-results"))
OTHERS = {
    "python": "apps/python",
    "explorer": "apps/explorer",
    "slurm": "apps/slurm",
    "cuda": "cuda",
    "notebooks": "notebooks",
}


def pages():
    """Path in the site -> README."""
    found = {"library/index.md": ROOT / "lib/README.md"}
    for readme in sorted(ROOT.glob("lib/*/*/README.md")):
        found[f"library/{readme.parent.name}.md"] = readme
    for name, folder in OTHERS.items():
        found[f"library/{name}.md"] = ROOT / folder / "README.md"
    for readme in sorted(ROOT.glob("experiments/*/README.md")):
        found[f"experiments/{readme.parent.name}.md"] = readme
    return found


def question_of(readme):
    """The question that an experiment's README asks, as one line."""
    text = " ".join(readme.read_text().split())
    return text.partition("**Question.** ")[2].partition("**Method.**")[0].strip() or "claims about FP8, measured"


def experiments_index(found):
    """A page that lists the experiments by their questions."""
    lines = ["# Experiments", "", "`fp8lab run NAME` runs one; `--quick` runs a small form of it.", ""]
    for path, readme in found.items():
        if path.startswith("experiments/"):
            lines.append(f"- [{readme.parent.name}]({readme.parent.name}.md): {question_of(readme)}")
    return "\n".join(lines) + "\n"


def plots_of(experiment):
    """Drawn plots of a quick run, by name."""
    return sorted((RESULTS / experiment).glob("*.svg"))


def readme_text(path, readme):
    """A README; of an experiment with its plots, if there are any."""
    text = readme.read_text()
    plots = plots_of(readme.parent.name) if path.startswith("experiments/") else []
    if not plots:
        return text
    shown = [f"![{plot.stem.replace('_', ' ')}]({readme.parent.name}/{plot.name})" for plot in plots]
    command = f"From `fp8lab run {readme.parent.name} --quick`; `fp8lab report` draws interactive plots."
    return "\n\n".join([text.rstrip(), "## Plots", command, *shown]) + "\n"


_made = {}


def made_pages():
    """Path in the site -> text of units and references, made once."""
    if not _made:
        _made.update(api.pages(ROOT))
        if TOOL.exists():
            _made.update(units.pages(units.listed(str(TOOL))["models"]))
            _made.update(scale_rules.pages(str(TOOL)))
        else:
            logging.getLogger("mkdocs").info("%s was not found: the site has no pages of units and scale rules", TOOL)
    return _made


def entry(path):
    """A page with its name, since most of these pages have long titles."""
    return {Path(path).stem: path}


def unit_entries(made):
    """The table of all units, then a list for each vendor's chip."""
    chips = {}
    for path in made:
        if path.startswith("units/") and path != "units/index.md":
            chips.setdefault(units.family(Path(path).stem), []).append(entry(path))
    return ["units/index.md", *({chip: pages_of_chip} for chip, pages_of_chip in chips.items())]


def on_config(config):
    """The part of the navigation that is not in site.yml: experiments stand before the specification, references last."""
    found, made = pages(), made_pages()

    def below(folder, paths):
        index = folder + "index.md"
        return [index, *(entry(path) for path in paths if path.startswith(folder) and path != index)]

    specification = next(i for i, part in enumerate(config.nav) if "Specification" in part)
    config.nav.insert(specification, {"Experiments": below("experiments/", found)})
    if "units/index.md" in made:
        config.nav.append({"Matrix units": unit_entries(made)})
        config.nav.append({"Scale rules": [path for path in made if path.startswith("scale-rules")]})
    config.nav.append({"Library and tools": below("library/", found)})
    for title, folder in (("Python reference", "api/python/"), ("C++ reference", "api/cpp/")):
        config.nav.append({title: [entry(path) for path in made if path.startswith(folder)]})
    return config


def on_files(files, config):
    """Adds READMEs, units, references and plots to the files of the site."""
    found = pages()
    for path, readme in found.items():
        files.append(File.generated(config, path, content=readme_text(path, readme)))
        if path.startswith("experiments/"):
            for plot in plots_of(readme.parent.name):
                files.append(File.generated(config, f"experiments/{readme.parent.name}/{plot.name}", content=plot.read_bytes()))
    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "experiments/index.md", content=experiments_index(found)))
    return files


@event_priority(-100)
def on_post_build(config):
    """The index of the search as a script, for pages that are opened as files (search_from_file.js)."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text()
    (folder / "search_index.js").write_text(f"window.siteSearchIndex = {index};\n")
