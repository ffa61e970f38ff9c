"""Changes the names of the libraries that an ELF file needs, its SONAME and its search path, in one pass.

The new strings need space: a copy of the string table with them at its end is appended to the file, and loaded by a
segment whose program header was that of a note (the build id, a property), which is not used at run time. Everything
else stays in place. patchelf 0.14 overwrites one new string with another if it gets several changes at once; one by one
it copies the symbol table each time, which makes files half as large again.
"""

import struct

from elf import Elf, elf_hash

_PT_LOAD, _PT_NOTE, _PT_GNU_PROPERTY = 1, 4, 0x6474E553
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = (
    0,
    1,
    5,
    10,
    14,
    15,
    29,
)
_PAGE = 4096
_PHDR = struct.Struct("<IIQQQQQQ")  # type, flags, offset, vaddr, paddr, filesz, memsz, align
_SHDR = 64
_WAIT = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
_NEWER_WAIT, _OLDER_WAIT = "GLIBCXX_3.4.30", "GLIBCXX_3.4.11"


class NoRoom(RuntimeError):
    """The file has no program header or dynamic entry to spare."""


class Strings:
    """The string table with additions at its end."""

    def __init__(self, old):
        self.data = bytearray(old)

    def add(self, text):
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


class _Editor:
    def __init__(self, path):
        self.elf = Elf(path)
        self.data = bytearray(self.elf.data)
        self.dynamic = self.elf.section_of_kind("dynamic")
        self.table = self.elf.sections[self.dynamic["link"]]
        start = self.table["offset"]
        self.strings = Strings(self.data[start : start + self.table["size"]])

    def entries(self):
        """Returns (offset in the file, tag, value) of the dynamic section, including the empty ones at its end."""
        start, end = self.dynamic["offset"], self.dynamic["offset"] + self.dynamic["size"]
        return [(at, *struct.unpack_from("<QQ", self.data, at)) for at in range(start, end, 16)]

    def text(self, offset):
        return self.strings.data[offset : self.strings.data.index(b"\0", offset)].decode()

    def set_entry(self, at, tag, value):
        struct.pack_into("<QQ", self.data, at, tag, value)

    def rename(self, names, soname):
        added = {old: self.strings.add(new) for old, new in names.items()}
        for at, tag, value in self.entries():
            if tag == _DT_NEEDED and self.text(value) in added:
                self.set_entry(at, tag, added[self.text(value)])
            if tag == _DT_SONAME and soname:
                self.set_entry(at, tag, self.strings.add(soname))
        for at in self.elf.version_libraries():  # the libraries of needed symbol versions
            (name,) = struct.unpack_from("<I", self.data, at)
            if self.text(name) in added:
                struct.pack_into("<I", self.data, at, added[self.text(name)])

    def request_older_wait(self):
        """Requests the older version of std::condition_variable::wait. libstdc++ has two: the newer one, of GCC 12,
        differs only for a thread that is ended by pthread_cancel, which nothing here calls. GCC 11 (RHEL 9) has the
        older one too."""
        if {s.name for s in self.elf.symbols() if s.version == _NEWER_WAIT} != {_WAIT}:
            return
        for at in self.elf.version_entries(_NEWER_WAIT):
            struct.pack_into("<I", self.data, at, elf_hash(_OLDER_WAIT))
            struct.pack_into("<I", self.data, at + 8, self.strings.add(_OLDER_WAIT))

    def set_search_path(self, search_path):
        """Sets it as RPATH, which the loader uses before LD_LIBRARY_PATH; it would use a RUNPATH after it."""
        entries = self.entries()
        old = [at for at, tag, _ in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
        last = next(i for i, (_, tag, _) in enumerate(entries) if tag == _DT_NULL)
        if not old and last + 1 >= len(entries):
            raise NoRoom(f"{self.elf.path} has no dynamic entry to spare")
        self.set_entry(
            old[0] if old else entries[last][0], _DT_RPATH, self.strings.add(search_path)
        )

    def place_strings(self):
        offset = len(self.data)
        self.data += self.strings.data
        address = self._add_segment(offset, len(self.strings.data))
        for at, tag, _ in self.entries():
            if tag == _DT_STRTAB:
                self.set_entry(at, tag, address)
            if tag == _DT_STRSZ:
                self.set_entry(at, tag, len(self.strings.data))
        (sections,) = struct.unpack_from("<Q", self.data, 0x28)
        header = sections + _SHDR * self.dynamic["link"]
        struct.pack_into("<QQQ", self.data, header + 16, address, offset, len(self.strings.data))

    def _add_segment(self, offset, size):
        """Adds a segment that loads these bytes read-only. Returns its address."""
        (start,) = struct.unpack_from("<Q", self.data, 0x20)
        (count,) = struct.unpack_from("<H", self.data, 0x38)
        headers = [_PHDR.unpack_from(self.data, start + i * _PHDR.size) for i in range(count)]
        spare = [h for kind in (_PT_GNU_PROPERTY, _PT_NOTE) for h in headers if h[0] == kind]
        if not spare:
            raise NoRoom(f"{self.elf.path} has no program header to spare")
        headers.remove(spare[0])
        end = max(h[3] + h[6] for h in headers if h[0] == _PT_LOAD)
        address = (end + _PAGE - 1) // _PAGE * _PAGE + offset % _PAGE
        headers.append(
            (_PT_LOAD, 4, offset, address, address, size, size, _PAGE)
        )  # last: sorted by address
        for i, header in enumerate(headers):
            _PHDR.pack_into(self.data, start + i * _PHDR.size, *header)
        return address


def relink(path, names, search_path, soname=""):
    """`names`: needed library to its new name."""
    editor = _Editor(path)
    needed = editor.elf.needed
    editor.rename({old: new for old, new in names.items() if old in needed and old != new}, soname)
    editor.request_older_wait()
    editor.set_search_path(search_path)
    editor.place_strings()
    path.write_bytes(editor.data)
