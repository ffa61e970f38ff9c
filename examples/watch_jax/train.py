#!/usr/bin/python3
"""Trains a small network with JAX and optax. Its arrays go to Plumbline by DLPack; nothing else of JAX is needed.

  train.py                                       # without it: the same losses, to the bit
  train.py --record runs/good                    # then: plumb audit runs/good
  train.py --record runs/bad --fault nan         # a mistake that trains on, and is named
"""

import argparse

import jax
import jax.numpy as jnp
import optax
import plumbline

FAULTS = {
    "none": "as it should be",
    "nan": "the learning rate is NaN from step 30 on",
    "frozen": "the first layer's update is thrown away",
}
WIDTH, ROWS, RATE = 32, 64, 1e-2


def initial(key):
    one, two = jax.random.split(key)
    return {"first": jax.random.normal(one, (8, WIDTH)) * 0.3, "second": jax.random.normal(two, (WIDTH, 1)) * 0.2}


def loss_of(weights, rows):
    return jnp.mean((jnp.tanh(rows @ weights["first"]) @ weights["second"] - jnp.sin(rows.sum(1, keepdims=True))) ** 2)


def train(run, steps, fault):
    optimizer = optax.adam(RATE)
    weights = initial(jax.random.PRNGKey(0))
    state, losses = optimizer.init(weights), []

    @jax.jit
    def update(weights, state, rows):
        loss, gradients = jax.value_and_grad(loss_of)(weights, rows)
        meant, state = optimizer.update(gradients, state, weights)
        return loss, gradients, meant, state

    for step in range(steps):
        rows = jax.random.normal(jax.random.PRNGKey(step + 1), (ROWS, 8))
        loss, gradients, meant, state = update(weights, state, rows)
        made = {name: change * 0 if (fault, name) == ("frozen", "first") else change for name, change in meant.items()}
        if fault == "nan" and step >= 30:
            made = {name: change * jnp.nan for name, change in made.items()}
        after = optax.apply_updates(weights, made)
        with run.step(step):
            run.scalar("loss", float(loss))
            run.scalar("lr", RATE)
            for name in weights:
                run.observe_tensor(name, gradients[name], role="gradient")
                run.observe_tensor(name, after[name], role="weight")
                run.observe_update(name, weights[name], after[name], meant[name], gradient=gradients[name])
        weights = after
        losses.append(float(loss))
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", help="a folder for the run's record; none: nothing is observed")
    parser.add_argument("--server", help="host:port of plumbd")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault", choices=FAULTS, default="none", help="; ".join(f"{name}: {what}" for name, what in FAULTS.items()))
    options = parser.parse_args()
    with plumbline.init(run="watch_jax", record=options.record, server=options.server, every=1) as run:
        losses = train(run, options.steps, options.fault)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
