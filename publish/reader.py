"""A chapter's page: the student's cells, the manuscript's prose and the outputs of the solved run.

Jupyter Book calls `read` on the text of every notebook it lists (`nb_custom_formats` in _config.yml).
"""

import hashlib
import json
from pathlib import Path

import nbformat
from sphinx.errors import SphinxError

from publish import execution, figures, manuscript

ROOT = Path(__file__).resolve().parent.parent

# What a page is made of besides its notebook and the manuscript's run.
COMMON = ("references.bib", "publish/reader.py", "publish/figures.py")


class StaleChapter(SphinxError):
    """Raised when a notebook is not the one its manuscript gives."""

    category = "Stale chapter"


def read(text, root=ROOT):
    """Return the page of a chapter as a notebook, from the text of `chapters/<slug>.ipynb`.

    Without the manuscript (the student edition) the page is the notebook itself, without outputs.
    """
    page = nbformat.reads(text, as_version=4)
    path = _manuscript(page.metadata, root)
    for cell in page.cells:
        _mark(cell)
    if path:
        _graft(page, manuscript.read(path).notebook, execution.executed(path.stem, root=root))
    return page


def ingredients(text, root=ROOT):
    """Return a digest of all that the page is made of besides `text`: a new digest means an outdated page."""
    parts = [(root / name).read_bytes() for name in COMMON]
    path = _manuscript(json.loads(text)["metadata"], root)
    if path:
        parts += [path.read_bytes(), execution.digest(path.stem, root=root).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _manuscript(metadata, root):
    slug = metadata.get("recurrence", {}).get("slug")
    path = manuscript.path_of(slug, root)
    return path if slug and path.is_file() else None


def _mark(cell):
    """Give the cell of an exercise a class that the stylesheet knows: a tag, or a <div> around Markdown."""
    grading = cell.metadata.get("nbgrader", {})
    if grading.get("solution"):
        kind = "exercise"
    elif grading.get("grade"):
        kind = "check"
    else:
        return
    if cell.cell_type == "markdown":
        cell.source = f"::::{{div}} {kind}\n{cell.source}\n::::"
    else:
        cell.metadata.setdefault("tags", []).append(kind)


def _graft(page, prose, solved):
    """Put the manuscript's prose and the solved run's outputs into the cells of the page."""
    ids = [cell.id for cell in page.cells]
    if ids != [cell.id for cell in solved.cells] or len(ids) != len(prose.cells):
        slug = page.metadata.recurrence.slug
        raise StaleChapter(
            f"chapters/{slug}.ipynb is not what solutions/{slug}.md gives: their cells differ. "
            "Run `python -m publish` and build the book again."
        )
    for cell, source, run in zip(page.cells, prose.cells, solved.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = list(_outputs(run, cell))
        elif "nbgrader" not in cell.metadata:
            cell.source = source.source


def _outputs(run, cell):
    """Yield a cell's outputs as the page shows them: drawings inline, with their alternative text."""
    options = cell.metadata.get("mystnb", {})
    figure = options.get("figure", {}).get("name")
    alt = options.get("image", {}).get("alt", "")
    for number, output in enumerate(run.outputs):
        if "image/svg+xml" in output.get("data", {}):
            svg = figures.inline(output.data["image/svg+xml"], f"{figure or cell.id}-{number}", alt)
            yield nbformat.v4.new_output("display_data", data={"text/html": svg})
        elif not (figure and output.output_type == "execute_result"):
            yield output  # of a figure's cell, what its last line happened to return is not shown
