"""Finds a manuscript's answers in published files.

A leak is an answer's line of over 24 characters, found anywhere, that stands in no student's notebook. It is
also looked for without its comment, and a longer text sentence by sentence. Layout hides none: markup is
taken off and entities are resolved; white space, quotes, backslashes and signs of emphasis do not count.
"""

import html
import re

import nbformat

SHORT = 24
REGION = re.compile(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", re.DOTALL)
KEY = re.compile(r'^(?::|\+\+\+ \{")?(?:answer|manual)(?:": "|: )([a-z0-9-]+)', re.MULTILINE)
PART = re.compile(r"(?<=[.;:])\s|\s# ")
TAG = re.compile(r"<[^<>]*>")
LAYOUT = re.compile(r"""[\s"'“”‘’`*_$\\]+""")
WITH_MARKUP = {".html", ".ipynb", ".js", ".json", ".md", ".svg", ".xml"}


def answers(root):
    """Return {"slug: exercise": its texts that must not be published} for every solution region."""
    notebooks = [nbformat.read(path, as_version=4) for path in root.glob("chapters/*.ipynb")]
    shown = _plain("\n".join(cell.source for notebook in notebooks for cell in notebook.cells))
    found = {}
    for path in sorted(root.glob("solutions/*.md")):
        manuscript = path.read_text("utf-8")
        for region in REGION.finditer(manuscript):
            exercise = KEY.findall(manuscript, 0, region.start())[-1]
            secrets = found.setdefault(f"{path.stem}: {exercise}", [])
            for line in map(str.strip, region[1].splitlines()):
                texts = dict.fromkeys([line, *map(str.strip, PART.split(line))])
                secrets += [text for text in texts if len(text) > SHORT and _plain(text) not in shown]
    return found


def published(folder):
    """Return {path: its text without layout} for every file under a folder."""
    return {path: _contents(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def leaks(secrets, texts):
    """Return "path: secret" for every secret that one of the published texts holds."""
    return [f"{path}: {secret}" for path, text in texts.items() for secret in secrets if _plain(secret) in text]


def _contents(path):
    text = path.read_bytes().decode("utf-8", errors="ignore")
    bare = html.unescape(TAG.sub("", text)) if path.suffix in WITH_MARKUP else ""
    return f"{_plain(text)}\n{_plain(bare)}"


def _plain(text):
    return LAYOUT.sub("", text)
