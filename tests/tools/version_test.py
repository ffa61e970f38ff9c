"""Tests tools/version: versions of later commits are greater for dpkg and for pip; and its output without git, for a
shallow clone and for a tree with changes."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
FORM = r"\d+\.\d+\.\d+~git\d{8}\.\d{6}\.[0-9a-f]{7}"


def pip_version():
    """Returns the class with which pip compares versions; if there is no pip, from the wheel in Debian's python3-venv."""
    sys.path += sorted(str(path) for path in pathlib.Path("/usr/share/python-wheels").glob("pip-*.whl"))
    from pip._vendor.packaging.version import Version

    return Version


class Tree:
    """A repository with tools/version and commits that do not change it."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "tree"
        (self.path / "tools").mkdir(parents=True)
        for name in ("tools/version", "CMakeLists.txt", ".git_archival.txt", ".gitattributes"):
            shutil.copy(ROOT / name, self.path / name)

    def git(self, *words, at=None):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        if at is not None:
            environment |= {"GIT_COMMITTER_DATE": f"@{at} +0100", "GIT_AUTHOR_DATE": f"@{at} +0100"}
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(("git", *who, *words), cwd=self.path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, at, text):
        (self.path / "file").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", text, at=at)
        return self.versions()

    def versions(self, path=None):
        tool = (path or self.path) / "tools/version"
        return tuple(
            subprocess.run((tool, *option), capture_output=True, text=True, check=True).stdout.strip()
            for option in ((), ("--pep440",))
        )


class Ordered(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="plumb-version-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.tree = Tree(scratch.name)
        self.tree.git("init", "-q")
        self.version = pip_version()

    def assert_later(self, earlier, later):
        greater = subprocess.run(("dpkg", "--compare-versions", later[0], "gt", earlier[0]), check=False)
        self.assertEqual(greater.returncode, 0, (earlier, later))
        self.assertGreater(self.version(later[1]), self.version(earlier[1]))

    def test_every_commit_is_later_than_all_before_it(self):
        day = 1795867200  # 12:00 UTC
        times = (day, day + 1, day + 1, day + 1, day - 5000, day - 4999, day + 2, day + 43200, day + 43210)
        made = [self.tree.commit(at, str(i)) for i, at in enumerate(times)]
        for i, later in enumerate(made):
            self.assertRegex(later[0], f"^{FORM}$")
            for earlier in made[:i]:
                self.assert_later(earlier, later)
        self.assertEqual(len(set(made)), len(made))
        self.assertRegex(made[0][0], r"~git20261128\.120000\.")
        self.assertRegex(made[0][1], r"\.dev20261128120000\+g[0-9a-f]{7}$")
        self.assertRegex(made[4][0], r"~git20261128\.120004\.")  # its own time is before its parent's

    def test_a_merge_is_later_than_both_of_its_sides(self):
        self.tree.commit(1000, "base")
        self.tree.git("checkout", "-qb", "side")
        side = [self.tree.commit(1000, f"side {i}") for i in range(4)][-1]
        self.tree.git("checkout", "-q", "main")
        (self.tree.path / "other").write_text("main")
        self.tree.git("add", "-A")
        self.tree.git("commit", "-qm", "main", at=1000)
        main = self.tree.versions()
        self.tree.git("merge", "-q", "-m", "both", "side", at=900)
        for one in (side, main):
            self.assert_later(one, self.tree.versions())

    def test_a_number_that_is_raised_is_later(self):
        earlier = self.tree.commit(2000000000, "a")
        path = self.tree.path / "CMakeLists.txt"
        path.write_text(re.sub(r"VERSION \d+\.\d+\.\d+", "VERSION 9.0.0", path.read_text(), count=1))
        later = self.tree.commit(1000, "b")
        self.assertRegex(later[0], r"^9\.0\.0~git")
        self.assert_later(earlier, later)

    def test_changes_are_marked_and_come_before_the_next_commit(self):
        clean = self.tree.commit(1000, "a")
        (self.tree.path / "file").write_text("changed")
        dirty = self.tree.versions()
        self.assertEqual(dirty, (clean[0] + ".dirty", clean[1] + ".dirty"))
        self.assert_later(clean, dirty)
        self.assert_later(dirty, self.tree.commit(1000, "b"))

    def test_a_rebuild_is_later_and_comes_before_the_next_commit(self):
        first = self.tree.commit(1000, "a")
        rebuilt = [(f"{first[0]}+b{n}", f"{first[1]}.{n}") for n in (1, 2, 10)]
        order = [first, *rebuilt, self.tree.commit(1000, "b")]
        for earlier, later in zip(order, order[1:]):
            self.assert_later(earlier, later)

    def test_a_shallow_clone_an_archive_and_a_tree_without_git(self):
        for at in (1000, 2000):
            whole = self.tree.commit(at, str(at))
        self.tree.git("clone", "-q", "--depth", "1", f"file://{self.tree.path}", self.folder / "shallow")
        self.assertEqual(self.tree.versions(self.folder / "shallow"), whole)
        (self.folder / "archive").mkdir()
        self.tree.git("archive", "-o", self.folder / "a.tar", "HEAD")
        subprocess.run(("tar", "xf", self.folder / "a.tar", "-C", self.folder / "archive"), check=True)
        self.assertEqual(self.tree.versions(self.folder / "archive"), whole)
        # A copy of the files, also inside another repository, has no commit.
        self.tree.git("init", "-q", self.folder)
        shutil.copytree(self.tree.path, self.folder / "copy", ignore=shutil.ignore_patterns(".git"))
        unknown = self.tree.versions(self.folder / "copy")
        self.assertRegex(unknown[0], r"^\d+\.\d+\.\d+~dev0$")
        self.assertRegex(unknown[1], r"^\d+\.\d+\.\d+\.dev0$")
        self.assert_later(unknown, whole)

    def test_files_are_written_once(self):
        self.tree.commit(1000, "a")
        files = [self.folder / "out" / name for name in ("build_version.cc", "_version.py")]
        write = (self.tree.path / "tools/version", "--write", *files)
        subprocess.run(write, check=True)
        versions = self.tree.versions()
        self.assertIn(f'kBuildVersion[] = "{versions[0]}";', files[0].read_text())
        self.assertIn(f'__version__ = "{versions[1]}"', files[1].read_text())
        for file in files:
            os.utime(file, (1, 1))
        subprocess.run(write, check=True)
        self.assertEqual([file.stat().st_mtime for file in files], [1, 1])


class Built(unittest.TestCase):
    """The version that this build reports."""

    def setUp(self):
        self.text = (BUILD / "version/build_version.cc").read_text()
        self.built = re.search(r'kBuildVersion\[\] = "(.*)";', self.text)[1]

    def printed(self, *command, **options):
        return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout

    def test_programs_library_and_package_agree(self):
        for name in ("plumb", "plumbd"):
            self.assertEqual(self.printed(BUILD / "bin" / name, "--version"), f"{name} {self.built}\n")
        code = "import plumbline; print(plumbline.version(), plumbline.__version__)"
        environment = {**os.environ, "PYTHONPATH": str(BUILD / "python")}
        library, package = self.printed("/usr/bin/python3", "-c", code, env=environment).split()
        self.assertEqual(library, self.built)
        expected = re.sub(r"~git(\d{8})\.(\d{6})\.", r".dev\1\2+g", self.built).replace("~dev0", ".dev0")
        self.assertEqual(package, expected)
        with tempfile.TemporaryDirectory() as record:
            environment |= {"PLUMBLINE_RECORD": record, "PLUMBLINE_SERVER": ""}
            checked = self.printed(BUILD / "bin/plumb-load-check", BUILD / "lib/libplumbline.so", env=environment)
        self.assertEqual(checked.strip(), self.built)

    def test_a_commit_compiles_one_file_and_links_the_products(self):
        """Everything else is the same from commit to commit, so ccache hits."""
        graph = self.printed("ninja", "-C", BUILD, "-t", "query", BUILD / "version/build_version.cc")
        users = re.findall(r"\S+build_version\.cc\.o\b", graph.partition("outputs:")[2])
        self.assertEqual(len(users), 1, graph)
        links = self.printed("ninja", "-C", BUILD, "-t", "query", users[0]).partition("outputs:")[2].split()
        self.assertLessEqual(len({link for link in links if "/" in link and not link.startswith("cmake_object")}), 5, links)

    def test_the_number_is_the_same_everywhere(self):
        (number,) = re.findall(r"project\(Plumbline VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertTrue(self.built.startswith(f"{number}~"), self.built)
        self.assertIn(f'version = "{number}.dev0"', (ROOT / "python/pyproject.toml").read_text())
        self.assertIn(f'__version__ = "{number}.dev0"', (ROOT / "python/plumbline/__init__.py").read_text())
        self.assertIn(f"\n## {number}", (ROOT / "CHANGELOG.md").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
