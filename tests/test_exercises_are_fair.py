"""The tests of the exercises: right answers pass, wrong ones lose points, thoughtless ones earn nothing."""

import re
from importlib import import_module

import numpy as np
import pytest
import torch

import rnncore
from autograde import diagnose, exercises, guard
from autograde.check import verdict

CHECKED = [exercises.find(name) for name in exercises.checked()]
IDS = [exercise.id for exercise in CHECKED]
MISTAKES = [(e, name) for e in CHECKED for name in e.misconceptions]
SEEDS = range(100)

everywhere = pytest.mark.parametrize("exercise", CHECKED, ids=IDS)


def like(result, fill):
    """Something of the right form whose every number is fill()."""
    if isinstance(result, dict):
        return {name: like(value, fill) for name, value in result.items()}
    if isinstance(result, tuple):
        return tuple(like(value, fill) for value in result)
    if isinstance(result, torch.Tensor):
        return torch.from_numpy(like(result.detach().numpy(), fill))
    if isinstance(result, np.ndarray):
        return np.array([fill() for _ in range(result.size)], dtype=result.dtype).reshape(result.shape)
    return fill()


def stub(*a):
    raise NotImplementedError()


def thoughtless(exercise):
    """Answers that know nothing but the form of a right one, and the arguments handed back."""
    rng = np.random.default_rng(1)
    fills = {"zeros": lambda: 0.0, "ones": lambda: 1.0, "a constant": lambda: 0.5, "random": rng.normal}
    for name, fill in fills.items():
        yield name, lambda *a, fill=fill: like(exercise.reference(*a), fill)
    yield "everything masked", lambda *a: np.ma.masked_all_like(exercise.reference(*a))
    yield "None", lambda *a: None
    yield "the stub", stub
    for position in range(len(exercise.draw()[0].arguments)):
        yield f"argument {position}", lambda *a, position=position: a[position] if a else None


@everywhere
def test_the_reference_passes_for_every_seed(exercise):
    assert {verdict(exercise, exercise.reference, seed, trusted=True).score for seed in SEEDS} == {
        float(exercise.points)
    }


@pytest.mark.parametrize(("exercise", "name"), MISTAKES, ids=[f"{e.id}: {name}" for e, name in MISTAKES])
def test_a_misconception_loses_points_and_alike_for_every_seed(exercise, name, monkeypatch):
    monkeypatch.setattr(diagnose, "misconceptions_of", lambda *a: [])  # the slow part, and tested by itself
    scores = {
        verdict(exercise, exercise.misconceptions[name].implementation, seed, trusted=True).score for seed in SEEDS
    }
    assert len(scores) == 1
    assert scores.pop() < exercise.points


@everywhere
def test_an_answer_without_thought_earns_nothing(exercise):
    for name, answer in thoughtless(exercise):
        assert verdict(exercise, answer).score == 0.0, name


@everywhere
def test_labels_and_number_of_cases_do_not_depend_on_the_seed(exercise):
    forms = {tuple((case.label, case.counted) for case in exercise.draw(seed)) for seed in SEEDS}
    assert len(forms) == 1
    labels = [label for label, _ in forms.pop()]
    assert len(labels) == len(set(labels)) >= 4


@everywhere
def test_the_same_seed_draws_the_same_cases_and_another_seed_others(exercise):
    def drawn(seed):
        return [np.asarray(v).tobytes() for case in exercise.draw(seed) for v in case.arguments.values()]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4) or not exercise.draw()[0].arguments


@everywhere
def test_what_is_forbidden_and_what_is_provided_exists(exercise):
    assert [name for name, _ in guard._things(exercise.forbidden)] == list(exercise.forbidden)
    assert all(callable(getattr(rnncore, name)) for name in exercise.provided)


@everywhere
def test_an_exercise_has_at_least_five_misconceptions(exercise):
    assert len(exercise.misconceptions) >= 5


def test_ids_are_unique_and_well_formed():
    modules = [import_module(f"autograde.exercises.{slug}") for slug in exercises.chapters()]
    names = [exercise.id for module in modules for exercise in module.EXERCISES]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
