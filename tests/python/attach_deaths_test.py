"""Trainers that die under `plumb run`: the evidence of their last steps is on disk and is judged, and the caller sees the same death."""

import os
import pathlib
import re
import subprocess
import sys

import attach
import endings
import pytest
from attach_trainers import HEAD

pytestmark = pytest.mark.skipif(not attach.READY, reason="plumb and the agent are not built")
LATE_S = 1.0  # evidence is on disk this long after its step; docs/attach.md states it
# A NaN at step 30, `after` more steps, then the end.
CODE = """
import ctypes, time
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(60):
    step(m, o, lambda m, x, y: (m(x) - y).pow(2).mean() * (float("nan") if i == 30 else 1))
    time.sleep(0.04)
%s
"""
DEATHS = {
    "segmentation fault": ("ctypes.string_at(0)", -11),
    "killed": ("import signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
    "abort": ("os.abort()", -6),
    "exit without the interpreter": ("os._exit(4)", 4),
    "no memory, by a limit": ("import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); torch.zeros(1 << 34)", 1),
}


def judged(tmp_path, done):
    """Asserts that the NaN and the death are found, at the end and by an audit, and that little is missing."""
    report = attach.audit(tmp_path)
    found = attach.found(report)
    assert found.get("health/loss-non-finite") == 30 and "health/run-died" in found, (found, done.stderr)
    died = next(f for f in report["findings"] if f["rule"] == "health/run-died")
    assert died["details"]["last_step"] >= 60 - LATE_S / 0.04, died["details"]
    printed = done.stderr.partition("plumb: run: the record in ")[2]
    assert "health/loss-non-finite" in printed and "health/run-died" in printed
    assert not [p for i in report["inputs"] for p in i["problems"] if "unfinished" not in p and "still" not in p]


@pytest.mark.parametrize("how", DEATHS)
def test_a_death_is_judged(tmp_path, how):
    end, status = DEATHS[how]
    done = attach.attached(attach.write(tmp_path, CODE % end, HEAD), tmp_path)
    assert done.returncode == status, done.stderr
    judged(tmp_path, done)


def test_a_death_by_the_kernel_for_want_of_memory(tmp_path):
    """The kernel kills a process of a control group whose memory is limited."""
    group = pathlib.Path("/sys/fs/cgroup") / f"plumbline-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    if not (group / "memory.max").exists():
        group.rmdir()
        pytest.skip("no control group can be made here")
    (group / "memory.max").write_text(str(1 << 30))
    enter = f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    try:
        done = attach.attached(attach.write(tmp_path, enter + CODE % "kept = bytearray(3 << 30)", HEAD), tmp_path)
    finally:
        group.rmdir()
    assert done.returncode == -9, done.stderr
    judged(tmp_path, done)


@pytest.mark.skipif(not (attach.BIN / "plumbd").exists(), reason="plumbd is not built")
def test_what_a_dead_trainer_left_in_its_spool_is_delivered_and_judged(tmp_path):
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    done = attach.attached(attach.write(tmp_path, CODE % DEATHS["killed"][0], HEAD), tmp_path, "--server", address, "--run", "exp1")
    assert done.returncode == -9
    assert attach.found(attach.audit(tmp_path)).get("health/loss-non-finite") == 30
    with endings.Server(tmp_path) as server:
        sent = subprocess.run([attach.PLUMB, "spool", "send", "rec/spool", "--server", server.address], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert sent.returncode == 0, sent.stderr
        assert server.incident("health/loss-non-finite")["finding"]["site"]["step_first"] == 30


# ---- the end of a training, judged in its own process --------------------------------------------

NAN = re.compile(r"error (health/loss-|precision/)non-finite: ")
ENDS = re.compile(r"the training ends after step \d+: " + NAN.pattern)
STOPS = CODE.replace("range(60)", "range(1000)") % "print('went on')"


def test_an_error_ends_the_training_without_a_server(tmp_path):
    done = attach.attached(attach.write(tmp_path, STOPS, HEAD), tmp_path, "--stop-on", "error")
    assert done.returncode == 1 and "went on" not in done.stdout, done.stderr
    assert ENDS.search(done.stderr) and "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) >= 30  # the step of the NaN may be the last one, which prints no more


def test_a_healthy_training_is_not_ended(tmp_path):
    code = STOPS.replace("range(1000)", "range(200)").replace("i == 30", "False").replace("time.sleep(0.04)", "time.sleep(0.005)")
    done = attach.attached(attach.write(tmp_path, code, HEAD), tmp_path, "--stop-on", "warning")
    assert done.returncode == 0 and "went on" in done.stdout, done.stderr


OWN = HEAD + """
import plumbline, time
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
run = plumbline.init(run="mine", record="rec", stop_on="error", every=1, budget=1.0); run.watch(m, o)
ended = None
try:
    for i in range(1000):
        step(m, o, lambda m, x, y: (m(x) - y).pow(2).mean() * (float("nan") if i == 30 else 1))
        time.sleep(0.04)
        if CHECKS and run.should_stop:
            break
except plumbline.TrainingStopped as stopped:
    ended = stopped.reason
print(i, ended, isinstance(plumbline.TrainingStopped("x"), SystemExit))
run.finish()
"""


@pytest.mark.parametrize("checks", [True, False])
def test_the_callers_loop_checks_or_is_ended(tmp_path, checks):
    script = attach.write(tmp_path, OWN.replace("CHECKS", str(checks)))
    done = attach.call([sys.executable, script], tmp_path, PYTHONPATH=str(attach.BIN.parent / "python"))
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and 30 <= int(last.split()[0]) < 999, done.stderr
    assert ("None True" in last) if checks else (NAN.search(last) and last.endswith("True")), last


def test_ranks_end_after_the_same_step_if_one_of_them_finds_an_error(tmp_path):
    code = """
import plumbline, time, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=2)
    run = plumbline.init(run="mine", record="rec", stop_on="error", every=1)
    for i in range(1000):
        with run.step(i): run.scalar("loss", float("nan") if rank == 1 and i >= 30 else 1.0 + i % 3)
        time.sleep(0.03); dist.barrier()
        if run.should_stop: break
    print(f"ended {i}", flush=True); dist.barrier(); run.finish(); dist.destroy_process_group()
if __name__ == "__main__":
    import socket
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = str(s.getsockname()[1])
    mp.spawn(work, (port,), 2)
"""
    done = attach.call([sys.executable, attach.write(tmp_path, code, HEAD)], tmp_path, PYTHONPATH=str(attach.BIN.parent / "python"))
    steps = sorted(done.stdout.split())
    assert done.returncode == 0 and steps[2:] == ["ended", "ended"] and steps[0] == steps[1] and 30 <= int(steps[0]) < 999, (done.stdout, done.stderr)
