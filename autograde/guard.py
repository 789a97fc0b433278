"""Watches an answer while it runs: it may not use what it is to write itself, nor take for ever."""

import ast
import contextlib
import ctypes
import importlib
import inspect
import signal
import sys
import textwrap
import threading
import types
from functools import partial


class Forbidden(BaseException):  # no answer's `except Exception` may swallow it
    """Raised where an answer calls what the exercise forbids."""


class OutOfTime(BaseException):
    """Raised in an answer that runs for too long."""

    def __str__(self):
        return "Your code was stopped because it ran for too long. Is there a loop that never ends?"


@contextlib.contextmanager
def time_limit(seconds):
    """Yield a clock; once `seconds` have passed (None: never), `OutOfTime` is raised in what runs inside `with clock`.

    It is raised again and again until that ends, for an answer may catch it.
    """
    clock = _Clock()
    if seconds is None:
        yield clock
    elif threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        before = signal.signal(signal.SIGALRM, lambda *_: clock.ring())
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
        try:
            yield clock
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    else:  # no such signal here (Windows, another thread): a second thread raises it; it cannot wake a sleeper
        done, target = threading.Event(), ctypes.c_ulong(threading.get_ident())

        def watch():
            wait = seconds
            while not done.wait(wait):
                with clock.lock:
                    if clock.inside:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(OutOfTime))
                wait = 0.1

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield clock
        finally:
            done.set()
            watcher.join()


class _Clock:
    """Knows whether the answer is running, so that the alarm never rings in the check itself."""

    def __init__(self):
        self.inside, self.lock = False, threading.Lock()

    def __enter__(self):
        self.inside = True

    def __exit__(self, *_):
        with self.lock:
            self.inside = False

    def ring(self):
        if self.inside:
            raise OutOfTime()


def uses(answer, names):
    """Return (why an answer uses what it may not, (its line,)), found by reading it, or ("", ()).

    names are dotted: "torch.nn.RNN".
    """
    if not names:
        return "", ()
    try:
        return _uses(answer, dict(_things(names)))
    except Exception:  # an object made to confuse: it is watched all the same
        return "", ()


def _uses(answer, things):
    inner = answer
    while type(inner) is partial:
        inner = inner.func
    if isinstance(inner, types.FunctionType):
        with contextlib.suppress(ValueError):  # it may wrap itself
            inner = inspect.unwrap(inner)
    if name := _which(inner, things) or _which(getattr(inner, "__func__", None), things):
        return _sentence(name), ()
    for function in functions_of(inner):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            continue
        known = _names_known_to(function, tree)
        for node in _inside(tree):
            if name := _named(node, known, things):
                line = function.__code__.co_firstlineno + node.lineno - 1
                return _sentence(name), (f"line {line}: {ast.unparse(node)}",)
    return "", ()


def _inside(tree):
    """Yield the nodes of a function's body, without its decorators, annotations and default values."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for part in [line for function in functions for line in function.body] or [tree]:
        yield from ast.walk(part)


@contextlib.contextmanager
def watch(names, frame_of):
    """Raise `Forbidden` where code inside calls one of the named things, under whatever alias.

    Yields a list of what was called, for an answer that catches everything. frame_of is the function that runs the
    answer: only what is called below it counts. Calls that a probe makes of its own accord are marked by `allowed`.
    """
    seen = []
    if not names:
        yield seen
        return
    codes, files, builtins = {}, {}, {}
    for name, thing in _things(names):
        if isinstance(thing, types.ModuleType):
            files[thing.__file__] = name
        for function in functions_of(thing):
            codes[inspect.unwrap(function).__code__] = name  # a wrapper's code may be shared by many
        builtins |= dict.fromkeys(_builtins_of(thing), name)

    here = threading.get_ident()

    def see(frame, event, arg):
        name = None
        if event == "call":
            name = codes.get(frame.f_code) or files.get(frame.f_code.co_filename)
        elif event == "c_call" and isinstance(arg, types.BuiltinFunctionType):
            name = builtins.get(arg)
        if name and (threading.get_ident() != here or _by_the_answer(frame, frame_of.__code__)):
            seen.append(_sentence(name))
            raise Forbidden(seen[-1])

    before, before_in_threads = sys.getprofile(), threading.getprofile()
    if before is not None and not callable(before):  # a profiler written in C could not be put back
        yield seen
        return
    sys.setprofile(see)
    threading.setprofile(see)  # what the answer's own threads do is the answer's doing
    try:
        yield seen
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)


def allowed(function, *args, **kwargs):
    """Call a function for a probe, though an answer may not call it."""
    return function(*args, **kwargs)


def _builtins_of(thing):
    """Return the built-in functions that a thing calls: itself, or those behind an operator in torch.ops."""
    if isinstance(thing, types.BuiltinFunctionType):
        return [thing]
    overloads = [getattr(thing, name) for name in thing.overloads()] if hasattr(thing, "overloads") else []
    return [operator._op for operator in (thing, *overloads) if overloads]


def _by_the_answer(frame, outermost):
    while frame := frame.f_back:
        if frame.f_code is allowed.__code__:
            return False
        if frame.f_code is outermost:
            return True
    return False


def _sentence(name):
    return (
        f"This exercise asks you to write it yourself, so {name} may not be used here. Nothing is lost: write it out."
    )


def _things(names):
    """Yield (name, what it stands for); a thing that is not there cannot be used either."""
    for name in names:
        with contextlib.suppress(ImportError, AttributeError):
            yield name, _thing(name)


def _thing(name):
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(name)


def _which(value, things):
    """Return the name of the forbidden thing that a value is or belongs to, or None."""
    for name, thing in things.items():
        if value is thing or (isinstance(thing, type) and isinstance(value, type) and issubclass(value, thing)):
            return name
        if isinstance(thing, type) and isinstance(value, thing):
            return name
        if isinstance(thing, types.ModuleType) and getattr(value, "__module__", None) == thing.__name__:
            return name
    return None


def functions_of(thing):
    """Return the Python functions that a function, a class or a callable object consists of."""
    if isinstance(thing, types.FunctionType):
        return [thing]
    if isinstance(thing, types.MethodType):
        return [thing.__func__]
    kind = thing if isinstance(thing, type) else type(thing)
    if kind.__module__ == "builtins":
        return []
    return [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]


def _names_known_to(function, tree):
    """Return what the names in a function stand for, except those that it, or something inside it, binds itself."""
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            cells[name] = cell.cell_contents
    known = {**function.__globals__, **cells}
    return {name: value for name, value in known.items() if name not in bound}


def _named(node, known, things):
    """Return the name of the forbidden thing that a node of a syntax tree stands for, or None."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        base = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        imported = {".".join([*base, alias.name]) for alias in node.names} | set(base)
        return next((name for name in things if name in imported), None)
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return None
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    value = known.get(node.id)
    for part in reversed(parts):
        value = getattr(value, part, None) if isinstance(value, types.ModuleType | type) else None
    return _which(value, things) if value is not None else None
