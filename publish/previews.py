"""What a link on another page may show of its target, a Sphinx extension.

Each page has a small script beside it, _previews/PAGE.js, with an excerpt of what may be linked to. static/previews.js
loads it when a reader first stops at such a link: a page opened from its file cannot fetch, but it can load a script.
"""

import json
from pathlib import Path

from bs4 import BeautifulSoup

SCRIPT = "previews.js"
TARGETS = "dl.glossary dt[id], div.citation[id], div.math[id], section[id]"


def setup(app):
    """Register the extension with Sphinx."""
    app.connect("html-page-context", export)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def export(app, pagename, templatename, context, doctree):
    """Write the excerpts of a page, and let it show those of others."""
    if doctree is None or "body" not in context:
        return
    app.add_js_file(SCRIPT, loading_method="defer")
    path = Path(app.outdir, "_previews", f"{pagename}.js")
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.dumps(excerpts(context["body"]), ensure_ascii=False)
    path.write_text(f"(window.previews ??= {{}})[{json.dumps(pagename)}] = {found};\n", "utf-8")


def excerpts(body):
    """Return {id: HTML} of the targets on a page; the page itself has the id "".

    A term comes with its definition, a section and a page with their first paragraph. static/previews.js does the same
    for targets on its own page.
    """
    soup = BeautifulSoup(body, "html.parser")
    found = {target["id"]: _excerpt(target) for target in soup.select(TARGETS)}
    if first := soup.select_one("section[id]"):
        found[""] = found[first["id"]]
    return found


def _excerpt(target):
    if target.name == "dt":
        parts = [target, target.find_next_sibling("dd")]
    elif target.name == "section":
        parts = [target.find(["h1", "h2", "h3", "h4"], recursive=False), target.find("p", recursive=False)]
    else:
        parts = [target]
    return "".join(f'<div class="preview-{part.name}">{_still(part)}</div>' for part in parts if part)


def _still(part):
    """Return the inside of an element without what acts, links or names."""
    copy = BeautifulSoup(part.decode_contents(), "html.parser")
    for element in copy.select("script, .headerlink"):
        element.decompose()
    for link in copy.select("a"):
        link.unwrap()
    for element in copy.select("[id]"):
        del element["id"]
    return copy.decode().strip()
