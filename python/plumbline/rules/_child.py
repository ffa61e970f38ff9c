"""The child process of a rule file: python _child.py FILE. Reads lines of JSON from standard input and writes verdicts as lines of JSON.

What the rules print goes to standard error. A rule that raises is reported with its line, and no longer called; the other rules of the file
continue. audit/own_rules describes the lines.
"""

import fnmatch
import importlib.util
import json
import math
import os
import pathlib
import sys
import traceback
import types

# The package without its __init__, which would load the library of the trainer.
_package = types.ModuleType("plumbline")
_package.__path__ = [str(pathlib.Path(__file__).resolve().parent.parent)]
sys.modules["plumbline"] = _package
if sys.path and sys.path[0] == str(pathlib.Path(__file__).resolve().parent):
    del sys.path[0]

from plumbline import rules  # noqa: E402

# A rule must not start processes: they would survive its limits.
_STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn")
MOST_TEXT = 500


def forbid(event, _arguments):
    if event in _STARTS:
        raise PermissionError(f"a rule may not start a process ({event})")


def line_of(error, path):
    """Returns the line of the rule file at which the exception was raised; 0 if there is none."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 0
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else 0


def text_of(error):
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}"[:MOST_TEXT] if text else type(error).__name__


def load(path):
    """Returns the classes of the file's rules, in the order of the file."""
    spec = importlib.util.spec_from_file_location("rule_file", path)
    if spec is None:
        raise ValueError("expected a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rule_file"] = module
    spec.loader.exec_module(module)
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, rules.Rule) and c.__module__ == "rule_file" and c.name]
    for c in classes:
        reads = (c.reads,) if isinstance(c.reads, str) else tuple(c.reads)
        if not isinstance(c.name, str) or not all(isinstance(glob, str) for glob in reads):
            raise TypeError(f"{c.__name__}: expected name and reads to be texts")
        c.reads = reads
    return classes


def plain(value):
    """Returns a number that is NaN or infinite as text: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a scalar of numpy or torch
        return plain(value.item())
    return value


class Course:
    """One rule on one run."""

    def __init__(self, made, run):
        self.rule, self.run, self.steps, self.verdicts = made(), run, 0, 0

    def judge(self, what, shown, site, send):
        """Calls step or end, and sends the verdicts."""
        self.rule._site = site
        given = getattr(self.rule, what)(shown)
        for verdict in (given,) if isinstance(given, dict) else given or ():
            if not isinstance(verdict, dict) or "verdict" not in verdict:
                raise TypeError(f"{what}: expected self.finding, self.passed or self.inconclusive, found {type(verdict).__name__}")
            self.verdicts += 1
            send({**plain(verdict), "run": self.run})

    def summary(self):
        """Returns the verdict of a rule that gave none."""
        if self.steps == 0:
            return self.rule.inconclusive("no-evidence: no step has anything that the rule reads")
        return self.rule.passed(f"no finding in {self.steps} steps")


class Judges:
    def __init__(self, path, classes, out):
        self.path, self.classes, self.out = path, classes, out
        self.runs, self.sites, self.readers = {}, {}, {}
        self.courses = {}  # by rule and run
        self.failed = set()

    def send(self, line):
        self.out.write(json.dumps(line, allow_nan=False, ensure_ascii=True) + "\n")

    def fail(self, name, error):
        self.failed.add(name)
        self.send({"failed": name, "line": line_of(error, self.path), "text": text_of(error)})

    def each(self, run, judge):
        """Calls `judge` with each rule's course on the run. A rule that raises is not called again."""
        for made in self.classes:
            if made.name in self.failed:
                continue
            try:
                key = (made.name, run)
                if key not in self.courses:
                    self.courses[key] = Course(made, run)
                judge(self.courses[key])
            except BaseException as error:  # noqa: BLE001: SystemExit and MemoryError of a rule, too
                self.courses.pop(key, None)
                self.fail(made.name, error)

    def take(self, line):
        if "step" in line:
            self.take_step(line)
        elif "site" in line:
            self.take_site(line)
        elif "run" in line:
            self.runs[line["run"]] = line["name"]
        elif "end" in line:
            self.take_end(line)

    def take_site(self, line):
        number, op = line["site"], line["op"]
        self.sites[number] = (line["layer"], op, line["series"])
        self.readers[number] = {c.name for c in self.classes if any(fnmatch.fnmatchcase(op, glob) for glob in c.reads)}

    def take_step(self, line):
        run = self.runs[line["of"]]

        def judge(course):
            name = course.rule.name
            scalars = [rules.Scalar(*self.sites[site], rank, float(value)) for site, rank, value in line["scalars"] if name in self.readers[site]]
            evidence = [rules.Evidence(*self.sites[site][:2], rank, call, data) for site, rank, call, data in line["evidence"]
                        if name in self.readers[site]]
            if not scalars and not evidence:
                return
            course.steps += 1
            ranks = {item.rank for item in scalars} | {item.rank for item in evidence}
            step = rules.Step(run, line["attempt"], line["role"], line["step"], line["world"], line.get("missing", []), scalars, evidence)
            course.judge("step", step, (step.number, step.number, ranks), self.send)

        self.each(run, judge)

    def take_end(self, line):
        run = self.runs[line["end"]]

        def judge(course):
            site = (line["first"], line["last"], line["ranks"])
            course.judge("end", rules.RunEnd(run, *site), site, self.send)
            if course.verdicts == 0:
                self.send({**course.summary(), "run": run})

        self.each(run, judge)
        for made in self.classes:
            self.courses.pop((made.name, run), None)


def main(path):
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a rule may print
    try:
        sys.path.insert(0, str(pathlib.Path(path).resolve().parent))  # for modules next to the file
        sys.addaudithook(forbid)
        classes = load(path)
    except BaseException as error:  # noqa: BLE001
        out.write(json.dumps({"failed": "", "line": line_of(error, path), "text": text_of(error)}) + "\n")
        out.flush()
        return 0
    out.write(json.dumps({"rules": [{"name": c.name, "reads": c.reads} for c in classes]}) + "\n")
    out.flush()
    judges = Judges(path, classes, out)
    for line in sys.stdin.buffer:
        judges.take(json.loads(line))
    out.flush()
    out.close()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(status)  # threads of a rule do not keep the audit waiting
