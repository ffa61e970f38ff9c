"""A Debian with systemd, booted in a separate container (systemd-nspawn), to test the unit, the package and the operator's commands together."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from chroot import ENVIRONMENT, FOLDER
from make_root import make_root
from support import PATIENCE_S

FILES = FOLDER / "files_with_systemd"
PACKAGES = (
    "libstdc++6", "libgcc-s1", "ca-certificates", "passwd", "apt", "adduser", "python3", "openssl", "systemd",
    "systemd-sysv", "dbus",
)


def missing():
    """Returns why no machine can be booted here; "" if it can."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    if shutil.which("systemd-nspawn") is None:
        return "there is no systemd-nspawn (tools/setup installs systemd-container)"
    try:
        make_root(FILES, PACKAGES)
    except SystemExit as why:
        return f"there is no root to boot: {why}"
    return ""


class Machine:
    def __init__(self, folder):
        self.path = folder / "root"
        self.log = folder / "console"
        subprocess.run(["cp", "-a", "--reflink=auto", FILES, self.path], check=True)
        (self.path / "etc/hosts").write_text("127.0.0.1 localhost plumbhost\n")
        self.process, self.leader = None, None

    def boot(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    f"--directory={self.path}",
                    "--boot",
                    "--register=no",
                    "--keep-unit",
                    "--private-network",
                    "--console=read-only",
                    "--hostname=plumbhost",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            self.leader = self._leader()
            if self.leader and self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"):
                return ""
            time.sleep(0.3)
        return f"the machine does not boot: {self.log.read_text(errors='replace')[-2000:]}"

    def _leader(self):
        """Returns systemd's process id on this machine."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return children[0] if children else None

    def run(self, *command, environment=None, **options):
        options.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            ["nsenter", "--target", self.leader, "--all", "--wdns=/", *map(str, command)],
            capture_output=True,
            text=True,
            env={**ENVIRONMENT, **(environment or {})},
            **options,
        )

    def put(self, source, target):
        place = self.path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)

    def off(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # a clean shutdown
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def machine():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-machine-"))
    one = Machine(folder)
    try:
        why = one.boot()
        yield one, why
    finally:
        one.off()
        shutil.rmtree(folder, ignore_errors=True)
