"""Families of logs, each with a faulty and a healthy case, for reported problems of short runs. Each case draws its
writer, names, digits, length, scale and noise from a seed. A case is (name, faulty, expected rules, options, files)."""

import math
import random

from log_writers import NORMS, SCALES, draw, hugging_face, number, words

NAN, INF = float("nan"), float("inf")


class Case:
    """`expects`: for a faulty log (rule, minimum level); for a healthy one the highest allowed level (None: no finding)."""

    def __init__(self, family, name, faulty, expects, files, cause=None, without=()):
        self.family, self.name, self.faulty, self.expects = family, name, faulty, expects
        self.files, self.cause, self.without = files, cause, without


class Run:
    def __init__(self, seed, points, writer=None, own=True):
        self.random = random.Random(seed)
        drawn = draw(self.random, own)
        self.writer, self.names, self.digits = (writer or drawn[0]), drawn[1], drawn[2]
        self.every = self.random.choice((1, 10, 50, 500))
        self.noise = self.random.choice((0.003, 0.01, 0.03))
        self.begin = self.random.choice((0.7, 1.9, 4.0, 10.8))
        self.end = self.begin * self.random.choice((0.3, 0.6, 0.8))
        self.rate = self.random.choice((2e-5, 1e-4, 3e-3))
        self.points = points
        self.rows = []
        for i in range(points):
            done = i / points
            warm = min(1.0, (i + 1) / max(1.0, 0.05 * points))
            self.rows.append({"step": self.every * (i + 1),
                              "loss": self.noisy(self.end + (self.begin - self.end) * math.exp(-5 * done)),
                              "norm": self.noisy(self.random.choice((1.0, 1.2)), 0.15), "rate": self.rate * warm * (1 - done)})

    def noisy(self, value, noise=None):
        return value * math.exp((noise or self.noise) * self.random.gauss(0, 1))

    def put(self, key, value, first=0, last=None):
        for i, row in enumerate(self.rows[first:last]):
            row[key] = value(i) if callable(value) else value
        return self

    def drop(self, *keys):
        for row in self.rows:
            for key in keys:
                row.pop(key, None)
        return self

    def at(self, low, high):
        """A row number between two shares of the run."""
        return self.random.randint(int(low * self.points), max(int(low * self.points), int(high * self.points) - 1))

    def file(self):
        name, text = self.writer(self.rows, self.names, self.digits)
        return {name: text}

    def evaluated(self, count, of):
        """Adds an evaluation `of` (the share done) to `count` of the rows."""
        for k in range(count):
            i = min(self.points - 1, (k + 1) * self.points // count - 1)
            self.rows[i]["eval"] = of(k / max(1, count - 1))
        return self


def norms_that_are_lost(seed, points):
    for where in ("from the first row", "later"):
        run = Run(seed, points)
        first = 0 if where != "later" else run.at(0.3, 0.6)
        run.put("norm", NAN, first)
        adjacent = run.random.choice(("finite", "zero", "nan"))
        if adjacent != "finite":
            run.put("loss", 0.0 if adjacent == "zero" else NAN, first)
        if run.random.random() < 0.4 and run.writer is not hugging_face:
            run.put("scale", 1.0)
        yield Case("1 norm is NaN", f"{where}, loss {adjacent}", True, ("health/loss-non-finite", "error"), run.file())
    run = Run(seed, points)
    run.rows[run.at(0.2, 0.9)]["norm"] = 0.0
    yield Case("1 norm is NaN", "a norm of 0 once", False, None, run.file())


def skipped_steps(seed, points):
    run = Run(seed, points)
    run.rows[run.at(0.2, 0.8)]["norm"] = run.random.choice((NAN, INF))
    yield Case("2 skipped step", "one row", False, "note", run.file())
    run = Run(seed, points, own=False)
    at = run.at(0.2, 0.8)
    run.rows[at]["norm"] = INF
    run.put("scale", 65536.0, 0, at).put("scale", 32768.0, at)
    yield Case("2 skipped step", "the scale halves", False, None, run.file())
    run = Run(seed, points, own=False)
    at = run.at(0.2, 0.8)
    run.rows[at]["norm"] = NAN
    run.put("skipped", 3, 0, at).put("skipped", 4, at)
    yield Case("2 skipped step", "the counter grows", False, None, run.file())
    run = Run(seed, points, own=False)
    rows = min(4, points // 4)
    run.put("norm", INF, 0, rows).put("scale", lambda i: 65536.0 / 2 ** min(i, rows))
    yield Case("2 skipped step", "the scaler finds its scale", False, "note", run.file())
    run = Run(seed, points, own=False)
    run.put("norm", INF, points // 2).put("scale", 1.0)
    yield Case("2 skipped step", "for good", True, ("health/loss-non-finite", "error"), run.file())


def losses_of_zero(seed, points):
    for norm in ("nan", "absent"):
        run = Run(seed, points)
        first = run.at(0.2, 0.6)
        run.put("loss", 0.0, first)
        if norm == "nan":
            run.put("norm", NAN, first)
        else:
            run.drop("norm")
        yield Case("3 loss of 0", f"norm {norm}", True, ("health/loss-non-finite", "error"), run.file())
    run = Run(seed, points, own=False).drop("norm")
    run.names.of["loss"] = "total_loss"
    run.put("loss_mask", 0.0, 0).put("l1_loss", 0.0, points // 2)
    yield Case("3 loss of 0", "parts that are switched off", False, None, run.file())
    run = Run(seed, points, own=False).drop("norm")
    term = run.random.choice(("sync_loss", "Sync Loss", "perceptual_loss", "ctc_loss", "loss_style", "gan_g_loss"))
    run.names.of["loss"] = run.random.choice(("L1", "recon", "objective"))
    run.put(term, lambda i: 0.0 if i < run.random.choice((points, points // 2)) else run.noisy(0.7))
    yield Case("3 loss of 0", "a term that is not switched on", False, "note", run.file())
    run = Run(seed, points, own=False)
    run.names.of["loss"] = run.random.choice(("loss", "train_loss", "train/loss", "training_loss", "total_loss"))
    run.put("depth_loss", lambda i: run.noisy(0.3)).put("loss_cos", lambda i: run.noisy(0.2, 0.003))
    run.put("normal_loss", lambda i: run.noisy(0.5 + 0.4 * i / points))
    yield Case("18 parts", "one rises, others stand", False, "note", run.file())
    run.put("loss", lambda i: run.noisy(3 * run.begin), points // 2)
    yield Case("18 parts", "the whole rises", True, ("health/loss-divergence", "error"), run.file())
    for whole in ("lm_loss", "lm loss", "train/lm_loss", "seg_loss", "mlm_loss"):
        run = Run(seed, points, own=False).drop("norm")
        run.names.of["loss"] = whole
        part = run.random.choice(("depth_loss", "itc_loss", "loss_cos", "normal_loss"))
        rise = run.random.choice((0, 0.4))
        run.put(part, lambda i, rise=rise: run.noisy(0.5 + rise * i / points, 0.005))
        yield Case("18 parts", f"one rises or stands, {whole} falls", False, "note", run.file())
        run.put("loss", lambda i: run.noisy(3 * run.begin), points // 2)
        run.put(part, lambda i: run.noisy(1.7), points // 2)
        yield Case("18 parts", f"{whole} rises with its part", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, points).drop("norm")
    run.put("loss", lambda i: max(0.0, round(1.3 - 1.8 * i / points + run.random.uniform(-0.08, 0.08), 2)))
    yield Case("3 loss of 0", "a hinge fades to 0", False, "note", run.file())
    run = Run(seed, points).drop("norm")
    run.put("loss", lambda i: round(2.0 * math.exp(-14 * i / points), 4))
    yield Case("3 loss of 0", "it fades to 0", False, None, run.file())


def breaks_at_once(seed, points):
    run = Run(seed, points)
    first = run.random.randint(2, min(10, points // 3))
    level = run.begin * run.random.choice((2.5, 5.7))
    run.put("loss", lambda i: run.noisy(level), first)
    yield Case("4 breaks at once", f"point {first + 1}", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, points)
    run.put("loss", lambda i: run.rows[i]["loss"] * (1 + 0.12 * math.exp(-((i - 4) / 2) ** 2)))
    yield Case("4 breaks at once", "a hump as the rate warms up", False, "note", run.file())
    run = Run(seed, points)
    run.rows[0]["loss"] = run.begin * 3
    yield Case("4 breaks at once", "a high first point", False, "note", run.file())


def explodes(seed, points):
    run = Run(seed, points)
    at = points // 10 + 2
    top, end = run.begin * 14, run.begin * run.random.choice((3.5, 5))
    run.put("loss", lambda i: run.noisy(end + (top - end) * math.exp(-8 * i / points)), at)
    yield Case("5 explodes", "ends higher than it started", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, points)
    yield Case("5 explodes", "twin", False, None, run.file())


def ruined(seed, points):
    run = Run(seed, points)
    at = points // 8 + 1
    run.put("loss", lambda i: run.noisy(run.begin * (3.4 + 22 * math.exp(-9 * i / points)), 0.02), at)
    yield Case("18 ruined", "84 and back to 14.3", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, points)
    at = points // 2
    run.put("loss", lambda i: run.rows[at + i]["loss"] * (1 + 2 * math.exp(-i)), at)
    yield Case("18 ruined", "a spike that passes", False, "warning", run.file(), without=("health/loss-divergence",))


def rates_of_zero(seed, points):
    run = Run(seed, points)
    run.digits = 16
    level = run.begin
    run.put("rate", 0.0).put("loss", lambda i: run.noisy(level))
    if run.writer.__name__ == "megatron":
        run.writer = hugging_face
    yield Case("6 rate 0", "flat, all digits", True, ("health/learning-rate", "error"), run.file())
    run = Run(seed, points, words)
    run.digits = 4
    for row in run.rows:
        row["loss"] = f"{row['loss']:.3f}"
        row["rate"] = "0.000"
    yield Case("6 rate 0", "printed as 0.000 while the loss falls", False, "note", run.file())


def overfits(seed, points):
    for noise in (0.005, 0.03):
        run = Run(seed, max(points, 40))
        run.put("loss", lambda i: run.noisy(0.4 * math.exp(-2.5 * i / run.points)))
        run.evaluated(points, lambda d: run.noisy(0.4 + 0.9 * d, noise))
        yield Case("7, 17 overfit", f"{points} evaluations, noise {noise}", True, ("health/overfit", "warning"), run.file())
    run = Run(seed, max(points, 40))
    scale = run.random.choice((0.1, 1.2, 8))
    run.evaluated(points, lambda d: run.noisy(scale * (1 + 0.5 * math.exp(-5 * d)), 0.03))
    yield Case("7, 17 overfit", "falls and stands", False, None, run.file())


def evaluations_that_are_lost(seed, points):
    run = Run(seed, max(points, 20))
    run.evaluated(max(5, points // 5), lambda d: NAN)
    yield Case("9 evaluation NaN", "all", True, ("health/loss-non-finite", "error"), run.file(), cause="evaluation")
    run = Run(seed, max(points, 20))
    run.evaluated(max(5, points // 5), lambda d: NAN if d > 0.4 else 1.2)
    yield Case("9 evaluation NaN", "later", True, ("health/loss-non-finite", "error"), run.file(), cause="evaluation")
    run = Run(seed, max(points, 20))
    run.evaluated(max(5, points // 5), lambda d: run.noisy(1.2, 0.01))
    yield Case("9 evaluation NaN", "finite", False, None, run.file())


def resumes(seed, points):
    if points < 60:
        return
    run = Run(seed, points, own=False)
    at, back = run.at(0.4, 0.6), run.random.randint(10, 14)
    again = Run(seed + 1000, points).random
    tail = [dict(row) for row in run.rows[at - back:]]
    for row in tail:
        row["loss"] = row["loss"] * 1.9 * math.exp(0.003 * again.gauss(0, 1))
    whole = run.rows[:at] + tail
    healthy = run.rows[:at] + [dict(row) for row in run.rows[at - back:]]
    run.rows = whole
    yield Case("10 resume", "a jump in its first step", True, (None, "warning"), run.file(), cause="resume")
    run.rows = healthy
    yield Case("10 resume", "goes on where it was", False, None, run.file())
    # A schedule that starts again from its minimum, without a step that goes back.
    for times in (7, 5):
        run = Run(seed, points, own=False)
        floor = 0.14
        run.put("rate", lambda i, run=run: run.rate * max(floor, 1 - 2.5 * i / points))
        anew = int(0.6 * points)
        run.put("rate", lambda i, run=run: run.rate * floor * times * max(0.2, 1 - 2 * i / points), anew)
        yield Case("10 resume", f"the rate jumps {times} times from its floor", True, ("health/learning-rate", "warning"), run.file())
    run = Run(seed, points, own=False)
    run.put("rate", lambda i: run.rate * max(0.14, 1 - 2.5 * i / points))
    yield Case("10 resume", "a floor to the end", False, None, run.file())


def norms_of_ranks(seed, points):
    for apart in (True, False):
        rand = random.Random(seed)
        form = rand.choice((
            lambda r, s, l, g: f"[rank{r}]: step: {s} loss: {l} grad_norm: {g}",
            lambda r, s, l, g: f"[rank{r}]:{{'loss': {l}, 'grad_norm': {g}, 'learning_rate': 1e-4, 'step': {s}}}",
            lambda r, s, l, g: f"[Rank {r}] step {s} | loss {l} | gnorm {g}"))
        lines = []
        for i in range(points):
            norm = 1.2 * math.exp(0.15 * rand.gauss(0, 1))
            for rank in range(2):
                mine = norm * (1 if not apart or rank == 0 else rand.uniform(1.2, 1.7))
                lines.append(form(rank, i + 1, f"{2 * math.exp(-i / points) + 0.02 * rank:.4f}", f"{mine:.4f}"))
        files = {"ranks.log": "\n".join(lines) + "\n"}
        expects = ("health/rank-norms", "warning") if apart else None
        yield Case("11 norms of ranks", "local" if apart else "the same", apart, expects, files)


OVERFLOWS = (
    lambda old, new: f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {old}, reducing to {new}",
    lambda old, new: f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {float(new)}",
    lambda old, new: f"overflow detected, setting loss scale to: {new}",
    lambda old, new: f"WARNING: overflow detected, setting loss scale to {float(new)}",
    lambda old, new: f"[2024-05-14 03:22:10,412] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
                     f"Attempted loss scale: {old}, reducing to {new}",
)


def overflows(seed, points):
    if points < 60:
        return
    for storm in (True, False):
        run = Run(seed, points, words)
        report = OVERFLOWS[seed % len(OVERFLOWS)]
        text = list(run.file().values())[0].splitlines()
        out, scale = [], 65536
        for i, line in enumerate(text):
            out.append(line)
            due = i >= points // 2 if storm else i == points // 2
            if due and scale > 1:
                out.append(report(scale, max(1, scale // 2)))
                scale = max(1, scale // 2)
            elif storm and due:
                out.append(report(1, 1))
        expects = ("health/loss-scale", "error") if storm else "note"
        yield Case("12 overflow", "a storm" if storm else "one", storm, expects, {"train.log": "\n".join(out) + "\n"})


ENDS = (
    ("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nValueError: bad labels\n", "exception"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB\n",
     "out-of-memory"),
    ("Killed\n", "killed"),
    ("[rank3]:[E514 03:22:10 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, "
     "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n", None),
)


def ends(seed, points):
    run = Run(seed, points, None)
    while run.writer.__name__ in ("csv", "json_lines", "trainer_state"):
        seed += 7919
        run = Run(seed, points)
    (name, text), = run.file().items()
    end, _ = ENDS[seed % len(ENDS)]
    yield Case("13 ends", end.split("\n")[0][:30], True, ("health/run-died", "error"), {name: text + end})
    yield Case("13 ends", "nothing", False, None, {name: text})


def memory(seed, points):
    if points < 60:
        return
    count = max(points, 120)
    rand = random.Random(seed)
    for grows in (True, False):
        lines = []
        form = rand.randrange(2)
        for i in range(count):
            share = 50 + (48.6 * i / count if grows else 0) + 0.02 * rand.random()
            loss = f"{2 * math.exp(-i / count):.4f}"
            if form == 0:
                lines.append(f"step: {i + 1}  loss: {loss}  memory: {0.7915 * share:.2f}GiB({share:.2f}%)  tps: 7,123")
            else:
                lines.append(f"step {i + 1} loss {loss} mem {0.7915 * share:.2f}GiB")
        end = "" if form == 0 else "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.15 GiB of which 1 GiB is free.\n"
        if form == 1 and not grows:
            end = ""
        yield Case("14 memory", f"form {form}", grows, ("performance/memory-creep", "warning") if grows else None,
                   {"train.log": "\n".join(lines) + "\n" + end})


def no_learning(seed, points):
    run = Run(seed, points, own=False)
    classes = run.random.choice((2, 5, 10))
    run.digits = 5
    run.put("loss", lambda i: run.noisy(math.log(classes), 0.0004)).put("rate", 1e-4)
    yield Case("16 no learning", f"ln {classes}, noise 0.04 %", True, ("health/not-learning", "warning"), run.file())
    if points < 60:
        return
    run = Run(seed, points)
    classes = run.random.choice((2, 5, 10))
    run.put("loss", lambda i: run.noisy(math.log(classes), 0.005))
    run.put("rate", 1e-4)
    yield Case("16 no learning", f"ln {classes}", True, ("health/not-learning", "warning"), run.file())
    run = Run(seed, points)
    run.put("loss", lambda i: run.noisy(run.begin * (0.7 if i > points // 3 else 1 - 0.9 * i / points)))
    yield Case("16 no learning", "a late plateau", False, "note", run.file())
    run = Run(seed, points)
    run.put("loss", lambda i: run.begin * (1 - 0.2 * i / points) * math.exp(0.15 * run.random.gauss(0, 1)))
    yield Case("16 no learning", "a small batch", False, "note", run.file())


def games(seed, points):
    if points < 60:
        return
    run = Run(seed, points, own=False)
    run.names.of["loss"] = "loss"
    run.put("loss", lambda i: run.noisy(0.7 + 2.8 * i / points, 0.1))
    other = run.random.choice(("d_loss", "loss_D", "disc_loss", "discriminator_loss"))
    run.put(other, lambda i: run.noisy(0.6 * math.exp(-i / points), 0.1))
    yield Case("19 game", f"loss next to {other}", False, "note", run.file())
    run = Run(seed, points, own=False)
    run.put("loss", lambda i: 0.01 + 1.6 * i / points * math.exp(0.1 * run.random.gauss(0, 1)))
    column = run.random.choice(("return", "returns", "avg_return", "score", "episode_reward", "ep_rew_mean", "mean_return"))
    run.put(column, lambda i: 200.0 * i / points)
    run.put("epsilon", lambda i: 1 - 0.95 * i / points)
    yield Case("19 game", f"DQN with {column}", False, "note", run.file())


def two_levels(seed, points):
    if points < 60:
        return
    run = Run(seed, points)
    apart, share = run.random.choice((0.5, 0.25)), run.random.choice((0.25, 0.5, 0.75))
    run.put("loss", lambda i: run.noisy((1 + 0.8 * math.exp(-4 * i / points)) * (apart if run.random.random() < share else 1), 0.06))
    yield Case("two levels", f"one of two tasks per step, {apart}, {share}", False, "note", run.file())
    run.put("loss", lambda i: run.noisy(8.0, 0.06), points // 2)
    yield Case("two levels", "both diverge", True, ("health/loss-divergence", "error"), run.file())


def evaluations_that_jump(seed, points):
    for jumps in (True, False):
        run = Run(seed, max(points, 10), own=False)
        run.evaluated(points, lambda d: run.noisy((6.5 if jumps and d > 0.5 else 0.9) + math.exp(-6 * d), 0.02))
        yield Case("evaluation jumps", "7 times" if jumps else "none", jumps, (None, "warning") if jumps else "note", run.file())


FAMILIES = (two_levels, evaluations_that_jump, norms_that_are_lost, skipped_steps, losses_of_zero, breaks_at_once, explodes, ruined, rates_of_zero, overfits,
            evaluations_that_are_lost, resumes, norms_of_ranks, overflows, ends, memory, no_learning, games)
POINTS = (10, 20, 60, 200)


def cases(seeds, families=FAMILIES):
    for family in families:
        for points in POINTS:
            for seed in seeds:
                for case in family(seed * 131 + points, points):
                    case.points, case.seed = points, seed
                    yield case
