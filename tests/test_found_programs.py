"""Programs with a mistake, for students to repair: as they stand in the notebook they earn nothing and are named."""

from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

import rnncore
from autograde import exercises
from autograde.checking import verdict

ROOT = Path(__file__).resolve().parent.parent
STUB = "    # YOUR CODE HERE\n    raise NotImplementedError()\n"


def found_programs():
    """Yield (exercise, its cell as released) for every answer cell with a program below the line to be replaced."""
    for slug in exercises.chapters():
        for cell in nbformat.read(ROOT / "chapters" / f"{slug}.ipynb", as_version=4).cells:
            if cell.id in exercises.load(slug) and STUB in cell.source and cell.source.partition(STUB)[2].strip():
                yield exercises.find(cell.id), cell.source


def defined(source):
    names = {"np": np, "torch": torch, "rnncore": rnncore}
    before = set(names)
    exec(source, names)
    (name,) = set(names) - before - {"__builtins__"}
    return names[name]


FOUND = list(found_programs())
every = pytest.mark.parametrize(("exercise", "source"), FOUND, ids=[exercise.id for exercise, _ in FOUND])


def test_the_bug_hunt_has_five_programs():
    assert [exercise.id for exercise, _ in FOUND if exercise.id.startswith("bug-")] == [
        "bug-batch-first",
        "bug-cell",
        "bug-h-n",
        "bug-padding",
        "bug-state",
    ]


@every
def test_a_program_earns_nothing_as_it_was_found_and_is_named_so(exercise, source):
    found = verdict(exercise, defined(source.replace(STUB, "")))
    assert found.score == 0
    assert [name for name in found.named if "as it was found" in name] == list(found.named) != []


@every
def test_a_program_above_which_the_stub_still_stands_is_not_written_yet(exercise, source):
    found = verdict(exercise, defined(source))
    assert found.score == 0
    assert "not written yet" in str(found)
