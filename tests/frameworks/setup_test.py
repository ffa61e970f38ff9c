"""tests/frameworks/setup against a registry on this machine: what it skips, what it fails at, what it does again.

uv is played by a script that asks pip, so that nothing is fetched from elsewhere.
"""

import base64
import contextlib
import functools
import hashlib
import http.server
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import zipfile

SETUP = pathlib.Path(__file__).with_name("setup")
# pip of uv's own environment: --python is pip's option too.
UV = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
if [ "$1" = venv ]; then
  for last; do :; done
  exec /usr/bin/python3 -m venv --without-pip "$last"
fi
shift 2
quiet=$1 python=$3
shift 3
exec "$here/python" -m pip --python "$python" install "$quiet" "$@"
"""


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel(folder, name, files):
    """A wheel of version 1.0, in a folder as a registry has it. Returns the line that pins it."""
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={digest(text.encode())},{len(text)}\n" for path, text in files.items())
    place = folder / "simple" / name
    place.mkdir(parents=True)
    path = place / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for member, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = 0o100755 << 16
            file.writestr(entry, text)
    (place / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def registry(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def nowhere():
    with socket.socket() as one:  # a port that was free a moment ago
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}/simple"


class Setup(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-setup-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.pins, cls.cache = cls.folder / "pins", cls.folder / "cache"
        cls.pins.mkdir()
        cls.uv = wheel(cls.folder, "uv", {"uv-1.0.data/scripts/uv": UV})
        cls.small = wheel(cls.folder, "small", {"small.py": "VALUE = 7\n"})

    def setUp(self):
        self.pin("uv.txt", self.uv)
        self.pin("requirements.txt", self.small)
        for name in self.environments():
            shutil.rmtree(self.cache / name)

    def pin(self, name, text):
        (self.pins / name).write_text(text)

    def run_setup(self, index, *words):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON"))}
        environment = {**kept, "PLUMBLINE_CACHE": str(self.cache), "PLUMBLINE_FRAMEWORK_PINS": str(self.pins), "PIP_INDEX_URL": index,
                       "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}  # fmt: skip
        return subprocess.run([SETUP, *words], env=environment, capture_output=True, text=True, timeout=300, check=False)

    def expect(self, done, status):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return (done.stdout + done.stderr).strip()

    def environments(self):
        return [path.name for path in self.cache.glob("frameworks-*")]

    def test_1_uv_out_of_reach(self):
        self.assertIn("out of reach", self.expect(self.run_setup(nowhere()), 77))

    def test_2_made_once_and_whole(self):
        with registry(self.folder) as index:
            made = pathlib.Path(self.expect(self.run_setup(index), 0).splitlines()[0])
        value = subprocess.run([made / "bin/python", "-c", "import small; print(small.VALUE)"], capture_output=True, text=True, check=True)
        self.assertEqual(value.stdout, "7\n")
        began = time.monotonic()
        self.assertEqual(self.expect(self.run_setup(nowhere()), 0), str(made))
        self.assertLess(time.monotonic() - began, 10)  # a process or two; making one takes longer
        # One that was left half made, by a process that was killed, is no environment.
        made.rename(f"{made}.partial")
        self.assertIn("out of reach", self.expect(self.run_setup(nowhere()), 77))
        self.assertEqual(self.environments(), [])

    def test_3_a_wrong_pin_is_no_skip(self):
        with registry(self.folder) as index:
            self.pin("requirements.txt", self.small[:-2] + ("0" if self.small[-2] != "0" else "1") + "\n")
            self.expect(self.run_setup(index), 1)
            self.pin("requirements.txt", self.small.replace("==1.0", "==2.0"))
            self.expect(self.run_setup(index), 1)
            self.pin("requirements.txt", "small==1.0\n")  # no hash
            self.expect(self.run_setup(index), 1)
            self.assertEqual(self.environments(), [])

    def test_4_nor_is_a_wrong_uv(self):
        with registry(self.folder) as index:
            self.pin("uv.txt", self.uv.replace("sha256:", "sha256:0")[:-2] + "\n")
            self.expect(self.run_setup(index), 1)

    def test_an_unknown_word(self):
        self.expect(self.run_setup(nowhere(), "--most"), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
