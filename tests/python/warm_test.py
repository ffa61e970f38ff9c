"""A program in a fork of warm.py's process behaves as in a separate process."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import warm

SEES = """
import atexit, json, multiprocessing, os, sys, threading
seen = {"argv": sys.argv[1:], "cwd": os.getcwd(), "name": __name__, "file": globals().get("__file__"), "env": sorted(os.environ.items()),
        "path": sys.path, "main": vars(sys.modules["__main__"]) is globals(), "input": sys.stdin.read(), "late": threading.active_count(),
        "start": multiprocessing.get_start_method()}
print(json.dumps(seen))
print("error", file=sys.stderr)
atexit.register(print, "at exit")
threading.Thread(target=lambda: (__import__("time").sleep(0.05), print("thread"))).start()
"""


def both(command, cwd, **more):
    env = {**os.environ, **more}
    cold = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return cold, warm.run(command, cwd, env)


@pytest.mark.parametrize("as_file", [False, True])
def test_what_a_program_sees_is_the_same(tmp_path, as_file):
    (tmp_path / "sees.py").write_text(SEES)
    first = [str(tmp_path / "sees.py")] if as_file else ["-c", SEES]
    cold, done = both([*first, "one", "two words"], tmp_path, ADDED="1", PYTHONPATH=f"{tmp_path}/x:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == cold.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == (cold.stdout, cold.stderr)


@pytest.mark.parametrize("code, status", [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os._exit(7)", 7),
                                          ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL), ("x = ", 1)])  # fmt: skip
def test_the_end_is_the_same(tmp_path, code, status):
    cold, done = both(["-c", code], tmp_path)
    assert done.returncode == cold.returncode == status
    assert done.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


# ---- warm.python() ----------------------------------------------------------------------------------


@pytest.mark.parametrize("as_file", [False, True])
def test_a_program_started_like_the_interpreter_sees_the_same(tmp_path, as_file):
    (tmp_path / "sees.py").write_text(SEES)
    first = [str(tmp_path / "sees.py")] if as_file else ["-W", "ignore", "-B", "-c", SEES]
    env = {**os.environ, "ADDED": "1", "PYTHONPATH": f"{tmp_path}/x:{os.environ.get('PYTHONPATH', '')}"}
    options = {"cwd": tmp_path, "env": env, "capture_output": True, "text": True, "input": "read", "check": False}
    cold, done = (subprocess.run([program, *first, "one", "two words"], **options) for program in (sys.executable, warm.python()))
    assert done.returncode == cold.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == (cold.stdout, cold.stderr)


@pytest.mark.parametrize("code, status", [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os._exit(7)", 7),
                                          ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)])  # fmt: skip
def test_a_program_started_like_the_interpreter_ends_the_same(tmp_path, code, status):
    assert subprocess.run([warm.python(), "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL, check=False).returncode == status


WAITS = "import os, signal, time; signal.signal(signal.SIGUSR1, lambda *_: os._exit(5)); print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.parametrize("number, status", [(signal.SIGUSR1, 5), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_reaches_the_fork(number, status):
    program = subprocess.Popen([warm.python(), "-c", WAITS], stdout=subprocess.PIPE, text=True)
    fork = program.stdout.readline().strip()
    program.send_signal(number)
    assert program.wait(60) == status
    until = time.monotonic() + 60
    while pathlib.Path(f"/proc/{fork}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_spawned_ranks_are_forks_too(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text("import os, sys, torch.multiprocessing as mp\n"
                      "def rank(r, queue): queue.put(r), os.write(1, f'rank {r} {os.getppid()}\\n'.encode())\n"
                      "if __name__ == '__main__':\n"
                      "    queue = mp.get_context('spawn').SimpleQueue()\n"
                      "    mp.spawn(rank, args=(queue,), nprocs=2)\n"
                      "    print('parent', sorted((queue.get(), queue.get())), os.getppid())\n")  # fmt: skip
    printed = subprocess.run([warm.python(), script], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(printed[:6])[-2:] == ["rank", "rank"] and printed[6:9] == ["parent", "[0,", "1]"]
    assert printed[2] == printed[5] == printed[9], "their parent is the process that forks"


def test_an_environment_that_is_read_at_the_start_needs_the_interpreter():
    code = 'import sys; print(sys.flags.no_user_site, "torch" in sys.modules)'
    done = subprocess.run([warm.python(), "-c", code], env={**os.environ, "PYTHONNOUSERSITE": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"


def test_torch_is_there_and_nothing_of_ours(tmp_path):
    code = 'import sys; print("torch" in sys.modules, "plumbline" in sys.modules, "warm" in sys.modules)'
    assert warm.run(["-c", code], tmp_path, os.environ).stdout == "True False False\n"


def test_nothing_is_left_for_the_next_program(tmp_path):
    warm.run(["-c", "import os, random; random.left = 1; os.environ['LEFT'] = '1'"], tmp_path, os.environ)
    code = "import os, random, torch; print(hasattr(random, 'left'), 'LEFT' in os.environ, torch.initial_seed())"
    first, second = (warm.run(["-c", code], tmp_path, os.environ).stdout.split() for _ in range(2))
    assert first[:2] == second[:2] == ["False", "False"] and first[2] != second[2]


def test_ranks_may_be_spawned(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text("import os, torch.multiprocessing as mp\n"
                      "def rank(r): os.write(1, f'rank {r}\\n'.encode())\n"
                      "if __name__ == '__main__': mp.spawn(rank, nprocs=2)\n")  # fmt: skip
    done = warm.run([script], tmp_path, os.environ)
    assert sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"], done.stderr


def test_what_is_read_at_the_start_needs_a_process_of_its_own(tmp_path):
    code = 'import sys; print(sys.flags.no_user_site, "torch" in sys.modules)'
    assert warm.run(["-c", code], tmp_path, {**os.environ, "PYTHONNOUSERSITE": "1"}).stdout == "1 False\n"


def test_a_program_that_hangs_is_ended(tmp_path):
    code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(["-c", code], tmp_path, os.environ, timeout=4)
    process = pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    until = time.monotonic() + 60
    while process.exists() and process.read_text().rpartition(")")[2].split()[0] not in "ZX":  # on a busy machine it ends later
        assert time.monotonic() < until
        time.sleep(0.05)
    assert warm.run(["-c", "print(1)"], tmp_path, os.environ).stdout == "1\n"
