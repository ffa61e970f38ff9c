"""Runs Python programs in forks of one process that has imported torch: a program then pays 0.1 s instead of its second of import.

    done = warm.run([SCRIPT, ...] or ["-c", CODE, ...], cwd, env, timeout)     a subprocess.CompletedProcess
    warm.python()     a program to start like the interpreter: it stays until its fork ends, and passes signals and the exit status on

A program sees what it would see in a process of its own: its arguments, folder, environment, search path and __main__. At its end threads
are awaited, exit functions run and its own objects are freed; only with PLUMB_LONG=1 are torch's modules and libraries taken down too
(0.27 CPU s). But torch is imported before Plumbline, and only torch. A test of the order of imports, of a start that goes wrong or of
what is preloaded starts a process (subprocess, or trainer.run without warm=True). If an environment variable that is read at the start
differs from the test's own, run() starts a process itself.
"""

import atexit
import contextlib
import fcntl
import gc
import json
import multiprocessing.spawn
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
import warnings

READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "MALLOC_", "TORCH", "GLIBC_", "OPENBLAS_")
PATH = "PYTHONPATH"
HERE = pathlib.Path(__file__).resolve().parent
_server = _python = None


# ---- in the test --------------------------------------------------------------------------------


def run(command, cwd, env, timeout=300):
    command = [str(word) for word in command]
    if _at_start(env) != _at_start(os.environ):
        return subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # Opened by its path, because the fork has no descriptor of it.
        paths = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
        code = _started().request({"command": command, "cwd": str(cwd), "env": dict(env), "outputs": paths}, timeout)
        out.seek(0), err.seek(0)
        return subprocess.CompletedProcess([sys.executable, *command], code, out.read(), err.read())


def python():
    """The path of a program that takes the interpreter's arguments. It is sys.executable of the forks too, so that their ranks are forks.

    Another process computes, so a test may not stop it by SIGSTOP, look into /proc for it, or kill its group."""
    global _python
    if _python is None:
        folder = tempfile.TemporaryDirectory(prefix="plumbline-warm-")
        program = pathlib.Path(folder.name, "python")
        settings = {"interpreter": sys.executable, "socket": f"{folder.name}/socket", "start": _at_start(os.environ), "PATH": PATH,
                    "READ_AT_START": READ_AT_START}  # fmt: skip
        program.write_text(f"#!{sys.executable} -IS\nSETTINGS = {settings!r}\n" + (HERE / "warm_client.py").read_text())
        program.chmod(0o755)
        server = subprocess.Popen([sys.executable, __file__, f"{folder.name}/socket", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        server.stdout.readline()  # it listens
        atexit.register(lambda: (server.stdin.close(), server.wait(), folder.cleanup()))
        _python = str(program)
    return _python


def _at_start(env):
    return {name: text for name, text in env.items() if name.startswith(READ_AT_START) and name != PATH}


def _started():
    global _server
    if _server is None or _server.process.poll() is not None:
        _server = _Server()
    return _server


class _Server:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)  # fmt: skip
        atexit.register(self.end)

    def request(self, job, timeout):
        """Returns the program's exit status; as in subprocess, negative if a signal ended it."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.end()
            raise subprocess.TimeoutExpired(job["command"], timeout)
        return int(self.process.stdout.readline())

    def end(self):
        """Ends the program and all processes that it started, so that none is left running."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close(), self.process.stdout.close()


# ---- in the process that forks ------------------------------------------------------------------


def serve():
    """Returns the next job, in a fork of this process. Returns None at the end of the jobs."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def serve_clients(path):
    """As serve(), for programs that warm_client.py starts, several at once. Ends them when standard input ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path), listener.listen(64)
    print("listening", flush=True)
    running = {}  # a child's pidfd: (its process, its client)
    while True:
        clients = {client: child for child, client in running.values()}
        ready = select.select([0, listener, *clients, *running], [], [])[0]
        if 0 in ready:
            break
        if listener in ready:
            client = listener.accept()[0]
            text, files, _, _ = socket.recv_fds(client, 1 << 20, 64)
            child = os.fork() if text else 0
            if text and child == 0:
                listener.close(), client.close()
                for pidfd, (_, other) in running.items():
                    os.close(pidfd), other.close()
                return {**json.loads(text), "files": files}
            for file in files:
                os.close(file)
            if text:
                running[os.pidfd_open(child)] = child, client
        for client in set(ready) & set(clients):
            number = client.recv(1)
            os.kill(clients[client], number[0] if number else signal.SIGKILL)  # its client has ended
            if not number:
                _reap(running, next(pidfd for pidfd, (_, its) in running.items() if its is client))
        for pidfd in set(ready) & set(running):
            _reap(running, pidfd)
    for child, _ in running.values():
        os.kill(child, signal.SIGKILL)
    os._exit(0)


def _reap(running, pidfd):
    child, client = running.pop(pidfd)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(pidfd)
    with contextlib.suppress(OSError):  # the client was killed
        client.send(str(status).encode())
    client.close()


def become(job, base):
    """Makes this process equal to a new one. Returns its code, to be run as __main__, and the namespace for it."""
    if "files" in job:  # that the program inherits, under the same numbers
        opened = dict(zip(job["numbers"], [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200) for file in job["files"]]))
        for file in job["files"]:
            os.close(file)
        sys.executable = job["executable"]
        multiprocessing.spawn.set_executable(sys.executable)
        for option in job["warnings"]:
            warnings.simplefilter(option)
    else:
        opened = dict(enumerate([os.open(os.devnull, os.O_RDONLY), *(os.open(path, os.O_WRONLY | os.O_APPEND) for path in job["outputs"])]))
    for descriptor, file in opened.items():
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(job["cwd"])
    for name in set(os.environ) - set(job["env"]):
        del os.environ[name]
    os.environ.update(job["env"])
    first, *arguments = job["command"]
    module = types.ModuleType("__main__")
    if first == "-c":
        text, name, place = arguments[0], "<string>", ""
        sys.argv = ["-c", *arguments[1:]]
    else:
        text, name, place = pathlib.Path(first).read_text(), first, os.path.dirname(first)
        module.__file__ = first
        sys.argv = job["command"]
    sys.modules["torch"].seed()  # a new process draws a different one
    sys.path[:] = [place, *filter(None, job["env"].get(PATH, "").split(os.pathsep)), *base]
    sys.modules["__main__"] = module
    return compile(text, name, "exec"), module.__dict__


def leave():
    """The last exit function: frees the program's objects and ends the process. After a signal's exception the interpreter does that."""
    if status is None or os.environ.get("PLUMB_LONG") == "1":
        return
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)


def main():
    atexit.register(leave)  # registered before torch's functions, so it runs after them
    import torch  # noqa: F401

    own = {os.path.dirname(os.path.abspath(__file__)), *os.environ.get(PATH, "").split(os.pathsep)}
    base = [entry for entry in sys.path if entry not in own]
    gc.freeze()  # otherwise each collection in a fork scans all objects of torch
    job = serve_clients(sys.argv[1]) if len(sys.argv) > 1 else serve()
    return job and become(job, base)


if __name__ == "__main__":
    status = None
    program = main()
    if program:  # runs outside of any function, so that the interpreter's end is the same as for a normal program
        try:
            exec(*program)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            raise
        except Exception:
            status = 1
            raise
