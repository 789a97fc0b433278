"""The layers and cells stand in for torch.nn's: same calls, same numbers, same gradients, same weights."""

import copy
import gc
import inspect
import io
import itertools
import pickle
import re
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from calls import CELL_IDS, CELLS, LAYER_IDS, LAYERS, B, D, H, T, flat, leaf, normal, run, states_for, to
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence
from torch.utils.checkpoint import checkpoint

import rnncore

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
every_layer = pytest.mark.parametrize(("kind", "options"), LAYERS, ids=LAYER_IDS)
every_cell = pytest.mark.parametrize(("kind", "options"), CELLS, ids=CELL_IDS)
every_module = pytest.mark.parametrize(("kind", "options"), [*LAYERS, *CELLS], ids=[*LAYER_IDS, *CELL_IDS])
on_every_device = pytest.mark.parametrize("device", DEVICES)


def pair(kind, *sizes, seed=0, **options):
    """Return our module and torch's, float64 unless told, made from the same seed."""
    options = {"dtype": torch.float64} | options
    made = []
    for library in (rnncore, torch.nn):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both warn of dropout with one layer
            made.append(getattr(library, kind)(*(sizes or (D, H)), **options))
    return made


def form(result):
    """Return how a result is nested: tuples of tensors."""
    return tuple(form(part) for part in result) if isinstance(result, tuple) else type(result)


def grads_of(*inputs_and_modules):
    """Return the gradients that tensors and the parameters of modules have got, in `assert_same`'s form."""
    found = []
    for item in inputs_and_modules:
        found += [item.grad] if isinstance(item, torch.Tensor) else [p.grad for p in item.parameters()]
    return [], found


def assert_same(ours, theirs, outputs=1e-12, gradients=1e-10):
    for found, expected in zip(ours[0], theirs[0], strict=True):
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=outputs, atol=outputs)
    for found, expected in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(found, expected, rtol=gradients, atol=gradients)


# ---------------------------------------------------------------------------------------------------------------------


@every_layer
@pytest.mark.parametrize("layout", ["T B D", "B T D", "T D", "no sequence", "sorted", "unsorted", "equal lengths"])
@pytest.mark.parametrize("start", ["zero", "given"])
@on_every_device
def test_a_layer_returns_what_its_namesake_returns_for_every_form_of_input(kind, options, layout, start, device):
    lengths = {"sorted": [5, 4, 1], "unsorted": [2, 5, 4], "equal lengths": [5, 5, 5]}
    for layers, bidirectional in itertools.product((1, 2), (False, True)):
        shape = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": layout == "B T D"}
        ours, theirs = pair(kind, **options, **shape, device=device)
        input = normal(*{"B T D": (B, T, D), "T D": (T, D), "no sequence": (T, 0, D)}.get(layout, (T, B, D)))
        input = input.to(device)
        if layout in lengths:
            input = pack_padded_sequence(input, lengths[layout], enforce_sorted=layout != "unsorted")
        batch = {"T D": (), "no sequence": (0,)}.get(layout, (B,))
        hx = None
        if start == "given":
            hx = to(device, states_for(ours, *batch))
        assert_same(run(ours, input, hx), run(theirs, input, hx))
        assert form(ours(input, hx)) == form(theirs(input, hx))


@every_layer
@pytest.mark.parametrize("lengths", [[5, 1, 1], [5, 5, 4], [5], [1, 1, 1], [1]], ids=str)
def test_packed_sequences_of_one_length_are_told_from_those_of_nearly_one(kind, options, lengths):
    ours, theirs = pair(kind, **options)
    input = pack_sequence([normal(length, D, seed=k) for k, length in enumerate(lengths)])
    assert_same(run(ours, input), run(theirs, input))
    assert form(ours(input)) == form(theirs(input))


@every_layer
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 2), (2, 9)])
def test_a_layer_equals_its_namesake_at_every_size(kind, options, bias, sizes):
    options = options if "proj_size" not in options or sizes[1] > 2 else {}
    for steps, batch in itertools.product((1, 2, 30), (1, 2, 7)):
        ours, theirs = pair(kind, *sizes, bias=bias, **options)
        assert_same(run(ours, normal(steps, batch, sizes[0])), run(theirs, normal(steps, batch, sizes[0])))


@every_layer
def test_float32_is_as_near_to_float64_as_torchs_own(kind, options):
    """Errors relative to the largest entry; a sum in another order may be some roundings (6e-8) better or worse."""
    ours, theirs = pair(kind, 16, 32, num_layers=2, **options)
    x = normal(40, 8, 16)
    exact = run(theirs, x)
    found, compared = run(ours.float(), x.float()), run(theirs.float(), x.float())
    for a, b, c in zip(*(flat(r) for r in (found, compared, exact)), strict=True):
        assert a.dtype == torch.float32
        scale = c.detach().abs().max()
        assert (a - c).abs().max() / scale <= 2 * (b - c).abs().max() / scale + 1e-6


@every_layer
@pytest.mark.parametrize("packed", [True, False])
def test_dropout_draws_what_torch_draws(kind, options, packed):
    ours, theirs = pair(kind, num_layers=3, dropout=0.5, bidirectional=True, **options)
    input = pack_padded_sequence(normal(T, B, D), [2, 5, 3], enforce_sorted=False) if packed else normal(T, B, D)
    assert_same(run(ours, input), run(theirs, input))
    with pytest.raises(AssertionError):
        assert_same(run(ours, input), run(ours, input, seed=8))  # it does something
    assert_same(run(ours.eval(), input), run(theirs.eval(), input))
    assert_same(run(ours, input), run(ours, input, seed=8))


@every_cell
@pytest.mark.parametrize("batch", [(), (1,), (B,), (0,)])
@pytest.mark.parametrize("bias", [True, False])
@on_every_device
def test_a_cell_returns_what_its_namesake_returns(kind, options, batch, bias, device):
    ours, theirs = pair(kind, bias=bias, device=device, **options)
    for hx in (None, to(device, states_for(ours, *batch))):
        assert_same(run(ours, normal(*batch, D).to(device), hx), run(theirs, normal(*batch, D).to(device), hx))


@every_module
def test_constructors_take_the_documented_options_by_position_and_keyword(kind, options):
    mine, library = getattr(rnncore, kind), getattr(torch.nn, kind)
    documented = {
        "RNN": "input_size hidden_size num_layers nonlinearity bias batch_first dropout bidirectional device dtype",
        "GRU": "input_size hidden_size num_layers bias batch_first dropout bidirectional device dtype",
        "LSTM": "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size device dtype",
        "RNNCell": "input_size hidden_size bias nonlinearity device dtype",
        "GRUCell": "input_size hidden_size bias device dtype",
        "LSTMCell": "input_size hidden_size bias device dtype",
    }[kind].split()
    parameters = list(inspect.signature(mine).parameters)
    assert parameters == documented
    values = {"input_size": D, "hidden_size": H, "num_layers": 2, "nonlinearity": "relu", "bias": False}
    values |= {"batch_first": True, "dropout": 1, "bidirectional": True, "proj_size": 3, "device": "cpu"}
    values |= {"dtype": torch.float64}
    chosen = {name: values[name] for name in documented}
    assert repr(mine(D, H)) == repr(library(D, H))
    positions = list(chosen.values())[: documented.index("device")]
    for args, kwargs in ((positions, {"dtype": torch.float64}), ((), chosen)):
        ours, theirs = mine(*args, **kwargs), library(*args, **kwargs)
        assert repr(ours) == repr(theirs)
        assert type(getattr(ours, "dropout", 0.5)) is float
        shapes = [[(name, p.shape, p.dtype) for name, p in m.named_parameters()] for m in (ours, theirs)]
        assert shapes[0] == shapes[1]
        shared = {"device", "dtype"}
        assert all(getattr(ours, n) == getattr(theirs, n) == chosen[n] for n in documented if n not in shared)
    assert mine(*positions, "cpu", torch.float64).weight_ih.dtype == torch.float64 if "Cell" in kind else True


@every_module
def test_the_same_seed_draws_the_same_weights_and_each_loads_the_others_state(kind, options):
    more = {} if "Cell" in kind else {"num_layers": 2, "bidirectional": True}
    ours, theirs = pair(kind, **options, **more)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(found, expected)
    torch.manual_seed(5)
    ours.reset_parameters()
    torch.manual_seed(5)
    theirs.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    other, _ = pair(kind, **options, **more, seed=3)
    other.load_state_dict(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), theirs.parameters(), strict=True))
    _, other = pair(kind, **options, **more, seed=3)
    other.load_state_dict(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), ours.parameters(), strict=True))


@every_layer
def test_all_weights_flatten_parameters_and_mode_are_there(kind, options):
    for bias, bidirectional in itertools.product((False, True), repeat=2):
        ours, theirs = pair(kind, num_layers=2, bidirectional=bidirectional, bias=bias, **options)
        shapes = [[[w.shape for w in ws] for ws in layer.all_weights] for layer in (ours, theirs)]
        assert shapes[0] == shapes[1]
        assert ours._all_weights == theirs._all_weights, "private, but much used to find the biases"
    assert ours.all_weights[3][0] is ours.weight_ih_l1_reverse
    before = [w.clone() for w in ours.parameters()]
    assert ours.flatten_parameters() is None
    assert all(torch.equal(a, b) for a, b in zip(before, ours.parameters(), strict=True))
    assert ours.mode == theirs.mode


def test_an_own_reset_of_the_parameters_finds_the_mode():
    class Own(rnncore.RNN):
        def reset_parameters(self):
            super().reset_parameters()
            self.seen = self.mode

    assert Own(D, H, nonlinearity="relu").seen == "RNN_RELU"


@every_module
def test_a_call_looks_up_each_weight_once(kind, options):
    class Counted(torch.nn.Module):
        looked_up = 0

        def forward(self, W):
            self.looked_up += 1
            return W

    ours, _ = pair(kind, **options)
    counted = {name: Counted() for name, _ in list(ours.named_parameters())}
    for name, counter in counted.items():
        torch.nn.utils.parametrize.register_parametrization(ours, name, counter)
        counter.looked_up = 0
    ours(normal(B, D) if kind.endswith("Cell") else normal(T, B, D))
    assert {name: counter.looked_up for name, counter in counted.items()} == dict.fromkeys(counted, 1)


# The hand-written backward and its company: derivatives of every order, transforms, other dtypes.


@every_layer
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_first_and_second_order_pass_torchs_checks(kind, options, bias):
    ours, _ = pair(kind, 2, 3, bias=bias, **options)
    weights, (names, values) = dict(ours.named_parameters()), zip(*ours.named_parameters(), strict=True)
    assert weights
    x, hx = leaf(normal(4, 2, 2))[0], leaf(states_for(ours, 2))[0]

    def function(x, *rest):
        states = rest[0] if ours._network.states == 1 else rest[:2]
        return tuple(
            flat(
                torch.func.functional_call(
                    ours, dict(zip(names, rest[ours._network.states :], strict=True)), (x, states)
                )
            )
        )

    states = [hx] if ours._network.states == 1 else list(hx)
    arguments = (x, *states, *values)
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)


@every_layer
def test_gradients_of_gradients_equal_torchs_even_when_inputs_depend_on_each_other(kind, options):
    found = []
    for module in pair(kind, **options):
        x = leaf(normal(T, B, D))[0]
        W = {"weight_ih_l0": module.weight_ih_l0 * x.mean(), "weight_hh_l0": module.weight_hh_l0 * x.std()}
        W["bias_hh_l0"] = module.bias_hh_l0 + W["weight_hh_l0"].sum(1)
        outputs = flat(torch.func.functional_call(module, W, (x,)))  # an LSTM's last cell, too
        (first,) = torch.autograd.grad(sum((o**2).sum() for o in outputs), x, create_graph=True)
        second = torch.autograd.grad((first**2).sum(), [x, *module.parameters()])
        found.append((([first]), second))
    assert_same(*found)


@every_layer
def test_forward_mode_vmap_and_jacrev_agree_with_torchs_or_with_reverse_mode(kind, options):
    ours, theirs = pair(kind, **options)
    x, tangent = normal(T, B, D), normal(T, B, D, seed=3)
    _, along = torch.func.jvp(lambda x: ours(x)[0], (x,), (tangent,))
    whole = torch.autograd.functional.jacobian(lambda x: theirs(x)[0], x)
    expected = (whole.flatten(-3) @ tangent.flatten()).detach()
    torch.testing.assert_close(along, expected, rtol=1e-10, atol=1e-10)
    with torch.autograd.forward_ad.dual_level():
        output = ours(torch.autograd.forward_ad.make_dual(x, tangent))[0]
        along = torch.autograd.forward_ad.unpack_dual(output).tangent
    torch.testing.assert_close(along, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.func.jacrev(lambda x: ours(x)[0])(x), whole, rtol=1e-10, atol=1e-10)
    many = torch.func.vmap(lambda x: ours(x)[0])(torch.stack([x, 2 * x]))
    torch.testing.assert_close(many, torch.stack([ours(x)[0], ours(2 * x)[0]]), rtol=1e-12, atol=1e-12)


@every_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_and_is_near(kind, options, dtype):
    ours, theirs = pair(kind, num_layers=2, **options)
    expected = flat(theirs(normal(T, B, D)))
    for found, exact in zip(flat(ours.to(dtype)(normal(T, B, D).to(dtype))), expected, strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=0.1, atol=0.05)


@every_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", [None, [5, 3, 2], [5, 5, 5]], ids=["padded", "packed", "packed, equal lengths"])
def test_autocast_gives_what_torch_gives(kind, options, dtype, lengths):
    x = normal(T, B, D).to(dtype)
    x = pack_padded_sequence(x, lengths) if lengths else x
    ours, theirs = pair(kind, num_layers=2, dtype=dtype, **options)
    with torch.autocast("cpu", torch.bfloat16):
        found = flat(ours(x))
        try:
            expected = flat(theirs(x))
        except RuntimeError as error:  # oneDNN has no LSTM in bfloat16 for processors without AVX-512
            assert "primitive" in str(error)
            with torch.autocast("cpu", enabled=False):
                expected = [t.bfloat16() if t.is_floating_point() else t for t in flat(theirs(x))]
    for ours_of, theirs_of in zip(found, expected, strict=True):
        assert ours_of.dtype == theirs_of.dtype
        torch.testing.assert_close(ours_of.double(), theirs_of.double(), rtol=0.05, atol=0.05)


@every_module
def test_meta_tensors_give_shapes_without_memory(kind, options):
    ours, theirs = pair(kind, **options, device="meta")
    x = torch.empty(*((T,) if "Cell" not in kind else ()), B, D, device="meta", dtype=torch.float64)
    assert [t.shape for t in flat(ours(x))] == [t.shape for t in flat(theirs(x))]
    assert all(t.device.type == "meta" for t in flat(ours(x)))


@pytest.mark.parametrize(("kind", "options"), LAYERS[:-1], ids=LAYER_IDS[:-1])  # a projection has no second text
def test_both_ways_through_a_layer_give_the_same_numbers(kind, options, monkeypatch):
    """NumPy's and PyTorch's: the first is a second text, so it is held to the one that can be read."""
    ours, _ = pair(kind, num_layers=2, bidirectional=True, **options)
    hx, x = states_for(ours, B), normal(T, B, D)
    fast = run(ours, x, hx)
    with monkeypatch.context() as patched:
        patched.setattr(rnncore, "_run_numpy", rnncore._run_torch)
        slow = run(ours, x, hx)
    assert fast[0][0].grad_fn is not slow[0][0].grad_fn
    assert_same(fast, slow, 1e-14, 1e-12)


@every_layer
def test_without_gradients_the_results_are_the_same(kind, options):
    ours, theirs = pair(kind, num_layers=2, bidirectional=True, **options)
    hx, x = states_for(ours, B), normal(T, B, D)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            for found, expected in zip(flat(ours(x, hx)), flat(theirs(x, hx)), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("width", "batch", "length"), [(1, 1, 400), (25_000, 400, 2), (10_000, 150, 6), (10**6, 999, 1)]
)
def test_blocks_are_all_steps_once_the_last_first(width, batch, length):
    for steps in (1, 2, 3, 4, 5, 6, 7, 8, 13, 400, 401, 402):
        blocks = rnncore._blocks(np.broadcast_to(0.0, (steps, width)), batch)
        assert [t for block in blocks for t in range(steps)[block][::-1]] == list(range(steps))[::-1]
        assert all(len(range(steps)[block]) == length for block in blocks[:-1])


@pytest.mark.parametrize(("kind", "options"), LAYERS[:-1], ids=LAYER_IDS[:-1])
def test_a_sequence_of_several_blocks_has_torchs_gradients(kind, options):
    ours, theirs = pair(kind, 3, 64, **options)
    x = normal(120, 8, 3)
    cached = np.empty((120, 4 * 64, 8))  # what a gated network keeps
    assert len(rnncore._blocks(cached, 8)) >= 3
    assert_same(run(ours, x), run(theirs, x))


@pytest.mark.parametrize(("kind", "options"), LAYERS[:-1], ids=LAYER_IDS[:-1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("capability", ["AVX512", "AVX2", "DEFAULT"])
def test_a_layer_has_torchs_numbers_on_every_kind_of_processor(kind, options, dtype, capability, monkeypatch):
    """Which library's tanh is taken, for as many numbers as 8 sequences of 40 units, depends on the processor."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    like = np.zeros((8, 40), str(dtype).removeprefix("torch."))
    assert (rnncore._fast_tanh(like) is np.tanh) == (dtype is torch.float32 or capability == "AVX512")
    ours, theirs = pair(kind, 3, 40, num_layers=2, dtype=dtype, **options)
    x = normal(6, 8, 3, dtype=dtype)
    near = (1e-12, 1e-10) if dtype is torch.float64 else (1e-5, 1e-4)
    assert_same(run(ours, x), run(theirs, x), *near)


@pytest.mark.parametrize(("kind", "options"), LAYERS[:-1], ids=LAYER_IDS[:-1])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_layer_has_torchs_numbers_on_one_thread_and_on_several(kind, options, threads, monkeypatch):
    """Large products are PyTorch's and small ones NumPy's, so that no thread stands in another's way: products of one
    step, of a block of steps and of all steps are each on either side of the limit, and some have few columns."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert rnncore._fast_dot(400_000) is not np.ndarray.dot
        assert rnncore._fast_dot(399_999) is np.ndarray.dot
        for batch, steps, H in ((2, 4, 5), (8, 80, 28), (16, 20, 160), (3, 4, 260)):
            ours, theirs = pair(kind, 3, H, num_layers=2, **options)
            x = normal(steps, batch, 3)
            assert_same(run(ours, x), run(theirs, x))
            with torch.no_grad():
                torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("capability", ["AVX512", "AVX2"])
def test_a_matrix_times_few_columns_or_many_is_their_product(dtype, capability, monkeypatch):
    """With AVX-512, few columns of a large matrix are taken as rows: up to 6 in float32 and 3 in float64."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    W, few = normal(700, 600).numpy().astype(dtype), 6 if dtype == "float32" else 3
    ways = {}
    for columns in (1, 2, few, few + 1, 12):
        for of in (W, W[:400], W[:20], W[20:]):
            v, out = normal(600, columns).numpy().astype(dtype), np.full((len(of), columns), np.nan, dtype)
            times = rnncore._times(of, columns, of.size * columns)
            assert times(v, out) is out
            np.testing.assert_allclose(out, of @ v, rtol=0, atol=1e-11 if dtype == "float64" else 1e-3)
            ways[columns, len(of)] = getattr(times, "func", times).__name__
    assert {ways[columns, 20] for columns in (1, 2, few, few + 1, 12)} == {ways[1, 400]} == {"dot"}
    by_rows = "product" if capability == "AVX512" else "_torch_dot"
    assert {ways[columns, 700] for columns in (1, 2, few)} == {ways[few, 400]} == {by_rows}
    assert {ways[columns, 700] for columns in (few + 1, 12)} == {"_torch_dot"}
    beside = [rnncore._times(W[:20], columns, W.size * columns) for columns in (few, few + 1)]
    assert [getattr(one, "func", one).__name__ == "dot" for one in beside] == [capability == "AVX512", False]


@pytest.mark.parametrize(("kind", "options"), LAYERS[:-1], ids=LAYER_IDS[:-1])
def test_how_memory_is_cut_and_laid_out_changes_no_gradient(kind, options, monkeypatch):
    """Blocks of steps, columns and matrices laid out anew are there for speed alone."""
    ours, _ = pair(kind, **options)
    hx, x = states_for(ours, B), normal(T, B, D)
    found = run(ours, x, hx)
    monkeypatch.setattr(rnncore, "_columns", lambda a: a.swapaxes(1, 2))
    monkeypatch.setattr(np, "ascontiguousarray", lambda a: a)
    for length in range(1, T + 1):
        blocks = [slice(max(0, stop - length), stop) for stop in range(T, 0, -length)]
        monkeypatch.setattr(rnncore, "_blocks", lambda a, B, blocks=blocks: blocks)
        assert_same(found, run(ours, x, hx), 1e-15, 1e-13)


def test_numpy_is_taken_when_it_can_be_and_only_then(monkeypatch):
    taken = []
    for name in ("_run_numpy", "_run_torch"):
        original = getattr(rnncore, name)
        monkeypatch.setattr(rnncore, name, lambda *a, o=original, n=name, **k: (taken.append(n[5:]), o(*a, **k))[1])

    def way(layer, x):
        taken.clear()
        layer(x)
        return set(taken)

    layer = rnncore.GRU(D, H)
    x = normal(T, B, D).float()
    assert way(layer, x) == way(layer.double(), x.double()) == {"numpy"}
    assert way(layer, x[:4].double()) == {"numpy"}
    assert way(layer, x[:3].double()) == {"torch"}, "so few are over before NumPy has its arrays"
    assert way(layer, pack_sequence([x[:, 0].double(), x[:, 1].double()])) == {"numpy"}
    assert way(layer, pack_sequence([x[:, 0].double(), x[:2, 1].double()])) == {"torch"}
    assert way(layer.to("meta"), x.double().to("meta")) == {"torch"}
    assert way(rnncore.GRU(D, H, dtype=torch.bfloat16), x.bfloat16()) == {"torch"}
    with torch.autocast("cpu"):
        assert way(rnncore.GRU(D, H), x) == {"torch"}


@every_layer
def test_a_call_leaves_its_arguments_and_does_not_care_how_they_lie_in_memory(kind, options):
    ours, _ = pair(kind, **options)
    x, hx = normal(T, B, D), states_for(ours, B)
    strange = torch.empty(B, D, 2 * T, dtype=torch.float64)[:, :, ::2].permute(2, 0, 1).copy_(x)
    assert not strange.is_contiguous()
    copies = [t.clone() for t in (strange, *flat(hx), *ours.parameters())]
    assert_same(run(ours, strange, hx), run(ours, x, hx), 1e-15, 1e-13)
    assert_same(run(ours, x.flip(0), hx), run(ours, x.flip(0).contiguous(), hx), 1e-15, 1e-13)
    columns = [s.mT.contiguous().mT for s in (hx if isinstance(hx, tuple) else [hx])]
    with torch.no_grad():
        found = ours(x, tuple(columns) if isinstance(hx, tuple) else columns[0])
        assert all(map(torch.equal, flat(found), flat(ours(x, hx))))
    for now, before in zip((strange, *flat(hx), *ours.parameters()), copies, strict=True):
        assert torch.equal(now, before)


@every_layer
def test_output_and_state_may_be_viewed_and_changed_in_place_as_torchs_may(kind, options):
    found = []
    for module in pair(kind, **options):
        output, state = module(normal(T, B, D))
        kept = [t.clone() for t in flat(state)]
        assert output.view(-1).shape == (output.numel(),)
        output *= 2
        output.relu_()
        assert all(torch.equal(a, b) for a, b in zip(flat(state), kept, strict=True))
        seen = output.clone()
        for s in flat(state):
            s.mul_(3)
        assert torch.equal(output, seen)
        (output.sum() + sum(s.sum() for s in flat(state))).backward()
        for s in flat(state):
            s.detach_()  # as loops over chunks of a long sequence do
        found.append(grads_of(module))
    assert_same(*found)


@every_layer
def test_gradients_of_two_weights_never_share_memory(kind, options):
    ours, _ = pair(kind, num_layers=2, **options)
    ours(normal(T, B, D))[0].sum().backward()
    places = [p.grad.data_ptr() for p in ours.parameters()]
    assert len(set(places)) == len(places)


@every_layer
def test_a_graph_is_walked_once_unless_kept_and_changed_inputs_are_noticed(kind, options):
    ours, _ = pair(kind, **options)
    x = normal(T, B, D).requires_grad_()
    loss = ours(x)[0].sum()
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    loss = ours(x)[0].sum()
    with torch.no_grad():
        ours.weight_hh_l0 *= 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@every_layer
def test_weights_exchanged_after_the_forward_do_not_reach_its_gradients(kind, options):
    found = []
    for module in pair(kind, **options):
        x = normal(T, B, D).requires_grad_()
        loss = module(x)[0].square().sum()
        for tensor in (x, *module.parameters()):
            tensor.data = torch.zeros_like(tensor)  # as an average of weights is put in their place, to try it
        loss.backward()
        found.append(grads_of(x, module))
    assert_same(*found)


@every_layer
@pytest.mark.parametrize("change", ["of the tensor", "of its NumPy array"])
def test_a_batch_first_input_may_be_overwritten_before_the_backward_as_with_torch(kind, options, change):
    found = []
    for module in pair(kind, batch_first=True, **options):
        array = normal(B, T, D).numpy()
        x = torch.from_numpy(array)
        loss = module(x)[0].square().sum()
        if change == "of the tensor":
            x.zero_()
        else:
            array[...] = 0
        loss.backward()
        found.append(grads_of(module))
    assert_same(*found)


@every_layer
def test_one_bias_may_be_taken_away(kind, options):
    x = normal(T, B, D)
    for gone, left in [("bias_ih_l0", "bias_hh_l0"), ("bias_hh_l0", "bias_ih_l0")]:
        ours, same = pair(kind, **options)[0], pair(kind, **options)[0]
        setattr(ours, gone, None)
        torch.nn.init.zeros_(getattr(same, gone))
        results = [(flat(module(x)), []) for module in (ours, same)]
        assert_same(*results)
        results[0][0][0].sum().backward()
        assert getattr(ours, left).grad is not None


@pytest.mark.parametrize("case", ["nan in the input", "an infinite gradient", "a gradient of a gradient"])
def test_a_rectified_network_has_torchs_gradients_at_its_corner_and_beyond(case):
    found = []
    for module in pair("RNN", nonlinearity="relu", bidirectional=True):
        x = torch.full((T, B, D), float("nan") if case == "nan in the input" else 1.0, dtype=torch.float64)
        if case == "an infinite gradient":
            torch.nn.init.constant_(module.bias_ih_l0, -9.0)
        output = module(x.requires_grad_())[0]
        outside = torch.full_like(output, float("inf") if case == "an infinite gradient" else 1.0)
        if case == "a gradient of a gradient":
            (gradient,) = torch.autograd.grad(output, x, outside, create_graph=True)
            found.append(([], [gradient, *torch.autograd.grad(gradient.sum(), x)]))
        else:
            output.backward(outside)
            found.append(grads_of(x, module))
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10, equal_nan=True)


@every_layer
def test_sparse_weights_are_multiplied_by_as_torch_does(kind, options):
    results = []
    for module in pair(kind, **options):
        module.weight_ih_l0 = torch.nn.Parameter(module.weight_ih_l0.detach().to_sparse())
        results.append((flat(module(normal(T, B, D))), []))
    assert_same(*results)


@every_layer
def test_frozen_weights_and_inputs_without_gradient_are_left_alone(kind, options):
    found = []
    for module in pair(kind, num_layers=2, **options):
        module.requires_grad_(False)
        module.weight_hh_l1.requires_grad_()
        module(normal(T, B, D))[0].sum().backward()
        assert all(p.grad is None for name, p in module.named_parameters() if name != "weight_hh_l1")
        found.append(([], [module.weight_hh_l1.grad]))
    assert_same(*found)
    with torch.no_grad():
        assert not pair(kind, **options)[0](normal(T, B, D))[0].requires_grad
    with torch.inference_mode():
        pair(kind, **options)[0](normal(T, B, D))


@every_module
def test_copies_pickles_and_conversions_work_as_for_any_module(kind, options):
    ours, _ = pair(kind, **options)
    x = normal(*((T,) if "Cell" not in kind else ()), B, D)
    expected = flat(ours(x))
    saved = io.BytesIO()
    torch.save(ours, saved)
    saved.seek(0)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(saved, weights_only=False)):
        assert all(torch.equal(a, b) for a, b in zip(flat(other(x)), expected, strict=True))
        assert all(a is not b for a, b in zip(other.parameters(), ours.parameters(), strict=True))
    assert all(t.dtype == torch.float32 for t in flat(ours.to(torch.float32)(x.float())))


def test_weights_are_read_by_name_at_each_call():
    ours, theirs = pair("LSTM")
    torch.nn.utils.parametrizations.weight_norm(ours, "weight_hh_l0")
    torch.testing.assert_close(ours(normal(T, B, D))[0], theirs(normal(T, B, D))[0], rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        ours.parametrizations.weight_hh_l0.original0 *= 2
        theirs.weight_hh_l0 *= 2
    torch.testing.assert_close(ours(normal(T, B, D))[0], theirs(normal(T, B, D))[0], rtol=1e-12, atol=1e-12)
    ours(normal(T, B, D))[0].sum().backward()
    assert ours.parametrizations.weight_hh_l0.original1.grad is not None

    orthogonal = torch.nn.utils.parametrizations.orthogonal(rnncore.RNN(D, H), "weight_hh_l0")
    orthogonal(normal(T, B, D).float())[0].sum().backward()
    W = orthogonal.weight_hh_l0
    torch.testing.assert_close(W @ W.T, torch.eye(H))
    pruned = torch.nn.utils.prune.l1_unstructured(rnncore.GRU(D, H), "weight_ih_l0", amount=0.5)
    pruned(normal(T, B, D).float())[0].sum().backward()
    assert (pruned.weight_ih_l0_orig.grad != 0).float().mean() <= 0.5


@every_layer
def test_compiled_and_traced_layers_give_the_same_numbers(kind, options):
    ours, _ = pair(kind, **options)
    x = normal(T, B, D)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    assert_same(run(compiled, x), run(ours, x), 1e-13, 1e-12)
    exported = torch.export.export(ours, (x,)).module()
    torch.testing.assert_close(exported(2 * x)[0], ours(2 * x)[0], rtol=1e-12, atol=1e-12)


def test_weights_of_another_dtype_are_refused_not_converted():
    ours, _ = pair("RNN")
    ours.weight_hh_l0 = torch.nn.Parameter(ours.weight_hh_l0.float())
    with pytest.raises(RuntimeError, match="dtype"):
        ours(normal(T, B, D))


def test_an_overflow_is_silent_and_seen_in_the_result_and_nan_stays_nan():
    ours, theirs = pair("RNN", nonlinearity="relu")
    with torch.no_grad():
        for module in (ours, theirs):
            module.weight_hh_l0.fill_(1e200)
    x = normal(T, B, D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = ours(x)[0], theirs(x)[0]
    assert not torch.isfinite(expected).all()
    torch.testing.assert_close(found, expected, equal_nan=True)
    for function in (rnncore.rnn_forward, rnncore.rnn_step):
        x, h = (torch.zeros(1, 1, 1), torch.zeros(1, 1)) if function is rnncore.rnn_forward else torch.zeros(2, 1, 1)
        one = torch.ones(1, 1)
        assert torch.isnan(function(x * np.nan, h, one, one, one[0], "relu")).all()


@every_layer
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_recomputes_the_layer(kind, options, reentrant):
    found = []
    for module in pair(kind, **options):
        x = normal(T, B, D).requires_grad_()
        checkpoint(module, x, use_reentrant=reentrant)[0].sum().backward()
        found.append(grads_of(x, module))
    assert_same(*found)


@every_layer
@pytest.mark.parametrize("around", ["a checkpoint", "saved tensors on the CPU"])
def test_a_gradients_penalty_may_stand_in_whatever_watches_the_saved_tensors(kind, options, around):
    found = []
    for module in pair(kind, **options):
        x = normal(T, B, D).requires_grad_()

        def penalty(x, module=module):
            (gradient,) = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)
            return gradient.square().sum()

        if around == "a checkpoint":
            checkpoint(penalty, x, use_reentrant=False).backward()
        else:
            with torch.autograd.graph.save_on_cpu():
                penalty(x).backward()
        found.append(grads_of(x, module))
    assert_same(*found)


@every_layer
def test_a_layer_that_keeps_its_own_output_can_go(kind, options):
    ours, _ = pair(kind, **options)
    ours.last = ours(normal(T, B, D))[0]
    reference = weakref.ref(ours)
    del ours
    gc.collect()
    assert reference() is None


@every_layer
def test_gradients_and_outputs_are_tensors_like_any_other(kind, options):
    ours, _ = pair(kind, num_layers=2, **options)
    x, hx = normal(T, B, D).requires_grad_(), leaf(states_for(ours, B))[0]
    output = ours(x, hx)
    wanted = [x, *(t for t in (hx if isinstance(hx, tuple) else [hx])), *ours.parameters()]
    for gradient in torch.autograd.grad(output[0].sum(), wanted):
        assert gradient.is_contiguous()
    output[0].detach().resize_(1)


@every_layer
def test_gradients_may_be_batched_dual_or_traced_though_the_forward_was_not(kind, options):
    found = []
    for module in pair(kind, **options):
        x = normal(2, B, D).requires_grad_()  # two steps: all of them are compiled
        output = module(x)[0]
        many = normal(3, *output.shape, seed=5)
        (batched,) = torch.autograd.grad(output, x, many, is_grads_batched=True, retain_graph=True)
        mapped = torch.vmap(lambda g, o=output, x=x: torch.autograd.grad(o, x, g, retain_graph=True)[0])(many)
        jacobian = torch.autograd.functional.jacobian(lambda x, m=module: m(x)[0], x, vectorize=True)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(many[0], many[1])
            (gradient,) = torch.autograd.grad(output, x, dual, retain_graph=True)
            tangent = torch.autograd.forward_ad.unpack_dual(gradient).tangent
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            output.sum().backward()
        found.append(([], [batched, mapped, jacobian, tangent, x.grad, *(p.grad for p in module.parameters())]))
    assert_same(*found)


@every_layer
def test_a_layer_is_exported_for_any_size_of_batch(kind, options):
    ours, _ = pair(kind, **options)
    sizes = ({1: torch.export.Dim("B", min=2, max=64)},)
    exported = torch.export.export(ours, (normal(T, B, D),), dynamic_shapes=sizes).module()
    x = normal(T, 7, D)
    torch.testing.assert_close(exported(x)[0], ours(x)[0], rtol=1e-12, atol=1e-12)


# Wrong input: named, never answered.


def test_wrong_options_are_named():
    for kind, *_ in (*LAYERS, *CELLS):
        for name, bad in [("input_size", 0), ("input_size", 2.0), ("hidden_size", -1), ("hidden_size", "4"),
                          ("hidden_size", True), ("bias", 1), ("bias", torch.ones(2)), ("dtype", torch.int64),
                          ("dtype", torch.complex64), ("dtype", "float32"), ("dtype", np.dtype("float32")),
                          ("dtype", []), ("device", "nowhere"), ("device", 1.5), ("device", "cpu:x")]:  # fmt: skip
            with pytest.raises((TypeError, ValueError), match=f"{name} is .*expected"):
                getattr(rnncore, kind)(**({"input_size": D, "hidden_size": H} | {name: bad}))
    for kind in ("RNN", "GRU", "LSTM"):
        for name, bad in [("num_layers", 0), ("num_layers", 1.5), ("dropout", 1.5), ("dropout", True),
                          ("dropout", "0.5"), ("batch_first", "yes"), ("bidirectional", 2)]:  # fmt: skip
            with pytest.raises((TypeError, ValueError), match=f"{name} is .*expected"):
                getattr(rnncore, kind)(D, H, **{name: bad})
    for bad in (-1, H, H + 1, 1.0):
        with pytest.raises((TypeError, ValueError), match=r"proj_size is .*expected"):
            rnncore.LSTM(D, H, proj_size=bad)
    for kind, options, message in [
        ("GRU", {"num_layers": 0}, "num_layers is 0; expected a whole number of at least 1"),
        (
            "LSTM",
            {"proj_size": H},
            f"proj_size is {H}; expected a whole number of at least 0 and below hidden_size, {H}",
        ),
    ]:
        with pytest.raises(ValueError) as caught:
            getattr(rnncore, kind)(D, H, **options)
        assert str(caught.value) == message
    for kind in ("RNN", "RNNCell"):
        for bad, shown in [("sigmoid", "'sigmoid'"), (None, "None"), (np.array(["tanh"]), "array")]:
            with pytest.raises(ValueError, match=f"nonlinearity is {shown}.*; expected 'tanh' or 'relu'"):
                getattr(rnncore, kind)(D, H, nonlinearity=bad)
    assert rnncore.LSTM(D, H, bidirectional=np.True_)(normal(T, B, D).float())[0].shape == (T, B, 2 * H)
    with pytest.warns(UserWarning, match="dropout") as caught:
        rnncore.GRU(D, H, dropout=0.5)
    assert caught[0].filename == __file__, "the warning points at the line that made the layer"


x64 = torch.zeros(T, B, D, dtype=torch.float64)
WRONG_INPUTS = {
    "a list": ([[0.0] * D], TypeError, "input is a list; expected a PyTorch tensor"),
    "NumPy": (np.zeros((T, B, D)), TypeError, "input is a NumPy array; expected a PyTorch tensor"),
    "four axes": (x64[None], ValueError, "input has 4 axes.*expected 3"),
    "one axis": (x64[0, 0], ValueError, "input has 1 axes.*expected 3"),
    "features": (
        x64[..., :2],
        ValueError,
        r"input has shape \(5, 3, 2\); expected \(T, B, D\) with D = 4 from input_size",
    ),
    "float32": (x64.float(), TypeError, "input has dtype torch.float32; expected torch.float64, that of the weights"),
    "integers": (x64.long(), TypeError, "input has dtype torch.int64; expected float32 or"),
    "complex": (x64 * 1j, TypeError, "input has dtype torch.complex128; expected float32 or"),
    "device": (x64.to("meta"), ValueError, "input is on device meta; expected cpu"),
    "no step": (x64[:0], ValueError, "input has no time step"),
    "nothing": (None, TypeError, "input is a NoneType"),
    "sparse": (x64.to_sparse(), TypeError, "input is a sparse or nested tensor, not a dense one; expected a PyTorch"),
    "nested": (
        torch.nested.nested_tensor(list(x64), layout=torch.jagged),
        TypeError,
        "input is a sparse or nested tensor, not a dense one",
    ),
    "sizes that do not sum": (
        PackedSequence(x64[0], torch.tensor([1, 1])),
        ValueError,
        r"input.batch_sizes is \[1, 1\]; expected sizes that never grow and sum to 3, the rows of input.data",
    ),
    "sizes that grow": (PackedSequence(x64[0], torch.tensor([1, 2])), ValueError, r"input.batch_sizes is \[1, 2\]"),
    "sizes below 0": (PackedSequence(x64[0], torch.tensor([4, -1])), ValueError, r"input.batch_sizes is \[4, -1\]"),
    "no sizes": (PackedSequence(x64[0], torch.tensor([], dtype=torch.int64)), ValueError, r"input.batch_sizes is \[\]"),
    "too many places": (
        PackedSequence(x64[0], torch.tensor([2, 1]), torch.tensor([1, 0, 2]), torch.tensor([1, 0])),
        ValueError,
        "input.sorted_indices has 3 entries; expected 2, batch_sizes",
    ),
}


@every_module
def test_a_weight_of_another_shape_is_named(kind, options):
    x = x64[0] if kind.endswith("Cell") else x64
    for name in dict(pair(kind, **options)[0].named_parameters()):
        ours, _ = pair(kind, **options)
        right = getattr(ours, name)
        for wrong in (right[None], right[..., None], right[:1]):
            setattr(ours, name, torch.nn.Parameter(wrong.detach()))
            expected = f"{name} has shape {tuple(wrong.shape)}; expected {tuple(right.shape)}"
            with pytest.raises(ValueError, match=re.escape(expected)):
                ours(x)


@every_layer
@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_a_wrong_input_is_named(kind, options, wrong):
    input, error, message = WRONG_INPUTS[wrong]
    with pytest.raises(error, match=message):
        pair(kind, **options)[0](input)


@every_layer
@pytest.mark.parametrize("packed", [True, False])
def test_a_wrong_initial_state_is_named(kind, options, packed):
    ours, _ = pair(kind, num_layers=2, bidirectional=True, **options)
    x = pack_padded_sequence(x64, [2, 5, 3], enforce_sorted=False) if packed else x64
    right = states_for(ours, B)
    name = "hx" if ours._network.states == 1 else r"hx\[1\]"
    for change, error in [(lambda s: s[:2], ValueError), (lambda s: s[:, :2], ValueError),
                          (lambda s: s[..., :1], ValueError), (lambda s: s[0], ValueError),
                          (lambda s: s.float(), TypeError), (lambda s: s.tolist(), TypeError),
                          (lambda s: s.to("meta"), ValueError), (lambda s: s.numpy(), TypeError)]:  # fmt: skip
        wrong = change(right) if ours._network.states == 1 else (right[0], change(right[1]))
        with pytest.raises(error, match=f"{name} (is|has) .*; expected"):
            ours(x, wrong)
    with pytest.raises(ValueError) as caught:
        ours(x, right[:, :2] if ours._network.states == 1 else (right[0][:, :2], right[1]))
    origin = "B = 3 from input" + ".batch_sizes" * packed
    assert str(caught.value).startswith(f"hx{'[0]' * (name != 'hx')} has shape (4, 2, ") and origin in str(caught.value)
    if ours._network.states == 2:
        for wrong in (right[0], (right[0],), 5, [*right, right[0]]):
            with pytest.raises(TypeError, match=r"hx is .*expected a pair"):
                ours(x, wrong)
    else:
        with pytest.raises(TypeError, match="hx is a tuple"):
            ours(x, (right, right))


@every_cell
def test_a_cells_wrong_arguments_are_named(kind, options):
    ours, _ = pair(kind, **options)
    x, right = x64[0], states_for(ours, B)
    for wrong, error in [(x64, ValueError), (x[:, :2], ValueError), (x.float(), TypeError), (x.numpy(), TypeError),
                         (x.to("meta"), ValueError), ([1.0], TypeError), (x.sum(), ValueError)]:  # fmt: skip
        with pytest.raises(error, match=r"input (is|has) .*; expected"):
            ours(wrong)
    name = "hx" if ours._network.states == 1 else r"hx\[0\]"
    for change, error in [(lambda s: s[:2], ValueError), (lambda s: s[..., :1], ValueError),
                          (lambda s: s[0], ValueError), (lambda s: s.float(), TypeError),
                          (lambda s: s.tolist(), TypeError)]:  # fmt: skip
        wrong = change(right) if ours._network.states == 1 else (change(right[0]), right[1])
        with pytest.raises(error, match=f"{name} (is|has) .*; expected"):
            ours(x, wrong)
    square = torch.zeros(H, H, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"{name} has 2 axes, shape \({H}, {H}\); expected 1, \(H,\)"):
        ours(x[0], square if ours._network.states == 1 else (square, square))


sizes = st.lists(st.sampled_from([0, 1, 2, 3, D, H]), min_size=0, max_size=4)
tensors = st.builds(
    lambda shape, dtype, seed: normal(*shape, seed=seed).to(dtype),
    sizes,
    st.sampled_from([torch.float64, torch.float64, torch.float64, torch.float32, torch.int64]),
    st.integers(0, 3),
)
states = st.one_of(st.none(), tensors, st.tuples(tensors, tensors), st.just([]), st.just("h0"))


@given(st.sampled_from([*LAYERS, *CELLS]), tensors, states, st.booleans())
@settings(max_examples=1500, deadline=None)
def test_any_call_gives_torchs_answer_or_a_named_error(which, input, hx, transposed):
    kind, options = which
    ours, theirs = pair(kind, **options, **({} if "Cell" in kind else {"batch_first": transposed}))
    # for a single input torch's cells take a square matrix as the state: RNNCell broadcasts it, LSTMCell may crash
    matrix = any(isinstance(s, torch.Tensor) and s.ndim == 2 for s in (hx if isinstance(hx, tuple) else [hx]))
    try:
        expected = None if "Cell" in kind and input.ndim == 1 and matrix else flat(theirs(input, hx))
    except Exception:
        expected = None
    try:
        found = flat(ours(input, hx))
    except (TypeError, ValueError) as error:
        stricter = isinstance(hx, torch.Tensor) and "expected a pair" in str(error)  # torch unpacks a tensor (2, …)
        assert expected is None or stricter, f"torch answers, rnncore says: {error}"
        assert re.match(r"(input|hx)(\[[01]\])? (is|has) .*; expected", str(error))
    else:
        assert expected is not None, "rnncore answers what torch refuses"
        assert_same((found, []), (expected, []))
