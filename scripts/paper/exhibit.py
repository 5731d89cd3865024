"""What a module of tables or figures hands to the page.

Every module paper/table_*.py and paper/figure_*.py has

    exhibits(collection) -> list of Exhibit and Missing

in the order in which they are shown: an Exhibit for what there are results for, a Missing for what
there are none for. Nothing is written by the module; the driver writes files and closes figures.
"""

import re
from dataclasses import dataclass


@dataclass(eq=False)
class Exhibit:
    """Either a figure or a table. `name` is that of its files, without suffix: of slug()'s
    characters, and unique. `title` and `caption` are plain text, which the page escapes."""
    name: str
    title: str
    caption: str
    sources: list  # of Run: every result that a number or mark in it comes from
    figure: object = None  # matplotlib's Figure, drawn within style.drawing()
    table: object = None  # a tables.Table
    notes: str = ""  # what few readers need: definitions. Plain text


@dataclass(frozen=True)
class Missing:
    """What is not shown, as in "The timeline of DynamicConv", and the command that makes its results."""
    what: str
    command: str


def slug(text):
    """As a part of a file name: "dynamic_conv" of "dynamic_conv", "wrn_28_2" of "WRN-28/2"."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "unnamed"
