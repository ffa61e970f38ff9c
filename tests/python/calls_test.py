"""The values that a run's calls pass to the agent, and their messages about mistakes."""

import json
import re

import trainer
from trainer import OPEN


def test_whole_run(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    for i in range(3):
        with run.step(i) as same:
            assert same is run
            with run.span("forward"):
                pass
            run.scalar("loss", 2.5)
            run.scalar("bad", float("nan"))
            with run.span("collective", "all-reduce"):
                pass
    assert run.flush(timeout=1.5) is True
    assert run.finish() is True
    run.finish()
    run.scalar("late", 1)
    """,
        tmp_path,
        RANK="1",
        WORLD_SIZE="4",
    ).ok()
    assert outcome.err == ""
    assert outcome.calls[0] == (
        "open run=exp1 server= record=runs attempt=0 role=1 rank=1/4 every=1 budget=0.000000"
    )
    assert outcome.calls[1:8] == [
        "step_begin 0",
        "span_begin step=0 forward forward #1",
        "span_end #1",
        "scalar step=0 loss=2.5",
        "scalar step=0 bad=nan",
        "span_begin step=0 collective all-reduce #2",
        "span_end #2",
    ]
    assert outcome.calls[-2:] == ["flush 1500", "close"]
    assert not outcome.only("scalar step=0 late")


def test_capturing(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    class Stream:
        cuda_stream = 77
    with run.capturing() as same:
        assert same is run
        run.observe_routing("gate", torch.ones(4, 6), top_k=2)
    with run.step(0):
        pass
    with run.step(1):
        with run.capturing(Stream()):
            run.observe_tensor("w", torch.ones(3))
            with run.capturing(5):  # reported once; the outer one continues
                pass
        run.observe_tensor("v", torch.ones(3))
    with run.capturing("fast"):
        run.observe_tensor("w", torch.ones(3))  # no step is open
    run.finish()
    """,
        tmp_path,
    ).ok()
    calls = [c for c in outcome.calls if not c.startswith(("open ", "site "))]
    assert [re.sub(r"(step=-?\d+) .*", r"\1", c) for c in calls] == [
        "capture_begin 0",
        "routing gate/routing step=-3",
        "step_begin 0",
        "step_end 0",
        "step_begin 1",
        "capture_begin 77",
        "tensor w/tensor step=-3",
        "tensor v/tensor step=1",
        "step_end 1",
        "close",
    ]
    assert "a graph is being captured" in outcome.err
    assert "'fast': expected a CUDA stream" in outcome.err
    assert outcome.err.count("no step is open") == 1


def test_every_argument_arrives(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    T, E, k = 4, 6, 2
    with run.step(3):
        run.observe_routing(
            "layers.3", torch.ones(T, E), topk_indices=torch.ones(T, k, dtype=torch.int32),
            keep_mask=torch.ones(T, k, dtype=torch.bool), routing_map=torch.ones(T, E, dtype=torch.uint8),
            probs=torch.ones(T, E, dtype=torch.bfloat16), expert_bias=torch.ones(E, dtype=torch.float64),
            sequence_id=torch.zeros(T, dtype=torch.int64), position=torch.arange(T),
            padding_mask=torch.zeros(T, dtype=torch.bool), pool_id=torch.ones(T, dtype=torch.int64),
            region=torch.ones(T, dtype=torch.uint8),
            top_k=2, score_function="sigmoid", capacity=7, groups=3, top_groups=2, group_score="sum2",
            pool="sequence", flatten="batch-major", randomness="jitter", bias_captured="after",
            mode="eval", capacity_source="inferred", policy="score-capacity")
    run.finish()
    """,
        tmp_path,
    ).ok()
    assert outcome.only("routing") == [
        "routing layers.3/routing step=3 top_k=2 logits=1 function=2 capacity=2:7 groups=3:2:2 pool=2 "
        "flatten=2 bias=2 randomness=jitter mode=eval source=2 policy=score-capacity scores=2:32[4,6]300 expert_bias=2:64[6]21 "
        "topk_indices=0:32[4,2]36 keep_mask=6:8[4,2]36 routing_map=1:8[4,6]300 probs=4:16[4,6]300 "
        "sequence_id=0:64[4]0 position=0:64[4]20 padding_mask=6:8[4]0 pool_id=0:64[4]10 region=1:8[4]10"
    ]


def test_top_k_is_read_off_the_indices(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    with run.step(0):
        run.observe_routing("a", torch.ones(3, 8), topk_indices=torch.zeros(3, 4, dtype=torch.int64))
    """,
        tmp_path,
    ).ok()
    assert "top_k=4" in outcome.only("routing")[0]


def test_logits_or_scores(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    a, b = torch.ones(1, 2), torch.zeros(1, 2)
    with run.step(0):
        run.observe_routing("1", a, router_scores=b, top_k=1)
        run.observe_routing("2", a, router_scores=b, top_k=1, score_function="softmax")
        run.observe_routing("3", router_scores=b, top_k=1, capacity="none")
        run.observe_routing("4", router_scores=b, top_k=1, capacity=0)
    """,
        tmp_path,
    ).ok()
    lines = outcome.only("routing")
    assert "logits=0" in lines[0] and "scores=2:32[1,2]0" in lines[0]
    assert "logits=1" in lines[1] and "scores=2:32[1,2]3" in lines[1]
    assert "logits=0" in lines[2] and "capacity=1:0" in lines[2]
    assert "capacity=2:0" in lines[3]


MISTAKES = [
    ("run.observe_routing('a', torch.ones(3), top_k=1)", "router_logits: expected 2 axes"),
    ("run.observe_routing('a', 'text', top_k=1)", "a torch tensor, a numpy array or a list"),
    ("run.observe_routing('a', torch.ones(2, 2))", "top_k is 0"),
    ("run.observe_routing('a', top_k=1)", "router_logits or router_scores"),
    ("run.observe_routing('a', torch.ones(2, 2, dtype=torch.complex64), top_k=1)", "complex64"),
    ("run.observe_routing('a', torch.ones(2, 2).to_sparse(), top_k=1)", "sparse"),
    ("run.observe_routing('a', torch.ones(2, 2, device='meta'), top_k=1)", "meta"),
    ("run.observe_routing('a', numpy.ones((2, 2), dtype='>f4'), top_k=1)", "byte order"),
    ("run.observe_routing('a', [[1.0, 2.0], [3.0]], top_k=1)", "equally long"),
    ("run.observe_routing('a', [1.0, [2.0]], top_k=1)", "equally deep"),
    ("run.observe_routing('a', torch.ones(2, 3, 4).transpose(0, 1), top_k=1)", "merged"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, capacity='most')", "capacity is 'most'"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, pool='lake')", "pool is 'lake'"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=-1)", "top_k is -1"),
    ("run.observe_routing('a', torch.ones(2, 2), top_k=1, mode=3)", "mode is 3"),
    ("run.observe_routing(['a'], torch.ones(2, 2), top_k=1)", "['a']"),
    ("run.observe_routing(None, torch.ones(2, 2), top_k=1)", "None"),
    ("run.observe_routing('', torch.ones(2, 2), top_k=1)", "layer is missing"),
    ("run.scalar('loss', 'high')", "scalar('loss')"),
    ("run.scalar(3, 1.0)", "scalar(3)"),
    ("run.scalar('', 1.0)", "name is missing"),
    ("run.span('lunch').__enter__()", "lunch"),
    ("run.span(3).__enter__()", "span(3"),
    ("run.step('now').__enter__()", "expected an integer"),
    ("run.step(0).__enter__()", "expected a higher step"),
]


def test_mistakes_warn_once_or_raise(tmp_path):
    body = """
    import torch, numpy, json, sys
    for index, call in enumerate(json.loads(sys.argv[1])):
        outcomes = []
        for strict in (False, True):
            run = plumbline.init(run=f"mistake{index}", record="runs", every=1, strict=strict)
            run.step(3).__enter__()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    for _ in range(3):
                        exec(call)
                    outcomes.append([str(w.message) for w in caught])
                except plumbline.PlumblineError as error:
                    outcomes.append([str(error)])
            run.finish()
        print(json.dumps(outcomes))
    """
    calls = [call for call, _ in MISTAKES]
    outcome = trainer.run(OPEN + body, tmp_path, arguments=[json.dumps(calls)]).ok()
    assert not outcome.only("routing")
    for (call, stated), line in zip(MISTAKES, outcome.out.splitlines(), strict=True):
        relaxed, strict = json.loads(line)
        assert len(relaxed) == 1 and "printed once" in relaxed[0] and stated in relaxed[0], (call, relaxed)
        assert len(strict) == 1 and "printed once" not in strict[0] and stated in strict[0], (call, strict)


def test_errors_as_warnings_do_not_reach_the_trainer(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    warnings.simplefilter("error")
    with run.step(0):
        run.observe_routing("a", "nonsense", top_k=1)
    """,
        tmp_path,
    ).ok()
    assert "plumbline: observe_routing('a')" in outcome.err


def test_outside_of_a_step(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    import torch
    for _ in range(2):
        run.observe_routing("a", torch.ones(2, 2), top_k=1)
        run.scalar("loss", 1.0)
    with run.step(0):
        run.observe_routing("a", torch.ones(2, 2), top_k=1)
    """,
        tmp_path,
    ).ok()
    assert outcome.err.count("no step is open") == 2
    assert len(outcome.only("routing")) == 1 and not outcome.only("scalar")


def test_an_exception_in_a_step_ends_it(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    try:
        with run.step(0), run.span("forward"):
            raise ValueError("the trainer's own")
    except ValueError:
        pass
    with run.step(1):
        pass
    """,
        tmp_path,
    ).ok()
    assert outcome.calls[1:] == [
        "step_begin 0",
        "span_begin step=0 forward forward #1",
        "span_end #1",
        "step_end 0",
        "step_begin 1",
        "step_end 1",
        "close",
    ]


def test_not_due_calls_stay_in_python(tmp_path):
    outcome = trainer.run(
        OPEN.replace("every=1", "every=10")
        + """
    import torch
    for i in range(25):
        with run.step(i):
            run.observe_routing("a", torch.ones(2, 2), top_k=1)
            before = run._observe_routing
            run.observe_routing("a", torch.ones(2, 2), top_k=1)
            if i % 10:  # a foreign call would fail
                run._observe_routing = None
                run.observe_routing("a", "never looked at", top_k=1)
                run._observe_routing = before
    """,
        tmp_path,
    ).ok()
    assert outcome.err == ""
    assert [c.split()[2] for c in outcome.only("routing")] == [
        s for s in ("step=0", "step=10", "step=20") for _ in range(2)
    ]
