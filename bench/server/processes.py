"""Functions shared by the benchmarks that start servers."""

import socket
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, seconds, what):
    """Returns the first true value of condition(). If there is none in time, ends the program."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit(f"{what} took more than {seconds} s")
