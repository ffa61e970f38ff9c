"""What the watch costs in each framework: CPU time of all threads, of pairs of processes in random order; one figure a framework.

  cost.py [--pairs 5] [--steps 100] [--width 192] [FRAMEWORK ...]    prints a line each, and JSON at the end (table.py --cost FILE takes it)

Each process trains a transformer of its own through the framework's loop and is measured from its first step on, with the run's finish.
Wall times mean nothing on a shared machine; the load is printed beside the figures.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from run import ENVIRONMENT, enter_environment

FRAMEWORKS = ("plain", "accelerate", "transformers", "trl", "lightning", "fabric", "deepspeed", "megatron", "torchtitan")
ALL = ("deepspeed", "megatron", "torchtitan")  # of the large environment


# ---- one training; returns what must be finished -------------------------------------------------


def language(width):
    from small import Language

    return Language(width)


def loop(model, optimizer, steps, backward=None):
    from small import batches

    for batch in batches(steps, rows=32):
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

    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=2,
                                        max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2))  # fmt: skip


def transformers(steps, width):
    from plumbline.transformers import PlumblineCallback
    from transformers import Trainer

    from on_transformers import arguments, rows

    callback = PlumblineCallback(record="record", run="cost")
    settings = arguments(max_steps=steps, logging_steps=10, per_device_train_batch_size=32)
    Trainer(model=wide_llama(width), args=settings, train_dataset=rows(steps * 32), callbacks=[callback]).train()
    return callback.run


def trl(steps, width):
    from datasets import Dataset
    from plumbline.transformers import PlumblineCallback
    from trl import SFTConfig, SFTTrainer

    from on_transformers import arguments
    from on_trl import tokenizer
    from small import words

    callback = PlumblineCallback(record="record", run="cost")
    texts = [" ".join(f"w{max(3, int(n))}" for n in row) for row in words(steps * 32)]
    settings = arguments(SFTConfig, max_steps=steps, logging_steps=10, per_device_train_batch_size=32, max_length=32, bf16=False)
    data = Dataset.from_dict({"text": texts})
    SFTTrainer(model=wide_llama(width), args=settings, train_dataset=data, processing_class=tokenizer(), callbacks=[callback]).train()
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
    trainer = Trainer(max_steps=steps, accelerator="cpu", devices=1, callbacks=[callback], enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, logger=False)  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(words(steps * 32), batch_size=32))
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
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=0, world_size=1)
    model = language(width)
    config = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 32, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine, _, _, _ = library.initialize(model=model, optimizer=adamw(model), config=config, dist_init_required=False)
    run = opened(engine)
    for batch in batches(steps, rows=32):
        engine.backward(engine(batch))
        engine.step()
    return run


def megatron(steps, width):
    import on_megatron

    on_megatron.begin()
    model = on_megatron.gpt_model(width=width)
    optimizer = adamw(model)
    run = opened(model, optimizer)
    for batch in on_megatron.batches(steps, rows=32):
        model(batch, on_megatron.POSITION.expand_as(batch), on_megatron.MASK, labels=batch.roll(-1, 1)).mean().backward()
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


# ---- pairs --------------------------------------------------------------------------------------


def child(name, steps, width):
    """CPU seconds of one training with its imports."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    began = time.process_time()
    run = globals()[name](steps, width)
    run.finish()
    print(json.dumps(time.process_time() - began), file=sys.__stdout__)


def measured(name, options, watched, steps):
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], os.path.dirname(os.path.abspath(__file__))])
        env = {**os.environ, **ENVIRONMENT, "PLUMBLINE_DISABLE": "" if watched else "1", "PYTHONPATH": path}
        command = [sys.executable, os.path.abspath(__file__), "--one", name, "--steps", str(steps), "--width", str(options.width)]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-1500:])
        return json.loads(done.stdout.splitlines()[-1])


def paired(name, options):
    """The median of (watched - plain) / plain CPU time, its quartiles, and the CPU time of a plain step in ms.

    What does not grow with the steps (imports, the framework's start) is the time of a plain training of two steps, taken from both."""
    start = statistics.median(measured(name, options, False, 2) for _ in range(3))
    order, ratios, plain_ms = random.Random(1), [], []
    for _ in range(options.pairs):
        both = {watched: measured(name, options, watched, options.steps) - start for watched in order.sample([False, True], 2)}
        ratios.append(both[True] / both[False] - 1)
        plain_ms.append(1e3 * both[False] / (options.steps - 2))
    quartiles = statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else ratios * 2
    return {"cost": statistics.median(ratios), "quartiles": quartiles, "step_ms": statistics.median(plain_ms), "pairs": options.pairs, "steps": options.steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("frameworks", nargs="*", choices=[*FRAMEWORKS, []])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return child(options.one, options.steps, options.width)
    names = options.frameworks or FRAMEWORKS
    enter_environment(bool(set(names) & set(ALL)))
    found = {}
    for name in names:
        one = found[name] = paired(name, options)
        low, high = one["quartiles"]
        print(f"{name}: {100 * one['cost']:+.1f} % CPU (quartiles {100 * low:+.1f}, {100 * high:+.1f}), {one['pairs']} pairs of {one['steps']} steps of "
              f"{one['step_ms']:.1f} CPU ms, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    print(json.dumps(found))
    return None


if __name__ == "__main__":
    main()
