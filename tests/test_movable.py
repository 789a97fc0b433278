"""Movable figures: what Python hands over, and what a reader can do with it on a page, by keyboard, mouse and touch."""

import base64
import gzip
import itertools
import json
import re
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
from website import barriers, rest

import rnncore
import rnnplot
from publish import figures, manuscript, movable, pages, reader

SLUG = "01_forward"
SCALES, RHOS = [0.5, 1], [0.3, 0.9, 1.2]
STARTS = {"zero": 0.0, "one half": 0.5}

# The theme's variables that the figures use, as a page of the book has them.
THEME = """
  html { --pst-font-family-base: sans-serif; font-size: 16px; background: var(--pst-color-background); }
  html[data-theme=light] { --pst-color-background: #fff; --pst-color-text-base: #222; color-scheme: light;
    --pst-color-text-muted: #48566b; --pst-color-primary: #176de8; }
  html[data-theme=dark] { --pst-color-background: #121212; --pst-color-text-base: #ced6dd; color-scheme: dark;
    --pst-color-text-muted: #9ca4af; --pst-color-primary: #528fe4; }
  figure { margin: 0; }
  body { margin: 1rem; color: var(--pst-color-text-base); font: 1rem/1.5 var(--pst-font-family-base); }
"""


def states(scale, rho, T=12, H=5):
    draw = np.random.default_rng(4)
    x, W_xh, W_hh = (draw.normal(size=size) for size in ((1, T, 1), (H, 1), (H, H)))
    W_hh *= rho / np.abs(np.linalg.eigvals(W_hh)).max()
    return rnncore.rnn_forward(scale * x, None, W_xh, W_hh, np.zeros(H))[0]


def heat(scale, rho):
    hs = states(scale, rho)
    return rnnplot.heat(hs, f"The first state of unit 1 is {hs[0, 0]:.2f}.")


def decay(rho, start, T=30):
    """Three lines: one that decays below every range, one with gaps and a value between two of them, one of zeros."""
    falling = 1e3 * rho ** np.arange(T) + start
    gaps = np.full(T, np.nan)
    gaps[[2, 3, 4, 9]] = 1e-4, 2e-4, 3e-4, 5.0
    return {"falling": falling, "with <gaps>": gaps, "zero": np.zeros(T)}


def log_lines(rho, start):
    series = decay(rho, STARTS[start])
    return rnnplot.lines(series, f"At the end: {rnnplot.number(series['falling'][-1])}.", "size", log=True)


@pytest.fixture(scope="module")
def heat_map():
    scale = rnnplot.slider("input scale", SCALES, start=1)
    return rnnplot.movable(heat, scale=scale, rho=rnnplot.slider("spectral radius ρ", RHOS, start=0.9))


@pytest.fixture(scope="module")
def sizes():
    return rnnplot.movable(
        lambda a: rnnplot.heat([[a, 0.0, 0.4]], "Three norms.", label="norm"),
        a=rnnplot.slider("a", [0.2, 0.917], start=0.2),
    )


@pytest.fixture(scope="module")
def line_chart():
    rho = rnnplot.slider("factor ρ", RHOS, start=0.9)
    return rnnplot.movable(log_lines, rho=rho, start=rnnplot.menu("start", list(STARTS), start="zero"))


def decoded(data):
    """Return a heat map's values, (combinations, T, H), as the page has them."""
    levels = np.frombuffer(base64.b64decode(data["cells"]), dtype=np.int8).reshape(-1, *data["shape"])
    return np.where(levels == rnnplot.NO_VALUE, np.nan, levels * data["step"])


# What Python hands over ----------------------------------------------------------------------------------------------


def test_the_data_hold_every_combination_of_the_controls_the_last_of_them_changing_fastest(heat_map):
    data = heat_map.data
    every = [states(scale, rho) for scale, rho in itertools.product(SCALES, RHOS)]
    np.testing.assert_allclose(decoded(data), every, atol=data["step"] / 2 + 1e-12)
    assert data["says"] == [f"The first state of unit 1 is {hs[0, 0]:.2f}." for hs in every]
    assert data["start"] == 4
    assert [control["options"] for control in data["controls"]] == [["0.5", "1"], ["0.3", "0.9", "1.2"]]


@pytest.mark.parametrize(("largest", "step"), [(1, 0.01), (0.05, 0.0005), (127, 1), (127.1, 2), (3e5, 5000), (0, 0.01)])
def test_a_heat_map_is_rounded_to_steps_that_a_text_can_say(largest, step):
    moved = rnnplot.movable(lambda a: rnnplot.heat([[a * largest]], "."), a=rnnplot.slider("a", [0, 1], start=0))
    assert moved.data["step"] == step
    assert decoded(moved.data).ravel() == pytest.approx([0, largest], abs=step / 2)


def test_lines_keep_three_digits_and_their_gaps(line_chart):
    falling, gaps, zero = line_chart.data["lines"][3]
    np.testing.assert_allclose(falling, decay(0.9, 0.5)["falling"], rtol=5e-3)
    assert gaps[:6] == [None, None, 1e-4, 2e-4, 3e-4, None]
    assert set(zero) == {0}


def test_the_range_holds_the_lines_of_every_combination(line_chart):
    positive = [v for rho, start in itertools.product(RHOS, STARTS.values()) for v in decay(rho, start)["falling"]]
    low, high = line_chart.data["ylim"]
    assert low <= min(positive) < 10 * low and high / 10 < max(positive) <= high


def test_a_notebook_shows_a_picture_without_opening_another(heat_map, line_chart):
    for moved in (heat_map, line_chart):
        bundle = moved._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "image/svg+xml", "image/png", rnnplot.MOVABLE}
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
        assert moved.data["says"][moved.data["start"]] in bundle["text/plain"]
        assert json.loads(json.dumps(bundle[rnnplot.MOVABLE])) == moved.data
    assert plt.get_fignums() == []
    assert movable.KIND == rnnplot.MOVABLE


SLIDER = rnnplot.slider("a", [1, 2], start=1)
FLAT = [[0.0, 1.0]]
WRONG = {
    "a plain list": (lambda: rnnplot.movable(heat, rho=[1, 2]), TypeError, "rnnplot.slider"),
    "no control": (lambda: rnnplot.movable(heat), ValueError, "no control"),
    "another name": (lambda: rnnplot.movable(heat, a=SLIDER), TypeError, "function of a"),
    "too many": (
        lambda: rnnplot.movable(heat, scale=rnnplot.slider("a", range(30), 1), rho=rnnplot.slider("b", range(30), 1)),
        ValueError,
        "900 combinations, more than 400",
    ),
    "too much": (
        lambda: rnnplot.movable(
            lambda a: rnnplot.heat(np.random.default_rng(a).normal(size=(400, 200)), "."), a=SLIDER
        ),
        ValueError,
        "bytes compressed, more than 60,000",
    ),
    "no picture": (lambda: rnnplot.movable(lambda a: a, a=SLIDER), TypeError, r"for \{'a': 1\} it gave 1"),
    "shapes": (
        lambda: rnnplot.movable(lambda a: rnnplot.heat(np.ones((a, 3)), "."), a=SLIDER),
        ValueError,
        r"same shape; for \{'a': 2\} it is \[2, 3\], for the first combination \[1, 3\]",
    ),
    "names": (
        lambda: rnnplot.movable(lambda a: rnnplot.lines({f"{a}": [1, 2]}, ".", "y"), a=SLIDER),
        ValueError,
        "same names",
    ),
    "forms": (
        lambda: rnnplot.movable(
            lambda a: rnnplot.heat(FLAT, ".") if a == 1 else rnnplot.lines({"a": [1, 2]}, ".", "y"), a=SLIDER
        ),
        ValueError,
        "same form",
    ),
    "start": (lambda: rnnplot.slider("a", [1, 2], start=3), ValueError, "start 3 is none of its values 1, 2"),
    "falling": (lambda: rnnplot.slider("a", [2, 1], start=1), ValueError, "numbers that increase"),
    "one value": (lambda: rnnplot.slider("a", [2], start=2), ValueError, "two or more"),
    "alike": (lambda: rnnplot.slider("a", [1, 1 + 1e-9], start=1), ValueError, "look alike"),
    "no numbers": (lambda: rnnplot.slider("a", ["x", "y"], start="x"), TypeError, "array of numbers"),
    "one option": (lambda: rnnplot.menu("a", ["x"], start="x"), ValueError, "two or more options"),
    "menu's start": (lambda: rnnplot.menu("a", ["x", "y"], start="z"), ValueError, "none of its options x, y"),
    "number in menu": (lambda: rnnplot.menu("a", [1, 2], start=1), TypeError, "must be a text, not 1"),
    "label": (lambda: rnnplot.slider("", [1, 2], start=1), ValueError, "1 to 40 characters"),
    "formula": (lambda: rnnplot.slider(r"$\rho$", [1, 2], start=1), ValueError, "write Greek as it is"),
    "no text": (lambda: rnnplot.heat(FLAT, None), TypeError, "heat: says must be a text"),
    "vector": (lambda: rnnplot.heat([1, 2], "."), ValueError, r"2 axes, none empty; its shape is \(2,\)"),
    "infinite": (lambda: rnnplot.heat([[np.inf]], "."), ValueError, "np.nan"),
    "complex": (lambda: rnnplot.heat([[1j]], "."), TypeError, "array of numbers"),
    "limit": (lambda: rnnplot.heat(FLAT, ".", limit=0), ValueError, "limit must be a positive number"),
    "all gaps": (
        lambda: rnnplot.movable(lambda a: rnnplot.heat([[np.nan]], "."), a=SLIDER),
        ValueError,
        "nothing to draw",
    ),
    "no positive": (
        lambda: rnnplot.movable(lambda a: rnnplot.lines({"a": [0, 0]}, ".", "y", log=True), a=SLIDER),
        ValueError,
        "no value is positive",
    ),
    "five lines": (lambda: rnnplot.lines({k: [1, 2] for k in "abcde"}, ".", "y"), ValueError, "1 to 4 lines"),
    "lengths": (lambda: rnnplot.lines({"a": [1, 2], "b": [1]}, ".", "y"), ValueError, "'b' has 1 values"),
    "negative": (lambda: rnnplot.lines({"a": [1, -1]}, ".", "y", log=True), ValueError, "use log=False"),
    "x": (lambda: rnnplot.lines({"a": [1, 2]}, ".", "y", x=[1, 1]), ValueError, "x must be two or more numbers"),
    "range": (lambda: rnnplot.lines({"a": [1, 2]}, ".", "y", log=True, ylim=(0, 1)), ValueError, "end, positive"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_drawn_is_refused_with_what_came_and_what_was_expected(wrong):
    call, kind, message = WRONG[wrong]
    with pytest.raises(kind, match=message):
        call()


# The chapter's figures -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapter():
    """What the chapter's code has made when each movable figure's cell has run: {figure: names}."""
    if not manuscript.path_of(SLUG).is_file():
        pytest.skip("this is the student edition: there are no manuscripts")
    names, found = {}, {}
    for cell in manuscript.read(manuscript.path_of(SLUG)).notebook.cells:
        if cell.cell_type == "code" and not {"answer", "check", "manual"} & set(cell.metadata):
            exec(cell.source, names)
            if "rnnplot.movable(" in cell.source:
                found[cell.metadata.figure] = dict(names)
    plt.close("all")
    return found


@pytest.fixture(scope="module")
def on_the_page(root, chapter):
    """The data in the chapter's page: {figure: data}."""
    page = reader.read((root / "chapters" / f"{SLUG}.ipynb").read_text("utf-8"), root)
    htmls = [
        output["data"].get("text/html", "")
        for cell in page.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    found = {}
    for html in htmls:
        if movable.MARK in html:
            name = re.search(r'id="([\w-]+)-\d+-movable"', html)[1]
            found[name] = json.loads(re.search(r'<script type="application/json">(.*)</script>', html)[1])
    assert set(found) == set(chapter) == {"fig-states", "fig-memory"}
    return found


def test_the_heat_map_on_the_page_holds_what_rnncore_computes(on_the_page, chapter):
    data, names = on_the_page["fig-states"], chapter["fig-states"]
    shown, W_hh = decoded(data), names["W_hh"] / np.abs(np.linalg.eigvals(names["W_hh"])).max()
    scales, rhos = ([float(text) for text in control["options"]] for control in data["controls"])
    for k, (scale, rho) in enumerate(itertools.product(scales, rhos)):
        hs = rnncore.rnn_forward(scale * names["x"], None, names["W_xh"], rho * W_hh, names["b_h"])[0]
        np.testing.assert_allclose(shown[k], hs, atol=data["step"] / 2 + 1e-9)
        at_5, at_24 = np.linalg.norm(hs[[4, 23]], axis=1)
        assert f"{at_5:.2f} at t = 5" in data["says"][k] and f"{at_24:.2f} at t = 24" in data["says"][k]


def test_the_distances_on_the_page_are_those_of_two_runs_of_rnncore(on_the_page):
    data = on_the_page["fig-memory"]
    draw = np.random.default_rng(2)
    W_hh, W_xh, x = (draw.normal(size=size) for size in ((32, 32), (32, 1), (1, 100, 1)))
    W_hh /= np.abs(np.linalg.eigvals(W_hh)).max()
    rhos = [float(text) for text in data["controls"][0]["options"]]
    for k, (rho, change) in enumerate(itertools.product(rhos, (1, 1e-8))):
        both = np.concatenate([x, x])
        both[1, 0] += change
        one, other = rnncore.rnn_forward(both, None, W_xh, rho * W_hh, np.zeros(32))
        distance = np.linalg.norm(one - other, axis=-1)
        # the tiny change is seen through rounding errors, which depend on how W_hh was scaled
        visible = distance > (1e-14 if change == 1 else 1e-11)
        until = np.argmin(visible) if not visible.all() else 30 if rho > 2 else 100
        np.testing.assert_allclose(np.array(data["lines"][k][0])[:until], distance[:until], rtol=2e-2, atol=1e-15)


def test_a_movable_figure_is_little_to_send(on_the_page):
    for name, data in on_the_page.items():
        assert len(gzip.compress(json.dumps(data).encode())) < 40_000, name


# The page ------------------------------------------------------------------------------------------------------------


def test_the_script_is_small():
    assert len(gzip.compress((pages.STATIC / "movable.js").read_bytes())) < 5000


def test_no_text_of_a_figure_becomes_markup():
    def draw(a):
        return rnnplot.heat(FLAT, "</script><b>says</b>", xlabel="<i>t</i>")

    moved = rnnplot.movable(draw, a=rnnplot.menu('"<u>menu</u>', ["<s>x</s>", "y"], start="y"))
    html = movable.html(moved.data, figures.inline(moved.svg, "fig-a", "what it shows"), "fig-a")
    assert not re.search("<[bius]>", html)
    assert html.count("</script>") == 1
    data = json.loads(re.search(r"<script[^>]*>(.*)</script>", html)[1])
    assert data == moved.data


@pytest.fixture
def visit(browser, tmp_path, heat_map, line_chart, sizes):
    """Return a function that opens a page with the figures from its file."""
    contexts = []
    for path in (manuscript.ROOT / "_static" / "recurrence.css", pages.STATIC / "movable.js"):
        shutil.copy(path, tmp_path)
    boxes = [
        f"<figure>{movable.html(moved.data, figures.inline(moved.svg, name, f'The start of {name}.'), name)}</figure>"
        for name, moved in (("heat", heat_map), ("lines", line_chart), ("sizes", sizes))
    ]

    def open_page(width=1280, mode="light", script=True, **options):
        page_html = f"""<!doctype html><html lang="en" data-theme="{mode}"><meta charset="utf-8">
            <title>Two figures</title><meta name="viewport" content="width=device-width">
            <link rel="stylesheet" href="recurrence.css"><style>{THEME}</style>
            {'<script defer src="movable.js"></script>' if script else ""}
            <main><h1>Two figures</h1>{"".join(boxes)}<p id="end">The end.</p></main></html>"""
        (tmp_path / "page.html").write_text(page_html, "utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("request", lambda request: page.problems.append(request.url) if "http" in request.url else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.problems == []
        context.close()


def parts(page, name):
    """Return a figure's drawing, cursor, reading and sentence."""
    box = page.locator(f"#{name}-movable")
    return [box.locator(kind) for kind in ("svg.movable-drawing", ".movable-cursor", ".movable-at span", "output")]


def drawn(page, name):
    return page.locator(f"#{name}-movable svg.movable-drawing").inner_html()


def number_of(text):
    """Return the last number that a reading says."""
    text = text.rpartition(" = ")[2].replace("−", "-").replace("\u00a0", "")
    if "·10" in text:
        digits, _, exponent = text.partition("·10")
        return float(f"{digits}e{exponent.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}")
    return float(text)


def test_the_keyboard_alone_reaches_every_part_and_moves_it(visit, heat_map, line_chart):
    page = visit()
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached == ["movable-cursor", "heat-scale", "heat-rho", "movable-cursor", "lines-rho", "lines-start"]
    for control, k, moved in (("heat-scale", 1, heat_map), ("lines-rho", 4, line_chart)):
        name = control.partition("-")[0]
        before = drawn(page, name)
        page.locator(f"#{control}").focus()
        page.keyboard.press("Home" if name == "heat" else "End")
        assert drawn(page, name) != before
        assert parts(page, name)[3].inner_text() == moved.data["says"][k]
        assert parts(page, name)[0].get_attribute("aria-label") == moved.data["says"][k]
    assert page.locator("#heat-scale").get_attribute("aria-valuetext") == "0.5"
    assert page.locator("#heat-scale + .movable-value").inner_text() == "0.5"
    page.locator("#lines-start").focus()
    page.keyboard.press("ArrowDown")
    assert parts(page, "lines")[3].inner_text() == line_chart.data["says"][5]


def test_the_cursor_reads_the_heat_map_s_values_at_every_place_and_combination(visit, heat_map):
    page = visit()
    _, cursor, reading, _ = parts(page, "heat")
    assert "arrow keys" in reading.inner_text()
    row = 0
    for scale, rho in itertools.product(range(2), range(3)):
        page.locator("#heat-scale").fill(str(scale))
        page.locator("#heat-rho").fill(str(rho))
        hs = states(SCALES[scale], RHOS[rho])
        cursor.focus()
        for key, column in (("Home", 0), ("ArrowRight", 1), ("ArrowDown", 1), ("End", 11)):
            page.keyboard.press(key)
            row = min(4, row + (key == "ArrowDown"))  # the last row stays the last
            said = cursor.get_attribute("aria-valuetext")
            assert said.startswith(f"time step t = {column + 1}, hidden unit = {row + 1}, state = ")
            assert number_of(said) == pytest.approx(hs[column, row], abs=heat_map.data["step"] / 2 + 1e-9)
            assert cursor.get_attribute("aria-valuenow") == f"{column + 1}"
            assert reading.inner_text() == said
    page.keyboard.press("ArrowRight")  # the end stays the end
    assert cursor.get_attribute("aria-valuenow") == cursor.get_attribute("aria-valuemax") == "12"


def test_the_cursor_says_the_numbers_of_lines_as_python_does(visit, line_chart):
    page = visit()
    _, cursor, reading, _ = parts(page, "lines")
    page.locator("#lines-rho").fill("0")
    cursor.focus()
    for i, (falling, gap, _) in enumerate(zip(*line_chart.data["lines"][0], strict=True)):
        between = "no value" if gap is None else rnnplot.number(gap)
        said = f"time step t = {i + 1}, falling = {rnnplot.number(falling)}, with <gaps> = {between}, zero = 0"
        assert reading.text_content() == said
        page.keyboard.press("ArrowRight")
    for key, t in (("Home", 1), ("PageUp", 11), ("ArrowUp", 12), ("ArrowDown", 11), ("PageDown", 1), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        assert cursor.get_attribute("aria-valuenow") == str(t)


def test_mouse_and_finger_point_at_a_cell_and_the_page_still_scrolls(visit):
    page = visit(width=375, has_touch=True)
    _, cursor, reading, _ = parts(page, "heat")
    box = cursor.bounding_box()
    for t, unit, act in ((3, 2, page.touchscreen.tap), (7, 4, page.mouse.move), (11, 0, page.touchscreen.tap)):
        act(box["x"] + (t + 0.5) * box["width"] / 12, box["y"] + (unit + 0.5) * box["height"] / 5)
        assert reading.inner_text().startswith(f"time step t = {t + 1}, hidden unit = {unit + 1}, ")
    assert cursor.evaluate("e => getComputedStyle(e).touchAction") == "pan-y"
    _, cursor, reading, _ = parts(page, "lines")
    cursor.scroll_into_view_if_needed()
    box = cursor.bounding_box()
    page.touchscreen.tap(box["x"] + 14 * box["width"] / 29, box["y"] + 5)
    assert reading.inner_text().startswith("time step t = 15, ")


@pytest.mark.parametrize("name", ["heat", "lines"])
def test_ink_and_paper_follow_the_theme_as_it_is_switched(visit, name):
    page = visit()
    parts(page, name)[1].focus()
    colours = """drawing => [...drawing.querySelectorAll("text, .paper, .axis, .over *")].flatMap(
        e => [getComputedStyle(e).fill, getComputedStyle(e).stroke])"""
    seen = {}
    for mode in ("light", "dark"):
        page.evaluate("mode => document.documentElement.dataset.theme = mode", mode)
        seen[mode] = set(parts(page, name)[0].evaluate(colours)) - {"none"}
    assert seen == {
        "light": {"rgb(34, 34, 34)", "rgb(255, 255, 255)"},
        "dark": {"rgb(206, 214, 221)", "rgb(18, 18, 18)"},
    }


def test_the_drawing_has_the_colours_of_the_picture(visit):
    page = visit()
    shades = cells(page)
    lut = (rnnplot.DIVERGING(np.linspace(0, 1, 1001))[:, :3] * 255).round()
    assert np.abs(shades[:, None] - lut[None]).max(axis=-1).min(axis=-1).max() <= 2
    strokes = parts(page, "lines")[0].locator("svg .line").evaluate_all("all => all.map(e => e.getAttribute('stroke'))")
    assert strokes == list(rnnplot.COLOURS[:3])


def test_the_colours_begin_at_zero_where_nothing_is_negative_and_end_at_two_digits(visit, heat_map, sizes):
    assert heat_map.data["low"] == -1 and {sizes.data["low"], sizes.data["limit"]} == {0, 0.92}
    assert "−" not in re.sub(r"<style.*?</style>", "", sizes.svg, flags=re.S)
    page = visit()
    labels = parts(page, "sizes")[0].locator("text").all_text_contents()
    assert labels[:3] == ["0.92", "0", "norm"], "no label where the word for the colours stands"
    nothing, *_ = colours = cells(page, "sizes")  # in the order of the values
    bar = colours[-64:]
    assert np.abs(bar[-1] - nothing).max() < 10, "the lowest colour is that of 0"
    assert np.abs(bar[0] - cells(page, "heat")[-64]).max() < 10, "the highest is the scale's end"


def test_in_dark_mode_the_scale_runs_over_a_dark_zero_to_the_same_ends(visit):
    page, seen = visit(), {}
    for mode in ("light", "dark"):
        page.evaluate("mode => document.documentElement.dataset.theme = mode", mode)
        seen[mode] = cells(page)
    light, dark = (seen[mode][-64:] for mode in ("light", "dark"))  # the bar beside the map, from top to bottom
    assert np.abs(light - dark)[[0, -1]].max() <= 4
    assert light[31:33].min() > 230 and dark[31:33].max() < 60


def cells(page, name="heat"):
    """Return the colours of a heat map's cells and of the bar beside it, red, green and blue from 0 to 255."""
    fills = parts(page, name)[0].locator(".cell").evaluate_all("all => all.map(e => getComputedStyle(e).fill)")
    return np.array([[255 * float(share) for share in re.findall(r"[\d.]+", fill)[:3]] for fill in fills])


def test_a_gap_stays_a_gap_and_a_value_between_two_is_a_dot(visit):
    page = visit()
    falling, gaps, zero = (
        parts(page, "lines")[0].locator("svg .line").evaluate_all("all => all.map(e => e.getAttribute('d'))")
    )
    assert falling.count("M") == 1 and falling.count("L") == 29
    assert gaps.count("M") == 2 and gaps.count("L") == 2 and gaps.endswith("h0")
    assert zero == ""


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_on_the_page_moves_when_the_script_runs_nor_when_a_reader_moves_the_figure(visit, width):
    places = """[...document.querySelectorAll('figure, input, select, output, #end')].map(
        e => e.getBoundingClientRect().y + scrollY)"""
    before = visit(width, script=False).evaluate(places)
    page = visit(width)
    assert page.evaluate(places) == pytest.approx(before, abs=1)
    assert all(page.locator(f"#{control}").is_enabled() for control in ("heat-scale", "lines-rho", "lines-start"))
    for name, controls in (("heat", ("scale", "rho")), ("lines", ("rho",))):
        for control, place in itertools.product(controls, range(2)):
            page.locator(f"#{name}-{control}").fill(str(place))
            parts(page, name)[1].focus()
            page.keyboard.press("ArrowRight")
            assert page.evaluate(places) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", ["heat", "lines"])
def test_every_text_of_a_drawing_is_legible_and_inside_it(visit, name, width):
    page = visit(width)
    page.set_viewport_size({"width": width - 40, "height": 900})  # drawn again for the new width
    rest(page, 100)
    drawing = parts(page, name)[0]
    seen = """e => [e.getBoundingClientRect().toJSON(), parseFloat(getComputedStyle(e).fontSize)
        * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)]"""
    frame = drawing.bounding_box()
    assert frame["width"] == pytest.approx(width - 40 - 32, abs=1)
    assert drawing.evaluate("e => e.viewBox.baseVal.width") == pytest.approx(frame["width"], abs=1)
    shown = []
    for text in drawing.locator("text").all():
        box, pixels = text.evaluate(seen)
        assert pixels >= 11
        assert frame["x"] - 0.5 <= box["left"] and box["right"] <= frame["x"] + frame["width"] + 0.5, text.inner_text()
        assert frame["y"] - 0.5 <= box["top"] and box["bottom"] <= frame["y"] + frame["height"] + 0.5, text.inner_text()
        shown.append(box)
    for one, other in itertools.combinations(shown, 2):
        apart = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
        assert apart or one["bottom"] <= other["top"] + 4 or other["bottom"] <= one["top"] + 4, (one, other)


def test_without_scripts_the_picture_and_its_sentence_stand_alone(visit):
    page = visit(java_script_enabled=False)
    for name in ("heat", "lines"):
        box = page.locator(f"#{name}-movable")
        assert box.locator("svg[role=img]").is_visible()
        assert box.locator("output").is_visible()
        assert box.locator("svg[role=img]").bounding_box()["height"] > 200
        for hidden in ("input, select", ".movable-at"):
            assert not any(element.is_visible() for element in box.locator(hidden).all())


def test_paper_gets_the_figure_as_it_was_left(visit, heat_map):
    page = visit()
    page.locator("#heat-rho").fill("2")
    page.emulate_media(media="print")
    drawing, _, reading, says = parts(page, "heat")
    assert drawing.is_visible() and says.inner_text() == heat_map.data["says"][5]
    assert not reading.is_visible()
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_axe_finds_no_barrier_and_everything_has_a_name(visit, width, mode):
    page = visit(width, mode)
    parts(page, "heat")[1].focus()
    assert barriers(page) == []
    for role, name in (("slider", "input scale"), ("slider", "spectral radius ρ"), ("combobox", "start")):
        assert page.get_by_role(role, name=name).count() == 1
    assert page.get_by_role("slider", name="Cursor in the figure").count() == 3
    assert page.get_by_role("img", name="The start of heat.").count() == 1
    assert page.locator("output").first.evaluate("e => e.computedRole ?? 'status'") == "status"
