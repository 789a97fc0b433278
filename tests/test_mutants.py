"""Right answers that a machine spoilt in one place lose points; every survivor is shown to be the same answer."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autograde import exercises
from publish.manuscript import slugs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import mutants  # noqa: E402

pytestmark = pytest.mark.skipif(not slugs(), reason="this is the student edition: there are no manuscripts")
ANSWERS = [answer for slug in slugs() for answer in mutants.answers(slug)]


def value_of(code):
    """Run the last function of an answer without arguments."""
    names = {"np": np}
    exec(compile(code, "<answer>", "exec"), names)
    return {name: np.asarray(value) for name, value in next(reversed(names.values()))().items()}


@pytest.mark.parametrize(("exercise", "source"), ANSWERS, ids=[exercise.id for exercise, _ in ANSWERS])
def test_a_change_of_any_place_of_a_right_answer_loses_points_unless_it_changes_nothing(exercise, source):
    every = list(mutants.mutants(source))
    survivors = [mutant for mutant in every if not mutants.checked(exercise, mutant.code)]
    assert not mutants.checked(exercise, source), "the answer itself is right"
    assert len(every) >= 4
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


def test_rnncores_tests_notice_a_spoilt_reference():
    code = (ROOT / "rnncore.py").read_text("utf-8")
    spoilt = code.replace("c = f * c + i * g", "c = f * c - i * g", 1)
    assert spoilt != code
    assert mutants.tested(spoilt, ["rnncore"])
    assert not mutants.tested(code, ["rnncore"]), "the right code passes"


def test_the_benchmark_of_the_checks_times_every_exercise(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "checks.py", "--repeats", "1", "--out", tmp_path / "checks.md"]
    subprocess.run(command, check=True, capture_output=True)
    table = (tmp_path / "checks.md").read_text()
    assert json.dumps(exercises.checked()) == json.dumps([line.split("`")[1] for line in table.splitlines()[3:]])
