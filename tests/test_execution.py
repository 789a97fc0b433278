"""Chapters are run once and kept by content; a page shows neither an exception nor a warning."""

import json
import shutil
import sys

import pytest

from publish import execution, manuscript, rules

HEAD = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
    jupytext_version: 1.19.6
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A chapter

"""
CODE = "```{code-cell}\nimport own\n\nprint(own.VALUE, 6 * 7)\n```\n"


@pytest.fixture
def project(tmp_path, root, monkeypatch):
    """A project with one small chapter that imports a module of its own, which names a file of data."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "data").mkdir()
    for name in ("named.txt", "other.txt"):
        (tmp_path / "data" / name).write_text("words")
    for name in ("references.bib", "requirements.txt"):
        shutil.copy(root / name, tmp_path)
    (tmp_path / "own.py").write_text("import helper\nfrom package import used\nVALUE = helper.VALUE\n")
    for name in ("package/__init__", "package/used", "package/unused"):
        (tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("NAME = 'package'\n")
    for slug in ("01_small", "02_other"):
        (tmp_path / "autograde" / "exercises").mkdir(parents=True, exist_ok=True)
        (tmp_path / "autograde" / "exercises" / f"{slug}.py").write_text("POINTS = 1\n")
    (tmp_path / "helper.py").write_text("VALUE = 'seen'\nDATA = 'named.txt'\n")
    (tmp_path / "solutions" / "01_small.md").write_text(HEAD + CODE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(rules.registry, "load", lambda slug: {})
    return tmp_path


def outputs(notebook):
    return "".join(output.text for cell in notebook.cells for output in cell.get("outputs", []))


def test_of_a_progress_bar_nothing_stays(project):
    expected = {
        "\r 0%|   \r50%|█  \r      \r": "",
        "\r50%|█  \r      \rloss 0.1\n": "loss 0.1\n",
        "first\n\r50%|█  \r      \rlast\n": "first\nlast\n",
        "first\n\r50%|█  \r      \r": "first\n",
        "no bar\n": "no bar\n",
    }
    cells = [f"for character in {text!r}:\n    print(character, end='', flush=True)" for text in expected]
    text = HEAD + "\n".join(f"```{{code-cell}}\n{cell}\n```\n" for cell in cells)
    (project / "solutions" / "01_small.md").write_text(text, encoding="utf-8")
    ran = [cell for cell in execution.executed("01_small", project).cells if cell.cell_type == "code"]
    shown = ["".join(output.text for output in cell.outputs) for cell in ran]
    assert dict(zip(expected, shown, strict=True)) == expected


def test_a_chapter_is_run_once_and_says_so(project, capfd):
    first = execution.executed("01_small", project)
    assert outputs(first) == "seen 42\n"
    assert "running 01_small" in capfd.readouterr().err
    assert execution.executed("01_small", project) == first
    assert capfd.readouterr().err == ""


def test_chapters_run_side_by_side_and_a_fault_is_left_to_whoever_reads_the_chapter(project, capfd):
    texts = {"01_small": CODE, "02_other": CODE.replace("6 * 7", "6 * 8"), "03_wrong": CODE.replace("6 * 7", "1 / 0")}
    for slug, text in texts.items():
        (project / "solutions" / f"{slug}.md").write_text(HEAD + text, encoding="utf-8")
    execution.prepare(texts, project)
    said = capfd.readouterr().err
    assert "running chapters" in said and "running 01_small" not in said
    assert sorted(path.name[:8] for path in (project / "_build" / "executed").iterdir()) == ["01_small", "02_other"]
    assert [outputs(execution.executed(slug, project)) for slug in ("01_small", "02_other")] == [
        "seen 42\n",
        "seen 48\n",
    ]
    assert capfd.readouterr().err == ""
    with pytest.raises(manuscript.Faults):
        execution.executed("03_wrong", project)


@pytest.mark.parametrize(
    ("name", "old", "new", "changes"),
    [
        ("solutions/01_small.md", "6 * 7", "6 * 8", True),
        ("solutions/01_small.md", "# A chapter", "# Another title", False),
        ("solutions/01_small.md", "# A chapter", "# A chapter\n\n## A section\n\n+++\n\nProse.", False),
        ("data/named.txt", "words", "other words", True),
        ("data/other.txt", "words", "other words", False),
        ("own.py", "VALUE =", "OTHER = 1\nVALUE =", True),
        ("helper.py", "seen", "another", True),
        ("package/__init__.py", "NAME", "OTHER", True),
        ("package/used.py", "NAME", "OTHER", True),
        ("package/unused.py", "NAME", "OTHER", False),
        ("autograde/exercises/01_small.py", "1", "2", True),
        ("autograde/exercises/02_other.py", "1", "2", False),
        ("requirements.txt", "numpy==", "numpy>=", True),
        ("references.bib", "Elman", "Elmann", False),
    ],
)
def test_the_key_changes_with_what_the_outputs_depend_on_and_with_nothing_else(project, name, old, new, changes):
    before = execution.digest("01_small", project)
    path = project / name
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert (execution.digest("01_small", project) != before) == changes


def test_only_the_last_run_is_kept_and_leaves_nothing_beside_it(project):
    execution.executed("01_small", project)
    (project / "helper.py").write_text("VALUE = 'changed'\n")
    assert outputs(execution.executed("01_small", project)) == "changed 42\n"
    assert len(list((project / "_build" / "executed").iterdir())) == 1
    assert not list(project.glob("*.ipynb"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise ValueError('no')", "the cell raises ValueError: no"),
        ("import sys; print('look out', file=sys.stderr)", "the cell writes to stderr: look out"),
        ("import time; time.sleep(60)", "the cell has not ended after 2 s"),
        ("import os; os._exit(1)", "the cell ends its kernel"),
    ],
)
def test_a_cell_that_raises_warns_hangs_or_dies_is_a_fault_with_its_line(project, monkeypatch, line, reason):
    monkeypatch.setattr(execution, "CELL_TIMEOUT", 2)
    path = project / "solutions" / "01_small.md"
    path.write_text(HEAD + CODE + f"\n```{{code-cell}}\n{line}\n```\n", encoding="utf-8")
    with pytest.raises(manuscript.Faults) as caught:
        execution.executed("01_small", project)
    (fault,) = caught.value.faults
    assert fault.reason == reason
    assert path.read_text().splitlines()[fault.line - 1 : fault.line + 1] == ["```{code-cell}", line]
    assert not list((project / "_build").rglob("*.ipynb")), "a failed run is not kept"


def test_nothing_of_the_users_jupyter_or_ipython_reaches_a_chapter(project, tmp_path, monkeypatch):
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": ["no-such-program"], "display_name": "x", "language": "python", "env": {"OF_THE_USER": "kernel"}}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("OF_THE_USER = 'profile'")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    code = "import os, sys\n\nprint(sys.executable, os.environ.get('OF_THE_USER'), 'OF_THE_USER' in globals())"
    (project / "solutions" / "01_small.md").write_text(HEAD + f"```{{code-cell}}\n{code}\n```\n", encoding="utf-8")
    assert outputs(execution.executed("01_small", project)) == f"{sys.executable} None False\n"


def test_matplotlib_has_listed_the_fonts_before_a_chapter_starts(project, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "fonts"))
    code = "import os\nfrom pathlib import Path\n\nprint(len([*Path(os.environ['MPLCONFIGDIR']).glob('fontlist*')]))"
    (project / "solutions" / "01_small.md").write_text(HEAD + f"```{{code-cell}}\n{code}\n```\n", encoding="utf-8")
    assert outputs(execution.executed("01_small", project)) == "1\n"


@pytest.mark.parametrize("slug", manuscript.slugs())
def test_every_chapter_runs_to_the_end_with_full_points(slug):
    definitions = rules.registry.load(slug)
    for cell in execution.executed(slug).cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            assert output.get("name") != "stderr"
        if cell.id.endswith("-check"):
            (result,) = cell.outputs
            assert result.data["text/plain"] == repr(float(definitions[cell.id.removesuffix("-check")].points))
