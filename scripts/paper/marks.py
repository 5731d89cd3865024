"""What several figures draw alike: names and markers of settings, numbers, axes in round numbers."""

import math
import re
import textwrap
from pathlib import PurePath

from matplotlib import patheffects
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

import spec_words
from paper import style
from spec_words import TECHNIQUES

# A colour of Okabe and Ito and a marker for each of the four techniques, and for several at once.
MARKERS = dict(zip(TECHNIQUES, [("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"),
                                ("#CC79A7", "D")]))
NONE, SEVERAL = ("black", "X"), ("#E69F00", "P")
GREY = "#767676"
LIGHT = "#dddddd"


def label(spec):
    """A run's techniques: a preset's name, or as in "DSR 0.8 + BF16"."""
    return spec.get("preset") or spec_words.setting(spec)


def data_set(run):
    """The data a run was trained on, in a word; a corpus by the name of its folder."""
    folder = PurePath(run.spec.get("data_dir") or "").name
    return folder if run.spec["data"] == "translation" and folder else run.spec["data"]


def marker_of(spec):
    """Colour and marker of the one technique that is on; of none, and of several, others."""
    on = [*spec_words.techniques(spec)]
    return NONE if not on else MARKERS[on[0]] if len(on) == 1 else SEVERAL


def technique_handles(specs):
    """A legend's entries for marker_of, of those that come up."""
    come_up = {marker_of(spec) for spec in specs}
    names = {"no technique": NONE, **MARKERS, "several": SEVERAL}
    return [Line2D([], [], linestyle="", color=look[0], marker=look[1], markeredgecolor="black",
                   markersize=6, label=name) for name, look in names.items() if look in come_up]


def megabytes(count):
    """Bytes as megabytes with three digits, as in "402", "37.4", "2.70"."""
    return number(count / 1e6)


def number(value):
    """Three significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{digits}f}"


def factor(ratio):
    """A ratio with the times sign, as in "1.04×", "13.2×", "149×"."""
    return f"{ratio:.{2 if ratio < 1.995 else 1 if ratio < 19.95 else 0}f}×"


def round_log_ticks(axis, low, high, few=False):
    """A logarithmic axis from below `low` to above `high`, with round numbers written out; `few` for
    a short axis."""
    low, high = low / 1.25, high * 1.25
    few, fewer = few or high / low > 40, high / low > (10 if few else 300)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [d * 10.0**p for p in powers for d in ((1, 3) if fewer else
                                                   (1, 2, 5) if few else (1, 1.5, 2, 3, 5, 7))]
    set_scale, set_limits = ((axis.axes.set_xscale, axis.axes.set_xlim) if axis.axis_name == "x"
                             else (axis.axes.set_yscale, axis.axes.set_ylim))
    set_scale("log")
    set_limits(low, high)
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(plain_numbers())


def plain_numbers():
    """Ticks as in "1,500"."""
    return FuncFormatter(lambda value, _: f"{value:,g}")


def few_round_ticks(integer=False):
    return MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=integer)


def outlined():
    """For a thin bright line that crosses areas of any colour."""
    return [patheffects.Stroke(linewidth=2.4, foreground="black"), patheffects.Normal()]


def quiet_grid(axes, which="both"):
    axes.grid(axis=which, color=LIGHT, linewidth=0.6)
    axes.set_axisbelow(True)


def category_handles(used, styles=None):
    """Patches of a legend for the categories in `used`, in their order."""
    styles = styles or style.STYLES
    return [Patch(facecolor=styles[name][0], hatch=styles[name][1], edgecolor="black",
                  linewidth=0.6, label=name.replace("_", " ")) for name in styles if name in used]


def wrapped(text, width):
    """In lines of about the same length, at most `width`; numbers stay with the words around them."""
    text = re.sub(r"(?: of)? (?=\d)|(?<=\d) (?=[a-z])", lambda found: found[0].replace(" ", "\u00a0"), text)
    count, longest = len(textwrap.wrap(text, width)), max(map(len, text.split(" ")))
    while width > longest and len(textwrap.wrap(text, width - 1)) == count:
        width -= 1
    return "\n".join(textwrap.wrap(text, width))

