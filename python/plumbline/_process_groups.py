"""Reads torch's facts about a process group. Never imports torch: a process that has a group has imported it."""

import sys
import weakref
from collections import namedtuple

from ._tensors import Unsupported

Group = namedtuple("Group", "name size rank transport")

# Holds groups only weakly: a process group that outlives torch's own references crashes the process at its end.
_known = weakref.WeakKeyDictionary()


def _distributed():
    return sys.modules["torch.distributed"]


def world():
    """Returns the default process group."""
    return _distributed().distributed_c10d._get_default_group()


def _name(group, dist):
    """Returns a name that is equal on the group's ranks, if every process made its groups in the same order."""
    if group is world():
        return ""
    name = getattr(group, "group_name", None)
    if isinstance(name, str) and name:
        return name
    return dist.distributed_c10d._pg_names.get(group, "unnamed")


def describe_group(group):
    """Returns a Group; `group` None is the world. Raises what torch raises."""
    if group is None:
        group = world()
    if not hasattr(group, "rank"):
        raise Unsupported(f"group is {group!r}; expected a process group, its name, or None")
    described = _known.get(group)
    if described is not None:
        return described
    dist = _distributed()
    described = Group(_name(group, dist), group.size(), group.rank(), dist.get_backend(group))
    _known[group] = described
    return described


def group_of_state(state):
    """Returns the process group that a communication hook's state names; None: the world."""
    if state is None:
        return None
    kind = _distributed().ProcessGroup
    if isinstance(state, kind):
        return state
    inner = getattr(state, "process_group", None)
    return inner if isinstance(inner, kind) else None
