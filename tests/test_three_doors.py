"""The three doors, each gone through from end to end in a real browser: a reader, a student, an instructor."""

import csv
import html
import re
import shutil

import lab
import nbformat
import pytest
from website import reload

from autograde import exercises
from autograde.checking import verdict
from publish import manuscript

SLUG = "01_forward"
MISTAKE = "W_hh is not transposed"
pytestmark = pytest.mark.skipif(
    not manuscript.slugs(), reason="this is the student edition: there is nothing to release"
)

# What Markdown, MyST and TeX leave in a text when nothing renders them.
RAW = re.compile(r"\$|`|:::|~~~|\{[\w:-]+\}|\\\w|\\[([]|\*\*|\]\(|\+\+\+|^#+ |^\s*\|", re.MULTILINE)
# What JupyterLab puts where TeX has a fault, a reference leads nowhere, or a directive is not known.
BROKEN = ".katex-error, [title$='Not Found'], .hover-link[href='#'], .myst-exercise"

# Of a rendered cell: its text without code and formulas, where such signs are meant; how often it has what; what is
# broken in it.
SEEN = """(cell, [kinds, broken]) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll("code, pre, .katex").forEach((one) => one.remove());
    return {
        text: copy.textContent,
        counts: kinds.map((kind) => cell.querySelectorAll(kind).length),
        broken: [...cell.querySelectorAll(broken)].map((one) => one.outerHTML),
    };
}"""
# What has to stand there as often as something is written, code apart.
WRITTEN = {
    ".katex": r"\$[^$]+\$|\\begin\{equation",
    "h1, h2, h3": r"^#+ ",
    "details": r"^```\{dropdown\}",
    "table": r"^\|[-|]+\|$",
}


def words(text):
    """Return the words of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).split()


@pytest.fixture
def course(root, tmp_path):
    """A course with the chapter released."""
    return lab.begin_course(tmp_path / "course", SLUG, root)


@pytest.fixture
def solved(course):
    """The right answers: {id of a cell: its text}."""
    cells = nbformat.read(course.root / "source" / SLUG / f"{SLUG}.ipynb", as_version=4).cells
    answers = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {cell.id: re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.M) for cell in answers}


@pytest.fixture
def mistaken(course):
    """A wrong answer to the first exercise, one that is known."""
    return lab.mistaken(course, SLUG, "rnn-step", MISTAKE)


@pytest.mark.xdist_group("doors of a reader")
def test_a_reader_searches_follows_a_preview_moves_a_figure_answers_and_finds_the_progress_again(visit):
    seen = visit("index", formulas=True)
    page = seen.page

    page.get_by_role("button", name="Search").first.click()
    page.locator("input[name=q]:visible").fill("bucket")
    page.keyboard.press("Enter")
    hit = page.locator("#search-results ul.search a").first
    assert hit.inner_text().endswith("Sequences and state")
    hit.click()
    page.wait_for_url("**/chapters/01_forward.html*")
    assert "bucket" in page.locator("article").inner_text()

    link = page.locator("article a[href$='#term-spectral-radius']").first
    link.hover()
    preview = page.get_by_role("tooltip")
    preview.wait_for()
    meaning = " ".join(preview.locator("xpath=*").nth(1).inner_text().split())
    assert "largest magnitude" in meaning
    link.click()
    page.wait_for_url("**/glossary.html#term-spectral-radius")
    assert meaning in " ".join(page.locator("article").inner_text().split())
    page.go_back()

    figure = page.locator("figure#fig-states")
    slider = figure.get_by_role("slider", name="spectral radius ρ")
    drawing, sentence = figure.locator(".movable-drawing"), figure.locator("output")
    left = r"(\d+\.\d+) at t = 24"
    before, little = drawing.inner_html(), re.search(left, sentence.inner_text())
    slider.focus()
    page.keyboard.press("End")
    much = re.search(left, sentence.inner_text())
    assert drawing.inner_html() != before
    assert float(little[1]) < 0.1 and float(much[1]) > 1, "with ρ = 1.5 the echo does not fade"

    progress = page.locator(".selfcheck-progress a")
    question = page.locator(".selfcheck").first
    for right, opening, count in ((0, "✗ Not quite.", 0), (1, "✓ Right.", 1)):
        answer = question.locator(f".selfcheck-answer[data-right='{right}']").first
        question.locator(f"input[value='{answer.get_attribute('data-choice')}']").check()
        said = question.locator(".selfcheck-feedback").inner_text()
        assert said.startswith(opening) and len(said.split()) > 12
        assert progress.inner_text() == f"{count} of 4 self-checks answered"
    reload(page)
    assert progress.inner_text() == "1 of 4 self-checks answered"
    assert question.locator(".selfcheck-feedback").inner_text() == said
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
    assert seen.errors == []


@pytest.mark.xdist_group("doors of a student")
def test_a_student_fetches_sees_every_cell_rendered_learns_from_a_check_validates_and_submits(
    course, solved, mistaken, browser, root, tmp_path
):
    home = tmp_path / "student"
    lab.begin_student(home, course)
    with lab.server(home, home, root) as address, lab.Student(browser, address) as student:
        student.fetch(SLUG)
        for cell in student.open(SLUG, home / SLUG / f"{SLUG}.ipynb"):
            if cell.cell_type == "markdown":
                look(student, cell)

        student.run_all(until="memory-figure")
        assert "NotImplementedError" in student.cell("memory-figure").locator(".jp-OutputArea").inner_text()
        assert "not checked yet, 0 of 3 points" in student.feedback("rnn-step")

        exercise = exercises.find("rnn-step")
        wrong = student.check("rnn-step", mistaken)
        meant = verdict(exercise, exercise.misconceptions[MISTAKE].implementation)
        assert meant.named == (MISTAKE,)
        assert wrong.split() == words(meant._repr_html_())
        said = student.validate()
        assert 'check("rnn-step", rnn_step)' in said

        for name, text in solved.items():
            if f"{name}-check" not in student.places:
                student.write(name, text)
                student.run(name)
                continue
            assert f"{name}: right" in student.check(name, text)
        assert "Success! Your notebook passes all the tests." in student.validate()

        student.submit(SLUG)
        assert student.outside == []
    (handed_in,) = (course.root / "exchange" / "recurrence" / "inbound").glob(f"*+{SLUG}+*/{SLUG}.ipynb")
    arrived = {cell.id: cell.source for cell in nbformat.read(handed_in, as_version=4).cells}
    assert {name: arrived[name] for name in solved} == solved


@pytest.mark.xdist_group("doors to other chapters")
def test_every_cell_of_the_other_chapters_is_rendered_too(browser, root, tmp_path):
    home, folder = tmp_path / "student", tmp_path / "chapters"
    home.mkdir()
    shutil.copytree(root / "chapters", folder)
    with lab.server(folder, home, root) as address, lab.Student(browser, address) as student:
        for slug in manuscript.slugs():
            if slug == SLUG:
                continue
            for cell in student.show(folder / f"{slug}.ipynb"):
                if cell.cell_type == "markdown":
                    look(student, cell)
        assert student.outside == []


def look(student, cell):
    """See that nothing of a Markdown cell stands there as it was written, and that every formula is typeset."""
    seen = student.rendered(cell.id).evaluate(SEEN, [list(WRITTEN), BROKEN])
    assert seen["text"].strip()
    assert RAW.findall(seen["text"]) == [], seen["text"]
    plain = re.sub(r"(?<!`)`[^`\n]+`", "", cell.source)
    assert seen["counts"] == [len(re.findall(sign, plain, re.M)) for sign in WRITTEN.values()], cell.source
    assert seen["broken"] == []


@pytest.mark.xdist_group("doors of an instructor")
def test_an_instructor_collects_grades_reads_the_feedback_scores_by_hand_and_exports(
    course, solved, mistaken, browser, root, tmp_path, needs
):
    needs("bwrap")
    answers = solved | {"rnn-step": mistaken, "memory-reading": "Large inputs overwrite the state."}
    lab.hand_in(tmp_path / "ada", course, SLUG, answers, root)
    home = tmp_path / "instructor"
    home.mkdir()
    step = exercises.find("rnn-step")
    wrong = verdict(step, step.misconceptions[MISTAKE].implementation, trusted=True)
    checked = 14 - wrong.points + wrong.score
    with lab.server(course.root, home, root) as address, lab.Instructor(browser, address) as instructor:
        instructor.formgrader()
        assert "Successfully collected" in instructor.press(SLUG, "collect")
        instructor.sees(SLUG, "1")  # the number of submissions
        instructor.go("1")
        instructor.sees("ada", "needs autograding")
        said = instructor.press("ada", "autograde")
        assert "Successfully autograded" in said
        instructor.sees("ada", "needs manual grading", f"{round(checked, 2):g} / 19")

        instructor.go("Manual Grading", SLUG, SLUG, "Submission #1")
        feedback = instructor.frame.locator(".recurrence-check").first.inner_text()
        assert f"rnn-step: {wrong.passed} of {wrong.total} cases right" in feedback
        assert feedback.split() != words(wrong._repr_html_()), "the numbers are the course's own, not the notebook's"
        instructor.score("memory-figure", 3)
        instructor.score("memory-reading", 1.5)
        instructor.comment("memory-reading", "What happens to the slope of tanh?")

        instructor.go("Manual Grading")
        instructor.go("Manage Assignments", "1")
        instructor.sees("ada", "graded", f"{round(checked + 4.5, 2):g} / 19")
        assert "Successfully generated feedback" in instructor.press("ada", "generate-feedback")
        assert "Successfully released feedback" in instructor.press("ada", "release-feedback")
    page = browser.new_page()
    page.goto((course.root / "feedback" / "ada" / SLUG / f"{SLUG}.html").as_uri())
    assert "What happens to the slope of tanh?" in page.inner_text("body")
    page.close()
    lab.run(["nbgrader", "export"], course.root, home, root)
    (row,) = csv.DictReader((course.root / "grades.csv").open())
    assert (row["student_id"], float(row["max_score"])) == ("ada", 19)
    assert float(row["score"]) == pytest.approx(checked + 4.5)
