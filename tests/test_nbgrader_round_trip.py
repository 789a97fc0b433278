"""Stock nbgrader, from release to export, in a course directory with the generated configuration.

Every step runs as a user runs it: nbgrader's commands in processes of their own, JupyterLab's server over HTTP.
"""

import csv
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import leaks
import nbformat
import pytest
import requests
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook
from website import barriers, rest

from autograde import classroom, exercises, sample
from autograde.checking import verdict
from autograde.course import Course

SLUG = "01_forward"
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(
    not (Path(__file__).parent.parent / "solutions").is_dir(),
    reason="this is the student edition: there is nothing to release",
)


def run(*command, cwd, code=0):
    """Run a command as a user does, in a folder; return what it printed."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def points(slug, answers):
    """What answers ought to score: {exercise id: points}, each judged by the exercise itself."""
    checked = {name: e for name, e in exercises.load(slug).items() if hasattr(e, "reference")}
    return {name: verdict(e, answers.get(name, e.reference), trusted=True).score for name, e in checked.items()}


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """A copy of the project with its notebooks built: tests write no tracked file, and chapters/ is one."""
    copy = tmp_path_factory.mktemp("project") / "copy"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*", "_build", "course", "*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "publish", cwd=copy)
    return copy


@pytest.fixture(scope="module")
def source(built):
    """The solved notebook of the chapter, as the build makes it."""
    return nbformat.read(built / "_build" / "source" / SLUG / f"{SLUG}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def course(tmp_path_factory, built):
    """A course directory with the chapter released."""
    folder = tmp_path_factory.mktemp("teacher") / "course"
    run(sys.executable, "-m", "autograde", "release", SLUG, "--course", str(folder), cwd=built)
    return folder


SCRIPT = (
    "<script>document.body.dataset.forged = 1</script> <img src=x onerror='document.body.dataset.forged = 1'> "
    "[go](javascript:forged) [go](JavaScript\\:forged) [go](&#106;avascript:forged) [go][1] <svg onload=forged> "
    "<iframe srcdoc='<script>forged</script>'></iframe>\n\n[1]: javascript:forged"
)


@pytest.fixture(scope="module")
def answers(source):
    """{student: {cell id: source}} and what each ought to score."""
    right = {cell.id: cell.source for cell in source.cells if cell.metadata.get("nbgrader", {}).get("solution")}
    step = exercises.find("rnn-step")
    sequence = exercises.find("rnn-sequence")
    no_bias = step.misconceptions["the bias is missing"].implementation
    not_carried = sequence.misconceptions["the state is not carried"].implementation
    full = points(SLUG, {})
    return {
        "solved": (right, full),
        "untouched": ({}, dict.fromkeys(full, 0.0)),
        "warning": (right | {"rnn-step": right["rnn-step"] + "\nimport warnings\n\nwarnings.warn('careful')"}, full),
        "mistaken": (
            right
            | {"rnn-step": sample.source_of(no_bias, "rnn_step")}
            | {"rnn-sequence": sample.source_of(not_carried, "rnn_forward")},
            full | points(SLUG, {"rnn-step": no_bias, "rnn-sequence": not_carried}),
        ),
        "scripted": (
            right
            | {
                "memory-reading": SCRIPT,
                "rnn-step": f"from IPython.display import HTML, display\n\n{right['rnn-step']}\n\n"
                f"display(HTML({SCRIPT!r}))\nprint({SCRIPT!r})",
            },
            full,
        ),
        "logging": (
            right
            | {
                "rnn-step": "import logging\n\nlogging.basicConfig()\n"
                + right["rnn-step"].replace("### BEGIN SOLUTION", "logging.warning('careful')")
            },
            full,
        ),
        "noisy": (
            right
            | {
                "output-layer": "import sys\n\n"
                + right["output-layer"].replace("### BEGIN SOLUTION", "print('hello', file=sys.stderr)")
            },
            full,
        ),
    }


@pytest.fixture(scope="module")
def graded(course, answers):
    """The course after students fetched, submitted, and the teacher collected, graded and gave feedback."""
    fetched = course.parent / "fetched"
    for student, (written, _) in answers.items():
        home = course.parent / student
        home.mkdir()
        shutil.copy(course / "nbgrader_config.py", home)
        config = home / "nbgrader_config.py"
        config.write_text(config.read_text().replace("HERE = ", f"HERE = Path({str(course)!r})  # "))
        config.write_text(config.read_text().replace("root = str(HERE)\n", f"root = {str(home)!r}\n"))
        if fetched.exists():  # all get the same files: once by the command is enough
            shutil.copytree(fetched, home / SLUG)
        else:
            run("nbgrader", "fetch_assignment", SLUG, cwd=home)
            shutil.copytree(home / SLUG, fetched)
        path = home / SLUG / f"{SLUG}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            cell.source = written.get(cell.id, cell.source)
        nbformat.write(notebook, path)
        run("nbgrader", "submit", SLUG, f"--student={student}", cwd=home)
    run("nbgrader", "collect", SLUG, cwd=course)
    run("nbgrader", "autograde", SLUG, cwd=course)
    run("nbgrader", "generate_feedback", SLUG, cwd=course)
    run("nbgrader", "release_feedback", SLUG, cwd=course)
    run("nbgrader", "export", cwd=course)
    return course


def test_the_release_is_the_notebook_in_chapters(course, root):
    released = nbformat.read(course / "release" / SLUG / f"{SLUG}.ipynb", as_version=4)
    assert released == nbformat.read(root / "chapters" / f"{SLUG}.ipynb", as_version=4)


def test_the_release_holds_nothing_of_the_answers(course, root):
    secrets = [secret for texts in leaks.answers(root).values() for secret in texts]
    assert secrets
    for folder in (course / "release", course / "exchange"):
        assert leaks.leaks(secrets, leaks.published(folder)) == []
    assert leaks.leaks(secrets, leaks.published(course / "source")), "the finder sees them where they are"


def test_every_submission_scores_what_its_answers_deserve(graded, answers):
    with Gradebook(f"sqlite:///{graded / 'gradebook.db'}", "recurrence") as gradebook:
        for student, (_, expected) in answers.items():
            submission = gradebook.find_submission(SLUG, student)
            (notebook,) = submission.notebooks
            scores = {grade.name: grade.auto_score for grade in notebook.grades}
            for name, score in expected.items():
                assert scores[f"{name}-check"] == pytest.approx(score), (student, name)
            manual = {grade.name for grade in notebook.grades if grade.needs_manual_grade}
            assert manual == (set() if student == "untouched" else {"memory-figure", "memory-reading"})
            assert submission.max_score == sum(e.points for e in exercises.load(SLUG).values())


def test_the_export_has_a_row_for_every_student(graded, answers):
    rows = {row["student_id"]: row for row in csv.DictReader((graded / "grades.csv").open())}
    for student, (_, expected) in answers.items():
        assert float(rows[student]["score"]) == pytest.approx(sum(expected.values()))
        assert float(rows[student]["max_score"]) == 19


def test_the_feedback_page_carries_the_checks_words_and_reaches_the_student(graded):
    page = (graded / "feedback" / "mistaken" / SLUG / f"{SLUG}.html").read_text(encoding="utf-8")
    assert "First case that differs:" in page
    assert "one unit, numbers to check by hand" in page
    home = graded.parent / "mistaken"
    run("nbgrader", "fetch_feedback", SLUG, "--student=mistaken", cwd=home)
    assert list((home / SLUG / "feedback").rglob("*.html"))


def test_the_boxes_of_the_prose_are_boxes_on_a_feedback_page_too(graded, source, browser):
    boxes = [box for cell in source.cells for box in re.findall(r"^```\{dropdown\} (.+)$", cell.source, re.M)]
    page = browser.new_page()
    page.goto((graded / "feedback" / "mistaken" / SLUG / f"{SLUG}.html").as_uri())
    assert boxes and page.locator("details > summary").all_inner_texts() == boxes
    answers = page.locator("details", has_text="Answers").first
    assert answers.locator("li").count() >= 2 and not answers.locator("li").first.is_visible()
    assert "{dropdown}" not in page.content()
    page.close()


def test_no_script_of_a_students_runs_on_a_feedback_page(graded, browser):
    page = browser.new_page()
    page.goto((graded / "feedback" / "scripted" / SLUG / f"{SLUG}.html").as_uri())
    rest(page, 1000)
    assert "onerror=" in page.inner_text("body"), "it is shown"
    assert page.evaluate("document.body.dataset.forged") is None
    active = page.locator("a[href^='javascript:' i], iframe, [onerror], [onload], svg[onload]")
    assert active.count() == 0, active.first.evaluate("element => element.outerHTML")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_in_the_checks_words_on_a_feedback_page(graded, browser, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((graded / "feedback" / "mistaken" / SLUG / f"{SLUG}.html").as_uri())
    assert page.locator(".recurrence-check").count() == len(exercises.load(SLUG)) - 2
    assert barriers(page, ".recurrence-check") == []
    page.close()


def test_grade_gives_the_same_scores_as_nbgraders_own_command(graded, answers, root, tmp_path):
    copy = tmp_path / "course"
    shutil.copytree(graded, copy)
    said = run(sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(copy), "--no-sandbox", cwd=root)
    for student, (_, expected) in answers.items():
        line = next(line for line in said.splitlines() if line.startswith(f"{student} "))
        assert f"{sum(expected.values()):.2f} of 19" in line


def test_a_figure_that_a_person_grades_is_kept_as_a_picture(graded):
    notebook = nbformat.read(graded / "autograded" / "solved" / SLUG / f"{SLUG}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.id == "memory-figure"]
    assert any("image/png" in output.get("data", {}) for output in cell.outputs)


def test_a_second_run_runs_nothing_and_a_changed_submission_alone(graded, root, tmp_path, monkeypatch):
    copy = tmp_path / "course"
    shutil.copytree(graded, copy)
    config = copy / "nbgrader_config.py"
    config.write_text(config.read_text().replace(str(graded), str(copy)))
    command = (sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(copy))
    first = run(*command, cwd=root).splitlines()
    pages = {path: path.stat().st_mtime_ns for path in copy.glob("feedback/*/*/*.html")}
    for path in pages:
        theirs = (graded / path.relative_to(copy)).read_text("utf-8")
        assert parsed(path.read_text("utf-8")) == parsed(theirs), "as nbgrader's own command writes it"
    kept = set(copy.glob(".graded/*.json"))
    assert len(pages) > 3
    said = run(sys.executable, "-m", "autograde", "report", SLUG, "--course", str(copy), cwd=root)
    reported = copy / "reports" / f"{SLUG}.html"
    assert f"report: {reported}" in said
    assert "only the scores are known" not in reported.read_text("utf-8")
    assert "the bias is missing" in reported.read_text("utf-8")
    with monkeypatch.context() as updated:
        updated.setattr("autograde.results.environment", lambda: {"NumPy": "another version"})
        assert all(one.verdicts for one in classroom.look(Course(copy), SLUG)), "what was graded then is still known"
    again = run(*command, cwd=root).splitlines()
    assert [line for line in again if " of 19" in line] == [line for line in first if " of 19" in line]
    assert {path: path.stat().st_mtime_ns for path in copy.glob("feedback/*/*/*.html")} == pages
    with Gradebook(f"sqlite:///{copy / 'gradebook.db'}", "recurrence") as gradebook:
        grade = gradebook.find_grade("memory-reading", SLUG, SLUG, "solved")
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()
    changed = copy / "submitted" / "solved" / SLUG / f"{SLUG}.ipynb"
    notebook = nbformat.read(changed, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print('one more cell')"))
    nbformat.write(notebook, changed)
    run(*command, cwd=root)
    after = {path: path.stat().st_mtime_ns for path in copy.glob("feedback/*/*/*.html")}
    assert {path.parts[-3] for path in pages if after[path] != pages[path]} == {"solved"}
    assert len(set(copy.glob(".graded/*.json")) - kept) == 1
    with Gradebook(f"sqlite:///{copy / 'gradebook.db'}", "recurrence") as gradebook:
        grade = gradebook.find_grade("memory-reading", SLUG, SLUG, "solved")
        assert grade.manual_score == 1.5, "what a person gave stays"
        assert grade.needs_manual_grade, "and is to be looked at again, as nbgrader has it"


def parsed(page):
    return re.sub(r"\s+", " ", str(BeautifulSoup(page, "html.parser")))


def test_a_run_that_was_killed_in_the_middle_is_finished_by_the_next_with_the_same_grades(graded, root, tmp_path):
    copy = tmp_path / "course"
    shutil.copytree(graded, copy, ignore=shutil.ignore_patterns(".graded", "autograded", "feedback"))
    config = copy / "nbgrader_config.py"
    config.write_text(config.read_text().replace(str(graded), str(copy)))
    command = [sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(copy)]

    def begun():
        return len(list(copy.glob(".graded/*.json")))

    with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and begun() < 2:
            time.sleep(0.02)
        process.kill()
    assert 2 <= begun() < len(list((copy / "submitted").iterdir()))
    run(*command, cwd=root)
    found = []
    for course in (copy, graded):
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "recurrence") as gradebook:
            students = sorted(path.name for path in (copy / "submitted").iterdir())
            found.append({name: gradebook.find_submission(SLUG, name).score for name in students})
    assert found[0] == found[1]
    assert len(list(copy.glob("feedback/*/*/*.html"))) == len(found[0])


def test_a_submission_that_cannot_be_read_is_named_and_the_others_are_graded(graded, root, tmp_path):
    copy = tmp_path / "course"
    shutil.copytree(graded, copy)
    broken = copy / "submitted" / "broken" / SLUG / f"{SLUG}.ipynb"
    broken.parent.mkdir(parents=True)
    broken.write_text("{ this is no notebook", encoding="utf-8")
    shutil.copytree(copy / "submitted" / "solved", copy / "submitted" / "bo[1]")
    command = (sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(copy), "--no-sandbox")
    said = run(*command, "--student", "[bs]*", cwd=root, code=1)
    assert "2 could not be read or run" in said
    assert re.search(r"^bo\[1\] .*not graded: .* rename it, without", said, re.MULTILINE)
    assert any(line.startswith("broken ") and "0.00 of 19" in line for line in said.splitlines())
    assert any(line.startswith("solved ") and "14.00 of 19" in line for line in said.splitlines())


@pytest.fixture(scope="module")
def server(graded):
    """JupyterLab's server in the course directory; yields a function that asks it for something."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ("jupyter-lab", "--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=secret")
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    log = graded.parent / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen([*command], cwd=graded, env=environment, stdout=out, stderr=out)

    def ask(address, **form):
        call = requests.post if form else requests.get
        headers = {"Authorization": "token secret"}
        answer = call(f"http://127.0.0.1:{port}/{address}", headers=headers, data=form or None, timeout=120)
        assert answer.status_code == 200, (
            f"{address}: {answer.status_code} {answer.text[:500]}\n{log.read_text()[-2000:]}"
        )
        return answer

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            ask("api")
            break
        except requests.ConnectionError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.3)
    yield ask
    process.terminate()
    process.wait(30)


def test_formgrader_lists_and_grades(server, answers):
    assert "formgrader" in server("formgrader/").text
    (assignment,) = server("formgrader/api/assignments").json()
    assert assignment["name"] == SLUG
    assert assignment["num_submissions"] == len(answers)
    result = server(f"formgrader/api/submission/{SLUG}/mistaken/autograde", force="true").json()
    assert result["success"], result
    submission = server(f"formgrader/api/submission/{SLUG}/mistaken").json()
    assert submission["score"] == pytest.approx(sum(answers["mistaken"][1].values()))


def test_validate_passes_the_solved_notebook_and_names_what_is_missing_in_another(server, graded):
    solved = server("assignments/validate", path=f"submitted/solved/{SLUG}/{SLUG}.ipynb").json()
    assert solved["success"], solved
    assert "failed" not in solved["value"]
    mistaken = server("assignments/validate", path=f"submitted/mistaken/{SLUG}/{SLUG}.ipynb").json()
    assert mistaken["success"], mistaken
    failing = " ".join(str(cell) for cell in mistaken["value"]["failed"])
    assert "rnn-step" in failing
    assert "rnn-sequence" in failing
    assert "output-layer" not in failing


def test_the_assignment_list_answers(server):
    listed = server("assignments?course_id=recurrence").json()
    assert listed["success"], listed
    assert SLUG in {entry["assignment_id"] for entry in listed["value"]}


def test_jupyterlab_opens_a_manuscript_as_a_notebook(server, graded, source, root):
    shutil.copy(root / "solutions" / f"{SLUG}.md", graded)
    opened = server(f"api/contents/{SLUG}.md?type=notebook&content=1").json()
    assert opened["type"] == "notebook"
    kinds = [cell["cell_type"] for cell in opened["content"]["cells"]]
    assert kinds == [cell.cell_type for cell in source.cells]
