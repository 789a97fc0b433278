"""Changes right code by machine and counts how many changes are noticed: `python benchmarks/mutants.py`.

The answers in the manuscripts are judged by their checks, rnncore.py by its tests. A mutant drops a term, swaps
operands, changes an operator, a number or an axis, leaves out a call or a transposition. Prints every survivor with its
line; writes mutants.md, a table, beside this file.
"""

import argparse
import ast
import copy
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import NamedTuple

import coverage
import hypothesis  # noqa: F401, loaded here and not again in every child
import numpy as np
import pytest
import torch
from tqdm import tqdm

from autograde import exercises
from autograde.checking import verdict
from publish.manuscript import path_of, read, slugs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
UFUNCS = {"add": "subtract", "subtract": "add", "multiply": "add", "maximum": "minimum"}  # operators with a name
SYMMETRIC = {"add", "multiply", "maximum", "max", "min", "swapaxes", "transpose"}  # in their two arguments
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.MatMult: ast.Mult}
COMPARISONS = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
CODE = ROOT / "rnncore.py"
TESTS = [ROOT / "tests" / f"test_{name}.py" for name in ("rnncore", "looking_inside", "layers")]
TOO_LONG = "test_compiled_and_traced_layers_give_the_same_numbers"  # compiles for a minute
SECONDS = 30  # for one mutant of rnncore, besides twice what its tests take on the right code


def main(arguments):
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, help="so many mutants of rnncore, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="draws another sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tested at a time")
    parser.add_argument("--out", type=Path, default=HERE / "mutants.md", help="the table to write")
    parser.add_argument("--answers", action="store_true", help="the answers only; of rnncore the table's row stays")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for slug in slugs():
        for exercise, source, imports in answers(slug):
            every = mutants(source)
            noticed = (checked(exercise, mutant.code, imports) for mutant in every)
            rows.append(report(f"`{exercise.id}`", every, noticed))
    lines = ["<!-- written by benchmarks/mutants.py -->", "| code | mutants | noticed | share |", "|---|--:|--:|--:|"]
    lines += map(row, rows)
    lines.append(options.out.read_text("utf-8").splitlines()[-1] if options.answers else row(of_rnncore(options)))
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    return 0


def row(found):
    """Return a line of the table."""
    name, count, caught = found
    return f"| {name} | {count} | {caught} | {100 * caught / count:.1f}\N{NO-BREAK SPACE}% |"


def of_rnncore(options):
    """Let rnncore's tests judge its mutants; return (name, how many, how many are noticed)."""
    code = CODE.read_text("utf-8")
    every = mutants(code)
    if options.sample:
        every = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    tests = tests_by_line()
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        work = ((mutant.code, choose(tests, mutant.line, code)) for mutant in every)
        return report("`rnncore.py`", every, pool.imap(_fails, work))


def _fails(work):
    return tested(*work)


def answers(slug):
    """Yield (exercise, the source of its right answer, what the chapter's first cell imports) for a chapter."""
    cells = [cell for cell in read(path_of(slug)).notebook.cells if cell.cell_type == "code"]
    imports = [node for node in ast.parse(cells[0].source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    for cell in cells:
        name = cell.metadata.get("answer")
        if name:
            yield exercises.find(name), reached(cell.source), "\n".join(map(ast.unparse, imports))


def reached(source):
    """Return the source without what stands after a function's return: a program that students are to repair."""
    lines = source.splitlines(keepends=True)
    for function in ast.parse(source).body:
        body = getattr(function, "body", [])
        first = next((k for k, node in enumerate(body) if isinstance(node, ast.Return)), len(body))
        for node in body[first + 1 :]:
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "".join(lines)


def report(name, every, noticed):
    """Show how it goes; print the mutants that are not noticed; return (name, how many, how many are noticed)."""
    caught, start = 0, time.monotonic()
    for mutant, found in zip(every, tqdm(noticed, name, len(every), disable=None), strict=True):
        caught += found
        if not found:
            tqdm.write(f"survives in {name}: line {mutant.line}, {mutant.what}")
    print(f"{name}: {caught} of {len(every)} noticed, {time.monotonic() - start:.0f} s", flush=True)
    return name, len(every), caught


def checked(exercise, code, imports):
    """Tell whether an exercise's check takes points from an answer, which stands below these imports."""
    names = {}
    exec(imports, names)
    try:
        exec(compile(code, "<mutant>", "exec"), names)
    except Exception:
        return True
    tree = ast.parse(code).body
    last = next(node.name for node in reversed(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    with np.errstate(all="ignore"):
        return verdict(exercise, names[last], seconds=2).score < exercise.points


def tested(code, tests):
    """Tell whether one of these of rnncore's tests, {id: seconds}, fails on this code, in a process of its own."""
    return _in_a_child(lambda: _run_tests(code, _Only(tests)), SECONDS + 2 * sum(tests.values())) != 0


def tests_by_line():
    """Run rnncore's tests on the right code; return ({test's id: seconds}, {line: the ids of the tests that run it}).

    A mutant needs only the tests that run its line, the quick ones first.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        status = _in_a_child(lambda: _run_tests(CODE.read_text("utf-8"), _Watch(found)), 3600)
        if status != 0:
            sys.exit("rnncore's own tests fail: mend them first (python -m pytest tests/test_rnncore.py ...)")
        seconds, lines = json.loads(found.read_text("utf-8"))
    return seconds, {int(line): tests for line, tests in lines.items()}


def choose(tests, line, source):
    """Return the tests that can notice a change of this line: those that run its statement, or all if none does."""
    seconds, by_line = tests
    statements = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt))
    statements = [n for n in statements if n.lineno <= line <= n.end_lineno]
    innermost = min(statements, key=lambda n: n.end_lineno - n.lineno, default=None)
    if innermost is None or isinstance(innermost, ast.FunctionDef | ast.ClassDef):
        return seconds  # a decorator or a default, run while importing
    ids = {i for k in range(innermost.lineno, innermost.end_lineno + 1) for i in by_line.get(k, [])}
    return {i: seconds[i] for i in ids} or seconds


def _in_a_child(function, seconds):
    """Return the exit code that function returns in a silent child; an endless loop is stopped and gives 1."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123, a descriptor is wanted
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            status = int(function())
        except BaseException:
            status = 1
        os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def _run_tests(code, plugin):
    for name in [name for name in sys.modules if name == "calls" or name.startswith("test_")]:
        del sys.modules[name]  # loaded before, it would hold the right rnncore
    module = types.ModuleType("rnncore")
    module.__file__ = str(CODE)
    sys.modules["rnncore"] = module
    exec(compile(code, str(CODE), "exec"), module.__dict__)
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-W", "ignore"]
    return pytest.main([*options, *map(str, TESTS)], [plugin])


class _Only:
    """Keeps some of the tests, {id: seconds}, the quick ones first."""

    def __init__(self, tests):
        self.tests = tests

    def pytest_collection_modifyitems(self, items):
        """Called by pytest."""
        items[:] = sorted((i for i in items if i.nodeid in self.tests), key=lambda item: self.tests[item.nodeid])


class _Watch:
    """Writes down how long each test takes and which lines of rnncore it runs."""

    def __init__(self, path):
        self.path, self.seconds = path, {}
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=[str(CODE)])

    def pytest_collection_modifyitems(self, items):
        """Called by pytest."""
        items[:] = [item for item in items if TOO_LONG not in item.nodeid]

    def pytest_collection_finish(self):
        """Called by pytest."""
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Called by pytest."""
        self.coverage.switch_context(item.nodeid)
        start = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - start
        return result

    def pytest_sessionfinish(self):
        """Called by pytest."""
        self.coverage.stop()
        lines = self.coverage.get_data().contexts_by_lineno(str(CODE))
        self.path.write_text(json.dumps([self.seconds, lines]), "utf-8")


class Mutant(NamedTuple):
    """Code with one change: the line in the code as it was, what was done to it, the changed code."""

    line: int
    what: str
    code: str


def mutants(source):
    """Return the mutants of every change of one place."""
    lines, found = source.splitlines(keepends=True), []
    for statement in ast.parse(source).body:
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        before, after = "".join(lines[: first - 1]), "".join(lines[statement.end_lineno :])
        for index, node in enumerate(ast.walk(statement)):
            for what, change in changes(node):
                changed = copy.deepcopy(statement)
                target = next(itertools.islice(ast.walk(changed), index, None))
                new = change(target)
                if new is not None:
                    changed = _Replace(target, new).visit(changed)
                code = f"{before}{ast.unparse(ast.fix_missing_locations(changed))}\n{after}"
                place = ast.unparse(node).split("\n")[0][:70]
                found.append(Mutant(node.lineno, f"{what}: {place}", code))
    return found


class _Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else super().generic_visit(node)


def changes(node):
    """Yield (what, change) for a node: the change returns what stands in its place, or edits it and returns None."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in SWAPS:
            yield "another operator", lambda n: setattr(n, "op", SWAPS[type(n.op)]())
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield "the right operand dropped", lambda n: n.left
            yield "the left operand dropped", lambda n: n.right
        if isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
            yield "operands swapped", lambda n: ast.BinOp(n.right, n.op, n.left)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield "another comparison", lambda n: n.ops.__setitem__(0, COMPARISONS[type(n.ops[0])]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "the sign dropped", lambda n: n.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "another number", lambda n: setattr(n, "value", n.value + 1)
    elif isinstance(node, ast.Attribute) and node.attr == "T" and isinstance(node.ctx, ast.Load):
        yield "the transposition dropped", lambda n: n.value
    elif isinstance(node, ast.Call):
        yield from _changes_of_call(node)
    elif isinstance(node, ast.IfExp):
        yield "the other branch", lambda n: ast.IfExp(n.test, n.orelse, n.body)


def _changes_of_call(node):
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    starred = any(isinstance(a, ast.Starred) for a in node.args)
    if isinstance(node.func, ast.Name) and name in ("max", "min"):
        yield "another operator", lambda n: setattr(n.func, "id", {"max": "min", "min": "max"}[name])
    if isinstance(node.func, ast.Attribute) and name in UFUNCS:
        yield "another operator", lambda n: setattr(n.func, "attr", UFUNCS[name])
    if len(node.args) == 1 and not node.keywords:
        yield "the call dropped", lambda n: n.args[0]
    if len(node.args) == 2 and name not in SYMMETRIC and not starred and len(set(map(ast.dump, node.args))) == 2:
        yield "arguments swapped", lambda n: n.args.reverse()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
