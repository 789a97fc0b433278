"""What an exercise is: run a probe on an implementation, compare two results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

PUBLIC_SEED = 0  # a notebook's checks draw their cases from this one


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    What stands in a dictionary is spoken of by its own name, but the answer is not said to have been given "weights",
    which its module holds, nor what stands in a list, which only the probe reads.

    `label` says what is particular about it and depends on no seed. A case that an answer without thought would pass
    is shown to the student but not `counted`. Where only one term of the equation acts, `term` names it.
    """

    label: str
    arguments: Mapping[str, Any]
    counted: bool = True
    term: str = ""


@dataclass(frozen=True)
class Misconception:
    """A wrong implementation that students write, and `advice`, where to look or what to think of: not the answer."""

    implementation: Callable
    advice: str

    def in_every_step(self, loop):
        """Return this mistake in a step as one of a sequence: loop(..., step=...) is right but for the step."""
        advice = f"The loop is right; look at the step, or call rnncore's. {self.advice}"
        return Misconception(partial(loop, step=self.implementation), advice)


@dataclass(frozen=True, eq=False)  # an exercise is equal to itself alone, so that it can be a key
class Exercise:
    """A graded exercise.

    id               lower-case words with hyphens, unique in the course
    points           what all counted cases together are worth
    reference        the right implementation
    cases            cases(rng) -> the cases, smallest first; labels and number do not depend on the generator
    probe            probe(implementation, arguments) -> plain results: arrays, numbers, strings, dicts of these;
                     runs in the student's process
    measure          measure(what `probe` returned, arguments) -> the result that is compared, found outside that
                     process; for what could be forged there, since everyone knows how it has to come out
    axes             the result's axes, for messages: "B T H"; "" for a number; {entry: axes} for a dictionary
    result           what messages call the result
    place            place(index, arguments) -> where an entry of an array is, in words: "after 1 1 0"; None: "[0, 2]"
    misconceptions   {what went wrong: Misconception}; the names complete "your result is what one gets when …"
    forbidden        dotted names of what the answer may not use, since it is to be written: "torch.nn.RNN"
    provided         what of rnncore an answer may use, where forbidden names rnncore or a part of it: "rnn_step"
    section          the chapter's section that explains it, to read again
    tolerance        the largest relative difference that still counts as equal
    """

    id: str
    points: int
    reference: Callable
    cases: Callable[[np.random.Generator], Iterable[Case]]
    probe: Callable[[Callable, Mapping[str, Any]], Any]
    measure: Callable[[Any, Mapping[str, Any]], Any] | None = None
    axes: str | Mapping[str, str] = ""
    result: str = "the result"
    place: Callable[[tuple[int, ...], Mapping[str, Any]], str] | None = None
    misconceptions: Mapping[str, Misconception] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    section: str = ""
    tolerance: float = 1e-7

    def try_out(self, implementation, arguments):
        """Return the result of an implementation on a case's arguments: what `probe` returns, measured if need be."""
        came = self.probe(implementation, arguments)
        return self.measure(came, arguments) if self.measure else came

    def draw(self, seed=PUBLIC_SEED):
        """Return the cases of a seed: the same seed gives the same cases, for ever."""
        return list(_drawn(self, seed))


@lru_cache(maxsize=128)
def _drawn(exercise, seed):
    """Return an exercise's cases; kept, because a check asks for them several times and works on copies."""
    return tuple(exercise.cases(np.random.default_rng(seed)))


@dataclass(frozen=True)
class Manual:
    """An answer that a person grades: an id and points."""

    id: str
    points: int
