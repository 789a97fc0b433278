"""nbgrader's own tests of autograding, feedback and gradebook pass with this course's configuration, but for a list."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autograde.course import CONFIG

MODULES = [
    "apps.test_nbgrader_autograde", "apps.test_nbgrader_generate_feedback", "apps.test_nbgrader_db",
    "api.test_gradebook", "api.test_models", "preprocessors.test_saveautogrades", "preprocessors.test_overwritecells",
    "preprocessors.test_overwritekernelspec", "preprocessors.test_deduplicateids", "preprocessors.test_limitoutput",
    "preprocessors.test_checkcellmetadata", "preprocessors.test_getgrades",
]  # fmt: skip
UNKNOWN = "graded cells that the course does not know are ordinary cells, and no error"
DIFFERENT = {
    "TestNbGraderAutograde.test_side_effects": "a file that a cell writes lies in the sandbox, and goes with it",
    "TestNbGraderAutograde.test_handle_failure": UNKNOWN,
    "TestNbGraderAutograde.test_handle_failure_single_notebook": UNKNOWN,
    "TestNbGraderAutograde.test_missing_source_kernelspec": "a kernel that a student names is not started; Python runs",
    "TestNbGraderAutograde.test_no_execute": "outputs that were handed in are never kept, not even with --no-execute",
    "TestNbGraderAutograde.test_grade_with_validating_envvar": "NBGRADER_EXECUTION is not set where answers run",
    "TestNbGraderAutograde.test_autograde_timeout": "Execute.timeout is not read; the sandbox has limits of its own",
}
OWN = ("c.CourseDirectory.course_id", "c.CourseDirectory.root", "c.Exchange.root")  # the tests bring theirs
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (Path(__file__).parent.parent / "solutions").is_dir(),
        reason="this is the student edition: there is nothing to grade",
    ),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, needs):
    """{test: "" when it passed, "skipped", or how it failed} of nbgrader's tests with our configuration."""
    needs("bwrap")
    folder = tmp_path_factory.mktemp("nbgrader")
    config = "\n".join(line for line in CONFIG.splitlines() if not line.startswith(OWN))
    config += '\nc.GradeOutside.limits = {"cell": 8}\n'  # one test sleeps for 5, another for ever
    (folder / "nbgrader_config.py").write_text(config, encoding="utf-8")
    shutil.copy(Path(__file__).with_name("quick_gradebooks.py"), folder)
    environment = os.environ | {
        "HOME": str(folder), "TMPDIR": str(folder), "JUPYTER_CONFIG_PATH": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }  # fmt: skip
    quick = ["-p", "no:cacheprovider", "-p", "quick_gradebooks"]
    options = [*quick, "-c", os.devnull, f"--rootdir={folder}", "--junitxml=found.xml"]
    command = [sys.executable, "-m", "pytest", "-q", *options, "--pyargs", *(f"nbgrader.tests.{m}" for m in MODULES)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return dict(map(outcome, ElementTree.parse(folder / "found.xml").iter("testcase")))


def outcome(case):
    """Return a test's name, and what became of it, from its element in pytest's report."""
    name = f"{case.get('classname').split('.')[-1]}.{case.get('name')}"
    if case.find("skipped") is not None:
        return name, "skipped"
    wrong = [element.text or element.get("message") for kind in ("failure", "error") for element in case.iter(kind)]
    return name, "\n".join(wrong)


def test_nbgraders_tests_pass_but_for_the_differences_listed_here(outcomes, capsys):
    failed = {name: how for name, how in outcomes.items() if how not in ("", "skipped")}
    passed = sum(how == "" for how in outcomes.values())
    with capsys.disabled():
        print(f"\nnbgrader's own tests: {passed} passed, {len(failed)} failed, of {len(outcomes)}")
    assert len(outcomes) > 200
    new = {name: how for name, how in failed.items() if name not in DIFFERENT}
    assert not new, "\n\n".join(f"{name}\n{how[-2000:]}" for name, how in new.items())


def test_every_difference_listed_here_is_one(outcomes):
    assert {name for name in DIFFERENT if outcomes[name] in ("", "skipped")} == set()
