"""tools/check_words: a file may not have words that docs/style.md forbids."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CheckWords(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name)
        (self.tree / "tools").mkdir()
        shutil.copy(ROOT / "tools/check_words", self.tree / "tools/check_words")
        subprocess.run(["git", "init", "-q", self.tree], check=True)

    def put(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        subprocess.run(["git", "-C", self.tree, "add", "-A"], check=True)

    def run_tool(self, *arguments):
        done = subprocess.run([sys.executable, self.tree / "tools/check_words", *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_word_in_each_place_fails(self):
        for name, text in (("a.h", "// The rank that was told.\nint a;\n"), ("b.cc", 'auto s = "the server says";\n'),
                           ("c.cc", "void TellCaller();\n"), ("d.cc", "int told_closes;\n"), ("e.md", "It comes behind the step.\n"),
                           ("f.py", '"""Nobody waits."""\n'), ("g.py", "x = 1  # mended\n"), ("h.sh", "# what it says\ntrue\n"),
                           ("i.cc", 'auto s = R"(so many bytes)";\n'), ("j.h", "/* Of two ranks the first. */\n"),
                           ("k.h", "// A thread who waits.\n"), ("l.ts", "const a = `x`; // beside it\n")):
            with self.subTest(name):
                self.setUp()
                self.put(name, text)
                status, output = self.run_tool()
                self.assertEqual(status, 1, output)
                self.assertRegex(output, rf'^{name}:1: "[^"]+": [^\n]+\n$')

    def test_plain_text_passes(self):
        self.put("a.h", "// Returns the number of ranks. If no rank is connected, returns 0.\nint Ranks();\n")
        self.put("b.md", "The operator who reads this page decides.\n")  # a person
        self.put("c.cc", "int manners, satellite, ensayo, tollgate;  // part of another word\n")
        self.put("tests/audit/data/x.md", "told\n")
        self.assertEqual(self.run_tool(), (0, ""))

    def test_a_former_name_is_exempt_on_its_own_line(self):
        self.put("a.cc", 'const char* kOld = "toll";  // former name\n')
        self.put("b.md", "`bottleneck` (`toll` is the former name)\n")
        self.assertEqual(self.run_tool(), (0, ""))
        self.put("c.cc", '// The former name.\nconst char* kOld = "toll";\n')
        status, output = self.run_tool()
        self.assertEqual((status, output.splitlines()), (1, ['c.cc:2: "toll": bottleneck']))

    def test_files_can_be_named(self):
        self.put("a.cc", 'int a;\n\nauto s = "nobody";\n')
        self.put("b.cc", "int b;\n")
        status, output = self.run_tool(str(self.tree / "a.cc"))
        self.assertEqual(status, 1)
        self.assertIn('a.cc:3: "nobody": no rank', output)
        self.assertEqual(self.run_tool(str(self.tree / "b.cc")), (0, ""))
        self.assertEqual(self.run_tool("missing.cc")[0], 2)

    def test_table(self):
        self.put("a.h", "// If it waits, returns 0.\nint A();\n")
        status, output = self.run_tool("--table")
        self.assertEqual(status, 0)
        self.assertRegex(output, r"if +250\.00")


if __name__ == "__main__":
    unittest.main()
