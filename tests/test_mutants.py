"""Right answers that a machine spoilt in one place lose points; every survivor is shown to be the same answer."""

import sys
from pathlib import Path

import numpy as np
import pytest

from autograde import exercises
from publish.manuscript import slugs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import checks  # noqa: E402
import mutants  # noqa: E402

pytestmark = pytest.mark.skipif(not slugs(), reason="this is the student edition: there are no manuscripts")
ANSWERS = [answer for slug in slugs() for answer in mutants.answers(slug)]


def value_of(code):
    """Run the last function of an answer without arguments."""
    names = {"np": np}
    exec(compile(code, "<answer>", "exec"), names)
    return {name: np.asarray(value) for name, value in next(reversed(names.values()))().items()}


def test_a_program_below_the_answer_is_not_changed():
    source = "def f(x):\n    y = 2 * x\n    return y\n    y = 3 * x\n    return y + 1\n"
    assert mutants.reached(source) == "def f(x):\n    y = 2 * x\n    return y\n"


# A prediction earns points for being near: another seed, or noise with the other sign, predicts as well.
SCORED_BY_DISTANCE = {"predict-gain"}


@pytest.mark.parametrize(("exercise", "source", "imports"), ANSWERS, ids=[exercise.id for exercise, *_ in ANSWERS])
def test_a_change_of_any_place_of_a_right_answer_loses_points_unless_it_changes_nothing(exercise, source, imports):
    every = list(mutants.mutants(source))
    survivors = [mutant for mutant in every if not mutants.checked(exercise, mutant.code, imports)]
    assert not mutants.checked(exercise, source, imports), "the answer itself is right"
    assert len(every) >= 3
    if exercise.id in SCORED_BY_DISTANCE:
        assert len(survivors) <= len(every) / 4
        return
    for _, what, code in survivors:  # the same, shown: the numbers that come out are the same
        assert not exercise.draw()[0].arguments or "bits" in exercise.draw()[0].arguments, what
        before, after = value_of(source), value_of(code)
        assert all(np.array_equal(before[name], after[name]) for name in before | after), what


def test_mutants_differ_from_the_code_and_from_each_other_and_still_parse():
    source = "def f(x, y):\n    return (x - 2 * y.T) @ np.tanh(x) if x < 1 else -g(x, y)\n"
    every = [mutant.code for mutant in mutants.mutants(source)]
    assert len(every) == len(set(every)) >= 12
    assert source.strip() not in every
    for code in every:
        compile(code, "<mutant>", "exec")


def test_the_tests_that_run_a_line_of_rnncore_are_found_and_notice_that_it_is_spoilt(monkeypatch):
    monkeypatch.setattr(mutants, "TESTS", mutants.TESTS[:1])
    code = (ROOT / "rnncore.py").read_text("utf-8")
    place = code.index("c = f * c + i * g")
    spoilt = code[:place] + code[place:].replace("+", "-", 1)
    every = mutants.tests_by_line()
    chosen = mutants.choose(every, code[:place].count("\n") + 1, code)
    assert 5 < len(chosen) < len(every[0]) / 2
    assert any("lstm" in name for name in chosen)
    assert mutants.tested(spoilt, chosen)
    assert not mutants.tested(code, chosen), "the right code passes"
    first = mutants.choose(every, 1, code)
    assert first == every[0], "a line outside every function is run by all tests, while importing"


def test_the_benchmark_of_the_checks_times_every_exercise_and_names_every_mistake(tmp_path, monkeypatch, capsys):
    first = [exercises.find(name) for name in exercises.checked()[:4]]
    monkeypatch.setattr(exercises, "checked", lambda: [exercise.id for exercise in first])
    assert checks.main(["--repeats", "1", "--out", str(tmp_path)]) == 0
    rows = [line.split("`")[1] for line in (tmp_path / "checks.md").read_text().splitlines()[3:]]
    assert rows == exercises.checked()
    table = (tmp_path / "misconceptions.md").read_text()
    every = sum(len(exercise.misconceptions) for exercise in first)
    assert table.count("| yes |") == every == len(table.splitlines()) - 3


def test_the_tables_are_of_the_exercises_and_the_mistakes_that_there_are():
    there = [exercises.find(name) for name in exercises.checked()]
    for table in ("checks.md", "mutants.md"):
        rows = (ROOT / "benchmarks" / table).read_text().splitlines()[3:]
        listed = [row.split("`")[1] for row in rows if "rnncore" not in row]
        assert listed == [exercise.id for exercise in there], f"`make bench` writes {table}"
    mistakes = (ROOT / "benchmarks" / "misconceptions.md").read_text().splitlines()[3:]
    assert [row.split(" | ")[1] for row in mistakes] == [name for exercise in there for name in exercise.misconceptions]
    assert all(row.endswith("| yes |") for row in mistakes)
