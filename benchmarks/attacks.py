"""Hands in every attack of tests/attacks.py twice, unprotected and to this project: `python benchmarks/attacks.py`.

Each must succeed in the unprotected run it names and fail here, where all of them are one class and an honest student
is among them. Writes a table, attacks.md, and exits with 1, naming the attack, where that is not so. Takes a quarter of
an hour. The attacks are harmless outside their course, a temporary folder.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from traitlets.config import PyFileConfigLoader

from autograde import classroom, grader, sandbox
from autograde.course import Course

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path = [path for path in sys.path if Path(path).resolve() != HERE]  # this file is called attacks, too
sys.path.insert(0, str(TESTS))
import attacked  # noqa: E402, it lies with the tests
import attacks  # noqa: E402
from attacks import ATTACKER, ATTACKS, HARM, OURS, SCRIPT, SLUG, STOP, VICTIM  # noqa: E402

END = 30  # seconds after which a run that has not ended counts as stopped
LIMITS = {"wall": 12, "cpu": 8}  # a tenth of the usual ones, to save time


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "attacks.md", help="the table to write")
    parser.add_argument("--only", metavar="NAME", action="append", help="only attacks whose name holds this; no table")
    parser.add_argument("--grade", type=Path, help=argparse.SUPPRESS)  # what this program starts of itself
    parser.add_argument("--without", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.grade:
        return grade(options.grade, options.without)
    chosen = [attack for attack in ATTACKS if not options.only or any(name in attack.name for name in options.only)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= surroundings(Path(folder))
        there = {attack.name: unprotected(attack, Path(folder)) for attack in chosen}
        here = protected(chosen, Path(folder) / "ours")
    lines = table(chosen, there, here)
    if not options.only:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines[1:]))
    wrong = [f"does not succeed unprotected: {name}" for name, got in there.items() if not got]
    wrong += [f"succeeds here: {name} ({got})" for name, got in here.items() if got]
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def table(chosen, there, here):
    """Return the lines of the table."""
    lines = [
        f"<!-- written by benchmarks/attacks.py; attacks {digest()} -->",
        "| attack | the unprotected run | what it gets there | what it gets here |",
        "|---|---|---|---|",
    ]
    for attack in chosen:
        name = attack.name.replace("__", r"\_\_")  # which Markdown would take for its own
        got = (there[attack.name] or "NOTHING", here[attack.name] or "nothing")
        lines.append(f"| {name} | {attack.against} | {' | '.join(got)} |")
    return lines


def digest():
    """Return a short digest of the attacks, for the table to carry."""
    return hashlib.sha256((TESTS / "attacks.py").read_bytes()).hexdigest()[:16]


def surroundings(folder):
    """Return the environment of all runs: a home of their own, and a secret of the grader's."""
    home = folder / "home"
    home.mkdir()
    secret = attacks.SECRETS["the grader's environment"]
    return {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "GRADERS_TOKEN": secret}


# ----------------------------------------------------------------------------------------------------------------------
# The unprotected runs.

UNLOCK = (
    'c.Autograde.sanitize_preprocessors = ["nbgrader.preprocessors.ClearOutput", '
    '"nbgrader.preprocessors.OverwriteKernelspec"]\n'
)


@lru_cache
def template(folder, against):
    """Return a course for an unprotected run, to be copied."""
    place = folder / f"template-{hashlib.sha256(against.encode()).hexdigest()[:8]}"
    if against == OURS:
        return attacked.course(place)

    def configure(made):  # as nbgrader comes; a short time for each cell saves time
        path = made.root / "nbgrader_config.py"
        text = path.read_text("utf-8").partition("c.CourseDirectory.include")[0] + "c.Execute.timeout = 8\n"
        path.write_text(text + UNLOCK * (against == attacks.UNLOCKED), "utf-8")
        made.api.config = PyFileConfigLoader(path.name, path=str(made.root)).load_config()

    return attacked.course(place, attacks.ASSERTIONS if against == attacks.ASSERTED else None, configure)


def unprotected(attack, folder):
    """Hand in an attack to the unprotected run that it names; return what it got, or ""."""
    ours = attack.against.startswith(OURS)
    place = Path(tempfile.mkdtemp(dir=folder, prefix="unprotected-")) / "course"
    shutil.copytree(template(folder, OURS if ours else attack.against), place)
    attack.hand_in(place, ATTACKER)
    before = attacked.state(place)
    if ours:
        ended = command(sys.executable, __file__, "--grade", place, "--without", attack.against.removeprefix(OURS))
    else:
        if attack.gain == HARM:
            stock(place, VICTIM)
        ended = stock(place, ATTACKER, feedback=attack.gain in (STOP, SCRIPT))
        if attack.gain == HARM:
            stock(place, VICTIM)
            time.sleep(5)  # what was left behind has its time
    got = attacked.gained(attack, place, ATTACKER, before, ended)
    print(f"{attack.name} | {attack.against} | {got or 'NOTHING'}", file=sys.stderr, flush=True)
    shutil.rmtree(place.parent)
    return got


def stock(place, student, feedback=False):
    """Let nbgrader grade a student, and write the feedback; return how the run was ended, "" for by itself."""
    options = (SLUG, f"--student={student}", "--force", f"--course-dir={place}")
    ended = command(sys.executable, "-m", "nbgrader", "autograde", *options, cwd=place)
    if ended or not feedback:
        return ended
    return command(sys.executable, "-m", "nbgrader", "generate_feedback", *options, cwd=place)


def command(*words, cwd=None):
    """Run a command; return how it was ended, "" for by itself."""
    with tempfile.TemporaryFile() as said:  # no pipe: what is left behind would hold it open
        process = subprocess.Popen(list(map(str, words)), cwd=cwd, stdout=said, stderr=said, start_new_session=True)
        try:
            code = process.wait(END)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            return f"the run has no end within {END} s"
    return "the run is killed" if code < 0 else ""


# ----------------------------------------------------------------------------------------------------------------------
# This project, in a process of its own.


def protected(chosen, folder):
    """Hand in all attacks to one course of this project and grade the class; return {name: what it got, or ""}."""
    shutil.copytree(template(folder.parent, OURS), folder)
    students = {attack.name: f"{ATTACKER}-{number:03d}" for number, attack in enumerate(chosen)}
    for attack in chosen:
        attack.hand_in(folder, students[attack.name])
    before = attacked.state(folder)
    subprocess.run([sys.executable, __file__, "--grade", folder], check=False)
    return {a.name: attacked.gained(a, folder, students[a.name], before) for a in chosen}


def grade(place, without):
    """Grade a course with one defence off; return the exit code."""
    WITHOUT.get(without, lambda: None)()
    course = Course(place)
    course.api.config.GradeOutside.limits = LIMITS | ({"wall": 10**4} if without == "the wall clock" else {})
    results = classroom.grade(course, SLUG, confined=without != "the sandbox")
    return int(any(result.problem for result in results))


def _hold_all_of_rnncore():
    grader._provided = lambda exercise: None


def _watch_nothing():
    watched = sandbox.Worker.probe
    sandbox.Worker.probe = lambda self, answer, probe, forbidden, seconds: watched(self, answer, probe, (), seconds)


def _suspect_no_reply():
    grader.Exception = sandbox.Died  # the name in its `except`


def _mend_no_text():
    grader._writable = str


WITHOUT = {
    "withholding rnncore": _hold_all_of_rnncore,
    "the watch": _watch_nothing,
    "suspecting replies": _suspect_no_reply,
    "mending texts": _mend_no_text,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
