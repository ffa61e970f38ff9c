"""Trainers that end in some way, for endings_test.py and live_endings_test.py."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import trainer

BIN = pathlib.Path(trainer.BUILD) / "bin"
RULE = "health/run-died"
PATIENCE = 120  # seconds; only ends processes that hang
SILENT = [  # (end, exit status) of processes that report no end in the record
    ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ("import ctypes; ctypes.string_at(0)", -11),
    ("os._exit(3)", 3),
]

# Steps, then `end()`. The file "ready" is made after the last step.
HEAD = """
import os, signal, sys, threading, time
import plumbline

run = plumbline.init(run="exp1", every=1, **{options})


def step(i, body=lambda: None):
    with run.step(i):
        run.scalar("loss", 2.5 - i / 10)
        body()


def ready():
    open("ready.%s" % os.environ.get("RANK", "0"), "w").close()


for i in range(5):
    step(i)
"""


RAISES = """
def forward():
    raise ValueError("batch 12: 3 != 4")

"""


def start(tmp_path, end, options=None, head="", **environment):
    steps = HEAD.format(options=options or {"record": "runs"})
    return start_script(tmp_path, textwrap.dedent(head) + steps + textwrap.dedent(end), environment)


def start_script(tmp_path, text, environment={}):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")
           and (k == "PLUMBLINE_LIBRARY" or not k.startswith(trainer._LAUNCHERS))}  # fmt: skip
    env.update(environment)
    script = tmp_path / "train.py"
    script.write_text(text)
    return subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def wait(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def eventually(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.02)
    return value


def is_ready(tmp_path, rank=0):
    eventually("the trainer", (tmp_path / f"ready.{rank}").exists)


def audited(tmp_path, records="runs"):
    """(finding or None, verdict) of run-died, by an audit of the records."""
    done = subprocess.run([str(BIN / "plumb"), "audit", records, "--format", "json", "--quiet"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    report = json.loads(done.stdout)
    found = [f for f in report["findings"] if f["rule"] == RULE]
    stated = [v for v in report["verdicts"] if v["rule"] == RULE]
    assert len(found) <= 1 and len(stated) == 1, report
    return (found or [None])[0], stated[0]["verdict"]


def ended(tmp_path, end, code, head=""):
    status, out, err = wait(start(tmp_path, end, head=head))
    assert status == code, err
    return out, err, *audited(tmp_path)


def passes(tmp_path, end, code=0, head=""):
    out, err, finding, verdict = ended(tmp_path, end, code, head)
    assert finding is None and verdict == "pass", finding
    return out, err


def finds(tmp_path, end, code, cause, level, head=""):
    out, err, finding, _ = ended(tmp_path, end, code, head)
    assert finding is not None and finding["cause"]["id"] == cause, finding
    assert finding["level"] == level
    assert finding["site"]["ranks"] == [0]
    return out, err, finding


class Server:
    def __init__(self, tmp_path, grace=2, hang=1.0, between=60, more=""):
        self.folder = tmp_path
        config = tmp_path / "plumbd.toml"
        config.write_text(f"[liveness]\nhang_seconds = {hang}\nbetween_steps_seconds = {between}\n{more}")
        self.log = open(tmp_path / "plumbd.log", "w")
        self.command = [str(BIN / "plumbd"), "--http", "off", "--data", str(tmp_path / "data"),
                        "--config", str(config), "--grace", str(grace), "--port-file",
                        str(tmp_path / "port"), "--grpc"]  # fmt: skip
        self.start("127.0.0.1:0")
        self.address = (tmp_path / "port").read_text().strip()
        self.options = {"server": self.address}

    def start(self, address):
        (self.folder / "port").unlink(missing_ok=True)
        self.process = subprocess.Popen([*self.command, address], stdout=self.log,
                                        stderr=subprocess.STDOUT)  # fmt: skip
        eventually("plumbd", (self.folder / "port").exists)

    def restart(self, after):
        self.process.kill()
        self.process.wait()
        time.sleep(after)
        self.start(self.address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def lines(self, *arguments):
        done = subprocess.run([str(BIN / "plumb"), *arguments, "--server", self.address, "--format",
                               "json"], capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
        return [json.loads(line) for line in done.stdout.splitlines()]

    def incidents(self, rule=RULE):
        return self.lines("query", "--rule", rule)

    def incident(self, rule=RULE, state="open"):
        return eventually(f"an incident of {rule} that is {state}", lambda: next(
            (i for i in self.incidents(rule) if i["state"] == state), None))  # fmt: skip

    def over(self, run="exp1"):
        eventually("the run's end", lambda: f'run "{run}": over' in
                   (self.folder / "plumbd.log").read_text())  # fmt: skip

    def watched(self):
        return [e["incident"] for e in self.lines("watch", "exp1", "--once") if "incident" in e]
