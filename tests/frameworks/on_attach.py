"""Frameworks without a line of Plumbline, as under `plumb run`."""

import on_accelerate
import on_lightning
import on_transformers
from harness import case, expect
from untouched import attach, finish, untouched

STEPS = on_transformers.STEPS

untouched("accelerate", "prepared")
untouched("lightning", "of_fabric", "two_optimizers")
assert on_accelerate and on_lightning


@case(steps=STEPS - 1, level="warning", opens=False)
def transformers_trainer(_):
    attach()
    trainer = on_transformers.fit(on_transformers.llama(), [], max_grad_norm=0.1, evaluate=True, eval_strategy="steps", eval_steps=5)
    finish()
    later = {name: {k: v for k, v in on_transformers.logged(trainer, name).items() if k > 1} for name in ("loss", "grad_norm")}
    expect(**later, **{"eval/loss": on_transformers.logged(trainer, "eval_loss")})
    return trainer.state.log_history[-1].get("train_loss"), trainer.model.state_dict()


@case(steps=STEPS - 1, level="warning", opens=False)
def lightning_trainer(_):
    attach()
    module = on_lightning.fit()
    finish()
    expect(loss=dict(list(enumerate(module.losses))[1:]))
    return on_lightning.results(module)


@case(level="warning", finds={"health/no-gradient": 1}, opens=False)
def lightning_whose_loss_is_detached(_):
    attach()
    module = on_lightning.fit(module=on_lightning.Module(detached=True))
    finish()
    return on_lightning.results(module)
