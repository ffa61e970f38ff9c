"""What the watch costs in each framework: CPU time of all threads of two processes that train in turn.

  cost.py [--blocks 12] [--steps N] [--width 192] [FRAMEWORK ...]

Prints a line for each framework, the table of docs/frameworks.md with these costs, ready to paste, and JSON
at the end (table.py --cost FILE takes it).

For each framework two processes are forked after its import, one without the watch and one with it, at the
default budget. Each trains the same transformer through the framework's loop. At each block's end a process
waits for its turn, so both meet the same neighbours on a shared machine. A block's cost is
(watched - plain) / plain. The first block has the first steps with their looks; it is stated apart. The
figure is the median of the others with a 95 % interval (order statistics), so a reader sees how much noise
the machine leaves. Wall times mean nothing here. glibc keeps freed memory, because two equal processes may
differ by more page faults than the watch costs (docs/measurements/watch.md).

All frameworks take 125 s of CPU time, one process at a time.
"""

import argparse
import functools
import importlib
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import traceback

import table
from run import ENVIRONMENT, enter_environment

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/frameworks.md"

# Name: the file whose imports are made before the fork; None: the framework is imported in each process.
FRAMEWORKS = {
    "plain": "small", "accelerate": "on_accelerate", "transformers": "on_transformers", "trl": "on_trl",
    "lightning": "on_lightning", "fabric": "on_lightning", "deepspeed": None, "megatron": None,
    "torchtitan": "on_torchtitan",
}  # fmt: skip
ALL = ("deepspeed", "megatron", "torchtitan")  # of the large environment
ROWS = 32
STEPS = {"transformers": 10, "trl": 8, "megatron": 6}  # of a block, if a step takes longer than in the others
_KEPT = {"TRIM_THRESHOLD": 1 << 30, "MMAP_THRESHOLD": 1 << 30, "TOP_PAD": 1 << 26}
KEPT = {f"MALLOC_{name}_": str(value) for name, value in _KEPT.items()}  # of glibc


# ---- one training; returns what must be finished -------------------------------------------------


def language(width):
    from small import Language

    return Language(width)


def loop(model, optimizer, steps, backward=None):
    from small import batches

    for batch in batches(steps, rows=ROWS):
        loss = model(batch)
        loss.backward() if backward is None else backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def adamw(model):
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def opened(model, optimizer=None):
    import plumbline

    run = plumbline.init(run="cost", record="record")
    run.watch(model, optimizer)
    return run


def plain(steps, width):
    model = language(width)
    optimizer = adamw(model)
    run = opened(model, optimizer)
    loop(model, optimizer, steps)
    return run


def accelerate(steps, width):
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), language(width)
    model, optimizer = accelerator.prepare(model, adamw(model))
    run = opened(model, optimizer)
    loop(model, optimizer, steps, accelerator.backward)
    return run


def wide_llama(width):
    from transformers import LlamaConfig, LlamaForCausalLM

    from small import VOCABULARY

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def transformers(steps, width):
    from plumbline.transformers import PlumblineCallback
    from transformers import Trainer

    from on_transformers import arguments, rows

    callback = PlumblineCallback(record="record", run="cost")
    settings = arguments(max_steps=steps, logging_steps=10, per_device_train_batch_size=ROWS)
    model, data = wide_llama(width), rows(steps * ROWS)
    Trainer(model=model, args=settings, train_dataset=data, callbacks=[callback]).train()
    return callback.run


def trl(steps, width):
    from datasets import Dataset
    from plumbline.transformers import PlumblineCallback
    from trl import SFTConfig, SFTTrainer

    from on_transformers import arguments
    from on_trl import tokenizer
    from small import words

    callback = PlumblineCallback(record="record", run="cost")
    texts = [" ".join(f"w{max(3, int(n))}" for n in row) for row in words(steps * ROWS)]
    settings = arguments(SFTConfig, max_steps=steps, logging_steps=10, per_device_train_batch_size=ROWS,
                         max_length=32, bf16=False)  # fmt: skip
    data = Dataset.from_dict({"text": texts})
    SFTTrainer(model=wide_llama(width), args=settings, train_dataset=data, processing_class=tokenizer(),
               callbacks=[callback]).train()  # fmt: skip
    return callback.run


def lightning(steps, width):
    import torch
    from lightning import LightningModule, Trainer
    from plumbline.lightning import PlumblineCallback

    from small import words

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = language(width)

        def training_step(self, batch, _):
            return self.model(batch)

        def configure_optimizers(self):
            return adamw(self)

    callback = PlumblineCallback(record="record", run="cost")
    trainer = Trainer(max_steps=steps, accelerator="cpu", devices=1, callbacks=[callback], logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False)  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(words(steps * ROWS), batch_size=ROWS))
    return callback.run


def fabric(steps, width):
    from lightning import Fabric

    one = Fabric(accelerator="cpu", devices=1)
    model = language(width)
    model, optimizer = one.setup(model, adamw(model))
    run = opened(model, optimizer)
    loop(model, optimizer, steps, one.backward)
    return run


def deepspeed(steps, width):
    import deepspeed as library
    import torch

    from small import batches

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    meeting = f"file://{os.getcwd()}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    model = language(width)
    config = {"train_batch_size": ROWS, "train_micro_batch_size_per_gpu": ROWS,
              "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}  # fmt: skip
    given = {"model": model, "optimizer": adamw(model), "config": config}
    engine, _, _, _ = library.initialize(**given, dist_init_required=False)
    run = opened(engine)
    for batch in batches(steps, rows=ROWS):
        engine.backward(engine(batch))
        engine.step()
    return run


def megatron(steps, width):
    import on_megatron

    on_megatron.begin()
    model = on_megatron.gpt_model(width=width)
    optimizer = adamw(model)
    run = opened(model, optimizer)
    for batch in on_megatron.batches(steps, rows=ROWS):
        place = on_megatron.POSITION.expand_as(batch)
        model(batch, place, on_megatron.MASK, labels=batch.roll(-1, 1)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return run


def torchtitan(steps, width):
    from torchtitan.components.optimizer import OptimizersContainer, default_adamw

    model, config = language(width), default_adamw(lr=1e-3)
    config.implementation = "foreach"
    optimizers = OptimizersContainer(config, model_parts=[model])
    run = opened(model, optimizers)
    loop(model, optimizers, steps)
    return run


# ---- two processes in turn ----------------------------------------------------------------------


def take_turns(kind, block, requests, answers):
    """Before each `block`-th forward pass of the model, states the CPU time and waits until it may go on."""
    plain, calls = kind.forward, 0

    @functools.wraps(plain)
    def forward(self, *arguments, **options):
        nonlocal calls
        if calls % block == 0:
            os.write(requests, struct.pack("d", time.process_time()))
            os.read(answers, 1)
        calls += 1
        return plain(self, *arguments, **options)

    kind.forward = forward


def model_kind(name):
    """The class whose forward is called once a step."""
    if name in ("transformers", "trl"):
        return importlib.import_module("transformers").LlamaModel  # TRL leaves the head's forward out
    if name == "megatron":
        return importlib.import_module("megatron.core.models.gpt").GPTModel
    return importlib.import_module("small").Language


class Trainer:
    """A forked process that trains, and waits at each block's end."""

    def __init__(self, name, options, watched):
        self.requested, requests = os.pipe()
        answers, self.answered = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._child(name, options, watched, requests, answers)
        os.close(requests)
        os.close(answers)

    def _child(self, name, options, watched, requests, answers):
        try:
            with tempfile.TemporaryDirectory() as folder, open(f"{folder}/output", "wb") as output:
                os.dup2(output.fileno(), 1)
                os.environ["PLUMBLINE_DISABLE"] = "" if watched else "1"
                os.chdir(folder)
                import harness

                harness.seed()
                take_turns(model_kind(name), options.steps, requests, answers)
                globals()[name](options.blocks * options.steps + 1, options.width).finish()
                os.chdir("/")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def next(self):
        """CPU seconds so far, at the end of its block."""
        stated = os.read(self.requested, 8)
        if len(stated) != 8:
            raise RuntimeError("the training ended early")
        return struct.unpack("d", stated)[0]

    def goes_on(self):
        os.write(self.answered, b"1")


def interval(values):
    """95 % of the median, by order statistics."""
    values, n = sorted(values), len(values)
    reach = int(0.98 * n**0.5) + 1
    return values[max(0, n // 2 - reach)], values[min(n - 1, (n - 1) // 2 + reach)]


def one(name, options):
    """Prints the figures of a framework as JSON."""
    importlib.import_module("torch").set_num_threads(1)
    if FRAMEWORKS[name]:
        importlib.import_module(FRAMEWORKS[name])
    order, both, last, costs, steps = random.Random(1), {}, {}, [], []
    for watched in (False, True):
        both[watched] = Trainer(name, options, watched)
        last[watched] = both[watched].next()
    for _ in range(options.blocks):
        spent = {}
        for watched in order.sample([False, True], 2):
            both[watched].goes_on()
            now = both[watched].next()
            spent[watched], last[watched] = now - last[watched], now
        costs.append(spent[True] / spent[False] - 1)
        steps.append(1e3 * spent[False] / options.steps)
    failed = 0
    for trainer in both.values():
        trainer.goes_on()
        failed += os.waitpid(trainer.pid, 0)[1] != 0
    if failed:
        raise RuntimeError("a training failed")
    low, high = interval(costs[1:])
    print(json.dumps({"cost": statistics.median(costs[1:]), "low": low, "high": high, "first": costs[0],
                      "step_ms": statistics.median(steps), "blocks": options.blocks,
                      "steps": options.steps}))  # fmt: skip


def measured(name, options):
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], os.path.dirname(os.path.abspath(__file__))])
    given = [f"--{o}={getattr(options, o)}" for o in ("blocks", "steps", "width") if getattr(options, o)]
    command = [sys.executable, os.path.abspath(__file__), "--one", name, *given]
    environment = {**os.environ, **ENVIRONMENT, **KEPT, "PYTHONPATH": path}
    del environment["PLUMBLINE_BUDGET"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("frameworks", nargs="*", choices=[*FRAMEWORKS, []])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, help="of a block; 20, or fewer where a step is longer")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        options.steps = options.steps or STEPS.get(options.one, 20)
        return one(options.one, options)
    names = options.frameworks or FRAMEWORKS
    enter_environment(bool(set(names) & set(ALL)))
    os.environ.pop("PLUMBLINE_BUDGET", None)
    found = {}
    for name in names:
        cost = found[name] = measured(name, options)
        low, most, high, first = (f"{100 * cost[part]:+.1f}" for part in ("low", "cost", "high", "first"))
        print(f"{name}: {most} % CPU (95 %: {low} to {high}), the first {cost['steps']} steps {first} %; "
              f"{cost['blocks']} blocks, a step {cost['step_ms']:.1f} CPU ms, "
              f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    print("", *table.with_costs(PAGE.read_text(), table.cost_words(found)), "", json.dumps(found), sep="\n")
    return None


if __name__ == "__main__":
    main()
