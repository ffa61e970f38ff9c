"""plumb audit's reports as their readers use them: SARIF by its schema, HTML by a parser, text in a terminal's locale,
a baseline from one night to the next."""

import base64
import hashlib
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.parse

import jsonschema
import recorded_run
import support
from recorded_run import HOSTILE, ONSET, plumb

SUBSET = pathlib.Path(__file__).parent / "data" / "sarif-2.1.0-subset.schema.json"
LONG = os.environ.get("PLUMB_LONG") == "1"


class Page(html.parser.HTMLParser):
    """Every element and attribute of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = support.scratch()
        cls.folder = cls.scratch.__enter__()
        recorded_run.train("night", record=cls.folder / "runs" / "night")
        recorded_run.train(HOSTILE, record=cls.folder / "runs" / "hostile")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.__exit__(None, None, None)

    def audit(self, *arguments, run="night", **environment):
        return plumb("audit", f"runs/{run}", *arguments, cwd=self.folder, **environment)

    # ---- SARIF

    def sarif(self, *arguments, run="night"):
        status, out, err = self.audit("--format", "sarif", *arguments, run=run)
        log = json.loads(out)
        jsonschema.Draft7Validator(json.loads(SUBSET.read_text())).validate(log)
        self.assertEqual(log["runs"][0]["invocations"][0]["exitCode"], status)
        return log

    def test_sarif_is_valid_and_points_to_the_input(self):
        for run in ("night", "hostile"):
            result = self.sarif(run=run)["runs"][0]["results"][0]
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            self.assertTrue((self.folder / uri).is_file(), uri)
        self.assertEqual(result["ruleId"], "health/loss-non-finite")

    def test_sarif_points_to_the_run_of_the_finding(self):
        """And not to the first of several runs that are audited together."""
        for run, bad, rest in (("a", None, "time"), ("b", 70, "time"), ("c", None, "time"), ("d", 40, "memory")):
            folder = self.folder / "many" / run
            folder.mkdir(parents=True)
            (folder / "0_other.csv").write_text("step," + rest + "\n" + "".join(f"{i},1\n" for i in range(100)))
            (folder / "loss.csv").write_text("step,loss\n" + "".join(f"{i},{'nan' if i == bad else 2 - i / 100}\n" for i in range(100)))
        status, out, err = plumb("audit", "many", "--format", "sarif", cwd=self.folder)
        found = [(r["properties"]["site"]["run"], r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], r.get("relatedLocations", []))
                 for r in json.loads(out)["runs"][0]["results"] if r["ruleId"] == "health/loss-non-finite"]
        self.assertEqual(sorted(found), [("b/loss.csv", "many/b/loss.csv", []), ("d/loss.csv", "many/d/loss.csv", [])], err)

    def test_sarif_of_hundreds_of_findings_in_files_of_odd_names(self):
        """Each address is the address of its file, for any file name; known and suppressed findings are marked in the
        log too."""
        names = ["ä ö", "with space", "per%cent%20", 'quote"q', "back\\slash", "new\nline", "#hash?q=1", "日本", "[br]{c}", "col:on", "-dash", "tab\t"]
        odd = self.folder / "odd"
        rows = "".join(f"{i},{'nan' if i == 70 else 2 - i / 200},{0 if i > 60 else 1e-3}\n" for i in range(120))
        for folder in range(10):
            (odd / f"r{folder}").mkdir(parents=True)
            for name in names:
                (odd / f"r{folder}" / f"{name}.csv").write_text("step,train/loss,lr\n" + rows)
        (self.folder / "known.toml").write_text('[[suppress]]\nrule = "health/learning-rate"\nreason = "on purpose"\nexpires = 2099-01-01\n')

        def audit(*arguments):
            status, out, err = plumb("audit", "odd", *arguments, cwd=self.folder)
            self.assertEqual(err, "")
            return status, json.loads(out)

        status, log = audit("--format", "sarif", "--suppressions", "known.toml")
        jsonschema.Draft7Validator(json.loads(SUBSET.read_text())).validate(log)
        results = log["runs"][0]["results"]
        uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
        self.assertEqual({urllib.parse.unquote(uri) for uri in uris}, {str(p.relative_to(self.folder)) for p in odd.rglob("*.csv")})
        self.assertFalse([uri for uri in uris if re.search(r"[^A-Za-z0-9%/._~-]", uri)])
        by_rule = {rule: [r for r in results if r["ruleId"] == rule] for rule in ("health/loss-non-finite", "health/learning-rate")}
        self.assertEqual([len(of) for of in by_rule.values()], [120, 120])
        self.assertFalse([r for r in by_rule["health/loss-non-finite"] if r.get("suppressions")])
        self.assertFalse([r for r in by_rule["health/learning-rate"] if not r.get("suppressions")])
        self.assertEqual(status, 1)
        # With a baseline, which identifies a rule and series independently of the run, nothing is new. Another series
        # is new, and its suppressed findings do not fail the audit.
        (self.folder / "odd.json").write_text(json.dumps(audit("--format", "json")[1]))
        known = ("--baseline", "odd.json", "--suppressions", "known.toml", "--fail-on", "note")
        self.assertEqual(audit("--format", "sarif", *known)[0], 0)
        (odd / "fresh.csv").write_text("step,loss,train/lr\n" + rows.replace("nan", "1.65"))
        status, log = audit("--format", "sarif", *known)
        self.assertEqual([(r["ruleId"], bool(r.get("suppressions"))) for r in log["runs"][0]["results"]], [("health/learning-rate", True)])
        self.assertEqual(status, 0)
        self.assertEqual(audit("--format", "sarif", "--baseline", "odd.json", "--fail-on", "note")[0], 1)

    def test_sarif_of_a_damaged_input_states_so(self):
        record = next((self.folder / "runs" / "night").rglob("*.plr*"), None) or next(
            p for p in (self.folder / "runs" / "night").rglob("*") if p.is_file())
        (self.folder / "cut").write_bytes(record.read_bytes()[:-7] + b"garbage")
        status, out, _ = plumb("audit", "cut", "--format", "sarif", cwd=self.folder)
        log = json.loads(out)
        jsonschema.Draft7Validator(json.loads(SUBSET.read_text())).validate(log)
        invocation = log["runs"][0]["invocations"][0]
        self.assertEqual(invocation["exitCode"], status)
        self.assertEqual(invocation["executionSuccessful"], status != 2)
        self.assertTrue(invocation["toolExecutionNotifications"])

    @unittest.skipUnless(LONG and shutil.which("npm"), "long form, with npm")
    def test_sarif_by_the_standards_own_schema(self):
        """The schema from a public package."""
        package = "@microsoft/jest-sarif@1.0.0-beta.0"
        with support.scratch() as folder:
            subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, timeout=support.PATIENCE)
            subprocess.run(["tar", "xzf", *[p.name for p in folder.glob("*.tgz")]], cwd=folder, check=True)
            schema = json.loads(next(folder.rglob("sarif-2.1.0*.json")).read_text())
        baseline = self.folder / "official.json"
        baseline.write_text(self.audit("--format", "json", "--rules", "health/*")[1])
        for arguments in ((), ("--baseline", str(baseline))):
            for run in ("night", "hostile"):
                jsonschema.Draft4Validator(schema).validate(self.sarif(*arguments, run=run))

    # ---- HTML

    def test_html_loads_nothing_and_runs_its_own_script_alone(self):
        for run in ("night", "hostile"):
            status, out, _ = self.audit("--format", "html", run=run)
            self.assertEqual(status, 1)
            page = Page(out)
            self.assertFalse({"img", "link", "iframe", "object", "base", "form"} & set(page.tags))
            # Its data and, if the page was built, one script, which the content policy names.
            self.assertEqual(page.tags.count("script"), 2 if "sha256-" in out else 0)
            scripts = re.findall(r"<script[^>]*>(.*?)</script>", out, re.S)
            if scripts:
                digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
                self.assertIn(f"script-src 'sha256-{digest}'", out)
                self.assertEqual(len(json.loads(scripts[0])["incidents"]), out.count("<article"))
            for tag, name, value in page.attributes:
                self.assertFalse(name.startswith("on") or name in ("src", "href", "style", "srcset"), (tag, name))
                self.assertNotIn("//", value)
            self.assertEqual(out.split("<script", 1)[0].count("<svg"), 1)  # of the loss
            self.assertIn(f"step {ONSET}", page.text)
            self.assertNotIn("\x1b", out)
        self.assertIn("<script>alert(1)</script>", page.text)

    # ---- text

    def test_sparkline_in_the_locales_letters(self):
        _, unicode_text, _ = self.audit(LC_ALL="C.UTF-8")
        _, ascii_text, _ = self.audit(LC_ALL="C")
        for text, top in ((unicode_text, "\u2588"), (ascii_text, "#")):
            lines = text.splitlines()
            head = next(i for i, line in enumerate(lines) if line.startswith("  series     loss, steps 0-59"))
            self.assertIn("min 3.41, max 4", lines[head])
            self.assertEqual(lines[head + 1][13], top)
            self.assertEqual(lines[head + 1][13 + ONSET], "!")
            self.assertEqual(lines[head + 2].index("^"), 13 + ONSET)
            self.assertIn(f"step {ONSET}", lines[head + 2])
        self.assertTrue(ascii_text.isascii())
        self.assertNotIn("\x1b", unicode_text)

    # ---- baseline and since

    def test_only_what_is_new_is_reported_and_counts(self):
        status, report, _ = self.audit("--format", "json")
        self.assertEqual(status, 1)
        baseline = self.folder / "baseline.json"
        baseline.write_text(report)
        known = len(json.loads(report)["findings"])
        for run in ("night", "hostile"):  # another run, the same rule, layer and op
            status, out, err = self.audit("--baseline", str(baseline), run=run)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(f"{known} finding", out)
            self.assertIn("not shown: known from the baseline", out)
        status, out, _ = self.audit("--format", "json", "--baseline", str(baseline))
        self.assertEqual((json.loads(out)["findings"], json.loads(out)["left_out"]["baseline"]), ([], known))
        fewer = json.loads(report)
        fewer["findings"] = [f for f in fewer["findings"] if f["rule"] != "health/loss-non-finite"]
        baseline.write_text(json.dumps(fewer))
        status, out, _ = self.audit("--baseline", str(baseline))
        self.assertEqual(status, 1)
        self.assertIn("health/loss-non-finite", out)
        log = self.sarif("--baseline", str(baseline))
        self.assertEqual({r["baselineState"] for r in log["runs"][0]["results"]}, {"new"})

    def test_a_baseline_that_is_none_is_bad_usage(self):
        for name, text in (("broken", "{\"schema\": \"plumbl"), ("foreign", "{\"runs\": []}"), ("empty", "")):
            (self.folder / name).write_text(text)
            status, out, err = self.audit("--baseline", name)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(f"--baseline: {name}: byte ", err)
        self.assertEqual(self.audit("--baseline", "nowhere.json")[0], 2)

    def test_since_leaves_out_what_was_over(self):
        self.assertEqual(self.audit("--since", str(ONSET))[0], 1)
        status, out, _ = self.audit("--since", str(ONSET + 1), "--rules", "health/loss-non-finite")
        self.assertEqual(status, 0)
        self.assertIn(f"not shown: ended before step {ONSET + 1}", out)
        self.assertEqual(self.audit("--since", "soon")[0], 2)


if __name__ == "__main__":
    support.main()
