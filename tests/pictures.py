"""Takes the README's picture of the book, light beside dark, and the student guide's feedback: `make pictures`."""

import shutil
import tempfile
from pathlib import Path

import click
from playwright.sync_api import sync_playwright

from autograde import exercises
from autograde.check import verdict

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "_build" / "html" / "chapters" / "01_forward.html"
PICTURE = ROOT / "_static" / "pictures" / "book.png"
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


def feedback():
    """Return {file's name: the feedback on a wrong answer, as an element of a page}."""
    shown = {}
    for name, (exercise_id, mistake) in FEEDBACK.items():
        exercise = exercises.find(exercise_id)
        html = verdict(exercise, exercise.misconceptions[mistake].implementation)._repr_html_()
        alike = f'role="group" aria-label="An example of feedback: {mistake}"'  # not an alert: nothing has happened
        shown[f"feedback-{name}.html"] = html.replace('role="alert"', alike) + "\n"
    return shown


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
            page.locator("figure").nth(1).evaluate("e => scrollTo(0, e.getBoundingClientRect().top - 560)")
            page.wait_for_timeout(300)  # the sidebar marks the section that is in view
            page.screenshot(path=Path(folder, f"{mode}.png"))
        both = Path(folder, "both.html")
        both.write_text(BOTH, "utf-8")
        page.goto(both.as_uri())
        page.screenshot(path=PICTURE)
        browser.close()
    click.echo(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
