"""plumb audit --rule-file: three of our rules rewritten give equal findings, the page's rule runs, and a file that crashes, hangs, floods,
forks, allocates or prints garbage is stopped and reported while the rest of the audit stays the same."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
THREE = HERE / "data" / "own_rules" / "three.py"
PAGE = HERE.parents[1] / "docs" / "own_rules.md"

# Records one rank: a loss, a rate, and a router of 8 experts, with the faults that are planted.
TRAINER = """
import json, sys, random
import numpy, plumbline
plan = json.loads(sys.argv[1])
run = plumbline.init(run="exp1", record=plan["record"], strict=True, every=1)
draw = numpy.random.default_rng(plan["seed"])
for i in range(plan["steps"]):
    with run.step(i):
        bad = plan["nan"] is not None and i >= plan["nan"]
        run.scalar("loss", float("nan") if bad else 2.0 + draw.normal() * 0.05)
        zero = plan["zero"] is not None and i >= plan["zero"]
        run.scalar("lr", 0.0 if zero else 1e-3 * (1 - i / 2000))
        if plan["experts"]:
            logits = draw.normal(size=(64, 8)).astype(numpy.float32)
            if plan["dead"] is not None:
                logits[:, plan["dead"]] = -30
            chosen = numpy.argsort(-logits, axis=1, kind="stable")[:, :2].astype(numpy.int64)
            run.observe_routing("layers.1", logits, topk_indices=chosen, keep_mask=numpy.ones_like(chosen, dtype=bool), top_k=2)
run.finish()
"""


def record(folder, world=1, **plan):
    """Records a run of `world` ranks."""
    plan = {"record": str(folder), "steps": 130, "nan": None, "zero": None, "dead": None, "experts": False, "seed": 1, **plan}
    for rank in range(world):
        faults = plan.get("ranks", list(range(world)))
        of = dict(plan, seed=plan["seed"] + 1000 * rank, **({} if rank in faults else {"nan": None}))
        done = subprocess.run([sys.executable, "-c", TRAINER, json.dumps(of)], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)})
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)


class Own(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rules(self, text, name="mine.py"):
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def log(self, rows=60, bad=None, name="train.csv"):
        path = self.folder / name
        lines = ["step,loss,grad_norm"]
        for i in range(rows):
            lines.append(f"{i},{'nan' if bad is not None and i >= bad else 2 - i / 100},{0.5 + (i % 7) / 10}")
        path.write_text("\n".join(lines) + "\n")
        return path

    def audit(self, path, *options):
        done = subprocess.run([PLUMB, "audit", "--quiet", "--format", "json", *map(str, options), str(path)], capture_output=True, text=True,
                              timeout=300)
        self.status, self.errors = done.returncode, done.stderr
        self.report = json.loads(done.stdout) if done.stdout else None
        return self.report

    def places(self, rule):
        return sorted((f["site"]["layer"], f["site"]["op"], f["site"]["step_first"], tuple(f["site"]["ranks"]))
                      for f in self.report["findings"] if f["rule"] == rule)

    def file(self):
        return next(i for i in self.report["inputs"] if i["format"] == "rule-file")


class Equal(Own):
    def compare(self, name, expected):
        """Compares user/NAME with health/NAME."""
        self.assertEqual(self.places(f"user/{name}"), self.places(f"health/{name}"), name)
        self.assertEqual(len(self.places(f"user/{name}")), expected, name)

    def test_loss_and_rate(self):
        draw = random.Random(60)
        for trial in range(4):
            folder = self.folder / f"run{trial}"
            nan, zero = draw.randrange(5, 110) if trial % 2 == 0 else None, draw.randrange(20, 115) if trial >= 2 else None
            ranks = [draw.randrange(2)]
            record(folder, world=2, nan=nan, zero=zero, ranks=ranks, seed=trial)
            self.audit(folder, "--rule-file", THREE)
            self.assertEqual(self.file()["problems"], [])
            self.compare("loss-non-finite", 0 if nan is None else 1)
            first = [place[2] for place in self.places("user/learning-rate")]
            self.assertEqual(set(first), set() if zero is None else {zero})
            self.assertEqual(set(first), {place[2] for place in self.places("health/learning-rate")})

    def test_dead_expert(self):
        for trial, dead in enumerate((None, 5)):
            folder = self.folder / f"run{trial}"
            record(folder, experts=True, dead=dead, seed=trial)
            self.audit(folder, "--rule-file", THREE, "--rules", "health/dead-expert", "--rules", "user/*")
            self.assertEqual(self.file()["problems"], [])
            of = {f["rule"]: f for f in self.report["findings"]}
            self.assertEqual(set(of), set() if dead is None else {"user/dead-expert", "health/dead-expert"})
            if dead is not None:
                mine, ours = of["user/dead-expert"], of["health/dead-expert"]
                self.assertEqual(mine["measured"], ours["measured"])
                self.assertEqual({k: mine["site"][k] for k in ("layer", "op", "ranks")}, {k: ours["site"][k] for k in ("layer", "op", "ranks")})
                self.assertEqual((mine["level"], mine["strength"]), ("warning", "heuristic"))


class Verdicts(Own):
    RULE = """
        from plumbline.rules import Rule

        class Mine(Rule):
            name = "mine"
            title = "a loss is at least 1.5"
            reads = ("loss",)
            def step(self, step):
                for value in step.scalars:
                    if not value.value < 1.5:
                        yield self.finding(f"{value.op} is {value.value}", op=value.op, measured=value.value)
    """

    def test_finding_pass_and_inconclusive(self):
        self.audit(self.log(), "--rule-file", self.rules(self.RULE))
        found = [f for f in self.report["findings"] if f["rule"] == "user/mine"]
        self.assertEqual(len(found), 1)
        self.assertEqual((found[0]["site"]["step_first"], found[0]["site"]["step_last"]), (0, 50))
        self.assertEqual((self.status, self.file()["problems"], self.file()["records"]), (0, [], 60))
        for change, verdict in (("1.5", "finding"), ("99", "pass")):
            self.audit(self.log(), "--rule-file", self.rules(self.RULE.replace("1.5", change)))
            self.assertEqual([v["verdict"] for v in self.report["verdicts"] if v["rule"] == "user/mine"], [verdict])
        self.audit(self.log(), "--rule-file", self.rules(self.RULE.replace('("loss",)', '("perplexity",)')))
        verdict = next(v for v in self.report["verdicts"] if v["rule"] == "user/mine")
        self.assertEqual((verdict["verdict"], verdict["reason"].split(":")[0]), ("inconclusive", "no-evidence"))

    def test_nan_and_unicode(self):
        self.audit(self.log(bad=40), "--rule-file", self.rules(self.RULE.replace("is {value.value}", "è {value.value} ✓")))
        found = next(f for f in self.report["findings"] if f["rule"] == "user/mine")
        self.assertEqual(found["site"]["step_last"], 59)
        self.assertIn("✓", found["explanation"])

    def test_selection_and_suppression(self):
        rules = self.rules(self.RULE)
        self.audit(self.log(bad=40), "--rule-file", rules, "--rules", "user/*")
        self.assertEqual({f["rule"] for f in self.report["findings"]}, {"user/mine"})
        self.audit(self.log(bad=40), "--rule-file", rules, "--rules", "health/*")
        self.assertNotIn("user/mine", {f["rule"] for f in self.report["findings"]})
        (self.folder / "known.toml").write_text('[[suppress]]\nrule = "user/mine"\nreason = "known"\nexpires = 2999-01-01\n')
        self.audit(self.log(), "--rule-file", rules, "--suppressions", self.folder / "known.toml", "--fail-on", "warning")
        self.assertEqual([f["suppressed"] for f in self.report["findings"] if f["rule"] == "user/mine"], [True])
        self.assertEqual(self.status, 0)

    def test_error_needs_a_measured_share(self):
        bad = self.RULE.replace('name = "mine"', 'name = "mine"; level = "error"')
        self.audit(self.log(), "--rule-file", self.rules(bad))
        self.assertIn("expected false_alarm", self.file()["problems"][0])
        self.audit(self.log(), "--rule-file", self.rules(bad.replace('level = "error"', 'level = "error"; false_alarm = 0.001')))
        found = next(f for f in self.report["findings"] if f["rule"] == "user/mine")
        self.assertEqual((found["level"], found["strength"], found["false_alarm"]["value"]), ("error", "heuristic", 0.001))
        self.assertEqual(self.status, 1)

    def test_text_html_and_sarif(self):
        rules, log = self.rules(self.RULE), self.log()
        for form in ("text", "html", "sarif", "junit", "markdown", "github"):
            done = subprocess.run([PLUMB, "audit", "--quiet", "--format", form, "--rule-file", rules, log], capture_output=True, text=True,
                                  timeout=300)
            self.assertEqual(done.returncode, 0, form)
            self.assertIn("user/mine", done.stdout, form)


class Broken(Own):
    """Each file is stopped, and the rest of the report is that of an audit without it."""

    HEAD = """
        import os, sys, time
        from plumbline.rules import Rule

        class Good(Rule):
            name = "good"
            reads = ("loss",)

        class Bad(Rule):
            name = "bad"
            title = "bad"
            reads = ("loss",)
            def step(self, step):
                if step.number == 5:
    """

    def broken(self, text, *options, whole=True):
        """Returns the problems of the file. `whole`: all of its rules stop."""
        log = self.log(bad=40)
        self.audit(log)
        before = [f for f in self.report["findings"]]
        self.audit(log, "--rule-file", self.rules(text), *options)
        self.assertEqual(self.status, 2)
        self.assertEqual([f for f in self.report["findings"] if not f["rule"].startswith("user/")], before)
        verdicts = {(v["rule"], v["verdict"], v.get("reason", "").split(":")[0]) for v in self.report["verdicts"]}
        if "class Good" in text:
            self.assertIn(("user/bad", "inconclusive", "rule-stopped"), verdicts)
            self.assertIn(("user/good", *(("inconclusive", "rule-stopped") if whole else ("pass", "no finding in 60 steps"))), verdicts)
        problems = self.file()["problems"]
        self.assertEqual(len(problems), 1, problems)
        return problems[0]

    def bad(self, body, *options, whole=True):
        text = textwrap.dedent(self.HEAD) + textwrap.indent(textwrap.dedent(body).strip(), " " * 12) + "\n"
        return self.broken(text, *options, whole=whole)

    def test_crash(self):
        self.assertRegex(self.bad("raise KeyError('x')", whole=False), r"mine.py: byte \d+: expected verdicts of bad at line 15, found KeyError: 'x'$")
        self.assertIn("SystemExit: 3", self.bad("sys.exit(3)", whole=False))
        self.assertIn("TypeError", self.bad("return [3]", whole=False))
        self.assertIn("RecursionError", self.bad("self.step(step)", whole=False))

    def test_end_of_the_process(self):
        self.assertIn("ended with status 9", self.bad("os._exit(9)"))
        self.assertIn("ended by signal 11", self.bad("os.kill(os.getpid(), 11)"))

    def test_hang(self):
        self.assertIn("expected progress within 1 s", self.bad("time.sleep(1000)", "--rule-seconds", "1"))
        self.assertIn("expected progress within 1 s", self.bad("while True: pass", "--rule-seconds", "1"))
        self.assertIn("expected progress within 1 s", self.broken("while True: pass", "--rule-seconds", "1"))

    def test_flood(self):
        self.assertIn("printed bytes", self.bad("while True: print('x' * 1000)"))
        self.assertIn("verdicts, found more", self.bad("while True: yield self.passed('fine')"))
        self.assertIn("places, found more", self.bad("yield from (self.finding('x', op=str(i)) for i in range(20000))"))
        self.assertIn("explanation of at most", self.bad("yield self.finding('x' * 10000)"))

    def test_garbage(self):
        self.assertIn("expected lines of JSON", self.bad(r"for fd in range(3, 12):" "\n"
                                                         r"    try: os.write(fd, b'\xff{nonsense\n')" "\n"
                                                         r"    except OSError: pass"))

    def test_processes(self):
        self.assertIn("may not start a process (os.fork)", self.bad("while True: os.fork()", whole=False))
        self.assertIn("may not start a process (os.system)", self.bad("os.system('true')", whole=False))
        self.assertIn("may not start a process (subprocess.Popen)", self.bad("import subprocess; subprocess.run(['true'])", whole=False))

    def test_memory(self):
        self.assertIn("MemoryError", self.bad("x = [bytearray(1 << 24)]\nwhile True: x += [bytearray(1 << 24)]", "--rule-memory", "256", whole=False))

    def test_files(self):
        self.assertRegex(self.broken("class Mine(:\n"), r"mine.py: byte 0: expected rules at line 1, found SyntaxError: ")
        self.assertIn("ModuleNotFoundError", self.broken("import no_such_module_here\n"))
        self.assertIn("found none", self.broken("x = 3\n"))
        self.assertIn("one rule named x, found two",
                      self.broken("from plumbline.rules import Rule\nclass A(Rule): name = 'x'\nclass B(Rule): name = 'x'\n"))
        self.assertIn("small letters", self.broken("from plumbline.rules import Rule\nclass A(Rule): name = 'X y'\n"))
        self.assertIn("name and reads to be texts", self.broken("from plumbline.rules import Rule\nclass A(Rule): name = 'x'; reads = (3,)\n"))
        (self.folder / "mine.py").write_bytes(b"x = '\xff\xfe'\n")
        self.audit(self.log(), "--rule-file", self.folder / "mine.py")
        self.assertEqual(self.status, 2)
        self.assertIn("SyntaxError", self.file()["problems"][0])

    def test_wrong_use(self):
        for options in (["--rule-file", self.folder / "missing.py"], ["--rule-file", self.folder],
                        ["--rule-file", self.rules("x = 3\n"), "--follow"]):
            self.audit(self.log(), *options)
            self.assertEqual(self.status, 2)
            self.assertIn("--rule-file: expected", self.errors)
            self.assertIsNone(self.report)
        self.audit(self.log(), "--rules", "user/*")
        self.assertEqual((self.status, self.errors), (2, "plumb: --rules user/...: expected --rule-file or --invariants with it\n"))
        self.audit(self.log(), "--rule-file", self.rules("x = 3\n"), "--rule-python", "no-such-python")
        self.assertIn("expected to start no-such-python", self.file()["problems"][0])


class Page(Own):
    def test_the_rule_of_the_page(self):
        rule = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S).group(1)
        self.assertLessEqual(len([line for line in rule.splitlines() if line.strip()]), 20)
        log = self.folder / "train.csv"
        rows = ["step,loss,grad_norm"] + [f"{i},{2 - i / 100},{0.5 if i < 30 else 40.0}" for i in range(60)]
        log.write_text("\n".join(rows) + "\n")
        self.audit(log, "--rule-file", self.rules(rule))
        self.assertEqual(self.file()["problems"], [])
        self.assertEqual(self.places("user/clip-always"), [("", "grad_norm", 39, (0,))])
        log.write_text("\n".join(rows[:31]) + "\n")
        self.audit(log, "--rule-file", self.rules(rule))
        self.assertEqual(self.places("user/clip-always"), [])


if __name__ == "__main__":
    unittest.main()
