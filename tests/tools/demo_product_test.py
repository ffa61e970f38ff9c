"""tools/demo uses Plumbline from PATH or from dist/ if it was made from this very commit; otherwise it builds.

The tree is a repository with tools/demo only. plumbd and plumb are scripts, and tools/setup ends with 1, so that the
demo ends where it would install what a build needs.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "tools" / "demo"
TAKEN = "is of this commit: nothing is built"


def git(tree, *words):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *settings, "-C", tree, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Product(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="plumbline-test-")))
        self.tree = self.folder / "tree"
        script(self.tree / "tools/setup", "echo \"asked for: $1\"; exit 1")
        shutil.copy2(DEMO, self.tree / "tools/demo")
        (self.tree / ".gitignore").write_text("runs\ndist\n")
        git(self.tree, "init", "--quiet")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "--quiet", "-m", "first")
        self.commit = git(self.tree, "rev-parse", "HEAD")[:7]

    def make_product(self, prefix, version, library="lib/libplumbline.so"):
        script(prefix / "bin/plumbd", f"echo 'plumbd {version}'")
        script(prefix / "bin/plumb", "exit 0")
        (prefix / library).parent.mkdir(parents=True, exist_ok=True)
        (prefix / library).touch()
        return prefix

    def pack(self, version):
        name = f"plumbline-{version}"
        self.make_product(self.folder / name, version)
        (self.tree / "dist").mkdir(exist_ok=True)
        subprocess.run(["tar", "czf", self.tree / "dist" / f"{name}-linux-x86_64.tar.gz", "-C", self.folder, name], check=True)

    def demo(self, prefix=None):
        path = f"{prefix}/bin:/usr/bin:/bin" if prefix else "/usr/bin:/bin"
        environment = {**os.environ, "PATH": path}
        for name in [name for name in environment if name.startswith("PLUMBLINE_DEMO_")]:
            del environment[name]
        done = subprocess.run([self.tree / "tools/demo"], env=environment, capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout

    def test_what_is_installed_of_this_commit_is_taken(self):
        for library in ("lib/libplumbline.so", "lib/x86_64-linux-gnu/libplumbline.so",
                        "lib/python3.11/site-packages/plumbline/lib/libplumbline.so"):
            with self.subTest(library):
                prefix = self.folder / f"product{library.count(chr(47))}"
                version = f"0.2.0~git20261128.143005.{self.commit}"
                self.make_product(prefix, version, library)
                printed = self.demo(prefix)
                self.assertIn(f"Plumbline {version} in {prefix} {TAKEN}", printed)
                self.assertIn("asked for: trainer", printed)

    def test_a_package_of_this_commit_in_dist_is_taken(self):
        self.pack(f"0.2.0~git20261128.143005.{self.commit}+b1")
        printed = self.demo()
        self.assertIn(TAKEN, printed)
        self.assertTrue((self.tree / "runs/demo/product/bin/plumbd").exists())

    def test_another_version_is_not_taken(self):
        for version in ("0.1.0", "0.2.0~dev0", "0.2.0~git20261128.143005.0000000",
                        f"0.2.0~git20261128.143005.{self.commit}.dirty", f"0.2.0~git20261128.143005.{self.commit}0"):
            with self.subTest(version):
                self.pack(version)
                printed = self.demo(self.make_product(self.folder / "product", version))
                self.assertNotIn(TAKEN, printed)
                self.assertIn("asked for: quick", printed)

    def test_a_tree_with_changes_builds(self):
        prefix = self.make_product(self.folder / "product", f"0.2.0~git20261128.143005.{self.commit}")
        with (self.tree / "tools/demo").open("a") as file:
            file.write("# changed\n")
        self.assertIn("asked for: quick", self.demo(prefix))


if __name__ == "__main__":
    unittest.main(verbosity=2)
