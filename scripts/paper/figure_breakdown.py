"""What fills the memory: bytes by category, and the paper's three components."""

from matplotlib import pyplot

import spec_words
from paper import each_model, marks, style, wording
from spec_words import TECHNIQUES

ROW = 2.6  # between the rows, in units of a bar's distance to the next


def chosen(collection, model):
    """The baseline, each technique alone as in the combinations, and the presets; none without a baseline."""
    combinations, baseline = collection.combinations(model), collection.baseline(model)
    if not baseline:
        return []
    runs = [baseline]
    for name in TECHNIQUES:
        alone = collection.alone(model, name)
        runs += [combinations[name,]] if (name,) in combinations else alone[-1:]
    return runs + [run for run in collection.presets(model) if run not in runs]


def _stack(axes, y, parts, scale):
    """parts: (bytes, colour, hatch) from left to right; their megabytes stand in those wide enough.
    `scale`: the length of a byte on the axis."""
    left, width = 0, axes.get_xlim()[1]
    for count, colour, hatch in parts:
        length, text = count * scale, marks.megabytes(count)
        if count:
            axes.barh(y, length, left=left, height=0.8, color=colour, hatch=hatch,
                      edgecolor="black", linewidth=0.5)
        if length > width * (0.03 + 0.02 * len(text)):
            axes.text(left + length / 2, y, text, ha="center", va="center", fontsize=6.5,
                      bbox={"boxstyle": "square,pad=0.1", "facecolor": "white",
                            "edgecolor": "none"})
        left += length


def _row(axes, shares, y, run, baseline):
    paper = {name: run.memory["paper"][f"{name}_bytes"] for name in style.PAPER_STYLES}
    for counts, styles, total, first in [
            (run.memory["at_peak"], style.STYLES, run.peak, baseline.peak),
            (paper, style.PAPER_STYLES, run.paper_total, baseline.paper_total)]:
        parts = [(counts[name], *styles[name]) for name in styles]
        _stack(axes, y, parts, 1e-6)
        _stack(shares, y, parts, 100 / total)
        less = "" if run is baseline else f" ({marks.factor(first / total)} less)"
        axes.text(total / 1e6, y, f" {marks.megabytes(total)} MB{less}", va="center", fontsize=7)
        y += 1


def draw(runs):
    """`runs`: of one model, the baseline first, in the order of the rows."""
    baseline, rows = runs[0], len(runs)
    widest = max(max(run.peak, run.paper_total) for run in runs)
    figure, (axes, shares) = pyplot.subplots(
        1, 2, figsize=(7.2, 1.7 + 0.62 * rows), width_ratios=[1.25, 1], sharey=True)
    axes.set_xlim(0, 1.36 * widest / 1e6)
    shares.set_xlim(0, 100)
    for number, run in enumerate(runs):
        _row(axes, shares, ROW * number, run, baseline)
    axes.set_yticks([ROW * number + 0.5 for number in range(rows)],
                    [marks.wrapped(marks.label(run.spec), 20) for run in runs], fontsize=8)
    axes.set_ylim(ROW * rows - 0.9, -0.7)
    axes.set_xlabel("memory (MB)")
    shares.set_xlabel("share of the bar's total (%)\nnumbers in the bars: MB")
    for each in (axes, shares):
        each.tick_params(axis="y", length=0)
        each.xaxis.set_major_locator(marks.few_round_ticks())
        each.xaxis.set_major_formatter(marks.plain_numbers())
    figure.suptitle(marks.wrapped(title(baseline), 95), x=0.01, ha="left", fontsize=10)
    used = {name for name in style.STYLES for run in runs if run.memory["at_peak"][name]}
    figure.legend(
        handles=marks.category_handles(used), loc="outside lower left", ncols=5, frameon=False,
        fontsize=8, title_fontsize=8, alignment="left",
        title="Upper bars: everything, at the peak. Lower bars: the paper's components, each at its "
        "own peak: model\n(colour of weight: with index), optimizer (of its state: with gradients), "
        "activation.")
    return figure


def title(baseline):
    return f"{spec_words.model(baseline.spec)}: what fills the memory of training"


def _caption(runs):
    baseline, leanest = runs[0], min(runs, key=lambda run: run.peak)
    share = lambda run, name: f"{100 * run.memory['at_peak'][name] / run.peak:.0f} %"
    words = ("Left, every setting on one scale; right, the same bars stretched to 100 %, so that small "
             "ones can be read. Without techniques, activations are "
             f"{share(baseline, 'activation')} of the peak")
    if leanest is not baseline:
        words += f"; of the smallest peak ({marks.label(leanest.spec)}) they are " + share(
            leanest, "activation")
    return words + ". The paper's own bytes are not available."


def exhibits(collection):
    return each_model.figures(collection, "memory_breakdown", "what fills the memory of training",
                              "memory", chosen, title, _caption, draw)
