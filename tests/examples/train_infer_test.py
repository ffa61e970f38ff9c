"""Passes two dumps of one forward pass, training's and inference's, through `plumb audit`.

A small stack of mixture layers runs twice on the same tokens: in fp32 as in training, and with its gates in bf16 as in
an inference engine. Then once more with one router's weights from before an update.
"""

import unittest

import torch

import support
from safetensors_file import write

RULE = "causality/train-infer-routing"
LAYERS, SEQUENCES, LENGTH, WIDTH, EXPERTS, TOP_K = 8, 8, 160, 32, 16, 4
STALE = 3


class Stack:
    def __init__(self, random):
        def weights(*shape):
            return torch.randn(*shape, generator=random) / WIDTH ** 0.5
        self.gates = [weights(WIDTH, EXPERTS) for _ in range(LAYERS)]
        self.experts = [weights(EXPERTS, WIDTH, WIDTH) for _ in range(LAYERS)]

    def route(self, x, dtype):
        """Yields (logits, indices, gates) of every layer; each layer gets the output of the one before."""
        for gate, experts in zip(self.gates, self.experts):
            logits = (x.to(dtype) @ gate.to(dtype)).float()
            weights, indices = logits.softmax(-1).topk(TOP_K)
            yield logits, indices, weights
            out = torch.einsum("tw,twv->tv", x, (experts[indices] * weights[..., None, None]).sum(1))
            x = torch.nn.functional.layer_norm(x + 0.5 * out, (WIDTH,))


def dump(folder, mode, calls):
    rows = torch.arange(SEQUENCES * LENGTH)
    for layer, (logits, indices, weights) in enumerate(calls):
        write(folder / f"{mode}.{layer}.safetensors",
              {"router_logits": logits, "topk_indices": indices, "probs": weights,
               "sequence_id": rows // LENGTH, "position": rows % LENGTH},
              {"kind": "routing", "top_k": TOP_K, "layer": f"layers.{layer}", "step": 7, "rank": 0,
               "run": "pair", "mode": mode, "capacity": "none", "score_function": "softmax"})


def audited(change=None):
    random = torch.Generator().manual_seed(3)
    stack = Stack(random)
    x = torch.randn(SEQUENCES * LENGTH, WIDTH, generator=random)
    with support.scratch() as folder:
        dump(folder, "train", stack.route(x, torch.float32))
        calls = list(change(stack, x, random) if change else stack.route(x, torch.bfloat16))
        dump(folder, "eval", calls)
        _, report = support.audit(folder)
    return report


def stale(stack, x, random):
    stack.gates[STALE] = stack.gates[STALE] + 0.02 * torch.randn(WIDTH, EXPERTS, generator=random)
    return stack.route(x, torch.bfloat16)


def unrecorded(stack, x, _):
    for layer, (logits, indices, weights) in enumerate(stack.route(x, torch.bfloat16)):
        if layer == 5:
            indices[10:20] = -1
        yield logits, indices, weights


def off_by_one(stack, x, _):
    """For a tenth of the tokens, inference's choices of layers.4 are those of the neighbouring token."""
    for layer, (logits, indices, weights) in enumerate(stack.route(x, torch.bfloat16)):
        if layer == 4:
            indices[100:228] = indices[101:229].clone()
        yield logits, indices, weights


class TrainInfer(unittest.TestCase):
    def test_choices_of_the_neighbour_are_found(self):
        found = support.findings_of(audited(off_by_one), RULE)
        self.assertEqual([(f["site"]["layer"], f["strength"], f["cause"]["id"]) for f in found],
                         [("layers.4", "heuristic", "large-margin-flips")])
        self.assertEqual(found[0]["details"]["first_divergent_layer"], "layers.4")

    def test_bf16_gates_flip_by_rounding_alone(self):
        report = audited()
        verdicts = support.verdicts_of(report, RULE)
        self.assertEqual([v["verdict"] for v in verdicts], ["pass"] * LAYERS, verdicts)
        self.assertGreater(max(v["details"]["flip_share"] for v in verdicts), 0.01)
        self.assertEqual({v["details"]["tokens"] for v in verdicts}, {SEQUENCES * LENGTH})

    def test_a_stale_router_shows_where_it_is(self):
        # All its scores change alike: no finding, but the details show where the sides differ.
        report = audited(stale)
        overlap = {v["site"]["layer"]: v["details"]["set_overlap"]
                   for v in support.verdicts_of(report, RULE)}
        self.assertLess(overlap[f"layers.{STALE}"], 0.97)
        for layer in range(STALE):
            self.assertGreater(overlap[f"layers.{layer}"], 0.98)

    def test_choices_of_minus_one_are_reported(self):
        found = support.findings_of(audited(unrecorded), RULE)
        self.assertEqual([(f["site"]["layer"], f["strength"], f["cause"]["id"]) for f in found],
                         [("layers.5", "proved", "sentinels")])
        self.assertEqual(found[0]["witness"]["inference_experts"], "-1, -1, -1, -1")
        self.assertEqual(found[0]["measured"]["value"], 10)


if __name__ == "__main__":
    support.main()
