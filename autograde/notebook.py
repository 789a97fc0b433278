"""What grading makes of a student's notebook: their text, in the cells as the course made them."""

import json
import re

import nbformat
from nbformat.corpus.words import generate_corpus_id as random_cell_id
from nbgrader.utils import compute_checksum

LIMIT = 20 * 10**6  # bytes, with outputs
# What makes a page of a text takes n² time for some, hours for a megabyte: so many cells, and characters of text.
CELLS, TEXT, CELL, LINE = 1000, 500_000, 20_000, 5000


def unreadable(reason):
    """Return a notebook that stands for one which cannot be read."""
    return nbformat.v4.new_notebook(metadata={"unreadable": reason})


def read(path):
    """Return a student's notebook, whatever lies at the path: `unreadable`, with the reason, if it is none."""
    if path.is_symlink() or not path.is_file():
        return unreadable("it is a link to another file" if path.is_symlink() else _missing(path))
    if path.stat().st_size > LIMIT:
        return unreadable(f"it has more than {LIMIT // 10**6} MB")
    try:
        nb = nbformat.reads(path.read_text("utf-8"), as_version=4)
        nbformat.validate(nb, relax_add_props=True)  # editors leave ids in notebooks of a format that has none
        json.dumps(nb, ensure_ascii=False).encode()  # half a surrogate pair could be read, and not be written
    except Exception as error:  # whatever a file may hold
        return unreadable(f"it is not a notebook ({type(error).__name__}: {str(error).splitlines()[0][:200]})")
    return unreadable(reason) if (reason := _excess(nb)) else nb


def _missing(path):
    if path.exists():
        return "it is no file"
    others = sorted(other.name for other in path.parent.glob("*.ipynb"))[:3]
    return f"there is no {path.name}" + f", but {', '.join(others)}: rename it" * bool(others)


def _excess(nb):
    """Return what of a notebook is too much to make a page of, or ""."""
    texts = [str(cell.source) for cell in nb.cells]
    longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
    for what, much, limit in (
        ("it has {} cells", len(texts), CELLS),
        ("its cells have {} characters", sum(map(len, texts)), TEXT),
        ("a cell has {} characters", max(map(len, texts), default=0), CELL),
        ("a line has {} characters", longest, LINE),
    ):
        if much > limit:
            return f"{what.format(f'{much:,}')}; at most {limit:,} are read"
    return ""


def sanitised(nb, source):
    """Return a new notebook: the student's text, with the metadata and the locked cells of the course's notebook.

    A graded cell that is missing is added, empty if it is for an answer; a second one with the same name is an ordinary
    cell. HTML in a student's text is shown, not obeyed. What is too large, or has none of the course's cells, stands as
    `unreadable`.
    """
    if not nb.metadata.get("unreadable") and (reason := _excess(nb) or _foreign(nb, source)):
        nb = unreadable(reason)
    known = {name: cell for cell in source.cells if (name := grade_id(cell))}
    demos = {cell.get("id"): cell.source for cell in source.cells if "demo" in cell.metadata.get("tags", [])}
    given = {cell.source for cell in source.cells if cell.cell_type == "markdown"}
    cells, seen, ids = [], set(), set()
    for cell in nb.cells:
        name = grade_id(cell)
        if name in known and name not in seen:
            seen.add(name)
            cells.append(_from_course(known[name], cell.source))
            checksum = cell.metadata.nbgrader.get("checksum")  # nbgrader's: whether an answer was touched at all
            if isinstance(checksum, str):
                cells[-1].metadata["nbgrader"]["checksum"] = checksum
        else:
            text = str(cell.source)
            if cell.cell_type == "code":
                cells.append(_cell("code", text))
                if demos.get(cell.get("id")) == text:
                    cells[-1].metadata["tags"] = ["demo"]
            else:
                cells.append(_cell("markdown", text if text in given else _without_html(text)))
        wanted = (known[name] if name in known and name not in ids else cell).get("id")
        if wanted is None:  # a notebook of an older format; it is to be given the same ids every time
            wanted = f"cell-{len(cells)}"
        if isinstance(wanted, str) and wanted not in ids and re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", wanted):
            cells[-1]["id"] = wanted
        ids.add(cells[-1]["id"])
    cells += [_from_course(cell, "") for name, cell in known.items() if name not in seen]
    metadata = {name: source.metadata[name] for name in ("kernelspec", "language_info") if name in source.metadata}
    clean = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    if reason := nb.metadata.get("unreadable"):
        clean.metadata["unreadable"] = str(reason)[:1000]
        for cell in filter(grade_id, clean.cells):  # as if untouched: there is nothing that a person could read
            cell.metadata.nbgrader["checksum"] = compute_checksum(cell)
    return clean


def _foreign(nb, source):
    """Return why a notebook is none of this chapter's, or ""."""
    mine, known = ({grade_id(cell) for cell in book.cells} - {None} for book in (nb, source))
    return "" if mine & known or not known else "none of the chapter's exercises is in it; is it another one's?"


BOX = re.compile(r"^(`{3,}|:{3,})\{(dropdown|note|warning|tip|important)\}[ \t]*(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)


def without_directives(nb, source):
    """Write the boxes of the course's prose as HTML: JupyterLab knows MyST's, nbgrader's pages show their source."""
    given = {cell.source for cell in source.cells if cell.cell_type == "markdown" and BOX.search(cell.source)}
    for cell in nb.cells:
        if cell.cell_type == "markdown" and cell.source in given and not grade_id(cell):
            cell.source = BOX.sub(_box, cell.source)


def _box(match):
    _, kind, title, body = match.groups()
    if kind == "dropdown":  # the style of nbgrader's pages takes away the sign that it opens
        style = "display: list-item; cursor: pointer"
        return f'<details>\n<summary style="{style}">{title}</summary>\n\n{body}\n</details>'
    return f"<blockquote>\n\n**{title or kind.capitalize()}**\n\n{body}\n</blockquote>"


def grade_id(cell):
    """Return the name that nbgrader knows a cell by, or None."""
    about = cell.metadata.get("nbgrader")
    name = about.get("grade_id") if isinstance(about, dict) else None
    return name if isinstance(name, str) else None


def _from_course(cell, text):
    """Return the course's cell, with a student's text unless it is locked."""
    text = cell.source if is_locked(cell) else str(text)
    if cell.cell_type != "code" and not is_locked(cell):
        text = _without_html(text)
    made = _cell(cell.cell_type, text)
    made.metadata["nbgrader"] = dict(cell.metadata.nbgrader)
    if "id" in cell:
        made.id = cell.id
    return made


def _cell(kind, text):
    """Return a cell as nbformat's own functions make it, which check each one anew and take a tenth of the grading."""
    more = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return nbformat.from_dict({"id": random_cell_id(), "cell_type": kind, "metadata": {}, "source": text, **more})


def _without_html(text):
    """Put a space of no width where a tag, a character's number or an address that runs code would begin.

    So it is shown and not obeyed, in code as in prose.
    """
    return re.sub(r"(?i)<(?=[a-z/!?])|&(?=#|[a-z0-9]+;)|(?:javascript|vbscript|data)(?=[\s\\]*:)", "\\g<0>\u200b", text)


def is_locked(cell):
    """Whether a cell's text is the course's: nbgrader locks what is graded by itself, whatever "locked" says of it."""
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade") or about.get("locked")) and not about.get("solution")


def is_test(cell):
    """Whether a cell is a test that gives points: an exercise's check, or an instructor's own assertions."""
    return cell.cell_type == "code" and is_locked(cell) and bool(cell.metadata["nbgrader"].get("grade"))


def runs(cell):
    """Whether grading runs a cell: code, and not a demo, which no answer needs."""
    return cell.cell_type == "code" and "demo" not in cell.metadata.get("tags", [])
