"""The trusted verdict: what a student hands in decides by its results alone, and costs nobody else anything."""
# ruff: noqa: E501, attackers' code stands in strings

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, DeduplicateIds

from autograde import exercises, grader, notebook, oracle
from autograde.sandbox import Limits, Sandbox

ROOT = Path(__file__).resolve().parent.parent
SLUG = "01_forward"
SEED = 11
CHECKS = {"rnn-step": "rnn_step", "rnn-sequence": "rnn_forward", "parameter-count": "count_parameters"}


def about(name, **more):
    usual = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return {"nbgrader": usual | {"grade_id": name} | more}


def course_notebook():
    """The course's own notebook: imports, three exercises, a demo, an answer that a person grades."""
    cells = [new_code_cell("import numpy as np\nimport rnncore\nfrom autograde import check", id="imports")]
    for name, function in CHECKS.items():
        points = exercises.find(name).points
        stub = f"def {function}(*a):\n    raise NotImplementedError()"
        cells.append(new_code_cell(stub, id=name, metadata=about(name, solution=True)))
        tested = about(f"{name}-check", grade=True, locked=True, points=points)
        cells.append(new_code_cell(f'check("{name}", {function})', id=f"{name}-check", metadata=tested))
    cells.append(new_code_cell("raise RuntimeError('a demo has run')", id="demo", metadata={"tags": ["demo"]}))
    cells.append(new_markdown_cell("Why?", id="why", metadata=about("why", grade=True, solution=True, points=2)))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


COURSE = course_notebook()
STEP = "def rnn_step(x, h, W_xh, W_hh, b_h):\n    return np.tanh(x @ W_xh.T + h @ W_hh.T + b_h)"
RIGHT = {
    "rnn-step": STEP,
    "rnn-sequence": "def rnn_forward(x, h0, *w):\n    h, found = h0, []\n    for t in range(len(x[0])):\n"
    "        h = rnncore.rnn_step(x[:, t], h, *w)\n        found += [h]\n    return np.moveaxis(np.array(found), 0, 1)",
    "parameter-count": "def count_parameters(D, H, C):\n    return H * (D + H) + H + C * H + C",
}
FULL = {"rnn-step-check": 3.0, "rnn-sequence-check": 4.0, "parameter-count-check": 2.0}
NOTHING = dict.fromkeys(FULL, 0.0)


def handed_in(answers=(), more=(), first=()):
    """A student's notebook: answers by exercise, cells before all others, and cells at the end."""
    nb = nbformat.from_dict(json.loads(json.dumps(COURSE)))
    for cell in nb.cells:
        cell.source = dict(answers).get(cell.id, cell.source)
    nb.cells = [*map(new_code_cell, first), *nb.cells, *map(new_code_cell, more)]
    return nb


@pytest.fixture(scope="module")
def box(needs):
    needs("bwrap")
    with Sandbox(limits=Limits(wall=12, cpu=8)) as made:
        yield made


def graded(nb, box):
    return grader.grade(notebook.sanitised(nb, COURSE), COURSE, box, SEED)


def scores(nb, box):
    return {name: verdict.score for name, verdict in graded(nb, box).verdicts.items()}


# Honest answers.


def test_right_answers_earn_all_and_untouched_ones_nothing(box):
    assert scores(handed_in(RIGHT), box) == FULL
    result = graded(handed_in(), box)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == NOTHING
    assert "is not written yet" in str(result.verdicts["rnn-step-check"])
    assert result.problem == ""


@pytest.mark.parametrize("name", CHECKS)
def test_every_misconception_scores_and_reads_as_in_the_notebook(box, name):
    from autograde.check import verdict  # noqa: PLC0415, beside what it is compared with
    from autograde.sample import source_of  # noqa: PLC0415

    exercise = exercises.find(name)
    for mistake, wrong in list(exercise.misconceptions.items())[:6]:
        found = graded(handed_in(RIGHT | {name: source_of(wrong.implementation, CHECKS[name])}), box)
        inside = verdict(exercise, wrong.implementation, SEED, trusted=True)
        outside = found.verdicts[f"{name}-check"]
        assert outside.score == inside.score < exercise.points, mistake
        assert f"when {mistake}." in str(outside)


def test_what_a_cell_shows_is_kept_as_text_and_pictures(box):
    answers = RIGHT | {"imports": COURSE.cells[0].source + "\nprint('hello')"}
    nb = handed_in(answers, more=["import matplotlib.pyplot as plt\nplt.plot([1, 2]);", "1 / 0"])
    result = graded(nb, box)
    shown = json.dumps(result.outputs)
    assert "hello" in shown
    assert "ZeroDivisionError" in shown
    assert "a demo has run" not in shown, "an unchanged demo is left out"
    nb.cells[7].source += "\n"
    assert "a demo has run" in json.dumps(graded(nb, box).outputs), "a changed one runs"


def test_printing_warning_and_logging_cost_nothing(box):
    noisy = "import sys, os, warnings, logging\nwarnings.warn('w')\nlogging.warning('l')\nos.write(2, b'below')\n"
    answers = RIGHT | {"rnn-step": noisy + STEP.replace("    return", "    print('inside')\n    return")}
    result = graded(handed_in(answers), box)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == FULL
    assert "inside" in str(result.verdicts["rnn-step-check"])


# Attacks. Every one stands in place of, or before, answers that are wrong.

WRONG = {
    "rnn-step": "def rnn_step(x, h, *w):\n    return h * 0",
    "rnn-sequence": "def rnn_forward(x, h0, *w):\n    return x * 0",
    "parameter-count": "def count_parameters(D, H, C):\n    return 0",
}
ASKED = "def rnn_step(x, h, *w):\n    {}\ndef rnn_forward(x, h0, *w):\n    {}"
BEFORE = {
    "the display hook prints a score": "import sys\nsys.displayhook = lambda value: print(3.0)",
    "check is replaced": "class Score:\n    def __repr__(self): return '3.0'\ncheck = lambda *a: Score()",
    "an AST transformer drops what follows": (
        "import ast\nclass Drop(ast.NodeTransformer):\n    def visit_Expr(self, node): return ast.parse('3.0').body[0]\n"
        "get_ipython().ast_transformers.append(Drop())"
    ),
    "an input transformer replaces what follows": (
        "get_ipython().input_transformers_post.append(lambda lines: ['3.0\\n'])"
    ),
    "run_cell is replaced": "ip = get_ipython()\nip.run_cell = lambda *a, **k: type('R', (), "
    "dict(error_before_exec=None, error_in_exec=None, result=3.0))()",
    "the exit hooks print": "import atexit\natexit.register(print, 3.0)",
    "numpy's comparisons are replaced": "import numpy as np\nnp.abs = lambda *a: np.float64(0)\n"
    "np.array_equal = np.allclose = lambda *a, **k: True\nnp.ndarray.__eq__ if False else None",
    "the comparison is replaced": "import autograde.compare\nautograde.compare.compare = lambda *a, **k: None\n"
    "import autograde.attempt\nautograde.attempt.run.__code__ = (lambda probe, answer, arguments, clock: "
    "autograde.attempt.Attempt(result=None)).__code__",
    "the worker answers for itself": (
        "import gc, socket, autograde.wire as wire\n"
        "for thing in gc.get_objects():\n    if isinstance(thing, socket.socket):\n"
        "        wire.send(thing, {'score': 3.0, 'passed': 7, 'verdict': 'right', 'result': None, 'kind': '',"
        " 'problem': '', 'details': [], 'changed': []})"
    ),
    "the worker floods its grader": (
        "import gc, os, socket\nfor thing in gc.get_objects():\n    if isinstance(thing, socket.socket):\n"
        "        thing.sendall(b'\\xff' * 1000)"
    ),
    "threads go on": "import threading, time\nthreading.Thread(target=lambda: [time.sleep(.01) for _ in range(10**6)],"
    " daemon=False).start()",
    "signals are ignored": "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass",
    "the environment says that nbgrader runs": "import os\nos.environ['NBGRADER_EXECUTION'] = 'validate'",
    "modules are shadowed": "open('numpy.py', 'w').write('raise SystemExit')\nopen('torch.py', 'w').write('')\n"
    "import sys\nsys.path.insert(0, '.')\nfor name in [m for m in sys.modules if m.startswith('numpy.')]: del sys.modules[name]",
    "the process ends": "import os\nos._exit(0)",
}
OBJECTS = {
    "equal to everything": "class All:\n    def __eq__(self, other): return True\n    shape = (1, 1)\n    dtype = 'float64'\n"
    "    def __array__(self, *a, **k): return np.zeros((1, 1))\nrnn_step = lambda *a: All()",
    "a masked array": "rnn_step = lambda x, h, *w: np.ma.masked_all_like(h)",
    "an array subclass": "class Lying(np.ndarray):\n    def __array_ufunc__(self, *a, **k): return np.zeros((1, 1))\n"
    "    def __eq__(self, other): return True\nrnn_step = lambda x, h, *w: h.view(Lying)",
    "nan": "rnn_step = lambda x, h, *w: h * np.nan",
    "infinite": "rnn_step = lambda x, h, *w: h + np.inf",
    "huge": "rnn_step = lambda x, h, *w: np.zeros(10**8)",
    "deep": "def rnn_step(*a):\n    found = []\n    for _ in range(10**5): found = [found]\n    return found",
    "an Attempt": "from autograde.attempt import Attempt\nrnn_step = lambda *a: Attempt(result=a[1])",
    "an exception that says it is right": "def rnn_step(*a):\n    raise type('', (BaseException,), {'__str__': lambda s: 1/0})()",
    "exit": "def rnn_step(*a):\n    raise SystemExit(0)",
    "an interrupt": "def rnn_step(*a):\n    raise KeyboardInterrupt",
    "for ever": "def rnn_step(*a):\n    while True: pass",
}
REFERENCE = {
    "rnncore is asked": "import rnncore\nreturn rnncore.rnn_step(x, h, *w)",
    "rnncore is asked under another name": "m = __import__('rnn' + 'core')\nreturn getattr(m, 'rnn_' + 'step')(x, h, *w)",
    "rnncore's file is read": "import glob\nt = open(glob.glob('/**/rnncore.py', recursive=True)[0]).read()\n"
    "n = {}\nexec(t, n)\nreturn n['rnn_step'](x, h, *w)",
    "rnncore's source is in a cache": "import linecache\nt = ''.join(linecache.getlines('/course/rnncore.py'))\n"
    "n = {'__name__': 'r'}\nexec(t, n)\nreturn n['rnn_step'](x, h, *w)",
    "the exercises are imported": "import importlib\ne = importlib.import_module('autograde.exercises')\n"
    "return e.find('rnn-step').reference(x, h, *w)",
    "frames and the garbage collector are searched": "import gc, sys\nf = sys._getframe()\nwhile f:\n"
    "    for v in f.f_locals.values():\n        if callable(getattr(v, 'reference', None)): return v.reference(x, h, *w)\n"
    "    f = f.f_back\nfor o in gc.get_objects():\n    if getattr(o, '__name__', '') == 'rnn_step' and o is not rnn_step:\n"
    "        return o(x, h, *w)\n    if type(o).__name__ in ('Exercise', 'Case', 'Verdict'): return o.reference(x, h, *w)",
}


@pytest.mark.parametrize("name", BEFORE)
def test_code_that_forges_earns_nothing_with_wrong_answers(box, name):
    found = scores(handed_in(WRONG, first=[BEFORE[name]]), box)
    assert found == NOTHING
    with box.worker() as other:
        assert other.run("1 + 1", 5)["text"].strip() == "2", "and harms no other submission"


def test_a_worker_that_promises_much_and_sends_little_is_not_waited_for(needs):
    needs("bwrap")
    code = (
        "import gc, socket, struct\nfor thing in gc.get_objects():\n    if isinstance(thing, socket.socket):\n"
        "        thing.sendall(struct.pack('>QQ', 31_000_000, 0))"
    )
    with Sandbox(limits=Limits(wall=4)) as hasty:
        result = graded(handed_in(WRONG, first=[code]), hasty)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == NOTHING
    assert "ran for too long" in result.problem


@pytest.mark.parametrize("name", OBJECTS)
def test_results_made_to_confuse_earn_nothing(box, name):
    found = scores(handed_in(WRONG | {"rnn-step": OBJECTS[name]}), box)
    assert found == NOTHING


@pytest.mark.parametrize("name", REFERENCE)
def test_the_right_result_is_not_to_be_had_where_the_answer_runs(box, name):
    body = REFERENCE[name].replace("\n", "\n    ")
    watch_off = "import sys\nsys.setprofile(None)\n    "
    for start in ("", watch_off):
        answer = f"def rnn_step(x, h, *w):\n    {start}{body}"
        found = graded(handed_in(WRONG | {"rnn-step": answer}), box)
        assert found.verdicts["rnn-step-check"].score == 0, str(found.verdicts["rnn-step-check"])


def test_of_rnncore_a_sequence_finds_the_step_and_no_forward(box):
    asks = "def rnn_forward(*a):\n    import sys\n    sys.setprofile(None)\n    return getattr(rnncore, 'rnn_' + 'forward')(*a)"
    verdict = graded(handed_in(WRONG | {"rnn-sequence": asks}), box).verdicts["rnn-sequence-check"]
    assert verdict.score == 0
    assert "rnncore.rnn_forward is not at hand here: this exercise asks you to write it yourself" in str(verdict)
    kept = "stolen = rnncore.rnn_forward"
    asks = "def rnn_forward(*a):\n    return stolen(*a)"
    assert scores(handed_in(WRONG | {"rnn-sequence": asks}, first=["import rnncore\n" + kept]), box) == NOTHING


# Notebooks that are not what they should be.


def tampered(change):
    nb = handed_in(WRONG)
    change(nb)
    return nb


def drop_checks(nb):
    nb.cells = [cell for cell in nb.cells if not cell.id.endswith("-check")]


def edit_checks(nb):
    for cell in nb.cells:
        if cell.id.endswith("-check"):
            cell.source, cell.metadata = "3.0", about(cell.id, grade=True, locked=False, points=100)


def skip_checks(nb):
    for cell in nb.cells:
        cell.metadata["tags"] = ["skip-execution", "demo"]


def duplicate_checks(nb):
    copies = [new_code_cell("3.0", metadata=about(f"{name}-check", grade=True, points=3)) for name in CHECKS]
    nb.cells = [*copies, *nb.cells, *copies]


def make_checks_prose(nb):
    nb.cells = [new_markdown_cell(c.source, id=c.id, metadata=c.metadata) if "check" in c.id else c for c in nb.cells]


def rename_checks(nb):
    for cell in nb.cells:
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader["grade_id"] = ["rnn-step-check"]


def keep_outputs(nb):
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "3.0"}, execution_count=1)]


CHANGES = [drop_checks, edit_checks, skip_checks, duplicate_checks, make_checks_prose, rename_checks, keep_outputs]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_tampered_notebook_is_graded_as_the_course_made_it(box, change):
    nb = tampered(change)
    clean = notebook.sanitised(nb, COURSE)
    result = grader.grade(clean, COURSE, box, SEED)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == NOTHING
    graded_cells = [c.metadata.nbgrader.grade_id for c in clean.cells if "nbgrader" in c.metadata]
    assert sorted(graded_cells) == sorted(
        c.metadata.nbgrader.grade_id for c in COURSE.cells if "nbgrader" in c.metadata
    )
    checks = {c.source for c in clean.cells if c.metadata.get("nbgrader", {}).get("locked")}
    assert checks == {c.source for c in COURSE.cells if c.metadata.get("nbgrader", {}).get("locked")}
    assert not any(cell.get("outputs") for cell in clean.cells)


def test_right_answers_keep_their_points_in_a_tampered_notebook(box):
    nb = handed_in(RIGHT)
    drop_checks(nb)
    assert scores(nb, box) == FULL


def test_sanitising_twice_is_sanitising_once_and_ids_stay_unique():
    nb = handed_in(WRONG, more=["1", "2"])
    nb.cells += [new_raw_cell("<script>1</script>", id="raw"), new_markdown_cell("`a<b` and <b>bold</b> <!-- x -->")]
    for cell in nb.cells[-4:]:
        cell.id = "same"
    once = notebook.sanitised(nb, COURSE)
    assert notebook.sanitised(once, COURSE) == once
    assert len({cell.id for cell in once.cells}) == len(once.cells)
    assert not any("<script" in cell.source or "<b>" in cell.source or "<!--" in cell.source for cell in once.cells)
    nbformat.validate(once)


@pytest.mark.parametrize("change", [lambda nb: None, *CHANGES])
def test_of_nbgraders_own_steps_those_left_out_have_nothing_to_do(change):
    nb = handed_in(WRONG, more=["1"])
    change(nb)
    clean = notebook.sanitised(nb, COURSE)
    for step in (ClearOutput, DeduplicateIds, CheckCellMetadata):
        after, _ = step().preprocess(nbformat.from_dict(json.loads(json.dumps(clean))), {})
        assert after == clean
    assert clean.metadata.get("kernelspec") == COURSE.metadata.get("kernelspec")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{ this is none", "JSON"),
        (b"\xff\xfe", "Unicode"),
        (b"[]", ""),
        (b'{"cells": 3, "nbformat": 4}', ""),
        (b"", ""),
    ],
)
def test_what_is_no_notebook_earns_nothing_and_says_why(box, tmp_path, content, reason):
    path = tmp_path / "x.ipynb"
    path.write_bytes(content)
    result = graded(notebook.read(path), box)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == NOTHING
    assert "could not be read" in str(result.verdicts["rnn-step-check"])
    assert reason in result.problem
    assert result.problem


def test_a_notebook_of_an_older_format_with_the_ids_of_a_newer_one_is_read(tmp_path):
    nb = handed_in(RIGHT)
    nb.nbformat_minor = 4
    (tmp_path / "x.ipynb").write_text(json.dumps(nb), encoding="utf-8")
    assert "unreadable" not in notebook.read(tmp_path / "x.ipynb").metadata


def test_a_link_to_anothers_notebook_is_not_followed(tmp_path):
    other = tmp_path / "other.ipynb"
    nbformat.write(handed_in(RIGHT), other)
    (tmp_path / "mine.ipynb").symlink_to(other)
    assert "link" in notebook.read(tmp_path / "mine.ipynb").metadata["unreadable"]


# What is kept.


def test_a_result_is_computed_once_and_again_when_anything_changed(tmp_path, box, monkeypatch):
    count = []
    real = grader.grade
    monkeypatch.setattr(oracle, "grade", lambda *a: (count.append(1), real(*a))[1])
    clean = notebook.sanitised(handed_in(RIGHT), COURSE)
    first = oracle.cached(tmp_path, clean, COURSE, box)
    assert oracle.cached(tmp_path, clean, COURSE, box) == first
    assert len(count) == 1
    oracle.cached(tmp_path, notebook.sanitised(handed_in(WRONG), COURSE), COURSE, box)
    assert len(count) == 2
    for path in (tmp_path / oracle.CACHE).glob("*.json"):
        path.write_text(path.read_text()[:50])  # half a file, as a machine that stopped may leave it
    again = oracle.cached(tmp_path, clean, COURSE, box)
    assert again | {"seconds": 0} == first | {"seconds": 0}
    assert len(count) == 3


def test_the_seed_is_drawn_once_and_is_the_owners_alone(tmp_path):
    seed = oracle.seed_of(tmp_path)
    assert oracle.seed_of(tmp_path) == seed
    assert (tmp_path / oracle.SEED).stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == [oracle.SEED]


def test_what_a_worker_may_hold_of_rnncore():
    assert grader.part_of_rnncore(None) == (ROOT / "rnncore.py").read_text()
    step = grader.part_of_rnncore(("rnn_step",))
    assert "def rnn_step(" in step
    assert "def rnn_forward(" not in step
    assert "class RNN" not in step
    assert "def rnn_step(" not in grader.part_of_rnncore(())
