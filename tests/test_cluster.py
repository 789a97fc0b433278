"""Grading on a Dask cluster, a real scheduler and workers of this machine: the same grades, whatever workers do."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lab
import pytest

from autograde import classroom
from autograde.cluster import Cluster
from autograde.course import Course, Problem
from publish import manuscript

SLUG = "01_forward"
DASK = str(Path(sys.executable).with_name("dask"))
PATIENCE = 240  # seconds
Scheduler = namedtuple("Scheduler", "address process")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not manuscript.slugs(), reason="this is the student edition: there is nothing to release"),
]

# What workers load first, by the name of what it does to them. One that notes what it begins can hold, with the so many
# notebook it gets and all after it, until a file is there.
PRELOADED = {
    "notes": """
        import itertools, os, time
        from distributed import get_worker
        from autograde import cluster

        cluster.quick = getattr(cluster, "quick", cluster.graded)  # Dask loads this twice
        cluster.begun = getattr(cluster, "begun", itertools.count(1))

        def graded(nb, *rest):
            with open(os.environ["NOTES"], "a") as notes:
                notes.write(f"{get_worker().name} {hash(nb)}\\n")
            if next(cluster.begun) >= int(os.environ.get("HOLDS_AT", 1000)):
                while not os.path.exists(os.environ["GO"]):
                    time.sleep(0.05)
            return cluster.quick(nb, *rest)

        cluster.graded = graded
    """,
    "another version": """
        import numpy
        numpy.__version__ = "1.2.3"
    """,
    "no course": """
        import sys
        sys.modules["autograde"] = None
    """,
}


@pytest.fixture
def started(root, tmp_path):
    """A function that starts one of Dask's programs; all end with the test."""
    with contextlib.ExitStack() as running:

        def start(*command, **variables):
            environment = os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0"} | variables
            log = running.enter_context((tmp_path / "dask.log").open("a"))
            process = subprocess.Popen(
                [DASK, *map(str, command)], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
            running.callback(process.wait)
            running.callback(process.kill)
            return process

        yield start


@pytest.fixture
def scheduler(started, tmp_path):
    """A scheduler that runs."""
    file = tmp_path / "scheduler.json"
    process = started("scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard", f"--scheduler-file={file}")
    wait(lambda: file.is_file() and file.read_text().endswith("}"))
    return Scheduler(json.loads(file.read_text())["address"], process)


@pytest.fixture
def worker(started, scheduler, tmp_path):
    """A function that starts a worker with a name and waits until the scheduler knows it."""
    log = tmp_path / "dask.log"

    def start(name, preload="notes", **variables):
        path = tmp_path / f"{preload.replace(' ', '_')}.py"
        path.write_text("\n".join(line.removeprefix("        ") for line in PRELOADED[preload].splitlines()))
        options = [f"--name={name}", "--nthreads=1", "--no-nanny", "--no-dashboard", f"--preload={path}"]
        known = log.read_text().count("Registered to")
        variables |= {"NOTES": str(tmp_path / "notes"), "GO": str(tmp_path / "go")}
        process = started("worker", scheduler.address, *options, **variables)
        wait(lambda: log.read_text().count("Registered to") > known)
        return process

    return start


def notes(folder):
    """Return what workers have begun, [(name, which notebook)]."""
    path = folder / "notes"
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.is_file() else []


def wait(until):
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def course(root, tmp_path):
    """A course with a class that handed in."""
    return lab.begin_class(tmp_path / "course", SLUG, root, "rnn-step")


@contextlib.contextmanager
def grading(course, root, *options):
    """Grade a course as an instructor does, by the command; yield its process, which ends with the context."""
    command = [sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(course.root), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=root, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def results(course):
    """Return what was computed, {digest: result}, but for the time it took and places in memory."""
    texts = {path.stem: re.sub(r"0x\w+", "0x", path.read_text()) for path in course.root.glob(".graded/*.json")}
    found = {digest: json.loads(text) for digest, text in texts.items()}
    for result in found.values():
        assert result.pop("seconds") > 0
    return found


def test_each_is_graded_once_and_as_here_though_one_worker_dies_one_is_slow_and_one_comes_late(
    course, scheduler, worker, root, tmp_path, needs
):
    needs("bwrap")
    here = Course(shutil.copytree(course.root, tmp_path / "here"))
    (course.root / ".seed").write_text("7")
    (here.root / ".seed").write_text("7")
    students = len(course.collected(SLUG))
    dying, _ = worker("dying", HOLDS_AT="3"), worker("slow", HOLDS_AT="1")
    with grading(course, root, "--scheduler", scheduler.address) as run:

        def begun(name):
            return [who for who, _ in notes(tmp_path)].count(name)

        wait(lambda: run.poll() is not None or (begun("dying") == 3 and len(results(course)) == 2))
        dying.kill()
        worker("late")
        wait(lambda: run.poll() is not None or begun("late"))
        (tmp_path / "go").touch()
        said, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said + errors
    assert f"grade: {students} graded, 0 could not be read or run" in said
    assert f"{students}/{students}" in errors, "there is a progress bar"
    began = notes(tmp_path)
    assert {name for name, _ in began} == {"dying", "slow", "late"}
    assert len({which for _, which in began}) == students == len(began) - 1, "but for what died, once each"
    classroom.grade(here, SLUG)
    assert results(course) == results(here)
    assert len(results(here)) == students
    assert lab.scores(course, SLUG) == lab.scores(here, SLUG)
    assert len(lab.scores(here, SLUG)) == students
    pages = [
        sorted(path.relative_to(one.root) for path in one.root.glob("feedback/*/*/*.html")) for one in (course, here)
    ]
    assert pages[0] == pages[1] and len(pages[0]) == students


def test_when_all_workers_have_gone_the_next_one_goes_on(course, scheduler, worker, root, tmp_path, needs):
    needs("bwrap")
    students, log = len(course.collected(SLUG)), tmp_path / "dask.log"
    first = worker("first", HOLDS_AT="2")
    with grading(course, root, "--scheduler", scheduler.address) as run:
        # the first result must have left the worker, or it is computed again with the second
        wait(lambda: run.poll() is not None or (len(notes(tmp_path)) == 2 and len(results(course)) == 1))
        first.kill()
        wait(lambda: "Lost all workers" in log.read_text())
        worker("next")
        said, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said + errors
    assert f"grade: {students} graded, 0 could not be read or run" in said
    assert [name for name, _ in notes(tmp_path)] == ["first"] * 2 + ["next"] * (students - 1)


def test_a_worker_that_is_not_fit_is_named_with_the_reason_and_gets_nothing(course, scheduler, worker, root, tmp_path):
    worker("unconfined", PATH=str(tmp_path))
    worker("old", "another version")
    worker("elsewhere", "no course")
    with grading(course, root, "--scheduler", scheduler.address) as run:
        said, errors = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (2, "")
    assert "cannot grade: none of its workers is fit, see above" in errors
    assert "worker unconfined at tcp://127.0.0.1:" in errors and "sudo apt-get install bubblewrap" in errors
    assert "worker old at" in errors and "it has NumPy 1.2.3 in place of" in errors
    assert "worker elsewhere at" in errors and "the course cannot be used there, ModuleNotFoundError" in errors
    assert "Traceback" not in errors
    worker("fit")
    with grading(course, root, "--scheduler", scheduler.address, "--student", "right") as run:
        said, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0 and "worker old at" in errors, errors
    assert [name for name, _ in notes(tmp_path)] == ["fit"]


@pytest.mark.parametrize("nowhere", ["tls://127.0.0.1:9", "http://127.0.0.1:9", "127.0.0.1", ""])
def test_an_address_at_which_no_scheduler_can_answer_is_named(nowhere, capfd):
    def reach():
        with Cluster(nowhere, None, print):
            pass

    # In a thread of its own, since in this one the event loop of another test's browser may be running.
    with ThreadPoolExecutor() as threads, pytest.raises(Problem) as caught:
        threads.submit(reach).result()
    assert f"no Dask scheduler answers at {nowhere!r} (" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_where_no_scheduler_answers_or_none_is_left_the_run_says_so_and_keeps_what_it_has(
    course, worker, scheduler, root, needs
):
    needs("bwrap")
    with grading(course, root, "--scheduler", "tcp://127.0.0.1:9") as run:
        said, errors = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (2, "")
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in errors and "Traceback" not in errors, errors
    worker("slow", HOLDS_AT="2")
    with grading(course, root, "--scheduler", scheduler.address) as run:
        wait(lambda: run.poll() is not None or list(course.root.glob(".graded/*.json")))
        scheduler.process.kill()
        said, errors = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (2, "")
    assert f"the scheduler at {scheduler.address} is gone; what was graded is kept: run again" in errors
    assert "Traceback" not in errors, errors
    kept = set(course.root.glob(".graded/*.json"))
    assert len(kept) == 1 < len(course.collected(SLUG))
    classroom.grade(course, SLUG)
    assert kept < set(course.root.glob(".graded/*.json"))
