"""The adding problem for four recurrent units: who solves it within a fixed budget, and does gradient reach say so?

Each sequence has two rows, numbers uniform on [0, 1] and marks: a 1 in the first half, a 1 in the second half, else 0.
The target, at the last step only, is the sum of the two marked numbers. Always saying 1 has a mean squared error of
1/6; knowing only one of the two, 1/12. Before training, the gradient's reach is measured: log₁₀ of ‖dL/dh_1‖ over
‖dL/dh_T‖, root mean squares over a batch. `python -m experiments.adding` writes data/adding.json; what is there
already for the same settings is not run again, so an interrupted run goes on where it stopped.
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from experiments import runs

RESULTS = Path(__file__).resolve().parent.parent / "data" / "adding.json"
UNITS = ["tanh", "orthogonal", "identity", "gate"]
LENGTHS = [10, 20, 40, 70, 100]
RATES = [0.003, 0.01]  # every unit is tried with both
D, H, BATCH, LARGEST_NORM = 2, 32, 32, 1.0
Z = 0.98  # of the constant gate: a time scale of 1 / (1 - z) = 50 steps
SOLVED, HELD_OUT, EVERY = 0.01, 1000, 50


def main(arguments):
    """Run what is missing and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="T (default: 10 ... 100)")
    told = runs.options(parser, arguments, units=UNITS, updates=1500, seeds=5, every=EVERY, results=RESULTS)
    if min(told.lengths) < 2:
        parser.error("--lengths must be at least 2, for a mark in either half")
    settings = {"D": D, "H": H, "batch": BATCH, "clipped to": LARGEST_NORM, "z": Z, "solved below": SOLVED}
    settings |= {"updates": told.updates, "seeds": told.seeds}
    every = itertools.product(sorted(told.lengths), RATES, told.units)
    wanted = [{"unit": unit, "rate": rate, "T": T} for T, rate, unit in every]

    def run(unit, rate, T):
        return learn(unit, rate, T, told.seeds, told.updates)

    runs.complete(parser, told.out, "experiments/adding.py", settings, wanted, run)
    return 0


def sequences(T, count, generator):
    """Return x (count, T, 2), numbers and marks, and the sums of the marked numbers (count,)."""
    values = torch.rand(count, T, generator=generator)
    marks, rows = torch.zeros(count, T), torch.arange(count)
    for low, high in ((0, T // 2), (T // 2, T)):
        marks[rows, torch.randint(low, high, (count,), generator=generator)] = 1
    return torch.stack([values, marks], 2), (values * marks).sum(1)


def weights(unit, generator):
    """Return W_xh, W_hh, b_h, W_hy, b_y of one network.

    W_xh is standard normal, so that a mark can take a unit to where tanh bends; the rest is as PyTorch draws it, but
    for what makes the unit.
    """
    bound = H**-0.5
    W_xh = torch.empty(H, D).normal_(generator=generator)
    W_hh, b_h, W_hy = (
        torch.empty(shape).uniform_(-bound, bound, generator=generator) for shape in ((H, H), (H,), (H,))
    )
    if unit == "orthogonal":
        torch.nn.init.orthogonal_(W_hh, generator=generator)
    elif unit == "identity":
        torch.nn.init.eye_(W_hh)
        b_h.zero_()
    return W_xh, W_hh, b_h, W_hy, torch.zeros(1)


def states(unit, x, W_xh, W_hh, b_h):
    """Return the list h_1 ... h_T, each (S, B, H), of S networks side by side; x (S, B, T, D)."""
    sums = torch.einsum("sbtd,shd->tsbh", x, W_xh) + b_h[:, None]
    h, across, found = torch.zeros_like(sums[0]), W_hh.mT, []
    for a_t in sums:
        a = torch.baddbmm(a_t, h, across)
        n = torch.relu(a) if unit == "identity" else torch.tanh(a)
        h = torch.lerp(n, h, Z) if unit == "gate" else n
        found.append(h)
    return found


def errors(unit, x, y, W_xh, W_hh, b_h, W_hy, b_y):
    """Return the mean squared error of each network, (S,), and its states."""
    hs = states(unit, x, W_xh, W_hh, b_h)
    return ((torch.einsum("sbh,sh->sb", hs[-1], W_hy) + b_y - y) ** 2).mean(1), hs


def reach(unit, T, parameters, generators):
    """Return log₁₀ of ‖dL/dh_1‖ / ‖dL/dh_T‖ of each network, (S,), on one batch each."""
    x, y = drawn(T, 256, generators)
    mse, hs = errors(unit, x, y, *parameters)
    first, last = (g.double().square().sum((1, 2)).sqrt() for g in torch.autograd.grad(mse.sum(), (hs[0], hs[-1])))
    return torch.log10(first / last)


def drawn(T, count, generators):
    """Return x (S, count, T, 2) and y (S, count), each network's from its own generator."""
    x, y = zip(*(sequences(T, count, generator) for generator in generators), strict=True)
    return torch.stack(x), torch.stack(y)


def learn(unit, rate, T, seeds, updates):
    """Train one network for each seed, side by side; return a dictionary for each.

    They share nothing: Adam works number by number, and each network's gradients are clipped by their own norm. "error"
    is the last held-out one, None where it is no number any more; "solved at", the first check below the limit.
    """
    generators = [torch.Generator().manual_seed(1000 * T + seed) for seed in range(seeds)]
    each = zip(*(weights(unit, generator) for generator in generators), strict=True)
    parameters = [torch.stack(arrays).requires_grad_() for arrays in each]
    at_start = reach(unit, T, parameters, generators)
    test = drawn(T, HELD_OUT, [torch.Generator().manual_seed(10**6 + T) for _ in range(seeds)])
    optimiser = torch.optim.Adam(parameters, lr=rate)
    solved, held_out = [None] * seeds, []
    for update in tqdm(range(1, updates + 1), desc=f"{unit}, {rate}, T = {T}", leave=False):
        mse, _ = errors(unit, *drawn(T, BATCH, generators), *parameters)
        optimiser.zero_grad()
        mse.sum().backward()
        norms = sum(p.grad.flatten(1).square().sum(1) for p in parameters).sqrt()
        for p in parameters:
            p.grad *= (LARGEST_NORM / (norms + 1e-6)).clamp(max=1).view(-1, *[1] * (p.ndim - 1))
        optimiser.step()
        if update % EVERY == 0:
            with torch.no_grad():
                held_out = errors(unit, *test, *parameters)[0].tolist()
            solved = [
                update if before is None and error < SOLVED else before
                for before, error in zip(solved, held_out, strict=True)
            ]
    return [
        {"unit": unit, "rate": rate, "T": T, "seed": seed, "log10 reach": round(at_start[seed].item(), 3)}
        | {"solved at": solved[seed], "error": round(held_out[seed], 5) if held_out[seed] < np.inf else None}
        for seed in range(seeds)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
