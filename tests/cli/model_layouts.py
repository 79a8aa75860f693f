"""What every recipe gives in every layout of a model's folder: the error, or the files, whole.

Usage: model_layouts.py FP8LAB          compares with model_layouts.txt
       model_layouts.py FP8LAB --write  writes what is said now; read the change in version control

Each pair is asked without calibration and with it; one line where both say the same. What is made is kept as a seal of all its files.
"""

import difflib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checking
import transcript_inputs

TOOL = str(Path(sys.argv[1]).resolve())
KEPT = Path(__file__).with_suffix(".txt")
LAYOUTS = ("compressed-tensors", "modelopt", "hf-fp8", "deepseek", "torchao", "gpt-oss")


def run(folder, *arguments):
    return checking.run(*arguments, tool=TOOL, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})


def seal(folder):
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def outcome(folder, recipe, layout):
    said = []
    for more in ([], ["--calibration", "samples.safetensors"]):
        out = folder / f"{recipe}.{layout}"
        done = run(folder, "quantize", "model", "--recipe", recipe, "--layout", layout, "--rule", "linear", "-o", out.name, *more)
        error = done.stderr.splitlines()[-1] if done.stderr else ""
        said.append(f"makes {seal(out)}" if done.returncode == 0 else f"{done.returncode}: {error}")
        shutil.rmtree(out, ignore_errors=True)
    return f"{recipe} as {layout}\n" + "".join(f"  {one}\n" for one in dict.fromkeys(said))


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        transcript_inputs.make(folder)
        listed = json.loads(run(folder, "list", "recipes", "--json").stdout)["recipes"]
        recipes = dict.fromkeys(row["name"] for row in listed)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            pairs = [(recipe, layout) for recipe in recipes for layout in LAYOUTS]
            found = list(threads.map(lambda pair: outcome(folder, *pair), pairs))
    if sys.argv[2:] == ["--write"]:
        KEPT.write_text("".join(found))
        return 0
    kept = KEPT.read_text()
    difference = list(difflib.unified_diff(kept.splitlines(), "".join(found).splitlines(), "kept", "got", lineterm="", n=1))
    print("\n".join(difference[:40]))
    print("layouts of models:", "they differ" if difference else f"all {len(found)} as kept")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
