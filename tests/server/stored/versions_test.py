"""Reads the files of earlier versions with this build: a run record with plumb audit; a journal with its
checkpoint and its store with plumbd; a journal alone, which plumbd judges again. store.py made the files of
each version with that version's programs.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from store import RUN, findings, serve, stop

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PATIENCE_S = 60


def stored_versions():
    return sorted(path.name for path in HERE.iterdir() if (path / "findings.json").exists())


def plumb(*words, status=0):
    done = subprocess.run([BUILD / "bin/plumb", *words], capture_output=True, text=True)
    if done.returncode != status:
        raise AssertionError(f"plumb {' '.join(map(str, words))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Stored(unittest.TestCase):
    """One version; `load_tests` makes one test of each."""

    def __init__(self, method, version=""):
        super().__init__(method)
        self.version = version

    def __str__(self):
        return f"{self._testMethodName} of {self.version}"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="plumb-stored-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.expected = json.loads((HERE / self.version / "findings.json").read_text())
        self.assertIn("causality/moe-future-leak", [rule for rule, _, _ in self.expected])

    def unpack(self, name):
        with tarfile.open(HERE / self.version / f"{name}.tar.xz") as file:
            file.extractall(self.folder)
        return self.folder / name

    def server(self, data):
        process, address = serve(BUILD, data, self.folder / "port")
        self.addCleanup(stop, process)
        return address

    def judged(self, address):
        """Returns the findings of the run on the server, once it is judged."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            done = subprocess.run([BUILD / "bin/plumb", "query", "--server", address], capture_output=True, text=True)
            if done.returncode == 0 and "moe-future-leak" in done.stdout:
                return
            time.sleep(0.2)
        self.fail(f"no incident of the stored run: {done.stdout}{done.stderr}")

    def query(self, address):
        self.judged(address)
        self.assertIn(RUN, plumb("runs", "--server", address))
        report = plumb("audit", "--server", address, "--run", RUN, "--format", "json", "--quiet", status=1)
        self.assertEqual(findings(report), self.expected)
        series = plumb("query", "series", "loss", "--run", RUN, "--server", address)
        for value in ("1.99", "1.98", "nan"):
            self.assertIn(value, series)

    def test_a_run_record(self):
        report = plumb("audit", self.unpack("record"), "--format", "json", "--quiet", status=1)
        self.assertEqual(findings(report), self.expected)

    def test_a_journal_with_its_checkpoint_and_store(self):
        data = self.unpack("data")
        self.assertTrue((data / "store.sqlite").exists())
        self.query(self.server(data))
        self.assertEqual(list(data.glob("*.set-aside*")), [], "the store of the earlier version was not read")

    def test_a_journal_alone(self):
        data = self.unpack("data")
        for path in data.iterdir():
            if path.name != "journal":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.query(self.server(data))


def load_tests(loader, *_):
    versions = stored_versions()
    if not versions:
        sys.exit(f"{HERE} holds no version")
    return unittest.TestSuite(Stored(name, version) for version in versions for name in loader.getTestCaseNames(Stored))


if __name__ == "__main__":
    unittest.main(verbosity=2)
