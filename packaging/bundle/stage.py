"""Installs a build below a prefix, and completes that tree: bundle, licences, manuals, completions."""

import pathlib
import re
import shutil

from bundle import bundle, reflection_library
from command import run
from documents import write_documents
from licences import collect
from manuals import write_completions, write_pages
from toolkit_licence import add_toolkit_licence


class Build:
    """A CMake build folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        cache = self.folder / "CMakeCache.txt"
        if not cache.exists():
            raise RuntimeError(f"'{folder}' is no build folder: it holds no CMakeCache.txt")
        self._cache = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.M))
        if self._cache.get("PLUMBLINE_SANITIZE"):
            raise RuntimeError(
                f"'{folder}' is built with a sanitizer, which other processes lack"
            )
        if self._cache.get("CMAKE_INSTALL_LIBDIR") != "lib":
            raise RuntimeError(
                f"'{folder}' installs into '{self._cache.get('CMAKE_INSTALL_LIBDIR')}'; "
                "expected -DCMAKE_INSTALL_LIBDIR=lib"
            )

    @property
    def version(self):
        """The version that its programs print."""
        return run(self.folder / "bin/plumb", "--version").split()[1]

    @property
    def python_version(self):
        """The same version in the form of PEP 440: plumbline.__version__."""
        return re.search('"(.*)"', (self.folder / "python/plumbline/_version.py").read_text())[1]

    @property
    def hardened(self):
        return self._cache.get("PLUMBLINE_HARDEN") == "ON"

    @property
    def opened(self):
        """Libraries that plumbd opens by name."""
        name = reflection_library(self.folder)
        return (name,) if name else ()


def stage(build, prefix, epoch):
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", build.folder, "--prefix", prefix)
    libraries, names = bundle(prefix, build.opened)
    collect(libraries, names, prefix)
    write_documents(prefix)
    write_pages(prefix, build.version, epoch)
    write_completions(prefix)
    add_toolkit_licence(build.folder, prefix)
    return libraries
