"""plumb certify: equal pairs, one changed bit at random places of each kind of evidence, NaN, signed zeros, missing and reordered sequences,
truncated files, signatures, baselines."""

import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
FLIPS = 200 if os.environ.get("PLUMB_LONG") else 12


def f32(value):
    """Returns the nearest f32, as a Python float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits64(value):
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def flipped(value, bit):
    """Returns the f32 with one bit of its fraction changed."""
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] ^ (1 << bit)))[0]


def rollouts(seed, halves=("rollout", "train"), steps=3, sequences=4, tokens=6):
    """Returns records whose halves have the same bits."""
    draw = random.Random(seed)
    records = []
    for step in range(steps):
        for s in range(sequences):
            values = [f32(-draw.expovariate(1)) for _ in range(tokens)]
            routes = [[draw.sample(range(8), 2) for _ in range(2)] for _ in range(tokens)]
            record = {"step": step, "sequence_id": f"s{step}-{s}", "tokens": [draw.randrange(1000) for _ in range(tokens)],
                      "loss_mask": 1, "weight_versions": step, "train_version": step}
            for half in halves:
                record[f"{half}_logprobs"] = list(values)
                record[f"{half}_routing"] = json.loads(json.dumps(routes))
            records.append(record)
    return records


def half(records, name):
    other = {"rollout": "train", "train": "rollout"}[name]
    return [{key: value for key, value in record.items() if not key.startswith(other + "_") or key == "train_version"} for record in records]


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def safetensors(tensors):
    """Returns a safetensors file of (name, dtype, shape, bytes)."""
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


class Certified(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def plumb(self, *arguments):
        return subprocess.run([PLUMB, "certify", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=self.folder)

    def certify(self, *arguments, status=0):
        done = self.plumb(*arguments, "-o", self.folder / "cert.json")
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.text = done.stdout
        return json.loads((self.folder / "cert.json").read_text())

    def gaps(self, certificate):
        return {(gap["kind"], gap["reason"]): gap["count"] for gap in certificate["not_compared"]}


class Rollouts(Certified):
    def pair(self, a, b):
        return self.write("a.jsonl", lines(a)), self.write("b.jsonl", lines(b))

    def test_engine_and_trainer(self):
        records = rollouts(1)
        certificate = self.certify(*self.pair(half(records, "rollout"), half(records, "train")))
        self.assertEqual(certificate["verdict"], "equal")
        self.assertEqual(certificate["counts"]["tokens"], 72)
        self.assertEqual(certificate["counts"]["logprobs"], 72)
        self.assertEqual(certificate["counts"]["routing_choices"], 72 * 2 * 2)
        self.assertEqual(certificate["first_difference"], None)
        self.assertEqual(certificate["signature"], None)
        self.assertIn("unsigned", self.text)
        self.assertEqual(certificate["environment"]["a"]["weight versions"], ["0", "1", "2"])

    def test_one_file(self):
        certificate = self.certify(self.write("both.jsonl", lines(rollouts(2))))
        self.assertEqual((certificate["mode"], certificate["verdict"]), ("halves", "equal"))
        self.assertEqual(certificate["counts"]["logprobs"], 72)
        self.assertEqual(certificate["counts"]["routing_choices"], 288)

    def test_one_bit_is_found_where_it_is(self):
        for seed in range(FLIPS):
            draw = random.Random(1000 + seed)
            a = rollouts(seed)
            b = json.loads(json.dumps(a))
            at, token, bit = draw.randrange(len(b)), draw.randrange(6), draw.randrange(23)
            values = b[at]["train_logprobs"]
            values[token] = flipped(values[token], bit)
            draw.shuffle(b)  # another order of sequences and steps is no difference
            b.sort(key=lambda record: record["step"])
            certificate = self.certify(*self.pair(a, b), status=1)
            first = certificate["first_difference"]
            self.assertEqual(first["kind"], "logprobs:train")
            self.assertEqual(first["where"], {"step": a[at]["step"], "sequence": a[at]["sequence_id"], "position": token, "token": a[at]["tokens"][token]})
            self.assertEqual(first["a"]["bits"], bits64(a[at]["train_logprobs"][token]))
            self.assertEqual(first["b"]["bits"], bits64(values[token]))
            self.assertEqual(first["distance"], {"dtype": "f32", "ulps": 1 << bit})
            self.assertEqual(certificate["counts"]["differ"], 1)

    def test_one_route_is_found_where_it_is(self):
        for seed in range(FLIPS):
            draw = random.Random(seed)
            records = rollouts(seed)
            at, token, layer, k = draw.randrange(len(records)), draw.randrange(6), draw.randrange(2), draw.randrange(2)
            was = records[at]["train_routing"][token][layer][k]
            records[at]["train_routing"][token][layer][k] = 9
            certificate = self.certify(self.write("both.jsonl", lines(records)), status=1)
            first = certificate["first_difference"]
            self.assertEqual((first["kind"], first["where"]["site"], first["where"]["position"], first["where"]["element"], first["where"]["step"]),
                             ("routing", f"layers.{layer}", token, k, records[at]["step"]))
            self.assertEqual((first["a"]["value"], first["b"]["value"]), (str(was), "9"))
            self.assertEqual(certificate["counts"]["differ"], 1)

    def test_another_token(self):
        a = rollouts(3)
        b = json.loads(json.dumps(a))
        b[5]["tokens"][2] += 1
        certificate = self.certify(*self.pair(a, b), status=1)
        self.assertEqual(certificate["first_difference"]["kind"], "tokens")
        self.assertEqual(self.gaps(certificate)["logprobs", "other tokens"], 1)

    def test_signed_zero(self):
        a = rollouts(4)
        b = json.loads(json.dumps(a))
        a[0]["train_logprobs"][0], b[0]["train_logprobs"][0] = 0.0, -0.0
        certificate = self.certify(*self.pair(a, b), status=1)
        self.assertEqual(certificate["compared"]["logprobs:train"]["zero_signs"], 1)
        self.assertEqual(certificate["first_difference"]["b"]["value"], "-0")
        self.assertEqual(certificate["first_difference"]["distance"]["ulps"], 0)

    def test_null_on_both_sides_is_no_comparison(self):
        a = rollouts(5)
        a[0]["rollout_logprobs"][1] = None
        certificate = self.certify(*self.pair(a, a), status=2)
        self.assertEqual(certificate["verdict"], "incomplete")
        self.assertEqual(self.gaps(certificate)["logprobs:rollout", "null or NaN in text on both sides"], 1)

    def test_masked(self):
        a = rollouts(6)
        a[0]["loss_mask"] = [0, 0, 1, 1, 1, 1]
        certificate = self.certify(*self.pair(a, a))
        self.assertEqual(self.gaps(certificate)["logprobs:train", "masked"], 2)
        b = json.loads(json.dumps(a))
        b[0]["loss_mask"] = 1
        self.assertEqual(self.certify(*self.pair(a, b), status=2)["verdict"], "incomplete")

    def test_missing_tokens(self):
        records = rollouts(7)
        for a, b, reason in ((records, records[:-2], "only in A"), (records[1:], records, "only in B")):
            certificate = self.certify(*self.pair(a, b), status=2)
            self.assertEqual(self.gaps(certificate)["tokens", reason], 6 * abs(len(a) - len(b)))
            self.assertEqual(certificate["counts"]["differ"], 0)

    def test_truncated(self):
        records = rollouts(8)
        a, b = self.pair(records, records)
        b.write_bytes(b.read_bytes()[:-40])
        certificate = self.certify(a, b, status=2)
        self.assertEqual(self.gaps(certificate)["files", "a problem of B"], 1)
        self.assertEqual(self.gaps(certificate)["tokens", "only in A"], 6)

    def test_declared_environment(self):
        records = rollouts(9)
        options = ("--declare-a", "batch size=1", "--declare-b", "batch size=8")
        certificate = self.certify(*self.pair(records, records), *options)
        self.assertEqual(certificate["environment"]["differs"], ["batch size"])
        other = json.loads(json.dumps(records))
        other[0]["train_logprobs"][0] = flipped(other[0]["train_logprobs"][0], 0)
        self.certify(*self.pair(records, other), *options, status=1)
        self.assertIn('batch size: ["1"] in A, ["8"] in B', self.text)

    def test_nothing_in_common(self):
        done = self.plumb(self.write("a.jsonl", lines(rollouts(1))), self.write("b.csv", "step,loss\n" + "".join(f"{i},{i}.5\n" for i in range(20))))
        self.assertEqual(done.returncode, 2)
        self.assertEqual(self.plumb(self.folder / "missing", self.folder / "missing").returncode, 2)


class Series(Certified):
    def table(self, seed, **change):
        draw = random.Random(seed)
        rows = [[step, draw.random(), draw.random(), draw.random()] for step in range(50)]
        for (row, column), value in change.get("values", {}).items():
            rows[row][column] = value
        text = "step,loss,grad_norm,tokens_per_second\n"
        return text + "".join(",".join(map(repr, row)) + "\n" for row in rows[: change.get("rows", 50)])

    def test_one_bit(self):
        for seed in range(FLIPS):
            draw = random.Random(seed)
            row, column = draw.randrange(50), draw.randrange(1, 3)
            a = self.table(seed)
            value = float(a.splitlines()[row + 1].split(",")[column])
            near = struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", value))[0] + 1))[0]
            paths = self.write("a.csv", a), self.write("b/a.csv", self.table(seed, values={(row, column): near}))
            first = self.certify(*paths, status=1)["first_difference"]
            self.assertEqual((first["where"]["step"], first["where"]["site"]), (row, ["loss", "grad_norm"][column - 1]))
            self.assertEqual((first["a"]["bits"], first["b"]["bits"], first["distance"]["ulps"]), (bits64(value), bits64(near), 1))

    def test_times_and_ignored_series(self):
        paths = self.write("a.csv", self.table(1)), self.write("b.csv", self.table(1, values={(3, 3): 9.0, (4, 2): 9.0}))
        self.certify(*paths, status=1)
        certificate = self.certify(*paths, "--ignore", "grad*")
        self.assertEqual(self.gaps(certificate), {("series", "a time or a speed"): 50, ("series", "left out by --ignore grad*"): 50})

    def test_shorter_run(self):
        certificate = self.certify(self.write("a.csv", self.table(1)), self.write("b.csv", self.table(1, rows=45)), status=2)
        self.assertEqual(self.gaps(certificate)["series", "a step only in A"], 10)


class Checkpoints(Certified):
    def weights(self, values):
        data = b"".join(values)
        return safetensors([("model.layers.0.weight", "F32", [4, 5], data), ("model.layers.1.weight", "F32", [20], b"".join(reversed(values)))])

    def test_one_bit(self):
        for seed in range(FLIPS):
            draw = random.Random(seed)
            values = [struct.pack("<f", draw.gauss(0, 1)) for _ in range(20)]
            at, bit = draw.randrange(20), draw.randrange(23)
            other = list(values)
            other[at] = struct.pack("<I", struct.unpack("<I", values[at])[0] ^ (1 << bit))
            tensors = [("model.layers.0.weight", "F32", [4, 5], b"".join(other)), ("model.layers.1.weight", "F32", [20], b"".join(reversed(values)))]
            paths = self.write("a/model.safetensors", self.weights(values)), self.write("b/model.safetensors", safetensors(tensors))
            certificate = self.certify(*(path.parent for path in paths), status=1)
            first = certificate["first_difference"]
            self.assertEqual(first["where"], {"tensor": "layers.0.weight" if first["where"]["tensor"].startswith("layers") else "model.layers.0.weight",
                                              "index": f"{at // 5}, {at % 5}"})
            self.assertEqual((first["a"]["bits"], first["distance"]["ulps"]), (f"0x{struct.unpack('<I', values[at])[0]:08x}", 1 << bit))
            self.assertEqual((certificate["counts"]["weights"], certificate["counts"]["differ"]), (40, 1))

    def test_equal_and_nan_payload(self):
        values = [struct.pack("<f", i) for i in range(20)]
        values[3] = struct.pack("<I", 0x7FC00001)
        a, b = self.write("a/model.safetensors", self.weights(values)), self.write("b/model.safetensors", self.weights(values))
        self.assertEqual(self.certify(a.parent, b.parent)["verdict"], "equal")
        values[3] = struct.pack("<I", 0x7FC00002)
        self.write("b/model.safetensors", self.weights(values))
        certificate = self.certify(a.parent, b.parent, status=1)
        self.assertEqual(certificate["first_difference"]["b"]["bits"], "0x7fc00002")
        self.assertEqual(certificate["compared"]["weights"]["non_finite"], 2)


class RoutesOfSomeSteps(Certified):
    def test_routes_that_one_step_lacks(self):
        records = rollouts(5)
        engine = self.write("engine.jsonl", lines(half(records, "rollout")))
        for lacks, status in ((lambda step: step == 1, 2), (lambda step: True, 0)):
            trainer = half(records, "train")
            for record in trainer:
                if lacks(record["step"]):
                    record.pop("train_routing", None)
            self.certify(engine, self.write("trainer.jsonl", lines(trainer)), status=status)


class HalvesThatBeginLate(Certified):
    def test_a_half_that_a_side_lacks_at_first(self):
        for seed in range(FLIPS):
            draw = random.Random(seed)
            name, lacks, changed = draw.choice(("rollout", "train")), draw.randrange(2), draw.random() < 0.5
            sides = [rollouts(seed), rollouts(seed)]
            for record in sides[lacks]:
                if record["step"] == 0:
                    record.pop(f"{name}_logprobs")
            if changed:
                record = draw.choice([record for record in sides[1] if record["step"] > 0])
                record[f"{name}_logprobs"][2] = flipped(record[f"{name}_logprobs"][2], draw.randrange(23))
            paths = [self.write(f"{side}.jsonl", lines(records)) for side, records in zip("ab", sides)]
            with self.subTest(seed, half=name, changed=changed):
                certificate = self.certify(*paths, status=1 if changed else 2)
                self.assertEqual(certificate["verdict"], "differs" if changed else "incomplete")
                self.assertIn(f"logprobs:{name}", {gap["kind"] for gap in certificate["not_compared"]})

    def test_a_half_that_one_side_never_has(self):
        sides = [rollouts(3), rollouts(3)]
        for record in sides[1]:
            record.pop("train_logprobs")
        paths = [self.write(f"{side}.jsonl", lines(records)) for side, records in zip("ab", sides)]
        certificate = self.certify(*paths, status=0)
        self.assertIn("logprobs:train", {gap["kind"] for gap in certificate["not_compared"]})


class Missing(Certified):
    def test_a_file_that_is_missing_is_named(self):
        done = self.plumb("nothing.jsonl", "x.jsonl")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing.jsonl: expected a readable file", done.stderr)


class Signed(Certified):
    def key(self, name):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.folder / f"{name}.pem"], check=True, capture_output=True)
        os.chmod(self.folder / f"{name}.pem", 0o600)
        subprocess.run(["openssl", "pkey", "-in", self.folder / f"{name}.pem", "-pubout", "-out", self.folder / f"{name}.pub"], check=True, capture_output=True)

    def setUp(self):
        super().setUp()
        self.key("ours")
        self.key("theirs")
        records = rollouts(1)
        self.a = self.write("a.jsonl", lines(half(records, "rollout")))
        self.b = self.write("b.jsonl", lines(half(records, "train")))
        self.certify(self.a, self.b, "--key", "ours.pem")
        self.file = self.folder / "cert.json"

    def verify(self, *paths, key="ours.pub"):
        done = self.plumb("--verify", self.file, "--public-key", key, *paths)
        return done.returncode

    def test_genuine(self):
        self.assertEqual(self.verify(), 0)
        self.assertEqual(self.verify(self.a, self.b), 0)

    def test_openssl_agrees(self):
        certificate = json.loads(self.file.read_text())
        value = certificate.pop("signature")["value"]
        message = self.write("message", json.dumps(certificate, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
        signature = self.write("signature", bytes.fromhex(value))
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "ours.pub", "-rawin", "-in", message, "-sigfile", signature],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_key(self):
        self.assertEqual(self.verify(key="theirs.pub"), 1)
        self.assertEqual(self.verify(key="missing.pub"), 2)
        self.assertEqual(self.plumb(self.a, self.b, "--key", "ours.pub").returncode, 2)

    def test_forged(self):
        text = self.file.read_text()
        for was, is_now in (('"tokens": 72', '"tokens": 73'), ('"verdict": "equal"', '"verdict": "equaL"'), ("\n", "\n\n"),
                            ('"verdict": "equal"', '"verdict": "differs",\n "verdict": "equal"')):
            self.assertIn(was, text)
            self.file.write_text(text.replace(was, is_now, 1))
            self.assertEqual(self.verify(), 1, is_now)
        for seed in range(FLIPS):
            draw, data = random.Random(seed), bytearray(text.encode())
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(7)
            self.file.write_bytes(data)
            self.assertNotEqual(self.verify(), 0)

    def test_unsigned(self):
        self.certify(self.a, self.b)
        self.assertEqual(self.verify(), 1)

    def test_tampered_inputs(self):
        self.b.write_text(self.b.read_text() + "\n")
        self.assertEqual(self.verify(self.a, self.b), 1)
        self.assertEqual(self.verify(self.b), 1)


class Baselines(Certified):
    def test_held(self):
        a = rollouts(1)
        worse, much_worse, shorter = (json.loads(json.dumps(a)) for _ in range(3))
        worse[0]["train_logprobs"][0] = flipped(worse[0]["train_logprobs"][0], 3)
        much_worse[0]["train_logprobs"][0] = flipped(much_worse[0]["train_logprobs"][0], 4)
        of_a = self.write("a.jsonl", lines(a))
        baselines = {}
        for name, records in {"equal": a, "worse": worse, "much_worse": much_worse, "shorter": shorter[:-1]}.items():
            self.write(f"{name}.jsonl", lines(records))
            self.plumb(of_a, f"{name}.jsonl", "-o", f"{name}.json")
            baselines[name] = f"{name}.json"
        for held, baseline, status in (("equal", "equal", 0), ("worse", "equal", 1), ("worse", "worse", 0), ("much_worse", "worse", 1),
                                       ("worse", "much_worse", 0), ("equal", "worse", 0), ("shorter", "equal", 1), ("shorter", "shorter", 0)):
            done = self.plumb(of_a, f"{held}.jsonl", "--baseline", baselines[baseline])
            self.assertEqual(done.returncode, status, (held, baseline, done.stderr))
        self.assertEqual(self.plumb(of_a, of_a, "--baseline", "a.jsonl").returncode, 2)


if __name__ == "__main__":
    unittest.main()
