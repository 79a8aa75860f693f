"""Plants an error in each backward pass and expects the gradient checks to fail.

A build holds one mutant of each layer, whose test cases must all fail, while a
test case of a layer without a mutant passes.
Usage: backward_mutants.py BUILD_DIR WORK_DIR LIBRARY...   (the archive first)
Exit code 77: skipped.
"""

import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIB = pathlib.Path("lib")


def place_of(file):
    """Where a mutant's source is below lib/: the linear layer belongs to the numerics."""
    return pathlib.Path("fp8lab/linear" if file == "linear.cpp" else "training/train") / file


DIFFERENCES = "gradients are those of differences"

# A mutant: file, text that stands in it once, what replaces it, the test case that must fail.
LAYERS = "tests/train/layers_test.cpp"
MODELS = "tests/train/model_test.cpp"
BUILDS = [
    (LAYERS, "causal attention looks at nothing later and at nothing in other sequences", [
        ("activation.hpp", " + in[i] * normal_density(in[i])", "", "activations: " + DIFFERENCES),
        ("attention.hpp", "(d[j] - mean)", "d[j]", "causal attention: " + DIFFERENCES),
        ("cross_entropy.hpp", "scale / static_cast<T>(d.rows)", "scale", "cross-entropy: " + DIFFERENCES),
        ("embedding.hpp", "position[i] += d[i]", "position[i] = d[i]", "embedding: " + DIFFERENCES),
        ("norm.hpp", " - along_mean", "", "norms: " + DIFFERENCES),
        ("linear.cpp", "{dx.rows, dx.columns, dy.columns}", "{dx.rows, dx.columns, dy.columns - 1}",
         "linear layer: " + DIFFERENCES),
    ]),
    (LAYERS, "cross-entropy of equal logits is the logarithm of the vocabulary", [
        ("activation.hpp", "out[dy.columns + i] = d[i] * in[i] * s", "out[dy.columns + i] = d[i] * in[i]",
         "activations: " + DIFFERENCES),
        ("attention.hpp", "d_scores.transposed_view()", "d_scores.view()", "causal attention: " + DIFFERENCES),
        ("embedding.hpp", " to[i] += d[i]", " to[i] = d[i]", "embedding: " + DIFFERENCES),
        ("norm.hpp", "gain[i] += d[i] * hat[i]", "gain[i] += d[i]", "norms: " + DIFFERENCES),
        ("linear.cpp", "{dw.rows, dw.columns, dy.rows}", "{dw.rows, dw.columns, dy.rows - 1}",
         "linear layer: " + DIFFERENCES),
    ]),
    (MODELS, "outlier channels change nothing but what the casts see", [
        ("transformer.cpp", "add_to(dx, attention_norm_.backward(qkv_.backward(d_qkv, context), context))",
         "attention_norm_.backward(qkv_.backward(d_qkv, context), context)",
         "transformer: every gradient is that of differences"),
        ("mlp.cpp", "activations_[i].backward(dx, context)", "dx", "mlp: every gradient is that of differences"),
    ]),
]  # fmt: skip


def mutated(file, old, new, overlay):
    text = (ROOT / LIB / place_of(file)).read_text()
    if text.count(old) != 1:
        sys.exit(f"FAILED: {file}: expected '{old}' once, found it {text.count(old)} times")
    path = overlay / place_of(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(old, new))
    return path


def compile_command(commands, source, overlay, path, output):
    """The build's own command, unoptimized, with the mutants before the library's headers."""
    entry = commands[str(ROOT / source)]
    words = [w for w in shlex.split(entry["command"]) if not w.startswith(("-O", "-W")) and "ccache" not in w]
    words[words.index("-o") + 1] = str(output)
    words[words.index("-c") + 1] = str(path)
    return [words[0], f"-I{overlay}", *words[1:], "-O0"], entry["directory"]


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {shlex.join(command)}\n{done.stderr}")


def program_with(commands, build, libraries, folder, test, mutants):
    overlay = folder / "include"
    sources = {test: ROOT / test}
    for file, old, new, _ in mutants:
        path = mutated(file, old, new, overlay)
        if path.suffix == ".cpp":
            sources[str(LIB / place_of(file))] = path
    objects = [folder / f"{pathlib.Path(source).stem}.o" for source in sources]
    jobs = [
        compile_command(commands, source, overlay, path, output)
        for (source, path), output in zip(sources.items(), objects)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: run(*job), jobs))
    main = build / "tests/CMakeFiles/fp8lab_tests.dir/main.cpp.o"
    program = folder / "mutants"
    compiler = jobs[0][0][0]
    flags = [word for word in jobs[0][0] if word.startswith("-fsanitize")]
    run([compiler, *flags, "-fopenmp", "-o", str(program), *map(str, objects), str(main), *libraries], folder)
    return program


def outcome(program, test_case):
    done = subprocess.run([program, test_case], capture_output=True, text=True)
    if "No test cases matched" in done.stdout or "test case" not in done.stdout:
        sys.exit(f"FAILED: no test case '{test_case}': {done.stdout}{done.stderr}")
    return done.returncode


def main():
    build, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    database = build / "compile_commands.json"
    if not database.exists():
        print("SKIPPED: a build without compile_commands.json")
        return 77
    commands = {entry["file"]: entry for entry in json.loads(database.read_text())}
    survivors = 0
    for number, (test, untouched, mutants) in enumerate(BUILDS):
        folder = work / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        program = program_with(commands, build, sys.argv[3:], folder, test, mutants)
        if outcome(program, untouched) != 0:
            sys.exit(f"FAILED: '{untouched}' needs no gradient and fails")
        for file, old, new, test_case in mutants:
            caught = outcome(program, test_case) != 0
            survivors += not caught
            print(f"{'caught' if caught else 'SURVIVED'}: {file}: '{old.strip()}' -> '{new.strip()}'")
    return 1 if survivors else 0


sys.exit(main())
