"""The index page: the headline, every exhibit, what each was made of, and what is missing."""

import html
import struct
from collections import defaultdict

import spec_words
from environment import ROOT
from paper import headline, published, tables, wording

KINDS = {"figure": [("pdf", "PDF"), ("png", "PNG")],
         "table": [("md", "Markdown"), ("csv", "CSV"), ("tex", "LaTeX")]}

SHOWN = 1.25 * 96 / 200  # pixels of the page for one of a figure: a quarter larger than in print

STYLE = """
:root { color-scheme: light dark; --back: #fbfaf7; --card: #ffffff; --ink: #1d1d1f; --quiet: #5c5c66;
  --line: #dcdad4; --strong-line: #a7a59e; --accent: #0b5c93; --mark: #f0ede5; }
@media (prefers-color-scheme: dark) { :root { --back: #16171a; --card: #1e2024; --ink: #e9e8e4;
  --quiet: #a5a6ad; --line: #33363c; --strong-line: #666a73; --accent: #7fbbe8; --mark: #26292e; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 0 1.2rem 4rem; max-width: 78rem; background: var(--back);
  color: var(--ink); font: 1rem/1.55 Georgia, "Iowan Old Style", "Times New Roman", serif; }
h1, h2, h3, nav, table, .links, details {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: clamp(1.6rem, 1.2rem + 1.6vw, 2.3rem); line-height: 1.15; letter-spacing: -0.015em;
  margin: 2.6rem 0 0.4rem; }
h2 { font-size: 1.45rem; letter-spacing: -0.01em; margin: 3.2rem 0 1rem; padding-top: 0.7rem;
  border-top: 2px solid var(--ink); }
h3 { font-size: 1.06rem; line-height: 1.3; margin: 0 0 0.3rem; }
p { margin: 0.4rem 0; max-width: 46rem; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 0.15em; }
small { font-size: 0.82em; color: var(--quiet); font-weight: 400; }
code { font: 0.86em/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
.lead { color: var(--quiet); }
.headlines { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1rem; margin: 1.6rem 0; }
.headline, .exhibit { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1rem 1.2rem; min-width: 0; }
.exhibit { margin: 0 0 1.6rem; scroll-margin-top: 1rem; }
.headline table { border: none; width: 100%; font-size: 1rem; table-layout: fixed; margin: 0.6rem 0; }
.headline thead th { border: none; color: var(--quiet); font-size: 0.8rem; font-weight: 400; padding: 0; }
.headline tbody th { border: none; color: var(--quiet); font-size: 0.8rem; font-weight: 400;
  padding: 0.7rem 0 0; border-top: 1px solid var(--line); }
.headline tbody tr:hover { background: none; }
.headline td { white-space: normal; padding: 0 0.6rem 0.7rem 0; font-size: 1.6rem; font-weight: 650; line-height: 1.25;
  letter-spacing: -0.02em; }
.headline td.long { font-size: 1rem; letter-spacing: 0; }
.headline td.unknown { font-size: 0.9rem; font-weight: 400; color: var(--quiet); letter-spacing: 0; }
nav { font-size: 0.92rem; margin: 1.6rem 0; }
nav ul { margin: 0.2rem 0 0.8rem; padding: 0; list-style: none; }
nav li { padding: 0.12rem 0; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav .section { font-weight: 650; }
.contents { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr));
  gap: 0 2rem; }
.caption { color: var(--quiet); font-size: 0.95rem; }
.picture { background: #ffffff; border-radius: 4px; padding: 0.5rem; margin: 0.8rem 0; overflow-x: auto;
  width: fit-content; max-width: 100%; }
.picture img { display: block; max-width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-size: 0.84rem; line-height: 1.35; min-width: 100%;
  font-variant-numeric: tabular-nums; border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink); }
th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--ink); text-align: left; }
th small { display: block; }
th, td { padding: 0.3rem 0.7rem 0.3rem 0; }
th:last-child, td:last-child { padding-right: 0.2rem; }
td { vertical-align: baseline; }
td.number, th.number { text-align: right; }
td { white-space: nowrap; }
td.long { white-space: normal; min-width: 8.5rem; overflow-wrap: break-word; }
tbody tr:hover { background: var(--mark); }
tr.rule td { border-top: 1px solid var(--strong-line); }
.links { font-size: 0.86rem; display: inline; margin-right: 1rem; }
details { font-size: 0.86rem; margin-top: 0.6rem; color: var(--quiet); }
summary { cursor: pointer; }
details ul { margin: 0.3rem 0 0.8rem; padding-left: 1.2rem; overflow-wrap: anywhere; }
.missing li { margin: 0.5rem 0; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 0.8rem; color: var(--quiet);
  font-size: 0.9rem; }
@media (max-width: 36rem) { body { padding: 0 0.7rem 3rem; } .headline, .exhibit { padding: 0.8rem; }
  .picture img { max-width: none; width: 40rem; } }
@media print { :root { --back: #fff; --card: #fff; --ink: #000; --quiet: #333; --line: #bbb; }
  body { font-size: 10pt; max-width: none; } nav, .links, details { display: none; }
  h2, h3 { break-after: avoid; } .exhibit, .headline { border: none; padding: 0; break-inside: avoid; } .scroll { overflow: visible; }
  table { font-size: 6.5pt; } th, td { padding-right: 0.5em; } }
"""


def page(collection, sections, missing, sizes):
    """The whole text. `sections`: [(title, exhibits)]; `missing`: Missing entries; `sizes`: name of a
    PNG -> (width, height) in pixels, 200 an inch."""
    sections = [(title, exhibits) for title, exhibits in sections if exhibits]
    parts = [_head(), _headlines(collection), _contents(sections, missing)]
    for number, (title, exhibits) in enumerate(sections):
        parts.append(f'<section>\n<h2 id="section-{number}">{_text(title)}</h2>\n')
        parts += [_exhibit(exhibit, sizes) for exhibit in exhibits]
        parts.append("</section>\n")
    parts += [_missing(missing), _foot(collection)]
    return "".join(parts)


def _text(words):
    return html.escape(str(words))


def _head():
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n"
            "<title>Low-memory training: the paper's experiments, measured again</title>\n"
            f"<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"
            "<h1>How much memory does training need?</h1>\n"
            "<p class=\"lead\">The experiments of <a href=\"https://arxiv.org/abs/1904.10631\">Low-Memory "
            "Neural Network Training: A Technical Report</a>, measured again by memfloor. Every number "
            "on this page comes from a result file; under each table and figure stands from which.</p>\n"
            "</header>\n<main>\n")


def _headlines(collection):
    cards = "".join(_headline(one) for one in headline.headlines(collection))
    return (f'<section class="headlines" aria-label="The headline">\n{cards}</section>\n'
            f'<p class="caption">The paper\'s convention: {_text(published.CONVENTION)}. Its figures are '
            f"from the {_text(published.SOURCE)}; the settings behind them are not available, and ours "
            "are our choice. Everything at the peak is what training really needs at once: workspace, "
            "input, transient values and buffers as well. One MB is a million bytes.</p>\n")


def _headline(one):
    labels = ["paper", *(f"ours, {ours.label}" for ours in one.ours)]
    parts = [f'<div class="headline">\n<h3>{_text(one.published.benchmark)}</h3>\n<table>\n<thead><tr>',
             *(f'<th scope="col">{_text(label)}</th>' for label in labels), "</tr></thead>\n"]
    for quantity, cells in headline.rows(one)[:3]:
        parts.append(f'<tbody><tr><th colspan="{len(cells)}" scope="rowgroup">{_text(quantity)}</th></tr>\n<tr>')
        for cell in cells:
            kind = "unknown" if cell.raw is None else "long" if len(cell.text) > 6 else "short"
            parts.append(f'<td class="{kind}">{_text(cell.text)}</td>')
        parts.append("</tr></tbody>\n")
    parts.append("</table>\n")
    for ours in one.ours:
        if ours.run:
            parts.append(f'<p class="caption">{_text(ours.label.capitalize())}: '
                         f"{_text(spec_words.setting(ours.run.spec))}.</p>\n")
    return "".join([*parts, "</div>\n"])


def _contents(sections, missing):
    parts = ['<nav aria-label="Contents">\n<div class="contents">\n']
    for number, (title, exhibits) in enumerate(sections):
        parts.append(f'<div><a class="section" href="#section-{number}">{_text(title)}</a>\n<ul>\n')
        parts += [f'<li><a href="#{_text(e.name)}">{_text(e.title)}</a></li>\n' for e in exhibits]
        parts.append("</ul></div>\n")
    if missing:
        parts.append(f'<div><a class="section" href="#missing">What is missing ({len(missing)})</a></div>\n')
    return "".join([*parts, "</div>\n</nav>\n"])


def _exhibit(exhibit, sizes):
    if exhibit.table:
        body = f'<div class="scroll" tabindex="0">\n{tables.hypertext(exhibit)}</div>\n'
        kinds = KINDS["table"]
    else:
        picture = f"{exhibit.name}.png"
        width, height = (round(pixels * SHOWN) for pixels in sizes[picture])
        body = (f'<div class="picture"><img src="{_text(picture)}" width="{width}" height="{height}" '
                f'alt="{_text(exhibit.title)}. {_text(exhibit.caption)}" loading="lazy"></div>\n')
        kinds = KINDS["figure"]
    links = "".join(f'<a class="links" href="{_text(exhibit.name)}.{suffix}">{label}</a>'
                    for suffix, label in kinds)
    return (f'<article class="exhibit" id="{_text(exhibit.name)}">\n<h3>{_text(exhibit.title)}</h3>\n'
            f'<p class="caption">{_text(exhibit.caption)}</p>\n{body}{links}\n'
            f"{_details(exhibit)}</article>\n")


def _details(exhibit):
    """What few readers need: definitions, and which files, code and machines it comes from."""
    runs, groups = exhibit.sources, defaultdict(list)
    for run in runs:
        environment = run.result["environment"]
        groups[run.machine, wording.machine(run), environment["git_commit"],
               environment.get("source_sha256") or ""].append(run)
    files = "1 result file" if len(runs) == 1 else f"{len(runs)} result files"
    parts = [f"<details>\n<summary>{'Notes; made' if exhibit.notes else 'Made'} from {files}</summary>\n"]
    if exhibit.notes:
        parts.append(f"<p>{_text(exhibit.notes)}</p>\n")
    for (name, machine, commit, source), found in sorted(groups.items()):
        sources = f", source hash <code>{_text(source[:12])}</code>" if source else ""
        parts.append(f"<p>{_text(name)} ({_text(machine)}), commit "
                     f"<code>{_text(wording.short_commit(commit))}</code>{sources}:</p>\n<ul>\n")
        parts += [f"<li><code>{_text(_shown(run))}</code></li>\n"
                  for run in sorted(found, key=lambda r: r.label)]
        parts.append("</ul>\n")
    return "".join([*parts, "</details>\n"])


def _shown(run):
    path = run.path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else run.label


def _missing(missing):
    if not missing:
        return ""
    return ('<section class="missing">\n<h2 id="missing">What is missing</h2>\n<p>There are no results yet '
            "for these. The command beside each makes them; <code>scripts/make_paper</code> then shows "
            "them.</p>\n<ul>\n" +
            "".join(f"<li>{_text(m.what)}<br><code>{_text(m.command)}</code></li>\n" for m in missing) +
            "</ul>\n</section>\n")


def _foot(collection):
    machines = sorted({f"{r.machine} ({wording.machine(r)})" for r in collection.runs})
    return (f"</main>\n<footer>\n<p>Memory, steps and timelines are those of "
            f"<code>{_text(collection.main.name)}</code>; trainings are those of all machines. Machines: "
            f"{_text('; '.join(machines))}.</p>\n<p>Made by <code>scripts/make_paper</code> from result "
            "files alone: the same results give the same page.</p>\n</footer>\n</body>\n</html>\n")


def size_of_png(path):
    """(width, height) in pixels."""
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:24])
