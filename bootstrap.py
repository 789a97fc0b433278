"""Makes the folder's virtual environment, `.venv`, and keeps it as requirements.txt says.

`make` runs it first. Standard library only, in syntax that Python 3.6 reads: an old Python gets a sentence
to act on and no traceback.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")  # looked for when python3 is too old
GIGABYTE = 10**9
ROOM = 3 * GIGABYTE  # .venv itself takes about 2; pip unpacks beside it
INGREDIENTS = ("requirements.txt", "constraints.txt", "pyproject.toml")

# What pip says when it fails, and what a person can do about it. The first that is found counts.
REMEDIES = (
    (
        ("No space left on device",),
        "the disk is full, here or in {temporary} (pip's temporary folder, TMPDIR): make room",
    ),
    (
        ("Permission denied", "Read-only file system"),
        "a folder that pip writes to is not yours (its last lines name it): change its owner",
    ),
    (
        ("connection broken by", "Connection refused", "timed out", "name resolution", "SSLError"),
        "no package index could be reached: check the network (behind a proxy, set HTTPS_PROXY)",
    ),
    (
        ("No matching distribution", "Could not find a version"),
        "the package index has no build of a package for Python {python} on this machine (pip's last lines "
        "name it): choose another Python, as in `make PYTHON=python3.12`, or another index",
    ),
)


def main(folder):
    """Leave a complete `.venv` in the folder, or exit with one sentence."""
    environment = folder / ".venv"
    stamp = environment / "recurrence-stamp"
    wanted = f"{folder}\n{digest(folder)}\n"
    found = stamp.read_text() if stamp.is_file() else ""
    made_with = version(environment)
    # make hands PYTHON down only when a person chose it; otherwise any working environment will do.
    works = made_with and (not os.environ.get("PYTHON") or made_with == sys.version_info[:2])
    if works and found == wanted:
        return
    require_python(sys.version_info)
    require_writable(folder)
    if works and found.startswith(f"{folder}\n"):  # an environment cannot be moved
        say("The requirements have changed: updating .venv.")
        stamp.unlink()
    else:
        create(environment)
    install(folder, environment)
    stamp.write_text(wanted)
    say(".venv is ready.")


def digest(folder):
    """Return a digest of all that decides what the environment holds."""
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in INGREDIENTS)).hexdigest()


def version(environment):
    """Return (major, minor) of the environment's Python, None when it has none that runs."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        said = subprocess.check_output([str(python_of(environment)), "-c", code], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(int(part) for part in said.split())


def require_python(found):
    """Exit unless this Python is new enough."""
    if tuple(found[:2]) >= OLDEST:
        return
    newer = [name for name in NEWER if runs(name)]
    if newer:
        remedy = f"{newer[0]} is installed, so run `make PYTHON={newer[0]}`"
    else:
        remedy = (
            "install one (Debian, Ubuntu: sudo apt-get install python3.12-venv; macOS: brew install "
            "python@3.12) and run `make PYTHON=python3.12`"
        )
    sys.exit(
        f"Python {dotted(found)} ({sys.executable}) is too old, the course needs {dotted(OLDEST)} or newer: {remedy}."
    )


def require_writable(folder):
    """Exit unless an environment can be made in the folder."""
    if os.pathsep in str(folder):
        sys.exit(f"The path {folder} has a {os.pathsep} in it, which Python forbids: rename the folder.")
    if not os.access(folder, os.W_OK):
        sys.exit(f"The folder {folder} cannot be written to: copy the course to a folder of your own.")


def create(environment):
    """Make the environment anew: what an interrupted run left may look installed without being so."""
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        package = f"python{dotted(sys.version_info[:2])}-venv"
        sys.exit(
            f"This Python ({sys.executable}) cannot make environments: install its venv module "
            f"(Debian, Ubuntu: sudo apt-get install {package}) and run `make` again."
        )
    free = shutil.disk_usage(environment.parent).free + size(environment)
    if free < ROOM:
        sys.exit(
            f"Only {free / GIGABYTE:.1f} GB of disk are free in {environment.parent} and the course needs "
            f"{ROOM / GIGABYTE:.0f} GB there: make room and run `make` again."
        )
    say(f"Making .venv{' anew' if environment.exists() else ''} with Python {dotted(sys.version_info)}.")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=False)
    if made.returncode != 0:
        sys.exit(f"Python could not make {environment}, for the reason above.")


def install(folder, environment):
    """Install the requirements, showing what pip says."""
    say("Installing what requirements.txt names: about 2 GB, which takes some minutes the first time.")
    pip = subprocess.Popen(
        [python_of(environment), "-m", "pip", "install", "--no-compile", "-r", "requirements.txt"],
        cwd=folder,
        env=dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore"),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    complaints = []
    for line in pip.stderr:
        sys.stderr.write(line)
        complaints.append(line)
    if pip.wait() != 0:
        sys.exit(f"pip failed: {remedy_for(''.join(complaints))}, then run `make` again.")
    # pip would compile one module after the other; packages bring some that are for another Python: let those be.
    say("Compiling what was installed.")
    compiling = [python_of(environment), "-m", "compileall", "-q", "-j", "0", environment / "lib"]
    subprocess.run(compiling, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def remedy_for(complaints):
    """Return what a person can do about what pip said."""
    for signs, remedy in REMEDIES:
        if any(sign in complaints for sign in signs):
            return remedy.format(temporary=tempfile.gettempdir(), python=dotted(sys.version_info[:2]))
    return "mend what its last lines, above, complain of"


def size(folder):
    """Return the bytes that a folder's files take, 0 for none."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def runs(name):
    """Whether a program of this name exists and starts."""
    path = shutil.which(name)
    return bool(path) and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0


def python_of(environment):
    """Return the path of the environment's Python."""
    return environment / "bin" / "python"


def dotted(numbers):
    """Return (3, 11, 7, ...) as 3.11.7."""
    return ".".join(str(part) for part in tuple(numbers)[:3])


def say(sentence):
    """Print what is being done, before it is done."""
    print(sentence, flush=True)


if __name__ == "__main__":
    try:
        main(Path(__file__).resolve().parent)
    except KeyboardInterrupt:
        sys.exit("Interrupted: the next `make` begins the environment anew.")
