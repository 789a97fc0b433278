"""Puts a drawing (matplotlib's SVG) inside a page, where it takes the page's ink, paper and font.

`reader` does so with a chapter's drawings. As a Sphinx extension this module does so with those of the pages that
MyST-NB runs itself.
"""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes

INK = "#1f2328"  # rnnplot.INK and rnnplot.PAPER, not imported: that would load matplotlib for two constants
PAPER = "#ffffff"

# Matplotlib styles every element of its file with `* {…}`, which inside a page would reach all of the page.
INHERITED = "stroke-linejoin: round; stroke-linecap: butt"
DROPPED = {"metadata", "script", "style", "title"}
HREF = "{http://www.w3.org/1999/xlink}href"
URL = re.compile(r"url\(#([^)]+)\)")
FONT = re.compile(r"(\bfont:[^;]*?[\d.]+px) [^;]+")


def setup(app):
    """Register the extension with Sphinx."""
    # before Sphinx looks for the images that a page needs copied, which is at 500
    app.connect("doctree-read", put_inside, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def put_inside(app, doctree):
    """Replace the SVG files that MyST-NB has made of a page's drawings by the drawings themselves."""
    bundles = [node for node in doctree.findall(nodes.container) if node.get("nb_element") == "mime_bundle"]
    for number, bundle in enumerate(bundles):
        svg = [node for node in bundle if node.get("mime_type") == "image/svg+xml"]
        if not svg:
            continue
        (image,) = svg[0].findall(nodes.image)
        path = Path(app.env.relfn2path(image["uri"])[1])
        drawing = inline(path.read_text("utf-8"), f"drawing-{number}", image.get("alt", ""))
        page = nodes.container(mime_type="text/html")
        page += nodes.raw("", scrolling(drawing), format="html")
        bundle.children = []
        bundle.append(page)


def inline(svg, name, alt):
    """Return a drawing as an element of a page: `alt` says what it shows, `name` makes its ids unique."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in DROPPED:
                parent.remove(child)
    elements = list(root.iter())
    used = {target for element in elements for target in _targets(element)}
    for element in elements:
        element.tag = _local(element.tag)
        element.attrib = {
            key: _native(value, name)
            for key, value in ((_local(key), value) for key, value in element.attrib.items())
            if not key.startswith("on") and (key != "id" or value in used)
        }
        if "id" in element.attrib:
            element.set("id", f"{name}-{element.get('id')}")
        if element.get("href", "").startswith("#"):
            element.set("href", f"#{name}-{element.get('href')[1:]}")
    root.attrib |= {"role": "img", "aria-label": alt, "style": INHERITED}
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def scrolling(drawing):
    """Return an inline drawing in a frame in which it scrolls where the screen would make it too small to read.

    The stylesheet says what is too small, by the drawing's own width. Of the frame's second class the theme's script
    puts whatever scrolls into the Tab key's order.
    """
    width = re.search(r'width="([\d.]+pt)"', drawing)[1]
    return f'<div class="drawing jp-RenderedHTMLCommon" style="--width: {width}">{drawing}</div>'


def _local(name):
    return name.rpartition("}")[2]


def _targets(element):
    """Yield the ids that an element refers to."""
    for key, value in element.attrib.items():
        yield from URL.findall(value)
        if key in (HREF, "href") and value.startswith("#"):
            yield value[1:]


def _native(value, name):
    """Put the page's colours, font and the figure's name into one attribute's value."""
    value = re.sub(INK, "currentColor", value, flags=re.IGNORECASE)
    # without scripts the theme has no colours, and the page is white
    value = re.sub(PAPER, f"var(--pst-color-background, {PAPER})", value, flags=re.IGNORECASE)
    value = FONT.sub(r"\1 var(--pst-font-family-base)", value)
    return URL.sub(rf"url(#{name}-\1)", value)
