"""Logs of reinforcement learning in the forms of twelve trainers: healthy runs, near-misses and disasters. Each case draws its
lengths, levels and noise from a seed. A case is (form, name, expected, files): `expected` is a list of (rule, least level) of which one
must be found, or None for a healthy run, which has no finding above a note."""

import json
import math
import random

from console_forms import fancy_grid


class Run:
    """Rows of canonical metrics of a healthy run."""

    def __init__(self, seed, points=None):
        self.random = r = random.Random(seed)
        self.points = n = points or r.choice((60, 90, 150, 300))
        self.final = r.choice((0.6, 0.85, 0.97))
        self.mismatch = r.choice((2e-7, 3e-3, 8e-3, 0.016))
        self.noise = r.choice((0.02, 0.06))
        level = {"kl": r.choice((0.02, 0.1, 0.3)), "entropy": r.choice((0.25, 0.6, 1.2)), "length": r.choice((180, 700, 4000))}
        middle, keep, zero = r.uniform(0.2, 0.6), r.uniform(0.3, 0.9), r.uniform(0.0, 0.3)
        self.rows = []
        for i in range(n):
            done = i / n
            reward = self.final / (1 + math.exp(-8 * (done - middle))) + 0.03
            mismatch = self.mismatch * self.about(0.1)
            self.rows.append({
                "step": i + 1, "loss": r.gauss(0, r.choice((0.01, 0.03))), "grad_norm": 0.3 * self.about(0.25), "lr": 1e-6 * min(1, (i + 1) / 10),
                "reward": min(1.0, max(0.0, reward + r.gauss(0, self.noise))), "reward_std": 0.3 * self.about(0.1) * (1.05 - reward),
                "zero_std": min(0.95, max(0.0, zero + 0.5 * reward * done + r.gauss(0, 0.04))),
                "kl": level["kl"] * (1 - math.exp(-4 * done)) * self.about(0.1) + 1e-5,
                "entropy": level["entropy"] * (keep + (1 - keep) * math.exp(-4 * done)) * self.about(0.04),
                "mismatch": mismatch, "mismatch_max": mismatch * 20 * self.about(0.4), "mismatch_prob": 0.3 * mismatch * self.about(0.1),
                "mismatch_kl": mismatch ** 2 * 2 * self.about(0.2), "ratio": 1 + r.gauss(0, 0.1 * mismatch), "factor": 1 + mismatch,
                "clip": 0.01 * self.about(0.5), "step_kl": 1e-4 * self.about(0.5), "length": level["length"] * (1 + 0.5 * done) * self.about(0.05),
                "truncated": 0.05 * self.about(0.3), "seconds": 21 * self.about(0.1)})

    def about(self, noise):
        return math.exp(self.random.gauss(0, noise))

    def put(self, first, **values):
        for i, row in enumerate(self.rows[first:]):
            for key, value in values.items():
                row[key] = value(i, row) if callable(value) else value
        return self


# Forms: each returns {file: text}.


def short(value):
    return f"{value:.4g}"


def trl(row):
    return {"loss": row["loss"], "grad_norm": row["grad_norm"], "learning_rate": row["lr"], "num_tokens": 64.0 * 512 * row["step"],
            "completions/mean_length": row["length"], "completions/clipped_ratio": row["truncated"], "rewards/accuracy_reward/mean": row["reward"],
            "rewards/accuracy_reward/std": row["reward_std"], "reward": row["reward"], "reward_std": row["reward_std"],
            "frac_reward_zero_std": row["zero_std"], "sampling/sampling_logp_difference/mean": row["mismatch"],
            "sampling/sampling_logp_difference/max": row["mismatch_max"], "sampling/importance_sampling_ratio/min": row["ratio"] * 0.8,
            "sampling/importance_sampling_ratio/mean": row["ratio"], "sampling/importance_sampling_ratio/max": row["ratio"] * 1.3,
            "kl": row["kl"], "entropy": row["entropy"], "clip_ratio/low_mean": 0.0, "clip_ratio/high_max": 2 * row["clip"],
            "clip_ratio/region_mean": row["clip"], "step_time": row["seconds"], "epoch": row["step"] / 100}


def trl_state(run):
    rows = [{**trl(row), "step": row["step"]} for row in run.rows]
    return {"trainer_state.json": json.dumps({"global_step": len(rows), "max_steps": len(rows), "logging_steps": 1, "log_history": rows})}


def trl_console(run):
    return {"train.log": "".join(str({key: float(short(value)) for key, value in trl(row).items()}) + "\n" for row in run.rows)}


def verl(row):
    return {"global_seqlen/mean": 40 * row["length"], "actor/entropy": row["entropy"], "actor/kl_loss": row["kl"], "actor/kl_coef": 0.001,
            "actor/pg_loss": row["loss"], "actor/pg_clipfrac": row["clip"], "actor/ppo_kl": row["step_kl"], "actor/pg_clipfrac_lower": 0.0,
            "actor/grad_norm": row["grad_norm"], "actor/lr": row["lr"], "training/rollout_probs_diff_valid": 1,
            "training/rollout_probs_diff_max": row["mismatch_max"], "training/rollout_probs_diff_mean": row["mismatch_prob"],
            "rollout_corr/kl": row["mismatch_kl"], "rollout_corr/k3_kl": row["mismatch_kl"], "rollout_corr/rollout_is_mean": row["ratio"],
            "training/global_step": row["step"], "training/epoch": 0, "critic/score/mean": row["reward"], "critic/rewards/mean": row["reward"],
            "response_length/mean": row["length"], "response_length/clip_ratio": row["truncated"], "perf/throughput": 1200.0,
            "timing_s/step": row["seconds"]}


def verl_console(run):
    return {"run.log": "".join(f"\x1b[36m(TaskRunner pid=3127)\x1b[0m step:{row['step']} - "
                               + " - ".join(f"{key}:{value}" for key, value in verl(row).items()) + "\n" for row in run.rows)}


def verl_file(run):
    return {"experiment.jsonl": "".join(json.dumps({"step": row["step"], "data": verl(row)}) + "\n" for row in run.rows)}


def nemo(run):
    lines = []
    for row in run.rows:
        lines += [f"========================= Step {row['step']}/{run.points} =========================", "", "📊 Training Results:",
                  f"  • Loss: {row['loss']:.4f}", f"  • Generation KL Error: {row['mismatch_kl']:.4f}", f"  • Avg Reward: {row['reward']:.4f}",
                  f"  • Mean Generation Length: {row['length']:.4f}", "", "⏱️  Timing:", f"  • Total step time: {row['seconds']:.2f}s"]
    metrics = [json.dumps({"step": row["step"], "train/loss": row["loss"], "train/gen_kl_error": row["mismatch_kl"], "train/reward": row["reward"],
                           "train/token_mult_prob_error": row["factor"], "train/approx_entropy": row["entropy"], "train/grad_norm": row["grad_norm"],
                           "train/lr": row["lr"], "train/kl_penalty": row["kl"], "train/baseline_reward/pct_0": row["zero_std"] / 2,
                           "train/sampling_importance_ratio": row["ratio"], "train/probs_ratio_clamped_mean": 1.0}) for row in run.rows]
    return {"console.log": "\n".join(lines) + "\n", "metrics.jsonl": "\n".join(metrics) + "\n"}


def nemo_console(run):
    """Without its metrics: the console has the step in a heading above each block, and neither entropy nor ratio."""
    return {"console.log": nemo(run)["console.log"]}


def slime(run):
    lines = []
    for row in run.rows:
        rollout = {"rollout/response_lengths": row["length"], "rollout/raw_reward": row["reward"], "rollout/rewards": 0.0,
                   "rollout/truncated": row["truncated"], "rollout/zero_std/count_1.0": round(16 * row["zero_std"])}
        train = {"train/loss": row["loss"], "train/pg_loss": row["loss"], "train/entropy_loss": row["entropy"], "train/pg_clipfrac": row["clip"],
                 "train/ppo_kl": row["step_kl"], "train/train_rollout_logprob_abs_diff": row["mismatch"], "train/kl_loss": row["kl"],
                 "train/mismatch_k3_kl": row["mismatch_kl"], "train/ois": row["ratio"], "train/grad_norm": row["grad_norm"], "train/lr-pg_0": row["lr"],
                 "train/step": row["step"]}
        perf = {"rollout/truncated_ratio": row["truncated"], "rollout/zero_std/count_0": 0, "perf/rollout_time": row["seconds"]}
        lines += [f"[2026-08-11 10:00:{row['step'] % 60:02d}] rollout.py:512 - perf {row['step']}: {perf}",
                  f"[2026-08-11 10:00:{row['step'] % 60:02d}] data.py:214 - rollout {row['step']}: {rollout}",
                  f"[2026-08-11 10:01:{row['step'] % 60:02d}] model.py:522 - step {row['step']}: {train}"]
    return {"slime.log": "\n".join(lines) + "\n"}


def prime(run):
    lines = []
    for row in run.rows:
        lines += [f"10:{row['step'] // 60 % 60:02d}:{row['step'] % 60:02d} SUCCESS Step {row['step']} | Time: {row['seconds']:.2f}s | Loss: {row['loss']:.4f} | "
                  f"Entropy: {row['entropy']:.4f} | Mismatch KL: {row['mismatch_kl']:.4f} | Grad. Norm: {row['grad_norm']:.4f} | LR: {row['lr']:.2e} | "
                  f"Throughput: 21034 tokens/s | MFU: 31.2% | Peak Mem.: 61.3/79.2 GiB (77.4%)"]
    metrics = [json.dumps({"step": row["step"], "loss/mean": row["loss"], "entropy/all/mean": row["entropy"], "mismatch_kl/all/mean": row["mismatch_kl"],
                           "mismatch_kl/all/max": row["mismatch_kl"] * 30, "reward/all/mean": row["reward"], "optim/grad_norm": row["grad_norm"],
                           "optim/lr": row["lr"], "seq_len/all/mean": row["length"], "is_masked/all/mean": row["clip"],
                           "kl_to_ref/mean": row["kl"], "solve_none": row["zero_std"] / 2, "solve_all": row["zero_std"] / 2}) for row in run.rows]
    return {"trainer.log": "\n".join(lines) + "\n", "metrics.jsonl": "\n".join(metrics) + "\n"}


def openrlhf(run):
    rows = [{"policy_loss": row["loss"], "actor_lr": row["lr"], "ppo_clip_ratio": row["clip"], "ppo_kl": row["step_kl"], "vllm_kl": row["mismatch_kl"],
             "entropy_loss": row["entropy"], "kl": row["kl"], "group_reward_std": row["reward_std"], "reward": row["reward"],
             "response_length": row["length"], "truncated": row["truncated"], "grad_norm": row["grad_norm"]} for row in run.rows]
    return {"openrlhf.log": "".join(f"(PPOTrainer pid=77) 2026-08-11 10:00:00.123 INFO ✨ Global step {run.rows[i]['step']}: {row}\n"
                                    for i, row in enumerate(rows))}


def open_instruct(run):
    return {"metrics.jsonl": "".join(json.dumps({
        "training_step": row["step"], "episode": 512 * row["step"], "objective/kl_avg": row["kl"], "loss/policy_avg": row["loss"],
        "policy/clipfrac_avg": row["clip"], "policy/entropy_avg": row["entropy"], "debug/vllm_vs_local_logprob_diff_mean": row["mismatch"],
        "debug/vllm_vs_local_logprob_diff_max": row["mismatch_max"], "debug/vllm_local_reverse_kl": row["mismatch_kl"], "scores": row["reward"],
        "val/ratio": row["ratio"], "val/sequence_lengths": row["length"], "lr": row["lr"], "optim/grad_norm": row["grad_norm"],
        "batch/percent_solved_mean": row["zero_std"], "unsolved_batch_size_ratio": 1 - row["zero_std"]}) + "\n" for row in run.rows)}


def swift(run):
    return {"logging.jsonl": "".join(json.dumps({
        "loss": row["loss"], "grad_norm": row["grad_norm"], "learning_rate": row["lr"], "completions/mean_length": row["length"],
        "completions/clipped_ratio": row["truncated"], "rewards/MathAccuracy/mean": row["reward"], "reward": row["reward"], "reward_std": row["reward_std"],
        "frac_reward_zero_std": row["zero_std"], "kl": row["kl"], "entropy/mean": row["entropy"], "clip_ratio/region_mean": row["clip"],
        "rollout_correction/kl": row["mismatch_kl"], "rollout_correction/k3_kl": row["mismatch_kl"], "rollout_correction/is_weight_mean": row["ratio"],
        "epoch": row["step"] / 100, "global_step/max_steps": f"{row['step']}/{run.points}", "memory(GiB)": 71.3, "train_speed(iter/s)": 0.04}) + "\n"
        for row in run.rows)}


def tinker(run):
    return {"metrics.jsonl": "".join(json.dumps({
        "step": row["step"], "env/all/reward/total": row["reward"], "env/all/ac_tokens_per_turn": row["length"],
        "env/all/by_group/frac_all_good": row["zero_std"] / 2, "env/all/by_group/frac_all_bad": row["zero_std"] / 2,
        "optim/kl_sample_train_v1": row["mismatch_kl"], "optim/kl_sample_train_v2": row["mismatch_kl"], "optim/entropy": row["entropy"],
        "optim/lr": row["lr"], "kl_policy_base": row["kl"], "progress/done_frac": row["step"] / run.points, "time/total": row["seconds"]}) + "\n"
        for row in run.rows)}


def plain(run):
    """Names of no framework."""
    return {"metrics.jsonl": "".join(json.dumps({
        "update": row["step"], "mean_reward": row["reward"], "ref_kl": row["kl"], "entropy": row["entropy"], "policy_loss": row["loss"],
        "vllm_kl": row["mismatch_kl"], "is_ratio_mean": row["ratio"], "frac_zero_std": row["zero_std"]}) + "\n" for row in run.rows)}


def areal(run):
    """The table below each step. It has no comparison with the engine, and no distance from a reference."""
    text = ""
    for row in run.rows:
        stats = {"task_reward/avg": row["reward"], "task_reward/max": 1.0, "task_reward/min": 0.0, "final_reward/avg": row["reward"],
                 "seq_len/avg": row["length"], "no_eos_ratios/avg": row["truncated"], "update/actor_loss/avg": row["loss"],
                 "update/entropy/avg": row["entropy"], "update/entropy/min": 0.1 * row["entropy"], "update/clip_ratio/avg": row["clip"],
                 "update/approx_kl/avg": row["step_kl"], "update/importance_weight/avg": 1.0, "update/dual_clip_ratio/avg": 0.0,
                 "update/grad_norm": row["grad_norm"], "update/lr": row["lr"]}
        of = f"{row['step']}/{run.points}"
        text += f"20260811-10:00:{row['step'] % 60:02d}.123 StatsLogger INFO: Epoch 1/1 Step {of} Train step {of} done.\n"
        text += fancy_grid({"ppo_actor/" + name: value for name, value in stats.items()}, 4) + "\n"
    return {"areal.log": text}


FORMS = {form.__name__: form for form in (trl_state, trl_console, verl_console, verl_file, nemo, nemo_console, slime, prime, openrlhf, open_instruct, swift, tinker, plain, areal)}

# The form has no such values.
UNLOGGED = {("nemo_console", "entropy"), ("nemo_console", "reference-kl"), ("areal", "reference-kl"), ("areal", "mismatch"),
            ("areal", "ratio")}

# Disasters begin at a row within the second quarter of the run.


def begin(run):
    return run.random.randrange(max(20, run.points // 4), run.points // 2)


def mismatch_runs_away(run):
    if run.mismatch < 1e-3:
        run.__init__(run.random.randrange(1 << 30))
        return mismatch_runs_away(run)
    first = begin(run)
    grown = lambda i: math.exp(min(math.log(250), math.log(250) * i / 25))
    falls = lambda i, row: row["reward"] * math.exp(-i / 10) if i < 25 else 0.0
    return run.put(first, reward=falls, mismatch=lambda i, row: row["mismatch"] * grown(i), mismatch_prob=lambda i, row: min(0.9, row["mismatch_prob"] * grown(i)),
                   mismatch_kl=lambda i, row: row["mismatch_kl"] * grown(i) ** 1.2, factor=lambda i, row: 1 + (row["factor"] - 1) * grown(i),
                   mismatch_max=lambda i, row: row["mismatch_max"] * grown(i) ** 0.5)


def ratio_off(run):
    return run.put(0, ratio=lambda i, row: 0.55 * row["ratio"], mismatch=lambda i, row: 0.6 * run.about(0.05), factor=lambda i, row: 1.8 * run.about(0.05),
                   mismatch_prob=lambda i, row: 0.21 * run.about(0.05), mismatch_kl=lambda i, row: 0.6 * run.about(0.05))


def entropy_collapses(run):
    first = begin(run)
    start = run.rows[first]["entropy"]
    stuck = run.rows[first]["reward"]
    return run.put(first, entropy=lambda i, row: max(1e-3, start * math.exp(-i / 4)) * run.about(0.05), zero_std=lambda i, row: 1.0 if i > 5 else row["zero_std"],
                   reward_std=lambda i, row: 0.0 if i > 5 else row["reward_std"], reward=lambda i, row: stuck * run.about(0.02))


def reference_kl_explodes(run):
    first = begin(run)
    start = run.rows[first]["kl"]
    return run.put(first, kl=lambda i, row: min(1e4, start * math.exp(i / 4)) * run.about(0.1))


DISASTERS = {"mismatch": (mismatch_runs_away, [("drift/mismatch-metric", "warning")]), "ratio": (ratio_off, [("drift/mismatch-metric", "warning")]),
             "entropy": (entropy_collapses, [("health/rl-collapse", "warning")]), "reference-kl": (reference_kl_explodes, [("health/rl-collapse", "warning")])}

# Healthy runs that look like disasters.


def solved(run):
    """Every group is solved at the end: no spread is left, and the reward is at its highest."""
    return run.put(int(0.7 * run.points), reward=1.0, reward_std=0.0, zero_std=1.0)


def reference_renewed(run):
    """The reference becomes the policy every 25 steps."""
    return run.put(0, kl=lambda i, row: 0.004 * (i % 25) * run.about(0.1))


def reference_of_sums_renewed(run):
    """The same, summed over a sequence."""
    return run.put(0, kl=lambda i, row: 0.12 * (i % 25) * run.about(0.1) + 0.01)


def sequence_ratios(run):
    return run.put(0, ratio=lambda i, row: min(2.0, run.about(0.25) * 0.92))


def from_zero(run):
    """The distance to the reference begins at 0 and grows to a tenth."""
    return run.put(0, kl=lambda i, row: 0.1 * (i / run.points) ** 2 * run.about(0.1))


def spikes(run):
    """Bursts of one to three points, 30 points apart."""
    for part in range(run.points // 30):
        first = 30 * part + run.random.randrange(20)
        for row in run.rows[first:first + run.random.randint(1, 3)]:
            row.update(mismatch=row["mismatch"] * 15, mismatch_kl=row["mismatch_kl"] * 40, mismatch_max=row["mismatch_max"] * 9, grad_norm=row["grad_norm"] * 2)
    return run


def sums_over_sequences(run):
    """The distance is summed over a sequence, as in PPO of TRL."""
    return run.put(0, kl=lambda i, row: 30 * (1 - math.exp(-6 * i / run.points)) * run.about(0.1) + 0.01)


def grows_threefold(run):
    if run.mismatch > 1e-2:  # would reach NeMo-RL's limit
        run.__init__(run.random.randrange(1 << 30))
        return grows_threefold(run)
    return run.put(0, mismatch=lambda i, row: row["mismatch"] * 3 ** (i / run.points), mismatch_kl=lambda i, row: row["mismatch_kl"] * 3 ** (i / run.points))


def learns_nothing_yet(run):
    """A hard task: most groups have the reward 0 for long, some do not."""
    return run.put(0, reward=lambda i, row: max(0.0, 0.02 + run.random.gauss(0, 0.01)), zero_std=lambda i, row: min(1.0, 0.93 + run.random.uniform(-0.05, 0.06)))


NEAR_MISSES = {f.__name__: f for f in (solved, reference_renewed, reference_of_sums_renewed, sequence_ratios, from_zero, spikes, sums_over_sequences, grows_threefold, learns_nothing_yet)}


def cases(seeds=2, near=1, healthy=20):
    """Yields (name, expected, files): of each form and disaster `seeds`, of each near-miss `near`, and healthy runs."""
    for number, (form, write) in enumerate(FORMS.items()):
        for name, (change, expected) in DISASTERS.items():
            if (form, name) in UNLOGGED:
                continue
            for seed in range(seeds):
                yield f"{form}-{name}-{seed}", expected, write(change(Run(1000 * number + seed)))
        for name, change in NEAR_MISSES.items():
            for seed in range(near):
                yield f"{form}-{name}-{seed}", None, write(change(Run(77000 + 100 * number + seed)))
        for seed in range(healthy):
            yield f"{form}-healthy-{seed}", None, write(Run(50000 + 100 * number + seed))
