"""Figures that `fp8lab bench` prints for one time agree with each other: rates, bytes, ratios, counts.

Usage: bench_command.py PATH_OF_FP8LAB [BENCHMARK...]
"""

import csv
import json
import math
import pathlib
import sys
import tempfile

import ml_dtypes
import numpy as np
from checking import check, expect, finish


def bench(name, *arguments):
    result = json.loads(expect(0, "bench", name, *arguments, "--json").stdout)[name]
    check(f"{name} is verified", result["verified"] is True, result)
    return result


def near(what, got, expected, seen):
    check(f"{what}: got {got}, expected {expected}", math.isclose(got, expected, rel_tol=1e-9), seen)


def ordered(what, row, best_ratio, ratio):
    check(f"{what}: the spread is a share", 0 <= row["spread"] < math.inf, row)
    check(f"{what}: a ratio of best times", row[best_ratio] > 0 and row[ratio] > 0, row)


def test_gemm():
    """Codes of 1, 2 and 4 bytes, and scales of blocks of which the last of a row is cut."""
    bytes_of = {"sm90.wgmma.e4m3": 1, "sm80.mma.bf16": 2, "sm80.mma.tf32": 4, "sm100.tcgen05.mxf8f6f4.e4m3.e5m2": 1,
                "sm100.tcgen05.mxf4nvf4": 1}
    shape = "64x48x136+5x9x72"
    models = [word for model in bytes_of for word in ("--model", model)]
    result = bench("gemm", *models, "--shape", shape, "--promotion", 64, "--repetitions", 1, "--no-scaling")
    check("every model once", [row["model"] for row in result["rows"]] == list(bytes_of), result)
    for row in result["rows"]:
        near("multiplications of A and B", row["gmacs"] * 1e9 * row["median_seconds"], 64 * 48 * 136 + 5 * 9 * 72, row)
        near("the ratio to FMAs", row["ratio_to_fma"], row["gmacs"] / row["fma_gmacs_between"], row)
        size = bytes_of[row["model"]] * (48 * 136 + 9 * 72)
        near("bytes of B", row["b_gbs"] * 1e9 * row["median_seconds"], size, row)
        check("the best time is no longer than the median", row["best_seconds"] <= row["median_seconds"], row)
        check("what was asked for", (row["shape"], row["promotion_interval"], row["mismatches"]) == (shape, 64, 0), row)
        ordered("gemm", row, "ratio_to_fma_best", "ratio_to_fma")


# How often a recipe reads a tensor, and how many scales it has for [64, 256].
RECIPES = {"te-current activation": (2, 1), "te-delayed activation": (1, 1), "deepgemm activation": (1, 128),
           "deepgemm weight": (1, 2), "ms-amp activation": (1, 1), "ms-amp weight": (2, 1), "vllm-per-token activation": (1, 64)}


def test_quantize():
    recipes = [word for name in RECIPES for word in ("--recipe", name.split()[0])]
    result = bench("quantize", "--rows", 64, "--k", 256, "--repetitions", 2, *recipes)
    check("the tensor", [result[key] for key in ("rows", "k", "elements", "transpose", "repetitions", "wrong_codes")]
          == [64, 256, 64 * 256, False, 2, 0], result)
    check("every recipe once", [row["recipe"] for row in result["recipes"]] == list(RECIPES), result)
    for row in result["recipes"]:
        reads, scales = RECIPES[row["recipe"]]
        check(f"{row['recipe']} reads", row["reads"] == reads, row)
        near(f"{row['recipe']}: bytes of an element", row["gbs"] / row["gelements"], 4 * reads + 1 + 4 * scales / (64 * 256), row)
        near(f"{row['recipe']}: ratio to a copy", row["ratio"], row["gbs"] / row["copy_gbs"], row)
        ordered(row["recipe"], row, "best_ratio", "ratio")
    check("the best copy is no slower", result["best_copy_gbs"] >= result["copy_gbs"], result)


def test_train():
    result = bench("train", "--width", 32, "--hidden", 32, "--layers", 1, "--length", 8, "--sequences", 2, "--repetitions", 2,
                   "--recipe", "bf16", "--recipe", "te-current")
    rows = {row["products"]: row for row in result["rows"]}
    check("rows", list(rows) == ["fp32, Eigen", "fp32", "bf16", "te-current"] and result["tokens_per_step"] == 16, result)
    eigen = rows["fp32, Eigen"]["median_seconds"]
    for name, row in rows.items():
        seconds = row["median_seconds"]
        near(f"{name}: tokens", row["tokens_per_second"] * seconds, 16, row)
        near(f"{name}: ratio to Eigen", row["ratio_to_eigen"], seconds / eigen, row)
        near(f"{name}: ratio to FP32", row["ratio_to_fp32"], seconds / min(eigen, rows["fp32"]["median_seconds"]), row)


def test_cast():
    result = bench("cast", "--mebi", 1, "--repetitions", 2)
    for group in ("encode", "decode"):
        seen = {row["name"]: row for row in result[group]}
        for row in result[group]:
            stochastic = row["name"].startswith("draws")  # nothing is read or written
            near(f"{row['name']}: bytes of an element", row["gbs"] / row["gelements"] + (5 if stochastic else 0), 5, row)
            check(f"{row['name']}: the best is no slower", row["best_gelements"] >= row["gelements"], row)
            check(f"{row['name']}: its ceiling is a row", row["ceiling"] in seen, sorted(seen))
            if not row["name"].endswith(("half of them NaN", "binary32 subnormals")):  # these have a ceiling of their own data
                best = row["best_gelements"] / seen[row["ceiling"]]["best_gelements"]
                near(f"{row['name']}: best ratio", row["best_ratio"], best, row)
        near(f"{group}: the ceiling is 1", max(r["ratio"] for n, r in seen.items() if n == row["ceiling"]), 1, seen)


def test_conformance():
    """A share of the inputs against ml_dtypes: how many codes differ, of which inputs, and the first of them."""
    # Blocks of 4096 inputs lie behind the ties of E4M3 and E5M2 where their numbers are multiples of 128 and 256.
    share, block = 17 * 128, 4096
    result = bench("cast", "--conformance", "--share", share)
    rows = {(row["baseline"], row["format"], row["profile"]): row for row in result["conformance"]}
    check("the share", result["share"] == share and len(rows) == len(result["conformance"]), result)
    inputs = (np.arange(0, 1 << 32, share * block, dtype=np.uint64)[:, None] + np.arange(block, dtype=np.uint64)).ravel()
    x = inputs.astype(np.uint32).view(np.float32)
    size = np.abs(x)
    for name, most, least, kind in (("e4m3fn", 448, 2.0**-6, ml_dtypes.float8_e4m3fn), ("e5m2", 57344, 2.0**-14, ml_dtypes.float8_e5m2)):
        with np.errstate(invalid="ignore", over="ignore"):
            right = x.astype(kind).view(np.uint8)
            twice = x.astype(np.float16).astype(kind).view(np.uint8)
        row = rows["double rounding through FP16 (our model of oneDNN, libxsmm)", name, "ml_dtypes"]
        wrong = np.flatnonzero((right != twice) & ~np.isnan(x))  # NaNs are counted apart
        kinds = {"infinite": np.isinf(x), "above_max": np.isfinite(x) & (size > most), "normal": (size >= least) & (size <= most),
                 "below_normal": size < least}
        check(f"{name}: kinds of inputs", all(row[k] == np.count_nonzero(of[wrong]) for k, of in kinds.items()), (row, len(wrong)))
        check(f"{name}: their number", row["different"] == len(wrong) + row["nan"] and len(wrong) > 0, (row, len(wrong)))
        first = {"input": f"0x{inputs[wrong[0]]:08x}", "expected": f"0x{right[wrong[0]]:02x}", "got": f"0x{twice[wrong[0]]:02x}"}
        check(f"{name}: the first of them", row["first"] == first, (row, first))
    text = expect(0, "bench", "cast", "--conformance", "--share", share).stdout
    check("as text", f"over one in {share} of all 2^32 inputs" in text, text)


def test_results():
    """Folders of `--out` keep the figures; `report` shows one and compares two."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        for folder in ("before", "after"):
            said = expect(0, "bench", "quantize", "--rows", 64, "--k", 256, "--repetitions", 2, "--recipe", "deepgemm",
                          "--out", place / folder, "--json")
            seen = json.loads(said.stdout)["quantize"]
            result = json.loads((place / folder / "bench-quantize" / "result.json").read_text())
            check("the command", result["command"].startswith("fp8lab bench quantize --"), result)
            table = next(t for t in result["tables"] if t["name"] == "recipes")
            with open(place / folder / "bench-quantize" / table["file"], newline="") as file:
                rows = list(csv.DictReader(file))
            check("recipes come first", table["columns"][0]["name"] == "recipe", table)
            check("units", {c["name"]: c["unit"] for c in table["columns"]}["gbs"] == "GB/s", table)
            for kept, row in zip(rows, seen["recipes"], strict=True):
                for key in ("gelements", "gbs", "copy_gbs", "ratio", "best_ratio", "spread"):
                    check(f"{key} is kept", float(kept[key]) == row[key], (kept, row))
        expect(0, "report", place / "before", "-o", place / "one.html")
        check("a page with the table", "deepgemm weight" in (place / "one.html").read_text(), "one.html")
        both = expect(0, "report", place / "before", place / "after", "-o", place / "two.html").stdout
        check("two are compared", "side by side" in both, both)


TESTS = {"results": test_results, "gemm": test_gemm, "quantize": test_quantize, "train": test_train, "cast": test_cast,
         "conformance": test_conformance}
for chosen in sys.argv[2:] or TESTS:
    TESTS[chosen]()
finish("bench")
