"""JAX: plain calls, arrays by DLPack; the example of the tree."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import optax
from flax import linen

from harness import case, expect

FORK = False  # its threads are there once it has computed
STEPS, QUIET = 20, {"states": "^$"}  # nothing is watched, so nothing is printed


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(16)(x)))


def regression(run, optimizer, dtype=jnp.float32):
    """Gradients, updates and the loss by plain calls. `dtype`: of the weights; the reference is in fp32."""
    net = Net()
    data = jax.random.normal(jax.random.PRNGKey(1), (STEPS, 32, 8))
    weights = jax.tree.map(lambda x: x.astype(dtype), net.init(jax.random.PRNGKey(0), data[0]))
    state, losses = optimizer.init(weights), []

    @jax.jit
    def update(weights, state, x):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((net.apply(w, x)[:, 0] - x.sum(1)) ** 2))(weights)
        change, state = optimizer.update(jax.tree.map(jnp.float32, gradient), state, weights)
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
    expect(loss=losses)
    return losses, jax.tree.leaves(weights)


@case(steps=STEPS, level="warning", **QUIET)
def plain_calls(run):
    return regression(run, optax.adam(1e-2))


@case(steps=STEPS, level="warning", **QUIET)
def plain_calls_of_momentum(run):
    return regression(run, optax.sgd(1e-3, momentum=0.9))


@case(steps=STEPS, level="warning", finds={"precision/lost-update": None}, **QUIET)
def weights_in_bf16_that_lose_their_updates(run):
    return regression(run, optax.sgd(1e-4), jnp.bfloat16)


def mixture(run, bias, steps=120):
    """A router of 4 experts, 2 for each token, by plain calls."""
    optimizer, keys = optax.adam(1e-3), jax.random.split(jax.random.PRNGKey(2), 3)
    weights = {"router": jax.random.normal(keys[0], (8, 4)), "experts": 0.3 * jax.random.normal(keys[1], (4, 8, 8))}
    data = jax.random.normal(keys[2], (steps, 128, 8))

    def loss_of(weights, x):
        logits = x @ weights["router"] + jnp.array(bias)
        chosen, indices = jax.lax.top_k(logits, 2)
        outputs = jnp.einsum("td,edh->teh", x, weights["experts"])
        mixed = (jnp.take_along_axis(outputs, indices[:, :, None], 1) * jax.nn.softmax(chosen)[:, :, None]).sum(1)
        return jnp.mean((mixed - x[:, ::-1]) ** 2), (logits, indices)

    @jax.jit
    def update(weights, state, x):
        (loss, routing), gradient = jax.value_and_grad(loss_of, has_aux=True)(weights, x)
        change, state = optimizer.update(gradient, state, weights)
        return loss, routing, optax.apply_updates(weights, change), state

    state, losses = optimizer.init(weights), []
    for step in range(steps):
        with run.step(step):
            loss, (logits, indices), weights, state = update(weights, state, data[step])
            run.observe_routing("mixture", router_logits=logits, topk_indices=indices, top_k=2)
            run.scalar("loss", float(loss))
            losses.append(float(loss))
    expect(loss=losses)
    return losses, jax.tree.leaves(weights)


@case(steps=120, level="warning", **QUIET)
def a_router(run):
    return mixture(run, [0.0, 0.0, 0.0, 0.0])


@case(steps=120, level="warning", finds={"health/dead-expert": None}, others=True, **QUIET)
def a_router_with_a_dead_expert(run):
    return mixture(run, [0.0, 0.0, 0.0, -1e4])


def example(run, fault):
    path = pathlib.Path(__file__).resolve().parents[2] / "examples/watch_jax/train.py"
    spec = importlib.util.spec_from_file_location("watch_jax", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.train(run, 120, fault)


@case(steps=120, level="warning", **QUIET)
def the_example(run):
    return example(run, "none")


@case(steps=120, finds={"health/loss-non-finite": 31, "precision/non-finite": 30}, **QUIET)
def the_example_with_nan(run):
    return example(run, "nan")


@case(steps=120, level="warning", finds={"health/update-ratio": None}, **QUIET)
def the_example_with_a_frozen_layer(run):
    return example(run, "frozen")
