"""How quality and loss developed: every training, after each epoch."""

from matplotlib import pyplot

import result_files
import spec_words
from paper import marks, style
from paper.exhibit import Exhibit, Missing

QUALITIES = {  # name of the exhibit: key, factor, unit, what
    "accuracy_curve": ("test_accuracy", 100, " %", "Test accuracy"),
    "perplexity_curve": ("perplexity", 1, "", "Validation perplexity"),
}
MOST_LINES = 12  # that a figure can hold and be read


def points_of(run, key, factor=1):
    return [(point["epoch"], factor * point[key]) for point in run.result["quality"]["curve"]
            if point.get(key) is not None]


def name_of(run):
    """A training in words; a shortened one says so."""
    spec = run.spec
    words = (f"{spec_words.model(spec)}, {spec['data']}, {marks.label(spec)}, recipe "
             f"{spec['recipe']}, seed {spec['seed']}")
    return words + (" (SHORTENED)" if result_files.is_shortened(run.result) else "")


def draw(runs, key, factor, unit, what):
    figure, (axes, losses) = pyplot.subplots(
        2, figsize=(7.2, 4.9 + 0.17 * len(runs)), height_ratios=[1.6, 1], sharex=True)
    last = max(points_of(run, key)[-1][0] for run in runs)
    for number, run in enumerate(runs):
        colour, line, marker = style.LINES[number % len(style.LINES)]
        face = "white" if number >= len(style.LINES) else colour
        points = points_of(run, key, factor)
        look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4,
                "markerfacecolor": face, "linewidth": 1.2}
        label = f"{points[-1][1]:.2f}{unit}: {name_of(run)}"
        for where, values in [(axes, points), (losses, points_of(run, "train_loss"))]:
            # Markers of different lines stand at different epochs, so that none hides another.
            every = max(1, len(values) // 10)
            where.plot(*zip(*values or [(None, None)]), **look, label=marks.wrapped(label, 105),
                       markevery=(number % every, every))
    axes.set_xlim(0, last * 1.03)
    losses.xaxis.set_major_locator(marks.few_round_ticks(integer=True))
    losses.set_xlabel("epoch")
    axes.set_ylabel(what.lower() + (" (%)" if unit else ""))
    losses.set_ylabel("training loss")
    for each in (axes, losses):
        marks.quiet_grid(each, "y")
        each.yaxis.set_major_locator(marks.few_round_ticks())
    axes.set_title(f"{what} after each epoch", loc="left")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=7.5,
                  alignment="left", title="at the end:", title_fontsize=7.5)
    return figure


def _caption(runs, left_out, key, unit, factor):
    shortened = sum(result_files.is_shortened(run.result) for run in runs)
    ends = [points_of(run, key, factor)[-1][1] for run in runs]
    best = min(ends) if key == "perplexity" else max(ends)
    words = (f"One line a training, {len(runs)} in all; below, the mean training loss of each epoch. "
             f"The best ends at {best:.2f}{unit}.")
    if shortened:
        words += (f" {shortened} of them did less than the whole recipe and cannot be compared with "
                  "published figures.")
    if left_out:
        words += f" {left_out} more are left out, to keep the lines apart."
    return words + " The paper's curves are not available."


def exhibits(collection):
    shown = []
    for name, (key, factor, unit, what) in QUALITIES.items():
        found = [run for run in collection.trainings() if points_of(run, key)]
        runs = found[:MOST_LINES]
        if runs:
            shown.append(Exhibit(name, f"{what} after each epoch",
                                 _caption(runs, len(found) - len(runs), key, unit, factor), runs,
                                 figure=draw(runs, key, factor, unit, what)))
        else:
            shown.append(Missing(f"{what.lower()} after each epoch",
                                 "build/memfloor suite run --filter train/"))
    return shown
