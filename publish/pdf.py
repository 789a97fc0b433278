"""Prints the book's single page as a tagged PDF, `_build/recurrence.pdf`: `python -m publish.pdf`, from `make pdf`.

Chromium prints it twice: on which page a chapter begins is known when it has been printed once.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import pikepdf
import yaml
from playwright.sync_api import Error, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "_build" / "singlehtml" / "index.html"
OUT = ROOT / "_build" / "recurrence.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 620  # CSS pixels between the margins of the paper, as templates/onepage.css has them

# Paper is light, and nothing unfolds on it. A figure is a group: the drawing in it has the alternative text.
PREPARE = """() => {
    document.documentElement.dataset.theme = "light";
    for (const part of document.querySelectorAll("details")) part.open = true;
    for (const part of document.querySelectorAll("figure")) part.role = "group";
    return window.MathJax?.startup?.promise.then(() => {});
}"""
NUMBER = """pages => {
    for (const link of document.querySelectorAll(".book-contents a"))
        link.dataset.page = pages[decodeURIComponent(link.hash.slice(1))] ?? "";
}"""
# The text of every heading on the page, in order, without the sign of its link.
HEADINGS = """() => [...document.querySelectorAll(".bd-article :is(h1, h2, h3, h4, h5, h6)")]
    .filter(heading => heading.getClientRects().length)
    .map(heading => heading.innerText.replace(/\\s+/g, " ").replace(/\\s*#?\\s*$/, ""))"""
# What stands out to the right of the text, or has something inside that does; the smallest such parts. A formula's
# second form, for who does not see it, lies unseen on the first and is not to be measured.
WIDE = """() => {
    const unseen = document.head.appendChild(document.createElement("style"));
    unseen.textContent = "mjx-assistive-mml { display: none !important; }";
    const edge = document.querySelector(".bd-article").getBoundingClientRect().right + 1;
    const found = [...document.querySelectorAll(".bd-article :not(mjx-container *, svg *)")]
        .filter(part => part.getBoundingClientRect().right > edge
            || (part.clientWidth && part.scrollWidth > part.clientWidth + 1))
        .filter((part, _, all) => !all.some(other => other !== part && part.contains(other)))
        .map(part => `${part.closest("[id]")?.id}: ${part.textContent.trim().split("\\n")[0].slice(0, 80)}`);
    unseen.remove();
    return found;
}"""


class NoBrowser(Exception):
    """There is nothing to print with; the text says what to do."""


def main():
    """Print the book; return the exit code."""
    if not PAGE.is_file():
        print(f"There is no {PAGE.relative_to(ROOT)}: `make pdf` makes it first.", file=sys.stderr)
        return 2
    try:
        wide = write(PAGE, OUT)
    except NoBrowser as problem:
        print(problem, file=sys.stderr)
        return 2
    for line in wide:  # Chromium would print every page smaller to make room for it
        print(f"wider than the paper, at {line}", file=sys.stderr)
    print(f"written: {OUT.relative_to(ROOT)}")
    return 1 if wide else 0


def write(source, out):
    """Print a page of HTML to a PDF; return what of it is wider than the paper."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        try:
            browser = playwright.chromium.launch(executable_path=program)
        except Error as error:
            advice = "sudo apt-get install chromium, or: python -m playwright install chromium"
            raise NoBrowser(f"There is no Chromium that could print the book: {advice}\n{error.message}") from None
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.route("**/*.js*", lambda route: route.continue_() if "/mathjax/" in route.request.url else route.abort())
        page.emulate_media(media="print", color_scheme="light")
        page.goto(source.as_uri(), timeout=120_000)
        page.evaluate(PREPARE)
        wide = page.evaluate(WIDE)
        draft, known = Path(folder) / "draft.pdf", None
        while (found := printed(page, draft)) != known:  # until the contents name the pages that they stand before
            page.evaluate(NUMBER, known := found)
        headings = page.evaluate(HEADINGS)
        browser.close()
        _finish(draft, out, headings)
    return wide


def printed(page, path):
    """Print an open page; return {id: number of the page} of all that a link leads to."""
    page.pdf(path=path, tagged=True, outline=True, prefer_css_page_size=True, print_background=True)
    with pikepdf.open(path) as pdf:
        numbers = {sheet.objgen: sheet.index + 1 for sheet in pdf.pages}
        targets = pdf.Root.get("/Dests", {})
        return {name.lstrip("/"): numbers[targets[name][0].objgen] for name in targets.keys()}  # noqa: SIM118


def _finish(draft, out, headings):
    """Write what Chromium printed a third as large, with title, author and language, and its bookmarks open.

    Chromium 156 doubles the text of a bookmark whose heading stands first on its page, so the page's own are put there.
    """
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    with pikepdf.open(draft) as pdf:
        with pdf.open_metadata() as about:
            about["dc:title"], about["dc:creator"] = config["title"], [config["author"]]
        pdf.docinfo["/Author"] = config["author"]
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        with pdf.open_outline() as outline:
            bookmarks = list(_bookmarks(outline.root))
            if len(bookmarks) == len(headings):  # a browser that leaves some out keeps the titles that it gave
                for bookmark, heading in zip(bookmarks, headings, strict=True):
                    bookmark.title = heading
        pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def _bookmarks(items):
    """Yield bookmarks in their order, those inside others too."""
    for item in items:
        yield item
        yield from _bookmarks(item.children)


if __name__ == "__main__":
    sys.exit(main())
