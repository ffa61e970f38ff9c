"""Tests the wheel under the PyTorch 2 and the Python of the next Debian: the same as tests/python with torch."""

import re
import shutil

from chroot import FOLDER, own_mounts, root
from make_root import PACKAGES, SKIPPED, codename, make_root, sources_of
from support import BUILD, Case, ROOT, long_form, main, product, run

RELEASE = "trixie"
FILES = FOLDER / RELEASE
# Tests that depend on torch's version, and modern_test, which needs this version.
TESTS = (
    "modern_test",
    "watch_test",
    "watch_faults_test",
    "watch_pulse_test",
    "watch_routers_test",
    "watch_router_verdicts_test",
    "ddp_hooks_test",
    "accumulation_test",
    "observe_test",
    "guest_test",
    "adapters_test",
    "model_doctor_test",
    "consequence_test",
    "fingerprint_test",
    "endings_test",
    "live_endings_test",
    "ranks_test",
    "check_router_test",
    "scaled_product_test",
    "tensors_test",
    "calls_test",
)
# tests/python tests more seeds; here torch varies.
LONG_TESTS = ("modern_test",)
# They need a compiler, or programs that no package contains.
NOT_HERE = "not layouts_match_the_header"
SYSTEM = re.compile(r"/(ld-linux|lib(c|m|stdc\+\+|gcc_s|dl|pthread|rt))[-.]")


class Source(Case):
    def test_the_same_mirror_another_release(self):
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = sources_of(RELEASE)
        if not path:
            self.skipTest("this machine has no package source of Debian")
        text = path.read_text()
        self.assertIn(RELEASE, text)
        self.assertNotIn(codename(), re.sub(r"(?m)^#.*|Signed-By.*|signed-by[^ \]]*", "", text))


class UnderTorch2(Case):
    def setUp(self):
        try:
            make_root(FILES, (*PACKAGES, "python3-torch", "python3-pytest"), RELEASE)
        except SystemExit as why:  # it has printed the reason
            if why.code != SKIPPED:
                raise
            self.skipTest("there is no root: the reason is printed above")
        context = root(FILES)
        self.root = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.install()

    def install(self):
        wheel = product("*.whl")
        self.root.put(wheel, f"/{wheel.name}")
        self.ok(self.root.run("python3", "-m", "venv", "--system-site-packages", "/venv"))
        self.ok(self.root.run("/venv/bin/pip", "install", "--quiet", "--no-index", f"/{wheel.name}"))
        (package,) = self.root.path.glob("venv/lib/python3*/site-packages/plumbline")
        self.site = "/" + str(package.parent.relative_to(self.root.path))
        # The parts of a build folder that the tests need.
        (self.root.path / "build").mkdir()
        for name in ("lib", "bin"):
            (self.root.path / "build" / name).symlink_to(f"{self.site}/plumbline/{name}")
        self.carry(BUILD / "bin/agent_record_json", package / "bin")
        (agent,) = BUILD.glob("tests/agent/facade/libtest_agent.so")
        self.root.put(agent, "/libtest_agent.so")
        adjacent = agent.parent / "libtest_dependency.so"  # at the path that the build gave
        self.root.put(adjacent, str(adjacent))
        self.root.put(ROOT / "examples/moe_pytorch", "/examples/moe_pytorch")
        self.root.put(ROOT / "tests/python", "/tests/python")
        self.root.put(ROOT / "agent/include", "/agent/include")

    def carry(self, program, folder):
        """Copies a program that reads records for the tests and is in no package, with the libraries of this machine."""
        needs = re.findall(r"=> (/\S+)", run("ldd", program).stdout)
        adjacent = self.root.path / "carried"
        adjacent.mkdir()
        for path in (program, *(p for p in needs if not SYSTEM.search(p))):
            shutil.copy(path, adjacent)
        script = folder / program.name
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH=/carried exec /carried/{program.name} "$@"\n')
        script.chmod(0o755)

    @long_form
    def test_what_runs_here(self):
        """The hooked API exists, and the grammar is this Python's."""
        code = "import torch, plumbline, sys; assert torch.__version__ >= '2'; print(torch.__version__, *sys.version_info[:2])"
        print(" ", self.ok(self.root.run("/venv/bin/python", "-c", code)).stdout.strip())

    @long_form
    def test_what_tests_python_proves(self):
        for name in TESTS:
            with self.subTest(name):
                done = self.pytest(name)
                print(" ", name, done.stdout.strip().splitlines()[-1], flush=True)
                self.ok(done)

    def pytest(self, name):
        environment = {
            "PYTHONPATH": self.site,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PLUMBLINE_BUILD_DIR": "/build",
            "TEST_AGENT": "/libtest_agent.so",
            "PLUMB_LONG": "1" if name in LONG_TESTS else "",
        }
        words = ("-q", "--tb=short", "-p", "no:cacheprovider", "-k", NOT_HERE)
        path = f"/tests/python/{name}.py"
        return self.root.run(
            "/venv/bin/python", "-m", "pytest", *words, path, environment=environment, timeout=1800
        )


if __name__ == "__main__":
    own_mounts()
    main()
