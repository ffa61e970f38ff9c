"""Checks the links of README.md, CONTRIBUTING.md, docs/ and the modules' READMEs; the rules and files that they name
must exist."""

import fnmatch
import pathlib
import re
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
FOLDERS = ("base", "proto", "transport", "kernels", "analysis", "rules", "probes", "agent", "server", "audit")
ROOMS = sorted(page for folder in FOLDERS for page in (REPOSITORY / folder).rglob("README.md"))


class Links(unittest.TestCase):
    def test_every_relative_link_exists(self):
        followed = 0
        for page in PAGES + ROOMS:
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
                if re.match(r"[a-z]+:", link):
                    continue
                followed += 1
                with self.subTest(page=page.name, link=link):
                    self.assertTrue((page.parent / link).exists())
        self.assertGreater(followed, 20)

    def test_every_file_that_a_room_names_exists(self):
        files = [f"/{path.relative_to(REPOSITORY)}" for folder in (*FOLDERS, "tests")
                 for path in (REPOSITORY / folder).rglob("*")]
        named = 0
        for page in ROOMS:
            for name in re.findall(r"`([\w/*]+\.(?:h|cc|cu|py|proto|inc))`", page.read_text()):
                named += 1
                with self.subTest(page=str(page.relative_to(REPOSITORY)), file=name):
                    self.assertTrue(fnmatch.filter(files, f"*/{name}"))
        self.assertGreater(named, 300)

    def test_every_rule_that_is_named_exists(self):
        known = set(re.findall(r'"([a-z]+/[a-z-]+)"',
                               (REPOSITORY / "rules" / "rule_list.inc").read_text()))
        self.assertGreater(len(known), 3)
        groups = {rule.split("/")[0] for rule in known}
        for page in PAGES[:3] + [REPOSITORY / "docs" / "life_of_a_tensor.md"]:
            for name in re.findall(r"(?<![\w/])([a-z]+/[a-z-]+)(?![\w/.-])", page.read_text()):
                if name.split("/")[0] in groups:
                    with self.subTest(page=page.name, rule=name):
                        self.assertIn(name, known)


if __name__ == "__main__":
    unittest.main(verbosity=2)
