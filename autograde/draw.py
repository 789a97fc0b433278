"""Draws the inputs and weights of cases."""

import numpy as np
import torch


def normal(rng, **shapes):
    """Return {name: array} with standard normal entries, float64, one for each name=shape."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def recurrent(rng, D, H, gain=0.9):
    """Return W_xh (H, D), W_hh (H, H) and b_h (H,).

    The largest singular value of W_hh is `gain`; below 1 the states of right but differently rounded answers come
    together instead of drifting apart.
    """
    weights = normal(rng, W_xh=(H, D), W_hh=(H, H), b_h=(H,))
    weights["W_hh"] *= gain / np.linalg.norm(weights["W_hh"], ord=2)
    return weights


def only(arguments, *kept):
    """Return the arguments with every array zero but the kept ones, so that one term of an equation is left."""
    return {name: value if name in kept else np.zeros_like(value) for name, value in arguments.items()}


def tensors(arrays):
    """Return arrays, or lists of numbers, as PyTorch tensors of their dtype."""
    return {name: torch.as_tensor(array) for name, array in arrays.items()}
