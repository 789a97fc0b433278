"""Self-checks: what an author may write, and what a reader meets on the page, in a notebook and in print."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from website import barriers, reload

import rnncore
from publish import __main__ as command
from publish import manuscript, plain, rules, selfcheck

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "publish" / "static" / "selfcheck.js"
HERE = bool(manuscript.slugs())
CHAPTER = "chapters/01_forward"
needs_manuscript = pytest.mark.skipif(not HERE, reason="this is the student edition: its pages show the notebooks")

GOOD = """Some prose.

:::{selfcheck} order-matters
Does $h_3$ know
the order?

- a fact

- [ ] No,
  it does not
  : Think again, see {eq}`eq-x`.
    It does.
- [x] Yes
  : It does.
:::

More prose."""

# name: (what stands in the good one, what is put in its place, the line named, words of the reason)
FAULTS = {
    "no id": ("} order-matters", "}", ":::{selfcheck}", "has an id of lower-case words"),
    "an id with capitals": ("order-matters", "Order_matters", ":::{selfcheck}", "here it is 'Order_matters'"),
    "not closed": ("\n:::\n\nMore", "\n\nMore", ":::{selfcheck}", "not closed"),
    "closed by something else": ("\n:::\n\nMore", "\n:::{note}\n\nMore", ":::{selfcheck}", "not closed"),
    "no question": ("Does $h_3$ know\nthe order?\n\n- a fact\n", "", ":::{selfcheck}", "begins with its question"),
    "a heading": ("Does $h_3$ know", "## Does $h_3$ know", "## Does", "no heading"),
    "another directive": ("Does $h_3$ know", "```{note}\nx\n```", "```{note}", "no other directive"),
    "one choice": (
        "- [ ] No,\n  it does not\n  : Think again, see {eq}`eq-x`.\n    It does.\n",
        "",
        ":::{",
        "two to 6",
    ),
    "seven choices": (
        "- [x] Yes",
        "- [ ] A\n  : a\n" * 5 + "- [x] Yes",
        ":::{selfcheck}",
        "here are 7",
    ),
    "no right choice": ("- [x]", "- [ ]", ":::{selfcheck}", "exactly one choice is right, marked [x]; here are none"),
    "two right choices": ("- [ ]", "- [X]", ":::{selfcheck}", "exactly one choice is right, marked [x]; here are 2"),
    "another mark": ("- [x]", "- [v]", "- [v]", "write [x] before the right choice"),
    "a mark without its space": ("- [ ] No", "- [] No", "- [] No", "write [x] before the right choice"),
    "a choice without a mark": ("- [x] Yes", "- Yes", "- Yes", "begin a line with - [ ] or - [x]"),
    "a choice without words": ("- [x] Yes", "- [x]", "- [x]", "choice B has no words"),
    "a choice twice": ("No,\n  it does not", "Yes", "- [x] Yes", "stands here already"),
    "no explanation": ("  : It does.\n", "", "- [x] Yes", "choice B has no explanation"),
    "an empty explanation": ("  : It does.\n", "  :\n", "- [x] Yes", "choice B has no explanation"),
    "two explanations": ("  : It does.", "  : It does.\n  : Really.", "  : Really.", "a second explanation"),
    "an explanation without choice": ("- a fact", "  : a fact", "  : a fact", "no choice before it"),
    "an explanation that is not indented": ("  : It does.", ": It does.", ": It does.", "or indent it"),
    "prose between the choices": ("- [x] Yes", "Or else\n- [x] Yes", "Or else", "or indent it"),
    "a list in an explanation": ("    It does.", "    - It does.", "    - It does.", "one paragraph each"),
    "a display in a choice": ("  it does not", "  $$x$$", "  $$x$$", "one paragraph each"),
    "in a list": (":::{selfcheck} order", "  :::{selfcheck} order", "  :::{selfcheck}", "at the beginning of its line"),
    "in backticks": (":::{selfcheck} order", "```{selfcheck} order", "```{selfcheck}", "begin a self-check with"),
    "four colons": (":::{selfcheck} order", "::::{selfcheck} order", "::::{selfcheck}", "begin a self-check with"),
}


def problems(text):
    known = plain.Known(entries={}, terms=set(), equations=["eq-x"], figures=set(), sections=set())
    return list(plain.problems(text, known))


# What an author may write


def test_a_good_self_check_is_read_as_written():
    assert problems(GOOD) == []
    (match,) = selfcheck.BLOCK.finditer(GOOD)
    check = selfcheck.parse(match[1], match[2])
    assert (check.name, check.question) == ("order-matters", "Does $h_3$ know\nthe order?\n\n- a fact")
    first, second = check.choices
    assert (first.letter, first.right, first.text) == ("A", False, "No,\nit does not")
    assert first.explanation == "Think again, see {eq}`eq-x`.\nIt does."
    assert (second.letter, second.right, second.text, second.explanation) == ("B", True, "Yes", "It does.")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_with_its_line_and_reason(name):
    old, new, line_with, reason = FAULTS[name]
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    found = [(why, place) for why, place in problems(text) if reason in why]
    assert found, problems(text)
    line = text.splitlines()[text.count("\n", 0, found[0][1])]
    assert line.startswith(line_with)


def test_a_link_in_the_question_is_no_choice():
    assert problems(GOOD.replace("- a fact", "- [a fact](https://example.org)")) == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A function that writes a manuscript of some prose and returns what the build says of it."""
    monkeypatch.setattr(rules.registry, "load", lambda slug: {"why": SimpleNamespace(id="why", points=1)})
    (tmp_path / "solutions").mkdir()
    (tmp_path / "references.bib").write_text("")
    header = (ROOT / "solutions" / "01_forward.md").read_text("utf-8").split("---\n")[1]
    manual = '\n+++ {"manual": "why"}\n\n### BEGIN SOLUTION\nSo.\n### END SOLUTION\n'

    def build(prose, capsys, manual=manual):
        (tmp_path / "solutions" / "01_test.md").write_text(f"---\n{header}---\n\n{prose}\n{manual}", "utf-8")
        code = command.run(tmp_path)
        return code, capsys.readouterr(), tmp_path

    return build


EQUATION = "\n\n$$\nx\n$$ (eq-x)"


@needs_manuscript
def test_a_manuscript_with_a_fault_is_refused_with_file_and_line_and_nothing_is_written(project, capsys):
    code, said, root = project(GOOD.replace("  : It does.\n", "") + EQUATION, capsys)
    lines = (root / "solutions" / "01_test.md").read_text("utf-8").splitlines()
    assert code == 2
    assert f"01_test.md:{lines.index('- [x] Yes') + 1}: choice B has no explanation" in said.err
    assert not (root / "chapters").exists() and not (root / "_build").exists()


@needs_manuscript
def test_an_id_used_twice_is_named_at_its_second_place(project, capsys):
    code, said, root = project(f"{GOOD}{EQUATION}\n\n## Next\n\n{GOOD}", capsys)
    lines = (root / "solutions" / "01_test.md").read_text("utf-8").splitlines()
    second = max(number for number, line in enumerate(lines, start=1) if line.startswith(":::{selfcheck}"))
    assert code == 2
    assert f"01_test.md:{second}: self-check 'order-matters' stands twice in this chapter" in said.err


@needs_manuscript
def test_a_self_check_in_the_cell_of_an_exercise_is_refused(project, capsys):
    check = GOOD.split("\n\n", 1)[1].rsplit("\n\n", 1)[0].replace("{eq}`eq-x`", "it")
    manual = f'\n+++ {{"manual": "why"}}\n\n{check}\n\n### BEGIN SOLUTION\nSo.\n### END SOLUTION\n'
    code, said, _ = project("Prose.", capsys, manual)
    assert code == 2
    assert "stands in prose, not in the cell of an exercise" in said.err


@needs_manuscript
def test_a_good_one_is_built(project, capsys):
    code, said, _ = project(GOOD + EQUATION, capsys)
    assert code == 0, said.err


# In a notebook


def test_a_notebook_has_the_question_in_plain_markdown_with_the_answers_folded():
    (text,) = plain.markdown([GOOD + EQUATION], chapter=1)
    assert text.startswith(
        """Some prose.

**Self-check.** Does $h_3$ know
the order?

- a fact

- **A.** No,
  it does not
- **B.** Yes

```{dropdown} Answers
- **A: not quite.** Think again, see (1.1).
  It does.
- **B: right.** It does.
```

More prose."""
    )


# In chapter 1


@needs_manuscript
def test_chapter_1_has_four_and_their_right_choices_stand_in_different_places():
    text = manuscript.path_of("01_forward").read_text("utf-8")
    checks = [selfcheck.parse(match[1], match[2]) for match in selfcheck.BLOCK.finditer(text)]
    assert [check.name for check in checks] == [
        "same-state",
        "one-input-changes",
        "padding-in-front",
        "how-much-or-how-long",
    ]
    assert len({choice.letter for check in checks for choice in check.choices if choice.right}) >= 3
    for check in checks:
        assert check.faults == []
        assert all(len(choice.explanation.split()) >= 12 for choice in check.choices)


def test_what_chapter_1_calls_right_is_right():
    rng = np.random.default_rng(0)
    B, T, D, H = 3, 10, 5, 8
    x, W_xh, W_hh = rng.normal(size=(B, T, D)), rng.normal(size=(H, D)), rng.normal(size=(H, H)) / 4
    hs = rnncore.rnn_forward(x, None, W_xh, W_hh, np.zeros(H))
    # one-input-changes: that sequence's states from step 5 on, and no others
    x[1, 4] += 1
    changed = (rnncore.rnn_forward(x, None, W_xh, W_hh, np.zeros(H)) != hs).any(axis=-1)
    assert changed[1, 4:].all() and changed.sum() == T - 4
    # padding-in-front: the state that the real steps leave alone; with a bias or the padding behind, another
    real, zeros = x[:, :4], np.zeros((B, 6, D))
    front, behind = np.concatenate([zeros, real], axis=1), np.concatenate([real, zeros], axis=1)

    def last(x, bias):
        return rnncore.rnn_forward(x, None, W_xh, W_hh, np.full(H, float(bias)))[:, -1]

    assert np.allclose(last(front, 0), last(real, 0))
    assert not np.allclose(last(front, 0.1), last(real, 0.1))
    assert not np.allclose(last(behind, 0), last(real, 0))
    # how-much-or-how-long: after three more steps the chain of three has no trace of an input, and no number faded
    chain, first = np.diag([1.0, 1.0], k=-1), np.array([[1.0], [0.0], [0.0]])
    pulse = np.array([7.0, 0, 0, 0]).reshape(1, 4, 1)
    held = rnncore.rnn_forward(pulse, None, first, chain, np.zeros(3), nonlinearity="relu")[0]
    assert held[:3].max(axis=-1).tolist() == [7, 7, 7] and not held[3].any()


# On the page


@pytest.fixture
def chapter(visit):
    """A function that opens chapter 1."""
    return lambda *arguments, **options: visit(CHAPTER, *arguments, **options)


def choose(page, check, right):
    """Choose the right answer of a self-check, or its first wrong one; return the feedback's place."""
    box = page.locator(".selfcheck").nth(check)
    value = box.locator(f".selfcheck-answer[data-right='{int(right)}']").first.get_attribute("data-choice")
    box.locator(f"input[value='{value}']").check()
    return box.locator(".selfcheck-feedback")


@needs_manuscript
def test_a_wrong_choice_explains_itself_a_right_one_counts_and_both_are_there_after_a_reload(chapter):
    seen = chapter(formulas=True)
    page, progress = seen.page, seen.page.locator(".selfcheck-progress a")
    assert progress.inner_text() == "0 of 4 self-checks answered"
    wrong = choose(page, 0, right=False)
    assert wrong.inner_text().startswith("✗ Not quite. A difference in the past can reach step 4 only through")
    assert wrong.get_attribute("role") == "status"
    assert wrong.locator("mjx-container").count() >= 1
    assert progress.inner_text() == "0 of 4 self-checks answered"
    assert choose(page, 0, right=True).inner_text().startswith("✓ Right. The fourth step computes")
    assert progress.inner_text() == "1 of 4 self-checks answered"
    choose(page, 0, right=False)
    assert progress.inner_text() == "1 of 4 self-checks answered", "what was answered stays answered"
    choose(page, 2, right=False)
    reload(page)
    boxes = page.locator(".selfcheck")
    assert progress.inner_text() == "1 of 4 self-checks answered"
    assert boxes.nth(0).locator(".selfcheck-feedback").inner_text().startswith("✓ Right.")
    assert boxes.nth(0).locator("input:checked").count() == 1
    assert boxes.nth(2).locator(".selfcheck-feedback").inner_text().startswith("✗ Not quite.")
    assert boxes.nth(1).locator(".selfcheck-feedback").inner_text() == ""
    page.get_by_role("button", name="Clear answers").click()
    assert progress.inner_text() == "0 of 4 self-checks answered"
    assert page.locator(".selfcheck input:checked").count() == 0
    assert page.get_by_role("button", name="Clear answers").count() == 0
    reload(page)
    assert progress.inner_text() == "0 of 4 self-checks answered"
    assert seen.errors == []


@needs_manuscript
def test_the_keyboard_looks_at_choices_with_the_arrows_and_answers_with_enter(chapter):
    page = chapter().page
    box = page.locator(".selfcheck").nth(1)
    feedback = box.locator(".selfcheck-feedback")
    box.locator("a, input").first.focus()
    assert box.locator("input:checked").count() == 0
    page.keyboard.press("ArrowDown")
    assert box.locator("input").nth(1).is_checked()
    assert feedback.inner_text() == "Press Enter to answer with this choice."
    page.keyboard.press("Enter")
    assert feedback.inner_text().startswith("✓ Right.")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert feedback.inner_text().startswith("✗ Not quite.")
    assert page.evaluate("document.activeElement.type") == "radio"


@needs_manuscript
def test_a_first_choice_can_be_made_with_the_space_bar(chapter):
    page = chapter().page
    box = page.locator(".selfcheck").nth(3)
    box.locator("input").first.focus()
    page.keyboard.press("Space")
    assert box.locator(".selfcheck-feedback").inner_text().startswith("✓ Right.")


@needs_manuscript
def test_a_choice_is_a_radio_button_with_a_name_in_a_group_named_by_its_question(chapter):
    page = chapter().page
    group = page.get_by_role("group", name="Somebody puts the padding in front")
    assert group.count() == 1
    assert group.get_by_role("radio").count() == 3
    assert group.get_by_role("radio", name="Nearly zero, as with the padding at the end.").count() == 1


@needs_manuscript
def test_where_storage_is_forbidden_there_is_feedback_and_no_error(chapter):
    seen = chapter()
    forbid = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('forbidden') }})"
    seen.page.add_init_script(forbid)
    seen.errors.clear()
    seen.page.reload()
    assert choose(seen.page, 0, right=True).inner_text().startswith("✓ Right.")
    ours = [error for error in seen.errors if "selfcheck" in error]
    assert ours == []
    assert seen.page.locator(".selfcheck-progress a").inner_text() == "1 of 4 self-checks answered"


@needs_manuscript
def test_without_a_script_the_answers_can_be_unfolded(chapter):
    page = chapter(java_script_enabled=False).page
    box = page.locator(".selfcheck").first
    assert not box.locator("input").first.is_visible()
    assert box.locator(".selfcheck-choice").first.inner_text().startswith("A They differ")
    answer = box.locator(".selfcheck-answer").last
    assert not answer.is_visible()
    box.locator("summary").click()
    assert answer.inner_text().startswith("C ✓ Right.")
    assert not page.locator(".selfcheck-progress").is_visible()


@needs_manuscript
def test_in_print_the_answers_stand_below_the_choices(chapter):
    page = chapter().page
    choose(page, 0, right=False)
    page.emulate_media(media="print")
    box = page.locator(".selfcheck").first
    assert box.locator(".selfcheck-answer").last.is_visible()
    assert box.locator(".selfcheck-letter").first.is_visible()
    assert not box.locator("input").first.is_visible()
    assert not box.locator(".selfcheck-feedback").is_visible()


@needs_manuscript
@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_axe_finds_no_barrier_in_answered_self_checks(chapter, mode, width):
    seen = chapter(mode, width, formulas=mode == "light")
    choose(seen.page, 0, right=False)
    choose(seen.page, 1, right=True)
    assert barriers(seen.page, ".selfcheck") == []
    if (mode, width) == ("light", 1280):
        assert barriers(seen.page, without=["color-contrast"]) == []
    contrast, text = seen.page.evaluate((ROOT / "tests" / "contrast.js").read_text("utf-8"), ".selfcheck")
    assert contrast >= 4.5, f"{text!r} has a contrast of {contrast:.2f}"


@needs_manuscript
def test_the_script_is_small_and_loaded_only_where_there_are_self_checks(book):
    assert len(gzip.compress(SCRIPT.read_bytes())) < 3000
    loading = {path.stem for path in book.rglob("*.html") if "selfcheck.js" in path.read_text("utf-8")}
    having = {slug for slug in manuscript.slugs() if ":::{selfcheck}" in manuscript.path_of(slug).read_text("utf-8")}
    assert loading == having
