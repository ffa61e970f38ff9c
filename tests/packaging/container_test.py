"""Runs the steps of packaging/Containerfile, one by one, in a root of our own; with PLUMB_LONG=1 also with a builder."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request

from chroot import ENVIRONMENT, ROOT_FILES, own_mounts, root
from support import Case, ROOT, RECORD, archive, long_form, main, run

FILE = ROOT / "packaging/Containerfile"
# Replaces apt-get: checks that the requested packages are installed. The root has no apt, and a test has no mirror.
APT_GET = """#!/bin/sh
[ "$1" = install ] || exit 0
shift
for word; do case "$word" in -*) ;; *) dpkg-query -W "$word" >/dev/null || exit 1 ;; esac; done
"""


def instructions():
    text = re.sub(r"(?m)^#.*\n", "", FILE.read_text()).replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip()]


class Network:
    """A network namespace, as a container has one, and a virtual cable to it."""

    OURS, THEIRS = "198.18.77.1", "198.18.77.2"  # from the block for network tests

    def __init__(self):
        self.name = f"plumb{os.getpid()}"

    def open(self):
        """Returns why there is none here; "" if there is one."""
        outer, inner = f"po{os.getpid()}", f"pi{os.getpid()}"
        for words in (
            f"netns add {self.name}",
            f"link add {outer} type veth peer name {inner} netns {self.name}",
            f"addr add {self.OURS}/30 dev {outer}",
            f"link set {outer} up",
            f"-n {self.name} addr add {self.THEIRS}/30 dev {inner}",
            f"-n {self.name} link set {inner} up",
            f"-n {self.name} link set lo up",
        ):
            done = run("ip", *words.split())
            if done.returncode != 0:
                return f"ip {words}: {done.stderr.strip()}"
        return ""

    def close(self):
        run("ip", "netns", "del", self.name)

    @contextlib.contextmanager
    def process(self, *command):
        """Runs a program there; yields a list that gets its stderr when it has ended."""
        errors = []
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *map(str, command)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process, errors
        finally:
            process.terminate()
            errors.append(process.communicate(timeout=60)[1])


class Steps(Case):
    def setUp(self):
        if not ROOT_FILES.exists():
            self.skipTest("there is no root: packaging_root states the reason")
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

    def copy(self, words):
        source, target = words.split()
        self.root.put(ROOT / source, target)

    def build(self):
        """Runs the steps; returns the user and the entry point."""
        user, entry = "", []
        for name, words in instructions():
            if name == "RUN":
                self.ok(self.root.run("sh", "-ec", words))
            elif name == "ADD":
                self.add(words)
            elif name == "COPY":
                self.copy(words)
            elif name == "USER":
                user = words
            elif name == "ENTRYPOINT":
                entry = json.loads(words)
            else:
                self.assertIn(name, ("FROM", "VOLUME", "EXPOSE", "STOPSIGNAL"))
        return user, entry

    def test_they_make_a_server(self):
        user, entry = self.build()
        self.ok(self.root.run(*entry, "--check-config", user=user))
        with self.root.plumbd(*entry, user=user) as address:
            self.ok(self.root.run("plumb", "doctor", "--server", address, user=user))
        self.assertTrue(any((self.root.path / "var/lib/plumbd").iterdir()))
        # The image contains plumb too, for records on the server's machine.
        self.root.put(RECORD, "/record")
        self.ok(self.root.run("plumb", "audit", "/record", "--quiet"), 1)


    def test_a_bare_start_is_reached_from_outside_its_network(self):
        self.need("ip")
        user, entry = self.build()
        network = Network()
        self.addCleanup(network.close)
        why = network.open()
        if why:
            self.skipTest(f"no network namespace can be made here: {why}")
        with network.process("chroot", "--userspec", user, self.root.path, *entry) as (process, errors):
            self.assertIn("listening on", process.stdout.readline(), process.poll())
            address = f"{network.THEIRS}:7433"
            self.ok(self.root.run("plumb", "doctor", "--server", address))
            self.ok(self.root.run("plumb", "runs", "--server", address))
            with urllib.request.urlopen(f"http://{network.THEIRS}:7434/healthz", timeout=30) as answer:
                self.assertEqual(answer.status, 200)
        # The server owns its folder, so there is no warning.
        self.assertNotIn("other users may", errors[0])

    def test_its_configuration_is_short_and_states_what_it_lets_in(self):
        lines = (ROOT / "packaging/container.toml").read_text().splitlines()
        self.assertLessEqual(len(lines), 10)
        user, entry = self.build()
        config = self.root.path / "etc/plumbline/plumbd.toml"
        # Without that line it is refused, because nothing is encrypted and no client is authenticated.
        config.write_text("\n".join(line for line in lines if not line.startswith("insecure")))
        refused = self.ok(self.root.run(*entry, "--check-config", user=user), 2)
        self.assertIn("expected a loopback address", refused.stderr)


class Built(Case):
    """Uses buildah, which needs no daemon. FROM is our root under the base image's name: a test downloads nothing."""

    def setUp(self):
        self.need("buildah")
        if not ROOT_FILES.exists():
            self.skipTest("there is no root: packaging_root states the reason")
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
        os.makedirs(f"{self.folder}/context/packaging")
        shutil.copy2(ROOT / "packaging/container.toml", f"{self.folder}/context/packaging")
        self.buildah("build", "--isolation", "chroot", "--pull-never", "-f", FILE, "-t", "plumbd-test", f"{self.folder}/context")
        container = self.buildah("from", "--pull-never", "localhost/plumbd-test")
        config = json.loads(self.buildah("inspect", container))["OCIv1"]["config"]
        self.assertEqual((config["User"], config["Entrypoint"][0]), ("plumbd", "/usr/bin/plumbd"))
        self.assertIn("plumbd", self.buildah("run", "--isolation", "chroot", container, "--", *config["Entrypoint"][:1], "--version"))


if __name__ == "__main__":
    own_mounts()
    main()
