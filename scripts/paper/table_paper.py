"""The paper's known figures beside ours."""

from paper import headline, published, tables
from paper.exhibit import Exhibit, slug


def exhibits(collection):
    return [_exhibit(model, one) for model, one in
            zip(published.RESULTS, headline.headlines(collection))]


def _exhibit(model, one):
    benchmark = one.published.benchmark
    table = tables.Table([
        tables.Column("benchmark", "benchmark", shown=False),
        tables.Column("quantity", "quantity", number=False), tables.Column("paper", "paper"),
        *(tables.Column(f"ours_{slug(ours.label)}", f"ours, {ours.label}") for ours in one.ours)])
    for quantity, cells in headline.rows(one):
        table.add(tables.text(benchmark), tables.text(quantity), *cells)
    caption = (f"The paper's figures are from the {published.SOURCE}. Its tables and settings were not "
               "available to us; our settings are our choice. The quality of a shortened training is not "
               "comparable with the paper's.")
    notes = (f"The paper's convention: {published.CONVENTION}. Quality is compared between trainings that "
             "differ in the techniques alone. In CSV, memory is in bytes and shares are fractions.")
    return Exhibit(f"paper_vs_ours_{slug(model)}", f"{benchmark}: what is known of the paper, beside ours",
                   caption, one.sources, table=table, notes=notes)
