"""Observations of tensors, reductions, updates and products. Run inherits them."""

import weakref

from . import _pack
from ._gradients.accumulation import watch_accumulation
from ._gradients.complete import watch_completeness
from ._hooks import observed
from ._kinds import KIND_MATMUL, KIND_REDUCTION, KIND_TENSOR, KIND_UPDATE
from ._library import NO_STEP
from ._reducing import NOTHING, Reducing
from ._rollouts import Rollouts
from ._sites import MAX_SAMPLES, Sites
from ._tensors import Unsupported
from ._together import Gathering
from ._watching.models import Models
from ._watching.start import watch

ROLES = ("weight", "gradient", "activation", "probabilities", "positions")


class Observations(Sites, Gathering, Rollouts):
    """Base class of Run."""

    def _start_observations(self):
        self._tensor_words = {}  # (layer, role) -> due word
        self._update_words = {}  # layer -> due word
        self._matmul_words = {}  # layer -> due word
        self._logits_words = {}  # layer -> due word
        self._reduction_words = {}  # (name, op) -> due word
        self._open_sites = {}  # (kind, layer, op) -> Site
        self._sequences = {}  # group name -> counter of its hooks' calls
        self._models = {}  # id -> (weak reference, due word of a parameter)
        self._at_step_end = []
        self._waiting, self._waiting_bytes = [], 0  # calls that were made between steps
        self._models_watched = Models()
        self._spent = 0  # CPU ns of this package around due calls, not yet reported; they count against the budget

    # ---- tensors -------------------------------------------------------------------------------

    def observe_tensor(self, layer, x=None, role=None, target_format=None, replicas=None,
                       **unknown):  # fmt: skip
        """Records the statistics of one tensor, and on captured steps some of its elements.

        role: "weight", "gradient", "activation", "probabilities" (rows of the last axis sum to
        one), "positions" (token positions), or None. target_format: the format ("bf16", "e4m3", a
        torch dtype) that the values will be stored in. replicas: a name; ranks with the
        same name hold copies of one tensor, which must be equal to the bit.
        """
        try:
            if self._step < self._tensor_words[layer, role][0]:
                return
        except (KeyError, TypeError):  # the first call of this layer and role, or no name at all
            pass
        if role is not None and not (isinstance(role, str) and role in ROLES):
            words = ", ".join(map(repr, ROLES))
            text = f"role is {role!r}; expected one of {words} or None"
            self._report_error((KIND_TENSOR, repr(layer)), f"observe_tensor({layer!r}): {text}")
            return
        if unknown:
            return self._unknown("observe_tensor", layer, unknown)
        self._observe(
            KIND_TENSOR, layer, role or "tensor", (self._tensor_words, (layer, role)),
            _pack.pack_tensor, (x, role, target_format, replicas),
        )  # fmt: skip

    def _observe_state(self, layer, x, role):
        """Records a tensor under a role that trainers cannot pass."""
        self._observe(KIND_TENSOR, layer, role, None, _pack.pack_tensor, (x, role, None, None))

    def _observe_cast(self, layer, x, target_format):
        """Records values before their cast to the format in which a collective sends them."""
        self._observe(
            KIND_TENSOR, layer, "cast", (self._tensor_words, (layer, "cast")),
            _pack.pack_tensor, (x, "gradient", target_format, None),
        )  # fmt: skip

    def observe_parameters(self, model, role="weight", replicas=None):
        """Records every parameter of a model (its `named_parameters()`) like observe_tensor.

        With replicas="world", all ranks of data parallel training must have equal weights, to the
        bit. Call it once per step; if nothing is due, it costs one comparison.
        """
        known = self._models.get(id(model))
        if known is not None and known[0]() is model and self._step < known[1][0]:
            return
        try:
            named = list(model.named_parameters())
        except Exception as error:
            self._report_error((KIND_TENSOR, "parameters"), f"observe_parameters: {error!r}; expected a "
                       "model with named_parameters()")  # fmt: skip
            return
        with self.together():
            for name, parameter in named:
                self.observe_tensor(name, parameter, role=role, replicas=replicas)
        # All sites are due at the same steps.
        word = self._tensor_words.get((named[0][0], role)) if named else None
        if word is not None:
            self._models[id(model)] = (weakref.ref(model), word)

    # ---- updates -------------------------------------------------------------------------------

    def observe_update(self, layer, before=None, after=None, intended=None, gradient=None, moment_before=None,
                       moment_after=None, optimizer=None, lr=None, beta2=None, eps=None, decay=None,
                       eps_dtype=None, offsets=None, count=None, **unknown):  # fmt: skip
        """Records one update in place: `after` should be round(before + intended), rounded once.

        Pass whole tensors of one shape; `intended` in full precision (at least fp32), for SGD
        -lr * gradient. moment_before and moment_after: Adam's second moment. decay: of an average
        e <- decay * e + (1 - decay) * p (optimizer "ema"). With offsets [m], pass the elements at
        these indices (C order) of a tensor of `count` elements; the indices of `sample_indices`
        are the same on every rank.
        """
        try:
            if self._step < self._update_words[layer][0]:
                return
        except (KeyError, TypeError):
            pass
        if unknown:
            return self._unknown("observe_update", layer, unknown)
        if intended is None:  # without the intended values there is nothing to judge
            text = f"observe_update({layer!r}): nothing is recorded, because intended (the update in full precision) is missing"
            return self._report_error(("observe_update", repr(layer)), text)
        self._observe(
            KIND_UPDATE, layer, "update", (self._update_words, layer), _pack.pack_update,
            (before, after, intended, gradient, moment_before, moment_after, offsets, count,
             optimizer, lr, beta2, eps, decay, eps_dtype),
        )  # fmt: skip

    def due(self, layer, what="update"):
        """Returns whether an observation at the open step would be kept. For trainers that must copy data first.

        what: "update", "accumulation", or the role of a tensor ("tensor" for one without).
        """
        kind = KIND_UPDATE if what in ("update", "accumulation") else KIND_TENSOR
        try:
            if kind == KIND_TENSOR and what not in (*ROLES, "tensor"):
                raise Unsupported("expected \"update\", \"accumulation\" or the role of a tensor")
            site = self._site(kind, layer, what)
        except self._mistake:
            raise
        except Exception as error:
            self._report_error(("due", repr(layer)), f"due({layer!r}, {what!r}): {error}")
            return False
        return site is not None and site.word[0] <= self._step < NO_STEP

    def observe_accumulation(self, layer, before=None, after=None, addend=None, offsets=None, count=None,
                             **unknown):  # fmt: skip
        """Records the addition of one micro-batch to a running sum: after = before + addend.

        Call it once per micro-batch, in order. `watch_accumulation` does this for a model's gradients.
        """
        if unknown:
            return self._unknown("observe_accumulation", layer, unknown)
        self._observe(
            KIND_UPDATE, layer, "accumulation", None, _pack.pack_update,
            (before, after, addend, None, None, None, offsets, count, "accumulation", None, None,
             None, None, None),
        )  # fmt: skip

    def watch_accumulation(self, parameters, limit=16):
        """Watches how micro-batches add up in parameters' .grad, within each step.

        parameters: a module, or (name, parameter) pairs; the `limit` largest are watched. On captured
        steps some elements of each micro-batch's addend and of the sum are kept; at the end of the
        step they become one reduction of algorithm "accumulation" (site: the parameter's name).
        Call it once, before training. Returns an object whose remove() ends it.
        """
        return self._hooked("watch_accumulation", watch_accumulation, parameters, limit)

    def watch_completeness(self, parameters, optimizer, limit=64, summed=None):
        """Watches whether the gradients that an optimizer applies are complete sums of the ranks' own.

        parameters: a module (DistributedDataParallel too), or (name, parameter) pairs; the `limit` largest are watched.
        A name must denote the same parameter on every rank: experts and shards that differ by rank need names of
        their own. On captured steps some elements of each gradient are kept after the last backward pass, before any
        reduction, and again when the optimizer reads them (precision/gradient-completeness). summed: whether the
        ranks' gradients are meant to be summed or averaged; None: if the module is DistributedDataParallel.
        Call it once, after the model was wrapped. Returns an object whose remove() ends it.
        """
        return self._hooked("watch_completeness", watch_completeness, parameters, optimizer, limit, summed)

    def watch(self, model=None, optimizer=None, scaler=None, activations=None, causality=None, **unknown):
        """Watches a model and its optimizer: the second of the two lines that a trainer needs. Call it before training.

        optimizer: one of torch.optim, a framework's wrapper of one, or a list. None: the optimizers that hold the
        model's parameters, now or at the first training pass. scaler: a GradScaler (torch's own is found without it).
        activations: names of modules ("blocks.3.mlp", or globs, "blocks.*.mlp") whose outputs are observed. The
        optimizer's step ends a step; loops that have `with run.step(i)` may keep it. Recorded are the loss (the scalar
        that backward() is called on; of several micro-batches their sum), the gradients and their norm, learning rates,
        tokens, weights, updates next to the intended ones (SGD, Adam, AdamW), micro-batches, and under
        DistributedDataParallel the sums and whether the ranks' copies agree; and as spans data loading, forward,
        backward, the optimizer's step and full garbage collections. If the trainer records a series or a kind of span
        itself (`run.scalar("loss", x)`), the watch does not record it. causality: "first-step" runs check_causality once, on
        a copy of the model at its first training pass, and prints the verdict. Returns an object whose remove() ends it.
        """
        if unknown:
            self._unknown("watch", "", unknown)
            return NOTHING
        return self._hooked("watch", watch, model, optimizer, scaler, activations, causality)

    def _hooked(self, call, make, *arguments):
        """Returns the result of make, whose remove() ends it. If make fails, reports that and returns NOTHING."""
        try:
            return make(self, *arguments)
        except self._mistake:
            raise
        except Exception as error:  # no error of this package may end the trainer
            text = error if isinstance(error, Unsupported) else repr(error)
            if call == "watch":  # the failure is recorded too: a run that watches nothing must not pass
                self._declare_site(KIND_TENSOR, "the model", f"unhooked: watch: {text}")
            self._report_error(call, f"{call}: {text}")
            return NOTHING

    # ---- matrix products -----------------------------------------------------------------------

    def observe_matmul(self, layer, a=None, b=None, d=None, c=None, accumulator=None, input_format=None,
                       library=None, scale=None, a_scale=None, b_scale=None, block=None, a_tile=None,
                       b_tile=None, scale_format=None, output_rounding=None, **unknown):  # fmt: skip
        """Records one matrix product d = a @ b (+ c) as it was computed; with scaled factors d = scale * a @ b.

        a [..., K], b [K, N] (for a linear layer `weight.t()`), d [..., N], c of d's shape or [N] (a bias); floating,
        not f64. On captured steps up to 32 rows of a, 32 columns of b and the elements of d at their intersections are
        kept. These identify the arithmetic and prove it. accumulator: the format ("f32", a torch dtype) promised for
        partial sums, None: f32. input_format: "tf32" if fp32 inputs are cut on purpose; else the format of values in a
        wider dtype ("e4m3", "bf16"). library: its name and version ("cuBLAS 12.4"): a change of arithmetic is reported
        together with a change of the version. scale: one factor of d, a number. a_scale, b_scale: the divisors of the
        values of a and b before their cast, as `torch._scaled_mm` takes them: one element for the whole tensor, [...,
        1] and [1, N] for a row and a column, or [..., ceil(K / block)] and [ceil(K / block), N] with `block` products
        per scale (MXFP8 and MXFP4 32, NVFP4 16); a_tile, b_tile: the number of rows (columns) that share a scale (128 x
        128 tiles: block=128, b_tile=128). Floating, or uint8 in scale_format "e8m0" | "e4m3". output_rounding
        "stochastic": d was stored with that rounding.
        """
        try:
            if self._step < self._matmul_words[layer][0]:
                return
        except (KeyError, TypeError):
            pass
        if unknown:
            return self._unknown("observe_matmul", layer, unknown)
        self._observe(
            KIND_MATMUL, layer, "matmul", (self._matmul_words, layer), _pack.pack_matmul,
            (a, b, d, c, accumulator, input_format, library, scale, a_scale, b_scale, block, a_tile,
             b_tile, scale_format, output_rounding),
        )  # fmt: skip

    # ---- reductions ----------------------------------------------------------------------------

    def observe_reduction(self, name, inputs=None, output=None, op="sum", group=None, sequence=None,
                          wire_dtype=None, count=None, offsets=None, group_size=None,
                          group_rank=None, prescale=None, postscale=None, ring_order=None,
                          algorithm=None, channels=None, chunk=None, transport=None,
                          variable_count=False, **unknown):  # fmt: skip
        """Records one collective: the input and the output of this rank.

        Pass whole buffers if the operation does not overwrite its input (otherwise see
        `reducing`), or with offsets [m] the elements at these indices. op "sum" | "avg" | "max" |
        "min" | "product" | "other". group: a torch process group or a name, None for the world;
        sequence: the number of the call within its group, equal on all ranks (None: calls are
        joined by their order within the step). prescale, postscale: factors applied before and
        after by the trainer; inputs contain prescale, output does not contain postscale.
        """
        try:
            if self._step < self._reduction_words[name, op][0]:
                return
        except (KeyError, TypeError):
            pass
        if unknown:
            return self._unknown("observe_reduction", name, unknown)
        self._observe(
            KIND_REDUCTION, name, op, (self._reduction_words, (name, op)), _pack.pack_reduction,
            (inputs, output, offsets, op, group, sequence, wire_dtype, count, group_size,
             group_rank, prescale, postscale, ring_order, algorithm, channels, chunk, transport,
             variable_count),
        )  # fmt: skip

    def reducing(self, name, tensor, op="sum", group=None, **declared):
        """`with run.reducing("gradients", t, group=g): dist.all_reduce(t, group=g)`

        Observes a collective that works in place on a torch tensor. An asynchronous one must end
        inside the block. `declared`: arguments of observe_reduction.
        """
        try:
            if self._step < self._reduction_words[name, op][0]:
                return NOTHING
        except (KeyError, TypeError):
            pass
        return Reducing(self, name, tensor, op, group, declared)

    def observed(self, hook=None, name="gradients"):
        """Returns a DDP communication hook that observes the reduction of `hook`.

        `ddp.register_comm_hook(state, run.observed(fp16_compress_hook))`; hook None: DDP's own
        averaging. The result is the hook's, to the bit. On captured steps the same elements of the
        input and the output of its all_reduce are kept on every rank. If the hook reduces in another
        way, the bucket before it and after it is kept (algorithm "hook"). Sites are `name`.0, `name`.1, ... by bucket.
        """
        if hook is not None and not callable(hook):
            self._report_error("observed", f"observed: hook is {hook!r}; expected a function or None")
            return hook  # DDP reports its own error
        return observed(self, hook, name)

    # ---- sampled elements ----------------------------------------------------------------------

    def sample_indices(self, name, count, op="sum", most=MAX_SAMPLES):
        """Returns the indices that a reduction's site keeps at the open step, as an array of integers.

        They are the same on every rank. Returns None if the site is not due, or keeps none at this step.
        """
        try:
            site = self._site(KIND_REDUCTION, name, op)
            if site is None:
                return None
            count = _pack.positive("count", count)
            return self._indices(site, count, _pack.positive("most", most))
        except self._mistake:
            raise
        except Exception as error:
            self._report_error(("indices", repr(name)), f"sample_indices({name!r}): {error}")
            return None
