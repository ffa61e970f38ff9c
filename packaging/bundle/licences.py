"""Collects the licence of everything that a tree carries: Debian's copyright file of each package.
"""

import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Compiled in from headers alone, so that no library shows them.
HEADERS = ("nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libdlpack-dev")


def _query(*words):
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True).stdout


def _packages(paths):
    """Path to the package that it is of. By name: dpkg may know a file by the path before /usr was
    merged."""
    real = {path: pathlib.Path(path).resolve().name for path in paths}
    printed = _query("-S", *{f"*/{name}" for name in real.values()})
    owners = {}
    for package, file in re.findall(r"(?m)^([^:,\s]+)[^/\n]*: (/\S+)$", printed):
        owners.setdefault(pathlib.Path(file).name, package)
    return {path: owners[name] for path, name in real.items() if name in owners}


def _copyright(package):
    return pathlib.Path("/usr/share/doc") / package / "copyright"


def collect(libraries, names, folder):
    """`libraries`: SONAME to path; `names`: SONAME to the name it is carried by. Raises where one
    has no licence."""
    folder.mkdir(parents=True, exist_ok=True)
    owners = _packages(libraries.values())
    rows = []
    for soname, path in sorted(libraries.items()):
        if path not in owners or not _copyright(owners[path]).exists():
            raise RuntimeError(
                f"no licence of {soname} ({path}) was found: it comes from no Debian package"
            )
        rows.append((names[soname], owners[path]))
    headers = [("(headers)", package) for package in HEADERS if _copyright(package).exists()]
    for package in sorted({package for _, package in rows + headers}):
        shutil.copyfile(_copyright(package), folder / f"{package}.txt")
    (folder / "plumbline.txt").write_text(own())
    write_list(rows + headers, folder / "README")


def own():
    """What is ours: the licence's text where there is one, else what the Debian package says of it."""
    for name in ("LICENSE", "LICENSE.txt", "COPYING"):
        if (ROOT / name).exists():
            return (ROOT / name).read_text()
    said = (ROOT / "packaging/debian/copyright").read_text()
    (stanza,) = re.findall(r"(?ms)^Files: \*\n(.*?)(?:\n\n|\Z)", said)
    notice = re.search(r"(?m)^ uPlot.*|which is under the MIT licence", said)
    lines = ["Plumbline", "", stanza.strip()]
    if notice:
        lines += ["", "The page that plumbd serves holds uPlot, under the MIT licence: its notice stands at the head of the page's script."]
    return "\n".join(lines) + "\n"


def write_list(rows, path):
    versions = dict(
        line.split("\t") for line in _query("-W", "-f", "${Package}\t${Version}\n").splitlines()
    )
    width = max(len(name) for name, _ in rows)
    lines = [
        "Plumbline itself: plumbline.txt. What is carried here, the Debian package it was taken from, and that package's licence beside this file:",
        "",
    ]
    lines += [f"{name:{width}}  {package} {versions.get(package, '')}" for name, package in rows]
    lines += [
        "",
        "Symbols of theirs that were unique in the whole process are weak, and their names are changed; their code is not.",
    ]
    path.write_text("\n".join(lines) + "\n")
