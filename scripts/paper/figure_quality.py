"""Quality against memory, technique by technique: every training there is."""

from itertools import groupby
from statistics import mean

from matplotlib import pyplot
from matplotlib.lines import Line2D

import spec_words
from paper import labels, marks, quality, wording
from paper.collection import setting
from paper.exhibit import Exhibit, Missing, slug
from spec_words import TECHNIQUES

SEVERAL = "several at once"


def _panel_of(run):
    """Which panel a run belongs to; None: to all, as the baseline."""
    on = [*spec_words.techniques(run.spec)]
    return None if not on else on[0] if len(on) == 1 else SEVERAL


class Point:
    """Trainings that differ in the seed alone."""

    def __init__(self, runs):
        values = [quality.value(run.result) for run in runs]
        self.panel, self.spec, self.peak = _panel_of(runs[0]), runs[0].spec, runs[0].peak / 1e6
        self.value, self.range = mean(values), (min(values), max(values))
        self.shortened = bool(quality.shortening(runs[0].result))
        seeds = f" ({len(runs)} seeds)" if len(runs) > 1 else ""
        self.label = marks.wrapped(marks.label(self.spec) + seeds, 22)


def points_of(runs):
    group = lambda run: (setting(run.spec), quality.course(run))
    return [Point([*same]) for _, same in groupby(sorted(runs, key=lambda r: repr(group(r))), group)]


def _panel(axes, name, points, waiting):
    here = [point for point in points if point.panel in (name, None)]
    for point in here:
        colour, marker = marks.MARKERS.get(name, marks.SEVERAL) if point.panel else marks.NONE
        axes.vlines(point.peak, *point.range, color=marks.GREY, linewidth=1)
        axes.plot(point.peak, point.value, marker, color=colour, markersize=6,
                  markeredgecolor=colour if point.shortened else "black",
                  markerfacecolor="white" if point.shortened else colour)
    axes.plot([run.peak / 1e6 for run in waiting], [0.03] * len(waiting), "|", color="black",
              transform=axes.get_xaxis_transform(), markersize=7)
    axes.set_title(name, loc="left", fontsize=9)
    marks.quiet_grid(axes)
    if not any(point.panel for point in here):
        low, high = axes.get_ylim()
        heights = [(point.value - low) / (high - low) for point in here]
        free = max((0.5, 0.25, 0.75), key=lambda y: min((abs(y - h) for h in heights), default=1))
        axes.text(0.5, free, "not measured yet", transform=axes.transAxes, ha="center", va="center",
                  color=marks.GREY, backgroundcolor="white")
    return here


def draw(runs, waiting):
    """`runs`: trainings of one model on one data set; `waiting`: those whose memory alone is known."""
    points = points_of(runs)
    figure, grid = pyplot.subplots(2, 3, figsize=(7.2, 5.0), sharex=True, sharey=True)
    panels = dict(zip([*TECHNIQUES, SEVERAL], grid.flat))
    peaks = [p.peak for p in points] + [run.peak / 1e6 for run in waiting]
    values = [v for p in points for v in p.range]
    room = 0.25 * (max(values) - min(values)) or 1
    marks.round_log_ticks(grid[0][0].xaxis, min(peaks), max(peaks), few=True)
    grid[0][0].set_ylim(min(values) - room, max(values) + room)
    unit = "BLEU" if runs[0].result["quality"]["test_accuracy"] is None else "test accuracy (%)"
    labelled = []
    for name, axes in panels.items():
        labelled.append((axes, _panel(axes, name, points,
                                      [run for run in waiting if _panel_of(run) == name])))
    figure.supxlabel("memory, everything at the peak (MB, logarithmic)", fontsize=9)
    figure.supylabel(unit, fontsize=9)
    figure.suptitle(marks.wrapped(title(runs[0]), 95), x=0.01, ha="left", fontsize=10)
    _legend(grid.flat[-1], points)
    grid.flat[2].tick_params(labelbottom=True)
    for axes, here in labelled:
        labels.place(axes, [(p.peak, p.value) for p in here], [p.label for p in here], fontsize=7)
    return figure


def _legend(axes, points):
    axes.set_axis_off()
    marker = lambda face, label, shape="o": Line2D([], [], linestyle="", marker=shape, color="black",
                                                   markerfacecolor=face, markersize=6, label=label)
    handles = [marker("black", "filled: whole recipe"), marker("white", "hollow: shortened"),
               Line2D([], [], color=marks.GREY, linewidth=1, label="range over seeds"),
               marker("black", "memory known, quality\nnot measured yet", "|")]
    axes.legend(handles=handles, loc="center left", frameon=False, fontsize=7.5)


def title(run):
    what = "BLEU" if run.result["quality"]["test_accuracy"] is None else "test accuracy"
    return f"{spec_words.model(run.spec)}, {marks.data_set(run)}: {what} against memory"


def _caption(runs, waiting):
    trained = len({setting(run.spec) for run in runs})
    words = (f"Each marker is a setting that was trained ({trained} so far), further left in less memory; "
             "a panel shows one technique alone, with the baseline. ")
    if any(quality.shortening(run.result) for run in runs):
        words += "Shortened trainings are comparable with each other only if equally short. "
    if waiting:
        words += f"For {len(waiting)} more settings memory is known, and quality not measured yet. "
    return words + "The paper's figures for single techniques are not available."


def exhibits(collection):
    shown = []
    for model in wording.models(collection):
        runs = [run for run in collection.trainings(model) if quality.value(run.result) is not None]
        if not runs:
            shown.append(Missing(f"{wording.model_name(model)}: quality against memory",
                                 wording.suite("train", model)))
        for data in dict.fromkeys(map(marks.data_set, runs)):
            here = [run for run in runs if marks.data_set(run) == data]
            trained = {setting(run.spec) for run in here}
            waiting = [run for run in collection.memory(model) if setting(run.spec) not in trained]
            shown.append(Exhibit(f"quality_{slug(model)}_{slug(data)}", title(here[0]),
                                 _caption(here, waiting), [*here, *waiting],
                                 figure=draw(here, waiting)))
    return shown
