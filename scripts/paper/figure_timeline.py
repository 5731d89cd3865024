"""The memory of one update from its first allocation to its last: the baseline beside the leanest."""

from matplotlib import pyplot
from matplotlib.patches import Patch

import spec_words
from paper import each_model, marks, style
from paper.collection import techniques

PHASES = {"forward": "white", "backward": "#999999", "update": "black"}
OTHER_PHASE = "#dddddd"


def _points(run):
    return run.result["timeline"]["points"]


def _progress(run):
    """Where each point is in the update, in percent of its events."""
    last = max(1, run.result["timeline"]["events"], _points(run)[-1]["event"])
    return [100 * point["event"] / last for point in _points(run)]


def _totals(run):
    return [sum(point["bytes"].values()) / 1e6 for point in _points(run)]


def _area(axes, run):
    """Bytes by category, one on another, each as it stays until the next event."""
    x, floor = _progress(run), [0] * len(_points(run))
    for name, (colour, hatch) in style.STYLES.items():
        roof = [low + point["bytes"].get(name, 0) / 1e6 for low, point in zip(floor, _points(run))]
        if roof != floor:
            axes.fill_between(x, floor, roof, step="post", facecolor=colour, hatch=hatch,
                              edgecolor="black", linewidth=0)
        floor = roof
    axes.step(x, floor, where="post", color="black", linewidth=0.4)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.12 * max(floor))
    axes.xaxis.set_major_formatter(marks.plain_numbers())
    axes.yaxis.set_major_locator(marks.few_round_ticks())
    axes.yaxis.set_major_formatter(marks.plain_numbers())
    peak = max(range(len(floor)), key=lambda i: floor[i])
    axes.plot(x[peak], floor[peak], "v", color="black", markersize=5, clip_on=False)
    side = "right" if x[peak] > 50 else "left"
    axes.annotate(f"peak {marks.megabytes(run.peak)} MB", (x[peak], floor[peak]),
                  xytext=(-6 if side == "right" else 6, 1), textcoords="offset points", ha=side,
                  va="bottom", fontsize=8)


def _strip(axes, run):
    """The phases as a strip above the panel."""
    x, points = _progress(run), _points(run)
    spans = []  # [phase, from, to]
    for left, right, point in zip(x, [*x[1:], 100], points):
        if spans and spans[-1][0] == point["phase"]:
            spans[-1][2] = right
        else:
            spans.append([point["phase"], left, right])
    for phase, left, right in spans:
        axes.broken_barh([(left, right - left)], (1.02, 0.035), facecolor=PHASES.get(phase, OTHER_PHASE),
                         transform=axes.get_xaxis_transform(), clip_on=False, edgecolor="black",
                         linewidth=0.3)
    return {phase for phase, _, _ in spans}


def draw(runs):
    """`runs`: of one model, one or two, the larger first."""
    figure, panels = pyplot.subplots(1, len(runs), figsize=(7.2, 4.4), squeeze=False)
    phases, used = set(), set()
    for axes, run in zip(panels[0], runs):
        _area(axes, run)
        phases |= _strip(axes, run)
        used |= {name for point in _points(run) for name, count in point["bytes"].items() if count}
        axes.set_title(marks.wrapped(marks.label(run.spec), 38), loc="left", pad=15, fontsize=9)
        axes.set_xlabel("progress of one update\n(% of its allocations and releases)")
    panels[0][0].set_ylabel("memory alive (MB)")
    figure.suptitle(marks.wrapped(title(runs[0]), 95), x=0.01, ha="left", fontsize=10)
    handles = marks.category_handles(used)
    if len(runs) > 1:
        line, = panels[0][0].step(_progress(runs[1]), _totals(runs[1]), where="post", color="#F0E442",
                                  linewidth=1, label=f"{marks.label(runs[1].spec)}, on the left")
        line.set_path_effects(marks.outlined())
        handles.append(line)
    handles += [Patch(facecolor=PHASES.get(phase, OTHER_PHASE), edgecolor="black", linewidth=0.5,
                      label=f"strip: {phase}")
                for phase in [*PHASES, *sorted(phases - set(PHASES))] if phase in phases]
    figure.legend(handles=handles, loc="outside lower left", ncols=5, frameon=False, fontsize=7.5,
                  columnspacing=1.2)
    return figure


def title(run):
    return f"{spec_words.model(run.spec)}: memory during one update"


def _caption(runs):
    words = ("Each panel has its own scale; the strip above it shows the phase. "
             f"{marks.label(runs[0].spec).capitalize()} peaks at {marks.megabytes(runs[0].peak)} MB "
             f"after {_at_peak(runs[0]):.0f} % of the update's allocations and releases")
    if len(runs) > 1:
        words += (f"; {marks.label(runs[1].spec)}, the thin line on the left, never needs more than "
                  f"{marks.megabytes(runs[1].peak)} MB, {marks.factor(runs[0].peak / runs[1].peak)} less")
    return words + ". The paper's timeline is not available."


def _at_peak(run):
    totals = _totals(run)
    return _progress(run)[totals.index(max(totals))]


def chosen(collection, model):
    """The baseline and the leanest run with a timeline; one of them where there is no other."""
    runs = [run for run in collection.timelines(model) if _points(run)]
    first = [run for run in runs if not techniques(run.spec)] or runs
    return [*first[:1], *(run for run in runs[-1:] if run not in first[:1])]


def exhibits(collection):
    return each_model.figures(collection, "timeline", "memory during one update", "timeline", chosen,
                              title, _caption, draw)
