"""table.py DIR: what the cases have shown whose output `run.py … --keep DIR` left, a line of Markdown for each framework.

A cell is "yes (n)" if n cases that passed have shown it, else empty. `same bits`: cases whose trainings with and without Plumbline agree.
"""

import collections
import json
import pathlib
import sys

COLUMNS = ("steps", "loss", "gradient norm", "gradients", "weights", "updates", "sums", "routers", "tokens", "silent")


def passed(folder):
    """(framework, what it has shown) of each case; only one that passed leaves shown.json."""
    for path in sorted(pathlib.Path(folder).glob("*/*/watched/shown.json")):
        framework = path.parts[-4]
        if framework == "combinations":
            framework = f"combinations: {path.parts[-3].partition('_')[0]}"
        yield framework, json.loads(path.read_text())


def table(folder):
    counts = collections.defaultdict(collections.Counter)
    for framework, shown in passed(folder):
        counts[framework].update([name for name in COLUMNS if shown[name]] + ["same bits"] + ["faults"] * bool(shown["finds"]))
    columns = [*COLUMNS, "same bits", "faults"]
    lines = [f"| framework | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for framework, count in sorted(counts.items()):
        lines.append(f"| {framework} | {' | '.join(f'yes ({count[c]})' if count[c] else '' for c in columns)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(sys.argv[1])))
