"""Attacks on the grading, as data: notebooks with wrong answers, handed in to gain what they have not earned.

Each is shown to succeed against an unprotected run by benchmarks/attacks.py, and to fail here by tests/test_oracle.py.
They are harmless outside the course they are run in: what they write to, kill or read lies there.
"""
# ruff: noqa: E501, attackers' code stands in strings

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograde import exercises

SLUG = "01_forward"
CHECKS = {
    "rnn-step": "rnn_step", "rnn-sequence": "rnn_forward", "parameter-count": "count_parameters",
    "parity-weights": "parity_weights",
}  # fmt: skip


def about(name, **more):
    """Return nbgrader's metadata of a cell."""
    usual = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return {"nbgrader": usual | {"grade_id": name} | more}


def course_notebook(tests=None):
    """Return a course's notebook: imports, four exercises, a demo, an answer that a person grades.

    tests are {exercise: source of its test cell}; without, they are the course's own checks.
    """
    cells = [new_code_cell("import numpy as np\nimport rnncore\nfrom autograde import check", id="imports")]
    for name, function in CHECKS.items():
        points = exercises.find(name).points
        stub = f"def {function}(*a):\n    raise NotImplementedError()"
        cells.append(new_code_cell(stub, id=name, metadata=about(name, solution=True)))
        tested = about(f"{name}-check", grade=True, locked=True, points=points)
        text = tests[name] if tests else f'check("{name}", {function})'
        cells.append(new_code_cell(text, id=f"{name}-check", metadata=tested))
    cells.append(new_code_cell("raise RuntimeError('a demo has run')", id="demo", metadata={"tags": ["demo"]}))
    cells.append(new_markdown_cell("Why?", id="why", metadata=about("why", grade=True, solution=True, points=2)))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


COURSE = course_notebook()
DRAWN = "rng = np.random.default_rng(1)\nw = [rng.normal(size=s) for s in [(4, 3), (4, 4), (4,)]]\n"
ASSERTIONS = {  # as instructors write them
    "rnn-step": DRAWN + "x, h = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))\n"
    "expected = rnncore.rnn_step(x, h, *w)\nassert np.allclose(rnn_step(x, h, *w), expected)",
    "rnn-sequence": DRAWN + "x, h0 = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 4))\n"
    "expected = rnncore.rnn_forward(x, h0, *w)\nassert not (abs(rnn_forward(x, h0, *w) - expected) > 1e-6).any()",
    "parameter-count": "assert count_parameters(3, 5, 2) == 57",
    "parity-weights": "assert set(parity_weights()) == {'W_xh', 'W_hh', 'b_h', 'W_hy', 'b_y'}",
}
STEP = "def rnn_step(x, h, W_xh, W_hh, b_h):\n    return np.tanh(x @ W_xh.T + h @ W_hh.T + b_h)"
RIGHT = {
    "rnn-step": STEP,
    "rnn-sequence": "def rnn_forward(x, h0, *w):\n    h, found = h0, []\n    for t in range(len(x[0])):\n"
    "        h = rnncore.rnn_step(x[:, t], h, *w)\n        found += [h]\n    return np.moveaxis(np.array(found), 0, 1)",
    "parameter-count": "def count_parameters(D, H, C):\n    return H * (D + H) + H + C * H + C",
    "parity-weights": "two = [[1, -1], [2, -2]]\nparity_weights = lambda: dict(\n"
    "    W_xh=[[1], [2]], W_hh=two, b_h=[0, -2], W_hy=[[1, -1]], b_y=[0])",
}
WRONG = {
    "rnn-step": "def rnn_step(x, h, *w):\n    return h * 0",
    "rnn-sequence": "def rnn_forward(x, h0, *w):\n    return x * 0",
    "parameter-count": "def count_parameters(D, H, C):\n    return 0",
    "parity-weights": "def parity_weights():\n    return None",
}
FULL = {"rnn-step-check": 3.0, "rnn-sequence-check": 4.0, "parameter-count-check": 2.0, "parity-weights-check": 3.0}


def handed_in(answers=(), more=(), first=()):
    """Return a student's notebook: answers by exercise, cells before all others, and cells at the end."""
    nb = nbformat.from_dict(json.loads(json.dumps(COURSE)))
    for cell in nb.cells:
        cell.source = dict(answers).get(cell.id, cell.source)
    nb.cells = [*map(new_code_cell, first), *nb.cells, *map(new_code_cell, more)]
    return nb


# ----------------------------------------------------------------------------------------------------------------------
# What an attack is, and when it has succeeded.

ATTACKER, VICTIM = "mallory", "victor"
SECRETS = {  # what stands in the course, or in the grader's surroundings, and must not reach the attacker
    "the source": "the-answer-in-the-source",
    "another's submission": "written-by-victor-alone",
    "the seed": "31415926535",
    "the grader's environment": "a-token-of-the-grader",
}
POINTS, LEAK, HARM, STOP, SCRIPT = "points", "leak", "harm", "stop", "script"

STOCK = "stock nbgrader"
ASSERTED = "stock nbgrader, cells of assertions"
UNLOCKED = "stock nbgrader without OverwriteCells and DeduplicateIds"
OURS = "this project without "  # and then the defence that is off


@dataclass(frozen=True)
class Attack:
    """A submission that tries to gain something.

    gain     points for wrong answers; leak: a secret in its outputs; harm: another's file or grade, or the machine's
             disk; stop: it or the class is not graded; script: code that runs on a feedback page
    against  the unprotected run in which it succeeds
    code     runs where the first answer stands; COURSE in it is the course's folder, which attackers are taken to know
    answers  in place of the wrong ones, {id of a cell: source}
    change   what else is done to the notebook; it returns None, or the bytes to hand in instead
    files    handed in besides, {name: bytes}
    link     whose notebook a link is handed in to, instead of a notebook
    """

    name: str
    gain: str
    against: str
    code: str = ""
    answers: dict = field(default_factory=dict)
    change: Callable = lambda nb: None
    files: dict = field(default_factory=dict)
    link: str = ""

    def hand_in(self, course, student):
        """Put the submission into a course directory."""
        folder = course / "submitted" / student / SLUG
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        path = folder / f"{SLUG}.ipynb"
        if self.link:
            path.symlink_to(course / self.link)
        else:
            path.write_bytes(self.notebook(course))

    def notebook(self, course):
        """Return the notebook's file, for a course in this folder."""
        answers = WRONG | self.answers
        if self.code:
            answers |= {"rnn-step": f"{self.code}\n{answers['rnn-step']}"}
        answers = {name: source.replace("COURSE", str(course)) for name, source in answers.items()}
        nb = handed_in(answers)
        return self.change(nb) or json.dumps(nb).encode()


class _Active(HTMLParser):
    """Collects what a page's browser would run and an attacker wrote: it holds the word "forged"."""

    def __init__(self, page):
        super().__init__()
        self.found, self._script = [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._script = tag == "script"
        for name, value in attributes:
            address = "".join((value or "").split()).lower()
            if "forged" in address and (name.startswith("on") or name == "srcdoc" or address.startswith("javascript:")):
                self.found.append(f"{tag} {name}")

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if self._script and "forged" in data:
            self.found.append("script")


def active(page):
    """Return what of an attacker's a browser would run on a page."""
    return _Active(page).found


def leaked(text):
    """Return the names of the secrets that stand in a text."""
    return [name for name, secret in SECRETS.items() if secret in text]


# ----------------------------------------------------------------------------------------------------------------------

FORGED = "class Forged:\n    def __repr__(self): return '2.0'\n"
WALK = "import os\nfor folder, _, names in os.walk('COURSE'):\n    for name in names:\n        "
UPDATE = (
    "import sqlite3\nwith sqlite3.connect('COURSE/gradebook.db') as db:\n"
    "    db.execute('update grade set manual_score = {score}, needs_manual_grade = 0')"
)
SOCKETS = (
    "import gc, socket\nfrom autograde import wire\n"
    "sockets = [thing for thing in gc.get_objects() if isinstance(thing, socket.socket)]\n"
)
SENDS = (
    SOCKETS + "def rnn_step(*a):\n    kernel = get_ipython().kernel\n"
    "    said = {'data': {'text/plain': '2.0'}, 'metadata': {}, 'execution_count': 1}\n"
    "    kernel.session.send(kernel.iopub_socket, 'execute_result', said, parent=kernel.get_parent())\n"
    "if not hasattr(get_ipython(), 'kernel'):\n"
    "    said = {'score': 3.0, 'passed': 7, 'result': None, 'kind': '', 'problem': '', 'details': [], 'changed': [],\n"
    "            'text': '2.0', 'outputs': [{'text/plain': '2.0'}], 'error': '', 'printed': '2.0'}\n"
    "    for s in sockets:\n        for _ in range(9): wire.send(s, said)"
)
EQUAL = (
    "import autograde.compare as c\n"
    "c.compare.__code__ = (lambda result, expected, axes='', tolerance=0, name='', place=None: None).__code__"
)
SHADOW = (
    "array_namespace = None\ndef is_torch_array(value):\n    " + EQUAL.replace("\n", "\n    ") + "\n    return False\n"
)
PICTURES = (
    "from IPython.display import display\n"
    "for _ in range(19): display({'image/png': 'iVBORw0KGgoA' + 'A' * 1_400_000, 'text/plain': ''}, raw=True)"
)


def answers_by(body):
    """Return answers to both recurrences that switch the watch off and then run this body, of `args` and `name`."""
    body = body.replace("\n", "\n    ")
    functions = {"rnn-step": "rnn_step", "rnn-sequence": "rnn_forward"}
    text = "def {f}(*args, name='{f}'):\n    import sys\n    sys.setprofile(None)\n    {body}"
    return {exercise: text.format(f=function, body=body) for exercise, function in functions.items()}


def shown(mimetype, text, metadata=None):
    """Return code that shows a text as an output of some type."""
    return f"from IPython.display import display\ndisplay({{{mimetype!r}: {text!r}}}, metadata={metadata!r}, raw=True)"


def prose(text):
    """Return a change that gives a written answer."""

    def change(nb):
        nb.cells[-1].source = text

    return change


def tag_checks(nb):
    """Ask the executor, by tags, to leave the checks out."""
    for cell in nb.cells:
        cell.metadata["tags"] = ["skip-execution", "demo"]


def edit_checks(nb):
    """Put a number in the place of every check, and more points."""
    for cell in nb.cells:
        if cell.id.endswith("-check"):
            cell.source, cell.metadata = "2.0", about(cell.id, grade=True, locked=True, points=100)


def double_checks(nb):
    """Add a second cell with the name of each check, before and after."""
    copies = [
        new_code_cell("2.0", metadata=about(f"{name}-check", grade=True, locked=True, points=3)) for name in CHECKS
    ]
    nb.cells = [*copies, *nb.cells, *copies]


def unknown_name(nb):
    """Add a graded cell whose name differs from a check's by a space of no width."""
    nb.cells.append(new_code_cell("2.0", metadata=about("rnn-step-check\u200b", grade=True, locked=True, points=3)))


def name_that_is_none(nb):
    """Give a cell a name that is a list."""
    nb.cells[1].metadata["nbgrader"]["grade_id"] = ["rnn-step"]


def half_a_character(nb):
    """Put half a surrogate pair into a cell, which UTF-8 cannot hold."""
    nb.cells[0].source += "\nx = '\ud800'"


def slow_to_colour(nb):
    """Add code whose colouring takes a time that grows with the square of its length."""
    nb.cells.append(new_code_cell("a." * 100_000))


def many_cells(nb):
    """Add very many cells."""
    nb.cells += [{**new_code_cell(""), "id": f"cell-{number}", "source": "1"} for number in range(100_000)]


def many_pictures(nb):
    """Show 27 MB of pictures in each of eight cells."""
    nb.cells += [new_code_cell(f"{PICTURES}\n{number}") for number in range(8)]


def by_heart():
    """Return answers that know the results of the public seed's drawn cases, and nothing else."""
    exercise = exercises.find("rnn-step")
    other = exercise.draw(seed=1)
    table = {}
    for mine, theirs in zip(exercise.draw(), other, strict=True):
        if mine.arguments["b_h"].tolist() != theirs.arguments["b_h"].tolist():  # not the same for everybody
            result = exercise.probe(exercise.reference, mine.arguments)
            table[repr(float(mine.arguments["b_h"][0]))] = result.tolist()
    return {"rnn-step": f"KNOWN = {table}\ndef rnn_step(x, h, W, U, b):\n    return np.array(KNOWN[repr(float(b[0]))])"}


TAKES = {  # the right result, asked for where the answer runs: as bodies of `answers_by`
    "the reference's module is asked, under another name": "return getattr(__import__('rnn' + 'core'), name)(*args)",
    "the reference's file is read and run": (
        "n = {'__name__': 'r'}\nexec(open(rnncore.__file__).read(), n)\nreturn n[name](*args)"
    ),
    "the reference's source is taken from a cache": (
        "import inspect\nn = {'__name__': 'r'}\nexec(inspect.getsource(rnncore), n)\nreturn n[name](*args)"
    ),
    "the exercises are imported": (
        "from autograde import exercises\n"
        "return exercises.find({'rnn_step': 'rnn-step', 'rnn_forward': 'rnn-sequence'}[name]).reference(*args)"
    ),
    "a misconception is imported and corrected": (
        "from autograde import exercises\n*rest, b = args\n"
        "wrong = exercises.find('rnn-step').misconceptions['the bias is added twice']\n"
        "return wrong.implementation(*rest, b / 2)"
    ),
    "the frames above are searched for the reference": (
        "f = sys._getframe()\nwhile f:\n    for v in list(f.f_locals.values()):\n"
        "        if callable(getattr(v, 'reference', None)): return v.reference(*args)\n    f = f.f_back"
    ),
    "the garbage collector is asked for the reference": (
        "import gc, types\nfor o in gc.get_objects():\n"
        "    if type(o).__name__ == 'Exercise' and o.id == {'rnn_step': 'rnn-step'}.get(name): return o.reference(*args)\n"
        "    if isinstance(o, types.FunctionType) and o.__name__ == name and o.__module__ == 'rnncore': return o(*args)"
    ),
    "the expected results are taken from the check's memory": (
        "from autograde import diagnose, exercises\ne = exercises.find('rnn-step')\n"
        "return next(r for c, r in zip(e.draw(), diagnose._expected(e, 0)) if np.array_equal(c.arguments['x'], args[0]))"
    ),
}  # fmt: skip

OBJECTS = {  # results that pass an assertion without being right
    "a result that is equal to everything": {
        "parameter-count": "class All:\n    def __eq__(self, other): return True\ncount_parameters = lambda *a: All()"
    },
    "a masked array": {"rnn-sequence": "rnn_forward = lambda x, h, *w: np.ma.masked_all((*x.shape[:2], h.shape[1]))"},
    "not a number": {"rnn-sequence": "rnn_forward = lambda x, h, *w: np.full((*x.shape[:2], h.shape[1]), np.nan)"},
    "an array subclass that answers for NumPy": {
        "rnn-step": "class Lying(np.ndarray):\n    def __array_function__(self, *a): return True\n"
        "    def __array_ufunc__(self, *a, **k): return np.zeros((1, 1))\nrnn_step = lambda x, h, *w: h.view(Lying)"
    },
    "an object whose __array__ looks for the expected result": {
        "rnn-step": "import sys\nclass Lying:\n    def __array__(self, *a, **k):\n        f = sys._getframe()\n        while f:\n"
        "            if 'expected' in f.f_globals: return f.f_globals['expected']\n"
        "            if 'expected' in f.f_locals: return f.f_locals['expected'][0]\n            f = f.f_back\n"
        "rnn_step = lambda *a: Lying()"
    },
    "an exception in place of the comparison": {
        "parameter-count": "class Odd(int):\n    def __eq__(self, other): return Odd(1)\n    __hash__ = None\n"
        "count_parameters = lambda *a: Odd(0)"
    },
}

FORGERIES = {  # code that makes the student's process say what it likes
    "the display formatter shows a score": (
        "get_ipython().display_formatter.format = lambda *a, **k: ({'text/plain': '2.0'}, {})"
    ),
    "the display hook shows nothing": "type(get_ipython().displayhook).__call__ = lambda self, result=None: None",
    "an AST transformer replaces the checks": (
        "import ast\nclass Swap(ast.NodeTransformer):\n"
        "    def visit_Call(self, node): return ast.copy_location(ast.Constant(2.0), node) if getattr(node.func, 'id', '') == 'check' else node\n"
        "get_ipython().ast_transformers.append(Swap())"
    ),
    "an input transformer replaces the checks": (
        "get_ipython().input_transformers_post.append(lambda lines: ['2.0\\n'] if 'check(' in ''.join(lines) else lines)"
    ),
    "the shell's run_code is replaced": (
        "async def nothing(code, result=None, *, async_=False): return False\nget_ipython().run_code = nothing"
    ),
    "check is replaced": FORGED + "check = lambda *a: Forged()",
    "check gives a score that is not a number": "check = lambda *a: float('nan')",
    "check gives nothing": "check = lambda *a: None",
    "check is replaced only where nbgrader runs": (
        FORGED + "import os\nif os.environ.get('NBGRADER_EXECUTION'): check = lambda *a: Forged()"
    ),
    "a thread that outlives its cell replaces check": (
        FORGED + "import threading, time\nspace = get_ipython().user_ns\n"
        "threading.Thread(target=lambda: [space.update(check=lambda *a: Forged()) or time.sleep(.001) for _ in range(10**5)], daemon=True).start()\ntime.sleep(.1)"
    ),
    "a signal's handler replaces check": (
        FORGED + "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *a: get_ipython().user_ns.update(check=lambda *a: Forged()))\n"
        "signal.raise_signal(signal.SIGUSR1)\ntime.sleep(.1)"
    ),
    "the comparison's code is replaced": (
        EQUAL
    ),
    "NumPy's functions are replaced": (
        "import numpy\nnumpy.abs = lambda value, *a, **k: numpy.zeros(numpy.shape(value))\nnumpy.allclose = numpy.array_equal = lambda *a, **k: True"
    ),
    "the probe is replaced where anyone knows its result": (
        "import autograde.probes as p\ndef known(implementation, arguments):\n"
        "    return arguments['bits'].cumsum(1) % 2\n"
        "p.bits_of_relu_network.__code__ = known.__code__\np.weights_of_relu_network.__code__ = known.__code__"
    ),
    "the exit hook writes the gradebook": "import atexit\n@atexit.register\ndef late():\n    " + UPDATE.format(score=2).replace("\n", "\n    "),
    "the gradebook is written": UPDATE.format(score=2),
}  # fmt: skip

PAGES = {  # what would run on a feedback page
    "a script in a written answer": prose("<script>forged()</script>"),
    "an event's handler in a written answer": prose("Because. <img src=x onerror='forged()'>"),
    "a link that runs code": prose(
        "[see](javascript:forged()) [and](&#106;avascript:forged()) [and](JavaScript\\:forged())"
    ),
    "a script in a diagram": prose("```mermaid\n<script>forged()</script>\n```"),
}
OUTPUTS = {
    "a script in an output's HTML": shown("text/html", "<script>forged()</script>"),
    "an output of JavaScript": shown("application/javascript", "forged()"),
    "a script in an output's Markdown": shown("text/markdown", "<script>forged()</script>"),
    "a handler in a picture's metadata": shown(
        "image/png", "iVBORw0KGgo=", {"image/png": {"width": "1 onload=forged() x", "height": 1}}
    ),
}  # fmt: skip

ATTACKS = [
    *(Attack(name, POINTS, STOCK, code) for name, code in FORGERIES.items()),
    *(Attack(name, POINTS, STOCK, answers=answers_by(body)) for name, body in TAKES.items()),
    *(Attack(name, POINTS, ASSERTED, answers=answers) for name, answers in OBJECTS.items()),
    Attack(
        "a score is sent past the display, by the protocol's own socket", POINTS, STOCK,
        answers={"rnn-step": SENDS},
    ),
    Attack(
        "the reference is asked, in our own worker", POINTS, OURS + "withholding rnncore",
        answers=answers_by("return getattr(__import__('rnn' + 'core'), name)(*args)"),
    ),
    Attack(
        "the reference's file is looked for on the whole disk", POINTS, OURS + "the sandbox",
        answers=answers_by(
            "import sys\nfor folder in sys.path:\n    try: text = open(folder + '/rnncore.py').read()\n"
            "    except OSError: continue\n    n = {'__name__': 'r'}\n    exec(text, n)\n    return n[name](*args)"
        ),
    ),
    Attack(
        "PyTorch's own cell, under another name", POINTS, OURS + "the watch",
        answers={"rnn-step": "import torch\ndef rnn_step(*args):\n    x, h, W, U, b = map(torch.tensor, args)\n"
                 "    return getattr(torch, 'rnn_tanh' + '_cell')(x, h, W, U, b, 0 * b).numpy()"},
    ),
    Attack("the public seed's results are known by heart", POINTS, STOCK, answers=by_heart()),
    Attack("tags ask to skip the checks", POINTS, STOCK, change=tag_checks),
    Attack("the checks are edited", POINTS, UNLOCKED, change=edit_checks),
    Attack("the checks' names are doubled", POINTS, UNLOCKED, change=double_checks),
    Attack(
        "a module is shadowed by a file handed in", POINTS, STOCK,
        files={"array_api_compat.py": SHADOW.encode()},
    ),
    Attack("a link to another's notebook", POINTS, STOCK, link=f"submitted/{VICTIM}/{SLUG}/{SLUG}.ipynb"),
    Attack("a link to the source", POINTS, STOCK, link=f"source/{SLUG}/{SLUG}.ipynb"),
    Attack(
        "the course is read: source, submissions", LEAK, STOCK,
        WALK + "if name.endswith('.ipynb'): print(open(os.path.join(folder, name)).read())",
    ),
    Attack("the seed is read", LEAK, OURS + "the sandbox", "print(open('COURSE/.seed').read())"),
    Attack("the environment is read", LEAK, STOCK, "import os\nprint(dict(os.environ))"),
    Attack(
        "other processes' environments are read", LEAK, STOCK,
        "import glob\nfor path in glob.glob('/proc/[0-9]*/environ'):\n    try: text = open(path, 'rb').read()\n"
        "    except OSError: continue\n    if b'a-token-of' in text: print(text)",
    ),
    Attack("another's grade is changed", HARM, STOCK, UPDATE.format(score=0)),
    Attack(
        "another's submission is overwritten", HARM, STOCK,
        WALK + f"if '{VICTIM}' in folder and name.endswith('.ipynb'): open(os.path.join(folder, name), 'w').close()",
    ),
    Attack(
        "a start-up file waits for the next student's kernel", HARM, STOCK,
        "import os\nfolder = os.path.join(get_ipython().ipython_dir, 'profile_default', 'startup')\n"
        "os.makedirs(folder, exist_ok=True)\nopen(os.path.join(folder, '00.py'), 'w').write("
        + repr("get_ipython().input_transformers_post.append(lambda s: ['0.0\\n'] if 'check(' in ''.join(s) else s)") + ")",
    ),
    Attack(
        "a process that outlives the run changes grades", HARM, STOCK,
        "import subprocess, sys\nlater = '''import time\ntime.sleep(8)\n" + UPDATE.format(score=0).replace("'", '"')
        + "'''\nsubprocess.Popen([sys.executable, '-c', later], start_new_session=True)",
    ),
    Attack("pictures fill the disk", HARM, STOCK, change=many_pictures),
    Attack("the kernel is killed", STOP, STOCK, "import os\nos._exit(0)"),
    Attack(
        "the process above is killed", STOP, STOCK, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"
    ),
    Attack(
        "interrupts are ignored", STOP, STOCK,
        "import signal\nfor s in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "while True: print('x' * 10**4)",
    ),
    Attack(
        "a long reply is promised and not sent", STOP, OURS + "the wall clock",
        SOCKETS + "for s in sockets: s.sendall(wire._HEAD.pack(31_000_000, 0))",
    ),
    Attack(
        "replies of another kind than was asked for", STOP, OURS + "suspecting replies",
        SOCKETS + "for s in sockets:\n    for _ in range(9): wire.send(s, np.zeros(3))",
    ),
    Attack("half a character in a cell", STOP, STOCK, change=half_a_character),
    Attack("half a character is printed", STOP, OURS + "mending texts", "print('\\ud800')"),
    Attack("no notebook at all", STOP, STOCK, change=lambda nb: b"{ this is none"),
    Attack("a graded cell that nobody knows", STOP, STOCK, change=unknown_name),
    Attack("a name that is a list", STOP, STOCK, change=name_that_is_none),
    Attack("a time of handing in that is none", STOP, STOCK, files={"timestamp.txt": b"\xff\xfe"}),
    Attack("prose that takes hours to set", STOP, STOCK, change=prose("\\begin{a}" * 60_000)),
    Attack("code that takes hours to colour", STOP, STOCK, change=slow_to_colour),
    Attack("a hundred thousand cells", STOP, STOCK, change=many_cells),
    *(Attack(name, SCRIPT, STOCK, change=change) for name, change in PAGES.items()),
    *(Attack(name, SCRIPT, STOCK, code) for name, code in OUTPUTS.items()),
]  # fmt: skip
