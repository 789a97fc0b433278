"""JupyterLab in a real browser: a server of one's own, and what a student and an instructor do there.

The tests of the three doors and `make pictures` take the same steps.
"""

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import nbformat

from autograde import exercises
from autograde.course import Course
from autograde.release import release
from autograde.sample import source_of
from publish import __main__ as publishing

PATIENCE = 60  # seconds: on a busy machine JupyterLab takes a while to open, and a kernel to start


def begin_course(folder, slug, root):
    """Make a course in a folder with one chapter released in it; return it. Nothing is written anywhere else."""
    project = folder.with_name(f"{folder.name}-project")
    built = publishing.build(root)
    path = Path("_build", "source", slug, f"{slug}.ipynb")
    (project / path).parent.mkdir(parents=True)
    (project / path).write_text(built[root / path], "utf-8")
    course = Course(folder)
    release(course, slug, project)
    return course


def begin_student(home, course):
    """Make a home for a student, with what their nbgrader has to know of a course."""
    config = home / ".jupyter" / "nbgrader_config.py"
    config.parent.mkdir(parents=True)
    exchange = str(course.root / "exchange")
    config.write_text(f'c = get_config()\nc.CourseDirectory.course_id = "recurrence"\nc.Exchange.root = {exchange!r}\n')


def mistaken(course, slug, exercise_id, mistake):
    """Return the text of an answer cell with a known mistake, written as a student would: in place of the stub."""
    cells = nbformat.read(course.root / "release" / slug / f"{slug}.ipynb", as_version=4).cells
    (stub,) = [cell.source for cell in cells if cell.id == exercise_id]
    wrong = source_of(exercises.find(exercise_id).misconceptions[mistake].implementation, "answer")
    (line,) = ast.parse(wrong).body
    return stub.replace("# YOUR CODE HERE\n    raise NotImplementedError()", f"return {ast.unparse(line.value.body)}")


def hand_in(home, course, slug, answers, root):
    """Hand a chapter in for ada with nbgrader's own command; answers are {id of a cell: its text}."""
    begin_student(home, course)
    answered(course, slug, answers, home / slug)
    run(["nbgrader", "submit", slug, "--student=ada"], home, home, root)


def answered(course, slug, answers, folder):
    """Copy a released chapter to a folder, with answers in it, {id of a cell: its text}."""
    shutil.copytree(course.root / "release" / slug, folder)
    path = folder / f"{slug}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, path)


def begin_class(folder, slug, root, exercise_id):
    """Make a course with one chapter that eight students handed in: right, untouched, an exercise with six mistakes."""
    course = begin_course(folder, slug, root)
    solved = nbformat.read(course.root / "source" / slug / f"{slug}.ipynb", as_version=4).cells
    right = {cell.id: cell.source for cell in solved if cell.metadata.get("nbgrader", {}).get("solution")}
    answers = {"right": right, "untouched": {}}
    for number, mistake in enumerate(list(exercises.find(exercise_id).misconceptions)[:6]):
        answers[f"mistaken-{number}"] = right | {exercise_id: mistaken(course, slug, exercise_id, mistake)}
    for student, written in answers.items():
        answered(course, slug, written, course.root / "submitted" / student / slug)
    return course


def scores(course, slug):
    """Return what stands in the gradebook, {student: {cell: (points, whether a person is to read it)}}."""
    with course.api.gradebook as gradebook:
        return {
            one.student_id: {g.name: (g.score, g.needs_manual_grade) for part in one.notebooks for g in part.grades}
            for one in gradebook.assignment_submissions(slug)
        }


def run(command, folder, home, root):
    """Run a command in a folder as the user of a home."""
    done = subprocess.run(command, cwd=folder, env=environment(home, root), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def environment(home, root):
    """Return the environment of a user with a home of their own, who has this project's packages and modules."""
    return os.environ | {
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / ".jupyter"),
        "JUPYTER_DATA_DIR": str(home / ".data"),
        "JUPYTER_RUNTIME_DIR": str(home / ".runtime"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # it would look for all fonts anew
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
    }


@contextlib.contextmanager
def server(folder, home, root):
    """Run JupyterLab's server in a folder for the user of a home; yield its address, and end it in any case."""
    _settle(home)
    log = home / "server.log"
    command = ["jupyter-lab", "--no-browser", "--allow-root", "--ServerApp.port=0", "--ServerApp.ip=127.0.0.1"]
    command.append("--LabApp.expose_app_in_browser=True")  # for `Student.show`
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=folder, env=environment(home, root), stdout=out, stderr=out) as process,
    ):
        try:
            yield _address(process, home / ".runtime", log)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


def _settle(home):
    """Let JupyterLab not ask whether it may fetch news: the question would lie over what is looked at."""
    settings = home / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')


def _address(process, folder, log):
    """Return the address that a server notes in its runtime folder once it listens, with its token."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for path in folder.glob(f"jpserver-{process.pid}.json"):
            with contextlib.suppress(ValueError):  # it is being written
                noted = json.loads(path.read_text())
                return f"http://127.0.0.1:{noted['port']}/lab?token={noted['token']}"
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab's server did not start:\n{log.read_text()}")


class Lab:
    """JupyterLab's page in a browser. Nothing outside this machine is reached; what was asked for is kept."""

    def __init__(self, browser, address, width=1280, height=900):
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
        self.context.set_default_timeout(PATIENCE * 1000)
        self.outside = []
        self.context.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), self._refuse)
        self.page = self.context.new_page()
        self.go_to(address)

    def go_to(self, address):
        """Open JupyterLab at an address and wait until it can be used."""
        self.page.goto(address)
        self.page.get_by_role("menuitem", name="Nbgrader").wait_for()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def _refuse(self, route):
        self.outside.append(route.request.url)
        route.abort()

    def menu(self, name, item):
        """Choose an item of a menu."""
        self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.page.get_by_role("menuitem", name=item).click()

    def accept(self):
        """Agree to the dialogue that is open, or about to open; return what it said."""
        dialog = self.page.locator(".jp-Dialog")
        dialog.wait_for()
        said = dialog.inner_text()
        dialog.locator("button.jp-mod-accept").click()
        dialog.wait_for(state="detached")
        return said


class Student(Lab):
    """What a student does, from the list of assignments to handing in."""

    def fetch(self, slug):
        """Fetch an assignment in the list of assignments."""
        self.menu("Nbgrader", "Assignment List")
        released = self.page.locator("#released_assignments_list > .list_item", has_text=slug)
        released.get_by_role("button", name="Fetch").click()
        self._fetched(slug).wait_for()

    def _fetched(self, slug):
        return self.page.locator("#fetched_assignments_list > .list_item", has_text=slug)

    def open(self, slug, path):
        """Open the fetched notebook, which lies at a path, from the list; return its cells, as they are there."""
        self._fetched(slug).locator("a.assignment-notebooks-link").click()
        self._fetched(slug).locator(".nested_list_item a").click()
        return self.opened(path)

    def show(self, path):
        """Open the notebook that lies at a path, in the server's folder, in place of what is open; return its cells."""
        steps = """async name => {
            for (const one of [...jupyterapp.shell.widgets("main")]) {
                await one.context?.save();  // or it would ask, for the kernel has noted its version
                one.close();
            }
            await jupyterapp.commands.execute("docmanager:open", {path: name, factory: "Notebook"});
        }"""
        self.page.evaluate(steps, path.name)
        return self.opened(path)

    def opened(self, path):
        """Wait for the notebook that is being opened, which lies at a path; return its cells."""
        cells = nbformat.read(path, as_version=4).cells
        self.places = {cell.id: place for place, cell in enumerate(cells)}
        self.page.locator(".jp-NotebookPanel .jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
        shown = self.page.locator(".jp-NotebookPanel .jp-Cell")
        shown.nth(len(cells) - 1).wait_for(state="attached")
        assert shown.count() == len(cells)
        return cells

    def cell(self, name):
        """Return the cell with an id."""
        return self.page.locator(".jp-NotebookPanel .jp-Cell").nth(self.places[name])

    def rendered(self, name):
        """Scroll to a Markdown cell and return its rendered text."""
        self.cell(name).scroll_into_view_if_needed()
        text = self.cell(name).locator(".jp-InputArea > .myst")
        text.wait_for()
        return text

    def write(self, name, text):
        """Write something into a cell in place of what stands there."""
        if "jp-MarkdownCell" in self.cell(name).get_attribute("class"):
            self.cell(name).dblclick()
        self.cell(name).locator(".cm-content").fill(text)

    def run(self, name):
        """Run a cell and wait until it has run."""
        before = self._prompt(name).inner_text()
        self.cell(name).locator(".cm-content").press("Shift+Enter")
        self._wait_for_run(name, before)

    def run_all(self, until):
        """Restart the kernel and run all cells; wait until the one has run at which this ends."""
        before = self._prompt(until).inner_text()
        self.menu("Kernel", "Restart Kernel and Run All Cells…")
        self.accept()
        self._wait_for_run(until, before)

    def _prompt(self, name):
        return self.cell(name).locator(".jp-InputPrompt")

    def _wait_for_run(self, name, before):
        if "jp-CodeCell" in self.cell(name).get_attribute("class"):
            done = "([prompt, before]) => prompt.innerText !== before && /\\d/.test(prompt.innerText)"
            self.page.wait_for_function(done, arg=[self._prompt(name).element_handle(), before])

    def check(self, name, text):
        """Write an answer, run it and its check; return the feedback."""
        self.write(name, text)
        self.run(name)
        self.run(f"{name}-check")
        return self.feedback(name)

    def feedback(self, name):
        """Scroll to the feedback on an exercise and return it; out of sight JupyterLab draws nothing."""
        box = self.cell(f"{name}-check").locator(".recurrence-check")
        box.scroll_into_view_if_needed()
        return self.page.wait_for_function("box => box.innerText", arg=box.element_handle()).json_value()

    def validate(self):
        """Press the notebook's Validate; return what the dialogue says."""
        self.page.locator(".validate-button").click()
        return self.accept()

    def submit(self, slug):
        """Hand the assignment in, from the list of assignments."""
        self.page.get_by_role("tab", name="Assignments").click()
        self._fetched(slug).get_by_role("button", name="Submit").click()
        self.page.locator("#submitted_assignments_list > .list_item", has_text=slug).wait_for()


class Instructor(Lab):
    """What an instructor does in formgrader."""

    def formgrader(self):
        """Open formgrader."""
        self.menu("Nbgrader", "Formgrader")
        self.frame = self.page.locator("#formgrader-iframe iframe").element_handle().content_frame()

    def press(self, row, step):
        """Press the button of a step in the row of an assignment or a student; return what the message says."""
        self.frame.locator("#main-table tr", has_text=row).locator(f".{step} a").click()
        message = self.frame.locator(".modal.in")
        message.locator(".modal-body p").first.wait_for()
        said = f"{message.locator('.modal-title').inner_text()} {message.locator('.modal-body').inner_text()}"
        message.get_by_role("button", name="OK").click()
        message.wait_for(state="detached")
        return said

    def sees(self, row, *cells):
        """Wait until the row of an assignment or a student has cells with these texts: it is fetched after a step."""
        shown = self.frame.locator("#main-table tr", has_text=row)
        for text in cells:
            shown.locator("td", has_text=re.compile(rf"^\s*{re.escape(text)}\s*$")).wait_for()

    def go(self, *links):
        """Follow links, one after the other, each from the page that the one before leads to."""
        for name in links:
            with self.frame.expect_navigation():  # the page that is left may have a link of the next name too
                self.frame.get_by_role("link", name=name, exact=True).click()

    def _wait_for_grades(self):
        """Wait until the submission's page has its grades and comments: what is typed before is lost."""
        self.frame.wait_for_function("window.formgrader?.grades?.loaded && window.formgrader.comments?.loaded")

    def score(self, name, points):
        """Give a manually graded cell its points and wait until they are kept."""
        self._wait_for_grades()
        box = self.frame.locator(f"input.score[id='{name}']")
        box.scroll_into_view_if_needed()
        with self.page.expect_response(lambda answer: "/api/grade/" in answer.url) as kept:
            box.fill(str(points))
            box.press("Tab")
        assert kept.value.ok

    def comment(self, name, text):
        """Write a comment on a cell and wait until it is kept."""
        self._wait_for_grades()
        box = self.frame.locator(f"textarea[id='{name}-comment']")
        with self.page.expect_response(lambda answer: "/api/comment/" in answer.url) as kept:
            box.fill(text)
            box.press("Tab")
        assert kept.value.ok
