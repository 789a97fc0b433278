"""What the networks of the comparison cost: time and memory of one update, numbers that a stream must be kept in.

Times are medians in milliseconds over rounds in which every network has its turn, so that whatever else the machine
does falls on all of them. The memory is what the forward pass keeps for the backward pass. `python -m experiments.cost`
writes data/cost.json within half a minute; leave the machine alone meanwhile.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

from experiments import compare, runs, tasks

RESULTS = Path(__file__).resolve().parent.parent / "data" / "cost.json"


def main(arguments):
    """Measure and write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41, help="(default: 41)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file to write")
    told = parser.parse_args(arguments)
    if told.rounds < 1:
        parser.error(f"--rounds must be at least 1; {told.rounds} came")
    torch.set_num_threads(1)
    rows = [row for name in tqdm(compare.PARAMETERS, unit="task") for row in costs(name, told.rounds)]
    found = {"rounds": told.rounds, "provenance": runs.provenance("experiments/cost.py")}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    told.out.write_text(f'{json.dumps(found, indent=1)[:-2]},\n "costs": [\n{lines}\n ]\n}}\n', "utf-8")
    return 0


def costs(name, rounds):
    """Return {"task", "unit", "H", "parameters", "ms", "kept", "state"} for each network of a task.

    "kept" are bytes for one update with the task's batch, "state" the numbers that must be kept of a stream to go on.
    """
    task = tasks.task(name)
    x, y = task.batch(tasks.seeded(0))
    networks = {unit: compare.Network(unit, task, compare.PARAMETERS[name]) for unit in compare.UNITS}
    optimisers = {unit: torch.optim.Adam(network.parameters()) for unit, network in networks.items()}
    times = {unit: [] for unit in networks}
    for turn in range(rounds + 2):  # two to warm up
        for unit, network in networks.items():
            begun = time.perf_counter()
            optimisers[unit].zero_grad()
            task.loss(network(x), y).backward()
            optimisers[unit].step()
            if turn > 1:
                times[unit].append(1000 * (time.perf_counter() - begun))
    return [
        {
            "task": name,
            "unit": unit,
            "H": network.H,
            "parameters": sum(p.numel() for p in network.parameters()),
            "ms": round(statistics.median(times[unit]), 3),
            "kept": kept(lambda network=network: task.loss(network(x), y)),
            "state": state(unit, network, task),
        }
        for unit, network in networks.items()
    ]


def kept(forward):
    """Return how many bytes a forward pass keeps for its backward pass, memory that is shared counted once."""
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()  # alive until all is counted, so that no address is used twice
    del loss
    return sum(seen.values())


def state(unit, network, task):
    """Return how many numbers of a stream's past a network needs to take the next step."""
    if unit == "linear":
        return task.D * (task.window - 1)
    if unit == "TCN":  # of each layer's input, as many steps back as its dilation spans
        return sum(2 * layer.dilation[0] * layer.in_channels for layer in network.layer.layers)
    return network.H * (2 if unit == "LSTM" else 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
