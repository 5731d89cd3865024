"""What checkpointing buys: memory against the work done again, for plans alone."""

from matplotlib import pyplot

import spec_words
from paper import each_model, labels, marks, wording


def _activation(run):
    return run.memory["paper"]["activation_bytes"] / 1e6


def _work(run):
    """Work done again, in percent."""
    return 100 * wording.extra_work(run)


def _front(points):
    """Of (x, y, ...) those for which no other is at most as large in both, from left to right."""
    front = []
    for point in sorted(points, key=lambda p: p[:2]):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def draw(runs):
    """`runs`: of one model, the baseline and plans alone, each with its operations counted."""
    named = {}  # plans may be the same under two names
    for run in runs:
        named.setdefault((_work(run), _activation(run), run.peak / 1e6), []).append(
            spec_words.recomputation(run.spec) or "none")
    points = sorted(named)
    figure, axes = pyplot.subplots(figsize=(7.2, 4.6))
    front = _front(points)
    steps = [(x, y) for x, y, _ in front]
    axes.plot(*zip(*steps), color="#0072B2", linewidth=1.3, drawstyle="steps-post",
              label="no plan here needs less of both activation and work")
    works, activations, peaks = zip(*points)
    axes.vlines(works, activations, peaks, color=marks.LIGHT, linewidth=0.8)
    axes.plot(works, activations, "o", color="#0072B2", markersize=5.5, label="activation, at its own peak")
    axes.plot(works, peaks, "s", markerfacecolor="white", markeredgecolor="#D55E00", markersize=4.5,
              label="everything, at the peak")
    axes.set_ylim(0, max(peaks) * 1.06)
    axes.set_xlim(-max(4, max(works) * 0.1), max(10, max(works) * 1.14))
    axes.set_xlabel("work done again (% of the operations of forward and backward)")
    axes.set_ylabel("memory (MB)")
    axes.yaxis.set_major_formatter(marks.plain_numbers())
    axes.set_title(marks.wrapped(title(runs[0]), 85), loc="left")
    marks.quiet_grid(axes)
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    corners = [p for (x0, y0), (x1, y1) in zip(steps, steps[1:]) for p in ((x0, y0), (x1, y0))]
    labels.place(axes, [p[:2] for p in points],
                       [marks.wrapped(" = ".join(named[p]), 26) for p in points],
                       lines=[[*corners, steps[-1]]], others=[(x, peak) for x, _, peak in points])
    return figure


def title(run):
    return f"{spec_words.model(run.spec)}: memory against work done again, checkpointing alone"


def _caption(runs):
    base, leanest = runs[0], min(runs, key=_activation)
    return ("Each filled dot is a plan of checkpoints; lower is less memory, further left is less work. "
            f"The leanest plan for activations ({spec_words.recomputation(leanest.spec)}) keeps "
            f"{marks.number(_activation(leanest))} MB of them instead of "
            f"{marks.number(_activation(base))} MB and does {_work(leanest):.0f} % of the "
            "work again. The paper's curve is not available.")


def chosen(collection, model):
    """The baseline and the plans whose work was counted; none where there is nothing to compare."""
    baseline = collection.baseline(model)
    runs = [run for run in [baseline, *collection.plans(model)]
            if baseline and wording.extra_work(run) is not None]
    return runs if len(runs) > 1 else []


def exhibits(collection):
    return each_model.figures(collection, "recompute", "memory against work done again", "memory", chosen,
                              title, _caption, draw)
