"""Plumbline next to older libraries in one process: Debian 11's Python 3.9, protobuf 3.12, gRPC 1.30 and PyTorch 1.7,
on the glibc of this machine's Debian; and under PyPy.

Runs only with PLUMB_LONG=1, in separate root file systems.
"""

import pathlib
import shutil
import sys

from chroot import FOLDER, own_mounts, root
from make_root import PACKAGES, SKIPPED, codename, make_root
from support import Case, ROOT, long_form, main, product, stated

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import neighbours_test as neighbours  # noqa: E402  cases of other libraries in our process
import pythons_test as pythons  # noqa: E402

RELEASE = "bullseye"
OLD, PYPY = FOLDER / RELEASE, FOLDER / "pypy"
NEWER = ("libc6", "libc-bin", "libstdc++6", "libgcc-s1")  # from this machine's release: all required packages
THEIRS = ("python3-torch", "python3-grpcio", "python3-protobuf")
# Visible to all libraries, as in a program that was linked with them.
GLOBAL = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\n"
# PyTorch 1.7 aborts when it is unloaded under a newer glibc, also without Plumbline.
LEAVE = "import os, sys; sys.stdout.flush(); os._exit(0)\n"
VERSIONS = """
import google.protobuf, grpc, sys, torch
print(*sys.version_info[:2], google.protobuf.__version__, grpc.__version__, torch.__version__)
"""


def older_root(files, packages, **options):
    try:
        make_root(files, packages, **options)
    except SystemExit as why:  # it has printed the reason
        if why.code != SKIPPED:
            raise
        return None
    return root(files)


class InRoot(Case):
    def enter(self, context):
        if context is None:
            self.skipTest("there is no root: the reason is printed above")
        self.root = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        wheel = product("*.whl")
        site = self.root.path / "site"
        shutil.unpack_archive(wheel, site, "zip")
        for path in (site / "plumbline/bin").iterdir():
            path.chmod(0o755)

    def python(self, code, *words, python="python3", **environment):
        environment = {"PYTHONPATH": "/site", "PYTHONDONTWRITEBYTECODE": "1", **environment}
        return self.root.run(python, "-c", code, *words, environment=environment)


class Older(InRoot):
    def setUp(self):
        packages = (*(f"{name}/{codename()}" for name in NEWER), *PACKAGES[1:], *THEIRS)
        self.enter(older_root(OLD, packages, release=RELEASE, adjacent=codename()))

    def both_orders(self, name, theirs, head="", foot=""):
        with self.root.plumbd("/site/plumbline/bin/plumbd") as address:
            for order, (first, second) in {
                "before": (theirs, neighbours.OURS),
                "after": (neighbours.OURS, theirs),
            }.items():
                with self.subTest(f"{name} {order}"):
                    early = "ours(0)" if second is theirs else ""
                    record = f"/tmp/{name}-{order}"
                    code = f"{head}RECORD, SERVER = {record!r}, {address!r}\n"
                    code += neighbours.USE.format(first=first, second=second, early=early) + foot
                    done = self.ok(self.python(code))
                    self.assertEqual(done.stdout, "done\n", stated(done))
                    self.assertTrue(any((self.root.path / record.lstrip("/")).iterdir()))

    @long_form
    def test_they_are_the_older_ones(self):
        done = self.ok(self.python(VERSIONS + LEAVE))
        print(" ", done.stdout.strip())
        self.assertRegex(done.stdout, r"^3 9 3\.12\.\S+ 1\.30\.\S+ 1\.7\.")

    @long_form
    def test_pip_takes_the_wheel(self):
        wheel = product("*.whl")
        self.root.put(wheel, f"/{wheel.name}")
        self.ok(self.root.run("python3", "-m", "venv", "/venv"))
        self.ok(self.root.run("/venv/bin/pip", "install", "--quiet", "--no-index", f"/{wheel.name}"))
        self.ok(self.root.run("/venv/bin/python", "-c", pythons.TRAINER, "/tmp/installed"))
        self.ok(self.root.run("/venv/bin/plumb", "audit", "/tmp/installed", "--quiet"))

    @long_form
    def test_libraries(self):
        cpp = neighbours.PROTOBUF + "assert api_implementation.Type() == 'cpp'\n"
        for head, how in (("", ""), (GLOBAL, "-global")):
            self.both_orders("protobuf" + how, cpp, head)
            self.both_orders("grpc" + how, neighbours.GRPC, head)
            self.both_orders("openssl" + how, neighbours.OPENSSL, head)
            self.both_orders("torch" + how, neighbours.TORCH, head, LEAVE)

    @long_form
    def test_the_two_lines(self):
        """run.watch under PyTorch 1.7: no exception, no message, the same losses, and the record is judged."""
        for name in ("modern_trainer.py",):
            self.root.put(ROOT / "tests/python" / name, f"/{name}")
        for kind in ("adamw", "sgd", "lbfgs", "checkpoint-reentrant"):
            with self.subTest(kind):
                environment = {"PYTHONPATH": "/site"}
                plain, watched = (
                    self.root.run("python3", "/modern_trainer.py", kind, "none", record, environment=environment)
                    for record in ("none", f"/tmp/{kind}")
                )  # fmt: skip
                self.assertTrue(plain.stdout.startswith("rank 0 "), stated(plain))
                self.assertEqual(watched.stdout, plain.stdout, stated(watched))
                self.assertNotIn("plumbline: watch:", watched.stderr)
                audit = self.ok(self.root.run("/site/plumbline/bin/plumb", "audit", f"/tmp/{kind}", "-v", "--quiet"))
                self.assertIn("Passed", audit.stdout)
                self.assertNotIn("warning", audit.stdout.partition("Passed")[0])


class PyPy(InRoot):
    @long_form
    def test_the_wheel(self):
        self.enter(older_root(PYPY, (*PACKAGES, "pypy3"), release=codename()))
        done = self.ok(self.python(pythons.TRAINER, "/tmp/run", python="pypy3"))
        self.assertRegex(done.stderr, r"\A(plumbline: recorded in .*\n)*\Z")
        self.assertEqual(done.stdout.strip(), "/site/plumbline/lib/libplumbline.so")
        self.ok(self.root.run("/site/plumbline/bin/plumb", "audit", "/tmp/run", "--quiet"))


class Snippets(Case):
    def test_they_are_python_of_3_9(self):
        """The files that run in those roots compile. The runs take minutes."""
        code = "\n".join((neighbours.PROTOBUF, neighbours.GRPC, neighbours.OPENSSL, neighbours.TORCH, neighbours.OURS, GLOBAL, LEAVE))
        pythons.ast.parse(code, feature_version=pythons.OLDEST)
        for name in ("modern_trainer.py",):
            pythons.ast.parse((ROOT / "tests/python" / name).read_text(), feature_version=pythons.OLDEST)


if __name__ == "__main__":
    own_mounts()
    main()
