"""Runs an answer on cases and notes what came of each. Knows no right answer: it could run beside a student's code."""

import contextlib
import copy
import inspect
import io
import linecache
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from autograde import guard
from autograde.compare import describe, named
from autograde.probes import Given, Unusable

HERE = Path(__file__).resolve().parent
OURS = (HERE, HERE.parent / "rnncore.py")  # whose frames a student need not read
MESSAGE_LIMIT = 500  # characters of an exception's message that are shown


@dataclass(frozen=True)
class Attempt:
    """What came of one case: a result, or why there is none.

    kind is "" when there is a result, else the name of what was raised; `problem` and `details` explain it. `changed`
    names the arguments that the answer changed in place.
    """

    result: Any = None
    kind: str = ""
    problem: str = ""
    details: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


NOT_RUN = Attempt(kind="NotRun", problem="Not run: the time was over.")


def attempts(probe, answer, cases, forbidden=(), seconds=None):
    """Return an `Attempt` for every case, and one more: the first case again, to see whether the result stays."""
    with attempting(probe, answer, forbidden, seconds) as attempt:
        return [attempt(case.arguments) for case in (*cases, *cases[:1])]


@contextlib.contextmanager
def attempting(probe, answer, forbidden=(), seconds=None):
    """Yield a function that runs an answer on one case's arguments and returns an `Attempt`.

    forbidden names what the answer may not use, and `seconds` is the time that all cases may take together; once either
    has come up, no case is run any more.
    """
    reason, line = guard.uses(answer, forbidden)
    last = Attempt(kind="Forbidden", problem=reason, details=line) if reason else None
    with guard.time_limit(seconds) as clock, guard.watch(forbidden, frame_of=run) as seen:

        def attempt(arguments):
            nonlocal last
            if last and last.kind in ("OutOfTime", "NotRun"):
                last = NOT_RUN
            elif not last or last.kind != "Forbidden":
                last = run(probe, answer, arguments, clock)
                if seen:  # though the answer caught the exception
                    last = Attempt(kind="Forbidden", problem=seen[0], details=last.details)
            return last

        yield attempt


def run(probe, answer, arguments, clock):
    """Run one case on a copy of its arguments."""
    given = Given(_copied(dict(arguments)))  # an answer that changes its arguments changes its own copy
    try:
        with clock:  # the alarm rings only here
            result = probe(answer, given)
    except Unusable as error:
        return Attempt(kind="Unusable", problem=f"{error}.")
    except (guard.Forbidden, guard.OutOfTime) as error:
        return Attempt(kind=type(error).__name__, problem=str(error), details=_line(error))
    except KeyboardInterrupt:  # the student's, or nbgrader's when time is up
        raise
    except BaseException as error:  # whatever else a student's code raises, SystemExit too, is explained
        if isinstance(error, NotImplementedError) and not error.args:
            return _unwritten(error, answer)
        told = named(given.passed or {n: v for n, v in arguments.items() if n != "weights"})  # which are a module's own
        passed = tuple(f"{name}: {_passed(value)}" for name, value in told.items() if not isinstance(value, list))
        return Attempt(kind=type(error).__name__, problem=_raised(error), details=(*_line(error), *passed))
    before, after = named(arguments), named(given)
    changed = (name for name, value in before.items() if name not in after or not _same(value, after[name]))
    return Attempt(result, changed=tuple(changed))


def _copied(value):
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    if type(value) is list:
        return list(map(_copied, value))
    return value.clone() if is_torch_array(value) else copy.deepcopy(value)  # which takes 16 times as long for a tensor


def _passed(value):
    return value if isinstance(value, int | float) else describe(value)


def _unwritten(error, answer):
    """Tell an answer that is not written from one that calls something which is not."""
    *_, last = traceback.walk_tb(error.__traceback__)
    code = last[0].f_code
    own = [inspect.unwrap(function).__code__ for function in guard.functions_of(answer)]
    if code in own or not own:
        return Attempt(kind="unwritten", problem="`raise NotImplementedError()` is reached: a part is not written yet.")
    problem = f"{code.co_name}, which this answer calls, is not written yet."
    return Attempt(kind="NotImplementedError", problem=problem, details=_line(error))


def _same(before, after):
    if type(after) is not type(before):
        return False
    if isinstance(before, np.ndarray):
        alike = before.shape == after.shape
        return alike and (before.tobytes() == after.tobytes() or np.array_equal(before, after, True))
    if is_torch_array(before):
        alike = before.shape == after.shape and before.dtype == after.dtype
        return alike and (before.equal(after) or bool(((before == after) | (before.isnan() & after.isnan())).all()))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(before[name], after[name]) for name in before)
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(_same, before, after))
    return before is after or bool(before == after)


def _raised(error):
    try:
        message = str(error)
    except BaseException:  # a student's own exception class may fail at this
        message = "(its message cannot be shown)"
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[:MESSAGE_LIMIT]} …"
    hint = ". Does the function call itself?" if isinstance(error, RecursionError) else ""
    return f"Your code raises {type(error).__name__}{': ' * bool(message)}{message}{hint}"


def _line(error):
    """Return the line of the student's at which an exception was raised, if there is one."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__, limit=-50) if not _is_ours(frame)]
    frame = next(filter(_is_written_here, reversed(frames)), None)
    if frame is None:  # the call itself failed: another number of arguments, say
        return ()
    linecache.checkcache(frame.filename)
    return (f"line {frame.lineno}: {(frame.line or '').strip()}",)


def _is_ours(frame):
    path = Path(frame.filename)
    return any(ours == path or ours in path.parents for ours in OURS)


def _is_written_here(frame):
    """Tell whether a frame is the student's own code rather than a library's."""
    return "site-packages" not in frame.filename and "lib/python" not in frame.filename


class _Kept(io.StringIO):
    def close(self):
        """Stay open: an answer that closes sys.stdout closes this."""


@contextlib.contextmanager
def captured():
    """Keep everything that is printed, by Python or below it: one byte on stderr would cost a student all points."""
    kept = _Kept()
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
