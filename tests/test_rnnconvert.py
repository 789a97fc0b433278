"""Weights of each convention give the same states in rnncore as its source's own equations do."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rnnconvert
import rnncore
from rnnconvert import CONVENTIONS

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import conventions  # noqa: E402
from conventions import weights  # noqa: E402

GRUS = [name for name, form in CONVENTIONS.items() if form.network == "GRU"]
LSTMS = [name for name, form in CONVENTIONS.items() if form.network == "LSTM"]
SIZES = [(3, 5), (5, 3), (2, 1), (1, 4)]  # D, H


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


# Each as its source has it: blocks cut out by hand, no rnncore.


def pytorch(x, h, W_x, W_h, b_x, b_h):
    H = len(h)
    r = sigmoid(W_x[:H] @ x + b_x[:H] + W_h[:H] @ h + b_h[:H])
    z = sigmoid(W_x[H : 2 * H] @ x + b_x[H : 2 * H] + W_h[H : 2 * H] @ h + b_h[H : 2 * H])
    n = np.tanh(W_x[2 * H :] @ x + b_x[2 * H :] + r * (W_h[2 * H :] @ h + b_h[2 * H :]))
    return (1 - z) * n + z * h


def keras(x, h, W_x, W_h, b_x, b_h):
    x_z, x_r, x_h = np.split(x @ W_x + b_x, 3)
    recurrent_z, recurrent_r, recurrent_h = np.split(h @ W_h + b_h, 3)
    z, r = sigmoid(x_z + recurrent_z), sigmoid(x_r + recurrent_r)
    return z * h + (1 - z) * np.tanh(x_h + r * recurrent_h)


def keras_before(x, h, W_x, W_h, b_x, b_h):
    assert b_h is None
    W_hz, W_hr, W_hh = np.split(W_h, 3, axis=1)
    x_z, x_r, x_h = np.split(x @ W_x + b_x, 3)
    z, r = sigmoid(x_z + h @ W_hz), sigmoid(x_r + h @ W_hr)
    return z * h + (1 - z) * np.tanh(x_h + (r * h) @ W_hh)


def flax(x, h, W_x, W_h, b_x, b_h):
    (ir, iz, i_n), (hr, hz, hn) = np.split(x @ W_x + b_x, 3), np.split(h @ W_h, 3)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    return (1 - z) * np.tanh(i_n + r * (hn + b_h[-len(h) :])) + z * h


def onnx(x, h, W_x, W_h, b_x, b_h):
    (Wz, Wr, Wh), (Rz, Rr, Rh) = np.split(W_x, 3), np.split(W_h, 3)
    (Wbz, Wbr, Wbh), (Rbz, Rbr, Rbh) = np.split(b_x, 3), np.split(b_h, 3)
    z, r = sigmoid(x @ Wz.T + h @ Rz.T + Wbz + Rbz), sigmoid(x @ Wr.T + h @ Rr.T + Wbr + Rbr)
    return (1 - z) * np.tanh(x @ Wh.T + r * (h @ Rh.T + Rbh) + Wbh) + z * h


def onnx_before(x, h, W_x, W_h, b_x, b_h):
    (Wz, Wr, Wh), (Rz, Rr, Rh) = np.split(W_x, 3), np.split(W_h, 3)
    (Wbz, Wbr, Wbh), (Rbz, Rbr, Rbh) = np.split(b_x, 3), np.split(b_h, 3)
    z, r = sigmoid(x @ Wz.T + h @ Rz.T + Wbz + Rbz), sigmoid(x @ Wr.T + h @ Rr.T + Wbr + Rbr)
    return (1 - z) * np.tanh(x @ Wh.T + (r * h) @ Rh.T + Rbh + Wbh) + z * h


def cho_1(x, h, W_x, W_h, b_x, b_h):
    (W_r, W_z, W), (U_r, U_z, U), (b_r, b_z, b) = np.split(W_x, 3), np.split(W_h, 3), np.split(b_x, 3)
    r, z = sigmoid(W_r @ x + U_r @ h + b_r), sigmoid(W_z @ x + U_z @ h + b_z)
    return z * h + (1 - z) * np.tanh(W @ x + r * (U @ h) + b)


def cho_3(x, h, W_x, W_h, b_x, b_h):
    (W_r, W_z, W), (U_r, U_z, U), (b_r, b_z, b) = np.split(W_x, 3), np.split(W_h, 3), np.split(b_x, 3)
    r, z = sigmoid(W_r @ x + U_r @ h + b_r), sigmoid(W_z @ x + U_z @ h + b_z)
    return z * h + (1 - z) * np.tanh(W @ x + U @ (r * h) + b)


def chung(x, h, W_x, W_h, b_x, b_h):
    (W_r, W_z, W), (U_r, U_z, U), (b_r, b_z, b) = np.split(W_x, 3), np.split(W_h, 3), np.split(b_x, 3)
    r, z = sigmoid(W_r @ x + U_r @ h + b_r), sigmoid(W_z @ x + U_z @ h + b_z)
    return (1 - z) * h + z * np.tanh(W @ x + U @ (r * h) + b)


def dive(x, h, W_x, W_h, b_x, b_h):
    (W_xr, W_xz, W_xh), (W_hr, W_hz, W_hh) = np.split(W_x, 3, axis=1), np.split(W_h, 3, axis=1)
    b_r, b_z, b_h = np.split(b_x, 3)
    R, Z = sigmoid(x @ W_xr + h @ W_hr + b_r), sigmoid(x @ W_xz + h @ W_hz + b_z)
    return Z * h + (1 - Z) * np.tanh(x @ W_xh + (R * h) @ W_hh + b_h)


def lstm(order, rows=False, forget=0.0):
    def step(x, h, c, W_x, W_h, b_x, b_h):
        sums = (x @ W_x + h @ W_h if rows else W_x @ x + W_h @ h) + b_x + (0 if b_h is None else b_h)
        i, f, g, o = (np.split(sums, 4)[order.index(gate)] for gate in "ifgo")
        c = sigmoid(f + forget) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return step


STEPS = {
    "PyTorch GRU": pytorch,
    "Keras GRU": keras,
    "Keras GRU, reset_after=False": keras_before,
    "Flax GRU": flax,
    "ONNX GRU, linear_before_reset=1": onnx,
    "ONNX GRU": onnx_before,
    "Cho 2014, version 1": cho_1,
    "Cho 2014, version 3": cho_3,
    "Chung 2014": chung,
    "Dive into Deep Learning GRU": dive,
    "PyTorch LSTM": lstm("ifgo"),
    "Keras LSTM": lstm("ifgo", rows=True),
    "Flax LSTM": lstm("ifgo", rows=True),
    "ONNX LSTM": lstm("iofg"),
    "TensorFlow 1 BasicLSTMCell": lstm("igfo", rows=True, forget=1.0),
}


def run(name, x, *given):
    """The states by a convention's own equations, one sequence."""
    H, form = given[1].shape[0 if CONVENTIONS[name].rows else 1], CONVENTIONS[name]
    state, hs = [np.zeros(H)] * (1 if form.network == "GRU" else 2), []
    for x_t in x:
        found = STEPS[name](x_t, *state, *given)
        state = [found] if form.network == "GRU" else list(found)
        hs.append(state[0])
    return np.array(hs)


def ours(name, x, converted):
    if CONVENTIONS[name].network == "GRU":
        return rnncore.gru_forward(x[None], None, *converted.values())[0]
    return rnncore.lstm_forward(x[None], None, None, *converted.values())[0][0]


def test_every_convention_has_equations_here():
    assert list(STEPS) == list(CONVENTIONS)


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize(("D", "H"), SIZES)
def test_converted_weights_give_the_same_states(name, D, H):
    for seed in range(5):
        x = np.random.default_rng(99 + seed).normal(size=(12, D))
        given = weights(name, D, H, seed)
        states = run(name, x, *given)
        found = ours(name, x, rnnconvert.to_rnncore(name, *given))
        assert np.abs(found - states).max() < 1e-13
        assert np.abs(states).max() > 0.01


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize(("D", "H"), SIZES)
def test_rnncores_weights_give_the_same_states_there(name, D, H):
    for seed in range(5):
        x = np.random.default_rng(99 + seed).normal(size=(12, D))
        converted = rnnconvert.to_rnncore(name, *weights(name, D, H, seed))
        back = rnnconvert.from_rnncore(name, *converted.values())
        assert np.abs(run(name, x, *back.values()) - ours(name, x, converted)).max() < 1e-13


@pytest.mark.parametrize("name", CONVENTIONS)
def test_there_and_back_changes_no_weight(name):
    given = weights(name, 3, 5, dtype=np.float32)
    back = rnnconvert.from_rnncore(name, *rnnconvert.to_rnncore(name, *given).values())
    for array, name_of, came in zip(given, back, back.values(), strict=True):
        if array is None:
            assert came is None
        elif "b" not in name_of:  # biases may be shared out otherwise
            assert np.array_equal(array, came)
            assert came.dtype == np.float32


@pytest.mark.parametrize("network", ["GRU", "LSTM"])
def test_pytorchs_own_modules_are_what_their_convention_says(network):
    torch.manual_seed(0)
    module = getattr(torch.nn, network)(3, 5, batch_first=True).double()
    x = torch.randn(1, 20, 3).double()
    given = [p.detach().numpy() for p in module.parameters()]
    name = f"PyTorch {network}"
    expected = module(x)[0][0].detach().numpy()
    assert np.abs(run(name, x[0].numpy(), *given) - expected).max() < 1e-13
    assert np.abs(ours(name, x[0].numpy(), rnnconvert.to_rnncore(name, *given)) - expected).max() < 1e-13


@pytest.mark.parametrize("name", [name for name in GRUS if CONVENTIONS[name].before])
def test_a_reset_before_the_product_is_refused_where_units_read_others_with_another_reset(name):
    form, given = CONVENTIONS[name], weights(name, 3, 4)
    W_h = given[1].T if form.rows else given[1]
    W_h[form.blocks.index("n") * 4 + 2, 0] = 0.5  # unit 2 reads unit 0
    with pytest.raises(ValueError, match="unit 2 reads unit 0, whose reset gate is another"):
        rnnconvert.to_rnncore(name, *given)
    x = np.random.default_rng(1).normal(size=(12, 3))
    W_h[form.blocks.index("n") * 4 + 2, 0] = 0
    allowed = rnnconvert.to_rnncore(name, *given)
    W_h[form.blocks.index("n") * 4 + 2, 0] = 0.5
    allowed["W_hh"][2 * 4 + 2, 0] = 0.5  # as if it could be moved
    assert np.abs(ours(name, x, allowed) - run(name, x, *given)).max() > 1e-3
    with pytest.raises(ValueError, match="unit 2 reads unit 0, whose reset gate is another"):
        rnnconvert.from_rnncore(name, *allowed.values())


def test_where_resets_agree_the_place_makes_no_difference():
    draw = np.random.default_rng(0)
    W_xr, W_hr, W_hn, b_r = (draw.normal(size=size) for size in ((3, 2), (3, 3), (3, 3), 3))
    assert np.array_equal(rnnconvert.reset_moves(W_xr, W_hr, W_hn, b_r), np.eye(3, dtype=bool))
    for array in (W_xr, W_hr, b_r):
        array[2] = array[0]
    moves = rnnconvert.reset_moves(W_xr, W_hr, W_hn, b_r)
    assert np.array_equal(moves, [[1, 0, 1], [0, 1, 0], [1, 0, 1]])
    x, h = draw.normal(size=2), draw.normal(size=3)
    r = sigmoid(W_xr @ x + W_hr @ h + b_r)
    assert np.array_equal(np.isclose(W_hn * r[:, None], W_hn * r), moves)


def test_a_bias_inside_the_reset_has_no_place_in_a_convention_with_one():
    given = rnnconvert.to_rnncore("PyTorch GRU", *weights("PyTorch GRU", 3, 5))
    with pytest.raises(ValueError, match="b_hn, the last third of b_hh, is not zero; Cho 2014, version 1 has no bias"):
        rnnconvert.from_rnncore("Cho 2014, version 1", *given.values())


@pytest.mark.parametrize("name", CONVENTIONS)
def test_nothing_that_came_is_changed_and_nothing_is_shared(name):
    given = {key: a for key, a in zip(("W_x", "W_h", "b_x", "b_h"), weights(name, 3, 5), strict=True) if a is not None}
    copies = {key: array.copy() for key, array in given.items()}
    found = rnnconvert.to_rnncore(name, **given)
    assert not any(np.shares_memory(a, b) for a in found.values() for b in given.values())
    back = rnnconvert.from_rnncore(name, *found.values())
    assert not any(np.shares_memory(a, b) for a in found.values() for b in back.values() if b is not None)
    assert all(np.array_equal(given[key], copies[key]) for key in given)


def test_biases_left_out_are_zeros():
    W_x, W_h, b_x, b_h = weights("Keras GRU", 3, 5)
    zeros = rnnconvert.to_rnncore("Keras GRU", W_x, W_h, 0 * b_x, 0 * b_h)
    for name, array in rnnconvert.to_rnncore("Keras GRU", W_x, W_h).items():
        assert np.array_equal(array, zeros[name])


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"convention": "keras"}, ValueError, "there is no convention 'keras'; there are 'PyTorch GRU', 'Keras GRU'"),
        ({"W_x": np.zeros((15, 3))}, ValueError, r"W_x has shape \(15, 3\); expected \(15, 15\): 3 blocks of H = 5"),
        ({"W_h": np.zeros((15, 5))}, ValueError, r"W_h has shape \(15, 5\); expected \(15, 45\)"),
        ({"W_h": np.zeros(5)}, ValueError, r"W_h has 1 axis; expected 2"),
        ({"b_x": np.zeros((2, 15))}, ValueError, r"b_x has 2 axes; expected 1"),
        ({"b_h": np.zeros(14)}, ValueError, r"b_h has shape \(14,\); expected \(15,\)"),
        ({"W_h": torch.zeros(5, 15)}, TypeError, "W_h is Tensor; expected a NumPy array of float32 or float64"),
        ({"W_x": np.zeros((3, 15), int)}, TypeError, "W_x is ndarray of int64; expected a NumPy array"),
        ({"b_x": np.zeros(15, "float32")}, TypeError, "b_x is float32; expected float64, as W_h"),
        ({"W_x": None}, TypeError, "W_x is NoneType; expected a NumPy array"),
        ({"convention": "Flax GRU", "b_h": np.ones(15)}, ValueError, "b_h has a block for r; expected zeros"),
    ],
)
def test_what_does_not_fit_is_named(change, kind, says):
    W_x, W_h, b_x, b_h = weights("Keras GRU", 3, 5)
    given = {"convention": "Keras GRU", "W_x": W_x, "W_h": W_h, "b_x": b_x, "b_h": b_h} | change
    with pytest.raises(kind, match=says):
        rnnconvert.to_rnncore(**given)


def test_an_lstm_has_one_bias_here():
    given = weights("PyTorch LSTM", 3, 5)
    with pytest.raises(ValueError, match="b_hh is given; expected None, since rnncore's LSTM has one bias"):
        rnnconvert.from_rnncore("Keras LSTM", *given)


def test_the_pages_examples_run_and_load_into_pytorch():
    page = (ROOT / "appendices" / "conventions.md").read_text(encoding="utf-8")
    there = {}
    for example in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(example, there)
    W_x, W_h, bias = there["kernel"], there["recurrent_kernel"], there["bias"]
    x = np.random.default_rng(1).normal(size=(12, 3))
    states = there["gru"](torch.from_numpy(x)[None])[0][0].detach().numpy()
    assert np.abs(run("Keras GRU", x, W_x, W_h, *bias) - states).max() < 1e-13
    W, R, B = there["W"][0], there["R"][0], there["B"][0]
    assert np.abs(run("ONNX GRU, linear_before_reset=1", x, W, R, *np.split(B, 2)) - states).max() < 1e-13


def test_the_pages_table_says_what_the_conventions_are_and_what_was_measured_agrees():
    written = (ROOT / "benchmarks" / "conventions.md").read_text(encoding="utf-8")
    assert "\n".join(conventions.table()) in written
    found = dict(re.findall(r"^\| ([^|]+) \| \w+ [\d.]+ \| (\S+) \|$", written, flags=re.MULTILINE))
    assert set(found) == set(conventions.RUNS)
    for name, difference in found.items():
        assert float(difference) < (1e-6 if name == "Keras GRU, reset_after=False" else 1e-13), name


def test_what_does_not_fit_is_named_as_rnncore_names_it():
    W_xh, W_hh, b_xh, b_hh = rnnconvert.to_rnncore("Keras GRU", *weights("Keras GRU", 3, 5)).values()
    with pytest.raises(ValueError, match=r"W_xh has shape \(3, 15\); expected \(15, 15\): .* the hidden size of W_hh"):
        rnnconvert.from_rnncore("Keras GRU", W_xh.T, W_hh, b_xh, b_hh)
    with pytest.raises(TypeError, match="b_hh is float32; expected float64, as W_hh"):
        rnnconvert.from_rnncore("Keras GRU", W_xh, W_hh, b_xh, b_hh.astype("float32"))
