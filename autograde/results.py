"""Keeps in the course what grading a notebook gave, under a digest of all that it depends on."""

import contextlib
import hashlib
import json
import os
import platform
import secrets
import threading
import time
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from autograde.course import Problem
from autograde.notebook import grade_id, is_test
from autograde.sandbox import READ

ROOT = Path(__file__).resolve().parent.parent
SEED, CACHE = ".seed", ".graded"  # in a course


def graded(nb, source, box, seed):
    """Grade a sanitised notebook in a sandbox; return the result as plain data.

    That is {"verdicts", "outputs", "passed", "problem"}, as in `grader.Result`, and "seconds", the time it took.
    """
    from autograde.grader import grade  # noqa: PLC0415, it needs PyTorch, which a result that was kept does not

    start = time.perf_counter()
    result = grade(nb, source, box, seed)
    return {
        "verdicts": {name: _plain(verdict) for name, verdict in result.verdicts.items()},
        "outputs": {str(place): shown for place, shown in result.outputs.items()},
        "passed": result.passed,
        "problem": result.problem,
        "seconds": round(time.perf_counter() - start, 3),
    }


def cached(course, nb, source, box, run=graded):
    """Return the result for a sanitised notebook, from the course's cache, or graded now by `run`, as `graded` does.

    That is what `graded` returns, and "digest", of all that it depends on.
    """
    seed = seed_of(course)
    digest = key(nb, source, seed, box)
    if found := _read(course, digest):
        return found
    found = run(nb, source, box, seed) | {"digest": digest}
    path = _place(course, digest)
    path.parent.mkdir(exist_ok=True)
    write(path, json.dumps(found))
    return found


def _plain(verdict):
    return {
        "exercise": verdict.id,
        "points": verdict.points,
        "score": verdict.score,
        "html": verdict._repr_html_(),
        "named": list(verdict.named),
        "kind": verdict.kind,
    }


def _place(course, digest):
    return course / CACHE / f"{digest}.json"


def _read(course, digest):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(_place(course, digest).read_text("utf-8"))
    return None


def note(course, assignment, student, notebook, result):
    """Note which result a student's notebook has in the gradebook."""
    folder = _notes(course, assignment, student)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / notebook, result["digest"])


def noted(course, assignment, student):
    """Return the results that a student's notebooks have in the gradebook, as far as they are known."""
    notes = (path for path in _notes(course, assignment, student).glob("*") if path.suffix != ".new")
    digests = (path.read_text("utf-8") for path in notes)
    return [result for result in (_read(course, digest) for digest in digests) if result]


def _notes(course, assignment, student):
    return course / CACHE / "of" / assignment / student


def write(path, text):
    """Write a file whole or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")  # two may hand in the same
    new.write_text(text, "utf-8")
    new.replace(path)


def seed_of(course):
    """Return the seed of a course's graded runs: drawn once, kept, and the course's only secret.

    Raises `Problem` where the file that keeps it holds something else.
    """
    path = course / SEED
    if not path.exists():
        new = path.with_name(f"{SEED}.{os.getpid()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{secrets.randbits(60)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(new, path)  # of two runs at once, the first to come here wins
        new.unlink()
    text = path.read_text("utf-8", errors="replace").strip()
    if not text.isdecimal():
        raise Problem(
            f"{path} holds no whole number, which the course's seed is: put it back, or delete the file; "
            "then a new seed is drawn, and everything is graded again with other cases"
        )
    return int(text)


def key(nb, source, seed, box):
    """Return a digest of all that a result depends on; of the sandbox, whether it confines, and its limits."""
    books = (nb, source)
    told = [[(c.cell_type, c.source, c.metadata.get("tags"), grade_id(c), is_test(c)) for c in b.cells] for b in books]
    limits = [box.confined, asdict(box.limits)]
    parts = json.dumps([told, nb.metadata.get("unreadable"), seed, limits, environment()])
    return hashlib.sha256(parts.encode()).hexdigest()


@lru_cache
def environment():
    """Return what a result depends on besides notebooks, seed and limits, {name: version}: the same on any machine."""
    files = [*sorted((ROOT / "autograde").rglob("*.py")), ROOT / "rnncore.py", ROOT / "rnnplot.py"]
    for path in (ROOT / name for name in READ):
        files += [path] if path.is_file() else sorted(inner for inner in path.rglob("*") if inner.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    versions = {"Python": platform.python_version(), "NumPy": np.__version__, "PyTorch": version("torch")}
    return {"files of the course": digest, **versions}
