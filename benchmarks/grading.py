"""Grades the same class twice, by stock nbgrader and by this project: `python benchmarks/grading.py`.

The submissions are the sample class's, over and over. Stock nbgrader runs as it comes, on the first few of them; ours
grades all. Both times hold the gradebook and the feedback pages. Prints a table and writes grading.md beside this file.
"""

import argparse
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from nbgrader.apps.api import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from autograde import classroom, sample
from autograde.course import Course, quietly
from autograde.release import ROOT, release

HERE = Path(__file__).resolve().parent
SLUG = "01_forward"


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--stock", type=int, default=6, help="how many of them stock nbgrader grades")
    parser.add_argument("--out", type=Path, default=HERE / "grading.md", help="the table to write")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        course = a_class(Path(folder) / "ours", options.submissions)
        shutil.copytree(course.root, Path(folder) / "stock")
        by_stock = stock(Path(folder) / "stock", options.stock) / options.stock
        ours = timed(lambda: classroom.grade(course, SLUG))
        again = timed(lambda: classroom.grade(course, SLUG))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    rows = [
        ("stock nbgrader", options.stock, by_stock, 1.0),
        ("this project", options.submissions, ours / options.submissions, by_stock / (ours / options.submissions)),
        ("again, nothing changed", options.submissions, again / options.submissions, None),
    ]
    lines = [
        "<!-- written by benchmarks/grading.py -->",
        f"Chapter {SLUG} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"the largest process took {memory:.0f} MB.",
        "",
        "| | submissions | seconds each | throughput, to stock |",
        "|---|--:|--:|--:|",
        *(f"| {n} | {count} | {s:.2f} | {'' if ratio is None else f'{ratio:.1f}'} |" for n, count, s, ratio in rows),
    ]
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines[1:]))
    return 0


def a_class(folder, submissions):
    """Return a course with so many submissions, those of the sample class over and over."""
    course = Course(folder)
    release(course, SLUG, ROOT)
    sample.hand_in(course, SLUG)
    students = sorted(path for path in (course.root / "submitted").iterdir())
    for number in range(submissions):
        source = students[number % len(students)]
        shutil.copytree(source, course.root / "submitted" / f"{source.name}-{number:04d}")
        path = course.root / "submitted" / f"{source.name}-{number:04d}" / SLUG / f"{SLUG}.ipynb"
        path.write_text(path.read_text("utf-8").replace('"cells": [', f'"cells": [{note(number)},', 1), "utf-8")
    for path in students:
        shutil.rmtree(path)
    return course


def note(number):
    """Return a cell that makes a submission unlike all others, so that none is found in the cache."""
    return f'{{"cell_type": "markdown", "id": "note-{number}", "metadata": {{}}, "source": "Submission {number}."}}'


def stock(folder, count):
    """Return the seconds in which nbgrader as it comes grades the first submissions and writes their feedback."""
    config = folder / "nbgrader_config.py"
    text = config.read_text("utf-8")
    config.write_text(text.partition("# Students' code is run in a sandbox")[0] + "c.Execute.timeout = 60\n", "utf-8")
    api = NbGraderAPI(config=PyFileConfigLoader(config.name, path=str(folder)).load_config())
    students = sorted(path.name for path in (folder / "submitted").iterdir())[:count]

    def run():
        for student in students:
            assert quietly(api.autograde, SLUG, student)["success"]
            assert quietly(api.generate_feedback, SLUG, student)["success"]

    return timed(run)


def timed(function):
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
