"""How an implementation is called. Knows no right answer: a probe could run beside a student's code."""

from unittest.mock import patch

import numpy as np
import torch

from autograde import guard
from autograde.compare import describe


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


def weights_of_relu_network(implementation, arguments):
    """Return the weights for `bits_of_relu_network` as plain arrays: the part that needs the student's process."""
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    return dict(zip(names, _weights(implementation()), strict=True))


def pair(implementation, arguments):
    """Call a function with named values, in order; a list or tuple that comes back is taken as a tuple."""
    result = implementation(*arguments.values())
    return tuple(result) if isinstance(result, list | tuple) else result


def module(implementation, arguments):
    """Build a module, give it weights, run it, and differentiate.

    arguments has "options", what the class is called with; "weights" {name: array}; "inputs", the arrays it is called
    with; and perhaps "upstream", a gradient for each output: then the weights' gradients belong to the result.
    Returns {"output": array, "gradient of NAME": array}, or "output 0", "output 1" where there are several.
    """
    if not (isinstance(implementation, type) and issubclass(implementation, torch.nn.Module)):
        raise Unusable(f"This is {describe(implementation)}; expected a class, derived from torch.nn.Module")
    built = implementation(**arguments["options"])
    parameters = dict(built.named_parameters())
    wanted = {name: tuple(value.shape) for name, value in arguments["weights"].items()}
    found = {name: tuple(value.shape) for name, value in parameters.items()}
    if found != wanted:
        raise Unusable(f"The module's parameters are {_shapes(found)}; expected {_shapes(wanted)}")
    with torch.no_grad():
        for name, value in arguments["weights"].items():
            parameters[name].copy_(torch.as_tensor(value))
    outputs = built(*(torch.as_tensor(value) for value in arguments["inputs"]))
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    for number, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise Unusable(f"Output {number} of forward is {describe(output)}; expected a tensor")
    result = {f"output {k}" if len(outputs) > 1 else "output": o.detach().numpy() for k, o in enumerate(outputs)}
    if "upstream" in arguments:
        loss = sum((o * torch.as_tensor(g)).sum() for o, g in zip(outputs, arguments["upstream"], strict=True))
        if not loss.requires_grad:
            raise Unusable("No gradient reaches the parameters: does forward detach, or go through NumPy?")
        guard.allowed(loss.backward)
        for name, parameter in built.named_parameters():
            if parameter.grad is None:
                raise Unusable(f"No gradient reaches {name}: is it used in forward?")
            result[f"gradient of {name}"] = parameter.grad.numpy()
    return result


def with_rnn(implementation, arguments):
    """Make a torch.nn.RNN of given weights, with batch_first, and call a function with it and the other arguments.

    Arguments that bear names of torch's, weight_ih_l0, ..., are the weights, arrays.
    """
    weights, others = _torch_weights(arguments)
    (H, D), layers = weights["weight_ih_l0"].shape, len(weights) // 4
    rnn = torch.nn.RNN(D, H, layers, batch_first=True, dtype=torch.float64)
    rnn.load_state_dict(weights)
    return _without_graph(implementation(rnn, *others))


def with_gru_cell(implementation, arguments):
    """Make a torch.nn.GRUCell of the given weights, weight_ih, ..., and call a function with it and the others."""
    weights, others = _torch_weights(arguments)
    cell = torch.nn.GRUCell(weights["weight_ih"].shape[1], weights["weight_hh"].shape[1], dtype=torch.float64)
    cell.load_state_dict(weights)
    return _without_graph(implementation(cell, *others))


def with_weights(implementation, arguments):
    """Call a function with the other arguments and last the weights, {torch's name: tensor}, for load_state_dict."""
    weights, others = _torch_weights(arguments)
    return _without_graph(implementation(*others, weights))


def rnn_of_two_layers(implementation, arguments):
    """Let a function make a torch.nn.RNN of weights, and run it on arguments["x"], (B, T, D), from ["h0"], (2, B, H).

    While it is made, whatever PyTorch would draw at random is 1/2, so that what is left as drawn gives the same numbers
    each time. Returns {"output": (B, T, H), "h_n": (2, B, H)}.
    """
    x, h0 = (torch.as_tensor(arguments[name]) for name in ("x", "h0"))
    with patch.object(torch.nn.init, "uniform_", lambda tensor, *_, **__: torch.nn.init.constant_(tensor, 0.5)):
        made = implementation(*(value for name, value in arguments.items() if name not in ("x", "h0")))
    if type(made) is not torch.nn.RNN:
        kind = type(made)
        came = f"a {kind.__module__}.{kind.__name__}" if isinstance(made, torch.nn.Module) else describe(made)
        raise Unusable(f"The function returns {came}; expected a torch.nn.RNN")
    D, H = x.shape[2], h0.shape[2]
    for name, wanted in {"input_size": D, "hidden_size": H, "num_layers": 2, "bidirectional": False}.items():
        if getattr(made, name) != wanted:
            raise Unusable(f"The network's {name} is {getattr(made, name)}; expected {wanted}")
    for name, parameter in made.named_parameters():
        wanted = (H,) if name.startswith("bias") else (H, D) if name == "weight_ih_l0" else (H, H)
        if parameter.dtype != torch.float64 or tuple(parameter.shape) != wanted:
            raise Unusable(f"{name} is {describe(parameter.data)}; expected shape {wanted}, float64")
    try:
        output, h_n = made(x, h0)
    except RuntimeError as error:
        read = f"x of shape {tuple(x.shape)}, (B, T, D), from h_0 of shape {tuple(h0.shape)}, (2, B, H)"
        raise Unusable(f"The network cannot read {read}: {error}") from None
    return {"output": output.detach(), "h_n": h_n.detach()}


def output_and_h_n(implementation, arguments):
    """Call a function that returns two things as torch.nn.RNN does, and name them: {"output": ..., "h_n": ...}."""
    result = implementation(*arguments.values())
    if not isinstance(result, list | tuple) or len(result) != 2:
        raise Unusable(f"The function returns {describe(result)}; expected two tensors: output, h_n")
    return dict(zip(("output", "h_n"), map(_without_graph, result), strict=True))


DRAWS = 4000


def sampler(implementation, arguments):
    """Draw often and count.

    arguments has "logits" (B, V), what else the function takes, and "seed"; implementation(logits, ..., generator)
    returns one index for each row, (B,) int64. Returns {"frequencies": (B, V), "repeatable": bool}: the same generator
    must give the same draws. Compare with a tolerance of about 5 / (2 √DRAWS), five standard deviations.
    """
    given = {name: value for name, value in arguments.items() if name not in ("logits", "seed")}
    logits = torch.as_tensor(arguments["logits"])

    def draw(seed, rows):
        generator = torch.Generator().manual_seed(seed)
        drawn = implementation(rows.clone(), *given.values(), generator)
        if not isinstance(drawn, torch.Tensor) or drawn.dtype != torch.int64 or drawn.shape != rows.shape[:1]:
            raise Unusable(f"The function returns {describe(drawn)}; expected indices, an int64 tensor of shape (B,)")
        if not 0 <= int(drawn.min()) <= int(drawn.max()) < rows.shape[1]:
            raise Unusable(f"The function returns an index that is not between 0 and V - 1 = {rows.shape[1] - 1}")
        return drawn

    B, V = logits.shape
    many = draw(arguments["seed"], logits.repeat_interleave(DRAWS, 0)).view(B, DRAWS)
    frequencies = torch.stack([torch.bincount(row, minlength=V) for row in many]).double() / DRAWS
    again = [draw(7, logits.repeat_interleave(50, 0)) for _ in range(2)]
    return {"frequencies": frequencies.numpy(), "repeatable": bool(torch.equal(*again))}


def training_step(implementation, arguments):
    """Let a function train a small linear model for one step, and look at what it left.

    implementation(model, optimiser, x, y) returns the loss as a number; the model is a linear layer with the given
    "weights", the optimiser plain gradient descent with the given "learning rate". Two steps are made, so that a
    gradient that is not cleared shows. Returns {"losses": (2,), "weight": (…), "bias": (…)} after both.
    """
    weight, bias = (torch.as_tensor(arguments[name]) for name in ("weight", "bias"))
    model = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(bias)
    optimiser = torch.optim.SGD(model.parameters(), lr=arguments["learning rate"])
    losses = []
    for _ in range(2):
        loss = implementation(model, optimiser, torch.as_tensor(arguments["x"]), torch.as_tensor(arguments["y"]))
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            raise Unusable("The loss that is returned still holds the whole graph; return a number, with .item()")
        if isinstance(loss, torch.Tensor) or _numbers(loss) is None:
            raise Unusable(f"The function returns {describe(loss)}; expected the loss as a number, with .item()")
        losses.append(float(loss))
    return {"losses": np.array(losses), "weight": model.weight.detach().numpy(), "bias": model.bias.detach().numpy()}


def _weights(weights):
    """Return the five arrays of a network's dictionary, checked one by one."""
    names = ("W_xh", "W_hh", "b_h", "W_hy", "b_y")
    if not isinstance(weights, dict):
        raise Unusable(f"The function returns {describe(weights)}; expected a dictionary with {', '.join(names)}")
    if missing := [name for name in names if name not in weights]:
        raise Unusable(f"The dictionary lacks {', '.join(missing)}; expected {', '.join(names)}")
    if unknown := sorted(set(map(str, weights)) - set(names)):
        raise Unusable(f"The dictionary has the unknown entry {', '.join(unknown)}; expected {', '.join(names)}")
    arrays = []
    for name in names:
        array = _numbers(weights[name])
        if array is None:
            raise Unusable(f"{name} is {describe(weights[name])}; expected an array of real numbers")
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


def _shapes(shapes):
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "none"


def _torch_weights(arguments):
    """Return ({torch's name: weights}, [the other arguments])."""
    weights = {n: torch.as_tensor(value) for n, value in arguments.items() if n.startswith(("weight_", "bias_"))}
    return weights, [value for name, value in arguments.items() if name not in weights]


def _without_graph(result):
    """Return a tensor that may leave the process: one with a graph can be neither copied nor sent."""
    return result.detach() if isinstance(result, torch.Tensor) else result
