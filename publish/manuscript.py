"""Reads a chapter's manuscript, the MyST text in `solutions/`, and refuses one with a fault."""

import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import jupytext
import yaml
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from nbformat import NotebookNode, ValidationError

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "md:myst"


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that is wrong with a manuscript: where it stands and why it cannot be built."""

    path: Path
    line: int
    reason: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.reason}"


class Faults(Exception):
    """Raised for manuscripts that cannot be built; `faults` lists every `Fault` found."""

    def __init__(self, faults):
        self.faults = sorted(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True)
class Manuscript:
    """A chapter as its author wrote it.

    `text` is the file; `notebook` holds the prose in MyST and the manuscript's own keys in the cells' metadata; `lines`
    gives, for each cell, the line of the file at which it starts (a code cell's fence, a prose cell's `+++` or its
    first line), counted from 1.
    """

    slug: str
    path: Path
    text: str
    notebook: NotebookNode
    lines: tuple[int, ...]

    def line_of(self, index, key=None, at=None):
        """Return the line of the file on which a cell starts, or has a key, or has line `at` (from 0) of its source."""
        found, source = self.text.splitlines(), self.notebook.cells[index].source.splitlines()
        start = self.lines[index]
        below = range(start - 1, len(found))
        body = next((n for n in below if source and found[n : n + len(source)] == source), start - 1) + 1
        if at is not None:
            return body + at
        named = re.compile(rf':?{re.escape(str(key))}:|\+\+\+ .*"{re.escape(str(key))}"')
        return next((n for n in range(start, body) if named.match(found[n - 1])), start)


def slugs(root=ROOT):
    """Return the slugs of all manuscripts, in the order of the chapters; none in the student edition."""
    return sorted(path.stem for path in Path(root).glob("solutions/[0-9][0-9]_*.md"))


def path_of(slug, root=ROOT):
    """Return the path of a chapter's manuscript."""
    return Path(root) / "solutions" / f"{slug}.md"


def read(path):
    """Return the `Manuscript` in a file. Raises `Faults` when the file cannot be read as one.

    What the cells say is not judged here; see `publish.rules`.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")  # with its line ends as they are: a round trip keeps every byte
    except FileNotFoundError:
        raise Faults([Fault(path, 1, "there is no such manuscript")]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Faults([Fault(path, line, "this is not UTF-8 text; save the file as UTF-8")]) from None
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        raise Faults([Fault(path, line, "this line ends as on Windows (CRLF); save the file with LF line ends")])
    try:
        mapped = myst_to_notebook(text, add_source_map=True)
        notebook = jupytext.reads(text, fmt=FORMAT)
    except (MystMetadataParsingError, yaml.YAMLError) as error:
        reason = f"the YAML of the header or of a cell does not parse: {error}"
        raise Faults([Fault(path, _yaml_line(text, str(error)), reason)]) from None
    except (ValidationError, AttributeError) as error:
        reason = f"no notebook can hold this header or key: {str(error).strip().splitlines()[0]}"
        raise Faults([Fault(path, _refused_line(text), reason)]) from None
    _check_round_trip(path, text, notebook)
    found = text.splitlines()
    starts = zip(mapped.metadata["source_map"], notebook.cells, strict=True)
    lines = tuple(_start(found, line, cell) for line, cell in starts)
    return Manuscript(path.stem, path, text, notebook, lines)


def _start(found, line, cell):
    """Return the line at which a cell starts, from jupytext's: of prose, that is the line before it, blank or not."""
    if cell.cell_type != "markdown" or found[line - 1].startswith("+++"):
        return line
    return next(n for n in range(line + 1, len(found) + 1) if found[n - 1].strip())


def _yaml_line(text, message):
    """Return the line of the file that jupytext's message is about: it counts from the block's own first line."""
    block = int(match[1]) if (match := re.search(r"at line (\d+)", message)) else 1
    inside = re.search(r'in "<unicode string>", line (\d+)', message)
    dashes = "\n".join(text.splitlines()[block : block + 1]) == "---"
    return block + (int(inside[1]) + dashes if inside else 0)


def _refused_line(text):
    """Return the first line with which a text is no notebook any more; jupytext does not say it."""
    lines = text.splitlines()

    def refused(count):
        try:
            myst_to_notebook("\n".join(lines[:count]))
        except (ValidationError, AttributeError):
            return True
        except (MystMetadataParsingError, yaml.YAMLError):
            return False  # cut off inside a block
        return False

    return bisect_left(range(len(lines)), True, key=refused)


def _check_round_trip(path, text, notebook):
    """Raise `Faults` where jupytext would write the file differently: then JupyterLab would, too."""
    written = jupytext.writes(notebook, fmt=FORMAT)
    if written == text:
        return
    pairs = zip([*text.splitlines(), None], [*written.splitlines(), None], strict=False)
    line, (found, wanted) = next(
        ((number, pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]), (1, (text[-1:], ""))
    )
    reason = f"jupytext writes this as {wanted!r}, here it is {found!r}; run `jupytext --to {FORMAT} {path.name}`"
    raise Faults([Fault(path, line, reason)])
