"""How trainers end, and what is said of it: real processes, ended in every way there is, whose
records are audited; and a real plumbd that they report to."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import trainer

BIN = pathlib.Path(trainer.BUILD) / "bin"
RULE = "health/run-died"
PATIENCE = 120  # seconds; only ends what hangs

# Steps, then `end()`. "ready" says that the last step is over.
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


# ---- ends that are well --------------------------------------------------------------------------


@pytest.mark.parametrize("end,code", [
    ("run.finish()", 0),
    ("", 0),
    ("sys.exit()", 0),
    ("sys.exit(0)", 0),
    ("try: sys.exit(3)\nexcept SystemExit: pass", 0),
    ("try: raise StopIteration\nexcept StopIteration: run.finish()", 0),
    ("with run: pass", 0),
    ("import ctypes; ctypes.CDLL(None).exit(0)", 0),
    # One that nobody sees: documented.
    ("raise SystemExit(3)", 3),
])  # fmt: skip
def test_what_ends_well_is_no_death(tmp_path, end, code):
    passes(tmp_path, end, code)


def test_what_happens_to_children_is_not_the_trainers(tmp_path):
    out, _ = passes(tmp_path, """
for dies in ("raise ValueError", "os.kill(os.getpid(), 15)", "sys.exit(3)", "os._exit(4)"):
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        exec(dies)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=os.getpid)
child.start(); child.join()
run.finish()
""")
    assert out.split() == ["1", "-15", "3", "4"]


@pytest.mark.parametrize("end,code,cause", [
    ("pass", 0, None),
    ("raise ValueError('in the child')", 1, "exception"),
    ("sys.exit(3)", 3, "exit-status"),
])  # fmt: skip
def test_a_trainer_in_a_child_of_multiprocessing_sends_goodbye_by_itself(tmp_path, end, code, cause):
    status, out, err = wait(start_script(tmp_path, f"""
import multiprocessing, sys
import plumbline

def work():
    run = plumbline.init(run="exp2", record="kids", every=1)
    with run.step(0):
        run.scalar("loss", 1)
    {end}

child = multiprocessing.get_context("fork").Process(target=work)
child.start(); child.join()
print(child.exitcode)
"""))
    assert (status, out.split()) == (0, [str(code)]), err
    finding, verdict = audited(tmp_path, "kids")
    assert (finding and finding["cause"]["id"]) == cause
    assert verdict == ("pass" if cause is None else "finding")


# ---- exceptions ----------------------------------------------------------------------------------

RAISES = """
def forward():
    raise ValueError("batch 12: 3 != 4")

"""


def test_an_exception_that_none_catches(tmp_path):
    end = RAISES + "step(5, forward)\n"
    _, err, finding = finds(tmp_path, end, 1, "exception", "error")
    assert err.count("ValueError: batch 12") == 1
    line = (tmp_path / "train.py").read_text().splitlines().index(
        '    raise ValueError("batch 12: 3 != 4")') + 1  # fmt: skip
    assert finding["details"]["type"] == "ValueError"
    assert finding["details"]["where"] == f"train.py:{line} in forward"
    assert "3 != 4" in finding["explanation"]
    assert finding["details"]["last_step"] == 5
    assert finding["details"]["last_scalar"] == {"series": "loss", "step": 5, "value": 2.0}
    assert finding["strength"] == "proved"


@pytest.mark.parametrize("installed", ["before", "after", "instead"])
def test_the_trainers_own_hook_runs_once(tmp_path, installed):
    hook = """
    import sys
    passed_on = {}
    def hook(*arguments):
        open("hooked", "a").write("x")
        passed_on[0](*arguments)
    passed_on[0], sys.excepthook = sys.excepthook, hook
    """
    if installed == "instead":  # and nobody is told by it
        hook = hook.replace("passed_on[0](*arguments)", "pass")
    end = RAISES + "step(5, forward)\n"
    head = textwrap.dedent(hook)
    if installed == "before":
        _, err, _ = finds(tmp_path, end, 1, "exception", "error", head=head)
    else:
        _, err, _ = finds(tmp_path, head + end, 1, "exception", "error")
    assert (tmp_path / "hooked").read_text() == "x"
    assert err.count("ValueError: batch 12") == (0 if installed == "instead" else 1)


def test_an_exception_in_the_thread_that_trains(tmp_path):
    end = RAISES + "t = threading.Thread(target=step, args=(5, forward)); t.start(); t.join()\n"
    _, err, finding = finds(tmp_path, end, 0, "exception", "error")
    assert err.count("ValueError: batch 12") == 1
    assert finding["details"]["where"].endswith("in forward")


def test_an_exception_in_another_thread_is_a_note(tmp_path):
    end = RAISES + """
for i in range(5, 8): step(i)
t = threading.Thread(target=forward); t.start(); t.join()
step(8)
"""
    _, _, finding = finds(tmp_path, end, 0, "thread-exception", "note")
    assert "ValueError: batch 12: 3 != 4, at train.py" in finding["explanation"]


def test_an_exception_while_other_threads_hold_up_the_exit(tmp_path):
    end = RAISES + """
threading.Thread(target=time.sleep, args=(600,)).start()
ready()
step(5, forward)
"""
    process = start(tmp_path, end)
    is_ready(tmp_path)
    eventually("its goodbye", lambda: audited(tmp_path)[0])
    assert process.poll() is None
    process.kill()
    wait(process)


def test_by_hand(tmp_path):
    finds(tmp_path, "signal.raise_signal(signal.SIGINT)", -2, "interrupted", "note")


def test_a_run_that_is_closed_on_the_way_of_an_exception(tmp_path):
    end = RAISES + "with run: forward()\n"
    _, _, finding = finds(tmp_path, end, 1, "unwinding", "warning")
    assert finding["details"]["type"] == "ValueError"


def test_one_that_goes_on_after_an_exception_has_not_died_of_it(tmp_path):
    passes(tmp_path, RAISES + """
try: step(5, forward)
except ValueError: pass
run._note_ending(1, "ValueError")  # a hook that was called, and a trainer that lives
step(6)
run.finish()
""")


@pytest.mark.parametrize("end,cause,level,code", [
    ("sys.exit(3)", "exit-status", "warning", 3),
    ("sys.exit('a message')", "exit-status", "warning", 1),
    ("try: 1 / 0\nexcept ZeroDivisionError: sys.exit(3)", "exception", "error", 3),
    ("try: sys.exit(3)\nfinally: run.finish()", "exit-status", "warning", 3),
    # As a trainer in C or C++ ends: no interpreter is asked.
    ("import ctypes; ctypes.CDLL(None).exit(3)", "exit-status", "warning", 3),
])  # fmt: skip
def test_an_exit_status(tmp_path, end, cause, level, code):
    _, _, finding = finds(tmp_path, end, code, cause, level)
    assert finding["details"]["code"] == (code if "message" not in end else 1)


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [
    "time.sleep(600)",
    "threading.Lock().acquire(); time.sleep(600)",
    # In native code for ever, as in a collective, and the interpreter's lock is never given away.
    "import ctypes; c = ctypes.PyDLL(None); m = ctypes.create_string_buffer(64); "
    "c.pthread_mutex_lock(m); c.pthread_mutex_lock(m)",
])  # fmt: skip
def test_sigterm_takes_its_word_along_and_ends_the_process(tmp_path, where):
    process = start(tmp_path, f"ready()\n{where}\n")
    is_ready(tmp_path)
    process.terminate()
    assert wait(process)[0] == -signal.SIGTERM
    finding, _ = audited(tmp_path)
    assert finding["cause"]["id"] == "terminated" and finding["level"] == "warning"
    assert finding["details"]["last_scalar"]["step"] == 4


HANDLER = """
import os, signal, sys
def handler(*_):
    open("handled", "a").write("x")
    {}
signal.signal(signal.SIGTERM, handler)
"""


@pytest.mark.parametrize("installed", ["before", "after"])
def test_the_trainers_own_handler_is_left_alone(tmp_path, installed):
    handler = HANDLER.format("sys.exit(0)")
    end = "ready()\nwhile True: time.sleep(.01)\n"
    process = (start(tmp_path, end, head=handler) if installed == "before"
               else start(tmp_path, handler + end))  # fmt: skip
    is_ready(tmp_path)
    process.terminate()
    assert wait(process)[0] == 0
    assert (tmp_path / "handled").read_text() == "x"
    assert audited(tmp_path) == (None, "pass")


def test_a_handler_that_passes_the_signal_on(tmp_path):
    handler = HANDLER.format("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)")
    process = start(tmp_path, handler + "ready()\nwhile True: time.sleep(.01)\n")
    is_ready(tmp_path)
    process.terminate()
    assert wait(process)[0] == -signal.SIGTERM
    assert (tmp_path / "handled").read_text() == "x"


def test_python_sees_the_default_action_as_before(tmp_path):
    passes(tmp_path, "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\nrun.finish()\n")


SILENT = [
    ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ("import ctypes; ctypes.string_at(0)", -11),
    ("os._exit(3)", 3),
]


@pytest.mark.parametrize("end,code", SILENT)
def test_one_that_stays_silent_is_inconclusive_by_its_own_record(tmp_path, end, code):
    # What the drain thread has not written yet may be gone: steps are, a record is there.
    _, _, finding, verdict = ended(tmp_path, "run.flush()\n" + end, code)
    assert finding is None and verdict == "inconclusive"


# ---- live ----------------------------------------------------------------------------------------


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
def test_live_one_that_stays_silent_is_named_with_its_last_loss(tmp_path, end):
    with Server(tmp_path) as server:
        # The others wait for a while, as in a collective, and come to their end.
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
        # The grace is long: who is left has not gone, and who has said so is named all the same.
        incident = server.incident()
        assert "rank 0 ended: ValueError at train.py" in json.dumps(incident)
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


# In lock step, through a file that each writes; rank 1 waits in step 60 until it may go on.
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
            # It is stopped, too: nothing is heard of it, and its connection stands.
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


# Rank 0 evaluates the model that it watches, without a span of its own; rank 1 waits in the next step.
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


def test_live_the_death_of_the_server_is_nobodys(tmp_path):
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


def test_a_port_that_none_listens_on_is_stated_with_the_callers_line(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
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
