"""Weights of GRUs and LSTMs as other programs and texts write them, converted to rnncore's form and back.

Two programs that both have "a GRU" may differ in six things, and none of them shows in a result's shape: the order in
which the gates' weights are stacked, row or column vectors, which way the update gate turns, whether the reset gate
comes before the recurrent product or after it, how many biases there are, and what is added to a bias when the network
runs. ``CONVENTIONS`` says what each of them does. `to_rnncore` and `from_rnncore` convert exactly where that is
possible and raise a ValueError where it is not.

Sizes: D input, H hidden. A convention's weights are four arrays, stacked in its own order: W_x from the input, W_h from
the state, b_x and b_h; k = 3 blocks for a GRU, 4 for an LSTM. Arrays are NumPy's, float32 or float64, and stay as they
are; what is returned are new ones. A tensor comes by its .numpy().
"""

from dataclasses import dataclass

import numpy as np

OURS = {"GRU": "rzn", "LSTM": "ifgo"}  # rnncore's order, and PyTorch's


@dataclass(frozen=True)
class Convention:
    """How a program or a text writes one of the two networks; the gates have rnncore's letters."""

    network: str  # "GRU" or "LSTM"
    blocks: str  # the order in which the blocks are stacked
    source: str  # where it says so
    rows: bool = False  # x W with W (D, kH), in place of W x with W (kH, D)
    takes: bool = False  # z = 1 takes the candidate, in place of keeping the state
    before: bool = False  # W_hn (r ⊙ h), in place of r ⊙ (W_hn h + b_hn)
    biases: str = "two"  # or "one", b_x; or "b_hn": of b_h only the candidate's block
    forget: float = 0.0  # added to the sum of the forget gate when the network runs


PYTORCH = "https://docs.pytorch.org/docs/stable/generated/torch.nn."
KERAS = "https://keras.io/api/layers/recurrent_layers/"
FLAX = "https://github.com/google/flax/blob/main/flax/linen/recurrent.py"
ONNX = "https://onnx.ai/onnx/operators/onnx__"
ARXIV = "https://arxiv.org/abs/"
DIVE = "https://d2l.ai/chapter_recurrent-modern/gru.html"
TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/compat/v1/nn/rnn_cell/"

CONVENTIONS = {
    "PyTorch GRU": Convention("GRU", "rzn", f"{PYTORCH}GRU.html"),
    "Keras GRU": Convention("GRU", "zrn", f"{KERAS}gru/", rows=True),
    "Keras GRU, reset_after=False": Convention("GRU", "zrn", f"{KERAS}gru/", rows=True, before=True, biases="one"),
    "Flax GRU": Convention("GRU", "rzn", FLAX, rows=True, biases="b_hn"),
    "ONNX GRU, linear_before_reset=1": Convention("GRU", "zrn", f"{ONNX}GRU.html"),
    "ONNX GRU": Convention("GRU", "zrn", f"{ONNX}GRU.html", before=True),
    "Cho 2014, version 1": Convention("GRU", "rzn", f"{ARXIV}1406.1078v1", biases="one"),
    "Cho 2014, version 3": Convention("GRU", "rzn", f"{ARXIV}1406.1078v3", before=True, biases="one"),
    "Chung 2014": Convention("GRU", "rzn", f"{ARXIV}1412.3555", takes=True, before=True, biases="one"),
    "Dive into Deep Learning GRU": Convention("GRU", "rzn", DIVE, rows=True, before=True, biases="one"),
    "PyTorch LSTM": Convention("LSTM", "ifgo", f"{PYTORCH}LSTM.html"),
    "Keras LSTM": Convention("LSTM", "ifgo", f"{KERAS}lstm/", rows=True, biases="one"),
    "Flax LSTM": Convention("LSTM", "ifgo", FLAX, rows=True, biases="one"),
    "ONNX LSTM": Convention("LSTM", "iofg", f"{ONNX}LSTM.html"),
    "TensorFlow 1 BasicLSTMCell": Convention(
        "LSTM", "igfo", f"{TENSORFLOW}BasicLSTMCell", rows=True, biases="one", forget=1.0
    ),
}


def to_rnncore(convention, W_x, W_h, b_x=None, b_h=None):
    """Return a convention's weights as rnncore takes them.

    convention is a name of ``CONVENTIONS``. W_x is (kH, D) and W_h (kH, H), or with row vectors (D, kH) and (H, kH);
    biases are (kH,), and None stands for zeros. Of a convention with one bias, that is b_x.

    Returns {"W_xh" (3H, D), "W_hh" (3H, H), "b_xh" (3H,), "b_hh" (3H,)} of a GRU, in the order r, z, n; of an LSTM
    {"W_xh" (4H, D), "W_hh" (4H, H), "b_h" (4H,)}, in the order i, f, g, o, where b_h is the sum of both biases.

    Raises a ValueError where no weights of rnncore's form give the same network for certain: a reset gate before the
    product and units that read units whose reset is another (see `reset_moves`).
    """
    form = _find(convention)
    given = _checked(form, {"W_x": W_x, "W_h": W_h, "b_x": b_x, "b_h": b_h})
    if form.rows:
        given |= {name: given[name].T for name in ("W_x", "W_h")}
    blocks = {name: _split(array, form.blocks) for name, array in given.items()}
    if form.before:
        _refuse_to_move(convention, blocks)
        blocks["b_x"]["n"], blocks["b_h"]["n"] = _sum(blocks, "n"), 0 * blocks["b_h"]["n"]  # outside the reset
    _turn(form, blocks)
    ours = {name: _stack(found, OURS[form.network]) for name, found in blocks.items()}
    if form.network == "GRU":
        return {"W_xh": ours["W_x"], "W_hh": ours["W_h"], "b_xh": ours["b_x"], "b_hh": ours["b_h"]}
    bias = ours["b_x"] + ours["b_h"]
    np.split(bias, 4)[1][:] += form.forget  # a view: of i, f, g, o the second
    return {"W_xh": ours["W_x"], "W_hh": ours["W_h"], "b_h": bias}


def from_rnncore(convention, W_xh, W_hh, b_xh, b_hh=None):
    """Return rnncore's weights as a convention has them: {"W_x", "W_h", "b_x", "b_h"}, what `to_rnncore` takes.

    The arrays are rnncore's; of an LSTM b_xh is its only bias, b_h, and b_hh is None. Where the convention has one
    bias, "b_h" is None; where it has two for an LSTM, the second is zero.

    Raises a ValueError where the convention cannot hold these weights for certain: its reset gate is before the product
    (see `reset_moves`), or it has one bias and the candidate's recurrent one, b_hn, is not zero.
    """
    form = _find(convention)
    k = len(form.blocks)
    if k == 4 and b_hh is not None:
        raise ValueError("b_hh is given; expected None, since rnncore's LSTM has one bias, b_h: give the sum as b_xh")
    ours = CONVENTIONS[f"PyTorch {form.network}"]
    names = {"W_x": "W_xh", "W_h": "W_hh", "b_x": "b_xh", "b_h": "b_hh"}
    given = _checked(ours, {"W_x": W_xh, "W_h": W_hh, "b_x": b_xh, "b_h": b_hh}, names)
    blocks = {name: _split(array, ours.blocks) for name, array in given.items()}
    if k == 3 and (form.before or form.biases == "one"):
        if blocks["b_h"]["n"].any():
            raise ValueError(f"b_hn, the last third of b_hh, is not zero; {convention} has no bias inside its reset")
        if form.before:
            _refuse_to_move(convention, blocks)
    if form.biases != "two":
        for gate in form.blocks.replace("n", ""):  # of these only the sum of both acts
            blocks["b_x"][gate], blocks["b_h"][gate] = _sum(blocks, gate), 0 * blocks["b_h"][gate]
    _turn(form, blocks)
    if form.network == "LSTM":
        blocks["b_x"]["f"] = blocks["b_x"]["f"] - np.asarray(form.forget, blocks["b_x"]["f"].dtype)
    theirs = {name: _stack(found, form.blocks) for name, found in blocks.items()}
    if form.rows:
        theirs |= {name: np.ascontiguousarray(theirs[name].T) for name in ("W_x", "W_h")}
    return theirs | ({"b_h": None} if form.biases == "one" else {})


def reset_moves(W_xr, W_hr, W_hn, b_r):
    """Return whether r ⊙ (W_hn h) and W_hn (r ⊙ h) are the same for every input and state, as (H, H) of booleans.

    Entry [i, j] says so of what unit i reads from unit j. The two differ by W_hn[i, j] (r_i − r_j) h_j: so it is True
    where W_hn[i, j] is zero, and where both units have the same reset, with the same row of W_xr, W_hr and b_r. For a
    diagonal W_hn all are True, and so for H = 1.
    """
    rows = np.hstack([W_xr, W_hr, b_r[:, None]])  # (H, D + H + 1)
    same_reset = (rows[:, None] == rows[None]).all(2)  # (H, H)
    return same_reset | (W_hn == 0)


def _refuse_to_move(convention, blocks):
    """Raise where a reset before the product is not one after it; the blocks are {array: {gate: block}}."""
    moves = reset_moves(blocks["W_x"]["r"], blocks["W_h"]["r"], blocks["W_h"]["n"], _sum(blocks, "r"))
    if not moves.all():
        i, j = np.argwhere(~moves)[0]
        raise ValueError(
            f"{convention} has its reset gate before the recurrent product, rnncore after it; with these weights no "
            f"conversion is known to be exact, since unit {i} reads unit {j}, whose reset gate is another: run the "
            "network in its own form, or train it anew"
        )


def _turn(form, blocks):
    """Turn z the other way round if the convention does: 1 − σ(a) = σ(−a)."""
    if form.takes:
        for found in blocks.values():
            found["z"] = -found["z"]


def _sum(blocks, gate):
    return blocks["b_x"][gate] + blocks["b_h"][gate]


def _split(array, order):
    return dict(zip(order, np.split(array, len(order)), strict=True))


def _stack(blocks, order):
    return np.concatenate([blocks[gate] for gate in order])


def _find(name):
    if name not in CONVENTIONS:
        raise ValueError(f"there is no convention {name!r}; there are {', '.join(map(repr, CONVENTIONS))}")
    return CONVENTIONS[name]


def _checked(form, given, names=None):
    """Return {array's role: array} with zeros for the biases left out; raise on the first that does not fit.

    names are what the caller calls the four, where that is not their role.
    """
    k, called = len(form.blocks), names or {role: role for role in given}
    for role, axes in {"W_h": 2, "W_x": 2, "b_x": 1, "b_h": 1}.items():
        if (array := given[role]) is None and axes == 1:
            continue
        if not (isinstance(array, np.ndarray) and array.dtype in (np.float32, np.float64)):
            came = f"{type(array).__name__} of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"{called[role]} is {came}; expected a NumPy array of float32 or float64")
        if array.ndim != axes:
            raise ValueError(f"{called[role]} has {array.ndim} ax{'i' if array.ndim == 1 else 'e'}s; expected {axes}")
        if array.dtype != given["W_h"].dtype:
            raise TypeError(f"{called[role]} is {array.dtype}; expected {given['W_h'].dtype}, as {called['W_h']}")
    side = 0 if form.rows else 1
    H, D = given["W_h"].shape[side], given["W_x"].shape[side]
    checked = {}
    for role, shape in {"W_h": (k * H, H), "W_x": (k * H, D), "b_x": (k * H,), "b_h": (k * H,)}.items():
        expected = shape[::-1] if form.rows else shape
        checked[role] = np.zeros(expected, given["W_h"].dtype) if given[role] is None else given[role]
        if checked[role].shape != expected:
            came = f"{called[role]} has shape {given[role].shape}; expected {expected}"
            raise ValueError(f"{came}: {k} blocks of H = {H}, the hidden size of {called['W_h']}")
    none = {"one": form.blocks, "b_hn": form.blocks.replace("n", ""), "two": ""}[form.biases]
    for gate, block in _split(checked["b_h"], form.blocks).items():
        if gate in none and block.any():
            raise ValueError(f"b_h has a block for {gate}; expected zeros, since this convention has no such bias")
    return {role: checked[role] for role in given}
