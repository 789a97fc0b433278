"""An nbgrader course directory: its configuration, who handed in, and nbgrader's own steps on it."""

import contextlib
import os
import re
import sys
import warnings
from functools import lru_cache, partial
from pathlib import Path

import nbgrader.api
from nbgrader.api import MissingEntry
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import capture_log, temp_attrs
from sqlalchemy import inspect
from sqlalchemy.exc import SAWarning
from traitlets.config import PyFileConfigLoader

CONFIG = '''"""nbgrader's configuration of this course. Written once by `python -m autograde`; it is yours to edit."""

from pathlib import Path

HERE = Path(__file__).resolve().parent

c = get_config()
c.CourseDirectory.course_id = "recurrence"
c.CourseDirectory.root = str(HERE)
c.Exchange.root = str(HERE / "exchange")  # students must be able to reach this folder
c.ExchangeFactory.collect = "autograde.exchange.Collect"  # nbgrader's own follows a student's links
c.CourseDirectory.include = ["*.ipynb", "timestamp.txt", "submission_secret.txt"]  # nothing else is copied

# Students' code is run in a sandbox and compared from outside (autograde.oracle); everything after is nbgrader's own.
# Of its own steps those are left out that have nothing to do after Sanitize: to clear outputs, to look for doubled ids,
# to put back the kernel's name, to check the cells' metadata.
c.Autograde.sanitize_preprocessors = ["autograde.oracle.Sanitize", "nbgrader.preprocessors.OverwriteCells"]
c.Autograde.autograde_preprocessors = [
    "autograde.oracle.GradeOutside",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
]
# c.GradeOutside.limits = {"cell": 60, "wall": 300, "cpu": 200}  # seconds; memory in MB: autograde/sandbox.py, Limits
'''


class Problem(Exception):
    """Wrong usage or set-up: nothing was changed, and the text says what to do."""


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
        loaded.CourseDirectory.setdefault("root", str(self.root))  # else nbgrader takes the folder it was started in
        self.api = NbGraderAPI(config=loaded)

    def collected(self, assignment):
        """Return the students whose submission of an assignment was collected."""
        return sorted(path.parent.name for path in self.root.glob(f"submitted/*/{assignment}") if path.is_dir())

    def knows(self, assignment):
        """Whether the gradebook has an assignment with its notebooks, as releasing enters it."""
        with self.api.gradebook as gradebook, contextlib.suppress(MissingEntry):
            return bool(gradebook.find_assignment(assignment).notebooks)
        return False

    def handed_in(self, assignment):
        """Return the students who handed an assignment in: collected, or still waiting in the exchange."""
        exchange = self.api.exchange.Collect(coursedir=self.api.coursedir, parent=self.api)
        inbound = Path(exchange.root) / self.api.course_id / "inbound"
        waiting = {path.name.split("+")[0] for path in inbound.glob(f"*+{assignment}+*")}
        return sorted({*self.collected(assignment), *waiting})

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


def quietly(step, *arguments, **options):
    """Run a step of nbgrader's interface without its log on the screen; return nbgrader's result."""
    tables = nbgrader.api.Base.metadata
    with (
        contextlib.redirect_stdout(sys.stderr),
        warnings.catch_warnings(),
        temp_attrs(nbgrader.api, create_engine=_engine),
        temp_attrs(tables, create_all=partial(_create_missing, tables, tables.create_all)),
    ):
        warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")  # nothing a user could act on
        result = step(*arguments, **options)
    if (result.get("error") or "").rstrip().endswith("KeyboardInterrupt"):  # nbgrader takes Ctrl+C for a fault
        raise KeyboardInterrupt
    return result


# A step opens the gradebook ten times. Each time it would get a new engine, for which SQLAlchemy works out all of its
# SQL anew, and look for every table by itself.
_engine = lru_cache(maxsize=4)(nbgrader.api.create_engine)


def _create_missing(tables, create_all, bind):
    if not set(tables.tables) <= set(inspect(bind).get_table_names()):
        create_all(bind=bind)


def reason(result):
    """Return the most telling line of what nbgrader logged when a step failed."""
    lines = [line.strip() for line in (result.get("log") or result.get("error") or "").splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line and "There was an error processing" not in line]
    if errors and "Traceback" in errors[0]:
        raised = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
        errors = raised[-1:] or errors[1:]
    return (errors or lines or ["nbgrader gave no reason"])[-1 if not errors else 0]


def _put_own_programs_first():
    """Let nbgrader find the `alembic` of this environment, which makes the gradebook's tables."""
    own = str(Path(sys.executable).parent)
    if own not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = own + os.pathsep + os.environ["PATH"]
