"""The tests of kernels on an emulated processor with AVX-512, for machines that have none.

Usage: avx512.py PATH_OF_FP8LAB_TESTS [CATCH2_FILTER ...]

Boots a kernel under Bochs (a Skylake-X), runs the tests as its only process, once a filter, and prints
what they print. Takes a minute to boot and some hundred times a test's own time. Exits 1 where a test
fails, 77 where a program is missing. Debian has all of them: bochs bochs-term bochsbios vgabios
linux-image-cloud-amd64 busybox-static grub-pc-bin grub-common xorriso mtools cpio.

Bochs 2.7 rounds VCVTPS2PH's ties up instead of to even: tests of FP16 output fail there under AVX2 as
under AVX-512, and are not among the default filters.
"""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tty
from pathlib import Path

FILTERS = ["[target]", "[cast]~[slow]", "shapes across*", "exact sums*", "small products*", "quantize: *",
           "few rows: *", "formats of A and B*", "c of any size*", "few columns: every model*", "sequential sums*",
           "fused sums*", "halves on*", "promotion and*", "scaled dots: *"]
PASSED_ON = ["FP8LAB_SWEEP_SHARE", "FP8LAB_SEED"]  # variables of the tests: long lists take a share of themselves
PROGRAMS = ["bochs", "busybox", "grub-mkrescue", "cpio", "ldd"]
BIOS = Path("/usr/share/bochs/BIOS-bochs-latest")
VGA_BIOS = Path("/usr/share/vgabios/vgabios.bin")

# Bochs 2.7 reports a size of the compacted XSAVE area that kernels refuse, and with it all of AVX.
KERNEL_OPTIONS = "console=ttyS0 quiet noxsaves clearcpuid=xsavec,xsaves mitigations=off"

INIT = """#!/bin/busybox sh
export PATH=/bin OMP_NUM_THREADS=1 {variables}
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
busybox grep -q avx512 /proc/cpuinfo || echo status: no AVX-512
"""

CONFIGURATION = """
megs: 2048
cpu: model=corei7_skylake_x, count=1, ips=200000000, reset_on_triple_fault=0, ignore_bad_msrs=1
romimage: file={bios}
vgaromimage: file={vga_bios}
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/serial.log
display_library: term
sound: waveoutdrv=dummy
clock: sync=none
log: {folder}/bochs.log
panic: action=fatal
"""


def kernel():
    found = sorted(Path("/boot").glob("vmlinuz-*-cloud-amd64"))
    return found[-1] if found else None


def missing():
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    absent += [str(file) for file in (BIOS, VGA_BIOS) if not file.exists()]
    return absent if kernel() else [*absent, "/boot/vmlinuz-*-cloud-amd64"]


def make_root(root, tests, filters):
    """The file system: the tests, their libraries, and what runs them."""
    for name in ("bin", "proc", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    shutil.copy(tests, root / "bin/tests")
    for library in re.findall(r"(/\S+)", subprocess.check_output(["ldd", tests], text=True)):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    runs = "".join(f"tests {shlex.quote(one)} -d yes; echo status: $?\n" for one in filters)
    init = root / "init"
    variables = " ".join(f"{name}={shlex.quote(os.environ[name])}" for name in PASSED_ON if name in os.environ)
    init.write_text(f"{INIT.format(variables=variables)}{runs}echo status: end\nbusybox sleep 1000000\n")
    init.chmod(0o755)


def make_image(folder, tests, filters):
    make_root(folder / "root", tests, filters)
    boot = folder / "iso/boot"
    (boot / "grub").mkdir(parents=True)
    shutil.copy(kernel(), boot / "vmlinuz")
    (boot / "grub/grub.cfg").write_text(
        f"set timeout=0\nmenuentry tests {{\n linux /boot/vmlinuz {KERNEL_OPTIONS}\n initrd /boot/initrd\n}}\n")
    with open(boot / "initrd", "wb") as file:
        subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=folder / "root", stdout=file, check=True)
    subprocess.run(["grub-mkrescue", "-o", folder / "boot.iso", folder / "iso"], check=True, capture_output=True)


def emulate(folder):
    """Runs Bochs until the tests end, printing what they print. Returns all of that.

    The only display that Debian's Bochs has without X wants a terminal, and makes another for the guest's
    screen: unread, it fills and stops everything.
    """
    (folder / "bochsrc").write_text(CONFIGURATION.format(bios=BIOS, vga_bios=VGA_BIOS, folder=folder))
    (folder / "debugger").write_text("c\n")
    (folder / "serial.log").touch()
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execvp("bochs", ["bochs", "-q", "-f", str(folder / "bochsrc"), "-rc", str(folder / "debugger")])
    said, seen, terminals = b"", "", [terminal]
    with open(folder / "serial.log", errors="replace") as serial:
        while not any(end in seen for end in ("status: end", "Kernel panic")):
            seen += (new := serial.read())
            print(new, end="", flush=True)
            for ready in select.select(terminals, [], [], 1)[0]:
                said += os.read(ready, 1 << 16)
            screen = re.search(rb'connected to screen "(/dev/pts/\d+)"', said)
            if screen and len(terminals) == 1:
                terminals.append(os.open(screen[1], os.O_RDWR | os.O_NOCTTY))
                tty.setraw(terminals[1])
            said = said[-1000:] if len(terminals) == 1 else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return seen


def main():
    tests, filters = sys.argv[1], sys.argv[2:] or FILTERS
    absent = missing()
    if absent:
        print("skipped: missing", ", ".join(absent))
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_image(folder, tests, filters)
        seen = emulate(folder)
    passed = seen.count("status: 0\n")
    return 0 if passed == len(filters) and "status: end" in seen and "no AVX-512" not in seen else 1


if __name__ == "__main__":
    sys.exit(main())
