"""Runs every check: style, the generated notebooks, pytest. `make test`.

What has passed on exactly this tree, with these packages and programs, is not run again.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from fnmatch import fnmatch
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("bwrap", "chromium", "git", "make", "psql")
REPORT = "_build/tests.xml"
# More than there are processors, since many a test waits for a process of its own. Who sets the variable decides.
WORKERS = {"PYTEST_XDIST_AUTO_NUM_WORKERS": str(min(2 * os.cpu_count(), 8))}
CHECKS = {
    "style": ("ruff", "check", "."),
    "layout": ("ruff", "format", "--check", "."),
    "notebooks": ("publish", "--check"),
    # Several groups of tests at a time, in our order: as many as WORKERS says.
    "tests": (
        "pytest",
        "--verbose",
        "--numprocesses=auto",
        "--dist=loadgroup",
        "--no-loadscope-reorder",
        f"--junitxml={REPORT}",
    ),
}


def main(root, arguments):
    """Run the checks, or say that they passed; return the exit code."""
    parser = argparse.ArgumentParser(prog="make test", description=__doc__)
    parser.add_argument("--force", action="store_true", help="run even what passed on this very tree")
    force = parser.parse_args(arguments).force or os.environ.get("CI") == "true"
    record = root / "_build" / "tests.json"
    before = state(root)
    known = json.loads(record.read_text()) if record.is_file() else {}
    if known.get("state") == before and not force:
        for reason in known["skipped"]:
            print(f"SKIPPED {reason}")
        print(f"all {known['passed']} tests passed on exactly this tree at {known['at']}; ", end="")
        print("`make test FORCE=1` runs them again")
        return 0
    record.parent.mkdir(exist_ok=True)
    failed = [name for name, check in CHECKS.items() if not passes(name, check, root)]
    if failed:
        print(f"make test: failed: {', '.join(failed)}")
        return 1
    if state(root) == before:  # else someone wrote meanwhile, and what passed is not what is here
        now = f"{datetime.now():%Y-%m-%d %H:%M}"
        record.write_text(json.dumps({"state": before, "at": now, **counts(root / REPORT)}))
    return 0


def passes(name, check, root):
    """Run one check and say which."""
    print(f"== {name}: {' '.join(check)}", flush=True)
    command = [sys.executable, "-m", *check]
    return subprocess.run(command, cwd=root, env=WORKERS | os.environ, check=False).returncode == 0


def counts(report):
    """Return how many tests passed, and why the others were left out."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    skipped = [element.get("message") for element in suite.iter("skipped")]
    return {"passed": int(suite.get("tests")) - len(skipped), "skipped": sorted(set(skipped))}


def state(root):
    """Return a digest of what the tests depend on: the project's files, the packages, the programs."""
    digest = hashlib.sha256(f"{sys.version} {sys.prefix}".encode())
    for path in files(root):
        digest.update(f"{path.relative_to(root)} {path.stat().st_mode} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    digest.update(repr(sorted((package.name, package.version) for package in distributions())).encode())
    for program in PROGRAMS:
        path = shutil.which(program)
        digest.update(f"{program} {path} {path and Path(path).stat().st_mtime}".encode())
    return digest.hexdigest()


def files(root):
    """Return the project's own files: all but what .gitignore names. (A student's copy has no git to ask.)"""
    ignored = [".git/", *(root / ".gitignore").read_text().split()]

    def own(path):
        place = path.relative_to(root)
        return not any(
            fnmatch(str(place) if pattern.startswith("/") else place.name, pattern.strip("/")) for pattern in ignored
        )

    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if own(Path(folder, name)))
        found += [path for name in sorted(names) if own(path := Path(folder, name))]
    return found


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
