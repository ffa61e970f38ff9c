"""A toy task that a program can check: write the digits of the prompt in ascending order.

Text is digits. Tokens are single digits (0-9) and pairs of them (10 + 10*a + b), so that one text has several
tokenisations, as in every real vocabulary.
"""

import random

DIGITS = 10
SEP = 110
VOCABULARY = 112
PROMPT_DIGITS = 10
PROMPT_TOKENS = PROMPT_DIGITS + 1
RESPONSE_TOKENS = 14


def prompts(rng, count, pool=None):
    """Returns `count` prompts as (id, tokens). With a pool they repeat, like the questions of a dataset."""
    chosen = [rng.randrange(pool) if pool else rng.getrandbits(48) for _ in range(count)]
    return [(seed, _digits(seed) + [SEP]) for seed in chosen]


def _digits(seed):
    rng = random.Random(seed)
    return [rng.randrange(10) for _ in range(PROMPT_DIGITS)]


def text(tokens):
    """Returns the digits of tokens."""
    digits = []
    for token in tokens:
        if token < DIGITS:
            digits.append(token)
        elif token < SEP:
            digits += divmod(token - DIGITS, 10)
    return digits


def tokenise(digits):
    """Returns the canonical tokens of a text: pairs from the left."""
    pairs = [DIGITS + 10 * a + b for a, b in zip(digits[::2], digits[1::2])]
    return pairs + (digits[-1:] if len(digits) % 2 else [])


def reward(prompt, response):
    """Returns the share of places at which the response has the sorted prompt's digit."""
    wanted = sorted(text(prompt[:-1]))
    given = text(response)
    return sum(a == b for a, b in zip(wanted, given)) / len(wanted)
