"""Runs a chapter's solved notebook, once: the result is kept by what it was made from."""

import ast
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm

from publish import notebooks
from publish.manuscript import ROOT, Fault, Faults, path_of, read

# Small networks run faster on one thread, and a figure's numbers do not depend on how work was divided.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
CELL_TIMEOUT = 300  # seconds

# This interpreter, not whichever python3 kernel the user has installed, nor that one's settings. A warning about the
# local connection between this process and the kernel would tell an author nothing.
KERNEL_COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]


def digest(slug, root=ROOT):
    """Return a digest of all that a chapter's outputs depend on, see `digest_of`."""
    return digest_of(notebooks.solved(read(path_of(slug, root)), root=root), Path(root))


def prepare(slugs, root=ROOT):
    """Run the chapters whose outputs are not kept, as many side by side as there are processors.

    What a chapter's run says of a fault is left to `executed`, which meets it again.
    """
    waiting = [slug for slug in slugs if not _kept(slug, digest(slug, root), root).is_file()]
    if len(waiting) < 2:
        return
    with ProcessPoolExecutor(min(os.cpu_count(), len(waiting)), get_context("spawn")) as pool:
        runs = [pool.submit(executed, slug, root, bar=False) for slug in waiting]
        for _ in tqdm(as_completed(runs), total=len(runs), desc="running chapters", unit="chapter", file=sys.stderr):
            pass


def _kept(slug, key, root):
    """Return the file that keeps a chapter's outputs."""
    return Path(root) / "_build" / "executed" / f"{slug}.{key}.ipynb"


def executed(slug, root=ROOT, bar=True):
    """Return a chapter's solved notebook with its outputs, run now or kept from an earlier run.

    Raises `Faults`, with the line in the manuscript, when a cell raises or writes to stderr: a published page shows
    neither; so does one that takes too long or ends its kernel. Says on stderr when it runs a chapter, with a bar of
    its cells if wanted, and how long that took.
    """
    root = Path(root)
    manuscript = read(path_of(slug, root))
    notebook = notebooks.solved(manuscript, root=root)
    kept = _kept(slug, digest_of(notebook, root), root)
    if kept.is_file():
        run = nbformat.read(kept, as_version=4)
        for cell, ran in zip(_code(notebook), _code(run), strict=True):  # in order: ids change with the prose around
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        return notebook
    _run(notebook, manuscript, bar)
    kept.parent.mkdir(parents=True, exist_ok=True)
    for outdated in kept.parent.glob(f"{slug}.*.ipynb"):
        outdated.unlink()
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, suffix=".part", delete=False) as part:
        part.write(notebooks.text(notebook))
    Path(part.name).replace(kept)
    return notebook


def _code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest_of(notebook, root):
    """Return a digest of all that a notebook's outputs depend on.

    That is its code cells, the modules of this project that they import, a chapter's own exercises, the files in
    data/ that any of these names, the pinned requirements and Python's version. Prose does not count.
    """
    sources = [cell.source for cell in _code(notebook)]
    chapter = notebook.metadata.get("recurrence", {}).get("slug")
    names = {f"autograde.exercises.{chapter}"} if chapter else set()  # imported by name, which no code shows
    imported = _imported(names.union(*map(_modules, sources)), root)
    readers = [*sources, *(path.read_text(encoding="utf-8") for path in imported)]
    files = [root / "requirements.txt", root / "constraints.txt", *imported, *_data(readers, root)]
    parts = [str(sys.version_info[:2]).encode(), *(source.encode() for source in sources)]
    parts += [part for path in files if path.is_file() for part in (path.name.encode(), path.read_bytes())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _data(sources, root):
    """Return the files in the project's data/ whose names stand in a piece of Python."""
    files = sorted(path for path in (root / "data").rglob("*") if path.is_file())
    return [path for path in files if any(path.name in source for source in sources)]


def _imported(names, root):
    """Return the files of this project's modules with these dotted names, and of those that they import in turn."""
    files, waiting = set(), sorted(names)
    while waiting:
        found = _files(waiting.pop(), root) - files
        files |= found
        for path in found:
            waiting += _modules(path.read_text(encoding="utf-8"))
    return sorted(files)


def _files(name, root):
    """Return the files of this project that run when a dotted name is imported: the module's and its packages'."""
    parts = name.split(".")
    places = [root.joinpath(*parts[: length + 1]) for length in range(len(parts))]
    candidates = [path for place in places for path in (place / "__init__.py", place.with_name(f"{place.name}.py"))]
    return {path for path in candidates if path.is_file()}


@cache  # chapters import the same modules, and a build asks for each chapter's digest three times
def _modules(source):
    """Return the dotted names that a piece of Python imports; of `from a import b` also a.b, which may be a module."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    absolute = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return plain.union(*({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} for node in absolute))


def _run(notebook, manuscript, bar=True):
    """Execute a notebook in place, in an empty folder, on the interpreter that is running now."""
    started = time.perf_counter()
    current, metadata = 0, dict(notebook.metadata)

    def begin(cell_index, **_):
        nonlocal current
        current = cell_index

    # Where matplotlib was never imported it lists the fonts first, and says so in the chapter if that takes long.
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as settings,
        tqdm(
            total=len(_code(notebook)),
            desc=f"running {manuscript.slug}",
            unit="cell",
            file=sys.stderr,
            disable=not bar,
        ) as progress,
    ):
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_TIMEOUT,
            record_timing=False,
            coalesce_streams=True,  # which pieces a text arrives in is chance
            resources={"metadata": {"path": folder}},
            on_cell_start=begin,
            on_cell_executed=lambda **_: progress.update(),
        )
        kernel = client.create_kernel_manager().kernel_spec
        kernel.argv, kernel.env = KERNEL_COMMAND, {}
        try:
            client.execute(env={**os.environ, **ENVIRONMENT, "IPYTHONDIR": settings})
        except CellExecutionError as error:
            raise _fault(manuscript, current, f"the cell raises {error.ename}: {error.evalue}") from None
        except CellTimeoutError:
            raise _fault(manuscript, current, f"the cell has not ended after {CELL_TIMEOUT} s") from None
        except DeadKernelError:
            raise _fault(manuscript, current, "the cell ends its kernel") from None
    notebook.metadata = nbformat.from_dict(metadata)  # without the language's exact version, which the run adds
    for index, cell in enumerate(notebook.cells):
        _drop_cleared_bars(cell)
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise _fault(manuscript, index, f"the cell writes to stderr: {output.text.strip()[:300]}")
    print(f"ran {manuscript.slug} in {time.perf_counter() - started:.0f} s", file=sys.stderr)


def _drop_cleared_bars(cell):
    """Drop the blanks that a cleared progress bar ends with; nbclient has carried out its other carriage returns."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            output.text = re.sub(r" *\r\Z", "", output.text)
    if cell.cell_type == "code":
        cell.outputs = [output for output in cell.outputs if output.output_type != "stream" or output.text.strip()]


def _fault(manuscript, index, reason):
    return Faults([Fault(manuscript.path, manuscript.lines[index], reason)])
