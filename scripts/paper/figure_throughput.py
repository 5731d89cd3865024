"""How fast a training step is, beside the baseline's."""

from collections import Counter

from matplotlib import pyplot

import spec_words
from paper import each_model, marks, wording
from paper.collection import speed, techniques, workload


def speeds(run):
    """Samples a second of every timed step; where only the median is known, that alone."""
    median = run.result["time"]["step_seconds_median"]
    seconds = run.result["time"].get("step_seconds") or [median]
    return sorted(speed(run) * median / each for each in seconds)


def chosen(collection, model):
    """Timed steps of one workload: that with the most of them. The fastest first."""
    runs = [run for run in collection.steps(model) if speed(run)]
    sizes = Counter(workload(run.spec) for run in runs)
    most = min(sizes, key=lambda work: (-sizes[work], work), default=None)
    return [run for run in runs if workload(run.spec) == most]


def draw(runs):
    """`runs`: timed steps of one model, the fastest first."""
    baseline = next((run for run in runs if not techniques(run.spec)), None)
    units = "target tokens" if spec_words.family_name(runs[0].spec) == "dynamic_conv" else "images"
    figure, axes = pyplot.subplots(figsize=(7.2, 1.3 + 0.27 * len(runs)))
    if baseline:
        axes.axvline(speed(baseline), color="black", linewidth=0.8, linestyle="--",
                     label="without techniques")
    for row, run in enumerate(runs):
        all_speeds = speeds(run)
        axes.plot([all_speeds[0], all_speeds[-1]], [row, row], color=marks.GREY, linewidth=1)
        axes.plot(all_speeds, [row] * len(all_speeds), "|", color=marks.GREY, markersize=7)
        colour, marker = marks.marker_of(run.spec)
        axes.plot(speed(run), row, marker, color=colour, markeredgecolor="black", markersize=6.5)
        ratio = f"{speed(run) / speed(baseline):.2f}×" if baseline else ""
        axes.text(1.01, row, f"{marks.number(speed(run))}   {ratio}",
                  transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.text(1.01, -0.9, "median" + (", relative" if baseline else ""),
              transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=marks.GREY)
    names = [marks.wrapped(marks.label(run.spec), 42) for run in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=8 if max(map(len, names)) < 43 else 6.5)
    axes.set_ylim(len(runs) - 0.4, -0.6)
    axes.set_xlim(0, 1.05 * max(speeds(run)[-1] for run in runs))
    axes.set_xlabel(f"{units} a second; a bar for each timed step, the marker at the median")
    axes.xaxis.set_major_formatter(marks.plain_numbers())
    axes.tick_params(axis="y", length=0)
    marks.quiet_grid(axes, "x")
    axes.set_title(marks.wrapped(title(runs[0]), 60), loc="left", pad=16)
    figure.legend(handles=marks.technique_handles(run.spec for run in runs),
                  loc="outside lower left", ncols=6, columnspacing=1.2,
                  frameon=False, fontsize=8)
    return figure


def title(run):
    return f"{spec_words.model(run.spec)}: speed of a training step, {spec_words.batch(run.spec)}"


def _caption(runs):
    words = (f"Timed on {wording.machine(runs[0])}; further right is faster, and differences as small as "
             "the spread of the steps mean nothing.")
    baseline = next((run for run in runs if not techniques(run.spec)), None)
    if baseline and len(runs) > 1:
        faster = sum(speed(run) > speed(baseline) for run in runs)
        words += (f" By the median, {faster} of the other {len(runs) - 1} settings are faster than "
                  "training without techniques.")
    return words + " The paper's speeds are not available."


def exhibits(collection):
    return each_model.figures(collection, "speed", "speed of a training step", "step", chosen, title,
                              _caption, draw)
