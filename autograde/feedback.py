"""A check's verdict as a student reads it: text in a terminal, HTML in a notebook."""

from dataclasses import dataclass, field
from html import escape

CAPTURED_LIMIT = 1000  # characters of an answer's own printing that are shown


@dataclass(frozen=True)
class Outcome:
    """What came of one case: its label, and what was wrong, in words; `problem` is "" when the case passed."""

    label: str
    counted: bool = True
    problem: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    As a notebook's output its plain text is the score alone, which is what nbgrader reads; the HTML beside it is what
    the student reads. `str()` gives the same as text.
    """

    id: str
    points: int
    outcomes: tuple[Outcome, ...] = ()
    refusal: str = ""  # why no case was run
    printed: str = field(default="", repr=False)

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
    """Yield the verdict's paragraphs as (heading, text, lines of code)."""
    if verdict.refusal:
        yield "", verdict.refusal, ()
    elif first := _first_problem(verdict):
        yield f"First case that differs: {first.label}.", first.problem, first.details
        others = [o.label for o in verdict.outcomes if o.problem and o is not first]
        if others:
            yield "Also differ:", "; ".join(others) + ".", ()
    else:
        labels = "; ".join(outcome.label for outcome in verdict.outcomes)
        yield f"Compared with the reference on {len(verdict.outcomes)} cases:", f"{labels}.", ()
    if verdict.printed:
        text = "\n".join(dict.fromkeys(verdict.printed.splitlines()))  # every case prints the same lines again
        shown = text if len(text) <= CAPTURED_LIMIT else f"{text[:CAPTURED_LIMIT]} …"
        yield "While it ran, your code printed:", "", tuple(shown.splitlines())


def _lines(verdict):
    yield _headline(verdict)
    for heading, text, code in _body(verdict):
        yield f"  {heading} {text}".rstrip() if heading else f"  {text}"
        yield from (f"    {line}" for line in code)


def _html(verdict):
    right = not verdict.refusal and not _first_problem(verdict)
    mark, role = ("✓", "status") if right else ("✗", "alert")
    style = "border-left: 4px solid currentColor; padding: .3em .9em; margin: .3em 0; background: transparent;"
    parts = [f'<div role="{role}" class="recurrence-check" style="{style}">']
    parts.append(
        f'<p style="margin: .2em 0"><span aria-hidden="true">{mark}</span> <strong>{_headline(verdict)}</strong></p>'
    )
    for heading, text, code in _body(verdict):
        strong = f"<strong>{escape(heading)}</strong> " if heading else ""
        parts.append(f'<p style="margin: .2em 0">{strong}{escape(text)}</p>')
        if code:
            lines = escape("\n".join(code))
            parts.append(f'<pre style="margin: .2em 0; background: transparent; color: inherit">{lines}</pre>')
    return "".join([*parts, "</div>"])


def _sendable(text):
    """Replace what UTF-8 has no code for: a kernel cannot send an output that holds half a surrogate pair."""
    return text.encode(errors="replace").decode()


def _number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")
