"""Tensors, reductions and updates: the values that the package passes to the agent, and its messages
about mistakes. The stand-in agent keeps every second element from the step's number on."""

import trainer

OPEN = """
    import plumbline, warnings, torch, numpy
    warnings.simplefilter("always")
    run = plumbline.init(run="exp1", record="runs", every=1{})
"""


def calls(tmp_path, body, prefix, options="", step=3, **environment):
    """Returns the agent's calls of that kind that `body` (within a step) made."""
    body = "\n".join("        " + line for line in body.strip().splitlines())
    code = f"{OPEN.format(options)}    with run.step({step}):\n{body}\n    run.finish()\n"
    outcome = trainer.run_warm(code, tmp_path, **environment).ok()
    return outcome.only(prefix), outcome


def test_tensor(tmp_path):
    lines, outcome = calls(
        tmp_path,
        """
x = torch.arange(6.).reshape(2, 3).to(torch.bfloat16).requires_grad_()
run.observe_tensor("layers.3.mlp", x, role="activation", target_format="e4m3", replicas="dp")
run.observe_tensor("layers.3.mlp", x.t(), role="activation", target_format=torch.float16)
run.observe_tensor("layers.3.mlp", numpy.arange(4), role="positions")
run.observe_tensor("plain", torch.zeros([1] * 7 + [2, 3]))
run.observe_tensor("scalar", torch.tensor(2.5))""",
        "tensor ",
    )
    assert lines == [
        "tensor layers.3.mlp/activation step=3 target=5 role=activation replicas=dp values=4:16[2,3]70",
        "tensor layers.3.mlp/activation step=3 target=3 role=activation values=4:16[3,2]65",
        "tensor layers.3.mlp/positions step=3 target=0 role=positions values=0:64[4]20",
        "tensor plain/tensor step=3 target=0 values=2:32[1,1,1,1,1,1,2,3]0",
        "tensor scalar/tensor step=3 target=0 values=2:32[]2.5",
    ]
    assert outcome.err == ""


def test_parameters(tmp_path):
    lines, outcome = calls(
        tmp_path,
        """
model = torch.nn.Linear(2, 1)
torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)
run.observe_parameters(model, replicas="world")
run.observe_parameters(model, role="gradient")
run.observe_parameters(3)""",
        "tensor ",
    )
    assert lines == [
        "tensor weight/weight step=3 target=0 role=weight replicas=world values=2:32[1,2]3",
        "tensor bias/weight step=3 target=0 role=weight replicas=world values=2:32[1]0",
        "tensor weight/gradient step=3 target=0 role=gradient values=2:32[1,2]3",
        "tensor bias/gradient step=3 target=0 role=gradient values=2:32[1]0",
    ]
    assert "expected a model with named_parameters()" in outcome.err


def test_parameters_that_are_not_due_are_not_walked(tmp_path):
    code = OPEN.format("").replace("every=1", "every=4") + """
    class Model:
        walked = 0
        def named_parameters(self):
            Model.walked += 1
            return [("w", torch.ones(2))]
    model = Model()
    for step in range(8):
        with run.step(step):
            run.observe_parameters(model)
            due = run.due("w", "weight")
            if not due:
                before = Model.walked
                run.observe_parameters(model)
                assert Model.walked == before
    run.finish()
    print("walked", Model.walked)
"""
    outcome = trainer.run_warm(code, tmp_path).ok()
    assert outcome.out == "walked 2\n"  # steps 0 and 4


def test_update(tmp_path):
    lines, _ = calls(
        tmp_path,
        """
w, d = torch.ones(4, dtype=torch.bfloat16), torch.full((4,), 0.5)
run.observe_update("w", w, w + 1, d, gradient=d, moment_before=d, moment_after=w, optimizer="adam",
                   lr=0.1, beta2=0.999, eps=1e-8, decay=0.5, eps_dtype="f16")
run.observe_update("w", w[:2], w[:2].clone(), d[:2], offsets=torch.tensor([3, 1]), count=4)
run.observe_accumulation("w", w, w.clone(), d)""",
        "update ",
    )
    assert lines == [
        "update w/update step=3 optimizer=adam lr=0.1 beta2=0.999 eps=1e-08 decay=0.5 eps_dtype=3 "
        "count=0 before=4:16[4]10 after=4:16[4]20 intended=2:32[4]5 gradient=2:32[4]5 "
        "moment_before=2:32[4]5 moment_after=4:16[4]10",
        "update w/update step=3 lr=nan beta2=nan eps=nan decay=nan eps_dtype=0 count=4 "
        "before=4:16[2]3 after=4:16[2]3 intended=2:32[2]1.5 offsets=0:64[2]5",
        "update w/accumulation step=3 optimizer=accumulation lr=nan beta2=nan eps=nan decay=nan "
        "eps_dtype=0 count=0 before=4:16[4]10 after=4:16[4]10 intended=2:32[4]5",
    ]


def test_reduction(tmp_path):
    lines, _ = calls(
        tmp_path,
        """
x = torch.ones(4)
run.observe_reduction("g", x, 2 * x)
run.observe_reduction("g", x, 2 * x, op="avg", group="tp", sequence=2**40, wire_dtype=torch.float16,
    count=4, offsets=[3, 0, 1, 2], group_size=8, group_rank=7, prescale=0.125, postscale=2,
    ring_order=[1, 0], algorithm="ring", channels=2, chunk=2**33, transport="nccl",
    variable_count=True)
run.observe_reduction("g", count=7)""",
        "reduction ",
    )
    assert lines == [
        "reduction g/sum step=3 op=1 wire=0 count=0 rank=0/0 sequence=0:0 prescale=0 postscale=0 "
        "channels=0 chunk=0 variable=0 ring= input=2:32[4]10 output=2:32[4]20",
        f"reduction g/avg step=3 op=2 wire=3 count=4 rank=7/8 sequence={2**40}:1 prescale=0.125 "
        f"postscale=2 channels=2 chunk={2**33} variable=1 ring=10 group=tp algorithm=ring "
        "transport=nccl input=2:32[4]10 output=2:32[4]20 offsets=0:64[4]14",
        "reduction g/sum step=3 op=1 wire=0 count=7 rank=0/0 sequence=0:0 prescale=0 postscale=0 "
        "channels=0 chunk=0 variable=0 ring=",
    ]


def test_matmul(tmp_path):
    lines, _ = calls(
        tmp_path,
        """
x, w = torch.ones(2, 3, 4, dtype=torch.bfloat16), torch.ones(5, 4, dtype=torch.bfloat16)
run.observe_matmul("up", x, w.t(), x @ w.t())
run.observe_matmul("up", x, w.t(), x @ w.t(), c=w[:, 0], accumulator=torch.float32,
                   input_format="tf32", library="oneDNN 2")
run.observe_matmul("up", x, w.t(), x @ w.t(), scale=0.25, a_scale=torch.ones(3, 2),
                   b_scale=torch.full((2, 5), 127, dtype=torch.uint8), block=2, a_tile=2,
                   scale_format="e8m0", output_rounding="stochastic")""",
        "matmul ",
    )
    assert lines == [
        "matmul up/matmul step=3 declared=0 a=4:16[2,3,4]300 b=4:16[4,5]210 d=4:16[2,3,5]1860",
        "matmul up/matmul step=3 declared=2 input_format=tf32 library=oneDNN 2 a=4:16[2,3,4]300 "
        "b=4:16[4,5]210 d=4:16[2,3,5]1860 c=4:16[5]15",
        "matmul up/matmul step=3 declared=0 a=4:16[2,3,4]300 b=4:16[4,5]210 d=4:16[2,3,5]1860 "
        "scale=0.25 a_scale=2:32[3,2]21 b_scale=1:8[2,5]6985 block=2 tiles=2,0 scale_format=e8m0 "
        "output_rounding=stochastic",
    ]


def test_logits(tmp_path):
    lines, _ = calls(
        tmp_path,
        """
train, rollout = torch.ones(2, 3, 5, dtype=torch.bfloat16), torch.ones(2, 3, 5)
run.observe_logits("policy", train, rollout)
run.observe_logits("policy", train, rollout, tokens=torch.arange(6).reshape(2, 3),
                   allowed=rollout > 0, mode="processed_logits", temperature=0.7)
run.observe_logits("policy", train, rollout, mode="raw")""",
        "logits ",
    )
    assert lines == [
        "logits policy/logits step=3 mode=0 temperature=nan train=4:16[2,3,5]465 "
        "rollout=2:32[2,3,5]465",
        "logits policy/logits step=3 mode=2 temperature=0.7 train=4:16[2,3,5]465 "
        "rollout=2:32[2,3,5]465 tokens=0:64[2,3]70 allowed=6:8[2,3,5]465",
    ]


def test_logprobs(tmp_path):
    lines, outcome = calls(
        tmp_path,
        """
t = torch.arange(6).reshape(2, 3)
mu = torch.full((2, 3), -0.5)
run.observe_logprobs("policy", t, rollout=mu, sequence_id=[7, 8])
run.observe_logprobs("policy", t, rollout=mu, train=2 * mu, sequence_id=t // 3, position=t % 3,
    versions=t * 0 + 4, mask=t > 1, advantages=[1.0, -2.0], rollout_entropy=-mu,
    rollout_varentropy=-mu, train_entropy=-2 * mu, train_varentropy=-2 * mu, train_version=5,
    mode="processed_logprobs", temperature=0.7, top_p=0.9, top_k=50, selection="filtered",
    kept_share=0.25, source="rescored", rescore_k2=1e-4, worker="w3", turns=t * 0 + 1,
    cached_tokens=[3, 4], t_start=[0.5, 1.0], t_end=[2.0, 3.0],
    behaviour=3 * mu)
run.observe_logprobs("policy", t, train=mu, sequence_id=[7, 8], mode="raw")""",
        "logprobs ",
    )
    assert lines == [
        "logprobs policy/logprobs step=3 mode=0 selection=0 source=0 train_version=-1 top_k=-1 "
        "temperature=nan top_p=nan kept_share=nan rescore_k2=nan tokens=0:64[2,3]70 "
        "sequence_id=0:64[2]23 rollout=2:32[2,3]-10.5",
        "logprobs policy/logprobs step=3 mode=2 selection=2 source=2 train_version=5 top_k=50 "
        "temperature=0.7 top_p=0.9 kept_share=0.25 rescore_k2=0.0001 worker=w3 "
        "tokens=0:64[2,3]70 sequence_id=0:64[2,3]15 position=0:64[2,3]25 mask=6:8[2,3]18 "
        "rollout=2:32[2,3]-10.5 train=2:32[2,3]-21 rollout_entropy=2:32[2,3]10.5 "
        "rollout_varentropy=2:32[2,3]10.5 train_entropy=2:32[2,3]21 train_varentropy=2:32[2,3]21 "
        "versions=0:64[2,3]84 advantages=2:64[2]-3 turns=0:64[2,3]21 "
        "cached_tokens=0:64[2]11 t_start=2:64[2]2.5 t_end=2:64[2]8 "
        "behaviour=2:32[2,3]-31.5",
    ]
    assert "mode is 'raw'; expected" in outcome.err


IN_PLACE = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://{}/meeting", rank=0, world_size=1)
x = torch.arange(8.)
with run.reducing("g", x, prescale=0.5):
    dist.all_reduce(x)
    x.mul_(2)
dist.destroy_process_group()"""


def test_in_place_collective_is_taken_before_and_after(tmp_path):
    lines, _ = calls(tmp_path, IN_PLACE.format(tmp_path), "reduction ")
    assert lines == [  # elements 3, 5 and 7
        "reduction g/sum step=3 op=1 wire=2 count=8 rank=0/1 sequence=0:0 prescale=0.5 postscale=0 "
        "channels=0 chunk=0 variable=0 ring= group= transport=gloo input=2:32[3]34 "
        "output=2:32[3]68 offsets=0:64[3]34"
    ]


def test_in_place_collective_at_a_step_without_samples(tmp_path):
    lines, _ = calls(tmp_path, IN_PLACE.format(tmp_path), "reduction ", step=5)
    assert len(lines) == 1 and "count=8" in lines[0] and "input" not in lines[0]


def test_sampled_indices(tmp_path):
    _, outcome = calls(
        tmp_path,
        """
print(list(run.sample_indices("g", 10)), list(run.sample_indices("g", 10**12, most=2)))
print(run.sample_indices("g", 2))""",
        "reduction",
    )
    assert outcome.out.splitlines() == ["[3, 5, 7, 9] [3, 5]", "None"]


def test_not_due_costs_nothing(tmp_path):
    code = (
        OPEN.format("").replace("every=1", "every=4")
        + """
    x = torch.ones(4)
    for i in range(6):
        with run.step(i):
            run.observe_tensor("w", x, role="weight")
            run.observe_update("w", x, x.clone(), x)
            run.observe_reduction("g", x, x)
            run.observe_matmul("m", x, x, x)
            run.observe_logits("p", x, x)
            with run.reducing("h", x):
                pass
            print(i, run.sample_indices("g", 4) is None)
    run.finish()
    """
    )
    outcome = trainer.run_warm(code, tmp_path).ok()
    for kind in ("tensor w", "update w", "reduction g", "matmul m", "logits p"):
        assert [c.split()[2] for c in outcome.only(kind)] == ["step=0", "step=4"], kind
    assert outcome.out.splitlines()[1:4] == [f"{i} True" for i in (1, 2, 3)]


MISTAKES = [
    ("run.observe_tensor('w', 'x')", "observe_tensor('w'): x: expected a torch tensor"),
    ("run.observe_tensor('x', None)", "a tensor is needed"),
    ("run.observe_tensor(3, torch.ones(2))", "names are strings"),
    ("run.observe_tensor('v', torch.ones(2), target_format='int4')", "target_format is 'int4'"),
    ("run.observe_tensor('u', torch.ones(2).to_sparse())", "a dense tensor"),
    ("run.observe_update('w', torch.ones(2), torch.ones(2), torch.ones(2), lr='x')", "lr is 'x'"),
    ("run.observe_reduction('g', op='mean')", "op is 'mean'"),
    ("run.observe_reduction('h', group_size=-1)", "group_size is -1"),
    ("run.observe_reduction('i', group=7)", "group is 7; expected a process group"),
    ("run.observe_tensor('a', torch.ones(2), role='weights')", "role is 'weights'; expected one of"),
    ("run.observe_tensor('b', [torch.ones(2), torch.ones(2)])", "not a list of Tensor"),
    ("run.observe_tensor('c', numpy.array([None]))", "not '|O'"),
    ("run.observe_tensor('d', numpy.zeros(2, 'M8[s]'))", "not '<M8[s]'"),
    ("w = torch.ones(2); run.observe_update('e', w, w, w + 1)", "the same memory"),
    ("run.due('f', 'nonsense')", "the role of a tensor"),
    ("run.sample_indices('j', 'x')", "count is 'x'"),
    ("run.sample_indices('k', -3)", "count is -3"),
    ("run.reducing('l', [1.0]).__enter__()", "expected a torch tensor, not list"),
    ("run.observed('fp16')", "hook is 'fp16'"),
    ("run.watch_accumulation(torch.nn.Linear(2, 2).parameters())", "(name, parameter) pairs"),
]


def test_lists_of_numbers_of_any_make(tmp_path):
    lines, outcome = calls(
        tmp_path,
        """
run.observe_tensor("w", [torch.tensor(1.0), numpy.float32(2), 3])
with torch.no_grad():
    run.watch_accumulation(torch.nn.Linear(2, 2)).remove()
    run.watch_accumulation(dict(torch.nn.Linear(2, 2).named_parameters())).remove()""",
        "tensor ",
    )
    assert lines == ["tensor w/tensor step=3 target=0 values=2:64[3]14"]
    assert outcome.err == ""



def test_mistakes_are_stated_once(tmp_path):
    body = "\n".join(f"{call}\n{call}" for call, _ in MISTAKES)
    _, outcome = calls(tmp_path, body, "tensor")
    stated = [line for line in outcome.err.splitlines() if "printed once" in line]
    assert len(stated) == len(MISTAKES), outcome.err
    for (call, text), line in zip(MISTAKES, stated):
        assert text in line, (call, line)


def test_strict_runs_raise(tmp_path):
    _, outcome = calls(
        tmp_path,
        """
for call in (lambda: run.observe_tensor("w", "x"), lambda: run.observe_reduction("g", op="mean")):
    try:
        call()
    except plumbline.PlumblineError as error:
        print("raised", error)""",
        "tensor",
        options=", strict=True",
    )
    assert outcome.out.count("raised") == 2


def test_a_run_that_does_nothing(tmp_path):
    code = (
        OPEN.format("")
        + """
    x = torch.ones(4)
    with run.step(0):
        run.observe_tensor("w", x, role="weight")
        run.observe_update("w", x, x, x, lr=0.1)
        run.observe_accumulation("w", x, x, x)
        run.observe_reduction("g", x, x, op="sum")
        run.observe_matmul("up", x, x, x)
        run.observe_logits("policy", x, x, tokens=x)
        run.observe_logprobs("policy", x, rollout=x, sequence_id=x)
        with run.reducing("g", x, op="avg"):
            pass
        assert run.sample_indices("g", 4) is None
        run.watch_accumulation(torch.nn.Linear(2, 2)).remove()
        hook = lambda state, bucket: None
        assert run.observed(hook) is hook
    run.finish()
    """
    )
    assert trainer.run_warm(code, tmp_path, PLUMBLINE_DISABLE="1").ok().err == ""


BETWEEN = """
import warnings, torch, plumbline
warnings.simplefilter("always")
run = plumbline.init(run="exp1", record="runs", every=1)
logps = torch.tensor([[-0.5, -1.5]])
for i in range(3):
    run.observe_logprobs("policy", torch.tensor([[7, 8]]), rollout=logps, train=logps, sequence_id=[i], train_version=i)
    logps.fill_(9.)  # the trainer's own memory
    if i == 2:
        break
    with run.step(i):
        logps.copy_(torch.tensor([[-0.5, -1.5]]))
run.finish()
"""


def test_log_probabilities_between_steps_belong_to_the_step_that_opens_next(tmp_path):
    outcome = trainer.run_warm(BETWEEN, tmp_path).ok()
    lines = outcome.only("logprobs ")
    assert [line.split()[1:3] for line in lines] == [["policy/logprobs", "step=0"], ["policy/logprobs", "step=1"]], lines
    assert all(line.endswith("rollout=2:32[1,2]-3.5 train=2:32[1,2]-3.5") for line in lines), lines
    assert "1 calls came after the last step" in outcome.err, outcome.err
