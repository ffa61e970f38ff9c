"""Batches of a model that is called by keyword: what is wrong with one is reported in its step, also if the step fails by it."""

import torch

from harness import case

STEPS, BAD, VOCABULARY = 8, 5, 20


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Linear(16, VOCABULARY)

    def get_input_embeddings(self):
        return self.table

    def get_output_embeddings(self):
        return self.out

    def forward(self, input_ids, labels, features, attention_mask):
        logits = self.out(self.table(input_ids) + features)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def train(run, change=lambda batch: None, added=True, steps=STEPS, bad=BAD):
    """`change` ruins the batch of the step `bad`. `added`: the mask is added to scores, so that 0 does not exclude; its infinities are no data."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    for step in range(steps):
        ids = torch.randint(0, VOCABULARY, (4, 6))
        mask = torch.zeros(4, 6) if added else torch.ones(4, 6)
        mask[:, 5:] = float("-inf") if added else 0
        batch = {"input_ids": ids, "labels": ids.masked_fill(mask != mask[0, 0], -100), "features": torch.randn(4, 6, 16), "attention_mask": mask}
        if step == bad:
            change(batch)
        try:
            model(**batch).backward()
        except IndexError:
            break
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def put(name, value):
    def change(batch):
        batch[name][1, 2] = value

    return change


FOUND = {"level": "warning", "finds": {"health/batch-facts": BAD}, "others": True}


@case(steps=STEPS, level="warning")
def a_mask_that_is_added(run):
    return train(run)


@case(steps=STEPS, level="warning")
def a_mask_of_ones(run):
    return train(run, added=False)


@case(**FOUND)
def an_id_beyond_the_vocabulary(run):
    return train(run, put("input_ids", VOCABULARY))


@case(**FOUND)
def a_negative_id(run):
    return train(run, put("input_ids", -1))


@case(**FOUND)
def a_label_beyond_the_vocabulary(run):
    return train(run, put("labels", VOCABULARY))


@case(**FOUND)
def an_input_that_is_nan(run):
    return train(run, put("features", float("nan")))


@case(**FOUND)
def an_input_that_is_infinite(run):
    return train(run, put("features", float("inf")))


@case(**FOUND)
def labels_where_an_added_mask_excludes(run):
    return train(run, lambda batch: batch["labels"].copy_(batch["input_ids"]))


@case(**FOUND)
def labels_where_a_mask_is_zero(run):
    return train(run, lambda batch: batch["labels"].copy_(batch["input_ids"]), added=False)


LATE, AT = 24, 16  # steps; one that is checked, after enough others
FAR = {"level": "warning", "finds": {"health/batch-facts": AT}, "others": True}


def times(factor):
    return lambda batch: batch["features"].mul_(factor)


@case(steps=LATE, level="warning")
def features_three_times_as_large(run):
    return train(run, times(3), steps=LATE, bad=AT)


@case(**FAR)
def features_a_hundred_times_as_large(run):
    return train(run, times(100), steps=LATE, bad=AT)


@case(**FAR)
def features_divided_by_255_again(run):
    return train(run, times(1 / 255), steps=LATE, bad=AT)


@case(**FAR)
def constant_features(run):
    return train(run, lambda batch: batch["features"].fill_(0.5), steps=LATE, bad=AT)


@case(steps=LATE, level="warning")
def features_that_are_absent(run):
    return train(run, times(0), steps=LATE, bad=AT)
