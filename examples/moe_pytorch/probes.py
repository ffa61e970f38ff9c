"""All that this trainer reports to Plumbline, in one place."""

import contextlib
import os
import sys


class Silent:
    """Replaces the probes if there are none."""

    def step(self, number):
        return contextlib.nullcontext()

    def span(self, kind):
        return contextlib.nullcontext()

    def scalar(self, name, value):
        pass

    def routing(self, layer, routing, batch):
        pass

    def finish(self):
        pass


# The names of this example's routers in verdicts.
POLICY_NAMES = {"dropless": "token-choice", "fifo": "fifo-capacity",
                "score-drop": "score-capacity", "expert-choice": "expert-choice"}


class Probes:
    """Sends what happens in each step to the analysis server, to a record on disk, or both."""

    def __init__(self, run, server=None, record=None, patience=2.0):
        """patience: seconds that the end of training may wait until the last evidence arrives."""
        self._run = import_plumbline().init(run=run, server=server, record=record)
        self._patience = patience
        self.step, self.span, self.scalar = self._run.step, self._run.span, self._run.scalar

    def routing(self, layer, routing, batch):
        """Reports one router call: the gate's logits, the choices, which were kept, and each token's sequence and
        position."""
        chosen = ({"routing_map": routing.assigned} if routing.indices is None else
                  {"topk_indices": routing.indices, "keep_mask": routing.keep})
        self._run.observe_routing(
            layer, routing.logits.detach(), **chosen,
            sequence_id=batch.sequence_id, position=batch.position,
            padding_mask=batch.padding, pool_id=batch.pool_id,
            top_k=routing.top_k, capacity="none" if routing.capacity is None else routing.capacity,
            capacity_source=None if routing.capacity is None else "declared",
            policy=POLICY_NAMES[routing.policy], score_function="softmax", pool="microbatch", flatten="batch-major", mode="train")

    def finish(self):
        self._run.finish(self._patience)


def import_plumbline():
    try:
        import plumbline
    except ModuleNotFoundError:
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
        import plumbline
    return plumbline
