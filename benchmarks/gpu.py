"""Times rnncore's layers against cuDNN on a CUDA device: `python benchmarks/gpu.py`.

First float64: both must give the same states and gradients on this device. Then float32, in turn and by CUDA events:
torch.nn by cuDNN, with TF32 (its default for recurrent layers) and without, and rnncore as it is read, call by call
and replayed as a CUDA graph. Writes gpu.md beside this file.
"""

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

import torch

import rnncore

HERE = Path(__file__).resolve().parent
SHAPES = [(1, 100, 10, 20), (32, 100, 64, 128), (64, 200, 128, 256), (16, 1000, 32, 64), (256, 100, 256, 512)]
NETWORKS = ["RNN", "GRU", "LSTM"]
WAYS = ["cuDNN, TF32", "cuDNN", "rnncore", "rnncore, CUDA graph"]


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=20, help="timed runs of each (default: 20)")
    parser.add_argument("--out", type=Path, default=HERE / "gpu.md", help="the file to write")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("There is no CUDA device that this PyTorch can use, so there is nothing to time.", file=sys.stderr)
        print("On a machine with one, install a CUDA build of torch==2.13.0 and run this again.", file=sys.stderr)
        return 2
    name, cudnn = torch.cuda.get_device_name(), torch.backends.cudnn.version()
    lines = [
        "<!-- written by benchmarks/gpu.py -->",
        f"Measured on {name} (PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}): milliseconds, "
        "medians, float32.",
        "",
        "| network | (B, T, D, H) | work | " + " | ".join(WAYS) + " | graph / cuDNN |",
        "|---|---|---|" + "--:|" * (len(WAYS) + 1),
    ]
    print("\n".join(lines))
    for network in NETWORKS:
        for shape in SHAPES:
            for work, times in measured(network, shape, options.repeats):
                figures = [f"{times[way]:.3f}" for way in WAYS] + [f"{times[WAYS[3]] / times[WAYS[1]]:.2f}"]
                lines.append(f"| {network} | {shape} | {work} | " + " | ".join(figures) + " |")
                print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    return 0


def measured(network, shape, repeats):
    """Yield (work, {way: median time in ms}) for the forward alone and with the backward."""
    B, T, D, H = shape
    torch.manual_seed(0)
    ours, theirs = layers(network, D, H, torch.float64)
    agree(ours, theirs, torch.randn(T, B, D, device="cuda", dtype=torch.float64))
    ours, theirs = layers(network, D, H, torch.float32)
    x, dhs = torch.randn(T, B, D, device="cuda"), torch.randn(T, B, H, device="cuda")
    graphed = torch.cuda.make_graphed_callables(layers(network, D, H, torch.float32)[0], (x,))
    layer = dict(zip(WAYS, (theirs, theirs, ours, graphed), strict=True))
    for work, run in (("forward", forward), ("forward and backward", both)):
        runs = {way: partial(run, layer[way], x, dhs, tf32=way == WAYS[0]) for way in WAYS}
        if run is forward:  # a graph of the forward alone
            runs[WAYS[3]] = forward_graph(ours, x).replay
        yield work, medians(runs, repeats)


def layers(network, D, H, dtype):
    """Return rnncore's layer and torch's with the same weights, on the device."""
    ours = getattr(rnncore, network)(D, H, device="cuda", dtype=dtype)
    theirs = getattr(torch.nn, network)(D, H, device="cuda", dtype=dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def agree(ours, theirs, x):
    """Stop unless both give the same states and gradients, to 1e-10."""
    found = [layer(x)[0] for layer in (ours, theirs)]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    gradients = [
        torch.autograd.grad((hs**2).sum(), list(layer.parameters()))
        for hs, layer in zip(found, (ours, theirs), strict=True)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a / b.abs().max(), b / b.abs().max(), rtol=1e-10, atol=1e-10)


def forward(layer, x, dhs, tf32):
    """Run the layer without keeping a graph."""
    torch.backends.cudnn.allow_tf32 = tf32
    with torch.no_grad():
        layer(x)


def both(layer, x, dhs, tf32):
    """Run the layer and its backward, for the gradients of the weights."""
    torch.backends.cudnn.allow_tf32 = tf32
    layer.zero_grad(set_to_none=True)
    layer(x)[0].backward(dhs)


def forward_graph(layer, x):
    """Return the forward, captured as a CUDA graph after a warm-up on a stream of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            layer(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        layer(x)
    return graph


def medians(runs, repeats):
    """Return each function's median time in milliseconds, measured by CUDA events; they are run in turn."""
    times = {way: [] for way in runs}
    for repeat in range(repeats + 3):
        for way, run in runs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            if repeat >= 3:  # the first runs warm up
                times[way].append(start.elapsed_time(end))
    return {way: statistics.median(taken) for way, taken in times.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
