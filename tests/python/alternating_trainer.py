"""Healthy trainers with the two lines in them. Parts of the model are absent from some steps.

    alternating_trainer.py RECORD KIND [SEED [STEPS [PAUSE]]]     PAUSE: seconds a step, as of a larger model's

KIND: gan (the discriminator, then the generator), gan-2 and gan-5 (the generator in each 2nd or 5th step), gan-micro (the
discriminator's gradient of two backward passes), gan-left (a fault: the discriminator is updated with what the generator's loss
has left, too), gan-nan (its loss is NaN in step 60), gan-two-lines (a watch for each), critic (a second network that is updated in
odd steps alone), tasks (a body with an optimizer of its own gets the gradients of two heads, one of them reversed), odd-layer (a
layer that is left out of even steps), third-layer (it lives in one of three).
"""

import sys
import time

import torch
from torch import nn

import plumbline

WIDTH, BATCH = 24, 32


def net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))


class Skipping(nn.Module):
    """Two layers, and one between them that is used in some steps."""

    def __init__(self):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, lives):
        x = torch.relu(self.first(x))
        return self.last(x + torch.relu(self.between(x)) if lives else x)


def train_gan(run, kind, steps, pause):
    generator, critic = net(4, 2), net(2, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    if kind == "gan-two-lines":
        run.watch(generator, of_generator)
        run.watch(critic, of_critic)
    else:
        run.watch(nn.ModuleDict({"generator": generator, "critic": critic}), [of_critic, of_generator])
    judge = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    every = int(kind[4:]) if kind[4:].isdigit() else 1
    for i in range(steps):
        real = torch.randn(BATCH, 2) * torch.tensor([1.0, 0.3]) + 2
        made = generator(torch.randn(BATCH, 4))
        # The loss of the discriminator: on real samples and on generated samples.
        of_critic.zero_grad()
        if kind == "gan-micro":
            judge(critic(real), ones).backward()
            judge(critic(made.detach()), zeros).backward()
        else:
            loss = judge(critic(real), ones) + judge(critic(made.detach()), zeros)
            (loss * float("nan") if kind == "gan-nan" and i == 60 else loss).backward()
        of_critic.step()
        # The loss of the generator: its backward pass goes through the critic.
        if i % every == every - 1:
            of_generator.zero_grad()
            judge(critic(made), ones).backward()
            of_generator.step()
        time.sleep(pause)


def train_left(run, steps, pause):
    """Trains the generator first. The gradient that its loss leaves in the discriminator is not cleared."""
    generator, critic = net(4, 2), nn.Sequential(nn.Linear(2, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    of_generator, of_critic = (torch.optim.Adam(one.parameters(), lr=1e-3) for one in (generator, critic))
    run.watch(nn.ModuleDict({"generator": generator, "critic": critic}), [of_critic, of_generator])
    judge = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    for _ in range(steps):
        made = generator(torch.randn(BATCH, 4))
        judge(critic(made), ones).backward()
        of_generator.step()
        of_generator.zero_grad()
        (judge(critic(torch.randn(BATCH, 2) + 2), ones) + judge(critic(made.detach()), zeros)).backward()
        of_critic.step()
        of_critic.zero_grad()
        time.sleep(pause)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -gradient


def train_tasks(run, steps, pause):
    """Reverses the second head's gradient, as in training that removes its target from the features."""
    body, first, second = net(8, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)
    of_body, of_first, of_second = (torch.optim.Adam(one.parameters(), lr=1e-3) for one in (body, first, second))
    run.watch(nn.ModuleList([body, first, second]), [of_body, of_first, of_second])
    for _ in range(steps):
        x = torch.randn(BATCH, 8)
        (second(Reverse.apply(body(x))) - x[:, :1]).pow(2).mean().backward()
        of_second.step()
        of_second.zero_grad()
        (first(body(x)) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        for one in (of_first, of_body):
            one.step()
            one.zero_grad()
        time.sleep(pause)


def train_critic(run, steps, pause):
    """Trains an actor in every step, and its critic in odd steps."""
    actor, critic = net(4, 1), net(4, 1)
    of_actor, of_critic = torch.optim.Adam(actor.parameters(), lr=1e-3), torch.optim.Adam(critic.parameters(), lr=1e-3)
    run.watch(nn.ModuleDict({"actor": actor, "critic": critic}), [of_actor, of_critic])
    for i in range(steps):
        x = torch.randn(BATCH, 4)
        with run.step(i):
            of_actor.zero_grad()
            (actor(x) - x.sum(1, keepdim=True) - 0.3 * torch.randn(BATCH, 1)).pow(2).mean().backward()
            of_actor.step()
            if i % 2 == 1:
                of_critic.zero_grad()
                (critic(x) - x.prod(1, keepdim=True) - 0.3 * torch.randn(BATCH, 1)).pow(2).mean().backward()
                of_critic.step()
        time.sleep(pause)


def train_layer(run, period, steps, pause):
    model = Skipping()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    for i in range(steps):
        x = torch.randn(BATCH, 8)
        optimizer.zero_grad()
        (model(x, i % period == period - 1) - x.sum(1, keepdim=True) - 0.3 * torch.randn(BATCH, 1)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(pause)


def main():
    record, kind = sys.argv[1:3]
    seed, steps, pause = (cast(word) for cast, word in zip((int, int, float), [*sys.argv[3:], *("0", "300", "0")[len(sys.argv) - 3 :]]))
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    run = plumbline.init(run="alternating", record=record, budget=1)
    if kind == "gan-left":
        train_left(run, steps, pause)
    elif kind == "tasks":
        train_tasks(run, steps, pause)
    elif kind.startswith("gan"):
        train_gan(run, kind, steps, pause)
    elif kind == "critic":
        train_critic(run, steps, pause)
    else:
        train_layer(run, {"odd-layer": 2, "third-layer": 3}[kind], steps, pause)
    run.finish()


if __name__ == "__main__":
    main()
