"""The command line of the build: `python -m publish [--check]`."""

import os
import sys
import tempfile
from pathlib import Path

import click
import nbformat
from pybtex.exceptions import PybtexError

from publish import notebooks, plain, rules
from publish.manuscript import ROOT, Fault, Faults, path_of, read, slugs


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 when chapters/ is not what the manuscripts give."
)
def main(check):
    """Make every chapter's notebooks from its manuscript in solutions/.

    Writes the solved notebook to _build/source/SLUG/SLUG.ipynb and the student's to chapters/SLUG.ipynb. Exits with
    0 when done, 2 when a manuscript has a fault; then every fault is named and nothing is written.
    """
    sys.exit(run(ROOT, check))


def run(root, check=False):
    """Build, then write or compare; return the exit code."""
    if not slugs(root):
        click.echo("publish: there is no solutions/ here (the student edition), so there is nothing to build")
        return 0
    try:
        files = build(root)
    except Faults as error:
        click.echo(str(error), err=True)
        return 2
    if check:
        return report_differences(files, root)
    write(files, root)
    return 0


def build(root=ROOT):
    """Return {path: text} of every notebook that the manuscripts give. Raises `Faults` with those of all chapters."""
    files, faults = {}, []
    try:
        bibliography = plain.bibliography(root)
    except PybtexError as error:
        raise Faults([Fault(root / "references.bib", getattr(error, "lineno", None) or 1, str(error))]) from None
    terms = plain.glossary(root)
    for slug in slugs(root):
        try:
            manuscript = read(path_of(slug, root))
        except Faults as error:
            faults += error.faults
            continue
        if found := rules.faults(manuscript, bibliography=bibliography, terms=terms):
            faults += found
            continue
        source = notebooks.solved(manuscript, root=root)
        files[root / "_build" / "source" / slug / f"{slug}.ipynb"] = notebooks.text(source)
        files[root / "chapters" / f"{slug}.ipynb"] = notebooks.text(notebooks.student(source, root))
    if faults:
        raise Faults(faults)
    return files


def write(files, root=ROOT):
    """Write the notebooks that changed, each in one move, and remove those whose manuscript is gone."""
    for path, text in files.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            click.echo(f"publish: {path.relative_to(root)} is up to date")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as part:
            part.write(text)
        Path(part.name).chmod(0o666 & ~_umask())
        Path(part.name).replace(path)
        click.echo(f"publish: wrote {path.relative_to(root)}")
    for path in stale(files, root):
        path.unlink()
        click.echo(f"publish: removed {path.relative_to(root)}, whose manuscript is gone")


def stale(files, root=ROOT):
    """Return the generated notebooks in chapters/ that no manuscript gives any more."""
    others = [path for path in root.glob("chapters/*.ipynb") if path not in files]
    return [path for path in others if _is_ours(path)]


def _is_ours(path):
    try:
        return "recurrence" in nbformat.read(path, as_version=4).metadata
    except (nbformat.reader.NotJSONError, nbformat.ValidationError):
        return False


def report_differences(files, root=ROOT):
    """Print how chapters/ differs from what the manuscripts give; return the exit code, 1 if it does."""
    different = [f"{path.relative_to(root)} has no manuscript" for path in stale(files, root)]
    for path, text in files.items():
        if path.parent.name != "chapters":
            continue
        if not path.is_file():
            different.append(f"{path.relative_to(root)} is missing")
        elif path.read_text(encoding="utf-8") != text:
            different.append(f"{path.relative_to(root)} differs, first in {first_difference(path, text)}")
    for line in different:
        click.echo(f"publish: {line}", err=True)
    if different:
        click.echo("publish: run `python -m publish` and commit chapters/", err=True)
    return 1 if different else 0


def first_difference(path, text):
    """Name the first cell in which a notebook's file differs from a notebook's text."""
    try:
        found = nbformat.read(path, as_version=4)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError):
        return "its form: it is no notebook"
    wanted = nbformat.reads(text, as_version=4)
    for number, cell in enumerate(wanted.cells, start=1):
        if number > len(found.cells) or found.cells[number - 1] != cell:
            return f"cell {number} ({cell.id})"
    return "its metadata or its end"


def _umask():
    current = os.umask(0)
    os.umask(current)
    return current


if __name__ == "__main__":
    main(prog_name="python -m publish")
