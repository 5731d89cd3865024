"""The README's table of results: written by this, between two marks, and never by hand."""

import re

import spec_words
from paper import headline, tables

BEGIN, END = "<!-- made by scripts/make_paper --readme: begin -->", "<!-- end -->"
HEAD = ("| | everything at the peak | less | in the paper's convention | less | paper | quality | paper |\n"
        "|---|---:|---:|---:|---:|---:|---|---|\n")


def update(text, collection):
    """`text` with a fresh table between the marks. Raises ValueError with one sentence."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"has no place for the table: one '{BEGIN}' and one '{END}' after it.")
    return pattern.sub(lambda _: f"{BEGIN}\n{table(collection)}{END}", text)


def table(collection):
    lines = []
    for one in headline.headlines(collection):
        if one.baseline:
            lines.append(_row(f"**{one.published.benchmark}**, no technique, FP32", one.baseline))
        lines += [_row(f"{ours.label}: {spec_words.setting(ours.run.spec)}", ours.run, one, ours)
                  for ours in one.ours if ours.run and one.baseline]
    return HEAD + "".join(lines)


def _row(words, run, one=None, ours=None):
    megabytes = lambda count: f"{count / 1e6:,.2f} MB"
    less = lambda count_of: f"**{tables.times(count_of(one.baseline) / count_of(run))}**" if one else ""
    quality = dict(headline.rows(one)) if one else {}
    cells = [words, megabytes(run.peak), less(lambda r: r.peak), megabytes(run.paper_total),
             less(lambda r: r.paper_total)]
    if one:
        number = 1 + one.ours.index(ours)
        change = quality[f"change in {one.published.quality}"]
        cells += [tables.times(one.published.memory_ratio), change[number].text, change[0].text]
    else:
        cells += ["", "", ""]
    return "| " + " | ".join(cells) + " |\n"
