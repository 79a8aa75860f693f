"""Batched and grouped products, and which mistakes of grouped kernels are named.

The right outputs are NumPy's: under the exact model a product is the FP64 one, rounded once.

Usage: grouped_command.py PATH_OF_FP8LAB
"""

import json
import sys
import tempfile

from grouped_case import (ENDS, G, N, ROWS, Case, check, expect, gemm, groups_of_rows, ml_dtypes, np, product, report, run, same)


def kinds(case):
    """Every kind of groups against NumPy, plain."""
    b = case.save("b", case.b)
    flat, stack = case.save("flat", case.flat), case.save("stack", case.stack)
    right = np.zeros((ROWS, N), np.float32)
    for g, begin, end in groups_of_rows(ENDS):
        right[begin:end] = product(case.flat[begin:end], case.b[g])
    listed = ",".join(map(str, ENDS))
    same("row ends in a list", gemm(case, flat, b, "--row-ends", listed), right)
    ends = case.save("ends", np.array(ENDS, np.int32))
    same("row ends in a file", gemm(case, flat, b, "--row-ends", ends), right)
    turned = case.save("bt", np.ascontiguousarray(case.b.transpose(0, 2, 1)))
    same("B [g, k, n]", gemm(case, flat, turned, "--transpose-b", "--row-ends", listed), right)

    indices = np.array([2] * 6 + [-1] * 2 + [0] * 9 + [3] * 4 + [-1] + [0] * 11, np.int32)
    right = np.zeros((ROWS, N), np.float32)
    for row, g in enumerate(indices):
        if g >= 0:
            right[row] = product(case.flat[row:row + 1], case.b[g])
    same("row indices", gemm(case, flat, b, "--row-indices", case.save("i", indices)), right)

    whole = np.stack([product(x, y) for x, y in zip(case.stack, case.b)])
    same("batched", gemm(case, stack, b, "--batched"), whole)
    counts = [9, 0, 1, 6]
    masked = whole.copy()
    for g, count in enumerate(counts):
        masked[g, count:] = 0
    same("row counts", gemm(case, stack, b, "--row-counts", "9,0,1,6"), masked)

    k_ends = [64, 64, 192, 250]
    cut = np.stack([product(case.flat[:, begin:end], case.wide_b[:, begin:end])
                    for _, begin, end in groups_of_rows(k_ends)])
    wide = case.save("wide", case.wide_b)
    same("k ends", gemm(case, flat, wide, "--k-ends", "64,64,192,250"), cut)
    turned = case.save("wt", np.ascontiguousarray(case.wide_b.T))
    same("k ends, B [k, n]", gemm(case, flat, turned, "--transpose-b", "--k-ends", "64,64,192,250"), cut)

    fortran = case.save("f", np.asfortranarray(case.stack))
    same("A in Fortran order", gemm(case, fortran, b, "--batched"), whole)


def scaled(case):
    """Scales of every granularity, C and bias, group by group."""
    b = case.save("b", case.b)
    flat, stack = case.save("flat", case.flat), case.save("stack", case.stack)
    listed = ",".join(map(str, ENDS))
    sa, sb = case.power(ROWS, 2), case.power(G, 1, 2)
    right = np.zeros((ROWS, N), np.float32)
    for g, begin, end in groups_of_rows(ENDS):
        if end > begin:
            right[begin:end] = product(case.flat[begin:end], case.b[g], sa[begin:end], sb[g], 128)
    names = ["--scale-a", case.save("sa", sa), "--scale-b", case.save("sb", sb)]
    same("1x128 and 128x128", gemm(case, flat, b, "--row-ends", listed, *names, promotion=128), right)

    per_row, per_group = case.power(ROWS), case.power(G)
    for g, begin, end in groups_of_rows(ENDS):
        right[begin:end] = product(case.flat[begin:end], case.b[g]) * per_row[begin:end, None] * per_group[g]
    names = ["--scale-a", case.save("sa", per_row), "--scale-b", case.save("sb", per_group)]
    same("one a row, one a group", gemm(case, flat, b, "--row-ends", listed, *names), right)

    # Tiles of 4 rows over all of A: a group begins inside of one.
    tiles = case.power(9, 2)
    for g, begin, end in groups_of_rows(ENDS):
        each = np.repeat(tiles, 4, 0)[begin:end]
        if end > begin:
            right[begin:end] = product(case.flat[begin:end], case.b[g], each, None, 128)
    same("tiles that groups share",
         gemm(case, flat, b, "--row-ends", listed, "--scale-a", case.save("sa", tiles), "--tiles-a", "4x128",
              promotion=128), right)

    sa, sb = case.power(G, 9, 8), case.power(G, N, 8)
    c, bias = case.power(G, 9, N), case.power(G, N)
    right = np.stack([product(*each, 32) for each in zip(case.stack, case.b, sa, sb)])
    right = ((right.astype(np.float64) + bias[:, None, :]).astype(np.float32).astype(np.float64)
             + 2.0 * c).astype(np.float32)
    names = ["--scale-a", case.save("sa", sa), "--scale-b", case.save("sb", sb), "--c", case.save("c", c),
             "--beta", "2", "--bias", case.save("bias", bias)]
    same("1x32, C and bias of each", gemm(case, stack, b, "--batched", *names, promotion=32), right)

    wide = case.save("wide", case.wide_b)
    k_ends = [64, 64, 192, 256]
    sa, sb = case.power(G, ROWS), case.power(G, 1, 1)
    right = np.stack([product(case.flat[:, begin:end], case.wide_b[:, begin:end]) * sa[g][:, None] * sb[g, 0, 0]
                      for g, begin, end in groups_of_rows(k_ends)])
    names = ["--scale-a", case.save("sa", sa), "--scale-b", case.save("sb", sb)]
    same("groups along k, scales of each", gemm(case, case.save("flat", case.flat), wide, "--k-ends",
                                                "64,64,192,256", *names), right)
    sa, sb = case.power(ROWS, 8), case.power(N, 8)
    right = np.stack([product(case.flat[:, b0:b1], case.wide_b[:, b0:b1], sa[:, b0 // 32:b1 // 32],
                              sb[:, b0 // 32:b1 // 32], 32) if b1 > b0 else np.zeros((ROWS, N), np.float32)
                      for _, b0, b1 in groups_of_rows(k_ends)])
    names = ["--scale-a", case.save("sa", sa), "--scale-b", case.save("sb", sb)]
    same("groups along k, one grid", gemm(case, flat, wide, "--k-ends", "64,64,192,256", *names, promotion=32),
         right)
    expect(2, "gemm", flat, wide, "--dtype", "e4m3fn", "--model", "exact", "--promotion", "32", "--k-ends",
           "65,256", *names, stderr=["multiple of 32"])


def cause_of(report, group):
    """Names of findings, causes of the group and of its regions."""
    for one in report["groups"]:
        if one["group"] != group:
            continue
        names = [finding["name"] for finding in one["findings"]]
        names += [cause["name"] for cause in one["report"].get("diagnosis", {}).get("causes", [])]
        return names + [region["cause"] for region in one["report"]["regions"] if "cause" in region]
    return []


def wrong_groups(report):
    return [one["group"] for one in report["groups"] if one["report"]["metrics"]["bit_mismatches"] > 0]


def mistakes(case):
    """A grouped kernel's mistakes are found in their group and named."""
    rng = case.rng
    ends = [40, 104, 160, 200]
    rows, k, n = 210, 256, 48
    a = rng.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((G, n, k)).astype(ml_dtypes.float8_e4m3fn)
    sa = np.exp(rng.standard_normal((rows, 2))).astype(np.float32)
    sb = np.exp(rng.standard_normal((G, 1, 2))).astype(np.float32)
    kernel = ["--promotion", "128", "--model", "sm90.wgmma.e4m3", "--dtype", "e4m3fn"]
    files = [case.save("a", a), case.save("b", b)]
    scales = ["--scale-a", case.save("sa", sa), "--scale-b", case.save("sb", sb)]
    grouped = ["--row-ends", ",".join(map(str, ends))]

    def plain(first, last, weights, own_scales=None):
        """Rows [first, last) of A times one group's weights, without groups."""
        at = case.at / "p"
        at.mkdir(exist_ok=True)
        np.save(at / "a.npy", a[first:last].view(np.uint8))
        np.save(at / "b.npy", b[weights].view(np.uint8))
        np.save(at / "sa.npy", sa[first:last])
        np.save(at / "sb.npy", sb[weights if own_scales is None else own_scales])
        expect(0, "gemm", at / "a.npy", at / "b.npy", *kernel, "--scale-a", at / "sa.npy", "--scale-b",
               at / "sb.npy", "-o", at / "d.npy")
        return np.load(at / "d.npy")

    right = np.zeros((rows, n), np.float32)
    for g, begin, end in groups_of_rows(ends):
        right[begin:end] = plain(begin, end, g)
    made = case.at / "d.npy"
    expect(0, "gemm", *files, *scales, *kernel, *grouped, "-o", made)
    same("a group is a product of its own", np.load(made), right)

    def verify(d, *more, code=1, stdout=()):
        path = case.save("got", d)
        call = ["verify", path, "--inputs", *files, *scales, *kernel, *grouped, *more]
        said = expect(code, *call, stdout=stdout).stdout
        report = json.loads(run(*call, "--json").stdout)
        for finding in sum((one["findings"] for one in report["groups"]), []):
            check(f"{finding['name']} is printed", finding["text"] != finding["name"] and finding["text"] in said, said)
        return report

    report = verify(right, code=0, stdout=["pass: all 9600 outputs of 4 groups", "10 rows are in no group"])
    check("no group is wrong", wrong_groups(report) == [], report)
    verify(np.asfortranarray(right), code=0)

    def named(what, d, group, name, *more, **keys):
        report = verify(d, *more, **keys)
        check(f"{what}: the group", wrong_groups(report) == [group], wrong_groups(report))
        causes = cause_of(report, group)
        check(f"{what}: {name} first of {causes}", causes[:1] == [name], report)

    d = right.copy()
    d[104:160] = plain(104, 160, 1)
    named("another group's weights", d, 2, "weight_of_previous_group", stdout=["group 2 (rows 104-159"])
    d = right.copy()
    d[40:104] = plain(40, 104, 1, own_scales=2)
    named("another group's scales", d, 1, "scale_b_of_next_group")
    d = right.copy()
    d[40:104] = plain(40, 104, 2, own_scales=1)
    named("another group's codes", d, 1, "weight_codes_of_next_group")
    d = right.copy()
    d[104:105] = plain(104, 105, 1)
    named("an offset one too large", d, 2, "offset_late")
    d = right.copy()
    d[105:106] = plain(105, 106, 1)  # the second row of its group: no offset explains it
    report = verify(d)
    check("the second row alone", wrong_groups(report) == [2] and "offset_late" not in cause_of(report, 2), report)
    d = right.copy()
    d[101:104] = plain(101, 104, 2)
    named("an offset three too small", d, 1, "offset_early")
    d = right.copy()
    d[199:200] = 0
    named("the last row left out", d, 3, "rows_not_written")
    d = right.copy()
    d[160:200] = plain(160, 200, 3) * 0
    report = verify(d, stdout=["epilogue_factors", "left out"])
    check("a group that was not computed", wrong_groups(report) == [3], report)
    d = right.copy()
    d[0:40] = right[40:80]
    named("another group's output", d, 0, "output_of_another_group")
    d = right.copy()
    d[0:40] = right[160:200]  # a group of as many rows
    named("the output of a group of its size", d, 0, "output_of_another_group")

    d = right.copy()
    d[200:210] = plain(200, 210, 3)
    verify(d, code=0)
    report = verify(d, "--ungrouped", "zero", stdout=["ungrouped_rows_written"])
    check("only rows in no group are wrong", wrong_groups(report) == [] and report["verdict"] == "mismatch",
          report)
    verify(right, "--ungrouped", "zero", code=0, stdout=["10 rows are in no group, all zero"])

    # The same weights in all groups: that a neighbour's were read cannot be seen.
    files[1] = case.save("b", np.repeat(b[:1], G, 0))
    scales[3] = case.save("sb", np.repeat(sb[:1], G, 0))
    expect(0, "gemm", *files, *scales, *kernel, *grouped, "-o", made)
    verify(np.load(made), code=3, stdout=["missed: weight_of_"])


def along_k(case):
    """Mistakes of groups along k."""
    rng = case.rng
    a = rng.standard_normal((64, 320)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((48, 320)).astype(ml_dtypes.float8_e4m3fn)
    ends = [96, 160, 320]
    arguments = ["--inputs", case.save("a", a), case.save("b", b), "--dtype", "e4m3fn", "--model",
                 "sm90.wgmma.e4m3", "--k-ends", ",".join(map(str, ends))]

    def of_terms(begin, end):
        at = [case.save("pa", a[:, begin:end]), case.save("pb", b[:, begin:end])]
        out = case.at / "p.npy"
        expect(0, "gemm", *at, "--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "-o", out)
        return np.load(out)

    right = np.stack([of_terms(begin, end) for _, begin, end in groups_of_rows(ends)])
    expect(0, "verify", case.save("d", right), *arguments, stdout=["pass"])
    for name, begin, end in (("k_begins_late", 97, 160), ("k_begins_early", 95, 160), ("k_ends_late", 96, 161),
                             ("k_ends_early", 96, 159), ("k_offset_low", 95, 159), ("k_offset_high", 97, 161),
                             ("terms_of_next_group", 160, 320)):
        d = right.copy()
        d[1] = of_terms(begin, end)
        report = json.loads(run("verify", case.save("d", d), *arguments, "--json").stdout)
        check(f"{name}: {cause_of(report, 1)}", wrong_groups(report) == [1] and name in cause_of(report, 1)[:2],
              report)


def identified(case):
    """One explanation for all groups."""
    rng = case.rng
    files = [case.save("a", (rng.standard_normal((3, 40, 512)) * 4).astype(ml_dtypes.float8_e4m3fn)),
             case.save("b", (rng.standard_normal((3, 32, 512)) * 4).astype(ml_dtypes.float8_e4m3fn))]
    out = case.at / "d.npy"
    kernel = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3", "--promotion", "128"]
    expect(0, "gemm", *files, *kernel, "--batched", "-o", out)
    expect(0, "identify", *files, out, "--dtype", "e4m3fn", "--batched",
           stdout=["--model sm90.wgmma.e4m3 --promotion 128", "3 of 3 groups"])
    d = np.load(out)
    plain = [case.save("pa", np.load(files[0])[1]), case.save("pb", np.load(files[1])[1])]
    expect(0, "gemm", *plain, "--dtype", "e4m3fn", "--model", "fp32", "-o", case.at / "one.npy")
    d[1] = np.load(case.at / "one.npy")
    expect(1, "identify", *files, case.save("e", d), "--dtype", "e4m3fn", "--batched",
           stdout=["2 of 3 groups", "group 1 (from row 40"])
    report = json.loads(run("identify", *files, case.at / "e.npy", "--dtype", "e4m3fn", "--batched", "--json").stdout)
    matches = [one.pop("matches") for one in report["groups"]]
    check(f"each group of identify --json: {report['groups']}",
          report["groups"] == [{"group": i, "first_row": 40 * i, "compared": 40 * 32} for i in range(3)], report)
    check(f"its matches: {matches}", matches[0] == matches[2] == 40 * 32 > matches[1], report)


with tempfile.TemporaryDirectory() as folder:
    for part in (kinds, scaled, mistakes, along_k, identified):
        part(Case(folder))
sys.exit(report("grouped products"))
