#!/usr/bin/env python3
"""The library compiled for WebAssembly gives the bits of the library of this machine.

Two parts: digests of casts, draws, scales, recipes, instruction models and products (same_bits.cpp,
compiled for both), and the answers of the explorer's own module to what its page asks. On a
difference the first element that differs is shown.

usage: same_bits.py NATIVE_DIGESTS NATIVE_ANSWERS [WASM_DIGESTS_JS PAGE_MODULE_JS]
"""

import itertools
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys

# Decibels go through the C library's logarithm, whose last bits are its own.
DECIBELS = {"sqnr_db", "bulk_sqnr_db"}
DECIBEL_ULPS = 2


def output(command: list[str], text: str = "") -> list[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()


def ulps(a: float, b: float) -> int:
    """Steps of binary64 between two numbers; 0 for equal ones and two NaN."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0
    def ordered(x: float) -> int:
        bits = struct.unpack("<q", struct.pack("<d", x))[0]
        return bits if bits >= 0 else -(bits & (2**63 - 1))
    return abs(ordered(a) - ordered(b))


def compare_digests(native: str, wasm: list[str]) -> tuple[int, list[str]]:
    """Elements compared, and a text for each section that differs."""
    expected = output([native])
    got = output(wasm)
    problems = []
    elements = 0
    for e, g in itertools.zip_longest(expected, got, fillvalue="nothing"):
        if e == g:
            elements += int(e.split()[1])
            continue
        name = e.split()[0]
        lines = itertools.zip_longest(output([native, "--dump", name]), output(wasm + ["--dump", name]))
        for i, (here, there) in enumerate(lines):
            if here != there:
                problems.append(f"{name}, element {i} (inputs -> results):\n"
                                f"  this machine: {here}\n  WebAssembly:  {there}")
                break
        else:
            problems.append(f"{e}, but WebAssembly {g}")
    return elements, problems


def questions() -> list[str]:
    ask = ["describe", "cast 1 no_such_profile", "outlier te-current e4m3fn 512 0.4 10 512 0 0 1",
           "accumulation sm90.wgmma.e4m3 uniform 4096 100 1 1", "step sm90.wgmma.e4m3 1,2 1,two 0",
           "auto_scaling e4m3fn 2 1000 0 exponential drift 100 1", "curve e4m3fn ml_dtypes 2 1 10"]
    known = json.loads(output([sys.argv[2]], "describe\n")[0])
    profiles = [p["name"] for p in known["profiles"]]
    values = ["0", "-0.0", "0.3", "-0.02", "448", "464", "464.00003", "465", "57344", "61440", "65520",
              "inf", "-inf", "nan", "1e-45", "0.0009765625", "0.00097656256", "3.4e38"]
    values += [repr(1.1 * 2.0**e) for e in range(-30, 22)]
    ask += [f"cast {x} {p}" for p in profiles for x in values]
    ask += [f"curve {f} {p} 3.7252902984619140625e-09 1048576 700"
            for p in profiles for f in ("e4m3fn", "e5m2", "bf16")]
    for recipe in known["recipes"]:
        for seed, (f, magnitude, tile, flush) in enumerate(itertools.product(
                ("e4m3fn", "e5m2"), ("1", "1000", "123456.7", "1e6"), (0, 8, 128), (0, 1))):
            ask.append(f"outlier {recipe['name']} {f} 512 0.4 {magnitude} {37 * seed % 512} {tile} {flush} {seed}")
    for model in known["models"]:
        for inputs, scaled in itertools.product(("uniform", "normal", "correlated", "ones"), (0, 1)):
            ask.append(f"accumulation {model['name']} {inputs} 1024 128 {scaled} 3")
    for seed, model in enumerate(known["units"]):
        draws = random.Random(seed)
        for count in (1, 3, 16, 32):
            a, b = (",".join(repr(draws.choice((-1, 1)) * 2 ** draws.uniform(-9, 9)) for _ in range(count)) for _ in "ab")
            ask.append(f"step {model['name']} {a} {b} {draws.choice((0, 1, -2.7, 1e-30, 3e38))}")
    ask += [f"auto_scaling {f} {threshold} {doubling} {clean} {growth} {trace} 800 {seed}"
            for f in ("e4m3fn", "e5m2") for threshold, doubling, clean, seed in ((1e-5, 1000, 0, 1), (1e-3, 100, 300, 2))
            for growth in ("exponential", "linear", "doubling", "none") for trace in ("drift", "steady", "1,3,9,27,0.5,1e-9,1")]
    ask += [f"accumulation sm90.wgmma.e4m3 {inputs} {2**e} {interval} 1 1"
            for inputs in ("uniform", "normal") for e in (5, 10, 15) for interval in (0, 32, 64, 256)]
    return ask


def differences(expected, got, path: str = "") -> list[str]:
    """Where two answers differ; decibels may by a few units in the last place."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return [d for key in expected for d in differences(expected[key], got[key], f"{path}.{key}")]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [d for i, (e, g) in enumerate(zip(expected, got)) for d in differences(e, g, f"{path}[{i}]")]
    if path.rsplit(".", 1)[-1] in DECIBELS and ulps(float(expected), float(got)) <= DECIBEL_ULPS:
        return []
    return [] if expected == got else [f"{path}: this machine {expected!r}, WebAssembly {got!r}"]


def compare_answers(native: str, wasm: list[str]) -> tuple[int, list[str]]:
    ask = questions()
    text = "\n".join(ask) + "\n"
    expected, got = output([native], text), output(wasm, text)
    if not len(ask) == len(expected) == len(got):
        return 0, [f"{len(ask)} questions, {len(expected)} answers here, {len(got)} from WebAssembly"]
    problems = []
    for question, e, g in zip(ask, expected, got):
        if e != g:
            problems += [f"{question}\n  {d}" for d in differences(json.loads(e), json.loads(g))[:1]]
    refused = sum(e.startswith('{"error"') for e in expected)
    if refused != 6:
        problems.append(f"6 of the questions are bad, but {refused} were refused")
    return len(ask), problems


def main() -> int:
    node = shutil.which("node")
    if len(sys.argv) < 5 or node is None:
        print("skipped: " + ("node" if node is None else "Emscripten") + " was not found")
        return 77
    native_digests, native_answers, wasm_digests, module = sys.argv[1:]
    answer = str(pathlib.Path(__file__).with_name("answer.js"))
    elements, problems = compare_digests(native_digests, [node, wasm_digests])
    asked, more = compare_answers(native_answers, [node, answer, module])
    problems += more
    for problem in problems[:20]:
        print(problem)
    print(f"{elements} elements and {asked} answers compared, {len(problems)} differences")
    return 1 if problems or elements == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
