"""rnncore keeps to its tensors' device: everything is run on one that is not the CPU and cannot be read from it.

Where there is no GPU, this still shows that no function makes a tensor elsewhere than its arguments are, brings one
back or waits for one. PyTorch's fake tensors have a shape, a dtype and a device but no numbers: mixing devices and
reading a number are errors. A backend stays registered as long as its process lives, so all cases run in one of theirs.
"""

import json
import subprocess
import sys
from functools import partial
from inspect import signature
from itertools import product

import numpy as np
import pytest
import torch
from calls import CELLS, FUNCTIONS, LAYERS, B, D, H, T, flat, normal, right_arguments, run, states_for, to
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import rnncore

AWAY = "elsewhere"
BATCH_SIZES = torch.tensor([3, 2, 1, 1])  # real: a packed sequence keeps them on the CPU, whatever its device
OPTIONS = {
    "plain": {},
    "every option": {"num_layers": 2, "bidirectional": True, "dropout": 0.3, "batch_first": True},
    "no bias": {"bias": False},
}
FORMS = ["batched", "one sequence", "packed", "packed and sorted"]
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


class Stays(TorchDispatchMode):
    """Refuses to copy a tensor to the CPU, which fake tensors allow."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if args and isinstance(args[0], torch.Tensor) and args[0].device.type == AWAY:
            assert torch.device(kwargs.get("device") or AWAY).type == AWAY, f"{function} copies to {kwargs['device']}"
        return function(*args, **kwargs)


def away(*shape):
    """Return a tensor of the other device."""
    return torch.empty(*shape, device=AWAY, dtype=torch.float64)


def assert_away(tensors):
    assert tensors
    assert {t.device.type for t in tensors if t is not None} == {AWAY}


def equation(function, optional):
    arguments = right_arguments(function)
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            left_out = function.takes[name].endswith("or None") and not optional
            arguments[name] = None if left_out else away(*value.shape).requires_grad_()
    if optional and "with_cache" in signature(function).parameters:
        arguments["with_cache"] = True
    found = function(**arguments)
    found = flat(tuple(found.values()) if isinstance(found, dict) else found)
    wanted = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    assert_away([*found, *torch.autograd.grad(sum(t.sum() for t in found), wanted, allow_unused=True)])


def layer(kind, options, form, with_state):
    module = getattr(rnncore, kind)(D, H, device=AWAY, dtype=torch.float64, **options)
    order = torch.empty(B, device=AWAY, dtype=torch.int64) if form == "packed" else None
    shape = {"batched": (B, T, D) if module.batch_first else (T, B, D), "one sequence": (T, D)}.get(form)
    input = away(*shape) if shape else PackedSequence(away(7, D), BATCH_SIZES, order, order)
    hx = to(AWAY, states_for(module, *(() if form == "one sequence" else (B,)))) if with_state else None
    outputs, gradients = run(module, input, hx)
    assert_away([*(t for t in outputs if t is not BATCH_SIZES), *gradients])


def cell(kind, options, with_state):
    module = getattr(rnncore, kind)(D, H, device=AWAY, dtype=torch.float64, **options)
    outputs, gradients = run(module, away(B, D), to(AWAY, states_for(module, B)) if with_state else None)
    assert_away([*outputs, *gradients])


def clipping():
    gradients, norm = rnncore.clip_by_global_norm([away(3, 4), away(5)], 1.0)
    assert_away([*gradients, norm])


def every_state(kind, options):
    module = getattr(rnncore, kind)(D, H, device=AWAY, dtype=torch.float64, **options)
    assert_away([rnncore.state_gradients(module, away(B, T, D), lambda hs: hs[:, -1].sum())])


def initialisers():
    assert_away([fill(away(H, H)) for fill in (rnncore.orthogonal_, rnncore.identity_, rnncore.xavier_)])
    assert_away(list(rnncore.set_forget_bias_(rnncore.LSTM(D, H, device=AWAY), 1.0).parameters()))
    assert_away(list(rnncore.set_update_bias_(rnncore.GRU(D, H, device=AWAY), 1.0).parameters()))


class Letters(torch.nn.Module):
    """Reads tokens and tells the next."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, D, device=AWAY)
        self.layer = rnncore.GRU(D, H, batch_first=True, device=AWAY)
        self.read_out = torch.nn.Linear(H, 7, device=AWAY)

    def forward(self, tokens, state):
        hs, state = self.layer(self.embed(tokens), state)
        return self.read_out(hs), state


def sampling(temperature):
    tokens = rnncore.generate(Letters(), torch.zeros(3, 4, dtype=torch.int64), 6, temperature)
    assert_away([tokens])
    assert tokens.shape == (3, 6)


def wrong_device():
    with pytest.raises(ValueError, match=f"W_xh is on device cpu; expected {AWAY}:0, that of x"):
        rnncore.rnn_step(away(3, 2), away(3, 5), normal(5, 2), away(5, 5), away(5))
    with pytest.raises(ValueError, match=f"input is on device cpu; expected {AWAY}:0, that of the weights"):
        rnncore.GRU(D, H, device=AWAY)(torch.empty(T, B, D))


def noticed(function):
    with pytest.raises((RuntimeError, AssertionError)):
        function(away(3, 5))


def all_cases():
    """Yield the name of every case and its function."""
    for function in FUNCTIONS:
        yield f"{function.__name__}, all arguments", partial(equation, function, True)
        if any(axes.endswith("or None") for axes in function.takes.values()):
            yield f"{function.__name__}, none that may be left out", partial(equation, function, False)
    for (kind, options), form, with_state in product(LAYERS, FORMS, (True, False)):
        start = "with state" if with_state else "without state"
        for named, more in OPTIONS.items():
            name = " ".join([kind, *map(str, options.values())])
            yield f"{name}, {named}, {form}, {start}", partial(layer, kind, options | more, form, with_state)
    for (kind, options), with_state in product(CELLS, (True, False)):
        name = " ".join([kind, *options.values()])
        yield f"{name}, {'with' if with_state else 'without'} state", partial(cell, kind, options, with_state)
    for kind, options in LAYERS[:-1]:
        yield f"state_gradients of {kind} {' '.join(options.values())}", partial(every_state, kind, options)
    for temperature in (0, 0.7):
        yield f"generate at temperature {temperature}", partial(sampling, temperature)
    yield "clip_by_global_norm", clipping
    yield "initialisers", initialisers
    yield "an argument on the CPU is named", wrong_device
    for way, function in BROUGHT_BACK.items():
        yield f"it would be noticed: {way}", partial(noticed, function)


def run_all():
    """Run every case on the other device; return {its name: what went wrong, or ""}."""
    _setup_privateuseone_for_python_backend(AWAY)
    outcomes = {}
    for name, function in all_cases():
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


@pytest.mark.parametrize("name", [name for name, _ in all_cases()])
def test_everything_stays_on_the_device(name, outcomes):
    assert outcomes[name] == ""


if __name__ == "__main__":
    print(json.dumps(run_all()))
