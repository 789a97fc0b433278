"""Grades a class: notebooks run side by side, one process writes the gradebook, others write the feedback pages."""

import contextlib
import fcntl
import fnmatch
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader.api import MissingEntry
from nbgrader.utils import parse_utc, temp_attrs
from tqdm import tqdm

from autograde import notebook, oracle, results
from autograde.course import Problem, quietly, reason
from autograde.pages import Pages
from autograde.sandbox import Sandbox, Unconfined

LOCK = ".grading"  # in a course, held while a run grades it


@dataclass(frozen=True)
class Graded:
    """What grading one submission gave.

    score     what was computed, of max_score
    cells     {id of a graded cell: its score, or None while a person has yet to read it}; points: what each is worth
    problem   why a submission could not be read or run; "" when it could
    verdicts  {exercise: {"points", "score", "named", "kind"}}, as in `feedback.Verdict`
    seconds   how long it took to run
    """

    student: str
    score: float = 0.0
    max_score: float = 0.0
    cells: Mapping[str, float | None] = field(default_factory=dict)
    problem: str = ""
    verdicts: Mapping[str, Mapping] = field(default_factory=dict)
    seconds: float = 0.0
    points: Mapping[str, float] = field(default_factory=dict)

    @property
    def still_manual(self):
        """Whether a person has answers to read."""
        return None in self.cells.values()


def grade(course, assignment, student="*", confined=True, jobs=None, scheduler=None):
    """Grade the submissions that match, with nbgrader, and write their feedback; return a `Graded` for each.

    Students' cells run in a sandbox, `jobs` notebooks at a time, or unconfined, as the user who calls this: here, or on
    the workers of the Dask cluster whose scheduler has this address. Raises `Problem` when there is nothing to grade,
    no sandbox can be made, another run is grading this course, or the cluster cannot be used.
    """
    students = matching(course, assignment, student)
    steps = course.api.config.get("Autograde", {}).get("autograde_preprocessors", [])
    if "autograde.oracle.GradeOutside" not in steps:
        raise Problem(
            f"{course.root / 'nbgrader_config.py'} is of an earlier version and would run students' code unconfined; "
            "move the file away, have it written anew, and put your own settings into the new one"
        )
    course.api.config.GradeOutside.confined = confined
    course.api.config.Exporter.optimistic_validation = True  # a notebook's form is looked at once, after all steps
    sources = sources_of(course, assignment)
    results.seed_of(course.root)  # drawn before several threads ask for it
    box = Sandbox(confined, limits_of(course))
    jobs, written = jobs or os.cpu_count(), _Written(course, assignment)
    failed, done, digests, unwritten = {}, {}, {}, {}
    own = {course.root / "source" / assignment / f"{name}.ipynb": source for name, source in sources.items()}
    with (
        Pages(course, assignment, jobs) as pages,
        alone(course),
        oracle.knowing(own),
        _place(scheduler, box, jobs) as place,
    ):
        bar = tqdm(total=len(students), desc=f"grading {assignment}", unit="submission", file=sys.stderr)
        with bar, contextlib.closing(_run_ahead(course, assignment, students, sources, box, place)) as ahead:
            for name, found, digest, fault in ahead:
                done[name] = found
                if fault:
                    failed[name] = fault
                elif not written.is_current(name, digest):
                    result = _write_grades(course, assignment, name, sources)
                    if result["success"]:
                        digests[name] = digest
                        pages.add(name)
                    else:
                        failed[name] = reason(result)
                bar.update()
            bar.set_description("writing feedback")
            for name, problem in pages.finish():
                unwritten[name] = problem
                if not problem:
                    written.mark(name, digests[name])
    return list(_in_gradebook(course, assignment, students, done, failed, unwritten))


def look(course, assignment):
    """Return a `Graded` for each submission as it stands, without grading anything; what is not graded is left out."""
    entered = _Written(course, assignment).entered
    students = [name for name in matching(course, assignment) if name in entered]
    found = {name: results.noted(course.root, assignment, name) for name in students}
    return list(_in_gradebook(course, assignment, students, found))


def matching(course, assignment, student="*"):
    """Return the students whose submission was collected and whose name matches; raise `Problem` when there is none."""
    collected = course.collected(assignment)
    students = [name for name in collected if fnmatch.fnmatch(name, student)]
    if not students:
        known = sorted(path.name for path in course.root.glob("source/*") if path.is_dir())
        if assignment not in known:
            there = ", ".join(known) or "none; `make release` puts them there"
            raise Problem(f"there is no assignment {assignment!r} in {course.root}; there are: {there}")
        found = f"by a student matching {student!r} " if collected else ""
        raise Problem(
            f"nothing was handed in {found}for {assignment!r} in {course.root / 'submitted'}; "
            f"collect first: `cd {course.root} && nbgrader collect {assignment}`"
        )
    return students


def sources_of(course, assignment):
    """Return {name: notebook} of the course's own notebooks of an assignment."""
    paths = course.root.glob(f"source/{assignment}/*.ipynb")
    try:
        with course.api.gradebook as gradebook:
            sources = {path.stem: oracle.released(path, assignment, gradebook) for path in paths}
    except oracle.NotPython as error:
        raise Problem(str(error)) from None
    if not sources:
        raise Problem(f"there is no notebook in {course.root / 'source' / assignment}; run `make release`")
    if not course.knows(assignment):
        raise Problem(
            f"the gradebook has no {assignment}; `make release` enters it (an assignment of your own: "
            f"`nbgrader generate_assignment {assignment}` in {course.root})"
        )
    return sources


def limits_of(course):
    """Return the limits of the sandbox that a course's configuration sets."""
    try:
        return oracle.limits(dict(course.api.config.get("GradeOutside", {}).get("limits", {})))
    except ValueError as error:
        raise Problem(f"{course.root / 'nbgrader_config.py'}: {error}") from None


@contextlib.contextmanager
def alone(course):
    """Keep other runs from grading a course meanwhile."""
    with (course.root / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Problem(f"another run is grading {course.root}; wait until it is done") from None
        yield


@dataclass(frozen=True)
class _Here:
    """This machine as a place where notebooks run, so many at a time; `cluster.Cluster` is another."""

    jobs: int
    wall: int  # seconds that one may take
    graded = staticmethod(results.graded)

    def stop(self, running):
        """Say that what runs here is waited for."""
        if running:
            told = f"stopping once the {running} now running have ended, in at most {self.wall} s"
            tqdm.write(f"grade: {told}", file=sys.stderr)


def _place(scheduler, box, jobs):
    """Return a context of the place where notebooks run: the cluster with this scheduler, or, without one, here."""
    if scheduler is None:
        return contextlib.nullcontext(_Here(jobs, box.limits.wall))
    from autograde.cluster import Cluster  # noqa: PLC0415, Dask takes a while, and few grade with it

    return Cluster(scheduler, box, say=lambda text: tqdm.write(f"grade: {text}", file=sys.stderr))


def _notebooks(course, assignment, student, sources):
    """Yield (notebook, the course's own) of a submission, sanitised."""
    for name, source in sources.items():
        path = course.root / "submitted" / student / assignment / f"{name}.ipynb"
        yield notebook.sanitised(notebook.read(path), source), source


def _run_ahead(course, assignment, students, sources, box, place):
    """Yield (student, results, digest, "") when its notebooks' results lie in the cache, where nbgrader finds them.

    What is not in the cache runs at a place. The digest is of everything that the student's entry in the gradebook
    depends on. Where the grading itself has a fault, the last says so: that student is not graded, and the others are.
    """

    def work(student):
        if glob.has_magic(student):
            return student, [], "", "not graded: nbgrader reads the folder's name as a pattern; rename it, without *?[]"
        try:
            return *run(student), ""
        except (Unconfined, Problem):
            raise
        except Exception as error:
            return student, [], "", f"not graded, by a fault of the grading: {type(error).__name__}: {error}; run again"

    def run(student):
        both = _notebooks(course, assignment, student, sources)
        found = [results.cached(course.root, nb, source, box, place.graded) for nb, source in both]
        parts = [result["digest"] for result in found]
        parts.append(_timestamp(course.root / "submitted" / student / assignment / "timestamp.txt"))
        return student, found, hashlib.sha256("\0".join(parts).encode()).hexdigest()

    try:
        with box, ThreadPoolExecutor(place.jobs) as pool:
            waiting = [pool.submit(work, student) for student in students]
            try:
                for done in waiting:
                    yield done.result()
            finally:
                place.stop(sum(future.running() for future in waiting))
                pool.shutdown(cancel_futures=True)
    except Unconfined as error:
        raise Problem(str(error)) from None


class _Written:
    """Which students' entries in gradebook and feedback are up to date, by a file for each in the course."""

    def __init__(self, course, assignment):
        self._marks = course.root / results.CACHE / "written" / assignment
        self._pages = {path.parent.name for path in course.root.glob(f"feedback/*/{assignment}")}
        self.entered = set()  # in the gradebook, with scores
        with course.api.gradebook as gradebook, contextlib.suppress(MissingEntry):
            found = gradebook.assignment_submissions(assignment)
            self.entered = {entry.student_id for entry in found if entry.notebooks}

    def is_current(self, student, digest):
        """Whether a student's entries were made from what has this digest."""
        return student in self.entered & self._pages and self._read(student) == digest

    def mark(self, student, digest):
        """Note that a student's entries were made from what has this digest."""
        self._marks.mkdir(parents=True, exist_ok=True)
        results.write(self._marks / student, digest)

    def _read(self, student):
        mark = self._marks / student
        return mark.read_text("utf-8") if mark.is_file() else ""


def _write_grades(course, assignment, student, sources):
    """Let nbgrader grade a submission, which finds the results in the cache; return nbgrader's result."""
    folder = _readable(course, assignment, student, sources)
    try:
        with temp_attrs(course.api.coursedir, submitted_directory=str(folder)):
            return quietly(course.api.autograde, assignment, student, force=True)
    finally:
        shutil.rmtree(folder)


def _readable(course, assignment, student, sources):
    """Return a folder for nbgrader to read a submission from: its notebooks, a substitute for what is none."""
    folder = Path(tempfile.mkdtemp(prefix="submitted-"))
    there = folder / student / assignment
    there.mkdir(parents=True)
    submitted = course.root / "submitted" / student / assignment
    for name in sources:
        text = nbformat.writes(notebook.read(submitted / f"{name}.ipynb"))
        (there / f"{name}.ipynb").write_text(text, "utf-8")
    for path in submitted.glob("*"):
        if path.name == "timestamp.txt":
            (there / path.name).write_text(_timestamp(path))
        elif path.name == "submission_secret.txt" and path.is_file() and not path.is_symlink():
            shutil.copy(path, there)
    return folder


def _timestamp(path):
    """Return when a submission was handed in, as its file says, or "" where the file says nothing that is a time."""
    with contextlib.suppress(Exception):  # whatever its text makes of nbgrader's reader
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 200:
            text = path.read_text("utf-8")
            parse_utc(text.strip())
            return text
    return ""


def _in_gradebook(course, assignment, students, done, failed=(), unwritten=()):
    """Yield the students' `Graded`, from the gradebook and what was `done`, {student: results}.

    failed and unwritten say why there is no grade, or no page: {student: reason}.
    """
    failed, unwritten = dict(failed), dict(unwritten)
    with course.api.gradebook as gradebook:
        for student in students:
            found = done[student]
            verdicts = {v["exercise"]: v for result in found for v in result["verdicts"].values()}
            told = {"verdicts": verdicts, "seconds": sum(result["seconds"] for result in found)}
            problem = failed.get(student) or " ".join(filter(None, (result["problem"] for result in found)))
            try:
                whole = gradebook.find_assignment(assignment).max_score
                if student in failed:
                    yield Graded(student, max_score=whole, problem=problem)
                    continue
                submission = gradebook.find_submission(assignment, student)
            except MissingEntry as error:
                yield Graded(student, problem=f"the gradebook lacks an entry: {error}")
                continue
            grades = [grade for part in submission.notebooks for grade in part.grades]
            cells = {grade.name: None if grade.needs_manual_grade else grade.score for grade in grades}
            if unwritten.get(student):
                problem = f"{problem} Graded, but without feedback: {unwritten[student]}".strip()
            stamp = course.root / "submitted" / student / assignment / "timestamp.txt"
            if stamp.exists() and not _timestamp(stamp):
                problem = f"{problem} Its timestamp.txt holds no time, so that it cannot count as late.".strip()
            told["points"] = {grade.name: grade.max_score for grade in grades}
            yield Graded(student, submission.score, submission.max_score, cells, problem, **told)
