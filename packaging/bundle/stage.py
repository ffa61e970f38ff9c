"""Installs a build below a prefix, and makes that tree whole: bundle, licences, manuals,
completions."""

import pathlib
import re
import shutil

from bundle import bundle, reflection_library
from command import run
from documents import write_documents
from licences import collect
from manuals import write_completions, write_pages

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
                f"'{folder}' is built with a sanitizer, which nobody else's process has"
            )
        if self._cache.get("CMAKE_INSTALL_LIBDIR") != "lib":
            raise RuntimeError(
                f"'{folder}' installs into '{self._cache.get('CMAKE_INSTALL_LIBDIR')}'; "
                "expected -DCMAKE_INSTALL_LIBDIR=lib"
            )

    @property
    def version(self):
        return self._cache["CMAKE_PROJECT_VERSION"]

    @property
    def opened(self):
        """Libraries that plumbd opens by name."""
        name = reflection_library(self.folder)
        return (name,) if name else ()


def add_examples(prefix):
    """The server's configuration and unit, which the Debian package puts in their places."""
    folder = prefix / "share/doc/plumbline/examples"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("plumbd.toml", "plumbd.service", "container.toml"):
        shutil.copyfile(ROOT / "packaging" / name, folder / name)


def stage(build, prefix, epoch):
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", build.folder, "--prefix", prefix)
    libraries, names = bundle(prefix, build.opened)
    collect(libraries, names, prefix / "share/doc/plumbline/licenses")
    add_examples(prefix)
    write_documents(prefix)
    write_pages(prefix, build.version, epoch)
    write_completions(prefix)
    return libraries
