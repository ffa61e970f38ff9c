"""The source of the program that warm.python() makes, with SETTINGS before it. Requests a fork, waits for its end, and ends with its status."""

import os
import signal
import sys


def cold():
    os.execv(SETTINGS["interpreter"], [SETTINGS["interpreter"], *sys.argv[1:]])


def main():
    command, warnings = sys.argv[1:], []
    while command[:1] in (["-W"], ["-B"]):  # -B: PYTHONDONTWRITEBYTECODE, which multiprocessing passes on
        warnings += command[1:2] * (command[0] == "-W")
        del command[: 1 + (command[0] == "-W")]
    start = {name: text for name, text in os.environ.items() if name.startswith(SETTINGS["READ_AT_START"]) and name != SETTINGS["PATH"]}
    if start != SETTINGS["start"] or not command or (command[0] != "-c" and command[0].startswith("-")):
        cold()
    import json  # without it the interpreter is ready in 10 ms
    import socket

    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(SETTINGS["socket"])
    files = [file for file in map(int, os.listdir("/proc/self/fd")) if file != server.fileno() and os.path.exists(f"/proc/self/fd/{file}")]
    job = {"numbers": files, "command": command, "warnings": warnings, "cwd": os.getcwd(), "env": dict(os.environ)}
    job["executable"] = os.path.abspath(sys.argv[0])
    socket.send_fds(server, [json.dumps(job).encode()], files)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    for file in files:  # now only the fork has these descriptors
        os.close(file)
    status = int(server.recv(16) or b"1")
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
