"""The paper's two headline results beside ours: the figures, then as lines for a terminal."""

from dataclasses import dataclass

import spec_words
from paper import published, quality, tables, wording
from spec_words import TECHNIQUES

NOT_YET = "not measured yet"


@dataclass(frozen=True, eq=False)
class Ours:
    """One of our settings of the techniques, as far as there are results."""
    label: str
    run: object  # a Run, or None
    quality: object  # a quality.Quality, or None


@dataclass(frozen=True, eq=False)
class Headline:
    published: published.Published
    baseline: object  # a Run, or None
    ours: list  # of Ours: all four techniques in moderate settings; the leanest there is

    @property
    def sources(self):
        runs = [self.baseline, *(o.run for o in self.ours)]
        runs += [run for o in self.ours if o.quality for run in o.quality.sources]
        return [run for i, run in enumerate(runs) if run and run not in runs[:i]]


def headlines(collection):
    """One for each of the paper's models, whether or not there are results."""
    found = []
    for model, paper in published.RESULTS.items():
        all_four = collection.combinations(model).get(TECHNIQUES)
        leanest = min(collection.memory(model), key=lambda run: run.peak, default=None)
        ours = [Ours(label, run, run and quality.of(collection, run, paper.data))
                for label, run in [("all four techniques", all_four), ("the leanest", leanest)]]
        found.append(Headline(paper, collection.baseline(model), ours))
    return found


def rows(headline):
    """[(quantity, [the paper's cell, a cell for each of ours])], most important first."""
    paper, baseline = headline.published, headline.baseline
    unknown, not_yet = tables.Cell(None, published.UNKNOWN), tables.Cell(None, NOT_YET)

    def each(cell_of):
        return [cell_of(o) if o.run and baseline else not_yet for o in headline.ours]

    def megabytes(count_of):
        return [unknown, *each(lambda o: tables.Cell(count_of(o.run), f"{count_of(o.run) / 1e6:,.2f} MB"))]

    change = tables.Cell(paper.quality_change, f"{signed(paper.quality_change, '')} {paper.quality_unit}")
    return [
        ("times less memory, in the paper's convention",
         [tables.ratio(paper.memory_ratio),
          *each(lambda o: tables.ratio(baseline.paper_total / o.run.paper_total))]),
        ("times less memory, everything at the peak",
         [unknown, *each(lambda o: tables.ratio(baseline.peak / o.run.peak))]),
        (f"change in {paper.quality}", [change, *each(lambda o: _change(o, paper))]),
        (paper.quality, [unknown, *each(lambda o: _value(o, paper))]),
        ("the training behind the quality", [unknown, *each(_course)]),
        ("memory without techniques, in the paper's convention", megabytes(lambda _: baseline.paper_total)),
        ("memory with them, in the paper's convention", megabytes(lambda run: run.paper_total)),
        ("memory without techniques, everything at the peak", megabytes(lambda _: baseline.peak)),
        ("memory with them, everything at the peak", megabytes(lambda run: run.peak)),
        ("recomputed, on top of forward and backward", [unknown, *each(_extra_work)]),
        ("settings", [unknown, *each(lambda o: tables.text(spec_words.setting(o.run.spec)))]),
    ]


def signed(number, format_spec=".2f"):
    return f"{number:+{format_spec}}".replace("-", "−")


def _change(ours, paper):
    if not ours.quality or ours.quality.change is None:
        return tables.Cell(None, NOT_YET)
    change = ours.quality.change
    shortened = ", shortened" if ours.quality.shortening else ""
    return tables.Cell(round(change, 4), f"{signed(change)} {paper.quality_unit}{shortened}")


def _value(ours, paper):
    if not ours.quality:
        return tables.Cell(None, NOT_YET)
    unit = " %" if paper.quality_unit == "points" else ""
    shortened = ", shortened" if ours.quality.shortening else ""
    return tables.Cell(round(ours.quality.value, 4), f"{ours.quality.value:.2f}{unit}{shortened}")


def _course(ours):
    if not ours.quality:
        return tables.text("none yet")
    cut = ours.quality.shortening
    return tables.text(f"shortened: {cut}" if cut else "the whole recipe")


def _extra_work(ours):
    share = wording.extra_work(ours.run)
    return tables.Cell(None, "not counted") if share is None else \
        tables.Cell(round(share, 6), wording.percent(share))


def terminal(collection, page):
    """Lines for a terminal; `page` says where the index page is."""
    lines = []
    for headline in headlines(collection):
        shown = rows(headline)[:3]
        first = max(len(quantity) for quantity, _ in shown)
        head = ["paper", *(o.label for o in headline.ours)]
        widths = [max(len(head[i]), *(len(cells[i].text) for _, cells in shown))
                  for i in range(len(head))]
        line = lambda words, cells: f"  {words:<{first}}  " + "  ".join(
            f"{cell:>{width}}" for cell, width in zip(cells, widths))
        lines += [headline.published.benchmark, line("", head),
                  *(line(quantity, [cell.text for cell in cells]) for quantity, cells in shown)]
        for ours in headline.ours:
            if ours.run:
                lines.append(f"  {ours.label}: {spec_words.setting(ours.run.spec)}")
        lines.append("")
    lines += [f"The paper's convention: {published.CONVENTION}. Its figures: {published.SOURCE}.",
              f"All tables and figures: {page}"]
    return "\n".join(lines)
