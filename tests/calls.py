"""Calls of rnncore's functions, layers and cells, with arguments that fit, for the tests of more than one file."""

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

import rnncore

T, B, D, H = 5, 3, 4, 6
LAYERS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})]
LAYER_IDS = ["RNN", "RNN-relu", "GRU", "LSTM", "LSTM-projected"]
CELLS = [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("GRUCell", {}), ("LSTMCell", {})]
CELL_IDS = ["RNNCell", "RNNCell-relu", "GRUCell", "LSTMCell"]
FUNCTIONS = [f for f in vars(rnncore).values() if hasattr(f, "takes")]
SIZES = {"B": 3, "T": 5, "D": 2, "H": 4}


def shape_of(axes):
    return tuple(int(axis[:-1] or 1) * SIZES[axis[-1]] for axis in axes.removesuffix(" or None").split())


def right_arguments(function):
    """Arguments that fit a function, of any numbers."""
    rng = np.random.default_rng(0)
    more = {"start": 1, "stop": 3} if function is rnncore.jacobian_product else {}
    return {name: rng.normal(size=shape_of(axes)) for name, axes in function.takes.items()} | more


def normal(*shape, seed=1, **options):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.to(**options) if options else drawn


def to(device, state):
    return tuple(s.to(device) for s in state) if isinstance(state, tuple) else state.to(device)


def states_for(module, *batch, seed=2):
    """Return an initial state for a layer or cell of ours; batch is (B,) or ()."""
    sizes = [getattr(module, "proj_size", 0) or module.hidden_size, module.hidden_size][: module._network.states]
    leading = (module.num_layers * (1 + module.bidirectional),) if hasattr(module, "num_layers") else ()
    states = tuple(normal(*leading, *batch, size, seed=seed + k) for k, size in enumerate(sizes))
    return states if module._network.states == 2 else states[0]


def flat(result):
    """Return the tensors of what a module returned, in order."""
    if isinstance(result, PackedSequence):
        assert result.batch_sizes.device.type == "cpu"
        return [result.data, *(t for t in result[1:] if t is not None)]
    return [result] if isinstance(result, torch.Tensor) else [t for part in result for t in flat(part)]


def leaf(value):
    """Return a copy of an argument, its tensors leaves that want a gradient, and these leaves."""
    if value is None:
        return None, []
    if isinstance(value, tuple) and not isinstance(value, PackedSequence):
        parts = [leaf(part) for part in value]
        return tuple(part for part, _ in parts), [t for _, leaves in parts for t in leaves]
    data = (value.data if isinstance(value, PackedSequence) else value).detach().clone().requires_grad_()
    return (PackedSequence(data, *value[1:]) if isinstance(value, PackedSequence) else data), [data]


def run(module, input, hx=None, seed=7):
    """Return outputs and the gradients of a weighted sum of them for input, hx and every weight."""
    torch.manual_seed(seed)  # dropout's draws
    (input, leaves), (hx, more) = leaf(input), leaf(hx)
    outputs = flat(module(input) if hx is None else module(input=input, hx=hx))
    floats = [t for t in outputs if t.is_floating_point()]
    loss = sum((t * normal(*t.shape, seed=11 + k).to(t)).sum() for k, t in enumerate(floats))
    wanted = [*leaves, *more, *module.parameters()]
    return outputs, torch.autograd.grad(loss, wanted, allow_unused=True)
