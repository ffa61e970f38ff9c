"""Folders of checkpoints of simulated runs in several forms: AdamW steps with random gradients, saved as trainers save them."""

import copy
import json
import random

import torch

from files import safetensors

WIDTH, WORDS, HIDDEN, LAYERS = 64, 96, 80, 2
LAYER = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH, WIDTH), "self_attn.v_proj": (WIDTH, WIDTH), "self_attn.o_proj": (WIDTH, WIDTH),
         "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH), "mlp.down_proj": (WIDTH, HIDDEN), "input_layernorm": (WIDTH,),
         "post_attention_layernorm": (WIDTH,)}  # fmt: skip
SQUARE = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]


def shapes_of(kind):
    """{name: shape} in the order in which the model creates its parameters."""
    if kind == "lora":
        return {f"base_model.model.model.layers.{k}.self_attn.{name}.lora_{side}.weight": (8, WIDTH) if side == "A" else (WIDTH, 8)
                for k in range(LAYERS) for name in ("q_proj", "v_proj") for side in "AB"}  # fmt: skip
    layers = {f"model.layers.{k}.{name}.weight": shape for k in range(LAYERS) for name, shape in LAYER.items()}
    return {"model.embed_tokens.weight": (WORDS, WIDTH), **layers, "model.norm.weight": (WIDTH,), "lm_head.weight": (WORDS, WIDTH)}


def initial(name, shape):
    if "norm" in name:
        return torch.ones(shape)
    if "lora_B" in name:
        return torch.zeros(shape)
    return torch.randn(shape) * 0.05


class Rank:
    """The parameters and the optimizer of one rank: all of the model, or its shards."""

    def __init__(self, run):
        self.run = run
        self.named = {name: torch.nn.Parameter(initial(name, shape)) for name, shape in shapes_of(run.kind).items()}
        self.drift = {name: torch.randn(p.shape) for name, p in self.named.items()}
        self.average = {name: p.detach().clone() for name, p in self.named.items()}
        self.renew()

    def renew(self):
        self.optimizer = torch.optim.AdamW(self.named.values(), lr=self.run.rate, weight_decay=0.1)

    def trained(self):
        return {name: p for name, p in self.named.items() if name not in self.run.frozen}

    def advance(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.run.rate
        for name, p in self.trained().items():
            p.grad = torch.zeros_like(p) if name in self.run.dead else 0.01 * (0.5 * self.drift[name] + torch.randn(p.shape))
        for name in self.run.frozen:
            self.named[name].grad = None
        self.optimizer.step()
        for name, p in self.named.items():
            self.average[name].lerp_(p.detach(), 0.05)


class Run:
    """Options are drawn from the seed; `live(run, save)` runs before a save."""

    STEPS = 4  # simulated steps per save, each of which counts for some

    def __init__(self, form, seed, saves=6, rate=None, ema=False):
        self.draw = random.Random(f"{form} {seed}")
        torch.manual_seed(seed)
        self.form, self.kind = form, "lora" if form == "lora" else "words"
        self.saves, self.ema = saves, ema
        self.rate = rate or self.draw.choice([2e-4, 1e-3, 3e-3])
        self.every = self.draw.choice([10, 50, 100])
        self.frozen = set()
        self.dead = set()  # gradients are zero
        self.world = {"ranks": 4, "megatron": 2, "zero": 2}.get(form, 1)
        self.ranks = [Rank(self) for _ in range(self.world)]
        self.live = lambda run, save: None
        self.config = None
        self.extra = {}

    def step(self, save):
        return (save + 1) * self.every

    def states(self):
        """[{rank: {part: content}}], one for each save."""
        out = []
        for save in range(self.saves):
            for _ in range(self.STEPS):
                for rank in self.ranks:
                    rank.advance()
            if self.form == "megatron":  # norms are copies on all ranks of tensor parallelism
                for rank in self.ranks[1:]:
                    for name, p in rank.named.items():
                        if "norm" in name:
                            p.data.copy_(self.ranks[0].named[name].data)
                            rank.average[name].copy_(self.ranks[0].average[name])
            self.live(self, save)
            out.append([self.state(rank, self.step(save)) for rank in self.ranks])
        return out

    def state(self, rank, step):
        kept = {"model": {n: p.detach().clone() for n, p in rank.named.items()}, "optimizer": copy.deepcopy(rank.optimizer.state_dict()), "step": step}
        for moments in kept["optimizer"]["state"].values():
            moments["step"] = moments["step"] * self.every / self.STEPS
        if self.ema:
            kept["ema"] = {n: v.clone() for n, v in rank.average.items()}
        return {**kept, **copy.deepcopy(self.extra)}

    def paths(self, save):
        """{path: (rank, part)} of one save; part None is everything."""
        step = self.step(save)
        if self.form == "ranks":
            return {f"step-{step}/rank_{r}.pt": (r, None) for r in range(self.world)}
        if self.form == "megatron":
            return {f"iter_{step:07d}/mp_rank_{r:02d}/model_optim_rng.pt": (r, None) for r in range(self.world)}
        if self.form == "trainer":
            names = list(self.ranks[0].named)
            half = len(names) // 2
            shards = {f"checkpoint-{step}/model-{i + 1:05d}-of-00002.safetensors": (0, tuple(part)) for i, part in enumerate((names[:half], names[half:]))}
            return {**shards, f"checkpoint-{step}/optimizer.pt": (0, "optimizer")}
        if self.form == "lora":
            return {f"checkpoint-{step}/adapter_model.safetensors": (0, tuple(self.ranks[0].named)), f"checkpoint-{step}/optimizer.pt": (0, "optimizer")}
        return {f"step-{step}" if self.form == "dcp" else f"step-{step}/model.pt": (0, None)}

    def write(self, folder, plant=lambda states: None, files=lambda saves: None):
        """`plant` changes states, `files` a list of {path: content} (state or bytes) for each save, before they are written."""
        states = self.states()
        plant(states)
        saves = []
        for save, ranks in enumerate(states):
            contents = {}
            for path, (rank, part) in self.paths(save).items():
                state = ranks[rank]
                if part is None:
                    contents[path] = state
                elif part == "optimizer":
                    contents[path] = state["optimizer"]
                else:
                    contents[path] = safetensors({n: state["model"][n] for n in sorted(part) if n in state["model"]}, {"format": "pt"})
            if self.form == "trainer":
                total = {n: p.rsplit("/", 1)[1] for p, (_, part) in self.paths(save).items() if isinstance(part, tuple) for n in part if n in ranks[0]["model"]}
                contents[f"checkpoint-{self.step(save)}/model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": total}).encode()
                contents[f"checkpoint-{self.step(save)}/config.json"] = json.dumps(self.config or {"model_type": "llama", "tie_word_embeddings": False}).encode()
            saves.append(contents)
        files(saves)
        if self.form == "dcp":
            return [self.put_distributed(folder / next(iter(contents)), next(iter(contents.values()))) for contents in saves]
        for contents in saves:
            for path, content in contents.items():
                self.put(folder / path, content)

    @staticmethod
    def put_distributed(path, state):
        """PyTorch's distributed form, one file for each tensor."""
        from distributed_test import dcp

        names = list(state["model"])
        flat = {f"model.{name}": value for name, value in state["model"].items()}
        for number, moments in state["optimizer"]["state"].items():
            flat.update({f"optimizer.state.{names[number]}.{part}": moments[part] for part in ("exp_avg", "exp_avg_sq")})
        path.mkdir(parents=True)
        dcp.save_state_dict(flat, dcp.FileSystemWriter(str(path), single_file_per_rank=False), no_dist=True)

    @staticmethod
    def put(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
