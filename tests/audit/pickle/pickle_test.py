"""The restricted reader of pickles compared with Python's own: by value in each protocol, damaged at every byte, hostile."""

import collections
import io
import os
import pickle
import random
import resource
import struct
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["PICKLE_DUMP"]
MEMORY = 512 << 20  # of address space: the program with the maximum that its limits allow


def canon(value):
    """The text that pickle_dump prints for a value."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return str(value)
        size = ((value if value >= 0 else ~value).bit_length() // 8) + 1
        return "long:" + value.to_bytes(size, "little", signed=True).hex()
    if isinstance(value, float):
        return "f:" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return "t:" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, (bytes, bytearray)):
        return "b:" + bytes(value).hex()
    if isinstance(value, list):
        return "[" + "".join(canon(v) + "," for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(canon(v) + "," for v in value) + ")"
    if isinstance(value, (set, frozenset)):
        return "<" + "".join(v + "," for v in sorted(canon(v) for v in value)) + ">"
    if isinstance(value, dict):
        return "{" + "".join(canon(k) + "," + canon(v) + "," for k, v in value.items()) + "}"
    raise TypeError(type(value))


def limit():
    if not os.environ.get("PLUMBLINE_SANITIZED"):  # a sanitizer reserves terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def dump(data, *flags):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return subprocess.run([PROGRAM, *flags, file.name], capture_output=True, text=True, timeout=120, preexec_fn=limit)


def some_value(rng, depth=0):
    leaves = [
        lambda: None,
        lambda: rng.random() < 0.5,
        lambda: rng.randrange(-(2 ** rng.randrange(1, 200)), 2 ** rng.randrange(1, 200)),
        lambda: rng.choice([0.0, -0.0, 1e308, 5e-324, float("inf"), -float("inf"), rng.gauss(0, 1)]),
        lambda: "".join(chr(rng.choice([0x41, 0x0A, 0x5C, 0x27, 0xE9, 0x20AC, 0x1F600])) for _ in range(rng.randrange(6))),
        lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(9))),
        lambda: bytearray(rng.randrange(256) for _ in range(rng.randrange(1, 9))),
    ]
    if depth > 4 or rng.random() < 0.4:
        return rng.choice(leaves)()
    inside = [some_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    keys = [k for k in inside if isinstance(k, (int, str, bytes, float))]
    return rng.choice(
        [
            lambda: inside,
            lambda: tuple(inside),
            lambda: dict(zip(keys, inside)),
            lambda: collections.OrderedDict(zip(keys, inside)),
            lambda: set(keys),
            lambda: frozenset(keys),
            lambda: [inside, inside, tuple(inside)],
        ]
    )()


VALUES = [
    [255, 256, 65535, 65536, -1, -(2**31), 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**50, -(10**50)],
    ["", "a'b\"c\\n\n\r\t\x00", "\u00e9\u20ac\U0001f600", "\\u0041", "x" * 300, "\ud800"],
    [b"", b"\x00\xff'\\\n", bytes(range(256)), b"y" * 300, bytearray(b"z\xe9")],
    [float("nan"), 1e-8, 0.1],
    {"a": {"b": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]}, 1: None, (2, 3): {4, 5}},
    [list(range(3000)), {i: str(i) for i in range(3000)}, set(range(3000))],
    collections.OrderedDict([("w", 1), ("b", 2)]),
]


class Plain(unittest.TestCase):
    def expect(self, value, data):
        found = dump(data)
        self.assertEqual(found.returncode, 0, found.stdout)
        self.assertEqual(found.stdout.strip(), canon(value))

    def test_values_of_every_protocol(self):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for value in VALUES:
                self.expect(value, pickle.dumps(value, protocol))

    def test_random_values(self):
        rng = random.Random(7)
        for i in range(120):
            value = [some_value(rng) for _ in range(3)]
            protocol = i % (pickle.HIGHEST_PROTOCOL + 1)
            self.expect(value, pickle.dumps(value, protocol))

    def test_frozen_sets_and_default_dicts(self):
        table = collections.defaultdict(list)
        table["x"].append(1)
        for protocol in range(6):
            self.expect({"x": [1]}, pickle.dumps(table, protocol))

    def test_python2(self):
        self.expect(["abc", 1, True], b"(lp0\nS'abc'\np1\naI1\naI01\na.")
        self.expect(b"\xe9\x00", b"U\x02\xe9\x00.")
        self.expect({"k": "v"}, b"ccollections\nOrderedDict\n((l(lS'k'\naS'v'\naatR.")


class Thing:
    def __init__(self):
        self.a = 1

    def run(self):
        return self.a


class Calls(unittest.TestCase):
    def test_a_call_stays_a_call(self):
        for protocol in range(6):
            text = dump(pickle.dumps(Thing(), protocol)).stdout
            self.assertIn("call g:__main__.Thing;", text)
            self.assertIn(canon({"a": 1}), text)

    def test_nothing_is_run(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "ran")
            text = dump(b"cos\nsystem\n(S'touch " + mark.encode() + b"'\ntR.").stdout
            self.assertTrue(text.startswith("call g:os.system;"))
            self.assertFalse(os.path.exists(mark))

    def test_circles_through_calls_are_cut(self):
        """An object that holds a bound method of itself, as schedules do; every reference back is one circle."""
        thing = Thing()
        thing.method = thing.run
        thing.self = thing
        for protocol in range(6):
            found = dump(pickle.dumps({"o": thing, "after": [1]}, protocol))
            self.assertEqual(found.returncode, 0, found.stdout)
            self.assertIn("call g:builtins.getattr;(circle:__main__.Thing," if protocol else "circle:__main__.Thing", found.stdout)
            self.assertIn(canon("after") + "," + canon([1]), found.stdout)
            self.assertNotIn("refused", found.stdout)

    def test_circles_of_every_part_of_a_call(self):
        """At every point where a call can be entered again: its replacement keeps the kinds around it."""
        shapes = {
            "state": b"cm\nC\n)\x81q\x00h\x00b.",
            "arguments": b"]q\x00\x85q\x01cm\nf\nh\x01R0h\x00cm\nf\nh\x01Ra0h\x01.",
            "list of its arguments": b"]q\x00cm\nf\nh\x00\x85Ra.",
            "items": b"cm\nC\n)\x81q\x00h\x00a.",
            "entries": b"cm\nC\n)\x81q\x00Nh\x00s.",
            "persistent": b"cm\nC\n)\x81q\x00h\x00Qb.",
            "callee": b"]q\x00h\x00)\x81a.",
        }
        for name, data in shapes.items():
            with self.subTest(name):
                found = dump(data)
                self.assertEqual(found.returncode, 0, found.stdout)
                self.assertIn("circle:", found.stdout)

    def test_many_circles_cost_no_more_than_their_bytes(self):
        back = dump(b"cm\nC\n)\x81q\x00(" + b"h\x00" * (1 << 19) + b"lb.")
        self.assertEqual(back.returncode, 0, back.stdout[:200])

    def test_persistent_ids(self):
        class Writer(pickle.Pickler):
            def persistent_id(self, value):
                return ("storage", 3) if value == "ref" else None

        out = io.BytesIO()
        Writer(out, 2).dump(["ref"])
        self.assertEqual(dump(out.getvalue()).stdout.strip(), "[p:((t:%s,3,),),]" % b"storage".hex())


def nested(count, data=b"]"):
    return b"\x80\x02" + data + b"".join(b"]" for _ in range(count)) + b"a" * count + b"."


def memo_bomb(levels):
    """Ten references to the previous list, at each level."""
    out = b"\x80\x02]q\x00"
    for level in range(levels):
        out += b"0(" + b"h%c" % level * 10 + b"lq%c" % (level + 1)
    return out + b"."


HOSTILE = {
    "nothing": (b"", "byte 0: expected an opcode or STOP"),
    "no stop": (b"\x80\x02]", "byte 3: expected an opcode or STOP"),
    "nothing on the stack": (b"\x80\x02.", "byte 2: expected a value on the stack"),
    "protocol 9": (b"\x80\x09N.", "expected a protocol of 0 to 5, found 9"),
    "unknown opcode": (b"\xfe.", "found byte 254"),
    "text of 4 GiB": (b"X\xff\xff\xff\xffabc.", "byte 0: expected 4294967295 bytes of a text, found 4"),
    "text of 2^63": (b"\x8d" + b"\xff" * 7 + b"\x7fabc.", "expected 9223372036854775807 bytes of a text"),
    "text of 2^64": (b"\x8d" + b"\xff" * 8 + b"abc.", "expected 18446744073709551615 bytes of a text"),
    "bytes of 2^63": (b"\x8e" + b"\x00" * 7 + b"\x80abc.", "expected 9223372036854775808 bytes of bytes"),
    "bytearray of 2^63": (b"\x96" + b"\x00" * 7 + b"\x80abc.", "expected 9223372036854775808 bytes of bytes"),
    "frame of 2^63": (b"\x80\x04\x95" + b"\x00" * 7 + b"\x80N.", "expected a frame of 9223372036854775808 bytes"),
    "huge LONG4": (b"\x8b\xff\xff\xff\x7f\x01.", "expected 2147483647 bytes of a whole number"),
    "large LONG4": (b"\x8b\x00\x10\x00\x00" + b"\x01" * 4096 + b".", "whole number of at most 320 bytes, found 4096"),
    "many digits": (b"L" + b"9" * 5000 + b"L\n.", "at most 320 digits, found 5001"),
    "no digits": (b"Iabc\n.", "expected a whole number in decimal"),
    "no decimal number": (b"F1.2.3\n.", "expected a number in decimal"),
    "no line": (b"I123", "found no end of the line"),
    "no mark": (b"\x80\x02Nt.", "expected a mark"),
    "below the mark": (b"N(\x85.", "expected a value on the stack"),
    "memo that is not there": (b"h\x07.", "byte 0: expected a value at index 7 of the memo"),
    "append to a number": (b"K\x01Na.", "expected a list to append to"),
    "set in a list": (b"]NNs.", "expected a dict to set items in"),
    "odd dict": (b"(Nd.", "expected a value for each key"),
    "arguments that are no tuple": (b"cos\nsystem\nNR.", "expected a tuple of arguments"),
    "global of numbers": (b"K\x01K\x02\x93.", "expected a module and a name as texts"),
    "long names": (b"c" + b"a" * 600 + b"\nb\n.", "names of at most 512 bytes"),
    "registry": (b"\x82\x01.", "registry"),
    "buffer": (b"\x80\x05\x97.", "a buffer outside"),
    "list in itself": (b"]q\x00h\x00a.", "expected no value that contains itself"),
    "tuple in itself": (b"]q\x00h\x00\x85a.", "expected no value that contains itself"),
    "deep": (nested(100000), "expected at most 200 nested containers"),
    "deep tuples": (b")" + b"\x85" * 100000 + b".", "expected at most 200 nested containers"),
    "memo bomb": (memo_bomb(12), "after following each reference"),
    "escape": (b"S'\\x4'\n.", "expected a whole escape"),
    "letters beyond latin-1": (b"c_codecs\nencode\n(X\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1tR.", "latin-1"),
    "stack": (b"N" * (1 << 21) + b".", "values on the stack, found more"),
    "marks": (b"(" * (1 << 21) + b".", "marks"),
    "values": (b"]0" * (3 << 20) + b".", "expected at most 2097152 values"),
    "globals": (b"".join(b"cm\n%d\n0" % i for i in range(5000)) + b"N.", "different globals"),
    "too large": (b"\x80\x02" + b"N0" * (33 << 20) + b"N.", "pickle of at most 67108864 bytes"),
}


KEPT = 1 << 19  # PickleLimits::plain


def batches(items, open_, close, size=1000):
    """Items as a pickler writes them into a container: 1,000 at a time."""
    return b"".join(b"(" + b"".join(items[i : i + size]) + close for i in range(0, len(items), size)) if open_ is None else open_ + batches(items, None, close, size)


class Runs(unittest.TestCase):
    """Plain values beyond those that are kept: counted, and the rest of the pickle is read."""

    def found(self, data):
        found = dump(data)
        self.assertEqual(found.returncode, 0, found.stdout[:300] + found.stderr[:300])
        return found.stdout.strip()

    def test_what_is_long(self):
        """For any content, and in every protocol that writes batches, the values around it are read."""
        n = KEPT + 50_000
        shared = "a text that comes again"
        long = {
            "numbers": list(range(n)),
            "reals": [i / 7 for i in range(n)],
            "texts": ["w%d" % i for i in range(n)],
            "vocabulary": {"w%d" % i: i for i in range(n)},
            "set": set(range(n)),
            "pairs": [(i, "w%d" % i) for i in range(n // 2)],
            "dicts": [{"loss": i / 3, "step": i} for i in range(n // 2)],
            "lists": [list(range(i, i + 300)) for i in range(n // 300)],
            "deque": collections.deque(range(n)),
            "counter": collections.Counter({i: i for i in range(n)}),
            "ordered": collections.OrderedDict((i, i) for i in range(n)),
            "a text within": [shared, *range(n), shared],
        }
        for protocol in (2, 4):
            for name, value in long.items():
                if protocol == 4 and name not in ("numbers", "vocabulary", "a text within"):
                    continue
                with self.subTest(name, protocol=protocol):
                    text = self.found(pickle.dumps({"before": [1, shared], "long": value, "after": {"x": (2, shared), "w7": "w0"}}, protocol))
                    self.assertIn("run:", text)
                    self.assertTrue(text.startswith("{" + canon("before") + "," + canon([1, shared])), text[:200])
                    self.assertTrue(text.endswith(canon("after") + "," + canon({"x": (2, shared), "w7": "w0"}) + ",}"), text[-300:])

    def test_all_are_counted(self):
        for n in (KEPT, KEPT + 1001, 1_234_567):
            text = self.found(pickle.dumps(list(range(n)), 2))
            items = text[1:-2].split(",")
            runs = [int(i.split(":")[1].split("/")[0]) for i in items if i.startswith("run:")]
            self.assertEqual(len(items) - len(runs) + sum(runs), n)
            self.assertLessEqual(len(items), KEPT + 1000)

    def test_what_is_kept(self):
        """Short containers next to it, a trainer's numbers around it, and lists with other content."""
        history = list(range(KEPT * 2))
        state = {"losses": history, "epoch": 3, "steps": list(range(200)), "best": {"loss": 0.5}}
        text = self.found(pickle.dumps([history, state, Thing(), {i: (i,) for i in range(60)}], 2))
        for value in (3, list(range(200)), {"loss": 0.5}, {i: (i,) for i in range(60)}):
            self.assertIn(canon(value) + ",", text)
        self.assertIn("call g:__main__.Thing;", text)
        objects = self.found(pickle.dumps([history, [Thing() if i % 500 == 0 else i for i in range(3000)]], 2))
        self.assertEqual(objects.count("call g:__main__.Thing;"), 6)
        self.assertIn(",2999,", objects)

    def full(self, rest):
        """A pickle whose space for plain values is used up, and then a list with items appended to it."""
        return b"\x80\x02(]" + batches([b"K\x01"] * (KEPT + 2000), None, b"e") + b"]" + rest + b"t."

    def test_nothing_leads_to_what_is_dropped(self):
        """Values of a batch that another object holds are kept, or are known to be dropped."""
        many = b"K\x02" * 300
        # An older list received a value of the batch: memo 0 is the list.
        text = self.found(self.full(b"q\x00(h\x00(K\x07]q\x01K\x08e0" + many + b"e"))
        self.assertTrue(text.endswith("[7,[],8," + "2," * 300 + "],)"), text[-700:])
        # The same with a mark that is removed again.
        text = self.found(self.full(b"q\x00((h\x00K\x07a1" + many + b"e"))
        self.assertTrue(text.endswith("[7," + "2," * 300 + "],)"), text[-700:])
        # A tuple of the batch is repeated: it was plain and is not reported. A text is.
        text = self.found(self.full(b"(K\x01K\x02\x86q\x05X\x02\x00\x00\x00abq\x06" + many + b"eh\x05h\x06h\x05h\x06"))
        again = text[text.rindex("]") + 1 :].split(",")
        self.assertEqual(again[1:-1], ["run:1/1/open", canon("ab")] * 2)
        # Nothing is added to it.
        found = dump(self.full(b"(]q\x05" + many + b"eh\x05K\x01a"))
        self.assertIn("expected a list to append to", found.stdout)

    def test_runs_that_hold_on_to_something(self):
        """Bytes that take values from elsewhere do not state which ones."""
        many = b"K\x02" * 300
        self.assertTrue(self.found(self.full(b"q\x00(" + many + b"e")).endswith("[run:300/300/closed,],)"))
        self.assertTrue(self.found(self.full(b"q\x00(h\x00" + many + b"e")).endswith("[run:301/300/open,],)"))

    def test_bombs_within(self):
        """Dropped values cost no more than their bytes: texts that are created again, batches in batches, deep ones."""
        many = b"K\x02" * 300
        large = b"X\x00\x00\x10\x00" + b"a" * (1 << 20) + b"q\x09"
        encoded = b"(" + many + b"c_codecs\nencode\n(h\x09X\x06\x00\x00\x00latin1tR0" + b"e"
        for name, rest in {
            "texts": b"(" + large + many + b"e" + encoded * 5000,
            "batches": (b"(]" + b"(" + many + b"e") * 2000 + b"e" * 2000,
            "marks": b"(" * 30000 + many + b"1" * 30000,
            "lists": b"(]" * 30000 + many + b"e" * 30000,
        }.items():
            with self.subTest(name):
                found = dump(self.full(rest))
                self.assertIn(found.returncode, (0, 1), found.stderr[:200])


class Hostile(unittest.TestCase):
    def test_hostile(self):
        for name, (data, expected) in HOSTILE.items():
            with self.subTest(name):
                found = dump(data)
                self.assertEqual(found.returncode, 1, found.stdout[:200])
                self.assertIn(expected, found.stdout)

    def test_one_text_used_often_costs_nothing(self):
        text = b"X\x00\x00\x10\x00" + b"a" * (1 << 20) + b"q\x00"
        encode = b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR0" * 20000
        found = dump(b"\x80\x02" + text + encode + b"N.")
        self.assertEqual(found.returncode, 0, found.stdout[:200])

    def test_graphs_by_chance(self):
        """Lists, dicts, tuples, calls and states that hold each other in any order: refused, or a line of finite length."""
        rng = random.Random(11)
        ends = {0: 0, 1: 0}
        for _ in range(int(os.environ.get("PICKLE_GRAPHS", 150))):
            made, out = 0, b"\x80\x02"
            for _ in range(rng.randrange(2, 14)):
                old = [b"h%c" % rng.randrange(made) if made else b"N" for _ in range(3)]
                out += rng.choice([
                    b"]", b"}", b"(" + old[0] + old[1] + b"t", b"cm\nf\n(" + old[0] + b"tR", b"cm\nC\n)\x81", old[0] + b"Q",
                    b"(" + old[0] + old[1] + b"l", b"cm\nf\n" + b"(" + old[0] + old[1] + old[2] + b"tR",
                ]) + b"q%c" % made + b"0"
                made += 1
            for _ in range(rng.randrange(1, 12)):  # what is added to them later
                at, what = b"h%c" % rng.randrange(made), b"h%c" % rng.randrange(made)
                out += rng.choice([at + what + b"b0", at + what + b"a0", at + b"N" + what + b"s0"])
            found = dump(out + b"h%c." % rng.randrange(made))
            self.assertIn(found.returncode, ends, (out, found.stderr))
            ends[found.returncode] += 1
        self.assertTrue(all(ends.values()), ends)

    def test_every_byte_damaged(self):
        circle = Thing()
        circle.method, circle.self, circle.list = circle.run, circle, [circle]
        value = {"a": [1, 2.5, "x\u20ac", b"\xff", (True, None)], "o": collections.OrderedDict(k={1, 2}), "t": Thing(), "c": [circle, circle], "n": 10**30}
        for protocol in range(6):
            found = dump(pickle.dumps(value, protocol), "--damage")
            self.assertEqual(found.returncode, 0, found.stdout + found.stderr)


if __name__ == "__main__":
    unittest.main()
