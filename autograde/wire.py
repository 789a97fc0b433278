"""Plain data over a socket, between the grader and a student's process: never pickle, never more than was agreed."""

import contextlib
import json
import math
import struct
import time

import numpy as np
from array_api_compat import is_torch_array

from autograde.compare import Described, describe

LIMIT = 32_000_000  # bytes of one message
_DTYPES = {f"{kind}{size}" for kind, sizes in {"i": "1248", "u": "1248", "f": "248"}.items() for size in sizes}
_DTYPES |= {"b1", "c8", "c16"}
_HEAD = struct.Struct(">QQ")  # lengths of the text and of the arrays' bytes


class Malformed(Exception):
    """Raised for a message that is none, or too long."""


def send(socket, value):
    """Send a value: numbers, strings, None, arrays, tensors, and lists, tuples and dictionaries of these.

    Of anything else only a description arrives, `Described`. Raises Malformed for a value that is too large.
    """
    arrays = []
    try:
        text = json.dumps(_encoded(value, arrays)).encode()
    except (RecursionError, ValueError) as error:
        raise Malformed(f"it cannot be sent: {error}") from None
    length = sum(len(a) for a in arrays)
    if len(text) + length > LIMIT:
        raise Malformed(f"it has {len(text) + length:,} bytes; at most {LIMIT:,} are taken")
    socket.sendall(b"".join([_HEAD.pack(len(text), length), text, *arrays]))


def receive(socket, deadline=None):
    """Return the next value; deadline is a time of `time.monotonic`, after which TimeoutError is raised.

    Raises EOFError when the other side is gone and Malformed for what no `send` has sent.
    """
    text, length = _HEAD.unpack(_exactly(socket, _HEAD.size, deadline))
    if text + length > LIMIT:
        raise Malformed(f"a message of {text + length:,} bytes; at most {LIMIT:,} are taken")
    text, arrays = _exactly(socket, text, deadline), _exactly(socket, length, deadline)
    try:
        return _decoded(json.loads(text), arrays)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Malformed(f"not a message ({type(error).__name__})") from None


def _exactly(socket, count, deadline):
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            socket.settimeout(left)
        try:
            part = socket.recv(min(count - len(parts), 1 << 20))
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _encoded(value, arrays):
    """Return what JSON can hold; an array leaves its bytes in `arrays`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        items = [_encoded(v, arrays) for v in value]
        return items if type(value) is list else {"tuple": items}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encoded(v, arrays) for key, v in value.items()}}
    return _encoded_array(value, arrays) or {"other": describe(value)[:500]}


def _encoded_array(value, arrays):
    kind, array = "", None
    if type(value) is np.ndarray:
        kind, array = "array", value
    elif isinstance(value, np.generic):
        kind, array = "scalar", np.asarray(value)
    elif is_torch_array(value) and _is_plain(value):
        with contextlib.suppress(TypeError):  # bfloat16, which NumPy lacks
            kind, array = "tensor", value.detach().cpu().resolve_conj().resolve_neg().numpy()
    return {kind: _packed(array, arrays)} if array is not None and array.dtype.str[1:] in _DTYPES else None


def _is_plain(tensor):
    import torch  # noqa: PLC0415, already there, since a tensor is; else whoever starts the sandbox would wait for it

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided and not tensor.is_meta


def _packed(array, arrays):
    dtype = array.dtype.newbyteorder("<").str[1:]
    arrays.append(np.ascontiguousarray(array).astype(f"<{dtype}").tobytes())
    return [dtype, list(array.shape), sum(map(len, arrays[:-1]))]


def _decoded(value, arrays):
    if not isinstance(value, dict):
        return [_decoded(v, arrays) for v in value] if isinstance(value, list) else value
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_decoded(v, arrays) for v in inner)
    if kind == "dict":
        return {key: _decoded(v, arrays) for key, v in inner.items()}
    if kind == "other":
        return Described(str(inner)[:500])
    dtype, shape, start = inner
    if dtype not in _DTYPES or not all(type(n) is int and n >= 0 for n in [*shape, start]):
        raise ValueError
    count = math.prod(shape)
    found = np.frombuffer(arrays, f"<{dtype}", count, start).reshape(shape).copy() if count else np.zeros(shape, dtype)
    return {"array": lambda: found, "tensor": lambda: _tensor(found), "scalar": lambda: found[()]}[kind]()


def _tensor(array):
    import torch  # noqa: PLC0415, as above

    return torch.from_numpy(array)
