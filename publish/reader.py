"""A chapter's page: the student's cells, the manuscript's prose and the outputs of the solved run.

Jupyter Book calls `read` on the text of every notebook it lists (`nb_custom_formats` in _config.yml).
"""

import hashlib
import json
from pathlib import Path

import nbformat
from sphinx.errors import SphinxError

from publish import execution, figures, manuscript, movable, notebooks

ROOT = Path(__file__).resolve().parent.parent

# What a page is made of besides its notebook and the manuscript's run.
COMMON = (
    "references.bib",
    "appendices/glossary.md",
    "publish/reader.py",
)


class StaleChapter(SphinxError):
    """Raised when a notebook is not the one its manuscript gives."""

    category = "Stale chapter"


def read(text, root=ROOT):
    """Return the page of a chapter as a notebook, from the text of `chapters/<slug>.ipynb`.

    Without the manuscript (the student edition) the page is the notebook itself, without outputs.
    """
    page = nbformat.reads(text, as_version=4)
    path = _manuscript(page.metadata, root)
    if path:
        source = manuscript.read(path)
        _check_fresh(page, source, root)
        _graft(page, source.notebook, execution.executed(path.stem, root=root))
    for cell in page.cells:
        _mark(cell)
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


def _check_fresh(page, source, root):
    """Raise `StaleChapter` when the page is not the student's notebook of this manuscript."""
    given = notebooks.text(notebooks.student(notebooks.solved(source, root=root), root=root))
    if page != nbformat.reads(given, as_version=4):
        raise StaleChapter(
            f"chapters/{source.slug}.ipynb is not what solutions/{source.slug}.md gives. "
            "Run `python -m publish` and build the book again."
        )


def _graft(page, prose, solved):
    """Put the manuscript's prose and the solved run's outputs into the cells of the page."""
    for cell, source, run in zip(page.cells, prose.cells, solved.cells, strict=True):
        if cell.cell_type == "code":
            cell.metadata |= _figure(source.metadata)
            cell.outputs = list(_outputs(run, cell))
        elif "nbgrader" not in cell.metadata:
            cell.source = source.source


def _figure(keys):
    """Return myst-nb's metadata for the manuscript's keys of a figure: its name, caption and alternative text."""
    if "figure" not in keys:
        return {}
    figure = {"name": keys.figure, "caption": keys.caption}
    return {"mystnb": nbformat.from_dict({"figure": figure, "image": {"alt": keys.alt}})}


def _outputs(run, cell):
    """Yield a cell's outputs as the page shows them: drawings inline, with alternative text; figures that move."""
    options = cell.metadata.get("mystnb", {})
    figure = options.get("figure", {}).get("name")
    alt = options.get("image", {}).get("alt", "")
    for number, output in enumerate(run.outputs):
        if "image/svg+xml" in output.get("data", {}):
            name = f"{figure or cell.id}-{number}"
            html = figures.inline(output.data["image/svg+xml"], name, alt)
            if movable.KIND in output.data:
                html = movable.html(output.data[movable.KIND], html, name)
            else:
                html = figures.scrolling(html)
            yield nbformat.v4.new_output("display_data", data={"text/html": html})
        elif not (figure and output.output_type == "execute_result"):
            yield output  # of a figure's cell, what its last line happened to return is not shown
