"""A loader that blocks between two steps, in the documented form of the loop, and a real plumbd."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
import trainer
from endings import BIN, PATIENCE, Server, eventually

RULE = "health/hang-between-steps"

LOOP = """
import os, time
import plumbline

def loader():
    for i in range(%(steps)d):
        time.sleep(%(pace)s)
        if i == %(steps)d - 1:
            open("blocks", "w").close()
            %(wait)s
        yield i

run = plumbline.init(run="exp1", server=%(server)r)
for batch in loader():
    with run.step(batch):
        run.scalar("loss", 2.5)
run.finish()
"""
UNTIL_GO = 'while not os.path.exists("go"): time.sleep(.02)'
DECLARED = 'with {}:\n                ' + UNTIL_GO


def begin(tmp_path, server, wait=UNTIL_GO, steps=30, pace=0.02):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")
           and (k == "PLUMBLINE_LIBRARY" or not k.startswith(trainer._LAUNCHERS))}  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(LOOP % {"steps": steps, "pace": pace, "wait": wait, "server": server.address})
    process = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=env)
    eventually("the loader to block", (tmp_path / "blocks").exists)
    return process


def let_go(tmp_path, process):
    (tmp_path / "go").touch()
    assert process.wait(PATIENCE) == 0


def findings(server, incident):
    return [f for key in incident["findings"]
            for f in server.lines("query", "incidents", "--finding", key)]  # fmt: skip


def stored(server):
    done = subprocess.run([str(BIN / "plumb"), "audit", "--server", server.address, "--run", "exp1",
                           "--format", "json", "--quiet"], capture_output=True, text=True,
                          timeout=PATIENCE)  # fmt: skip
    return [f for f in json.loads(done.stdout)["findings"] if f["rule"] == RULE]


def test_a_loader_that_blocks_is_an_incident_that_closes_with_its_duration(tmp_path):
    with Server(tmp_path, grace=30, hang=60, between=1) as server:
        process = begin(tmp_path, server)
        incident = server.incident(RULE)
        assert incident["finding"]["level"] == "warning"
        worse = eventually("an error", lambda: next(
            (i for i in server.incidents(RULE) if i["finding"]["level"] == "error"), None))  # fmt: skip
        assert worse["fingerprint"] == incident["fingerprint"]
        text = json.dumps(findings(server, worse))
        assert "after step 28" in text and "it ended step 28 and started no other" in text, text
        assert f"py-spy dump -p {process.pid}" in text, text
        # After the server was killed and started again, it has the same incident, and the run has its findings.
        live = [(f["fingerprint"], f["level"], f["measured"]) for f in stored(server)]
        assert len(live) == 1 and live[0][1] == "error"
        server.restart(after=0.2)
        assert eventually("the incident", lambda: server.incidents(RULE))[0]["fingerprint"] == incident["fingerprint"]
        let_go(tmp_path, process)
        closed = server.incident(RULE, "resolved")
        assert closed["fingerprint"] == incident["fingerprint"]
        history = server.lines("query", "history", closed["fingerprint"])
        assert "s after the last step" in json.dumps(history), history
        assert [f["fingerprint"] for f in stored(server)] == [live[0][0]]
        assert server.incidents("health/run-died") == []


@pytest.mark.parametrize("stage", ['run.pause()', 'run.span("evaluation")', 'run.span("checkpoint")'])
def test_a_declared_wait_is_no_hang(tmp_path, stage):
    with Server(tmp_path, grace=30, hang=1, between=1) as server:
        process = begin(tmp_path, server, wait=DECLARED.format(stage))
        time.sleep(4)
        assert server.incidents(RULE) == [] and server.incidents("performance/hang") == []
        let_go(tmp_path, process)


# For this run the same wait is 3 steps long, not 100.
def test_slow_steps_are_no_hang(tmp_path):
    with Server(tmp_path, grace=30, hang=60, between=1) as server:
        process = begin(tmp_path, server, steps=12, pace=0.6)
        time.sleep(4)
        assert server.incidents(RULE) == []
        let_go(tmp_path, process)


# A process that ends while it waits has died. A death is not reported as a stopped run.
def test_one_that_is_killed_has_died(tmp_path):
    with Server(tmp_path, grace=1, hang=60, between=20) as server:
        process = begin(tmp_path, server)
        process.kill()
        process.wait()
        server.incident("health/run-died")
        assert server.incidents(RULE) == []
