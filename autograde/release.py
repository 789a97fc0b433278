"""Puts a chapter's solved notebook into a course and releases it, or refuses when that would lose something."""

import hashlib
import json
from pathlib import Path

import nbformat

from autograde.course import Problem
from autograde.results import write

ROOT = Path(__file__).resolve().parent.parent
RECORD = ".released.json"  # in a course: {slug: the digest of the source notebook written there, and if it is released}


def release(course, slug, root=ROOT):
    """Release a chapter in a course with nbgrader's own steps; return whether anything was to do.

    Raises `Problem`, naming the cells, when the course's source was edited by hand since, or when students have
    handed in work that a change of the graded cells would break.
    """
    refuse_unknown([slug], root)
    built = root / "_build" / "source" / slug / f"{slug}.ipynb"
    text = built.read_text(encoding="utf-8")
    source = course.root / "source" / slug / f"{slug}.ipynb"
    given = course.root / "release" / slug / f"{slug}.ipynb"  # what students have, whatever became of the source
    written = _read_record(course).get(slug, {})
    finished = {"source": _digest(text), "released": True}
    if source.is_file() and (present := source.read_text(encoding="utf-8")) != text:
        _refuse_if_edited(source, present, text, written.get("source"))
    elif source.is_file() and given.is_file() and written == finished and course.knows(slug):
        return False
    if given.is_file():
        _refuse_if_it_breaks(course, slug, given.read_text(encoding="utf-8"), text)
    _write_record(course, slug, source=_digest(text), released=False)  # first: an interrupted release is finished later
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    course.run(course.api.generate_assignment, slug, force=True)
    course.run(course.publish, slug)
    _write_record(course, slug, **finished)
    return True


def refuse_unknown(slugs, root=ROOT):
    """Raise `Problem` for the first of these that is no chapter with a solved notebook."""
    known = chapters(root)
    for slug in slugs:
        if slug not in known:
            there = ", ".join(known) or "none; run `make chapters`"
            raise Problem(f"there is no chapter {slug!r} in _build/source; known are: {there}")


def chapters(root=ROOT):
    """Return the names of the chapters that have a solved notebook."""
    return sorted(path.stem for path in (root / "_build" / "source").glob("*/*.ipynb") if path.stem == path.parent.name)


def _read_record(course):
    path = course.root / RECORD
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # UnicodeDecodeError, too
        record = None
    if not isinstance(record, dict) or not all(isinstance(written, dict) for written in record.values()):
        raise Problem(
            f"{path} cannot be read; it notes what was released, and is written anew once you delete it. "
            "Then a chapter's source that differs from the chapter as it is now counts as edited by you."
        )
    return record


def _write_record(course, slug, **written):
    text = json.dumps(_read_record(course) | {slug: written}, indent=1)
    write(course.root / RECORD, text + "\n")


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_if_edited(source, present, text, written):
    if _digest(present) == written:
        return
    cells = ", ".join(changed_cells(present, text)) or "none, only how the file is written or its metadata"
    raise Problem(
        f"{source} was edited since it was written; the cells that differ from the chapter's: {cells}. "
        "Move your edits into solutions/, or delete the file to have it written again."
    )


def _refuse_if_it_breaks(course, slug, present, text):
    students = course.handed_in(slug)
    changed = sorted(name for name in set(_graded(present)) | set(_graded(text)) if _differs(name, present, text))
    if students and changed:
        raise Problem(
            f"{len(students)} of the class have handed in {slug} ({', '.join(students[:3])}…), and these graded cells "
            f"would change: {', '.join(changed)}. Grade with the course as it is, or release under another name."
        )


def changed_cells(old, new):
    """Return the ids of the cells that differ between two notebooks' texts."""
    before, after = ({cell.id: cell for cell in nbformat.reads(text, as_version=4).cells} for text in (old, new))
    return sorted(name for name in set(before) | set(after) if before.get(name) != after.get(name))


def _graded(text):
    """Return what nbgrader knows a notebook's graded cells by: kind, points, and a check's text."""
    cells = {}
    for cell in nbformat.reads(text, as_version=4).cells:
        if known := cell.metadata.get("nbgrader"):
            locked = cell.source if known.get("locked") else None
            cells[known.grade_id] = (cell.cell_type, known.grade, known.solution, known.get("points"), locked)
    return cells


def _differs(name, old, new):
    return _graded(old).get(name) != _graded(new).get(name)
