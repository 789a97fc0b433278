"""What an exercise is: a definition that cannot be changed, drawn cases, and how exercises are found."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from autograde import draw, exercises
from autograde.compare import compare
from autograde.exercise import PUBLIC_SEED, Case, Exercise, Manual
from autograde.probes import call

EVERY = [exercise for slug in exercises.chapters() for exercise in exercises.load(slug).values()]


def double():
    cases = lambda rng: iter([Case("drawn", {"x": rng.normal(size=3)})])  # noqa: E731
    return Exercise("double", points=1, reference=lambda x: 2 * x, cases=cases, probe=call)


def test_cases_are_drawn_from_the_seed_and_the_public_one_unless_another_is_given():
    (drawn,), (again,), (other,) = double().draw(), double().draw(PUBLIC_SEED), double().draw(1)
    assert np.array_equal(drawn.arguments["x"], again.arguments["x"])
    assert not np.array_equal(drawn.arguments["x"], other.arguments["x"])


def test_drawing_cases_leaves_numpys_own_generator_alone():
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()
    for exercise in EVERY:
        if isinstance(exercise, Exercise):
            exercise.draw()
    assert np.random.get_state()[1].tolist() == before


def test_a_definition_is_not_changed_by_accident():
    for thing, name in ((double(), "points"), (Manual("essay", 1), "points"), (Case("one", {}), "counted")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, 7)


def test_an_id_finds_its_exercise_and_one_that_a_person_grades_is_not_checked():
    for exercise in EVERY:
        if isinstance(exercise, Manual):
            assert exercise.id not in exercises.checked()
            with pytest.raises(KeyError, match=exercise.id):
                exercises.find(exercise.id)
        else:
            assert exercises.find(exercise.id) is exercise
    assert {type(exercise) for exercise in EVERY} == {Exercise, Manual}


def test_an_unknown_chapter_has_no_exercises_and_nothing_else_is_imported_by_its_name():
    assert exercises.load("99_nowhere") == {}
    assert exercises.load("..check") == {}


def test_points_are_positive_whole_numbers():
    assert all(type(exercise.points) is int and exercise.points > 0 for exercise in EVERY)


DIVERGED = ("best-rate", "validation")  # where numbers that are none are what the exercise is about


def test_every_array_of_a_case_is_finite_and_float64_or_whole_numbers():
    for exercise in EVERY:
        for case in exercise.draw() if isinstance(exercise, Exercise) else ():
            for name, value in case.arguments.items():
                if isinstance(value, np.ndarray):
                    assert value.dtype in (np.float64, np.int64), (exercise.id, case.label, name)
                    finite = np.isfinite(value).all() or (exercise.id, name) == DIVERGED
                    assert finite, (exercise.id, case.label, name)


def test_drawn_recurrent_weights_contract_with_the_gain_that_is_asked():
    weights = draw.recurrent(np.random.default_rng(0), D=2, H=5, gain=0.7)
    assert {name: value.shape for name, value in weights.items()} == {"W_xh": (5, 2), "W_hh": (5, 5), "b_h": (5,)}
    assert np.linalg.svd(weights["W_hh"], compute_uv=False)[0] == pytest.approx(0.7)


def test_keeping_only_some_arguments_zeroes_the_others_and_changes_none():
    arguments = {"x": np.ones(2), "b": np.ones(3)}
    kept = draw.only(arguments, "b")
    assert kept["x"].tolist() == [0, 0]
    assert kept["b"].tolist() == [1, 1, 1]
    assert arguments["x"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1], "the result is a list of length 1; expected a dictionary with 'a', 'b'"),
        ({"a": np.ones(2)}, "the dictionary has 'a'; expected 'a', 'b'"),
        ({"a": np.ones(2), "b": 2}, "entry 'b' is 2; expected 1"),
        ({"a": np.ones(3), "b": 1}, "entry 'a' has shape (3,); expected (H,) = (2,)"),
    ],
)
def test_a_dictionary_is_compared_entry_by_entry_and_the_entry_is_named(result, message):
    expected = {"a": np.ones(2), "b": 1}
    assert compare(expected, expected, axes="H") is None
    assert compare(result, expected, axes="H").text == message


@pytest.mark.parametrize(("error", "equal"), [(0.5, True), (2.0, False)])
def test_the_tolerance_is_relative_to_the_largest_expected_number(error, equal):
    expected = np.array([1e-3, 1000.0])
    result = expected + np.array([error * 1e-7 * 1000, 0])
    assert (compare(result, expected, tolerance=1e-7) is None) == equal


def test_how_an_answer_is_called_is_known_without_any_right_answer():
    program = "import sys, autograde.probes; print([n for n in sys.modules if n == 'rnncore' or 'exercises.' in n])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
