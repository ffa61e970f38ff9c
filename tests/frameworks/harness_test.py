"""The harness finds what does not hold: cases that must fail, and the one that must not."""

import contextlib
import io
import os
import sys
import tempfile

import torch

os.environ.setdefault("PLUMBLINE_BUILD_DIR", os.path.join(os.path.dirname(__file__), "../../build/dev"))
import harness
from harness import case


def train(run, watch=True, poison=None, steps=20):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if watch:
        run.watch(model, optimizer)
    for step in range(steps):
        loss = model(torch.randn(8, 4)).pow(2).mean() * (float("nan") if step == poison else 1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@case(steps=20)
def holds(run):
    return train(run)


@case(finds={"health/loss-non-finite": 10, "precision/non-finite": 10})
def a_planted_fault_is_found(run):
    return train(run, poison=10)


@case()
def fails_results_differ(run):
    train(run)
    return type(run).__name__


@case()
def fails_one_bit_differs(run):
    weight = train(run)["weight"]
    return torch.nextafter(weight, weight + 1) if type(run).__name__ == "Run" else weight


@case()
def fails_never_watched(run):
    run.scalar("loss", 1.0)
    return train(run, watch=False)


@case()
def fails_an_error_that_was_not_planted(run):
    return train(run, poison=10)


@case(finds={"health/loss-non-finite": 11, "precision/non-finite": 11})
def fails_another_step(run):
    return train(run, poison=10)


@case(finds={"health/loss-divergence": 3})
def fails_a_fault_that_was_not_found(run):
    return train(run)


@case(steps=21)
def fails_a_step_is_missing(run):
    return train(run)


@case()
def fails_it_raises(run):
    train(run)
    raise ValueError("as a trainer does")


@case()
def fails_it_dies(run):
    train(run)
    os.abort()


@case(reads="tensorboard", steps=1)
def fails_no_file_of_this_format():
    with open("notes.txt", "w", encoding="utf-8") as file:
        file.write("nothing\n")


def main():
    name = __spec__.name if __spec__ else "__main__"
    sys.modules["harness_test"] = sys.modules[name]
    harness.CASES["harness_test"] = harness.CASES[name]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        harness.run_cases("harness_test", ".*", folder, fork=True)
    lines = [line for line in printed.getvalue().splitlines() if line.startswith(("ok ", "FAILED "))]
    wrong = [line for line in lines if line.startswith("FAILED") != ("/fails_" in line)]
    print(*lines, f"{len(lines) - len(wrong)} as expected, {len(wrong)} not", sep="\n")
    return 1 if wrong or len(lines) != len(harness.CASES["harness_test"]) else 0


if __name__ == "__main__":
    sys.exit(main())
