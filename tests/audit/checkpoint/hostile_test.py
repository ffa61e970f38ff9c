"""Files designed to exhaust a reader's memory or time or to execute code; the cost of checkpoints of any size; progress
and --since."""

import io
import json
import os
import pty
import random
import struct
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, audit, notes, problems, train

LONG = bool(os.environ.get("PLUMB_LONG"))
MEMORY_FACTOR = 4 if os.environ.get("PLUMBLINE_SANITIZED") else 1  # of a sanitizer: redzones, freed memory that it keeps


def measured(*arguments):
    """(exit status, kilobytes without a sanitizer's, seconds) of plumb, in a child of a separate process: a direct child would start with the
    memory of this process."""
    request = ("import resource, subprocess, sys, time; start = time.time(); done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
           "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, time.time() - start)")
    done = subprocess.run([sys.executable, "-c", request, PLUMB, *map(str, arguments)], capture_output=True, text=True)
    status, kilobytes, seconds = done.stdout.split()
    return int(status), int(kilobytes) // MEMORY_FACTOR, float(seconds)


class Case(InAFolder):
    def written(self, members, name="step-1/model.pt"):
        """A zip of (name, bytes, method)."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for member, data, method in members:
                archive.writestr(member, data, method)
        return path

    def members(self, value):
        out = io.BytesIO()
        torch.save(value, out)
        with zipfile.ZipFile(out) as archive:
            return [(name, archive.read(name), zipfile.ZIP_STORED) for name in archive.namelist()]


class Bombs(Case):
    def test_a_deflated_storage(self):
        """A gibibyte of zeros in a megabyte: it is named, and never inflated."""
        members = self.members({"w.a": torch.zeros(1 << 18), "w.b": torch.ones(4)})
        bomb = [(n, b"\0" * (1 << 20) if n.endswith("/0") else d, zipfile.ZIP_DEFLATED if n.endswith("/0") else m) for n, d, m in members]
        path = self.written(bomb)
        status, report = audit(path)
        self.assertEqual(status, 2)
        self.assertIn("deflated", problems(report))
        self.assertEqual(report["inputs"][0]["records"], 1)  # the other one is read

    def test_a_storage_that_is_repeated(self):
        """Small files whose tensors would take days to read."""
        base = torch.ones(100000)
        views = {f"w.{i}": torch.as_strided(base, (1 << 15, 1 << 15), (0, 0)) for i in range(4)}
        many = {f"w.{i}": base for i in range(5000)}
        for value in (views, many):
            path = self.folder / "bomb.pt"
            torch.save(value, path)
            status, kilobytes, _ = measured("audit", path)
            self.assertEqual(status, 2)
            self.assertLess(kilobytes, 256 << 10)
            self.assertIn("times", problems(audit(path)[1]))

    def test_sizes_of_2_63(self):
        members = self.members({"w.a": torch.ones(64)})
        for size in (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00", b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"):
            lie = [(n, d.replace(b"K@", size) if n.endswith("data.pkl") else d, m) for n, d, m in members]
            self.assertNotEqual(lie, members)
            status, report = audit(self.written(lie))
            self.assertEqual(status, 2)
            self.assertIn("expected", problems(report))

    def test_recursion(self):
        deep = b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."
        circle = b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."
        for pickle, expected in ((deep, "nested containers"), (circle, "no value that contains itself")):
            status, report = audit(self.written([("m/data.pkl", pickle, zipfile.ZIP_STORED), ("m/version", b"3\n", zipfile.ZIP_STORED)]))
            self.assertEqual(status, 2)
            self.assertIn(expected, problems(report))

    def test_names_that_lead_out(self):
        members = self.members({"w.a": torch.ones(64)})
        path = self.written(members)
        data = path.read_bytes()
        name = [n for n, _, _ in members if n.endswith("/data/0")][0]
        for other in ("../" + name[3:], "/" + name[1:]):
            path.write_bytes(data.replace(name.encode(), other.encode()))
            status, report = audit(path)
            self.assertEqual(status, 2)
            self.assertIn("the name of a member within", problems(report))


class Size(Case):
    def sparse(self, gigabytes, tensors=40):
        """A model of zeros that takes no space on the disk."""
        path = self.folder / "step-1" / "model.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows, header, at = int(gigabytes * 1e9 / tensors / 4 / 8192), {"__metadata__": {"format": "pt"}}, 0
        for i in range(tensors):
            header[f"model.layers.{i}.weight"] = {"dtype": "F32", "shape": [rows, 8192], "data_offsets": [at, at + rows * 32768]}
            at += rows * 32768
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)
        return path

    def test_memory(self):
        for gigabytes in [1, 100] if LONG else [0.5]:
            status, kilobytes, seconds = measured("audit", self.sparse(gigabytes))
            self.assertEqual(status, 0)
            self.assertLess(kilobytes, 256 << 10)
            print(f"{gigabytes} GB: {kilobytes >> 10} MiB, {seconds:.1f} s")

    def test_memory_of_many_tensors(self):
        count = 20000 if LONG else 4000
        path = self.folder / "step-1" / "model.pt"
        path.parent.mkdir()
        torch.save({"model": {f"layers.{i}.experts.{i}.w1": torch.randn(16, 70) for i in range(count)}}, path)
        status, kilobytes, _ = measured("audit", path)
        self.assertEqual(status, 0)
        self.assertLess(kilobytes, 256 << 10)
        print(f"{count} tensors: {kilobytes >> 10} MiB")


class Shown(Case):
    def test_progress_on_a_terminal(self):
        # Long enough for the progress line, which appears after 0.2 s.
        large, small = Size.sparse(self, 3), self.folder / "small.pt"
        torch.save({"w.a": torch.ones(4)}, small)
        for flags, path, shown in (([], large, True), (["--quiet"], small, False)):
            for command in (["audit", path],):
                leader, follower = pty.openpty()
                child = subprocess.Popen([PLUMB, *map(str, command), *flags], stdout=subprocess.DEVNULL, stderr=follower)
                os.close(follower)
                text = b""
                while True:
                    try:
                        part = os.read(leader, 4096)
                    except OSError:
                        break
                    if not part:
                        break
                    text += part
                os.close(leader)
                self.assertEqual(child.wait(timeout=300), 0)
                self.assertEqual(b"%" in text or b"MB" in text or b"GB" in text, shown, text[:300])

    def test_since(self):
        def plant(step, model, optimizer, checkpoint):
            if step in (8, 16):
                checkpoint["model"] = {k: v.clone() for k, v in checkpoint["model"].items()}
                checkpoint["model"]["layers.0.weight" if step == 8 else "head.weight"][0, 0] = float("nan")

        train(self.folder / "exp", plant=plant)
        found = [f["site"]["layer"] for f in audit(self.folder)[1]["findings"] if f["rule"] == "precision/non-finite"]
        self.assertIn("layers.0.weight", found)
        later = audit(self.folder, flags=["--since", "12"])[1]
        self.assertNotIn("layers.0.weight", [f["site"]["layer"] for f in later["findings"] if f["site"]["step_last"] < 12])

    def test_since_reads_no_more(self):
        """Three checkpoints before the step are read to judge it; older ones are named and not read."""
        def plant(step, model, optimizer, checkpoint):
            checkpoint["model"] = {k: v.clone() for k, v in checkpoint["model"].items()}
            if step in (4, 28):
                checkpoint["model"]["layers.1.weight" if step == 4 else "layers.0.weight"][0, 0] = float("nan")

        train(self.folder / "exp", saves=8, plant=plant)
        status, report = audit(self.folder, flags=["--since", "24"])
        read = {i["path"].split("step-")[1].split("/")[0]: i["records"] for i in report["inputs"]}
        self.assertEqual({step for step, records in read.items() if records == 0}, {"4", "8"})
        self.assertIn("step 8 was not read: only findings from step 24 on are requested", notes(report))
        self.assertEqual(problems(report), "")
        self.assertEqual([(f["site"]["layer"], f["site"]["step_first"]) for f in report["findings"] if f["rule"] == "precision/non-finite"], [("layers.0.weight", 28)])
        moved = [v["site"] for v in report["verdicts"] if v["rule"] == "health/unchanged-tensor" and v["site"]["layer"] == "head.weight"]
        self.assertEqual([(s["step_first"], s["step_last"]) for s in moved], [(12, 32)])


if __name__ == "__main__":
    unittest.main()
