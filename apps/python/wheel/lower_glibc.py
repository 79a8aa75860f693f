"""usage: lower_glibc.py VERSION FILE...

Changes shared libraries that were linked here so that they need the C library's VERSION at most. The C library keeps
what programs of its older versions call: every function is looked up by its newest version up to VERSION. A function
that has none is an error. A function whose old version the file names nowhere is looked up without one, which
finds the one that the C library has for new programs.
"""

import re
import struct
import subprocess
import sys
from pathlib import Path

from elftools.elf.elffile import ELFFile

LIBRARIES = ("libc.so.6", "libm.so.6")
AUX = struct.Struct("<IHHII")  # hash, flags, index, name, next: Elf64_Vernaux
NEED = struct.Struct("<HHIII")  # version, count, file, aux, next: Elf64_Verneed
ANY = 1  # the index of a symbol without version


def number(version):
    """(2, 28) of "GLIBC_2.28"; None of another library's version."""
    found = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else None


def old_versions(limit):
    """Of each function of the C library here its newest version up to `limit`."""
    newest = {}
    for library in LIBRARIES:
        path = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
        with open(path.stdout.strip(), "rb") as file:
            elf = ELFFile(file)
            names = {
                definition["vd_ndx"]: next(iter(auxes)).name
                for definition, auxes in elf.get_section_by_name(".gnu.version_d").iter_versions()
            }
            indices = elf.get_section_by_name(".gnu.version")
            for i, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
                index = indices.get_symbol(i)["ndx"]
                if not isinstance(index, int) or symbol["st_shndx"] == "SHN_UNDEF":
                    continue
                version = names[index & 0x7FFF]
                value = number(version)
                if value and value <= limit and value > number(newest.get(symbol.name, "GLIBC_0")):
                    newest[symbol.name] = version
    return newest


class Lowered:
    """A file whose versions are changed in place."""

    def __init__(self, path, limit):
        self.path, self.limit = path, limit
        self.bytes = bytearray(path.read_bytes())
        with open(path, "rb") as file:
            elf = ELFFile(file)
            needs = elf.get_section_by_name(".gnu.version_r")
            #: By index: the name of the version, the library that has it.
            self.versions = {
                aux["vna_other"]: (aux.name, need.name) for need, auxes in needs.iter_versions() for aux in auxes
            }
            self.indices_at = elf.get_section_by_name(".gnu.version")["sh_offset"]
            self.needs_at = needs["sh_offset"]
            self.undefined = [
                (i, symbol.name)
                for i, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
                if symbol["st_shndx"] == "SHN_UNDEF"
            ]

    def too_new(self, index):
        version = number(self.versions.get(index, ("", ""))[0])
        return version is not None and version > self.limit

    def look_up_by(self, old):
        """Gives each function that is looked up by too new a version its old one. Returns those that have none."""
        missing = []
        for i, name in self.undefined:
            at = self.indices_at + 2 * i
            (index,) = struct.unpack_from("<H", self.bytes, at)
            if not self.too_new(index):
                continue
            if name not in old:
                missing.append(f"{name} ({self.versions[index][0]})")
                continue
            same = (old[name], self.versions[index][1])
            struct.pack_into("<H", self.bytes, at, next((k for k, v in self.versions.items() if v == same), ANY))
        return missing

    def forget_versions(self):
        """Takes the versions that are too new from the list of those that the file needs."""
        at = self.needs_at
        while True:
            version, count, file, first, following = NEED.unpack_from(self.bytes, at)
            entries = []
            aux = at + first
            for _ in range(count):
                entry = AUX.unpack_from(self.bytes, aux)
                if not self.too_new(entry[2]):
                    entries.append((aux, entry))
                aux += entry[4]
            if not entries:
                raise SystemExit(f"{self.path}: expected a library of which old versions are needed too")
            for (here, entry), after in zip(entries, [*entries[1:], None]):
                AUX.pack_into(self.bytes, here, *entry[:4], after[0] - here if after else 0)
            NEED.pack_into(self.bytes, at, version, len(entries), file, entries[0][0] - at, following)
            if following == 0:
                return
            at += following


def main():
    limit = tuple(map(int, sys.argv[1].split(".")))
    old = old_versions(limit)
    for path in map(Path, sys.argv[2:]):
        lowered = Lowered(path, limit)
        if missing := lowered.look_up_by(old):
            raise SystemExit(
                f"{path}: the C library {sys.argv[1]} has not {', '.join(missing)}: expected them in wheel/glibc.cpp"
            )
        lowered.forget_versions()
        path.write_bytes(lowered.bytes)


if __name__ == "__main__":
    main()
