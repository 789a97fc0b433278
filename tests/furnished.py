"""An environment for a copy of the course, as the last release left it: the packages of this one, linked, not copied.

That bootstrap.py makes an environment from nothing is seen on the way to every run of the tests. Here it finds one
that is outdated by its own record, checks each requirement, and installs the copy's own modules.
"""

import sys
import sysconfig
import venv
from pathlib import Path

OWN = "recurrence_course"
SHELL = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
"""


def furnish(folder):
    """Make `.venv` in a copy of the course, for bootstrap.py to bring up to date."""
    here, there = Path(sys.prefix), folder / ".venv"
    venv.create(there, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    for path in packages.iterdir():
        if OWN not in path.name:  # the copy's modules are not this folder's
            link(path, there / packages.relative_to(here) / path.name)
    for name in ("etc", "share"):  # JupyterLab and its extensions
        link(here / name, there / name)
    for path in (here / "bin").iterdir():
        if not (there / "bin" / path.name).exists():
            bring(path, there / "bin" / path.name, there / "bin" / "python")
    (there / "recurrence-stamp").write_text(f"{folder}\nan earlier release\n")


def link(path, place):
    """Link a file or a folder, unless an environment begins with it."""
    if not place.exists():
        place.symlink_to(path)


def bring(path, place, python):
    """Bring a program along. A script names its Python, by way of a shell, as pip has it where a path is long."""
    begin = path.read_bytes()[:2]
    if begin != b"#!":
        place.symlink_to(path)
        return
    first, *lines = path.read_text().splitlines(keepends=True)
    if first == "#!/bin/sh\n":
        lines = lines[2:]
    place.write_text(SHELL.format(python=python) + "".join(lines))
    place.chmod(0o755)
