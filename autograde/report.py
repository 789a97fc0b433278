"""Writes the report on a class: one HTML page with plots, which needs no network and runs no script."""

import io
from datetime import datetime
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

import rnnplot
from autograde import classroom, exercises, notebook, similar

HERE = Path(__file__).resolve().parent
MOST = 12  # rows of the longest lists
LONGEST = 20_000  # characters of an answer that are compared
STOPPED = {  # kinds of a verdict that are worth a person's look, in words
    "OutOfTime": "ran out of time",
    "Forbidden": "used what the exercise asks to write",
    "Died": "ended the process",
    "unreadable": "could not be read",
}


def report(course, assignment, path=None):
    """Write the report on what was graded so far; return its path, by default reports/ASSIGNMENT.html in the course.

    Raises `Problem` when nothing was handed in.
    """
    graded = classroom.look(course, assignment)
    path = Path(path or course.root / "reports" / f"{assignment}.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(assignment, graded, _pairs(course, assignment)), "utf-8")
    return path


def page(assignment, graded, pairs):
    """Return the report's HTML; graded has a `Graded` for each student, pairs what `similar.pairs` found."""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    by_exercise = rows(assignment, graded)
    named, known = misconceptions(graded), [g for g in graded if g.verdicts]
    shares = [g.score / g.max_score for g in graded if g.max_score]
    with plt.rc_context(rnnplot.STYLE):
        plots = {
            "total": _histogram(shares, np.linspace(0, 1, 11), "share of all points", percent=True),
            "exercises": _small_histograms({row["name"]: row["shares"] for row in by_exercise if row["shares"]}),
            "named": _bars([(f"{mistake}  ({name})", len(who)) for (name, mistake), who in named[:MOST]]),
            "time": _histogram([g.seconds for g in known], 12, "seconds to run a submission"),
        }
    return environment.get_template("report.html").render(
        assignment=assignment,
        date=f"{datetime.now():%Y-%m-%d %H:%M}",
        graded=graded,
        waiting=[g.student for g in graded if g.still_manual],
        rows=by_exercise,
        named=named,
        stopped=stopped(graded),
        unknown=[g.student for g in graded if not g.verdicts],
        slowest=sorted(known, key=lambda g: -g.seconds)[:5],
        median=float(np.median(shares)) if shares else 0.0,
        alike=alike(pairs),
        most=MOST,
        plots=plots,
    )


def rows(assignment, graded):
    """Return a dictionary for each exercise: its points, what students earned, how many left it or have it right.

    The chapter's exercises, in its order, or what an instructor's own notebook has.
    """
    points = {name.removesuffix("-check"): of for g in graded for name, of in g.points.items()}
    order = list(exercises.load(assignment))
    found = []
    for name in sorted(points, key=lambda name: order.index(name) if name in order else len(order)):
        scores = [g.cells[cell] for g in graded for cell in (name, f"{name}-check") if g.cells.get(cell) is not None]
        shares = [score / points[name] for score in scores if points[name]]
        checked = [g.verdicts[name]["kind"] for g in graded if name in g.verdicts]
        found.append({
            "name": name,
            "points": points[name],
            "shares": shares,
            "mean": float(np.mean(scores)) if scores else None,
            "right": sum(share >= 1 for share in shares),
            "nothing": sum(share == 0 for share in shares),
            "unwritten": checked.count("unwritten") if checked else None,
        })  # fmt: skip
    return found


def misconceptions(graded):
    """Return [((exercise, misconception), students)], the most common first."""
    found = {}
    for g in graded:
        for name, verdict in g.verdicts.items():
            for mistake in verdict["named"]:
                found.setdefault((name, mistake), []).append(g.student)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def stopped(graded):
    """Return [(student, what happened)] of submissions that a person should look at."""
    found = []
    for g in graded:
        kinds = [(name, verdict["kind"]) for name, verdict in g.verdicts.items()]
        if g.problem:
            found.append((g.student, g.problem))
        else:
            found += [(g.student, f"{name}: {STOPPED[kind]}") for name, kind in kinds if kind in STOPPED]
    return found


def alike(pairs):
    """Return [(two students, their pairs)], those with most answers alike first; the texts are HTML from here on."""
    found = {}
    for pair in pairs:
        texts = [Markup(text) for text in pair.marked]  # `similar` has escaped them
        found.setdefault(pair.students, []).append((pair, texts))
    return sorted(found.items(), key=lambda item: (-len(item[1]), -item[1][0][0].share, item[0]))


def _pairs(course, assignment):
    """Compare what students wrote into answer cells; known is what they were given and the model answers."""
    answers, known = {}, {}
    for name, source in classroom.sources_of(course, assignment).items():
        released = notebook.read(course.root / "release" / assignment / f"{name}.ipynb")
        given = {notebook.grade_id(cell): cell.source for cell in released.cells}
        for cell in source.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                exercise = notebook.grade_id(cell)
                known[exercise] = cell.cell_type, [cell.source, given.get(exercise, "")]
        for student in course.collected(assignment):
            path = course.root / "submitted" / student / assignment / f"{name}.ipynb"
            for cell in notebook.read(path).cells:
                if (exercise := notebook.grade_id(cell)) in known:
                    answers.setdefault(exercise, {})[student] = str(cell.source)[:LONGEST]
    return similar.pairs(answers, known)


def _histogram(values, bins, label, percent=False):
    figure, axes = plt.subplots(figsize=(6.6, 2.2))
    axes.hist(values, bins, color=rnnplot.BLUE, rwidth=0.9)
    axes.set(xlabel=label, ylabel="submissions")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if percent:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    else:
        axes.set_xlim(left=0)
    return _svg(figure)


def _small_histograms(shares):
    columns = 2
    lines = max(1, -(-len(shares) // columns))
    figure, all_axes = plt.subplots(lines, columns, figsize=(6.6, 0.4 + 1.3 * lines), sharex=True, squeeze=False)
    for axes, (name, values) in zip(all_axes.flat, shares.items(), strict=False):
        axes.hist(values, np.linspace(0, 1, 11), color=rnnplot.BLUE, rwidth=0.9)
        axes.set_title(name, fontsize=9)
        axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in all_axes.flat[len(shares) :]:
        axes.remove()
    return _svg(figure)


def _bars(counts):
    figure, axes = plt.subplots(figsize=(6.6, 0.6 + 0.3 * max(1, len(counts))))
    names, values = zip(*counts, strict=True) if counts else ((), ())
    axes.barh(range(len(values)), values, color=rnnplot.BLUE, height=0.7)
    axes.set_yticks(range(len(names)), [name if len(name) < 60 else f"{name[:58]}…" for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("submissions")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _svg(figure)


def _svg(figure):
    """Return a figure as SVG that takes the page's colours."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(rnnplot.INK, "currentColor").replace(rnnplot.PAPER, "none")
    return Markup(text.replace("<svg ", '<svg aria-hidden="true" ', 1))
