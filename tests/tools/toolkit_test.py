"""Tests tools/toolkit/install with a few small wheels instead of NVIDIA's, and tools/test on a machine without a CUDA
toolkit."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALL = ROOT / "tools" / "toolkit" / "install"
NOWHERE = "http://127.0.0.1:9/simple"  # the discard port: no process listens


def write_wheel(folder, name, files):
    """Writes a wheel of version 1.0 with {path: text}; returns its line for a list of requirements."""
    package = name.replace("-", "_")
    info = f"{package}-1.0.dist-info"
    path = folder / f"{package}-1.0-py3-none-any.whl"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{file},,{len(text)}\n" for file, text in files.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-toolkit-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)


class Install(Case):
    def setUp(self):
        super().setUp()
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        self.cache = self.folder / "cache"
        self.pins = self.folder / "requirements.txt"
        shared = "nvidia/cu13/include/shared.h"  # two of NVIDIA's wheels contain one path, with different sizes
        self.pins.write_text("# what compiles\n" + write_wheel(self.wheels, "nvidia-cuda-nvcc", {
            "nvidia/cu13/bin/nvcc": "#!/bin/sh\n", shared: "long text\n"}) + write_wheel(
                self.wheels, "nvidia-cublas", {"nvidia/cu13/lib/libcublas.so.13": "ELF", shared: "\n"}))

    def command(self, *options):
        return [INSTALL, "--requirements", self.pins, *options]

    def environment(self, **more):
        return {**os.environ, "PLUMBLINE_CACHE": str(self.cache), "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.wheels), **more}

    def call(self, *options, **environment):
        return subprocess.run(self.command(*options), env=self.environment(**environment), text=True,
                              capture_output=True, timeout=300, check=False)

    def offline(self, *options):
        return self.call(*options, PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=NOWHERE, PIP_EXTRA_INDEX_URL="")

    def installed(self):
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        where = self.call("--where")
        self.assertEqual(where.returncode, 0, where.stderr)
        return pathlib.Path(where.stdout.strip())

    def kept(self):
        return sorted(path.name for path in self.cache.iterdir() if path.name != ".cuda.lock")

    def test_wheels_become_a_toolkit_once(self):
        self.assertEqual(self.call("--where").returncode, 1)
        toolkit = self.installed()
        self.assertTrue(os.access(toolkit / "bin" / "nvcc", os.R_OK))
        self.assertEqual((toolkit / "lib64").resolve(), (toolkit / "lib").resolve())
        self.assertEqual(os.readlink(toolkit / "lib" / "libcublas.so"), "libcublas.so.13")
        self.assertEqual(len(self.kept()), 1)
        before = toolkit.stat().st_mtime_ns
        again = self.offline()  # nothing is fetched
        self.assertEqual((again.returncode, again.stdout, again.stderr), (0, "", ""))
        self.assertEqual(toolkit.stat().st_mtime_ns, before)

    def test_a_damaged_cache_is_made_anew(self):
        toolkit = self.installed()
        folder = toolkit.parents[1]
        record = folder / "nvidia_cublas-1.0.dist-info" / "RECORD"
        damages = {
            "a file is missing": (toolkit / "bin" / "nvcc").unlink,
            "a file is cut short": lambda: (toolkit / "lib" / "libcublas.so.13").write_text("E"),
            "a link is missing": (toolkit / "lib" / "libcublas.so").unlink,
            "a record is cut off": lambda: record.write_text("nvidia/cu13/bin/nvcc,,10\n"),
            "a record is empty": lambda: record.write_text(""),
        }
        shutil.copytree(folder, self.folder / "whole", symlinks=True)
        for name, damage in damages.items():
            with self.subTest(name):
                shutil.rmtree(folder)
                shutil.copytree(self.folder / "whole", folder, symlinks=True)
                self.assertEqual(self.call("--where").returncode, 0)
                damage()
                self.assertEqual(self.call("--where").returncode, 1)
        (self.cache / ".cuda-part-left").mkdir()  # from a process that was killed
        self.assertEqual(self.installed(), toolkit)
        self.assertEqual(self.kept(), [folder.name])

    def test_what_cannot_be_repaired_stays_refused(self):
        toolkit = self.installed()
        (toolkit / "bin" / "nvcc").unlink()
        self.assertEqual(self.offline().returncode, 1)
        self.assertEqual(self.call("--where").returncode, 1)
        self.assertEqual(len(self.kept()), 1)

    def test_a_wheel_that_is_not_the_pinned_one_is_refused(self):
        write_wheel(self.wheels, "nvidia-cublas", {"nvidia/cu13/lib/libcublas.so.13": "other"})
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("a wheel differs from its pinned sha256; nothing was installed", done.stderr)
        self.assertEqual(self.kept(), [])

    def test_without_a_registry_it_states_so(self):
        done = self.offline()
        self.assertEqual(done.returncode, 1)
        self.assertIn("the package registry cannot be reached", done.stderr)
        self.assertEqual(self.kept(), [])

    def test_two_at_once_fetch_once(self):
        both = [subprocess.Popen(self.command(), env=self.environment(), stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        stated = [process.communicate(timeout=300)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], stated)
        self.assertEqual("".join(stated).count("fetching 2 wheels"), 1)


class WithoutKernels(Case):
    """Runs tools/test in a tree where cmake, ctest and the other tools are stubs."""

    def setUp(self):
        super().setUp()
        (self.folder / "tools").mkdir()
        for path in (ROOT / "tools").iterdir():
            if path.is_file():
                self.stub(self.folder / "tools" / path.name, f'echo "$0 $*" >>{self.folder}/calls\n')
        shutil.copy(ROOT / "tools" / "test", self.folder / "tools" / "test")
        (self.folder / "bin").mkdir()
        self.stub(self.folder / "bin" / "ctest", 'echo "1/1 Test #1: a ...   Passed    0.10 sec"\n')

    def stub(self, path, text):
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def run_test(self, found, *options):
        stated = (ROOT / "cmake" / "PlumblinePackages.cmake").read_text()
        self.assertIn('message(STATUS "Plumbline: device kernels ${PLUMBLINE_HAVE_CUDA}")', stated)
        self.stub(self.folder / "bin" / "cmake", f'echo "cmake $*" >>{self.folder}/calls\n'
                  f'echo "-- Plumbline: device kernels {found}"\n')
        (self.folder / "calls").write_text("")
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run([self.folder / "tools" / "test", *options], env=environment, text=True,
                              capture_output=True, timeout=60, check=False)
        return done, (self.folder / "calls").read_text()

    def test_kernels_that_are_off_fail(self):
        done, calls = self.run_test("OFF")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the device kernels cannot be built", done.stderr)
        self.assertNotIn("passed", done.stdout)
        self.assertNotIn("--build", calls)

    def test_kernels_that_are_on_are_tested(self):
        done, calls = self.run_test("ON")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("-DPLUMBLINE_CUDA=ON", calls)
        self.assertIn("tools/setup \n", calls)

    def test_an_option_goes_without(self):
        done, calls = self.run_test("OFF", "--without-kernels")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("-DPLUMBLINE_CUDA=OFF", calls)
        self.assertIn("tools/setup --without-cuda\n", calls)


if __name__ == "__main__":
    unittest.main()
