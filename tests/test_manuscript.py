"""A manuscript with a fault is refused, with file, line and reason, and nothing is half written."""

import shutil
from types import SimpleNamespace

import jupytext
import pytest

from publish import __main__ as command
from publish import manuscript, rules

GOOD = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
    jupytext_version: 1.19.6
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A chapter

As {cite:t}`elman1990` says:

$$
h = x
$$ (eq-one)

```{code-cell}
:tags: [hide-input]

x = 1
```

## An exercise

Write equation {eq}`eq-one`.

```{code-cell}
:answer: double

def double(x):
    \"\"\"Return twice x.\"\"\"
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION
```

```{code-cell}
:check: double

check("double", double)
```

+++ {"manual": "why"}

### BEGIN SOLUTION
Because it is so.
### END SOLUTION
"""

EXERCISES = {
    "double": SimpleNamespace(id="double", points=2, reference=lambda x: 2 * x),
    "why": SimpleNamespace(id="why", points=1),
}

# name: (what stands in the good manuscript, what is put in its place, the line named, words of the reason)
FAULTS = {
    "unknown key": (":tags: [hide-input]", ":hidden: true", ":hidden: true", "unknown key 'hidden'"),
    "unknown key on prose": ('+++ {"manual": "why"}', '+++ {"graded": "why"}', '+++ {"graded"', "unknown key 'graded'"),
    "unknown exercise": (":answer: double", ":answer: treble", ":answer: treble", "unknown exercise 'treble'"),
    "check without answer": (":answer: double\n", ":tags: [demo]\n", ":check:", "without its answer before it"),
    "answer without check": (':check: double\n\ncheck("double", double)', "double(2)", ":answer:", "has no check"),
    "exercise without cell": (
        '+++ {"manual": "why"}\n\n### BEGIN SOLUTION\nBecause it is so.\n### END SOLUTION\n',
        "Prose.\n",
        None,
        "have no cell here: why",
    ),
    "check of another exercise": (
        'check("double", double)',
        'check("triple", double)',
        'check("triple"',
        "the check cell holds",
    ),
    "check of a result": ('check("double", double)', 'check("double", double(2))', "double(2)", "the check cell holds"),
    "check of another name": ('check("double", double)', 'check("double", twice)', 'check("double"', "passes 'twice'"),
    "a semicolon after the check": (
        'check("double", double)',
        'check("double", double);',
        "double);",
        "the check cell holds",
    ),
    "region not closed": (
        "    return x + x\n    ### END SOLUTION\n",
        "    return x + x\n",
        "### BEGIN",
        "is not closed",
    ),
    "region not opened": ("    ### BEGIN SOLUTION\n", "", "### END", "that has not begun"),
    "nested region": (
        "    return x + x\n",
        "    ### BEGIN SOLUTION\n    return x + x\n",
        "### BEGIN",
        "inside another",
    ),
    "region in prose": (
        "Write equation",
        "### BEGIN SOLUTION\nSecret\n### END SOLUTION\nWrite equation",
        "BEGIN",
        "neither an answer nor manual",
    ),
    "a mark misspelt": ("    ### END SOLUTION\n```", "    #### END SOLUTION\n```", "####", "write the mark as"),
    "an answer with nothing to fill in": (
        "    ### BEGIN SOLUTION\n    return x + x\n    ### END SOLUTION\n",
        "    return x + x\n",
        ":answer:",
        "no solution region",
    ),
    "an untouched answer that defines nothing": (
        'def double(x):\n    """Return twice x."""\n    ### BEGIN SOLUTION\n    return x + x\n    ### END SOLUTION',
        "### BEGIN SOLUTION\ndef double(x):\n    return x + x\n### END SOLUTION",
        ":answer:",
        "defines no name",
    ),
    "no Python": ("x = 1", "x = = 1", "x = = 1", "this is not Python"),
    "a magic": ("x = 1", "%matplotlib inline", "%matplotlib", "this is not Python"),
    "unknown citation": ("elman1990", "nobody1900", "nobody1900", "'nobody1900' is not in references.bib"),
    "unknown role": ("{cite:t}`elman1990`", "{kbd}`Ctrl`", "{kbd}", "unknown role {kbd}"),
    "unknown directive": ("Write equation", "```{mermaid}\na\n```\n\nWrite equation", "{mermaid}", "unknown directive"),
    "unknown equation": ("{eq}`eq-one`", "{eq}`eq-two`", "{eq}`eq-two`", "no equation of this chapter"),
    "a figure without its text": (":tags: [hide-input]", ":figure: fig-x", "```{code-cell}", "missing: alt, caption"),
    "a demo that is an answer": (
        ":answer: double\n",
        ":answer: double\n:demo: true\n",
        ":demo:",
        "no part of an exercise",
    ),
    "a checked exercise as manual": (
        '{"manual": "why"}',
        '{"manual": "double"}',
        '+++ {"manual": "double"}',
        "it cannot be a manual cell",
    ),
    "an id that is no word": (":answer: double", ":answer: [double]", ":answer: [", "an exercise's id"),
    "an id like a check's cell": (":answer: double", ":answer: re-check", ":answer: re", "an exercise's id"),
    "a region that cuts a statement": (
        "    ### BEGIN SOLUTION\n    return x + x\n",
        "    y = (x +\n    ### BEGIN SOLUTION\n    x)\n    return y\n",
        ":answer:",
        "defines no name",
    ),
    "hidden tests": ("x = 1", "### BEGIN HIDDEN TESTS\nx = 1", "HIDDEN", "nbgrader's hidden tests"),
    "a mark scheme in prose": ("Write equation", "BEGIN MARK SCHEME\nWrite equation", "MARK", "nbgrader's mark scheme"),
    "an error on a line that stands twice": (
        "x = 1\n",
        "print(1)\nif True:\nprint(1)  # here\n",
        "# here",
        "this is not Python",
    ),
    "a figure without alternative text": (
        ":tags: [hide-input]",
        ":figure: fig-x\n:caption: It.\n:alt: ''",
        ":alt:",
        "alt is some words",
    ),
    "a figure whose name is a list": (
        ":tags: [hide-input]",
        ":figure: [x]\n:caption: It.\n:alt: It.",
        ":figure:",
        "figure is some words",
    ),
    "an equation's label on its only line": (
        "Write equation",
        "$$ y = 1 $$ (eq-y)\n\nWrite equation",
        "(eq-y)",
        "write a labelled equation as",
    ),
    "a directive in a list": (
        "Write equation",
        "- One\n\n  ```{mermaid}\n  a\n  ```\n\nWrite equation",
        "  ```{mermaid}",
        "unknown directive",
    ),
}


@pytest.fixture
def project(tmp_path, root, monkeypatch):
    """A project with one good manuscript of two exercises; returns its path."""
    (tmp_path / "solutions").mkdir()
    shutil.copy(root / "references.bib", tmp_path)
    path = tmp_path / "solutions" / "01_test.md"
    path.write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr(rules.registry, "load", lambda slug: EXERCISES)
    return path


def rewritten(text):
    """A text as jupytext writes it, so that its only fault is the one planted."""
    return jupytext.writes(jupytext.reads(text, "md:myst"), "md:myst")


def faults_of(path):
    try:
        return rules.faults(manuscript.read(path))
    except manuscript.Faults as error:
        return error.faults


def test_a_good_manuscript_has_no_fault(project):
    assert faults_of(project) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_with_its_line_and_reason(project, name):
    old, new, line_with, reason = FAULTS[name]
    assert GOOD.count(old) == 1
    text = rewritten(GOOD.replace(old, new))
    project.write_text(text, encoding="utf-8")
    found = [fault for fault in faults_of(project) if reason in fault.reason]
    assert found, [str(fault) for fault in faults_of(project)]
    line = text.splitlines()[found[0].line - 1]
    assert line_with in line if line_with else found[0].line == 1, f"line {found[0].line} is named: {line!r}"
    assert found[0].path == project


def test_an_id_used_twice_is_named_at_its_second_place(project):
    again = '```{code-cell}\n:check: double\n\ncheck("double", double)\n```\n'
    project.write_text(rewritten(GOOD + "\n" + again), encoding="utf-8")
    (fault,) = [fault for fault in faults_of(project) if "stands twice" in fault.reason]
    lines = project.read_text().splitlines()
    assert fault.line > lines.index(":check: double") + 2


def test_of_two_regions_the_unclosed_one_is_named(project):
    again = "    ### END SOLUTION\n    ### BEGIN SOLUTION\n    return 1\n```"
    text = GOOD.replace("    ### END SOLUTION\n```", again)
    project.write_text(text, encoding="utf-8")
    (fault,) = [fault for fault in faults_of(project) if "is not closed" in fault.reason]
    assert fault.line == text.splitlines().index("    ### END SOLUTION") + 2


def test_a_label_used_twice_is_named_at_its_second_place(project):
    text = GOOD.replace("Write equation", "$$\ny = 2\n$$ (eq-one)\n\nWrite equation")
    project.write_text(text, encoding="utf-8")
    (fault,) = faults_of(project)
    assert "two equations of this chapter have the label 'eq-one'" in fault.reason
    assert fault.line == text.splitlines().index("y = 2") + 2


@pytest.mark.parametrize(
    ("old", "new", "line_with", "reason"),
    [
        ("  name: python3", "  name: [python3", "[python3", "does not parse"),
        (":tags: [hide-input]", ":tags: [hide-input", ":tags:", "does not parse"),
        (":tags: [hide-input]", ":figure: fig-x\n:caption: one: two", ":caption:", "does not parse"),
        ('+++ {"manual": "why"}', '+++ {"manual": "why"', "+++", "does not parse"),
        (":tags: [hide-input]", ":tags: hide-input", ":tags:", "no notebook can hold"),
        (":answer: double", ":answer: double\n:tags: [5]", ":tags: [5]", "no notebook can hold"),
        (":tags: [hide-input]", ":tags", ":tags", "no notebook can hold"),
        (":tags: [hide-input]", ":tags: [hide-input]\r", ":tags: [hide-input]", "LF line ends"),
    ],
)
def test_a_text_that_is_no_notebook_names_the_line(project, old, new, line_with, reason):
    text = GOOD.replace(old, new)
    project.write_bytes(text.encode())
    (fault,) = faults_of(project)
    assert reason in fault.reason
    assert line_with in text.split("\n")[fault.line - 1]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("@book{elman1990, author = {Elman, J.}, year = 1990}", "references.bib gives it no doi or url"),
        ("@book{elman1990, title = {T}, url = {u}}", "references.bib gives it no author or editor, year"),
        ("@book{other, author = {Elman, J.}", "references.bib:1: syntax error"),
    ],
)
def test_a_bibliography_that_cannot_be_cited_is_a_fault(project, capsys, entry, reason):
    root = project.parent.parent
    (root / "references.bib").write_text(entry, encoding="utf-8")
    assert command.run(root) == 2
    assert reason in capsys.readouterr().err
    assert not (root / "chapters").exists()


def test_a_text_that_is_not_utf8_is_named_with_its_line(project):
    project.write_bytes(GOOD.encode().replace(b"says:", b"says \xff:"))
    (fault,) = faults_of(project)
    assert "not UTF-8" in fault.reason
    assert "says" in GOOD.splitlines()[fault.line - 1]


def test_broken_yaml_is_a_fault(project):
    project.write_text(GOOD.replace(":tags: [hide-input]", "---\ntags: [hide-input\n---"), encoding="utf-8")
    (fault,) = faults_of(project)
    assert "YAML" in fault.reason


def test_a_text_that_jupytext_would_write_differently_names_the_line_and_the_cure(project):
    project.write_text(GOOD.replace("x = 1\n```\n", "x = 1\n```\n\n\n"), encoding="utf-8")
    (fault,) = faults_of(project)
    assert "jupytext --to md:myst 01_test.md" in fault.reason
    assert fault.line == GOOD.splitlines().index("## An exercise") + 1


def test_all_faults_of_all_manuscripts_are_reported_and_nothing_is_written(project, capsys):
    other = project.with_name("02_other.md")
    other.write_text(rewritten(GOOD.replace("elman1990", "nobody1900")), encoding="utf-8")
    project.write_text(rewritten(GOOD.replace("x = 1", "x = = 1").replace("eq-one`", "eq-two`")), encoding="utf-8")
    root = project.parent.parent
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert command.run(root) == 2
    said = capsys.readouterr().err
    for word in ("01_test.md:", "02_other.md:", "not Python", "no equation", "nobody1900"):
        assert word in said
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("slug", manuscript.slugs())
def test_every_manuscript_is_free_of_faults_and_as_jupytext_writes_it(slug):
    assert rules.faults(manuscript.read(manuscript.path_of(slug))) == []
