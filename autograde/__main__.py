"""The command line of the grading: `python -m autograde release | grade | report | sample`."""

import sys
from collections import Counter
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from autograde import classroom, exercises, sample
from autograde.course import Course, Problem
from autograde.release import chapters, refuse_unknown, release

COURSE = click.option(
    "--course", default="course", show_default=True, type=click.Path(file_okay=False), help="The course directory."
)


INTERRUPTED = 130  # what a shell calls the end by Ctrl+C


class Refusal(click.ClickException):
    """Wrong usage or set-up: one sentence on stderr, exit code 2, nothing changed."""

    exit_code = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """Release chapters to a class and grade what it hands in, with nbgrader.

    Exit codes: 0 done; 1 done, but some submissions could not be read or run to their end, and are named; 2 wrong
    usage or set-up, nothing changed, or what the run needs failed on the way; 130 stopped by Ctrl+C, to be gone on with
    by the same command.
    """


@main.command("release")
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@COURSE
def release_command(slugs, course):
    """Release chapters in a course directory; all of them when none is named.

    Makes the directory and its nbgrader_config.py when there is none. Refuses, naming the cells, when its source was
    edited by hand or when submissions exist that the change would break.
    """
    slugs = slugs or chapters()
    if not slugs:
        raise Refusal("there are no solved notebooks in _build/source; run `make chapters` first")
    with refusing():
        refuse_unknown(slugs)
        target = Course(course)
        for slug in slugs:
            done = release(target, slug)
            click.echo(f"release: {slug} {'released in' if done else 'is up to date in'} {target.root}")


@main.command()
@click.argument("assignment")
@COURSE
@click.option("--student", default="*", show_default=True, metavar="GLOB", help="Only students whose name matches.")
@click.option("--jobs", type=click.IntRange(1), help="Notebooks run at a time.  [default: one for each processor]")
@click.option("--no-sandbox", is_flag=True, help="Run students' code without confinement, as you.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run them on the workers of this Dask cluster, such as tcp://host:8786."
)
def grade(assignment, course, student, jobs, no_sandbox, scheduler):
    """Grade what was handed in for ASSIGNMENT and write the feedback pages.

    Students' code runs in a sandbox and is compared from outside. What was graded before and has not changed is not
    run again; an interrupted run goes on where it stopped.
    """
    if jobs and scheduler:
        raise Refusal("--jobs is for this machine; how many a cluster runs at a time, `dask worker --nworkers` says")
    if no_sandbox:
        click.secho("grade: no confinement: students' code runs as you, with your files in reach", fg="red", err=True)
    try:
        with refusing():
            results = classroom.grade(open_course(course), assignment, student, not no_sandbox, jobs, scheduler)
    except KeyboardInterrupt:
        click.echo("grade: stopped; what was graded is kept, and the same command goes on from there", err=True)
        sys.exit(INTERRUPTED)
    width = max(len(result.student) for result in results)
    for result in results:
        note = result.problem or ("a person still grades part of it" if result.still_manual else "")
        click.echo(f"{result.student:{width}}  {result.score:6.2f} of {result.max_score:g}  {note}".rstrip())
    click.echo(f"grade: {summary(results)}")
    sys.exit(1 if any(result.problem for result in results) else 0)


def summary(results):
    """Return the counts of a run in one line; only the first two when there is nothing else to say."""
    kinds = Counter(kind for result in results for kind in {v["kind"] for v in result.verdicts.values()})
    counts = {
        "ran out of time": kinds["OutOfTime"],
        "used what an exercise forbids": kinds["Forbidden"],
        "wait for a person": sum(result.still_manual for result in results),
    }
    failed = sum(bool(result.problem) for result in results)
    return ", ".join([
        f"{len(results)} graded, {failed} could not be read or run",
        *(f"{count} {text}" for text, count in counts.items() if count),
    ])  # fmt: skip


@main.command("report")
@click.argument("assignment")
@COURSE
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    help="The page.  [default: reports/ASSIGNMENT.html in the course]",
)
def report_command(assignment, course, out):
    """Write a page about what was graded of ASSIGNMENT: scores, misconceptions, failures, time, answers alike.

    The page is one file with plots. It holds students' names and runs no script.
    """
    from autograde.report import report  # noqa: PLC0415, draws: the other commands need not wait for matplotlib

    with refusing():
        path = report(open_course(course), assignment, out)
    click.echo(f"report: {path}")


@main.command("sample")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--students",
    type=click.IntRange(min=len(sample.SPECIAL)),
    default=sample.STUDENTS,
    show_default=True,
    help="How large the class is. All but four make a mistake in every exercise, each another one while there are any.",
)
def sample_command(folder, students):
    """Make a complete sample course in FOLDER: released, handed in by an invented class, graded, with feedback.

    Without bubblewrap it is graded all the same, the class's code being this project's own. Quick when nothing changed.
    """
    with refusing():
        scores = sample.sample(folder, say=click.echo, students=students)
    for slug, scored in scores.items():
        click.echo(f"\n{slug}: points of each exercise; ? is for a person to grade")
        click.echo("\n".join(table(list(exercises.load(slug)), scored)))


def table(names, students):
    """Yield the lines of a table, student by exercise; students is what `sample.sample` returns for a chapter."""
    first = max(map(len, students))
    yield f"{'':{first}}  {'  '.join(names)}  total"
    for student, result in students.items():
        cells = {name.removesuffix("-check"): points for name, points in result["cells"].items()}
        points = ["?" if cells.get(name, 0.0) is None else f"{cells.get(name, 0.0):.2f}" for name in names]
        columns = "  ".join(f"{text:>{len(name)}}" for name, text in zip(names, points, strict=True))
        yield f"{student:{first}}  {columns}  {result['score']:5.2f} of {result['of']:g} {result['problem']}".rstrip()


def open_course(folder):
    """Return the course in a folder; refuse one that is not there, rather than begin it."""
    course = click.Path(exists=True, file_okay=False).convert(folder, None, None)
    if not Path(course, "nbgrader_config.py").is_file():
        raise Refusal(f"{course} is no course: nbgrader_config.py is not in it; --course says where yours is")
    return Course(course)


class refusing:
    """Turn a `Problem`, and what a wrong path, a damaged gradebook or configuration raises, into a refusal."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Problem):
            raise Refusal(str(error)) from None
        if isinstance(error, OSError | SQLAlchemyError | SyntaxError) and not isinstance(error, BrokenPipeError):
            told = " ".join(str(error).split())
            raise Refusal(f"{type(error).__name__}: {told[:300]}") from None
        return False


if __name__ == "__main__":
    main(prog_name="python -m autograde")
