"""A client of plumb mcp: starts it, sends requests, and checks every answer against the protocol."""

import contextlib
import json
import subprocess

import recorded_run  # noqa: F401  (the path to support)
import support


def check_message(message):
    """Checks a response or notification of the protocol (schema 2025-11-25) without a library."""
    assert message["jsonrpc"] == "2.0", message
    if "method" in message:
        assert "id" not in message and set(message) <= {"jsonrpc", "method", "params"}, message
        return
    assert set(message) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}, {"jsonrpc", "error"}), message
    if "id" in message:
        assert isinstance(message["id"], (str, int)) and not isinstance(message["id"], bool), message
    if "error" in message:
        assert isinstance(message["error"]["code"], int) and isinstance(message["error"]["message"], str), message
    else:
        assert isinstance(message["result"], dict), message


class Client:
    def __init__(self, *options, version="2025-06-18"):
        self.process = subprocess.Popen([support.program("plumb"), "mcp", *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.last = 0
        self.schemas = {}
        self.hello = self.request("initialize", protocolVersion=version, capabilities={},
                              clientInfo={"name": "test", "version": "1"})["result"]
        self.notify("notifications/initialized")

    def send(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else line.encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), (line, self.process.poll())
        message = json.loads(line)
        for one in message if isinstance(message, list) else [message]:
            check_message(one)
        return message

    def notify(self, method, **params):
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def request(self, method, **params):
        self.last += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))
        answer = self.receive()
        assert answer["id"] == self.last, answer
        return answer

    def call(self, tool, **arguments):
        return self.request("tools/call", name=tool, arguments=arguments)["result"]

    def close(self):
        """Closes its input and returns the exit status."""
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert rest == b"", rest
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(timeout=support.PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what it did not read
                pipe.close()
