"""The paper's known figures beside ours."""

from paper import headline, published, tables
from paper.exhibit import Exhibit


def exhibits(collection):
    found = headline.headlines(collection)
    labels = [ours.label for ours in found[0].ours]
    table = tables.Table([
        tables.Column("benchmark", "benchmark", number=False),
        tables.Column("quantity", "quantity", number=False), tables.Column("paper", "paper"),
        *(tables.Column("ours_" + label.replace(" ", "_"), f"ours, {label}") for label in labels)])
    for one in found:
        for number, (quantity, cells) in enumerate(headline.rows(one)):
            name = one.published.benchmark
            table.add(tables.Cell(name, "" if number else name), tables.text(quantity), *cells,
                      rule=number == 0)
    caption = (f"The paper's figures are from the {published.SOURCE}. Its tables and settings were not "
               "available to us; our settings are our choice. The quality of a "
               "shortened training is not comparable with the paper's.")
    notes = (f"The paper's convention: {published.CONVENTION}. Quality is compared between trainings that "
             "differ in the techniques alone. In CSV, memory is in bytes and shares are fractions.")
    return [Exhibit("paper_vs_ours", "What is known of the paper, beside ours", caption,
                    [run for one in found for run in one.sources], table=table, notes=notes)]
