"""Judges what came of an answer: which cases are right, and what the wrong ones have in common."""

from functools import lru_cache, partial

import numpy as np

from autograde.attempt import NOT_RUN, attempting
from autograde.compare import compare, named, numbers
from autograde.exercise import PUBLIC_SEED
from autograde.feedback import Note, Outcome, Verdict

NOT_WRITTEN = (
    "This answer is not written yet: the line `raise NotImplementedError()` still stands where your code is to be."
)
SMALL = 16  # a case of at most so many numbers is shown whole
TELLING = 16  # errors over time are drawn for the first case that has at least so many


def expect(exercise, seed=PUBLIC_SEED):
    """Compute the right results of a seed, before an answer runs that might change NumPy itself."""
    _expected(exercise, seed)


def judge(exercise, found, seed=PUBLIC_SEED, printed=""):
    """Return the `Verdict` on the attempts of an answer: `attempts` of the exercise's cases for this seed."""
    try:
        return _judge(exercise, found, seed, printed)
    except Exception as error:  # a result made to confuse; a student is not to read our traceback
        refusal = f"The check could not judge what came back ({type(error).__name__}). Return a plain result."
        return Verdict(exercise.id, exercise.points, refusal=refusal, printed=printed, kind=type(error).__name__)


def _judge(exercise, found, seed, printed):

    def verdict(**rest):
        return Verdict(exercise.id, exercise.points, printed=printed, **rest)

    if found[0].kind == "unwritten":
        return verdict(refusal=NOT_WRITTEN, kind="unwritten")
    if found[0].kind == "Forbidden":
        return verdict(refusal=found[0].problem, notes=_notes(("Here:", "", found[0].details)), kind="Forbidden")
    cases, expected = exercise.draw(seed), _expected(exercise, seed)
    *found, repeated = found
    outcomes = [_outcome(exercise, *all_three) for all_three in zip(cases, found, expected, strict=True)]
    notes, terms = [], _terms(cases, outcomes)
    if not outcomes[0].problem and repeated.kind and repeated.kind != NOT_RUN.kind:
        problem = f"The first call is right; the same call again does not give a result. {repeated.problem}"
        outcomes[0] = Outcome(cases[0].label, cases[0].counted, problem, repeated.details)
    elif not outcomes[0].problem and (difference := _difference(exercise, repeated, expected[0], cases[0])):
        kept = "Does your code keep something between calls, or draw at random?"
        problem = f"The first call is right; the same call again gives something else. {_sentence(difference)} {kept}"
        outcomes[0] = Outcome(cases[0].label, cases[0].counted, problem)
    changed = [k for k, attempt in enumerate(found) if attempt.changed]
    if changed and not outcomes[changed[0]].problem:
        problem = f"The numbers are right, but {_changes(found[changed[0]])}."
        outcomes[changed[0]] = Outcome(cases[changed[0]].label, cases[changed[0]].counted, problem)
    elif changed:
        notes += _notes(("Besides:", f"{_changes(found[changed[0]])}.", ()))
    named = ()
    if any(outcome.problem for outcome in outcomes):
        first = next(k for k, outcome in enumerate(outcomes) if outcome.problem)
        named = tuple(misconceptions_of(exercise, found, seed))
        notes = [
            *_names(exercise, named),
            *terms,
            *_numbers(exercise, cases[first], found[first], expected[first]),
            *_first_step(exercise, cases, found, expected),
            *notes,
        ]
    kind = next((attempt.kind for attempt in (*found, repeated) if attempt.kind), "")
    return verdict(outcomes=tuple(outcomes), notes=tuple(notes), named=named, kind=kind)


def misconceptions_of(exercise, found, seed=PUBLIC_SEED):
    """Return the names of the misconceptions whose results are those of the attempts in every case.

    Where both raise, the kind of exception must be the same; but at least one case in which the answer is wrong must
    have a result, since exceptions alone say little.
    """
    pairs = zip(found, _expected(exercise, seed), strict=False)
    if not any(not mine.kind and (mine.changed or _difference(exercise, mine, right)) for mine, right in pairs):
        return []

    def fits(name):
        theirs = (_of_misconception(exercise, name, seed, k) for k in range(len(exercise.draw(seed))))
        return all(map(partial(_alike, exercise), found, theirs))  # most differ in the first case, and run in no other

    return [name for name in exercise.misconceptions if fits(name)]


def _alike(exercise, mine, other):
    """Tell whether the same came of a case in both attempts."""
    if mine.kind != other.kind or mine.changed != other.changed:
        return False
    return bool(mine.kind) or _difference(exercise, mine, other.result) is None


@lru_cache(maxsize=128)
def _expected(exercise, seed):
    """Return the right results; kept, because every check asks for them."""
    return [exercise.try_out(exercise.reference, case.arguments) for case in exercise.draw(seed)]


@lru_cache(maxsize=8192)
def _of_misconception(exercise, name, seed, k):
    """Return the attempt of a misconception at a seed's case k; kept, because another wrong answer asks for it."""
    wrong = exercise.misconceptions[name].implementation
    with np.errstate(all="ignore"), attempting(exercise.try_out, wrong) as attempt:
        return attempt(exercise.draw(seed)[k].arguments)


def _difference(exercise, attempt, expected, case=None):
    """Return the `Difference` of an attempt's result from another, or None; a case serves to say where it is."""
    if attempt.kind:
        return None
    place = partial(exercise.place, arguments=case.arguments) if exercise.place and case else None
    try:
        return compare(attempt.result, expected, exercise.axes, exercise.tolerance, exercise.result, place)
    except TypeError:  # what a misconception returns need not be a kind of result that is expected anywhere
        return compare(None, 0)


def _outcome(exercise, case, attempt, expected):
    if attempt.kind:
        return Outcome(case.label, case.counted, attempt.problem, attempt.details, ran=attempt.kind != NOT_RUN.kind)
    difference = _difference(exercise, attempt, expected, case)
    return Outcome(case.label, case.counted, _sentence(difference) if difference else "")


def _changes(attempt):
    return f"your code changes {_and(attempt.changed)} in place: whoever called it loses their array"


def _sentence(difference):
    return difference.text[0].upper() + difference.text[1:] + "."


def _notes(*parts):
    return [Note(*part) for part in parts if any(part[1:])]


def _numbers(exercise, case, attempt, expected):
    """Show a small case whole: what was passed, what came, what was expected."""
    given = {name: value for name, value in named(case.arguments).items() if not isinstance(value, list | None)}
    passed = {name: numbers(value) for name, value in given.items()}
    came, wanted, what = attempt.result, expected, "result"
    if isinstance(expected, dict) and isinstance(came, dict):
        if set(came) != set(expected):
            return []
        what = next((n for n in expected if compare(came[n], expected[n], "", exercise.tolerance)), "")
        came, wanted = came.get(what), expected.get(what)
        if not hasattr(wanted, "shape") or what.startswith("gradient"):
            return []
    wanted, came = numbers(wanted), numbers(came)
    shown = [*passed.values(), wanted]
    if not _difference(exercise, attempt, expected) or not passed or any(value is None for value in shown):
        return []
    if sum(map(np.size, shown)) > SMALL:
        return []
    alike = came is not None and came.shape == wanted.shape
    digits = next((n for n, close in ((12, 1e-7), (8, 1e-3)) if alike and np.allclose(came, wanted, 0, close)), 4)
    lines = [f"{name} = {_written(value, 4)}" for name, value in passed.items()]
    lines += [f"your {what}: {_written(came, digits)}"] if came is not None and came.size <= SMALL else []
    return _notes(("The whole case:", "", (*lines, f"{'expected:':{len(what) + 6}} {_written(wanted, digits)}")))


def _written(value, digits):
    with np.printoptions(formatter=None):  # an answer may have set its own
        text = np.array2string(np.asarray(value), precision=digits, separator=", ", suppress_small=True)
    return text.replace("\n", "")


def _first_step(exercise, cases, found, expected):
    """Say at which time step a sequence departs from the right one, with a picture of the error."""
    axes, results = exercise.axes, [attempt.result for attempt in found]
    if isinstance(axes, dict):  # of several results, the first sequence
        name = next((name for name in axes if "T" in axes[name].split()), "")
        results = [result.get(name) if isinstance(result, dict) else None for result in results]
        axes, expected = axes.get(name, ""), [right.get(name) for right in expected]
    if "T" not in axes.split() or any(attempt.kind for attempt in found):
        return []
    results, expected = [numbers(result) for result in results], [numbers(right) for right in expected]
    if any(np.shape(came) != np.shape(right) for came, right in zip(results, expected, strict=True)):
        return []  # where a case has no result or another shape, the time step is not the trouble
    axis, best = axes.split().index("T"), None
    for case, came, right in zip(cases, results, expected, strict=True):
        if right.shape[axis] == 1:
            continue
        error = np.moveaxis(np.abs(came - right) / max(1.0, float(np.abs(right).max())), axis, -1)  # (B, ..., T)
        error = np.where(np.isnan(error), np.inf, error).reshape(len(error), -1, right.shape[axis])  # (B, units, T)
        if (error > exercise.tolerance).any() and (best is None or best[1].size < TELLING):
            best = case, error
    if best is None:
        return []
    case, error = best
    sequence = int((error > exercise.tolerance).any(1).T.nonzero()[1][0])  # the first to go wrong
    wrong = (error[sequence] > exercise.tolerance).any(0)  # (T,)
    if wrong.all():
        return []
    t, T, right = int(wrong.argmax()) + 1, len(wrong), int(wrong.argmin())
    if t == T:
        text = f"only t = {T}, the last step, is wrong"
    elif right and not wrong[right:].any():  # as of a walk back
        earlier = " and all earlier ones are" if right > 1 else " is"
        text = f"t = {right}{earlier} wrong; after it everything is right"
    elif wrong[t - 1 :].all():
        text = f"t = {t} is the first wrong step, and all later ones are wrong; before it everything is right"
    else:
        text = f"t = {t} is the first wrong step; right are t = {_listed([k + 1 for k in range(T) if not wrong[k]])}"
    return [Note(f"Over time ({case.label}):", f"{text}.", (), error[sequence])]


def _listed(steps, limit=8):
    shown = ", ".join(map(str, steps[:limit]))
    return shown + (", …" if len(steps) > limit else "")


def _terms(cases, outcomes):
    """Point to the term whose own case fails while another term's passes."""
    alone = [(case.term, bool(outcome.problem)) for case, outcome in zip(cases, outcomes, strict=True) if case.term]
    wrong, right = ([term for term, failed in alone if failed is which] for which in (True, False))
    if not all(outcome.ran for outcome in outcomes):
        return []
    if wrong and right:
        return _notes(("Where to look:", f"at {_and(wrong)}. Alone, {_and(right)} {_is(right)} right.", ()))
    whole = [bool(outcome.problem) for case, outcome in zip(cases, outcomes, strict=True) if not case.term]
    of_gradients = any(outcome.problem.startswith("The gradient of") for outcome in outcomes)  # the terms ask for none
    if right and whole and all(whole[1:]) and not of_gradients:  # not where most cases with all terms are right
        return _notes(("Where to look:", f"alone, {_and(right)} {_is(right)} right; put together they are not.", ()))
    return []


def _and(terms):
    return " and ".join(filter(None, [", ".join(terms[:-1]), terms[-1]]))


def _is(terms):
    return "are" if len(terms) > 1 else "is"


def _names(exercise, names):
    """Say what went wrong, if the results are those of misconceptions in every case."""
    read = f" Read again: {exercise.section}." if exercise.section else ""
    if not names:
        return _notes(("", read.strip(), ()))
    advice = " ".join(dict.fromkeys(exercise.misconceptions[name].advice for name in names))
    return [Note("What it looks like:", f"your result is what one gets when {' or when '.join(names)}. {advice}{read}")]
