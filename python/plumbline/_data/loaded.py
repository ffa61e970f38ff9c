"""Facts on the data loader whose batches are trained on, for health/repeated-data: its length, whether its sampler shuffles, and whether
its workers return the same batches."""

import sys

_ROUNDS = 16  # rounds of batches, one from each worker, that are compared
_TRAINED = 8  # the fewest batches of these that were trained on, and the fewest different rounds
_DEEPEST = 4  # samplers within samplers
_MAP, _ITERABLE = 0, 1  # torch's kinds of datasets
_IDS = ("input_ids", "ids", "idx", "tokens", "words", "decoder_input_ids")


def _shuffles(sampler):
    """Returns 1 if the sampler shuffles in each epoch, 0 if it is sequential, None if this is not known."""
    data, distributed = sys.modules["torch.utils.data"], sys.modules.get("torch.utils.data.distributed")
    kind = getattr(distributed, "DistributedSampler", ())
    for _ in range(_DEEPEST):
        iterates = type(sampler).__iter__ if hasattr(type(sampler), "__iter__") else None
        if isinstance(sampler, data.SequentialSampler):
            return 0
        if isinstance(sampler, data.RandomSampler) and (iterates is data.RandomSampler.__iter__ or type(sampler).__name__ == "SeedableRandomSampler"):
            return None if sampler.replacement else 1
        if kind and isinstance(sampler, kind) and iterates is kind.__iter__:
            return int(sampler.shuffle)
        inner = getattr(sampler, "batch_sampler", None)
        sampler = inner if inner is not None else getattr(sampler, "sampler", None)
        if sampler is None:
            return None
    return None


def _ids(batch):
    """Returns the token ids of a loader's batch, or None."""
    torch = sys.modules["torch"]
    if hasattr(batch, "keys"):
        values = [batch[name] for name in _IDS if name in batch]
    else:
        values = batch if isinstance(batch, (list, tuple)) else [batch]
    return next((v for v in values if type(v) is torch.Tensor and v.dim() > 1 and not v.is_floating_point() and not v.is_complex()), None)


class Rounds:
    """The first batches of one iterator with several workers. Each worker returns one batch in turn."""

    def __init__(self, workers, shuffled):
        self.workers, self._shuffled = workers, shuffled  # shuffled: batches are made from indices, which must differ
        self.indices, self._digests, self._trained = [], [], set()
        self._equal = self._rounds = 0
        self._seen = set()

    @property
    def open(self):
        return len(self._digests) < _ROUNDS * self.workers

    def got(self, value):
        self._digests.append(value)
        if len(self._digests) % self.workers:
            return
        first = len(self._digests) - self.workers
        if self._shuffled:
            chosen = [repr(one) for one in self.indices[first : first + self.workers]]
            if len(set(chosen)) < self.workers:
                return
        self._rounds += 1
        self._equal += len(set(self._digests[first:])) == 1
        self._seen.add(value)

    def trained(self, values):
        if len(self._trained) <= _TRAINED:
            self._trained.update(self._seen.intersection(values))

    def facts(self):
        """Returns the result once it is complete, then nothing."""
        if self._rounds < _ROUNDS or self._equal < self._rounds or len(self._seen) < _TRAINED or len(self._trained) < _TRAINED:
            return {}
        rounds, self._rounds = self._rounds, 0
        return {"workers": self.workers, "rounds": rounds, "equal_rounds": self._equal}


class Loaded:
    """The loader of this process that returned a batch last."""

    newest, yields, rounds = None, 0, None
    digest = None  # computes the digest of a tensor

    @classmethod
    def index(cls, iterator, index):
        """Called for each index that an iterator sends to its workers."""
        if getattr(iterator, "_num_workers", 0) > 1:
            indices = iterator.__dict__.setdefault("_plumbline_indices", [])
            if len(indices) < _ROUNDS * iterator._num_workers:
                indices.append(index)

    @classmethod
    def got(cls, iterator, batch):
        """Called for each batch that an iterator returns."""
        if cls.newest is None or cls.newest[0] != id(iterator) or iterator._num_yielded <= 1:
            cls._begin(iterator)
        cls.yields += 1
        rounds = cls.rounds
        if rounds is not None and rounds.open:
            ids = _ids(batch)
            if ids is None or ids.device.type != "cpu" or not ids.numel():
                cls.rounds = None
            else:
                rounds.got(cls.digest(ids))

    @classmethod
    def _begin(cls, iterator):
        kind, workers = iterator._dataset_kind, iterator._num_workers
        shuffles = _shuffles(iterator._index_sampler) if kind == _MAP else None
        epoch = len(iterator._index_sampler) if kind == _MAP and hasattr(iterator._index_sampler, "__len__") else None
        cls.newest, cls.yields = (id(iterator), epoch, shuffles), 0
        known = cls.rounds
        cls.rounds = None
        if known is not None and not known.open:
            cls.rounds = known  # a result is complete
        elif workers > 1 and iterator._num_yielded <= 1 and cls.digest is not None and (kind == _ITERABLE or shuffles == 1):
            cls.rounds = Rounds(workers, kind == _MAP)
            cls.rounds.indices = iterator.__dict__.get("_plumbline_indices", [])

    @classmethod
    def count(cls):
        """Returns (length of an epoch, whether it shuffles, batches since the last call) of the newest loader."""
        yields, cls.yields = cls.yields, 0
        return (None, None, yields) if cls.newest is None else (*cls.newest[1:], yields)
