"""Tests tools/new_rule in a copy of the tree: its files compile, and are flagged until filled in."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])


class NewRule(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.tree = pathlib.Path(self.scratch.name)
        for folder in ("rules", "tools", "tests/rules"):
            shutil.copytree(ROOT / folder, self.tree / folder)
        shutil.copy(ROOT / "CMakeLists.txt", self.tree)

    def run_tool(self, tool, *args):
        done = subprocess.run([sys.executable, self.tree / "tools" / tool, *args],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def planned(self):
        register = (self.tree / "rules/rule_list.inc").read_text()
        found = re.search(r'^PLUMB_PLANNED\("((?:performance|drift)/[^"]+)", k(\w+), "([^"]+)"\)',
                          register, re.M)
        return found.groups() if found else self.skipTest("every rule is built")

    def compile(self, source):
        """Checks the syntax like the build, with the copy's headers and register."""
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        like = next(c for c in commands if "/plumb_rules.dir/" in c["command"])
        words = like["command"].split()
        words = [w for i, w in enumerate(words)
                 if w not in {"-c", "-o", like["file"]} and words[i - 1] != "-o"]
        words = words[words.index(next(w for w in words if w.endswith("++"))):]  # no launcher
        compiled = subprocess.run(
            [words[0], f"-I{self.tree}", *words[1:], "-Werror", "-fsyntax-only", source],
            cwd=like["directory"], capture_output=True, text=True, check=False)
        self.assertEqual(compiled.returncode, 0, compiled.stderr)

    def test_a_planned_rule_begins(self):
        rule, level, title = self.planned()
        status, stated = self.run_tool("new_rule", rule)
        self.assertEqual(status, 0, stated)
        symbol = rule.split("/")[1].replace("-", "_")
        register = (self.tree / "rules/rule_list.inc").read_text()
        self.assertIn(f'PLUMB_RULE("{rule}", {symbol})\n', register)
        self.assertNotIn(f'PLUMB_PLANNED("{rule}"', register)
        source = self.tree / "rules" / rule.split("/")[0] / f"{symbol}.cc"
        self.assertIn(f'"{title}"', source.read_text())
        self.assertIn(f"LEVEL_{level.upper()}", source.read_text())
        self.compile(source)

        status, stated = self.run_tool("check_rules")
        self.assertEqual(status, 1)
        complaints = [line for line in stated.splitlines() if line.startswith(f"{rule}: ")]
        marked = [source, *(self.tree / "tests/rules" / rule).glob("*.case")]
        self.assertEqual(sum("is not filled in" in line for line in complaints), len(marked), stated)

        # Filled in, there are no complaints. Until then every golden case fails, because each expects a verdict that
        # the rule does not give.
        cases = sorted((self.tree / "tests/rules" / rule).glob("*.case"))
        self.assertEqual([re.split(r"[-]", c.name)[0] for c in cases], ["bad", "inconclusive", "near"])
        for case in cases:
            self.assertRegex(case.read_text(), rf"\[expect\]\n(finding|pass|inconclusive) {rule} at")
        for path in [source, *cases]:
            text = path.read_text()
            text = text.replace("**Why.** fill in:", "**Why.** 1 in 8")
            path.write_text(re.sub(r"fill[ -]in:", "", text))
        status, stated = self.run_tool("check_rules")
        self.assertEqual([line for line in stated.splitlines() if rule in line], [], stated)

        # Members that it keeps from then on must be named.
        text = source.read_text()
        source.write_text(text.replace("  double threshold_;", "  double threshold_;\n  std::set<int64_t> seen_;"))
        status, stated = self.run_tool("check_rules")
        self.assertIn("forgets seen_", stated)
        self.assertNotIn("forgets threshold_", stated)

    def test_a_rule_of_ones_own_begins(self):
        status, stated = self.run_tool("new_rule", "health/never-heard-of")
        self.assertEqual(status, 1)
        self.assertIn("--title", stated)
        status, stated = self.run_tool("new_rule", "health/never-heard-of", "--title", "it is new",
                                     "--level", "note")
        self.assertEqual(status, 0, stated)
        register = (self.tree / "rules/rule_list.inc").read_text().splitlines()
        at = register.index('PLUMB_RULE("health/never-heard-of", never_heard_of)')
        self.assertIn('("health/', register[at - 1])
        self.compile(self.tree / "rules/health/never_heard_of.cc")

    def test_the_rule_of_the_guide_compiles(self):
        guide = (ROOT / "docs/writing_a_rule.md").read_text()
        begin = re.search(r"^    tools/new_rule (\S+) --title \"(.*)\" --level (\w+)$", guide, re.M)
        status, stated = self.run_tool("new_rule", begin[1], "--title", begin[2], "--level", begin[3])
        self.assertEqual(status, 0, stated)
        source = self.tree / "rules/performance/slow_step.cc"
        ours = re.search(r"^```cpp\n(.*?)^```$", guide, re.M | re.S)[1]
        text, replaced = re.subn(r"^class SlowStep .*?^};\n", lambda _: ours, source.read_text(),
                                 flags=re.M | re.S)
        self.assertEqual(replaced, 1)
        source.write_text("#include <algorithm>\n#include <deque>\n#include <map>\n" + text)
        self.compile(source)

    def test_nothing_is_overwritten_and_nonsense_is_refused(self):
        before = (self.tree / "rules/rule_list.inc").read_text()
        for args in (["meta/data-loss"], ["nowhere/rule", "--title", "t", "--level", "note"],
                     ["Health/Upper"], ["health"], ["health/../x"]):
            status, stated = self.run_tool("new_rule", *args)
            self.assertEqual(status, 1, stated)
            self.assertTrue(stated.startswith("new_rule: "), stated)
        self.assertEqual((self.tree / "rules/rule_list.inc").read_text(), before)


if __name__ == "__main__":
    unittest.main()
