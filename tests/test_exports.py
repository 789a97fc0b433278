"""The gradebook, exported by nbgrader's own command as learning platforms import it."""

import csv
import json

import pytest
import quick_gradebooks  # noqa: F401, makes them quick
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from nbgrader.plugins import LateSubmissionPlugin
from traitlets.config import Config

from autograde import exports

SLUGS = ("01_forward", "02_cell")


@pytest.fixture
def gradebook(tmp_path):
    """Two assignments of three points; ada is done, bo was late, cem's essay is to be read, dil handed in nothing."""
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}", "recurrence") as found:
        for slug in SLUGS:
            found.add_assignment(slug)
            found.add_notebook(slug, slug)
            found.add_grade_cell("step-check", slug, slug, max_score=2, cell_type="code")
            found.add_grade_cell("essay", slug, slug, max_score=1, cell_type="markdown")
        found.add_student("ada", first_name="Ada", last_name="Lovelace, née Byron", email="ada@x.org", lms_user_id="7")
        for student in ("bo", "cem", "dil"):
            found.add_student(student)
        for student, step, essay, late in (("ada", 2, 1, 0), ("bo", 1.5, 1, 0.75), ("cem", 1 / 3, None, 0)):
            submission = found.add_submission(SLUGS[0], student, timestamp="2026-11-20 10:00:00")
            submission.notebooks[0].late_submission_penalty = late
            for name, score in (("step-check", step), ("essay", essay)):
                grade = found.find_grade(name, SLUGS[0], SLUGS[0], student)
                grade.manual_score, grade.needs_manual_grade = score, score is None
        found.db.commit()
        yield found


def exported(exporter, gradebook, tmp_path, **options):
    """The text of the file that an exporter writes with these options."""
    path = tmp_path / "out"
    config = Config({exporter.__name__: {"to": str(path), **options}})
    exporter(config=config).export(gradebook)
    assert [left.name for left in tmp_path.glob("*.part")] == []
    return path.read_bytes().decode()


def rows(text):
    return list(csv.reader(text.splitlines()))


def test_canvas_gets_its_columns_a_row_of_points_and_no_score_that_is_not_settled(gradebook, tmp_path):
    text = exported(exports.CanvasCsv, gradebook, tmp_path, columns={SLUGS[0]: "Forward (12345)"}, section="Tue")
    assert "\r\n" in text
    head, points, *students = rows(text)
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Forward (12345)"]
    assert points == ["    Points Possible", "", "", "", "", "3"]
    assert students == [
        ["Lovelace, née Byron, Ada", "7", "", "ada", "Tue", "3"],
        ["bo", "", "", "bo", "Tue", "1.75"],
    ]


def test_a_row_or_a_column_with_nothing_in_it_is_left_out_and_gaps_are_named(gradebook, tmp_path, caplog):
    """An import takes a grade away for an empty cell."""
    submission = gradebook.add_submission(SLUGS[1], "ada")
    submission.notebooks[0].grades[0].needs_manual_grade = submission.notebooks[0].grades[1].needs_manual_grade = False
    gradebook.db.commit()
    head, ada, bo = rows(exported(exports.MoodleCsv, gradebook, tmp_path))
    assert head[4:] == [*SLUGS] and (ada[4:], bo[4:]) == (["3", "0"], ["1.75", ""])
    assert "Rows with an empty cell: 1;" in caplog.text and "--assignment" in caplog.text
    caplog.clear()
    head, *found = rows(exported(exports.MoodleCsv, gradebook, tmp_path, assignment=[SLUGS[1]]))
    assert [row[2:] for row in (head, *found)] == [["ID number", "Email address", SLUGS[1]], ["ada", "ada@x.org", "0"]]
    assert "empty cell" not in caplog.text


class Half(LateSubmissionPlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return score / 2


def test_what_being_late_costs_is_of_the_score_with_what_a_person_gave(gradebook, tmp_path):
    """The gradebook keeps what it cost when the notebook was graded, before anybody had read the essay."""

    def bo(**options):
        config = Config({"Json": {"to": str(tmp_path / "out")}, **options})
        exports.Json(config=config).export(gradebook)
        found = json.loads((tmp_path / "out").read_text())["students"]
        return next(student for student in found if student["id"] == "bo")["assignments"][SLUGS[0]]["score"]

    half = {"AssignLatePenalties": Config(plugin_class=Half)}
    assert bo(**half) == 1.75, "without a due date what the gradebook has stands"
    gradebook.update_or_create_assignment(SLUGS[0], duedate="2026-11-19 10:00:00")
    assert bo() == 1.75, "the usual plug-in says nothing"
    assert bo(**half) == 1.25
    assert bo(LateSubmissionPlugin=Config(penalty_method="zero")) == 0
    gradebook.update_or_create_assignment(SLUGS[0], duedate="2026-11-21 10:00:00")
    assert bo(**half) == 2.5, "the deadline was extended"


def test_which_id_canvas_knows_and_what_nothing_is_worth_can_be_set(gradebook, tmp_path):
    text = exported(exports.CanvasCsv, gradebook, tmp_path, id_column="SIS User ID", missing_is_zero=True)
    assert rows(text)[-1] == ["dil", "", "dil", "", "", "0", "0"]


def test_moodle_gets_who_and_the_scores(gradebook, tmp_path):
    text = exported(exports.MoodleCsv, gradebook, tmp_path, assignment=[SLUGS[0]])
    head, ada, bo, *_ = rows(text)
    assert head == ["First name", "Last name", "ID number", "Email address", SLUGS[0]]
    assert ada == ["Ada", "Lovelace, née Byron", "ada", "ada@x.org", "3"]
    assert bo == ["", "", "bo", "", "1.75"]


def test_every_exercise_of_what_was_handed_in_has_a_row(gradebook, tmp_path):
    head, *found = rows(exported(exports.ExercisesCsv, gradebook, tmp_path))
    assert head == ["student_id", "assignment", "exercise", "score", "max_score", "awaits_a_person"]
    assert len(found) == 6
    assert ["cem", SLUGS[0], "step", "0.3333333333", "2", "no"] in found
    assert ["cem", SLUGS[0], "essay", "0", "1", "yes"] in found


def test_json_holds_it_all(gradebook, tmp_path):
    found = json.loads(exported(exports.Json, gradebook, tmp_path, student=["bo"]))
    assert found["course"] == "recurrence"
    assert found["assignments"] == dict.fromkeys(SLUGS, 3)
    (bo,) = found["students"]
    assert bo["assignments"][SLUGS[1]] is None
    first = bo["assignments"][SLUGS[0]]
    assert (first["score"], first["late_penalty"], first["max_score"]) == (1.75, 0.75, 3)
    assert first["submitted"].startswith("2026-11-20T10:00:00")
    assert first["exercises"]["step"] == {"score": 1.5, "max_score": 2, "awaits_a_person": False}


def test_what_waits_for_a_person_is_named(gradebook, tmp_path, caplog):
    exported(exports.MoodleCsv, gradebook, tmp_path)
    assert "Left empty, since an answer awaits a person: 01_forward (1)" in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"student": ["eve"]}, "the gradebook has no eve; it has ada, bo, cem, dil."),
        ({"assignment": ["03"]}, "the gradebook has no 03; it has 01_forward, 02_cell."),
        ({"columns": {"1": "x"}}, "MoodleCsv.columns has 1; the gradebook has 01_forward, 02_cell."),
        ({"to": "/nowhere/grades.csv"}, "/nowhere/grades.csv cannot be written (No such file or directory)."),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_written(gradebook, tmp_path, options, sentence):
    (tmp_path / "out").write_text("an earlier export")
    with pytest.raises(SystemExit) as end:
        exported(exports.MoodleCsv, gradebook, tmp_path, **options)
    assert str(end.value) == f"Nothing was exported: {sentence}"
    assert (tmp_path / "out").read_text() == "an earlier export"


@pytest.mark.parametrize("exporter", [exports.CanvasCsv, exports.MoodleCsv, exports.ExercisesCsv, exports.Json])
def test_a_gradebook_without_assignments_is_of_no_course(exporter, tmp_path):
    with Gradebook(f"sqlite:///{tmp_path / 'empty.db'}", "recurrence") as empty:
        with pytest.raises(SystemExit, match="there is no assignment in this gradebook; run the command"):
            exported(exporter, empty, tmp_path)
        empty.add_assignment(SLUGS[0])
        exported(exporter, empty, tmp_path)


def test_nbgraders_own_command_takes_the_exporters(gradebook, tmp_path, monkeypatch):
    gradebook.close()
    monkeypatch.chdir(tmp_path)
    database = f"--db=sqlite:///{tmp_path / 'gradebook.db'}"
    command = ["export", "--exporter=autograde.exports.CanvasCsv", "--to=c.csv", "--course=recurrence", database]
    try:
        NbGraderApp.launch_instance(command)
    except SystemExit as end:
        assert not end.code
    finally:
        NbGraderApp.clear_instance()
    assert len(rows((tmp_path / "c.csv").read_text())) == 4
