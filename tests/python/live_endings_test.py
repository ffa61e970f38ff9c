"""How trainers end while a real plumbd judges them."""

import json
import os
import signal
import subprocess
import time

import pytest
from endings import BIN, PATIENCE, RAISES, RULE, SILENT, Server, eventually, is_ready, start, wait


def ranks(tmp_path, server, ends):
    (tmp_path / "scripts").mkdir()
    started = []
    for rank, end in enumerate(ends):
        folder = tmp_path / "scripts" / str(rank)
        folder.mkdir()
        started.append(start(folder, end, options=server.options, RANK=str(rank),
                             WORLD_SIZE=str(len(ends))))  # fmt: skip
        for stale in folder.glob("ready.*"):
            stale.unlink()
    return started


@pytest.mark.parametrize("end", [e for e, _ in SILENT])
def test_live_a_silent_end_is_named_with_its_last_loss(tmp_path, end):
    with Server(tmp_path) as server:
        # The other processes wait for a while, as in a collective, and then end.
        others = "run.flush()\ntime.sleep(1)\nrun.finish()\n"
        for process in ranks(tmp_path, server, [others, "run.flush()\n" + end, others]):
            wait(process)
        incident = server.incident()
        server.over()
        assert "rank 1 ended without a message" in json.dumps(incident)
        assert '"level": "error"' in json.dumps(incident) or '"level":"error"' in json.dumps(incident)
        assert "Its last loss was 2.1 (step 4)" in json.dumps(whole(server, incident))
        assert len(server.watched()) >= 1
        stored = subprocess.run([str(BIN / "plumb"), "audit", "--server", server.address, "--run",
                                 "exp1", "--format", "json", "--quiet"], capture_output=True,
                                text=True, timeout=PATIENCE)  # fmt: skip
        again = [f for f in json.loads(stored.stdout)["findings"] if f["rule"] == RULE]
        assert [(f["title"], f["level"], f["strength"]) for f in again] == [
            ("rank 1 ended without a message", "error", "proved")]  # fmt: skip


def whole(server, incident):
    found = []
    for fingerprint in incident["findings"]:
        found += server.lines("query", "incidents", "--finding", fingerprint)
    return found


def test_live_all_at_once(tmp_path):
    with Server(tmp_path) as server:
        end = "run.flush()\nready()\ntime.sleep(600)\n"
        started = ranks(tmp_path, server, [end] * 3)
        for rank in range(3):
            is_ready(tmp_path / "scripts" / str(rank), rank)
        for process in started:
            process.kill()
        for process in started:
            wait(process)
        assert "all 3 ranks ended without a message" in json.dumps(server.incident())


def test_live_an_exception_is_reported_at_once_and_a_new_attempt_closes_it(tmp_path):
    with Server(tmp_path, grace=30) as server:
        end = "run.flush()\nready()\ntime.sleep(600)\n"
        first, second = ranks(tmp_path, server, [RAISES + "step(5, forward)\n", end])
        assert wait(first)[0] == 1
        # The grace is long, so silent ranks do not count as gone yet. A rank that has reported its end is named at once.
        incident = server.incident()
        assert "rank 0 ended: ValueError: batch 12: 3 != 4 at train.py" in json.dumps(incident)
        second.terminate()
        wait(second)
        server.over()
        for rank in range(2):
            (tmp_path / "scripts" / str(rank) / "train.py").unlink()
        again = [start(tmp_path / "scripts" / str(rank), "run.finish()\n", options=server.options,
                       RANK=str(rank), WORLD_SIZE="2", TORCHELASTIC_RESTART_COUNT="1")
                 for rank in range(2)]  # fmt: skip
        for process in again:
            assert wait(process)[0] == 0
        eventually("the incident to close", lambda: all(
            i["state"] == "resolved" for i in server.incidents()))  # fmt: skip


# The ranks run in lock step, through a file that each writes. Rank 1 waits in step 60 until it may continue.
LOCKSTEP = """
here = os.path.dirname(os.getcwd())
board, me, other = os.path.join(here, "step."), os.environ["RANK"], str(1 - int(os.environ["RANK"]))
def seen():
    try: return int(open(board + other).read() or 4)
    except OSError: return 4
def body():
    time.sleep(.05)
    while i == 60 and me == "1" and not os.path.exists(os.path.join(here, "go")): time.sleep(.01)
    while seen() < i - 1: time.sleep(.002)
for i in range(5, 100):
    step(i, body)
    open(board + me, "w").write(str(i))
run.finish()
"""


def test_live_a_hang_closes_when_the_run_goes_on_and_a_stopped_process_has_not_died(tmp_path):
    with Server(tmp_path, grace=60) as server:
        started = ranks(tmp_path, server, [LOCKSTEP, LOCKSTEP])
        try:
            incident = server.incident("performance/hang")
            assert "rank 1 hangs in step 60" in json.dumps(incident)
            # The process is stopped too: it sends nothing, and its connection stays open.
            os.kill(started[1].pid, signal.SIGSTOP)
            time.sleep(6)
            assert server.incidents() == []
            os.kill(started[1].pid, signal.SIGCONT)
            (tmp_path / "scripts" / "go").touch()
            closed = server.incident("performance/hang", "resolved")
            assert closed["findings"] == incident["findings"]
        finally:
            (tmp_path / "scripts" / "go").touch()
            for process in started:
                process.send_signal(signal.SIGCONT)
        for process in started:
            assert wait(process)[0] == 0
        server.over()
        assert server.incidents() == []


# Rank 0 evaluates the watched model without a separate span; rank 1 waits in the next step.
EVALUATION = """
import torch
model = torch.nn.Linear(8, 1)
run.watch(model, torch.optim.SGD(model.parameters(), lr=.1))
def evaluate():
    began = time.monotonic()
    with torch.no_grad():
        while time.monotonic() < began + 12: model(torch.ones(4, 8)); time.sleep(.05)
"""
EVALUATES = EVALUATION + LOCKSTEP.replace("    step(i, body)", "    if i == 60 and me == '0': evaluate()\n    step(i, body)")


def test_live_a_rank_that_evaluates_does_not_hang(tmp_path):
    with Server(tmp_path, grace=60, hang=5.0) as server:
        (tmp_path / "go").touch()
        started = ranks(tmp_path, server, [EVALUATES.replace('"go"', '"../go"')] * 2)
        for process in started:
            status, _, err = wait(process)
            assert status == 0, err
        server.over()
        assert server.incidents("performance/hang") == []


def test_live_the_death_of_the_server_is_no_fault_of_a_trainer(tmp_path):
    with Server(tmp_path) as server:
        end = "run.flush()\nready()\nwhile not os.path.exists('go'): time.sleep(.01)\nstep(5)\nrun.finish(20)\n"
        started = ranks(tmp_path, server, [end, end])
        for rank in range(2):
            is_ready(tmp_path / "scripts" / str(rank), rank)
        server.restart(after=4)
        for rank in range(2):
            (tmp_path / "scripts" / str(rank) / "go").touch()
        for process in started:
            assert wait(process)[0] == 0
        server.over()
        assert server.incidents() == []


def test_a_port_without_a_server_is_reported_with_the_callers_line(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and the server does not listen
        port = taken.getsockname()[1]
        for server, why in [(f"127.0.0.1:{port}", "refused"),
                            ("no-such-host.invalid:7433", "no-such-host.invalid")]:  # fmt: skip
            status, _, err = wait(start(tmp_path, "time.sleep(2)\nrun.finish(.2)\n",
                                        options={"server": server, "spool": "off"}))  # fmt: skip
            assert status == 0
            stated = [line for line in err.splitlines() if "no server answers at" in line]
            assert len(stated) == 1, err
            line = (tmp_path / "train.py").read_text().splitlines().index(
                next(t for t in (tmp_path / "train.py").read_text().splitlines()
                     if t.startswith("run = plumbline.init"))) + 1  # fmt: skip
            assert f"given at train.py:{line}" in stated[0] and why in stated[0]
