"""Healthy folders that look like the faults of learning_faults.py: each returns a run with its changes."""

import copy
import random

import torch

from learning_faults import Planted, a_matrix
from learning_runs import Run

FORMS = ["torch", "trainer", "ranks", "megatron", "lora", "dcp"]


def healthy(run, plant=lambda states: None, files=lambda saves: None, live=None, resets=False):
    """`resets`: the optimizer is reset, which health/optimizer-state reports."""
    planted = Planted(run, "", None, plant, files, live)
    planted.resets = resets
    return planted


def a_run(seed, forms=FORMS, **options):
    return Run(random.Random(seed).choice(forms), seed, **options)


def plain(seed):
    return healthy(a_run(seed, saves=3 + seed % 8, rate=[1e-5, 2e-4, 3e-3, 1e-2, 3e-2][seed % 5], ema=seed % 3 == 0))


def frozen(seed):
    """Layers that are frozen from the start, or from a save on, or until a save."""
    run = a_run(seed, saves=7)
    first = {n for n in run.ranks[0].named if "layers.0" in n or "embed" in n}
    begin, end = run.draw.choice([(0, 9), (3, 9), (0, 3), (2, 5)])
    run.frozen = first if begin == 0 else set()

    def live(run, save):
        run.frozen = first if begin <= save + 1 < end else set()

    return healthy(run, live=live)


def fresh_head(seed):
    """A new head and a new optimizer, in the same folder."""
    run = a_run(seed, ["torch", "trainer"])
    at = run.draw.randrange(1, run.saves)

    def live(run, save):
        if save == at:
            for rank in run.ranks:
                rank.named["lm_head.weight"].data.normal_(std=0.05)
                rank.renew()

    return healthy(run, live=live, resets=True)


def a_layer_begins_anew(seed):
    """A matrix is reset on purpose, and its moments with it."""
    run = a_run(seed, ["torch"])
    at, name = run.draw.randrange(1, run.saves), a_matrix(run)

    def live(run, save):
        if save == at:
            p = run.ranks[0].named[name]
            p.data.normal_(std=0.05)
            for part in ("exp_avg", "exp_avg_sq"):
                run.ranks[0].optimizer.state[p][part].zero_()

    return healthy(run, live=live, resets=True)


def a_layer_is_reset(seed):
    """As above, with optimizer steps after the reset, before the save."""
    run = a_run(seed, ["torch", "dcp"])
    at, name = run.draw.randrange(1, run.saves), a_matrix(run)

    def live(run, save):
        if save == at:
            p = run.ranks[0].named[name]
            p.data.normal_(std=0.05)
            run.ranks[0].optimizer.state[p]["exp_avg_sq"] *= 0.1

    return healthy(run, live=live, resets=True)


def saved_by_turns(seed):
    """One rank saves in each second step only."""
    run = a_run(seed, ["ranks", "megatron"], saves=8)
    rank = run.world - 1

    def files(saves):
        for contents in saves[1::2]:
            del contents[list(contents)[rank]]

    return healthy(run, files=files)


def adapters_not_in_use(seed):
    """All weights are trained, and adapters next to them are zero."""
    run = Run("trainer", seed)

    def plant(states):
        a = torch.randn(8, 64)
        for state in states:
            state[0]["model"]["model.norm.lora_A.weight"], state[0]["model"]["model.norm.lora_B.weight"] = a.clone(), torch.zeros(64, 8)

    run.ranks[0].named["model.norm.lora_A.weight"] = torch.nn.Parameter(torch.zeros(8, 64))
    run.ranks[0].named["model.norm.lora_B.weight"] = torch.nn.Parameter(torch.zeros(64, 8))
    run.frozen = {n for n in run.ranks[0].named if "lora" in n}
    for name in run.frozen:
        run.ranks[0].average[name] = run.ranks[0].named[name].detach().clone()
    return healthy(run, plant)


def lora_at_step_0(seed):
    """Steps from 0 on, the second factors still zero; or a warm-up at rate 0."""
    run = Run("lora", seed, saves=4)
    run.step = lambda save: save * run.every
    slow = {n for n in run.ranks[0].named if "lora_B" in n}
    run.frozen = slow

    def live(run, save):
        run.frozen = set()

    return healthy(run, live=live)


def merged_lora(seed):
    """The factors are merged into the base every third save, and begin again."""
    run = Run("lora", seed, saves=8)

    def live(run, save):
        if save % 3 == 2:
            for name, p in run.ranks[0].named.items():
                p.data.zero_() if "lora_B" in name else p.data.normal_(std=0.05)
            run.ranks[0].renew()
            run.ranks[0].advance()

    return healthy(run, live=live, resets=True)


def unused_adapters(seed):
    """Some adapted modules are never called: their second factors stay zero."""
    run = Run("lora", seed, saves=6)
    run.frozen = {n for n in run.ranks[0].named if "layers.0" in n}
    return healthy(run)


def pruned(seed):
    """Magnitude pruning in two rounds."""
    run = a_run(seed, ["torch", "trainer"], saves=6)

    def live(run, save):
        for name, p in run.ranks[0].named.items():
            if p.dim() > 1 and save >= 2:
                limit = p.detach().abs().flatten().kthvalue(int(p.numel() * (0.5 if save < 4 else 0.8)))[0]
                p.data[p.detach().abs() <= limit] = 0

    return healthy(run, live=live)


def pruned_folder(seed):
    """Old saves have no optimizer, or only the file of rank 0, or are deleted."""
    run = a_run(seed, ["trainer", "ranks", "megatron"], saves=7)
    until = run.draw.randrange(1, 5)

    def files(saves):
        for contents in saves[:until]:
            for path in list(contents):
                if path.endswith("optimizer.pt") or any(f"rank_{r}" in path or f"rank_{r:02d}" in path for r in range(1, 4)):
                    del contents[path]

    return healthy(run, files=files)


def still_written(seed):
    """The newest save lacks the files of the last ranks."""
    run = a_run(seed, ["ranks", "megatron"])

    def files(saves):
        for path in list(saves[-1])[run.draw.randrange(1, run.world):]:
            del saves[-1][path]

    return healthy(run, files=files)


def another_world(seed):
    """From a save on, the run has half of the ranks, with larger shards."""
    run = Run("ranks", seed, saves=6)
    at, back = run.draw.randrange(2, 5), run.draw.choice([9, 5])

    def plant(states):
        for save in range(at, min(back, run.saves)):
            for rank in (0, 1):
                state = states[save][rank]
                state["model"] = {n: torch.cat([v, states[save][rank + 2]["model"][n]]) for n, v in state["model"].items()}
                for i, moments in state["optimizer"]["state"].items():
                    for part in ("exp_avg", "exp_avg_sq"):
                        moments[part] = torch.cat([moments[part], states[save][rank + 2]["optimizer"]["state"][i][part]])
        for save in range(at, min(back, run.saves)):
            del states[save][2:]

    of_all = run.paths
    run.paths = lambda save: {p: place for p, place in of_all(save).items() if place[0] < (2 if at <= save < back else 4)}
    return healthy(run, plant)


def rate_zero(seed):
    """The end of a cosine: the rate is 0 in the last saves."""
    run = a_run(seed, saves=8)

    def live(run, save):
        run.rate = 0 if save >= 3 else run.rate * 0.5

    return healthy(run, live=live)


def best_restored(seed):
    """The trainer restores its best weights before the last save."""
    run = a_run(seed, ["torch", "trainer"], saves=6)

    def plant(states):
        best = states[run.draw.randrange(1, 4)]
        for rank, state in enumerate(states[-1]):
            state["model"] = copy.deepcopy(best[rank]["model"])

    return healthy(run, plant)


def resumed(seed):
    """The weights of a save, with a new optimizer; the content counts its steps from the resume on."""
    run = a_run(seed, ["torch", "ranks"], saves=8)
    at = run.draw.randrange(2, 6)

    def live(run, save):
        if save == at:
            for rank in run.ranks:
                rank.renew()
                rank.advance()

    def plant(states):
        if seed % 2:
            for save in range(at, run.saves):
                for state in states[save]:
                    state["step"] = run.step(save - at)

    return healthy(run, plant, live=live, resets=True)


def other_counts(seed):
    """The content counts micro-batches, or from 0, or is a constant argument."""
    run = a_run(seed, ["torch", "ranks"])
    how = run.draw.choice([lambda step: 4 * step, lambda step: step - 1, lambda step: 1000, lambda step: step // 10])

    def plant(states):
        for save in states:
            for state in save:
                state["step"] = how(state["step"])

    return healthy(run, plant)


def late_average(seed):
    """Averaging begins late: the average is the first weights, and its counter is 0; or it is a copy until then."""
    run = Run("torch", seed, saves=7, ema=True)
    begin = run.draw.randrange(3, 9)
    copies = seed % 2

    def plant(states):
        first = states[0][0]["model"]
        for save, state in enumerate(states):
            if save < begin:
                state[0]["ema"] = {n: v.clone() for n, v in (state[0]["model"] if copies else first).items()}
            state[0]["ema"]["n_averaged"] = torch.tensor((1 if copies else 0) if save < begin else save - begin + 2)

    return healthy(run, plant)


def rare_average(seed):
    """An average without a counter that is updated every few saves, or from a late save on."""
    run = Run("torch", seed, saves=12, ema=True)
    every, begin = run.draw.choice([2, 4, 5]), run.draw.randrange(4, 9)

    def plant(states):
        kept = [copy.deepcopy(state[0]["ema"]) for state in states]
        for save, state in enumerate(states):
            state[0]["ema"] = kept[save - save % every if seed % 2 else save if save >= begin else 0]

    return healthy(run, plant)


def late_adapters(seed):
    """Adapters that stand for some saves, by a recorded rate of 0 or frozen, and move later."""
    run = Run("lora", seed, saves=8)
    begin, rate = run.draw.randrange(3, 6), run.rate
    if seed % 3:
        run.rate = 0
    else:
        run.frozen = set(run.ranks[0].named)

    def live(run, save):
        if save + 1 >= begin:
            run.rate, run.frozen = rate, set()

    def files(saves):
        for contents in saves if seed % 3 == 2 else []:
            for path in [path for path in contents if path.endswith("optimizer.pt")]:
                del contents[path]

    return healthy(run, files=files, live=live)


def rolled_back(seed):
    """Weights and optimizer of an earlier save, with counters and a buffer of the newest one."""
    run = Run("torch", seed, saves=7)
    at = run.draw.randrange(3, 7)

    def plant(states):
        for save, state in enumerate(states):
            state[0]["model"]["gate.scale"] = torch.arange(8) + 1.0 * save
        states[at] = [{**copy.deepcopy(state), "step": run.step(at)} for state in states[run.draw.randrange(0, at - 1)]]
        for save, state in enumerate(states):
            state[0]["model"]["norm.num_batches_tracked"] = torch.tensor(run.step(save))

    return healthy(run, plant, resets=True)


def average_of_frozen(seed):
    run = Run("torch", seed, saves=7, ema=True)
    run.frozen = {n for n in run.ranks[0].named if "layers.0" in n}
    return healthy(run)


def dead_experts(seed):
    """A matrix whose gradient is zero: its moments are zero, and decay alone moves it."""
    run = Run("torch", seed, saves=6)
    run.dead = {a_matrix(run)}
    return healthy(run)


def growing(seed):
    """A gain and a row that grow by equal amounts, or that saturate."""
    run = a_run(seed, ["torch", "trainer"], saves=12)
    name = a_matrix(run, ["input_layernorm", "post_attention_layernorm"])
    row, by = run.draw.randrange(96), run.draw.choice([0.05, 0.1, 0.2])
    saturates = seed % 2

    def live(run, save):
        factor = 1 + by * (0.7 ** save if saturates else 1 / (1 + by * save))
        run.ranks[0].named[name].data *= factor
        run.ranks[0].named["model.embed_tokens.weight"].data[row] *= factor

    return healthy(run, live=live)


def tied(seed):
    """Tied by the configuration, stored once or twice; or declared as not tied."""
    run = Run("trainer", seed, saves=4)
    how = seed % 3
    run.config = {"model_type": "llama", "tie_word_embeddings": how < 2}

    def plant(states):
        for state in states:
            model = state[0]["model"]
            if how == 0:
                model["lm_head.weight"] = model["model.embed_tokens.weight"].clone()
            if how == 1:
                del model["lm_head.weight"]

    return healthy(run, plant)


def buffers(seed):
    """Buffers that are replaced, return, are empty, or become zero: a queue, a table of frequencies, ranges of an observer."""
    run = Run("torch", seed, saves=6)
    tables = [torch.randn(64), torch.randn(64)]

    def plant(states):
        for save, state in enumerate(states):
            model = state[0]["model"]
            model["queue"] = torch.randn(64, 128)
            model["rotary.inv_freq"] = tables[save % 2 if save < 4 else 0].clone()
            model["observer.min_val"] = torch.empty(0)
            model["cache.k"] = torch.zeros(64, 64) if save % 3 == 2 else torch.randn(64, 64)

    return healthy(run, plant)


def bf16(seed):
    """Weights in bf16 whose norms flip single elements between neighbours."""
    run = Run("torch", seed, saves=8, rate=[1e-5, 1e-4, 1e-3][seed % 3])

    def plant(states):
        for state in states:
            state[0]["model"] = {n: v.bfloat16() for n, v in state[0]["model"].items()}

    return healthy(run, plant)


def another_run(seed):
    """All weights are new from a save on: another run wrote into the folder."""
    run = a_run(seed, ["torch", "trainer", "ranks"])
    at = run.draw.randrange(1, run.saves)

    def live(run, save):
        if save == at:
            for rank in run.ranks:
                for p in rank.named.values():
                    if p.dim() > 1:
                        p.data.normal_(std=0.05)

    return healthy(run, live=live)


HEALTHY = [plain, frozen, fresh_head, a_layer_begins_anew, a_layer_is_reset, saved_by_turns, adapters_not_in_use, lora_at_step_0, merged_lora, unused_adapters, pruned, pruned_folder, still_written, another_world,
           rate_zero, best_restored, resumed, other_counts, late_average, rare_average, late_adapters, rolled_back, average_of_frozen, dead_experts, growing, tied, buffers, bf16, another_run]  # fmt: skip
