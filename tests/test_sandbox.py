"""Each limit of the sandbox is hit by code that tries to pass it, and the next worker is none the worse."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from autograde import sandbox, wire
from autograde.sandbox import Died, Late, Limits, Sandbox

ROOT = Path(__file__).resolve().parent.parent
SMALL = Limits(memory=2500, cpu=4, processes=20, file=5, scratch=20)


@pytest.fixture(scope="module")
def box(needs):
    needs("bwrap")
    with Sandbox(limits=SMALL) as made:
        yield made


def said(box, code, seconds=10):
    """Run a cell in a worker of its own; return what it printed, and the exception it raised."""
    with box.worker() as worker:
        shown = worker.run(code, seconds, figures=False)
    return shown["text"] + shown["error"]


def test_a_cell_runs_with_the_libraries_of_a_notebook_and_each_worker_is_new(box):
    imports = "import numpy as np, torch\nimport matplotlib.pyplot as plt\n"
    code = imports + "print(int(torch.ones(3).sum()), np.arange(3).sum())"
    assert said(box, code) == "3 3\n"
    assert said(box, "kept = 1\nopen('/scratch/kept', 'w').write('x')").strip() == "1"
    assert "NameError" in said(box, "kept")
    assert said(box, "import os; print(os.listdir('/scratch'))") == "[]\n"


FORBIDDEN_READS = [
    str(ROOT / "autograde" / "exercises" / "01_forward.py"), str(ROOT / "rnncore.py"), str(ROOT / "solutions"),
    "/course/autograde/exercises", "/course/rnncore.py", "/etc/passwd", "/etc/shadow", "/home", "/var",
    str(Path.home() / ".bashrc"), "/proc/1/environ", "/proc/self/maps", "/sys",
]  # fmt: skip


@pytest.mark.parametrize("path", FORBIDDEN_READS)
def test_what_is_not_the_students_cannot_be_read(box, path):
    assert "FileNotFoundError" in said(
        box, f"import os\nos.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r})"
    )


def test_of_the_project_nothing_is_there_but_the_environment_if_it_lies_within(box):
    code = f"import os\nprint(os.listdir({str(ROOT)!r}) if os.path.exists({str(ROOT)!r}) else [])"
    assert said(box, code) in ("[]\n", f"[{Path(sys.prefix).name!r}]\n")


@pytest.mark.parametrize(
    "path", ["/x", "/usr/x", "/course/x", "/dev/x", "/course/autograde/wire.py", sys.prefix + "/x"]
)
def test_nothing_outside_the_scratch_can_be_written(box, path):
    text = said(box, f"open({path!r}, 'w')")
    assert "Read-only file system" in text or "Permission denied" in text, text


def test_there_is_no_network(box):
    code = "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=3)"
    assert "refused" in said(box, code.format(port=9)) or "unreachable" in said(box, code.format(port=9))
    listening = socket.create_server(("127.0.0.1", 0))  # this machine's, which a cell must not reach
    with listening:
        assert "Error" in said(box, code.format(port=listening.getsockname()[1]))
    assert said(box, "import socket; print(socket.if_nameindex())") == "[(1, 'lo')]\n"


def test_processes_of_others_are_neither_seen_nor_reached(box):
    assert said(box, "import os; print(os.getpid())") == "1\n"
    assert "ProcessLookupError" in said(box, "import os, signal\nos.kill(2, signal.SIGKILL)")
    assert said(box, "import os; print(os.getuid() != 0, os.listdir('/proc'))") == "True []\n"


def test_memory_is_limited_and_the_cell_is_told(box):
    assert "MemoryError" in said(box, "import numpy as np\nnp.ones(4_000_000_000)")
    assert "allocate memory" in said(box, "import torch\ntorch.ones(4_000_000_000)")


def test_a_cell_that_never_ends_is_stopped_and_the_next_one_runs(box):
    with box.worker() as worker:
        shown = worker.run("while True: pass", 1)
        assert "OutOfTime" in shown["error"]
        assert worker.run("print(1)", 1)["text"] == "1\n"


STUBBORN = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nimport time\nwhile True: "


@pytest.mark.parametrize(
    ("limits", "code", "died", "why"),
    [  # only one of the two limits within reach, however busy the machine is
        (Limits(cpu=1, wall=300), "pass", Died, "out of memory or time"),
        (Limits(cpu=300, wall=2), "time.sleep(1)", Late, "ran for too long"),
    ],
)
def test_processor_time_and_wall_time_end_the_process(box, monkeypatch, limits, code, died, why):
    monkeypatch.setattr(box, "limits", limits)
    with box.worker() as worker, pytest.raises(died, match=why):
        worker.run(STUBBORN + code, 1)


def test_processes_are_limited(box):
    code = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError as error:
    print("stopped", made < 25, type(error).__name__)
"""
    assert said(box, code) == "stopped True BlockingIOError\n"


def test_files_are_limited_one_by_one_and_together(box):
    one = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('a', 'wb').write(bytes(6_000_000))"
    assert "File too large" in said(box, one)
    many = "for k in range(9):\n    with open(str(k), 'wb') as file:\n        file.write(bytes(4_000_000))"
    assert "No space left" in said(box, many)
    assert "No space left" in said(box, "for k in range(20_000):\n    open(f'/scratch/{k}', 'w').close()")


def test_what_is_slow_to_load_is_there_for_those_who_use_it(box):
    here = "import sys\nprint([name in sys.modules for name in ('sklearn.datasets', 'torch._dynamo')])"
    with sandbox.Sandbox() as fresh:
        for uses in ((), sandbox.SLOW):
            with fresh.worker(uses) as worker:
                assert worker.run(here, 5)["text"] == str([bool(uses)] * 2) + "\n"
    nothing_needed = "from sklearn.datasets import load_digits\nprint(load_digits().data.shape)"
    assert said(box, nothing_needed) == "(1797, 64)\n"


def test_output_is_limited(box):
    assert len(said(box, "print('x' * 10_000_000)")) <= 20_000
    code = (
        "from IPython.display import display, Image\nfor _ in range(50): display({'text/plain': 'y' * 10**6}, raw=True)"
    )
    with box.worker() as worker:
        outputs = worker.run(code, 10)["outputs"]
    assert len(outputs) <= 20
    assert all(len(text) <= 20_000 for output in outputs for text in output.values())


def test_privileges_cannot_be_won_back(box):
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.{call}, ctypes.get_errno())"
    assert said(box, code.format(call="mount(b'none', b'/usr', b'tmpfs', 0, None)")) == "-1 1\n"
    assert said(box, code.format(call="umount2(b'/proc', 2)")) == "-1 1\n"
    assert said(box, code.format(call="chroot(b'/scratch')")) == "-1 1\n"
    user_namespace = "unshare(0x10000000)"  # in one of its own a process is root, and may mount
    assert said(box, code.format(call=user_namespace)) == "-1 1\n"
    assert "OSError" in said(box, "import os\nos.setuid(0)")


def test_a_worker_that_dies_or_kills_takes_no_other_with_it(box):
    crash = "import ctypes; ctypes.string_at(0)"
    for code in (
        "import os; os._exit(3)",
        crash,
        "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nfinally: os._exit(0)",
    ):
        with box.worker() as beside:
            with box.worker() as worker, pytest.raises(Died):
                worker.run(code, 5)
                worker.run("1", 5)
            assert beside.run("print(2)", 5)["text"] == "2\n"


def test_no_descriptor_is_open_but_the_workers_own_socket_and_fonts_to_read(box):
    code = """
import fcntl, os, stat
for d in range(256):
    try:
        mode = os.fstat(d).st_mode
    except OSError:
        continue
    if os.path.sameopenfile(d, 0):
        print("null")
    elif stat.S_ISSOCK(mode):
        print("socket")
    elif not (stat.S_ISREG(mode) and fcntl.fcntl(d, fcntl.F_GETFL) & 3 == os.O_RDONLY):
        print("other", d)
"""
    assert sorted(said(box, code).split("\n")) == ["", "null", "null", "null", "socket"]


def test_when_the_parent_is_killed_it_is_started_again(needs):
    needs("bwrap")
    with Sandbox(limits=SMALL) as made:
        assert said(made, "print(2)") == "2\n"
        made._parent.kill()
        made._parent.wait()
        assert said(made, "print(3)") == "3\n"


def test_without_bubblewrap_or_namespaces_it_says_what_to_do(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sandbox.shutil, "which", lambda name: None)
        assert "sudo apt-get install bubblewrap" in sandbox.missing()
    text = sandbox.explain("bwrap: No permissions to create new namespace, likely because the kernel does not allow it")
    assert "kernel.unprivileged_userns_clone=1" in text
    assert "--no-sandbox" in text


@pytest.mark.skipif(os.getuid() != 0, reason="already an ordinary user")
def test_an_ordinary_user_is_confined_as_well(needs):
    """As the user nobody, who is let into the folders that lie in root's home."""
    needs("bwrap")
    code = (
        "from autograde.sandbox import Sandbox\n"
        "with Sandbox() as box, box.worker() as worker:\n"
        "    print(worker.run('import os; print(os.getuid(), os.getpid(), os.listdir(\"/proc\"))', 10)['text'])\n"
    )
    lines = ["set -e", "kept=$(mktemp -d)"]
    for number, path in enumerate([sys.prefix, sys.base_prefix, str(ROOT)]):
        closed = [str(parent) for parent in reversed(Path(path).parents) if not parent.stat().st_mode & 1]
        if closed:
            lines += [f"mkdir $kept/{number}", f"mount --rbind {path} $kept/{number}"]
            lines += [f"mount -t tmpfs -o mode=755 none {closed[0]}", f"mkdir -p {path}"]
            lines += [f"mount --rbind $kept/{number} {path}"]
    lines += ['exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"']
    command = ["unshare", "--mount", "bash", "-c", "\n".join(lines), "bash", sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=environment)
    assert done.stdout.strip() == "65534 1 []", done.stderr


def test_where_memory_ends_students_processes_go_first(needs):
    needs("bwrap")
    with Sandbox(confined=False, limits=SMALL) as made:  # confined, it could not read its own mark
        assert said(made, "print(open('/proc/self/oom_score_adj').read())") == "1000\n\n"


MESSAGES = [
    b'{"a": 1, "b": 2}', b"[" * 5000, b"9" * 5000, b'{"tensor": ["O", [1], 0]}', b'{"array": ["f8", [-1], 0]}',
    b'{"tuple": 3}', b'{"scalar": ["f8", [], 99]}', b'{"array": ["f8", [1, 1e9], 0]}', b'{"dict": []}', b'{"x": {}}',
    b'{"array": ["f8", [1000000000000000000000], 0]}', b'{"array": ["f8", [1], 1000000000000000000000]}',
    b'{"array": ["f8", [987654321, 99], 0]}', b'{"array": ["f8", [0, 1000000000000000000000], 0]}', b"\xff\x00", b"",
]  # fmt: skip


@pytest.mark.parametrize("body", MESSAGES, ids=range(len(MESSAGES)))
def test_what_is_no_message_is_refused(body):
    ours, theirs = socket.socketpair()
    theirs.sendall(wire._HEAD.pack(len(body), 0) + body)
    theirs.close()
    with pytest.raises(wire.Malformed):
        wire.receive(ours)


def test_a_message_that_is_cut_off_or_too_long_is_refused():
    for head, error in (((10, 0), EOFError), ((10**12, 0), wire.Malformed), ((0, 2**63), wire.Malformed)):
        ours, theirs = socket.socketpair()
        theirs.sendall(wire._HEAD.pack(*head))
        theirs.close()
        with pytest.raises(error):
            wire.receive(ours)


def test_values_come_through_as_they_were():
    ours, theirs = socket.socketpair()
    rng = np.random.default_rng(0)
    values = [None, True, 3, 2.5, float("inf"), "é", [1, [2.0]], (1, "a"), {"W": rng.normal(size=(2, 3))}]
    values += [np.float32(2), np.arange(6).reshape(2, 3).T, np.zeros((0, 3)), torch.randn(2, 2), torch.ones(3) > 0]
    for value in values:
        wire.send(theirs, value)
        found = wire.receive(ours)
        assert type(found) is type(value)
        if isinstance(value, np.ndarray | torch.Tensor):
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            assert bool((found == value).all())
        elif not isinstance(value, dict):
            assert found == value
    wire.send(theirs, np.ma.masked_all(3))
    assert "MaskedArray" in wire.receive(ours).text
    with pytest.raises(wire.Malformed, match="at most"):
        wire.send(theirs, np.zeros(10_000_000))
