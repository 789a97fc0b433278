"""What a student sees when a check runs: a score that nbgrader reads, and a message that says what differs."""

import contextlib
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbgrader.utils import determine_grade

import rnncore
from autograde import check, exercises
from autograde.checking import verdict
from autograde.compare import compare
from autograde.exercise import Case, Exercise
from autograde.probes import call

STEP = exercises.find("rnn-step")


def right_step(x, h, W_xh, W_hh, b_h):
    return np.tanh((W_xh @ x.T + W_hh @ h.T).T + b_h)


def doubling(**changes):
    """An exercise small enough to see through: return 2 x."""
    definition = {
        "id": "doubling",
        "points": 2,
        "reference": lambda x: 2 * x,
        "cases": lambda rng: [
            Case("ones", {"x": np.ones((2, 3))}),
            Case("zeros", {"x": np.zeros((2, 3))}, counted=False),
            Case("drawn", {"x": rng.normal(size=(2, 3))}),
        ],
        "probe": call,
        "axes": "B H",
    }
    return Exercise(**definition | changes)


def text_of(answer, **changes):
    return str(verdict(doubling(**changes), answer))


def test_what_nbgraders_commands_import_does_not_wait_for_pytorch_and_check_is_there_when_asked_for():
    code = """if True:
        import sys
        import autograde.exchange, autograde.exports, autograde.oracle
        assert "torch" not in sys.modules
        from autograde import check
        assert check.__name__ == autograde.check.__name__ == "check"
        assert not hasattr(autograde, "another")
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_right_answer_gets_full_points_in_another_way_of_writing_it_too():
    in_einsum = lambda x, h, W, U, b: np.tanh(np.einsum("bd,hd->bh", x, W) + np.einsum("bj,ij->bi", h, U) + b)  # noqa: E731
    for answer in (right_step, in_einsum):
        assert check("rnn-step", answer).score == 3.0


def test_the_plain_text_of_a_verdict_is_the_score_alone_and_nbgrader_reads_it():
    for answer, score in ((lambda x: 2 * x, 2.0), (lambda x: 2 * np.round(x), 1.0), (lambda x: x, 0.0)):
        data, _ = DisplayFormatter().format(verdict(doubling(), answer))
        assert data["text/plain"] == repr(score)
        output = new_output("execute_result", data=data)
        graded = {"grade": True, "solution": False, "points": 2, "grade_id": "d", "schema_version": 3}
        cell = new_code_cell("", outputs=[output], metadata={"nbgrader": graded | {"locked": True, "task": False}})
        assert determine_grade(cell) == (score, 2.0)


def test_cases_that_are_not_counted_are_shown_and_bring_no_points():
    found = verdict(doubling(), np.zeros_like)
    assert found.score == 0.0
    assert [outcome.problem == "" for outcome in found.outcomes] == [False, True, False]
    assert found.total == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda x: None,
            "is None (does the function return something?); expected a NumPy array of shape (B, H) = (2, 3)",
        ),
        (lambda x: (2 * x).tolist(), "is a list of length 2; expected a NumPy array"),
        (lambda x: torch.tensor(2 * x), "is a PyTorch tensor of shape (2, 3), float64; expected a NumPy array"),
        (lambda x: np.ma.masked_all(x.shape), "is a MaskedArray; expected a NumPy array"),
        (lambda x: (2 * x).T, "has shape (3, 2); expected (B, H) = (2, 3)"),
        (lambda x: (2 * x).astype("f4"), "has dtype float32; expected float64"),
        (lambda x: 2 * x + 1, "[0, 0] is 3; expected 2 (6 of 6 entries differ)"),
        (lambda x: x * np.nan, "[0, 0] is nan; expected 2"),
        (lambda x: 2 * x + [[0, 0, 0], [0, 1e-3, 0]], "[1, 1] is 2.001; expected 2 (1 of 6 entries differ)"),
        (lambda x: 2 * x + 1e-6, "[0, 0] is 2.000001; expected 2 (6"),  # as many digits as it takes
    ],
)
def test_the_first_difference_is_named_type_then_shape_then_numbers(answer, message):
    assert message in text_of(answer)
    assert "First case that differs: ones." in text_of(answer)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (7, "is 7; expected 9"),
        (9.5, "is 9.5; expected a whole number"),
        (True, "is a bool; expected a number"),
        ("9", "is a str of length 1; expected a number"),
        (float("nan"), "expected a whole number"),
        (np.array([9]), "is a NumPy array of shape (1,)"),
        (10**400, "is larger than any floating-point number; expected 9"),
        (9 + 0j, "is a complex; expected a number"),
        (np.complex128(9), "is a complex128; expected a number"),
    ],
)
def test_a_number_is_asked_for_and_what_came_is_named(result, message):
    assert message in compare(result, 9).text


def test_whole_numbers_of_any_kind_are_accepted():
    for result in (9, np.int64(9), 9.0, np.float64(9)):
        assert compare(result, 9) is None


def test_two_numbers_are_shown_as_long_as_it_takes_to_tell_them_apart():
    assert compare(0.07487538403672135, 13.355524153432953, name="the loss").text == (
        "the loss is 0.0748754; expected 13.3555"
    )
    assert compare(1.0000001, 1.0, tolerance=1e-9).text == "the result is 1.0000001; expected 1"
    assert compare(12345, 54321).text == "the result is 12,345; expected 54,321"


def test_an_exception_is_explained_with_the_students_line_and_what_was_passed():
    def answer(x):
        return x @ x  # a student's line

    text = text_of(answer)
    assert "Your code raises ValueError" in text
    assert "return x @ x  # a student's line" in text
    assert "x: a NumPy array of shape (2, 3), float64" in text
    assert "autograde" not in text, "our own frames are hidden"


def test_an_untouched_answer_says_so_and_earns_nothing():
    def stub(x):
        raise NotImplementedError()

    found = verdict(doubling(), stub)
    assert found.score == 0.0
    assert "not written yet" in str(found)


def test_an_answer_that_is_written_and_uses_something_that_is_not_says_what_that_said():
    def answer(x):
        raise NotImplementedError("no such operation for float64")

    assert "Your code raises NotImplementedError: no such operation for float64" in text_of(answer)


def test_an_exception_whose_message_is_endless_or_fails_is_explained_too():
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError()

    def answer(x):
        raise Broken()

    assert "Your code raises Broken: (its message cannot be shown)" in text_of(answer)

    def endless(x):
        raise ValueError("x" * 100_000)

    assert len(text_of(endless)) < 2_000


def test_an_error_inside_the_reference_shows_the_students_call():
    def answer(x):
        return rnncore.rnn_step(x, x, x, x, x)  # a student's line

    text = text_of(answer)
    assert "return rnncore.rnn_step(x, x, x, x, x)  # a student's line" in text
    assert "raise error" not in text


def test_passing_a_result_instead_of_the_function_is_explained():
    found = check("rnn-step", np.ones((2, 3)))
    assert found.score == 0.0
    assert "Pass the function itself" in str(found)
    assert "a NumPy array of shape (2, 3)" in str(found)


def test_an_unknown_id_names_the_nearest_one():
    with pytest.raises(ValueError, match="did you mean 'rnn-step'"):
        check("rnn-stpe", rnncore.rnn_step)
    with pytest.raises(ValueError, match="known are rnn-step, rnn-sequence"):
        check("xyzzy", rnncore.rnn_step)
    with pytest.raises(TypeError, match="the exercise's id first, a string; here a function"):
        check(rnncore.rnn_step, "rnn-step")


def test_an_answer_that_changes_its_arguments_spoils_no_later_case():
    def answer(x):
        x *= 2
        return x

    exercise = doubling()
    for _ in range(2):
        found = verdict(exercise, answer)
        assert found.score == 1.0, "and it costs one case, not all"
        assert "The numbers are right, but your code changes x in place" in str(found)


def test_leaving_python_is_an_exception_like_any_other():
    assert "SystemExit" in text_of(lambda x: sys.exit("bye"))


def test_the_weights_of_a_network_are_checked_entry_by_entry():
    right = exercises.find("parity-weights").reference()
    for change, message in [
        (None, "returns None; expected a dictionary"),
        ({"W_xh": None}, "W_xh is None; expected an array of real numbers"),
        ({"W_xh": 1.0}, "W_xh has shape (); expected (2, 1)"),
        (
            {"b_h": np.array([0, -1j])},
            "b_h is a NumPy array of shape (2,), complex128; expected an array of real numbers",
        ),
        (
            {"b_h": torch.tensor([0.0, -1.0], requires_grad=True)},
            "b_h is a PyTorch tensor of shape (2,), float32; expected an array of real numbers",
        ),
        ({"W_hh": np.ones((2, 3))}, "W_hh has shape (2, 3); expected (2, 2)"),
        ({"b_y": "zero"}, "b_y is a str of length 4; expected an array of real numbers"),
        ({"h_0": np.zeros(2)}, "unknown entry h_0"),
        ({"b_h": np.array([0, np.inf])}, "b_h holds numbers that are not finite"),
    ]:
        weights = right | change if change else None
        assert message in str(check("parity-weights", lambda weights=weights: weights))
    lacking = {name: value for name, value in right.items() if name != "b_y"}
    assert "lacks b_y" in str(check("parity-weights", lambda: lacking))


@pytest.mark.parametrize("name", [e.id for e in map(exercises.find, exercises.checked()) if e.measure])
def test_an_answer_that_returns_what_is_compared_earns_nothing(name):
    exercise = exercises.find(name)
    results = iter([exercise.try_out(exercise.reference, case.arguments) for case in exercise.draw()])
    assert check(name, lambda *arguments: next(results)).score == 0


def test_weights_given_as_lists_of_integers_are_right_too():
    right = {name: value.astype(int).tolist() for name, value in exercises.find("parity-weights").reference().items()}
    assert check("parity-weights", lambda: right).score == 3.0


NOISY = """
import logging, os, subprocess, sys, warnings
from autograde import check
import numpy as np

logging.basicConfig()  # its handler keeps the stream that is stderr now
kept = sys.stderr

def answer(*a):
    print("from print")
    print("to stderr", file=sys.stderr)
    warnings.warn("a warning")
    logging.warning("a log line")
    print("to a kept stream", file=kept)
    print("half a surrogate pair: \\ud800")
    os.write(2, b"below python\\n")
    subprocess.run(["sh", "-c", "echo from a child >&2"])
    x, h, W_xh, W_hh, b_h = a
    return np.tanh((W_xh @ x.T + W_hh @ h.T).T + b_h)
"""


def test_nothing_an_answer_prints_reaches_the_check_cell_of_a_real_kernel():
    notebook = new_notebook(cells=[new_code_cell(NOISY), new_code_cell('check("rnn-step", answer)')])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    (output,) = notebook.cells[1].outputs
    assert output.output_type == "execute_result"
    assert output.data["text/plain"] == "3.0"
    for said in ("from print", "to stderr", "a log line", "to a kept stream", "below python", "from a child"):
        assert said in output.data["text/html"]


def test_nothing_reaches_stderr_of_a_plain_script_and_printing_works_again_afterwards():
    script = NOISY + textwrap.dedent("""
        print(repr(check("rnn-step", answer)))
        print("after", file=sys.stderr)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "3.0\n"
    assert done.stderr == "after\n"


def test_at_a_terminals_prompt_the_feedback_is_seen():
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    answer = "lambda x, h, W, U, b: np.tanh((W @ x.T + U @ h.T).T + b)"
    typed = f"import numpy as np; from autograde import check\ncheck('rnn-step', {answer})\nexit()\n"
    os.write(ours, typed.encode())
    with subprocess.Popen([sys.executable, "-q", "-i"], stdin=theirs, stdout=theirs, stderr=theirs) as python:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # raised at the end, when the other side is closed
            while part := os.read(ours, 10_000):
                seen += part
        assert python.wait(60) == 0
    os.close(ours)
    assert "rnn-step: right, 3 of 3 points" in seen.decode()


def test_the_html_escapes_what_a_student_printed_and_has_a_role_and_no_script():
    def answer(x):
        print("<script>alert(1)</script>")
        return x

    html = verdict(doubling(), answer)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert 'role="alert"' in html
    assert 'role="status"' in verdict(doubling(), lambda x: 2 * x)._repr_html_()


def test_a_long_printout_is_cut():
    def answer(x):
        print("x" * 100_000)
        return 2 * x

    assert len(text_of(answer)) < 2_000


def test_at_a_prompt_the_feedback_is_printed_and_elsewhere_it_is_not(monkeypatch, capsys):
    check("rnn-step", right_step)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    check("rnn-step", right_step)
    assert capsys.readouterr().out == "", "a script prints what it wants to"
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    check("rnn-step", right_step)
    assert "rnn-step: right, 3 of 3 points" in capsys.readouterr().out
