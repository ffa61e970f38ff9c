"""The rank under which a process is recorded if no launcher states it in the environment; and forked children."""

import os
import pathlib
import re
import subprocess

import pytest
import trainer
import warm

SPAWNED = pathlib.Path(__file__).with_name("spawned_trainer.py")


def spawned(case, tmp_path):
    """Returns (calls, stderr) of each process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PLUMBLINE_", "SLURM_", "OMPI_", "RANK", "WORLD_SIZE"))}
    if "PLUMBLINE_LIBRARY" in os.environ:
        env["PLUMBLINE_LIBRARY"] = os.environ["PLUMBLINE_LIBRARY"]
    env["PLUMBLINE_AGENT_LIBRARY"] = trainer.TEST_AGENT
    done = subprocess.run([warm.python(), SPAWNED, case], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return [((tmp_path / f"{rank}.log").read_text(), (tmp_path / f"{rank}.err").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("case", ["group-first", "late-watch", "half-given"])
def test_the_process_group_states_the_rank(case, tmp_path):
    for rank, (calls, stated) in enumerate(spawned(case, tmp_path)):
        assert calls.splitlines()[0].count(f" rank={rank}/2 ") == 1, calls
        assert "rank" not in stated


def test_an_environment_that_contradicts_is_stated(tmp_path):
    (first, quiet), (second, stated) = spawned("environment", tmp_path)
    assert " rank=0/2 " in first and " rank=1/2 " in second
    assert "rank" not in quiet
    assert re.search(r"RANK and WORLD_SIZE \w+ rank 0 of 2, torch\.distributed \w+ rank 1 of 2", stated)
    assert stated.count("RuntimeWarning") == 1


def test_a_rank_given_to_init_is_used_and_a_contradiction_stated(tmp_path):
    (_, quiet), (second, stated) = spawned("given", tmp_path)
    assert " rank=0/2 " in second
    assert "init(rank=0, world_size=2): torch.distributed lists this process as rank 1 of 2" in stated
    assert stated.count("torch.distributed") == 1 and "torch.distributed" not in quiet


def test_a_group_after_the_first_step_is_stated(tmp_path):
    for rank, (calls, stated) in enumerate(spawned("too-late", tmp_path)):
        assert " rank=0/1 " in calls
        assert f"this process is rank {rank} of 2, according to torch.distributed, but was recorded as rank 0 of 1" in stated
        # The audit reports it, too.
        assert f"site rank {rank} of 2 of torch.distributed/unhooked: " in calls


def test_strict_raises(tmp_path):
    for _, stated in spawned("strict", tmp_path):
        assert "raised: this process is rank" in stated


def test_torch_is_not_imported(tmp_path):
    trainer.run(
        trainer.OPEN + """
    with run.step(0):
        run.scalar("loss", 1.0)
    run.finish()
    import sys
    assert "torch" not in sys.modules
    """,
        tmp_path,
    ).ok()


# ---- forked children ------------------------------------------------------------------------------

FORKED = """
    import os, sys, plumbline
    {parent}
    child = os.fork()
    if child == 0:
        try:
            run = plumbline.init(run="child", record="runs", strict={strict})
        except plumbline.PlumblineError as error:
            print("raised:", error, flush=True)
            os._exit(0)
        with run.step(0):
            run.scalar("loss", 1.0)
        run.finish()
        print(type(run).__name__, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
USED = 'plumbline.init(run="parent", record="runs", every=1)'


@pytest.mark.parametrize("parent", [USED, USED + '.scalar("loss", 1.0)', USED + ".finish()"])
def test_init_in_a_forked_child_states_that_nothing_is_observed(parent, tmp_path):
    outcome = trainer.run(FORKED.format(parent=parent, strict=False), tmp_path).ok()
    assert outcome.out == "NoRun\n"
    assert outcome.err.count("plumbline: open: this process was forked from a process with an open run") == 1
    assert "spawn" in outcome.err


def test_strict_init_in_a_forked_child_raises(tmp_path):
    outcome = trainer.run(FORKED.format(parent=USED, strict=True), tmp_path).ok()
    assert outcome.out.startswith("raised: open: this process was forked")


def test_what_was_disabled_is_not_called_forked(tmp_path):
    outcome = trainer.run(FORKED.format(parent=USED, strict=True), tmp_path, PLUMBLINE_DISABLE="1").ok()
    assert outcome.out == "NoRun\n" and "forked" not in outcome.err


def test_the_first_run_in_the_child_is_a_run(tmp_path):
    outcome = trainer.run(FORKED.format(parent="", strict=True), tmp_path).ok()
    assert outcome.out == "Run\n" and not outcome.err
