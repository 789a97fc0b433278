"""What a manuscript must keep to so that it can become a notebook, a page and an assignment."""

import ast
import re

from myst_parser.mdit_to_docutils.base import default_slugify

from autograde import exercises as registry
from publish import plain, selfcheck
from publish.manuscript import Fault

EXERCISE_KEYS = {"answer", "check", "manual"}
FIGURE_KEYS = {"figure", "caption", "alt"}
ALLOWED = {"code": EXERCISE_KEYS | FIGURE_KEYS | {"demo", "tags"}, "markdown": {"manual"}, "raw": set()}
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
ID = re.compile(r"(?!.*-check$)[a-z0-9]+(-[a-z0-9]+)*")  # ID-check is the name of the check's cell
OTHER_REGIONS = re.compile(r"(BEGIN|END) (HIDDEN TESTS|MARK SCHEME)")  # nbgrader's, which its release takes out


def faults(manuscript, exercises=None, bibliography=None, terms=None):
    """Return every `Fault` in a manuscript.

    exercises maps the ids of the chapter's exercises to their definitions, by default those of
    `autograde.exercises`; bibliography maps the keys that may be cited to their entries, by default those of
    references.bib; terms are those of the glossary, by default of appendices/glossary.md.
    """
    if exercises is None:
        exercises = registry.load(manuscript.slug)
    if bibliography is None:
        bibliography = plain.bibliography()
    if terms is None:
        terms = plain.glossary()
    found = []

    def fault(index, reason, key=None, at=None):
        """Note a fault of a cell, at the line of one of its keys, or of a line of its source, counted from 0."""
        found.append(Fault(manuscript.path, manuscript.line_of(index, key, at), reason))

    cells = manuscript.notebook.cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    figures = {cell.metadata.figure for cell in cells if isinstance(cell.metadata.get("figure"), str)}
    known = plain.Known(bibliography, terms, plain.labels(prose), figures, _anchors(prose))
    for index, cell in enumerate(cells):
        _keys(index, cell, fault)
        _regions(index, cell, fault)
        if cell.cell_type == "code":
            _code(index, cell, fault)
        elif cell.cell_type == "markdown":
            for reason, place in plain.problems(cell.source, known):
                fault(index, reason, at=cell.source.count("\n", 0, place))
    _exercises(cells, exercises, fault)
    _equations(cells, fault)
    _figures(cells, fault)
    _selfchecks(cells, fault)
    if missing := sorted(set(exercises) - {name for cell in cells for name in _ids(cell).values()}):
        names = ", ".join(missing)
        found.append(Fault(manuscript.path, 1, f"these exercises of the chapter have no cell here: {names}"))
    return sorted(set(found))


def _ids(cell):
    """Return {key: id} of a cell of an exercise; an id that is no word is a fault of its own."""
    keys = sorted(EXERCISE_KEYS & set(cell.metadata))
    return {key: cell.metadata[key] for key in keys if isinstance(cell.metadata[key], str)}


def _keys(index, cell, fault):
    """Only known keys; at most one exercise key; the three figure keys together."""
    keys = set(cell.metadata)
    allowed = ALLOWED[cell.cell_type]
    for key in sorted(keys - allowed):
        known = ", ".join(sorted(allowed)) or "none"
        fault(index, f"unknown key {key!r} on a {cell.cell_type} cell; known are: {known}", key)
    if cell.cell_type == "raw":
        fault(index, "raw cells are not used in this course")
    for key in sorted(keys & EXERCISE_KEYS):
        if not ID.fullmatch(str(cell.metadata[key])) or not isinstance(cell.metadata[key], str):
            wanted = "an exercise's id: lower-case words with hyphens, the last not `check`"
            fault(index, f"{key} is {wanted}; here it is {cell.metadata[key]!r}", key)
    if len(keys & EXERCISE_KEYS) > 1:
        fault(index, f"a cell is one of answer, check and manual, not {', '.join(sorted(keys & EXERCISE_KEYS))}")
    if keys & FIGURE_KEYS and not keys >= FIGURE_KEYS:
        missing = ", ".join(sorted(FIGURE_KEYS - keys))
        fault(index, f"a figure needs figure, caption and alt together; missing: {missing}")
    for key in sorted(keys & FIGURE_KEYS):
        if not isinstance(cell.metadata[key], str) or not cell.metadata[key].strip():
            fault(index, f"{key} is some words; here it is {cell.metadata[key]!r}", key)
    if "demo" in keys and (cell.metadata.demo is not True or keys & EXERCISE_KEYS):
        fault(index, "demo is written `:demo: true`, on a cell that is no part of an exercise", "demo")


def _regions(index, cell, fault):
    """Solution regions are closed, not nested, and stand in cells that a student fills in."""
    first = opened = None
    for at, line in enumerate(map(str.strip, cell.source.splitlines())):
        if line in (BEGIN, END) and first is None:
            first = at
        if line == BEGIN:
            if opened is not None:
                fault(index, "a solution region begins inside another one", at=at)
            opened = at
        elif line == END:
            if opened is None:
                fault(index, "a solution region ends that has not begun", at=at)
            opened = None
        elif "BEGIN SOLUTION" in line or "END SOLUTION" in line:
            fault(index, f"write the mark as {BEGIN!r} or {END!r}, alone on its line", at=at)
        elif other := OTHER_REGIONS.search(line):
            fault(index, f"this course uses none of nbgrader's {other[2].lower()} regions", at=at)
    if opened is not None:
        fault(index, f"the solution region is not closed: {END!r} is missing", at=opened)
    fills_in = {"answer", "manual"} & set(cell.metadata)
    if first is not None and not fills_in:
        fault(index, "a solution region stands in a cell that is neither an answer nor manual", at=first)
    if first is None and fills_in:
        key = min(fills_in)
        fault(index, f"this {key} cell has no solution region, so students would see the answer", key)


def _code(index, cell, fault):
    """Plain Python, and an answer's name defined even in the untouched cell."""
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        last = len(cell.source.splitlines()) - 1
        at = min((error.lineno or 1) - 1, last)
        fault(index, f"this is not Python ({error.msg}): {(error.text or '').strip()}", at=at)
        return
    if "answer" in cell.metadata and not _names_or_none(cell):
        reason = "the untouched answer defines no name; keep the solution region to whole lines inside the function"
        fault(index, reason, "answer")


def _exercises(cells, exercises, fault):
    """Every answer is followed by its check, each id is known and used once."""
    seen = {}
    for index, cell in enumerate(cells):
        for key, name in _ids(cell).items():
            if name not in exercises:
                known = ", ".join(sorted(exercises)) or "none"
                fault(index, f"unknown exercise {name!r}; this chapter's are: {known}", key)
            elif (key == "manual") != (getattr(exercises[name], "reference", None) is None):
                kind = "graded by a person" if key != "manual" else "checked"
                fault(index, f"exercise {name!r} is {kind}; it cannot be a {key} cell", key)
            if (key, name) in seen:
                fault(index, f"{key} {name!r} stands twice in this chapter", key)
            seen.setdefault((key, name), index)
    for (key, name), index in seen.items():
        if key == "answer" and ("check", name) not in seen:
            fault(index, f"answer {name!r} has no check", "answer")
        if key == "check":
            if seen.get(("answer", name), len(cells)) > index:
                fault(index, f"check {name!r} comes without its answer before it", "check")
            else:
                _check_call(index, cells[index], name, cells[seen["answer", name]], fault)


def _check_call(index, cell, name, answer, fault):
    """The check is one call with the exercise's id and the name that the answer defines."""
    match = re.fullmatch(rf'check\("{re.escape(name)}", (\w+)\)', cell.source)
    if not match:
        wanted = f'check("{name}", <the name that the answer defines>)'
        fault(index, f"the check cell holds one line, {wanted}; here it is {cell.source!r}", at=0)
    elif match[1] not in _names_or_none(answer):
        fault(index, f"the check passes {match[1]!r}, which the untouched answer does not define", at=0)


def _names_or_none(cell):
    try:
        return defined_names(without_solution(cell.source))
    except SyntaxError:
        return set()


def _equations(cells, fault):
    """Equations have labels of their own, which references and numbers are made of."""
    seen = set()
    for index, cell in enumerate(cells):
        for match in plain.LABELLED.finditer(cell.source if cell.cell_type == "markdown" else ""):
            if match[2] in seen:
                reason = f"two equations of this chapter have the label {match[2]!r}"
                fault(index, reason, at=cell.source.count("\n", 0, match.end()))
            seen.add(match[2])


def _figures(cells, fault):
    """Figures have names of their own, which references and the page's ids are made of."""
    seen = set()
    for index, cell in enumerate(cells):
        name = cell.metadata.get("figure")
        if not isinstance(name, str):
            continue
        if name in seen:
            fault(index, f"figure {name!r} stands twice in this chapter", "figure")
        if not re.fullmatch(r"fig-[a-z0-9-]+", name):
            fault(index, f"figure {name!r}: a name is fig- and lower-case words with hyphens", "figure")
        seen.add(name)


def _selfchecks(cells, fault):
    """Self-checks have ids of their own, under which a browser keeps answers, and stand in prose."""
    seen = set()
    for index, cell in enumerate(cells):
        for name, place in selfcheck.names(cell.source if cell.cell_type == "markdown" else ""):
            at = cell.source.count("\n", 0, place)
            if name in seen:
                fault(index, f"self-check {name!r} stands twice in this chapter", at=at)
            if EXERCISE_KEYS & set(cell.metadata):
                fault(index, "a self-check stands in prose, not in the cell of an exercise", at=at)
            seen.add(name)


def _anchors(prose):
    """Return the anchors that the page gives to the headings of a chapter."""
    headings = [found for source in prose for found in re.findall(r"^#{1,3} (.+)$", source, re.MULTILINE)]
    return {default_slugify(re.sub(r"[`*$]", "", heading)) for heading in headings}


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
