"""store.py BUILD FOLDER: makes the files that versions_test.py reads, with the programs of a build: a run record,
and plumbd's data of the same run after a clean stop. Run once per version, while that version is the newest
one; FOLDER is named after it.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RUN = "stored"


def findings(report):
    return sorted([f["rule"], f["fingerprint"], f["strength"]] for f in json.loads(report)["findings"])


def serve(build, data, port):
    command = [build / "bin/plumbd", "--data", data, "--grpc", "127.0.0.1:0", "--http", "off", "--port-file", port]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (port.exists() and port.read_text().strip()):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"plumbd does not listen: {process.communicate()[1]}")
        time.sleep(0.05)
    return process, port.read_text().strip()


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def pack(folder, target):
    def plain(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w:xz") as file:
        file.add(folder, folder.name, filter=plain)


def main(build, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        data, record = pathlib.Path(scratch) / "data", pathlib.Path(scratch) / "record"
        process, address = serve(build, data, pathlib.Path(scratch) / "port")
        environment = {**os.environ, "PYTHONPATH": str(build / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(
            ["/usr/bin/python3", HERE / "trainer.py", RUN, record, address], env=environment, check=True
        )
        audited = subprocess.run(
            [build / "bin/plumb", "audit", record, "--format", "json", "--quiet"], capture_output=True, text=True
        )
        (folder / "findings.json").write_text(json.dumps(findings(audited.stdout), indent=1) + "\n")
        stop(process)
        pack(data, folder / "data.tar.xz")
        pack(record, folder / "record.tar.xz")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
