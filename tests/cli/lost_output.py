"""Output that cannot be written is an error of every command; nobody else's file is harmed.

Usage: lost_output.py PATH_OF_FP8LAB
"""

import errno
import json
import os
import signal
import stat
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from checking import TOOL, check, finish, run


def npy(rows, columns, values, dtype="<f4", code="f"):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{code}", *values)


def codes(path, rows, columns):
    path.write_bytes(npy(rows, columns, [0x38 + i % 5 for i in range(rows * columns)], "|u1", "B"))
    return path


def one_line_and_2(what, result):
    check(f"{what}: exit 2", result.returncode == 2, (result.returncode, result.stderr))
    lines = result.stderr.strip().splitlines()
    told = [line for line in lines if line.startswith("fp8lab: ")]  # `run` shows its progress too
    check(f"{what}: one line on stderr", len(told) == 1 and lines[-1] == told[0], lines)


def test_stdout(folder):
    a, b = codes(folder / "a.npy", 8, 32), codes(folder / "b.npy", 4, 32)
    (folder / "x.npy").write_bytes(npy(2, 32, range(64)))
    good = folder / "good.txt"
    run("vectors", "--model", "sm90.wgmma.e4m3", "-n", 50, "-o", good)
    product = ["gemm", a, b, "--dtype", "e4m3fn"]
    run(*product, "-o", folder / "d.npy")
    commands = [
        ["--help"], ["--version"], ["list"], ["list", "--json"], ["list", "models"], ["table", "e4m3fn"],
        ["table", "e4m3fn", "--json"], ["cast", "1.5"], ["cast", "1.5", "--json"],
        ["vectors", "--model", "sm90.wgmma.e4m3", "-n", "3"], ["vectors", "--model", "sm90.wgmma.e4m3", "-n", "2000"],
        product, [*product, "--json"], ["replay", good], ["quantize", folder / "x.npy", "--recipe", "te-current"],
        ["quantize", folder / "x.npy", "--recipe", "te-current", "--json"], ["cost", "--model", "7b"],
        ["verify", folder / "d.npy", "--inputs", a, b, "--dtype", "e4m3fn"],
        ["verify", folder / "d.npy", "--golden", folder / "x.npy", "--json"],
        ["train", "--steps", "1", "--width", "16", "--heads", "2", "--hidden", "16", "--length", "8", "--json"],
        ["run", "dynamic-range", "--quick", "--no-plots", "--out", folder / "out"],
        ["report", folder / "out", "-o", folder / "report.html"],
    ]
    for command in commands:
        name = " ".join(map(str, command))
        with open("/dev/full", "w") as full:
            lost = run(*command, stdout=full)
        one_line_and_2(f"{name} > /dev/full", lost)
        closed = run(*command, stdout=None, preexec_fn=lambda: os.close(1))
        one_line_and_2(f"{name} >&-", closed)
        for result, why in ((lost, errno.ENOSPC), (closed, errno.EBADF)):
            line = f"fp8lab: standard output: not all of it could be written: {os.strerror(why)}"
            # Where a buffer was written before the end, the reason is gone by then; outputs of another shape are refused first.
            told = (line, line.rpartition(":")[0], f"fp8lab: {folder}/d.npy: expected shape [2, 32], got [8, 4]")
            check(f"{name}: why", result.stderr.splitlines()[-1] in told, result.stderr)
    check("what prints nothing needs no stdout",
          run("vectors", "--model", "fp32", "-n", 2, "-o", folder / "v.txt", stdout=None,
              preexec_fn=lambda: os.close(1)).returncode == 0)
    closed = run("vectors", "--model", "fp32", "-n", 2, "-o", folder / "w.txt", stdout=None, stderr=None,
                 preexec_fn=lambda: os.closerange(0, 3))
    check("files do not get what belongs to closed streams",
          closed.returncode == 0 and (folder / "w.txt").read_bytes() == (folder / "v.txt").read_bytes(), closed)
    head = subprocess.run(["bash", "-c", f"'{TOOL}' table e4m3fn | head -1; echo ${{PIPESTATUS[0]}}"],
                          capture_output=True, text=True, timeout=60)
    check("a reader that stops early ends the command as usual", head.stdout.split()[-1] in ("0", "141"), head)


def test_train_log(folder):
    one_line_and_2("train --log /dev/full", run(
        "train", "--steps", "2", "--width", "16", "--heads", "2", "--hidden", "16", "--length", "8", "--log", "/dev/full"))


def test_targets(folder):
    """What is written takes the place of a file, and of nothing else."""
    a, b = codes(folder / "a.npy", 8, 32), codes(folder / "b.npy", 4, 32)
    product = ["gemm", a, b, "--dtype", "e4m3fn", "-o"]
    out = folder / "d.npy"
    run(*product, out)
    golden = out.read_bytes()
    entries = lambda: sorted(path.name for path in folder.iterdir())
    before = entries()

    out.write_bytes(b"old")
    out.chmod(0o640)
    check("over a file", run(*product, out).returncode == 0 and out.read_bytes() == golden)
    check("its mode stays", stat.S_IMODE(out.stat().st_mode) == 0o640, oct(out.stat().st_mode))
    check("a new file has the umask's mode",
          run(*product, folder / "new.npy", umask=0o027).returncode == 0
          and stat.S_IMODE((folder / "new.npy").stat().st_mode) == 0o640)
    (folder / "new.npy").unlink(missing_ok=True)

    link = folder / "link.npy"
    out.write_bytes(b"old")
    link.symlink_to("d.npy")
    check("through a link", run(*product, link).returncode == 0)
    check("the link stays and its target is new", link.is_symlink() and out.read_bytes() == golden)
    link.unlink()
    link.symlink_to("made.npy")
    check("through a link to nothing", run(*product, link).returncode == 0)
    check("makes its target", link.is_symlink() and (folder / "made.npy").read_bytes() == golden)
    link.unlink()
    (folder / "made.npy").unlink(missing_ok=True)

    victim = folder / "victim"
    victim.write_bytes(b"not yours")
    planted = folder / "d.npy.partial"
    planted.symlink_to(victim)
    check("beside a planted link", run(*product, out).returncode == 0 and out.read_bytes() == golden)
    check("which is not followed", victim.read_bytes() == b"not yours" and planted.is_symlink())
    victim.unlink()
    planted.unlink()

    original = a.read_bytes()
    quantized = ["quantize", a, "--recipe", "te-current", "--dtype", "u8", "-o"]
    run(*quantized, folder / "q.safetensors")
    expected = (folder / "q.safetensors").read_bytes()
    check("over its own input", run(*quantized, a).returncode == 0 and a.read_bytes() == expected, a.read_bytes()[:80])
    a.write_bytes(original)
    check("gemm over its own input", run(*product, a).returncode == 0 and a.read_bytes() == golden)
    a.write_bytes(original)
    (folder / "q.safetensors").unlink(missing_ok=True)

    check("nothing is left", entries() == before, entries())
    check("--output= is refused", run(*product[:-1], "--output=").returncode == 2)
    for empty in (["-o", ""], ["--output", ""], ["--recipe", ""], ["--scale-a", ""], ["--dtype-b", ""]):
        one_line_and_2(f"gemm {empty}", run("gemm", a, b, "--dtype", "e4m3fn", *empty))
    for command in (["run", "dynamic-range", "--quick", "--out", ""], ["report", ""], ["report", folder, "-o", ""],
                    ["gemm", "", b], ["train", "--steps", "1", "--checkpoint", ""], ["quantize", a, "--recipe", ""],
                    ["vectors", "--model", "fp32", "-n", "1", "-o", ""], ["replay", ""]):
        one_line_and_2(f"{command}", run(*command))
    check("nothing was made", entries() == before, entries())


def test_special_targets(folder):
    run("run", "dynamic-range", "--quick", "--no-plots", "--out", folder / "out")
    report = ["report", folder / "out", "-o"]
    run(*report, folder / "report.html")
    html = (folder / "report.html").read_bytes()

    fifo = folder / "fifo"
    os.mkfifo(fifo)
    got = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    written = run(*report, fifo)
    reader.join(timeout=30)
    check("a pipe is written into", written.returncode == 0 and got == [html], written)
    check("and stays a pipe", stat.S_ISFIFO(fifo.lstat().st_mode))

    # Nodes of the test's own: a tool that replaced them must not take the system's.
    null, full, stdout = folder / "null", folder / "full", folder / "stdout"
    stdout.symlink_to("/proc/self/fd/1")
    if os.geteuid() == 0:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    else:
        null.symlink_to("/dev/null")
        full.symlink_to("/dev/full")
    check("a device is written into", run(*report, null).returncode == 0)
    check("and is a device still", stat.S_ISCHR(os.stat(null).st_mode), os.stat(null))
    one_line_and_2("report -o DEVICE that is full", run(*report, full))
    check("which is a device still", stat.S_ISCHR(os.stat(full).st_mode), os.stat(full))

    piped = run(*report, stdout, text=False)
    check("stdout as a pipe", piped.returncode == 0 and piped.stdout.startswith(html), piped.stdout[:80])
    with open(folder / "all.html", "wb") as whole:
        whole.write(b"before\n")
        whole.flush()
        redirected = run(*report, stdout, stdout=whole)
    text = (folder / "all.html").read_bytes()
    check("stdout as a file", redirected.returncode == 0 and text.startswith(b"before\n" + html), text[:80])
    check("with what is printed after it", b"/stdout: 1 run" in text[len(html):], text[-200:])
    one_line_and_2("a folder as output", run(*report, folder / "out"))


def test_limits(folder):
    """A full disk, as a limit on file sizes shows it: the old file stays, nothing is left, no signal."""
    a, b = codes(folder / "a.npy", 64, 32), codes(folder / "b.npy", 64, 32)
    for ending in (".npy", ".npz", ".safetensors"):
        out = folder / f"d{ending}"
        out.write_bytes(b"old")
        before = sorted(path.name for path in folder.iterdir())
        limited = subprocess.run(["bash", "-c", f"ulimit -f 2; exec '{TOOL}' gemm '{a}' '{b}' --dtype e4m3fn -o '{out}'"],
                                 capture_output=True, text=True, timeout=60)
        one_line_and_2(f"{ending} beyond the limit", limited)
        check(f"{ending}: the old file stays", out.read_bytes() == b"old")
        check("nothing is left", sorted(path.name for path in folder.iterdir()) == before)


def test_writers_together(folder):
    """Two writers of one output: one of their files, whole."""
    a, b = codes(folder / "a.npy", 256, 64), codes(folder / "b.npy", 256, 64)
    wanted = []
    for promotion in ("0", "32"):
        run("gemm", a, b, "--dtype", "e4m3fn", "--promotion", promotion, "-o", folder / "one.npy")
        wanted.append((folder / "one.npy").read_bytes())
    out = folder / "d.npy"
    for _ in range(8):
        both = [subprocess.Popen([TOOL, "gemm", a, b, "--dtype", "e4m3fn", "--promotion", p, "--threads", "1", "-o", out],
                                 stdout=subprocess.DEVNULL) for p in ("0", "32")]
        check("both say that they wrote", [child.wait(timeout=60) for child in both] == [0, 0])
        check("it is one of theirs", out.read_bytes() in wanted)
    check("nothing is left", sorted(path.name for path in folder.iterdir()) == ["a.npy", "b.npy", "d.npy", "one.npy"])


def test_signals(folder):
    """Ended at any moment, a writer leaves the old file or the new one and nothing beside it."""
    out = folder / "v.txt"
    command = [TOOL, "vectors", "--model", "sm90.wgmma.e4m3", "-n", "20000", "-o", str(out)]
    start = time.monotonic()
    subprocess.run(command, check=True, timeout=60)
    whole = time.monotonic() - start
    golden = out.read_bytes()
    ended, partial = 0, 0
    for i in range(24):
        out.write_bytes(b"old")
        # A library that aborts, as some of OpenMP do without memory, is no signal to the caller but an error.
        sent, end = ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP),
                     (signal.SIGABRT, 2))[i % 4]  # fmt: skip
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        if i < 12:  # while the file is there: deterministic
            limit = time.monotonic() + 30
            while child.poll() is None and len(os.listdir(folder)) == 1 and time.monotonic() < limit:
                pass
        else:
            time.sleep(whole * (i - 11) / 12)
        partial += len(os.listdir(folder)) > 1
        child.send_signal(sent)
        said = child.communicate(timeout=60)[1]
        code = child.returncode
        ended += code == end
        check(f"ended by {sent.name} or done", code in (end, 0), (code, said))
        if code == 2:
            check("says that there is no result", said == "fp8lab: a library ended the process before there was a result\n", said)
        check("old or new", out.read_bytes() in (b"old", golden))
        check("nothing is left", os.listdir(folder) == ["v.txt"], os.listdir(folder))
    check("some were ended in the middle of the file", ended > 0 and partial > 0, (ended, partial))
    ignored = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    time.sleep(whole / 4)
    ignored.send_signal(signal.SIGHUP)
    check("a signal that is ignored stays so", ignored.wait(timeout=60) == 0)

    out.unlink()
    results = [TOOL, "run", "dynamic-range", "--quick", "--out", str(folder)]
    start = time.monotonic()
    subprocess.run(results, check=True, stdout=subprocess.DEVNULL, timeout=60)
    whole = time.monotonic() - start
    staged = 0
    for i in range(4):
        child = subprocess.Popen(results, stdout=subprocess.DEVNULL, start_new_session=True)
        time.sleep(whole * (i + 1) / 5)
        staged += len(os.listdir(folder)) > 1
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(timeout=60)
        check("no folder is left", os.listdir(folder) == ["dynamic-range"], os.listdir(folder))
    print(f"signals: {ended} of 24 writers ended, {partial} with a partial file; {staged} runs with a partial folder")


def test_damaged_results(folder):
    run("run", "dynamic-range", "--quick", "--no-plots", "--out", folder)
    description = json.loads((folder / "dynamic-range" / "result.json").read_text())
    table = folder / "dynamic-range" / description["tables"][0]["file"]
    good = table.read_bytes()
    at = len(good) - 3
    table.write_bytes(good[:at] + (b"1" if good[at:at + 1] != b"1" else b"2") + good[at + 1:])
    damaged = run("report", folder, "-o", folder / "r.html")
    one_line_and_2("a table with another digit", damaged)
    check("names the file and the reason", table.name in damaged.stderr and "crc32" in damaged.stderr, damaged.stderr)
    table.write_bytes(good)
    record = folder / "dynamic-range" / "result.json"
    good = record.read_bytes()
    record.write_bytes(good.replace(b'"seed": 1,', b'"seed": 3,'))
    damaged = run("report", folder, "-o", folder / "r.html")
    one_line_and_2("a record with another digit", damaged)
    check("names the file and the reason", "result.json: crc32" in damaged.stderr, damaged.stderr)
    record.write_bytes(good)
    check("and is read when it is right", run("report", folder, "-o", folder / "r.html").returncode == 0)


def main():
    for test in (test_stdout, test_train_log, test_targets, test_special_targets, test_limits, test_writers_together,
                 test_signals, test_damaged_results):
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))
    finish("lost output")


main()
