"""plumb run: trainers without a line of Plumbline compute the same bits, end in the same way and print the same, and healthy ones are silent."""

import attach
import pytest
import warm
from attach_trainers import BEFORE, FAULTS, HEAD, HEALTHY, SHORT

pytestmark = pytest.mark.skipif(not attach.READY, reason="plumb and the agent are not built")
NAMES = list(HEALTHY) if attach.LONG else SHORT
STATED = {"exits_with_3": {"health/run-died"}, "raises": {"health/run-died"}}


@pytest.mark.parametrize("name", NAMES)
def test_the_results_are_the_same(tmp_path, name):
    code, words = HEALTHY[name]
    script = attach.write(tmp_path, code, BEFORE.get(name, "") + HEAD)
    more = {"PYTHONPATH": str(attach.BIN.parent / "python")} if name == "two_lines" else {}
    if name == "two_lines":
        plain = attach.plain(script, tmp_path, **more, PLUMBLINE_RECORD=str(tmp_path / "own"))
    elif name == "raises":  # warm.py would be in the traceback
        plain = attach.plain(script, tmp_path)
    else:
        plain = warm.run([script], tmp_path, attach.environment())
    watched = attach.attached(script, tmp_path, **more)
    assert watched.stdout == plain.stdout and plain.stdout, watched.stderr
    assert watched.returncode == plain.returncode
    assert attach.of_trainer(watched.stderr) == attach.of_trainer(plain.stderr)
    if words is None:
        assert "attached to" not in watched.stderr
    else:
        assert f"attached to train after its first step: {words}" in watched.stderr, watched.stderr
    if name == "no_module":
        assert len([line for line in watched.stderr.splitlines() if "calls seen: " not in line]) == 2 and "not watched: no living torch.nn.Module owns the parameters of SGD" in watched.stderr
        return
    report = attach.audit(tmp_path)
    found = {rule for rule in attach.found(report) if not rule.startswith("performance/")}  # a busy machine is slow
    assert found == STATED.get(name, set()), report["findings"]
    assert report["coverage"]["judged"] > 5 and all(not i["problems"] for i in report["inputs"])


def test_the_findings_are_printed_at_the_end(tmp_path):
    done = attach.attached(attach.write(tmp_path, FAULTS["nan"][0], HEAD), tmp_path)
    assert done.returncode == 0 and "health/loss-non-finite" in done.stderr and "health/loss-non-finite" not in done.stdout
    assert "error  precision/non-finite" in done.stderr.partition("plumb: run: the record in ")[2], done.stderr


def test_without_a_record_and_a_server_there_is_a_folder_of_the_run(tmp_path):
    script = attach.write(tmp_path, HEALTHY["plain"][0], HEAD)
    done = attach.attached(script, tmp_path, record=None)
    assert done.returncode == 0
    folders = list((tmp_path / "plumbline").iterdir())
    assert len(folders) == 1 and folders[0].name.startswith("train-2"), folders
    report = attach.audit(tmp_path, str(folders[0]))
    assert {v["site"]["run"] for v in report["verdicts"]} == {folders[0].name}


@pytest.mark.parametrize("variables,run,attempt", [
    ({"TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "2"}, "job7", 2),
    ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "1"}, "slurm-4711", 1),
    ({"WANDB_RUN_ID": "a1b2", "MLFLOW_RUN_ID": "zz"}, "a1b2", 0),
    ({"WANDB_RUN_ID": "a1b2", "PLUMBLINE_RUN": "mine"}, "mine", 0),
])  # fmt: skip
def test_names_and_attempts_come_from_the_launcher(tmp_path, variables, run, attempt):
    script = attach.write(tmp_path, HEALTHY["plain"][0], HEAD)
    assert attach.attached(script, tmp_path, **variables).returncode == 0
    assert [p.name for p in (tmp_path / "rec").iterdir()] == [f"trainer-r00000-a{attempt}.plr"]
    assert {v["site"]["run"] for v in attach.audit(tmp_path)["verdicts"]} == {run}


def test_a_shadowed_sitecustomize_runs_first_and_its_error_is_printed_as_ever(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.mine = __file__, __name__\n")
    script = attach.write(tmp_path, "import sys, sitecustomize\nprint(sys.mine, sitecustomize.__file__, sys.path)\n")
    plain, watched = (run(script, tmp_path, PYTHONPATH=str(own)) for run in (attach.plain, attach.attached))
    assert watched.stdout == plain.stdout and "sitecustomize.py" in plain.stdout
    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    script = attach.write(tmp_path, HEALTHY["plain"][0], HEAD)
    plain, watched = (run(script, tmp_path, PYTHONPATH=str(own)) for run in (attach.plain, attach.attached))
    assert watched.stdout == plain.stdout and attach.of_trainer(watched.stderr) == attach.of_trainer(plain.stderr)
    assert "attached to train" in watched.stderr


def test_programs_without_torch_load_nothing_of_it(tmp_path):
    script = attach.write(tmp_path, """
import sys
print([name for name in sys.modules if name.startswith("plumbline") and name != "plumbline_attach"])
print([type(f).__module__ for f in sys.meta_path if type(f).__module__ == "plumbline_attach"])
""")
    done = attach.attached(script, tmp_path)
    assert done.stdout.splitlines() == ["[]", "['plumbline_attach']"]
    assert "nothing was recorded" in done.stderr and not (tmp_path / "rec").exists()


def test_python_m_plumbline_run_and_modules(tmp_path):
    import sys

    (tmp_path / "pack").mkdir()
    attach.write(tmp_path / "pack", HEALTHY["plain"][0] + "print(sys.argv[1:], __name__, __spec__.name)\n", HEAD, "__main__.py")
    plain = attach.call([sys.executable, "-m", "pack", "--lr", "3"], tmp_path)
    package = {"PYTHONPATH": str(attach.BIN.parent / "python")}
    done = attach.call([sys.executable, "-m", "plumbline", "run", "--record", "rec", "-m", "pack", "--lr", "3"], tmp_path, **package)
    assert done.stdout == plain.stdout and "attached to pack" in done.stderr and "recorded in" in done.stderr
    script = attach.write(tmp_path, HEALTHY["plain"][0] + "print(sys.argv, sys.flags.dev_mode)\n", HEAD)
    plain = attach.call([sys.executable, "-X", "dev", script, "--", "-x"], tmp_path)
    done = attach.call([sys.executable, "-X", "dev", "-m", "plumbline", "run", "--", script, "--", "-x"], tmp_path, **package)
    assert done.stdout == plain.stdout and "attached to train" in done.stderr
    done = attach.call([sys.executable, "-m", "plumbline", "run"], tmp_path, **package)
    assert done.returncode == 2 and "expected a script" in done.stderr
