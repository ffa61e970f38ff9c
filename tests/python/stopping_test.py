"""stop_on: a real plumbd finds an error, and the loop ends; ranks end behind the same step."""

import os
import socket
import subprocess
import sys

import pytest
import torch
import trainer
from endings_test import BIN, PATIENCE, Server, eventually
from plumbline import _stopping

LOOP = """
import sys, time
import plumbline

run = plumbline.init(run="exp1", server=%(server)r, stop_on="error", every=1)
end = time.monotonic() + %(seconds)s
step = 0
while time.monotonic() < end and not run.should_stop:
    with run.step(step):
        run.scalar("loss", float("nan") if %(bad)s and step > 20 else 2.5 + 0.01 * (step %% 7))
    step += 1
    time.sleep(0.01)
print("stopped" if run.should_stop else "went on", flush=True)
run.finish()
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class WithPage(Server):
    def __init__(self, tmp_path):
        self.page = f"127.0.0.1:{free_port()}"
        self._pages = tmp_path
        super().__init__(tmp_path)

    def start(self, address):
        self.command[self.command.index("--http") + 1] = self.page
        super().start(address)


def loop(tmp_path, server, bad, seconds, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")
           and (k == "PLUMBLINE_LIBRARY" or not k.startswith(trainer._LAUNCHERS))}  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(LOOP % {"server": server.address, "seconds": seconds, "bad": bad})
    return subprocess.run([sys.executable, str(script)], cwd=tmp_path, env={**env, "PYTHONPATH": os.environ["PYTHONPATH"], **environment},
                          capture_output=True, text=True, timeout=2 * PATIENCE)  # fmt: skip


@pytest.mark.skipif(not (BIN / "plumbd").exists(), reason="plumbd is not built")
def test_the_loop_ends_at_the_first_error_and_a_new_attempt_does_not(tmp_path):
    with WithPage(tmp_path) as server:
        done = loop(tmp_path, server, True, PATIENCE, PLUMBLINE_PAGE=server.page)
        assert done.stdout.startswith("stopped"), done.stderr
        assert "the training ends behind step" in done.stderr and "health/loss-non-finite" in done.stderr
        done = loop(tmp_path, server, False, 4, PLUMBLINE_PAGE=server.page)  # the incident is still open
        assert done.stdout.startswith("went on"), done.stderr


@pytest.mark.skipif(not (BIN / "plumbd").exists(), reason="plumbd is not built")
def test_a_page_that_does_not_answer_is_reported_and_the_training_goes_on(tmp_path):
    with Server(tmp_path) as server:
        done = loop(tmp_path, server, True, 1, PLUMBLINE_PAGE=f"127.0.0.1:{free_port()}")
        assert done.stdout.startswith("went on")
        assert done.stderr.count("the server's page does not answer") == 1, done.stderr


def test_without_a_server_it_is_said(capfd, monkeypatch):
    monkeypatch.delenv("PLUMBLINE_SERVER", raising=False)
    assert _stopping.stopping("error", None, "exp1") is None
    assert "needs a server" in capfd.readouterr().err
    assert _stopping.stopping(None, None, "exp1") is None
    assert capfd.readouterr().err == ""


def test_another_level_is_a_mistake():
    with pytest.raises(ValueError, match="expected 'error', 'warning' or None"):
        _stopping.checked("fatal")


def test_the_page_of_a_server(monkeypatch):
    monkeypatch.delenv("PLUMBLINE_TLS_CA", raising=False)
    monkeypatch.delenv("PLUMBLINE_PAGE", raising=False)
    assert _stopping.page_of("collector:9000") == "http://collector:7434"
    assert _stopping.page_of("unix:/run/plumb.sock") is None
    monkeypatch.setenv("PLUMBLINE_PAGE", "https://page.example/")
    assert _stopping.page_of("collector:9000") == "https://page.example"


class Page:
    """Answers as plumbd's page."""

    def __init__(self, rows):
        self.rows, self._request = rows, None

    def incidents(self):
        return dict(self.rows)


ROW = {("ab", "1"): {"level": "error", "rule": "health/loss-non-finite", "title": "the loss is NaN", "step_first": 3}}


def test_what_was_open_before_does_not_stop():
    page = Page(ROW)
    one = _stopping.Stopping(page, "exp1/0")
    one._look()
    assert not one.due(1)
    page.rows = {**ROW, ("cd", "2"): {"level": "error", "rule": "health/loss-divergence", "title": "the loss diverges", "step_first": 9}}
    one._look()
    assert one.due(9) and "loss-divergence" in one.reason


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_ranks_end_behind_the_same_step(monkeypatch, lag):
    """The others are up to `lag` steps behind rank 0; only rank 0 has asked the page."""
    store, rank = torch.distributed.HashStore(), [0]
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(_stopping, "of_process_group", lambda: (rank[0], 3))
    ranks, ends = [_stopping.Stopping(Page({}), "exp1/0") for _ in range(3)], {}
    for now in range(60):
        if now == 21:
            ranks[0].reason = "error health/loss-non-finite: the loss is NaN (step 20)"
        for number, one in enumerate(ranks):
            step = now if number == 0 else now - lag
            rank[0] = number
            if step >= 0 and number not in ends and one.due(step):
                ends[number] = step
    assert ends == {0: 32, 1: 32, 2: 32}
