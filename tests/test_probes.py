"""The kinds of exercise beyond functions of arrays: modules, samplers, training steps, several results."""

import copy

import numpy as np
import pytest
import torch

from autograde import exercises, probes
from autograde.checking import verdict
from autograde.exercise import Case, Exercise, Misconception


class Cell(torch.nn.Module):
    """A right answer to an invented exercise: h' = tanh(W_xh x + W_hh h + b_h)."""

    def __init__(self, D, H):
        super().__init__()
        self.W_xh = torch.nn.Parameter(torch.zeros(H, D))
        self.W_hh = torch.nn.Parameter(torch.zeros(H, H))
        self.b_h = torch.nn.Parameter(torch.zeros((H,)))

    def forward(self, x, h):
        return torch.tanh(x @ self.W_xh.T + h @ self.W_hh.T + self.b_h)


class Detached(Cell):
    def forward(self, x, h):
        return super().forward(x, h).detach()


class WithoutBias(Cell):
    def forward(self, x, h):
        return torch.tanh(x @ self.W_xh.T + h @ self.W_hh.T)


class StateDetached(Cell):
    def forward(self, x, h):
        return torch.tanh(x @ self.W_xh.T + (h @ self.W_hh.T).detach() + self.b_h)


class Renamed(Cell):
    def __init__(self, D, H):
        super().__init__(D, H)
        self.bias = self.b_h
        del self.b_h


class WithoutParameter(Cell):
    def __init__(self, D, H):
        super().__init__(D, H)
        del self.W_hh
        self.W_hh = torch.zeros(H, H)


class InAList(torch.nn.Module):
    def __init__(self, D, H):
        super().__init__()
        self.W_xh = [torch.nn.Parameter(torch.zeros(H, D))]


class Twice(Cell):
    def __init__(self, D, H):
        super().__init__(D, H)
        if D == H:
            self.W_xh = self.W_hh


class OneTooMany(Cell):
    def __init__(self, D, H):
        super().__init__(D, H)
        self.b_y = torch.nn.Parameter(torch.zeros(1))


class Misshaped(Cell):
    def __init__(self, D, H):
        super().__init__(D, H)
        self.W_xh = torch.nn.Parameter(torch.zeros(D, H + 1))


class NotSetUp(Cell):
    def __init__(self, D, H):
        self.W_xh = torch.nn.Parameter(torch.zeros(H, D))


class NotSetUpAndWithTensors(Cell):
    def __init__(self, D, H):
        self.W_xh = torch.zeros(H, D)


class OfItsOwnKind(Cell):
    def forward(self, x, h):
        return super().forward(x, h) + torch.zeros(1, 1) @ torch.zeros(1, 1, dtype=x.dtype)


class ThroughNumPy(Cell):
    def forward(self, x, h):
        return torch.tanh(torch.from_numpy(x.numpy()) @ self.W_xh.T)


class InPlace(Cell):
    def forward(self, x, h):
        return h.copy_(super().forward(x, h))


class Pair(Cell):
    def forward(self, x, h):
        return super().forward(x, h), h


class OfAnotherShape(Cell):
    def forward(self, x, h):
        return super().forward(x, h)[None]


def module_cases(rng):
    for B, D, H in [(1, 1, 1), (3, 2, 4)]:
        shapes = {"W_xh": (H, D), "W_hh": (H, H), "b_h": (H,), "x": (B, D), "h": (B, H), "dh": (B, H)}
        drawn = {name: torch.tensor(rng.normal(size=shape)) for name, shape in shapes.items()}
        given = {"sizes": {"D": D, "H": H}, "weights": {name: drawn[name] for name in ("W_xh", "W_hh", "b_h")}}
        given |= {"inputs": {name: drawn[name] for name in ("x", "h")}, "outputs": ["h"], "upstream": [drawn["dh"]]}
        yield Case(f"B = {B}, D = {D}, H = {H}", given)


MODULE = Exercise(
    "a-cell",
    2,
    Cell,
    module_cases,
    probes.module,
    axes={"output h": "B H"},
    misconceptions={"the bias is not used": Misconception(WithoutBias, "Count the terms.")},
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Detached, "The gradient of W_xh is missing: what PyTorch recorded does not lead back to it; expected"),
        (StateDetached, "The gradient of W_hh is missing"),
        (WithoutBias, "The output h[0, 0] is"),
        (WithoutBias, "your result is what one gets when the bias is not used"),
        (Renamed, "The module has no parameter b_h; its parameters are bias, W_xh, W_hh."),
        (WithoutParameter, "`self.W_hh` is a tensor and no parameter: no optimiser would find it."),
        (InAList, "The module has no parameter W_xh; its parameters are none."),
        (Twice, "W_xh and W_hh are one and the same parameter; expected one for each."),
        (OneTooMany, "The module has the parameter b_y, too; expected W_xh, W_hh, b_h and no other."),
        (Misshaped, "The parameter W_xh has shape (1, 2); expected (1, 1), since D = 1, H = 1."),
        (NotSetUp, "`super().__init__()` must come first."),
        (NotSetUpAndWithTensors, "`super().__init__()` must come first."),
        (OfItsOwnKind, "Your code raises RuntimeError: expected m1 and m2 to have the same dtype"),
        (ThroughNumPy, "Your code raises RuntimeError: Can't call numpy() on Tensor that requires grad"),
        (InPlace, "PyTorch cannot compute it, since a tensor that it needs was changed in place; expected"),
        (InPlace, "Besides: your code changes h in place"),
        (Pair, "of shape (1, 1), float64 and a PyTorch tensor of shape (1, 1), float64; expected a tensor, h."),
        (OfAnotherShape, "The output h has shape (1, 1, 1); expected (B, H) = (1, 1)."),
        (Cell(1, 1), "This is a module that is built already; expected the class itself"),
        (lambda D, H: None, "expected a class, derived from torch.nn.Module"),
        (torch.nn.LSTM, "The module has no parameter W_xh; its parameters are weight_ih_l0"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(answer, message):
    found = verdict(MODULE, answer)
    assert found.score < 2.0
    assert message in str(found)


def run(from_x, h, W_hh, b_h):
    return torch.stack([h := torch.tanh(a + h @ W_hh.T + b_h) for a in from_x.unbind(1)], 1)


def on_reshaped_inputs(x, h0, W, U, b):
    return run(torch.addmm(b, x.reshape(-1, x.shape[2]), W.T).view(*x.shape[:2], -1), h0, U, 0 * b)


def after_a_look_at_the_weights(x, h0, W, U, b):
    assert torch.isfinite(W).all()
    return run(x @ W.to(x).T, h0, U, b)


def with_the_bias_as_a_column(x, h0, W, U, b):
    joined = torch.cat([W, b[:, None]], 1)
    return run(torch.cat([x, torch.ones_like(x[..., :1])], 2) @ joined.T, h0, U, 0 * b)


def linear(W, b):
    made = torch.nn.Linear(W.shape[1], W.shape[0], dtype=W.dtype)
    made.load_state_dict({"weight": W, "bias": b})
    return made


HOISTED = [
    lambda x, h0, W, U, b: run(torch.einsum("btd,hd->bth", x, W), h0, U, b),
    lambda x, h0, W, U, b: run((W @ x.mT).mT, h0, U, b),
    lambda x, h0, W, U, b: run(torch.bmm(x, W.T.repeat(len(x), 1, 1)), h0, U, b),
    lambda x, h0, W, U, b: run((x[:, :, None] * W).sum(-1), h0, U, b),
    lambda x, h0, W, U, b: run(torch.matmul(x, W.T, out=x.new_empty(*x.shape[:2], len(W))), h0, U, b),
    lambda x, h0, W, U, b: run(torch.vmap(lambda row: row @ W.T)(x), h0, U, b),
    lambda x, h0, W, U, b: run(linear(W, b)(x), h0, U, 0 * b).detach(),
    on_reshaped_inputs,
    after_a_look_at_the_weights,
    with_the_bias_as_a_column,
]


def joined_to_the_other_matrix(x, h, W, U, b):
    joined = torch.cat([W, U], 1)
    return torch.stack([h := torch.tanh(torch.cat([x_t, h], 1) @ joined.T + b) for x_t in x.unbind(1)], 1)


def written_into_a_larger_matrix(x, h, W, U, b):
    joined = x.new_empty(len(W), W.shape[1] + len(W))
    joined[:, : W.shape[1]], joined[:, W.shape[1] :] = W, U
    return torch.stack([h := torch.tanh(torch.cat([x_t, h], 1) @ joined.T + b) for x_t in x.unbind(1)], 1)


def by_a_layer_at_every_step(x, h0, W, U, b):
    layer = linear(W, b)
    return run(torch.stack([layer(x_t) for x_t in x.unbind(1)], 1), h0, U, 0 * b).detach()


STEPWISE = [
    lambda x, h0, W, U, b: run(torch.stack([x_t @ W.data.clone().T for x_t in x.unbind(1)], 1), h0, U, b),
    lambda x, h0, W, U, b: run(torch.stack([(x @ W.T)[:, t] for t in range(x.shape[1])], 1), h0, U, b),
    lambda x, h0, W, U, b: run(torch.stack([torch.vmap(lambda r: W @ r)(x_t) for x_t in x.unbind(1)], 1), h0, U, b),
    joined_to_the_other_matrix,
    written_into_a_larger_matrix,
    by_a_layer_at_every_step,
]


@pytest.mark.parametrize("answer", HOISTED)
def test_one_product_for_all_inputs_passes_however_it_is_written(answer):
    assert verdict(exercises.find("hoisted-layer"), answer).score == 3.0


@pytest.mark.parametrize("answer", STEPWISE)
def test_a_product_at_every_step_is_found_whatever_the_matrix_is_joined_to(answer):
    found = verdict(exercises.find("hoisted-layer"), answer)
    assert found.named == ("W_xh is used anew for every step",)


def test_of_many_parameters_only_those_are_listed_that_say_most():
    class Misnamed(exercises.find("stacked-rnn").reference):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.out, self.readout = self.readout, None

    text = str(verdict(exercises.find("stacked-rnn"), Misnamed))
    assert "has no parameter readout.weight; its parameters are out.weight, out.bias, layers.0.weight_ih_l0" in text
    assert "and 6 more." in text


def test_a_right_module_passes_gradients_and_all():
    assert verdict(MODULE, Cell).score == 2.0


def sampler_cases(rng):
    for temperature in (1.0, 0.5):
        logits = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
        yield Case(f"temperature {temperature}", {"logits": logits, "temperature": temperature, "seed": 3})


def drawn(logits, temperature, generator):
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)[:, 0]


def gumbel(logits, temperature, generator):
    noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator, dtype=logits.dtype)))
    return (logits / temperature + noise).argmax(-1)


SAMPLER = Exercise("a-sampler", 2, drawn, sampler_cases, probes.draws, measure=probes.frequencies, tolerance=0.05)


@pytest.mark.parametrize(
    ("answer", "score", "message"),
    [
        (drawn, 2.0, "right"),
        (gumbel, 2.0, "right"),
        (lambda y, t, g: drawn(y, 1 / t, g), 1.0, "entry 'frequencies'"),
        (lambda y, t, g: drawn(y, 1.0, g), 1.0, "entry 'frequencies'"),
        (lambda y, t, g: y.argmax(-1), 0.0, "entry 'frequencies'"),
        (
            lambda y, t, g: drawn(y, t, None),
            0.0,
            "The second draw from the same seed is 'another'; expected 'the same'",
        ),
        (
            lambda y, t, g: drawn(y, t, torch.Generator().manual_seed(g.initial_seed())),
            0.0,
            "The next draw from one generator is 'the same'; expected 'another'",
        ),
        (
            lambda y, t, g: torch.multinomial(torch.softmax(y / t, -1), 1, generator=g).squeeze(),
            0.0,
            "Of scores of shape (1, 3) the function returns a PyTorch tensor of shape (), int64",
        ),
        (lambda y, t, g: drawn(y, t, g)[:, None], 0.0, "expected indices, an int64 tensor of shape (B,)"),
        (lambda y, t, g: drawn(y, t, g) + 1, 0.0, "not between 0 and V - 1 = 2"),
    ],
)
def test_a_sampler_is_judged_by_its_frequencies_and_by_its_generator(answer, score, message):
    found = verdict(SAMPLER, answer)
    assert found.score == score
    assert message.lower() in str(found).lower()


def trained(model, optimiser, x, y):
    optimiser.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimiser.step()
    return loss.item()


def training_cases(rng):
    for N in (1, 5):
        given = {"weight": rng.normal(size=(2, 3)), "bias": rng.normal(size=2), "learning rate": 0.1}
        yield Case(f"{N} examples", given | {"x": rng.normal(size=(N, 3)), "y": rng.normal(size=(N, 2))})


TRAINING = Exercise("a-training-step", 2, trained, training_cases, probes.training_step)


def without_clearing(model, optimiser, x, y):
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimiser.step()
    return loss.item()


def keeping_the_graph(model, optimiser, x, y):
    optimiser.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimiser.step()
    return loss


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (without_clearing, "entry 'weight'"),
        (keeping_the_graph, "still holds the whole graph; return a number, with .item()"),
        (lambda model, optimiser, x, y: 0.0, "entry 'losses'"),
        (lambda model, optimiser, x, y: "low", "expected the loss as a number"),
    ],
)
def test_what_is_wrong_with_a_training_step_is_said(answer, message):
    found = verdict(TRAINING, answer)
    assert found.score == 0.0
    assert message.lower() in str(found).lower()


def test_a_right_training_step_passes():
    assert verdict(TRAINING, trained).score == 2.0


def test_several_results_are_compared_one_by_one():
    cases = lambda rng: [Case("drawn", {"x": rng.normal(size=3)})]  # noqa: E731
    exercise = Exercise("two", 1, lambda x: (x, 2 * x), cases, probes.pair, axes="H")
    assert verdict(exercise, lambda x: [x, x + x]).score == 1.0
    assert "Item 1[0] is" in str(verdict(exercise, lambda x: (x, x)))
    assert "expected a tuple of 2" in str(verdict(exercise, lambda x: x))


def test_tensors_are_asked_for_where_the_reference_gives_them():
    cases = lambda rng: [Case("drawn", {"x": torch.tensor(rng.normal(size=3))})]  # noqa: E731
    exercise = Exercise("tensor", 1, lambda x: 2 * x, cases, probes.call, axes="H")
    assert verdict(exercise, lambda x: x + x).score == 1.0
    assert verdict(exercise, lambda x: (x + x).requires_grad_()).score == 1.0
    assert "expected a PyTorch tensor of shape (H,) = (3,)" in str(verdict(exercise, lambda x: 2 * x.numpy()))
    assert "has dtype float32; expected float64" in str(verdict(exercise, lambda x: 2 * x.float()))

    def in_place(x):
        return x.mul_(2)

    assert "changes x in place" in str(verdict(exercise, in_place))


def small_rnn(layers=1, **options):
    return torch.nn.RNN(2, 3, layers, **({"batch_first": True, "dtype": torch.float64} | options))


def weights_of(made):
    return {"weights": {name: parameter.detach() for name, parameter in made.named_parameters()}}


def test_a_layer_and_a_cell_are_made_of_the_given_weights():
    x = torch.ones(4, 5, 2, dtype=torch.float64)
    made, cell = small_rnn(2), torch.nn.GRUCell(2, 3, dtype=torch.float64)
    given = {"x": x} | weights_of(made)
    assert torch.equal(probes.with_rnn(lambda rnn, x: rnn(x)[0], given), made(x)[0])
    assert torch.equal(probes.with_gru_cell(lambda cell, x: cell(x), {"x": x[0]} | weights_of(cell)), cell(x[0]))

    def loaded(x, weights):
        other = small_rnn(2)
        other.load_state_dict(weights)
        return other(x)[0]

    assert torch.equal(probes.call(loaded, given), made(x)[0])


def test_what_an_answer_does_to_weights_is_seen_and_what_it_never_got_is_not_listed():
    layers, weights = exercises.find("bug-state"), exercises.find("bug-batch-first")

    def drawn_anew(rnn, batches):
        rnn.reset_parameters()
        return layers.reference(rnn, batches)

    def taken_out(x, weights_):
        return weights.reference(x, {name: weights_.pop(name) for name in list(weights_)})

    names = "weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0"
    for exercise, answer in ((layers, drawn_anew), (weights, taken_out)):
        assert f"your code changes {names} in place" in str(verdict(exercise, answer))
    raised = str(verdict(layers, lambda rnn, batches: rnn(batches.float())))
    assert "batches: a PyTorch tensor" in raised
    assert "NumPy" not in raised and "weight_ih_l0" not in raised


NETWORK = Exercise(
    "a-network",
    1,
    lambda W: small_rnn(2),
    lambda rng: [Case("drawn", {"W": np.ones(1), "x": rng.normal(size=(4, 5, 2)), "h0": rng.normal(size=(2, 4, 3))})],
    probes.rnn_of_two_layers,
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda W: None, "The function returns None; expected a torch.nn.RNN"),
        (lambda W: torch.nn.Sequential(small_rnn()), "returns a torch.nn.modules.container.Sequential; expected"),
        (lambda W: small_rnn(1), "The network's num_layers is 1; expected 2."),
        (lambda W: small_rnn(2, bidirectional=True), "The network's bidirectional is True; expected False."),
        (lambda W: torch.nn.RNN(3, 2, 2), "The network's input_size is 3; expected 2."),
        (lambda W: small_rnn(2, dtype=torch.float32), "weight_ih_l0 is a PyTorch tensor of shape (3, 2), float32"),
        (lambda W: small_rnn(2, dropout=0.5), "The network's dropout is 0.5; expected 0."),
        (lambda W: small_rnn(2).load_state_dict({}, strict=False), "returns what load_state_dict returns; expected"),
        (lambda W: small_rnn(2, batch_first=False), "The network cannot read x of shape (4, 5, 2), (B, T, D)"),
    ],
)
def test_what_is_wrong_with_a_network_is_said(answer, message):
    assert verdict(NETWORK, lambda W: small_rnn(2)).score == 1.0, "what is left as drawn is the same each time"
    assert message in str(verdict(NETWORK, answer))


def test_output_and_h_n_are_named():
    exercise = Exercise(
        "two", 1, lambda x: (x, 2 * x), lambda rng: [Case("1", {"x": np.ones(1)})], probes.output_and_h_n
    )
    assert "entry 'h_n'" in str(verdict(exercise, lambda x: [x, x])).lower()
    assert "returns a NumPy array of shape (1,), float64; expected two tensors" in str(verdict(exercise, lambda x: x))


def test_state_and_cell_are_named_and_what_is_no_pair_is_said():
    exercise = Exercise(
        "two", 1, lambda x: (x, 2 * x), lambda rng: [Case("1", {"x": np.ones(1)})], probes.state_and_cell
    )
    assert "entry 'cell'" in str(verdict(exercise, lambda x: [x, x])).lower()
    for answer, came in ((lambda x: x, "a NumPy array of shape (1,), float64"), (lambda x: (), "nothing")):
        assert f"returns {came}; expected two arrays: of the state, then of" in str(verdict(exercise, answer))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda lstm, value: None, "returns None; expected the module that it got"),
        (
            lambda lstm, value: copy.deepcopy(lstm),
            "returns another module; expected the module that it got",
        ),
        (lambda lstm, value: lstm.float(), "The parameter weight_ih_l0 is float32 of shape"),
    ],
)
def test_what_is_wrong_with_an_lstm_that_comes_back_is_said(answer, message):
    assert message in str(verdict(exercises.find("forget-bias"), answer))


def test_biases_that_are_shared_out_otherwise_are_the_same():
    exercise = exercises.find("forget-bias")
    for case in exercise.draw(1):
        given = {name: tensor.numpy() for name, tensor in case.arguments["weights"].items()}
        moved = {n: a + 1.0 if "bias_ih" in n else a - 1.0 if "bias_hh" in n else a for n, a in given.items()}
        first, second = (probes.summed_biases(weights, case.arguments) for weights in (given, moved))
        assert list(first) == list(second)
        assert all(np.allclose(first[name], second[name], rtol=0, atol=1e-14) for name in first)


def test_the_reference_for_two_directions_gives_what_a_packed_layer_gives():
    exercise = exercises.find("bidirectional")
    for case in exercise.draw(1):
        x, lengths, W_xh, W_hh, b_h, *back = case.arguments.values()
        layer = torch.nn.RNN(x.shape[2], len(W_hh), batch_first=True, bidirectional=True, dtype=x.dtype)
        values = (W_xh, W_hh, b_h, 0 * b_h, *back, 0 * b_h)
        layer.load_state_dict(dict(zip(layer.state_dict(), values, strict=True)))
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, h_n = layer(packed)
        output, _ = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        found = exercise.reference(*case.arguments.values())
        assert torch.allclose(found[0], output, rtol=0, atol=1e-12) and torch.allclose(
            found[1], h_n, rtol=0, atol=1e-12
        )


def test_a_function_for_a_gradient_check_is_made_where_the_answer_runs():
    arguments = {"c": np.array([[1.0, 2.0], [0.0, 1.0]]), "w": np.array([3.0, -1.0]), "eps": 0.5}
    assert probes.on_a_sum_of_cubes(lambda f, w, eps: (f(w), f(w + eps), eps), arguments) == (0.0, 15.5, 0.5)
    with pytest.raises(
        ValueError, match=r"f takes an array of shape \(2,\); here came a NumPy array of shape \(1, 2\)"
    ):
        probes.on_a_sum_of_cubes(lambda f, w, eps: f(w[None]), arguments)


CLIPPING = Exercise(
    "a-clipping",
    1,
    lambda grads, limit: ({name: g / 2 for name, g in grads.items()}, 10.0),
    lambda rng: [Case("norm 10", {"grads": {"W": np.array([6.0]), "b": np.array([8.0])}, "max_norm": 5.0})],
    probes.clipped_and_norm,
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda grads, limit: None, "The function returns None; expected two things: a dictionary, then a number"),
        (lambda grads, limit: (), "returns nothing; expected two things"),
        (lambda grads, limit: CLIPPING.reference(grads, limit)[0], "returns a dict of length 2; expected two things"),
        (
            lambda grads, limit: CLIPPING.reference(grads, limit)[::-1],
            "returns a float and a dict of length 2; expected",
        ),
        (lambda grads, limit: (list(grads.values()), 10.0), "returns a list of length 2 and a float; expected two"),
        (lambda grads, limit: (grads | {"norm before": 10.0}, 10.0), "has 'W', 'b', 'norm before'; expected 'W', 'b'."),
        (lambda grads, limit: ({}, 10.0), "The dictionary has no entry; expected 'W', 'b'."),
        (lambda grads, limit: ({"W": grads["W"] / 2}, 10.0), "The dictionary has 'W'; expected 'W', 'b'."),
        (lambda grads, limit: (CLIPPING.reference(grads, limit)[0], 5.0), "The norm before is 5; expected 10"),
        (lambda grads, limit: (CLIPPING.reference(grads, limit)[0], None), "The norm before is None"),
        (lambda grads, limit: (dict(grads), 10.0), "Entry 'W'[0] is 6; expected 3"),
    ],
)
def test_what_is_wrong_with_clipped_gradients_is_said(answer, message):
    as_array = verdict(CLIPPING, lambda grads, limit: [CLIPPING.reference(grads, limit)[0], np.array(10.0)])
    assert as_array.score == 1.0, "a list of two and a norm without axes are as good"
    assert message in str(verdict(CLIPPING, answer))


def turned(H, gain, rng):
    """Draw an orthogonal matrix as the product of H reflections."""
    W = gain * np.eye(H)
    for v in rng.normal(size=(H, H)):
        W = W - 2 * np.outer(v, v @ W) / (v @ v)
    return W


def reflected(H, gain, rng):
    v = rng.normal(size=H)
    return gain * (np.eye(H) - 2 * np.outer(v, v) / (v @ v))


ORTHOGONAL = Exercise(
    "a-start",
    1,
    turned,
    lambda rng: [Case(f"gain {gain}", {"H": 20, "gain": gain, "seed": 3}) for gain in (1.0, 0.5)],
    probes.orthogonal_draws,
    measure=probes.singular_values,
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda H, gain, rng: None, "The function returns None; expected a NumPy array of shape (20, 20), float64"),
        (lambda H, gain, rng: turned(H, gain, rng).tolist(), "returns a list of length 20; expected a NumPy array"),
        (
            lambda H, gain, rng: torch.tensor(turned(H, gain, rng)),
            "returns a PyTorch tensor of shape (20, 20), float64",
        ),
        (lambda H, gain, rng: turned(H, gain, rng).astype("f"), "array of shape (20, 20), float32; expected"),
        (lambda H, gain, rng: turned(H + 1, gain, rng), "returns a NumPy array of shape (21, 21)"),
        (lambda H, gain, rng: turned(H, gain, rng) * np.nan, "expected finite numbers, float64, of shape (20, 20)"),
        (lambda H, gain, rng: turned(H, 2.0, rng), "The largest singular value is 2; expected 1"),
        (lambda H, gain, rng: np.diag(np.ones(20) - np.eye(20)[3] / 4), "The smallest singular value is 0.75"),
        (lambda H, gain, rng: gain * np.eye(H)[rng.permutation(H)], "The share of entries that are zero is 0.95"),
        (lambda H, gain, rng: turned(H, gain, np.random.default_rng()), "second draw from the same seed is 'another'"),
        (lambda H, gain, rng: turned(H, gain, np.random.default_rng(0)), "draw from another seed is 'the same'"),
        (reflected, "The share of rows that are nearly a row of the identity is 0."),
    ],
)
def test_an_orthogonal_start_is_judged_by_its_singular_values_and_its_draws(answer, message):
    assert verdict(ORTHOGONAL, lambda *given: np.linalg.qr(turned(*given))[0] * given[1]).score == 1.0
    found = verdict(ORTHOGONAL, answer)
    assert found.score == 0.0 or "largest" in message
    assert message in str(found)


def test_a_measure_does_not_trust_what_a_process_sends():
    arguments = {"H": 20, "gain": 1.0, "seed": 0}
    W = turned(20, 1.0, np.random.default_rng(0))
    for sent in (None, W, {}, {"drawn": W, "again": W}, {"drawn": W, "again": W, "other": "W"}):
        with pytest.raises(probes.Unusable, match="expected finite numbers"):
            probes.singular_values(sent, arguments)


PREDICTION = Exercise(
    "a-prediction",
    1,
    lambda W_hh, scale, T: W_hh[0, 0] * scale + T,
    lambda rng: [Case("two", {"W_hh": np.ones((2, 3, 3)), "scale": np.array([0.5, 2.0]), "T": np.array([5, 6])})],
    probes.predictions,
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda W_hh, scale, T: None, "The function returns None; expected one number"),
        (lambda W_hh, scale, T: "explodes", "returns a str of length 8; expected one number"),
        (lambda W_hh, scale, T: np.ones(1), "returns a NumPy array of shape (1,), float64; expected one number"),
        (lambda W_hh, scale, T: 1j, "expected one number"),
        (lambda W_hh, scale, T: np.nan, "is nan"),
        (lambda W_hh, scale, T: T, "[0] is 5; expected 5.5"),
    ],
)
def test_what_is_wrong_with_predictions_is_said(answer, message):
    types = []

    def alike(W_hh, scale, T):
        types.append((W_hh.shape, type(scale), type(T)))
        return torch.tensor(PREDICTION.reference(W_hh, scale, T))

    assert verdict(PREDICTION, alike).score == 1.0, "a tensor or an array without axes is a number, too"
    assert set(types) == {((3, 3), float, int)}
    assert message in str(verdict(PREDICTION, answer))
