"""The gradient's reach of eight recurrent networks, before and after training on the adding problem.

The task is that of adding.py: numbers uniform on [0, 1], two marks, the sum of the marked numbers at the last step. The
reach is log₁₀ of ‖dL/dx_1‖ over ‖dL/dx_T‖, root mean squares over a batch: by the inputs, because an LSTM hands on two
things, state and cell. Measured for two losses at the last step: the task's own, and a random row times h_T, whose size
does not shrink when the task is solved. `python -m experiments.reach` writes data/reach.json; what is there already for
the same settings is not run again, so an interrupted run goes on where it stopped.
"""

import argparse
import itertools
import math
import sys
from pathlib import Path

import torch

import rnncore
from experiments import adding, runs

RESULTS = Path(__file__).resolve().parent.parent / "data" / "reach.json"
UNITS = ["RNN", "orthogonal", "identity, ReLU", "GRU", "GRU, z 3", "LSTM", "LSTM, f 1", "LSTM, f 3"]
D, H, T, BATCH, LARGEST_NORM = 2, 32, 50, 32, 1.0
RATES = [0.003, 0.01]  # every unit is tried with both
SOLVED, HELD_OUT, EVERY = 0.01, 1000, 50


def main(arguments):
    """Run what is missing and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=T, help=f"T (default: {T})")
    told = runs.options(parser, arguments, units=UNITS, updates=1000, seeds=3, every=EVERY, results=RESULTS)
    if told.length < 2:
        parser.error("--length must be at least 2, for a mark in either half")
    settings = {"D": D, "H": H, "T": told.length, "batch": BATCH, "clipped to": LARGEST_NORM}
    settings |= {"solved below": SOLVED, "updates": told.updates, "seeds": told.seeds}
    every = itertools.product(range(told.seeds), RATES, told.units)
    wanted = [{"unit": unit, "rate": rate, "seed": seed} for seed, rate, unit in every]

    def run(unit, rate, seed):
        return [learn(unit, rate, seed, told.length, told.updates)]

    runs.complete(parser, told.out, "experiments/reach.py", settings, wanted, run)
    return 0


def network(unit, inputs, size):
    """Return a layer of this unit, drawn from PyTorch's global generator, as it starts."""
    kind = {"R": rnncore.RNN, "G": rnncore.GRU, "L": rnncore.LSTM}.get(unit[0], rnncore.RNN)
    options = {"nonlinearity": "relu"} if unit == "identity, ReLU" else {}
    layer = kind(inputs, size, batch_first=True, **options)
    if unit == "orthogonal":
        rnncore.orthogonal_(layer.weight_hh_l0)
    elif unit == "identity, ReLU":
        rnncore.identity_(layer.weight_hh_l0)
        torch.nn.init.zeros_(layer.bias_ih_l0)
        torch.nn.init.zeros_(layer.bias_hh_l0)
    elif unit == "GRU, z 3":
        rnncore.set_update_bias_(layer, 3.0)
    elif unit[:4] == "LSTM" and len(unit) > 4:
        rnncore.set_forget_bias_(layer, float(unit[-1]))
    return layer


def reach(layer, x, loss):
    """Return log₁₀ of ‖dL/dx_1‖ / ‖dL/dx_T‖; loss is a function of the last states (B, H)."""
    x = x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(loss(layer(x)[0][:, -1]), x)
    sizes = dx.double().square().sum((0, 2)).sqrt()
    return round(torch.log10(sizes[0] / sizes[-1]).item(), 3)


def learn(unit, rate, seed, length, updates):
    """Train one network; return what was measured. "error" is the last held-out one, None if no number any more."""
    torch.manual_seed(1000 * length + seed)
    layer, readout = network(unit, D, H), torch.nn.Linear(H, 1)
    if isinstance(layer, rnncore.RNN):  # as in adding.py, so that a mark can take a unit to where tanh bends
        torch.nn.init.normal_(layer.weight_ih_l0)
    row = torch.randn(H)
    generator = torch.Generator().manual_seed(10**6 + length)
    test, targets = adding.sequences(length, HELD_OUT, generator)
    weights = [*layer.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(weights, lr=rate)

    def measured(when):
        by_task = reach(layer, test[:256], lambda h: ((readout(h)[:, 0] - targets[:256]) ** 2).mean())
        return {f"by the task {when}": by_task, f"by a row {when}": reach(layer, test[:256], lambda h: (h @ row).sum())}

    found, solved, error = measured("before"), None, float("nan")
    for update in range(1, updates + 1):
        x, y = adding.sequences(length, BATCH, torch.default_generator)
        optimiser.zero_grad()
        ((readout(layer(x)[0][:, -1])[:, 0] - y) ** 2).mean().backward()
        torch.nn.utils.clip_grad_norm_(weights, LARGEST_NORM)
        optimiser.step()
        if update % EVERY == 0:
            with torch.no_grad():
                error = ((readout(layer(test)[0][:, -1])[:, 0] - targets) ** 2).mean().item()
            solved = update if solved is None and error < SOLVED else solved
    ended = {"solved at": solved, "error": round(error, 5) if error < float("inf") else None}
    found = {"unit": unit, "rate": rate, "seed": seed} | found | measured("after") | ended
    return {
        name: value if not isinstance(value, float) or math.isfinite(value) else None for name, value in found.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
