#!/usr/bin/python3
"""Policy gradient on a toy task, with an inference engine in a process of its own.

  train.py --steps 60 --jsonl rollouts.jsonl
  train.py --sin top-p --server 127.0.0.1:7433 --record runs/rl

The engine holds its own copy of the weights in bf16 (or int8), draws tokens and logs what it drew
them with; the trainer scores the same tokens with its own. Each process has an agent: the two
halves meet by (sequence id, position). PYTHONPATH must lead to plumbline (python/ of the source tree).
"""

import argparse
import json
import multiprocessing
import random
import sys

import torch

import engine
import plumbline
import task
from model import Policy, distribution


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="sequences a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--lag", type=int, default=0, help="updates that the engine's weights lack")
    parser.add_argument("--bits", choices=("f32", "bf16", "int8"), default="bf16",
                        help="in which the engine holds the weights")
    parser.add_argument("--in-flight", action="store_true",
                        help="new weights arrive in the middle of sequences")
    parser.add_argument("--third-pass", action="store_true",
                        help="score each batch by the weights that drew it too: splits staleness "
                        "from numerics")
    parser.add_argument("--sin", choices=engine.SINS, default="none",
                        help="; ".join(f"{k}: {v}" for k, v in engine.SINS.items()))
    parser.add_argument("--sin-from", type=int, default=20, help="version that missed-sync misses first")
    parser.add_argument("--prompts", type=int, default=128, help="in the dataset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jsonl", metavar="FILE", help="native rollout records")
    parser.add_argument("--log", metavar="FILE", help="JSON lines, one a step")
    parser.add_argument("--run", default="rl")
    parser.add_argument("--server")
    parser.add_argument("--record")
    parser.add_argument("--patience", type=float, default=2.0, metavar="SECONDS",
                        help="how long the end may wait for the last evidence to be delivered")
    return parser.parse_args(argv)


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = Policy()
        self.optimizer = torch.optim.Adam(self.model.parameters(), args.lr)
        self.version = 0
        self.past = {}  # version -> weights, if a third pass is requested

    def state(self):
        return {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def tokens(self, rollout):
        """Returns the tokens as the trainer sees them."""
        if self.args.sin == "retokenised":
            drawn = rollout.tokens.tolist()
            again = [task.tokenise(task.text(row)) for row in drawn]
            fit = [(row + old)[:task.RESPONSE_TOKENS] for row, old in zip(again, drawn)]
            return torch.tensor(fit)
        return rollout.tokens

    def score(self, model, rollout, tokens):
        """Returns the model's distribution at each token."""
        rows = torch.cat((torch.tensor(rollout.prompts), tokens), 1)
        logits = model(rows[:, :-1])[:, task.PROMPT_TOKENS - 1:]
        if self.args.sin == "trainer-temperature":
            logits = logits / 1.1
        logp, entropy, varentropy = distribution(logits)
        return logp.gather(2, tokens[..., None])[..., 0], entropy, varentropy

    @torch.no_grad()
    def behaviour(self, rollout, tokens):
        """Returns log-probabilities by this trainer's own weights at the version that drew each token."""
        self.past[self.version] = self.state()
        model, out = Policy(), torch.full(tokens.shape, float("nan"), dtype=torch.float64)
        for version in rollout.versions.unique().tolist():
            model.load_state_dict(self.past[version])
            logp, _, _ = self.score(model, rollout, tokens)
            out = torch.where(rollout.versions == version, logp.double(), out)
        oldest = rollout.versions.min().item() - 1  # pending rollouts are at most this old
        self.past = {v: w for v, w in self.past.items() if v >= oldest}
        return out

    def learn(self, rollout):
        """Does one update. Returns its values for the record."""
        tokens = self.tokens(rollout)
        logprobs, entropy, varentropy = self.score(self.model, rollout, tokens)
        behaviour = self.behaviour(rollout, tokens) if self.args.third_pass else None
        rewards = torch.tensor([task.reward(p, t) for p, t in zip(rollout.prompts,
                                                                 rollout.tokens.tolist())])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        ratio = (logprobs.detach() - rollout.logprobs).clamp(-2, 2).exp()
        loss = -(ratio * advantages[:, None] * logprobs).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        scored_by, self.version = self.version, self.version + 1
        return {"tokens": tokens, "logprobs": logprobs.detach(), "entropy": entropy.detach(),
                "varentropy": varentropy.detach(), "advantages": advantages,
                "behaviour": behaviour, "reward": rewards.mean().item(), "loss": loss.item(), "version": scored_by}


def observe(run, rollout, learned):
    run.observe_logprobs(
        "policy", learned["tokens"], train=learned["logprobs"],
        sequence_id=torch.tensor(rollout.ids), train_entropy=learned["entropy"],
        train_varentropy=learned["varentropy"], advantages=learned["advantages"].double(),
        train_version=learned["version"], behaviour=learned["behaviour"],
    )
    run.scalar("reward", learned["reward"])
    run.scalar("loss", learned["loss"])


def records(rollout, learned):
    """Yields native rollout records, one per sequence."""
    for i, sequence in enumerate(rollout.ids):
        record = {
            "step": rollout.step, "sequence_id": sequence,
            "tokens": learned["tokens"][i].tolist(),
            "loss_mask": [1] * task.RESPONSE_TOKENS,
            "rollout_logprobs": rollout.logprobs[i].tolist(),
            "train_logprobs": learned["logprobs"][i].tolist(),
            "entropy": learned["entropy"][i].tolist(),
            "varentropy": learned["varentropy"][i].tolist(),
            "rollout_entropy": rollout.entropy[i].tolist(),
            "rollout_varentropy": rollout.varentropy[i].tolist(),
            "weight_versions": rollout.versions[i].tolist(), "train_version": learned["version"],
            "advantages": [learned["advantages"][i].item()] * task.RESPONSE_TOKENS,
            "temperature": rollout.temperature, "top_p": rollout.top_p,
            "logprob_mode": rollout.mode, "worker": "engine-0", "selection": "all",
            "rollout_source": "sampled", "cached_tokens": rollout.cached_tokens[i],
        }
        if learned["behaviour"] is not None:
            record["behaviour_logprobs"] = learned["behaviour"][i].tolist()
        yield record


def main(argv):
    args = arguments(argv)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    options = {k: getattr(args, k) for k in ("sin", "bits", "in_flight", "sin_from", "run", "server",
                                             "record", "patience")} | {"seed": args.seed + 1}
    worker = context.Process(target=engine.serve, args=(theirs, options), daemon=True)
    worker.start()
    theirs.close()
    trainer = Trainer(args)
    rng = random.Random(args.seed)
    run = plumbline.init(run=args.run, server=args.server, record=args.record, rank=0, world_size=1,
                         every=1)
    jsonl = open(args.jsonl, "w") if args.jsonl else None
    log = open(args.log, "w") if args.log else None

    def request(step):
        ours.send(("generate", step, task.prompts(rng, args.batch, args.prompts), step * args.batch))

    ours.send(("weights", 0, trainer.state()))
    for step in range(min(args.lag + 1, args.steps)):
        request(step)
    for step in range(args.steps):
        with run.step(step):
            rollout = ours.recv()
            learned = trainer.learn(rollout)
            observe(run, rollout, learned)
        ours.send(("weights", trainer.version, trainer.state()))
        if step + args.lag + 1 < args.steps:
            request(step + args.lag + 1)
        if jsonl:
            jsonl.writelines(json.dumps(r) + "\n" for r in records(rollout, learned))
        if log:
            log.write(json.dumps({"step": step, "reward": learned["reward"],
                                  "loss": learned["loss"]}) + "\n")
        if step % 10 == 0:
            print(f"step {step:4}  reward {learned['reward']:.3f}", flush=True)
    ours.send(("stop",))
    worker.join(30 + args.patience)
    run.finish(args.patience)
    for file in (jsonl, log):
        if file:
            file.close()


if __name__ == "__main__":
    main(sys.argv[1:])
