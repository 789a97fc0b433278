"""Looking inside PyTorch's recurrent modules: state gradients, initialisation, sampling, the device."""

import copy

import numpy as np
import pytest
import torch

import rnncore

LAYERS = [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM, rnncore.RNN, rnncore.GRU, rnncore.LSTM]
B, T, D, H = 2, 6, 3, 4


def layer_of(kind, **options):
    torch.manual_seed(0)
    return kind(D, H, batch_first=True, dtype=torch.float64, **options)


def inputs():
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("at_every_step", [True, False])
def test_state_gradients_are_the_whole_derivative_through_all_later_states(kind, bias, at_every_step):
    layer, x = layer_of(kind, bias=bias), inputs()
    weights = torch.randn(B, T, H, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    if not at_every_step:
        weights[:, :-1] = 0

    def loss(hs):
        return (weights * hs**2).sum()

    found = rnncore.state_gradients(layer, x, loss)
    assert found.shape == (B, T, H)
    for t in range(1, T + 1):  # the oracle: torch's layer, started again from h_t as a leaf
        earlier, last = layer(x[:, :t])
        h_t = earlier[:, -1].detach().requires_grad_()
        start = (h_t[None], last[1].detach()) if layer.mode == "LSTM" else h_t[None]
        later = layer(x[:, t:], start)[0] if t < T else x.new_zeros(B, 0, H)
        hs = torch.cat([earlier[:, :-1].detach(), h_t[:, None], later], 1)
        (expected,) = torch.autograd.grad(loss(hs), h_t)
        torch.testing.assert_close(found[:, t - 1], expected, rtol=1e-10, atol=1e-13)


def test_state_gradients_with_a_loss_at_the_end_are_rows_of_the_product_of_jacobians():
    layer, x = layer_of(torch.nn.RNN), inputs()
    found = rnncore.state_gradients(layer, x, lambda hs: hs[:, -1].sum())
    hs, _ = layer(x)
    for t in range(1, T + 1):
        product = rnncore.jacobian_product(hs.detach(), layer.weight_hh_l0.detach(), t, T)
        torch.testing.assert_close(found[:, t - 1], product.sum(1), rtol=1e-10, atol=1e-13)


def test_state_gradients_leave_the_layer_as_it_was_and_work_when_it_is_frozen():
    layer = layer_of(torch.nn.GRU).requires_grad_(False)
    found = rnncore.state_gradients(layer, inputs(), lambda hs: hs[:, -1].sum())
    assert found.abs().sum() > 0
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_state_gradients_are_there_for_whoever_has_switched_gradients_off():
    layer = layer_of(torch.nn.LSTM)
    expected = rnncore.state_gradients(layer, inputs(), torch.sum)
    with torch.no_grad():
        assert torch.equal(rnncore.state_gradients(layer, inputs(), torch.sum), expected)
        assert not torch.is_grad_enabled()


ONE_SEQUENCE = "expected an RNN, GRU or LSTM with one layer"


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}])
def test_state_gradients_refuse_a_layer_with_more_than_one_sequence_of_states(options):
    with pytest.raises(ValueError, match=ONE_SEQUENCE):
        rnncore.state_gradients(layer_of(torch.nn.GRU, **options), inputs(), torch.sum)


def test_state_gradients_refuse_another_module_of_one_layer():
    other = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, batch_first=True), 1)
    with pytest.raises(ValueError, match=ONE_SEQUENCE):
        rnncore.state_gradients(other, inputs(), torch.sum)


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (4, 6)])
@pytest.mark.parametrize("gain", [1.0, 1.5, -2.0])
def test_an_orthogonal_matrix_has_all_singular_values_equal_to_the_gain(shape, gain):
    W = torch.empty(shape, dtype=torch.float64)
    assert rnncore.orthogonal_(W, gain) is W
    torch.testing.assert_close(torch.linalg.svdvals(W), torch.full((min(shape),), abs(gain), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_orthogonal_matrix_of_half_precision_is_refused_with_what_to_do(dtype):
    with pytest.raises(TypeError, match=f"W has dtype {dtype}; expected float32 or float64: fill one of these, then"):
        rnncore.orthogonal_(torch.zeros(3, 3, dtype=dtype))


def test_the_gates_of_a_layer_can_be_filled_one_by_one():
    layer = layer_of(torch.nn.GRU)
    for W in layer.weight_hh_l0.chunk(3):
        rnncore.orthogonal_(W)
    for W in layer.weight_hh_l0.detach().chunk(3):
        torch.testing.assert_close(W @ W.T, torch.eye(H, dtype=torch.float64))


def test_the_identity_is_the_identity():
    torch.testing.assert_close(rnncore.identity_(torch.empty(3, 3)), torch.eye(3))


def test_xavier_draws_with_the_matrixs_own_fans():
    torch.manual_seed(0)
    W = rnncore.xavier_(torch.empty(300, 100))
    limit = (6 / 400) ** 0.5
    assert W.abs().max() <= limit
    assert W.abs().max() > 0.99 * limit
    assert W.var().item() == pytest.approx(2 / 400, rel=0.05)  # 30,000 draws: the error is near 0.5 %


def test_the_gates_biases_are_set_as_a_sum_and_nothing_else_is_touched():
    cases = [
        (rnncore.set_forget_bias_, torch.nn.LSTM(D, H, num_layers=2, bidirectional=True)),
        (rnncore.set_forget_bias_, torch.nn.LSTMCell(D, H)),
        (rnncore.set_update_bias_, torch.nn.GRU(D, H, num_layers=2, bidirectional=True)),
        (rnncore.set_update_bias_, torch.nn.GRUCell(D, H)),
        (rnncore.set_forget_bias_, rnncore.LSTM(D, H, num_layers=2, bidirectional=True)),
        (rnncore.set_forget_bias_, rnncore.LSTMCell(D, H)),
        (rnncore.set_update_bias_, rnncore.GRU(D, H, num_layers=2, bidirectional=True)),
        (rnncore.set_update_bias_, rnncore.GRUCell(D, H)),
    ]
    for set_bias_, module in cases:
        before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
        assert set_bias_(module, 3.0) is module
        inputs_biases = [name for name in before if name.startswith("bias_ih")]
        assert len(inputs_biases) in (1, 4)
        for name in inputs_biases:
            sum_of_both = getattr(module, name) + getattr(module, name.replace("ih", "hh"))
            assert torch.equal(sum_of_both[H : 2 * H], torch.full((H,), 3.0))
        for name, old in before.items():
            kept = torch.ones_like(old, dtype=torch.bool)
            kept[H : 2 * H] = not name.startswith("bias")
            assert torch.equal(getattr(module, name)[kept], old[kept]), name


def test_a_large_forget_bias_keeps_the_cell_and_a_large_update_bias_the_state():
    lstm = rnncore.set_forget_bias_(torch.nn.LSTM(D, H, batch_first=True), 50.0)
    x, c0 = torch.randn(B, T, D), 100 * torch.ones(1, B, H)
    _, (_, c) = lstm(x, (torch.zeros(1, B, H), c0))
    assert (c - c0).abs().max() <= T  # each step adds i ⊙ g, at most 1
    gru = rnncore.set_update_bias_(torch.nn.GRU(D, H, batch_first=True), 50.0)
    hs, _ = gru(x, torch.ones(1, B, H))
    torch.testing.assert_close(hs, torch.ones_like(hs))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rnncore.set_forget_bias_(torch.nn.GRU(D, H), 1.0), TypeError, "expected an LSTM or LSTMCell"),
        (lambda: rnncore.set_update_bias_(torch.nn.RNN(D, H), 1.0), TypeError, "expected a GRU or GRUCell"),
        (lambda: rnncore.set_update_bias_("gru", 1.0), TypeError, "expected a GRU or GRUCell"),
        (lambda: rnncore.set_forget_bias_(torch.nn.LSTM(D, H, bias=False), 1.0), ValueError, "has no biases"),
        (
            lambda: rnncore.set_forget_bias_(torch.nn.LSTM(D, H, 2, False, True, bidirectional=True), 1.0),
            ValueError,
            "lstm has no biases: LSTM(3, 4, num_layers=2, bias=False, batch_first=True, bidir …; expected an LSTM",
        ),
        (lambda: rnncore.identity_(torch.ones(3, 4)), ValueError, "W has shape (3, 4); expected a square matrix"),
        (lambda: rnncore.orthogonal_(torch.ones(3)), ValueError, "W has shape (3,); expected a matrix"),
        (lambda: rnncore.orthogonal_(torch.ones(3, 3), float("-inf")), ValueError, "gain is -inf; expected a finite"),
        (lambda: rnncore.xavier_(np.ones((2, 2))), TypeError, "W is a ndarray; expected a PyTorch tensor"),
    ],
)
def test_a_wrong_module_or_matrix_is_named(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


class Language(torch.nn.Module):
    """A small language model that counts how it is called."""

    def __init__(self, V=7):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.rnn, self.head = (
            torch.nn.Embedding(V, 5),
            torch.nn.GRU(5, 8, batch_first=True),
            torch.nn.Linear(8, V),
        )
        self.lengths = []

    def forward(self, tokens, state):
        self.lengths.append(tokens.shape[1])
        hs, state = self.rnn(self.embedding(tokens), state)
        return self.head(hs), state


PROMPT = torch.tensor([[1, 2, 3], [4, 5, 6]])


def test_greedy_generation_equals_reading_the_whole_text_again_at_every_step():
    model = Language()
    text = PROMPT
    for _ in range(10):
        text = torch.cat([text, model(text, None)[0][:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(rnncore.generate(model, PROMPT, 10, temperature=0), text[:, 3:])


def test_the_prompt_is_read_once_and_then_one_token_at_a_time_with_no_graph_kept():
    model = Language()
    tokens = rnncore.generate(model, PROMPT, 5)
    assert model.lengths == [3, 1, 1, 1, 1]
    assert tokens.shape == (2, 5)
    assert not tokens.requires_grad
    assert torch.is_grad_enabled()
    assert rnncore.generate(model, PROMPT, 0).shape == (2, 0)


def test_the_same_generator_gives_the_same_text_and_the_global_state_is_left_alone():
    model = Language()
    before = torch.get_rng_state()
    texts = [rnncore.generate(model, PROMPT, 20, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*texts)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(texts[0], rnncore.generate(model, PROMPT, 20, generator=torch.Generator().manual_seed(6)))


def test_the_temperature_is_one_unless_it_is_given():
    plain, warm = (
        rnncore.generate(Language(), PROMPT, 20, *temperature, generator=torch.Generator().manual_seed(5))
        for temperature in ((), (1.0,))
    )
    assert torch.equal(plain, warm)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_with_the_softmax_of_the_logits_over_the_temperature(temperature):
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0])

    def model(tokens, state):
        return logits.expand(*tokens.shape, 4), state

    N = 20_000
    drawn = rnncore.generate(
        model, torch.zeros(N, 1, dtype=torch.int64), 1, temperature, torch.Generator().manual_seed(0)
    )
    frequency = torch.bincount(drawn[:, 0], minlength=4) / N
    expected = torch.softmax(logits / temperature, 0)
    five_sigma = 5 * (expected * (1 - expected) / N).sqrt()
    assert ((frequency - expected).abs() < five_sigma).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": [1, 2]}, "prompt is list"),
        ({"prompt": PROMPT.float()}, "torch.float32; expected an int64 tensor"),
        ({"prompt": PROMPT[0]}, "prompt is (3,)"),
        ({"prompt": PROMPT[:, :0]}, "at least one token"),
        ({"length": -1}, "length is -1"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
    ],
)
def test_what_cannot_be_generated_from_is_named(change, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        rnncore.generate(**{"model": Language(), "prompt": PROMPT, "length": 3} | change)
    assert message in str(caught.value)


RIGHT = {
    rnncore.state_gradients: {"layer": layer_of(torch.nn.GRU), "x": inputs(), "loss": torch.sum},
    rnncore.orthogonal_: {"W": torch.ones(3, 4), "gain": 1.0},
    rnncore.identity_: {"W": torch.ones(3, 3)},
    rnncore.xavier_: {"W": torch.ones(3, 4)},
    rnncore.set_forget_bias_: {"lstm": torch.nn.LSTM(D, H), "value": 1.0},
    rnncore.set_update_bias_: {"gru": torch.nn.GRU(D, H), "value": 1.0},
    rnncore.generate: {"model": Language(), "prompt": PROMPT, "length": 2, "temperature": 1.0, "generator": None},
}
JUNK = {
    "nothing": None,
    "a word": "orthogonal",
    "a list": [1.0, 2.0],
    "not a number": float("nan"),
    "a NumPy array": np.ones((3, 3)),
    "a vector": torch.ones(3),
    "integers": torch.ones(3, 3, dtype=torch.int64),
    "complex numbers": torch.ones(3, 3, dtype=torch.complex64),
    "an empty matrix": torch.ones(0, 0),
    "four axes": torch.ones(2, 2, 2, 2),
    "a plain object": object(),
    "a class": torch.nn.LSTM,
    "another module": torch.nn.Linear(2, 2),
    "a function that returns its argument": lambda hs: hs,
}


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("function", "argument"),
    [(function, name) for function, right in RIGHT.items() for name in right if name != "generator"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_whatever_comes_is_refused_by_the_arguments_name(function, argument, junk):
    right = {name: copy.deepcopy(value) for name, value in RIGHT[function].items()}
    if (argument, junk) == ("prompt", "integers"):
        return  # these are tokens
    if callable(JUNK[junk]) and argument in ("loss", "model"):  # what the reader's own function raises passes through
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            function(**right | {argument: JUNK[junk]})
        return
    with pytest.raises((TypeError, ValueError), match=rf"^{argument} (is|has|returned) .*; expected "):
        function(**right | {argument: JUNK[junk]})


@pytest.mark.parametrize("junk", [5, "seed", torch.ones(2)])
def test_a_generator_must_be_one(junk):
    with pytest.raises(TypeError, match=r"^generator is .*; expected a torch.Generator"):
        rnncore.generate(**RIGHT[rnncore.generate] | {"generator": junk})


def test_the_best_device_is_cuda_where_there_is_one():
    assert rnncore.best_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


LONG = "x" * 59
RETURNED = [(LONG, f"'{LONG} …"), (torch.ones(2), "tensor([1., 1.])"), (1.0, "1.0")]


@pytest.mark.parametrize(("returned", "shown"), RETURNED)
def test_a_loss_that_is_no_scalar_of_the_states_is_shown(returned, shown):
    with pytest.raises(ValueError) as caught:
        rnncore.state_gradients(layer_of(torch.nn.GRU), inputs(), lambda hs: returned)
    assert str(caught.value) == f"loss returned {shown}; expected a scalar tensor computed from the states"


@pytest.mark.parametrize(("returned", "shown"), [*RETURNED, ((1.0, None), "(1.0, None)"), ((), "()")])
def test_what_a_model_returns_besides_logits_and_state_is_shown(returned, shown):
    with pytest.raises(ValueError) as caught:
        rnncore.generate(lambda tokens, state: returned, PROMPT, 3)
    assert str(caught.value) == f"model returned {shown}; expected a pair, logits (B, T, V) and the state"


def test_what_is_no_generator_is_shown():
    with pytest.raises(TypeError, match=r"^generator is 'seed'; expected a torch\.Generator or None$"):
        rnncore.generate(Language(), PROMPT, 3, generator="seed")
