"""JAX: plain calls, arrays by DLPack; the example of the tree."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import optax
from flax import linen

from harness import case

FORK = False  # its threads are there once it has computed
STEPS = 20


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(16)(x)))


@case(steps=STEPS, says="^$")  # nothing is watched, so nothing is printed
def plain_calls(run):
    net, optimizer = Net(), optax.adam(1e-2)
    data = jax.random.normal(jax.random.PRNGKey(1), (STEPS, 32, 8))
    weights = net.init(jax.random.PRNGKey(0), data[0])
    state, losses = optimizer.init(weights), []

    @jax.jit
    def update(weights, state, x):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((net.apply(w, x)[:, 0] - x.sum(1)) ** 2))(weights)
        change, state = optimizer.update(gradient, state, weights)
        return loss, gradient, optax.apply_updates(weights, change), change, state

    for step in range(STEPS):
        with run.step(step):
            loss, gradient, after, change, state = update(weights, state, data[step])
            for name in ("Dense_0", "Dense_1"):
                run.observe_tensor(f"{name}.gradient", gradient["params"][name]["kernel"], role="gradient")
                run.observe_update(name, *(tree["params"][name]["kernel"] for tree in (weights, after, change)))
            run.scalar("loss", float(loss))
            weights = after
            losses.append(float(loss))
    return losses, jax.tree.leaves(weights)


def example(run, fault):
    path = pathlib.Path(__file__).resolve().parents[2] / "examples/watch_jax/train.py"
    spec = importlib.util.spec_from_file_location("watch_jax", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.train(run, 120, fault)


@case(steps=120, level="warning", says="^$")
def the_example(run):
    return example(run, "none")


@case(steps=120, finds={"health/loss-non-finite": 31, "precision/non-finite": 30}, says="^$")
def the_example_with_nan(run):
    return example(run, "nan")


@case(steps=120, level="warning", finds={"health/update-ratio": None}, says="^$")
def the_example_with_a_frozen_layer(run):
    return example(run, "frozen")
