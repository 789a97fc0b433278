"""The report on a class says what the gradebook and the checks say, who is alike, and runs no code of a student."""

import re

import pytest
from click.testing import CliRunner
from website import barriers

from autograde import report, similar
from autograde.__main__ import main, summary
from autograde.classroom import Graded
from autograde.course import Course

SLUG = "01_forward"
NAME = "<script>document.title = 'forged'</script>"


def verdict(kind="", named=()):
    return {"exercise": "rnn-step", "points": 3, "score": 0.0, "kind": kind, "named": list(named)}


def of(student, score=0.0, problem="", seconds=1.0, **more):
    verdicts = {"rnn-step": verdict(**more)}
    cells = {"rnn-step-check": score, "memory-reading": None}
    points = {"memory-reading": 2.0, "rnn-step-check": 3.0}
    return Graded(student, score, 19.0, cells, problem, verdicts, seconds, points)


CLASS = [
    of("ada", 3.0, seconds=0.4),
    of("bela", 1.0, named=["the bias is missing"]),
    of("carl", 1.0, named=["the bias is missing"]),
    of("dora", kind="OutOfTime"),
    of("ewa", kind="Forbidden"),
    of("finn", kind="unwritten"),
    of("gus", problem="not read: it is not a notebook", kind="unreadable"),
    of(NAME, problem=f"Your cell raised {NAME}", kind="Died", seconds=9.0),
]
MINE = "def f(x):\n    total = 0\n    for k in range(len(x)):\n        total = total + x[k] ** 2 - 3 * np.sin(x[k])\n"
THEIRS = MINE.replace("total", "s").replace("k", "index").replace("    for", "    # add up\n    for")
GIVEN = "def f(x):\n    raise NotImplementedError()\n"
RIGHT = "def f(x):\n    return np.sum(x * x) - 3 * np.sin(x).sum() + np.where(x > 1, x, 0).sum()\n"


def alike(texts, kind="code"):
    return similar.pairs({"f": texts}, {"f": (kind, [GIVEN, RIGHT])})


# Answers that are alike.


def test_other_names_comments_and_layout_hide_no_copy():
    (pair,) = alike(
        {"ada": MINE, "bela": THEIRS, "carl": "def f(x):\n    return float((x**2).sum()) / max(len(x), 1)\n"}
    )
    assert pair.students == ("ada", "bela")
    assert pair.share == 1.0
    assert "<mark>" in pair.marked[0]


def test_what_everyone_was_given_and_the_right_answer_make_no_pair():
    assert alike({"ada": RIGHT, "bela": RIGHT, "carl": GIVEN, "dora": GIVEN, "ewa": "", "finn": ""}) == []
    assert alike({"ada": RIGHT + "\nprint(1)", "bela": RIGHT + "\nprint(2)"}) == [], "a line more is too little to say"


def test_what_many_wrote_is_nobodys_in_particular():
    assert len(alike({str(k): MINE for k in range(3)})) == 3
    assert alike({str(k): MINE for k in range(similar.COMMON + 1)}) == []


def test_prose_is_compared_word_by_word():
    text = "The memory grows with the spectral radius until it never ends, since every state decays like its powers."
    assert len(alike({"ada": text, "bela": text.replace(" ", "  "), "carl": text[::-1]}, "markdown")) == 1
    assert (
        alike({"ada": text, "bela": "It grows, as every factor in the product does; above one nothing is forgotten."})
        == []
    )


def test_what_is_marked_is_text():
    (pair,) = alike({"ada": MINE + f"# {NAME}", "bela": THEIRS + f"# {NAME}"})
    assert "<script" not in "".join(pair.marked)


# The page.


def test_each_exercise_that_stopped_is_listed():
    two = {"rnn-step": verdict("OutOfTime"), "output-layer": verdict("OutOfTime")}
    found = report.stopped([Graded("ada", verdicts=two)])
    assert found == [("ada", "rnn-step: ran out of time"), ("ada", "output-layer: ran out of time")]


@pytest.fixture(scope="module")
def shown(tmp_path_factory, browser):
    path = tmp_path_factory.mktemp("report") / "report.html"
    pairs = [similar.Pair("rnn-step", ("bela", NAME), 0.9, ("<mark>a &lt; b</mark>", "<mark>a</mark>"))]
    path.write_text(report.page(SLUG, CLASS, pairs), "utf-8")
    requests = []
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    yield page
    assert requests == [path.as_uri()], "the page needs nothing but itself"
    page.close()


def test_the_page_says_what_came_of_the_class(shown):
    text = shown.inner_text("body")
    assert re.search(r"graded\s+8", text)
    assert re.search(r"to look at\s+4", text)
    assert "dora\tran out" not in text
    assert re.search(r"dora\s+rnn-step: ran out of time", text)
    assert re.search(r"ewa\s+rnn-step: used what the exercise asks to write", text)
    assert re.search(r"gus\s+not read: it is not a notebook", text)
    assert "Slowest: <script>" in text
    row = shown.locator("tr", has_text="rnn-step").first.inner_text()
    assert row.split() == ["rnn-step", "3", "0.62", "1", "5", "1"]
    shown.locator("summary", has_text="with the students").click()
    assert "bela, carl" in shown.inner_text("body")


def test_nothing_of_a_students_runs_there(shown):
    assert shown.title() == f"{SLUG}: report on the class"
    assert shown.locator("script").count() == 0


def test_it_fits_a_phone_and_axe_finds_no_barrier(shown):
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert barriers(shown) == []


def test_submissions_of_which_only_the_score_is_known_are_named():
    text = report.page(SLUG, [Graded("ada", 3.0, 19.0, {"rnn-step-check": 3.0})], [])
    assert "Of 1 only the scores are known" in text
    assert "ada" in text


def test_an_instructors_own_notebook_is_reported_by_its_cells():
    own = [Graded("ada", 1.0, 4.0, {"mine": 1.0, "other": 0.0}, points={"mine": 1.0, "other": 3.0})]
    found = report.rows("99_own", own)
    assert [(row["name"], row["right"], row["nothing"]) for row in found] == [("mine", 1, 0), ("other", 0, 1)]
    assert "other" in report.page("99_own", own, [])


def test_the_summary_counts_what_is_worth_a_look():
    assert summary(CLASS) == (
        "8 graded, 2 could not be read or run, 1 ran out of time, 1 used what an exercise forbids, 8 wait for a person"
    )
    assert summary([Graded("ada", 1.0, 1.0, {"f": 1.0})]) == "1 graded, 0 could not be read or run"


def test_nothing_handed_in_is_said(tmp_path):
    Course(tmp_path)
    (tmp_path / "source" / SLUG).mkdir(parents=True)
    run = CliRunner().invoke(main, ["report", SLUG, "--course", str(tmp_path)])
    assert run.exit_code == 2
    assert "nothing was handed in" in run.output
