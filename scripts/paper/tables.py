"""A table, and how it is written: Markdown, CSV, LaTeX, and HTML for the page.

Texts are plain; each writer escapes them. CSV holds raw values (bytes as integers) also where the other
forms leave a cell blank or round it.
"""

import csv
import html
import io
import math
import re
import textwrap
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    key: str  # in CSV
    title: str
    unit: str = ""
    number: bool = True  # aligned right
    shown: bool = True  # elsewhere than in CSV


@dataclass(frozen=True)
class Cell:
    raw: object  # in CSV: a number, a text, or None for what is unknown
    text: str  # elsewhere
    beside: str = ""  # a second figure, as a ratio, in brackets


@dataclass
class Row:
    cells: list
    rule: bool = False  # a line above
    is_data: bool = True  # in CSV as well


@dataclass
class Table:
    columns: list
    rows: list = field(default_factory=list)

    def add(self, *cells, rule=False, is_data=True):
        assert len(cells) == len(self.columns)
        self.rows.append(Row(list(cells), rule and bool(self.rows), is_data))


def text(words, raw=None):
    return Cell(words if raw is None else raw, words)


def megabytes(count, beside=""):
    return Cell(count, f"{count / 1e6:,.2f}", beside)


def significant(number):
    """Three significant digits, as in "1.70", "0.0213", "1,204"."""
    digits = 2 - math.floor(math.log10(abs(number))) if number else 0
    return f"{number:,.{max(0, digits)}f}"


def times(ratio):
    """As in "1.04×", "60.7×", "232×"."""
    digits = 2 if ratio < 1.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:,.{digits}f}×"


def ratio(value):
    return Cell(round(value, 4), times(value))


def blank(cell):
    """The same, shown only in CSV."""
    return Cell(cell.raw, "")


def _shown(exhibit):
    """What people see: the columns, and for each row (the row, [(column, cell)])."""
    columns = exhibit.table.columns
    return [c for c in columns if c.shown], [
        (row, [(c, cell) for c, cell in zip(columns, row.cells) if c.shown]) for row in exhibit.table.rows]


def _whole(cell):
    return f"{cell.text} ({cell.beside})" if cell.text and cell.beside else cell.text


def _title(column):
    return f"{column.title} ({column.unit})" if column.unit else column.title


# --- Markdown -------------------------------------------------------------------------------------

def _markdown_text(words):
    return re.sub(r"([\\`*_{}\[\]<>|#&])", r"\\\1", " ".join(words.split()))


def markdown(exhibit):
    columns, rows = _shown(exhibit)
    line = lambda cells: "| " + " | ".join(cells) + " |"
    lines = [f"# {_markdown_text(exhibit.title)}", "", _markdown_text(exhibit.caption), "",
             line(_markdown_text(_title(c)) for c in columns),
             "|" + "|".join("---:" if c.number else "---" for c in columns) + "|"]
    lines += [line(_markdown_text(_whole(cell)) for _, cell in cells) for _, cells in rows]
    if exhibit.notes:
        lines += ["", _markdown_text(exhibit.notes)]
    return "\n".join(lines) + "\n"


# --- CSV ------------------------------------------------------------------------------------------

def comma_separated(exhibit):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.key for column in exhibit.table.columns)
    for row in filter(lambda row: row.is_data, exhibit.table.rows):
        writer.writerow("" if cell.raw is None else cell.raw for cell in row.cells)
    return out.getvalue()


# --- LaTeX ----------------------------------------------------------------------------------------

_LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "%": r"\%", "&": r"\&",
          "#": r"\#", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
          "×": r"$\times$", "−": r"$-$", "±": r"$\pm$", "–": "--", "●": r"$\bullet$"}


def _latex_text(words):
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(words.split()))


def _latex_lines(lines, column, anchor):
    """Several lines in one cell, which stand on ("b") or hang from ("t") the row's line."""
    lines = [_latex_text(line) for line in lines]
    if len(lines) < 2:
        return "".join(lines)
    side = "r" if column.number else "l"
    return f"\\begin{{tabular}}[{anchor}]{{@{{}}{side}@{{}}}}" + r" \\ ".join(lines) + r"\end{tabular}"


def _latex_head(column):
    return _latex_lines(textwrap.wrap(column.title, 14) +
                        (textwrap.wrap(f"({column.unit})", 20) if column.unit else []), column, "b")


def latex(exhibit):
    columns, rows = _shown(exhibit)
    line = lambda cells: "    " + " & ".join(cells) + r" \\"
    lines = ["% needs the packages booktabs and graphicx, and fontenc with T1",
             r"\begin{table}", r"  \centering", f"  \\caption{{{_latex_text(exhibit.title)}. "
             f"{_latex_text(exhibit.caption)}}}", f"  \\label{{tab:{exhibit.name}}}",
             r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
             "  \\begin{tabular}{" + "".join("r" if c.number else "l" for c in columns) + "}",
             r"    \toprule", line(map(_latex_head, columns)), r"    \midrule"]
    for row, cells in rows:
        if row.rule:
            lines.append(r"    \midrule")
        lines.append(line(_latex_lines(textwrap.wrap(_whole(cell), 36), column, "t")
                          for column, cell in cells))
    lines += [r"    \bottomrule", r"  \end{tabular}}"]
    if exhibit.notes:
        lines += ["", r"  \smallskip", f"  {{\\footnotesize\\raggedright {_latex_text(exhibit.notes)}\\par}}"]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


# --- HTML -----------------------------------------------------------------------------------------

LONG = 17  # letters, from which on a cell breaks into lines

def hypertext(exhibit):
    """The table alone; its title and caption are the page's."""
    columns, rows = _shown(exhibit)
    lines = ["<table>", "<thead><tr>"]
    for column in columns:
        unit = f" <small>{html.escape(column.unit)}</small>" if column.unit else ""
        lines.append(f'<th scope="col"{_classes(number=column.number)}>{html.escape(column.title)}{unit}</th>')
    lines.append("</tr></thead>\n<tbody>")
    for row, cells in rows:
        lines.append('<tr class="rule">' if row.rule else "<tr>")
        for column, cell in cells:
            beside = f" <small>({html.escape(cell.beside)})</small>" if cell.text and cell.beside else ""
            classes = _classes(number=column.number, long=len(_whole(cell)) > LONG)
            lines.append(f"<td{classes}>{_breakable(cell.text)}{beside}</td>")
        lines.append("</tr>")
    lines.append("</tbody></table>")
    return "\n".join(lines) + "\n"


def _breakable(words):
    """Escaped; a line may end after a slash."""
    return html.escape(words).replace("/", "/<wbr>")


def _classes(**classes):
    names = " ".join(name for name, is_on in classes.items() if is_on)
    return f' class="{names}"' if names else ""
