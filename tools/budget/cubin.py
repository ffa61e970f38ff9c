"""Reads a cubin: an ELF64 file whose sections .text.<name> hold one kernel each, followed by the functions that it
calls.

An instruction has 128 bits. The fields below were found by compiling small kernels whose loops and loads are known (in
opcodes.py):
  bits 0-11     the opcode; its low nine bits name the operation, the rest the kinds of operands
  bits 12-15    the predicate that guards it: 7 is true
  bits 34-81    of a branch: from the next instruction to its target, in units of four bytes; from
                sm_90 on that number has eight more bits below, 16-23
  bits 73-75    of a load or store: its width
  bits 110-112  the barrier that it sets when it is done, 7 none; 116-121 those it waits for
"""
import re
import struct

BRANCH, CALL, RETURN, EXIT = 0x147, 0x144, 0x150, 0x14d
OWN_MEMORY = (0x183, 0x187)  # loads and stores of a thread's local memory
WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
TRUE = 7
MAX_THREADS, REGISTERS = 0x05, 0x2f  # record kinds of .nv.info


class Instruction:
    __slots__ = ("at", "low", "high", "newer")

    def __init__(self, at, low, high, newer):
        self.at, self.low, self.high, self.newer = at, low, high, newer

    @property
    def operation(self):
        return self.low & 0x1ff

    @property
    def guarded(self):
        return (self.low >> 12 & 15) != TRUE

    @property
    def width(self):
        return WIDTH.get(self.high >> 9 & 7, 4)

    @property
    def sets(self):
        return self.high >> 46 & 7

    @property
    def waits(self):
        return self.high >> 52 & 63

    @property
    def always(self):
        """For a branch: True if no predicate guards it, neither the usual one nor its own operand."""
        return not self.guarded and (self.low & 0xfff) == 0x947 and \
            self.high >> 23 & 7 == TRUE and not self.when_apart

    @property
    def when_apart(self):
        """For a branch: True if it is taken only where the lanes of a warp have diverged."""
        return (self.low & 0xfff) == 0x947 and bool(self.high >> 27 & 1)

    @property
    def target(self):
        field = (self.high & 0x3ffff) << 30 | self.low >> 34
        field -= (field >> 47) << 48
        if self.newer:
            field = field << 8 | (self.low >> 16 & 0xff)
        return self.at + 16 + 4 * field


class Kernel:
    """`functions`: [(first byte, name)], the kernel's own first."""

    def __init__(self, name, architecture, instructions, functions, registers, threads, shared):
        self.name, self.architecture, self.instructions = name, architecture, instructions
        self.functions, self.registers, self.threads, self.shared = \
            functions, registers, threads, shared

    def function_at(self, at):
        return [name for first, name in self.functions if first <= at][-1]

    @property
    def spills(self):
        """Number of loads and stores of a thread's local memory."""
        return sum(i.operation in OWN_MEMORY for i in self.instructions)


def _sections(data):
    at, = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3c)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * i) for i in range(count)]
    return [(_string(data, rows[names][4] + row[0]), row) for row in rows]


def _string(data, at):
    return data[at:data.index(b"\0", at)].decode()


def _attributes(data, row):
    """Yields (kind, bytes) of an .nv.info section, for records with more than a value in their own word."""
    at, end = row[4], row[4] + row[5]
    while at < end:
        form, kind, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield kind, data[at:at + size]
            at += size


def _symbols(data, sections):
    table = next(row for name, row in sections if name == ".symtab")
    strings = sections[table[6]][1]
    for at in range(table[4], table[4] + table[5], 24):
        name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", data, at)
        yield _string(data, strings[4] + name), info & 15, section, value, size


def read(path):
    """Returns the [Kernel] of the file, in its order."""
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path}: expected a cubin (ELF64)")
    architecture = struct.unpack_from("<I", data, 0x30)[0] >> 8 & 0xff
    sections = _sections(data)
    symbols = list(_symbols(data, sections))
    registers = {}
    for name, row in sections:
        if name == ".nv.info":
            for kind, value in _attributes(data, row):
                if kind == REGISTERS:
                    symbol, count = struct.unpack("<II", value)
                    registers[symbols[symbol][0]] = count
    by_name = dict(sections)
    kernels = []
    for index, (section, row) in enumerate(sections):
        if not section.startswith(".text."):
            continue
        name = section[len(".text."):]
        threads = 1024
        for kind, value in _attributes(data, by_name[".nv.info." + name]):
            if kind == MAX_THREADS:
                x, y, z = struct.unpack("<III", value)
                threads = x * y * z
        functions = sorted({(v, n) for n, kind, where, v, _ in symbols
                            if where == index and kind == 2})
        words = struct.iter_unpack("<QQ", data[row[4]:row[4] + row[5]])
        instructions = [Instruction(16 * i, low, high, architecture >= 90)
                        for i, (low, high) in enumerate(words)]
        shared = by_name.get(".nv.shared." + name)
        kernels.append(Kernel(name, architecture, instructions, functions, registers.get(name, 0),
                              threads, shared[5] if shared else 0))
    return kernels


def shown(mangled):
    """Returns a mangled name without its scopes: enough for display."""
    return re.sub(r"^_Z\w*?\d+([A-Za-z]\w*)$", r"\1", mangled)
