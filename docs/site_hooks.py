"""Pages of the site that are READMEs of the repository: experiments, rooms of the library, Python, CUDA.

A README belongs beside the code that it describes, so it is not copied into docs/.
"""

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
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
    for readme in sorted(ROOT.glob("lib/fp8lab/*/README.md")):
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
    lines = ["# Experiments", "", "`fp8lab run NAME` runs one; `--quick` is a small form of it.", ""]
    for path, readme in found.items():
        if path.startswith("experiments/"):
            lines.append(f"- [{readme.parent.name}]({readme.parent.name}.md): {question_of(readme)}")
    return "\n".join(lines) + "\n"


def on_config(config):
    """The READMEs' part of the navigation."""
    found = pages()
    for title, folder in (("Experiments", "experiments/"), ("Library and tools", "library/")):
        index = folder + "index.md"
        config.nav.append({title: [index] + [path for path in found if path.startswith(folder) and path != index]})
    return config


def on_files(files, config):
    """Adds the READMEs to the files of the site."""
    found = pages()
    for path, readme in found.items():
        files.append(File.generated(config, path, content=readme.read_text()))
    files.append(File.generated(config, "experiments/index.md", content=experiments_index(found)))
    return files
