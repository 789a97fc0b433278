"""Runs a student's notebook in sandboxed workers and judges its answers from outside."""

import ast
import base64
import binascii
import marshal
import math
import re
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from autograde import exercises
from autograde.attempt import Attempt, run
from autograde.check import SECONDS
from autograde.diagnose import expect, judge
from autograde.feedback import Verdict
from autograde.notebook import grade_id, is_test, runs
from autograde.sandbox import Died

ROOT = Path(__file__).resolve().parent.parent
SHOWN_LIMIT = 10**7  # characters that all cells of a notebook may show together
_PARSING = threading.Lock()  # Python 3.11 cannot parse in two threads at once: python/cpython issue 106905
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class Result:
    """What grading a notebook gave: {check's grade_id: verdict}, and what its cells showed, {place: outputs}.

    `passed` has the instructor's own tests, cells of assertions, that raised nothing, {name: value}: the number that
    the last line gave, for nbgrader a part of the points, or None. They run in the student's process, as nbgrader runs
    them, and so say only what that process says.
    """

    verdicts: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    passed: dict = field(default_factory=dict)
    problem: str = ""  # why the notebook could not be read or run to its end


@dataclass(frozen=True)
class _Check:
    """A check of the course's notebook: which exercise, and the name that stands for the answer."""

    exercise: object
    answer: str


def grade(nb, source, box, seed):
    """Grade a sanitised notebook in workers of a sandbox; return a `Result`.

    Every kind of rnncore that the exercises allow gets a worker of its own, which never holds more than that: what an
    exercise forbids is not there to be found. Students' cells run in each, up to the last check that is its own.
    """
    checks = _checks(source)
    result = Result()
    if reason := nb.metadata.get("unreadable"):
        result.problem = f"not read: {reason}"
        for name, check in checks.items():
            result.verdicts[name] = _refused(check, f"The notebook could not be read: {reason}", "unreadable")
        return result
    kinds = {None: {}}
    for name, check in checks.items():
        kinds.setdefault(_provided(check.exercise), {})[name] = check
    for provided, own in kinds.items():
        _run(nb, own, checks.keys() - own.keys(), provided, box, seed, result)
    return result


def _checks(source):
    """Return {grade_id: `_Check`} of the cells of the course's notebook that read `check("id", name)`."""
    found = {}
    for cell in source.cells:
        if is_test(cell) and (call := re.fullmatch(r"check\(\"([a-z0-9-]+)\", (\w+)\)", cell.source.strip())):
            found[grade_id(cell)] = _Check(exercises.find(call[1]), call[2])
    return found


def _provided(exercise):
    """Return what of rnncore a worker may hold for an exercise: None for all of it."""
    touched = any(name.split(".")[0] == "rnncore" for name in exercise.forbidden)
    return exercise.provided if touched else None


def _run(nb, checks, others, provided, box, seed, result):
    """Run a notebook's cells in one worker and judge these checks, not the others."""
    for check in checks.values():
        expect(check.exercise, seed)
    with _PARSING:
        ours, reason = modules(provided), ""
    with box.worker() as worker:  # outside of what follows: where no worker can be had, nobody is graded
        try:
            worker.provide(ours)
            _run_cells(nb, checks, others, provided is None, worker, box.limits.cell, seed, result)
        except Died as error:
            reason, kind = str(error), error.kind
        except Exception as error:  # the worker's answer is none: it may be any plain data at all
            reason, kind = f"The notebook's process answered nonsense ({type(error).__name__}).", Died.kind
    if reason:
        result.problem = reason
        for name in checks.keys() - result.verdicts.keys():
            result.verdicts[name] = _refused(checks[name], reason, kind)


def _run_cells(nb, checks, others, whole, worker, seconds, seed, result):
    """Run cells up to the last of these checks, and judge these.

    Where the `whole` of rnncore is at hand, cells run to the end, what they show is kept, and the instructor's own
    tests run.
    """
    errors, room = {}, SHOWN_LIMIT
    for place, cell in enumerate(nb.cells):
        name = grade_id(cell)
        if not whole and checks.keys() <= result.verdicts.keys():
            break
        if name in checks:
            result.verdicts[name] = _judged(worker, checks[name], errors, seed)
        elif runs(cell) and name not in others and (whole or not is_test(cell)):
            figures = whole and bool(cell.metadata.get("nbgrader", {}).get("grade"))
            shown = worker.run(cell.source, seconds, figures)
            errors[name] = str(shown["error"])
            if whole:
                outputs = _outputs(shown)
                room -= sum(len(text) for output in outputs for text in output.values())
                result.outputs[place] = outputs if room >= 0 else []
            if is_test(cell) and not errors[name]:
                result.passed[name] = _finite(shown["value"])


def _refused(check, reason, kind):
    return Verdict(check.exercise.id, check.exercise.points, refusal=reason, kind=kind)


def _judged(worker, check, errors, seed):
    """Let a worker run an answer on the exercise's cases, one at a time, and judge what comes."""
    exercise = check.exercise
    if wrong := worker.probe(check.answer, (exercise.inside or exercise.probe).__name__, exercise.forbidden, SECONDS):
        raised = errors.get(exercise.id)
        why = f" Its cell raised {raised}" if raised else " Is its cell still there?"
        missing = f"There is no {check.answer} here." + why
        return _refused(check, missing if "missing" in wrong else f"{check.answer} is no function.", "missing")
    cases = exercise.draw(seed)
    found = [_attempt(exercise, worker.ask(case.arguments), case) for case in (*cases, *cases[:1])]
    return judge(exercise, found, seed, _writable(worker.end_of_cases()["printed"]))


def _attempt(exercise, claim, case):
    """Return an `Attempt` from what a worker says; of what it says only the result can earn anything."""
    attempt = Attempt(
        result=claim["result"],
        kind=str(claim["kind"])[:100],
        problem=str(claim["problem"])[:2000],
        details=tuple(str(line)[:500] for line in list(claim["details"])[:50]),
        changed=tuple(name for name in case.arguments if name in list(claim["changed"])),
    )
    if attempt.kind or not exercise.inside:
        return attempt
    return run(exercise.probe, lambda: attempt.result, case.arguments, clock=nullcontext())


@lru_cache(maxsize=8)
def modules(provided):
    """Return the course's modules for a worker, {name: {"text", "code"}}: all of rnncore, or the parts provided.

    Compiled here, once, and not in every worker, for which it takes as long as most notebooks do.
    """
    texts = {"rnncore": part_of_rnncore(provided), "rnnplot": (ROOT / "rnnplot.py").read_text("utf-8")}
    compiled = {name: marshal.dumps(compile(text, f"/course/{name}.py", "exec")) for name, text in texts.items()}
    return {name: {"text": text, "code": np.frombuffer(compiled[name], np.uint8)} for name, text in texts.items()}


WITHHELD = """

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"rnncore.{name} is not at hand here: this exercise asks you to write it yourself")
"""


def part_of_rnncore(provided):
    """Return the source of rnncore, or, where `provided` is not None, of these functions and what they need."""
    text = (ROOT / "rnncore.py").read_text("utf-8")
    if provided is None:
        return text
    if not provided:
        return WITHHELD
    tree = ast.parse(text)
    defined = {}
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        names += [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        defined |= dict.fromkeys(names, node)
    needed, waiting = set(), list(provided)
    while waiting:
        node = defined.get(waiting.pop())
        if node is not None and node not in needed:
            needed.add(node)
            waiting += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    kept = [node for node in tree.body if node in needed or isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n\n".join(ast.unparse(node) for node in kept) + WITHHELD


def _outputs(shown):
    """Return a cell's outputs as plain text and PNG, whatever the worker sent."""
    outputs = []
    if text := _writable(shown["text"]):
        outputs.append({"text": text})
    for output in list(shown["outputs"])[:20]:
        image, text = output.get("image/png"), _writable(output.get("text/plain", ""))
        outputs.append({"text/plain": text} | ({"image/png": image} if _is_png(image) else {}))
    if (error := _writable(shown["error"])) and error not in text:
        outputs.append({"text": error})
    return outputs


def _writable(text):
    """Return a text as a notebook's file can hold it: bounded, and without half a surrogate pair."""
    return str(text)[:20_000].encode(errors="replace").decode()


def _finite(value):
    return value if isinstance(value, float) and math.isfinite(value) else None


def _is_png(text):
    if not isinstance(text, str) or len(text) > 2_000_000:
        return False
    try:
        return base64.b64decode("".join(text.split()), validate=True).startswith(PNG)
    except (binascii.Error, ValueError):
        return False
