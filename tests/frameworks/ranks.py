"""Several ranks of one case: forked, or started anew where a framework cannot be forked after its import."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import traceback

import torch

from harness import BUILD, Wrong

RANKS = 2


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(rank, port):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip


def results():
    return [torch.load(f"rank{rank}.pt") for rank in range(RANKS)]


def compared(results):
    """Compares the record of each rank with the series that the rank returned as `series`; they agree to 1e-6. Returns the results."""
    if not pathlib.Path("record").exists():
        return results
    done = subprocess.run([BUILD / "bin/agent_record_json", *pathlib.Path("record").iterdir()], capture_output=True, text=True, check=True)
    recorded = {}
    for item in map(json.loads, done.stdout.splitlines()):
        one = item.get("evidence", {})
        if "scalar" in one:
            recorded.setdefault((int(item.get("rank", 0)), one["site"].get("op")), {})[int(one.get("step", 0))] = float(one["scalar"].get("value", 0))
    for rank, result in enumerate(results):
        for name, values in result["series"].items():
            seen = recorded.get((rank, name), {})
            wrong = [step for step, value in enumerate(values) if not abs(seen.get(step, float("inf")) - float(value)) <= 1e-6 * abs(float(value))]
            if wrong or len(seen) != len(values):
                raise Wrong(f"{name} of rank {rank} has {len(seen)} values for {len(values)}; wrong in the steps {wrong[:9]}")
    return results


def of_ranks(body):
    """body() in a process for each rank, forked from this one; its results."""
    port, pids = free_port(), []
    for rank in range(RANKS):
        pids.append(os.fork())
        if not pids[-1]:
            os.environ.update(environment(rank, port))
            run_rank(rank, body)
    if any([os.waitpid(pid, 0)[1] for pid in pids]):
        raise Wrong("a rank failed")
    return results()


def run_rank(rank, body):
    torch.set_num_threads(1)  # makes the thread pool again that the fork has lost, before two threads do
    try:
        torch.save(body(), f"rank{rank}.pt")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def spawned(file, function, *arguments):
    """The function of that file, in a new process for each rank; its results."""
    port = free_port()
    command = [sys.executable, __file__, file, function, json.dumps(arguments)]
    processes = [subprocess.Popen(command, env={**os.environ, **environment(rank, port)}) for rank in range(RANKS)]
    if any([one.wait() for one in processes]):
        raise Wrong("a rank failed")
    return results()


if __name__ == "__main__":
    import importlib

    import harness

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    harness.seed()
    name, function, given = sys.argv[1:4]
    run_rank(int(os.environ["RANK"]), lambda: getattr(importlib.import_module(name), function)(*json.loads(given)))
