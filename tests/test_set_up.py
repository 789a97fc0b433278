"""What `make` promises before it makes anything: an environment as pinned, or one sentence to act on."""

import ast
import importlib.metadata
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections import namedtuple
from pathlib import Path

import pytest
import run

import bootstrap

INGREDIENTS = ("bootstrap.py", "requirements.txt", "constraints.txt", "pyproject.toml", "Makefile")
NAME = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)$", re.MULTILINE)


def ingredients(root, place):
    """Make a folder that is set up as the course is, but needs nothing, so that it takes seconds."""
    place.mkdir()
    for name in INGREDIENTS:
        shutil.copy(root / name, place)
    (place / "requirements.txt").write_text("-c constraints.txt\n")
    return place


@pytest.fixture
def folder(root, tmp_path):
    """A folder that is not set up yet."""
    return ingredients(root, tmp_path / "a folder")


@pytest.fixture(scope="module")
def first(root, tmp_path_factory):
    """A folder that was set up, and what came of that."""
    place = ingredients(root, tmp_path_factory.mktemp("first") / "a folder")
    return place, set_up(place)


@pytest.fixture
def ready(first, tmp_path):
    """A copy of it that a test may change; its record is that of a folder that was set up where it is."""
    place = shutil.copytree(first[0], tmp_path / "a folder", symlinks=True)
    stamp = place / ".venv" / "recurrence-stamp"
    stamp.write_text(stamp.read_text().replace(str(first[0]), str(place)))
    return place


def set_up(folder, **variables):
    """Run bootstrap.py as make does; return what came of it."""
    command = [sys.executable, "bootstrap.py"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"} | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def only_index(address):
    """Return the variables that leave pip one package index."""
    return {
        "PIP_INDEX_URL": address,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "1",
        "NO_PROXY": "127.0.0.1",
    }


def sentence(failed):
    """Return the last line that a failed run wrote, having seen that it is no traceback."""
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "Traceback" not in failed.stderr
    return failed.stderr.splitlines()[-1]


def pins(path):
    """Return {package: version} of a requirements file, names as pip compares them."""
    return {name.lower().replace("_", "-"): version for name, version in NAME.findall(path.read_text())}


# An environment


def test_the_second_set_up_does_and_says_nothing(first):
    folder, came = first
    assert came.returncode == 0, came.stderr
    assert "Making .venv with Python" in came.stdout and ".venv is ready" in came.stdout
    (installed,) = (folder / ".venv").glob("lib/python*/site-packages")
    before = installed.stat().st_mtime_ns
    second = set_up(folder)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert installed.stat().st_mtime_ns == before


def test_changed_requirements_update_the_environment_without_making_it_anew(ready):
    kept = ready / ".venv" / "kept"
    kept.touch()
    with (ready / "constraints.txt").open("a") as constraints:
        constraints.write("# changed\n")
    assert "requirements have changed" in set_up(ready).stdout
    assert kept.exists()
    assert set_up(ready).stdout == ""


# Programs that were started in the background ignore Ctrl+C, and hand that down.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_path("bootstrap.py", run_name="__main__")
"""


def test_an_interrupted_set_up_is_repaired_by_the_next(ready):
    # A shell has what it starts in the background ignore interrupts, and that is passed on: undo it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (ready / "requirements.txt").write_text("numpy\n")
    with socket.create_server(("127.0.0.1", 0)) as index:  # takes calls and never answers
        index.settimeout(60)
        interrupted = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE],
            cwd=ready,
            env=os.environ | only_index(f"http://127.0.0.1:{index.getsockname()[1]}/simple"),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        connection, _ = index.accept()  # so pip is at work
        os.killpg(interrupted.pid, signal.SIGINT)
        _, errors = interrupted.communicate(timeout=60)
        connection.close()
    assert "Interrupted: the next `make` begins the environment anew." in errors
    half = ready / ".venv" / "half-installed"
    half.touch()
    (ready / "requirements.txt").write_text("")
    repaired = set_up(ready)
    assert repaired.returncode == 0 and "anew" in repaired.stdout
    assert not half.exists()


@pytest.mark.parametrize("accident", ["the folder was moved", "its Python is gone"])
def test_an_environment_that_cannot_work_is_made_anew(ready, accident):
    if accident == "the folder was moved":
        ready = ready.rename(ready.with_name("elsewhere"))
    else:
        (ready / ".venv" / "bin" / "python").unlink()
    repaired = set_up(ready)
    assert repaired.returncode == 0 and ".venv is ready" in repaired.stdout
    assert subprocess.run([ready / ".venv/bin/pip", "--version"], check=False, capture_output=True).returncode == 0


# Sentences


def test_an_old_python_reads_the_set_up_as_far_as_its_sentence(root):
    source = (root / "bootstrap.py").read_text()
    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse("if (n := 1):\n    pass\n", feature_version=(3, 6))
    imported = {
        alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_an_old_python_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^Python 3\.9\.18 .* needs 3\.11 or newer: install .*PYTHON=python3\.12"):
        bootstrap.require_python((3, 9, 18, "final", 0))
    (tmp_path / "python3.13").symlink_to(sys.executable)
    with pytest.raises(SystemExit, match=r"python3\.13 is installed, so run `make PYTHON=python3\.13`"):
        bootstrap.require_python((3, 10, 0, "final", 0))
    bootstrap.require_python((3, 11, 0, "final", 0))


def test_a_missing_venv_module_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(SystemExit, match=r"sudo apt-get install python3\.\d+-venv"):
        bootstrap.create(tmp_path / ".venv")
    assert not (tmp_path / ".venv").exists()


def test_a_full_disk_is_named_with_what_is_free_and_what_is_needed(monkeypatch, tmp_path):
    usage = namedtuple("usage", "total used free")(10**12, 10**12, 1_200_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SystemExit, match=r"Only 1\.2 GB of disk are free in .* needs 3 GB"):
        bootstrap.create(tmp_path / ".venv")


def test_without_a_network_pip_speaks_first_and_a_sentence_last(ready):
    (ready / "requirements.txt").write_text("numpy\n")
    failed = set_up(ready, **only_index("http://127.0.0.1:9/simple"))
    assert "Could not find a version" in failed.stderr
    assert "no package index could be reached: check the network" in sentence(failed)
    assert not (ready / ".venv" / "recurrence-stamp").exists()


@pytest.mark.parametrize(
    ("complaint", "remedy"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0", "choose another Python"),
        ("ERROR: Could not install: [Errno 13] Permission denied: 'x'", "is not yours"),
        ("ERROR: something new", "its last lines"),
    ],
)
def test_what_pip_complains_of_has_a_remedy(complaint, remedy):
    assert remedy in bootstrap.remedy_for(complaint)


def test_a_folder_that_cannot_be_written_to_is_named(folder, needs):
    command = [sys.executable, "bootstrap.py"]
    if os.geteuid() == 0:  # root may write anywhere but on a file system that is mounted for reading
        command = [needs("bwrap"), "--ro-bind", "/", "/", "--dev", "/dev", *command]
    folder.chmod(0o555)
    failed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert sentence(failed) == f"The folder {folder} cannot be written to: copy the course to a folder of your own."


def test_make_names_a_python_that_is_not_there_and_an_assignment_that_was_not_given(folder, needs):
    make = [needs("make"), "-C", folder]
    failed = subprocess.run([*make, "PYTHON=python3.99"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "There is no python3.99 here: install Python 3.11 or newer" in failed.stderr
    failed = subprocess.run([*make, "grade"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "make grade ASSIGNMENT=01_forward" in failed.stderr


# What is pinned


def test_every_requirement_is_pinned_exactly_and_the_constraints_agree(root):
    lines = [line for line in (root / "requirements.txt").read_text().splitlines() if line and line[0] not in "#-"]
    direct = pins(root / "requirements.txt")
    assert len(direct) == len(lines), "a requirement is not pinned with =="
    everything = pins(root / "constraints.txt")
    assert {name: version for name, version in direct.items() if everything.get(name) != version} == {}


def test_what_is_installed_is_what_is_pinned(root):
    pinned = pins(root / "constraints.txt")
    installed = {
        package.name.lower().replace("_", "-"): package.version.partition("+")[0]
        # where pip installs; setuptools puts copies of its own on sys.path
        for package in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    }
    assert len(pinned.keys() & installed.keys()) > 100
    assert {name: version for name, version in installed.items() if pinned.get(name, version) != version} == {}


def test_every_package_that_the_project_imports_is_a_requirement(root):
    direct = pins(root / "requirements.txt")
    owners = importlib.metadata.packages_distributions()
    missing = set()
    for path in run.files(root):
        for module in imports(path) & owners.keys() if path.suffix == ".py" else ():
            names = {name.lower().replace("_", "-") for name in owners[module]}
            if not names & {*direct, "recurrence-course"}:
                missing.add((str(path.relative_to(root)), module))
    assert missing == set()


def imports(path):
    """Return the names of the top-level modules that a Python file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    from_ = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in plain | from_}


# The verbs


def test_make_help_lists_every_verb_and_the_pages_name_no_other(root, needs):
    said = subprocess.run([needs("make"), "-C", root, "-s", "help"], capture_output=True, text=True, check=True).stdout
    listed = {line.split()[0] for line in said.splitlines()}
    declared = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.MULTILINE)[1]
    assert listed == set(declared.split())
    pages = [root / "README.md", *root.glob("guides/*.md")]
    named = {verb for page in pages for verb in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert named and named <= listed


# What `make test` remembers


@pytest.fixture
def project(tmp_path, root, monkeypatch):
    """A small project whose one test passes, and its `make test`."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    (tmp_path / ".gitignore").write_text((root / ".gitignore").read_text())
    alone = [option for option in run.CHECKS["tests"] if not option.startswith(("--num", "--dist", "--no-loadscope"))]
    monkeypatch.setattr(run, "CHECKS", {"tests": alone})  # more processes for one test would only take time
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # to load them takes longer than the test
    return tmp_path


def test_what_passed_on_this_tree_is_not_run_again(project, capfd):
    for arguments, runs in (([], True), ([], False), (["--force"], True), ([], False)):
        assert run.main(project, arguments) == 0
        said = capfd.readouterr().out
        assert ("1 passed" in said) is runs
        assert ("all 1 tests passed on exactly this tree" in said) is not runs


@pytest.mark.parametrize("change", ["an edited file", "a new file", "another program", "another package", "CI"])
def test_after_a_change_the_tests_run_again(project, change, capfd, monkeypatch, tmp_path_factory):
    assert run.main(project, []) == 0
    capfd.readouterr()
    match change:
        case "an edited file":
            (project / "tests" / "test_one.py").write_text("def test_one():\n    assert True\n")
        case "a new file":
            (project / "notes.md").touch()
        case "another program":
            programs = tmp_path_factory.mktemp("programs")
            (programs / "chromium").symlink_to(sys.executable)
            monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
        case "another package":
            packages = tmp_path_factory.mktemp("packages")
            (packages / "other-1.dist-info").mkdir()
            (packages / "other-1.dist-info" / "METADATA").write_text("Name: other\nVersion: 1\n")
            monkeypatch.syspath_prepend(packages)
        case "CI":
            monkeypatch.setenv("CI", "true")
    assert run.main(project, []) == 0
    assert "1 passed" in capfd.readouterr().out


def test_a_failure_is_an_exit_code_and_is_not_remembered(project, capfd):
    (project / "tests" / "test_one.py").write_text("def test_one():\n    assert False\n")
    for _ in range(2):
        assert run.main(project, []) == 1
        assert "1 failed" in capfd.readouterr().out


def test_a_missing_program_is_named_with_its_package_and_fails_in_ci(project, root, capfd, monkeypatch):
    shutil.copy(root / "tests" / "conftest.py", project / "tests")
    (project / "tests" / "test_one.py").write_text("def test_one(needs):\n    needs('nosuch')\n")
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-ra"\n')
    (project / "solutions").mkdir()
    for _ in range(2):  # run, then remembered
        assert run.main(project, []) == 0
        assert "nosuch is missing: sudo apt-get install nosuch" in capfd.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert run.main(project, []) == 1
    assert "nosuch is missing: sudo apt-get install nosuch" in capfd.readouterr().out


def test_the_projects_files_are_those_that_git_knows_or_would_add(root, needs):
    if not (root / ".git").exists():
        pytest.skip("this copy has no git history")
    command = [needs("git"), "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    known = {root / name for name in listed if name and (root / name).exists()}
    assert set(run.files(root)) == known
    assert Path(__file__) in known
