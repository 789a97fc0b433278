"""The style of the course's figures, the few drawings that chapters share, and figures that a reader can move."""

import base64
import inspect
import io
import itertools
import json
import math
import zlib
from dataclasses import dataclass

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from matplotlib_inline.backend_inline import set_matplotlib_formats

# The book's pages replace exactly these two colours, so that a figure takes the page's text colour and its
# background.
INK = "#1f2328"
PAPER = "#ffffff"

# From the palette of Okabe and Ito, made for colour-blind readers; these four stand out at about 3:1 or
# better on white and on the dark pages' background. Line styles or labels say the same as the colours.
BLUE, VERMILION, GREEN, PURPLE = COLOURS = "#0072b2", "#d55e00", "#009e73", "#cc79a7"

SCALE = [BLUE, "#f2f2f2", VERMILION]  # lowest, zero, highest
DIVERGING = LinearSegmentedColormap.from_list("recurrence", SCALE)
mpl.colormaps.register(DIVERGING, force=True)  # a notebook may load this module twice

STYLE = {
    "figure.figsize": (6.6, 3.0),
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": mpl.cycler(color=COLOURS, linestyle=["-", "--", "-.", (0, (1, 1))]),
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "image.cmap": "recurrence",
    "image.interpolation": "nearest",
    "svg.hashsalt": "recurrence",  # the same figure gives the same bytes
}


def use_style():
    """Set the course's figure style, and SVG as the figures' format in a notebook."""
    mpl.rcParams.update(STYLE)
    if mpl.get_backend().lower().endswith("inline"):
        set_matplotlib_formats("svg", bbox_inches=None, metadata={"Date": None})


def draw_states(hs, ax=None, limit=None, label="state $h_t$", low=-1):
    """Draw the states of one sequence as a heat map: time to the right, one row a unit. Returns the axes.

    hs (T, H) holds h_1 ... h_T; the colours run from -limit to limit, by default the largest magnitude in hs;
    label says what they stand for. With low = 0 the colours' bar begins at 0, for what is never negative.
    """
    hs = np.asarray(hs)
    T, H = hs.shape
    limit = np.abs(hs).max() if limit is None else limit
    ax = ax or plt.gca()
    image = ax.imshow(hs.T, vmin=-limit, vmax=limit, aspect="auto", extent=(0.5, T + 0.5, H + 0.5, 0.5))
    ax.set(xlabel="time step t", ylabel="hidden unit")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, label=label)
    bar.outline.set_visible(False)
    bar.ax.set_ylim(low * limit, limit)
    return ax


def draw_unrolled(T=4):
    """Draw a recurrent network twice: with its loop, and unrolled over T steps that share their weights."""
    fig, ax = plt.subplots(figsize=(7.2, 3.1))
    ax.set(xlim=(-2.85, 1.6 * T + 1.05), ylim=(-1.75, 1.75), aspect="equal")
    ax.axis("off")

    def node(x, y, text, kind):
        if kind in ("state", "initial state"):
            line = "-" if kind == "state" else (0, (3, 2))
            ax.add_patch(Circle((x, y), 0.4, facecolor="none", edgecolor=BLUE, linewidth=2, linestyle=line))
        else:
            ax.add_patch(
                FancyBboxPatch(
                    (x - 0.28, y - 0.22),
                    0.56,
                    0.44,
                    boxstyle="round,pad=0.06",
                    facecolor="none",
                    edgecolor=INK,
                    linewidth=1,
                )
            )
        ax.text(x, y, text, ha="center", va="center", fontsize=11)

    def arrow(start, end, label="", offset=(0, 0), bend=0.0, colour=INK):
        style = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.3}
        ax.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", color=colour, **style))
        middle = np.mean([start, end], axis=0) + offset
        ax.text(*middle, label, ha="center", va="center", fontsize=9)

    def column(x, index):
        node(x, -1.35, f"$x_{{{index}}}$", "data")
        node(x, 0, f"$h_{{{index}}}$", "state")
        node(x, 1.35, f"$y_{{{index}}}$", "data")
        arrow((x, -1.05), (x, -0.42), "$W_{xh}$", (0.32, 0))
        arrow((x, 0.42), (x, 1.05), "$W_{hy}$", (0.32, 0))

    column(-1.8, "t")
    arrow((-2.1, 0.28), (-2.1, -0.28), "$W_{hh}$", (-0.46, 0.5), bend=2.0, colour=BLUE)
    ax.text(-0.55, 0, "=", ha="center", va="center", fontsize=18)
    node(0.3, 0, "$h_0$", "initial state")
    for t in range(1, T + 1):
        column(0.3 + 1.6 * t, t)
        arrow((0.3 + 1.6 * (t - 1) + 0.42, 0), (0.3 + 1.6 * t - 0.42, 0), "$W_{hh}$", (0, 0.2), colour=BLUE)
    return fig


WORDS = {"Tanh": "tanh", "Add": "+", "Mm": "×"}  # for the operations that PyTorch records
VIEWS = {"T", "Permute", "Transpose", "View", "Select"}  # which lay the same numbers out in another way


def draw_record(result, names):
    """Draw what autograd recorded of a recurrent network's last state; names are {text: parameter}. Returns the figure.

    It is read off the record itself, with transposes and other views left out. Each operation has a column, the first
    on the left; the chain of states runs along the middle, the inputs' products below it.
    """
    texts = {id(parameter): text for text, parameter in names.items()}
    sources, column = {}, {}

    def visit(node, steps_back):
        column[node] = min(-steps_back, column.get(node, 0))
        sources[node] = _recorded_before(node)
        for before in sources[node]:
            visit(before, steps_back + 1)

    visit(result.grad_fn, 0)
    parameters = [node for node in sources if hasattr(node, "variable")]
    operations = [node for node in sources if node not in parameters]
    place = {node: (float(column[node]), 0.0) for node in operations}
    for node in operations:
        products = [before for before in sources[node] if _operation(before) == "Mm"]
        if len(products) == 2:  # of the input and of the state
            place[products[0]] = (column[node], -1.0)
    for node in parameters:
        used = [place[other] for other in operations if node in sources[other]]
        place[node] = (np.mean([x for x, _ in used]), 1.5 if used[0][1] == 0 else -2.3)

    fig, ax = plt.subplots(figsize=(6.6, 3.2))
    ax.set(xlim=(min(column[node] for node in operations) - 0.5, 0.5), ylim=(-2.7, 1.9))
    ax.axis("off")
    colours = dict(zip(parameters, (VERMILION, GREEN, PURPLE), strict=False))
    for node, found in sources.items():
        for before in found:
            away = 17 if _operation(node) == "Tanh" else 12  # from the middle of a box to its edge
            style = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 9, "shrinkB": away, "linewidth": 1.3}
            ax.add_patch(FancyArrowPatch(place[before], place[node], color=colours.get(before, INK), **style))
    for node in parameters:
        _boxed(ax, place[node], texts[id(node.variable)], colours[node], 12)
    for t, node in enumerate(sorted((n for n in operations if _operation(n) == "Tanh"), key=column.get), start=1):
        ax.text(column[node], -0.62, f"$h_{t}$", ha="center", va="center", fontsize=12)
    for node in operations:
        word = WORDS.get(_operation(node), _operation(node))
        _boxed(ax, place[node], word, BLUE if word == "tanh" else INK, 10)
    return fig


def _recorded_before(node):
    """Return the nodes that a node of a record gets its numbers from, views passed over."""
    found = []
    for before, _ in node.next_functions:
        if before is not None:
            found += _recorded_before(before) if _operation(before) in VIEWS else [before]
    return found


def _operation(node):
    """Return a node's operation: "Tanh" for a TanhBackward0."""
    return node.name().split("::")[-1].partition("Backward")[0]


def _boxed(ax, place, text, colour, size):
    box = {"boxstyle": "round,pad=0.25", "facecolor": PAPER, "edgecolor": colour, "linewidth": 1.4}
    ax.text(*place, text, ha="center", va="center", fontsize=size, bbox=box)


def draw_output_and_h_n(T=4):
    """Draw the states of a bidirectional network of two layers over T steps, with `output` framed and `h_n` filled."""
    fig, ax = plt.subplots(figsize=(6.4, 4.1))
    ax.set(xlim=(-1.5, 1.6 * T + 1.15), ylim=(-0.35, 5.55), aspect="equal")
    ax.axis("off")
    rows = {(0, 0): 1.1, (0, 1): 1.95, (1, 0): 3.6, (1, 1): 4.45}  # (layer, direction): height
    style = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0}

    def frame(x, y, width, height, **kinds):
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.08", facecolor="none", **kinds))

    for t in range(1, T + 1):
        x = 1.6 * t - 0.5
        ax.text(x, 0, f"$x_{{{t}}}$", ha="center", va="center", fontsize=11)
        for (layer, direction), y in rows.items():
            last = t == (1 if direction else T)  # where this direction has read everything
            face = {"facecolor": VERMILION, "alpha": 0.3} if last else {"facecolor": "none"}
            ax.add_patch(Circle((x, y), 0.3, linewidth=0, **face))
            ax.add_patch(Circle((x, y), 0.3, facecolor="none", edgecolor=VERMILION if last else INK, linewidth=1.3))
            if t < T:
                left, right = (x + 0.32, y), (x + 1.28, y)
                start, end = (right, left) if direction else (left, right)
                ax.add_patch(FancyArrowPatch(start, end, color=INK, linewidth=1.1, **style))
            if last:
                name, side = f"h_n[{2 * layer + direction}]", (-1 if direction else 1)
                where = {"ha": "right" if direction else "left", "va": "center", "family": "DejaVu Sans Mono"}
                ax.text(x + 0.62 * side, y, name, fontsize=9, **where)
        frame(x - 0.34, rows[0, 0] - 0.34, 0.68, 1.53, edgecolor=INK, linewidth=0.8, linestyle="--")
        frame(x - 0.34, rows[1, 0] - 0.34, 0.68, 1.53, edgecolor=BLUE, linewidth=2)
        for low, high in ((0.25, rows[0, 0] - 0.44), (rows[0, 1] + 0.44, rows[1, 0] - 0.44)):
            ax.add_patch(FancyArrowPatch((x, low), (x, high), color=INK, linewidth=1.1, **style))
        ax.text(x, 5.2, f"output[:, {t - 1}]", ha="center", fontsize=9, family="DejaVu Sans Mono")
    for layer in (0, 1):
        ax.text(-1.45, (rows[layer, 0] + rows[layer, 1]) / 2, f"layer {layer}", va="center", fontsize=10)
    return fig


def draw_two_sources(T=4):
    """Draw the states of T steps with a loss each: forward thin, backward in colours for the two sources of dL/dh_t."""
    fig, ax = plt.subplots(figsize=(6.2, 2.9))
    ax.set(xlim=(-0.6, 1.75 * T + 0.6), ylim=(-1.4, 2.3), aspect="equal")
    ax.axis("off")
    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0}
    forward = style | {"color": INK, "linewidth": 0.8, "mutation_scale": 8}
    own = style | {"color": VERMILION, "linewidth": 2, "mutation_scale": 13}
    later = style | {"color": BLUE, "linewidth": 2, "mutation_scale": 13}

    def arrow(start, end, bend=0.0, **kinds):
        ax.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **kinds))

    for t in range(T + 1):
        x = 1.75 * t
        line = "-" if t else (0, (3, 2))
        ax.add_patch(Circle((x, 0), 0.4, facecolor="none", edgecolor=INK, linewidth=1.3, linestyle=line))
        ax.text(x, 0, f"$h_{{{t}}}$", ha="center", va="center", fontsize=11)
        if t:
            arrow((x - 1.33, 0.1), (x - 0.42, 0.1), **forward)
            arrow((x - 0.3, -0.3), (x - 1.45, -0.3), bend=-0.35, **later)
            ax.text(x - 0.875, -0.78, f"$\\cdot\\, J_{{{t}}}$", color=BLUE, ha="center", va="center", fontsize=10)
            box = {"boxstyle": "round,pad=0.06", "facecolor": "none", "edgecolor": INK, "linewidth": 1}
            ax.add_patch(FancyBboxPatch((x - 0.28, 1.33), 0.56, 0.44, **box))
            ax.text(x, 1.55, f"$L_{{{t}}}$", ha="center", va="center", fontsize=11)
            arrow((x - 0.12, 0.4), (x - 0.12, 1.25), **forward)
            arrow((x + 0.12, 1.25), (x + 0.12, 0.4), **own)
    ax.text(1.75, 2.1, "from the step's own loss", color=VERMILION, ha="center", va="center", fontsize=10)
    ax.text(1.75 * T - 0.875, -1.15, "from the next step", color=BLUE, ha="center", va="center", fontsize=10)
    return fig


# Figures that a reader can move. `movable` draws every combination of what the controls offer, once. The book's page
# gets all of them as data; JupyterLab, print and a page without scripts show the picture at the start.

MOVABLE = "application/vnd.recurrence.movable+json"
MOST_COMBINATIONS = 400
MOST_BYTES = 60_000  # compressed, as a server sends them
MOST_SERIES = 4  # as many as there are colours and line styles
NO_VALUE = -128
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Control:
    """What a reader moves, made by `slider` or `menu`: options maps what is shown to what `draw` gets."""

    kind: str
    label: str
    options: dict
    start: int


@dataclass(frozen=True)
class Picture:
    """One state of a movable figure, made by `heat` or `lines`: its frame must not change when a control is moved."""

    frame: dict
    values: np.ndarray
    says: str


class Movable:
    """A movable figure as a notebook shows it: the picture at its start, and the data for the book's page."""

    def __init__(self, data, svg, png):
        self.data, self.svg, self.png = data, svg, png

    def __repr__(self):
        return f"Movable figure, at its start: {self.data['says'][self.data['start']]}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        # SVG like all figures. PNG where that is not shown: an untrusted notebook in JupyterLab, nbgrader's feedback.
        picture = {"image/svg+xml": self.svg, "image/png": base64.b64encode(self.png).decode()}
        return {"text/plain": repr(self), **picture, MOVABLE: self.data}


def number(value, digits=3):
    """Return a number as a movable figure says it, to so many digits: 0.0123, 3.6 · 10⁻⁷."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = float(f"{mantissa}e{exponent}"), None
    text = f"{float(mantissa):.{max(digits, 6)}g}".replace("-", "−")
    return text if exponent is None else f"{text}\u00a0·\u00a010{str(int(exponent)).translate(SUPERSCRIPT)}"


def slider(label, values, start):
    """Return a control for `movable`: a slider over numbers that increase, which begins at start, one of them."""
    _array(f"slider {label!r}: values", values, 1)
    numbers = np.asarray(values).tolist()  # whole numbers stay whole, for draw
    if len(numbers) < 2 or not np.all(np.diff(numbers) > 0):
        raise ValueError(f"slider {label!r}: values must be two or more numbers that increase, not {values!r}")
    options = {number(value, 6): value for value in numbers}
    if len(options) < len(numbers):
        raise ValueError(f"slider {label!r}: some values look alike with six digits: {values!r}; round them")
    at = next((k for k, value in enumerate(numbers) if np.isclose(value, start, rtol=1e-9, atol=0)), None)
    if at is None:
        raise ValueError(f"slider {label!r}: start {start!r} is none of its values {', '.join(options)}")
    return Control("slider", _text("slider: label", label, 40), options, at)


def menu(label, options, start):
    """Return a control for `movable`: a menu of texts, which begins at start, one of them.

    options are the texts, or {text: what `draw` gets for it}.
    """
    options = dict(options) if isinstance(options, dict) else {text: text for text in options}
    if len(options) < 2:
        raise ValueError(f"menu {label!r}: there must be two or more options, not {list(options)!r}")
    for text in options:
        _text(f"menu {label!r}: an option", text, 40)
    if start not in options:
        raise ValueError(f"menu {label!r}: start {start!r} is none of its options {', '.join(options)}")
    return Control("menu", _text("menu: label", label, 40), options, list(options).index(start))


def heat(hs, says, xlabel="time step t", ylabel="hidden unit", label="state", limit=None):
    """Return a picture for `movable`: a heat map of hs (T, H), time to the right, one row a unit.

    says is the sentence that tells what it shows. The colours run from -limit to limit, by default the largest
    magnitude in all combinations, or from 0 where no value is negative. NaN leaves a cell empty.
    """
    hs = _array("heat: hs", hs, 2)
    if limit is not None and not 0 < limit < math.inf:
        raise ValueError(f"heat: limit must be a positive number or None, not {limit!r}")
    labels = [
        _text(f"heat: {name}", text, 40) for name, text in (("xlabel", xlabel), ("ylabel", ylabel), ("label", label))
    ]
    frame = {"form": "heat", "labels": labels, "shape": list(hs.shape), "limit": limit}
    return Picture(frame, hs, _text("heat: says", says, 300))


def lines(series, says, ylabel, x=None, xlabel="time step t", log=False, ylim=None):
    """Return a picture for `movable`: up to four lines, {name: values}, over x, by default 1, 2, 3 ...

    says is the sentence that tells what it shows. log makes the values' axis logarithmic; there a 0 leaves a gap, as
    NaN always does. ylim is the axis's range, by default that of all combinations.
    """
    if not isinstance(series, dict) or not 1 <= len(series) <= MOST_SERIES:
        raise ValueError(
            f"lines: series must be a dictionary of 1 to {MOST_SERIES} lines, {{name: values}}, not {series!r}"
        )
    names = [_text("lines: a name", name, 40) for name in series]
    values = [_array(f"lines: {name!r}", line, 1) for name, line in series.items()]
    x = np.arange(1.0, len(values[0]) + 1) if x is None else _array("lines: x", x, 1)
    if len(x) < 2 or not np.all(np.diff(x) > 0):
        raise ValueError(f"lines: x must be two or more numbers that increase, not {x}")
    for name, line in zip(names, values, strict=True):
        if len(line) != len(x):
            raise ValueError(f"lines: {name!r} has {len(line)} values, but there are {len(x)} places on the x axis")
        if log and np.any(line < 0):
            raise ValueError(
                f"lines: {name!r} is negative in places, which a logarithmic axis cannot show; use log=False"
            )
    if ylim is not None and not (0 if log else -math.inf) < ylim[0] < ylim[1] < math.inf:
        raise ValueError(f"lines: ylim must be a lower and an upper end{', positive' if log else ''}, not {ylim!r}")
    labels = [_text("lines: xlabel", xlabel, 40), _text("lines: ylabel", ylabel, 40)]
    frame = {"form": "lines", "labels": labels, "names": names, "x": x.tolist(), "log": log}
    return Picture(frame | {"ylim": ylim and list(ylim)}, np.array(values), _text("lines: says", says, 300))


def movable(draw, **controls):
    """Return a figure that a reader can move by the controls, each a `slider` or a `menu`.

    draw gets a value of each control, by name, and returns a picture, `heat` or `lines`; it is called for every
    combination. The figure must be the last line of its cell.
    """
    for name, control in controls.items():
        if not isinstance(control, Control):
            raise TypeError(f"movable: {name} must be a rnnplot.slider or rnnplot.menu, not {control!r}")
    if not controls:
        raise ValueError("movable: there is no control; give draw's arguments, as in rho=rnnplot.slider(...)")
    try:
        inspect.signature(draw).bind(**controls)
    except TypeError as error:
        raise TypeError(f"movable: draw must be a function of {', '.join(controls)}: {error}") from None
    combinations = list(itertools.product(*(control.options.values() for control in controls.values())))
    if len(combinations) > MOST_COMBINATIONS:
        raise ValueError(
            f"movable: the controls have {len(combinations)} combinations, more than {MOST_COMBINATIONS}; "
            "give some of them fewer values"
        )
    pictures = [_picture(draw, dict(zip(controls, values, strict=True))) for values in combinations]
    for values, picture in zip(combinations, pictures, strict=True):
        _check_frame(picture.frame, pictures[0].frame, dict(zip(controls, values, strict=True)))
    start = 0
    for control in controls.values():
        start = start * len(control.options) + control.start
    data = _data(pictures) | {
        "controls": [
            {"name": name, "kind": control.kind, "label": control.label, "options": list(control.options)}
            | {"start": control.start}
            for name, control in controls.items()
        ],
        "start": start,
        "says": [picture.says for picture in pictures],
        "colours": list(COLOURS),
        "scale": SCALE,
    }
    size = len(zlib.compress(json.dumps(data).encode()))
    if size > MOST_BYTES:
        raise ValueError(
            f"movable: the figure's data are {size:,d} bytes compressed, more than {MOST_BYTES:,d}; "
            f"draw fewer than {len(pictures)} combinations, or smaller pictures than {pictures[0].values.shape}"
        )
    return Movable(data, *_drawn(data, pictures[start].values))


def _picture(draw, values):
    """Return what draw gives for the controls' values."""
    picture = draw(**values)
    if not isinstance(picture, Picture):
        raise TypeError(f"movable: draw must return a rnnplot.heat or rnnplot.lines; for {values} it gave {picture!r}")
    return picture


def _check_frame(frame, first, values):
    """Raise a ValueError when the axes of a picture are not those of the first."""
    for name in first:
        if frame.get(name) != first[name]:
            raise ValueError(
                f"movable: every picture must have the same {name}; for {values} it is {frame.get(name)!r}, "
                f"for the first combination {first[name]!r}"
            )


def _data(pictures):
    """Return the pictures as JSON holds them: a heat map's cells as steps, a byte each; lines to three digits."""
    frame, values = pictures[0].frame, np.stack([picture.values for picture in pictures])
    if np.all(np.isnan(values)):
        raise ValueError("movable: there is nothing to draw: all values of all pictures are NaN")
    if frame["form"] == "heat":
        largest = float(np.nanmax(np.abs(values))) or 1.0
        step = _round_step(largest / 127)
        cells = np.where(np.isnan(values), NO_VALUE, np.rint(values / step)).astype(np.int8)
        unit = 10.0 ** (math.floor(math.log10(largest)) - 1)  # two digits, which find room beside the colours
        limit = frame["limit"] or float(f"{math.ceil(largest / unit - 1e-9) * unit:.2g}")
        low = -1 if np.nanmin(values) < 0 else 0
        return frame | {"limit": limit, "low": low, "step": step, "cells": base64.b64encode(cells.tobytes()).decode()}
    rounded = [[[None if np.isnan(v) else float(f"{v:.3g}") for v in line] for line in one] for one in values]
    return frame | {"lines": rounded, "ylim": frame["ylim"] or _range(values, frame["log"])}


def _round_step(least):
    """Return 1, 2 or 5 times a power of ten, not below least: rounded so, a stored value is one that a text can say."""
    power = math.floor(math.log10(least))
    return next(step for step in (float(f"{k}e{power}") for k in (1, 2, 5, 10)) if step >= least)


def _range(values, log):
    """Return the ends of an axis that holds all values: whole powers of ten when it is logarithmic."""
    if not log:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        margin = 0.05 * (high - low) or 0.5
        return [low - margin, high + margin]
    positive = values[values > 0]
    if not positive.size:
        raise ValueError("movable: there is nothing to draw: no value is positive, as a logarithmic axis needs")
    low, high = math.floor(np.log10(positive.min())), math.ceil(np.log10(positive.max()))
    return [10.0**low, 10.0 ** max(high, low + 1)]


def _drawn(data, values):
    """Return one picture as SVG text and PNG bytes, drawn as the page draws it."""
    with mpl.rc_context(STYLE):
        figure = Figure()
        ax = figure.subplots()
        if data["form"] == "heat":
            draw_states(values, ax, data["limit"], data["labels"][2], data["low"])
        else:
            for name, line in zip(data["names"], values, strict=True):
                ax.plot(data["x"], np.where(line > 0, line, np.nan) if data["log"] else line, label=name)
            ax.set(xlim=data["x"][:: len(data["x"]) - 1], ylim=data["ylim"], yscale="log" if data["log"] else "linear")
            if len(values) > 1:
                figure.legend(loc="outside upper left", ncols=2, frameon=False)
        ax.set(xlabel=data["labels"][0], ylabel=data["labels"][1])
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=150)
    return svg.getvalue(), png.getvalue()


def _text(name, text, most):
    """Return a text that a control or a label can show. Raises a ValueError or TypeError that says what is wrong."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a text, not {text!r}")
    if not text.strip() or len(text) > most:
        raise ValueError(f"{name} must have 1 to {most} characters, not {len(text)}: {text!r}")
    if "$" in text:
        raise ValueError(f"{name} must be plain text, since a page cannot typeset it: {text!r}; write Greek as it is")
    return text


def _array(name, values, dimensions):
    """Return numbers as a float64 array. Raises a ValueError or TypeError that says what is wrong."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from None
    if array.ndim != dimensions or not array.size:
        raise ValueError(f"{name} must have {dimensions} axes, none empty; its shape is {array.shape}")
    if np.any(np.isinf(array)):
        raise ValueError(f"{name} is infinite in places, which no axis can show; put np.nan there to leave a gap")
    return array
