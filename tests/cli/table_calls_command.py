"""Calls of a table that was observed on a chip: `gemm`, `verify` and `expect` with `--call FILE.csv:fast`.

Usage: table_calls_command.py PATH_OF_FP8LAB
"""

import tempfile
import zlib

from checking import check, expect, finish
from fp8_arrays import Folder, normal

import numpy as np

COLUMNS = "m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding"
ROWS = """\
16,32,512,e4m3fn,e4m3fn,f32,fast,512,1,0,2,128,contiguous,serial,product_then_fma,once
16,32,512,e4m3fn,e4m3fn,bf16,slow,512,2,128,1,128,contiguous,serial,product_then_fma,once
16,32,512,e4m3fn,e4m3fn,bf16,slow,512,2,0,4,64,modulo,tree,product_then_fma,once
16,32,512,e4m3fn,e4m3fn,f16,slow,512,0,-,-,-,-,-,-,-
"""


def write_table(path, rows=ROWS):
    below = f"# gpu: a simulated one\n# model: sm90.wgmma.e4m3\n{COLUMNS}\n{rows}"
    path.write_text(f"# fp8lab cublaslt 2\n# crc32: {zlib.crc32(below.encode()):08x}\n{below}")


def test_calls(at):
    rng = np.random.default_rng(3)
    a, b = at.save("a.npy", normal(rng, 16, 512)), at.save("b.npy", normal(rng, 32, 512))
    table = at / "cublaslt.csv"
    write_table(table)
    inputs, dtype = [a, b], ["--dtype", "e4m3fn"]

    def product(name, *options):
        expect(0, "gemm", *inputs, *dtype, *options, "-o", at / name)
        return np.load(at / name)

    hand = product("hand.npy", "--split-k", 2, "--split-tile", 128, "--out-dtype", "f32")
    for options in ([f"{table}:fast", "--out-dtype", "f32"], [f"{table}:fast,output=f32"]):
        check(f"as the table says {options[0][-16:]}", np.array_equal(hand, product("d.npy", "--call", *options)))
    check("not as the named call", not np.array_equal(hand, product("n.npy", "--call", "cublaslt.h100.fast",
                                                                   "--out-dtype", "f32")))

    chosen = product("tree.npy", "--call", f"{table}:slow,order=tree", "--out-dtype", "bf16")
    split = ["--split-k", 4, "--split-tile", 64, "--split-cut", "modulo", "--split-order", "tree"]
    check("a choice", np.array_equal(chosen, product("split.npy", *split, "--out-dtype", "bf16")))

    expect(0, "verify", at / "hand.npy", "--inputs", a, b, *dtype, "--call", f"{table}:fast")
    expect(1, "verify", at / "n.npy", "--inputs", a, b, *dtype, "--call", f"{table}:fast")
    shape = ["expect", "--shape", "16x32x512", "--trials", 10]
    expect(0, *shape, "--call", f"{table}:fast", "--out-dtype", "f32")
    expect(2, *shape[:1], "--shape", "16x32x64", "--call", f"{table}:fast", "--out-dtype", "f32",
           stderr=["expected a call in", "got 16x32x64"])

    def refused(call, says, *options):
        expect(2, "gemm", *inputs, *dtype, "--call", call, *options, stderr=[says])

    refused(f"{table}:slow,output=bf16", "interval=128|0, parts=1|4")
    refused(f"{table}:slow,output=bf16,parts=3", "parts: expected 1 or 4, as observed, got 3")
    refused(f"{table}:slow,output=f16", "expected a candidate that gives the observed outputs, got none")
    refused(f"{table}:fast", "--out-dtype: expected the output's format with a table of calls, got none")
    refused(f"{table}", "expected FILE.csv:fast or FILE.csv:slow")
    refused(f"{table}:fast", "no such option with --call", "--promotion", 128)
    refused(f"{table}:fast", "no such option with a table of calls", "--split-k", 2)
    refused(f"{at / 'none.csv'}:fast", "none.csv", "--out-dtype", "f32")
    rows = at.save("rows.npy", np.ones(16, np.float32))
    refused(f"{table}:fast,output=f32", "one scale, as the calls of the table had, got 16", "--scale-a", rows)
    refused(f"{table}:fast,output=f32", "a table of calls has no groups", "--row-ends", "8,16")

    text = table.read_text()
    table.write_text(text.replace("fast,512,1,0,2", "fast,512,1,0,4"))
    refused(f"{table}:fast,output=f32", "crc32")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        test_calls(Folder(folder))
    finish("calls of a table")
