"""A notebook that an instructor adds to the course, with tests as nbgrader knows them, is graded as nbgrader would."""

import shutil
from pathlib import Path

import nbformat
import nbgrader
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograde import classroom, report
from autograde.course import Course, Problem

AUTOTESTS = Path(nbgrader.__file__).parent / "tests" / "apps" / "files" / "autotests.yml"
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}
FUNCTION = "def double(x):\n    {}"
SOLUTION = "### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
ANSWERS = {"right": "return 2 * x", "wrong": "return x"}
TESTS = {
    "locked": "assert double(3) == 6",
    "not-locked": "assert double(2) == 4",
    "hidden": "assert double(0) == 0\n### BEGIN HIDDEN TESTS\nassert double(2) == 4\n### END HIDDEN TESTS",
    "written-by-nbgrader": "### AUTOTEST double(2)",
    "part": "0.5 * (double(2) == 4)",
    "part-of-numpy": "import numpy as np\nnp.float64(0.5) * (double(2) == 4)",
    "below": "-1",
    "above": "1e6",
    "huge": "10**400",
    "nan": "float('nan')",
    "words": "'done'",
}


def cell(source, name, new=new_code_cell, **about):
    usual = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return new(source, metadata={"nbgrader": usual | {"grade_id": name} | about})


def source(language="python"):
    """A solved notebook of an older format, whose cells have no ids."""
    cells = [cell(FUNCTION.format(SOLUTION), "double", solution=True)]
    cells += [cell(text, name, grade=True, points=2, locked=name == "locked") for name, text in TESTS.items()]
    cells.append(cell("Why?", "essay", new_markdown_cell, grade=True, solution=True, points=3))
    nb = new_notebook(cells=cells, metadata={"kernelspec": PYTHON | {"language": language}})
    for made in cells:
        del made["id"]
    nb.nbformat_minor = 4
    return nb


def put(nb, path):
    path.parent.mkdir(parents=True)
    nbformat.write(nb, path)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which the notebook is released, and handed in by two students."""
    course = Course(tmp_path_factory.mktemp("own") / "course")
    put(source(), course.root / "source" / "own" / "own.ipynb")
    shutil.copy(AUTOTESTS, course.root)
    course.run(course.api.generate_assignment, "own")
    for student, answer in ANSWERS.items():
        submitted = nbformat.read(course.root / "release" / "own" / "own.ipynb", as_version=4)
        submitted.cells[0].source = FUNCTION.format(answer)
        put(submitted, course.root / "submitted" / student / "own" / "own.ipynb")
    return course


@pytest.fixture(scope="module")
def points(course, needs):
    """{student: {test: points}}."""
    needs("bwrap")
    graded = {one.student: one for one in classroom.grade(course, "own")}
    assert not any(one.problem for one in graded.values()), graded
    return {student: one.cells for student, one in graded.items()}


@pytest.mark.parametrize("name", ["locked", "not-locked"])
def test_a_test_counts_whatever_its_cell_says_of_being_locked(points, name):
    assert (points["right"][name], points["wrong"][name]) == (2, 0)


def test_tests_that_nbgrader_writes_are_run_as_it_wrote_them(points):
    assert (points["right"]["written-by-nbgrader"], points["wrong"]["written-by-nbgrader"]) == (2, 0)


def test_hidden_tests_count(points):
    assert (points["right"]["hidden"], points["wrong"]["hidden"]) == (2, 0)


def test_the_number_that_a_test_gives_is_the_part_of_its_points(points):
    names = ("part", "part-of-numpy", "below", "above", "huge", "nan", "words")
    assert [points["right"][name] for name in names] == [0.5, 0.5, 0, 2, 2, 2, 2]
    assert [points["wrong"][name] for name in names[:2]] == [0, 0]


def test_an_answer_that_nobody_touched_needs_no_person(points):
    assert points["right"]["essay"] == 0


def test_a_graded_notebook_is_the_same_every_time(course, points):
    path = course.root / "autograded" / "right" / "own" / "own.ipynb"
    before = path.read_text()
    course.run(course.api.autograde, "own", "right", force=True)
    assert path.read_text() == before


def test_it_is_reported_though_its_cells_have_no_ids(course, points):
    text = report.report(course, "own").read_text("utf-8")
    assert "written-by-nbgrader" in text
    assert "graded</dt><dd>2<" in text


def test_a_notebook_in_another_language_is_refused_by_name(course):
    put(source(language="R"), course.root / "source" / "other" / "other.ipynb")
    (course.root / "submitted" / "right" / "other").mkdir()
    with pytest.raises(Problem, match=r"other\.ipynb is a notebook for R; only Python is graded"):
        classroom.grade(course, "other")
