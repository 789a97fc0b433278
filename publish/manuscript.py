"""Reads a chapter's manuscript, the MyST text in `solutions/`, and refuses one with a fault."""

from dataclasses import dataclass
from pathlib import Path

import jupytext
import yaml
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from nbformat import NotebookNode

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

    `notebook` holds the prose in MyST and the manuscript's own keys in the cells' metadata; `lines` gives, for each
    cell, the line of the file at which it starts, counted from 1.
    """

    slug: str
    path: Path
    notebook: NotebookNode
    lines: tuple[int, ...]


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
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Faults([Fault(path, 1, "there is no such manuscript")]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Faults([Fault(path, line, "this is not UTF-8 text; save the file as UTF-8")]) from None
    try:
        mapped = myst_to_notebook(text, add_source_map=True)
        notebook = jupytext.reads(text, fmt=FORMAT)
    except (MystMetadataParsingError, yaml.YAMLError) as error:
        raise Faults([Fault(path, 1, f"the YAML of the header or of a cell does not parse: {error}")]) from None
    lines = tuple(line + 1 for line in mapped.metadata["source_map"])
    _check_round_trip(path, text, notebook)
    return Manuscript(path.stem, path, notebook, lines)


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
