"""Tests the trainer of examples/ledger: its gradients are correct, a run depends only on its seed, and its leak is one."""

import os
import pathlib
import sys
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "ledger"))

try:
    import numpy as np
    import train
    TEXTS = train.split(train.documents())
except (ImportError, FileNotFoundError) as missing:
    print(missing)
    sys.exit(77)


class Trainer(unittest.TestCase):
    def test_gradients(self):
        random = np.random.default_rng(1)
        for options in (train.Options(1e7, 0), train.Options(1e7, 0, bigram=True, normalise=True)):
            model = train.Model(options, 7, random)
            seen, target = random.integers(0, 20, (5, 4)), random.integers(0, 20, 5)

            def loss():
                return -model.forward(seen)[3][np.arange(5), target].mean()

            for name, gradient in model.gradients(seen, target).items():
                weights = model.weights[name]
                for at in {np.unravel_index(i, weights.shape) for i in random.integers(0, weights.size, 20)} | {
                        np.unravel_index(np.argmax(np.abs(gradient)), weights.shape)}:
                    kept = weights[at]
                    weights[at] = kept + 1e-6
                    above = loss()
                    weights[at] = kept - 1e-6
                    below = loss()
                    weights[at] = kept
                    self.assertAlmostEqual((above - below) / 2e-6, gradient[at], delta=1e-6, msg=name)

    def test_a_run_is_a_function_of_its_seed(self):
        first = train.train(train.Options(2e7, 3), TEXTS)
        self.assertEqual(first, train.train(train.Options(2e7, 3), TEXTS))
        self.assertNotEqual(first, train.train(train.Options(2e7, 4), TEXTS))

    def test_the_sets_are_apart(self):
        training, first, second = TEXTS
        self.assertGreater(len(training), 20 * len(first))
        text = training.astype(np.uint8).tobytes()
        for held_out in (first, second):
            piece = held_out.astype(np.uint8).tobytes()
            self.assertNotIn(piece[:2000], text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
