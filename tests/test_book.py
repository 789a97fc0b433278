"""The HTML book, built with the command of `make book` and opened from its files in a real browser."""

import gzip
import html
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import leaks
import nbformat
import pytest
import yaml
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from website import LAYOUT, SLOW, Visitor, barriers, build, rest

import rnnplot
from publish import execution, figures, reader

ROOT = Path(__file__).resolve().parent.parent
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
CHAPTERS = [entry["file"] for part in TOC["parts"] for entry in part["chapters"] if "chapters/" in entry["file"]]
OTHERS = [entry["file"] for part in TOC["parts"] for entry in part["chapters"] if entry["file"] not in CHAPTERS]
COMPUTED = [name for name in OTHERS if "execution_mode: force" in (ROOT / f"{name}.md").read_text("utf-8")]
WRITTEN = [*CHAPTERS, TOC["root"], *OTHERS]  # the chapters first: `every` goes by a page's place in the list
PAGES = [*WRITTEN, "search"]
SOLVED = [page for page in CHAPTERS if (ROOT / "solutions" / f"{Path(page).name}.md").is_file()]
ANSWERS = leaks.answers(ROOT)
CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")


def every(pages):
    """Run a test for each of these pages; three processes share the pages, and take all tests of a page together."""
    shares = [pytest.param(page, marks=pytest.mark.xdist_group(f"pages {1 + PAGES.index(page) % 3}")) for page in pages]
    return pytest.mark.parametrize("name", shares)


@pytest.fixture(scope="module")
def looked_at(book, browser):
    """A function that shows a page in a mode and at a width: opened but once for all the tests that change nothing."""
    visitor, opened, seen = Visitor(book, browser), None, None

    def look(name, mode="light", width=1280):
        nonlocal opened, seen
        if opened != name:
            visitor.close()
            opened, seen = name, visitor(name, formulas=True, reduced_motion="reduce")
        seen.page.emulate_media(color_scheme=mode)
        seen.page.wait_for_function("mode => document.documentElement.dataset.theme === mode", arg=mode)
        if seen.page.viewport_size["width"] != width:
            seen.page.set_viewport_size({"width": width, "height": 900})
            rest(seen.page, 500)  # the theme waits for 300 before it sees anew what scrolls
        return seen

    yield look
    visitor.close()


@every(PAGES)
def test_a_page_opened_from_its_file_asks_the_network_for_nothing_and_logs_no_error(looked_at, name):
    seen = looked_at(name)
    assert seen.requests
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
    assert seen.errors == []


@every(PAGES)
def test_no_page_weighs_more_than_800_kib_with_its_mathematics(looked_at, name):
    files = {Path(unquote(urlsplit(url).path)) for url in looked_at(name).requests if url.startswith("file:")}
    packed = {".png", ".woff", ".woff2"}
    sizes = [path.read_bytes() if path.suffix in packed else gzip.compress(path.read_bytes()) for path in files]
    assert len(sizes) > 10
    assert sum(map(len, sizes)) <= 800 * 1024


@every(PAGES)
def test_axe_finds_no_barrier(looked_at, name):
    assert barriers(looked_at(name).page, without=SLOW) == []


@every([CHAPTERS[0], TOC["root"], OTHERS[0], "search"])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_axe_finds_no_faint_text_link_like_text_or_small_target_in_what_all_pages_have_in_common(looked_at, name, mode):
    code = ".cell .highlight"  # each token's contrast is measured below
    assert barriers(looked_at(name, mode).page, only=SLOW, hide=code) == []


@every([*CHAPTERS, *COMPUTED])
def test_mathematics_is_typeset_and_code_and_outputs_fit_their_boxes(looked_at, name):
    page = looked_at(name).page
    assert page.locator("mjx-container").count() == page.locator(".math").count() > 0
    # An answer's formulas are shown when it is chosen.
    empty = """formulas => formulas.filter(formula => !formula.closest(".selfcheck-answers"))
        .map(formula => formula.getBoundingClientRect()).filter(box => !box.width || !box.height).length"""
    assert page.locator("mjx-container").evaluate_all(empty) == 0
    wide = """blocks => blocks.filter(block => block.scrollWidth > block.clientWidth).map(block => block.innerText)"""
    assert page.locator(".cell_input pre, .cell_output pre").evaluate_all(wide) == []


@every(SOLVED)
def test_what_a_cell_prints_is_no_wider_than_its_code_may_be(name):
    """In a font of average width its box has room for 83 letters; not every reader has that font."""
    outputs = [output for cell in execution.executed(Path(name).name).cells for output in cell.get("outputs", ())]
    printed = [line for output in outputs if "text" in output for line in output.text.splitlines()]
    assert [line for line in printed if len(line) > 82] == []


@every(WRITTEN)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_code_and_drawings_stand_out_from_the_page(looked_at, name, mode):
    """What the pages do not have in common; axe would take seconds for a chapter, this takes a fraction of one."""
    contrast, text = looked_at(name, mode).page.evaluate(CONTRAST, "article")
    assert contrast >= 4.5, f"{text!r} has a contrast of {contrast:.2f}"


@every([*CHAPTERS, *COMPUTED])
def test_every_drawing_says_what_it_shows(looked_at, name):
    page = looked_at(name).page
    drawings = page.locator("article svg[role=img], article img")
    names = drawings.evaluate_all("all => all.map(one => one.ariaLabel || one.alt || '')")
    assert all(name.strip() for name in names), names
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids)), "an id stands twice on the page"


@every(SOLVED)
def test_the_page_shows_stubs_and_below_them_what_a_right_answer_gives(looked_at, name):
    page = looked_at(name).page
    solved = execution.executed(Path(name).name).cells
    checks = [cell for cell in solved if cell.id.endswith("-check")]
    shown = page.locator(".cell.tag_check .cell_output").all_inner_texts()
    assert len(shown) == len(checks) > 0
    for cell, text in zip(checks, shown, strict=True):
        feedback = html.unescape(re.sub(r"<[^>]*>", " ", cell.outputs[0].data["text/html"]))
        assert feedback.split() == text.split()
    for stub in page.locator(".cell.tag_exercise .cell_input").all_inner_texts():
        assert "NotImplementedError" in stub
    drawn = [
        output for cell in solved for output in cell.get("outputs", []) if "image/svg+xml" in output.get("data", {})
    ]
    assert page.locator("figure svg[role=img]").count() == len(drawn) > 0
    assert page.locator("figure figcaption .caption-number").count() == len(drawn)


@every([*SOLVED, *COMPUTED])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_outputs_take_the_page_s_ink_and_paper(looked_at, name, mode):
    page = looked_at(name, mode).page
    style = "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
    ink, paper = page.locator("body").evaluate(style)
    for output in page.locator(".cell_output .text_html").all():
        assert output.evaluate(style) == [ink, "rgba(0, 0, 0, 0)"]
    for drawing in page.locator("figure svg[role=img]").all():
        used = set(drawing.evaluate("d => [...d.querySelectorAll('*')].map(e => getComputedStyle(e).fill)"))
        assert {ink, paper} <= used
        assert "rgb(31, 35, 40)" not in used, "rnnplot.INK is left in the drawing"


def test_a_page_in_dark_mode_is_printed_in_light_colours(visit, tmp_path):
    page = visit(CHAPTERS[0], "dark").page
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    dark, light = page.evaluate(colours), visit(CHAPTERS[0], "light").page.evaluate(colours)
    assert dark != light
    page.evaluate(f"addEventListener('beforeprint', () => window.onPaper = {colours})")
    page.pdf(path=tmp_path / "chapter.pdf")
    assert page.evaluate("onPaper") == light
    assert page.evaluate(colours) == dark


@every(PAGES)
def test_exactly_the_pages_with_movable_figures_load_their_script(looked_at, name):
    seen = looked_at(name)
    movable = seen.page.locator(".movable").count()
    assert seen.page.locator("svg.movable-drawing").count() == movable
    loaded = {Path(urlsplit(url).path).name for url in seen.requests} & {"movable.js"}
    assert loaded == ({"movable.js"} if movable else set())


@every(SOLVED)
def test_a_movable_figure_follows_the_theme_s_switch_and_stays_legible(looked_at, name):
    page = looked_at(name).page
    texts = "all => [...new Set(all.map(e => getComputedStyle(e).fill))]"
    inks = {}
    for _ in range(3):  # light, dark, as the system has it, which is how the page began
        page.locator(".theme-switch-button").first.click()
        mode = page.locator("html").get_attribute("data-theme")
        inks[mode] = page.locator("svg.movable-drawing text").evaluate_all(texts)
        assert inks[mode] == [page.locator("body").evaluate("e => getComputedStyle(e).color")]
        contrast, text = page.evaluate(CONTRAST, ".movable")
        assert contrast >= 4.5, f"{text!r} has a contrast of {contrast:.2f} when {mode}"
    assert inks["light"] != inks["dark"]


@every(PAGES)
def test_no_page_scrolls_sideways_on_a_phone(looked_at, name):
    width, screen = looked_at(name, width=375).page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert width <= screen


@every(PAGES)
def test_axe_finds_no_barrier_on_a_phone(looked_at, name):
    assert barriers(looked_at(name, width=375).page, only=LAYOUT) == []


@every(SOLVED)
def test_movable_figures_have_their_height_before_their_script_runs(looked_at, visit, name):
    heights = "[...document.querySelectorAll('.movable')].map(e => e.getBoundingClientRect().height)"
    without = visit(name, width=375, without=["movable.js"]).page
    assert without.locator("svg.movable-drawing").count() == 0
    for width in (375, 1280):
        without.set_viewport_size({"width": width, "height": 900})
        after = looked_at(name, width=width).page.evaluate(heights)
        assert without.evaluate(heights) == pytest.approx(after, abs=1)


def test_ink_and_paper_are_the_ones_that_rnnplot_draws_with():
    assert (figures.INK, figures.PAPER) == (rnnplot.INK, rnnplot.PAPER)


def test_a_drawing_brings_nothing_that_acts_on_the_page():
    drawing = """<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><style>* {color: red}</style>
        <script>alert(2)</script><defs><path id="mark"/><g id="unused"/></defs><use href="#mark"/></svg>"""
    inlined = figures.inline(drawing, "fig-a", "a mark")
    assert "alert" not in inlined and "<style" not in inlined and "unused" not in inlined
    assert 'id="fig-a-mark"' in inlined and 'href="#fig-a-mark"' in inlined
    assert 'role="img"' in inlined and 'aria-label="a mark"' in inlined


@every(CHAPTERS)
def test_the_download_is_the_student_s_notebook(looked_at, book, root, name):
    link = looked_at(name).page.locator("a.btn-download-source-button")
    target = (book / f"{name}.html").parent / link.get_attribute("href")
    notebook = root / f"{name}.ipynb"
    assert target.read_bytes() == notebook.read_bytes()
    nbformat.validate(nbformat.read(target, as_version=4))


def test_every_page_has_a_summary_of_its_own_for_who_finds_it_or_is_sent_it(book):
    found = {}
    for name in WRITTEN:
        page = (book / f"{name}.html").read_text("utf-8")
        (text,) = re.findall(r'<meta name="description" content="([^"]*)"', page)
        found[name] = html.unescape(text)
        assert 30 <= len(found[name]) <= 160, f"{name}: {found[name]!r}"
        assert not re.search(r"[\\${}<>]", found[name]), f"{name}: {found[name]!r}"
    assert len(set(found.values())) == len(found)


def test_search_finds_a_chapter_without_a_server(visit):
    seen = visit("search")
    seen.page.locator("article input[name=q], main input[name=q]").first.fill("bucket")  # in no heading or term
    seen.page.keyboard.press("Enter")
    result = seen.page.locator("#search-results ul.search a").first
    result.wait_for()
    assert Path(result.get_attribute("href").split("?")[0].split("#")[0]).stem in {Path(name).name for name in CHAPTERS}
    assert seen.errors == []


@pytest.mark.parametrize("exercise", ANSWERS)
def test_no_answer_is_published(published, exercise):
    assert ANSWERS[exercise], "this answer has no line that would be noticed"
    assert leaks.leaks(ANSWERS[exercise], published) == []


@pytest.fixture(scope="session")
def published(book):
    """Return the text of every file of the book."""
    return leaks.published(book)


@pytest.mark.parametrize("form", ["highlighted", "in a notebook", "in prose"])
def test_a_planted_answer_is_found(book, tmp_path, form):
    line = 'total = {k: "<" for k in zip(first, second)}  # all of them'
    page = next(book.glob("chapters/*.html")).read_text("utf-8")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"x = 1\n{line}\ny = 2")])
    planted = {
        "highlighted": ("page.html", page + highlight(line, PythonLexer(), HtmlFormatter())),
        "in a notebook": ("page.ipynb", nbformat.writes(notebook)),
        "in prose": ("page.html", page + f"<p>As in <em>total</em>{html.escape(line[5:])}</p>"),
    }
    clean, leaky = tmp_path / "clean", tmp_path / "leaky"
    for folder, text in ((clean, page), (leaky, planted[form][1])):
        folder.mkdir()
        (folder / planted[form][0]).write_text(text, "utf-8")
    assert leaks.leaks([line], leaks.published(clean)) == []
    assert leaks.leaks([line], leaks.published(leaky)) == [f"{leaky / planted[form][0]}: {line}"]


def test_a_chapter_without_its_manuscript_shows_its_stubs_and_no_outputs(book):
    for name in set(CHAPTERS) - set(SOLVED):
        page = (book / f"{name}.html").read_text("utf-8")
        assert "NotImplementedError" in page
        assert "cell_output" not in page


@pytest.fixture
def copy(root, tmp_path):
    """Return a copy of the project that may be changed."""
    ignored = shutil.ignore_patterns("_build", "course", ".*", "__pycache__", "*.egg-info")
    return shutil.copytree(root, tmp_path / "copy", ignore=ignored)


@pytest.mark.skipif(not SOLVED, reason="this is the student edition: there are no outputs")
def test_a_page_is_read_again_exactly_when_its_ingredients_changed(book, root, copy, needs):
    shutil.copytree(root / "_build", copy / "_build")
    changing = ("solutions", "_static", "rnncore.py", "_build")
    # At another place all would be read: so these stand in the place of the project's own, for the build alone.
    mounts = [argument for name in changing for argument in ("--bind", copy / name, root / name)]
    inside = [needs("bwrap"), "--dev-bind", "/", "/", *mounts, "--"]

    def read_again():
        return set(re.findall(r"^reading sources\.\.\. \[ *\d+%\] (\S+)", build(root, inside), re.MULTILINE))

    assert read_again() == set()
    manuscript = next((copy / "solutions").glob("*.md"))
    another = re.sub(
        r"^( *)### END", r"\1# another answer\n\1### END", manuscript.read_text("utf-8"), count=1, flags=re.M
    )
    manuscript.write_text(another, "utf-8")
    keep_outputs(copy, manuscript.stem)
    with (copy / "_static" / "recurrence.css").open("a") as styles:
        styles.write("/* touched */\n")
    assert read_again() == {f"chapters/{manuscript.stem}", TOC["root"]}  # with the front page styles are copied
    assert (copy / "_build" / "html" / "_static" / "recurrence.css").read_text().endswith("/* touched */\n")
    with (copy / "rnncore.py").open("a") as core:
        core.write("\n# touched\n")
    for chapter in SOLVED:
        keep_outputs(copy, Path(chapter).name)
    assert read_again() == {*SOLVED, *COMPUTED, "rnncore"}


def keep_outputs(copy, slug):
    """Let a chapter's outputs count as those of what stands there now: a comment changes none of them."""
    (kept,) = (copy / "_build" / "executed").glob(f"{slug}.*.ipynb")
    kept.rename(kept.with_name(f"{slug}.{execution.digest(slug, copy)}.ipynb"))


def test_a_page_is_refused_when_its_manuscript_gives_another_notebook(copy):
    if not SOLVED:
        pytest.skip("this is the student edition: there are no manuscripts")
    notebook = copy / f"{SOLVED[0]}.ipynb"
    page = nbformat.read(notebook, as_version=4)
    page.cells[2].source += "\n# edited by hand"
    with pytest.raises(reader.StaleChapter, match="python -m publish"):
        reader.read(nbformat.writes(page), root=copy)
