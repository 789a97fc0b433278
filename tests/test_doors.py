"""The ways from a chapter's page to its notebook: download, JupyterLab, Binder."""

from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from sphinx.errors import ConfigError

from publish import doors

CHAPTER = "chapters/01_forward"
ADDRESSES = {
    "https://github.com/rnn-course/student": ("rnn-course", "student", "HEAD"),
    "https://github.com/rnn-course/student/": ("rnn-course", "student", "HEAD"),
    "https://github.com/rnn-course/student.git": ("rnn-course", "student", "HEAD"),
    "https://github.com/a/b.c/tree/2026": ("a", "b.c", "2026"),
    "https://github.com/a/b/tree/autumn/one": ("a", "b", "autumn/one"),
}
WRONG = [
    "rnn-course/student",
    "http://github.com/a/b",
    "https://github.com/a",
    "https://github.com/a/b/blob/main/README.md",
    "https://github.com/a/b c",
    "https://example.org/a/b",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_binder_opens_the_chapter_of_the_student_edition_in_jupyterlab(address):
    owner, repository, ref = ADDRESSES[address]
    link = urlsplit(doors.binder(address, f"{CHAPTER}.ipynb"))
    assert (link.scheme, link.netloc) == ("https", "mybinder.org")
    assert link.path == f"/v2/gh/{owner}/{repository}/{ref}"
    assert parse_qs(link.query) == {"urlpath": [f"lab/tree/{CHAPTER}.ipynb"]}


def test_what_binder_needs_is_in_the_student_edition(root):
    assert (root / f"{CHAPTER}.ipynb").is_file()
    assert "-e ." in (root / "requirements.txt").read_text().splitlines(), "the notebooks import rnncore"
    kept_back = (root / ".gitattributes").read_text()
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml", "runtime.txt", "chapters"):
        assert (root / name).exists()
        assert f"/{name}" not in kept_back


@pytest.mark.parametrize("address", WRONG)
def test_an_address_of_no_repository_ends_the_build_with_a_sentence(address):
    with pytest.raises(ConfigError, match=r"_config.yml.* student_edition is .*github\.com/OWNER/REPOSITORY"):
        doors.check(None, SimpleNamespace(student_edition=address))


@pytest.mark.parametrize("address", ["", None, "https://github.com/a/b"])
def test_there_is_a_link_to_binder_exactly_when_there_is_an_address(address, tmp_path):
    source = tmp_path / "01_forward.ipynb"
    source.write_text('{"cells": ["</script>"]}')
    app = SimpleNamespace(
        config=SimpleNamespace(student_edition=address),
        outdir=tmp_path,
        env=SimpleNamespace(doc2path=lambda name: source),
        add_js_file=lambda *arguments, **options: None,
    )
    context = {"body": "<h1>One</h1><h1>Two</h1>", "sourcename": f"{CHAPTER}.ipynb", "pathto": lambda name, _: name}
    doors.open_doors(app, CHAPTER, "page.html", context, None)
    assert ("https://mybinder.org/v2/gh/a/b/HEAD?urlpath=lab/tree/chapters" in context["body"]) == bool(address)
    assert context["body"].count('class="doors"') == 1


def test_a_chapter_says_how_to_open_it_in_jupyterlab(visit):
    line = visit(CHAPTER).page.locator(".doors").inner_text()
    assert "In JupyterLab: make lab, then chapters/01_forward.ipynb" in " ".join(line.split())


@pytest.mark.parametrize("link", [".doors a[download]", "a.btn-download-source-button"])
def test_the_student_s_notebook_is_saved_though_the_page_is_a_file(visit, root, link):
    page = visit(CHAPTER).page
    if "btn" in link:
        page.get_by_role("button", name="Download this page").click()
    with page.expect_download() as download:
        page.locator(link).click()
    assert download.value.suggested_filename == "01_forward.ipynb"
    assert download.value.path().read_bytes() == (root / f"{CHAPTER}.ipynb").read_bytes()


def test_on_a_server_the_link_leads_to_the_notebook_itself(visit, book, root):
    link = visit(CHAPTER).page.locator(".doors a[download]").get_attribute("href")
    assert ((book / CHAPTER).parent / link).read_bytes() == (root / f"{CHAPTER}.ipynb").read_bytes()
