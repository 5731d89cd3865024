"""How quality and loss developed: every training, after each epoch."""

from itertools import groupby

from matplotlib import pyplot

import spec_words
from paper import marks, quality, style, wording
from paper.exhibit import Exhibit, Missing, slug

QUALITIES = {  # what is drawn: name of the exhibit, factor, unit
    "test_accuracy": ("accuracy", 100, " %", "Test accuracy"),
    "perplexity": ("perplexity", 1, "", "Validation perplexity"),
}
MOST_LINES = 12  # that a figure can hold and be read


def points_of(run, key, factor=1):
    return [(point["epoch"], factor * point[key]) for point in run.result["quality"]["curve"]
            if point.get(key) is not None]


def name_of(run):
    """A training in words; a shortened one says so."""
    cut = quality.shortening(run.result)
    return (f"{marks.label(run.spec)}, seed {run.spec['seed']}, recipe {run.spec['recipe']}" +
            (f", SHORTENED: {cut}" if cut else ""))


def _looks(number):
    colour, line, marker = style.LINES[number % len(style.LINES)]
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "linewidth": 1.2,
            "markerfacecolor": "white" if number >= len(style.LINES) else colour}


def draw(runs, key):
    _, factor, unit, what = QUALITIES[key]
    one = len(runs) == 1
    figure, panels = pyplot.subplot_mosaic(
        [["whole"], ["loss"]] if one else [["whole", "end"], ["loss", "end"]], height_ratios=[1.6, 1],
        width_ratios=None if one else [5, 1], figsize=(7.2, 4.6 + 0.17 * len(runs)))
    axes, losses = panels["whole"], panels["loss"]
    for number, run in enumerate(runs):
        points = points_of(run, key, factor)
        label = marks.wrapped(f"{points[-1][1]:.2f}{unit}: {name_of(run)}", 105)
        for where, values in [(axes, points), (losses, points_of(run, "train_loss"))]:
            # Markers of different lines stand at different epochs, so that none hides another.
            every = max(1, len(values) // 10)
            where.plot(*zip(*values or [(None, None)]), **_looks(number), label=label,
                       markevery=(number % every, every))
        if not one:
            panels["end"].plot(number, points[-1][1], **_looks(number) | {"markersize": 6, "linestyle": ""})
    last = max(points_of(run, key)[-1][0] for run in runs)
    for each in (axes, losses):
        each.set_xlim(0, last * 1.03)
        each.xaxis.set_major_locator(marks.few_round_ticks(integer=True))
    for each in panels.values():
        each.yaxis.set_major_locator(marks.few_round_ticks())
        each.yaxis.set_major_formatter(marks.plain_numbers())
        marks.quiet_grid(each, "y")
    losses.set_xlabel("epoch")
    axes.tick_params(axis="x", labelbottom=False)
    axes.set_ylabel(what.lower() + (" (%)" if unit else ""))
    losses.set_ylabel("training loss")
    if not one:
        panels["end"].set_title("the end, enlarged", fontsize=8)
        panels["end"].set_xticks([])
        panels["end"].margins(x=0.2, y=0.1)
    axes.set_title(marks.wrapped(title(runs[0], key), 70), loc="left")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=7.5,
                  alignment="left", title="at the end:", title_fontsize=7.5)
    return figure


def title(run, key):
    return f"{QUALITIES[key][3]} after each epoch: {spec_words.model(run.spec)}, {marks.data_set(run)}"


def _caption(runs, left_out, key):
    _, factor, unit, _ = QUALITIES[key]
    shortened = sum(bool(quality.shortening(run.result)) for run in runs)
    ends = [points_of(run, key, factor)[-1][1] for run in runs]
    best = min(ends) if key == "perplexity" else max(ends)
    one = len(runs) == 1
    words = ("The line is" if one else f"Each of the {len(runs)} lines is") + (
        " a training; the lower panel has the mean training loss of each epoch. "
        f"{'It' if one else 'The best'} ends at {best:.2f}{unit}.")
    if shortened:
        words += " Shortened trainings are not comparable with published figures."
    if left_out:
        words += (f" Only the first {len(runs)} of {len(runs) + left_out} are drawn, to keep the lines "
                  "apart.")
    return words + " The paper's curves are not available."


def exhibits(collection):
    shown = []
    for key, (name, *_, what) in QUALITIES.items():
        found = [run for run in collection.trainings() if points_of(run, key)]
        group = lambda run: (run.spec["model"], marks.data_set(run))
        order = [*dict.fromkeys(map(group, found))]
        for (model, data), runs in groupby(sorted(found, key=lambda run: order.index(group(run))), group):
            runs = [*runs]
            lines = runs[:MOST_LINES]
            shown.append(Exhibit(f"{name}_curve_{slug(model)}_{slug(data)}", title(lines[0], key),
                                 _caption(lines, len(runs) - len(lines), key), lines,
                                 figure=draw(lines, key)))
        if not found:
            model = {"accuracy": "wrn28_2", "perplexity": "dynamic_conv"}[name]
            shown.append(Missing(f"{what} after each epoch", wording.suite("train", model)))
    return shown
