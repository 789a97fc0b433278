"""The ways from a chapter's page to its notebook, a Sphinx extension: download, JupyterLab, Binder, progress."""

import json
import re
from html import escape
from pathlib import Path

from sphinx.errors import ConfigError

SCRIPT = "doors.js"
GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:/tree/([\w./-]+?))?/?")


def setup(app):
    """Register the extension and its setting with Sphinx."""
    app.add_config_value("student_edition", "", "html", types=(str, type(None)))
    app.connect("config-inited", check)
    app.connect("html-page-context", open_doors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def check(app, config):
    """Refuse an address that no link can be made from."""
    binder(config.student_edition, "")


def binder(address, path):
    """Return Binder's link that opens a file of a repository in JupyterLab, None without an address."""
    if not address:
        return None
    if not (found := GITHUB.fullmatch(address)):
        raise ConfigError(
            f"_config.yml, sphinx: config: student_edition is {address!r}. Write the student edition's public address, "
            "https://github.com/OWNER/REPOSITORY or https://github.com/OWNER/REPOSITORY/tree/BRANCH, "
            "or leave it empty: then there is no link to Binder."
        )
    owner, repository, branch = found.groups()
    return f"https://mybinder.org/v2/gh/{owner}/{repository}/{branch or 'HEAD'}?urlpath=lab/tree/{path}"


def open_doors(app, pagename, templatename, context, doctree):
    """Put one line below the heading of a chapter's page."""
    if not pagename.startswith("chapters/") or "sourcename" not in context:
        return
    notebook, source = f"{pagename}.ipynb", f"_sources/{context['sourcename']}"
    download = context["pathto"](source, 1)
    _copy(Path(app.env.doc2path(pagename)), Path(app.outdir, f"{source}.js"))
    app.add_js_file(SCRIPT, loading_method="defer")
    doors = [
        f'<a href="{escape(download)}" download>Download the notebook</a>',
        f"In JupyterLab: <code>make lab</code>, then <code>{escape(notebook)}</code>",
    ]
    if link := binder(app.config.student_edition, notebook):
        doors.append(f'<a href="{escape(link)}">Open it on Binder</a>')
    line = "".join(f"<span>{door}</span>" for door in doors)
    if checks := re.findall(r'class="selfcheck" id="([\w-]+)"', context["body"]):
        line += (
            f'<span class="selfcheck-progress"><a href="#{checks[0]}">0 of {len(checks)} self-checks answered</a>'
            '<button type="button" hidden>Clear answers</button></span>'
        )
    context["body"] = context["body"].replace("</h1>", f'</h1>\n<div class="doors">{line}</div>', 1)


def _copy(notebook, script):
    """Put a notebook's text in a script, which a page that was opened from its file can load."""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"window.notebook = {json.dumps(notebook.read_text('utf-8'), ensure_ascii=False)};\n", "utf-8")
