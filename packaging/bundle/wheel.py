"""Makes the wheel: the bundled tree within the Python package. One wheel fits all Pythons, because ctypes needs no
version."""

import base64
import hashlib
import pathlib
import time
import zipfile

from bundle import OWN
from documents import FOLDER, description

HERE = pathlib.Path(__file__).resolve().parent
TAG = "py3-none-manylinux_2_34_x86_64"
PYTHON = "lib/python3/dist-packages/plumbline"
# Moved from the prefix into the package. The libraries and the programs keep their relative places.
TREES = ("bin", "lib/plumbline", "include", "share/plumbline")
PROGRAMS = ("plumb", "plumbd")
CLASSIFIERS = (
    "Development Status :: 4 - Beta",
    "Environment :: Console",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "License :: OSI Approved :: Apache Software License",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: Implementation :: CPython",
    "Programming Language :: Python :: Implementation :: PyPy",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: System :: Monitoring",
)
# A line that each Python runs at its start. It does nothing unless PLUMBLINE_WATCH=1 (docs/attach.md).
WATCH = (
    "import os, sys; os.environ.get('PLUMBLINE_WATCH') == '1' and (sys.path.insert(0, os.path.join(sitedir, 'plumbline', '_attach', 'path')), "
    "__import__('plumbline_attach').install(), sys.path.pop(0))\n"
)
LEVEL = 6  # 9 takes twice the time and saves 0.3 % of the size


class Wheel:
    """A zip file with the list of its files, each with its digest."""

    def __init__(self, path, info, epoch):
        self.info, self.record = info, []
        self.date = time.gmtime(max(epoch, 315532800))[:6]  # a zip file cannot hold times before 1980
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data, zipfile.ZIP_DEFLATED, LEVEL)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def add_file(self, name, path):
        self.add(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)

    def add_tree(self, name, folder, but=None):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.relative_to(folder).parts[0] != but:
                self.add_file(f"{name}/{path.relative_to(folder)}", path)

    def close(self):
        name = f"{self.info}/RECORD"
        self.add(name, "\n".join([*self.record, f"{name},,", ""]).encode())
        self.zip.close()


def metadata(version):
    return (
        f"Metadata-Version: 2.1\nName: plumbline\nVersion: {version}\n"
        "Summary: Watches training runs for the failures that do not crash them\n"
        "Author: The Plumbline authors\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"
        + "".join(f"Classifier: {classifier}\n" for classifier in CLASSIFIERS)
        + "Description-Content-Type: text/markdown\n\n"
        + description()
    )


def add_package(wheel, prefix):
    package = prefix / PYTHON
    for path in sorted(package.rglob("*.py")):
        if path.name != "_location.py":
            wheel.add_file(f"plumbline/{path.relative_to(package)}", path)
    wheel.add(
        "plumbline/_location.py",
        b'LIBRARY_DIRECTORY = "lib"  # of libplumbline.so, from this package\n',
    )
    wheel.add_file("plumbline/_programs.py", HERE / "programs.py")
    wheel.add("plumbline_watch.pth", WATCH.encode())
    for name in TREES:
        wheel.add_tree(f"plumbline/{name}", prefix / name)
    wheel.add_tree(f"plumbline/{FOLDER}", prefix / FOLDER, but="licenses")  # pip has its own place for licences
    for name in OWN:
        if (prefix / "lib" / name).exists():
            wheel.add_file(f"plumbline/lib/{name}", prefix / "lib" / name)


def add_info(wheel, prefix, version):
    info = wheel.info
    wheel.add(f"{info}/METADATA", metadata(version).encode())
    wheel.add(
        f"{info}/WHEEL",
        f"Wheel-Version: 1.0\nGenerator: tools/package\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
    )
    scripts = "".join(f"{name} = plumbline._programs:{name}\n" for name in PROGRAMS)
    wheel.add(f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode())
    wheel.add(f"{info}/top_level.txt", b"plumbline\n")
    wheel.add_tree(f"{info}/licenses", prefix / "share/doc/plumbline/licenses")


def write_wheel(prefix, version, output, epoch):
    path = output / f"plumbline-{version}-{TAG}.whl"
    wheel = Wheel(path, f"plumbline-{version}.dist-info", epoch)
    add_package(wheel, prefix)
    data = f"plumbline-{version}.data/data/share"  # pip installs it below the environment's share/
    wheel.add_tree(f"{data}/man", prefix / "share/man")
    for shell in ("bash-completion", "zsh", "fish"):
        wheel.add_tree(f"{data}/{shell}", prefix / "share" / shell)
    add_info(wheel, prefix, version)
    wheel.close()
    return path
