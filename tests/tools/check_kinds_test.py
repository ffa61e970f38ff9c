"""Tests tools/check_kinds: the lists of kinds agree, and one that does not is reported."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted(path.relative_to(ROOT) for path in (ROOT / "agent/include/plumbline").glob("*.h"))
FILES = ["tools/check_kinds", "proto/evidence_kinds.inc", "proto/plumbline/v1/evidence.proto",
         "agent/agent_table.h", "python/plumbline/_kinds.py", *HEADERS]


class CheckKinds(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name)
        for name in FILES:
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)

    def check(self, *args):
        done = subprocess.run([sys.executable, self.tree / "tools/check_kinds", *args],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def edit(self, name, old, new):
        path = self.tree / name
        self.assertIn(old, path.read_text())
        path.write_text(path.read_text().replace(old, new, 1))

    def test_the_tree_agrees(self):
        self.assertEqual(self.check()[0], 0, self.check()[1])

    def test_every_list_that_differs_is_reported(self):
        for name, old, new in (
                ("agent/include/plumbline/sites.h", "PLUMBLINE_KIND_UPDATE = 4", "PLUMBLINE_KIND_UPDATE = 9"),
                ("python/plumbline/_kinds.py", "KIND_UPDATE = 4", "KIND_UPDATE = 9"),
                ("agent/agent_table.h", "(*observe_update)(", "(*watch_update)("),
                ("proto/plumbline/v1/evidence.proto", "Update update = 21;", "Update updates = 21;"),
                ("proto/evidence_kinds.inc", "update, 4,", "update, 5,")):
            with self.subTest(name):
                self.setUp()
                self.edit(name, old, new)
                status, stated = self.check()
                self.assertEqual(status, 1, stated)
                self.assertIn(name, stated)

    def test_a_new_kind_is_written_and_then_requested(self):
        self.edit("proto/evidence_kinds.inc", "PLUMB_KIND(Tensor", 'PLUMB_KIND(Toy, TOY, toy, 8, "toy")\nPLUMB_KIND(Tensor')
        status, stated = self.check("--write")
        self.assertEqual(status, 1, stated)
        self.assertIn("toy is no field of Evidence", stated)
        self.assertIn("agent/include/plumbline: no plumbline_observe_toy(", stated)
        self.assertIn("PLUMBLINE_KIND_LOGPROBS = 7,\n  PLUMBLINE_KIND_TOY = 8\n",
                      (self.tree / "agent/include/plumbline/sites.h").read_text())
        self.assertIn("KIND_TOY = 8\n", (self.tree / "python/plumbline/_kinds.py").read_text())


if __name__ == "__main__":
    unittest.main()
