"""A gradebook in PostgreSQL, by nbgrader's own `db_url`: a real server, the same grades, also after a kill."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab
import pytest

from autograde import classroom
from autograde.course import CONFIG, Course
from publish import manuscript

SLUG = "01_forward"
USER = "nobody" if os.getuid() == 0 else None  # the server refuses to run as root
pytestmark = pytest.mark.skipif(
    not manuscript.slugs(), reason="this is the student edition: there is nothing to release"
)


@pytest.fixture
def programs():
    """The folder of PostgreSQL's own programs; Debian keeps them off the path."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    found = [place for place in places if (place / "initdb").is_file()]
    if not found:
        pytest.skip("PostgreSQL is missing: sudo apt-get install postgresql")
    return found[0]


@pytest.fixture
def address(programs):
    """The address of an empty database on a server that runs as long as the test, on a socket and no port."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))  # a path short enough for a socket
    if USER:
        shutil.chown(folder, USER)

    def run(*command):
        subprocess.run(command, cwd=folder, user=USER, check=True, stdout=subprocess.DEVNULL)

    data = str(folder / "data")
    run(programs / "initdb", "--pgdata", data, "--username=course", "--auth=trust", "--no-sync")
    server = (programs / "pg_ctl", "--pgdata", data, "--wait", "--log", str(folder / "log"))
    run(*server, "--options", f"-k {folder} -c listen_addresses= -c fsync=off", "start")
    try:
        run(programs / "createdb", f"--host={folder}", "--username=course", "gradebook")
        yield f"postgresql://course@/gradebook?host={folder}"
    finally:
        run(*server, "--mode=immediate", "stop")
        shutil.rmtree(folder)


def begin(folder, root, address=None):
    """Make a course with a class that handed in, its gradebook in a file or at an address."""
    folder.mkdir()
    own = f"c.CourseDirectory.db_url = {address!r}\n" if address else ""
    (folder / "nbgrader_config.py").write_text(CONFIG + own, "utf-8")
    course = lab.begin_class(folder, SLUG, root, "rnn-step")
    (folder / ".seed").write_text("7")
    return course


def test_a_class_has_the_grades_that_it_has_in_a_file_though_the_run_was_killed(address, root, tmp_path, needs):
    needs("bwrap")
    course = begin(tmp_path / "course", root, address)
    command = [sys.executable, "-m", "autograde", "grade", SLUG, "--course", str(course.root)]
    students = len(course.collected(SLUG))
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not 2 <= graded(course) < students:
            time.sleep(0.02)
        process.kill()
    assert 2 <= graded(course) < students
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"grade: {students} graded, 0 could not be read or run" in done.stdout
    in_a_file = begin(tmp_path / "file", root)
    classroom.grade(in_a_file, SLUG)
    assert lab.scores(course, SLUG) == lab.scores(in_a_file, SLUG)
    assert len(lab.scores(course, SLUG)) == students
    assert {path.parts[-3] for path in course.root.glob("feedback/*/*/*.html")} == set(course.collected(SLUG))
    assert not (course.root / "gradebook.db").exists()
    exported = [sys.executable, "-m", "nbgrader", "export", "--exporter=autograde.exports.ExercisesCsv"]
    subprocess.run(exported, cwd=course.root, env=os.environ | {"PYTHONPATH": str(root)}, check=True)
    assert (course.root / "exercises.csv").read_text().count("rnn-step") == students


def graded(course):
    """Return how many students have grades in the gradebook, seen by a connection of its own."""
    with Course(course.root).api.gradebook as gradebook:
        return sum(bool(one.notebooks) for one in gradebook.assignment_submissions(SLUG))
