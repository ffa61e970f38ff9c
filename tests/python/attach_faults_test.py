"""Faults of trainers without a line of Plumbline are found under `plumb run` as with the two lines, but for the first step."""

import attach
import pytest
from attach_trainers import FAULTS, HEAD, SHORT_FAULTS

pytestmark = pytest.mark.skipif(not attach.READY, reason="plumb and the agent are not built")
NAMES = list(FAULTS) if attach.LONG else SHORT_FAULTS
_STEPS = "import plumbline; run = plumbline.init(run='mine', record='two'); run.watch(m, {})\n"


def _two_lines(code):
    """Returns the trainer with the two lines, before its loop."""
    lines = code.splitlines(keepends=True)
    loop = next(k for k, line in enumerate(lines) if line.startswith("for "))
    return "".join([*lines[:loop], _STEPS.format("[a, b]" if " b = torch" in code else "o"), *lines[loop:]])


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_is_found_as_with_the_two_lines(tmp_path, name):
    code, finds = FAULTS[name]
    done = attach.attached(attach.write(tmp_path, code, HEAD), tmp_path)
    assert done.returncode == 0, done.stderr
    found = attach.found(attach.audit(tmp_path))
    for rule, step in finds.items():
        first, last = step if isinstance(step, tuple) else (step, step)
        assert rule in found and (step is None or first <= found[rule] <= last), (found, done.stderr)
        assert rule in done.stderr
    other = attach.write(tmp_path, _two_lines(code), HEAD, "two.py")
    done = attach.plain(other, tmp_path, PYTHONPATH=str(attach.BIN.parent / "python"))
    assert done.returncode == 0, done.stderr
    assert set(attach.found(attach.audit(tmp_path, "two"))) == set(found)
