"""python -m plumbline run: `plumb run` for a trainer of this Python, also where plumb is not on PATH."""

import argparse
import os
import shutil
import subprocess
import sys
import time

_ABOUT = """\
Runs SCRIPT, or the module of -m, in this Python with the probes attached and no code change, as
`plumb run -- python SCRIPT ...` does. With a record and no server the findings are printed at the end, if
there is a plumb. Exit status: the trainer's."""


def arguments(commands):
    """Declares the command."""
    run = commands.add_parser("run", help="a trainer with the probes attached and no code change", description=_ABOUT,
                              usage="python -m plumbline run [OPTIONS] [-m MODULE | SCRIPT] ...", formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    run.add_argument("--server", metavar="HOST:PORT", help="address of plumbd ($PLUMBLINE_SERVER)")
    run.add_argument("--record", metavar="DIR", help="folder of the record ($PLUMBLINE_RECORD); without it and a server: plumbline/RUN")
    run.add_argument("--run", metavar="NAME", dest="name", help="name of the run ($PLUMBLINE_RUN)")
    run.add_argument("--stop-on", choices=("error", "warning"), help="ends the training at the first finding of this level")


def split(words):
    """Returns (the words of `run` and its options, the trainer's words): a script, -m MODULE or -c CODE, and its arguments."""
    at = 1
    while words[:1] == ["run"] and at < len(words) and words[at].startswith("--") and words[at] != "--":
        at += 1 if "=" in words[at] or words[at] == "--help" else 2
    if words[:1] != ["run"] or words[at : at + 1] == ["-h"]:
        return words, []
    return words[:at], words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]


def find_plumb():
    """Returns the wheel's plumb, else the one on PATH, or None."""
    return _own("bin/plumb") or shutil.which("plumb")


def _own(*places):
    """Returns the first of `places`, from the package, that is a program; or None."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [os.path.normpath(os.path.join(package, place)) for place in places]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def run(options, trainer):
    """Replaces this process by the trainer. Returns 2 if there is nothing to run."""
    if not trainer:
        print("plumbline: run: expected a script, or -m MODULE", file=sys.stderr)
        return 2
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), *trainer]
    plumb = find_plumb() or _own("../../bin/plumb", "../../../../bin/plumb")  # of a build folder, of a prefix
    sys.stdout.flush()
    given = {"--server": options.server, "--record": options.record, "--run": options.name, "--stop-on": options.stop_on}
    if plumb is not None:
        words = [word for name, value in given.items() if value for word in (name, value)]
        os.execv(plumb, [plumb, "run", *words, "--", *command])
    environment = dict(os.environ)
    names = {"--server": "PLUMBLINE_SERVER", "--run": "PLUMBLINE_RUN", "--stop-on": "PLUMBLINE_STOP_ON"}
    environment.update({names[name]: value for name, value in given.items() if value and name in names})
    name = f"{os.path.splitext(os.path.basename(trainer[-1] if trainer[0] == '-m' else trainer[0]))[0]}-{time.strftime('%Y%m%d-%H%M%S')}"
    environment["PLUMBLINE_ATTACH_RUN"] = name
    record = options.record or environment.get("PLUMBLINE_RECORD")
    if not record and not environment.get("PLUMBLINE_SERVER"):
        record = os.path.join("plumbline", environment.get("PLUMBLINE_RUN") or name)
    if record:
        environment["PLUMBLINE_RECORD"] = os.path.abspath(record)
    hook = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
    environment["PYTHONPATH"] = os.pathsep.join([hook, *filter(None, [environment.get("PYTHONPATH")])])
    print("plumbline: run: there is no plumb here, so no findings are printed at the end", file=sys.stderr)
    os.execve(sys.executable, command, environment)
