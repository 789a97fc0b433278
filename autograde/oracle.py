"""Two preprocessors for nbgrader: one drops what a notebook should not carry, one grades its answers from outside."""

import atexit
import contextlib
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Dict

from autograde import results
from autograde.notebook import grade_id, is_locked, is_test, sanitised, unreadable, without_directives
from autograde.sandbox import Limits, Sandbox


class NotPython(Exception):
    """Raised for a notebook of the course's that is not in Python; the text says which."""


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
    limits = Dict({}, help='Limits of the sandbox that differ from `autograde.sandbox.Limits`: {"wall": 300}.').tag(
        config=True
    )

    def preprocess(self, nb, resources):
        """Return the notebook with the outputs of its cells and a verdict under every check."""
        known = _source(self, resources)
        nb = sanitised(nb, known)  # done before, unless the configuration forgot it
        course, about = Path(_course(self).root), resources["nbgrader"]
        result = results.cached(course, nb, known, sandbox(self.confined, limits(self.limits)))
        results.note(course, about["assignment"], about["student"], about["notebook"], result)
        write_outputs(nb, result)
        without_directives(nb, known)
        return nb, resources


def limits(given):
    """Return the `Limits` that a course's configuration gives; raise ValueError for what is none."""
    known = asdict(Limits())
    wrong = {name: value for name, value in given.items() if type(value) is not int or value < 1 or name not in known}
    if wrong:
        raise ValueError(f"GradeOutside.limits takes {', '.join(known)}, whole numbers from 1; here {wrong} came")
    return Limits(**given)


@lru_cache(maxsize=2)
def sandbox(confined, limits):
    """Return this process's sandbox."""
    made = Sandbox(confined, limits)
    atexit.register(made.__exit__)
    return made


def _course(preprocessor):
    return CourseDirectory(parent=preprocessor)


_known = {}  # the course's own notebooks, while a class is graded


@contextlib.contextmanager
def knowing(sources):
    """Grade with these notebooks of the course, {path: what `released` returned}, without reading them every time."""
    _known.update(sources)
    try:
        yield
    finally:
        _known.clear()


def _source(preprocessor, resources):
    """Return the course's own notebook of the one that is being graded."""
    course, about = _course(preprocessor), resources["nbgrader"]
    folder = course.format_path(course.source_directory, ".", about["assignment"])
    path = Path(folder) / f"{about['notebook']}.ipynb"
    if path in _known:
        return _known[path]
    with Gradebook(about["db_url"]) as gradebook:
        return released(path, about["assignment"], gradebook)


def released(path, assignment, gradebook):
    """Return a notebook of the course's source, with the tests in it that nbgrader wrote when it was released.

    Raises NotPython for one in another language.
    """
    nb = nbformat.read(path, as_version=4)
    language = nb.metadata.get("kernelspec", {}).get("language", "python")
    if language.lower() != "python":
        raise NotPython(f"{path} is a notebook for {language}; only Python is graded")
    with contextlib.suppress(MissingEntry):
        written = {cell.name: cell.source for cell in gradebook.find_notebook(path.stem, assignment).source_cells}
        for cell in filter(is_locked, nb.cells):
            cell.source = written.get(grade_id(cell), cell.source)
    return nb


# ----------------------------------------------------------------------------------------------------------------------


def write_outputs(nb, result):
    """Write what `results.cached` returns into a notebook: verdicts under the checks, outputs under the rest."""
    for place, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if verdict := result["verdicts"].get(grade_id(cell)):
            data = {"text/plain": repr(verdict["score"]), "text/html": verdict["html"]}
            cell.outputs = [_output("execute_result", data=data, metadata={}, execution_count=1)]
            cell.execution_count = 1
        elif is_test(cell) and grade_id(cell) not in result["passed"]:
            text = "This test did not pass."
            cell.outputs = [_output("error", ename="AssertionError", evalue=text, traceback=[text])]
        elif is_test(cell) and (part := result["passed"][grade_id(cell)]) is not None:
            part = min(max(part, 0.0), float(cell.metadata["nbgrader"]["points"]))  # else nbgrader refuses or gives all
            data = {"text/plain": repr(part)}
            cell.outputs = [_output("execute_result", data=data, metadata={}, execution_count=1)]
        for output in result["outputs"].get(str(place), []):
            if "text" in output:
                cell.outputs.append(_output("stream", name="stdout", text=output["text"]))
            else:
                alternative = {"image/png": {"alt": "what this cell drew"}} if "image/png" in output else {}
                cell.outputs.append(_output("display_data", data=output, metadata=alternative))


def _output(kind, **fields):
    """Return an output as nbformat's own function makes it; that looks at each one's form, and nbconvert at all."""
    return nbformat.from_dict({"output_type": kind, **fields})
