"""python -m plumbline: what can be asked without a run."""

import argparse
import sys

_ABOUT = """\
Says what run.watch(model, optimizer) would take for what, without training.

MODULE is imported (the current folder is searched first) and FACTORY is called without arguments. It
returns a model, (model, optimizer) or (model, optimizer, example_inputs): a tensor, a tuple of
positional arguments or a dictionary of named ones. With example inputs a copy of the model runs forward
once, without gradients, to see whether its routers can be heard.

Exit status: 0, all of it would be watched; 1, something would not, and it is said what and why;
2, the model could not be made."""


def _arguments(words):
    parser = argparse.ArgumentParser(prog="python -m plumbline", description="Plumbline, inside a trainer's Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    doctor = commands.add_parser("doctor", help="what run.watch would take for what", description=_ABOUT,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    doctor.add_argument("--model", required=True, metavar="MODULE:FACTORY", help="as in my_trainer.model:build")
    return parser.parse_args(words)


def main(words=None):
    from ._doctor import examine

    return examine(_arguments(words).model)


if __name__ == "__main__":
    sys.exit(main())
