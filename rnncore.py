"""The course's reference implementation of recurrent networks, for NumPy arrays and PyTorch tensors.

Part 1, equations on arrays. Every function takes NumPy arrays or PyTorch tensors (on any device), in float32 or
float64, all of one kind, and returns that kind. On tensors the functions are differentiable. No argument is ever
changed in place, and results do not depend on how an array lies in memory.

Sizes: B batch, T time steps, D input size, H hidden size. Sequences are batch first: x (B, T, D). The states
hs (B, T, H) are h_1 ... h_T and never h_0. The equations multiply column vectors, W x; arrays hold one vector a row,
so the code multiplies by the transpose, x @ W.T.

Every function raises TypeError for an argument of a wrong kind or dtype and ValueError for a wrong shape, device or
option. The message names the argument, what came and what was expected.

Part 3, looking inside. Functions for PyTorch's recurrent modules: gradients of every state, initialisation, sampling.
"""

from functools import wraps
from inspect import signature
from numbers import Integral, Real

import numpy as np
import torch
from array_api_compat import array_namespace, device, is_torch_array

# ======================================================================================================================
# Checks. Each public function checks its arrays once, before it computes: a wrong shape is named and never answered by
# broadcasting, and the time loops stay free of checks.


def _takes(**shapes):
    """Make a function check its arrays: name="B T D" gives an array's axes, "3H" three stacked gates of H units.

    A letter gets its size from the first array that has it, so the arrays are named in the order in which a reader
    would trust them. An array whose axes end in "or None" may be left out; "any" stands for any shape.
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


def _check(arrays):
    """Raise on the first of {name: (array, axes)} that fits neither its axes nor the arrays before it."""
    sizes, source, first = {}, {}, None
    for name, (array, axes) in arrays.items():
        letters = axes.removesuffix(" or None").split()
        if array is None and axes.endswith("or None"):
            continue
        shape = "of any shape" if axes == "any" else f"({', '.join(letters)}{',' * (len(letters) == 1)})"
        # not NumPy's subclasses: the product of two matrices or masked arrays means something else
        kind = "NumPy array" if type(array) is np.ndarray else "PyTorch tensor" if is_torch_array(array) else None
        if kind is None:
            raise TypeError(f"{name} is a {type(array).__name__}; expected a NumPy array or a PyTorch tensor {shape}")
        if str(array.dtype).removeprefix("torch.") not in ("float32", "float64"):
            raise TypeError(f"{name} has dtype {array.dtype}; expected float32 or float64: convert it first")
        first = first or (name, kind, array)
        if kind != first[1]:
            raise TypeError(f"{name} is a {kind}; expected a {first[1]}, as {first[0]} is")
        if array.dtype != first[2].dtype:
            raise TypeError(f"{name} has dtype {array.dtype}; expected {first[2].dtype}, as {first[0]} has")
        if device(array) != device(first[2]):
            raise ValueError(f"{name} is on device {device(array)}; expected {device(first[2])}, as {first[0]} is")
        if axes == "any":
            continue
        if array.ndim != len(letters):
            came = f"{array.ndim} axes, shape {tuple(array.shape)}"
            raise ValueError(f"{name} has {came}; expected {len(letters)}, {shape}")
        for axis, size in zip(letters, array.shape, strict=True):
            gates, letter = int(axis[:-1] or 1), axis[-1]
            if sizes.setdefault(letter, size // gates) * gates != size:
                known = ", ".join(f"{k} = {sizes[k]} from {source[k]}" for k in source if k in axes)
                raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape} with {known}")
            source.setdefault(letter, name)
    if sizes.get("T") == 0:
        raise ValueError(f"{source['T']} has no time step, T = 0; expected at least one")


def _check_nonlinearity(nonlinearity):
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity is {nonlinearity!r}; expected 'tanh' or 'relu'")


# What several of the functions below compute.


def _zeros(x, H):
    """Return the zero state for the batch of x, shape (B, H), of the same kind as x."""
    return array_namespace(x).zeros((x.shape[0], H), dtype=x.dtype, device=device(x))


def _before(h0, hs):
    """Return the states before each step, h_0 ... h_{T-1}, shape (B, T, H)."""
    h0 = _zeros(hs, hs.shape[-1]) if h0 is None else h0
    return array_namespace(hs).concat([h0[:, None, :], hs[:, :-1, :]], axis=1)


def _steps(*sequences):
    """Return one tuple of arrays for each time step: (a[:, t], b[:, t], ...) for t = 1 ... T, each (B, K)."""
    return list(zip(*(array_namespace(a).unstack(a, axis=1) for a in sequences), strict=True))


def _sum_of_outer_products(das, inputs):
    """Return the sum of da xᵀ over batch and time, (K, N), from (B, T, K) and (B, T, N): one matrix product."""
    return das.reshape(-1, das.shape[-1]).T @ inputs.reshape(-1, inputs.shape[-1])


def _split(a, gates):
    """Return the gates that are stacked along the last axis, one array each."""
    H = a.shape[-1] // gates
    return [a[..., k * H : (k + 1) * H] for k in range(gates)]


def _sigmoid(a, xp):
    """Return σ(a) = (1 + tanh(a/2)) / 2, which cannot overflow."""
    return (1 + xp.tanh(a / 2)) / 2


# ======================================================================================================================
# The plain (Elman) recurrent network: Elman 1990; as in torch.nn.RNN, with one bias where PyTorch has two.
#
#     a_t = W_xh x_t + W_hh h_{t-1} + b_h          pre-activation
#     h_t = f(a_t)                                 f = tanh or ReLU


def _activate(a, nonlinearity, xp):
    """Return f(a)."""
    return xp.tanh(a) if nonlinearity == "tanh" else xp.where(a > 0, a, xp.zeros_like(a))


def _slope(h, nonlinearity, xp):
    """Return f'(a), written in terms of h = f(a): 1 - h² for tanh; for ReLU 1 where h > 0, else 0."""
    return 1 - h * h if nonlinearity == "tanh" else xp.astype(h > 0, h.dtype)


@_takes(x="B D", h="B H", W_hh="H H", W_xh="H D", b_h="H")
def rnn_step(x, h, W_xh, W_hh, b_h, nonlinearity="tanh"):
    """Return the next state h_t = f(W_xh x_t + W_hh h_{t-1} + b_h), shape (B, H).

    x (B, D) is the input of this step and h (B, H) the state before it; W_xh (H, D), W_hh (H, H), b_h (H,).
    nonlinearity is "tanh" or "relu". Source: Elman 1990.
    """
    _check_nonlinearity(nonlinearity)
    a = x @ W_xh.T + h @ W_hh.T + b_h  # (B, H)
    return _activate(a, nonlinearity, array_namespace(a))


@_takes(x="B D", h="B H", W_hh="H H", W_xh="H D", h_next="B H", dh="B H")
def rnn_step_backward(dh, x, h, h_next, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_step` took: {"x", "h", "W_xh", "W_hh", "b_h"}.

    dh (B, H) is dL/dh_t and h_next (B, H) the state that the step returned; the rest is what the step got.
    With da = dh ⊙ f'(a), each row of the batch gives  dL/dx = W_xhᵀ da,  dL/dh_{t-1} = W_hhᵀ da,  and adds
    da xᵀ, da h_{t-1}ᵀ and da  to the gradients of W_xh, W_hh and b_h.
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

    x (B, T, D); h0 (B, H), or None for zeros; W_xh (H, D), W_hh (H, H), b_h (H,). hs[:, -1] is h_T.
    The inputs' part of every step is one matrix product before the loop, because it needs no state.
    """
    _check_nonlinearity(nonlinearity)
    xp = array_namespace(x)
    h = _zeros(x, W_hh.shape[0]) if h0 is None else h0  # (B, H)
    projected = x @ W_xh.T + b_h  # (B, T, H)
    hs = []
    for (from_x,) in _steps(projected):  # (B, H)
        h = _activate(from_x + h @ W_hh.T, nonlinearity, xp)
        hs.append(h)
    return xp.stack(hs, axis=1)  # (B, T, H)


@_takes(x="B T D", W_hh="H H", h0="B H or None", W_xh="H D", hs="B T H", dhs="B T H")
def rnn_backward(dhs, x, h0, hs, W_xh, W_hh, nonlinearity="tanh"):
    """Return the gradients of a loss L for what `rnn_forward` took: {"x", "h0", "W_xh", "W_hh", "b_h"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence (the loss at that step; zeros
    where there is none); hs (B, T, H) is what `rnn_forward` returned; h0 may be None, as there. Backpropagation
    through time (Werbos 1990): walking back from t = T, a state's gradient is the outside part plus what step t + 1
    sends back,

        dL/dh_t = dhs_t + W_hhᵀ da_{t+1},      da_t = dL/dh_t ⊙ f'(a_t),

    and the weights, used at every step, collect a sum over the steps and the batch.
    """
    _check_nonlinearity(nonlinearity)
    xp = array_namespace(x)
    before = _before(h0, hs)  # (B, T, H)
    dh = xp.zeros_like(before[:, 0])  # (B, H): nothing comes back from beyond the last step
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
    A gradient with respect to h_t, as a row, multiplies it from the left. Source: Werbos 1990.
    """
    return (1 - h_next * h_next)[:, :, None] * W_hh  # (B, H, 1) * (H, H)


@_takes(W_hh="H H", hs="B T H")
def jacobian_product(hs, W_hh, start, stop):
    """Return J_stop ⋯ J_{start+1} = ∂h_stop/∂h_start of a tanh network, shape (B, H, H).

    hs (B, T, H) are the states of `rnn_forward`; steps are counted from 1, 0 <= start <= stop <= T, and start = stop
    gives the identity. The later step stands on the left: a gradient with respect to h_stop, as a row, times the
    product is the gradient with respect to h_start. Source: Pascanu, Mikolov and Bengio 2013.
    """
    for name, step in (("start", start), ("stop", stop)):
        if isinstance(step, bool) or not isinstance(step, Integral):
            raise TypeError(f"{name} is {step!r}; expected a whole number, a step counted from 1 (0 for h_0)")
    if not 0 <= start <= stop <= hs.shape[1]:
        raise ValueError(f"start = {start}, stop = {stop}; expected 0 <= start <= stop <= T = {hs.shape[1]}")
    xp, (B, _, H) = array_namespace(hs), hs.shape
    product = xp.zeros((B, H, H), dtype=hs.dtype, device=device(hs)) + xp.eye(H, dtype=hs.dtype, device=device(hs))
    for t in range(start, stop):
        product = rnn_jacobian(hs[:, t], W_hh) @ product  # hs[:, t] is h_{t+1}
    return product


# ======================================================================================================================
# The gated recurrent unit: Cho et al. 2014, with the reset gate after the product, as in torch.nn.GRU. The gates
# r, z, n are stacked in this order along the first axis of W_xh (3H, D), W_hh (3H, H), b_xh (3H,), b_hh (3H,).
#
#     r_t = σ(W_xr x_t + b_xr + W_hr h_{t-1} + b_hr)               reset gate
#     z_t = σ(W_xz x_t + b_xz + W_hz h_{t-1} + b_hz)               update gate
#     n_t = tanh(W_xn x_t + b_xn + r_t ⊙ (W_hn h_{t-1} + b_hn))    candidate
#     h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}


def _gru_gates(from_x, from_h, xp):
    """Return r, z, n and the candidate's recurrent part W_hn h + b_hn, from the two parts of the sums, (..., 3H)."""
    x_r, x_z, x_n = _split(from_x, 3)
    h_r, h_z, h_n = _split(from_h, 3)
    r = _sigmoid(x_r + h_r, xp)
    z = _sigmoid(x_z + h_z, xp)
    n = xp.tanh(x_n + r * h_n)
    return r, z, n, h_n


def _gru_gate_gradients(dh, h, r, z, n, h_n, xp):
    """Return dL/d(W_xh x + b_xh) and dL/d(W_hh h + b_hh), each (B, 3H), from dh = dL/dh_t."""
    da_n = dh * (1 - z) * (1 - n * n)
    da_r = da_n * h_n * r * (1 - r)
    da_z = dh * (h - n) * z * (1 - z)
    return xp.concat([da_r, da_z, da_n], axis=-1), xp.concat([da_r, da_z, da_n * r], axis=-1)


@_takes(x="B D", h="B H", W_hh="3H H", W_xh="3H D", b_xh="3H", b_hh="3H")
def gru_step(x, h, W_xh, W_hh, b_xh, b_hh):
    """Return the next state h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}, shape (B, H).

    x (B, D), h (B, H); W_xh (3H, D), W_hh (3H, H), b_xh (3H,), b_hh (3H,), stacked r, z, n. A GRU has two biases
    because the candidate's recurrent one, b_hn, stands inside r ⊙ (·). Source: Cho et al. 2014 and torch.nn.GRU.
    """
    _, z, n, _ = _gru_gates(x @ W_xh.T + b_xh, h @ W_hh.T + b_hh, array_namespace(x))
    return (1 - z) * n + z * h


@_takes(x="B D", h="B H", W_hh="3H H", W_xh="3H D", b_xh="3H", b_hh="3H", dh="B H")
def gru_step_backward(dh, x, h, W_xh, W_hh, b_xh, b_hh):
    """Return the gradients of a loss L for what `gru_step` took: {"x", "h", "W_xh", "W_hh", "b_xh", "b_hh"}.

    dh (B, H) is dL/dh_t; the rest is what the step got. The gates are computed again.
    """
    xp = array_namespace(x)
    r, z, n, h_n = _gru_gates(x @ W_xh.T + b_xh, h @ W_hh.T + b_hh, xp)
    da_x, da_h = _gru_gate_gradients(dh, h, r, z, n, h_n, xp)  # (B, 3H), (B, 3H)
    return {
        "x": da_x @ W_xh,  # (B, D)
        "h": dh * z + da_h @ W_hh,  # (B, H)
        "W_xh": da_x.T @ x,  # (3H, D)
        "W_hh": da_h.T @ h,  # (3H, H)
        "b_xh": da_x.sum(0),  # (3H,)
        "b_hh": da_h.sum(0),  # (3H,)
    }


@_takes(x="B T D", W_hh="3H H", h0="B H or None", W_xh="3H D", b_xh="3H", b_hh="3H")
def gru_forward(x, h0, W_xh, W_hh, b_xh, b_hh, with_cache=False):
    """Return the states hs (B, T, H): `gru_step` applied at t = 1 ... T; with_cache=True returns (hs, cache).

    x (B, T, D); h0 (B, H), or None for zeros; the weights as in `gru_step`. The cache keeps r, z, n and W_hn h + b_hn
    of every step, (B, T, 4H), for `gru_backward`.
    """
    xp = array_namespace(x)
    h = _zeros(x, W_hh.shape[1]) if h0 is None else h0  # (B, H)
    projected = x @ W_xh.T + b_xh  # (B, T, 3H)
    hs, cache = [], []
    for (from_x,) in _steps(projected):  # (B, 3H)
        r, z, n, h_n = _gru_gates(from_x, h @ W_hh.T + b_hh, xp)
        h = (1 - z) * n + z * h
        hs.append(h)
        cache.append(xp.concat([r, z, n, h_n], axis=-1))
    hs = xp.stack(hs, axis=1)  # (B, T, H)
    return (hs, xp.stack(cache, axis=1)) if with_cache else hs


@_takes(x="B T D", W_hh="3H H", h0="B H or None", W_xh="3H D", b_xh="3H", b_hh="3H", hs="B T H", dhs="B T H",
        cache="B T 4H or None")  # fmt: skip
def gru_backward(dhs, x, h0, hs, W_xh, W_hh, b_xh, b_hh, cache=None):
    """Return the gradients of a loss L for what `gru_forward` took: {"x", "h0", "W_xh", "W_hh", "b_xh", "b_hh"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence; hs and cache are what
    `gru_forward` returned (cache None: the gates are computed again); h0 may be None, as there.
    """
    xp = array_namespace(x)
    before = _before(h0, hs)  # (B, T, H)
    if cache is None:
        cache = xp.concat(_gru_gates(x @ W_xh.T + b_xh, before @ W_hh.T + b_hh, xp), axis=-1)  # all steps at once
    dh = xp.zeros_like(before[:, 0])  # (B, H)
    das_x, das_h = [], []
    for dhs_t, h, gates in reversed(_steps(dhs, before, cache)):
        dh = dhs_t + dh
        r, z, n, h_n = _split(gates, 4)
        da_x, da_h = _gru_gate_gradients(dh, h, r, z, n, h_n, xp)  # (B, 3H), (B, 3H)
        dh = dh * z + da_h @ W_hh
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
#
#     i_t = σ(W_xi x_t + W_hi h_{t-1} + b_i)       input gate
#     f_t = σ(W_xf x_t + W_hf h_{t-1} + b_f)       forget gate
#     g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)    candidate
#     o_t = σ(W_xo x_t + W_ho h_{t-1} + b_o)       output gate
#     c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t              cell
#     h_t = o_t ⊙ tanh(c_t)


def _lstm_gates(a, xp):
    """Return i, f, g, o, each (..., H), from the four sums a (..., 4H)."""
    i, f, g, o = _split(a, 4)
    return _sigmoid(i, xp), _sigmoid(f, xp), xp.tanh(g), _sigmoid(o, xp)


def _lstm_gate_gradients(dh, dc, c, c_next, gates, xp):
    """Return dL/da (B, 4H) and dL/dc_{t-1} (B, H), from dL/dh_t and what reaches c_t from step t + 1."""
    i, f, g, o = gates
    tanh_c = xp.tanh(c_next)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    da_i = dc * g * i * (1 - i)
    da_f = dc * c * f * (1 - f)
    da_g = dc * i * (1 - g * g)
    da_o = dh * tanh_c * o * (1 - o)
    return xp.concat([da_i, da_f, da_g, da_o], axis=-1), dc * f


@_takes(x="B D", h="B H", c="B H", W_hh="4H H", W_xh="4H D", b_h="4H")
def lstm_step(x, h, c, W_xh, W_hh, b_h):
    """Return the next state and cell (h_t, c_t), each (B, H): c_t = f ⊙ c_{t-1} + i ⊙ g, h_t = o ⊙ tanh(c_t).

    x (B, D), h (B, H), c (B, H); W_xh (4H, D), W_hh (4H, H), b_h (4H,), stacked i, f, g, o. Source: Gers, Schmidhuber
    and Cummins 2000, without peepholes.
    """
    xp = array_namespace(x)
    i, f, g, o = _lstm_gates(x @ W_xh.T + h @ W_hh.T + b_h, xp)
    c_next = f * c + i * g
    return o * xp.tanh(c_next), c_next


@_takes(x="B D", h="B H", c="B H", W_hh="4H H", W_xh="4H D", b_h="4H", dh="B H", dc="B H")
def lstm_step_backward(dh, dc, x, h, c, W_xh, W_hh, b_h):
    """Return the gradients of a loss L for what `lstm_step` took: {"x", "h", "c", "W_xh", "W_hh", "b_h"}.

    dh (B, H) is dL/dh_t and dc (B, H) the part of dL/dc_t that does not pass through h_t; the rest is what the step
    got. The gates are computed again.
    """
    xp = array_namespace(x)
    gates = _lstm_gates(x @ W_xh.T + h @ W_hh.T + b_h, xp)
    i, f, g, _ = gates
    da, dc = _lstm_gate_gradients(dh, dc, c, f * c + i * g, gates, xp)  # (B, 4H), (B, H)
    return {
        "x": da @ W_xh,  # (B, D)
        "h": da @ W_hh,  # (B, H)
        "c": dc,  # (B, H)
        "W_xh": da.T @ x,  # (4H, D)
        "W_hh": da.T @ h,  # (4H, H)
        "b_h": da.sum(0),  # (4H,)
    }


@_takes(x="B T D", W_hh="4H H", h0="B H or None", c0="B H or None", W_xh="4H D", b_h="4H")
def lstm_forward(x, h0, c0, W_xh, W_hh, b_h, with_cache=False):
    """Return the states and cells (hs, cs), each (B, T, H); with_cache=True returns (hs, cs, cache).

    `lstm_step` applied at t = 1 ... T. x (B, T, D); h0 and c0 (B, H), or None for zeros; the weights as in `lstm_step`.
    The cache keeps the gates i, f, g, o of every step, (B, T, 4H), for `lstm_backward`.
    """
    xp, H = array_namespace(x), W_hh.shape[1]
    h = _zeros(x, H) if h0 is None else h0  # (B, H)
    c = _zeros(x, H) if c0 is None else c0  # (B, H)
    projected = x @ W_xh.T + b_h  # (B, T, 4H)
    hs, cs, cache = [], [], []
    for (from_x,) in _steps(projected):  # (B, 4H)
        i, f, g, o = _lstm_gates(from_x + h @ W_hh.T, xp)
        c = f * c + i * g
        h = o * xp.tanh(c)
        hs.append(h)
        cs.append(c)
        cache.append(xp.concat([i, f, g, o], axis=-1))
    hs, cs = xp.stack(hs, axis=1), xp.stack(cs, axis=1)  # (B, T, H), (B, T, H)
    return (hs, cs, xp.stack(cache, axis=1)) if with_cache else (hs, cs)


@_takes(x="B T D", W_hh="4H H", h0="B H or None", c0="B H or None", W_xh="4H D", b_h="4H", hs="B T H", cs="B T H",
        dhs="B T H", dc_T="B H or None", cache="B T 4H or None")  # fmt: skip
def lstm_backward(dhs, x, h0, c0, hs, cs, W_xh, W_hh, b_h, dc_T=None, cache=None):
    """Return the gradients of a loss L for what `lstm_forward` took: {"x", "h0", "c0", "W_xh", "W_hh", "b_h"}.

    dhs (B, T, H) is the gradient that reaches each state from outside the recurrence and dc_T (B, H), or None for
    zeros, the same for the last cell; hs, cs and cache are what `lstm_forward` returned (cache None: the gates are
    computed again); h0 and c0 may be None, as there.
    """
    xp = array_namespace(x)
    before, cells_before = _before(h0, hs), _before(c0, cs)  # (B, T, H), (B, T, H)
    if cache is None:
        cache = xp.concat(_lstm_gates(x @ W_xh.T + before @ W_hh.T + b_h, xp), axis=-1)  # all steps at once
    dh = xp.zeros_like(before[:, 0])  # (B, H)
    dc = xp.zeros_like(dh) if dc_T is None else dc_T  # (B, H)
    das = []
    for dhs_t, c, c_next, gates in reversed(_steps(dhs, cells_before, cs, cache)):
        da, dc = _lstm_gate_gradients(dhs_t + dh, dc, c, c_next, _split(gates, 4), xp)  # (B, 4H), (B, H)
        dh = da @ W_hh
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
    """Return (the gradients as a list, scaled so that their common norm is at most max_norm; the norm before).

    grads is a list of arrays of any shapes. All are multiplied by min(1, max_norm / ‖grads‖), where ‖grads‖ is the
    square root of the sum of squares over all entries of all arrays. Source: Pascanu, Mikolov and Bengio 2013.
    """
    if not isinstance(grads, list | tuple) or not grads:
        raise TypeError(f"grads is {grads!r:.60}; expected a list of arrays, not an empty one")
    if isinstance(max_norm, bool) or not isinstance(max_norm, Real) or not max_norm >= 0:
        raise ValueError(f"max_norm is {max_norm!r}; expected a number of at least 0")
    _check({f"grads[{k}]": (gradient, "any") for k, gradient in enumerate(grads)})
    xp = array_namespace(*grads)
    norm = xp.sqrt(sum((g * g).sum() for g in grads))
    one = xp.ones_like(norm)
    scale = xp.where(norm > max_norm, max_norm / xp.where(norm > 0, norm, one), one)
    return [g * scale for g in grads], norm


# ======================================================================================================================
# Part 3, looking inside: for layers and cells of PyTorch, whatever their class, as long as their parameters are named
# and stacked as torch.nn's are.


def state_gradients(layer, x, loss):
    """Return dL/dh_t for t = 1 ... T, shape (B, T, H), of a one-layer network of PyTorch.

    This is the whole derivative, through the loss at step t and through every later state. layer is an RNN, GRU or
    LSTM with one layer and one direction; x (B, T, D), whatever the layer's batch_first; the initial state is zero.
    loss is a function of the states hs (B, T, H) that returns a scalar tensor.
    """
    if getattr(layer, "num_layers", None) != 1 or layer.bidirectional or getattr(layer, "proj_size", 0):
        raise ValueError(f"layer is {layer}; expected an RNN, GRU or LSTM with one layer, one direction, no projection")
    W_xh, W_hh = layer.weight_ih_l0, layer.weight_hh_l0
    H, gates = W_hh.shape[1], W_hh.shape[0] // W_hh.shape[1]
    b_xh, b_hh = (layer.bias_ih_l0, layer.bias_hh_l0) if layer.bias else (W_hh.new_zeros(gates * H),) * 2
    _check({"x": (x, "B T D"), "weight_ih_l0": (W_xh, f"{gates}H D")})
    h = _zeros(x, H).requires_grad_()
    c, hs = _zeros(x, H), []
    for (x_t,) in _steps(x):
        if gates == 1:
            h = rnn_step(x_t, h, W_xh, W_hh, b_xh + b_hh, layer.nonlinearity)
        elif gates == 3:
            h = gru_step(x_t, h, W_xh, W_hh, b_xh, b_hh)
        else:
            h, c = lstm_step(x_t, h, c, W_xh, W_hh, b_xh + b_hh)
        hs.append(h)
    return torch.stack(torch.autograd.grad(loss(torch.stack(hs, 1)), hs), 1)  # (B, T, H)


def orthogonal_(W, gain=1.0):
    """Fill a matrix, in place, with `gain` times a random orthogonal one, drawn uniformly; return it.

    All singular values are `gain`. Where gates are stacked, fill each one: `for W in weight.chunk(3): orthogonal_(W)`.
    Source: Saxe, McClelland and Ganguli 2014.
    """
    _check_matrix(W)
    return torch.nn.init.orthogonal_(W, gain)


def identity_(W):
    """Fill a square matrix, in place, with the identity; return it. Source: Le, Jaitly and Hinton 2015."""
    _check_matrix(W, square=True)
    return torch.nn.init.eye_(W)


def xavier_(W):
    """Fill a matrix (fan_out, fan_in), in place, from U(±√(6 / (fan_in + fan_out))); return it.

    The fans are the matrix's own: H and H for W_hh, H and D for W_xh. Source: Glorot and Bengio 2010.
    """
    _check_matrix(W)
    return torch.nn.init.xavier_uniform_(W)


def set_forget_bias_(lstm, value):
    """Set the forget gate's bias of an LSTM or LSTMCell, in every layer and direction; return the module.

    value is the sum of PyTorch's two biases, since only their sum acts; the second one is set to zero.
    """
    return _set_gate_bias_(lstm, value, gate=1, gates=4, kind="an LSTM or LSTMCell")


def set_update_bias_(gru, value):
    """Set the update gate's bias of a GRU or GRUCell, in every layer and direction; return the module.

    value is the sum of PyTorch's two biases, since only their sum acts; the second one is set to zero. A large value
    keeps the state: h_t = (1 − z_t) ⊙ n_t + z_t ⊙ h_{t-1}.
    """
    return _set_gate_bias_(gru, value, gate=1, gates=3, kind="a GRU or GRUCell")


def generate(model, prompt, length, temperature=1.0, generator=None):
    """Return `length` tokens drawn one after the other, (B, length) int64 on the model's device; no graph is kept.

    model(tokens, state) returns (logits, state) for tokens (B, T) and logits (B, T, V); state None begins a sequence.
    prompt (B, T) is read first, in one call; after that only the newest token is, with the state carried along.
    temperature divides the logits: below 1 likely tokens get likelier, and 0 takes the likeliest. generator is a
    torch.Generator on the model's device, for draws that can be repeated.
    """
    if not (isinstance(prompt, torch.Tensor) and prompt.dtype is torch.int64 and prompt.ndim == 2 and prompt.numel()):
        came = f"{tuple(prompt.shape)} {prompt.dtype}" if isinstance(prompt, torch.Tensor) else type(prompt).__name__
        raise TypeError(f"prompt is {came}; expected an int64 tensor (B, T) with at least one token")
    if isinstance(length, bool) or not isinstance(length, Integral) or length < 0:
        raise ValueError(f"length is {length!r}; expected a whole number of at least 0")
    if isinstance(temperature, bool) or not isinstance(temperature, Real) or not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature!r}; expected a finite number of at least 0")
    where = (
        next((p.device for p in model.parameters()), prompt.device) if hasattr(model, "parameters") else prompt.device
    )
    newest, state, tokens = prompt.to(where), None, []
    with torch.no_grad():
        for _ in range(length):
            logits, state = model(newest, state)
            last = logits[:, -1]  # (B, V)
            if temperature == 0:
                newest = last.argmax(-1, keepdim=True)  # (B, 1)
            else:
                newest = torch.multinomial(torch.softmax(last / temperature, -1), 1, generator=generator)
            tokens.append(newest)
    return torch.cat(tokens, 1) if tokens else prompt.new_empty((len(prompt), 0), device=where)


def best_device():
    """Return the device to use: the current CUDA device when there is one, else the CPU."""
    return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


def _check_matrix(W, square=False):
    if not isinstance(W, torch.Tensor):
        raise TypeError(f"W is a {type(W).__name__}; expected a PyTorch tensor, a matrix")
    if W.ndim != 2 or (square and W.shape[0] != W.shape[1]):
        raise ValueError(f"W has shape {tuple(W.shape)}; expected {'a square matrix (H, H)' if square else 'a matrix'}")


def _set_gate_bias_(module, value, gate, gates, kind):
    names = [name for name, _ in module.named_parameters()] if isinstance(module, torch.nn.Module) else []
    biases = [name for name in names if name.startswith("bias_ih")]
    H = getattr(module, "hidden_size", 0)
    if not H or getattr(module, names[0]).shape[0] != gates * H:
        raise TypeError(f"{module!r:.80} came; expected {kind}")
    if not biases:
        raise ValueError(f"{module} has no biases; expected {kind} made with bias=True")
    with torch.no_grad():
        for name in biases:
            getattr(module, name)[gate * H : (gate + 1) * H] = value
            getattr(module, name.replace("_ih", "_hh"))[gate * H : (gate + 1) * H] = 0
    return module
