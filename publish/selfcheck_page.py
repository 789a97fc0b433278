"""The self-check on a page, a Sphinx extension: radio buttons, and below them the answers, folded.

The script in static/selfcheck.js shows the explanation of what a reader chooses. Without it, and in print, the answers
stand there to be unfolded or read.
"""

import hashlib
from html import escape

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from publish import selfcheck

SCRIPT = "selfcheck.js"
SIGNS = {True: "✓", False: "✗"}


def setup(app):
    """Register the directive with Sphinx."""
    app.add_directive("selfcheck", Directive)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_script(app, pagename, templatename, context, doctree):
    """Load the script on a page that has self-checks."""
    if 'class="selfcheck"' in context.get("body", ""):
        app.add_js_file(SCRIPT, loading_method="defer")


class Directive(SphinxDirective):
    """`:::{selfcheck} an-id`, as `publish.selfcheck` reads it."""

    has_content = True
    required_arguments = 1

    def run(self):
        """Return the self-check's nodes: Markdown between pieces of HTML, so that other formats get the text."""
        check = selfcheck.parse(self.arguments[0], "\n".join(self.content))
        if check.faults:
            reason, line = min(check.faults, key=lambda fault: fault[1])
            raise self.error(f"{reason} (line {line + 2} of the self-check)")
        identity = f"selfcheck-{check.name}"
        question = nodes.container(classes=["selfcheck-question"], ids=[f"{identity}-question"])
        self.state.nested_parse(StringList(check.question.splitlines(), check.name), 0, question)
        key = escape(f"{self.env.docname}/{check.name}")
        parts = [
            _html(f'<div class="selfcheck" id="{identity}" data-key="{key}">'),
            nodes.paragraph("", f"Self-check {self.env.new_serialno('selfcheck') + 1}", classes=["selfcheck-label"]),
            _html(f'<fieldset aria-labelledby="{identity}-question">'),
            question,
        ]
        for choice in check.choices:
            parts += self._choice(identity, choice)
        parts.append(_html('</fieldset><div class="selfcheck-feedback" role="status"></div>'))
        parts.append(_html('<details class="selfcheck-answers"><summary>Answers</summary>'))
        for choice in check.choices:
            parts += self._answer(choice)
        return [*parts, _html("</details></div>")]

    def _choice(self, identity, choice):
        button = f"{identity}-{choice.letter}"
        opening = (
            f'<div class="selfcheck-choice"><input type="radio" name="{identity}" id="{button}" '
            f'value="{_digest(choice)}"><label for="{button}"><span class="selfcheck-letter">{choice.letter}</span> '
        )
        return [_html(opening), self._inline(choice.text), _html("</label></div>")]

    def _answer(self, choice):
        verdict = selfcheck.VERDICTS[choice.right].capitalize()
        word = (
            f'<div class="selfcheck-answer" data-right="{int(choice.right)}" data-choice="{_digest(choice)}">'
            f'<span class="selfcheck-letter">{choice.letter}</span> <strong><span aria-hidden="true">'
            f"{SIGNS[choice.right]}</span> {verdict}.</strong> "
        )
        return [_html(word), self._inline(choice.explanation), _html("</div>")]

    def _inline(self, text):
        found, _ = self.state.inline_text(text, self.lineno)
        return nodes.inline("", "", *found)  # the quotation marks of an element's text are made typographic


def _html(text):
    return nodes.raw("", text, format="html")


def _digest(choice):
    """Return a name for a choice that lasts while its words do: what a browser keeps is no answer to other words."""
    return hashlib.sha256(choice.text.encode()).hexdigest()[:8]
