"""The HTML book for tests: built with the command of `make book`, opened from its files in a real browser."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe

MATHEMATICS = "tex-chtml.js"  # MathJax, which takes more than half of the time that a chapter needs to open
LAYOUT = ("scrollable-region-focusable", "target-size")  # axe's rules that a narrow screen can break by itself
SLOW = ("color-contrast", "link-in-text-block", "target-size")  # a second each on a long page, the others two in all


@dataclass
class Visit:
    """A page as it stands in the browser, with what happened while it was opened."""

    page: object
    requests: list
    errors: list


def barriers(page, context=None, without=(), only=(), hide=""):
    """Return what axe-core finds in a page, or a part of it, as "rule: element".

    Its preloading of stylesheets is no use on files; and where a rule holds, every element need not be described.
    It can go `without` some rules or by `only` some, and what matches `hide` can be taken out of sight meanwhile.
    """
    options = {"preload": False, "resultTypes": ["violations"], "rules": {rule: {"enabled": False} for rule in without}}
    if only:
        options["runOnly"] = list(only)
    hidden = hide and page.add_style_tag(content=f"{hide} {{ display: none !important; }}")
    found = Axe().run(page, context=context, options=options).response
    if hidden:
        hidden.evaluate("style => style.remove()")
    assert found["passes"], "there is something to look at"
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found["violations"] for node in rule["nodes"]]


def rest(page, milliseconds):
    """Wait by the page's own clock: what the page has set for sooner has happened then, however busy the machine is."""
    page.evaluate("wait => new Promise(done => requestAnimationFrame(() => setTimeout(done, wait)))", milliseconds)


def reload(page):
    """Load a page again, and again until it finds what it had stored of its self-checks: at most half a minute.

    Chromium writes what is stored from another process: on a busy machine a page loaded at once can come before it.
    """
    mine = "JSON.stringify(Object.entries(localStorage).filter(([key]) => key.startsWith('recurrence/')).sort())"
    stored, end = page.evaluate(mine), time.monotonic() + 30
    page.reload()
    while page.evaluate(mine) != stored and time.monotonic() < end:
        rest(page, 500)
        page.reload()


def build(root, inside=(), builder="html"):
    """Build the book of a project with its own modules, inside of another command; return what was printed."""
    command = [*inside, Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n", "--keep-going"]
    command += ["--builder", builder]
    done = subprocess.run(
        command,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, printed
    return printed


class Visitor:
    """Opens pages of the book from their files."""

    def __init__(self, book, browser):
        self.book, self.browser, self.contexts = book, browser, []

    def __call__(self, name, mode="light", width=1280, formulas=False, without=(), **options):
        """Return the `Visit` of a page, its formulas typeset if wanted, `without` the scripts that are named.

        Other options are those of a browser context.
        """
        context = self.browser.new_context(viewport={"width": width, "height": 900}, color_scheme=mode, **options)
        self.contexts.append(context)
        for script in (*without, *([] if formulas else [MATHEMATICS])):
            context.route(f"**/{script}*", lambda route: route.fulfill(body=""))
        seen = Visit(context.new_page(), [], [])
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
        self.open(seen.page, name)
        return seen

    def open(self, page, name):
        """Open a page of the book, with its mathematics."""
        page.goto((self.book / f"{name}.html").as_uri())
        page.evaluate("window.MathJax?.startup?.promise")

    def close(self):
        """Close everything that was opened."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
