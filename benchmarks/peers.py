"""Grades the same submissions by nbgrader, by otter-grader and by this project: `python benchmarks/peers.py`.

The notebook is the first chapter's without its demos. Some submissions are the sample class's, the others forged: wrong
answers that seek points in another way. nbgrader and otter-grader run as they come and test with assertions, written
with care; nbgrader also with this course's own checks. All are started as an instructor starts them. otter-grader gets
a virtual environment of its own, in _build. Takes a quarter of an hour; writes peers.json (all figures), peers.md
(tables) and peers.svg (a drawing) beside this file, for the instructor's guide.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import venv
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import nbformat
import psutil
from bs4 import BeautifulSoup
from matplotlib.figure import Figure
from nbformat.v4 import new_markdown_cell
from nbgrader.api import Gradebook

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # tests before here, where attacks.py is another

import attacks  # noqa: E402
import grading  # noqa: E402

import rnnplot  # noqa: E402
from autograde import exercises, sample  # noqa: E402
from autograde.release import ROOT  # noqa: E402
from publish.figures import inline, scrolling  # noqa: E402

SLUG = "01_forward"
IMPORT = "from autograde import check"  # of the chapter, and of no use to otter
OTTER, OURS, CHECKS = "7.0.0", "this project", "our checks"
CHECKED = {  # {exercise: the function that is asked for}
    "rnn-step": "rnn_step",
    "rnn-sequence": "rnn_forward",
    "output-layer": "output_layer",
    "parameter-count": "count_parameters",
    "parity-weights": "parity_weights",
}
POINTS = {name: exercises.find(name).points for name in CHECKED}

# Tests as an instructor writes them who wants to be told what is wrong: NumPy's own comparison names shapes and values.
ASSERTIONS = {
    "rnn-step": """\
rng = np.random.default_rng(1)
W = [rng.normal(size=size) for size in [(4, 3), (4, 4), (4,)]]
x, h = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))
np.testing.assert_allclose(rnn_step(x, h, *W), rnncore.rnn_step(x, h, *W), rtol=1e-6)""",
    "rnn-sequence": """\
rng = np.random.default_rng(2)
W = [0.5 * rng.normal(size=size) for size in [(4, 3), (4, 4), (4,)]]
x, h0 = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 4))
np.testing.assert_allclose(rnn_forward(x, h0, *W), rnncore.rnn_forward(x, h0, *W), rtol=1e-6)""",
    "output-layer": """\
rng = np.random.default_rng(3)
hs, W_hy, b_y = rng.normal(size=(2, 5, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
expected = np.einsum("bth,ch->btc", hs, W_hy) + b_y
np.testing.assert_allclose(output_layer(hs, W_hy, b_y), expected, rtol=1e-6)""",
    "parameter-count": """\
assert count_parameters(3, 4, 2) == 3 * 4 + 4 * 4 + 4 + 4 * 2 + 2
assert count_parameters(1, 7, 5) == 1 * 7 + 7 * 7 + 7 + 7 * 5 + 5""",
    "parity-weights": """\
w = parity_weights()
bits = np.random.default_rng(4).integers(0, 2, size=(8, 12, 1)).astype(float)
h, outputs = np.zeros((8, len(w["b_h"]))), []
for t in range(12):
    h = np.maximum(bits[:, t] @ w["W_xh"].T + h @ w["W_hh"].T + w["b_h"], 0)
    outputs.append(h @ w["W_hy"].T + w["b_y"])
np.testing.assert_allclose(np.stack(outputs, axis=1), np.cumsum(bits, axis=1) % 2, atol=1e-6)""",
}

# ----------------------------------------------------------------------------------------------------------------------
# The submissions: what the class writes, and what is forged.

AIMED_AT_PEERS = [
    attacks.Attack(
        "NumPy's assertion is replaced",
        attacks.POINTS,
        "assertions",
        code="import numpy.testing\nnumpy.testing.assert_allclose = lambda *a, **k: None",
    ),
    attacks.Attack(
        "otter's test cases are replaced",
        attacks.POINTS,
        "otter-grader",
        code="import sys\nfor name, module in list(sys.modules.items()):\n"
        "    if name == 'otter.test_files.exception_test':\n"
        "        module.test_case.call_func = lambda *a: None",
    ),
]
CHOSEN = (
    "a result that is equal to everything",
    "an exception in place of the comparison",
    "an array subclass that answers for NumPy",
    "an object whose __array__ looks for the expected result",
    "the reference's module is asked, under another name",
    "the reference's file is read and run",
    "check is replaced",
    "the display hook shows nothing",
    "tags ask to skip the checks",
    "a score is sent past the display, by the protocol's own socket",
)
_known = {attack.name: attack for attack in attacks.ATTACKS}
FORGED = {name: _known[name] for name in CHOSEN} | {attack.name: attack for attack in AIMED_AT_PEERS}


def notebooks(folder, honest):
    """Return {student: notebook}: so many of the sample class, then all who forge."""
    course = grading.released(folder, SLUG, prepared)
    sample.hand_in(course, SLUG, honest)
    handed_in = {path.parts[-3]: read(path) for path in sorted(folder.glob(f"submitted/*/{SLUG}/*.ipynb"))}
    for number, attack in enumerate(FORGED.values()):
        handed_in[f"forged-{number:02d}"] = nb = read(folder / "release" / SLUG / f"{SLUG}.ipynb")
        answers = attacks.WRONG | attack.answers
        answers["rnn-step"] = f"{attack.code}\n{answers['rnn-step']}"
        for cell in nb.cells:
            cell.source = answers.get(cell.id, cell.source)
        attack.change(nb)
    for student, nb in handed_in.items():
        nb.cells.insert(0, new_markdown_cell(f"Handed in by {student}."))  # no two are alike
    return handed_in


def read(path):
    """Return a notebook."""
    return nbformat.read(path, as_version=4)


def mistaken(handed_in):
    """Return {exercise: {wrong answer: a student who gave it}} of the sample class."""
    found = {name: {} for name in CHECKED}
    for student, nb in handed_in.items():
        if student.partition("-")[0] in sample.MISTAKEN:
            for cell in nb.cells:
                if cell.id in found:
                    found[cell.id].setdefault(cell.source, student)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The graders. Each makes its course in a folder, grades who handed in there, and says what it gave and what it wrote.


class Stock:
    """nbgrader as it comes, with assertions in the place of this course's checks, or with those."""

    at_once = 1

    def __init__(self, folder, tests=None):
        self.folder = folder
        grading.released(folder, SLUG, lambda nb: prepared(nb, tests))
        grading.as_it_comes(folder)

    def hand_in(self, student, nb):
        """Put a submission into the course."""
        path = self.folder / "submitted" / student / SLUG / f"{SLUG}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(nb, path)

    def grade(self):
        """Grade all who handed in, and write their feedback."""
        for step in ("autograde", "generate_feedback"):
            # the exit code tells of a submission that could not be graded: it has no points
            command(sys.executable, "-m", "nbgrader", step, SLUG, f"--course-dir={self.folder}", cwd=self.folder)

    def points(self, student):
        """Return {exercise: points}."""
        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}", "recurrence") as gradebook:
            (part,) = gradebook.find_submission(SLUG, student).notebooks
            given = {grade.name.removesuffix("-check"): grade.score for grade in part.grades}
        return {name: given[name] for name in CHECKED}

    def feedback(self, student, exercise):
        """Return the text that a student reads below the check of an exercise."""
        nb = read(self.folder / "autograded" / student / SLUG / f"{SLUG}.ipynb")
        (cell,) = (
            cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == f"{exercise}-check"
        )
        return "\n".join(map(text_of, cell.outputs))


class Ours(Stock):
    """This project."""

    at_once = len(os.sched_getaffinity(0))

    def __init__(self, folder):
        self.folder = folder
        grading.released(folder, SLUG, prepared)

    def grade(self):
        """Grade all who handed in, and write their feedback."""
        command(sys.executable, "-m", "autograde", "grade", SLUG, "--course", self.folder)


class Otter:
    """otter-grader, without the containers that it can run notebooks in; as many at a time as there are processors."""

    at_once = len(os.sched_getaffinity(0))

    def __init__(self, folder):
        self.folder, self.programs = folder, otter() / "bin"
        for name, body in ASSERTIONS.items():
            path = folder / "tests" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(otters_test(name, body), "utf-8")
        words = ("generate", "-t", "tests", "-o", "autograder.zip", "--no-requirements", "--no-environment")
        assert command(self.programs / "otter", *words, cwd=folder) == 0

    def hand_in(self, student, nb):
        """Put a submission, with otter's own cells in the place of nbgrader's, where it will be graded."""
        nb = nbformat.from_dict(json.loads(json.dumps(nb)))
        for cell in nb.cells:
            if IMPORT in cell.source:
                cell.source = cell.source.replace(IMPORT, "import otter\n\ngrader = otter.Notebook()")
            elif is_check(cell):
                cell.source = f'grader.check("{exercise_of(cell)}")'
            cell.metadata.pop("nbgrader", None)
        path = self.folder / student / f"{SLUG}.ipynb"
        path.parent.mkdir()
        nbformat.write(nb, path)

    def grade(self):
        """Grade all who handed in."""

        def run(path):
            words = ("run", "-a", self.folder / "autograder.zip", "-o", path.parent, path)
            command(self.programs / "otter", *words, cwd=path.parent, PATH=f"{self.programs}:{os.environ['PATH']}")

        with ThreadPoolExecutor(self.at_once) as pool:
            list(pool.map(run, sorted(self.folder.glob(f"*/{SLUG}.ipynb"))))

    def points(self, student):
        """Return {exercise: points}; none where otter ended without results."""
        path = self.folder / student / "results.json"
        tests = json.loads(path.read_text("utf-8"))["tests"] if path.is_file() else []
        given = {test["name"]: test["score"] for test in tests if "score" in test}
        return {name: given.get(name, 0.0) for name in CHECKED}

    def feedback(self, student, exercise):
        """Return what a student reads about an exercise."""
        tests = json.loads((self.folder / student / "results.json").read_text("utf-8"))["tests"]
        return next(test["output"] for test in tests if test["name"] == exercise)


def prepared(nb, tests=None):
    """Leave the demos of a solved notebook out, and put other tests into its checks."""
    grading.without_demos(nb)
    for cell in nb.cells:
        if tests and is_check(cell):
            cell.source = tests[exercise_of(cell)]


def is_check(cell):
    """Whether a cell is the check of an exercise."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "").endswith("-check")


def exercise_of(cell):
    """Return the name of the exercise that a cell checks."""
    return cell.metadata["nbgrader"]["grade_id"].removesuffix("-check")


def otters_test(name, body):
    """Return a file of otter's exception-based tests."""
    return (
        "import numpy as np\nimport rnncore\nfrom otter.test_files import test_case\n\n"
        f'OK_FORMAT = False\nname = "{name}"\npoints = {POINTS[name]}\n\n\n'
        f"@test_case()\ndef test({CHECKED[name]}):\n    " + body.replace("\n", "\n    ") + "\n"
    )


def otter():
    """Return the folder of a virtual environment with otter-grader and what the chapter imports, made once."""
    folder = ROOT / "_build" / f"otter-grader-{OTTER}"
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, clear=True, with_pip=True)
        same = [
            f"{name}=={version(name).partition('+')[0]}"
            for name in ("torch", "numpy", "matplotlib", "array-api-compat")
        ]
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"otter-grader[grading]=={OTTER}", *same]
        subprocess.run(pip, check=True)
        done.touch()
    return folder


def command(*words, cwd=None, **environment):
    """Run a command without its words on the screen; return its exit code."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
    words = list(map(str, words))
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, check=False).returncode


def text_of(output):
    """Return an output of a cell as the text that a reader of the page sees."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output.traceback))
        return re.sub(r"/\S+/site-packages/", "", text)  # says where something is installed, and nothing else
    if html := output.data.get("text/html"):
        return BeautifulSoup(html, "html.parser").get_text("\n", strip=True)
    return output.data.get("text/plain", "")


# ----------------------------------------------------------------------------------------------------------------------
# What is measured.


def main(arguments):
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--submissions", type=int, default=40, help="of these, the last twelve are forged")
    parser.add_argument("--watched", type=int, default=6, help="how many are graded while memory is watched")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write to")
    options = parser.parse_args(arguments)
    if not (ROOT / "_build" / "source" / SLUG).is_dir():
        parser.error(f"there is no solved notebook of {SLUG} in _build/source; run `make chapters` first")
    honest = options.submissions - len(FORGED)
    least = len(sample.SPECIAL) + 1 + list(exercises.find("rnn-step").misconceptions).index(EXAMPLE)
    if honest < least:
        parser.error(f"--submissions is {options.submissions}; it must be at least {len(FORGED) + least}")
    record = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"}
    record |= {"submissions": options.submissions, "of": sum(POINTS.values()), "graders": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        handed_in = notebooks(folder / "class", honest)
        for name, make in graders().items():
            some = dict(list(handed_in.items())[: options.watched])
            record["graders"][name] = found = measured(make(folder / name), handed_in)
            found["memory"] = watched(make(folder / f"{name}, watched"), some)
            print(f"{name}: {found['seconds']:.2f} s, {found['memory']:.0f} MB", flush=True)
    (options.out / "peers.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    (options.out / "peers.md").write_text(table(record), "utf-8")
    draw(record, options.out / "peers.svg")
    print(table(record))
    return 0


def graders():
    """Return {name: what makes a grader in a folder}."""
    nbgrader = f"nbgrader {version('nbgrader')}"
    return {
        f"{nbgrader}, assertions": lambda folder: Stock(folder, ASSERTIONS),
        f"{nbgrader}, {CHECKS}": Stock,
        f"otter-grader {OTTER}, assertions": Otter,
        OURS: Ours,
    }


def measured(grader, handed_in):
    """Return what a grader does with the submissions: its time, its points, and what its feedback tells apart."""
    for student, nb in handed_in.items():
        grader.hand_in(student, nb)
    seconds = grading.timed(grader.grade)
    points = {student: sum(grader.points(student).values()) for student in handed_in}
    texts = {
        name: {answer: grader.feedback(student, name) for answer, student in given.items()}
        for name, given in mistaken(handed_in).items()
    }
    return {
        "seconds": seconds / len(handed_in),
        "at_once": grader.at_once,
        "right": points[sample.RIGHT],
        "blank": points[sample.BLANK],
        "forged": {name: points[f"forged-{number:02d}"] for number, name in enumerate(FORGED)},
        "mistakes": sum(map(len, texts.values())),
        "told_apart": sum(len(set(map(without_numbers, some.values()))) for some in texts.values()),
        "example": texts["rnn-step"][example()],
    }


def watched(grader, handed_in):
    """Return the most megabytes that a grader took together with all processes it had at that time."""
    for student, nb in handed_in.items():
        grader.hand_in(student, nb)
    return peak_memory(grader.grade)


EXAMPLE = "W_hh is not transposed"  # the mistake that the guide shows the feedback of


def example():
    """Return this wrong answer to the first exercise, as the sample class writes it."""
    return sample.source_of(exercises.find("rnn-step").misconceptions[EXAMPLE].implementation, "rnn_step")


def without_numbers(text):
    """Return a text with every number and array as one sign, since each wrong answer has numbers of its own."""
    text = re.sub(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?", "#", text)
    return re.sub(r"[\s#,\[\]]*#[\s#,\[\]]*", " # ", text)


def peak_memory(function):
    """Return the most megabytes that the processes which a call starts took together; shared pages count once."""
    peak, done = [0.0], threading.Event()

    def watch():
        while not done.wait(0.1):
            peak.append(sum(map(proportional, psutil.Process().children(recursive=True))))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        function()
    finally:
        done.set()
        thread.join()
    return max(peak)


def proportional(process):
    """Return a process's megabytes, those that it shares divided by how many share them (PSS); 0 if it is gone."""
    try:
        return process.memory_full_info().pss / 2**20
    except psutil.Error:
        return 0.0


def table(record):
    """Return the table of all graders, and that of what was forged, as Markdown."""
    found = record["graders"]
    fastest = found[next(iter(found))]["seconds"]
    rows = {
        "seconds for a submission": [f"{one['seconds']:.2f}" for one in found.values()],
        "throughput, to the first": [f"{fastest / one['seconds']:.1f}" for one in found.values()],
        "notebooks at a time": [one["at_once"] for one in found.values()],
        "memory at most, MB": [f"{one['memory']:.0f}" for one in found.values()],
        "points for right answers": [f"{one['right']:g}" for one in found.values()],
        "forged submissions with points": [sum(map(bool, one["forged"].values())) for one in found.values()],
        "points of the best of them": [f"{max(one['forged'].values()):g}" for one in found.values()],
        "mistakes told apart": [one["told_apart"] for one in found.values()],
    }
    of = {
        "forged submissions with points": f", of {len(FORGED)}",
        "points for right answers": f", of {record['of']:g}",
        "mistakes told apart": f", of {next(iter(found.values()))['mistakes']}",
    }
    head = " | ".join(found)
    lines = ["<!-- written by benchmarks/peers.py -->"]
    lines += [f"| what is measured | {head} |", "|---|" + "--:|" * len(found)]
    lines += [f"| {name}{of.get(name, '')} | {' | '.join(map(str, cells))} |" for name, cells in rows.items()]
    lines += ["", f"{record['submissions']} submissions. On {record['machine']}.", "", "<!-- forged -->"]
    lines += [f"| points forged, of {record['of']:g} | {head} |", "|---|" + "--:|" * len(found)]
    for name in FORGED:
        plain = name.replace("__", r"\_\_")
        lines.append(f"| {plain} | {' | '.join(format(one['forged'][name], 'g') for one in found.values())} |")
    lines += ["", "<!-- example -->"]
    for name, one in found.items():
        if name.endswith(CHECKS):
            continue  # the words are ours
        text = one["example"].strip().replace("\N{CROSS MARK}", "✗")  # which is in every font, and so on paper
        lines += [f"{name}:", "", "```text", *text.splitlines(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def draw(record, path):
    """Draw what was measured, a panel for each question, and write it as an element of a page."""
    rnnplot.use_style()
    found = record["graders"]
    forged = [sum(one["forged"].values()) for one in found.values()]
    panels = {
        "seconds for\na submission": [one["seconds"] for one in found.values()],
        "memory\nat most, MB": [one["memory"] for one in found.values()],
        f"points forged by\n{len(FORGED)} submissions": forged,
        f"mistakes told\napart, of {next(iter(found.values()))['mistakes']}": [
            one["told_apart"] for one in found.values()
        ],
    }
    fig = Figure(figsize=(7.2, 2.5))
    axes = fig.subplots(1, len(panels), sharey=True)
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        colours = [rnnplot.VERMILION if name == OURS else rnnplot.BLUE for name in found]
        bars = ax.barh(range(len(found)), values, height=0.6, color=colours)
        ax.bar_label(bars, fmt="{:.2f}" if max(values) < 10 else "{:.0f}", padding=3, fontsize=9)
        ax.set_title(title, fontsize=9.5)
        ax.set_xlim(0, 1.35 * max(values))
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(found)), [name.replace(", ", "\n") for name in found])
    axes[0].invert_yaxis()
    fig.savefig(path, format="svg", metadata={"Date": None})
    named = [name.replace(", ", " with ") for name in found]
    parts = [
        f"{title}: " + ", ".join(f"{value:.3g} by {name}" for name, value in zip(named, values, strict=True))
        for title, values in panels.items()
    ]
    alt = "; ".join(parts).replace("\n", " ")
    drawing = scrolling(inline(path.read_text("utf-8"), "peers-benchmark", f"{alt}."))
    path.write_text(f"{drawing}\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
