"""packaging/Containerfile: its steps, one by one, in a root of our own; by a builder where there is
one."""

import json
import os
import re
import shutil
import tempfile

from chroot import ROOT_FILES, own_mounts, root
from support import Case, ROOT, RECORD, archive, long_form, main, run

FILE = ROOT / "packaging/Containerfile"
# Stands in for apt-get: what is asked for must be there already. The root has no apt, and a test no
# mirror.
APT_GET = """#!/bin/sh
[ "$1" = install ] || exit 0
shift
for word; do case "$word" in -*) ;; *) dpkg-query -W "$word" >/dev/null || exit 1 ;; esac; done
"""


def instructions():
    text = re.sub(r"(?m)^#.*\n", "", FILE.read_text()).replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip()]


class Steps(Case):
    def setUp(self):
        if not ROOT_FILES.exists():
            self.skipTest("there is no root: packaging_root says why")
        context = root()
        self.root = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        (self.root.path / "usr/local/bin/apt-get").write_text(APT_GET)
        (self.root.path / "usr/local/bin/apt-get").chmod(0o755)

    def add(self, words):
        """ADD of a local archive unpacks it."""
        pattern, target = words.split()
        self.assertRegex(f"dist/{archive().name}", pattern.replace("*", ".*"))
        self.ok(run("tar", "xzf", archive(), "-C", self.root.path / target.lstrip("/")))

    def test_they_make_a_server(self):
        user, entry = "", []
        for name, words in instructions():
            if name == "RUN":
                self.ok(self.root.run("sh", "-ec", words))
            elif name == "ADD":
                self.add(words)
            elif name == "USER":
                user = words
            elif name == "ENTRYPOINT":
                entry = json.loads(words)
            else:
                self.assertIn(name, ("FROM", "VOLUME", "EXPOSE", "STOPSIGNAL"))
        self.root.put(ROOT / "packaging/plumbd.toml", "/etc/plumbline/plumbd.toml")
        self.ok(self.root.run(*entry, "--check-config", user=user))
        with self.root.plumbd(*entry, user=user) as address:
            self.ok(self.root.run("plumb", "doctor", "--server", address, user=user))
        self.assertTrue(any((self.root.path / "var/lib/plumbd").iterdir()))
        # plumb is in it too, for whoever has records where the server is.
        self.root.put(RECORD, "/record")
        self.ok(self.root.run("plumb", "audit", "/record", "--quiet"), 1)


class Built(Case):
    @long_form
    def test_by_a_builder(self):
        builder = next(
            (name for name in ("podman", "buildah", "docker") if shutil.which(name)), None
        )
        if builder is None:
            self.skipTest("no container builder is here; the image's steps run in a chroot above")
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(f"{folder}/dist")
            shutil.copy2(archive(), f"{folder}/dist")
            self.ok(run(builder, "build", "-f", FILE, "-t", "plumbd-test", folder, timeout=600))
            if builder != "buildah":
                done = self.ok(run(builder, "run", "--rm", "plumbd-test", "--version"))
                self.assertIn("plumbd", done.stdout)


if __name__ == "__main__":
    own_mounts()
    main()
