"""Runs every command line of README.md, CONTRIBUTING.md and docs/ unchanged, page by page in the page's order, or
commands.toml gives the reason why not.

Each page has a folder of its own. The test runs in a network of its own, so that the documented ports are free, and on
temporary copies of /etc and /var. If commands.toml does not list a mention in the running text, it is checked against
the help text of its program: the subcommand and each option must exist.
"""

import atexit
import fnmatch
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import unittest

import documents

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
ALONE = "PLUMBLINE_TEST_IS_ALONE"


def go_alone():
    """Starts this program again in namespaces of its own; exits with 77 if the machine allows none."""
    if os.environ.get(ALONE):
        return
    unshare = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False) if shutil.which("unshare") else None
    if tried is None or tried.returncode != 0:
        print(f"skipped: a network of its own is not allowed here: {tried.stderr if tried else 'no unshare'}")
        sys.exit(SKIPPED)
    os.environ[ALONE] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def throw_away(*folders):
    """Mounts an empty layer over each folder of the system: what commands write there is discarded with this process."""
    layers = tempfile.mkdtemp(prefix="plumbline-layers-")
    subprocess.run(["mount", "-t", "tmpfs", "layers", layers], check=True)
    atexit.register(os.rmdir, layers)
    atexit.register(subprocess.run, ["umount", "-l", layers], check=False)
    for folder in folders:
        upper, work = (os.path.join(layers, kind + folder.replace("/", "-")) for kind in ("upper", "work"))
        os.mkdir(upper), os.mkdir(work)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", folder], check=True)


go_alone()

import support  # noqa: E402 (opens PyTorch, which takes a second)
import commands_world as world  # noqa: E402

TABLE = tomllib.loads((HERE / "commands.toml").read_text())
LONG = bool(os.environ.get("PLUMB_LONG"))
PROGRAMS = ("plumb", "plumbd")


def entries(page):
    return TABLE["page"].get(page, {}).get("command", [])


def fits(entry, command):
    return fnmatch.fnmatchcase(command.text, entry["like"]) if "like" in entry else command.text == entry["text"]


def entry_of(command):
    return next((entry for entry in entries(command.page) if fits(entry, command)), None)


class Page:
    """The folder of one page, the words that it replaces, and the programs that run until its end."""

    def __init__(self, name, folder, shared):
        self.name, self.folder, self.shared = name, folder, shared
        self.words, self.started, self.umask = {}, [], ":"

    def blocks(self):
        return documents.blocks(self.name)

    def as_here(self, text, entry):
        for word, here in entry.get("with", {}).items():
            text = text.replace(word, here)
        for word, here in self.words.items():
            text = re.sub(rf"\b{word}\b", here, text)
        return text

    def run(self, text, entry):
        """Returns (exit status, output) of a command that ends by itself. A umask holds for the page's later commands,
        as in one terminal."""
        if stated := re.search(r"\bumask \d+", text):
            self.umask = stated[0]
        done = subprocess.run([entry.get("shell", "bash"), "-c", f"{self.umask}; {text}"], cwd=self.folder, input=entry.get("input", ""), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=support.PATIENCE, check=False)
        return done.returncode, done.stdout

    def serve(self, text, states):
        """Starts a command that runs until it is stopped, and waits until its output contains `states`."""
        stated = tempfile.NamedTemporaryFile("w+", dir=self.folder, prefix="output-")  # noqa: SIM115 (closed by stop)
        process = subprocess.Popen(["bash", "-c", f"exec {text}"], cwd=self.folder, stdin=subprocess.PIPE, stdout=stated,
                                   stderr=subprocess.STDOUT)
        self.started.append((process, stated))

        def found():
            output = pathlib.Path(stated.name).read_text()
            if states not in output and process.poll() is not None:
                raise AssertionError(f"{text} ended with {process.returncode}: {output}")
            return states in output

        support.wait_until(f"{text} to print {states!r}", found)

    def stop(self):
        """Ends the newest program like Ctrl-C; returns its exit status."""
        process, stated = self.started.pop()
        process.stdin.close()
        process.send_signal(signal.SIGINT)
        try:
            return process.wait(support.PATIENCE)
        finally:
            process.kill()
            stated.close()

    def end(self):
        while self.started:
            self.stop()


@functools.lru_cache(maxsize=None)
def help_of(*words):
    """Returns the output of `plumb WORDS --help`."""
    return subprocess.run([support.program(words[0]), *words[1:], "--help"], capture_output=True, text=True, check=True).stdout


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(cls.enterClassContext(support.scratch()))
        tools = cls.shared / "bin"
        tools.mkdir()
        for name in ("python", "python3"):  # Debian has no python, and another python3 has no PyTorch
            (tools / name).symlink_to(sys.executable)
        os.environ["PATH"] = f"{pathlib.Path(support.program('plumb')).parent}:{tools}:{os.environ['PATH']}"
        os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = str(cls.shared)
        os.environ.pop("PLUMBLINE_SERVER", None)

    def test_the_table_and_the_pages_hold_the_same_commands(self):
        for page in documents.PAGES:
            with self.subTest(page):
                found = documents.commands(page)
                self.assertEqual(documents.unmarked(page), [], "mark this block by a language")
                missing = [f"line {c.line}: {c.text}" for c in found if not c.inline and not entry_of(c)]
                self.assertEqual(missing, [], "commands.toml does not list these commands")
                unused = [e for e in entries(page) if not any(fits(e, c) for c in found)]
                self.assertEqual(unused, [], "no command of the page is one of these")
        self.assertEqual(set(TABLE["page"]) - set(documents.PAGES), set())

    def test_each_reason_is_given_once_and_each_test_that_is_named_exists(self):
        used = set()
        for page in TABLE["page"]:
            for entry in entries(page):
                with self.subTest(page=page, entry=entry):
                    if "why_not" in entry:
                        self.assertIn(entry["why_not"], TABLE["reasons"])
                        used.add(entry["why_not"])
                    if "by" in entry:
                        test, _, words = entry["by"].partition(": ")
                        self.assertIn(words, (support.REPOSITORY / test).read_text())
        self.assertEqual(used, set(TABLE["reasons"]))

    def test_what_the_text_mentions_exists(self):
        mentions = [c for page in documents.PAGES for c in documents.commands(page) if c.inline and not entry_of(c)]
        self.assertGreater(len(mentions), 60)
        for command in mentions:
            with self.subTest(page=command.page, line=command.line, command=command.text):
                self.check_mention(command)

    def check_mention(self, command):
        words = re.sub(r"^(\$ |[A-Z_]+=\S+ )*", "", command.text).split()
        if words[0] not in PROGRAMS:
            self.assertTrue(command.is_name, "commands.toml does not list this command")
            self.assertTrue((support.REPOSITORY / words[0]).exists() or shutil.which(words[0]), f"{words[0]} does not exist")
            return
        known, rest = [words[0]], words[1:]
        while rest and re.search(rf"(?m)^  {re.escape(rest[0])} ", help_of(*known).partition("\nSubcommands:")[2]):
            known.append(rest.pop(0))
        if known == ["plumb"] and rest and not rest[0].startswith("-"):
            self.fail(f"plumb has no {rest[0]}")
        for option in [word.partition("=")[0] for word in rest if word.startswith("--")]:
            self.assertRegex(help_of(*known), rf"(?m)(^|[\s,]){re.escape(option)}\b", f"{' '.join(known)} has no {option}")

    def follow(self, name):
        found = [c for c in documents.commands(name) if entry_of(c)]
        about = TABLE["page"][name]
        with tempfile.TemporaryDirectory(dir=self.shared) as folder:
            page = Page(name, pathlib.Path(folder), self.shared)
            self.addCleanup(page.end)
            try:
                for fixture in about.get("needs", []):
                    getattr(world, fixture)(page)
                for command in found:
                    with self.subTest(page=name, line=command.line, command=command.text):
                        self.follow_one(page, command, entry_of(command))
            finally:
                page.end()

    def follow_one(self, page, command, entry):
        if "why_not" in entry or "by" in entry or (entry.get("long") and not LONG):
            return
        for fixture in entry.get("before", []):
            getattr(world, fixture)(page)
        text = page.as_here(command.text, entry)
        self.assertNotRegex(re.sub(r"'[^']*'|\b[A-Z_]+=", "", text), r"(?<![-$\w])[A-Z]{3,}\b(?!:[^A-Z])", "nothing stands for this word of the page")
        if "serves" in entry:
            page.serve(text, entry["serves"])
            if entry.get("stop"):
                self.assertIn(page.stop(), entry.get("statuses", [0, 1, 130, -2]))
            return
        status, output = page.run(text, entry)
        self.assertEqual(status, entry.get("status", 0), f"{text}\n{output}")
        for part in entry.get("prints", []):
            self.assertIn(part, output, text)
        for made in entry.get("makes", []):
            self.assertTrue((page.folder / made).exists(), f"{text} made no {made}")


def add_pages():
    """Adds one test per page, so that a failure names the page."""
    for name in documents.PAGES:
        if any(not {"why_not", "by"} & set(entry) for entry in entries(name)):
            title = "test_" + re.sub(r"\W", "_", name.removesuffix(".md").lower())
            setattr(Commands, title, lambda self, name=name: self.follow(name))


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    throw_away("/etc", "/var/lib", "/usr/local/bin", "/run")  # in a user namespace we own each of these, but not the
                                                              # folders below
    add_pages()
    support.main()
