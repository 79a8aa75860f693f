"""Every read, write, sync, close, rename, creation, mapping, thread start and large allocation of a command fails in turn.

After each fault the outputs are the old files, the new ones or none; the command says so with
exit code 2 and a line on stderr, or the outputs are the new ones and it exits 0. Nothing else is
left in the folder. A fault that only delays (a signal during a write, a short write) changes nothing.

Usage: faults.py PATH_OF_FP8LAB PATH_OF_INJECT_LIBRARY
FP8LAB_FAULTS=all tries every allocation instead of a sample.
"""

import errno
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOL, LIBRARY = (str(Path(argument).resolve()) for argument in sys.argv[1:3])
ALL = os.environ.get("FP8LAB_FAULTS") == "all"
ALLOCATIONS = 10_000 if ALL else 6
LARGE = 16 << 10  # allocations below are the runtime's own too: it may end the process as it likes
FAULTS = [
    ("write", errno.ENOSPC), ("write", errno.EINTR), ("write", 0), ("sync", errno.EIO), ("close", errno.EIO),
    ("rename", errno.EIO), ("create", errno.EMFILE), ("map", errno.ENOMEM), ("allocate", errno.ENOMEM),
    ("read", errno.EIO), ("read", errno.EINTR), ("read", 0), ("thread", errno.EAGAIN),
]
failures = 0


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {seen}")


def run(folder, arguments, **environment):
    return subprocess.run([TOOL, *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **environment}, check=False)


def faulty(folder, arguments, call, error, at):
    """The result of a run, and whether the fault came."""
    mark = folder.parent / "mark"
    mark.unlink(missing_ok=True)
    result = run(folder, arguments, LD_PRELOAD=LIBRARY, FAULT_PROGRAM=Path(TOOL).name, FAULT_CALL=call,
                 FAULT_AT=str(at), FAULT_ERRNO=str(error), FAULT_SIZE=str(LARGE), FAULT_MARK=str(mark))
    return result, mark.exists()


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def npy_header(rows, columns):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def npy(rows, columns, seed):
    values = [((i * 2654435761 + seed * 40503) % 1999 - 999) / 500 for i in range(rows * columns)]
    return npy_header(rows, columns) + struct.pack(f"<{len(values)}f", *values)


class Command:
    """A command whose outputs replace older ones, each whole by itself."""

    def __init__(self, name, arguments, prepare, outputs, volatile=(), again=None, together=()):
        self.name, self.arguments, self.prepare = name, arguments, prepare
        self.outputs = outputs  # names
        self.volatile = volatile  # outputs whose bytes hold times
        self.again = again  # how a run that a fault ended is continued, if it can be
        self.together = together  # pairs of outputs that must not be of different runs

    def state_of(self, name, got, old, new):
        if name not in got:
            return "absent"
        if name in self.volatile:
            return "new" if got[name] != old.get(name) else "old"
        # An earlier stage of a run that can be continued: the next run shows that it is whole.
        other = "wrong" if self.again is None else "earlier"
        return "new" if got[name] == new.get(name) else "old" if got[name] == old.get(name) else other

    def judge(self, what, result, got, old, new):
        check(f"{what}: exit 0 or 2", result.returncode in (0, 2), (result.returncode, result.stderr))
        known = old.keys() | new.keys()
        check(f"{what}: nothing is left", got.keys() <= known, sorted(got.keys() - known))
        states = {name: self.state_of(name, got, old, new) for name in self.outputs}
        check(f"{what}: old, new or absent", "wrong" not in states.values(), states)
        for one, other in self.together:
            check(f"{what}: {one} and {other} are of one run", {states[one], states[other]} != {"old", "new"}, states)
        if result.returncode == 0:
            check(f"{what}: exit 0 with all of it", set(states.values()) == {"new"}, states)
        else:
            check(f"{what}: says why", "fp8lab: " in result.stderr and len(result.stderr) < 2000, result.stderr)


def points_of(call):
    limit = ALLOCATIONS if call == "allocate" else 60 if ALL else 12
    return range(1, limit + 1)


def try_all(command, folder):
    base = folder / "base"
    base.mkdir()
    command.prepare(base)
    old = contents(base)
    work = folder / "work"
    shutil.copytree(base, work)
    result = run(work, command.arguments)
    check(f"{command.name}: runs without faults", result.returncode == 0, (result.returncode, result.stderr))
    new = contents(work)
    tried = 0
    met = dict.fromkeys((call for call, _ in FAULTS), 0)
    for call, error in FAULTS:
        for at in points_of(call):
            shutil.rmtree(work)
            shutil.copytree(base, work)
            result, came = faulty(work, command.arguments, call, error, at)
            what = f"{command.name}: {call} {at} gives {errno.errorcode.get(error, 'half')}"
            got = contents(work)
            command.judge(what, result, got, old, new)
            if error in (0, errno.EINTR):
                check(f"{what}: changes nothing", result.returncode == 0, result.stderr)
            if not came:
                break
            tried += 1
            met[call] += 1
            after(command, what, work, result, new)
    # What is not asked for cannot fail: a sync that the tool forgets shows here.
    check(f"{command.name}: a file and its folder are synced before and after the renaming", met["sync"] >= 2, met)
    for call in ("write", "close", "rename", "create"):
        check(f"{command.name}: meets {call}", met[call] > 0, met)
    return tried, met


def after(command, what, work, result, new):
    """What a fault left does not stand in the way of the next run."""
    if result.returncode == 0 or command.again is None:
        return
    again = run(work, command.again)
    check(f"{what}: the next run ends well", again.returncode == 0, again.stderr)
    got = contents(work)
    check(f"{what}: with the same bytes", all(got.get(name) == new[name] for name in new), sorted(got))


def inputs(folder):
    for name, rows, seed in (("a.npy", 96, 1), ("b.npy", 80, 2)):
        (folder / name).write_bytes(npy(rows, 128, seed))


GEMM = ["gemm", "a.npy", "b.npy", "--recipe", "te-current"]


def prepare_gemm(folder):
    inputs(folder)
    run(folder, [*GEMM, "--out-dtype", "e5m2", "-o", "d.npy"])


def prepare_verify(folder):
    inputs(folder)
    run(folder, [*GEMM, "-o", "d.npy"])
    run(folder, ["verify", "d.npy", "--golden", "d.npy", "--out", "out"])


def prepare_quantize(folder):
    inputs(folder)
    run(folder, ["quantize", "b.npy", "--recipe", "te-current", "-o", "q.safetensors"])


def prepare_large(folder):
    """An input that is mapped, not read."""
    path = folder / "large.npy"
    path.write_bytes(npy_header(33_000, 128))
    os.truncate(path, path.stat().st_size + 33_000 * 128 * 4)


def prepare_attention(folder):
    inputs(folder)
    run(folder, ["attn", "b.npy", "a.npy", "a.npy", "-o", "o.npy"])


def prepare_report(folder):
    run(folder, ["run", "walkthrough", "--quick", "--no-plots", "--out", "."])
    (folder / "report.html").write_text("old")


TRAIN = ["train", "--steps", "2", "--save-every", "1", "--recipe", "te-delayed", "--width", "32", "--heads", "2",
         "--hidden", "32", "--length", "16", "--layers", "1", "--sequences", "2", "--threads", "1",
         "--checkpoint", "c.safetensors"]
SWEEP = ["sweep", "walkthrough", "--quick", "--repeat", "2", "--threads", "2", "--out", "s"]
COMMANDS = [
    Command("gemm", [*GEMM, "--out-dtype", "e4m3fn", "-o", "d.npy"], prepare_gemm, ["d.npy", "d.npy.json"],
            together=[("d.npy", "d.npy.json")]),
    Command("gemm npz", [*GEMM, "-o", "d.npz"], inputs, ["d.npz"]),
    Command("verify", ["verify", "d.npy", "--golden", "d.npy", "--out", "out"], prepare_verify,
            ["out/verify/result.json"], volatile=["out/verify/result.json"]),
    Command("quantize", ["quantize", "a.npy", "--recipe", "te-current", "-o", "q.safetensors"], prepare_quantize,
            ["q.safetensors"]),
    Command("quantize tiles", ["quantize", "a.npy", "--recipe", "deepgemm", "-o", "q.safetensors"], prepare_quantize,
            ["q.safetensors"]),
    Command("quantize mapped", ["quantize", "large.npy", "--recipe", "te-current", "-o", "q.safetensors"], prepare_large,
            ["q.safetensors"]),
    Command("attn", ["attn", "a.npy", "b.npy", "b.npy", "-o", "o.npy"], prepare_attention, ["o.npy"]),
    # Its log grows point by point: what counts is that it can be continued.
    Command("sweep", SWEEP, lambda folder: None, ["s/sweep.json"], again=[*SWEEP, "--resume"]),
    Command("train", TRAIN, lambda folder: None, ["c.safetensors"], again=TRAIN),
    Command("report", ["report", "walkthrough", "-o", "report.html"], prepare_report, ["report.html"]),
]


def main():
    total = {}
    for command in COMMANDS:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tried, met = try_all(command, Path(folder))
        check(f"{command.name}: faults come", tried > 8, tried)
        total = {call: total.get(call, 0) + count for call, count in met.items()}
        print(f"{command.name}: {tried} faults, {time.monotonic() - start:.1f} s")
    check("each kind of fault came", all(total.values()), total)
    print("faults:", "all as expected" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
