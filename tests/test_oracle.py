"""The trusted verdict: what a student hands in decides by its results alone, and costs nobody else anything."""
# ruff: noqa: E501, attackers' code stands in strings

import contextlib
import errno
import json
import os
import re
import shutil
from pathlib import Path

import attacked
import nbformat
import psutil
import pytest
from attacks import (
    ATTACKER,
    ATTACKS,
    CHECKS,
    COURSE,
    FULL,
    HARM,
    LEAK,
    POINTS,
    RIGHT,
    SCRIPT,
    SECRETS,
    SLUG,
    STEP,
    STOP,
    VICTIM,
    WRONG,
    about,
    double_checks,
    edit_checks,
    handed_in,
    leaked,
    tag_checks,
)  # fmt: skip
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, DeduplicateIds

from autograde import classroom, exercises, grader, notebook, results
from autograde.course import Course, Problem
from autograde.sandbox import Limits, Sandbox, Worker

ROOT = Path(__file__).resolve().parent.parent
SEED = 11
NOTHING = dict.fromkeys(FULL, 0.0)


@pytest.fixture(scope="module")
def box(needs):
    needs("bwrap")
    with Sandbox(limits=Limits(cpu=8)) as made:
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
    from autograde.checking import verdict  # noqa: PLC0415, beside what it is compared with
    from autograde.sample import source_of  # noqa: PLC0415

    exercise = exercises.find(name)
    for mistake, wrong in list(exercise.misconceptions.items())[:6]:
        found = graded(handed_in(RIGHT | {name: source_of(wrong.implementation, CHECKS[name])}), box)
        inside = verdict(exercise, wrong.implementation, SEED, trusted=True)
        outside = found.verdicts[f"{name}-check"]
        assert outside.score == inside.score < exercise.points, mistake
        assert f"when {mistake}." in str(outside)


def test_classes_are_graded_outside_as_in_the_notebook(box):
    from autograde.checking import verdict  # noqa: PLC0415, beside what it is compared with
    from autograde.sample import source_of  # noqa: PLC0415

    answers = {"rnn-cell": "RNNCell", "rnn-layer": "RNNLayer", "stacked-rnn": "StackedRNN"}
    answers |= {"hoisted-layer": "hoisted_layer", "xavier-weights": "init_weights"}
    for number in (0, 3, -2):
        mistakes = {name: list(exercises.find(name).misconceptions.items())[number] for name in answers}
        cells = [new_code_cell("import numpy as np\nimport torch", id="imports")]
        for name, answer in answers.items():
            text = source_of(mistakes[name][1].implementation, answer)
            cells.append(new_code_cell(text, id=name, metadata=about(name, solution=True)))
            tested = about(f"{name}-check", grade=True, locked=True, points=exercises.find(name).points)
            cells.append(new_code_cell(f'check("{name}", {answer})', id=f"{name}-check", metadata=tested))
        nb = nbformat.v4.new_notebook(cells=cells)
        found = grader.grade(notebook.sanitised(nb, nb), nb, box, SEED).verdicts
        for name, (mistake, wrong) in mistakes.items():
            inside = verdict(exercises.find(name), wrong.implementation, SEED, trusted=True)
            assert found[f"{name}-check"].score == inside.score < inside.points, mistake
            assert found[f"{name}-check"].named == (mistake,), str(found[f"{name}-check"])


def test_what_a_cell_shows_is_kept_as_text_and_pictures(box):
    answers = RIGHT | {"imports": COURSE.cells[0].source + "\nprint('hello')"}
    nb = handed_in(answers, more=["import matplotlib.pyplot as plt\nplt.plot([1, 2]);", "1 / 0"])
    result = graded(nb, box)
    shown = json.dumps(result.outputs)
    assert "hello" in shown
    assert "ZeroDivisionError" in shown
    assert "a demo has run" not in shown, "an unchanged demo is left out"
    next(cell for cell in nb.cells if cell.id == "demo").source += "\n"
    assert "a demo has run" in json.dumps(graded(nb, box).outputs), "a changed one runs"


def test_printing_warning_and_logging_cost_nothing(box):
    noisy = "import sys, os, warnings, logging\nwarnings.warn('w')\nlogging.warning('l')\nos.write(2, b'below')\n"
    answers = RIGHT | {"rnn-step": noisy + STEP.replace("    return", "    print('inside')\n    return")}
    result = graded(handed_in(answers), box)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == FULL
    assert "inside" in str(result.verdicts["rnn-step-check"])


# Attacks: tests/attacks.py says what each of them is to gain, and benchmarks/attacks.py that it gains it elsewhere.


@pytest.fixture(scope="module")
def lair(tmp_path_factory):
    """A course with its secrets, and an honest student in it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GRADERS_TOKEN", SECRETS["the grader's environment"])
        yield attacked.course(tmp_path_factory.mktemp("lair") / "course")


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.gain in (POINTS, LEAK)], ids=lambda attack: attack.name)
def test_an_attack_earns_and_learns_nothing(box, lair, attack):
    student = f"{ATTACKER}-{ATTACKS.index(attack)}"
    attack.hand_in(lair, student)
    result = graded(notebook.read(lair / "submitted" / student / SLUG / f"{SLUG}.ipynb"), box)
    shutil.rmtree(lair / "submitted" / student)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == NOTHING
    shown = json.dumps(result.outputs) + "".join(map(str, result.verdicts.values()))
    assert leaked(shown) == []
    with box.worker() as other:
        assert other.run("1 + 1", 5)["text"].strip() == "2", "and harms no other submission"


@pytest.fixture(scope="module")
def class_of_attackers(lair, needs):
    """The course after a whole class was graded that wants to harm or to stop it."""
    needs("bwrap")
    attacks = {f"{ATTACKER}-{k}": a for k, a in enumerate(ATTACKS) if a.gain in (HARM, STOP, SCRIPT)}
    for student, attack in attacks.items():
        attack.hand_in(lair, student)
    before = attacked.state(lair)
    course = Course(lair)
    course.api.config.GradeOutside.limits = {"wall": 6, "cpu": 4}
    results = classroom.grade(course, SLUG)
    return {attack.name: attacked.gained(attack, lair, name, before) for name, attack in attacks.items()}, results


@pytest.mark.parametrize("attack", [a.name for a in ATTACKS if a.gain in (HARM, STOP, SCRIPT)])
def test_an_attack_harms_and_stops_nothing(class_of_attackers, attack):
    gained, _ = class_of_attackers
    assert gained[attack] == ""


def test_beside_a_class_of_attackers_an_honest_answer_earns_its_points(class_of_attackers):
    _, results = class_of_attackers
    for result in results:
        assert result.score == (sum(FULL.values()) if result.student == VICTIM else 0), result.student


def test_no_two_attacks_have_one_name_and_each_kind_of_gain_is_tried():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 50
    assert {attack.gain for attack in ATTACKS} == {POINTS, LEAK, HARM, STOP, SCRIPT}


ODD = {
    "infinite": "rnn_step = lambda x, h, *w: h + np.inf",
    "huge": "rnn_step = lambda x, h, *w: np.zeros(10**8)",
    "deep": "def rnn_step(*a):\n    found = []\n    for _ in range(10**5): found = [found]\n    return found",
    "an Attempt": "from autograde.attempt import Attempt\nrnn_step = lambda *a: Attempt(result=a[1])",
    "an exception that cannot be shown": "def rnn_step(*a):\n    raise type('', (BaseException,), {'__str__': lambda s: 1/0})()",
    "exit": "def rnn_step(*a):\n    raise SystemExit(0)",
    "an interrupt": "def rnn_step(*a):\n    raise KeyboardInterrupt",
    "for ever": "def rnn_step(*a):\n    while True: pass",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_results_earn_nothing(box, name):
    assert scores(handed_in(WRONG | {"rnn-step": ODD[name]}), box) == NOTHING


def test_of_rnncore_a_sequence_finds_the_step_and_no_forward(box):
    asks = "def rnn_forward(*a):\n    import sys\n    sys.setprofile(None)\n    return getattr(rnncore, 'rnn_' + 'forward')(*a)"
    verdict = graded(handed_in(WRONG | {"rnn-sequence": asks}), box).verdicts["rnn-sequence-check"]
    assert verdict.score == 0
    assert "rnncore.rnn_forward is not at hand here: this exercise asks you to write it yourself" in str(verdict)
    kept = "stolen = rnncore.rnn_forward"
    asks = "def rnn_forward(*a):\n    return stolen(*a)"
    assert scores(handed_in(WRONG | {"rnn-sequence": asks}, first=["import rnncore\n" + kept]), box) == NOTHING


def workers(monkeypatch, box):
    """Return a list that grows by one with every worker that is asked for."""
    asked, worker = [], box.worker
    monkeypatch.setattr(box, "worker", lambda uses: asked.append(1) or worker(uses))
    return asked


def test_one_worker_is_enough_where_every_check_allows_more_of_rnncore_than_the_last(box, monkeypatch):
    asked = workers(monkeypatch, box)
    assert scores(handed_in(RIGHT, more=["print(1)"]), box) == FULL
    assert len(asked) == 1


@pytest.mark.parametrize(
    "asks",
    [
        "import rnncore\nforward = rnncore.rnn_forward",
        "from rnncore import rnn_forward as forward",
        "from rnncore import *\ntry: forward = rnn_forward\nexcept NameError: forward = None",
        "import rnncore\nforward = getattr(rnncore, 'rnn_forward', None)",
        "import rnncore\nforward = rnncore.rnn_forward if 'rnn_forward' in dir(rnncore) else None",
        "import rnncore\nfrom concurrent.futures import ProcessPoolExecutor\ndef far(): return rnncore.rnn_forward.__name__\n"
        "with ProcessPoolExecutor(1) as pool: forward = getattr(rnncore, pool.submit(far).result())",
    ],
)
def test_a_cell_that_uses_rnncore_before_the_first_check_shows_what_it_shows_in_the_notebook(box, monkeypatch, asks):
    asked, asks = workers(monkeypatch, box), f"import numpy as np\nx, w = np.ones((1, 2, 1)), np.ones((1, 1))\n{asks}"
    result = graded(handed_in(RIGHT, first=[asks], more=["print(forward(x, None, w, w, w[0]).shape)"]), box)
    assert {name: verdict.score for name, verdict in result.verdicts.items()} == FULL
    assert "(1, 2, 1)" in json.dumps(result.outputs)
    assert "at hand" not in json.dumps(result.outputs)
    assert len(asked) == 3


def test_a_check_that_was_moved_down_finds_no_more_of_rnncore_than_where_it_was(box):
    asks = (
        "def rnn_step(*a):\n    import sys\n    sys.setprofile(None)\n    return getattr(rnncore, 'rnn_' + 'step')(*a)"
    )
    nb = handed_in(RIGHT | {"rnn-step": asks})
    nb.cells.sort(key=lambda cell: cell.id == "rnn-step-check")
    assert nb.cells[-1].id == "rnn-step-check"
    assert scores(nb, box) == FULL | {"rnn-step-check": 0.0}


def test_no_worker_of_a_notebook_follows_one_that_held_more_of_rnncore(box, monkeypatch):
    nb = handed_in(RIGHT)
    nb.cells.sort(key=lambda cell: cell.id == "rnn-step-check")
    held, provide = [], Worker.provide
    monkeypatch.setattr(Worker, "provide", lambda self, m: held.append(len(m["rnncore"]["text"])) or provide(self, m))
    assert scores(nb, box) == FULL
    assert held == sorted(held) and len(set(held)) == 3


def test_a_worker_is_gone_before_the_next_one_begins(box):
    with box.worker():
        pass
    ours = {process.pid for process in processes(box)}
    for _ in range(3):
        with box.worker() as worker:
            worker.run("import os\nif os.fork() == 0:\n    import time\n    time.sleep(60)\na = bytearray(10**9)", 10)
            assert len(students(box, ours)) == 2
        assert students(box, ours) == []


def processes(box):
    """Return the sandbox's processes: bubblewrap, the warm parent, and all below it."""
    return psutil.Process(box._parent.pid).children(recursive=True)


def students(box, ours):
    """Return those that run students' code; between them and the parent stands one of ours, which waits for them."""
    found = []
    for process in processes(box):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid not in ours and process.ppid() not in ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_a_reply_of_a_students_own_making_is_no_longer_in_a_verdict_than_any_other(box):
    forged = "{'text': '', 'outputs': [], 'error': 'E' * 10**7, 'value': None, 'lacked': False}"
    forge = f"import gc, socket\nfrom autograde import wire\ns = [o for o in gc.get_objects() if isinstance(o, socket.socket)][0]\nwire.send(s, {forged})\nwire.send(s, {{'missing': 1}})"
    verdict = graded(handed_in(RIGHT | {"rnn-step": forge}), box).verdicts["rnn-step-check"]
    assert "Its cell raised EEE" in str(verdict)
    assert len(str(verdict)) < 50_000 and len(verdict._repr_html_()) < 50_000


def test_the_session_s_keyring_is_out_of_reach(box):
    number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    asks = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall({number}, b'user', b'a', b'b', 1, -3), ctypes.get_errno())"
    with box.worker() as worker:
        assert worker.run(asks, 10)["text"].strip() == f"-1 {errno.EKEYREVOKED}"


@pytest.mark.parametrize("name", RIGHT)
def test_an_answer_that_ends_its_process_costs_no_answer_before_and_none_that_is_allowed_something_else(box, name):
    ends = f"def {CHECKS[name]}(*a):\n    import os\n    os._exit(1)"
    found = scores(handed_in(RIGHT | {name: ends}), box)
    lost = {f"{name}-check"} | ({"parity-weights-check"} if name == "parameter-count" else set())
    assert found == {check: 0.0 if check in lost else points for check, points in FULL.items()}


# Notebooks that are not what they should be.


def tampered(change):
    nb = handed_in(WRONG)
    change(nb)
    return nb


def drop_checks(nb):
    nb.cells = [cell for cell in nb.cells if not cell.id.endswith("-check")]


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


CHANGES = [drop_checks, edit_checks, tag_checks, double_checks, make_checks_prose, rename_checks, keep_outputs]


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


@pytest.mark.parametrize(
    ("source", "count", "reason"),
    [
        ("1", 1001, "1,0.. cells"),
        ("x" * 5001, 1, "line"),
        ("x\n" * 10_001, 1, "a cell"),
        ("x\n" * 9999, 26, "cells have"),
    ],
)
def test_a_notebook_too_large_to_make_a_page_of_is_not_read(tmp_path, source, count, reason):
    path = tmp_path / "x.ipynb"
    nbformat.write(handed_in(WRONG, more=[source] * count), path)
    assert re.search(reason, notebook.read(path).metadata["unreadable"])
    clean = notebook.sanitised(handed_in(WRONG, more=[source] * count), COURSE)  # as nbgrader's own command reads it
    assert re.search(reason, clean.metadata["unreadable"])


def test_what_all_cells_show_together_is_bounded(box, monkeypatch):
    monkeypatch.setattr(grader, "SHOWN_LIMIT", 50_000)
    outputs = graded(handed_in(RIGHT, more=["print('x' * 15_000)"] * 9), box).outputs
    assert sum(len(text) for shown in outputs.values() for output in shown for text in output.values()) < 50_000


def test_the_network_is_run_outside_and_its_weights_are_looked_at_there(box):
    answers = {
        "a list": "[1]",
        "a wrong shape": "dict.fromkeys(['W_xh', 'W_hh', 'b_h', 'W_hy', 'b_y'], np.ones((2, 2)))",
    }
    for name, answer in answers.items():
        found = graded(handed_in(WRONG | {"parity-weights": f"parity_weights = lambda: {answer}"}), box)
        verdict = found.verdicts["parity-weights-check"]
        assert verdict.score == 0, name
        assert "expected" in str(verdict), name


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
    monkeypatch.setattr(grader, "grade", lambda *a: (count.append(1), real(*a))[1])
    clean = notebook.sanitised(handed_in(RIGHT), COURSE)
    first = results.cached(tmp_path, clean, COURSE, box)
    assert results.cached(tmp_path, clean, COURSE, box) == first
    assert len(count) == 1
    results.cached(tmp_path, notebook.sanitised(handed_in(WRONG), COURSE), COURSE, box)
    assert len(count) == 2
    for path in (tmp_path / results.CACHE).glob("*.json"):
        path.write_text(path.read_text()[:50])  # half a file, as a machine that stopped may leave it
    again = results.cached(tmp_path, clean, COURSE, box)
    assert again | {"seconds": 0} == first | {"seconds": 0}
    assert len(count) == 3


def test_the_seed_is_drawn_once_and_is_the_owners_alone(tmp_path):
    seed = results.seed_of(tmp_path)
    assert results.seed_of(tmp_path) == seed
    assert (tmp_path / results.SEED).stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == [results.SEED]


@pytest.mark.parametrize("left", ["", "12 34", "-5", "seed", "\0" * 100])
def test_a_damaged_seed_is_named_and_kept(tmp_path, left):
    (tmp_path / results.SEED).write_text(left)
    with pytest.raises(Problem, match=r"\.seed holds no whole number, which the course's seed is: put it back") as told:
        results.seed_of(tmp_path)
    assert "12 34" not in str(told.value), "most of it may be the seed, which nobody is to read"
    assert (tmp_path / results.SEED).read_text() == left


def test_what_a_worker_may_hold_of_rnncore():
    assert grader.part_of_rnncore(None) == (ROOT / "rnncore.py").read_text()
    step = grader.part_of_rnncore(("rnn_step",))
    assert "def rnn_step(" in step
    assert "def rnn_forward(" not in step
    assert "class RNN" not in step
    assert "def rnn_step(" not in grader.part_of_rnncore(())
