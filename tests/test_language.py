"""What holds of every text: spelling, British spelling, no place of one machine, no package index."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import codespell_lib
import jupytext
import pytest
import run

TEXTS = [path for path in run.files(run.ROOT) if path.suffix not in {".png", ".svg", ".txt"} or path.parent == run.ROOT]
PROSE = [path for path in TEXTS if path.suffix in {".md", ".py"}]

# Their American spelling is British too: a computer's program, a practice, "to license".
BOTH = {"license", "licensed", "licenses", "practice", "practices", "program", "programs", "writable"}

# What looks like prose and is none: code, mathematics, where a link leads, a role's or a directive's name.
NOT_PROSE = re.compile(r"^```\w.*?^```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|\w+://\S+|\{[^}]*\}", re.DOTALL | re.MULTILINE)

PLACE = re.compile(r"(?<![\w.:/-])/(?:work|tmp|root|home|Users|opt|mnt)/\w+")
INDEX = re.compile(r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs|anaconda\.org")


def name(path):
    return str(path.relative_to(run.ROOT))


def misspelt(paths):
    """Return codespell's findings, one a line."""
    command = [sys.executable, "-m", "codespell_lib", *paths]
    return subprocess.run(command, cwd=run.ROOT, capture_output=True, text=True, check=False).stdout


def americanisms():
    """Return {American spelling: British spelling}, codespell's own list turned round."""
    data = Path(codespell_lib.__file__).parent / "data" / "dictionary_en-GB_to_en-US.txt"
    pairs = [line.split("->") for line in data.read_text(encoding="utf-8").splitlines()]
    turned = {american.strip(): british for british, list_ in pairs for american in list_.split(",")}
    return {american: british for american, british in turned.items() if american not in BOTH}


def prose(path):
    """Return what a person reads in a file: Markdown without code; comments and docstrings of Python."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return python_prose(text)
    if path.parent.name == "solutions":
        cells = jupytext.reads(text, "md:myst").cells
        options = [str(cell.metadata.get(key, "")) for cell in cells for key in ("caption", "alt")]
        return "\n".join(
            [cell.source if cell.cell_type == "markdown" else python_prose(cell.source) for cell in cells] + options
        )
    return text


def python_prose(code):
    """Return the comments and docstrings of a piece of Python."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, documented)]
    return "\n".join(found + [ast.get_docstring(node) or "" for node in nodes])


def american_words(text):
    """Return "American (British)" for every word of the prose in American spelling."""
    words = re.findall(r"[A-Za-z_]+", NOT_PROSE.sub(" ", text))
    known = americanisms()
    return [f"{word} ({known[word.lower()]})" for word in words if word.lower() in known]


def test_no_word_is_misspelt():
    assert misspelt(TEXTS) == ""


def test_the_spelling_test_finds_a_misspelt_word(tmp_path):
    planted = tmp_path / "planted.md"
    planted.write_text("We rec" + "ieve a state.\n")
    assert "receive" in misspelt([planted])


@pytest.mark.parametrize("path", PROSE, ids=name)
def test_the_spelling_is_british(path):
    assert american_words(prose(path)) == []


def test_the_british_test_reads_prose_and_leaves_code_alone():
    assert american_words("The color of its behavior.") == ["color (colour)", "behavior (behaviour)"]
    assert american_words(python_prose('def f():\n    """Normalize."""\n    # analyze\n')) == [
        "analyze (analyse)",
        "Normalize (normalise)",
    ]
    assert american_words("`color`, $color$, [x](color), https://color\n```python\ncolor\n```\n") == []
    assert american_words(python_prose("plt.plot(x, color='gray')")) == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_no_file_names_a_place_of_one_machine_or_a_package_index(path):
    text = path.read_text(encoding="utf-8")
    assert PLACE.findall(text) == []
    assert INDEX.findall(text) == []


def test_the_places_test_finds_a_planted_place():
    for planted in ("see /" + "root/x", '"/' + 'tmp/y"', "(/" + "home/z)"):
        assert PLACE.search(planted)
    for fine in ("chapters/home/x", "https://example.org/home/x", "a/tmp/b", "../tmp/b"):
        assert not PLACE.search(fine)
    assert INDEX.search("https://pypi." + "org/simple")
