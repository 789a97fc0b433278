"""RNN, IRNN, GRU and LSTM compared on five tasks, beside a small TCN and a linear model, by one fixed protocol.

Every network has as many parameters as its task allows, or as near as a whole number of units comes. Every one gets the
same tuning: five learning rates, three seeds each; the rate with the lowest median of validation errors is taken, a run
that diverged counting as infinitely bad. With it six fresh seeds are trained, and each is tested once, with the weights
at which its validation error was lowest. The same seed means the same batches for every network.
`python -m experiments.compare` writes data/compare.json; what is there already for the same settings is not run again,
so an interrupted run goes on where it stopped. `--jobs 2` trains two networks at a time.
"""

import argparse
import copy
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import rnncore
from experiments import reach, runs, tasks

RESULTS = Path(__file__).resolve().parent.parent / "data" / "compare.json"
UNITS = ["linear", "TCN", "tanh RNN", "IRNN", "GRU", "LSTM"]
STARTS = {"tanh RNN": "RNN", "IRNN": "identity, ReLU", "GRU": "GRU", "LSTM": "LSTM, f 1"}  # as reach.py names them
BLOCKS = {"tanh RNN": 1, "IRNN": 1, "GRU": 3, "LSTM": 4}
PARAMETERS = {"digits": 5000, "characters": 10000, "adding 50": 5000, "copy": 5000, "adding 200": 5000}
UPDATES = {"digits": 1500, "characters": 1500, "adding 50": 800, "copy": 3000, "adding 200": 1000}
RATES = [0.001, 0.003, 0.01, 0.03, 0.1]
TUNED, TESTED = (0, 1, 2), (10, 11, 12, 13, 14, 15)  # seeds
LARGEST_NORM, CHECKS = 1.0, 20
SAME_SIZE = "characters"  # where RNN and GRU are tried with as many units as the LSTM, too
SAME_UNITS = ["tanh RNN, H of LSTM", "GRU, H of LSTM"]


def main(arguments):
    """Run what is missing and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=[*PARAMETERS], default=[*PARAMETERS], help="(default: all)")
    parser.add_argument("--units", nargs="+", choices=[*UNITS, *SAME_UNITS], default=[*UNITS, *SAME_UNITS])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates of the tuning")
    parser.add_argument("--share", type=float, default=1.0, help="share of each task's updates (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="networks that are trained at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file to write, and to go on from")
    told = parser.parse_args(arguments)
    if not 0 < told.share <= 1:
        parser.error(f"--share must be above 0 and at most 1; {told.share} came")
    if told.jobs < 1:
        parser.error(f"--jobs must be at least 1; {told.jobs} came")
    if min(told.rates) <= 0:
        parser.error(f"--rates must be above 0; {min(told.rates)} came")
    updates = {name: CHECKS * max(1, round(told.share * count / CHECKS)) for name, count in UPDATES.items()}
    settings = {"parameters": PARAMETERS, "updates": updates, "rates": told.rates}
    settings |= {"tuned with seeds": [*TUNED], "tested with seeds": [*TESTED], "clipped to": LARGEST_NORM}

    def complete(wanted):
        runs.complete(parser, told.out, "experiments/compare.py", settings, wanted, learn, told.jobs)

    for task in told.tasks:
        units = [unit for unit in told.units if unit in UNITS or task == SAME_SIZE]
        groups = [{"task": task, "unit": unit, "updates": updates[task]} for unit in units]
        complete([group | {"rate": rate, "seed": seed} for seed in TUNED for rate in told.rates for group in groups])
        found = json.loads(told.out.read_text("utf-8"))["runs"]
        rates = [best_rate(found, task, unit) for unit in units]
        chosen = [group | {"rate": rate} for group, rate in zip(groups, rates, strict=True)]
        complete([group | {"seed": seed} for seed in TESTED for group in chosen])
    return 0


def best_rate(found, task, unit):
    """Return the learning rate with the lowest median validation error over the seeds of the tuning."""
    mine = [run for run in found if (run["task"], run["unit"]) == (task, unit) and run["seed"] in TUNED]
    errors = {
        rate: [math.inf if run["valid"] is None else run["valid"] for run in mine if run["rate"] == rate]
        for rate in sorted({run["rate"] for run in mine})
    }
    return min(errors, key=lambda rate: np.median(errors[rate]))


class Network(nn.Module):
    """Scores (B, T, C) at every step of x (B, T, D): a layer of one kind, and a linear readout where it has a state."""

    def __init__(self, unit, task, budget):
        super().__init__()
        kind, _, size = unit.partition(", ")
        if kind == "linear":
            self.H, self.layer, self.readout = None, Linear(task.D, task.C, task.window), nn.Identity()
            return
        self.H = best_size(size.removeprefix("H of ") or kind, task, budget)
        if kind == "TCN":
            self.layer = TCN(task.D, self.H, task.window)
        else:
            self.layer = reach.network(STARTS[kind], task.D, self.H)
        self.readout = nn.Linear(self.H, task.C)

    def forward(self, x):
        """Return the scores."""
        hs = self.layer(x)
        return self.readout(hs[0] if isinstance(hs, tuple) else hs)


class Linear(nn.Module):
    """A weighted sum of the last `window` inputs: linear or logistic regression, by what the loss makes of it."""

    def __init__(self, D, C, window):
        super().__init__()
        self.window, self.sums = window, nn.Conv1d(D, C, window)

    def forward(self, x):
        """Return the sums at every step, x (B, T, D) -> (B, T, C)."""
        return self.sums(F.pad(x.mT, (self.window - 1, 0))).mT


class TCN(nn.Module):
    """Causal convolutions of three inputs, 1, 2, 4 ... steps apart, each added to what it read.

    A small form of the network of Bai, Kolter and Koltun (2018): one convolution a block, no dropout.
    """

    def __init__(self, D, channels, window):
        super().__init__()
        sizes = [D, *[channels] * levels(window)]
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, 3, dilation=2**k) for k, (a, b) in enumerate(itertools.pairwise(sizes))
        )

    def forward(self, x):
        """Return what the last layer gives at every step, x (B, T, D) -> (B, T, channels)."""
        x = x.mT
        for causal in self.layers:
            y = F.relu(causal(F.pad(x, (2 * causal.dilation[0], 0))))
            x = x + y if x.shape == y.shape else y
        return x.mT


def levels(window):
    """Return how many layers see `window` steps: L of them see 1 + 2 (2^L - 1)."""
    return math.ceil(math.log2((window + 1) / 2))


def parameters(unit, task, H):
    """Return how many numbers a network of H units or channels learns."""
    if unit == "TCN":
        return H * (3 * task.D + 1) + (levels(task.window) - 1) * H * (3 * H + 1) + task.C * (H + 1)
    return BLOCKS[unit] * H * (task.D + H + 2) + task.C * (H + 1)


def best_size(unit, task, budget):
    """Return the number of units whose parameters come nearest to the budget."""
    return min(range(1, 500), key=lambda H: abs(parameters(unit, task, H) - budget))


def learn(task, unit, rate, seed, updates):
    """Train one network; return one run, in a list. A run that diverged has None for its errors from there on."""
    name, task = task, tasks.task(task)
    torch.manual_seed(seed)
    network = Network(unit, task, PARAMETERS[name])
    drawn = tasks.seeded(10**4 + seed)  # of its own, so that every network gets the same batches
    optimiser = torch.optim.Adam(network.parameters(), rate)
    run = {"task": name, "unit": unit, "rate": rate, "seed": seed, "updates": updates, "H": network.H}
    run["parameters"] = sum(p.numel() for p in network.parameters())
    kept, best, curve = None, math.inf, []
    far = [reached(network, task)]
    for update in range(1, updates + 1):
        x, y = task.batch(drawn)
        optimiser.zero_grad()
        task.loss(network(x), y).backward()
        nn.utils.clip_grad_norm_(network.parameters(), LARGEST_NORM)
        optimiser.step()
        if update % (updates // CHECKS) == 0:
            error = measured(network, task, *task.valid)
            curve.append(error)
            if error is not None and error < best:
                best, kept, run["best at"] = error, copy.deepcopy(network.state_dict()), update
    run["valid"] = None if kept is None else best
    if seed in TUNED:
        return [run]
    if kept:
        network.load_state_dict(kept)
    sets = {"test": task.test, **task.elsewhere}
    run |= {where: measured(network, task, *each) for where, each in sets.items()}
    return [run | {"reach": [*far, reached(network, task)], "curve": curve}]


def measured(network, task, x, y):
    """Return the error on a set, None where it is no number."""
    with torch.no_grad():
        error = task.error(network(x), y).item()
    return float(f"{error:.4g}") if math.isfinite(error) else None


def reached(network, task):
    """Return log₁₀ of the first input's gradient over the last one's, for a random row times h_T.

    None for a network without a state, and where a gradient is zero or no number.
    """
    if not isinstance(network.layer, rnncore.RNN | rnncore.GRU | rnncore.LSTM):
        return None
    row = torch.randn(network.H, generator=tasks.seeded(0))
    found = reach.reach(network.layer, task.valid[0][:64], lambda h: (h @ row).sum())
    return found if math.isfinite(found) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
