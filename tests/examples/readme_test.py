"""README.md is short; the Python code of all pages can be parsed, and each call of Plumbline in it exists with the
arguments that it shows.

commands_test.py runs the command lines of the pages.
"""

import ast
import inspect
import textwrap
import unittest

import documents
import plumbline
from plumbline import adapters
import support

LINES, COLUMNS = 90, 110  # of README.md: read in half a minute
OWNERS = {"plumbline": plumbline, "run": plumbline.Run, "adapters": adapters}
LEFT_OUT = "…"  # arguments that a page does not repeat


def python_of(page):
    """Returns (line, source) of each block of Python."""
    return [(line, textwrap.dedent("\n".join(rows))) for line, language, rows in documents.blocks(page) if language == "python"]


def ours(tree):
    """Yields (name, function, its call) for each attribute of Plumbline in the code; if it is only named, the call is
    None."""
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OWNERS:
            yield f"{node.value.id}.{node.attr}", getattr(OWNERS[node.value.id], node.attr, None), calls.get(id(node))


class Readme(unittest.TestCase):
    def test_the_first_page_is_short(self):
        lines = documents.text_of("README.md").splitlines()
        self.assertLessEqual(len(lines), LINES)
        self.assertEqual([line for line in lines if len(line) > COLUMNS], [])
        self.assertLess(next(n for n, line in enumerate(lines) if line.startswith("error ")), 20, "a finding comes first")

    def test_every_call_exists_and_takes_its_arguments(self):
        calls = 0
        for page in documents.PAGES:
            for line, source in python_of(page):
                with self.subTest(page=page, line=line):
                    tree = ast.parse(source.replace(f"={LEFT_OUT}", "=...").replace(f", {LEFT_OUT})", ")"))
                    for name, function, call in ours(tree):
                        calls += 1
                        self.assertIsNotNone(function, f"{name} does not exist")
                        if call is not None:
                            self.check_arguments(name, function, call)
        self.assertGreater(calls, 25)

    def check_arguments(self, name, function, call):
        """A page may omit arguments, so only those it shows are checked."""
        parameters = inspect.signature(function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        for keyword in call.keywords:
            if keyword.arg is not None:
                self.assertIn(keyword.arg, parameters, f"{name} takes no {keyword.arg}")


if __name__ == "__main__":
    support.main()
