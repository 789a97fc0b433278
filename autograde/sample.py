"""Makes a complete sample course: a release, an invented class with right and wrong answers, grades and feedback."""

import ast
import hashlib
import inspect
import json
import re
import shutil
import textwrap
from functools import lru_cache, partial
from pathlib import Path

import nbformat
from nbgrader.plugins import CsvExportPlugin

from autograde import classroom, exercises, sandbox
from autograde.course import Course, Problem
from autograde.release import ROOT, release

MARK = ".sample.json"  # says that a folder is ours to replace, and what it was made from

RIGHT, BLANK, WARNING, RAISING = SPECIAL = "ada", "blaise", "chen", "dora"
MISTAKEN = ["emmy", "farid", "grace", "hiro", "ines", "jonas", "kofi", "lena", "mira"]
STUDENTS = len(SPECIAL) + len(MISTAKEN)


def sample(folder, root=ROOT, say=print, students=STUDENTS):
    """Make the sample course in a folder, unless it stands there already; return what it scored.

    That is {chapter: {student: {"score", "of", "cells", "problem"}}}, as in `classroom.Graded`. Of the students one
    answers right, one not at all, one with a warning, one with an error; each of the others makes a mistake in every
    exercise, the first of them its first misconception and so on.

    Raises `Problem` when the folder holds something that is not a sample course.
    """
    folder = Path(folder)
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.is_file():
        raise Problem(f"{folder} is not empty and is no sample course; choose another folder or empty it")
    made_from = f"{_digest(root)} for {students}"
    if mark.is_file():
        known = json.loads(mark.read_text(encoding="utf-8"))
        if known.get("made_from") == made_from:
            say(f"sample: {folder} is up to date")
            return known["scores"]
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text("{}\n", encoding="utf-8")
    course, scores = Course(folder), {}
    for slug in sorted(path.name for path in (root / "_build" / "source").glob("*")):
        say(f"sample: releasing {slug} and handing it in for {students} invented students")
        release(course, slug, root)
        hand_in(course, slug, students)
        missing = sandbox.missing()
        if missing:
            say(f"sample: grading without confinement, the class's code being this project's own. {missing}")
        scores[slug] = {g.student: _score(g) for g in classroom.grade(course, slug, confined=not missing)}
    with course.api.gradebook as gradebook:
        CsvExportPlugin(to=str(folder / "grades.csv")).export(gradebook)
    mark.write_text(json.dumps({"made_from": made_from, "scores": scores}, indent=1) + "\n", encoding="utf-8")
    return scores


def hand_in(course, slug, students=STUDENTS):
    """Put the invented class's submissions of a chapter into a course."""
    released = (course.root / "release" / slug / f"{slug}.ipynb").read_text(encoding="utf-8")
    solved = nbformat.read(course.root / "source" / slug / f"{slug}.ipynb", as_version=4)
    right = {cell.id: cell.source for cell in solved.cells if cell.metadata.get("nbgrader", {}).get("solution")}
    for student, answers in answers_of_the_class(slug, right, students).items():
        notebook = nbformat.reads(released, as_version=4)
        for cell in notebook.cells:
            if cell.id in answers:
                cell.source = _as_written(answers[cell.id])
        path = course.root / "submitted" / student / slug / f"{slug}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)


def answers_of_the_class(slug, right, students=STUDENTS):
    """Return {student: {id of an answer cell: its source}}; right maps the same ids to the right answers."""
    checked = {name: e for name, e in exercises.load(slug).items() if hasattr(e, "reference")}
    first = next(iter(checked))
    loud = "\nimport warnings\n\nwarnings.warn('a warning costs nothing')"
    broken = right[first].replace("### BEGIN SOLUTION", "undefined_name")
    answers = {
        RIGHT: right,
        BLANK: {},
        WARNING: right | {first: right[first] + loud},
        RAISING: right | {first: broken},
    }
    for number in range(students - len(SPECIAL)):
        turn, place = divmod(number, len(MISTAKEN))
        student = MISTAKEN[place] + (f"-{turn + 1}" if turn else "")
        answers[student] = dict(right)
        for name, exercise in checked.items():
            mistakes = [misconception.implementation for misconception in exercise.misconceptions.values()]
            mistake = mistakes[number % len(mistakes)]
            answers[student][name] = source_of(mistake, as_name=_defined(right[name]))
    return answers


def source_of(answer, as_name):
    """Return Python that defines a function or class of an exercise's module under another name, with what it needs."""
    if isinstance(answer, partial):
        parts = [(answer.func, answer.func.__name__), *((value, name) for name, value in answer.keywords.items())]
        above = "\n\n\n".join(source_of(*part) for part in parts if callable(part[0]))
        given = [f"{name}={name if callable(value) else repr(value)}" for name, value in answer.keywords.items()]
        return f"{above}\n\n\ndef {as_name}(*args):\n    return {answer.func.__name__}(*args, {', '.join(given)})"
    if isinstance(answer, type):
        return _source_of_class(answer, as_name)
    tree = _tree(inspect.getmodule(answer))
    node = _node_of(answer, tree)
    above = _needed(tree, [node])
    if isinstance(node, ast.Lambda):
        return f"{above}{as_name} = {ast.unparse(node)}"
    return above + re.sub(r"^def \w+", f"def {as_name}", ast.unparse(node))


def _source_of_class(answer, as_name):
    """Return the source of a class that changes some methods of a class of the exercise's module, its only base."""
    functions = {name: value for name, value in vars(answer).items() if inspect.isfunction(value)}
    (base,) = answer.__bases__
    tree = _tree(inspect.getmodule(next(iter(functions.values()))))
    nodes = {name: _node_of(function, tree) for name, function in functions.items()}
    lines = []
    for name, node in nodes.items():
        text = ast.unparse(node)
        lines.append(f"{name} = {text}" if isinstance(node, ast.Lambda) else re.sub(r"^def \w+", f"def {name}", text))
    body = textwrap.indent("\n\n".join(lines), "    ")
    return f"{_needed(tree, [ast.Name(base.__name__), *nodes.values()])}class {as_name}({base.__name__}):\n{body}"


@lru_cache
def _tree(module):
    """Return a module's source as Python reads it; kept, because every mistake in a module asks for it."""
    return ast.parse(inspect.getsource(module))


def _node_of(function, tree):
    kinds, line = (ast.Lambda, ast.FunctionDef), function.__code__.co_firstlineno
    return next(node for node in ast.walk(tree) if isinstance(node, kinds) and node.lineno == line)


def _needed(tree, nodes):
    """Return the source of the functions and classes of a module that some of its nodes use, the most basic first."""
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    needed, waiting = {}, list(nodes)
    while waiting:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Name) and part.id in helpers and part.id not in needed:
                needed[part.id] = helpers[part.id]
                waiting.append(helpers[part.id])
    return "".join(f"{ast.unparse(helper)}\n\n\n" for helper in reversed(needed.values()))


def _as_written(answer):
    """Return a model answer as a student would hand it in: without nbgrader's marks and the scheme of points."""
    return re.sub(r"^ *### (BEGIN|END) SOLUTION\n?|^Scheme, .*\n?", "", answer, flags=re.MULTILINE).rstrip()


def _defined(source):
    return next(node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _score(graded):
    return {
        "score": graded.score,
        "of": graded.max_score,
        "cells": dict(graded.cells),
        "problem": graded.problem,
    }


def _digest(root):
    """Return a digest of what the sample course is made of: the solved notebooks, the grading and the reference."""
    files = [*(root / "_build" / "source").rglob("*.ipynb"), *(root / "autograde").rglob("*.py"), root / "rnncore.py"]
    if not files or files[0].suffix != ".ipynb":
        raise Problem("there are no solved notebooks in _build/source; run `make chapters` first")
    parts = [path.read_bytes() for path in sorted(files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
