"""Helpers of the package tests: the places of the products, and running a program with them."""

import contextlib
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PLUMBLINE_BUILD_DIR", ROOT / "build/dev"))
PRODUCTS = BUILD / "packages"
UNPACKED = PRODUCTS / "unpacked"  # the archive, as a user unpacks it
RECORD = PRODUCTS / "record"  # of a trainer whose router leaks
PYTHON = "/usr/bin/python3"  # Debian's PyTorch and numpy are installed for this one
LONG = os.environ.get("PLUMB_LONG") == "1"
PATIENCE_S = 240

sys.path.insert(0, str(ROOT / "packaging/bundle"))


def product(pattern):
    found = sorted(PRODUCTS.glob(pattern))
    if len(found) != 1:
        raise RuntimeError(
            f"{PRODUCTS}/{pattern}: expected one file, found {[p.name for p in found]}; "
            "the test packaging_build makes them"
        )
    return found[0]


def archive():
    return product("plumbline-*-linux-x86_64.tar.gz")


def unpack(folder):
    """Unpacks the archive below `folder`; returns the prefix."""
    with tarfile.open(archive()) as file:
        file.extractall(folder)
    return next(pathlib.Path(folder).glob("plumbline-*"))


def clean_environment(**extra):
    """Returns a user's environment, without variables of the build."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PLUMBLINE_", "PYTHON", "LD_", "SLURM_", "OMPI_"))
    }
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{k: str(v) for k, v in extra.items()},
    }


def run(*command, environment=None, **options):
    options.setdefault("timeout", PATIENCE_S)
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=clean_environment() if environment is None else environment,
        **options,
    )


@contextlib.contextmanager
def plumbd(prefix, *options, environment=None):
    """Runs a server of the tree: yields (its address, its process id)."""
    with tempfile.TemporaryDirectory(prefix="plumb-server-") as folder:
        port = pathlib.Path(folder) / "port"
        command = [prefix / "bin/plumbd", "--grpc", "127.0.0.1:0", "--http", "off", "--port-file", port]
        process = subprocess.Popen(
            [*command, *options],
            env=clean_environment() if environment is None else environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            ends = time.monotonic() + 60
            while not (port.exists() and port.read_text().strip()):
                if process.poll() is not None or time.monotonic() > ends:
                    process.kill()
                    raise RuntimeError(f"plumbd does not listen: {process.communicate()[1]}")
                time.sleep(0.1)
            yield port.read_text().strip(), process.pid
        finally:
            process.terminate()
            process.communicate(timeout=60)


def long_form(test):
    """A test that takes minutes: it exists only with PLUMB_LONG=1."""
    return test if LONG else None


def stated(done):
    return f"status {done.returncode}\n{done.stdout}{done.stderr}"


def findings(report):
    """Returns (rule, fingerprint, strength) of each finding of a JSON report."""
    return sorted(
        (f["rule"], f["fingerprint"], f["strength"]) for f in json.loads(report)["findings"]
    )


def expected_findings():
    """Returns the findings of the build's plumb in the record."""
    return findings(run(BUILD / "bin/plumb", "audit", RECORD, "--format", "json", "--quiet").stdout)


class Case(unittest.TestCase):
    maxDiff = None

    def ok(self, done, status=0):
        self.assertEqual(done.returncode, status, stated(done))
        return done

    def need(self, program):
        self.assertIsNotNone(shutil.which(program), f"tools/setup installs {program}")

    def need_module(self, name, python=PYTHON):
        self.ok(run(python, "-c", f"import {name}"))


def main():
    """Runs the tests of the program. If each of them is skipped, or has only a long form, CTest counts it as skipped."""
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0:
        print("skipped: only with PLUMB_LONG=1")
    if result.testsRun == len(result.skipped):
        sys.exit(77)
