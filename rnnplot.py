"""The style of the course's figures and the few drawings that chapters share."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from matplotlib_inline.backend_inline import set_matplotlib_formats

# The book's pages replace exactly these two colours, so that a figure takes the page's text colour and its
# background.
INK = "#1f2328"
PAPER = "#ffffff"

# From the palette of Okabe and Ito, made for colour-blind readers; these four stand out at about 3:1 or
# better on white and on the dark pages' background. Line styles or labels say the same as the colours.
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"

DIVERGING = LinearSegmentedColormap.from_list("recurrence", [BLUE, "#f2f2f2", VERMILION])

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
    "axes.prop_cycle": mpl.cycler(color=[BLUE, VERMILION, GREEN, PURPLE], linestyle=["-", "--", "-.", (0, (1, 1))]),
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
    if "recurrence" not in mpl.colormaps:
        mpl.colormaps.register(DIVERGING)
    mpl.rcParams.update(STYLE)
    if mpl.get_backend().lower().endswith("inline"):
        set_matplotlib_formats("svg", bbox_inches=None, metadata={"Date": None})


def draw_states(hs, ax=None, limit=None):
    """Draw the states of one sequence as a heat map: time to the right, one row a unit. Returns the axes.

    hs (T, H) holds h_1 ... h_T; the colours run from -limit to limit, by default the largest magnitude in hs.
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
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, label="state $h_t$")
    bar.outline.set_visible(False)
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
