"""Changes right code by machine and counts how many changes are noticed: `python benchmarks/mutants.py`.

The answers in the manuscripts are judged by their checks, rnncore.py by its tests. A mutant drops a term, swaps
operands, changes an operator, a number or an axis, leaves out a call or a transposition. Prints every survivor with its
line; writes mutants.md, a table, beside this file.
"""

import argparse
import ast
import copy
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from autograde import exercises
from autograde.check import verdict
from publish.manuscript import path_of, read, slugs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.MatMult: ast.Mult}
COMPARISONS = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SECONDS = 90  # for one mutant of rnncore


def main(arguments):
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, help="so many mutants of rnncore, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "mutants.md", help="the table to write")
    options = parser.parse_args(arguments)
    rows = []
    for slug in slugs():
        for exercise, source in answers(slug):
            rows.append(report(f"`{exercise.id}`", mutants(source), lambda code, e=exercise: checked(e, code)))
    code = (ROOT / "rnncore.py").read_text("utf-8")
    every = list(mutants(code, skip=("_short", "_check", "_check_number")))
    if options.sample:
        every = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    rows.append(report("`rnncore.py`", every, tested))
    lines = ["<!-- written by benchmarks/mutants.py -->", "| code | mutants | noticed | share |", "|---|--:|--:|--:|"]
    lines += [f"| {name} | {count} | {caught} | {100 * caught / count:.1f} % |" for name, count, caught in rows]
    options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    return 0


def answers(slug):
    """Yield (exercise, the source of its right answer) for a chapter."""
    for cell in read(path_of(slug)).notebook.cells:
        name = cell.metadata.get("answer")
        if name:
            yield exercises.find(name), cell.source


def report(name, every, notices):
    """Run all mutants; print the survivors; return (name, how many, how many were noticed)."""
    count, caught, start = 0, 0, time.monotonic()
    for what, code in every:
        count += 1
        if notices(code):
            caught += 1
        else:
            print(f"survives in {name}: {what}", flush=True)
    print(f"{name}: {caught} of {count} noticed, {time.monotonic() - start:.0f} s", flush=True)
    return name, count, caught


def checked(exercise, code):
    """Tell whether an exercise's check takes points from an answer."""
    names = {"np": np, "torch": torch}
    import rnncore  # noqa: PLC0415

    names["rnncore"] = rnncore
    try:
        exec(compile(code, "<mutant>", "exec"), names)
    except Exception:
        return True
    tree = ast.parse(code).body
    last = next(node.name for node in reversed(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    with np.errstate(all="ignore"):
        return verdict(exercise, names[last], seconds=2).score < exercise.points


def tested(code, modules=("rnncore", "looking_inside", "layers")):
    """Tell whether rnncore's tests fail on this code, in a process of its own."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123, a descriptor is wanted
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os._exit(_run_tests(code, modules))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)  # an endless loop is noticed, too
    os.waitpid(child, 0)
    return True


def _run_tests(code, modules):
    import types  # noqa: PLC0415

    import pytest  # noqa: PLC0415

    try:
        for name in [name for name in sys.modules if name.startswith("test_")]:
            del sys.modules[name]  # loaded before, it would hold the right rnncore
        module = types.ModuleType("rnncore")
        module.__file__ = str(ROOT / "rnncore.py")
        sys.modules["rnncore"] = module
        exec(compile(code, "rnncore.py", "exec"), module.__dict__)
        files = [str(ROOT / "tests" / f"test_{name}.py") for name in modules]
        skipped = [
            "--deselect",
            f"{ROOT / 'tests' / 'test_layers.py'}::test_compiled_and_traced_layers_give_the_same_numbers",
        ]
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", *files, *skipped]))
    except BaseException:
        return 1


def mutants(source, skip=()):
    """Yield (what was changed, the changed source) for every change of one place."""
    tree = ast.parse(source)
    skipped = {id(n) for f in ast.walk(tree) if getattr(f, "name", None) in skip for n in ast.walk(f)}
    nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
    quiet = {id(n) for node in nodes if isinstance(node, ast.Raise | ast.JoinedStr) for n in ast.walk(node)}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in skipped or id(node) in quiet:
            continue
        for what, change in changes(node):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[index]
            new = change(target)
            if new is not None:
                changed = _Replace(target, new).visit(changed)
            ast.fix_missing_locations(changed)
            line = ast.unparse(node).split("\n")[0][:70]
            yield f"line {getattr(node, 'lineno', '?')}, {what}: {line}", ast.unparse(changed)


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
    elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        yield "the call dropped", lambda n: n.args[0]
    elif isinstance(node, ast.Call) and len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        yield "arguments swapped", lambda n: n.args.reverse()
    elif isinstance(node, ast.IfExp):
        yield "the other branch", lambda n: ast.IfExp(n.test, n.orelse, n.body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
