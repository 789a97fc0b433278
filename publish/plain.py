"""MyST that only a web page can show, written as the plain Markdown of a notebook."""

import re
from functools import cache
from pathlib import Path

from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent

ROLE = re.compile(r"\{([\w:-]+)\}`([^`]+)`")
DOC = re.compile(r"(.+?)\s*<(\w+)>")
LABELLED = re.compile(r"^\$\$\n(.*?)\n\$\$ \(([\w-]+)\)$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{([\w:-]+)\}", re.MULTILINE)

ROLES = {"cite:t", "cite:p", "eq", "doc"}
DIRECTIVES = {"note", "warning", "tip", "important", "dropdown"}  # those that jupyterlab-myst shows as boxes


def problems(markdown, known_citations, labels):
    """Yield (reason, text to look for) for each thing in a cell's prose that a notebook could not show.

    known_citations are the keys of references.bib, labels those of the chapter's equations.
    """
    for match in ROLE.finditer(markdown):
        role, target = match.groups()
        if role not in ROLES:
            yield f"unknown role {{{role}}}; known are: {', '.join(sorted(ROLES))}", match[0]
        if role == "doc" and not DOC.fullmatch(target):
            yield "write a link to a chapter as {doc}`its text <its slug>`", match[0]
        if role == "eq" and target not in labels:
            yield f"no equation of this chapter has the label {target!r}", match[0]
        if role.startswith("cite:"):
            for key in target.split(","):
                if key.strip() not in known_citations:
                    yield f"citation {key.strip()!r} is not in references.bib", match[0]
    for match in DIRECTIVE.finditer(markdown):
        if match[2] not in DIRECTIVES:
            yield f"unknown directive {{{match[2]}}}; known are: {', '.join(sorted(DIRECTIVES))}", match[0]


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
        return _cite([entries[key.strip()] for key in target.split(",")], textual=name == "cite:t")

    def tag(match):
        # with a star, since JupyterLab would add a number of its own to what stands between dollars
        body, label = match.groups()
        return f"\\begin{{equation*}}\n{body}\n\\tag{{{equations[label]}}}\n\\end{{equation*}}"

    return LABELLED.sub(tag, ROLE.sub(role, source))


@cache
def bibliography(root=ROOT):
    """Return the entries of references.bib by key."""
    return dict(parse_file(str(Path(root) / "references.bib"), bib_format="bibtex").entries.items())


def _cite(entries, textual):
    """Write a citation with its link: Elman (1990), or (Elman, 1990)."""
    separator, end = (" (", ")") if textual else (", ", "")
    links = [f"[{_names(e)}{separator}{e.fields['year']}{end}]({_address(e)})" for e in entries]
    return ", ".join(links) if textual else f"({'; '.join(links)})"


def _names(entry):
    names = [" ".join([*person.prelast_names, *person.last_names]) for person in entry.persons["author"]]
    if len(names) > 2:
        return f"{names[0]} et al."
    return " and ".join(names)


def _address(entry):
    return f"https://doi.org/{entry.fields['doi']}" if "doi" in entry.fields else entry.fields["url"]
