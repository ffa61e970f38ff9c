"""A loop of one's own on the newest torch."""

# Imported once, for all that is forked from here: what torch.compile needs, and most frameworks with it.
import threading

import plumbline
import torch
import torch._dynamo  # noqa: F401
import torch.distributed.tensor  # noqa: F401
from torch.nn.utils import clip_grad_norm_

from harness import case, expect
from small import Language, batches

STEPS = 30


def train(run, model, optimizer, micro=1, poison=None):
    run.watch(model, optimizer)
    losses = []
    for step, batch in enumerate(batches(STEPS)):
        for part in batch.chunk(micro):
            loss = model(part) / micro
            (loss * float("nan") if step == poison else loss).backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return losses, model.state_dict()


@case(steps=STEPS)
def adamw(run):
    model = Language()
    return train(run, model, torch.optim.AdamW(model.parameters(), lr=1e-3))


@case(steps=STEPS)
def momentum_of_micro_batches(run):
    model = Language()
    return train(run, model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9), micro=2)


@case(steps=STEPS)
def compiled(run):
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return train(run, torch.compile(model, backend="aot_eager"), optimizer)


def graphs():
    """What the compiler has made, and where it broke: with Plumbline the same as without."""
    counters = torch._dynamo.utils.counters
    return [sorted(counters["graph_break"].items()), counters["stats"]["unique_graphs"]]


@case(steps=STEPS)
def compiled_in_one_graph(run):
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return *train(run, torch.compile(model, backend="aot_eager", fullgraph=True), optimizer, micro=2), graphs()


@case(steps=STEPS)
def compiled_in_place(run):
    model = Language()
    model.compile(backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return *train(run, model, optimizer), graphs()


@case(states="watching [1-9]")
def compiled_step(run):
    """Loss, backward and clip in a compiled function, which breaks at backward by itself."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)

    @torch.compile(backend="aot_eager")
    def step(batch):
        loss = model(batch)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        return loss.detach()

    losses = []
    for batch in batches(10):
        losses.append(step(batch))
        optimizer.step()
        optimizer.zero_grad()
    return losses, model.state_dict(), graphs()


@case(steps=STEPS, finds={"health/loss-non-finite": 20, "precision/non-finite": 20})
def loss_is_nan(run):
    model = Language()
    return train(run, model, torch.optim.AdamW(model.parameters(), lr=1e-3), poison=20)


def scaled(run, overflows=(), clip=None, clips_first=False):
    """fp16's scaler, which run.watch is not given; clip_grad_norm_ was imported before. `clips_first`: before the gradients are unscaled."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=STEPS if clips_first else 7)
    run.watch(model, optimizer)
    losses, norms = [], {}
    for step, batch in enumerate(batches(STEPS)):
        loss = model(batch)
        poison = [model.head.weight.register_hook(lambda g: g * float("inf"))] if step in overflows else []
        scaler.scale(loss).backward()
        for one in poison:
            one.remove()
        if not clips_first:
            scaler.unscale_(optimizer)
        if clip:
            norm = clip_grad_norm_(model.parameters(), clip)
            norms |= {} if step in overflows or clips_first else {step: norm}
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad()  # not the optimizer's
        losses.append(loss.detach())
    expect(loss=losses, **({"grad_norm": norms} if clip and not clips_first else {}))
    return losses, model.state_dict()


@case(steps=STEPS, level="warning", finds={"health/gradient-vanish": None}, others=True)
def clip_before_unscale(run):
    return scaled(run, clip=1.0, clips_first=True)


@case(steps=STEPS, level="warning")
def scaler_of_the_trainers(run):
    return scaled(run)


@case(steps=STEPS, level="warning")
def scaler_skips_and_clips(run):
    return scaled(run, overflows=(0, 9, 10), clip=0.5)


class Adapted(torch.nn.Module):
    """A frozen base and a low-rank adapter. `cut`: nothing flows back to the adapter."""

    def __init__(self, cut=False):
        super().__init__()
        self.base = Language().requires_grad_(False)
        self.lora_A = torch.nn.Linear(32, 4, bias=False)
        self.lora_B = torch.nn.Linear(4, 64, bias=False)
        self.cut = cut

    def forward(self, words):
        hidden = self.base.embed(words[:, :-1])
        logits = self.base.head(hidden) + (self.lora_B(self.lora_A(hidden)).detach() if self.cut else self.lora_B(self.lora_A(hidden)))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def short(run, model, optimizer=None, loss_of=None, between=None):
    optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    run.watch(model, optimizer)
    for batch in batches(10):
        loss = model(batch)
        loss = loss_of(loss) if loss_of else loss
        loss.backward()
        if between:
            between(optimizer)
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@case(level="warning", finds={"health/no-gradient": 0})
def adapter_is_detached(run):
    return short(run, Adapted(cut=True), loss_of=lambda loss: loss + torch.zeros((), requires_grad=True))


@case(level="warning")
def adapter_is_trained(run):
    return short(run, Adapted())


@case(level="warning", finds={"health/no-gradient": 0})
def loss_is_made_anew(run):
    return short(run, Language(), loss_of=lambda loss: torch.tensor(loss.item(), requires_grad=True))


@case(level="warning", finds={"health/no-gradient": 0})
def cleared_before_the_step(run):
    return short(run, Language(), between=lambda optimizer: optimizer.zero_grad())


class TwoExperts(torch.nn.Module):
    """`blind`: the second one runs without gradients. `idle`: it never runs."""

    def __init__(self, blind=False, idle=False):
        super().__init__()
        self.language = Language()
        self.experts = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(2)])
        self.blind, self.idle = blind, idle

    def forward(self, words):
        hidden = self.language.embed(words[:, :-1])
        with torch.no_grad() if self.blind else torch.enable_grad():
            second = 0 if self.idle else self.experts[1](hidden)
        logits = self.language.head(hidden + self.experts[0](hidden) + second)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def of_experts(**options):
    model = TwoExperts(**options)
    model.language.block.requires_grad_(False)
    return model


@case(level="warning", finds={"health/no-gradient": 0})
def expert_without_gradients(run):
    return short(run, of_experts(blind=True))


@case(level="warning")
def experts_are_trained(run):
    return short(run, of_experts())


@case(level="warning")
def expert_never_runs(run):
    return short(run, of_experts(idle=True))


@case(finds={"health/no-gradient": 0})
def optimizer_of_another_model(run):
    return short(run, Language(), torch.optim.AdamW(Language().parameters(), lr=1e-3))


@case(level="warning", finds={"health/no-gradient": 0})
def head_is_replaced_after_the_watch(run):
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    model.head = torch.nn.Linear(32, 64)
    for batch in batches(10):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.zero_grad()
    return model.state_dict()


class Routed(torch.nn.Module):
    """Its own forward is not called in training: the loss is a method."""

    def __init__(self):
        super().__init__()
        self.language = Language()

    def loss(self, words):
        return self.language(words)


@case(steps=10, level="warning")
def loss_is_a_method(run):
    model = Routed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    for batch in batches(10):
        model.loss(words=batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    expect(tokens=dict.fromkeys(range(1, 10), 8 * 16))
    return model.state_dict()


def own_scale(run, change, clip=None):
    """The trainer scales its loss itself, and divides the gradients before the step. `change`: by it, every seventh step."""
    model, scale = Language(), 1024.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    losses = []
    for step, batch in enumerate(batches(STEPS)):
        loss = model(batch)
        (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        if clip:
            clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        scale *= change if step % 7 == 6 else 1
    expect(loss=losses)
    return losses, model.state_dict()


@case(steps=STEPS, level="warning")
def scale_of_ones_own(run):
    return own_scale(run, 2.0)


@case(steps=STEPS, level="warning")
def scale_of_ones_own_and_a_clip(run):
    return own_scale(run, 0.5, clip=0.1)


@case(steps=STEPS, level="warning")
def batch_ramp_divided_afterwards(run):
    """1, 2, then 4 micro-batches, each with its whole mean; the gradients are divided."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    means, parts = [], iter(batches(STEPS * 4))
    for step in range(STEPS):
        micro, losses = (1, 2, 4)[step * 3 // STEPS], []
        for _ in range(micro):
            losses.append(model(next(parts)))
            losses[-1].backward()
        for p in model.parameters():
            p.grad /= micro
        optimizer.step()
        optimizer.zero_grad()
        means.append(torch.stack(losses).mean().detach())
    expect(loss=means)
    return means, model.state_dict()


@case(steps=STEPS, level="warning")
def clip_of_ones_own(run):
    """A clip by hand is no scale: the loss stays what it is."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    losses = []
    for batch in batches(STEPS):
        loss = model(batch)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.grad *= min(1.0, 0.3 / float(norm))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    expect(loss=losses)
    return losses, model.state_dict()


@case(steps=10, level="warning")
def several_losses_by_autograd(run):
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    sums = []
    for batch in batches(10):
        one, other = model(batch), 0.1 * model(batch.flip(0))
        torch.autograd.backward([one, other])
        optimizer.step()
        optimizer.zero_grad()
        sums.append((one + other).detach())
    expect(loss=sums)
    return sums, model.state_dict()


def without_dropout():
    model = Language()
    model.block.self_attn.dropout = 0.0
    for one in model.modules():
        if isinstance(one, torch.nn.Dropout):
            one.p = 0.0
    return model


@case(level="warning", states="watching [1-9](.|\n)*watching [1-9]")
def two_trainers_in_two_threads(run):
    """A run each: no run records the other's losses."""
    other, results, turns = plumbline.init(run="other", record="other", every=1), {}, threading.Barrier(2)

    def trains(run, name, rate, model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        run.watch(model, optimizer)
        losses = []
        for batch in batches(10):
            loss = model(batch)
            turns.wait()  # both are between forward and backward
            loss.backward()
            turns.wait()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        results[name] = losses, model.state_dict()

    given = ((run, "one", 1e-3, without_dropout()), (other, "other", 1e-2, without_dropout()))
    threads = [threading.Thread(target=trains, args=each) for each in given]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    other.finish()
    expect(loss=results["one"][0])
    return [results[name] for name in sorted(results)]


def in_turn(run, weights_of=lambda model, before: None, turns=3):
    """A model and an optimizer that are made anew, and watched, in each turn."""
    losses, model, optimizer = [], None, None
    for turn in range(turns):
        before = (model, optimizer)
        model = Language()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        weights_of((model, optimizer), before)
        run.watch(model, optimizer)
        for batch in batches(40):
            loss = model(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    return losses, model.state_dict()


@case(level="warning")
def folds_of_a_validation(run):
    losses, state = in_turn(run)
    late = {name: {step: losses[step] for step in range(first, last)} for name, first, last in (("loss.1", 43, 80), ("loss.2", 82, 120))}
    expect(loss=losses[:40], **late)
    return losses, state


@case(level="warning")
def reloaded_within_the_process(run):
    def load(now, before):
        for one, old in zip(now, before):
            if old is not None:
                one.load_state_dict(old.state_dict())

    losses, state = in_turn(run, load, turns=2)
    expect(loss={step: loss for step, loss in enumerate(losses) if not 40 <= step < 43})
    return losses, state
