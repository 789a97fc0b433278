"""Takes the README's picture of the book, and the guides' of feedback, JupyterLab and formgrader: `make pictures`."""

import shutil
import tempfile
from pathlib import Path

import click
import lab
from PIL import Image
from playwright.sync_api import sync_playwright
from website import rest

from autograde import exercises
from autograde.checking import verdict
from autograde.course import Course

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "_build" / "html" / "chapters" / "01_forward.html"
PICTURE = ROOT / "_static" / "pictures" / "book.png"
SLUG = PAGE.stem
WIDTH, HEIGHT = 1080, 900

# Two screens side by side, cut along a slanted line, so that one picture shows both.
BOTH = """<body style="margin:0;background:url(light.png)">
<img src="dark.png" alt="" style="clip-path:polygon(58% 0,100% 0,100% 100%,42% 100%)"></body>"""


# What the student's guide shows: exercise and misconception.
FEEDBACK = {
    "term": ("rnn-step", "W_hh is not transposed"),
    "time": ("rnn-sequence", "the state is not carried"),
    "in-place": ("rnn-sequence", "h_0 is overwritten"),
}
PICTURED = ("rnn-step", "the recurrent term is missing")  # its code shows no more of the answer than the chapter does


def feedback():
    """Return {file's name: the feedback on a wrong answer, as an element of a page}."""
    shown = {}
    for name, (exercise_id, mistake) in FEEDBACK.items():
        exercise = exercises.find(exercise_id)
        html = verdict(exercise, exercise.misconceptions[mistake].implementation)._repr_html_()
        alike = f'role="group" aria-label="An example of feedback: {mistake}"'  # not an alert: nothing has happened
        shown[f"feedback-{name}.html"] = html.replace('role="alert"', alike) + "\n"
    return shown


SCROLL = "(one, margin) => { one.style.scrollMarginTop = `${margin}px`; one.scrollIntoView(); }"


def jupyterlab(browser, folder, path):
    """Take a picture of the check of a wrong answer in JupyterLab."""
    course, home = lab.begin_course(folder / "course", SLUG, ROOT), folder / "student"
    lab.begin_student(home, course)
    with lab.server(home, home, ROOT) as address, lab.Student(browser, address) as student:
        student.fetch(SLUG)
        student.open(SLUG, home / SLUG / f"{SLUG}.ipynb")
        student.page.keyboard.press("Control+b")  # the list of files takes room
        student.run("opening-2")
        student.check("rnn-step", lab.mistaken(course, SLUG, *PICTURED))
        student.page.keyboard.press("ArrowUp")
        student.page.set_viewport_size({"width": 860, "height": 860})
        student.rendered("exercise-the-step-1").locator("h3").evaluate(SCROLL, 16)
        student.page.screenshot(path=path)


def formgrader(browser, folder, path):
    """Take a picture of the same answer, graded, in formgrader."""
    course, home = Course(folder / "course"), folder / "instructor"
    home.mkdir()
    lab.hand_in(folder / "ada", course, SLUG, {"rnn-step": lab.mistaken(course, SLUG, *PICTURED)}, ROOT)
    with lab.server(course.root, home, ROOT) as address, lab.Instructor(browser, address, 1072, 885) as instructor:
        instructor.page.keyboard.press("Control+b")
        instructor.formgrader()
        instructor.press(SLUG, "collect")
        instructor.go("1")
        instructor.press("ada", "autograde")
        instructor.go("Manual Grading", SLUG, SLUG, "Submission #1")
        answer = instructor.frame.locator(".nbgrader_cell", has=instructor.frame.locator("#rnn-step-comment"))
        answer.evaluate(SCROLL, 55)  # formgrader has a bar at the top
        instructor.page.locator("#formgrader-iframe").screenshot(path=path)


def pack(path):
    """Write a picture again with fewer colours, in less room."""
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


@click.command(help=__doc__)
def main():
    """Write PICTURE and the feedback."""
    for name, html in feedback().items():
        (PICTURE.parent / name).write_text(html, "utf-8")
    if not PAGE.is_file():
        raise click.ClickException(f"{PAGE.relative_to(ROOT)} is missing: run `make book` first")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for mode in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=mode)
            page.goto(PAGE.as_uri())
            page.evaluate("MathJax.startup.promise")
            page.locator("figure").nth(1).evaluate("e => scrollTo(0, e.getBoundingClientRect().top - 200)")
            rest(page, 300)  # the sidebar marks the section that is in view
            page.screenshot(path=Path(folder, f"{mode}.png"))
        both = Path(folder, "both.html")
        both.write_text(BOTH, "utf-8")
        page.goto(both.as_uri())
        page.screenshot(path=PICTURE)
        for take in (jupyterlab, formgrader):
            path = PICTURE.with_name(f"{take.__name__}.png")
            take(browser, Path(folder), path)
            pack(path)
        browser.close()
    click.echo(f"wrote the pictures in {PICTURE.parent.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
