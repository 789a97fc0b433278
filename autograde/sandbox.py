"""Confines students' code: a warm parent inside bubblewrap, and a fresh process of its own for every notebook."""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from autograde import wire

HERE = Path(__file__).resolve().parent
INSIDE = ("attempt", "compare", "guard", "probes", "wire", "worker")  # the modules of this package a worker needs
READ = ("rnnconvert.py", "rnndata.py", "data")  # of the course, what a notebook finds where it stands
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/scratch", "TMPDIR": "/scratch", "MPLCONFIGDIR": "/scratch",
    "IPYTHONDIR": "/scratch", "MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYTHONPATH": "/course",
    "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
SLOW = ("sklearn", "torch.optim")  # what some notebooks use and takes a second to load: names as they stand in a cell
START = 60  # seconds the warm parent may take to import everything
GONE_WITHIN = 5  # seconds a process may take to be gone once it is killed


class Unconfined(Exception):
    """Raised where no sandbox can be made; the text says what to install or to switch."""


class Died(Exception):
    """Raised when a student's process is gone, is late, or answers nonsense; the text says it to the student."""

    kind = "Died"


class Late(Died):
    """Raised when a student's process was given up: it ran for too long."""

    kind = "OutOfTime"


@dataclass(frozen=True)
class Limits:
    """What one notebook may use. Memory is address space, of which a third is the libraries'."""

    cell: int = 30  # seconds, for one of its cells
    memory: int = 2500  # MB
    cpu: int = 60  # seconds
    wall: int = 90  # seconds
    processes: int = 16  # threads among them; so many at most share the processors, and multiply the memory
    file: int = 50  # MB, of one file
    scratch: int = 100  # MB, of all its files


class Sandbox:
    """A warm parent, from which workers are forked; a context manager, safe to use from several threads.

    The parent is started when the first worker is asked for, which raises Unconfined where none can be.
    """

    def __init__(self, confined=True, limits=Limits()):
        self.confined, self.limits = confined, limits
        self._lock, self._number, self._parent = threading.Lock(), 0, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()

    @contextlib.contextmanager
    def worker(self, uses=()):
        """Yield a `Worker`, a new process that no other notebook has used or will use; it is killed afterwards.

        What it uses of `SLOW` the parent loads once, before.
        """
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                self._number += 1
                number = str(self._number)
                if self._parent is None:
                    self._start()
                try:
                    self._fork(number, theirs, uses)
                except (OSError, EOFError):  # the parent is gone: out of memory, or killed
                    self._stop()
                    self._start()
                    self._fork(number, theirs, uses)
            try:
                yield Worker(ours, time.monotonic() + self.limits.wall)
            finally:
                with self._lock, contextlib.suppress(OSError):
                    self._control.sendall(f"kill {number}".encode())
                if self.confined:  # what is left of it could tell the next one what it knew
                    hung_up = select.poll()
                    hung_up.register(ours, 0)
                    hung_up.poll(1000 * GONE_WITHIN)

    def _fork(self, number, theirs, uses):
        limits = asdict(self.limits) | {"confined": int(self.confined), "uses": ",".join(uses)}
        text = " ".join(["fork", number, *(f"{name}={value}" for name, value in limits.items())])
        socket.send_fds(self._control, [text.encode()], [theirs.fileno()])
        if self._control.recv(64) != b"started\n":
            raise EOFError

    def _start(self):
        self._folder = tempfile.TemporaryDirectory(prefix="worker-")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = (Path(self._folder.name) / "log").open("wb+")
        command = [sys.executable, "-m", "autograde.worker", str(theirs.fileno())]
        environment = {**os.environ, **{name: ENVIRONMENT[name] for name in ("MPLBACKEND", "OMP_NUM_THREADS")}}
        if self.confined:
            command, environment = [*bubblewrap(), *command], {"PATH": os.environ.get("PATH", os.defpath)}
        self._parent = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
            start_new_session=True,  # a terminal's Ctrl+C is not for students' code, whose end would count as its own
        )  # fmt: skip
        theirs.close()
        ours.settimeout(START)
        self._control, self._log = ours, log
        try:
            ready = ours.recv(64)
        except TimeoutError:
            ready = b""
        if ready != b"ready\n":
            log.seek(0)
            said = log.read().decode(errors="replace").strip()
            self._stop()
            text = f"the workers' parent did not start: {said[-500:]}"
            raise Unconfined(explain(said) if "bwrap: " in said else text)

    def _stop(self):
        if self._parent:
            self._control.close()
            self._parent.kill()
            self._parent.wait()
            self._log.close()
            self._folder.cleanup()
            self._parent = None


class Worker:
    """A student's process, as seen by the grader: whatever it says is looked at as coming from the student."""

    def __init__(self, connection, deadline):
        self._connection, self._deadline = connection, deadline

    def provide(self, modules):
        """Give it modules, {name: {"text", "code"}}: the source, and its code, marshalled, as bytes in an array.

        A module that it has is given what it lacked: names that a cell imported from it stay what they were.
        """
        self._send({"modules": modules})

    def run(self, cell, seconds, figures=True):
        """Run a cell, given as text, with its figures or without; return what came.

        That is {"text", "outputs", "error", "value", "lacked"}; the last says whether it wanted more of a module.
        """
        self._send({"cell": cell, "seconds": seconds, "figures": figures})
        return self._receive()

    def probe(self, answer, probe, forbidden, seconds):
        """Begin to try an answer, by its name; return what is wrong with the answer itself, or {}."""
        self._send({"answer": answer, "probe": probe, "forbidden": list(forbidden), "seconds": seconds})
        return self._receive()

    def ask(self, arguments):
        """Run the answer on one case; return what came, as the fields of an `Attempt`."""
        self._send(dict(arguments))
        return self._receive()

    def end_of_cases(self):
        """Say that no case follows; return {"printed": what the answer printed}."""
        self._send(None)
        return self._receive()

    def _send(self, value):
        try:
            self._connection.settimeout(max(0.01, self._deadline - time.monotonic()))
            wire.send(self._connection, value)
        except OSError:
            raise Died(GONE) from None

    def _receive(self):
        try:
            return wire.receive(self._connection, self._deadline)
        except TimeoutError:
            raise Late("The notebook was stopped: it ran for too long.") from None
        except EOFError:
            raise Died(GONE) from None
        except wire.Malformed as error:
            raise Died(f"The notebook's process answered nonsense: {error}.") from None


GONE = "The notebook's process ended by itself: out of memory or time, or your code ended it."


def bubblewrap():
    """Return the command that confines what stands behind it: no network, a read-only system, nothing of the course's.

    Raises Unconfined without the program.
    """
    program = shutil.which("bwrap")
    if not program:
        raise Unconfined(
            "bubblewrap is missing, which confines students' code: sudo apt-get install bubblewrap. On a machine that "
            "holds nothing else, --no-sandbox (NO_SANDBOX=1 for make) does without"
        )
    command = [program, "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.getuid():
        command += ["--unshare-user"]
    else:  # root stays root until the child becomes nobody, and can do nothing but that
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    command += ["--die-with-parent", "--new-session", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    readable = _readable()
    above = {parent for path in (*readable, "/course/autograde/worker.py") for parent in map(str, Path(path).parents)}
    for folder in sorted(above - {"/", *readable}):  # bubblewrap itself would make them for their owner alone
        command += ["--perms", "0755", "--dir", folder]
    for path in readable:
        link = Path(path).is_symlink()
        command += ["--symlink", str(Path(path).readlink()), path] if link else ["--ro-bind", path, path]
    for name in INSIDE:
        command += ["--ro-bind", str(HERE / f"{name}.py"), f"/course/autograde/{name}.py"]
    command += ["--ro-bind", str(HERE / "inside.py"), "/course/autograde/__init__.py"]
    for name in READ:
        command += ["--ro-bind", str(HERE.parent / name), f"/course/{name}"]
    command += ["--perms", "0755", "--dir", "/inside"]  # a child's root
    return [*command, "--tmpfs", "/scratch", "--chdir", "/scratch", "--remount-ro", "/dev", "--remount-ro", "/"]


def _readable():
    """Return the paths that Python and its libraries need; outermost first."""
    own = {sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), sysconfig.get_path("purelib")}
    paths = [path for path in map(Path, (*SYSTEM, *sorted(own))) if path.exists()]
    inside = {p for p in paths for q in paths if q in p.parents and not q.is_symlink()}
    return [str(path) for path in paths if path not in inside]


def missing():
    """Return why students' code cannot be confined on this machine, or ""."""
    try:
        done = subprocess.run([*bubblewrap(), "true"], capture_output=True, text=True, check=False)
    except Unconfined as error:
        return str(error)
    return explain(done.stderr.strip()) if done.returncode else ""


def explain(said):
    """Return why a sandbox cannot be made here, and what to switch, from what bubblewrap said."""
    text = f"bubblewrap cannot confine students' code here: {said[-500:]}. "
    if "amespace" in said or "ermission denied" in said or "not permitted" in said:
        text += (
            "User namespaces must be allowed: on Ubuntu 24.04 by "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, on Debian by "
            "`sudo sysctl kernel.unprivileged_userns_clone=1`, in Docker by `--security-opt seccomp=unconfined`. "
        )
    return text + "On a machine that holds nothing else, --no-sandbox (NO_SANDBOX=1 for make) does without"
