"""`check`: what a notebook calls to compare a student's answer with the reference."""

import difflib
import sys

from autograde import exercises
from autograde.attempt import attempts, captured
from autograde.compare import describe
from autograde.diagnose import expect, judge
from autograde.exercise import PUBLIC_SEED
from autograde.feedback import Verdict

SECONDS = 10  # that all cases of an exercise may take together


def check(exercise_id, answer):
    """Compare a student's answer with the reference and return a `Verdict`: its score, and feedback to read.

    exercise_id is the exercise's id, as in the notebook; answer is the function itself, not what it returns. Nothing
    the answer prints reaches the notebook: it is shown in the feedback, and exceptions are explained there.
    Raises ValueError for an unknown id and TypeError for what is no id.
    """
    exercise = _find(exercise_id)
    if not callable(answer):
        came = f"{describe(answer)} came"
        refusal = f"Pass the function itself, without calling it: check({exercise.id!r}, its_name). Here {came}."
        found = Verdict(exercise.id, exercise.points, refusal=refusal)
    else:
        found = verdict(exercise, answer)
    if sys.stdout.isatty() and hasattr(sys, "ps1"):  # a terminal's prompt shows no HTML, and only the score
        print(found)
    return found


def verdict(exercise, answer, seed=PUBLIC_SEED, seconds=SECONDS, trusted=False):
    """Run an exercise's cases on an answer and return the `Verdict`; a trusted answer may use what is forbidden."""
    with captured():
        expect(exercise, seed)
    with captured() as printed:
        forbidden = () if trusted else exercise.forbidden
        found = attempts(exercise.try_out, answer, exercise.draw(seed), forbidden, seconds)
    with captured():  # a misconception may warn
        return judge(exercise, found, seed, printed.getvalue())


def _find(exercise_id):
    if not isinstance(exercise_id, str):
        raise TypeError(f"check takes the exercise's id first, a string; here {describe(exercise_id)} came")
    try:
        return exercises.find(exercise_id)
    except KeyError:
        known = exercises.checked()
        close = difflib.get_close_matches(str(exercise_id), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ValueError(f"there is no exercise {exercise_id!r}; {hint}") from None
