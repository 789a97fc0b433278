"""The grading's command line refuses in one clear sentence, changes nothing then, and loses nothing."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import numpy as np
import psutil
import pytest
import quick_gradebooks  # noqa: F401, makes them quick
import torch
from click.testing import CliRunner
from nbgrader.exchange import ExchangeFactory

import rnncore
from autograde import classroom, diagnose, exercises, grader, sample, sandbox
from autograde import release as releasing
from autograde.__main__ import main, table
from autograde.checking import verdict
from autograde.course import Course, Problem, reason

SLUG = "01_test"


def cell(source, grade_id, kind="code", **nbgrader):
    known = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    return new(source, id=grade_id, metadata={"nbgrader": known | {"grade_id": grade_id} | nbgrader})


def notebook(points=2, prose="Some prose."):
    cells = [
        nbformat.v4.new_markdown_cell(prose, id="prose"),
        cell("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION", "f", solution=True),
        cell("assert f() == 1", "f-check", grade=True, locked=True, points=points),
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def build(root, **changes):
    path = root / "_build" / "source" / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(**changes), path)


@pytest.fixture
def project(tmp_path):
    """A project with one small solved notebook."""
    build(tmp_path)
    return tmp_path


@pytest.fixture
def course(project):
    """A course in which it is released."""
    course = Course(project / "course")
    assert releasing.release(course, SLUG, project)
    return course


def hand_in(course, student="ada"):
    path = course.root / "submitted" / student / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(course.root / "release" / SLUG / f"{SLUG}.ipynb", path)


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_releasing_twice_changes_nothing(course, project):
    before = everything(course.root)
    assert not releasing.release(course, SLUG, project)
    assert everything(course.root) == before


def test_a_gradebook_without_the_assignment_is_named_and_a_release_enters_it(course, project):
    hand_in(course)
    (course.root / "gradebook.db").unlink()  # or another one, by db_url
    with pytest.raises(Problem, match=f"the gradebook has no {SLUG}; `make release` enters it"):
        classroom.grade(course, SLUG, confined=False)
    assert not (course.root / "feedback").exists()
    assert releasing.release(course, SLUG, project)
    [graded] = classroom.grade(course, SLUG, confined=False)
    assert (graded.student, graded.problem) == ("ada", "")
    assert not releasing.release(course, SLUG, project)


def test_an_existing_configuration_is_never_overwritten(project):
    (project / "course").mkdir()
    config = project / "course" / "nbgrader_config.py"
    config.write_text("c = get_config()\nc.CourseDirectory.course_id = 'mine'\n")
    assert Course(project / "course").api.course_id == "mine"
    assert "mine" in config.read_text()


def test_a_changed_chapter_is_released_anew(course, project):
    build(project, prose="New prose.")
    assert releasing.release(course, SLUG, project)
    released = (course.root / "release" / SLUG / f"{SLUG}.ipynb").read_text()
    assert "New prose." in released
    exchanged = list((course.root / "exchange").rglob("outbound/**/*.ipynb"))
    assert exchanged
    assert all("New prose." in path.read_text() for path in exchanged)


def test_a_source_edited_by_hand_is_not_overwritten_and_its_cells_are_named(course, project):
    source = course.root / "source" / SLUG / f"{SLUG}.ipynb"
    edited = nbformat.read(source, as_version=4)
    edited.cells[0].source = "My own prose."
    nbformat.write(edited, source)
    build(project, prose="New prose.")
    before = everything(course.root)
    with pytest.raises(Problem, match=r"was edited since .*: prose\."):
        releasing.release(course, SLUG, project)
    assert everything(course.root) == before


def test_a_change_of_graded_cells_is_refused_once_work_is_handed_in(course, project):
    hand_in(course)
    build(project, prose="New prose.")
    assert releasing.release(course, SLUG, project), "prose may change"
    build(project, prose="New prose.", points=3)
    before = everything(course.root)
    with pytest.raises(Problem, match=r"1 of the class .*\(ada.*would change: f-check"):
        releasing.release(course, SLUG, project)
    assert everything(course.root) == before


def test_work_waiting_in_the_exchange_counts_as_handed_in(course):
    inbound = course.root / "exchange" / "recurrence" / "inbound"
    (inbound / f"ada+{SLUG}+2026-01-01 00-00-00 UTC+0000").mkdir(parents=True)
    assert course.handed_in(SLUG) == ["ada"]


def test_a_release_that_was_interrupted_is_finished_the_next_time(project, monkeypatch):
    course = Course(project / "course")
    with monkeypatch.context() as broken:
        broken.setattr(Course, "publish", lambda self, assignment: {"success": False, "log": "[ERROR] disk full"})
        with pytest.raises(Problem, match="disk full"):
            releasing.release(course, SLUG, project)
    assert releasing.release(course, SLUG, project)
    assert list((course.root / "exchange").rglob(f"outbound/**/{SLUG}.ipynb"))


@pytest.mark.parametrize("left", ['{"01_fo', "[]", '{"01_forward": 1}', "\0"])
def test_a_damaged_record_of_releases_is_named_and_nothing_changed(course, project, left):
    record = course.root / releasing.RECORD
    record.write_text(left)
    with pytest.raises(Problem, match=r"\.released\.json cannot be read; .* once you delete it"):
        releasing.release(course, SLUG, project)
    assert record.read_text() == left
    record.unlink()
    assert releasing.release(course, SLUG, project)
    assert not releasing.release(course, SLUG, project)


def test_after_an_interrupted_release_a_changed_chapter_is_not_taken_for_an_edit(project, monkeypatch):
    course = Course(project / "course")
    with monkeypatch.context() as broken:
        broken.setattr(Course, "publish", lambda self, assignment: {"success": False, "log": "[ERROR] disk full"})
        with pytest.raises(Problem):
            releasing.release(course, SLUG, project)
    build(project, prose="New prose.")
    assert releasing.release(course, SLUG, project)


def test_without_its_source_a_course_still_protects_what_was_handed_in(course, project):
    hand_in(course)
    shutil.rmtree(course.root / "source")
    build(project, points=3)
    with pytest.raises(Problem, match="would change: f-check"):
        releasing.release(course, SLUG, project)
    assert not (course.root / "source").exists()


def test_a_submission_whose_kernel_dies_is_named_and_the_others_are_graded(course):
    for student, line in (("ada", "return 1"), ("dora", "import os; os._exit(3)")):
        hand_in(course, student)
        path = course.root / "submitted" / student / SLUG / f"{SLUG}.ipynb"
        submitted = nbformat.read(path, as_version=4)
        submitted.cells[1].source = f"def f():\n    {line}"
        nbformat.write(submitted, path)
    good, dead = classroom.grade(course, SLUG)
    assert (good.score, good.cells, good.problem) == (2.0, {"f-check": 2.0}, "")
    assert dead.score == 0.0
    assert "ended by itself" in dead.problem


def test_a_notebook_that_is_missing_misnamed_or_foreign_gets_0_and_waits_for_nobody(course, project):
    for student in ("missing", "misnamed", "foreign", "undated"):
        hand_in(course, student)
    path = lambda student: course.root / "submitted" / student / SLUG / f"{SLUG}.ipynb"  # noqa: E731
    path("missing").unlink()
    path("misnamed").rename(path("misnamed").with_name(f"{SLUG} (1).ipynb"))
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), path("foreign"))
    (path("undated").parent / "timestamp.txt").write_text("yesterday")
    found = {result.student: result for result in classroom.grade(course, SLUG, confined=False)}
    assert [result.score for result in found.values()] == [0.0] * 4
    assert not any(result.still_manual for result in found.values())
    assert found["missing"].problem == f"not read: there is no {SLUG}.ipynb"
    assert found["misnamed"].problem == f"not read: there is no {SLUG}.ipynb, but {SLUG} (1).ipynb: rename it"
    assert "none of the chapter's exercises is in it" in found["foreign"].problem
    assert "Its timestamp.txt holds no time" in found["undated"].problem
    with course.api.gradebook as gradebook:
        assert len(gradebook.assignment_submissions(SLUG)) == 4


def test_late_work_loses_what_the_guide_s_plug_in_takes(course, root):
    (plugin,) = re.findall(
        r"```python\n(from nbgrader\.plugins.*?)```", (root / "guides" / "instructor.md").read_text(), re.S
    )
    with (course.root / "nbgrader_config.py").open("a") as config:
        config.write(plugin)
    for student, day in (("ada", 1), ("bo", 4)):
        hand_in(course, student)
        folder = course.root / "submitted" / student / SLUG
        submitted = nbformat.read(folder / f"{SLUG}.ipynb", as_version=4)
        submitted.cells[1].source = "def f():\n    return 1"
        nbformat.write(submitted, folder / f"{SLUG}.ipynb")
        (folder / "timestamp.txt").write_text(f"2027-02-0{day} 12:00:00 UTC")
    late = Course(course.root)
    with late.api.gradebook as gradebook:
        gradebook.update_or_create_assignment(SLUG, duedate="2027-02-01 23:59:00 UTC")
    classroom.grade(late, SLUG)
    with late.api.gradebook as gradebook:
        penalties = [gradebook.find_submission(SLUG, name).late_submission_penalty for name in ("ada", "bo")]
    assert penalties == [0, pytest.approx(2 * 0.3)]


@pytest.mark.parametrize("ours", [False, True], ids=["nbgrader's own", "ours"])
def test_collecting_reads_nothing_that_a_link_points_to(course, needs, ours):
    needs("bwrap")
    if not ours:
        course.api.config.ExchangeFactory.pop("collect")
    course.api.exchange = ExchangeFactory(config=course.api.config)
    inbound = course.root / "exchange" / "recurrence" / "inbound"
    source = course.root / "source" / SLUG
    mallory = inbound / f"mallory+{SLUG}+2026-01-01 00:00:00 UTC+0000"
    mallory.mkdir(parents=True)
    (mallory / f"{SLUG}.ipynb").symlink_to(source / f"{SLUG}.ipynb")
    (mallory / "timestamp.txt").write_text("2026-01-01 00:00:00 UTC")
    (inbound / f"eve+{SLUG}+2026-01-01 00:00:00 UTC+0000").symlink_to(source)
    course.run(course.api.collect, SLUG, update=True)
    results = classroom.grade(course, SLUG)
    assert [(g.student, g.score) for g in results] == ([("mallory", 0)] if ours else [("eve", 2), ("mallory", 2)])
    assert not ours or "link" in results[0].problem


def test_a_fault_of_the_grading_itself_costs_one_student_until_the_next_run(course, monkeypatch, needs):
    needs("bwrap")
    hand_in(course, "ada")
    hand_in(course, "dora")
    path = course.root / "submitted" / "dora" / SLUG / f"{SLUG}.ipynb"
    path.write_text(path.read_text().replace("raise NotImplementedError()", "return 1"))
    real = grader.grade

    def faulty(nb, *rest):
        if "return 1" not in str(nb):
            raise SystemError("as good as new")
        return real(nb, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(grader, "grade", faulty)
        code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 1
    assert re.search(r"ada .*by a fault of the grading: SystemError: as good as new; run again", said)
    assert re.search(r"dora +2.00 of 2\n", said)
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 0, said


def test_ctrl_c_while_nbgrader_writes_ends_the_run_and_costs_nobody_anything(course, monkeypatch):
    hand_in(course, "ada")
    hand_in(course, "dora")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("nbgrader.converters.Autograde.start", interrupted)
        code, said = invoke("grade", SLUG, "--course", str(course.root), "--no-sandbox")
    assert code == 130 and "the same command goes on from there" in said and "ada" not in said
    code, said = invoke("grade", SLUG, "--course", str(course.root), "--no-sandbox")
    assert code == 0 and "2 graded, 0 could not be read or run" in said


# What a shell starts in the background ignores Ctrl+C, and so would what that starts: these tests, say.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("autograde", run_name="__main__")
"""


def test_a_terminals_ctrl_c_while_a_notebook_runs_costs_nobody_anything(course, needs):
    """A terminal sends it to all processes of the command, those in which students' code runs among them."""
    needs("bwrap")
    hand_in(course, "ada")
    path = course.root / "submitted" / "ada" / SLUG / f"{SLUG}.ipynb"
    submitted = nbformat.read(path, as_version=4)
    submitted.cells[1].source = "import time\ntime.sleep(10)\ndef f():\n    return 1"
    nbformat.write(submitted, path)
    command = [sys.executable, "-c", INTERRUPTIBLE, "grade", SLUG, "--course", course.root]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen(command, cwd=releasing.ROOT, **pipes) as process:
        while not runs_students_code(process):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        time.sleep(1)  # then it is in its cell
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert "stopping once the 1 now running have ended" in said
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert re.search(r"ada +2.00 of 2\n", said), said
    assert code == 0


def runs_students_code(process):
    """Whether the sandbox has begun a notebook: the workers' parent is forked then."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
        return sum(each.name() != "bwrap" and "autograde.worker" in each.cmdline() for each in below) > 1


def test_an_unknown_chapter_is_named_with_the_known_ones(course, project):
    with pytest.raises(Problem, match=rf"no chapter '02_nothing' .* known are: {SLUG}"):
        releasing.release(course, "02_nothing", project)


def invoke(*arguments):
    result = CliRunner().invoke(main, list(arguments))
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_configuration_that_would_run_students_code_unconfined_is_refused(course):
    hand_in(course)
    (course.root / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'mine'\n")
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 2
    assert "would run students' code unconfined" in said
    assert not (course.root / "autograded").exists()


def test_a_course_sets_its_own_limits_and_what_is_none_is_refused(course, needs):
    needs("bwrap")
    hand_in(course)
    path = course.root / "submitted" / "ada" / SLUG / f"{SLUG}.ipynb"
    submitted = nbformat.read(path, as_version=4)
    submitted.cells[1].source = "while True: pass"
    nbformat.write(submitted, path)
    config = course.root / "nbgrader_config.py"
    text = config.read_text()
    for wrong in ('{"wal": 5}', '{"wall": 0.5}', '{"cell": "5"}'):
        config.write_text(f"{text}\nc.GradeOutside.limits = {wrong}\n")
        code, said = invoke("grade", SLUG, "--course", str(course.root))
        assert code == 2
        assert "GradeOutside.limits takes cell, memory, cpu, wall" in said
    config.write_text(text + '\nc.GradeOutside.limits = {"cell": 1}\n')
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 0, said
    shown = (course.root / "autograded" / "ada" / SLUG / f"{SLUG}.ipynb").read_text()
    assert "ran for too long" in shown


def test_while_one_run_grades_a_course_another_is_refused(course):
    hand_in(course)
    with classroom.alone(course):
        code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 2
    assert "another run is grading" in said


def test_where_nothing_confines_grading_refuses_and_says_what_to_install(course, monkeypatch):
    hand_in(course)
    monkeypatch.setattr(sandbox.shutil, "which", lambda program: None)
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert code == 2
    assert "sudo apt-get install bubblewrap" in said
    assert "--no-sandbox" in said
    code, said = invoke("grade", SLUG, "--course", str(course.root), "--no-sandbox")
    assert code == 0
    assert "no confinement: students' code runs as you" in said


def test_grading_where_there_is_no_course_begins_none(tmp_path):
    code, said = invoke("grade", SLUG, "--course", str(tmp_path / "nowhere"), "--no-sandbox")
    assert code == 2
    assert "does not exist" in said
    assert not (tmp_path / "nowhere").exists()


def test_grading_where_nothing_was_handed_in_says_how_to_collect(course):
    code, said = invoke("grade", SLUG, "--course", str(course.root), "--no-sandbox")
    assert code == 2
    assert f"nbgrader collect {SLUG}" in said
    hand_in(course)
    code, said = invoke("grade", SLUG, "--course", str(course.root), "--no-sandbox", "--student", "z*")
    assert code == 2
    assert "matching 'z*'" in said


def test_a_wrong_chapter_or_folder_is_named_and_begins_nothing(course, tmp_path, project):
    hand_in(course)
    code, said = invoke("grade", "01_tset", "--course", str(course.root))
    assert (code, f"no assignment '01_tset' in {course.root}; there are: {SLUG}" in said) == (2, True), said
    (tmp_path / "other").mkdir()
    code, said = invoke("grade", SLUG, "--course", str(tmp_path / "other"))
    assert (code, "is no course: nbgrader_config.py is not in it" in said) == (2, True), said
    code, said = invoke("release", "no-chapter", "--course", str(tmp_path / "new"))
    assert (code, "there is no chapter 'no-chapter'" in said) == (2, True), said
    assert not (tmp_path / "new").exists() and not any((tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("gradebook.db", "no database", "DatabaseError: (sqlite3.DatabaseError) file is not a database"),
        ("nbgrader_config.py", "c = get_config(", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_damaged_file_of_the_course_gets_a_sentence(course, name, text, sentence):
    hand_in(course)
    (course.root / name).write_text(text)
    code, said = invoke("grade", SLUG, "--course", str(course.root))
    assert (code, sentence in said) == (2, True), said


def test_of_a_step_that_failed_with_a_traceback_the_exception_is_told():
    log = (
        "[ERROR] Traceback (most recent call last):\n  File x\nsqlalchemy.exc.OperationalError: readonly database\n[x]"
    )
    assert reason({"log": log}) == "sqlalchemy.exc.OperationalError: readonly database"
    assert reason({"log": "[INFO] a\n[ERROR] No notebook"}) == "[ERROR] No notebook"
    assert reason({"log": "only\nthis"}) == "this"


def test_a_sample_course_replaces_no_folder_that_is_not_one(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    code, said = invoke("sample", str(tmp_path))
    assert code == 2
    assert "is no sample course" in said
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_sample_course_that_is_up_to_date_is_left_alone(project):
    (project / "rnncore.py").touch()
    folder = project / "sample"
    folder.mkdir()
    scores = {SLUG: {"ada": {"score": 2.0, "of": 2.0, "cells": {}, "problem": ""}}}
    (folder / sample.MARK).write_text(
        json.dumps({"made_from": f"{sample._digest(project)} for {sample.STUDENTS}", "scores": scores})
    )
    assert sample.sample(folder, project, say=lambda text: None) == scores
    assert [path.name for path in folder.iterdir()] == [sample.MARK]


def test_the_table_of_the_sample_has_a_column_for_every_exercise():
    cells = {"step-check": 1.5, "essay": None}
    students = {"ada": {"score": 1.5, "of": 5, "cells": cells, "problem": ""}}
    students["dora"] = {"score": 0.0, "of": 5, "cells": {}, "problem": "the kernel died"}
    head, ada, dora = table(["step", "essay"], students)
    assert head.split() == ["step", "essay", "total"]
    assert ada.split() == ["ada", "1.50", "?", "1.50", "of", "5"]
    assert dora.split() == ["dora", "0.00", "0.00", "0.00", "of", "5", "the", "kernel", "died"]


@pytest.mark.parametrize("slug", exercises.chapters())
def test_in_a_class_that_is_large_enough_every_mistake_is_made_and_each_name_is_another(slug):
    checked = {name: e for name, e in exercises.load(slug).items() if hasattr(e, "reference")}
    right = {name: f"def {name.replace('-', '_')}():\n    pass" for name in checked}
    most = max(len(exercise.misconceptions) for exercise in checked.values())
    answers = sample.answers_of_the_class(slug, right, most + len(sample.SPECIAL))
    assert len(answers) == most + len(sample.SPECIAL)
    for name, exercise in checked.items():
        made = {answers[student][name] for student in list(answers)[len(sample.SPECIAL) :]}
        assert len(made) == len({sample.source_of(m.implementation, "f") for m in exercise.misconceptions.values()})


CHECKED = [exercises.find(name) for name in exercises.checked()]
MISTAKES = [(exercise, name) for exercise in CHECKED for name in exercise.misconceptions]


@pytest.mark.parametrize(("exercise", "name"), MISTAKES, ids=[f"{e.id}: {name}" for e, name in MISTAKES])
def test_the_sample_class_writes_a_misconception_that_runs_by_itself_and_scores_alike(exercise, name, monkeypatch):
    mistake = exercise.misconceptions[name].implementation
    notebook = {"np": np, "torch": torch, "rnncore": rnncore}
    exec(sample.source_of(mistake, as_name="answer"), notebook)
    for slow in ("misconceptions_of", "_numbers", "_first_step"):  # what is said of the outcomes is tested elsewhere
        monkeypatch.setattr(diagnose, slow, lambda *a: [])
    written, meant = verdict(exercise, notebook["answer"]), verdict(exercise, mistake)
    assert [outcome.problem for outcome in written.outcomes] == [outcome.problem for outcome in meant.outcomes]


@pytest.mark.parametrize("command", [[], ["release"], ["grade"], ["sample"]])
def test_every_command_has_help(command):
    code, said = invoke(*command, "--help")
    assert code == 0
    assert "Usage:" in said


def test_wrong_usage_exits_with_2():
    assert invoke("grade")[0] == 2
    assert invoke("mark")[0] == 2
