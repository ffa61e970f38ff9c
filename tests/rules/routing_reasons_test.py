"""Every reason that a routing verdict can give is on a rule's page: an id in the sources ("short-id: sentence") is named on the
page of the rule whose file has it, and one of the shared analysis on the page of the rule that uses the folder."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "rules/causality"
ANALYSIS = ROOT / "analysis/routing"
# The start of a literal; a literal that continues a sentence has no such id.
REASON = re.compile(r'(?:[(,?:=&] ?|return |^\s*)"([a-z0-9]+(?:-[a-z0-9]+)*): ', re.M)
# Texts of tests of caller's arguments, and of measurements.
NO_REASONS = {"logits", "position", "rank", "code", "sides", "customary", "low"}


def source(path):
    return re.sub(r'R"page\(.*?\)page"|//[^\n]*', "", path.read_text(), flags=re.S)


def reasons(paths):
    return {(path.name, found) for path in paths for found in REASON.findall(source(path))
            if found not in NO_REASONS}


def page(rule):
    return re.search(r'R"page\((.*?)\)page"', (RULES / f"{rule}.cc").read_text(), re.S).group(1)


class Reasons(unittest.TestCase):
    def named(self, rule, paths, least):
        found = reasons(paths)
        self.assertGreaterEqual(len(found), least)
        text = page(rule)
        self.assertEqual(sorted(r for r in found if f"`{r[1]}`" not in text), [], rule)

    def test_each_rule_names_its_own(self):
        for rule, least in (("moe_future_leak", 5), ("moe_batch_dependence", 8), ("moe_tie_order", 5),
                            ("moe_intervention", 4), ("train_infer_routing", 2)):
            self.named(rule, [RULES / f"{rule}.cc"], least)

    def test_the_shared_analysis(self):
        own = ("intervention", "train_infer", "routers")
        shared = [p for p in sorted(ANALYSIS.rglob("*.cc")) if p.parent.name not in own]
        self.named("moe_future_leak", shared, 40)

    def test_the_folders_of_one_rule(self):
        self.named("train_infer_routing", sorted((ANALYSIS / "train_infer").glob("*.cc")), 12)
        self.named("moe_intervention", [ANALYSIS / "intervention/replay.cc"], 7)

    def test_a_drop_by_position_is_advised_only_with_its_condition(self):
        """Megatron-core's policy takes the top of ties: it is no queue."""
        folders = [ROOT / name for name in ("rules", "analysis", "audit", "docs/rules")]
        texts = {path: " ".join(path.read_text().split()) for folder in folders for path in folder.rglob("*.*") if path.suffix in (".cc", ".h", ".md")}
        naming = {path: text for path, text in texts.items() if "drop-policy position" in text or 'drop policy \\"position\\"' in text}
        self.assertGreaterEqual(len(naming), 2)
        wrong = [path for path, text in naming.items() if "not a queue" not in text or "moe-tie-order" not in text]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
