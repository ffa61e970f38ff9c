"""The inference process: its own copy of the weights in few bits, a cache, a sampler, and optional faults.

Messages from the trainer: ("weights", version, state), ("generate", step, prompts), ("stop",). To the trainer: one
Rollout per generate.
"""

import collections
import dataclasses

import torch

import plumbline
import task
from model import Policy, distribution

SINS = {
    "none": "nothing is wrong but rounding",
    "temperature": "drawn and logged at temperature 0.8, which the trainer does not apply",
    "hidden-temperature": "drawn at temperature 0.8, logged as if at 1",
    "trainer-temperature": "the trainer divides its logits by 1.1",
    "top-p": "drawn and logged from the smallest set of probability 0.8",
    "off-by-one": "each token is logged with its neighbour's log-probability",
    "stale-cache": "half of the prompts keep the keys and values of weights long gone",
    "missed-sync": "weights arrive eight updates late, and are labelled as if they did not",
    "retokenised": "the trainer scores the canonical tokens of the text, not those drawn",
    "zero-filled": "one value in fifty is logged as 0",
    "batch-shape": "drawn in batches of other sizes than the trainer's",
}


@dataclasses.dataclass
class Rollout:
    step: int
    ids: list            # of sequences, unique within the run
    prompts: list
    tokens: torch.Tensor          # [B, R] as drawn
    logprobs: torch.Tensor        # [B, R] f64, as logged; also the two below
    entropy: torch.Tensor
    varentropy: torch.Tensor
    versions: torch.Tensor        # [B, R] optimizer updates in the weights that drew each token
    mode: str
    temperature: float
    top_p: float
    cached_tokens: list


def rounded(state, bits):
    """Returns weights as the engine holds them: bf16, or int8 with a scale per row; computed with in f32."""
    if bits == "f32":
        return {k: v.clone() for k, v in state.items()}
    if bits == "bf16":
        return {k: v.bfloat16().float() for k, v in state.items()}
    out = {}
    for k, v in state.items():
        if v.dim() < 2:
            out[k] = v.clone()
            continue
        scale = v.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
        out[k] = (v / scale).round() * scale
    return out


def keep_top(logits, top_p):
    """Returns -inf outside the smallest set of tokens whose probability is at least top_p."""
    ordered, at = logits.softmax(-1).sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, at, before >= top_p)
    return logits.masked_fill(dropped, float("-inf"))


class Engine:
    def __init__(self, sin="none", bits="bf16", in_flight=False, sin_from=20, seed=1):
        self.model = Policy()
        self.sin, self.bits, self.in_flight, self.sin_from = sin, bits, in_flight, sin_from
        self.random = torch.Generator().manual_seed(seed)
        self.version, self.waiting = -1, None
        self.sent = collections.deque(maxlen=9)  # weights, oldest first
        self.prefixes = {}  # prompt id -> caches, possibly of older weights

    def receive(self, version, state):
        """With in-flight updates, weights wait for the middle of the next batch; otherwise they are applied immediately."""
        if self.in_flight and self.version >= 0:
            self.waiting = (version, state)
        else:
            self._load(version, state)

    def _load(self, version, state):
        self.sent.append(state)
        late = self.sin == "missed-sync" and version >= self.sin_from
        self.model.load_state_dict(rounded(self.sent[0] if late else state, self.bits))
        self.version = version

    @torch.no_grad()
    def generate(self, step, prompts):
        if self.sin != "batch-shape":
            return self._batch(step, prompts)
        sizes = (1, 3, 7, 2, 11)
        parts, at = [], 0
        while at < len(prompts):
            size = sizes[len(parts) % len(sizes)]
            parts.append(self._batch(step, prompts[at:at + size]))
            at += size
        return _joined(parts)

    def _batch(self, step, prompts):
        caches = self._prefill(prompts)
        columns = []
        token = None
        for i in range(task.RESPONSE_TOKENS):
            if self.waiting is not None and i == task.RESPONSE_TOKENS // 2:
                self._load(*self.waiting)
                self.waiting = None
            logits = self.first if i == 0 else self.model(token, caches)[:, -1]
            columns.append(self._draw(logits))
            token = columns[-1][0][:, None]
        tokens, logprobs, entropy, varentropy, versions = (torch.stack(c, 1) for c in zip(*columns))
        if self.sin == "off-by-one":
            logprobs = logprobs.roll(1, 1)
        if self.sin == "zero-filled":
            hit = torch.rand(logprobs.shape, generator=self.random) < 0.02
            logprobs = logprobs.masked_fill(hit, 0.0)
        processed = self.sin in ("temperature", "top-p")
        return Rollout(
            step, [], [p for _, p in prompts], tokens, logprobs, entropy, varentropy, versions,
            "processed_logprobs" if processed else "raw_logprobs",
            0.8 if self.sin == "temperature" else 1.0, 0.8 if self.sin == "top-p" else 1.0,
            self.cached,
        )

    def _prefill(self, prompts):
        """Returns the caches after the prompts, and stores the logits of the first token in self.first."""
        self.cached = [0] * len(prompts)
        if self.sin != "stale-cache":
            caches = self.model.empty_caches()
            self.first = self.model(torch.tensor([p for _, p in prompts]), caches)[:, -1]
            return caches
        rows = []
        for i, (key, prompt) in enumerate(prompts):
            caches = self.prefixes.get(key)
            if caches is None:
                caches = self.model.empty_caches()
                self.model(torch.tensor([prompt[:-1]]), caches)
                if key % 2:
                    self.prefixes[key] = caches
            else:
                self.cached[i] = task.PROMPT_TOKENS - 1
            rows.append(caches)
        caches = [[torch.cat([row[layer][kv] for row in rows]) for kv in (0, 1)]
                  for layer in range(len(self.model.blocks))]
        self.first = self.model(torch.tensor([p[-1:] for _, p in prompts]), caches)[:, -1]
        return caches

    def _draw(self, logits):
        shown = logits
        if self.sin in ("temperature", "hidden-temperature"):
            logits = logits / 0.8
        if self.sin == "top-p":
            logits = keep_top(logits, 0.8)
        if self.sin in ("temperature", "top-p"):
            shown = logits
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=self.random)
        logp, entropy, varentropy = distribution(shown)
        versions = torch.full((len(drawn),), self.version)
        return drawn[:, 0], logp.gather(1, drawn)[:, 0], entropy, varentropy, versions


def _joined(parts):
    out = parts[0]
    for name in ("tokens", "logprobs", "entropy", "varentropy", "versions"):
        setattr(out, name, torch.cat([getattr(p, name) for p in parts]))
    out.prompts = [p for part in parts for p in part.prompts]
    out.cached_tokens = [c for part in parts for c in part.cached_tokens]
    return out


def serve(pipe, options):
    """The process's main loop."""
    torch.set_num_threads(1)
    engine = Engine(options["sin"], options["bits"], options["in_flight"], options["sin_from"],
                    options["seed"])
    run = plumbline.init(run=options["run"], server=options["server"], record=options["record"],
                         role="rollout", rank=0, world_size=1, every=1)
    while True:
        message = pipe.recv()
        if message[0] == "weights":
            engine.receive(*message[1:])
        elif message[0] == "generate":
            _, step, prompts, first_id = message
            rollout = engine.generate(step, prompts)
            rollout.ids = list(range(first_id, first_id + len(prompts)))
            with run.step(step):
                run.observe_logprobs(
                    "policy", rollout.tokens, rollout=rollout.logprobs,
                    sequence_id=torch.tensor(rollout.ids), versions=rollout.versions,
                    rollout_entropy=rollout.entropy, rollout_varentropy=rollout.varentropy,
                    cached_tokens=torch.tensor(rollout.cached_tokens), mode=rollout.mode, temperature=rollout.temperature, top_p=rollout.top_p,
                    selection="all", source="sampled", worker="engine-0",
                )
            pipe.send(rollout)
        else:
            break
    run.finish(options["patience"])
    pipe.close()
