"""Tests the deployment examples of packaging/, as far as this machine can: if a tool is missing, its test is skipped by
name."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
BIN = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"]) / "bin"
LIBRARY = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"]) / "lib" / "libplumbline.so"
PATIENCE_S = 60


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 2, **options)


def eventually(condition):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Plumbd:
    """Runs plumbd on a free loopback port, optionally under another program."""

    def __init__(self, folder, *options, under=()):
        port = folder / "port"
        port.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [*under, BIN / "plumbd", "--grpc", "127.0.0.1:0", "--http", "off", "--log-level", "off",
             "--port-file", port, *options], stdout=subprocess.DEVNULL)  # fmt: skip
        eventually(lambda: port.exists() or self.process.poll() is not None)
        self.address = port.read_text().strip() if port.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)


def train(server, name):
    """Runs a trainer of one step."""
    environment = {**os.environ, "PLUMBLINE_SERVER": server, "PLUMBLINE_RUN": name,
                   "PLUMBLINE_RECORD": "", "PLUMBLINE_DISABLE": ""}  # fmt: skip
    return run(BIN / "plumb-load-check", LIBRARY, env=environment)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-packaging-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not here")


class Slurm(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "relay.toml").write_text("")
        self.relay = self.folder / "run" / "relay-4711"

    def step(self, script, upstream, plumbd=BIN / "plumbd"):
        (self.folder / "env").write_text(
            f"UPSTREAM={upstream}\nRELAY_DIR={self.folder}/run\nPLUMBD={plumbd}\n"
            f"RELAY_CONFIG={self.folder}/relay.toml\n")  # fmt: skip
        environment = {**os.environ, "PLUMBLINE_SLURM_ENV": str(self.folder / "env"),
                       "SLURM_JOB_ID": "4711", "SLURM_JOB_USER": str(os.getuid())}  # fmt: skip
        return run(PACKAGING / "slurm" / script, env=environment)

    def test_shell(self):
        self.need("shellcheck")
        checked = run("shellcheck", *(PACKAGING / "slurm").glob("*.sh"))
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_a_job_from_prolog_to_epilog(self):
        with Plumbd(self.folder) as server:
            self.assertEqual(self.step("prolog.sh", server.address).returncode, 0)
            socket = self.relay / "socket"
            self.assertTrue(socket.is_socket(), "no socket")
            self.assertEqual(self.relay.stat().st_mode & 0o777, 0o700)
            pid = int((self.relay / "pid").read_text())
            trained = train(f"unix:{socket}", "slurm-job")
            self.assertEqual(trained.returncode, 0, trained.stdout)
            runs = run(BIN / "plumb", "runs", "--server", server.address)
            self.assertIn("slurm-job", runs.stdout)
            self.assertEqual(self.step("epilog.sh", server.address).returncode, 0)
            self.assertFalse(self.relay.exists())
            self.assertTrue(eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists()
                                       or "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text()))  # fmt: skip

    def test_a_failure_keeps_no_job_from_starting(self):
        self.assertEqual(self.step("prolog.sh", "").returncode, 0)
        self.assertFalse(self.relay.exists())
        self.assertEqual(self.step("prolog.sh", "127.0.0.1:1", plumbd="/bin/false").returncode, 0)
        # The process id in the file belongs to another process now: nothing is killed.
        innocent = subprocess.Popen(["sleep", "60"])
        self.addCleanup(innocent.wait)
        self.addCleanup(innocent.kill)
        self.relay.mkdir(parents=True, exist_ok=True)
        (self.relay / "pid").write_text(str(innocent.pid))
        self.assertEqual(self.step("epilog.sh", "127.0.0.1:1").returncode, 0)
        self.assertIsNone(innocent.poll())
        self.assertEqual(self.step("epilog.sh", "127.0.0.1:1").returncode, 0)  # nothing is left to end


class Kubernetes(Case):
    def setUp(self):
        super().setUp()
        try:
            import yaml
        except ImportError:
            self.skipTest("python3-yaml is not here")
        text = (PACKAGING / "kubernetes" / "sidecar.yaml").read_text()
        self.config, self.pod = list(yaml.safe_load_all(text))

    def test_the_relays_configuration_is_valid(self):
        path = self.folder / "relay.toml"
        path.write_text(self.config["data"]["relay.toml"])
        checked = run(BIN / "plumbd", "--config", path, "--check-config")
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_every_mount_has_its_volume_and_the_socket_is_shared(self):
        spec = self.pod["spec"]
        volumes = {v["name"] for v in spec["volumes"]}
        mounts = {}
        for container in spec["initContainers"] + spec["containers"]:
            mounts[container["name"]] = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
            self.assertLessEqual(set(mounts[container["name"]]), volumes)
        shared = mounts["plumbline-relay"]["plumbline"]
        self.assertEqual(mounts["trainer"], {"plumbline": shared}, "the trainer has no secret")
        self.assertIn(f'"unix:{shared}/socket"', self.config["data"]["relay.toml"])
        environment = {e["name"]: e["value"] for e in spec["containers"][0]["env"]}
        self.assertEqual(environment["PLUMBLINE_SERVER"], f"unix:{shared}/socket")


class Systemd(Case):
    def test_the_unit_is_valid(self):
        self.need("systemd-analyze")
        unit = self.folder / "plumbd.service"
        text = (PACKAGING / "plumbd.service").read_text()
        unit.write_text(text.replace("/usr/bin/plumbd", str(BIN / "plumbd")))
        verified = run("systemd-analyze", "verify", unit)
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))

    def allowed(self):
        """Returns the system calls within the unit's filter, from its lines."""
        calls = set()
        for line in (PACKAGING / "plumbd.service").read_text().splitlines():
            if not line.startswith("SystemCallFilter="):
                continue
            name = line.split("=", 1)[1]
            listed = self.members(name.lstrip("~"))
            calls = calls - listed if name.startswith("~") else calls | listed
        return calls

    def members(self, group):
        calls = set()
        for line in run("systemd-analyze", "syscall-filter", group).stdout.splitlines()[1:]:
            name = line.strip()
            if name.startswith("@"):
                calls |= self.members(name)
            elif name and not name.startswith("#"):
                calls.add(name)
        return calls

    def test_the_system_calls_of_plumbd_are_within_its_filter(self):
        self.need("systemd-analyze")
        self.need("strace")
        log = self.folder / "calls"
        if run("strace", "-o", log, "true").returncode != 0:
            self.skipTest("nothing may be traced here")
        with Plumbd(self.folder, "--data", self.folder / "data",
                    under=("strace", "-f", "-qq", "-e", "signal=none", "-o", log)) as server:  # fmt: skip
            self.assertNotEqual(server.address, "")
            self.assertEqual(train(server.address, "traced").returncode, 0)
            self.assertIn("traced", run(BIN / "plumb", "runs", "--server", server.address).stdout)
            # strace forwards no signal: it is sent to plumbd itself.
            children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
            os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
            server.process.wait(PATIENCE_S)
        # In the form "PID name(...": lines of resumed or ended calls have no name.
        used = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", log.read_text(), re.M))
        self.assertGreater(len(used), 20)
        self.assertEqual(used - self.allowed(), set())


if __name__ == "__main__":
    unittest.main()
