"""Compares two results of a probe and says what differs first: the kind of thing, its shape, or its numbers."""

from dataclasses import dataclass

import numpy as np
from array_api_compat import is_torch_array


@dataclass(frozen=True)
class Difference:
    """What differs between a result and the expected one: `kind` is type, shape, dtype or value; `text` says it."""

    kind: str
    text: str


@dataclass(frozen=True)
class Described:
    """Stands for a result that cannot leave the process it was made in: what is left is how it is described."""

    text: str


def compare(result, expected, axes="", tolerance=1e-7, name="the result", place=None):
    """Return the first `Difference` between a result and the expected one, or None.

    Numbers are equal when they differ by at most `tolerance` times the largest magnitude in the expected array (at
    least 1). A NaN equals nothing. axes names the expected array's axes, "B T H", for the message; for a dictionary
    it may be {entry: axes}. place(index) says in words where an entry of an array is.
    """
    if isinstance(expected, dict):
        return _compare_dicts(result, expected, axes, tolerance)
    if isinstance(expected, tuple):
        return _compare_tuples(result, expected, axes, tolerance)
    if isinstance(expected, np.ndarray) or is_torch_array(expected):
        return _compare_arrays(result, expected, axes, tolerance, name, place)
    if isinstance(expected, bool | str | Described):
        if type(result) is type(expected) and result == expected:
            return None
        return Difference("value", f"{name} is {_short(result)}; expected {expected!r}")
    return _compare_numbers(result, expected, tolerance, name)


def named(arguments):
    """Return {name: value} of a case's arguments; those of a dictionary among them stand under their own names."""
    found = {}
    for name, value in arguments.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def numbers(value):
    """Return a number, an array or a tensor as a NumPy array, for showing it; None for anything else."""
    if is_torch_array(value):
        try:
            array = value.detach().cpu().numpy()
            return array if array.dtype.kind in "iuf" else None
        except Exception:  # a sparse tensor, one without data
            return None
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    array = np.asarray(value) if number or type(value) is np.ndarray else None
    return array if array is not None and array.dtype.kind in "iuf" else None


def _compare_dicts(result, expected, axes, tolerance):
    if not isinstance(result, dict):
        return Difference("type", f"the result is {_came(result)}; expected a dictionary with {_list(expected)}")
    if set(result) != set(expected):
        return Difference("type", f"the dictionary has {_list(result)}; expected {_list(expected)}")
    of = axes if isinstance(axes, dict) else dict.fromkeys(expected, axes)
    called = {key: f"the {key}" if " " in key else f"entry {key!r}" for key in expected}  # a phrase is no entry's name
    entries = (compare(result[key], expected[key], of.get(key, ""), tolerance, called[key]) for key in expected)
    return next((difference for difference in entries if difference), None)


def _compare_tuples(result, expected, axes, tolerance):
    if not isinstance(result, tuple) or len(result) != len(expected):
        return Difference("type", f"the result is {_came(result)}; expected a tuple of {len(expected)}")
    items = (compare(*both, axes, tolerance, f"item {k}") for k, both in enumerate(zip(result, expected, strict=True)))
    return next((difference for difference in items if difference), None)


def _compare_numbers(result, expected, tolerance, name):
    if type(result) is np.ndarray and not result.ndim and result.dtype.kind in "iuf":
        result = result[()]
    if isinstance(result, bool) or not isinstance(result, int | float | np.integer | np.floating):
        return Difference("type", f"{name} is {_came(result)}; expected a number")
    try:
        number = float(result)
    except OverflowError:  # Python's integers have no bound
        return Difference("value", f"{name} is larger than any floating-point number; expected {expected:,}")
    if isinstance(expected, int) and not number.is_integer():
        return Difference("type", f"{name} is {number:g}; expected a whole number")
    if not abs(number - expected) <= tolerance * max(1.0, abs(expected)):
        return Difference("value", f"{name} is {_side_by_side(result, expected)}")
    return None


def _compare_arrays(result, expected, axes, tolerance, name, place):
    of_torch = is_torch_array(expected)
    # Of an array's subclasses none is right: they may compare in their own way, and a masked array equals everything.
    if not (is_torch_array(result) if of_torch else type(result) is np.ndarray):
        kind = "a PyTorch tensor" if of_torch else "a NumPy array"
        wanted = _shape(tuple(expected.shape), axes)
        return Difference("type", f"{name} is {_came(result)}; expected {kind} of shape {wanted}")
    if result.shape != expected.shape:
        wanted = _shape(tuple(expected.shape), axes)
        return Difference("shape", f"{name} has shape {tuple(result.shape)}; expected {wanted}")
    if result.dtype != expected.dtype:
        came, asked = (str(array.dtype).removeprefix("torch.") for array in (result, expected))
        return Difference("dtype", f"{name} has dtype {came}; expected {asked}")
    if of_torch:
        result, expected = (array.detach().cpu().numpy() for array in (result, expected))
    error = np.abs(result - expected)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    wrong = ~(error <= tolerance * scale)  # written so that NaN is wrong
    if not wrong.any():
        return None
    first = tuple(map(int, np.unravel_index(wrong.argmax(), wrong.shape)))
    where = f" {place(first)}" if place else f"[{', '.join(map(str, first))}]" if first else ""
    text = f"{name}{where} is {_side_by_side(result[first], expected[first])}"
    if expected.size > 1:
        text += f" ({int(wrong.sum())} of {expected.size} entries differ)"
    return Difference("value", text)


def _side_by_side(came, expected):
    """Say two numbers to six digits, or to twelve where they look alike with six; Python's integers whole."""
    digits = 6 if f"{came:.6g}" != f"{expected:.6g}" else 12
    came, expected = (f"{n:,}" if isinstance(n, int) else f"{n:.{digits}g}" for n in (came, expected))
    return f"{came}; expected {expected}"


def _came(result):
    return f"{describe(result)}{' (does the function return something?)' * (result is None)}"


def describe(value):
    """Say what kind of thing a value is: "an array of shape (3, 4), float64", "a list", "None"."""
    try:
        return _described(value)
    except Exception:  # an object made to confuse
        return "an object that cannot be described"


def _described(value):
    if value is None or isinstance(value, Described):
        return "None" if value is None else value.text
    kind = type(value).__name__ or "nameless thing"
    if type(value) is np.ndarray:
        return f"a NumPy array of shape {value.shape}, {value.dtype}"
    if is_torch_array(value):
        return f"a PyTorch tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, type):
        return f"a class ({value.__name__})"
    if callable(value):
        return f"a function ({getattr(value, '__name__', kind)})"
    article = "an" if kind.lower().startswith(tuple("aeiou")) else "a"
    length = f" of length {len(value)}" if isinstance(value, list | tuple | dict | str) else ""
    return f"{article} {kind}{length}"


def _shape(shape, axes):
    letters = axes.split()
    if len(letters) != len(shape):
        return str(shape)
    return f"({', '.join(letters)}{',' * (len(letters) == 1)}) = {shape}"


def _list(keys):
    return ", ".join(repr(key) for key in keys) or "no entry"


def _short(value, limit=60):
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
