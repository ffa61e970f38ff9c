"""watch_accumulation: the gradients that micro-batches add to .grad, and whether they were cleared."""

import trainer

CODE = """
    import plumbline, torch, sys
    run = plumbline.init(run="exp1", record="runs", every=1)
    torch.manual_seed(1)
    w = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
    small = torch.nn.Parameter(torch.zeros(2))
    x = [torch.full((8,), 2.0 ** -k, dtype=torch.bfloat16) for k in range(4)]
    watched = run.watch_accumulation([("w", w), ("small", small)], limit={limit})
    def batch(k):
        ((w * x[k]).sum() + small.sum()).backward()
    def clear():
        w.grad = small.grad = None
    {body}
    run.finish()
"""


def reductions(tmp_path, body, limit=1):
    body = "\n".join("    " + line for line in body.strip().splitlines()).strip()
    outcome = trainer.run(CODE.format(body=body, limit=limit), tmp_path, warm=True).ok()
    assert outcome.err == ""
    return [
        " ".join(part for part in c.split() if part[:5] in ("w/acc", "small", "step=", "input", "outpu"))
        for c in outcome.only("reduction ")
    ]


# Of 8 elements at step 3 the stand-in keeps 3, 5 and 7. Shown are sums weighted by position.
def test_one_sum_a_step(tmp_path):
    assert reductions(
        tmp_path,
        """
for step in (3, 4):
    with run.step(step):
        for k in range(3): batch(k)
        clear()
with run.step(6):
    batch(0)  # one addend is no sum
    clear()
with run.step(8): pass
""",
    ) == [
        # 1, 1/2, 1/4, each at three elements: 1*6 + .5*15 + .25*24; the sum 1.75 at each.
        "w/accumulation step=3 input=4:16[3,3]19.5 output=4:16[3]10.5",
        "w/accumulation step=4 input=4:16[3,2]9.25 output=4:16[2]5.25",
    ]


def test_lost_addends_are_there_to_see(tmp_path):
    assert reductions(
        tmp_path,
        """
x[1] = torch.full((8,), 2.0 ** -9, dtype=torch.bfloat16)  # below half an ulp of 1
with run.step(3):
    batch(0)
    for _ in range(4): batch(1)
""",
    ) == ["w/accumulation step=3 input=4:16[5,3]6.22266 output=4:16[3]6"]


def test_what_earlier_steps_left_is_the_first_addend(tmp_path):
    assert reductions(
        tmp_path,
        """
with run.step(1): batch(0); batch(0)
with run.step(3): batch(1)
""",
    ) == [
        "w/accumulation step=1 input=4:16[2,4]36 output=4:16[4]20",
        "w/accumulation step=3 input=4:16[2,3]19.5 output=4:16[3]15",
    ]


def test_cleared_or_scaled_between_micro_batches(tmp_path):
    assert reductions(
        tmp_path,
        """
with run.step(3):
    batch(0); batch(0); clear()
    batch(1); batch(1)
    w.grad.mul_(2)
    batch(1)
""",
    ) == [
        "w/accumulation step=3 input=4:16[2,3]21 output=4:16[3]12",
        "w/accumulation step=3 input=4:16[2,3]10.5 output=4:16[3]6",
        "w/accumulation step=3 input=4:16[2,3]19.5 output=4:16[3]15",
    ]


def test_the_largest_are_watched_and_removed(tmp_path):
    lines = reductions(
        tmp_path,
        """
with run.step(1): batch(0); batch(0)
watched.remove()
with run.step(2): batch(0); batch(0)
""",
        limit=2,
    )
    assert [line.split()[0] for line in lines] == ["w/accumulation", "small/accumulation"]


def test_steps_without_samples_and_no_step_at_all(tmp_path):
    assert reductions(tmp_path, "batch(0); batch(0)\nwith run.step(5): batch(0); batch(0)") == []


LEFT = """
    import plumbline, torch
    run = plumbline.init(run="exp1", record="runs", every=1)
    torch.manual_seed({seed})
    w = torch.nn.Parameter(torch.randn({size}))
    optimizer = torch.optim.{optimizer}
    run.watch_accumulation([("w", w)])
    def batch():
        (w * torch.randn({size})).sum().backward()
    for step in range(1, 5):
        {step}
    run.finish()
"""


def left(tmp_path, step, seed=0, size=256, optimizer="SGD([w], lr=0.1)"):
    """Returns (step, gradient left, gradient found) of each look, as sums weighted by position."""
    code = LEFT.format(seed=seed, size=size, optimizer=optimizer, step=step.replace("\n", "\n        "))
    outcome = trainer.run(code, tmp_path).ok()
    assert outcome.err == ""
    looks = [dict(part.split("=", 1) for part in c.split() if "=" in part)
             for c in outcome.only("reduction ") if "algorithm=left-gradient" in c]  # fmt: skip
    (tmp_path / "calls.log").unlink()  # of this trainer alone
    return [(int(k["step"]), k["input"], k["output"]) for k in looks]


def test_a_gradient_that_none_clears_is_found_again(tmp_path):
    optimizers = ("SGD([w], lr=0.1)", "Adam([w])", "AdamW([w], foreach=True)")
    for seed, optimizer in enumerate(optimizers):
        for batches in (1, 3):  # also with one micro-batch per step
            looks = left(
                tmp_path, seed=seed, optimizer=optimizer,
                step=f"with run.step(step):\n    for _ in range({batches}): batch()\n    optimizer.step()",
            )  # fmt: skip
            assert [step for step, _, _ in looks] == [2, 3, 4]
            assert all(one == other for _, one, other in looks)


def test_what_is_left_is_what_the_optimizer_saw(tmp_path):
    looks = left(
        tmp_path,
        "with run.step(step):\n    batch(); batch()\n    torch.nn.utils.clip_grad_norm_([w], 0.01)\n    optimizer.step()",
    )
    assert len(looks) == 3 and all(one == other for _, one, other in looks)


def test_a_cleared_gradient_is_zero(tmp_path):
    inside = "with run.step(step):\n    batch(); batch()\n    optimizer.step(); optimizer.zero_grad({})"
    before = "with run.step(step):\n    optimizer.zero_grad({}); batch(); batch()\n    optimizer.step()"
    for loop in (inside, before):
        for how in ("set_to_none=True", "set_to_none=False"):
            looks = left(tmp_path, loop.format(how))
            assert [step for step, _, _ in looks] == [2, 3]  # reported twice
            assert all(found.endswith("]0") for _, _, found in looks)


def test_a_sum_that_goes_on_over_several_steps_is_none(tmp_path):
    assert left(
        tmp_path,
        "with run.step(step):\n    batch()\n    if step == 4: optimizer.step(); optimizer.zero_grad()",
    ) == []  # fmt: skip


def test_gradients_are_bit_identical(tmp_path):
    code = """
    import plumbline, torch, hashlib
    def train(run):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
        net.to(torch.bfloat16)
        if run: run.watch_accumulation(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(1, 5):
            with run.step(i) if run else torch.enable_grad():
                for _ in range(6):
                    net(torch.randn(16, 32).bfloat16()).float().square().mean().backward()
                optimizer.step(); optimizer.zero_grad()
        data = b"".join(p.detach().float().numpy().tobytes() for p in net.parameters())
        print(hashlib.sha256(data).hexdigest())
    train(None)
    run = plumbline.init(run="exp1", record="runs", every=1)
    train(run)
    run.finish()
    """
    outcome = trainer.run(code, tmp_path).ok()
    one, other = outcome.out.split()
    assert one == other
    sums = [c for c in outcome.only("reduction ") if "algorithm=accumulation" in c]
    assert len(sums) == 4 * 4
