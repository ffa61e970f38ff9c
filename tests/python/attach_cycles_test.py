"""Runs that are opened and closed again by the hook leave no files, processes, threads, shared memory or descriptors. The marks of a loop (33 kB of
a run, plumbline/marks.h) live until the process ends."""

import os

import attach
import pytest
from attach_trainers import HEAD

pytestmark = pytest.mark.skipif(not attach.READY, reason="plumb and the agent are not built")
CYCLES = 1000 if attach.LONG else 100

# Each cycle attaches to a new model in this process, trains, and ends, as a process does.
CODE = """
import gc, resource, shutil
import plumbline_attach
from importlib import import_module

def state():
    return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(os.listdir("/dev/shm")))

def cycle():
    m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for i in range(3):
        x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward(); o.step(); o.zero_grad()
    attached = import_module("plumbline._attach.attached")
    run = attached._state.run
    assert run is not None and run.finish()
    settled, attached._state = attached._state.settled, attached._Attached()
    attached._state.settled = settled
    shutil.rmtree("rec")

def memory():
    with open("/proc/self/statm") as f: return int(f.read().split()[1]) * 4096

sys.stderr = open(os.devnull, "w")
for k in range(10): cycle()
gc.collect(); before, used = state(), memory()
for k in range(CYCLES): cycle()
gc.collect()
print(state() == before, before, state(), (memory() - used) / CYCLES < 80_000, memory() - used, len(plumbline_attach._seen))
"""


def test_cycles_of_the_hook(tmp_path):
    done = attach.attached(attach.write(tmp_path, CODE.replace("CYCLES", str(CYCLES)), HEAD), tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("True "), (done.stdout, done.stderr)
    assert ") True " in done.stdout and done.stdout.split()[-1] in ("0", "1"), done.stdout


def test_cycles_of_plumb_run(tmp_path):
    before = set(os.listdir("/dev/shm"))
    for k in range(CYCLES):
        done = attach.call([attach.PLUMB, "run", "--record", "rec", "--", "true"], tmp_path)
        assert done.returncode == 0
    assert os.listdir(tmp_path) == [] and set(os.listdir("/dev/shm")) <= before
