"""Chapter 8: an LSTM's step and sequence, both backwards, the forget bias, and the gradient that flows through c."""

from functools import partial

import numpy as np
import torch

import rnncore
from autograde import draw
from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import call, lstm_returned, state_and_cell, summed_biases

BY_AUTOGRAD = "torch.autograd"
BUILT_IN = (  # would do it
    "torch.nn.LSTM",
    "torch.nn.LSTMCell",
    "torch.lstm",
    "torch.lstm_cell",
    "torch.ops.aten.lstm",
    "torch.ops.aten.lstm_cell",
)


def _drawn_weights(rng, D, H, gain=0.9):
    """Return W_xh (4H, D), W_hh (4H, H) and b_h (4H,); the largest singular value of W_hh is `gain`."""
    weights = draw.normal(rng, W_xh=(4 * H, D), W_hh=(4 * H, H), b_h=4 * H)
    weights["W_hh"] *= gain / np.linalg.norm(weights["W_hh"], ord=2)
    return weights


# ----------------------------------------------------------------------------------------------------------
# lstm-step: lstm_step(x, h, c, W_xh, W_hh, b_h) -> (h_t, c_t)


def step_cases(rng):
    def arguments(B, D, H, scale=1.0):
        drawn = draw.normal(rng, x=(B, D), h=(B, H), c=(B, H))
        return drawn | {"h": np.tanh(drawn["h"]), "c": scale * drawn["c"]} | _drawn_weights(rng, D, H)

    one_unit = {"x": [1.0], "h": [0.5], "c": [-2.0]}
    by_hand = {
        "W_xh": [[1.0], [0.5], [-1.0], [2.0]],
        "W_hh": [[0.0], [1.0], [2.0], [-1.0]],
        "b_h": [0.0, 1.0, 0.5, 0.5],
    }
    yield Case(
        "one unit, numbers to check by hand",
        {name: np.array([value]) for name, value in one_unit.items()} | {n: np.array(v) for n, v in by_hand.items()},
    )
    given, weights = arguments(3, 2, 4), ("W_xh", "W_hh")
    yield Case("only the input is not zero", draw.only(given, "x", *weights), term="the input's term")
    yield Case("only the state is not zero", draw.only(given, "h", *weights), term="the recurrent term")
    yield Case("only the bias is not zero", draw.only(given, "b_h", *weights), term="the bias")
    yield Case("only the cell is not zero: all gates stand at ½", draw.only(given, "c", *weights), term="the old cell")
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("a batch of one, D = H, a large cell", arguments(1, 3, 3, scale=4.0))


def _sigma(a):
    return 1 / (1 + np.exp(-a))


def _tanh(a):
    return np.tanh(a)


def _sums(x, h, W_xh, W_hh, b_h):
    return np.einsum("bd,kd->bk", x, W_xh) + np.einsum("bj,kj->bk", h, W_hh) + b_h


def _parts(a, order):
    """Return the four blocks of columns of a, in this order."""
    found = np.split(a, 4, axis=1)
    return [found[k] for k in order]


def _lstm(
    x,
    h,
    c,
    W_xh,
    W_hh,
    b_h,
    sums=lambda x, h, c, W, U, b: _sums(x, h, W, U, b),
    parts=lambda a: _parts(a, (0, 1, 2, 3)),
    gate=_sigma,
    candidate=np.tanh,
    cell=lambda i, f, g, c: f * c + i * g,
    state=lambda o, c_next, c: o * np.tanh(c_next),
    gives=lambda h_next, c_next: (h_next, c_next),
):
    """Return the next state and cell. Each keyword stands for one decision, right unless another is given."""
    i, f, g, o = parts(sums(x, h, c, W_xh, W_hh, b_h))
    c_next = cell(gate(i), gate(f), candidate(g), c)
    return gives(state(gate(o), c_next, c), c_next)


def _into_c(x, h, c, W_xh, W_hh, b_h):
    i, f, g, o = _parts(_sums(x, h, W_xh, W_hh, b_h), (0, 1, 2, 3))
    c *= _sigma(f)
    c += _sigma(i) * np.tanh(g)
    return _sigma(o) * np.tanh(c), c


def _forget_raised(a):
    return _parts(a + np.repeat([0.0, 1.0, 0.0, 0.0], a.shape[1] // 4), (0, 1, 2, 3))


def _interleaved(a):
    return np.moveaxis(a.reshape(len(a), -1, 4), 2, 0)


ORDER = "PyTorch stacks the gates i, f, g, o. Which rows belong to which in your code?"

GATES = {  # wrong in every step; also what a hand-written step in the sequence may have
    "the blocks of i and f are swapped": M(partial(_lstm, parts=lambda a: _parts(a, (1, 0, 2, 3))), ORDER),
    "the blocks are read in the order i, f, o, g": M(partial(_lstm, parts=lambda a: _parts(a, (0, 1, 3, 2))), ORDER),
    "the state is the output gate times the cell, without tanh": M(
        partial(_lstm, state=lambda o, c_next, c: o * c_next),
        "A state lies between -1 and 1. Does yours, with a large cell?",
    ),
    "the state is computed from the old cell": M(
        partial(_lstm, state=lambda o, c_next, c: o * np.tanh(c)),
        "What is written in this step is to be read in it already.",
    ),
    "the candidate goes through the sigmoid": M(
        partial(_lstm, candidate=_sigma),
        "A candidate may be negative, or nothing could ever be taken from a cell. Which function gives it?",
    ),
}

STEP = Exercise(
    id="lstm-step",
    points=4,
    reference=rnncore.lstm_step,
    cases=step_cases,
    probe=state_and_cell,
    axes={"state": "B H", "cell": "B H"},
    section="“The cell, equation by equation”",
    forbidden=("rnncore.lstm_step", "rnncore.lstm_forward", "rnncore.LSTM", "rnncore.LSTMCell", *BUILT_IN),
    misconceptions={
        **GATES,
        "the forget gate is left out": M(
            partial(_lstm, cell=lambda i, f, g, c: c + i * g),
            "That is the cell of 1997: it never lets go. What does the old cell meet on its way?",
        ),
        "the old cell is left out": M(
            partial(_lstm, cell=lambda i, f, g, c: i * g),
            "A cell is what is kept and what is added. What becomes of the old one in your code?",
        ),
        "the input gate is left out": M(
            partial(_lstm, cell=lambda i, f, g, c: f * c + g),
            "Two things are added, and each has a gate of its own.",
        ),
        "the output gate is left out": M(
            partial(_lstm, state=lambda o, c_next, c: np.tanh(c_next)),
            "Which of the four blocks is never used?",
        ),
        "the blocks are read in the order f, i, o, g": M(
            partial(_lstm, parts=lambda a: _parts(a, (1, 0, 3, 2))), ORDER
        ),
        "the four sums of each unit are taken to stand side by side": M(
            partial(_lstm, parts=_interleaved),
            "The first H sums are those of the input gate, for all units. Which sums does your first unit get?",
        ),
        "the candidate goes through no function": M(
            partial(_lstm, candidate=lambda a: a),
            "What is to be added should be bounded. Which function gives the candidate?",
        ),
        "the gates go through tanh": M(
            partial(_lstm, gate=_tanh),
            "A gate lies between 0, shut, and 1, open. Does yours?",
        ),
        "the exponent in the sigmoid has the wrong sign": M(
            partial(_lstm, gate=lambda a: 1 / (1 + np.exp(a))),
            "What does your sigmoid give for a large positive number: nearly 1, or nearly 0?",
        ),
        "1 is added to what stands in front of the forget gate": M(
            partial(_lstm, parts=_forget_raised),
            "Some libraries add 1 in the step. Here the bias that comes is the whole bias.",
        ),
        "one minus the forget gate stands for the input gate": M(
            partial(_lstm, cell=lambda i, f, g, c: f * c + (1 - f) * g),
            "That is the coupled variant. Here both gates are free.",
        ),
        "the cell itself goes through tanh": M(
            partial(_lstm, cell=lambda i, f, g, c: np.tanh(f * c + i * g)),
            "The path from cell to cell has no function on it. Where does tanh stand?",
        ),
        "the cell itself goes through tanh, and the state reads it as it is": M(
            partial(
                _lstm,
                cell=lambda i, f, g, c: np.tanh(f * c + i * g),
                state=lambda o, c_next, c: o * c_next,
            ),
            "The path from cell to cell has no function on it. Where does tanh stand?",
        ),
        "the forget gate is applied to what is added, too": M(
            partial(_lstm, cell=lambda i, f, g, c: f * (c + i * g)),
            "Each of the two terms has one gate. Where do your brackets stand?",
        ),
        "the state before stands in place of the old cell": M(
            lambda x, h, c, *weights: _lstm(x, h, h, *weights),
            "Two things come from the step before. Which of them does the forget gate act on?",
        ),
        "the bias is left out": M(
            partial(_lstm, sums=lambda x, h, c, W, U, b: _sums(x, h, W, U, 0 * b)),
            "Which argument is never used?",
        ),
        "the bias is added twice": M(
            partial(_lstm, sums=lambda x, h, c, W, U, b: _sums(x, h, W, U, 2 * b)),
            "PyTorch has two biases; here their sum comes as one.",
        ),
        "the recurrent term is left out": M(
            partial(_lstm, sums=lambda x, h, c, W, U, b: _sums(x, 0 * h, W, U, b)),
            "Each gate reads the input and the state before.",
        ),
        "the gates read the cell and not the state": M(
            partial(_lstm, sums=lambda x, h, c, W, U, b: _sums(x, c, W, U, b)),
            "W_hh belongs to h. In which variant do gates look at the cell?",
        ),
        "the gates read the cell beside the state": M(
            partial(_lstm, sums=lambda x, h, c, W, U, b: _sums(x, h + c, W, U, b)),
            "W_hh belongs to h alone. In which variant do gates look at the cell?",
        ),
        "cell and state are returned in the other order": M(
            partial(_lstm, gives=lambda h_next, c_next: (c_next, h_next)),
            "Asked for is the state first.",
        ),
        "the old cell is returned beside the new state": M(
            lambda x, h, c, W, U, b: (_lstm(x, h, c, W, U, b)[0], c.copy()),
            "The next step needs what this one has written.",
        ),
        "c is changed in place": M(
            _into_c,
            "Multiplying with *= writes into the caller's array. Give the new cell a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# lstm-sequence: lstm_forward(x, h0, c0, W_xh, W_hh, b_h) -> (hs, cs)


def sequence_cases(rng):
    def arguments(B, T, D, H):
        drawn = draw.normal(rng, x=(B, T, D), h0=(B, H), c0=(B, H))
        return drawn | {"h0": np.tanh(drawn["h0"])} | _drawn_weights(rng, D, H)

    yield Case("one unit, two steps", arguments(1, 2, 1, 1))
    yield Case("one step", arguments(3, 1, 2, 4))
    zero = arguments(2, 3, 2, 3)
    yield Case("h_0 and c_0 are zero", zero | {"h0": 0 * zero["h0"], "c0": 0 * zero["c0"]})
    yield Case("B, T, D and H all different", arguments(3, 4, 2, 5))
    yield Case("a batch of one, T = D = H", arguments(1, 3, 3, 3))


def _loop(
    x,
    h0,
    c0,
    W_xh,
    W_hh,
    b_h,
    step=_lstm,
    order=range,
    carry=lambda h, c, h_next, c_next: (h_next, c_next),
    gives=lambda hs, cs, h0, c0: (np.stack(hs, 1), np.stack(cs, 1)),
):
    """Return states and cells. Each keyword stands for one decision, right unless another is given."""
    h, c, found = h0, c0, {}
    for t in order(x.shape[1]):
        found[t] = step(x[:, t], h, c, W_xh, W_hh, b_h)
        h, c = carry(h, c, *found[t])
    hs, cs = zip(*(found[t] for t in range(x.shape[1])), strict=True)
    return gives(hs, cs, h0, c0)


ZERO = "The first step gets what the caller gives, which need not be zero. Which argument is never used?"

SEQUENCE = Exercise(
    id="lstm-sequence",
    points=3,
    reference=rnncore.lstm_forward,
    cases=sequence_cases,
    probe=state_and_cell,
    axes={"state": "B T H", "cell": "B T H"},
    section="“The cell, equation by equation”",
    forbidden=("rnncore.lstm_forward", "rnncore.LSTM", "rnncore.LSTMCell", *BUILT_IN),
    provided=("lstm_step",),
    misconceptions={
        **{f"in every step {name}": mistake.in_every_step(_loop) for name, mistake in GATES.items()},
        "the state is not carried on": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (h, c_next)),
            "Two things pass from step to step. Which state does your third step get?",
        ),
        "the cell is not carried on": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (h_next, c)),
            "Two things pass from step to step. Which cell does your third step get?",
        ),
        "neither state nor cell is carried on": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (h, c)),
            "What does your third step know of the first?",
        ),
        "state and cell change places from step to step": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (c_next, h_next)),
            "A step takes two things and returns two. In the same order?",
        ),
        "the state is carried on as the cell, too": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (h_next, h_next)),
            "A step takes two things and returns two. Which of them does your next step get for its cell?",
        ),
        "the cell is carried on as the state, too": M(
            partial(_loop, carry=lambda h, c, h_next, c_next: (c_next, c_next)),
            "The gates of the next step read the state. What do they read in your loop?",
        ),
        "h_0 is taken for zeros": M(lambda x, h0, *a: _loop(x, 0 * h0, *a), ZERO),
        "c_0 is taken for zeros": M(lambda x, h0, c0, *a: _loop(x, h0, 0 * c0, *a), ZERO),
        "h_0 and c_0 are taken for zeros": M(lambda x, h0, c0, *a: _loop(x, 0 * h0, 0 * c0, *a), ZERO),
        "h_0 and c_0 change places": M(
            lambda x, h0, c0, *a: _loop(x, c0, h0, *a),
            "In which order do the two come, and in which does the step take them?",
        ),
        "h_0 is taken for the first cell, too": M(
            lambda x, h0, c0, *a: _loop(x, h0, h0, *a),
            "Two things come before the first step. Which argument is never used?",
        ),
        "the sequence is read from its end, and the results stand in that order": M(
            lambda x, *a: _loop(x[:, ::-1], *a), "Which step comes first?"
        ),
        "the sequence is read from its end": M(
            partial(_loop, order=lambda T: range(T)[::-1]),
            "Which step comes first? The last one knows of all others.",
        ),
        "the results begin with h_0 and c_0, and the last ones are missing": M(
            partial(_loop, gives=lambda hs, cs, *a: (np.stack([a[0], *hs[:-1]], 1), np.stack([a[1], *cs[:-1]], 1))),
            "Do you append before the step, or after it?",
        ),
        "h_0 and c_0 stand before the results": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: (np.stack([h0, *hs], 1), np.stack([c0, *cs], 1))),
            "There are T steps. How many results have you?",
        ),
        "only the last state and cell are returned": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: (hs[-1], cs[-1])),
            "Asked for are the states and cells of all steps.",
        ),
        "all steps hold the last state and cell": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: tuple(np.stack([a[-1]] * len(a), 1) for a in (hs, cs))),
            "Is one and the same array appended again and again, and changed in between?",
        ),
        "states and cells are returned in the other order": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: (np.stack(cs, 1), np.stack(hs, 1))),
            "Asked for are the states first.",
        ),
        "the states are returned twice, and no cells": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: (np.stack(hs, 1), np.stack(hs, 1))),
            "What do you append to the second list?",
        ),
        "time is the first axis": M(
            partial(_loop, gives=lambda hs, cs, h0, c0: (np.stack(hs), np.stack(cs))),
            "A list of T arrays (B, H): where does the axis of time go?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# lstm-step-backward: step_backward(dh, dc, x, h, c, W_xh, W_hh, b_h) -> {"x", "h", "c", "W_xh", "W_hh", "b_h"}

WEIGHTS = {"W_xh": "4H D", "W_hh": "4H H", "b_h": "4H"}


def step_backward_cases(rng):
    def arguments(B, D, H, scale=1.0):
        drawn = draw.normal(rng, dh=(B, H), dc=(B, H), x=(B, D), h=(B, H), c=(B, H))
        return drawn | {"h": np.tanh(drawn["h"]), "c": scale * drawn["c"]} | _drawn_weights(rng, D, H)

    one_unit = {"dh": [0.5], "dc": [-1.0], "x": [1.0], "h": [0.5], "c": [-2.0]}
    by_hand = {
        "W_xh": [[1.0], [0.5], [-1.0], [2.0]],
        "W_hh": [[0.0], [1.0], [2.0], [-1.0]],
        "b_h": [0.0, 1.0, 0.5, 0.5],
    }
    yield Case(
        "one unit, numbers to check by hand",
        {name: np.array([value]) for name, value in one_unit.items()} | {n: np.array(v) for n, v in by_hand.items()},
    )
    given = arguments(3, 2, 4)
    yield Case("dh is zero: all comes by the cell", given | {"dh": 0 * given["dh"]})
    yield Case("dc is zero: all comes by the state", given | {"dc": 0 * given["dc"]})
    yield Case("the cell and the state before are zero", given | {"c": 0 * given["c"], "h": 0 * given["h"]})
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("a batch of one, D = H, a large cell", arguments(1, 3, 3, scale=3.0))


def _back(
    dh,
    dc,
    x,
    h,
    c,
    W_xh,
    W_hh,
    b_h,
    sums=_sums,
    order=lambda: (0, 1, 2, 3),
    total=lambda dh, dc, o, c_next, c: dc + dh * o * (1 - np.tanh(c_next) ** 2),
    to_i=lambda total, dc, i, g: total * g * i * (1 - i),
    to_f=lambda total, dc, f, c, c_next: total * c * f * (1 - f),
    to_g=lambda total, dc, i, g: total * i * (1 - g * g),
    to_o=lambda total, dh, o, c_next: dh * np.tanh(c_next) * o * (1 - o),
    to_c=lambda total, dc, f, i: total * f,
    stack=lambda i, f, g, o: (i, f, g, o),
    before=lambda h, c, h_next: h,
):
    """Return the gradients of a step. Each keyword stands for one decision, right unless another is given."""
    i, f, g, o = _parts(sums(x, h, W_xh, W_hh, b_h), order())
    i, f, g, o = _sigma(i), _sigma(f), np.tanh(g), _sigma(o)
    c_next = f * c + i * g
    t = total(dh, dc, o, c_next, c)
    of_gates = to_i(t, dc, i, g), to_f(t, dc, f, c, c_next), to_g(t, dc, i, g), to_o(t, dh, o, c_next)
    das = np.concatenate(stack(*(of_gates[order().index(k)] for k in range(4))), axis=1)
    return {
        "x": np.einsum("bk,kd->bd", das, W_xh),
        "h": np.einsum("bk,kj->bj", das, W_hh),
        "c": to_c(t, dc, f, i),
        "W_xh": np.einsum("bk,bd->kd", das, x),
        "W_hh": np.einsum("bk,bj->kj", das, before(h, c, o * np.tanh(c_next))),
        "b_h": np.einsum("bk->k", das),
    }


def _ending(arguments, change):
    """Return the right gradients of a step with a change made to them: change(found, the arguments)."""
    found = _back(*arguments)
    return found | change(found, *arguments)


def _no_slopes(*a):
    return _back(
        *a,
        to_i=lambda total, dc, i, g: total * g,
        to_f=lambda total, dc, f, c, c_next: total * c,
        to_o=lambda total, dh, o, c_next: dh * np.tanh(c_next),
    )


def _no_slopes_at_all(*a):
    return _back(
        *a,
        to_i=lambda total, dc, i, g: total * g,
        to_f=lambda total, dc, f, c, c_next: total * c,
        to_g=lambda total, dc, i, g: total * i,
        to_o=lambda total, dh, o, c_next: dh * np.tanh(c_next),
    )


def _into_dc(dh, dc, x, h, c, W_xh, W_hh, b_h):
    i, f, g, o = _parts(_sums(x, h, W_xh, W_hh, b_h), (0, 1, 2, 3))
    c_next = _sigma(f) * c + _sigma(i) * np.tanh(g)
    before = dc.copy()
    dc += dh * _sigma(o) * (1 - np.tanh(c_next) ** 2)
    return _back(dh, before, x, h, c, W_xh, W_hh, b_h)


MEAN = "If the loss is a mean, its 1/B is already in what came. What does the chain rule ask for, where paths join?"
OWN_SLOPE = "Each gate was made by the sigmoid. What does that multiply by, on the way back?"

STEP_BACKWARD = Exercise(
    id="lstm-step-backward",
    points=5,
    reference=rnncore.lstm_step_backward,
    cases=step_backward_cases,
    probe=call,
    axes=WEIGHTS | {"x": "B D", "h": "B H", "c": "B H"},
    section="“One step backwards”",
    forbidden=("rnncore.lstm_step_backward", "rnncore.lstm_backward", BY_AUTOGRAD),
    misconceptions={
        "what reaches the cell from the next step is dropped": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dh * o * (1 - np.tanh(c_next) ** 2)),
            "A cell acts on its own state and on the next cell. How many of the two does your sum hold?",
        ),
        "what reaches the cell by the state is dropped": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc),
            "A cell acts on its own state and on the next cell. How many of the two does your sum hold?",
        ),
        "the slope of the cell's tanh is missing": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh * o),
            "Between the cell and the state stand a gate and a function. What does the function multiply by?",
        ),
        "the output gate is missing on the way from the state to the cell": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh * (1 - np.tanh(c_next) ** 2)),
            "Between the cell and the state stand a gate and a function. What does the gate multiply by?",
        ),
        "the cell's slope is computed without tanh": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh * o * (1 - c_next**2)),
            "A slope of tanh is never below 0. Is yours, for a large cell?",
        ),
        "the cell's slope is taken at the old cell": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh * o * (1 - np.tanh(c) ** 2)),
            "Which of the two cells did tanh read in this step?",
        ),
        "the cell's slope is taken at the state": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh * o * (1 - (o * np.tanh(c_next)) ** 2)),
            "1 - h² is the slope where h came out of tanh. What came out of it here?",
        ),
        "dh reaches the cell as it is": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: dc + dh),
            "Between the cell and the state stand a gate and a function. What does each multiply by?",
        ),
        "the whole of what reaches the cell passes through the output gate": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: (dc + dh) * o * (1 - np.tanh(c_next) ** 2)),
            "What comes from the next cell has not been through this state. Where do your brackets stand?",
        ),
        "what the next step sent passes through the slope of tanh": M(
            partial(_back, total=lambda dh, dc, o, c_next, c: (dc + dh * o) * (1 - np.tanh(c_next) ** 2)),
            "What comes from the next cell has not been through this state. Where do your brackets stand?",
        ),
        "dh and dc change places": M(
            lambda dh, dc, *a: _back(dc, dh, *a),
            "In which order do the two come?",
        ),
        "the slope of the input gate is missing": M(partial(_back, to_i=lambda total, dc, i, g: total * g), OWN_SLOPE),
        "the slope of the forget gate is missing": M(
            partial(_back, to_f=lambda total, dc, f, c, c_next: total * c), OWN_SLOPE
        ),
        "the slope of the output gate is missing": M(
            partial(_back, to_o=lambda total, dh, o, c_next: dh * np.tanh(c_next)), OWN_SLOPE
        ),
        "the slopes of all three gates are missing": M(_no_slopes, OWN_SLOPE),
        "the slopes of the gates and of the candidate are missing": M(
            _no_slopes_at_all, "Each of the four came out of a function. What does that multiply by, on the way back?"
        ),
        "the slope of the candidate is missing": M(
            partial(_back, to_g=lambda total, dc, i, g: total * i),
            "The candidate was made by tanh. What does that multiply by, on the way back?",
        ),
        "the slope of the candidate is the sigmoid's": M(
            partial(_back, to_g=lambda total, dc, i, g: total * i * g * (1 - g)),
            "s(1 - s) is the slope of the sigmoid. Which function made the candidate?",
        ),
        "the forget gate's gradient is made with the new cell": M(
            partial(_back, to_f=lambda total, dc, f, c, c_next: total * c_next * f * (1 - f)),
            "What did the forget gate multiply in this step?",
        ),
        "the output gate's gradient is made with the cell, without tanh": M(
            partial(_back, to_o=lambda total, dh, o, c_next: dh * c_next * o * (1 - o)),
            "What did the output gate multiply in this step?",
        ),
        "the output gate's gradient is made from the cell's": M(
            partial(_back, to_o=lambda total, dh, o, c_next: total * np.tanh(c_next) * o * (1 - o)),
            "The output gate acts on the state alone. Which of the gradients has come from there?",
        ),
        "the gradient of the old cell leaves out the forget gate": M(
            partial(_back, to_c=lambda total, dc, f, i: total),
            "On its way into the new cell, the old one met a gate.",
        ),
        "the gradient of the old cell holds only what the next step sent": M(
            partial(_back, to_c=lambda total, dc, f, i: dc * f),
            "The old cell acts on the new one, and that on its state, too.",
        ),
        "the gates are read, and their gradients stacked, in the order i, f, o, g": M(
            partial(_back, order=lambda: (0, 1, 3, 2)), ORDER
        ),
        "the gates are read, and their gradients stacked, in the order f, i, g, o": M(
            partial(_back, order=lambda: (1, 0, 2, 3)), ORDER
        ),
        "the gradients are stacked in the order i, f, o, g": M(
            partial(_back, stack=lambda i, f, g, o: (i, f, o, g)),
            "The blocks are to stand as those of the weights: i, f, g, o. In which order do you put them together?",
        ),
        "the gates are computed again without the bias": M(
            partial(_back, sums=lambda x, h, W, U, b: _sums(x, h, W, U, 0 * b)),
            "Which argument is never used?",
        ),
        "the gradient of W_hh is made with the cell": M(
            partial(_back, before=lambda h, c, h_next: c),
            "What did W_hh multiply in this step?",
        ),
        "the gradient of W_hh is made with the new state": M(
            partial(_back, before=lambda h, c, h_next: h_next),
            "What did W_hh multiply in this step?",
        ),
        "the weights' gradients are averaged over the batch": M(
            lambda *a: _ending(a, lambda found, dh, *_: {k: found[k] / len(dh) for k in ("W_xh", "W_hh", "b_h")}), MEAN
        ),
        "the gradient that came for the state is added to the one that goes": M(
            lambda *a: _ending(a, lambda found, dh, *_: {"h": found["h"] + dh}),
            "Does h_(t-1) reach h_t in any way but through the gates?",
        ),
        "the gradients of both matrices are transposed": M(
            lambda *a: _ending(a, lambda found, *_: {k: found[k].T for k in ("W_xh", "W_hh")}),
            "A gradient has the shape of what it is the gradient of.",
        ),
        "dc is changed in place": M(
            _into_dc,
            "Adding with += writes into the caller's array. Give the sum a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# lstm-sequence-backward: lstm_backward(dhs, x, h0, c0, hs, cs, W_xh, W_hh, b_h) -> {"x", "h0", "c0", ...}


def sequence_backward_cases(rng):
    def arguments(B, T, D, H, losses=slice(None)):
        drawn = draw.normal(rng, dhs=(B, T, H), x=(B, T, D), h0=(B, H), c0=(B, H))
        weights, dhs = _drawn_weights(rng, D, H), np.zeros((B, T, H))
        dhs[:, losses] = drawn["dhs"][:, losses]
        drawn |= {"dhs": dhs, "h0": np.tanh(drawn["h0"])}
        hs, cs = rnncore.lstm_forward(drawn["x"], drawn["h0"], drawn["c0"], **weights)
        return drawn | {"hs": hs, "cs": cs} | weights

    yield Case("one unit, two steps", arguments(1, 2, 1, 1))
    yield Case("one step", arguments(3, 1, 2, 4))
    yield Case("a loss at the last step only", arguments(2, 3, 3, 2, losses=-1))
    yield Case("a loss at the first step only", arguments(2, 3, 3, 2, losses=0))
    yield Case("a loss at every step; B, T, D and H all different", arguments(3, 4, 2, 5))
    yield Case("a batch of one, T = D = H", arguments(1, 3, 3, 3))


def _weights():  # no constant: the sample class writes out the functions that a mistake needs
    return "W_xh", "W_hh", "b_h"


def _walk(
    dhs,
    x,
    h0,
    c0,
    hs,
    cs,
    W_xh,
    W_hh,
    b_h,
    order=lambda T: range(T)[::-1],
    arrives=lambda dhs_t, dh: dhs_t + dh,
    at_cell=lambda dhs_t, dc: dc,
    carry_h=lambda dh, back: back["h"],
    carry_c=lambda dc, back: back["c"],
    h_before=lambda h0, hs, t: hs[:, t - 1] if t else h0,
    c_before=lambda c0, cs, t: cs[:, t - 1] if t else c0,
    collect=sum,
    last_c=lambda dcs: dcs[-1],
):
    """Walk back over the steps. Each keyword stands for one decision, right unless another is given."""
    T, dh, dc = hs.shape[1], np.zeros_like(h0), np.zeros_like(c0)
    dxs, parts, dcs = np.zeros_like(x), {}, [dc]
    for t in order(T):
        dh, dc = arrives(dhs[:, t], dh), at_cell(dhs[:, t], dc)
        parts[t] = _back(dh, dc, x[:, t], h_before(h0, hs, t), c_before(c0, cs, t), W_xh, W_hh, b_h)
        dxs[:, t] = parts[t]["x"]
        dh, dc = carry_h(dh, parts[t]), carry_c(dc, parts[t])
        dcs.append(dc)
    weights = {name: collect([parts[t][name] for t in range(T)]) for name in _weights()}
    return {"x": dxs, "h0": dh, "c0": last_c(dcs), **weights}


def _walked(arguments, change):
    """Return the right gradients of a sequence with a change made to them: change(found, the arguments)."""
    found = _walk(*arguments)
    return found | change(found, *arguments)


def _into_dhs(dhs, x, h0, c0, hs, cs, W_xh, W_hh, b_h):
    dc = np.zeros_like(c0)
    for t in range(dhs.shape[1])[:0:-1]:
        back = _back(dhs[:, t], dc, x[:, t], hs[:, t - 1], cs[:, t - 1], W_xh, W_hh, b_h)
        dhs[:, t - 1] += back["h"]
        dc = back["c"]
    return _walk(dhs, x, h0, c0, hs, cs, W_xh, W_hh, b_h, arrives=lambda dhs_t, dh: dhs_t)


def _both_left_out(*a):
    return _walk(
        *a,
        arrives=lambda dhs_t, dh: dhs_t,
        at_cell=lambda dhs_t, dc: 0 * dc,
    )


def _gradients_change_places(*a):
    return _walk(
        *a,
        carry_h=lambda dh, back: back["c"],
        carry_c=lambda dc, back: back["h"],
    )


def _own_as_before(*a):
    return _walk(
        *a,
        h_before=lambda h0, hs, t: hs[:, t],
        c_before=lambda c0, cs, t: cs[:, t],
    )


def _last_before_the_first(*a):
    return _walk(
        *a,
        h_before=lambda h0, hs, t: hs[:, t - 1],
        c_before=lambda c0, cs, t: cs[:, t - 1],
    )


FIRST = "hs[:, 0] is h_1 and cs[:, 0] is c_1. What did the first step get, and what the step at index t?"
AGAIN = "What a step sends back already holds all later losses. Is there a += where an = should stand?"

SEQUENCE_BACKWARD = Exercise(
    id="lstm-sequence-backward",
    points=4,
    reference=rnncore.lstm_backward,
    cases=sequence_backward_cases,
    probe=call,
    axes=WEIGHTS | {"x": "B T D", "h0": "B H", "c0": "B H"},
    section="“One step backwards”",
    forbidden=("rnncore.lstm_backward", BY_AUTOGRAD),
    provided=("lstm_step_backward",),
    misconceptions={
        "the state's gradient from the next step is left out": M(
            partial(_walk, arrives=lambda dhs_t, dh: dhs_t),
            "A step sends back two gradients besides those of its weights. Where does each go?",
        ),
        "the cell's gradient from the next step is left out": M(
            partial(_walk, at_cell=lambda dhs_t, dc: 0 * dc),
            "A step sends back two gradients besides those of its weights. Where does each go?",
        ),
        "both gradients from the next step are left out": M(
            _both_left_out,
            "A step sends back two gradients besides those of its weights. Where does each go?",
        ),
        "state and cell gradients change places": M(
            _gradients_change_places,
            "Two gradients go from step to step. Which entry of the result belongs to which?",
        ),
        "the loss's gradient is added to the cell, too": M(
            partial(_walk, at_cell=lambda dhs_t, dc: dc + dhs_t),
            "The loss reads the states. By which way does its gradient come to the cell, and who computes that?",
        ),
        "the losses of all steps but the last are left out": M(
            lambda dhs, *a: _walk(np.concatenate([0 * dhs[:, :-1], dhs[:, -1:]], axis=1), *a),
            "dhs has an entry for each step. When is each of them added?",
        ),
        "what comes back to the state is added up": M(partial(_walk, carry_h=lambda dh, back: dh + back["h"]), AGAIN),
        "what comes back to the cell is added up": M(partial(_walk, carry_c=lambda dc, back: dc + back["c"]), AGAIN),
        "each step is given its own state as the one before": M(
            partial(_walk, h_before=lambda h0, hs, t: hs[:, t]), FIRST
        ),
        "each step is given its own cell as the one before": M(
            partial(_walk, c_before=lambda c0, cs, t: cs[:, t]), FIRST
        ),
        "each step is given its own state and cell as those before": M(_own_as_before, FIRST),
        "h_0 is taken for zeros": M(
            partial(_walk, h_before=lambda h0, hs, t: hs[:, t - 1] if t else 0 * h0),
            "The first step got h_0, which need not be zero. Which argument is never used?",
        ),
        "c_0 is taken for zeros": M(
            partial(_walk, c_before=lambda c0, cs, t: cs[:, t - 1] if t else 0 * c0),
            "The first step got c_0, which need not be zero. Which argument is never used?",
        ),
        "the first step is given the last state and cell as those before": M(
            _last_before_the_first,
            "Where t is 0, what does the index t - 1 mean to Python?",
        ),
        "the steps are walked from the first to the last": M(
            partial(_walk, order=lambda T: list(range(T))),
            "Which states does a loss depend on: earlier ones, or later ones?",
        ),
        "the weights' gradients are those of the first step only": M(
            partial(_walk, collect=lambda parts: parts[0]),
            "Is there an = where a += should stand? Every step used the weights.",
        ),
        "the weights' gradients are those of the last step only": M(
            partial(_walk, collect=lambda parts: parts[-1]),
            "Every step used the weights; what does each of them add?",
        ),
        "the weights' gradients are averaged over the steps": M(
            partial(_walk, collect=lambda parts: sum(parts) / len(parts)),
            "If the loss is a mean over steps, its 1/T is already in dhs. What does the chain rule ask for?",
        ),
        "the weights' gradients are averaged over the batch": M(
            lambda *a: _walked(a, lambda found, dhs, *_: {name: found[name] / len(dhs) for name in _weights()}), MEAN
        ),
        "the gradient of c_0 is that of c_1 by way of the next step": M(
            partial(_walk, last_c=lambda dcs: dcs[-2]),
            "The first step, too, sends something back to the cell before it. Is that what you return?",
        ),
        "the gradients of h_0 and c_0 change places": M(
            lambda *a: _walked(a, lambda found, *_: {"h0": found["c0"], "c0": found["h0"]}),
            "Which entry of the result is which?",
        ),
        "the inputs' gradients are in reverse order": M(
            lambda *a: _walked(a, lambda found, *_: {"x": found["x"][:, ::-1].copy()}),
            "The walk begins at the last step. In which order do the inputs' gradients lie in yours?",
        ),
        "dhs is changed in place": M(
            _into_dhs,
            "Adding with += writes into the caller's array. Give the sum a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# forget-bias: set_forget_bias(lstm, value) -> lstm


def bias_cases(rng):
    def arguments(kind, D, H, value, layers=1, directions=1):
        weights = {}
        for layer in range(layers):
            fans = {"weight_ih": D if layer == 0 else directions * H, "weight_hh": H, "bias_ih": None, "bias_hh": None}
            ends = [""] if kind == "LSTMCell" else [f"_l{layer}{end}" for end in ("", "_reverse")[:directions]]
            for end in ends:
                weights |= {
                    name + end: torch.as_tensor(rng.normal(size=(4 * H, fan) if fan else 4 * H))
                    for name, fan in fans.items()
                }
        return {"weights": weights, "kind": [kind, D, H, layers, directions], "value": value}

    yield Case("one layer of one unit, D = 1", arguments("LSTM", 1, 1, 1.0))
    yield Case("one layer, D and H different", arguments("LSTM", 2, 5, 1.0))
    yield Case("three layers, D and H different", arguments("LSTM", 2, 3, 3.0, layers=3))
    yield Case("two layers of two directions", arguments("LSTM", 3, 2, -0.5, layers=2, directions=2))
    yield Case("an LSTMCell, D = H", arguments("LSTMCell", 3, 3, 2.0))


def _set(
    lstm,
    value,
    where=lambda H, D: slice(H, 2 * H),
    first=lambda old, value: value,
    second=lambda old, value: 0.0,
    layers=lambda names: names,
):
    """Set what is asked for. Each keyword stands for one decision, right unless another is given."""
    block = where(lstm.hidden_size, lstm.input_size)
    with torch.no_grad():
        for name in layers([name for name, _ in lstm.named_parameters() if "bias_ih" in name]):
            for each, new in ((name, first), (name.replace("_ih", "_hh"), second)):
                bias = getattr(lstm, each)
                bias[block] = new(bias[block], value)
    return lstm


def _set_by_name(lstm, value):
    with torch.no_grad():
        lstm.bias_ih_l0[lstm.hidden_size : 2 * lstm.hidden_size] = value
        lstm.bias_hh_l0[lstm.hidden_size : 2 * lstm.hidden_size] = 0.0
    return lstm


def _others_cleared(lstm, value):
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if "bias" in name:
                parameter.zero_()
    return _set(lstm, value)


def _weights_filled(lstm, value):
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if "weight" in name:
                parameter[lstm.hidden_size : 2 * lstm.hidden_size] = value
    return _set(lstm, value)


BOTH = "PyTorch adds two biases in front of each gate. What does the forget gate get from yours in all?"
SLOTS = "The blocks of a bias stand in the order i, f, g, o, of H entries each. Which is yours?"

FORGET_BIAS = Exercise(
    id="forget-bias",
    points=3,
    reference=rnncore.set_forget_bias_,
    cases=bias_cases,
    probe=lstm_returned,
    measure=summed_biases,
    section="“The forget bias, a lever”",
    forbidden=("rnncore.set_forget_bias_",),
    misconceptions={
        "both biases are set to the value": M(partial(_set, second=lambda old, value: value), BOTH),
        "one of the biases is set, and the other left as it was drawn": M(
            partial(_set, second=lambda old, value: old), BOTH
        ),
        "the second bias is set, and the first left as it was drawn": M(
            partial(
                _set,
                first=lambda old, value: old,
                second=lambda old, value: value,
            ),
            BOTH,
        ),
        "the value is added to what was drawn": M(
            partial(
                _set,
                first=lambda old, value: old + value,
                second=lambda old, value: old,
            ),
            "After your function the sum is to be the value itself.",
        ),
        "the sum is half of the value": M(partial(_set, first=lambda old, value: value / 2), BOTH),
        "the biases are set to zero": M(
            partial(_set, first=lambda old, value: 0.0),
            "Which argument is never used?",
        ),
        "the value is put where the input gate's bias is": M(partial(_set, where=lambda H, D: slice(0, H)), SLOTS),
        "the value is put where the candidate's bias is": M(
            partial(_set, where=lambda H, D: slice(2 * H, 3 * H)), SLOTS
        ),
        "the value is put where the output gate's bias is": M(
            partial(_set, where=lambda H, D: slice(3 * H, 4 * H)), SLOTS
        ),
        "the biases of all gates are set": M(
            partial(_set, where=lambda H, D: slice(0, 4 * H)),
            "Only one gate keeps the cell. An open input gate writes whatever comes.",
        ),
        "the block is counted with the size of the input": M(
            partial(_set, where=lambda H, D: slice(D, 2 * D)),
            "A bias has 4H entries. What has D to do with them?",
        ),
        "only the first entry of the block is set": M(
            partial(_set, where=lambda H, D: slice(H, H + 1)),
            "Each unit has a forget gate. How long is its block?",
        ),
        "both biases of all gates are set to the value": M(
            partial(
                _set,
                where=lambda H, D: slice(0, 4 * H),
                second=lambda old, value: value,
            ),
            "Only one gate keeps the cell, and PyTorch adds two biases in front of it.",
        ),
        "the bias is 1, whatever the value": M(
            partial(_set, first=lambda old, value: 1.0),
            "Which argument is never used?",
        ),
        "everything from the forget gate on is set": M(
            partial(_set, where=lambda H, D: slice(H, 4 * H)),
            "Where does the block of the forget gate end?",
        ),
        "only the first layer is set": M(
            partial(_set, layers=lambda names: [name for name in names if "_l" not in name or "_l0" in name]),
            "How many forget gates has a network of several layers?",
        ),
        "only bias_ih_l0 and bias_hh_l0 are set": M(
            _set_by_name,
            "How many forget gates has a network of several layers? And what does a cell call its biases?",
        ),
        "the direction backwards is left out": M(
            partial(_set, layers=lambda names: [name for name in names if "reverse" not in name]),
            "How many forget gates has a network of two directions?",
        ),
        "the bias is the value after the sigmoid": M(
            partial(_set, first=lambda old, value: _sigma(value)),
            "The bias stands inside the sigmoid, and the sigmoid is applied in each step.",
        ),
        "the biases of the other gates are set to zero": M(
            _others_cleared,
            "What was drawn for the other gates is to stay.",
        ),
        "the forget gate's rows of the weights are filled, too": M(
            _weights_filled,
            "A parameter whose name has no bias in it is no bias.",
        ),
        "nothing that the module holds is changed": M(
            lambda lstm, value: lstm,
            "A copy of a bias, or of its numbers, is no part of the module. What do you assign to?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# cell-flow: cell_flow(dhs, cs, gates) -> (B, T, H)


def flow_cases(rng):
    def arguments(B, T, H, losses=slice(None)):
        drawn = draw.normal(rng, dhs=(B, T, H), cs=(B, T, H), gates=(B, T, 4 * H))
        dhs, gates = np.zeros((B, T, H)), _sigma(drawn["gates"])
        dhs[:, losses] = drawn["dhs"][:, losses]
        gates[:, :, 2 * H : 3 * H] = np.tanh(drawn["gates"][:, :, 2 * H : 3 * H])
        return {"dhs": dhs, "cs": drawn["cs"], "gates": gates}

    gates = np.array([[[0.5, 0.9, -0.2, 1.0], [0.75, 0.6, 0.4, 0.5]]])
    by_hand = {"dhs": np.array([[[1.0], [-2.0]]]), "cs": np.array([[[0.0], [0.5]]]), "gates": gates}
    yield Case("one unit, two steps, numbers to check by hand", by_hand)
    yield Case("one step", arguments(3, 1, 2))
    yield Case("a loss at the last step only", arguments(2, 5, 3, losses=-1))
    yield Case("a loss at the first step only", arguments(2, 4, 3, losses=0))
    yield Case("a loss at every step; B, T and H all different", arguments(3, 6, 4))
    yield Case("a batch of one, T = H", arguments(1, 4, 4))


def _flow(
    dhs,
    cs,
    gates,
    keeps=lambda i, f, g, o, t: f[:, t + 1],
    own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t] * (1 - np.tanh(cs[:, t]) ** 2),
    arrives=lambda own, kept: own + kept,
    reads=lambda gates: np.split(gates, 4, axis=2),
):
    """Return what reaches each cell. Each keyword stands for one decision, right unless another is given."""
    i, f, g, o = reads(gates)
    T = dhs.shape[1]
    found = np.zeros_like(cs)
    for t in range(T)[::-1]:
        kept = found[:, t + 1] * keeps(i, f, g, o, t) if t + 1 < T else np.zeros_like(found[:, t])
        found[:, t] = arrives(own(dhs, cs, i, f, g, o, t), kept)
    return found


def _flow_onwards(dhs, cs, gates):
    """Return what each step sends on to the cell before it."""
    return _flow(dhs, cs, gates) * np.split(gates, 4, axis=2)[1]


def _flow_forwards(dhs, cs, gates):
    """Walk from the first step to the last."""
    return _flow(dhs[:, ::-1], cs[:, ::-1], gates[:, ::-1])[:, ::-1].copy()


def _flow_as_forwards(dhs, cs, gates):
    """Add up as the forward pass does."""
    _, f, _, o = np.split(gates, 4, axis=2)
    found = dhs * o * (1 - np.tanh(cs) ** 2)
    for t in range(1, dhs.shape[1]):
        found[:, t] += found[:, t - 1] * f[:, t]
    return found


def _flow_of_the_last_loss(dhs, cs, gates):
    last = np.zeros_like(dhs)
    last[:, -1] = dhs[:, -1]
    return _flow(last, cs, gates)


def _flow_into_dhs(dhs, cs, gates):
    _, f, _, o = np.split(gates, 4, axis=2)
    dhs *= o * (1 - np.tanh(cs) ** 2)
    for t in range(dhs.shape[1])[:0:-1]:
        dhs[:, t - 1] += dhs[:, t] * f[:, t]
    return dhs


WHICH_F = "c_(t+1) is made from c_t in step t + 1. Which step's gate stands between the two?"
WHICH_GATE = "Which of the four does the old cell meet on its way into the new one?"

FLOW = Exercise(
    id="cell-flow",
    points=4,
    reference=_flow,
    cases=flow_cases,
    probe=call,
    axes="B T H",
    section="“What flows through the cell”",
    forbidden=("rnncore.lstm_step_backward", "rnncore.lstm_backward", BY_AUTOGRAD),
    misconceptions={
        "the forget gate is that of the same step": M(partial(_flow, keeps=lambda i, f, g, o, t: f[:, t]), WHICH_F),
        "the forget gate of the last step is taken everywhere": M(
            partial(_flow, keeps=lambda i, f, g, o, t: f[:, -1]), "Each step has gates of its own."
        ),
        "everything is kept, as without a forget gate": M(
            partial(_flow, keeps=lambda i, f, g, o, t: 1.0),
            "That is the cell of 1997. What does a step of today's multiply its old cell by?",
        ),
        "the input gate stands in place of the forget gate": M(
            partial(_flow, keeps=lambda i, f, g, o, t: i[:, t + 1]), WHICH_GATE
        ),
        "the output gate stands in place of the forget gate": M(
            partial(_flow, keeps=lambda i, f, g, o, t: o[:, t + 1]), WHICH_GATE
        ),
        "the slope of the forget gate is taken and not the gate": M(
            partial(_flow, keeps=lambda i, f, g, o, t: f[:, t + 1] * (1 - f[:, t + 1])),
            "Gates count as constants here. By what does a constant factor multiply a gradient?",
        ),
        "the gates go through the sigmoid once more": M(
            lambda dhs, cs, gates: _flow(dhs, cs, _sigma(gates)),
            "What are the numbers in gates already?",
        ),
        "only what comes by the own state is returned": M(
            partial(_flow, arrives=lambda own, kept: own),
            "A cell acts on its own state and on the next cell. What of the second?",
        ),
        "the own losses of all steps but the last are left out": M(
            _flow_of_the_last_loss,
            "dhs has an entry for each step. When is each of them added?",
        ),
        "the output gate is left out": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * (1 - np.tanh(cs[:, t]) ** 2)),
            "Between a cell and its state stand a gate and a function.",
        ),
        "the slope of tanh is left out": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t]),
            "Between a cell and its state stand a gate and a function.",
        ),
        "gate and slope are both left out": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t]),
            "The loss reads the states. What stands between a cell and its state?",
        ),
        "tanh is missing in the slope": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t] * (1 - cs[:, t] ** 2)),
            "What tanh gave is not in cs. A slope of it is never below 0: is yours?",
        ),
        "tanh is not squared in the slope": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t] * (1 - np.tanh(cs[:, t]))),
            "A slope of tanh is never above 1. Is yours, where the cell is negative?",
        ),
        "tanh of the cell stands in place of its slope": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t] * np.tanh(cs[:, t])),
            "Forwards the function gives a value. What does it multiply by on the way back?",
        ),
        "the slope is taken at the state": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * o[:, t] * (1 - (o * np.tanh(cs))[:, t] ** 2)),
            "1 - h² is the slope where h came out of tanh. What came out of it here?",
        ),
        "the output gate's slope is taken, too": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * (o * (1 - o) * (1 - np.tanh(cs) ** 2))[:, t]),
            "Gates count as constants here. By what does a constant factor multiply a gradient?",
        ),
        "the candidate is taken for the output gate": M(
            partial(_flow, own=lambda dhs, cs, i, f, g, o, t: dhs[:, t] * g[:, t] * (1 - np.tanh(cs[:, t]) ** 2)),
            "The blocks stand in the order i, f, g, o. Which is the last?",
        ),
        "the four gates of each unit are taken to stand side by side": M(
            partial(_flow, reads=lambda gates: np.moveaxis(gates.reshape(*gates.shape[:2], -1, 4), 3, 0)),
            "The first H entries are the input gate, for all units.",
        ),
        "what goes on to the cell before is returned": M(
            _flow_onwards,
            "At place t is to be what has arrived at c_t. Do you store it before the gate, or after it?",
        ),
        "the walk goes from the first step to the last": M(
            _flow_forwards,
            "Which cells does a loss depend on: earlier ones, or later ones?",
        ),
        "the walk goes from the first step to the last, with each step's own forget gate": M(
            _flow_as_forwards,
            "Which cells does a loss depend on: earlier ones, or later ones?",
        ),
        "the steps are in reverse order": M(
            lambda dhs, cs, gates: _flow(dhs, cs, gates)[:, ::-1].copy(),
            "The walk begins at the last step. In which order do the results lie in yours?",
        ),
        "the gradient is summed over the batch": M(
            lambda dhs, cs, gates: _flow(dhs, cs, gates).sum(0),
            "Each sequence has cells of its own.",
        ),
        "dhs is changed in place": M(
            _flow_into_dhs,
            "Writing with *= and += goes into the caller's array. Make a new one.",
        ),
    },
)

EXERCISES = [STEP, SEQUENCE, STEP_BACKWARD, SEQUENCE_BACKWARD, FLOW, FORGET_BIAS, Manual("coupled-gates", 3)]
