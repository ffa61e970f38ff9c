"""packaging/Containerfile: its steps, one by one, in a root of our own; with PLUMB_LONG=1 by a builder, too."""

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
    """By buildah, which needs no daemon. FROM is our root under the base image's name: a test pulls nothing."""

    def setUp(self):
        self.need("buildah")
        if not ROOT_FILES.exists():
            self.skipTest("there is no root: packaging_root says why")
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.buildah, "rmi", "--all", "--force")
        self.addCleanup(self.buildah, "rm", "--all")

    def buildah(self, *words):
        store = ("--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run", "--storage-driver", "vfs")
        done = self.ok(run("buildah", *store, *words, timeout=600))
        return done.stdout.strip()

    def base_image(self, name):
        container = self.buildah("from", "scratch")
        files = self.buildah("mount", container)
        self.ok(run("cp", "-a", f"{ROOT_FILES}/.", files))
        with open(f"{files}/usr/local/bin/apt-get", "w") as file:
            file.write(APT_GET)
        os.chmod(file.name, 0o755)
        self.buildah("umount", container)
        self.buildah("commit", container, name)

    @long_form
    def test_by_a_builder(self):
        self.base_image(next(words for name, words in instructions() if name == "FROM"))
        os.makedirs(f"{self.folder}/context/dist")
        shutil.copy2(archive(), f"{self.folder}/context/dist")
        self.buildah("build", "--isolation", "chroot", "--pull-never", "-f", FILE, "-t", "plumbd-test", f"{self.folder}/context")
        container = self.buildah("from", "--pull-never", "localhost/plumbd-test")
        config = json.loads(self.buildah("inspect", container))["OCIv1"]["config"]
        self.assertEqual((config["User"], config["Entrypoint"][0]), ("plumbd", "/usr/bin/plumbd"))
        self.assertIn("plumbd", self.buildah("run", "--isolation", "chroot", container, "--", *config["Entrypoint"][:1], "--version"))


if __name__ == "__main__":
    own_mounts()
    main()
