"""A class in an nbgrader course directory: its configuration, and grading what was handed in."""

import contextlib
import fcntl
import fnmatch
import hashlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader.api import MissingEntry
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import capture_log, temp_attrs
from sqlalchemy.exc import SAWarning
from tqdm import tqdm
from traitlets.config import PyFileConfigLoader

from autograde import notebook, oracle
from autograde.sandbox import Sandbox, Unconfined

FEW = 3  # students whose feedback pages are written one by one
LOCK = ".grading"  # in a course, held while a run grades it

CONFIG = '''"""nbgrader's configuration of this course. Written once by `python -m autograde`; it is yours to edit."""

from pathlib import Path

HERE = Path(__file__).resolve().parent

c = get_config()
c.CourseDirectory.course_id = "recurrence"
c.CourseDirectory.root = str(HERE)
c.Exchange.root = str(HERE / "exchange")  # students must be able to reach this folder
c.CourseDirectory.include = ["*.ipynb", "timestamp.txt", "submission_secret.txt"]  # nothing else is copied

# Students' code is run in a sandbox and compared from outside (autograde.oracle); everything after is nbgrader's own.
c.Autograde.sanitize_preprocessors = [
    "autograde.oracle.Sanitize",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "autograde.oracle.GradeOutside",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
'''


class Problem(Exception):
    """Wrong usage or set-up: nothing was changed, and the text says what to do."""


@dataclass(frozen=True)
class Graded:
    """What grading one submission gave.

    score is what was computed, of max_score; cells has {id of a graded cell: its score, or None while a person has yet
    to read it}; problem says why a submission could not be read or run, and is "" when it could.
    """

    student: str
    score: float = 0.0
    max_score: float = 0.0
    cells: Mapping[str, float | None] = field(default_factory=dict)
    problem: str = ""

    @property
    def still_manual(self):
        """Whether a person has answers to read."""
        return None in self.cells.values()


class Course:
    """An nbgrader course directory and nbgrader's own interface to it."""

    def __init__(self, root):
        """Take the course in a folder, or begin one there; its configuration is written once, never overwritten."""
        self.root = Path(root).resolve()
        config = self.root / "nbgrader_config.py"
        if not config.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            config.write_text(CONFIG, encoding="utf-8")
        _put_own_programs_first()
        loaded = PyFileConfigLoader(config.name, path=str(self.root)).load_config()
        self.api = NbGraderAPI(config=loaded)

    def handed_in(self, assignment):
        """Return the students who handed an assignment in: collected, or still waiting in the exchange."""
        collected = {path.parent.name for path in self.root.glob(f"submitted/*/{assignment}") if path.is_dir()}
        exchange = self.api.exchange.Collect(coursedir=self.api.coursedir, parent=self.api)
        inbound = Path(exchange.root) / self.api.course_id / "inbound"
        waiting = {path.name.split("+")[0] for path in inbound.glob(f"*+{assignment}+*")}
        return sorted(collected | waiting)

    def publish(self, assignment):
        """Put a release into the exchange, over an earlier one; return nbgrader's result."""
        api = self.api
        with temp_attrs(api.coursedir, assignment_id=assignment):
            step = api.exchange.ReleaseAssignment(coursedir=api.coursedir, authenticator=api.authenticator, parent=api)
            step.force = True  # which the interface's own release_assignment has no option for
            return capture_log(step)

    def run(self, step, *arguments, **options):
        """Run a step of nbgrader's interface; raise `Problem` with the end of its log when it fails."""
        result = quietly(step, *arguments, **options)
        if not result["success"]:
            raise Problem(f"nbgrader's {step.__name__} failed: {reason(result)}")

    def grade(self, assignment, student="*", confined=True, jobs=None):
        """Yield a `Graded` for each submission that matches, after nbgrader graded it and wrote its feedback.

        Students' cells run in a sandbox, `jobs` notebooks at a time, or unconfined, as the user who calls this. Raises
        `Problem` when there is nothing to grade, no sandbox can be made, or another run is grading this course.
        """
        folders = self.root.glob(f"submitted/*/{assignment}")
        collected = sorted(path.parent.name for path in folders if path.is_dir())
        students = [name for name in collected if fnmatch.fnmatch(name, student)]
        if not students:
            found = f"by a student matching {student!r} " if collected else ""
            raise Problem(
                f"nothing was handed in {found}for {assignment!r} in {self.root / 'submitted'}; "
                f"collect first: `cd {self.root} && nbgrader collect {assignment}`"
            )
        steps = self.api.config.get("Autograde", {}).get("autograde_preprocessors", [])
        if "autograde.oracle.GradeOutside" not in steps:
            raise Problem(
                f"{self.root / 'nbgrader_config.py'} is of an earlier version and would run students' code unconfined; "
                "move the file away, have it written anew, and put your own settings into the new one"
            )
        self.api.config.GradeOutside.confined = confined
        bar = tqdm(total=len(students), desc=f"grading {assignment}", unit="submission", file=sys.stderr)
        with self._alone(), bar:
            failed, problems, new = {}, {}, {}
            for name, problem, digest in self._run_ahead(assignment, students, confined, jobs):
                problems[name] = problem
                if not self._is_written(assignment, name, digest):
                    result = self._write_grades(assignment, name)
                    if result["success"]:
                        new[name] = digest
                    else:
                        failed[name] = reason(result)
                bar.update()
            bar.set_description("writing feedback")
            unwritten = self._write_feedback(assignment, student, list(new))
            for name in new.keys() - unwritten.keys():
                self._mark(assignment, name).parent.mkdir(parents=True, exist_ok=True)
                self._mark(assignment, name).write_text(new[name])
        for name in students:
            yield self._graded(assignment, name, failed.get(name), problems[name], unwritten.get(name))

    def _mark(self, assignment, student):
        """Return the file that says what a student's entries in gradebook and feedback were made from."""
        return self.root / oracle.CACHE / "written" / assignment / student

    def _is_written(self, assignment, student, digest):
        mark, pages = self._mark(assignment, student), self.root / "feedback" / student / assignment
        if not mark.is_file() or mark.read_text() != digest or not pages.is_dir():
            return False
        with self.api.gradebook as gradebook, contextlib.suppress(MissingEntry):
            return bool(gradebook.find_submission(assignment, student).notebooks)
        return False

    def _write_feedback(self, assignment, pattern, students):
        """Write the feedback pages of students; return {student: reason} of those for whom that failed."""
        if len(students) > FEW and quietly(self.api.generate_feedback, assignment, pattern, force=True)["success"]:
            return {}  # all at once: nbgrader then reads its templates once
        results = {name: quietly(self.api.generate_feedback, assignment, name, force=True) for name in students}
        return {name: reason(result) for name, result in results.items() if not result["success"]}

    @contextlib.contextmanager
    def _alone(self):
        """Keep other runs from grading this course meanwhile."""
        with (self.root / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Problem(f"another run is grading {self.root}; wait until it is done") from None
            yield

    def _run_ahead(self, assignment, students, confined, jobs):
        """Yield (student, problem, digest) when its notebooks' results lie in the cache, where nbgrader finds them.

        The digest is of everything that the student's entry in the gradebook depends on.
        """
        sources = {path.stem: nbformat.read(path, 4) for path in self.root.glob(f"source/{assignment}/*.ipynb")}
        if not sources:
            raise Problem(f"there is no notebook in {self.root / 'source' / assignment}; run `make release`")
        oracle.seed_of(self.root)

        def work(student, box):
            problems, parts = [], []
            for name, source in sources.items():
                path = self.root / "submitted" / student / assignment / f"{name}.ipynb"
                if path.is_symlink() or path.exists():
                    nb = notebook.sanitised(notebook.read(path), source)
                    result = oracle.cached(self.root, nb, source, confined, lambda: box)
                    problems.append(result["problem"])
                    parts.append(result["digest"])
            timestamp = self.root / "submitted" / student / assignment / "timestamp.txt"
            parts.append(timestamp.read_text() if timestamp.is_file() else "")
            return student, " ".join(filter(None, problems)), hashlib.sha256("\0".join(parts).encode()).hexdigest()

        try:
            with Sandbox(confined) as box, ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
                waiting = [pool.submit(work, student, box) for student in students]
                try:
                    for done in waiting:
                        yield done.result()
                finally:
                    pool.shutdown(cancel_futures=True)
        except Unconfined as error:
            raise Problem(str(error)) from None

    def _readable(self, assignment, student):
        """Return a folder for nbgrader to read a submission from: its notebooks, a substitute for what is none."""
        folder = Path(tempfile.mkdtemp(prefix="submitted-"))
        there = folder / student / assignment
        there.mkdir(parents=True)
        for path in (self.root / "submitted" / student / assignment).glob("*"):
            if path.name in ("timestamp.txt", "submission_secret.txt") and path.is_file() and not path.is_symlink():
                shutil.copy(path, there)
            elif path.suffix == ".ipynb":
                nbformat.write(notebook.read(path), there / path.name)
        return folder

    def _write_grades(self, assignment, student):
        """Let nbgrader grade a submission, which finds the results in the cache; return nbgrader's result."""
        folder = self._readable(assignment, student)
        try:
            with temp_attrs(self.api.coursedir, submitted_directory=str(folder)):
                return quietly(self.api.autograde, assignment, student, force=True)
        finally:
            shutil.rmtree(folder)

    def _graded(self, assignment, student, failed, problem, unwritten):
        """Return a student's `Graded` from the gradebook; failed and unwritten say why there is no grade, no page."""
        with self.api.gradebook as gradebook:
            try:
                max_score = gradebook.find_assignment(assignment).max_score
                if failed:
                    return Graded(student, max_score=max_score, problem=failed)
                submission = gradebook.find_submission(assignment, student)
            except MissingEntry as error:
                return Graded(student, problem=f"the gradebook lacks an entry: {error}")
            grades = [grade for part in submission.notebooks for grade in part.grades]
            cells = {grade.name: None if grade.needs_manual_grade else grade.score for grade in grades}
            if unwritten:
                problem = f"{problem} Graded, but without feedback: {unwritten}".strip()
            return Graded(student, submission.score, submission.max_score, cells, problem)


def quietly(step, *arguments, **options):
    """Run a step of nbgrader's interface without its log on the screen; return nbgrader's result."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")  # nothing a user could act on
        return step(*arguments, **options)


def reason(result):
    """Return the most telling line of what nbgrader logged when a step failed."""
    lines = [line.strip() for line in (result.get("log") or result.get("error") or "").splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line and "There was an error processing" not in line]
    return (errors or lines or ["nbgrader gave no reason"])[-1 if not errors else 0]


def _put_own_programs_first():
    """Let nbgrader find the `alembic` of this environment, which makes the gradebook's tables."""
    own = str(Path(sys.executable).parent)
    if own not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = own + os.pathsep + os.environ["PATH"]
