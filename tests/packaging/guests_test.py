"""Runs the tests of tests/agent and tests/python about the library inside a trainer's process with the packaged
libraries.

They are the same test programs: they find libplumbline.so by RUNPATH, before which the loader uses LD_LIBRARY_PATH, and
the agent next to it. In Python it is the package on PYTHONPATH.
"""

import pathlib
import re

from support import (
    BUILD,
    Case,
    PYTHON,
    ROOT,
    UNPACKED,
    clean_environment,
    long_form,
    main,
    run,
)

PREFIX = next(UNPACKED.iterdir())
# Allocators (jemalloc, tcmalloc, mimalloc preloaded), forks, threads, deep binding, a trainer's own protobuf.
PROGRAMS = (
    "facade_test",
    "facade_agent_test",
    "facade_clash_test",
    "facade_check_router_test",
    "facade_fingerprint_test",
    "facade_device_test",
)
# From tests/python; those that need PyTorch take long.
FILES = {"guest_test.py": "agent or next_to"}
LONG_FILES = (
    "opening_test.py",
    "calls_test.py",
    "endings_test.py",
    "live_endings_test.py",
    "watch_test.py",
    "watch_faults_test.py",
    "ddp_hooks_test.py",
    "observe_test.py",
)
# It needs the build's library; layout_test checks which library a package finds.
OF_THE_BUILD = "not test_package_finds_the_library_without_help"


def stand_in():
    (path,) = BUILD.glob("tests/agent/facade/libtest_agent.so")
    return path


class Programs(Case):
    def test_they_hold_for_the_package(self):
        environment = clean_environment(LD_LIBRARY_PATH=PREFIX / "lib")
        for name in PROGRAMS:
            program = BUILD / "bin" / name
            if not program.exists():
                continue
            with self.subTest(name):
                found = dict(
                    re.findall(
                        r"(libplumbline\S*) => (\S+)",
                        run("ldd", program, environment=environment).stdout,
                    )
                )
                for library, path in found.items():
                    self.assertEqual(pathlib.Path(path), PREFIX / "lib" / library)
                done = self.ok(run(program, environment=environment, timeout=600))
                self.assertIn("[  PASSED  ]", done.stdout)

    def test_the_cxx_trainer(self):
        """Runs examples/moe_cpp, linked with the build's library, with the package's library."""
        program = BUILD / "bin/moe_cpp"
        self.ok(
            run(program, "--help", environment=clean_environment(LD_LIBRARY_PATH=PREFIX / "lib"))
        )


class Python(Case):
    def pytest(self, name, chosen=""):
        self.need_module("pytest")
        environment = clean_environment(
            PYTHONPATH=PREFIX / "lib/python3/dist-packages",
            PLUMBLINE_BUILD_DIR=BUILD,
            TEST_AGENT=stand_in(),
            PLUMB_LONG="",  # tests/python tests more seeds; here the libraries vary
        )
        words = ["-k", chosen] if chosen else []
        done = self.ok(
            run(
                PYTHON,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                ROOT / "tests/python" / name,
                *words,
                environment=environment,
                timeout=900,
            )
        )
        print(" ", name, done.stdout.strip().splitlines()[-1])

    def test_guests(self):
        self.need_module("torch")
        for name, chosen in FILES.items():
            self.pytest(name, chosen)

    @long_form
    def test_the_rest(self):
        for name in LONG_FILES:
            with self.subTest(name):
                self.pytest(name, OF_THE_BUILD)


if __name__ == "__main__":
    main()
