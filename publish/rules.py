"""What a manuscript must keep to so that it can become a notebook, a page and an assignment."""

import ast
import re

from autograde import exercises as registry
from publish import plain
from publish.manuscript import Fault

EXERCISE_KEYS = {"answer", "check", "manual"}
FIGURE_KEYS = {"figure", "caption", "alt"}
ALLOWED = {"code": EXERCISE_KEYS | FIGURE_KEYS | {"demo", "tags"}, "markdown": {"manual"}, "raw": set()}
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def faults(manuscript, exercises=None, bibliography=None):
    """Return every `Fault` in a manuscript.

    exercises maps the ids of the chapter's exercises to their definitions, by default those of
    `autograde.exercises`; bibliography is the set of keys that may be cited, by default those of references.bib.
    """
    if exercises is None:
        exercises = registry.load(manuscript.slug)
    if bibliography is None:
        bibliography = set(plain.bibliography())
    found = []

    def fault(index, reason, needle=None):
        """Note a fault of a cell, at the line of the cell on which `needle` stands."""
        line = manuscript.lines[index]
        if needle:
            text = manuscript.path.read_text(encoding="utf-8").splitlines()
            after = (number for number in range(line - 1, len(text)) if needle in text[number])
            line = next(after, line - 1) + 1
        found.append(Fault(manuscript.path, line, reason))

    cells = manuscript.notebook.cells
    labels = plain.labels(cell.source for cell in cells if cell.cell_type == "markdown")
    for index, cell in enumerate(cells):
        _keys(index, cell, fault)
        _regions(index, cell, fault)
        if cell.cell_type == "code":
            _code(index, cell, fault)
        elif cell.cell_type == "markdown":
            for reason, needle in plain.problems(cell.source, bibliography, labels):
                fault(index, reason, needle=needle)
    _exercises(cells, exercises, fault)
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        found.append(Fault(manuscript.path, 1, f"two equations have the label {label!r}"))
    _figures(cells, fault)
    if missing := sorted(set(exercises) - {name for cell in cells for name in _ids(cell)}):
        names = ", ".join(missing)
        found.append(Fault(manuscript.path, 1, f"these exercises of the chapter have no cell here: {names}"))
    return sorted(set(found))


def _ids(cell):
    return [cell.metadata[key] for key in ("answer", "check", "manual") if key in cell.metadata]


def _keys(index, cell, fault):
    """Only known keys; at most one exercise key; the three figure keys together."""
    keys = set(cell.metadata)
    allowed = ALLOWED[cell.cell_type]
    for key in sorted(keys - allowed):
        known = ", ".join(sorted(allowed)) or "none"
        fault(index, f"unknown key {key!r} on a {cell.cell_type} cell; known are: {known}", needle=key)
    if cell.cell_type == "raw":
        fault(index, "raw cells are not used in this course")
    if len(keys & EXERCISE_KEYS) > 1:
        fault(index, f"a cell is one of answer, check and manual, not {', '.join(sorted(keys & EXERCISE_KEYS))}")
    if keys & FIGURE_KEYS and not keys >= FIGURE_KEYS:
        missing = ", ".join(sorted(FIGURE_KEYS - keys))
        fault(index, f"a figure needs figure, caption and alt together; missing: {missing}")
    if "demo" in keys and (cell.metadata.demo is not True or keys & EXERCISE_KEYS):
        fault(index, "demo is written `:demo: true`, on a cell that is no part of an exercise", needle="demo")


def _regions(index, cell, fault):
    """Solution regions are closed, not nested, and stand in cells that a student fills in."""
    opened = None
    for line in map(str.strip, cell.source.splitlines()):
        if line == BEGIN:
            if opened:
                fault(index, "a solution region begins inside another one", needle=BEGIN)
            opened = True
        elif line == END:
            if not opened:
                fault(index, "a solution region ends that has not begun", needle=END)
            opened = False
        elif "BEGIN SOLUTION" in line or "END SOLUTION" in line:
            fault(index, f"write the mark as {BEGIN!r} or {END!r}, alone on its line", needle=line)
    if opened:
        fault(index, f"the solution region is not closed: {END!r} is missing", needle=BEGIN)
    fills_in = {"answer", "manual"} & set(cell.metadata)
    if opened is not None and not fills_in:
        fault(index, "a solution region stands in a cell that is neither an answer nor manual", needle="SOLUTION")
    if opened is None and fills_in:
        fault(index, f"this {fills_in.pop()} cell has no solution region, so students would see the answer")


def _code(index, cell, fault):
    """Plain Python, and an answer's name defined even in the untouched cell."""
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        fault(index, f"this is not Python ({error.msg}): {line}", needle=line)
        return
    if "answer" in cell.metadata and not defined_names(without_solution(cell.source)):
        fault(index, "the untouched answer defines no name; begin the solution region inside the function")


def _exercises(cells, exercises, fault):
    """Every answer is followed by its check, each id is known and used once."""
    seen = {}
    for index, cell in enumerate(cells):
        for key in EXERCISE_KEYS & set(cell.metadata):
            name = cell.metadata[key]
            if name not in exercises:
                known = ", ".join(sorted(exercises)) or "none"
                fault(index, f"unknown exercise {name!r}; this chapter's are: {known}", needle=key)
            elif (key == "manual") != (getattr(exercises[name], "reference", None) is None):
                kind = "graded by a person" if key != "manual" else "checked"
                fault(index, f"exercise {name!r} is {kind}; it cannot be a {key} cell", needle=key)
            if (key, name) in seen:
                fault(index, f"{key} {name!r} stands twice in this chapter", needle=key)
            seen[key, name] = index
    for (key, name), index in seen.items():
        if key == "answer" and ("check", name) not in seen:
            fault(index, f"answer {name!r} has no check", needle="answer")
        if key == "check":
            if seen.get(("answer", name), len(cells)) > index:
                fault(index, f"check {name!r} comes without its answer before it", needle="check")
            else:
                _check_call(index, cells[index], name, cells[seen["answer", name]], fault)


def _check_call(index, cell, name, answer, fault):
    """The check is one call with the exercise's id and the name that the answer defines."""
    match = re.fullmatch(rf'check\("{re.escape(name)}", (\w+)\)', cell.source)
    if not match:
        wanted = f'check("{name}", <the name that the answer defines>)'
        fault(index, f"the check cell holds one line, {wanted}; here it is {cell.source!r}")
    elif match[1] not in _names_or_none(answer):
        fault(index, f"the check passes {match[1]!r}, which the untouched answer does not define", needle="check(")


def _names_or_none(cell):
    try:
        return defined_names(without_solution(cell.source))
    except SyntaxError:
        return set()


def _figures(cells, fault):
    """Figures have names of their own, which references and the page's ids are made of."""
    seen = set()
    for index, cell in enumerate(cells):
        if "figure" not in cell.metadata:
            continue
        name = cell.metadata.figure
        if name in seen:
            fault(index, f"figure {name!r} stands twice in this chapter", needle="figure")
        if not re.fullmatch(r"fig-[a-z0-9-]+", str(name)):
            fault(index, f"figure {name!r}: a name is fig- and lower-case words with hyphens", needle="figure")
        seen.add(name)


def without_solution(source):
    """Return an answer's source as the student gets it: the solution region replaced by a stub."""
    kept, inside = [], False
    for line in source.splitlines():
        if line.strip() == BEGIN:
            inside = True
            kept.append(line.replace(BEGIN, "raise NotImplementedError()"))
        elif line.strip() == END:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def defined_names(source):
    """Return the names of the functions and classes that a cell defines at its top level."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(source).body if isinstance(node, kinds)}
