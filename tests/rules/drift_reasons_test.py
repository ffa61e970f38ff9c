#!/usr/bin/env python3
"""Compares the reasons that the drift rules can give with their pages: each reason's id is on the page, in code quotes
or, if it is one word, as that word in the section "Inconclusive when"; and each quoted id there is a reason of the code."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A reason is a literal that begins with its id: "few-tokens: ...".
REASON = re.compile(r'"([a-z][a-z0-9]*(?:-[a-z0-9]+)*): ')
# Functions in other files whose results a rule gives as a reason, and the ids in them.
SHARED = {"Copied()": ["Copied"], "KeyDoubt()": ["KeyDoubt"], "MaskDoubt()": ["MaskDoubt"],
          "RecordDoubt()": ["Copied", "RecordDoubt"], "unreadable": ["OneHalf"],
          "DriftRule {": ["KeyDoubt"]}


def body(text, name):
    """Returns the body of a function of run.cc."""
    found = re.search(r"^std::string (?:DriftSite::)?" + name + r"\(.*?^}", text, re.M | re.S)
    assert found, f"analysis/drift/run.cc has no function {name}"
    return found.group()


def reasons(code, run):
    """Returns the ids that a rule's code, without its page, can give."""
    ids = set()
    for literal in REASON.finditer(code):
        before = code[:literal.start()]
        statement = before[max(before.rfind(";"), before.rfind("{"), before.rfind("}")) + 1:]
        if "Inconclusive(" in statement or ("return" in statement and "-" in literal.group(1)):
            ids.add(literal.group(1))
    for mark, functions in SHARED.items():
        if mark in code:
            for function in functions:
                ids |= set(REASON.findall(body(run, function)))
    # A sequence whose tensors do not fit (analysis/rollout/sequence.cc).
    return ids | ({"bad-tensor"} if "unreadable" in code else set())


def check(path, run):
    """Returns the problems of one rule's file."""
    text = path.read_text()
    page, code = re.search(r'R"page\((.*?)\)page"(.*)', text, re.S).groups()
    section = re.search(r"\*\*Inconclusive when\*\*(.*?)\n\n", page, re.S)
    ids = reasons(code, run)
    if not section:
        return [f"{path.name}: no section 'Inconclusive when' for {sorted(ids)}"] if ids else []
    quoted = set(re.findall(r"`([a-z0-9-]+)`", section.group(1)))
    missing = [f"{path.name}: the page does not state the reason `{i}`" for i in sorted(ids - quoted)]
    unknown = {i for i in quoted - ids if "-" in i}
    return missing + [f"{path.name}: the code does not give the reason `{i}`" for i in sorted(unknown)]


def main():
    run = (ROOT / "analysis/drift/run.cc").read_text()
    files = sorted((ROOT / "rules/drift").glob("*.cc"))
    problems = [p for path in files for p in check(path, run)]
    total = sum(len(reasons(p.read_text(), run)) for p in files)
    print("\n".join(problems) or f"{total} reasons of {len(files)} rules are on their pages")
    return 1 if problems or total < 25 else 0


if __name__ == "__main__":
    sys.exit(main())
