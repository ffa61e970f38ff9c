"""The positions of a zip's members, compared with Python's zipfile; malformed archives."""

import io
import os
import struct
import subprocess
import tempfile
import unittest
import zipfile

PROGRAM = os.environ["ZIP_DUMP"]


def archive(members, method=zipfile.ZIP_STORED, comment=b"", zip64=False):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.comment = comment
        for name, data in members:
            with z.open(zipfile.ZipInfo(name) if method == 0 else name, "w", force_zip64=zip64) as m:
                m.write(data)
    return out.getvalue()


def dump(data, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.zip")
        with open(path, "wb") as file:
            file.write(data)
        return subprocess.run([PROGRAM, *flags, path], capture_output=True, text=True, timeout=300)


def entry_at(data, i=0):
    """The position at which entry i of the directory begins."""
    at = data.index(b"PK\x01\x02")
    for _ in range(i):
        at = data.index(b"PK\x01\x02", at + 1)
    return at


def patched(data, at, form, value):
    size = struct.calcsize(form)
    return data[:at] + struct.pack(form, value) + data[at + size :]


def zip64_of(data):
    """The same archive with a 64-bit end record and an entry whose position has 64 bits."""
    at, end = entry_at(data), data.index(b"PK\x05\x06")
    head = struct.unpack_from("<I", data, at + 42)[0]
    name = struct.unpack_from("<H", data, at + 28)[0]
    extra = struct.pack("<HHQQQ", 1, 24, *[struct.unpack_from("<I", data, at + 24)[0]] * 2, head)
    entry = bytearray(data[at : at + 46 + name])
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, len(extra))
    struct.pack_into("<I", entry, 42, 0xFFFFFFFF)
    directory = bytes(entry) + extra
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(directory), at)
    place = struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1)
    tail = bytearray(data[end:])
    struct.pack_into("<HHII", tail, 8, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return data[:at] + directory + record + place + bytes(tail)


class Reads(unittest.TestCase):
    def test_members(self):
        data = archive([("a/data.pkl", b"xyz"), ("a/data/0", b""), ("a/data/1", b"0123456789")])
        self.assertEqual(dump(data).stdout, "a/data.pkl|xyz\na/data/0|\na/data/1|0123456789\n")

    def test_comment_with_an_end_record_in_it(self):
        data = archive([("a", b"x")], comment=b"PK\x05\x06" + b"c" * 40)
        self.assertEqual(dump(data).stdout, "a|x\n")

    def test_nothing(self):
        self.assertEqual(dump(archive([])).stdout, "")

    def test_64_bits(self):
        self.assertEqual(dump(zip64_of(archive([("a", b"xyz")]))).stdout, "a|xyz\n")
        self.assertEqual(dump(archive([("a", b"xyz"), ("b", b"")], zip64=True)).stdout, "a|xyz\nb|\n")

    def test_64_bits_that_none_needed(self):
        # As torch writes it: a 64-bit end record, and all numbers also in the other one.
        data = bytearray(zip64_of(archive([("a", b"xyz")])))
        record, end = data.index(b"PK\x06\x06"), data.rindex(b"PK\x05\x06")
        count, size, at = (struct.unpack_from("<Q", data, record + i)[0] for i in (32, 40, 48))
        struct.pack_into("<HHII", data, end + 8, count, count, size, at)
        self.assertEqual(dump(bytes(data)).stdout, "a|xyz\n")
        struct.pack_into("<I", data, end + 16, at + 1)
        self.assertIn("different numbers", dump(bytes(data)).stdout)

    def test_deflated_and_encrypted_are_named_and_not_read(self):
        self.assertEqual(dump(archive([("a", b"x" * 99)], zipfile.ZIP_DEFLATED)).stdout, "a|deflated\n")
        data = archive([("a", b"x")])
        self.assertEqual(dump(patched(data, entry_at(data) + 8, "<H", 1)).stdout, "a|encrypted\n")

    def test_every_byte_damaged(self):
        data = zip64_of(archive([("a/b", b"xyz")]))
        self.assertEqual(dump(data, "--damage").returncode, 0)
        self.assertEqual(dump(archive([("a", b"x"), ("b", b"")]), "--damage").returncode, 0)


class Refuses(unittest.TestCase):
    def refused(self, data, expected):
        found = dump(data)
        self.assertEqual(found.returncode, 1, found.stdout)
        self.assertIn(expected, found.stdout)

    def test_cut(self):
        data = archive([("a", b"x" * 50)])
        self.refused(data[:-1], "expected a zip's end record")
        self.refused(data[10:], "expected the directory")
        self.refused(b"", "expected a zip's end record")

    def test_names(self):
        for name in ["/etc/x", "../x", "a/../../x", "..", "c:x", "a\\b"]:
            info = archive([("q" * len(name), b"x")])
            self.refused(info.replace(b"q" * len(name), name.encode()), "the name of a member within")

    def test_twice(self):
        data = archive([("a", b"x"), ("b", b"y")]).replace(b"b", b"a")
        self.refused(data, 'found "a" again')

    def test_overlap(self):
        data = archive([("a", b"x" * 80), ("b", b"y")])
        place = entry_at(data, 1) + 42
        inside = patched(data, place, "<I", 40)
        self.refused(inside, "within another")
        self.refused(patched(data, place, "<I", 0), "within another")

    def test_beyond(self):
        data = archive([("a", b"x" * 8)])
        at = entry_at(data)
        larger = patched(patched(data, at + 20, "<I", 900), at + 24, "<I", 900)
        self.refused(larger, 'expected 900 bytes of "a" before the directory')
        self.refused(patched(data, at + 24, "<I", 9), "found a size of 9")
        self.refused(patched(data, at + 42, "<I", 1 << 30), "found it at byte 1073741824")
        end = data.index(b"PK\x05\x06")
        self.refused(patched(data, end + 12, "<I", 1 << 30), "directory of at most")
        self.refused(patched(patched(data, end + 8, "<H", 9), end + 10, "<H", 9), "entry 1 of 9")
        big = zip64_of(data)
        self.refused(patched(big, big.index(b"PK\x06\x07") + 8, "<Q", 1 << 63), "64-bit end record within")
        self.refused(patched(big, big.index(b"PK\x06\x06") + 48, "<Q", 1 << 62), "directory within")

    def test_another_name_in_the_header(self):
        data = archive([("abc", b"x")])
        self.refused(data.replace(b"abc", b"abd", 1), "in its header as in the directory")


if __name__ == "__main__":
    unittest.main()
