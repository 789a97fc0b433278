"""The interview questions of all chapters on one page, a Sphinx extension: the directive `{questions}`.

They are read from the chapters' notebooks, where they stand in the section `## Interview questions`, so that each is
written once. That works in the student edition, too, which has no manuscripts.
"""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

FOLDER = "chapters/"
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
SECTION = re.compile(r"^## Interview questions\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?=\w+\.ipynb\))")  # to another chapter, as notebooks beside each other write it


def setup(app):
    """Register the directive with Sphinx."""
    app.add_directive("questions", Directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read(path):
    """Return a chapter's title and its interview questions, both Markdown; no questions are an empty string."""
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = SECTION.search(prose)
    return TITLE.search(prose)[1], LINK.sub(f"](/{FOLDER}", found[1].strip()) if found else ""


class Directive(SphinxDirective):
    """`{questions}`: a section for each chapter that has interview questions, in the order of the table of contents."""

    def run(self):
        """Return the sections; the page is read again when a chapter or the table of contents has changed."""
        self.env.note_dependency(str(Path(self.config.external_toc_path).resolve()))
        chapters = [name for name in self.env.external_site_map if name.startswith(FOLDER)]
        sections = [self._section(name, number) for number, name in enumerate(chapters, start=1)]
        return [section for section in sections if section]

    def _section(self, docname, number):
        path = self.env.doc2path(docname)
        self.env.note_dependency(path)
        title, questions = read(path)
        if not questions:
            return None
        text = title.replace("`", "")
        section = nodes.section(ids=[nodes.make_id(text)], names=[nodes.fully_normalize_name(text)])
        heading = f"{number}. {text}"
        link = pending_xref(
            "",
            nodes.inline("", heading),
            refdomain="std",
            reftype="doc",
            refdoc=self.env.docname,
            reftarget=f"/{docname}",
            refexplicit=True,
            refwarn=True,
        )
        section += nodes.title(heading, "", link)
        self.state.nested_parse(StringList(questions.splitlines(), path), 0, section)
        return section
