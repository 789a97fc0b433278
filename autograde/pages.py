"""Writes nbgrader's feedback pages in processes of their own, while this one goes on writing the gradebook."""

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread

from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter, html
from nbconvert.filters.highlight import Highlight2HTML
from nbgrader.converters import GenerateFeedback
from nbgrader.utils import capture_log, temp_attrs
from traitlets.config import Config

from autograde.course import Course, quietly, reason

CHUNK = 8  # pages that a process writes in one go: nbgrader looks through all students' folders for every go


class Pages:
    """Processes that write feedback pages, one for four jobs; a context manager. They only read the gradebook.

    They are forked at once: make this before there are threads, a sandbox, or a lock that they would go on holding.
    """

    def __init__(self, course, assignment, jobs):
        self._course, self._assignment = course.root, assignment
        self._pool = ProcessPoolExecutor(max(1, jobs // 4), get_context("fork"), _end_with_parent)
        self._pool.submit(int).result()  # by now all of them are there
        self._waiting, self._futures = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.shutdown(cancel_futures=True)

    def add(self, student):
        """Have a student's page written, soon."""
        self._waiting.append(student)
        if len(self._waiting) == CHUNK:
            self._begin()

    def finish(self):
        """Yield (student, problem) for each that was added; problem is "" where the page stands."""
        self._begin()
        for students, future in self._futures:
            try:
                yield from future.result().items()
            except BrokenProcessPool:
                yield from dict.fromkeys(students, "a process that writes pages was killed").items()

    def _begin(self):
        if self._waiting:
            future = self._pool.submit(_write, self._course, self._assignment, self._waiting)
            self._futures.append((self._waiting, future))
        self._waiting = []


def _end_with_parent():
    """End this process when its parent is killed, which could not tell it to; Ctrl+C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait():
        parent_process().join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _write(root, assignment, students):
    """Write the feedback pages of students; return {student: "", or why there is none}."""
    course = Course(root)
    if quietly(_generate, course, assignment, students)["success"]:
        return dict.fromkeys(students, "")
    results = {name: quietly(_generate, course, assignment, [name]) for name in students}
    return {name: "" if result["success"] else reason(result) for name, result in results.items()}


def _generate(course, assignment, students):
    """Do what `NbGraderAPI.generate_feedback` does, for these students in one go; return nbgrader's result."""
    config = Config()
    config.HTMLExporter.template_name = "feedback"
    config.Exporter.optimistic_validation = True  # a notebook's form is looked at once, after all steps
    with temp_attrs(course.api.coursedir, assignment_id=assignment, student_id="*"):
        step = _OfSome(coursedir=course.api.coursedir, parent=course.api)
        step.students, step.exporter_class, step.force = students, _Quick, True
        step.update_config(config)
        return capture_log(step)


class _OfSome(GenerateFeedback):
    """nbgrader's own step, for some students; nbgrader takes a pattern of names, not a list."""

    def init_notebooks(self):
        super().init_notebooks()
        wanted = {self._format_source(self.coursedir.assignment_id, name) for name in self.students}
        wanted = set(map(os.path.normpath, wanted))
        self.assignments = {path: them for path, them in self.assignments.items() if os.path.normpath(path) in wanted}


class _Quick(HTMLExporter):
    """nbgrader's exporter, which makes of one text the same HTML once, not once for every student.

    It leaves out the last step, which parses the whole page once more and takes longer than all else: to give pictures
    an alternative text, which ours have (`oracle.write_outputs`), and to let one reach by keyboard the cells of a
    template that is not nbgrader's.
    """

    _shared, _made = None, {}

    def from_notebook_node(self, nb, resources=None, **more):
        about = nb.metadata.get("language_info", {})
        highlight = Highlight2HTML(pygments_lexer=about.get("pygments_lexer", about.get("name")), parent=self)

        def once(source, language=None, metadata=None):
            return self._once((source, language or highlight.pygments_lexer), lambda: highlight(source, language))

        self.filters = {"highlight_code": once}
        with temp_attrs(html, BeautifulSoup=_AsItIs):
            return super().from_notebook_node(nb, resources, **more)

    @pass_context
    def markdown2html(self, context, source):
        def make():
            return super(_Quick, self).markdown2html(context, source)

        return make() if context.get("cell", {}).get("attachments") else self._once(source, make)

    def _once(self, key, make):
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _create_environment(self):  # with it go the templates, which it compiles
        _Quick._shared = _Quick._shared or super()._create_environment()
        return _Quick._shared


class _AsItIs(str):
    """Stands for a parsed page in which nothing is to be changed."""

    def __new__(cls, text, features=None):
        return super().__new__(cls, text)

    def select(self, selector):
        """Find nothing."""
        return []
