"""Checks a student's answers in a notebook and grades a class."""

from autograde.check import check
from autograde.exercise import Exercise

__all__ = ["Exercise", "check"]
