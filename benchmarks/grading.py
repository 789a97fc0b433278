"""Grades the same class twice, by stock nbgrader and by this project: `python benchmarks/grading.py`.

The submissions are the sample class's, over and over, of each chapter as it is and of the first without its demos.
Stock nbgrader runs as it comes, on some of them; ours grades all. Times hold the gradebook and the feedback pages, and
ours also the start of the sandbox. Memory is watched while a few more are graded, since watching takes time. Prints a
table and writes grading.md beside this file.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbgrader.apps.api import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from autograde import classroom, exercises, results, sample
from autograde.course import Course, quietly
from autograde.release import ROOT, release

HERE = Path(__file__).resolve().parent


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--stock", type=int, default=6, help="how many of them stock nbgrader grades")
    parser.add_argument("--many", type=int, nargs="*", default=[], help="grade so many as well: how does time grow?")
    parser.add_argument("--out", type=Path, default=HERE / "grading.md", help="the table to write")
    options = parser.parse_args(arguments)
    chapters = exercises.chapters()
    if missing := [slug for slug in chapters if not (ROOT / "_build" / "source" / slug).is_dir()]:
        parser.error(f"there is no solved notebook of {', '.join(missing)} in _build/source; run `make chapters` first")
    lines = ["| notebook | graded by | submissions | seconds each | throughput, to stock |", "|---|---|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        peak, first = 0.0, chapters[0]
        for slug, demos in ((first, False), *((slug, True) for slug in chapters)):
            title = slug if demos else f"{slug} without its demos"
            place = Path(folder) / title
            course = a_class(place / "ours", slug, options.submissions, demos)
            shutil.copytree(course.root, place / "stock")
            by_stock = stock(place / "stock", slug, options.stock) / options.stock
            ours = timed(lambda: classroom.grade(course, slug)) / options.submissions  # noqa: B023, called at once
            again = timed(lambda: classroom.grade(course, slug)) / options.submissions  # noqa: B023
            watched = a_class(place / "watched", slug, options.stock, demos)
            with private_memory() as found:
                classroom.grade(watched, slug)
            peak = max(peak, *found)
            print(f"{title}: stock {by_stock:.2f} s, here {ours:.2f} s, {again:.2f} s")  # the table comes at the end
            lines += [
                f"| {title} | stock nbgrader | {options.stock} | {by_stock:.2f} | 1.0 |",
                f"| {title} | this project | {options.submissions} | {ours:.2f} | {by_stock / ours:.1f} |",
                f"| {title} | this project, nothing changed | {options.submissions} | {again:.2f} | |",
            ]
        run, rest = parts(Path(folder) / "parts", first, options.submissions)
        lines += [
            f"| {first} | of it, the run alone, on one processor | {options.submissions} | {run:.2f} | |",
            f"| {first} | of it, gradebook and feedback | {options.submissions} | {rest:.2f} | |",
        ]
        for many in options.many:
            course = a_class(Path(folder) / f"{many}", first, many)
            each = timed(lambda: classroom.grade(course, first)) / many  # noqa: B023
            lines += [f"| {first} | this project | {many} | {each:.2f} | |"]
    where = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    memory = f"On {where}. A notebook's process took at most {peak:.0f} MB of its own, beside what all share."
    options.out.write_text("\n".join(["<!-- written by benchmarks/grading.py -->", *lines, "", memory]) + "\n", "utf-8")
    print("\n".join([*lines, "", memory]))
    return 0


def parts(folder, slug, submissions):
    """Return the seconds that a submission takes to run, one at a time, and those for gradebook and page after that."""
    course = a_class(folder / "run", slug, submissions)
    known = Course(shutil.copytree(course.root, folder / "known"))
    classroom.grade(course, slug, jobs=1)
    shutil.copy(course.root / results.SEED, known.root)
    (known.root / results.CACHE).mkdir()
    seconds = 0.0
    for path in course.root.glob(f"{results.CACHE}/*.json"):
        seconds += json.loads(path.read_text("utf-8"))["seconds"]
        shutil.copy(path, known.root / results.CACHE)
    return seconds / submissions, timed(lambda: classroom.grade(known, slug)) / submissions


@contextmanager
def private_memory():
    """Yield a list whose only entry becomes the most megabytes that a notebook's process had to itself."""
    peak, done = [0.0], threading.Event()

    def watch():
        while not done.wait(0.05):
            parents = {path.name: path for path in workers()}
            children = [path for path in parents.values() if ppid(path) in parents]
            peak[0] = max([peak[0], *map(private, children)])

    thread = threading.Thread(target=watch)
    thread.start()
    yield peak
    done.set()
    thread.join()


def workers():
    """Yield the folders in /proc of the sandbox's processes, the parent's among them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"autograde.worker" in path.read_bytes() and b"bwrap" not in path.read_bytes():
                yield path.parent
        except OSError:
            continue


def ppid(process):
    """Return the number of a process's parent, as text; "" if it is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


def private(process):
    """Return the megabytes that a process wrote for itself; a library's pages lie in memory once, for all."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def a_class(folder, slug, submissions, demos=True):
    """Return a course with so many submissions, those of the sample class over and over."""
    course = released(folder, slug, (lambda nb: None) if demos else without_demos)
    sample.hand_in(course, slug)
    students = sorted(path for path in (course.root / "submitted").iterdir())
    for number in range(submissions):
        source = students[number % len(students)]
        shutil.copytree(source, course.root / "submitted" / f"{source.name}-{number:04d}")
        path = course.root / "submitted" / f"{source.name}-{number:04d}" / slug / f"{slug}.ipynb"
        path.write_text(path.read_text("utf-8").replace('"cells": [', f'"cells": [{note(number)},', 1), "utf-8")
    for path in students:
        shutil.rmtree(path)
    return course


def released(folder, slug, change):
    """Return a course in which a chapter is released, after a change of its solved notebook."""
    course, root = Course(folder), Path(folder) / "project"
    source = Path("_build") / "source" / slug / f"{slug}.ipynb"
    notebook = nbformat.read(ROOT / source, as_version=4)
    change(notebook)
    (root / source).parent.mkdir(parents=True)
    nbformat.write(notebook, root / source)
    release(course, slug, root)
    return course


def without_demos(notebook):
    """Leave the demos of a notebook out."""
    notebook.cells = [cell for cell in notebook.cells if "demo" not in cell.metadata.get("tags", [])]


def note(number):
    """Return a cell that makes a submission unlike all others, so that none is found in the cache."""
    return f'{{"cell_type": "markdown", "id": "note-{number}", "metadata": {{}}, "source": "Submission {number}."}}'


def stock(folder, slug, count):
    """Return the seconds in which nbgrader as it comes grades the first submissions and writes their feedback."""
    config = as_it_comes(folder)
    api = NbGraderAPI(config=PyFileConfigLoader(config.name, path=str(folder)).load_config())
    students = sorted(path.name for path in (folder / "submitted").iterdir())[:count]

    def run():
        for student in students:
            assert quietly(api.autograde, slug, student)["success"]
            assert quietly(api.generate_feedback, slug, student)["success"]

    return timed(run)


def as_it_comes(folder):
    """Take this project's settings of the grading out of a course's configuration; return the file."""
    config = folder / "nbgrader_config.py"
    text = config.read_text("utf-8").partition("# Students' code is run in a sandbox")[0]
    config.write_text(f"{text}c.Execute.timeout = 60\n", "utf-8")
    return config


def timed(function):
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
