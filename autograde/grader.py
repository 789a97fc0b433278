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
from autograde.checking import SECONDS
from autograde.compare import named
from autograde.diagnose import expect, judge
from autograde.feedback import Verdict
from autograde.notebook import grade_id, is_test, runs
from autograde.sandbox import SLOW, Died

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
    """A check of the course's notebook: which exercise, the name that stands for the answer, and what is provided.

    That is of rnncore what a worker may hold for the exercise, a set of names, or None for all of it.
    """

    exercise: object
    answer: str
    provided: frozenset | None


def grade(nb, source, box, seed):
    """Grade a sanitised notebook in workers of a sandbox; return a `Result`.

    What an exercise forbids is not there to be found: a worker begins with what of rnncore the strictest check allows,
    and is given more when it comes to a check that allows more and no stricter one is left, so that no worker follows
    one that held more. Where a cell asked for something that is only given later, another worker begins from the top.
    """
    checks = _checks(source)
    result = Result()
    if reason := nb.metadata.get("unreadable"):
        result.problem = f"not read: {reason}"
        for name, check in checks.items():
            result.verdicts[name] = _refused(check, f"The notebook could not be read: {reason}", "unreadable")
        return result
    for check in checks.values():
        expect(check.exercise, seed)
    text = "\n".join(cell.source for cell in source.cells if runs(cell))
    grading = _Grading(nb, checks, box, seed, result, [name for name in SLOW if name in text])
    while grading.left or not grading.shown:
        grading.use_a_worker()
    return result


def _checks(source):
    """Return {grade_id: `_Check`} of the cells of the course's notebook that read `check("id", name)`."""
    found = {}
    for cell in source.cells:
        if is_test(cell) and (call := re.fullmatch(r"check\(\"([a-z0-9-]+)\", (\w+)\)", cell.source.strip())):
            exercise = exercises.find(call[1])
            found[grade_id(cell)] = _Check(exercise, call[2], _provided(exercise))
    return found


def _provided(exercise):
    """Return what of rnncore a worker may hold for an exercise: None for all of it."""
    touched = any(name.split(".")[0] == "rnncore" for name in exercise.forbidden)
    return frozenset(exercise.provided) if touched else None


class _Grading:
    """One notebook's grading by workers, one after the other, until all checks are judged and all cells have run.

    left    the checks that are still to be judged, in the order of the notebook; every worker takes some away
    shown   whether a worker that held all of rnncore has come to the end: what its cells showed is kept
    """

    def __init__(self, nb, checks, box, seed, result, uses):
        order = [name for cell in nb.cells if (name := grade_id(cell)) in checks]
        self.left, self.shown = {name: checks[name] for name in order}, False
        self._nb, self._checks, self._box, self._seed, self._result = nb, checks, box, seed, result
        self._uses = uses

    def use_a_worker(self):
        """Run the notebook from the top in a new worker, as far as one worker comes."""
        reason = ""
        self._provided = min((check.provided for check in self.left.values()), key=_much, default=None)
        began = self._provided
        self._outputs, self._passed = {}, {}
        with self._box.worker(self._uses) as worker:  # where none can be had, nobody is graded: outside of the `try`
            try:
                worker.provide(modules(self._provided))
                self._run_cells(worker)
            except Died as error:
                reason, kind = str(error), error.kind
            except Exception as error:  # the worker's answer is none: it may be any plain data at all
                reason, kind = f"The notebook's process answered nonsense ({type(error).__name__}).", Died.kind
        if reason:
            self._result.problem = reason
            once_more = self._provided != began  # what came before may have used up time or memory
            for name in [name for name, check in self.left.items() if not once_more and check.provided == began]:
                self._result.verdicts[name] = _refused(self.left.pop(name), reason, kind)
        if self._provided is None and not self.shown and not (reason and began is not None):
            self._result.outputs, self._result.passed, self.shown = self._outputs, self._passed, True

    def _run_cells(self, worker):
        errors, room, self._lacked = {}, SHOWN_LIMIT, False
        for place, cell in enumerate(self._nb.cells):
            name = grade_id(cell)
            if name in self.left:
                wanted = self.left[name].provided
                if not self._may_have(wanted):
                    continue  # for another worker
                if not self._give(worker, wanted):
                    return
                self._result.verdicts[name] = _judged(worker, self.left[name], errors, self._seed)
                del self.left[name]
            elif runs(cell) and name not in self._checks:
                if not self.left and (self.shown or not self._give(worker, None)):
                    return
                figures = bool(cell.metadata.get("nbgrader", {}).get("grade"))
                shown = worker.run(cell.source, self._box.limits.cell, figures)
                errors[name] = _writable(shown["error"])
                self._lacked = self._lacked or bool(shown["lacked"]) or NOT_AT_HAND in errors[name]
                outputs = _outputs(shown)
                room -= sum(len(text) for output in outputs for text in output.values())
                self._outputs[place] = outputs if room >= 0 else []
                if is_test(cell) and not errors[name]:
                    self._passed[name] = _finite(shown["value"])
        if not self.left and not self._lacked:
            self._provided = None  # more would have made no difference

    def _may_have(self, wanted):
        """Whether a worker may get this much: not while a check is left that allows less, in this worker or a later."""
        more = _holds(wanted, self._provided) and all(_holds(check.provided, wanted) for check in self.left.values())
        return more or wanted == self._provided

    def _give(self, worker, wanted):
        """Give a worker this much of rnncore, if it has less; return False where its cells already asked for it."""
        if wanted != self._provided:
            if self._lacked:
                return False
            worker.provide({"rnncore": modules(wanted)["rnncore"]})
            self._provided = wanted
        return True


def _much(part):
    return math.inf if part is None else len(part)


def _holds(part, other):
    """Whether a part of rnncore holds another; None is all of it."""
    return part is None or (other is not None and other <= part)


def _refused(check, reason, kind):
    return Verdict(check.exercise.id, check.exercise.points, refusal=reason, kind=kind)


def _judged(worker, check, errors, seed):
    """Let a worker run an answer on the exercise's cases, one at a time, and judge what comes."""
    exercise = check.exercise
    if wrong := worker.probe(check.answer, exercise.probe.__name__, exercise.forbidden, SECONDS):
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
        changed=tuple(name for name in named(case.arguments) if name in list(claim["changed"])),
    )
    if attempt.kind or not exercise.measure:
        return attempt
    return run(exercise.measure, attempt.result, case.arguments, clock=nullcontext())


def modules(provided):
    """Return the course's modules for a worker, {name: {"text", "code"}}: all of rnncore, or the parts provided."""
    with _PARSING:
        return _compiled(provided)


@lru_cache(maxsize=8)
def _compiled(provided):
    """Compile here, once, what every worker would take as long for as for most notebooks."""
    texts = {"rnncore": part_of_rnncore(provided), "rnnplot": (ROOT / "rnnplot.py").read_text("utf-8")}
    compiled = {name: marshal.dumps(compile(text, f"/course/{name}.py", "exec")) for name, text in texts.items()}
    return {name: {"text": text, "code": np.frombuffer(compiled[name], np.uint8)} for name, text in texts.items()}


NOT_AT_HAND = "is not at hand here: this exercise asks you to write it yourself"
WITHHELD = f"""

def __dir__():
    __getattr__.asked = True
    return list(globals())


def __getattr__(name):
    if name.startswith("__") and name != "__all__":  # which `from rnncore import *` asks for
        raise AttributeError(name)
    __getattr__.asked = True
    raise AttributeError("rnncore." + name + " {NOT_AT_HAND}")
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
