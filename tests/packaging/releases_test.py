"""Tests the wheel and the Debian package on other releases of Debian: installed, checked by doctor, embedded in
trainers with numpy and with PyTorch. Runs only with PLUMB_LONG=1, in separate root file systems.

Debian 13 has Python 3.13 and PyTorch 2.6; the next release ("testing") has Python 3.14 and PyTorch 2.14 at the time of
writing.
"""

import sys

import empty_root_test as empty_root
from chroot import FOLDER, own_mounts
from make_root import PACKAGES, SKIPPED, make_root
from support import LONG, ROOT, main, product, stated

# torch2_test needs these too: one root serves both.
WITH_TORCH = (*PACKAGES, "python3-torch", "python3-pytest")
VERSIONS = "import numpy, platform, sys, torch; print(platform.python_version(), numpy.__version__, torch.__version__)"


class Release:
    """The steps on each release. `python`: the version that the release must have, so that the table in docs/install.md
    stays correct."""

    release, python = "", ""

    def setUp(self):
        self.files = FOLDER / self.release
        try:
            make_root(self.files, WITH_TORCH, self.release)
        except SystemExit as why:  # it has printed the reason
            if why.code != SKIPPED:
                raise
            self.skipTest("there is no root: the reason is printed above")
        super().setUp()


class Trainers(Release):
    def test_the_two_lines_with_torch(self):
        wheel = product("*.whl")
        self.root.put(wheel, f"/{wheel.name}")
        self.root.put(ROOT / "tests/python/modern_trainer.py", "/modern_trainer.py")
        self.ok(self.root.run("python3", "-m", "venv", "--system-site-packages", "/venv"))
        self.ok(self.root.run("/venv/bin/pip", "install", "--no-index", f"/{wheel.name}"))
        versions = self.ok(self.root.run("/venv/bin/python", "-c", VERSIONS)).stdout.strip()
        print(f"  {self.release}: Python, numpy, PyTorch {versions}")
        self.assertRegex(versions, rf"^{self.python}\.")
        for kind in ("adamw", "sgd", "checkpoint"):
            with self.subTest(kind):
                plain, watched = (
                    self.root.run("/venv/bin/python", "/modern_trainer.py", kind, "none", record)
                    for record in ("none", f"/tmp/{kind}")
                )
                self.assertTrue(plain.stdout.startswith("rank 0 "), stated(plain))
                self.assertEqual(watched.stdout, plain.stdout, stated(watched))
                audit = self.ok(self.root.run("/venv/bin/plumb", "audit", f"/tmp/{kind}", "-v", "--quiet"))
                self.assertIn("Passed", audit.stdout)


class Debian13:
    release, python = "trixie", "3.13"


class Testing:
    release, python = "testing", "3.14"


class WheelOnDebian13(Debian13, Release, empty_root.WheelInAnEnvironment):
    pass


class PackageOnDebian13(Debian13, Release, empty_root.DebianPackage):
    pass


class TrainersOnDebian13(Debian13, Trainers, empty_root.InRoot):
    pass


class WheelOnTesting(Testing, Release, empty_root.WheelInAnEnvironment):
    pass


class PackageOnTesting(Testing, Release, empty_root.DebianPackage):
    pass


class TrainersOnTesting(Testing, Trainers, empty_root.InRoot):
    pass


if __name__ == "__main__":
    if not LONG:
        print("skipped: only with PLUMB_LONG=1")
        sys.exit(SKIPPED)
    own_mounts()
    main()
