"""A check's verdict as a student reads it: text in a terminal, HTML in a notebook."""

import re
from dataclasses import dataclass, field
from html import escape

import numpy as np

CAPTURED_LIMIT = 1000  # characters of an answer's own printing that are shown


@dataclass(frozen=True)
class Outcome:
    """What came of one case: its label, and what was wrong, in words; `problem` is "" when the case passed.

    A case for which there was no time left has not `ran`.
    """

    label: str
    counted: bool = True
    problem: str = ""
    details: tuple[str, ...] = ()
    ran: bool = True


@dataclass(frozen=True, eq=False)
class Note:
    """A paragraph that says more: a heading, a text, lines of code or numbers, a picture of errors (units, T)."""

    heading: str
    text: str
    code: tuple[str, ...] = ()
    picture: np.ndarray | None = None


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    As a notebook's output its plain text is the score alone, which is what nbgrader reads; the HTML beside it is what
    the student reads. `str()` gives the same as text. `named` has the misconceptions that were recognised, and `kind`
    what stopped the answer: "unwritten", "missing", "Forbidden", "OutOfTime", an exception's name, "" for nothing.
    """

    id: str
    points: int
    outcomes: tuple[Outcome, ...] = ()
    refusal: str = ""  # why no case was run
    notes: tuple[Note, ...] = ()
    printed: str = field(default="", repr=False)
    named: tuple[str, ...] = ()
    kind: str = ""

    @property
    def passed(self):
        return sum(not outcome.problem for outcome in self.outcomes if outcome.counted)

    @property
    def total(self):
        return sum(outcome.counted for outcome in self.outcomes)

    @property
    def score(self):
        """Points, between 0 and `points`: the share of the counted cases that passed."""
        if self.refusal or not self.total:
            return 0.0
        return min(max(float(self.points * self.passed / self.total), 0.0), float(self.points))

    def __repr__(self):
        return repr(self.score)

    def __str__(self):
        return _sendable("\n".join(_lines(self)))

    def _repr_html_(self):
        return _sendable(_html(self))


def _headline(verdict):
    if verdict.refusal:
        return f"{verdict.id}: not checked yet, 0 of {verdict.points} points"
    if verdict.passed == verdict.total and not _first_problem(verdict):
        return f"{verdict.id}: right, {_number(verdict.score)} of {verdict.points} points"
    return (
        f"{verdict.id}: {verdict.passed} of {verdict.total} cases right, "
        f"{_number(verdict.score)} of {verdict.points} points"
    )


def _first_problem(verdict):
    return next((outcome for outcome in verdict.outcomes if outcome.problem), None)


def _body(verdict):
    """Yield the verdict's paragraphs."""
    first = _first_problem(verdict)
    if verdict.refusal:
        yield Note("", verdict.refusal)
    elif first:
        unpaid = ", one without points" if verdict.passed == verdict.total else ""
        yield Note(f"First case that differs{unpaid}: {first.label}.", first.problem, first.details)
    else:
        labels = "; ".join(outcome.label for outcome in verdict.outcomes)
        yield Note(f"Compared with the reference on {len(verdict.outcomes)} cases:", f"{labels}.")
    yield from verdict.notes
    others = [o for o in verdict.outcomes if o is not first]
    differ = [o.label for o in others if o.problem and o.ran]
    if first and not verdict.refusal:
        if len(differ) == len(others) > 1:
            yield Note("", "All other cases differ, too.")
        elif differ:
            yield Note("Also differ:", "; ".join(differ) + ".")
    if verdict.printed:
        text = "\n".join(dict.fromkeys(verdict.printed.splitlines()))  # every case prints the same lines again
        shown = text if len(text) <= CAPTURED_LIMIT else f"{text[:CAPTURED_LIMIT]} …"
        yield Note("While it ran, your code printed:", "", tuple(shown.splitlines()))


def _lines(verdict):
    yield _headline(verdict)
    for note in _body(verdict):
        yield f"  {note.heading} {note.text}".rstrip() if note.heading else f"  {note.text}"
        yield from (f"    {line}" for line in note.code)
        if note.picture is not None:
            yield from (f"    {line}" for line in [CAPTION, *_drawn(note.picture)])


def _html(verdict):
    right = not verdict.refusal and not _first_problem(verdict)
    mark, role = ("✓", "status") if right else ("✗", "alert")
    style = "border-left: 4px solid currentColor; padding: .3em .9em; margin: .3em 0; background: transparent;"
    parts = [f'<div role="{role}" class="recurrence-check" style="{style}">']
    parts.append(
        f'<p style="margin: .2em 0"><span aria-hidden="true">{mark}</span> <strong>{_headline(verdict)}</strong></p>'
    )
    for note in _body(verdict):
        strong = f"<strong>{escape(note.heading)}</strong> " if note.heading else ""
        text = re.sub("`([^`]+)`", r"<code>\1</code>", escape(note.text))
        parts.append(f'<p style="margin: .2em 0">{strong}{text}</p>')
        if note.code:
            lines = escape("\n".join(note.code))
            parts.append(f'<pre style="margin: .2em 0; background: transparent; color: inherit">{lines}</pre>')
        if note.picture is not None:
            lines = "\n".join(_drawn(note.picture))
            parts.append(f'<p style="margin: .2em 0; font-size: .85em">{CAPTION}</p>')
            style = "margin: .2em 0; background: transparent; color: inherit; line-height: 1.1"
            parts.append(f'<pre role="img" aria-label="{CAPTION}" style="{style}">{lines}</pre>')
    return "".join([*parts, "</div>"])


PICTURE_STEPS, PICTURE_UNITS = 48, 12  # of a longer sequence or a wider layer the beginning is drawn
SHADES = "·░▒▓█"  # no error, then up to 1e-4, 1e-2, 0.3 and above, relative


def _drawn(errors):
    """Return the errors as lines of characters, which a notebook that is not trusted shows as well as a terminal."""
    levels = np.digitize(errors[:PICTURE_UNITS, :PICTURE_STEPS], [1e-7, 1e-4, 1e-2, 0.3])
    return ["".join(SHADES[level] for level in row) for row in levels]


CAPTION = "Error, t = 1, 2, … to the right, one row a unit: · none, █ large."


def _sendable(text):
    """Replace what UTF-8 has no code for: a kernel cannot send an output that holds half a surrogate pair."""
    return text.encode(errors="replace").decode()


def _number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")
