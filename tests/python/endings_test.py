"""How trainers end, and what the audit of their records reports: real processes that end in every way."""

import signal
import textwrap

import pytest
from endings import RAISES, SILENT, audited, ended, eventually, finds, is_ready, passes, start, start_script, wait


# ---- normal ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end,code", [
    ("run.finish()", 0),
    ("", 0),
    ("sys.exit()", 0),
    ("sys.exit(0)", 0),
    ("try: sys.exit(3)\nexcept SystemExit: pass", 0),
    ("try: raise StopIteration\nexcept StopIteration: run.finish()", 0),
    ("with run: pass", 0),
    ("import ctypes; ctypes.CDLL(None).exit(0)", 0),
    # Not detected, as documented.
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
    if installed == "instead":  # it does not call the earlier hook
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
    # As a trainer in C or C++ ends: without the interpreter.
    ("import ctypes; ctypes.CDLL(None).exit(3)", "exit-status", "warning", 3),
])  # fmt: skip
def test_an_exit_status(tmp_path, end, cause, level, code):
    _, _, finding = finds(tmp_path, end, code, cause, level)
    assert finding["details"]["code"] == (code if "message" not in end else 1)


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [
    "time.sleep(600)",
    "threading.Lock().acquire(); time.sleep(600)",
    # The process stays in native code for ever, as in a collective, and never releases the interpreter's lock.
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


@pytest.mark.parametrize("end,code", SILENT)
def test_one_that_stays_silent_is_inconclusive_by_its_own_record(tmp_path, end, code):
    # Data that the drain thread has not written yet may be lost. Steps are lost, but a record exists.
    _, _, finding, verdict = ended(tmp_path, "run.flush()\n" + end, code)
    assert finding is None and verdict == "inconclusive"
