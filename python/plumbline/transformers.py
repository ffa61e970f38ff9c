"""Hugging Face's Trainer and TRL:

    from plumbline.transformers import PlumblineCallback
    Trainer(..., callbacks=[PlumblineCallback()])

or, after `import plumbline.transformers`, TrainingArguments(report_to="plumbline").
"""

from transformers import TrainerCallback
from transformers.integrations import integration_utils

from ._callbacks import Session, guarded
from ._watching import trl

_COMMON_METRICS = ("epoch", "runtime", "samples_per_second", "steps_per_second")  # these are not metrics of the model

_SETTINGS = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2",
             "adam_epsilon", "max_grad_norm", "num_train_epochs", "warmup_steps", "logging_steps", "logging_nan_inf_filter", "seed", "bf16", "fp16",
             "gradient_checkpointing", "ignore_data_skip")  # fmt: skip


class PlumblineCallback(TrainerCallback):
    """Watches the Trainer's model and optimizer; a step has the number that the Trainer logs.

    Keyword arguments are those of plumbline.init: stop_on="error" ends the training at the first error that is found during it.
    Without a server and a record, and without PLUMBLINE_SERVER and PLUMBLINE_RECORD, the record is
    <output_dir>/plumbline. The name of the run is args.run_name, else that of the folder. Of TRL's GRPOTrainer and
    RLOOTrainer the rollouts are recorded too.
    """

    def __init__(self, **options):
        self._session, self._failed = Session(options), set()
        self._evaluates = False  # the step stays open for the results of the evaluation
        self._hooked = False

    @property
    def run(self):
        """The run of plumbline.init, from the beginning of the training on."""
        return self._session.run

    @guarded
    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        self._session.begin(args.output_dir, args.run_name, model, [optimizer], step=state.global_step + 1, made=state.global_step)
        if not self._hooked:
            self._hooked = True
            trl.hook()
        self._session.settings({"max_steps": state.max_steps, **{name: getattr(args, name, None) for name in _SETTINGS}})

    @guarded
    def on_step_begin(self, args, state, control, **_):
        self._end_step()
        self.run.begin_step(state.global_step + 1)
        self._session.record_settings()

    @guarded
    def on_step_end(self, args, state, control, **_):
        if self._session.stops(state.global_step):
            control.should_training_stop = True
        self._evaluates = control.should_evaluate
        if not self._evaluates:
            self._end_step()

    def _end_step(self):
        self._evaluates = False
        self.run.end_step()

    @guarded
    def on_evaluate(self, args, state, control, metrics=None, **_):
        if not self._evaluates:
            return
        names = {n: n.removeprefix("eval_") for n in metrics or {}}
        self._session.scalars({n: metrics[m] for m, n in names.items() if n not in _COMMON_METRICS}, "eval/")
        if not control.should_evaluate:
            self._end_step()

    @guarded
    def on_log(self, args, state, control, logs=None, **_):
        logged = getattr(self.run, "_logged", None)
        if logged is not None and "loss" in (logs or {}):  # the log of an evaluation has no such name
            logged.take(logs)

    @guarded
    def on_train_end(self, args, state, control, **_):
        self._end_step()
        self._session.end()
        if self._hooked:
            self._hooked = False
            trl.unhook()
        self.run.flush()


integration_utils.INTEGRATION_TO_CALLBACK["plumbline"] = PlumblineCallback
