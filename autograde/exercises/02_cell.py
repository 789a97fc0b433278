"""Chapter 2: the step as a module, the loop over time, a stack of layers, the hoisted projection, Xavier's weights."""

from functools import partial

import numpy as np
import torch

from autograde import draw
from autograde.exercise import Case, Exercise
from autograde.exercise import Misconception as M
from autograde.probes import filled, module, products_with_input, spread

LAYERS = ("torch.nn.RNN", "torch.rnn_tanh", "torch.ops.aten.rnn_tanh")  # what would run over time by itself
CELLS = ("torch.nn.RNNCell", "torch.rnn_tanh_cell", "torch.ops.aten.rnn_tanh_cell")


def _changed(base, **methods):
    """Return a class like another, with some of its methods written otherwise."""
    return type(base.__name__, (base,), methods)


# ----------------------------------------------------------------------------------------------------------
# rnn-cell: RNNCell(D, H), a module with W_xh, W_hh and b_h; forward(x, h) -> the next state, (B, H)


def cell_cases(rng):
    def arguments(B, D, H, kept=(), gradients=True):
        weights, inputs = draw.recurrent(rng, D, H), draw.normal(rng, x=(B, D), h=(B, H))
        upstream = list(draw.tensors(draw.normal(rng, h=(B, H))).values())
        if kept:
            weights, inputs = draw.only(weights, *kept), draw.only(inputs, *kept)
        given = {"sizes": {"D": D, "H": H}, "weights": draw.tensors(weights), "inputs": draw.tensors(inputs)}
        return given | {"outputs": ["h"]} | ({"upstream": upstream} if gradients else {})

    def term(*kept):
        return arguments(2, 3, 4, kept, gradients=False)

    by_hand = arguments(1, 1, 1)
    by_hand["weights"] = draw.tensors({"W_xh": np.array([[2.0]]), "W_hh": np.array([[1.0]]), "b_h": np.array([0.1])})
    by_hand["inputs"] = draw.tensors({"x": np.array([[0.5]]), "h": np.array([[-0.25]])})
    yield Case("one unit, numbers to check by hand", by_hand)
    yield Case("only the input's term", term("x", "W_xh"), term="the input's term")
    yield Case("only the recurrent term", term("h", "W_hh"), term="the recurrent term")
    yield Case("only the bias", term("b_h"), term="the bias")
    yield Case("B, D and H all different, with gradients", arguments(4, 3, 5))
    yield Case("B = D = H, with gradients", arguments(3, 3, 3))
    yield Case("a batch of one, with gradients", arguments(1, 3, 2))


class _Cell(torch.nn.Module):
    def __init__(self, D, H):
        super().__init__()
        for name, shape in {"W_xh": (H, D), "W_hh": (H, H), "b_h": (H,)}.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, x, h):
        return torch.tanh(self.from_input(x) + self.from_state(h) + self.b_h)

    def from_input(self, x):
        return torch.nn.functional.linear(x, self.W_xh)

    def from_state(self, h):
        return torch.nn.functional.linear(h, self.W_hh)


def _pre_activation(cell, x, h):
    return cell.from_input(x) + cell.from_state(h) + cell.b_h


_cell = partial(_changed, _Cell)

CELL = Exercise(
    id="rnn-cell",
    points=4,
    reference=_Cell,
    cases=cell_cases,
    probe=module,
    axes={"output h": "B H"},
    section="“The same numbers”",
    forbidden=("rnncore", *LAYERS, *CELLS),
    tolerance=1e-9,
    misconceptions={
        "the bias is missing": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.from_input(x) + self.from_state(h))),
            "A parameter that forward does not use gets no gradient. Count the terms of the equation.",
        ),
        "the bias is added twice": M(
            _cell(forward=lambda self, x, h: torch.tanh(_pre_activation(self, x, h) + self.b_h)),
            "PyTorch has two bias vectors; this cell has one.",
        ),
        "W_hh is not transposed": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.from_input(x) + h @ self.W_hh + self.b_h)),
            "The equation multiplies a column from the left; a batch holds one state in each row.",
        ),
        "W_xh is not transposed": M(
            _cell(forward=lambda self, x, h: torch.tanh(x @ self.W_xh + self.from_state(h) + self.b_h)),
            "The equation multiplies a column from the left; a batch holds one input in each row.",
        ),
        "neither matrix is transposed": M(
            _cell(forward=lambda self, x, h: torch.tanh(x @ self.W_xh + h @ self.W_hh + self.b_h)),
            "The equation multiplies a column from the left; a batch holds one vector in each row.",
        ),
        "the matrices stand on the left, as in the equation": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.W_xh @ x + self.W_hh @ h + self.b_h)),
            "The equation is for one column. In a batch each vector is a row.",
        ),
        "the recurrent term is missing": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.from_input(x) + self.b_h)),
            "Without the state before, the network has no memory. Which arguments are never used?",
        ),
        "the input's term is missing": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.from_state(h) + self.b_h)),
            "The network has to see its input. Which arguments are never used?",
        ),
        "tanh is missing": M(
            _cell(forward=_pre_activation),
            "A state lies between -1 and 1. What in the equation keeps it there?",
        ),
        "ReLU stands in place of tanh": M(
            _cell(forward=lambda self, x, h: torch.relu(_pre_activation(self, x, h))),
            "This network's states may be negative.",
        ),
        "the sigmoid stands in place of tanh": M(
            _cell(forward=lambda self, x, h: torch.sigmoid(_pre_activation(self, x, h))),
            "Both curves are S-shaped; the sigmoid gives no negative number.",
        ),
        "the bias stands outside tanh": M(
            _cell(forward=lambda self, x, h: torch.tanh(self.from_input(x) + self.from_state(h)) + self.b_h),
            "Look at what stands inside the brackets of tanh.",
        ),
        "tanh is taken of each term": M(
            _cell(forward=lambda self, x, h: self.from_input(x).tanh() + self.from_state(h).tanh() + self.b_h.tanh()),
            "Look at what stands inside the brackets of tanh: a single sum, or single terms?",
        ),
        "the two matrices are exchanged": M(
            _cell(forward=lambda self, x, h: torch.tanh(x @ self.W_hh.T + h @ self.W_xh.T + self.b_h)),
            "The second letter of a matrix's name says what it multiplies, the first what it gives.",
        ),
        "the state before is added to the new one": M(
            _cell(forward=lambda self, x, h: h + torch.tanh(_pre_activation(self, x, h))),
            "A new state takes the place of the one before. What keeps it between -1 and 1?",
        ),
        "the new state is cut off from what it was computed from": M(
            _cell(forward=lambda self, x, h: torch.tanh(_pre_activation(self, x, h)).detach()),
            "The numbers are right, but nothing can be learned from them: .detach(), .data, torch.no_grad(), .numpy() "
            "and making a new tensor of old numbers all end the record.",
        ),
        "the weights are read without being recorded": M(
            _cell(
                forward=lambda self, x, h: torch.tanh(x @ self.W_xh.data.T + h @ self.W_hh.data.T + self.b_h.data),
            ),
            "The numbers are right, but no gradient reaches the parameters: use them as they are, not their .data.",
        ),
        "the state before is detached": M(
            _cell(forward=lambda self, x, h: torch.tanh(_pre_activation(self, x, h.detach()))),
            "The numbers are right, but no gradient passes to the step before: over time, nothing could be learned.",
        ),
        "the new state is written over the one before": M(
            _cell(forward=lambda self, x, h: h.copy_(torch.tanh(_pre_activation(self, x, h)))),
            "Operations whose names end in an underscore, += and assigning to h[:] write into the caller's tensor, "
            "which PyTorch may still need for the gradient. Give the new state its own name.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# rnn-layer: RNNLayer(D, H) with a torch.nn.RNNCell; forward(x, h0=None) -> (h_1 ... h_T, h_T)


def layer_cases(rng):
    def arguments(B, T, D, H, kept=(), without_h0=False):
        drawn = draw.recurrent(rng, D, H) | draw.normal(rng, bias=(H,), x=(B, T, D), h0=(B, H))
        if kept:
            drawn = draw.only(drawn, *kept)
        drawn = draw.tensors(drawn | draw.normal(rng, dhs=(B, T, H), dh_T=(B, H)))
        names = {"weight_ih": "W_xh", "weight_hh": "W_hh", "bias_ih": "b_h", "bias_hh": "bias"}
        return {
            "sizes": {"D": D, "H": H},
            "weights": {f"cell.{theirs}": drawn[ours] for theirs, ours in names.items()},
            "inputs": {"x": drawn["x"], "h0": None if without_h0 else drawn["h0"]},
            "outputs": ["hs", "h_T"],
            "upstream": [drawn["dhs"], drawn["dh_T"]],
        }

    yield Case("one step", arguments(3, 1, 2, 4))
    yield Case("only the initial state and W_hh", arguments(2, 3, 2, 4, ("h0", "W_hh")))
    yield Case("B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("h_0 is left out", arguments(2, 4, 3, 5, without_h0=True))
    yield Case("B = T = D = H", arguments(3, 3, 3, 3))
    yield Case("a batch of one, twelve steps", arguments(1, 12, 3, 2))


class _Layer(torch.nn.Module):
    """The loop, right; `_layer` changes what comes before a step, after it, and at the end."""

    def __init__(self, D, H):
        super().__init__()
        self.cell = torch.nn.RNNCell(D, H)

    def forward(self, x, h0=None):
        h, found = self.start(x, h0), []
        for x_t in self.inputs(x):
            new = self.cell(x_t, h)
            found.append(new)
            h = self.carried(h, new)
        return self.result(found, h0)

    def start(self, x, h0):
        return x.new_zeros(len(x), self.cell.hidden_size) if h0 is None else h0

    def inputs(self, x):
        return x.unbind(1)

    def carried(self, old, new):
        return new

    def result(self, found, h0):
        return torch.stack(found, 1), found[-1]


def _written_over(self, x, h0=None):
    h, found = self.start(x, h0), []
    for x_t in self.inputs(x):
        h.copy_(self.cell(x_t, h))
        found.append(h)
    return torch.stack(found, 1), h


def _overwritten(self, x, h0=None):
    h, found = self.start(x, h0), []
    for x_t in self.inputs(x):
        h.copy_(self.cell(x_t, h))
        found.append(h.clone())
    return torch.stack(found, 1), h


def _read_back(self, x, h0=None, with_h0=False):
    """Keep the states in one tensor, and take the state before from it."""
    h = self.start(x, h0)
    hs = torch.cat([h[:, None], x.new_zeros(*x.shape[:2], h.shape[1])], 1)
    for t, x_t in enumerate(self.inputs(x)):
        hs[:, t + 1] = self.cell(x_t, hs[:, t] if t or with_h0 else h)
    return hs[:, 1:], hs[:, -1]


def _late(found, h0):
    """Return the states one step late: h_0 first, or zeros where there is none, and the last missing."""
    first = torch.zeros_like(found[0]) if h0 is None else h0
    return [first, *found[:-1]]


_layer = partial(_changed, _Layer)

LAYER = Exercise(
    id="rnn-layer",
    points=4,
    reference=_Layer,
    cases=layer_cases,
    probe=module,
    axes={"output hs": "B T H", "output h_T": "B H"},
    section="“The sequence”",
    forbidden=("rnncore", *LAYERS),
    tolerance=1e-9,
    misconceptions={
        "the state is not carried": M(
            _layer(carried=lambda self, old, new: old),
            "Every step gets the state before it. What does your second step get?",
        ),
        "the state is detached at every step": M(
            _layer(carried=lambda self, old, new: new.detach()),
            "The states are right, but the record ends at every step: no gradient reaches an earlier one.",
        ),
        "h_0 is ignored": M(
            _layer(start=lambda self, x, h0: x.new_zeros(len(x), self.cell.hidden_size)),
            "A network need not start from zeros. What does your first step get?",
        ),
        "h_0 is detached": M(
            _layer(start=lambda self, x, h0: x.new_zeros(len(x), self.cell.hidden_size) if h0 is None else h0.detach()),
            "The states are right, but no gradient reaches h_0: it may be the output of another module, or learned.",
        ),
        "the states are detached": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1).detach(), found[-1])),
            "The numbers are right, but no gradient comes back through hs: making new tensors of old numbers, "
            ".detach() and .data all end the record.",
        ),
        "both results are cut off from what they were computed from": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1).detach(), found[-1].detach())),
            "The numbers are right, but nothing can be learned from them: .detach(), .data, torch.no_grad(), .numpy() "
            "and making new tensors of old numbers all end the record.",
        ),
        "h_0 is part of hs": M(
            _layer(result=lambda self, found, h0: (torch.stack([*_late(found, h0), found[-1]], 1), found[-1])),
            "The states are h_1 to h_T, as many as there are inputs; h_0 is given, not computed.",
        ),
        "h_0 is first in hs and h_T is missing": M(
            _layer(result=lambda self, found, h0: (torch.stack(_late(found, h0), 1), found[-1])),
            "Do you keep the state from before the step, or from after it?",
        ),
        "time comes before the batch": M(
            _layer(result=lambda self, found, h0: (torch.stack(found), found[-1])),
            "The numbers are right; the axes of hs are B, T, H in this order.",
        ),
        "time is the last axis": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, -1), found[-1])),
            "The numbers are right; the axes of hs are B, T, H in this order.",
        ),
        "the loop runs over the batch": M(
            _layer(inputs=lambda self, x: x.unbind(0)),
            "Which axis of x is time?",
        ),
        "the states are joined side by side": M(
            _layer(result=lambda self, found, h0: (torch.cat(found, 1), found[-1])),
            "torch.cat joins along an axis that is there; the states need a new one, for time.",
        ),
        "the axes B and T are exchanged by reshape": M(
            _layer(result=lambda self, found, h0: (torch.cat(found).view(len(found[0]), len(found), -1), found[-1])),
            "reshape and view keep the numbers in their order and deal them out anew; they exchange no axes.",
        ),
        "the sequence is read backwards": M(
            _layer(inputs=lambda self, x: x.flip(1).unbind(1)),
            "The first input is x[:, 0].",
        ),
        "the last state of the batch's last sequence stands for h_T": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1), torch.stack(found, 1)[-1])),
            "Which axis of hs is time? h_T has one row for each sequence.",
        ),
        "h_1 stands for h_T": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1), found[0])),
            "h_T is the state after the last step.",
        ),
        "h_T has an axis for layers": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1), found[-1][None])),
            "torch.nn.RNN returns its last states with a first axis for layers; here there is one layer, and h_T is "
            "(B, H).",
        ),
        "the results are exchanged": M(
            _layer(result=lambda self, found, h0: (found[-1], torch.stack(found, 1))),
            "First all states, then the last one.",
        ),
        "tanh is applied to the cell's result": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1).tanh(), found[-1])),
            "The cell's result is a state already.",
        ),
        "tanh is applied to the state that is handed on": M(
            _layer(carried=lambda self, old, new: torch.tanh(new)),
            "The cell's result is a state already: the next step gets it as it is.",
        ),
        "the states are added up": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1).cumsum(1), found[-1])),
            "A state replaces the one before; it is not added to it.",
        ),
        "the tensor of the first state is used for all steps": M(
            _layer(forward=_written_over),
            "Writing into a tensor changes every place that holds it: hs shows the last state T times, and the "
            "caller's h_0 is lost. Give the new state its own name.",
        ),
        "the state before is read back from the tensor into which the states are written": M(
            _layer(forward=_read_back),
            "The states are right. But every write into hs changes the tensor that the step before needs for its "
            "gradient. Collect the states, and join them at the end.",
        ),
        "h_0 and the states are written into one tensor and read back from it": M(
            _layer(forward=lambda self, x, h0=None: _read_back(self, x, h0, with_h0=True)),
            "The states are right. But every write into the tensor changes what an earlier step needs for its "
            "gradient. Collect the states, and join them at the end.",
        ),
        "hs is made in float32, whatever x is": M(
            _layer(result=lambda self, found, h0: (torch.stack(found, 1).float(), found[-1])),
            "torch.zeros and torch.empty make float32 on the CPU. Make new tensors beside x.",
        ),
        "forward returns after the first step": M(
            _layer(result=lambda self, found, h0: (found[0][:, None], found[0])),
            "Python leaves a function at the first return that it comes to. How far in does that line stand?",
        ),
        "h_0 is overwritten": M(
            _layer(forward=_overwritten),
            "Operations whose names end in an underscore, += and assigning to h[:] write into the caller's tensor. "
            "Give the new state its own name.",
        ),
        "the first step is missing": M(
            _layer(inputs=lambda self, x: x.unbind(1)[1:] or x.unbind(1)),
            "The first input is x[:, 0].",
        ),
        "the last step is missing": M(
            _layer(inputs=lambda self, x: x.unbind(1)[:-1] or x.unbind(1)),
            "How many inputs are there, and how many steps does your loop make?",
        ),
        "every step gets the first input": M(
            _layer(inputs=lambda self, x: [x[:, 0]] * x.shape[1]),
            "Step t gets the t-th input of every sequence.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# stacked-rnn: StackedRNN(D, H, C, L), L one-layer torch.nn.RNN and a linear readout; forward(x) -> (B, T, C)


def stack_cases(rng):
    def arguments(B, T, D, H, C, L):
        weights = {}
        for k in range(L):
            drawn = draw.recurrent(rng, H if k else D, H) | draw.normal(rng, bias=(H,))
            names = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), drawn.values(), strict=True))
            weights |= {f"layers.{k}.{name}_l0": value for name, value in names.items()}
        weights |= {f"readout.{name}": value for name, value in draw.normal(rng, weight=(C, H), bias=(C,)).items()}
        drawn = draw.tensors(draw.normal(rng, x=(B, T, D), dys=(B, T, C)))
        return {
            "sizes": {"D": D, "H": H, "C": C, "L": L},
            "weights": draw.tensors(weights),
            "inputs": {"x": drawn["x"]},
            "outputs": ["ys"],
            "upstream": [drawn["dys"]],
        }

    yield Case("two layers, B = T = D = H = C", arguments(3, 3, 3, 3, 3, 2))
    yield Case("two layers, all sizes different", arguments(3, 5, 2, 4, 6, 2))
    yield Case("one layer", arguments(2, 4, 3, 5, 2, 1))
    yield Case("three layers, D = H = C", arguments(2, 4, 3, 3, 3, 3))
    yield Case("a batch of one, one step", arguments(1, 1, 3, 2, 4, 2))


class _Stack(torch.nn.Module):
    """The stack, right; `_stack` changes what a layer gets and what is read."""

    def __init__(self, D, H, C, L):
        super().__init__()
        sizes = [D] + [H] * L
        self.layers = torch.nn.ModuleList(map(self.layer, sizes[:-1], sizes[1:]))
        self.readout = torch.nn.Linear(in_features=H, out_features=C)

    def layer(self, D, H):
        return torch.nn.RNN(D, H, batch_first=True)

    def forward(self, x):
        found = [x]
        for each in self.layers:
            found.append(self.run(each, found))
        return self.read(found)

    def run(self, layer, found):
        return layer(found[-1])[0]

    def read(self, found):
        return self.readout(found[-1])


def _upwards_as_outputs(self, x):
    for each in self.layers:
        x = self.readout(each(x)[0])
    return x


def _from_the_last_state(self, x):
    h_T = None
    for each in self.layers:
        x, h_T = each(x, h_T)
    return self.readout(x)


def _last_layer_first(self, x):
    for layer in reversed(self.layers):
        x = layer(x)[0]
    return self.readout(x)


_stack = partial(_changed, _Stack)

STACK = Exercise(
    id="stacked-rnn",
    points=4,
    reference=_Stack,
    cases=stack_cases,
    probe=module,
    axes={"output ys": "B T C"},
    section="“Layers on layers”",
    forbidden=("rnncore",),
    tolerance=1e-9,
    misconceptions={
        "the outputs y are fed upwards": M(
            _stack(forward=_upwards_as_outputs),
            "What a layer hands to the next is its states; the outputs are read once, at the top.",
        ),
        "every layer reads x": M(
            _stack(run=lambda self, layer, found: layer(found[0])[0]),
            "Only the lowest layer sees the input. What does the second one get?",
        ),
        "the lowest layer's states are read": M(
            _stack(read=lambda self, found: self.readout(found[1])),
            "The outputs are read from the top.",
        ),
        "the layers take time for the batch": M(
            _stack(layer=lambda self, D, H: torch.nn.RNN(D, H)),
            "How does a torch.nn.RNN know which axis of x is time? It takes the first one unless told otherwise.",
        ),
        "only the last output is returned": M(
            _stack(read=lambda self, found: self.readout(found[-1][:, -1])),
            "There is an output at every step.",
        ),
        "the readout is missing": M(
            _stack(read=lambda self, found: found[-1]),
            "The states of the top layer are not the outputs yet.",
        ),
        "a layer begins with the last state of the one below": M(
            _stack(forward=_from_the_last_state),
            "Every layer begins with zeros of its own. What passes upwards is the states of all steps.",
        ),
        "the layers are run in reverse order": M(
            _stack(forward=_last_layer_first),
            "layers[0] is the lowest: it reads x.",
        ),
        "the gradient ends between the layers": M(
            _stack(run=lambda self, layer, found: layer(found[-1])[0].detach()),
            "The outputs are right, but no gradient reaches a layer: .detach(), .data and making new tensors of old "
            "numbers all end the record.",
        ),
        "a layer's input is added to its states": M(
            _stack(run=lambda self, layer, found: found[-1] + layer(found[-1])[0]),
            "In a plain stack a layer's states replace what it read.",
        ),
        "every step begins with zeros": M(
            _stack(run=lambda self, layer, found: torch.cat([layer(x_t)[0] for x_t in found[-1].split(1, 1)], 1)),
            "A layer called anew for every step knows nothing of the step before. What runs over time by itself?",
        ),
        "tanh is applied between the layers": M(
            _stack(run=lambda self, layer, found: layer(found[-1])[0].tanh()),
            "The layers' states have been through tanh already.",
        ),
        "ReLU is applied between the layers": M(
            _stack(run=lambda self, layer, found: layer(found[-1])[0].relu()),
            "The states go upwards as they are.",
        ),
        "tanh is applied to the output": M(
            _stack(read=lambda self, found: self.readout(found[-1]).tanh()),
            "The output is no state: it may be as large as it needs to be.",
        ),
        "a softmax is applied to the output": M(
            _stack(read=lambda self, found: self.readout(found[-1]).softmax(-1)),
            "Probabilities come later, in the loss; the output layer stops before.",
        ),
        "the layers' states are added up": M(
            _stack(read=lambda self, found: self.readout(sum(found[1:]))),
            "The outputs are read from the top layer alone.",
        ),
        "only the last state is fed upwards": M(
            _stack(run=lambda self, layer, found: layer(found[-1])[1].transpose(0, 1)),
            "The layer above reads a whole sequence, too: the states of all steps. What are the two things that a "
            "torch.nn.RNN returns?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# hoisted-layer: hoisted_layer(x, h0, W_xh, W_hh, b_h) -> the states, with one product for all inputs


def hoisted_cases(rng):
    def arguments(B, T, D, H):
        return draw.tensors(draw.normal(rng, x=(B, T, D), h0=(B, H)) | draw.recurrent(rng, D, H))

    one_unit = {"x": np.array([[[1.0], [2.0], [3.0]]]), "h0": np.zeros((1, 1))}
    one_unit |= {"W_xh": np.array([[0.2]]), "W_hh": np.array([[0.5]]), "b_h": np.array([0.1])}
    yield Case("one unit, the numbers 1, 2, 3 from h_0 = 0", draw.tensors(one_unit))
    yield Case("B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("B = T = D = H", arguments(4, 4, 4, 4))
    yield Case("a batch of one", arguments(1, 6, 3, 2))
    yield Case("twelve steps", arguments(2, 12, 3, 5))
    yield Case("one step", arguments(3, 1, 2, 4), counted=False)  # where there is no loop to hoist out of


def _hoisted(x, h0, W_xh, W_hh, b_h, carry=lambda old, new: new, activate=torch.tanh):
    from_x = torch.nn.functional.linear(x, W_xh, b_h)
    return _loop(from_x, h0, W_hh, carry, activate)


def _loop(from_x, h0, W_hh, carry=lambda old, new: new, activate=torch.tanh):
    h, found = h0, []
    for a in from_x.unbind(1):
        new = activate(a + torch.nn.functional.linear(h, W_hh))
        found.append(new)
        h = carry(h, new)
    return torch.stack(found, 1)


def _written_over_h0(x, h0, W_xh, W_hh, b_h):
    found = []
    for a in torch.nn.functional.linear(x, W_xh, b_h).unbind(1):
        h0[:] = torch.tanh(a + h0 @ W_hh.T)
        found.append(h0)
    return torch.stack(found, 1)


def _step_by_step(x, h0, W_xh, W_hh, b_h):
    """Project the input of each step when the step comes."""
    h, found = h0, []
    for x_t in x.unbind(1):
        h = torch.tanh(x_t @ W_xh.T + h @ W_hh.T + b_h)
        found.append(h)
    return torch.stack(found, 1)


HOISTED = Exercise(
    id="hoisted-layer",
    points=3,
    reference=_hoisted,
    cases=hoisted_cases,
    probe=products_with_input,
    axes={"output hs": "B T H"},
    section="“One product for all inputs”",
    forbidden=("rnncore", *LAYERS, *CELLS),
    tolerance=1e-9,
    misconceptions={
        "W_xh is used anew for every step": M(
            _step_by_step,
            "The states are right. Which part of a step needs no state, and can be computed for all steps at once?",
        ),
        "the inputs are multiplied in NumPy": M(
            lambda x, h0, W_xh, W_hh, b_h: _loop(torch.tensor(x.numpy() @ W_xh.numpy().T) + b_h, h0, W_hh),
            "The states are right, but PyTorch knows nothing of the product, so W_xh would get no gradient.",
        ),
        "the bias is missing": M(
            lambda x, h0, W_xh, W_hh, b_h: _hoisted(x, h0, W_xh, W_hh, 0 * b_h),
            "Count the terms of the equation, and those in your lines.",
        ),
        "the bias is added twice": M(
            lambda x, h0, W_xh, W_hh, b_h: _hoisted(x, h0, W_xh, W_hh, 2 * b_h),
            "Is the bias added before the loop and in it?",
        ),
        "W_hh is not transposed": M(
            lambda x, h0, W_xh, W_hh, b_h: _hoisted(x, h0, W_xh, W_hh.T, b_h),
            "The equation multiplies a column from the left; a batch holds one state in each row.",
        ),
        "W_xh is not transposed": M(
            lambda x, h0, W_xh, W_hh, b_h: _loop(x @ W_xh + b_h, h0, W_hh),
            "The equation multiplies a column from the left; here the inputs are rows.",
        ),
        "neither matrix is transposed": M(
            lambda x, h0, W_xh, W_hh, b_h: _loop(x @ W_xh + b_h, h0, W_hh.T),
            "The equation multiplies a column from the left; here inputs and states are rows.",
        ),
        "tanh is missing": M(
            lambda *a: _hoisted(*a, activate=lambda a: a),
            "A state lies between -1 and 1. What in the equation keeps it there?",
        ),
        "tanh is applied to the input's part before the loop": M(
            lambda x, h0, W_xh, W_hh, b_h: _loop((x @ W_xh.T + b_h).tanh(), h0, W_hh),
            "tanh is taken of the whole sum, so it has to wait for the state.",
        ),
        "the recurrent term is missing": M(
            lambda x, h0, W_xh, W_hh, b_h: _hoisted(x, h0, W_xh, 0 * W_hh, b_h),
            "Only the input's part leaves the loop. What is left to do at each step?",
        ),
        "the state before is added without W_hh": M(
            lambda x, h0, W_xh, W_hh, b_h: _hoisted(x, h0, W_xh, torch.eye(len(W_hh), dtype=W_hh.dtype), b_h),
            "Only the input's part leaves the loop; the state still passes through a matrix at each step.",
        ),
        "the state is not carried": M(
            lambda *a: _hoisted(*a, carry=lambda old, new: old),
            "The product with the state cannot leave the loop: every step gets the state before it.",
        ),
        "h_0 is ignored": M(
            lambda x, h0, *a: _hoisted(x, 0 * h0, *a),
            "A network need not start from zeros. What does your first step get?",
        ),
        "every step gets the first input": M(
            lambda x, *a: _hoisted(x[:, :1].expand(x.shape), *a),
            "Step t gets the t-th row of what you computed before the loop.",
        ),
        "time comes before the batch": M(
            lambda *a: _hoisted(*a).transpose(0, 1),
            "The numbers are right; the axes of the result are B, T, H in this order.",
        ),
        "h_0 is part of the result": M(
            lambda x, h0, *a: torch.cat([h0[:, None], _hoisted(x, h0, *a)], 1),
            "The states are h_1 to h_T, as many as there are inputs; h_0 is given, not computed.",
        ),
        "h_0 is first in the result and h_T is missing": M(
            lambda x, h0, *a: torch.cat([h0[:, None], _hoisted(x, h0, *a)[:, :-1]], 1),
            "Do you keep the state from before the step, or from after it?",
        ),
        "the axes B and T are exchanged by reshape": M(
            lambda x, h0, W_xh, W_hh, b_h: _loop(
                (x.flatten(0, 1) @ W_xh.T + b_h).view(x.shape[1], len(x), -1).transpose(0, 1), h0, W_hh
            ),
            "reshape and view keep the numbers in their order and deal them out anew; they exchange no axes.",
        ),
        "the tensor of h_0 is used for all steps": M(
            _written_over_h0,
            "Writing into a tensor changes every place that holds it: the result shows the last state T times, and the "
            "caller's h_0 is lost. Give the new state its own name.",
        ),
        "only the last state is returned": M(
            lambda *a: _hoisted(*a)[:, -1],
            "The result keeps the state of every step.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# xavier-weights: init_weights(W_xh, W_hh, b_h, gain, generator) fills the parameters in place


def xavier_cases(rng):
    def arguments(D, H, gain):
        return {"D": D, "H": H, "gain": gain, "seed": int(rng.integers(1_000_000))}

    yield Case("D = 50, H = 200, gain 1", arguments(50, 200, 1.0))
    yield Case("D = 400, H = 100, gain 1", arguments(400, 100, 1.0))
    yield Case("D = H = 120, gain 1", arguments(120, 120, 1.0))
    yield Case("D = 50, H = 200, gain 5/3", arguments(50, 200, 5 / 3))
    yield Case("D = 50, H = 200, gain 1/2", arguments(50, 200, 0.5))


def _fill(W_xh, W_hh, b_h, gain, generator, bound=None, low=-1):
    """Fill two matrices from U(low · bound, bound), and zero the bias; bound(matrix, gain, D, H)."""
    H, D = W_xh.shape
    with torch.no_grad():
        for W in (W_xh, W_hh):
            limit = (bound or _limit)(W, gain, D, H)
            W.copy_(limit * (low + (1 - low) * _uniform(W.shape, generator)))
        b_h.zero_()


def _uniform(shape, generator):
    """Return numbers that lie evenly between 0 and 1, from a random start: their sizes hang on no chance."""
    n = shape.numel()
    return (torch.arange(n) / n + torch.rand(1, generator=generator)).frac_().view(shape)


def _limit(W, gain, D, H):
    return gain * (3 / (0.5 * sum(W.shape))) ** 0.5


def _normal(W_xh, W_hh, b_h, gain, generator, deviation):
    """Fill two matrices from a normal distribution, and zero the bias; deviation(matrix, gain)."""
    with torch.no_grad():
        for W in (W_xh, W_hh):
            W.copy_(deviation(W, gain) * torch.randn(W.shape, generator=generator))
        b_h.zero_()


def _and_the_bias(W_xh, W_hh, b_h, gain, generator):
    _fill(W_xh, W_hh, b_h, gain, generator)
    with torch.no_grad():
        b_h.copy_(_limit(W_hh, gain, 0, 0) * (2 * torch.rand(b_h.shape, generator=generator) - 1))


def _only_one(W_xh, W_hh, b_h, gain, generator, left_out):
    kept = (W_xh if left_out == "W_xh" else W_hh).detach().clone()
    _fill(W_xh, W_hh, b_h, gain, generator)
    with torch.no_grad():
        (W_xh if left_out == "W_xh" else W_hh).copy_(kept)


XAVIER = Exercise(
    id="xavier-weights",
    points=3,
    reference=_fill,
    cases=xavier_cases,
    probe=filled,
    measure=spread,  # anyone can say what the numbers must be; the weights have to be drawn
    section="“How the weights start”",
    forbidden=("rnncore", "torch.nn.init.xavier_uniform_", "torch.nn.init.xavier_normal_"),
    tolerance=0.05,
    misconceptions={
        "W_hh is drawn with the fans of W_xh, D and H": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * (6 / (D + H)) ** 0.5),
            "Each matrix has fans of its own. How many numbers does W_hh take, and how many does it give?",
        ),
        "both matrices are drawn with the fans of W_hh": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * (3 / H) ** 0.5),
            "Each matrix has fans of its own. How many numbers does W_xh take, and how many does it give?",
        ),
        "only the numbers that come in are counted": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * (3 / W.shape[1]) ** 0.5),
            "Xavier counts both fans: the numbers that come in and those that go out.",
        ),
        "the standard deviation is taken for the bound": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: _limit(W, gain, D, H) / 3**0.5),
            "Numbers from U(−a, a) have the standard deviation a / √3.",
        ),
        "the numbers are drawn from a normal distribution of the right variance": M(
            lambda *a: _normal(*a, deviation=lambda W, gain: _limit(W, gain, 0, 0) / 3**0.5),
            "The variance is right; the exercise asks for the uniform distribution.",
        ),
        "the bound is taken for the standard deviation of a normal distribution": M(
            lambda *a: _normal(*a, deviation=lambda W, gain: _limit(W, gain, 0, 0)),
            "A uniform distribution between two bounds is asked for.",
        ),
        "the numbers are drawn from a normal distribution and not scaled": M(
            lambda *a: _normal(*a, deviation=lambda W, gain: 1.0),
            "How large is the sum of H terms of size 1?",
        ),
        "PyTorch's own bound, 1/√H, is used": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: H**-0.5),
            "That is how PyTorch starts by itself. Which bound does the equation give?",
        ),
        "PyTorch's own bound, 1/√H, is used, times the gain": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * H**-0.5),
            "That is how PyTorch starts by itself. Which bound does the equation give?",
        ),
        "the gain is not used": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: _limit(W, 1.0, D, H)),
            "Which argument is never used?",
        ),
        "the gain stands under the root": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: _limit(W, gain**0.5, D, H)),
            "Is the bound proportional to the gain, or to its root?",
        ),
        "the root is missing": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * 6 / sum(W.shape)),
            "The equation gives the variance; the bound is measured like the weights themselves.",
        ),
        "the root is missing, or taken of the 6 alone": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: gain * 6**0.5 / sum(W.shape)),
            "How much of the fraction stands under the root?",
        ),
        "numbers between -1 and 1 are not scaled": M(
            lambda *a: _fill(*a, bound=lambda W, gain, D, H: 1.0),
            "Where does the bound come in? W * a makes a new tensor and leaves W as it was.",
        ),
        "H and D are exchanged, so that W_hh is drawn with the fans D and D": M(
            lambda *a: _fill(
                *a, bound=lambda W, gain, D, H: gain * (6 / (2 * D if W.shape == (H, H) else D + H)) ** 0.5
            ),
            "A matrix has the shape (numbers out, numbers in). Which of the two in W_xh's shape is H?",
        ),
        "all weights are positive": M(
            lambda *a: _fill(*a, low=0),
            "torch.rand gives numbers between 0 and 1. Which interval is asked for, and what is its mean?",
        ),
        "the bias is drawn at random": M(
            _and_the_bias,
            "The bias begins at zero.",
        ),
        "the bias is left as it was": M(
            lambda W_xh, W_hh, b_h, *a: _fill(W_xh, W_hh, b_h.detach().clone(), *a),
            "Three parameters are passed. What happens to the third?",
        ),
        "the parameters are left as they were": M(
            lambda W_xh, W_hh, b_h, *a: _fill(W_xh.detach().clone(), W_hh.detach().clone(), b_h.detach().clone(), *a),
            "Giving a name to new numbers fills nothing: W = … makes the name W stand for something else.",
        ),
        "W_xh is left as it was": M(
            partial(_only_one, left_out="W_xh"),
            "Both matrices are to be filled, each in its own way.",
        ),
        "W_hh is left as it was": M(
            partial(_only_one, left_out="W_hh"),
            "Both matrices are to be filled, each in its own way.",
        ),
        "the generator is not used": M(
            lambda W_xh, W_hh, b_h, gain, generator: _fill(W_xh, W_hh, b_h, gain, None),
            "Numbers that come from elsewhere cannot be drawn again. Functions that draw take a generator=…",
        ),
        "a generator of one's own is used": M(
            lambda W_xh, W_hh, b_h, gain, generator: _fill(W_xh, W_hh, b_h, gain, torch.Generator().manual_seed(0)),
            "Whoever calls the function chooses the numbers: by the generator that is passed.",
        ),
    },
)

EXERCISES = [CELL, LAYER, STACK, HOISTED, XAVIER]
