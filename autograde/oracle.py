"""Two preprocessors for nbgrader: one drops what a notebook should not carry, one grades its answers from outside."""

import ast
import atexit
import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import secrets
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import nbformat
import numpy as np
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool

from autograde import exercises
from autograde.attempt import Attempt
from autograde.check import SECONDS
from autograde.diagnose import expect, judge
from autograde.feedback import Verdict
from autograde.sandbox import Died, Sandbox

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 30  # that a cell of a student's may take
SEED, CACHE = ".seed", ".graded"  # in a course
NOTEBOOK_LIMIT = 50 * 10**6  # bytes
PNG = b"\x89PNG\r\n\x1a\n"


class Sanitize(NbGraderPreprocessor):
    """Keeps a student's text and nothing else: metadata and the checks' cells come from the course's own notebook."""

    def preprocess(self, nb, resources):
        """Return the notebook as the course made it, with the student's text in it, and the student's own cells."""
        path = Path(resources["metadata"]["path"]) / f"{resources['metadata']['name']}.ipynb"
        if path.is_symlink():
            nb = unreadable("it is a link to another file")
        return sanitised(nb, _source(self, resources)), resources


class GradeOutside(NbGraderPreprocessor):
    """Runs the student's cells in a sandbox, compares results out here, and writes the verdicts as outputs."""

    confined = Bool(True, help="Whether to confine students' code; without, it runs as the user who grades.").tag(
        config=True
    )

    def preprocess(self, nb, resources):
        """Return the notebook with the outputs of its cells and a verdict under every check."""
        known = _source(self, resources)
        nb = sanitised(nb, known)  # done before, unless the configuration forgot it
        course = Path(_course(self).root)
        write_outputs(nb, cached(course, nb, known, self.confined, lambda: sandbox(self.confined)))
        return nb, resources


@lru_cache(maxsize=2)
def sandbox(confined):
    """Return this process's sandbox."""
    made = Sandbox(confined)
    atexit.register(made.__exit__)
    return made


def _course(preprocessor):
    return CourseDirectory(parent=preprocessor)


def _source(preprocessor, resources):
    """Return the course's own notebook of the one that is being graded."""
    course, about = _course(preprocessor), resources["nbgrader"]
    folder = course.format_path(course.source_directory, ".", about["assignment"])
    return nbformat.read(Path(folder) / f"{about['notebook']}.ipynb", as_version=4)


# ----------------------------------------------------------------------------------------------------------------------


def sanitised(nb, source):
    """Return a new notebook: the student's text, with the metadata and the locked cells of the course's notebook.

    A graded cell that is missing is added, empty if it is for an answer; a second one with the same name is an ordinary
    cell. HTML in a student's text is shown, not obeyed.
    """
    known = {cell.metadata.nbgrader.grade_id: cell for cell in source.cells if "nbgrader" in cell.metadata}
    demos = {cell.id: cell.source for cell in source.cells if "demo" in cell.metadata.get("tags", [])}
    given = {cell.source for cell in source.cells if cell.cell_type == "markdown"}
    cells, seen, ids = [], set(), set()
    for cell in nb.cells:
        name = _grade_id(cell)
        if name in known and name not in seen:
            seen.add(name)
            cells.append(_from_course(known[name], cell.source))
            checksum = cell.metadata.nbgrader.get("checksum")  # nbgrader's: whether an answer was touched at all
            if isinstance(checksum, str):
                cells[-1].metadata["nbgrader"]["checksum"] = checksum
        else:
            text = str(cell.source)
            if cell.cell_type == "code":
                cells.append(new_code_cell(text))
                if demos.get(cell.get("id")) == text:
                    cells[-1].metadata["tags"] = ["demo"]
            else:
                cells.append(new_markdown_cell(text if text in given else _without_html(text)))
        wanted = known[name].id if name in known and name not in ids else cell.get("id")
        if isinstance(wanted, str) and wanted not in ids and re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", wanted):
            cells[-1]["id"] = wanted
        ids.add(cells[-1]["id"])
    cells += [_from_course(cell, "") for name, cell in known.items() if name not in seen]
    metadata = {name: source.metadata[name] for name in ("kernelspec", "language_info") if name in source.metadata}
    clean = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    if reason := nb.metadata.get("unreadable"):
        clean.metadata["unreadable"] = str(reason)[:1000]
    return clean


def _grade_id(cell):
    about = cell.metadata.get("nbgrader")
    name = about.get("grade_id") if isinstance(about, dict) else None
    return name if isinstance(name, str) else None


def _from_course(cell, text):
    """Return the course's cell, with a student's text unless it is locked."""
    about = cell.metadata.nbgrader
    text = cell.source if about.get("locked") else str(text)
    if cell.cell_type == "code":
        made = new_code_cell(text)
    else:
        made = new_markdown_cell(text if about.get("locked") else _without_html(text))
    made.id, made.metadata["nbgrader"] = cell.id, dict(about)
    return made


def _without_html(text):
    """Put a space of no width where a tag, a character's number or an address that runs code would begin.

    So it is shown and not obeyed, in code as in prose.
    """
    return re.sub(r"(?i)<(?=[a-z/!?])|&(?=#|[a-z0-9]+;)|(?:javascript|vbscript|data)(?=[\s\\]*:)", "\\g<0>\u200b", text)


# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What grading a notebook gave: {check's grade_id: verdict}, and what its cells showed, {place: outputs}.

    `passed` names the instructor's own tests, cells of assertions, that raised nothing. They run in the student's
    process, as nbgrader runs them, and so say only what that process says.
    """

    verdicts: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    passed: list = field(default_factory=list)
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
            result.verdicts[name] = _refused(check, f"The notebook could not be read: {reason}")
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
        if _is_test(cell) and (call := re.fullmatch(r"check\(\"([a-z0-9-]+)\", (\w+)\)", cell.source.strip())):
            found[_grade_id(cell)] = _Check(exercises.find(call[1]), call[2])
    return found


def _is_test(cell):
    about = cell.metadata.get("nbgrader", {})
    return cell.cell_type == "code" and bool(about.get("grade") and about.get("locked"))


def _provided(exercise):
    """Return what of rnncore a worker may hold for an exercise: None for all of it."""
    touched = any(name.split(".")[0] == "rnncore" for name in exercise.forbidden)
    return exercise.provided if touched else None


def _run(nb, checks, others, provided, box, seed, result):
    """Run a notebook's cells in one worker and judge these checks, not the others.

    Where all of rnncore is at hand, cells run to the end, what they show is kept, and the instructor's own tests run.
    """
    errors, whole = {}, provided is None
    for check in checks.values():
        expect(check.exercise, seed)
    try:
        with box.worker() as worker:
            worker.provide(modules(provided))
            for place, cell in enumerate(nb.cells):
                name = _grade_id(cell)
                if not whole and checks.keys() <= result.verdicts.keys():
                    break
                if name in checks:
                    result.verdicts[name] = _judged(worker, checks[name], errors, seed)
                elif _runs(cell) and name not in others and (whole or not _is_test(cell)):
                    figures = whole and bool(cell.metadata.get("nbgrader", {}).get("grade"))
                    shown = worker.run(cell.source, CELL_SECONDS, figures)
                    errors[name] = str(shown["error"])
                    if whole:
                        result.outputs[place] = _outputs(shown)
                    if _is_test(cell) and not errors[name]:
                        result.passed.append(name)
    except Died as error:
        reason = result.problem = str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # the worker's answer is none
        reason = result.problem = f"The notebook's process answered nonsense ({type(error).__name__})."
    for name in checks.keys() - result.verdicts.keys():
        result.verdicts[name] = _refused(checks[name], reason)


def _runs(cell):
    return cell.cell_type == "code" and "demo" not in cell.metadata.get("tags", [])


def _refused(check, reason):
    return Verdict(check.exercise.id, check.exercise.points, refusal=reason)


def _judged(worker, check, errors, seed):
    """Let a worker run an answer on the exercise's cases, one at a time, and judge what comes."""
    exercise = check.exercise
    if wrong := worker.probe(check.answer, exercise.probe.__name__, exercise.forbidden, SECONDS):
        raised = errors.get(exercise.id)
        why = f" Its cell raised {raised}" if raised else " Is its cell still there?"
        missing = f"There is no {check.answer} here." + why
        return _refused(check, missing if "missing" in wrong else f"{check.answer} is no function.")
    cases = exercise.draw(seed)
    found = [_attempt(worker.ask(case.arguments), case) for case in (*cases, *cases[:1])]
    return judge(exercise, found, seed, str(worker.end_of_cases()["printed"]))


def _attempt(claim, case):
    """Return an `Attempt` from what a worker says; of what it says only the result can earn anything."""
    return Attempt(
        result=claim["result"],
        kind=str(claim["kind"])[:100],
        problem=str(claim["problem"])[:2000],
        details=tuple(str(line)[:500] for line in list(claim["details"])[:50]),
        changed=tuple(name for name in case.arguments if name in list(claim["changed"])),
    )


@lru_cache(maxsize=8)
def modules(provided):
    """Return {name: source} of the course's modules for a worker: all of rnncore, or the parts that are provided."""
    return {"rnncore": part_of_rnncore(provided), "rnnplot": (ROOT / "rnnplot.py").read_text("utf-8")}


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


# ----------------------------------------------------------------------------------------------------------------------


def _outputs(shown):
    """Return a cell's outputs as plain text and PNG, whatever the worker sent."""
    outputs = []
    if text := str(shown["text"]):
        outputs.append({"text": text[:20_000]})
    for output in list(shown["outputs"])[:20]:
        image, text = output.get("image/png"), str(output.get("text/plain", ""))[:20_000]
        outputs.append({"text/plain": text} | ({"image/png": image} if _is_png(image) else {}))
    if (error := str(shown["error"])) and error not in text:
        outputs.append({"text": error[:20_000]})
    return outputs


def _is_png(text):
    if not isinstance(text, str) or len(text) > 2_000_000:
        return False
    try:
        return base64.b64decode("".join(text.split()), validate=True).startswith(PNG)
    except (binascii.Error, ValueError):
        return False


def write_outputs(nb, result):
    """Write a `Result`, as `cached` returns it, into a notebook: verdicts under the checks, outputs under the rest."""
    for place, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if verdict := result["verdicts"].get(_grade_id(cell)):
            data = {"text/plain": verdict["score"], "text/html": verdict["html"]}
            cell.outputs = [new_output("execute_result", data=data, execution_count=1)]
            cell.execution_count = 1
        elif _is_test(cell) and _grade_id(cell) not in result["passed"]:
            text = "This test did not pass."
            cell.outputs = [new_output("error", ename="AssertionError", evalue=text, traceback=[text])]
        for output in result["outputs"].get(str(place), []):
            if "text" in output:
                cell.outputs.append(new_output("stream", name="stdout", text=output["text"]))
            else:
                cell.outputs.append(new_output("display_data", data=output))


def cached(course, nb, source, confined, box):
    """Return the result for a sanitised notebook, {"verdicts", "outputs"}: from the course's cache, or graded now.

    box() returns a sandbox, if one is needed.
    """
    seed = seed_of(course)
    path = course / CACHE / f"{key(nb, source, seed, confined)}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text("utf-8"))
    result = grade(nb, source, box(), seed)
    verdicts = {
        name: {"score": repr(v), "html": v._repr_html_(), "text": str(v)} for name, v in result.verdicts.items()
    }
    found = {"verdicts": verdicts, "outputs": {str(place): shown for place, shown in result.outputs.items()}}
    found |= {"passed": result.passed, "problem": result.problem}
    path.parent.mkdir(exist_ok=True)
    _write(path, json.dumps(found))
    return found


def unreadable(reason):
    """Return a notebook that stands for one which cannot be read."""
    return nbformat.v4.new_notebook(metadata={"unreadable": reason})


def read(path):
    """Return a student's notebook, whatever lies at the path: `unreadable`, with the reason, if it is none."""
    if path.is_symlink() or not path.is_file():
        return unreadable("it is a link to another file" if path.is_symlink() else "it is no file")
    if path.stat().st_size > NOTEBOOK_LIMIT:
        return unreadable(f"it has more than {NOTEBOOK_LIMIT // 10**6} MB")
    try:
        nb = nbformat.reads(path.read_text("utf-8"), as_version=4)
        nbformat.validate(nb)
    except Exception as error:  # whatever a file may hold
        return unreadable(f"it is not a notebook ({type(error).__name__}: {str(error).splitlines()[0][:200]})")
    return nb


def _write(path, text):
    """Write a file whole or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def seed_of(course):
    """Return the seed of a course's graded runs: drawn once, kept, and the course's only secret."""
    path = course / SEED
    if not path.exists():
        new = path.with_name(f"{SEED}.{os.getpid()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{secrets.randbits(60)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(new, path)  # of two runs at once, the first to come here wins
        new.unlink()
    return int(path.read_text())


def key(nb, source, seed, confined):
    """Return a digest of all that a result depends on."""
    told = [[(c.cell_type, c.source, c.metadata.get("tags"), _grade_id(c)) for c in b.cells] for b in (nb, source)]
    parts = [json.dumps([told, nb.metadata.get("unreadable"), seed, confined]), _environment()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@lru_cache
def _environment():
    files = [*sorted((ROOT / "autograde").rglob("*.py")), ROOT / "rnncore.py", ROOT / "rnnplot.py"]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    return f"{digest} {sys.version} {np.__version__} {torch.__version__}"
