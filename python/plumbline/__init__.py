"""Plumbline: watches a training run for failures that do not crash it.

    import plumbline
    run = plumbline.init(run="exp1", server="127.0.0.1:7433", record="runs/exp1")
    run.watch(model, optimizer)     # this observes the steps, and most of the calls below, without further calls

Or call by call:

    for i, batch in enumerate(batches):
        with run.step(i):
            ...
            run.observe_routing("layers.3", router_logits, topk_indices=chosen, keep_mask=kept,
                                sequence_id=document, position=position, top_k=2)
            run.observe_tensor("layers.3.w", w, role="weight")
            run.observe_update("layers.3.w", before, after, intended)
            run.observe_matmul("layers.3.up", x, w.t(), y)
            run.observe_logits("policy", train_logits, rollout_logits, tokens=tokens)
            run.scalar("loss", loss)
    run.finish()

Sums: `ddp.register_comm_hook(state, run.observed(hook))`, `with run.reducing("gradients", tensor):`,
`run.observe_reduction(name, inputs, output)`, and `run.watch_accumulation(model)` for micro-batches.

Checks a router without a run: does a choice depend on later tokens?

    print(plumbline.check_router(route, logits, sequence_id=document, position=position))

If it does, compares the losses of each token, under the training routing and under a causal one:

    print(plumbline.leak_consequence(loss_as_trained, loss_causal, sequence_id=document))

Checks a whole model without a run: does an output row depend on a later token?

    print(plumbline.check_causality(model, tokens))

Finds from a sum's outputs alone in which order and with which arithmetic it adds:

    print(plumbline.fingerprint("torch.sum", n=4096, dtype="bf16"))

Nothing here changes the trainer's results, and a mistake in a call causes one warning; `init(strict=True)` raises
instead. PLUMBLINE_DISABLE=1 turns everything off.
"""

from ._causality import CausalityError, CausalityVerdict, check_causality
from ._check import RouterCheckError, RouterVerdict, check_router
from ._consequence import LeakConsequence, LeakMeter, leak_consequence
from ._fingerprint import Fingerprint, FingerprintError, fingerprint
from ._library import LibraryMissing, version
from ._mistakes import PlumblineError
from ._no_run import NoRun
from ._open import init
from ._run import Run
from ._stopping import TrainingStopped

try:
    from ._version import __version__
except ModuleNotFoundError:  # written by a build (tools/version); the package is used from the source
    __version__ = "0.2.0.dev0"

__all__ = ["CausalityError", "CausalityVerdict", "Fingerprint", "FingerprintError", "LeakConsequence", "LeakMeter", "LibraryMissing", "NoRun",
           "PlumblineError", "RouterCheckError", "RouterVerdict", "Run", "TrainingStopped", "__version__", "check_causality", "check_router",
           "fingerprint", "init", "leak_consequence", "version"]
