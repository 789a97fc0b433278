"""The page's form of a movable figure (`rnnplot.movable`), and a Sphinx extension that gives pages its script.

Everything stands in the page before the script runs, so that nothing jumps when it does: `static/movable.js` puts its
own drawing in the picture's place and enables the controls.
"""

import json

from markupsafe import Markup

KIND = "application/vnd.recurrence.movable+json"  # rnnplot.MOVABLE, not imported: that would load matplotlib
MARK = 'class="movable"'  # a page that has this needs the script and the stylesheet
HINT = "Point at the figure, or go to it with the Tab key and move with the arrow keys, to read its values."

# The longest text reserves its room, so that the page below stands still while texts change.
PAGE = Markup("""<div {mark} id="{name}">
<div class="movable-plot">{svg}</div>
<p class="movable-text movable-at" data-longest="{longest_at}"><span>{hint}</span></p>
<div class="movable-controls" role="group" aria-label="Controls of the figure">
{controls}
</div>
<p class="movable-text movable-says" data-longest="{longest_says}"><output>{says}</output></p>
<script type="application/json">{data}</script>
</div>""")
CONTROL = Markup('<div class="movable-control"><label for="{id}">{label}</label>{widget}</div>')
SLIDER = Markup(
    '<input id="{id}" type="range" min="0" max="{last}" value="{start}" aria-valuetext="{text}" autocomplete="off" '
    'disabled><span class="movable-value" aria-hidden="true">{text}</span>'
)
MENU = Markup('<select id="{id}" autocomplete="off" disabled>{options}</select>')
OPTION = Markup('<option value="{value}"{selected}>{text}</option>')


def setup(app):
    """Register the extension with Sphinx."""
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_script(app, pagename, templatename, context, doctree):
    """Load the script on a page that has movable figures."""
    if MARK in context.get("body", ""):
        app.add_js_file("movable.js", loading_method="defer")


def html(data, svg, name):
    """Return the element of a movable figure: data as `rnnplot.movable` gives it, svg its picture, name for its ids."""
    return PAGE.format(
        mark=Markup(MARK),
        name=f"{name}-movable",
        svg=Markup(svg),
        hint=HINT,
        longest_at=max(HINT, _reading(data), key=len),
        controls=Markup("\n").join(_control(control, name) for control in data["controls"]),
        longest_says=max(data["says"], key=len),
        says=data["says"][data["start"]],
        # in a script no entity is resolved; the only thing that must not stand there is its own end
        data=Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")),
    )


def _control(control, name):
    given = {"id": f"{name}-{control['name']}", "start": control["start"]}
    if control["kind"] == "slider":
        last, text = len(control["options"]) - 1, control["options"][control["start"]]
        widget = SLIDER.format(last=last, text=text, **given)
    else:
        options = [
            OPTION.format(value=k, text=text, selected=Markup(" selected") if k == control["start"] else "")
            for k, text in enumerate(control["options"])
        ]
        widget = MENU.format(options=Markup("").join(options), **given)
    return CONTROL.format(label=control["label"], widget=widget, **given)


def _reading(data):
    """Return a text as long as what the cursor reads out."""
    named = [*data["labels"], "0"] if data["form"] == "heat" else [data["labels"][0], *data["names"]]
    return ", ".join(f"{name} = −0.00 · 10⁻¹⁰" for name in named)
