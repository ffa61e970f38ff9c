"""python -m plumbline: commands that need no run."""

import argparse
import os
import sys

from . import __version__
from ._attach import command

_ABOUT = """\
With --model: prints how run.watch(model, optimizer) would classify each module, without training.
Without: runs `plumb doctor`, which checks the installation and a server, not a model.

MODULE is imported (the current folder is searched first) and FACTORY is called without arguments. It
returns a model, (model, optimizer) or (model, optimizer, example_inputs): a tensor, a tuple of
positional arguments or a dictionary of named ones. With example inputs a copy of the model runs forward
once, to check whether its routers can be observed, and once forward and backward, to name the trained
parameters that get no gradient. Then plumbline.check_causality runs.

Exit status: 0, everything would be watched; 1, something would not (the reason is printed), or a causal
language model (…ForCausalLM, …LMHeadModel) depends on later tokens; 2, the model could not be created, or
plumb was not found."""


def _arguments(words):
    parser = argparse.ArgumentParser(prog="python -m plumbline", description="Plumbline, inside a trainer's Python.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    doctor = commands.add_parser("doctor", help="how run.watch would classify a model; without --model: plumb doctor", description=_ABOUT,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.arguments(commands)
    doctor.add_argument("--model", metavar="MODULE:FACTORY", help="as in my_trainer.model:build")
    return parser.parse_args(words)


def _installation():
    """Replaces this process by `plumb doctor`: the wheel's plumb, or else the plumb on PATH. If there is no plumb,
    returns 2."""
    plumb = command.find_plumb()
    if plumb is None:
        print("plumbline: --model MODULE:FACTORY is missing; without it `plumb doctor` would check the installation, but "
              "no plumb is on PATH", file=sys.stderr)  # fmt: skip
        return 2
    sys.stdout.flush()
    os.execv(plumb, [plumb, "doctor"])


def main(words=None):
    words, trainer = command.split(sys.argv[1:] if words is None else list(words))
    options = _arguments(words)
    if options.command == "run":
        return command.run(options, trainer)
    model = options.model
    if model is None:
        return _installation()
    from ._doctor import examine

    return examine(model)


if __name__ == "__main__":
    sys.exit(main())
