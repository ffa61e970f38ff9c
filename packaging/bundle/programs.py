"""The programs plumb and plumbd, which lie in the package: what the commands of that name start."""

import os
import sys


def _start(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(path, [name, *sys.argv[1:]])


def plumb():
    _start("plumb")


def plumbd():
    _start("plumbd")
