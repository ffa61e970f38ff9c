"""The expected result for each label of tests/audit/data/fine_tunings (train_fine_tunings.py trained the models)."""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "data" / "fine_tunings"

# Label -> the rules of which one must report it, and the minimum level; None: no finding above a note.
LABELS = {
    "healthy": None,
    "rate-high": ("warning", ("health/loss-divergence", "health/loss-spike", "health/not-learning", "health/loss-non-finite")),
    "rate-zero": ("error", ("health/learning-rate",)),
    "overfit": ("warning", ("health/overfit",)),
    "repeated-data": ("warning", ("health/overfit",)),
    "nan": ("error", ("health/loss-non-finite",)),
    "masked-nan": ("error", ("health/loss-non-finite",)),
    "late-divergence": ("warning", ("health/loss-divergence", "health/loss-spike")),
    "storm": ("error", ("health/loss-scale",)),
    "no-learning": ("warning", ("health/not-learning",)),
    "lost-weights": ("warning", ("health/loss-divergence", "health/loss-spike")),
    "lost-optimizer": ("warning", ("health/learning-rate",)),
    "exploding": ("warning", ("health/loss-divergence", "health/loss-spike", "health/gradient-spike")),
}
# Compared with healthy-linear-N by plumb diff --fail-on error: is B worse?
DIFFS = {"diff-shuffled": True, "diff-sums": True, "diff-healthy": False}


def label_of(path):
    return path.stem.rsplit("-", 1)[0]


def healthy_of(path):
    return FOLDER / f"healthy-linear-{path.stem.rsplit('-', 1)[1]}.log"
