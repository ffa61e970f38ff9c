"""Bundles an installed tree with all that it needs except glibc, libstdc++ and libgcc_s.

A trainer may have loaded another protobuf, gRPC or OpenSSL. For the loader, two libraries of one SONAME are one
library, whichever program opens them. So each bundled library gets a unique name: its own with a few digits of its
content. Each finds the others next to it (`$ORIGIN`), before LD_LIBRARY_PATH.
"""

import hashlib
import pathlib
import shutil

from closure import closure
from command import run
from elf import Elf, is_elf
from relink import relink

# The path of each file below the prefix, and where it finds the closure.
PROGRAMS = {"bin/plumb": "$ORIGIN/../lib/plumbline", "bin/plumbd": "$ORIGIN/../lib/plumbline"}
GUESTS = {"lib/libplumbline_agent.so": "$ORIGIN/plumbline:$ORIGIN"}
ALONE = ("bin/plumb-load-check", "lib/libplumbline.so", "lib/libplumb_interpose.so", "lib/libplumbline_cuda.so")
OWN = ("libplumbline.so", "libplumbline_agent.so", "libplumb_interpose.so", "libplumbline_cuda.so")
FOLDER = "lib/plumbline"


def strip(path):
    """Strips symbols. Must run before relink, which puts the string table where strip would not find it."""
    path.chmod(path.stat().st_mode | 0o200)
    run("strip", "--strip-unneeded", path)


def unique_name(name, path):
    """Returns libgrpc-plumb3f2a1c.so.29 for libgrpc.so.29."""
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:6]
    stem, dot, rest = name.partition(".so")
    return f"{stem}-plumb{digits}{dot}{rest}"


def carry(prefix, libraries, opened):
    """Copies `libraries` (SONAME to path) into the closure's folder. Returns SONAME to the new name."""
    folder = prefix / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for name, source in sorted(libraries.items()):
        copy = folder / name
        shutil.copyfile(source, copy)
        copy.chmod(0o644)
        strip(copy)
        names[name] = name if name in opened else unique_name(name, copy)
        copy.rename(folder / names[name])
    return names


def reflection_library(build):
    """Returns the library that plumbd opens by name if configured to (server/CMakeLists.txt)."""
    text = (build / "build.ninja").read_text()
    _, found, rest = text.partition('PLUMBLINE_REFLECTION_LIBRARY=\\"')
    return rest.partition('\\"')[0] if found else ""


def bundle(prefix, opened=()):
    """Bundles the tree. `opened`: names of libraries that a program opens itself, which are kept so that it finds them.

    Returns SONAME to path of the bundled libraries, and SONAME to new name.
    """
    prefix = pathlib.Path(prefix)
    ours = [prefix / name for name in (*PROGRAMS, *GUESTS, *ALONE) if (prefix / name).exists()]
    for path in ours:
        strip(path)
    libraries = closure(ours, opened, OWN)
    names = carry(prefix, libraries, opened)
    for new in names.values():
        path = prefix / FOLDER / new
        Elf(path).weaken_unique_symbols()
        relink(path, names, "$ORIGIN", new)
    for name, search_path in {**PROGRAMS, **GUESTS}.items():
        if (prefix / name).exists():
            relink(prefix / name, names, search_path)
    return libraries, names


def elf_files(prefix):
    return sorted(
        p
        for p in pathlib.Path(prefix).rglob("*")
        if p.is_file() and not p.is_symlink() and is_elf(p)
    )
