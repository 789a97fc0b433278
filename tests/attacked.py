"""A course under attack: how it is made, and what an attack has gained in it."""

import contextlib

import attacks
import nbformat
from attacks import FULL, RIGHT, SECRETS, SLUG, VICTIM
from nbgrader.api import Gradebook, MissingEntry

from autograde.course import Course

MUCH = 50 * 10**6  # bytes that one submission must not fill


def course(folder, tests=None, configure=lambda made: None):
    """Make a course with its secrets and the victim's submission; return its folder.

    tests are test cells in place of the checks; configure(Course) may change nbgrader's configuration.
    """
    made = Course(folder)
    configure(made)
    source = attacks.course_notebook(tests)
    for cell in source.cells:
        if cell.id in RIGHT:
            cell.source = f"### BEGIN SOLUTION\n# {SECRETS['the source']}\n{RIGHT[cell.id]}\n### END SOLUTION"
    path = folder / "source" / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(source, path)
    made.run(made.api.generate_assignment, SLUG, force=True)
    (folder / ".seed").write_text(f"{SECRETS['the seed']}\n")
    path = folder / "submitted" / VICTIM / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(attacks.handed_in(RIGHT, more=["# " + SECRETS["another's submission"]]), path)
    return folder


def state(place):
    """Return what no submission may change: the texts of the source and of the victim's submission."""
    paths = [place / "source" / SLUG / f"{SLUG}.ipynb", place / "submitted" / VICTIM / SLUG / f"{SLUG}.ipynb"]
    return [path.read_bytes() for path in paths]


def gained(attack, place, student, before, ended=""):
    """Return in words what an attack gained, or "".

    before is the course's `state` before the run; ended says how the run ended, "" for well.
    """
    if attack.gain == attacks.POINTS:
        points = sum(score or 0 for score in scores(place, student).values())
        return f"{points:g} of {sum(FULL.values()):g} points" if points else ""
    if attack.gain == attacks.LEAK:
        return ", ".join(attacks.leaked("".join(pages(place, student))))
    if attack.gain == attacks.SCRIPT:
        return ", ".join(dict.fromkeys(name for page in pages(place, student, "html") for name in attacks.active(page)))
    if attack.gain == attacks.STOP:
        return ended or ("" if is_graded(place, student) else "it is not graded")
    assert attack.gain == attacks.HARM
    return harm(place, student, before)


def harm(place, student, before):
    """Return what became of the others, or ""."""
    parts = [path for part in ("autograded", "feedback") for path in place.glob(f"{part}/{student}/**/*")]
    size = sum(path.stat().st_size for path in parts)
    if size > MUCH:
        return f"{size / 10**6:.0f} MB of disk"
    if state(place) != before:
        return "another's file"
    found, right = sum(score or 0 for score in scores(place, VICTIM).values()), sum(FULL.values())
    return "" if found == right else f"another gets {found:g} of {right:g} points"


def scores(place, student):
    """Return {check: score} of a student, {} if there is none."""
    with Gradebook(f"sqlite:///{place / 'gradebook.db'}", "recurrence") as gradebook, contextlib.suppress(MissingEntry):
        submission = gradebook.find_submission(SLUG, student)
        return {grade.name: grade.score for part in submission.notebooks for grade in part.grades if grade.name in FULL}
    return {}


def is_graded(place, student):
    """Whether a student has scores and a page."""
    return bool(scores(place, student)) and len(list(pages(place, student))) == 2


def pages(place, student, kinds="ipynb html"):
    """Yield the texts of a student's graded notebook and feedback page, as far as they are there."""
    for part, kind in (("autograded", "ipynb"), ("feedback", "html")):
        path = place / part / student / SLUG / f"{SLUG}.{kind}"
        if kind in kinds and path.is_file():
            yield path.read_text("utf-8")
