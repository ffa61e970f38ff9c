#!/usr/bin/env python3
"""ccache stores what nvcc compiles: the command of a kernel's object, on a small file, compiles once and is then a hit,
also in another folder. A change that only one architecture sees compiles again, to another object."""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
OBJECT = "kernels/CMakeFiles/plumb_kernels.dir/device/pack.cu.o"
KERNEL = """#include "value.h"
__global__ void write(int* out) { *out = VALUE; }
"""
HEADER = """#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == {architecture}
#define VALUE {value}
#else
#define VALUE 1
#endif
"""


def command_of(name):
    """Returns the words of the build's command for object `name`."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", name], capture_output=True, text=True, check=True)
    return shlex.split(done.stdout.strip().splitlines()[-1])


class Nvcc(unittest.TestCase):
    def setUp(self):
        self.command = command_of(OBJECT)
        if not any(word.endswith("ccache") for word in self.command):
            self.skipTest("this build is without ccache")
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="plumb-ccache-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def compiled(self, folder, value, architecture=90):
        """Returns the digest of the object, whether it was a hit, and ccache's log."""
        folder = self.work / folder
        folder.mkdir(exist_ok=True)
        (folder / "value.h").write_text(HEADER.format(architecture=architecture, value=value))
        (folder / "small.cu").write_text(KERNEL)
        places = {"-o": "small.o", "-MF": "small.o.d", "-MT": "small.o", "-c": "small.cu"}
        words = [places.get(before, word) for before, word in zip(["", *self.command], self.command)]
        log = folder / "stats.log"
        log.unlink(missing_ok=True)
        env = {**os.environ, "CCACHE_DIR": str(self.work / "cache"), "CCACHE_STATSLOG": str(log)}
        done = subprocess.run([*words, "-I."], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        reported = log.read_text().split()
        return hashlib.sha256((folder / "small.o").read_bytes()).hexdigest(), "direct_cache_hit" in reported, reported

    def test_a_kernel_is_compiled_once(self):
        first, hit, reported = self.compiled("one", 7)
        self.assertFalse(hit, reported)
        for folder in ("one", "two"):
            again, hit, reported = self.compiled(folder, 7)
            self.assertTrue(hit, reported)
            self.assertEqual(first, again)
        changed, hit, reported = self.compiled("one", 8)  # only for sm_90, which is not the first one
        self.assertFalse(hit, reported)
        self.assertNotEqual(first, changed)


if __name__ == "__main__":
    unittest.main()
