"""Light steps of several ranks under DistributedDataParallel: their content, the steps that ranks have in common, and faults between them.

The trainers are drawn (light_ranks_trainer.py). PLUMB_LONG=1 draws more of them."""

import json
import os
import pathlib
import subprocess

import light_ranks_trainer as trainer
import pytest
import warm
from light_test import PLUMB, audited, evidence_of, series_of

pytestmark = pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
TRAINER = pathlib.Path(trainer.__file__)
RANKS, STEPS = 2, 300
SEEDS = range(24 if os.environ.get("PLUMB_LONG") == "1" else 6)
PLAIN = {**trainer.kind_of(1), "passes": 1, "hook": "none", "uneven": False, "evaluates": 0, "groups": 1, "ids": True, "unused": False,
         "scalar": False, "pause": 0.0, "clip": True, "buckets": False}  # fmt: skip
UNSURE = "performance/straggler"  # on a busy machine one of two processes really is slower


def start(folder, name, kind, **settings):
    """Trains on all ranks. Returns [(exit status, what the rank printed, its errors)]."""
    settings = {"kind": kind, "steps": STEPS, "budget": 0.01, "record": str(folder / name), "meeting": str(folder / f"{name}.meeting"), **settings}
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    each = [subprocess.Popen([warm.python(), TRAINER, json.dumps(settings)], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**env, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}) for rank in range(RANKS)]  # fmt: skip
    outputs = [one.communicate(timeout=120) for one in each]
    return [(one.returncode, *output) for one, output in zip(each, outputs)]


def trained(folder, name, kind, **settings):
    ended = start(folder, name, kind, **settings)
    assert all(code == 0 for code, _, _ in ended), "\n".join(error for _, _, error in ended)
    assert not any("plumbline: watch:" in error or "Traceback" in error for _, _, error in ended), ended
    return [json.loads(out) for _, out, _ in ended]


def of_rank(record, rank):
    """Returns the folder with the record of one rank only, as series_of() reads it."""
    (one,) = [path for path in record.iterdir() if f"rank{rank}" in path.name or f".{rank}." in path.name]
    return one


def series_of_ranks(record):
    """Returns {series: {step: value}} of each rank, and {rank: {op of an observation: its steps}}."""
    series, looks = [{} for _ in range(RANKS)], [{} for _ in range(RANKS)]
    done = subprocess.run([PLUMB.parent / "agent_record_json", *record.iterdir()], capture_output=True, text=True, check=True)
    for item in map(json.loads, done.stdout.splitlines()):
        one, rank = item.get("evidence", {}), int(item.get("rank", 0))
        step, op = int(one.get("step", 0)), one.get("site", {}).get("op")
        if "scalar" in one:
            series[rank].setdefault(op, {})[step] = one["scalar"].get("value", 0)
        elif "reduction" in one:
            looks[rank].setdefault("sum", set()).add(step)
        elif "tensor" in one:
            looks[rank].setdefault(op, set()).add(step)
    return series, looks


def alike(looks, fewest=3):
    """The steps in which the rank with fewer looks measures are steps of the other rank, but for those in which an interval changes."""
    for what, fewest in (("weight", 1), ("sum", fewest)):
        rarely, often = sorted((looks[rank].get(what, set()) for rank in range(RANKS)), key=len)
        assert len(rarely) >= fewest and len(rarely & often) >= 0.8 * len(rarely) - 1, (what, sorted(rarely), sorted(often))


def above_a_note(record):
    report = audited(record)
    assert all(not one["problems"] for one in report["inputs"])
    return {f["rule"] for f in report["findings"] if f["level"] != "note"} - {UNSURE}


@pytest.mark.parametrize("seed", SEEDS)
def test_light_steps_of_ranks_are_whole_steps_to_the_bit(tmp_path, seed):
    kind = trainer.kind_of(seed)
    plain, light = trained(tmp_path, "none", kind, record=""), trained(tmp_path, "light", kind)
    whole = trained(tmp_path, "whole", kind, budget=1)
    for rank in range(RANKS):
        for name in ("weights", "loss", "grad_norm", "tokens", "lr", "calls"):
            assert plain[rank][name] == light[rank][name] == whole[rank][name], (rank, name)
        assert len(light[rank]["light"]) > (60 if kind["scalar"] or kind["evaluates"] else 150) and not whole[rank]["light"], kind
    seen, looks = series_of_ranks(tmp_path / "light")
    expected, _ = series_of_ranks(tmp_path / "whole")
    for rank in range(RANKS):
        for name in ("loss", "lr", "tokens", "lr.1"):
            assert seen[rank].get(name) == expected[rank].get(name), (rank, name, kind)
        assert len(seen[rank]["loss"]) == STEPS
        for name in ("grad_norm", "weights_checksum"):
            values = seen[rank][name]
            assert values and {step: expected[rank][name].get(step) for step in values} == values, (rank, name, kind)
        if kind["clip"]:
            assert len(seen[rank]["grad_norm"]) == STEPS
    alike(looks)
    assert above_a_note(tmp_path / "light") == set(), kind


def test_a_fast_and_a_slow_rank_look_in_the_same_steps(tmp_path):
    both = trained(tmp_path, "r", {**PLAIN, "pause": 0.008}, steps=500)
    assert all(len(one["light"]) > 350 for one in both)
    alike(series_of_ranks(tmp_path / "r")[1])
    report = audited(tmp_path / "r")
    assert [f["rule"] for f in report["findings"] if f["level"] != "note" and f["rule"] != UNSURE] == []
    assert "precision/collective-sum" in {v["rule"] for v in report["verdicts"] if v["verdict"] == "pass"}


FAULTS = [("nan", "health/loss-non-finite"), ("flip", "precision/replica-divergence"), ("bypass", "precision/replica-divergence"), ("same", "health/same-data")]


@pytest.mark.parametrize("fault, rule", FAULTS)
def test_a_fault_of_one_rank_is_found_among_light_steps(tmp_path, fault, rule):
    both = trained(tmp_path, "r", PLAIN, fault=fault, at=237, steps=500 if fault != "same" else 1500)
    assert all(len(one["light"]) > 150 for one in both)
    found = {f["rule"]: f["site"]["step_first"] for f in audited(tmp_path / "r")["findings"] if f["level"] == "error"}
    assert rule in found, found
    if fault == "nan":
        assert found[rule] == 237
    elif fault != "same":
        assert 237 <= found[rule] < 320


def test_a_rank_that_raises_leaves_complete_records(tmp_path):
    ended = start(tmp_path, "r", PLAIN, fault="raises", at=237)
    assert ended[1][0] != 0 and "the trainer's own error" in ended[1][2]
    seen, _ = series_of_ranks(tmp_path / "r")
    for rank in range(RANKS):
        assert set(range(230)) <= seen[rank]["loss"].keys() <= set(range(239))


def test_ranks_that_join_with_fewer_batches(tmp_path):
    plain, light = trained(tmp_path, "none", PLAIN, record="", join=True), trained(tmp_path, "r", PLAIN, join=True)
    assert [one["weights"] for one in plain] == [one["weights"] for one in light]
    assert all(len(one["light"]) > 100 for one in light)
    assert above_a_note(tmp_path / "r") == set()
