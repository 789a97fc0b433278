"""The tests of the exercises: right answers pass, wrong ones lose points, thoughtless ones earn nothing."""

import re
from importlib import import_module

import numpy as np
import pytest
import torch

import rnncore
from autograde import diagnose, exercises, guard, probes
from autograde.attempt import attempting, captured
from autograde.checking import verdict
from autograde.compare import named
from autograde.diagnose import judge

CHECKED = [exercises.find(name) for name in exercises.checked()]
IDS = [exercise.id for exercise in CHECKED]
SEEDS = range(100)
SLOW = (  # which build modules and run PyTorch's operations, or whose answers are held against simulated networks
    probes.module,
    probes.products_with_input,
    probes.filled,
    probes.loss_and_gradient,
    probes.perplexity_of,
    probes.draws,
    probes.training_step,
    probes.lstm_returned,
    probes.predictions,
)
SCORED = 20  # seeds for which a mistake's score is looked at
NAMED = 6  # of these, seeds for which it is looked for by name
MISTAKES = [(exercise, name) for exercise in CHECKED for name in exercise.misconceptions]

everywhere = pytest.mark.parametrize("exercise", CHECKED, ids=IDS)


def like(result, fill):
    """Something of the right form whose numbers are fill(how many)."""
    if isinstance(result, dict):
        return {name: like(value, fill) for name, value in result.items()}
    if isinstance(result, tuple):
        return tuple(like(value, fill) for value in result)
    if isinstance(result, torch.Tensor):
        made = torch.tensor(fill(result.numel())).to(result.dtype).view(result.shape)
        return made + 0 * result  # what the right result depends on, this does, too
    if isinstance(result, np.ndarray):
        return fill(result.size).astype(result.dtype).reshape(result.shape)
    return float(fill(1)[0])


def stub(*a):
    raise NotImplementedError()


def thoughtless(exercise):
    """Answers that know nothing but the form of a right one, and the arguments handed back."""
    rng = np.random.default_rng(1)
    fills = {"zeros": np.zeros, "ones": np.ones, "a constant": lambda n: np.full(n, 0.5)}
    fills["random"] = lambda n: rng.normal(size=n)
    shaped = as_module if isinstance(exercise.reference, type) else as_function
    for name, fill in fills.items():
        yield name, shaped(exercise, lambda right, *a, fill=fill: like(right(*a), fill))
        yield f"{name}, written into the arguments", shaped(exercise, lambda right, *a, fill=fill: filled(a, fill))
    if shaped is as_function:
        yield "everything masked", shaped(exercise, lambda right, *a: np.ma.masked_all_like(right(*a)))
    yield "None", shaped(exercise, lambda right, *a: None)
    yield "the stub", stub
    yield "a stub of a method", shaped(exercise, lambda right, *a: stub())
    arguments = exercise.draw()[0].arguments
    for position in range(len(arguments.get("inputs", arguments))):
        back = shaped(exercise, lambda right, *a, position=position: a[position] if len(a) > position else None)
        yield f"argument {position}", back


def as_function(exercise, answer):
    """A function that does answer(the right function, *arguments); the right one gets copies, for it may fill them."""

    def right(*a):
        return exercise.reference(*(v.detach().clone() if isinstance(v, torch.Tensor) else v for v in a))

    return lambda *a: answer(right, *a)


def as_module(exercise, answer):
    """A class with the right parameters; what forward does is answer(the right forward, *arguments)."""

    class Thoughtless(exercise.reference):
        def forward(self, *a):
            return answer(super().forward, *a)

    return Thoughtless


def filled(arguments, fill):
    """Fill the arrays among the arguments; return None."""
    for a in arguments:
        if isinstance(a, torch.Tensor):
            a.data.copy_(like(a.detach(), fill))
        elif isinstance(a, np.ndarray):
            a[...] = like(a, fill)


@everywhere
def test_the_reference_passes_for_every_seed(exercise):
    seeds = SEEDS[:30] if exercise.probe in SLOW else SEEDS
    scores = {verdict(exercise, exercise.reference, seed, trusted=True).score for seed in seeds}
    assert scores == {float(exercise.points)}


@pytest.mark.parametrize(("exercise", "name"), MISTAKES, ids=[f"{e.id}: {name}" for e, name in MISTAKES])
def test_a_misconception_is_named_alone_with_its_advice_and_loses_points_alike_for_every_seed(
    exercise, name, monkeypatch
):
    wrong = exercise.misconceptions[name]
    shown = verdict(exercise, wrong.implementation)
    text, scores = str(shown), {shown.score}
    assert f"your result is what one gets when {name}." in text
    assert wrong.advice in text
    assert exercise.section in text
    assert "@" not in text and "np." not in text, "an answer is shown"
    with captured(), np.errstate(all="ignore"), attempting(exercise.try_out, wrong.implementation) as attempt:

        def judged(seed, attempts):
            return judge(exercise, [*attempts, attempts[0]], seed)

        for seed in SEEDS[:NAMED]:
            cases = range(len(exercise.draw(seed)))  # each is run once, here and for the other mistakes
            found = judged(seed, [diagnose._of_misconception(exercise, name, seed, k) for k in cases])
            assert found.named == (name,)
            scores.add(found.score)
        for slow in ("misconceptions_of", "_numbers", "_first_step"):  # which say what is wrong, as they did above
            monkeypatch.setattr(diagnose, slow, lambda *a: [])
        for seed in () if exercise.probe in SLOW else SEEDS[NAMED:SCORED]:
            scores.add(judged(seed, [attempt(case.arguments) for case in exercise.draw(seed)]).score)
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
        given = [named(case.arguments).items() for case in exercise.draw(seed)]
        return [(name, repr(v)) for case in given for name, v in case]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4) or not exercise.draw()[0].arguments


@everywhere
def test_what_is_forbidden_and_what_is_provided_exists(exercise):
    assert [name for name, _ in guard._things(exercise.forbidden)] == list(exercise.forbidden)
    assert all(callable(getattr(rnncore, name)) for name in exercise.provided)


@everywhere
def test_an_exercise_has_at_least_five_misconceptions(exercise):
    assert len(exercise.misconceptions) >= 5


def wrong_without_the_last_character(reference):
    """Return the answer that takes the characters which occur for all there are."""

    def answer(codes, *weights):
        if codes.max() + 1 < len(weights[-1]):
            raise IndexError(codes.max())
        return reference(codes, *weights)

    return answer


@pytest.mark.parametrize("name", ["char-loss", "char-gradients"])
def test_that_the_last_character_need_not_occur_is_tried_alike_for_every_seed(name):
    exercise = exercises.find(name)
    for seed in range(30):
        without = [
            case.label for case in exercise.draw(seed) if case.arguments["codes"].max() + 1 < len(case.arguments["b_y"])
        ]
        assert without == ["B, T, V and H all different; the last character does not occur"]
    assert verdict(exercise, wrong_without_the_last_character(exercise.reference)).score < exercise.points


def test_a_gradient_of_three_axes_is_clipped_too():
    def answer(grads, limit):
        norm = sum(float(np.einsum("ij,ij->", g, g) if g.ndim == 2 else g @ g) for g in grads.values()) ** 0.5
        return {name: g * min(1.0, limit / norm) for name, g in grads.items()}, norm

    assert verdict(exercises.find("clip-gradients"), answer).score < 2.0


def test_a_miscount_and_rounding_down_do_not_make_each_other_good():
    def answer(blocks, D, C, budget, biases=1):
        H = 1
        while blocks * (H + 1) * (D + H + 1 + biases) + C * (H + 2) <= budget:
            H += 1
        return H

    found = verdict(exercises.find("matched-sizes"), answer)
    assert found.named == (
        "one bias is counted in each block, and the largest size that does not exceed the budget is taken",
    )
    assert found.score < 2.2


def test_ids_are_unique_and_well_formed():
    modules = [import_module(f"autograde.exercises.{slug}") for slug in exercises.chapters()]
    names = [exercise.id for module in modules for exercise in module.EXERCISES]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
