"""What the experiments share: a table of runs that is written after each of them, and gone on with when interrupted."""

import datetime
import json
import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm


def options(parser, arguments, *, units, updates, seeds, every, results):
    """Add what every experiment can be told to a parser, and return what it was told; what cannot be is refused."""
    parser.add_argument("--updates", type=int, default=updates, help=f"the budget of a run (default: {updates})")
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how many seeds, from 0 on (default: {seeds})")
    parser.add_argument("--units", nargs="+", choices=units, default=units, help="which units (default: all)")
    parser.add_argument("--out", type=Path, default=results, help="the file to write, and to go on from")
    given = parser.parse_args(arguments)
    if given.updates < every or given.updates % every:
        parser.error(
            f"--updates must be a multiple of {every}, after which the error is measured; {given.updates} came"
        )
    if given.seeds < 1:
        parser.error(f"--seeds must be at least 1; {given.seeds} came")
    return given


def complete(parser, out, script, settings, wanted, run, jobs=1):
    """Run what of the wanted is not in the table `out` yet, `jobs` at a time, each in one thread.

    Each of the wanted is a dictionary with what tells its runs from others; run(**it) returns a list of runs that hold
    it and what came of them. A table with other settings is refused. For more than one job at a time, `run` is a
    module's own function, which other processes can import.
    """
    torch.set_num_threads(1)
    found = {"settings": settings, "runs": []}
    if out.exists():
        found = json.loads(out.read_text("utf-8"))
        if found["settings"] != settings:
            there = ", ".join(f"{name} {found['settings'].get(name)}" for name in settings)
            parser.error(f"{out} holds runs with other settings ({there}); name another file with --out")
    done = [each.items() for each in found["runs"]]
    missing = [each for each in wanted if not any(each.items() <= one for one in done)]
    before, new = found["runs"], {}
    for place, made in tqdm(_made(run, missing, jobs), total=len(missing), unit="run"):
        new[place] = made
        found["runs"] = before + [one for place in sorted(new) for one in new[place]]  # whichever came first
        found["provenance"] = provenance(script)
        lines = ",\n".join(f"  {json.dumps(one)}" for one in found["runs"])
        rest = json.dumps({name: found[name] for name in ("settings", "provenance")}, indent=1)[1:-2]
        out.write_text(f'{{{rest},\n "runs": [\n{lines}\n ]\n}}\n', "utf-8")


def _made(run, wanted, jobs):
    """Yield the place and the runs of each of the wanted: in order in this process, or as they come from others."""
    if jobs == 1:
        yield from ((place, run(**each)) for place, each in enumerate(wanted))
        return
    fresh = multiprocessing.get_context("spawn")  # a fork of a process that has run PyTorch may hang
    with ProcessPoolExecutor(jobs, fresh, torch.set_num_threads, (1,)) as pool:
        places = {pool.submit(run, **each): place for place, each in enumerate(wanted)}
        yield from ((places[done], done.result()) for done in as_completed(places))


def provenance(script):
    """Return what made the results, as far as it may matter."""
    return {
        "written by": script,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "NumPy": np.__version__,
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }


def processor():
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
