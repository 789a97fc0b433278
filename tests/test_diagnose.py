"""Feedback that names the mistake: which one, where, since when, and nothing that does not fit."""

import contextlib
import cProfile
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import rnncore
from autograde import diagnose, exercises
from autograde.attempt import attempts, captured
from autograde.checking import check, verdict
from autograde.diagnose import misconceptions_of
from autograde.exercise import Case, Exercise, Misconception
from autograde.probes import call

CHECKED = [exercises.find(name) for name in exercises.checked()]
STEP, SEQUENCE = exercises.find("rnn-step"), exercises.find("rnn-sequence")


def names_for(exercise, answer, seed=0):
    with captured(), np.errstate(all="ignore"):
        return misconceptions_of(exercise, attempts(exercise.try_out, answer, exercise.draw(seed)), seed)


def test_misconceptions_that_give_the_same_numbers_are_reported_as_one():
    twice = {name: Misconception(lambda x: x + 1, f"{name}.") for name in ("first", "second")}
    cases = lambda rng: [Case("drawn", {"x": rng.normal(size=3)})]  # noqa: E731
    exercise = Exercise("twice", 1, lambda x: 2 * x, cases, call, axes="H", misconceptions=twice)
    text = str(verdict(exercise, lambda x: 1 + x))
    assert "your result is what one gets when first or when second. first. second." in text


ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("exercise", CHECKED, ids=lambda exercise: exercise.id)
def test_the_section_to_read_again_is_one_of_the_chapters(exercise):
    slug = next(slug for slug in exercises.chapters() if exercise.id in exercises.load(slug))
    notebook = (ROOT / "chapters" / f"{slug}.ipynb").read_text("utf-8")
    assert re.search(rf"## {re.escape(exercise.section.strip('“”'))}\b", notebook)


def step(x, h, W_xh, W_hh, b_h):
    return x @ W_xh.T + h @ W_hh.T + b_h


def states(x, h0, W_xh, W_hh, b_h, carry=lambda old, new: new):
    h, found = h0, []
    for t in range(len(x[0])):
        new = np.tanh(step(x[:, t], h, W_xh, W_hh, b_h))
        found.append(new)
        h = carry(h, new)
    return np.stack(found, 1)


ON_NO_LIST = {
    "rnn-step": [
        lambda *a: np.sin(step(*a)),
        lambda *a: np.tanh(2 * step(*a)),
        lambda *a: -np.tanh(step(*a)),
        lambda *a: np.tanh(step(*a)) ** 2,
        lambda *a: np.tanh(step(*a)).round(2),
        lambda *a: np.tanh(np.abs(step(*a))),
        lambda *a: np.clip(step(*a), -1, 1),
        lambda *a: np.arctan(step(*a)),
        lambda x, h, W, U, b: np.tanh(x @ W.T - h @ U.T + b),
        lambda x, h, W, U, b: np.tanh(x @ W.T + h @ U.T - b),
        lambda x, h, W, U, b: np.tanh(step(x, h, W, U, b) / len(x)),
        lambda x, h, W, U, b: np.tanh((x @ W.T) * (h @ U.T) + b),
        lambda *a: np.tanh(step(*a)).astype(np.float32),
        lambda *a: np.tanh(step(*a)).T,
        lambda *a: np.tanh(step(*a)).tolist(),
        lambda *a: undefined_name,  # noqa: F821
        lambda *a: None,
        lambda *a: np.tanh(step(*a))[:, ::-1],
        lambda x, h, W, U, b: np.tanh(x @ W.T + h @ U.T) * (1 + b),
        lambda x, h, W, U, b: np.tanh(x @ W.T + np.tanh(h @ U.T + b)),
    ],
    "rnn-sequence": [
        lambda *a: states(*a, carry=lambda old, new: new / 2),
        lambda *a: states(*a, carry=lambda old, new: old + new),
        lambda *a: states(*a, carry=lambda old, new: (old + new) / 2),
        lambda *a: states(*a)[..., ::-1],
        lambda *a: np.tanh(states(*a)),
        lambda *a: states(*a)[:1],
        lambda x, *a: states(np.cumsum(x, 1), *a),
        lambda x, *a: states(x * 2, *a),
        lambda *a: states(*a)[:, :-1],
        lambda x, h0, W, U, b: states(x, h0, W, U @ U, b),
        lambda x, h0, W, U, b: states(x, h0, W, U.T, 2 * b),
    ],
    "output-layer": [
        lambda hs, W, b: hs @ W.T - b,
        lambda hs, W, b: np.abs(hs @ W.T + b),
        lambda hs, W, b: hs @ (W.T + 1) + b,
        lambda hs, W, b: (hs @ W.T + b).sum(1),
    ],
    "parameter-count": [
        lambda D, H, C: D * H * C,
        lambda D, H, C: D + H + C,
        lambda D, H, C: H * D + H * H + H + C * H + C + 1,
        lambda D, H, C: 4 * (H * D + H * H + H),
    ],
}


def cell(forward, **more):
    return type("RNNCell", (exercises.find("rnn-cell").reference,), {"forward": forward, **more})


def layer(forward):
    return type("RNNLayer", (exercises.find("rnn-layer").reference,), {"forward": forward})


def stack(forward):
    return type("StackedRNN", (exercises.find("stacked-rnn").reference,), {"forward": forward})


def sum_of(self, x, h):
    return x @ self.W_xh.T + h @ self.W_hh.T + self.b_h


def run_over(self, x, h, carry=lambda old, new: new):
    h, found = x.new_zeros(len(x), len(self.cell.weight_hh)) if h is None else h, []
    for x_t in x.unbind(1):
        new = self.cell(x_t, h)
        found.append(new)
        h = carry(h, new)
    return torch.stack(found, 1), found[-1]


def draw_into(W_xh, W_hh, b_h, gain, generator, bound):
    with torch.no_grad():
        for W in (W_xh, W_hh):
            W.uniform_(-bound(W, gain), bound(W, gain), generator=generator)
        b_h.zero_()


ON_NO_LIST |= {
    "rnn-cell": [
        cell(lambda self, x, h: torch.sin(sum_of(self, x, h))),
        cell(lambda self, x, h: -torch.tanh(sum_of(self, x, h))),
        cell(lambda self, x, h: torch.tanh(sum_of(self, x, h) - 2 * self.b_h)),
        cell(lambda self, x, h: torch.tanh(sum_of(self, x, h)).float()),
        cell(lambda self, x, h: torch.tanh(x @ self.W_xh.detach().T + h @ self.W_hh.T + self.b_h)),
        cell(lambda self, x, h: torch.nn.functional.dropout(torch.tanh(sum_of(self, x, h)))),
        cell(lambda self, x, h: (torch.tanh(sum_of(self, x, h)), h)),
        cell(lambda self, x, h: h.add_(torch.tanh(sum_of(self, x, h)))),
        cell(lambda self, x, h: undefined_name),  # noqa: F821
    ],
    "rnn-layer": [
        layer(lambda self, x, h0=None: run_over(self, x, h0, lambda old, new: (old + new) / 2)),
        layer(lambda self, x, h0=None: run_over(self, 2 * x, h0)),
        layer(lambda self, x, h0=None: run_over(self, x, h0)[0]),
        layer(lambda self, x, h0=None: run_over(self, x.detach(), h0)),
        layer(lambda self, x, h0=None: run_over(self, x, None if h0 is None else -h0)),
    ],
    "stacked-rnn": [
        stack(lambda self, x: self.readout(self.layers[0](x)[0]) * 2),
        stack(lambda self, x: self.readout(torch.nn.functional.dropout(self.layers[0](x)[0], 0.5))),
        stack(lambda self, x: self.readout(self.layers[-1](x)[0])[..., :1]),
    ],
    "hoisted-layer": [
        lambda x, h0, W, U, b: torch.tanh(x @ W.T - b),
        lambda x, h0, W, U, b: torch.stack([torch.tanh(a + h0 @ U + b) for a in (x @ W.T).unbind(1)], 1),
        lambda x, h0, W, U, b: (x @ W.T).detach().numpy(),
    ],
    "xavier-weights": [
        lambda *a: draw_into(*a, bound=lambda W, gain: gain * (12 / sum(W.shape)) ** 0.5),
        lambda *a: draw_into(*a, bound=lambda W, gain: gain * (3 / len(W)) ** 0.5 + 0.2),
        lambda *a: draw_into(*a[:3], a[3], a[4], bound=lambda W, gain: (6 / sum(W.shape)) ** 0.5 / gain),
    ],
}
OFF = [(name, answer) for name, answers in ON_NO_LIST.items() for answer in answers]


@pytest.mark.parametrize(("name", "answer"), OFF, ids=[f"{name}-{k}" for k, (name, _) in enumerate(OFF)])
def test_a_wrong_answer_that_is_on_no_list_loses_points_and_gets_no_name(name, answer):
    exercise = exercises.find(name)
    found = verdict(exercise, answer)
    assert found.score < exercise.points
    assert names_for(exercise, answer) == []
    assert "What it looks like" not in str(found)


def test_the_term_is_named_whose_own_case_fails_and_those_that_are_right():
    text = str(check("rnn-step", lambda x, h, W, U, b: np.tanh(x @ W.T + h @ U.T - b)))
    assert "Where to look: at the bias. Alone, the input's term and the recurrent term are right." in text
    text = str(check("rnn-step", lambda x, h, W, U, b: np.tanh(x @ W.T) + np.tanh(h @ U.T) + np.tanh(b)))
    assert "Where to look: alone, the input's term, the recurrent term and the bias are right; put together" in text
    assert "Where to look" not in str(check("rnn-step", lambda *a: np.sin(step(*a))))


def test_a_small_case_is_shown_whole_with_the_numbers_that_came_and_those_that_were_expected():
    text = str(check("rnn-step", lambda *a: step(*a)))
    assert "x = [[0.5]]" in text
    assert "your result: [[0.85]]" in text
    assert f"expected:    [[{np.tanh(0.85):.4f}]]" in text


def test_the_first_wrong_time_step_is_named_and_the_error_is_drawn():
    def second_step_wrong(*a):
        hs = states(*a)
        hs[:, 1:2] += 1
        return hs

    found = check("rnn-sequence", second_step_wrong)
    assert "t = 2 is the first wrong step; right are t = 1, 3." in str(found)
    html = found._repr_html_()
    assert '<pre role="img" aria-label="Error, t = 1, 2, … to the right' in html
    assert "<svg" not in html, "a notebook that is not trusted drops it"
    late = check("rnn-sequence", lambda *a: states(*a, carry=lambda old, new: new * (1 + 1e-3)))
    assert "t = 2 is the first wrong step, and all later ones are wrong" in str(late)

    def as_of_a_walk_back(*a):
        hs = states(*a)
        hs[:, :-1] += 1
        return hs

    early = check("rnn-sequence", as_of_a_walk_back)
    assert re.search(r"t = \d+ and all earlier ones are wrong; after it everything is right", str(early))
    assert "·" in str(late)
    assert "▒" in str(late)


def test_a_result_that_changes_from_call_to_call_is_found():
    seen = []

    def remembering(x, h, W, U, b):
        seen.append(1)
        return np.tanh(step(x, h, W, U, b)) + (len(seen) > 5) * 0.1

    text = str(check("rnn-step", remembering))
    assert "differs" in text

    def last_one(x, h, W, U, b):  # right for every case, wrong when the first comes again
        seen.append(2)
        return np.tanh(step(x, h, W, U, b)) + (seen.count(2) == 8)

    found = check("rnn-step", last_one)
    assert "The first call is right; the same call again gives something else." in str(found)
    assert found.passed == found.total - 1


def test_an_argument_that_is_changed_in_place_is_named_beside_another_mistake_too():
    def both(x, h, W, U, b):
        x += 1
        return np.tanh(step(x, h, W, U, b))

    assert "Besides: your code changes x in place" in str(check("rnn-step", both))


def test_a_right_answer_reads_in_two_lines():
    text = str(check("rnn-step", lambda *a: np.tanh(step(*a))))
    assert len(text.splitlines()) == 2


# What an exercise forbids.

alias = rnncore.rnn_step
BY_HAND = "This exercise asks you to write it yourself, so rnncore"


def importing(*a):
    from rnncore import rnn_step as mine  # noqa: PLC0415

    return mine(*a)


def swallowing(*a):
    try:
        return eval("alias")(*a)
    except BaseException:
        return np.tanh(step(*a))


def in_a_thread(*a):
    found = []
    thread = threading.Thread(target=lambda: found.append(eval("alias")(*a)))
    thread.start()
    thread.join()
    return found[0] if found else np.tanh(step(*a))


class Callable:
    def __call__(self, *a):
        return rnncore.rnn_step(*a)


def with_a_layer(x, h, W, U, b):
    cell = torch.nn.RNNCell(x.shape[1], h.shape[1], dtype=torch.float64)
    return cell(torch.tensor(x), torch.tensor(h)).detach().numpy()


def with_an_operator(x, h, W, U, b):
    run = torch.ops.aten.rnn_tanh_cell
    return run(*map(torch.tensor, (x, h, W, U, b, 0 * b))).numpy()


def with_a_hidden_operator(x, h, W, U, b):
    run = getattr(getattr(torch, "o" + "ps").aten, "rnn_tanh_cell")  # noqa: B009
    return run.default(*map(torch.tensor, (x, h, W, U, b, 0 * b))).numpy()


@pytest.mark.parametrize(
    "answer",
    [
        rnncore.rnn_step,
        lambda *a: rnncore.rnn_step(*a),
        lambda *a: alias(*a),
        lambda *a: globals()["alias"](*a),
        partial(rnncore.rnn_step, nonlinearity="tanh"),
        partial(eval("alias")),
        importing,
        swallowing,
        in_a_thread,
        Callable(),
        lambda *a: next(map(alias, *([value] for value in a))),
        lambda *a: rnncore.rnn_step.__wrapped__(*a),
        with_a_layer,
        with_an_operator,
        with_a_hidden_operator,
    ],
)
def test_what_is_to_be_written_may_not_be_called_under_any_name(answer):
    found = check("rnn-step", answer)
    assert found.score == 0.0
    assert "This exercise asks you to write it yourself, so " in str(found)


def test_what_is_allowed_stays_allowed_and_nothing_watches_afterwards():
    def with_the_steps_reference(x, h0, W, U, b):
        h, found = h0, []
        for t in range(len(x[0])):
            h = rnncore.rnn_step(x[:, t], h, W, U, b)
            found.append(h)
        return np.stack(found, 1)

    assert check("rnn-sequence", with_the_steps_reference).score == 4.0
    assert check("rnn-sequence", rnncore.rnn_forward).score == 0.0
    assert check("rnn-sequence", lambda *a: rnncore.rnn_forward(*a)).score == 0.0
    rnncore.rnn_step(*STEP.draw()[0].arguments.values())
    assert sys.getprofile() is threading.getprofile() is None
    assert check("rnn-step", lambda *a: np.tanh(step(*a))).score == 3.0


# An answer that runs away.


def for_ever(*a):
    while True:
        pass


def asleep(*a):
    while True:
        time.sleep(0.05)


def stubborn(*a):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)


@pytest.mark.parametrize("answer", [for_ever, asleep, stubborn])
@pytest.mark.parametrize("in_main_thread", [True, False])
def test_an_answer_that_never_ends_is_stopped_and_its_line_shown(answer, in_main_thread):
    found = []

    def run():
        found.append(attempts(call, answer, STEP.draw(), seconds=0.3))

    if in_main_thread:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(20)
    assert [attempt.kind for attempt in found[0]] == ["OutOfTime", *["NotRun"] * 7]
    assert "stopped because it ran for too long" in found[0][0].problem


def test_a_stopped_answer_is_explained_and_the_alarm_does_not_ring_later():
    found = verdict(STEP, for_ever, seconds=0.2)
    assert found.score == 0.0
    assert "Is there a loop that never ends?" in str(found)
    assert "while True:" in str(found)
    verdict(STEP, lambda *a: np.tanh(step(*a)), seconds=0.2)
    time.sleep(0.4)


def test_the_score_does_not_depend_on_the_number_of_threads():
    scores = set()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        scores.add(check("rnn-sequence", lambda *a: states(*a)).score)
    torch.set_num_threads(1)
    assert scores == {4.0}


def test_the_feedback_in_the_students_guide_is_what_the_checks_say():
    sys.path.insert(0, str(ROOT / "tests"))
    import pictures  # noqa: PLC0415

    for name, html in pictures.feedback().items():
        assert (ROOT / "_static" / "pictures" / name).read_text("utf-8") == html, "run: make pictures"
        assert name in (ROOT / "guides" / "student.md").read_text("utf-8")


# What a review found: unjust scores, untrue words, exceptions that escaped.


def test_a_part_that_is_not_written_fails_its_cases():
    def half(x, h, W, U, b):
        if x.shape[0] == 1:
            return np.tanh(step(x, h, W, U, b))
        raise NotImplementedError()

    found = check("rnn-step", half)
    assert 0 < found.score < 3.0
    assert "is reached: a part is not written yet" in str(found)


def stub(*a):
    raise NotImplementedError()


def test_an_answer_that_calls_something_unwritten_says_what():
    text = str(check("rnn-sequence", lambda x, h0, *a: stub(x[:, 0], h0, *a)))
    assert "stub, which this answer calls, is not written yet." in text
    assert "still stands" not in text


def test_a_second_call_that_raises_is_a_result_that_changes():
    seen = []

    def counting(*a):
        seen.append(a)
        if len(seen) > 7:
            raise ValueError("again")
        return np.tanh(step(*a))

    found = check("rnn-step", counting)
    assert found.score < 3.0
    assert "the same call again does not give a result. Your code raises ValueError: again" in str(found)


def test_an_answer_that_runs_away_later_is_said_to_do_so_there():
    found = verdict(STEP, lambda x, *a: for_ever() if len(x) > 1 else np.tanh(step(x, *a)), seconds=0.5)
    assert found.passed >= 1
    assert "Is there a loop that never ends?" in str(found)
    assert "the same call again" not in str(found)


def test_a_first_difference_without_points_is_said_to_be_one():
    cases = [Case("free", {"x": np.ones(2)}, counted=False), Case("drawn", {"x": np.zeros(2)})]
    exercise = Exercise("doubled", 1, lambda x: 2 * x, lambda rng: cases, call, axes="H")
    right = verdict(exercise, lambda x: x)
    assert right.score == 1.0
    assert "First case that differs, one without points: free." in str(right)
    assert "First case that differs: free." in str(verdict(exercise, lambda x: x - 5))


def test_a_dictionary_that_lacks_an_entry_has_no_case_to_show():
    def lacking(dh, x, h, h_next, W_xh, W_hh):
        da = dh * (1 - h_next * h_next)
        return {"x": da @ W_xh, "h": da @ W_hh, "W_xh": da.T @ x, "W_hh": da.T @ h}

    text = str(verdict(exercises.find("step-backward"), lacking))
    assert "expected 'x', 'h', 'W_xh', 'W_hh', 'b_h'" in text
    assert "The whole case" not in text


PASSED = {  # where a probe calls an answer with others than the case's arguments
    "predict-gain": "W_hh: a NumPy array of shape (2, 2), float64\n    scale: 0.0\n    T: 5\n",
    "orthogonal-start": "H: 20\n    gain: 1.0\n    rng: a Generator\n",
    "numerical-gradient": "f: a function (f)\n    w: a NumPy array of shape (1,), float64\n    eps: 0.5\n",
    "sampler": "temperature: 1.0\n    generator: a Generator\n",
    "xavier-weights": "b_h: a PyTorch tensor of shape (200,), float32\n    gain: 1.0\n    generator: a Generator\n",
}


@pytest.mark.parametrize("name", PASSED)
def test_what_an_answer_that_raises_was_called_with_is_shown(name):
    def raises(*a):
        raise ValueError("here")

    text = str(check(name, raises))
    assert PASSED[name] in text
    assert "seed" not in text


def test_an_answer_that_replaces_numpys_tanh_does_not_change_what_is_expected(monkeypatch):
    diagnose._expected.cache_clear()

    def vandal(x, h, W, U, b):
        monkeypatch.setattr(np, "tanh", np.sin)
        return np.sin(step(x, h, W, U, b))

    assert check("rnn-step", vandal).score < 3.0
    monkeypatch.undo()
    assert check("rnn-step", lambda *a: np.tanh(step(*a))).score == 3.0


def test_cases_that_were_not_run_are_not_said_to_differ():
    text = str(verdict(STEP, for_ever, seconds=0.2))
    assert "differ" not in text.replace("First case that differs", "")
    assert "Where to look" not in text


def test_no_term_is_blamed_where_the_numbers_are_right():
    def in_place(x, h, W, U, b):
        h[:] = np.tanh(step(x, h, W, U, b))
        return h

    for answer in (in_place, lambda *a: np.squeeze(np.tanh(step(*a)))):
        assert "put together they are not" not in str(check("rnn-step", answer))


def test_names_that_an_answer_binds_itself_are_its_own():
    def inner(x, h, W, U, b):
        def finish():
            rnncore = np.tanh(step(x, h, W, U, b))
            return rnncore

        return finish()

    def comprehension(*a):
        return np.array([rnncore for rnncore in np.tanh(step(*a))])

    def commented(*a):
        """Not rnncore.rnn_step, but my own."""  # rnncore
        return np.tanh(step(*a))

    for answer in (inner, comprehension, commented):
        assert check("rnn-step", answer).score == 3.0


class Hostile:
    def __getattr__(self, name):
        raise ValueError(name)

    def __call__(self, *a):
        return self


class NoClass:
    @property
    def __class__(self):
        raise ValueError


class NoLength(list):
    def __len__(self):
        raise ValueError


def closing(*a):
    sys.stdout.close()
    return np.tanh(step(*a))


def wrapped_in_itself(*a):
    return np.tanh(step(*a))


wrapped_in_itself.__wrapped__ = wrapped_in_itself


class Silent(Exception):
    def __str__(self):
        raise SystemExit


def silent(*a):
    raise Silent()


def deep(*a):
    return deep(*a)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (Hostile(), 0.0),
        (lambda *a: NoClass(), 0.0),
        (lambda *a: NoLength([1]), 0.0),
        (lambda *a: torch.tensor(np.tanh(step(*a))).bfloat16(), 0.0),
        (lambda *a: torch.tensor(np.tanh(step(*a))).to_sparse(), 0.0),
        (lambda *a: torch.tensor(np.tanh(step(*a))).to("meta"), 0.0),
        (silent, 0.0),
        (deep, 0.0),
        (closing, 3.0),
        (wrapped_in_itself, 3.0),
    ],
    ids=map(str, range(10)),  # pytest's own ask the objects for their names
)
def test_nothing_that_an_answer_does_escapes_the_check(answer, score):
    found = check("rnn-step", answer)
    assert found.score == score
    assert str(found)
    assert found._repr_html_()


def test_a_profiler_written_in_c_goes_on():
    profiler = cProfile.Profile()
    profiler.enable()
    assert check("rnn-step", lambda *a: np.tanh(step(*a))).score == 3.0
    profiler.disable()
