"""A small trainer with the two lines, and the calls that its agent received."""

import trainer

CODE = """
    import plumbline, torch
    run = plumbline.init(run="exp1", record="runs", every=1)
    model = torch.nn.Linear(2, 1, bias=False)
    x = torch.ones(3, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    def back(): model(x).mean().backward()
    {body}
    run.finish()
"""


def calls(tmp_path, body, *prefixes):
    body = "\n".join("    " + line for line in body.strip().splitlines()).strip()
    outcome = trainer.run(CODE.format(body=body), tmp_path, warm=True).ok()
    assert [line for line in outcome.err.splitlines() if not line.startswith("plumbline: watching")] == []
    wanted = prefixes or ("step_",)
    return [c for c in outcome.calls if c.startswith(wanted)]


def steps(*numbers):
    return [f"step_{what} {n}" for n in numbers for what in ("begin", "end")]
