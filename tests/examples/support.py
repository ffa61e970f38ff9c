"""Helpers of the example tests: the trainer, the programs under test, and their clean end."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "moe_pytorch"
SKIPPED = 77    # CTest's status for "skipped"
PATIENCE = 240  # seconds; far more than anything here needs, even on a busy machine

sys.path.insert(0, str(EXAMPLE))
sys.path.append(str(REPOSITORY / "tests" / "python"))
import warm  # noqa: E402

TINY = ["--layers", "2", "--dim", "16", "--experts", "8", "--batch", "4", "--seq", "32", "--quiet"]


def main():
    unittest.main(verbosity=2)


def program(name):
    """Returns a program of this build, from PLUMBLINE_BIN_DIR, which CTest sets."""
    folder = os.environ.get("PLUMBLINE_BIN_DIR")
    if not folder:
        raise RuntimeError("PLUMBLINE_BIN_DIR is not set; expected the folder of plumb and plumbd")
    path = pathlib.Path(folder) / name
    if not path.exists():
        raise RuntimeError(f"{path} does not exist; build the target {name}")
    return str(path)


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as folder:
        yield pathlib.Path(folder)


# ---- the trainer -------------------------------------------------------------------------------


def start_training(*options, **popen):
    return subprocess.Popen([warm.python(), str(EXAMPLE / "train.py"), *TINY, *map(str, options)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **popen)


def finish(process):
    """Waits for a trainer; its exit status must be 0."""
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the trainer still ran after {PATIENCE} s; it printed:\n{output}")
    if process.returncode != 0:
        raise AssertionError(f"the trainer ended with {process.returncode}; it printed:\n{output}")
    return output


def train(*options):
    return finish(start_training(*options))


def log_lines(path):
    """Returns the complete lines of a training log so far."""
    try:
        text = pathlib.Path(path).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def exact(path):
    """Returns (step, loss, gradient norm) of each step, to the last bit."""
    return [(line["step"], line["loss"], line["grad_norm"]) for line in log_lines(path)]


def wait_until(what, condition):
    """Polls; the limit only ends a test that hangs."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.02)
    return value


# ---- the programs ------------------------------------------------------------------------------


class Server:
    """A plumbd on loopback, on a new port or that of a former one; stopped by its process id."""

    def __init__(self, folder, *options, grpc="127.0.0.1:0"):
        port_file = pathlib.Path(folder) / "port"
        port_file.unlink(missing_ok=True)
        self.log = open(pathlib.Path(folder) / "plumbd.log", "a+")
        self.command = [program("plumbd"), "--grpc", grpc, "--http", "off",
                        "--port-file", str(port_file), *map(str, options)]
        self._start()
        try:
            wait_until("plumbd to listen", lambda: self._started(port_file))
        except BaseException:
            self.kill()
            raise
        self.address = port_file.read_text().strip()

    def _start(self):
        self.stated_before = self.log.seek(0, os.SEEK_END)
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)

    def _started(self, port_file):
        if self.process.poll() is None:
            return port_file.exists()
        self.log.seek(self.stated_before)
        stated = self.log.read()
        if "cannot listen on" not in stated:
            raise AssertionError(f"plumbd ended with {self.process.returncode}: {stated}")
        self._start()  # another process may have the former port: wait until it is free
        return False

    def kill(self):
        """Kills it like a crash: SIGKILL."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def run_json(*command):
    """Returns (exit status, parsed standard output) of a program."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=PATIENCE)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        raise AssertionError(f"{command} ended with {done.returncode} and printed no JSON:\n"
                             f"{done.stdout}{done.stderr}")


def audit(*paths):
    return run_json(program("plumb"), "audit", *paths, "--format", "json", "--quiet")


def plumb(*arguments, statuses=(0,)):
    """Returns plumb's output; its exit status must be one of these."""
    done = subprocess.run([program("plumb"), *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)
    if done.returncode not in statuses:
        raise AssertionError(f"plumb {arguments} ended with {done.returncode}:\n"
                             f"{done.stdout}{done.stderr}")
    return done.stdout


def wait_until_over(server, run):
    """Waits until a server has judged a run completely; acknowledged data may still be waiting for that."""
    log = pathlib.Path(server.log.name)
    wait_until(f"the run {run} to be over", lambda: f'run "{run}": over' in log.read_text())


def findings_in(server, incidents):
    """Returns all findings of incidents in JSON; an incident itself shows only one."""
    found = []
    for incident in incidents:
        for fingerprint in incident["findings"]:
            text = plumb("query", "incidents", "--finding", fingerprint, "--server",
                         server.address, "--format", "json")
            found += [json.loads(line)["finding"] for line in text.splitlines()]
    return found


def watched(server, run):
    """Returns the findings of a run that is over, from the output of `plumb watch`: one event per line."""
    wait_until_over(server, run)
    text = plumb("watch", run, "--server", server.address, "--once", "--format", "json")
    events = [json.loads(line) for line in text.splitlines()]
    if events[-1]["event"] != "caught-up":
        raise AssertionError(f"expected a last event 'caught-up'; found {events[-1]}")
    return findings_in(server, [event["incident"] for event in events[:-1]])


def findings_of(report, rule, layer=None):
    return [f for f in report["findings"] if f["rule"] == rule
            and layer in (None, f["site"]["layer"])]


def verdicts_of(report, rule, layer=None):
    return [v for v in report["verdicts"] if v["rule"] == rule
            and layer in (None, v["site"]["layer"])]


try:
    import torch
    import data
    data.load_documents()
    torch.set_num_threads(1)
except (ModuleNotFoundError, FileNotFoundError) as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)
