"""The stages of the loop that run.watch times by itself, by what the agent is told."""

import re

import trainer

CODE = """
    import gc
    import plumbline, torch
    run = plumbline.init(run="exp1", record="runs", every=1)
    model = torch.nn.Linear(2, 1, bias=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
    gc.disable()
    watch = run.watch(model, opt)
    {body}
    run.finish()
"""


def spans(tmp_path, body):
    """Kinds in the order in which they begin; each must end before the end of the trainer."""
    body = "\n".join("    " + line for line in body.strip().splitlines()).strip()
    outcome = trainer.run(CODE.format(body=body), tmp_path).ok()
    assert [line for line in outcome.err.splitlines() if not line.startswith("plumbline: watching")] == []
    begun = [re.match(r"span_begin step=\S+ (\S+) (.*) #(\d+)", c) for c in outcome.calls if c.startswith("span_begin")]
    ended = [c.split("#")[1] for c in outcome.calls if c.startswith("span_end")]
    assert sorted(b[3] for b in begun) == sorted(ended)
    return [b[2] if b[1] == "other" else b[1] for b in begun]


def test_data_forward_backward_and_the_optimizer(tmp_path):
    assert spans(tmp_path, """
for x in data:
    model(x).mean().backward()
    opt.step(); opt.zero_grad()
""") == ["data", "forward", "backward", "optimizer"] * 2 + ["data"]  # fmt: skip  # the last: there is no more


def test_full_collections_alone_are_told(tmp_path):
    assert spans(tmp_path, "gc.collect(0); gc.collect(1); gc.collect()") == ["garbage collection"]


def test_what_the_trainer_times_itself_is_the_trainers(tmp_path):
    assert spans(tmp_path, """
with run.span("data", "load"): pass
for x in data: model(x).mean().backward(); opt.step()
""") == ["data", "forward", "backward", "optimizer", "forward", "backward", "optimizer"]  # fmt: skip


def test_evaluation_and_an_exception_leave_nothing_open(tmp_path):
    assert spans(tmp_path, """
model.eval()
with torch.no_grad(): model(torch.ones(1, 2))
model.train()
model(torch.ones(1, 2))  # nobody goes on with it
model(torch.ones(1, 2)).mean().backward()
opt.step()
""") == ["evaluation", "forward", "forward", "backward", "optimizer"]  # fmt: skip


def test_after_remove_nothing_is_timed(tmp_path):
    assert spans(tmp_path, """
watch.remove()
for x in data: model(x).mean().backward(); opt.step()
gc.collect()
""") == []  # fmt: skip
