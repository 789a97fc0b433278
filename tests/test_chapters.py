"""What holds of every chapter's manuscript: form, notation, figures that everyone can read."""

import re
import statistics

import pytest

from publish import execution, manuscript

SLUGS = manuscript.slugs()
pytestmark = pytest.mark.skipif(not SLUGS, reason="this is the student edition: there are no manuscripts")

# One alphabet for the whole course. Left: how other texts write it; right: how this course does.
OTHER_NOTATIONS = {
    r"\bW_?ih\b|\bWxh\b|\bW_\{?ih\}?": "W_xh",
    r"\bWhh\b": "W_hh",
    r"\bWhy\b(?=\s*[@=])|\bW_ho\b": "W_hy",
    r"\bh_prev\b|\bprev_h\b|\bhprev\b": "h (the state before the step)",
    r"\bbatch_size\b|\bseq_len\b|\bhidden_size\b|\binput_size\b": "B, T, H, D",
    r"\bhidden_states\b|\boutputs_h\b": "hs",
}


def cells(slug, kind):
    return [cell for cell in manuscript.read(manuscript.path_of(slug)).notebook.cells if cell.cell_type == kind]


def demonstrations(slug):
    """The code cells that are not part of an exercise."""
    keys = {"answer", "check", "manual"}
    return [cell for cell in cells(slug, "code") if not keys & set(cell.metadata)]


@pytest.mark.parametrize("slug", SLUGS)
def test_every_figure_has_an_alternative_text_that_says_what_it_shows(slug):
    written = manuscript.read(manuscript.path_of(slug)).notebook.cells
    drawn = [
        (cell.id, source.metadata)
        for cell, source in zip(execution.executed(slug).cells, written, strict=True)
        if any(kind.startswith("image/") for output in cell.get("outputs", []) for kind in output.get("data", {}))
    ]
    assert len(drawn) >= 2
    for name, keys in drawn:
        alternative, caption = keys.get("alt", ""), keys.get("caption", "")
        assert len(alternative.split()) >= 12, f"{slug}, cell {name}: {alternative!r} says too little"
        assert caption, f"{slug}, cell {name}: the figure has no caption"
        assert alternative != caption, f"{slug}, cell {name}: the alternative text repeats the caption"


@pytest.mark.parametrize("slug", SLUGS)
def test_one_alphabet_is_used_in_prose_and_code(slug):
    text = manuscript.path_of(slug).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, ours in OTHER_NOTATIONS.items():
            found = re.search(pattern, line)
            assert not found, f"{slug}.md:{number}: {found.group()!r}; this course writes {ours}"


def test_the_notation_test_sees_another_alphabet():
    for line in ("a = W_ih @ x", "h = tanh(Wxh x + Whh h_prev)", "hidden_size=3"):
        assert any(re.search(pattern, line) for pattern in OTHER_NOTATIONS), line


@pytest.mark.parametrize("slug", SLUGS)
def test_code_cells_are_short_and_fit_the_page(slug):
    lengths = [sum(map(bool, cell.source.splitlines())) for cell in demonstrations(slug)]
    assert 12 <= len(lengths) <= 18
    assert statistics.median(lengths) <= 10
    assert max(lengths) <= 20
    for cell in cells(slug, "code"):
        for line in cell.source.splitlines():
            assert len(line) <= 82, f"{slug}: this line needs scrolling in the book: {line}"


@pytest.mark.parametrize("slug", SLUGS)
def test_a_chapter_opens_with_goals_and_closes_with_mistakes_questions_and_reading(slug):
    prose = "\n\n".join(cell.source for cell in cells(slug, "markdown"))
    headings = re.findall(r"^## (.+)$", prose, flags=re.MULTILINE)
    closing = ["What you can do now", "Common mistakes", "Interview questions", "Further reading"]
    assert headings[-4:] == closing
    assert 6 <= len(headings) - 4 <= 8
    opening = prose.split("\n## ", 1)[0]
    assert "?" in opening.split("\n\n")[1], "the first paragraph asks the chapter's question"
    assert re.search(r"you can\n\n(- .+\n){3,}", opening), "the goals are a list in the opening"


@pytest.mark.parametrize("slug", SLUGS)
def test_cells_install_and_fetch_nothing_and_import_once(slug):
    sources = [cell.source for cell in cells(slug, "code")]
    for source in sources:
        assert not re.search(r"^\s*[!%]|pip install|https?://|urlopen|download", source, flags=re.MULTILINE)
    importing = [source for source in sources if re.search(r"^\s*(import|from) ", source, flags=re.MULTILINE)]
    assert importing == sources[:1], "imports stand once, in the first code cell"


@pytest.mark.parametrize("slug", SLUGS)
def test_every_citation_is_used_with_its_source_identified(slug):
    bibliography = (manuscript.path_of(slug).parent.parent / "references.bib").read_text(encoding="utf-8")
    entries = dict(re.findall(r"@\w+\{(\w+),(.*?)\n\}", bibliography, flags=re.DOTALL))
    cited = set(re.findall(r"\{cite:[tp]\}`([^`]+)`", manuscript.path_of(slug).read_text(encoding="utf-8")))
    assert cited
    for key in cited:
        assert re.search(r"^\s*(doi|url)\s*=", entries[key], flags=re.MULTILINE), f"{key} has no doi or url"
