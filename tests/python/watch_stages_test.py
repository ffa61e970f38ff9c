"""The stages of the loop that run.watch times by itself, as reported to the agent."""

import re

import trainer

MARKED = (None, "forward", "backward", "optimizer", "data")
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
    outcome = trainer.run(CODE.format(body=body), tmp_path, warm=True).ok()
    assert [line for line in outcome.err.splitlines() if not line.startswith("plumbline: watching")] == []
    reported, ended, stage = [], [], None
    for call in outcome.calls:
        begun = re.match(r"span_begin step=\S+ (\S+) (.*) #(\d+)", call)
        if begun:
            reported.append((begun[2] if begun[1] == "other" else begun[1], begun[3]))
        elif call.startswith("span_end"):
            ended.append(call.split("#")[1])
        elif call.startswith("mark "):
            stage = int(call.split()[1])
            reported += [(MARKED[stage], None)] if stage else []
    assert sorted(number for _, number in reported if number) == sorted(ended)
    assert not stage
    return [name for name, _ in reported]


def test_data_forward_backward_and_the_optimizer(tmp_path):
    assert spans(tmp_path, """
for x in data:
    model(x).mean().backward()
    opt.step(); opt.zero_grad()
""") == ["data", "forward", "backward", "optimizer"] * 2 + ["data"]  # fmt: skip  # the last: the data is exhausted


def test_full_collections_alone_are_reported(tmp_path):
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
model(torch.ones(1, 2))  # no backward pass follows
model(torch.ones(1, 2)).mean().backward()
opt.step()
""") == ["evaluation", "forward", "backward", "optimizer"]  # fmt: skip


def test_after_remove_nothing_is_timed(tmp_path):
    assert spans(tmp_path, """
watch.remove()
for x in data: model(x).mean().backward(); opt.step()
gc.collect()
""") == []  # fmt: skip


def test_a_thread_that_loads_ahead_has_no_part_in_the_loops_stages(tmp_path):
    assert spans(tmp_path, """
import threading
for x in data: model(x).mean().backward(); opt.step(); break
ahead = threading.Thread(target=lambda: [None for _ in data])
held = model(x)  # the forward stage is open
ahead.start(); ahead.join()
held.mean().backward(); opt.step()
""") == ["data", "forward", "backward", "optimizer", "forward", "data", "data", "data", "backward", "optimizer"]  # fmt: skip


def test_a_loop_that_moves_to_another_thread_keeps_its_stages(tmp_path):
    assert spans(tmp_path, """
import threading
def loop(): model(torch.ones(1, 2)).mean().backward(); opt.step()
loop()
other = threading.Thread(target=loop)
other.start(); other.join()
""") == ["forward", "backward", "optimizer"] * 2  # fmt: skip


def test_two_models_of_one_loop_have_one_backward_stage(tmp_path):
    assert spans(tmp_path, """
second = torch.nn.Linear(1, 1, bias=False)
run.watch(second, torch.optim.SGD(second.parameters(), lr=0.5))
second(model(torch.ones(1, 2))).mean().backward()
opt.step()
""") == ["forward", "backward", "optimizer"]  # fmt: skip


def test_what_none_reads_is_counted_and_the_trainer_goes_on(tmp_path):
    outcome = trainer.run(CODE.format(body="""
    with run.step(0): model(torch.ones(1, 2)).mean().backward()
    for k in range(3 * 4096): watch.stages.enter(1 + k % 2)
    watch.stages.enter(0)
    print(watch.stages._words[1])
    """.strip()), tmp_path).ok()  # fmt: skip
    assert int(outcome.out) == 2 * 4096 + 1
