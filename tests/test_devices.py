"""rnncore keeps to its tensors' device: everything is run on one that is not the CPU and cannot be read from it.

Where there is no GPU, this still shows that no function makes a tensor elsewhere than its arguments are, brings one
back or waits for one. PyTorch's fake tensors have a shape, a dtype and a device but no numbers: mixing devices and
reading a number are errors. A backend stays registered as long as its process lives, so all cases run in one of theirs.
"""

import json
import subprocess
import sys
from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import rnncore

AWAY = "elsewhere"
BATCH_SIZES = torch.tensor([3, 2, 1, 1])  # real: a packed sequence keeps them on the CPU, whatever its device
SIZES = {"B": 3, "T": 4, "D": 2, "H": 5}
EQUATIONS = [name for name, f in vars(rnncore).items() if hasattr(f, "takes") and not name.startswith("_")]
LAYERS = ["RNN", "GRU", "LSTM"]
OPTIONS = {
    "plain": {},
    "every option": {"num_layers": 2, "bidirectional": True, "dropout": 0.3, "batch_first": True},
    "no bias": {"bias": False},
}
FORMS = ["batched", "one sequence", "packed", "packed and sorted"]
CASES = {}


class Stays(TorchDispatchMode):
    """Refuses to copy a tensor to the CPU, which fake tensors allow."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if args and isinstance(args[0], torch.Tensor) and args[0].device.type == AWAY:
            assert torch.device(kwargs.get("device") or AWAY).type == AWAY, f"{function} copies to {kwargs['device']}"
        return function(*args, **kwargs)


def case(name, *arguments):
    """Register a function as a case, with arguments for its parameters."""

    def register(function):
        CASES[name] = lambda: function(*arguments)
        return function

    return register


def away(*shape, **options):
    """Return a tensor of the other device."""
    return torch.empty(*shape, device=AWAY, **options)


def flat(found):
    """Return the tensors in tuples, lists, dictionaries and packed sequences."""
    if isinstance(found, PackedSequence):
        return [found.data]
    if isinstance(found, dict):
        found = list(found.values())
    return [t for one in found for t in flat(one)] if isinstance(found, tuple | list) else [found]


def assert_away(found):
    tensors = flat(found)
    assert tensors
    assert {t.device.type for t in tensors} == {AWAY}


def assert_gradients_away(found, *inputs):
    sum(t.sum() for t in flat(found)).backward()
    assert_away([t.grad for t in inputs])


def equation(name, optional):
    function = getattr(rnncore, name)
    arguments = {}
    for parameter, axes in function.takes.items():
        shape = [int(axis[:-1] or 1) * SIZES[axis[-1]] for axis in axes.removesuffix(" or None").split()]
        left_out = axes.endswith("or None") and not optional
        arguments[parameter] = None if left_out else away(*shape, requires_grad=True)
    if name == "jacobian_product":
        arguments |= {"start": 1, "stop": 3}
    if optional and name in ("gru_forward", "lstm_forward"):
        arguments["with_cache"] = True
    found = function(**arguments)
    assert_away(found)
    used = [tensor for tensor in flat(list(arguments.values())) if isinstance(tensor, torch.Tensor)]
    sum(t.sum() for t in flat(found)).backward()
    assert_away([tensor.grad for tensor in used if tensor.grad is not None])


for name, optional in product(EQUATIONS, (True, False)):
    case(f"{name}, {'all arguments' if optional else 'none that may be left out'}", name, optional)(equation)


def layer(kind, options, form, with_state):
    layer = getattr(rnncore, kind)(2, 5, device=AWAY, **options)
    x, rows = away(3, 4, 2, requires_grad=True), away(7, 2, requires_grad=True)
    order = away(3, dtype=torch.int64) if form == "packed" else None
    inputs = {"batched": x, "one sequence": x[0]}
    input = inputs[form] if form in inputs else PackedSequence(rows, BATCH_SIZES, order, order)
    B = {"batched": 3 if layer.batch_first else 4, "one sequence": None}.get(form, 3)
    directions = layer.num_layers * (1 + layer.bidirectional)
    widths = [layer.proj_size or 5, 5][: 1 + (kind == "LSTM")]
    states = [away(directions, *([B] if B else []), width, requires_grad=True) for width in widths]
    hx = (None if not with_state else tuple(states) if kind == "LSTM" else states[0],)
    found = layer(input, *hx)
    assert_away(found)
    assert_gradients_away(found, x if form in inputs else rows, *(states * with_state), *layer.parameters())


for kind, (named, options), form, with_state in product(LAYERS, OPTIONS.items(), FORMS, (True, False)):
    case(f"{kind}, {named}, {form}, {'with' if with_state else 'no'} state", kind, options, form, with_state)(layer)
for form in FORMS:
    case(f"LSTM, projected, {form}", "LSTM", {"proj_size": 3}, form, True)(layer)


def cell(kind, with_state):
    cell = getattr(rnncore, kind)(2, 5, device=AWAY)
    x, state = away(3, 2, requires_grad=True), away(3, 5, requires_grad=True)
    found = cell(x, *([(state, state) if kind == "LSTMCell" else state] if with_state else []))
    assert_away(found)
    assert_gradients_away(found, x, *([state] * with_state), *cell.parameters())


for kind, with_state in product(["RNNCell", "GRUCell", "LSTMCell"], (True, False)):
    case(f"{kind}, {'with' if with_state else 'no'} state", kind, with_state)(cell)


@case("clip_by_global_norm")
def clip():
    assert_away(rnncore.clip_by_global_norm([away(3, 4), away(5)], 1.0))


for kind in LAYERS:

    @case(f"state_gradients of {kind}", kind)
    def state_gradients(kind):
        layer = getattr(rnncore, kind)(2, 5, device=AWAY)
        assert_away(rnncore.state_gradients(layer, away(3, 4, 2), lambda hs: hs[:, -1].sum()))


@case("initialisers")
def initialisers():
    for fill in (rnncore.orthogonal_, rnncore.identity_, rnncore.xavier_):
        assert_away(fill(away(5, 5)))
    assert_away(list(rnncore.set_forget_bias_(rnncore.LSTM(2, 5, device=AWAY), 1.0).parameters()))
    assert_away(list(rnncore.set_update_bias_(rnncore.GRU(2, 5, device=AWAY), 1.0).parameters()))


class Letters(torch.nn.Module):
    """Reads tokens and tells the next."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 2, device=AWAY)
        self.layer = rnncore.GRU(2, 5, batch_first=True, device=AWAY)
        self.read_out = torch.nn.Linear(5, 7, device=AWAY)

    def forward(self, tokens, state):
        hs, state = self.layer(self.embed(tokens), state)
        return self.read_out(hs), state


for temperature in (0, 0.7):

    @case(f"generate at temperature {temperature}", temperature)
    def generate(temperature):
        tokens = rnncore.generate(Letters(), torch.zeros(3, 4, dtype=torch.int64), 6, temperature)
        assert_away(tokens)
        assert tokens.shape == (3, 6)


@case("an argument on the CPU is named")
def wrong_device():
    with pytest.raises(ValueError, match=f"W_xh is on device cpu; expected {AWAY}:0, that of x"):
        rnncore.rnn_step(away(3, 2), away(3, 5), torch.empty(5, 2), away(5, 5), away(5))
    with pytest.raises(ValueError, match=f"input is on device cpu; expected {AWAY}:0, that of the weights"):
        rnncore.GRU(2, 5, device=AWAY)(torch.empty(4, 3, 2))


BROUGHT_BACK = {
    "to the CPU": lambda a: a.cpu(),
    "as an array": lambda a: a.numpy(),
    "as an array, by force": lambda a: a.numpy(force=True),
    "as a number": lambda a: a.sum().item(),
    "as a condition": lambda a: bool(a.sum() > 0),
    "into a list": lambda a: a.tolist(),
    "mixed by a product": lambda a: a @ torch.empty(5, 2),
    "mixed by a sum": lambda a: a + torch.empty(3, 5),
}
for way, function in BROUGHT_BACK.items():

    @case(f"it would be noticed: {way}", function)
    def noticed(function):
        with pytest.raises((RuntimeError, AssertionError)):
            function(away(3, 5))


def run_all():
    """Run every case on the other device; return {its name: what went wrong, or ""}."""
    _setup_privateuseone_for_python_backend(AWAY)
    outcomes = {}
    for name, function in CASES.items():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), Stays():
                function()
        except (Exception, pytest.fail.Exception) as error:
            outcomes[name] = f"{type(error).__name__}: {error}"
        else:
            outcomes[name] = ""
    return outcomes


@pytest.fixture(scope="module")
def outcomes():
    done = subprocess.run([sys.executable, __file__], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_everything_stays_on_the_device(name, outcomes):
    assert outcomes[name] == ""


if __name__ == "__main__":
    print(json.dumps(run_all()))
