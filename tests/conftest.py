"""What all tests share: the repository, the system's programs, one thread and no window."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"bwrap": "bubblewrap"}  # the others are named as their programs
# What takes longest comes first: at the end it would run alone, beside an idle process. The first group of pages builds
# the book, for which the others would have to wait.
LONGEST = (
    "test_student_edition",
    "pages 1",
    "test_nbgraders_own_tests",
    "test_exercises_are_fair",
    "test_nbgrader_round_trip",
    "test_cluster",
    "test_cli",
    "doors to other chapters",
    "pages 2",
    "test_pdf",
    "doors of a student",
    "doors of an instructor",
    "pages 3",
    "test_set_up",
    "test_previews",
    "test_layers",
    "test_oracle",
    "test_comparison",
    "test_sandbox",
)
NO_SKIP = os.environ.get("CI") == "true" and (ROOT / "solutions").is_dir()

# Before torch or matplotlib is imported, here and in every process that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "agg"


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def needs():
    """A function that returns a system program's path, or skips the test and says what to install."""

    def path_of(program):
        path = shutil.which(program)
        if not path:
            pytest.skip(f"{program} is missing: sudo apt-get install {PACKAGES.get(program, program)}")
        return path

    return path_of


@pytest.fixture(scope="session")
def browser(needs):
    """A headless Chromium, the system's own; one for all tests, since Playwright cannot be started twice."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415, slow, and few tests need it

    program = needs("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def book(root, tmp_path_factory):
    """The folder of the book, built once in a run of the tests; the build fails on a warning."""
    from website import build  # noqa: PLC0415, slow, and few tests need it

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    built = tmp_path_factory.getbasetemp().parent / f"book-{run}"
    with FileLock(f"{built}.lock"):
        if not built.exists():
            build(root)
            built.touch()
    return root / "_build" / "html"


@pytest.fixture
def visit(book, browser):
    """A function that opens a page of the book from its file."""
    from website import Visitor  # noqa: PLC0415, slow, and few tests need it

    visitor = Visitor(book, browser)
    yield visitor
    visitor.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let the tests of a file run in one process, but for those that name a group of their own; the longest first."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    yield  # pytest puts tests that share a fixture together, and pytest-xdist reads the marks

    def place(item):
        group = item.get_closest_marker("xdist_group").args[0]
        page = item.callspec.params["name"] if group.startswith("pages ") else ""  # to be opened once for all its tests
        return LONGEST.index(group) if group in LONGEST else len(LONGEST), page

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a test that is left out has failed."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"CI leaves out no test. {report.longrepr[2]}"
    return report
