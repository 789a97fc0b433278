"""The tasks of the comparison: adding, copy, digits read pixel by pixel, the next character of a text.

Each gives batches to train on, a validation and a test set that no batch comes from, a loss to lower and an error to
report. Everything random comes from a generator, so that two networks with the same seed see the same batches.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import rnndata
from experiments import adding

SYMBOLS, BLANK, GO = 8, 8, 9  # of the copy task: eight symbols to remember, and two codes


@dataclass(frozen=True)
class Task:
    """A task.

    D, C       size of an input and of an output
    window     how many steps back an answer can depend on: what a network without a state must see
    batch      batch(generator) -> x (B, T, D) and y, to train on
    valid      x and y to choose by
    test       x and y to report, once
    loss       loss(scores (B, T, C), y) -> what training lowers
    error      error(scores, y) -> what is reported, lower is better
    elsewhere  {name: (x, y)}: further sets to report, of another length
    """

    D: int
    C: int
    window: int
    batch: Callable
    valid: tuple
    test: tuple
    loss: Callable
    error: Callable
    elsewhere: dict = field(default_factory=dict)


@lru_cache
def task(name):
    """Return a task by its name: "adding 50", "adding 200", "copy", "digits" or "characters"."""
    kind, _, length = name.partition(" ")
    return {"adding": add, "copy": copy, "digits": digits, "characters": characters}[kind](*map(int, length.split()))


def seeded(seed):
    """Return a generator that starts at a seed."""
    return torch.Generator().manual_seed(seed)


# ----------------------------------------------------------------------------------------------------------
# Adding: numbers uniform on [0, 1], two marks; the sum of the marked numbers at the last step. Always 1: 1/6.


def add(T):
    """The adding problem over T steps; tested also on sequences two and four times as long."""

    def error(scores, y):
        return F.mse_loss(scores[:, -1, 0], y)

    valid, test = adding.sequences(T, 300, seeded(10**6)), adding.sequences(T, 1000, seeded(10**6 + 1))
    longer = {f"T = {k * T}": adding.sequences(k * T, 500, seeded(10**6 + k)) for k in (2, 4)}
    return Task(2, 1, T, partial(adding.sequences, T, 32), valid, test, error, error, longer)


# ----------------------------------------------------------------------------------------------------------
# Copy: remember K symbols over T steps, then say them in order. Remembering nothing: K ln 8 / (T + 2K) nats a step.


def copy(K=5, T=20):
    """The copy task: K symbols, T steps with a blank, the last of them a sign to begin, K steps to answer.

    There are only 8^K sequences. Those to choose by and to test with, at most 1,300, come in no batch.
    """
    powers = SYMBOLS ** torch.arange(K)

    def drawn(count, generator, without):
        symbols = torch.randint(SYMBOLS, (count, K), generator=generator)
        while (again := torch.isin(symbols @ powers, without)).any():
            symbols[again] = torch.randint(SYMBOLS, (int(again.sum()), K), generator=generator)
        return symbols

    def sequences(symbols):
        codes = torch.full((len(symbols), T + 2 * K), BLANK)
        codes[:, :K], codes[:, K + T - 1] = symbols, GO
        wanted = torch.full((len(symbols), T + 2 * K), BLANK)
        wanted[:, -K:] = symbols
        return F.one_hot(codes, GO + 1).float(), wanted

    valid = drawn(300, seeded(10**6), torch.tensor([]))
    test = drawn(1000, seeded(10**6 + 1), valid @ powers)
    others = torch.cat([valid, test]) @ powers

    def batch(generator):
        return sequences(drawn(32, generator, others))

    return Task(GO + 1, BLANK + 1, T + K + 1, batch, sequences(valid), sequences(test), nats, nats)


def nats(scores, y):
    """Return the mean cross-entropy over all steps."""
    return F.cross_entropy(scores.flatten(0, 1), y.flatten())


# ----------------------------------------------------------------------------------------------------------
# Digits: scikit-learn's 1,797 real ones, 8 by 8 pixels, read one pixel at a time; which digit, at the last step.


def digits():
    """Digits of 64 steps: 1,000 to train on, 297 to choose by, 500 to test."""
    pixels, names = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(names), generator=seeded(0))
    x, y = pixels[order].float()[:, :, None] / 16, names[order]

    def batch(generator):
        rows = torch.randint(1000, (32,), generator=generator)
        return x[rows], y[rows]

    def loss(scores, y):
        return F.cross_entropy(scores[:, -1], y)

    def error(scores, y):
        return (scores[:, -1].argmax(1) != y).float().mean()

    return Task(1, 10, 64, batch, (x[1000:1297], y[1000:1297]), (x[1297:], y[1297:]), loss, error)


# ----------------------------------------------------------------------------------------------------------
# Characters: the next one of Alice's Adventures in Wonderland, in lower case; nats a character.

WINDOW, COUNTED = 100, 50  # of a window of 100 characters, the last 50 count: each has 50 to look back on


def characters():
    """The next character: the first 80 % of the text to train on, 10 % to choose by, 10 % to test."""
    text = rnndata.read("alice.txt").lower()
    letters = sorted(set(text))
    codes, V = torch.tensor([letters.index(letter) for letter in text]), len(letters)
    ends = [0, len(codes) * 8 // 10, len(codes) * 9 // 10, len(codes)]
    train, *others = (codes[a:b] for a, b in itertools.pairwise(ends))

    def batch(generator):
        starts = torch.randint(len(train) - 64, (32, 1), generator=generator)
        return shifted(train[starts + torch.arange(65)])

    def shifted(rows):
        return F.one_hot(rows[:, :-1], V).float(), rows[:, 1:]

    def error(scores, y):
        return nats(scores[:, -COUNTED:], y[:, -COUNTED:])

    valid, test = (shifted(part.unfold(0, WINDOW + 1, COUNTED)) for part in others)
    return Task(V, V, 16, batch, valid, test, nats, error)
