"""From one manuscript: the solved notebook and the student's, the same on every build."""

import shutil

import nbformat
import pytest
import torch
from nbgrader.utils import is_grade, is_locked, is_solution

from publish import __main__ as command
from publish import manuscript, notebooks, plain, rules

SLUGS = manuscript.slugs()
pytestmark = pytest.mark.skipif(not SLUGS, reason="this is the student edition: there are no manuscripts")


def solved(slug):
    return notebooks.solved(manuscript.read(manuscript.path_of(slug)))


@pytest.fixture
def project(tmp_path, root):
    """A copy of what the build reads."""
    shutil.copytree(root / "solutions", tmp_path / "solutions")
    shutil.copytree(root / "chapters", tmp_path / "chapters")
    shutil.copytree(root / "appendices", tmp_path / "appendices")
    shutil.copy(root / "references.bib", tmp_path)
    return tmp_path


@pytest.mark.parametrize("slug", SLUGS)
def test_two_builds_give_the_same_bytes(slug):
    first, second = solved(slug), solved(slug)
    assert notebooks.text(first) == notebooks.text(second)
    assert notebooks.text(notebooks.student(first)) == notebooks.text(notebooks.student(second))


@pytest.mark.parametrize("slug", SLUGS)
def test_the_notebooks_are_valid_and_say_that_they_are_generated(slug):
    for notebook in (solved(slug), notebooks.student(solved(slug))):
        nbformat.validate(notebook)
        assert notebook.metadata.recurrence.slug == slug
        assert "do not edit" in notebook.metadata.recurrence.generated
        ids = [cell.id for cell in notebook.cells]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("slug", SLUGS)
def test_the_students_notebook_holds_no_solution_and_no_output(slug):
    student = notebooks.student(solved(slug))
    assert "SOLUTION" not in notebooks.text(student)
    for cell in student.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert "mystnb" not in cell.metadata, "a figure's text would tell what a right answer looks like"


@pytest.mark.parametrize("slug", SLUGS)
def test_an_untouched_answer_defines_its_name_and_raises_only_when_called(slug):
    for cell in notebooks.student(solved(slug)).cells:
        if is_solution(cell) and not is_grade(cell):
            (name,) = rules.defined_names(cell.source)
            namespace = {"torch": torch, "nn": torch.nn}  # what a class is derived from
            exec(cell.source, namespace)
            assert callable(namespace[name])


@pytest.mark.parametrize("slug", SLUGS)
def test_checks_are_locked_and_worth_what_the_exercise_says(slug):
    definitions = rules.registry.load(slug)
    points = {}
    for cell in notebooks.student(solved(slug)).cells:
        if is_grade(cell):
            points[cell.metadata.nbgrader.grade_id.removesuffix("-check")] = cell.metadata.nbgrader.points
            assert is_locked(cell) != is_solution(cell)
    assert points == {name: exercise.points for name, exercise in definitions.items()}


def test_a_new_cell_in_one_section_changes_no_id_in_another():
    cells = manuscript.read(manuscript.path_of(SLUGS[0])).notebook.cells
    before = notebooks.cell_ids(cells)
    extra = nbformat.v4.new_code_cell("x = 1")
    after = notebooks.cell_ids([*cells[:4], extra, *cells[4:]])
    section = before[3].rsplit("-", 1)[0]
    assert set(before) < set(after)
    assert [name for name in after if not name.startswith(section)] == [
        name for name in before if not name.startswith(section)
    ]


def test_cells_keep_ids_of_their_own_where_headings_are_alike():
    sections = ["Step", "Step", "σ", "τ", "Step!"]
    cells = [nbformat.v4.new_markdown_cell(f"## {section}") for section in sections]
    cells.insert(1, nbformat.v4.new_code_cell("x = 1", metadata={"answer": "step-2"}))
    assert notebooks.cell_ids(cells) == ["step-1", "step-2", "step-3", "section-1", "section-2", "step-4"]


def test_an_equation_without_a_label_stays_as_it_is():
    plain_one, labelled = "$$\na = b\n$$", "$$\nh = x\n$$ (eq-h)"
    (text,) = plain.markdown([f"{plain_one}\n\nText.\n\n{labelled}"], chapter=1)
    assert text.startswith(f"{plain_one}\n\nText.\n\n\\begin{{equation*}}\nh = x\n")


def test_names_in_citations_are_printed_without_latex(tmp_path):
    entry = r"@book{a, author = {J{\'o}zefowicz, R. and van der Westhuizen, J.}, year = 2015, url = {u}}"
    (tmp_path / "references.bib").write_text(entry, encoding="utf-8")
    assert plain.markdown(["{cite:p}`a`"], 1, tmp_path) == ["([Józefowicz and van der Westhuizen, 2015](u))"]


def test_prose_for_notebooks_is_plain_markdown():
    cells = [
        "As {cite:t}`elman1990` and others {cite:p}`rumelhart1986,bai2018` say, see {doc}`the cell <02_cell>`.",
        "$$\nh = x\n$$ (eq-h)\n\n$$\ny = h\n$$ (eq-y)",
        "By {eq}`eq-y`.",
    ]
    first, second, third = plain.markdown(cells, chapter=3)
    assert "[Elman (1990)](https://doi.org/10.1207/s15516709cog1402_1)" in first
    assert "([Rumelhart et al., 1986](https://doi.org/10.1038/323533a0); [Bai et al., 2018](" in first
    assert "[the cell](02_cell.ipynb)" in first
    equation = "\\begin{{equation*}}\n{}\n\\tag{{{}}}\n\\end{{equation*}}"
    assert second == equation.format("h = x", "3.1") + "\n\n" + equation.format("y = h", "3.2")
    assert third == "By (3.2)."


@pytest.mark.parametrize("slug", SLUGS)
def test_no_markup_of_web_pages_is_left_in_a_notebook(slug):
    for cell in solved(slug).cells:
        if cell.cell_type == "markdown":
            assert not plain.ROLE.search(cell.source), cell.id
            assert not plain.LABELLED.search(cell.source), cell.id


def test_check_names_each_stale_chapter_and_its_first_differing_cell(project, capsys):
    assert command.run(project, check=True) == 0
    path = project / "chapters" / f"{SLUGS[0]}.ipynb"
    edited = path.read_text(encoding="utf-8").replace("why order", "why the order").replace("Why order", "Order")
    path.write_text(edited, encoding="utf-8")
    capsys.readouterr()
    assert command.run(project, check=True) == 1
    said = capsys.readouterr().err
    assert f"chapters/{SLUGS[0]}.ipynb differs, first in cell" in said
    assert "run `python -m publish`" in said
    assert path.read_text(encoding="utf-8") == edited, "--check writes nothing"
    path.unlink()
    assert command.run(project, check=True) == 1
    assert "is missing" in capsys.readouterr().err


def test_building_twice_writes_once_and_a_chapter_without_manuscript_goes(project, capsys):
    assert command.run(project) == 0
    times = {path: path.stat().st_mtime_ns for path in project.rglob("*.ipynb")}
    own = project / "chapters" / "own.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), own)
    orphan = project / "chapters" / "99_gone.ipynb"
    shutil.copy(project / "chapters" / f"{SLUGS[0]}.ipynb", orphan)
    broken = project / "chapters" / "broken.ipynb"
    broken.write_text("no notebook")
    capsys.readouterr()
    assert command.run(project) == 0
    assert "up to date" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert not orphan.exists()
    assert own.exists() and broken.exists(), "a notebook that is not ours stays"


def test_without_manuscripts_there_is_nothing_to_build(tmp_path, capsys):
    assert command.run(tmp_path) == 0
    assert "student edition" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())
