"""Times every exercise's check in this process, and hands in every misconception: `make bench`.

For each exercise the median time of a check that passes, and of the slowest of its misconceptions; a check is to take
less than 0.3 s when it passes and 1 s when it does not. For each misconception the points it earns and whether the
feedback names it, alone. Writes two tables, checks.md and misconceptions.md.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from autograde import exercises
from autograde.checking import verdict
from autograde.diagnose import _expected, _of_misconception

HERE = Path(__file__).resolve().parent


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each (default: 5)")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write to (default: this file's)")
    options = parser.parse_args(arguments)
    lines = [
        "<!-- written by benchmarks/checks.py -->",
        "| exercise | cases | misconceptions | passes, ms | fails, ms |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in exercises.checked():
        exercise = exercises.find(name)
        passes = median(exercise, exercise.reference, options.repeats)
        wrong = [misconception.implementation for misconception in exercise.misconceptions.values()]
        fails = max(median(exercise, answer, options.repeats) for answer in wrong)
        cases = len(exercise.draw())
        lines.append(f"| `{name}` | {cases} | {len(wrong)} | {1e3 * passes:.0f} | {1e3 * fails:.0f} |")
    write(options.out / "checks.md", lines)
    write(options.out / "misconceptions.md", [*lines[:1], *caught()])
    return 0


def write(path, lines):
    """Write a table and print it."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines[1:]), end="\n\n")


def caught():
    """Yield the lines of a table with what becomes of every misconception."""
    yield "| exercise | the answer's result is what one gets when … | it earns | named, alone |"
    yield "|---|---|--:|---|"
    for name in exercises.checked():
        exercise = exercises.find(name)
        for mistake, wrong in exercise.misconceptions.items():
            found = verdict(exercise, wrong.implementation, trusted=True)
            named = f"your result is what one gets when {mistake}. " in str(found)
            yield f"| `{name}` | {mistake} | {found.score:.2f} of {exercise.points} | {'yes' if named else 'NO'} |"


def median(exercise, answer, repeats):
    """Return the median time of a check in seconds, as if it were the first: nothing is remembered."""
    times = []
    for _ in range(repeats):
        _expected.cache_clear()
        _of_misconception.cache_clear()
        start = time.perf_counter()
        verdict(exercise, answer, trusted=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
