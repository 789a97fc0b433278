"""The whole book as one page, for printing: a Sphinx builder, `jupyter-book build . --builder singlehtml`.

It takes the place of Sphinx's own, which leaves the same id to sections and citations of different documents, so that
links go astray, and gives the page the theme's sidebars. Here ids begin with their document, and the page is a title, a
table of contents and the chapters. `publish.pdf` prints it.
"""

from functools import cached_property

from docutils import nodes
from sphinx import addnodes
from sphinx.builders.singlehtml import SingleFileHTMLBuilder

TEMPLATE = "onepage.html"
START = "#document-"  # how Sphinx's builder begins every address inside the book


def setup(app):
    """Put the builder in the place of Sphinx's own, whose name MyST-NB knows."""
    app.add_builder(OnePage, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class OnePage(SingleFileHTMLBuilder):
    """Writes index.html, the whole book."""

    def assemble_doctree(self):
        """Return the documents as one tree: each id begins with its document's name, each chapter knows its title."""
        tree = super().assemble_doctree()
        starts = list(tree.findall(addnodes.start_of_file))
        for start in starts:
            _prefix(start, prefix(start["docname"]))
            next(iter(start.findall(nodes.section)))["classes"].append("chapter")
        starts[0].parent.insert(starts[0].parent.index(starts[0]), self._contents())
        return tree

    def _contents(self):
        """Return the table of contents: parts, chapters and their sections; Sphinx's own would end at the chapters."""
        contents = nodes.section("", nodes.title("", "Contents"), ids=["contents"], classes=["book-contents"])
        for part in self.env.get_doctree(self.config.root_doc).findall(addnodes.toctree):
            if part.get("caption"):
                contents += nodes.rubric("", part["caption"])
            for name in part["includefiles"]:
                contents += (chapter := self.env.tocs[name].deepcopy())
                for section in chapter[0][1:2]:  # the list of its sections: their own are left out
                    for item in section:
                        del item[1:]
                for link in chapter.findall(nodes.reference):
                    link["refuri"] = f"{START}{name}{link['anchorname']}"
        self.fix_refuris(contents)
        return contents

    def fix_refuris(self, tree):
        """Let every address inside the book be that of an id on this page: `#DOCUMENT--ID`."""
        for reference in tree.findall(nodes.reference):
            if reference.get("refuri", "").startswith(START):
                name, _, target = reference["refuri"].removeprefix(START).partition("#")
                reference["refuri"] = f"#{prefix(name)}{target or self._first[name]}"

    @cached_property
    def _first(self):
        """Return {document: the id of its title}."""
        trees = {name: self.env.get_doctree(name) for name in self.env.found_docs}
        return {name: next(iter(tree.findall(nodes.section)))["ids"][0] for name, tree in trees.items()}

    def assemble_toc_secnumbers(self):
        """Return the numbers of sections by their new ids."""
        return {
            root: {_renumbered(alias): number for alias, number in numbers.items()}
            for root, numbers in super().assemble_toc_secnumbers().items()
        }

    def assemble_toc_fignumbers(self):
        """Return the numbers of figures by their new ids."""
        return {
            root: {
                alias: {prefix(alias.rpartition("/")[0]) + name: number for name, number in numbers.items()}
                for alias, numbers in kinds.items()
            }
            for root, kinds in super().assemble_toc_fignumbers().items()
        }

    def handle_page(self, pagename, addctx, templatename="page.html", **options):
        """Write the page by a template of our own, which knows the titles of the chapters."""
        titles = {prefix(name): title.astext() for name, title in self.env.titles.items()}
        super().handle_page(pagename, addctx | {"titles": titles}, TEMPLATE, **options)


def prefix(docname):
    """Return what the ids of a document begin with."""
    return docname.replace("/", "-") + "--"


def _prefix(tree, start):
    """Let all ids in a tree, and what refers to them, begin alike."""
    for node in tree.findall(nodes.Element):
        node["ids"] = [start + name for name in node["ids"]]
        for key in ("refid", "backrefs"):
            if value := node.get(key):
                node[key] = start + value if isinstance(value, str) else [start + name for name in value]


def _renumbered(alias):
    """Return Sphinx's key of a section, DOCUMENT/#ID, with the new id; that of a document's title is DOCUMENT/."""
    name, mark, target = alias.rpartition("#")
    return f"{name}#{prefix(name.rstrip('/'))}{target}" if mark else alias
