"""What several figures draw alike: names of settings, axes in round numbers, labels that do not overlap."""

import math
import re
import textwrap
from pathlib import PurePath

from matplotlib import patheffects
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

import spec_words
from paper import style
from spec_words import TECHNIQUES

# A colour of Okabe and Ito and a marker for each of the four techniques, and for several at once.
MARKERS = dict(zip(TECHNIQUES, [("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"),
                                ("#CC79A7", "D")]))
NONE, SEVERAL = ("white", "o"), ("#E69F00", "P")
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
    return [patheffects.Stroke(linewidth=3, foreground="black"), patheffects.Normal()]


def quiet_grid(axes, which="both"):
    axes.grid(axis=which, color=LIGHT, linewidth=0.6)
    axes.set_axisbelow(True)


def category_handles(used, styles=None):
    """Patches of a legend for the categories in `used`, in their order."""
    styles = styles or style.STYLES
    return [Patch(facecolor=styles[name][0], hatch=styles[name][1], edgecolor="black",
                  linewidth=0.6, label=name.replace("_", " ")) for name in styles if name in used]


def wrapped(text, width):
    """In lines of about the same length, at most `width`; a number stays with the word before it."""
    text = re.sub(r"(?: of)? (?=\d)", lambda found: found[0].replace(" ", "\u00a0"), text)
    lines = textwrap.wrap(text, width)
    while width > 1 and len(textwrap.wrap(text, width - 1, break_long_words=False)) == len(lines):
        width -= 1
    return "\n".join(textwrap.wrap(text, width, break_long_words=len(lines) > 1))


def _overlap(a, b):
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return width * height if width > 0 and height > 0 else 0.0


def _gap(box, x, y):
    return math.hypot(x - min(max(x, box.x0), box.x1), y - min(max(y, box.y0), box.y1))


def _dots_on(x0, y0, x1, y1, every=4.0):
    steps = max(1, int(math.hypot(x1 - x0, y1 - y0) / every))
    return [(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) for i in range(steps + 1)]


def place_labels(axes, points, texts, lines=(), others=(), fontsize=8, radii=()):
    """Writes each text beside its point so that no two overlap, with a thin line where it had to
    move away. In the order given, so the important ones come first.

    `lines`: polylines of data points, and `others`: single data points, that texts keep clear of;
    `radii`: of the first points' markers, in points of text. Lays the figure out for good: call it
    last.
    """
    figure = axes.figure
    figure.canvas.draw()
    figure.set_layout_engine("none")
    renderer = figure.canvas.get_renderer()
    pixel = figure.dpi / 72  # of a point
    to_pixels = axes.transData.transform
    places = [to_pixels(p) for p in points]
    radii = [pixel * radius for radius in [*radii, *[4] * (len(points) + len(others) - len(radii))]]
    obstacles = [Bbox.from_bounds(x - r, y - r, 2 * r, 2 * r)
                 for (x, y), r in zip([*places, *(to_pixels(p) for p in others)], radii)]
    for line in lines:
        ends = [to_pixels(p) for p in line]
        for (x0, y0), (x1, y1) in zip(ends, ends[1:]):
            obstacles += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in _dots_on(x0, y0, x1, y1)]
    frame = axes.get_window_extent(renderer)
    written, leaders = [], []
    for (x, y), text, point, marker in zip(places, texts, points, radii):
        label = axes.annotate(text, point, xytext=(0, 0), textcoords="offset points",
                              ha="center", va="center", fontsize=fontsize, linespacing=1.0)
        label.set_in_layout(False)
        size = label.get_window_extent(renderer)
        best = None
        for distance in (0, 5, 11, 18, 26, 36, 48, 62, 80):
            for angle in (0, 90, 270, 180, 45, 315, 135, 225, 20, 340, 70, 110, 160, 200, 250, 290):
                dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
                reach = marker + 2 * pixel + distance * pixel
                cx = x + dx * (reach + size.width / 2)
                cy = y + dy * (reach + size.height / 2)
                box = Bbox.from_bounds(cx - size.width / 2, cy - size.height / 2,
                                       size.width, size.height).padded(1.0 * pixel)
                outside = box.width * box.height - _overlap(box, frame)
                cost = distance + 50 * outside + sum(_overlap(box, other) for other in obstacles)
                cost += 100 * sum(_overlap(box, other) for other in written)
                near = _gap(box, x, y) + 2 * pixel  # nearer to another point is misleading
                cost += 15 * sum(_gap(box, *other) < near for other in places if (*other,) != (x, y))
                cost += 20 * sum(box.contains(*dot) for line in leaders for dot in line)
                leader = []
                if distance:
                    leader = _dots_on(x, y, min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))
                    cost += 20 * sum(other.contains(*dot) for other in written for dot in leader)
                    cost += 20 * sum(other.contains(*dot) for other in obstacles
                                    for dot in leader if math.hypot(dot[0] - x, dot[1] - y) > 2 * marker)
                if best is None or cost < best[0] - 1e-6:
                    best = cost, cx, cy, box, leader
        _, cx, cy, box, leader = best
        label.set_position(((cx - x) / pixel, (cy - y) / pixel))
        if leader:
            end = leader[-1]
            inverse = axes.transData.inverted().transform
            axes.plot(*zip(point, inverse(end)), color=GREY, linewidth=0.5, zorder=1.5,
                      solid_capstyle="butt")
            leaders.append(leader)
        written.append(box)
    return written
