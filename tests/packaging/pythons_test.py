"""One wheel for all Pythons: the installed ones, a virtual environment, and 3.9 by its grammar."""

import ast
import os
import pathlib
import shutil
import subprocess
import tempfile
import zipfile

from support import (
    BUILD,
    Case,
    PYTHON,
    RECORD,
    clean_environment,
    expected_findings,
    findings,
    main,
    product,
    run,
)

OLDEST = (3, 9)
# Imports, opens, observes without numpy, and prints where the library was found.
TRAINER = """
import plumbline, sys
from plumbline import _library
run = plumbline.init(run="any", record=sys.argv[1], every=1)
for i in range(3):
    with run.step(i):
        run.observe_routing("a", [[0.5, 0.25], [0.1, 0.2]], topk_indices=[[0], [1]], top_k=1)
        run.scalar("loss", 1.0)
run.flush()
run.finish(30)
print(_library.load().path)
"""


def pythons():
    """Returns every Python on PATH, 3.9 or newer, one of each version; also PyPy."""
    found = {}
    folders = [
        pathlib.Path(p)
        for p in (*os.environ.get("PATH", "").split(":"), "/usr/bin", "/usr/local/bin")
        if p
    ]
    folders += sorted(pathlib.Path.home().glob(".pyenv/versions/*/bin"))
    names = ["python3", *(f"python3.{minor}" for minor in range(9, 20)), "pypy3"]
    for path in (folder / name for folder in folders for name in names):
        if not path.exists():
            continue
        done = subprocess.run(
            [path, "-c", "import sys; print(sys.implementation.name, *sys.version_info[:2])"],
            capture_output=True,
            text=True,
        )
        words = done.stdout.split()
        if done.returncode == 0 and (int(words[1]), int(words[2])) >= OLDEST:
            found.setdefault(tuple(words), path)
    return found


class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb wheels "))
        cls.wheel = product("*.whl")
        cls.site = cls.folder / "site"
        with zipfile.ZipFile(cls.wheel) as file:
            file.extractall(cls.site)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def test_every_python_here(self):
        found = pythons()
        self.assertTrue(found)
        for version, python in found.items():
            with self.subTest(" ".join(version)):
                record = self.folder / "-".join(version)
                done = self.ok(
                    run(
                        python,
                        "-c",
                        TRAINER,
                        record,
                        environment=clean_environment(PYTHONPATH=self.site),
                    )
                )
                self.assertRegex(done.stderr, r"\A(plumbline: recorded in .*\n)*\Z")
                self.assertEqual(done.stdout.strip(), f"{self.site}/plumbline/lib/libplumbline.so")
                self.assertTrue(any(record.rglob("*")))
                print(f"  {' '.join(version)}")

    def test_the_grammar_of_the_oldest(self):
        for path in sorted((self.site / "plumbline").rglob("*.py")):
            ast.parse(path.read_text(), str(path), feature_version=OLDEST)

    def test_its_list_of_files(self):
        with zipfile.ZipFile(self.wheel) as file:
            self.assertIsNone(file.testzip())
            (record,) = [name for name in file.namelist() if name.endswith("/RECORD")]
            listed = {line.rsplit(",", 2)[0] for line in file.read(record).decode().splitlines()}
            self.assertEqual(listed, set(file.namelist()))
            modes = {i.filename: i.external_attr >> 16 & 0o777 for i in file.infolist()}
        for name in ("plumb", "plumbd", "plumb-load-check"):
            self.assertEqual(modes[f"plumbline/bin/{name}"], 0o755)

    def test_a_virtual_environment(self):
        self.need_module("ensurepip")
        folder = self.folder / "an environment"
        self.ok(run(PYTHON, "-m", "venv", folder))
        # Runs pip with its Python, because a script whose path has spaces cannot name it in its first line.
        self.ok(
            run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", self.wheel)
        )
        self.ok(run(folder / "bin/python", "-c", TRAINER, self.folder / "venv-run"))
        done = self.ok(run(folder / "bin/plumb", "audit", RECORD, "--format", "json", "--quiet"), 1)
        self.assertEqual(findings(done.stdout), expected_findings())
        for name in ("plumb", "plumbd"):
            self.assertEqual(
                self.ok(run(folder / "bin" / name, "--version")).stdout,
                run(BUILD / "bin" / name, "--version").stdout,
            )
        self.ok(run(folder / "bin/python", "-m", "plumbline", "--help"))


if __name__ == "__main__":
    main()
