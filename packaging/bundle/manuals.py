"""Generates manual pages from --help, and completions from `plumb completion`."""

import gzip
import os
import pathlib
import re

from command import run

PACKAGING = pathlib.Path(__file__).resolve().parents[1]
COMPLETIONS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/site-functions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}


def subcommands(plumb):
    """Returns name to description, from `plumb --help`."""
    _, _, listed = run(plumb, "--help").partition("Subcommands:\n")
    return dict(re.findall(r"^  ([a-z][\w-]*) +(\S.*)$", listed, re.M))


def write_page(prefix, words, does, version, epoch):
    """words: ("plumb", "audit") gives plumb-audit.1."""
    name = "-".join(words)
    # help2man passes this to a shell, which finds the program through PATH, so that its path is not in the page.
    environment = {
        **os.environ,
        "PATH": f"{prefix}/bin:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "SOURCE_DATE_EPOCH": str(epoch),
        "LC_ALL": "C.UTF-8",
    }
    page = run(
        "help2man",
        "--no-info",
        "--name",
        does,
        "--version-string",
        f"{name} {version}",
        "--source",
        f"Plumbline {version}",
        " ".join(words),
        env=environment,
    )
    page = re.sub(r"(?m)^\.TH \S+", f".TH {name.upper()}", page, count=1)
    page = page.replace(f".SH NAME\n{' '.join(words)} ", f".SH NAME\n{name} ", 1)
    path = prefix / "share/man/man1" / f"{name}.1.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(page.encode(), 9, mtime=0))


def write_pages(prefix, version, epoch):
    commands = subcommands(prefix / "bin/plumb")
    write_page(
        prefix, ("plumb",), "judges training runs, and shows what a plumbd knows", version, epoch
    )
    write_page(prefix, ("plumbd",), "the analysis server of Plumbline", version, epoch)
    page = (PACKAGING / "plumb-load-check.1").read_bytes()
    (prefix / "share/man/man1/plumb-load-check.1.gz").write_bytes(gzip.compress(page, 9, mtime=0))
    for command, does in commands.items():
        write_page(prefix, ("plumb", command), does, version, epoch)
    return len(commands) + 3


def write_completions(prefix):
    """Writes the completions of both programs for each shell."""
    for shell, name in COMPLETIONS.items():
        for program, requested in (("plumb", "completion"), ("plumbd", "--completion")):
            path = pathlib.Path(prefix) / name.format(program)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(run(prefix / "bin" / program, requested, shell))
