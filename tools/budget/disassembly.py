"""Compares what cubin.py reads with the text of NVIDIA's disassembler, instruction by instruction. The count depends on
an instruction's operation, its guard, and the target of a branch.
"""
import re
import subprocess

import cubin
import opcodes

SECTION = re.compile(r"\.text\.(\S+):$")
LABEL = re.compile(r"(\.L_x_\d+):$")
CODE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*([A-Z][\w.]*)(.*?);")
GOES_TO = re.compile(r"`\((\.L_x_\d+)\)")


class Line:
    """One instruction. `target`: for a branch to a label, its address."""

    def __init__(self, guard, name, label):
        self.guarded, self.name, self.label, self.target = bool(guard), name, label, None


def read(nvdisasm, path):
    """Returns {section: {address: Line}} of a cubin."""
    text = subprocess.run([nvdisasm, "-c", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    found, labels, waiting, lines = {}, {}, [], None
    for row in text.splitlines():
        if SECTION.match(row):
            lines, labels, waiting = found.setdefault(SECTION.match(row).group(1), {}), {}, []
        elif LABEL.match(row):
            waiting.append(LABEL.match(row).group(1))
        elif lines is not None and CODE.match(row):
            at, guard, name, rest = CODE.match(row).groups()
            labels.update((label, int(at, 16)) for label in waiting)
            waiting = []
            label = GOES_TO.search(rest)
            lines[int(at, 16)] = Line(guard, name, label and label.group(1))
        if lines is not None and not row.strip():
            _resolve(lines, labels)
    for lines in found.values():
        _resolve(lines, labels)
    return found


def _resolve(lines, labels):
    for line in lines.values():
        if line.target is None and line.label in labels:
            line.target = labels[line.label]


ALIASES = {"CGAERRBAR": "ERRBAR"}  # the same opcode with another operand


def _word(name):
    word = name.partition(".")[0]
    return ALIASES.get(word, word)


def differences(kernel, lines):
    """Returns [text]: instructions of a kernel that have another name or another guard in its disassembly, and branches
    that have another target there."""
    out = []
    for i in kernel.instructions:
        ours = opcodes.OPERATIONS.get(i.operation, (hex(i.operation),))[0]
        line = lines.get(i.at)
        if line is None or _word(line.name) != _word(ours):
            out.append(f"{i.at:#x}: {ours}, nvdisasm has {line and line.name}")
        elif line.guarded != i.guarded:
            out.append(f"{i.at:#x}: {ours} has a guard: {i.guarded}, nvdisasm has {line.guarded}")
        elif i.operation == cubin.BRANCH and line.target is not None and line.target != i.target:
            out.append(f"{i.at:#x}: a branch to {i.target:#x}, nvdisasm has {line.target:#x}")
    return out
