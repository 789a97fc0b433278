"""Chapter 3: weights put into nn.RNN, the last valid state, both directions, and five programs with a mistake each."""

import numpy as np
import torch

import rnncore
from autograde import draw
from autograde.exercise import Case, Exercise
from autograde.exercise import Misconception as M
from autograde.probes import call, output_and_h_n, rnn_of_two_layers, with_gru_cell, with_rnn


def unsorted_lengths(rng, B, T, longest=None):
    """Return B lengths from 1 to T, all different, neither ascending nor descending; the longest is T unless given."""
    longest = longest or T
    while True:
        shorter = rng.choice(np.arange(1, longest), B - 1, replace=False)
        lengths = rng.permutation([*shorter, longest])
        steps = np.diff(lengths)
        if (steps > 0).any() and (steps < 0).any():
            return lengths


def padded(x, lengths):
    """Return x (B, T, D) with zeros after each sequence's length."""
    return np.where(np.arange(x.shape[1])[:, None] < np.reshape(lengths, (-1, 1, 1)), x, 0.0)


# ----------------------------------------------------------------------------------------------------------
# transplant: transplant(W_xh_l0, W_hh_l0, b_h_l0, W_xh_l1, W_hh_l1, b_h_l1) -> a torch.nn.RNN of two layers


def transplant_cases(rng):
    def arguments(B, T, D, H):
        layers = draw.recurrent(rng, D, H), draw.recurrent(rng, H, H)
        weights = {f"{name}_l{k}": value for k, layer in enumerate(layers) for name, value in layer.items()}
        return weights | draw.normal(rng, x=(B, T, D), h0=(2, B, H))

    by_hand = {"W_xh_l0": 0.5, "W_hh_l0": -0.25, "W_xh_l1": 2.0, "W_hh_l1": 1.5}
    given = {name: np.array([[value]]) for name, value in by_hand.items()}
    given |= {"b_h_l0": np.array([0.1]), "b_h_l1": np.array([-0.3])}
    order = ("W_xh_l0", "W_hh_l0", "b_h_l0", "W_xh_l1", "W_hh_l1", "b_h_l1")
    yield Case(
        "one unit in each layer, one step",
        {name: given[name] for name in order} | {"x": np.array([[[0.6]]]), "h0": np.array([[[0.2]], [[-0.4]]])},
    )
    yield Case("only the biases", draw.only(arguments(2, 2, 3, 4), "b_h_l0", "b_h_l1"), term="the bias")
    yield Case(
        "only the input weights",
        draw.only(arguments(2, 2, 3, 4), "x", "W_xh_l0", "W_xh_l1"),
        term="the input's term",
    )
    yield Case(
        "only the recurrent weights",
        draw.only(arguments(2, 2, 3, 4), "h0", "W_hh_l0", "W_hh_l1"),
        term="the recurrent term",
    )
    yield Case("B, T, D and H all different", arguments(3, 4, 2, 5))
    yield Case("B = T = D = H", arguments(3, 3, 3, 3))


def _planted(weights, options=None, rename=None):
    """Return an nn.RNN of two layers that loads weights, {torch's name: array}; what is missing stays as drawn."""
    H, D = np.shape(weights["weight_ih_l0"])
    made = torch.nn.RNN(D, H, 2, dtype=torch.float64, **({"batch_first": True} | (options or {})))
    made.load_state_dict({name: torch.tensor(value) for name, value in weights.items()}, strict=False)
    return made


def _named(W_xh_l0, W_hh_l0, b_h_l0, W_xh_l1, W_hh_l1, b_h_l1):
    """Return the weights under torch's names, with the bias in the first of its two places."""
    first = {"weight_ih_l0": W_xh_l0, "weight_hh_l0": W_hh_l0, "bias_ih_l0": b_h_l0, "bias_hh_l0": 0 * b_h_l0}
    second = {"weight_ih_l1": W_xh_l1, "weight_hh_l1": W_hh_l1, "bias_ih_l1": b_h_l1, "bias_hh_l1": 0 * b_h_l1}
    return first | second


def _but(arguments, **changes):
    """Return the named weights but for some, which a function of the named weights gives anew."""
    named = _named(*arguments)
    return named | {name: change(named) for name, change in changes.items()}


def _without(arguments, *left):
    return {name: value for name, value in _named(*arguments).items() if not name.startswith(left)}


TRANSPLANT = Exercise(
    id="transplant",
    points=3,
    reference=lambda *a: _planted(_named(*a)),
    cases=transplant_cases,
    probe=rnn_of_two_layers,
    axes={"output": "B T H", "h_n": "2 B H"},
    tolerance=1e-10,
    section="“The weights, by name”",
    misconceptions={
        "one of the two biases of each layer is left as PyTorch drew it": M(
            lambda *a: _planted(_without(a, "bias_hh")),
            "Print the names of all parameters: how many biases has each layer, and what did you do with each?",
        ),
        "one of the two biases of layer 1 is left as PyTorch drew it": M(
            lambda *a: _planted(_without(a, "bias_hh_l1")),
            "Print the names of all parameters. Which of them did you not set?",
        ),
        "no bias is set": M(
            lambda *a: _planted(_without(a, "bias")),
            "Print the names of all parameters. Which of them did you not set?",
        ),
        "both biases of a layer are b_h": M(
            lambda *a: _planted(_but(a, bias_hh_l0=lambda w: w["bias_ih_l0"], bias_hh_l1=lambda w: w["bias_ih_l1"])),
            "PyTorch adds its two bias vectors. What must their sum be?",
        ),
        "the network has no biases": M(
            lambda *a: _planted(_without(a, "bias"), {"bias": False}),
            "Six arrays came; how many of them did you use?",
        ),
        "batch_first is left out": M(
            lambda *a: _planted(_named(*a), {"batch_first": False}),
            "The weights are right. Which axis of x does the layer take for time?",
        ),
        "W_hh is transposed": M(
            lambda *a: _planted(
                _but(a, weight_hh_l0=lambda w: w["weight_hh_l0"].T, weight_hh_l1=lambda w: w["weight_hh_l1"].T)
            ),
            "W_hh is square, so no shape tells. Whose rows belong to the new state: yours, PyTorch's, or both?",
        ),
        "every square matrix is transposed": M(
            lambda *a: _planted(
                _but(
                    a,
                    weight_hh_l0=lambda w: w["weight_hh_l0"].T,
                    weight_ih_l1=lambda w: w["weight_ih_l1"].T,
                    weight_hh_l1=lambda w: w["weight_hh_l1"].T,
                )
            ),
            "Where a matrix is square, no shape tells. Whose rows belong to the new state: yours, PyTorch's, or both?",
        ),
        "every matrix is transposed": M(
            lambda *a: _planted(
                _but(
                    a,
                    weight_ih_l0=lambda w: w["weight_ih_l0"].T,
                    weight_hh_l0=lambda w: w["weight_hh_l0"].T,
                    weight_ih_l1=lambda w: w["weight_ih_l1"].T,
                    weight_hh_l1=lambda w: w["weight_hh_l1"].T,
                )
            ),
            "Compare the shapes, where D and H differ.",
        ),
        "the two layers are exchanged": M(
            lambda *a: _planted(_named(*a[3:], *a[:3])),
            "Layer 0 reads x; layer 1 reads the states of layer 0.",
        ),
        "layer 1 gets the W_hh of layer 0": M(
            lambda *a: _planted(_but(a, weight_hh_l1=lambda w: w["weight_hh_l0"])),
            "Read your lines for layer 1 once more, letter by letter.",
        ),
        "layer 1 gets the bias of layer 0": M(
            lambda *a: _planted(_but(a, bias_ih_l1=lambda w: w["bias_ih_l0"])),
            "Read your lines for layer 1 once more, letter by letter.",
        ),
        "in layer 1 the two matrices are exchanged": M(
            lambda *a: _planted(
                _but(a, weight_ih_l1=lambda w: w["weight_hh_l1"], weight_hh_l1=lambda w: w["weight_ih_l1"])
            ),
            "Both are square there, so no shape tells them apart: what does each multiply?",
        ),
        "layer 1 is left as PyTorch drew it": M(
            lambda *a: _planted({name: value for name, value in _named(*a).items() if name.endswith("l0")}),
            "Print the names of all parameters. Which of them did you not set?",
        ),
        "all weights are left as PyTorch drew them": M(
            lambda *a: _planted({"weight_ih_l0": np.full_like(a[0], 0.5)}),
            "The network is made; its weights are still PyTorch's own.",
        ),
        "ReLU stands in place of tanh": M(
            lambda *a: _planted(_named(*a), {"nonlinearity": "relu"}),
            "This network's states may be negative.",
        ),
        "the weights pass through float32": M(
            lambda *a: _planted({name: np.float64(np.float32(value)) for name, value in _named(*a).items()}),
            "The first seven digits agree. What is the dtype of each tensor on the way?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# last-valid-state: last_valid_state(hs, lengths) -> the state after each sequence's last real step, (B, H)


def last_cases(rng):
    def arguments(B, T, H, lengths):
        while True:
            drawn = draw.tensors({"hs": rng.normal(size=(B, T, H)), "lengths": lengths})
            if not torch.equal(_at(drawn["hs"], drawn["lengths"] - 1), _largest(**drawn)):
                return drawn

    numbers = torch.tensor([[[0.3], [0.1], [0.2]], [[0.6], [0.4], [0.5]]], dtype=torch.float64)
    yield Case("two sequences, numbers to check by hand", {"hs": numbers, "lengths": torch.tensor([2, 3])})
    yield Case("B, T and H all different", arguments(4, 6, 3, unsorted_lengths(rng, 4, 6)))
    yield Case("no sequence fills all T steps", arguments(4, 7, 3, unsorted_lengths(rng, 4, 7, longest=5)))
    yield Case("sorted, the longest first", arguments(3, 5, 2, np.sort(unsorted_lengths(rng, 3, 5))[::-1].copy()))
    yield Case("B = T = H", arguments(4, 4, 4, unsorted_lengths(rng, 4, 4)))
    yield Case("a batch of one", arguments(1, 5, 2, [3]))


def _at(hs, steps):
    """Return the state of each sequence at a step of its own, counted from 0."""
    return torch.stack([states[step] for states, step in zip(hs, steps.tolist(), strict=True)])


def _real_only(hs, lengths):
    return hs.masked_fill((torch.arange(hs.shape[1]) >= lengths[:, None])[..., None], 0)


def _largest(hs, lengths):
    return torch.stack([states[:n].amax(0) for states, n in zip(hs, lengths.tolist(), strict=True)])


def _mean_of_real(hs, lengths):
    return torch.stack([states[:n].mean(0) for states, n in zip(hs, lengths.tolist(), strict=True)])


def _in_order_of(hs, lengths, descending):
    return _at(hs, lengths - 1)[torch.argsort(lengths, descending=descending)]


LAST = Exercise(
    id="last-valid-state",
    points=3,
    reference=lambda hs, lengths: _at(hs, lengths - 1),
    cases=last_cases,
    probe=call,
    axes="B H",
    section="“Padding”",
    misconceptions={
        "the state at the end of the row is taken": M(
            lambda hs, lengths: hs[:, -1],
            "A row ends in padding. Which argument is never used?",
        ),
        "the padding is set to zero and the state at the end of the row is taken": M(
            lambda hs, lengths: _real_only(hs, lengths)[:, -1],
            "Where a sequence is shorter than its row, the row still ends in padding.",
        ),
        "the step is one too late": M(
            _at,
            "Python counts from 0: where does h_1 stand, and where the last of n states?",
        ),
        "the step is one too late, except where the row has no such step": M(
            lambda hs, lengths: _at(hs, lengths.clamp(max=hs.shape[1] - 1)),
            "Python counts from 0: where does h_1 stand, and where the last of n states?",
        ),
        "the length is counted from the end of the row": M(
            lambda hs, lengths: _at(hs, -lengths),
            "A negative index counts from the right. On which side of a row is the padding?",
        ),
        "the step is one too early": M(
            lambda hs, lengths: _at(hs, lengths - 2),
            "Python counts from 0: where does h_1 stand, and where the last of n states?",
        ),
        "every sequence is taken to be as long as the longest": M(
            lambda hs, lengths: _at(hs, lengths.max().expand(len(lengths)) - 1),
            "Each sequence has a length of its own.",
        ),
        "every sequence is taken to be as long as the first": M(
            lambda hs, lengths: _at(hs, lengths[0].expand(len(lengths)) - 1),
            "Each sequence has a length of its own.",
        ),
        "every sequence is taken to be as short as the shortest": M(
            lambda hs, lengths: _at(hs, lengths.min().expand(len(lengths)) - 1),
            "Each sequence has a length of its own.",
        ),
        "the mean of the real states is taken": M(
            _mean_of_real,
            "One state of each sequence is asked for, not a mean of several.",
        ),
        "the mean of all states is taken": M(
            lambda hs, lengths: hs.mean(1),
            "One state of each sequence is asked for, not a mean of several.",
        ),
        "the real states are added up": M(
            lambda hs, lengths: _mean_of_real(hs, lengths) * lengths[:, None],
            "One state of each sequence is asked for. Does your mask keep all real steps, or the last one?",
        ),
        "the largest value of each unit is taken": M(
            _largest,
            "One state of each sequence is asked for, whatever its values.",
        ),
        "the first state is taken": M(
            lambda hs, lengths: hs[:, 0],
            "The first state has seen one input. Which argument is never used?",
        ),
        "the results stand in order of length, the longest first": M(
            lambda hs, lengths: _in_order_of(hs, lengths, descending=True),
            "The states are right. Row k of the result belongs to row k of hs.",
        ),
        "the results stand in order of length, the shortest first": M(
            lambda hs, lengths: _in_order_of(hs, lengths, descending=False),
            "The states are right. Row k of the result belongs to row k of hs.",
        ),
        "every length is used for every sequence": M(
            lambda hs, lengths: torch.stack([_at(hs, n.expand(len(hs)) - 1) for n in lengths], 1),
            "A colon keeps the whole axis. You want one sequence with one length, the next with the next.",
        ),
        "batch and time are exchanged in the index": M(
            lambda hs, lengths: torch.stack([hs[int(n) - 1][k] for k, n in enumerate(lengths)]),
            "Which axis of hs is the batch, and which is time?",
        ),
        "only one unit of each state is taken": M(
            lambda hs, lengths: _at(hs, lengths - 1)[:, :1],
            "gather returns as many entries as its index has: how large is yours along the last axis?",
        ),
        "all axes of length 1 are squeezed": M(
            lambda hs, lengths: _at(hs, lengths - 1).squeeze(),
            "The numbers are right. squeeze chooses axes by their length, not by what they mean.",
        ),
        "the axis of time is kept": M(
            lambda hs, lengths: _at(hs, lengths - 1)[:, None],
            "The numbers are right; an axis of length 1 is left over.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# bidirectional: both_directions(x, lengths, W_xh, W_hh, b_h, W_xh_back, W_hh_back, b_h_back) -> (output, h_n)


def bidirectional_cases(rng):
    def arguments(B, T, D, H, lengths=None):
        x = rng.normal(size=(B, T, D))
        given = {"x": x if lengths is None else padded(x, lengths)}
        given["lengths"] = np.full(B, T) if lengths is None else np.asarray(lengths)
        back = {f"{name}_back": value for name, value in draw.recurrent(rng, D, H).items()}
        return draw.tensors(given | draw.recurrent(rng, D, H) | back)

    def without(arguments, *names):
        zeros = {name: torch.zeros_like(arguments[name]) for name in names}
        return arguments | zeros

    forward, back = ("W_xh", "W_hh", "b_h"), ("W_xh_back", "W_hh_back", "b_h_back")
    one_unit = {"x": [[[1.0], [2.0]]], "W_xh": [[0.5]], "W_hh": [[0.25]], "b_h": [0.0]}
    one_unit |= {"W_xh_back": [[-0.3]], "W_hh_back": [[0.5]], "b_h_back": [0.1]}
    by_hand = {name: torch.tensor(value, dtype=torch.float64) for name, value in one_unit.items()}
    yield Case("one unit, the inputs 1, 2", {"x": by_hand.pop("x"), "lengths": torch.tensor([2])} | by_hand)
    yield Case("no padding, backward weights zero", without(arguments(2, 4, 3, 2), *back), term="the forward pass")
    yield Case("no padding, forward weights zero", without(arguments(2, 4, 3, 2), *forward), term="the backward pass")
    yield Case("no padding, B, T, D and H all different", arguments(3, 4, 2, 5))
    yield Case("padded, unsorted, B = T = D = H", arguments(4, 4, 4, 4, unsorted_lengths(rng, 4, 4)))
    yield Case("padded, no sequence fills all T steps", arguments(3, 6, 2, 3, unsorted_lengths(rng, 3, 6, longest=4)))


def _run(x, W_xh, W_hh, b_h, h0=None):
    return rnncore.rnn_forward(x, h0, W_xh, W_hh, b_h)


def _mirrored(a, lengths):
    """Return a (B, T, ...) with the real steps of each row in reverse order and the padding where it was."""
    steps = torch.arange(a.shape[1]).expand(a.shape[:2])
    places = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    return a.gather(1, places[..., None].expand_as(a))


def _backwards(x, lengths, weights):
    return _mirrored(_run(_mirrored(x, lengths), *weights), lengths)


def _concatenated(hs, back):
    return torch.cat((hs, back), 2)


def _last_of_each(hs, back, lengths):
    """Return (2, B, H): the state of each pass when it has read everything."""
    return torch.stack((_at(hs, lengths - 1), back[:, 0]))


def _joined(hs, back, lengths, side_by_side=_concatenated, h_n=_last_of_each):
    """Return (output, h_n) of the states of both passes, each in the order of the inputs."""
    return _real_only(side_by_side(hs, back), lengths), h_n(hs, back, lengths)


def _both(x, lengths, *weights, **other):
    return _joined(_run(x, *weights[:3]), _backwards(x, lengths, weights[3:]), lengths, **other)


def _with_output(pair, change):
    return change(pair[0]), pair[1]


def _with_h_n(pair, change):
    return pair[0], change(pair[1])


def _whole_rows_mirrored(x, lengths, *weights):
    """Mirror the padding too: the second pass begins with it."""
    back = _run(x.flip(1), *weights[3:]).flip(1)
    return _joined(_run(x, *weights[:3]), back, lengths)


def _reversed_and_cut(x, lengths, *weights):
    """Lose real steps and keep padding, in the second pass."""
    back = _mirrored(_run(x.flip(1), *weights[3:]), lengths)
    return _joined(_run(x, *weights[:3]), back, lengths)


def _longest_first(x, lengths, *weights):
    order = torch.argsort(lengths, descending=True)
    return _both(x[order], lengths[order], *weights)


def _padding_as_data(x, lengths, *weights):
    whole = torch.full_like(lengths, x.shape[1])
    return _both(x, whole, *weights)


def _at_the_end(pair):
    """Take h_n from the last column of output."""
    output, _ = pair
    return output, torch.stack(output[:, -1].chunk(2, 1))


def _begun_with_the_last_state(x, lengths, *weights):
    hs = _run(x, *weights[:3])
    back = _run(_mirrored(x, lengths), *weights[3:], _at(hs, lengths - 1))
    return _joined(hs, _mirrored(back, lengths), lengths)


def _not_mirrored_back(x, lengths, *weights):
    """Keep the second pass in the order in which it ran; its last state is right."""
    back = _run(_mirrored(x, lengths), *weights[3:])
    output, _ = _joined(_run(x, *weights[:3]), back, lengths)
    return output, _both(x, lengths, *weights)[1]


def _not_mirrored_back_nor_h_n(x, lengths, *weights):
    return _joined(_run(x, *weights[:3]), _run(_mirrored(x, lengths), *weights[3:]), lengths)


BIDIRECTIONAL = Exercise(
    id="bidirectional",
    points=4,
    reference=_both,
    cases=bidirectional_cases,
    probe=output_and_h_n,
    axes={"output": "B T 2H", "h_n": "2 B H"},
    section="“Packed sequences”",
    forbidden=("torch.nn.RNN", "rnncore.RNN", "torch.rnn_tanh", "torch.ops.aten.rnn_tanh"),
    provided=("rnn_forward", "rnn_step"),
    misconceptions={
        "the backward states are not put back in order": M(
            _not_mirrored_back,
            "output[:, t] holds what both passes know at the same step. Which step did the backward pass do first?",
        ),
        "the backward states are not put back in order, and h_n takes the first of them": M(
            _not_mirrored_back_nor_h_n,
            "The pass that reads backwards does step T first. In which order do its states come, and which was last?",
        ),
        "the second pass does not read backwards": M(
            lambda x, lengths, *w: _joined(_run(x, *w[:3]), _run(x, *w[3:]), lengths),
            "Both passes read from the left. Which input should the backward pass read first, and which axis is time?",
        ),
        "the second pass reads forwards and its states are reversed": M(
            lambda x, lengths, *w: _joined(_run(x, *w[:3]), _mirrored(_run(x, *w[3:]), lengths), lengths),
            "A reversed result is no reversed reading: what does the backward pass get as its input?",
        ),
        "the states of both directions are added": M(
            lambda *a: _both(*a, side_by_side=lambda hs, back: hs + back),
            "The two halves stand side by side: output has 2H numbers at each step.",
        ),
        "the mean of both directions is taken": M(
            lambda *a: _both(*a, side_by_side=lambda hs, back: (hs + back) / 2),
            "The two halves stand side by side: output has 2H numbers at each step.",
        ),
        "the halves of output are swapped": M(
            lambda *a: _with_output(_both(*a), lambda output: output.roll(output.shape[2] // 2, 2)),
            "Which direction's states come first?",
        ),
        "the halves of output and the entries of h_n are swapped": M(
            lambda *a: _with_h_n(
                _with_output(_both(*a), lambda output: output.roll(output.shape[2] // 2, 2)), lambda h_n: h_n.flip(0)
            ),
            "Which direction's states come first?",
        ),
        "the entries of h_n are swapped": M(
            lambda *a: _with_h_n(_both(*a), lambda h_n: h_n.flip(0)),
            "Output is right. Which direction comes first in h_n?",
        ),
        "the units of both directions alternate": M(
            lambda *a: _both(*a, side_by_side=lambda hs, back: torch.stack((hs, back), 3).flatten(2)),
            "The first H numbers belong to one direction, the last H to the other.",
        ),
        "the backward entry of h_n is taken at the last real step": M(
            lambda *a: _both(*a, h_n=lambda hs, back, n: torch.stack((_at(hs, n - 1), _at(back, n - 1)))),
            "At which step has the backward pass read everything?",
        ),
        "the backward entry of h_n is taken at the end of the row": M(
            lambda *a: _both(*a, h_n=lambda hs, back, n: torch.stack((_at(hs, n - 1), _real_only(back, n)[:, -1]))),
            "At which step has the backward pass read everything?",
        ),
        "the forward entry of h_n is taken at the end of the row": M(
            lambda *a: _both(*a, h_n=lambda hs, back, n: torch.stack((hs[:, -1], back[:, 0]))),
            "Without padding all is right. Where does a shorter sequence end?",
        ),
        "both entries of h_n are taken at the end of the row": M(
            lambda *a: _both(*a, h_n=lambda *both: torch.stack([_real_only(hs, both[2])[:, -1] for hs in both[:2]])),
            "When has each pass read everything? The two answers differ.",
        ),
        "h_n is brought to its shape by reshape": M(
            lambda *a: _with_h_n(_both(*a), lambda h_n: h_n.transpose(0, 1).reshape(h_n.shape)),
            "Output is right. reshape deals numbers out in their order; it exchanges no axes.",
        ),
        "both results are in order of length, the longest first": M(
            _longest_first,
            "The states are right. Row k of the results belongs to row k of x.",
        ),
        "both directions have the same weights": M(
            lambda x, lengths, *w: _both(x, lengths, *w[:3], *w[:3]),
            "Each direction has weights of its own. Which arguments are never used?",
        ),
        "the weights of the two directions are exchanged": M(
            lambda x, lengths, *w: _both(x, lengths, *w[3:], *w[:3]),
            "Which weights belong to the pass that reads from the left?",
        ),
        "the padding is reversed with the rest, so that the backward pass begins with it": M(
            _whole_rows_mirrored,
            "Without padding all is right. With it, what does the backward pass read before the last real step?",
        ),
        "the whole row is reversed and then cut to its length": M(
            _reversed_and_cut,
            "Without padding all is right. With it, where does the padding stand in the reversed row, and what is cut?",
        ),
        "the padding is read as data": M(
            _padding_as_data,
            "Without padding all is right. Which argument is never used?",
        ),
        "the padding is read as data, and h_n is taken at the end of the row": M(
            lambda x, lengths, *w: _at_the_end(_padding_as_data(x, lengths, *w)),
            "When has each pass read everything? The two answers differ, and in a padded row neither is its end.",
        ),
        "the padding is read as data, and the backward states are not put back in order": M(
            lambda x, lengths, *w: _not_mirrored_back(x, torch.full_like(lengths, x.shape[1]), *w),
            "The pass that reads backwards does step T first: in which order do its states come? And which argument is "
            "never used?",
        ),
        "the padding is read as data, and output set to zero there": M(
            lambda x, lengths, *w: _with_output(
                _padding_as_data(x, lengths, *w), lambda output: _real_only(output, lengths)
            ),
            "Without padding all is right. With it, what has the backward pass read before the last real step?",
        ),
        "output is not zero at the padding": M(
            lambda x, lengths, *w: _with_output(
                _both(x, lengths, *w),
                lambda output: torch.cat((_run(x, *w[:3]), _backwards(x, lengths, w[3:])), 2),
            ),
            "The real steps are right. What is to stand where there is only padding?",
        ),
        "the backward pass begins with the last state of the forward pass": M(
            _begun_with_the_last_state,
            "The two passes know nothing of each other: each begins with a state of zeros.",
        ),
        "the numbers of each input are reversed in place of time": M(
            lambda x, lengths, *w: _joined(_run(x, *w[:3]), _run(x.flip(2), *w[3:]), lengths),
            "Which axis of x is time?",
        ),
        "the two results are in the other order": M(
            lambda *a: _both(*a)[::-1],
            "torch.nn.RNN returns output first.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# The bug hunt. bug-batch-first: states_of_batch(x, weights) -> the states, (B, T, H)


def weights_of(rng, D, H, layers=1):
    """Return an argument, the weights of a torch.nn.RNN: {"weights": {torch's name: tensor}}."""
    found = {}
    for k in range(layers):
        drawn = draw.recurrent(rng, H if k else D, H)
        found |= {f"weight_ih_l{k}": drawn["W_xh"], f"weight_hh_l{k}": drawn["W_hh"]}
        found |= {f"bias_ih_l{k}": drawn["b_h"], f"bias_hh_l{k}": rng.normal(size=H)}
    return {"weights": draw.tensors(found)}


def small_weights(layers=1):
    """Return the same for a torch.nn.RNN of one unit in each layer, to check by hand."""
    found = {}
    for k in range(layers):
        found |= {
            f"weight_ih_l{k}": [[0.5]],
            f"weight_hh_l{k}": [[0.25]],
            f"bias_ih_l{k}": [0.1],
            f"bias_hh_l{k}": [0.0],
        }
    return {"weights": {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}}


def batch_first_cases(rng):
    def arguments(B, T, D, H):
        return {"x": torch.as_tensor(rng.normal(size=(B, T, D)))} | weights_of(rng, D, H)

    x = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    yield Case("one unit, the inputs 1, 2", {"x": x} | small_weights())
    yield Case("B, T, D and H all different", arguments(3, 5, 2, 4))
    yield Case("B = T = D = H", arguments(4, 4, 4, 4))
    yield Case("one step", arguments(3, 1, 2, 4))


def _layer_of(weights, **options):
    H, D = weights["weight_ih_l0"].shape
    made = torch.nn.RNN(D, H, dtype=torch.float64, **options)
    made.load_state_dict(weights)
    return made


def _states_of(x, weights):
    """Return the states (T, B, H) of x (T, B, D): time comes first, as PyTorch has it when nothing is said."""
    return _layer_of(weights)(x)[0]


def _dealt_out(a):
    """Return a (B, T, ...) with the shape (T, B, ...), its numbers in their order: no axes are exchanged."""
    return a.reshape(a.shape[1], a.shape[0], *a.shape[2:])


def _each_step_from_zeros(x, weights):
    made = _layer_of(weights)
    return torch.cat([made(x_t[None])[0] for x_t in x.unbind(1)]).transpose(0, 1)


BUG_BATCH_FIRST = Exercise(
    id="bug-batch-first",
    points=1,
    reference=lambda x, weights: _states_of(x.transpose(0, 1), weights).transpose(0, 1),
    cases=batch_first_cases,
    probe=call,
    axes="B T H",
    section="“Two results”",
    misconceptions={
        "the layer runs along the batch, as in the program as it was found": M(
            _states_of,
            "Change one sequence of the batch and look at the states of the next one. Which axis is read as time?",
        ),
        "the layer runs along the batch, and the result's axes are exchanged": M(
            lambda x, weights: _states_of(x, weights).transpose(0, 1),
            "Is the trouble in the result, or in what the layer reads? What does it take for time?",
        ),
        "time comes before the batch in the result": M(
            lambda x, weights: _states_of(x.transpose(0, 1), weights),
            "The numbers are right; the axes of the result are B, T, H in this order.",
        ),
        "the input's axes are exchanged by reshape": M(
            lambda x, weights: _states_of(_dealt_out(x), weights),
            "reshape keeps the numbers in their order and deals them out anew; it exchanges no axes.",
        ),
        "the input's and the result's axes are exchanged by reshape": M(
            lambda x, weights: _dealt_out(_states_of(_dealt_out(x), weights)),
            "reshape keeps the numbers in their order and deals them out anew; it exchanges no axes.",
        ),
        "the result's axes are exchanged by reshape": M(
            lambda x, weights: _dealt_out(_states_of(x.transpose(0, 1), weights)),
            "reshape keeps the numbers in their order and deals them out anew; it exchanges no axes.",
        ),
        "h_n is returned": M(
            lambda x, weights: _states_of(x.transpose(0, 1), weights)[-1:],
            "The layer now reads time as it should. Of its two results, which has all the states?",
        ),
        "only the last state is returned": M(
            lambda x, weights: _states_of(x.transpose(0, 1), weights)[-1],
            "The states of all steps are asked for.",
        ),
        "only one of the two biases is used": M(
            lambda x, weights: _states_of(
                x.transpose(0, 1), weights | {"bias_hh_l0": torch.zeros_like(weights["bias_hh_l0"])}
            ).transpose(0, 1),
            "Print the names of the weights. Which of them did you not use?",
        ),
        "each sequence goes on from the last state of the one before": M(
            lambda x, weights: _states_of(x.reshape(-1, 1, x.shape[2]), weights).reshape(*x.shape[:2], -1),
            "The sequences of a batch have nothing to do with each other. With what state does each begin?",
        ),
        "every step starts from zeros": M(
            _each_step_from_zeros,
            "The layer carries the state over the steps that it gets in one call. How many does it get?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# bug-cell: states_of_sequence(cell, x) -> the states h_1 ... h_T of one sequence, (T, H)


def cell_cases(rng):
    def arguments(T, D, H):
        gates = [draw.recurrent(rng, D, H) for _ in range(3)]
        stacked = {name: np.concatenate([gate[name] for gate in gates]) for name in gates[0]}
        weights = {"weight_ih": stacked["W_xh"], "weight_hh": stacked["W_hh"], "bias_ih": stacked["b_h"]}
        weights["bias_hh"] = rng.normal(size=3 * H)
        return {"x": torch.as_tensor(rng.normal(size=(T, D))), "weights": draw.tensors(weights)}

    yield Case("one step, which the program as it was found does right", arguments(1, 2, 3), counted=False)
    yield Case("two steps of one unit", arguments(2, 1, 1))
    yield Case("T, D and H all different", arguments(5, 2, 3))
    yield Case("T = D = H", arguments(4, 4, 4))


def _stepped(cell, x, carry=lambda old, new: new):
    """Return the states (T, H); `carry` says what the next step gets: the new state, unless something is wrong."""
    h, found = None, []
    for x_t in x:
        new = cell(x_t, h)
        found.append(new)
        h = carry(torch.zeros_like(new) if h is None else h, new)
    return torch.stack(found)


def _h_0_first(cell, x):
    states = _stepped(cell, x)
    return torch.cat((torch.zeros_like(states[:1]), states[:-1]))


def _one_step_back(cell, x):
    alone = cell(x)
    return cell(x, torch.cat((torch.zeros_like(alone[:1]), alone[:-1])))


def _the_batch_again_and_again(cell, x):
    h = None
    for _ in x:
        h = cell(x, h)
    return h


BUG_CELL = Exercise(
    id="bug-cell",
    points=1,
    reference=_stepped,
    cases=cell_cases,
    probe=with_gru_cell,
    axes="T H",
    section="“A sequence is not a batch”",
    misconceptions={
        "every row starts from zeros, as in the program as it was found": M(
            lambda cell, x: cell(x),
            "Change x_1: do the later states change? What does each step have to get besides x_t?",
        ),
        "the cell gets the whole sequence again and again": M(
            _the_batch_again_and_again,
            "The loop is there; which part of x belongs to step t?",
        ),
        "every row looks one step back and no further": M(
            _one_step_back,
            "Change x_1 and look at row 3. Through how many calls has the state of each row gone?",
        ),
        "the sequence is read backwards": M(
            lambda cell, x: _stepped(cell, x.flip(0)),
            "The first input is x[0].",
        ),
        "only the last state is returned": M(
            lambda cell, x: _stepped(cell, x)[-1],
            "The states of all steps are asked for.",
        ),
        "h_0 is among the states": M(
            lambda cell, x: torch.cat((torch.zeros_like(_stepped(cell, x)[:1]), _stepped(cell, x))),
            "T states are asked for, h_1 to h_T.",
        ),
        "h_0 is first and h_T is missing": M(
            _h_0_first,
            "Do you keep the state from before the step, or from after it?",
        ),
        "x_1 is read at every step": M(
            lambda cell, x: _stepped(cell, x[:1].expand_as(x)),
            "Which part of x belongs to step t?",
        ),
        "the states are added up": M(
            lambda cell, x: _stepped(cell, x, carry=lambda old, new: old + new),
            "A state replaces the one before; it is not added to it.",
        ),
        "the state goes on from the first step only": M(
            lambda cell, x: torch.cat((_stepped(cell, x[:1]), cell(x[1:], cell(x[0])[None].expand(len(x) - 1, -1)))),
            "What does your third step get: the state of the second, or of the first?",
        ),
        "an axis of length 1 is left over": M(
            lambda cell, x: _stepped(cell, x)[:, None],
            "The numbers are right; the result is to have the shape (T, H).",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# bug-h-n: top_states(rnn, x) -> the last state of the top layer of two, (B, H)


def h_n_cases(rng):
    def arguments(B, T, D, H):
        return {"x": torch.as_tensor(rng.normal(size=(B, T, D)))} | weights_of(rng, D, H, layers=2)

    x = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    yield Case("one unit in each layer, the inputs 1, 2", {"x": x} | small_weights(layers=2))
    yield Case("B, T, D and H all different", arguments(5, 4, 2, 3))
    yield Case("B = T = D = H", arguments(3, 3, 3, 3))
    yield Case("a batch of one", arguments(1, 3, 2, 3))


BUG_H_N = Exercise(
    id="bug-h-n",
    points=1,
    reference=lambda rnn, x: rnn(x)[0][:, -1],
    cases=h_n_cases,
    probe=with_rnn,
    axes="B H",
    section="“Layers and directions”",
    misconceptions={
        "the states of both layers are returned, as in the program as it was found": M(
            lambda rnn, x: rnn(x)[1].squeeze(0),
            "squeeze(0) takes an axis away only if its length is 1. How long is that axis with two layers?",
        ),
        "all axes of length 1 are squeezed": M(
            lambda rnn, x: rnn(x)[1].squeeze(),
            "squeeze chooses axes by their length, not by what they mean. What does each axis of h_n stand for?",
        ),
        "the lower layer's state is returned": M(
            lambda rnn, x: rnn(x)[1][0],
            "In which order do the layers stand in h_n?",
        ),
        "the layers' states are added": M(
            lambda rnn, x: rnn(x)[1].sum(0),
            "One layer's state is asked for.",
        ),
        "the mean over the layers is taken": M(
            lambda rnn, x: rnn(x)[1].mean(0),
            "One layer's state is asked for.",
        ),
        "the layers' states stand side by side": M(
            lambda rnn, x: torch.cat(tuple(rnn(x)[1]), 1),
            "One layer's state is asked for.",
        ),
        "the layers are flattened by reshape": M(
            lambda rnn, x: rnn(x)[1].reshape(len(x), -1),
            "reshape deals the numbers out in their order: layer 0 of all sequences comes before layer 1 of any.",
        ),
        "the layers are dealt out by reshape, and the last taken": M(
            lambda rnn, x: rnn(x)[1].reshape(len(x), 2, -1)[:, 1],
            "reshape deals the numbers out in their order: layer 0 of all sequences comes before layer 1 of any.",
        ),
        "the last sequence is taken in place of the last layer": M(
            lambda rnn, x: rnn(x)[1][:, -1],
            "What does each axis of h_n stand for?",
        ),
        "an axis of length 1 is left over": M(
            lambda rnn, x: rnn(x)[1][-1:],
            "The numbers are right; the result is to have the shape (B, H).",
        ),
        "the axis of time is left over": M(
            lambda rnn, x: rnn(x)[0][:, -1:],
            "The numbers are right; the result is to have the shape (B, H).",
        ),
        "the layer is given time first": M(
            lambda rnn, x: rnn(x.transpose(0, 1))[1][-1],
            "The layer was made with batch_first=True. Which axis of what it gets does it take for time?",
        ),
        "the batch comes first and both layers are still there": M(
            lambda rnn, x: rnn(x)[1].transpose(0, 1),
            "One layer's state is asked for.",
        ),
        "the states of all steps are returned": M(
            lambda rnn, x: rnn(x)[0],
            "One state of each sequence is asked for.",
        ),
        "the first state is returned": M(
            lambda rnn, x: rnn(x)[0][:, 0],
            "The state after the last step is asked for.",
        ),
        "the states of the last sequence are returned": M(
            lambda rnn, x: rnn(x)[0][-1],
            "Which axis of output is the batch, and which is time?",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# bug-padding: mean_state(rnn, x, lengths) -> the mean of each sequence's real states, (B, H)


def padding_cases(rng):
    def arguments(B, T, D, H, lengths):
        x = padded(rng.normal(size=(B, T, D)), lengths)
        return draw.tensors({"x": x, "lengths": np.asarray(lengths)}) | weights_of(rng, D, H)

    x = torch.tensor([[[1.0], [2.0], [0.0]]], dtype=torch.float64)
    yield Case(
        "one unit, the inputs 1, 2 and one step of padding", {"x": x, "lengths": torch.tensor([2])} | small_weights()
    )
    yield Case("B, T, D and H all different", arguments(4, 6, 2, 3, unsorted_lengths(rng, 4, 6)))
    zero = arguments(4, 7, 2, 3, unsorted_lengths(rng, 4, 7, longest=5))
    zero["x"][zero["lengths"].argmax(), 1] = 0
    yield Case("no sequence fills all T steps, and a real input is zero", zero)
    yield Case("B = T = D = H", arguments(4, 4, 4, 4, unsorted_lengths(rng, 4, 4)))


def _mean_state(rnn, x, lengths):
    return _mean_of_real(rnn(x)[0], lengths)


def _mean_under_a_mask(rnn, x, lengths, real):
    """Return the mean of the states at the steps that real(t, lengths) chooses, for each sequence."""
    chosen = real(torch.arange(x.shape[1]), lengths[:, None])
    return (rnn(x)[0] * chosen[..., None]).sum(1) / chosen.sum(1, keepdim=True)


def _mean_where_x_is_not_zero(rnn, x, lengths):
    real = (x != 0).any(2)
    return (rnn(x)[0] * real[..., None]).sum(1) / real.sum(1, keepdim=True)


BUG_PADDING = Exercise(
    id="bug-padding",
    points=1,
    reference=_mean_state,
    cases=padding_cases,
    probe=with_rnn,
    axes="B H",
    section="“Padding”",
    misconceptions={
        "the padding is read as data, as in the program as it was found": M(
            lambda rnn, x, lengths: rnn(x)[0].mean(1),
            "Zeros are data too: which states come after the last real step? Which argument is never used?",
        ),
        "all states are added up and divided by the length": M(
            lambda rnn, x, lengths: rnn(x)[0].sum(1) / lengths[:, None],
            "The divisor is right. Which states are added up?",
        ),
        "the sum of the real states is divided by T": M(
            lambda rnn, x, lengths: _mean_state(rnn, x, lengths) * lengths[:, None] / x.shape[1],
            "The sum is right. By how many states does a mean divide?",
        ),
        "the sum of the real states is divided by the longest length": M(
            lambda rnn, x, lengths: _mean_state(rnn, x, lengths) * lengths[:, None] / lengths.max(),
            "The sum is right. By how many states does a mean divide?",
        ),
        "the real states are added up and not divided": M(
            lambda rnn, x, lengths: _mean_state(rnn, x, lengths) * lengths[:, None],
            "The sum is right. What makes a mean of it?",
        ),
        "the sequences are cut at the longest length": M(
            lambda rnn, x, lengths: rnn(x)[0][:, : int(lengths.max())].mean(1),
            "Each sequence has a length of its own.",
        ),
        "the mask keeps one step too many": M(
            lambda *a: _mean_under_a_mask(*a, real=lambda t, n: t <= n),
            "Python counts from 0: which indices have the n real steps?",
        ),
        "the mask keeps one step too many, and the sum is divided by the length": M(
            lambda rnn, x, lengths: (
                _mean_under_a_mask(rnn, x, lengths, real=lambda t, n: t <= n)
                * (torch.clamp(lengths + 1, max=x.shape[1]) / lengths)[:, None]
            ),
            "Python counts from 0: which indices have the n real steps?",
        ),
        "every step at which x is zero is taken for padding": M(
            _mean_where_x_is_not_zero,
            "Zeros are data too. Which argument says where the padding begins?",
        ),
        "the mask leaves out the first step": M(
            lambda *a: _mean_under_a_mask(*a, real=lambda t, n: (t > 0) & (t < n) | (n == 1) & (t == 0)),
            "Python counts from 0: which indices have the n real steps?",
        ),
        "the states at the padding are added up": M(
            lambda rnn, x, lengths: rnn(x)[0].sum(1) / lengths[:, None] - _mean_state(rnn, x, lengths),
            "Is your mask true where a step is real, or where it is padding?",
        ),
        "one mean is taken over the whole batch": M(
            lambda rnn, x, lengths: torch.cat([s[:n] for s, n in zip(rnn(x)[0], lengths.tolist(), strict=True)]).mean(
                0
            ),
            "Each sequence has a mean of its own: over which axis is it taken?",
        ),
        "the state after the padding is returned": M(
            lambda rnn, x, lengths: rnn(x)[1][0],
            "A mean over the real steps is asked for; h_n is one state, and it has read the padding too.",
        ),
        "the last real state is returned": M(
            lambda rnn, x, lengths: _at(rnn(x)[0], lengths - 1),
            "The mean of all real states is asked for.",
        ),
        "the results stand in order of length, the longest first": M(
            lambda rnn, x, lengths: _mean_state(rnn, x, lengths)[lengths.argsort(descending=True)],
            "The means are right. Row k of the result belongs to row k of x.",
        ),
    },
)

# ----------------------------------------------------------------------------------------------------------
# bug-state: last_states(rnn, batches) -> the last state of every sequence of every batch, (N, B, H)


def state_cases(rng):
    def arguments(N, B, T, D, H):
        return {"batches": torch.as_tensor(rng.normal(size=(N, B, T, D)))} | weights_of(rng, D, H)

    batches = torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    yield Case("one batch, which the program as it was found does right", arguments(1, 2, 3, 2, 4), counted=False)
    yield Case("one unit, one step, two batches: the inputs 1 and 2", {"batches": batches} | small_weights())
    yield Case("N, B, T, D and H all different", arguments(3, 4, 5, 2, 6))
    yield Case("all sizes equal", arguments(3, 3, 3, 3, 3))


def _each_alone(rnn, batches):
    return torch.stack([rnn(x)[1][0] for x in batches])


def _handed_on(rnn, batches, hand=lambda h, k: h):
    """Return the last states; `hand` says what the batch after number k gets."""
    h, found = None, []
    for k, x in enumerate(batches):
        _, h = rnn(x, h)
        found.append(h[0])
        h = hand(h, k)
    return torch.stack(found)


def _from_the_first_batch(rnn, batches):
    _, h = rnn(batches[0])
    return torch.stack([h[0], *(rnn(x, h)[1][0] for x in batches[1:])])


BUG_STATE = Exercise(
    id="bug-state",
    points=1,
    reference=_each_alone,
    cases=state_cases,
    probe=with_rnn,
    axes="N B H",
    section="“Two results”",
    misconceptions={
        "a batch starts from the state of the batch before, as in the program as it was found": M(
            _handed_on,
            "Run the second batch alone: is its result another? (detach changes gradients and no number.)",
        ),
        "every batch starts from the state of the first": M(
            _from_the_first_batch,
            "The batches have nothing to do with each other. What state does a sequence begin with?",
        ),
        "every batch is read twice": M(
            lambda rnn, batches: torch.stack([rnn(x, rnn(x)[1])[1][0] for x in batches]),
            "How often is each batch read before its state is kept?",
        ),
        "only every other batch starts from zeros": M(
            lambda *a: _handed_on(*a, hand=lambda h, k: None if k % 2 else h),
            "After which batches is the state put back, and after which not?",
        ),
        "every batch starts from ones": M(
            lambda rnn, batches: torch.stack([rnn(x, torch.ones_like(rnn(x)[1]))[1][0] for x in batches]),
            "What state does a sequence begin with when nothing is said?",
        ),
        "only the last batch's states are returned": M(
            lambda rnn, batches: _each_alone(rnn, batches)[-1],
            "The states of all batches are asked for.",
        ),
        "the axis of the layers is left over": M(
            lambda rnn, batches: _each_alone(rnn, batches)[:, None],
            "The numbers are right; the result is to have the shape (N, B, H).",
        ),
        "the states of all steps are returned": M(
            lambda rnn, batches: torch.stack([rnn(x)[0] for x in batches]),
            "One state of each sequence is asked for.",
        ),
        "the first states are returned": M(
            lambda rnn, batches: torch.stack([rnn(x)[0][:, 0] for x in batches]),
            "The state after the last step is asked for.",
        ),
        "the sequences of all batches stand in one row": M(
            lambda rnn, batches: _each_alone(rnn, batches).flatten(0, 1),
            "The numbers are right; the result is to have the shape (N, B, H).",
        ),
        "the batches are joined into one, and its sequences dealt out wrongly": M(
            lambda rnn, batches: (
                _each_alone(rnn, batches).flatten(0, 1).unflatten(0, batches.shape[1::-1]).transpose(0, 1)
            ),
            "In which order do the sequences of the joined batch stand?",
        ),
    },
)

EXERCISES = [
    TRANSPLANT,
    LAST,
    BIDIRECTIONAL,
    BUG_BATCH_FIRST,
    BUG_CELL,
    BUG_H_N,
    BUG_PADDING,
    BUG_STATE,
]
