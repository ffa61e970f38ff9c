"""Starts the programs plumb and plumbd of the package, for the commands of these names."""

import os
import sys


def _start(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(path, [name, *sys.argv[1:]])


def plumb():
    _start("plumb")


def plumbd():
    _start("plumbd")
