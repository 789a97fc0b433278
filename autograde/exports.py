"""Exporters for `nbgrader export`: the gradebook as Canvas and as Moodle import it, a row for each exercise, JSON."""

import csv
import io
import json
import sys
import tempfile
from functools import partial
from operator import attrgetter
from pathlib import Path

from nbgrader.api import MissingEntry
from nbgrader.plugins import ExportPlugin
from nbgrader.preprocessors import AssignLatePenalties
from traitlets import Bool, Dict, Enum, Unicode

from autograde.course import Problem

MOST = 8  # names that a refusal lists


def grades(gradebook, students=(), assignments=(), penalty=None):
    """Return what a gradebook holds, as plain data: "course", "assignments" with their points, "students".

    Each student has "assignments" by name. One that was handed in has "score" (the late penalty taken off, never below
    0), "max_score", "late_penalty", "submitted" (ISO 8601, or None), "awaits_a_person" and "exercises" by name:
    "score", "max_score", "awaits_a_person". One that was not is None. students and assignments choose some by name.

    penalty(student, score, seconds) says what being so many seconds late costs, as nbgrader's plug-in does: of the
    score with what a person gave, while the gradebook keeps what it cost when the notebook was graded. That stands
    where there is no function, it returns None, or it is not known when the work was due or handed in.

    Raises `Problem` for a name that the gradebook does not have, and for a gradebook without assignments.
    """
    if not gradebook.assignments:
        raise Problem("there is no assignment in this gradebook; run the command in the course's folder")
    names = {a.name: a.max_score for a in _chosen(gradebook.assignments, "name", assignments)}
    return {
        "course": gradebook.course_id,
        "assignments": names,
        "students": [
            {
                "id": student.id,
                "lms_user_id": student.lms_user_id,
                "first_name": student.first_name or "",
                "last_name": student.last_name or "",
                "email": student.email or "",
                "assignments": {name: _handed_in(gradebook, name, student.id, penalty) for name in names},
            }
            for student in _chosen(gradebook.students, "id", students)
        ],
    }


def _chosen(entries, key, names):
    known = {getattr(entry, key): entry for entry in sorted(entries, key=attrgetter(key))}
    wanted = [str(name) for name in names]
    if unknown := [name for name in wanted if name not in known]:
        there = ", ".join([*known][:MOST]) + ", …" * (len(known) > MOST)
        raise Problem(f"the gradebook has no {', '.join(unknown)}; it has {there or 'none'}")
    return [entry for name, entry in known.items() if name in wanted or not wanted]


def _handed_in(gradebook, assignment, student, penalty):
    try:
        submission = gradebook.find_submission(assignment, student)
    except MissingEntry:
        return None
    dated = submission.duedate is not None and submission.timestamp is not None
    late = partial(penalty, student) if penalty and dated else None
    lost = sum(_lost(notebook, late, submission.total_seconds_late) for notebook in submission.notebooks)
    exercises = {
        grade.name.removesuffix("-check"): {
            "score": grade.score,
            "max_score": grade.max_score,
            "awaits_a_person": bool(grade.needs_manual_grade),
        }
        for notebook in submission.notebooks
        for grade in notebook.grades
    }
    return {
        "score": max(0.0, submission.score - lost),
        "max_score": submission.max_score,
        "late_penalty": lost,
        "submitted": submission.timestamp.isoformat() if submission.timestamp else None,
        "awaits_a_person": any(exercise["awaits_a_person"] for exercise in exercises.values()),
        "exercises": exercises,
    }


def _lost(notebook, late, seconds):
    """Return what a notebook that is so many seconds late loses of its score, at most all of it."""
    lost = (late(notebook.score, seconds) if seconds > 0 else 0.0) if late else None
    lost = notebook.late_submission_penalty or 0.0 if lost is None else lost
    return min(max(lost, 0.0), notebook.score)


class _Exporter(ExportPlugin):
    """Writes what `text` makes of the grades, in one move, to `--to` or to a file of its own name."""

    default = ""

    def export(self, gradebook):
        """Write the file; end with a sentence where something that was asked for is not there."""
        path, late = Path(self.to or self.default), AssignLatePenalties(parent=self)
        late.init_plugin()
        try:
            penalty = late.plugin_inst.late_submission_penalty
            text = self.text(grades(gradebook, self.student, self.assignment, penalty))
            with tempfile.NamedTemporaryFile(
                "w", dir=path.parent, suffix=".part", encoding="utf-8", newline="", delete=False
            ) as part:
                part.write(text)
            Path(part.name).replace(path)
        except Problem as problem:
            sys.exit(f"Nothing was exported: {problem}.")
        except OSError as error:
            sys.exit(f"Nothing was exported: {path} cannot be written ({error.strerror}).")
        self.log.info("Exported grades to %s", path)


class _Columns(_Exporter):
    """A row for each student and a column for each assignment, for a learning platform's import.

    A cell is empty where nothing was handed in or an answer awaits a person. An import takes a grade away that is there
    for an empty cell, so there are only rows and columns with something in them.
    Source: https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb and
    https://github.com/moodle/moodle/blob/main/grade/import/csv/classes/load_data.php
    """

    columns = Dict(help="{assignment: the name of its column in the platform}; without, the assignment's own").tag(
        config=True
    )
    missing_is_zero = Bool(False, help="write 0 for what was not handed in").tag(config=True)

    def table(self, found):
        """Return [(column's name, points)] of the assignments and [(student, cells)]."""
        if unknown := [name for name in self.columns if name not in found["assignments"] and not self.assignment]:
            there = ", ".join(found["assignments"])
            raise Problem(f"{type(self).__name__}.columns has {', '.join(unknown)}; the gradebook has {there}")
        handed_in = [student["assignments"] for student in found["students"]]
        waiting = {
            name: sum(bool(each[name] and each[name]["awaits_a_person"]) for each in handed_in)
            for name in found["assignments"]
        }
        if any(waiting.values()):
            counts = ", ".join(f"{name} ({count})" for name, count in waiting.items() if count)
            self.log.warning("Left empty, since an answer awaits a person: %s", counts)
        cells = {name: [self._cell(each[name]) for each in handed_in] for name in found["assignments"]}
        filled = [name for name in cells if any(cells[name])]
        rows = [(who, [cells[name][k] for name in filled]) for k, who in enumerate(found["students"])]
        rows = [(who, row) for who, row in rows if any(row)]
        if gaps := sum(not all(row) for _, row in rows):
            advice = "an import would take a grade away that is there: export one assignment at a time (--assignment)"
            self.log.warning("Rows with an empty cell: %d; for it %s", gaps, advice)
        return [(self.columns.get(name, name), f"{found['assignments'][name]:.10g}") for name in filled], rows

    def _cell(self, found):
        if found is None:
            return "0" if self.missing_is_zero else ""
        return "" if found["awaits_a_person"] else f"{found['score']:.10g}"


class CanvasCsv(_Columns):
    """The gradebook as Canvas imports it: Student, ID, SIS User ID, SIS Login ID, Section, then the assignments.

    Canvas finds a student by one of the three ids. `ID` is Canvas's own number; it is filled with nbgrader's
    `lms_user_id`. A column whose name Canvas does not know becomes a new assignment; to fill one that is there, give
    its name as Canvas exports it, "Title (12345)", in `columns`.
    Source: https://teaching.resources.osu.edu/toolsets/carmencanvas/guides/calculating-final-grades/import-csv-file-carmen-grades
    """

    default = "canvas.csv"
    id_column = Enum(
        ["SIS Login ID", "SIS User ID", "ID"], "SIS Login ID", help="the column that nbgrader's student ids belong in"
    ).tag(config=True)
    section = Unicode("", help="the section of all students, where Canvas asks for one").tag(config=True)

    def text(self, found):
        """Return the file's text."""
        columns, rows = self.table(found)
        names, points = zip(*columns, strict=True) if columns else ((), ())
        head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *names]
        lines = [head, ["    Points Possible", "", "", "", "", *points]]
        for student, row in rows:
            ids = {"ID": student["lms_user_id"] or "", "SIS User ID": "", "SIS Login ID": ""}
            ids[self.id_column] = student["id"]
            name = ", ".join(filter(None, [student["last_name"], student["first_name"]])) or student["id"]
            lines.append([name, *ids.values(), self.section, *row])
        return _csv(lines)


class MoodleCsv(_Columns):
    """The gradebook as Moodle imports it: who, by id number and email address, then the assignments.

    Moodle asks at each import which column says who ("Map from") and which grade item each other column belongs to.
    Source: https://docs.moodle.org/405/en/Grade_import
    """

    default = "moodle.csv"

    def text(self, found):
        """Return the file's text."""
        columns, rows = self.table(found)
        head = ["First name", "Last name", "ID number", "Email address", *(name for name, _ in columns)]
        keys = ("first_name", "last_name", "id", "email")
        return _csv([head, *([student[key] for key in keys] + row for student, row in rows)])


class ExercisesCsv(_Exporter):
    """A row for each student and exercise of what was handed in."""

    default = "exercises.csv"

    def text(self, found):
        """Return the file's text."""
        lines = [["student_id", "assignment", "exercise", "score", "max_score", "awaits_a_person"]]
        for student in found["students"]:
            for assignment, each in student["assignments"].items():
                for exercise, cell in each["exercises"].items() if each else ():
                    scores = [f"{cell[key]:.10g}" for key in ("score", "max_score")]
                    waits = "yes" if cell["awaits_a_person"] else "no"
                    lines.append([student["id"], assignment, exercise, *scores, waits])
        return _csv(lines)


class Json(_Exporter):
    """All that `grades` says, for programs."""

    default = "grades.json"

    def text(self, found):
        """Return the file's text."""
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _csv(lines):
    """Return rows as CSV (RFC 4180)."""
    out = io.StringIO()
    csv.writer(out).writerows(lines)
    return out.getvalue()
