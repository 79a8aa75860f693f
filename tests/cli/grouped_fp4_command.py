"""NVFP4 in groups: one scale of 16 terms, and one of the tensor in each group.

The right outputs are NumPy's: E2M1 codes under block scales that are powers of two add up exactly,
and alpha = a group's two tensor scales in FP32 scales the sum.

Usage: grouped_fp4_command.py PATH_OF_FP8LAB
"""

import json
import sys
import tempfile

from grouped_case import Case, check, expect, groups_of_rows, np, report, run, same

GROUPS, ROWS, COLUMNS, TERMS = 3, 6, 8, 64
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
ARGUMENTS = ["--dtype", "e2m1", "--model", "sm100.tcgen05.mxf4nvf4", "--scale-format", "e4m3fn"]
TENSOR_A = np.array([1.1, 0.3, 7.7], np.float32)
TENSOR_B = np.array([0.013, 2.5, 0.9], np.float32)


class Nvfp4:
    """Codes [rows, k] and UE4M3 codes of powers of two [rows, k / 16]."""

    def __init__(self, rng, *shape):
        self.codes = rng.integers(0, 16, shape).astype(np.uint8)
        exponents = rng.integers(-3, 4, (*shape[:-1], shape[-1] // 16))
        self.scales = ((exponents + 7) << 3).astype(np.uint8)
        self.values = E2M1[self.codes] * np.repeat(np.exp2(exponents), 16, -1)


def alpha(of_a, of_b):
    return np.float32(of_a) * np.float32(of_b)


def scaled(a, b, factor):
    """The exact sum times alpha, rounded once."""
    return ((a @ b.T).astype(np.float32) * factor).astype(np.float32)


def rows_in_groups(case):
    a, b = Nvfp4(case.rng, 20, TERMS), Nvfp4(case.rng, GROUPS, COLUMNS, TERMS)
    ends = [7, 7, 18]
    files = [case.save("a", a.codes), case.save("b", b.codes)]
    options = [*ARGUMENTS, "--row-ends", "7,7,18", "--scale-a", case.save("sa", a.scales), "--scale-b",
               case.save("sb", b.scales), "--tensor-scale-a", case.save("ta", TENSOR_A)]
    per_group = [*options, "--tensor-scale-b", case.save("tb", TENSOR_B)]
    right = np.zeros((20, COLUMNS), np.float32)
    for g, begin, end in groups_of_rows(ends):
        right[begin:end] = scaled(a.values[begin:end], b.values[g], alpha(TENSOR_A[g], TENSOR_B[g]))
    made = case.at / "d.npy"
    expect(0, "gemm", *files, *per_group, "-o", made)
    same("a tensor scale a group", np.load(made), right)
    for g, begin, end in groups_of_rows(ends):
        right[begin:end] = scaled(a.values[begin:end], b.values[g], alpha(TENSOR_A[g], 0.25))
    expect(0, "gemm", *files, *options, "--tensor-scale-b", "0.25", "-o", made)
    same("A's a group, B's for all", np.load(made), right)


def batched_mistakes(case):
    a, b = Nvfp4(case.rng, GROUPS, ROWS, TERMS), Nvfp4(case.rng, GROUPS, COLUMNS, TERMS)
    files = [case.save("a", a.codes), case.save("b", b.codes)]
    options = [*ARGUMENTS, "--batched", "--scale-a", case.save("sa", a.scales), "--scale-b",
               case.save("sb", b.scales), "--tensor-scale-a", case.save("ta", TENSOR_A), "--tensor-scale-b",
               case.save("tb", TENSOR_B)]

    def output(of_a, of_b):
        return np.stack([scaled(a.values[g], b.values[g], alpha(of_a[g], of_b[g])) for g in range(GROUPS)])

    def first_cause(d, group):
        got = case.save("got", d)
        expect(1, "verify", got, "--inputs", *files, *options)
        found = json.loads(run("verify", got, "--inputs", *files, *options, "--json").stdout)
        for one in found["groups"]:
            if one["group"] == group:
                return [cause["name"] for cause in one["report"]["diagnosis"]["causes"]][:1]
        return []

    right = output(TENSOR_A, TENSOR_B)
    expect(0, "verify", case.save("got", right), "--inputs", *files, *options, stdout=["pass"])
    ones = np.ones(GROUPS, np.float32)
    for what, d, name in (
        ("A's left out", output(ones, TENSOR_B), "missing_tensor_scale_a"),
        ("both left out", output(ones, ones), "missing_tensor_scale_a_and_b"),
        ("B's twice", output(TENSOR_A, TENSOR_B * TENSOR_B), "doubled_tensor_scale_b"),
        ("B's of group 0 for all", output(TENSOR_A, TENSOR_B[[0, 0, 0]]), "tensor_scale_b_of_previous_group"),
        ("A's of the next group", output(TENSOR_A[[0, 2, 2]], TENSOR_B), "tensor_scale_a_of_next_group"),
    ):
        found = first_cause(d, 1)
        check(f"{what}: {name}, got {found}", found == [name])
    found = run("identify", *files, case.save("got", right), *options[:2], *options[4:])
    check("identify explains it", found.returncode == 0 and "mxf4nvf4" in found.stdout, found.stdout + found.stderr)


def terms_in_groups(case):
    a, b = Nvfp4(case.rng, ROWS, 128), Nvfp4(case.rng, COLUMNS, 128)
    options = [*ARGUMENTS, "--k-ends", "64,128", "--scale-a", case.save("sa", a.scales), "--scale-b",
               case.save("sb", b.scales), "--tensor-scale-a", case.save("ta", TENSOR_A[:2])]
    made = case.at / "d.npy"
    expect(0, "gemm", case.save("a", a.codes), case.save("b", b.codes), *options, "-o", made)
    right = np.stack([scaled(a.values[:, k], b.values[:, k], alpha(TENSOR_A[g], 1))
                      for g, k in enumerate((slice(0, 64), slice(64, 128)))])
    same("groups along k", np.load(made), right)


def refused(case):
    a, b = Nvfp4(case.rng, GROUPS, ROWS, TERMS), Nvfp4(case.rng, GROUPS, COLUMNS, TERMS)
    files = [case.save("a", a.codes), case.save("b", b.codes)]
    options = [*ARGUMENTS, "--scale-a", case.save("sa", a.scales), "--scale-b", case.save("sb", b.scales)]
    two = ["--tensor-scale-a", case.save("ta", TENSOR_A[:2])]
    expect(2, "gemm", *files, *options, "--batched", *two, stderr=["--tensor-scale-a: expected one value, or 3"])
    grid = ["--tensor-scale-a", case.save("ta", TENSOR_A[:, None])]
    expect(2, "gemm", *files, *options, "--batched", *grid, stderr=["--tensor-scale-a: expected a number"])
    files = [case.save("a", a.codes[0]), case.save("b", b.codes[0])]
    options = [*ARGUMENTS, "--scale-a", case.save("sa", a.scales[0]), "--scale-b", case.save("sb", b.scales[0])]
    two = ["--tensor-scale-a", case.save("ta", TENSOR_A[:2])]
    expect(2, "gemm", *files, *options, *two, stderr=["tensor_scale"])


with tempfile.TemporaryDirectory() as folder:
    case = Case(folder, 5)
    rows_in_groups(case)
    batched_mistakes(case)
    terms_in_groups(case)
    refused(case)
sys.exit(report("NVFP4 in groups"))
