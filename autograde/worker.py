"""Runs students' cells inside the sandbox: a parent that has everything imported forks a process for each notebook.

The parent runs no student's code. The child is the student's from the first cell on: the grader believes nothing it
says beyond the results it gives, and compares those itself.
"""

import contextlib
import ctypes
import gc
import importlib
import linecache
import marshal
import numbers
import os
import random
import resource
import signal
import socket
import sys
import traceback
import types

import matplotlib.pyplot as plt
import numpy as np
import torch
from array_api_compat import array_namespace
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from IPython.utils.capture import capture_output
from matplotlib.figure import Figure
from matplotlib_inline import backend_inline
from traitlets.config import Config

from autograde import guard, probes, wire
from autograde.attempt import attempting, captured
from autograde.compare import describe

SCRATCH = "/scratch"  # the only place a child can write to
ROOT = "/inside"  # where the same files are seen again: the root of a child
TEXT_LIMIT, IMAGE_LIMIT = 20_000, 1_500_000  # what is kept of one cell's outputs: characters, bytes of base64
NOBODY = 65534
_given = {}  # the modules that the grader sent, by name

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38


def main():
    """Fork a child for every request; all that notebooks import is imported by now."""
    control = socket.socket(fileno=int(sys.argv[1]))  # on which it is told what to do
    _leave_keyring()
    shell = _shell()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control.sendall(b"ready\n")
    children = {}
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 4096, 1)
        if not message:
            return
        verb, number, *more = message.decode().split()
        if verb == "kill":
            pidfd = children.pop(number, None)
            if pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
            continue
        limits = dict(limit.split("=") for limit in more)
        _load(limits.pop("uses").split(","))
        read, write = os.pipe()
        if os.fork() == 0:
            control.close()
            os.close(read)
            for other in children.values():
                os.close(other)
            _child(shell, descriptors[0], write, limits)
        os.close(write)
        os.close(descriptors[0])
        pid = int(os.read(read, 20) or 0)
        os.close(read)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                children[number] = os.pidfd_open(pid)
        control.sendall(b"started\n")


def _load(uses):
    """Load once, here, of `sandbox.SLOW` what a notebook uses; most use nothing of it."""
    if "torch.optim" in uses and "torch._dynamo" not in sys.modules:
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])  # the first optimiser loads modules for seconds
        gc.freeze()
    if "sklearn" in uses and "sklearn.datasets" not in sys.modules:
        importlib.import_module("sklearn.datasets").load_digits()
        gc.freeze()


def _child(shell, descriptor, report, limits):
    """Confine this process, tell its number, and serve the grader; never return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confined = limits.pop("confined") == "1"
        _first_to_go()
        if confined:
            _new_namespaces()
        pid = os.fork()
        if pid:
            os.write(report, str(pid).encode())
            os.close(report)
            os.waitpid(pid, 0)  # until then it keeps the descriptor, by whose end the grader sees that all are gone
            os._exit(0)
        os.close(report)
        if confined:
            _mount_own_files(int(limits["scratch"]))
            _drop_privileges()
            os.chdir(SCRATCH)
        _limit({name: int(value) for name, value in limits.items()})
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)
        status = serve(shell, socket.socket(fileno=descriptor))
    except BaseException:
        os.write(2, traceback.format_exc().encode())  # to the grader's log, while nothing of a student's has run
    finally:
        os._exit(status)


def _check(code):
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _leave_keyring():
    """Leave the keyring of the session that started the grading, which no namespace hides, for one that is revoked."""
    keyctl = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
    if keyctl:  # where it fails, by a filter or for want of memory, ...
        call = ctypes.CDLL(None, use_errno=True).syscall
        if call(ctypes.c_long(keyctl), ctypes.c_long(1), None) > 0:  # KEYCTL_JOIN_SESSION_KEYRING
            _check(call(ctypes.c_long(keyctl), ctypes.c_long(3), ctypes.c_long(-3)))  # KEYCTL_REVOKE


def _first_to_go():
    """Let the kernel, where memory runs out, end this process and its own before the grader and other notebooks."""
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")


def _new_namespaces():
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() == 0:  # the machine's own root; a student's process is to be nobody
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        _check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))  # else the maps below belong to root
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(NEWUSER | NEWPID | NEWNS | NEWIPC | NEWNET | NEWUTS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def _mount_own_files(megabytes):
    """Give this process a scratch of its own, and hide what shows or reaches other processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    _check(libc.mount(b"/", ROOT.encode(), None, MS_BIND | MS_REC, None))
    os.chroot(ROOT)  # from such a root the kernel makes no user namespace, in which a student would be root again
    os.chdir("/")
    size = f"size={megabytes}m,nr_inodes=10000,mode=700".encode()
    for place, options in ((SCRATCH, size), ("/dev/shm", size), ("/proc", b"size=4k,nr_inodes=1,mode=500")):
        _check(libc.mount(b"none", place.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options))


def _drop_privileges():
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # version 3 of the kernel's format
    _check(libc.capset(header, none))


def _limit(limits):
    for name, value in (
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", 256),
        ("RLIMIT_FSIZE", limits["file"] << 20),
        ("RLIMIT_NPROC", limits["processes"]),
        ("RLIMIT_CPU", limits["cpu"]),
        ("RLIMIT_AS", limits["memory"] << 20),
    ):
        resource.setrlimit(getattr(resource, name), (value, value))


# What follows runs in the student's own process.


def _shell():
    """Return an IPython shell like a notebook's."""
    torch.set_num_threads(1)

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):
            """Do nothing: there are no windows."""

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.autocall = 0
    shell = Shell.instance(config=config, user_module=types.ModuleType("__main__"))
    sys.modules["__main__"] = shell.user_module
    shell.enable_matplotlib("inline")
    backend_inline.set_matplotlib_formats = lambda *formats, **_: None  # the course asks for SVG; only PNG is taken
    shell.events.unregister("post_execute", backend_inline.flush_figures)  # `_run_cell` does it where they are wanted
    plt.uninstall_repl_displayhook()  # which draws every figure once more, and shows it nowhere
    shell.display_formatter.formatters["image/png"].for_type(Figure, _png)
    shell.displayhook.write_output_prompt = lambda: None
    _warm_up(shell)
    return shell


def _png(figure):
    """Return a figure as PNG; the margins of one that lays itself out need no measuring, which takes as long again."""
    return print_figure(figure, "png", base64=True, bbox_inches=None if figure.get_layout_engine() else "tight")


def _warm_up(shell):
    """Do once, here, what every notebook would do for the first time: load modules, fonts, the parser's tables."""
    for array in (np.zeros(1), torch.zeros(1)):
        array_namespace(array)
    torch.tanh(torch.ones(1, 1) + torch.ones(1, 1) @ torch.ones(1, 1))  # for such PyTorch once looks at /proc
    with capture_output():
        shell.run_cell("'warm'", store_history=False)
    for layout in (None, "constrained"):
        figure, axes = plt.subplots(layout=layout)
        for size in (9, 10):  # of the labels of a logarithmic axis, each of which is parsed as mathematics
            axes.semilogy([1, 2], [1e-9, 1e3], marker="o", label="a")
            axes.set(title="$h_t$", xlabel="t")
            axes.tick_params(labelsize=size)
            axes.legend()
            shell.display_formatter.format(figure)
    plt.close("all")


def serve(shell, grader):
    """Do what the grader asks, until it asks no more."""
    np.random.seed(random.randrange(2**32))  # no two children are to draw the same
    torch.seed()
    while True:
        try:
            request = wire.receive(grader)
        except EOFError:
            return 0
        if "modules" in request:
            for name, module in request["modules"].items():
                _provide(name, **module)
        elif "cell" in request:
            wire.send(grader, _run_cell(shell, **request))
        elif "answer" in request:
            _probe(shell, grader, **request)


def _provide(name, text, code):
    """Make a module that no file need hold, of its text and the code compiled from it, or put more into one."""
    code = marshal.loads(code.tobytes())
    module, path = _given.setdefault(name, types.ModuleType(name)), code.co_filename
    module.__file__ = path
    for missing in ("__getattr__", "__dir__"):
        module.__dict__.pop(missing, None)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    sys.modules[name] = module
    exec(code, module.__dict__)


def _asked():
    """Return whether a module was asked for something that it lacks, and forget it."""
    found = [vars(module).get("__getattr__") for module in _given.values()]
    asked = [missing for missing in found if getattr(missing, "asked", False)]
    for missing in asked:
        missing.asked = False
    return bool(asked)


def _run_cell(shell, cell, seconds, figures):
    """Run a cell; return what it showed, bounded, its value, if that is a number, and what it lacked of modules.

    Figures are drawn, which takes long, if they are wanted.
    """
    _asked()  # an answer that was tried did
    shell.displayhook.quiet = cell.rstrip().endswith(";").__bool__  # IPython looks into a history, which we do not keep
    shell.display_formatter.active_types = ["text/plain", "image/png"] if figures else ["text/plain"]
    with capture_output() as shown, guard.time_limit(seconds) as clock, clock:
        result = shell.run_cell(cell, store_history=False)
        if figures:
            backend_inline.flush_figures()
    plt.close("all")
    error = result.error_before_exec or result.error_in_exec
    limits, outputs = {"text/plain": TEXT_LIMIT, "image/png": IMAGE_LIMIT}, []
    for output in shown.outputs[:20]:
        data = {kind: text for kind, text in output.data.items() if kind in limits and isinstance(text, str)}
        outputs.append({kind: text[: limits[kind]] for kind, text in data.items()})
    message = "" if error is None else f"{type(error).__name__}: {error}"[:TEXT_LIMIT]
    text = (shown.stdout + shown.stderr)[:TEXT_LIMIT]
    value = _number(result.result)
    return {"text": text, "outputs": outputs, "error": message, "value": value, "lacked": _asked()}


def _number(value):
    """Return a value as a number, if it is one; 10**400 is none."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(Exception):
            return float(value)
    return None


def _probe(shell, grader, answer, probe, forbidden, seconds):
    """Run an answer on the cases that the grader sends, one at a time, until it sends None."""
    found = shell.user_ns.get(answer)
    if not callable(found):
        wire.send(grader, {"not callable": describe(found)} if answer in shell.user_ns else {"missing": answer})
        return
    wire.send(grader, {})
    probe = getattr(probes, probe)
    with captured() as printed, attempting(probe, found, tuple(forbidden), seconds) as attempt:
        while (arguments := wire.receive(grader)) is not None:
            # asdict would copy, which a tensor with a graph refuses, and take a `Described` apart
            came = dict(vars(attempt(arguments)))
            came |= {name: list(came[name]) for name in ("details", "changed")}
            try:
                wire.send(grader, came)
            except wire.Malformed as error:
                wire.send(grader, came | {"result": None, "kind": "Unusable", "problem": f"The result: {error}."})
    wire.send(grader, {"printed": printed.getvalue()[:TEXT_LIMIT]})


if __name__ == "__main__":
    main()
