"""Real text for the example, as bytes: ../text/, a fixed copy of the rules' pages.

A *document* is one section of a page. A batch is B rows of S tokens, cut in one of two ways:

  window  each row is a window of one document; a document shorter than the row is padded
  packed  documents follow one another until the row is full; a document never sees its neighbour

Every token has the number of its document (`sequence_id`) and its place in it (`position`). These two define "a later
token of the same sequence", both for the attention mask and for the rules that judge the router.
"""

import dataclasses
import glob
import os
import re
from concurrent.futures import ThreadPoolExecutor

import torch

VOCABULARY = 257  # the bytes, and END
END = 256         # closes a document, and pads
IGNORED = -100    # target of a padded position

TEXT_PATTERN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "text", "*.txt")


@dataclasses.dataclass
class Batch:
    """One micro-batch; every field is [B, S]. Row b, token s is row b*S + s of the router."""

    tokens: torch.Tensor       # int64, < VOCABULARY
    targets: torch.Tensor      # int64, the next token; IGNORED if there is none
    sequence_id: torch.Tensor  # int64, unique within the batch; padding belongs to its document
    position: torch.Tensor     # int64, from 0 within the sequence
    padding: torch.Tensor      # bool
    pool_id: torch.Tensor      # int64, tokens that compete for an expert's places; here all

    def to(self, device):
        return Batch(**{name: t.to(device) for name, t in vars(self).items()})


def load_documents(pattern=TEXT_PATTERN, shortest=64):
    """Returns the sections of the files, each a 1-D uint8 tensor, in a fixed order."""
    paths = sorted({os.path.realpath(path) for path in glob.glob(pattern)})
    if not paths:
        raise FileNotFoundError(f"no file matches {pattern}; expected text with sections that begin with #")
    documents = []
    for path in paths:
        with open(path, "rb") as file:
            sections = re.split(rb"\n(?=#+ )", file.read())
        documents += [torch.frombuffer(bytearray(section), dtype=torch.uint8)
                      for section in sections if len(section) >= shortest]
    return documents


class TextBatches(torch.utils.data.Dataset):
    """Batch number i of a rank, which depends only on (seed, rank, i)."""

    def __init__(self, documents, batch, length, layout="packed", seed=0, rank=0, steps=1):
        if layout not in ("packed", "window"):
            raise ValueError(f"layout is {layout!r}; expected 'packed' or 'window'")
        self.documents, self.batch, self.length = documents, batch, length
        self.layout, self.seed, self.rank, self.steps = layout, seed, rank, steps
        self.sizes = torch.tensor([len(d) for d in documents], dtype=torch.float64)

    def __len__(self):
        return self.steps

    def __getitem__(self, step):
        if not 0 <= step < self.steps:
            raise IndexError(step)
        random = torch.Generator().manual_seed((self.seed * 1_000_003 + step) * 1_009 + self.rank)
        fill = self._fill_packed if self.layout == "packed" else self._fill_window
        shape = (self.batch, self.length)
        batch = Batch(tokens=torch.full(shape, END),
                      targets=torch.full(shape, IGNORED),
                      sequence_id=torch.arange(self.batch).repeat_interleave(
                          self.length).view(shape),
                      position=torch.arange(self.length).repeat(self.batch, 1),
                      padding=torch.ones(shape, dtype=torch.bool),
                      pool_id=torch.zeros(shape, dtype=torch.int64))
        sequence = 0
        for row in range(self.batch):
            sequence = fill(batch, row, sequence, random)
        return batch

    def _pick(self, random):
        index = torch.multinomial(self.sizes, 1, generator=random).item()
        return self.documents[index].long()

    def _cut(self, document, longest, random):
        """Returns at most `longest` + 1 tokens of the document, from a random place, with END after its end."""
        document = torch.cat([document, torch.tensor([END])])
        spare = max(0, len(document) - (longest + 1))
        start = torch.randint(spare + 1, (1,), generator=random).item()
        return document[start:start + longest + 1]

    def _fill_window(self, batch, row, sequence, random):
        text = self._cut(self._pick(random), self.length, random)
        self._place(batch, row, 0, text, sequence)
        return sequence + 1

    def _fill_packed(self, batch, row, sequence, random):
        column = 0
        while column < self.length:
            # At most half a row, so that a row holds several documents.
            longest = min(self.length - column, max(2, self.length // 2))
            text = self._cut(self._pick(random), longest, random)
            column += self._place(batch, row, column, text, sequence)
            sequence += 1
        return sequence

    @staticmethod
    def _place(batch, row, column, text, sequence):
        size = len(text) - 1
        here = (row, slice(column, column + size))
        batch.tokens[here] = text[:-1]
        batch.targets[here] = text[1:]
        batch.sequence_id[here] = sequence
        batch.position[here] = torch.arange(size)
        batch.padding[here] = False
        return size


def ahead(batches):
    """Yields what the iterator `batches` yields. A thread fetches the next batch meanwhile: the loop does not wait for it."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def loader(dataset, start, stop, workers=1):
    """Yields batches start..stop-1, made by a forked worker process, as in real trainers."""
    return torch.utils.data.DataLoader(dataset, batch_size=None, sampler=range(start, stop),
                                       num_workers=workers)
