"""How much less memory at what loss of quality, with the paper's point."""

from matplotlib import pyplot

from paper import headline, labels, marks, published, quality, wording
from paper.collection import setting, techniques
from paper.exhibit import Exhibit, Missing, slug


class Point:
    """A setting that was trained, and without techniques too on the same data and recipe."""

    def __init__(self, run, found):
        ours = next(t for t in found.sources if setting(t.spec) == setting(run.spec))
        baseline = next(t for t in found.sources if not techniques(t.spec))
        self.run, self.sources, self.change = run, found.sources, found.change
        self.shortening = found.shortening
        self.paper = baseline.paper_total / ours.paper_total
        self.peak = baseline.peak / ours.peak
        words = marks.wrapped(marks.label(run.spec), 28)
        self.label = words + ("\n(shortened)" if self.shortening else "")


def points_of(collection, model):
    """One for each setting whose quality is known, and the baseline's too."""
    paper, points = published.RESULTS.get(model), {}
    for training in collection.trainings(model):
        if (not paper or training.spec["data"] == paper.data) and setting(training.spec) and \
                setting(training.spec) not in points:
            found = quality.of(collection, training, training.spec["data"])
            if found and found.change is not None:
                points[setting(training.spec)] = Point(training, found)
    return sorted(points.values(), key=lambda p: (p.paper, p.label))


def _front(points):
    """(factor, change) of those that no other beats in both, from the most memory to the least."""
    front = []
    for x, y in sorted([(1.0, 0.0), *((p.paper, p.change) for p in points)], reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def draw(model, points, waiting, baseline):
    """`waiting`: runs of which only memory is known, beside that of `baseline`."""
    paper = published.RESULTS.get(model)
    figure, panels = pyplot.subplots(2 if waiting else 1, figsize=(7.2, 5.3 if waiting else 4.4),
                                     height_ratios=[4, 1] if waiting else None, sharex=True,
                                     squeeze=False)
    axes = panels[0, 0]
    factors = [1, *(f for p in points for f in (p.paper, p.peak)),
               *(baseline.paper_total / run.paper_total for run in waiting),
               *(baseline.peak / run.peak for run in waiting)]
    changes = [0, *(p.change for p in points)]
    if paper:
        factors.append(paper.memory_ratio)
        changes.append(paper.quality_change)
    room = max(0.15, 0.18 * (max(changes) - min(changes)))
    axes.set_ylim(min(changes) - room, max(changes) + room)
    marks.round_log_ticks(axes.xaxis, min(factors), max(factors) * 1.3)
    axes.yaxis.set_major_locator(marks.few_round_ticks())
    axes.axhline(0, color="black", linewidth=0.8)
    marks.quiet_grid(axes)
    unit = f" ({paper.quality_unit})" if paper and paper.quality_unit != paper.quality else ""
    axes.set_ylabel(f"change in {paper.quality if paper else 'quality'}{unit}")
    axes.set_title(marks.wrapped(title(model), 85), loc="left")
    panels[-1, 0].set_xlabel("times less memory than without techniques (logarithmic)" + (
        f"\nticks: quality not measured yet ({len(waiting)} settings)" if waiting else ""))

    drawn = [[(min(factors), 0), (max(factors), 0)]]  # what labels keep clear of
    important = []  # the first points to get a label
    if paper:
        important.append(((paper.memory_ratio, paper.quality_change),
                          f"the paper: {paper.memory_ratio:g}×,\n"
                          f"{headline.signed(paper.quality_change, 'g')} {paper.quality_unit}"))
        axes.plot(*important[0][0], "*", color="#D55E00", markeredgecolor="black", markersize=15,
                  label="the paper", zorder=4, linestyle="")
        for each in panels.flat:
            each.axvline(paper.memory_ratio, color="#D55E00", linestyle=":", linewidth=1, zorder=1)
        drawn.append([(paper.memory_ratio, y) for y in axes.get_ylim()])
    drawn.append(_draw_points(axes, points))
    if waiting:
        axes.tick_params(axis="x", labelbottom=False)
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    if waiting:
        _draw_strip(panels[1, 0], waiting, baseline)
    important += [((p.paper, p.change), p.label) for p in points]
    labels.place(axes, [place for place, _ in important], [text for _, text in important], lines=drawn,
                 others=[(p.peak, p.change) for p in points], radii=[9] if paper else [])
    return figure


def _draw_points(axes, points):
    """Returns the corners of the front's line."""
    front = _front(points)
    corners = [c for (x0, y0), (x1, y1) in zip(front, front[1:]) for c in ((x0, y0), (x0, y1), (x1, y1))]
    axes.plot(1, 0, "X", color="black", markersize=7, label="without techniques", linestyle="", zorder=3)
    if not points:
        axes.text(0.5, 0.5, "quality against a baseline of the same data and recipe:\nnot measured yet",
                  transform=axes.transAxes, ha="center", va="center", color=marks.GREY,
                  backgroundcolor="white")
        return front
    if corners:
        axes.plot(*zip(*corners), color="#0072B2", linewidth=1, label="best so far")
    for words, kept in [("", [p for p in points if not p.shortening]),
                        (" (shortened training)", [p for p in points if p.shortening])]:
        changes = [p.change for p in kept]
        axes.hlines(changes, [p.peak for p in kept], [p.paper for p in kept], color=marks.GREY,
                    linewidth=0.7)
        for name, colour, shape, values in [
                ("in the paper's convention", "#0072B2", "o", [p.paper for p in kept]),
                ("everything at the peak", "black", "s", [p.peak for p in kept])]:
            if kept:
                axes.plot(values, changes, shape, color=colour, markersize=6 if shape == "o" else 4,
                          markerfacecolor="white" if words else colour, label=name + words)
    return corners or front


def _draw_strip(axes, waiting, baseline):
    """Ticks at the factors of settings that are not trained yet; presets have their names."""
    papers = [baseline.paper_total / run.paper_total for run in waiting]
    peaks = [baseline.peak / run.peak for run in waiting]
    axes.vlines(papers, 0.55, 0.95, color="#0072B2", linewidth=1)
    axes.vlines(peaks, 0.05, 0.45, color="black", linewidth=1)
    axes.set_ylim(0, 1.7)
    axes.set_yticks([0.75, 0.25], ["paper's\nconvention", "everything\nat the peak"], fontsize=7)
    axes.tick_params(axis="y", length=0)
    named = [(x, run.spec["preset"]) for x, run in zip(papers, waiting) if run.spec.get("preset")]
    labels.place(axes, [(x, 0.95) for x, _ in named],
                 [f"{name}, {marks.factor(x)}" for x, name in named], fontsize=7.5,
                 lines=[[(x, 0.55), (x, 0.95)] for x in papers])


def title(model):
    return f"{wording.model_name(model)}: less memory against loss of quality"


def _caption(model, points, waiting):
    words = "Further right is less memory, further up is better; a line joins the two ways of counting. "
    paper = published.RESULTS.get(model)
    if points:
        best = points[-1]
        words += (f"Of the settings trained, the leanest is {marks.label(best.run.spec)}: "
                  f"{marks.factor(best.paper)} less memory in the paper's convention, and a change of "
                  f"{paper.quality if paper else 'quality'} by {headline.signed(best.change)}. ")
        if any(p.shortening for p in points):
            words += "Shortened trainings are not comparable with the paper's. "
    else:
        words += "None of our settings has been trained beside a baseline yet. "
    return words + (f"The star is the paper's result ({published.SOURCE})." if paper else
                    "A figure of the paper is not available.")


def exhibits(collection):
    shown = []
    for model in wording.models(collection):
        baseline, points = collection.baseline(model), points_of(collection, model)
        if baseline:
            trained = {setting(p.run.spec) for p in points}
            waiting = [run for run in collection.memory(model)
                       if setting(run.spec) and setting(run.spec) not in trained]
            sources = [baseline, *waiting, *(run for p in points for run in p.sources)]
            shown.append(Exhibit(f"pareto_{slug(model)}", title(model), _caption(model, points, waiting),
                                 [run for i, run in enumerate(sources) if run not in sources[:i]],
                                 figure=draw(model, points, waiting, baseline)))
        else:
            shown.append(Missing(title(model), wording.suite("memory", model)))
    return shown
