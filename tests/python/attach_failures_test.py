"""Failures of the hook, the library, the disk and the server never change a trainer's results or its exit status, and are one line."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import attach
import pytest
from attach_trainers import HEAD, HEALTHY

pytestmark = pytest.mark.skipif(not attach.READY, reason="plumb and the agent are not built")
CODE = HEALTHY["plain"][0] + "sys.exit(5)\n"
PACKAGE = attach.BIN.parent / "python"


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return attach.plain(attach.write(folder, CODE, HEAD), folder).stdout


def ours(done):
    """Returns the lines of the hook and of plumb run, without those of a run that works."""
    lines = [line for line in done.stderr.splitlines() if line.startswith(("plumbline: ", "plumb: "))]
    return [line for line in lines if not line.startswith(("plumbline: attached to", "plumbline: watching", "plumbline: recorded in", "plumb: run: nothing was recorded", "plumb: run: the record in", "plumb: run: calls seen"))]


def fails(tmp_path, output, text, *options, command=None, **more):
    script = attach.write(tmp_path, CODE, HEAD)
    done = attach.call(command(script), tmp_path, **more) if command else attach.attached(script, tmp_path, *options, **more)
    assert (done.stdout, done.returncode) == (output, 5), done.stderr
    assert "Traceback" not in done.stderr
    lines = ours(done)
    assert len(lines) == 1 and text in lines[0], done.stderr
    return done


def test_no_library(tmp_path, output):
    fails(tmp_path, output, "libplumbline.so cannot be loaded", PLUMBLINE_LIBRARY="/nowhere/libplumbline.so")


def test_a_library_of_another_version(tmp_path, output):
    old = tmp_path / "libplumbline.so"
    source = tmp_path / "old.c"
    source.write_text("int plumbline_open(void *a, void *b) { return 0; }\n")
    if subprocess.run(["cc", "-shared", "-fPIC", "-o", old, source], check=False).returncode != 0:
        pytest.skip("there is no C compiler")
    fails(tmp_path, output, "cannot be loaded", PLUMBLINE_LIBRARY=str(old))


def test_a_folder_that_cannot_be_written(tmp_path, output):
    (tmp_path / "rec").write_text("a file")
    fails(tmp_path, output, "rec: ")


def test_a_full_disk(tmp_path, output):
    if not os.path.exists("/dev/full"):
        pytest.skip("no full disk can be made")
    folder = tmp_path / "rec"
    folder.mkdir()
    # The record's file is a device that is always full.
    (folder / "trainer-r00000-a0.plr").symlink_to("/dev/full")
    script = attach.write(tmp_path, CODE, HEAD)
    done = attach.attached(script, tmp_path)  # takes attempt 1: the place of attempt 0 is taken
    assert (done.stdout, done.returncode) == (output, 5), done.stderr


def test_a_limit_of_the_files_size(tmp_path, output):
    """A write fails with EFBIG, as one on a full disk fails with ENOSPC; Python ignores SIGXFSZ."""
    script = attach.write(tmp_path, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n" + CODE, HEAD)
    done = attach.attached(script, tmp_path)
    assert (done.stdout, done.returncode) == (output, 5), done.stderr
    assert len([line for line in done.stderr.splitlines() if "cannot be written" in line or "File too large" in line]) == 1, done.stderr


def test_no_server(tmp_path, output):
    script = attach.write(tmp_path, CODE, HEAD)
    done = attach.attached(script, tmp_path, "--server", "127.0.0.1:1", record=None)
    assert (done.stdout, done.returncode) == (output, 5), done.stderr
    begins, ends = ours(done)  # one line at the start, and one at the end
    assert "no server answers at 127.0.0.1:1" in begins and "has not acknowledged" in ends


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-sE", "-uI"] if attach.LONG else ["-S", "-sE"])
def test_a_python_that_ignores_the_hook(tmp_path, output, flag):
    script = attach.write(tmp_path, CODE if flag != "-S" else "import sys; sys.exit(5)\n", HEAD if flag != "-S" else "")
    done = attach.call([attach.PLUMB, "run", "--record", "rec", "--", sys.executable, flag, script], tmp_path)
    assert (done.stdout, done.returncode) == (output if flag != "-S" else "", 5)
    assert len(ours(done)) == 1 and f"-{flag[-1]} ignores the hook" in done.stderr


def test_a_launcher_that_cleans_the_environment(tmp_path, output):
    script = attach.write(tmp_path, CODE, HEAD)
    done = attach.call([attach.PLUMB, "run", "--record", "rec", "--", "env", "-u", "PYTHONPATH", sys.executable, script], tmp_path)
    assert (done.stdout, done.returncode) == (output, 5)
    assert "nothing was recorded in" in done.stderr and ours(done) == []


RAISES, BROKEN = "raise RuntimeError('two\\nlines')", ("_attach/attached.py", "_attach/find.py", "_run.py", "_attach/path/plumbline_attach.py")
WAYS = [(file, how) for file in BROKEN for how in (RAISES, "this is no Python", "absent")]


@pytest.mark.parametrize("broken,how", WAYS if attach.LONG else [(BROKEN[1], "absent"), (BROKEN[2], RAISES), (BROKEN[3], RAISES)])
def test_a_broken_package(tmp_path, output, broken, how):
    text = "this Python is not watched: " if "path" in broken else "this process is not watched: "
    copy = tmp_path / "copy/plumbline"
    shutil.copytree(PACKAGE / "plumbline", copy)
    (copy / broken).write_text(how + "\n") if how != "absent" else (copy / broken).unlink()
    shutil.rmtree(next(iter(copy.rglob("__pycache__")), tmp_path / "none"), ignore_errors=True)
    fails(tmp_path, output, text, command=lambda script: [sys.executable, script], PYTHONPATH=str(copy / "_attach/path"), PLUMBLINE_RECORD=str(tmp_path / "rec"),
          PLUMBLINE_LIBRARY=str(attach.BIN.parent / "lib/libplumbline.so"))  # fmt: skip


@pytest.mark.parametrize("method", ["watch", "observe_step", "begin"] if attach.LONG else ["observe_step"])
def test_a_watch_that_raises(tmp_path, output, method):
    """Errors inside of the watch."""
    code = f"""
def broken():
    def raises(*_, **__): raise RuntimeError("planted")
    import plumbline._watch as w, plumbline._run as r
    owner, name = {{"watch": (r.Run, "watch"), "observe_step": (w.Watch, "observe_step"), "begin": (w.Watch, "_before_forward")}}[{method!r}]
    setattr(owner, name, raises)
import sys
class Late:
    def find_spec(self, name, path=None, target=None):
        if name == "plumbline._attach.attached": late.armed = True
late = Late(); late.armed = False; sys.meta_path.insert(0, late)
sys.path.insert(0, {str(PACKAGE)!r})
import plumbline
broken()
"""
    script = attach.write(tmp_path, code + CODE, HEAD)
    done = attach.attached(script, tmp_path)
    assert (done.stdout, done.returncode) == (output, 5), done.stderr
    assert 1 <= done.stderr.count("planted") <= 2 and "Traceback" not in done.stderr, done.stderr


# ---- the process of plumb run itself -------------------------------------------------------------


def test_programs_that_cannot_be_run(tmp_path):
    assert attach.call([attach.PLUMB, "run", "--", "/nowhere/python"], tmp_path).returncode == 127
    (tmp_path / "text").write_text("no program")
    assert attach.call([attach.PLUMB, "run", "--record", "r", "--", "./text"], tmp_path).returncode == 126
    assert attach.call([attach.PLUMB, "run"], tmp_path).returncode == 2
    assert attach.call([attach.PLUMB, "run", "--nonsense", "--", "true"], tmp_path).returncode == 2


@pytest.mark.parametrize("options", [[], ["--record", "rec"], ["--server", "127.0.0.1:1"]])
def test_streams_arguments_folder_and_signals_are_untouched(tmp_path, options):
    code = r"""
import os, resource, signal, sys
print(sys.argv[1:], os.getcwd(), sys.stdin.read(), signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)
print(resource.getrlimit(resource.RLIMIT_NOFILE), sorted(os.listdir("/proc/self/fd")), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([signal.getsignal(s) is signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT)], os.getpgid(0) == os.getpgrp())
print(open("/proc/self/status").read().split("SigIgn:")[1].split()[0])
print("err", file=sys.stderr)
"""
    script = attach.write(tmp_path, code)
    outputs = []
    for prefix in ([], [attach.PLUMB, "run", *options, "--"]):
        done = subprocess.run([*prefix, sys.executable, script, "--", "a b", "", "--record"], cwd=tmp_path, env=attach.environment(), input="in", capture_output=True,
                              text=True, timeout=100)  # fmt: skip
        outputs.append((done.stdout, attach.of_trainer(done.stderr), done.returncode))
    assert outputs[0] == outputs[1]


def started(tmp_path, code, *options):
    process = subprocess.Popen([attach.PLUMB, "run", *options, "--", sys.executable, attach.write(tmp_path, code)], cwd=tmp_path, env=attach.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


HANDLES = """
import os, signal, sys, time
count = []
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT): signal.signal(s, lambda n, _: count.append(n))
print("ready", flush=True)
while not count: time.sleep(0.01)
time.sleep(0.2)
print(count, flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("options", [[], ["--record", "rec"]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_arrives_once(tmp_path, options, number):
    process = started(tmp_path, HANDLES, *options)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert out == f"[{int(number)}]\n" and process.returncode == 7, err


@pytest.mark.parametrize("options", [[], ["--record", "rec"]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_the_caller_sees_the_trainers_death(tmp_path, options, number):
    done = attach.call([attach.PLUMB, "run", *options, "--", sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})"], tmp_path)
    assert done.returncode == -number, done.stderr


def test_the_trainer_does_not_outlive_plumb_run(tmp_path):
    process = started(tmp_path, "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nprint('ready', flush=True)\ntime.sleep(600)\n", "--record", "rec")
    pid = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while pathlib.Path(f"/proc/{pid}/stat").exists() and pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_line_of_a_pth_file(tmp_path, output):
    """The file that the wheel installs; it does nothing without the variable."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/bundle"))
    import wheel

    site = tmp_path / "site"
    site.mkdir()
    (site / "plumbline").symlink_to(PACKAGE / "plumbline")
    (site / "plumbline_watch.pth").write_text(wheel.WATCH)
    script = attach.write(tmp_path, CODE, HEAD)
    command = [sys.executable, "-c", f"import site, sys, runpy; site.addsitedir({str(site)!r}); sys.argv = [{str(script)!r}]; runpy.run_path(sys.argv[0], run_name='__main__')"]
    for value, words in (("1", "attached to train"), ("0", ""), (None, "")):
        done = attach.call(command, tmp_path, PLUMBLINE_WATCH=value, PLUMBLINE_RECORD=str(tmp_path / "rec"))
        assert (done.stdout, done.returncode) == (output, 5) and words in done.stderr, done.stderr
        assert bool(words) == ("plumbline" in done.stderr), done.stderr
