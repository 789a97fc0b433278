"""Previews of what a link leads to: by pointer and by keyboard, from files alone."""

import json
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
import yaml
from bs4 import BeautifulSoup
from website import barriers, rest

from publish import manuscript, plain, previews, rules

ROOT = Path(__file__).resolve().parent.parent
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
PAGES = [TOC["root"], *(entry["file"] for part in TOC["parts"] for entry in part["chapters"])]
CHAPTER = "chapters/01_forward"
needs_manuscript = pytest.mark.skipif(
    not manuscript.slugs(), reason="this is the student edition: its pages show the notebooks"
)

# kind: (a link of chapter 1, what its preview shows, whether that holds mathematics)
LINKS = {
    "equation": ("a[href='#equation-eq-step']", r"^\(1\.2\) .*tanh", True),
    "figure": ("a[href='#fig-states']", r"Figure 1\.2 The states of 16 hidden units", False),
    "term": ("a[href$='#term-spectral-radius']", r"^spectral radius .*, the largest magnitude", True),
    "citation": ("a[href*='bibliography.html#']", r"^Shaojie Bai, J\. Zico Kolter", False),
    "section": ("a[href='#why-order-matters']", r"^1\.1\. Why order matters Start with a network", False),
}


INSIDE = """tip => {
    const box = tip.getBoundingClientRect();
    return box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight;
}"""


@pytest.fixture
def chapter(visit):
    """A function that opens chapter 1."""
    return lambda *arguments, **options: visit(CHAPTER, *arguments, **options)


def link_of(page, kind):
    return page.locator(f"article {LINKS[kind][0]}:not(.headerlink)").first


def tip_of(page):
    return page.get_by_role("tooltip")


def words(tip):
    return " ".join(tip.inner_text().split())


def focus(page, link):
    """Give a link the focus as the Tab key does."""
    link.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")


REACH = {"pointer": lambda page, link: link.hover(), "keyboard": focus}


@needs_manuscript
@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("reach", REACH)
def test_a_link_shows_what_it_leads_to_until_escape(chapter, kind, reach):
    _, shown, mathematics = LINKS[kind]
    seen = chapter(formulas=mathematics)
    page, link = seen.page, link_of(seen.page, kind)
    assert not tip_of(page).is_visible()
    REACH[reach](page, link)
    tip = tip_of(page)
    tip.wait_for()
    if mathematics:
        tip.locator("mjx-container").first.wait_for()
    assert re.search(shown, words(tip))
    assert tip.locator("svg[role=img]").count() == (kind == "figure")
    assert link.get_attribute("aria-describedby") == tip.get_attribute("id")
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids)), "an id stands twice on the page"
    page.wait_for_function(INSIDE, arg=tip.element_handle())  # once the page has scrolled to the link
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert link.get_attribute("aria-describedby") is None
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
    assert seen.errors == []


@needs_manuscript
def test_it_stays_under_the_pointer_and_goes_when_the_pointer_leaves(chapter):
    page = chapter().page
    link = link_of(page, "term")
    link.hover()
    tip_of(page).wait_for()
    box = tip_of(page).bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20, steps=5)
    rest(page, 600)
    assert tip_of(page).is_visible()
    page.mouse.move(5, 5)
    tip_of(page).wait_for(state="hidden")


@needs_manuscript
def test_after_escape_nothing_opens_until_the_pointer_moves(chapter):
    page = chapter().page
    link = link_of(page, "term")
    link.scroll_into_view_if_needed()
    box = link.bounding_box()
    at = {"clientX": round(box["x"]) + 3, "clientY": round(box["y"] + box["height"] / 2)}
    page.mouse.move(*at.values())
    tip_of(page).wait_for()
    page.keyboard.press("Escape")
    for moved, opens in ((0, False), (1, True)):  # what is under the preview, or comes by a scroll, is entered, too
        there = at | {"clientX": at["clientX"] + moved, "pointerType": "mouse"}
        link_of(page, "equation").dispatch_event("pointerenter", there)
        rest(page, 600)
        assert tip_of(page).is_visible() == opens


@needs_manuscript
def test_it_follows_the_focus_and_goes_with_it(chapter):
    page = chapter().page
    focus(page, link_of(page, "term"))
    tip_of(page).wait_for()
    page.keyboard.press("Tab")
    rest(page, 600)
    assert not (tip_of(page).is_visible() and words(tip_of(page)).startswith("spectral radius"))


@needs_manuscript
def test_a_finger_opens_no_preview_and_a_tap_follows_the_link(chapter):
    page = chapter("light", 390, has_touch=True).page
    for kind, opens in (("touch", False), ("mouse", True)):  # the finger may have come to scroll
        link_of(page, "equation").dispatch_event("pointerenter", {"pointerType": kind})
        rest(page, 600)
        assert tip_of(page).is_visible() == opens
    page.keyboard.press("Escape")
    link_of(page, "equation").tap()
    rest(page, 600)
    assert not tip_of(page).is_visible()
    assert page.evaluate("location.hash") == "#equation-eq-step"
    link_of(page, "term").tap()
    page.wait_for_url("**/glossary.html#term-spectral-radius")


@needs_manuscript
@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_axe_finds_no_barrier_in_an_open_preview(chapter, mode, width):
    seen = chapter(mode, width, formulas=mode == "light")
    contrast = (ROOT / "tests" / "contrast.js").read_text("utf-8")
    for kind in ("equation", "figure", "term"):
        focus(seen.page, link_of(seen.page, kind))
        tip_of(seen.page).wait_for()
        ratio, text = seen.page.evaluate(contrast, "#preview")
        assert ratio >= 4.5, f"{text!r} has a contrast of {ratio:.2f}"
        seen.page.wait_for_function(INSIDE, arg=tip_of(seen.page).element_handle())
    assert barriers(seen.page, "#preview") == []
    if (mode, width) == ("light", 1280):
        assert barriers(seen.page, without=["color-contrast"]) == []


def test_a_link_to_a_page_shows_how_the_page_begins(visit):
    page = visit("index").page
    page.locator("article a.reference[href$='chapters/01_forward.html']:not(.sd-stretched-link)").first.hover()
    tip_of(page).wait_for()
    text = words(tip_of(page))
    assert text.startswith("1. Sequences and state") and "How can a network of fixed size" in text


@pytest.mark.parametrize("name", PAGES)
def test_every_link_between_our_pages_has_something_to_show(book, name):
    own = book / f"{name}.html"
    links = BeautifulSoup(own.read_text("utf-8"), "html.parser").select("article a.reference.internal:not(.headerlink)")
    lacking = []
    for address in (urljoin(own.as_uri(), link["href"]) for link in links):
        page, _, anchor = address.partition("#")
        other = page.removeprefix(book.as_uri() + "/").removesuffix(".html")
        if other == name or other not in PAGES:
            continue
        text = (book / "_previews" / f"{other}.js").read_text("utf-8")
        if not json.loads(text.split(" = ", 1)[1].removesuffix(";\n")).get(anchor):
            lacking.append(address)
    assert lacking == []


def test_an_excerpt_is_looked_at_only():
    body = """<section id="s"><h2>Title<a class="headerlink" href="#s">#</a></h2><p>First <a href="x">link</a>.</p>
        <p>Second.</p><dl class="glossary"><dt id="a">a</dt><dt id="b">b</dt><dd><p id="p">Both.</p></dd></dl>
        <div class="math" id="e">\\[x\\]<script>alert(1)</script></div></section>"""
    found = previews.excerpts(body)
    assert found["s"] == found[""] == '<div class="preview-h2">Title</div><div class="preview-p">First link.</div>'
    assert found["b"] == '<div class="preview-dt">b</div><div class="preview-dd"><p>Both.</p></div>'
    assert found["a"].endswith(found["b"].removeprefix('<div class="preview-dt">b</div>'))
    assert found["e"] == '<div class="preview-div">\\[x\\]</div>'


# Numbers and anchors

SHOWN = "a => a.checkVisibility({opacityProperty: true, visibilityProperty: true})"


@needs_manuscript
def test_equations_and_figures_have_numbers_and_an_anchor_that_shows_on_focus(chapter):
    page = chapter().page
    for kind, number in (("div.math[id]", ".eqno"), ("figure[id]", ".caption-number")):
        for target in page.locator(kind).all():
            assert re.search(r"1\.\d", target.locator(number).inner_text())
            anchor = target.locator("a.headerlink")
            assert anchor.get_attribute("href") == f"#{target.get_attribute('id')}"
            assert not anchor.evaluate(SHOWN)
            target.hover()
            page.wait_for_function(SHOWN, arg=anchor.element_handle())
            page.mouse.move(0, 0)
            page.wait_for_function(f"a => !({SHOWN})(a)", arg=anchor.element_handle())
            focus(page, anchor)
            page.wait_for_function(SHOWN, arg=anchor.element_handle())


# What an author may write


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A {term}`country`.", "appendices/glossary.md has no term 'country'"),
        ("A {term}`net <country>`.", "appendices/glossary.md has no term 'country'"),
        ("See {ref}`fig-a`.", "write a reference to a figure as {ref}`its text <its name>`"),
        ("See {ref}`it <fig-b>`.", "no figure of this chapter has the name 'fig-b'"),
        ("See [it](#the-sep).", "no heading of this chapter has the anchor #the-sep"),
    ],
)
def test_a_reference_to_nothing_is_a_fault(text, reason):
    known = plain.Known(entries={}, terms={"state"}, equations=[], figures={"fig-a"}, sections={"the-step"})
    good = "A {term}`State`, {term}`states <state>`, {ref}`it <fig-a>`, [it](#the-step)."
    assert list(plain.problems(good, known)) == []
    ((found, place),) = plain.problems(f"One line.\n{text}", known)
    assert found == reason
    assert place > len("One line.")


def test_references_are_plain_words_in_a_notebook():
    (text,) = plain.markdown(["A {term}`state`, {term}`two states <state>`, the {ref}`heat map <fig-a>`."], chapter=1)
    assert text == "A *state*, *two states*, the heat map."


def test_the_glossary_is_read_and_its_terms_are_found():
    terms = plain.glossary()
    assert {"state", "hidden state", "spectral radius", "gru", "gated recurrent unit", "encoder–decoder"} <= terms
    assert len(terms) >= 50
    assert not any(term.startswith((":", "$")) for term in terms)


def test_anchors_are_those_of_the_page():
    assert rules._anchors(["## A state, traced by hand\n\n### The `step`"]) == {"a-state-traced-by-hand", "the-step"}
