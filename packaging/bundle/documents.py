"""What users read, for a tree: README.md and docs/, without what was decided and measured on the way.

A link to what the tree does not hold becomes its text, so that none is dead; a picture goes.
"""

import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = "share/doc/plumbline"
_LINK = re.compile(r"(!?)\[([^\]\[]*)\]\(([^)\s]+)\)")


def sources():
    """From the repository: what is read by who uses it."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "rules").rglob("*.md"))]


def without_links(text, holds):
    """`holds(link)`: is the relative link good where the text will lie?"""

    def one(found):
        picture, words, link = found.groups()
        target = link.partition("#")[0]
        if re.match(r"[a-z]+:", link) or not target or holds(target):
            return found.group()
        return "" if picture else words

    return _LINK.sub(one, text)


def write_documents(prefix):
    folder = pathlib.Path(prefix) / FOLDER
    shutil.rmtree(folder / "docs", ignore_errors=True)
    files = sources()
    held = {path.relative_to(ROOT) for path in files}
    folders = {parent for path in held for parent in path.parents}
    for path in files:
        place = path.relative_to(ROOT)

        def holds(target, place=place):
            there = (ROOT / place.parent / target).resolve()
            inside = there.is_relative_to(ROOT)
            return inside and there.relative_to(ROOT) in held | folders

        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(without_links(path.read_text(), holds))


def description():
    """README.md as a text of its own, which has no files beside it."""
    where = "The files that are named here lie in `plumbline/share/doc/plumbline` of this package.\n\n"
    return where + without_links((ROOT / "README.md").read_text(), lambda target: False)
