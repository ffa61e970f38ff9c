"""Reads the command lines from README.md, CONTRIBUTING.md and the pages under docs/.

A block without a language, or of a shell, contains only commands: output and figures are marked `text`. An indented
block whose first word is a program is one too, and so are a workflow's `run:` lines. Inline code counts if it begins
with a program.
"""

import dataclasses
import pathlib
import re
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md",
         *sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "docs").glob("*.md")),
         *sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "docs" / "rules").rglob("*.md"))]

SHELLS = {"", "sh", "bash", "shell", "console"}
PREFIX = r"(?:\$ )?(?:sudo )?(?:[A-Z_]+=\S+ )*(?:source <\()?"
OURS = (r"plumbd?|plumbd-new|python3? -m plumbline|tools/[\w-]+|examples/[\w/]+\.py|bench/[\w/]+\.py|build/\S+/bin/\S+|"
        r"plumbline-\S+/bin/\S+")
OTHERS = (r"pip|pipx|uv|apt|apt-get|dpkg|dpkg-deb|systemctl|journalctl|curl|wget|cmake|ctest|node|npm|tar|cc|gcc|g\+\+|pkg-config|podman|docker|"
          r"kubectl|srun|sbatch|torchrun|openssl|promtool|amtool|patchelf")
EVERYWHERE = r"python3?|rsync|scp|ssh|sqlite3|git|mkdir|mv|cp|rm|install|chmod|chown|chgrp|export|for|umask"  # in blocks, not in the text
END = r"(?![\w.:/-])"
INLINE = re.compile(f"{PREFIX}(?:{OURS}|{OTHERS}){END}")
PROGRAM = re.compile(f"{PREFIX}(?:{OURS}|{OTHERS}|{EVERYWHERE}){END}")
NAME = re.compile(r"(?:plumbd|plumb(?: [a-z]+)?|(?:tools|examples|bench)/[\w/.-]+|[a-z0-9+-]+)$")  # a program, no arguments


@dataclasses.dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str
    inline: bool

    @property
    def is_name(self):
        """True if the text names a program, or a subcommand of plumb, without arguments."""
        return self.inline and NAME.match(self.text) is not None


def text_of(page):
    return (REPOSITORY / page).read_text()


def blocks(page):
    """Returns (line of the first row, language, rows) of each fenced and each indented block of a page."""
    rows, found, at = text_of(page).splitlines(), [], 0
    while at < len(rows):
        fence = re.match(r"( *)```(\w*)$", rows[at])
        if fence:
            end = next(i for i in range(at + 1, len(rows)) if rows[i].strip() == "```")
            found.append((at + 2, fence[2], [row[len(fence[1]):] for row in rows[at + 1:end]]))
            at = end + 1
        elif rows[at].startswith("    ") and (at == 0 or not rows[at - 1].strip()):
            end = next((i for i in range(at, len(rows)) if rows[i].strip() and not rows[i].startswith("    ")), len(rows))
            found.append((at + 1, "indented", [row[4:] for row in rows[at:end]]))
            at = end
        else:
            at += 1
    return found


def whole(rows, first):
    """Yields (line, command) of shell rows: comments are removed, and rows that belong together (a loop, a backslash)
    are one command."""
    kept, begin = "", first
    for number, row in enumerate(rows, first):
        row = re.sub(r"(^|\s+)#.*", "", row)
        if not kept:
            begin = number
        kept = f"{kept}\n{row}" if kept else row
        if not kept.strip():
            kept = ""
        elif not kept.endswith("\\") and subprocess.run(["bash", "-n", "-c", kept], capture_output=True, check=False).returncode == 0:
            yield begin, kept.strip()
            kept = ""
    if kept:
        raise AssertionError(f"line {begin}: the shell cannot read {kept!r}")


def in_blocks(page):
    for first, language, rows in blocks(page):
        generated = page.startswith("docs/rules/")  # from the rules' sources, which mark no languages
        if PROGRAM.match(rows[0]) if generated or language == "indented" else language in SHELLS:
            for line, text in whole(rows, first):
                yield Command(page, line, text.removeprefix("$ "), inline=False)
        elif language in ("yaml", "yml"):
            for line, row in enumerate(rows, first):
                if step := re.match(r"\s*-? *run: (\S.*)$", row):
                    yield Command(page, line, step[1], inline=False)


def unmarked(page):
    """Returns lines of indented blocks that are neither commands nor a configuration: they need a fence with a language."""
    if page.startswith("docs/rules/"):
        return []
    return [(first, rows[0]) for first, language, rows in blocks(page)
            if language == "indented" and not PROGRAM.match(rows[0]) and not rows[0].startswith("[")]


def inline(page):
    """Yields commands in the running text; code may be broken at the end of a row."""
    rows = text_of(page).splitlines()
    for first, language, block in blocks(page):  # blanked, so that line numbers stay the same
        begin, end = (first - 1, first - 1 + len(block)) if language == "indented" else (first - 2, first + len(block))
        rows[begin:end] = [""] * (end - begin)
    text = "\n".join(rows)
    for code in re.finditer(r"`([^`\n]+(?:\n[^`\n]+)?)`", text):
        stated = " ".join(code[1].split()).replace(r"\|", "|")
        if INLINE.match(stated):
            yield Command(page, text.count("\n", 0, code.start()) + 1, stated, inline=True)


def commands(page):
    """Returns the commands of a page in order, each text once."""
    seen = {}
    for command in sorted([*in_blocks(page), *inline(page)], key=lambda c: (c.line, c.inline)):
        seen.setdefault(command.text, command)
    return list(seen.values())
