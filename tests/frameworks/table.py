"""The table of docs/frameworks.md, made of what the cases have shown.

  table.py DIR                       prints it. DIR has the output of `run.py FILE... --keep DIR`: of the cases that passed
  table.py DIR --write docs/frameworks.md    puts its rows between the page's marks, and keeps the others
  table.py DIR --check docs/frameworks.md    exits with 1 and prints the lines that differ, of the rows that DIR has cases of
  --cost FILE                        the last line of cost.py; without it the page's own cost column stays

A second table has the set-ups of on_combinations.py, if DIR has some. A cell has the number of cases that have shown the property.
`silent`: healthy cases without a finding above a note. `same bits`: cases whose trainings with and without Plumbline agree, which each
case must. `faults`: cases with a planted fault, which is found by its rule at its step.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

COLUMNS = ("steps", "loss", "gradient norm", "gradients", "updates", "routers", "sums", "silent", "same bits", "faults")
MARKS = ("<!-- table: tests/frameworks/table.py -->", "<!-- end of the table -->")
COMBINED_MARKS = ("<!-- combinations: tests/frameworks/table.py -->", "<!-- end of the combinations -->")
COMBINED = {"plain": "a loop of one's own", "transformers": "Hugging Face `Trainer`, peft", "accelerate": "accelerate", "lightning": "Lightning"}
FEWEST = {"healthy, silent": 150, "faults found": 120}  # of all combinations
# Row, the cases whose "file/name" it has, the name in cost.py. The first row that fits takes a case. on_combinations.py is counted on the page.
ROWS = (
    ("a loop of one's own", r"plain/.*", "plain"),
    ("with torch's `GradScaler`, light steps", r"scaled/.*", None),
    ("batches of a model called by keyword", r"batches/.*", None),
    ("Hugging Face `Trainer`, peft", r"transformers/.*|ranks/trainer.*", "transformers"),
    ("`Trainer`, resumed", r"resume/.*", None),
    ("TRL: SFT, GRPO, RLOO", r"trl/.*", "trl"),
    ("TRL: 33 other kinds of training", r"trl_kinds/.*", None),
    ("accelerate", r"accelerate/.*", "accelerate"),
    ("Fabric", r"lightning/.*fabric.*", "fabric"),
    ("Lightning", r"lightning/.*|ranks/lightning.*", "lightning"),
    ("FSDP2, two ranks", r"ranks/fsdp2.*", None),
    ("tensor parallel, two ranks", r"parallel/(tensor|layers).*", None),
    ("pipelining, two ranks", r"parallel/pipeline.*", None),
    ("DistributedDataParallel, two ranks", r"ranks/.*", None),
    ("DeepSpeed: ZeRO 0 to 3, bf16, two ranks", r"deepspeed/.*", "deepspeed"),
    ("Megatron-core: bf16, distributed, chained, two ranks", r"megatron/.*", "megatron"),
    ("torchtitan's container", r"torchtitan/.*", "torchtitan"),
    ("what trainers do rarely", r"rare/.*", None),
    ("JAX, optax (plain calls)", r"jax/.*", None),
)


def shown(folder):
    """(file/name, what it has shown) of each case that passed: only such a one leaves shown.json."""
    for path in sorted(pathlib.Path(folder).glob("*/*/watched/shown.json")):
        yield f"{path.parts[-4]}/{path.parts[-3]}", json.loads(path.read_text())


def counts(folder):
    """{row: {column: cases}}"""
    found = collections.defaultdict(collections.Counter)
    for name, one in shown(folder):
        row = next((row for row, cases, _ in ROWS if re.fullmatch(cases, name)), None)
        if row is not None:
            found[row].update([c for c in COLUMNS if one.get(c)] + ["same bits"] + ["faults"] * bool(one["finds"]))
    return found


def combined(folder):
    """{framework: {"healthy, silent": set-ups, "faults found": set-ups}} of on_combinations.py."""
    found = collections.defaultdict(collections.Counter)
    for name, one in shown(folder):
        file, _, case = name.partition("/")
        if file == "combinations":
            found[case.partition("_")[0]].update([*["healthy, silent"] * bool(one["silent"]), *["faults found"] * bool(one["finds"])])
    return found


def combined_lines(found):
    yield f"| combinations | {' | '.join(FEWEST)} |"
    yield "|---" * (len(FEWEST) + 1) + "|"
    for name, row in COMBINED.items():
        yield f"| {row} | {' | '.join(str(found[name][c]) for c in FEWEST)} |"
    yield f"| all | {' | '.join(str(sum(of[c] for of in found.values())) for c in FEWEST)} |"


def too_few(folder):
    """What all combinations must have shown, and have not."""
    found = combined(folder)
    counted = {column: sum(of[column] for of in found.values()) for column in FEWEST}
    return [f"combinations: {column} are {counted[column]}, expected at least {most}" for column, most in FEWEST.items() if counted[column] < most]


def costs(path):
    """{row: words} of cost.py's last line."""
    return {} if path is None else cost_words(json.loads(pathlib.Path(path).read_text().splitlines()[-1]))


def cost_words(measured):
    """{row: words}. measured: {name in cost.py: its figures}."""
    words = {}
    for name, one in measured.items():
        most, low, high = (f"{100 * one[part]:+.1f}" for part in ("cost", "low", "high"))
        words[name] = f"{most} % ({low} to {high}) of {one['step_ms']:.0f} ms"
    return {row: words[name] for row, _, name in ROWS if name in words}


def lines(found, cost, page=()):
    """The table. `page`: {row: cells} of rows that are kept if DIR has no case of them."""
    columns = [*COLUMNS, "cost"]
    yield f"| | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for row, _, _ in ROWS:
        if row in found:
            cells = [str(found[row][c] or "") for c in COLUMNS] + [cost.get(row, "")]
            yield f"| {row} | {' | '.join(cells)} |"
        elif row in page:
            yield f"| {row} | {' | '.join(page[row])} |"


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def replaced(text, marks, new):
    """The page with other lines between the marks; without the marks as it was."""
    before, mark, rest = text.partition(marks[0])
    return "\n".join([before + mark, "", *new, "", marks[1] + rest.partition(marks[1])[2]]) if mark else text


def of_page(text):
    """{row: cells} of the page's table."""
    inside = text.partition(MARKS[0])[2].partition(MARKS[1])[0].strip().splitlines()
    return {cells(line)[0]: cells(line)[1:] for line in inside[2:]}


def files_of(cases):
    """Files whose cases a row has."""
    return {part.partition("/")[0] for part in cases.split("|")}


def of_whole(found, files):
    """Keeps the rows all of whose cases are in `files`; None: all rows."""
    whole = {row for row, cases, _ in ROWS if files is None or files_of(cases) <= set(files)}
    return {row: counted for row, counted in found.items() if row in whole}


def differences(page, found, files=None):
    """Cells that the cases have shown otherwise; a row without cases here is not compared, nor is the cost. `files`: all of their cases ran."""
    for row, counted in of_whole(found, files).items():
        stated = dict(zip(COLUMNS, page.get(row, [])))
        for column in COLUMNS:
            ours = str(counted[column] or "")
            if stated.get(column) != ours:
                yield f"{row}, {column}: the page has {stated.get(column)!r}, the cases have shown {ours!r}"


def with_costs(text, cost):
    """The lines of the page's table with these costs, {row: words}, in the place of its own."""
    return lines({}, {}, {row: [*kept[:-1], cost.get(row, kept[-1])] for row, kept in of_page(text).items()})


def compare(page, folder, files):
    """Prints what the page states otherwise; returns how many cells."""
    wrong = list(differences(of_page(pathlib.Path(page).read_text()), counts(folder), files)) + (too_few(folder) if "combinations" in files else [])
    for line in wrong:
        print(f"FAILED  {page}: {line} (table.py --write)")
    return len(wrong)


def write(page, folder, cost=None, files=None):
    """Puts the rows of which `folder` has cases between the marks of `page`, a path. `cost`: {row: words}; without them the page's own stay.
    `files`: only rows whose cases are all in these."""
    text = page.read_text()
    stated = of_page(text)
    kept = {row: stated[row][-1] for row in stated}
    text = replaced(text, MARKS, lines(of_whole(counts(folder), files), {**kept, **(cost or {})}, stated))
    together = combined(folder)
    page.write_text(replaced(text, COMBINED_MARKS, combined_lines(together)) if together else text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--cost")
    options = parser.parse_args()
    found, cost = counts(options.folder), costs(options.cost)
    if options.check:
        wrong = list(differences(of_page(options.check.read_text()), found))
        print("\n".join(wrong) or f"{len(found)} rows are as the page states")
        sys.exit(1 if wrong or not found else 0)
    if not options.write:
        print("\n".join([*lines(found, cost), "", *combined_lines(combined(options.folder))]))
        return
    write(options.write, options.folder, cost)


if __name__ == "__main__":
    main()
