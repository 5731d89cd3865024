"""The combinations of the four techniques: the peak of each above the techniques that are on."""

from matplotlib import pyplot

import spec_words
from paper import marks, wording
from paper.exhibit import Exhibit, Missing, slug
from spec_words import TECHNIQUES

COMBINATIONS = 2 ** len(TECHNIQUES)


def _matrix(axes, rows, baseline):
    """A column a run: which techniques are on, what they cost and bring."""
    meanings = {}
    for column, run in enumerate(rows):
        meanings |= spec_words.techniques(run.spec)
        on = [y for y, name in enumerate(TECHNIQUES) if name in spec_words.techniques(run.spec)]
        axes.plot([column] * len(TECHNIQUES), range(len(TECHNIQUES)), "o", color=marks.LIGHT,
                  markersize=6)
        axes.plot([column] * len(on), on, "-", color="black", linewidth=1.2)
        for y in on:
            colour, marker = marks.MARKERS[TECHNIQUES[y]]
            axes.plot(column, y, marker, color=colour, markeredgecolor="black", markersize=7.5)
        work = wording.extra_work(run)
        for y, words in enumerate(["n/a" if work is None else f"{100 * work:.0f}",
                                   marks.factor(baseline.peak / run.peak)], len(TECHNIQUES)):
            axes.text(column, y, words, ha="center", va="center", fontsize=7)
    names = [*TECHNIQUES, "extra work (%)", "less than without any"]
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.set_xlim(-0.7, len(rows) - 0.3)
    axes.set_xticks([])
    if meanings:
        words = "; ".join(f"{name} is {meanings[name]}" for name in TECHNIQUES if name in meanings)
        axes.set_xlabel(marks.wrapped(f"On: {words}.", 105), fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def draw(runs, baseline):
    """`runs`: of one model, at most one for each combination, in any order."""
    rows = sorted(runs, key=lambda run: (-run.peak, marks.label(run.spec)))
    peaks = [run.peak / 1e6 for run in rows]
    papers = [run.paper_total / 1e6 for run in rows]
    figure, (axes, matrix) = pyplot.subplots(
        2, figsize=(7.2, 4.8), height_ratios=[2.1, 1], sharex=True)
    columns = range(len(rows))
    marks.round_log_ticks(axes.yaxis, min(papers), max(peaks) * 1.15)
    axes.vlines(columns, axes.get_ylim()[0], papers, color=marks.LIGHT, linewidth=0.8)
    axes.plot(columns, peaks, "o", color="black", markersize=6, label="all, at the peak")
    axes.plot(columns, papers, "_", color="#D55E00", markersize=11, markeredgewidth=2,
              label="paper's convention: model + optimizer + activation")
    for column, peak in zip(columns, peaks):
        axes.annotate(marks.number(peak), (column, peak), xytext=(0, 5),
                      textcoords="offset points", ha="center", va="bottom", fontsize=7.5)
    marks.quiet_grid(axes, "y")
    axes.set_ylabel("memory (MB, logarithmic)")
    axes.tick_params(axis="x", length=0)
    axes.set_title(marks.wrapped(title(rows), 80), loc="left")
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    _matrix(matrix, rows, baseline)
    return figure


def title(runs):
    of = "all" if len(runs) == COMBINATIONS else f"{len(runs)} of the"
    return f"{spec_words.model(runs[0].spec)}: {of} {COMBINATIONS} combinations of the techniques"


def _caption(runs, baseline):
    leanest = min(runs, key=lambda run: run.peak)
    return ("Each column is one combination; the coloured marks below it show which techniques are on. "
            f"The leanest of them needs {marks.megabytes(leanest.peak)} MB at its peak, "
            f"{marks.factor(baseline.peak / leanest.peak)} less than training without any "
            f"({marks.megabytes(baseline.peak)} MB). The paper's own bytes of each combination are "
            "not available.")


def exhibits(collection):
    shown = []
    for model in wording.models(collection):
        runs, baseline = [*collection.combinations(model).values()], collection.baseline(model)
        if runs and baseline:
            shown.append(Exhibit(f"combination_peaks_{slug(model)}", title(runs),
                                 _caption(runs, baseline), runs, figure=draw(runs, baseline)))
        else:
            shown.append(Missing(f"{wording.model_name(model)}: the combinations of the techniques",
                                 wording.suite("memory", model)))
    return shown
