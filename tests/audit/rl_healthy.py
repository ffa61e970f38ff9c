"""Healthy logs of reinforcement learning, made by a small model of the training itself: prompts with difficulties, a policy whose ability
grows, groups of sampled answers. Mean reward, spread, groups without spread and zero gradients follow from the sampled answers. A run
draws its kind, length (30 to 2,000 points), batch, noise and restarts from a seed. No case has a fault."""

import json
import math
import random

import rl_families
import rl_logs

FORMS = {**rl_families.FORMS}


def settles(level, speed):
    return lambda done: level * (1 - math.exp(-speed * done))


class Course:
    """Draws the courses of one run over the part `done` of it, in [0, 1]."""

    KINDS = ("steady", "plateau", "solved", "sparse", "few_prompts", "late", "curriculum", "dynamic", "signed", "shaped", "mixed_data", "long_answers")

    def __init__(self, kind, draw):
        self.kind, self.draw = kind, draw
        start, gain = draw.uniform(-2.5, 0.5), draw.uniform(1.5, 4)
        middle, speed = draw.uniform(0.2, 0.7), draw.uniform(3, 12)
        self.ability = {
            "plateau": lambda done: start + 0.8 * gain * (1 - math.exp(-speed * done)),
            "solved": lambda done: start + 14 / (1 + math.exp(-2 * speed * (done - 0.6 * middle))),
            "sparse": lambda done: -3.5 + 1.5 * done,  # most groups have no right answer
            "late": lambda done: -5 + (gain + 4) / (1 + math.exp(-4 * speed * (done - middle))),
        }.get(kind, lambda done: start + gain * done ** draw_power)
        draw_power = draw.choice((0.5, 0.7, 1.0))
        self.prompts = draw.choice((1, 2, 4)) if kind == "few_prompts" else draw.choice((8, 16, 32, 64))
        self.group = 16 if kind == "sparse" else draw.choice((4, 8, 16))
        self.spread_of_prompts = draw.choice((0.3, 1.0, 2.0))
        self.stages = draw.choice((2, 3, 5))
        self.harder = min(1.2, gain * draw.uniform(0.4, 1) / self.stages)  # each stage is harder, the policy learns as much in it
        self.kl = draw.choice((settles(draw.choice((0.02, 0.1, 0.4)), 4), settles(draw.choice((0.005, 0.05)), 1), lambda done: 0.25 * done,
                               lambda done: 0.02 + 0.3 * done ** 2))
        self.kl_noise = draw.choice((0.05, 0.2, 0.5))
        keep, fall = draw.uniform(0.25, 1.15), draw.uniform(1, 6)
        level = draw.choice((0.12, 0.3, 0.6, 1.2, 2.0))
        self.entropy = lambda done: level * (keep + (1 - keep) * math.exp(-fall * done))
        self.loss_level, self.loss_rise = draw.choice((0.002, 0.02, 0.06)), draw.choice((0, 0, 0.02, 0.05))
        self.mismatch = draw.choice((2e-7, 1e-3, 3e-3, 8e-3, 0.016))
        self.mismatch_rise, self.tail = draw.choice((1, 1, 1.5)), draw.choice((0.05, 0.15, 0.3))
        self.length, self.longer = draw.choice((180, 700, 4000)), draw.uniform(-0.3, 1.5)
        self.truncated = draw.choice((0.0, 0.01, 0.05, 0.12))

    def difficulty(self, done):
        stage = self.harder * math.floor(done * self.stages) if self.kind == "curriculum" else 0
        hard = 3 if self.kind == "mixed_data" and self.draw.random() < 0.4 else 0
        return stage + hard + self.draw.gauss(0, self.spread_of_prompts)

    def groups(self, done):
        """Returns the mean reward of each group, and its standard deviation."""
        groups = []
        while len(groups) < self.prompts:
            chance = 1 / (1 + math.exp(self.difficulty(done) - self.ability(done)))
            right = sum(self.draw.random() < chance for _ in range(self.group))
            if self.kind == "dynamic" and right in (0, self.group) and self.draw.random() < 0.97:
                continue  # drawn again
            mean = right / self.group
            groups.append((mean, math.sqrt(mean * (1 - mean) * self.group / (self.group - 1))))
        if self.kind == "signed":
            return [(2 * mean - 1, 2 * spread) for mean, spread in groups]
        if self.kind == "shaped":
            return [(3 * mean + self.draw.gauss(0, 0.3) - 1, math.hypot(3 * spread, 0.3) * self.draw.uniform(0.9, 1.1)) for mean, spread in groups]
        return groups


class HealthyRun:
    def __init__(self, kind, seed):
        self.random = draw = random.Random(f"{kind}-{seed}")
        self.points = n = round(math.exp(draw.uniform(math.log(30), math.log(2000)))) if draw.random() < 0.6 else draw.randint(30, 240)
        course = Course(kind, draw)
        starts, first = [], 0
        for _ in range(draw.choice((0, 0, 1, 3))):  # a restart begins at a checkpoint, some steps before the end of the attempt
            end = draw.randint(first + n // 8 + 1, max(first + n // 8 + 1, n - 1))
            starts.append((first, min(end, n)))
            first = max(0, min(end, n) - draw.randint(0, max(1, n // 15)))
        starts.append((first, n))
        self.rows = [self.row(course, i) for begin, end in starts for i in range(begin, end)]

    def about(self, noise):
        return math.exp(self.random.gauss(0, noise))

    def row(self, course, i):
        r, about, done = self.random, self.about, i / self.points
        groups = course.groups(done)
        reward = sum(mean for mean, _ in groups) / len(groups)
        spread = sum(s for _, s in groups) / len(groups)
        zero = sum(s == 0 for _, s in groups) / len(groups)
        learns = zero < 1
        kl_term = 0.001 * course.kl(done)
        mismatch = course.mismatch * course.mismatch_rise ** done * about(course.tail) * (6 if r.random() < 0.004 else 1)
        long = course.longer * (1.5 if course.kind == "long_answers" else 1)
        return {
            "step": i + 1, "loss": (r.gauss(course.loss_rise * done, course.loss_level) if learns else 0.0) + kl_term,
            "grad_norm": about(0.3) * 0.3 * (0.2 + spread) if learns else 1e-3 * about(0.2), "lr": 1e-6 * min(1, (i + 1) / 10) * (1 - 0.9 * done),
            "reward": reward, "reward_std": spread, "zero_std": zero, "spread": 0.8 * spread, "advantage": 2.1 * about(0.1) if learns else 0.0,
            "kl": course.kl(done) * about(course.kl_noise) + 1e-5, "entropy": course.entropy(done) * about(0.06),
            "mismatch": mismatch, "mismatch_max": 20 * mismatch * about(0.5), "mismatch_prob": 0.3 * mismatch * about(0.1),
            "mismatch_kl": mismatch ** 2 * about(0.25), "ratio": 1 + r.gauss(0, 0.15 * mismatch), "factor": 1 + mismatch,
            "clip": 0.01 * about(0.6), "step_kl": 2e-4 * about(0.6), "length": course.length * (1 + long * done) * about(0.08),
            "truncated": min(0.45, course.truncated * (1 + 3 * max(0, long) * done) * about(0.3)), "seconds": 21 * about(0.15)}


def cases(seeds, first=0):
    """Yields (name, None, files), with `seeds` runs of each kind, in the forms in turn."""
    forms = list(FORMS.items())
    for number, kind in enumerate(Course.KINDS):
        for seed in range(first, first + seeds):
            form, write = forms[(5 * number + seed) % len(forms)]
            yield f"{form}-{kind}-{seed}", None, write(HealthyRun(kind, seed))
