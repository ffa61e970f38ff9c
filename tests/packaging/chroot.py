"""A root file system without any file of ours, and temporary copies of it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from support import BUILD, PATIENCE_S

FOLDER = BUILD / "empty_root"
ROOT_FILES = FOLDER / "files"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}


def mount(*words):
    return subprocess.run(["mount", *map(str, words)], capture_output=True, text=True)


def can_mount():
    """Returns True if a file system can be mounted in a mount namespace of our own."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def own_mounts():
    """Continues in a separate mount namespace, so that mounts end with the test in all cases."""
    if os.geteuid() == 0 and "PLUMB_OWN_MOUNTS" not in os.environ and can_mount():
        os.environ["PLUMB_OWN_MOUNTS"] = "1"
        os.execvp(
            "unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        )


class Root:
    """A writable copy of the root: an overlay if the kernel has them, otherwise a real copy."""

    def __init__(self, files, folder):
        self.files, self.folder = files, folder
        self.path = folder / "root"
        self.mounted = []

    def open(self):
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir()
        options = f"lowerdir={self.files},upperdir={self.folder}/upper,workdir={self.folder}/work"
        if mount("-t", "overlay", "overlay", "-o", options, self.path).returncode == 0:
            self.mounted.append(self.path)
        else:
            self.path.rmdir()
            subprocess.run(["cp", "-a", self.files, self.path], check=True)
        for kind, place in (("proc", "proc"), ("devtmpfs", "dev"), ("sysfs", "sys")):
            (self.path / place).mkdir(exist_ok=True)
            if mount("-t", kind, kind, self.path / place).returncode == 0:
                self.mounted.append(self.path / place)
        return self

    def close(self):
        for place in reversed(self.mounted):
            for attempt in range(50):  # processes inside may need a moment to end
                if subprocess.run(["umount", place], capture_output=True).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                subprocess.run(["umount", "--lazy", place])

    def put(self, source, target):
        place = self.path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if pathlib.Path(source).is_dir() else shutil.copy2)(source, place)

    def run(self, *command, environment=None, user=None, **options):
        as_user = ["--userspec", user] if user else []
        options.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            ["chroot", *as_user, self.path, *map(str, command)],
            capture_output=True,
            text=True,
            env={**ENVIRONMENT, **(environment or {})},
            **options,
        )

    @contextlib.contextmanager
    def plumbd(self, *command, user=None):
        """Runs a server in the root that stores received data; yields its address. The network is this machine's."""
        port = self.path / "tmp/plumbd-port"
        port.unlink(missing_ok=True)
        as_user = ["--userspec", user] if user else []
        data = [] if "--data" in command else ["--data", "/tmp/plumbd-data"]
        process = subprocess.Popen(
            [
                "chroot",
                *as_user,
                self.path,
                *command,
                *data,
                "--grpc",
                "127.0.0.1:0",
                "--http",
                "off",
                "--port-file",
                "/tmp/plumbd-port",
            ],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            end = time.monotonic() + 60
            while not (port.exists() and port.read_text().strip()):
                if process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(
                        f"plumbd does not listen: {process.communicate(timeout=5)[1]}"
                    )
                time.sleep(0.05)
            yield port.read_text().strip()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@contextlib.contextmanager
def root(files=ROOT_FILES):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-root-"))
    one = Root(files, folder)
    try:
        yield one.open()
    finally:
        one.close()
        if not any(os.path.ismount(place) for place in one.mounted):
            shutil.rmtree(folder, ignore_errors=True)
