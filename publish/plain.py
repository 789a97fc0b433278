"""MyST that only a web page can show, written as the plain Markdown of a notebook."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pybtex.database import parse_file
from pybtex.richtext import Text

from publish import selfcheck

ROOT = Path(__file__).resolve().parent.parent

ROLE = re.compile(r"\{([\w:-]+)\}`([^`]+)`")
DOC = re.compile(r"(.+?)\s*<(\w+)>")
NAMED = re.compile(r"(.+?)\s*<([^<>]+)>")
LABELLED = re.compile(r"^\$\$\n((?:(?!\$\$).)*)\n\$\$ \(([\w-]+)\)$", re.MULTILINE | re.DOTALL)
LABEL = re.compile(r"\$\$[ \t]*\([\w-]+\)[ \t]*$", re.MULTILINE)
GLOSSARY = re.compile(r"^(`{3,}|:{3,})\{glossary\}.*\n((?:.*\n)*?)\1", re.MULTILINE)
LINK = re.compile(r"\]\(#([^)\s]*)\)")
DIRECTIVE = re.compile(r"^[ \t>]*(`{3,}|:{3,})\{([\w:-]+)\}", re.MULTILINE)

ROLES = {"cite:t", "cite:p", "eq", "doc", "ref", "term"}
DIRECTIVES = {"note", "warning", "tip", "important", "dropdown"}  # those that jupyterlab-myst shows as boxes


@dataclass(frozen=True)
class Known:
    """What the prose of a chapter may refer to."""

    entries: dict  # of references.bib, by key
    terms: set  # of the glossary, in lower case
    equations: list  # their labels
    figures: set  # their names
    sections: set  # the anchors of the headings


def problems(markdown, known):
    """Yield (reason, place) for each thing in a cell's prose that a notebook could not show, place its first character.

    known is what the chapter may refer to.
    """
    for match in ROLE.finditer(markdown):
        role, target = match.groups()
        if role not in ROLES:
            yield f"unknown role {{{role}}}; known are: {', '.join(sorted(ROLES))}", match.start()
        for reason in _unknown(role, target, known):
            yield reason, match.start()
    for match in LINK.finditer(markdown):
        if match[1] not in known.sections:
            yield f"no heading of this chapter has the anchor #{match[1]}", match.start(1)
    for match in DIRECTIVE.finditer(markdown):
        if match[2] == "selfcheck":
            if not selfcheck.OPEN.match(markdown, match.start(1)):
                yield "begin a self-check with `:::{selfcheck} an-id`, at the beginning of its line", match.start(1)
        elif match[2] not in DIRECTIVES:
            allowed = ", ".join(sorted({*DIRECTIVES, "selfcheck"}))
            yield f"unknown directive {{{match[2]}}}; known are: {allowed}", match.start(1)
    whole = {match.end() for match in LABELLED.finditer(markdown)}
    for match in LABEL.finditer(markdown):
        if match.end() not in whole:
            yield "write a labelled equation as a line `$$`, its lines, and a line `$$ (label)`", match.start()
    yield from selfcheck.problems(markdown)


def _unknown(role, target, known):
    """Yield what is wrong with a role's target."""
    text, name = named.groups() if (named := NAMED.fullmatch(target)) else ("", target)
    if role == "doc" and not DOC.fullmatch(target):
        yield "write a link to a chapter as {doc}`its text <its slug>`"
    if role == "eq" and target not in known.equations:
        yield f"no equation of this chapter has the label {target!r}"
    if role == "ref" and not text:
        yield "write a reference to a figure as {ref}`its text <its name>`"
    elif role == "ref" and name not in known.figures:
        yield f"no figure of this chapter has the name {name!r}"
    if role == "term" and name.lower() not in known.terms:
        yield f"appendices/glossary.md has no term {name!r}"
    if role.startswith("cite:"):
        for key in map(str.strip, target.split(",")):
            if key not in known.entries:
                yield f"citation {key!r} is not in references.bib"
            elif missing := _missing(known.entries[key]):
                yield f"citation {key!r} cannot be printed: references.bib gives it no {missing}"


def markdown(cells, chapter, root=ROOT):
    """Return the sources of a chapter's Markdown cells, in order, as plain Markdown.

    cells are the sources of its Markdown cells; chapter is its number, for the numbers of its equations.
    """
    equations = {label: f"{chapter}.{number}" for number, label in enumerate(labels(cells), start=1)}
    return [_plain(source, equations, bibliography(root)) for source in cells]


def labels(cells):
    """Return the labels of the equations in Markdown cells, in order."""
    return [label for source in cells for _, label in LABELLED.findall(source)]


def _plain(source, equations, entries):
    def role(match):
        name, target = match.groups()
        if name == "eq":
            return f"({equations[target]})"
        if name == "doc":
            text, path = DOC.fullmatch(target).groups()
            return f"[{text}]({path}.ipynb)"
        if name in {"ref", "term"}:
            text = named[1] if (named := NAMED.fullmatch(target)) else target
            return f"*{text}*" if name == "term" else text
        return _cite([entries[key.strip()] for key in target.split(",")], textual=name == "cite:t")

    def tag(match):
        # with a star, since JupyterLab would add a number of its own to what stands between dollars
        body, label = match.groups()
        return f"\\begin{{equation*}}\n{body}\n\\tag{{{equations[label]}}}\n\\end{{equation*}}"

    return LABELLED.sub(tag, ROLE.sub(role, selfcheck.plain(source)))


def glossary(root=ROOT):
    """Return the terms of the glossary in lower case, none where there is no glossary."""
    path = Path(root) / "appendices" / "glossary.md"
    text = path.read_text("utf-8") if path.is_file() else ""
    lines = [line for match in GLOSSARY.finditer(text) for line in match[2].splitlines()]
    return {line.strip().lower() for line in lines if re.match(r"[^\s:]", line)}


@cache
def bibliography(root=ROOT):
    """Return the entries of references.bib by key. Raises pybtex's `PybtexError` when the file is no bibliography."""
    return dict(parse_file(str(Path(root) / "references.bib"), bib_format="bibtex").entries.items())


def _cite(entries, textual):
    """Write a citation with its link: Elman (1990), or (Elman, 1990)."""
    separator, end = (" (", ")") if textual else (", ", "")
    links = [f"[{_names(e)}{separator}{e.fields['year']}{end}]({_address(e)})" for e in entries]
    return ", ".join(links) if textual else f"({'; '.join(links)})"


def _names(entry):
    people = entry.persons.get("author") or entry.persons["editor"]
    names = [" ".join(str(Text.from_latex(name)) for name in (*p.prelast_names, *p.last_names)) for p in people]
    if len(names) > 2:
        return f"{names[0]} et al."
    return " and ".join(names)


def _missing(entry):
    """Name what an entry lacks of what a citation in a notebook is made of, or return an empty string."""
    lacks = {
        "author or editor": not (entry.persons.get("author") or entry.persons.get("editor")),
        "year": "year" not in entry.fields,
        "doi or url": "doi" not in entry.fields and "url" not in entry.fields,  # fields ignore case, a set would not
    }
    return ", ".join(name for name, lacking in lacks.items() if lacking)


def _address(entry):
    return f"https://doi.org/{entry.fields['doi']}" if "doi" in entry.fields else entry.fields["url"]
