"""Logs of reinforcement learning whose faults lie in the reward itself, in names of SkyRL, AReaL, ROLL, OpenRLHF and slime, in
open-instruct's panels, and their healthy twins. A case is (name, expected, files) as in rl_logs.py; `expected` may also have
causes: a list of (rule, least level, cause)."""

import json
import math

import rl_logs
from rl_logs import Run, short

# More forms.


def skyrl(run):
    return {"skyrl.log": "".join("(skyrl_entrypoint pid=31) " + f"step:{row['step']} - " + " - ".join(f"{key}:{value:.6g}" for key, value in {
        "policy/final_loss": row["loss"], "policy/policy_loss": row["loss"], "policy/policy_lr": row["lr"], "policy/ppo_clip_ratio": row["clip"],
        "policy/policy_entropy": row["entropy"], "policy/policy_kl": row["kl"], "policy/raw_grad_norm": row["grad_norm"],
        "policy/rollout_train_logprobs_abs_diff_mean": row["mismatch"], "reward/avg_raw_reward": row["reward"],
        "reward/avg_pass_at_8": min(1.0, 1.3 * row["reward"]), "loss/avg_final_rewards": row["reward"], "loss/avg_raw_advantages": 0.3 * row["loss"],
        "loss/avg_raw_advantages_abs": row.get("spread", 0.1 + 2 * row["reward"] * (1 - row["reward"])), "generate/avg_num_tokens": row["length"],
        "timing/step": row["seconds"], "trainer/global_step": row["step"]}.items()) + "\n" for row in run.rows)}


def areal(run):
    lines = []
    for row in run.rows:
        update = {"task_reward/avg": row["reward"], "update/actor_loss/avg": row["loss"], "update/entropy/avg": row["entropy"],
                  "update/grad_norm": row["grad_norm"], "update/lr": row["lr"], "update/clip_ratio/avg": row["clip"],
                  "kl_rewards/avg": -row["kl"], "update/approx_kl/avg": row["step_kl"], "seq_len/avg": row["length"],
                  "no_eos_ratios/avg": row["truncated"], "update/behave_kl/avg": row["mismatch_kl"], "update/behave_imp_weight/avg": row["ratio"]}
        lines += [f"20260811-12:00:00.123 StatsLogger INFO: Epoch 1/1 Step {row['step']}/{run.points} Train step {row['step']}/{run.points} done.",
                  "┌" + "─" * 42 + "┬" + "─" * 14 + "┐"]
        lines += [f"│ {'ppo_actor/' + key:<40} │ {value:12.4e} │" for key, value in update.items()]
        lines.append("└" + "─" * 42 + "┴" + "─" * 14 + "┘")
    return {"areal.log": "\n".join(lines) + "\n"}


def roll(run):
    return {"roll.log": "".join(f"[2026-08-11 12:00:00] [tracking.py (41)] [INFO] [DRIVER 0 / 1][PID 88] metrics_tag: " + json.dumps({
        "step": row["step"] - 1, "metrics": {
            "actor/lr": row["lr"], "actor/total_loss": row["loss"], "actor/pg_loss": row["loss"], "actor/approxkl": row["step_kl"],
            "actor/ppo_ratio_clipfrac": row["clip"], "actor_train/grad_norm": row["grad_norm"], "critic/kl": row["kl"],
            "critic/entropy/mean": row["entropy"], "critic/score/mean": row["reward"], "critic/rewards/mean": row["reward"],
            "critic/advantages/max": row.get("advantage", 2.4), "critic/advantages/mean": 0.01 * row["loss"],
            "actor/train_infer_diff_mean": row["mismatch_prob"], "tokens/response_length/mean": row["length"]}}) + "\n" for row in run.rows)}


def panel(run, width=None):
    """open-instruct's console: one panel a step. A narrow terminal breaks rows."""
    lines = []
    for row in run.rows:
        groups = {"debug": {"vllm_vs_local_logprob_diff_mean": row["mismatch"], "vllm_vs_local_logprob_diff_max": row["mismatch_max"]},
                  "loss": {"kl_avg": row["kl"], "policy_avg": row["loss"], "total_avg": row["loss"]},
                  "objective": {"kl_avg": row["kl"], "entropy_avg": row["entropy"], "scores": 10 * row["reward"]},
                  "optim": {"grad_norm": row["grad_norm"]},
                  "other": {"episode": 512 * row["step"], "training_step": row["step"], "epoch": row["step"] / 100, "lr": row["lr"]},
                  "policy": {"approxkl_avg": row["step_kl"], "clipfrac_avg": row["clip"]}, "val": {"ratio": row["ratio"], "sequence_lengths": row["length"]}}
        rows = []
        for group, values in groups.items():
            words = " | ".join(f"{key}: {value if isinstance(value, int) else short(value)}" for key, value in values.items()).split(" ")
            line = f"{group:<11}"
            for word in words:
                if width and len(line) + len(word) > width:
                    rows.append(line)
                    line = " " * 11
                line += ("" if line.endswith(" " * 3) or len(line) == 11 else " ") + word
            rows.append(line)
        wide = max(map(len, rows))
        title = " Metrics ".center(wide + 2, "─")
        lines += ["╭" + title + "╮"] + [f"│ {line:<{wide}} │" for line in rows] + ["╰" + "─" * (wide + 2) + "╯"]
    return {"console.log": "\n".join(lines) + "\n"}


def narrow_panel(run):
    return panel(run, 76)


FORMS = {**rl_logs.FORMS, **{form.__name__: form for form in (skyrl, areal, roll, panel, narrow_panel)}}
MORE = ("skyrl", "areal", "roll", "panel", "narrow_panel")
COLLAPSE, MISMATCH = "health/rl-collapse", "drift/mismatch-metric"

# Disasters.


def learnt(run):
    """A run that has learnt something before it breaks."""
    if run.final < 0.8 or run.rows[run.points // 2]["reward"] < 0.6:
        run.__init__(run.random.randrange(1 << 30), run.points)
        return learnt(run)
    return run


def reward_collapses(run):
    first, start = int(0.6 * learnt(run).points), None
    start = max(row["reward"] for row in run.rows[first - 5:first])
    steps = run.random.choice((1, run.points // 20, run.points // 8))
    level = run.random.choice((0.0, 0.02))
    return run.put(first, reward=lambda i, row: max(0.0, (start - (start - level) * min(1, i / steps)) * run.about(0.1)))


def reward_halves(run):
    first = int(0.6 * learnt(run).points)
    start = max(row["reward"] for row in run.rows[first - 5:first])
    return run.put(first, reward=lambda i, row: max(0.0, 0.38 * start + run.random.gauss(0, 0.02)))


def mismatch_with_reward(run):
    """The mismatch grows, not to ten limits, and the reward falls to a tenth."""
    first = int(0.5 * learnt(run).points)
    start = max(row["reward"] for row in run.rows[first - 5:first])
    run.mismatch = 0.01
    return run.put(0, mismatch=lambda i, row: 0.01 * run.about(0.1) * 30 ** min(1, max(0, i - first) / 15),
                   mismatch_kl=lambda i, row: 1e-3 * run.about(0.1) * 300 ** min(1, max(0, i - first) / 15),
                   mismatch_prob=lambda i, row: 4e-3 * run.about(0.1) * 30 ** min(1, max(0, i - first) / 15)).put(
        first, reward=lambda i, row: max(0.0, start * (1 - 0.9 * min(1, i / 20)) + run.random.gauss(0, 0.01)))


def truncated_answers(run):
    first = int(0.5 * learnt(run).points)
    return run.put(first, truncated=lambda i, row: min(0.97, 0.05 + i / 15), reward=lambda i, row: 0.3 * row["reward"])


def spread_is_lost(run):
    """Each reward is 0, and so is each advantage."""
    first = int(0.6 * learnt(run).points)
    return run.put(first, reward=0.0, reward_std=0.0, zero_std=1.0, advantage=0.0, spread=0.0, grad_norm=0.0)


# Forms without the metric of a disaster, or with other thresholds.
NEMO = ("nemo", "nemo_console")
NO_KL = ("areal", *NEMO)
NO_TRUNCATED = ("skyrl", "roll", "panel", "narrow_panel", "nemo", "nemo_console", "prime", "open_instruct", "tinker", "plain")
DISASTERS = {
    "reward": (reward_collapses, [(COLLAPSE, "error")], ()),
    "half": (reward_halves, [(COLLAPSE, "warning")], ()),
    "mismatch-reward": (mismatch_with_reward, [(MISMATCH, "error"), (COLLAPSE, "error")], ()),
    "truncated": (truncated_answers, [(COLLAPSE, "warning")], NO_TRUNCATED),
    "spread": (spread_is_lost, [(COLLAPSE, "error")], ())}

# Healthy runs.


def dips(run):
    """Some hard batches in a row, and the reward comes back."""
    first = int(0.5 * run.points)
    for row in run.rows[first:first + 6]:
        row["reward"] *= 0.4
    return run


def harder_prompts(run):
    """A curriculum: at each stage the reward falls by a third and is learnt again."""
    return run.put(0, reward=lambda i, row: max(0.0, 0.45 + 0.3 * ((i % (run.points // 3)) / (run.points // 3)) + run.random.gauss(0, run.noise)))


def flat_and_noisy(run):
    """Small batches: the noise of a point is as large as its mean."""
    return run.put(0, reward=lambda i, row: sum(run.random.random() < 0.12 for _ in range(16)) / 16)


def signed_reward(run):
    """A reward with penalties, around 0."""
    return run.put(0, reward=lambda i, row: run.random.gauss(-0.05 + 0.3 * i / run.points, 0.15))


def spread_rises_and_falls(run):
    """Tasks become solvable and are then solved: the mean absolute advantage has a hump."""
    return run.put(0, spread=lambda i, row: (0.3 + 0.5 * math.sin(math.pi * i / run.points)) * run.about(0.05))


def spread_is_flat(run):
    return run.put(0, spread=lambda i, row: 0.695 * run.about(0.004))


def few_prompts(run):
    """One to four prompts a step: a row whose groups have no spread has neither loss nor gradient."""
    share = run.random.choice((0.3, 0.5, 0.6))
    for row in run.rows:
        if run.random.random() < share:
            row.update(loss=0.0, grad_norm=0.0, kl=0.0, reward_std=0.0, zero_std=1.0, advantage=0.0, spread=0.0)
    return run


def turns(run):
    """Two data sets in turns: the reward falls with each turn, and comes back."""
    length = run.random.choice((15, 20))
    return run.put(0, reward=lambda i, row: (0.75 if i // length % 2 == 0 else 0.3) + run.random.gauss(0, 0.03))


def solved_but_rare(run):
    """The task is solved, but for one answer in some rows."""
    return run.put(int(0.6 * run.points), reward=lambda i, row: 0.998 if run.random.random() < 0.1 else 1.0, reward_std=0.0, zero_std=1.0,
                   advantage=0.0, spread=0.0)


def kl_spikes(run):
    """Spikes of the KL in single rows."""
    for row in run.rows:
        row["kl"] = 0.02 * run.about(0.2) * (30 if run.random.random() < 0.025 else 1)
    return run


HEALTHY = {f.__name__: f for f in (dips, harder_prompts, flat_and_noisy, signed_reward, spread_rises_and_falls, spread_is_flat, few_prompts, turns,
                                   solved_but_rare, kl_spikes)}

def no_gradient(run):
    """The loss does not reach the parameters, although groups have spread."""
    return run.put(int(0.3 * run.points), grad_norm=0.0)


# Forms that log a gradient norm and a spread.
WITH_SPREAD = ("trl_state", "trl_console", "verl_console", "verl_file", "openrlhf", "swift", "skyrl", "roll")


def rate_of_zero(run):
    return run.put(0, lr=0.0)


# Forms that log a rate with all digits.
WITH_EXACT_RATE = ("trl_state", "verl_file", "skyrl", "roll", "areal")


def without_reference(run):
    return run.put(0, kl=0.0)


# Single files with the names that a trainer of few metrics logs.


def lines_of(rows):
    return {"metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def state_of(rows):
    return {"trainer_state.json": json.dumps({"global_step": len(rows), "max_steps": len(rows), "logging_steps": 1, "log_history": rows})}


PENALTIES = {
    "alone": lambda row: {}, "length": lambda row: {"completion_length": row["length"]},
    "entropy": lambda row: {"entropy": row["entropy"], "grad_norm": row["grad_norm"], "learning_rate": row["lr"]},
    "functions": lambda row: {"rewards/correctness_reward_func/mean": row["reward"], "completions/mean_length": row["length"]},
    "policy": lambda row: {"policy_loss": 1e-9}, "pass": lambda row: {"pass@1": row["reward"], "response_length": row["length"]},
    "scores": lambda row: {"objective/scores": row["reward"]}}


def penalty(run, names):
    """GRPO's loss is beta times the KL, which begins at 0 and rises."""
    beta = run.random.choice((0.001, 0.04, 0.1))
    rows = []
    for i, row in enumerate(run.rows):
        kl = 0.25 * (1 - math.exp(-3 * i / run.points)) * run.about(0.1)
        rows.append({"step": i + 1, "loss": beta * kl, "kl": kl, **names(row)})
    return lines_of(rows)


def autoencoder_diverges(run):
    """Not a penalty: the loss has more than its KL, and diverges."""
    first, rows = run.points // 2, []
    for i in range(run.points):
        kl = 4 * (1 - math.exp(-5 * i / run.points)) * run.about(0.03)
        rest = (2 + 4 * math.exp(-6 * i / run.points)) * run.about(0.03) * (1 if i < first else math.exp((i - first) / 8))
        rows.append({"step": i + 1, "loss": rest + 0.1 * kl, "kl": kl})
    return lines_of(rows)


def kto(run):
    """TRL's KTO: kl is a sum over a sequence, clamped at 0, and grows to 20."""
    rows = []
    for i, row in enumerate(run.rows):
        part = i / run.points
        rows.append({"step": i + 1, "loss": (0.5 - 0.2 * part) * run.about(0.04), "kl": max(0.0, 20 * part ** 1.5 + run.random.gauss(0, 0.3)),
                     "rewards/chosen": part + run.random.gauss(0, 0.1), "rewards/rejected": -part, "rewards/margins": 2 * part + run.random.gauss(0, 0.1),
                     "logps/chosen": -196.0, "logps/rejected": -207.0, "entropy": 1.2 * run.about(0.02), "learning_rate": row["lr"]})
    return state_of(rows)


def kto_diverges(run):
    state = json.loads(kto(run)["trainer_state.json"])
    for i, row in enumerate(state["log_history"][run.points // 2:]):
        row["loss"] *= math.exp(i / 10)
    return {"trainer_state.json": json.dumps(state)}


def format_learnt(run):
    """The second reward of GRPO is at its maximum while the first rises."""
    rows = []
    for i, row in enumerate(run.rows):
        form = min(1.0, 0.1 + 4 * i / run.points)
        rows.append({**rl_logs.trl(row), "step": i + 1, "rewards/format_reward/mean": form, "rewards/format_reward/std": 0.3 * (1 - form),
                     "reward": row["reward"] + form})
    return state_of(rows)


def sequence_mask(run):
    """TRL's default masks weights of sequences above 3: their mean is 0.3 to 0.5 for long answers."""
    rows = [{**rl_logs.trl(row), "step": i + 1, "sampling/importance_sampling_ratio/mean": 0.4 * run.about(0.1),
             "sampling/importance_sampling_ratio/max": 2.99} for i, row in enumerate(run.rows)]
    return state_of(rows)


def cases(seeds=1):
    """Yields (name, expected, files)."""
    for number, (form, write) in enumerate(FORMS.items()):
        for name, (change, expected, without) in DISASTERS.items():
            if form in without or (name == "mismatch-reward" and form in NEMO):
                continue
            for seed in range(seeds):
                yield f"{form}-{name}-{seed}", expected, write(change(Run(3000 * number + seed)))
        for name, change in HEALTHY.items():
            for seed in range(seeds):
                yield f"{form}-{name}-{seed}", None, write(change(Run(91000 + 100 * number + seed)))
        if form in MORE:
            for seed in range(4 * seeds):
                yield f"{form}-healthy-{seed}", None, write(Run(60000 + 100 * number + seed))
            for name, (change, expected) in rl_logs.DISASTERS.items():
                if (name, form) in (("reference-kl", "areal"), ("ratio", "roll"), ("ratio", "skyrl")):
                    continue
                for seed in range(seeds):
                    yield f"{form}-{name}-{seed}", expected, write(change(Run(1000 * number + seed)))
    for number, form in enumerate(WITH_SPREAD):
        yield f"{form}-no-gradient", [("health/gradient-vanish", "warning")], FORMS[form](no_gradient(Run(95000 + number, 150)))
    for number, form in enumerate(WITH_EXACT_RATE):
        for seed in range(seeds):
            for name, change, expected in (("flat", flat_and_noisy, [("health/learning-rate", "error")]), ("learnt", learnt, None)):
                yield f"{form}-rate-0-{name}-{seed}", expected, FORMS[form](rate_of_zero(change(Run(98000 + 100 * number + seed, 150))))
    for form in ("nemo", "openrlhf"):
        yield f"{form}-without-reference", None, FORMS[form](without_reference(Run(96000, 90)))
    for form in ("trl_state", "verl_file"):
        yield f"{form}-same-reference", [(COLLAPSE, "warning")], FORMS[form](without_reference(Run(97000, 90)))
    for seed in range(2 * seeds):
        for name, names in PENALTIES.items():
            yield f"penalty-{name}-{seed}", None, penalty(Run(80000 + seed), names)
        for write in (kto, format_learnt, sequence_mask):
            yield f"{write.__name__}-{seed}", None, write(Run(81000 + seed, 200))
        for write in (autoencoder_diverges, kto_diverges):
            yield f"{write.__name__}-{seed}", [("health/loss-divergence", "error")], write(Run(82000 + seed, 200))
