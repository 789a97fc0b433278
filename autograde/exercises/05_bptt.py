"""Chapter 5: a step and a sequence backwards, a gradient check, truncation, and a character model by hand."""

from functools import partial

import numpy as np

import rnncore
from autograde import draw
from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import call, on_a_sum_of_cubes

BY_AUTOGRAD = "torch.autograd"  # what would do the exercise
WEIGHTS = {"W_xh": "H D", "W_hh": "H H", "b_h": "H"}

# ----------------------------------------------------------------------------------------------------------
# step-backward: step_backward(dh, x, h, h_next, W_xh, W_hh) -> {"x", "h", "W_xh", "W_hh", "b_h"}


def _weights():  # no constant: the sample class writes out the functions that a mistake needs
    return "W_xh", "W_hh", "b_h"


def step_cases(rng):
    def arguments(B, D, H, scale=1.0):
        drawn = draw.normal(rng, dh=(B, H), x=(B, D), h=(B, H)) | draw.recurrent(rng, D, H)
        b_h, h = drawn.pop("b_h"), np.tanh(drawn["h"])
        h_next = rnncore.rnn_step(scale * drawn["x"], h, drawn["W_xh"], drawn["W_hh"], b_h)
        order = ("dh", "x", "h", "h_next", "W_xh", "W_hh")
        given = drawn | {"x": scale * drawn["x"], "h": h, "h_next": h_next}
        return {name: given[name] for name in order}

    by_hand = {"dh": 0.5, "x": 0.5, "h": -0.25, "h_next": 0.6, "W_xh": 2.0, "W_hh": 1.0}
    yield Case("one unit, numbers to check by hand", {name: np.array([[value]]) for name, value in by_hand.items()})
    silent = arguments(3, 2, 4)
    yield Case("the state before is zero", silent | {"h": np.zeros_like(silent["h"])})
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("B = D = H", arguments(4, 4, 4))
    yield Case("a batch of one", arguments(1, 3, 2))
    yield Case("large inputs, states near -1 and 1", arguments(3, 2, 4, scale=4.0))


def _step_back(
    dh,
    x,
    h,
    h_next,
    W_xh,
    W_hh,
    slope=lambda h, h_next: 1 - h_next * h_next,
    to_x=lambda g: g["da"] @ g["W_xh"],
    to_h=lambda g: g["da"] @ g["W_hh"],
    to_W_xh=lambda g: g["da"].T @ g["x"],
    to_W_hh=lambda g: g["da"].T @ g["h"],
    to_b_h=lambda g: g["da"].sum(0),
):
    """Return the gradients of a step. Each keyword stands for one decision, right unless another is given."""
    g = {"da": dh * slope(h, h_next), "dh": dh, "x": x, "h": h, "h_next": h_next, "W_xh": W_xh, "W_hh": W_hh}
    return {"x": to_x(g), "h": to_h(g), "W_xh": to_W_xh(g), "W_hh": to_W_hh(g), "b_h": to_b_h(g)}


def _each(arguments, change, *names):
    """Return the gradients of a step with `change` made to the entries of these names."""
    found = _step_back(*arguments)
    return found | {name: change(found[name]) for name in names}


def _per_sequence(*a):
    """Keep the axis of the batch in the weights' gradients."""
    return _step_back(
        *a,
        to_W_xh=lambda g: np.einsum("bi,bj->bij", g["da"], g["x"]),
        to_W_hh=lambda g: np.einsum("bi,bj->bij", g["da"], g["h"]),
        to_b_h=lambda g: g["da"],
    )


def _without_slope_in_the_weights(*a):
    return _step_back(
        *a,
        to_W_xh=lambda g: g["dh"].T @ g["x"],
        to_W_hh=lambda g: g["dh"].T @ g["h"],
        to_b_h=lambda g: g["dh"].sum(0),
    )


def _without_slope_in_x_and_h(*a):
    return _step_back(*a, to_x=lambda g: g["dh"] @ g["W_xh"], to_h=lambda g: g["dh"] @ g["W_hh"])


def _state_computed_again(dh, x, h, h_next, W_xh, W_hh):
    """Compute the new state once more from what is at hand, which is not all: the bias is not."""
    return _step_back(dh, x, h, np.tanh(x @ W_xh.T + h @ W_hh.T), W_xh, W_hh)


def _both_transposed_on_the_way_back(*a):
    return _step_back(*a, to_x=lambda g: g["da"] @ g["W_xh"].T, to_h=lambda g: g["da"] @ g["W_hh"].T)


def _into_dh(dh, x, h, h_next, W_xh, W_hh):
    dh *= 1 - h_next * h_next
    return _step_back(dh, x, h, 0 * h_next, W_xh, W_hh)


def _slope_after_the_product(g):
    return np.einsum("bi,ij->bj", g["dh"], g["W_hh"]) * (1 - g["h_next"] ** 2)


SLOPES = {  # wrong in every entry; also what a hand-written step in the sequence may have
    "the slope is taken at the state before the step": M(
        partial(_step_back, slope=lambda h, h_next: 1 - h * h),
        "tanh was applied in this step. Which of the two states did it give?",
    ),
    "the slope of tanh is missing": M(
        partial(_step_back, slope=lambda h, h_next: 1.0),
        "Between dL/dh_t and dL/da_t stands tanh. What does it multiply by?",
    ),
    "tanh is taken once more in the slope": M(
        partial(_step_back, slope=lambda h, h_next: 1 - np.tanh(h_next) ** 2),
        "The formula 1 - tanh(a)² wants tanh of the sum a. What is h_next already?",
    ),
    "the state in the slope is not squared": M(
        partial(_step_back, slope=lambda h, h_next: 1 - h_next),
        "A slope of tanh is never above 1. Is yours, where the state is negative?",
    ),
    "the slope is the sigmoid's": M(
        partial(_step_back, slope=lambda h, h_next: h_next * (1 - h_next)),
        "s(1 - s) is the slope of the sigmoid. Which function made this state?",
    ),
    "the slope is ReLU's": M(
        partial(_step_back, slope=lambda h, h_next: 1.0 * (h_next > 0)),
        "A slope of 0 or 1 is ReLU's. Which function made this state?",
    ),
}

STEP = Exercise(
    id="step-backward",
    points=4,
    reference=rnncore.rnn_step_backward,
    cases=step_cases,
    probe=call,
    axes=WEIGHTS | {"x": "B D", "h": "B H"},
    section="“One step backwards”",
    forbidden=("rnncore.rnn_step_backward", "rnncore.rnn_backward", BY_AUTOGRAD),
    provided=("rnn_jacobian",),
    misconceptions={
        **SLOPES,
        "the slope is missing in the gradient of h": M(
            partial(_step_back, to_h=lambda g: np.einsum("bi,ij->bj", g["dh"], g["W_hh"])),
            "W_hh was applied before tanh, so on the way back the slope comes first. Which entry starts from dh?",
        ),
        "the slope is missing in the gradient of x": M(
            partial(_step_back, to_x=lambda g: np.einsum("bi,ij->bj", g["dh"], g["W_xh"])),
            "W_xh was applied before tanh, so on the way back the slope comes first. Which entry starts from dh?",
        ),
        "the slope is missing in the gradients of x and h": M(
            _without_slope_in_x_and_h,
            "Both products were made before tanh: on the way back its slope comes first. Which entries start from dh?",
        ),
        "the slope is missing in the weights' gradients": M(
            _without_slope_in_the_weights,
            "The weights act inside tanh. Which entries start from dh?",
        ),
        "the new state is computed again, without the bias": M(
            _state_computed_again,
            "The bias is not among the arguments. Which argument is never used?",
        ),
        "the slope is multiplied in twice": M(
            partial(_step_back, slope=lambda h, h_next: (1 - h_next**2) ** 2),
            "dh is the gradient of the state that the step gave, so tanh has to be crossed: how often?",
        ),
        "the gradient of h is multiplied by the slope at h": M(
            partial(_step_back, to_h=lambda g: np.einsum("bi,ij->bj", g["da"], g["W_hh"]) * (1 - g["h"] ** 2)),
            "That slope belongs to the step before, which multiplies it in when its turn comes.",
        ),
        "the slope is missing in the bias": M(
            partial(_step_back, to_b_h=lambda g: g["dh"].sum(0)),
            "The bias stands inside tanh, like the two products.",
        ),
        "the slope comes after the product with W_hh": M(
            partial(_step_back, to_h=_slope_after_the_product),
            "Walk back in the reverse of the order in which the step was computed: what was done last comes first.",
        ),
        "W_hh is transposed in the gradient of h": M(
            partial(_step_back, to_h=lambda g: g["da"] @ g["W_hh"].T),
            "Forwards, the rows were multiplied by the transpose. What does a row multiply on the way back?",
        ),
        "W_xh is transposed in the gradient of x": M(
            partial(_step_back, to_x=lambda g: g["da"] @ g["W_xh"].T),
            "Forwards, the rows were multiplied by the transpose. What does a row multiply on the way back?",
        ),
        "both matrices are transposed on the way back": M(
            _both_transposed_on_the_way_back,
            "Forwards, the rows were multiplied by the transposes. What does a row multiply on the way back?",
        ),
        "the gradient of W_hh is made with the new state": M(
            partial(_step_back, to_W_hh=lambda g: np.einsum("bi,bj->ij", g["da"], g["h_next"])),
            "What did W_hh multiply in this step?",
        ),
        "the gradient of W_hh is made without a state": M(
            partial(_step_back, to_W_hh=lambda g: np.einsum("bi,j->ij", g["da"], np.ones(len(g["W_hh"])))),
            "What did W_hh multiply in this step? Where that is 0, its gradient is 0.",
        ),
        "the gradient of W_hh is transposed": M(
            lambda *a: _each(a, np.transpose, "W_hh"),
            "Entry i, j of the gradient belongs to W_hh[i, j]: which index belongs to da, which to the state?",
        ),
        "the gradients of both matrices are transposed": M(
            lambda *a: _each(a, np.transpose, "W_xh", "W_hh"),
            "A gradient has the shape of what it is the gradient of; compare where D and H differ.",
        ),
        "the weights' gradients are not summed over the batch": M(
            _per_sequence,
            "All sequences of the batch used the same weights. What becomes of the parts?",
        ),
        "the bias's gradient is not summed over the batch": M(
            partial(_step_back, to_b_h=lambda g: g["da"]),
            "All sequences of the batch used the same bias. What becomes of the parts?",
        ),
        "the bias's gradient is summed over the units": M(
            partial(_step_back, to_b_h=lambda g: g["da"].sum(1)),
            "The bias has one entry for each unit. Which axis of da is the batch?",
        ),
        "the bias's gradient is one number": M(
            partial(_step_back, to_b_h=lambda g: g["da"].sum()),
            "The bias has one entry for each unit. Over which axis do you sum?",
        ),
        "the bias's gradient keeps an axis of length 1": M(
            partial(_step_back, to_b_h=lambda g: g["da"].sum(0, keepdims=True)),
            "A gradient has the shape of what it is the gradient of.",
        ),
        "the weights' gradients are averaged over the batch": M(
            lambda *a: _each(a, lambda g: g / len(a[0]), "W_xh", "W_hh", "b_h"),
            "If the loss is a mean, its 1/B is already in dh. What does the chain rule ask for, where paths join?",
        ),
        "the bias's gradient is averaged over the batch": M(
            lambda *a: _each(a, lambda g: g / len(a[0]), "b_h"),
            "If the loss is a mean, its 1/B is already in dh. What does the chain rule ask for, where paths join?",
        ),
        "the gradient that came is added to the one that goes": M(
            partial(_step_back, to_h=lambda g: np.einsum("bi,ij->bj", g["da"], g["W_hh"]) + g["dh"]),
            "Does h_(t-1) reach h_t in any way but through W_hh?",
        ),
        "dh is changed in place": M(
            _into_dh,
            "Assigning with *= writes into the caller's array. Give the product a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# sequence-backward: rnn_backward(dhs, x, h0, hs, W_xh, W_hh) -> {"x", "h0", "W_xh", "W_hh", "b_h"}


def sequence_cases(rng):
    def arguments(B, T, D, H, losses=slice(None)):
        drawn = draw.normal(rng, dhs=(B, T, H), x=(B, T, D), h0=(B, H)) | draw.recurrent(rng, D, H)
        dhs = np.zeros_like(drawn["dhs"])
        dhs[:, losses] = drawn["dhs"][:, losses]
        hs = rnncore.rnn_forward(drawn["x"], drawn["h0"], drawn["W_xh"], drawn["W_hh"], drawn.pop("b_h"))
        given = drawn | {"dhs": dhs, "hs": hs}
        return {name: given[name] for name in ("dhs", "x", "h0", "hs", "W_xh", "W_hh")}

    one_unit = {"dhs": [1.0, 0.5], "x": [2.0, -1.0], "h0": [0.5], "hs": [0.6, -0.8], "W_xh": [1.0], "W_hh": [2.0]}
    shapes = {"dhs": (1, 2, 1), "x": (1, 2, 1), "hs": (1, 2, 1)}
    yield Case(
        "one unit, two steps, numbers to check by hand",
        {name: np.reshape(value, shapes.get(name, (1, 1))) for name, value in one_unit.items()},
    )
    yield Case("one step", arguments(3, 1, 2, 4))
    yield Case("a loss at the last step only", arguments(2, 4, 3, 2, losses=-1))
    yield Case("a loss at the first step only", arguments(2, 4, 3, 2, losses=0))
    yield Case("a loss at every step; B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("B = T = D = H", arguments(3, 3, 3, 3))
    yield Case("a batch of one, six steps", arguments(1, 6, 2, 3))


def _walk(
    dhs,
    x,
    h0,
    hs,
    W_xh,
    W_hh,
    step=_step_back,
    order=reversed,
    arrives=lambda dhs_t, dh: dhs_t + dh,
    carry=lambda dh, back: back,
    before=lambda h0, hs, t: hs[:, t - 1] if t else h0,
    collect=sum,
):
    """Walk back over the steps. Each keyword stands for one decision, right unless another is given."""
    T, dh = hs.shape[1], np.zeros_like(h0)
    dxs, parts = np.zeros_like(x), {}
    for t in order(range(T)):
        total = arrives(dhs[:, t], dh)
        parts[t] = step(total, x[:, t], before(h0, hs, t), hs[:, t], W_xh, W_hh)
        dxs[:, t] = parts[t]["x"]
        dh = carry(total, parts[t]["h"])
    weights = {name: collect([parts[t][name] for t in range(T)]) for name in _weights()}
    return {"x": dxs, "h0": dh, **weights}


def _sent_back_added_up(dhs, x, h0, hs, W_xh, W_hh):
    sent = np.zeros_like(h0)

    def step(*a):
        nonlocal sent
        found = _step_back(*a)
        sent = sent + found["h"]
        return found

    return _walk(dhs, x, h0, hs, W_xh, W_hh, step=step, carry=lambda dh, back: sent)


def _ending(arguments, change):
    """Return the right gradients with a change made to them: change(found, the arguments)."""
    found = _walk(*arguments)
    return found | change(found, *arguments)


def _apart(parts):
    return np.stack(parts)


def _into_dhs(dhs, x, h0, hs, W_xh, W_hh):
    for t in range(dhs.shape[1])[:0:-1]:
        dhs[:, t - 1] += _step_back(dhs[:, t], x[:, t], hs[:, t - 1], hs[:, t], W_xh, W_hh)["h"]
    return _walk(dhs, x, h0, hs, W_xh, W_hh, arrives=lambda dhs_t, dh: dhs_t)


def _at_step_one(dhs, x, h0, hs, W_xh, W_hh):
    """Return dL/dh_1, which is one step short of dL/dh_0."""
    late = _walk(dhs[:, 1:], x[:, 1:], hs[:, 0], hs[:, 1:], W_xh, W_hh) if hs.shape[1] > 1 else {"h0": 0}
    return dhs[:, 0] + late["h0"]


def _without_the_first_step(dhs, x, h0, hs, W_xh, W_hh):
    """Go back to h_1 and leave the first step out: what arrives at h_1 is then taken for the gradient of h_0."""
    if hs.shape[1] == 1:
        return {name: np.zeros_like(a) for name, a in {"x": x, "h0": h0, "W_xh": W_xh, "W_hh": W_hh}.items()} | {
            "b_h": np.zeros(len(W_hh))
        }
    found = _walk(dhs[:, 1:], x[:, 1:], hs[:, 0], hs[:, 1:], W_xh, W_hh)
    return found | {"x": np.concatenate([np.zeros_like(x[:, :1]), found["x"]], axis=1)}


W_HH_TRANSPOSED = "W_hh is transposed in the gradient of h"


SEQUENCE = Exercise(
    id="sequence-backward",
    points=5,
    reference=rnncore.rnn_backward,
    cases=sequence_cases,
    probe=call,
    axes=WEIGHTS | {"x": "B T D", "h0": "B H"},
    section="“Two sources”",
    forbidden=("rnncore.rnn_backward", BY_AUTOGRAD),
    provided=("rnn_step_backward", "rnn_jacobian"),
    misconceptions={
        "the gradient from the next step is left out": M(
            partial(_walk, arrives=lambda dhs_t, dh: dhs_t),
            "A state acts on its own loss and on the next state. How many of the two does your dL/dh_t hold?",
        ),
        "the losses of all steps but the last are left out": M(
            lambda dhs, *a: _walk(np.concatenate([np.zeros_like(dhs[:, :-1]), dhs[:, -1:]], axis=1), *a),
            "dhs has an entry for each step. When is each of them added?",
        ),
        "the gradient that arrived is carried on unchanged beside what the step sends back": M(
            partial(_walk, carry=lambda dh, back: dh + back),
            "What a step sends back takes the place of what it got. Is there a += where an = should stand?",
        ),
        "the gradient that arrived is carried on, and not what the step sends back": M(
            partial(_walk, carry=lambda dh, back: dh),
            "Which entry of the step's result belongs to the state before it?",
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
            lambda *a: _ending(a, lambda found, dhs, *rest: {name: found[name] / len(dhs) for name in _weights()}),
            "If the loss is a mean over the batch, its 1/B is already in dhs. What does the chain rule ask for?",
        ),
        "the weights' gradients are averaged over batch and steps": M(
            lambda *a: _ending(a, lambda found, dhs, *rest: {n: found[n] / dhs[..., 0].size for n in _weights()}),
            "If the loss is a mean, its factor is in dhs already. What does the chain rule ask for?",
        ),
        "what the steps send back is added up": M(
            _sent_back_added_up,
            "What a step sends back already holds all later losses. Is there a += where an = should stand?",
        ),
        "the weights' gradients of every step are kept apart": M(
            partial(_walk, collect=_apart),
            "The weights have one value for all steps, so they have one gradient.",
        ),
        "each step is given its own state as the state before it": M(
            partial(_walk, before=lambda h0, hs, t: hs[:, t]),
            "hs[:, 0] is h_1. Which state did the first step get, and which the step at index t?",
        ),
        "every step is given h_0 as the state before it": M(
            partial(_walk, before=lambda h0, hs, t: h0),
            "Only the first step got h_0. Which state did the others get?",
        ),
        "h_0 is taken for zeros": M(
            partial(_walk, before=lambda h0, hs, t: hs[:, t - 1] if t else 0 * h0),
            "The first step got h_0, which need not be zero. Which argument is never used?",
        ),
        "the first step is given h_T as the state before it": M(
            partial(_walk, before=lambda h0, hs, t: hs[:, t - 1]),
            "Where t is 0, what does the index t - 1 mean to Python?",
        ),
        "the loop runs forwards": M(
            partial(_walk, order=lambda steps: steps),
            "A step can go back only when all that comes after it has. Which step is first?",
        ),
        "the gradients of the inputs are in reverse order": M(
            lambda *a: _ending(a, lambda found, *rest: {"x": found["x"][:, ::-1]}),
            "The loop makes the last step's gradient first. In which order do you stack them?",
        ),
        "time comes before the batch in the gradients of the inputs": M(
            lambda *a: _ending(a, lambda found, *rest: {"x": np.swapaxes(found["x"], 0, 1)}),
            "The numbers are right; the gradient of x has the shape of x.",
        ),
        "the gradient of h_0 is left at zero": M(
            lambda *a: _ending(a, lambda found, *rest: {"h0": np.zeros_like(found["h0"])}),
            "What does the first step send back?",
        ),
        "the gradient of h_0 is that of h_1": M(
            lambda *a: _ending(a, lambda found, *rest: {"h0": _at_step_one(*rest)}),
            "The first step has a state before it, too: go back through it as through the others.",
        ),
        "the own loss of the first step is added to the gradient of h_0": M(
            lambda *a: _ending(a, lambda found, dhs, *rest: {"h0": found["h0"] + dhs[:, 0]}),
            "There is no loss at h_0: dhs[:, 0] belongs to h_1, and has its place there.",
        ),
        "the loop ends before the first step": M(
            _without_the_first_step,
            "range ends before its second number. Which index has the first step?",
        ),
        "the gradient of h_0 is summed over the batch": M(
            lambda *a: _ending(a, lambda found, *rest: {"h0": found["h0"].sum(0)}),
            "Every sequence has an initial state of its own here.",
        ),
        "dhs is changed in place": M(
            _into_dhs,
            "Adding into dhs[:, t] writes into the caller's array. Keep the sum in a name of its own.",
        ),
        **{
            f"in every step {name}": STEP.misconceptions[name].in_every_step(_walk)
            for name in [*list(SLOPES)[:4], W_HH_TRANSPOSED]
        },
    },
)

# ----------------------------------------------------------------------------------------------------------
# numerical-gradient: numerical_gradient(f, w, eps) -> central differences, of the shape of w


def check_cases(rng):
    def arguments(*shape, eps=0.1, K=2):
        return draw.normal(rng, c=(K, *shape), w=shape) | {"eps": eps}

    yield Case("f(w) = w³ at w = 2 with ε = 1/2", {"c": np.ones((1, 1)), "w": np.array([2.0]), "eps": 0.5})
    yield Case("a vector of four", arguments(4))
    yield Case("a matrix of two rows and three columns", arguments(2, 3))
    yield Case("a square matrix", arguments(3, 3))
    yield Case("an array with three axes", arguments(2, 1, 3))
    yield Case("an ε as in practice", arguments(3, 2, eps=1e-5))


def _differences(f, w, eps, plus=1.0, minus=-1.0, over=2.0):
    """Return (f(w + plus ε) - f(w + minus ε)) / (over ε) for each entry of w by itself."""
    units = np.eye(w.size).reshape(w.size, *w.shape)
    rises = [f(w + plus * eps * unit) - f(w + minus * eps * unit) for unit in units]
    return np.reshape(rises, w.shape) / (over * eps)


def _walking_off(f, w, eps):
    """Move each entry up, then down, and leave it there."""
    gradient = np.zeros_like(w)
    for place in np.ndindex(w.shape):
        w[place] += eps
        above = f(w)
        w[place] -= 2 * eps
        gradient[place] = (above - f(w)) / (2 * eps)
    return gradient


def _put_back_by_adding(f, w, eps):
    gradient = np.zeros_like(w)
    for place in np.ndindex(w.shape):
        w[place] += eps
        above = f(w)
        w[place] -= 2 * eps
        below = f(w)
        w[place] += eps
        gradient[place] = (above - below) / (2 * eps)
    return gradient


def _own_array_twice(f, w, eps):
    gradient, above, below = np.zeros_like(w), w, w
    for place in np.ndindex(w.shape):
        above[place] += eps
        below[place] -= eps
        gradient[place] = (f(above) - f(below)) / (2 * eps)
    return gradient


def _relative_steps(f, w, eps):
    units = np.eye(w.size).reshape(w.size, *w.shape)
    return np.reshape([(f(w + eps * w * u) - f(w - eps * w * u)) / (2 * eps * (w * u).sum()) for u in units], w.shape)


def _whole_rows(f, w, eps):
    rows = np.eye(len(w)).reshape(len(w), len(w), *[1] * (w.ndim - 1))
    rises = [(f(w + eps * row) - f(w - eps * row)) / (2 * eps) for row in rows]
    return np.zeros_like(w) + np.reshape(rises, (len(w), *[1] * (w.ndim - 1)))


CHECK = Exercise(
    id="numerical-gradient",
    points=3,
    reference=_differences,
    cases=check_cases,
    probe=on_a_sum_of_cubes,
    section="“Nudge and measure”",
    misconceptions={
        "the difference is one-sided, upwards": M(
            lambda f, w, eps: _differences(f, w, eps, minus=0.0, over=1.0),
            "Where is the second of the two points: at w, or on its other side?",
        ),
        "the difference is one-sided, downwards": M(
            lambda f, w, eps: _differences(f, w, eps, plus=0.0, over=1.0),
            "Where is the first of the two points: at w, or on its other side?",
        ),
        "only one of the two points is moved, and the rise is divided by 2ε": M(
            lambda f, w, eps: _differences(f, w, eps, minus=0.0),
            "How far apart are your two points?",
        ),
        "the rise is divided by ε": M(
            lambda f, w, eps: _differences(f, w, eps, over=1.0),
            "How far apart are your two points?",
        ),
        "the rise is not divided": M(
            lambda f, w, eps: _differences(f, w, eps) * 2 * eps,
            "A slope is the rise over the distance of the two points.",
        ),
        "the rise is multiplied by ε/2, or by ε and divided by 2": M(
            lambda f, w, eps: _differences(f, w, eps) * eps * eps,
            "In Python a / 2 * b is (a / 2) * b. Where do your brackets stand?",
        ),
        "the points are half of ε away": M(
            lambda f, w, eps: _differences(f, w, eps, plus=0.5, minus=-0.5, over=1.0),
            "A central difference, but with another step than the one asked for.",
        ),
        "the sign is reversed": M(
            lambda f, w, eps: -_differences(f, w, eps),
            "Which of the two values is taken off the other?",
        ),
        "all entries are moved at once": M(
            lambda f, w, eps: np.full_like(w, (f(w + eps) - f(w - eps)) / (2 * eps)),
            "w + eps moves every entry. The derivative with respect to one entry leaves the others where they are.",
        ),
        "whole rows are moved at once": M(
            _whole_rows,
            "w[i] of a matrix is a row. How do you reach every entry, however many axes there are?",
        ),
        "both points are one and the same array": M(
            lambda f, w, eps: np.zeros_like(w),
            "A second name for an array is no second array. Is f ever called with two different points?",
        ),
        "an entry is not put back before the next is moved": M(
            lambda f, w, eps: _walking_off(f, w.copy(), eps),
            "When you move the second entry, where is the first?",
        ),
        "an entry of the caller's array is moved and not put back": M(
            _walking_off,
            "When you move the second entry, where is the first? And whose array is it?",
        ),
        "both points are the caller's own array": M(
            _own_array_twice,
            "A second name for an array is no second array. Is f ever called with two different points?",
        ),
        "the entries nudged so far stay nudged": M(
            lambda f, w, eps: np.reshape(
                [(f(w + eps * u) - f(w - eps * u)) / (2 * eps) for u in np.tri(w.size).reshape(-1, *w.shape)], w.shape
            ),
            "When you nudge the second entry, is the first where it was?",
        ),
        "the derivative comes out, and not the central difference with this ε": M(
            lambda f, w, eps: _differences(f, w, 1e-5),
            "With a large ε the two differ, and the check uses one on purpose. Is your step the eps that came?",
        ),
        "the entries are put back by adding and subtracting ε": M(
            _put_back_by_adding,
            "In floating point, adding ε, taking off 2ε and adding ε need not end where it began.",
        ),
        "the step is ε times the entry": M(
            _relative_steps,
            "A reasonable idea, but here ε is the step itself.",
        ),
        "the gradient is flat": M(
            lambda f, w, eps: _differences(f, w, eps).ravel(),
            "A gradient has the shape of what it is the gradient of.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# truncated: truncated_gradients(dhs, x, h0, W_xh, W_hh, b_h, K) -> {"W_xh", "W_hh", "b_h"}


def truncated_cases(rng):
    def arguments(B, T, D, H, K):
        return draw.normal(rng, dhs=(B, T, H), x=(B, T, D), h0=(B, H)) | draw.recurrent(rng, D, H) | {"K": K}

    yield Case("three steps of one unit in chunks of two", arguments(1, 3, 1, 1, 2))
    yield Case("one chunk: K = T", arguments(2, 3, 2, 4, 3))
    yield Case("chunks of one step", arguments(2, 4, 3, 2, 1))
    yield Case("two chunks; B, T, D and H all different", arguments(3, 6, 2, 4, 3))
    yield Case("the last chunk is shorter", arguments(2, 5, 2, 3, 2))
    yield Case("K is larger than T", arguments(2, 3, 2, 4, 5))
    yield Case("B = T = D = H, K = 2", arguments(3, 3, 3, 3, 2))


def _run(x, h, W_xh, W_hh, b_h):
    """Return the states; rnncore's checks would cost more time than the few steps of a case."""
    found = []
    for from_x in np.moveaxis(x @ W_xh.T + b_h, 1, 0):
        h = np.tanh(from_x + h @ W_hh.T)
        found.append(h)
    return np.stack(found, axis=1)


def _run_back(dhs, x, h, hs, W_hh):
    """Return the weights' gradients, likewise."""
    das, dh = (1 - hs * hs) * 1.0, 0.0
    for t in range(x.shape[1])[::-1]:
        das[:, t] *= dhs[:, t] + dh
        dh = das[:, t] @ W_hh
    rows, before = das.reshape(-1, len(W_hh)), np.concatenate([h[:, None], hs[:, :-1]], axis=1)
    return {
        "W_xh": rows.T @ x.reshape(len(rows), -1),
        "W_hh": rows.T @ before.reshape(len(rows), -1),
        "b_h": rows.sum(0),
    }


def _pieces(dhs, x, h0, W_xh, W_hh, b_h, spans, start=None):
    """Return the weights' gradients of pieces of the sequence, one dictionary for each (first step, step after).

    start(h0, hs, first) is the state from which a piece begins: hs of the whole sequence before it, if None.
    """
    hs, found = _run(x, h0, W_xh, W_hh, b_h), []
    for first, last in spans:
        c = slice(first, last)
        h = start(h0, hs, first) if start else hs[:, first - 1] if first else h0
        inner = _run(x[:, c], h, W_xh, W_hh, b_h) if start else hs[:, c]
        found.append(_run_back(dhs[:, c], x[:, c], h, inner, W_hh))
    return found


def _added(found, weight=1.0):
    return {name: weight * sum(part[name] for part in found) for name in _weights()}


def _spans(T, K):
    return [(first, min(first + K, T)) for first in range(0, T, K)]


def _chunks(dhs, *rest, spans=_spans, start=None, collect=_added):
    *arrays, K = rest
    return collect(_pieces(dhs, *arrays, spans(dhs.shape[1], K), start))


def _window(dhs, x, h0, W_xh, W_hh, b_h, K):
    """Let each step's loss go back over K steps, its own among them, whatever chunk they are in."""
    T, found = dhs.shape[1], []
    for s in range(T):
        alone = np.zeros_like(dhs)
        alone[:, s] = dhs[:, s]
        found += _pieces(alone, x, h0, W_xh, W_hh, b_h, [(max(0, s - K + 1), s + 1)])
    return _added(found)


def _from_the_first_state_of_the_chunk(h0, x, *weights, K):
    """Yield the state that each chunk begins with, when the first state of the chunk before is handed on."""
    h = h0
    for first, last in _spans(x.shape[1], K):
        yield first, h
        h = _run(x[:, first:last], h, *weights)[:, 0]


def _first_state_handed_on(dhs, x, h0, W_xh, W_hh, b_h, K):
    begins = dict(_from_the_first_state_of_the_chunk(h0, x, W_xh, W_hh, b_h, K=K))
    return _chunks(dhs, x, h0, W_xh, W_hh, b_h, K, start=lambda h0, hs, first: begins[first])


def _only_the_chunks_last_loss(dhs, *rest):
    last = [last - 1 for _, last in _spans(dhs.shape[1], rest[-1])]
    kept = np.zeros_like(dhs)
    kept[:, last] = dhs[:, last]
    return _chunks(kept, *rest)


def _back_from(dhs, x, h0, W_xh, W_hh, b_h, K, before):
    """Return chunk and detach with a wrong state before each chunk on the way back: before(h0, hs, first)."""
    hs = _run(x, h0, W_xh, W_hh, b_h)
    chunks = [(slice(first, last), before(h0, hs, first)) for first, last in _spans(x.shape[1], K)]
    return _added([_run_back(dhs[:, c], x[:, c], h, hs[:, c], W_hh) for c, h in chunks])


def _whole_chunks_only(dhs, *rest):
    kept = np.zeros_like(dhs)
    whole = dhs.shape[1] // rest[-1] * rest[-1]
    kept[:, :whole] = dhs[:, :whole]
    return _chunks(kept, *rest)


TRUNCATED = Exercise(
    id="truncated",
    points=4,
    reference=_chunks,
    cases=truncated_cases,
    probe=call,
    axes=WEIGHTS,
    section="“Truncation”",
    misconceptions={
        "the gradient is not cut": M(
            lambda dhs, x, h0, W_xh, W_hh, b_h, K: _chunks(dhs, x, h0, W_xh, W_hh, b_h, dhs.shape[1]),
            "This is the full gradient. Where do your chunks end, and does anything cross the border backwards?",
        ),
        "every chunk begins from h_0": M(
            partial(_chunks, start=lambda h0, hs, first: h0),
            "What is cut is the gradient. Which state does the second chunk begin with?",
        ),
        "every chunk but the first begins from zeros": M(
            partial(_chunks, start=lambda h0, hs, first: 0 * h0 if first else h0),
            "What is cut is the gradient. Which state does the second chunk begin with?",
        ),
        "every chunk begins from zeros": M(
            partial(_chunks, start=lambda h0, hs, first: 0 * h0),
            "What is cut is the gradient. Which state does the first chunk begin with, and which the second?",
        ),
        "the first state of a chunk is handed on, not the last": M(
            _first_state_handed_on,
            "Which of a chunk's states has read all of it?",
        ),
        "each chunk goes back with its own first state as the one before it": M(
            partial(_back_from, before=lambda h0, hs, first: hs[:, first] if first else h0),
            "hs[:, begin] is the state after the chunk's first step. Which state did that step get?",
        ),
        "each chunk goes back with h_0 as the state before it": M(
            partial(_back_from, before=lambda h0, hs, first: h0),
            "Forwards the state is right. Which state did the chunk's first step get, for the gradient of W_hh?",
        ),
        "each chunk goes back with zeros as the state before it": M(
            partial(_back_from, before=lambda h0, hs, first: 0 * h0),
            "Forwards the state is right. Which state did the chunk's first step get, for the gradient of W_hh?",
        ),
        "the first chunk goes back with h_T as the state before it": M(
            partial(_back_from, before=lambda h0, hs, first: hs[:, first - 1]),
            "Where a chunk begins at 0, what does the index begin - 1 mean to Python?",
        ),
        "only the last K steps count": M(
            partial(_chunks, spans=lambda T, K: [(max(0, T - K), T)]),
            "The sequence is cut into chunks, and all of them count. What becomes of the first steps?",
        ),
        "the gradient is that of a sliding window": M(
            _window,
            "Each loss goes back K steps here, across borders. In chunks it goes back to the border and no further.",
        ),
        "only the first chunk counts": M(
            partial(_chunks, collect=lambda found: _added(found[:1])),
            "How far to the right does your return stand: in the loop or after it?",
        ),
        "only the last chunk counts": M(
            partial(_chunks, collect=lambda found: _added(found[-1:])),
            "Is there an = where a += should stand?",
        ),
        "a last chunk that is shorter is left out": M(
            _whole_chunks_only,
            "T need not be a multiple of K. Which steps does your last chunk hold?",
        ),
        "the mean over the chunks is taken": M(
            partial(_chunks, collect=lambda found: _added(found, 1 / len(found))),
            "Every chunk adds its part to the gradients of the weights that all of them share.",
        ),
        "K is taken for the number of chunks": M(
            partial(
                _chunks, spans=lambda T, K: [(int(s[0]), int(s[-1]) + 1) for s in np.array_split(range(T), K) if len(s)]
            ),
            "K is how many steps a chunk has, not how many chunks there are.",
        ),
        "the chunks are one step too long": M(
            partial(_chunks, spans=lambda T, K: _spans(T, K + 1)),
            "In Python, a slice ends before its second number. How many steps has your first chunk?",
        ),
        "the shorter chunk stands first": M(
            partial(_chunks, spans=lambda T, K: [(max(0, last - K), last) for last in range(T, 0, -K)][::-1]),
            "The chunks are cut from the left; what is left over stands at the end.",
        ),
        "only the loss at the end of each chunk counts": M(
            _only_the_chunks_last_loss,
            "dhs has an entry for every step, inside a chunk as well.",
        ),
        "the number of steps in a chunk divides the gradients": M(
            lambda *a: _chunks(*a, collect=lambda found: _added(found, 1 / a[-1])),
            "If the loss is a mean over steps, its factor is in dhs already.",
        ),
        "the gradient is cut after every step": M(
            lambda *a: _chunks(*a[:-1], 1),
            "Inside a chunk, the gradient runs back as ever. How many steps has your chunk?",
        ),
        "the gradients are averaged over the batch": M(
            lambda dhs, *rest: _chunks(dhs, *rest, collect=lambda found: _added(found, 1 / len(dhs))),
            "If the loss is a mean over the batch, its 1/B is already in dhs.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# char-loss: char_loss(codes, W_xh, W_hh, b_h, W_hy, b_y) -> mean cross-entropy of the next character, in nats
# char-gradients: the same arguments -> {"W_xh", "W_hh", "b_h", "W_hy", "b_y"}


def model_cases(rng):
    def arguments(B, T, V, H, last=True):
        """Draw the model and a text, in which its last character occurs, or does not."""
        weights = draw.recurrent(rng, V, H) | draw.normal(rng, W_hy=(V, H), b_y=(V,))
        while True:
            codes = rng.integers(0, V if last else V - 1, size=(B, T + 1))
            if last and codes.max() < V - 1:
                continue
            pairs = sorted(zip(codes[:, :-1].flat, codes[:, 1:].flat, strict=True))
            if pairs != sorted((after, before) for before, after in pairs):  # not the same read backwards
                return {"codes": codes} | weights

    one_unit = {"W_xh": [[0.5, -0.5]], "W_hh": [[1.0]], "b_h": [0.0], "W_hy": [[1.0], [-1.0]], "b_y": [0.25, 0.0]}
    yield Case(
        "one unit, the characters 0, 1, 1",
        {"codes": np.array([[0, 1, 1]])} | {name: np.array(value) for name, value in one_unit.items()},
    )
    given = arguments(2, 3, 4, 3) | {"codes": np.array([[0, 1, 2, 3], [1, 1, 0, 2]])}  # whose ends differ
    yield Case("only the bias of the output", draw.only(given, "codes", "b_y"))
    absent = "B, T, V and H all different; the last character does not occur"
    yield Case(absent, arguments(3, 5, 4, 2, last=False))
    yield Case("one step", arguments(4, 1, 3, 2))
    yield Case("a batch of one", arguments(1, 6, 3, 4))
    yield Case("B = T = V = H", arguments(4, 4, 4, 4))


def gradient_cases(rng):
    """Yield the model's cases and one with so many weights and steps that nudging each weight takes minutes."""
    yield from model_cases(rng)
    weights = draw.recurrent(rng, 40, 80) | draw.normal(rng, W_hy=(40, 80), b_y=(40,))
    codes = rng.integers(0, 40, size=(2, 41))
    codes[0, 0] = 39
    long = {"codes": codes} | weights | {"W_hy": weights["W_hy"] / 8}
    yield Case("13,000 weights, 40 steps", long)


def _one_hot(codes, V):
    return (codes[..., None] == np.arange(V)).astype(float)


def _states(codes, W_xh, W_hh, b_h):
    return _run(_one_hot(codes, W_xh.shape[1]), np.zeros((len(codes), len(b_h))), W_xh, W_hh, b_h)


def _late(hs):
    return np.concatenate([np.zeros_like(hs[:, :1]), hs[:, :-1]], axis=1)


def _softmax(scores, axis=-1):
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _log_likelihoods(
    codes, W_xh, W_hh, b_h, W_hy, b_y, read=slice(None, -1), wanted=slice(1, None), see=lambda hs: hs, axis=-1
):
    """Return (log-probabilities of all characters (B, T, V), those of the targets (B, T))."""
    scores = np.einsum("bth,vh->btv", see(_states(codes[:, read], W_xh, W_hh, b_h)), W_hy) + b_y
    logs = np.log(_softmax(scores, axis))
    return logs, (logs * _one_hot(codes[:, wanted], len(b_y))).sum(-1)


def _loss(*a, of=lambda logs, chosen: -chosen.mean(), **decisions):
    return float(of(*_log_likelihoods(*a, **decisions)))


def _scores_of_targets(codes, W_xh, W_hh, b_h, W_hy, b_y):
    scores = np.einsum("bth,vh->btv", _states(codes[:, :-1], W_xh, W_hh, b_h), W_hy) + b_y
    return float(-(scores * _one_hot(codes[:, 1:], len(b_y))).sum(-1).mean())


LOSS = Exercise(
    id="char-loss",
    points=3,
    reference=_loss,
    cases=model_cases,
    probe=call,
    result="the loss",
    section="“A character model, by hand”",
    forbidden=(
        "torch.nn.functional.cross_entropy",
        "torch.nn.functional.nll_loss",
        "torch.nn.CrossEntropyLoss",
        "torch.nn.NLLLoss",
    ),
    misconceptions={
        "each character is compared with itself": M(
            lambda *a: _loss(*a, wanted=slice(None, -1)),
            "At step t the network has just read character t. Which character is it to predict?",
        ),
        "the last character is read too, and each is compared with itself": M(
            lambda *a: _loss(*a, read=slice(None), wanted=slice(None)),
            "There is one prediction less than there are characters: after the last, nothing is known to come.",
        ),
        "the character before is predicted": M(
            lambda *a: _loss(*a, read=slice(1, None), wanted=slice(None, -1)),
            "Which end is cut off for the inputs, and which for the targets?",
        ),
        "the sum is taken instead of the mean": M(
            partial(_loss, of=lambda logs, chosen: -chosen.sum()),
            "The loss is a mean over all predictions of the batch.",
        ),
        "the loss is summed over time and averaged over the batch": M(
            partial(_loss, of=lambda logs, chosen: -chosen.sum(1).mean()),
            "Over how many predictions is the mean to be taken: those of a step, or all of them?",
        ),
        "the loss is summed over the batch and averaged over time": M(
            partial(_loss, of=lambda logs, chosen: -chosen.sum(0).mean()),
            "Over how many predictions is the mean to be taken: those of a sequence, or all of them?",
        ),
        "the number of characters is counted instead of that of predictions": M(
            partial(_loss, of=lambda logs, chosen: -chosen.sum() / (len(chosen) * (chosen.shape[1] + 1))),
            "A row of codes holds one character more than there are predictions.",
        ),
        "the mean runs over the V characters too": M(
            partial(_loss, of=lambda logs, chosen: -chosen.mean() / logs.shape[-1]),
            "A product with a one-hot vector is zero in most places. Do you count those places in the mean?",
        ),
        "the logarithms of all characters are averaged": M(
            partial(_loss, of=lambda logs, chosen: -logs.mean()),
            "Only the probability of the character that came counts.",
        ),
        "the logarithms of all characters are summed": M(
            partial(_loss, of=lambda logs, chosen: -logs.sum(-1).mean()),
            "Only the probability of the character that came counts.",
        ),
        "the logarithm has base 2": M(
            partial(_loss, of=lambda logs, chosen: -chosen.mean() / np.log(2)),
            "Nats come from the natural logarithm; base 2 gives bits.",
        ),
        "the logarithm has base 10": M(
            partial(_loss, of=lambda logs, chosen: -chosen.mean() / np.log(10)),
            "Nats come from the natural logarithm.",
        ),
        "the softmax is taken twice": M(
            partial(
                _loss, of=lambda logs, chosen: float((np.log(np.exp(np.exp(logs)).sum(-1)) - np.exp(chosen)).mean())
            ),
            "Probabilities need no second softmax. Which of your lines take one?",
        ),
        "the minus sign is missing": M(
            partial(_loss, of=lambda logs, chosen: chosen.mean()),
            "The logarithm of a probability is never positive. What sign should a loss have?",
        ),
        "the mean is taken before the logarithm": M(
            partial(_loss, of=lambda logs, chosen: -np.log(np.exp(chosen).mean())),
            "Each prediction has a loss of its own, and the mean is taken of these.",
        ),
        "the logarithm is missing": M(
            partial(_loss, of=lambda logs, chosen: -np.exp(chosen).mean()),
            "Cross-entropy is made of logarithms of probabilities.",
        ),
        "the error is 1 minus the probability": M(
            partial(_loss, of=lambda logs, chosen: 1 - np.exp(chosen).mean()),
            "Cross-entropy is made of logarithms of probabilities.",
        ),
        "the softmax is missing": M(
            _scores_of_targets,
            "Scores are no probabilities. What turns the one into the other?",
        ),
        "the softmax is taken over time": M(
            lambda *a: _loss(*a, axis=1),
            "The probabilities of the V characters add up to 1 at each step. Over which axis do yours?",
        ),
        "the softmax is taken over the batch": M(
            lambda *a: _loss(*a, axis=0),
            "The probabilities of the V characters add up to 1 at each step. Over which axis do yours?",
        ),
        "the softmax is taken over everything": M(
            lambda *a: _loss(*a, axis=(0, 1, 2)),
            "The probabilities of the V characters add up to 1 at each step. Over which axis do yours?",
        ),
        "the bias of the output is missing": M(
            lambda *a: _loss(*a[:-1], 0 * a[-1]),
            "Which argument is never used?",
        ),
        "only the last prediction counts": M(
            partial(_loss, of=lambda logs, chosen: -chosen[:, -1].mean()),
            "There is a prediction at every step.",
        ),
        "the scores are read off the state before": M(
            lambda *a: _loss(*a, see=_late),
            "The scores at step t come from h_t, which has read character t.",
        ),
        "the perplexity is returned": M(
            partial(_loss, of=lambda logs, chosen: np.exp(-chosen.mean())),
            "Perplexity is e to the power of the loss; the loss itself is asked for.",
        ),
    },
)


def _gradients(
    codes,
    W_xh,
    W_hh,
    b_h,
    W_hy,
    b_y,
    wanted=slice(1, None),
    signal=lambda p, target, scores: p - target,
    count=lambda B, T: B * T,
    axis=-1,
    see=lambda hs: hs,
    back=lambda dhs, hs: dhs,
    reach=_run_back,
):
    """Return the model's gradients. Each keyword stands for one decision, right unless another is given."""
    x, V = _one_hot(codes[:, :-1], len(b_y)), len(b_y)
    hs = _states(codes[:, :-1], W_xh, W_hh, b_h)
    scores = np.einsum("bth,vh->btv", hs, W_hy) + b_y
    d = signal(_softmax(scores, axis), _one_hot(codes[:, wanted], V), scores) / count(*hs.shape[:2])
    dhs = back(np.einsum("btv,vh->bth", d, W_hy), hs)
    found = reach(dhs, x, np.zeros_like(hs[:, 0]), hs, W_hh)
    outputs = {"W_hy": np.einsum("btv,bth->vh", d, see(hs)), "b_y": np.einsum("btv->v", d)}
    return {name: found[name] for name in _weights()} | outputs


def _then(arguments, change):
    found = _gradients(*arguments)
    return found | change(found)


def _at_the_last_step(p, target, scores):
    d = np.zeros_like(p)
    d[:, -1] = (p - target)[:, -1]
    return d


def _own_step_only(dhs, x, h0, hs, W_hh):
    return _run_back(dhs, x, h0, hs, 0 * W_hh)  # nothing is handed back


GRADIENTS = Exercise(
    id="char-gradients",
    points=4,
    reference=_gradients,
    cases=gradient_cases,
    probe=call,
    axes={"W_xh": "H V", "W_hh": "H H", "b_h": "H", "W_hy": "V H", "b_y": "V"},
    section="“A character model, by hand”",
    forbidden=(BY_AUTOGRAD,),
    misconceptions={
        "the loss is a sum over all predictions": M(
            partial(_gradients, count=lambda B, T: 1),
            "The loss is a mean. Where in your gradients is the number of predictions?",
        ),
        "the loss is averaged over the batch only": M(
            partial(_gradients, count=lambda B, T: B),
            "The loss is a mean over all predictions of the batch. How many are there?",
        ),
        "the loss is averaged over time only": M(
            partial(_gradients, count=lambda B, T: T),
            "The loss is a mean over all predictions of the batch. How many are there?",
        ),
        "the number of characters is counted instead of that of predictions": M(
            partial(_gradients, count=lambda B, T: B * (T + 1)),
            "A row of codes holds one character more than there are predictions.",
        ),
        "the number of predictions is missing in what goes back to the states": M(
            lambda *a: _gradients(*a, back=lambda dhs, hs: dhs * a[0][:, 1:].size),
            "The mean belongs to the gradient of the scores, before it branches. Which branch lacks it?",
        ),
        "the number of predictions is missing in the output layer's gradients": M(
            lambda *a: _then(a, lambda f: {n: f[n] * a[0][:, 1:].size for n in ("W_hy", "b_y")}),
            "The mean belongs to the gradient of the scores, before it branches. Which branch lacks it?",
        ),
        "the gradients of what lies below the output layer are divided twice": M(
            lambda *a: _gradients(*a, back=lambda dhs, hs: dhs / a[0][:, 1:].size),
            "The mean is in the gradient of the scores already.",
        ),
        "the one-hot vector of the target is not subtracted": M(
            partial(_gradients, signal=lambda p, target, scores: p),
            "The gradient of the scores is a difference of two vectors. Does yours know the targets?",
        ),
        "the sign is reversed": M(
            partial(_gradients, signal=lambda p, target, scores: target - p),
            "A score that is too high has to come down: its gradient is positive.",
        ),
        "the softmax is missing": M(
            partial(_gradients, signal=lambda p, target, scores: scores - target),
            "The one-hot vector is subtracted from probabilities. What are yours?",
        ),
        "the softmax is taken over time": M(
            lambda *a: _gradients(*a, axis=1),
            "The probabilities of the V characters add up to 1 at each step. Over which axis do yours?",
        ),
        "a slope p(1 - p) is multiplied in": M(
            partial(_gradients, signal=lambda p, target, scores: (p - target) * p * (1 - p)),
            "In p minus the one-hot vector the slope of the softmax is already contained.",
        ),
        "minus one over the probability is used, without going back through the softmax": M(
            partial(_gradients, signal=lambda p, target, scores: -target / p),
            "That is the gradient of the probabilities. How do you get from there to the scores?",
        ),
        "each character is compared with itself": M(
            lambda *a: _gradients(*a, wanted=slice(None, -1)),
            "At step t the network has just read character t. Which character is it to predict?",
        ),
        "the slope of tanh is multiplied in twice": M(
            partial(_gradients, back=lambda dhs, hs: dhs * (1 - hs * hs)),
            "dhs is the gradient of the states. Who multiplies by the slope of tanh, you or rnn_backward?",
        ),
        "the softmax is taken twice": M(
            partial(_gradients, signal=lambda p, target, scores: _softmax(p) - target),
            "Probabilities need no second softmax. Which of your lines take one?",
        ),
        "the mean runs over the V characters too": M(
            lambda *a: _gradients(*a, count=lambda B, T: B * T * len(a[-1])),
            "The loss is a mean over all predictions. How many numbers does your mean count?",
        ),
        "only the last prediction counts": M(
            partial(_gradients, signal=_at_the_last_step),
            "There is a prediction at every step.",
        ),
        "the gradient from the next step is left out": M(
            partial(_gradients, reach=_own_step_only),
            "A state acts on its own prediction and on all later ones.",
        ),
        "the gradient of W_hy is made with the state before": M(
            partial(_gradients, see=_late),
            "W_hy read the state of the same step.",
        ),
        "the gradient of W_hy is transposed": M(
            lambda *a: _then(a, lambda found: {"W_hy": found["W_hy"].T}),
            "A gradient has the shape of what it is the gradient of.",
        ),
        "the gradient of b_y is not summed over time": M(
            lambda *a: _gradients(*a) | {"b_y": _b_y_of_each_step(*a)},
            "All steps used the same bias. What becomes of the parts?",
        ),
        "the gradient of b_y is divided by the number of predictions once more": M(
            lambda *a: _then(a, lambda found: {"b_y": found["b_y"] / a[0][:, 1:].size}),
            "The mean is in the gradient of the scores already.",
        ),
        "the states get the gradient of the scores through the transpose of W_hy": M(
            lambda codes, W_xh, W_hh, b_h, W_hy, b_y: _gradients(
                codes,
                W_xh,
                W_hh,
                b_h,
                W_hy,
                b_y,
                back=lambda dhs, hs: _through(codes, W_xh, W_hh, b_h, W_hy, b_y) @ W_hy.T,
            ),
            "Forwards, the rows were multiplied by the transpose. What does a row multiply on the way back?",
        ),
    },
)


def _through(codes, W_xh, W_hh, b_h, W_hy, b_y):
    """Return the gradient of the scores, (B, T, V)."""
    hs = _states(codes[:, :-1], W_xh, W_hh, b_h)
    p = _softmax(np.einsum("bth,vh->btv", hs, W_hy) + b_y)
    return (p - _one_hot(codes[:, 1:], len(b_y))) / codes[:, 1:].size


def _b_y_of_each_step(*a):
    return _through(*a).sum(0)


# ----------------------------------------------------------------------------------------------------------
# char-write: write(first, draws, W_xh, W_hh, b_h, W_hy, b_y) -> the characters written, (n,) whole numbers


def writing_cases(rng):
    def arguments(n, V, H, biases=1.0):
        while True:
            weights = draw.recurrent(rng, V, H) | draw.normal(rng, W_hy=(V, H), b_y=(V,))
            for name, scale in (("W_hy", 0.7), ("b_h", biases), ("b_y", biases)):
                weights[name] *= scale
            borders, given = [], {"first": int(rng.integers(V)), "draws": rng.uniform(size=n)} | weights
            written = _written(**given, choose=partial(_noting, borders))
            if min(borders) > 1e-5 and np.bincount(written).max() < 0.8 * n:  # not near a border, not all alike
                return given

    one_unit = {"W_xh": [[0.5, -0.5]], "W_hh": [[1.0]], "b_h": [0.5], "W_hy": [[1.0], [-1.0]], "b_y": [-0.5, 0.0]}
    by_hand = {"first": 0, "draws": np.array([0.75, 0.4, 0.45, 0.95, 0.8])}
    yield Case("one unit, two characters, five draws", by_hand | {name: np.array(a) for name, a in one_unit.items()})
    yield Case("no bias", arguments(60, 4, 8, biases=0.0))
    yield Case("V and H different", arguments(100, 5, 9))
    yield Case("V = H", arguments(100, 7, 7))


def _noting(borders, p, u):
    """Note how far the number is from the borders, and choose."""
    borders.append(np.abs(p.cumsum() - u).min())
    return _chosen(p, u)


def _chosen(p, u):
    return int(np.searchsorted(np.cumsum(p), u, side="right"))


def _exponentials(y):
    return np.exp(y)


def _written(
    first,
    draws,
    W_xh,
    W_hh,
    b_h,
    W_hy,
    b_y,
    squash=_softmax,
    choose=_chosen,
    read=lambda first, k, written: written[-1] if written else first,
    carry=lambda h, new: new,
    see=lambda h, new: new,
):
    """Return what is written. Each keyword stands for one decision, right unless another is given."""
    h, written = np.zeros(len(b_h)), []
    for k, u in enumerate(draws):
        new = np.tanh(W_xh[:, read(first, k, written)] + W_hh @ h + b_h)
        written.append(min(choose(squash(W_hy @ see(h, new) + b_y), u), len(b_y) - 1))
        h = carry(h, new)
    return np.array(written)


def _without_tanh(first, draws, W_xh, W_hh, b_h, W_hy, b_y):
    h, written = np.zeros(len(b_h)), [first]
    for u in draws:
        h = W_xh[:, written[-1]] + W_hh @ h + b_h
        written.append(_chosen(_softmax(W_hy @ h + b_y), u))
    return np.array(written[1:])


WRITE = Exercise(
    id="char-write",
    points=3,
    reference=_written,
    cases=writing_cases,
    probe=call,
    axes="n",
    result="the text",
    section="“A character model, by hand”",
    misconceptions={
        "the likeliest character is always taken": M(
            partial(_written, choose=lambda p, u: int(p.argmax())),
            "What does a number of draws decide in your code? The likeliest character is always the same one.",
        ),
        "the character before the one on which the number falls is taken": M(
            partial(_written, choose=lambda p, u: max(_chosen(p, u) - 1, 0)),
            "A number smaller than p[0] falls on character 0. On which does yours fall?",
        ),
        "the first character that is by itself likelier than the number is taken": M(
            partial(_written, choose=lambda p, u: int(np.argmax(p > u))),
            "The probabilities lie end to end. Where on the line does the second one begin?",
        ),
        "the character is taken whose probability is nearest to the number": M(
            partial(_written, choose=lambda p, u: int(np.abs(p - u).argmin())),
            "The probabilities lie end to end. Where on the line does the second one begin?",
        ),
        "the character is taken whose end is nearest to the number": M(
            partial(_written, choose=lambda p, u: int(np.abs(np.cumsum(p) - u).argmin())),
            "A character covers the line up to its end. Does the number fall before or behind the end you chose?",
        ),
        "the line is laid out from the last character": M(
            partial(_written, choose=lambda p, u: len(p) - 1 - _chosen(p[::-1], u)),
            "Which character lies at 0?",
        ),
        "the softmax is missing": M(
            partial(
                _written,
                squash=lambda y: y,
                choose=lambda p, u: int(np.argmax(np.cumsum(p) > u)),
            ),
            "Scores are no probabilities. What turns the one into the other?",
        ),
        "the exponentials are not divided by their sum": M(
            partial(_written, squash=_exponentials),
            "Together the probabilities are 1 long. How long are yours?",
        ),
        "the state is not carried on": M(
            partial(_written, carry=lambda h, new: 0 * new),
            "Which state does the second step begin with?",
        ),
        "first is read at every step": M(
            partial(_written, read=lambda first, k, written: first),
            "The model reads what it wrote. Which character does the second step read?",
        ),
        "the scores are read off the state before": M(
            partial(_written, see=lambda h, new: h),
            "The scores come from the state that has read the newest character.",
        ),
        "first is among what is returned": M(
            lambda *a: np.concatenate([[a[0]], _written(*a)]),
            "There is one character for each number in draws.",
        ),
        "first is among what is returned, and the last character is not": M(
            lambda *a: np.concatenate([[a[0]], _written(*a)[:-1]]),
            "What the first number chooses is the first character to return.",
        ),
        "the first number is used at every step": M(
            lambda first, draws, *a: _written(first, 0 * draws + draws[0], *a),
            "There is one number for each character.",
        ),
        "the bias of the output is missing": M(
            lambda *a: _written(*a[:-1], 0 * a[-1]),
            "Which argument is never used?",
        ),
        "the bias of the state is missing": M(
            lambda *a: _written(*a[:4], 0 * a[4], *a[5:]),
            "Which argument is never used?",
        ),
        "all characters are taken to be equally likely": M(
            partial(_written, choose=lambda p, u: int(len(p) * u)),
            "Each character covers a part of the line as long as its probability. Where do the scores come in?",
        ),
        "W_hh is transposed": M(
            lambda *a: _written(*a[:3], a[3].T, *a[4:]),
            "A column stands on the right of its matrix, a row on the left of the transpose. Which of them is your h?",
        ),
        "tanh is missing": M(
            _without_tanh,
            "The sum of the three terms is not yet the state.",
        ),
    },
)

EXERCISES = [STEP, SEQUENCE, Manual("leaky-derivation", 3), CHECK, TRUNCATED, LOSS, GRADIENTS, WRITE]
