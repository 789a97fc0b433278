"""`make pdf`: the whole book as one tagged PDF."""

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pikepdf
import pypdfium2
import pytest
import yaml
from bs4 import BeautifulSoup
from website import build

from publish import pdf

ROOT = Path(__file__).resolve().parent.parent
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
DOCUMENTS = [entry["file"] for part in TOC["parts"] for entry in part["chapters"]]


@pytest.fixture(scope="module")
def page(book):
    """The book's single page."""
    build(ROOT, builder="singlehtml")
    return BeautifulSoup(pdf.PAGE.read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def printed(page, needs):
    """The PDF, as `make pdf` prints it, and what the command said."""
    needs("chromium")
    done = subprocess.run([sys.executable, "-m", "publish.pdf"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "written: _build/recurrence.pdf\n"
    return pdf.OUT


@pytest.fixture(scope="module")
def texts(printed):
    """The text of every sheet."""
    with pypdfium2.PdfDocument(printed) as file:
        return [sheet.get_textpage().get_text_range() for sheet in file]


def headings(page):
    """Return [(document, title, titles of its sections)] of the single page."""
    chapters = page.select("section.chapter")
    assert len(chapters) == len(DOCUMENTS)
    found = []
    for name, chapter in zip(DOCUMENTS, chapters, strict=True):
        title, *sections = (heading(part) for part in [chapter, *chapter.find_all("section", recursive=False)])
        found.append((name, title, sections))
    return found


def heading(section):
    """Return the text of a section's heading."""
    title = section.find(["h2", "h3"], recursive=False)
    return title.get_text().removesuffix("#")


def squeezed(text):
    """Return a text without its spaces, of which a PDF has its own."""
    return re.sub(r"\s", "", text)


def test_every_id_is_there_once_and_every_link_inside_leads_to_one(page):
    ids = Counter(element["id"] for element in page.select("[id]"))
    assert [name for name, count in ids.items() if count > 1] == []
    links = {link["href"] for link in page.select(".bd-article a[href]")}
    assert [link for link in links if not re.match(r"#|https?://", link)] == []
    inside = {link[1:] for link in links if link.startswith("#")}
    assert len(inside) > 500
    assert inside - set(ids) == set()


def test_a_link_leads_to_its_own_documents_place_of_that_name(page):
    """Each chapter has a section "What you can do now", which Sphinx's own builder gives one id for all."""
    found = [section["id"] for section in page.select("section[id$='--what-you-can-do-now']")]
    chapters = [name for name in DOCUMENTS if name.startswith("chapters/")]
    assert found == [f"{name.replace('/', '-')}--what-you-can-do-now" for name in chapters]
    listed = [link["href"][1:] for link in page.select(".book-contents a[href$='--what-you-can-do-now']")]
    assert listed == found


def test_it_is_tagged_and_has_title_author_and_language(printed):
    with pikepdf.open(printed) as file:
        assert file.Root.MarkInfo.Marked
        assert file.Root.Lang == "en"
        assert file.Root.PageMode == "/UseOutlines"
        assert (file.docinfo["/Title"], file.docinfo["/Author"]) == ("Recurrence", "The Recurrence authors")
        kinds, silent = Counter(), []
        for element in elements(file.Root.StructTreeRoot):
            kinds[str(element.S)] += 1
            if element.S == "/Figure" and not str(element.get("/Alt", "")).strip():
                silent.append(element)
    assert {"/H1", "/H2", "/H3", "/P", "/L", "/Table", "/TH", "/Figure", "/Link"} <= set(kinds)
    assert silent == []


def elements(root):
    """Yield the elements of a PDF's structure."""
    waiting = [root]
    while waiting:
        children = waiting.pop().get("/K", [])
        for child in children if isinstance(children, pikepdf.Array) else [children]:
            if isinstance(child, pikepdf.Dictionary) and "/S" in child:
                yield child
                waiting.append(child)


def test_the_bookmarks_are_all_chapters_and_their_sections(page, printed):
    with pikepdf.open(printed) as file, file.open_outline() as outline:
        (book,) = outline.root
        first, *chapters = book.children
        assert (book.title, first.title) == ("Recurrence", "Contents")
        found = [(squeezed(item.title), [squeezed(part.title) for part in item.children]) for item in chapters]
    assert found == [(squeezed(title), list(map(squeezed, parts))) for _, title, parts in headings(page)]


def test_the_contents_name_the_page_on_which_a_chapter_or_a_section_begins(page, texts):
    chapters = headings(page)
    running = chapters[0][1].removeprefix("1. ")  # stands above every page of the first chapter
    contents = "\n".join(itertools.takewhile(lambda text: running not in text.splitlines()[:2], texts[1:]))
    place = 0
    for _, title, sections in chapters:
        for name in map(squeezed, (title, *sections)):
            entry = re.compile(r"\s*".join(map(re.escape, name)) + r" (\d+)(?!\S)").search(contents, place)
            place = entry.end()
            assert name in squeezed(texts[int(entry[1]) - 1]), name


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("chapters/")])
def test_every_line_of_code_stands_there_whole(name, texts):
    text = squeezed("".join(texts))
    for cell in nbformat.read(ROOT / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            for line in cell.source.splitlines():
                assert squeezed(line) in text, line


def test_every_link_is_there_and_leads_somewhere(page, printed):
    with pikepdf.open(printed) as file:
        targets, inside, outside = {name[1:] for name in dict(file.Root.Dests)}, [], []
        for sheet in file.pages:
            for note in sheet.get("/Annots", []):
                if "/Dest" in note:
                    inside.append(str(note.Dest)[1:])
                else:
                    outside.append(str(note.A.URI))
    links = page.select(".bd-article a[href^='#']:not(.headerlink)")
    assert set(inside) == {link["href"][1:] for link in links if not link.find_parent(id=["three-doors", "the-way"])}
    assert set(inside) <= targets
    assert len(outside) > 50
    assert [address for address in outside if not address.startswith("http")] == []


def test_what_is_wider_than_the_paper_is_named(tmp_path, needs):
    needs("chromium")
    source = tmp_path / "page.html"
    wide = f'<section id="here"><pre style="white-space: pre">{"x" * 200}</pre><p>narrow</p></section>'
    source.write_text(
        f'<html lang="en"><body style="margin: 0"><article class="bd-article">{wide}</article></body></html>'
    )
    code = "import sys; from pathlib import Path; from publish import pdf; print(*pdf.write(*map(Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, source, tmp_path / "page.pdf"]  # Playwright cannot be started twice
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"here: {'x' * 80}\n"
    assert (tmp_path / "page.pdf").is_file()


def test_without_the_page_or_a_browser_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pdf, "PAGE", ROOT / "_build" / "nowhere" / "index.html")
    assert pdf.main() == 2
    assert capsys.readouterr().err == "There is no _build/nowhere/index.html: `make pdf` makes it first.\n"
    (tmp_path / "index.html").write_text("<p>book</p>")
    code = f"from pathlib import Path; from publish import pdf; pdf.PAGE = Path({str(tmp_path)!r}, 'index.html'); "
    command = [sys.executable, "-c", f"{code}raise SystemExit(pdf.main())"]
    nothing = os.environ | {"PATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=nothing, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("There is no Chromium that could print the book: sudo apt-get install chromium")
    assert "Traceback" not in done.stderr
