"""Checks the notebooks: stripped in the repository, and running from top to bottom.

usage: check.py            outputs and execution counts are stripped (needs no packages)
       check.py --strip    strips them
       check.py --execute OUT   runs all, two at a time, and keeps what they show in OUT
"""

import concurrent.futures
import json
import os
import pathlib
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
# Larger than any caption or report: a notebook that prints more prints a table nobody reads.
MOST_TEXT = 4000
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def problems(notebook):
    """What is left of a run in a notebook (its JSON)."""
    found = [] if notebook["metadata"] == METADATA else ["metadata of somebody's kernel"]
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        if cell["outputs"]:
            found.append(f"cell {number} has outputs")
        if cell["execution_count"] is not None:
            found.append(f"cell {number} has an execution count")
        if cell["metadata"]:
            found.append(f"cell {number} has metadata of a run")
    return found


def strip(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None, metadata={})
    notebook["metadata"] = METADATA
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def execute(path, out, silicon):
    """Runs a notebook in a kernel of this Python; returns what is wrong with what it shows."""
    import nbclient
    import nbformat

    if silicon:
        os.environ["FP8LAB_SILICON_DIR"] = silicon
    else:
        os.environ.pop("FP8LAB_SILICON_DIR", None)
    notebook = nbformat.read(path, as_version=4)
    started = time.monotonic()
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                                     resources={"metadata": {"path": str(FOLDER)}})  # fmt: skip
    wrong = []
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        wrong.append(str(error))
    seconds = time.monotonic() - started
    name = path.stem + ("" if silicon else "_without_recordings")
    nbformat.write(notebook, pathlib.Path(out) / f"{name}.ipynb")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    figures = [o for o in outputs if "image/png" in o.get("data", {})]
    text = sum(len(o.get("text", "")) for o in outputs)
    text += sum(len(o.get("data", {}).get("text/markdown", "")) for o in outputs)
    if len(figures) < 3:
        wrong.append(f"{len(figures)} figures")
    if text > MOST_TEXT:
        wrong.append(f"{text} characters of text, at most {MOST_TEXT}")
    if any(o.get("name") == "stderr" for o in outputs):
        wrong.append("something on stderr")
    if "accumulators" in path.stem and ("SKIPPED" in str(outputs)) == bool(silicon):
        wrong.append("SKIPPED is shown exactly where there are no recordings")
    if not problems(notebook):
        wrong.append("the check of stripped notebooks would accept one that ran")
    return f"{name}: {len(figures)} figures, {seconds:.1f} s", wrong


def main(arguments):
    paths = sorted(FOLDER.glob("*.ipynb"))
    if arguments == ["--strip"]:
        for path in paths:
            strip(path)
        return 0
    failed = 0 if len(paths) == 4 else print(f"FAILED: expected 4 notebooks, got {len(paths)}") or 1
    for path in paths:
        for problem in problems(json.loads(path.read_text(encoding="utf-8"))):
            print(f"FAILED: {path.name}: {problem}: notebooks/check.py --strip")
            failed += 1
    if arguments[:1] != ["--execute"]:
        return min(failed, 1)
    out = pathlib.Path(arguments[1])
    out.mkdir(parents=True, exist_ok=True)
    silicon = os.environ.get("FP8LAB_SILICON_DIR")
    jobs = [(path, out, silicon) for path in paths]
    if silicon:
        jobs += [(path, out, None) for path in paths if "accumulators" in path.stem]
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for line, wrong in pool.map(execute, *zip(*jobs, strict=True)):
            print(line)
            for what in wrong:
                print("FAILED:", what)
            failed += len(wrong)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
