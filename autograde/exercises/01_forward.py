"""Chapter 1: the step, the sequence, the output layer, the parameter count, and a network set by hand."""

import numpy as np

import rnncore
from autograde import draw
from autograde.exercise import Case, Exercise, Manual
from autograde.exercise import Misconception as M
from autograde.probes import bits_of_relu_network, call, weights_of_relu_network

BY_TORCH = ("torch.nn.RNN", "torch.nn.RNNCell", "torch.rnn_tanh_cell", "torch.ops.aten.rnn_tanh_cell")  # would do it

# ----------------------------------------------------------------------------------------------------------
# rnn-step: rnn_step(x, h, W_xh, W_hh, b_h) -> the next state, (B, H)


def step_cases(rng):
    def arguments(B, D, H):
        return draw.normal(rng, x=(B, D), h=(B, H)) | draw.recurrent(rng, D, H)

    by_hand = {"x": 0.5, "h": -0.25, "W_xh": 2.0, "W_hh": 1.0}
    yield Case(
        "one unit, numbers to check by hand",
        {name: np.array([[value]]) for name, value in by_hand.items()} | {"b_h": np.array([0.1])},
    )
    yield Case("only the input's term", draw.only(arguments(2, 3, 4), "x", "W_xh"), term="the input's term")
    yield Case("only the recurrent term", draw.only(arguments(2, 3, 4), "h", "W_hh"), term="the recurrent term")
    yield Case("only the bias", draw.only(arguments(2, 3, 4), "b_h"), term="the bias")
    yield Case("B, D and H all different", arguments(4, 3, 5))
    yield Case("B = D = H", arguments(4, 4, 4))
    yield Case("a batch of one", arguments(1, 3, 2))


STEP = Exercise(
    id="rnn-step",
    points=3,
    reference=rnncore.rnn_step,
    cases=step_cases,
    probe=call,
    axes="B H",
    section="“The step”",
    forbidden=("rnncore", *BY_TORCH),
    misconceptions={
        "the bias is missing": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + h @ W_hh.T),
            "Count the terms of the equation, and those in your line.",
        ),
        "the bias is added twice": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + h @ W_hh.T + 2 * b_h),
            "PyTorch has two bias vectors; this network has one.",
        ),
        "W_hh is not transposed": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + h @ W_hh + b_h),
            "The equation multiplies a column from the left; a batch holds one state in each row.",
        ),
        "W_xh is not transposed": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh + h @ W_hh.T + b_h),
            "The equation multiplies a column from the left; a batch holds one input in each row.",
        ),
        "the recurrent term is missing": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + b_h),
            "Without the state before, the network has no memory. Which arguments are never used?",
        ),
        "the input's term is missing": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(h @ W_hh.T + b_h),
            "The network has to see its input. Which arguments are never used?",
        ),
        "neither matrix is transposed": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh + h @ W_hh + b_h),
            "The equation multiplies a column from the left; a batch holds one vector in each row.",
        ),
        "the matrices stand on the left, as in the equation": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(W_xh @ x + W_hh @ h + b_h),
            "The equation is for one column. In a batch each vector is a row.",
        ),
        "ReLU stands in place of tanh": M(
            lambda x, h, W_xh, W_hh, b_h: np.maximum(x @ W_xh.T + h @ W_hh.T + b_h, 0),
            "This network's states may be negative.",
        ),
        "tanh is missing": M(
            lambda x, h, W_xh, W_hh, b_h: x @ W_xh.T + h @ W_hh.T + b_h,
            "A state lies between -1 and 1. What in the equation keeps it there?",
        ),
        "tanh is taken of each term": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T) + np.tanh(h @ W_hh.T) + np.tanh(b_h),
            "Look at what stands inside the brackets of tanh: a single sum, or single terms?",
        ),
        "W_hh is applied to the input's term": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh((x @ W_xh.T + h) @ W_hh.T + b_h),
            "Each matrix has a vector of its own: its second letter says which.",
        ),
        "the state before is added without W_hh": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + h + b_h),
            "The state enters the next step through a matrix. Which argument is never used?",
        ),
        "the bias stands outside tanh": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_xh.T + h @ W_hh.T) + b_h,
            "Look at what stands inside the brackets of tanh.",
        ),
        "the two matrices are exchanged": M(
            lambda x, h, W_xh, W_hh, b_h: np.tanh(x @ W_hh.T + h @ W_xh.T + b_h),
            "The second letter of a matrix's name says what it multiplies, the first what it gives.",
        ),
        "the state before is added to the new one": M(
            lambda x, h, W_xh, W_hh, b_h: h + np.tanh(x @ W_xh.T + h @ W_hh.T + b_h),
            "A new state takes the place of the one before. What keeps it between -1 and 1?",
        ),
        "the sigmoid stands in place of tanh": M(
            lambda x, h, W_xh, W_hh, b_h: 1 / (1 + np.exp(-(x @ W_xh.T + h @ W_hh.T + b_h))),
            "Both curves are S-shaped; the sigmoid gives no negative number.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# rnn-sequence: rnn_forward(x, h0, W_xh, W_hh, b_h) -> the states h_1 ... h_T, (B, T, H)


def sequence_cases(rng):
    def arguments(B, T, D, H):
        return draw.normal(rng, x=(B, T, D), h0=(B, H)) | draw.recurrent(rng, D, H)

    one_unit = {"W_xh": np.array([[0.2]]), "W_hh": np.array([[0.5]]), "b_h": np.zeros(1)}
    yield Case(
        "the numbers 1, 2, 3 from h_0 = 0, as traced in the chapter",
        {"x": np.array([[[1.0], [2.0], [3.0]]]), "h0": np.zeros((1, 1)), **one_unit},
    )
    yield Case("one step", arguments(3, 1, 2, 4))
    yield Case("only the initial state and W_hh", draw.only(arguments(2, 3, 2, 4), "h0", "W_hh"))
    yield Case("B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("B = T = D = H", arguments(4, 4, 4, 4))
    yield Case("a batch of one", arguments(1, 6, 3, 2))
    yield Case("forty steps", arguments(2, 40, 3, 5))


def _step(x, h, W_xh, W_hh, b_h):
    return np.tanh(x @ W_xh.T + h @ W_hh.T + b_h)


def _states(x, h0, *weights, step=_step, carry=lambda old, new: new):
    """Return the states (B, T, H); `carry` says what the next step gets: the new state, unless something is wrong."""
    h, found = h0, []
    for x_t in np.swapaxes(x, 0, 1):
        new = step(x_t, h, *weights)
        found.append(new)
        h = carry(h, new)
    return np.stack(found, axis=1)


def _in_one_array(x, h, *weights, kept=lambda h: h):
    """Write every state into h; what is kept of it is h itself, time and again, unless `kept` makes a copy."""
    found = []
    for x_t in np.swapaxes(x, 0, 1):
        h[:] = _step(x_t, h, *weights)
        found.append(kept(h))
    return np.stack(found, axis=1)


def _from_the_second_input(x, h0, *weights, first):
    """Fill hs from the second place on; `first` is what stands before."""
    hs = np.zeros((*x.shape[:2], h0.shape[1]))
    hs[:, 0] = first(h0)
    for t in range(1, x.shape[1]):
        hs[:, t] = _step(x[:, t], hs[:, t - 1], *weights)
    return hs


SEQUENCE = Exercise(
    id="rnn-sequence",
    points=4,
    reference=rnncore.rnn_forward,
    cases=sequence_cases,
    probe=call,
    axes="B T H",
    section="“The sequence”",
    forbidden=("rnncore.rnn_forward", *BY_TORCH),
    provided=("rnn_step",),
    misconceptions={
        "the state is not carried": M(
            lambda *a: _states(*a, carry=lambda old, new: old),
            "Every step gets the state before it. What does your second step get?",
        ),
        "h_0 is part of the result": M(
            lambda x, h0, *a: np.concatenate([h0[:, None], _states(x, h0, *a)], axis=1),
            "The states are h_1 to h_T, as many as there are inputs; h_0 is given, not computed.",
        ),
        "h_0 is first and h_T is missing": M(
            lambda x, h0, *a: np.concatenate([h0[:, None], _states(x, h0, *a)[:, :-1]], axis=1),
            "Do you keep the state from before the step, or from after it?",
        ),
        "the sequence is read backwards": M(
            lambda x, *a: _states(x[:, ::-1], *a),
            "The first input is x[:, 0].",
        ),
        "the states are in reverse order": M(
            lambda *a: _states(*a)[:, ::-1],
            "The states are right; their order in the result is not.",
        ),
        "only the last state is returned": M(
            lambda *a: _states(*a)[:, -1],
            "The result keeps the state of every step.",
        ),
        "h_0 is ignored": M(
            lambda x, h0, *a: _states(x, np.zeros_like(h0), *a),
            "A network need not start from zeros. What does your first step get?",
        ),
        "time comes before the batch": M(
            lambda *a: np.swapaxes(_states(*a), 0, 1),
            "The numbers are right; the axes of the result are B, T, H in this order.",
        ),
        "the loop runs over the batch": M(
            lambda x, *a: _states(np.swapaxes(x, 0, 1), *a),
            "Which axis of x is time?",
        ),
        "one array is used for all steps": M(
            lambda x, h0, *a: _in_one_array(x, h0.copy(), *a),
            "If every step writes into the same array, all steps end up showing the last one.",
        ),
        "the states are added up": M(
            lambda *a: np.cumsum(_states(*a), axis=1),
            "A state replaces the one before; it is not added to it.",
        ),
        "h_0 is overwritten": M(
            lambda *a: _in_one_array(*a, kept=np.copy),
            "Assigning to a part of an array, or with +=, writes into the caller's. Give the new state its own name.",
        ),
        "the array of h_0 is used for all steps": M(
            _in_one_array,
            "Assigning to h[:] writes into the array that h names, the caller's h_0: every step shows the last state.",
        ),
        "the axes B and T are exchanged by reshape": M(
            lambda x, h0, *a: np.swapaxes(_states(x, h0, *a), 0, 1).reshape(*x.shape[:2], h0.shape[1]),
            "reshape keeps the numbers in their order and deals them out anew; it exchanges no axes.",
        ),
        "time is the last axis": M(
            lambda *a: np.swapaxes(_states(*a), 1, 2),
            "The numbers are right; the axes of the result are B, T, H in this order.",
        ),
        "the loop ends after the first step": M(
            lambda *a: _states(*a)[:, :1],
            "How far to the right does your return stand: in the loop or after it?",
        ),
        "the last step is missing": M(
            lambda x, *a: _states(x[:, :-1], *a),
            "How many inputs are there, and how many steps does your loop make?",
        ),
        "the first step is missing": M(
            lambda x, *a: _states(x[:, 1:], *a),
            "The first input is x[:, 0].",
        ),
        "the state at t = T is left at zero": M(
            lambda x, *a: np.concatenate([_states(x, *a)[:, :-1], np.zeros_like(_states(x, *a)[:, :1])], axis=1),
            "How many inputs are there, and how many steps does your loop make?",
        ),
        "the state at t = 1 is left at zero": M(
            lambda *a: _from_the_second_input(*a, first=np.zeros_like),
            "h_1 is computed from h_0 and the first input, x[:, 0].",
        ),
        "h_0 stands in the place of h_1": M(
            lambda *a: _from_the_second_input(*a, first=np.copy),
            "h_1 is computed from h_0 and the first input, x[:, 0]; h_0 itself is no part of the result.",
        ),
        **{f"in every step {name}": wrong.in_every_step(_states) for name, wrong in STEP.misconceptions.items()},
    },
)

# ----------------------------------------------------------------------------------------------------------
# output-layer: output_layer(hs, W_hy, b_y) -> the outputs y_1 ... y_T, (B, T, C)


def output_cases(rng):
    def arguments(B, T, H, C):
        while True:
            drawn = draw.normal(rng, hs=(B, T, H), W_hy=(C, H), b_y=(C,))
            if drawn["b_y"].min() < 0 and _reference_output(**drawn).min() < 0:  # what cuts off below 0 is to show
                return drawn

    yield Case(
        "two units, one output, numbers to check by hand",
        {"hs": np.array([[[0.5, -0.5]]]), "W_hy": np.array([[2.0, 1.0]]), "b_y": np.array([0.25])},
    )
    yield Case("only the bias", draw.only(arguments(2, 3, 4, 5), "b_y"))
    yield Case("no bias", draw.only(arguments(2, 3, 4, 5), "hs", "W_hy"))
    yield Case("B, T, H and C all different", arguments(3, 5, 4, 2))
    yield Case("H = C", arguments(2, 5, 3, 3))
    yield Case("one step", arguments(3, 1, 4, 2))
    yield Case("a batch of one", arguments(1, 4, 2, 3))


def _reference_output(hs, W_hy, b_y):
    return np.einsum("bth,ch->btc", hs, W_hy) + b_y


def _softmax(y):
    e = np.exp(y - y.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _one_step_late(hs, W_hy, b_y):
    late = np.concatenate([np.zeros_like(hs[:, :1]), hs[:, :-1]], axis=1)
    return _reference_output(late, W_hy, b_y)


OUTPUT = Exercise(
    id="output-layer",
    points=2,
    reference=_reference_output,
    cases=output_cases,
    probe=call,
    axes="B T C",
    section="“Reading the state”",
    misconceptions={
        "the bias is missing": M(
            lambda hs, W_hy, b_y: _reference_output(hs, W_hy, 0 * b_y),
            "Count the terms of the equation, and those in your line.",
        ),
        "the bias is added twice": M(
            lambda hs, W_hy, b_y: _reference_output(hs, W_hy, 2 * b_y),
            "Count the terms of the equation, and those in your line.",
        ),
        "tanh is applied to the output": M(
            lambda hs, W_hy, b_y: np.tanh(_reference_output(hs, W_hy, b_y)),
            "The output is no state: it may be as large as it needs to be.",
        ),
        "a softmax is applied to the output": M(
            lambda hs, W_hy, b_y: _softmax(_reference_output(hs, W_hy, b_y)),
            "Probabilities come later, in the loss; the output layer stops before.",
        ),
        "a softmax is taken over time": M(
            lambda hs, W_hy, b_y: np.swapaxes(_softmax(np.swapaxes(_reference_output(hs, W_hy, b_y), 1, 2)), 1, 2),
            "Probabilities come later, in the loss; the output layer stops before.",
        ),
        "the sigmoid is applied to the output": M(
            lambda hs, W_hy, b_y: 1 / (1 + np.exp(-_reference_output(hs, W_hy, b_y))),
            "The output is no probability yet: it may be as large as it needs to be.",
        ),
        "ReLU is applied to the output": M(
            lambda hs, W_hy, b_y: np.maximum(_reference_output(hs, W_hy, b_y), 0),
            "The output is no state: it may be negative.",
        ),
        "the place of the largest output is returned": M(
            lambda hs, W_hy, b_y: _reference_output(hs, W_hy, b_y).argmax(axis=-1),
            "Choosing one of the outputs comes later; here all of them are asked for.",
        ),
        "time comes before the batch": M(
            lambda hs, W_hy, b_y: np.swapaxes(_reference_output(hs, W_hy, b_y), 0, 1),
            "The numbers are right; the axes of the result are B, T, C in this order.",
        ),
        "W_hy is not transposed": M(
            lambda hs, W_hy, b_y: hs @ W_hy + b_y,
            "The equation multiplies a column from the left; here the states are rows.",
        ),
        "y_t is computed from h_(t-1)": M(
            _one_step_late,
            "The output at t reads the state of the same step.",
        ),
        "only the last output is returned": M(
            lambda hs, W_hy, b_y: _reference_output(hs, W_hy, b_y)[:, -1],
            "There is an output at every step.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# parameter-count: count_parameters(D, H, C) -> the number of parameters


def count_cases(rng):
    def different(low, high):
        return sorted(map(int, rng.choice(np.arange(low, high), 3, replace=False)))

    def sizes(D, H, C):
        return {"D": D, "H": H, "C": C}

    yield Case("D = H = C = 1", sizes(1, 1, 1), counted=False)  # whose result anyone can know by heart
    small, middle, large = different(3, 10)
    yield Case("small sizes, H the largest", sizes(small, large, middle))
    small, middle, large = different(3, 10)
    yield Case("small sizes, D the largest", sizes(large, middle, small))
    small, middle, large = different(3, 10)
    yield Case("small sizes, C the largest", sizes(middle, small, large))
    same = int(rng.integers(3, 10))
    yield Case("D = H = C", sizes(same, same, same))
    small, middle, large = different(20, 500)
    yield Case("sizes as in practice", sizes(middle, large, small))


def _reference_count(D, H, C):
    shapes = {"W_xh": (H, D), "W_hh": (H, H), "b_h": (H,), "W_hy": (C, H), "b_y": (C,)}
    return int(sum(np.prod(shape) for shape in shapes.values()))


COUNT = Exercise(
    id="parameter-count",
    points=2,
    reference=_reference_count,
    cases=count_cases,
    probe=call,
    section="“Reading the state”",
    misconceptions={
        "no bias is counted": M(
            lambda D, H, C: H * D + H * H + C * H,
            "Write down the shape of every array with parameters: there are five.",
        ),
        "b_h is not counted": M(
            lambda D, H, C: H * D + H * H + C * H + C,
            "Write down the shape of every array with parameters: there are five.",
        ),
        "b_y is not counted": M(
            lambda D, H, C: H * D + H * H + H + C * H,
            "Write down the shape of every array with parameters: there are five.",
        ),
        "b_h is counted twice": M(
            lambda D, H, C: H * D + H * H + 2 * H + C * H + C,
            "PyTorch's layer has two bias vectors; this network has one.",
        ),
        "W_hh is counted as D by D": M(
            lambda D, H, C: H * D + D * D + H + C * H + C,
            "W_hh takes a state and gives a state.",
        ),
        "W_xh is not counted": M(
            lambda D, H, C: H * H + H + C * H + C,
            "The input passes through a matrix, too.",
        ),
        "b_y is counted with H entries": M(
            lambda D, H, C: H * D + H * H + H + C * H + H,
            "There is one entry of b_y for each output.",
        ),
        "b_h is counted with D entries": M(
            lambda D, H, C: H * D + H * H + D + C * H + C,
            "There is one entry of b_h for each unit of the state.",
        ),
        "W_hh is not counted": M(
            lambda D, H, C: H * D + H + C * H + C,
            "The recurrence has a matrix of its own.",
        ),
        "the output layer is not counted": M(
            lambda D, H, C: H * D + H * H + H,
            "C takes part in the count, too.",
        ),
        "W_hy is counted as C by D": M(
            lambda D, H, C: H * D + H * H + H + C * D + C,
            "The output reads the state, not the input.",
        ),
        "H times H is taken for H times 2": M(
            lambda D, H, C: H * D + 2 * H + H + C * H + C,
            "A square matrix of H rows has H entries in each of them.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# parity-weights: parity_weights() -> weights of a ReLU network whose output tells odd from even


def parity_cases(rng):
    def strings(*rows):
        return {"bits": np.array(rows, dtype=float)}

    def every_string(T):
        return strings(*([int(bit) for bit in f"{number:0{T}b}"] for number in range(2**T)))

    yield Case("every string of three bits", every_string(3))
    yield Case("one 1, then silence", strings([1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]))
    yield Case("a second 1 undoes the first", strings([1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0]))
    yield Case("ones only", strings([1] * 9))
    yield Case("every string of eight bits", every_string(8))
    yield Case("strings of 300 bits", {"bits": rng.integers(0, 2, size=(4, 300)).astype(float)})


def _network(W_xh, W_hh, b_h, W_hy, b_y=0.0):
    return {
        "W_xh": np.array(W_xh, dtype=float)[:, None],
        "W_hh": np.array(W_hh, dtype=float),
        "b_h": np.array(b_h, dtype=float),
        "W_hy": np.array([W_hy], dtype=float),
        "b_y": np.array([b_y], dtype=float),
    }


def _bits_so_far(index, arguments):
    string, step = index
    read = arguments["bits"][string, : step + 1].astype(int)
    return f"after {' '.join(map(str, read))}" if len(read) <= 12 else f"at t = {step + 1} of string {string + 1}"


PARITY = Exercise(
    id="parity-weights",
    points=3,
    reference=lambda: _network([1, 2], [[1, -1], [2, -2]], [0, -2], [1, -1]),
    cases=parity_cases,
    probe=weights_of_relu_network,
    measure=bits_of_relu_network,  # anyone can tell odd from even
    axes="B T",
    result="the bit (is y_t > 1/2?)",
    place=_bits_so_far,
    section="“Weights set by hand”",
    misconceptions={
        "the output is the input's bit": M(
            lambda: _network([1], [[0]], [0], [1]),
            "Nothing of the earlier bits reaches the output. What does W_hh hand on?",
        ),
        "the output says that a 1 has come": M(
            lambda: _network([1], [[1]], [0], [1]),
            "Once it has risen it never falls. A second 1 has to undo the first: what takes off enough? "
            "Row i of W_hh says what unit i reads.",
        ),
        "the network compares the last two bits": M(
            lambda: _network([1, 1, 1], [[0, 0, 1], [0, 0, 1], [0, 0, 0]], [0, -1, 0], [1, -2, 0]),
            "Parity is of all bits so far, so what is remembered must be the output, not the last input.",
        ),
        "the output is never above ½": M(
            lambda: _network([1, 1], [[1, -2], [1, -2]], [0, 0], [1, -2]),
            "Work out both units and y for the string 1, by hand. Is each unit to wake up at a sum of 1?",
        ),
        "what is carried on is not the parity": M(
            lambda: _network([1, 1], [[1, 0], [1, 0]], [0, -1], [1, -2]),
            "What is carried on has to be the parity, which both units make together.",
        ),
        "odd and even are swapped": M(
            lambda: _network([1, 2], [[1, -1], [2, -2]], [0, -2], [-1, 1], 1.0),
            "After no 1 at all, or after two, the output is to be 0.",
        ),
    },
)

EXERCISES = [STEP, SEQUENCE, OUTPUT, COUNT, PARITY, Manual("memory-figure", 3), Manual("memory-reading", 2)]
