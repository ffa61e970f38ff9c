"""Copies the documents for users into a tree: README.md and docs/ without decisions and measurements, and every file
that they name and that is useful without the source: examples, dashboards, and what runs plumbd.

The files keep their relative places, so a path in a document is below the folder of README.md. A link to something that
the tree does not contain becomes its text; a picture is removed. If a page names files that only the source has, a note
states that.
"""

import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = "share/doc/plumbline"
EXTRAS = (
    "CHANGELOG.md",
    "dashboards/grafana",
    "dashboards/prometheus",
    "examples",
    "packaging/Containerfile",
    "packaging/container.toml",
    "packaging/kubernetes",
    "packaging/plumbd.service",
    "packaging/plumbd.toml",
    "packaging/slurm",
)
_LINK = re.compile(r"(!?)\[([^\]\[]*)\]\(([^)\s]+)\)")
_NAMED = re.compile(r"(?<![\w./-])\w[\w.-]*/[\w./*-]*[\w*/]")  # docs/install.md, tests/audit/


def pages():
    """Returns the repository's pages for users."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "rules").rglob("*.md"))]


def extras():
    """Yields the files that the pages name."""
    for name in EXTRAS:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def without_links(text, holds):
    """Replaces links. `holds(link)`: returns True if the relative link will be valid."""

    def one(found):
        picture, words, link = found.groups()
        target = link.partition("#")[0]
        if re.match(r"[a-z]+:", link) or not target or holds(target):
            return found.group()
        return "" if picture else words

    return _LINK.sub(one, text)


def named_files(text):
    """Yields the paths, from the repository's root, that a text names outside of its links."""
    for name in sorted(set(_NAMED.findall(_LINK.sub(r"\2", text)))):
        built = name.split("/")[0] in ("build", "dist", "runs")
        if not built and "**" not in name and any(ROOT.glob(name.rstrip("/"))):
            yield name


def top_folder(name):
    """Returns the top folder: `tests/audit/data` is in tests/, `docs/decisions/0028` in docs/decisions/."""
    parts = name.rstrip("/").split("/")
    return "/".join(parts[: 2 if parts[0] in ("docs", "dashboards", "packaging") else 1]) + "/"


def with_note(text, there):
    """Adds a note below the title about named files that the tree does not contain. `there(name)`: returns True if it
    does."""
    missing = sorted({top_folder(name) for name in named_files(text) if not there(name)})
    if not missing:
        return text
    folders = ", ".join(f"`{folder}`" for folder in missing)
    title, _, rest = text.partition("\n")
    return f"{title}\n\n*Only in the source, not in this package: {folders}.*\n{rest}"


def write_documents(prefix):
    folder = pathlib.Path(prefix) / FOLDER
    for name in ("docs", "dashboards", "examples", "packaging"):
        shutil.rmtree(folder / name, ignore_errors=True)
    files = pages()
    held = {path.relative_to(ROOT) for path in (*files, *extras())}
    held |= {parent for path in held for parent in path.parents}
    for path in extras():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for path in files:
        place = path.relative_to(ROOT)

        def holds(target, place=place):
            there = (ROOT / place.parent / target).resolve()
            inside = there.is_relative_to(ROOT)
            return inside and there.relative_to(ROOT) in held

        def there(name):
            return any(file.relative_to(ROOT) in held for file in ROOT.glob(name.rstrip("/")))

        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(with_note(without_links(path.read_text(), holds), there))


def description():
    """Returns README.md as a separate text, with no files next to it."""
    where = "The files that are named here lie in `plumbline/share/doc/plumbline` of this package.\n\n"
    return where + without_links((ROOT / "README.md").read_text(), lambda target: False)
