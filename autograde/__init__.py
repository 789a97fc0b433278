"""Checks a student's answers in a notebook and grades a class."""

from autograde.exercise import Exercise

__all__ = ["Exercise", "check"]


def __getattr__(name):
    """Import `check` when it is asked for: it needs PyTorch, which no command of nbgrader's should have to wait for."""
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autograde.checking import check  # noqa: PLC0415, as said

    return globals().setdefault(name, check)
