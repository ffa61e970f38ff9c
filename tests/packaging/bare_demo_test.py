"""Runs tools/demo like a new user: in a Debian with git and nothing of ours, from a clean clone, and measures its
times.

With PLUMB_LONG=1. The table that it prints is that of docs/measurements/demo.md, and is stored in bare_demo.md in the
build folder. PLUMB_LIMIT_S=360 also fails a run that takes longer; use it only on an idle machine.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import time

from chroot import ENVIRONMENT, FOLDER, ROOT_FILES, own_mounts, root
from make_root import SKIPPED, acquire_options, make_root
from support import Case, ROOT, long_form, main

sys.path.insert(0, str(ROOT / "tests/examples"))
from finding_of_readme import differences, finding_of_readme

FILES = FOLDER / "bare"
PACKAGES = ("apt", "ca-certificates", "git")
LIMIT_S = float(os.environ.get("PLUMB_LIMIT_S", "inf"))
HEADINGS = re.compile(r"(\d/4  [^/'0-9]*|Done)")


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Demo:
    """Runs it in the root; stores its output, and the time of each heading."""

    def __init__(self, one):
        began, cpu = time.monotonic(), cpu_seconds()
        self.lines, self.headings = [], []
        process = subprocess.Popen(
            ["chroot", one.path, "/root/plumbline/tools/demo"],
            env={name: value for name, value in ENVIRONMENT.items() if name != "OMP_NUM_THREADS"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in process.stdout:
            print(f"{time.monotonic() - began:6.1f}  {line}", end="", flush=True)
            self.lines.append(line)
            if found := HEADINGS.match(line):
                self.headings.append((time.monotonic() - began, found.group(1).strip()))
        self.status = process.wait()
        self.seconds, self.cpu_seconds = time.monotonic() - began, cpu_seconds() - cpu
        self.printed = "".join(self.lines)

    def parts(self):
        """Returns (name, seconds) of all phases, in order."""
        ends = [at for at, _ in self.headings[1:]] + [self.seconds]
        named = [(name, end - at) for (at, name), end in zip(self.headings, ends)]
        setting_up = re.search(r"packages (\d+) s, build (\d+) s", self.printed)
        if setting_up:
            packages, build = map(int, setting_up.groups())
            named[:1] = [("packages of the build", packages), ("build, PyTorch's packages next to it", build),
                         ("waiting for PyTorch's packages", named[0][1] - packages - build)]
        return named

    def table(self):
        cores = os.cpu_count()
        rows = [f"| {name} | {seconds:.0f} |" for name, seconds in self.parts()]
        rows += [f"| all | {self.seconds:.0f} |", f"| CPU, user and system | {self.cpu_seconds:.0f} |",
                 f"| CPU / cores ({cores}) | {self.cpu_seconds / cores:.0f} |"]
        return "\n".join(["| part | seconds |", "|---|---|", *rows]) + "\n"


@long_form
class BareDemo(Case):
    def setUp(self):
        try:
            make_root(FILES, PACKAGES)
        except SystemExit as why:  # it has printed the reason
            if why.code != SKIPPED:
                raise
            self.skipTest("there is no root: the reason is above")
        context = root(FILES)
        self.root = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        options = [f"{option.removeprefix('--aptopt=')}\n" for option in acquire_options()]
        (self.root.path / "etc/apt/apt.conf.d/90mirror").write_text("".join(options))
        shutil.copy("/etc/resolv.conf", self.root.path / "etc/resolv.conf")
        subprocess.run(["git", "clone", "--quiet", ROOT.as_uri(), self.root.path / "root/plumbline"], check=True)

    def test_it_shows_what_the_first_page_shows(self):
        demo = Demo(self.root)
        self.assertEqual(demo.status, 0, demo.printed)
        (ROOT_FILES.parent / "bare_demo.md").write_text(demo.table())
        print(demo.table())
        self.assertEqual([], differences(demo.printed, finding_of_readme()))
        opened = re.findall(r"incident \d+ opened\n\w+ +(\S+)", demo.printed)
        self.assertEqual(["causality/moe-batch-dependence", "causality/moe-future-leak"], sorted(opened))
        self.assertLessEqual(demo.seconds, LIMIT_S)


if __name__ == "__main__":
    own_mounts()
    main()
