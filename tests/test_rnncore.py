"""The reference implementation against independent oracles: torch.nn, autograd, finite differences."""

import inspect
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from calls import FUNCTIONS, right_arguments, shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

import rnncore
from publish import plain

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@dataclass(frozen=True)
class Network:
    """One of the networks: how many gates it stacks, its functions, its namesake in torch.nn, its biases."""

    name: str
    gates: int
    layer: str
    biases: tuple[str, ...] = ("b_h",)
    options: tuple[tuple[str, str], ...] = ()
    cells: bool = False

    def function(self, what):
        return getattr(rnncore, f"{self.name}_{what}")

    @property
    def states(self):
        return ("h0", "c0") if self.cells else ("h0",)

    @property
    def names(self):
        """The arguments of the forward in order."""
        return ("x", *self.states, "W_xh", "W_hh", *self.biases)

    def arguments(self, seed=0, B=3, T=5, D=2, H=4):
        """Arguments of the forward, float64, with a contractive recurrence."""
        rng, K = np.random.default_rng(seed), self.gates * H
        shapes = {"x": (B, T, D), "h0": (B, H), "c0": (B, H), "W_xh": (K, D), "W_hh": (K, H)}
        shapes |= dict.fromkeys(("b_h", "b_xh", "b_hh"), (K,))
        values = {name: rng.normal(size=shapes[name]) for name in self.names}
        return values | {"W_hh": 0.5 * values["W_hh"] / np.sqrt(H)}

    def forward(self, a):
        return self.function("forward")(**a, **dict(self.options))

    def hs(self, a):
        return self.forward(a)[0] if self.cells else self.forward(a)

    def backward(self, dhs, a, dc_T=None, with_cache=False):
        """The gradients that the hand-written backward gives for arguments a."""
        keep = {"with_cache": True} if with_cache else {}
        kept = self.function("forward")(**a, **dict(self.options), **keep)
        states = dict(zip(("hs", "cs") if self.cells else ("hs",), kept if self.cells else [kept], strict=False))
        if with_cache:
            *values, cache = kept
            states = dict(zip(("hs", "cs"), values, strict=False)) | {"cache": cache}
        if self.name == "rnn":
            a = {name: value for name, value in a.items() if name != "b_h"}
        given_c = {"dc_T": dc_T} if self.cells else {}
        return self.function("backward")(dhs=dhs, **a, **states, **given_c, **dict(self.options))

    def torch_layer(self, a):
        """The namesake in torch.nn with the same weights: the oracle."""
        K, D = a["W_xh"].shape
        layer = getattr(torch.nn, self.layer)(
            D, K // self.gates, batch_first=True, dtype=torch.float64, **dict(self.options)
        )
        with torch.no_grad():
            layer.weight_ih_l0.copy_(torch.tensor(a["W_xh"]))
            layer.weight_hh_l0.copy_(torch.tensor(a["W_hh"]))
            layer.bias_ih_l0.copy_(torch.tensor(a[self.biases[0]]))
            layer.bias_hh_l0.copy_(torch.tensor(a["b_hh"])) if "b_hh" in a else layer.bias_hh_l0.zero_()
        return layer

    def run_torch(self, layer, a):
        """(outputs, last cell or None, leaves): the oracle's run, with the inputs that it differentiates."""
        leaves = {name: torch.tensor(a[name], requires_grad=True) for name in ("x", *self.states)}
        start = tuple(leaves[name][None] for name in self.states)
        outputs, last = layer(leaves["x"], start if self.cells else start[0])
        return outputs, last[1] if self.cells else None, leaves


NETWORKS = [
    Network("rnn", 1, "RNN"),
    Network("rnn", 1, "RNN", options=(("nonlinearity", "relu"),)),
    Network("gru", 3, "GRU", biases=("b_xh", "b_hh")),
    Network("lstm", 4, "LSTM", cells=True),
]
of_each = pytest.mark.parametrize("network", NETWORKS, ids=["tanh", "relu", "gru", "lstm"])
sizes = st.fixed_dictionaries({letter: st.integers(1, 6) for letter in "BTDH"})


@of_each
@settings(max_examples=30, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 1000))
def test_forward_equals_torch_at_every_size(network, sizes, seed):
    a = network.arguments(seed, **sizes)
    expected, last_cell, _ = network.run_torch(network.torch_layer(a), a)
    np.testing.assert_allclose(network.hs(a), expected.detach().numpy(), rtol=0, atol=1e-12)
    if network.cells:
        np.testing.assert_allclose(network.forward(a)[1][:, -1], last_cell[0].detach().numpy(), rtol=0, atol=1e-12)


@of_each
def test_the_sequence_is_the_step_repeated(network):
    a = network.arguments()
    weights = [a[name] for name in network.names[1 + len(network.states) :]]
    states = tuple(a[name] for name in network.states)
    hs = network.hs(a)
    for t in range(a["x"].shape[1]):
        states = network.function("step")(a["x"][:, t], *states, *weights, **dict(network.options))
        states = states if network.cells else (states,)
        np.testing.assert_allclose(hs[:, t], states[0], rtol=0, atol=1e-14)


@of_each
def test_no_initial_state_means_zeros_and_its_gradient_is_returned_all_the_same(network):
    a = network.arguments()
    zeros = a | {name: np.zeros_like(a[name]) for name in network.states}
    left_out = a | dict.fromkeys(network.states)
    np.testing.assert_array_equal(network.hs(left_out), network.hs(zeros))
    dhs = network.hs(zeros)
    expected, found = network.backward(dhs, zeros), network.backward(dhs, left_out)
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)


@of_each
@pytest.mark.parametrize("with_cache", [False, True])
@settings(max_examples=30, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 1000))
def test_backward_equals_autograd_through_torch(network, with_cache, sizes, seed):
    if with_cache and network.name == "rnn":
        return  # its states are all that its backward needs
    a = network.arguments(seed, **sizes)
    layer = network.torch_layer(a)
    outputs, last_cell, leaves = network.run_torch(layer, a)
    rng = np.random.default_rng(seed + 1)
    dhs = rng.normal(size=outputs.shape)
    dc_T = rng.normal(size=a["h0"].shape) if network.cells else None
    ends, from_outside = [outputs], [torch.tensor(dhs)]
    if network.cells:
        ends, from_outside = [outputs, last_cell], [torch.tensor(dhs), torch.tensor(dc_T)[None]]
    torch.autograd.backward(ends, from_outside)
    expected = {name: leaf.grad for name, leaf in leaves.items()}
    expected |= {"W_xh": layer.weight_ih_l0.grad, "W_hh": layer.weight_hh_l0.grad}
    expected |= dict(zip(network.biases, (layer.bias_ih_l0.grad, layer.bias_hh_l0.grad), strict=False))
    found = network.backward(dhs, a, dc_T, with_cache)
    assert list(found) == list(expected)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("network", "name"), [(n, name) for n in NETWORKS for name in n.names], ids=lambda v: getattr(v, "name", v)
)
def test_backward_equals_finite_differences(network, name):
    a = network.arguments()
    dhs = np.random.default_rng(1).normal(size=(3, 5, 4))
    found = network.backward(dhs, a)[name]
    step = 1e-6  # near the cube root of float64's rounding unit, where central differences are most accurate
    for index in np.ndindex(a[name].shape):
        loss = {}
        for sign in (1, -1):
            moved = a[name].copy()
            moved[index] += sign * step
            loss[sign] = np.sum(dhs * network.hs(a | {name: moved}))
        assert found[index] == pytest.approx((loss[1] - loss[-1]) / (2 * step), rel=1e-6, abs=1e-8)


@of_each
def test_step_backward_equals_autograd(network):
    a = network.arguments()
    t = {name: torch.tensor(value, requires_grad=True) for name, value in a.items()}
    states = {name.removesuffix("0"): t[name] for name in network.states}
    given = {"x": t["x"][:, 0].detach().requires_grad_(), **states}
    given |= {name: t[name] for name in ("W_xh", "W_hh", *network.biases)}
    ends = network.function("step")(**given, **dict(network.options))
    ends = ends if network.cells else (ends,)
    from_outside = [torch.tensor(np.random.default_rng(k).normal(size=(3, 4))) for k in range(len(ends))]
    expected = torch.autograd.grad(ends, list(given.values()), from_outside)
    outside = dict(zip(("dh", "dc"), from_outside, strict=False))
    taken = {name: value for name, value in given.items() if not (network.name == "rnn" and name == "b_h")}
    if network.name == "rnn":
        taken |= {"h_next": ends[0]}
    found = network.function("step_backward")(**outside, **taken, **dict(network.options))
    assert list(found) == list(given)
    for (name, gradient), wanted in zip(found.items(), expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-12, msg=name)


def test_the_jacobian_and_the_product_of_jacobians_are_autograds_in_their_order():
    network = NETWORKS[0]
    t = {name: torch.tensor(value) for name, value in network.arguments().items()}
    hs = rnncore.rnn_forward(**t)
    weights = [t[name] for name in ("W_xh", "W_hh", "b_h")]

    def run(h_row, row, start, stop):
        h = h_row[None]
        for step in range(start, stop):
            h = rnncore.rnn_step(t["x"][row : row + 1, step], h, *weights)
        return h[0]

    for start, stop in ((0, 1), (1, 4), (0, 5), (2, 2)):
        before = t["h0"] if start == 0 else hs[:, start - 1]
        expected = torch.stack([torch.func.jacrev(run)(before[b], b, start, stop) for b in range(3)])
        found = rnncore.jacobian_product(hs, t["W_hh"], start, stop)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(rnncore.rnn_jacobian(hs[:, 0], t["W_hh"]), rnncore.jacobian_product(hs, t["W_hh"], 0, 1))


@of_each
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_numpy_and_torch_give_the_same_numbers(network, device, dtype, tolerance):
    kind = str(dtype).removeprefix("torch.")
    a = {name: value.astype(kind) for name, value in network.arguments().items()}
    t = {name: torch.tensor(value, device=device) for name, value in a.items()}
    hs, hs_t = network.hs(a), network.hs(t)
    assert hs.dtype == kind
    assert hs_t.dtype is dtype
    assert hs_t.device.type == device
    np.testing.assert_allclose(hs, hs_t.cpu().numpy(), rtol=0, atol=tolerance)
    found_t = network.backward(hs_t, t)
    for name, gradient in network.backward(hs, a).items():
        assert gradient.dtype == kind
        assert found_t[name].device.type == device
        np.testing.assert_allclose(gradient, found_t[name].cpu().numpy(), rtol=20 * tolerance, atol=20 * tolerance)


@of_each
def test_forward_is_differentiable_on_tensors_twice(network):
    values = [torch.tensor(v, requires_grad=True) for v in network.arguments(B=2, T=3, D=2, H=2).values()]
    run = network.function("forward")
    assert torch.autograd.gradcheck(lambda *v: run(*v, **dict(network.options)), values)
    assert torch.autograd.gradgradcheck(lambda *v: run(*v, **dict(network.options)), values)


@of_each
def test_arguments_are_left_as_they_were_and_memory_layout_does_not_matter(network):
    a = network.arguments()
    kept = {name: value.copy() for name, value in a.items()}
    hs = network.hs(a)
    gradients = network.backward(hs, a)
    for name in network.names:
        np.testing.assert_array_equal(a[name], kept[name])
    strided = {name: np.repeat(value, 2, axis=0)[::2] for name, value in a.items()}
    strided["x"], strided["W_hh"] = np.asfortranarray(a["x"]), np.asfortranarray(a["W_hh"])
    assert not strided["x"].flags.c_contiguous
    np.testing.assert_allclose(network.hs(strided), hs, rtol=0, atol=1e-15)
    for name, gradient in network.backward(np.asfortranarray(hs), strided).items():
        np.testing.assert_allclose(gradient, gradients[name], rtol=1e-12, atol=1e-14)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), max_norm=st.floats(0, 20), count=st.integers(1, 4))
def test_clipping_equals_torchs_but_for_its_guard_and_gives_the_norm_before(seed, max_norm, count):
    rng = np.random.default_rng(seed)
    grads = [rng.normal(size=rng.integers(1, 5, size=rng.integers(0, 4))) for _ in range(count)]
    parameters = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for parameter, gradient in zip(parameters, grads, strict=True):
        parameter.grad = torch.tensor(gradient)
    expected = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    clipped, norm = rnncore.clip_by_global_norm(grads, max_norm)
    assert float(norm) == pytest.approx(float(expected), rel=1e-12)
    for found, parameter in zip(clipped, parameters, strict=True):  # torch divides by norm + 1e-6
        np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=1e-4, atol=1e-9)
    if norm <= max_norm:
        for found, gradient in zip(clipped, grads, strict=True):
            np.testing.assert_array_equal(found, gradient)


@pytest.mark.parametrize("max_norm", [0.1, np.float64(0.1), float("inf")])
def test_small_gradients_are_clipped_in_their_own_dtype_and_an_endless_norm_clips_nothing(max_norm):
    gradient = np.array([0.3, -0.4], np.float32)  # of norm 0.5
    (clipped,), norm = rnncore.clip_by_global_norm([gradient], max_norm)
    assert clipped.dtype == norm.dtype == np.float32
    np.testing.assert_allclose(clipped, gradient * min(1, max_norm / 0.5), rtol=1e-6)


def test_zero_gradients_stay_zero_when_clipped():
    clipped, norm = rnncore.clip_by_global_norm([np.zeros(3)], 0.0)
    assert norm == 0
    np.testing.assert_array_equal(clipped[0], np.zeros(3))


WRONG = {
    "W_xh transposed": (
        {"W_xh": np.ones((2, 4))},
        ValueError,
        "W_xh has shape (2, 4); expected (H, D) with D = 2 from x, H = 4 from W_hh",
    ),
    "bias too short": ({"b_h": np.ones(1)}, ValueError, "b_h has shape (1,); expected (H,) with H = 4"),
    "one row of state for the batch": ({"h0": np.ones((1, 4))}, ValueError, "h0 has shape (1, 4)"),
    "a time axis missing": ({"x": np.ones((3, 2))}, ValueError, "x has 2 axes, shape (3, 2); expected 3"),
    "a list": ({"b_h": [0.0] * 4}, TypeError, "b_h is a list; expected a NumPy array (H,)"),
    "None for a weight": ({"b_h": None}, TypeError, "b_h is a NoneType"),
    "integers": ({"x": np.ones((3, 5, 2), int)}, TypeError, "x has dtype int64; expected float32 or float64"),
    "half precision": ({"x": np.ones((3, 5, 2), "f2")}, TypeError, "x has dtype float16; expected float32"),
    "mixed precision": ({"W_xh": np.ones((4, 2), np.float32)}, TypeError, "W_xh has dtype float32; expected float64"),
    "mixed libraries": ({"b_h": torch.ones(4).double()}, TypeError, "b_h is a PyTorch tensor; expected a NumPy array"),
    "no steps": ({"x": np.ones((3, 0, 2))}, ValueError, "x has no time step, T = 0"),
    "unknown nonlinearity": ({"nonlinearity": "sigmoid"}, ValueError, "nonlinearity is 'sigmoid'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_with_what_came_and_what_was_expected(case):
    change, error, message = WRONG[case]
    with pytest.raises(error) as caught:
        rnncore.rnn_forward(**(NETWORKS[0].arguments() | change))
    assert message in str(caught.value)


TENSOR = torch.ones(3, 5, 2)


@pytest.mark.parametrize(
    ("x", "W_hh", "message"),
    [
        (TENSOR[0], torch.ones(4, 4), "x has 2 axes, shape (5, 2); expected 3, (B, T, D)"),
        (TENSOR, np.ones((4, 4)), "W_hh is a NumPy array; expected a PyTorch tensor, like x"),
        (TENSOR, torch.ones(4, 4, device="meta"), "W_hh is on device meta; expected cpu, that of x"),
        (TENSOR, torch.ones(4, 4).double(), "W_hh has dtype torch.float64; expected torch.float32, that of x"),
        (TENSOR, torch.ones(4, 5), "W_hh has shape (4, 5); expected (H, H) with H = 4 from W_hh"),
    ],
)
def test_what_contradicts_a_tensor_is_named_to_the_letter(x, W_hh, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        rnncore.rnn_forward(x, None, torch.ones(4, 2), W_hh, torch.ones(4))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["rnn_step", "rnn_step_backward", "rnn_forward", "rnn_backward"])
@pytest.mark.parametrize(
    ("nonlinearity", "shown"),
    [("sigmoid", "'sigmoid'"), (None, "None"), (np.array(["tanh", "relu"]), r"array\(.*\)")],
    ids=["sigmoid", "None", "an array"],
)
def test_every_function_of_the_plain_network_refuses_an_unknown_nonlinearity(name, nonlinearity, shown):
    function = getattr(rnncore, name)
    with pytest.raises(ValueError, match=f"nonlinearity is {shown}; expected 'tanh' or 'relu'"):
        function(**right_arguments(function), nonlinearity=nonlinearity)


def test_gates_that_are_not_stacked_as_they_should_be_are_named():
    gru, lstm = NETWORKS[2].arguments(), NETWORKS[3].arguments()
    with pytest.raises(ValueError, match=r"W_hh has shape \(16, 4\); expected \(3H, H\)"):
        rnncore.gru_forward(**(gru | {"W_hh": lstm["W_hh"]}))
    with pytest.raises(ValueError, match=r"W_xh has shape \(12, 2\); expected \(4H, D\) with .*H = 4 from W_hh"):
        rnncore.lstm_forward(**(lstm | {"W_xh": gru["W_xh"]}))


@pytest.mark.parametrize(
    ("start", "stop", "error"), [(-1, 2, ValueError), (3, 2, ValueError), (0, 6, ValueError), (0.5, 2, TypeError)]
)
def test_a_range_of_steps_outside_the_sequence_is_refused(start, stop, error):
    a = NETWORKS[0].arguments()
    with pytest.raises(error, match="start") as caught:
        rnncore.jacobian_product(rnncore.rnn_forward(**a), a["W_hh"], start, stop)
    if stop == 6:
        assert str(caught.value) == "start = 0, stop = 6; expected 0 <= start <= stop <= T = 5"


@pytest.mark.parametrize(
    ("grads", "max_norm", "message"),
    [([], 1.0, "grads is []"), (np.ones(3), 1.0, "expected a list"), ([np.ones(2), [1.0]], 1.0, "grads[1] is a list"),
     ("a" * 58, 1.0, f"grads is '{'a' * 58}'; expected"), ("a" * 59, 1.0, f"grads is '{'a' * 59} …; expected"),
     ([np.ones(2)], -1, "max_norm is -1"), ([np.ones(2)], float("nan"), "max_norm is nan"),
     ([np.ones(2)], -(10**99), f"max_norm is -1{'0' * 58} …; expected"),
     ([np.ones(2)], np.array([1.0, 2.0]), "max_norm is array([1., 2.]); expected a finite number of at least 0"),
     ([np.ones(2)], torch.ones(2), "max_norm is tensor([1., 1.]); expected a finite number of at least 0")],
)  # fmt: skip
def test_what_cannot_be_clipped_is_named(grads, max_norm, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        rnncore.clip_by_global_norm(grads, max_norm)
    assert message in str(caught.value)


def test_every_equation_states_its_shapes_and_its_source():
    public = [
        f for name, f in vars(rnncore).items() if inspect.isfunction(f) and name.split("_")[0] in ("rnn", "gru", "lstm")
    ]
    assert len(public) == 13
    for function in public:
        assert "(B" in inspect.getdoc(function), function.__name__
        assert sources(inspect.getdoc(function)), function.__name__


def test_every_source_is_in_the_bibliography(root):
    entries = plain.bibliography(root).values()
    known = {(e.persons["author"][0].last_names[0], e.fields["year"]) for e in entries if "author" in e.persons}
    cited = sources(inspect.getsource(rnncore))
    assert len(cited) > 10
    assert cited <= known


def sources(text):
    """Return (first author, year) of each citation, such as Cho et al. 2014 or Saxe, McClelland and Ganguli 2014."""
    text = re.sub(r"[#\s]+", " ", text)
    name = r"[A-Z]\w+"
    return set(re.findall(rf"(?<!and )\b({name})(?: et al\.|(?:, {name})* and {name})? ((?:19|20)\d\d)", text))


def wrong_shapes(function, name):
    """Shapes that do not fit: an axis more, one less, and a size that another argument contradicts."""
    shape, letters = shape_of(function.takes[name]), function.takes[name].removesuffix(" or None").split()
    yield (*shape, 1)
    yield (1, *shape)
    yield shape[1:]
    for k, letter in enumerate(letters):
        others = [axes.removesuffix(" or None").split() for other, axes in function.takes.items() if other != name]
        own = sum(axis[-1] == letter[-1] for axis in letters)
        if own > 1 or any(axis[-1] == letter[-1] for axes in others for axis in axes):
            for size in (0, 1, shape[k] - 1, shape[k] + 1):  # 1 would broadcast
                yield (*shape[:k], size, *shape[k + 1 :])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_no_wrong_input_is_answered_and_every_refusal_names_the_argument_or_its_contradiction(function):
    right = right_arguments(function)
    function(**right)
    for name in function.takes:
        array = right[name]
        wrong = [None, "text", 1.0, array.tolist(), np.ones((4, 4)).view(np.matrix), np.ma.array(array)]
        wrong += [array.astype(kind) for kind in ("i8", "f2", "f4", "c16", "?", "O")]
        wrong += [torch.tensor(array), torch.tensor(array).to("meta")]
        wrong += [np.ones(shape) for shape in wrong_shapes(function, name)]
        for value in wrong:
            if value is None and function.takes[name].endswith("or None"):
                continue
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**right | {name: value})
            assert any(str(caught.value).startswith(f"{other} ") for other in function.takes), str(caught.value)
            assert "expected" in str(caught.value)


def test_a_product_over_no_step_is_the_identity_from_the_first_state_to_the_last():
    hs, W = np.zeros((2, 3, 4)), np.ones((4, 4))
    for step in range(4):
        assert np.array_equal(rnncore.jacobian_product(hs, W, step, step), np.stack([np.eye(4)] * 2))
