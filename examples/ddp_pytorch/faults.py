"""Timing faults that the trainer can simulate: those of a slow cluster, on one host."""

import gc
import io
import time

import torch

GARBAGE = 200_000  # objects in cycles, as a careless metrics object leaves them


def add_arguments(parser):
    faults = parser.add_argument_group("faults of time")
    faults.add_argument("--pause", type=float, default=0, metavar="SECONDS",
                        help="each rank's pass takes so much longer, as a larger model's would")
    faults.add_argument("--slow-loader", type=float, default=0, metavar="SECONDS",
                        help="each batch takes so long to load")
    faults.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS",
                        help="write the weights, to nowhere")
    faults.add_argument("--checkpoint-seconds", type=float, default=0, metavar="SECONDS",
                        help="as a slow file system takes")
    faults.add_argument("--collect-every", type=int, default=0, metavar="STEPS",
                        help="make garbage, and collect it")
    faults.add_argument("--slow-rank", metavar="RANK:SECONDS", help="one rank's pass takes longer")
    faults.add_argument("--stop", metavar="RANK:STEP",
                        help="one rank stops there, in front of its collective")
    faults.add_argument("--mismatch", metavar="RANK:STEP",
                        help="all sum their figures there, and one rank has fewer of them")


def _pair(text, second):
    if not text:
        return None, None
    first, _, rest = text.partition(":")
    return int(first), second(rest)


class Faults:
    """The faults of one rank."""

    def __init__(self, options, rank, probes):
        self._options, self._probes = options, probes
        slow, seconds = _pair(options.slow_rank, float)
        self._slow = seconds if slow == rank else 0
        stops, step = _pair(options.stop, int)
        self._stop = step if stops == rank else None
        self._short_rank, self._mismatch = _pair(options.mismatch, int)
        self._rank = rank
        self._garbage = []

    def load(self):
        time.sleep(self._options.slow_loader)

    def compute(self, step):
        time.sleep(self._options.pause + self._slow)
        if step == self._stop:
            while True:  # a deadlock, a full disk: it never ends
                time.sleep(1)

    def meet(self, step):
        """Simulates an uneven last batch or a conditional metric, which make shapes differ."""
        if step != self._mismatch:
            return
        figures = torch.ones(1000 if self._rank == self._short_rank else 1024)
        with self._probes.reducing("figures", figures):
            torch.distributed.all_reduce(figures)

    def end_step(self, step, model):
        options = self._options
        if options.checkpoint_every and step % options.checkpoint_every == options.checkpoint_every - 1:
            with self._probes.span("checkpoint"):
                torch.save(model.state_dict(), io.BytesIO())
                time.sleep(options.checkpoint_seconds)
        if options.collect_every and step % options.collect_every == options.collect_every - 1:
            self._make_garbage()
            with self._probes.span("other", "garbage collection"):
                gc.collect()

    def _make_garbage(self):
        for _ in range(GARBAGE):
            one = []
            one.append(one)
