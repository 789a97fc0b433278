"""Runs a chapter's solved notebook, once: the result is kept by what it was made from."""

import ast
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tqdm import tqdm

from publish import notebooks
from publish.manuscript import ROOT, Fault, Faults, path_of, read

# Small networks run faster on one thread, and a figure's numbers do not depend on how work was divided.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
CELL_TIMEOUT = 300  # seconds

# This interpreter, not whichever python3 kernel the user has installed. A warning about the local connection between
# this process and the kernel would tell an author nothing.
KERNEL_COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]


def digest(slug, root=ROOT):
    """Return a digest of all that a chapter's outputs depend on.

    That is its code cells, the modules of this project that they import, the pinned requirements and Python's
    version. Prose does not count.
    """
    return _digest(notebooks.solved(read(path_of(slug, root)), root=root), Path(root))


def executed(slug, root=ROOT):
    """Return a chapter's solved notebook with its outputs, run now or kept from an earlier run.

    Raises `Faults`, with the line in the manuscript, when a cell raises or writes to stderr: a published page shows
    neither. Says on stderr when it runs a chapter, and how long that took.
    """
    root = Path(root)
    manuscript = read(path_of(slug, root))
    notebook = notebooks.solved(manuscript, root=root)
    kept = root / "_build" / "executed" / f"{slug}.{_digest(notebook, root)}.ipynb"
    if kept.is_file():
        outputs = {cell.id: cell.get("outputs", []) for cell in nbformat.read(kept, as_version=4).cells}
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = outputs[cell.id]
        return notebook
    _run(notebook, manuscript)
    kept.parent.mkdir(parents=True, exist_ok=True)
    for outdated in kept.parent.glob(f"{slug}.*.ipynb"):
        outdated.unlink()
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, suffix=".part", delete=False) as part:
        part.write(notebooks.text(notebook))
    Path(part.name).replace(kept)
    return notebook


def _digest(notebook, root):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    imported = _imported([cell.source for cell in code], root)
    files = [root / "requirements.txt", root / "constraints.txt", *imported]
    parts = [str(sys.version_info[:2]), *(text for cell in code for text in (cell.id, cell.source))]
    parts += [path.read_text(encoding="utf-8") for path in files if path.is_file()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _imported(sources, root):
    """Return the files of this project's modules that code imports, whole packages, and what those import in turn."""
    files, waiting = set(), list(sources)
    while waiting:
        for name in sorted(_modules(waiting.pop())):
            module, package = root / f"{name}.py", root / name
            found = {module} if module.is_file() else set(package.rglob("*.py")) if package.is_dir() else set()
            waiting += [path.read_text(encoding="utf-8") for path in found - files]
            files |= found
    return sorted(files)


def _modules(source):
    """Return the top-level modules that a piece of Python imports."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    relative_to = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | relative_to}


def _run(notebook, manuscript):
    """Execute a notebook in place, in an empty folder, on the interpreter that is running now."""
    started = time.perf_counter()
    code = sum(cell.cell_type == "code" for cell in notebook.cells)
    with (
        tempfile.TemporaryDirectory() as folder,
        tqdm(total=code, desc=f"running {manuscript.slug}", unit="cell", file=sys.stderr) as progress,
    ):
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_TIMEOUT,
            record_timing=False,
            resources={"metadata": {"path": folder}},
            on_cell_executed=lambda **_: progress.update(),
        )
        client.create_kernel_manager().kernel_spec.argv = KERNEL_COMMAND
        try:
            client.execute(env={**os.environ, **ENVIRONMENT, "MPLBACKEND": _inline()})
        except CellExecutionError as error:
            failed = next(i for i, cell in enumerate(notebook.cells) if _failed(cell))
            raise _fault(manuscript, failed, f"the cell raises {error.ename}: {error.evalue}") from None
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise _fault(manuscript, index, f"the cell writes to stderr: {output.text.strip()[:300]}")
    print(f"ran {manuscript.slug} in {time.perf_counter() - started:.0f} s", file=sys.stderr)


def _inline():
    return "module://matplotlib_inline.backend_inline"


def _failed(cell):
    return any(output.output_type == "error" for output in cell.get("outputs", []))


def _fault(manuscript, index, reason):
    return Faults([Fault(manuscript.path, manuscript.lines[index], reason)])
