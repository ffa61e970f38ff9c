"""Runs a plumbd for a benchmark."""

import contextlib
import pathlib
import subprocess
import time


@contextlib.contextmanager
def running(programs, folder):
    """Yields the address of the plumbd in the folder `programs` while the context lasts; None if `programs` is empty."""
    if not programs:
        yield None
        return
    port_file = folder / "port"
    process = subprocess.Popen([pathlib.Path(programs) / "plumbd", "--grpc", "127.0.0.1:0",
                                "--http", "off", "--port-file", port_file],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not port_file.exists():
            if process.poll() is not None:
                raise SystemExit(f"plumbd ended with {process.returncode}")
            if time.monotonic() > end:
                raise SystemExit("plumbd did not listen within 60 s")
            time.sleep(0.1)
        yield port_file.read_text().strip()
    finally:
        process.kill()
        process.wait()
