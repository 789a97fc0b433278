"""`check`: what a notebook calls to compare a student's answer with the reference."""

import contextlib
import copy
import difflib
import io
import linecache
import os
import sys
import tempfile
import traceback
from pathlib import Path

from autograde import exercises
from autograde.compare import compare, describe
from autograde.exercise import PUBLIC_SEED
from autograde.feedback import Outcome, Verdict
from autograde.probes import Unusable

HERE = Path(__file__).resolve().parent
OURS = (HERE, HERE.parent / "rnncore.py")  # whose frames a student need not read
MESSAGE_LIMIT = 500  # characters of an exception's message that are shown
NOT_WRITTEN = "This answer is not written yet: replace the line `raise NotImplementedError()` by your code."


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


def verdict(exercise, answer, seed=PUBLIC_SEED):
    """Run an exercise's cases on an answer and return the `Verdict`."""
    with _captured() as printed:
        outcomes, refusal = _run(exercise, answer, seed)
    return Verdict(exercise.id, exercise.points, tuple(outcomes), refusal, printed.getvalue())


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


def _run(exercise, answer, seed):
    """Return the outcome of every case, and the reason if the answer was not written yet."""
    outcomes = []
    for case, expected in zip(exercise.draw(seed), _expected(exercise, seed), strict=True):
        arguments = copy.deepcopy(dict(case.arguments))  # an answer that changes its arguments changes its own copy
        problem, details = "", ()
        try:
            result = exercise.probe(answer, arguments)
        except Unusable as error:
            problem = f"{error}."
        except KeyboardInterrupt:  # the student's, or nbgrader's when time is up
            raise
        except BaseException as error:  # whatever else a student's code raises, SystemExit too, is explained
            if isinstance(error, NotImplementedError) and not error.args:
                return [], NOT_WRITTEN
            problem, details = _raised(error, case.arguments)
        else:
            difference = compare(result, expected, exercise.axes, exercise.tolerance, exercise.result)
            problem = f"{_sentence(difference.text)}" if difference else ""
        outcomes.append(Outcome(case.label, case.counted, problem, details))
    return outcomes, ""


def _expected(exercise, seed):
    return [exercise.probe(exercise.reference, case.arguments) for case in exercise.draw(seed)]


def _raised(error, arguments):
    """Explain an exception: what it says, the line of the student's that raised it, and what was passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame)]
    details = []
    if frames:
        frame = (
            frames[-1] if _is_written_here(frames[-1]) else next(filter(_is_written_here, reversed(frames)), frames[0])
        )
        linecache.checkcache(frame.filename)
        details.append(f"line {frame.lineno}: {(frame.line or '').strip()}")
    details += [f"{name}: {describe(value)}" for name, value in arguments.items()]
    try:
        message = str(error)
    except Exception:  # a student's own exception class may fail at this
        message = "(its message cannot be shown)"
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[:MESSAGE_LIMIT]} …"
    return f"Your code raises {type(error).__name__}: {message}", tuple(details)


def _is_ours(frame):
    path = Path(frame.filename)
    return any(ours == path or ours in path.parents for ours in OURS)


def _is_written_here(frame):
    """Tell whether a frame is the student's own code rather than a library's."""
    return "site-packages" not in frame.filename and "lib/python" not in frame.filename


def _sentence(text):
    return text[0].upper() + text[1:] + "."


@contextlib.contextmanager
def _captured():
    """Keep everything that is printed, by Python or below it: one byte on stderr would cost a student all points."""
    kept = io.StringIO()
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    with tempfile.TemporaryFile() as below:
        saved = [os.dup(descriptor) for descriptor in (1, 2)]
        try:
            for descriptor in (1, 2):
                os.dup2(below.fileno(), descriptor)
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.redirect_stdout(kept))
                stack.enter_context(contextlib.redirect_stderr(kept))
                for stream in streams:
                    stack.enter_context(_diverted(stream, kept))
                yield kept
        finally:
            for stream in streams:
                stream.flush()  # what is still buffered goes where the descriptors point now
            for descriptor, original in zip((1, 2), saved, strict=True):
                os.dup2(original, descriptor)
                os.close(original)
            below.seek(0)
            kept.write(below.read(10_000).decode(errors="replace"))


@contextlib.contextmanager
def _diverted(stream, kept):
    """Let a stream write to `kept`, for those who hold the stream itself, as a logging handler made earlier does.

    A kernel's streams send their text past the descriptors. A plain Python's write to the descriptors; they refuse
    the change and need none.
    """
    try:
        stream.write = kept.write
    except AttributeError:
        yield
        return
    try:
        yield
    finally:
        del stream.write
