"""Turns a manuscript into the solved notebook, and the solved notebook into the student's."""

import re
from collections import Counter
from copy import deepcopy

import nbformat
from nbgrader.converters.generate_assignment import GenerateAssignment
from nbgrader.preprocessors import SaveCells

from autograde import exercises as registry
from publish import plain
from publish.manuscript import ROOT

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}


def solved(manuscript, exercises=None, root=ROOT):
    """Return a chapter's notebook with its answers: nbgrader's metadata, stable cell ids, plain prose.

    The manuscript must be free of faults (`publish.rules.faults`). exercises maps the ids of the chapter's
    exercises to their definitions, by default those of `autograde.exercises`.
    """
    exercises = registry.load(manuscript.slug) if exercises is None else exercises
    notebook = nbformat.v4.new_notebook(metadata=deepcopy(KERNEL))
    notebook.metadata["recurrence"] = {
        "slug": manuscript.slug,
        "generated": f"from solutions/{manuscript.slug}.md by python -m publish; do not edit",
    }
    notebook.cells = deepcopy(manuscript.notebook.cells)
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    sources = plain.markdown([cell.source for cell in prose], int(manuscript.slug[:2]), root)
    for cell, source in zip(prose, sources, strict=True):
        cell.source = source
    for cell, name in zip(notebook.cells, cell_ids(notebook.cells), strict=True):
        cell.id = name
        cell.metadata = nbformat.from_dict(_metadata(cell, exercises))
    return notebook


def student(notebook, root=ROOT):
    """Return the student's notebook of a solved one, made by nbgrader's own preprocessors for a release."""
    released, resources = deepcopy(notebook), {"metadata": {"path": str(root)}}
    for preprocessor in GenerateAssignment.class_traits()["preprocessors"].default():
        if preprocessor is not SaveCells:  # it writes to a gradebook
            released, resources = preprocessor().preprocess(released, resources)
    return released


def text(notebook):
    """Return a notebook as the text of its file."""
    return nbformat.writes(notebook) + "\n"


def cell_ids(cells):
    """Return an id for each cell that lasts as long as its place in the chapter does.

    A cell of an exercise is called by the exercise's id, its check by that and `-check`; any other by the heading
    it stands under and its number there. So a new cell in one section changes no id in another. Sections of the same
    name count on.
    """
    names = [_exercise_id(cell.metadata) for cell in cells]
    taken, numbers, section = set(names), Counter(), "opening"
    for index, cell in enumerate(cells):
        heading = re.search(r"^#{2,} (.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
        if heading:
            section = re.sub(r"[^a-z0-9]+", "-", heading[1].lower()).strip("-")[:48] or "section"
        if names[index]:
            continue
        while (name := f"{section}-{numbers[section] + 1}") in taken:  # an exercise may be called like a section
            numbers[section] += 1
        numbers[section] += 1
        names[index] = name
    return names


def _exercise_id(keys):
    """Return the id of an exercise's cell from its keys, None for other cells."""
    if "check" in keys:
        return f"{keys['check']}-check"
    return keys.get("answer") or keys.get("manual")


def _metadata(cell, exercises):
    """Return what a notebook keeps of the manuscript's keys: nbgrader's metadata and tags.

    A figure's caption and text stay out: beside an exercise they would tell what a right answer looks like.
    """
    keys, metadata = cell.metadata, {}
    tags = [*keys.get("tags", []), *(["demo"] if "demo" in keys else [])]
    if tags:
        metadata["tags"] = tags
    if "answer" in keys:
        metadata["nbgrader"] = _nbgrader(keys.answer, solution=True)
    elif "check" in keys:
        metadata["nbgrader"] = _nbgrader(f"{keys.check}-check", points=exercises[keys.check].points)
    elif "manual" in keys:
        metadata["nbgrader"] = _nbgrader(keys.manual, solution=True, points=exercises[keys.manual].points)
    return metadata


def _nbgrader(grade_id, solution=False, points=None):
    """Return the metadata by which nbgrader knows a cell: what students fill in, what is graded, for how much."""
    graded = {} if points is None else {"points": points}
    return {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
    } | graded
