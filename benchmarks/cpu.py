"""Times rnncore's layers against torch.nn's on this machine's CPU: `make bench`.

For each network, dtype, shape and number of threads: first both must give the same numbers, then both are run in random
order, forward alone and forward with backward, and the medians and their ratio are kept. A ratio below 1 means that
rnncore is faster. Writes cpu.json (all figures), cpu.md (a table) and cpu.svg (a drawing) beside this file, for the
book.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch
from matplotlib.figure import Figure

import rnncore
import rnnplot
from publish.figures import inline, scrolling

HERE = Path(__file__).resolve().parent
SHAPES = [(1, 100, 10, 20), (32, 15, 10, 20), (32, 100, 64, 128), (64, 200, 128, 256), (16, 1000, 32, 64)]
FEW = [(1, 1, 64, 256), (2, 50, 64, 256)]  # one step, as when a text is generated, and few sequences: not in the means
NETWORKS = ["RNN", "GRU", "LSTM"]
DTYPES = ["float32", "float64"]
WORK = {"forward": "forward", "both": "forward and backward"}
SECONDS = 3  # at least this long, and at least 10 times, for each pair


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default: 1 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"at least, for each pair (default: {SECONDS})")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this file)")
    parser.add_argument("--quick", action="store_true", help="the two smallest shapes only, to see that it runs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        for row in measured(options):
            print(json.dumps(row), flush=True)
        return 0
    rows = []
    for threads in options.threads:
        print(f"{'':32}{'forward':>30}{'forward and backward':>30}")
        print(f"{f'threads: {threads}':32}{'rnncore   torch.nn   ratio':>30}{'rnncore   torch.nn   ratio':>30}")
        for row in in_process(threads, options):
            rows.append({"threads": threads, **row})
            print(line(row), flush=True)
        print("\n" + means([row for row in rows if row["threads"] == threads]) + "\n")
    record = {"machine": machine(), "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cpu.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    (options.out / "cpu.md").write_text(table(record), "utf-8")
    draw(record, options.out / "cpu.svg")
    print(f"written: cpu.json, cpu.md and cpu.svg in {options.out}")
    return 0


def in_process(threads, options):
    """Yield the rows of a new process: NumPy's number of threads is fixed when it starts."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    command = [sys.executable, str(HERE / "cpu.py"), "--worker", f"--seconds={options.seconds}"]
    command += ["--quick"] * options.quick
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"the benchmark with {threads} threads ended with exit code {process.returncode}")


def measured(options):
    """Yield a row for each network, dtype and shape, with this process's number of threads."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for network in NETWORKS:
        for dtype in DTYPES:
            for B, T, D, H in SHAPES[:2] if options.quick else SHAPES + FEW:
                torch.manual_seed(0)
                ours = getattr(rnncore, network)(D, H, dtype=getattr(torch, dtype))
                theirs = getattr(torch.nn, network)(D, H, dtype=getattr(torch, dtype))
                theirs.load_state_dict(ours.state_dict())
                x, dhs = torch.randn(T, B, D, dtype=ours.weight_ih_l0.dtype), torch.randn(T, B, H).to(ours.weight_ih_l0)
                agree(ours, theirs, x, dhs)
                row = {"network": network, "dtype": dtype, "shape": (B, T, D, H)}
                for work, run in (("forward", forward), ("both", both)):
                    a, b = medians(run, [(ours, x, dhs), (theirs, x, dhs)], options.seconds)
                    row[work] = {"rnncore": a, "torch.nn": b, "ratio": a / b}
                yield row


def forward(layer, x, dhs):
    """Run the layer without keeping a graph."""
    with torch.no_grad():
        layer(x)


def both(layer, x, dhs):
    """Run the layer and its backward, for the gradients of the weights."""
    layer.zero_grad(set_to_none=True)
    layer(x)[0].backward(dhs)


def agree(ours, theirs, x, dhs):
    """Stop unless both layers give the same states and gradients."""
    near = {"rtol": 1e-9, "atol": 1e-9} if x.dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(ours(x)[0], theirs(x)[0], **near)
    both(ours, x, dhs)
    both(theirs, x, dhs)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        scale = float(b.grad.abs().max()) or 1.0  # after one step from zeros no gradient reaches W_hh
        torch.testing.assert_close(a.grad / scale, b.grad / scale, **near)


def medians(run, arguments, seconds):
    """Return the median time of run(*a) for each a of arguments, in seconds; each round runs all, in random order."""
    times, order = [[] for _ in arguments], random.Random(0)  # what runs first leaves a processor's cache to the next
    end = time.perf_counter() + seconds
    while len(times[0]) < 10 or time.perf_counter() < end:
        for some, taken in order.sample(list(zip(arguments, times, strict=True)), len(times)):
            start = time.perf_counter()
            run(*some)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in times]  # the first call warms up


def machine():
    """Return what the figures depend on."""
    cpu = Path("/proc/cpuinfo")
    names = [row.partition(":")[2].strip() for row in cpu.read_text().splitlines() if row.startswith("model name")]
    return {
        "processor": (names or [platform.processor()])[0],
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),  # how fast a tanh is depends on them
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


def counted(rows):
    """Return the rows of which means are taken and which are drawn."""
    return [row for row in rows if tuple(row["shape"]) in SHAPES]


def geometric_mean(rows, work):
    """Return the geometric mean of the ratios."""
    return statistics.geometric_mean(row[work]["ratio"] for row in rows)


def line(row):
    """Return a row as printed, times in milliseconds."""
    name = f"{row['network']} {row['dtype']} {tuple(row['shape'])}"
    cells = [f"{1e3 * t['rnncore']:9.3f} {1e3 * t['torch.nn']:9.3f}  {t['ratio']:7.2f}" for t in (row[w] for w in WORK)]
    return f"{name:<34}" + "  ".join(cells)


def means(rows):
    """Return the geometric means over the shapes, a line for each network and dtype."""
    lines = ["geometric means of the ratios      forward   forward and backward"]
    for network in NETWORKS:
        for dtype in DTYPES:
            some = counted(row for row in rows if row["network"] == network and row["dtype"] == dtype)
            lines.append(
                f"{network:5} {dtype:28} {geometric_mean(some, 'forward'):6.2f} {geometric_mean(some, 'both'):6.2f}"
            )
    return "\n".join(lines)


def table(record):
    """Return the Markdown of the book: the means, and every shape."""
    about, rows = record["machine"], record["rows"]
    counts = sorted({row["threads"] for row in rows})
    header = "| network | B, T, D, H |" + "".join(
        f" forward, {plural(n)} | with backward, {plural(n)} |" for n in counts
    )
    lines = [
        "<!-- written by benchmarks/cpu.py -->",
        f"Measured on {about['processor']} ({plural(about['cores'], 'core')}; {about['instructions']}; "
        f"{about['system']}; PyTorch {about['torch']}, NumPy {about['numpy']}).",
        "",
        "<!-- table -->",
        "",
        header,
        "|---|---|" + "--:|--:|" * len(counts),
    ]
    for network in NETWORKS:
        for dtype in DTYPES:
            some = [row for row in rows if row["network"] == network and row["dtype"] == dtype]
            groups = [(sizes(shape), [r for r in some if tuple(r["shape"]) == shape]) for shape in SHAPES + FEW]
            groups.insert(len(SHAPES), ("**geometric mean**", counted(some)))
            for name, group in groups:
                if group:
                    by_threads = [[row for row in group if row["threads"] == n] for n in counts]
                    lines.append(cells(network, dtype, name, by_threads))
    return "\n".join(lines) + "\n"


def sizes(shape):
    """Return "B, T, D, H" on one line."""
    return ",\N{NO-BREAK SPACE}".join(map(str, shape))


def cells(network, dtype, shape, groups):
    """Return a row of the table: the mean ratios of each group of rows."""
    ratios = [f"{geometric_mean(group, work):.2f}" for group in groups for work in WORK]
    return f"| {network} {dtype} | {shape} | " + " | ".join(ratios) + " |"


def plural(count, word="thread"):
    """Return "1 thread", "2 threads"."""
    return f"{count} {word}{'s' * (count != 1)}"


def draw(record, path):
    """Draw the ratios for the first number of threads, and write them as an element of a page."""
    rnnplot.use_style()
    threads = record["rows"][0]["threads"]
    rows = counted(row for row in record["rows"] if row["threads"] == threads)
    fig = Figure(figsize=(7.2, 3.6))
    axes = fig.subplots(1, 3, sharey=True, sharex=True)
    looks = {("float32", "forward"): ("o", "none"), ("float32", "both"): ("o", None)}
    looks |= {("float64", "forward"): ("s", "none"), ("float64", "both"): ("s", None)}
    colours = {"float32": rnnplot.BLUE, "float64": rnnplot.VERMILION}
    for ax, network in zip(axes, NETWORKS, strict=True):
        ax.axvline(1, color=rnnplot.INK, linewidth=0.8)
        for (dtype, work), (marker, fill) in looks.items():
            some = [row for row in rows if row["network"] == network and row["dtype"] == dtype]
            offset = {"float32": -0.14, "float64": 0.14}[dtype]
            places = [SHAPES.index(tuple(row["shape"])) + offset for row in some]
            label = f"{dtype}, {WORK[work]}"
            ax.plot([row[work]["ratio"] for row in some], places, marker, color=colours[dtype], markersize=6,
                    markerfacecolor=fill or colours[dtype], linestyle="none", label=label)  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
        ax.minorticks_off()
        ax.set_title(network)
        ax.grid(axis="x", linewidth=0.3)
    axes[0].set_yticks(range(len(SHAPES)), [", ".join(map(str, shape)) for shape in SHAPES])
    axes[0].invert_yaxis()
    axes[0].set_ylabel("B, T, D, H")
    axes[1].set_xlabel(f"time of rnncore / time of torch.nn, {plural(threads)} (left of 1: rnncore is faster)")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    fig.savefig(path, format="svg", metadata={"Date": None})
    worst = {n: max(row["both"]["ratio"] for row in rows if row["network"] == n) for n in NETWORKS}
    alt = f"Time of rnncore divided by that of torch.nn, {plural(threads)}, five shapes for each network; the largest "
    alt += "ratios of forward and backward are " + ", ".join(f"{n} {ratio:.2f}" for n, ratio in worst.items()) + "."
    path.write_text(scrolling(inline(path.read_text("utf-8"), "cpu-benchmark", alt)) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
