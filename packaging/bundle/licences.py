"""Collects the licence of everything that a tree carries: Debian's copyright file of each package.
"""

import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Compiled in from headers only, so that no library shows them.
HEADERS = ("nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libdlpack-dev")


def _query(*words):
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True).stdout


def _packages(paths):
    """Returns path to its package. Searches by name, because dpkg may have recorded the path before /usr was merged."""
    real = {path: pathlib.Path(path).resolve().name for path in paths}
    printed = _query("-S", *{f"*/{name}" for name in real.values()})
    owners = {}
    for package, file in re.findall(r"(?m)^([^:,\s]+)[^/\n]*: (/\S+)$", printed):
        owners.setdefault(pathlib.Path(file).name, package)
    return {path: owners[name] for path, name in real.items() if name in owners}


def _copyright(package):
    return pathlib.Path("/usr/share/doc") / package / "copyright"


def collect(libraries, names, prefix):
    """Writes the licences and the list of the bundled libraries below `prefix`. `libraries`: SONAME to path; `names`:
    SONAME to its bundled name. Raises if one has no licence."""
    folder = prefix / "share/doc/plumbline/licenses"
    folder.mkdir(parents=True, exist_ok=True)
    owners = _packages(libraries.values())
    rows = []
    for soname, path in sorted(libraries.items()):
        if path not in owners or not _copyright(owners[path]).exists():
            raise RuntimeError(
                f"no licence of {soname} ({path}) was found: it comes from no Debian package"
            )
        rows.append((names[soname], owners[path]))
    headers = [("(compiled in)", package) for package in HEADERS if _copyright(package).exists()]
    for package in sorted({package for _, package in rows + headers}):
        shutil.copyfile(_copyright(package), folder / f"{package}.txt")
    (folder / "plumbline.txt").write_text(own())
    write_list(rows + headers, folder / "README")
    write_versions(rows + headers, prefix / "share/plumbline/libraries.txt")


def own():
    """Returns the licence of our own files, and of third-party parts in them."""
    return (
        "Plumbline\nCopyright The Plumbline authors\nLicense: Apache-2.0, below.\n\n"
        "The page that plumbd serves holds uPlot, under the MIT licence: its notice is at the head of the page's script.\n\n"
        + (ROOT / "LICENSE").read_text()
    )


def _of_packages(field, packages):
    """Returns package to a field of dpkg's data."""
    printed = _query("-W", "-f", f"${{Package}}\t${{{field}}}\n", *sorted(packages))
    return dict(line.split("\t") for line in printed.splitlines())


def write_list(rows, path):
    versions = _of_packages("Version", {package for _, package in rows})
    width = max(len(name) for name, _ in rows)
    lines = [
        "Plumbline itself: plumbline.txt. What is carried here, the Debian package it was taken from, and the file in this folder with that package's licence:",
        "",
    ]
    lines += [f"{name:{width}}  {package} {versions.get(package, '')}" for name, package in rows]
    lines += [
        "",
        "Symbols of theirs that were unique in the whole process are weak, one symbol of libstdc++ is requested in its older version, and",
        "their names are changed; their code is not.",
    ]
    path.write_text("\n".join(lines) + "\n")


def write_versions(rows, path):
    """Writes what `plumb doctor --libraries` prints: by source package, as Debian's security advisories name them."""
    packages = {package for _, package in rows}
    sources, versions = _of_packages("source:Package", packages), _of_packages("source:Version", packages)
    files = {}
    for name, package in rows:
        files.setdefault((sources[package], versions[package]), []).append(name)
    widths = [max(len(key[i]) for key in files) for i in (0, 1)]
    lines = [
        f"{source:{widths[0]}}  {version:{widths[1]}}  {', '.join(sorted(set(names)))}"
        for (source, version), names in sorted(files.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def outdated(libraries):
    """Yields a line for each bundled library of which this machine's package lists have a newer version."""
    packages = set(_packages(libraries.values()).values())
    done = subprocess.run(["apt-cache", "policy", *sorted(packages)], capture_output=True, text=True)
    for name, installed, candidate in re.findall(
        r"(?m)^(\S+?)(?::\w+)?:\n  Installed: (\S+)\n  Candidate: (\S+)$", done.stdout
    ):
        if installed != candidate:
            yield f"{name} {installed} is carried, but {candidate} is available: run apt upgrade, then package again"
