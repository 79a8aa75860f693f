"""Accumulators that a user defines, from outside the library: every command takes them, a sweep runs over their
parameters, and their bits are those of the oracle (exact integers, tests/oracle)."""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

FP8LAB = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))

from exact import F32, Output  # noqa: E402
from rows import result  # noqa: E402
from cases import Case  # noqa: E402
from table import Entry  # noqa: E402
from units import FusedDot, Halves  # noqa: E402

failures = 0
FILE = """
[accumulator.mine]
base = "fused"
terms = 16
F = 12
M = 13
e_min = -6

[accumulator.wide]
base = "mine"
F = 25
M = 23
"""


def check(what, holds, seen=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {what}: {seen}")


def fp8lab(*arguments, code=0):
    done = subprocess.run([FP8LAB, *map(str, arguments)], capture_output=True, text=True)
    check(" ".join(map(str, arguments)), done.returncode == code, f"exit {done.returncode}, {done.stderr}")
    return done


def output(bits):
    return Output(bits, F32.min_exponent, F32.max_exponent)


def rows_of(text, digits):
    """Operands, c and d of a vector file in text."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            a, b, c, d = line.split()
            words = [[int(side[i:i + digits], 16) for i in range(0, len(side), digits)] for side in (a, b)]
            yield Case("", *words, int(c, 16)), int(d, 16)


def bits_are_the_oracles():
    """Vectors of definitions, each row computed again from the published description."""
    rounding = {"toward_zero": "zero", "nearest_even": "nearest"}
    checked = 0
    for terms, bits, kept, mode, floor in ((16, 12, 13, "toward_zero", -6), (4, 9, 9, "nearest_even", None),
                                           (32, 25, 23, "toward_zero", -20), (7, 17, 4, "nearest_even", 3)):
        lowest = "none" if floor is None else floor
        text = f"fused:terms={terms},F={bits},M={kept},rounding={mode},e_min={lowest}"
        entry = Entry(FusedDot(terms, output(kept), bits, rounding[mode], floor), "e4m3fn", "e4m3fn")
        for kind in ("random", "adversarial", "special"):
            vectors = fp8lab("vectors", "--model", text, "--kind", kind, "-n", 150, "--terms", 3 * terms).stdout
            check(f"the file says which model: {text}", f"# model: {text}\n" in vectors, vectors[:200])
            for case, d in rows_of(vectors, 2):
                got = result(entry.unit, entry, case)
                check(f"{text}: {case}", got == d, f"expected {got:08x}, got {d:08x}")
                checked += 1
    text = "halves:terms=16,F=11,M=23,rounding=nearest_even,e_min=none,halves_order=separate,a=e5m2"
    entry = Entry(Halves(16, F32, FusedDot(8, F32, 11, "nearest", None), chained=False), "e5m2", "e4m3fn")
    for case, d in rows_of(fp8lab("vectors", "--model", text, "-n", 200, "--terms", 32).stdout, 2):
        got = result(entry.unit, entry, case)
        check(f"{text}: {case}", got == d, f"expected {got:08x}, got {d:08x}")
    check("rows were compared", checked > 1500, checked)


def every_command_takes_them(folder):
    models = folder / "mine.toml"
    models.write_text(FILE)
    listed = json.loads(fp8lab("list", "models", "--models", models, "--json").stdout)["models"]
    mine = {one["name"]: one for one in listed}["mine=fused:terms=16,F=12,M=13,e_min=-6"]
    check("list shows it", mine["alignment_bits"] == 12 and mine["min_exponent"] == -6, mine)
    kinds = json.loads(fp8lab("list", "accumulators", "--json").stdout)["accumulators"]
    check("all kinds are bases", len(kinds) == 17, kinds)
    names = {one["name"] for one in json.loads(fp8lab("list", "parameters", "--json").stdout)["parameters"]}
    for kind in kinds:
        check(f"parameters of {kind['name']} are known", set(kind["parameters"].split()) <= names, kind)

    # The end of a file's name says how it is read, and nothing else in its path.
    (folder / "x.json.d").mkdir()
    for name in ("m.toml", "m.json.toml", "x.json.d/m.toml", "m", "toml.json", "m.toml.json", "x.json.d/m.json"):
        text = json.dumps({"accumulator": {"named": {"base": "fused", "F": 11}}}) if name.endswith("json") else \
            '[accumulator.named]\nbase = "fused"\nF = 11\n'
        (folder / name).write_text(text)
        said = json.loads(fp8lab("list", "models", "--models", folder / name, "--json").stdout)["models"]
        check(f"{name} is read", "named=fused:F=11" in {one["name"] for one in said}, said[-1])

    a, b, d = (folder / f"{name}.npy" for name in "abd")
    write_codes(a, 6, 512, 1)
    write_codes(b, 5, 512, 2)
    inputs = ["--dtype", "e4m3fn"]
    said = fp8lab("gemm", a, b, *inputs, "--models", models, "--model", "mine", "-o", d).stdout
    check("gemm says the definition", said.startswith("mine=fused:terms=16,F=12,M=13,e_min=-6: D [6, 5]"), said)
    fp8lab("verify", d, "--inputs", a, b, *inputs, "--model", "fused:terms=16,F=12,M=13,e_min=-6")
    fp8lab("verify", d, "--inputs", a, b, *inputs, "--models", models, "--model", "wide", code=1)
    check("none of the registered models explains it", "explained: all" not in
          fp8lab("identify", a, b, d, *inputs, code=1).stdout)
    for more in (["--models", models], ["--model", "mine=fused:terms=16,F=12,M=13,e_min=-6"]):
        found = json.loads(fp8lab("identify", a, b, d, *inputs, *more, "--json").stdout)
        best = found["ranking"][0]["explanations"][0]
        check("identify finds it", best["models"] == ["mine=fused:terms=16,F=12,M=13,e_min=-6"], best)
        fp8lab("verify", d, "--inputs", a, b, *inputs, *best["options"])

    vectors = folder / "v.txt"
    fp8lab("vectors", "--models", models, "--model", "mine", "-n", 100, "-o", vectors)
    fp8lab("replay", vectors)
    fp8lab("replay", vectors, "--models", models, "--model", "mine")
    fp8lab("replay", vectors, "--models", models, "--model", "wide", code=1)
    fp8lab("vectors", "--models", models, "--separate", "mine", "wide", "-o", folder / "s.txt")

    x = folder / "x.npy"
    write_floats(x, (2, 32, 32))
    usual = json.loads(fp8lab("attn", x, x, x, "--json", "--kv-tile", 32).stdout)
    coarse = json.loads(fp8lab("attn", x, x, x, "--json", "--kv-tile", 32, "--qk-model", "fused:F=4,M=3",
                               "--models", models, "--pv-model", "mine:F=4").stdout)
    worse = coarse["against_codes"]["relative_l2"] > 2 * usual["against_codes"]["relative_l2"]
    check("attention computes with it", worse, (usual["against_codes"], coarse["against_codes"]))

    small = ["--steps", 2, "--width", 32, "--heads", 2, "--hidden", 32, "--layers", 1, "--length", 16,
             "--sequences", 2, "--json"]
    run = ["train", *small, "--recipe", "deepgemm", "--checkpoint", folder / "c.safetensors"]
    usual = json.loads(fp8lab("train", *small, "--recipe", "deepgemm").stdout)["losses"]
    coarse = json.loads(fp8lab(*run, "--models", models, "--model", "mine:F=3,M=2").stdout)["losses"]
    check("training computes with it", usual != coarse, (usual, coarse))
    refused = fp8lab(*run, code=2).stderr
    check("a checkpoint knows its accumulator", "/options/blocks" in refused and "-3-2-" in refused, refused)


def write_codes(path, rows, columns, seed):
    """E4M3 codes of both signs, NaN apart, as a .npy file without NumPy."""
    data, state = bytearray(), seed
    while len(data) < rows * columns:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        word = state >> 40
        data.append((word >> 8 & 0x80) | 0x18 + word % 48)
    write_npy(path, "|u1", (rows, columns), bytes(data))


def write_floats(path, shape):
    import array
    import math
    count = math.prod(shape)
    write_npy(path, "<f4", shape, array.array("f", [math.sin(1.7 * i * i) for i in range(count)]).tobytes())


def write_npy(path, dtype, shape, data):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)


SMALL = ["--set", "k=256", "--set", "rows=4", "--set", "columns=4", "--set", "distributions=normal",
         "--set", "promoted_accumulators=[]", "--set", "bf16_k=[]", "--set", "bf16_accumulators=[]",
         "--set", "promotion_k=[]", "--set", "split_k=[]", "--set", "running_sum_k=128", "--set", "published_rows=1",
         "--set", "fit_repeats=1"]  # fmt: skip


def errors_of(folder):
    with open(folder / "error.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def sweeps_run_over_parameters(folder):
    models = folder / "mine.toml"
    models.write_text(FILE)
    sweep = ["sweep", "accumulator-drift", "--quick", *SMALL, "--models", models, "--set", "accumulators=mine"]
    out = folder / "sweep"
    fp8lab(*sweep, "--axis", "accumulators.F=6:12:+2", "--axis", "accumulators.terms=16,32", "--out", out)
    rows = errors_of(out)
    points = {(row["accumulators.F"], row["accumulators.terms"]) for row in rows}
    check("every point ran", points == {(str(f), t) for f in (6, 8, 10, 12) for t in ("16", "32")}, points)
    for terms in ("16", "32"):
        l2 = [float(row["relative_l2"]) for row in rows if row["accumulators.terms"] == terms]
        check("fewer bits, larger errors", l2 == sorted(l2, reverse=True) and l2[0] > 8 * l2[-1], l2)
    # The same model by its text alone, in a run; the recorded command needs no file of models.
    fp8lab("run", "accumulator-drift", "--quick", "--no-plots", *SMALL, "--models", models, "--out", folder / "run",
           "--set", "accumulators=mine", "--set", "accumulators.F=8")  # fmt: skip
    record = json.loads((folder / "run/accumulator-drift/result.json").read_text())
    text = "mine=fused:terms=16,F=8,M=13,e_min=-6"
    check("the record holds the definition", f'accumulators=["{text}"]' in record["command"], record["command"])
    # A grid file, and models as an axis of their own.
    grid = folder / "grid.toml"
    grid.write_text('experiment = "accumulator-drift"\nquick = true\n[axes]\naccumulators = ["mine", "fused:terms=8,M=9"]\n'
                    '"accumulators.F" = "8:9"\n')
    fp8lab("sweep", grid, *SMALL, "--models", models, "--out", folder / "grid")
    cells = {(row["accumulators"], row["accumulators.F"]) for row in errors_of(folder / "grid")}
    check("definitions are cells", cells == {(m, f) for m in ("mine=fused:terms=16,F=12,M=13,e_min=-6", "fused:terms=8,M=9")
                                             for f in "89"}, cells)
    again = fp8lab("sweep", grid, *SMALL, "--models", models, "--out", folder / "grid", "--resume").stdout
    check("a sweep of definitions resumes", "4 of them before" in again, again)
    # A value out of range costs its point alone.
    fp8lab(*sweep, "--axis", "accumulators.F=12,99", "--out", folder / "range", code=1)
    failed = (folder / "range/failures.csv").read_text()
    check("the point says why", "alignment_fraction_bits: expected 1 .. 64, got 99" in failed, failed)


def what_is_refused(folder):
    models = folder / "mine.toml"
    models.write_text(FILE)
    bad = folder / "bad.toml"
    bad.write_text('[accumulator.mine]\nbase = "fused"\nbits = 3\n')
    drift = ["accumulator-drift", "--quick", "--no-plots", "--out", folder / "no"]
    for arguments, reasons in (
        (["gemm", "a", "b", "--models", bad], ["bad.toml: [accumulator.mine]", "one of terms", "'bits'"]),
        (["gemm", "a", "b", "--models", folder / "none.toml"], ["none.toml"]),
        (["vectors", "--model", "fused:F=65", "-n", "1"], ["alignment_fraction_bits", "1 .. 64", "65"]),
        (["run", *drift, "--set", "accumulators=fused:F=65"], ["accumulators: ", "1 .. 64", "65"]),
        (["run", *drift, "--set", "accumulators=mine"], ["accumulators: model", "'mine'"]),
        (["run", *drift, "--set", "k.F=3"], ["k.F", "accumulators", "'k'"]),
        (["run", "outlier", "--set", "elements.F=3"], ["elements.F", "no parameter here names models"]),
        (["sweep", *drift[:2], "--axis", "accumulators.F=all"], ["axis accumulators.F", "all"]),
        (["sweep", *drift[:2], "--axis", "accumulators=exact,none", "--dry-run"], ["'none'"]),
        (["train", "--recipe", "fp32", "--model", "fused"], ["--model", "FP8 or BF16 products", "fp32"]),
        (["train", "--recipe", "bf16", "--model", "sm90.wgmma.e4m3"], ["BF16 operands", "sm90.wgmma.e4m3"]),
        (["train", "--model", "exact", "--model", "fused"], ["--model", "BF16 inputs", "exact and fused"]),
    ):
        said = fp8lab(*arguments, code=2).stderr
        check(f"{arguments} says why", all(reason in said for reason in reasons), said)


def main():
    bits_are_the_oracles()
    for part in (every_command_takes_them, sweeps_run_over_parameters, what_is_refused):
        with tempfile.TemporaryDirectory() as folder:
            part(pathlib.Path(folder))
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
