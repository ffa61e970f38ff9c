"""1,024 micro-batches add up in PyTorch's .grad: in bf16 the site is named, in fp32 there is no finding.

Two parameters: `skewed.weight`, whose gradients are coherent (a mean of 1, a deviation of a half), and `noise.weight`,
whose gradients have no mean, so that rounding errors cancel.
"""

import pathlib
import unittest

import torch

import plumbline
import support

MICRO_BATCHES = 1024
ELEMENTS = 4096
STEPS = 2


def train(folder, dtype):
    """Accumulates by backward() alone, as trainers do; returns the last step's coherent sum."""
    torch.manual_seed(5)
    skewed = torch.nn.Parameter(torch.zeros(ELEMENTS, dtype=dtype))
    noise = torch.nn.Parameter(torch.zeros(ELEMENTS, dtype=dtype))
    run = plumbline.init(run=f"micro-{dtype}", record=str(folder), every=1, strict=True)
    run.watch_accumulation([("skewed.weight", skewed), ("noise.weight", noise)])
    exact = torch.zeros(ELEMENTS, dtype=torch.float64)
    for step in range(STEPS):
        exact.zero_()
        with run.step(step):
            for _ in range(MICRO_BATCHES):
                x = (1 + 0.5 * torch.randn(ELEMENTS)).to(dtype)
                y = torch.randn(ELEMENTS).to(dtype)
                (torch.dot(skewed, x) + torch.dot(noise, y)).backward()
                exact += x.double()
            ratio = float((skewed.grad.double() / exact).mean())
            skewed.grad = noise.grad = None
    run.finish(30)
    return ratio


def audit(folder):
    files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    _, report = support.audit("--rules", "precision/grad-accumulation", *files)
    return report


class MicroBatches(unittest.TestCase):
    def test_bf16_is_named_at_its_site(self):
        with support.scratch() as folder:
            ratio = train(folder, torch.bfloat16)
            self.assertLess(ratio, 0.7)  # the planted loss occurs
            report = audit(folder)
        reported = [f for f in report["findings"] if f["level"] in ("warning", "error")]
        self.assertEqual({f["site"]["layer"] for f in reported}, {"skewed.weight"}, reported)
        self.assertEqual({f["rule"] for f in reported}, {"precision/grad-accumulation"})
        self.assertIn("bf16", reported[0]["title"] + reported[0]["explanation"])

    def test_fp32_is_silent(self):
        with support.scratch() as folder:
            ratio = train(folder, torch.float32)
            self.assertAlmostEqual(ratio, 1, places=4)
            report = audit(folder)
        self.assertEqual(report["findings"], [])
        passed = {v["site"]["layer"] for v in report["verdicts"] if v["verdict"] == "pass"}
        self.assertEqual(passed, {"skewed.weight", "noise.weight"}, report["verdicts"])


if __name__ == "__main__":
    support.main()
