"""The course's reference implementation of recurrent networks, for NumPy arrays and PyTorch tensors.

Part 1, equations on arrays. Every function takes NumPy arrays or PyTorch tensors (on any device), in float32 or
float64, all of one kind, and returns that kind. On tensors the functions are differentiable. No argument is ever
changed in place. An array may lie in memory in any order: results differ by rounding at most.

Sizes: B batch, T time steps, D input size, H hidden size; K is H times the number of gates. Sequences are batch first:
x (B, T, D). The states hs (B, T, H) are h_1 ... h_T and never h_0. The equations multiply column vectors, W x; arrays
hold one vector per row, so the code multiplies by the transpose, x @ W.T. Gradients, such as dL/dh_t, are rows in the
equations too.

Every wrong argument is refused with a TypeError or a ValueError that names it, what came and what was expected.

Part 2, PyTorch. RNNCell, GRUCell, LSTMCell, RNN, GRU and LSTM take and give what their namesakes in torch.nn do, and
load their weights. Left out are quantisation, TorchScript, tracing by torch.fx, the private list _flat_weights, complex
numbers, resizing the memory of a tensor that a layer has read on a CPU, and being an instance of torch.nn.RNNBase.

Part 3, looking inside. Functions for PyTorch's recurrent modules: gradients of every state, initialisation, sampling.

Part 4, the layers of part 2 once more, in NumPy, with a backward written by hand: what makes them fast on a CPU.

How near two right answers are, relative to the largest entry: in float64 1e-12 for states and 1e-10 for gradients, in
float32 1e-5 and 1e-4. That does not hold where all outputs pass through nearly closed gates, whose small values have
few correct digits. Nor does it hold for a chaotic network: from a recurrent gain of about 1.5 on with small inputs, of
about 3 with large ones, rounding may grow exponentially with the steps, until two right programs agree in no digit.
Compare on short sequences, or with weights that contract.
"""

import warnings
from functools import cache, partial, wraps
from inspect import signature
from numbers import Integral, Real

import numpy as np
import torch
from array_api_compat import array_namespace
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

# ======================================================================================================================
# Checks. Each public function checks its arrays once, before it computes: a wrong shape is named and never answered by
# broadcasting, and the time loops stay free of checks.


_DTYPES = {torch.float32, torch.float64, np.dtype("float32"), np.dtype("float64")}
_HALF = {torch.float16, torch.bfloat16}


def _takes(**shapes):
    """Make a function check its arrays: name="B T D" gives an array's axes, "3H" three stacked gates of H units.

    A letter gets its size from the first array that has it, so those come first whose sizes an error message should
    take as right. An array whose axes end in "or None" may be left out; "any" stands for any shape.
    """

    def decorate(function):
        parameters = signature(function)

        @wraps(function)
        def checked(*args, **kwargs):
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            _check({name: (bound.arguments[name], axes) for name, axes in shapes.items()})
            return function(*args, **kwargs)

        checked.takes = shapes
        return checked

    return decorate


def _check(arrays, known=(), more_dtypes=frozenset(), mixed=False, like=None):
    """Raise on the first of {name: (array, axes)} that does not fit its axes or does not match the arrays before it.

    known: sizes given beforehand, {letter: (size, where it is from)}. like: what the first array must match, (name,
    kind, array). more_dtypes: dtypes allowed besides float32 and float64. mixed: whether the arrays may differ in
    dtype.
    """
    sizes, first = dict(known), like
    for name, (array, axes) in arrays.items():
        if array is None and axes.endswith("or None"):
            continue
        # not NumPy's subclasses: the product of two matrices or masked arrays means something else
        is_tensor = isinstance(array, torch.Tensor)
        is_dense = is_tensor and array.layout is torch.strided and not array.is_nested
        kind = "PyTorch tensor" if is_dense else "NumPy array" if type(array) is np.ndarray else None
        if kind is None:
            came = "sparse or nested tensor, not a dense one" if is_tensor else type(array).__name__
            expected = first[1] if first else "NumPy array or a PyTorch tensor"
            raise TypeError(f"{name} is a {came}; expected a {expected} {_shape(axes)}")
        if array.dtype not in _DTYPES and array.dtype not in more_dtypes:
            raise TypeError(f"{name} has dtype {array.dtype}; expected float32 or float64: convert it first")
        first = first or (name, kind, array)
        if kind != first[1]:
            raise TypeError(f"{name} is a {kind}; expected a {first[1]}, like {first[0]}")
        if array.dtype != first[2].dtype and not mixed:
            raise TypeError(f"{name} has dtype {array.dtype}; expected {first[2].dtype}, that of {first[0]}")
        if array.device != first[2].device:
            raise ValueError(f"{name} is on device {array.device}; expected {first[2].device}, that of {first[0]}")
        if axes == "any":
            continue
        letters = _letters(axes)
        if array.ndim != len(letters):
            came = f"{array.ndim} axes, shape {tuple(array.shape)}"
            raise ValueError(f"{name} has {came}; expected {len(letters)}, {_shape(axes)}")
        for (gates, letter), size in zip(letters, array.shape, strict=True):
            expected, _ = sizes.get(letter, (size // gates, name))
            if expected * gates != size:
                told = {k: of for k, of in sizes.items() if k in axes and (of[1] != name or k == letter)}
                given = ", ".join(f"{k} = {n} from {source}" for k, (n, source) in told.items())
                given = f" with {given}" if given else ""
                raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {_shape(axes)}{given}")
            sizes.setdefault(letter, (expected, name))
            if letter == "T" and size == 0:
                raise ValueError(f"{name} has no time step, T = 0; expected at least one")


@cache
def _letters(axes):
    """Return the number of gates and the letter of each axis: "B 3H" gives ((1, "B"), (3, "H"))."""
    return tuple((int(axis[:-1] or 1), axis[-1]) for axis in axes.removesuffix(" or None").split())


def _shape(axes):
    """Return axes as an error message shows them: (B, T, D)."""
    if axes == "any":
        return "of any shape"
    shown = [f"{gates}{letter}" if gates > 1 else letter for gates, letter in _letters(axes)]
    return f"({', '.join(shown)}{',' * (len(shown) == 1)})"


def _short(value):
    """Return a value as an error message shows it: on one line, cut off."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]} …"


def _check_number(name, value, least=float("-inf"), whole=False):
    """Raise unless value is a finite number, or a whole one, of at least `least`."""
    expected = f"a {'whole' if whole else 'finite'} number" + (f" of at least {least}" if least > float("-inf") else "")
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise TypeError(f"{name} is {_short(value)}; expected {expected}")
    if not least <= value < float("inf") or value == float("-inf"):
        raise ValueError(f"{name} is {_short(value)}; expected {expected}")


def _check_nonlinearity(nonlinearity):
    if not isinstance(nonlinearity, str) or nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity is {_short(nonlinearity)}; expected 'tanh' or 'relu'")


# What several of the functions below compute.


def _zeros(x, H):
    """Return the zero state for the batch of x, shape (B, H), of the same kind as x."""
    return array_namespace(x).zeros((x.shape[0], H), dtype=x.dtype, device=x.device)


def _before(h0, hs):
    """Return the states before each step, h_0 ... h_{T-1}, shape (B, T, H)."""
    h0 = _zeros(hs, hs.shape[-1]) if h0 is None else h0
    return array_namespace(hs).concat([h0[:, None, :], hs[:, :-1, :]], axis=1)


def _steps(*sequences):
    """Return one tuple of arrays for each time step: (a[:, t], b[:, t], ...) for t = 0 ... T − 1.

    All are taken apart at once, since the gradient of each a[:, t] would be an array as large as a, filled with zeros.
    """
    return list(zip(*(array_namespace(a).unstack(a, axis=1) for a in sequences), strict=True))


def _sum_of_outer_products(das, inputs):
    """Return the sum of daᵀ xᵀ over batch and time, (K, D), from (B, T, K) and (B, T, D): one matrix product."""
    return array_namespace(das).tensordot(das, inputs, axes=((0, 1), (0, 1)))


def _split(a, gates):
    """Return the gates that are stacked along the last axis, one array each."""
    H = a.shape[-1] // gates
    return [a[..., k * H : (k + 1) * H] for k in range(gates)]


def _sigmoid(a, xp):
    """Return σ(a), for arrays as (1 + tanh(a/2)) / 2, which cannot overflow, as exp(−a) can.

    Its error is one rounding of 1: below about −17 in float32 and −37 in float64 no digit is right.
    """
    return torch.sigmoid(a) if isinstance(a, torch.Tensor) else (1 + xp.tanh(a / 2)) / 2


# ======================================================================================================================
# The plain (Elman) recurrent network: Elman 1990; as in torch.nn.RNN, with one bias where PyTorch has two.


@_takes(x="B D", h="B H", W_hh="H H", W_xh="H D", b_h="H")
def rnn_step(x, h, W_xh, W_hh, b_h, nonlinearity="tanh"):
    """Return the next state h_t, shape (B, H)::

        a_t = W_xh x_t + W_hh h_{t-1} + b_h      pre-activation
        h_t = f(a_t)                             f = tanh or ReLU

    x (B, D) is the input of this step and h (B, H) the state before it; W_xh (H, D), W_hh (H, H), b_h (H,).
    nonlinearity is "tanh" or "relu". Source: Elman 1990; f as in torch.nn.RNN.
    """
    _check_nonlinearity(nonlinearity)
    a = x @ W_xh.T + h @ W_hh.T + b_h  # (B, H)
    return _activate(a, nonlinearity, array_namespace(a))


def _activate(a, nonlinearity, xp):
    """Return f(a)."""
    if nonlinearity == "tanh":
        return xp.tanh(a)
    return torch.relu(a) if isinstance(a, torch.Tensor) else np.maximum(a, 0)  # torch.maximum's gradient at 0 is ½


def _slope(h, nonlinearity, xp):
    """Return f'(a), written in terms of h = f(a): 1 - h² for tanh; for ReLU 1 where h > 0, else 0."""
    return 1 - h * h if nonlinearity == "tanh" else xp.astype(h > 0, h.dtype)


@_takes(x="B D", h="B H", W_hh="H H", W_xh="H D", h_next="B H", dh="B H")
def rnn_step_backward(dh, x, h, h_next, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_step` took: {"x", "h", "W_xh", "W_hh", "b_h"}.

    dh (B, H) is dL/dh_t and h_next (B, H) the state that the step returned; the rest is what the step got. By the chain
    rule (Werbos 1990), each row of the batch gives::

        da          = dL/da_t = dh ⊙ f'(a_t)
        dL/dx_t     = da W_xh
        dL/dh_{t-1} = da W_hh

    and adds daᵀ x_tᵀ, daᵀ h_{t-1}ᵀ and da to the gradients of W_xh, W_hh and b_h.
    """
    _check_nonlinearity(nonlinearity)
    da = dh * _slope(h_next, nonlinearity, array_namespace(h_next))  # (B, H)
    return {
        "x": da @ W_xh,  # (B, D)
        "h": da @ W_hh,  # (B, H)
        "W_xh": da.T @ x,  # (H, D), summed over the batch
        "W_hh": da.T @ h,  # (H, H), summed over the batch
        "b_h": da.sum(0),  # (H,)
    }


@_takes(x="B T D", W_hh="H H", h0="B H or None", W_xh="H D", b_h="H")
def rnn_forward(x, h0, W_xh, W_hh, b_h, nonlinearity="tanh"):
    """Return the states hs (B, T, H): `rnn_step` applied at t = 1 ... T, each state fed to the next step.

    x (B, T, D); h0 (B, H), or None for zeros; W_xh (H, D), W_hh (H, H), b_h (H,). hs[:, -1] is h_T. The inputs' part of
    every step, W_xh x_t + b_h, is one matrix product before the loop, because it needs no state. Source: Elman 1990.
    """
    _check_nonlinearity(nonlinearity)
    xp = array_namespace(x)
    h = _zeros(x, W_hh.shape[1]) if h0 is None else h0  # (B, H)
    projected = x @ W_xh.T + b_h  # (B, T, H)
    hs = []
    for from_x in xp.unstack(projected, axis=1):  # (B, H)
        h = _activate(from_x + h @ W_hh.T, nonlinearity, xp)
        hs.append(h)
    return xp.stack(hs, axis=1)  # (B, T, H)


@_takes(x="B T D", W_hh="H H", h0="B H or None", W_xh="H D", hs="B T H", dhs="B T H")
def rnn_backward(dhs, x, h0, hs, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_forward` took: {"x", "h0", "W_xh", "W_hh", "b_h"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence (the loss at that step; zeros
    where there is none); hs (B, T, H) is what `rnn_forward` returned; h0 may be None, as there. Backpropagation
    through time (Werbos 1990): walking back from t = T, a state's gradient is the outside part plus what step t + 1
    sends back::

        dL/dh_t = dhs_t + da_{t+1} W_hh          da_{T+1} = 0
        da_t    = dL/da_t = dL/dh_t ⊙ f'(a_t)

    and the weights, used at every step, collect a sum over the steps and the batch.
    """
    _check_nonlinearity(nonlinearity)
    xp = array_namespace(x)
    before = _before(h0, hs)  # (B, T, H)
    dh = xp.zeros_like(hs[:, 0])  # (B, H): nothing comes back from beyond the last step
    das = []
    for dhs_t, slope in reversed(_steps(dhs, _slope(hs, nonlinearity, xp))):  # (B, H), (B, H)
        da = (dhs_t + dh) * slope  # (B, H)
        dh = da @ W_hh  # (B, H)
        das.append(da)
    das = xp.stack(das[::-1], axis=1)  # (B, T, H)
    return {
        "x": das @ W_xh,  # (B, T, D)
        "h0": dh,  # (B, H)
        "W_xh": _sum_of_outer_products(das, x),  # (H, D)
        "W_hh": _sum_of_outer_products(das, before),  # (H, H)
        "b_h": das.sum((0, 1)),  # (H,)
    }


@_takes(W_hh="H H", h_next="B H")
def rnn_jacobian(h_next, W_hh):
    """Return the Jacobian of one tanh step, J_t = ∂h_t/∂h_{t-1} = diag(1 − h_t²) W_hh, shape (B, H, H).

    h_next (B, H) is the state h_t that the step returned; entry [b, i, j] is ∂h_t[b, i] / ∂h_{t-1}[b, j].
    A gradient with respect to h_t, as a row, multiplies it from the left: the chain rule of Werbos 1990 as a matrix.
    """
    return (1 - h_next * h_next)[:, :, None] * W_hh  # (B, H, 1) * (H, H)


@_takes(W_hh="H H", hs="B T H")
def jacobian_product(hs, W_hh, start, stop):
    """Return J_stop ⋯ J_{start+1} = ∂h_stop/∂h_start of a tanh network, shape (B, H, H).

    hs (B, T, H) are the states of `rnn_forward`; steps are counted from 1, 0 <= start <= stop <= T, and start = stop
    gives the identity. The later step stands on the left: a gradient with respect to h_stop, as a row, times the
    product is the gradient with respect to h_start. Pascanu, Mikolov and Bengio 2013 study this product for
    pre-activations, with W_hh transposed in each factor.
    """
    _check_number("start", start, 0, whole=True)
    _check_number("stop", stop, 0, whole=True)
    if not start <= stop <= hs.shape[1]:
        raise ValueError(f"start = {start}, stop = {stop}; expected 0 <= start <= stop <= T = {hs.shape[1]}")
    xp, (B, _, H) = array_namespace(hs), hs.shape
    # a copy of the identity for each of the batch, where broadcast_to would share one
    product = xp.zeros((B, H, H), dtype=hs.dtype, device=hs.device) + xp.eye(H, dtype=hs.dtype, device=hs.device)
    for t in range(start, stop):
        product = rnn_jacobian(hs[:, t], W_hh) @ product  # (B, H, H); hs[:, t] is h_{t+1}
    return product


# ======================================================================================================================
# The gated recurrent unit: Cho et al. 2014, with the reset gate after the product, as in torch.nn.GRU. The gates
# r, z, n are stacked in this order along the first axis of W_xh (3H, D), W_hh (3H, H), b_xh (3H,), b_hh (3H,).


@_takes(x="B D", h="B H", W_hh="3H H", W_xh="3H D", b_xh="3H", b_hh="3H")
def gru_step(x, h, W_xh, W_hh, b_xh, b_hh):
    """Return the next state h_t, shape (B, H)::

        r_t = σ(W_xr x_t + b_xr + W_hr h_{t-1} + b_hr)               reset gate
        z_t = σ(W_xz x_t + b_xz + W_hz h_{t-1} + b_hz)               update gate
        n_t = tanh(W_xn x_t + b_xn + r_t ⊙ (W_hn h_{t-1} + b_hn))    candidate
        h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}

    x (B, D), h (B, H); W_xh (3H, D), W_hh (3H, H), b_xh (3H,), b_hh (3H,), stacked r, z, n. A GRU has two biases
    because the candidate's recurrent one, b_hn, stands inside r ⊙ (·). Source: Cho et al. 2014; the biases, and the
    reset gate after the product, as in torch.nn.GRU.
    """
    _, z, n, _ = _gru_gates(x @ W_xh.T + b_xh, h @ W_hh.T + b_hh, array_namespace(x))  # each (B, H)
    return (1 - z) * n + z * h


def _gru_gates(from_x, from_h, xp):
    """Return r, z, n and the candidate's recurrent part h_n = W_hn h + b_hn, from the two parts of the sums (..., 3H).

    from_x is W_xh x + b_xh and from_h is W_hh h + b_hh, both for the three gates at once.
    """
    x_r, x_z, x_n = _split(from_x, 3)  # each (..., H)
    h_r, h_z, h_n = _split(from_h, 3)
    r = _sigmoid(x_r + h_r, xp)
    z = _sigmoid(x_z + h_z, xp)
    n = xp.tanh(x_n + r * h_n)
    return r, z, n, h_n


@_takes(x="B D", h="B H", W_hh="3H H", W_xh="3H D", b_xh="3H", b_hh="3H", dh="B H")
def gru_step_backward(dh, x, h, W_xh, W_hh, b_xh, b_hh):
    """Return the gradients of a loss L for what `gru_step` took: {"x", "h", "W_xh", "W_hh", "b_xh", "b_hh"}.

    dh (B, H) is dL/dh_t; the rest is what the step got. The gates are computed again. With a_r, a_z and a_n for the
    pre-activations of r_t, z_t and n_t, and h_n = W_hn h_{t-1} + b_hn, each row of the batch gives::

        da_n        = dh ⊙ (1 − z_t) ⊙ (1 − n_t²)
        da_r        = da_n ⊙ h_n ⊙ r_t ⊙ (1 − r_t)
        da_z        = dh ⊙ (h_{t-1} − n_t) ⊙ z_t ⊙ (1 − z_t)
        da_x        = [da_r, da_z, da_n]        = dL/d(W_xh x_t + b_xh)
        da_h        = [da_r, da_z, da_n ⊙ r_t]  = dL/d(W_hh h_{t-1} + b_hh)
        dL/dx_t     = da_x W_xh
        dL/dh_{t-1} = z_t ⊙ dh + da_h W_hh

    and adds da_xᵀ x_tᵀ, da_hᵀ h_{t-1}ᵀ, da_x and da_h to the gradients of W_xh, W_hh, b_xh and b_hh. Source: the chain
    rule (Werbos 1990) for `gru_step`.
    """
    xp = array_namespace(x)
    r, z, n, h_n = _gru_gates(x @ W_xh.T + b_xh, h @ W_hh.T + b_hh, xp)  # each (B, H)
    da_x, da_h = _gru_gate_gradients(dh, h, r, z, n, h_n, xp)  # (B, 3H), (B, 3H)
    return {
        "x": da_x @ W_xh,  # (B, D)
        "h": z * dh + da_h @ W_hh,  # (B, H)
        "W_xh": da_x.T @ x,  # (3H, D), summed over the batch
        "W_hh": da_h.T @ h,  # (3H, H), summed over the batch
        "b_xh": da_x.sum(0),  # (3H,)
        "b_hh": da_h.sum(0),  # (3H,)
    }


def _gru_gate_gradients(dh, h, r, z, n, h_n, xp):
    """Return da_x = dL/d(W_xh x + b_xh) and da_h = dL/d(W_hh h + b_hh), each (B, 3H), from dh = dL/dh_t."""
    da_n = dh * (1 - z) * (1 - n * n)
    da_r = da_n * h_n * r * (1 - r)
    da_z = dh * (h - n) * z * (1 - z)
    return xp.concat([da_r, da_z, da_n], axis=1), xp.concat([da_r, da_z, da_n * r], axis=1)


@_takes(x="B T D", W_hh="3H H", h0="B H or None", W_xh="3H D", b_xh="3H", b_hh="3H")
def gru_forward(x, h0, W_xh, W_hh, b_xh, b_hh, with_cache=False):
    """Return the states hs (B, T, H): `gru_step` applied at t = 1 ... T; with_cache=True returns (hs, cache).

    x (B, T, D); h0 (B, H), or None for zeros; the weights as in `gru_step`. The cache keeps r, z, n and W_hn h + b_hn
    of every step, (B, T, 4H), for `gru_backward`. Source: as for `gru_step`, Cho et al. 2014.
    """
    xp = array_namespace(x)
    h = _zeros(x, W_hh.shape[1]) if h0 is None else h0  # (B, H)
    projected = x @ W_xh.T + b_xh  # (B, T, 3H)
    hs, cache = [], []
    for from_x in xp.unstack(projected, axis=1):  # (B, 3H)
        r, z, n, h_n = _gru_gates(from_x, h @ W_hh.T + b_hh, xp)  # each (B, H)
        h = (1 - z) * n + z * h
        hs.append(h)
        cache.append(xp.concat([r, z, n, h_n], axis=1))  # (B, 4H)
    hs = xp.stack(hs, axis=1)  # (B, T, H)
    return (hs, xp.stack(cache, axis=1)) if with_cache else hs


@_takes(x="B T D", W_hh="3H H", h0="B H or None", W_xh="3H D", b_xh="3H", b_hh="3H", hs="B T H", dhs="B T H",
        cache="B T 4H or None")  # fmt: skip
def gru_backward(dhs, x, h0, hs, W_xh, W_hh, b_xh, b_hh, cache=None):
    """Return the gradients of a loss L for what `gru_forward` took: {"x", "h0", "W_xh", "W_hh", "b_xh", "b_hh"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence; hs and cache are what
    `gru_forward` returned (cache None: the gates are computed again); h0 may be None, as there. Backpropagation through
    time (Werbos 1990): at each step da_x and da_h follow from dL/dh_t as in `gru_step_backward`, and::

        dL/dh_t = dhs_t + z_{t+1} ⊙ dL/dh_{t+1} + (da_h)_{t+1} W_hh      dL/dh_T = dhs_T

    The weights collect a sum over the steps and the batch.
    """
    xp = array_namespace(x)
    before = _before(h0, hs)  # (B, T, H)
    if cache is None:
        # (B, T, 4H), all steps at once
        cache = xp.concat(_gru_gates(x @ W_xh.T + b_xh, before @ W_hh.T + b_hh, xp), axis=-1)
    dh = xp.zeros_like(hs[:, 0])  # (B, H)
    das_x, das_h = [], []
    for dhs_t, h, gates in reversed(_steps(dhs, before, cache)):  # (B, H), (B, H), (B, 4H)
        dh = dhs_t + dh
        r, z, n, h_n = _split(gates, 4)  # each (B, H)
        da_x, da_h = _gru_gate_gradients(dh, h, r, z, n, h_n, xp)  # (B, 3H), (B, 3H)
        dh = z * dh + da_h @ W_hh  # (B, H)
        das_x.append(da_x)
        das_h.append(da_h)
    das_x, das_h = xp.stack(das_x[::-1], axis=1), xp.stack(das_h[::-1], axis=1)  # (B, T, 3H)
    return {
        "x": das_x @ W_xh,  # (B, T, D)
        "h0": dh,  # (B, H)
        "W_xh": _sum_of_outer_products(das_x, x),  # (3H, D)
        "W_hh": _sum_of_outer_products(das_h, before),  # (3H, H)
        "b_xh": das_x.sum((0, 1)),  # (3H,)
        "b_hh": das_h.sum((0, 1)),  # (3H,)
    }


# ======================================================================================================================
# Long short-term memory: Hochreiter and Schmidhuber 1997, with the forget gate of Gers, Schmidhuber and Cummins 2000,
# as in torch.nn.LSTM with one bias. The gates i, f, g, o are stacked in this order along the first axis of
# W_xh (4H, D), W_hh (4H, H), b_h (4H,).


@_takes(x="B D", h="B H", c="B H", W_hh="4H H", W_xh="4H D", b_h="4H")
def lstm_step(x, h, c, W_xh, W_hh, b_h):
    """Return the next state and cell (h_t, c_t), each (B, H)::

        i_t = σ(W_xi x_t + W_hi h_{t-1} + b_i)       input gate
        f_t = σ(W_xf x_t + W_hf h_{t-1} + b_f)       forget gate
        g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)    candidate
        o_t = σ(W_xo x_t + W_ho h_{t-1} + b_o)       output gate
        c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t              cell
        h_t = o_t ⊙ tanh(c_t)                        state

    x (B, D), h (B, H), c (B, H); W_xh (4H, D), W_hh (4H, H), b_h (4H,), stacked i, f, g, o. Source: Gers, Schmidhuber
    and Cummins 2000.
    """
    xp = array_namespace(x)
    i, f, g, o = _lstm_gates(x @ W_xh.T + h @ W_hh.T + b_h, xp)  # each (B, H)
    c_next = f * c + i * g
    return o * xp.tanh(c_next), c_next


def _lstm_gates(a, xp):
    """Return i, f, g, o, each (..., H), from the four sums a = W_xh x + W_hh h + b_h, (..., 4H)."""
    i, f, g, o = _split(a, 4)
    return _sigmoid(i, xp), _sigmoid(f, xp), xp.tanh(g), _sigmoid(o, xp)


@_takes(x="B D", h="B H", c="B H", W_hh="4H H", W_xh="4H D", b_h="4H", dh="B H", dc="B H")
def lstm_step_backward(dh, dc, x, h, c, W_xh, W_hh, b_h):
    """Return the gradients of a loss L for what `lstm_step` took: {"x", "h", "c", "W_xh", "W_hh", "b_h"}.

    dh (B, H) is dL/dh_t and dc (B, H) the part of dL/dc_t that does not pass through h_t; the rest is what the step
    got. The gates are computed again. Each row of the batch gives::

        dL/dc_t     = dc + dh ⊙ o_t ⊙ (1 − tanh²(c_t))
        da_i        = dL/dc_t ⊙ g_t ⊙ i_t ⊙ (1 − i_t)
        da_f        = dL/dc_t ⊙ c_{t-1} ⊙ f_t ⊙ (1 − f_t)
        da_g        = dL/dc_t ⊙ i_t ⊙ (1 − g_t²)
        da_o        = dh ⊙ tanh(c_t) ⊙ o_t ⊙ (1 − o_t)
        da          = [da_i, da_f, da_g, da_o]
        dL/dx_t     = da W_xh
        dL/dh_{t-1} = da W_hh
        dL/dc_{t-1} = dL/dc_t ⊙ f_t

    and adds daᵀ x_tᵀ, daᵀ h_{t-1}ᵀ and da to the gradients of W_xh, W_hh and b_h. Source: Graves and Schmidhuber 2005,
    whose cells also have peepholes.
    """
    xp = array_namespace(x)
    i, f, g, o = _lstm_gates(x @ W_xh.T + h @ W_hh.T + b_h, xp)  # each (B, H)
    c_next = f * c + i * g
    da, dc = _lstm_gate_gradients(dh, dc, c, c_next, (i, f, g, o), xp)  # (B, 4H), (B, H)
    return {
        "x": da @ W_xh,  # (B, D)
        "h": da @ W_hh,  # (B, H)
        "c": dc,  # (B, H)
        "W_xh": da.T @ x,  # (4H, D), summed over the batch
        "W_hh": da.T @ h,  # (4H, H), summed over the batch
        "b_h": da.sum(0),  # (4H,)
    }


def _lstm_gate_gradients(dh, dc, c, c_next, gates, xp):
    """Return dL/da (B, 4H) and dL/dc_{t-1} (B, H), from dL/dh_t and what reaches c_t from step t + 1."""
    i, f, g, o = gates
    tanh_c = xp.tanh(c_next)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    da_i = dc * g * i * (1 - i)
    da_f = dc * c * f * (1 - f)
    da_g = dc * i * (1 - g * g)
    da_o = dh * tanh_c * o * (1 - o)
    return xp.concat([da_i, da_f, da_g, da_o], axis=1), dc * f


@_takes(x="B T D", W_hh="4H H", h0="B H or None", c0="B H or None", W_xh="4H D", b_h="4H")
def lstm_forward(x, h0, c0, W_xh, W_hh, b_h, with_cache=False):
    """Return the states and cells (hs, cs), each (B, T, H); with_cache=True returns (hs, cs, cache).

    `lstm_step` applied at t = 1 ... T. x (B, T, D); h0 and c0 (B, H), or None for zeros; the weights as in `lstm_step`.
    The cache keeps the gates i, f, g, o of every step, (B, T, 4H), for `lstm_backward`. Source: Gers, Schmidhuber and
    Cummins 2000.
    """
    xp, H = array_namespace(x), W_hh.shape[1]
    h = _zeros(x, H) if h0 is None else h0  # (B, H)
    c = _zeros(x, H) if c0 is None else c0  # (B, H)
    projected = x @ W_xh.T + b_h  # (B, T, 4H)
    hs, cs, cache = [], [], []
    for from_x in xp.unstack(projected, axis=1):  # (B, 4H)
        i, f, g, o = _lstm_gates(from_x + h @ W_hh.T, xp)  # each (B, H)
        c = f * c + i * g
        h = o * xp.tanh(c)
        hs.append(h)
        cs.append(c)
        cache.append(xp.concat([i, f, g, o], axis=1))  # (B, 4H)
    hs, cs = xp.stack(hs, axis=1), xp.stack(cs, axis=1)  # (B, T, H), (B, T, H)
    return (hs, cs, xp.stack(cache, axis=1)) if with_cache else (hs, cs)


@_takes(x="B T D", W_hh="4H H", h0="B H or None", c0="B H or None", W_xh="4H D", b_h="4H", hs="B T H", cs="B T H",
        dhs="B T H", dc_T="B H or None", cache="B T 4H or None")  # fmt: skip
def lstm_backward(dhs, x, h0, c0, hs, cs, W_xh, W_hh, b_h, dc_T=None, cache=None):
    """Return the gradients of a loss L for what `lstm_forward` took: {"x", "h0", "c0", "W_xh", "W_hh", "b_h"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence and dc_T (B, H), or None for
    zeros, the same for the last cell; hs, cs and cache are what `lstm_forward` returned (cache None: the gates are
    computed again); h0 and c0 may be None, as there. Backpropagation through time (Graves and Schmidhuber 2005): at
    each step da follows from dL/dh_t and dL/dc_t as in `lstm_step_backward`, and::

        dL/dh_t = dhs_t + da_{t+1} W_hh                      da_{T+1} = 0
        dL/dc_t = dc_t + dL/dh_t ⊙ o_t ⊙ (1 − tanh²(c_t))
        dc_t    = dL/dc_{t+1} ⊙ f_{t+1}                      dc_T as given

    The weights collect a sum over the steps and the batch.
    """
    xp = array_namespace(x)
    before, cells_before = _before(h0, hs), _before(c0, cs)  # (B, T, H), (B, T, H)
    if cache is None:
        # (B, T, 4H), all steps at once
        cache = xp.concat(_lstm_gates(x @ W_xh.T + before @ W_hh.T + b_h, xp), axis=-1)
    dh = xp.zeros_like(hs[:, 0])  # (B, H)
    dc = dh if dc_T is None else dc_T  # (B, H)
    das = []
    for dhs_t, c, c_next, gates in reversed(_steps(dhs, cells_before, cs, cache)):  # three (B, H), and (B, 4H)
        da, dc = _lstm_gate_gradients(dhs_t + dh, dc, c, c_next, _split(gates, 4), xp)  # (B, 4H), (B, H)
        dh = da @ W_hh  # (B, H)
        das.append(da)
    das = xp.stack(das[::-1], axis=1)  # (B, T, 4H)
    return {
        "x": das @ W_xh,  # (B, T, D)
        "h0": dh,  # (B, H)
        "c0": dc,  # (B, H)
        "W_xh": _sum_of_outer_products(das, x),  # (4H, D)
        "W_hh": _sum_of_outer_products(das, before),  # (4H, H)
        "b_h": das.sum((0, 1)),  # (4H,)
    }


# ======================================================================================================================
# Against exploding gradients.


def clip_by_global_norm(grads, max_norm):
    """Return (clipped, norm): the gradients as a list, with a common norm of at most max_norm, and the norm they had.

    grads is a list of arrays of any shapes. All are multiplied by min(1, max_norm / ‖grads‖), where ‖grads‖ is the
    square root of the sum of squares over all entries of all arrays. Source: Pascanu, Mikolov and Bengio 2013.
    """
    if not isinstance(grads, list | tuple) or not grads:
        raise TypeError(f"grads is {_short(grads)}; expected a list of arrays, not an empty one")
    if not isinstance(max_norm, Real) or max_norm != float("inf"):
        _check_number("max_norm", max_norm, 0)
    _check({f"grads[{k}]": (gradient, "any") for k, gradient in enumerate(grads)})
    xp, max_norm = array_namespace(*grads), float(max_norm)  # a np.float64 would turn float32 into float64
    norm = xp.sqrt(sum((g * g).sum() for g in grads))
    one = xp.ones_like(norm)
    scale = xp.where(norm > max_norm, max_norm / xp.where(norm > 0, norm, one), one)  # nothing is divided by 0
    return [g * scale for g in grads], norm


# ======================================================================================================================
# Part 2, PyTorch: stand-ins for torch.nn's recurrent layers and cells. What tells one network from another is its step,
# in `_Elman`, `_Gru` and `_Lstm` at the end of this part. `_run_torch` repeats it for every step, on any device; what
# is faster on a CPU stands apart, in part 4.


def _check_options(options):
    """Raise on the first option of a constructor that is not what torch.nn's documentation asks for."""
    for name, value in options.items():
        if name in ("bias", "batch_first", "bidirectional"):
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} is {_short(value)}; expected True or False")
        elif name == "nonlinearity":
            _check_nonlinearity(value)
        elif name == "dropout":
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
                raise ValueError(f"dropout is {_short(value)}; expected a probability, a number from 0 to 1")
        elif name == "dtype":
            if value is not None and not (isinstance(value, torch.dtype) and value in _DTYPES | _HALF):
                raise TypeError(f"dtype is {_short(value)}; expected float32, float64, float16 or bfloat16 of PyTorch")
        elif name == "device":
            try:
                torch.empty(0, device=value)
            except (AssertionError, RuntimeError, TypeError) as error:
                raise ValueError(f"device is {_short(value)}; expected one that is here. PyTorch: {error}") from error
        else:
            _check_number(name, value, 0 if name == "proj_size" else 1, whole=True)
            if name == "proj_size" and value >= options["hidden_size"]:
                below = f"a whole number of at least 0 and below hidden_size, {options['hidden_size']}"
                raise ValueError(f"proj_size is {value!r}; expected {below}")


class _Weights(torch.nn.Module):
    """What layers and cells share. Weights are looked up by name at every call: whoever replaces one is heeded."""

    def _make(self, options, shapes, device, dtype):
        """Keep the options as attributes and draw weights of these shapes; a shape of None makes a name without one."""
        self.__dict__.update(options, _shapes=shapes)
        for name, shape in shapes.items():
            self.register_parameter(name, shape and torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _read(self, names):
        """Return these weights, each looked up once (a parametrization may draw it anew); raise on a wrong shape."""
        weights = []
        for name in names:
            W, shape = getattr(self, name), self._shapes[name]
            if W is not None and W.shape != shape:
                raise ValueError(f"{name} has shape {tuple(W.shape)}; expected {shape}")
            weights.append(W)
        return weights

    def reset_parameters(self):
        """Draw all weights and biases from U(−1/√H, 1/√H), in torch.nn's order: one seed gives the same weights."""
        limit = 1 / self.hidden_size**0.5
        for weight in self.parameters():
            torch.nn.init.uniform_(weight, -limit, limit)

    def extra_repr(self):
        """Return the sizes and the options that were chosen otherwise than by default, as torch.nn shows them."""
        shown = [f"{name}={getattr(self, name)}" for name, usual in self._usual if getattr(self, name, usual) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *shown])

    def _checked_states(self, hx, axes, W_xh, arrays, known=()):
        """Return the initial state as a tuple, or None, after checking it and arrays, {name: (input, axes)}."""
        if hx is not None and self._network.states == 1:
            arrays, hx = arrays | {"hx": (hx, axes)}, (hx,)
        elif hx is not None:
            if not isinstance(hx, tuple | list) or len(hx) != 2:
                came = f"{len(hx)} items" if isinstance(hx, tuple | list) else f"a {type(hx).__name__}"
                raise TypeError(f"hx is {came}; expected a pair, the initial state and the initial cell: (h0, c0)")
            projected = axes.replace("H", "P") if getattr(self, "proj_size", 0) else axes
            arrays = arrays | {"hx[0]": (hx[0], projected), "hx[1]": (hx[1], axes)}
        known = {"D": (self.input_size, "input_size"), "H": (self.hidden_size, "hidden_size"), **dict(known)}
        mixed = torch._C._is_any_autocast_enabled()
        _check(arrays, known, _HALF, mixed, like=("the weights", "PyTorch tensor", W_xh))
        return hx


class _Cell(_Weights):
    """One step, with weights named as in torch.nn's cells."""

    _usual = (("bias", True), ("nonlinearity", "tanh"))

    def __init__(self, gates, input_size, hidden_size, bias, device, dtype, **options):
        options = {"input_size": input_size, "hidden_size": hidden_size, "bias": bias, **options}
        _check_options(options | {"device": device, "dtype": dtype})
        super().__init__()
        K, biases = gates * hidden_size, ("bias_ih", "bias_hh")
        shapes = {"weight_ih": (K, input_size), "weight_hh": (K, hidden_size)}
        self._make(options, shapes | dict.fromkeys(biases, (K,) if bias else None), device, dtype)

    def forward(self, input, hx=None):
        W_xh, W_hh, b_xh, b_hh = self._read(self._shapes)
        batch = "" if torch.is_tensor(input) and input.ndim == 1 else "B "
        states = self._checked_states(hx, f"{batch}H", W_xh, {"input": (input, f"{batch}D")})
        if states is None:
            states = (input.new_zeros(self.hidden_size),) * self._network.states  # for each of the batch
        states = self._network.step(linear(input, W_xh, b_xh), states, W_hh, b_hh)
        return states if self._network.states == 2 else states[0]


class _Layer(_Weights):
    """One layer or several, in one direction or two, over whole sequences."""

    _usual = (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
              ("bidirectional", False))  # fmt: skip

    def __init__(self, gates, input_size, hidden_size, bias, device, dtype, num_layers, bidirectional, proj_size=0,
                 **options):  # fmt: skip
        options |= {"input_size": input_size, "hidden_size": hidden_size, "bias": bias, "num_layers": num_layers}
        options |= {"bidirectional": bidirectional, "proj_size": proj_size}
        _check_options(options | {"device": device, "dtype": dtype})
        options["dropout"] = float(options["dropout"])
        if options["dropout"] > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but the last layer: with num_layers=1, none", stacklevel=3
            )
        super().__init__()
        K, P, shapes, self._all_weights = gates * hidden_size, proj_size or hidden_size, {}, []
        for k in range(num_layers):
            D = P * (1 + bidirectional) if k else input_size
            of_one = {"weight_ih": (K, D), "weight_hh": (K, P)} | ({"bias_ih": (K,), "bias_hh": (K,)} if bias else {})
            of_one |= {"weight_hr": (P, hidden_size)} if proj_size else {}
            for end in ("", "_reverse")[: 1 + bidirectional]:
                named = {f"{name}_l{k}{end}": shape for name, shape in of_one.items()}
                self._all_weights.append(list(named))  # private in torch.nn too, but much used to find the biases
                shapes |= named
        self._make(options, shapes, device, dtype)

    @property
    def all_weights(self):
        """The weights and biases as lists, one for each layer and direction, as in torch.nn."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self):
        """Do nothing: for torch.nn this gathers the weights in one piece of memory, for cuDNN."""

    def forward(self, input, hx=None):
        packed = isinstance(input, PackedSequence)
        single = torch.is_tensor(input) and input.ndim == 2  # one sequence, without a batch axis
        known = {"L": (self.num_layers * (1 + self.bidirectional), "num_layers and bidirectional")}
        known["P"] = (self.proj_size, "proj_size")
        if packed:
            sizes, order, back = input.batch_sizes.tolist(), input.sorted_indices, input.unsorted_indices
            if not sizes or sizes != sorted(sizes, reverse=True) or sizes[-1] < 0 or sum(sizes) != len(input.data):
                expected = f"sizes that never grow and sum to {len(input.data)}, the rows of input.data"
                raise ValueError(f"input.batch_sizes is {_short(sizes)}; expected {expected}")
            if order is not None and len(order) != sizes[0]:
                raise ValueError(f"input.sorted_indices has {len(order)} entries; expected {sizes[0]}, batch_sizes[0]")
            known["B"] = (sizes[0], "input.batch_sizes")
            inputs = {"input.data": (input.data, "N D")}
        else:
            inputs = {"input": (input, "T D" if single else "B T D" if self.batch_first else "T B D")}
        weights = [self._read(names) for names in self._all_weights]  # of each layer and direction
        if not self.bias:
            weights = [(W_xh, W_hh, None, None, *rest) for W_xh, W_hh, *rest in weights]
        states = self._checked_states(hx, "L H" if single else "L B H", weights[0][0], inputs, known)

        if packed:
            if states and order is not None:
                states = [s.index_select(1, order) for s in states]
            x = input.data.unflatten(0, (len(sizes), sizes[0])) if sizes[0] == sizes[-1] else input.data
            hs, states = self._run(x, states, sizes, weights)
            output = PackedSequence(hs.flatten(0, -2), input.batch_sizes, order, back)
            if back is not None:
                states = [s.index_select(1, back) for s in states]
        else:
            x = input.unsqueeze(1) if single else input  # (T, B, D)
            if self.batch_first and not single:
                x = x.transpose(0, 1).contiguous()  # torch.nn too makes a copy: whoever changes the input later, may
            if states and single:
                states = [s.unsqueeze(1) for s in states]
            hs, states = self._run(x, states, [x.shape[1]] * len(x), weights)
            output = hs.squeeze(1) if single else hs.transpose(0, 1) if self.batch_first else hs
            if single:
                states = [s.squeeze(1) for s in states]
        return output, (tuple(states) if self._network.states == 2 else states[0])

    def _run(self, x, states, sizes, weights):
        """Run all layers; return the last one's states and all final states, a list of (L, B, H).

        For x, sizes and the form of the states see `_run_torch`; weights has a list for each layer and direction.
        """
        network, final = self._network, []
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: network.states]
        cast = network.states == 2 and not self.proj_size and x.ndim == 3 and x.is_cpu and x.dtype != torch.float64
        cast = cast and torch.is_autocast_enabled("cpu")  # where torch.nn computes an LSTM's states in half precision
        for k in range(self.num_layers):
            x = dropout(x, self.dropout, self.training) if k else x
            layer = []
            for end in ("", "_reverse")[: 1 + self.bidirectional]:
                of = len(final)
                state = [s[of] for s in states] if states else [x.new_zeros(sizes[0], width) for width in widths]
                if cast:
                    state = [s.to(torch.get_autocast_dtype("cpu")) for s in state]
                plain = x.ndim == 3 and len(sizes) > 3 and not self.proj_size and _numpy_takes(x, *state, *weights[of])
                run = _run_numpy if plain else _run_torch  # three steps are over before NumPy has its arrays laid out
                hs, last = run(network, x, state, sizes, weights[of], end != "")  # (…, H), each (B, H)
                layer.append(hs)
                final.append(last)
            x = torch.cat(layer, -1) if self.bidirectional else hs
        return x, [torch.stack(s) for s in zip(*final, strict=True)]  # not views, which could not change in place


class RNNCell(_Cell):
    """One step of a plain recurrent network, with two biases, b_xh + b_hh for b_h: torch.nn.RNNCell's stand-in.

    Call it with input (B, D), or (D,), and hx (B, H), or (H,); left out, hx is zero. It returns h_t, shaped like hx.
    The weights have PyTorch's names: weight_ih (H, D) is W_xh, weight_hh (H, H) is W_hh, bias_ih (H,) is b_xh and
    bias_hh (H,) is b_hh, the biases only with bias=True. nonlinearity is "tanh" or "relu". Source: Elman 1990.
    """

    _network = property(lambda self: _Elman(self.nonlinearity))  # at each use: the option may be changed, as torch.nn's

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(_Elman.gates, input_size, hidden_size, bias, device, dtype, nonlinearity=nonlinearity)


class GRUCell(_Cell):
    """One step of a gated recurrent unit, as `gru_step` has it: torch.nn.GRUCell's stand-in.

    Call it with input (B, D), or (D,), and hx (B, H), or (H,); left out, hx is zero. It returns h_t, shaped like hx.
    The weights are those of `RNNCell` with 3H rows, the gates r, z, n. Source: Cho et al. 2014 and torch.nn.GRU.
    """

    _network = property(lambda self: _Gru())

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(_Gru.gates, input_size, hidden_size, bias, device, dtype)


class LSTMCell(_Cell):
    """One step of a long short-term memory, as `lstm_step` has it: torch.nn.LSTMCell's stand-in.

    Call it with input (B, D), or (D,), and hx, a pair (h, c), each (B, H), or (H,); left out, both are zero. It returns
    the pair (h_t, c_t). The weights are those of `RNNCell` with 4H rows, the gates i, f, g, o; the two biases act only
    by their sum. Source: Gers, Schmidhuber and Cummins 2000.
    """

    _network = property(lambda self: _Lstm())

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(_Lstm.gates, input_size, hidden_size, bias, device, dtype)


class RNN(_Layer):
    """A plain recurrent network over whole sequences: torch.nn.RNN's stand-in.

    Options: num_layers stacked, each fed the states of the one below (after dropout, while training); bidirectional
    adds to every layer a second network that reads the sequence backwards, and both states are concatenated.

    Call it with input (T, B, D), or (B, T, D) with batch_first=True, or (T, D), or a PackedSequence; and hx, the states
    before the first step, (L, B, H), or (L, H) for input (T, D); left out, hx is zero. L counts layers times
    directions: layer 0 forwards, layer 0 backwards, layer 1 ... It returns the last layer's states, in the form of the
    input and H (or 2H) wide, and the states after the last step (the first, for the backwards direction), like hx.

    The weights of layer k are weight_ih_lk (H, D), from layer 1 on (H, H) or (H, 2H), weight_hh_lk (H, H), bias_ih_lk
    (H,) and bias_hh_lk (H,), with "_reverse" added for the second direction; `RNN` and torch.nn.RNN load each other's
    state_dict. On a CPU, in float32 and float64, sequences of one length, from four steps on, run in NumPy, forward and
    backward, with large matrix products in PyTorch. Everything else, and what is to be differentiated twice, traced or
    transformed, runs in PyTorch, step after step. Source: Elman 1990.
    """

    mode = property(lambda self: f"RNN_{self.nonlinearity.upper()}")
    _network = property(lambda self: _ElmanInNumPy(self.nonlinearity))  # `_Elman` with more, in part 4

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
                 dropout=0.0, bidirectional=False, device=None, dtype=None):  # fmt: skip
        super().__init__(_Elman.gates, input_size, hidden_size, bias, device, dtype, num_layers, bidirectional,
                         nonlinearity=nonlinearity, batch_first=batch_first, dropout=dropout)  # fmt: skip


class GRU(_Layer):
    """A gated recurrent unit over whole sequences: torch.nn.GRU's stand-in.

    Options, inputs, outputs and names as in `RNN`; the weights have 3H rows, the gates r, z, n of `gru_step`. Source:
    Cho et al. 2014 and torch.nn.GRU.
    """

    mode = "GRU"
    _network = property(lambda self: _GruInNumPy())

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None):  # fmt: skip
        super().__init__(_Gru.gates, input_size, hidden_size, bias, device, dtype, num_layers, bidirectional,
                         batch_first=batch_first, dropout=dropout)  # fmt: skip


class LSTM(_Layer):
    """A long short-term memory over whole sequences: torch.nn.LSTM's stand-in.

    Options, inputs, outputs and names as in `RNN`, but hx and the final state are pairs (h, c); the weights have 4H
    rows, the gates i, f, g, o of `lstm_step`. With proj_size = P > 0 the state is h_t = W_hr (o_t ⊙ tanh(c_t)), P wide,
    and so are h0 and the output (2P in two directions): weight_hr_lk (P, H) is added, weight_hh_lk is (4H, P), and
    weight_ih_lk is (4H, P), or (4H, 2P), from layer 1 on. Sources: Gers, Schmidhuber and Cummins 2000; of the
    projection, Sak, Senior and Beaufays 2014.
    """

    mode = "LSTM"
    _network = property(lambda self: _LstmInNumPy())

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):  # fmt: skip
        super().__init__(_Lstm.gates, input_size, hidden_size, bias, device, dtype, num_layers, bidirectional,
                         proj_size, batch_first=batch_first, dropout=dropout)  # fmt: skip


def _run_torch(network, x, state, sizes, weights, reverse=False):
    """Run one direction of one layer in PyTorch, step after step; return all states and the final ones (B, H).

    x (T, B, D), or (N, D) for sequences of several lengths, holds the inputs of step 1, then those of step 2, ..., as a
    PackedSequence does: sizes[t] of them belong to step t + 1, and sequences that end earlier stand last. The states
    are (T, B, H), or (N, H).
    """
    W_xh, W_hh, b_xh, *rest = weights
    from_x = linear(x, W_xh, b_xh).flatten(0, -2).split(sizes)  # T arrays, each (B_t, K)
    now = [s[: sizes[-1] if reverse else sizes[0]] for s in state]
    hs, ended = {}, []
    for t in range(len(sizes))[:: -1 if reverse else 1]:
        if now[0].shape[0] > sizes[t]:  # forwards: the sequences that stand last are over
            ended.append([s[sizes[t] :] for s in now])
            now = [s[: sizes[t]] for s in now]
        elif now[0].shape[0] < sizes[t]:  # backwards: they begin here, at their end
            now = [torch.cat([s, s0[s.shape[0] : sizes[t]]]) for s, s0 in zip(now, state, strict=True)]
        now = network.step(from_x[t], now, W_hh, *rest)
        hs[t] = now[0]
    final = [torch.cat(s) for s in zip(now, *reversed(ended), strict=True)] if ended else now
    return torch.cat([hs[t] for t in range(len(sizes))]).unflatten(0, x.shape[:-1]), final


class _Elman:
    gates, states = 1, 1

    def __init__(self, nonlinearity):
        self.nonlinearity = nonlinearity

    def step(self, from_x, state, W_hh, b_hh):
        """Return (h_t,) from the input's part of the sums, (B, H), and (h_{t-1},)."""
        return (_activate(from_x + linear(state[0], W_hh, b_hh), self.nonlinearity, torch),)


class _Gru:
    gates, states = 3, 1

    def step(self, from_x, state, W_hh, b_hh):
        """Return (h_t,) from the input's part of the sums, (B, 3H), and (h_{t-1},)."""
        _, z, n, _ = _gru_gates(from_x, linear(state[0], W_hh, b_hh), torch)
        return ((1 - z) * n + z * state[0],)


class _Lstm:
    gates, states = 4, 2

    def step(self, from_x, state, W_hh, b_hh, W_hr=None):
        """Return (h_t, c_t) from the input's part of the sums, (B, 4H), and (h_{t-1}, c_{t-1})."""
        i, f, g, o = _lstm_gates(from_x + linear(state[0], W_hh, b_hh), torch)
        c = f * state[1] + i * g
        h = o * torch.tanh(c)
        return (h if W_hr is None else linear(h, W_hr)), c


# ======================================================================================================================
# Part 3, looking inside: for layers and cells of PyTorch, whatever their class, as long as their parameters are named
# and stacked as torch.nn's are.


def state_gradients(layer, x, loss):
    """Return dL/dh_t for t = 1 ... T, shape (B, T, H), of a one-layer network of PyTorch.

    This is the whole derivative, through the loss at step t and through every later state. layer is an RNN, GRU or
    LSTM with one layer and one direction; x (B, T, D), whatever the layer's batch_first; the initial state is zero.
    loss is a function of the states hs (B, T, H) that returns a scalar tensor.
    """
    if [getattr(layer, name, None) for name in ("num_layers", "bidirectional", "proj_size")] != [1, False, 0]:
        expected = "an RNN, GRU or LSTM with one layer, one direction and no projection"
        raise ValueError(f"layer is {_short(layer)}; expected {expected}")
    if not callable(loss):
        raise TypeError(f"loss is {_short(loss)}; expected a function of the states hs (B, T, H)")
    W_xh, W_hh = layer.weight_ih_l0, layer.weight_hh_l0
    b_xh, b_hh = (layer.bias_ih_l0, layer.bias_hh_l0) if layer.bias else (None, None)
    H, gates = W_hh.shape[1], W_hh.shape[0] // W_hh.shape[1]
    _check({"x": (x, "B T D"), "weight_ih_l0": (W_xh, f"{gates}H D")})
    network = _Elman(layer.nonlinearity) if gates == 1 else _Gru() if gates == 3 else _Lstm()
    with torch.enable_grad():  # also for a caller who has switched gradients off, and for weights that are frozen
        state, hs = [_zeros(x, H).requires_grad_()] * network.states, []
        for from_x in linear(x, W_xh, b_xh).unbind(1):  # (B, K)
            state = network.step(from_x, state, W_hh, b_hh)
            hs.append(state[0])
        value = loss(torch.stack(hs, 1))
    if not isinstance(value, torch.Tensor) or value.ndim or not value.requires_grad:
        raise ValueError(f"loss returned {_short(value)}; expected a scalar tensor computed from the states")
    return torch.stack(torch.autograd.grad(value, hs), 1)  # (B, T, H)


def orthogonal_(W, gain=1.0):
    """Fill a matrix, in place, with gain times a random orthogonal one, drawn uniformly; return it.

    All singular values are gain, but for its sign; if the matrix is not square, its rows or columns, whichever are
    fewer, are orthogonal. Where gates are stacked, fill each one: ``for W in weight.chunk(3): orthogonal_(W)``. Source:
    Saxe, McClelland and Ganguli 2014.
    """
    _check_matrix(W)
    if W.dtype not in _DTYPES:
        raise TypeError(f"W has dtype {W.dtype}; expected float32 or float64: fill one of these, then convert it")
    _check_number("gain", gain)
    return torch.nn.init.orthogonal_(W, gain)


def identity_(W):
    """Fill a square matrix, in place, with the identity; return it. Source: Le, Jaitly and Hinton 2015."""
    _check_matrix(W, square=True)
    return torch.nn.init.eye_(W)


def xavier_(W):
    """Fill a matrix, in place, from U(−a, a), a = √(6 / (fan_in + fan_out)); return it.

    fan_out and fan_in are its numbers of rows and columns: H and H for W_hh, H and D for W_xh. Where gates are stacked,
    fill each one, as with `orthogonal_`. Source: Glorot and Bengio 2010.
    """
    _check_matrix(W)
    return torch.nn.init.xavier_uniform_(W)


def set_forget_bias_(lstm, value):
    """Set the forget gate's bias of an LSTM or LSTMCell, in every layer and direction; return the module.

    value is the sum of PyTorch's two biases, since only their sum acts; the second one is set to zero.
    """
    return _set_gate_bias_("lstm", lstm, value, 4, "an LSTM or LSTMCell")


def set_update_bias_(gru, value):
    """Set the update gate's bias of a GRU or GRUCell, in every layer and direction; return the module.

    value is the sum of PyTorch's two biases, since only their sum acts; the second one is set to zero. A large value
    keeps the state: h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}.
    """
    return _set_gate_bias_("gru", gru, value, 3, "a GRU or GRUCell")


def generate(model, prompt, length, temperature=1.0, generator=None):
    """Return tokens drawn one after the other, (B, length) int64 on the model's device; no graph is kept.

    model(tokens, state) returns (logits, state) for tokens (B, T) and logits (B, T, V); state None begins a sequence.
    prompt (B, T) is read first, in one call; every later call reads the newest token only, with the state carried
    along. temperature divides the logits: below 1 likely tokens get likelier, and 0 takes the likeliest. generator is a
    torch.Generator on the model's device, for draws that can be repeated. Call model.eval() first: in training, dropout
    goes on.
    """
    if not (isinstance(prompt, torch.Tensor) and prompt.dtype is torch.int64 and prompt.ndim == 2 and prompt.numel()):
        came = f"{tuple(prompt.shape)} {prompt.dtype}" if isinstance(prompt, torch.Tensor) else type(prompt).__name__
        raise TypeError(f"prompt is {came}; expected an int64 tensor (B, T) with at least one token")
    _check_number("length", length, 0, whole=True)
    _check_number("temperature", temperature, 0)
    if not callable(model):
        raise TypeError(f"model is {_short(model)}; expected a module or a function of (tokens, state)")
    if not isinstance(generator, torch.Generator | None):
        raise TypeError(f"generator is {_short(generator)}; expected a torch.Generator or None")
    parameters = model.parameters() if hasattr(model, "parameters") else ()
    where = next((p.device for p in parameters), prompt.device)
    newest, state, tokens = prompt.to(where), None, []
    with torch.no_grad():
        for _ in range(length):
            returned = model(newest, state)
            is_pair = isinstance(returned, tuple) and len(returned) == 2 and torch.is_tensor(returned[0])
            if not is_pair or returned[0].ndim != 3:
                raise ValueError(f"model returned {_short(returned)}; expected a pair, logits (B, T, V) and the state")
            logits, state = returned
            last = logits[:, -1]  # (B, V)
            if temperature == 0:
                newest = last.argmax(1, keepdim=True)  # (B, 1)
            else:
                newest = torch.multinomial(torch.softmax(last / temperature, 1), 1, generator=generator)
            tokens.append(newest)
    return torch.cat(tokens, 1) if tokens else prompt.new_empty((len(prompt), 0), device=where)


def best_device():
    """Return the device to use: the current CUDA device when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _check_matrix(W, square=False):
    if not isinstance(W, torch.Tensor) or not W.is_floating_point():
        came = f"of {W.dtype}" if isinstance(W, torch.Tensor) else f"a {type(W).__name__}"
        raise TypeError(f"W is {came}; expected a PyTorch tensor of real numbers, a matrix")
    if W.ndim != 2 or not W.numel() or (square and W.shape[0] != W.shape[1]):
        raise ValueError(f"W has shape {tuple(W.shape)}; expected {'a square matrix (H, H)' if square else 'a matrix'}")


def _set_gate_bias_(name, module, value, gates, kind):
    """Set the bias of the second gate, which both the LSTM's forget gate and the GRU's update gate are."""
    _check_number("value", value)
    weights = dict(module.named_parameters()) if isinstance(module, torch.nn.Module) else {}
    H = getattr(module, "hidden_size", None)
    if not isinstance(H, int) or {W.shape[0] for key, W in weights.items() if "weight_hh" in key} != {gates * H}:
        raise TypeError(f"{name} is {_short(module)}; expected {kind}")
    biases = [key for key in weights if key.startswith("bias_ih")]
    if not biases:
        raise ValueError(f"{name} has no biases: {_short(module)}; expected {kind} made with bias=True")
    with torch.no_grad():
        for key in biases:
            weights[key][H : 2 * H] = value
            weights[key.replace("_ih", "_hh")][H : 2 * H] = 0
    return module


# ======================================================================================================================
# Part 4, all steps of a layer at once, in NumPy: the same numbers as `_run_torch` gives, up to rounding, in less time
# on a CPU, and a backward written by hand. It adds nothing to what a network is: a first reading may end here.
#
# On a CPU, a small network's time goes into calls and memory more than into arithmetic: results are written into arrays
# that lie there already, and the weights' gradients are one product after the loop. For the gated networks the batch is
# the last axis, so that every gate is one piece of memory; v_t = [x_t; 1; h_{t-1}] makes one product of a step's sums,
# W v = W_xh x + b + W_hh h, and one of all its weights' gradients; and what needs no later step is done for a block of
# steps at once, with half a megabyte of gates, so that they stay in a processor's cache. M = D + 1 + H.


def _numpy_takes(first, *others):
    """Whether these are plain tensors on the CPU of one dtype, and PyTorch is not tracing, casting or transforming."""
    plain, dtype, batched = (torch.Tensor, torch.nn.Parameter), first.dtype, torch._C._functorch.is_legacy_batchedtensor
    return (
        dtype in _DTYPES
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and torch.autograd.forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
        and all(
            t is None
            or (type(t) in plain and t.is_cpu and t.dtype is dtype and t.layout is torch.strided and not batched(t))
            for t in (first, *others)
        )
    )


def _run_numpy(network, x, state, sizes, weights, reverse=False):
    """Return what `_run_torch` does, for sequences of one length, x (T, B, D)."""
    W_xh, W_hh, *biases = weights
    biases = [W_hh.new_zeros(len(W_hh)) if b is None else b for b in biases]
    x = x.flip(0) if reverse else x
    if torch.is_grad_enabled():
        run, x = _InNumPy.apply, x.view_as(x)  # x itself, if kept, would follow an assignment to its .data
    else:
        run = partial(_InNumPy.forward, None)  # None: keep nothing
    hs, *final = run(network, x, *state, W_xh, W_hh, *biases)
    return hs.flip(0) if reverse else hs, final


class _InNumPy(torch.autograd.Function):
    """One direction of one layer in NumPy: x (T, B, D) and the initial state to hs (T, B, H), h_T and c_T.

    It keeps the network and not the layer: a layer that stores its output would hold a graph that holds the layer, and
    both would stay in memory.
    """

    @staticmethod
    def forward(ctx, network, *inputs):
        (x, h0), keep = inputs[:2], ctx is not None
        hs = x.new_empty((*x.shape[:2], h0.shape[1]))
        with np.errstate(all="ignore"):  # silent on overflow as PyTorch is: one sees it in the result
            arrays = [t.numpy(force=True) for t in inputs]
            final, kept = network.forward(keep, hs.numpy(), *arrays)
        if keep:
            ctx.network, ctx.weights = network, arrays[-4:]  # these do not follow an assignment to a weight's .data
            ctx.save_for_backward(*inputs, *map(torch.from_numpy, kept))
        return (hs, *map(_tensor, final))

    @staticmethod
    def backward(ctx, *grads):
        saved = ctx.saved_tensors  # read once: a checkpoint unpacks them once only
        inputs = saved[: 5 + ctx.network.states]  # x, the initial states and four weights
        if torch.is_grad_enabled() or not _numpy_takes(*grads):
            return None, *_InNumPy._in_torch(ctx.network, inputs, grads)
        came = (t.numpy(force=True) for t in (*grads, *inputs[:-4]))
        kept = (t.numpy(force=True) for t in saved[len(inputs) :])
        with np.errstate(all="ignore"):
            found = ctx.network.backward(ctx.needs_input_grad[1], *came, *ctx.weights, *kept)
        return None, *(None if a is None else _tensor(a) for a in found)

    @staticmethod
    def _in_torch(network, inputs, grads):
        """Return the gradients by the steps written in PyTorch: to be differentiated again, batched or traced."""

        def run(x, *others):
            state, weights = others[: network.states], others[network.states :]
            hs, last = _run_torch(network, x, state, [x.shape[1]] * len(x), weights)
            return (hs, *last)

        with torch.autocast("cpu", enabled=False):  # as the forward ran
            if not torch.is_grad_enabled():
                return torch.func.vjp(run, *inputs)[1](grads)
            inputs = [t.view_as(t) for t in inputs]  # without what one of them may depend on in another
            wanted = [t for t in inputs if t.requires_grad]  # not by vjp, which refuses a checkpoint's hooks
            found = iter(torch.autograd.grad(run(*inputs), wanted, grads, create_graph=True, allow_unused=True))
            return [next(found) if t.requires_grad else None for t in inputs]


def _tensor(a):
    """Return a contiguous tensor of an array that nobody else will use."""
    return torch.from_numpy(np.ascontiguousarray(a))


class _ElmanInNumPy(_Elman):
    def forward(self, keep, hs, x, h0, W_xh, W_hh, b_xh, b_hh):
        """Fill in the states hs (T, B, H); return (h_T,), and what the backward needs: all states, h_0 included."""
        D, (B, H), tanh = x.shape[2], h0.shape, self.nonlinearity == "tanh"
        W_xh_T, W_hh_T = W_xh.T.copy(), W_hh.T.copy()  # laid out anew, they are multiplied by faster
        hs[...] = b_xh + b_hh
        _add_product(x.reshape(-1, D), W_xh_T, hs.reshape(-1, H))  # the inputs' part of the sums
        if B * H * H >= _LARGE:
            h, W_hh_T, activate = torch.from_numpy(h0), torch.from_numpy(W_hh_T), torch.tanh_ if tanh else torch.relu_
            for h_next in torch.from_numpy(hs):  # (B, H)
                h = activate(h_next.addmm_(h, W_hh_T))
        else:
            h, from_h = h0, np.empty(h0.shape, h0.dtype)  # in rows, however h0 lies in memory
            activate = _fast_tanh(h0) if tanh else lambda a, out: np.maximum(a, 0, out=out)
            for h_next in hs:  # (B, H); results go where the last argument says
                np.add(h_next, h.dot(W_hh_T, from_h), h_next)
                h = activate(h_next, h_next)
        return (hs[-1].copy(),), ((np.concatenate([h0[None], hs]),) if keep else ())

    def backward(self, needs_dx, dhs, dh_T, x, h0, W_xh, W_hh, b_xh, b_hh, states):
        """Return dL/d of x, h0 and the weights, from dhs (T, B, H) and dh_T (B, H)."""
        (D, H), B, before, hs = (x.shape[2], len(W_hh)), len(h0), states[:-1], states[1:]
        tanh, dh, W_hh, dot = self.nonlinearity == "tanh", dh_T.copy(), np.ascontiguousarray(W_hh), _fast_dot(B * H * H)
        dW_xh, dW_hh, db = (np.zeros(shape, x.dtype) for shape in (W_xh.shape, W_hh.shape, H))
        dx = np.empty(x.shape, x.dtype) if needs_dx else None
        for steps in _blocks(hs, B):
            h, das = hs[steps], np.empty_like(hs[steps])  # (t, B, H)
            if tanh:
                np.subtract(1, np.multiply(h, h, out=das), out=das)  # times dL/dh_t it is dL/da_t
            else:
                np.logical_not(h <= 0, out=das)  # a nan passes, as in PyTorch
            for dh_t, da in _backwards(dhs[steps], das):  # (B, H), (B, H)
                dh += dh_t
                if tanh:
                    np.multiply(da, dh, da)
                else:
                    np.copyto(da, np.where(da, dh, 0))  # not 0 times inf, which is nan
                dot(da, W_hh, dh)
            das = das.reshape(-1, H)  # (t B, H)
            _add_product(das.T, x[steps].reshape(-1, D), dW_xh)
            _add_product(das.T, before[steps].reshape(-1, H), dW_hh)
            db += np.einsum("nh->h", das)  # das.sum(0), in less time
            if needs_dx:
                _fast_dot(das.size * D)(das, W_xh, dx[steps].reshape(-1, D))
        return dx, dh, dW_xh, dW_hh, db, db.copy()


class _GruInNumPy(_Gru):
    def forward(self, keep, hs, x, h0, W_xh, W_hh, b_xh, b_hh):
        """Fill in the states hs (T, B, H); return (h_T,), and what the backward needs."""
        (T, B, D), H = x.shape, W_hh.shape[1]
        v, W = _augmented(x, h0, W_xh, b_xh + b_hh, W_hh)
        W_rz = W[: 2 * H]
        W_xn = np.concatenate([W_xh, b_xh[:, None]], 1)[2 * H :]  # times [x; 1]
        W_hn = np.concatenate([b_hh[:, None], W_hh], 1)[2 * H :]  # times [1; h]
        gates, tanh = _per_step(T, (4 * H, B), x, keep), _fast_tanh(h0)  # n, r, z and W_hn h + b_hn
        sum_rz, sum_xn, sum_hn = (_times(part, B, W.size * B) for part in (W_rz, W_xn, W_hn))
        steps = zip(v, v[:, : D + 1], v[:, D:], v[1:, D + 1 :], gates, strict=False)
        for v_t, x_1, one_h, h_next, a in steps:  # (M, B), (D + 1, B), (1 + H, B), (H, B), (4H, B)
            n, rz, h_n = a[:H], a[H : 3 * H], a[3 * H :]
            torch.from_numpy(sum_rz(v_t, rz)).sigmoid_()  # in place, faster than by tanh
            sum_hn(one_h, h_n)
            sum_xn(x_1, n)
            n += rz[:H] * h_n
            tanh(n, n)
            np.add(n, rz[H:] * (one_h[1:] - n), out=h_next)  # (1 − z) ⊙ n + z ⊙ h
        hs[...] = v[1:, D + 1 :].swapaxes(1, 2)
        return (hs[-1].copy(),), (v, gates)

    def backward(self, needs_dx, dhs, dh_T, x, h0, W_xh, W_hh, b_xh, b_hh, v, gates):
        """Return dL/d of x, h0 and the weights, from dhs (T, B, H) and dh_T (B, H)."""
        D, (B, H), K = x.shape[2], h0.shape, len(W_hh)
        W_nrz, dh, through_W = _rolled(W_xh, H), dh_T.T.copy(), _times(W_hh.T.copy(), B, W_hh.size * B)
        dW_x, dW_h, dx = np.zeros((K, D + 1), x.dtype), np.zeros((K, 1 + H), x.dtype), np.empty(x.shape, x.dtype)
        from_h = np.empty((H, B), x.dtype)
        for steps in _blocks(gates, B):
            n, r, z, h_n = np.split(gates[steps], 4, axis=1)  # each (t, H, B)
            das = np.empty_like(gates[steps])
            da_n, da_r, da_z, da_h_n = np.split(das, 4, axis=1)  # at first what dL/dh_t is to be multiplied by
            da_n[...] = (1 - z) * (1 - n * n)
            da_h_n[...] = da_n * r
            da_r[...] = da_h_n * h_n * (1 - r)
            da_z[...] = (v[steps, D + 1 :] - n) * z * (1 - z)
            for dh_t, z_t, da in _backwards(_columns(dhs[steps]), z, das):
                dh += dh_t
                by_gate = da.reshape(4, H, B)
                by_gate *= dh
                dh *= z_t
                dh += through_W(da[H:], from_h)
            das, inputs = np.concatenate(das, 1), np.concatenate(v[steps], 1)  # (4H, t B), (M, t B)
            _add_product(das[:K], inputs[: D + 1].T, dW_x)  # n, r, z, times [x; 1]
            _add_product(das[H:], inputs[D:].T, dW_h)  # r, z, n, times [1; h]
            if needs_dx:
                _torch_dot(das[:K].T, W_nrz, dx[steps].reshape(-1, D))
        dW_x = _rolled(dW_x, -H)
        return dx if needs_dx else None, dh.T, dW_x[:, :D], dW_h[:, 1:], dW_x[:, D], dW_h[:, 0]


class _LstmInNumPy(_Lstm):
    def forward(self, keep, hs, x, h0, c0, W_xh, W_hh, b_xh, b_hh):
        """Fill in the states hs (T, B, H); return (h_T, c_T), each (B, H), and what the backward needs."""
        (T, B, D), H = x.shape, W_hh.shape[1]
        v, W = _augmented(x, h0, W_xh, b_xh + b_hh, W_hh)
        W, tanh = _rolled(W, H), _fast_tanh(h0)  # o, i, f, g: one sigmoid for what lies together
        gates, cs = _per_step(T, (4 * H, B), x, keep), _per_step(T + 1, (H, B), x, keep)
        tanh_cs, sums = _per_step(T, (H, B), x, keep), _times(W, B, W.size * B)
        cs[0][...] = c0.T
        steps = zip(v, v[1:, D + 1 :], gates, cs, cs[1:], tanh_cs, strict=False)
        for v_t, h_next, a, c, c_next, tanh_c in steps:  # (M, B), (H, B), (4H, B), (H, B) ...
            torch.from_numpy(sums(v_t, a)[: 3 * H]).sigmoid_()
            o, i, f, g = a.reshape(4, H, B)
            tanh(g, g)
            np.add(f * c, i * g, out=c_next)
            tanh(c_next, tanh_c)
            np.multiply(o, tanh_c, out=h_next)
        hs[...] = v[1:, D + 1 :].swapaxes(1, 2)
        return (hs[-1].copy(), cs[-1].T.copy()), (v, gates, cs, tanh_cs)

    def backward(self, needs_dx, dhs, dh_T, dc_T, x, h0, c0, W_xh, W_hh, b_xh, b_hh, v, gates, cs, tanh_cs):
        """Return dL/d of x, h0, c0 and the weights, from dhs (T, B, H), dh_T (B, H) and dc_T (B, H)."""
        D, (B, H) = x.shape[2], h0.shape
        W_xh, W_hh_T, dh, dc = _rolled(W_xh, H), _rolled(W_hh, H).T.copy(), dh_T.T.copy(), dc_T.T.copy()
        through_W = _times(W_hh_T, B, W_hh.size * B)
        dW, dx = np.zeros((4 * H, v.shape[1]), x.dtype), np.empty(x.shape, x.dtype)
        for steps in _blocks(gates, B):
            o, i, f, g = np.split(gates[steps], 4, axis=1)  # each (t, H, B)
            das = np.empty_like(gates[steps])
            da_o, da_i, da_f, da_g = np.split(das, 4, axis=1)  # at first what dL/dc_t, for o dL/dh_t, is multiplied by
            da_i[...] = g * i * (1 - i)
            da_f[...] = cs[steps] * f * (1 - f)
            da_g[...] = i * (1 - g * g)
            da_o[...] = tanh_cs[steps] * o * (1 - o)
            through_c = o * (1 - tanh_cs[steps] ** 2)  # ∂h_t/∂c_t
            for dh_t, dc_by_dh, f_t, da in _backwards(_columns(dhs[steps]), through_c, f, das):
                dh += dh_t
                dc += dh * dc_by_dh
                by_gate = da.reshape(4, H, B)
                by_gate[1:] *= dc
                by_gate[0] *= dh
                through_W(da, dh)
                dc *= f_t
            das = np.concatenate(das, 1)  # (4H, t B)
            _add_product(das, np.concatenate(v[steps], 1).T, dW)
            if needs_dx:
                _torch_dot(das.T, W_xh, dx[steps].reshape(-1, D))
        dW = _rolled(dW, -H)  # i, f, g, o
        return dx if needs_dx else None, dh.T, dc.T, dW[:, :D], dW[:, D + 1 :], dW[:, D], dW[:, D].copy()


def _fast_tanh(like):
    """Return the faster tanh(a, out) for arrays like this one: NumPy's needs AVX-512 to be fast in float64."""
    if like.dtype == np.float32 or like.size < 256 or torch.backends.cpu.get_cpu_capability() == "AVX512":
        return np.tanh

    def tanh(a, out):
        if out is not a:
            np.copyto(out, a)
        torch.from_numpy(out).tanh_()  # in place it is called faster than with out=
        return out

    return tanh


# A product of so many multiplications or more is PyTorch's: NumPy takes up to twice as long for it, where NumPy has
# OpenBLAS and PyTorch MKL. OpenBLAS also shares those from 460,800 on among threads. They keep their processors busy
# until the next one comes, and PyTorch's threads would stand in line behind them, for milliseconds at every step.
_LARGE = 400_000


def _fast_dot(size):
    """Return the faster dot(a, b, out) for matrix products of about this many multiplications."""
    return _torch_dot if size >= _LARGE else np.ndarray.dot


def _times(W, columns, size):
    """Return the fastest function (v, out) that writes W v to out and returns it, for v of so many columns.

    size is the number of multiplications, those of the products beside it included.
    """
    if columns * W.itemsize > 24 or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return partial(_fast_dot(size), W)
    if W.size * columns < _LARGE:
        return W.dot
    W_T = torch.from_numpy(W).T

    def product(v, out):  # by rows, vᵀ Wᵀ: with AVX-512 PyTorch takes up to five times as long for so few columns
        np.copyto(out, torch.mm(torch.from_numpy(v).T.contiguous(), W_T).numpy().T)
        return out

    return product


def _torch_dot(a, b, out=None):
    """Return what np.ndarray.dot does, computed by PyTorch."""
    product = torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=None if out is None else torch.from_numpy(out))
    return product.numpy() if out is None else out


def _add_product(a, b, out):
    """Add the product of two matrices to out, in place."""
    if a.size * b.shape[1] < _LARGE:
        out += a.dot(b)
    else:
        torch.from_numpy(out).addmm_(torch.from_numpy(a), torch.from_numpy(b))


def _augmented(x, h0, W_xh, b, W_hh):
    """Return v (T + 1, M, B), v_t = [x_t; 1; h_{t-1}], so far without h_1 ... h_T, and W = [W_xh b W_hh] (K, M)."""
    T, B, D = x.shape
    W = np.concatenate([W_xh, b[:, None], W_hh], 1)
    v = np.empty((T + 1, W.shape[1], B), x.dtype)
    v[:-1, :D], v[:, D], v[0, D + 1 :] = x.swapaxes(1, 2), 1, h0.T
    return v, W


def _rolled(a, rows):
    """Return a with its last rows first, as np.roll does in more time; if rows < 0, with its first rows last."""
    return np.concatenate([a[-rows:], a[:-rows]])


def _per_step(T, shape, x, keep):
    """Return an array for each step, or T times the same one if nobody will look back."""
    return np.empty((T, *shape), x.dtype) if keep else [np.empty(shape, x.dtype)] * T


def _blocks(a, B):
    """Return slices of the steps of a, the last first: half a megabyte each, or 400 times one of a batch, if longer.

    Of fewer, adding a block's part of the weights' gradients to the others takes as long as computing it.
    """
    length = max(1, 500_000 // max(1, a[0].nbytes), 400 // max(1, B))
    return [slice(max(0, stop - length), stop) for stop in range(len(a), 0, -length)]


def _backwards(*arrays):
    """Return the arrays' steps, the last first."""
    return zip(*(a[::-1] for a in arrays), strict=True)


def _columns(a):
    """Return (t, B, H) with the batch last, (t, H, B), in that order in memory."""
    return np.ascontiguousarray(a.swapaxes(1, 2))
