"""Faults of what a folder of checkpoints shows: each plants one into a simulated run, and returns where it must be found."""

import torch

from learning_runs import LAYERS, SQUARE, Run


def a_matrix(run, names=SQUARE):
    return f"model.layers.{run.draw.randrange(LAYERS)}.{run.draw.choice(names)}.weight"


def numbers(run, rank, name):
    return list(run.ranks[rank].named).index(name)


class Planted:
    """A run with a fault: the tensor or file name that a finding must contain, and the number of the save that it must name."""

    def __init__(self, run, where, save, plant=lambda states: None, files=lambda saves: None, live=None):
        self.run, self.where, self.save, self.plant, self.files = run, where, save, plant, files
        self.after = lambda folder: None
        if live:
            run.live = live

    def write(self, folder):
        self.run.write(folder, self.plant, self.files)
        self.after(folder)


def lora_b_zero(seed):
    run = Run("lora", seed)
    run.frozen = {n for n in run.ranks[0].named if "lora_B" in n}
    return Planted(run, "lora_B", None)


def adapters_still(seed):
    run = Run("lora", seed)
    run.frozen = set(run.ranks[0].named)

    def start(run, save):  # not zero, and not trained
        for p in run.ranks[0].named.values():
            if save == 0 and not p.any():
                p.data.normal_(std=0.01)

    return Planted(run, "lora_", None, live=start)


def moments_zero(seed, every=False):
    run = Run("torch", seed)
    at, name = run.draw.randrange(2, run.saves), a_matrix(run)

    def plant(states):
        for number, state in states[at][0]["optimizer"]["state"].items():
            if every or number == numbers(run, 0, name):
                state["exp_avg"].zero_()
                state["exp_avg_sq"].zero_()

    return Planted(run, "" if every else name, at, plant)


def moments_never(seed):
    """The moments of one parameter are zero in all checkpoints, though it is trained."""
    run = Run("torch", seed)
    name = a_matrix(run)

    def plant(states):
        for state in states:
            for part in ("exp_avg", "exp_avg_sq"):
                state[0]["optimizer"]["state"][numbers(run, 0, name)][part].zero_()

    return Planted(run, name, None, plant)


def average_still(seed):
    run = Run("torch", seed, ema=True)

    def plant(states):
        for state in states:
            state[0]["ema"] = {n: v.clone() for n, v in states[0][0]["ema"].items()}

    return Planted(run, "", None, plant)


def average_stops(seed):
    run = Run("torch", seed, saves=7, ema=True)

    def plant(states):
        for state in states[3:]:
            state[0]["ema"] = {n: v.clone() for n, v in states[3][0]["ema"].items()}

    return Planted(run, "", None, plant)


def average_is_weights(seed):
    run = Run("torch", seed, ema=True)

    def plant(states):
        for state in states:
            state[0]["ema"] = {n: v.clone() for n, v in state[0]["model"].items()}

    return Planted(run, "", None, plant)


def shard_returns(seed):
    run = Run("trainer", seed)
    at = run.draw.randrange(2, run.saves)
    back = run.draw.randrange(0, at - 1)
    names = list(run.ranks[0].named)
    part = names[len(names) // 2:]

    def plant(states):
        for name in part:
            states[at][0]["model"][name] = states[back][0]["model"][name].clone()

    return Planted(run, tuple(part), at, plant)


def tensor_returns(seed, form="torch"):
    run = Run(form, seed)
    at, name = run.draw.randrange(2, run.saves), a_matrix(run)

    def plant(states):
        states[at][0]["model"][name] = states[run.draw.randrange(0, at - 1)][0]["model"][name].clone()

    return Planted(run, name, at, plant)


def part_returns(seed):
    """One file of a distributed checkpoint is that of an earlier step."""
    run = Run("dcp", seed)
    at = run.draw.randrange(2, run.saves)
    back, number = run.draw.randrange(0, at - 1), run.draw.randrange(8)

    def after(folder):
        names = sorted(p.name for p in (folder / f"step-{run.step(at)}").glob("*.distcp"))
        name = names[number % len(names)]
        (folder / f"step-{run.step(at)}" / name).write_bytes((folder / f"step-{run.step(back)}" / name).read_bytes())

    planted = Planted(run, "", at)
    planted.after = after
    return planted


def rank_file(seed, form, back):
    """A rank's file is that of an earlier save, its content's step as well."""
    run = Run(form, seed)
    at, rank = run.draw.randrange(back, run.saves), run.draw.randrange(run.world)

    def plant(states):
        states[at][rank] = states[at - back][rank]

    return Planted(run, ("rank", rank), at, plant)


def rank_file_without_step(seed):
    run = Run("ranks", seed)
    at, rank = run.draw.randrange(1, run.saves), run.draw.randrange(run.world)

    def plant(states):
        states[at][rank] = {**states[at - 1][rank], "step": states[at][rank]["step"]}

    return Planted(run, ("rank", rank), at, plant)


def missing_rank(seed, form):
    run = Run(form, seed)
    at, rank = run.draw.randrange(1, run.saves - 1), run.draw.randrange(run.world)

    def files(saves):
        del saves[at][next(p for p, (r, _) in run.paths(at).items() if r == rank)]

    return Planted(run, ("file", f"rank_{rank}" if form == "ranks" else f"mp_rank_{rank:02d}"), at, files=files)


def duplicated_rank(seed, form):
    run = Run(form, seed)
    at = run.draw.randrange(1, run.saves)
    rank = run.draw.randrange(1, run.world)

    def plant(states):
        states[at][rank] = states[at][rank - 1]

    return Planted(run, ("rank", rank), at, plant)


def content_of_an_earlier_step(seed):
    """A whole file of an earlier step under a later name."""
    run = Run("torch", seed)
    at = run.draw.randrange(2, run.saves)

    def plant(states):
        states[at] = states[run.draw.randrange(0, at)]

    return Planted(run, "", at, plant)


def replaced(seed, how, form="torch", permanent=True):
    run = Run(form, seed, saves=7)
    at, name = run.draw.randrange(2, run.saves), a_matrix(run)
    other = a_matrix(run)
    while other == name:
        other = a_matrix(run)

    def change(of, value):
        if how == "anew":
            value.copy_(torch.randn(value.shape) * value.std())
        elif how == "transposed":
            value.copy_(value.t().clone())
        elif how == "zero":
            value.zero_()
        elif how == "swapped":
            old = value.clone()
            value.copy_(of[other])
            of[other].copy_(old)
        elif how == "copied":
            value.copy_(of[other])

    def live(run, save):
        if save == at:
            of = {n: p.data for n, p in run.ranks[0].named.items()}
            change(of, of[name])

    def plant(states):
        of = states[at][0]["model"]
        change(of, of[name])

    return Planted(run, (name, other) if how == "swapped" else name, at, live=live) if permanent else Planted(run, name, at, plant)


def transposed_of_another_shape(seed):
    run = Run("torch", seed)
    at, name = run.draw.randrange(1, run.saves), a_matrix(run, ["mlp.gate_proj", "mlp.down_proj"])

    def plant(states):
        for state in states[at:]:
            state[0]["model"][name] = state[0]["model"][name].t().contiguous()

    return Planted(run, name, at, plant)


def row_grows(seed):
    """Not found: no statistic of the tensor shows one row among many."""
    run = Run("torch", seed, saves=9)
    row = run.draw.randrange(96)

    def live(run, save):
        run.ranks[0].named["model.embed_tokens.weight"].data[row] *= 1.1

    return Planted(run, "embed_tokens", None, live=live)


def gain_grows(seed):
    run = Run("torch", seed, saves=9)
    name = a_matrix(run, ["input_layernorm", "post_attention_layernorm"])

    def live(run, save):
        run.ranks[0].named[name].data *= 1.1

    return Planted(run, name, None, live=live)


def empty(seed, at=None):
    run = Run("trainer", seed)
    at = run.draw.randrange(1, run.saves) if at is None else at

    def plant(states):
        for name in states[at][0]["model"]:
            if run.draw.random() < 0.9 or "q_proj" in name:
                states[at][0]["model"][name] = torch.empty(0)

    return Planted(run, ".weight", at, plant)


def tied_by_configuration(seed):
    run = Run("trainer", seed, saves=run_saves(seed))
    run.config = {"model_type": "llama", "tie_word_embeddings": True}
    return Planted(run, ("lm_head", "embed_tokens"), 0)


def run_saves(seed):
    return 1 + seed % 3


FAULTS = {
    "lora_B is zero": lora_b_zero,
    "adapters do not change": adapters_still,
    "all moments are zero": lambda s: moments_zero(s, every=True),
    "one tensor's moments are zero": moments_zero,
    "one tensor's moments are always zero": moments_never,
    "the average does not move": average_still,
    "the average stops": average_stops,
    "the average is the weights": average_is_weights,
    "a shard returns": shard_returns,
    "a tensor returns": tensor_returns,
    "DCP: a tensor returns": lambda s: tensor_returns(s, "dcp"),
    "DCP: a part returns": part_returns,
    "DCP: one matrix transposed": lambda s: replaced(s, "transposed", "dcp"),
    "a rank's file of two saves ago": lambda s: rank_file(s, "ranks", 2),
    "a rank's file of the save before": lambda s: rank_file(s, "ranks", 1),
    "a rank's file of the save before, step corrected": rank_file_without_step,
    "Megatron: a rank's file of two saves ago": lambda s: rank_file(s, "megatron", 2),
    "Megatron: a rank's file of the save before": lambda s: rank_file(s, "megatron", 1),
    "a rank's file is missing": lambda s: missing_rank(s, "ranks"),
    "Megatron: a rank's file is missing": lambda s: missing_rank(s, "megatron"),
    "a rank's file is another rank's": lambda s: duplicated_rank(s, "ranks"),
    "Megatron: a rank's file is another rank's": lambda s: duplicated_rank(s, "megatron"),
    "a file of an earlier step": content_of_an_earlier_step,
    "one matrix anew": lambda s: replaced(s, "anew"),
    "one matrix anew, in one file": lambda s: replaced(s, "anew", "trainer", False),
    "one matrix transposed": lambda s: replaced(s, "transposed"),
    "two matrices swapped": lambda s: replaced(s, "swapped"),
    "a matrix is another one": lambda s: replaced(s, "copied", permanent=False),
    "one matrix is zero": lambda s: replaced(s, "zero", permanent=False),
    "a transposed shape": transposed_of_another_shape,
    "a row of the embedding grows": row_grows,
    "a gain grows": gain_grows,
    "empty tensors": empty,
    "empty tensors in the first save": lambda s: empty(s, 0),
    "tied by the configuration": tied_by_configuration,
}
