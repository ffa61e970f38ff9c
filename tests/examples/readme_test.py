"""README.md and the pages that it leads to, as a new user reads them: every command in them is run, in
its order, on a real run of the example; every call in their Python exists.

A command that a page gains must be told here how it is run, or the test says so.
"""

import ast
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import plumbline
from plumbline import adapters
import support

PAGES = ("README.md", "docs/instrumenting.md", "docs/operating.md", "docs/fingerprints.md")
README_LINES = 116  # it decides in half a minute
FUTURE = "causality/moe-future-leak"

# What other tests run: tools/demo is demo_test.py's, tools/test is what runs all of them, tools/package and what it makes are
# tests/packaging's, and that the installed tree works is agent_facade_install_test's.
ELSEWHERE = ("tools/demo", "tools/test", "tools/package", "cmake ")

SERVES = ("plumbd ", "plumb watch ")  # runs until it is stopped
FINDS = ("plumb audit ",)  # exit status 1: the run leaks


def blocks(language):
    return [text for page in PAGES
            for found, text in re.findall(r"^```(\w*)\n(.*?)^```$", (support.REPOSITORY / page).read_text(), re.M | re.S)
            if found == language]


def commands():
    """The lines of the blocks without a language that begin with a program, without their remarks."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    lines = [line for line in lines if re.match(r"(plumbd?|tools/\w+|cmake) ?", line)]
    return [part.strip() for line in lines
            for part in re.split(";|&&", re.sub(r"\s+#.*", "", line))]


class Started:
    """A program that runs until it is stopped; what it says is kept in a file."""

    def __init__(self, folder, words):
        self.words, self.said = words, folder / "said.txt"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(words, cwd=folder, stdout=said, stderr=subprocess.STDOUT)

    def says(self, text):
        def found():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.words} ended: {self.said.read_text()}")
            return text in self.said.read_text()

        support.wait_until(f"{self.words} to say {text!r}", found)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(support.PATIENCE)


class Readme(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(support.scratch())
        bin_dir = str(pathlib.Path(support.program("plumb")).parent)
        os.environ["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
        os.environ["XDG_CONFIG_HOME"] = str(self.folder)

    def prepare(self):
        """A server that holds a leaking run with its capsule, its record, and a spool nobody took."""
        server = support.Server(self.folder, "--data", str(self.folder / "data"))
        self.addCleanup(server.kill)
        os.environ["PLUMBLINE_SERVER"] = server.address
        trainer = support.start_training(
            "--router", "score-drop", "--steps", "100000", "--run", "exp1", "--server",
            server.address, "--record", self.folder / "runs" / "exp1",
            "--batch", "8", "--seq", "128", "--launch", "2")  # a capsule with two pools
        self.addCleanup(trainer.kill)
        self.fingerprint = support.wait_until("a finding", self.finding)
        support.wait_until("its capsule", lambda: self.run_one(
            f"plumb capsule {self.fingerprint} --output {self.folder}/dumps").returncode == 0)
        trainer.send_signal(signal.SIGTERM)
        trainer.wait(support.PATIENCE)
        late = plumbline.init(run="late", server="127.0.0.1:1",
                              record=str(self.folder / "late"), spool=str(self.folder / "spool"))
        with late.step(0):
            late.scalar("loss", 1.0)
        late.finish(timeout=0.2)
        return server

    def finding(self):
        done = self.run_one(f"plumb query --run exp1 --rule {FUTURE} --format json")
        found = re.search(r'"fingerprint":\s*"(\w+)"', done.stdout)
        return found and found.group(1)

    def run_one(self, command):
        return subprocess.run(command.split(), cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=support.PATIENCE)

    def as_here(self, command, address):
        """The command with this test's folders, addresses and finding for the page's words."""
        command = command.replace("capsule FINDING --output DIR",
                                  f"capsule {self.fingerprint} --output again")
        command = command.replace("audit DIR", "audit again").replace("spool list DIR", "spool list spool")
        command = command.replace("spool send DIR", "spool send spool").replace("--data DIR", "--data new")
        command = command.replace("/run/plumb.sock", str(self.folder / "relay.sock"))
        return command.replace("127.0.0.1:7433", address).replace("HOST:PORT", address)

    def serve(self, command):
        words = command.split()
        if words[0] == "plumbd" and "--grpc" not in words:
            words += ["--grpc", "127.0.0.1:0"]  # 7433 may be somebody's
        if words[0] == "plumbd":
            words += ["--http", "off"]
        started = Started(self.folder, words)
        self.addCleanup(started.process.kill)
        started.says("listening" if words[0] == "plumbd" else FUTURE)
        started.stop()

    def test_every_command_runs(self):
        if not shutil.which("plumb"):
            self.fail("plumb is not on PATH")
        server = self.prepare()
        ran = 0
        for command in commands():
            if command.startswith(ELSEWHERE):
                continue
            here = self.as_here(command, server.address)
            with self.subTest(command):
                self.assertNotRegex(here, r"\b[A-Z]{3,}\b", "a word of the page that nothing stands for")
                ran += 1
                if command.startswith(SERVES):
                    self.serve(here)
                    continue
                done = self.run_one(here)
                self.assertEqual(done.returncode, 1 if command.startswith(FINDS) else 0, done.stdout)
        self.assertGreaterEqual(ran, 18)

    def test_the_first_page_is_short(self):
        lines = (support.REPOSITORY / "README.md").read_text().splitlines()
        self.assertLessEqual(len(lines), README_LINES)

    def test_every_call_exists(self):
        calls = 0
        for block in blocks("python"):
            for node in ast.walk(ast.parse(block)):
                if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                    continue
                owner = {"plumbline": plumbline, "run": plumbline.Run,
                         "adapters": adapters}.get(node.value.id)
                if owner is not None:
                    calls += 1
                    self.assertTrue(hasattr(owner, node.attr), f"{node.value.id}.{node.attr}")
        self.assertGreater(calls, 15)


if __name__ == "__main__":
    support.main()
