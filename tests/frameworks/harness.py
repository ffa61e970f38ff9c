"""Trainers of real frameworks, each trained twice: plain, and with Plumbline. A file imports its framework once, its cases are forked.

A case is a function of a run (plumbline.init's) that trains and returns what the training computed: losses, weights. Checked of each:
both trainings end well and compute the same to the bit; the watched one is recorded; the record is audited without a problem and
without an error, except what the case plants.
"""

import contextlib
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import traceback

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
PATIENCE_S = 600  # one training, on a busy machine
CASES = {}  # file: its cases
LEVELS = ("note", "warning", "error")


class Wrong(AssertionError):
    """A case does not have a property that it must have."""


@dataclasses.dataclass
class Case:
    """`steps`: the steps of which the record must hold a loss. `finds`: {rule: first step} of the errors that the case plants; None: any step.

    `level`: the lowest level that `finds` is complete for ("warning": nothing above a note is found that is not in it).
    `opens`: False, the case opens its own run, and leaves the record in "record".
    `budgeted`: it runs at the default budget, so the machine's pace decides what is measured: the table does not count that.
    `others`: more may be found than `finds`, which follows from what the case plants. `states`: a regular expression for the line that watch prints. `reads`: the case returns no results; it writes files of this format,
    and an audit of its folder must read `steps` records of them, or more, and note `notes`, a regular expression. What it finds is one incident. `records`: {kind of evidence: the steps that have it}.
    """

    train: object
    steps: int = None
    finds: dict = dataclasses.field(default_factory=dict)
    level: str = "error"
    opens: bool = True
    others: bool = False
    budgeted: bool = False
    states: str = r"plumbline: watching [1-9]"
    reads: str = None
    notes: str = ""
    records: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        return self.train.__name__


def case(**options):
    def keep(function):
        CASES.setdefault(function.__module__, []).append(Case(function, **options))
        return function

    return keep


def expect(**series):
    """States what the record of a case must hold. A list is values of steps from 0 on; a dictionary gives steps their values; None: no such series.

    `NAME~`: in some of these steps, as the budget allows."""
    with open("expected.json", "w", encoding="utf-8") as file:
        json.dump({name: _by_step(values) for name, values in series.items()}, file)


def _by_step(values):
    if values is None:
        return None
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    return {str(step): float(value) for step, value in pairs}


# ---- one training, in a process of its own ------------------------------------------------------


def seed():
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)


def digest(result, into=None):
    """Returns the SHA-256 of tensors, arrays and numbers, also inside lists and dictionaries."""
    seen = hashlib.sha256() if into is None else into
    if isinstance(result, dict):
        result = [part for name in sorted(result) for part in (name, result[name])]
    if isinstance(result, (list, tuple)):
        for part in result:
            digest(part, seen)
    elif hasattr(result, "detach"):
        import torch

        seen.update(result.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif hasattr(result, "tobytes"):
        seen.update(result.tobytes())
    elif hasattr(result, "__array__"):
        digest(result.__array__(), seen)
    else:
        seen.update(repr(result).encode())
    return seen.hexdigest()


def redirect(folder):
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)


def child(file, name, watched, folder):
    redirect(folder)
    os.chdir(folder)
    try:
        __import__(file)
        one = next(c for c in CASES[file] if c.name == name)
        seed()
        if one.reads:
            one.train()
            return
        os.environ["PLUMBLINE_DISABLE"] = "" if watched else "1"
        import plumbline

        run = plumbline.init(run=name, record="record", every=1) if one.opens else None
        result = one.train(run)
        if watched and run is not None and not run.finish():
            raise Wrong("run.finish() is false")
        (folder / "digest").write_text(digest(result))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def train(file, one, watched, folder, fork):
    """Trains in a child; returns the digest of its results."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    context = multiprocessing.get_context("fork" if fork else "spawn")
    process = context.Process(target=child, args=(file, one.name, watched, folder))
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
        raise Wrong(f"the training did not end in {PATIENCE_S} s")
    if process.exitcode != 0:
        raise Wrong(f"the training ended with {process.exitcode}")
    return None if one.reads else (folder / "digest").read_text()


# ---- what must hold -----------------------------------------------------------------------------


def require(condition, text):
    if not condition:
        raise Wrong(text)


def audit(folder, path="record"):
    done = subprocess.run(
        [BUILD / "bin/plumb", "audit", path, "--format", "json", "--quiet"], cwd=folder, capture_output=True, text=True, check=False
    )
    (folder / "report.json").write_text(done.stdout)
    require(done.returncode in (0, 1) and done.stdout, f"plumb audit ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def recorded(folder, kinds=None):
    """Returns {series: {step: value}} of the record. Adds the other kinds of evidence to the set `kinds`, for example "gradient" or "routing"."""
    done = subprocess.run([BUILD / "bin/agent_record_json", *(folder / "record").iterdir()], capture_output=True, text=True, check=True)
    items = [json.loads(line) for line in done.stdout.splitlines()]
    if kinds is not None:
        kinds.update(item["evidence"]["site"].get("op") for item in items if {"tensor", "update", "routing", "reduction"} & item.get("evidence", {}).keys())
        kinds.update("sums" for item in items if item.get("evidence", {}).get("reduction", {}) and item["evidence"]["site"].get("op") != "accumulation")
    series = {}
    for evidence in (item["evidence"] for item in items if "scalar" in item.get("evidence", {})):
        values = series.setdefault(evidence["site"].get("op"), {})
        values[int(evidence.get("step", 0))] = float(evidence["scalar"].get("value", 0))
    return series


def check_records(one, folder):
    """Checks the number of steps with evidence of a kind, for example `logprobs`."""
    done = subprocess.run([BUILD / "bin/agent_record_json", *(folder / "record").iterdir()], capture_output=True, text=True, check=True)
    items = [json.loads(line).get("evidence", {}) for line in done.stdout.splitlines()]
    for kind, steps in one.records.items():
        seen = {int(item.get("step", 0)) for item in items if kind in item}
        require(len(seen) == steps, f"{kind} of {len(seen)} steps are recorded, expected {steps}")


def check_expected(folder, series):
    """Checks the record against the values that the case stated with expect()."""
    path = folder / "expected.json"
    for name, values in json.loads(path.read_text()).items() if path.exists() else ():
        some, name = name.endswith("~"), name.rstrip("~")
        seen = series.get(name)
        if values is None:
            require(seen is None, f"{name} is recorded: {seen}, expected none")
            continue
        require(seen is not None, f"there is no series {name}; recorded are {sorted(series)}")
        values = {int(step): value for step, value in values.items() if not some or int(step) in seen}
        require(seen.keys() == values.keys(), f"{name} has the steps {sorted(seen)}, expected {sorted(values)}")
        wrong = {step: seen[step] for step, value in values.items() if not abs(seen[step] - value) <= 1e-5 * abs(value)}
        require(not wrong, f"{name} is {wrong}, expected {[values[step] for step in wrong]}")


def state(one, folder, series, kinds):
    """Writes the cells of the table in docs/frameworks.md that this case supports; table.py joins them."""
    expected = json.loads((folder / "expected.json").read_text()) if (folder / "expected.json").exists() else {}
    kinds = set() if one.budgeted else kinds
    shown = {
        "steps": one.steps is not None or "loss" in expected, "loss": "loss" in expected,
        "gradient norm": not {"grad_norm", "grad_norm~"}.isdisjoint(expected),
        "gradients": "gradient" in kinds, "weights": "weight" in kinds, "updates": "update" in kinds, "sums": "sums" in kinds,
        "routers": "routing" in kinds, "tokens": "tokens" in series, "silent": one.level != "error" and not one.finds, "finds": sorted(one.finds),
    }  # fmt: skip
    (folder / "shown.json").write_text(json.dumps(shown))


def check_findings(one, report):
    levels = LEVELS[LEVELS.index(one.level) :]
    found = {}  # each rule's first step
    for f in report["findings"]:
        if f["level"] in levels:
            found[f["rule"]] = min(found.get(f["rule"], f["site"]["step_first"]), f["site"]["step_first"])
    steps = {rule: found.get(rule) if step is None else step for rule, step in one.finds.items()}
    if one.others:
        found = {rule: step for rule, step in found.items() if rule in steps}
    require(found == steps and None not in found.values(), f"found is {found}, expected {one.finds}")


def check_record(one, folder):
    text = (folder / "stderr").read_text()
    require(re.search(one.states, text, re.M), f"stderr has no line like {one.states!r}")
    require("Traceback" not in text, "stderr has a traceback")
    report = audit(folder)
    require(not [p for i in report["inputs"] for p in i["problems"]], f"the record is damaged: {report['inputs']}")
    require(report["coverage"]["judged"] > 0 and not report["coverage"]["dropped"], f"coverage is {report['coverage']}")
    check_findings(one, report)
    kinds = set()
    series = recorded(folder, kinds)
    check_expected(folder, series)
    if one.records:
        check_records(one, folder)
    if one.steps is not None:
        seen = series.get("loss", {})
        require(len(seen) == one.steps, f"losses of {len(seen)} steps are recorded, expected {one.steps}")
    state(one, folder, series, kinds)
    return f"{report['coverage']['judged']} judged"


def check_files(one, folder):
    report = audit(folder, ".")
    inputs = [i for i in report["inputs"] if i["format"] == one.reads]
    require(inputs, f"no input of format {one.reads}: {[(i['path'], i['format']) for i in report['inputs']]}")
    require(not [p for i in report["inputs"] for p in i["problems"]], f"not read whole: {report['inputs']}")
    records = sum(i["records"] for i in inputs)
    require(records >= one.steps, f"{records} records are read, expected at least {one.steps}")
    check_findings(one, report)
    # What other files of the run repeat is left out of the text, which is what a user reads.
    text = subprocess.run([BUILD / "bin/plumb", "audit", "--quiet", "."], cwd=folder, capture_output=True, text=True, check=False).stdout
    require(re.search(one.notes, text), f"the report has nothing like {one.notes!r}: {text}")
    require(len(report["incidents"]) <= 1, f"one fault has {len(report['incidents'])} incidents: {text}")
    return f"{records} records"


def check(file, one, folder, fork):
    if one.reads:
        train(file, one, False, folder / "files", fork)
        return check_files(one, folder / "files")
    plain = train(file, one, False, folder / "plain", fork)
    watched = train(file, one, True, folder / "watched", fork)
    require(plain == watched, "the results with and without Plumbline differ")
    require("plumbline:" not in (folder / "plain/stderr").read_text(), "Plumbline prints something although it is disabled")
    return check_record(one, folder / "watched")


def show(folder):
    """The end of what a failed case printed."""
    for path in sorted(folder.glob("*/std*")):
        if text := path.read_text(errors="replace").strip():
            print(f"---- {path.relative_to(folder)}\n{text[-3000:]}")


def run_cases(file, pattern, folder, fork):
    """Prints a line for each case; returns the number that failed."""
    failed = 0
    for one in CASES[file]:
        name = f"{file.removeprefix('on_')}/{one.name}"
        if not re.fullmatch(pattern, name):
            continue
        place = pathlib.Path(folder) / name
        try:
            print(f"ok      {name}: {check(file, one, place, fork)}", flush=True)
        except Exception as why:
            failed += 1
            print(f"FAILED  {name}: {why if isinstance(why, Wrong) else traceback.format_exc()}", flush=True)
            with contextlib.suppress(OSError):
                show(place)
    return failed
