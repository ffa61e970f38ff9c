"""In a Debian without any file of ours: installs in each way, embeds, audits, serves, runs doctor; removes."""

import re
import shutil
import time
import zipfile

from build_products import TINY
from chroot import FOLDER, ROOT_FILES, own_mounts, root
from make_root import PACKAGES, make_root
from support import (
    Case,
    RECORD,
    ROOT,
    UNPACKED,
    archive,
    expected_findings,
    findings,
    long_form,
    main,
    product,
)

TRAINER = ROOT / "tests/packaging/numpy_trainer.py"
EARLIER = ("0.1.0", "0.2.0~dev0", "0.2.0~git20000101.000000.0000000")
LIMIT_S = 60  # until the first finding
LIBRARIES = re.compile(
    r"lib(grpc|protobuf|absl|upb|spdlog|fmt|jemalloc|prometheus|cpp-httplib|tomlplusplus|cares|re2)"
)


class InRoot(Case):
    files = ROOT_FILES

    @classmethod
    def setUpClass(cls):
        cls.expected = expected_findings()

    def setUp(self):
        if not self.files.exists():
            self.skipTest("there is no root: packaging_root states the reason")
        context = root(self.files)
        self.root = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.root.put(RECORD, "/record")
        self.root.put(TRAINER, "/trainer.py")

    def audit(self, plumb, record="/record"):
        done = self.ok(self.root.run(plumb, "audit", record, "--format", "json", "--quiet"), 1)
        return findings(done.stdout)

    def serve_and_doctor(self, plumb, plumbd):
        with self.root.plumbd(plumbd) as address:
            doctor = self.ok(self.root.run(plumb, "doctor", "--server", address))
            for what in ("library", "server", "finding"):
                self.assertRegex(doctor.stdout, rf"(?m)^ok +{what} ")
            self.ok(self.root.run(plumb, "runs", "--server", address))

    def train(self, python, plumb, plumbd, environment=None):
        """Runs a trainer with numpy, watched live and recorded. The live findings equal those of the record."""
        with self.root.plumbd(plumbd) as address:
            self.ok(
                self.root.run(
                    python, "/trainer.py", "embedded", "/tmp/run", address, environment=environment
                )
            )
            offline = self.audit(plumb, "/tmp/run")
            self.assertIn("causality/moe-future-leak", {rule for rule, _, _ in offline})
            live = self.ok(
                self.root.run(
                    plumb,
                    "audit",
                    "--server",
                    address,
                    "--run",
                    "embedded",
                    "--format",
                    "json",
                    "--quiet",
                ),
                1,
            )
            self.assertEqual(findings(live.stdout), offline)


class Nothing(InRoot):
    def test_nothing_of_ours_is_there(self):
        names = [path.name for path in (self.root.path / "usr").rglob("lib*.so*")]
        self.assertTrue(names)
        self.assertEqual([name for name in names if LIBRARIES.match(name)], [])


class Archive(InRoot):
    def test_two_commands_to_the_first_finding(self):
        self.root.put(archive(), "/plumbline.tar.gz")
        started = time.monotonic()
        self.ok(self.root.run("tar", "xzf", "/plumbline.tar.gz", "-C", "/opt"))
        (folder,) = self.root.path.glob("opt/plumbline-*")
        found = self.audit(f"/opt/{folder.name}/bin/plumb")
        took = time.monotonic() - started
        print(f"  archive: {took:.1f} s to the first finding")
        self.assertEqual(found, self.expected)
        self.assertLessEqual(took, LIMIT_S)

    def test_it_serves_and_is_embedded(self):
        self.root.put(next(UNPACKED.iterdir()), "/opt/plumbline")
        self.serve_and_doctor("/opt/plumbline/bin/plumb", "/opt/plumbline/bin/plumbd")
        self.train(
            "python3",
            "/opt/plumbline/bin/plumb",
            "/opt/plumbline/bin/plumbd",
            {"PYTHONPATH": "/opt/plumbline/lib/python3/dist-packages"},
        )


class WheelInAnEnvironment(InRoot):
    def test_two_commands_to_the_first_finding_then_everything(self):
        wheel = product("*.whl")
        self.root.put(wheel, f"/{wheel.name}")
        self.ok(self.root.run("python3", "-m", "venv", "--system-site-packages", "/venv"))
        started = time.monotonic()
        self.ok(self.root.run("/venv/bin/pip", "install", "--no-index", f"/{wheel.name}"))
        found = self.audit("/venv/bin/plumb")
        took = time.monotonic() - started
        print(f"  wheel: {took:.1f} s to the first finding")
        self.assertEqual(found, self.expected)
        self.assertLessEqual(took, LIMIT_S)
        self.serve_and_doctor("/venv/bin/plumb", "/venv/bin/plumbd")
        self.train("/venv/bin/python", "/venv/bin/plumb", "/venv/bin/plumbd")
        self.ok(self.root.run("/venv/bin/pip", "uninstall", "--yes", "plumbline"))
        left = [path for path in self.root.path.glob("venv/**/*plumb*")]
        self.assertEqual(left, [])


class WheelAfterAnEarlierOne(InRoot):
    def test_pip_takes_a_later_build_for_an_upgrade(self):
        wheel = product("*.whl")
        self.root.put(wheel, f"/{wheel.name}")
        self.ok(self.root.run("python3", "-m", "venv", "/venv"))
        for earlier in ("0.1.0", "0.2.0.dev20000101000000+g0000000"):
            with self.subTest(earlier):
                name = f"plumbline-{earlier}-py3-none-any.whl"
                with zipfile.ZipFile(self.root.path / name, "w") as file:
                    info = f"plumbline-{earlier}.dist-info"
                    file.writestr("plumbline/earlier.py", "")
                    file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: plumbline\nVersion: {earlier}\n")
                    file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                    names = ("plumbline/earlier.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD")
                    file.writestr(f"{info}/RECORD", "".join(f"{one},,\n" for one in names))
                install = ("/venv/bin/pip", "install", "--no-index")
                self.ok(self.root.run(*install, f"/{name}"))
                done = self.ok(self.root.run(*install, f"/{wheel.name}"))
                self.assertIn(f"Successfully uninstalled plumbline-{earlier}", done.stdout)
                self.assertEqual(list(self.root.path.glob("venv/lib/*/site-packages/plumbline/earlier.py")), [])
                code = "import plumbline, importlib.metadata as m; print(plumbline.__version__, m.version('plumbline'))"
                imported, installed = self.ok(self.root.run("/venv/bin/python", "-c", code)).stdout.split()
                self.assertEqual(imported, installed)
                self.assertNotEqual(installed, earlier)


class DebianPackage(InRoot):
    def test_it_comes_and_goes(self):
        before = self.names()
        deb = product("*.deb")
        self.root.put(deb, f"/{deb.name}")
        self.ok(self.root.run("dpkg", "-i", f"/{deb.name}"))
        self.assertEqual(self.audit("plumb"), self.expected)
        self.serve_and_doctor("plumb", "plumbd")
        self.train("python3", "plumb", "plumbd", {"PYTHONDONTWRITEBYTECODE": ""})
        self.ok(self.root.run("plumbd", "--config", "/etc/plumbline/plumbd.toml", "--check-config"))
        # An edited conffile stays until a purge.
        with open(self.root.path / "etc/plumbline/plumbd.toml", "a") as file:
            file.write("# ours\n")
        self.ok(self.root.run("dpkg", "--remove", "plumbline"))
        before.add("etc/gshadow-")  # groupadd's copy of the former file
        self.assertEqual(self.names() - before, {"etc/plumbline", "etc/plumbline/plumbd.toml"})
        self.ok(self.root.run("dpkg", "--purge", "plumbline"))
        self.assertEqual(self.names() - before, set())

    def names(self):
        return {
            str(path.relative_to(self.root.path))
            for top in ("usr", "etc")
            for path in (self.root.path / top).rglob("*")
            if "__pycache__" not in path.parts or "plumbline" in path.parts
        }

    def test_apt_takes_a_later_build_for_an_upgrade(self):
        """Upgrades from an earlier version to this build's. The earlier version contains a file that the later one does not have."""
        deb = product("*.deb")
        self.root.put(deb, f"/{deb.name}")
        for earlier in EARLIER:
            with self.subTest(earlier):
                self.earlier_package(earlier)
                self.ok(self.root.run("dpkg", "--force-downgrade", "-i", "/earlier.deb"))
                self.assertTrue((self.root.path / "usr/share/plumbline/earlier").exists())
                done = self.ok(self.root.run("apt-get", "-o", "APT::Sandbox::User=root", "install", "--yes", f"/{deb.name}"))
                self.assertIn("1 upgraded", done.stdout)
                self.assertFalse((self.root.path / "usr/share/plumbline/earlier").exists())
                version = self.ok(self.root.run("plumbd", "--version")).stdout.split()[1]
                installed = self.ok(self.root.run("dpkg-query", "-W", "-f", "${Version}", "plumbline")).stdout
                self.assertEqual(installed, version)

    def earlier_package(self, version):
        tree = self.root.path / "earlier"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: plumbline\nVersion: {version}\nArchitecture: amd64\nMaintainer: test\nDescription: earlier\n"
        )
        (tree / "usr/share/plumbline").mkdir(parents=True)
        (tree / "usr/share/plumbline/earlier").write_text("")
        self.ok(self.root.run("dpkg-deb", "--build", "/earlier", "/earlier.deb"))

    def test_what_it_depends_on_is_what_it_needs(self):
        deb = product("*.deb")
        self.root.put(deb, "/plumbline.deb")
        fields = self.ok(self.root.run("dpkg-deb", "--field", "/plumbline.deb", "Depends")).stdout
        self.assertEqual(fields.strip(), "libc6 (>= 2.34), libstdc++6 (>= 11), libgcc-s1")


class WithTorch(InRoot):
    files = FOLDER / "files_with_torch"

    def setUp(self):
        try:
            make_root(self.files, (*PACKAGES, "python3-torch"))
        except SystemExit:  # it has printed the reason
            pass
        super().setUp()

    @long_form
    def test_the_demos_trainer(self):
        self.root.put(next(UNPACKED.iterdir()), "/opt/plumbline")
        self.root.put(ROOT / "examples/moe_pytorch", "/moe_pytorch")
        self.root.put(ROOT / "docs", "/text")
        self.ok(
            self.root.run(
                "python3",
                "/moe_pytorch/train.py",
                "--router",
                "score-drop",
                "--run",
                "packaged",
                "--record",
                "/tmp/run",
                "--text",
                "/text/*.md",
                *TINY,
                environment={"PYTHONPATH": "/opt/plumbline/lib/python3/dist-packages"},
            )
        )
        self.assertIn(
            "causality/moe-future-leak",
            {rule for rule, _, _ in self.audit("/opt/plumbline/bin/plumb", "/tmp/run")},
        )


if __name__ == "__main__":
    own_mounts()
    main()
