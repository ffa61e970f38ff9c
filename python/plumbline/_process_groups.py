"""What torch knows of a process group. torch is never imported from here: who has one, has it."""

import sys
from collections import namedtuple

Group = namedtuple("Group", "name size rank transport")

_known = {}  # id -> (the group, kept so that the id stays its own; its description)


def _distributed():
    return sys.modules["torch.distributed"]


def world():
    """The default process group."""
    return _distributed().distributed_c10d._get_default_group()


def _name(group, dist):
    """Equal on the group's ranks: the same in every process that made its groups in one order."""
    if group is world():
        return ""
    name = getattr(group, "group_name", None)
    if isinstance(name, str) and name:
        return name
    return dist.distributed_c10d._pg_names.get(group, "unnamed")


def describe_group(group):
    """A Group; `group` None is the world. Raises what torch raises."""
    if group is None:
        group = world()
    entry = _known.get(id(group))
    if entry is not None and entry[0] is group:
        return entry[1]
    dist = _distributed()
    described = Group(_name(group, dist), group.size(), group.rank(), dist.get_backend(group))
    if len(_known) > 1000:
        _known.clear()
    _known[id(group)] = (group, described)
    return described


def group_of_state(state):
    """The process group that a communication hook's state names; None: the world."""
    if state is None:
        return None
    kind = _distributed().ProcessGroup
    if isinstance(state, kind):
        return state
    inner = getattr(state, "process_group", None)
    return inner if isinstance(inner, kind) else None
