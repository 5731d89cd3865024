"""How figures look, and how they are saved."""

import os

os.environ["SOURCE_DATE_EPOCH"] = "0"  # no dates in files: same results, same bytes
import matplotlib  # noqa: E402

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402
from paper.files import replacing  # noqa: E402

# Colours of Okabe and Ito: told apart by colour-blind readers. Neighbours in a bar also differ in
# lightness, and hatches tell them apart in grey.
STYLES = {
    "weight": ("#0072B2", ""),
    "sparse_index": ("#56B4E9", "xxx"),
    "gradient": ("#E69F00", ""),
    "optimizer_state": ("#D55E00", "///"),
    "buffer": ("#000000", ""),
    "activation": ("#A6DCC8", ""),
    "transient": ("#009E73", "..."),
    "workspace": ("#CC79A7", "\\\\\\"),
    "input": ("#F0E442", "---"),
}
PAPER_STYLES = {
    "model": STYLES["weight"],
    "optimizer": STYLES["optimizer_state"],
    "activation": STYLES["activation"],
}
LINES = [("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", "-.", "^"),
         ("#000000", ":", "D"), ("#CC79A7", "-", "v"), ("#E69F00", "--", "P")]

SETTINGS = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "hatch.linewidth": 0.6, "pdf.fonttype": 42, "svg.hashsalt": "memfloor", "savefig.dpi": 200,
    "figure.constrained_layout.use": True, "text.parse_math": False,  # texts of results hold $ as well
}


def drawing():
    """A context with these settings, in which figures are drawn and saved."""
    return matplotlib.rc_context(SETTINGS)


def save(figure, folder, name):
    """Writes NAME.pdf and NAME.png atomically, without dates or version strings; returns their names."""
    names = []
    for suffix, metadata in [("pdf", {"CreationDate": None, "Creator": "memfloor",
                                      "Producer": None}),
                             ("png", {"Software": None})]:
        with replacing(folder / f"{name}.{suffix}") as partial:
            figure.savefig(partial, format=suffix, metadata=metadata)
        names.append(f"{name}.{suffix}")
    pyplot.close(figure)
    return names
