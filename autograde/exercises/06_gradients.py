"""Chapter 6: gradients over time, the product of Jacobians, clipping, an orthogonal start, and a prediction."""

from functools import lru_cache, partial

import numpy as np

import rnncore
from autograde import draw
from autograde.exercise import Case, Exercise
from autograde.exercise import Misconception as M
from autograde.probes import (
    Unusable,
    call,
    clipped_and_norm,
    orthogonal_draws,
    predictions,
    singular_values,
)

BY_AUTOGRAD = "torch.autograd"

# ----------------------------------------------------------------------------------------------------------
# gradient-norms: gradient_norms(dhs, hs, W_hh) -> (B, T)


def norm_cases(rng):
    def arguments(B, T, H, losses=slice(None), gain=0.9):
        drawn = draw.normal(rng, dhs=(B, T, H)) | draw.recurrent(rng, 1, H, gain)
        dhs = np.zeros((B, T, H))
        dhs[:, losses] = drawn["dhs"][:, losses]
        x = draw.normal(rng, x=(B, T, 1))["x"]
        hs = rnncore.rnn_forward(x, None, drawn["W_xh"], drawn["W_hh"], drawn["b_h"])
        return {"dhs": dhs, "hs": hs, "W_hh": drawn["W_hh"]}

    by_hand = {"dhs": np.array([[[1.0], [-0.5]]]), "hs": np.array([[[0.6], [-0.8]]]), "W_hh": np.array([[2.0]])}
    yield Case("one unit, two steps, numbers to check by hand", by_hand)
    yield Case("a loss at the last step only", arguments(2, 5, 3, losses=-1))
    yield Case("a loss at the first step only", arguments(2, 4, 3, losses=0))
    yield Case("a loss at every step; B, T and H all different", arguments(3, 6, 4))
    yield Case("B = T = H", arguments(4, 4, 4))
    yield Case("a batch of one, and gradients that grow", arguments(1, 7, 3, losses=-1, gain=3.0))


def _norms(
    dhs,
    hs,
    W_hh,
    slope=lambda hs, t: 1 - hs[:, t] ** 2,
    back=lambda g, slope, W: (g * slope) @ W,
    arrives=lambda own, later: own + later,
    size=lambda found: np.sqrt(np.einsum("bth,bth->bt", found, found)),
    keep=lambda g, slope: g,
):
    """Return the norm of dL/dh_t at every step. Each keyword stands for one decision."""
    found, later = np.empty_like(dhs), np.zeros_like(dhs[:, 0])
    for t in range(dhs.shape[1])[::-1]:
        g = arrives(dhs[:, t], later)
        found[:, t] = keep(g, slope(hs, t))
        later = back(g, slope(hs, t), W_hh)
    return size(found)


def _into_dhs(dhs, hs, W_hh):
    for t in range(dhs.shape[1])[:0:-1]:
        dhs[:, t - 1] += (dhs[:, t] * (1 - hs[:, t] ** 2)) @ W_hh
    return np.linalg.norm(dhs, axis=2)


def _from_the_last_loss(dhs, hs, W_hh):
    last = np.zeros_like(dhs)
    last[:, -1] = dhs[:, -1]
    return _norms(last, hs, W_hh)


def _all_at_the_end(dhs, hs, W_hh):
    last = np.zeros_like(dhs)
    last[:, -1] = dhs.sum(1)
    return _norms(last, hs, W_hh)


def _of_later_losses(dhs, hs, W_hh):
    """Return the norm of what comes back from the losses after each step."""
    found = [_norms(dhs * (np.arange(dhs.shape[1]) > t)[:, None], hs, W_hh)[:, t] for t in range(dhs.shape[1])]
    return np.stack(found, 1)


def _one_step_early(dhs, hs, W_hh):
    """Return at place t the norm of what goes on from t to t - 1: the last but one of all is dL/dh_0."""
    found = []
    later = np.zeros_like(dhs[:, 0])
    for t in range(dhs.shape[1])[::-1]:
        later = ((dhs[:, t] + later) * (1 - hs[:, t] ** 2)) @ W_hh
        found.insert(0, np.linalg.norm(later, axis=1))
    return np.stack(found, 1)


NORMS = Exercise(
    id="gradient-norms",
    points=3,
    reference=_norms,
    cases=norm_cases,
    probe=call,
    axes="B T",
    result="the norm",
    section="“A product of Jacobians”",
    forbidden=("rnncore.rnn_backward", "rnncore.state_gradients", BY_AUTOGRAD),
    misconceptions={
        "only the step's own loss is looked at": M(
            partial(_norms, arrives=lambda own, later: own),
            "A state acts on its own loss and on all later ones. What does the second part do in your loop?",
        ),
        "the own losses of earlier steps are left out": M(
            _from_the_last_loss,
            "There may be a loss at every step. Where in your loop does the own one come in?",
        ),
        "a step's own loss is left out of its norm": M(
            _of_later_losses,
            "A state acts on its own loss, too. Do you take the norm before the own loss comes in, or after it?",
        ),
        "all losses are added up at the last step": M(
            _all_at_the_end,
            "The loss of step t knows nothing of later states. Where in your loop does each one come in?",
        ),
        "the loop runs from the first step to the last": M(
            lambda dhs, hs, W: _norms(dhs[:, ::-1], hs[:, ::-1], W)[:, ::-1].copy(),
            "Which states does a loss depend on: earlier ones, or later ones?",
        ),
        "W_hh is transposed": M(
            partial(_norms, back=lambda g, slope, W: (g * slope) @ W.T),
            "Forwards, rows are multiplied by the transpose. And backwards?",
        ),
        "the slope of tanh is missing": M(
            partial(_norms, slope=lambda hs, t: np.ones_like(hs[:, t])),
            "Between h_t and the sum stands tanh. What does it multiply by?",
        ),
        "the slope is taken at the state before the step": M(
            partial(_norms, slope=lambda hs, t: 1 - hs[:, t - 1] ** 2 if t else np.ones_like(hs[:, 0])),
            "On the way from h_t to h_(t-1), which of the two did tanh give?",
        ),
        "the slope comes after the product with W_hh": M(
            partial(_norms, back=lambda g, slope, W: np.einsum("bi,ij->bj", g, W) * slope),
            "Walk back in the reverse of the order in which the step was computed.",
        ),
        "tanh is taken once more in the slope": M(
            partial(_norms, slope=lambda hs, t: 1 - np.tanh(hs[:, t]) ** 2),
            "What is in hs already?",
        ),
        "the norms are those of dL/da_t, before tanh": M(
            partial(_norms, keep=lambda g, slope: g * slope),
            "Asked for is the gradient of the state, as it arrives there.",
        ),
        "the norms are squared": M(
            partial(_norms, size=lambda found: (found**2).sum(2)),
            "The norm of (3, 4) is 5.",
        ),
        "the largest entry is taken for the norm": M(
            partial(_norms, size=lambda found: np.abs(found).max(2)),
            "The norm of (3, 4) is 5.",
        ),
        "the magnitudes are added up": M(
            partial(_norms, size=lambda found: np.abs(found).sum(2)),
            "The norm of (3, 4) is 5.",
        ),
        "the norm is divided by the square root of H": M(
            partial(_norms, size=lambda found: np.sqrt((found**2).mean(2))),
            "That is the root of a mean. The norm of (3, 4) is 5.",
        ),
        "one norm is taken over the whole batch": M(
            partial(_norms, size=lambda found: np.sqrt((found**2).sum((0, 2)))),
            "Each sequence has gradients of its own: B · T numbers are asked for.",
        ),
        "one norm is taken over the whole batch, and stands at each sequence": M(
            partial(_norms, size=lambda found: np.sqrt((found**2).sum((0, 2)))[None].repeat(len(found), 0)),
            "Each sequence has gradients of its own. Over which axis do you take the norm?",
        ),
        "the norms are averaged over the batch": M(
            partial(_norms, size=lambda found: np.sqrt((found**2).sum(2)).mean(0)),
            "Each sequence has gradients of its own: B · T numbers are asked for.",
        ),
        "the norms are divided by B": M(
            lambda dhs, hs, W: _norms(dhs, hs, W) / len(dhs),
            "If the loss is a mean, its 1/B is already in dhs.",
        ),
        "the steps are in reverse order": M(
            lambda dhs, hs, W: _norms(dhs, hs, W)[:, ::-1].copy(),
            "The loop runs from the last step to the first. In which order do the results lie in yours?",
        ),
        "each norm stands one step late": M(
            _one_step_early,
            "At place t is to be what has arrived at h_t. Do you take the norm before the step back, or after it?",
        ),
        "dhs is changed in place": M(
            _into_dhs,
            "Adding with += writes into the caller's array. Give the sum a name of its own.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# jacobian-product: jacobian_product(hs, W_hh, start, stop) -> (B, H, H)


def product_cases(rng):
    def arguments(B, T, H, start, stop, gain=1.5):
        weights = draw.recurrent(rng, 2, H, gain)
        x = draw.normal(rng, x=(B, T, 2))["x"]
        hs = rnncore.rnn_forward(x, None, weights["W_xh"], weights["W_hh"], weights["b_h"])
        return {"hs": hs, "W_hh": weights["W_hh"], "start": start, "stop": stop}

    by_hand = {"hs": np.array([[[0.6], [-0.8]]]), "W_hh": np.array([[2.0]]), "start": 0, "stop": 2}
    yield Case("one unit, two steps, numbers to check by hand", by_hand)
    yield Case("a single step, T = 1", arguments(2, 1, 3, 0, 1))
    yield Case("two steps; B, T and H all different", arguments(2, 5, 3, 1, 3))
    yield Case("from h_0 to the last state", arguments(3, 6, 4, 0, 6))
    yield Case("from the first state to the last", arguments(2, 4, 2, 1, 4))
    yield Case("a batch of one", arguments(1, 5, 3, 2, 4))
    yield Case("no step at all: start = stop", arguments(2, 3, 4, 2, 2))


def _product(
    hs,
    W_hh,
    start,
    stop,
    jacobian=lambda hs, W, t: np.einsum("bi,ij->bij", 1 - hs[:, t] ** 2, W),
    steps=range,
    put=lambda J, product: J @ product,
):
    """Return the product of the steps' Jacobians. Each keyword stands for one decision."""
    product = np.stack([np.eye(len(W_hh))] * len(hs))
    for t in steps(start, stop):
        product = put(jacobian(hs, W_hh, t), product)
    return product


def _slope_on_columns(hs, W, t):
    return np.einsum("ij,bj->bij", W, 1 - hs[:, t] ** 2)


def _slope_of_the_step_before(hs, W, t):
    return np.einsum("bi,ij->bij", 1 - hs[:, t - 1] ** 2, W)  # before the first, Python takes the last


def _transposed_step(hs, W, t):
    return np.einsum("ji,bj->bij", W, 1 - hs[:, t] ** 2)


PRODUCT = Exercise(
    id="jacobian-product",
    points=3,
    reference=_product,
    cases=product_cases,
    probe=call,
    axes="B H H",
    result="the product",
    section="“A product of Jacobians”",
    forbidden=("rnncore.jacobian_product", "rnncore.rnn_jacobian", BY_AUTOGRAD, "torch.func"),
    misconceptions={
        "the earlier step stands on the left": M(
            partial(_product, put=lambda J, product: product @ J),
            "Put a row on the left of the product: which step does it meet first on its way back?",
        ),
        "the product is transposed": M(
            lambda *a: _product(*a).swapaxes(1, 2).copy(),
            "Entry i, j says how h_stop[i] changes with h_start[j]. The norms would be the same.",
        ),
        "each step is transposed and the order kept": M(
            partial(_product, jacobian=_transposed_step),
            "Row i of a Jacobian belongs to entry i of the result.",
        ),
        "W_hh is transposed": M(
            partial(_product, jacobian=lambda hs, W, t: np.einsum("bi,ji->bij", 1 - hs[:, t] ** 2, W)),
            "Entry i of a state meets row i of W_hh in the step forwards. And in its Jacobian?",
        ),
        "the slope multiplies the columns of W_hh": M(
            partial(_product, jacobian=_slope_on_columns),
            "diag(d) W has row i of W times d[i]. Which axis of W_hh does your slope meet?",
        ),
        "the slope of tanh is missing": M(
            partial(_product, jacobian=lambda hs, W, t: np.stack([W] * len(hs))),
            "W_hh alone is the Jacobian of a linear step.",
        ),
        "the slope is taken at the state before the step": M(
            partial(_product, jacobian=_slope_of_the_step_before),
            "J_t belongs to the step that gave h_t, which is hs[:, t - 1].",
        ),
        "the state in the slope is not squared": M(
            partial(_product, jacobian=lambda hs, W, t: np.einsum("bi,ij->bij", 1 - hs[:, t], W)),
            "A slope of tanh is never above 1. Is yours, where the state is negative?",
        ),
        "tanh is taken once more in the slope": M(
            partial(_product, jacobian=lambda hs, W, t: np.einsum("bi,ij->bij", 1 - np.tanh(hs[:, t]) ** 2, W)),
            "What is in hs already?",
        ),
        "the difference 1 - h is squared": M(
            partial(_product, jacobian=lambda hs, W, t: np.einsum("bi,ij->bij", (1 - hs[:, t]) ** 2, W)),
            "A slope of tanh is never above 1. Is yours, where the state is negative?",
        ),
        "all slopes are multiplied first, and then a power of W_hh": M(
            lambda hs, W, start, stop: np.einsum(
                "bi,ij->bij", np.prod(1 - hs[:, start:stop] ** 2, axis=1), np.linalg.matrix_power(W, stop - start)
            ),
            "Matrices do not change places. What stands between the slopes of two steps?",
        ),
        "the product is taken entry by entry, from the identity on": M(
            partial(_product, put=lambda J, product: J * product),
            "A product of matrices sums over the states in between.",
        ),
        "the product is taken entry by entry": M(
            lambda hs, W, start, stop: (
                _product(hs, W, start, stop, put=lambda J, p: J * p)
                if stop - start < 1
                else np.prod([_product(hs, W, t, t + 1) for t in range(start, stop)], axis=0)
            ),
            "A product of matrices sums over the states in between.",
        ),
        "one step too many is taken, at the beginning": M(
            partial(_product, steps=lambda start, stop: range(start - 1, stop)),
            "From h_start to h_stop lead stop - start steps. What is there for start = stop?",
        ),
        "the last step is left out": M(
            partial(_product, steps=lambda start, stop: range(start, stop - 1)),
            "From h_start to h_stop lead stop - start steps.",
        ),
        "the first step is left out": M(
            partial(_product, steps=lambda start, stop: range(start + 1, stop)),
            "From h_start to h_stop lead stop - start steps. Which is the first state that one of them gives?",
        ),
        "all steps are taken, whatever start and stop": M(
            lambda hs, W, start, stop: _product(hs, W, 0, hs.shape[1]),
            "Which arguments are never used?",
        ),
        "the Jacobians are averaged over the batch": M(
            lambda hs, W, start, stop: _product(
                hs, W, start, stop, jacobian=lambda hs, W, t: np.stack([_product(hs, W, t, t + 1).mean(0)] * len(hs))
            ),
            "Each sequence has states, slopes and Jacobians of its own.",
        ),
        "the product is averaged over the batch": M(
            lambda *a: _product(*a).mean(0),
            "Each sequence has a product of its own: B of them are asked for.",
        ),
        "the Jacobians are added up": M(
            lambda hs, W, start, stop: sum(
                (_product(hs, W, t, t + 1) for t in range(start, stop)), 0 * _product(hs, W, start, start)
            ),
            "One step after the other: what does the chain rule do with their Jacobians?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# clip-gradients: clip(grads, max_norm) -> {name: array}, the norm before


def clip_cases(rng):
    def arguments(norm, max_norm, **shapes):
        grads = draw.normal(rng, **shapes)
        size = np.sqrt(sum((g**2).sum() for g in grads.values()))
        return {"grads": {name: g * (norm / size) for name, g in grads.items()}, "max_norm": max_norm}

    alike = {"W_xh": (6, 6), "W_hh": (6, 6), "W_hy": (6, 6)}
    by_hand = {"grads": {"W_hh": np.array([[6.0]]), "b_h": np.array([8.0])}, "max_norm": 5.0}
    yield Case("two numbers to check by hand, norm 10", by_hand)
    yield Case("norm 20, limit 1", arguments(20.0, 1.0, W_xh=(3, 2), W_hh=(3, 3), b_h=(3,)))
    yield Case("norm 0.3, limit 2: below it", arguments(0.3, 2.0, W_xh=(4, 2), W_hh=(4, 4), b_h=(4,)))
    yield Case("norm 3, limit 2: each array is below it, together they are not", arguments(3.0, 2.0, **alike))
    yield Case("one array with three axes, norm 7, limit 0.5", arguments(7.0, 0.5, kernel=(2, 3, 3)))


def _whole(grads):
    return np.sqrt(sum(float(np.sum(g * g)) for g in grads.values()))


def _clip(grads, max_norm, norm=_whole, scale=lambda norm, limit: limit / norm if norm > limit else 1.0, says=None):
    """Return clipped gradients and the norm before. Each keyword stands for one decision."""
    found = norm(grads)
    factor = scale(found, max_norm)
    return {name: g * factor for name, g in grads.items()}, found if says is None else says(found, max_norm)


def _each_alone(grads, max_norm):
    return {name: g * min(1.0, max_norm / np.linalg.norm(g)) for name, g in grads.items()}, _whole(grads)


def _in_place(grads, max_norm):
    clipped, norm = _clip(grads, max_norm)
    for name, g in grads.items():
        g[...] = clipped[name]
    return grads, norm


CLIP = Exercise(
    id="clip-gradients",
    points=2,
    reference=_clip,
    cases=clip_cases,
    probe=clipped_and_norm,
    section="“Clipping treats one of the two”",
    forbidden=("rnncore.clip_by_global_norm", "torch.nn.utils"),
    tolerance=1e-5,  # PyTorch adds 1e-6 to the norm; that counts as equal
    misconceptions={
        "each array is clipped by itself": M(
            _each_alone,
            "The norm is one number, of all arrays together; only so does the direction stay.",
        ),
        "gradients below the limit are scaled up to it": M(
            partial(_clip, scale=lambda norm, limit: limit / norm),
            "What should become of a gradient that is shorter than the limit?",
        ),
        "each number is cut off at the limit": M(
            lambda grads, limit: ({n: np.clip(g, -limit, limit) for n, g in grads.items()}, _whole(grads)),
            "That changes the direction. Here one factor is to be found for all numbers.",
        ),
        "the norms of the arrays are added up": M(
            partial(_clip, norm=lambda grads: sum(float(np.linalg.norm(g)) for g in grads.values())),
            "Think of all numbers in one long vector. Is its norm the sum of the norms of its pieces?",
        ),
        "of each matrix the largest singular value counts": M(
            partial(_clip, norm=lambda grads: sum(float(np.linalg.norm(g, ord=2)) ** 2 for g in grads.values()) ** 0.5),
            "Of a matrix, NumPy's norm of order 2 is another one. Which norm squares and adds all entries?",
        ),
        "the largest norm of an array counts": M(
            partial(_clip, norm=lambda grads: max(float(np.linalg.norm(g)) for g in grads.values())),
            "Think of all numbers in one long vector. What is its norm?",
        ),
        "the root is missing in the norm": M(
            partial(_clip, norm=lambda grads: _whole(grads) ** 2),
            "The norm of (3, 4) is 5.",
        ),
        "the magnitudes are added up": M(
            partial(_clip, norm=lambda grads: sum(float(np.abs(g).sum()) for g in grads.values())),
            "The norm of (3, 4) is 5.",
        ),
        "the largest magnitude counts": M(
            partial(_clip, norm=lambda grads: max(float(np.abs(g).max()) for g in grads.values())),
            "The norm of (3, 4) is 5.",
        ),
        "the squares are averaged, not summed": M(
            partial(_clip, norm=lambda grads: _whole(grads) / sum(g.size for g in grads.values()) ** 0.5),
            "How long is the vector of all numbers? Its length does not shrink as it gets more entries.",
        ),
        "the mean of the arrays' norms counts": M(
            partial(_clip, norm=lambda grads: float(np.mean([np.linalg.norm(g) for g in grads.values()]))),
            "Think of all numbers in one long vector. What is its norm?",
        ),
        "the gradients are divided by the norm, whatever the limit": M(
            partial(_clip, scale=lambda norm, limit: 1 / norm if norm > limit else 1.0),
            "How long is the result? Which argument should say that?",
        ),
        "the limit is not divided by the norm": M(
            partial(_clip, scale=lambda norm, limit: limit if norm > limit else 1.0),
            "By which factor does a vector of length 10 get the length 5?",
        ),
        "the factor is turned upside down": M(
            partial(_clip, scale=lambda norm, limit: norm / limit if norm > limit else 1.0),
            "Are the gradients shorter after your function, or longer?",
        ),
        "the ratio in the minimum is turned upside down": M(
            partial(_clip, scale=lambda norm, limit: min(1.0, norm / limit)),
            "By which factor does a vector of length 10 get the length 5?",
        ),
        "the larger factor is taken, not the smaller": M(
            partial(_clip, scale=lambda norm, limit: max(1.0, limit / norm)),
            "What does your factor do to a gradient of norm 10, with a limit of 5? And with a limit of 20?",
        ),
        "long gradients are set to zero": M(
            partial(_clip, scale=lambda norm, limit: 0.0 if norm > limit else 1.0),
            "The direction of a long gradient is still worth something.",
        ),
        "the norm after clipping is returned": M(
            partial(_clip, says=lambda norm, limit: norm * min(1, limit / norm)),
            "The norm before is what tells how often, and how much, was clipped.",
        ),
        "the norm is right and nothing is clipped": M(
            partial(_clip, scale=lambda norm, limit: 1.0),
            "Which argument is never used?",
        ),
        "the gradients are changed in place": M(
            _in_place,
            "Whoever called may need the gradients as they were. Make new arrays.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# orthogonal-start: orthogonal(H, gain, rng) -> (H, H)


def orthogonal_cases(rng):
    def arguments(H, gain):
        return {"H": H, "gain": gain, "seed": int(rng.integers(1_000_000))}

    yield Case("H = 20, gain 1", arguments(20, 1.0))
    yield Case("H = 64, gain 1", arguments(64, 1.0))
    yield Case("H = 20, gain 1.5", arguments(20, 1.5))
    yield Case("H = 33, gain 0.8", arguments(33, 0.8))


def _orthogonal(H, gain, rng, start=lambda rng, H: rng.normal(size=(H, H)), make=None, factor=lambda gain: gain):
    """Return gain times an orthogonal matrix, from a singular value decomposition. Keywords stand for decisions."""
    drawn = start(rng, H)
    if make is not None:
        return factor(gain) * make(drawn)
    left, _, right = np.linalg.svd(drawn)
    return factor(gain) * np.einsum("ij,jk->ik", left, right)


def _made(make, **more):
    return M(partial(_orthogonal, make=make), **more)


def _lengths(W, axis):
    return W / np.sqrt((W * W).sum(axis, keepdims=True))


SCALED = "Scaling all entries alike cannot make the singular values equal. What turns one direction into another?"
ALL_ALIKE = "Which singular values should the matrix have? Compute all that yours has, and look."

ORTHOGONAL = Exercise(
    id="orthogonal-start",
    points=2,
    reference=_orthogonal,
    cases=orthogonal_cases,
    probe=orthogonal_draws,
    measure=singular_values,  # anyone knows which singular values are asked for; the matrix has to be drawn
    section="“A better start”",
    forbidden=("rnncore", "torch.nn.init"),
    misconceptions={
        "the matrix is drawn and left as it is": _made(lambda W: W, advice=ALL_ALIKE),
        "the matrix is drawn and divided by √H": _made(lambda W: W / len(W) ** 0.5, advice=SCALED),
        "the matrix is divided by its largest singular value": _made(
            lambda W: W / np.linalg.norm(W, ord=2), advice=SCALED
        ),
        "the matrix is divided by its spectral radius": _made(
            lambda W: W / np.abs(np.linalg.eigvals(W)).max(), advice=SCALED
        ),
        "the matrix is divided by its Frobenius norm": _made(lambda W: W / np.linalg.norm(W), advice=SCALED),
        "the rows are scaled to length 1": _made(
            lambda W: _lengths(W, 1), advice="The rows have the right length. Do they also stand at right angles?"
        ),
        "the columns are scaled to length 1": _made(
            lambda W: _lengths(W, 0), advice="The columns have the right length. Do they also stand at right angles?"
        ),
        "the triangular factor is returned": _made(
            lambda W: np.linalg.qr(W)[1], advice="A QR decomposition gives two matrices. Which of them is orthogonal?"
        ),
        "the gain is left out": M(
            partial(_orthogonal, factor=lambda gain: 1.0),
            "All singular values are to be the gain. Is it used, and does it survive all that you do after?",
        ),
        "the gain is squared": M(
            partial(_orthogonal, factor=lambda gain: gain * gain),
            "All singular values are to be the gain. Where is it multiplied in, and how often?",
        ),
        "the matrix is divided by the gain": M(
            partial(_orthogonal, factor=lambda gain: 1 / gain),
            "All singular values are to be the gain.",
        ),
        "the identity is returned, times the gain": _made(
            lambda W: np.eye(len(W)), advice="All singular values are right. But nothing is drawn: two draws are equal."
        ),
        "every generator gives the same matrix": M(
            lambda H, gain, rng: _orthogonal(H, gain, np.random.default_rng(0)),
            "Two networks with two generators would start alike. Which argument is never used?",
        ),
        "the numbers are drawn from elsewhere than rng": M(
            lambda H, gain, rng: _orthogonal(H, gain, np.random.default_rng()),
            "The same generator's seed is to give the same matrix. Which argument is never used?",
        ),
        "a random symmetric matrix is drawn": _made(
            lambda W: (W + W.T) / 2 / len(W) ** 0.5,
            advice="A symmetric matrix has eigenvectors at right angles. Its singular values are of many sizes.",
        ),
        "the numbers are drawn from a uniform distribution between ±1/√H": M(
            partial(
                _orthogonal,
                start=lambda rng, H: rng.uniform(-1, 1, (H, H)),
                make=lambda W: W / len(W) ** 0.5,
            ),
            "That is PyTorch's default. " + ALL_ALIKE,
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# predict-gain: predict_gain(W_hh, scale, T) -> log10 of the norm of ∂h_T/∂h_1

H = 16  # units of the held-out networks


def gain_cases(rng):
    def arguments(bar, matrices, scales, lengths):
        scale, T = np.array(scales, dtype=float), np.array(lengths)
        return {"W_hh": np.stack(matrices), "scale": scale, "T": T, "seed": _seed(rng), "bar": [bar]}

    sizes = [0.6, 0.9, 1.3, 1.6, 2.0]
    yield Case(
        "W_hh = I / 2, no input, T = 5: the gain is 0.5⁴ = 0.0625",
        {"W_hh": np.eye(2)[None] / 2, "scale": np.zeros(1), "T": np.array([5]), "seed": 0, "bar": [0.25]},
        counted=False,
    )
    yield Case(
        "no input, non-normal matrices: a quarter of the baseline's error",
        arguments(1 / 4, _skewed(rng), np.zeros(5), [6, 9, 12, 16, 20]),
    )
    for bar, word in ((1 / 3, "a third"), (1 / 4, "a quarter")):
        random = [_random(rng, rho) for rho in sizes]
        label = f"random matrices, inputs of size 0.5 to 2: {word} of the baseline's error"
        yield Case(label, arguments(bar, random, [1, 2, 0.5, 1, 1.5], [50, 20, 60, 40, 30]))
    orthogonal = [gain * np.linalg.qr(rng.normal(size=(H, H)))[0] for gain in sizes]
    yield Case(
        "orthogonal matrices times 0.6 to 2: a quarter of the baseline's error",
        arguments(1 / 4, orthogonal, [1, 1, 0.5, 1, 2], [20, 60, 50, 40, 30]),
    )
    mixed = [_random(rng, 1.8), _skewed(rng)[4], _random(rng, 0.7), 1.5 * np.linalg.qr(rng.normal(size=(H, H)))[0]]
    label = "all kinds, up to 100 steps: a fifth of the baseline's error"
    yield Case(label, arguments(1 / 5, mixed, [2, 0, 1, 0.7], [100, 20, 60, 60]))


def _seed(rng):
    return int(rng.integers(1_000_000))


def _random(rng, rho):
    W = rng.normal(size=(H, H))
    return W * (rho / _radius(W))


def _skewed(rng):
    """Return five matrices of a spectral radius below 1 that grow for a long time."""
    above = [np.triu(rng.normal(size=(H, H)), 1) * 0.8 for _ in range(5)]
    return [
        W + np.diag(rho * rng.uniform(0.5, 1.0, H)) for W, rho in zip(above, (0.5, 0.6, 0.7, 0.8, 0.9), strict=True)
    ]


def _radius(W):
    return np.abs(np.linalg.eigvals(W)).max()


def _gain(W_hh, scale, T, rng):
    """Run a network whose every unit gets scale · noise, from h_0 = 0; return log10 of the norm of ∂h_T/∂h_1."""
    x = scale * rng.normal(size=(1, T, len(W_hh)))
    hs = rnncore.rnn_forward(x, None, np.eye(len(W_hh)), W_hh, np.zeros(len(W_hh)))
    return float(np.log10(np.linalg.norm(rnncore.jacobian_product(hs, W_hh, 1, T)[0], ord=2)))


@lru_cache(maxsize=256)  # the 25 runs of a check serve the reference and the answer
def _measured(W_hh, units, scale, T, seed):
    W_hh = np.frombuffer(W_hh).reshape(units, units)
    return _gain(W_hh, scale, T, np.random.default_rng(seed))


class Said(str):
    """A text that a message shows without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def error_against_baseline(predicted, arguments):
    """Say how far predictions are from what is measured now, as a text: "at most 1.8", or how far.

    The inputs are drawn from arguments["seed"]. The mean error may be `bar` times that of the baseline,
    (T - 1) log10 ρ; where the baseline is right, `bar` itself.
    """
    matrices, (bar,) = arguments["W_hh"], arguments["bar"]
    if not (isinstance(predicted, np.ndarray) and predicted.shape == (len(matrices),) and predicted.dtype.kind == "f"):
        raise Unusable("The predictions are no array of one number for each matrix")
    each = list(zip(matrices, arguments["scale"], arguments["T"], strict=True))
    truth = [
        _measured(W.tobytes(), len(W), float(scale), int(T), arguments["seed"] + k)
        for k, (W, scale, T) in enumerate(each)
    ]
    error = np.abs(predicted - truth).mean()
    baseline = np.abs([_baseline(*one) - right for one, right in zip(each, truth, strict=True)]).mean()
    allowed = bar * baseline if baseline > bar else bar  # in the first case the baseline is right
    if error <= allowed:
        return Said(f"at most {allowed:.2f}" if baseline > bar else f"at most {bar}")
    return Said(f"{error:.2f} powers of ten, the baseline's {baseline:.2f}")


def _baseline(W_hh, scale, T):
    return (T - 1) * np.log10(_radius(W_hh))


def _simulated(W_hh, scale, T):
    rng = np.random.default_rng(1)
    return np.mean([_gain(W_hh, scale, T, rng) for _ in range(3)])


def _power(W_hh, scale, T):
    return np.log10(np.linalg.norm(np.linalg.matrix_power(W_hh, T - 1), ord=2))


PREDICT = Exercise(
    id="predict-gain",
    points=4,
    reference=_simulated,
    cases=gain_cases,
    probe=predictions,
    measure=error_against_baseline,  # what was measured is known to no one before
    result="the mean error",
    section="“Predict, then measure”",
    misconceptions={
        "every step is taken to multiply by the spectral radius": M(
            _baseline,
            "That is the baseline itself. It knows neither what the inputs do to the slopes nor that a matrix may grow "
            "before it decays.",
        ),
        "every step is taken to multiply by the spectral radius, T times": M(
            lambda W, scale, T: T * np.log10(_radius(W)),
            "From h_1 to h_T lead T - 1 steps. And what do the inputs do to the slopes?",
        ),
        "every step is taken to multiply by the largest singular value": M(
            lambda W, scale, T: (T - 1) * np.log10(np.linalg.norm(W, ord=2)),
            "That is an upper bound. No direction need be stretched so at every step.",
        ),
        "the linear network's gain is predicted, whatever the inputs": M(
            _power,
            "Without inputs this is exact. What do large inputs do to the slopes of tanh?",
        ),
        "the Frobenius norm is taken": M(
            lambda W, scale, T: (T - 1) * np.log10(np.linalg.norm(W)),
            "That is larger than the largest singular value, which is a bound already.",
        ),
        "every slope is taken to be that of an input of typical size": M(
            lambda W, scale, T: (T - 1) * np.log10(_radius(W) * (1 - np.tanh(scale) ** 2)),
            "Most inputs are smaller than their typical size, and there the slope is larger; and the state before adds "
            "to the sum, too.",
        ),
        "the natural logarithm is taken of the baseline": M(
            lambda W, scale, T: (T - 1) * np.log(_radius(W)),
            "Asked for are powers of ten. And what do the inputs do to the slopes?",
        ),
        "the gain of a single step is predicted": M(
            lambda W, scale, T: np.log10(_radius(W)),
            "Which argument says how many steps there are?",
        ),
        "the gain is predicted and not its logarithm": M(
            lambda W, scale, T: np.linalg.norm(np.linalg.matrix_power(W, T - 1), ord=2),
            "A number that spans 40 powers of ten is predicted by its logarithm.",
        ),
    },
)

EXERCISES = [NORMS, PRODUCT, PREDICT, CLIP, ORTHOGONAL]
