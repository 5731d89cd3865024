"""Labels beside points that overlap neither each other nor what is drawn."""

import math

import numpy as np
from matplotlib.layout_engine import PlaceHolderLayoutEngine

from paper import marks

DISTANCES = (0, 5, 11, 18, 26, 36, 48, 62, 80)  # between marker and label, in points of text
ANGLES = (0, 90, 270, 180, 45, 315, 135, 225, 20, 340, 70, 110, 160, 200, 250, 290)
# Costs, in points of distance that avoiding them is worth: of a square pixel outside the axes, on
# another label and on something drawn; of a dot of a leader on a label or a marker, or the reverse; of
# being nearer to another point than to one's own.
OUTSIDE, ON_LABEL, ON_DRAWING, ON_LEADER, MISLEADING = 50, 100, 1, 20, 60


def _overlap(box, boxes):
    """The area that a box (x0, y0, x1, y1) shares with boxes, one a row, in all."""
    width = np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0])
    height = np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1])
    return float((np.clip(width, 0, None) * np.clip(height, 0, None)).sum())


def _inside(box, dots):
    return int(((dots >= box[:2]) & (dots <= box[2:])).all(axis=1).sum())


def _gaps(box, dots):
    """From the box to each of the dots."""
    return np.hypot(*(dots - np.clip(dots, box[:2], box[2:])).T)


def _dots_between(start, end, every=4.0):
    steps = max(1, int(math.dist(start, end) / every))
    return np.linspace(start, end, steps + 1)


def _around(dots, radii):
    radii = np.reshape(radii, (-1, 1))
    return np.hstack([dots - radii, dots + radii])


class _Layout:
    """What is drawn already, in pixels."""

    def __init__(self, frame, places, markers, lines):
        self.frame, self.places, self.markers = np.array([frame]), places, markers
        self.drawn = np.vstack([markers, _around(lines, np.ones(len(lines)))])
        self.labels, self.leaders = np.empty((0, 4)), np.empty((0, 2))

    def cost(self, number, box, leader):
        area = (box[2] - box[0]) * (box[3] - box[1])
        gaps = _gaps(box, self.places)
        others = np.delete(gaps, number)
        cost = OUTSIDE * (area - _overlap(box, self.frame))
        cost += ON_LABEL * _overlap(box, self.labels) + ON_DRAWING * _overlap(box, self.drawn)
        cost += ON_LEADER * _inside(box, self.leaders)
        cost += MISLEADING * int((others < gaps[number] + 2).sum())
        if leader is not None:
            cost += ON_LEADER * sum(_inside(label, leader) for label in self.labels)
            cost += ON_LEADER * sum(_inside(marker, leader)
                                    for marker in np.delete(self.markers, number, axis=0))
        return cost


def _best(layout, number, size, reach, pixel):
    """The box of the label and its leader, which is None where it stands right beside its point."""
    place = layout.places[number]
    best = None
    for distance in DISTANCES:
        for angle in ANGLES:
            if best and distance >= best[0]:
                return best[1:]
            direction = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
            centre = place + direction * (reach + distance * pixel + size / 2)
            box = np.concatenate([centre - size / 2, centre + size / 2])
            leader = _dots_between(place, np.clip(place, box[:2], box[2:])) if distance else None
            cost = distance + layout.cost(number, box, leader)
            if best is None or cost < best[0] - 1e-6:
                best = cost, box, leader
    return best[1:]


def place(axes, points, texts, lines=(), others=(), fontsize=8, radii=()):
    """Writes each text beside its point, with a thin line to it where it had to move away. The
    important ones come first.

    `lines`: polylines, and `others`: more points, that texts keep clear of; `radii`: of the first
    points' markers, in points of text. Lays the figure out for good: call it last.
    """
    if not points:
        return
    figure = axes.figure
    if not isinstance(figure.get_layout_engine(), PlaceHolderLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    renderer, pixel = figure.canvas.get_renderer(), figure.dpi / 72
    to_pixels = lambda dots: axes.transData.transform(np.reshape(dots, (-1, 2)).astype(float))
    everything = to_pixels([*points, *others])
    radii = pixel * np.array([*radii, *[4] * (len(everything) - len(radii))])
    dots = [_dots_between(a, b) for line in lines for a, b in zip(to_pixels(line), to_pixels(line)[1:])]
    layout = _Layout(axes.get_window_extent(renderer).extents, everything[:len(points)],
                     _around(everything, radii), np.vstack(dots) if dots else np.empty((0, 2)))
    for number, (point, text) in enumerate(zip(points, texts)):
        label = axes.annotate(text, point, xytext=(0, 0), textcoords="offset points", ha="center",
                              va="center", fontsize=fontsize, linespacing=1.0)
        label.set_in_layout(False)
        extent = label.get_window_extent(renderer)
        size = np.array([extent.width, extent.height]) + 2 * pixel
        box, leader = _best(layout, number, size, radii[number] + pixel, pixel)
        label.set_position(((box[:2] + box[2:]) / 2 - layout.places[number]) / pixel)
        layout.labels = np.vstack([layout.labels, box])
        if leader is not None:
            layout.leaders = np.vstack([layout.leaders, leader])
            axes.plot(*axes.transData.inverted().transform(leader[[0, -1]]).T, color=marks.GREY,
                      linewidth=0.5, zorder=1.5, scalex=False, scaley=False)
