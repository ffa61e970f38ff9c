"""stop_on: a real plumbd finds an error and orders the end of the training; all ranks end after the same step."""

import os
import subprocess
import sys

import pytest
import torch
import trainer
from endings import BIN, PATIENCE, Server, eventually
from plumbline import _stopping

LOOP = """
import math, sys, time
import plumbline

run = plumbline.init(run="exp1", server=%(server)r, stop_on=%(level)r, every=1)
values = {"nan": (math.nan,) * 1000, "spike": (100.0,), "none": ()}[%(fault)r]
ended = None
for step in range(%(first)s, %(first)s + %(steps)s):
    with run.step(step):
        bad = step - %(first)s - %(fault_at)s
        run.scalar("loss", values[bad] if 0 <= bad < len(values) else 2.5 + 0.01 * (step %% 7))
        time.sleep(%(pause)s if bad < -2 else %(slow)s)
    if run.should_stop:
        ended = step
        break
print(f"stopped {ended}" if ended is not None else "went on", flush=True)
run.finish()
"""
pytestmark_server = pytest.mark.skipif(not (BIN / "plumbd").exists(), reason="plumbd is not built")


def loop(tmp_path, address, fault="nan", level="error", first=0, fault_at=20, steps=40, pause=0.005, slow=0.4):
    """Returns (the step after which the loop ended, or None; stderr)."""
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")
           and (k == "PLUMBLINE_LIBRARY" or not k.startswith(trainer._LAUNCHERS))}  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(LOOP % {"server": address, "fault": fault, "level": level, "first": first, "fault_at": fault_at, "steps": steps,
                              "pause": pause, "slow": slow})  # fmt: skip
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env={**env, "PYTHONPATH": os.environ["PYTHONPATH"]},
                          capture_output=True, text=True, timeout=2 * PATIENCE)  # fmt: skip
    assert done.returncode == 0, done.stderr
    word, _, step = done.stdout.partition(" ")
    return (int(step) if word == "stopped" else None), done.stderr


def history(server, rule="health/loss-non-finite"):
    number = server.incident(rule)["fingerprint"]
    done = subprocess.run([str(BIN / "plumb"), "query", "history", number, "--server", server.address], capture_output=True, text=True, timeout=PATIENCE)
    return [line for line in done.stdout.splitlines() if "stop_on" in line]


@pytestmark_server
def test_the_loop_ends_within_two_steps_and_a_restart_of_the_server_knows_it(tmp_path):
    with Server(tmp_path) as server:
        ended, err = loop(tmp_path, server.address)
        assert ended is not None and 20 <= ended <= 22, (ended, err)
        assert f"the training ends after step {ended}" in err and "error health/loss-non-finite" in err
        lines = eventually("the order in the incident's history", lambda: history(server))
        assert len(lines) == 1 and "stop_on: 1 process of the run ordered to end at step" in lines[0]
        server.restart(0)
        assert history(server) == lines  # judged again from the journal
        # The incident is open. A healthy attempt continues; an attempt with the same fault ends.
        assert loop(tmp_path, server.address, fault="none", first=10, steps=30, slow=0.05)[0] is None
        ended, err = loop(tmp_path, server.address, first=12)
        assert ended is not None and 32 <= ended <= 34, (ended, err)


@pytestmark_server
def test_a_warning_ends_the_loop_only_if_it_was_requested(tmp_path):
    with Server(tmp_path) as server:
        assert loop(tmp_path, server.address, fault="spike", fault_at=150, steps=170, slow=0.1)[0] is None
        assert server.incident("health/loss-spike")["finding"]["level"] == "warning"
    other = tmp_path / "other"
    other.mkdir()
    with Server(other) as server:
        ended, err = loop(other, server.address, fault="spike", level="warning", fault_at=150, steps=170, slow=0.4)
        assert ended is not None and ended >= 150 and "health/loss-spike" in err


@pytestmark_server
def test_a_suppressed_finding_does_not_end_the_loop(tmp_path):
    suppressions = tmp_path / "suppress.toml"
    suppressions.write_text('[[suppress]]\nrule = "health/loss-non-finite"\nreason = "it is known"\nexpires = 2199-01-01\n')
    with Server(tmp_path, more=f"[suppressions]\nfile = {str(suppressions)!r}\n") as server:
        assert loop(tmp_path, server.address, steps=26, slow=0.2)[0] is None
        assert server.incidents("health/loss-non-finite")


@pytestmark_server
def test_the_order_comes_through_a_relay(tmp_path):
    with Server(tmp_path) as server:
        port = tmp_path / "relay.port"
        relay = subprocess.Popen([str(BIN / "plumbd"), "--relay", server.address, "--grpc", "127.0.0.1:0", "--http", "off", "--port-file", str(port)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            eventually("the relay", port.exists)
            ended, err = loop(tmp_path, port.read_text().strip())
        finally:
            relay.kill()
            relay.wait()
        assert ended is not None and 20 <= ended <= 22, (ended, err)


def test_the_agents_order_is_requested_after_each_step(tmp_path):
    done = trainer.run("""
    import plumbline
    run = plumbline.init(run="exp1", server="127.0.0.1:1", stop_on="error", every=1)
    ended = []
    for i in range(6):
        with run.step(i): run.scalar("loss", 1.0)
        if run.should_stop: ended.append(i)
    print(ended)
    """, tmp_path, PLUMBLINE_TEST_STOP_AT="3").ok()  # fmt: skip
    assert done.out.strip() == "[3, 4, 5]" and done.err.count("the training ends after step 3: error rule: title (step 3)") == 1
    assert "stop_on=3" in done.only("open")[0]


def test_without_a_level_nothing_stops():
    assert _stopping.stopping(None, None, None, "exp1/0") is None


def test_another_level_is_a_mistake():
    with pytest.raises(ValueError, match="expected 'error', 'warning' or None"):
        _stopping.checked("fatal")


class Given:
    """An order that exists from some moment on."""

    def __init__(self):
        self.text = None

    def reason(self):
        return self.text


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_ranks_end_after_the_same_step(monkeypatch, lag):
    """The other ranks are up to `lag` steps later than rank 0; only rank 0 has the order."""
    store, rank = torch.distributed.HashStore(), [0]
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(_stopping, "of_process_group", lambda: (rank[0], 3))
    ranks, ends = [_stopping.Stopping(Given(), "exp1/0") for _ in range(3)], {}
    for now in range(60):
        if now == 21:
            ranks[0]._order.text = "error health/loss-non-finite: the loss is NaN (step 20)"
        for number, one in enumerate(ranks):
            step = now if number == 0 else now - lag
            rank[0] = number
            if step >= 0 and number not in ends and one.due(step):
                ends[number] = step
    assert ends == {0: 32, 1: 32, 2: 32}
