"""Tests tools/check_clang: which files it selects, in a small repository; and that it fails if clang fails, in this one."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools/check_clang"

sys.dont_write_bytecode = True


class Selection(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="plumbline-test-")))
        self.git("init", "--quiet")
        self.write("base/a.h", "")
        for name in "xyz":
            self.write(f"rules/{name}.cc", '#include "base/a.h"\n')
        self.write("README.md", "")
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", self.tree, *words], check=True)

    def write(self, path, text):
        (self.tree / path).parent.mkdir(exist_ok=True)
        (self.tree / path).write_text(text)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "one")

    def listed(self, *revision):
        done = subprocess.run([CHECK, "--list", *revision], env={**os.environ, "PLUMBLINE_SOURCE_DIR": str(self.tree)},
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def test_changed_files_and_two_users_of_a_changed_header(self):
        self.write("rules/z.cc", "// changed\n")
        self.write("README.md", "changed")
        self.commit()
        self.assertEqual(self.listed(), ["rules/z.cc"])
        self.write("base/a.h", "// not committed\n")
        self.assertEqual(self.listed("HEAD"), ["rules/x.cc", "rules/y.cc"])
        self.write("server/new.cc", "")
        self.assertEqual(self.listed("HEAD~1"), ["rules/z.cc", "server/new.cc", "rules/x.cc", "rules/y.cc"])

    def test_without_an_earlier_commit_nothing_is_compiled(self):
        self.assertEqual(self.listed(), ["tools/check_clang: there is no commit before this one, so nothing is compiled"])

    def test_a_revision_that_is_not_there_is_refused(self):
        done = subprocess.run([CHECK, "nonsense"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no commit nonsense", done.stderr)


class Compilation(unittest.TestCase):
    def test_what_clang_refuses_is_printed(self):
        scope = {"__file__": str(CHECK), "__name__": "check_clang"}
        exec(compile(CHECK.read_text(), str(CHECK), "exec"), scope)
        with tempfile.TemporaryDirectory(prefix="plumbline-test-") as folder:
            # g++ 12 accepts this, clang 14 does not: the reason why base/archive.h assigns.
            wrong = pathlib.Path(folder) / "wrong.cc"
            wrong.write_text("#include <optional>\nstruct A { struct B { int b = 0; }; std::optional<B> b;\n"
                             "void f() { if (!b) b.emplace().b = 1; } };\n")
            right = pathlib.Path(folder) / "right.cc"
            right.write_text(wrong.read_text().replace("b.emplace().b = 1", "b = B{1}"))
            scope["BUILD"] = pathlib.Path(folder)
            command = ["clang++", "-std=c++20", "-o", "x.o", "-c"]
            self.assertIn("emplace", scope["compile_one"]([*command, str(wrong)]))
            self.assertEqual("", scope["compile_one"]([*command, str(right)]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
