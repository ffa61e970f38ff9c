"""Finds the libraries that a set of ELF files needs, where the loader of this machine finds them."""

import os
import pathlib
import re
import subprocess

from elf import Elf

# Libraries that every machine with a trainer has, and that must be loaded once only: glibc, libstdc++, libgcc_s.
SYSTEM = re.compile(
    r"(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnsl|libanl|libmvec"
    r"|libstdc\+\+|libgcc_s)\.so(\.\d+)*$"
)


class NotFound(RuntimeError):
    """A required library is in none of the loader's folders."""


def is_system(name):
    return SYSTEM.match(name) is not None


def _cache():
    """Returns the loader's cache: name to path, of 64-bit libraries."""
    printed = subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for name, kind, path in re.findall(r"^\t(\S+) \(([^)]*)\) => (\S+)$", printed, re.M):
        if "x86-64" in kind:
            found.setdefault(name, path)
    return found


class Loader:
    def __init__(self):
        self._cache = _cache()

    def find(self, name, needed_by):
        """Searches like the loader: the search path of the file that needs it, LD_LIBRARY_PATH, the cache, the default
        folders."""
        own = needed_by.search_path.replace("$ORIGIN", str(needed_by.path.parent))
        folders = [*own.split(":"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        for folder in filter(None, folders):
            if (pathlib.Path(folder) / name).exists():
                return pathlib.Path(folder) / name
        if name in self._cache:
            return pathlib.Path(self._cache[name])
        for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64"):
            if (pathlib.Path(folder) / name).exists():
                return pathlib.Path(folder) / name
        raise NotFound(f"{name}, which {needed_by.path} needs, is not on this machine")


def closure(files, opened=(), own=()):
    """Returns SONAME to path of all libraries that `files` and `opened` (names that a program opens at run time) need,
    recursively, without those of the system and `own` names."""
    waiting = [Elf(path) for path in files]
    loader = Loader()
    found = {name: loader.find(name, waiting[0]) for name in opened}
    waiting += [Elf(path) for path in found.values()]
    while waiting:
        file = waiting.pop()
        for name in file.needed:
            if is_system(name) or name in own or name in found:
                continue
            found[name] = loader.find(name, file)
            waiting.append(Elf(found[name]))
    return found
