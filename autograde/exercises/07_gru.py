"""Chapter 7: a GRU's step and sequence, the step backwards, another convention's weights, a gate held fixed."""

from functools import partial

import numpy as np

import rnncore
from autograde import draw
from autograde.compare import describe
from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import Unusable, call

BY_AUTOGRAD = "torch.autograd"
BY_RNNCORE = ("rnncore.gru_step", "rnncore.gru_forward", "rnncore.GRUCell", "rnncore.GRU")
BY_TORCH = ("torch.nn.GRU", "torch.nn.GRUCell", "torch.gru", "torch.gru_cell")


def gated(rng, D, H, gain=0.9):
    """Draw the weights of a GRU, stacked r, z, n; each gate's recurrent matrix has the largest singular value gain."""
    drawn = [draw.recurrent(rng, D, H, gain) for _ in range(3)]
    W_xh, W_hh, b_xh = (np.concatenate([gate[name] for gate in drawn]) for name in ("W_xh", "W_hh", "b_h"))
    return {"W_xh": W_xh, "W_hh": W_hh, "b_xh": b_xh, "b_hh": rng.normal(size=3 * H)}


# ----------------------------------------------------------------------------------------------------------
# gru-step: gru_step(x, h, W_xh, W_hh, b_xh, b_hh) -> h_next (B, H)


def step_cases(rng):
    def arguments(B, D, H):
        return draw.normal(rng, x=(B, D)) | {"h": np.tanh(rng.normal(size=(B, H)))} | gated(rng, D, H)

    by_hand = {"x": [[1.0]], "h": [[0.5]], "W_xh": [[1.0], [-1.0], [0.5]], "W_hh": [[2.0], [1.0], [1.0]]}
    biases = {"b_xh": np.zeros(3), "b_hh": np.array([0.0, 0.0, 0.5])}
    yield Case("one unit, numbers to check by hand", {k: np.array(v) for k, v in by_hand.items()} | biases)
    drawn = arguments(3, 2, 4)
    yield Case("the input alone: no state, no bias", draw.only(drawn, "x", "W_xh"), term="W_xh x")
    yield Case("the state alone: no input, no bias", draw.only(drawn, "h", "W_hh"), term="the state before")
    yield Case("b_xh alone", draw.only(drawn, "b_xh"), term="b_xh")
    yield Case("b_hh alone", draw.only(drawn, "b_hh"), term="b_hh")
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("B = D = H", arguments(4, 4, 4))
    yield Case("a batch of one", arguments(1, 3, 2))


def _sigma(a):
    return (1 + np.tanh(a / 2)) / 2


def _sums(x, h, W_xh, W_hh, b_xh, b_hh):
    """Return what each gate gets from the input and from the state: [r, z, n], [r, z, n]."""
    from_x, from_h = np.einsum("bd,gd->bg", x, W_xh) + b_xh, np.einsum("bh,gh->bg", h, W_hh) + b_hh
    return np.split(from_x, 3, axis=1), np.split(from_h, 3, axis=1)


def _step(
    x,
    h,
    W_xh,
    W_hh,
    b_xh,
    b_hh,
    order=(0, 1, 2),
    sums=_sums,
    gate=_sigma,
    candidate=np.tanh,
    inside=lambda p: p["x_n"] + p["r"] * p["h_n"],
    mixed=lambda p: p["n"] + p["z"] * (p["h"] - p["n"]),
):
    """Return a GRU's next state. Each keyword stands for one decision, right unless another is given."""
    from_x, from_h = sums(x, h, W_xh, W_hh, b_xh, b_hh)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = ([part[k] for k in order] for part in (from_x, from_h))
    W_hn, b_xn, b_hn = np.split(W_hh, 3)[order[2]], np.split(b_xh, 3)[order[2]], np.split(b_hh, 3)[order[2]]
    p = {"x_n": x_n, "h_n": h_n, "h": h, "r": gate(x_r + h_r), "z": gate(x_z + h_z)}
    p["n"] = candidate(inside(p | {"W_hn": W_hn, "b_xn": b_xn, "b_hn": b_hn}))
    return mixed(p)


def _without_b_xh(x, h, W_xh, W_hh, b_xh, b_hh):
    return _step(x, h, W_xh, W_hh, 0 * b_xh, b_hh)


def _without_b_hh(x, h, W_xh, W_hh, b_xh, b_hh):
    return _step(x, h, W_xh, W_hh, b_xh, 0 * b_hh)


def _without_biases(x, h, W_xh, W_hh, b_xh, b_hh):
    return _step(x, h, W_xh, W_hh, 0 * b_xh, 0 * b_hh)


def _b_hh_in_the_candidate_only(x, h, W_xh, W_hh, b_xh, b_hh):
    H = h.shape[1]
    return _step(x, h, W_xh, W_hh, b_xh, np.where(np.arange(3 * H) < 2 * H, 0.0, b_hh))


def _gates_see(x, h, W_xh, W_hh, b_xh, b_hh, of_x=1.0, of_h=1.0):
    """Return a step whose gates, but not its candidate, leave out the product with the input or with the state."""

    def sums(*a):
        from_x, from_h = _sums(*a)
        less_x, less_h = _sums(of_x * x, of_h * h, W_xh, W_hh, b_xh, b_hh)
        return [*less_x[:2], from_x[2]], [*less_h[:2], from_h[2]]

    return _step(x, h, W_xh, W_hh, b_xh, b_hh, sums=sums)


def _blocks_not_transposed(x, h, W_xh, W_hh, b_xh, b_hh):
    turned = np.concatenate([block.T for block in np.split(W_hh, 3)])
    return _step(x, h, W_xh, turned, b_xh, b_hh)


def _one_reset_for_a_sequence(p):
    return p["x_n"] + p["r"].mean(1, keepdims=True) * p["h_n"]


def _reset_before(p):
    return p["x_n"] + np.einsum("bj,ij->bi", p["r"] * p["h"], p["W_hn"]) + p["b_hn"]


def _into_h(x, h, W_xh, W_hh, b_xh, b_hh):
    found = _step(x, h, W_xh, W_hh, b_xh, b_hh)
    h[...] = found
    return h


Z_SWAPPED = "z and 1 − z are exchanged"
RESET_BEFORE = "the reset gate is applied before the product, W_hn (r ⊙ h)"
B_HN_OUTSIDE = "b_hn stands outside the reset"
WITHOUT_RESET = "the reset gate is left out"
Z_FIRST = "the gates are taken to be stacked z, r, n"

STEP = Exercise(
    id="gru-step",
    points=3,
    reference=_step,
    cases=step_cases,
    probe=call,
    axes="B H",
    result="the new state",
    section="“The whole unit”",
    forbidden=BY_RNNCORE + BY_TORCH,
    misconceptions={
        Z_SWAPPED: M(
            partial(_step, mixed=lambda p: p["z"] * p["n"] + (1 - p["z"]) * p["h"]),
            "Several texts write it so. In this chapter and in PyTorch, what does z = 1 do to the old state?",
        ),
        RESET_BEFORE: M(
            partial(_step, inside=_reset_before),
            "Several texts write it so. In this chapter and in PyTorch, does r meet the state or what W_hn made of it?",
        ),
        B_HN_OUTSIDE: M(
            partial(_step, inside=lambda p: p["x_n"] + p["r"] * (p["h_n"] - p["b_hn"]) + p["b_hn"]),
            "One of the candidate's two biases is multiplied by r. Where does each of them stand in the equation?",
        ),
        "both of the candidate's biases stand inside the reset": M(
            partial(_step, inside=lambda p: p["x_n"] - p["b_xn"] + p["r"] * (p["h_n"] + p["b_xn"])),
            "One of the candidate's two biases is multiplied by r. Where does each of them stand in the equation?",
        ),
        "z and 1 − z are exchanged, and the reset gate is applied before the product": M(
            partial(_step, inside=_reset_before, mixed=lambda p: p["z"] * p["n"] + (1 - p["z"]) * p["h"]),
            "That is the unit of another text. Compare both places with the equations of this chapter.",
        ),
        WITHOUT_RESET: M(
            partial(_step, inside=lambda p: p["x_n"] + p["h_n"]),
            "Of three blocks of weights, is one never used?",
        ),
        "the candidate does not see the state": M(
            partial(_step, inside=lambda p: p["x_n"]),
            "What does the reset gate let into the candidate?",
        ),
        "both gates are left out, as in a plain network": M(
            partial(
                _step,
                inside=lambda p: p["x_n"] + p["h_n"],
                mixed=lambda p: p["n"],
            ),
            "Of three blocks of weights, how many do you use?",
        ),
        "the reset gate multiplies the input's part, too": M(
            partial(_step, inside=lambda p: p["r"] * (p["x_n"] + p["h_n"])),
            "What is the reset to make the candidate forget: the past, or the input too?",
        ),
        "the reset gate multiplies the input's part in place of the state's": M(
            partial(_step, inside=lambda p: p["r"] * p["x_n"] + p["h_n"]),
            "What is the reset to make the candidate forget: the past, or the input?",
        ),
        "the reset gate works the other way round, as 1 − r": M(
            partial(_step, inside=lambda p: p["x_n"] + (1 - p["r"]) * p["h_n"]),
            "With r = 1, how much of the state's part does the candidate get?",
        ),
        "the reset gate is applied after the candidate's tanh": M(
            partial(
                _step,
                inside=lambda p: p["x_n"] + p["h_n"],
                mixed=lambda p: (1 - p["z"]) * p["r"] * p["n"] + p["z"] * p["h"],
            ),
            "The reset chooses what the candidate is made of. Does it stand inside tanh or around it?",
        ),
        "the update gate is used as the reset gate": M(
            partial(_step, inside=lambda p: p["x_n"] + p["z"] * p["h_n"]),
            "There are two gates, each with weights of its own. Which one stands inside the candidate?",
        ),
        "the reset gate is used as the update gate": M(
            partial(_step, mixed=lambda p: (1 - p["r"]) * p["n"] + p["r"] * p["h"]),
            "There are two gates, each with weights of its own. Which one mixes the old state with the candidate?",
        ),
        "one reset, the mean over the units, serves all units of a sequence": M(
            partial(_step, inside=_one_reset_for_a_sequence),
            "Each unit has a reset of its own. Over which axis do you average or sum?",
        ),
        Z_FIRST: M(
            partial(_step, order=(1, 0, 2)),
            "Keras stacks them so. Which block comes first in PyTorch's order?",
        ),
        "the gates are taken to be stacked r, n, z": M(
            partial(_step, order=(0, 2, 1)),
            "Which block comes last in PyTorch's order?",
        ),
        "the gates are taken to be stacked n, z, r": M(
            partial(_step, order=(2, 1, 0)),
            "Which block comes first in PyTorch's order, and which last?",
        ),
        "the candidate goes through the sigmoid": M(
            partial(_step, candidate=_sigma),
            "A gate lies between 0 and 1. Between which numbers should a candidate lie?",
        ),
        "the candidate has no tanh": M(
            partial(_step, candidate=lambda a: a),
            "Nothing holds your candidate between −1 and 1. What does in the equation?",
        ),
        "the gates go through tanh": M(
            partial(_step, gate=lambda a: np.tanh(a)),  # noqa: PLW0108
            "A gate says which part of something passes. Can a part be negative?",
        ),
        "the sigmoid falls where it should rise, in both gates": M(
            partial(_step, gate=lambda a: _sigma(-a)),
            "Try a large positive number: is your sigmoid of it near 1 or near 0?",
        ),
        "the new state goes through tanh once more": M(
            partial(_step, mixed=lambda p: np.tanh((1 - p["z"]) * p["n"] + p["z"] * p["h"])),
            "The mixture is the new state as it is. Where does tanh stand in the equations, and how often?",
        ),
        "the new state is the candidate, and z is never used": M(
            partial(_step, mixed=lambda p: p["n"]),
            "What does the update gate mix?",
        ),
        "the old state is not carried over": M(
            partial(_step, mixed=lambda p: (1 - p["z"]) * p["n"]),
            "The new state is a mixture of two. Which of the two is missing?",
        ),
        "the candidate is added whole": M(
            partial(_step, mixed=lambda p: p["n"] + p["z"] * p["h"]),
            "In a mixture the two parts add up to 1. What is n multiplied by?",
        ),
        "the old state is added whole": M(
            partial(_step, mixed=lambda p: (1 - p["z"]) * p["n"] + p["h"]),
            "In a mixture the two parts add up to 1. What is h multiplied by?",
        ),
        "b_xh is left out": M(_without_b_xh, "There are two vectors of biases. Which argument is never used?"),
        "b_hh is left out": M(_without_b_hh, "There are two vectors of biases. Which argument is never used?"),
        "all biases are left out": M(_without_biases, "Which arguments are never used?"),
        "b_hh is used in the candidate only": M(
            _b_hh_in_the_candidate_only,
            "For the two gates a single bias would do; but two are given. What is their bias?",
        ),
        "the gates do not see the input": M(
            partial(_gates_see, of_x=0.0),
            "What does a gate decide by? Look at the equation of r: how many products are there?",
        ),
        "the gates do not see the state": M(
            partial(_gates_see, of_h=0.0),
            "What does a gate decide by? Look at the equation of r: how many products are there?",
        ),
        "the blocks of W_hh are not transposed": M(
            _blocks_not_transposed,
            "The equations multiply a column, the arrays hold rows. What does a row multiply?",
        ),
        "h is changed in place": M(
            _into_h,
            "Whoever called may need the old state. Give the new one a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# gru-sequence: gru_sequence(x, h0, W_xh, W_hh, b_xh, b_hh) -> hs (B, T, H)


def sequence_cases(rng):
    def arguments(B, T, D, H):
        return draw.normal(rng, x=(B, T, D)) | {"h0": np.tanh(rng.normal(size=(B, H)))} | gated(rng, D, H)

    weights = {"W_xh": [[1.0], [-1.0], [0.5]], "W_hh": [[2.0], [1.0], [1.0]], "b_xh": [0.0] * 3, "b_hh": [0, 0, 0.5]}
    by_hand = {"x": [[[1.0], [-2.0]]], "h0": [[0.5]]} | weights
    yield Case("one unit, two steps, numbers to check by hand", {name: np.array(a) for name, a in by_hand.items()})
    yield Case("one step", arguments(3, 1, 2, 4))
    silent = arguments(2, 4, 3, 2)
    yield Case("no input: the state alone", draw.only(silent, "h0", "W_hh", "b_hh"))
    yield Case("B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("B = T = D = H", arguments(3, 3, 3, 3))
    yield Case("a batch of one, six steps", arguments(1, 6, 2, 3))


def _walk(
    x,
    h0,
    *weights,
    step=_step,
    first=lambda h0: h0,
    carry=lambda h, new: new,
    order=lambda steps: steps,
    keep=lambda h, new: new,
    stacked=lambda found: np.stack(found, axis=1),
):
    """Return a GRU's states. Each keyword stands for one decision, right unless another is given."""
    h, found = first(h0), []
    for t in order(range(x.shape[1])):
        new = step(x[:, t], h, *weights)
        found.append(keep(h, new))
        h = carry(h, new)
    return stacked(found)


def _same_array(x, h0, *weights):
    h, found = h0.copy(), []
    for x_t in np.swapaxes(x, 0, 1):
        h[...] = _step(x_t, h, *weights)
        found.append(h)
    return np.stack(found, 1)


def _gates_of_the_first_state(x, h0, *weights):
    """Compute what the state gives to the gates and to the candidate once, from h_0, and use it at every step."""
    return _walk(x, h0, *weights, step=lambda x, h, *w: _step(x, h, *w, sums=lambda x, h, *w: _sums(x, h0, *w)))


def _candidates(x, h0, *weights):
    found, h = [], h0
    for x_t in np.swapaxes(x, 0, 1):
        found.append(_step(x_t, h, *weights, mixed=lambda p: p["n"]))
        h = _step(x_t, h, *weights)
    return np.stack(found, 1)


def _input_of_the_first_step(x, h0, *weights):
    return _walk(np.repeat(x[:, :1], x.shape[1], axis=1), h0, *weights)


def _b_xh_twice(x, h0, W_xh, W_hh, b_xh, b_hh):
    return _walk(x, h0, W_xh, W_hh, 2 * b_xh, b_hh)


def _into_h0(x, h0, *weights):
    found = _walk(x, h0, *weights)
    h0[...] = found[:, -1]
    return found


SEQUENCE = Exercise(
    id="gru-sequence",
    points=3,
    reference=_walk,
    cases=sequence_cases,
    probe=call,
    axes="B T H",
    result="the sequence of states",
    section="“The whole unit”",
    forbidden=("rnncore.gru_forward", "rnncore.GRUCell", "rnncore.GRU", *BY_TORCH),
    provided=("gru_step",),
    misconceptions={
        "every step begins from h_0": M(
            partial(_walk, carry=lambda h, new: h),
            "Which state does step 2 begin from? Is the name for the state given its new value inside the loop?",
        ),
        "h_0 is taken for zeros": M(
            partial(_walk, first=lambda h0: 0 * h0),
            "The first step begins from h_0, which need not be zero. Which argument is never used?",
        ),
        "h_0 is among the states, and the last one is missing": M(
            partial(_walk, keep=lambda h, new: h),
            "hs begins with h_1. Do you keep the state before the step, or after it?",
        ),
        "h_0 is among the states": M(
            lambda x, h0, *w: np.concatenate([h0[:, None], _walk(x, h0, *w)], 1),
            "hs holds h_1 to h_T. How many are that?",
        ),
        "the sequence is read backwards": M(
            partial(_walk, order=lambda steps: steps[::-1]),
            "Which input does the first step read?",
        ),
        "the states are in reverse order": M(
            partial(_walk, stacked=lambda found: np.stack(found[::-1], axis=1)),
            "At place t is to be the state after step t.",
        ),
        "the sequence is read backwards, and its states are put in the inputs' order": M(
            lambda x, h0, *w: _walk(x[:, ::-1], h0, *w)[:, ::-1].copy(),
            "That is a network that reads from the end. Which input does the first step read?",
        ),
        "only the last state is returned": M(
            partial(_walk, stacked=lambda found: found[-1]),
            "Asked for are the states of all steps.",
        ),
        "time comes before the batch": M(
            partial(_walk, stacked=lambda found: np.stack(found)),  # noqa: PLW0108
            "The numbers are right; the axes are to be B, T, H.",
        ),
        "time is brought behind the batch by a reshape": M(
            partial(_walk, stacked=lambda found: np.reshape(found, (len(found[0]), len(found), -1))),
            "Reshaping keeps the numbers in the order of memory. Which axis was first, and which is to be first?",
        ),
        "one array is filled anew at every step, and kept T times": M(
            _same_array,
            "All entries of the list are the same array. What does each step write into?",
        ),
        "the candidates are returned and not the states": M(
            _candidates,
            "What goes on to the next step is right. What do you keep of each?",
        ),
        "the candidate is carried on as the state": M(
            partial(_walk, step=lambda *a: _step(*a, mixed=lambda p: p["n"])),
            "The next step begins from the mixture, not from the candidate.",
        ),
        "what the recurrent weights make of h_0 is used at every step": M(
            _gates_of_the_first_state,
            "The products with x can be made before the loop. Can those with the state?",
        ),
        "every step reads the first input": M(
            _input_of_the_first_step,
            "Which index has your input inside the loop?",
        ),
        "b_xh is added twice": M(
            _b_xh_twice,
            "Where the products are made before the loop, where is their bias added, and is it once more inside?",
        ),
        "h_0 is changed in place": M(
            _into_h0,
            "Assigning into a slice or with += writes into the caller's array. Give each state a new one.",
        ),
        **{
            f"in every step {name}": STEP.misconceptions[name].in_every_step(_walk)
            for name in (Z_SWAPPED, RESET_BEFORE, B_HN_OUTSIDE, WITHOUT_RESET, Z_FIRST)
        },
    },
)

# ----------------------------------------------------------------------------------------------------------
# gru-step-backward: gru_step_backward(dh, x, h, W_xh, W_hh, b_xh, b_hh) -> {"x", "h", "W_xh", "W_hh", "b_xh", "b_hh"}


def backward_cases(rng):
    def arguments(B, D, H):
        drawn = draw.normal(rng, dh=(B, H), x=(B, D)) | {"h": np.tanh(rng.normal(size=(B, H)))}
        return drawn | gated(rng, D, H)

    weights = {"W_xh": [[1.0], [-1.0], [0.5]], "W_hh": [[2.0], [1.0], [1.0]], "b_xh": [0.0] * 3, "b_hh": [0, 0, 0.5]}
    by_hand = {"dh": [[2.0]], "x": [[1.0]], "h": [[0.5]]} | weights
    yield Case("one unit, numbers to check by hand", {name: np.array(a, dtype=float) for name, a in by_hand.items()})
    drawn = arguments(3, 2, 4)
    yield Case("the state before is zero", drawn | {"h": np.zeros((3, 4))})
    shut = np.concatenate([np.zeros(4), np.full(4, 40.0), np.zeros(4)])
    only_copied = drawn | {"b_xh": shut, "b_hh": np.zeros(12)}
    yield Case("the update gate at 1: the state is copied", only_copied)
    yield Case("the update gate at 0: the state is the candidate", only_copied | {"b_xh": -shut})
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("B = D = H", arguments(3, 3, 3))
    yield Case("a batch of one", arguments(1, 2, 4))


def _joined(da_r, da_z, da_n):
    return np.concatenate([da_r, da_z, da_n], axis=1)


def _back(
    dh,
    x,
    h,
    W_xh,
    W_hh,
    b_xh,
    b_hh,
    to_n=lambda g: g["dh"] * (1 - g["z"]) * (1 - g["n"] ** 2),
    to_r=lambda g: g["da_n"] * g["h_n"] * g["r"] * (1 - g["r"]),
    to_z=lambda g: g["dh"] * (g["h"] - g["n"]) * g["z"] * (1 - g["z"]),
    recurrent=lambda g: g["r"] * g["da_n"],
    from_x=lambda g: _joined(g["da_r"], g["da_z"], g["da_n"]),
    copied=lambda g: g["dh"] * g["z"],
    into_h=lambda g: g["da_h"],
    of_W_hh=lambda g: np.einsum("bi,bj->ij", g["da_h"], g["h"]),
    of_b_hh=lambda g: g["da_h"].sum(0),
    of_x=lambda g: np.einsum("bi,ij->bj", g["da_x"], g["W_xh"]),
):
    """Return the gradients of a GRU's step. Each keyword stands for one decision, right unless another is given."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = _sums(x, h, W_xh, W_hh, b_xh, b_hh)
    g = {"dh": dh, "x": x, "h": h, "W_xh": W_xh, "W_hh": W_hh, "b_hh": b_hh, "h_n": h_n}
    g |= {"r": _sigma(x_r + h_r), "z": _sigma(x_z + h_z)}
    g["n"] = np.tanh(x_n + g["r"] * h_n)
    g["da_n"], g["da_z"] = to_n(g), to_z(g)
    g["da_r"] = to_r(g)
    g["da_x"], g["da_h"] = from_x(g), _joined(g["da_r"], g["da_z"], recurrent(g))
    return {
        "x": of_x(g),
        "h": copied(g) + np.einsum("bi,ij->bj", into_h(g), W_hh),
        "W_xh": np.einsum("bi,bj->ij", g["da_x"], x),
        "W_hh": of_W_hh(g),
        "b_xh": g["da_x"].sum(0),
        "b_hh": of_b_hh(g),
    }


def _weights():
    return "W_xh", "W_hh", "b_xh", "b_hh"


def _each(arguments, change, *names):
    found = _back(*arguments)
    return found | {name: change(found[name]) for name in names}


def _first_two(a):
    """Return a copy with the last third of the columns, the candidate's, at zero."""
    H = a.shape[1] // 3
    return np.where(np.arange(3 * H) < 2 * H, a, 0.0)


def _last_alone(a):
    return a - _first_two(a)


def _without_block(a, k):
    """Return a copy with block k of three at zero."""
    H = a.shape[1] // 3
    return np.where(np.arange(3 * H) // H == k, 0.0, a)


def _reset_not_crossed(*a):
    """Take the candidate's gradient for both sides: r is missing in all that belongs to the state."""
    return _back(*a, recurrent=lambda g: g["da_n"])


def _reset_crossed_twice(*a):
    return _back(*a, from_x=lambda g: _joined(g["da_r"], g["da_z"], g["r"] * g["da_n"]))


def _r_and_z_exchanged(W):
    return np.concatenate([np.split(W, 3)[k] for k in (1, 0, 2)])


def _stacked_z_first(*a):
    return _each(a, _r_and_z_exchanged, *_weights())


def _taken_z_first(dh, x, h, *weights):
    return _stacked_z_first(dh, x, h, *map(_r_and_z_exchanged, weights))


def _blocks_transposed(g):
    turned = np.concatenate([block.T for block in np.split(g["W_hh"], 3)])
    return np.einsum("bi,ij->bj", g["da_h"], turned)


def _through_transposed(*a):
    return _back(
        *a,
        copied=lambda g: g["dh"] * g["z"] + _blocks_transposed(g),
        into_h=lambda g: 0 * g["da_h"],
    )


def _both_without_slope(*a):
    return _back(
        *a,
        to_r=lambda g: g["da_n"] * g["h_n"],
        to_z=lambda g: g["dh"] * (g["h"] - g["n"]),
    )


def _both_with_the_slope_of_tanh(*a):
    return _back(
        *a,
        to_r=lambda g: g["da_n"] * g["h_n"] * (1 - g["r"] ** 2),
        to_z=lambda g: g["dh"] * (g["h"] - g["n"]) * (1 - g["z"] ** 2),
    )


def _new_state(g):
    return g["n"] + g["z"] * (g["h"] - g["n"])


def _slope_at_the_new_state(g):
    return g["dh"] * (1 - g["z"]) * (1 - _new_state(g) ** 2)


def _reset_of_the_bare_product(g):
    H = g["h"].shape[1]
    return g["da_n"] * (g["h_n"] - g["b_hh"][2 * H :]) * g["r"] * (1 - g["r"])


def _into_dh(dh, *a):
    found = _back(dh, *a)
    dh *= 0.5
    return found


ONE_OF_FOUR = "The old state reaches the new one in four ways: as a copy, and through each of the three sums. "

BACKWARD = Exercise(
    id="gru-step-backward",
    points=5,
    reference=rnncore.gru_step_backward,
    cases=backward_cases,
    probe=call,
    axes={"x": "B D", "h": "B H", "W_xh": "3H D", "W_hh": "3H H", "b_xh": "3H", "b_hh": "3H"},
    section="“Backwards through the gates”",
    forbidden=(
        "rnncore.gru_step_backward",
        "rnncore.gru_backward",
        "rnncore.GRUCell",
        "rnncore.GRU",
        BY_AUTOGRAD,
        "torch.func",
    ),
    misconceptions={
        "the copy is left out in the gradient of h": M(
            partial(_back, copied=lambda g: 0 * g["dh"]),
            ONE_OF_FOUR + "Which of them has no matrix in it?",
        ),
        "the copy is not multiplied by z in the gradient of h": M(
            partial(_back, copied=lambda g: g["dh"]),
            ONE_OF_FOUR + "Which part of the old state is copied?",
        ),
        "the copy is multiplied by 1 − z in the gradient of h": M(
            partial(_back, copied=lambda g: g["dh"] * (1 - g["z"])),
            ONE_OF_FOUR + "With z = 1 the state is copied whole. What arrives then?",
        ),
        "the candidate's gradient is multiplied by z and not by 1 − z": M(
            partial(_back, to_n=lambda g: g["dh"] * g["z"] * (1 - g["n"] ** 2)),
            "What is n multiplied by in the mixture?",
        ),
        "the candidate's gradient lacks the factor 1 − z": M(
            partial(_back, to_n=lambda g: g["dh"] * (1 - g["n"] ** 2)),
            "What is n multiplied by in the mixture?",
        ),
        "the candidate's slope of tanh is missing": M(
            partial(_back, to_n=lambda g: g["dh"] * (1 - g["z"])),
            "Between the candidate and its sum stands tanh.",
        ),
        "the candidate's slope of tanh is taken at the new state": M(
            partial(_back, to_n=_slope_at_the_new_state),
            "Here the new state is a mixture. Which quantity did tanh give?",
        ),
        "the candidate's slope is the sigmoid's": M(
            partial(_back, to_n=lambda g: g["dh"] * (1 - g["z"]) * g["n"] * (1 - g["n"])),
            "s(1 − s) is the slope of the sigmoid. Which function made the candidate?",
        ),
        "the slopes of the sigmoid are missing in both gates": M(
            _both_without_slope,
            "Between a gate and its sum stands the sigmoid.",
        ),
        "the slope of the sigmoid is missing in r": M(
            partial(_back, to_r=lambda g: g["da_n"] * g["h_n"]),
            "Between a gate and its sum stands the sigmoid.",
        ),
        "the slope of the sigmoid is missing in z": M(
            partial(_back, to_z=lambda g: g["dh"] * (g["h"] - g["n"])),
            "Between a gate and its sum stands the sigmoid.",
        ),
        "both gates have the slope of tanh": M(
            _both_with_the_slope_of_tanh,
            "1 − s² is the slope of tanh. Which function made the gates?",
        ),
        "the gradient of z has the wrong sign": M(
            partial(_back, to_z=lambda g: g["dh"] * (g["n"] - g["h"]) * g["z"] * (1 - g["z"])),
            "When z grows, towards which of the two does the mixture move?",
        ),
        "the gradient of z knows the old state only": M(
            partial(_back, to_z=lambda g: g["dh"] * g["h"] * g["z"] * (1 - g["z"])),
            "z stands in the mixture twice.",
        ),
        "the gradient of z knows the candidate only": M(
            partial(_back, to_z=lambda g: -g["dh"] * g["n"] * g["z"] * (1 - g["z"])),
            "z stands in the mixture twice.",
        ),
        "the gradient of r is left at zero": M(
            partial(_back, to_r=lambda g: 0 * g["dh"]),
            "r acts on the loss through the candidate alone. What does it multiply there?",
        ),
        "the gradient of r is made with h and not with W_hn h + b_hn": M(
            partial(_back, to_r=lambda g: g["da_n"] * g["h"] * g["r"] * (1 - g["r"])),
            "What does r multiply in the candidate's sum?",
        ),
        "the gradient of r is made without b_hn": M(
            partial(_back, to_r=_reset_of_the_bare_product),
            "What does r multiply in the candidate's sum? There are two terms.",
        ),
        "r itself is multiplied into the gradient of r once too often": M(
            partial(_back, to_r=lambda g: g["r"] * g["da_n"] * g["h_n"] * g["r"] * (1 - g["r"])),
            "In a product of two, what is the derivative by the first of them?",
        ),
        "the gradient of r begins at dh and skips the candidate": M(
            partial(_back, to_r=lambda g: g["dh"] * g["h_n"] * g["r"] * (1 - g["r"])),
            "r acts on the loss through the candidate alone: what has arrived at the candidate's sum?",
        ),
        "r is missing on the way from the candidate to the state's part": M(
            _reset_not_crossed,
            "Forwards, r multiplies what the state gives to the candidate. And on the way back?",
        ),
        "r is missing in the gradient of h": M(
            partial(_back, into_h=lambda g: g["da_x"]),
            "Forwards, r multiplies what the state gives to the candidate. And on the way back to h?",
        ),
        "r is missing in the gradient of W_hh": M(
            partial(_back, of_W_hh=lambda g: np.einsum("bi,bj->ij", g["da_x"], g["h"])),
            "Forwards, r multiplies the product with W_hn. And on the way back to W_hn?",
        ),
        "the gradient of b_hh is that of b_xh": M(
            partial(_back, of_b_hh=lambda g: g["da_x"].sum(0)),
            "For two of the blocks that is right. Where does the third one's bias stand?",
        ),
        "r is also multiplied in on the way from the candidate to the input": M(
            _reset_crossed_twice,
            "Does r multiply what the input gives to the candidate?",
        ),
        "what comes through the gates is left out in the gradient of h": M(
            partial(_back, into_h=lambda g: _last_alone(g["da_h"])),
            ONE_OF_FOUR + "Which of the sums do you go back through?",
        ),
        "what comes through the candidate is left out in the gradient of h": M(
            partial(_back, into_h=lambda g: _first_two(g["da_h"])),
            ONE_OF_FOUR + "Which of the sums do you go back through?",
        ),
        "what comes through r is left out in the gradient of h": M(
            partial(_back, into_h=lambda g: _without_block(g["da_h"], 0)),
            ONE_OF_FOUR + "Which of the sums do you go back through?",
        ),
        "what comes through z is left out in the gradient of h": M(
            partial(_back, into_h=lambda g: _without_block(g["da_h"], 1)),
            ONE_OF_FOUR + "Which of the sums do you go back through?",
        ),
        "what comes through the gates is left out in the gradient of x": M(
            partial(_back, of_x=lambda g: np.einsum("bi,ij->bj", _last_alone(g["da_x"]), g["W_xh"])),
            "The input stands in all three sums.",
        ),
        "the blocks of W_hh are transposed in the gradient of h": M(
            _through_transposed,
            "Forwards, the rows were multiplied by the transpose. What does a row multiply on the way back?",
        ),
        "the gradient of W_hh is made with the new state": M(
            partial(_back, of_W_hh=lambda g: np.einsum("bi,bj->ij", g["da_h"], _new_state(g))),
            "What did W_hh multiply in this step?",
        ),
        "the weights' gradients are stacked z, r, n": M(
            _stacked_z_first,
            "Which block comes first in PyTorch's order?",
        ),
        Z_FIRST: M(
            _taken_z_first,
            "Which block comes first in PyTorch's order?",
        ),
        "the weights' gradients are averaged over the batch": M(
            lambda *a: _each(a, lambda g: g / len(a[0]), *_weights()),
            "If the loss is a mean, its 1/B is already in dh. What does the chain rule ask for, where paths join?",
        ),
        "the biases' gradients are averaged over the batch": M(
            lambda *a: _each(a, lambda g: g / len(a[0]), "b_xh", "b_hh"),
            "If the loss is a mean, its 1/B is already in dh. What does the chain rule ask for, where paths join?",
        ),
        "dh is changed in place": M(
            _into_dh,
            "Assigning with *= writes into the caller's array. Give the product a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# Two exercises return weights. They are judged by what a GRU does with them, so that it does not matter how a gate's
# bias is divided between b_xh and b_hh.


def _states(weights, D, H):
    """Return the states of a GRU of these weights over two steps of inputs that are always the same."""
    shapes = {"W_xh": (3 * H, D), "W_hh": (3 * H, H), "b_xh": (3 * H,), "b_hh": (3 * H,)}
    if not isinstance(weights, dict) or set(weights) != set(shapes):
        came = f"a dictionary with {', '.join(map(str, weights))}" if isinstance(weights, dict) else describe(weights)
        raise Unusable(f"The function returns {came}; expected a dictionary with {', '.join(shapes)}")
    for name, shape in shapes.items():
        a = weights[name]
        if not (type(a) is np.ndarray and a.shape == shape and a.dtype == np.float64):
            raise Unusable(f"{name} is {describe(a)}; expected a NumPy array of shape {shape}, float64")
    rng = np.random.default_rng(7)
    x, h0 = rng.normal(size=(3, 2, D)), rng.uniform(-1, 1, (3, H))
    return rnncore.gru_forward(x, h0, *(np.clip(weights[name], -1e3, 1e3) for name in shapes))


# ----------------------------------------------------------------------------------------------------------
# chung-weights: to_pytorch(W_x, W_h, b_x, b_h) -> {"W_xh", "W_hh", "b_xh", "b_hh"}


def chung_cases(rng):
    def arguments(D, H):
        drawn = gated(rng, D, H)
        return {
            "W_x": drawn["W_xh"].T.copy(),
            "W_h": drawn["W_hh"].T.copy(),
            "b_x": drawn["b_xh"],
            "b_h": drawn["b_hh"],
        }

    one = {"W_x": [[1.0, 2.0, 3.0]], "W_h": [[-1.0, 0.5, 1.0]], "b_x": [0.5, 0.0, -0.5], "b_h": [1.0, -1.0, 0.5]}
    yield Case("one unit, numbers to check by hand", {name: np.array(a) for name, a in one.items()})
    drawn = arguments(2, 4)
    yield Case("W_x alone", draw.only(drawn, "W_x"))
    yield Case("W_h alone", draw.only(drawn, "W_h"))
    yield Case("biases alone", draw.only(drawn, "b_x", "b_h"))
    yield Case("D and H different", arguments(3, 5))
    yield Case("D = H", arguments(4, 4))


def _ours(
    W_x,
    W_h,
    b_x,
    b_h,
    order=(1, 0, 2),
    turned=lambda W: W.T,
    signs=(1, -1, 1),
    signed=("W_xh", "W_hh", "b_xh", "b_hh"),
    by=lambda a, sign: a * sign,
):
    """Return a weight set in PyTorch's order. Each keyword stands for one decision, right unless another is given."""
    theirs, found = {"W_xh": turned(W_x), "W_hh": turned(W_h), "b_xh": b_x, "b_hh": b_h}, {}
    for name, a in theirs.items():
        blocks = [np.split(a, 3)[k] for k in order]
        change = [by(block, sign) for block, sign in zip(blocks, signs, strict=True)]
        found[name] = np.concatenate(change if name in signed else blocks)
    return found


def _converted(came, arguments):
    return _states(came, arguments["W_x"].shape[0], arguments["W_h"].shape[0])


def _into_W_x(W_x, W_h, b_x, b_h):
    found = _ours(W_x, W_h, b_x, b_h)
    W_x[:, : W_h.shape[0]] *= -1
    return found


def _b_h_joined(W_x, W_h, b_x, b_h):
    return _ours(W_x, W_h, b_x + b_h, 0 * b_h)


def _read_by_rows(W_x, W_h, b_x, b_h):
    """Fill the transposed shape with the numbers as they lie in memory."""
    return _ours(W_x, W_h, b_x, b_h, turned=lambda W: W.reshape(W.shape[::-1]))


def _bit_by_bit(W_x, W_h, b_x, b_h):
    """Transpose each block of W_h once too often."""
    H = len(W_h)
    return _ours(W_x, np.concatenate([W_h[:, k : k + H].T for k in (0, H, 2 * H)], axis=1), b_x, b_h)


NEGATED = "What must happen to a sum a so that σ of it becomes 1 − σ(a)? "

CHUNG = Exercise(
    id="chung-weights",
    points=3,
    reference=_ours,
    cases=chung_cases,
    forbidden=("rnnconvert",),
    probe=call,
    measure=_converted,
    axes="B T H",
    result="the network's states",
    section="“Which way z turns, and where r stands”",
    misconceptions={
        "the blocks are brought into order and z still turns the other way": M(
            partial(_ours, signs=(1, 1, 1)),
            NEGATED + "With z = 1, which of the two programs keeps the old state?",
        ),
        "z is turned and the blocks keep their order": M(
            partial(_ours, order=(0, 1, 2), signs=(-1, 1, 1)),
            "Which block comes first in each of the two programs?",
        ),
        "the arrays are transposed, and nothing else": M(
            partial(_ours, order=(0, 1, 2), signs=(1, 1, 1)),
            "Three things differ: the layout, the order of the blocks, and the direction of z.",
        ),
        "the blocks keep their order and the second one is turned": M(
            partial(_ours, order=(0, 1, 2)),
            "Which block comes first in each of the two programs, and which one is z?",
        ),
        "the first block is turned after the blocks are brought into order": M(
            partial(_ours, signs=(-1, 1, 1)),
            "When the blocks stand in PyTorch's order, which one is z?",
        ),
        "r and z are both turned": M(
            partial(_ours, signs=(-1, -1, 1)),
            "The reset means the same in both programs.",
        ),
        "z and the candidate are both turned": M(
            partial(_ours, signs=(1, -1, -1)),
            "The candidate means the same in both programs.",
        ),
        "everything is turned": M(
            partial(_ours, signs=(-1, -1, -1)),
            "Only one of the three has another meaning in the two programs.",
        ),
        "1 − W is taken for −W": M(
            partial(_ours, by=lambda a, sign: a if sign > 0 else 1 - a),
            NEGATED + "That is about a sum. What does it mean for each weight in it?",
        ),
        "1 / W is taken for −W": M(
            partial(_ours, by=lambda a, sign: a if sign > 0 else 1 / np.where(a == 0, 1.0, a)),
            NEGATED + "That is about a sum. What does it mean for each weight in it?",
        ),
        "the biases are not turned": M(
            partial(_ours, signed=("W_xh", "W_hh")),
            NEGATED + "What belongs to the sum?",
        ),
        "the matrices are not turned": M(
            partial(_ours, signed=("b_xh", "b_hh")),
            NEGATED + "What belongs to the sum?",
        ),
        "b_h is not turned": M(
            partial(_ours, signed=("W_xh", "W_hh", "b_xh")),
            NEGATED + "How many terms has the sum?",
        ),
        "b_x is not turned": M(
            partial(_ours, signed=("W_xh", "W_hh", "b_hh")),
            NEGATED + "How many terms has the sum?",
        ),
        "W_h is not turned": M(
            partial(_ours, signed=("W_xh", "b_xh", "b_hh")),
            NEGATED + "How many terms has the sum?",
        ),
        "W_x is not turned": M(
            partial(_ours, signed=("W_hh", "b_xh", "b_hh")),
            NEGATED + "How many terms has the sum?",
        ),
        "the biases are handed on as they came": M(
            lambda W_x, W_h, b_x, b_h: _ours(W_x, W_h, b_x, b_h) | {"b_xh": b_x, "b_hh": b_h},
            "A bias has three blocks, too. In which order do they come, and in which are they to stand?",
        ),
        "z's weights are set to zero": M(
            partial(_ours, signs=(1, 0, 1)),
            "Then z is ½ whatever comes in. " + NEGATED,
        ),
        "the matrices are reshaped and not transposed": M(
            _read_by_rows,
            "Reshaping keeps the numbers in the order of memory. Where does entry i, j belong?",
        ),
        "each block of W_h is transposed once too often": M(
            _bit_by_bit,
            "The shape is right either way, since a block of W_h is square. How often is each block transposed?",
        ),
        "the blocks are put in the order r, n, z": M(
            partial(_ours, order=(1, 2, 0), signs=(1, 1, -1)),
            "Which block comes last in PyTorch's order?",
        ),
        "the two biases are exchanged": M(
            lambda W_x, W_h, b_x, b_h: _ours(W_x, W_h, b_h, b_x),
            "For r and z the sum counts. And for the candidate?",
        ),
        "both biases are added up into b_xh": M(
            _b_h_joined,
            "For r and z the sum counts. And for the candidate?",
        ),
        "b_h is left out": M(
            lambda W_x, W_h, b_x, b_h: _ours(W_x, W_h, b_x, 0 * b_h),
            "Which argument is never used?",
        ),
        "W_x is changed in place": M(
            _into_W_x,
            "Assigning with *= writes into the caller's array. Make new ones.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# fix-gate: fix_gate(W_xh, W_hh, b_xh, b_hh, gate, value) -> {"W_xh", "W_hh", "b_xh", "b_hh"}


def gate_cases(rng):
    def arguments(D, H, gate, value):
        return gated(rng, D, H) | {"gate": gate, "value": value}

    one = {
        "W_xh": [[1.0], [2.0], [3.0]],
        "W_hh": [[-1.0], [0.5], [1.0]],
        "b_xh": [0.5, 0.2, -0.5],
        "b_hh": [1, -1, 0.5],
    }
    by_hand = {name: np.array(a, dtype=float) for name, a in one.items()}
    yield Case("one unit, z held at 0.9", by_hand | {"gate": "z", "value": 0.9})
    yield Case("r held at 1: no reset", arguments(3, 4, "r", 1.0))
    yield Case("z held at 0: no update gate", arguments(2, 4, "z", 0.0))
    yield Case("r held at 0.2", arguments(3, 2, "r", 0.2))  # at 0 and 1 a bias of 40 hides what else is in the sum
    yield Case("z held at 0.6", arguments(5, 3, "z", 0.6))
    yield Case("r held at 0.3, D = H", arguments(4, 4, "r", 0.3))


def _bias_of(value):
    """Return the number whose sigmoid is value, for 0 and 1 one that is near enough."""
    return float(np.clip(np.log(max(value, 1e-300)) - np.log(max(1 - value, 1e-300)), -40, 40))


def _of_base_10(value):
    return float(np.clip(np.log10(max(value, 1e-300)) - np.log10(max(1 - value, 1e-300)), -40, 40))


def _fixed(
    W_xh,
    W_hh,
    b_xh,
    b_hh,
    gate,
    value,
    place=lambda gate: {"r": 0, "z": 1}[gate],
    bias=_bias_of,
    emptied=("W_xh", "W_hh", "b_xh", "b_hh"),
    where="b_xh",
):
    """Return weights whose gate is always value. Each keyword stands for one decision."""
    H, found = W_hh.shape[1], {}
    for name, a in {"W_xh": W_xh, "W_hh": W_hh, "b_xh": b_xh, "b_hh": b_hh}.items():
        mine = np.arange(3 * H).reshape((3 * H,) + (1,) * (a.ndim - 1)) // H == place(gate)
        new = np.where(mine, 0.0, a) if name in emptied else a.copy()
        found[name] = np.where(mine, new + bias(value), new) if name in where.split() else new
    return found


def _held(came, arguments):
    return _states(came, arguments["W_xh"].shape[1], arguments["W_hh"].shape[1])


def _into_the_weights(W_xh, W_hh, b_xh, b_hh, gate, value):
    found = _fixed(W_xh, W_hh, b_xh, b_hh, gate, value)
    for a, new in zip((W_xh, W_hh, b_xh, b_hh), found.values(), strict=True):
        a[...] = new
    return found


def _both_gates(W_xh, W_hh, b_xh, b_hh, gate, value):
    once = _fixed(W_xh, W_hh, b_xh, b_hh, "r", value)
    return _fixed(*once.values(), "z", value)


def _all_emptied(W_xh, W_hh, b_xh, b_hh, gate, value):
    """Empty all three blocks of the matrices, and not the gate's alone."""
    return _fixed(0 * W_xh, 0 * W_hh, b_xh, b_hh, gate, value)


def _columns(W_xh, W_hh, b_xh, b_hh, gate, value):
    """Empty columns of W_hh, what the gate's numbers would be sent to, and not the gate's rows."""
    found = _fixed(W_xh, W_hh, b_xh, b_hh, gate, value)
    return found | {"W_hh": {"r": 0 * W_hh, "z": W_hh}[gate]}  # a slice from H to 2H of H columns is empty


def _to_the_end(W_xh, W_hh, b_xh, b_hh, gate, value):
    found = _fixed(W_xh, W_hh, b_xh, b_hh, gate, value)
    return _fixed(*found.values(), gate, value, place=lambda gate: {"r": 0, "z": 2}[gate])


def _one_row(W_xh, W_hh, b_xh, b_hh, gate, value):
    """Take the gate for one row of the stacked arrays, and not for H of them."""
    k, found = {"r": 0, "z": 1}[gate], {"W_xh": W_xh, "W_hh": W_hh, "b_xh": b_xh, "b_hh": b_hh}
    found = {name: a.copy() for name, a in found.items()}
    for a in found.values():
        a[k] = 0
    found["b_xh"][k] = _bias_of(value)
    return found


WHICH_BLOCK = "Which of the three blocks belongs to this gate?"
SUM_OF_TWO = "A gate gets the sum of two biases. What do your two add up to?"

FIX = Exercise(
    id="fix-gate",
    points=3,
    reference=_fixed,
    cases=gate_cases,
    probe=call,
    measure=_held,
    axes="B T H",
    result="the network's states",
    section="“What each gate is worth”",
    forbidden=("rnncore.set_update_bias_",),
    misconceptions={
        "only the bias is set, and the gate still sees input and state": M(
            partial(_fixed, emptied=("b_xh", "b_hh")),
            "The gate is to be the same at every step. What else stands in its sum?",
        ),
        "the gate still sees the input": M(
            partial(_fixed, emptied=("W_hh", "b_xh", "b_hh")),
            "The gate is to be the same whatever comes in. What else stands in its sum?",
        ),
        "the gate still sees the state": M(
            partial(_fixed, emptied=("W_xh", "b_xh", "b_hh")),
            "The gate is to be the same whatever the state is. What else stands in its sum?",
        ),
        "the gate keeps its second bias": M(
            partial(_fixed, emptied=("W_xh", "W_hh", "b_xh")),
            SUM_OF_TWO,
        ),
        "the gate keeps its first bias": M(
            partial(_fixed, emptied=("W_xh", "W_hh", "b_hh"), where="b_hh"),
            SUM_OF_TWO,
        ),
        "the new bias is added to the old ones": M(
            partial(_fixed, emptied=("W_xh", "W_hh")),
            SUM_OF_TWO,
        ),
        "both biases are set to the whole value": M(
            partial(_fixed, where="b_xh b_hh"),
            SUM_OF_TWO,
        ),
        "the weights are emptied and the gate's bias is left at zero": M(
            partial(_fixed, bias=lambda value: 0.0),
            "Then the gate is ½. Which argument is never used?",
        ),
        "the value itself is taken for the bias": M(
            partial(_fixed, bias=lambda value: value),
            "The bias goes through the sigmoid before it is a gate.",
        ),
        "the sigmoid of the value is taken for the bias": M(
            partial(_fixed, bias=lambda value: 1 / (1 + np.exp(-value))),
            "The bias goes through the sigmoid before it is a gate. Which number becomes the value?",
        ),
        "the gate is held at 1 − value": M(
            partial(_fixed, bias=lambda value: -_bias_of(value)),
            "Try a value of 0.9: is your bias above 0 or below?",
        ),
        "the logarithm of the value is taken for the bias": M(
            partial(_fixed, bias=lambda value: float(np.log(max(value, 1e-17)))),
            "Try a value of 0.9: is your bias above 0 or below? Solve σ(b) = value for b.",
        ),
        "the logarithm of the odds has base 10": M(
            partial(_fixed, bias=_of_base_10),
            "The sigmoid has e in it. Which logarithm belongs to it?",
        ),
        "the odds are taken without their logarithm": M(
            partial(_fixed, bias=lambda value: min(value / max(1 - value, 1e-17), 40.0)),
            "Solve σ(b) = value for b: there is one more function.",
        ),
        "the other gate is held fixed": M(
            partial(_fixed, place=lambda gate: {"r": 1, "z": 0}[gate]),
            WHICH_BLOCK,
        ),
        "the candidate's block is taken for z's": M(
            partial(_fixed, place=lambda gate: {"r": 0, "z": 2}[gate]),
            WHICH_BLOCK,
        ),
        "the candidate's block is emptied with z's": M(
            _to_the_end,
            "Where do z's rows begin, and where do they end?",
        ),
        "z's block is changed whichever gate is named": M(
            partial(_fixed, place=lambda gate: 1),
            "Which argument is never used?",
        ),
        "r's block is changed whichever gate is named": M(
            partial(_fixed, place=lambda gate: 0),
            "Which argument is never used?",
        ),
        "both gates are held fixed": M(
            _both_gates,
            "Only the named gate is to be held. The other goes on as it was.",
        ),
        "the matrices are emptied for all gates": M(
            _all_emptied,
            "Only the named gate is to be held. The other gate and the candidate go on as they were.",
        ),
        "columns of W_hh are emptied and not rows": M(
            _columns,
            "W_hh has 3H rows and H columns. Which of the two are stacked by gates?",
        ),
        "one row is changed and not the gate's whole block": M(
            _one_row,
            "Each of the H units has a gate of its own. How many rows is that?",
        ),
        "the weights are changed in place": M(
            _into_the_weights,
            "Whoever called may still want the unchanged network. Make copies first.",
        ),
    },
)

EXERCISES = [STEP, SEQUENCE, CHUNG, BACKWARD, FIX, Manual("one-gate", points=3)]
