"""The interview questions of all chapters on one page."""

import os

import nbformat
import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from publish import questions

CONF = """
extensions = ["myst_nb", "sphinx_design", "sphinx_external_toc", "publish.questions"]
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
"""
QUESTION = "```{{dropdown}} {}\nAn answer. See [the other](01_first.ipynb).\n```"


def chapter(path, title, *asked, end="## Further reading\n\n- A book."):
    """Write a chapter's notebook with these questions."""
    section = ["## Interview questions", *(QUESTION.format(one) for one in asked)] if asked else []
    sources = [f"# {title}\n\nIt begins.", "\n\n".join(["## What you can do now\n\n- All.", *section, end])]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


@pytest.fixture
def project(tmp_path):
    """A small book: chapters whose order in the table of contents is not that of their names, and the page."""
    folder = tmp_path / "book"
    (folder / "chapters").mkdir(parents=True)
    (folder / "conf.py").write_text(CONF)
    files = "".join(f"  - file: {name}\n" for name in ("chapters/02_second", "chapters/01_first", "page"))
    (folder / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters:\n{files}")
    (folder / "index.md").write_text("# The book\n")
    (folder / "page.md").write_text("# Questions\n\n```{questions}\n```\n")
    chapter(folder / "chapters" / "01_first.ipynb", "`nn.RNN`, first", "Why one?", "Why two?")
    chapter(folder / "chapters" / "02_second.ipynb", "Second", "Why three?")
    return folder


def build(project):
    """Build the project as far as it is outdated; return the names of the pages that were read."""
    read, built = [], project.parent
    with docutils_namespace():
        app = Sphinx(project, project, built / "html", built / "trees", "html", status=None, warningiserror=True)
        app.connect("source-read", lambda app, name, content: read.append(name))
        app.build()
    assert app.statuscode == 0
    return sorted(read)


def sections(page):
    """Return {heading: questions} of a page of the book, and where each heading leads."""
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    found, links = {}, []
    for section in soup.select("section section"):
        link = section.select_one("h2 a.reference.internal")
        links.append(link["href"])
        found[link.get_text()] = [one.get_text().strip() for one in section.select("summary")]
    return found, links


def test_each_chapter_has_a_section_with_its_questions_in_the_order_of_the_table_of_contents(project):
    build(project)
    found, links = sections(project.parent / "html" / "page.html")
    assert list(found.items()) == [("1. Second", ["Why three?"]), ("2. nn.RNN, first", ["Why one?", "Why two?"])]
    assert links == ["chapters/02_second.html", "chapters/01_first.html"]
    text = (project.parent / "html" / "page.html").read_text("utf-8")
    assert 'href="chapters/01_first.html"' in text.split("An answer.")[1], "a link between chapters leads there"


def test_the_page_is_read_again_when_a_chapter_has_changed_and_only_then(project):
    assert build(project) == ["chapters/01_first", "chapters/02_second", "index", "page"]
    assert build(project) == []
    path = project / "chapters" / "02_second.ipynb"
    chapter(path, "Second", "Why four?")
    os.utime(path, (later := path.stat().st_mtime + 10, later))
    assert build(project) == ["chapters/02_second", "page"]
    assert sections(project.parent / "html" / "page.html")[0]["1. Second"] == ["Why four?"]


def test_a_chapter_without_questions_has_no_section(project):
    chapter(project / "chapters" / "02_second.ipynb", "Second")
    build(project)
    assert list(sections(project.parent / "html" / "page.html")[0]) == ["2. nn.RNN, first"]


def test_the_section_ends_where_the_next_begins_or_with_the_chapter(tmp_path):
    for end in ("## Further reading\n\n- A book.", ""):
        chapter(tmp_path / "one.ipynb", "One", "Why?", end=end)
        title, found = questions.read(tmp_path / "one.ipynb")
        assert title == "One"
        assert found.startswith("```{dropdown} Why?") and found.endswith("```")


def test_every_question_of_the_book_is_there(book):
    found, links = sections(book / "appendices" / "interview.html")
    assert len(links) == len(set(links)) > 0
    for link, asked in zip(links, found.values(), strict=True):
        page = BeautifulSoup((book / "appendices" / link).resolve().read_text("utf-8"), "html.parser")
        assert asked == [one.get_text().strip() for one in page.select("#interview-questions summary")] != []
