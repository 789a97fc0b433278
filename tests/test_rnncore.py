"""The reference implementation against independent oracles: torch.nn, autograd, finite differences."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rnncore

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
NONLINEARITIES = ["tanh", "relu"]
NAMES = ("x", "h0", "W_xh", "W_hh", "b_h")


def arguments(seed=0, B=3, T=5, D=2, H=4):
    """Arguments of rnn_forward, float64, with a contractive recurrence (gain about 0.5)."""
    rng = np.random.default_rng(seed)
    shapes = {"x": (B, T, D), "h0": (B, H), "W_xh": (H, D), "W_hh": (H, H), "b_h": (H,)}
    values = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return values | {"W_hh": 0.5 * values["W_hh"] / np.sqrt(H)}


def tensors(arrays, device="cpu", dtype=torch.float64, requires_grad=False):
    return {
        name: torch.tensor(value, dtype=dtype, device=device, requires_grad=requires_grad)
        for name, value in arrays.items()
    }


def torch_rnn(a, nonlinearity="tanh"):
    """torch.nn.RNN with the same weights: the oracle."""
    H, D = a["W_xh"].shape
    layer = torch.nn.RNN(D, H, nonlinearity=nonlinearity, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.as_tensor(a["W_xh"]))
        layer.weight_hh_l0.copy_(torch.as_tensor(a["W_hh"]))
        layer.bias_ih_l0.copy_(torch.as_tensor(a["b_h"]))
        layer.bias_hh_l0.zero_()
    return layer


sizes = st.fixed_dictionaries({letter: st.integers(1, 6) for letter in "BTDH"})


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@settings(max_examples=30, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 1000))
def test_forward_equals_torch_rnn_at_every_size(nonlinearity, sizes, seed):
    a = arguments(seed, **sizes)
    expected, _ = torch_rnn(a, nonlinearity)(torch.tensor(a["x"]), torch.tensor(a["h0"])[None])
    hs = rnncore.rnn_forward(**a, nonlinearity=nonlinearity)
    np.testing.assert_allclose(hs, expected.detach().numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_step_equals_torch_rnn_cell(nonlinearity):
    a = arguments()
    cell = torch.nn.RNNCell(2, 4, nonlinearity=nonlinearity, dtype=torch.float64)
    a["W_xh"], a["W_hh"] = cell.weight_ih.detach().numpy(), cell.weight_hh.detach().numpy()
    a["b_h"] = (cell.bias_ih + cell.bias_hh).detach().numpy()
    x, h = a["x"][:, 0], a["h0"]
    expected = cell(torch.tensor(x), torch.tensor(h)).detach().numpy()
    h_next = rnncore.rnn_step(x, h, a["W_xh"], a["W_hh"], a["b_h"], nonlinearity)
    np.testing.assert_allclose(h_next, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_the_sequence_is_the_step_repeated(nonlinearity):
    a = arguments()
    hs = rnncore.rnn_forward(**a, nonlinearity=nonlinearity)
    h = a["h0"]
    for t in range(a["x"].shape[1]):
        h = rnncore.rnn_step(a["x"][:, t], h, a["W_xh"], a["W_hh"], a["b_h"], nonlinearity)
        np.testing.assert_allclose(hs[:, t], h, rtol=0, atol=1e-14)


def test_no_initial_state_means_zeros():
    a = arguments()
    weights = (a["W_xh"], a["W_hh"], a["b_h"])
    zeros = np.zeros_like(a["h0"])
    np.testing.assert_array_equal(
        rnncore.rnn_forward(a["x"], None, *weights), rnncore.rnn_forward(a["x"], zeros, *weights)
    )
    hs = rnncore.rnn_forward(a["x"], zeros, *weights)
    left_out = rnncore.rnn_backward(hs, a["x"], None, hs, *weights[:2])
    for name, gradient in rnncore.rnn_backward(hs, a["x"], zeros, hs, *weights[:2]).items():
        np.testing.assert_array_equal(left_out[name], gradient, err_msg=name)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@settings(max_examples=30, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 1000))
def test_backward_equals_autograd_through_torch_rnn(nonlinearity, sizes, seed):
    a = arguments(seed, **sizes)
    layer = torch_rnn(a, nonlinearity)
    x = torch.tensor(a["x"], requires_grad=True)
    h0 = torch.tensor(a["h0"], requires_grad=True)
    hs, _ = layer(x, h0[None])
    dhs = np.random.default_rng(seed + 1).normal(size=hs.shape)
    hs.backward(torch.tensor(dhs))
    expected = {
        "x": x.grad,
        "h0": h0.grad,
        "W_xh": layer.weight_ih_l0.grad,
        "W_hh": layer.weight_hh_l0.grad,
        "b_h": layer.bias_ih_l0.grad,
    }
    found = rnncore.rnn_backward(
        dhs, a["x"], a["h0"], hs.detach().numpy(), a["W_xh"], a["W_hh"], nonlinearity=nonlinearity
    )
    assert list(found) == list(expected)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_backward_equals_finite_differences(name):
    a = arguments()
    dhs = np.random.default_rng(1).normal(size=(3, 5, 4))
    hs = rnncore.rnn_forward(**a)
    found = rnncore.rnn_backward(dhs, a["x"], a["h0"], hs, a["W_xh"], a["W_hh"])[name]
    step = 1e-6  # near the cube root of float64's rounding unit, where central differences are most accurate
    for index in np.ndindex(a[name].shape):
        loss = {}
        for sign in (1, -1):
            moved = a[name].copy()
            moved[index] += sign * step
            loss[sign] = np.sum(dhs * rnncore.rnn_forward(**(a | {name: moved})))
        assert found[index] == pytest.approx((loss[1] - loss[-1]) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_step_backward_equals_autograd(nonlinearity):
    a = arguments()
    t = tensors({"x": a["x"][:, 0], "h": a["h0"], **{k: a[k] for k in NAMES[2:]}}, requires_grad=True)
    h_next = rnncore.rnn_step(**t, nonlinearity=nonlinearity)
    dh = torch.tensor(np.random.default_rng(1).normal(size=(3, 4)))
    expected = torch.autograd.grad(h_next, list(t.values()), dh)
    weights = (t["W_xh"], t["W_hh"])
    found = rnncore.rnn_step_backward(dh, t["x"], t["h"], h_next, *weights, nonlinearity=nonlinearity)
    for (name, gradient), wanted in zip(found.items(), expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-12, msg=name)


def test_jacobian_equals_autograd_and_keeps_the_order_of_the_product():
    a = arguments()
    x, h = torch.tensor(a["x"][:, 0]), torch.tensor(a["h0"])
    W_xh, W_hh, b_h = (torch.tensor(a[name]) for name in NAMES[2:])

    def step(h_row, x_row):
        return rnncore.rnn_step(x_row[None], h_row[None], W_xh, W_hh, b_h)[0]

    expected = torch.stack([torch.func.jacrev(step)(h[b], x[b]) for b in range(3)])
    found = rnncore.rnn_jacobian(rnncore.rnn_step(x, h, W_xh, W_hh, b_h), W_hh)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_numpy_and_torch_give_the_same_numbers(device, dtype, tolerance):
    a = arguments()
    t = tensors(a, device, dtype)
    numpy_dtype = str(dtype).removeprefix("torch.")
    hs, hs_t = rnncore.rnn_forward(**a), rnncore.rnn_forward(**t)
    assert hs_t.dtype is dtype
    assert hs_t.device.type == device
    np.testing.assert_allclose(hs, hs_t.cpu().numpy(), rtol=0, atol=tolerance)
    single = {name: value.astype(numpy_dtype) for name, value in a.items()}
    hs_n = rnncore.rnn_forward(**single)
    assert hs_n.dtype == numpy_dtype
    found = rnncore.rnn_backward(hs_n, single["x"], single["h0"], hs_n, single["W_xh"], single["W_hh"])
    found_t = rnncore.rnn_backward(hs_t, t["x"], t["h0"], hs_t, t["W_xh"], t["W_hh"])
    for name, gradient in found.items():
        assert gradient.dtype == numpy_dtype
        np.testing.assert_allclose(gradient, found_t[name].cpu().numpy(), rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_forward_is_differentiable_on_tensors(nonlinearity):
    t = tensors(arguments(), requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *values: rnncore.rnn_forward(*values, nonlinearity=nonlinearity), list(t.values())
    )


def test_arguments_are_left_as_they_were_and_memory_layout_does_not_matter():
    a = arguments()
    kept = {name: value.copy() for name, value in a.items()}
    hs = rnncore.rnn_forward(**a)
    gradients = rnncore.rnn_backward(hs, a["x"], a["h0"], hs, a["W_xh"], a["W_hh"])
    for name in NAMES:
        np.testing.assert_array_equal(a[name], kept[name])
    strided = {name: np.repeat(value, 2, axis=0)[::2] for name, value in a.items()}
    strided["x"] = np.asfortranarray(a["x"])
    assert not strided["x"].flags.c_contiguous
    hs_s = rnncore.rnn_forward(**strided)
    np.testing.assert_allclose(hs_s, hs, rtol=0, atol=1e-15)
    backward = rnncore.rnn_backward(hs_s, strided["x"], strided["h0"], hs_s, strided["W_xh"], strided["W_hh"])
    for name, gradient in gradients.items():
        np.testing.assert_allclose(backward[name], gradient, rtol=1e-12, atol=1e-14)


WRONG = {
    "W_xh transposed": ({"W_xh": np.ones((2, 4))}, ValueError, "W_xh has shape (2, 4); expected (H, D)"),
    "bias too short": ({"b_h": np.ones(1)}, ValueError, "b_h has shape (1,); expected (H,) with H = 4"),
    "one row of state for the batch": ({"h0": np.ones((1, 4))}, ValueError, "h0 has shape (1, 4)"),
    "a time axis missing": ({"x": np.ones((3, 2))}, ValueError, "x has 2 axes, shape (3, 2); expected 3"),
    "a list": ({"b_h": [0.0] * 4}, TypeError, "b_h is a list; expected a NumPy array or a PyTorch tensor"),
    "None for a weight": ({"b_h": None}, TypeError, "b_h is a NoneType"),
    "integers": ({"x": np.ones((3, 5, 2), int)}, TypeError, "x has dtype int64; expected float32 or float64"),
    "mixed precision": ({"W_xh": np.ones((4, 2), np.float32)}, TypeError, "W_xh has dtype float32"),
    "mixed libraries": ({"b_h": torch.ones(4).double()}, TypeError, "b_h has kind PyTorch tensor"),
    "no steps": ({"x": np.ones((3, 0, 2))}, ValueError, "no time step"),
    "unknown nonlinearity": ({"nonlinearity": "sigmoid"}, ValueError, "nonlinearity is 'sigmoid'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_with_what_came_and_what_was_expected(case):
    change, error, message = WRONG[case]
    with pytest.raises(error) as caught:
        rnncore.rnn_forward(**(arguments() | change))
    assert message in str(caught.value)


def test_every_public_function_states_its_shapes_and_its_source_or_equation():
    public = [f for name, f in vars(rnncore).items() if inspect.isfunction(f) and name.startswith("rnn_")]
    assert len(public) == 5
    for function in public:
        text = inspect.getdoc(function)
        assert "(B" in text, function.__name__
        assert "=" in text, function.__name__
