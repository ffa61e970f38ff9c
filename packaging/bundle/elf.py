"""Reads from the dynamic section of an ELF file (64 bits, little endian) what it needs, its name, and what it defines."""

import dataclasses
import pathlib
import struct

_KINDS = {"dynsym": 11, "dynamic": 6, "verneed": 0x6FFFFFFE, "versym": 0x6FFFFFFF}
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1 = 24, 30, 0x6FFFFFFB
_DF_BIND_NOW, _DF_1_NOW, _ET_DYN = 8, 1, 3
_PT_GNU_STACK, _PT_GNU_RELRO = 0x6474E551, 0x6474E552
_UNIQUE, _WEAK = 10, 2
_SYMBOL = struct.Struct("<IBBHQQ")


class NotElf(ValueError):
    """The file is not a 64-bit ELF file with sections."""


@dataclasses.dataclass
class Symbol:
    name: str
    binding: int
    defined: bool
    version: str  # for needed symbols "GLIBC_2.34"; "" for its own


class Elf:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = self.path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise NotElf(f"{path} is no 64-bit ELF file")
        self.sections = self._read_sections()
        self._dynamic = self._read_dynamic()

    def _read_sections(self):
        (start,) = struct.unpack_from("<Q", self.data, 0x28)
        size, count = struct.unpack_from("<HH", self.data, 0x3A)
        keys = (
            "name",
            "type",
            "flags",
            "address",
            "offset",
            "size",
            "link",
            "info",
            "align",
            "entry",
        )
        return [
            dict(zip(keys, struct.unpack_from("<IIQQQQIIQQ", self.data, start + i * size)))
            for i in range(count)
        ]

    def section_of_kind(self, kind):
        return next((s for s in self.sections if s["type"] == _KINDS[kind]), None)

    def _text(self, section, offset):
        start = self.sections[section["link"]]["offset"] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def _read_dynamic(self):
        section = self.section_of_kind("dynamic")
        if section is None:
            return []
        found = []
        for at in range(section["offset"], section["offset"] + section["size"], 16):
            tag, value = struct.unpack_from("<QQ", self.data, at)
            if tag == 0:
                break
            found.append((tag, value))
        return found

    def _read_segments(self):
        """Returns (type, flags) of each program header."""
        (start,) = struct.unpack_from("<Q", self.data, 0x20)
        size, count = struct.unpack_from("<HH", self.data, 0x36)
        return [struct.unpack_from("<II", self.data, start + i * size) for i in range(count)]

    @property
    def has_relro(self):
        return any(kind == _PT_GNU_RELRO for kind, _ in self._read_segments())

    @property
    def has_executable_stack(self):
        """Also True if the file does not state it: then the loader makes the stack executable."""
        flags = [flags for kind, flags in self._read_segments() if kind == _PT_GNU_STACK]
        return not flags or flags[0] & 1 != 0

    @property
    def binds_now(self):
        return any(
            tag == _DT_BIND_NOW
            or (tag == _DT_FLAGS and value & _DF_BIND_NOW)
            or (tag == _DT_FLAGS_1 and value & _DF_1_NOW)
            for tag, value in self._dynamic
        )

    @property
    def is_position_independent(self):
        return struct.unpack_from("<H", self.data, 0x10)[0] == _ET_DYN

    def _strings(self, tag):
        section = self.section_of_kind("dynamic")
        return [self._text(section, value) for t, value in self._dynamic if t == tag]

    @property
    def is_dynamic(self):
        return bool(self._dynamic)

    @property
    def needed(self):
        return self._strings(_DT_NEEDED)

    @property
    def soname(self):
        return (self._strings(_DT_SONAME) or [""])[0]

    @property
    def search_path(self):
        """Returns the unexpanded RPATH or RUNPATH."""
        return (self._strings(_DT_RPATH) or self._strings(_DT_RUNPATH) or [""])[0]

    @property
    def has_runpath(self):
        return bool(self._strings(_DT_RUNPATH))

    def _libraries_of_versions(self):
        """Yields (offset in the file, fields) of each library from which versioned symbols are needed."""
        section = self.section_of_kind("verneed")
        at = section["offset"] if section else 0
        for _ in range(section["info"] if section else 0):
            fields = struct.unpack_from("<HHIII", self.data, at)
            yield at, fields
            at += fields[4]

    def version_libraries(self):
        """Returns the offsets in the file of these libraries' names."""
        return [at + 4 for at, _ in self._libraries_of_versions()]

    def _entries_of_versions(self):
        """Yields (offset in the file, index, library, version) of each version that is needed."""
        section = self.section_of_kind("verneed")
        for at, (_, count, library, first, _) in self._libraries_of_versions():
            one = at + first
            for _ in range(count):
                _, _, index, name, skip = struct.unpack_from("<IHHII", self.data, one)
                yield one, index & 0x7FFF, self._text(section, library), self._text(section, name)
                one += skip

    def version_entries(self, version):
        """Returns the offsets of a needed version's entries: a hash of its name, 4 bytes, its name's offset."""
        return [at for at, _, _, name in self._entries_of_versions() if name == version]

    def _versions_needed(self):
        """Returns version index to (library, version)."""
        return {i: (library, version) for _, i, library, version in self._entries_of_versions()}

    def versions_needed(self):
        """Returns (library, version) pairs, as the loader checks them."""
        return set(self._versions_needed().values())

    def symbols(self):
        table, versym = self.section_of_kind("dynsym"), self.section_of_kind("versym")
        if table is None:
            return
        versions = self._versions_needed()
        for i in range(1, table["size"] // _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(
                self.data, table["offset"] + i * _SYMBOL.size
            )
            version = ""
            if versym and section == 0:
                (index,) = struct.unpack_from("<H", self.data, versym["offset"] + 2 * i)
                version = versions.get(index & 0x7FFF, ("", ""))[1]
            yield Symbol(self._text(table, name), info >> 4, section != 0, version)

    def unique_symbols(self):
        return [s.name for s in self.symbols() if s.binding == _UNIQUE]

    def weaken_unique_symbols(self):
        """Writes the file with STB_GNU_UNIQUE symbols changed to weak ones. Returns their number.

        The loader keeps one table of unique symbols for the whole process, which neither RTLD_LOCAL nor deep binding
        separates: our symbols could be resolved to another protobuf's, or theirs to ours.
        """
        table = self.section_of_kind("dynsym")
        data, changed = bytearray(self.data), 0
        for i in range(table["size"] // _SYMBOL.size if table else 0):
            at = table["offset"] + i * _SYMBOL.size + 4
            if data[at] >> 4 == _UNIQUE:
                data[at] = _WEAK << 4 | data[at] & 0xF
                changed += 1
        if changed:
            self.path.write_bytes(data)
            self.data = bytes(data)
        return changed


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_hash(name):
    """Returns the hash with which the loader compares names of versions first (System V ABI)."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def version_key(version):
    """Returns (2, 34) for "GLIBC_2.34", so that 2.4 comes before 2.34."""
    return tuple(int(part) for part in version.rpartition("_")[2].split(".") if part.isdigit())
