"""How an implementation is called. Knows no right answer: a probe could run beside a student's code."""

import numpy as np


class Unusable(Exception):
    """Raised by a probe for a result it cannot work with; its text tells the student what came and what was asked."""


def call(implementation, arguments):
    """Call a function with named values, in order, and return what it returns."""
    return implementation(*arguments.values())


def bits_of_relu_network(implementation, arguments):
    """Build weights, run a ReLU network from h_0 = 0 on strings of bits, and return at each step if y_t > 1/2.

    implementation() returns a dictionary with W_xh (H, 1), W_hh (H, H), b_h (H,), W_hy (1, H) and b_y (1,), for any H.
    arguments["bits"] is an array of zeros and ones, (B, T). Returns zeros and ones, (B, T).
    """
    W_xh, W_hh, b_h, W_hy, b_y = _weights(implementation())
    bits = arguments["bits"]
    B, T = bits.shape
    h = np.zeros((B, b_h.shape[0]))
    answers = np.zeros((B, T))
    with np.errstate(over="ignore", invalid="ignore"):  # weights that explode give wrong bits, not warnings
        for t in range(T):
            h = np.maximum(np.outer(bits[:, t], W_xh[:, 0]) + np.einsum("bj,ij->bi", h, W_hh) + b_h, 0)
            answers[:, t] = np.einsum("bj,j->b", h, W_hy[0]) + b_y[0] > 1 / 2
    return answers


def _weights(weights):
    """Return the five arrays of a network's dictionary, checked one by one."""
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    if not isinstance(weights, dict):
        raise Unusable(f"the function returns {_kind(weights)}; expected a dictionary with {', '.join(names)}")
    if missing := [name for name in names if name not in weights]:
        raise Unusable(f"the dictionary lacks {', '.join(missing)}; expected {', '.join(names)}")
    if unknown := sorted(set(map(str, weights)) - set(names)):
        raise Unusable(f"the dictionary has the unknown entry {', '.join(unknown)}; expected {', '.join(names)}")
    arrays = []
    for name in names:
        array = _numbers(weights[name])
        if array is None:
            raise Unusable(f"{name} is {_kind(weights[name])}; expected an array of real numbers")
        arrays.append(array)
    H = arrays[1].shape[0] if arrays[1].ndim == 2 else 0
    if H == 0:
        raise Unusable(f"W_hh has shape {arrays[1].shape}; expected (H, H) with H of your choice, at least 1")
    for name, array, wanted in zip(names, arrays, [(H, 1), (H, H), (H,), (1, H), (1,)], strict=True):
        if array.shape != wanted:
            raise Unusable(f"{name} has shape {array.shape}; expected {wanted}, since W_hh has {H} rows")
        if not np.isfinite(array).all():
            raise Unusable(f"{name} holds numbers that are not finite")
    return arrays


def _numbers(value):
    """Return a value as an array, float64, or None when it is no array of real numbers."""
    try:
        array = np.asarray(value)
    except Exception:  # rows of unequal length, a tensor that needs a gradient
        return None
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def _kind(value):
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"
