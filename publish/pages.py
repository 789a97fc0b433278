"""The Sphinx extension of the book: which pages are outdated, and what the theme leaves undone."""

import html
import itertools
import os
import re
import textwrap
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jupytext
from docutils import nodes
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.execute import direct
from myst_nb.core.read import is_myst_markdown_notebook
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

from publish import execution, manuscript, reader

KEY = "recurrence_ingredients"
# what every page goes through
MODULES = ("pages.py", "movable.py", "selfcheck.py", "selfcheck_page.py", "doors.py", "previews.py", "figures.py")
TEMPLATES = Path(__file__).with_name("templates")
STATIC = Path(__file__).with_name("static")  # scripts; the stylesheet in _static/ is every page's

# Sphinx fetches every page it found to show an excerpt; a page opened from a file cannot fetch.
NO_EXCERPTS = 'if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;'

ROUND = partial(BracketStyle, left="(", right=")")


@dataclass
class AuthorYearRound(AuthorYearReferenceStyle):
    """Citations as the notebooks print them: Elman (1990) and (Elman, 1990)."""

    bracket_textual: BracketStyle = field(default_factory=ROUND)
    bracket_parenthetical: BracketStyle = field(default_factory=ROUND)


def setup(app):
    """Register the extension with Sphinx."""
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_round", AuthorYearRound)
    app.connect("config-inited", configure)
    app.connect("env-get-outdated", outdated)
    app.connect("env-before-read-docs", run_chapters)
    app.connect("source-read", remember)
    app.connect("html-page-context", mend)
    app.add_js_file(None, body=NO_EXCERPTS)
    app.add_js_file("print.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def configure(app, config):
    """Let our templates go before the theme's, have our static files copied, and run every page in one environment."""
    os.environ.update(execution.ENVIRONMENT)  # of the kernels that MyST-NB starts
    # MyST-NB breaks a line where a text happened to arrive in two pieces; nbclient puts them together if asked.
    options = {"coalesce_streams": True, "extra_arguments": ["--log-level=ERROR"]}
    direct.single_nb_execution = partial(single_nb_execution, **options)
    config.templates_path.insert(0, str(TEMPLATES))
    config.html_static_path.append(str(STATIC))


def outdated(app, env, added, changed, removed):
    """Return the pages whose ingredients changed since they were read, though their files did not."""
    known = env.found_docs - added - changed
    return [name for name in known if _ingredients(env, name) != env.metadata[name].get(KEY)]


def run_chapters(app, env, docnames):
    """Run the chapters among the pages that are about to be read, side by side; the reader runs one after the other."""
    root = Path(env.srcdir)
    slugs = [Path(name).name for name in docnames if name.startswith("chapters/")]
    execution.prepare([slug for slug in slugs if manuscript.path_of(slug, root).is_file()], root)


def remember(app, docname, content):
    """Keep the ingredients of a page that is being read; Sphinx stores them with the page's metadata."""
    app.env.metadata[docname][KEY] = _ingredients(app.env, docname)


def mend(app, pagename, templatename, context, doctree):
    """Give bibliography entries their role, wide tables a way in by keyboard, and pages a summary."""
    if doctree is not None and (text := summary(doctree)):  # which search engines show, and whoever is sent a link
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}" />'
    if "body" in context:
        body = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')
        # a wide table scrolls in a box of its own, which the keyboard must reach
        box = 'class="pst-scrollable-table-container"'
        context["body"] = body.replace(box, f'{box} tabindex="0"')


def summary(doctree):
    """Return how a page's prose begins, as far as it goes without a formula, in at most 160 characters."""
    for paragraph in doctree.findall(nodes.paragraph):
        words = itertools.takewhile(lambda node: not isinstance(node, nodes.math), paragraph.findall())
        text = "".join(node for node in words if isinstance(node, nodes.Text))
        if any(paragraph.findall(nodes.math)):
            text = re.sub(r"[^.?!]*\Z", "", text)  # whole sentences alone
        if len(text) >= 30 and not isinstance(paragraph.parent, nodes.entry):
            return textwrap.shorten(text, 160, placeholder=" …")
    return ""


def _ingredients(env, docname):
    path, root = Path(env.doc2path(docname)), Path(env.srcdir)
    own = [(root / "publish" / name).read_text("utf-8") for name in MODULES]
    if path.suffix == ".ipynb":
        return [*own, reader.ingredients(path.read_text("utf-8"), root)]
    text = path.read_text("utf-8")
    if is_myst_markdown_notebook(text):  # MyST-NB runs it whenever it is read
        own.append(execution.digest_of(jupytext.reads(text, "md:myst"), root))
    # Sphinx copies style sheets and scripts only when it writes some page: let the front page be that one.
    files = [*sorted((root / "_static").glob("*.css")), *sorted((root / "publish" / "static").iterdir())]
    return own + [path.read_text("utf-8") for path in files if docname == env.config.root_doc]
