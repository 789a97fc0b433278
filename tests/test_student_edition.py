"""What students get, `git archive`, unpacked and used as they use it: no answers, and everything works."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path

import leaks
import nbformat
import pytest
from furnished import furnish

from publish import execution, manuscript, notebooks

SLUGS = manuscript.slugs()
BEGUN = "begun"
ANSWERS = leaks.answers(manuscript.ROOT)
pytestmark = pytest.mark.skipif(not SLUGS, reason="this is the student edition itself")

# What a person who just unpacked the course does not have set.
UNSET = {"CI", "FORCE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MPLBACKEND", "PYTHONPATH", "VIRTUAL_ENV"}
PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def edition(root, needs, tmp_path_factory):
    """The folder with the student edition of what stands in the working tree now, committed or not."""
    git, place = [needs("git"), "-C", root], tmp_path_factory.mktemp("edition")
    # An index and objects of its own, so that nothing is left in the repository.
    asked = subprocess.check_output([*git, "rev-parse", "--git-path", "objects"], text=True).strip()
    (place / "objects").mkdir()
    variables = os.environ | {
        "GIT_INDEX_FILE": str(place / "index"),
        "GIT_OBJECT_DIRECTORY": str(place / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(root / asked),
    }
    subprocess.run([*git, "add", "--all"], env=variables, check=True)
    tree = subprocess.check_output([*git, "write-tree"], env=variables, text=True).strip()
    archive = subprocess.check_output([*git, "archive", "--format=tar", tree], env=variables)
    folder = place / "my course"  # many people's folders have a space in their name
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    yield folder
    shutil.rmtree(place)  # pytest would keep gigabytes


@pytest.fixture(scope="session")
def texts(edition):
    """The texts of all files in the edition."""
    return leaks.published(edition)


@pytest.fixture(scope="session")
def made(edition, texts):
    """The edition after its texts were read and `make` ran: an environment of its own, updated, and the book."""
    furnish(edition)
    done = make(edition)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def make(edition, *arguments):
    """Run make in the edition as a student would."""
    command = [shutil.which("make"), f"PYTHON={PYTHON}", *arguments]
    return subprocess.run(command, cwd=edition, env=surroundings(), capture_output=True, text=True, check=False)


def surroundings():
    """Return the variables of a terminal in which nothing of this repository is active."""
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).parent != Path(sys.prefix)]
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | {"PATH": os.pathsep.join(path)}


def checks(notebook):
    """Return {exercise: (points earned, points there are, feedback)} of a notebook that was run."""
    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.id.endswith("-check"):
            (output,) = cell.outputs
            score = float(output["data"]["text/plain"])
            found[cell.id.removesuffix("-check")] = (score, cell.metadata.nbgrader.points, output["data"]["text/html"])
    return found


def test_the_edition_has_the_chapters_and_no_manuscript(edition):
    there = {path.name for path in edition.iterdir()}
    assert {"README.md", "LICENSE", "Makefile", "bootstrap.py", "requirements.txt", "tests"} <= there
    assert [path.stem for path in sorted(edition.glob("chapters/*.ipynb"))] == SLUGS
    assert not there & {"solutions", ".git", ".ci", ".github", "_build", ".venv"}


@pytest.mark.parametrize("exercise", ANSWERS)
def test_the_edition_holds_no_answer(texts, exercise):
    assert leaks.leaks(ANSWERS[exercise], texts) == []


@pytest.mark.parametrize("exercise", [exercise for exercise in ANSWERS if ANSWERS[exercise]])
def test_the_search_finds_a_planted_answer(edition, exercise, tmp_path):
    shutil.copytree(edition / "autograde", tmp_path / "autograde")
    with (tmp_path / "autograde" / "probes.py").open("a") as module:
        module.write(f"    {ANSWERS[exercise][-1]}\n")
    assert leaks.leaks(ANSWERS[exercise], leaks.published(tmp_path))


@pytest.mark.long
def test_make_builds_the_book_without_outputs_and_says_what_it_left_out(edition, made):
    assert "No sample course is made: this is the student edition." in made.stdout
    for slug in SLUGS:
        page = (edition / "_build" / "html" / "chapters" / f"{slug}.html").read_text(encoding="utf-8")
        assert "YOUR CODE HERE" in page
        assert 'class="cell_output' not in page


@pytest.mark.long
def test_a_second_make_installs_nothing_and_writes_no_page_again(edition, made):
    def written():
        paths = [*edition.glob("_build/html/**/*.html"), *edition.glob(".venv/lib/python*/site-packages")]
        return {path: path.stat().st_mtime_ns for path in paths}

    before = written()
    assert len(before) > len(SLUGS) + 1
    assert make(edition).returncode == 0
    again = {path.name for path, when in written().items() if before.get(path) != when}
    assert again <= {"genindex.html", "search.html", "py-modindex.html"}  # Sphinx writes these every time


@pytest.fixture(scope="session")
def handed_in(edition, made, tmp_path_factory):
    """{name: a released notebook with right answers}, run with the edition's own JupyterLab.

    Under a chapter's name it has all answers; as "begun", the first chapter's, it has one, and nothing that is shown.
    """
    folder = tmp_path_factory.mktemp("handed_in")
    for name in (*SLUGS, BEGUN):
        slug = SLUGS[0] if name == BEGUN else name
        right = {cell.id: cell.source for cell in notebooks.solved(manuscript.read(manuscript.path_of(slug))).cells}
        notebook = nbformat.read(edition / "chapters" / f"{slug}.ipynb", as_version=4)
        stubs = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
        for cell in stubs[:1] if name == BEGUN else stubs:
            assert cell.source != right[cell.id]
            cell.source = right[cell.id]
        if name == BEGUN:
            notebook.cells = [cell for cell in notebook.cells if "demo" not in cell.metadata.get("tags", [])]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    command = [edition / ".venv" / "bin" / "jupyter", "nbconvert", "--execute", "--inplace", "--allow-errors"]
    done = subprocess.run(
        [*command, *sorted(folder.iterdir())],  # one after the other, each in a kernel of its own
        cwd=edition / "chapters",
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.stem: nbformat.read(path, as_version=4) for path in folder.iterdir()}


@pytest.mark.long
def test_a_right_answer_earns_its_points_and_what_is_untouched_earns_nothing(handed_in):
    (_, first), *others = checks(handed_in[BEGUN]).items()
    assert first[0] == first[1] > 0
    assert others
    for exercise, (score, points, feedback) in others:
        assert score == 0 < points, exercise
        assert "not written yet" in feedback, exercise


@pytest.mark.long
@pytest.mark.parametrize("slug", SLUGS)
def test_with_right_answers_a_student_sees_what_the_book_shows_but_for_measured_times(handed_in, book, slug):
    """The second run of a chapter: in another place and environment, with another seed for hashes, by other code."""
    shown, seen = (
        [c for c in run.cells if c.cell_type == "code"] for run in (execution.executed(slug), handed_in[slug])
    )
    pairs = list(zip(shown, seen, strict=True))
    lasting = [both for both in pairs if "measured" not in both[0].metadata.get("tags", [])]
    assert len(pairs) - 3 < len(lasting)
    for first, second in lasting:
        assert told(first.outputs) == told(second.outputs), first.id


def told(outputs):
    """Return what a cell printed, without progress bars and what was written over, and its other outputs."""
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    printed = re.sub(r" *\d+%\|.*?\| \d+/\d+ \[[^]]*\]", "", printed)
    printed = re.sub(r" *\r\Z", "", re.sub(r".*\r(?=[^\n])", "", printed))
    return printed, [output for output in outputs if output.output_type != "stream"]


@pytest.mark.long
def test_make_lab_opens_jupyterlab_on_the_chapters(edition, made):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = f"--no-browser --allow-root --ip=127.0.0.1 --port={port} --IdentityProvider.token=t"
    log = edition.parent / "lab.log"
    command = [shutil.which("make"), f"PYTHON={PYTHON}", "lab", f"OPTIONS={options}"]
    with log.open("w") as said:
        lab = subprocess.Popen(
            command, cwd=edition, env=surroundings(), stdout=said, stderr=said, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        for slug in SLUGS:
            served = json.loads(answer(f"{address}/api/contents/chapters/{slug}.ipynb?token=t", lab, log))
            assert served["type"] == "notebook" and served["content"]["cells"]
            assert "JupyterLab" in answer(f"{address}/lab/tree/chapters/{slug}.ipynb?token=t", lab, log)
        extensions = answer(f"{address}/lab/api/extensions?token=t", lab, log)
        assert {"jupyterlab-myst", "jupyterlab-jupytext"} <= set(re.findall(r"jupyterlab-\w+", extensions))
        request = urllib.request.Request(f"{address}/api/shutdown?token=t", method="POST")
        urllib.request.urlopen(request, timeout=10).close()
        lab.wait(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it ended as asked
            os.killpg(lab.pid, signal.SIGKILL)


def answer(address, lab, log):
    """Return what a server that is starting answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as response:
                return response.read().decode()
        except OSError as error:
            assert lab.poll() is None and time.monotonic() < deadline, f"{address}: {error}\n{log.read_text()}"
            time.sleep(0.2)


# Test the very same files, and run beside this one.
SAME = ["layers", "rnncore", "looking_inside", "oracle", "sandbox", "check", "diagnose", "exercises_are_fair"]
SAME += ["set_up", "probes", "exercise", "cli", "report", "own_notebooks", "mutants", "movable", "nbgraders_own_tests"]
SAME += ["execution", "benchmarks", "data", "adding", "previews", "selfcheck", "rnnconvert", "reach"]
SAME += ["pages_that_compute", "comparison", "cost", "exports", "pdf", "devices"]


@pytest.mark.long
def test_make_test_passes_there_and_skips_only_what_needs_a_manuscript(edition, made, root, monkeypatch):
    patterns = [
        "autograde/**/*.py",
        "publish/**/*.py",
        "publish/static/*",
        "publish/templates/*.*",
        "benchmarks/*.py",
        "experiments/*.py",
    ]
    patterns += ["data/*", "_static/*.css", "*.py", "*.txt", "Makefile", *(f"tests/test_{name}.py" for name in SAME)]
    same = [path for pattern in patterns for path in root.glob(pattern)]
    assert len(same) > len(patterns)
    for path in same:
        assert (edition / path.relative_to(root)).read_bytes() == path.read_bytes()
    left_out = " ".join(f"--ignore=tests/test_{name}.py" for name in SAME)
    # Of the pages two, the first chapter's and the front page, in one mode: the others are made in the same ways.
    others = " or ".join([*SLUGS[1:], "appendices", "guides", "bibliography", "rnncore"])
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{left_out} -k 'not (test_book and ({others} or (axe and (dark or phone))))'")
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "1")  # others run beside this
    done = make(edition, "test")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)", done.stdout, re.MULTILINE)
    expected = re.compile("this is the student edition|got empty parameter set|this copy has no git history")
    assert [reason for reason in reasons if not expected.match(reason)] == []
    assert re.search(r"\d+ passed", done.stdout)
