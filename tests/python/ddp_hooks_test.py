"""run.observed(hook): nothing changes, and every rank keeps the same elements of the transferred values."""

import base64
import collections
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
AGENT, RECORD = BUILD / "lib" / "libplumbline_agent.so", BUILD / "bin" / "agent_record_json"
PLUMB = BUILD / "bin" / "plumb"
TRAINER = pathlib.Path(__file__).with_name("ddp_trainer.py")
if not (AGENT.exists() and RECORD.exists()):
    pytest.skip("the agent is not built", allow_module_level=True)

RANKS, STEPS = 4, 4
HOOKS = ["none", "allreduce", "fp16", "divide-after", "group", "gather", "state", "halves"]
DTYPES = {"DTYPE_F32": numpy.float32, "DTYPE_F16": numpy.float16, "DTYPE_I64": numpy.int64}


def launch(directory, ranks, *arguments, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    env.update(environment)
    done = subprocess.run(
        [sys.executable, TRAINER, str(ranks), *arguments], cwd=directory, env=env,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [line for line in lines if len(line) == 4], done.stderr


def array(tensor):
    data = numpy.frombuffer(base64.b64decode(tensor["data"]), DTYPES[tensor["dtype"]])
    return data.reshape([int(n) for n in tensor["shape"]])


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Returns the output of the trainers, and their evidence by (hook, bucket, step), one per rank."""
    directory = tmp_path_factory.mktemp("ddp")
    # Every step keeps elements.
    lines, _ = launch(directory, RANKS, str(STEPS), *HOOKS, PLUMBLINE_TRAFFIC_BYTES=str(1 << 30))
    records = sorted((directory / "runs").iterdir())
    assert len(records) == RANKS
    text = subprocess.run([RECORD, *records], capture_output=True, text=True, check=True).stdout
    evidence = collections.defaultdict(dict)
    for item in map(json.loads, text.splitlines()):
        assert "loss" not in item, item
        if "reduction" not in item["evidence"]:
            continue
        hook, _, bucket = item["evidence"]["site"]["layer"].partition(".")
        key = (hook, bucket, int(item["evidence"]["step"]))
        assert item["rank"] not in evidence[key], f"{key} twice"
        evidence[key][item["rank"]] = item["evidence"]
    return lines, evidence, directory / "runs"


def test_weights_are_bit_identical(outcome):
    lines = outcome[0]
    assert len(lines) == RANKS * len(HOOKS)
    for hook, rank, plain, observed in lines:
        assert plain == observed, (hook, rank)


def test_multiplying_as_ddp_does(tmp_path):
    """1/3 is not a power of two, so dividing would give other bits than DDP's averaging."""
    lines, _ = launch(tmp_path, 3, "3", "none", "fp16")
    assert len(lines) == 6
    for hook, rank, plain, observed in lines:
        assert plain == observed, (hook, rank)


def test_every_rank_reports_every_collective_alike(outcome):
    evidence = outcome[1]
    seen = collections.Counter(hook for hook, _, _ in evidence)
    for hook in HOOKS:
        assert seen[hook] >= STEPS, (hook, seen)
    for key, ranks in evidence.items():
        assert sorted(ranks) == list(range(RANKS)), key
        calls = [ranks[r]["reduction"]["call"] for r in range(RANKS)]
        assert [c.get("group_rank", 0) for c in calls] == list(range(RANKS))
        for call in calls:
            assert call["sequence_known"] and call["group_size"] == RANKS
            assert call["transport"] == "gloo" and "group" not in call
            for name in ("sequence", "count", "op", "wire_dtype", "prescale", "postscale"):
                assert call.get(name) == calls[0].get(name), (key, name)
        offsets = [array(ranks[r]["reduction"]["sample"]["offsets"]) for r in range(RANKS)]
        assert len(set(offsets[0])) == len(offsets[0]) == min(1024, int(calls[0]["count"]))
        for other in offsets[1:]:
            assert numpy.array_equal(offsets[0], other), key
    by_sequence = collections.Counter(
        (key[2], ranks[0]["reduction"]["call"].get("sequence"), "." in key[1])
        for key, ranks in evidence.items()
    )
    assert max(by_sequence.values()) == 1


def samples(evidence, hook):
    for key, ranks in sorted(evidence.items()):
        if key[0] == hook:
            reductions = [ranks[r]["reduction"] for r in range(RANKS)]
            inputs = numpy.stack([array(r["sample"]["inputs"]) for r in reductions])
            outputs = [array(r["sample"]["output"]) for r in reductions]
            for output in outputs[1:]:
                assert numpy.array_equal(outputs[0], output)
            yield key, reductions[0]["call"], inputs, outputs[0]


@pytest.mark.parametrize("hook", [h for h in HOOKS if h != "gather"])
def test_the_output_is_the_sum_of_the_inputs(outcome, hook):
    """The evidence is of the transferred values: with the hook's scaling and in its dtype."""
    for key, call, inputs, output in samples(outcome[1], hook):
        assert call["op"] == "OP_SUM"
        if hook in ("fp16", "group"):
            assert inputs.dtype == numpy.float16 and call["wire_dtype"] == "DTYPE_F16"
        exact = inputs.astype(numpy.float64).sum(axis=0)
        scale = numpy.abs(inputs.astype(numpy.float64)).sum(axis=0)
        # A ring of N ranks rounds N - 1 times, each time to within half an ulp; tiny: subnormals.
        info = numpy.finfo(inputs.dtype)
        bound = (RANKS - 1) * (info.eps / 2 * scale + float(info.tiny) * info.eps)
        assert (numpy.abs(output - exact) <= bound).all(), key


FACTORS = {"none": (0.25, 1), "allreduce": (0.25, 1), "fp16": (0.25, 1), "divide-after": (1, 0.25),
           "group": (0.5, 0.5), "state": (0.25, 1)}  # fmt: skip


@pytest.mark.parametrize("hook", sorted(FACTORS))
def test_factors_before_and_after_are_measured(outcome, hook):
    """Evidence exists from a bucket's second call on, because the site was not known before the first call."""
    calls = [(key, call) for key, call, _, _ in samples(outcome[1], hook)]
    last = max(step for (_, _, step), _ in calls)
    for (_, bucket, step), call in calls:
        if step == last and "." not in bucket:
            assert call["prescale"] == pytest.approx(FACTORS[hook][0], rel=1e-2)
            assert call["postscale"] == pytest.approx(FACTORS[hook][1], rel=1e-2)


def test_the_cast_before_the_wire_is_seen(outcome):
    """Only hooks that cast to fp16 give the values before the cast."""
    text = subprocess.run(
        [RECORD, *sorted(outcome[2].iterdir())], capture_output=True, text=True, check=True
    ).stdout
    casts = collections.defaultdict(set)
    for item in map(json.loads, text.splitlines()):
        evidence = item.get("evidence", {})
        if evidence.get("site", {}).get("op") == "cast":
            state = evidence["tensor"]
            assert (state["dtype"], state["target_format"]) == ("DTYPE_F32", "DTYPE_F16")
            casts[evidence["site"]["layer"].partition(".")[0]].add(item["rank"])
    assert casts["fp16"] == set(range(RANKS)), casts
    assert "none" not in casts and "allreduce" not in casts


def test_a_hook_without_all_reduce_is_seen_from_outside(outcome):
    for key, call, inputs, output in samples(outcome[1], "gather"):
        assert (call["op"], call["algorithm"]) == ("OP_AVG", "hook")
        mean = inputs[0].copy()
        for row in inputs[1:]:
            mean += row
        assert numpy.array_equal(mean / numpy.float32(RANKS), output), key


@pytest.mark.skipif(not PLUMB.exists(), reason="plumb is not built")
def test_the_audit_names_the_arithmetic(outcome):
    """The records of four ranks show gloo's ring, in the dtype in which each hook sends."""
    done = subprocess.run([PLUMB, "audit", outcome[2], "--format", "json", "--rules", "precision/*"],
                          capture_output=True, text=True)  # fmt: skip
    report = json.loads(done.stdout)
    models = {}
    for verdict in report["verdicts"]:
        if verdict["rule"] == "precision/collective-sum" and "model" in verdict.get("details", {}):
            models[verdict["site"]["layer"]] = verdict["details"]["model"]
    for layer, dtype in (("fp16.0", "f16"), ("fp16.1", "f16"), ("divide-after.1", "f32")):
        assert models[layer]["name"] == "ring", models
        assert models[layer]["dtype"].lower() == dtype, models
    assert {f["rule"] for f in report["findings"]} == {"precision/collective-sum"}
    assert {f["level"] for f in report["findings"]} == {"note"}, report["findings"]


def test_failures_inside_do_not_reach_the_trainer(tmp_path):
    lines, errors = launch(tmp_path, 2, "3", "none", "fp16", "divide-after", "gather", BROKEN="1")
    assert len(lines) == 8
    for hook, rank, plain, observed in lines:
        assert plain == observed, (hook, rank)
    assert "ZeroDivisionError" in errors
