"""Random arguments of every command: a verdict, or one clear line and exit code 2; nothing else, and soon.

Usage: argument_grammar.py PATH_OF_FP8LAB
FP8LAB_DRAWS says how many calls (150), FP8LAB_SEED repeats a run.

Each call is a small one that works, of which up to three options are set to something from the grammars of
the commands (models by parameters, axes, shapes, tiles, numbers) or to what a mistyping makes of it. Options
are read from the commands' own help, so a new one is tried without a word here.
"""

import collections
import concurrent.futures
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = str(Path(sys.argv[1]).resolve())
DRAWS = int(os.environ.get("FP8LAB_DRAWS", "150"))
SEED = int(os.environ.get("FP8LAB_SEED") or random.SystemRandom().randrange(1 << 31))
MOST_SECONDS = 60  # of the processor
# What a library or the language says, and a user cannot use.
RAW = ("json.exception", "_M_", "bad_alloc", "basic_", "std::", "stoll", "stod", "terminate called", "Assertion")

# A small call of each command, and the options that are left alone: they lead elsewhere or take long.
CALLS = {
    "attn": (["q.npy", "k.npy", "v.npy"], []),
    "cast": (["1.5", "nan"], []),
    "claims": (["F1"], ["--out"]),
    "cost": (["--model", "7b"], []),
    "expect": (["--shape", "8x8x64", "--trials", "10"], []),
    "gemm": (["a.npy", "b.npy"], []),
    "identify": (["a.npy", "b.npy", "d.npy"], []),
    "layers": (["w.safetensors", "--rule", "all"], []),
    "list": (["models"], []),
    "quantize": (["x.npy", "--recipe", "te-current"], []),
    "run": (["walkthrough", "--quick", "--no-plots", "--out", "out", "--set", "curve_points=10"], ["--mpi"]),
    "sweep": (["walkthrough", "--quick", "--axis", "curve_points=10,20", "--out", "grid"], ["--mpi"]),
    "table": (["e4m3fn"], []),
    "train": (["--steps", "1", "--length", "8", "--width", "16", "--layers", "1", "--heads", "2", "--hidden", "16"], []),
    "vectors": (["--model", "sm90.wgmma.e4m3", "--count", "4"], []),
    "verify": (["d.npy", "--inputs", "a.npy", "b.npy"], []),
}

WORDS = """
0 1 -1 2 3 16 32 128 4096 1e300 -1e300 1e-300 nan inf -inf -0.0 0.5 2.5 99999999999999999999 9223372036854775807 0x10 1e3 +1
e4m3fn e5m2 e4m3 f32 bf16 f16 e2m1 e2m1x2 ue8m0 none relu gelu nearest_even toward_zero nvidia_satfinite saturate
te-current deepgemm mxfp8 nvfp4 sm90.wgmma.e4m3 sm89.mma.e4m3 sm90 exact kulisch cublaslt.h100.slow
fused:terms=16 fused:terms=16,F=13,rounding=toward_zero,e_min=-6 narrow=sm90.wgmma.e4m3:F=10 sm90.wgmma.e4m3:F=14
sm90.wgmma.e4m3:F= fused:F=13,F=14 fused:nothing=1 :F=1 fused: a=b:c=d=e fused:terms=0 fused:terms=99999999999
16x16x64 1x1x1 0x0x0 -1x2x3 16x16 1x128 128x128 0x0 16x16x64+8x8x32 99999999999999999999x1x1 x
curve_points=10:160:*2 curve_points=10:12 sigma=0.1,0.4 curve_points=11:10 curve_points=10:16:*0 curve_points=10:19:0
curve_points= =1 curve_points scale_to=inf curve_points=10,10
product_then_fma accumulator promoted_sum epilogue 7b llama-7b normal uniform bitwise budget all a.npy d.npy missing.npy . /dev/full
""".split()
STRANGE = ["", " ", "\t", "é", "a\nb", "%s%n", "--", "-", "'", '"', "[1, 2]", "{}", "x" * 3000, ",,,", "=" * 50, "\udcff"]


def npy(shape, values, descr="<f4"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


def make_files(folder):
    floats = lambda count: struct.pack(f"<{count}f", *[((i * 37) % 19 - 9) / 8 for i in range(count)])
    codes = bytes((i * 29) % 120 for i in range(8 * 64))
    (folder / "a.npy").write_bytes(npy((8, 64), codes, "|u1"))
    (folder / "b.npy").write_bytes(npy((8, 64), codes[::-1], "|u1"))
    (folder / "x.npy").write_bytes(npy((8, 64), floats(8 * 64)))
    (folder / "d.npy").write_bytes(npy((8, 8), floats(64)))
    for name in "qkv":
        (folder / f"{name}.npy").write_bytes(npy((2, 16, 16), floats(512)))
    header = b'{"w.weight":{"dtype":"F32","shape":[8,64],"data_offsets":[0,2048]}}'
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + floats(512))
    for name in ("a", "b"):
        (folder / f"{name}.npy.json").write_text('{"dtype": "e4m3fn", "shape": [8, 64]}')


def options_of(command):
    """Names of the options of a command, and whether each takes a value."""
    text = subprocess.run([TOOL, command, "--help"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^  (?:-\w,)?(--[\w-]+)( [A-Z]|\b)", text, re.MULTILINE)
    return [(name, bool(value.strip())) for name, value in found if name not in ("--help", *CALLS[command][1])]


def mistyped(draw, word):
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(word) + 1)
        what = draw.randrange(4)
        if what == 0:
            word = word[:at] + word[at + 1:]
        elif what == 1:
            word = word[:at] + draw.choice("0123456789,:=x+-.*eE_ ") + word[at:]
        elif what == 2:
            word = word[:at] + word
        else:
            word = word[:at] + draw.choice(WORDS) + word[at:]
    return word


def value(draw):
    what = draw.randrange(10)
    if what == 0:
        return draw.choice(STRANGE)
    return draw.choice(WORDS) if what < 6 else mistyped(draw, draw.choice(WORDS))


def call(draw, options):
    command = draw.choice(sorted(CALLS))
    arguments = list(CALLS[command][0])
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.randrange(5) == 0:
            arguments[draw.randrange(len(arguments))] = value(draw)
            continue
        name, takes = draw.choice(options[command])
        arguments += [name, value(draw)] if takes else [name]
    # Outputs stay in the folder of this call.
    return [command, *(a for a in arguments if not a.startswith("/") or a == "/dev/full")]


def fault_of(arguments, parent):
    """What is wrong with how a call ended (empty: nothing), and its exit code."""
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        folder = Path(scratch)
        make_files(folder)
        limit = f"ulimit -v 4194304; ulimit -f 1048576; ulimit -t {MOST_SECONDS}; exec \"$0\" \"$@\""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        encoded = [os.fsencode(a) for a in (TOOL, *arguments)]
        try:
            done = subprocess.run(["bash", "-c", limit, *encoded], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=10 * MOST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"not done after {10 * MOST_SECONDS} s", None
    return fault_in(arguments[0], done), done.returncode


def fault_in(command, done):
    said = done.stderr.decode(errors="backslashreplace")
    if done.returncode not in (0, 1, 2, 3):
        return f"exit {done.returncode}: {said[-300:]}"
    if done.returncode == 2:
        if not said.strip():
            return "exit 2 without a word"
        if any(raw in said for raw in RAW):
            return f"a message that is none of ours: {said[:300]}"
    if done.returncode == 1 and command == "sweep" and b"failed" in done.stdout:
        return ""  # a point ran longer than --point-seconds allows
    if done.returncode in (1, 3) and command not in ("verify", "identify", "vectors", "replay", "claims"):
        return f"a verdict (exit {done.returncode}) of a command that gives none: {said[:300]}"
    return ""


def main():
    options = {command: options_of(command) for command in CALLS}
    for command, found in options.items():
        if not found:
            sys.exit(f"{command}: no options were read from its help")
    draw = random.Random(SEED)
    calls = [call(draw, options) for _ in range(DRAWS)]
    faults, codes = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as parent, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for command, (arguments, _) in CALLS.items():
            fault, code = fault_of([command, *arguments], parent)
            if fault or code == 2:
                faults += 1
                print(f"FAILED: {command} {arguments}, which should work\n  {fault or 'exit 2'}")
        for arguments, (fault, code) in zip(calls, pool.map(lambda c: fault_of(c, parent), calls)):
            codes[code] += 1
            if fault:
                faults += 1
                print(f"FAILED: {arguments}\n  {fault}", flush=True)
    if DRAWS >= 100 and min(codes[0], codes[2]) < DRAWS / 20:
        faults += 1
        print(f"FAILED: almost all calls end alike, so they try little: {dict(codes)}")
    print(f"arguments: FP8LAB_SEED={SEED}, {DRAWS} calls, {faults} faults; exit codes {dict(sorted(codes.items(), key=str))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
