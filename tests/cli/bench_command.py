"""Figures that `fp8lab bench` prints for one time agree with each other: rates, bytes, ratios, counts.

Usage: bench_command.py PATH_OF_FP8LAB [BENCHMARK...]
"""

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
from checking import check, expect, finish


def bench(name, *arguments, told=None):
    """The figures; `told` is what stands on standard error, where it is known."""
    done = expect(0, "bench", name, *arguments, "--json")
    result = json.loads(done.stdout)[name]
    check(f"{name} is verified", result["verified"] is True, result)
    check(f"{name}: what runs is told", told is None or done.stderr.split("\n") == told, done.stderr)
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
    # Of several products the method is that of the first, of several shapes each one's own: few rows have another one.
    few, many = "1x64x64", "64x48x136"
    asked = (few, many, f"{few}+{many}", f"{many}+{few}", few)
    rows = bench("gemm", "--model", "sm100.tcgen05.mxf8f6f4.e4m3", *[word for shape in asked for word in ("--shape", shape)], "--repetitions", 1, "--no-scaling")["rows"]
    check("every shape once", [row["shape"] for row in rows] == list(asked), rows)
    of_few, of_many = rows[0]["method"], rows[1]["method"]
    check("methods", [row["method"] for row in rows] == [of_few, of_many, of_few, of_many, of_few], rows)
    check("few rows have a method of their own", of_few != of_many or "scalar" in of_few, rows)


# How often a recipe reads a tensor, and how many scales it has for [64, 256].
RECIPES = {"te-current activation": (2, 1), "te-delayed activation": (1, 1), "deepgemm activation": (1, 128),
           "deepgemm weight": (1, 2), "ms-amp activation": (1, 1), "ms-amp weight": (2, 1), "naive activation": (1, 1),
           "vllm-per-token activation": (1, 64)}


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
    # A block has four weights of width x width, two of width x hidden, and two norms of two vectors.
    sizes = [bench("train", "--width", 32, "--hidden", 48, "--layers", layers, "--length", 8, "--sequences", 1, "--repetitions", 1,
                   "--recipe", "bf16")["parameters"] for layers in (1, 2, 3)]
    block = 4 * 32 * 32 + 2 * 32 * 48 + 4 * 32
    check("parameters of a block", [sizes[1] - sizes[0], sizes[2] - sizes[1]] == [block, block], sizes)


def test_cast():
    # Encoding, two kinds of data, what one could use instead, and decoding: each as often as was asked for.
    rounds = ["", *(f"round {n} of 3" for n in (1, 2, 3))]
    result = bench("cast", "--mebi", 1, "--repetitions", 3, told=[*rounds * 5, ""])
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


TICK = 1 / 16  # seconds from one look at the even clock to the next


def test_even():
    """Under a clock whose every look is a tick after the one before, each figure is known (clock_command.py: with other steps)."""
    if "FP8LAB_EVEN_CLOCK" not in os.environ:
        print("no FP8LAB_EVEN_CLOCK: not under an even clock")
        return
    os.environ["LD_PRELOAD"] = os.environ["FP8LAB_EVEN_CLOCK"]
    try:
        even_figures()
    finally:
        del os.environ["LD_PRELOAD"]


def even_figures():
    stream = 2.0**28
    for clock, threads, time in (("cpu", 3, 2 * TICK / 3),):
        # The processor's clock is looked at around a look at the wall's (clock_command.py has the wall's alone).
        shapes = ("40x48x16400", "8x8x64+3x5x72")
        words = [word for shape in shapes for word in ("--shape", shape)]
        said = json.loads(expect(0, "bench", "gemm", *words, "--repetitions", 6, "--clock", clock, "--threads", threads,
                                 "--no-scaling", "--json").stdout)
        peak, result = said["ceilings"], said["gemm"]
        lanes = peak["fma_peak_gmacs"] * 1e9 * TICK / (2.5e5 * 12 * threads)
        check("lanes", any(math.isclose(lanes, n) for n in (1, 4, 8, 16)), peak)
        near("read", peak["stream_read_gbs"], stream / TICK * 1e-9, peak)
        near("copy", peak["stream_copy_gbs"], 2 * stream / TICK * 1e-9, peak)
        near("read again", result["stream_read_gbs"], stream / time * 1e-9, result)
        near("FMAs between", result["rows"][0]["fma_gmacs_between"], lanes * 12 * math.floor(max(2.5e8 * time, 1e4)) * threads / time * 1e-9, result)
        for row, shape in zip(result["rows"], shapes):
            sides = [tuple(map(int, one.split("x"))) for one in shape.split("+")]
            products = sum(m * n * k for m, n, k in sides)
            m, n, k = sides[0]
            columns = min(max(500_000 // k, 1), min(32, n))
            rows = min(max(500_000 // (k * columns), 1), m)
            expected = {"median_seconds": time, "best_seconds": time, "spread": 0, "gmacs": products / time * 1e-9,
                        "eigen_fp32_gmacs": products / time * 1e-9, "b_gbs": sum(n * k for _, n, k in sides) / time * 1e-9,
                        "b_ratio_to_stream_read": sum(n * k for _, n, k in sides) / stream,
                        "ratio_to_fma": row["gmacs"] / row["fma_gmacs_between"], "ratio_to_fma_best": row["ratio_to_fma"],
                        "reference_gmacs": rows * columns * k / TICK * 1e-9, "repetitions": max(6, math.ceil(0.3 / time))}
            for name, value in expected.items():
                near(f"{shape} under the {clock}'s clock: {name}", row[name], value, row)


def codes_under(profile, x, right, most, least_normal):
    """What a profile makes of x, where ml_dtypes makes `right`; `most` is the largest finite code."""
    sign, magnitude = right & 0x80, right & 0x7F
    nan = np.isnan(x)
    over = ~nan & (magnitude > most)
    if profile != "ml_dtypes":
        right = np.where(nan, 0x7F | (sign if profile == "ocp_saturating" else 0), right)
    if profile in ("nvidia_satfinite", "ocp_saturating", "flush"):
        right = np.where(over, sign | most, right)
    return np.where(magnitude < least_normal, sign, right) if profile == "flush" else right


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
    others = [("nvidia_nosat", "nvidia_satfinite"), ("ml_dtypes", "nvidia_nosat"), ("ocp_saturating", "nvidia_satfinite"),
              ("flush", "nvidia_satfinite")]
    instead = [(f"{name} instead", f, profile) for f in ("e4m3fn", "e5m2") for name, profile in others]
    check("profiles against each other", list(rows)[-len(instead):] == instead, list(rows))
    kinds = ("nan", "infinite", "above_max", "normal", "below_normal")
    for baseline, name, profile in instead:
        row = rows[baseline, name, profile]
        kind, most, code, least, normal = {"e4m3fn": (ml_dtypes.float8_e4m3fn, 448, 0x7E, 2.0**-6, 8),
                                           "e5m2": (ml_dtypes.float8_e5m2, 57344, 0x7B, 2.0**-14, 4)}[name]
        with np.errstate(invalid="ignore", over="ignore"):
            right = x.astype(kind).view(np.uint8)
        kept, got = (codes_under(p, x, right, code, normal) for p in (profile, baseline.removesuffix(" instead")))
        wrong = np.flatnonzero(kept != got)
        of_kind = (np.isnan(x), np.isinf(x), np.isfinite(x) & (size > most), (size >= least) & (size <= most), size < least)
        counts = [np.count_nonzero(of[wrong]) for of in of_kind]
        first = {"input": f"0x{inputs[wrong[0]]:08x}", "expected": f"0x{kept[wrong[0]]:02x}", "got": f"0x{got[wrong[0]]:02x}"}
        check(f"{baseline}, {name}: what differs from {profile}",
              [row[k] for k in kinds] == counts and row["different"] == len(wrong) and row["first"] == first, (row, counts, first))
    lines = [f"codes that differ from the library's over one in {share} of all 2^32 inputs, by kind of input"]
    for (baseline, name, profile), row in rows.items():
        check(f"{baseline}: kinds add up", row["different"] == sum(row[kind] for kind in kinds), row)
        line = f"{baseline}, {name}, against {profile}: {row['different']}"
        line += "".join(f", {kind} {row[kind]}" for kind in kinds if row[kind])
        if row["different"]:
            line += "; first {input} expected {expected} got {got}".format(**row["first"])
        lines.append(line)
    said = expect(0, "bench", "cast", "--conformance", "--share", share)
    same_lines("conformance as text", said.stdout.splitlines()[1:], lines)
    told = [f"one in {share} of all 2^32 inputs: {baseline}, {name} against {profile}" for baseline, name, profile in rows]
    check("conformance: what runs is told", said.stderr.splitlines() == told, said.stderr)


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


# The columns of each table and their units: what a row is of, then figures by name.
OF_CASTS = "name best_gelements[Gelem/s] best_ratio[1] ceiling gbs[GB/s] gelements[Gelem/s] ratio[1] spread[1]"
COLUMNS = {
    "ceilings": "fma_peak_gmacs[GMAC/s] stream_copy_gbs[GB/s] stream_read_gbs[GB/s] target threads[1]",
    "gemm rows": "model shape data b_gbs[GB/s] b_ratio_to_stream_read[1] best_seconds[s] eigen_fp32_gmacs[GMAC/s] "
                 "fma_gmacs_between[GMAC/s] fma_two_thread_speedup[1] fma_two_thread_speedup_spread[1] gmacs[GMAC/s] "
                 "median_seconds[s] method mismatches[1] promotion_interval[1] ratio_to_fma[1] ratio_to_fma_best[1] "
                 "reference_gmacs[GMAC/s] repetitions[1] spread[1] two_thread_speedup[1] two_thread_speedup_spread[1]",
    "gemm setup": "clock stream_read_gbs[GB/s] verified",
    "train rows": "products median_seconds[s] ratio_to_eigen[1] ratio_to_fp32[1] spread[1] tokens_per_second[1/s]",
    "train setup": "clock parameters[1] tokens_per_step[1] verified",
    "quantize recipes": "recipe best_ratio[1] copy_gbs[GB/s] gbs[GB/s] gelements[Gelem/s] ratio[1] reads[1] spread[1] tile",
    "quantize setup": "best_copy_gbs[GB/s] clock copy_gbs[GB/s] elements[1] k[1] repetitions[1] rows[1] transpose verified "
                      "wrong_codes[1]",
    "cast encode": OF_CASTS, "cast decode": OF_CASTS, "cast baselines": OF_CASTS,
    "cast in_cache": "clock_ghz[GHz] decode_gelements[Gelem/s] elements[1] encode_gelements[Gelem/s] "
                     "encode_gelements_at_3ghz[Gelem/s]",
    "cast setup": "clock elements[1] repetitions[1] verified",
}  # fmt: skip
PURPOSES = {"gemm": "Time matrix products under accumulation models",
            "train": "Time training steps with emulated products and with FP32 products",
            "quantize": "Time scaling recipes and compare them with a stream copy",
            "cast": "Time encoding and decoding, and compare them with copies that move the same bytes"}


def typed(text):
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def shown(name, threads, *arguments):
    """What a benchmark prints for people, and the tables of its folder, which must describe it whole."""
    os.environ["OMP_WAIT_POLICY"] = "passive"  # on a busy machine threads that spin take turns
    with tempfile.TemporaryDirectory() as place:
        said = expect(0, "bench", name, *arguments, "--threads", threads, "--out", place)
        folder = pathlib.Path(place, f"bench-{name}")
        result = json.loads((folder / "result.json").read_text())
        tables = {}
        for table in result["tables"]:
            key = table["name"] if table["name"] == "ceilings" else f"{name} {table['name']}"
            columns = " ".join(c["name"] + (f"[{c['unit']}]" if c["unit"] else "") for c in table["columns"])
            check(f"columns of {key}", columns == COLUMNS[key], columns)
            words = [c["description"] for c in table["columns"]] == [c["name"].replace("_", " ") for c in table["columns"]]
            check(f"words of {key}", words and table["title"] == f"Benchmark: {table['name'].replace('_', ' ')}", table)
            with open(folder / table["file"], newline="") as file:
                tables[table["name"]] = [{k: typed(v) for k, v in row.items()} for row in csv.DictReader(file)]
        named = {"ceilings"} | {key.split()[1] for key in COLUMNS if key.startswith(f"{name} ")}
        check(f"{name}: its tables", tables.keys() == named, tables.keys())
        peak = tables["ceilings"][0]
        check(f"{name}: threads and target", peak["threads"] == threads and f"target {peak['target']}, " in said.stdout, peak)
        figures = f"FMA peak {peak['fma_peak_gmacs']:.1f} GMAC/s, stream read {peak['stream_read_gbs']:.1f}"
        copy = f"copy {peak['stream_copy_gbs']:.1f} GB/s"
        finding = (f"Measured on {threads} thread{'' if threads == 1 else 's'}, target {peak['target']}: {figures} GB/s, {copy}. "
                   "The kernels' bits were right.")
        record = {"experiment": f"bench-{name}", "question": PURPOSES[name], "threads": threads, "findings": [finding],
                  "parameters": {}}
        for key, value in record.items():
            check(f"{name}: {key} of the record: {result[key]}, expected {value}", result[key] == value)
        first, *lines = said.stdout.splitlines()
        check(f"{name}: the first line", first == f"target {peak['target']}, threads {threads}: {figures}, {copy}", first)
        told = f"fp8lab: {len(result['files'])} files in {folder}"
        check(f"{name}: the folder is told", said.stderr.splitlines()[-1] == told, said.stderr)
        return lines, tables, said.stderr.splitlines()[:-1]


def same_lines(what, got, expected):
    check(f"{what}: as many lines", len(got) == len(expected), "\n".join(got))
    for one, other in zip(got, expected):
        check(f"{what}: a line\n{one}\nexpected\n{other}", one == other)


def test_text():
    """Every figure that is printed stands in the folder too: each line is written once more from its tables."""
    model, shapes = "sm90.wgmma.e4m3", ["64x96x512+16x8x32", "48x64x512"]
    asked = ["--model", model, "--shape", *shapes, "--data", "wide", "--repetitions", 1]
    lines, tables, errors = shown("gemm", 2, *asked)
    check("what runs is told", errors == [f"{model} {shape} ..." for shape in shapes], errors)
    check("every shape", [row["shape"] for row in tables["rows"]] == shapes, tables)
    expected = [f"{'model':<32} {'m x n x k':>15} {'method':<13} {'median ms':>9} spread {'GMAC/s':>7} of FMA   best {'B GB/s':>7} "
                f"of stream {'Eigen':>6} reference {'wrong':>11}"]
    for name, row in zip(("2 products", "48x64x512"), tables["rows"]):
        expected.append(f"{row['model']:<32} {name:>15} {row['method']:<13} {row['median_seconds'] * 1e3:>9.3f} "
                        f"{row['spread'] * 100:>5.1f}% "
                        f"{row['gmacs']:>7.2f} {row['ratio_to_fma']:>6.3f} {row['ratio_to_fma_best']:>6.3f} {row['b_gbs']:>7.2f} "
                        f"{row['b_ratio_to_stream_read']:>9.3f} {row['eigen_fp32_gmacs']:>6.2f} {row['reference_gmacs']:>9.4f} "
                        f"{row['mismatches']:>11}")
        expected.append(f"{'':>35} speedup with two threads {row['two_thread_speedup']:.2f} "
                        f"(spread {row['two_thread_speedup_spread'] * 100:.0f} %), "
                        f"of the FMA units {row['fma_two_thread_speedup']:.2f} "
                        f"({row['fma_two_thread_speedup_spread'] * 100:.0f} %)")
        check("a wide product's row", (row["data"], row["mismatches"]) == ("wide", 0), row)
        near("the stream read", row["b_ratio_to_stream_read"], row["b_gbs"] / tables["setup"][0]["stream_read_gbs"], row)
    same_lines("gemm", lines, expected)

    lines, tables, _ = shown("train", 1, "--width", 32, "--hidden", 48, "--layers", 2, "--length", 8, "--sequences", 3,
                             "--repetitions", 3, "--recipe", "te-current", "--clock", "cpu")
    setup = tables["setup"][0]
    check("setup of train", (setup["clock"], setup["tokens_per_step"], setup["verified"]) == ("cpu", 24, "true"), setup)
    expected = [f"transformer of {setup['parameters']} parameters, 24 tokens per step; ratios of whole steps",
                f"{'products':<16} {'median ms':>10} {'spread':>7} {'tokens/s':>10} {'of Eigen':>9} of faster FP32"]
    expected += [f"{row['products']:<16} {row['median_seconds'] * 1e3:>10.1f} {row['spread'] * 100:>6.1f}% "
                 f"{row['tokens_per_second']:>10.0f} "
                 f"{row['ratio_to_eigen']:>9.2f} {row['ratio_to_fp32']:>14.2f}" for row in tables["rows"]]
    same_lines("train", lines, expected)

    recipes = {"te-current activation": 2, "deepgemm activation": 1, "deepgemm weight": 1, "ms-amp activation": 1,
               "ms-amp weight": 2, "vllm-per-token activation": 2}
    chosen = [word for name in dict.fromkeys(name.split()[0] for name in recipes) for word in ("--recipe", name)]
    lines, tables, errors = shown("quantize", 1, "--rows", 64, "--k", 256, "--repetitions", 3, "--transpose", *chosen)
    check("what runs is told", errors == [f"{name} ..." for name in recipes], errors)
    setup = tables["setup"][0]
    expected = [f"recipes on [64, 256] with the transpose, 3 rounds, wall time; ratios to the copies between a row's rounds, of all "
                f"{setup['copy_gbs']:.1f} GB/s (best {setup['best_copy_gbs']:.1f})",
                f"{'recipe':36} reads {'Gel/s':>7} {'GB/s':>7} {'spread':>7} {'ratio':>7} of best"]
    for row in tables["recipes"]:
        check(f"{row['recipe']} reads", row["reads"] == recipes.get(row["recipe"]), row)
        expected.append(f"{row['recipe']:36} {row['reads']:5g} {row['gelements']:7.2f} {row['gbs']:7.1f} {100 * row['spread']:6.1f}% "
                        f"{row['ratio']:7.3f} {row['best_ratio']:7.3f}")
    # Two copies, and the scales of both.
    scales = {"te-current activation": 1, "deepgemm activation": 64 * 2, "deepgemm weight": 2, "ms-amp activation": 1,
              "ms-amp weight": 1, "vllm-per-token activation": 64}
    for row in tables["recipes"]:
        size = 4 * row["reads"] + 2 + 2 * 4 * scales[row["recipe"]] / (64 * 256)
        near(f"{row['recipe']}: bytes of an element", row["gbs"] / row["gelements"], size, row)
    same_lines("quantize", lines, [*expected, "verified: true"])

    lines, tables, _ = shown("cast", 1, "--mebi", 1, "--repetitions", 1, "--clock", "cpu")
    rows_of = lambda name: [f"{row['name']:56} {row['gelements']:6.2f} {row['best_gelements']:6.2f} {row['gbs']:7.1f} "
                            f"{100 * row['spread']:6.1f}% "
                            f"{row['ratio']:7.3f} {row['best_ratio']:7.3f}" for row in tables[name]]
    cache = tables["in_cache"][0]
    near("at 3 GHz", cache["encode_gelements_at_3ghz"] * cache["clock_ghz"], 3 * cache["encode_gelements"], cache)
    size = subprocess.run(["getconf", "LEVEL1_DCACHE_SIZE"], capture_output=True, text=True).stdout.strip()
    fitting = (int(size) if size.isdigit() and size != "0" else 32768) // 6 // 256 * 256
    check(f"casts of so many: {fitting}", cache["elements"] == fitting and tables["setup"][0]["elements"] == 1 << 20, (cache, tables["setup"]))
    head = ["casts of 1048576 elements, 1 rounds, cpu time; ratios to the plain narrowing copy and to the non-temporal widening "
            "copy of the same round",
            f"{'':56} {'Gel/s':>6} {'best':>6} {'GB/s':>7} {'spread':>7} {'ratio':>7} of best"]
    end = [f"in the first-level cache, {cache['elements']} elements, 1 thread, {cache['clock_ghz']:.2f} GHz: E4M3 encode "
           f"{cache['encode_gelements']:.2f} Gelem/s ({cache['encode_gelements_at_3ghz']:.2f} at 3 GHz), "
           f"decode {cache['decode_gelements']:.2f}",
           "verified: true"]
    others = ["alternatives, on one thread:", *rows_of("baselines")]
    same_lines("cast", lines, head + rows_of("encode") + rows_of("decode") + others + end)
    profiles = ("nvidia_satfinite", "nvidia_nosat", "ocp_saturating", "ocp_nonsaturating", "ml_dtypes", "seed_toy", "flush", "vllm",
                "vllm_group", "p3109_sat_finite", "p3109_sat_propagate", "avx10_2", "avx10_2_sat", "zvfofp8min_sat",
                "onnx", "onnx_19")
    casts = [f"{f} {profile}" for f in ("e4m3fn", "e5m2") for profile in profiles]
    casts += [f"{f} ml_dtypes" for f in ("e4m3fnuz", "e5m2fnuz", "e2m1")]
    casts += [f"e4m3fn {rounding}" for rounding in ("nearest_away", "toward_zero", "upward")]
    casts += [f"e4m3fn scale{what}" for what in ("", ", amax", ", all statistics", ", stochastic")]
    of_data = [f"encode e4m3fn scale {scale}, {data}" for data in ("half of them NaN", "binary32 subnormals")
               for scale in ("1", "0.37")]
    check("what is encoded", [row["name"] for row in tables["encode"]][3:]
          == [f"encode {what}" for what in casts] + ["draws of stochastic rounding alone", *of_data], tables["encode"])
    for name, kept in (("encode", "narrowing"), ("decode", "widening")):
        copies = [f"{kept} copy, {kind}" for kind in ("plain", "non-temporal", "prefetched")]
        check(f"copies of {name}", [row["name"] for row in tables[name]][:3] == copies, tables[name])
    check("what is decoded", [row["name"] for row in tables["decode"]][3:]
          == [f"decode {f}, inverse scale" for f in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1")], tables["decode"])


# The 95 % interval of a median by order statistics: values that may be dropped at each end, of so many.
DROPPED = {6: 0, 8: 0, 9: 1, 11: 1, 12: 2, 15: 3, 20: 5}


def planted_pairs(place, quotients):
    """Files of reports before and after whose rows' speeds have these quotients, a list a row; other speeds in each pair."""
    said = json.loads(expect(0, "bench", "gemm", "--model", "exact", "--shape", "8x8x8", "--shape", "8x16x8", "--shape", "16x8x8",
                             "--repetitions", 1, "--no-scaling", "--json").stdout)
    files = []
    for i in range(len(quotients[0])):
        for after in (False, True):
            for row, of in zip(said["gemm"]["rows"], quotients):
                row["ratio_to_fma"] = (0.25 + i / 64) * (of[i] if after else 1)
                row["method"] = "another" if after else "one"
            files.append(pathlib.Path(place, f"{i}-{after}.json"))
            files[-1].write_text(json.dumps(said))
    return files


def compared(code, files, *arguments):
    result = json.loads(expect(code, "bench", "compare", *files, *arguments, "--json").stdout)
    return result, {row["row"]: row for row in result["rows"]}


def test_compare():
    rng = np.random.default_rng(3)
    names = [f"exact {shape} normal" for shape in ("8x8x8", "8x16x8", "16x8x8")]
    with tempfile.TemporaryDirectory() as place:
        for pairs, dropped in DROPPED.items():
            quotients = [list(map(float, rng.permutation(0.9 + 0.005 * rng.random(pairs)))),
                         list(map(float, 1.02 + 0.01 * rng.random(pairs))), list(map(float, 0.9 + 0.2 * rng.random(pairs)))]
            quotients[2][:dropped + 1], quotients[2][-dropped - 1:] = [0.95] * (dropped + 1), [1.05] * (dropped + 1)
            files = planted_pairs(place, quotients)
            result, rows = compared(1, files)
            check("rows", sorted(rows) == sorted(names) and result["slower"] == 1 and result["pairs"] == pairs, result)
            for name, of, verdict in zip(names, quotients, ("slower", "faster", "same")):
                row, of = rows[name], sorted(of)
                check(f"{pairs} pairs of {name}: {verdict}", row["verdict"] == verdict, row)
                near("quotient", row["quotient"], float(np.median(of)), row)
                near("low", row["low"], of[dropped], row)
                near("high", row["high"], of[-dropped - 1], row)
            chance = 3 * sum(math.comb(pairs, i) for i in range(dropped + 1)) / 2 ** pairs
            near("by chance", result["by_chance"], chance, result)
            compared(0, files, "--limit", 0.11)
            expect(1, "bench", "compare", *files, stdout=[f"3 rows, {pairs} pairs: 1 slower by more than 3 %, 1 faster, 1 the same"])
        files = planted_pairs(place, [[0.5] * 5] * 3)
        result, rows = compared(3, files)
        check("five pairs tell nothing", {row["verdict"] for row in rows.values()} == {"unknown"}, rows)
        expect(3, "bench", "compare", *files, stdout=["3 rows, 5 pairs: from 6 pairs on"])
        refused_reports(files)


def refused_reports(files):
    one, other = files[:2]
    report = json.loads(other.read_text())
    expect(2, "bench", "compare", one, stderr=["reports: expected pairs of a file before and a file after, got 1 file"])
    for change, told in (({"ceilings": {**report["ceilings"], "threads": 2}}, "ceilings.threads: expected 1, as in"),
                         ({"gemm": {**report["gemm"], "clock": "cpu"}}, "gemm.clock: expected wall, as in"),
                         ({"gemm": {**report["gemm"], "verified": False}}, "expected right bits of gemm, got wrong ones"),
                         ({"gemm": {**report["gemm"], "rows": []}}, "expected what `fp8lab bench ... --json` prints")):
        other.write_text(json.dumps({**report, **change}))
        expect(2, "bench", "compare", one, other, stderr=[f"{other}: ", told])
    report["gemm"]["rows"].pop()
    other.write_text(json.dumps(report))
    said = json.loads(expect(3, "bench", "compare", one, other, "--json").stdout)["one_side"]
    check("a row of one side", said == [{"benchmark": "gemm", "row": "exact 16x8x8 normal", "file": str(one)}], said)


TESTS = {"results": test_results, "text": test_text, "gemm": test_gemm, "even": test_even, "quantize": test_quantize, "train": test_train, "cast": test_cast,
         "conformance": test_conformance, "compare": test_compare}
for chosen in sys.argv[2:] or TESTS:
    TESTS[chosen]()
finish("bench")
