"""make_root.py: makes a small Debian with Python and numpy and nothing of ours, in the build folder.

Uses this machine's mirror: those of its package sources that are Debian's. Skipped (77) if the user is not root,
mmdebstrap is missing, or the mirror does not answer.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from chroot import FOLDER, ROOT_FILES, can_mount

PACKAGES = ("apt", "libstdc++6", "ca-certificates", "passwd", "python3", "python3-venv", "python3-numpy")
SKIPPED = 77


def codename():
    found = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)
    return found.group(1) if found else ""


def of_debian(suite, name):
    return suite == name or suite.startswith(f"{name}-")


def stanzas(name):
    """Yields this machine's sources in the form of .sources files, only those of the distribution."""
    folder = pathlib.Path("/etc/apt/sources.list.d")
    for path in sorted(folder.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            suites = re.search(r"^Suites: *(.*)$", stanza, re.M)
            if suites and all(of_debian(suite, name) for suite in suites.group(1).split()):
                yield stanza.strip()


def lines(name):
    """Yields the same from sources.list files: deb [options] URI suite components."""
    for path in (
        pathlib.Path("/etc/apt/sources.list"),
        *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*.list")),
    ):
        for line in path.read_text().splitlines() if path.exists() else ():
            words = re.sub(r"\[.*?\]", "", line).split()
            if words[:1] == ["deb"] and len(words) > 3 and of_debian(words[2], name):
                yield line


def sources(name):
    """Writes one file for mmdebstrap. Returns "" if this machine has no Debian sources."""
    modern, old = list(stanzas(name)), list(lines(name))
    path = FOLDER / ("debian.sources" if modern else "sources.list")
    path.write_text("\n\n".join(modern) + "\n" if modern else "\n".join(old) + "\n")
    return path if modern or old else ""


def sources_of(release):
    """Returns the same mirror's main suite of one or several other releases; "" if this machine has no Debian sources."""
    name = codename()
    suites = re.compile(rf"(?m)^(Suites: *).*\b{name}\b(?!-).*$")
    modern = [suites.sub(rf"\g<1>{release}", one) for one in stanzas(name) if suites.search(one)]
    old = [
        re.sub(rf" {name} ", f" {release} ", line) for line in lines(name) if f" {name} " in line
    ]
    if not modern:  # one line per suite
        old = ["\n".join(old[0].replace(f" {release} ", f" {one} ") for one in release.split())] if old else []
    path = FOLDER / f"{release.replace(' ', '-')}.{'sources' if modern else 'list'}"
    path.write_text((modern or old or [""])[0] + "\n")
    return path if modern or old else ""


def acquire_options():
    """Returns how this machine reaches its mirror: proxies, retries."""
    printed = subprocess.run(
        ["apt-config", "dump", "--no-empty"], capture_output=True, text=True
    ).stdout
    return [
        f"--aptopt={line}"
        for line in printed.splitlines()
        if re.match(r"Acquire::(https?|ftp|Retries|ForceIPv[46])\b", line)
    ]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def make(release, source, packages, target, options=()):
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    done = subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            "--mode=root",
            "--format=directory",
            "--dpkgopt=force-unsafe-io",
            '--aptopt=APT::Install-Recommends "false"',
            *acquire_options(),
            *options,
            f"--include={','.join(packages)}",
            release,
            partial,
            source,
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        skip(f"mmdebstrap ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    partial.rename(target)


def make_root(target=ROOT_FILES, packages=PACKAGES, release=None, adjacent=None):
    """Makes the root `target`. `release`: another release than this machine's, from the same mirror. `adjacent`: a second
    release, for the packages named NAME/ADJACENT."""
    if os.geteuid() != 0 or not can_mount():
        skip("a chroot of its own needs root")
    if shutil.which("mmdebstrap") is None:
        sys.exit("expected mmdebstrap, which tools/setup installs")
    FOLDER.mkdir(parents=True, exist_ok=True)
    held = target.with_suffix(".packages")  # next to it, because the root contains nothing of ours
    if target.exists() and held.exists() and held.read_text().split() == list(packages):
        print(f"{target} is there")
        return
    subprocess.run(["rm", "-rf", "--one-file-system", target], check=True)
    suites = f"{release} {adjacent}" if adjacent else release
    source = sources_of(suites) if release else sources(codename())
    if not source:
        skip("this machine has no package source of Debian")
    options = [f'--aptopt=APT::Default-Release "{release}"'] if adjacent else []
    if release:  # an outdated mirror is sufficient; its signature is still checked
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')
    make(release or codename(), source, packages, target, options)
    held.write_text("\n".join(packages) + "\n")


if __name__ == "__main__":
    make_root()
